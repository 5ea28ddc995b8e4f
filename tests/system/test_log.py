"""What -v and -vv print."""

import logging
from collections.abc import Iterator

import pytest

from debayes.system.log import log, show


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The logger as it was."""
    level, handlers = log.level, list(log.handlers)
    yield
    log.setLevel(level)
    log.handlers[:] = handlers


@pytest.mark.parametrize(("verbosity", "shown"), [(0, "w"), (1, "wi"), (2, "wid"), (5, "wid")])
def test_verbosity(verbosity: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings always, decisions with -v, details with -vv; each once, on stderr."""
    show()
    show(verbosity)
    for level, letter in ((logging.WARNING, "w"), (logging.INFO, "i"), (logging.DEBUG, "d")):
        log.log(level, "%s", letter)
    out, err = capsys.readouterr()
    assert out == "" and err == "".join(f"debayes: {letter}\n" for letter in shown)
