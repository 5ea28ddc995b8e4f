"""Logging: what was decided and why, for `-v` and for host programs that listen to the logger "debayes".

The library only logs; `show` is called by the command line. Levels: `info` is a decision that shapes the result or
its speed, `debug` its details, `warning` something that a user should know without asking.
"""

import logging
import sys

log = logging.getLogger("debayes")

LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _ToStderr(logging.Handler):
    """Writes to what `sys.stderr` is when a record comes: progress bars replace it while they are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"debayes: {self.format(record)}\n")


def show(verbosity: int = 0) -> None:
    """Print warnings to stderr; with a verbosity of 1 decisions too, with 2 or more their details."""
    log.setLevel(LEVELS[min(verbosity, len(LEVELS) - 1)])
    if not any(isinstance(handler, _ToStderr) for handler in log.handlers):
        log.addHandler(_ToStderr())
