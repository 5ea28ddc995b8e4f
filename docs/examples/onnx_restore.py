"""Restore a mosaic with ONNX Runtime and NumPy alone: no PyTorch, no debayes.

    debayes export wild-s -o wild-s.onnx        # once, where debayes is installed
    python onnx_restore.py wild-s.onnx mosaic.npy RGGB picture.npz

mosaic.npy holds floats (height, width), 0 = black and 1 = white, any size from 2x2, any Bayer pattern. picture.npz
gets `image`, `noise` and `doubt`, each (3, height, width): the picture and two standard deviations, of the noise
and of the true value.
"""

import json
import sys
from collections.abc import Iterator

import numpy as np
import onnxruntime


def restore(
    session: onnxruntime.InferenceSession, mosaic: np.ndarray, pattern: str = "RGGB", tile: int = 1024
) -> dict[str, np.ndarray]:
    """The image and its maps, of a mosaic (height, width) of photosites."""
    facts = session.get_modelmeta().custom_metadata_map
    stride, radius, border = (int(facts[key]) for key in ("stride", "receptive_radius", "border"))
    height, width = mosaic.shape
    # rows and columns to add so that the pattern begins with red
    down, right = {"RGGB": (0, 0), "GRBG": (0, 1), "GBRG": (1, 0), "BGGR": (1, 1)}[pattern]
    top, left = border + down, border + right
    bottom = border + -(top + height + border) % stride
    after = border + -(left + width + border) % stride
    # np.pad's "reflect" is 2 1 0 1 2, which keeps the colours of the pattern
    padded = np.pad(mosaic.astype(np.float32), ((top, bottom), (left, after)), mode="reflect")
    result = {name: np.empty((3, height, width), np.float32) for name in ("image", "noise", "doubt")}
    for rows, see_rows in windows(top, height, padded.shape[0], tile, radius, stride):
        for columns, see_columns in windows(left, width, padded.shape[1], tile, radius, stride):
            window = np.ascontiguousarray(padded[None, None, see_rows, see_columns])
            inside = (slice(None), shift(rows, see_rows.start), shift(columns, see_columns.start))
            outputs = session.run(["loc", "count", "concentration", "rate"], {"mosaic": window})
            loc, count, concentration, rate = (output[0][inside] for output in outputs)
            variance = rate / (concentration - 1)
            place = (slice(None), shift(rows, top), shift(columns, left))
            result["image"][place] = loc
            result["noise"][place] = np.sqrt(variance)
            result["doubt"][place] = np.sqrt(variance / count)
    return result


def windows(
    start: int, size: int, padded: int, tile: int, radius: int, stride: int
) -> Iterator[tuple[slice, slice]]:
    """Tiles along one axis of the padded mosaic, each with what the network must see for it."""
    for first in range(start, start + size, tile):
        last = min(first + tile, start + size)
        low = max(0, first - radius) // stride * stride
        high = min(padded, -(-(last + radius) // stride) * stride)
        yield slice(first, last), slice(low, high)


def shift(piece: slice, origin: int) -> slice:
    """A piece counted from another origin."""
    return slice(piece.start - origin, piece.stop - origin)


def main() -> None:
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    model, source, pattern, target = sys.argv[1:]
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    if facts["domain"] != "srgb":
        sys.exit(f"{model} is for camera raws, whose values need the transform that docs/export.md describes")
    if "rate" not in {output.name for output in session.get_outputs()}:
        sys.exit(f"{model} has the image alone, without its maps: export it without --image")
    result = restore(session, np.load(source), pattern.upper())
    np.savez(target, **result)
    means = {name: round(float(values.mean()), 5) for name, values in result.items()}
    print(json.dumps(means))


if __name__ == "__main__":
    main()
