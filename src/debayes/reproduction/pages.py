"""HTML pages of experiments: the paper's claim, the method, the results, tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from debayes.reproduction.figures import Gallery, Plot


@dataclass(frozen=True)
class Table:
    """A table of text; the first column has the names of the rows. Names that start with * are quoted rows."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Page:
    """The report of an experiment."""

    title: str
    claim: str
    """What the paper says."""
    method: Sequence[str]
    """What was done here, in paragraphs."""
    finding: Sequence[str]
    """The results, in paragraphs."""
    tables: Sequence[Table] = ()
    figures: Mapping[str, tuple[Plot | Gallery, str]] = field(default_factory=dict)
    """Figures and their captions by name; the name is part of the file name."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The numbers behind it, as values that JSON can store."""
    missing: Sequence[str] = ()
    """What could not be done on this machine, and how to make it possible."""


def render(page: Page, name: str, *, note: str = "") -> str:
    """The page as HTML, with links to its figures and to NAME.json in the same folder; the note comes first."""
    parts = [f"<p class=missing>{escape(note)}</p>"] if note else []
    parts += [f"<h2>What the paper says</h2><p class=claim>{escape(page.claim)}</p>"]
    parts += ["<h2>What was done</h2>", *_paragraphs(page.method)]
    parts += ["<h2>Results</h2>", *_paragraphs(page.finding)]
    parts += [f"<p class=missing>{escape(text)}</p>" for text in page.missing]
    parts += [_table(table) for table in page.tables]
    for key, (figure, caption) in page.figures.items():
        source = escape(figure_file(name, key, figure))
        parts.append(
            f'<figure><a href="{source}"><img src="{source}" alt="{escape(caption)}"></a>'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    parts.append(f'<p class=data>The numbers: <a href="{name}.json">{name}.json</a></p>')
    return _document(page.title, "\n".join(parts), back=True)


def render_index(entries: Mapping[str, tuple[str, str]], heading: str) -> str:
    """A page with links to the experiments: their titles and results."""
    items = "\n".join(
        f'<li><a href="{escape(name)}.html">{escape(title)}</a><p>{escape(summary)}</p></li>'
        for name, (title, summary) in entries.items()
    )
    return _document(heading, f"<ol class=index>\n{items}\n</ol>", back=False)


def figure_file(name: str, key: str, figure: Plot | Gallery) -> str:
    """The file name of a figure: SVG for curves, PNG for pictures."""
    return f"{name}-{key}.{'svg' if isinstance(figure, Plot) else 'png'}"


def _paragraphs(texts: Sequence[str]) -> list[str]:
    return [f"<p>{escape(text)}</p>" for text in texts]


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = "\n".join(
        f"<tr{' class=quoted' if row[0].startswith('*') else ''}>"
        + "".join(f"<td>{escape(cell.strip('*'))}</td>" for cell in row)
        + "</tr>"
        for row in table.rows
    )
    note = f"<p class=note>{escape(table.note)}</p>" if table.note else ""
    return (
        f"<div class=scroll><table><caption>{escape(table.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def _document(title: str, body: str, *, back: bool) -> str:
    link = '<p class=back><a href="index.html">all experiments</a></p>' if back else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style></head>\n'
        f"<body><main>{link}<h1>{escape(title)}</h1>\n{body}\n</main></body></html>\n"
    )


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --ink: #666; }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 72rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.1rem; margin-top: 1.8rem; }
.claim { border-left: 4px solid #3b82b6; padding: .2rem 0 .2rem 1rem; }
.missing { background: #e6a70022; border-left: 4px solid #e6a700; padding: .4rem 1rem; }
.scroll { overflow-x: auto; margin-top: 1.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { background: var(--soft); }
.quoted { color: var(--ink); font-style: italic; }
.note, figcaption, .data, .back { color: var(--ink); font-size: .9rem; }
figure { margin: 1.6rem 0; } img { max-width: 100%; background: white; border: 1px solid var(--line); }
.index li { margin-bottom: 1rem; } .index p { margin: .2rem 0; }
"""
