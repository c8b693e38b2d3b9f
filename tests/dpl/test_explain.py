"""What is said of a pattern that does not match: chains by their nodes."""

from __future__ import annotations

import pytest

from dplcli.dpl.explain import MatchTrace, Tracer
from tests.helpers import model_from_text, rule

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
