"""Developing many raw files: which goes where, what is skipped, and how one bad file stops nobody."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

from debayes.darkroom import file
from debayes.darkroom.file import Settings
from debayes.engine import Engine, prepare
from debayes.formats import raw
from debayes.network import weights
from debayes.system import cores, errors

# What the name of a developed file ends with, before its ending: a folder can be developed twice.
MARK = "-debayes"

# Megapixels of a file that has not been read yet.
USUAL = 24.0


@dataclass(frozen=True)
class Job:
    """A raw file and where its picture goes."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    job: Job
    answer: dict[str, Any] | None = None
    """What `file.develop_file` said; nothing if it was skipped or failed."""
    error: str = ""
    """Why it failed, in one sentence with the file's name."""
    bug: Exception | None = None
    """The error itself, if it is a bug."""

    @property
    def skipped(self) -> bool:
        """Whether its picture had been there before."""
        return self.answer is None and not self.error


def plan(sources: Sequence[Path], output: Path | None, ending: str) -> list[Job]:
    """The jobs of files and folders: NAME-debayes.dng beside the raw, or below `output` as in the folder given.

    Two raws of one name get their own ending into the picture's: a-nef-debayes.dng and a-dng-debayes.dng. If two of
    several folders have raws of the same name, the pictures of each go below `output` in a folder of its name. What
    was developed before is no raw, and is left out of folders. A folder without raws, among others, is a job that
    will fail.
    """
    inside = {source: raw.find(source) if source.is_dir() else [] for source in sources}
    for source, found in inside.items():
        if source.is_dir() and not found and len(sources) == 1:
            raise ValueError(f"the folder {source} holds no camera raws ({', '.join(raw.ENDINGS)})")
    jobs = _jobs(inside, output, ending, apart=False)
    if not jobs:
        raise ValueError(f"{', '.join(map(str, sources))}: there is nothing but what was developed before")
    if output is not None and _clash(jobs):
        jobs = _jobs(inside, output, ending, apart=True)
    if clash := _clash(jobs):
        first, second = clash
        raise ValueError(
            f"{first.source} and {second.source} would be written to the same file, {first.target}: "
            "give them different folders"
        )
    return jobs


def _jobs(inside: dict[Path, list[Path]], output: Path | None, ending: str, *, apart: bool) -> list[Job]:
    """The jobs of what was found inside of each source; with `apart`, each folder below `output` by itself."""
    places: dict[Path, Path] = {}
    for source, found in inside.items():
        below = output / source.resolve().name if output is not None and apart else output
        for path in found:
            if not path.stem.endswith(MARK):
                places[path] = path.parent if below is None else below / path.parent.relative_to(source)
        if not found:
            places[source] = source.parent if output is None else output
    names = [(folder, path.stem) for path, folder in places.items()]
    endings = [(folder, path.stem, path.suffix.lower()) for path, folder in places.items()]
    jobs = []
    for (path, folder), name, full in zip(places.items(), names, endings, strict=True):
        own = f"-{path.suffix[1:].lower()}" if names.count(name) > endings.count(full) else ""
        jobs.append(Job(path, folder / f"{path.stem}{own}{MARK}{ending}"))
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
    """Develop the files, and say of each what became of it, as they are done.

    Pictures that are there are kept unless they are to be overwritten; maps that they lack are made. While a GPU
    restores a picture, the next raw is read and the last picture written. With several processes, each has its
    share of the cores, and progress is told of whole files only. A folder is left for pictures alone.
    """
    settings = replace(settings, keep=not overwrite)
    todo = []
    for job in jobs:
        if file.is_done(job.target, settings) and not overwrite:
            yield Outcome(job)
        else:
            todo.append(job)
    folders = {path for job in todo for path in job.target.parents if not path.exists()}
    try:
        if processes > 1 and len(todo) > 1:
            yield from _run_apart(todo, model, settings, device, engine, processes)
        elif todo:
            network = prepare(weights.load(model, device=device), engine, megapixels=USUAL * len(todo))
            yield from _run_here(todo, network, settings, progress)
    finally:
        for folder in sorted(folders, reverse=True):  # those below first
            with suppress(OSError):  # there are pictures in it
                folder.rmdir()


def _run_here(
    jobs: Sequence[Job],
    network: Engine,
    settings: Settings,
    progress: Callable[[Job, float], None] | None,
) -> Iterator[Outcome]:
    """Read, restore, write and store one file each at the same time: memory is bounded, however many come.

    On a CPU a network takes all cores, each of them waits for the slowest, and what runs beside it costs it twice
    its own time: there the next file is read and the last one written, by all cores, between two restorations. What
    is left for the disk to do then costs nothing.
    """
    alone = network.device.type == "cpu"
    one = partial(ThreadPoolExecutor, 1)
    with one() as disk, one() as writer, one(initializer=_be_one) as reader:
        store = partial(file.store, directly=alone)
        reading = reader.submit(_attempt, jobs[0], lambda: _read(jobs[0], settings))
        writing: Future[Future[Outcome]] | None = None
        for job, following in zip_longest(jobs, jobs[1:]):
            negative = reading.result()
            if following is not None and not alone:
                reading = reader.submit(_attempt, following, partial(_read, following, settings))
            report = None if progress is None else partial(progress, job)
            if isinstance(negative, file.Negative):
                found = _attempt(job, partial(file.develop, network, negative, settings, progress=report))
            else:
                found = negative
            del negative
            if writing is not None:
                yield writing.result().result()
            writing = writer.submit(_write, job, found, settings, disk, store)
            del found
            if alone:
                if following is not None:
                    reading = reader.submit(_attempt, following, partial(_read, following, settings))
                wait([writing])
        if writing is not None:
            yield writing.result().result()


def _be_one() -> None:
    """Leave the cores to the network: this thread takes one."""
    import torch

    torch.set_num_threads(1)


def _attempt(job: Job, step: Callable[[], Any]) -> Any:
    """What a step gives, or the outcome that says why it failed."""
    try:
        return step()
    except Exception as error:
        bug = errors.is_bug(error)
        words = f"{type(error).__name__}: {error}" if bug else errors.one_line(error)
        words = words if str(job.source) in words else f"{job.source}: {words}"
        return Outcome(job, error=words, bug=error if bug else None)


def _read(job: Job, settings: Settings) -> file.Negative:
    job.target.parent.mkdir(parents=True, exist_ok=True)
    return file.read(job.source, job.target, settings)


def _write(
    job: Job, found: Any, settings: Settings, disk: ThreadPoolExecutor, store: Callable[[Any], Any]
) -> Future[Outcome]:
    """Write what was developed, and have the disk store it; an outcome is one already."""
    if not isinstance(found, Outcome):
        found = _attempt(job, partial(file.write, found, settings))
    return disk.submit(_store, job, found, store)


def _store(job: Job, found: Any, store: Callable[[Any], Any]) -> Outcome:
    """Store what was written."""
    if isinstance(found, Outcome):
        return found
    answer = _attempt(job, partial(store, found))
    return answer if isinstance(answer, Outcome) else Outcome(job, answer)


# What a process of its own keeps from one file to the next.
_own: dict[str, Engine] = {}


def leave_with_parent() -> None:
    """End this process when the one that started it is gone, killed perhaps: nobody else would."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            sleep(1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def _prepare(model: str | Path, device: str, engine: str, threads: int) -> None:
    import torch

    leave_with_parent()
    cores.limit(threads)
    torch.set_num_threads(threads)
    _own["network"] = prepare(weights.load(model, device=device), engine)


def _develop_apart(job: Job, settings: Settings) -> Outcome:
    (outcome,) = _run_here([job], _own["network"], settings, None)
    return outcome


def _run_apart(
    jobs: Sequence[Job], model: str | Path, settings: Settings, device: str, engine: str, processes: int
) -> Iterator[Outcome]:
    """The jobs in processes of their own. One that dies takes its pool along: what is left is tried one by one."""
    threads = max(1, cores.count() // processes)
    left = list(jobs)

    def pool(size: int) -> ProcessPoolExecutor:
        # spawned, not forked: LibRaw's own threads do not survive a fork
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(size, context, _prepare, (model, device, engine, threads))

    try:
        with pool(min(processes, len(left))) as workers:
            waiting: set[Future[Outcome]] = {workers.submit(_develop_apart, job, settings) for job in jobs}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    left.remove(outcome.job)
                    yield outcome
    except BrokenProcessPool:
        for job in left:
            try:
                with pool(1) as worker:
                    yield worker.submit(_develop_apart, job, settings).result()
            except BrokenProcessPool:
                yield Outcome(job, error=f"{job.source}: its decoding crashed; the file is damaged")
