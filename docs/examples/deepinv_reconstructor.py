"""debayes as a deepinv Reconstructor: simulate noisy mosaics with deepinv, restore them, measure the PSNR."""

import deepinv
import torch

import debayes


class Debayes(deepinv.models.Reconstructor):
    """Restores what `deepinv.physics.Demosaicing` measures; any noise level, which it estimates itself."""

    def __init__(self, model: str = "wild-s", device: str = "cpu") -> None:
        super().__init__()
        self.network = debayes.load(model, device=device)

    def forward(self, y: torch.Tensor, physics: deepinv.physics.Demosaicing, **_: object) -> torch.Tensor:
        """Pictures (b, 3, h, w) of measurements (b, 3, h, w), which are 0 where a colour was not measured."""
        cell = physics.mask[0, :, :2, :2].argmax(0)  # which colour is measured at each place of the 2x2 cell
        pattern = "".join("RGB"[colour] for colour in cell.flatten().tolist())
        return debayes.restore_image(self.network, y.sum(1, keepdim=True), pattern)


if __name__ == "__main__":
    rows, columns = torch.meshgrid(torch.arange(96) / 96, torch.arange(128) / 128, indexing="ij")
    truth = torch.stack((rows, columns, 1 - rows * columns))[None]
    physics = deepinv.physics.Demosaicing((96, 128), noise_model=deepinv.physics.GaussianNoise(10 / 255))
    y = physics(truth)
    psnr = deepinv.metric.PSNR()
    print(f"{psnr(Debayes()(y, physics), truth).item():.1f} dB")
