"""Many raws: where they go, what is skipped; a bad file, a bug or a dead worker loses no other file."""

import os
import shutil
import signal
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import rawpy
import torch

from debayes.darkroom import batch, domain, file, mosaics
from debayes.darkroom.file import Settings
from debayes.engine import prepare
from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.network import weights


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated raw."""
    folder = tmp_path_factory.mktemp("raws")
    pictures.write(folder / "cat.png", scenes.photograph("chelsea")[:, 60:160, 90:210], bits=8)
    mosaics.simulate_raw(folder / "cat.png", folder / "cat.dng", iso=1600)
    return folder / "cat.dng"


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    """Three raws, one of them in a folder below, and three files that are none."""
    (tmp_path / "below").mkdir()
    for name in ("a.dng", "b.DNG", "below/c.dng"):
        (tmp_path / name).write_bytes(source.read_bytes())
    (tmp_path / "short.dng").write_bytes(source.read_bytes()[:5000])
    (tmp_path / "empty.nef").write_bytes(b"")
    (tmp_path / "words.cr2").write_text("no raw")
    (tmp_path / "notes.txt").write_text("not looked at")
    return tmp_path


def test_plan(folder: Path) -> None:
    """Beside the raw, or below the output as in the folder; the same name twice is told apart."""
    jobs = batch.plan([folder], None, ".dng")
    assert [job.target.name for job in jobs if job.source.stem in "abc"] == [
        "a-debayes.dng",
        "b-debayes.dng",
        "c-debayes.dng",
    ]
    assert {job.target.parent for job in jobs} == {folder, folder / "below"}
    (folder / "a-debayes.dng").touch()
    (folder / "a.nef").touch()
    (folder / "._a.nef").touch()  # as macOS leaves them
    (folder / ".trash").mkdir()
    (folder / ".trash" / "t.nef").touch()
    elsewhere = batch.plan([folder], folder / "out", ".jpg")
    names = {str(job.target.relative_to(folder / "out")) for job in elsewhere}
    assert {"a-dng-debayes.jpg", "a-nef-debayes.jpg", "below/c-debayes.jpg"} <= names
    assert not any("debayes-debayes" in name or name.startswith(".") for name in names)


def test_own_files_are_skipped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Given once more with the raws, as `*.dng` does: by their names, and renamed ones by what is inside."""
    jobs = batch.plan([folder / "a.dng"], None, ".dng")
    assert all(outcome.answer for outcome in batch.run(jobs, "raw-s", Settings()))
    developed = folder / "a-debayes.dng"
    (folder / "renamed.DNG").write_bytes(developed.read_bytes())
    assert batch.is_own(folder / "renamed.DNG") and not batch.is_own(folder / "a.dng")
    for name in ("x-debayes.JPG", "x-debayes.noise.tiff", "x-debayes.doubt.png"):
        assert batch.is_own(folder / name)
    for name in ("x-debayes.nef", "debayes.dng", "x-debayes.dng.nef", "empty.nef", "short.dng", "gone.dng"):
        assert not batch.is_own(folder / name)
    caplog.clear()
    again = batch.plan(sorted(folder.glob("[ar]*.[dD]*")), None, ".dng")
    assert [job.source.name for job in again] == ["a.dng"]
    assert caplog.messages == ["skipped 2 files that debayes wrote: a-debayes.dng, renamed.DNG"]
    names = {job.source.name for job in batch.plan([folder], folder / "out", ".dng")}
    assert names == {"a.dng", "b.DNG", "c.dng", "short.dng", "empty.nef", "words.cr2"}
    with pytest.raises(ValueError, match="give the camera's own files"):
        batch.plan([developed], None, ".dng")


def test_folders_with_the_same_names(folder: Path, source: Path) -> None:
    """As two memory cards have them: each gets its own folder below the output where names clash."""
    for card in ("first", "second"):
        (folder / card).mkdir()
        (folder / card / "a.dng").write_bytes(source.read_bytes())
    cards = [folder / "first", folder / "second"]
    targets = [job.target for job in batch.plan(cards, folder / "out", ".dng")]
    assert targets == [folder / "out" / card / "a-debayes.dng" for card in ("first", "second")]
    (alone,) = batch.plan(cards[:1], folder / "out", ".dng")
    assert alone.target == folder / "out" / "a-debayes.dng"


def test_plan_refuses(folder: Path) -> None:
    """A folder without raws, or with developed ones alone, and two raws for one file."""
    (folder / "none").mkdir()
    with pytest.raises(ValueError, match="holds no camera raws"):
        batch.plan([folder / "none"], None, ".dng")
    (folder / "none" / "a-debayes.dng").touch()
    with pytest.raises(ValueError, match="only files that debayes wrote"):
        batch.plan([folder / "none"], None, ".dng")
    (folder / "none" / "a-debayes.dng").unlink()
    (job, other) = batch.plan([folder / "none", folder / "a.dng"], None, ".dng")
    assert job.source == folder / "none" and other.source == folder / "a.dng"
    (folder / "below" / "a.dng").touch()
    with pytest.raises(ValueError, match="same file"):
        batch.plan([folder / "a.dng", folder / "below" / "a.dng"], folder, ".dng")


def test_a_file_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with the system's reason, and the others are developed."""
    jobs = batch.plan([folder], folder / "out", ".dng")
    forbidden, read = jobs[0].source, Path.read_bytes

    def guarded(path: Path) -> bytes:
        if path == forbidden:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", guarded)
    outcomes = {o.job.source: o for o in batch.run(jobs, "raw-s", Settings())}
    assert outcomes[forbidden].error == f"{forbidden}: Permission denied"
    assert any(o.answer for o in outcomes.values())


@pytest.mark.parametrize("processes", [1, 2])
def test_bad_files(folder: Path, processes: int) -> None:
    """Each bad file has its error line, the others are developed; the second time these are skipped."""
    (folder / "rubbish" / "more").mkdir(parents=True)
    shutil.move(folder / "words.cr2", folder / "rubbish" / "more" / "words.cr2")
    jobs = batch.plan([folder], folder / "out", ".dng")
    outcomes = list(batch.run(jobs, "raw-s", Settings(tile=64), processes=processes))
    assert not (folder / "out" / "rubbish").exists()  # no empty folders
    errors = {outcome.job.source.name: outcome.error for outcome in outcomes if outcome.error}
    assert set(errors) == {"short.dng", "empty.nef", "words.cr2"}
    assert all(name in error for name, error in errors.items())
    written = sorted(path.relative_to(folder / "out").as_posix() for path in (folder / "out").rglob("*.*"))
    assert written == ["a-debayes.dng", "b-debayes.dng", "below/c-debayes.dng"]
    times = [path.stat().st_mtime_ns for path in sorted((folder / "out").glob("*.dng"))]
    again = list(batch.run(jobs, "raw-s", Settings(), processes=processes))
    assert sum(outcome.skipped for outcome in again) == 3
    assert [path.stat().st_mtime_ns for path in sorted((folder / "out").glob("*.dng"))] == times


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("os.kill(os.getpid(), 9)", "its worker process was killed by signal 9 (SIGKILL)"),
        ("os._exit(11)", "its worker process ended with exit code 11"),
    ],
)
def test_a_worker_that_dies(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str, words: str) -> None:
    """The file it had is named with how the worker ended; the other files are developed."""
    hook = folder / "sitecustomize.py"
    hook.write_text(
        "import os, sys\n"
        "if any('multiprocessing' in a for a in sys.orig_argv):\n"
        "    import debayes.formats.raw as raw\n"
        "    read = raw.read\n"
        f"    raw.read = lambda s, **k: {end} if 'b.DNG' in str(s) else read(s, **k)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    jobs = [job for job in batch.plan([folder], folder / "out", ".dng") if job.source.stem in "abc"]
    outcomes = list(batch.run(jobs, "raw-s", Settings(), processes=2))
    (failed,) = (outcome for outcome in outcomes if outcome.failed)
    assert failed.error.startswith(f"{folder / 'b.DNG'}: {words}") and failed.bug is None
    assert len(outcomes) == 3 and (folder / "out" / "below" / "c-debayes.dng").exists()


def test_a_bug_is_no_fault_of_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said to be a bug, with its type; the other files are developed; the exception is kept."""
    encode = domain.encode_raw
    calls: list[int] = []

    def broken(*arguments: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise IndexError("index 3 is out of bounds")
        return encode(*arguments)

    monkeypatch.setattr(domain, "encode_raw", broken)
    jobs = [job for job in batch.plan([folder], folder / "out", ".dng") if job.source.stem in "abc"]
    first, *others = batch.run(jobs, "raw-s", Settings())
    assert (
        first.failed
        and not first.skipped
        and first.error
        == (f"{first.job.source}: failed by a bug of debayes (IndexError: index 3 is out of bounds)")
    )
    assert isinstance(first.bug, IndexError) and "broken" in "".join(traceback.format_exception(first.bug))
    assert len(others) == 2 and all(outcome.answer is not None for outcome in others)


def test_a_bug_in_a_worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the traceback of the worker process."""
    hook = folder / "sitecustomize.py"
    hook.write_text(
        "import sys\n"
        "if any('multiprocessing' in a for a in sys.orig_argv):\n"
        "    import debayes.darkroom.domain as domain\n"
        "    def stumble(*_): raise RuntimeError('the size of tensor a must match')\n"
        "    domain.encode_raw = stumble\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    jobs = [job for job in batch.plan([folder], folder / "out", ".dng") if job.source.stem in "ab"]
    outcomes = list(batch.run(jobs, "raw-s", Settings(), processes=2))
    for outcome in outcomes:
        assert "bug of debayes (RuntimeError: the size of tensor a must match)" in outcome.error
        assert isinstance(outcome.bug, RuntimeError) and "in stumble" in outcome.bug.__notes__[0]
    assert len(outcomes) == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: not enough memory: you tried"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    ],
)
def test_lack_of_memory_is_told(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    """It is neither the file's fault nor a bug."""

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(file, "restore", refuse)
    (outcome,) = batch.run(batch.plan([source], tmp_path, ".dng"), "raw-s", Settings())
    assert outcome.error.startswith(f"{source}: there is not enough memory") and outcome.bug is None


class Stubborn(Exception):
    """An exception that pickle cannot make again."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def test_any_exception_can_be_sent() -> None:
    """As itself, or as a RuntimeError that names it."""
    sent = batch._portable(ValueError("words"))
    assert isinstance(sent, ValueError) and sent.args == ("words",)
    sent = batch._portable(Stubborn("a", "b"))
    assert isinstance(sent, RuntimeError) and "Stubborn: a b" in str(sent)
    assert all("Stubborn" in note for note in sent.__notes__)


def test_threads_of_the_host_program_stay(folder: Path) -> None:
    """Neither this thread nor those that start later lose cores, whatever was limited in between."""

    def elsewhere() -> int:
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with ThreadPoolExecutor(1) as limited:
            batch.limit_to_one_core(limited)
            assert limited.submit(torch.get_num_threads).result() == 1
            assert torch.get_num_threads() == elsewhere() == 3
        jobs = [job for job in batch.plan([folder], folder / "out", ".dng") if job.source.stem == "a"]
        assert next(batch.run(jobs, "raw-s", Settings())).answer
        assert torch.get_num_threads() == elsewhere() == 3
    finally:
        torch.set_num_threads(before)


def test_steps_have_all_cores_on_a_cpu(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, encoding and saving run between restorations there."""
    seen: list[int] = []
    for name in ("read", "encode", "save"):
        step = getattr(file, name)

        def counting(*arguments: Any, step: Any = step, **options: Any) -> Any:
            seen.append(torch.get_num_threads())
            return step(*arguments, **options)

        monkeypatch.setattr(file, name, counting)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert next(batch.run(batch.plan([source], tmp_path, ".dng"), "raw-s", Settings())).answer
    finally:
        torch.set_num_threads(before)
    assert seen == [3, 3, 3]


def test_overlapping_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule of a GPU, on a CPU: all steps but restoring have one core, and the files are the same."""
    happened: list[tuple[str, int]] = []
    for name in ("read", "restore", "encode", "save"):
        step = getattr(file, name)

        def noting(*arguments: Any, name: str = name, step: Any = step, **options: Any) -> Any:
            happened.append((name, torch.get_num_threads()))
            return step(*arguments, **options)

        monkeypatch.setattr(file, name, noting)
    network = prepare(weights.load("raw-s"), "eager")
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        one_by_one = list(batch.run_here(batch.plan([folder], folder / "one", ".dng"), network, Settings()))
        happened.clear()
        jobs = batch.plan([folder], folder / "overlap", ".dng")
        outcomes = list(batch.run_here(jobs, network, Settings(), overlap=True))
    finally:
        torch.set_num_threads(before)
    assert {count for name, count in happened if name != "restore"} == {1}
    assert {count for name, count in happened if name == "restore"} == {3}
    assert [o.failed for o in outcomes] == [o.failed for o in one_by_one] and [o.job for o in outcomes] == jobs
    for outcome, other in zip(outcomes, one_by_one, strict=True):
        if outcome.answer is not None:
            with rawpy.imread(str(outcome.job.target)) as found, rawpy.imread(str(other.job.target)) as expected:
                assert (found.raw_image_visible == expected.raw_image_visible).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")
@pytest.mark.parametrize("ending", [".dng", ".png"])
def test_on_a_gpu(folder: Path, ending: str) -> None:
    """Files that overlap in four threads are those that a CPU develops one by one, bad ones are named, and the
    threads of the program stay as they were."""
    before = torch.get_num_threads()
    jobs = batch.plan([folder], folder / "gpu", ending)
    outcomes = {o.job.source.name: o for o in batch.run(jobs, "raw-s", Settings(with_maps=True), device="cuda")}
    assert torch.get_num_threads() == before
    assert {name for name, outcome in outcomes.items() if outcome.failed} == {"short.dng", "empty.nef", "words.cr2"}
    expected = batch.plan([folder], folder / "cpu", ending)
    assert any(outcome.answer for outcome in batch.run(expected, "raw-s", Settings(with_maps=True)))
    for job, other in zip(jobs, expected, strict=True):
        if outcomes[job.source.name].answer is None:
            continue
        if ending == ".dng":
            with rawpy.imread(str(job.target)) as one, rawpy.imread(str(other.target)) as two:
                found, truth = (x.raw_image_visible[..., :3].astype(float) / 65535 for x in (one, two))
        else:
            found, truth = (pictures.read(path).numpy() for path in (job.target, other.target))
        assert abs(found - truth).max() < 0.01 and abs(found - truth).mean() < 5e-4


KILLED = """
import os, signal, sys
from pathlib import Path
from debayes.darkroom import batch, file
from debayes.system.memory_file import MemoryFile

store, stored = MemoryFile.store, []

def fall(memory, path, *, directly=False):
    stored.append(path)
    if len(stored) == 3:
        path.write_bytes(b"half a picture")
        os.kill(os.getpid(), signal.SIGKILL)
    store(memory, path, directly=directly)

MemoryFile.store = fall
folder, out = map(Path, sys.argv[1:])
for outcome in batch.run(batch.plan([folder], out, ".dng"), "raw-s", file.Settings()):
    pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_killed_and_started_again(source: Path, tmp_path: Path) -> None:
    """kill -9 while the third file is written: finished files are kept, and the rest is developed later."""
    for i in range(5):
        (tmp_path / f"{i:02d}.dng").write_bytes(source.read_bytes())
    out, script = tmp_path / "out", tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([sys.executable, str(script), str(tmp_path), str(out)], env=environment)
    assert killed.returncode == -signal.SIGKILL
    finished = {path: path.stat().st_mtime_ns for path in out.glob("*-debayes.dng")}
    assert len(finished) == 2 and len(list(out.glob(".*.part"))) == 1
    for path in finished:
        with rawpy.imread(str(path)) as back:
            assert back.raw_image_visible.shape[:2] == (100, 120)
    outcomes = list(batch.run(batch.plan([tmp_path], out, ".dng"), "raw-s", Settings()))
    assert sum(outcome.skipped for outcome in outcomes) == 2
    assert len(list(out.iterdir())) == 5  # the half file is gone too
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in finished.items())


def test_maps_that_are_missing_are_made(source: Path, tmp_path: Path) -> None:
    """A picture that exists stays unchanged. If it is overwritten, it is written last, after its maps."""
    jobs = batch.plan([source], tmp_path, ".png")
    (first,) = batch.run(jobs, "raw-s", Settings(strength=0.5))
    assert first.answer is not None
    picture = jobs[0].target
    before = picture.read_bytes()
    (second,) = batch.run(jobs, "raw-s", Settings(with_maps=True))
    assert second.answer is not None and len(second.answer["written"]) == 4
    assert str(picture) not in second.answer["written"] and picture.read_bytes() == before
    (third,) = batch.run(jobs, "raw-s", Settings(with_maps=True))
    assert third.skipped
    (fourth,) = batch.run(jobs, "raw-s", Settings(with_maps=True), overwrite=True)
    assert fourth.answer is not None and len(fourth.answer["written"]) == 5
    assert picture.read_bytes() != before
    stamps = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert max(stamps, key=stamps.__getitem__) == picture.name
