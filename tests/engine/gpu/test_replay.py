"""Networks lowered to operations for GPUs: which kernel computes which step, the same values as the network's, and
memory released as soon as possible. `test_operations` tests the operations one by one.
"""

import sys
import weakref
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from networks import untrained
from torch import Tensor, nn

from debayes.engine import graph, prepare, staged_unet
from debayes.engine.gpu import operations, replay
from debayes.engine.graph import Graph
from debayes.imaging import cfa
from debayes.network.config import Config

CPU = torch.device("cpu")

CONFIGS = {
    "one level": Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0),
    "two levels": Config(widths=(6, 8), blocks=2, bottom_blocks=1, tail=4, tail_blocks=2),
    "paper": Config("paper", widths=(8,), blocks=1, groups=2, growth=4, layers=2),
}

# Like wild-s: two levels of residual blocks, and a tail without blocks.
SHIPPED = Config("unet", widths=(32, 64), blocks=2, bottom_blocks=1, tail=32, tail_blocks=0)


def noisy(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def folded(config: Config, *, image: bool = False) -> tuple[Graph, nn.Module]:
    """The steps of a U-Net that GPUs are given, and a module that computes the same; `image`: the mean alone."""
    network = untrained(config)
    if image:
        network = network.mean_only()
    return staged_unet.trace_folded(network, shuffle_last=True), staged_unet.fold(network)


def kinds(program: replay.Replay) -> Counter[str]:
    """How often each operation is used."""
    return Counter(type(instruction.operation).__name__ for instruction in program.instructions)


@pytest.mark.parametrize("config", CONFIGS)
def test_replayed_steps_are_the_body(config: str) -> None:
    """The lowered steps give what the body gives: unchanged, and folded for GPUs."""
    network = untrained(CONFIGS[config])
    planes, base = noisy(1, 4, 16, 24), noisy(1, 3, 32, 48)
    program = replay.build(graph.trace(network.body, *graph.examples(network)), torch.float32)
    torch.testing.assert_close(program(planes, base), network.body(planes, base), rtol=1e-4, atol=1e-5)
    if config != "paper":
        steps, body = folded(CONFIGS[config])
        torch.testing.assert_close(replay.build(steps, torch.float32)(planes), body(planes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tail", [16, 64])
@pytest.mark.parametrize("blocks", [0, 1])
def test_steps_for_torch_compile_are_the_body(blocks: int, tail: int) -> None:
    """Taps summed last and a bias carried by ones, at the border too; for the image alone, where the last
    convolution has few filters, and for all maps, where it has not."""
    config = Config("unet", widths=(16, 24), blocks=1, bottom_blocks=1, tail=tail, tail_blocks=blocks)
    planes = noisy(1, 4, 16, 24)
    for image in (False, True):
        steps, body = folded(config, image=image)
        program = replay.build(steps, torch.float32, for_compile=True)
        torch.testing.assert_close(program(planes), body(planes), rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("for_compile", [False, True])
@pytest.mark.parametrize("blocks", [(), (32, 64)])
def test_fused_steps_are_the_body(blocks: tuple[int, ...], for_compile: bool) -> None:
    """With this project's kernels for sums and for whole residual blocks."""
    config = Config("unet", widths=(16, 32, 64), blocks=1, bottom_blocks=2, tail=32, tail_blocks=1)
    steps, body = folded(config)
    planes = noisy(1, 4, 16, 24).double()
    program = replay.build(steps, torch.float64, for_compile=for_compile, max_fused_channels=64, blocks=blocks)
    expected = body.double()(planes)
    torch.testing.assert_close(program(planes).to(expected), expected, rtol=1e-4, atol=1e-6)


def test_the_operations_of_a_gpu() -> None:
    """Which kernels compute a network like wild-s: without this project's kernels, with Triton's for sums of up to
    32 and of up to 64 channels, and with those of whole residual blocks."""
    steps, _ = folded(SHIPPED, image=True)
    plain = kinds(replay.build(steps, torch.float16))
    sums = kinds(replay.build(steps, torch.float16, max_fused_channels=32))
    wide = kinds(replay.build(steps, torch.float16, max_fused_channels=64))
    whole = kinds(replay.build(steps, torch.float16, max_fused_channels=64, blocks=(32, 64)))
    # Four residual blocks of 32 channels, one of 64; the sum of the levels follows depth to space, so stays.
    assert plain["Add"] == 6 and plain["ConvolveRectify"] == 6
    assert sums["ConvolveInTriton"] == 8 and sums["Add"] == 2 and sums["ConvolveRectify"] == 2
    assert wide["ConvolveInTriton"] == 9 and wide["Add"] == 1 and wide["ConvolveRectify"] == 2
    assert whole["ResidualBlock"] == 5 and whole["ConvolveInTriton"] == 0 and whole["ConvolveRectify"] == 1
    assert plain["Convolve"] - whole["Convolve"] == 5


def test_the_operations_for_torch_compile() -> None:
    """The first convolution gets ones, channels of zeros come without a convolution, and the last one is a product
    of all taps, after which the program ends if the image is made in one pass."""
    steps, _ = folded(SHIPPED, image=True)
    merged = kinds(replay.build(steps, torch.float16, for_compile=True))
    assert [merged[name] for name in ("ConvolveWithOnes", "PadChannels", "ConvolveByTaps")] == [1, 1, 1]
    cut = replay.build(steps, torch.float16, for_compile=True, finished=False)
    assert isinstance(cut.instructions[-1].operation, operations.TapProducts)
    assert cut(noisy(1, 4, 16, 24)).shape == (1, 112, 16, 24)
    steps, _ = folded(SHIPPED)
    all_maps = replay.build(steps, torch.float16, for_compile=True, finished=False)  # too many filters: not cut
    assert isinstance(all_maps.instructions[-1].operation, operations.DepthToSpace)
    assert kinds(all_maps)["ConvolveByTaps"] == 0


def test_weights_have_the_type_and_layout_that_kernels_read() -> None:
    """Half precision with channels last; a convolution that gives the output has filters of zeros up to 32."""
    steps, _ = folded(SHIPPED, image=True)
    program = replay.build(steps, torch.float16, max_fused_channels=64, blocks=(64,))
    for instruction in program.instructions:
        for name, value in vars(instruction.operation).items():
            if isinstance(value, Tensor):
                single = isinstance(instruction.operation, operations.ResidualBlock) and name == "bias"
                assert value.dtype == (torch.float32 if single else torch.float16)
                assert name != "weight" or value.is_contiguous(memory_format=torch.channels_last)
    network = untrained(CONFIGS["paper"])
    program = replay.build(graph.trace(network.body, *graph.examples(network)), torch.float16)
    last = program.instructions[-1].operation
    assert isinstance(last, operations.Convolve)
    assert (len(last.weight), last.channels) == (replay.FILTERS, 12)


@pytest.mark.parametrize("finished", [True, False])
def test_every_value_is_released_after_its_last_use(finished: bool) -> None:
    """Once, and no later instruction reads it; the output alone is left."""
    steps, _ = folded(SHIPPED, image=True)
    program = replay.build(
        steps, torch.float16, for_compile=True, max_fused_channels=64, blocks=(32, 64), finished=finished
    )
    alive = set(program.inputs)
    for instruction in program.instructions:
        assert alive.issuperset(instruction.inputs)
        assert set(instruction.released) <= set(instruction.inputs)
        alive = (alive | {instruction.output}) - set(instruction.released)
    assert alive == {program.instructions[-1].output}
    readers = {name: i for i, instruction in enumerate(program.instructions) for name in instruction.inputs}
    for name, i in readers.items():
        assert name in program.instructions[i].released


def test_released_memory_is_free_for_the_next_operation() -> None:
    """No other reference keeps a value alive while later operations run."""
    seen: list[weakref.ref[Tensor]] = []

    def follow(x: Tensor, other: Tensor | None = None) -> Tensor:
        if len(seen) > 1:
            assert seen[-2]() is None
        y = x + 1 if other is None else x + other
        seen.append(weakref.ref(y))
        return y

    program = replay.Replay(
        ("x",),
        torch.float32,
        (
            replay.Instruction(follow, ("x",), "a", ("x",)),
            replay.Instruction(follow, ("a", "a"), "b", ("a",)),
            replay.Instruction(follow, ("b",), "c", ("b",)),
            replay.Instruction(follow, ("c",), "d", ("c",)),
        ),
    )
    assert torch.equal(program(torch.ones(1, 1, 2, 2)), torch.full((1, 1, 2, 2), 6.0))


@pytest.mark.parametrize("image", [False, True])
def test_torch_compile_takes_a_program_whole(image: bool) -> None:
    """Without a break of its graph, and with a call of each kernel as it is."""
    steps, _ = folded(SHIPPED, image=image)
    program = replay.build(
        steps, torch.float32, for_compile=True, max_fused_channels=64, blocks=(32, 64), finished=not image
    )
    targets: Counter[str] = Counter()

    def note(module: torch.fx.GraphModule, _: list[Tensor]) -> object:
        targets.update(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    planes = noisy(1, 4, 16, 24)
    torch._dynamo.reset()
    fast = torch.compile(lambda x: program(x), backend=note, fullgraph=True, dynamic=False)
    with torch.inference_mode():
        torch.testing.assert_close(fast(planes), program(planes))
    assert targets["debayes.block.default"] == 5 and targets["debayes.rectified.default"] == 1


def test_the_last_pass_needs_the_products_of_a_cell() -> None:
    """A network of the image alone with many features ends in it; one with all maps or few features does not."""
    assert isinstance(replay.ending(folded(SHIPPED, image=True)[0]), operations.Finish)
    assert replay.ending(folded(SHIPPED)[0]) is None
    assert replay.ending(folded(CONFIGS["one level"], image=True)[0]) is None


def test_without_cuda_there_are_no_kernels() -> None:
    assert replay.widest_kernel(CPU, torch.float32) == 0
    assert replay.blocks_of(CPU, torch.float16) == ()


def finish(products: Tensor, bias: Tensor, _: Tensor, mosaic: Tensor, rows: slice, columns: slice) -> Tensor:
    """`triton_kernels.finish` in PyTorch."""
    residual = F.pixel_shuffle(operations.add_taps(products.float(), 12) + bias.view(-1, 1, 1), 2)
    return (residual + cfa.interpolate(mosaic))[..., rows, columns]


@pytest.mark.parametrize(
    ("room", "shift", "lost", "expected"),
    [
        (64, 0.0, 0.0, 64),
        (32, 0.0, 0.0, 32),  # too little shared memory for 64 channels
        (16, 0.0, 0.0, 0),
        (64, 0.01, 0.0, 0),  # a wrong last pass
        (64, 0.0, 0.1, 0),  # wrong convolutions
    ],
)
def test_kernels_are_used_if_they_give_the_right_values(
    room: int,
    shift: float,
    lost: float,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The widest one that fits and is right; the log says why others are not."""
    convolve = operations.triton_convolution

    def limited(x: Tensor, filters: Tensor, bias: Tensor, other: Tensor | None, rectified: bool) -> Tensor:
        if len(bias) > room:
            raise RuntimeError("out of resource: shared memory")
        y: Tensor = convolve(x, filters, bias, other, rectified)
        return y * (1 - lost)

    stand_in = SimpleNamespace(finish=lambda *arguments: finish(*arguments) + shift)
    monkeypatch.setitem(sys.modules, "debayes.engine.gpu.triton_kernels", stand_in)
    monkeypatch.setattr("debayes.engine.gpu.triton_kernels", stand_in, raising=False)
    monkeypatch.setattr(operations, "triton_convolution", limited)
    with caplog.at_level("INFO", "debayes"):
        assert replay._widest_working(CPU, torch.float32) == expected
    assert ("GPU kernel not used" in caplog.text) == (expected != 64)


@pytest.mark.gpu
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["half", "compile"])
@pytest.mark.parametrize("image", [False, True])
def test_engines_on_a_gpu_pass_their_self_test(name: str, image: bool) -> None:
    """With whatever kernels work there; an engine that is wrong would be replaced by eager."""
    network = untrained(SHIPPED).to("cuda")
    assert prepare(network, name, image=image).name == name


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_kernels_work_on_this_gpu(dtype: torch.dtype) -> None:
    """Triton's from compute capability 8.0 on, those of residual blocks on Hopper."""
    device = torch.device("cuda")
    if torch.cuda.get_device_capability(device) >= (8, 0):
        assert replay.widest_kernel(device, dtype) >= 32
    if torch.cuda.get_device_capability(device) == (9, 0):
        assert replay.blocks_of(device, dtype) == (32, 64)
