"""``rewrites:`` of a catalogue, applied: before and after as text, valid and with equal numbers."""

from __future__ import annotations

import json
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.catalog import read_catalogs
from dplcli.errors import CatalogError, PatternSyntaxError
from dplcli.ir.traversal import check_structure
from dplcli.language import is_op, wildcard
from dplcli.language.explain import Tracer
from dplcli.language.replacement import RewriteRule
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import RewriteLimitError, Rewriting, rewrite
from dplcli.passes.select import select_matches
from tests.passes.rewriting import rewrite_rule
from tests.support.helpers import (
    SCHEMAS,
    check_sound,
    model_from_text,
    print_model,
    proto_from_text,
)
from tests.support.strategies import graphs, within

if TYPE_CHECKING:
    from dplcli.ir import SchemaLibrary
    from dplcli.language.replacement import DraftOutput, GraphBuilder
    from dplcli.language.rule import Match
    from tests.support.strategies import RandomGraph

    Entry: TypeAlias = tuple[str, str]

OWN = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'


def rules(*entries: Entry, schemas: SchemaLibrary = SCHEMAS, **more: object) -> list[RewriteRule]:
    """Read rules ``r``, ``r1``, … of pattern and replacement; *more* keys for all of them."""
    listed = [
        {"name": f"r{number or ''}", "pattern": pattern, "replacement": replacement, **more}
        for number, (pattern, replacement) in enumerate(entries)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        path.write_text(json.dumps({"dpl": 1, "rewrites": listed}, indent=1), encoding="utf-8")
        return read_catalogs([str(path)], schemas).rewrites


def apply(
    before: str,
    *entries: Entry,
    **more: Any,  # noqa: ANN401  # keys of an entry
) -> tuple[str, onnx.ModelProto, Rewriting]:
    """Rewrite; return the text afterwards, the model and what was done."""
    model = model_from_text(before)
    done = rewrite(model, rules(*entries, **more))
    check_structure(model)
    result: onnx.ModelProto = onnx.ModelProto.FromString(to_proto(model).SerializeToString())
    return print_model(model), result, done


def check(before: str, entry: Entry, after: str, **more: object) -> onnx.ModelProto:
    """Rewrite once, compare the text, and check validity and numbers; return the model."""
    text, result, done = apply(before, entry, **more)
    assert text.split() == after.split()
    assert done.rounds == 1
    check_sound(proto_from_text(before), result)
    return result


def check_left(
    before: str, entry: Entry, *words: str, stage: str = "check", **more: object
) -> None:
    """Check that nothing changes, and that these words are in the reason."""
    text, _, done = apply(before, entry, **more)
    assert text == print_model(model_from_text(before))
    assert (done.rounds, done.counts) == (0, {"r": 0})
    (refusal,) = done.refused
    assert refusal.stage == stage
    for word in words:
        assert word in refusal.reason


def constants(model: onnx.ModelProto) -> list[Any]:
    """Return the data of the initializers that were made."""
    return [
        onnx.numpy_helper.to_array(item)
        for item in model.graph.initializer
        if "_Constant" in item.name or "_folded" in item.name
    ]


# -- literals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [("float", "float32"), ("float16", "float16"), ("double", "float64"), ("int64", "int64")],
)
def test_a_literal_takes_the_type_beside_it(dtype: str, numpy_dtype: str) -> None:
    """``2`` beside a float16 is one."""
    result = check(
        f"g ({dtype}[2] x) => ({dtype}[2] y) {{ y = Add (x, x) }}",
        ("Add(x, x)", "Mul(x, 2)"),
        "(x) => (y) { y = Mul (x, y_Constant) }",
    )
    (two,) = constants(result)
    assert (str(two.dtype), two.shape, float(two)) == (numpy_dtype, (), 2.0)


def test_a_literal_beside_a_new_node_takes_what_that_makes() -> None:
    """The operand beside it is a Cast to float, whatever the Cast reads."""
    check(
        "g (int64[2] x) => (float[2] y) { a = Cast <to = 1> (x) y = Neg (a) }",
        ("Neg(Cast(x, **to))", "Mul(Cast(x, **to), -1)"),
        "(x) => (y) { y_Cast = Cast <to = 1> (x) y = Mul (y_Cast, y_Constant) }",
    )


def test_a_literal_beside_a_comparison() -> None:
    """In ``Where(Greater(x, 0), x, 0)`` both numbers are of the type of x."""
    check(
        "g (double[2] x) => (double[2] y) { a = Relu (x) y = Neg (a) }",
        ("Neg(Relu(x))", "Neg(Where(Greater(x, 0), x, 0))"),
        """(x) => (y) { y_Greater = Greater (x, y_Constant)
        y_Where = Where (y_Greater, x, y_Constant_1) y = Neg (y_Where) }""",
    )


@pytest.mark.parametrize(
    ("pattern", "replacement", "dtypes"),
    [
        pytest.param("Relu(Mul(x, Cast(c, **_)))", "Where(c, x, 0.0)", ["float32"], id="a-choice"),
        pytest.param("Relu(Mul(x, Cast(c, **_)))", "Where(c, 0.0, x)", ["float32"], id="turned"),
        pytest.param(
            "Mul(x, Cast(c, **_))",
            "Mul(x, Where(c, 1.0, 0.0))",
            ["float32", "float32"],
            id="what-the-other-operand-is",
        ),
        pytest.param(
            "Relu(Mul(x, Cast(c, **_)))",
            "Neg(Where(c, 1.0, 0.0))",
            ["float32", "float32"],
            id="what-the-root-is",
        ),
        pytest.param(
            "Relu(Mul(x, Cast(c, **_)))",
            "Where(Greater(Where(c, 1.0, 0.0), 0.5), x, x)",
            None,
            id="not-what-the-condition-is",
        ),
        pytest.param(
            "Relu(Mul(x, Cast(c, **_)))",
            "Mul(x, DequantizeLinear(QuantizeLinear(x, 0.5, 0), 0.5, 0))",
            None,
            id="nothing-says-the-bytes",
        ),
        pytest.param(
            "Relu(Mul(x, Cast(c, **_)))", "Pow(x, 2.0)", ["float32"], id="beside-another-variable"
        ),
        pytest.param(
            "Relu(Mul(x, Cast(c, **_)))", "Slice(x, [0], [2], [0])", ["int64"] * 3, id="indices"
        ),
    ],
)
def test_a_literal_takes_the_type_of_what_must_be_alike(
    pattern: str, replacement: str, dtypes: list[str] | None
) -> None:
    """Beside a condition a number is no truth value; what nothing says is not guessed."""
    before = """g (float[2] x, bool[2] c) => (float[2] y) {
        a = Cast <to = 1> (c) b = Mul (x, a) y = Relu (b) }"""
    _, result, done = apply(before, (pattern, replacement))
    made = [str(data.dtype) for data in constants(result)]
    assert made == (dtypes or [])
    assert [item.stage for item in done.refused] == ([] if dtypes else ["check"])
    onnx.checker.check_model(result, full_check=True)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("int64", "2.5"), ("float", "1e39"), ("float16", "70000"), ("uint8", "-1"), ("int8", "300")],
)
def test_a_literal_that_the_type_cannot_hold(dtype: str, number: str) -> None:
    """2.5 is not made 2, and 300 not 44: the match is refused."""
    before = f"g ({dtype}[2] x) => ({dtype}[2] y) {{ y = Add (x, x) }}"
    check_left(before, ("Add(x, x)", f"Mul(x, {number})"), number.lstrip("-")[:2])


def test_a_literal_of_unknown_type_is_refused() -> None:
    """In a function that is called for two element types: nothing is changed."""
    before = f"""{OWN}g (float[2] x, double[2] v) => (float[2] y, double[2] z) {{
            y = own.F (x) z = own.F (v) }}
        <domain: "own", opset_import: ["" : 17]> F (p) => (q) {{ q = Add (p, p) }}"""
    check_left(before, ("Add(x, x)", "Mul(x, 2.0)"), "element type", "2.0", "not known")


# -- expressions -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float", "float16", "double", "int32", "int64"])
def test_constants_are_folded_in_their_own_type(dtype: str) -> None:
    """``const(w.value * s.value)`` is of the type of both."""
    before = f"""g ({dtype}[2] x) => ({dtype}[2] y) <{dtype}[2] w = {{1, 2}}, {dtype} s = {{3}}>
        {{ a = Mul (x, w) y = Mul (a, s) }}"""
    entry = ("Mul(Mul(x, const(w)), const(s))", "Mul(x, const(w.value * s.value))")
    text, result, _ = apply(before, entry)
    (folded,) = constants(result)
    weights = [
        onnx.numpy_helper.to_array(item) for item in proto_from_text(before).graph.initializer
    ]
    assert folded.dtype == weights[0].dtype
    assert folded.tolist() == (weights[0] * weights[1]).tolist()
    assert "Mul (x, w_folded)" in text
    check_sound(proto_from_text(before), result)


@pytest.mark.parametrize("expression", ["w.value / 2", "w.value * 0.5", "w.value / w.value"])
def test_a_folded_constant_of_another_type_never_makes_an_invalid_model(expression: str) -> None:
    """Integers divided are no integers: the result is cast, or the match is refused."""
    before = """g (int32[2] x) => (int32[2] y) <int32[2] w = {2, 4}>
        { a = Mul (x, w) y = Neg (a) }"""
    _, result, _ = apply(before, ("Neg(Mul(x, const(w)))", f"Mul(x, const({expression}))"))
    onnx.checker.check_model(result, full_check=True)


def test_attribute_expressions() -> None:
    """``epsilon=eps.value`` comes from a captured constant."""
    before = """g (float[2,3] x, float[3] s) => (float[2,3] y) <float eps = {0.5}>
        { v = Add (s, eps) r = Sqrt (v) d = Div (x, r) y = Neg (d) }"""
    text, result, _ = apply(
        before,
        ("Neg(Div(x, Sqrt(Add(s, const(eps)))))", "LeakyRelu(Div(x, s), alpha=eps.value)"),
    )
    after = "(x, s) => (y) { y_Div = Div (x, s) y = LeakyRelu <alpha = 0.5> (y_Div) }"
    assert text.split() == after.split()
    onnx.checker.check_model(result, full_check=True)


def test_attribute_expressions_of_every_kind() -> None:
    """Whole numbers, lists and arithmetic; a whole number may stand for a float."""
    before = """g (float[2,3] x) => (float[3,2] y) <int64[2] p = {1, 0}>
        { a = Relu (x) y = Transpose <perm = [1, 0]> (a) }"""
    entry = (
        "Transpose(Relu(x), **attrs)",
        "Transpose(Relu(x), perm=[x.rank - 1, 0])",
    )
    with pytest.raises(CatalogError, match=r"\*\*attrs is bound and not carried"):
        rules(entry)
    before = "g (float[2,3] x) => (float[2,3] y) { a = Neg (x) y = Relu (a) }"
    text, result, _ = apply(before, ("Relu(Neg(x))", "Elu(Neg(x), alpha=x.shape[0] - 1)"))
    assert "Elu <alpha = 1.0>" in text
    onnx.checker.check_model(result, full_check=True)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("k.value * 2", "k_folded"),
        ("k.value + l.value", "k_folded"),  # l is a number
        ("k.value + m.value", "y_Constant"),  # of two alike
        ("reshape(k.value, (1, 2))", "y_Constant"),  # of another shape
        ("l.value * 2", "y_Constant"),  # a number has no name to keep
    ],
)
def test_what_a_constant_becomes_is_called_after_it(made: str, name: str) -> None:
    """Where one constant of its type goes, and no other might be meant."""
    before = """g (float[2] x) => (float[2] y)
        <float[2] k = {1, 2}, float l = {3}, float[2] m = {4, 5}> {
        a = Add (x, k) b = Add (a, l) y = Mul (b, m) }"""
    pattern = "Mul(Add(Add(x, const(k)), const(l)), const(m))"
    if "m.value" not in made:
        pattern = pattern.replace("const(m)", "m")
        text, _, _ = apply(before, (pattern, f"Mul(Add(x, const({made})), m)"))
    else:
        text, _, _ = apply(before, (pattern, f"Mul(x, const({made}))"))
    assert f"(x, {name})" in text


def test_attributes_are_carried() -> None:
    """``**attrs`` takes what the matched node says, and a stated one wins."""
    before = """g (float[1,1,4,4] x) => (float[1,1,3,3] y)
        <float[1,1,2,2] w = {1, 2, 3, 4}, float s = {2}>
        { c = Conv <pads = [0, 0, 0, 0], strides = [1, 1]> (x, w) y = Mul (c, s) }"""
    text, result, _ = apply(
        before,
        ("Mul(Conv(x, const(w), **attrs), const(s))", "Conv(x, const(w.value * s.value), **attrs)"),
    )
    assert "y = Conv <pads = [0, 0, 0, 0], strides = [1, 1]> (x, w_folded)" in " ".join(
        text.split()
    )
    check_sound(proto_from_text(before), result)


INCOMPUTABLE = {
    "no-constant": ("Relu(Neg(x))", "LeakyRelu(x, alpha=x.value)", "not a constant"),
    "no-part": ("Relu(Neg(x) | Abs(const(c)))", "Relu(const(c.value))", "took no part"),
    "captured-and-absent": ("Relu(Neg(x) | Abs(z))", "Relu(z)", "took no part"),
    "division": ("Relu(Neg(x))", "Elu(x, alpha=1 / (x.rank - 1))", "divides by zero"),
    "index": ("Relu(Neg(x))", "Elu(x, alpha=x.shape[7])", "an item is asked for"),
    "wrong-kind": ("Relu(Neg(x))", "Elu(x, alpha=x.shape)", "alpha is float"),
    "newer-operator": ("Relu(Neg(x))", "Gelu(x)", "opset 17 has no Gelu"),
    "newer-attribute": ("Relu(Neg(x))", "Split(x, num_outputs=1)[0]", "num_outputs"),
    "older-output": (
        "Relu(Neg(x))",
        "BatchNormalization(x, x, x, x, x)[4]",
        "BatchNormalization has no 5 outputs",
    ),
}


@pytest.mark.parametrize(
    ("pattern", "replacement", "word"), INCOMPUTABLE.values(), ids=INCOMPUTABLE
)
def test_what_cannot_be_made_refuses_the_match(pattern: str, replacement: str, word: str) -> None:
    """Nothing is changed, and the reason is given."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) y = Relu (a) }"
    check_left(before, (pattern, replacement), word)


def test_nothing_is_half_made() -> None:
    """The second output cannot be computed: the first is not made either."""
    before = """g (float[2] x) => (float[2] y, float[2] z) { y = Neg (x) z = Relu (y) }"""
    check_left(before, ("a = Neg(x)\na, Relu(a)", "Abs(x), Elu(x, alpha=x.value)"), "constant")


# -- shapes of rules ---------------------------------------------------------------------------


def test_several_outputs_and_tuple_assignment() -> None:
    """As many outputs as the pattern has; a new node with several outputs is taken apart."""
    before = """g (float[4] x) => (float[2] y, float[2] z) <int64[2] s = {2, 2}>
        { a, b = Split (x, s) y = Neg (a) z = Neg (b) }"""
    check(
        before,
        (
            "a, b = Split(x, s, **_)\nNeg(a), Neg(b)",
            "n = Neg(x)\np, q = Split(n, s)\np, q",
        ),
        "(x) => (y, z) { y_Neg = Neg (x) y, z = Split (y_Neg, s) }",
    )


def test_a_new_output_by_number() -> None:
    """``Split(...)[1]`` is the second output; the first is made and not read."""
    text, result, _ = apply(
        "g (float[4] x) => (float[2] y) <int64[2] s = {2, 2}> { a, b = Split (x, s) y = Neg (b) }",
        ("Neg(Split(x, s, **_)[1])", "Split(Neg(x), s)[1]"),
    )
    assert re.search(r"\w+, y = Split \(y_Neg, s\)", text)
    onnx.checker.check_model(result, full_check=True)


@pytest.mark.parametrize("replacement", ["Abs(x)[1]", "Abs(x)[3]", "a, b = Abs(x)\nb"])
def test_an_output_that_the_operator_does_not_have(replacement: str) -> None:
    """Refused at load: Abs has one output."""
    with pytest.raises(CatalogError, match="output"):
        rules(("Relu(Neg(x))", replacement))


def test_a_required_attribute_that_is_missing() -> None:
    """Cast without ``to`` is refused, at load or at the match; no invalid model is made."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) y = Relu (a) }"
    try:
        _, result, _ = apply(before, ("Relu(Neg(x))", "Cast(x)"))
    except CatalogError:
        return
    onnx.checker.check_model(result, full_check=True)


def test_a_number_of_no_elements_is_no_attribute() -> None:
    """A match whose constant is empty stays as it is; one of one number does not."""
    before = """<ir_version: 10, opset_import: ["" : 18]>
        g (float[0] x, float[2] z) => (float[0] y, float[2] w)
            <float[0] none = {}, float one = {2}> {
            a = Mul (x, none) y = Relu (a) b = Mul (z, one) w = Relu (b) }"""
    _, _, done = apply(before, ("Relu(Mul(x, const(c)))", "Elu(x, alpha=c.value)"))

    assert sum(done.counts.values()) == 1


def test_one_node_for_one_line() -> None:
    """An assigned name used twice is one new node."""
    check(
        "g (float[2] x) => (float[2] y) { a = Abs (x) y = Neg (a) }",
        ("Neg(Abs(x))", "a = Abs(x)\nSub(Sub(a, a), a)"),
        "(x) => (y) { y_Abs = Abs (x) y_Sub = Sub (y_Abs, y_Abs) y = Sub (y_Sub, y_Abs) }",
    )


def test_a_captured_value_at_a_graph_output() -> None:
    """The output keeps its name."""
    check(
        "g (float[2] x) => (float[2] y) { a = Neg (x) y = Neg (a) }",
        ("Neg(Neg(x))", "x"),
        "(x) => (y) { y = Identity (x) }",
    )


def test_a_captured_value_inside() -> None:
    """Elsewhere readers read what takes the place, directly or through Identity."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Neg (a) y = Relu (b) }"
    text, result, _ = apply(before, ("Neg(Neg(x))", "x"))
    assert "Neg" not in text
    check_sound(proto_from_text(before), result)


def test_one_value_for_two_outputs() -> None:
    """The same new value, and the same captured one, at both outputs."""
    before = "g (float[2] x) => (float[2] y, float[2] z) { y = Abs (x) z = Abs (y) }"
    for replacement in ("b = Max(x, -x)\nb, b", "Max(x, -x), Max(-x, x)"):
        text, result, _ = apply(before, ("a = Abs(x)\na, Abs(a)", replacement))
        assert text.startswith("(x) => (y, z)")
        check_sound(proto_from_text(before), result)
    before = (
        "g (float[2] x) => (float[2] y, float[2] z) { y = Identity (x) a = Neg (x) z = Neg (a) }"
    )
    _, result, _ = apply(before, ("a = Neg(x)\nNeg(a)", "x"))
    check_sound(proto_from_text(before), result)


LEAVES: dict[str, tuple[Entry, str]] = {
    "operand": (
        ("Add(x, Neg(y))", "Sub(x, y)"),
        "g (float[2] a) => (float[2] y) { n = Neg (a) y = Add (n, n) }",
    ),
    "behind-identity": (
        ("Sub(x, Neg(y))", "Add(x, y)"),
        "g (float[2] a) => (float[2] y) { n = Neg (a) i = Identity (n) y = Sub (i, n) }",
    ),
    "below-the-matched": (
        ("Sub(Relu(x), y)", "Add(Neg(y), Max(x, 0.0))"),
        "g (float[2] a) => (float[2] y) { r = Relu (a) y = Sub (r, r) }",
    ),
}


@pytest.mark.parametrize(("entry", "before"), LEAVES.values(), ids=LEAVES)
def test_a_leaf_that_is_also_a_matched_node(entry: Entry, before: str) -> None:
    """A name of the pattern may stand for what another matched node makes: no crash.

    The node stays, or the match is refused.
    """
    _, result, _ = apply(before, entry)
    check_sound(proto_from_text(before), result)


INNER = {
    "as-the-operand": ("r = Neg(x)\nRelu(r)", "Max(r, 0.0)"),
    "as-an-output": ("r = Neg(x)\nr, Relu(r)", "r, Max(r, 0.0)"),
    "both-outputs-as-they-are": ("r = Neg(x)\nz = Relu(r)\nr, z", "r, z"),
    "the-root-itself": ("r = Relu(Neg(x))\nr", "Relu(r)"),
}


@pytest.mark.parametrize("entry", INNER.values(), ids=INNER)
def test_a_matched_node_in_the_replacement(entry: Entry) -> None:
    """Its node is going to be erased: kept, or refused at load or at the match; never a mess."""
    before = "g (float[2] x) => (float[2] a, float[2] y) { a = Neg (x) y = Relu (a) }"
    if entry[0].endswith("Relu(r)") and "," not in entry[0]:
        before = "g (float[2] x) => (float[2] y) { a = Neg (x) y = Relu (a) }"
    try:
        read = rules(entry)
    except CatalogError:
        return
    model = model_from_text(before)
    try:
        rewrite(model, read)
    except RewriteLimitError:
        return
    check_structure(model)
    check_sound(proto_from_text(before), to_proto(model))


def test_omitted_inputs() -> None:
    """``None`` in the middle stays a gap, at the end it is left away."""
    before = "g (float[2] x) => (float[2] y) <float h = {1}> { y = Min (x, h) }"
    check(before, ("Min(x, h)", "Clip(x, None, h)"), '(x) => (y) { y = Clip (x, "", h) }')
    text, result, _ = apply(before, ("Min(x, h)", "Clip(x, None, None)"))
    after = "(x) => (y) { y = Clip (x) }"
    assert text.split() == after.split()
    onnx.checker.check_model(result, full_check=True)


def test_omitted_inputs_of_the_pattern() -> None:
    """A pattern with a gap becomes something without."""
    before = "g (float[2] x) => (float[2] y) <float h = {1}> { y = Clip (x, , h) }"
    check(before, ("Clip(x, None, h, **_)", "Min(x, h)"), "(x) => (y) { y = Min (x, h) }")


def test_foreign_domains() -> None:
    """The domain is imported, once, in the model and in the function where it is used."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Neg (a) y = Neg (b) }"
    text, result, _ = apply(before, ("Neg(x)", "com.acme.Minus(x, kind=3)"))
    assert text.count("com.acme.Minus <kind = 3>") == 3
    imports = [item for item in result.opset_import if item.domain == "com.acme"]
    assert len(imports) == 1
    onnx.checker.check_model(result)

    before = f"""{OWN}g (float[2] x) => (float[2] y) {{ y = own.F (x) }}
        <domain: "own", opset_import: ["" : 17]> F (p) => (q) {{ q = Neg (p) }}"""
    _, result, _ = apply(before, ("Neg(x)", "com.microsoft.FastGelu(x)"))
    assert "com.microsoft" in {item.domain for item in result.functions[0].opset_import}
    onnx.checker.check_model(result)


def test_foreign_operators_of_the_pattern() -> None:
    """A pattern of another domain, replaced by standard operators."""
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
    before = f"{header}g (float[2] x) => (float[2] y) {{ y = com.microsoft.Gelu (x) }}"
    text, result, _ = apply(
        before, ("com.microsoft.Gelu(x, **_)", "0.5 * x * (1.0 + Erf(x * 0.70710678))")
    )
    assert "com.microsoft" not in text
    check_sound(proto_from_text(before), result)


# -- scopes and names --------------------------------------------------------------------------

BRANCHES = """g (float[2] x, bool c) => (float[2] y) {{
    {outside} y = If (c) <
        then_branch = t () => (float[2] p) {{ {then} }},
        else_branch = e () => (float[2] q) {{ {otherwise} }}
    > }}"""


def test_inside_branches() -> None:
    """A match in a branch is replaced there, captured values as its leaves."""
    before = BRANCHES.format(
        outside="k = Abs (x)", then="p = Add (k, k)", otherwise="n = Neg (x) q = Neg (n)"
    )
    text, result, done = apply(before, ("Add(x, x)", "Mul(x, 2.0)"), ("Neg(Neg(x))", "x"))
    assert done.counts == {"r": 1, "r1": 1}
    assert "p = Mul (k, p_Constant)" in text
    assert "q = Identity (x)" in text
    check_sound(proto_from_text(before), result)


@pytest.mark.parametrize("taken", ["p_Constant", "y_Constant", "z_Constant"])
def test_new_names_clash_with_nothing(taken: str) -> None:
    """A name that is taken outside, inside or here is not given again."""
    sides = [
        BRANCHES.format(
            outside=f"{taken} = Abs (x)",
            then=f"a = Neg ({taken}) p = Add (a, a)",
            otherwise=f"q = Add ({taken}, {taken})",
        ),
        BRANCHES.format(
            outside="z = Add (x, x)",
            then=f"{taken} = Abs (z) p = Neg ({taken})",
            otherwise=f"q = Neg (z) {taken} = Abs (q)",
        ),
    ]
    for before in sides:
        _, result, done = apply(before, ("Add(x, x)", "Mul(x, 2.0)"))
        assert done.counts["r"] >= 1
        check_sound(proto_from_text(before), result)


def test_a_matched_value_that_a_branch_reads() -> None:
    """An inner value captured by a branch stays, or is a reason to refuse, as the rule says."""
    before = BRANCHES.format(
        outside="a = Neg (x) b = Neg (a)", then="p = Relu (a)", otherwise="q = Relu (b)"
    )
    check_left(
        before,
        ("Neg(Neg(x))", "x"),
        "'a' is also read by If",
        "; with `escape: keep` the rule replaces the rest",
        stage="escape",
        escape="refuse",
    )

    text, result, done = apply(before, ("Neg(Neg(x))", "x"))
    assert done.counts == {"r": 1}
    assert "a = Neg (x)" in text
    assert "Neg (a)" not in text
    check_sound(proto_from_text(before), result)

    before = before.replace("Relu (a)", "Relu (b)")
    _, result, done = apply(before, ("Neg(Neg(x))", "x"))
    assert done.counts == {"r": 1}
    check_sound(proto_from_text(before), result)


def test_inside_local_functions() -> None:
    """A function's body is rewritten; a rule for other opsets leaves it alone."""
    before = f"""{OWN}g (float[2] x) => (float[2] y) {{ a = own.F (x) y = own.F (a) }}
        <domain: "own", opset_import: ["" : 17]>
        F (p) => (q) {{ n = Neg (p) q = Neg (n) }}"""
    text, result, _ = apply(before, ("Neg(Neg(x))", "x"))
    assert "q = Identity (p)" in text
    check_sound(proto_from_text(before), result)
    _, _, done = apply(before, ("Neg(Neg(x))", "x"), opsets=[18])
    assert done.rounds == 0


def test_outputs_that_nobody_reads() -> None:
    """A result that nothing reads is replaced all the same; an unread second output is no bar."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Neg (a) y = Relu (x) }"
    _, result, done = apply(before, ("Neg(Neg(x))", "x"))
    assert done.counts["r"] <= 1
    check_sound(proto_from_text(before), result)
    before = "g (float[2] x) => (float[2] y) { a, m = Dropout (x) y = Relu (a) }"
    text, result, _ = apply(before, ("Dropout(x, ..., **_)", "x"))
    assert "Dropout" not in text
    check_sound(proto_from_text(before), result)


def test_a_second_output_that_is_read_is_not_lost() -> None:
    """A rule that replaces one output leaves a node alone whose other output is read."""
    before = "g (float[2] x) => (float[2] y, bool[2] m) { a, m = Dropout (x) y = Relu (a) }"
    text, result, _ = apply(before, ("Dropout(x, ..., **_)", "x"))
    assert text == print_model(model_from_text(before))
    check_sound(proto_from_text(before), result)


def test_values_between_the_outputs() -> None:
    """What reads one output and lies before the other is moved, not broken."""
    before = """g (float[2] x) => (float[2] z, float[2] w) {
        y = Neg (x) q = Relu (y) w = Abs (q) z = Abs (x) }"""
    text, result, _ = apply(before, ("Neg(x), Abs(x)", "Sub(x, x + x), Max(x, Sub(0.0, x))"))
    assert "Neg" not in text
    check_sound(proto_from_text(before), result)


# -- refused at load ---------------------------------------------------------------------------

REFUSED = {
    "bound-not-carried": (("Softmax(x, **a)", "Relu(x)"), r"\*\*a is bound and not", "**_"),
    "unbound-name": (("Relu(picture)", "Neg(pictrue)"), "'pictrue'", "did you mean 'picture'?"),
    "unbound-in-an-attribute": (
        ("Relu(picture)", "Elu(picture, alpha=pictrue.value)"),
        "'pictrue'",
        "did you mean 'picture'?",
    ),
    "unbound-attributes": (
        ("Softmax(x, **attrs)", "Softmax(x, **atrs)"),
        "no attributes are bound to 'atrs'",
        "did you mean 'attrs'?",
    ),
    "unknown-operator": (("Relu(x)", "Rellu(x)"), "unknown operator", "did you mean 'Relu'?"),
    "unknown-attribute": (("Relu(x)", "Elu(x, alfa=1)"), "no attribute", "did you mean 'alpha'?"),
    "too-many-inputs": (("Relu(x)", "Neg(x, x)"), "Neg takes 1 inputs, not 2", ""),
    "too-few-inputs": (("Relu(x)", "Sub(x)"), "Sub takes 2 inputs, not 1", ""),
    "operator-arity": (("Relu(x)", "Where(x, x)"), "Where takes 3 inputs, not 2", ""),
    "too-many-outputs": (("Relu(x)", "x, x"), "1 output", ""),
    "too-few-outputs": (("Relu(x), Abs(x)", "x"), "2 output", ""),
    "anything": (("Relu(_)", "_"), "_", ""),
    "rest": (("Concat(x, ..., **_)", "Concat(x, ..., axis=0)"), "not a value", ""),
    "alternative": (("Relu(x)", "Abs(x) | Neg(x)"), "not a value", ""),
    "empty": (("Relu(x)", ""), "empty", ""),
    "only-a-line": (("Relu(x)", "a = Abs(x)"), "last line", ""),
    "shadowing": (("Relu(x)", "x = Abs(x)\nx"), "'x' has a meaning already", ""),
    "attribute-twice": (("Relu(x)", "Elu(x, alpha=1.0, **a)"), "no attributes are bound", ""),
    "no-number": (("Relu(x)", "Add(x, 'one')"), "not a value", ""),
}


@pytest.mark.parametrize(("entry", "message", "hint"), REFUSED.values(), ids=REFUSED)
def test_a_rule_that_cannot_work_is_refused_at_load(entry: Entry, message: str, hint: str) -> None:
    """With file, line, column and advice."""
    with pytest.raises(CatalogError, match=message) as caught:
        rules(entry)
    assert re.match(r"rules\.yaml:\d+:\d+: rule 'r': ", caught.value.message)
    assert "\n" in caught.value.message
    assert hint in (caught.value.hint or "")


def test_bodies_that_the_pattern_describes_are_not_lost() -> None:
    """``if_`` says all there is to say of an If."""
    before = BRANCHES.format(outside="", then="p = Relu (x)", otherwise="q = Relu (x)")
    text, result, _ = apply(before, ("if_(_, Relu(v), Relu(v))", "Relu(v)"))
    assert text == "(x, c) => (y) {\n  y = Relu (x)\n}"
    check_sound(proto_from_text(before), result)


def test_the_place_of_what_is_refused() -> None:
    """The caret stands below the operator that is misspelt."""
    with pytest.raises(CatalogError) as caught:
        rules(("Relu(Neg(x))", "Neg(Rellu(x))"))
    _, excerpt, caret = caught.value.message.split("\n")
    assert excerpt[caret.index("^") :].startswith("Rellu")


# -- ends --------------------------------------------------------------------------------------


def test_rules_are_applied_until_nothing_matches() -> None:
    """Each round may enable the next; counts and rounds are told."""
    names = ["x", *(f"v{n}" for n in range(9)), "y"]
    steps = " ".join(f"{b} = Neg ({a})" for a, b in pairwise(names))
    before = f"g (float[2] x) => (float[2] y) {{ {steps} }}"
    text, result, done = apply(before, ("Neg(Neg(x))", "x"))
    assert done.counts == {"r": 5}
    assert "Neg" not in text
    check_sound(proto_from_text(before), result)


ENDLESS: dict[str, tuple[list[Entry], set[str]]] = {
    "swap": ([("Add(x, y)", "Add(y, x)")], {"r"}),
    "there-and-back": (
        [("Sub(x, y)", "Add(x, Neg(y))"), ("Add(x, Neg(y))", "Sub(x, y)")],
        {"r", "r1"},
    ),
    "grows": ([("Add(x, y)", "Add(Neg(x), y)")], {"r"}),
    "with-a-rule-that-ends": ([("Relu(x)", "Abs(x)"), ("Add(x, y)", "Add(y, x)")], {"r1"}),
}


@pytest.mark.parametrize(("entries", "names"), ENDLESS.values(), ids=ENDLESS)
def test_rules_without_an_end_are_named(entries: list[Entry], names: set[str]) -> None:
    """RewriteLimitError names the rules that still apply, in reasonable time and space."""
    before = (
        "g (float[2] a, float[2] b) => (float[2] y) { r = Relu (a) s = Sub (r, b) y = Add (s, b) }"
    )
    model = model_from_text(before)
    with within(15), pytest.raises(RewriteLimitError) as caught:
        rewrite(model, rules(*entries))
    assert names <= set(re.findall(r"\br\d?\b", caught.value.message))


# -- random ------------------------------------------------------------------------------------

SOUND: list[Entry] = [
    ("Neg(Neg(x))", "x"),
    ("Relu(Relu(x))", "Relu(x)"),
    ("Add(x, x)", "Mul(x, 2.0)"),
    ("Sub(x, x)", "Mul(x, 0.0)"),
    ("Sub(x, Neg(y))", "Add(x, y)"),
    ("Neg(Sub(x, y))", "Sub(y, x)"),
    ("Add(x, Neg(y))", "Sub(x, y)"),
    ("Sum(x, y, z)", "Add(Add(x, y), z)"),
    ("Mul(x, const(k))", "Mul(x, const(k.value * 1.0) + 0.0)"),
    ("Add(const(a), const(b))", "const(a.value + b.value)"),
    ("Mul(Neg(x), Neg(y))", "Mul(x, y)"),
    ("a = Neg(x)\na, Relu(a)", "b = Sub(Mul(x, 0.0), x)\nb, Max(b, 0.0)"),
    ("r = Relu(x)\nr, Sigmoid(x)", "Max(x, 0.0), Sigmoid(x)"),
    ("Relu(x) | Neg(x)", "Sub(Max(x, x), Max(x, x))"),
]
ENDING = [entry for entry in SOUND if entry[0] not in {"Relu(x) | Neg(x)", "Mul(x, const(k))"}]


@pytest.mark.long
@given(graphs(10), st.lists(st.sampled_from(ENDING), min_size=1, max_size=4, unique=True))
def test_sound_rules_keep_the_numbers(graph: RandomGraph, entries: list[Entry]) -> None:
    """Whatever the graph and the order of the rules, the result is valid and computes the same."""
    before = graph.text()
    _, result, _ = apply(before, *entries)
    check_sound(proto_from_text(before), result)


@given(graphs(8), st.lists(st.sampled_from(ENDING), min_size=1, max_size=3, unique=True))
def test_rewriting_twice_changes_nothing_more(graph: RandomGraph, entries: list[Entry]) -> None:
    """The result is a fixpoint: in memory, and read again."""
    model = model_from_text(graph.text())
    rewrite(model, rules(*entries))
    text = print_model(model)
    assert rewrite(model, rules(*entries)).rounds == 0
    again = model_from_text(graph.text())
    rewrite(again, rules(*entries))
    assert print_model(again) == text


@given(graphs(8))
def test_a_guarded_commutation_ends(graph: RandomGraph) -> None:
    """``x + y`` into ``y + x`` where that happens once only: a rule with a condition."""
    before = graph.text()
    entry = ("Add(const(x), y)", "Add(y, Mul(const(x.value), 1.0))")
    _, result, done = apply(before, entry, where=["not y.is_const"])
    assert done.rounds <= 1
    check_sound(proto_from_text(before), result)
    assert np.isfinite(done.rounds)


# What is still read stays, where the replacement does no work again.


@pytest.mark.parametrize(
    ("pattern", "replacement", "expected"),
    [
        ("Transpose(Transpose(x, **a), **b)", "Transpose(x, **b)", "keep"),
        ("Add(Add(x, const(a)), const(b))", "Add(x, const(a.value + b.value))", "keep"),
        ("Relu(Relu(x))", "Relu(x)", "keep"),
        ("Neg(Neg(x))", "x", "keep"),
        ("Sub(x, Neg(y))", "Add(x, y)", "keep"),
        ("Conv(Relu(x), w, **a)", "Conv(x, w, **a)", "keep"),
        ("Add(MatMul(x, w), b)", "Gemm(x, w, b)", "refuse"),
        ("Log(Add(Exp(x), 1.0))", "Softplus(x)", "refuse"),
        ("Mul(x, Sigmoid(x))", "com.microsoft.QuickGelu(x)", "refuse"),
        ("Relu(Add(x, y))", "Relu(Add(y, x))", "refuse"),
        ("op()(Neg(x))", "Exp(x)", "refuse"),
        ("op()(Neg(x))", "Abs(x)", "keep"),
    ],
)
def test_what_a_rule_does_with_inner_values_that_are_read_elsewhere(
    pattern: str, replacement: str, expected: str
) -> None:
    """It keeps them, unless the replacement would do their work again; each rule may say else."""
    assert rewrite_rule(pattern, replacement).escape == expected
    for stated in ("keep", "refuse"):
        assert rewrite_rule(pattern, replacement, escape=stated).escape == stated


def test_an_inner_value_that_is_returned_keeps_its_name_and_value() -> None:
    """The outer transposition reads past the inner one, which stays."""
    before = """g (float[2, 3, 4] x) => (float[4, 3, 2] t, float[3, 4, 2] y)
        { t = Transpose <perm = [2, 1, 0]> (x)  y = Transpose <perm = [1, 0, 2]> (t) }"""
    text, result, done = apply(
        before,
        ("Transpose(Transpose(x, perm=[2, 1, 0]), perm=[1, 0, 2])", "Transpose(x, perm=[1, 2, 0])"),
    )
    assert done.counts == {"r": 1}
    assert "t = Transpose" in text
    assert "y = Transpose <perm = [1, 2, 0]> (x)" in text
    check_sound(proto_from_text(before), result)


def test_of_several_inner_nodes_those_stay_that_are_needed() -> None:
    """A value that is read needs what it comes from; the rest of the match goes."""
    text, _, done = apply(
        """g (float[2] x) => (float[2] y, float[2] z)
        { a = Exp (x)  b = Neg (a)  c = Abs (b)  y = Neg (c)  z = Sin (b) }""",
        ("Neg(Abs(Neg(e)))", "Neg(e)"),
    )
    assert done.counts == {"r": 1}
    assert "b = Neg (a)" in text
    assert "Abs" not in text
    assert "y = Neg (a)" in text


def test_a_node_of_two_outputs_is_not_kept_for_one_of_them() -> None:
    """It cannot stay for its other output while its first is made by something else."""
    before = """g (float[4] x) => (float[2] y, float[2] z)
        { a, b = Split <axis = 0, num_outputs = 2> (x)  y = Neg (a)  z = Relu (b) }"""
    check_left(
        '<ir_version: 8, opset_import: ["" : 18]>\n' + before,
        ("Split(x, **_)", "x"),
        "'b' is also read by Relu",
        "and needs what is replaced",
        stage="escape",
        escape="keep",
    )


def test_random_numbers_are_not_drawn_twice() -> None:
    """What stays has other numbers than what the replacement draws."""
    check_left(
        """g (float[2] x) => (float[2] y, float[2] r)
        { r = RandomNormalLike (x)  n = Neg (r)  y = Neg (n) }""",
        ("Neg(Neg(RandomNormalLike(x, **a)))", "RandomNormalLike(x, **a)"),
        "draws random numbers",
        stage="escape",
        escape="keep",
    )


def test_a_wrong_policy_is_refused_in_its_place() -> None:
    """Those of rules that outline are not those of rules that replace."""
    with pytest.raises(CatalogError, match="escape"):
        rules(("Neg(Neg(x))", "x"), escape="duplicate")


# A replacement is spelled as the model's opset has it.


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 18, 21])
@pytest.mark.parametrize(
    ("replacement", "as_attributes", "from_opset"),
    [
        ("Unsqueeze(Squeeze(x, [0]), [0])", "axes", 13),
        ("Unsqueeze(Squeeze(x, axes=[0]), axes=[0])", "axes", 13),
        ("Clip(x, -1.0, 6.0)", "max", 11),
        ("Clip(x, min=-1.0, max=6.0)", "max", 11),
        ("Clip(x, None, 6.0)", "max", 11),
        ("Clip(Neg(x), min=-1.0)", "min", 11),
        ("ReduceSum(x, [1], keepdims=1)", "axes", 13),
        ("ReduceMean(x, axes=[1], keepdims=0)", "axes", 18),
        ("Pad(x, [0, 0, 1, 1], 2.0)", "pads", 11),
        ("Slice(x, [0, 0], [1, 2])", "starts", 10),
        ("t = TopK(x, [2])\nAdd(t[0], Cast(t[1], to=1))", "k", 10),
        ("t = TopK(x, k=2)\nAdd(t[0], Cast(t[1], to=1))", "k", 10),
        ("Reshape(x, [0, -1])", "shape", 5),
    ],
)
def test_what_became_an_input_is_given_either_way(
    replacement: str, as_attributes: str, from_opset: int, opset: int
) -> None:
    """Attributes before the change and inputs after it, whichever the rule writes."""
    ranks = "p" if "keepdims=0" in replacement else "p, q"
    before = f"""<ir_version: 7, opset_import: ["" : {opset}]>
        g (float[1, 3] x) => (float[{ranks}] y) {{ y = Softsign (x) }}"""
    _, result, done = apply(before, ("Softsign(x)", replacement))
    assert done.counts == {"r": 1}, done.refused
    onnx.checker.check_model(result, full_check=True)
    changed = [node for node in result.graph.node if node.op_type not in {"Neg", "Squeeze"}]
    attributes = {item.name for node in changed for item in node.attribute}
    assert (as_attributes in attributes) == (opset < from_opset)
    feeds = {"x": np.array([[-3.0, 0.5, 9.0]], np.float32)}
    newest = f"""<ir_version: 8, opset_import: ["" : 21]>
        g (float[1, 3] x) => (float[{ranks}] y) {{ y = Softsign (x) }}"""
    expected = apply(newest, ("Softsign(x)", replacement))[1]
    ours, theirs = (
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
        for model in (result, expected)
    )
    assert np.array_equal(ours[0], theirs[0])


@pytest.mark.parametrize(
    ("opset", "replacement", "reason"),
    [
        (9, "Clip(x, ReduceMax(x, keepdims=0))", "min of Clip is an attribute in opset 9"),
        (17, "Clip(x, 0.0, min=0.0)", "min is given twice"),
        (12, "Unsqueeze(x, [0], axes=[0])", "axes is given twice"),
        (17, "Unsqueeze(x)", "takes no 1 inputs"),
        (17, "Unsqueeze(x, axes=[0.5])", "int64 cannot hold"),
    ],
)
def test_what_cannot_be_spelled_is_refused(opset: int, replacement: str, reason: str) -> None:
    """With a reason; the model stays as it is."""
    before = f"""<ir_version: 7, opset_import: ["" : {opset}]>
        g (float[1, 3] x) => (float[p, q] y) {{ y = Softsign (x) }}"""
    text, _, done = apply(before, ("Softsign(x)", replacement))
    assert text == print_model(model_from_text(before))
    (refusal,) = done.refused
    assert reason in refusal.reason


@pytest.mark.parametrize(
    ("stored", "count"),
    [
        ("int64[2] s = {0, -1}", 1),
        ("int64[2] s = {0, 1}", 0),
        ("int64[3] s = {0, -1, 1}", 0),
        ("int64[1] s = {0}", 0),
    ],
)
def test_a_list_is_a_constant_of_whole_numbers(stored: str, count: int) -> None:
    """All of its elements, in order, and no others."""
    before = f"g (float[1, 3] x) => (float[p, q] y) <{stored}> {{ y = Reshape (x, s) }}"
    if "{0, -1, 1}" in stored:
        before = before.replace("[p, q]", "[p, q, r]")
    if stored == "int64[1] s = {0}":
        before = before.replace("[1, 3]", "[1]").replace("[p, q]", "[p]")
    _, _, done = apply(before, ("Reshape(x, [0, -1], **_)", "Flatten(x, axis=1)"))
    assert done.counts == {"r": count}


@pytest.mark.parametrize("text", ["[0, 1.5]", "[True]", '["a"]', "[[0]]", "[x]", f"[{1 << 64}]"])
def test_a_list_of_something_else_is_refused(text: str) -> None:
    """Where it stands."""
    with pytest.raises(CatalogError, match=r"rules\.yaml:\d+:\d+"):
        rules((f"Reshape(x, {text}, **_)", "Flatten(x, axis=1)"))


# Attributes that are bound to names.

TWO_TRANSPOSES = ("Transpose(Transpose(x, perm=p), perm=q)", "Transpose(x, perm=[p[i] for i in q])")


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("<perm = [1, 2, 0]>", "<perm = [1, 0, 2]>", [2, 1, 0]),
        ("<perm = [1, 2, 0]>", "<perm = [2, 0, 1]>", [0, 1, 2]),
        ("", "<perm = [1, 0, 2]>", [1, 2, 0]),
        ("<perm = [1, 2, 0]>", "", [0, 2, 1]),
    ],
)
def test_a_replacement_computes_with_attributes(
    inner: str, outer: str, expected: list[int]
) -> None:
    """Defaults, which depend on the rank, are filled in."""
    before = f"""g (float[2, 3, 4] x) => (float[p, q, r] y)
        {{ t = Transpose {inner} (x)  y = Transpose {outer} (t) }}"""
    _, result, done = apply(before, TWO_TRANSPOSES)
    assert done.counts == {"r": 1}
    (node,) = result.graph.node
    assert list(node.attribute[0].ints) == expected
    check_sound(proto_from_text(before), result)


@pytest.mark.parametrize("to", ['"float16"', "like.dtype", "10"])
def test_an_element_type_is_given_by_its_name(to: str) -> None:
    """In a replacement as in a pattern, also where a condition's word makes it."""
    text = "g (float[2] x, float16[2] z) => (float16[2] y) { y = CastLike (x, z) }"
    _, result, done = apply(text, ("CastLike(x, like, **attrs)", f"Cast(x, **attrs, to={to})"))
    assert done.counts == {"r": 1}
    check_sound(proto_from_text(text), result)
    with pytest.raises(CatalogError, match="'flaot16' is not an element type"):
        rules(("Relu(x)", 'Cast(x, to="flaot16")'))


@pytest.mark.parametrize(("inner", "count"), [("[1, 2, 0]", 1), ("[2, 0, 1]", 0), ("[1, 0, 2]", 0)])
def test_one_name_is_one_value(inner: str, count: int) -> None:
    """Two attributes of a name are equal, defaults included."""
    before = f"""g (float[2, 3, 4] x) => (float[p, q, r] y)
        {{ t = Transpose <perm = {inner}> (x)  y = Transpose <perm = [1, 2, 0]> (t) }}"""
    law = "Transpose(Transpose(x, perm=p), perm=p)", "Transpose(x, perm=[p[i] for i in p])"
    assert apply(before, law)[2].counts == {"r": count}
    default = before.replace(f"<perm = {inner}>", "").replace("<perm = [1, 2, 0]>", "")
    assert apply(default, law)[2].counts == {"r": 1}


def test_a_condition_asks_for_an_attribute() -> None:
    """Where it does not hold, or the attribute is not known, nothing happens."""
    rule = "Concat(Relu(x), Relu(y), axis=a)", "Relu(Concat(x, y, axis=a))"
    text = """g (float[2, 2] x, float[2, 2] z) => (float[p, q] y)
        { a = Relu (x)  b = Relu (z)  y = Concat <axis = AXIS> (a, b) }"""
    check(
        text.replace("AXIS", "1"),
        rule,
        """(x, z) => (y) {
          y_Concat = Concat <axis = 1> (x, z)
          y = Relu (y_Concat)
        }""",
        where=["a == 1"],
    )
    check_left(text.replace("AXIS", "0"), rule, "'a == 1'", stage="where", where=["a == 1"])


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("<value = int64[1] {0}>", 0),
        ("<value = float[1] {2}>", 1),
        ("<value = float16[1] {2}>", 1),
        ("", 0),
    ],
)
def test_a_tensor_is_an_attribute_too(value: str, count: int) -> None:
    """Stated as a number, whatever its type; bound, an array with its type."""
    dtype = value.partition("[")[0].removeprefix("<value = ") or "float"
    text = f"""g (int64[2] s) => ({dtype}[p, q] y)
        {{ f = ConstantOfShape {value} (s)  y = Neg (f) }}"""
    law = "Neg(ConstantOfShape(s, value=2))", "ConstantOfShape(s, value=-2.0)"
    if "16" not in value:
        assert apply(text, law)[2].counts == {"r": count}
    bound = "Neg(ConstantOfShape(s, value=v))", "ConstantOfShape(s, value=-v)"
    _, result, done = apply(text, bound)
    assert done.counts == {"r": 1}
    check_sound(proto_from_text(text), result)


@pytest.mark.parametrize(
    ("tensor", "count"),
    [("float[2] {1, 2}", 1), ("float[2] {1, 3}", 0), ("float[1, 2] {1, 2}", 0), ("float {1}", 0)],
)
def test_a_list_of_numbers_is_a_tensor(tensor: str, count: int) -> None:
    """Of one axis; of another shape it is another tensor."""
    text = f"""g (float[2] x) => (float[2] y) {{
        c = Constant <value = {tensor}> ()  s = Add (x, c)  y = Flatten (s) }}"""
    law = "Add(x, Constant(value=[1.0, 2.0], **_))", "Neg(x)"
    assert apply(text, law)[2].counts == {"r": count}


def test_texts_and_floats_are_attributes_too() -> None:
    """A string in a condition, a number in a constant."""
    _, _, done = apply(
        "g (float[2] x) => (float[2] y) { n = Neg (x) y = LeakyRelu <alpha = 0.5> (n) }",
        ("LeakyRelu(Neg(x), alpha=s)", "Mul(Neg(x), const([s]))"),
        where=["s > 0.4 and s < 0.6"],
    )
    assert done.counts == {"r": 1}


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        ("Transpose(p, perm=p)", "p", "'p' has a meaning already"),
        ("Add(Transpose(x, perm=p), p)", "x", "'p' names two patterns"),
        ("Concat(Transpose(x, perm=p), axis=p)", "x", "'p' names two patterns"),
        ("Transpose(x, perm=p)", "Add(x, p)", "'p' is the attribute 'perm', not a value"),
        ("Transpose(x, prem=p)", "x", "no attribute 'prem'"),
        ("Unsqueeze(x, axis=p)", "x", "no attribute 'axis'"),
        ("Transpose(x, perm=Relu)", "x", "'Relu' cannot be used as a name"),
        ("Transpose(x, perm=_)", "x", "'_' cannot be used as a name"),
        ("Transpose(x, perm=p)", "Transpose(x, perm=q)", "uses the name 'q'"),
    ],
)
def test_a_wrong_capture_is_refused_where_it_stands(
    pattern: str, replacement: str, message: str
) -> None:
    """With file, line and column."""
    with pytest.raises(CatalogError, match=rf"rules\.yaml:\d+:\d+.*{message}"):
        rules((pattern, replacement))


@pytest.mark.parametrize("opset", [9, 13, 21])
def test_what_became_an_input_is_bound_like_an_attribute(opset: int) -> None:
    """Whether the model has it as an attribute or as a constant."""
    given = "Unsqueeze <axes = [1]> (x)" if opset < 13 else "Unsqueeze (x, axes)"
    before = f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[2, 3] x) => (float[p, q, r] y) <int64[1] axes = {{1}}>
        {{ u = {given}  y = Relu (u) }}"""
    law = "Relu(Unsqueeze(x, axes=a))", "Unsqueeze(Relu(x), axes=a)"
    _, result, done = apply(before, law)
    assert done.counts == {"r": 1}
    check_sound(proto_from_text(before), result)
    _, _, done = apply(before, law, where=["a == [0]"])
    assert done.counts == {"r": 0}


def test_an_input_that_is_computed_is_not_bound() -> None:
    """Nobody knows its value; that is a mismatch, not a refusal."""
    _, _, done = apply(
        """g (float[2, 3] x, int64[1] axes) => (float[p, q, r] y)
        { u = Unsqueeze (x, axes)  y = Relu (u) }""",
        ("Relu(Unsqueeze(x, axes=a))", "Unsqueeze(Relu(x), axes=a)"),
    )
    assert done.counts == {"r": 0}
    assert not done.refused


def test_what_the_pattern_reads_as_an_input_is_not_lost() -> None:
    """Nor is an input that the pattern leaves out: then the node has none."""
    rules(("Clip(x, 0.0, hi)", "Relu(x)"), ("Slice(x, [0], [1], [0])", "x"), ("Clip(x)", "x"))
    left = """<ir_version: 8, opset_import: ["" : 6]> g (float[2] x) => (float[2] y)
        { y = Clip <min = 0.0> (x) }"""
    _, _, done = apply(left, ("Clip(x)", "x"), opsets=[6])
    assert done.counts == {"r": 0}


def test_a_bound_that_a_caller_gives_is_not_lost() -> None:
    """Inside a function that takes it as an attribute nobody knows whether there is one."""
    _, _, done = apply(
        """<ir_version: 8, opset_import: ["" : 9, "own" : 1]>
        g (float[2] x) => (float[2] y) { y = own.Cut <least = 0.5> (x) }
        <domain: "own", opset_import: ["" : 9]>
        Cut <least> (x) => (y) { y = Clip <min: float = @least> (x) }""",
        ("Clip(x)", "x"),
    )
    assert done.counts == {"r": 0}


@pytest.mark.parametrize("kind", ["float", "float16", "double", "int64"])
def test_a_number_in_python_takes_the_type_beside_it(kind: str) -> None:
    """That of a captured value, or of a new node's result."""
    x = wildcard("x")

    def doubled(match: Match, build: GraphBuilder) -> DraftOutput:
        return build.op("Mul", build.op("Abs", match[x]), 2)

    model = model_from_text(f"g ({kind}[2] x) => ({kind}[2] y) {{ y = Neg (x) }}")
    rewrite(model, [RewriteRule("r", is_op("Neg")(x), doubled)])
    (factor,) = model.graph.initializers
    assert factor.constant is not None
    assert str(factor.known_type()) == {"float": "float32[]", "double": "float64[]"}.get(
        kind, f"{kind}[]"
    )
    assert factor.constant.numpy() == 2


def test_a_number_in_python_that_the_type_cannot_hold() -> None:
    """The match is refused, and says so."""
    x = wildcard("x")
    model = model_from_text("g (int64[2] x) => (int64[2] y) { y = Neg (x) }")
    rule = RewriteRule("r", is_op("Neg")(x), lambda m, build: build.op("Mul", m[x], 2.5))
    (refusal,) = rewrite(model, [rule]).refused
    assert "2.5" in refusal.reason


def test_an_operator_that_is_not_called_is_no_pattern() -> None:
    """As a root or as an operand: it says what to write."""
    with pytest.raises(PatternSyntaxError, match="is not called"):
        RewriteRule("r", is_op("Relu"), lambda _match, _build: None)  # type: ignore[arg-type]  # that is it
    with pytest.raises(TypeError, match=r'is_op\("Neg"\)\(x\) is a node that reads x'):
        is_op("Relu")(is_op("Neg"))


KEPT = {
    "stated-default": ("LeakyRelu(x)", "LeakyRelu <alpha = 0.01> (x)", ""),
    "other-value": ("LeakyRelu(x)", "LeakyRelu <alpha = 0.5> (x)", "its default"),
    "named": ("LeakyRelu(x, alpha=0.5)", "LeakyRelu <alpha = 0.5> (x)", ""),
    "captured": ("LeakyRelu(x, alpha=a)", "LeakyRelu <alpha = 0.5> (x)", ""),
    "waived": ("LeakyRelu(x, **_)", "LeakyRelu <alpha = 0.5> (x)", ""),
    "one-of-two": ("Elu(LeakyRelu(x), alpha=2.0)", "LeakyRelu <alpha = 0.5> (x)", "with alpha"),
    "reversed": ("Transpose(x)", "Transpose <perm = [2, 1, 0]> (x)", ""),
    "turned": ("Transpose(x)", "Transpose <perm = [1, 0, 2]> (x)", "perm = [2, 1, 0]"),
    "of-a-class": ('op(kind="elementwise")(x)', "LeakyRelu <alpha = 0.5> (x)", "alpha"),
    "no-default": ("com.acme.F(x)", "com.acme.F <a = 1> (x)", "a absent"),
    "nothing-stated": ("com.acme.F(x)", "com.acme.F (x)", ""),
    "in-a-chain": ("repeat(LeakyRelu, x, min=1)", "LeakyRelu <alpha = 0.5> (x)", "alpha"),
}


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("dominates(Abs(x), LeakyRelu(_), Neg(_))", False),
        ("dominates(Abs(x), LeakyRelu(_, **_), Neg(_))", True),
        ("Neg(x & ~LeakyRelu(_))", False),
        ("Neg(x & ~LeakyRelu(_, alpha=0.1))", True),
    ],
)
def test_attributes_of_what_is_taken_have_their_default(pattern: str, *, fits: bool) -> None:
    """Those of a path are lost, too; what is denied is not taken."""
    _, _, done = apply(
        """g (float[2] x) => (float[2] y) {
            a = Abs (x) t = LeakyRelu <alpha = 0.5> (a) y = Neg (t) }""",
        (pattern, "Exp(x)"),
    )
    assert done.counts == {"r": int(fits)}


def test_carried_attributes_are_those_that_are_not_named() -> None:
    """A name for its value names an attribute."""
    pair = ("Gemm(x, w, transB=t, **attrs)", "com.acme.F(x, w, **attrs, turned=t)")
    after, _, _ = apply(
        """<ir_version: 10, opset_import: ["" : 21, "com.acme" : 1]>
        g (float[2,2] x, float[2,2] w) => (float[2,2] y) {
            y = Gemm <alpha = 2.0, transB = 1> (x, w) }""",
        pair,
    )
    assert "com.acme.F <alpha = 2.0, turned = 1> (x, w)" in after


@pytest.mark.parametrize(("pattern", "node", "reason"), KEPT.values(), ids=KEPT)
def test_what_is_not_named_has_its_default(pattern: str, node: str, reason: str) -> None:
    """A replacement would lose it otherwise: there is no match then, and explain says so."""
    last = "y = Elu <alpha = 2.0> (t)" if pattern.startswith("Elu") else "y = Size (t)"
    before = f"""<ir_version: 10, opset_import: ["" : 21, "com.acme" : 1]>
        g (float[2,3,2] x) => (y) {{ t = {node} {last} }}"""
    (rule,) = rules((pattern, "x"))
    model = model_from_text(before)
    assert bool(select_matches(model, [rule]).matches) == (not reason)
    root = list(model.graph)[pattern.startswith("Elu")]
    miss = Tracer(rule).trace(root).mismatch
    assert reason in (miss.expected if miss else "")
    assert miss is None or "**attrs" in miss.found


def test_variables_of_comprehensions_hide_what_is_bound() -> None:
    """As in Python: the condition is about 3 and 4, not about the permutation."""
    _, _, done = apply(
        "g (float[2, 3] x) => (float[p, q] y) { t = Neg (x) y = Transpose <perm = [1, 0]> (t) }",
        ("Transpose(Neg(x), perm=p)", "Neg(Transpose(x, perm=[1, 0]))"),
        where=["all([p > 2 for p in [3, x.rank + 3]])"],
    )
    assert done.counts == {"r": 1}


def test_captures_in_python_are_those_of_texts() -> None:
    """`bind_attr` makes the same pattern, and is written the same."""
    read = rules(TWO_TRANSPOSES)[0]
    x = wildcard("x")
    made = is_op("Transpose")(is_op("Transpose")(x).bind_attr("perm", "p")).bind_attr("perm", "q")
    assert repr(made) == repr(read.pattern) == TWO_TRANSPOSES[0]
