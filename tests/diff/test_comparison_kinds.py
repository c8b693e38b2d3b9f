"""Each kind of difference is found, and said, alone; what is no difference is not."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dplcli.analysis import numbering
from dplcli.analysis.numbering import Content
from dplcli.diff.comparison import distance
from dplcli.ir import ArrayTensor, types
from dplcli.outcomes.comparing import DiffOutcome
from dplcli.report.json import parts_of
from tests.diff.compared import NET, difference, words
from tests.support.helpers import model_from_bytes, proto_from_text


def edited(*changes: tuple[str, str]) -> str:
    """Return NET with some text replaced, each of which must be there."""
    text = NET
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


CHUNK = 4  # so that a few numbers are a large constant

NUMBERS = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0]


def content(
    numbers: list[float], dtype: str = "float32", shape: tuple[int, ...] = (-1,)
) -> Content:
    """Return what a constant with these numbers holds."""
    return Content(ArrayTensor(np.array(numbers, dtype).reshape(shape)))


@pytest.mark.parametrize(
    ("numbers", "is_equal"),
    [
        (NUMBERS, True),
        ([*NUMBERS[:-1], 1.0], False),
        ([*NUMBERS[:-1], -0.0], False),
        ([*NUMBERS[:5], 9.0, *NUMBERS[6:]], False),
        ([9.0, *NUMBERS[1:]], False),
    ],
    ids=["same", "last", "zero", "second-chunk", "first-chunk"],
)
def test_large_constants_are_equal_if_every_bit_is(
    monkeypatch: pytest.MonkeyPatch, numbers: list[float], *, is_equal: bool
) -> None:
    """Chunk by chunk: of the first one there is a digest, and the others are compared."""
    monkeypatch.setattr(types, "CHUNK", CHUNK)
    monkeypatch.setattr(numbering, "CHUNK", CHUNK)
    mine, other = content(NUMBERS), content(numbers)
    assert (mine == other) == is_equal
    assert (other in {mine: 1}) == is_equal
    assert content(NUMBERS, "float64") != mine != content(NUMBERS, shape=(3, 3))


def test_not_a_number_equals_its_own_bits() -> None:
    """Two constants are compared as files are."""
    other = np.array([np.nan], np.float32)
    other.view(np.uint32)[0] += 1
    assert content([np.nan]) == content([np.nan]) != Content(ArrayTensor(other))


def test_a_model_equals_itself() -> None:
    """Nothing differs between two readings of one text."""
    found = difference(NET, NET)
    assert found.is_equal
    assert not found.all_remarks
    assert found.graphs[0].paired == 4


def test_a_value_that_is_returned_twice_is_paired_by_place() -> None:
    """Outputs of one name are told apart by their order; one less is a difference."""
    once = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) { y = Neg (x) }"""
    twice = once.replace("(float[2] y)", "(float[2] y, float[2] y)")
    assert difference(twice, twice).is_equal
    assert not difference(twice, once).is_equal
    assert not difference(once, twice).is_equal


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(
            edited(("c =", "k ="), ("(c)", "(k)"), ("w =", "v ="), ("w,", "v,")), id="names"
        ),
        pytest.param(edited(("Add (s, x)", "Add (x, s)")), id="commuted operands"),
        pytest.param(edited(("<strides = [1, 1], group = 1>", "")), id="defaults not stated"),
        pytest.param(
            edited(("group = 1", "group = 1, dilations = [1, 1], pads = [0, 0, 0, 0]")),
            id="defaults stated in words",
        ),
        pytest.param(
            edited(
                (", float[2] b = {5,6}", ""),
                ("  c =", "  b = Constant <value = float[2] {5,6}> ()\n  c ="),
            ),
            id="stored in a Constant node",
        ),
    ],
)
def test_what_is_no_difference(after: str) -> None:
    """What says the same in other words is equal, either way round."""
    assert words(difference(NET, after)) == []
    assert words(difference(after, NET)) == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(edited(("[1, 1]", "[2, 2]")), ["Conv.strides"], id="attribute"),
        pytest.param(edited(("group = 1", "group = 2")), ["Conv.group"], id="attribute of default"),
        pytest.param(edited(("{1,2,3,4}", "{1,2,3,5}")), ["weight w 1"], id="one element"),
        pytest.param(
            edited(("float[2,2,1,1] w = {1,2,3,4}", "float[2,1,1,1] w = {1,2}")),
            ["weight w other type"],
            id="weight of another shape",
        ),
        pytest.param(edited(("Add (s, x)", "Add (r, x)")), ["Add[0] s r"], id="rewired"),
        pytest.param(edited((", b)", ")")), ["Conv[2] b -"], id="input omitted"),
        pytest.param(
            edited(("(r)\n", "(q)\n"), ("  s =", "  q = Tanh (r)\n  s =")),
            ["+Tanh", "Sigmoid[0] r q"],
            id="inserted",
        ),
        pytest.param(
            edited(("  r = Relu (c)\n", ""), ("(r)", "(c)")),
            ["-Relu", "Sigmoid[0] r c"],
            id="removed",
        ),
        pytest.param(edited(("Sigmoid", "Tanh")), ["Sigmoid -> Tanh"], id="replaced"),
        pytest.param(
            edited(("Add (s, x)", "Add (s, q)"), ("x) =>", "x, float[1,2,8,8] q) =>")),
            ["Add[1] x q", "input added - q"],
            id="another input",
        ),
        pytest.param(edited(("x)", "z)"), ("(x,", "(z,")), ["input renamed x z"], id="input name"),
        pytest.param(
            edited(("8] y)", "8] z)"), ("  y =", "  z =")),
            ["output renamed y z"],
            id="output name",
        ),
        pytest.param(
            edited(("float[1,2,8,8] x", "float[N,2,8,8] x")), ["input retyped x x"], id="type"
        ),
        pytest.param(
            edited(("8] y)", "8] y, float[1,2,8,8] r)")),
            ["output added - r"],
            id="another output",
        ),
    ],
)
def test_one_edit(after: str, expected: list[str]) -> None:
    """One edit is one difference, of its kind, and mirrored the other way round."""
    assert words(difference(NET, after)) == expected
    assert len(words(difference(after, NET))) == len(expected)


def test_swapped_operands_count_where_order_does() -> None:
    """Sub is not Add: its operands have places."""
    before = "g (float[2] x, float[2] z) => (float[2] y) { y = Sub (x, z) }"
    after = before.replace("(x, z) }", "(z, x) }")
    assert words(difference(before, after)) == ["Sub[0] x z", "Sub[1] z x"]
    before, after = before.replace("Sub", "Add"), after.replace("Sub", "Add")
    assert words(difference(before, after)) == []


def test_operands_follow_their_partners() -> None:
    """Of two that compute the same one is changed: whoever adds both reads what it read."""
    head = '<ir_version: 10, opset_import: ["" : 21]> g (float[2] a) => (float[2] y) {'
    before = f"{head} p = Relu (a) q = Relu (a) y = Add (p, q) }}"
    after = f"{head} n = Tanh (a) q = Relu (n) p = Relu (a) y = Add (q, p) }}"
    assert words(difference(before, after)) == ["+Tanh", "Relu[0] a n"]


def test_swapped_input_names_are_no_renaming() -> None:
    """Who calls the model names its inputs, so x - z is not z - x."""
    before = "g (float[2] x, float[2] z) => (float[2] y) { y = Sub (x, z) }"
    after = "g (float[2] z, float[2] x) => (float[2] y) { y = Sub (z, x) }"
    assert words(difference(before, after)) == [
        "Sub[0] x z",
        "Sub[1] z x",
        "input moved x x",
        "input moved z z",
    ]


def test_names_do_not_fool() -> None:
    """A value whose name stays while another node makes it is not the same value."""
    before = "g (float[2] x) => (float[2] y) { c = Relu (x) d = Neg (c) y = Exp (d) }"
    after = "g (float[2] x) => (float[2] y) { d = Relu (x) c = Neg (d) y = Exp (c) }"
    assert words(difference(before, after)) == []
    after = "g (float[2] x) => (float[2] y) { d = Neg (x) c = Relu (d) y = Exp (c) }"
    assert not difference(before, after).is_equal


def test_a_branch_is_compared() -> None:
    """What differs inside a body is found there; what it captures is what is round it."""
    before = """g (bool p, float[2] x, float[2] z) => (float[2] y) {
      a = Neg (x)
      y = If (p) <
        then_branch = t () => (float[2] u) { u = Relu (a) },
        else_branch = e () => (float[2] v) { k = Exp (z) v = Add (k, a) }>
    }"""
    assert words(difference(before, before.replace("u = Relu", "u = Tanh"))) == ["Relu -> Tanh"]
    renamed = before.replace(" a ", " q ").replace("a)", "q)").replace("k", "m").replace(" u", " h")
    assert words(difference(before, renamed)) == []
    assert words(difference(before, before.replace("Exp (z)", "Exp (x)"))) == ["Exp[0] z x"]


def test_inputs_of_nested_bodies_are_not_mistaken() -> None:
    """The first input of an inner body is not the first input of the body round it."""
    text = """g (int64 n, bool c, float[2] x) => (float[2] y) {
      y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] s) => (bool k1, float[2] s2) {
        k1 = Identity (k)
        s2 = Loop (n, c, s) <body = d (int64 j, bool l, float[2] t) => (bool l1, float[2] t2) {
          l1 = Identity (l)
          f = Cast <to = 1> (j)
          t2 = Add (t, f) }> }>
    }"""
    assert words(difference(text, text)) == []
    assert words(difference(text, text.replace("(j)", "(i)"))) == ["Cast[0] j i"]


FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
g (float[2] x) => (float[2] y) { h = d.f (x) y = Neg (h) }
<domain: "d", opset_import: ["" : 17]>
f (a) => (b) { t = Relu (a) b = Exp (t) }"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("b = Exp (t)", "b = Tanh (t)", ["Exp -> Tanh"]),
        ("t = Relu (a) b = Exp (t)", "k = Relu (a) b = Exp (k)", []),
        ("f (", "q (", ["function renamed f q"]),
        ('"d" : 1', '"d" : 2', ["opset d 1 2"]),
        ('"d" : 1', '"d" : 1, "e" : 1', []),
    ],
)
def test_functions(old: str, new: str, expected: list[str]) -> None:
    """Functions are compared by name, then by body; imports that no node uses do not count."""
    after = FUNCTIONS.replace(old, new).replace("d.f", "d.q" if new == "q (" else "d.f")
    assert words(difference(FUNCTIONS, after)) == expected


def test_a_default_that_another_opset_has() -> None:
    """Softmax without an axis is another operator from opset 13 on."""
    text = """<ir_version: 8, opset_import: ["" : 12]>
    g (float[2,3] x) => (float[2,3] y) { y = Softmax (x) }"""
    assert words(difference(text, text.replace("12", "13"))) == ["Softmax.axis", "opset  12 13"]
    relu = text.replace("Softmax", "Relu")
    assert words(difference(relu, relu.replace("12", "13"))) == ["opset  12 13"]


def test_duplicates_merged_into_one() -> None:
    """One of two equal computations less is that node; who reads the other reads the same."""
    before = "g (float[2] x) => (float[2] y) { a = Relu (x) b = Relu (x) y = Sub (a, b) }"
    after = "g (float[2] x) => (float[2] y) { a = Relu (x) y = Sub (a, a) }"
    assert words(difference(before, after)) == ["-Relu"]
    assert words(difference(after, before)) == ["+Relu"]


def test_branches_that_differ_in_weights_only() -> None:
    """Branches that nothing tells apart once their weights are new are paired in order."""
    before = """g (float[2,1] x) => (float[2,1] y) <float[1,1] v = {1}, float[1,1] w = {2}> {
      a = MatMul (x, v) b = MatMul (x, w) y = Add (a, b)
    }"""
    after = before.replace("{1}", "{3}").replace("{2}", "{4}")
    assert words(difference(before, after)) == ["weight v 1", "weight w 1"]


def test_random_nodes_are_told_apart() -> None:
    """Two draws are not one, and the same draws in the same places are equal."""
    text = """g () => (float[2] y, float[2] z) {
      r = RandomNormal <shape = [2]> ()
      s = RandomNormal <shape = [2]> ()
      y = Sub (r, s)
      z = Neg (r)
    }"""
    assert words(difference(text, text)) == []
    assert words(difference(text, text.replace("(r, s)", "(r, r)"))) == ["Sub[1] s r"]


def test_facets_count_if_they_are_to() -> None:
    """What does not count by default is found all the same, and counts on demand."""
    after = edited(("c =", "k ="), ("(c)", "(k)")).replace("  s", "  s", 1)
    found = difference(NET, after)
    assert found.is_equal
    assert [remark.facet for remark in found.all_remarks] == ["names"]
    found = difference(NET, after, frozenset())
    assert words(found) == ["names c k"]
    assert not found.is_equal


def test_order_of_nodes() -> None:
    """Another topological order is equal, and can be counted."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Exp (x) y = Sub (a, b) }"
    after = "g (float[2] x) => (float[2] y) { b = Exp (x) a = Neg (x) y = Sub (a, b) }"
    assert difference(before, after).is_equal
    assert [remark.facet for remark in difference(before, after).all_remarks] == ["order"]


def test_an_input_with_a_default() -> None:
    """The data that stands in for an input that is not given is compared."""
    proto = proto_from_text("g (float[2] x, float[2] k) => (float[2] y) { y = Add (x, k) }")
    models = []
    for data in ([1, 2], [1, 3]):
        proto.graph.ClearField("initializer")
        proto.graph.initializer.append(numpy_helper.from_array(np.array(data, np.float32), "k"))
        models.append(model_from_bytes(proto.SerializeToString()))
    assert words(difference(models[0], models[1])) == ["weight k 1"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (np.array([1, 2], np.float32), np.array([1, 4], np.float32), (1, 2, 2.0, 0.5)),
        (np.array([0.0], np.float32), np.array([-0.0], np.float32), (1, 1, 0.0, 0.0)),
        (np.array([np.nan, 1], np.float32), np.array([np.nan, 1], np.float32), (0, 2, 0.0, 0.0)),
        (np.array([2**63 - 1]), np.array([-(2**63)]), (1, 1, float(2**64), 2.0)),
        (np.array([True, False]), np.array([True, True]), (1, 2, 1.0, 1.0)),
        (np.array(["a"], dtype=object), np.array(["b"], dtype=object), (1, 1, None, None)),
        (np.zeros(0, np.float32), np.zeros(0, np.float32), (0, 0, 0.0, 0.0)),
    ],
)
def test_distance(first: np.ndarray, second: np.ndarray, expected: tuple[object, ...]) -> None:
    """Weights are measured in their own type, to the last bit, the same both ways."""
    for one, other in ((first, second), (second, first)):
        found = distance(ArrayTensor(one), ArrayTensor(other))
        assert found is not None
        shown = (found.changed, found.size, found.max_abs, found.max_rel)
        assert shown == pytest.approx(expected)


SEQUENCES = "g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity (x) }"


def test_types_that_are_no_tensors() -> None:
    """A sequence of something else is another type, and what it says beside that is not."""
    after = SEQUENCES.replace("float[2]", "int64[2]", 1)
    assert words(difference(SEQUENCES, after)) == ["input retyped x x"]
    noted = proto_from_text(SEQUENCES)
    noted.graph.input[0].doc_string = "a list"
    found = difference(SEQUENCES, model_from_bytes(noted.SerializeToString()))
    assert found.is_equal
    assert [remark.facet for remark in found.all_remarks] == ["doc"]


CALLS = """<ir_version: 10, opset_import: ["" : 21, "l" : 1]>
    g (float[2] x) => (float[2] y) { y = l.f (x) }
    <domain: "l", opset_import: ["" : 21, "idle" : 1]> f (a) => (r) { r = Relu (a) }"""


def test_imports_of_functions() -> None:
    """What the nodes of a function mean counts; an import that none of them needs is a remark."""
    after = CALLS.replace('"" : 21, "idle"', '"" : 13, "idle"')
    assert words(difference(CALLS, after)) == ["function redeclared f f"]
    unused = difference(CALLS, CALLS.replace('"idle" : 1', '"idle" : 2'))
    assert unused.is_equal
    assert [remark.facet for remark in unused.all_remarks] == ["metadata"]


def test_a_body_that_only_one_node_has() -> None:
    """It is an attribute that is gone."""
    body = ", b = q () => (float[2] s) { s = Exp (x) }"
    before = f"""<ir_version: 10, opset_import: ["" : 21, "l" : 1]>
        g (float[2] x) => (float[2] y) {{
            y = l.Odd <a = p () => (float[2] r) {{ r = Neg (x) }}{body}> (x) }}"""
    after = before.replace(body, "")
    assert words(difference(before, after)) == ["Odd.b"]


def test_a_constant_that_reads() -> None:
    """It is no valid model, and compared all the same; what it holds does not depend on that."""
    before = """g (float[2] x) => (float[2] y) {
        n = Neg (x) c = Constant <value = float[2] {1, 2}> (n) y = Add (x, c) }"""
    assert words(difference(before, before.replace("{1, 2}", "{1, 3}"))) == ["weight c 1"]
    after = before.replace("Neg", "Exp").replace("Add", "Mul")
    assert "Add -> Mul" in words(difference(before, after))


def test_infinity_is_valid_json() -> None:
    """JSON has no infinity, so it is written as text."""
    after = model_from_bytes(_with_infinity().SerializeToString())
    record = parts_of(DiffOutcome(("a", "b"), difference(NET, after)))
    text = json.dumps(record, allow_nan=False)
    assert '"max_abs": "inf"' in text


def _with_infinity() -> onnx.ModelProto:
    proto = proto_from_text(NET)
    weight = numpy_helper.from_array(
        np.array([1, 2, 3, np.inf], np.float32).reshape(2, 2, 1, 1), "w"
    )
    proto.graph.initializer[0].CopyFrom(weight)
    return proto
