"""The catalogue for cuBLAS: TVM's table, its conditions, and real transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.catalogues.near_misses import counts_when_equivalent, failures, idle_conditions, rules_of
from tests.corpus.nets import each_model, real_model
from tests.support.helpers import describe_refusals, one_in, selected, taken

if TYPE_CHECKING:
    from pathlib import Path

RELAX = [
    "matmul_transposed_multiply",
    "matmul_transposed_dequantize",
    *(
        f"matmul{transposed}{tail}"
        for transposed in ("_transposed", "")
        for tail in ("_bias_gelu", "_bias_relu", "_bias", "")
    ),
]
"""TVM's ten names, in the order in which its registry tries them."""

RELAY = ["dense", "batch_matmul"]
"""What Relay's three have beside ``matmul``."""

HEADER = '<ir_version: 10, opset_import: ["": 21]>'


def test_the_table_is_complete_and_in_order() -> None:
    """Relax's entries are there in effective order, and Relay's before the one that takes all."""
    names = list(rules_of("cublas"))
    assert [name for name in names if name not in RELAY] == RELAX
    assert sorted(names) == sorted(RELAX + RELAY)
    assert max(names.index(name) for name in RELAY) < names.index("matmul")


@pytest.mark.parametrize("name", one_in(24, [*RELAX, *RELAY], gate=6))
def test_examples(name: str) -> None:
    """Each rule takes what its examples say, with the same numbers, and leaves the near misses."""
    assert failures(rules_of("cublas")[name]) == []


@pytest.mark.long
def test_every_condition_is_shown() -> None:
    """No condition can be left out without an example noticing."""
    assert idle_conditions(rules_of("cublas").values()) == set()


@pytest.mark.long
def test_everything_stays_out_of_the_bodies_of_functions() -> None:
    """Weights, scales and biases are inputs of the calls."""
    assert {rule.constants for rule in rules_of("cublas").values()} == {"lift"}


# -- what onnxruntime's CPU provider cannot run ------------------------------------------------


def nodes_taken(text: str) -> list[str]:
    """Say which rule of the whole catalogue takes which nodes."""
    return taken(selected(list(rules_of("cublas").values()), f"{HEADER} {text}"))


@pytest.mark.parametrize(
    ("tail", "taken_nodes"),
    [
        ("y = Neg (m)", "matmul: m"),
        ("s = Add (m, b) y = Neg (s)", "matmul_bias: m, s"),
        ("s = Add (b, m) r = Relu (s) y = Neg (r)", "matmul_bias_relu: m, s, r"),
        ("s = Add (b, m) r = Gelu (s) y = Neg (r)", "matmul_bias_gelu: m, s, r"),
    ],
)
def test_bfloat16(tail: str, taken_nodes: str) -> None:
    """bfloat16 is a type of cuBLAS."""
    head = "g (bfloat16[4, 8] x, bfloat16[8, 6] w, bfloat16[6] b) => (bfloat16[4, 6] y)"
    assert nodes_taken(f"{head} {{ m = MatMul (x, w) {tail} }}") == [taken_nodes]


FLOAT8 = """g (float8e4m3fn[4, {depth}] x, float8e4m3fn[{columns}, {depth}] w,
    {out}[1] sa, {out}[1] sb) => ({out}[4, {columns}] y) {{
    u = DequantizeLinear (x, sa) v = DequantizeLinear (w, sb) t = Transpose (v) m = MatMul (u, t)
    y = Neg (m) }}"""


@pytest.mark.parametrize(
    ("depth", "columns", "out", "rule"),
    [
        (16, 4, "float", "matmul_transposed_multiply: u, v, t, m"),
        (16, 8, "float16", "matmul_transposed_multiply: u, v, t, m"),
        (16, 8, "bfloat16", "matmul_transposed_multiply: u, v, t, m"),
        (16, 4, "float16", "matmul_transposed: t, m"),
        (16, 2, "float", "matmul_transposed: t, m"),
        (12, 4, "float", "matmul_transposed: t, m"),
    ],
)
def test_rows_of_float8_are_16_bytes(depth: int, columns: int, out: str, rule: str) -> None:
    """Where float8 matrices do not fit, the product of floats remains."""
    text = FLOAT8.format(depth=depth, columns=columns, out=out)
    assert nodes_taken(text) == [rule]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float8e4m3fn", "matmul_transposed: u, v, t, m"),
        ("float8e5m2", "matmul_transposed: t, m"),
        ("float8e4m3fnuz", "matmul_transposed: t, m"),
    ],
)
def test_float8_without_scales(dtype: str, expected: str) -> None:
    """What is cast up is a product of float8e4m3fn; of other float8 types it is one of floats."""
    text = f"""g ({dtype}[4, 16] x, {dtype}[8, 16] w) => (float[4, 8] y) {{
        u = Cast <to = 1> (x) v = Cast <to = 1> (w) t = Transpose (v) m = MatMul (u, t)
        y = Neg (m) }}"""
    assert nodes_taken(text) == [expected]


@pytest.mark.parametrize(
    ("zero", "scale", "expected"),
    [
        ("int8 zw = {0}", "float sw = {0.1}", "matmul: a, b, m, y"),
        ("int8 zw = {1}", "float sw = {0.1}", "matmul: m"),
        ("int8 zw = {0}", "float[8] sw = {1, 2, 3, 4, 5, 6, 7, 8}", "matmul: m"),
    ],
)
def test_between_quantize_and_dequantize(zero: str, scale: str, expected: str) -> None:
    """Where int8 does not fit, the product of floats remains."""
    text = f"""g (int8[4, 8] x, int8[8, 8] w) => (int8[4, 8] y)
        <{zero}, {scale}, float s = {{0.1}}> {{
        a = DequantizeLinear (x, s) b = DequantizeLinear (w, sw, zw) m = MatMul (a, b)
        y = QuantizeLinear (m, s, zw) }}"""
    assert nodes_taken(text) == [expected]


def test_a_shared_dequantisation_is_taken_along() -> None:
    """Another node reads it, too: it stays there, and the int8 product has one of its own."""
    text = """g (int8[4, 8] x, int8[8, 8] w) => (float[4, 8] y, float[4, 8] z) <float s = {0.1}> {
        a = DequantizeLinear (x, s) b = DequantizeLinear (w, s) m = MatMul (a, b) y = Neg (m)
        z = Neg (a) }"""
    assert nodes_taken(text) == ["matmul: a, b, m"]


def test_unknown_batches_say_why() -> None:
    """TVM takes a product of unknown batches by 3; the reason against it names the condition."""
    types = "float[n, 4, 8] x, float[3, 8, 6] w"
    text = f"{HEADER} g ({types}) => (float[a, b, c] y) {{ y = MatMul (x, w) }}"
    reasons = describe_refusals(selected([rules_of("cublas")["matmul"]], text))
    assert any("right_is_matrix(p) or batches_agree(p)" in reason for reason in reasons)


# -- real transformers -------------------------------------------------------------------------

MODELS = {
    "deit-dynamo18": {
        "cublas.matmul_transposed_bias": 2,
        "cublas.matmul_bias_gelu": 6,
        "cublas.matmul_bias": 30,
        "cublas.matmul": 12,
    },
    "gpt2-dynamo20": {"cublas.matmul_bias": 48, "cublas.matmul": 25},
    "bert-dynamo23": {
        "cublas.matmul_transposed_bias": 1,
        "cublas.matmul_bias_gelu": 12,
        "cublas.matmul_bias": 60,
    },
    "opt-dynamo18": {
        "cublas.matmul_transposed_bias_relu": 6,
        "cublas.matmul_transposed_bias": 6,
        "cublas.matmul_bias": 24,
        "cublas.matmul": 13,
    },
    "vit-legacy17-half": {
        "cublas.matmul_transposed_bias": 1,
        "cublas.matmul_bias_gelu": 12,
        "cublas.matmul_bias": 60,
        "cublas.matmul": 24,
    },
    "distilbert-dynamo18-qdq-static": {
        "cublas.matmul_transposed_bias": 2,
        "cublas.matmul": 48,
    },
}


@pytest.mark.long
@pytest.mark.parametrize("name", each_model(MODELS, gate=3))
def test_transformers(name: str, tmp_path: Path) -> None:
    """The partitioned model is equivalent at both levels, and the counts are these."""
    assert counts_when_equivalent(real_model(name), tmp_path / "out.onnx", "cublas") == MODELS[name]
