"""Every format that pictures are written in: its endings, depths, colour profile and EXIF block."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from debayes.formats import icc, picture_formats, pictures
from debayes.formats.picture_formats import FORMATS
from debayes.system.errors import DebayesError

PICTURE = torch.linspace(0, 1, 3 * 16 * 24).view(3, 16, 24)


@pytest.mark.parametrize("name", FORMATS)
def test_written_and_read(tmp_path: Path, name: str) -> None:
    """With each of its endings and depths, what is written can be read again."""
    for ending in FORMATS[name].endings:
        for bits in FORMATS[name].bits:
            path = tmp_path / f"a{ending.upper()}"
            pictures.write(path, PICTURE, bits=bits)
            difference = (pictures.read(path) - PICTURE).abs().max()
            assert float(difference) <= (0.05 if name == "jpeg" else 0.501 / (2**bits - 1) + 1e-7)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "npy"])
@pytest.mark.parametrize("bits", [8, 16])
def test_the_colour_profile_is_kept(tmp_path: Path, name: str, bits: int) -> None:
    """Rendered pictures say what their colours mean."""
    if bits not in FORMATS[name].bits:
        pytest.skip(f"{name} has no {bits} bits")
    profile, path = icc.color_profile("p3"), tmp_path / f"a{FORMATS[name].endings[0]}"
    pictures.encode(path, pictures.quantise(PICTURE, bits).permute(1, 2, 0).numpy(), icc=profile)
    with Image.open(path) as opened:
        assert opened.info["icc_profile"] == profile


def test_an_ending_names_one_format() -> None:
    endings = [ending for each in FORMATS.values() for ending in each.endings]
    assert len(set(endings)) == len(endings)
    assert all(picture_formats.format_of(ending) is each for each in FORMATS.values() for ending in each.endings)
    with pytest.raises(DebayesError, match=r"^a name without an ending is not one of \.tiff"):
        picture_formats.format_of("")
