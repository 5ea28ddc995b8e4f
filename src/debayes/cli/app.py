"""The `debayes` command: its list of commands, and what becomes of an error."""

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from debayes.cli import models, pictures, research
from debayes.system import files

app = typer.Typer(
    name="debayes",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Noisy camera mosaics to clean colour images, with a posterior for every pixel."""
    if version:
        from debayes import __version__

        typer.echo(__version__)
        raise typer.Exit


class _Lists(TyperCommand):
    """A command whose options take several values: --sigma 5 10 15 is --sigma 5 --sigma 10 --sigma 15."""

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


COMMANDS: tuple[tuple[Callable[..., None], type[TyperCommand]], ...] = (
    (pictures.develop, TyperCommand),
    (pictures.restore, TyperCommand),
    (pictures.simulate, TyperCommand),
    (pictures.info, TyperCommand),
    (research.evaluate, _Lists),
    (research.reproduce, _Lists),
    (research.train, TyperCommand),
    (research.tiles, TyperCommand),
    (research.runs, TyperCommand),
    (models.prune, TyperCommand),
    (models.blend, _Lists),
    (models.calibrate, TyperCommand),
    (models.export, TyperCommand),
    (models.bench, _Lists),
    (pictures.demo, TyperCommand),
)
for function, kind in COMMANDS:
    app.command(cls=kind)(function)


def main() -> None:
    """Run the command; what a user can put right is one sentence and exit code 2."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    # A quarter of a million objects come with PyTorch: looking again and again for those that are no longer used
    # would take a fifth of the time of importing it, and once more at the end a third of a second.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    warnings.formatwarning = lambda message, *_, **__: f"debayes: {message}\n"
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except (typer.Abort, KeyboardInterrupt):
        again = ": start it again to go on where it was" if sys.argv[1:2] in (["develop"], ["reproduce"]) else ""
        sys.stderr.write(f"debayes: stopped{again}\n")
        sys.exit(130)
    except Exception as error:
        sentence = _explain(error)
        if sentence is None:
            raise
        if os.environ.get("RANK", "0") == "0":  # of torchrun's processes one speaks
            sys.stderr.write(f"debayes: {sentence}\n")
        sys.exit(2)


def _explain(error: Exception) -> str | None:
    """The sentence for an error that a user can put right, none for ours."""
    if hasattr(error, "format_message"):  # typer's own: an option that is unknown, missing or of the wrong kind
        return f"{error.format_message().rstrip('.')} (see --help)"
    if isinstance(error, OSError):
        return files.explain(error)
    if isinstance(error, ValueError | FloatingPointError | ModuleNotFoundError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error)):
        cure = (
            "a smaller optimizer.batch or data.tiles_on_device"
            if sys.argv[1:2] == ["train"]
            else "a smaller --tile"
        )
        return f"there is not enough memory: close other programs, or use {cure}"
    return None
