"""Bodies of If and Loop that run once, or not at all: what takes their place, and what stays."""

from __future__ import annotations

import onnx
import pytest

from tests.rewrites.test_simplification import ops, prepared
from tests.support.helpers import check_sound

MAIN = "g (float[2] x) => (float[2] y)"
CONSTANTS = "bool yes = {1}, bool no = {0}, int64 none = {0}, int64 one = {1}, int64 two = {2}"
TURN = "body = b (int64 i, bool c, float[2] v)"
KEEP = "d = Identity (c)"


def inlined(text: str) -> list[str]:
    """Inline, compare the numbers, and list the operators that are left."""
    result = prepared(text, "inline_bodies")
    check_sound(result.before, result.after)
    return ops(result)


def branches(then: str, otherwise: str = "s = Sin (x)", *, values: str = "") -> str:
    """Write the attributes of an If."""
    return f"""<then_branch = p () => (float[2] r) {values} {{ {then} }},
        else_branch = q () => (float[2] s) {{ {otherwise} }}>"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"y = If (yes) {branches('r = Neg (x)')}", ["Neg"]),
        (f"y = If (no) {branches('r = Neg (x)')}", ["Sin"]),
        (f"y = If (yes) {branches('r = Add (x, k)', values='<float[2] k = {3, 4}>')}", ["Add"]),
        (f"e = Exp (x) y = If (no) {branches('r = Neg (e)')}", ["Sin"]),
        (f"y = Loop (one, yes, x) <{TURN} => (bool d, float[2] w) {{ {KEEP} w = Neg (v) }}>", None),
        (f"y = Loop (one, , x) <{TURN} => (bool d, float[2] w) {{ {KEEP} w = Neg (v) }}>", None),
        (
            f"""z = Loop (none, yes, x) <{TURN} => (bool d, float[2] w) {{ {KEEP} w = Exp (v) }}>
            y = Neg (z)""",
            None,
        ),
        (
            f"""z = Loop (two, no, x) <{TURN} => (bool d, float[2] w) {{ {KEEP} w = Exp (v) }}>
            y = Neg (z)""",
            None,
        ),
        (
            f"""y = Loop (two, yes, x) <{TURN} => (bool d, float[2] w) <bool d = {{0}}>
            {{ w = Neg (v) }}>""",
            None,
        ),
    ],
)
def test_what_runs_once_takes_the_place_of_its_node(body: str, expected: list[str] | None) -> None:
    """The chosen branch, the only turn, or what a loop without a turn starts from; no more."""
    assert inlined(f"{MAIN} <{CONSTANTS}> {{ {body} }}") == (expected or ["Neg"])


@pytest.mark.parametrize(
    "text",
    [
        f"g (float[2] x, bool c) => (float[2] y) {{ y = If (c) {branches('r = Neg (x)')} }}",
        f"""g (float[2] x, bool c) => (float[2] y) <bool c = {{1}}> {{
            y = If (c) {branches("r = Neg (x)")} }}""",
        *(
            f"""g (float[2] x, bool k, int64 n) => (float[2] y) <{CONSTANTS}> {{
            y = Loop ({given}, x) <{TURN} => (bool d, float[2] w) {{ {KEEP} w = Neg (v) }}> }}"""
            for given in ("two, ", "two, yes", "one, k", "n, yes", ", k")
        ),
        f"""g (float[2] x) => (float[2] y, float[0,2] z) <{CONSTANTS}> {{
            y, z = Loop (none, yes, x) <{TURN} => (bool d, float[2] w, float[2] o)
            {{ {KEEP} w = Neg (v) o = Exp (v) }}> }}""",
    ],
    ids=["given", "overridable", "two", "two-yes", "may-not-run", "any", "while", "no-rows"],
)
def test_what_may_run_more_often_or_not_at_all_stays(text: str) -> None:
    """A condition or a number that is given, and rows of which there are none."""
    result = prepared(text, "inline_bodies")

    assert result.done.applications == ()


def test_names_stay_where_they_are_free() -> None:
    """Both branches, and another If, have the names; nodes keep theirs, values if they can."""
    inner = "[n] t = Exp (x) [m] r = Neg (t)"
    result = prepared(
        f"""g (float[2] x) => (float[2] y, float[2] z, float[2] u) <{CONSTANTS}> {{
        y = If (yes) {branches(inner, "t = Abs (x) s = Cos (t)")}
        z = If (no) {branches("t = Abs (x) r = Cos (t)", "[k] t = Tan (x) s = Sin (t)")}
        w = Exp (x) u = If (yes) {branches("e = Exp (w) r = Neg (e)")} }}""",
        "inline_bodies",
    )
    names = [node.name for node in result.after.graph.node]
    made = {name for node in result.after.graph.node for name in node.output}

    assert ops(result) == ["Exp", "Neg", "Tan", "Sin", "Exp", "Exp", "Neg"]
    assert {"n", "m", "k"} <= set(names)
    assert made >= {"y", "z", "u", "w", "e"}
    assert len(made) == len(ops(result))
    check_sound(result.before, result.after)


def test_bodies_in_a_body_come_along_with_what_they_capture() -> None:
    """What they read of the branch, and round it, is what they read afterwards."""
    nested = branches("m = Mul (t, e) r = Add (m, k)", "m = Sub (t, w) s = Mul (m, k)")
    text = f"""g (float[2] x, bool c) => (float[2] y) <{CONSTANTS}, float[2] w = {{5, 6}}> {{
        e = Exp (x) unread = Sin (w)
        y = If (yes) <then_branch = o () => (float[2] z) <float[2] k = {{3, 4}}> {{
            t = Add (e, k) z = If (c) {nested} }},
        else_branch = o2 () => (float[2] z2) {{ z2 = Mul (e, unread) }}> }}"""
    result = prepared(text, "inline_bodies")
    (left,) = [node for node in result.after.graph.node if node.op_type == "If"]

    assert ops(result) == ["Exp", "Add", "If"]
    assert {a.name: [n.op_type for n in a.g.node] for a in left.attribute} == {
        "then_branch": ["Mul", "Add"],
        "else_branch": ["Sub", "Mul"],
    }
    check_sound(result.before, result.after)


@pytest.mark.parametrize(
    ("then", "outputs", "expected"),
    [
        ("a = Exp (x) b = Identity (a)", "float[2] a, float[2] b", ["Exp", "Identity"]),
        ("a = Exp (x)", "float[2] a, float[2] k", ["Constant", "Exp"]),
    ],
    ids=["twice", "stored"],
)
def test_what_the_graph_returns_keeps_its_names(
    then: str, outputs: str, expected: list[str]
) -> None:
    """A value that is returned twice is copied, and data that is returned is a node."""
    text = f"""g (float[2] x) => (float[2] y, float[2] z) <{CONSTANTS}> {{
        y, z = If (yes) <then_branch = p () => ({outputs}) <float[2] k = {{3, 4}}> {{ {then} }},
        else_branch = q () => (float[2] c, float[2] d) {{ c = Sin (x) d = Cos (x) }}> }}"""

    assert sorted(inlined(text)) == expected


@pytest.mark.parametrize(
    ("kind", "make", "take"),
    [
        ("seq", "t = Exp (x) r = SequenceConstruct (t, x)", "y = SequenceAt (f, one)"),
        ("optional", "t = Exp (x) r = Optional (t)", "y = OptionalGetElement (f)"),
    ],
)
def test_a_branch_may_return_what_is_no_tensor(kind: str, make: str, take: str) -> None:
    """Sequences and optionals are values like others."""
    text = f"""{MAIN} <{CONSTANTS}> {{
        f = If (yes) <then_branch = p () => ({kind}(float[2]) r) {{ {make} }},
        else_branch = q () => ({kind}(float[2]) s) {{ {make.replace("r =", "s =")} }}> {take} }}"""
    result = prepared(text, "inline_bodies")

    assert "If" not in ops(result)
    onnx.checker.check_model(result.after, full_check=True)


def test_states_and_rows_of_the_only_turn() -> None:
    """The number of the turn is 0, states change places, and what is stacked gets an axis."""
    text = f"""g (float[2] x, float[2] u) => (float[2] y, float[2] z, float[1,2] w) <{CONSTANTS}> {{
        y, z, w = Loop (one, yes, x, u) <body = b (int64 i, bool c, float[2] p, float[2] q)
        => (bool d, float[2] r, float[2] s, float[2] t) {{
            {KEEP} f = Cast <to = 1> (i) r = Add (q, f) s = Neg (p) t = Exp (p) }}> }}"""

    assert sorted(inlined(text)) == ["Add", "Cast", "Exp", "Neg", "Unsqueeze"]


def test_the_body_of_a_function_gets_nodes_for_data_and_keeps_its_references() -> None:
    """A function stores nothing, and its attributes are given at each call."""
    then = "t = Constant <value_float: float = @a> () u = Add (x, k) r = Mul (u, t)"
    text = f"""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        {MAIN} {{ y = own.f <a = 2.0> (x) }}
        <domain: "own", opset_import: ["" : 21]> f <a> (x) => (y) {{
        c = Constant <value = bool {{1}}> ()
        y = If (c) {branches(then, values="<float[2] k = {3, 4}>")} }}"""
    result = prepared(text, "inline_bodies")
    body = result.after.functions[0].node

    assert sorted(node.op_type for node in body) == ["Add", "Constant", "Constant", "Mul"]
    assert sorted(a.ref_attr_name for node in body for a in node.attribute) == ["", "a"]
    check_sound(result.before, result.after)


def test_outputs_that_are_left_out_stay_left_out() -> None:
    """Only the last state of an LSTM is wanted, and only it is made beside the first output."""
    weights = "float[1,8,3] w, float[1,8,2] k"
    result = prepared(
        f"""g (float[1,2,3] x, {weights}) => (float[1,2,2] y) <{CONSTANTS}> {{
        y = If (yes) <then_branch = p () => (float[1,2,2] r) {{
            o, , r = LSTM <hidden_size = 2> (x, w, k) }},
        else_branch = q () => (float[1,2,2] s) {{ n, s = LSTM <hidden_size = 2> (x, w, k) }}> }}""",
        "inline_bodies",
    )
    (node,) = result.after.graph.node

    assert list(node.output)[1:] == ["", "y"]
    check_sound(result.before, result.after)


SQUEEZE = """g (float[1,4] x) => (float[k] y) <int64 zero = {0}, int64 one = {1}> {
    s = Shape (x) d = Gather (s, zero) c = Equal (d, one)
    y = If (c) <then_branch = t () => (float[4] r) <int64[1] a = {0}> { r = Squeeze (x, a) },
        else_branch = e () => (float[1,4] q) { q = Identity (x) }> }"""
SEQUENCES = """g (float[n,2] x) => (float[a,2] y, float[2] z)
    <float[2] k = {1, 2}, float[2] l = {3, 4}, int64 one = {1}> {
    q = SequenceConstruct (k, l) z = SequenceAt (q, one)
    r = SequenceConstruct (x, x) y = ConcatFromSequence <axis = 0> (r) }"""
SPLITS = """g (float[n,5] x)
    => (float[n,5] y, float[n,2] a, float[n,3] b, float[n,3] c, float[n,2] d)
    <int64[1] all = {5}, int64[2] two = {2, 3}> {
    w = Split <axis = 1> (x, all) y = Neg (w) a, b = Split <axis = 1> (x, two)
    c, d = Split <axis = -1, num_outputs = 2> (x) }"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(SQUEEZE, ["Squeeze"], id="squeeze-of-torch"),
        pytest.param(SEQUENCES, ["Concat", "Constant"], id="sequences"),
        pytest.param(SPLITS, ["Neg", "Split", "Split"], id="splits"),
    ],
)
def test_what_exporters_leave_is_cleaned(text: str, expected: list[str]) -> None:
    """A condition on a known size, sequences that are taken apart again, a Split into one part."""
    result = prepared(text)

    assert sorted(ops(result)) == expected
    check_sound(result.before, result.after)
