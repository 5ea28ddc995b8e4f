"""The paper's figures for the eye as experiments: each takes a `Bench` and gives a `Page`."""

import torch
import torch.nn.functional as F
from torch import Tensor

from debayes.evaluation import baselines, metrics, protocol, scenes
from debayes.formats import pictures
from debayes.imaging import cfa, noise
from debayes.network.network import Network
from debayes.reproduction.context import Bench, even, missing, seeded
from debayes.reproduction.figures import Gallery, Panel
from debayes.reproduction.pages import Page
from debayes.restoration import adaptation, restore

# Steps that the mask is tried for.
MASKING = {"quick": 20, "whole": 50}

# Details for the eye, as (set, picture, top, left); and photographs at hand if the sets are not there.
DETAILS = (("kodak24", "kodim19.png", 420, 60), ("kodak24", "kodim05.png", 260, 330), ("mcm18", "1.png", 180, 190))
DETAIL = 96


def mask(bench: Bench) -> Page:
    """Fine-tuning by the paper's recipe with and without its mask."""
    name, truth = next(iter(bench.pictures("mcm18", 1).items()))
    mosaic = noise.uniform(cfa.mosaic(truth), 10 / 255, generator=seeded(0))
    steps, rate, draws = MASKING[bench.length], 2e-5, 8
    posterior = restore(bench.network, mosaic)
    observed = cfa.interpolate(mosaic[None])
    targets = [adaptation.neighbours(observed, 3, seeded(i)) for i in range(draws)]
    kept = [adaptation.mask(target, observed, posterior.map(lambda t: t[None])) for target in targets]
    dropped = 1 - torch.cat(kept).mean((0, 1))
    results: dict[str, Tensor] = {}
    for i, masked in enumerate((True, False)):
        key = "with mask" if masked else "without mask"

        def watch(step: int, network: Network, key: str = key, done: int = i) -> None:
            results[key] = restore(network.eval(), mosaic).mean.clamp(0, 1)
            network.train()
            bench.progress((done + step / steps) / 2)

        adaptation.adapt(
            bench.network,
            mosaic,
            steps=steps,
            rate=rate,
            target="neighbour",
            masked=masked,
            whole=True,
            watch=watch,
        )
    panels = {"before": posterior.mean.clamp(0, 1), **results}
    edges = _edges(truth)
    error = {key: 255 * float((value - truth).square()[:, edges].mean().sqrt()) for key, value in panels.items()}
    scores = {key: float(metrics.psnr(value, truth)) for key, value in panels.items()}
    y, x = _busiest(truth)
    details = {"truth": truth, **panels}
    on, off = float(dropped[edges].mean()), float(dropped[~edges].mean())
    return Page(
        "The mask of fine-tuning",
        "The mask outlines the edges; fine-tuning with it keeps them sharper than fine-tuning without it.",
        [
            f"{name}, uniform noise of sigma 10. The paper's recipe for {steps} steps at a rate of {rate:g}, ten "
            "times its own, so that the difference shows.",
            "Edges are the tenth of the pixels with the steepest luminance.",
        ],
        [
            f"The mask drops {on:.0%} of the targets on edges and {off:.0%} elsewhere.",
            f"Error on edges, root mean square in 1/255: {error['before']:.2f} before, {error['with mask']:.2f} "
            f"with the mask, {error['without mask']:.2f} without it.",
            f"PSNR: {scores['before']:.2f} dB before, {scores['with mask']:.2f} with the mask, "
            f"{scores['without mask']:.2f} without it.",
        ],
        figures={
            "mask": (
                Gallery(
                    [
                        [
                            Panel("input, interpolated", observed[0]),
                            Panel("share of targets that are dropped", dropped, 1.0),
                            *(Panel(key, value) for key, value in list(panels.items())[:2]),
                        ],
                        [
                            Panel(f"{key}: detail", value[:, y : y + DETAIL, x : x + DETAIL])
                            for key, value in details.items()
                        ],
                    ]
                ),
                "Above: the input, the mask, the picture before and after. Below: a detail.",
            )
        },
        data={"edge_error": error, "psnr": scores, "dropped": {"edges": on, "elsewhere": off}},
        missing=bench.replaced("mcm18", {name: truth}),
    )


def noise_map(bench: Bench) -> Page:
    """Ten noisy shots averaged: where there is more noise, their mean is less sure."""
    size, shots, most = (128 if bench.quick else 256), 10, 40 / 255
    truth = scenes.cartoon(size)
    draws = torch.rand(1, noise.MAP_DRAWS, generator=seeded(3))
    level = noise.level_maps(draws, size, size, low=0.0, high=most, varying=1.0)[0]
    taken = torch.stack([noise.gaussian(truth, level, generator=seeded(i)) for i in range(shots)])
    error = (taken.mean(0) - truth).square().mean(0, keepdim=True)[None]
    local = F.avg_pool2d(error, 9, 1, 4, count_include_pad=False)[0, 0]
    psnr = -10 * torch.log10(local.clamp_min(1e-8))
    pair = torch.stack((level[0].flatten().log(), psnr.flatten()))
    agreement = float(torch.corrcoef(pair)[0, 1])
    mosaic = noise.gaussian(cfa.mosaic(truth), level / 2, generator=seeded(99))
    posterior = restore(bench.network, mosaic)
    estimate = posterior.noise_variance.sqrt().mean(0)
    half = level[0] / 2
    median = float((estimate / half.clamp_min(1 / 255) - 1).abs().median())
    bench.progress(1.0)
    return Page(
        "Noise map and uncertainty",
        "Where the noise level is higher, the mean of ten noisy shots has a lower PSNR: the collected clean "
        "picture is less certain there. This is why the prior's variance follows the noise.",
        [
            "A cartoon drawn by debayes, ten shots with Gaussian noise of a level that varies in space from "
            f"{255 * float(level.min()):.0f} to {255 * float(level.max()):.0f}/255; the PSNR of their mean in "
            "windows of 9x9.",
            "Beside it, what the paper's figure does not show: one mosaic with half that noise, and the "
            f"noise map that {bench.model} finds in it.",
        ],
        [
            f"The correlation between the PSNR and the logarithm of the level is {agreement:.2f}.",
            f"The noise map of {bench.model} is off by {median:.0%} in the median.",
        ],
        figures={
            "maps": (
                Gallery(
                    [
                        [
                            Panel("the cartoon", truth),
                            Panel("one shot", taken[0]),
                            Panel("mean of ten", taken.mean(0)),
                        ],
                        [
                            Panel("noise level, σ·255", 255 * level[0]),
                            Panel("PSNR of the mean, dB", psnr, float(psnr.max()), float(psnr.min())),
                            Panel(
                                f"noise map of {bench.model}, half the level",
                                255 * estimate,
                                float(255 * half.max()),
                            ),
                        ],
                    ]
                ),
                "High noise, low PSNR of the mean.",
            )
        },
        data={"correlation": agreement, "noise_map_median_error": median},
    )


def visual(bench: Bench) -> Page:
    """Details of our pictures beside those of classical methods and the truth."""
    chosen = []
    for data, name, y, x in DETAILS:
        for folder in bench.places(data):
            if (folder / name).is_file():
                picture = even(pictures.read(folder / name), None)
                fits = picture.shape[1] >= y + DETAIL and picture.shape[2] >= x + DETAIL
                chosen.append((f"{data} {name}", picture, *((y, x) if fits else _busiest(picture))))
    for key in () if chosen else ("chelsea", "coffee"):
        picture = even(scenes.photograph(key), None)
        chosen.append((key, picture, *_busiest(picture)))
    sigma = 10 / 255
    methods = ("bilinear", "menon", "menon+bm3d")
    lacking: dict[str, str] = {}
    rows, data_ = [], {}
    for i, (name, picture, y, x) in enumerate(chosen):
        margin = 32 if bench.quick else 64
        top, left = max(0, y - margin) // 2 * 2, max(0, x - margin) // 2 * 2
        truth = picture[:, top : y + DETAIL + margin, left : x + DETAIL + margin]
        truth = even(truth, None)
        mosaic = protocol.noisy_mosaic(truth, sigma, pattern="RGGB", seed=name)
        results = {}
        for key in methods:
            try:
                results[key] = baselines.find_baseline(key)(mosaic, "RGGB", sigma).clamp(0, 1)
            except ModuleNotFoundError as error:
                lacking[key] = f"{error}."
        results |= {key: restore(network, mosaic).mean.clamp(0, 1) for key, network in bench.models.items()}
        data_[name] = {key: float(metrics.psnr(value, truth)) for key, value in results.items()}
        panels = {f"{key}, {data_[name][key]:.2f} dB": value for key, value in results.items()} | {"truth": truth}
        y, x = y - top, x - left
        rows.append([Panel(title, value[:, y : y + DETAIL, x : x + DETAIL]) for title, value in panels.items()])
        bench.progress((i + 1) / len(chosen))
    lead = [max(v[m] for m in bench.models) - max(v[m] for m in methods if m in v) for v in data_.values()]
    return Page(
        "Details for the eye",
        "Wild-JDD removes noise and keeps detail without visible moire or zippers, where others leave colour "
        "moire or smooth too much.",
        [
            "Gaussian noise of sigma 10. Menon is demosaicked only; BM3D after it is told the noise level; "
            "debayes is told nothing. The PSNR is that of the surroundings of the detail.",
        ],
        [
            f"debayes leads the best of the classical methods by {min(lead):.1f} to {max(lead):.1f} dB on "
            "these details."
        ],
        figures={"details": (Gallery(rows), "; ".join(name for name, *_ in chosen))},
        data={"psnr": data_},
        missing=[
            *([] if bench.find("kodak24") else missing(["kodak24", "mcm18"], "photographs at hand stand in")),
            *lacking.values(),
        ],
    )


def _busiest(picture: Tensor) -> tuple[int, int]:
    """The even top and left of the detail with the most edges."""
    edges = F.avg_pool2d(_edges(picture).float()[None, None], DETAIL, 8)[0, 0]
    y, x = divmod(int(edges.argmax()), edges.shape[1])
    return 8 * y, 8 * x


def _edges(picture: Tensor) -> Tensor:
    """The tenth of the pixels where the luminance is steepest."""
    grey = picture.mean(0)
    slope = torch.zeros_like(grey)
    slope[1:-1, 1:-1] = (grey[1:-1, 2:] - grey[1:-1, :-2]).abs() + (grey[2:, 1:-1] - grey[:-2, 1:-1]).abs()
    return slope > torch.quantile(slope.flatten()[:: max(1, slope.numel() // 100_000)], 0.9)
