"""What expressions compute with arrays and lists, and what they refuse to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplcli.errors import PatternSyntaxError
from dplcli.ir import ArrayTensor, Value
from dplcli.language.conditions import FREE, FUNCTIONS, Expression, UnknownFactError
from tests.support.helpers import model_from_text, rule, selected, taken

GRAPH = model_from_text("g (float[2,3] x) => (o) { o = LeakyRelu <alpha = 0.5> (x) }").graph
W = np.arange(6, dtype=np.float32).reshape(2, 3)
V = np.array([1, 4], np.float32)


def constant(name: str, array: np.ndarray) -> Value:
    """Make a constant of the graph."""
    value = Value(name, GRAPH)
    value.set_initializer(ArrayTensor(array))
    return value


BOUND = {
    "w": constant("w", W),
    "v": constant("v", V),
    "h": constant("h", np.array([1e4, 4], np.float16)),
    "i": constant("i", np.array([2, 0, 1], np.int64)),
    "one": constant("one", np.array([3], np.int64)),
    "nan": constant("nan", np.array([1, np.nan], np.float32)),
    "x": GRAPH.values["x"],
    "leaky": GRAPH.values["o"],
}


def value_of(text: str) -> object:
    """Evaluate *text* over the constants above."""
    return Expression(text).value(BOUND)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqrt(v.value)", np.sqrt(V)),
        ("rsqrt(v.value)", np.array([1, 0.5], np.float32)),
        ("exp(v.value)", np.exp(V)),
        ("log(v.value)", np.log(V)),
        ("sqrt(h.value)", np.array([100, 2], np.float16)),
        ("sqrt(one.value)", np.sqrt([3.0])),
        ("reshape(w.value, [3, -1])", W.reshape(3, 2)),
        ("reshape(v.value, [-1] + [1 for _ in range(2)])", V.reshape(2, 1, 1)),
        ("expand(v.value, [3, 2])", np.stack([V] * 3)),
        ("transpose(w.value)", W.T.copy()),
        ("transpose(w.value, [1, 0])", W.T.copy()),
        ("squeeze(reshape(v.value, [1, 2, 1]))", V),
        ("squeeze(reshape(v.value, [1, 2, 1]), [0])", V[:, None]),
        ("unsqueeze(v.value, [0, -1])", V[None, :, None]),
        ("concat([w.value, w.value], 1)", np.concatenate([W, W], 1)),
        ("concat([v.value, [1]])", np.array([1, 4, 1], np.float64)),
        ('cast(v.value, "int64")', V.astype(np.int64)),
        ('cast(w.value / 3, "float16")', (W / 3).astype(np.float16)),
        ('cast(v.value, "float64")', V.astype(np.float64)),
        ("double(v.value)", V.astype(np.float64)),
        ('cast(cast(v.value, "float8e4m3fn"), "float32")', V),
        ('cast([1, 0], "bool")', np.array([True, False])),
        ("sum(w.value, [0])", W.sum(0)),
        ("sum(h.value, 0)", np.float16(10004)),
        ("w.value[1:]", W[1:]),
        ("along(v.value, 1, 3)", V.reshape(1, 2, 1)),
        ("value_or(v, 0)", V),
        ("w.value[:, 0]", W[:, 0]),
        ("round(v.value / 8)", np.rint(V / 8)),
    ],
)
def test_arrays(text: str, expected: np.ndarray) -> None:
    """An array function computes what numpy does and keeps the element type."""
    found = np.asarray(value_of(text))

    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sqrt(16)", 4.0),
        ("exp(0)", 1.0),
        ("sum(w.value)", 15.0),
        ("sum([1, 2, 3])", 6),
        ("sum(w.value.shape)", 5),
        ("sum(w.value > 1)", 4),
        ("max(sum(w.value > 1, [0]))", 2),
        ("min(w.value)", 0.0),
        ("max(w.value)", 5.0),
        ("min(3, 4)", 3),
        ("all(w.value >= 0)", True),
        ("all(w.value > 0)", False),
        ("any(w.value > 4)", True),
        ("all([True, False])", False),
        ("all(one.value[0] == 3)", True),
        ("any(1 == 2)", False),
        ("range(3)", [0, 1, 2]),
        ("range(1, 6, 2)", [1, 3, 5]),
        ("sorted([3, 1, 2])", [1, 2, 3]),
        ("sorted(i.value) == range(3)", True),
        ("zip([1, 2], (3, 4))", [(1, 3), (2, 4)]),
        ("[a + b for a, b in zip([1, 2], [3, 4])]", [4, 6]),
        ("list(w.shape)", [2, 3]),
        ("tuple(list(w.shape)) == w.shape", True),
        ("round(2.5)", 2),
        ("int(one.value)", 3),
        ("int(3.0)", 3),
        ("float(one.value)", 3.0),
        ("is_perm([2, 0, 1])", True),
        ("is_perm(i.value)", True),
        ("is_perm([2, 0, 2])", False),
        ("is_perm([])", True),
        ("inverse([2, 0, 1])", [1, 2, 0]),
        ("[i.value[j] for j in inverse(i.value)] == [0, 1, 2]", True),
        ("is_finite(v.value)", True),
        ("is_finite(nan.value)", False),
        ("[0] + [1, 2]", [0, 1, 2]),
        ("value_or(missing, 7)", 7),
        ("value_or(missing, None)", None),
        ("all(value_or(missing, value_or(one, gone.value)) == 3)", True),
        ("all(value_or(one, missing.value) == 3)", True),
        ("value_or(missing.attrs.alpha, 7)", 7),
        ("value_or(leaky.attrs.alpha, 7)", 0.5),
        ("value_or(leaky.attrs.beta, 7)", 7),
        ("[is_number(d) for d in x.shape]", [True, True]),
        ("is_number('n')", False),
        ('widens("int8", "float16")', True),
        ('widens("int64", "float64")', False),
        ("w.shape[:1] + (7,)", (2, 7)),
        ("[*w.shape, 7, *i.value]", [2, 3, 7, 2, 0, 1]),
        ("(*w.shape[:1], -1)", (2, -1)),
        ("[*[]]", []),
        ("max([*w.shape, *range(9)])", 8),
        ("[[*v, 1] for v in [[2], [3, 4]]]", [[2, 1], [3, 4, 1]]),
    ],
)
def test_numbers_and_lists(text: str, expected: object) -> None:
    """A function over numbers and lists answers as Python's own does."""
    found = value_of(text)

    assert found == expected
    assert isinstance(found, (bool, np.bool_)) is isinstance(expected, bool)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("int(2.5)", "2.5 is not a whole number"),
        ("int(v.value)", "one number is expected"),
        ("float(v.value)", "one number is expected"),
        ("sqrt(w)", "write w.value for the data of 'w'"),
        ("sqrt('a')", "expected numbers or an array"),
        ("list(w)", "'w' is not a list"),
        ("list(3)", "expected a list"),
        ("sum('ab')", "expected a list"),
        ("zip([1], [1, 2])", "different lengths"),
        ("inverse([1, 1])", "is not a permutation"),
        ("reshape(w.value, [4, 2])", "do not fill"),
        ("reshape(w.value, [2.0, 3])", "whole number"),
        ("transpose(w.value, [0, 0])", "named twice"),
        ("cast(w.value, 'float33')", "'float33' is not an element type"),
        ("cast(w.value, 3)", "3 is not an element type"),
        ("cast(w.value / 2, 'int64')", "int64 cannot hold all numbers"),
        ("cast([300], 'uint8')", "uint8 cannot hold all numbers"),
        ("cast([1e6], 'float16')", "float16 cannot hold all numbers"),
        ("cast([20], 'int4')", "int4 cannot hold all numbers"),
        ("value_or(3, 4)", "value_or takes a name of the pattern first"),
        ("value_or(missing, 0) + missing.value", "'missing' took no part in the match"),
        ("value_or(x, 0)", "'x' is not a constant"),
        ("value_or(missing, 0, 1)", "value_or takes a name of the pattern first"),
        ("value_or(missing)", "value_or takes a name of the pattern first"),
        ("value_or(missing.shape, 0)", "value_or takes a name of the pattern first"),
        ("[value_or(k, 0) for k in [1, 2]]", "value_or takes a name of the pattern first"),
        ("value_or(missing, gone.value)", "'gone' took no part in the match"),
        ("value_or(x.attrs.alpha, 7)", "'x' is not made by a node"),
        ("[1] - (2,)", "arithmetic is for numbers"),
        ("[1] * 3", "arithmetic is for numbers"),
        ("[*7]", "a list is expected"),
        ("[*x]", "a list is expected"),
        ("len(3)", "a list is expected"),
        ("[a for a, b in [[1, 2, 3]]]", "a list of 2 items is expected"),
        ("[a for a in w.rank]", "a list is expected"),
        ("squeeze(w.value, [0])", "a dimension that is removed is not 1"),
        ("squeeze(w.value, [7])", "an axis is asked for that the array does not have"),
        ("unsqueeze(w.value, [0, 4])", "an axis is asked for that the array does not have"),
        ("sum(w.value, [0, -2])", "an axis is named twice"),
        ("transpose(w.value, [0])", "the order does not name every axis"),
        ("expand(w.value, [5, 7])", "the shapes of two arrays do not fit together"),
        ("concat([w.value, v.value])", "the arrays to join do not fit together"),
        ("w.value + expand(1.0, [7])", "the shapes of two arrays do not fit together"),
        ("sqrt([[1], [2, 3]])", "a list holds lists of different lengths"),
        ("max([])", "there are no numbers to choose from"),
        ("round(float(nan.value[1:]))", "infinite or not a number"),
        ("{w.value}", "cannot be part of a set"),
        ("'a' < 1", "values of different kinds are compared"),
        ("sorted([1, 'a'])", "values of different kinds are compared"),
        ("1 if w.value else 2", "an array is not true or false"),
        ("depth(w if w.rank == 9 else 'a')", "depth takes a name of the pattern first"),
        ("w.shape[9]", "an item is asked for that there is not"),
    ],
)
def test_refusals(text: str, why: str) -> None:
    """What makes no sense is refused, in words that say why."""
    with pytest.raises((ValueError, UnknownFactError), match=why):
        value_of(text)


@pytest.mark.parametrize("text", ["reshape(w)", "list()", "exp(1, 2)", "same_shape(w, v, w)"])
def test_a_call_has_as_many_arguments_as_the_function_takes(text: str) -> None:
    """That is told when the text is read."""
    with pytest.raises(PatternSyntaxError, match="too few or too many arguments"):
        value_of(text)


@pytest.mark.parametrize("text", ["max(*w.shape)", "len(*w.shape, 1)", "dims(*[w])"])
def test_a_call_takes_no_list_apart(text: str) -> None:
    """Only a list does, so that the number of arguments shows."""
    with pytest.raises(PatternSyntaxError, match="outside a list"):
        value_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "expand(v.value, [1000000000, 2])",
        "expand(1.0, [100000, 100000])",
        "w.value * expand(1.0, [1048576, 1, 1])",
        "expand(1.0, [2000, 1]) * expand(1.0, [1, 2000])",
        "expand(1.0, [2000, 1]) == expand(1.0, [1, 2000])",
        "expand(1.0, [100000, 1]) == range(10000)",
        "concat([expand(1.0, [100000]) for _ in range(1000)])",
        "[exp(expand(1.0, [100000])) for _ in range(1000)]",
        "[concat([b, b]) for b in [concat([a, a]) for a in [expand(1.0, [250000])]]]",
        "range(1000000000)",
        "range(0, 10 ** 18)",
        "list(expand(1.0, [100000]))",
        "sum([list(range(9999)) + list(range(9999))])",
        "len([*range(9999), *range(9999)])",
        "[len([*range(99), *a]) for a in [list(range(99))] for _ in range(99)]",
        "[*expand(1.0, [100000])]",
    ],
)
def test_memory_bombs(text: str) -> None:
    """An expression computes no more than its constants justify, step by step and all told."""
    with pytest.raises(ValueError, match=r"more numbers than it reads|more than 10000"):
        value_of(text)


def test_large_constants_may_be_computed_with() -> None:
    """The allowance grows with what is read, and each evaluation has its own."""
    big = {"b": constant("b", np.ones(4 * FREE, np.float32))}
    expression = Expression("exp(b.value) * 2 + b.value")

    for _ in range(3):
        found = expression.value(big)
        assert isinstance(found, np.ndarray)
        assert found.size == 4 * FREE
        assert math.isclose(float(found[0]), 2 * math.e + 1, rel_tol=1e-6)


def test_evaluators_leave_the_functions_alone() -> None:
    """Making an expression adds no function that is not listed."""
    names = set(FUNCTIONS)
    Expression("[1, 2]").value({})

    assert set(FUNCTIONS) == names
    assert "dict" not in names


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("is_perm(t.attrs.perm)", True),
        ("list(t.attrs.perm) == range(3)", False),
        ("[x.shape[a] for a in t.attrs.perm] == [4, 2, 3]", True),
        ("all([a == b for a, b in zip(x.shape, t.shape)])", False),
        ("sum(x.shape[1:]) == 7", True),
        ("int(x.shape[0]) == 2", True),
    ],
)
def test_conditions_use_them(condition: str, *, holds: bool) -> None:
    """Conditions compute with shapes and attributes."""
    text = "g (float[2,3,4] a) => (o) { t = Transpose <perm = [2, 0, 1]> (a) o = Relu (t) }"
    found = taken(selected(rule("t = Transpose(x)\nRelu(t)", condition), text))

    assert bool(found) is holds


def test_an_attribute_that_a_caller_gives_has_no_default() -> None:
    """It is there, and not known."""
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (float[2] o) { o = own.f (x) }
        <domain: "own", opset_import: ["" : 17]>
        f <a> (x) => (y) { y = LeakyRelu <alpha: float = @a> (x) }"""
    ruled = rule("y = Relu(x) | LeakyRelu(x)\ny", "value_or(y.attrs.alpha, 1) == 1")
    relu = text.replace("LeakyRelu <alpha: float = @a>", "Relu").replace("<a>", "")

    assert taken(selected(ruled, text)) == []
    assert taken(selected(ruled, relu)) == ["r: y"]


def test_an_absent_name_has_a_default() -> None:
    """``value_or`` speaks of a name whose alternative took no part, and of no other."""
    relu = "g (float[2] a) => (o) <float[2] b = {1, 2}> { o = Relu (a) }"
    add = "g (float[2] a) => (o) <float[2] b = {1, 2}> { o = Add (a, b) }"
    ruled = rule("Relu(x) | Add(x, const(b))", "sum(value_or(b, [4])) == 3")
    either = rule("Relu(x) | Add(x, const(b))", "sum(value_or(b, [4])) == 4 and b.rank == 9")

    assert (taken(selected(ruled, relu)), taken(selected(ruled, add))) == ([], ["r: o"])
    assert (taken(selected(either, relu)), taken(selected(either, add))) == (["r: o"], [])
