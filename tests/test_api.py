"""The public surface: these names, imported when first used."""

import subprocess
import sys

import pytest

import debayes


def test_public_names() -> None:
    """What is public is listed here; taking a name away or adding one changes this test."""
    assert debayes.__all__ == [
        "Config",
        "Network",
        "NormalInverseGamma",
        "Raw",
        "adapt",
        "develop",
        "evaluate",
        "load",
        "mosaic",
        "read",
        "restore",
        "train",
    ]
    assert set(debayes.__all__) <= set(dir(debayes))
    for name in debayes.__all__:
        assert callable(getattr(debayes, name))


def test_unknown_names_are_attribute_errors() -> None:
    """A typo fails as in any module."""
    with pytest.raises(AttributeError, match="no attribute 'restroe'"):
        debayes.restroe  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    """`import debayes` loads no torch; using a name does."""
    code = (
        "import sys, debayes\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "debayes.Network\nassert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
