"""Hopeless searches end by the budget, hopeful ones of any depth end well."""

import pytest

from dplcli.language import Matcher, StepBudgetExceededError
from tests.support.helpers import (
    describe_refusals,
    find_solutions,
    model_from_text,
    pattern_of,
    rule,
    selected,
    taken,
)
from tests.support.strategies import within


def adversary(operands: int) -> tuple[str, str]:
    """Return a pattern and graph with factorially many assignments, none of which fits."""
    names = ", ".join(f"x{i}" for i in range(operands))
    pattern = f"Mul(Sum({names}), Relu(missing))"
    values = ", ".join(f"a{i}" for i in range(operands))
    inputs = ", ".join(f"float[1] a{i}" for i in range(operands))
    return pattern, f"g ({inputs}) => (o) {{ s = Sum ({values}) r = Neg (s) o = Mul (s, r) }}"


def test_budget_is_a_named_diagnostic() -> None:
    """A search over the budget says so at its root, with the number of steps."""
    names = ", ".join(f"x{i}" for i in range(10))
    inputs = ", ".join(f"float[1] a{i}" for i in range(10))
    values = ", ".join(f"a{i}" for i in range(10))
    pattern = f"Sub(Sum({names}), x0.has_rank(3))"
    text = f"g ({inputs}) => (o) {{ s = Sum ({values}) o = Sub (s, a0) }}"
    with within(10):
        selection = selected(pattern, text)
    assert taken(selection) == []
    (refusal,) = describe_refusals(selection)
    assert refusal.startswith("r at o: budget: ")
    assert "100,000" in refusal


def test_budget_is_the_callers_choice() -> None:
    """A small budget ends a search that a larger one finishes."""
    model = model_from_text("g (float[2] a) => (o) { r = Relu (a) o = Neg (r) }")
    root = next(reversed(model.graph))
    pattern = pattern_of("Neg(Relu(x))")
    assert len(list(Matcher(pattern, budget=50).solutions(root))) == 1
    with pytest.raises(StepBudgetExceededError):
        list(Matcher(pattern, budget=1).solutions(root))


def test_budget_at_one_root_leaves_the_others() -> None:
    """Giving up at one root says nothing of the next."""
    names = ", ".join(f"x{i}" for i in range(10))
    inputs = ", ".join(f"float[1] a{i}" for i in range(10))
    values = ", ".join(f"a{i}" for i in range(10))
    pattern = f"Sub(Sum({names}), x0) | Sub(Relu(y), y)"
    text = f"""g ({inputs}, float[1] z) => (o, p) {{
        s = Sum ({values}) o = Sub (s, z) r = Relu (z) p = Sub (r, z) }}"""
    assert "r: r, p" in taken(selected(pattern, text))


def test_implausible_operands_cost_nothing() -> None:
    """Operands whose operator is missing are ruled out without permuting the others."""
    pattern, text = adversary(16)
    assert find_solutions(pattern, model_from_text(text)) == []


def commuted_ladder(depth: int) -> tuple[str, str]:
    """Return a pattern and graph of stacked commuted diamonds, wrong at the bottom only."""
    pattern = ["r0 = Relu(x)"] + [f"r{i} = Add(r{i - 1}, r{i - 1})" for i in range(1, depth)]
    body = ["v0 = Sigmoid (a)"] + [f"v{i} = Add (v{i - 1}, v{i - 1})" for i in range(1, depth)]
    return (
        "\n".join([*pattern, f"Neg(r{depth - 1})"]),
        f"g (float[1] a) => (o) {{ {' '.join(body)} o = Neg (v{depth - 1}) }}",
    )


def test_stacked_diamonds_end() -> None:
    """Sixteen stacked diamonds of commuted operands end in seconds, matched or not."""
    pattern, text = commuted_ladder(16)
    with within(10):
        assert taken(selected(pattern, text)) == []
        assert taken(selected(pattern, text.replace("Sigmoid", "Relu"))) != []


def test_nested_alternatives_end() -> None:
    """Alternatives nested in alternatives end in seconds."""
    lines = ["y0 = Relu(x) | Sigmoid(x)"]
    lines += [f"y{i} = Relu(y{i - 1}) | Sigmoid(y{i - 1}) | y{i - 1}" for i in range(1, 14)]
    chain = " ".join(f"v{i + 1} = Tanh (v{i})" for i in range(14))
    with within(10):
        selected("\n".join([*lines, "Tanh(y13)"]), f"g (float[1] v0) => (v14) {{ {chain} }}")


@pytest.mark.parametrize("depth", [500, pytest.param(5000, marks=pytest.mark.long)])
def test_a_deep_pattern_matches_without_recursion(depth: int) -> None:
    """A pattern of thousands of lines parses, compiles and matches."""
    lines = ["n0 = Relu(x)"] + [f"n{i} = Neg(n{i - 1})" for i in range(1, depth)]
    body = ["v0 = Relu (a)"] + [f"v{i} = Neg (v{i - 1})" for i in range(1, depth)]
    text = f"g (float[1] a) => (v{depth - 1}) {{ {' '.join(body)} }}"
    selection = selected(rule("\n".join([*lines, f"Abs(n{depth - 1}) | n{depth - 1}"])), text)
    assert [len(match.nodes) for match in selection.matches] == [depth]
