"""``shaped_like``: whether broadcasting has widened a value, proved from the nodes."""

from __future__ import annotations

import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.language import Condition
from tests.support.helpers import model_from_text

HEAD = "g ({x}) => (float[A, B, C] y) <{constants}> {{ {nodes} }}"
WIDE = "float[1, 1, 1] c = {2}"


def reason(nodes: str, x: str, *constants: str) -> str:
    """Return what stands against ``shaped_like(y, x)``, or ""."""
    text = HEAD.format(x=x, constants=", ".join(constants), nodes=nodes)
    values = model_from_text(text).graph.values
    found = Condition("shaped_like(y, x)").unmet_by({"x": values["x"], "y": values["y"]})
    return found.reason if found else ""


HOLDS = {
    "itself": ("y = Identity (x)", "float[2, 3] x", ""),
    "elementwise": ("a = Exp (x)  y = Neg (a)", "float x", ""),
    "of unknown rank": ("a = Add (x, c)  y = Clip (a, c)", "float[] x", "float c = {2}"),
    "a number of the rank": ("y = Mul (c, x)", "float[N, M, K] x", WIDE),
    "a row": ("y = Add (x, c)", "float[N, 2] x", "float[2] c = {1, 2}"),
    "a column": ("y = Add (x, c)", "float[2, N] x", "float[2, 1] c = {1, 2}"),
    "a reduction": ("a = ReduceMean (x)  y = Sub (x, a)", "float[N, M] x", ""),
    "a function of a reduction": (
        "a = ReduceMax (x)  b = Exp (a)  d = Add (b, c)  y = Sub (x, d)",
        "float[N, M] x",
        "float c = {2}",
    ),
    "a choice": ("a = Less (x, c)  y = Where (a, x, c)", "float[N] x", "float[1] c = {0}"),
    "a power": ("y = Pow (x, c)", "float[N] x", "int64 c = {2}"),
    "a normalisation": ("y = Softmax (x)", "float[N, M] x", ""),
    "sizes that are known": (
        "a = Reshape (x, c)  b = Reshape (a, e)  y = Neg (b)",
        "float[2, 3] x",
        "int64[1] c = {6}, int64[2] e = {2, 3}",
    ),
}


@pytest.mark.parametrize("case", HOLDS)
def test_what_is_computed_element_by_element_keeps_its_shape(case: str) -> None:
    """Whatever that is: operands that fit into it do not change it."""
    nodes, x, constants = HOLDS[case]

    assert not reason(nodes, x, *filter(None, [constants]))


REFUSED = {
    "a number of higher rank": ("y = Mul (x, c)", "float[2, 3] x", WIDE),
    "a number, where the rank is not known": ("y = Mul (x, c)", "float[] x", "float[1] c = {2}"),
    "a longer row": ("y = Add (x, c)", "float[2, 1] x", "float[2] c = {1, 2}"),
    "a row as long as a symbol may be": ("y = Add (x, c)", "float[N] x", "float[2] c = {1, 2}"),
    "another input of the same symbol": ("y = Add (x, z)", "float[N] x, float[N] z", ""),
    "a reduction only": ("y = ReduceMean (x)", "float[2, 3] x", ""),
    "a reduction without its dimensions": (
        "a = ReduceMean <axes = [1], keepdims = 0> (x)  y = Sub (x, a)",
        "float[N, N] x",
        "",
    ),
    "another order": ("y = Transpose (x)", "float[N, N] x", ""),
    "an operator of somebody else": ("y = com.microsoft.Gelu (x)", "float[N] x", ""),
    "nothing of it": ("y = Neg (z)", "float[N] x, float[N] z", ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_be_wider_is_refused(case: str) -> None:
    """Symbols are claims, and what is not known is no proof; the reason names both values."""
    nodes, x, constants = REFUSED[case]
    why = reason(nodes, x, *filter(None, [constants]))

    assert "'y' may have another shape than 'x'" in why


def test_a_long_way_is_given_up() -> None:
    """A proof looks at so many nodes and no more."""
    steps = ["a0 = Neg (x)", *(f"a{n + 1} = Neg (a{n})" for n in range(200)), "y = Neg (a200)"]

    assert "another shape" in reason("  ".join(steps), "float[N] x")


def test_only_captured_values_can_be_compared() -> None:
    """A number has no nodes that it is computed by; what a variable is shows when it is asked."""
    with pytest.raises(PatternSyntaxError, match="gives 2 to shaped_like"):
        Condition("shaped_like(y, 2)")
    values = model_from_text("g (float[2] x) => (float[2] y) { y = Neg (x) }").graph.values
    bindings = {"x": values["x"], "y": values["y"]}

    condition = Condition("all(shaped_like(y, n) for n in [2])")
    assert "2 names" in str(condition.unmet_by(bindings))
