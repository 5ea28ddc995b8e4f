"""The program around its commands: help, completion, verbosity, options with several values."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from commands import run

from debayes.cli import app
from debayes.darkroom import rendering
from debayes.engine import selection
from debayes.system.errors import DebayesError

NAMES = [function.__name__ for _, function, _ in app.COMMANDS]


@pytest.mark.parametrize("name", NAMES)
def test_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """-h is --help; flags are shown without a type; the options of all commands are there."""
    monkeypatch.setenv("COLUMNS", "120")
    assert run(monkeypatch, name, "-h") == 0
    short = capsys.readouterr().out
    assert run(monkeypatch, name, "--help") == 0
    assert capsys.readouterr().out == short
    assert "<bool>" not in short
    for option in ("--threads", "--verbose", "-v", "--debug", "--help"):
        assert option in short


def test_help_of_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All commands, in groups, and the options for completion."""
    monkeypatch.setenv("COLUMNS", "120")
    assert run(monkeypatch, "-h") == 0
    out = capsys.readouterr().out
    assert "<bool>" not in out and "--install-completion" in out
    for words in (app.PICTURES, app.MODELS, app.RESEARCH, *NAMES):
        assert words in out


def test_help_names_every_choice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The help of `develop`, which is written without importing them, names all formats and engines."""
    monkeypatch.setenv("COLUMNS", "200")
    assert run(monkeypatch, "develop", "-h") == 0
    out = capsys.readouterr().out
    assert [choice for choice in (*rendering.FORMATS, *selection.NAMES) if choice not in out] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_help_text(name: str) -> None:
    command = typer.main.get_command(app.app).commands[name]  # type: ignore[attr-defined]
    assert command.help
    assert [option.name for option in command.params if not option.help] == []


def test_completion(tmp_path: Path) -> None:
    """The shell's question is answered with the commands that fit."""
    program = tmp_path / "debayes"
    program.write_text(f"#!{sys.executable}\nfrom debayes.cli import main\nmain()\n")
    program.chmod(0o755)
    asked = {"_DEBAYES_COMPLETE": "complete_bash", "COMP_WORDS": "debayes re", "COMP_CWORD": "1"}
    done = subprocess.run([str(program)], env=os.environ | asked, capture_output=True, text=True)
    assert done.stdout.split() == ["restore", "reproduce"]


def test_verbosity(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """-v before or after the command prints decisions, on stderr; without it there is nothing."""
    source = tmp_path / "gone.nef"
    for arguments, said in (
        (("info", source), False),
        (("info", source, "-v"), True),
        (("-v", "info", source), True),
        (("info", source, "-vv"), True),
    ):
        assert run(monkeypatch, *arguments, "--device", "auto") == 2
        out, err = capsys.readouterr()
        assert out == "" and ("debayes: model: raw-" in err) == said and ("debayes: device: " in err) == said


def test_options_that_may_be_repeated_do_not_swallow_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`reproduce --model a NAME` and `blend --share 0.5 A B` read what follows as arguments."""
    calls: dict[str, object] = {}

    def blend_file(models: list[str], output: Path, **options: object) -> dict[str, list[float]]:
        calls.update(models=models, **options)
        return {"val_psnr": []}

    monkeypatch.setattr("debayes.training.blending.blend_file", blend_file)
    shares = ("--share", "1.2", "--share=-0.2")
    assert run(monkeypatch, "blend", *shares, "a.safetensors", "b.safetensors", "-o", "c.safetensors") == 0
    assert calls["models"] == ["a.safetensors", "b.safetensors"] and calls["shares"] == [1.2, -0.2]

    def check_request(name: str, model: list[str], data: Path | None) -> list[str]:
        calls.update(asked=(name, model))
        raise DebayesError("that is enough")

    monkeypatch.setattr("debayes.reproduction.experiments.check_request", check_request)
    command = ("reproduce", "--model", "wild-s", "--model", "wild-l", "mask", "-o", tmp_path / "r")
    assert run(monkeypatch, *command) == 2
    assert calls["asked"] == ("mask", ["wild-s", "wild-l"]) and "that is enough" in capsys.readouterr().err
