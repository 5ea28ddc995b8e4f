"""Print constraints.txt: the installed version of every package that debayes, its extras and its groups need.

make constraints        # upgrades them all first
"""

import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HEADER = "# Versions that the tests were run with; pip install -c constraints.txt. Written by `make constraints`."

# GPU libraries come with the build of PyTorch that was chosen.
LEFT_OUT = ("nvidia-", "triton")


def main() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    wanted = [
        *project["project"]["dependencies"],
        *(line for part in (extras, groups) for each in part.values() for line in each),
    ]
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    open_ = [(Requirement(line), "") for line in wanted]
    while open_:
        requirement, extra = open_.pop()
        name = canonicalize_name(requirement.name)
        if name == "debayes" or name.startswith(LEFT_OUT):
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        found = distribution(name)
        versions[name] = f"{found.name}=={found.version.partition('+')[0]}"
        for part in ("", *requirement.extras):
            if (name, part) not in seen:
                seen.add((name, part))
                open_ += [(Requirement(line), part) for line in found.requires or ()]
    lines = sorted(versions.values(), key=str.lower)
    sys.stdout.write("\n".join((HEADER, *lines, "")))


if __name__ == "__main__":
    main()
