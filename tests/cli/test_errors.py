"""Exit codes and messages: the user's mistakes, bugs of debayes, lack of memory, Ctrl-C and SIGTERM."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from commands import run

from debayes.darkroom import mosaics
from debayes.evaluation import scenes
from debayes.formats import pictures
from debayes.imaging import cfa, vst
from debayes.restoration import tiling
from debayes.system.errors import DebayesError


@pytest.fixture
def mosaic(tmp_path: Path) -> Path:
    """A small mosaic file."""
    np.save(tmp_path / "mosaic.npy", cfa.mosaic(scenes.cartoon(32))[0].numpy())
    return tmp_path / "mosaic.npy"


@pytest.fixture
def raws(tmp_path: Path) -> Path:
    """A folder of two small raws."""
    folder = tmp_path / "raws"
    folder.mkdir()
    pictures.write(tmp_path / "cat.png", scenes.photograph("chelsea")[:, 60:124, 90:170], bits=8)
    for name in "ab":
        mosaics.simulate_raw(tmp_path / "cat.png", folder / f"{name}.dng", iso=3200)
        (folder / f"{name}.truth.tiff").unlink()
    return folder


def failing(error: Exception, after: int = 0, then: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that raises an error; with `then`, from its first call to the one numbered `after`."""
    calls = 0

    def fail(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if then is not None and calls > after:
            return then(*arguments, **options)
        raise error

    return fail


BUGS = (ValueError("a wrong value"), RuntimeError("sizes differ"), IndexError("index 3 is out of bounds"))


@pytest.mark.parametrize("error", BUGS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("module, name", [(vst, "encode"), (tiling, "_start")], ids=["encoding", "restoring"])
def test_a_bug_while_developing(
    module: Any,
    name: str,
    error: Exception,
    raws: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ValueError and RuntimeError included: exit code 70, and a line that says whose mistake it is."""
    monkeypatch.setattr(module, name, failing(error))
    assert run(monkeypatch, "develop", raws / "a.dng", "--engine", "eager") == 70
    said = capsys.readouterr().err
    assert "bug of debayes" in said and str(error) in said and "--debug" in said and "Traceback" not in said


@pytest.mark.parametrize("error", BUGS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("module, name", [(pictures, "encode"), (tiling, "_start")], ids=["writing", "restoring"])
def test_a_bug_while_restoring_a_mosaic(
    module: Any,
    name: str,
    error: Exception,
    mosaic: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same; with --debug there is a traceback."""
    monkeypatch.setattr(module, name, failing(error))
    command = ("restore", mosaic, "-o", mosaic.with_name("out.png"), "--engine", "eager")
    assert run(monkeypatch, *command) == 70
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("debayes: this is a bug of debayes") and said.err.count("\n") == 1
    for debug in (("--debug", *command), (*command, "--debug")):
        assert run(monkeypatch, *debug) == 70
        said = capsys.readouterr()
        assert said.err.startswith("Traceback") and f"{type(error).__name__}: {error}" in said.err
        assert "in fail" in said.err


def test_a_bug_in_one_file_of_several(
    raws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other file is developed, the first one is named, and the exit code is that of a bug."""
    monkeypatch.setattr(vst, "encode", failing(RuntimeError("sizes differ"), 1, vst.encode))
    assert run(monkeypatch, "develop", raws, "--engine", "eager") == 70
    said = capsys.readouterr()
    assert "1 developed, 0 were there already, 1 failed" in said.out
    assert "a.dng" in said.err and "bug of debayes" in said.err
    assert not (raws / "a-debayes.dng").exists() and (raws / "b-debayes.dng").exists()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory")],
    ids=["Python", "PyTorch"],
)
def test_lack_of_memory(
    error: Exception, mosaic: Path, raws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a bug: exit code 2, and what to do."""
    monkeypatch.setattr(tiling, "_start", failing(error))
    for command in (("restore", mosaic, "-o", mosaic.with_name("out.png")), ("develop", raws / "a.dng")):
        assert run(monkeypatch, *command, "--engine", "eager") == 2
        said = capsys.readouterr().err
        assert "not enough memory" in said and "--tile" in said and "bug" not in said


def test_a_users_mistake(mosaic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2; a traceback only if it is asked for."""
    monkeypatch.setattr(tiling, "_start", failing(DebayesError("the mosaic is upside down: turn it")))
    command = ("restore", mosaic, "-o", mosaic.with_name("out.png"), "--engine", "eager")
    assert run(monkeypatch, *command) == 2
    assert capsys.readouterr().err == "debayes: the mosaic is upside down: turn it\n"
    assert run(monkeypatch, *command, "--debug") == 2
    assert capsys.readouterr().err.startswith("Traceback")


@pytest.mark.parametrize("command", ["develop", "info"])
def test_a_missing_file(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single one is a mistake: exit code 2."""
    assert run(monkeypatch, command, tmp_path / "gone.nef") == 2
    said = capsys.readouterr().err
    assert "gone.nef" in said and "bug" not in said


def test_only_one_process_of_several_speaks(
    mosaic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under torchrun a user's mistake is printed once; a bug by every process that has it."""
    command = ("restore", mosaic, "-o", mosaic.with_name("out.png"), "--engine", "eager")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(tiling, "_start", failing(DebayesError("no")))
    assert run(monkeypatch, *command) == 2 and capsys.readouterr().err == ""
    monkeypatch.setattr(tiling, "_start", failing(KeyError("no")))
    assert run(monkeypatch, *command) == 70 and "bug of debayes" in capsys.readouterr().err


def test_ctrl_c(
    mosaic: Path, raws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 130, and whether the command can be continued."""

    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(tiling, "_start", interrupt)
    assert run(monkeypatch, "restore", mosaic, "-o", mosaic.with_name("out.png"), "--engine", "eager") == 130
    assert capsys.readouterr().err == "debayes: stopped\n"
    assert run(monkeypatch, "-v", "develop", raws / "a.dng", "--engine", "eager") == 130
    assert "stopped: run the same command again to continue" in capsys.readouterr().err


WAITING = """
import sys
from time import sleep
from debayes.darkroom import mosaics
from debayes.formats import pictures

def wait(path, *arguments, **options):
    with replace(path) as temporary:
        temporary.write_bytes(b"half")
        print("waiting", flush=True)
        sleep(60)

from debayes.system.files import replace
pictures.encode = wait
from debayes.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_sigterm(mosaic: Path) -> None:
    """Exit code 143; the half-written file is removed."""
    arguments = ("restore", str(mosaic), "-o", str(mosaic.with_name("out.png")), "--engine", "eager")
    command = [sys.executable, "-c", WAITING, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
        assert done.stdout is not None
        assert done.stdout.readline() == "waiting\n"
        done.send_signal(signal.SIGTERM)
        _, said = done.communicate(timeout=60)
    assert done.returncode == 143 and "Traceback" not in said
    assert sorted(path.name for path in mosaic.parent.iterdir()) == ["mosaic.npy"]
