"""The paper's figures about learning, as experiments: each takes a `Context` and returns a `Page`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from debayes.evaluation import metrics, scenes
from debayes.imaging import cfa, noise
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.posterior import variational
from debayes.posterior.nig import NormalInverseGamma, whole
from debayes.reproduction.context import Context, seeded
from debayes.reproduction.figures import Curve, Gallery, Panel, Plot
from debayes.reproduction.pages import Page, Table
from debayes.restoration import adaptation, restore

Target = Literal["stein", "neighbour"]


@dataclass(frozen=True)
class NoiseCase:
    """A kind of noise that fine-tuning is measured on."""

    title: str
    sigma: float
    """The noise level in units of 1/255."""
    arguments: Mapping[str, float] = field(default_factory=dict)
    """Further arguments of the function in `noise.KINDS`."""


# By the names of `noise.KINDS`. The paper names the kinds but no levels; the shipped networks restore these badly.
UNSEEN_NOISE = {
    "uniform": NoiseCase("Uniform, σ 30", 30.0),
    "poisson": NoiseCase("Poisson-Gaussian, gain 0.01, σ 2", 2.0, {"gain": 0.01}),
    "brown": NoiseCase("Brown-Gaussian, σ 10", 10.0),
}
TRAINED_NOISE = {"gaussian": NoiseCase("Gaussian, σ 10: as trained", 10.0)}

# Number of pictures that fine-tuning is measured on, its steps, and the side of the windows it sees.
FINETUNING = {"quick": (3, 20, 128), "full": (18, 30, 192)}

# Side of the cartoon and number of steps of the overfitting experiment.
OVERFITTING = {"quick": (96, 500), "full": (128, 2000)}

# How the two recipes of fine-tuning are called in tables and figures.
RECIPES: dict[Target, str] = {"stein": "ours", "neighbour": "paper"}


def finetuning(context: Context) -> Page:
    """PSNR over the steps of fine-tuning, for noise that the network was not trained on."""
    limit, steps, side = FINETUNING[context.length]
    pictures = context.some_pictures("mcm18", limit)
    cases = UNSEEN_NOISE | TRAINED_NOISE
    traces = _finetuning_traces(context, pictures, cases, steps, side)
    panels: dict[str, list[Curve]] = {}
    rows = []
    for kind, case in cases.items():
        for target, recipe in RECIPES.items():
            curve, row = _summarise(traces[kind, target], recipe, case.title, dashed=target != "stein")
            panels.setdefault(case.title, []).append(curve)
            rows.append(row)
    return Page(
        "Fine-tuning on noise that the network was not trained on",
        "Fine-tuning with the corrupted input as a weakly informative prior gains 0.1 to 0.3 dB for uniform, "
        "Poisson-Gaussian and Brown-Gaussian noise on McM, up to about 50 iterations; then PSNR falls. "
        "The paper leaves the choice of when to stop to no-reference quality measures.",
        [
            f"{context.model} is fine-tuned to each picture separately. The paper's recipe: the target is a random "
            "neighbour within 3x3, masked beyond two sigma, lambda 1, learning rate 2e-6. Ours: Stein's unbiased "
            "estimate of the error, with the noise profile estimated from the mosaic, learning rate 1e-5.",
            "The curves include every step, whatever the noise. The blind gain in the table is what a user gets: "
            "no fine-tuning if the noise map scales with the mosaic, otherwise the weights of the last step that "
            "still lowered the estimated risk clearly. The ground truth is not used for either decision.",
        ],
        [
            f"{case.title}: ours {_blind_gain(traces[kind, 'stein']):+.2f} dB; the paper's recipe with the same "
            f"stopping rule {_blind_gain(traces[kind, 'neighbour']):+.2f} dB."
            for kind, case in cases.items()
        ],
        [
            Table(
                f"Gain in dB over {context.model} without fine-tuning, mean over {len(pictures)} pictures",
                [
                    "noise; recipe",
                    "before",
                    "blind gain",
                    "worst picture",
                    "blind stop",
                    "best of the curve",
                    "not fine-tuned",
                ],
                rows,
                context.quick_note,
            )
        ],
        {
            "psnr": (
                Plot(panels, "step", "gain in PSNR, dB"),
                "Mean gain at each step. Dots: the mean blind gain at the mean step where it stops.",
            )
        },
        {"traces": [{"kind": k, "target": t, "pictures": v} for (k, t), v in traces.items()]},
        context.substitution_note("mcm18", pictures),
    )


def overfitting(context: Context) -> Page:
    """A new network fits one corrupted cartoon, with the ELBO and with the mean squared error."""
    (size, steps), sigma = OVERFITTING[context.length], 25 / 255
    truth = scenes.cartoon(size)[None]
    observed = cfa.interpolate(noise.gaussian(cfa.mosaic(truth), sigma, generator=seeded(0)))
    curves: dict[str, list[tuple[int, float]]] = {}
    for i, loss in enumerate(("ELBO", "MSE")):

        def fit(loss: str = loss, done: int = i) -> Any:
            return _fit_picture(
                loss, truth, observed, sigma, steps, lambda share: context.progress((done + share) / 2)
            )

        curves[loss] = context.cached(f"{loss} {size} {steps}", fit)
        context.progress((i + 1) / 2)
    start = float(metrics.psnr(observed.clamp(0, 1), truth)[0])
    peak = {loss: max(curve, key=lambda point: point[1]) for loss, curve in curves.items()}
    end = {loss: curve[-1][1] for loss, curve in curves.items()}
    shown = [Curve(loss, [s for s, _ in c], [p for _, p in c], mark=peak[loss]) for loss, c in curves.items()]
    level = Curve("the target", [0, steps], [start, start], dashed=True)
    return Page(
        "Overfitting one picture: ELBO against MSE",
        "A network that is fitted to one corrupted picture learns the picture before the noise, so its PSNR rises "
        "and then falls. With the ELBO the PSNR fluctuates around that of MSE and has the higher peak.",
        [
            f"The target is a cartoon of {size}x{size} pixels drawn by debayes, mosaicked (RGGB), with Gaussian "
            f"noise of sigma {sigma * 255:g}, and interpolated. A new U-Net with 32, 64 and 128 channels has a "
            "fixed random input, as in a deep image prior; Adam with learning rate 1e-3 fits its output to the "
            "target.",
            "The prior of the ELBO has the target as its mean, lambda 100, alpha 180.5 and the true noise "
            "variance: the ELBO is given the noise level here, MSE is not.",
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
                "The clean cartoon, and the target that the network is fitted to.",
            ),
        },
        data={"curves": curves, "target_psnr": start},
    )


def _finetuning_traces(
    context: Context, pictures: Mapping[str, Tensor], cases: Mapping[str, NoiseCase], steps: int, side: int
) -> dict[tuple[str, Target], list[dict[str, Any]]]:
    """What `_trace` gives for each picture, by kind of noise and target."""
    jobs = [(kind, name, target) for target in RECIPES for kind in cases for name in pictures]
    traces: dict[tuple[str, Target], list[dict[str, Any]]] = {}
    for i, (kind, name, target) in enumerate(jobs):

        def trace(kind: str = kind, name: str = name, target: Target = target) -> Any:
            case = cases[kind]
            mosaic = noise.KINDS[kind](
                cfa.mosaic(pictures[name]),
                case.sigma / 255,
                generator=seeded(sum(name.encode())),
                **case.arguments,
            )
            return _trace(context.network, mosaic, pictures[name], target, steps=steps, side=side)

        result = context.cached(f"{kind} {name} {target} {steps}", trace)
        traces.setdefault((kind, target), []).append(result)
        context.progress((i + 1) / len(jobs))
    return traces


def _trace(
    network: Network, mosaic: Tensor, truth: Tensor, target: Target, *, steps: int, side: int
) -> dict[str, Any]:
    """The PSNR after each check of fine-tuning to one mosaic, and where the blind stopping rule stops."""
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


def _summarise(
    traces: Sequence[dict[str, Any]], recipe: str, title: str, *, dashed: bool
) -> tuple[Curve, list[str]]:
    """The mean gain as a curve, and the row of the table."""
    steps = [step for step, _ in traces[0]["psnr"]]
    mean = [sum(t["psnr"][k][1] - t["psnr"][0][1] for t in traces) / len(traces) for k in range(len(steps))]
    blind = _blind_gain(traces)
    worst = min(t["blind"] - t["psnr"][0][1] for t in traces)
    start = sum(t["psnr"][0][1] for t in traces) / len(traces)
    stop = sum(t["stop"] for t in traces) / len(traces)
    row = [
        f"{title}; {recipe}",
        f"{start:.2f}",
        f"{blind:+.2f}",
        f"{worst:+.2f}",
        f"{stop:.0f}",
        f"{max(mean):+.2f} at {steps[mean.index(max(mean))]}",
        f"{sum(not t['needed'] for t in traces)} of {len(traces)}",
    ]
    return Curve(recipe, steps, mean, dashed=dashed, mark=(stop, blind)), row


def _blind_gain(traces: Sequence[dict[str, Any]]) -> float:
    """The mean gain in PSNR with the blind stopping rule."""
    return sum(float(t["blind"] - t["psnr"][0][1]) for t in traces) / len(traces)


def _fit_picture(
    loss: str, truth: Tensor, observed: Tensor, sigma: float, steps: int, progress: Callable[[float], None]
) -> list[tuple[int, float]]:
    """The PSNR against the truth while a new network with a fixed random input is fitted to the observed
    picture."""
    with torch.random.fork_rng(devices=[]):  # the global seed stays what it is
        torch.default_generator.manual_seed(0)
        network = Network(Config(widths=(32, 64, 128), blocks=1, bottom_blocks=1, tail=32, tail_blocks=0)).train()
    random_input = torch.rand(1, 1, *truth.shape[-2:], generator=seeded(1))
    base = cfa.interpolate(random_input)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    ones = torch.ones_like(observed)
    alpha = network.config.concentration
    prior = NormalInverseGamma(observed, 100 * ones, alpha * ones, alpha * sigma**2 * ones)
    curve = []
    for step in range(steps + 1):
        q = whole(network(random_input))
        # The network adds its output to its interpolated input, which is noise here: replace that by grey.
        q = NormalInverseGamma(q.loc - base + 0.5, q.count, q.concentration, q.rate)
        if step % max(1, steps // 50) == 0:
            curve.append((step, float(metrics.psnr(q.loc.detach().clamp(0, 1), truth)[0])))
            progress(step / steps)
        elbo = -variational.elbo(q, prior, observed).mean()
        objective = elbo if loss == "ELBO" else (q.loc - observed).square().mean()
        adam.zero_grad(set_to_none=True)
        torch.autograd.backward(objective)
        adam.step()
    return curve
