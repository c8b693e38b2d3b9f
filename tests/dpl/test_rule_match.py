"""What a user reads from a match; mypy checks the types that this file asserts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

import pytest

from dplcli.dpl import Match, is_const, is_op, repeat, wildcard
from dplcli.ir import Node, Value
from tests.helpers import rule, selected

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { a = Exp(x) b = Add(a, c) y = Relu(b) }"""

x, c, bias = wildcard("x"), is_const("c"), is_const("bias")
inner = is_op("Exp")(x)
RULE = rule(is_op("Relu")(is_op("Add")(inner, c)))


def found() -> Match:
    """Match the rule."""
    (match,) = selected([RULE], TEXT).matches
    return match


def test_what_is_bound_is_a_value() -> None:
    """By pattern object or by name; so its producer can be read without a cast."""
    match = found()
    value, by_name = match[inner], match["x"]

    assert_type(value, Value)
    assert_type(by_name, Value)
    assert_type(match[x].producer, Node | None)
    assert_type(match.value("x"), Value | None)
    assert_type(match.bindings, Mapping[str, Value])
    assert (value.name, by_name.name, match[c].name) == ("a", "x", "c")
    assert value.producer is match.node(inner)
    assert [node.op_type for node in match.nodes] == ["Exp", "Add", "Relu"]


@pytest.mark.parametrize("key", ["nothing", bias], ids=["name", "pattern"])
def test_what_is_not_bound_is_a_key_error(key: str) -> None:
    """Nothing is None by accident, and a number is no place in the match."""
    with pytest.raises(KeyError, match="'r'"):
        found()[key]


def test_what_a_chain_binds_is_seen_in_the_chain_only() -> None:
    """Neither by name nor by pattern object; its constants count as constants all the same."""
    k, alone = is_const("k"), is_const()
    pattern = is_op("Relu")(repeat("Add", is_op("Exp")(x), k & alone, min=1))
    (match,) = selected([rule(pattern, check=lambda _: None)], TEXT).matches

    assert sorted(match.bindings) == ["x"]
    assert (match.value(k), match.value(alone)) == (None, None)
    assert [value.name for value in match.constants] == ["c"]
    with pytest.raises(KeyError, match="'k'"):
        match["k"]


def test_other_escaping_values_are_another_match() -> None:
    """All else is the same; the first is as it was."""
    match = found()
    other = match.with_escaping((match[inner],))

    assert match.escaping == ()
    assert other.escaping == (match[inner],)
    for name in set(Match.__slots__) - {"escaping"}:
        assert getattr(other, name) is getattr(match, name)


def test_a_match_prints_where_it_is() -> None:
    """Not the whole model that hangs on it."""
    assert repr(found()) == "<Match of t.r at Relu 'y'>"
