"""The `debayes` command in the tests' own process."""

import sys

import pytest

from debayes import cli


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of `debayes ARGUMENTS` in this process."""
    monkeypatch.setattr(sys, "argv", ["debayes", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)
