"""A function's name and signature are a contract: what may and may not look alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.catalog import read_catalogs
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.partition import partition
from dplcli.passes.select import Selection, select_matches
from tests.support.helpers import SCHEMAS, model_from_text, rule, rule_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from dplcli.language import PatternRule

TWO_FORMS = "(float[2] a, float[2] b) => (o, p) { s = Add (a, b) o = Relu (s) p = Relu (a) }"


def run(rules: Sequence[PatternRule], text: str) -> tuple[Selection, onnx.ModelProto]:
    """Match and outline *rules* in the model *text*."""
    model = model_from_text(text)
    selection = select_matches(model, rules)
    partition(model, selection)
    check_structure(model)
    return selection, to_proto(model)


def test_a_variant_never_takes_the_name_of_another_rule() -> None:
    """``k`` in two forms beside a rule that is called as the second form is: it gets a number."""
    forms = rule("Relu(x + y) | Relu(x)", name="k")
    _, written = run([forms], f"g {TWO_FORMS}")
    first, second = sorted(function.name for function in written.functions)
    assert (first, rule_name(second)) == ("k", "k")
    other = rule("Tanh(x - y)", name=second)
    _, written = run([forms, other], f"g {TWO_FORMS}")

    assert sorted(function.name for function in written.functions) == ["k", f"{second}_1"]


def test_a_search_given_up_is_said_even_after_another_refusal() -> None:
    """A match may have been missed, so the budget is the reason that counts."""
    values = ", ".join(f"a{index}" for index in range(9))
    wide = rule(f"Relu(Sum({values}))", "a0.name == 'nobody'")
    inputs = ", ".join(f"float[2] x{index}" for index in range(9))
    reads = ", ".join(f"x{index}" for index in range(9))
    selection, _ = run([wide], f"g ({inputs}) => (y) {{ s = Sum ({reads}) y = Relu (s) }}")

    assert [item.stage for item in selection.refused] == ["budget"]


def test_a_custom_domain_that_is_not_imported_gets_an_import() -> None:
    """Onnxruntime knows its own operators without an import; a function must name one."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] a) => (o) { t = com.microsoft.Gelu (a) o = Relu (t) }"""
    _, written = run([rule("Relu(com.microsoft.Gelu(x))")], text)

    imports = {entry.domain: entry.version for entry in written.functions[0].opset_import}
    assert imports == {"": 17, "com.microsoft": 1}
    assert "com.microsoft" in {entry.domain for entry in written.opset_import}


def test_without_an_opset_a_match_is_refused_with_a_reason() -> None:
    """Nobody knows what the operators of such a model mean."""
    text = '<ir_version: 8, opset_import: ["o" : 1]> g (float[2] a) => (b) { b = Relu (a) }'
    selection, written = run([rule("Relu(x)")], text)

    assert "opset" in selection.refused[0].reason
    assert not written.functions


def test_a_model_that_imports_the_target_keeps_its_version() -> None:
    """The calls inside a local function use the version that the model uses."""
    text = """<ir_version: 8, opset_import: ["" : 17, "t" : 3, "o" : 1]>
        g (float[2] a) => (b) { b = o.f (a) }
        <domain: "o", opset_import: ["" : 17]> f (u) => (v) { v = Relu (u) }"""
    _, written = run([rule("Relu(x)")], text)

    caller = next(function for function in written.functions if function.name == "f")
    assert {entry.domain: entry.version for entry in caller.opset_import}["t"] == 3


def test_one_name_is_one_input_behind_an_identity() -> None:
    """A value and its copy are the same value, so the kernel gets it once."""
    text = "g (float[2] a) => (o) { c = Identity (a) o = Mul (c, a) }"
    _, written = run([rule("Mul(x, x)")], text)

    assert list(written.functions[0].input) == ["x"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(float[2, 3] x, float[3, 4] w, float[4] b) => (y) { t = MatMul (x, w) y = Add (t, b) }",
         "dense_bias"),
        ("(float[2, 3] x, float[3, 1] w, float[5] b) => (y) { t = MatMul (x, w) y = Add (t, b) }",
         "dense"),
        ("(float[2, 3] x, float[4, 3] w, float[4] b) => (y) { y = Gemm <transB = 1> (x, w, b) }",
         "dense_bias"),
        ("(float[2, 3] x, float[3, 4] w, float[1] b) => (y) { y = Gemm (x, w, b) }", None),
        ("(float[2, 3] x, float[3, 4] w, float[4] b) => (y) { y = Gemm <beta = 2.0> (x, w, b) }",
         None),
    ],
    ids=["matmul", "widening-bias", "transposed", "scalar-bias", "scaled-bias"],
)  # fmt: skip
def test_a_dense_bias_runs_along_the_last_axis(text: str, name: str | None) -> None:
    """A bias that widens the result, or is one number, is no bias of a dense layer."""
    model = model_from_text(f"g {text}")
    found = select_matches(model, read_catalogs(["dnnl"], SCHEMAS).patterns).matches

    assert [match.rule.name for match in found] == ([name] if name else [])


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("b.rank == 5 and x.rank == 1", True),
        ("b.rank == 5 and x.rank == 9", False),
        ("b.rank == 5 or x.rank == 1", True),
        ("b.rank == 5 or x.rank == 9", False),
        ("not b.rank == 5", True),
    ],
)
def test_an_absent_name_exempts_only_what_uses_it(condition: str, *, holds: bool) -> None:
    """The rest of a condition is asked, whatever the other alternative would have bound."""
    asked = rule("Relu(x) | Relu(x + b)", condition)
    selection, _ = run([asked], "g (float[2] a) => (o) { o = Relu (a) }")

    assert bool(selection.matches) == holds


def test_a_function_is_no_use_of_an_absent_name_it_is_spelt_like() -> None:
    """``min(…)`` asks nothing of a pattern name ``min`` whose alternative was not taken."""
    asked = rule("Relu(x) | Relu(x + min)", "min(x.rank, 9) == 5")
    selection, _ = run([asked], "g (float[2] a) => (o) { o = Relu (a) }")

    assert [item.stage for item in selection.refused] == ["where"]
