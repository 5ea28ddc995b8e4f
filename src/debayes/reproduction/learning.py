"""The paper's figures of learning as experiments: each takes a `Bench` and gives a `Page`."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from debayes.evaluation import metrics, scenes
from debayes.imaging import cfa, noise
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma
from debayes.reproduction.context import Bench, seeded
from debayes.reproduction.figures import Curve, Gallery, Panel, Plot
from debayes.reproduction.pages import Page, Table
from debayes.restoration import adaptation, restore

# What fine-tuning is tried on, by the names of `noise.KINDS`: level in units of 1/255, further arguments, title.
# The paper names the kinds and no level; these are noises that the shipped networks restore badly.
STRANGE: dict[str, tuple[float, dict[str, float], str]] = {
    "uniform": (30.0, {}, "Uniform, σ 30"),
    "poisson": (2.0, {"gain": 0.01}, "Poisson-Gaussian, gain 0.01, σ 2"),
    "brown": (10.0, {}, "Brown-Gaussian, σ 10"),
}
FAMILIAR: dict[str, tuple[float, dict[str, float], str]] = {"gaussian": (10.0, {}, "Gaussian, σ 10: as trained")}

# Pictures that fine-tuning is tried on, steps, and the side of the windows they see.
FINETUNING = {"quick": (3, 20, 128), "whole": (18, 30, 192)}

# Side of the cartoon and number of steps that overfitting is watched for.
OVERFITTING = {"quick": (96, 500), "whole": (128, 2000)}


def finetuning(bench: Bench) -> Page:
    """PSNR over the steps of adapting, for noises that the network was not trained on."""
    limit, steps, side = FINETUNING[bench.length]
    pictures = bench.pictures("mcm18", limit)
    kinds = STRANGE | FAMILIAR
    targets: tuple[Literal["stein", "neighbour"], ...] = ("stein", "neighbour")
    jobs = [(kind, name, target) for target in targets for kind in kinds for name in pictures]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for i, (kind, name, target) in enumerate(jobs):

        def trace(kind: str = kind, name: str = name, target: Literal["stein", "neighbour"] = target) -> Any:
            return _trace(bench.network, pictures[name], kind, name, target, steps, side)

        found.setdefault((kind, target), []).append(bench.remember(f"{kind} {name} {target} {steps}", trace))
        bench.progress((i + 1) / len(jobs))
    names = {"stein": "ours", "neighbour": "paper"}
    panels: dict[str, list[Curve]] = {}
    rows = []
    for kind, (_, _, title) in kinds.items():
        for target in targets:
            traces = found[kind, target]
            at = [step for step, _ in traces[0]["psnr"]]
            mean = [sum(t["psnr"][k][1] - t["psnr"][0][1] for t in traces) / len(traces) for k in range(len(at))]
            blind = _blind(traces)
            worst = min(t["blind"] - t["psnr"][0][1] for t in traces)
            start = sum(t["psnr"][0][1] for t in traces) / len(traces)
            stop = sum(t["stop"] for t in traces) / len(traces)
            panels.setdefault(title, []).append(
                Curve(names[target], at, mean, dashed=target != "stein", mark=(stop, blind))
            )
            rows.append(
                [
                    f"{title}; {names[target]}",
                    f"{start:.2f}",
                    f"{blind:+.2f}",
                    f"{worst:+.2f}",
                    f"{stop:.0f}",
                    f"{max(mean):+.2f} at {at[mean.index(max(mean))]}",
                    f"{sum(not t['needed'] for t in traces)} of {len(traces)}",
                ]
            )
    return Page(
        "Fine-tuning on noise that the network was not trained on",
        "Fine-tuning with the corrupted input as a weakly informative prior gains 0.1 to 0.3 dB for uniform, "
        "Poisson-Gaussian and Brown-Gaussian noise on McM, up to about 50 iterations; after that it falls. "
        "When to stop is left to no-reference quality measures.",
        [
            f"{bench.model}, adapted to each picture alone. The paper's recipe: a random neighbour within 3x3 "
            "as target, masked beyond two sigma, lambda 1, rate 2e-6. Ours: Stein's unbiased estimate of the "
            "error, with the noise profile found in the mosaic, rate 1e-5.",
            "The curves make every step whatever the noise. The table's blind gain is what a user gets: no "
            "adapting if the noise map scales with the mosaic, otherwise the last step that lowered the "
            "estimated risk by a good share of the whole. Neither sees the truth.",
        ],
        [
            f"{kinds[kind][2]}: ours {_blind(found[kind, 'stein']):+.2f} dB, blind; the paper's recipe, blind "
            f"by the same means, {_blind(found[kind, 'neighbour']):+.2f}."
            for kind in kinds
        ],
        [
            Table(
                f"Gain in dB over {bench.model} as it is, mean over {len(pictures)} pictures",
                [
                    "noise; recipe",
                    "before",
                    "blind gain",
                    "worst picture",
                    "blind stop",
                    "best of the curve",
                    "left alone",
                ],
                rows,
                bench.note,
            )
        ],
        {
            "psnr": (
                Plot(panels, "step", "gain in PSNR, dB"),
                "Mean gain over all steps; dots: what a blind user gets, at the mean of the steps where it stops.",
            )
        },
        {"traces": [{"kind": k, "target": t, "pictures": v} for (k, t), v in found.items()]},
        bench.replaced("mcm18", pictures),
    )


def overfitting(bench: Bench) -> Page:
    """A fresh network learns one corrupted cartoon, with the ELBO and with the mean squared error."""
    (size, steps), sigma = OVERFITTING[bench.length], 25 / 255
    truth = scenes.cartoon(size)[None]
    observed = cfa.interpolate(noise.gaussian(cfa.mosaic(truth), sigma, generator=seeded(0)))
    curves: dict[str, list[tuple[int, float]]] = {}
    for i, kind in enumerate(("ELBO", "MSE")):

        def learn(kind: str = kind, done: int = i) -> Any:
            return _learn(kind, truth, observed, sigma, steps, lambda share: bench.progress((done + share) / 2))

        curves[kind] = bench.remember(f"{kind} {size} {steps}", learn)
        bench.progress((i + 1) / 2)
    start = float(metrics.psnr(observed.clamp(0, 1), truth)[0])
    peak = {kind: max(curve, key=lambda point: point[1]) for kind, curve in curves.items()}
    end = {kind: curve[-1][1] for kind, curve in curves.items()}
    shown = [Curve(kind, [s for s, _ in c], [p for _, p in c], mark=peak[kind]) for kind, c in curves.items()]
    level = Curve("what it learns from", [0, steps], [start, start], dashed=True)
    return Page(
        "Overfitting one picture: ELBO against MSE",
        "A network that learns a corrupted picture from nothing learns the picture before the noise, so the "
        "PSNR rises and then falls. With the ELBO it fluctuates around that of MSE and has the higher peak.",
        [
            f"A cartoon of {size}x{size} drawn by debayes, RGGB, Gaussian noise of sigma {sigma * 255:g}, "
            "interpolated: this is the target. A fresh U-Net of 32, 64 and 128 channels sees a fixed random "
            "input, as with a deep image prior, and Adam at 1e-3 fits it.",
            "The ELBO's prior has the corrupted picture as its mean, lambda 100 and the true noise variance, "
            "alpha 180.5.",
        ],
        [
            f"Peaks: ELBO {peak['ELBO'][1]:.2f} dB at step {peak['ELBO'][0]}, MSE {peak['MSE'][1]:.2f} dB at step "
            f"{peak['MSE'][0]}; the target itself has {start:.2f} dB.",
            f"At the end, step {steps}: ELBO {end['ELBO']:.2f} dB, MSE {end['MSE']:.2f} dB.",
        ],
        figures={
            "curves": (Plot({"PSNR against the clean cartoon": [*shown, level]}, "step", "dB"), "Dots: the peaks."),
            "pictures": (
                Gallery([[Panel("the cartoon", truth[0]), Panel(f"the target, {start:.1f} dB", observed[0])]]),
                "What is to be found, and what is learnt from.",
            ),
        },
        data={"curves": curves, "target_psnr": start},
    )


def _trace(
    network: Network,
    truth: Tensor,
    kind: str,
    seed: str,
    target: Literal["stein", "neighbour"],
    steps: int,
    side: int,
) -> dict[str, Any]:
    """The PSNR at every look while adapting to one noisy mosaic, and where a blind user would have stopped."""
    level, more, _ = (STRANGE | FAMILIAR)[kind]
    generator = seeded(sum(seed.encode()))
    mosaic = noise.KINDS[kind](cfa.mosaic(truth), level / 255, generator=generator, **more)
    psnr: list[tuple[int, float]] = []

    def watch(step: int, student: Network) -> None:
        mean = restore(student.eval(), mosaic).mean.clamp(0, 1)
        student.train()
        psnr.append((step, float(metrics.psnr(mean, truth))))

    adapted = adaptation.adapt(network, mosaic, steps=steps, target=target, side=side, whole=True, watch=watch)
    return {
        "psnr": psnr,
        "risk": adapted.curve,
        "stop": adapted.steps,
        "blind": dict(psnr)[adapted.steps],
        "needed": adapted.needed,
    }


def _blind(traces: Sequence[dict[str, Any]]) -> float:
    """The mean gain at the blind stop."""
    return sum(float(t["blind"] - t["psnr"][0][1]) for t in traces) / len(traces)


def _learn(
    kind: str, truth: Tensor, observed: Tensor, sigma: float, steps: int, progress: Callable[[float], None]
) -> list[tuple[int, float]]:
    """The PSNR against the truth while a fresh network fits the observed picture from a fixed random input."""
    torch.manual_seed(0)
    network = Network(Config(widths=(32, 64, 128), blocks=1, bottom_blocks=1, tail=32, tail_blocks=0)).train()
    given = torch.rand(1, 1, *truth.shape[-2:], generator=seeded(1))
    base = cfa.interpolate(given)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    ones = torch.ones_like(observed)
    alpha = network.config.concentration
    prior = NormalInverseGamma(observed, 100 * ones, alpha * ones, alpha * sigma**2 * ones)
    curve = []
    for step in range(steps + 1):
        q: NormalInverseGamma = network(given)
        # the network's output is a residual over its interpolated input, which here is noise: grey takes its place
        q = NormalInverseGamma(q.loc - base + 0.5, q.count, q.concentration, q.rate)
        if step % max(1, steps // 50) == 0:
            curve.append((step, float(metrics.psnr(q.loc.detach().clamp(0, 1), truth)[0])))
            progress(step / steps)
        elbo = -variational.elbo(q, prior, observed).mean()
        objective = elbo if kind == "ELBO" else (q.loc - observed).square().mean()
        adam.zero_grad(set_to_none=True)
        torch.autograd.backward(objective)
        adam.step()
    return curve
