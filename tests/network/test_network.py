"""The networks: their receptive radius and stride, the range of their outputs, their cost, what they reject.

Tests `config`, `blocks`, `heads`, `unet` and `paper_net` too.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from networks import untrained
from torch import Tensor, nn

from debayes.imaging import cfa
from debayes.network import weights
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior.nig import MeanOnly, NormalInverseGamma
from debayes.system.errors import DebayesError

CONFIGS = [
    Config(widths=(4,), blocks=1, bottom_blocks=0, tail=4, tail_blocks=0),
    Config(widths=(4,), blocks=1, bottom_blocks=2, tail=4, tail_blocks=1),
    Config(widths=(4, 4), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0),
    Config(widths=(4, 4), blocks=2, bottom_blocks=1, tail=4, tail_blocks=2),
    Config(widths=(4, 4, 4), blocks=1, bottom_blocks=1, tail=4, tail_blocks=1),
    Config(widths=(4, 4, 4), blocks=0, bottom_blocks=2, tail=4, tail_blocks=1),
    Config("paper", widths=(8,), blocks=1, groups=1, growth=4, layers=2),
    Config("paper", widths=(8,), blocks=2, groups=2, growth=4, layers=3),
]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.architecture}-{c.receptive_radius}")


def build(config: Config) -> Network:
    """A network of random weights with biases, in float64, so that nothing is rounded away."""
    generator = torch.Generator().manual_seed(0)
    network = Network(config).double()
    with torch.no_grad():
        for parameter in network.parameters():
            scale = parameter[0].numel() ** -0.5
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return network


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stack(posterior: NormalInverseGamma) -> Tensor:
    """The four maps as channels."""
    return torch.cat((posterior.loc, posterior.count, posterior.concentration, posterior.rate), 1)


@each_config
def test_nothing_beyond_the_radius_is_seen(config: Config) -> None:
    """Changing one photosite changes no output farther away than the radius, to the last bit."""
    network, radius, stride = build(config), config.receptive_radius, config.stride
    size = (2 * radius // stride + 4) * stride
    middle = size // 2
    mosaic = random(1, 1, size, size)
    distance = torch.arange(size)
    with torch.no_grad():
        before = stack(network(mosaic))
        for offset in range(stride):
            y, x = middle + offset, middle + (3 * offset + 1) % stride
            changed = mosaic.clone()
            changed[..., y, x] += 10
            moved = (stack(network(changed)) != before).any(1)[0]
            outside = torch.maximum((distance[:, None] - y).abs(), (distance - x).abs()) > radius
            assert moved.any()
            assert not moved[outside].any()


@each_config
def test_the_radius_is_reached(config: Config) -> None:
    """With positive weights nothing cancels: the farthest photosite that a pixel depends on is at the radius."""
    network, radius, stride = build(config), config.receptive_radius, config.stride
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.abs_().clamp_min_(1e-3)
    middle = (radius // stride + 2) * stride
    size = 2 * middle + 2 * stride
    mosaic = (1 + random(1, 1, size, size)).requires_grad_()
    image = network(mosaic).loc
    reach = 0
    for offset in range(stride):
        pixel = middle + offset
        (gradient,) = torch.autograd.grad(image[..., pixel, pixel].sum(), mosaic, retain_graph=True)
        rows, columns = gradient[0, 0].nonzero(as_tuple=True)
        reach = max(reach, int((rows - pixel).abs().max()), int((columns - pixel).abs().max()))
    assert reach == radius


@each_config
def test_a_cell_is_what_a_shift_keeps(config: Config) -> None:
    """Moving the mosaic by the stride moves the posterior with it; moving it by half of that does not."""
    network, radius, stride = build(config), config.receptive_radius, config.stride
    size = (2 * radius // stride + 4) * stride
    scene = random(1, 1, size + stride, size + stride)
    inside = slice(radius + stride, size - radius - stride)

    def window(shift: int) -> Tensor:
        with torch.no_grad():
            return stack(network(scene[..., shift : shift + size, shift : shift + size]))

    def overlap(shift: int) -> tuple[Tensor, Tensor]:
        moved = slice(inside.start - shift, inside.stop - shift)
        return window(0)[..., inside, inside], window(shift)[..., moved, moved]

    torch.testing.assert_close(*overlap(stride), rtol=1e-6, atol=1e-6)
    still, half = overlap(stride // 2)
    assert float((still - half).abs().max()) > 1e-3


@pytest.mark.parametrize("gain", [1.0, 1e4])
@pytest.mark.parametrize("bias", [-1e4, 0.0, 1e4])
@pytest.mark.parametrize("config", [CONFIGS[4], CONFIGS[6]], ids=lambda c: c.architecture)
def test_heads_keep_their_promises(config: Config, gain: float, bias: float) -> None:
    """However extreme the activations, count and rate are positive, concentration is above 2, all finite."""
    torch.manual_seed(0)
    network = Network(config)
    last = network.body.maps
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        last.weight.mul_(gain)
        last.bias.add_(bias)
        for scale in (1.0, 1e3):
            posterior = network(scale * torch.randn(2, 1, 32, 32, generator=generator))
            assert stack(posterior).isfinite().all()
            assert (posterior.count > 0).all()
            assert (posterior.concentration > 2).all()
            assert (posterior.rate > 0).all()
            assert (posterior.noise_variance > 0).all() and (posterior.mean_variance > 0).all()
            (low, high), image = posterior.interval(0.9), posterior.mean
            assert ((low <= image) & (image <= high)).all()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("architecture", ["unet", "paper"])
def test_a_head_of_zeros_is_the_prior_over_the_interpolation(architecture: str, autocast: bool) -> None:
    """Without weights in the last layer the image is the bilinear interpolation, exactly and also in a bfloat16
    region; count and concentration are Config's, and the noise is 10/255."""
    config = Config(architecture, widths=(8,), blocks=1, bottom_blocks=1, tail=4, count=50.0, concentration=30.0)
    network = Network(config)
    torch.nn.init.zeros_(network.body.maps.weight)
    torch.nn.init.zeros_(network.body.maps.bias)
    mosaic = random(2, 1, 8, 12).float()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        posterior = network(mosaic)
    ones = torch.ones(2, 3, 8, 12)
    assert torch.equal(posterior.loc, cfa.interpolate(mosaic))
    torch.testing.assert_close(posterior.count, 50 * ones, rtol=1e-3, atol=0)
    torch.testing.assert_close(posterior.concentration, 30 * ones, rtol=1e-3, atol=0)
    torch.testing.assert_close(posterior.noise_variance.sqrt(), 10 / 255 * ones, rtol=1e-3, atol=0)


@pytest.mark.parametrize("architecture", ["unet", "paper"])
def test_every_weight_is_used(architecture: str) -> None:
    """The gradient of the four maps reaches every parameter: no layer is built and left out."""
    config = Config(architecture, widths=(8, 8) if architecture == "unet" else (8,), blocks=2, tail=4)
    network = untrained(config).requires_grad_(True)
    stack(network(random(1, 1, 16, 16).float())).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and (parameter.grad != 0).any(), name


def test_a_level_adds_to_the_one_above() -> None:
    """With its way up closed, the lower of two levels is as if it were not there: what is left is the network of
    one level that runs the blocks of the way down and of the way up in a row."""
    deep = build(Config(widths=(4, 8), blocks=2, bottom_blocks=1, tail=4))
    flat = build(Config(widths=(4,), bottom_blocks=4, tail=4))
    weights = deep.state_dict()
    shared = {name: weights.get(name) for name in flat.state_dict()}
    for i in range(2):
        for layer in ("first.weight", "first.bias", "second.weight", "second.bias"):
            shared[f"body.bottom.{i}.{layer}"] = weights[f"body.down.0.{i}.{layer}"]
            shared[f"body.bottom.{i + 2}.{layer}"] = weights[f"body.up.0.{i}.{layer}"]
    flat.load_state_dict(shared)
    mosaic = random(1, 1, 16, 16)
    with torch.no_grad():
        open_ = stack(deep(mosaic))
        deep.body.grow[0].weight.zero_()
        deep.body.grow[0].bias.zero_()
        torch.testing.assert_close(stack(deep(mosaic)), stack(flat(mosaic)))
        assert float((open_ - stack(flat(mosaic))).abs().max()) > 1e-3


def test_the_cost_of_a_unet_by_hand() -> None:
    """Weights and multiply-accumulates of a small U-Net, layer by layer."""
    network = Network(Config(widths=(2, 3), blocks=1, bottom_blocks=1, tail=2, tail_blocks=1))
    # inputs, outputs, kernel side, photosites for one application
    layers = [
        (4, 2, 3, 4),  # head, on packed planes
        *[(2, 2, 3, 4)] * 2,  # down
        (2, 3, 2, 16),  # shrink
        *[(3, 3, 3, 16)] * 2,  # bottom
        (3, 8, 1, 16),  # grow
        *[(2, 2, 3, 4)] * 2,  # up
        (2, 8, 1, 4),  # unpack
        (2, 2, 3, 1),  # mix
        (3, 2, 3, 1),  # look: the three colours of the interpolation
        *[(2, 2, 3, 1)] * 2,  # tail
        (2, 12, 3, 1),  # maps
    ]
    assert network.parameter_count == sum(i * o * k**2 + o for i, o, k, _ in layers) == 875
    assert network.kmac_per_pixel == pytest.approx(sum(i * o * k**2 / area for i, o, k, area in layers) / 1e3)
    assert network.kmac_per_pixel == pytest.approx(0.449125)


def test_the_cost_of_the_papers_network_by_hand() -> None:
    """Weights and multiply-accumulates of a small residual dense network, layer by layer."""
    network = Network(Config("paper", widths=(4,), blocks=2, groups=3, growth=2, layers=2))
    block = [(4, 2, 3, 4), (6, 2, 3, 4), (8, 4, 1, 4)]
    group = [*block, *block, (8, 4, 1, 4)]
    layers = [*[(4, 4, 3, 4)] * 2, *group * 3, (4, 4, 3, 4), (1, 12, 3, 1)]
    assert network.parameter_count == sum(i * o * k**2 + o for i, o, k, _ in layers)
    assert network.kmac_per_pixel == pytest.approx(sum(i * o * k**2 / area for i, o, k, area in layers) / 1e3)


def test_an_unknown_architecture_is_refused() -> None:
    """The error message names both architectures."""
    with pytest.raises(DebayesError, match='"unet" or "paper", not \'transformer\''):
        Config("transformer")


@pytest.mark.parametrize(
    ("architecture", "widths"), [("unet", ()), ("paper", ()), ("paper", (8, 16)), ("paper", (6,))]
)
def test_widths_fit_the_architecture(architecture: str, widths: tuple[int, ...]) -> None:
    """A U-Net has at least one level; the paper's network has one, with a multiple of four channels."""
    with pytest.raises(DebayesError, match=f"the '{architecture}' network needs .*one width"):
        Config(architecture, widths=widths)


@pytest.mark.parametrize("architecture", ["unet", "paper"])
def test_a_network_of_the_mean_only(architecture: str) -> None:
    """Its mean is that of the whole network, nothing else is there, and it has less to do."""
    config = Config(architecture, widths=(8, 8) if architecture == "unet" else (8,), blocks=1, tail=4)
    network, mosaic = untrained(config), random(2, 1, 16, 16).float()
    bare = network.mean_only()
    found, right = bare(mosaic), network(mosaic)
    torch.testing.assert_close(found.mean, right.mean, rtol=0, atol=1e-6)
    assert isinstance(found, MeanOnly) and not hasattr(found, "noise_variance")
    assert torch.equal(bare.forward_crop(mosaic, slice(3, 9), slice(2, 8)).mean, found.mean[..., 3:9, 2:8])
    assert network.has_posterior and not bare.has_posterior and bare.mean_only().has_posterior is False
    assert bare.kmac_per_pixel < network.kmac_per_pixel
    assert not any(p.requires_grad for p in bare.parameters())


@pytest.mark.parametrize("name", weights.shipped())
def test_the_cost_is_what_a_run_takes(name: str) -> None:
    """The computed figure counts what the convolutions of a run multiply, for the mean alone too."""
    network = weights.load(name)
    for each in (network, network.mean_only()):
        size, total = 4 * each.config.stride, 0

        def count(module: nn.Module, _: object, output: Tensor) -> None:
            nonlocal total
            total += output[0, 0].numel() * module.weight.numel()

        for module in each.modules():
            if isinstance(module, nn.Conv2d):
                module.register_forward_hook(count)
        each(torch.zeros(1, 1, size, size))
        assert each.kmac_per_pixel == pytest.approx(total / size**2 / 1e3, rel=1e-12)


@pytest.mark.parametrize("shape", [(1, 16, 16), (1, 3, 16, 16), (1, 1, 16, 18), (1, 1, 15, 16), (1, 1, 0, 16)])
def test_mosaics_of_a_wrong_shape(shape: tuple[int, ...]) -> None:
    """What the network takes, what came, and what takes any size."""
    network = untrained(Config(widths=(4, 4), blocks=1, bottom_blocks=1, tail=4))
    with pytest.raises(
        DebayesError, match=rf"multiples of 4, not {re.escape(str(shape))}: debayes.restore takes any"
    ):
        network.forward(torch.zeros(shape))


def test_mosaics_of_another_type() -> None:
    """A network in half precision says so, unless PyTorch converts what it is given."""
    network = untrained(Config(widths=(4, 4), blocks=1, bottom_blocks=1, tail=4))
    mosaic = random(1, 1, 16, 16).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network(mosaic.bfloat16()).mean.isfinite().all()
    network.half()
    with pytest.raises(
        DebayesError, match=r"torch.float16 on cpu, but the mosaic is torch.float32 on cpu: convert"
    ):
        network(mosaic)
    assert network(mosaic.half()).mean.isfinite().all()


EXPORT = """
import sys, torch
from debayes.network import weights
network = weights.load("wild-s")
network = network.mean_only() if sys.argv[1] == "image" else network
sides = {axis: network.config.stride * torch.export.Dim(name) for axis, name in ((2, "height"), (3, "width"))}
shapes = ({0: torch.export.Dim("batch"), **sides},)
program = torch.export.export(network, (torch.rand(2, 1, 16, 24),), dynamic_shapes=shapes)
torch.export.save(program, sys.argv[2])
exported = torch.export.load(sys.argv[2]).module()
mosaic = torch.rand(3, 1, 24, 16, generator=torch.Generator().manual_seed(0))
expected, found = network(mosaic), exported(mosaic)
assert type(found) is type(expected)
for name, values in expected.numpy().items():
    torch.testing.assert_close(getattr(found, name), torch.from_numpy(values), rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize("what", ["image", "posterior"])
def test_export(what: str, tmp_path: Path) -> None:
    """`torch.export` takes a network, for batches of any size, and its file returns what the network returns.

    In a program of its own, as the type checks of the tests would check the symbols that stand for sizes.
    """
    command = [sys.executable, "-c", EXPORT, what, tmp_path / "network.pt2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
