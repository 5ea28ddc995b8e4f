"""Adapting a network to one mosaic whose noise it was not trained on: the paper's fine-tuning, and a better one.

The paper takes the corrupted mosaic itself as a weakly informative prior: a pixel's target is the interpolated
mosaic at a random neighbour, so that the network cannot learn to copy its input, and targets that differ by more
than noise does are masked. This blurs, and the paper does not say when to stop. The method used here keeps the
mosaic as its own target and subtracts what copying would gain: with f the restored mosaic and v the noise variance,

    E (x - f)² - v + 2 v df/dx = E (z - f)²

for any f (Stein 1981). So the right side, an error that cannot be measured, is minimised through the left side,
which can. A random probe measures df/dx (Ramani et al. 2008); v is estimated from the mosaic, by
`noise_profile.estimate`.

Two questions are answered without the truth. Is adapting needed? A noise map must scale with its mosaic; if the map
of half the mosaic is not half the map, the network does not know this noise. When to stop? The risk is measured at
checkpoints on windows and with a probe that stay the same; when a checkpoint gains little over the one before, only
the noise of this mosaic and the error of v are left to learn.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from debayes.imaging import cfa, noise_profile
from debayes.network.network import Network
from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma, whole
from debayes.restoration import arrays
from debayes.restoration.arrays import MosaicLike
from debayes.restoration.tiling import restore
from debayes.system.errors import DebayesError
from debayes.system.log import log

# The length of the probe, in standard deviations of the noise: short, so that the network is linear along it.
PROBE = 0.05

# Steps between two checkpoints, the share of the whole gain that a checkpoint must bring, side of its windows.
CHECK = 5
LEAST_GAIN = 0.05
CHECK_SIDE = 256

# The noise level estimated from ten times as many blocks must be below this many times that of the smoothest.
STEADY = 1.1

# From this level on, in units of 1/255, noise stands out from texture. The least share of it that a network which
# knows it removes (measured: 0.65 to 1 for noise like that of the training, below 0.2 for noise that it leaves).
CLEAR = 3.0
REMOVED = 0.5

# Of a larger mosaic, a middle part of this side is learnt from, which limits the memory.
REGION = 2048

# The least side of a mosaic, in photosites: a smaller one is too small to estimate a noise profile.
SMALLEST = 32

# Learning rates; the second is the paper's.
RATES = {"stein": 1e-5, "neighbour": 2e-6}


@dataclass(frozen=True)
class Adapted:
    """A network that was adapted to a mosaic, or found to need no adapting."""

    network: Network
    """A copy with the weights of the last checkpoint that brought a gain; the original weights if none did."""
    steps: int
    """The steps up to that checkpoint."""
    curve: tuple[tuple[int, float], ...]
    """(step, estimated mean squared error in units of 1/255²); an estimate, so it can be below 0."""
    reason: str
    """Why it stopped where it did."""
    needed: bool
    """Whether the noise was unlike that of the training."""


class _Course:
    """The course of one adaptation: checkpoints, the best weights, and why it ended."""

    def __init__(self, student: Network, steps: int, doubt: str) -> None:
        self.student = student
        self.best, self.best_step = deepcopy(student.state_dict()), 0
        self.curve: list[tuple[int, float]] = []
        self.reason, self.ended = doubt or f"all {steps} steps were made", bool(doubt)

    def check(self, step: int, risk: float) -> None:
        """Record a checkpoint: keep its weights if it gained, else end there."""
        self.curve.append((step, risk))
        if self.ended:
            return
        if has_learnt(self.curve):
            self.reason, self.ended = f"the estimated error fell little after step {self.best_step}", True
        else:
            self.best, self.best_step = deepcopy(self.student.state_dict()), step

    def result(self, needed: bool) -> Adapted:
        """The student with its best weights."""
        self.student.load_state_dict(self.best)
        student = self.student.eval().requires_grad_(False)
        return Adapted(student, self.best_step, tuple(self.curve), self.reason, needed=needed)


def adapt(
    network: Network,
    mosaic: MosaicLike,
    pattern: str = "RGGB",
    *,
    steps: int = 30,
    rate: float | None = None,
    target: Literal["stein", "neighbour"] = "stein",
    patch: int = 3,
    masked: bool = True,
    whole: bool = False,
    side: int = 192,
    batch: int = 2,
    seed: int = 0,
    noise: Callable[[Tensor], Tensor] | None = None,
    watch: Callable[[int, Network], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Adapted:
    """Fine-tune a copy of the network on the mosaic, at most `steps` steps, and stop before it gets worse.

    A step uses `batch` random windows of `side` photosites. `target="neighbour"` is the paper's way, in a
    neighbourhood of patch x patch. `noise` returns the noise variances of a picture (3, h, w), if they are known;
    else they are estimated from the mosaic. `watch` is called with the network at every checkpoint; with `whole`
    all steps are made for it, needed or not, while the result stays the same.

    Examples:
        >>> import debayes, torch
        >>> mosaic = torch.rand(1, 64, 64)
        >>> adapted = debayes.adapt(debayes.load("wild-s"), mosaic, "GBRG", steps=0)  # 30 take longer
        >>> posterior = debayes.restore(adapted.network, mosaic, "GBRG")
    """
    aligned = _aligned(_check(network, mosaic, steps=steps, side=side, batch=batch, patch=patch), pattern, network)
    if min(aligned.shape[1:]) < SMALLEST:
        reason = f"a mosaic below {SMALLEST}x{SMALLEST} is too small to learn from"
        return Adapted(deepcopy(network), 0, (), reason, needed=False)
    known = restore(network, aligned)
    variance = _variance(aligned, known, noise)
    doubt = _doubt(network, aligned, known, variance)
    if doubt and not whole:
        return Adapted(deepcopy(network), 0, (), doubt, needed=False)

    pair = torch.cat((aligned, variance))
    generator = torch.Generator().manual_seed(seed)
    checked = _windows(pair, _multiple(CHECK_SIDE, network), 4, generator)
    probe = _probe(checked, generator)
    student = deepcopy(network).train().requires_grad_(True)
    adam = torch.optim.Adam(student.parameters(), lr=rate or RATES[target])
    course = _Course(student, steps, doubt)
    for step in range(steps + 1):
        if step % CHECK == 0 or step == steps:
            with torch.no_grad():
                risk = 255**2 * float(stein_risk(student, checked[:, :1], checked[:, 1:], probe)[0].mean())
            course.check(step, risk)
            if watch is not None:
                watch(step, student)
            if course.ended and not whole:
                break
        if step == steps:
            break
        windows = _windows(pair, _multiple(side, network), batch, generator)
        if target == "stein":
            objective = _stein_objective(student, windows[:, :1], windows[:, 1:], _probe(windows, generator))
        else:
            objective = _neighbour_objective(student, windows[:, :1], patch, masked, generator)
        adam.zero_grad(set_to_none=True)
        torch.autograd.backward(objective)
        adam.step()
        _tell(progress, (step + 1) / steps)
    _tell(progress, 1.0)
    adapted = course.result(needed=not doubt)
    log.info("adapted in %d steps: %s", adapted.steps, adapted.reason)
    return adapted


def _check(
    network: Network, mosaic: MosaicLike, *, steps: int, side: int, batch: int, patch: int
) -> Float[Tensor, "1 h w"]:
    """The mosaic as a tensor, if the arguments can be worked with."""
    if steps < 0 or side < 2 or batch < 1:
        raise DebayesError(
            f"adapting takes 0 or more steps of 1 or more windows, not {steps} of {batch} of side {side}"
        )
    if patch < 1 or patch % 2 == 0:
        raise DebayesError(f"the neighbours of a pixel lie in an odd patch, not {patch}x{patch}")
    arrays.check_runner(network)
    if not isinstance(network, Network):
        raise DebayesError(
            "an engine cannot be adapted: adapt its network (engine.network), and prepare the result"
        )
    values = arrays.to_mosaic(mosaic)
    if values.ndim != 3:
        raise DebayesError(f"a network is adapted to one mosaic (1, h, w), not to {tuple(values.shape)}")
    arrays.check_range(values)
    return values


def _aligned(mosaic: Float[Tensor, "1 h w"], pattern: str, network: Network) -> Float[Tensor, "1 k l"]:
    """The middle of a mosaic as RGGB, on the network's device."""
    aligned = cfa.align(mosaic, pattern).to(network.device, torch.float32)
    return aligned[:, *(_middle(size) for size in aligned.shape[1:])]


def _variance(
    mosaic: Float[Tensor, "1 h w"], known: NormalInverseGamma, noise: Callable[[Tensor], Tensor] | None
) -> Float[Tensor, "1 h w"]:
    """The noise variance of an RGGB mosaic: of the caller's `noise`, or of a profile estimated from the mosaic."""
    if noise is None:
        variance = noise_profile.estimate(mosaic).variance(cfa.mosaic(known.mean))
    else:
        variance = cfa.mosaic(noise(known.mean.cpu())).to(mosaic)
    return variance.clamp_min(variational.VARIANCE_FLOOR)


def _tell(progress: Callable[[float], None] | None, share: float) -> None:
    if progress is not None:
        progress(share)


def has_learnt(curve: Sequence[tuple[int, float]]) -> bool:
    """Whether the gain at the last checkpoint (step, risk), per `CHECK` steps, is at most `LEAST_GAIN` of the whole
    gain so far.
    """
    if len(curve) < 2:
        return False
    (before, higher), (now, lower) = curve[-2:]
    return higher - lower <= LEAST_GAIN * (curve[0][1] - lower) * (now - before) / CHECK


def scale_error(network: Network, mosaic: Float[Tensor, "1 h w"], known: NormalInverseGamma) -> float:
    """How far the noise map of half an RGGB mosaic is from half its noise map: the mean of |log(ratio)|.

    A few hundredths for noise like that of the training, more for noise that the network was not trained on.
    """
    half = restore(network, mosaic / 2)
    return float((4 * half.noise_variance / known.noise_variance).log().abs().mean() / 2)


def removed_noise(
    network: Network, mosaic: Float[Tensor, "1 h w"], known: NormalInverseGamma, sigma: float
) -> float:
    """The share of the noise that the network removes, of the colour where it removes least.

    1 is the share that it removes of Gaussian noise of one level in the same picture, as in its training. A lower
    share means that it takes some of this noise for detail, for instance where noise is stronger in some colours
    than in others.
    """
    picture = cfa.mosaic(known.mean)
    noise = torch.randn(picture.shape, generator=torch.Generator().manual_seed(0)).to(picture)
    trained = picture + sigma * noise
    ours = _removed_by_photosite(mosaic, picture)
    expected = _removed_by_photosite(trained, cfa.mosaic(restore(network, trained).mean))
    return float((ours / expected.clamp_min(0.1)).min())


def _removed_by_photosite(noisy: Float[Tensor, "1 h w"], restored: Float[Tensor, "1 h w"]) -> Float[Tensor, " n"]:
    """For each photosite of the cell, the share of its noise that is gone, in the smoothest parts of the mosaic."""
    # of 2x2 blocks of one colour: the diagonal detail, which photographs have least of, and the other two
    filters = torch.tensor([[[1, -1], [-1, 1]], [[1, 1], [-1, -1]], [[1, -1], [1, -1]]]).unsqueeze(1) / 2
    shares = []
    for before, after in zip(cfa.pack(noisy), cfa.pack(restored), strict=True):
        blocks = torch.stack((before, before - after)).unsqueeze(1)
        detail, rows, columns = F.conv2d(blocks, filters.to(blocks), stride=2).unbind(1)
        texture = F.avg_pool2d((rows[:1].square() + columns[:1].square()), 5, 1, 2, count_include_pad=False)
        some = max(texture.numel() // 50, min(noise_profile.BLOCKS, texture.numel()))
        noise, gone = detail.flatten(1)[:, texture.flatten().topk(some, largest=False).indices]
        shares.append((noise * gone).sum() / noise.square().sum())
    return torch.stack(shares)


def stein_risk(
    network: Network,
    mosaics: Float[Tensor, "b 1 h w"],
    variance: Float[Tensor, "b 1 h w"],
    probe: Float[Tensor, "b 1 h w"],
) -> tuple[Float[Tensor, "b 1 h w"], NormalInverseGamma]:
    """Stein's estimate of the squared error at each photosite, whose mean is that of the truth; and the posterior.

    `probe` is standard normal; the noise has this variance and is independent from photosite to photosite.
    """
    step = probe * variance.sqrt()
    both = whole(network(torch.cat((mosaics, mosaics + PROBE * step))))
    here, there = cfa.mosaic(both.loc).chunk(2)
    slope = step * (there - here) / PROBE
    return (mosaics - here).square() - variance + 2 * slope, both[: len(mosaics)]


def neighbours(image: Float[Tensor, "b c h w"], patch: int, generator: torch.Generator) -> Float[Tensor, "b c h w"]:
    """The image at a random pixel of the patch x patch around each, drawn for each colour separately."""
    reach = patch // 2
    height, width = image.shape[-2:]
    padded = cfa.pad(image, reach, reach, reach, reach)
    shifted = [padded[..., y : y + height, x : x + width] for y in range(patch) for x in range(patch)]
    choice = torch.randint(0, patch**2, image.shape, generator=generator).to(image.device)
    return torch.stack(shifted).gather(0, choice[None])[0]


def mask(
    target: Float[Tensor, "b c h w"], observed: Float[Tensor, "b c h w"], posterior: NormalInverseGamma
) -> Float[Tensor, "b c h w"]:
    """1 where a target lies within two standard deviations of the noise from the pixel, 0 elsewhere, at edges."""
    return ((target - observed).abs() < 2 * posterior.noise_variance.sqrt()).float()


def _doubt(network: Network, mosaic: Tensor, known: NormalInverseGamma, variance: Tensor) -> str:
    """Why the mosaic needs no adapting, or cannot be adapted to; empty if it does and can.

    The limit of the scale error is what training noise stays below; texture raises it where there is little noise.
    A profile below the noise map is a sign of noise that varies in space, which no profile describes. A profile
    that grows with the number of blocks used for it comes from texture, not from noise, and cannot be used.
    """
    level = 255 * float(variance.median().sqrt())
    claimed = 255 * float(cfa.mosaic(known.noise_variance).median().sqrt())
    removes_it = level < CLEAR or removed_noise(network, mosaic, known, level / 255) > REMOVED
    if removes_it and scale_error(network, mosaic, known) < 0.035 + 0.9 / level:
        return "the network knows this noise: its noise map scales with the mosaic"
    if level < 0.95 * claimed:
        return "the noise varies in space, where adapting expects it to follow the signal"
    few, many = (
        float(noise_profile.estimate(mosaic, blocks=blocks).variance(mosaic).median().sqrt())
        for blocks in (noise_profile.BLOCKS // 2, 5 * noise_profile.BLOCKS)
    )
    if many > STEADY * few:
        return "the picture has too much texture to tell the level of its noise"
    return ""


def _stein_objective(network: Network, mosaics: Tensor, variance: Tensor, probe: Tensor) -> Tensor:
    """The risk relative to the noise, and the divergence of the noise map from the profile's."""
    risk, posterior = stein_risk(network, mosaics, variance, probe)
    # The divergence of two inverse gammas of equal concentration, divided by it: confidence does not matter.
    ratio = variance / cfa.mosaic(posterior.noise_variance)
    return risk.mean() / variance.mean() + (ratio - 1 - ratio.log()).mean()


def _neighbour_objective(
    network: Network, mosaics: Tensor, patch: int, masked: bool, generator: torch.Generator
) -> Tensor:
    """The paper's L_ft with lambda = 1, as a mean over unmasked values; noise is measured as in training.

    The posterior gets the paper's concentration, whatever `calibration` made of it.
    """
    posterior = whole(network(mosaics))
    alpha = torch.full_like(posterior.concentration, network.config.concentration)
    posterior = replace(posterior, concentration=alpha, rate=posterior.noise_variance * (alpha - 1))
    with torch.no_grad():
        observed = cfa.interpolate(mosaics)
        target = neighbours(observed, patch, generator)
        prior = variational.prior(observed, target, count=1.0, measured=True)
        weight = mask(target, observed, posterior) if masked else torch.ones_like(target)
    return -(weight * variational.elbo(posterior, prior, observed)).sum() / weight.sum().clamp_min(1)


def _middle(size: int) -> slice:
    """A middle part of even length, at most `REGION` photosites, that starts on an even one."""
    start = max(0, size - REGION) // 4 * 2
    return slice(start, start + min(size, REGION) // 2 * 2)


def _multiple(side: int, network: Network) -> int:
    stride = network.config.stride
    return -(-side // stride) * stride


def _probe(windows: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(windows[:, :1].shape, generator=generator).to(windows)


def _windows(mosaic: Tensor, side: int, batch: int, generator: torch.Generator) -> Tensor:
    """Random windows that start on a red photosite; a mosaic smaller than a window is continued by reflection."""
    pieces = []
    for _ in range(batch):
        index = []
        for size in mosaic.shape[-2:]:
            places = max(0, size - side) // 2 + 1
            start = 2 * int(torch.randint(0, places, (), generator=generator))
            index.append(cfa.reflect(torch.arange(start, start + side), size).to(mosaic.device))
        pieces.append(mosaic[:, index[0][:, None], index[1]])
    return torch.stack(pieces)
