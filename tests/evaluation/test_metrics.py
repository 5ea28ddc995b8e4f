"""PSNR and SSIM against scikit-image, the uncertainty metrics against plain loops."""

import doctest
from math import inf, log10

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torch import Tensor

from debayes.evaluation import metrics
from debayes.system.errors import DebayesError

laws = settings(deadline=None, max_examples=30, derandomize=True)
sizes = st.integers(11, 24)


def pair(height: int, width: int, *, seed: int, error: float, batch: int = 1) -> tuple[Tensor, Tensor]:
    """A smooth random picture with and without noise, in float64."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, 3, 4, 4, generator=generator, dtype=torch.float64)
    target = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    return target + error * torch.randn(target.shape, generator=generator, dtype=torch.float64), target


def test_doctests() -> None:
    """The examples of the docstrings are true."""
    assert doctest.testmod(metrics) == doctest.TestResults(failed=0, attempted=1)


@given(sizes, sizes, st.integers(0, 1000), st.floats(1e-3, 0.5), st.sampled_from((1.0, 255.0)))
@laws
def test_psnr_is_scikit_images(height: int, width: int, seed: int, error: float, data_range: float) -> None:
    """PSNR uses one mean squared error over all pixels and channels of an image."""
    image, target = (data_range * t for t in pair(height, width, seed=seed, error=error))
    expected = peak_signal_noise_ratio(target[0].numpy(), image[0].numpy(), data_range=data_range)
    assert float(metrics.psnr(image[0], target[0], data_range=data_range)) == pytest.approx(expected, abs=1e-9)


@given(sizes, sizes, st.integers(0, 1000), st.floats(1e-3, 0.5), st.sampled_from((1.0, 255.0)))
@laws
def test_ssim_is_scikit_images(height: int, width: int, seed: int, error: float, data_range: float) -> None:
    """SSIM is that of Wang et al.; scikit-image too leaves out the windows that cross the border."""
    image, target = (data_range * t for t in pair(height, width, seed=seed, error=error))
    expected = structural_similarity(
        target[0].numpy(),
        image[0].numpy(),
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=data_range,
        channel_axis=0,
    )
    assert float(metrics.ssim(image[0], target[0], data_range=data_range)) == pytest.approx(expected, abs=1e-9)


def test_metrics_are_per_image() -> None:
    """Each image of a batch has its own value."""
    image, target = pair(16, 20, seed=0, error=0.1, batch=3)
    image[1] = target[1] + 3 * (image[1] - target[1])
    for metric in (metrics.psnr, metrics.ssim):
        together = metric(image.view(3, 1, 3, 16, 20), target.view(3, 1, 3, 16, 20))
        apart = [float(metric(i, t)) for i, t in zip(image, target, strict=True)]
        assert together.flatten().tolist() == pytest.approx(apart, rel=1e-12)
        assert together.shape == (3, 1)
        assert len({round(value, 6) for value in apart}) == 3


def test_equality_is_infinite_and_one() -> None:
    """An image equals itself: infinite PSNR and SSIM 1, without a warning."""
    image, _ = pair(12, 12, seed=0, error=0.1)
    assert float(metrics.psnr(image, image)[0]) == inf
    assert float(metrics.ssim(image, image)[0]) == pytest.approx(1, abs=1e-12)


def test_float32_images_are_summed_exactly() -> None:
    """A large float32 picture with a small constant error has the PSNR of that error within 0.001 dB."""
    target = torch.rand(3, 1024, 1024, generator=torch.Generator().manual_seed(0)).mul(0.5)
    image = target + 1 / 1024
    assert float(metrics.psnr(image, target)) == pytest.approx(20 * log10(1024), abs=1e-3)
    flat = torch.full((3, 16, 16), 0.7)
    assert float(metrics.ssim(flat, flat + 1e-4)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("height", "width"), [(10, 64), (64, 10), (1, 1)])
def test_ssim_rejects_images_smaller_than_its_window(height: int, width: int) -> None:
    """The error message has the size of the image."""
    image = torch.zeros(3, height, width)
    with pytest.raises(DebayesError, match=f"at least 11x11 pixels, not {height}x{width}"):
        metrics.ssim(image, image)


def test_ssim_falls_as_noise_rises() -> None:
    """SSIM falls as the same noise grows, and it is symmetric."""
    noisy, target = pair(24, 24, seed=1, error=0.02)
    values = [float(metrics.ssim(target + k * (noisy - target), target)[0]) for k in range(6)]
    assert all(np.diff(values) < 0)
    assert float(metrics.ssim(target, noisy)[0]) == pytest.approx(values[1], rel=1e-12)


@given(st.integers(1, 60), st.integers(0, 2**31))
@laws
def test_sparsification_error_is_the_loops(count: int, seed: int) -> None:
    """The area between the two curves equals that of a loop which removes pixels one by one."""
    generator = torch.Generator().manual_seed(seed)
    error, doubt = torch.rand(2, count, generator=generator, dtype=torch.float64)

    def curve(measure: Tensor) -> list[float]:
        left = sorted(zip(measure.tolist(), error.tolist(), strict=True))
        return [float(np.sqrt(np.mean([e**2 for _, e in left[: n + 1]]))) for n in range(count)]

    area = np.mean(np.subtract(curve(doubt), curve(error))) / np.sqrt(np.mean(error.numpy() ** 2))
    assert metrics.sparsification_error(error, doubt) == pytest.approx(float(area), abs=1e-12)
    assert metrics.sparsification_error(error, 3 * error + 1) == 0


def test_calibration_error_is_the_distance_from_uniform() -> None:
    """0 for uniform levels, 1/2 for intervals that contain nothing or everything, and for the squares of uniform
    levels the integral of x - x² from 0 to 1, which is 1/6."""
    even = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    assert metrics.calibration_error(even.flip(0)) == pytest.approx(0, abs=1e-12)
    for level in (0.0, 1.0):
        assert metrics.calibration_error(torch.full((1000,), level)) == pytest.approx(0.5, abs=1e-6)
    assert metrics.calibration_error(even.square()) == pytest.approx(1 / 6, abs=1e-4)
