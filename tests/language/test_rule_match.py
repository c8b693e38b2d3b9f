"""What a user reads from a match; mypy checks the types that this file asserts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

import pytest

from dplcli.ir import Node, Value
from dplcli.language import (
    Match,
    RewriteRule,
    is_const,
    is_op,
    op_var,
    repeat,
    rest,
    wildcard,
)
from dplcli.language.pattern import OpName
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import model_from_text, rule, selected

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


f, others = op_var("f", "Mul", "Add"), rest("others")


def test_an_operator_variable_is_bound_to_an_operator() -> None:
    """By its object; the operator can be built anew, in its own domain."""
    (match,) = selected([rule(is_op("Relu")(f(x, c)))], TEXT).matches

    assert_type(match[f], OpName)
    assert match[f] == OpName("Add")
    with pytest.raises(KeyError, match=r"'f' is no single value: it is in match\.operators\['f'\]"):
        match["f"]
    with pytest.raises(KeyError, match="is no operator variable of the rule"):
        match[is_op("Relu")]
    with pytest.raises(KeyError, match="binds no name 'z'"):
        match["z"]


def test_a_variadic_is_bound_to_inputs() -> None:
    """None of them, or several."""
    text = """g (float[2] a, float[2] b) => (float[4] y) {
        r = Relu (a) y = Concat <axis = 0> (r, b, a) }"""
    none = rest("none")
    concat = is_op("Concat")(none, is_op("Relu")(x), others)
    (match,) = selected([rule(concat)], text).matches

    assert_type(match[others], tuple[Value, ...])
    assert [value.name for value in match[others]] == ["b", "a"]
    assert match[none] == ()


@pytest.mark.parametrize("op_type", ["Mul", "Add"])
def test_a_function_builds_the_operator_that_matched(op_type: str) -> None:
    """With a number beside it, which is a constant of the operand's type."""
    model = model_from_text(
        f"g (float16[2] a, float16[2] b) => (float16[2] y) {{ n = Neg (a) y = {op_type} (n, b) }}"
    )
    pattern = f(is_op("Neg")(x), wildcard("z"))
    new = RewriteRule(
        "r", pattern, lambda m, build: build.op(m[f], build.op(m[f], m[x], 2.0), m["z"])
    )

    assert rewrite(model, [new]).counts == {"r": 1}
    assert [node.op_type for node in model.graph] == [op_type, op_type]
    (number,) = [value for value in model.graph.initializers if value.constant is not None]
    assert number.constant is not None
    assert (number.constant.dtype, number.constant.numpy().tolist()) == ("float16", 2.0)
