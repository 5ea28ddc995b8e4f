"""ICC profiles, as LittleCMS reads them."""

import pytest
from PIL import Image

from debayes.formats import icc
from debayes.system.errors import DebayesError


def test_unknown_color_spaces_are_rejected() -> None:
    """There are two profiles."""
    with pytest.raises(DebayesError, match="one of srgb, p3, not 'adobe'"):
        icc.color_profile("adobe")


def test_color_profiles_are_named() -> None:
    """LittleCMS, which Pillow has, reads names and a curve that is sRGB's: what programs show and use."""
    from io import BytesIO

    from PIL import ImageCms

    for space, name in (("srgb", "sRGB built-in"), ("p3", "Display P3")):
        profile = ImageCms.ImageCmsProfile(BytesIO(icc.color_profile(space)))
        assert ImageCms.getProfileDescription(profile).strip() == name
    turn = ImageCms.buildTransform(profile, ImageCms.createProfile("sRGB"), "RGB", "RGB")
    grey = Image.new("RGB", (1, 1), (90, 90, 90))
    turned = ImageCms.applyTransform(grey, turn)
    assert turned is not None and turned.getpixel((0, 0)) == (90, 90, 90)
