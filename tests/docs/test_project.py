"""The files around the code agree with each other."""

import re
import tomllib
from pathlib import Path

import debayes

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    """The packages that requirements name."""
    found = (re.match(r"[\w.-]+", line) for line in requirements)
    return {match.group().lower().replace("_", "-") for match in found if match}


def test_constraints_pin_every_requirement() -> None:
    """A new requirement needs a pin: `make constraints`."""
    parts = (PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"])
    wanted = names(
        [*PROJECT["project"]["dependencies"], *(line for part in parts for each in part.values() for line in each)]
    )
    pinned = names([line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line])
    assert wanted - {"debayes"} <= pinned


def test_all_extra_is_all() -> None:
    """`debayes[all]` holds every other extra."""
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.removeprefix("debayes[").removesuffix("]").split(",")) == set(extras) - {"all"}


def test_versions_agree() -> None:
    """The package, its metadata and the citation have one version."""
    assert PROJECT["project"]["version"] == debayes.__version__
    assert f"version: {debayes.__version__}\n" in (ROOT / "CITATION.cff").read_text()
