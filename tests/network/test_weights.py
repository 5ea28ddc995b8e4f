"""Weight files: what is saved is what is loaded, and a damaged file is rejected with an error message."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from debayes.network import weights
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.system.errors import DebayesError

CONFIG = Config(widths=(4, 6), blocks=1, bottom_blocks=1, tail=4)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "net.safetensors"
    card = weights.Card(CONFIG, recipe={"steps": 7}, results={"psnr": 33.3}, notes={"data": "none"})
    weights.save(Network(CONFIG), path, card)
    return path


def test_round_trip(saved: Path) -> None:
    """The configuration, the card and the tensors (to float16) come back as they were."""
    torch.manual_seed(0)
    original, loaded, card = Network(CONFIG), weights.load(saved), weights.read_card(saved)
    assert card == weights.Card(CONFIG, {"steps": 7}, {"psnr": 33.3}, {"data": "none"})
    for name, tensor in original.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.half().float())


def test_loading_is_for_inference(saved: Path) -> None:
    """A loaded network is on the CPU, in evaluation mode and without gradients."""
    network = weights.load(saved)
    assert network.device.type == "cpu" and not network.training
    assert not any(p.requires_grad for p in network.parameters())


def test_saving_again_loses_nothing(saved: Path, tmp_path: Path) -> None:
    """A network loaded, saved and loaded again has the same tensors and card, whatever its memory layout."""
    again = tmp_path / "again.safetensors"
    weights.save(weights.load(saved), again, weights.read_card(saved))
    first, second = weights.load(saved).state_dict(), weights.load(again).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert weights.read_card(again) == weights.read_card(saved)


@pytest.mark.parametrize("name", weights.shipped())
def test_shipped_weights_are_whole(name: str) -> None:
    """Each shipped file loads, is at most 16 MiB and names its training data and results."""
    card = weights.read_card(name)
    assert weights.load(name).config == card.config
    assert weights.locate(name).stat().st_size <= 16 * 2**20
    assert card.recipe["data"]["train"] and card.notes["data"] and card.results


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    """The error message lists the names."""
    with pytest.raises(DebayesError, match=r"no model 'wild-x'.*wild-s"):
        weights.load("wild-x")


def test_a_truncated_file(saved: Path) -> None:
    """A file that lacks its end is rejected."""
    saved.write_bytes(saved.read_bytes()[:-100])
    with pytest.raises(DebayesError, match="not a whole safetensors file"):
        weights.load(saved)


def test_a_flipped_bit(saved: Path) -> None:
    """The checksum detects one wrong bit in the tensors."""
    data = bytearray(saved.read_bytes())
    data[-3] ^= 1
    saved.write_bytes(data)
    with pytest.raises(DebayesError, match="damaged"):
        weights.load(saved)


def test_an_empty_file(tmp_path: Path) -> None:
    """An empty file is rejected too."""
    path = tmp_path / "empty.safetensors"
    path.write_bytes(b"")
    with pytest.raises(DebayesError, match="not a whole safetensors file"):
        weights.load(path)


def test_a_pickle_is_not_executed(tmp_path: Path) -> None:
    """A pickle that would create a file when loaded is rejected, and creates nothing."""
    trap, path = tmp_path / "trap", tmp_path / "net.pt"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return (Path.touch, (trap,))

    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DebayesError, match="not a whole safetensors file"):
        weights.load(path)
    assert not trap.exists()


def test_a_foreign_file(tmp_path: Path) -> None:
    """A safetensors file that debayes did not write has a special error message."""
    path = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(3)}, path, {"format": "pt"})
    with pytest.raises(DebayesError, match="not one that debayes wrote"):
        weights.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "99"}, "weight format 99"),
        ({"config": json.dumps({"widths": [4, 8]})}, "do not fit"),
        ({"config": json.dumps({"colour": 1})}, "cannot be read"),
        ({"recipe": "{"}, "cannot be read"),
    ],
)
def test_a_wrong_description(saved: Path, change: dict[str, str], message: str) -> None:
    """A file of a newer format, or one whose description does not fit its tensors, is rejected."""
    from safetensors import safe_open

    with safe_open(saved, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    changed = {**metadata, **change}
    save_file(tensors, saved, {**changed, "sha256": weights.checksum(tensors, changed)})
    with pytest.raises(DebayesError, match=message):
        weights.load(saved)


def test_a_file_is_read_and_hashed_once(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Card and network of one reading; the domain is read from the header alone."""
    hashed: list[int] = []
    right = weights.checksum
    monkeypatch.setattr(weights, "checksum", lambda *given: hashed.append(1) or right(*given))
    weights.check_domain(saved, "srgb")
    assert hashed == []
    file = weights.read(saved)
    assert (file.path, file.card.recipe) == (saved, {"steps": 7})
    assert file.network().config == CONFIG and hashed == [1]


@pytest.mark.parametrize(
    ("trained", "wanted", "message"),
    [("raw", "srgb", "was trained for camera raws: use it with develop"), ("srgb", "raw", "use raw-s or raw-l")],
)
def test_the_wrong_domain(saved: Path, trained: str, wanted: str, message: str) -> None:
    """The message says what the model is for."""
    weights.save(Network(CONFIG), saved, weights.Card(CONFIG, {"noise": {"domain": trained}}))
    weights.check_domain(saved, trained)
    with pytest.raises(DebayesError, match=message):
        weights.check_domain(saved, wanted)


def test_a_changed_description(saved: Path) -> None:
    """The checksum covers the description too: a result cannot be improved with an editor."""
    data = saved.read_bytes()
    saved.write_bytes(data.replace(b"33.3", b"43.3"))
    with pytest.raises(DebayesError, match="damaged"):
        weights.read_card(saved)


def test_saving_to_a_missing_folder(tmp_path: Path) -> None:
    """The error message names the folder, and nothing is written."""
    with pytest.raises(FileNotFoundError, match="does not exist"):
        weights.save(Network(CONFIG), tmp_path / "no" / "net.safetensors", weights.Card(CONFIG))
