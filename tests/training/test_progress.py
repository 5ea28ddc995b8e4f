"""Progress: lines of the log, and the card of a weight file."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from trainings import recipe

from debayes.training.progress import Progress, append_line, cut_log, make_card, peak_memory
from debayes.training.tiles import Credits


def progress(step: int) -> Progress:
    return Progress(step, 0.5, 1.0, 1e-3, 10.0, 90.0, 9.0, 0.1, 33.25, None)


def test_a_log_is_cut_after_a_step(tmp_path: Path) -> None:
    """Later lines and a half line go; without any line left there is no file; later lines can be added and cut."""
    log = tmp_path / "log.jsonl"
    for step in (1, 2, 3):
        append_line(log, progress(step))
    with log.open("a") as file:
        file.write('{"step": 4')
    cut_log(log, 2)
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1, 2]
    cut_log(log, 0)
    assert not log.exists()
    cut_log(log, 0)
    append_line(log, progress(5))
    cut_log(log, 5)
    assert json.loads(log.read_text())["val_psnr"] == 33.25


def test_a_card_credits_the_tiles_that_were_used() -> None:
    """The counts come from the store, whatever the recipe's text says; that text comes after them."""
    plan = recipe()
    plan = replace(plan, data=replace(plan.data, credits="mine"))
    card = make_card(plan, progress(7), Credits(2, 12, {"CC0": 2}), torch.device("cpu"))
    assert card.notes["data"] == "12 tiles of 2 photographs; mine"
    assert json.loads(card.notes["licences"]) == {"CC0": 2}
    assert (card.notes["steps"], card.notes["minutes"], card.notes["device"]) == ("7", "1.5", "cpu")
    assert card.results == {"val_psnr": 33.25} and card.config == plan.network
    assert (
        make_card(recipe(), progress(7), Credits(2, None, {}), torch.device("cpu")).notes["data"] == "2 photographs"
    )


def test_peak_memory_is_that_of_the_process() -> None:
    """In GiB: more than this test needs, less than any machine has."""
    block = torch.ones(2**24)  # 64 MiB
    assert 2**-4 < peak_memory(block.device) < 2**12
