"""The proof that two models are one graph: what it sees, what it looks past, and that it is right.

Each planted bug is one edit of a model that is proved without it.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.helper
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.external_data_helper import convert_model_to_external_data

from dplcli import pipeline
from dplcli.errors import InvalidModelError
from dplcli.onnx_io.convert import load_data
from dplcli.settings import InlineSettings, PartitionSettings, RepeatingSettings
from dplcli.verify.proof import UnprovedError, prove_same
from dplcli.verify.verdict import Proof
from tests.corpus.nets import manifest, real_model
from tests.support.helpers import (
    partitioned,
    proto_from_text,
    random_inputs,
    rule,
    run_model,
    thinned,
)
from tests.support.random_models import rule_texts, scoped_models
from tests.support.strategies import RandomGraph, Step, graphs, subgraph_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.verify.conftest import Save

    Edit = Callable[[onnx.ModelProto], object]

HEADER = '<ir_version: 10, opset_import: ["" : 17, "t" : 1]>\n'
FUNCTION = '<domain: "t", opset_import: ["" : 17, "t" : 1]> '
ORIGINAL = """g (float[2,6] x, float[2,6] z) => (float[2,6] y, float[2,6] v)
    <float[6] w = {1, 2, 3, 4, 5, 6}, float[6] w2 = {1, 2, 3, 4, 5, 6.5}>
    { a = Sub(x, w) b = LeakyRelu<alpha = 0.5>(a) c = Sub(b, z) k = Constant<value = float {2}>()
      y = Mul(c, k) d = Sub(x, z) v = Neg(d) }"""
CANDIDATE = """g (float[2,6] x, float[2,6] z) => (float[2,6] y, float[2,6] v)
    <float[6] w = {1, 2, 3, 4, 5, 6}, float[6] w2 = {1, 2, 3, 4, 5, 6.5}>
    { y, d = t.f<alpha = 0.5>(x, z, w) v = Neg(d) }"""
F = """f<alpha>(p, q, r) => (o, e) {
    a = t.h<alpha: float = @alpha>(p, r) c = Sub(a, q) k = Constant<value = float {2}>()
    o = Mul(c, k) e = Sub(p, q) }"""
H = "h<alpha>(p, q) => (o) { s = Sub(p, q) o = LeakyRelu<alpha: float = @alpha>(s) }"
CALLED = f"{CANDIDATE} {FUNCTION}{F} {FUNCTION}{H}"

# Candidates with a bug: what is written in the place of what, and the message.
PLANTED = {
    "swapped operands of a call": ("(x, z, w)", "(z, x, w)", "Sub '.*' of the original has no"),
    "another operand of a call": ("(x, z, w)", "(x, z, w2)", "Sub 'a' of the original has no"),
    "swapped operands in a body": ("c = Sub(a, q)", "c = Sub(q, a)", "Sub 'c' of the original"),
    "another attribute of a call": ("<alpha = 0.5>", "<alpha = 0.25>", "LeakyRelu 'b'"),
    "another attribute in a body": ("<alpha: float = @alpha>(s)", "<alpha = 0.25>(s)", "Leaky"),
    "no attribute of a call": ("t.f<alpha = 0.5>", "t.f", "LeakyRelu 'b'"),
    "no attribute in a body": ("<alpha: float = @alpha>(s)", "(s)", "LeakyRelu 'b'"),
    "no attribute of an inner call": ("t.h<alpha: float = @alpha>", "t.h", "LeakyRelu 'b'"),
    "another constant": ("float {2}", "float {3}", "Mul 'y'"),
    "a constant of another type": ("float {2}", "double {2}", "Mul 'y'"),
    "a constant of another shape": ("float {2}", "float[1] {2}", "Mul 'y'"),
    "another weight": ("5, 6}", "5, 7}", "Sub 'a'"),
    "a weight of another shape": ("float[6] w =", "float[1,6] w =", "Sub 'a'"),
    "another opset of a function": (
        f'{FUNCTION.replace("17", "17")}h', '<domain: "t", opset_import: ["" : 16]> h', "t::h"
    ),
    "another opset of the model": ('["" : 17, "t" : 1]>\ng', '["" : 16, "t" : 1]>\ng', "t::f"),
    "swapped results of a function": ("=> (o, e)", "=> (e, o)", "Neg 'v' of the original"),
    "swapped results of a call": ("y, d = t.f", "d, y = t.f", "Neg 'v' of the original"),
    "a node dropped": ("o = Mul(c, k)", "o = Identity(c)", "Mul 'y' of the original has no"),
    "a node added": ("o = Mul(c, k)", "m = Mul(c, k) o = Abs(m)", "Abs '.*' of the candidate"),
    "a dead node added": ("o = Mul(c, k)", "o = Mul(c, k) m = Abs(c)", "Abs .* of the candidate"),
    "a node twice": ("v = Neg(d)", "v = Neg(d) u = Neg(d)", "Neg 'v' 1 times, not 2"),
    "another operator": ("v = Neg(d)", "v = Abs(d)", "Neg 'v' of the original"),
    "another domain": ("v = Neg(d)", "v = t.Neg(d)", "Neg 'v' of the original"),
    "an output rewired": ("v = Neg(d)", "u = Neg(d) v = Identity(d)", "an output is another"),
    "a call dropped": ("y, d = t.f<alpha = 0.5>(x, z, w)", "y = Sub(x, z) d = Neg(y)", "Sub 'a'"),
    "a call twice": ("v = Neg(d)", "v = Neg(d) u, i = t.f<alpha = 0.5>(x, z, w)", "1 times, not 2"),
    "an operand of a call omitted": ("(x, z, w)", "(x, z)", "Sub 'a'"),
    "an operand too many": ("(x, z, w)", "(x, z, w, w)", "onnx's inliner fails"),
    "a bug two calls deep": ("s = Sub(p, q)", "s = Sub(q, p)", "Sub 'a'"),
    "a function that is not there": ("t.h<", "t.hh<", "Sub 'a' of the original"),
    "a function in the standard's name": (
        f"{FUNCTION}h", ('<domain: "", opset_import: ["" : 17]> Neg(p) => (o) { o = Abs(p) } '
        f"{FUNCTION}h"), "a function has the name of an operator of the standard: Neg",
    ),
    "outputs in another order": (
        "(float[2,6] y, float[2,6] v)", "(float[2,6] v, float[2,6] y)", "outputs are in another"
    ),
    "an output's type": ("float[2,6] v)", "double[2,6] v)", "output 'v' is"),
    "an input's type": ("float[2,6] z) =>", "double[2,6] z) =>", "input 'z' is"),
}  # fmt: skip


def proved(save: Save, original: object, candidate: object) -> Proof:
    """Write two models and prove them the same."""
    texts = [HEADER + m if isinstance(m, str) and m[0] != "<" else m for m in (original, candidate)]
    return prove_same(save(texts[0], "original"), save(texts[1], "candidate"))


def again(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model for a file of other bytes, which say nothing by themselves."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    copied.producer_name = "again"
    return copied


def refused(save: Save, original: object, candidate: object, message: str) -> None:
    """Check that two models are not proved, either way round."""
    with pytest.raises(UnprovedError) as caught:
        proved(save, original, candidate)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UnprovedError):
        proved(save, candidate, original)


def test_a_dequantisation_may_be_done_again(save: Save) -> None:
    """A partition copies it for each reader; another scale, and a copy of all else, is no copy."""
    head = "g (int8[2] x) => (float[2] y, float[2] z) <float s = {0.5}, float t = {0.25}>"
    once = f"{head} {{ d = DequantizeLinear(x, s) y = Neg(d) z = Abs(d) }}"
    twice = once.replace("z = Abs(d)", "e = DequantizeLinear(x, s) z = Abs(e)")
    assert proved(save, once, twice) == Proof()
    assert proved(save, twice, once) == Proof()
    refused(
        save, once, twice.replace("e = DequantizeLinear(x, s)", "e = DequantizeLinear(x, t)"), ""
    )
    refused(
        save, once, once.replace("z = Abs(d)", "z = Abs(d) u = Neg(d)"), "Neg 'y' 1 times, not 2"
    )


def test_calls_are_the_nodes_they_stand_for(save: Save) -> None:
    """Without a bug it is proved, calls in calls included; and so are all their nodes."""
    proof = proved(save, ORIGINAL, CALLED)
    assert proof == Proof(calls=1)
    back = proved(save, CALLED, ORIGINAL)
    assert back == Proof(undone=1)


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_seen(save: Save, bug: str) -> None:
    """One edit of what is proved is not, and the message names the node."""
    old, new, message = PLANTED[bug]
    whole = HEADER + CALLED
    assert old in whole
    assert whole.replace(old, new) != whole
    refused(save, HEADER + ORIGINAL, whole.replace(old, new), message)


# Pairs of small bodies y = ... of x, which differ, or do not.

IF = "c = Constant<value_int = 1>() b = Cast<to = 9>(c) q = Neg(x) r = Abs(x) "
THEN = "y = If(b)<then_branch = a() => (float[2,6] u) {{ {} }}, else_branch = e() => (float[2,6] o)"
BRANCHES = IF + THEN + " {{ {} }}>"
LOOP = (
    "n = Constant<value_int = 2>() c = Cast<to = 9>(n) "
    "y, k = Loop({})<body = l(int64 i, bool g, {}) => (bool h, float[2,6] s, float[2,6] t) {{ "
    "h = Identity(g) {} }}>"
)
P, Q = "float[2,6] p", "float[2,6] q"
DIFFERENT = {
    "operands omitted": ("y = Clip(x, m)", "y = Clip(x, '', m)", "Clip"),
    "operand omitted": ("y = Clip(x, m)", "y = Clip(x)", "Clip 'y'"),
    "default": ("y = LeakyRelu<alpha = 0.5>(x)", "y = LeakyRelu(x)", "LeakyRelu 'y'"),
    "Softmax": ("y = Softmax<axis = 0>(x)", "y = Softmax(x)", "Softmax 'y'"),
    "type of attribute": ("y = Cast<to = 1>(x)", "y = Cast<to = 10>(x)", "Cast 'y'"),
    "float or int": ("y = t.X<k = 1>(x)", "y = t.X<k = 1.0>(x)", "X 'y'"),
    "name of attribute": ("y = t.X<k = 1>(x)", "y = t.X<j = 1>(x)", "X 'y'"),
    "text": ('y = t.X<k = "a">(x)', 'y = t.X<k = "b">(x)', "X 'y'"),
    "zeros' signs": ("y = t.X<k = 0.0>(x)", "y = t.X<k = -0.0>(x)", "X 'y'"),
    "tensor": ("y = t.X<k = float {1}>(x)", "y = t.X<k = float {2}>(x)", "X 'y'"),
    "strings": (
        'y = t.X<k = string[2] {"a", "b"}>(x)', 'y = t.X<k = string[2] {"ab", ""}>(x)', "X 'y'"
    ),
    "perm": ("y = Transpose<perm = [0, 1]>(x)", "y = Transpose(x)", "Transpose"),
    "strides": ("y = Conv<strides = [2, 1]>(x, w4)", "y = Conv(x, w4)", "Conv"),
    "strides of another rank": ("y = Conv<strides = [1]>(x, w4)", "y = Conv(x, w4)", "Conv"),
    "pads": ("y = Conv<pads = [0, 0, 1, 0]>(x, w4)", "y = Conv(x, w4)", "Conv"),
    "pads of another rank": ("y = Conv<pads = [0, 0]>(x, w4)", "y = Conv(x, w4)", "Conv"),
    "kernel": ("y = Conv<kernel_shape = [1, 3]>(x, w4)", "y = Conv(x, w4)", "Conv"),
    "auto_pad": ('y = Conv<auto_pad = "VALID">(x, w4)', "y = Conv(x, w4)", "Conv"),
    "pads and auto_pad": (
        'y = Conv<auto_pad = "SAME_UPPER", pads = [0, 0, 0, 0]>(x, w4)',
        'y = Conv<auto_pad = "SAME_UPPER">(x, w4)', "Conv",
    ),
    "results counted": ("y, j, '' = Split<axis = 1>(x)", "y, j = Split<axis = 1>(x)", "Split"),
    "result's place": ("j, y = Split<axis = 1>(x)", "y, j = Split<axis = 1>(x)", "an output"),
    "operands counted": ("y = t.X(x, '')", "y = t.X(x)", "X 'y'"),
    "constant's name": (
        'c = Constant<value_string = "a">() y = t.X(c)',
        'c = Constant<value_strings = ["a"]>() y = t.X(c)', "X 'y'",
    ),
    "random, one drawn twice": (
        "a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(a, b)",
        "a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(a, a)", "RandomUniformLike may",
    ),
    "random with a seed": (
        "a = RandomUniformLike<seed = 1.0>(x) b = RandomUniformLike<seed = 1.0>(x) y = Sub(a, b)",
        "a = RandomUniformLike<seed = 1.0>(x) b = RandomUniformLike<seed = 1.0>(x) y = Sub(a, a)",
        "may draw random numbers, and two are alike",
    ),
    "random, one too many": (
        "a = RandomUniformLike(x) y = Sub(a, a)",
        "a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(a, b)", "RandomUniformLike",
    ),
    "random, swapped": (
        "a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(a, b)",
        "a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(b, a)", "RandomUniformLike may",
    ),
    "nobody knows": (
        "a = t.X(x) b = t.X(x) y = Sub(a, b)", "a = t.X(x) b = t.X(x) y = Sub(a, a)", "X may draw"
    ),
    "captured": (
        BRANCHES.format("u = Exp(q)", "o = Exp(x)"), BRANCHES.format("u = Exp(r)", "o = Exp(x)"),
        "'[uy]' of the original",
    ),
    "branches swapped": (
        BRANCHES.format("u = Exp(q)", "o = Sin(r)"), BRANCHES.format("u = Sin(r)", "o = Exp(q)"),
        "If 'y'",
    ),
    "in a branch or outside": (
        BRANCHES.format("u = Exp(q)", "o = Exp(q)"),
        BRANCHES.replace("r = Abs", "w1 = Exp(q) r = Abs").format("u=Identity(w1)", "o = Exp(q)"),
        "If 'y'",
    ),
    "moved between branches": (
        BRANCHES.format("u = Exp(q) u2 = Sin(q)", "o = Exp(q)"),
        BRANCHES.format("u = Exp(q)", "o = Exp(q) o2 = Sin(q)"), "If 'y'",
    ),
    "operands of a body": (
        LOOP.format("n, c, x, w", f"{P}, {Q}", "s = Sub(p, q) t = Identity(q)"),
        LOOP.format("n, c, x, w", f"{Q}, {P}", "s = Sub(p, q) t = Identity(q)"), "'[sy]'",
    ),
    "carried": (
        LOOP.format("n, c, x, w", f"{P}, {Q}", "s = Sub(p, q) t = Identity(q)"),
        LOOP.format("n, c, w, x", f"{P}, {Q}", "s = Sub(p, q) t = Identity(q)"), "Loop 'y'",
    ),
    "carried or captured": (
        LOOP.format("n, c, x, w", f"{P}, {Q}", "s = Sub(p, q) t = Identity(q)"),
        LOOP.format("n, c, x, w", f"{P}, {Q}", "s = Sub(p, w) t = Identity(q)"), "'[sy]'",
    ),
    "results of a body": (
        LOOP.format("n, c, x, w", f"{P}, {Q}", "s = Sub(p, q) t = Identity(q)"),
        LOOP.format("n, c, x, w", f"{P}, {Q}", "t = Sub(p, q) s = Identity(q)"), "Loop 'y'",
    ),
}  # fmt: skip
SAME = {
    "names": ("a = Neg(x) y = Exp(a)", "other = Neg(x) y = Exp(other)"),
    "order": ("a = Neg(x) b = Exp(x) y = Sub(a, b)", "b = Exp(x) a = Neg(x) y = Sub(a, b)"),
    "default": ("y = LeakyRelu<alpha = 0.01>(x)", "y = LeakyRelu(x)"),
    "perm": ("y = Transpose<perm = [1, 0]>(x)", "y = Transpose(x)"),
    "conv": (
        ('y = Conv<strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], auto_pad = "NOTSET", '
        "kernel_shape = [1, 2], group = 1>(x, w4)"), "y = Conv(x, w4)",
    ),
    "pool": (
        "y = MaxPool<kernel_shape = [2], strides = [1], pads = [0, 0]>(x)",
        "y = MaxPool<kernel_shape = [2]>(x)",
    ),
    "Constant": ("k = Constant<value = float[6] {1, 2, 3, 4, 5, 6}>() y = Sub(x, k)", "y=Sub(x,w)"),
    "value_float": (
        "k = Constant<value = float {0.1}>() y = Sub(x, k)",
        "k = Constant<value_float = 0.1>() y = Sub(x, k)",
    ),
    "value_ints": (
        "k = Constant<value = int64[2] {3, 4}>() y = Reshape(x, k)",
        "k = Constant<value_ints = [3, 4]>() y = Reshape(x, k)",
    ),
    "no value_ints": (
        "k = Constant<value = int64[0] {}>() y = Reshape(x, k)",
        "k = Constant<value_ints: ints = []>() y = Reshape(x, k)",
    ),
    "Identity": ("a = Neg(x) y = Exp(a)", "a = Neg(x) i = Identity(a) j = Exp(i) y = Identity(j)"),
    "domain": ("y = Exp(x)", "y = ai.onnx.Exp(x)"),
    "trailing operands": ("y = Clip(x, m, '')", "y = Clip(x, m)"),
    "trailing results": ("y, '' = Dropout(x)", "y = Dropout(x)"),
    "twins": (
        "a = Neg(x) b = Neg(x) y = Sub(a, b)", "a = Neg(x) b = Neg(x) y = Sub(b, b)"
    ),
    "captured": (BRANCHES.format("u = Exp(q)", "o = Exp(r)"),
        BRANCHES.format("w1 = Identity(q) u = Exp(w1)", "o = Exp(r)").replace("q", "other")),
    "random, told apart by name": (
        "a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(a, b)",
        "b = RandomUniformLike(x) a = RandomUniformLike(x) i = Identity(a) y = Sub(i, b)",
    ),
    "random": ("a = RandomUniformLike(x) y = Sub(a, a)", "b = RandomUniformLike(x) y = Sub(b, b)"),
    "loop": (
        LOOP.format("n, c, x, w", f"{P}, {Q}", "s = Sub(p, q) t = Identity(q)"),
        LOOP.format("n, c, x, w", "float[2,6] a, float[2,6] d", "s = Sub(a, d) t = Identity(d)"),
    ),
}  # fmt: skip


def small(body: str, after: str = "") -> onnx.ModelProto:
    """Make a model of some nodes; two quotes omit an operand."""
    text = f"""{HEADER}g (float[2,6] x, float m) => (float y)
        <float[6] w = {{1, 2, 3, 4, 5, 6}}, float[1,1,1,2] w4 = {{1, 2}}> {{ {body} }} {after}"""
    model: onnx.ModelProto = onnx.parser.parse_model(text.replace("''", '""'))
    return model


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_seen(save: Save, name: str) -> None:
    """Both bodies are read; each is proved to be itself, unless nobody can tell."""
    ours, theirs, message = DIFFERENT[name]
    refused(save, small(ours), small(theirs), message)
    for body in (ours, theirs):
        if body.count("Random") + body.count("t.X(x)") < 2:
            assert proved(save, small(body), again(small(body))) == Proof()


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_matter_is_looked_past(save: Save, name: str) -> None:
    """Two ways to write one graph are proved to be one."""
    ours, theirs = map(small, SAME[name])
    assert ours != theirs
    assert proved(save, ours, theirs) == Proof()
    assert proved(save, theirs, ours) == Proof()


TWINS = (
    "a = RandomUniformLike(x) b = RandomUniformLike(x) y = Sub(a, b)",
    "a = t.X(x) b = t.X(x) y = Sub(a, b)",
    "u = Cast<to = 9>(m) a = Dropout(x, m, u) b = Dropout(x, m, u) y = Sub(a, b)",
)


@pytest.mark.parametrize("body", TWINS)
def test_files_of_the_same_bytes_are_one_model(save: Save, body: str) -> None:
    """Whatever operators they have; other bytes are proved where names tell the twins apart."""
    moved = f"{FUNCTION} f(p, q) => (o) {{ o = Sub(p, q) }}"
    assert proved(save, small(body), small(body)) == Proof()
    assert proved(save, small(body), again(small(body))) == Proof()
    assert proved(save, small(body), small(body.replace("Sub", "t.f"), moved)).calls == 1
    refused(save, small(body), small(body.replace("(a, b)", "(b, a)")), "and two are alike")
    twice = small("a = t.g(x) b = t.g(x) y = Sub(a, b)", f"{FUNCTION} g(p) => (a) {{ a = t.X(p) }}")
    assert proved(save, twice, twice) == Proof()
    refused(save, small(body), twice, "and two are alike")


def test_same_bytes_beside_other_weights(tmp_path: Path) -> None:
    """They are the same model only if the weights are."""

    def twins(model: onnx.ModelProto) -> None:
        model.graph.node.extend(small(TWINS[1]).graph.node[:2])
        model.graph.node[-2].output[0] = "twin"

    ours, theirs = external(tmp_path / "a", twins), external(tmp_path / "b", twins)
    assert ours.read_bytes() == theirs.read_bytes()
    assert prove_same(ours, theirs) == prove_same(ours, ours) == Proof()
    weights = bytearray((tmp_path / "b" / "weights").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "b" / "weights").write_bytes(weights)
    with pytest.raises(UnprovedError):
        prove_same(ours, theirs)


# Functions.


CALLS = {
    "default of a function": ("f<alpha: float = 0.5>(x) => (y) {{ {} }}", "t.f(x)", "0.5"),
    "default not taken": ("f<alpha: float = 0.5>(x) => (y) {{ {} }}", "t.f<alpha=0.25>(x)", "0.25"),
    "no default": ("f<alpha>(x) => (y) {{ {} }}", "t.f(x)", "0.01"),
}


@pytest.mark.parametrize("name", CALLS)
def test_default_of_a_function_counts(save: Save, name: str) -> None:
    """Onnx's inliner does not look at it: the operator's own default would be taken."""
    function, call, value = CALLS[name]
    function = FUNCTION + function.format("y = LeakyRelu<alpha: float = @alpha>(x)")
    for alpha in ("0.5", "0.25", "0.01"):
        ours, theirs = small(f"y = LeakyRelu<alpha = {alpha}>(x)"), small(f"y = {call}", function)
        if alpha == value:
            assert proved(save, ours, theirs).calls == 1
        else:
            refused(save, ours, theirs, "LeakyRelu 'y' of the original has no counterpart")


def test_default_behind_a_reference_is_not_guessed(save: Save) -> None:
    """The reference may be to nothing; then the default holds, which the inliner does not see."""
    functions = (
        f"{FUNCTION}f<alpha>(x) => (y) {{ y = t.h<alpha: float = @alpha>(x) }} "
        f"{FUNCTION}h<alpha: float = 0.5>(x) => (y) {{ y = LeakyRelu<alpha: float = @alpha>(x) }}"
    )
    theirs = small("y = t.f(x)", functions)
    refused(save, small("y = LeakyRelu(x)"), theirs, "the default of h may stand for a reference")


def test_attribute_that_a_function_does_not_declare(save: Save) -> None:
    """The inliner would take it from the call all the same."""
    theirs = small("y = t.f<alpha = 0.5>(x)", FUNCTION + "f(x) => (y) { y = LeakyRelu(x) }")
    item = theirs.functions[0].node[0].attribute.add(name="alpha", ref_attr_name="alpha")
    item.type = onnx.AttributeProto.FLOAT
    ours = small("y = LeakyRelu<alpha = 0.5>(x)")
    refused(save, ours, theirs, "f has no attribute 'alpha', but reads it")
    theirs.functions[0].attribute.append("alpha")
    assert proved(save, ours, theirs).calls == 1


def test_absent_operand_has_no_identity(save: Save) -> None:
    """Whoever copies an operand that is not there fails; whoever does without does not."""
    function = FUNCTION + "f(x, m) => (y) { n = Identity(m) y = Clip(x, n) }"
    refused(save, small("y = Clip(x)"), small("y = t.f(x)", function), "Clip 'y'")
    assert proved(save, small("y = Clip(x, m)"), small("y = t.f(x, m)", function)).calls == 1
    function = FUNCTION + "f(x, m) => (y) { y = Clip(x, m) }"
    assert proved(save, small("y = Clip(x)"), small("y = t.f(x)", function)).calls == 1


def test_opset_that_only_a_function_imports(save: Save) -> None:
    """The inliner forgets it: nobody knows which version is meant."""
    function = '<domain: "t", opset_import: ["other" : 3]> f(x) => (y) { y = other.X(x) }'
    ours = small("y = other.X(x)")
    ours.opset_import.add(domain="other", version=1)
    refused(save, ours, small("y = t.f(x)", function), "no opset of 'other' is imported")


def test_names_of_a_body_do_not_clash(save: Save) -> None:
    """A name in a function is another than the same name around its call."""
    function = FUNCTION + "f(x) => (y) { q = Abs(x) y = Exp(q) }"
    ours = small("q = Neg(x) s = Abs(x) r = Exp(s) y = Sub(r, q)")
    assert proved(save, ours, small("q = Neg(x) r = t.f(x) y = Sub(r, q)", function)).calls == 1
    theirs = small("q = Neg(x) r = t.f(q) y = Sub(r, q)", function)
    refused(save, ours, theirs, "Abs 's' of the original")


def test_overloads_are_told_apart(save: Save) -> None:
    """The overload that is called counts."""
    theirs = small("y = t.f(x)", FUNCTION + "f(x) => (y) { y = Abs(x) }")
    theirs.functions.append(theirs.functions[0])
    theirs.functions[1].overload = "exp"
    theirs.functions[1].node[0].op_type = "Exp"
    assert proved(save, small("y = Abs(x)"), theirs).calls == 1
    refused(save, small("y = Exp(x)"), theirs, "Exp 'y'")
    theirs.graph.node[0].overload = "exp"
    assert proved(save, small("y = Exp(x)"), theirs).calls == 1
    refused(save, small("y = Abs(x)"), theirs, "Abs 'y'")


CALLED_LOOP = (
    "s, k2 = Loop(n, c, p, q)<body = l2(int64 i2, bool g2, float[2,6] p2, float[2,6] q2) => "
    "(bool h2, float[2,6] s2, float[2,6] t2) {{ h2 = Identity(g2) s2 = Sub(p2, {}) "
    "t2 = Identity(q2) }}>"
)


def test_loop_in_a_function_that_a_loop_calls(save: Save) -> None:
    """What the inner body captures is another value than what it is given, however deep it is."""
    loop, names = LOOP.replace("{} }}>", "{} t = Identity(q) }}>"), f"{P}, {Q}"
    ours = loop.format("n, c, x, w", names, CALLED_LOOP.format("q"))
    called = loop.format("n, c, x, w", names, "s = t.f(n, c, p, q)")
    for captured in ("q", "p", "q2", "p2"):
        body = f"{FUNCTION} f(n, c, p, q) => (s) {{ {CALLED_LOOP.format(captured)} }}"
        if captured == "q":
            assert proved(save, small(ours), small(called, body)).calls == 1
        else:
            refused(save, small(ours), small(called, body), "Sub 's2'")


def test_kinds_of_calls_are_told_apart(save: Save) -> None:
    """By attributes, by what is left out; names of a body may be those that are used for it."""
    f = FUNCTION + "f<alpha>(p, q, r) => (o, e) { in0 = LeakyRelu<alpha: float = @alpha>(p) "
    f += "out0 = Clip(in0, q, r) o = Sub(out0, in0) e = Neg(o) }"
    calls = (
        "a, '' = t.f<alpha = 0.5>(x, '', m) b, '' = t.f<alpha = 0.5>(a, m, '') "
        "'', d = t.f<alpha = 0.25>(b, m, m) y = Sub(d, b)"
    )
    written = (
        "i = LeakyRelu<alpha = 0.5>(x) j = Clip(i, '', m) a = Sub(j, i) n1 = Neg(a) "
        "k = LeakyRelu<alpha = 0.5>(a) l = Clip(k, m) b = Sub(l, k) n2 = Neg(b) "
        "o = LeakyRelu<alpha = 0.25>(b) p = Clip(o, m, m) q = Sub(p, o) d = Neg(q) y = Sub(d, b)"
    )
    assert proved(save, small(written), small(calls, f)).calls == 3
    for old, new in (
        ("(x, '', m)", "(x, m)"),
        ("(a, m, '')", "(a, '', m)"),
        ("0.25", "0.5"),
        ("'', d", "d"),
    ):
        refused(save, small(written), small(calls.replace(old, new), f), "of the original has no")


def test_body_handed_to_a_function(save: Save) -> None:
    """It captures what is around the call, which nobody puts back here."""
    call = "c = Cast<to = 9>(m) y = t.f<b = u() => (float[2,6] z) { z = Neg(x) }>(c)"
    theirs = small(call, FUNCTION + "f<b>(c) => (y) { y = If(c) }")
    refused(save, small("c = Cast<to = 9>(m) y = Neg(x)"), theirs, "a body is handed to f")


@pytest.mark.parametrize("depth", [50, 1500])
def test_calls_nest_as_deep_as_the_inliner_goes(save: Save, depth: int) -> None:
    """Deeper ones are not proved, and nothing breaks."""
    theirs = small("y = t.f0(x)", FUNCTION + f"f{depth}(x) => (y) {{ y = Abs(x) }}")
    for number in range(depth):
        function = theirs.functions.add(name=f"f{number}", domain="t", input=["x"], output=["y"])
        function.opset_import.extend(theirs.opset_import)
        function.node.add(op_type=f"f{number + 1}", domain="t", input=["x"], output=["y"])
    if depth < 100:
        assert proved(save, small("y = Abs(x)"), theirs).calls == 1
    else:
        refused(save, small("y = Abs(x)"), theirs, "onnx's inliner fails")


def test_function_that_calls_itself_is_refused(save: Save) -> None:
    """It stands for no number of nodes."""
    theirs = small("y = t.f(x)", FUNCTION + "f(x) => (y) { y = t.f(x) }")
    refused(save, small("y = Abs(x)"), theirs, "stand for too many nodes")


# What text cannot say.


def stored(array: np.ndarray[Any, Any], *, raw: bool = True, dtype: int = 0) -> onnx.ModelProto:
    """Make a model that stores a tensor."""
    model = small("a = Cast<to = 1>(k) y = Sub(x, a)")
    kind = dtype or onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    values = array.tobytes() if raw else array.flatten().tolist()
    tensor = onnx.helper.make_tensor("k", kind, array.shape, values, raw=raw)
    model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "bool", "float16"])
@pytest.mark.parametrize("size", [3, 40])
def test_how_a_tensor_is_written_does_not_matter(save: Save, dtype: str, size: int) -> None:
    """Raw bytes are the same as a list; one element makes a difference, in long tensors too."""
    array = (np.arange(size) % 2).astype(dtype)
    assert proved(save, stored(array), stored(array, raw=False)) == Proof()
    other = array.copy()
    other[-1] = not other[-1]
    for raw in (True, False):
        refused(save, stored(array), stored(other, raw=raw), "Cast 'a'")
    refused(save, stored(array), stored(array.reshape(1, size)), "Cast 'a'")


def test_int4_is_told_apart(save: Save) -> None:
    """Two numbers share a byte."""
    array = np.array([1, 2, 3], np.int8)
    models = [stored(a, raw=False, dtype=TensorProto.INT4) for a in (array, array[::-1])]
    assert proved(save, models[0], again(models[0])) == Proof()
    refused(save, models[0], models[1], "Cast 'a'")
    unsigned = stored(array, raw=False, dtype=TensorProto.UINT4)
    refused(save, models[0], unsigned, "Cast 'a'")


def test_digest_is_not_taken_for_a_tensor(save: Save) -> None:
    """What stands in for a long tensor cannot be written into a short one."""
    long = stored(np.arange(40, dtype=np.uint8).repeat(4))
    short = stored(np.zeros(32, np.uint8))
    for mark in ("digest", "in file"):
        short.graph.initializer[-1].doc_string = mark
        refused(save, long, short, "Cast 'a'")
        plain = stored(np.zeros(32, np.uint8))
        assert proved(save, plain, short) == Proof()


def sparse(values: Sequence[float], indices: list[int], name: str = "k") -> onnx.ModelProto:
    """Make a model that stores a sparse tensor."""
    model = small(f"y = Sub(x, {name})")
    ones = onnx.helper.make_tensor(name, TensorProto.FLOAT, [len(values)], values)
    places = onnx.helper.make_tensor("", TensorProto.INT64, [len(indices)], indices)
    tensor = onnx.helper.make_sparse_tensor(ones, places, [6])
    model.graph.sparse_initializer.append(tensor)
    return model


def test_sparse_tensors_count(save: Save) -> None:
    """Values, places and size; not the name."""
    assert proved(save, sparse([1, 2], [0, 3]), sparse([1, 2], [0, 3], "other")) == Proof()
    for values, places in (([1, 3], [0, 3]), ([1, 2], [0, 4])):
        refused(save, sparse([1, 2], [0, 3]), sparse(values, places), "Sub 'y'")
    wide = sparse([1, 2], [0, 3])
    wide.graph.sparse_initializer[0].dims[:] = [7]
    refused(save, sparse([1, 2], [0, 3]), wide, "Sub 'y'")
    made = small("k = Constant() y = Sub(x, k)")
    made.graph.node[0].attribute.append(
        onnx.helper.make_attribute(
            "sparse_value", sparse([1, 2], [0, 3]).graph.sparse_initializer[0]
        )
    )
    assert proved(save, sparse([1, 2], [0, 3]), made) == Proof()
    refused(save, sparse([1, 2], [0, 4]), made, "Sub 'y'")


def test_default_of_an_input(save: Save) -> None:
    """Whoever calls the model can give another, since IR version 4; before, it was a constant."""

    def model(version: int, value: float = 1, *, is_input: bool = True) -> onnx.ModelProto:
        made = small("y = Sub(x, k)")
        made.ir_version = version
        made.graph.initializer.append(onnx.helper.make_tensor("k", 1, [], [value]))
        for name in [*(["k"] if is_input else []), *(["w", "w4"] if version == 3 else [])]:
            made.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, None))
        return made

    assert proved(save, model(4), model(8)) == Proof()
    refused(save, model(8), model(8, 2), "Sub 'y'")
    refused(save, model(8), model(8, is_input=False), "Sub 'y'")
    refused(save, model(8), model(3), "Sub 'y'")
    assert proved(save, model(3), model(8, is_input=False)) == Proof()


def external(folder: Path, edit: Edit | None = None) -> Path:
    """Write a model whose weights are in a file beside it."""
    model = small("a = Sub(x, w) y = Sub(a, big)")
    array = np.arange(600, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(array, "big"))
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.arange(600, dtype=np.float32)[::-1].copy(), "w")
    )
    if edit is not None:
        edit(model)
    folder.mkdir(exist_ok=True)
    convert_model_to_external_data(model, location="weights", size_threshold=100)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def test_external_weights(tmp_path: Path) -> None:
    """In one file, in another folder, and inside of the model: what they hold counts."""
    ours = external(tmp_path / "a")
    same = external(tmp_path / "b")
    assert prove_same(ours, same) == Proof()
    inside = tmp_path / "inside.onnx"
    onnx.save(onnx.load(ours), inside)
    assert prove_same(ours, inside) == prove_same(inside, ours) == Proof()

    def change(model: onnx.ModelProto) -> None:
        data = bytearray(model.graph.initializer[-1].raw_data)
        data[-1] ^= 1
        model.graph.initializer[-1].raw_data = bytes(data)

    other = external(tmp_path / "c", change)
    for path in (ours, same, inside):
        with pytest.raises(UnprovedError, match="Sub 'y' of the original has no counterpart"):
            prove_same(path, other)
    (tmp_path / "b" / "weights").unlink()
    with pytest.raises(UnprovedError, match="'weights' cannot be read"):
        prove_same(ours, same)
    (tmp_path / "b" / "weights").write_bytes(b"short")
    with pytest.raises(UnprovedError, match="cannot be read"):
        prove_same(ours, same)


def test_another_part_of_the_same_file(tmp_path: Path) -> None:
    """Nothing is read then: where the weights are has to be the same."""
    ours = external(tmp_path)
    model = onnx.load(ours, load_external_data=False)
    swapped = tmp_path / "swapped.onnx"
    onnx.save(model, swapped)
    assert prove_same(ours, swapped) == Proof()
    first, last = model.graph.initializer[0], model.graph.initializer[-1]
    first.name, last.name = last.name, first.name
    onnx.save(model, swapped)
    with pytest.raises(UnprovedError, match="Sub 'a' of the original has no counterpart"):
        prove_same(ours, swapped)


def test_what_both_models_share_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though another weight lies elsewhere: only that one is read."""
    ours = external(tmp_path)
    content = onnx.load(ours)
    model = onnx.load(ours, load_external_data=False)
    moved = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    moved.graph.initializer.append(content.graph.initializer[0])
    convert_model_to_external_data(moved, location="others", size_threshold=100)
    onnx.save(moved, tmp_path / "moved.onnx")
    model.graph.initializer[0].CopyFrom(
        onnx.load(tmp_path / "moved.onnx", load_external_data=False).graph.initializer[0]
    )
    theirs = tmp_path / "theirs.onnx"
    onnx.save(model, theirs)
    read: list[str] = []

    def load(tensor: onnx.TensorProto, folder: Path) -> None:
        read.append(tensor.name)
        load_data(tensor, folder)

    monkeypatch.setattr(sys.modules["dplcli.verify.model"], "load_data", load)
    assert prove_same(ours, theirs) == Proof()
    assert read == ["w", "w"]


def test_place_that_is_stated_twice(tmp_path: Path) -> None:
    """The last entry counts, whatever the others are."""

    def model(name: str, *offsets: str) -> Path:
        path = external(tmp_path)
        edited = onnx.load(path, load_external_data=False)
        for tensor, last in zip(edited.graph.initializer[::2], offsets, strict=True):
            for entry in [each for each in tensor.external_data if each.key == "offset"]:
                tensor.external_data.remove(entry)
            for offset in ("2400", "0") if last == "0" else ("0", "2400"):
                tensor.external_data.add(key="offset", value=offset)
        onnx.save(edited, tmp_path / name)
        return tmp_path / name

    ours = model("ours.onnx", "0", "2400")
    assert prove_same(ours, model("same.onnx", "0", "2400")) == Proof()
    with pytest.raises(UnprovedError, match="Sub 'a' of the original"):
        prove_same(ours, model("other.onnx", "2400", "0"))


def test_some_weights_moved_into_the_model(tmp_path: Path) -> None:
    """The others are still in the file; all are compared by what they hold."""
    ours = external(tmp_path)
    model = onnx.load(ours, load_external_data=False)
    loaded = onnx.load(ours)
    model.graph.initializer[0].CopyFrom(loaded.graph.initializer[0])
    moved = tmp_path / "moved.onnx"
    onnx.save(model, moved)
    assert prove_same(ours, moved) == Proof()


def _documented(model: onnx.ModelProto) -> None:
    model.doc_string = model.graph.doc_string = "documentation"
    model.metadata_props.add(key="a", value="b")
    for node in model.graph.node:
        node.doc_string = "documentation"
        node.name = f"named {node.output[0]}"
        for item in node.attribute:
            item.doc_string = "documentation"
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, [2, 6]))
    for tensor in model.graph.initializer:
        tensor.doc_string = "documentation"


def _unsorted(model: onnx.ModelProto) -> None:
    nodes = [*model.graph.node][::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _spelled_domain(model: onnx.ModelProto) -> None:
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"


@pytest.mark.parametrize("edit", [_documented, _unsorted, _spelled_domain])
def test_edit_that_does_not_matter(save: Save, edit: Edit) -> None:
    """Documentation, the order of nodes and the long name of the standard say nothing."""
    model = small("a = LeakyRelu<alpha = 0.5>(x) b = Sub(a, w) y = Neg(b)")
    edited = onnx.ModelProto.FromString(model.SerializeToString())
    edit(edited)
    assert edited != model
    assert proved(save, model, edited) == Proof()


def _two_values(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute[0].type = onnx.AttributeProto.TENSOR
    model.graph.node[0].attribute[0].t.CopyFrom(onnx.helper.make_tensor("", 1, [], [1.0]))


def _attribute_twice(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("k", 2))


def _reference(model: onnx.ModelProto) -> None:
    item = model.graph.node[0].attribute[0]
    item.ClearField("i")
    item.ref_attr_name = "k"


def _other_bits(model: onnx.ModelProto) -> None:
    item = model.graph.node[0].attribute[0]
    item.ClearField("i")
    item.MergeFromString(b"\x15\x02\x00\xc0\x7f")  # f is a NaN of other bits


def _nan(model: onnx.ModelProto) -> None:
    item = model.graph.node[0].attribute[0]
    item.ClearField("i")
    item.MergeFromString(b"\x15\x01\x00\xc0\x7f")


def _version(model: onnx.ModelProto) -> None:
    model.opset_import[1].version = 2


def _constant_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.insert(0, model.graph.initializer[1])
    model.graph.initializer[0].name = "w"


def _nowhere(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL


def _opset_twice(model: onnx.ModelProto) -> None:
    model.opset_import.add(domain="ai.onnx", version=13)


def _two_results(model: onnx.ModelProto) -> None:
    model.graph.node[1].output.append("more")


NONSENSE: dict[Edit, str] = {
    _two_values: "'k' has more than one value",
    _attribute_twice: "X has an attribute twice",
    _reference: "'k' refers to one of a function, outside it",
    _nan: "X 'a' of the original",
    _version: "X 'a' of the original",
    _constant_twice: "two constants have the same name",
    _nowhere: "the data of 'w' lies nowhere",
    _opset_twice: "a domain is imported twice, in two versions",
    _two_results: "Identity 'y' of the candidate",
}


@pytest.mark.parametrize("edit", NONSENSE)
def test_nonsense_is_not_proved(save: Save, edit: Edit) -> None:
    """Models of which nobody can say what they compute."""
    model = small("a = t.X<k = 1>(x) y = Identity(a)")
    edited = onnx.ModelProto.FromString(model.SerializeToString())
    edit(edited)
    refused(save, model, edited, NONSENSE[edit])


def test_bits_of_a_nan_count(save: Save) -> None:
    """Numbers that are not equal to themselves are what their bits are."""
    ours, theirs = small("a = t.X<k = 1>(x) y = Exp(a)"), small("a = t.X<k = 1>(x) y = Exp(a)")
    _nan(ours)
    _other_bits(theirs)
    assert proved(save, ours, again(ours)) == Proof()
    refused(save, ours, theirs, "X 'a'")


@pytest.mark.parametrize("field", ["type", "second value"])
def test_attribute_that_is_not_what_it_seems(save: Save, field: str) -> None:
    """It says more than a list that the standard takes for granted, and it is no tensor."""
    conv = small("y = Conv<strides = [1, 1]>(x, w4)")
    assert proved(save, small("y = Conv(x, w4)"), conv) == Proof()
    tensor = small("y = t.X<k = float {1}>(x)")
    odd = again(tensor)
    for model in (conv, odd):
        item = model.graph.node[0].attribute[0]
        if field == "type":
            item.type = onnx.AttributeProto.STRINGS
        else:
            item.i = 3
    refused(save, small("y = Conv(x, w4)"), conv, "Conv 'y'")
    refused(save, tensor, odd, "X 'y' of|'k' has more than one value")


def test_name_that_is_no_text(save: Save) -> None:
    """Values may have any name; of an operator, whoever reads files for other commands says it."""
    ours = small("aaaa = t.Bbbb(x) y = Exp(aaaa)")
    for name in (b"aaaa", b"Bbbb"):
        bad = save(ours, "bad")
        bad.write_bytes(bad.read_bytes().replace(name, name[:3] + b"\xff"))
        if name == b"aaaa":
            assert prove_same(save(ours, "ours"), bad) == Proof()
        else:
            with pytest.raises(InvalidModelError, match="is not UTF-8"):
                prove_same(save(ours, "ours"), bad)


@pytest.mark.parametrize("body", ["w = Neg(x) y = Sub(w, w)", "a = Neg(x) a = Neg(x) y = Exp(a)"])
def test_name_that_is_made_twice(save: Save, body: str) -> None:
    """Nobody knows which value is read."""
    refused(save, small(body), again(small(body)), "two values have the name '[wa]'")


def test_name_of_a_body_may_not_hide_another(save: Save) -> None:
    """Nodes may stand in any order; so whoever reads the name may mean the one outside."""
    ours = BRANCHES.format("w1 = Exp(x) u = Neg(w1)", "o = Exp(r)")
    theirs = BRANCHES.format("u = Neg(w1) w1 = Exp(x)", "o = Exp(r)")
    assert proved(save, small(ours), small(theirs)) == Proof()
    ours, theirs = ours.replace("w1", "q"), theirs.replace("w1", "q")
    refused(save, small(ours), small(theirs), "two values have the name 'q', one in a body")


# Properties.


def edited(graph: RandomGraph, data: st.DataObject) -> RandomGraph:
    """Draw one edit of a graph: an operand, their order, an operator, or a node less."""
    place = data.draw(st.integers(0, len(graph.steps) - 1))
    step = graph.steps[place]
    known = [*graph.sources, *(other.name for other in graph.steps[:place])]
    kind = data.draw(st.sampled_from(("operand", "swap", "operator", "drop")))
    operands = [*step.reads]
    if kind == "operand":
        operands[data.draw(st.integers(0, len(operands) - 1))] = data.draw(st.sampled_from(known))
    elif kind == "swap":
        operands.reverse()
    op = step.op
    if kind == "drop":
        op, operands = "Identity", operands[:1]
    elif kind == "operator":
        op = data.draw(st.sampled_from(("Relu", "Neg") if len(operands) == 1 else ("Add", "Sub")))
    changed = Step(step.name, op, tuple(operands))
    return graph.with_steps((*graph.steps[:place], changed, *graph.steps[place + 1 :]))


@given(st.data())
def test_what_is_proved_computes_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever is edited: if it is proved, the numbers are equal to the last bit."""
    folder = tmp_path_factory.getbasetemp()
    graph = data.draw(graphs(6))
    ours = proto_from_text(graph.text())
    pattern, _, _ = data.draw(subgraph_patterns(graph))
    changed = edited(graph, data) if data.draw(st.integers(0, 3)) else graph
    _, _, written = partitioned([rule(pattern)], changed.text())
    theirs = onnx.ModelProto.FromString(written)
    onnx.save(ours, folder / "ours.onnx")
    onnx.save(theirs, folder / "theirs.onnx")
    try:
        prove_same(folder / "ours.onnx", folder / "theirs.onnx")
    except UnprovedError:
        assert changed != graph
        return
    feeds = random_inputs(ours, 0)
    wanted, found = (run_model(model, feeds, optimise=False) for model in (ours, theirs))
    assert wanted.keys() == found.keys()
    assert all(wanted[name].tobytes() == found[name].tobytes() for name in wanted)


@pytest.mark.long
@given(st.data())
def test_every_partition_is_proved(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """With branches, calls and every way to treat constants."""
    folder = tmp_path_factory.getbasetemp()
    model = data.draw(scoped_models())
    ours = proto_from_text(model.text())
    rules = [
        rule(
            data.draw(rule_texts(data.draw(st.sampled_from(model.graphs())))),
            name=f"r{number}",
            constants=data.draw(st.sampled_from(("auto", "embed", "lift"))),
        )
        for number in range(2)
        if model.graphs()
    ]
    _, _, written = partitioned(rules, ours.SerializeToString())
    onnx.save(ours, folder / "ours.onnx")
    (folder / "theirs.onnx").write_bytes(written)
    assert prove_same(folder / "ours.onnx", folder / "theirs.onnx").undone == 0


# Real models.


def check_forms(path: Path, folder: Path, *, repeats: bool) -> None:
    """Partition a model in several ways, and inline some results: all are proved."""
    plain = PartitionSettings(verify=False)
    forms = {
        "dnnl": plain.but(target="dnnl"),
        "embed": plain.but(target="dnnl", constants="embed"),
        "merged": plain.but(target="cutlass", merge=True),
    }
    output = path
    for name, form in forms.items():
        if name == "embed" and not repeats:
            continue
        output = folder / f"{name}.onnx"
        outcome = pipeline.partition(path, form.but(output=output))
        assert prove_same(path, output).calls >= bool(outcome.partitions), name
    if repeats:
        output = folder / "repeated.onnx"
        pipeline.repeat(path, RepeatingSettings(verify=False, output=output))
        prove_same(path, output)
    back = folder / "back.onnx"
    pipeline.inline(output, InlineSettings(output=back, verify=False))
    prove_same(path, back)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "repeats"),
    thinned(6, [(name, i % 4 < 2) for i, name in enumerate([*manifest()][::3])]),
)
def test_real_partition_is_proved(tmp_path: Path, name: str, repeats: bool) -> None:  # noqa: FBT001  # parametrized
    """What dpl writes is the original, node for node."""
    check_forms(real_model(name.removesuffix(".onnx")), tmp_path, repeats=repeats)
