"""What a picture is made of: boxes from scopes, chunks, folded constants, and what is open."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.helper
import onnx.shape_inference
import pytest

from dplcli.errors import UsageError
from dplcli.ir.types import ArrayTensor
from dplcli.report.picture import MOST_ITEMS, Box, facts_of, opened, picture_of, scope_path
from tests.diff.compared import calls_in
from tests.support.models import ir_of, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dplcli.ir import Node
    from dplcli.report.picture import Item, Picture


def chain(names: Iterable[str]) -> onnx.ModelProto:
    """Return a model of Relu nodes, one after the other, with these names."""
    names = list(names)
    model = parse("m (float[2] x) => (float[2] y) { y = Relu(x) }")
    del model.graph.node[:]
    for number, name in enumerate(names):
        reads = "x" if not number else f"v{number - 1}"
        makes = "y" if number == len(names) - 1 else f"v{number}"
        model.graph.node.append(onnx.helper.make_node("Relu", [reads], [makes], name=name))
    return model


def picture(model: str | onnx.ModelProto, scope: str | None = None) -> Picture:
    """Return the picture of a model."""
    return picture_of(ir_of(model), "m.onnx", scope)


def tree(items: Iterable[Item]) -> list[object]:
    """Return boxes as lists that begin with their label, nodes as their names."""
    return [
        [item.label, *tree(item.items)] if isinstance(item, Box) else item.label for item in items
    ]


# Scopes.


RESHAPED = """m (float[2,n] x) => (float[n,2] y) {
    r = Relu(x) s = Shape(r) d = Gather(s, one)
    u = Unsqueeze(d, zero) c = Concat<axis=0>(u, two)
    y = Reshape(r, c) }"""


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        pytest.param(RESHAPED, ["s", "d", "u", "c"], id="chain"),
        pytest.param(
            RESHAPED.replace("Concat<axis=0>(u, two)", "Mul(u, u)").replace("Shape(r)", "Neg(r)"),
            [],
            id="near-miss-numbers",
        ),
        pytest.param(
            """m (float[2,n] x) => (float[n,2] y) { s = Shape(x)
            r = Relu(x) y = Reshape(r, s) }""",
            [],
            id="near-miss-one-node",
        ),
        pytest.param(
            """m (float[2,n] x) => (float[2,n] y) { s = Shape(x)
            f = Cast<to=1>(s) e = Expand(half, s) y = Add(x, e) }""",
            ["s", "f"],
            id="near-miss-a-tensor-of-floats",
        ),
    ],
)
def test_what_computes_sizes_is_one_closed_box(text: str, sizes: list[str]) -> None:
    """It lies in the module of its nodes, and the page does not open it."""
    given = "<int64 one = {1}, int64[1] zero = {0}, int64[1] two = {2}, float half = {0.5}>"
    model = parse(text.replace(") {", f") {given} {{", 1))
    found = picture_of(ir_of(onnx.shape_inference.infer_shapes(model)), "m.onnx")
    boxes = [box for box in found.main.root.boxes() if box.kind == "shapes"]

    assert [tree(box.items) for box in boxes] == ([sizes] if sizes else [])
    assert not {*boxes} & opened(found).boxes


def test_names_put_nodes_into_boxes() -> None:
    """One box for each part of the path, in the order of the first node."""
    names = ["/a/one/Relu", "/a/one/Relu_1", "/a/Relu", "/b/Relu", "/b/Relu_1"]

    assert tree(picture(chain(names)).main.root.items) == [
        ["a", ["one", "/a/one/Relu", "/a/one/Relu_1"], "/a/Relu"],
        ["b", "/b/Relu", "/b/Relu_1"],
    ]


def test_a_box_with_one_thing_in_it_is_left_out() -> None:
    """A single node stays where the box was, and a box in a box alone takes both names."""
    names = ["/a/x/y/Relu", "/a/x/y/Relu_1", "/b/c/Relu", "Relu", "Relu_1"]

    assert tree(picture(chain(names)).main.root.items) == [
        ["a/x/y", "/a/x/y/Relu", "/a/x/y/Relu_1"],
        "/b/c/Relu",
        "Relu",
        "Relu_1",
    ]


def test_a_scope_round_nearly_everything_is_no_box() -> None:
    """It would only have to be opened: what is beside it comes in its place in the order."""
    names = ["in", "/m/a/Relu", "/m/a/Relu_1", "/m/b/Relu", "/m/b/Relu_1", "out"]

    assert tree(picture(chain(names)).main.root.items) == [
        "in",
        ["a", "/m/a/Relu", "/m/a/Relu_1"],
        ["b", "/m/b/Relu", "/m/b/Relu_1"],
        "out",
    ]


@pytest.mark.parametrize(
    ("key", "text", "path"),
    [
        ("pkg.torch.onnx.name_scopes", "['', 'm', 'm.fc', 'addmm']", ("m", "fc")),
        ("pkg.torch.onnx.name_scopes", "['', 'relu']", ()),
        ("pkg.torch.onnx.name_scopes", "[" * 3_000, ()),
        ("pkg.torch.onnx.name_scopes", "__import__('os').system('x')", ()),
        ("pkg.torch.onnx.name_scopes", "{'a': 1}", ()),
        ("pkg.torch.onnx.name_scopes", "[1, 2]", ()),
        ("namespace", ": M/m: a.B/m.fc: torch.nn.Linear/addmm: aten.addmm", ("m", "fc")),
        ("dpl.replaces", "/a/b/Conv, /a/c/Relu", ("a",)),
        ("something.else", "['a', 'b', 'c']", ()),
    ],
)
def test_metadata_that_exporters_write_say_the_scope(
    key: str, text: str, path: tuple[str, ...]
) -> None:
    """What does not read like it says nothing, whatever it is."""
    model = chain(["n"])
    model.graph.node[0].metadata_props.add(key=key, value=text)

    (node,) = ir_of(model).graph
    assert scope_path(node) == path


def test_a_name_of_ten_thousand_slashes_is_no_tower_of_boxes() -> None:
    """The path ends at some depth; nothing is lost."""
    names = ["/".join("abc" * 10_000), "/".join("abc" * 10_000) + "x"]

    assert sum(1 for _ in picture(chain(names)).main.root.nodes()) == 2


WEIGHTS = """m (float[2] x) => (float[2] y)
<float[2] m.enc.layer.0.fc.bias = {1, 2}, float[2] m.enc.layer.0.out.bias = {1, 2},
 float[2] m.enc.layer.1.fc.bias = {1, 2}, float[2] m.enc.layer.1.out.bias = {1, 2}> {
  a = Add(x, m.enc.layer.0.fc.bias)
  b = Relu(a)
  c = Add(b, m.enc.layer.0.out.bias)
  d = Relu(c)
  e = Add(d, m.enc.layer.1.fc.bias)
  f = Relu(e)
  g = Add(f, m.enc.layer.1.out.bias)
  y = Relu(g)
}"""


def test_weights_say_the_scope_where_names_do_not() -> None:
    """What lies between two weights of a block is in the block; what comes behind one, too."""
    assert tree(picture(_with_dots(WEIGHTS)).main.root.items) == [
        ["layer.0", "a", "b", "c", "d"],
        ["layer.1", "e", "f", "g"],
        "y",
    ]


def test_weights_say_nothing_where_names_have_scopes() -> None:
    """Names are no guess."""
    model = _with_dots(WEIGHTS)
    model.graph.node[0].name = "/a/Add"
    model.graph.node[1].name = "/a/Relu"

    assert tree(picture(model).main.root.items)[0] == ["a", "/a/Add", "/a/Relu"]


def _with_dots(text: str) -> onnx.ModelProto:
    """Return a model; ONNX's text has no dots in names, so they are written as two underscores."""
    model = parse(
        text.replace(".enc.", "__enc__")
        .replace("layer.", "layer__")
        .replace(".fc.", "__fc__")
        .replace(".out.", "__out__")
    )
    for node in model.graph.node:
        node.input[:] = [name.replace("__", ".") for name in node.input]
    for tensor in model.graph.initializer:
        tensor.name = tensor.name.replace("__", ".")
    return model


# Chunks.


@pytest.mark.parametrize("count", [150, 151, 400, 5_000, 23_000])
def test_no_box_shows_more_than_can_be_looked_at(count: int) -> None:
    """A long flat stretch becomes chunks, in order, with each node in one of them."""
    root = picture(chain(f"n{number}" for number in range(count))).main.root
    boxes = [root, *root.boxes()]
    named = [node.name for node in in_order(root)]

    assert max(len(box.items) for box in boxes) <= MOST_ITEMS
    assert min(box.size for box in boxes) >= 8
    assert named == [f"n{number}" for number in range(count)]
    assert (len(boxes) > 1) == (count > MOST_ITEMS)


def test_scopes_stay_where_what_stands_between_them_is_cut() -> None:
    """A long stretch of nodes beside modules swallows none of them."""
    modules = [[f"/m/{name}/Relu", f"/m/{name}/Relu_1"] for name in ("a", "b", "c")]
    loose = [f"/m/Relu_{number}" for number in range(400)]
    items = picture(chain([*modules[0], *loose[:200], *modules[1], *loose[200:], *modules[2]]))

    labels = [item.label for item in items.main.root.items]
    assert [label for label in labels if label in "abc"] == ["a", "b", "c"]
    assert 0 < len(labels) - 3 < 20


def in_order(box: Box) -> list[Node]:
    """Return the nodes of a box, as they are drawn."""
    found: list[Node] = []
    for item in box.items:
        found += in_order(item) if isinstance(item, Box) else [item]
    return found


def test_chunks_are_cut_where_few_values_cross() -> None:
    """Behind the first node of a block two values cross, one node earlier only one does."""
    model = chain(f"n{number}" for number in range(400))
    for block in range(40):  # the first node of ten also feeds the last one
        first, last = model.graph.node[block * 10], model.graph.node[block * 10 + 9]
        last.op_type = "Add"
        last.input.append(first.output[0])
    chunks = picture(model).main.root.items

    assert all(isinstance(chunk, Box) and chunk.first % 10 in {0, 1} for chunk in chunks)


def test_a_few_chunks_too_many_are_cut_once_more() -> None:
    """Where good cuts lie closer together than chunks are long, there are more chunks."""
    chance = random.Random(1)  # noqa: S311  # not for cryptography
    model = chain(f"n{number}" for number in range(9_900))
    for number in range(2, 9_900, 3):
        read = max(0, number - chance.randint(1, 40))
        model.graph.node[number].op_type = "Add"
        model.graph.node[number].input.append(model.graph.node[read].input[0])
    root = picture(model).main.root

    assert all(len(box.items) <= MOST_ITEMS for box in (root, *root.boxes()))
    assert root.size == 9_900


def test_many_bodies_are_found_once_each() -> None:
    """Twice as many take twice as long to draw."""
    body = "b () => (u) { u = Relu (x) }"

    def cost(count: int) -> int:
        ifs = " ".join(
            f"y{n} = If (c) <then_branch = {body}, else_branch = {body}>" for n in range(count)
        )
        model = ir_of(f"g (bool c, float[2] x) => (float[2] y0) {{ {ifs} }}")
        return calls_in(lambda: picture_of(model, "m.onnx"))

    assert cost(400) < 2.5 * cost(200)


# Constants.


QUANTISED = """m (float[2] x) => (float[2] y)
<int8[2] w = {1, 2}, float s = {0.5}> { d = DequantizeLinear(w, s) y = Add(x, d) }"""


def drawn(model: str) -> list[str]:
    """Return the operators of the nodes that are drawn."""
    return [node.op_type for node in picture(model).main.root.nodes()]


def test_what_computes_a_constant_belongs_to_its_reader() -> None:
    """So do chains of such nodes, and Constant nodes are never drawn."""
    assert drawn(QUANTISED) == ["Add"]
    assert drawn(QUANTISED.replace("y = Add(x, d)", "n = Neg(d) y = Add(x, n)")) == ["Add"]
    assert drawn(
        "m (float[2] x) => (float[2] y) { c = Constant<value_float=1.0>() y = Add(x, c) }"
    ) == ["Add"]


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            QUANTISED.replace("y = Add", "e = Neg(d) z = Add(e, x) y = Add"), id="read-twice"
        ),
        pytest.param(QUANTISED.replace("(float[2] y)", "(float[2] y, float[2] d)"), id="returned"),
        pytest.param(
            QUANTISED.replace("(w, s)", "(w, t)").replace("x)", "x, float t)"), id="not-constant"
        ),
        pytest.param(
            "m (float[2] x) => (float[2] y) { r = RandomNormal<shape=[2]>() y = Add(x, r) }",
            id="random",
        ),
    ],
)
def test_a_near_miss_is_drawn(model: str) -> None:
    """Whoever else reads it, or what is no constant, is an edge to see."""
    assert len(drawn(model)) > 1


def test_a_weight_that_every_call_gives_is_a_constant_of_the_function() -> None:
    """And one that a call computes is none."""
    text = """<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
    m (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = d.f(x, w) y = d.f(a, {second}) }
    <domain: "d", opset_import: ["" : 17]> f (p, q) => (r) { r = Add(p, q) }"""
    given = [
        {value.name for value in picture(text.replace("{second}", second)).given}
        for second in ("w", "a")
    ]

    assert given == [{"q"}, set()]


# Layers.


def test_layers_that_are_alike_are_drawn_as_one() -> None:
    """A group of all, closed until somebody asks, whatever else is there; modules stay inside."""
    names = ["/m/0/a/Relu", "/m/0/a/Relu_1", "/m/0/Relu", "/m/1/a/Relu", "/m/1/a/Relu_1"]
    model = ir_of(chain(["/m/Relu", *names, "/m/1/Relu", "/head/Relu"]))
    nodes = [*model.graph]

    drawn = picture_of(model, "m.onnx", layers=[nodes[1:4], nodes[4:7]])

    assert tree(drawn.main.root.items) == [
        "/m/Relu",
        [
            "2 alike layers",
            ["layer 0", ["a", *names[:2]], names[2]],
            ["layer 1", ["a", *names[3:]], "/m/1/Relu"],
        ],
        "/head/Relu",
    ]
    assert not opened(drawn).boxes
    assert {box.label for box in opened(drawn, ["layer 1"]).boxes} == {"2 alike layers", "layer 1"}
    assert len(opened(drawn, depth=2).boxes) == 3


# What is open, and parts.


def test_so_much_is_open_as_can_be_looked_at() -> None:
    """Whole levels are, until there would be too much to see; calls are closed."""
    few = picture(chain(f"/a{number // 10}/n{number}" for number in range(40)))
    many = picture(chain(f"/a{number // 10}/n{number}" for number in range(100)))

    assert {box.label for box in opened(few).boxes} == {"a0", "a1", "a2", "a3"}
    assert opened(many).boxes == set()


def test_depth_and_names_open_more() -> None:
    """A name opens all round it, a function where it is called first."""
    model = picture(chain(f"/a{number // 20}/b{number // 4}/n{number}" for number in range(100)))

    assert len(opened(model, depth=0).boxes) == 0
    assert len(opened(model, depth=1).boxes) == 5
    assert len(opened(model, depth=9).boxes) == 30
    assert {box.label for box in opened(model, ["b7"], depth=0).boxes} == {"a1", "b7"}
    assert {box.label for box in opened(model, ["/a1/b7"], depth=0).boxes} == {"a1", "b7"}
    assert {box.label for box in opened(model, ["m/a1/b7"], depth=0).boxes} == {"a1", "b7"}
    with pytest.raises(UsageError, match="no group, function or node") as caught:
        opened(model, ["b70"])
    assert caught.value.hint is not None
    assert "b7" in caught.value.hint
    with pytest.raises(UsageError, match="more than 50"):
        opened(model, depth=9, most=50)


def test_functions_that_call_each_other_are_no_endless_picture() -> None:
    """40 functions of two calls each are a million nodes by depth 20: that is refused at once."""
    functions = "".join(
        f'<domain: "d", opset_import: ["" : 17, "d" : 1]> f{n} (x) => (y) '
        f"{{ a = d.f{n + 1}(x) y = d.f{n + 1}(a) }}\n"
        for n in range(40)
    )
    model = picture(
        f"""<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
        m (float[2] x) => (float[2] y) {{ y = d.f0(x) }} {functions}
        <domain: "d", opset_import: ["" : 17]> f40 (x) => (y) {{ y = Relu(x) }}"""
    )

    assert len(model.sheets) == 42
    with pytest.raises(UsageError, match="would be drawn"):
        opened(model, depth=40)


def test_a_scope_is_a_picture_of_its_own() -> None:
    """Its inputs and outputs are what passes its border."""
    part = picture(chain(["/a/Relu", "/a/Relu_1", "/b/Relu", "/b/Relu_1", "/c/Relu"]), "b").main

    assert [node.name for node in part.nodes] == ["/b/Relu", "/b/Relu_1"]
    assert [value.name for value in part.inputs] == ["v1"]
    assert [value.name for value in part.outputs] == ["v3"]


def test_the_outermost_modules_may_be_left_out_of_a_scope() -> None:
    """If that says which; a guess from weights is a scope like any other."""
    names = ["/m/enc/l.0/Relu", "/m/enc/l.0/Relu_1", "/m/enc/l.1/Relu", "/m/dec/l.1/Relu"]

    assert [node.name for node in picture(chain(names), "enc/l.0").main.nodes] == names[:2]
    assert [node.name for node in picture(chain(names), "dec").main.nodes] == names[3:]
    assert len(picture(chain(names), "m").main.nodes) == 4
    assert len(picture(_with_dots(WEIGHTS), "layer.1").main.nodes) == 3
    with pytest.raises(UsageError, match="2 scopes have this name") as caught:
        picture(chain(names), "l.1")
    assert caught.value.hint == "pass one of m/dec/l.1, m/enc/l.1"


@pytest.mark.parametrize("scope", ["", "/"])
def test_a_scope_has_a_name(scope: str) -> None:
    """Those that there are are listed."""
    with pytest.raises(UsageError, match="no name is given") as caught:
        picture(chain(["/a/Relu", "/a/Relu_1", "/b/Relu", "/b/Relu_1"]), scope)
    assert caught.value.hint == "there are a, b, …"


@pytest.mark.parametrize("scope", ["bb", "a/b", "/b/Relu"])
def test_a_scope_that_is_not_there_is_refused(scope: str) -> None:
    """With what was probably meant."""
    with pytest.raises(UsageError, match="no scope and no function") as caught:
        picture(chain(["/a/Relu", "/a/Relu_1", "/b/Relu", "/b/Relu_1"]), scope)
    assert caught.value.hint


# Numbers.


def test_facts_of_numbers() -> None:
    """Infinities are counted and not drawn; what is all the same has no histogram."""
    facts = facts_of(ArrayTensor(np.array([0, 1, 2, np.inf, np.nan], np.float32)))
    assert (facts.low, facts.high, facts.odd, sum(facts.bins)) == (0, 2, 2, 3)

    assert facts_of(ArrayTensor(np.ones(9, np.int64))).bins == ()
    assert facts_of(ArrayTensor(np.zeros(0, np.float32))).first == ()
    assert facts_of(ArrayTensor(np.array([np.nan], np.float16))).low is None
    assert facts_of(ArrayTensor(np.array(["<b>\u202e"], object))).first == ("<b>\\u202e",)
    assert facts_of(ArrayTensor(np.array([True, False]))).first == ("True", "False")
    assert facts_of(ArrayTensor(np.array([1e308, -1e308]))).bins == ()


def test_a_large_constant_is_looked_at_here_and_there() -> None:
    """And the picture says so."""
    facts = facts_of(ArrayTensor(np.arange(1 << 22, dtype=np.float32)))

    assert facts.looked_at == 1 << 20
    assert set(facts.bins) == {1 << 16}
