"""Mosaic files: restored to pictures, and simulated from pictures, as plain numbers or as camera raws."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from debayes.darkroom.canvas import PixelCanvas
from debayes.darkroom.domain import MosaicSource
from debayes.darkroom.loop import describe_adapted, develop_onto
from debayes.darkroom.map_panels import panels_of_mosaic
from debayes.engine import Engine
from debayes.formats import dng, pictures
from debayes.formats import maps as map_files
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color, noise, virtual_camera
from debayes.network.network import Network
from debayes.restoration import arrays
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.system.log import log

# Below this largest value a mosaic file may hold counts of 12 bits or less in numbers of 16 bits.
DARK = 1 / 16


def restore_file(
    network: Network | Engine,
    source: str | Path,
    target: str | Path,
    *,
    pattern: str | None = None,
    black: float = 0.0,
    white: float | None = None,
    bits: int | None = None,
    maps: bool = False,
    ensemble: bool = False,
    adapt: int = 0,
    tile: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Restore the mosaic of one file into another, and say what was done, and whether the pattern was `assumed`.

    The pattern is the one given, or the one the file records, or RGGB. With `maps`, the noise map and the doubt
    map are written beside the picture, as `develop` writes them. With `adapt`, a copy of the network is first
    adapted to the mosaic in at most so many steps, if its noise is unlike that of the training. The picture is
    kept in the precision of its file: memory stays near 10 bytes a pixel beside the tile.
    """
    source, target = Path(source), Path(target)
    bits = pictures.check_bits(target, bits)
    beside = [path for kind in map_files.KINDS for path in map_files.places(target, kind)] if maps else []
    for path in (target, *beside):
        files.check_target(path)
        if path.resolve() == source.resolve():
            raise DebayesError(f"{path} is the mosaic itself: write the picture somewhere else")
    mosaic = pictures.read_mosaic(source, black=black, white=white)
    known = pattern or mosaic.pattern
    pattern = cfa.check_pattern(known or "RGGB")
    origin = (
        "given" if known is not None and known != mosaic.pattern else "recorded in the file" if known else "assumed"
    )
    log.info("%s: pattern %s (%s)", source, pattern, origin)
    arrays.warn_if_unsuitable(network, mosaic.values, pattern)
    brightest = float(mosaic.values.max())
    if white is None and brightest < DARK:
        warnings.warn(
            f"{source}: its largest value is {100 * brightest:.2g} % of white: if these are a sensor's counts, "
            "give their black and white levels (--black, --white)",
            UserWarning,
            stacklevel=2,
        )
    _, height, width = mosaic.values.shape
    canvas = PixelCanvas(height, width, bits, with_maps=maps)
    adapted = develop_onto(
        canvas,
        network,
        MosaicSource(mosaic.values, pattern),
        ensemble=ensemble,
        adapt=adapt,
        tile=tile,
        progress=progress,
    )
    panels = panels_of_mosaic(canvas.maps) if maps else {}
    for kind, values in canvas.maps.items():
        about, unit = {"source": source.name}, "1 = white, as in the mosaic"
        map_files.write(target, kind, values, panels[kind], about, unit=unit)
    pictures.encode(target, canvas.pixels.numpy())
    return {
        "source": str(source),
        "written": [str(path) for path in (target, *beside)],
        "width": width,
        "height": height,
        "pattern": pattern,
        "assumed": known is None,
        "sigma": 255 * canvas.noise_sum / (3 * height * width),
        **describe_adapted(adapted),
    }


def simulate_file(
    source: Path,
    target: Path,
    *,
    pattern: str = "RGGB",
    kind: str = "gaussian",
    sigma: float = 10.0,
    gain: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write the noisy mosaic of a picture; `sigma` is in units of 1/255, `kind` one of `noise.KINDS`.

    `gain` replaces the default of `noise.poisson_gaussian`.
    """
    if kind not in noise.KINDS:
        raise DebayesError(f"the noise is one of {', '.join(noise.KINDS)}, not {kind!r}")
    noise.check_sigma(sigma)
    if gain is not None and kind != "poisson":
        raise DebayesError(f"only poisson noise has a gain, not {kind}")
    options = {} if gain is None else {"gain": gain}
    picture = pictures.read(source)
    generator = torch.Generator().manual_seed(seed)
    mosaic = noise.KINDS[kind](cfa.mosaic(picture, pattern), sigma / 255, generator=generator, **options)
    record = {"source": source.name, "noise": kind, "sigma": sigma, **options, "seed": seed}
    pictures.write_mosaic(target, mosaic, pattern, record)
    return {"written": str(target), "pattern": pattern, **record}


def simulate_raw(
    source: Path,
    target: Path,
    *,
    iso: float = 1600.0,
    pattern: str = "RGGB",
    stops: float = 0.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Write a DNG as a virtual camera would have shot the picture, and NAME.truth.tiff beside it.

    The truth is the sensor's image without noise, with all three colours at every pixel: linear camera colours
    before white balance, 1 = white, as floats. `stops` is the exposure: at 0 the picture's white is the sensor's.
    """
    body = virtual_camera.Body()
    profile = body.profile(iso)
    light = body.expose(pictures.read(source), stops)
    lit = F.pad(light, (body.masked, 0, body.masked, 0))
    counts = body.shoot(lit, cfa.check_pattern(pattern), iso, generator=torch.Generator().manual_seed(seed))
    clean = light.clamp_max(1)
    shot = Raw(
        (counts[None, body.masked :, body.masked :] - body.black) / (body.white - body.black),
        pattern,
        body.gains,
        body.matrix,
        profile=profile,
        camera="debayes virtual",
        lens="a pinhole",
        iso=iso,
        seconds=1 / 100,
        date="2000:01:01 12:00:00",
    )
    preview = pictures.quantise(color.render(clean, body.gains, body.matrix), 8).permute(1, 2, 0).numpy()
    dng.write_mosaic(
        target,
        counts.numpy().astype(np.uint16),
        shot,
        black=body.black,
        white=body.white,
        masked=body.masked,
        preview=preview,
    )
    truth = target.with_name(f"{target.stem}.truth.tiff")
    record = {"source": source.name, "iso": iso, "stops": stops, "seed": seed}
    pictures.encode(truth, clean.permute(1, 2, 0).numpy(), record=record)
    return {
        "written": [str(target), str(truth)],
        "pattern": pattern,
        **record,
        "gain": profile.gain,
        "floor": profile.floor,
    }
