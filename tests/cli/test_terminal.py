"""What a terminal shows: bars while work goes on, and nothing of them afterwards."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from debayes.cli import terminal
from debayes.evaluation import scenes
from debayes.imaging import cfa

pty = pytest.importorskip("pty", reason="only POSIX has pseudo-terminals")

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(code: str, *arguments: object) -> tuple[int, str]:
    """The exit code of a Python program whose stderr is a terminal, and what the terminal got."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return process.wait(), ESCAPE.sub("", shown.decode())


def test_a_bar_while_a_mosaic_is_restored(tmp_path: Path) -> None:
    """Its title and its share are shown on a terminal."""
    np.save(tmp_path / "m.npy", cfa.mosaic(scenes.cartoon(32))[0].numpy())
    code = "from debayes.cli import main; main()"
    done, shown = on_a_terminal(code, "restore", tmp_path / "m.npy", "-o", tmp_path / "o.png", "--engine", "eager")
    assert done == 0 and (tmp_path / "o.png").exists()
    assert "restoring m.npy" in shown and "%" in shown and "debayes:" not in shown


BATCH = """
from debayes.cli.terminal import batch_bar
with batch_bar(2) as (report, say):
    report("a.dng", 0.5)
    say(2_000_000, "a-debayes.dng  done")
    report("b.dng", 1.0)
    say(0, "")
"""


def test_two_bars_for_a_batch() -> None:
    """The file at hand, and how many are done."""
    done, shown = on_a_terminal(BATCH)
    assert done == 0 and "b.dng" in shown and "2 of 2 files" in shown and "MP/s" in shown


TRAINING = """
import sys
from pathlib import Path
from types import SimpleNamespace
from debayes.cli.terminal import watch_training
with watch_training(Path(sys.argv[1]), "tiny", False) as report:
    report(SimpleNamespace(
        step=7, loss=0.5, val_psnr=30.25, steps_per_second=2.0, memory=1.5, share=0.5, seconds_left=9.0
    ))
"""


def test_a_live_line_for_training(tmp_path: Path) -> None:
    """Step, loss, validation and speed in one line, and no plain lines beside it."""
    done, shown = on_a_terminal(TRAINING, tmp_path)
    assert done == 0 and "tiny" in shown and "step 7  loss 0.5  val 30.25 dB  2.0 it/s" in shown
    assert "s left" not in shown


def test_the_second_ctrl_c_ends_it_at_once() -> None:
    """The first is only remembered; after the block the handler is the one of before."""
    before = signal.getsignal(signal.SIGINT)
    with terminal.catch_interrupt() as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_log_lines_go_above_the_bar() -> None:
    """A log line while a bar is shown is a line of its own."""
    code = (
        "from debayes.cli.terminal import progress_bar\nfrom debayes.system.log import log, show\nshow(1)\n"
        "with progress_bar('working') as progress:\n    progress(0.5)\n    log.info('engine: eager')\n"
    )
    done, shown = on_a_terminal(code)
    assert done == 0 and "debayes: engine: eager\r\n" in shown


LINES = """
import sys
from debayes.cli.terminal import progress_lines
with progress_lines("measuring") as (progress, say):
    say("first row")
    progress(0.5)
    say("second row")
"""


def test_lines_beside_a_bar() -> None:
    """They go to stdout and the bar to the terminal; in a pipe there is no bar."""
    done, shown = on_a_terminal(LINES)
    assert done == 0 and "measuring" in shown and "row" not in shown
    piped = subprocess.run([sys.executable, "-c", LINES], capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("first row\nsecond row\n", "")
