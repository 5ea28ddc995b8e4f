"""How many threads are started, and that those which wait yield."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import typer
from networks import untrained

from debayes import cli, engine
from debayes.cli import app
from debayes.engine import selection, winograd
from debayes.formats import pictures
from debayes.network.config import Config
from debayes.system import cores

linux = pytest.mark.skipif(sys.platform != "linux", reason="other OpenMPs print their settings otherwise")
SMALL = Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1.0),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "250000 100000\n"}, 2.5),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "100000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
            },
            1.0,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (  # as in a container: the path is the host's, the mount its own
            {
                "proc/self/cgroup": "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/docker/x\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({}, None),
    ],
)
def test_quotas_of_cgroups(tmp_path: Path, files: dict[str, str], expected: float | None) -> None:
    """Of both versions, of groups inside others, and none."""
    assert cores.quota(write(tmp_path, files)) == expected


def test_usable_cores_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a core needs a thread; a quota beyond the cores adds none."""
    monkeypatch.setattr(cores, "_bound", lambda: 64)
    for share, expected in ((0.2, 1), (1, 1), (1.5, 2), (100, 64)):
        files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{int(share * 100_000)} 100000\n"}
        assert cores.usable(write(tmp_path, files)) == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
def test_a_process_bound_to_one_core() -> None:
    """It starts one thread."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from debayes.system import cores\n"
        "assert cores.usable() == cores.count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def openmp(arguments: list[str], before: str = "", **variables: str) -> tuple[str, int]:
    """What OpenMP says of its settings when a command loads it, and PyTorch's threads."""
    code = (
        "import sys; from debayes import cli; from debayes.system import cores\n"
        f"{before}\nsys.argv = {['debayes', *arguments]!r}\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert not end.code, end\n"
        "import torch; print(torch.get_num_threads(), file=sys.stderr)"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in (*cores.NUMBERS, *cores.YIELDING)
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"OMP_DISPLAY_ENV": "TRUE"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr, int(done.stderr.split()[-1])


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """One that computes."""
    pictures.write(tmp_path / "photo.png", torch.rand(3, 16, 16), bits=8)
    return ["simulate", str(tmp_path / "photo.png"), "-o", str(tmp_path)]


@linux
def test_threads_are_set_before_pytorch_is_imported(command: list[str]) -> None:
    """OpenMP reads its settings once: they come too late otherwise."""
    said, threads = openmp([*command, "--threads", "1"], OMP_NUM_THREADS="2")
    assert threads == 1 and "OMP_WAIT_POLICY = 'PASSIVE'" in said and "OMP_NUM_THREADS = '1'" in said
    said, _ = openmp(command, OMP_WAIT_POLICY="ACTIVE", OMP_NUM_THREADS="2")
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in said and "OMP_NUM_THREADS = '2'" in said  # the user's own


@linux
def test_a_container_with_one_core_of_many(command: list[str]) -> None:
    """Its quota counts unless the user says otherwise."""
    quota = "cores._bound, cores.quota = lambda: 64, lambda root: 1.0"
    assert openmp(command, quota)[1] == 1
    assert "OMP_NUM_THREADS = '2'" in openmp(command, quota, OMP_NUM_THREADS="2")[0]


def test_all_commands_take_threads() -> None:
    """As they take -v and --debug: the options of all commands."""
    group = typer.main.get_command(app.app)
    for command in group.commands.values():  # type: ignore[attr-defined]
        names = {name for option in command.params for name in option.opts}
        assert {"--threads", "--verbose", "-v", "--debug"} <= names


def test_jobs_share_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each needs one at least."""
    (tmp_path / "a.dng").touch()
    monkeypatch.setattr(cores, "limit", lambda threads: None)
    monkeypatch.setattr(sys, "argv", ["debayes", "develop", str(tmp_path), "--jobs", "4", "--threads", "2"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "--threads 4 or more" in capsys.readouterr().err


def test_limits_reach_what_debayes_starts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the environment of the processes below."""
    for name in (*cores.NUMBERS, *cores.YIELDING):
        monkeypatch.setenv(name, "1")  # put back at the end
    monkeypatch.setattr(cores, "_limit", None)
    cores.limit(5)
    assert cores.count() == 5 and {os.environ[name] for name in cores.NUMBERS} == {"5"}


def test_engines_have_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`prepare(..., threads=)` sets winograd's; by default they are as many as PyTorch's."""
    if not winograd.available():
        pytest.skip("debayes was installed without a C compiler, or for another processor")
    asked = []
    pool: Callable[[int], object] = winograd._threads
    monkeypatch.setattr(winograd, "_threads", lambda count: asked.append(count) or pool(count))
    network = untrained(SMALL)
    engine.prepare(network, "winograd")
    assert set(asked) == {torch.get_num_threads()}
    asked.clear()
    prepared = engine.prepare(network, "winograd", threads=3)
    assert set(asked) == {3} and prepared.threads == 3


@pytest.mark.parametrize("name", ["ncnn", "onnxruntime", "openvino"])
def test_other_runtimes_take_threads(name: str) -> None:
    """And give the same pixels, which `prepare` looks at."""
    network = untrained(SMALL)
    if not selection.available(name, network.device):
        pytest.skip(f"{name} is not installed")
    assert engine.prepare(network, name, threads=2).name == name
