"""debayes as a module like kornia's RawToRgb: Bayer mosaics (*, 1, h, w) in, pictures (*, 3, h, w) out."""

import torch
from kornia.color import CFA
from torch import nn

import debayes

# kornia names a pattern by the second row's second and third photosite, as OpenCV does.
PATTERNS = {CFA.BG: "RGGB", CFA.GB: "GRBG", CFA.RG: "BGGR", CFA.GR: "GBRG"}


class RawToRgb(nn.Module):
    """Demosaics and denoises mosaics of sRGB values in [0, 1], of any size and noise level; without gradients."""

    def __init__(self, cfa: CFA, model: str = "wild-s") -> None:
        super().__init__()
        self.pattern = PATTERNS[cfa]
        self.network = debayes.load(model)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return debayes.restore_image(self.network, image, self.pattern)


if __name__ == "__main__":
    to_rgb = RawToRgb(CFA.RG)
    print(to_rgb(torch.rand(2, 1, 40, 60)).shape)
