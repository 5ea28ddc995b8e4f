"""The paper's figures that show pictures, as experiments: each takes a `Context` and returns a `Page`."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.evaluation import baselines, metrics, protocol, scenes
from debayes.evaluation.baselines import Baseline
from debayes.formats import pictures
from debayes.imaging import cfa, noise
from debayes.network.network import Network
from debayes.reproduction.context import Context, crop_to_even, missing_note, seeded
from debayes.reproduction.figures import Gallery, Panel
from debayes.reproduction.pages import Page
from debayes.restoration import adaptation, restore
from debayes.system.errors import DebayesError

# Steps of fine-tuning with and without the mask, and the learning rate: ten times the paper's, to show a
# difference.
MASK_STEPS = {"quick": 20, "full": 50}
MASK_RATE = 2e-5

# Details to show, as (set, picture, top, left), and their side in pixels.
DETAILS = (("kodak24", "kodim19.png", 420, 60), ("kodak24", "kodim05.png", 260, 330), ("mcm18", "1.png", 180, 190))
DETAIL = 96

# Classical methods shown beside the models.
CLASSICAL = ("bilinear", "menon", "menon+bm3d")


def finetuning_mask(context: Context) -> Page:
    """Fine-tuning by the paper's recipe with and without its mask."""
    name, truth = next(iter(context.some_pictures("mcm18", 1).items()))
    mosaic = noise.uniform(cfa.mosaic(truth), 10 / 255, generator=seeded(0))
    steps = MASK_STEPS[context.length]
    before, dropped = _dropped_targets(context.network, mosaic)
    panels = {"before": before, **_finetune_with_and_without_mask(context, mosaic, steps)}
    edges = _edges(truth)
    error = {key: 255 * float((value - truth).square()[:, edges].mean().sqrt()) for key, value in panels.items()}
    scores = {key: float(metrics.psnr(value, truth)) for key, value in panels.items()}
    on, off = float(dropped[edges].mean()), float(dropped[~edges].mean())
    y, x = _busiest(truth)
    observed = cfa.interpolate(mosaic[None])[0]
    overview = [
        Panel("input, interpolated", observed),
        Panel("fraction of targets that the mask drops", dropped, 1.0),
        *(Panel(key, value) for key, value in list(panels.items())[:2]),
    ]
    close_up = [
        Panel(f"{key}: detail", value[:, y : y + DETAIL, x : x + DETAIL])
        for key, value in {"truth": truth, **panels}.items()
    ]
    return Page(
        "The mask of fine-tuning",
        "The mask follows the edges; fine-tuning with it keeps them sharper than fine-tuning without it.",
        [
            f"{name}, uniform noise of sigma 10. The paper's recipe for {steps} steps at a learning rate of "
            f"{MASK_RATE:g}, ten times the paper's, to make the difference visible.",
            "Edges are the 10 % of pixels with the steepest luminance.",
        ],
        [
            f"The mask drops {on:.0%} of the targets on edges and {off:.0%} elsewhere.",
            f"Root mean square error on edges, in 1/255: {error['before']:.2f} before, {error['with mask']:.2f} "
            f"with the mask, {error['without mask']:.2f} without it.",
            f"PSNR: {scores['before']:.2f} dB before, {scores['with mask']:.2f} with the mask, "
            f"{scores['without mask']:.2f} without it.",
        ],
        figures={
            "mask": (
                Gallery([overview, close_up]),
                "Top: the input, the mask, the picture before and after fine-tuning with it. Bottom: a detail.",
            )
        },
        data={"edge_error": error, "psnr": scores, "dropped": {"edges": on, "elsewhere": off}},
        missing=context.substitution_note("mcm18", {name: truth}),
    )


def noise_map(context: Context) -> Page:
    """The mean of ten noisy shots is less certain where there is more noise."""
    size, shots = (128 if context.quick else 256), 10
    truth = scenes.cartoon(size)
    draws = torch.rand(1, noise.MAP_DRAWS, generator=seeded(3))
    level = noise.level_maps(draws, size, size, low=0.0, high=40 / 255, varying=1.0)[0]
    taken = torch.stack([noise.gaussian(truth, level, generator=seeded(i)) for i in range(shots)])
    psnr = _local_psnr(taken.mean(0), truth)
    pair = torch.stack((level[0].flatten().log(), psnr.flatten()))
    correlation = float(torch.corrcoef(pair)[0, 1])
    mosaic = noise.gaussian(cfa.mosaic(truth), level / 2, generator=seeded(99))
    estimate = restore(context.network, mosaic).noise_variance.sqrt().mean(0)
    half = level[0] / 2
    median = float((estimate / half.clamp_min(1 / 255) - 1).abs().median())
    context.progress(1.0)
    shots_row = [Panel("the cartoon", truth), Panel("one shot", taken[0]), Panel("mean of ten", taken.mean(0))]
    maps_row = [
        Panel("noise level, σ·255", 255 * level[0]),
        Panel("PSNR of the mean, dB", psnr, float(psnr.max()), float(psnr.min())),
        Panel(f"noise map of {context.model}, half the level", 255 * estimate, float(255 * half.max())),
    ]
    return Page(
        "Noise map and uncertainty",
        "Where the noise level is higher, the mean of ten noisy shots has a lower PSNR: the collected clean "
        "picture is less certain there. This is why the variance of the prior follows the noise.",
        [
            "A cartoon drawn by debayes, ten shots with Gaussian noise whose level varies in space from "
            f"{255 * float(level.min()):.0f} to {255 * float(level.max()):.0f}/255; the PSNR of their mean in "
            "windows of 9x9 pixels.",
            f"In addition to the paper's figure: the noise map that {context.model} estimates from one mosaic with "
            "half that noise.",
        ],
        [
            f"The correlation between the PSNR and the logarithm of the level is {correlation:.2f}.",
            f"The median relative error of the noise map of {context.model} is {median:.0%}.",
        ],
        figures={"maps": (Gallery([shots_row, maps_row]), "Where the noise is high, the mean has a low PSNR.")},
        data={"correlation": correlation, "noise_map_median_error": median},
    )


def details(context: Context) -> Page:
    """Details restored by the models beside those of classical methods and the truth."""
    chosen = _chosen_details(context)
    classical, not_installed = _classical_methods()
    rows = []
    scores: dict[str, dict[str, float]] = {}
    for i, detail in enumerate(chosen):
        row, scores[detail.name] = _compare(context, detail, classical)
        rows.append(row)
        context.progress((i + 1) / len(chosen))
    lead = [max(v[m] for m in context.models) - max(v[m] for m in classical) for v in scores.values()]
    return Page(
        "Details of restored pictures",
        "Wild-JDD removes noise and keeps detail without visible moire or zipper artefacts, where other methods "
        "leave colour moire or smooth too much.",
        [
            "Gaussian noise of sigma 10. Menon is demosaicking without denoising; BM3D after it is given the noise "
            "level; debayes is not. The PSNR is measured on the detail and its surroundings.",
        ],
        [
            f"debayes is {min(lead):.1f} to {max(lead):.1f} dB above the best of the classical methods on these "
            "details."
        ],
        figures={"details": (Gallery(rows), "; ".join(detail.name for detail in chosen))},
        data={"psnr": scores},
        missing=[
            *(
                []
                if context.picture_paths("kodak24")
                else missing_note(["kodak24", "mcm18"], "photographs of scikit-image are shown instead")
            ),
            *not_installed,
        ],
    )


@dataclass(frozen=True)
class _Detail:
    name: str
    picture: Tensor
    top: int
    left: int


def _dropped_targets(network: Network, mosaic: Tensor) -> tuple[Tensor, Tensor]:
    """The picture before fine-tuning, and at each pixel the fraction of eight random targets that the mask
    drops."""
    posterior = restore(network, mosaic)
    observed = cfa.interpolate(mosaic[None])
    targets = [adaptation.neighbours(observed, 3, seeded(i)) for i in range(8)]
    kept = [adaptation.mask(target, observed, posterior.map(lambda t: t[None])) for target in targets]
    return posterior.mean.clamp(0, 1), 1 - torch.cat(kept).mean((0, 1))


def _finetune_with_and_without_mask(context: Context, mosaic: Tensor, steps: int) -> dict[str, Tensor]:
    """The pictures after the last step."""
    results: dict[str, Tensor] = {}
    for i, masked in enumerate((True, False)):
        key = "with mask" if masked else "without mask"

        def watch(step: int, network: Network, key: str = key, done: int = i) -> None:
            results[key] = restore(network.eval(), mosaic).mean.clamp(0, 1)
            network.train()
            context.progress((done + step / steps) / 2)

        adaptation.adapt(
            context.network,
            mosaic,
            steps=steps,
            rate=MASK_RATE,
            target="neighbour",
            masked=masked,
            whole=True,
            watch=watch,
        )
    return results


def _local_psnr(image: Tensor, truth: Tensor) -> Tensor:
    """The PSNR in windows of 9x9 pixels, as a map (h, w)."""
    error = (image - truth).square().mean(0, keepdim=True)[None]
    local = F.avg_pool2d(error, 9, 1, 4, count_include_pad=False)[0, 0]
    return -10 * torch.log10(local.clamp_min(1e-8))


def _chosen_details(context: Context) -> list[_Detail]:
    """The `DETAILS` that are on this machine, otherwise details of two photographs of scikit-image."""
    chosen = []
    for data, name, y, x in DETAILS:
        for folder in context.folders(data):
            if (folder / name).is_file():
                picture = crop_to_even(pictures.read(folder / name), None)
                fits = picture.shape[1] >= y + DETAIL and picture.shape[2] >= x + DETAIL
                chosen.append(_Detail(f"{data} {name}", picture, *((y, x) if fits else _busiest(picture))))
    for key in () if chosen else ("chelsea", "coffee"):
        picture = crop_to_even(scenes.photograph(key), None)
        chosen.append(_Detail(key, picture, *_busiest(picture)))
    return chosen


def _classical_methods() -> tuple[dict[str, Baseline], list[str]]:
    """The classical methods whose libraries are installed, and a note for each of the others."""
    installed: dict[str, Baseline] = {}
    notes = []
    for name in CLASSICAL:
        try:
            installed[name] = baselines.find_baseline(name)
        except DebayesError as error:
            notes.append(f"{error}.")
    return installed, notes


def _compare(
    context: Context, detail: _Detail, classical: Mapping[str, Baseline]
) -> tuple[list[Panel], dict[str, float]]:
    """The detail as restored by each method, and the PSNR of each on the detail and a margin around it."""
    sigma = 10 / 255
    margin = 32 if context.quick else 64
    top, left = max(0, detail.top - margin) // 2 * 2, max(0, detail.left - margin) // 2 * 2
    truth = detail.picture[:, top : detail.top + DETAIL + margin, left : detail.left + DETAIL + margin]
    truth = crop_to_even(truth, None)
    mosaic = protocol.noisy_mosaic(truth, sigma, pattern="RGGB", seed=detail.name)
    results = {key: method(mosaic, "RGGB", sigma).clamp(0, 1) for key, method in classical.items()}
    results |= {key: restore(network, mosaic).mean.clamp(0, 1) for key, network in context.models.items()}
    psnr = {key: float(metrics.psnr(value, truth)) for key, value in results.items()}
    shown = {f"{key}, {psnr[key]:.2f} dB": value for key, value in results.items()} | {"truth": truth}
    y, x = detail.top - top, detail.left - left
    return [Panel(title, value[:, y : y + DETAIL, x : x + DETAIL]) for title, value in shown.items()], psnr


def _busiest(picture: Tensor) -> tuple[int, int]:
    """The even top and left of the detail with the most edges."""
    edges = F.avg_pool2d(_edges(picture).float()[None, None], DETAIL, 8)[0, 0]
    y, x = divmod(int(edges.argmax()), edges.shape[1])
    return 8 * y, 8 * x


def _edges(picture: Tensor) -> Tensor:
    """The 10 % of the pixels with the steepest luminance."""
    grey = picture.mean(0)
    slope = torch.zeros_like(grey)
    slope[1:-1, 1:-1] = (grey[1:-1, 2:] - grey[1:-1, :-2]).abs() + (grey[2:, 1:-1] - grey[:-2, 1:-1]).abs()
    return slope > torch.quantile(slope.flatten()[:: max(1, slope.numel() // 100_000)], 0.9)
