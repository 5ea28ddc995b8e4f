"""ICC profiles: what a file says of its colours."""

import struct

import numpy as np

from debayes.imaging import color


def color_profile(primaries: str) -> bytes:
    """The ICC profile of "srgb" or of "p3" (Display P3), both with the curve of sRGB."""
    import imagecodecs

    color.check_space(primaries)
    if primaries == "srgb":
        return imagecodecs.cms_profile("srgb")
    corners = (0.680, 0.320, 1, 0.265, 0.690, 1, 0.150, 0.060, 1)
    codes = np.linspace(0, 1, 1024)
    curve = np.where(codes <= 0.04045, codes / 12.92, ((codes + 0.055) / 1.055) ** 2.4)
    curve = np.round(curve * 65535).astype(np.uint16)
    profile = imagecodecs.cms_profile(
        "rgb", whitepoint=(0.3127, 0.3290, 1.0), primaries=corners, transferfunction=curve
    )
    return _rename(profile, "RGB built-in", "Display P3")


def _rename(profile: bytes, old: str, new: str) -> bytes:
    """An ICC profile with another name, as programs show it; it is no longer than the old one."""
    before, after = (name.encode("utf-16-be") for name in (old, new))
    offset = struct.pack(">I", 28)  # of the text from the start of its block
    renamed = struct.pack(">I", len(after)) + offset + after.ljust(len(before), b"\0")
    return profile.replace(struct.pack(">I", len(before)) + offset + before, renamed)
