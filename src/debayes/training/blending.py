"""Blending: the mean of the weights of several trainings that started from the same weights.

What the trainings learnt is kept, and the minibatch noise of their last steps cancels. So the mean may be better
than each of them (Wortsman et al. 2022).
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from math import isfinite
from pathlib import Path
from typing import Any

from debayes.formats import pictures as picture_files
from debayes.network import weights
from debayes.network.blocks import to_channels_last
from debayes.network.network import Network
from debayes.system import files
from debayes.system.errors import DebayesError
from debayes.training import validation


def blend_file(
    models: Sequence[str | Path],
    target: Path,
    *,
    shares: Sequence[float] = (),
    val: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Write the mean of models weighted by their shares, or equally, and return what was done.

    `val` is a folder of pictures: "val_psnr" has the PSNR of each model and, last, of the blend. The file has the
    recipe of the last model. Calibrations are not kept, because they were fitted to other errors: calibrate the
    blend.
    """
    files.check_target(target)
    shares = tuple(shares) or (1 / max(1, len(models)),) * len(models)
    read = [weights.read(model) for model in models]
    cards = [file.card for file in read]
    _check(models, cards, target, shares)
    networks = [file.network(calibrated=False) for file in read]
    pictures = picture_files.find(val) if val is not None else []
    mean = blend(networks, shares)
    scores: list[float] = []
    for network in (*networks, mean) if pictures else ():
        scores.append(validation.validate(network, pictures, domain=cards[-1].domain))
        if progress is not None:
            progress(len(scores) / (len(networks) + 1))
    parts = ", ".join(f"{share:g} of {model}" for share, model in zip(shares, models, strict=True))
    notes = {name: note for name, note in cards[-1].notes.items() if name != "calibrated"} | {"blended": parts}
    results = {"val_psnr": scores[-1]} if scores else {}
    weights.save(mean, target, weights.Card(cards[-1].config, cards[-1].recipe, results, notes))
    return {"models": list(map(str, models)), "shares": shares, "written": str(target), "val_psnr": scores}


def _check(
    models: Sequence[str | Path], cards: Sequence[weights.Card], target: Path, shares: Sequence[float]
) -> None:
    """Raise if models cannot be blended."""
    if len(models) < 2:
        raise DebayesError(f"to blend, give two models or more, not {len(models)}")
    for model, card in zip(models, cards, strict=True):
        if target.resolve() == weights.locate(model).resolve():
            raise DebayesError(f"{target} is one of the models: write the blend to another file")
        if (card.config, card.domain) != (cards[-1].config, cards[-1].domain):
            raise DebayesError(
                f"{model} does not have the network and domain of {models[-1]}: give models of one network"
            )
    if len(shares) != len(models):
        raise DebayesError(f"give each of the {len(models)} models a share, not {len(shares)} of them")
    if not all(map(isfinite, shares)) or abs(sum(shares) - 1) > 1e-6:
        raise DebayesError(f"the shares of a blend must add up to 1, not to {sum(shares):g}")


def blend(networks: Sequence[Network], shares: Sequence[float]) -> Network:
    """A network whose weights are the weighted mean of those of others with the same configuration."""
    states = [network.state_dict() for network in networks]
    mean = deepcopy(networks[0])
    mean.load_state_dict(
        {name: sum(share * state[name] for share, state in zip(shares, states, strict=True)) for name in states[0]}
    )
    return to_channels_last(mean).eval().requires_grad_(False)
