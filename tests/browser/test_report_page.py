"""The page of ``--html`` in a real browser: its tables are searched, sorted, grouped and saved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx.numpy_helper
import pytest

from dplcli.report.html import html_page
from dplcli.report.layout import TextTable
from tests.report.made import HOSTILE, documents
from tests.support.calling import exit_code

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
    """Open a page with a table of 450 rows."""
    return show(written(tmp_path, ROWS))


def written(folder: Path, rows: Sequence[Sequence[str]]) -> Path:
    """Write a page with one table."""
    table = TextTable(*COLUMNS, right=("FLOP",), prose=("reason",), rows=rows, title="Refused")
    document = replace(documents()["two"], said=table)
    path = folder / "page.html"
    path.write_text(html_page(document), encoding="utf-8")
    return path


def cells(page: Any, column: int) -> list[str]:  # noqa: ANN401  # Playwright's
    """Return what the rows of the table say in one column, as far as they are made."""
    rows = page.locator("section:has(h2:text-is('Refused')) tbody tr:not([aria-hidden])")
    return [row.locator("th, td").nth(column).inner_text() for row in rows.all()]


def tool(page: Any, what: str) -> Any:  # noqa: ANN401  # Playwright's
    """Return a tool above the table."""
    return page.locator(f"section:has(h2:text-is('Refused')) .tools {what}")


def test_rows_are_made_as_far_as_somebody_scrolls(page: Any) -> None:  # noqa: ANN401
    """All are there in the end, in the order of the report."""
    assert tool(page, "output").inner_text() == "450 rows"
    made = len(cells(page, 0))
    assert made < 450
    box = page.locator(".wide[aria-label='Refused']")
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


Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, show: Open, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command and shows the graphs of its page."""

    def shown(*command: object, ends_with: int = 0, **window: object) -> Any:  # noqa: ANN401
        place = tmp_path / "page.html"
        assert exit_code(monkeypatch, [*command, "--html", place, "-q"]) == ends_with
        page = show(place, **window)
        page.locator("#graphs").scroll_into_view_if_needed()
        page.wait_for_selector("#graphs[data-ready]")
        return page

    return shown


def test_the_graphs_of_a_result_are_a_part_of_its_page(tmp_path: Path, run: Run) -> None:
    """They are drawn, are searched, and leave the address of the report alone."""
    page = run(
        "partition", SAMPLES / "resnet18_bn.onnx", "-p", "conv_relu", "-o", tmp_path / "p.onnx"
    )
    page.locator("#search").fill("MaxPool")
    assert page.locator("#found [role=option]").count() == 2
    page.locator("#found [role=option]", has_text="(p.onnx)").click()
    assert "MaxPool" in page.locator("#details").inner_text()
    assert page.locator("#details", has_text="In the other graph").count() == 1
    assert page.url == (tmp_path / "page.html").as_uri()


def test_a_reader_scrolls_past_a_graph(run: Run) -> None:
    """The wheel moves the report, and the picture only once somebody has pressed it."""
    same = SAMPLES / "residual_block.onnx"
    page = run("diff", same, same, height=500)
    page.evaluate("scrollTo(0, 0)")
    scene = page.locator(".scene")
    before = scene.get_attribute("transform")
    page.locator(".stage").hover(position={"x": 5, "y": 5})
    start = page.evaluate("scrollY")
    page.mouse.wheel(0, 60)
    page.wait_for_function("start => scrollY > start", arg=start)
    assert scene.get_attribute("transform") == before
    page.locator(".stage").click(position={"x": 5, "y": 5})
    start = page.evaluate("scrollY")
    page.mouse.wheel(0, 60)
    page.wait_for_timeout(200)
    assert scene.get_attribute("transform") != before
    assert page.evaluate("scrollY") == start


@pytest.fixture
def rewritten(tmp_path: Path) -> tuple[object, ...]:
    """Return the command that moves each Relu behind the MaxPool that reads it."""
    rules = tmp_path / "rules.yaml"
    pattern, becomes = "MaxPool(Relu(x), **attrs)", "Relu(MaxPool(x, **attrs))"
    rules.write_text(
        f"dpl: 1\nrewrites: [{{name: r, pattern: '{pattern}', replacement: '{becomes}'}}]\n"
    )
    model, result = SAMPLES / "resnet18_bn.onnx", tmp_path / "b.onnx"
    return ("rewrite", model, "-p", rules, "-o", result)


def test_what_changed_is_seen_in_both_graphs(
    tmp_path: Path, run: Run, rewritten: tuple[object, ...]
) -> None:
    """Removed in one, added in the other; a closed group has the mark of what it holds."""
    page = run(*rewritten)
    before, after = page.locator(".picture").all()
    assert before.locator(".item.mark-removed").count() == 2
    assert after.locator(".item.mark-added").count() == 2
    assert "added" in page.locator("#legend").inner_text()

    page = run("diff", SAMPLES / "resnet18_bn.onnx", tmp_path / "b.onnx", ends_with=1)
    for picture in page.locator(".picture").all():
        found = picture.locator(".item[class*=mark-]")
        assert found.count() >= 1
        assert any(
            word in found.first.get_attribute("aria-label")
            for word in ("removed", "added", "changed")
        )


def heights(page: Any, side: int) -> dict[str, float]:  # noqa: ANN401  # Playwright's
    """Return the middles of what is drawn in one of two graphs, by its label."""
    found: dict[str, float] = page.evaluate(
        """(side) => Object.fromEntries(
          [...document.querySelector("#graphs").shadowRoot.querySelectorAll(".picture")[side]
            .querySelectorAll(".item")].map((item) => {
              const { top, height } = item.querySelector(".frame").getBoundingClientRect();
              return [item.getAttribute("aria-label"), top + height / 2];
          }))""",
        side,
    )
    return found


@pytest.mark.parametrize("width", [1400, 420])
def test_what_is_in_both_graphs_stands_at_one_height(tmp_path: Path, run: Run, width: int) -> None:
    """Side by side, also after something was opened, moved and zoomed; or one below the other."""
    page = run(
        *("partition", SAMPLES / "resnet18_bn.onnx", "-p", "conv_relu"),
        *("-o", tmp_path / "p.onnx"),
        width=width,
    )
    for act in ("openAll", "farther", "closeAll"):
        page.locator(f"#{act}").click()
        both = [heights(page, side) for side in (0, 1)]
        shared = [
            label for label in both[0].keys() & both[1].keys() if not label.endswith("closed")
        ]
        apart = {both[1][label] - both[0][label] for label in shared}
        assert len(shared) >= 4
        assert max(apart) - min(apart) < 1
        assert (max(apart) < 1) == (width == 1400)


def test_a_group_opens_in_both_graphs(tmp_path: Path, run: Run) -> None:
    """And closes again; a node and what stands for it are chosen together."""
    page = run(
        "partition", SAMPLES / "resnet18_bn.onnx", "-p", "conv_relu", "-o", tmp_path / "p.onnx"
    )
    page.locator("#closeAll").click()
    for state in ("open", "closed"):
        page.locator(".picture").nth(1).locator(".item.scope > .toggle").first.click()
        label = page.locator(".picture").nth(1).locator(".item.chosen").get_attribute("aria-label")
        name = label.split(",")[0].split()[0]
        for picture in page.locator(".picture").all():
            found = picture.locator(f".item.{state}.chosen")
            assert found.get_attribute("aria-label").startswith(name)


def test_steps_are_gone_through_one_by_one(run: Run, rewritten: tuple[object, ...]) -> None:
    """By keys, by buttons and by choice; each points out what it took and what it made."""
    page = run(*rewritten)
    now = [page.locator(".picture").nth(side).locator(".item.now") for side in (0, 1)]
    assert [found.count() for found in now] == [0, 0]
    page.locator(".picture").first.click(position={"x": 5, "y": 60})
    page.keyboard.press("n")
    labels = [sorted(found.evaluate_all(OPERATORS)) for found in now]
    assert labels == [["MaxPool", "Relu"], ["MaxPool", "Relu"]]
    assert "replaced Relu" in page.locator("#what").inner_text()
    assert page.locator("#next").is_disabled()
    page.keyboard.press("Escape")
    assert [found.count() for found in now] == [0, 0]
    assert page.locator("#what").inner_text() == ""
    page.locator("#step").select_option(label="1. r")
    assert now[0].count() == 2
    page.locator("#step").select_option(value="")
    assert now[0].count() == 0


OPERATORS = "found => found.map((each) => each.getAttribute('aria-label').split(' ')[0])"


def test_equal_models_are_drawn_once(tmp_path: Path, run: Run) -> None:
    """With a line that says so."""
    for name in ("a", "b"):
        shutil.copy(SAMPLES / "residual_block.onnx", tmp_path / f"{name}.onnx")
    page = run("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert page.locator(".picture").count() == 1
    assert "Both models have this graph." in page.locator("section", has_text="Graph").inner_text()


def changed_weight(tmp_path: Path) -> tuple[Path, Path]:
    """Return a model, and it with other numbers in its last weight of a convolution."""
    model = onnx.load(SAMPLES / "residual_block.onnx")
    weights = [each for each in model.graph.initializer if len(each.dims) == 4]
    array = onnx.numpy_helper.to_array(weights[-1]) * 1.5
    weights[-1].CopyFrom(onnx.numpy_helper.from_array(array, weights[-1].name))
    onnx.save(model, tmp_path / "b.onnx")
    return SAMPLES / "residual_block.onnx", tmp_path / "b.onnx"


def test_a_changed_weight_is_seen_at_who_reads_it(tmp_path: Path, run: Run) -> None:
    """It is coloured in both graphs, the page opens there, and the details say what changed."""
    page = run("diff", *changed_weight(tmp_path), ends_with=1)
    assert page.locator(".item.now.mark-changed").count() == 2
    assert "elements differ" in page.locator("#what").inner_text()
    page.locator(".item.mark-changed").first.click()
    assert "elements differ" in page.locator("#details").inner_text()


def test_a_slash_reaches_the_search_from_anywhere(tmp_path: Path, run: Run) -> None:
    """That of the graphs, though the keyboard is in the report round them."""
    page = run("diff", *changed_weight(tmp_path), ends_with=1)
    page.keyboard.press("/")
    page.keyboard.type("Relu")
    assert page.locator("#found [role=option]").count() > 0


def test_what_runs_off_a_narrow_page_has_a_cue(tmp_path: Path, show: Open) -> None:
    """A table fades out on the right until somebody has scrolled there."""
    page = show(written(tmp_path, ROWS), width=420)
    box = page.locator(".wide[aria-label='Refused']")
    page.wait_for_function("box => box.classList.contains('more')", arg=box.element_handle())
    box.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    page.wait_for_function("box => !box.classList.contains('more')", arg=box.element_handle())


def test_errors_are_colours_and_the_first_to_differ_is_framed(tmp_path: Path, run: Run) -> None:
    """Values before the change are within the tolerance, those behind it are not."""
    page = run("verify", *changed_weight(tmp_path), "--layers", ends_with=1)
    assert page.locator("#colours").input_value() == "error"
    for picture in page.locator(".picture").all():
        assert picture.locator(".item.mark-first").count() == 1
        assert picture.locator(".item.step-0").count() >= 1
        over = picture.locator(".item[class*='over-']")
        assert over.count() >= 1
        assert "times" in over.first.text_content()
    assert page.locator(".item.now.mark-first").count() == 2, "the page opens at the culprit"
    verdicts = page.locator("section:has(h2:text-is('Values on the way')) tbody tr")
    assert "differ" in verdicts.first.inner_text()


def test_a_nearest_miss_is_drawn_beside_the_pattern(tmp_path: Path, run: Run) -> None:
    """What fits and what does not, in the pattern and in the model."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "dpl: 1\ntarget: t\npatterns:\n- {name: p, pattern: 'Relu(Add(Conv(x, w), const()))'}\n"
    )
    page = run("explain", SAMPLES / "residual_block.onnx", "-p", rules)
    pattern, model = page.locator(".picture").all()
    assert pattern.locator(".item.mark-fits").count() >= 1
    assert pattern.locator(".item.mark-does").count() == 1
    assert model.locator(".item.mark-fits").count() >= 1
    assert model.locator(".item.mark-does").count() == 1
    assert "expected" in page.locator("#what").inner_text()


def test_long_names_in_sentences_break(
    tmp_path: Path, show: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest miss of ``explain`` names a node, as long as exporters make it."""
    model = onnx.load(SAMPLES / "residual_block.onnx")
    for number, node in enumerate(model.graph.node):
        node.name = f"/encoder{'/intermediate_layer' * 12}/{number}"
    onnx.save(model, tmp_path / "m.onnx")
    rules = "dpl: 1\ntarget: t\npatterns:\n- {name: p, pattern: 'Relu(Relu(Relu(x)))'}\n"
    (tmp_path / "r.yaml").write_text(rules)
    told = (
        "explain",
        tmp_path / "m.onnx",
        "-p",
        tmp_path / "r.yaml",
        "--html",
        tmp_path / "p.html",
    )
    exit_code(monkeypatch, [*told, "-q"])
    page = show(tmp_path / "p.html", width=420)
    assert "intermediate_layer" in page.locator("main p", has_text="nearest miss").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
