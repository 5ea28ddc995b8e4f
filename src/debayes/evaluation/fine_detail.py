"""Drawn scenes of fine detail, neutral or of one hue, on which demosaicking makes false colours.

A scene is a pattern of values from -1 to 1, drawn around a mid grey or a colour. Patterns with sharp edges are
averages over the area of a pixel. Zone plates and weaves are sums of cosines, sampled at the pixels' centres. Each
pixel has a frequency, the size of the pattern's local wave vector in cycles per pixel (0.5 along an axis is the
Nyquist frequency).

Training draws chirps, waves and sums of two waves at random (`training.augmentation.draw_detail`). The scenes here
have fixed frequencies, angles and phases; fans, text and brick walls are not drawn in training at all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, radians, sin

import torch
from jaxtyping import Float
from torch import Tensor

# Side of a zone plate and of every other scene, in pixels; samples per pixel along each axis for sharp edges.
ZONE_SIZE, SIZE = 384, 192
SAMPLES = 8

# The colours of scenes: values of a pattern of contrast c go from (0.5 - c) to (0.5 + c) times these.
COLORS = {
    "neutral": (1.0, 1.0, 1.0),
    "orange": (1.0, 0.62, 0.25),
    "blue": (0.3, 0.55, 1.0),
}

# The word that the text scenes repeat, in letters of 5x7 dots.
_LETTERS = {
    "H": ("#...#", "#...#", "#...#", "#####", "#...#", "#...#", "#...#"),
    "A": (".###.", "#...#", "#...#", "#####", "#...#", "#...#", "#...#"),
    "M": ("#...#", "##.##", "#.#.#", "#.#.#", "#...#", "#...#", "#...#"),
    "B": ("####.", "#...#", "#...#", "####.", "#...#", "#...#", "####."),
    "U": ("#...#", "#...#", "#...#", "#...#", "#...#", "#...#", ".###."),
    "R": ("####.", "#...#", "#...#", "####.", "#.#..", "#..#.", "#...#"),
    "G": (".###.", "#...#", "#....", "#.###", "#...#", "#...#", ".###."),
    "E": ("#####", "#....", "#....", "####.", "#....", "#....", "#####"),
    "F": ("#####", "#....", "#....", "####.", "#....", "#....", "#...."),
    "O": (".###.", "#...#", "#...#", "#...#", "#...#", "#...#", ".###."),
    "N": ("#...#", "##..#", "##..#", "#.#.#", "#..##", "#..##", "#...#"),
    "S": (".####", "#....", "#....", ".###.", "....#", "....#", "####."),
    "T": ("#####", "..#..", "..#..", "..#..", "..#..", "..#..", "..#.."),
    "I": (".###.", "..#..", "..#..", "..#..", "..#..", "..#..", ".###."),
    "V": ("#...#", "#...#", "#...#", "#...#", "#...#", ".#.#.", "..#.."),
    " ": (".....",) * 7,
}
TEXT = "HAMBURGEFONSTIV "

KINDS = ("zone plate", "bars", "weave", "fan", "text", "bricks")


@dataclass(frozen=True)
class Scene:
    """What is drawn."""

    kind: str
    """One of `KINDS`."""
    frequency: float
    """In cycles per pixel: of bars, of the finer grating of a weave, of the rows of bricks, of the dots of text (a
    dot and a gap); the highest of a zone plate on its axes and of a fan."""
    angle: float = 0.0
    """Of the wave vector, in degrees from the horizontal axis; of text and bricks, of their rows."""
    phase: float = 0.0
    """In periods."""
    contrast: float = 0.35
    """Values go from 0.5 - contrast to 0.5 + contrast, before the colour."""
    color: str = "neutral"
    """One of `COLORS`."""

    @property
    def name(self) -> str:
        """What tells it from the other scenes."""
        return f"{self.kind} {self.frequency:g} {self.angle:g} {self.phase:g} {self.contrast:g} {self.color}"


@dataclass(frozen=True)
class Drawing:
    """A scene, drawn."""

    picture: Float[Tensor, "3 h w"]
    """0 = black and 1 = white."""
    frequency: Float[Tensor, "h w"]
    """The frequency at each pixel, in cycles per pixel; 0 where there is no pattern."""


# The zone plate that the documentation shows and compares: 0.5 cycles per pixel at the middle of the edges.
ZONE_PLATE = Scene("zone plate", 0.5)

_FREQUENCIES = (0.15, 0.23, 0.27, 0.33, 0.38, 0.44)
_ANGLES = (19.5, 71.0, 0.0, 41.0, 90.0, 23.0)
_PHASES = (0.13, 0.61, 0.27, 0.85, 0.5, 0.37)
_CONTRASTS = (0.35, 0.12, 0.25, 0.35, 0.3, 0.35)


def _all_scenes() -> tuple[Scene, ...]:
    scenes = [ZONE_PLATE, *(Scene("zone plate", 0.5, color=color) for color in ("orange", "blue"))]
    scenes.append(Scene("zone plate", 0.5, phase=0.5, contrast=0.1))
    for kind in ("bars", "weave", "fan", "text", "bricks"):
        for i, frequency in enumerate(_FREQUENCIES):
            if kind == "fan" and i < 4:
                continue  # a fan has all frequencies
            for color in ("neutral", ("orange", "blue")[i % 2]):
                shift = 3 * (color != "neutral")  # other angles and phases for the coloured scene
                angle, phase = _ANGLES[(i + shift) % 6], _PHASES[(i + shift) % 6]
                if kind in ("text", "bricks"):
                    angle = (angle - 45) / 4
                scenes.append(Scene(kind, frequency, angle, phase, _CONTRASTS[(i + shift) % 6], color))
    return tuple(scenes)


# Every kind over frequency, angle, phase and contrast, neutral and of one hue. The last has (0.31, 0.11) cycles per
# pixel.
SCENES = (*_all_scenes(), Scene("bars", 0.329, 19.54))


def draw(scene: Scene, size: int | None = None) -> Drawing:
    """The picture of a scene, of `size` pixels along each side, and its frequencies."""
    side = size or (ZONE_SIZE if scene.kind == "zone plate" else SIZE)
    pattern, frequency = _PATTERNS[scene.kind](scene, side)
    color = torch.tensor(COLORS[scene.color]).view(3, 1, 1)
    return Drawing(((0.5 + scene.contrast * pattern) * color).float(), frequency.expand(side, side).float())


def _zone_plate(scene: Scene, side: int) -> tuple[Tensor, Tensor]:
    """cos(pi k r²): the frequency is k r, in the direction of the radius."""
    y, x = _grid(side, 1)
    radius = (x * x + y * y).sqrt()
    rate = scene.frequency / (side / 2)
    return (pi * rate * radius.square() + 2 * pi * scene.phase).cos(), rate * radius


def _bars(scene: Scene, side: int) -> tuple[Tensor, Tensor]:
    """Square bars, as wide as the gaps between them."""
    y, x = _grid(side, SAMPLES)
    along = _along(scene, x, y, scene.frequency) + scene.phase
    return _average(torch.where(along % 1 < 0.5, 1.0, -1.0)), torch.tensor(scene.frequency)


def _weave(scene: Scene, side: int) -> tuple[Tensor, Tensor]:
    """The mean of two gratings, nearly at right angles; the second is a little coarser."""
    y, x = _grid(side, 1)
    first = (2 * pi * (_along(scene, x, y, scene.frequency) + scene.phase)).cos()
    second = (2 * pi * (_along(scene, x, y, 0.87 * scene.frequency, turn=83) + 2.3 * scene.phase)).cos()
    return (first + second) / 2, torch.tensor(scene.frequency)


def _fan(scene: Scene, side: int) -> tuple[Tensor, Tensor]:
    """Lines that run together in a point: their frequency is inversely proportional to the distance from it."""
    y, x = _grid(side, SAMPLES)
    down, right = y + side, x + side * 0.05  # half a side above the picture: frequencies fall to a third
    angle, radius = torch.atan2(right, down), (down.square() + right.square()).sqrt()
    nearest = float(radius.min())
    lines = 2 * pi * nearest * scene.frequency  # per turn
    wave = torch.where((lines * (angle + radians(scene.angle)) / (2 * pi) + scene.phase) % 1 < 0.5, 1.0, -1.0)
    return _average(wave), _average(scene.frequency * nearest / radius)


def _text(scene: Scene, side: int) -> tuple[Tensor, Tensor]:
    """Lines of text, dark on light; a dot of a letter is half a period wide."""
    rows = [[row for letter in TEXT for row in (_LETTERS[letter][i] + ".")] for i in range(7)]
    dots = torch.tensor(
        [[dot == "#" for dot in row] for row in [*rows, ["."] * len(rows[0]), ["."] * len(rows[0])]]
    )
    y, x = _grid(side, SAMPLES)
    # moved by a third of the text from line to line
    down = _along(scene, x, y, 2 * scene.frequency, turn=90) + 2 * scene.phase
    right = _along(scene, x, y, 2 * scene.frequency) + 7 * scene.phase + (down // len(dots)) * 31
    ink = dots[(down % len(dots)).long(), (right % dots.shape[1]).long()]
    return _average(torch.where(ink, -1.0, 1.0)), torch.tensor(scene.frequency)


def _bricks(scene: Scene, side: int) -> tuple[Tensor, Tensor]:
    """A brick wall: rows of bricks of four different shades, each moved by half a brick, with light joints."""
    y, x = _grid(side, SAMPLES)
    down = _along(scene, x, y, scene.frequency, turn=90) + scene.phase
    right = _along(scene, x, y, scene.frequency / 2.5) + scene.phase + 0.5 * down.floor()
    joint = (down % 1 < 0.2) | (right % 1 < 0.08)
    shade = -1 + 0.25 * ((3 * down.floor() + 7 * right.floor()) % 4)
    return _average(torch.where(joint, torch.ones_like(shade), shade)), torch.tensor(scene.frequency)


_PATTERNS: dict[str, Callable[[Scene, int], tuple[Tensor, Tensor]]] = {
    "zone plate": _zone_plate,
    "bars": _bars,
    "weave": _weave,
    "fan": _fan,
    "text": _text,
    "bricks": _bricks,
}


def _grid(side: int, samples: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of the samples, in pixels from the centre."""
    place = (torch.arange(side * samples, dtype=torch.float64) + 0.5) / samples - side / 2
    return place[:, None], place[None, :]


def _along(scene: Scene, x: Tensor, y: Tensor, frequency: float, *, turn: float = 0.0) -> Tensor:
    """Periods of a wave of this frequency from the centre on; its direction is the scene's angle, and `turn`."""
    angle = radians(scene.angle + turn)
    return frequency * (cos(angle) * x + sin(angle) * y)


def _average(samples: Tensor) -> Tensor:
    """The mean over the samples of each pixel."""
    side = samples.shape[0] // SAMPLES
    return samples.view(side, SAMPLES, side, SAMPLES).mean((1, 3))
