"""Virtual cameras: simulated raws of pictures, which the raw networks are trained on.

The picture's linear colours become those of a camera with its own filters, exposed, with photon and read noise,
rounded to the bits of an analog-to-digital converter with a small error of its black level, and clipped at white.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from debayes.imaging import cfa, color, noise
from debayes.imaging.draws import Columns
from debayes.imaging.noise_profile import Profile
from debayes.system.errors import DebayesError

# The uniform random numbers of a shot.
SHOT = Columns(filters=6, white_balance=2, exposure=1, noise=1, read_noise=1, bits=1, black=3)


@dataclass(frozen=True)
class Shot:
    """A batch of simulated raws; linear values, 0 = black and 1 = white, before white balance."""

    clean: Float[Tensor, "b 3 h w"]
    """The signal of a sensor without noise that measures all colours everywhere; clipped at white."""
    mosaic: Float[Tensor, "b 1 h w"]
    """The noisy mosaic, RGGB."""
    gains: Float[Tensor, "b 3 1 1"]
    """White balance: factors that make neutral colours equal; the smallest of the three is 1."""
    gain: Float[Tensor, "b 1 1 1"]
    """What one electron adds to the signal: the noise variance is gain * signal + floor."""
    floor: Float[Tensor, "b 1 1 1"]
    """The variance of the read noise."""


def shoot(
    picture: Float[Tensor, "b 3 h w"],
    draws: Float[Tensor, "b 15"],
    normal: Float[Tensor, "b 2 h w"],
    *,
    high: float,
    low: float = 0.0,
    unusual: Bool[Tensor, " b"] | None = None,
) -> Shot:
    """Raws of sRGB pictures, each by a camera of its own; a pure function of uniform (`SHOT`) and normal draws.

    `high` is the strongest photon noise, stated as its standard deviation at white after a square root: half the
    square root of the gain. With `low` 0 the strength is the square of a uniform number times `high`, otherwise it
    is log-uniform from `low` to `high`. Shots that are `unusual` have white balances from 0.4 to 4 times that of
    green and exposures from -4 to 1 stops; the others have those of daylight to tungsten, and -2 to 1 stops.
    """
    b = len(picture)
    balance = SHOT("white_balance", draws)
    exposure, level, read, bits, black = (
        SHOT.as_images(name, draws) for name in ("exposure", "noise", "read_noise", "bits", "black")
    )
    # filters: each colour takes up to 40 % of its light from either of the two others
    mix = torch.zeros(b, 3, 3, device=picture.device)
    mix[:, *_OTHERS] = 0.4 * SHOT("filters", draws)
    mix = mix + torch.diag_embed(1 - mix.sum(2))
    linear = torch.einsum("bij,bjhw->bihw", mix, color.decode_srgb(picture))
    gains = torch.stack((1.2 + 1.6 * balance[:, 0], torch.ones_like(balance[:, 0]), 1.1 + 1.5 * balance[:, 1]), 1)
    stops = 3 * exposure - 2
    if unusual is not None:
        wide = torch.ones_like(gains)
        wide[:, ::2] = 0.4 * 10**balance
        gains = torch.where(unusual[:, None], wide / wide.amin(1, keepdim=True), gains)
        stops = torch.where(unusual[:, None, None, None], 5 * exposure - 4, stops)
    gains = gains[:, :, None, None]
    light = linear * 2**stops / gains
    # photon noise: the square of a normal number around the root of the electrons has the mean of a Poisson number,
    # its variance but for an eighth of an electron, and a similar skewness
    strength = low * (high / low) ** level if low else high * level.square()
    gain = (2 * strength).square().clamp_min(1e-7)
    floor = (gain * 0.5 * 8**read).clamp_max(0.04).square()  # half an electron to four
    signal = cfa.mosaic(light)
    electrons = signal / gain
    photons = (electrons.sqrt() + 0.5 * normal[:, :1]).square() - 0.25
    # below a quarter of an electron the square would be too noisy
    photons = torch.where(electrons < 0.25, electrons + electrons.sqrt() * normal[:, :1], photons)
    noisy = gain * photons + floor.sqrt() * normal[:, 1:]
    steps = 2 ** (10 + 4 * bits)  # of a converter of 10 to 14 bits
    wrong = cfa.mosaic((2 * black - 1).expand_as(light)) / steps
    mosaic = ((noisy + wrong) * steps).round() / steps
    # clipped last, as in a camera: a saturated photosite has no noise
    return Shot(light.clamp_max(1), mosaic.clamp_max(1), gains, gain, floor)


# Rows and columns beside the diagonal of a 3x3 matrix.
_OTHERS = ([0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1])


@dataclass(frozen=True)
class Body:
    """The camera of `debayes simulate`, with the numbers of a good sensor of 24 megapixels."""

    filters: tuple[tuple[float, float, float], ...] = ((0.75, 0.2, 0.05), (0.15, 0.7, 0.15), (0.05, 0.25, 0.7))
    """Linear sRGB to the camera's colours: each takes some light from the others; white stays white."""
    gains: tuple[float, float, float] = (2.0, 1.0, 1.6)
    """White balance: red and blue get that much less light than green."""
    electrons: float = 30_000.0
    """The full-well capacity, which is white at ISO 100."""
    read_noise: float = 3.0
    """Its standard deviation in electrons."""
    black: int = 2048
    """The count of black."""
    white: int = 16383
    """The count of white."""
    masked: int = 16
    """Rows above and columns left of the picture that no light reaches; whole cells of the pattern."""

    @property
    def matrix(self) -> Float[Tensor, "3 3"]:
        """XYZ to the camera's colours, before white balance."""
        filters = torch.tensor(self.filters, dtype=torch.float64)
        gains = torch.tensor(self.gains, dtype=torch.float64)
        to_camera: Tensor = filters @ color.SRGB_FROM_XYZ / gains[:, None]
        return to_camera.float()

    def profile(self, iso: float) -> Profile:
        """The noise at an ISO speed: photon noise, read noise, and rounding to counts."""
        if not iso > 0:
            raise DebayesError(f"an ISO speed is above 0, not {iso:g}")
        gain = iso / 100 / self.electrons
        step = 1 / (self.white - self.black)
        return Profile(gain, (self.read_noise * gain) ** 2 + step**2 / 12)

    def expose(self, picture: Float[Tensor, "3 h w"], stops: float = 0.0) -> Float[Tensor, "3 h w"]:
        """The light of an sRGB picture on the sensor, in its colours; above 1 it saturates."""
        linear = torch.einsum("ij,jhw->ihw", torch.tensor(self.filters), color.decode_srgb(picture))
        return linear * 2**stops / torch.tensor(self.gains).view(3, 1, 1)

    def shoot(
        self, light: Float[Tensor, "3 h w"], pattern: cfa.Pattern | str, iso: float, *, generator: torch.Generator
    ) -> Int[Tensor, "h w"]:
        """The counts of one noisy shot of the light that `expose` gave."""
        gain = self.profile(iso).gain
        signal = cfa.mosaic(light, pattern)
        noisy = noise.poisson_gaussian(signal, self.read_noise * gain, gain=gain, generator=generator)[0]
        counts = (self.black + noisy * (self.white - self.black)).round().clamp(0, self.white)
        return counts.int()
