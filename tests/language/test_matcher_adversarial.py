"""Patterns and graphs made to be slow, deep or wide: all end soon, and none overflows the stack."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.language import (
    Matcher,
    StepBudgetExceededError,
    dominates,
    is_call,
    is_function,
    is_if,
    is_op,
    outputs,
    parse_pattern,
    repeat,
    unordered,
    wildcard,
)
from dplcli.language.explain import Tracer
from dplcli.language.matcher import Fingerprints
from tests.support.helpers import (
    SCHEMAS,
    find_solutions,
    model_from_text,
    pattern_of,
    rule,
    thinned,
)
from tests.support.strategies import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.ir import Model, Node
    from dplcli.language import DFPattern

pytestmark = pytest.mark.long

DEEP = 10_000
A = "g (float[2] a) => (o)"


def last_node(model: Model) -> Node:
    """Return the last node of the main graph."""
    return list(model.graph)[-1]


def ends(pattern: str | DFPattern, text: str, *, steps: int = 100_000) -> bool:
    """Tell whether *pattern* matches at the last node; to exceed the budget in time is a no."""
    value = pattern_of(pattern) if isinstance(pattern, str) else pattern
    root = last_node(model_from_text(text))
    with within(2), suppress(StepBudgetExceededError):
        matcher, fingerprints = Matcher(value, budget=steps), Fingerprints(2)
        may_hold = fingerprints.may_hold(fingerprints.number(root), matcher.program)
        is_found = any(root in state.claimed for state in matcher.solutions(root))
        assert may_hold or not is_found
        return is_found
    return False


def ends_in(steps: int, pattern: str | DFPattern, text: str) -> bool:
    """Tell the same of a search that must not take more than *steps* steps."""
    value = pattern_of(pattern) if isinstance(pattern, str) else pattern
    root = last_node(model_from_text(text))
    with within(2):
        matcher = Matcher(value, budget=steps)
        found = [state.spent for state in matcher.solutions(root) if root in state.claimed]
    assert all(spent <= steps for spent in found)
    return bool(found)


# -- commuted operands -----------------------------------------------------------------------


def wide_sum(ops: list[str], last: str) -> str:
    """Return a Sum over one node of each of *ops*, and a node *last* of it."""
    body = " ".join(f"v{i} = {op} (a)" for i, op in enumerate(ops))
    names = ", ".join(f"v{i}" for i in range(len(ops)))
    return f"{A} {{ {body} s = Sum ({names}) o = {last} (s) }}"


def test_sixteen_commuted_operands_with_one_that_cannot_match() -> None:
    """Sixteen patterned inputs of a Sum, one of which no input fits, do not run wild."""
    pattern = f"Neg(Sum({', '.join(['Relu(_)'] * 15)}, Tanh(_)))"
    assert ends(pattern, wide_sum(["Relu"] * 15 + ["Tanh"], "Neg"))
    assert not ends(pattern, wide_sum(["Relu"] * 16, "Neg"))
    assert not ends(pattern, wide_sum(["Relu"] * 14 + ["Tanh", "Tanh"], "Neg"))


def test_sixteen_commuted_operands_of_a_kind_that_nothing_is() -> None:
    """Where no input fits the first argument, hardly a step is needed."""
    pattern = f"Neg(Sum({', '.join(['Tanh(_)'] * 16)}))"
    assert not ends_in(10, pattern, wide_sum(["Relu"] * 16, "Neg"))


def test_sixteen_commuted_operands_wrong_beneath() -> None:
    """Operands that differ beneath their operator only are tried, but not for ever."""
    args = ", ".join(["Relu(x)"] * 15 + ["Relu(Relu(x))"])
    assert not ends(f"Neg(Sum({args}))", wide_sum(["Relu"] * 16, "Neg"))


def test_sixteen_unordered_inputs() -> None:
    """The same for inputs that the pattern calls unordered."""
    body = " ".join(f"v{i} = Relu (a)" for i in range(16))
    names = ", ".join(f"v{i}" for i in range(16))
    text = f"{A} {{ {body} o = Concat <axis = 0> ({names}) }}"
    args = ", ".join(["Relu(x)"] * 15 + ["Relu(Neg(x))"])
    assert not ends(f"Concat(unordered({args}))", text)
    good = ", ".join(["Relu(x)"] * 16)
    root = last_node(model_from_text(text))
    with within(2):
        first = next(Matcher(pattern_of(f"Concat(unordered({good}))")).solutions(root))
    assert len(first.claimed) == 17


def add_tree(leaves: list[str]) -> tuple[str, str]:
    """Return a balanced tree of Adds over *leaves* as a pattern and as a graph's nodes."""
    texts = [f"{op}(x)" for op in leaves]
    body = [f"l{i} = {op} (a)" for i, op in enumerate(leaves)]
    names = [f"l{i}" for i in range(len(leaves))]
    count = 0
    while len(names) > 1:
        pairs = list(zip(names[::2], names[1::2], strict=True))
        texts = [f"Add({p}, {q})" for p, q in zip(texts[::2], texts[1::2], strict=True)]
        names = [f"t{count + i}" for i in range(len(pairs))]
        body += [f"{n} = Add ({p}, {q})" for n, (p, q) in zip(names, pairs, strict=True)]
        count += len(names)
    return texts[0], f"{A} {{ {' '.join(body)} o = Identity ({names[0]}) }}"


@pytest.mark.parametrize("sign", "|&")
@pytest.mark.parametrize(("leaf", "is_found"), [("Relu(Neg(x))", False), ("Relu(Tanh(x))", True)])
def test_forty_parts_each_of_the_one_before_twice(sign: str, leaf: str, *, is_found: bool) -> None:
    """There are 2^39 ways down to the first one, which is looked at once."""
    lines = [f"n0 = {leaf}", *(f"n{i} = n{i - 1} {sign} n{i - 1}" for i in range(1, 40)), "n39"]
    assert ends("\n".join(lines), f"{A} {{ t = Tanh (a) o = Relu (t) }}") == is_found


def test_a_tree_of_fifteen_adds_with_one_wrong_leaf() -> None:
    """2^15 ways to commute a tree of Adds end, also where the last leaf is wrong."""
    pattern, right = add_tree(["Relu"] * 16)
    root = list(model_from_text(right).graph)[-2]
    with within(2):
        assert next(Matcher(pattern_of(pattern)).solutions(root), None) is not None
    for wrong in (0, 7, 15):
        _, text = add_tree(["Relu"] * wrong + ["Tanh"] + ["Relu"] * (15 - wrong))
        model = model_from_text(text.replace(" o = Identity (t14)", "").replace("(o)", "(t14)"))
        with within(2), suppress(StepBudgetExceededError):
            assert not list(Matcher(pattern_of(pattern)).solutions(last_node(model)))


def test_a_tree_of_adds_over_the_same_value() -> None:
    """Leaves that all bind one name fit in every order, and that is found at once."""
    pattern = "x"
    body, value = [], "a"
    for number in range(15):
        pattern = f"Add({pattern}, x)"
        body.append(f"v{number} = Add ({value}, a)")
        value = f"v{number}"
    text = f"g (float[2] a) => ({value}) {{ {' '.join(body)} }}"
    root = last_node(model_from_text(text))
    with within(2):
        state = next(Matcher(pattern_of(pattern), budget=1000).solutions(root))
    assert len(state.claimed) == 15


# -- alternatives ----------------------------------------------------------------------------


def test_twelve_nested_alternatives() -> None:
    """Twelve levels of two alternatives each, none of which fits at the bottom, end."""
    lines = ["y0 = Tanh(x)"]
    lines += [f"y{i} = Relu(y{i - 1}) | Relu(Relu(y{i - 1}))" for i in range(1, 13)]
    body = ["v0 = Relu (a)", *(f"v{i} = Relu (v{i - 1})" for i in range(1, 24))]
    text = f"g (float[2] a) => (v23) {{ {' '.join(body)} }}"
    assert not ends("\n".join([*lines, "y12"]), text)
    lines[0] = "y0 = x"
    root = last_node(model_from_text(text))
    with within(2):
        found = next(Matcher(pattern_of("\n".join([*lines, "Relu(y11)"]))).solutions(root), None)
    assert found is not None


def test_twelve_alternatives_used_twice_each() -> None:
    """Alternatives shared by both operands of stacked diamonds are decided once."""
    lines = ["y0 = Relu(x) | Tanh(x)"]
    lines += [f"y{i} = Add(y{i - 1}, y{i - 1}) | Mul(y{i - 1}, y{i - 1})" for i in range(1, 13)]
    body = ["v0 = Sigmoid (a)", *(f"v{i} = Mul (v{i - 1}, v{i - 1})" for i in range(1, 13))]
    text = f"g (float[2] a) => (v12) {{ {' '.join(body)} }}"
    pattern = "\n".join([*lines, "y12"])
    assert not ends(pattern, text)
    root = last_node(model_from_text(text.replace("Sigmoid", "Tanh")))
    with within(2):
        state = next(Matcher(pattern_of(pattern)).solutions(root))
    assert len(state.claimed) == 13


# -- regions ---------------------------------------------------------------------------------


def diamonds(count: int, top: str = "Relu", odd: int = -1) -> str:
    """Return *count* stacked diamonds below one node *top*; diamond *odd* has a Tanh in it."""
    body = [f"d0 = {top} (a)"]
    for i in range(1, count + 1):
        side = "Tanh" if i == odd else "Sigmoid"
        body += [f"l{i} = Neg (d{i - 1})", f"r{i} = {side} (d{i - 1})", f"d{i} = Add (l{i}, r{i})"]
    return f"g (float[2] a) => (d{count}) {{ {' '.join(body)} }}"


REGION = "dominates(Relu(x), Neg(_) | Sigmoid(_) | Add(_, _), Add(_, _))"


def test_twenty_stacked_diamonds_are_dominated() -> None:
    """A region of 2^20 paths is walked once."""
    text = diamonds(20)
    assert ends_in(5_000, REGION, text)
    (found,) = {s.nodes for s in find_solutions(REGION, model_from_text(text)) if s.root == "d20"}
    assert len(found) == 61


@pytest.mark.parametrize("odd", [1, 10, 20])
def test_twenty_stacked_diamonds_with_a_wrong_path(odd: int) -> None:
    """One node in the region that is no path node is a no, found without walking every path."""
    assert not ends_in(5_000, REGION, diamonds(20, odd=odd))


def test_twenty_stacked_diamonds_without_a_parent() -> None:
    """The same if the parent is missing, or something else reads an inner value."""
    assert not ends_in(5_000, REGION, diamonds(20, top="Tanh"))
    text = diamonds(20).replace("(d20) {", "(d20, l10) {")
    assert not ends_in(5_000, REGION, text)


def test_any_parent_above_stacked_diamonds() -> None:
    """A parent that may be anything is looked for at every node above."""
    assert ends("dominates(_, _, Add(_, _))", diamonds(20))


def long_region(count: int) -> str:
    """Return Sigmoid, a chain of *count* Relus, Tanh."""
    body = ["v0 = Sigmoid (a)", *(f"v{i} = Relu (v{i - 1})" for i in range(1, count + 1))]
    return f"{A} {{ {' '.join(body)} o = Tanh (v{count}) }}"


def test_a_region_of_ten_thousand_nodes() -> None:
    """A dominated chain of 10,000 nodes is one match of the default budget."""
    root = last_node(model_from_text(long_region(DEEP)))
    with within(4):
        matcher = Matcher(pattern_of("dominates(Sigmoid(x), Relu(_), Tanh(_))"))
        states = [len(state.claimed) for state in matcher.solutions(root)]
    assert states == [DEEP + 2]


def test_a_region_of_ten_thousand_nodes_and_any_parent() -> None:
    """Looking for any parent above 10,000 nodes ends, by the budget if need be."""
    root = last_node(model_from_text(long_region(DEEP)))
    with within(20), suppress(StepBudgetExceededError):
        list(Matcher(pattern_of("dominates(_, _, Tanh(_))")).solutions(root))


def test_a_region_of_three_thousand_branches() -> None:
    """A region may be wide as well as long."""
    body = " ".join(f"v{i} = Relu (s)" for i in range(3000))
    names = ", ".join(f"v{i}" for i in range(3000))
    text = f"{A} {{ s = Sigmoid (a) {body} o = Sum ({names}) }}"
    root = last_node(model_from_text(text))
    with within(4):
        matcher = Matcher(pattern_of("dominates(Sigmoid(x), Relu(_), Sum(...))"))
        assert [len(state.claimed) for state in matcher.solutions(root)] == [3002]


# -- chains ----------------------------------------------------------------------------------


@cache
def chain(op: str, count: int = DEEP) -> Model:
    """Return a model of *count* nodes of one kind, one after the other."""
    body = [f"v{i} = {op} ({'a' if i == 0 else f'v{i - 1}'})" for i in range(count)]
    return model_from_text(f"g (float[2] a) => (v{count - 1}) {{ {' '.join(body)} }}")


def test_repeat_over_ten_thousand_nodes() -> None:
    """The longest chain comes first, and all shorter ones after it."""
    root = last_node(chain("Relu"))
    matcher = Matcher(pattern_of("repeat(Relu, x, min=1)"))
    with within(6):
        counts = [len(state.claimed) for state in matcher.solutions(root)]
    assert counts == list(range(DEEP, 0, -1))


def test_repeat_that_ends_in_nothing() -> None:
    """A chain whose base is missing is a no."""
    root = last_node(chain("Relu"))
    with within(2):
        assert not list(Matcher(pattern_of("repeat(Relu, Neg(x), min=1)")).solutions(root))


def test_repeat_inside_repeat_inside_repeat() -> None:
    """Chains that can be cut in very many ways end, by the budget if need be."""
    pattern = "repeat(Relu, repeat(Relu, repeat(Relu, repeat(Relu, Neg(x)))))"
    root = last_node(chain("Relu", 300))
    with within(3), suppress(StepBudgetExceededError):
        assert not list(Matcher(pattern_of(pattern)).solutions(root))


def test_repeat_over_diamonds() -> None:
    """A chain over Adds of a value with itself has 2^20 ways up, all the same."""
    body = ["v0 = Relu (a)", *(f"v{i} = Add (v{i - 1}, v{i - 1})" for i in range(1, 21))]
    text = f"g (float[2] a) => (v20) {{ {' '.join(body)} }}"
    ends("repeat(Add, Neg(x), _, min=1)", text)
    root = last_node(model_from_text(text))
    with within(2):
        first = next(Matcher(pattern_of("repeat(Add, Relu(x), _, min=1)")).solutions(root))
    assert len(first.claimed) == 21


def test_trace_of_a_long_chain_that_fits() -> None:
    """What the matcher finds, the traced search finds, whatever its own budget is."""
    with within(4):
        trace = Tracer(rule("repeat(Relu, x, min=1)")).trace(last_node(chain("Relu")))
    assert trace.fits


def test_trace_of_a_chain_that_does_not_fit() -> None:
    """The reason is found as soon as the mismatch itself."""
    with within(2):
        trace = Tracer(rule("repeat(Relu, Neg(x), min=1)")).trace(last_node(chain("Relu", 5000)))
    assert not trace.fits
    assert trace.mismatch is not None


# -- deep patterns ---------------------------------------------------------------------------

X = wildcard("x")
RELU = is_op("Relu")
DEEPEST: dict[str, Callable[[DFPattern], DFPattern]] = {
    "call": RELU,
    "not": lambda p: ~p,
    "or": lambda p: RELU(X) | p,
    "and": lambda p: p & X,
    "rank": lambda p: p.has_rank(1),
    "used by": lambda p: p.used_by(RELU(wildcard())),
}
NESTED: dict[str, Callable[[DFPattern], DFPattern]] = DEEPEST | {
    "or, left": lambda p: p | RELU(X),
    "and, right": lambda p: X & p,
    "optional": lambda p: p.optional(RELU),
    "dtype": lambda p: p.has_dtype("float32"),
    "shape": lambda p: p.has_shape("n"),
    "type": lambda p: p.has_type("float32[n]"),
    "used by deep": lambda p: wildcard().used_by(RELU(p)),
    "only used by": lambda p: p.only_used_by(RELU(wildcard())),
    "output": lambda p: RELU(p)[0],
    "unordered": lambda p: is_op("Concat")(unordered(p, wildcard())),
    "diamond": lambda p: p + p,
    "same shape": lambda p: is_op("Add")(p.same_shape_as(X), X),
    "kind": is_op(kind="elementwise"),
    "rest": lambda p: is_op("Concat")(p, ...),
    "function": lambda p: is_function([X], p)(X),
    "argument": is_call("f"),
    "if": lambda p: is_if(X, p, X),
    "repeat": lambda p: repeat("Relu", p, min=1),
    "dominates, parent": lambda p: dominates(RELU(p), None, is_op("Neg")(wildcard())),
    "dominates, child": lambda p: dominates(RELU(wildcard()), None, p),
}


ANEW: dict[str, Callable[[DFPattern], DFPattern]] = {
    "repeat argument": lambda p: repeat("Add", wildcard(), p),
    "dominates, path": lambda p: dominates(RELU(wildcard()), p, is_op("Neg")(wildcard())),
}


@pytest.mark.parametrize("kind", ANEW)
def test_parts_that_are_matched_anew_are_not_nested_without_end(kind: str) -> None:
    """Paths inside paths, and repeated parts in repeated parts, end in an error, not a crash."""
    pattern: DFPattern = X
    for _ in range(DEEP):
        pattern = ANEW[kind](pattern)
    with within(4), pytest.raises(PatternSyntaxError, match="nested too deeply"):
        Matcher(pattern)


@cache
def nested(kind: str, share: int = 1) -> DFPattern:
    """Return a pattern nested 10,000 times in one way, others less, but deeper than the stack."""
    pattern: DFPattern = X
    for _ in range((DEEP if kind in DEEPEST else 1_100) // share):
        pattern = NESTED[kind](pattern)
    return pattern


@pytest.mark.parametrize("kind", thinned(4, NESTED))
def test_deep_pattern_is_printed_hashed_compared_and_read_back(kind: str) -> None:
    """What patterns read does not depend on the stack, nor does reading it again."""
    with within(10):
        pattern = nested(kind)
        again = parse_pattern(repr(pattern), SCHEMAS)
        checks = [
            again == pattern,
            hash(again) == hash(pattern),
            pattern != RELU(pattern),
        ]
    assert checks == [True] * 3


@pytest.mark.parametrize("kind", thinned(3, NESTED, first=1))
def test_deep_pattern_is_compiled_and_matched(kind: str) -> None:
    """A deep pattern compiles, and its search ends in time."""
    text = f"{A} {{ r = Relu (a) s = Relu (r) o = Add (s, r) }}"
    nodes = list(model_from_text(text).graph)
    pattern = nested(kind)
    with within(3):
        matcher = Matcher(pattern)
        for node in nodes:
            with suppress(StepBudgetExceededError):
                next(matcher.solutions(node), None)


@pytest.mark.parametrize("kind", thinned(4, NESTED, first=2))
def test_deep_pattern_is_traced(kind: str) -> None:
    """The traced search of a deep pattern ends, and says something of every part."""
    text = f"{A} {{ r = Relu (a) s = Relu (r) o = Add (s, r) }}"
    nodes = list(model_from_text(text).graph)
    pattern = RELU(nested(kind, 2 if kind in DEEPEST else 1))
    with within(4):
        tracer = Tracer(rule(pattern))
        for node in nodes:
            assert tracer.trace(node).lines


@pytest.mark.parametrize(
    "kind",
    ["not", "or", "or, left", "and", "and, right", "rank", "dtype", "shape", "type"],
)
def test_deep_pattern_that_fits(kind: str) -> None:
    """Ten thousand conditions on one value are met or not, as one is."""
    root = last_node(model_from_text(f"{A} {{ o = Neg (a) }}"))
    with within(4):
        found = [state.spent for state in Matcher(-nested(kind)).solutions(root)]
    assert found
    assert found[0] <= 5 * DEEP


def test_deep_pattern_on_a_deep_graph() -> None:
    """10,000 nested node patterns match 10,000 nodes, and no fewer."""
    pattern = nested("call")
    with within(4):
        matcher = Matcher(pattern)
        state = next(matcher.solutions(last_node(chain("Relu"))))
        assert len(state.claimed) == DEEP
        assert state.spent <= 2 * DEEP
        assert next(matcher.solutions(last_node(chain("Relu", DEEP - 1))), None) is None
        assert Tracer(rule(pattern)).trace(last_node(chain("Relu"))).fits


def test_deep_pattern_that_fails_at_its_far_end() -> None:
    """The mismatch 10,000 nodes below the root is found and named."""
    pattern: DFPattern = is_op("Neg")(X)
    for _ in range(9_000):
        pattern = RELU(pattern)
    with within(4):
        trace = Tracer(rule(pattern)).trace(last_node(chain("Relu")))
    assert not trace.fits
    assert trace.matched == 9_000
    assert trace.mismatch is not None
    assert trace.mismatch.expected == "Neg"
    assert trace.mismatch.found == "Relu 'v999'"


def test_a_chain_of_edges_read_from_its_end() -> None:
    """A long chain of edges may stand on the right of one more."""
    pattern: DFPattern = RELU(wildcard())
    for _ in range(DEEP):
        pattern = pattern ^ RELU(wildcard())
    with within(4):
        whole = is_op("Neg")(wildcard()) ^ pattern
        is_printed = bool(repr(whole))
    assert is_printed


def test_long_chain_of_edges_matches() -> None:
    """Edges over a chain of 2,000 nodes: the same as nested node patterns."""
    pattern: DFPattern = RELU(wildcard("first"))
    for _ in range(1_999):
        pattern = pattern >> RELU(wildcard())
    with within(4):
        state = next(Matcher(pattern).solutions(last_node(chain("Relu"))))
    assert len(state.claimed) == 2_000


# -- several outputs -------------------------------------------------------------------------


def projections(count: int, last: str = "") -> str:
    """Return *count* products of one input with a constant each."""
    weights = ", ".join(f"float[2,2] w{i} = {{1, 2, 3, 4}}" for i in range(count))
    body = " ".join(f"m{i} = MatMul (r, w{i})" for i in range(count))
    names = ", ".join(f"m{i}" for i in range(count))
    return f"g (float[2,2] a) => ({names}) <{weights}> {{ r = Relu (a) {body} {last} }}"


QKV = "MatMul(x, const(q)), MatMul(x, const(k)), MatMul(x, const(v))"


def test_three_outputs_of_two_hundred() -> None:
    """Three products of one input are found at every root at once."""
    model = model_from_text(projections(200))
    matcher = Matcher(pattern_of(QKV))
    roots = [node for node in model.graph if node.op_type == "MatMul"]
    with within(4):
        for root in roots:
            state = next(matcher.solutions(root))
            assert state.spent <= 1_000
            assert len(state.claimed) == 3


def test_three_outputs_the_last_of_which_is_missing() -> None:
    """A missing output ends the search, by the budget if need be."""
    model = model_from_text(projections(200))
    matcher = Matcher(pattern_of("MatMul(x, const(q)), MatMul(x, const(k)), Neg(MatMul(x, _))"))
    root = last_node(model)
    with within(2), suppress(StepBudgetExceededError):
        assert not list(matcher.solutions(root))


@pytest.mark.parametrize("levels", [12, 40])
def test_outputs_below_stacked_diamonds(levels: int) -> None:
    """What two outputs share is found without walking every one of 2^40 paths to it."""
    lines = ["n0 = Relu(x)", *(f"n{i} = Add(n{i - 1}, n{i - 1})" for i in range(1, levels + 1))]
    pattern = "\n".join([*lines, f"Neg(n{levels}), Tanh(n{levels})"])
    body = ["v0 = Relu (a)", *(f"v{i} = Add (v{i - 1}, v{i - 1})" for i in range(1, levels + 1))]
    text = (
        f"g (float[2] a) => (p, q) {{ {' '.join(body)} p = Neg (v{levels}) q = Tanh (v{levels}) }}"
    )
    root = list(model_from_text(text).graph)[-2]
    with within(3):
        state = next(Matcher(pattern_of(pattern)).solutions(root))
    assert len(state.claimed) == levels + 3


def test_many_outputs() -> None:
    """A pattern of 500 outputs on one input."""
    many = [is_op("MatMul")(X, wildcard()) for _ in range(500)]
    root = next(n for n in model_from_text(projections(500)).graph if n.op_type == "MatMul")
    with within(5), suppress(StepBudgetExceededError):
        matcher = Matcher(outputs(*many))
        assert len(next(matcher.solutions(root)).claimed) == 500


# -- Identity --------------------------------------------------------------------------------


def behind_copies(count: int, after: str) -> str:
    """Return *count* Identity nodes in a row, from ``s``, a Relu, to ``t``."""
    body = [f"i{k} = Identity ({'s' if k == 0 else f'i{k - 1}'})" for k in range(count)]
    copies = " ".join(body)
    return f"{A} {{ s = Relu (a) {copies} t = Identity (i{count - 1}) {after} }}"


@pytest.mark.parametrize(
    ("pattern", "after", "fits"),
    [
        ("Neg(Relu(x))", "o = Neg (t)", True),
        ("Neg(Tanh(x))", "o = Neg (t)", False),
        ("Sub(y, y)", "o = Sub (t, s)", True),
        ("Sub(y, Relu(z)) & Sub(Relu(x), Relu(x))", "o = Sub (t, s)", False),
        ("Neg(~Tanh(x))", "o = Neg (t)", True),
        ("Neg(~Relu(x))", "o = Neg (t)", False),
        ("Relu(x) >> Neg(_)", "o = Neg (t)", True),
        ("Relu(x) >> Neg(_)", "u = Tanh (i77) o = Neg (t)", False),
        ("Relu(x) ^ Neg(_)", "u = Tanh (i77) o = Neg (t)", True),
        ("repeat(Relu, x, min=2)", "o = Relu (t)", True),
        ("dominates(Relu(x), Neg(_), Add(_, _))", "n = Neg (t) o = Add (n, t)", True),
        ("dominates(Relu(x), Tanh(_), Neg(_))", "o = Neg (t)", True),
    ],
)
def test_ten_thousand_copies(pattern: str, after: str, *, fits: bool) -> None:
    """A chain of 10,000 Identity nodes is looked through."""
    root = last_node(model_from_text(behind_copies(DEEP, after)))
    with within(3):
        states = Matcher(pattern_of(pattern)).solutions(root)
        assert any(root in state.claimed for state in states) == fits


def test_repeat_over_relus_and_copies() -> None:
    """A chain whose nodes have an Identity between them."""
    body = [
        f"i{k} = Identity ({'a' if k == 0 else f'v{k - 1}'}) v{k} = Relu (i{k})"
        for k in range(DEEP // 2)
    ]
    text = f"g (float[2] a) => (v{DEEP // 2 - 1}) {{ {' '.join(body)} }}"
    root = last_node(model_from_text(text))
    with within(3):
        state = next(Matcher(pattern_of("repeat(Relu, x, min=1)")).solutions(root))
    assert len(state.claimed) == DEEP // 2


# -- texts -----------------------------------------------------------------------------------

TOO_DEEP: dict[str, Callable[[int], str]] = {
    "not": lambda n: "~" * n + "x",
    "repeat": lambda n: "repeat(Relu, " * n + "x" + ")" * n,
    "dominates": lambda n: "dominates(Relu(x), _, " * n + "x" + ")" * n,
    "same_shape": lambda n: "same_shape(" * n + "x" + ", x)" * n,
    "optional": lambda n: "optional(Relu)(" * n + "x" + ")" * n,
    "if": lambda n: "if_(c, x, " * n + "x" + ")" * n,
    "function": lambda n: "function([a], " * n + "x" + ")(x)" * n,
    "call": lambda n: 'call("f", ' * n + "x" + ")" * n,
    "unordered": lambda n: "Concat(unordered(" * n + "x" + "))" * n,
    "edges, left": lambda n: " >> ".join(["Relu(x)"] * n),
    "edges, right": lambda n: "Relu(x) ^ (" * n + "x" + ")" * n,
    "used_by": lambda n: "x" + ".used_by(Relu(_))" * n,
    "method": lambda n: "x" + '.has_type("float32")' * n,
    "and": lambda n: " & ".join(["x"] * n),
    "tuple": lambda n: "(" * n + "x" + ",)" * n,
    "callee": lambda n: "f" + "()" * n,
    "lambda": lambda n: "lambda: " * n + "x",
    "list": lambda n: "[" * n + "]" * n,
    "attribute": lambda n: "Conv(x, w, pads=" + "-" * n + "1)",
    "value": lambda n: "is_value(" + "[" * n + "1" + "]" * n + ")",
    "alternative": lambda n: " | ".join(["x"] * n),
    "await": lambda n: "not " * n + "x",
    "power": lambda n: " ** ".join(["x"] * n),
    "kinds": lambda n: "(" + " | ".join(['op(kind="reduction")'] * n) + ")(x)",
    "f-string": lambda n: "f'" + "{" * n + "x" + "}" * n + "'",
    "targets": lambda n: " = ".join(["x"] * n),
    "foreign": lambda n: "a" + ".b" * n + "(x)",
}


@pytest.mark.parametrize("depth", [30, 190, 900, 20_000])
@pytest.mark.parametrize("kind", thinned(3, TOO_DEEP))
def test_text_nested_at_any_depth(kind: str, depth: int) -> None:
    """A text is read or refused with the language's own error, however deep it is."""
    text = TOO_DEEP[kind](depth)
    with within(5), suppress(PatternSyntaxError):
        assert repr(parse_pattern(text, SCHEMAS))


@pytest.mark.parametrize("kind", TOO_DEEP)
def test_text_nested_too_deeply_is_refused(kind: str) -> None:
    """Fifty thousand levels are refused, whatever they are levels of."""
    with within(5), pytest.raises(PatternSyntaxError) as caught:
        parse_pattern(TOO_DEEP[kind](50_000), SCHEMAS)
    assert caught.value.message


def test_ten_thousand_lines() -> None:
    """A text of many short lines is not nested at all."""
    lines = ["n0 = Relu(x)", *(f"n{i} = ~n{i - 1}" for i in range(1, DEEP))]
    with within(6):
        pattern = parse_pattern("\n".join([*lines, f"n{DEEP - 1}"]), SCHEMAS)
        is_same = parse_pattern(repr(pattern), SCHEMAS) == pattern
    assert is_same
