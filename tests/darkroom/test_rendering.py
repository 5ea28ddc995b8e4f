"""Rendered pictures of counts: the preview, orientation and crop."""

from pathlib import Path

import numpy as np
import pytest
import rawpy
import torch
from PIL import Image, ImageOps
from shots import BODY, photograph, shoot

from debayes.darkroom import loop, rendering
from debayes.formats import pictures
from debayes.formats.raw import Raw
from debayes.imaging import cfa, color
from debayes.imaging.noise_profile import Profile
from debayes.network import weights
from debayes.system.errors import DebayesError


@pytest.mark.parametrize("number", range(1, 9))
def test_upright(number: int) -> None:
    """EXIF's eight orientations, against Pillow's way to turn them."""
    picture = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    source = Raw(torch.zeros(1, 4, 6), "RGGB", BODY.gains, BODY.matrix, orientation=number)
    reference = Image.fromarray(picture)
    reference.getexif()[274] = number
    assert np.array_equal(rendering.upright(picture, source), np.asarray(ImageOps.exif_transpose(reference)))


@pytest.mark.parametrize("step", [1, 2, 3, 6])
def test_preview(step: int) -> None:
    """Of a picture of plain squares, each becomes one pixel, whatever is left over at its borders."""
    squares = np.random.default_rng(0).integers(0, 65536, (40, 50, 3)).astype(np.uint16)
    counts = np.pad(squares.repeat(step, 0).repeat(step, 1), ((0, step - 1), (0, step - 1), (0, 0)))
    raw = shoot(torch.zeros(3, 8, 8), 400)
    linear = torch.from_numpy(squares / 65535).float().permute(2, 0, 1)
    expected = 255 * color.render(linear, raw.gains, raw.matrix, exposure=0.5).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(rendering.preview(counts, raw, stops=0.5, step=step), expected, atol=1)


def test_the_preview_has_at_most_1024_pixels_a_side() -> None:
    """The longer side decides."""
    raw = shoot(torch.zeros(3, 8, 8), 400)
    assert rendering.preview(np.zeros((30, 2500, 3), np.uint16), raw, stops=0).shape == (10, 833, 3)


def test_crop() -> None:
    """A maker's crop is cut out before the picture is turned."""
    source = Raw(torch.zeros(1, 10, 12), "RGGB", BODY.gains, BODY.matrix, crop=(1, 2, 5, 6), orientation=6)
    counted = np.arange(10 * 12 * 3).reshape(10, 12, 3)
    assert np.array_equal(rendering.upright(counted, source), np.rot90(counted[1:6, 2:8], -1))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("space", ["srgb", "p3"])
def test_render(bits: int, space: str) -> None:
    """`color.render` of the linear counts, with the stops and the space asked for, in the bits asked for."""
    counts = np.random.default_rng(1).integers(0, 65536, (70, 20, 3)).astype(np.uint16)
    raw = shoot(torch.zeros(3, 8, 8), 400)
    linear = torch.from_numpy(counts / 65535).float().permute(2, 0, 1)
    expected = color.render(linear, raw.gains, raw.matrix, exposure=-0.7, space=space).permute(1, 2, 0).numpy()
    shown = rendering.render(counts, raw, stops=-0.7, space=space, bits=bits)
    np.testing.assert_allclose(shown / (2**bits - 1), expected, atol=0.6 / (2**bits - 1) + 1e-5)


@pytest.mark.parametrize("ending", rendering.ENDINGS)
def test_save_writes_what_the_ending_says(ending: str, tmp_path: Path) -> None:
    """`Developed.save` writes what `develop_file` writes, up to the rounding of its counts."""
    raw = shoot(photograph(64), 1600)
    developed = loop.develop(weights.load("raw-s"), raw)
    path = tmp_path / f"saved{ending}"
    if ending == ".dng":
        developed.save(path)
        with rawpy.imread(str(path)) as back:
            counts = torch.from_numpy(back.raw_image_visible[..., :3].astype(np.float32)).permute(2, 0, 1)
            linear = counts / back.white_level
        torch.testing.assert_close(linear, developed.picture.clamp(0, 1), rtol=0.01, atol=1e-3)
        return
    developed.save(str(path), exposure=0.5, space="p3", quality=97)
    error = (pictures.read(path) - developed.render(exposure=0.5, space="p3")).abs().mean()
    assert float(error) < (0.02 if ending in (".jpg", ".jpeg") else 1e-3)


def test_save_rejects_other_endings(tmp_path: Path) -> None:
    """A picture is never written in another format than its name says."""
    raw = shoot(photograph(32), 1600)
    maps = torch.zeros(3, 32, 32)
    developed = loop.Developed(raw, Profile(1e-4, 1e-6), maps, maps, maps)
    with pytest.raises(DebayesError, match=r"written as \.dng"):
        developed.save(tmp_path / "saved.gif")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        developed.save(tmp_path / "gone" / "saved.dng")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bits", [8, 16])
def test_render_plain(bits: int) -> None:
    """A grey card without noise is rendered as its counts are, with the same exposure and space."""
    clean = (0.2 / torch.tensor(BODY.gains)).view(3, 1, 1).expand(3, 70, 50).contiguous()
    raw = Raw(cfa.mosaic(clean, "GBRG"), "GBRG", BODY.gains, BODY.matrix)
    counts = (clean.permute(1, 2, 0) * 65535).round().numpy().astype(np.uint16)
    options = {"stops": 0.7, "space": "p3", "bits": bits}
    found, expected = rendering.render_plain(raw, **options), rendering.render(counts, raw, **options)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert int(np.abs(found.astype(int) - expected).max()) <= 2**bits // 256
