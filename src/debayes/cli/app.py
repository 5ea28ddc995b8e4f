"""The `debayes` command: its list of commands, its options for all of them, and error handling."""

import atexit
import gc
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from debayes.cli import models, pictures, research
from debayes.cli.doctor import doctor
from debayes.cli.options import Debug, Verbose, common_options
from debayes.cli.strengths import strengths
from debayes.system import errors, log, malloc


class _FlagsWithoutType:
    """Help that shows --json, not --json <bool>."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) or getattr(param, "count", False):
                param.metavar = ""
        return params


class _Group(_FlagsWithoutType, TyperGroup):
    """The program."""


class _Command(_FlagsWithoutType, TyperCommand):
    """One command of it."""


class _Lists(_Command):
    """A command whose options take several values: --sigma 5 10 15 is --sigma 5 --sigma 10 --sigma 15.

    Only for commands without arguments: an argument after such an option would be one more value of it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        several = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        current = ""
        for arg in args:
            if arg.startswith("-") and not arg[1:].replace(".", "", 1).isdigit():  # a number below 0 is a value
                current = arg if arg in several else ""
            elif current and spread[-1] != current:
                spread.append(current)
            spread.append(arg)
        return super().parse_args(ctx, spread)


app = typer.Typer(
    name="debayes",
    cls=_Group,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Verbose = 0,
    debug: Debug = False,
) -> None:
    """Noisy camera mosaics to clean colour images, with a Bayesian posterior for every pixel."""
    if version:
        from debayes import __version__

        typer.echo(__version__)
        raise typer.Exit


PICTURES, RESEARCH, MODELS = "Pictures", "Research and training", "Models"

COMMANDS: tuple[tuple[str, Callable[..., None], type[_Command]], ...] = (
    (PICTURES, pictures.develop, _Command),
    (PICTURES, strengths, _Command),
    (PICTURES, pictures.restore, _Command),
    (PICTURES, models.info, _Command),
    (PICTURES, pictures.simulate, _Command),
    (PICTURES, pictures.demo, _Command),
    (PICTURES, doctor, _Command),
    (MODELS, models.export, _Command),
    (MODELS, models.bench, _Lists),
    (MODELS, models.calibrate, _Command),
    (MODELS, models.prune, _Command),
    (MODELS, models.blend, _Command),
    (RESEARCH, research.evaluate, _Lists),
    (RESEARCH, research.reproduce, _Command),
    (RESEARCH, research.train, _Command),
    (RESEARCH, research.tiles, _Command),
    (RESEARCH, research.runs, _Command),
)
for panel, function, kind in COMMANDS:
    app.command(cls=kind, rich_help_panel=panel)(common_options(function))

# Commands that run networks on whole pictures: for them the allocator keeps freed memory.
RESTORING = ("develop", "strengths", "restore", "info", "demo", "bench", "evaluate", "reproduce")


def main() -> None:
    """Run the command and exit with its code: 0, or one of those of `system.errors`."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    # A quarter of a million objects come with PyTorch: looking again and again for those that are no longer used
    # would take a fifth of the time of importing it, and once more at the end a third of a second.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    warnings.formatwarning = lambda message, *_, **__: f"debayes: {message}\n"
    log.show()
    signal.signal(signal.SIGTERM, _terminate)
    command = next((arg for arg in sys.argv[1:] if not arg.startswith("-")), "")
    try:
        with malloc.use_single_arena() if command in RESTORING else nullcontext():
            code = app(standalone_mode=False) or 0
    except (typer.Abort, KeyboardInterrupt):
        resumes = command in ("develop", "reproduce")
        sys.stderr.write(f"debayes: stopped{': run the same command again to continue' if resumes else ''}\n")
        code = errors.INTERRUPTED
    except Exception as error:
        code = _fail(
            error, "a smaller optimizer.batch" if command == "train" else "a smaller --tile or fewer --jobs"
        )
    sys.exit(code)


def _terminate(*_: object) -> None:
    """End at SIGTERM as at the end of the program: temporary files are removed, processes of our own are ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
    if "multiprocessing" in sys.modules:
        from multiprocessing import active_children

        for child in active_children():
            child.terminate()
    sys.exit(errors.TERMINATED)


def _fail(error: Exception, smaller: str) -> int:
    """Print one line about an error, with --debug its traceback before it; the exit code."""
    usage = getattr(error, "format_message", None)  # typer's: an option that is unknown, missing or malformed
    if "--debug" in sys.argv and not usage:
        traceback.print_exception(error)
    if not usage and errors.is_bug(error):
        sys.stderr.write(f"debayes: {errors.describe_bug(error)}\n")
        return errors.BUG
    line = f"{usage().rstrip('.')} (see --help)" if usage else errors.one_line(error, smaller)
    if os.environ.get("RANK", "0") == "0":  # one line, not one of each process that torchrun started
        sys.stderr.write(f"debayes: {line}\n")
    return errors.FAILED
