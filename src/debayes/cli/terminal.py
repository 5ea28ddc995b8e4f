"""Progress bars on a terminal, and Ctrl-C during training."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from debayes.system.errors import DebayesError

if TYPE_CHECKING:
    from debayes.training.progress import Progress


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal; nothing in a pipe."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def progress_lines(title: str) -> Iterator[tuple[Callable[[float], None], Callable[[str], None]]]:
    """A progress bar on a terminal, as `progress_bar`, and a function that prints a line to stdout at once: above
    the bar on a terminal, and in a pipe too."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=1.0)

        def say(line: str) -> None:
            if bar.disable:
                typer.echo(line)
                return
            bar.stop()  # removes the bar, and gives stdout back, which may be a file
            typer.echo(line)
            bar.start()

        yield lambda share: bar.update(task, completed=share), say


@contextmanager
def batch_bar(files: int) -> Iterator[tuple[Callable[[str, float], None], Callable[[int, str], None]]]:
    """Two progress bars on a terminal: the current file, and all files with megapixels per second and time left.

    Two functions are returned. Call the first with a file's name and the share of it that is done, the second with
    a finished file's pixels and a line to print, which may be empty. In a pipe only the lines are printed.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[speed]}"),
    )
    start = monotonic()
    finished = pixels = 0
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        current = bar.add_task("starting", total=1.0, speed="")
        total = bar.add_task(f"0 of {files} files", total=files, speed="")

        def report(name: str, share: float) -> None:
            bar.update(current, description=name, completed=share)
            bar.update(total, completed=finished + share)

        def say(size: int, line: str) -> None:
            nonlocal finished, pixels
            finished, pixels = finished + 1, pixels + size
            speed = f"{pixels / 1e6 / (monotonic() - start):.2f} MP/s"
            bar.update(total, description=f"{finished} of {files} files", completed=finished, speed=speed)
            if line:
                bar.console.file.flush()
                Console(soft_wrap=True, highlight=False).print(line, markup=False)

        yield report, say


@contextmanager
def watch_training(folder: Path, name: str, tensorboard: bool) -> Iterator[Callable[["Progress"], None]]:
    """Reports of a training run: a live line on a terminal, plain lines in a pipe, TensorBoard if asked for."""
    if tensorboard and find_spec("tensorboard") is None:
        raise DebayesError('--tensorboard needs TensorBoard: pip install "debayes[watch]"')
    writer: Any = None
    console = Console(stderr=True)
    columns = (
        TextColumn(name),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)
        val = ""

        def report(at: "Progress") -> None:
            nonlocal val, writer
            if at.val_psnr is not None:
                val = f"  val {at.val_psnr:.2f} dB"
            line = f"step {at.step}  loss {at.loss:.4g}{val}  {at.steps_per_second:.1f} it/s  {at.memory:.1f} GiB"
            bar.update(task, completed=at.share, description=line)
            if not console.is_terminal:
                console.print(f"{at.share:4.0%}  {line}  {at.seconds_left:.0f} s left", soft_wrap=True)
            if tensorboard:
                if writer is None:  # only now: a run that is rejected is left as it was
                    from torch.utils.tensorboard import SummaryWriter

                    writer = SummaryWriter(str(folder))
                for key in ("loss", "rate", "steps_per_second", "memory", "val_psnr", "dead_channels"):
                    if (value := getattr(at, key)) is not None:
                        writer.add_scalar(key, value, at.step)

        try:
            yield report
        finally:
            if writer is not None:
                writer.close()


@contextmanager
def catch_interrupt() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, as a function, so that a run is saved first; a second one ends it at once."""
    pressed = False

    def remember(*_: object) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
