"""Networks between others: the mean of the weights of several trainings from one start.

What trainings have learnt adds up, and what chance of their batches left in each averages out. So the mean may be
better than any of them (Wortsman et al. 2022).
"""

from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from debayes.formats import pictures as picture_files
from debayes.network import weights
from debayes.network.blocks import to_channels_last
from debayes.network.network import Network
from debayes.system import files
from debayes.training import validation


def blend_file(
    models: Sequence[str | Path],
    target: Path,
    *,
    shares: Sequence[float] = (),
    judges: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write the mean of models weighed by their shares, alike if none are given; judged by pictures if a folder is.

    The PSNR is that of each and, last, of the blend. It has the last one's recipe, and of calibrated ones not their
    doubt, which was fitted to other errors: calibrate what comes out.
    """
    files.check_target(target)
    for model in models:
        if target.resolve() == weights.locate(model).resolve():
            raise ValueError(f"{target} is one of the models themselves: write the blend somewhere else")
    shares = tuple(shares) or (1 / len(models),) * len(models)
    if len(models) < 2:
        raise ValueError("to blend, give two models or more")
    if len(shares) != len(models):
        raise ValueError(f"give each of the {len(models)} models a share, not {len(shares)} of them")
    if not all(map(isfinite, shares)) or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(f"the shares of a blend must add up to 1, not to {sum(shares):g}")
    read = [weights.read(model) for model in models]
    cards = [file.card for file in read]
    for model, card in zip(models, cards, strict=True):
        if (card.config, card.domain) != (cards[-1].config, cards[-1].domain):
            raise ValueError(f"{model} is not of the shape and domain of {models[-1]}: give networks alike")
    networks = [file.network(calibrated=False) for file in read]
    pictures = picture_files.find(judges) if judges is not None else []
    judge = validation.judge_raw if cards[-1].domain == "raw" else validation.judge
    mean = blend(networks, shares)
    found: list[float] = []
    for network in (*networks, mean) if pictures else ():
        found.append(judge(network, pictures))
        if progress is not None:
            progress(len(found) / (len(networks) + 1))
    parts = ", ".join(f"{share:g} of {model}" for share, model in zip(shares, models, strict=True))
    notes = {name: note for name, note in cards[-1].notes.items() if name != "calibrated"}
    results = {"val_psnr": found[-1]} if found else {}
    weights.save(
        mean, target, weights.Card(cards[-1].config, cards[-1].recipe, results, notes | {"blended": parts})
    )
    return {"models": list(map(str, models)), "shares": shares, "written": str(target), "val_psnr": found}


def blend(networks: Sequence[Network], shares: Sequence[float]) -> Network:
    """A network whose weights are the weighed mean of those of others of its shape."""
    states = [network.state_dict() for network in networks]
    mean = Network(networks[0].config)
    mean.load_state_dict(
        {name: sum(share * state[name] for share, state in zip(shares, states, strict=True)) for name in states[0]}
    )
    return to_channels_last(mean).eval().requires_grad_(False)
