"""Drawings as SVG, DOT and Mermaid: what is in them, and that no name breaks them."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.errors import UsageError
from dplcli.report.drawing import dot, mermaid, svg
from dplcli.report.layers import laid_out
from dplcli.report.picture import opened, picture_of
from tests.models import ir_of, parse
from tests.report.made import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    from dplcli.report.picture import Opened, Picture

    Draw = Callable[[Picture, Opened], str]

FORMS = pytest.mark.parametrize("draw", [svg, dot, mermaid])
SVG = "{http://www.w3.org/2000/svg}"

BLOCKS = """m (float[2] x) => (float[2] y) {
  @/a/one a = Relu(x)
  @/a/two b = Neg(a)
  @/b/one c = Relu(b)
  @/b/two d = Add(c, a)
  @end y = Neg(d)
}"""

CALLS = """<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
m (float[2] x) => (float[2] y) { a = d.f(x) y = d.f(a) }
<domain: "d", opset_import: ["" : 17]> f (p) => (r) { q = Relu(p) r = Neg(q) }"""

BRANCHES = """m (float[2] x, bool c) => (float[2] y) {
  y = If(c) <then_branch = t () => (float[2] u) { u = Relu(x) },
             else_branch = e () => (float[2] v) { v = Neg(x) }>
}"""


def named(text: str) -> onnx.ModelProto:
    """Return a model; ``@/a/one`` before a node is its name, which ONNX's text cannot hold."""
    names = re.findall(r"@(\S+) ", text)
    model = parse(re.sub(r"@\S+ ", "", text))
    for node, name in zip(model.graph.node, names, strict=False):
        node.name = name
    return model


def drawn(draw: Draw, model: str, names: Sequence[str] = (), depth: int | None = None) -> str:
    """Return the drawing of a model."""
    picture = picture_of(ir_of(named(model)), "m.onnx")
    return draw(picture, opened(picture, names, depth))


def dot_edges(text: str) -> list[tuple[str, str]]:
    """Return the edges by what is written first on the nodes."""
    labels = dict(re.findall(r'(\w+) \[label="(.*?)(?:\\n.*?)?"', text))
    return [(labels[a], labels[b]) for a, b in re.findall(r"(\w+) -> (\w+);", text)]


def test_edges_lead_from_what_makes_to_what_reads() -> None:
    """Through the frames of groups that are open; to a group as a whole if it is closed."""
    assert sorted(dot_edges(drawn(dot, BLOCKS, depth=1))) == [
        ("Add", "Neg"),
        ("Neg", "Relu"),
        ("Neg", "y"),
        ("Relu", "Add"),
        ("Relu", "Add"),
        ("Relu", "Neg"),
        ("x", "Relu"),
    ]
    assert sorted(dot_edges(drawn(dot, BLOCKS, depth=0))) == [
        ("Neg", "y"),
        ("a", "b"),
        ("b", "Neg"),
        ("x", "a"),
    ]


def test_a_function_is_drawn_at_each_call_that_is_open() -> None:
    """A value goes on under the name that it has inside."""
    assert sorted(dot_edges(drawn(dot, CALLS, depth=1))) == [
        ("Neg", "Relu"),
        ("Neg", "y"),
        ("Relu", "Neg"),
        ("Relu", "Neg"),
        ("x", "Relu"),
    ]
    assert drawn(dot, CALLS, depth=1).count("subgraph cluster_") == 2


def test_bodies_are_drawn_in_their_node() -> None:
    """Each with what it reads from outside."""
    text = drawn(dot, BRANCHES, depth=1)

    assert sorted(re.findall(r'label="(\w+)"; color', text)) == ["If", "else_branch", "then_branch"]
    assert {("x", "Relu"), ("x", "Neg"), ("Relu", "y"), ("Neg", "y")} <= set(dot_edges(text))


def boxes_of(text: str) -> list[tuple[float, float, float, float, bool]]:
    """Return where the frames of an SVG are: left, top, right, bottom; and whether one is open."""
    found = []
    for group in ET.fromstring(text).findall(f"{SVG}g"):  # noqa: S314  # our own text
        left, top = map(float, re.findall(r"[-\d.]+", group.get("transform") or ""))
        items = list(group)
        for rect, following in zip(items, [*items[1:], None], strict=True):
            if rect.tag == f"{SVG}rect":
                x, y, width, height = (
                    float(rect.get(k) or 0) for k in ("x", "y", "width", "height")
                )
                is_open = following is not None and following.get("text-anchor") is None
                found.append((left + x, top + y, left + x + width, top + y + height, is_open))
    return found


@pytest.mark.parametrize("model", [BLOCKS, CALLS, BRANCHES])
@pytest.mark.parametrize("depth", [0, 1])
def test_nothing_overlaps_in_an_svg(model: str, depth: int) -> None:
    """Closed frames lie apart, inside the picture and inside or outside of open ones."""
    text = drawn(svg, model, depth=depth)
    _, _, width, height = map(float, (ET.fromstring(text).get("viewBox") or "").split())  # noqa: S314  # our own text
    closed = [box[:4] for box in boxes_of(text) if not box[4]]

    assert (
        len(closed)
        == text.count('text-anchor="middle"') - text.count("float32[") - text.count(">2</text>")
        or closed
    )
    for left, top, right, bottom in closed:
        assert 0 <= left < right <= width + 1
        assert 0 <= top < bottom <= height + 1
    for one, other in combinations(closed, 2):
        assert (
            one[2] <= other[0] + 0.2
            or other[2] <= one[0] + 0.2
            or one[3] <= other[1] + 0.2
            or other[3] <= one[1] + 0.2
        )


@given(st.data())
def test_layers_keep_the_order_and_leave_room(data: st.DataObject) -> None:
    """Of any acyclic graph: what is read lies above, nothing overlaps, edges pass no item."""
    count = data.draw(st.integers(1, 12))
    sizes = {
        item: (data.draw(st.floats(10, 200)), data.draw(st.floats(10, 90))) for item in range(count)
    }
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    edges = data.draw(st.lists(pairs, unique=True)) if count > 1 else []
    is_pinned = count > 2 and data.draw(st.booleans())
    graph = laid_out(sizes, edges, *([[0], [count - 1]] if is_pinned else []))

    for spot in list(graph.spots.values())[1:-1] if is_pinned else []:
        assert graph.spots[0].y + graph.spots[0].height < spot.y
        assert spot.y + spot.height < graph.spots[count - 1].y
    for start, end in edges:
        assert graph.spots[start].y + graph.spots[start].height < graph.spots[end].y
        for band in graph.routes[start, end][1:-1]:
            for spot in graph.spots.values():
                passes = spot.y < band.bottom and band.top < spot.y + spot.height
                assert not (passes and spot.x < band.x < spot.x + spot.width)
    for one, other in combinations(graph.spots.values(), 2):
        apart = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y


def test_groups_that_need_each_other_are_drawn() -> None:
    """A scope that is left and entered again is a circle; one edge goes upwards."""
    text = drawn(svg, BLOCKS.replace("@/b/two", "@/a/three"), depth=0)

    assert ET.fromstring(text).tag == f"{SVG}svg"  # noqa: S314  # our own text


@FORMS
@pytest.mark.parametrize("name", [*HOSTILE, 'a"];}', "a#quot;`b`", "%%{init: {}}%%", "\\"])
def test_a_hostile_name_is_text(draw: Draw, name: str) -> None:
    """The drawing has the same parts whatever something is called."""
    model = parse("m (float[2] x) => (float[2] y) { y = a.b(x) }".replace("a.b", "Relu"))
    model.graph.node[0].op_type = name.encode("utf-8", "replace").decode() or "f"
    model.graph.node[0].domain = "a"
    model.opset_import.add(domain="a", version=1)
    picture = picture_of(ir_of(model), name)
    text = draw(picture, opened(picture))

    if draw is svg:
        assert [each.tag for each in ET.fromstring(text).iter()].count(f"{SVG}rect") == 4  # noqa: S314  # our own text
    elif draw is dot:
        assert re.fullmatch(r"(//[^\n]*\n)digraph model \{\n(  [^\n]*;\n)*\}\n", text)
        assert all(re.fullmatch(r'([^"]|"([^"\\]|\\.)*")*', line) for line in text.splitlines()[1:])
    else:
        assert len(text.splitlines()) == text.count("classDef") * 2 + 2 + 3 + 2
        assert all(
            re.fullmatch(r'[^"]*("[^"<>`]*(<br/>[^"<>`]*)*"[^"]*)?', line)
            for line in text.splitlines()[1:]
        )


def test_mermaid_that_nobody_draws_is_refused() -> None:
    """With a way out; the other forms draw it."""
    lines = "\n".join(f"v{n} = Relu({'x' if not n else f'v{n - 1}'})" for n in range(700))
    model = f"m (float[2] x) => (float[2] y) {{ {lines} y = Neg(v699) }}"

    with pytest.raises(UsageError, match="more than Mermaid draws") as caught:
        drawn(mermaid, model, depth=2)
    assert "--scope" in (caught.value.hint or "")
    assert drawn(dot, model, depth=2).count(" -> ") == 702


@FORMS
def test_the_same_model_gives_the_same_bytes(draw: Draw) -> None:
    """Every time."""
    assert drawn(draw, CALLS, depth=1) == drawn(draw, CALLS, depth=1)
