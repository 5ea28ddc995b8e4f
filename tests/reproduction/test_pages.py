"""Pages: what they contain, in order; escaping; the names of files."""

import re

from debayes.reproduction import pages
from debayes.reproduction.figures import Gallery, Plot
from debayes.reproduction.pages import Page, Table


def test_pages_contain_everything_in_order() -> None:
    """Note, claim, method, results, missing sets, tables, figures, the link to the data."""
    plot = Plot({}, "x", "y")
    page = Page(
        "Title",
        "Claim.",
        ["First.", "Second."],
        ["Result."],
        [Table("Caption", ["", "a"], [["row", "1"]], "Table note.")],
        {"curves": (plot, "The curves."), "pictures": (Gallery([]), "The pictures.")},
        missing=["Missing set."],
    )
    text = pages.render(page, "name", note="Quick.")
    expected = [
        "<title>Title</title>",
        "Quick.",
        "Claim.",
        "First.",
        "Second.",
        "Result.",
        "Missing set.",
        "Caption",
        "<td>row</td><td>1</td>",
        "Table note.",
        "name-curves.svg",
        "The curves.",
        "name-pictures.png",
        "The pictures.",
        'href="name.json"',
    ]
    positions = [text.index(part) for part in expected]
    assert positions == sorted(positions)
    assert "Quick." not in pages.render(page, "name")


def test_special_characters_are_escaped() -> None:
    """In titles, tables and the index; the asterisk of a quoted row becomes a class."""
    table = Table("<caption>", ["", "a & b"], [["<row>", "1 < 2"], ["*quoted, published", "3"]])
    text = pages.render(Page("<title>", "claim", ["method"], ["finding"], [table]), "name")
    assert "<row>" not in text and "&lt;row&gt;" in text and "a &amp; b" in text
    assert re.search(r"<tr class=quoted><td>quoted, published</td><td>3</td></tr>", text)
    index = pages.render_index({"name": ("<title>", "a & b")}, "<heading>")
    assert "&lt;title&gt;" in index and "a &amp; b" in index and "<heading>" not in index


def test_the_index_links_to_each_page() -> None:
    """In the given order."""
    index = pages.render_index({"b": ("B", ""), "a": ("A", "")}, "All")
    assert re.findall(r'href="([^"]+)"', index) == ["b.html", "a.html"]
