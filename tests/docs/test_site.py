"""The documentation site builds without a warning and loads nothing from the network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_site_builds_and_is_self_contained(tmp_path: Path) -> None:
    """`make docs`: strict, so that dead links and missing pages are errors."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": ""}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = re.findall(r"<(?:script|link|img)[^>]*?(?:src|href)=\"?(?:https?:)?//[^\" >]+", page.read_text())
        assert not loaded, page
        assert "--8" not in page.read_text(), f"{page} includes a file that is not there"


def test_every_page_is_reachable() -> None:
    """Each page is in the navigation, or is an entry of the log."""
    config = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name in config or name.startswith("log/2"), name


def test_notebooks_and_examples_are_linked() -> None:
    """Each notebook and example program is linked from a page."""
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    for file in [*(ROOT / "docs/notebooks").glob("*.ipynb"), *(ROOT / "docs/examples").glob("*.py")]:
        assert file.name in text, file
