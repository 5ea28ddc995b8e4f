"""What the pages tell people to type exists: commands, options, calls."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import debayes
from debayes.cli.app import app
from debayes.darkroom import mosaics
from debayes.evaluation import scenes
from debayes.formats import pictures

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/notebooks").glob("*.md"))]

# What the blocks of Python in the pages work with, beside what they make themselves.
SETTING = """
import debayes, torch
mosaic = torch.rand(1, 40, 48, generator=torch.Generator().manual_seed(0))
network, raw = debayes.load("raw-s"), debayes.read("photo.NEF")
developed = debayes.develop(network, raw)
"""


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for name, text in fences if name == language]


def documented_commands() -> list[str]:
    """The lines of the pages that begin with debayes, without the pages of the log."""
    return [
        line.partition("  #")[0]
        for page in PAGES
        for block in blocks(page, "")
        for line in block.splitlines()
        if line.startswith("debayes ")
    ]


def test_commands_parse() -> None:
    """Each command with its options is accepted by the command line's parser; nothing is run."""
    group = typer.main.get_command(app)
    lines = documented_commands()
    assert len(lines) > 40
    for line in lines:
        name, *arguments = shlex.split(line)[1:]
        context = group.make_context("debayes", [name, *arguments])
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        assert command is not None, line
        command.make_context(name, arguments, parent=context)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    """The blocks of Python of a page run, in their order, in a program of their own."""
    pictures.write(tmp_path / "photo.png", scenes.cartoon(48), bits=8)
    mosaics.simulate_raw(tmp_path / "photo.png", tmp_path / "photo.dng", iso=1600, pattern="RGGB", seed=0)
    (tmp_path / "photo.dng").rename(tmp_path / "photo.NEF")  # LibRaw looks at the content
    program = "\n".join(blocks(page, "python"))
    if "from debayes.system import cores" not in program:  # that one is about what precedes PyTorch's import
        program = SETTING + program
    environment = {**os.environ, "PYTHONPATH": str(Path(debayes.__file__).parent.parent)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
