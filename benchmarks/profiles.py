"""Accuracy of blind noise profiles: python benchmarks/profiles.py PICTURE... [--iso 400 1600 6400 25600]

Each picture, or `--together` pictures side by side, becomes a simulated raw. Its noise profile is removed and
estimated from the mosaic and the masked photosites. Prints estimate / truth, and as "its own" the ISO speed whose
photon noise is estimated from the picture without added noise: its fine texture and its camera's noise.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from debayes.darkroom import mosaics
from debayes.darkroom.domain import noise_of
from debayes.formats import pictures
from debayes.formats import raw as raws
from debayes.imaging import cfa, noise_profile, virtual_camera
from debayes.imaging.noise_profile import Profile

BODY = virtual_camera.Body()


def main() -> None:
    """Print a table with a row for each raw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pictures", type=Path, nargs="+", help="pictures with little noise")
    parser.add_argument("--iso", type=float, nargs="+", default=[400, 1600, 6400, 25600], help="ISO speeds")
    parser.add_argument("--together", type=int, default=1, help="pictures per raw, side by side (default: 1)")
    parser.add_argument("--unmasked", action="store_true", help="do not use the masked photosites")
    options = parser.parse_args()
    print("| raw | megapixels | its own |" + "".join(f" ISO {iso:g}: gain, floor |" for iso in options.iso))
    print("|---" * (3 + len(options.iso)) + "|")
    held = [0, 0, 0]
    with tempfile.TemporaryDirectory() as name:
        for first in range(0, len(options.pictures), options.together):
            paths = options.pictures[first : first + options.together]
            parts = [pictures.read(path) for path in paths]
            height = min(part.shape[1] for part in parts)
            picture = torch.cat([part[:, :height] for part in parts], 2)
            pictures.write(Path(name) / "scene.png", picture, bits=8)
            light = cfa.mosaic(BODY.expose(picture))
            own = noise_profile.estimate(light, "RGGB", white=1.0, floor=0.0).gain
            cells = [f"ISO {100 * own / BODY.profile(100).gain:.0f}"]
            for iso in options.iso:
                found = estimate(Path(name), iso, options.unmasked)
                truth = BODY.profile(iso)
                ratios = (found.gain / truth.gain, found.floor / truth.floor, found.gain / (truth.gain + own))
                held = [count + (abs(ratio - 1) <= 0.15) for count, ratio in zip(held, ratios, strict=True)]
                cells.append("{:.2f}, {:.2f}".format(*ratios[:2]))
            label = paths[0].name + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
            print(f"| {label} | {picture[0].numel() / 1e6:.1f} | " + " | ".join(cells) + " |", flush=True)
    total = -(-len(options.pictures) // options.together) * len(options.iso)
    print(f"within 15 %: gain {held[0]} of {total}, floor {held[1]} of {total}; gain beside its own {held[2]}")


def estimate(folder: Path, iso: float, unmasked: bool) -> Profile:
    """The profile estimated from a simulated raw of scene.png."""
    mosaics.simulate_raw(folder / "scene.png", folder / "shot.dng", iso=iso)
    shot = replace(raws.read(folder / "shot.dng"), profile=None)
    return noise_of(replace(shot, floor=None) if unmasked else shot)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(str(error))
