"""Training: it learns, it resumes where it stopped, and it leaves the program that calls it alone."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from skimage import data
from trainings import recipe

from debayes.evaluation import baselines, protocol
from debayes.formats import pictures as picture_files
from debayes.network import weights
from debayes.training import loop
from debayes.training.distributed import Processes
from debayes.training.progress import Progress
from debayes.training.recipe import Noise


@pytest.mark.parametrize(
    ("kind", "muon", "by_patch"),
    [
        ("elbo", 0.0, False),
        ("elbo", 1.0, False),
        ("elbo", 1.0, True),
        ("l1", 0.0, False),
        ("mse", 0.0, False),
        ("mse", 0.0, True),
    ],
)
def test_a_short_training_learns(kind: str, muon: float, by_patch: bool, pictures: Path, tmp_path: Path) -> None:
    """Seconds of training on eight tiles restore them 3 dB better than interpolation does, with each loss, without
    and with Muon, patches weighed by their noise or by their own error, and the ELBO's noise map is right to a
    quarter."""
    plan = recipe(steps=400, muon=muon)
    plan = replace(plan, loss=replace(plan.loss, kind=kind, by_patch=by_patch))
    file = loop.train(plan, tmp_path / "run", root=pictures)
    judges = picture_files.find(pictures / "train")
    before = protocol.average(protocol.evaluate(baselines.find_baseline("bilinear"), judges, (15.0,)), 15.0)[0]
    psnr, _, noise_error = protocol.average(protocol.evaluate(weights.load(file), judges, (15.0,)), 15.0)
    assert psnr > before + 3
    if kind == "elbo":
        assert noise_error < 0.25
    card = weights.read_card(file)
    assert card.recipe["loss"]["kind"] == kind and card.notes["steps"] == "400"
    line = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])
    assert line["step"] == 400 and line["val_psnr"] == card.results["val_psnr"]


def test_a_short_training_on_raws_learns(pictures: Path, tmp_path: Path) -> None:
    """The same with simulated raws: what a run is judged by rises by 3 dB from one step to three hundred."""
    found = []
    for steps in (1, 300):
        plan = recipe(steps=steps)
        loss = replace(plan.loss, range=1.0, level=30.0, gain=1e5, error_limit=0.1)
        plan = replace(plan, noise=Noise(domain="raw", high=60), loss=loss)
        file = loop.train(plan, tmp_path / str(steps), root=pictures)
        found.append(weights.read_card(file).results["val_psnr"])
    assert found[1] > found[0] + 3


COMMAND = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[4])
import torch
torch.set_num_threads(1)
from trainings import recipe
from debayes.training.loop import train
run, root, how = sys.argv[1:4]
train(recipe(steps=40, muon=1.0, centralise_every=3), Path(run), root=Path(root), resume=how == "resume", every=0.0)
"""


def test_resume_after_a_kill_is_bit_exact(pictures: Path, tmp_path: Path) -> None:
    """kill -9 in the middle, then --resume: the same weights to the last bit as an uninterrupted run."""

    def start(run: Path, how: str) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parent.parent)
        return subprocess.Popen([sys.executable, "-c", COMMAND, str(run), str(pictures), how, here])

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert start(whole, "new").wait() == 0
    process, log = start(broken, "new"), broken / "log.jsonl"
    while process.poll() is None and not (log.exists() and len(log.read_text().splitlines()) >= 8):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert start(broken, "resume").wait() == 0
    expected, got = (weights.load(run / "weights.safetensors").state_dict() for run in (whole, broken))
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def torchrun(count: int, *arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "-m", "debayes", "train", *arguments], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


TOML = """
[data]
train = ["train"]
val = "train"
val_pictures = 2
tile = 64
[network]
widths = [8, 12]
blocks = 1
bottom_blocks = 1
tail = 8
tail_blocks = 0
[optimizer]
rate = 1e-3
warmup = 0
batch = 8
patch = 32
"""


def test_two_processes_are_one_with_twice_the_batch(pictures: Path, tmp_path: Path) -> None:
    """The first moment of Adam after one step is a tenth of the gradient: two processes of torchrun (gloo) with
    four patches each have that of one process with eight, to rounding; and they stay together till a run by the
    clock ends."""
    plan = tmp_path / "small.toml"
    plan.write_text(TOML)
    common = (str(plan), "--data", str(pictures), "--device", "cpu")
    gradients = []
    for count in (1, 2):
        run = tmp_path / f"of {count}"
        torchrun(
            count, *common, "-o", str(run), "--set", "optimizer.steps=1", "--set", "optimizer.centralise_every=1"
        )
        state = torch.load(run / "state.pt", weights_only=True)["optimizers"][0]["state"]
        gradients.append([moments["exp_avg"] for moments in state.values()])
    assert len(gradients[0]) > 10
    for alone, together in zip(*gradients, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5 * float(alone.abs().max()))
    looks = ("--set", "optimizer.centralise_every=3")
    torchrun(2, *common, "-o", str(tmp_path / "long"), "--set", "optimizer.minutes=0.05", "--every", "0", *looks)
    lines = [json.loads(line) for line in (tmp_path / "long" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["share"] == 1 and lines[-1]["step"] > 2
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))  # only the main process writes


def test_a_batch_that_does_not_divide(pictures: Path, tmp_path: Path) -> None:
    """Patches are not divided between processes."""
    with pytest.raises(ValueError, match="multiple of the 3 processes"):
        loop.train(recipe(), tmp_path / "run", root=pictures, processes=Processes(size=3))


def test_plateaus_lower_the_rate(pictures: Path, tmp_path: Path) -> None:
    """A run that cannot learn (its rate is almost zero) is validated every two steps: each validation but the first
    multiplies the rate, down to the floor. The state keeps that."""
    plan = recipe(steps=20, rate=1e-12, floor=3e-13, factor=0.5, plateau=2, warmup=0, average=0.0)
    loop.train(plan, tmp_path / "run", root=pictures, every=0.0)
    rates = [json.loads(line)["rate"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert rates[4:6] == [pytest.approx(5e-13)] * 2 and rates[6:] == [pytest.approx(3e-13)] * 14
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    assert state["plateau"]["scale"] == pytest.approx(0.3) and state["plateau"]["best"] > 10
    with pytest.raises(ValueError, match="needs validation pictures"):
        replace(plan, data=replace(plan.data, val=""))


def test_a_run_on_a_part_of_the_store_at_a_time(pictures: Path, tmp_path: Path) -> None:
    """With room for three of eight tiles, a resumed run has the same tiles at the same steps as one in one go."""
    plan = recipe(steps=12)
    plan = replace(plan, data=replace(plan.data, tiles_on_device=3, steps_per_block=4))
    whole = loop.train(plan, tmp_path / "whole", root=pictures)

    def stop(at: Progress) -> None:
        if at.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.train(plan, tmp_path / "broken", root=pictures, every=0.0, report=stop)
    again = loop.train(plan, tmp_path / "broken", root=pictures, resume=True)
    left, right = weights.load(whole).state_dict(), weights.load(again).state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_run_is_not_overwritten(pictures: Path, tmp_path: Path) -> None:
    """A second run in the same folder is an error unless it resumes."""
    loop.train(recipe(steps=2), tmp_path / "run", root=pictures)
    with pytest.raises(FileExistsError, match="--resume"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures)


def test_ctrl_c_saves_the_run(pictures: Path, tmp_path: Path) -> None:
    """An interrupted command saves, says how to resume and ends with 130, long before the end of the run."""
    plan = tmp_path / "small.toml"
    plan.write_text(TOML + "steps = 1_000_000\n")
    command = [sys.executable, "-m", "debayes", "train", str(plan), "--data", str(pictures), "--device", "cpu"]
    run = tmp_path / "run"
    process = subprocess.Popen(
        [*command, "-o", str(run), "--every", "0"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    while process.poll() is None and not (run / "state.pt").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130 and b"continue with --resume" in said
    logged = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert torch.load(run / "state.pt", weights_only=True)["step"] == logged[-1] < 1_000_000
    assert weights.read_card(run / "weights.safetensors").notes["steps"] == str(logged[-1])


def test_a_stopped_run_resumes_to_the_same_weights(pictures: Path, tmp_path: Path) -> None:
    """Stopped after its seventh step and resumed, it has the weights of a run in one go, and every step once in its
    log, whatever the log's end looked like."""
    plan = recipe(steps=12)
    whole = loop.train(plan, tmp_path / "whole", root=pictures, every=0.0)
    seen: list[Progress] = []
    broken = tmp_path / "broken"
    loop.train(plan, broken, root=pictures, every=0.0, report=seen.append, stop=lambda: len(seen) == 6)
    assert seen[-1].step == 7
    with (broken / "log.jsonl").open("a") as log:
        log.write('{"step": 8, "loss": 1}\n{"step": 9')  # as a kill between a line and the save would leave it
    again = loop.train(plan, broken, root=pictures, every=0.0, resume=True)
    left, right = weights.load(whole).state_dict(), weights.load(again).state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)
    steps = [json.loads(line)["step"] for line in (broken / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 13))


def test_validation_pictures_are_read_first(pictures: Path, tmp_path: Path) -> None:
    """A grey picture among them is named before the first step, and no folder is left behind."""
    (tmp_path / "val").mkdir()
    Image.fromarray(data.camera()[:64, :64]).save(tmp_path / "val" / "grey.png")
    plan = recipe(steps=2)
    with pytest.raises(ValueError, match=r"grey\.png: a colour picture"):
        loop.train(replace(plan, data=replace(plan.data, val=str(tmp_path / "val"))), tmp_path / "r", root=pictures)
    assert not (tmp_path / "r").exists()


def test_a_run_by_the_clock_ends_annealed(pictures: Path, tmp_path: Path) -> None:
    """With minutes instead of steps the run ends by itself, after more than one step."""
    seen: list[Progress] = []
    loop.train(recipe(steps=0, minutes=0.05), tmp_path / "run", root=pictures, report=seen.append)
    assert seen[-1].step > 1 and seen[-1].seconds_left == 0


def test_slow_steps_are_logged_too(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the log is due after some seconds, however few steps they held; the weights are the same."""
    often = tmp_path / "often"
    plain = loop.train(recipe(steps=4), tmp_path / "plain", root=pictures, every=1e9)
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)
    seen: list[Progress] = []
    logged = loop.train(recipe(steps=4), often, root=pictures, every=1e9, report=seen.append)
    steps = [json.loads(line)["step"] for line in (often / "log.jsonl").read_text().splitlines()]
    assert steps == [at.step for at in seen] == [1, 2, 3, 4]
    left, right = (weights.load(file).state_dict() for file in (plain, logged))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_loss_that_is_not_finite_stops_the_run(pictures: Path, tmp_path: Path) -> None:
    """A learning rate that is too high ends in an error with the step, not in a ruined weight file."""
    with pytest.raises(FloatingPointError, match="not finite at step"):
        loop.train(recipe(steps=40, rate=1e3, warmup=0, clip=0.0), tmp_path / "run", root=pictures, every=1e9)
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_bfloat16_on_a_cpu(pictures: Path, tmp_path: Path) -> None:
    """If the recipe says so, convolutions round to eight bits; the first loss is the same to a hundredth."""

    def first_loss(bfloat16: bool) -> float:
        run = tmp_path / str(bfloat16)
        loop.train(recipe(steps=1, bfloat16=bfloat16), run, root=pictures)
        return float(json.loads((run / "log.jsonl").read_text().splitlines()[0])["loss"])

    exact, rounded = first_loss(False), first_loss(True)
    assert rounded != exact and rounded == pytest.approx(exact, rel=0.01)


# The mean losses after each of four steps, and the sum of the absolute weights after them, as first measured.
GOLDEN = {
    "srgb": ([155.787125, 122.285416, 139.422750, 235.480896], 1451.8464),
    "raw": ([213.657883, 233.380737, 264.962341, 495.404419], 1451.6046),
}


@pytest.mark.parametrize("domain", ["srgb", "raw"])
def test_the_arithmetic_of_a_step_stays(domain: str, pictures: Path, tmp_path: Path) -> None:
    """Every kind of random draw, loss weighting and update, to the rounding of other machines."""
    plan = recipe(steps=4, rate=1e-3, muon=1.0, centralise_every=2, decay=0.1, warmup=0)
    shares = {"enlarged": 0.3, "softened": 0.3, "sharpened": 0.3, "detail": 0.2, "gratings": 0.2}
    plan = replace(plan, data=replace(plan.data, **shares), noise=Noise(domain, low=1.0, high=30.0, by_color=0.5))
    plan = replace(plan, noise=replace(plan.noise, unusual=0.3), loss=replace(plan.loss, by_patch=True))
    file = loop.train(plan, tmp_path / "run", root=pictures, every=0.0)
    found = [json.loads(line)["loss"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses, total = GOLDEN[domain]
    assert found == pytest.approx(losses, rel=1e-3)
    weight = sum(float(tensor.abs().sum()) for tensor in weights.load(file).state_dict().values())
    assert weight == pytest.approx(total, rel=1e-5)


def test_the_calling_program_is_left_alone(pictures: Path, tmp_path: Path) -> None:
    """Random numbers, threads and settings of PyTorch are after a training what they were before."""

    def settings() -> list[object]:
        return [
            torch.get_rng_state().tolist(),
            torch.get_num_threads(),
            torch.backends.cudnn.benchmark,
            torch.get_float32_matmul_precision(),
            torch.is_grad_enabled(),
        ]

    before = settings()
    loop.train(recipe(steps=2), tmp_path / "run", root=pictures)
    assert settings() == before


def test_settings_of_cuda_are_restored() -> None:
    """Also after an error; this needs no GPU."""
    torch.backends.cudnn.benchmark, before = False, torch.get_float32_matmul_precision()
    with pytest.raises(KeyError), loop._fast_cuda(torch.device("cuda")):
        assert torch.backends.cudnn.benchmark and torch.get_float32_matmul_precision() == "high"
        raise KeyError
    assert not torch.backends.cudnn.benchmark and torch.get_float32_matmul_precision() == before


COMPILE = """
import sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
import torch
from trainings import recipe
from debayes.training.data import sample_draws
from debayes.training.loop import objective
from debayes.training.recipe import Noise
from debayes.training.state import start_state
torch.set_num_threads(1)
graphs = []
def count(graph, _):
    graphs.append(graph)
    return graph.forward
for domain in ("srgb", "raw"):
    plan = replace(recipe(), noise=Noise(domain, by_color=0.5, unusual=0.3))
    shares = {"enlarged": 0.3, "softened": 0.3, "sharpened": 0.3, "detail": 0.2, "gratings": 0.2}
    plan = replace(plan, data=replace(plan.data, **shares))
    network = start_state(plan, torch.device("cpu")).network
    tiles = torch.randint(0, 255, (4, 64, 64, 3), dtype=torch.uint8)
    compiled = torch.compile(objective, backend=count, fullgraph=True)
    for step in range(2):
        draws = sample_draws(2, 32, seed=0, step=step, generator=torch.Generator(), raw=domain == "raw")
        expected = objective(network, plan, tiles, draws)
        torch.testing.assert_close(compiled(network, plan, tiles, draws), expected)
assert len(graphs) == 2, len(graphs)
"""


def test_the_objective_compiles_to_one_graph() -> None:
    """What CUDA compiles is traced as a whole, once for all steps, and gives the same loss; this needs no GPU. In a
    process of its own, where functions do not check the shapes of their arguments."""
    here = str(Path(__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", COMPILE, here], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_importing_the_loop_leaves_the_compiler_out() -> None:
    """torch._dynamo is private and slow to import: only a training on CUDA imports it."""
    code = "import sys, debayes.training.loop; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("warmup", "warns"), [(3, False), (4, True)])
def test_a_warm_up_that_outlasts_the_run_warns(
    warmup: int, warns: bool, pictures: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In steps at the start; a run by the clock says so at its end."""
    loop.train(recipe(steps=3, warmup=warmup), tmp_path / "steps", root=pictures)
    assert (f"the warm-up of {warmup} steps is longer than the run of 3 steps" in caplog.text) == warns
    loop.train(recipe(steps=0, minutes=1e-4, warmup=10**6), tmp_path / "clock", root=pictures)
    assert "the warm-up of 1000000 steps is longer than the run of" in caplog.text
