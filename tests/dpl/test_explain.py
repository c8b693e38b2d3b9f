"""What is said of a pattern that does not match: chains by their nodes, conditions by facts."""

from __future__ import annotations

import pytest

from dplcli.dpl.explain import MatchTrace, Tracer
from tests.helpers import model_from_text, rule, selected

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
