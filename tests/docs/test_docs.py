"""The programs that the documentation shows run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from debayes.engine import onnx
from debayes.network import weights

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler on this machine")
def test_cpp_program_gives_the_pixels(tmp_path: Path) -> None:
    """The program of docs/export.md, compiled by the command below it, gives the network's own image to 1e-4."""
    pytest.importorskip("openvino")
    section = (ROOT / "docs/export.md").read_text().split("## C++, with OpenVINO")[1].split("\n## ")[0]
    program, commands = re.findall(r"```(?:cpp)?\n(.*?)```", section, re.DOTALL)
    (tmp_path / "restore.cpp").write_text(program)
    subprocess.run(
        ["bash", "-ec", commands.replace("python", sys.executable)], cwd=tmp_path, check=True, capture_output=True
    )
    network = weights.load("wild-s")
    (tmp_path / "wild-s.onnx").write_bytes(onnx.build_onnx(network, {}).SerializeToString())
    mosaic = torch.rand(1, 1, 48, 64, generator=torch.Generator().manual_seed(0))
    command = ["./restore", "wild-s.onnx", "48", "64"]
    done = subprocess.run(command, cwd=tmp_path, input=mosaic.numpy().tobytes(), check=True, capture_output=True)
    found = torch.from_numpy(np.frombuffer(done.stdout, np.float32).reshape(1, 3, 48, 64).copy())
    with torch.inference_mode():
        torch.testing.assert_close(found, network(mosaic).loc, rtol=0, atol=1e-4)
    short = subprocess.run(command, cwd=tmp_path, input=b"", capture_output=True, check=False)
    assert short.returncode == 2
