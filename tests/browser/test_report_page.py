"""The page of ``--html`` in a real browser: its tables are searched, sorted, grouped and saved."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dplcli.report.document import Chapter
from dplcli.report.html import html_page
from dplcli.report.layout import TextTable
from tests.calling import exit_code
from tests.report.made import HOSTILE, documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.browser.conftest import Open

SAMPLES = Path(__file__).parents[2] / "sample_models"
COLUMNS = ("rule", "scope", "FLOP", "reason")
ROWS = [
    (f"t.rule_{n % 3}", "main", f"{n / 10:.1f} {'kM'[n % 2]}FLOP" if n else "", f"because {n}")
    for n in range(450)
]


@pytest.fixture
def page(tmp_path: Path, show: Open) -> Any:  # noqa: ANN401  # Playwright's
    """Open a page with a chapter of 450 rows."""
    return show(written(tmp_path, ROWS))


def written(folder: Path, rows: Sequence[Sequence[str]]) -> Path:
    """Write a page with one chapter."""
    table = TextTable(*COLUMNS, right=("FLOP",), prose=("reason",), rows=rows)
    document = replace(documents()["two"], chapters=lambda: [Chapter("Refused", table)])
    path = folder / "page.html"
    path.write_text(html_page(document), encoding="utf-8")
    return path


def cells(page: Any, column: int) -> list[str]:  # noqa: ANN401  # Playwright's
    """Return what the rows of the chapter's table say in one column, as far as they are made."""
    rows = page.locator("section:has(h2:text-is('Refused')) tbody tr:not([aria-hidden])")
    return [row.locator("th, td").nth(column).inner_text() for row in rows.all()]


def tool(page: Any, what: str) -> Any:  # noqa: ANN401  # Playwright's
    """Return a tool above the chapter's table."""
    return page.locator(f"section:has(h2:text-is('Refused')) .tools {what}")


def test_rows_are_made_as_far_as_somebody_scrolls(page: Any) -> None:  # noqa: ANN401
    """All are there in the end, in the order of the report."""
    assert tool(page, "output").inner_text() == "450 rows"
    made = len(cells(page, 0))
    assert made < 450
    box = page.locator("[aria-label='Refused']")
    for _ in range(4):
        box.evaluate("box => box.scrollTo(0, box.scrollHeight)")
        page.wait_for_timeout(100)
    assert cells(page, 3) == [reason for *_, reason in ROWS]


def test_search(page: Any) -> None:  # noqa: ANN401
    """Every word has to be there; a column can be named."""
    search = tool(page, "input")
    search.fill("because reason:44")
    expected = [reason for *_, reason in ROWS if "44" in reason]
    assert cells(page, 3) == expected
    assert tool(page, "output").inner_text() == f"{len(expected)} of 450 rows"
    search.fill("rule:rule_1 reason:144")
    assert cells(page, 3) == []
    search.fill("RULE:rule_0 reason:144")
    assert cells(page, 3) == ["because 144"]


def test_numbers_are_sorted_by_what_they_say(page: Any) -> None:  # noqa: ANN401
    """Units count, and what is unknown comes last in both directions."""
    tool(page, "input").fill("reason:7")
    head = page.get_by_role("columnheader", name="FLOP")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    found = cells(page, 2)
    scale = {"kFLOP": 1e3, "MFLOP": 1e6}
    numbers = [float(text.split()[0]) * scale[text.split()[1]] for text in found]
    assert numbers == sorted(numbers)
    assert len(numbers) == sum("7" in reason for *_, reason in ROWS)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    tool(page, "input").fill("")
    assert cells(page, 2)[0] == "44.9 MFLOP"
    tool(page, "input").fill("reason:0 rule:rule_0")
    assert cells(page, 2)[-1] == ""


def test_groups_open_and_close(page: Any) -> None:  # noqa: ANN401
    """A large table begins with its groups closed; only what has few values is a group."""
    select = tool(page, "select")
    assert select.locator("option").all_inner_texts() == ["not grouped", "by rule"]
    select.select_option("by rule")
    heads = page.locator("tr.group button")
    assert heads.all_inner_texts() == [f"▸ t.rule_{n} 150" for n in range(3)]
    heads.nth(1).click()
    assert page.locator("tr.group button[aria-expanded=true]").count() == 1
    assert cells(page, 0)[2] == "t.rule_1"


def test_a_table_is_saved_as_csv(page: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """What is searched for, with quotes where they are needed."""
    tool(page, "input").fill("reason:449")
    with page.expect_download() as waited:
        tool(page, "button").click()
    waited.value.save_as(tmp_path / "rows.csv")
    text = (tmp_path / "rows.csv").read_bytes().decode()
    assert waited.value.suggested_filename == "refused.csv"
    assert text == "rule,scope,FLOP,reason\r\nt.rule_2,main,44.9 MFLOP,because 449\r\n"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_hostile_names_are_text(tmp_path: Path, show: Open, width: int, scheme: str) -> None:
    """In rows that the script makes, too; nothing is wider than the page."""
    rows = [(name, "main", "1", name) for name in HOSTILE] * 20
    page = show(written(tmp_path, rows), width=width, scheme=scheme)
    tool(page, "input").fill("alert(1)")
    assert "<script>alert(1)</script>" in cells(page, 0)
    assert page.locator("main script:not([type]), main img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_graph_of_a_result_is_a_part_of_its_page(
    tmp_path: Path, show: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It draws, is searched, and leaves the address of the report alone."""
    copy = tmp_path / "resnet.onnx"
    shutil.copy(SAMPLES / "resnet18_bn.onnx", copy)
    command = ("partition", copy, "-p", "conv_relu", "-o", tmp_path / "p.onnx")
    assert exit_code(monkeypatch, [*command, "--html", tmp_path / "p.html", "-q"]) == 0
    page = show(tmp_path / "p.html")
    frame = page.frame_locator("iframe[title='Graph of p.onnx']")
    frame.locator("body[data-ready]").wait_for()
    frame.locator("#search").fill("MaxPool")
    frame.locator("#found [role=option]").first.click()
    assert "MaxPool" in frame.locator("#details").inner_text()
    assert page.url == (tmp_path / "p.html").as_uri()


def test_a_reader_scrolls_past_a_graph(
    tmp_path: Path, show: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel moves the report, and the picture only once somebody has pressed it."""
    command = ("diff", SAMPLES / "residual_block.onnx", SAMPLES / "residual_block.onnx")
    assert exit_code(monkeypatch, [*command, "--html", tmp_path / "d.html", "-q"]) == 0
    page = show(tmp_path / "d.html", height=500)
    frame = page.frame_locator("iframe").first
    frame.locator("body[data-ready]").wait_for()
    scene = frame.locator("#scene")
    before = scene.get_attribute("transform")
    frame.locator("#stage").hover()
    start = page.evaluate("scrollY")
    page.mouse.wheel(0, 60)
    page.wait_for_function("start => scrollY > start", arg=start)
    assert scene.get_attribute("transform") == before
    frame.locator("#stage").click(position={"x": 5, "y": 5})
    start = page.evaluate("scrollY")
    page.mouse.wheel(0, 60)
    page.wait_for_timeout(200)
    assert scene.get_attribute("transform") != before
    assert page.evaluate("scrollY") == start


def test_what_changed_is_seen_in_both_graphs(
    tmp_path: Path, show: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed in one, added in the other; a closed group has the mark of what it holds."""
    rules = tmp_path / "rules.yaml"
    pattern, becomes = "MaxPool(Relu(x), **attrs)", "Relu(MaxPool(x, **attrs))"
    rules.write_text(
        f"dpl: 1\nrewrites: [{{name: r, pattern: '{pattern}', replacement: '{becomes}'}}]\n"
    )
    first, second = SAMPLES / "resnet18_bn.onnx", tmp_path / "b.onnx"
    rewrite = ("rewrite", first, "-p", rules, "-o", second, "--html", tmp_path / "r.html", "-q")
    assert exit_code(monkeypatch, rewrite) == 0
    page = show(tmp_path / "r.html")
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for()
    assert frame.locator(".item.mark-added").count() >= 1
    assert "added" in frame.locator("#legend").inner_text()

    diff = ("diff", first, second, "--html", tmp_path / "d.html", "-q")
    assert exit_code(monkeypatch, diff) == 1
    page = show(tmp_path / "d.html")
    for number in (0, 1):
        frame = page.frame_locator("iframe").nth(number)
        frame.locator("body[data-ready]").wait_for()
        found = frame.locator(".item[class*=mark-]")
        assert found.count() >= 1
        assert any(
            word in found.first.get_attribute("aria-label")
            for word in ("removed", "added", "changed")
        )


def test_two_models_are_drawn_side_by_side(
    tmp_path: Path, show: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were compared."""
    for name in ("a", "b"):
        shutil.copy(SAMPLES / "residual_block.onnx", tmp_path / f"{name}.onnx")
    command = ("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert exit_code(monkeypatch, [*command, "--html", tmp_path / "d.html", "-q"]) == 0
    page = show(tmp_path / "d.html")
    boxes = [frame.bounding_box() for frame in page.locator("iframe").all()]
    assert len(boxes) == 2
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]
