"""The page of ``dpl view`` in a real browser: what a reader does, at both widths, in both modes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import onnx
import onnx.helper
import pytest

from dplcli.report.picture import opened, picture_of
from dplcli.report.view import view_page
from tests.report.made import HOSTILE
from tests.support.models import ir_of, parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.browser.conftest import Open

    Draw = Callable[..., Path]

WIDTHS = pytest.mark.parametrize("width", [1400, 420])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """Return a function that writes the page of a model."""

    def written(
        model: str | onnx.ModelProto, label: str = "m.onnx", depth: int | None = None
    ) -> Path:
        picture = picture_of(ir_of(model), label)
        path = tmp_path / "page.html"
        text = view_page(picture, opened(picture, depth=depth))
        path.write_text(text, encoding="utf-8")
        return path

    return written


def blocks(count: int, named: str = "/net/block.{block}/layer.{layer}/{op}") -> onnx.ModelProto:
    """Return a net of residual blocks of five nodes, in scopes unless *named* has none."""
    model = parse(
        "m (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4] w = {1, 2, 3, 4}> { y = Relu(x) }"
    )
    model.graph.initializer[0].dims[:] = [4, 1, 1, 1]
    del model.graph.node[:]
    before = "x"
    for layer in range(count):
        names = [f"{before}", *(f"{op}{layer}" for op in "abcde")]
        if layer == count - 1:
            names[-1] = "y"
        for number, op in enumerate(["Conv", "Relu", "Neg", "Add", "Relu"]):
            given = [names[number], *({"Conv": ["w"], "Add": [before]}.get(op, []))]
            name = named.format(block=layer // 10, layer=layer, op=f"{op}_{number}")
            node = onnx.helper.make_node(op, given, [names[number + 1]], name)
            if op == "Conv":
                node.attribute.append(onnx.helper.make_attribute("group", 4))
            model.graph.node.append(node)
        before = names[-1]
    return model


CALLS = """<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
m (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = d.f(x, w) b = Neg(a) y = d.f(b, w) }
<domain: "d", opset_import: ["" : 17]> f (p, q) => (r) { s = Add(p, q) r = Relu(s) }"""


def item(page: Any, label: str) -> Any:  # noqa: ANN401  # Playwright's
    """Return what is drawn with a label."""
    return page.locator(f'g.item[aria-label^="{label}"]')


def items(page: Any) -> int:  # noqa: ANN401  # Playwright's
    """Count what is drawn."""
    return int(page.locator("g.item").count())


@WIDTHS
@SCHEMES
def test_it_opens(draw: Draw, show: Open, width: int, scheme: str) -> None:
    """With something to see, nothing wider than the window, and text that can be read."""
    page = show(draw(blocks(30), depth=0), width=width, scheme=scheme)

    assert items(page) == 5  # three blocks, the input and the output
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() == "m.onnx"
    assert item(page, "block.0").is_visible()
    for selector in (
        ".item.closed > text.name",
        ".item.closed > text.small",
        ".bar button",
        "#legend summary",
    ):
        assert contrast(page, selector) >= 4.5, selector


def contrast(page: Any, selector: str) -> float:  # noqa: ANN401  # Playwright's
    """Return the contrast of a text with what is behind it, as WCAG 2 defines it."""
    ratio: float = page.evaluate(
        """(selector) => {
        const text = document.querySelector(selector);
        const canvas = document.createElement("canvas");
        const paint = canvas.getContext("2d", { willReadFrequently: true });
        const channels = (colour) => {
          paint.clearRect(0, 0, 1, 1);
          paint.fillStyle = colour;
          paint.fillRect(0, 0, 1, 1);
          return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((each) => {
            const part = each / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
          });
        };
        const light = (colour) => {
          const [red, green, blue] = channels(colour);
          return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        };
        const style = getComputedStyle(text);
        const frame = text.parentElement.querySelector(":scope > .frame");
        const front = text instanceof SVGElement ? style.fill : style.color;
        let back = frame ? getComputedStyle(frame).fill : null;
        for (let each = text; !back; each = each.parentElement) {
          const colour = getComputedStyle(each).backgroundColor;
          if (!colour.endsWith(", 0)")) back = colour;
        }
        const [low, high] = [light(front), light(back)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
        }""",
        selector,
    )
    return ratio


def test_a_group_opens_and_closes_where_it_is(draw: Draw, show: Open) -> None:
    """By its sign, and the sign stays under the pointer."""
    page = show(draw(blocks(30), depth=0))
    before = items(page)
    group = item(page, "block.1")
    sign = group.locator("> .toggle")
    top = sign.bounding_box()["y"]
    sign.click()

    assert group.get_attribute("aria-expanded") == "true"
    assert items(page) == before + 10
    assert abs(sign.bounding_box()["y"] - top) < 12
    assert page.locator("#status").inner_text() == "block.1 opened"
    sign.click()
    assert items(page) == before


def test_search_finds_by_name_operator_and_value(draw: Draw, show: Open) -> None:
    """It opens what is round a node, goes there and says what is known."""
    page = show(draw(blocks(30), depth=0))
    for text, name in [
        ("layer.17/Neg", "/net/block.1/layer.17/Neg_2"),
        ("d25", "/net/block.2/layer.25/Add_3"),
    ]:
        page.keyboard.press("/")
        page.keyboard.type(text)
        assert page.locator("#found li").first.is_visible()
        page.keyboard.press("Enter")
        assert page.locator("#details code").first.inner_text() == name
        assert page.locator(".item.chosen").get_attribute("aria-label").endswith(f", {name}")
        assert page.locator(".item.chosen").is_visible()
        assert page.evaluate("document.activeElement.classList.contains('chosen')")
    page.fill("#search", "x")
    page.locator("#found li", has_text="input of the model").click()
    assert page.locator(".item.chosen").get_attribute("aria-label").endswith(", input")
    page.fill("#search", "block.2")
    page.keyboard.press("Enter")
    assert page.locator("#details h2").inner_text() == "block.2"
    page.fill("#search", "Conv")
    assert page.locator("#count").inner_text() == "30 found"
    page.fill("#search", "nothing of that name")
    assert page.locator("#count").inner_text() == "0 found"
    page.keyboard.press("Escape")
    assert not page.locator("#found").is_visible()


def test_details_lead_on(draw: Draw, show: Open) -> None:
    """Attributes, types, constants with a histogram; makers and readers are links."""
    page = show(draw(blocks(4)))
    page.locator("g.item[aria-label*='/layer.0/Conv_0']").click()
    text = page.locator("#details").inner_text()

    assert all(
        each in text
        for each in ("group\n4", "float32[1,4,8,8]", "1, 2, 3, 4", "4 elements from 1 to 4")
    )
    assert page.locator("#details .histogram rect").count() == 16
    page.locator("#details button.link", has_text="Relu").click()
    assert page.locator("#details h2").inner_text() == "Relu"
    page.locator("#details button.link", has_text="Conv").click()
    assert page.locator("#details h2").inner_text() == "Conv"
    page.locator("#shut").click()
    assert not page.locator("#details").is_visible()


def test_the_keyboard_goes_everywhere(draw: Draw, show: Open) -> None:
    """Along edges, into groups and out of them, in and out of the details; zoom and fit, too."""
    page = show(draw(blocks(30), depth=0))
    seen = []
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
        seen.append(
            page.evaluate("document.activeElement.getAttribute('aria-label').split(/[ ,]/)[0]")
        )
    assert seen == [
        "x",
        "block.0",
        "block.1",
        "block.0",
        "block.0",
    ]
    assert item(page, "block.0").get_attribute("aria-expanded") == "true"
    assert page.locator("#details").get_by_role("button", name="Close", exact=True).is_visible()

    item(page, "layer.3").click()
    page.keyboard.press("Escape")
    assert page.locator("#details h2").inner_text() == "block.0"
    page.keyboard.press("Escape")
    assert page.locator(".item.chosen").count() == 0

    before = page.locator(".scene").get_attribute("transform")
    for key in ("+", "+", "-", "Shift+ArrowLeft"):
        page.keyboard.press(key)
    assert page.locator(".scene").get_attribute("transform") != before
    page.keyboard.press("0")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()


def test_every_control_has_a_name_and_is_reached_by_tab(draw: Draw, show: Open) -> None:
    """The field, the buttons, the picture and the details, once round."""
    page = show(draw(blocks(3)))
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, [role=treeitem]')]"
        ".filter((each) => !(each.getAttribute('aria-label') || each.innerText).trim()).length"
    )
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.className.baseVal || ''"
            )
        )

    assert unnamed == 0
    assert {"search", "openAll", "fit", "about", "shut"} <= reached
    assert any(each.startswith("item") for each in reached)


def test_an_address_leads_to_a_node_of_a_call(draw: Draw, show: Open) -> None:
    """Choosing writes it; opening it opens the call, and says what the call gives."""
    path = draw(CALLS)
    page = show(path)
    item(page, "d.f").nth(1).locator("> .toggle").click()
    item(page, "Add").click()
    assert page.evaluate("location.hash") == "#node=y/s"

    page = show(path, "#node=y/s")
    assert page.locator("#details h2").inner_text() == "Add"
    assert item(page, "d.f").nth(1).get_attribute("aria-expanded") == "true"
    assert item(page, "d.f").nth(0).get_attribute("aria-expanded") == "false"
    assert "given by the call: w" in page.locator("#details").inner_text()
    for fragment in ("#node=nothing", "#node=%E0%A4%A", "#group=", "#%00", "#node=y/x/z"):
        assert items(show(path, fragment)) == 5


def test_dragging_and_the_wheel_move_and_nothing_is_chosen(draw: Draw, show: Open) -> None:
    """With Ctrl the wheel zooms."""
    page = show(draw(blocks(30), depth=0))

    def place() -> tuple[float, float]:
        box = item(page, "block.0").bounding_box()
        return box["x"], box["width"]

    (x, width) = place()
    page.mouse.move(300, 500)
    page.mouse.down()
    page.mouse.move(400, 520, steps=4)
    page.mouse.up()
    assert abs(place()[0] - x - 100) < 6
    assert page.locator(".item.chosen").count() == 0
    page.mouse.wheel(50, 0)
    assert abs(place()[0] - x - 50) < 6
    page.keyboard.down("Control")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Control")
    assert place()[1] < width


def with_sources() -> onnx.ModelProto:
    """Return a net in whose scopes nodes read constants only, and others are read by nobody."""
    model = blocks(12)
    extra = []
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Add":
            scope = node.name.rpartition("/")[0]
            made = onnx.helper.make_node("Neg", ["w"], [f"s{number}"], f"{scope}/Source")
            twice = onnx.helper.make_node("Abs", [f"s{number}"], [f"t{number}"], f"{scope}/Other")
            lost = onnx.helper.make_node("Exp", [node.input[0]], [f"u{number}"], f"{scope}/Lost")
            node.op_type = "Sum"
            node.input.extend([f"s{number}", f"t{number}"])
            extra += [made, twice, lost]
    nodes = [*model.graph.node, *extra]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("model", [blocks(6), with_sources()], ids=["blocks", "sources"])
def test_nothing_crosses_a_node(draw: Draw, show: Open, model: onnx.ModelProto) -> None:
    """No edge passes over a node or closed group that it does not end at."""
    page = show(draw(model, depth=3))
    crossings = page.evaluate(
        """() => {
        const frames = [...document.querySelectorAll(".item.closed > .frame")].map((frame) => ({
          key: frame.parentElement.dataset.key, box: frame.getBoundingClientRect() }));
        const found = [];
        for (const path of document.querySelectorAll("path.edge")) {
          const matrix = path.getScreenCTM();
          for (let at = 0; at <= path.getTotalLength(); at += 3) {
            const { x, y } = path.getPointAtLength(at).matrixTransform(matrix);
            for (const { key, box } of frames) {
              const isBeside = x < box.left + 2 || x > box.right - 2;
              if (isBeside || y < box.top + 2 || y > box.bottom - 2) continue;
              found.push([key, path.dataset.ends]);
            }
          }
        }
        return found;
        }"""
    )

    assert crossings == []


@pytest.mark.parametrize(("count", "most"), [(1_000, 2.0), (4_000, 6.0)])
@pytest.mark.parametrize("name", ["{op}_{layer}", "/net/block.{block}/layer.{layer}/{op}"])
def test_large_models_open_soon(draw: Draw, show: Open, count: int, most: float, name: str) -> None:
    """5,000 nodes in two seconds, 20,000 at all, with scopes and without."""
    path = draw(blocks(count, name))
    start = time.monotonic()
    page = show(path)
    took = time.monotonic() - start

    assert f"{5 * count:,}" in page.locator("#details dl").inner_text()
    assert items(page) <= 152
    assert took < most
    assert path.stat().st_size < 2_000_000 + 1_000 * 5 * count


@pytest.mark.parametrize(
    "name", [*HOSTILE, "a" * 10_000, "\u202etxt.exe", "'\"><script>alert(1)</script>"]
)
@WIDTHS
def test_hostile_names_are_text(draw: Draw, show: Open, name: str, width: int) -> None:
    """On nodes, in the details, in what is found and in addresses; nothing runs, nothing opens."""
    model = parse("m (float[2] x) => (float[2] y) { y = Relu(x) }")
    safe = name.encode("utf-8", "replace").decode()
    node = model.graph.node[0]
    node.op_type, node.domain, node.name, node.doc_string = safe or "f", "a", safe, safe
    node.attribute.append(onnx.helper.make_attribute("k", safe))
    node.metadata_props.add(key=safe or "k", value=safe)
    model.graph.input[0].name = node.input[0] = safe or "x"
    model.opset_import.add(domain="a", version=1)
    page = show(draw(model, name), width=width)
    page.locator("g.item.other").click()

    assert page.locator("script").count() == page.evaluate("document.scripts.length")
    assert page.locator("img, iframe, #q").count() == 0
    assert page.locator("#details h2").inner_text().startswith("a.")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.fill("#search", "a.")
    page.keyboard.press("Enter")
    address = page.evaluate("location.hash")
    page.evaluate("location.hash = ''")
    page.evaluate("(hash) => { location.hash = hash; }", address)
    assert page.locator(".item.chosen").count() == 1


def test_the_page_prints(draw: Draw, show: Open) -> None:
    """The whole picture, without what cannot be pressed on paper."""
    page = show(draw(blocks(30), depth=0))
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")

    assert not page.locator(".tools").is_visible()
    assert not page.locator("#details").is_visible()
    assert item(page, "y float32").bounding_box()["y"] < 1_200
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator(".stage").get_attribute("viewBox") is None


def test_a_level_opens_as_far_as_it_can_be_read(draw: Draw, show: Open) -> None:
    """Of many large groups, those on the screen; the page says how many."""
    model = parse("m (float[2] x) => (float[2] y) { y = Relu (x) }")
    del model.graph.node[:]
    ends = ["x", *(f"v{number}" for number in range(479)), "y"]
    for number in range(480):
        reads, makes = ends[number : number + 2]
        name = f"/layer.{number // 60}/Relu_{number}"
        model.graph.node.append(onnx.helper.make_node("Relu", [reads], [makes], name=name))
    page = show(draw(model, depth=0))
    assert page.locator(".item.scope").count() == 8
    page.locator("#openAll").click()
    assert 1 <= page.locator(".item.scope.open").count() < 8
    assert items(page) <= 300
    assert "of 8 groups opened" in page.locator("#status").inner_text()
