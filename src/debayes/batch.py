"""Developing many raw files: which goes where, what is skipped, and how one bad file stops nobody."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debayes import darkroom, raw, weights

if TYPE_CHECKING:
    from debayes.model import Network

# What the name of a developed file ends with, before its ending: a folder can be developed twice.
MARK = "-debayes"


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
    """What `darkroom.develop_file` said; nothing if it was skipped or failed."""
    error: str = ""
    """Why it failed, in one sentence with the file's name."""

    @property
    def skipped(self) -> bool:
        """Whether its picture had been there before."""
        return self.answer is None and not self.error


def plan(sources: Sequence[Path], output: Path | None, ending: str) -> list[Job]:
    """The jobs of files and folders: NAME-debayes.dng beside the raw, or below `output` as in the folder given.

    Two raws of one name get their own ending into the picture's: a-nef-debayes.dng and a-dng-debayes.dng. What was
    developed before is no raw, and is left out of folders. A folder without raws, among others, is a job that will
    fail.
    """
    found: dict[Path, Path] = {}
    for source in sources:
        inside = raw.find(source) if source.is_dir() else []
        if source.is_dir() and not inside and len(sources) == 1:
            raise ValueError(f"the folder {source} holds no camera raws ({', '.join(raw.ENDINGS)})")
        for path in inside:
            if not path.stem.endswith(MARK):
                found[path] = path.parent if output is None else output / path.parent.relative_to(source)
        if not inside:
            found[source] = source.parent if output is None else output
    names = [(folder, path.stem) for path, folder in found.items()]
    jobs = []
    for (path, folder), name in zip(found.items(), names, strict=True):
        own = f"-{path.suffix[1:].lower()}" if names.count(name) > 1 else ""
        jobs.append(Job(path, folder / f"{path.stem}{own}{MARK}{ending}"))
    if len({job.target for job in jobs}) < len(jobs):
        raise ValueError("two of the raws would be written to the same file: develop them in two steps")
    return jobs


def run(
    jobs: Sequence[Job],
    model: str | Path,
    options: Mapping[str, Any],
    *,
    device: str = "cpu",
    processes: int = 1,
    overwrite: bool = False,
    progress: Callable[[Job, float], None] | None = None,
) -> Iterator[Outcome]:
    """Develop the files, and say of each what became of it, as they are done.

    Pictures that are there are kept, unless they are to be overwritten. With several processes, each has its share
    of the cores, and progress is told of whole files only.
    """
    todo = []
    for job in jobs:
        if job.target.exists() and not overwrite:
            yield Outcome(job)
        else:
            todo.append(job)
    if processes > 1 and len(todo) > 1:
        yield from _run_apart(todo, model, options, device, processes)
        return
    if not todo:
        return
    network = weights.load(model, device=device)
    for job in todo:
        yield _develop(network, job, options, None if progress is None else _for(progress, job))


def _for(progress: Callable[[Job, float], None], job: Job) -> Callable[[float], None]:
    return lambda share: progress(job, share)


def _develop(
    network: "Network", job: Job, options: Mapping[str, Any], progress: Callable[[float], None] | None
) -> Outcome:
    try:
        job.target.parent.mkdir(parents=True, exist_ok=True)
        return Outcome(job, darkroom.develop_file(network, job.source, job.target, progress=progress, **options))
    except (ValueError, OSError, MemoryError, RuntimeError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        return Outcome(job, error=words if str(job.source) in words else f"{job.source}: {words}")


# What a process of its own keeps from one file to the next.
_own: dict[str, Any] = {}


def _prepare(model: str | Path, device: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    _own["network"] = weights.load(model, device=device)


def _develop_apart(job: Job, options: Mapping[str, Any]) -> Outcome:
    return _develop(_own["network"], job, options, None)


def _run_apart(
    jobs: Sequence[Job], model: str | Path, options: Mapping[str, Any], device: str, processes: int
) -> Iterator[Outcome]:
    """The jobs in processes of their own. One that dies takes its pool along: what is left is tried one by one."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    left = list(jobs)

    def pool(size: int) -> ProcessPoolExecutor:
        # spawned, not forked: LibRaw's own threads do not survive a fork
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(size, context, _prepare, (model, device, threads))

    try:
        with pool(min(processes, len(left))) as workers:
            waiting: set[Future[Outcome]] = {workers.submit(_develop_apart, job, options) for job in jobs}
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
                    yield worker.submit(_develop_apart, job, options).result()
            except BrokenProcessPool:
                yield Outcome(job, error=f"{job.source}: its decoding crashed; the file is damaged")
