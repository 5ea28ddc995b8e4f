"""Mosaic files: made of pictures, as plain numbers or as camera raws, and restored to pictures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from debayes.engine import Engine, prepare
from debayes.formats import dng, pictures
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color, noise, virtual_camera
from debayes.network.network import Network
from debayes.restoration import adaptation, restore_tiles
from debayes.system import files


def restore_file(
    network: Network | Engine,
    source: Path,
    target: Path,
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
    map (standard deviations, 1 = white) are written beside the picture as float TIFFs. With `adapt`, a copy of
    the network is first adapted to the mosaic in at most so many steps, if its noise asks for it. The picture is
    kept in the precision it is written in, so that memory stays near 10 bytes a pixel beside the tile.
    """
    bits = pictures.check_bits(target, bits)
    written = [target] + [target.with_name(f"{target.stem}.{name}.tiff") for name in ("noise", "doubt") if maps]
    for path in written:
        files.check_target(path)
        if path.resolve() == source.resolve():
            raise ValueError(f"{path} is the mosaic itself: write the picture somewhere else")
    mosaic = pictures.read_mosaic(source, black=black, white=white)
    known = pattern or mosaic.pattern
    pattern = cfa.check_pattern(known or "RGGB")
    share = 0.5 if adapt else 0.0  # of the progress that adapting takes

    def report(start: float, part: float) -> Callable[[float], None] | None:
        return None if progress is None else lambda done: progress(start + part * done)

    adapted = None
    if adapt:
        plain = network.network if isinstance(network, Engine) else network
        adapted = adaptation.adapt(plain, mosaic.values, pattern, steps=adapt, progress=report(0, share))
        network = (
            prepare(adapted.network, network.name, threads=network.threads)
            if isinstance(network, Engine)
            else adapted.network
        )
    _, height, width = mosaic.values.shape
    kind = {8: torch.uint8, 16: torch.uint16, 32: torch.float32}[bits]
    picture = torch.empty(height, width, 3, dtype=kind)
    noise_map = torch.empty(height, width, 3) if maps else None
    doubt_map = torch.empty(height, width, 3) if maps else None
    level = 0.0
    tiles = restore_tiles(
        network, mosaic.values, pattern, ensemble=ensemble, tile=tile, progress=report(share, 1 - share)
    )
    for rows, columns, posterior in tiles:
        picture[rows, columns] = pictures.quantise(posterior.mean, bits).permute(1, 2, 0)
        deviation = posterior.noise_variance.sqrt()
        level += float(deviation.sum())
        if noise_map is not None and doubt_map is not None:
            noise_map[rows, columns] = deviation.permute(1, 2, 0)
            doubt_map[rows, columns] = posterior.mean_variance.sqrt().permute(1, 2, 0)
    pictures.encode(target, picture.numpy())
    for path, values in zip(written[1:], (noise_map, doubt_map), strict=False):
        if values is not None:
            pictures.encode(path, values.numpy())
    return {
        "source": str(source),
        "written": [str(path) for path in written],
        "width": width,
        "height": height,
        "pattern": pattern,
        "assumed": known is None,
        "sigma": 255 * level / (3 * height * width),
        **({} if adapted is None else {"adapted": {"steps": adapted.steps, "reason": adapted.reason}}),
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

    `gain` is that of `noise.poisson_gaussian`, if not its own.
    """
    if kind not in noise.KINDS:
        raise ValueError(f"the noise is one of {', '.join(noise.KINDS)}, not {kind!r}")
    noise.check_sigma(sigma)
    if gain is not None and kind != "poisson":
        raise ValueError(f"only poisson noise has a gain, not {kind}")
    more = {} if gain is None else {"gain": gain}
    picture = pictures.read(source)
    generator = torch.Generator().manual_seed(seed)
    mosaic = noise.KINDS[kind](cfa.mosaic(picture, pattern), sigma / 255, generator=generator, **more)
    record = {"source": source.name, "noise": kind, "sigma": sigma, **more, "seed": seed}
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

    The truth is what the sensor would see without noise and with all colours everywhere: linear camera colours
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
