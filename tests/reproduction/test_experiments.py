"""The experiments end to end on tiny pictures with a tiny network; interrupted runs continue."""

import json
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
from debayes.reproduction import context, experiments, learning, tables, visual
from debayes.reproduction.experiments import ResultCache
from debayes.restoration import adaptation
from debayes.system.errors import DebayesError

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
    """The sources of images and the targets of links of a page."""

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
    monkeypatch.setitem(visual.MASK_STEPS, "quick", 1)
    monkeypatch.setattr(adaptation, "CHECK_SIDE", 16)
    monkeypatch.setattr(visual, "DETAIL", 24)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries of the baselines
@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_each_writes_a_complete_page(name: str, model: str, root: Path, tmp_path: Path) -> None:
    """HTML, JSON and figures; every link of the page and of the index is a file."""
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
@pytest.mark.parametrize("name", ["finetuning", "visual"])
def test_missing_sets_are_named(name: str, model: str, tmp_path: Path) -> None:
    """Without any data the page says what is missing and where to put it; photographs are used instead."""
    page = experiments.reproduce(name, tmp_path, models=[model], quick=True)
    assert any("Not on this machine" in text and "DEBAYES_DATA" in text for text in page.missing)
    assert "Not on this machine" in (tmp_path / f"{name}.html").read_text()


@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_a_table_without_any_set_is_an_error(name: str, model: str, tmp_path: Path) -> None:
    """It says where each of its sets is had, and nothing is written."""
    for root in (None, tmp_path):
        with pytest.raises(DebayesError, match=f"no set of pictures for {name}: put a folder under") as caught:
            experiments.reproduce(name, tmp_path, models=[model], root=root, quick=True)
        for data in experiments.NEEDED_SETS[name]:
            assert f"{data} {context.SOURCES[data]}" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_all_leaves_out_what_has_no_set(root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other experiments are done, and one warning says where the sets are had."""
    assert experiments.check_request("all") == [n for n in experiments.EXPERIMENTS if "table" not in n]
    assert "left out, there is no set of pictures for table1, table2, table3" in caplog.text
    assert all(f"{name} {source}" in caplog.text for name, source in context.SOURCES.items())
    caplog.clear()
    assert experiments.check_request("all", root=root) == list(experiments.EXPERIMENTS) and not caplog.records


def test_table1_has_the_scores_of_the_protocol(model: str, root: Path, tmp_path: Path) -> None:
    """Its cells are the means of the protocol's scores, and missing sets are listed."""
    rows: list[str] = []
    page = experiments.reproduce("table1", tmp_path, models=[model], root=root, quick=True, report=rows.append)
    assert "wed-cdm, mit-moire, urban100" in page.missing[0] and "; urban100 with Huang" in page.missing[0]
    (table,) = page.tables
    row = next(row for row in table.rows if row[0] == "tiny")
    scores = json.loads((tmp_path / "table1.json").read_text())["scores"]
    found = next(s for s in scores if (s["method"], s["data"], s["sigma"]) == ("tiny", "mcm18", 10))
    mean = sum(Score(**p).psnr for p in found["pictures"]) / 2
    assert row[table.header.index("mcm18 σ=10")].startswith(f"{mean:.2f} / ")
    assert len(rows) == 3 * 2 * 3  # methods, sets, levels
    assert f"tiny, mcm18 σ=10: {row[table.header.index('mcm18 σ=10')]}" in rows


def test_interrupted_runs_continue(model: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is interrupted half-way computes only the rest when it is started again."""
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
    assert len(calls) == 3 * 2 * 2 * 3 + 1  # methods, sets, pictures, levels; and the interrupted call


def test_cache_distinguishes_sources(tmp_path: Path) -> None:
    """Results of other weights are not used; with a damaged file everything is computed again."""
    path = tmp_path / "memory.json"
    assert ResultCache(path, "a").cached("key", lambda: 1) == 1
    assert ResultCache(path, "a").cached("key", lambda: 2) == 1
    assert ResultCache(path, "b").cached("key", lambda: 3) == 3
    assert ResultCache(path, "a").cached("key", lambda: 4) == 1
    path.write_text("{")
    assert ResultCache(path, "a").cached("key", lambda: 5) == 5


def test_unknown_experiments_are_rejected() -> None:
    """The error message lists the experiments."""
    with pytest.raises(DebayesError, match=r"there is no experiment 'table9': use one of table1, .* or all"):
        experiments.check_request("table9")
