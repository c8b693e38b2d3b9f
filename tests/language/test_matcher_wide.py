"""What a search at a wide node costs: twice as many inputs take twice as much memory, no more."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from dplcli.language.rule import read_match
from dplcli.passes.select import select_matches
from tests.diff.compared import calls_in
from tests.support.helpers import model_from_text, rule
from tests.support.models import node_making

if TYPE_CHECKING:
    from dplcli.ir import Node


def wide(op: str, width: int) -> Node:
    """Return a node that reads so many results of Relu."""
    names = [f"r{number}" for number in range(width)]
    made = " ".join(f"{name} = Relu (x)" for name in names)
    text = f"g (float[2] x) => (float[n] y) {{ {made} y = {op} ({', '.join(names)}) }}"
    return node_making(model_from_text(text.replace("Concat", "Concat <axis = 0>")), "y")


@pytest.mark.parametrize(
    ("op", "pattern"),
    [
        ("Concat", "Concat(*before, x, *after)"),
        ("Concat", "Concat(*before, Relu(x), *after)"),
        ("Concat", "Concat(*before, Neg(x), *after)"),
        ("Concat", "Concat(*same, *same)"),
        ("Sum", "Sum(Relu(x), *others)"),
        ("Sum", "Sum(x, Neg(y), *others)"),
    ],
)
def test_ways_to_share_inputs_out_are_not_copied(op: str, pattern: str) -> None:
    """All of them are tried, one after the other."""
    one = rule(pattern)

    def peak(width: int) -> tuple[int, int]:
        root = wide(op, width)
        root.graph.model.infer()
        tracemalloc.start()
        try:
            matches = [read_match(one, root, state) for state in one.matcher.solutions(root)]
            return len(matches), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)
    (few, small), (many, large) = peak(500), peak(1000)
    assert many == (2 * few if "Relu" in pattern or ", x," in pattern else few)
    assert large < 3 * small


def test_what_a_name_takes_is_listed_when_it_is_asked_for() -> None:
    """In the order of the inputs, of an ordered and of a commutative operator."""
    root = wide("Concat", 4)
    one = rule("Concat(*before, x, *after)")
    found = [read_match(one, root, state) for state in one.matcher.solutions(root)]
    told = [
        ([v.name for v in m.variadic["before"]], m["x"].name, [v.name for v in m.variadic["after"]])
        for m in found
        if m is not None
    ]
    names = [f"r{number}" for number in range(4)]
    assert told == [(names[:n], names[n], names[n + 1 :]) for n in range(4)]

    root = wide("Sum", 3)
    one = rule("Sum(x, *others)")
    found = [read_match(one, root, state) for state in one.matcher.solutions(root)]
    told_of_sum = [(m["x"].name, [v.name for v in m.variadic["others"]]) for m in found if m]
    assert told_of_sum == [
        (names[n], [name for name in names[:3] if name != names[n]]) for n in range(3)
    ]


def test_rules_are_asked_of_the_graphs_that_have_what_they_need() -> None:
    """Bodies that lack it cost a rule nothing."""
    rules = [rule("Exp(Neg(x))", name=f"r{number}") for number in range(20)]
    body = "t () => (u) { u = Relu (x) }"

    def cost(count: int) -> int:
        ifs = " ".join(
            f"y{n} = If (c) <then_branch = {body}, else_branch = {body}>" for n in range(count)
        )
        model = model_from_text(f"g (bool c, float[2] x) => (float[2] y0) {{ {ifs} }}")
        without = calls_in(lambda: select_matches(model, []))
        return calls_in(lambda: select_matches(model, rules)) - without

    cost(1)  # compiles the rules
    assert cost(200) < 1.2 * cost(20)
