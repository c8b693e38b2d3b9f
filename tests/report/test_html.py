"""The page: that it is one, that it needs nothing else, and that no name breaks it."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from dplcli.outcomes.comparing import VerifyOutcome
from dplcli.report.document import Drawn
from dplcli.report.html import PageGraphs, html_page
from dplcli.report.layout import Group, Text, TextTable, lines_of
from dplcli.report.picture import opened, picture_of
from dplcli.report.tables import percent
from dplcli.report.verify import (
    Bin,
    error_bins,
    error_histograms,
    ranked,
    verification_document,
)
from dplcli.report.view import SCRIPTS, beside_record, view_data
from dplcli.verify import Power
from tests.report.made import HOSTILE, compared, documents, inside, output, result
from tests.report.pages import Page
from tests.support.helpers import with_long
from tests.support.models import ir_of

DOCUMENTS = documents()
ALL = pytest.mark.parametrize("name", with_long({name: (name,) for name in DOCUMENTS}, {"many"}))


@cache
def page_of(name: str) -> str:
    """Return the page of a document, drawn once."""
    return html_page(DOCUMENTS[name])


@pytest.mark.parametrize(
    "name", with_long({name: (name,) for name in DOCUMENTS}, {"many", "hostile"})
)
def test_the_page_is_well_formed_and_stands_alone(name: str) -> None:
    """Every tag is closed in order; nothing is loaded or linked to."""
    page = Page(page_of(name))
    used = Counter(tag for tag, _ in page.tags)

    assert (page.faults, page.open) == ([], [])
    assert not used.keys() & {"img", "link", "iframe", "object", "a", "form", "base"}
    for tag, attributes in page.tags:
        assert not [key for key in attributes if key.startswith("on")], tag
        for key in ("href", "src", "xlink:href"):
            assert (attributes.get(key) or "#").startswith("#")
    assert "url(" not in page_of(name)
    assert "@import" not in page_of(name)


@ALL
def test_the_page_runs_its_own_script_alone(name: str) -> None:
    """The policy names it by its digest; all other scripts are data, which do not run."""
    text = page_of(name)
    page = Page(text)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert page.policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    kinds = [a.get("type") for t, a in page.tags if t == "script"]
    assert kinds == ["application/json"] * (len(kinds) - 1) + [None]


@ALL
def test_identifiers_are_unique_and_found(name: str) -> None:
    """Every reference leads somewhere."""
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
    assert rows == (1 + 100) + (1 + 1)  # outputs and inputs; how errors are spread is drawn
    (data,) = re.findall('class="rows">(.*?)</script>', page_of("many"))
    more = json.loads(data)
    assert len(more) == 300
    assert more[0][-1] == ["ok", "yes"]
    assert "Shown are 100 of 400 rows" in page.text
    assert len(page_of("many")) < 500_000
    assert page.text.index("output_199") < page.text.index("output_10")


def test_no_figures_no_plots() -> None:
    """Where nothing was compared, the page says why, without an empty table."""
    page = Page(page_of("nothing"))

    assert not [tag for tag, _ in page.tags if tag in {"svg", "table"}]
    assert "the candidate lacks 'b'" in page.text


@pytest.mark.long
def test_values_on_the_way_are_drawn_where_there_are_any() -> None:
    """With a row each; those that differ come first."""
    layers = inside([10.0 ** (i - 3) for i in (0, 1, 2, 4, 5)])
    found = VerifyOutcome(labels=("", ""), verification=result([output("y")]), layers=layers)
    page = Page(html_page(verification_document("a against b", found)))

    assert "Values on the way" in page.text
    assert page.text.index("v3") < page.text.index("v4") < page.text.index("v0")
    assert "x 10" in page.text


def test_plots_that_say_nothing_are_left_out() -> None:
    """Where no element differs, there is nothing to draw."""
    same = [output("a", share=0.0, bins=(125,)), output("a", "all", share=0.0, bins=(125,))]
    page = Page(html_page(compared("a against b", result(same))))

    assert not [tag for tag, _ in page.tags if tag == "svg"]
    assert "0 %" in page.text


def drawn(*labels: str) -> PageGraphs:
    """Return the graphs of a page: the same small model under each name."""
    model = ir_of("m (float[2] x) => (float[2] y) { y = Relu(x) }")
    pictures = [picture_of(model, label) for label in labels]
    records = [view_data(picture, opened(picture)).as_page() for picture in pictures]
    beside = beside_record(pictures, Drawn())
    return PageGraphs(records, beside, ["<b>.onnx: 30,000 nodes are too many"])


@pytest.mark.parametrize("labels", [("a.onnx",), ("a.onnx", "</script><b>")])
def test_graphs_are_a_part_of_the_page(labels: tuple[str, ...]) -> None:
    """Their scripts and their style are there once, and the policy lets no others run."""
    page = Page(html_page(DOCUMENTS["two"], drawn(*labels)))
    run = [script for attributes, script in page.scripts if "type" not in attributes]
    data = [script for attributes, script in page.scripts if attributes.get("class") == "graph"]

    assert (page.faults, page.open) == ([], [])
    assert [json.loads(text)["title"] for text in data] == list(labels)
    assert len(run) == len(set(run)) == len(SCRIPTS) + 1
    assert page.policy.count("'sha256-") == len(run)
    assert all(digest(script) in page.policy for script in run)
    assert "<b>.onnx: 30,000 nodes are too many" in page.text
    assert [tag for tag, _ in page.tags if tag in {"b", "iframe"}] == []


def test_a_page_without_graphs_has_no_scripts_for_them() -> None:
    """What says why there is none is there."""
    page = Page(html_page(DOCUMENTS["two"], PageGraphs(notes=["a.onnx: no model"])))

    assert len([1 for attributes, _ in page.scripts if "type" not in attributes]) == 1
    assert page.policy.count("'sha256-") == 1
    assert "a.onnx: no model" in page.text


def digest(script: str) -> str:
    """Return what a policy says of a script."""
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()


def test_missed_mutants_are_seen() -> None:
    """All of them stand below the verdict, as warnings."""
    missed = tuple(f"Relu 'r{n}' left out" for n in range(9))
    weak = result([output("y")], power=Power(3, 12, missed, "model"))
    text = html_page(compared("a against b", weak))

    assert text.count('<p class="warn">  missed: Relu') == 9


def test_what_a_terminal_shows_in_part_is_listed_in_full() -> None:
    """Tables keep their columns, sentences their colours."""
    table = TextTable(
        *("rule", "n", "why"),
        right=("n",),
        prose=("why",),
        rows=[("r", "3", "so")] * 150,
        title="Refused",
    )
    part = Group(Text("all", style="yellow"), table, Text())
    made = replace(DOCUMENTS["two"], said=part)
    page, text = Page(html_page(made)), html_page(made)

    assert '<p class="warn">all</p>' in text
    assert '<th scope="col" class="number">n</th><th scope="col" class="text">why</th>' in text
    assert 'class="name "><code>r</code>' in text
    assert "Refused" in page.text
    assert len(json.loads(re.findall('class="rows">(.*?)</script>', text)[0])) == 50


@pytest.mark.parametrize(
    ("share", "text"),
    [
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
def test_shares_are_written_for_people(share: float, text: str) -> None:
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


def test_the_order_of_outputs_is_the_same_on_every_processor() -> None:
    """Last digits, which differ from one to the next, have no say in it; the second digit has."""
    shares = {"first": 150_642.1, "second": 150_642.3, "worst": 160_000.0, "good": 0.5}

    found = [item.name for item in ranked([output(name, "all", s) for name, s in shares.items()])]

    assert found == ["worst", "first", "second", "good"]


def test_nothing_but_a_page_needs_templates() -> None:
    """The other forms are written without them, and without waiting for it."""
    program = (
        "import sys; from dplcli.report import ci, tables;"
        "import dplcli.cli.jobs; sys.exit('jinja2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=200).returncode == 0  # noqa: S603


@pytest.mark.parametrize(
    ("is_idle", "ok", "mood"),
    [(True, True, ""), (False, True, "yes"), (True, False, "no")],
)
def test_nothing_that_matches_is_no_success(*, is_idle: bool, ok: bool, mood: str) -> None:
    """It is neither green nor red, unless somebody expected a match."""
    document = replace(DOCUMENTS["two"], is_idle=is_idle, ok=ok)
    verdict = re.search('<header class="verdict (.*)">', html_page(document))

    assert verdict is not None
    assert verdict[1] == mood
