"""Training: it learns, it goes on where it stopped, and a recipe's mistakes are named."""

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

from debayes.evaluation import baselines, protocol
from debayes.formats import pictures as picture_files
from debayes.network import weights
from debayes.network.blocks import Residual
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.training import loop
from debayes.training.distributed import Team
from debayes.training.recipe import Data, Loss, Noise, Optimizer, Recipe


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A handful of tiles of a free photograph."""
    folder = tmp_path / "data" / "train"
    folder.mkdir(parents=True)
    for i, tile in enumerate(
        data.coffee()[:256, 128:384].reshape(4, 64, 4, 64, 3).swapaxes(1, 2)[1:3].reshape(-1, 64, 64, 3)
    ):
        Image.fromarray(tile).save(folder / f"{i}.png")
    return folder.parent


def recipe(**optimizer: object) -> Recipe:
    values: dict[str, object] = {"rate": 4e-3, "warmup": 20, "batch": 8, "patch": 32, "average": 0.95, "steps": 30}
    return Recipe(
        Data(train=("train",), val="train", val_pictures=3, tile=64),
        network=Config(widths=(16, 24), blocks=1, bottom_blocks=1, tail=8, tail_blocks=0),
        noise=Noise(high=20),
        loss=Loss(count=100.0, window=9, gain=5000.0, level=6.0, bend=0.3),
        optimizer=Optimizer(**(values | optimizer)),
    )


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
        loss = replace(plan.loss, range=1.0, level=30.0, gain=1e5, bend=0.1)
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
from test_loop import recipe
from debayes.training.loop import train
run, root, how = sys.argv[1:4]
train(recipe(steps=40, muon=1.0, centre=3), Path(run), root=Path(root), resume=how == "resume", every=0.0)
"""


def test_resume_after_a_kill_is_bit_exact(pictures: Path, tmp_path: Path) -> None:
    """kill -9 in the middle, then --resume: the same weights to the last bit as an uninterrupted run."""

    def start(run: Path, how: str) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parent)
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
        torchrun(count, *common, "-o", str(run), "--set", "optimizer.steps=1", "--set", "optimizer.centre=1")
        state = torch.load(run / "state.pt", weights_only=True)["optimizers"][0]["state"]
        gradients.append([moments["exp_avg"] for moments in state.values()])
    assert len(gradients[0]) > 10
    for alone, together in zip(*gradients, strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5 * float(alone.abs().max()))
    looks = ("--set", "optimizer.centre=3")
    torchrun(2, *common, "-o", str(tmp_path / "long"), "--set", "optimizer.minutes=0.05", "--every", "0", *looks)
    lines = [json.loads(line) for line in (tmp_path / "long" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["share"] == 1 and lines[-1]["step"] > 2
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))  # only the leader writes


def test_a_batch_that_does_not_divide(pictures: Path, tmp_path: Path) -> None:
    """Patches are not divided between processes."""
    with pytest.raises(ValueError, match="multiple of the 3 processes"):
        loop.train(recipe(), tmp_path / "run", root=pictures, team=Team(size=3))


@pytest.mark.parametrize(("warmup", "steps", "end"), [(4, 100, 4), (500, 100, 10), (0, 10, 0)])
def test_the_warm_up_takes_a_tenth_at_most(
    warmup: int, steps: int, end: int, pictures: Path, tmp_path: Path
) -> None:
    """The rate rises for `warmup` steps or a tenth of the run, whichever is less, then falls to 0 along a line."""
    loop.train(recipe(steps=steps, warmup=warmup, rate=1e-3), tmp_path / "run", root=pictures, every=0.0)
    rates = [json.loads(line)["rate"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    line = [1e-3 * (1 - step / steps) for step in range(steps)]
    assert rates[end:] == pytest.approx(line[end:])
    assert all(rate < limit for rate, limit in zip(rates[: end - 1], line[: end - 1], strict=True) if end)


def test_plateaus_lower_the_rate(pictures: Path, tmp_path: Path) -> None:
    """Judged every two steps, a run that cannot learn (its rate is all but zero) has its rate multiplied at each
    judgement after the first, down to the floor; a resumed run goes on from there."""
    plan = recipe(steps=20, rate=1e-12, floor=3e-13, factor=0.5, plateau=2, warmup=0, average=0.0)
    loop.train(plan, tmp_path / "run", root=pictures, every=0.0)
    rates = [json.loads(line)["rate"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert rates[4:6] == [pytest.approx(5e-13)] * 2 and rates[6:] == [pytest.approx(3e-13)] * 14
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    assert state["scale"] == pytest.approx(0.3) and state["best"] > 10
    with pytest.raises(ValueError, match="pictures to judge on"):
        replace(plan, data=replace(plan.data, val=""))


def test_a_run_on_a_part_of_the_store_at_a_time(pictures: Path, tmp_path: Path) -> None:
    """With room for three of eight tiles, a resumed run has the same tiles at the same steps as one in one go."""
    plan = recipe(steps=12)
    plan = replace(plan, data=replace(plan.data, hold=3, stay=4))
    whole = loop.train(plan, tmp_path / "whole", root=pictures)

    def stop(at: loop.Progress) -> None:
        if at.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.train(plan, tmp_path / "broken", root=pictures, every=0.0, report=stop)
    again = loop.train(plan, tmp_path / "broken", root=pictures, resume=True)
    left, right = weights.load(whole).state_dict(), weights.load(again).state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_run_is_not_overwritten(pictures: Path, tmp_path: Path) -> None:
    """A second run in the same folder is refused unless it resumes."""
    loop.train(recipe(steps=2), tmp_path / "run", root=pictures)
    with pytest.raises(FileExistsError, match="--resume"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures)


def test_ctrl_c_saves_the_run(pictures: Path, tmp_path: Path) -> None:
    """An interrupted command saves, says how to go on and ends with 130; resumed, it has the weights of a run in
    one go, and a log that tells no step twice."""
    plan = tmp_path / "small.toml"
    plan.write_text(TOML + "steps = 150\n")
    common = [sys.executable, "-m", "debayes", "train", str(plan), "--data", str(pictures), "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run([*common, "-o", str(whole)], env=environment, check=True, capture_output=True)
    process = subprocess.Popen([*common, "-o", str(broken)], env=environment, stderr=subprocess.PIPE)
    while process.poll() is None and not (broken / "log.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130 and b"go on with --resume" in said
    with (broken / "log.jsonl").open("a") as log:
        log.write('{"step": 1')  # as a kill would leave it
    subprocess.run([*common, "-o", str(broken), "--resume"], env=environment, check=True, capture_output=True)
    left, right = (weights.load(run / "weights.safetensors").state_dict() for run in (whole, broken))
    assert all(torch.equal(left[name], right[name]) for name in left)
    steps = [json.loads(line)["step"] for line in (broken / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)) and steps[-1] == 150


def test_pictures_to_judge_on_are_read_first(pictures: Path, tmp_path: Path) -> None:
    """A grey picture among them is named before the first step, and no folder is left behind."""
    (tmp_path / "val").mkdir()
    Image.fromarray(data.camera()[:64, :64]).save(tmp_path / "val" / "grey.png")
    plan = recipe(steps=2)
    with pytest.raises(ValueError, match=r"grey\.png: a colour picture"):
        loop.train(replace(plan, data=replace(plan.data, val=str(tmp_path / "val"))), tmp_path / "r", root=pictures)
    assert not (tmp_path / "r").exists()


def test_what_cannot_be_resumed(pictures: Path, tmp_path: Path) -> None:
    """Nothing, another recipe's run and a damaged state are refused with a sentence."""
    with pytest.raises(FileNotFoundError, match="no run to go on with"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures, resume=True)
    loop.train(recipe(steps=2), tmp_path / "run", root=pictures)
    with pytest.raises(ValueError, match="another recipe"):
        loop.train(recipe(steps=3), tmp_path / "run", root=pictures, resume=True)
    torch.save({"step": 1}, tmp_path / "run" / "state.pt")
    with pytest.raises(ValueError, match="not what a run of this version saved"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures, resume=True)
    (tmp_path / "run" / "state.pt").write_bytes(b"half")
    with pytest.raises(ValueError, match="cannot be read"):
        loop.train(recipe(steps=2), tmp_path / "run", root=pictures, resume=True)


def test_a_run_by_the_clock_ends_annealed(pictures: Path, tmp_path: Path) -> None:
    """With minutes instead of steps the run ends by itself, after more than one step."""
    seen: list[loop.Progress] = []
    loop.train(recipe(steps=0, minutes=0.05), tmp_path / "run", root=pictures, report=seen.append)
    assert seen[-1].step > 1 and seen[-1].seconds_left == 0


def test_a_loss_that_is_not_finite_stops_the_run(pictures: Path, tmp_path: Path) -> None:
    """A learning rate that is absurd ends in a sentence with the step, not in a ruined weight file."""
    with pytest.raises(FloatingPointError, match="not finite at step"):
        loop.train(recipe(steps=40, rate=1e3, warmup=0, clip=0.0), tmp_path / "run", root=pictures, every=1e9)
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_start_from_weights(pictures: Path, tmp_path: Path) -> None:
    """A recipe may start from a weight file: after no learning at all it is still that file's network."""
    first = loop.train(recipe(steps=3), tmp_path / "first", root=pictures)
    plan = replace(recipe(steps=1, rate=0.0), start=str(first))
    second = loop.train(plan, tmp_path / "second", root=pictures)
    left, right = weights.load(first).state_dict(), weights.load(second).state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)
    other = replace(plan, network=replace(plan.network, tail=4))
    with pytest.raises(ValueError, match="not that of"):
        loop.train(other, tmp_path / "third", root=pictures)
    with pytest.raises(ValueError, match=r"starts from nowhere\.safetensors, which is not there"):
        loop.train(replace(plan, start="nowhere.safetensors"), tmp_path / "fourth", root=pictures)


def test_start_from_weights_with_fewer_blocks(pictures: Path, tmp_path: Path) -> None:
    """Blocks at the ends of stacks change no pixel at first, and learn."""
    first = loop.train(recipe(steps=3), tmp_path / "first", root=pictures)
    config = weights.read_card(first).config
    grown = replace(config, blocks=config.blocks + 1, bottom_blocks=config.bottom_blocks + 2)
    plan = replace(recipe(steps=1, rate=0.0), start=str(first), network=grown)
    second = loop.train(plan, tmp_path / "second", root=pictures)
    mosaic = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    before, after = weights.load(first), weights.load(second)
    assert after.parameter_count > before.parameter_count
    torch.testing.assert_close(after(mosaic).loc, before(mosaic).loc, rtol=0, atol=1e-6)
    third = loop.train(replace(plan, optimizer=recipe(steps=5).optimizer), tmp_path / "third", root=pictures)
    block = f"body.bottom.{config.bottom_blocks + 1}"
    learnt = weights.load(third).get_submodule(block)
    assert isinstance(learnt, Residual) and float(learnt.second.weight.abs().max()) > 0
    fewer = replace(config, bottom_blocks=config.bottom_blocks - 1)
    for other in (fewer, replace(grown, count=7.0)):
        with pytest.raises(ValueError, match="nor that with more blocks"):
            loop.train(replace(plan, network=other), tmp_path / "other", root=pictures)


def test_bfloat16_on_a_cpu(pictures: Path, tmp_path: Path) -> None:
    """If the recipe says so, convolutions round to eight bits; the first loss is the same to a hundredth."""

    def first_loss(bfloat16: bool) -> float:
        run = tmp_path / str(bfloat16)
        loop.train(recipe(steps=1, bfloat16=bfloat16), run, root=pictures)
        return float(json.loads((run / "log.jsonl").read_text().splitlines()[0])["loss"])

    exact, rounded = first_loss(False), first_loss(True)
    assert rounded != exact and rounded == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("muon", [0.0, 1.0])
def test_filters_decay_and_biases_do_not(muon: float) -> None:
    """A step without gradients leaves 1 - rate * decay of every filter, whoever moves it, and all of every bias."""
    network = Network(Config(widths=(16,), blocks=0, bottom_blocks=1, tail=16, tail_blocks=0))
    torch.nn.init.ones_(network.body.maps.bias)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for each in loop._optimizers(network, Optimizer(muon=muon, decay=2.0)):
        for group in each.param_groups:
            group["lr"] = 0.1
        each.step()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.detach(), (0.8 if parameter.ndim > 1 else 1.0) * before[name])
