"""Many raws: where they go, what is skipped, and that one bad file or a killed run loses nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rawpy

from debayes.darkroom import batch, mosaics
from debayes.darkroom.file import Settings
from debayes.evaluation import scenes
from debayes.formats import pictures


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


def test_folders_with_the_same_names(folder: Path, source: Path) -> None:
    """As two memory cards have them: each gets a folder of its own below the output, if it must."""
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
    with pytest.raises(ValueError, match="nothing but what was developed before"):
        batch.plan([folder / "none"], None, ".dng")
    (folder / "none" / "a-debayes.dng").unlink()
    (job, other) = batch.plan([folder / "none", folder / "a.dng"], None, ".dng")
    assert job.source == folder / "none" and other.source == folder / "a.dng"
    (folder / "below" / "a.dng").touch()
    with pytest.raises(ValueError, match="same file"):
        batch.plan([folder / "a.dng", folder / "below" / "a.dng"], folder, ".dng")


def test_a_file_that_may_not_be_read_stops_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_bad_files_stop_nobody(folder: Path, processes: int) -> None:
    """Each bad file has its sentence, the others are developed; the second time they are there already."""
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


def test_a_crash_stops_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that takes its process down is named; the other files are developed."""
    hook = folder / "sitecustomize.py"
    hook.write_text(
        "import os, sys\n"
        "if any('multiprocessing' in a for a in sys.orig_argv):\n"
        "    import debayes.formats.raw as raw\n"
        "    read = raw.read\n"
        "    raw.read = lambda s, **k: os._exit(11) if 'b.DNG' in str(s) else read(s, **k)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    jobs = [job for job in batch.plan([folder], folder / "out", ".dng") if job.source.stem in "abc"]
    outcomes = list(batch.run(jobs, "raw-s", Settings(), processes=2))
    assert {outcome.job.source.name: outcome.error for outcome in outcomes if outcome.error} == {
        "b.DNG": f"{folder / 'b.DNG'}: its decoding crashed; the file is damaged"
    }
    assert len(outcomes) == 3 and (folder / "out" / "below" / "c-debayes.dng").exists()


def test_killed_and_started_again(source: Path, tmp_path: Path) -> None:
    """kill -9 in the middle of a batch: no half file is left, finished ones are kept, the rest is developed."""
    for i in range(12):
        (tmp_path / f"{i:02d}.dng").write_bytes(source.read_bytes())
    out = tmp_path / "out"
    command = [sys.executable, "-m", "debayes", "develop", str(tmp_path), "-o", str(out), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    deadline = time.monotonic() + 60
    while len(list(out.glob("*-debayes.dng"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait()
    finished = {path: path.stat().st_mtime_ns for path in out.glob("*-debayes.dng")}
    assert 2 <= len(finished) < 12
    for path in finished:
        with rawpy.imread(str(path)) as back:
            assert back.raw_image_visible.shape[:2] == (100, 120)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    answers = json.loads(done.stdout)
    assert sum(answer.get("skipped", False) for answer in answers) == len(finished)
    assert len(list(out.glob("*-debayes.dng"))) == 12
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in finished.items())


def test_maps_that_are_missing_are_made(source: Path, tmp_path: Path) -> None:
    """A picture that is there stays as it is. To be overwritten, it is written last: where it is, all is."""
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


PARENT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from debayes.darkroom.batch import leave_with_parent
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), leave_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    """kill -9 leaves no process behind that goes on developing."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(100):
        time.sleep(0.1)
        try:
            os.kill(child, 0)
            state = Path(f"/proc/{child}/status").read_text() if Path("/proc").is_dir() else ""
        except (ProcessLookupError, FileNotFoundError):
            return
        if "State:\tZ" in state:
            return  # ended; nobody here collects it
    raise AssertionError("the process is still there")
