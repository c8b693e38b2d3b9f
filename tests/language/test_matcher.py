"""What a pattern of nodes and names matches: completeness, identity, commuted operands."""

import re

import pytest

from dplcli.language import Matcher, is_op, matcher, wildcard
from dplcli.language.matcher import RestStep, State
from tests.support.helpers import (
    all_bindings,
    check_match,
    find_solutions,
    model_from_text,
    pattern_of,
)

AB = "g (float[2] a, float[2] b) => (float[2] o)"
BOTH = "g (float[2] a) => (float[2] o) { r = Relu (a) s = Sigmoid (a) o = Mul (r, s) }"


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ("m = Mul (a, b) o = Add (m, a)", "x=a y=b"),
        ("m = Mul (b, a) o = Add (m, a)", "x=a y=b"),
        ("m = Mul (a, b) o = Add (m, b)", "x=b y=a"),
        ("m = Mul (b, a) o = Add (b, m)", "x=b y=a"),
    ],
)
def test_commuted_operands_are_searched_completely(body: str, bound: str) -> None:
    """R1: add(mul(x, y), x) is found in all four spellings, two of which TVM misses."""
    check_match("Add(Mul(x, y), x)", f"{AB} {{ {body} }}", {"o": bound})


def test_a_name_that_fits_nowhere_is_no_match() -> None:
    """R1: add(mul(x, y), x) does not match where the other operand is a third value."""
    check_match(
        "Add(Mul(x, y), x)",
        "g (float[2] a, float[2] b, float[2] c) => (o) { m = Mul (a, b) o = Add (m, c) }",
        {},
    )


@pytest.mark.parametrize("pattern", ["(x | Relu(x)) - x", "(Relu(x) | x) - x"])
@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ("t = Relu (a) o = Sub (t, a)", {"o": "x=a"}),
        ("o = Sub (a, a)", {"o": "x=a"}),
        ("t = Relu (a) o = Sub (t, t)", {"o": "x=t"}),
        ("t = Relu (a) o = Sub (a, t)", {}),
    ],
)
def test_alternatives_are_reconsidered(pattern: str, body: str, bound: dict[str, str]) -> None:
    """R2: an alternative that leads nowhere gives way to the other, in either order."""
    check_match(pattern, f"{AB} {{ {body} }}", bound)


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ("o = Add (a, a)", {"o": "x=a"}),
        ("o = Add (a, b)", {}),
        ("r = Relu (a) s = Relu (a) o = Add (r, s)", {}),
        ("r = Relu (a) o = Add (r, r)", {"o": "x=r"}),
    ],
)
def test_a_name_is_one_value(body: str, bound: dict[str, str]) -> None:
    """R4: two uses of a name are the same value, not two values computed alike."""
    check_match("Add(x, x)", f"{AB} {{ {body} }}", bound)


def test_equal_constants_are_two_values() -> None:
    """Two constants with the same data do not bind one name."""
    text = "g () => (float[1] o) <float[1] p = {1}, float[1] q = {1}> { o = Add (p, q) }"
    check_match("Add(const(c), const(c))", text, {})
    check_match("Add(const(c), const(d))", text, {"o": "c=p d=q"})


def test_anonymous_wildcards_are_each_their_own() -> None:
    """Every _ is a value anew, and may also be the same one."""
    check_match("Add(_, _)", f"{AB} {{ o = Add (a, b) }}", {"o": ""})
    check_match("Add(_, _)", f"{AB} {{ o = Add (a, a) }}", {"o": ""})


def test_one_unnamed_wildcard_object_is_one_value() -> None:
    """A wildcard object used twice is the same value, named or not."""
    any_value = wildcard()
    pattern = is_op("Add")(any_value, any_value)
    check_match(pattern, f"{AB} {{ o = Add (a, b) }}", {})
    check_match(pattern, f"{AB} {{ o = Add (a, a) }}", {"o": ""})


def test_different_node_patterns_bind_different_nodes() -> None:
    """F2: two node patterns never share a node; leaves may coincide."""
    pattern = "Add(Relu(x), Relu(y))"
    check_match(pattern, f"{AB} {{ r = Relu (a) o = Add (r, r) }}", {})
    check_match(pattern, f"{AB} {{ r = Relu (a) s = Relu (a) o = Add (r, s) }}", {"o": "x=a y=a"})


def test_three_projections_bind_three_nodes() -> None:
    """F2: three MatMul of one input are three nodes, never one node three times."""
    pattern = "Concat(MatMul(x, a), MatMul(x, b), MatMul(x, c))"
    head = "g (float[2,2] i, float[2,2] p, float[2,2] q, float[2,2] r) => (o)"
    three = "k = MatMul (i, p) l = MatMul (i, q) m = MatMul (i, r)"
    check_match(
        pattern, f"{head} {{ {three} o = Concat <axis=0> (k, l, m) }}", {"o": "a=p b=q c=r x=i"}
    )
    check_match(pattern, f"{head} {{ {three} o = Concat <axis=0> (k, k, k) }}", {})


DIAMOND = "c = Conv(x, w)\nAdd(Relu(c), LeakyRelu(c))"
CONVS = "g (float[1,1,4,4] a, float[1,1,1,1] k) => (o)"


def test_a_diamond_is_one_node() -> None:
    """An assigned name used twice is one node."""
    body = "c = Conv (a, k) r = Relu (c) l = LeakyRelu (c) o = Add (r, l)"
    check_match(DIAMOND, f"{CONVS} {{ {body} }}", {"o": "c=c w=k x=a"})


def test_a_fake_diamond_is_no_match() -> None:
    """Two convolutions that compute the same are not the one that the pattern names."""
    body = "c = Conv (a, k) d = Conv (a, k) r = Relu (c) l = LeakyRelu (d) o = Add (r, l)"
    check_match(DIAMOND, f"{CONVS} {{ {body} }}", {})


@pytest.mark.parametrize(
    "line",
    ["y = Relu(x) | Sigmoid(x)", "y = optional(Relu)(Sigmoid(x))", "y = (x | Relu(x)).has_rank(1)"],
)
def test_an_assigned_alternative_is_one_value(line: str) -> None:
    """A name for an alternative, used twice, is one value, as for any pattern object."""
    pattern = f"{line}\nMul(y, y)"
    chain = "g (float[2] a) => (float[2] o) { s = Sigmoid (a) r = Relu (s) o = Mul (r, s) }"
    check_match(pattern, BOTH, {})
    check_match(pattern, chain, {})


def test_an_assigned_alternative_used_twice_still_matches() -> None:
    """Both uses of a named alternative match where they are one value."""
    text = "g (float[2] a) => (float[2] o) { s = Sigmoid (a) o = Mul (s, s) }"
    check_match("y = Relu(x) | Sigmoid(x)\nMul(y, y)", text, {"o": "x=a y=s"})


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_arithmetic_commutes(op: str) -> None:
    """Add and Mul match with their operands swapped."""
    check_match(f"{op}(Relu(x), y)", f"{AB} {{ r = Relu (b) o = {op} (a, r) }}", {"o": "x=b y=a"})


@pytest.mark.parametrize("op", ["Sub", "Div", "Pow", "MatMul", "PRelu"])
def test_other_operators_are_ordered(op: str) -> None:
    """What does not commute matches as written only."""
    check_match(f"{op}(Relu(x), y)", f"{AB} {{ r = Relu (b) o = {op} (a, r) }}", {})
    check_match(f"{op}(y, Relu(x))", f"{AB} {{ r = Relu (b) o = {op} (a, r) }}", {"o": "x=b y=a"})


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal"])
def test_logic_commutes(op: str) -> None:
    """And, Or, Xor and Equal match with their operands swapped."""
    text = f"g (bool[2] a, bool[2] b) => (bool[2] o) {{ r = Not (b) o = {op} (a, r) }}"
    check_match(f"{op}(Not(x), y)", text, {"o": "x=b y=a"})


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bit_operators_commute(op: str) -> None:
    """The bitwise operators match with their operands swapped."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
        g (int64[2] a, int64[2] b) => (int64[2] o) {{ r = BitwiseNot (b) o = {op} (a, r) }}"""
    check_match(f"{op}(BitwiseNot(x), y)", text, {"o": "x=b y=a"})


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean"])
def test_variadic_operators_commute(op: str) -> None:
    """Every order of three operands of a commutative variadic operator matches."""
    for order in ("r, s, a", "r, a, s", "s, r, a", "s, a, r", "a, r, s", "a, s, r"):
        text = f"{AB} {{ r = Relu (b) s = Sigmoid (b) o = {op} ({order}) }}"
        check_match(f"{op}(Relu(x), Sigmoid(x), y)", text, {"o": "x=b y=a"})


def test_further_inputs_may_stand_anywhere_in_a_commutative_call() -> None:
    """With ..., the arguments are found among more inputs, in any order."""
    text = f"{AB} {{ r = Relu (b) s = Sigmoid (b) o = Sum (a, s, a, r, a) }}"
    check_match("Sum(Relu(x), Sigmoid(x), ...)", text, {"o": "x=b"})
    check_match("Sum(Relu(x), Sigmoid(x))", text, {})


def test_a_foreign_operator_of_the_same_name_does_not_commute() -> None:
    """Commutativity is the standard schema's affair."""
    header = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
    text = f"{header} {AB} {{ r = Relu (b) o = own.Add (a, r) }}"
    check_match("own.Add(Relu(x), y)", text, {})
    check_match("own.Add(y, Relu(x))", text, {"o": "x=b y=a"})


@pytest.mark.parametrize(("op", "bound"), [("Add", {"o": "x=b y=a"}), ("Sub", {})])
def test_alternative_callees_commute_by_the_matched_node(op: str, bound: dict[str, str]) -> None:
    """R12: (Add | Sub) commutes on an Add and not on a Sub."""
    check_match("(Add | Sub)(Relu(x), y)", f"{AB} {{ r = Relu (b) o = {op} (a, r) }}", bound)


def test_preference_is_written_order_first() -> None:
    """Operands as written come before swapped ones, the left alternative before the right."""
    assert all_bindings("Add(x, y)", f"{AB} {{ o = Add (a, b) }}") == ["x=a y=b", "x=b y=a"]
    chain = f"{AB} {{ r = Relu (a) o = Sigmoid (r) }}"
    assert all_bindings("Sigmoid(x | Relu(x))", chain) == ["x=r", "x=a"]
    assert all_bindings("Sigmoid(Relu(x) | x)", chain) == ["x=a", "x=r"]


def test_optional_prefers_the_base() -> None:
    """optional(Relu)(p) is tried as p alone first, then with the Relu."""
    text = f"{AB} {{ s = Sigmoid (a) r = Relu (s) o = Neg (r) }}"
    check_match("Neg(optional(Relu)(Sigmoid(x)))", text, {"o": "x=a"})
    check_match("Neg(optional(Relu)(Sigmoid(x)))", text.replace("Neg (r)", "Neg (s)"), {"o": "x=a"})
    assert all_bindings("Neg(optional(Relu)(x))", text) == ["x=r", "x=s"]


def test_optional_takes_further_arguments() -> None:
    """optional(Add)(p, b) is p alone or Add of p and b, either way round."""
    text = f"{AB} {{ s = Sigmoid (a) t = Add (b, s) o = Neg (t) }}"
    check_match("Neg(optional(Add)(Sigmoid(x), y))", text, {"o": "x=a y=b"})


def test_both_sides_of_an_and_hold_at_one_value() -> None:
    """A pattern p & q matches what both match, and binds both sides."""
    text = f"{AB} {{ r = Relu (a) o = Neg (r) }}"
    check_match("Neg(Relu(x) & y)", text, {"o": "x=a y=r"})
    check_match("Neg(Relu(x) & Sigmoid(y))", text, {})


def test_all_solutions_are_found() -> None:
    """Sum of three wildcards has each of its six orders as a solution."""
    text = "g (float[2] a, float[2] b, float[2] c) => (o) { o = Sum (a, b, c) }"
    assert len(set(all_bindings("Sum(x, y, z)", text))) == 6


def test_nodes_of_a_solution() -> None:
    """A solution covers exactly the nodes that node patterns matched."""
    model = model_from_text(f"{AB} {{ r = Relu (a) s = Sigmoid (b) o = Add (r, s) }}")
    assert {found.nodes for found in find_solutions("Add(Relu(x), y)", model)} == {("o", "r")}


WORKED = [
    (
        "Add(MatMul(x, const(w)), y)",
        """g (float[1,1] a, float[1,1] b, float[1,1] c) => (float[1,1] s) <float[1,1] k = {1}> {
            p = MatMul (a, b) q = MatMul (c, k) s = Add (p, q) }""",
    ),
    ("Mul(~Relu(x), x)", "g (float[2] a) => (float[2] m) { r = Relu (a) m = Mul (r, a) }"),
    (
        "Sub(repeat(Neg, x), x)",
        "g (float[2] a) => (float[2] s) { c = Neg (a) d = Neg (c) s = Sub (d, c) }",
    ),
]


@pytest.mark.parametrize(("number", "pattern", "graph"), [(i, *w) for i, w in enumerate(WORKED)])
def test_the_worked_matches_go_as_the_documentation_says(
    number: int, pattern: str, graph: str
) -> None:
    """The goals of the examples in the module's documentation, in order, and which of them fail."""
    blocks = re.findall(r"::\n\n((?:    .+\n)+)", matcher.__doc__ or "")
    assert len(blocks) == len(WORKED)
    lines = [re.match(r"    (.+?)  +(.+)", line) for line in blocks[number].splitlines()]
    told = [(line[1], line[2].startswith("fails")) for line in lines if line is not None]
    assert len(told) == len(lines)
    assert told == goals_run(pattern, graph)


def goals_run(pattern: str, graph: str) -> list[tuple[str, bool]]:
    """Search once at the last node; return each goal, and whether it failed."""
    program = Matcher(pattern_of(pattern)).program
    for step in program.steps.values():
        step.is_decided = False
    *_, root = model_from_text(graph).graph
    value = root.outputs[0]
    assert value is not None
    state = State(root.graph, program.slot_count, 1000, value)
    goals = program.start(value)
    run = []
    while goals is not None:
        step, subject, rest = goals
        name = repr(step.pattern)
        if isinstance(step, RestStep):
            action = getattr(step.action, "func", step.action).__name__
            name = f"({action.strip('_').replace('after_link', 'after a link')})"
        following = step.run(state, subject, rest)
        where = "" if subject is None else f" at {subject.name}"
        run.append((f"{name}{where}", following is False))
        if following is False:
            goals, mark = state.choices.pop()
            state.undo(mark)
        else:
            goals = following
    return run
