"""What is said of a pattern that does not match: chains by their nodes, conditions by facts."""

from __future__ import annotations

import pytest

from dplcli.language.explain import MatchTrace, Tracer
from tests.support.helpers import model_from_text, rule, selected

CASTS = """g (float[2] a) => (float[2] y) {
    r = Abs (a) n1 = Neg (r) n2 = Neg (n1) y = Relu (n2) }"""
SUMS = """g (float[2] a, float[2] b) => (float[2] y)
    <float[2] c = {1, 2}> { s1 = Add (a, b) s2 = Add (s1, c) y = Relu (s2) }"""


def traced(pattern: str, text: str) -> MatchTrace:
    """Trace a pattern at the last node."""
    *_, root = model_from_text(text).graph
    return Tracer(rule(pattern)).trace(root)


@pytest.mark.parametrize(
    ("pattern", "text", "part", "expected", "found"),
    [
        (
            "Relu(repeat(Neg, x, min=3))",
            CASTS,
            "repeat(Neg, …, min=3)",
            "Neg, as node 3 of a chain of 3 or more",
            "Abs 'r'",
        ),
        (
            "Relu(repeat(Add, x, const(k), min=2))",
            SUMS,
            "const(k)",
            "a constant, in node 2 of a chain of 2 or more",
            "the input 'b'",
        ),
        ("Relu(repeat(Neg, Exp(x)))", CASTS, "Exp", "Exp", "Abs 'r'"),
        (
            "Relu(repeat(Neg(Neg(_)), x, min=2))",
            CASTS,
            "Neg",
            "Neg, in step 2 of a chain of 2 or more",
            "Abs 'r'",
        ),
    ],
)
def test_the_node_of_a_chain_is_named(
    pattern: str, text: str, part: str, expected: str, found: str
) -> None:
    """The first one that does not fit, and how many there must be."""
    mismatch = traced(pattern, text).mismatch

    assert mismatch is not None
    assert (mismatch.pattern, mismatch.expected) == (part, expected)
    assert mismatch.found.startswith(found)


@pytest.mark.parametrize(
    ("pattern", "matched", "of"),
    [
        ("Relu(repeat(Neg, x, min=3))", 3, 4),
        ("Relu(repeat(Neg, Exp(x)))", 3, 4),
        ("Relu(repeat(Neg(Neg(_)), x, min=2))", 3, 5),
        ("Relu(Exp(repeat(Neg, x, min=2)))", 1, 4),
    ],
)
def test_nodes_of_chains_are_counted(pattern: str, matched: int, of: int) -> None:
    """Those that there are, or that there have to be."""
    trace = traced(pattern, CASTS)

    assert (trace.matched, trace.of) == (matched, of)


@pytest.mark.parametrize(
    ("pattern", "condition", "facts"),
    [
        ("Softmax(x, axis=k)", "k == 2 and x.rank == 4", ["k = 1", "x float32[2,3]"]),
        ("Softmax(x, axis=k)", "x.uses == 2", ["x.uses = 1"]),
        ("y = Softmax(x)\ny", "y.attrs.axis == 2", ["y.attrs.axis = 1"]),
        ("y = Softmax(x)\ny", "y.attrs.alpha == 2", []),
        ("Softmax(*a)", "len(a) == 2", ["a [float32[2,3]]"]),
    ],
)
def test_the_facts_of_a_condition_are_told(pattern: str, condition: str, facts: list[str]) -> None:
    """Attributes and counts by their value, others by their type."""
    text = "g (float[2,3] a) => (float[2,3] y) { y = Softmax <axis = 1> (a) }"
    (refused,) = selected(rule(pattern, condition), text).refused

    assert refused.facts == facts


@pytest.mark.parametrize(
    ("pattern", "links"),
    [
        ("Relu(repeat(Neg, x))", "a chain of 2 nodes"),
        ("Relu(repeat(Neg, x, max=1))", "a chain of 1 node"),
        ("Relu(repeat(Neg, Exp(x)))", "a chain of 2 nodes"),
        ("Relu(repeat(Neg(Neg(_)), x))", "a chain of 1 step"),
    ],
)
def test_what_a_chain_has_matched_is_counted(pattern: str, links: str) -> None:
    """Whether the pattern fits, or fails above the chain."""
    (line,) = [item for item in traced(pattern, CASTS).lines if item.pattern.startswith("repeat")]

    assert (line.status, line.found) == ("matched", links)


def test_a_chain_that_fails_inside_is_marked() -> None:
    """The part itself has no line, since it means something else in each node."""
    (line,) = [
        item
        for item in traced("Relu(repeat(Add, x, const(k), min=2))", SUMS).lines
        if item.status == "failed"
    ]

    assert line.pattern == "repeat(Add, …, …, min=2)"
    assert "node 2" in line.found


# What is wrong is what is wrong with the largest part that fits.


GELU = """
    _twice = Add(Erf(Div(x, const(root))), 1.0)
    _cdf = Mul(_twice, 0.5)
    _long = Mul(x, _twice)
    y = Mul(Mul(x, 0.5) | Div(x, 2.0), _twice) | Mul(x, _cdf) | Mul(_long, 0.5) | Div(_long, 2.0)
    y
"""


@pytest.mark.parametrize(
    "last",
    [
        "m = Mul (x, t) y = Mul (m, half)",
        "m = Mul (x, half) y = Mul (m, t)",
        "m = Mul (half, x) y = Mul (t, m)",
        "m = Mul (t, half) y = Mul (m, x)",
        "m = Mul (half, t) y = Mul (x, m)",
    ],
)
@pytest.mark.parametrize(("half", "root"), [(0.25, 1.41), (0.5, -1)])
def test_the_largest_part_that_fits_says_what_is_wrong(last: str, half: float, root: float) -> None:
    """Not what was tried last: each way to write a factor is tried at each node."""
    text = f"""g (float[2] x) => (float[2] y) <float half = {{{half}}}, float r = {{1.41}},
        float one = {{1}}> {{ d = {"Div (x, r)" if root > 0 else "Div (r, x)"} e = Erf (d)
        t = Add (e, one) {last} }}"""
    trace = traced(GELU, text)
    mismatch = trace.mismatch

    assert mismatch is not None
    assert trace.matched == 5
    if root > 0:
        assert (mismatch.expected, mismatch.found[-6:]) == ("the constant 0.5", "= 0.25")
    else:
        assert "'d'" not in mismatch.found
        assert {mismatch.found.split(" ")[2]} <= {"'x'", "'r'"}


@pytest.mark.parametrize(
    ("pattern", "expected", "found"),
    [
        pytest.param(
            "Add(same_shape(Relu(x), y), Neg(y))",
            "provably the shape of the input 'b' of type float32[K]",
            "of type float32[N]",
            id="what-is-not-known-is-not-said-to-differ",
        ),
        pytest.param(
            "Add(same_shape(Relu(x), c), Neg(y) & ~Exp(c))",
            "the shape of a value that takes no part",
            "of type float32[N]",
            id="what-takes-no-part",
        ),
        pytest.param("Add(Relu(x) & ~Relu(a), y)", "~Relu(a)", "Relu 'r'", id="what-is-denied"),
        pytest.param(
            "Add(Relu(x).not_used_by(Neg(_)), y)",
            "Relu(x).not_used_by(Neg(_))",
            "Relu 'r'",
            id="what-does-not-follow",
        ),
    ],
)
def test_what_is_said_of_shapes_and_denials(pattern: str, expected: str, found: str) -> None:
    """Two shapes that print alike do not differ; what is denied is said whole."""
    text = """g (float[N] a, float[K] b) => (float[M] o) {
        r = Relu (a) m = Neg (b) n = Neg (r) o = Add (r, m) }"""
    mismatch = traced(pattern, text).mismatch

    assert mismatch is not None
    assert mismatch.expected == expected
    assert found in mismatch.found


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("dims(x) == dims(y)", "is not proved to hold"),
        ("same_shape(x, y)", "is not proved to hold"),
        ("dims(x) == [7]", "does not hold"),
        ("dims(x) == dims(z)", "does not hold"),
        ("x.rank == 2", "does not hold"),
    ],
)
def test_a_size_that_is_not_proved_equal_is_not_said_to_differ(condition: str, said: str) -> None:
    """Shapes of other ranks, and numbers, do differ."""
    text = """g (float[N] a, float[M] b, float[M, 3] c) => (float[K] o) {
        p = Relu (a) q = Neg (b) r = Flatten (c) o = own.F (p, q, r) }"""
    refused = selected(rule("own.F(x, y, z)", condition), text)
    assert [item.reason for item in refused.refused] == [f"{condition!r} {said}"]
