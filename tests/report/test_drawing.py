"""Drawings as DOT and Mermaid: what is in them, and that no name breaks them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from dplcli.errors import UsageError
from dplcli.report.drawing import dot, mermaid
from dplcli.report.picture import opened, picture_of
from tests.report.made import HOSTILE
from tests.support.models import ir_of, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    from dplcli.report.picture import Opened, Picture

    Draw = Callable[[Picture, Opened], str]

FORMS = pytest.mark.parametrize("draw", [dot, mermaid])

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

    if draw is dot:
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
