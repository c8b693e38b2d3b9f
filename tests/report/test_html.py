"""The page: that it is one, that it needs nothing else, and that no name breaks it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest

from dplcli.report import html
from dplcli.report.document import LayerError
from dplcli.report.html import html_page
from dplcli.report.layout import Group, lines_of
from dplcli.report.tables import Bin, error_bins, error_histograms, percent
from tests.helpers import with_long
from tests.report.made import HOSTILE, documents, output

DOCUMENTS = documents()
ALL = pytest.mark.parametrize("name", with_long({name: (name,) for name in DOCUMENTS}, {"many"}))
VOID = {"meta", "use"}


@cache
def page_of(name: str) -> str:
    """Return the page of a document, drawn once."""
    return html_page(DOCUMENTS[name])


class Page(HTMLParser):
    """What is in a page: tags with their attributes, and whether they nest."""

    def __init__(self, text: str) -> None:
        """Read *text*."""
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself, as those of SVG do."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Compare with what is open."""
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data: str) -> None:
        """Collect the text."""
        self.text += data


@pytest.mark.parametrize(
    "name", with_long({name: (name,) for name in DOCUMENTS}, {"many", "hostile"})
)
def test_the_page_is_well_formed_and_stands_alone(name: str) -> None:
    """Every tag is closed in order; nothing is loaded, run or linked to."""
    page = Page(page_of(name))
    used = Counter(tag for tag, _ in page.tags)

    assert (page.faults, page.open) == ([], [])
    assert not used.keys() & {"script", "img", "link", "iframe", "object", "a", "form", "base"}
    for tag, attributes in page.tags:
        assert not [key for key in attributes if key.startswith("on")], tag
        for key in ("href", "src", "xlink:href"):
            assert (attributes.get(key) or "#").startswith("#")
    assert "url(" not in re.sub(r"url\(#", "", page_of(name))
    assert "@import" not in page_of(name)


@ALL
def test_identifiers_are_unique_and_found(name: str) -> None:
    """Plots keep to their own identifiers, and every reference leads somewhere."""
    page = Page(page_of(name))
    ids = [a["id"] for _, a in page.tags if "id" in a]
    references = set(re.findall(r'(?:href="|url\()#([^")]+)', page_of(name)))
    references |= {a["aria-labelledby"] or "" for _, a in page.tags if "aria-labelledby" in a}

    assert len(ids) == len(set(ids))
    assert references <= set(ids)


@ALL
def test_the_page_can_be_read_without_eyes_and_on_a_phone(name: str) -> None:
    """Plots have a text, tables a caption and heads with a scope, the page a language."""
    page = Page(page_of(name))
    heads = [a for tag, a in page.tags if tag == "th"]

    assert all(a.get("role") == "img" and a.get("aria-label") for t, a in page.tags if t == "svg")
    assert all(a.get("scope") in {"col", "row"} for a in heads)
    used = Counter(tag for tag, _ in page.tags)
    assert used["caption"] == used["table"]
    assert ("html", {"lang": "en"}) in page.tags
    assert 'content="width=device-width' in page_of(name)
    assert "prefers-color-scheme: dark" in page_of(name)


@pytest.mark.long
@ALL
def test_the_same_report_is_the_same_page(name: str) -> None:
    """No time, no random identifier."""
    assert html_page(DOCUMENTS[name]) == page_of(name)
    page_of(name).encode("utf-8")


def test_hostile_names_are_shown_as_text() -> None:
    """They are there, visible, and nothing of them is markup or a template."""
    page = Page(page_of("hostile"))

    assert HOSTILE[0] in page.text
    assert "\\x00\\x1b[31mred" in page.text
    assert "{{ 7*7 }}{% raw %}" in page.text
    assert "&amp;" in page.text
    assert ' id="q" #010101 font: 12px x' in page.text
    assert not set(page.text) & set("\x00\x1b\u202e\r")
    assert max(map(len, re.findall("x+", page.text))) < 2_000


@pytest.mark.long
def test_many_outputs_are_drawn_in_part_and_listed_whole() -> None:
    """The worst are drawn, and the page says so; the table has all 400 rows."""
    page = Page(page_of("many"))
    rows = sum(tag == "tr" for tag, _ in page.tags)

    assert "Drawn are 40 of 200 outputs" in page.text
    assert sum(tag == "svg" for tag, _ in page.tags) == 1 + 24
    assert rows == 1 + 400 + 1 + 1
    assert len(page_of("many")) < 500_000
    assert page.text.index("output_199") < page.text.index("output_10")


def test_no_figures_no_plots() -> None:
    """Where nothing was compared, the page says why, without an empty table."""
    page = Page(page_of("nothing"))

    assert not [tag for tag, _ in page.tags if tag in {"svg", "table"}]
    assert "the candidate lacks 'b'" in page.text


@pytest.mark.long
def test_values_on_the_way_are_drawn_where_there_are_any() -> None:
    """In order of computation, with a row each."""
    layers = tuple(LayerError(f"v{i}", "Relu", 10.0 ** (i - 3), ok=i < 3) for i in range(5))
    page = Page(html_page(replace(DOCUMENTS["two"], layers=layers)))

    assert "Values on the way" in page.text
    assert page.text.index("v0") < page.text.index("v4")
    assert "10 times" in page.text


def test_plots_do_not_depend_on_settings_of_the_user() -> None:
    """A matplotlibrc changes nothing, and nothing is left changed."""
    import matplotlib as mpl  # noqa: PLC0415

    series = [("disable", error_bins(output("y")))]
    plain = html.histogram_plot(series, "h", "t")
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red"}):
        assert html.histogram_plot(series, "h", "t") == plain
        assert mpl.rcParams["font.size"] == 30


def test_without_matplotlib_a_page_has_no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else is there, and the command that brings them."""
    layers = (LayerError("v0", "Relu", 0.5, ok=True),)
    document = replace(DOCUMENTS["two"], layers=layers)
    whole = Page(html_page(document))
    monkeypatch.setattr(html, "find_spec", lambda _name: None)
    page = Page(html_page(document))

    assert (page.faults, page.open) == ([], [])
    assert "svg" in {tag for tag, _ in whole.tags}
    assert "svg" not in {tag for tag, _ in page.tags}
    assert "pip install 'dplcli[report]'" in page.text
    assert "pip install" not in whole.text
    tables = [
        [tag for tag, _ in each.tags if tag in {"table", "tr", "td"}] for each in (page, whole)
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, ""),
        (0.0, "0 %"),
        (0.00042, "0.042 %"),
        (0.999, "99.9 %"),
        (1.0, "100 %"),
        (4.2, "420 %"),
        (25.0, "25 times"),
        (2.5e7, "2.5e+07 times"),
        (float("inf"), "infinite"),
    ],
)
def test_shares_are_written_for_people(share: float | None, text: str) -> None:
    """Percent while that can be read, then multiples."""
    assert percent(share) == text


def test_bins_are_named_by_what_they_hold() -> None:
    """Each holds twice as many distances as the one before."""
    labels = [item.label for item in error_bins(output("y", bins=(1,) * 20))]

    assert labels[:8] == ["0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64+"]
    assert labels[10:12] == ["512+", "1,024+"]
    assert labels[-1] == "3e5+"


def test_a_terminal_shows_how_errors_are_spread() -> None:
    """The worst first, a bar per bin; one element shows beside a million."""
    outputs = [output("good", bins=(10, 1)), output("bad", "all", 7, bins=(1_000_000, 0, 1))]
    lines = [line.plain for line in lines_of(Group(*error_histograms(outputs)), 100)]
    rows = [line.split() for line in lines if " good " in f" {line} "]

    assert rows == [["good", "disable", "█▃", "1"]]
    bad = next(line for line in lines if line.startswith("bad"))
    assert "█ ▁" in bad
    assert lines.index(bad) == 2
    assert error_histograms([output("same", bins=(10,))]) == []
    assert all(item == Bin(item.label, item.count) for item in error_bins(outputs[0]))


def test_nothing_but_a_page_needs_matplotlib() -> None:
    """The other forms are written without it, and without waiting for it."""
    program = (
        "import sys; from dplcli.report import ci, tables;"
        "import dplcli.cli.verify; sys.exit('matplotlib' in sys.modules or 'jinja2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603
