"""What `make docs` adds to MkDocs: fences named math become MathML, which browsers draw without a script."""

from typing import Any

from latex2mathml.converter import convert


def on_config(config: Any) -> Any:
    """Let pymdownx.superfences hand math fences to `draw`."""
    fence = {"name": "math", "class": "math", "format": draw}
    config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    return config


def draw(source: str, *_: Any, **__: Any) -> str:
    """One formula per fence, as a block."""
    return f'<div style="overflow-x: auto">{convert(source, display="block")}</div>'
