"""Developing many raw files: where pictures go, what is skipped; a failing file does not stop the batch."""

import pickle
import re
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from debayes.darkroom import file, rendering, workers
from debayes.darkroom.file import Settings
from debayes.engine import Engine, prepare
from debayes.formats import dng, raw
from debayes.network import weights
from debayes.system import cores
from debayes.system.errors import DebayesError, is_bug, one_line
from debayes.system.log import log

# The last part of a developed file's name: it distinguishes developed DNGs from raws.
MARK = "-debayes"

# The names of files that debayes writes: pictures, and what lies beside them, such as NAME-debayes.noise.tiff.
_OWN_NAME = re.compile(rf".*{MARK}(\.[a-z]+)?({'|'.join(map(re.escape, rendering.ENDINGS))})", re.IGNORECASE)

# The megapixels assumed of a file that has not been read yet.
TYPICAL_MEGAPIXELS = 24.0


@dataclass(frozen=True)
class Job:
    """A raw file and where its picture goes."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Outcome:
    """The result of a job: developed, skipped or failed."""

    job: Job
    answer: dict[str, Any] | None = None
    """What `file.develop_file` answers; nothing if the file was skipped or failed."""
    error: str = ""
    """Why it failed, in one line with the file's name."""
    bug: Exception | None = None
    """The error itself if it is a bug of debayes: raise it when the batch is done."""

    @property
    def failed(self) -> bool:
        """Whether the file could not be developed."""
        return bool(self.error)

    @property
    def skipped(self) -> bool:
        """Whether the picture existed already."""
        return self.answer is None and not self.error


def plan(sources: Sequence[Path], output: Path | None, ending: str) -> list[Job]:
    """The jobs of files and folders: NAME-debayes.dng beside the raw, or below `output` as in the folder given.

    Of two raws with one name the ending is part of the picture's name: a-nef-debayes.dng and a-dng-debayes.dng. If
    several folders hold raws of the same name, each gets a folder of its own below `output`. Files that debayes
    wrote are skipped. If one of several folders holds no raws, its job will fail.
    """
    own = [source for source in sources if not source.is_dir() and is_own(source)]
    if own:
        some = ", ".join(path.name for path in own[:3]) + (", ..." if len(own) > 3 else "")
        log.warning("skipped %d %s that debayes wrote: %s", len(own), "files" if len(own) > 1 else "file", some)
    raws_inside = {source: raw.find(source) if source.is_dir() else [] for source in sources if source not in own}
    for source, raws in raws_inside.items():
        if source.is_dir() and not raws and len(sources) == 1:
            raise DebayesError(f"the folder {source} holds no camera raws ({', '.join(raw.ENDINGS)})")
    jobs = _jobs(raws_inside, output, ending, apart=False)
    if not jobs:
        many = ", ".join(map(str, sources[:3])) + (", ..." if len(sources) > 3 else "")
        raise DebayesError(f"{many}: only files that debayes wrote; give the camera's own files")
    if output is not None and _clash(jobs):
        jobs = _jobs(raws_inside, output, ending, apart=True)
    if clash := _clash(jobs):
        first, second = clash
        raise DebayesError(
            f"{first.source} and {second.source} would be written to the same file, {first.target}: "
            "give them different folders"
        )
    return jobs


def is_own(path: Path) -> bool:
    """Whether debayes wrote a file, by its name, or if it is a DNG by what is inside."""
    return bool(_OWN_NAME.fullmatch(path.name)) or (path.suffix.lower() == ".dng" and dng.is_developed(path))


def _jobs(raws_inside: dict[Path, list[Path]], output: Path | None, ending: str, *, apart: bool) -> list[Job]:
    """The jobs of the raws inside each source; with `apart`, each source has a folder of its name in `output`."""
    places: dict[Path, Path] = {}
    for source, raws in raws_inside.items():
        below = output / source.resolve().name if output is not None and apart else output
        for path in raws:
            if is_own(path):
                log.info("%s is skipped: debayes wrote it", path)
            else:
                places[path] = path.parent if below is None else below / path.parent.relative_to(source)
        if not raws:
            places[source] = source.parent if output is None else output
    names = [(folder, path.stem) for path, folder in places.items()]
    full_names = [(folder, path.stem, path.suffix.lower()) for path, folder in places.items()]
    same_name, same_full_name = Counter(names), Counter(full_names)
    jobs = []
    for (path, folder), name, full in zip(places.items(), names, full_names, strict=True):
        ending_too = f"-{path.suffix[1:].lower()}" if same_name[name] > same_full_name[full] else ""
        jobs.append(Job(path, folder / f"{path.stem}{ending_too}{MARK}{ending}"))
    return jobs


def _clash(jobs: Sequence[Job]) -> tuple[Job, Job] | None:
    """Two jobs that would write the same file, if there are any."""
    by_target: dict[Path, Job] = {}
    for job in jobs:
        if job.target in by_target:
            return by_target[job.target], job
        by_target[job.target] = job
    return None


def run(
    jobs: Sequence[Job],
    model: str | Path,
    settings: Settings,
    *,
    device: str = "cpu",
    engine: str = "auto",
    processes: int = 1,
    overwrite: bool = False,
    progress: Callable[[Job, float], None] | None = None,
) -> Iterator[Outcome]:
    """Develop the files; yields their outcomes as they are done.

    Files that exist are kept unless they are to be overwritten; formats and maps that are missing are made. While
    a GPU restores a picture, the next raw is read and the last picture is encoded and saved. With several
    processes, each has its share of the cores, and progress is reported for whole files only. Folders are made.
    """
    settings = replace(settings, keep=not overwrite)
    todo = []
    for job in jobs:
        if file.is_done(job.target, settings) and not overwrite:
            log.info("%s is skipped: %s exists", job.source, job.target)
            yield Outcome(job)
        else:
            todo.append(job)
    folders = {path for job in todo for path in job.target.parents if not path.exists()}
    try:
        if processes > 1 and len(todo) > 1:
            yield from _run_in_workers(todo, model, settings, device, engine, processes)
        elif todo:
            network = prepare(weights.load(model, device=device), engine, megapixels=TYPICAL_MEGAPIXELS * len(todo))
            log.info("%s runs on %s with the engine %s", model, device, network.name)
            yield from run_here(todo, network, settings, progress)
    finally:
        for folder in sorted(folders, reverse=True):  # those below first
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def run_here(
    jobs: Sequence[Job],
    network: Engine,
    settings: Settings,
    progress: Callable[[Job, float], None] | None = None,
    *,
    overlap: bool | None = None,
) -> Iterator[Outcome]:
    """Develop the files in this process, the steps of `file.process` in several threads.

    At most one file is read, one restored, one encoded and one saved at the same time, which bounds memory.

    With `overlap`, the default on a GPU, all four run at the same time; all but restoring have one core each, so
    that the thread that feeds the GPU does not wait for one. On a CPU a network uses all cores, and anything that
    runs beside it costs twice its own time: the next file is read and the last one encoded between two
    restorations, with all cores. Saving runs beside the network: it only waits for the disk.
    """
    overlap = network.device.type != "cpu" if overlap is None else overlap
    runs = [_Run(job, _steps(job, network, settings, progress, direct=not overlap)) for job in jobs]
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as encoder, ThreadPoolExecutor(1) as saver:
        if overlap:
            limit_to_one_core(reader, encoder, saver)
        reading = reader.submit(runs[0].advance)
        saving: Future[Outcome] | None = None
        for run, following in zip_longest(runs, runs[1:]):
            reading.result()
            if following is not None and overlap:
                reading = reader.submit(following.advance)
            run.advance()
            if saving is not None:
                yield saving.result()
            encoding = encoder.submit(run.advance)
            saving = saver.submit(_save, run, encoding)
            if not overlap:
                if following is not None:
                    reading = reader.submit(following.advance)
                encoding.result()
        if saving is not None:
            yield saving.result()


@dataclass
class _Run:
    """A file on its way through the steps of `file.process`."""

    job: Job
    steps: Generator[None, None, dict[str, Any]]
    outcome: Outcome | None = None

    def advance(self) -> None:
        """Go on to the next stop of the steps, unless the file has failed. No other place catches its errors."""
        if self.outcome is not None:
            return
        try:
            next(self.steps)
        except StopIteration as end:
            self.outcome = Outcome(self.job, end.value)
        except Exception as error:
            self.outcome = _failure(self.job, error)


def _steps(
    job: Job,
    network: Engine,
    settings: Settings,
    progress: Callable[[Job, float], None] | None,
    *,
    direct: bool,
) -> Generator[None, None, dict[str, Any]]:
    """The steps of a job."""
    job.target.parent.mkdir(parents=True, exist_ok=True)
    report = None if progress is None else partial(progress, job)
    return (yield from file.process(network, job.source, job.target, settings, direct=direct, progress=report))


def _save(run: _Run, encoding: Future[None]) -> Outcome:
    """The outcome of a file, once it is encoded and saved."""
    encoding.result()
    run.advance()
    assert run.outcome is not None, "file.process has one stop more than the batch knows of"
    return run.outcome


def _failure(job: Job, error: Exception) -> Outcome:
    """The outcome of a file that failed: by its own fault, for lack of memory, or by a bug of debayes."""
    if not is_bug(error):
        line = one_line(error)
        return Outcome(job, error=line if str(job.source) in line else f"{job.source}: {line}")
    traceback.clear_frames(error.__traceback__)  # they hold the picture
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return Outcome(job, error=f"{job.source}: failed by a bug of debayes ({line})", bug=error)


def limit_to_one_core(*executors: Executor) -> None:
    """Let PyTorch use one core in the threads of these executors (one thread each), and leave other threads as they
    are.

    `torch.set_num_threads` sets the number for the calling thread and for every thread that first uses PyTorch
    later. So that later threads are not affected, the number is restored at the end.
    """

    def limit() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # its first use in this thread: from now on the thread has its own number

    before = torch.get_num_threads()
    try:
        for executor in executors:
            executor.submit(limit).result()
    finally:
        torch.set_num_threads(before)


def _run_in_workers(
    jobs: Sequence[Job], model: str | Path, settings: Settings, device: str, engine: str, processes: int
) -> Iterator[Outcome]:
    """Develop the files in several processes, each with its share of the cores."""
    threads = max(1, cores.count() // processes)
    log.info("%d processes with %d threads each", processes, threads)
    make = partial(_prepare_worker, model, settings, device, engine, threads)
    for job, result in workers.run(make, jobs, processes=processes, threads=threads):
        if isinstance(result, workers.Died):
            yield Outcome(job, error=f"{job.source}: {result}")
        else:
            yield result


def _prepare_worker(
    model: str | Path, settings: Settings, device: str, engine: str, threads: int
) -> Callable[[Job], Outcome]:
    """The function that develops one file in a worker process. If the model cannot be loaded, every file fails with
    that error.
    """
    torch.set_num_threads(threads)
    try:
        network = prepare(weights.load(model, device=device), engine)
    except Exception as error:
        return partial(_fail_in_worker, error)
    return partial(_develop_in_worker, network, settings)


def _develop_in_worker(network: Engine, settings: Settings, job: Job) -> Outcome:
    (outcome,) = run_here([job], network, settings)
    return replace(outcome, bug=outcome.bug and _portable(outcome.bug))


def _fail_in_worker(error: Exception, job: Job) -> Outcome:
    outcome = _failure(job, error)
    return replace(outcome, bug=outcome.bug and _portable(outcome.bug))


def _portable(error: Exception) -> Exception:
    """An exception that can be sent to another process, with its traceback as a note."""
    text = "".join(traceback.format_exception(error))
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever an exception's own class makes of pickling
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.add_note(f"in a worker process:\n{text}")
    return copy
