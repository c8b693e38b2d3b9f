"""An axis is an axis, whichever end it is counted from."""

from __future__ import annotations

import pytest

from dplcli.passes.select import select_matches
from tests.support.helpers import model_from_text, rule

HEAD = '<ir_version: 10, opset_import: ["" : {}, "com.microsoft" : 1, "own" : 1]>\n'


def matches(pattern: str, body: str, opset: int = 18, x: str = "float[2,3,4] x") -> bool:
    """Tell whether a pattern matches at the last node."""
    text = f"{HEAD.format(opset)}g ({x}, int64[1] n) => (y) {body}"
    return bool(select_matches(model_from_text(text), [rule(pattern)]).matches)


@pytest.mark.parametrize(
    ("pattern", "body", "opset"),
    [
        ("Softmax(x, axis=-1)", "{ y = Softmax <axis = 2> (x) }", 18),
        ("Softmax(x, axis=2)", "{ y = Softmax (x) }", 18),
        ("Softmax(x, axis=-2)", "{ y = Softmax (x) }", 12),
        ("Concat(x, x, axis=1)", "{ y = Concat <axis = -2> (x, x) }", 18),
        ("ReduceSum(x, axes=[0, -1])", "<int64[2] a = {-3, 2}> { y = ReduceSum (x, a) }", 18),
        ("ReduceMax(x, axes=[-1])", "{ y = ReduceMax <axes = [2]> (x) }", 13),
        ("Unsqueeze(x, axes=[3])", "<int64[1] a = {-1}> { y = Unsqueeze (x, a) }", 18),
        ("Flatten(x, axis=3)", "{ y = Flatten <axis = 3> (x) }", 18),
        (
            "LayerNormalization(x, _, axis=2)",
            "<float[4] s = {1.0, 1.0, 1.0, 1.0}> { y = LayerNormalization (x, s) }",
            18,
        ),
        (
            "Softmax(Softmax(x, axis=a), axis=a)",
            "{ t = Softmax (x) y = Softmax <axis = 2> (t) }",
            18,
        ),
        ("Squeeze(x, [-1])", "<int64[1] a = {2}> { y = Squeeze (x, a) }", 18),
        ("Squeeze(x, [2])", "<int64[1] a = {-1}> { y = Squeeze (x, a) }", 18),
        ("Squeeze(x, [2])", "{ y = Squeeze <axes = [-1]> (x) }", 11),
        ("Unsqueeze(x, [-1])", "<int64[1] a = {3}> { y = Unsqueeze (x, a) }", 18),
        ("ReduceSum(x, [0, -1])", "<int64[2] a = {-3, 2}> { y = ReduceSum (x, a) }", 18),
        ("CumSum(x, -1)", "<int64 a = {2}> { y = CumSum (x, a) }", 18),
        ("CumSum(x, 2)", "<int64 a = {-1}> { y = CumSum (x, a) }", 18),
        (
            "Slice(x, [0], [2], [-1])",
            "<int64[1] s = {0}, int64[1] e = {2}, int64[1] a = {2}> { y = Slice (x, s, e, a) }",
            18,
        ),
        (
            "repeat(Squeeze, x, [-1], min=1)",
            "<int64[1] a = {2}> { y = Squeeze (x, a) }",
            18,
        ),
        ("Transpose(x, perm=[0, -1, -2])", "{ y = Transpose <perm = [0, 2, 1]> (x) }", 18),
        ("Shape(x, start=-1)", "{ y = Shape <start = 2> (x) }", 18),
        ("ReduceSum(x, [1] | [-1])", "<int64[1] a = {2}> { y = ReduceSum (x, a) }", 18),
        ("ReduceSum(x, [-1] | None)", "<int64[1] a = {2}> { y = ReduceSum (x, a) }", 18),
        ("ReduceSum(x, const(a) & [-1])", "<int64[1] a = {2}> { y = ReduceSum (x, a) }", 18),
        ("DFT(x, axis=1)", "{ y = DFT (x) }", 20),
        (
            "ConcatFromSequence(_, axis=3, new_axis=1)",
            "{ s = SequenceConstruct (x, x) y = ConcatFromSequence <axis = -1, new_axis = 1> (s) }",
            18,
        ),
        (
            "com.microsoft.QLinearConcat(*_, axis=-1)",
            """<float[1] s = {1.0}, uint8[1] z = {0}, uint8[1,2,1] q = {1, 2}>
            { y = com.microsoft.QLinearConcat <axis = 2> (s, z, q, s, z) }""",
            18,
        ),
        (
            "ReverseSequence(x, n, batch_axis=1, time_axis=-3)",
            "{ y = ReverseSequence <batch_axis = 1, time_axis = 0> (x, n) }",
            18,
        ),
    ],
)
def test_axes_are_counted_from_either_end(pattern: str, body: str, opset: int) -> None:
    """As attributes, their defaults, constant inputs and names that stand twice."""
    assert matches(pattern, body, opset)


@pytest.mark.parametrize(
    ("pattern", "body", "x"),
    [
        ("Softmax(x, axis=-1)", "{ y = Softmax <axis = 1> (x) }", "float[2,3,4] x"),
        ("Softmax(x, axis=-1)", "{ y = Softmax <axis = 2> (x) }", "float x"),
        (
            "Unsqueeze(x, axes=[2])",
            "<int64[1] a = {-1}> { y = Unsqueeze (x, a) }",
            "float[2,3,4] x",
        ),
        ("Flatten(x, axis=0)", "{ y = Flatten <axis = 3> (x) }", "float[2,3,4] x"),
        (
            "Transpose(x, perm=[0, 1, 2])",
            "{ y = Transpose <perm = [0, 2, 1]> (x) }",
            "float[2,3,4] x",
        ),
        (
            "Squeeze(x, [-1])",
            "<int64[1] a = {1}> { y = Squeeze (x, a) }",
            "float[2,1,1] x",
        ),
        ("Squeeze(x, [-1])", "<int64[1] a = {2}> { y = Squeeze (x, a) }", "float x"),
        ("Gather(x, -1)", "<int64 a = {2}> { y = Gather (x, a) }", "float[3,3,4] x"),
        ("Reshape(x, [-1])", "<int64[1] a = {2}> { y = Reshape (x, a) }", "float[2,1,1] x"),
        (
            "Squeeze(x, [-1])",
            "<int64[2] a = {1, 2}> { y = Squeeze (x, a) }",
            "float[2,1,1] x",
        ),
        ("Gemm(x, x, transA=-1)", "{ y = Gemm <transA = 1> (x, x) }", "float[2,2] x"),
        ("own.F(x, axis=-1)", "{ y = own.F <axis = 1> (x) }", "float[2,2] x"),
        (
            'ReduceSum(x, is_value([-1], dtype="int32"))',
            "<int64[1] a = {1}> { y = ReduceSum (x, a) }",
            "float[2,2] x",
        ),
        ("ReduceSum(x, ~[-1])", "<int64[1] a = {1}> { y = ReduceSum (x, a) }", "float[2,2] x"),
    ],
)
def test_other_axes_do_not_match(pattern: str, body: str, x: str) -> None:
    """Nor those of a value whose rank is unknown, nor what nobody knows to be an axis."""
    assert not matches(pattern, body, x=x)
