"""Winograd convolutions in C against PyTorch's, for all sizes and divisions of the work."""

import random
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from time import sleep

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import untrained
from torch import Tensor

from debayes import engine
from debayes.engine import winograd
from debayes.engine.winograd import Chain, Layer
from debayes.network.config import Config


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    if not winograd.available():
        pytest.skip("debayes was installed without a C compiler, or for another processor")


def convolve(layers: list[Layer], x: Tensor) -> Tensor:
    """The chain by PyTorch, in double precision."""
    inputs = [x.double()]
    for i, layer in enumerate(layers):
        y = F.conv2d(inputs[-1], layer.weight.double(), layer.bias.double(), padding=1)
        y = F.relu(y) if layer.rectified else y
        inputs.append(y + inputs[i - 1] if layer.summed else y)
    return inputs[-1].float()


def layer(inputs: int, outputs: int, rectified: bool = False, summed: bool = False) -> Layer:
    return Layer(torch.randn(outputs, inputs, 3, 3) / (3 * inputs**0.5), torch.randn(outputs), rectified, summed)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 90), st.integers(1, 90), st.sampled_from([18, 48, 144]))
def test_a_chain_is_its_convolutions(seed: int, height: int, width: int, strip: int) -> None:
    """Any channels, several inputs, rectifiers, residual blocks; windows of larger pictures, with their channels
    first or last; batches; strips of any width and parts of any height, from any row on."""
    torch.manual_seed(seed)
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "STRIP_COLUMNS", strip)
        patch.setattr(winograd, "LEAST_ROWS", chance.choice([1, 7, 64]))
        patch.setattr(winograd, "PARTS", chance.choice([1, 9]))
        channels = [chance.choice([1, 3, 4, 16, 20, 33]) for _ in range(chance.randint(1, 3))]
        layers, width_now = [], sum(channels)
        for _ in range(chance.randint(1, 2)):
            hidden, outputs = chance.choice([5, 16, 32]), chance.choice([3, 8, 12, 40])
            layers.append(layer(width_now, outputs, rectified=chance.random() < 0.5))
            if chance.random() < 0.6:
                layers += [layer(outputs, hidden, rectified=True), layer(hidden, outputs, summed=True)]
            width_now = outputs
        pictures = [torch.randn(2, count, height + 3, width + 2) for count in channels]
        laid_out = [
            picture.contiguous(memory_format=torch.channels_last) if chance.random() < 0.5 else picture
            for picture in pictures
        ]
        windows = [picture[..., 2 : height + 2, 1 : width + 1] for picture in laid_out]
        found = Chain(tuple(layers))(*windows)
    torch.testing.assert_close(found, convolve(layers, torch.cat(windows, 1)), rtol=1e-4, atol=1e-4)
    assert found.is_contiguous(memory_format=torch.channels_last) or 1 in found.shape


def test_parts_cover_everything_once() -> None:
    for size, most in ((1, 5), (10, 5), (11, 5), (144, 136)):
        parts = winograd._cut(size, most)
        assert parts[0][0] == 0 and parts[-1][1] == size
        assert all(left[1] == right[0] for left, right in pairwise(parts))
        assert all(0 < stop - start <= most for start, stop in parts)


def test_filters_are_filled_up_with_zeros() -> None:
    """Channels are filled up to whole vectors; the added ones have zero weights."""
    arranged = winograd.arrange(torch.randn(12, 4, 3, 3), 8)
    assert arranged.shape == (36, 8 * 16)
    assert bool((arranged.view(36, 8, 16)[:, 4:] == 0).all()) and bool(
        (arranged.view(36, 8, 16)[..., 12:] == 0).all()
    )


def test_a_library_for_other_vector_units_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a library for the processor's vector units the engine is not available, and the error says why."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "VSX")
    if Path(winograd.__file__).with_name("winograd-DEFAULT.so").exists():
        pytest.skip("here one library is for all processors")
    assert not winograd.available()
    with pytest.raises(ValueError, match=r"not compiled for this processor \(VSX\)"):
        engine.prepare(untrained(Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4)), "winograd")


def test_layers_that_make_no_chain() -> None:
    """The library does not check what it is given, so `Chain` does."""
    with pytest.raises(ValueError, match="takes the result of the one before"):
        Chain((layer(4, 8), layer(4, 8)))
    with pytest.raises(ValueError, match="a chain is 1 to 32 convolutions"):
        Chain((layer(4, 4),) * 33)
    for layers in ((layer(4, 4, summed=True),), (layer(4, 8), layer(8, 8, summed=True))):
        with pytest.raises(ValueError, match="only add the input of the one before"):
            Chain(layers)
    for channels in (3, 5):
        with pytest.raises(ValueError, match="takes 4 channels of pictures of one size"):
            Chain((layer(4, 8),))(torch.zeros(1, channels, 8, 8))


def test_nan_stays_nan() -> None:
    """NaN passes a rectifier, as in PyTorch."""
    x = torch.zeros(1, 4, 9, 9)
    x[0, 0, 4, 4] = torch.nan
    assert bool(Chain((layer(4, 8, rectified=True),))(x)[0, :, 4, 4].isnan().all())


def test_an_interrupted_chain_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C no memory is freed before the last thread has finished."""
    running: list[int] = []

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(library, name)

        def convolve_chain(self, *arguments: object) -> None:
            running.append(1)
            library.convolve_chain(*arguments)
            sleep(0.05)
            running.pop()

    library = winograd._load()
    monkeypatch.setattr(winograd, "_load", Slow)
    monkeypatch.setattr(winograd, "STRIP_COLUMNS", 18)
    monkeypatch.setattr(Future, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Chain((layer(4, 8),))(torch.randn(1, 4, 200, 300))
    assert running == []


def interrupt(_: Future[None]) -> None:
    raise KeyboardInterrupt
