"""The experiments end to end on tiny pictures and a tiny network, and that they can be stopped and gone on with."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from debayes.evaluation import scenes
from debayes.evaluation.protocol import Score
from debayes.formats import pictures
from debayes.network import weights
from debayes.network.config import Config
from debayes.network.network import Network
from debayes.reproduction import experiments, learning, pages, tables, visual
from debayes.reproduction.experiments import Memory
from debayes.reproduction.pages import Page, Table
from debayes.restoration import adaptation

TINY = Config(widths=(8,), blocks=1, bottom_blocks=1, tail=4, tail_blocks=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    weights.save(Network(TINY), path, weights.Card(TINY))
    return str(path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of the five, of two small pictures each, and an MSR set of two pairs."""
    folder = tmp_path_factory.mktemp("data")
    photo = scenes.photograph("chelsea")
    for name in ("kodak24", "mcm18"):
        (folder / "bench" / name).mkdir(parents=True)
        for i in range(2):
            pictures.write(folder / "bench" / name / f"{i}.png", photo[:, 60 * i : 60 * i + 40, 100:141], bits=8)
    for half in ("input", "groundtruth"):
        (folder / "msr" / half).mkdir(parents=True)
    for i in range(2):
        truth = photo[:, :32, 30 * i : 30 * i + 40]
        pictures.write(folder / "msr" / "input" / f"{i}.png", truth.mean(0, keepdim=True), bits=16)
        pictures.write(folder / "msr" / "groundtruth" / f"{i}.png", truth, bits=16)
    return folder


class Links(HTMLParser):
    """What a page shows and leads to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for key, value in attrs if key in ("src", "href") and value]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(learning.OVERFITTING, "quick", (32, 10))
    monkeypatch.setitem(learning.FINETUNING, "quick", (1, 5, 16))
    monkeypatch.setitem(visual.MASKING, "quick", 1)
    monkeypatch.setattr(adaptation, "CHECK_SIDE", 16)
    monkeypatch.setattr(visual, "DETAIL", 24)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries of the baselines
@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_each_writes_a_page_with_all_it_shows(name: str, model: str, root: Path, tmp_path: Path) -> None:
    """HTML, JSON and figures; every link of the page and of the index leads to a file."""
    shares: list[float] = []
    page = experiments.reproduce(name, tmp_path, models=[model], root=root, quick=True, progress=shares.append)
    assert page.finding
    record = json.loads((tmp_path / f"{name}.json").read_text())
    assert record["title"] == page.title and len(record) > 3
    text = (tmp_path / f"{name}.html").read_text()
    links = Links(text).found
    assert f"{name}.json" in links and "index.html" in links
    assert len([link for link in links if link.endswith((".svg", ".png"))]) == 2 * len(page.figures)
    index = (tmp_path / "index.html").read_text()
    assert page.title in index
    for link in links + Links(index).found:
        assert (tmp_path / link).stat().st_size > 0
    assert shares[-1] == pytest.approx(1) and max(shares) <= 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["table1", "table2", "finetuning", "visual"])
def test_missing_sets_are_named(name: str, model: str, tmp_path: Path) -> None:
    """Without any data the page says what is missing and where to put it; photographs at hand stand in."""
    page = experiments.reproduce(name, tmp_path, models=[model], quick=True)
    assert any("Not on this machine" in text and "DEBAYES_DATA" in text for text in page.missing)
    assert "Not on this machine" in (tmp_path / f"{name}.html").read_text()


def test_table1_says_what_evaluate_says(model: str, root: Path, tmp_path: Path) -> None:
    """Its cells are the means of the protocol's scores, and the sets that lack are listed."""
    page = experiments.reproduce("table1", tmp_path, models=[model], root=root, quick=True)
    assert "wed-cdm, mit-moire, urban100" in page.missing[0]
    (table,) = page.tables
    row = next(row for row in table.rows if row[0] == "tiny")
    scores = json.loads((tmp_path / "table1.json").read_text())["scores"]
    found = next(s for s in scores if (s["method"], s["data"], s["sigma"]) == ("tiny", "mcm18", 10))
    mean = sum(Score(**p).psnr for p in found["pictures"]) / 2
    assert row[table.head.index("mcm18 σ=10")].startswith(f"{mean:.2f} / ")


def test_stopped_work_goes_on(model: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails half-way computes only the rest when it is started again."""
    real, calls = tables.protocol.score, []

    def failing(*args: object, **kwargs: object) -> Score:
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(tables.protocol, "score", failing)
    with pytest.raises(KeyboardInterrupt):
        experiments.reproduce("table1", tmp_path, models=[model], root=root, quick=True)
    assert not (tmp_path / "table1.html").exists()
    experiments.reproduce("table1", tmp_path, models=[model], root=root, quick=True)
    assert len(calls) == 3 * 2 * 2 * 3 + 1  # methods, sets, pictures, levels; and the one that failed


def test_memory_knows_what_things_are_made_of(tmp_path: Path) -> None:
    """Another model's results are not taken for this one's; a damaged file is computed again."""
    path = tmp_path / "memory.json"
    assert Memory(path, "a").remember("key", lambda: 1) == 1
    assert Memory(path, "a").remember("key", lambda: 2) == 1
    assert Memory(path, "b").remember("key", lambda: 3) == 3
    assert Memory(path, "a").remember("key", lambda: 4) == 1
    path.write_text("{")
    assert Memory(path, "a").remember("key", lambda: 5) == 5


def test_learning_a_corrupted_picture_passes_through_a_cleaner_one() -> None:
    """A deep image prior: the PSNR against the truth rises from the start for both losses."""
    truth = scenes.cartoon(32)[None]
    observed = truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    for kind in ("ELBO", "MSE"):
        curve = learning._learn(kind, truth, observed, 0.1, 60, lambda share: None)
        assert curve[-1][1] > curve[0][1] + 2


def test_pages_escape_what_they_show() -> None:
    """Names with signs that HTML knows stay text."""
    table = Table("<caption>", ["", "a & b"], [["<row>", "1 < 2"], ["*quoted, published", "3"]])
    text = pages.render(Page("<title>", "claim", ["method"], ["finding"], [table]), "name")
    assert "<row>" not in text and "&lt;row&gt;" in text and "a &amp; b" in text
    assert re.search(r"<tr class=quoted><td>quoted, published</td><td>3</td></tr>", text)


def test_unknown_experiment_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"there is no experiment 'table9': there are table1, .* and all"):
        experiments.check("table9")
    assert experiments.check("all") == list(experiments.EXPERIMENTS)
