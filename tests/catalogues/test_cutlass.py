"""The catalogue for CUTLASS: TVM's tables, their conditions, and real models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli import pipeline
from dplcli.settings import PartitionSettings
from tests.catalogues.near_misses import counts_when_equivalent, failures, idle_conditions, rules_of
from tests.corpus.nets import each_model, real_model
from tests.support.helpers import one_in, rule_name, selected, taken

if TYPE_CHECKING:
    from pathlib import Path

# -- TVM's tables ------------------------------------------------------------------------------

DECODE = [f"decode_matmul{cast}_bias{gelu}" for gelu in ("_gelu", "") for cast in ("_cast", "")]
MATMUL = [
    f"matmul{transposed}_bias{act}"
    for transposed in ("_transposed", "")
    for act in ("_gelu", "_relu", "")
]
CONV = ["conv2d_bias_silu", "conv2d_bias_relu", "conv2d_bias"]


def residuals(bases: list[str], end: str) -> list[str]:
    """Name the rules with a residual, in the order in which TVM's registry tries them."""
    return [f"{base}_residual_{op}{end}" for base in bases for op in ("multiply", "add")]


RELAX = [
    *("rms_norm", "layer_norm", "attention_var_len", *["stacked_attention"] * 4),
    *("attention_bias", "attention"),
    *(name for end in ("_relu", "") for name in residuals([*DECODE, *MATMUL, *CONV], end)),
    *("decode_matmul_cast_bias_gelu", "decode_matmul_bias_gelu", "decode_matmul_cast_bias"),
    *("decode_matmul_cast", "decode_matmul_bias", "decode_matmul"),
    *(*MATMUL[:3], "matmul_transposed", *MATMUL[3:], "matmul"),
    *(*CONV, "conv2d"),
]
"""Relax's 79 names in effective order."""

RELAY_ACTS = ("_hardswish", "_silu", "_relu", "_sigmoid", "")
RELAY = [
    *(
        f"conv2d_bias{act}_residual_{op}{end}"
        for end in ("_relu", "")
        for act in RELAY_ACTS
        for op in ("add", "multiply")
    ),
    *("dense_bias_gelu_fp16", "dense_bias_gelu_fp32", "dense_bias_relu", "dense_bias", "dense"),
    *("batch_matmul", *(f"conv2d_bias{act}" for act in RELAY_ACTS), "conv2d", "conv2d_transpose"),
    "conv2d_backward_weight",
]
"""Relay's 34 names in order."""

SAME = {
    "dense_bias_gelu_fp16": "matmul_transposed_bias_gelu",
    "dense_bias_gelu_fp32": "matmul_transposed_bias_gelu",
    "dense_bias_relu": "matmul_transposed_bias_relu",
    "dense_bias": "matmul_transposed_bias",
    "dense": "matmul_transposed",
    "batch_matmul": "matmul",
}
"""What Relay names otherwise, by Relax's names."""

NO_OPERATOR = {"conv2d_backward_weight"}


def family(name: str) -> str:
    """Return what a rule is about: rules of two families want no nodes of each other."""
    return next((word for word in ("decode", "conv2d", "matmul") if word in name), "other")


def distinct(names: list[str]) -> list[str]:
    """Leave out repetitions."""
    return list(dict.fromkeys(names))


def test_the_tables_have_their_sizes() -> None:
    """The loops above make the tables that TVM has."""
    assert (len(RELAX), len(RELAY)) == (79, 34)


def test_the_tables_are_complete() -> None:
    """Each name of either table is a rule, or the same as one, or nothing that ONNX can say."""
    wanted = {SAME.get(name, name) for name in [*RELAX, *RELAY]} - NO_OPERATOR
    assert wanted == set(rules_of("cutlass"))


@pytest.mark.parametrize("group", ["decode", "conv2d", "matmul", "other"])
def test_rules_are_in_order(group: str) -> None:
    """Within a family the order is TVM's, Relay's activations in their places."""
    ours = [name for name in rules_of("cutlass") if family(name) == group]
    relax = [name for name in distinct(RELAX) if family(name) == group]
    assert [name for name in ours if name in relax] == relax
    relay = distinct([SAME.get(name, name) for name in RELAY if name not in NO_OPERATOR])
    of_relay = [name for name in relay if family(name) == group and "_add" not in name]
    assert [name for name in ours if name in of_relay] == of_relay


@pytest.mark.parametrize(
    "name", one_in(60, sorted({SAME.get(n, n) for n in [*RELAX, *RELAY]} - NO_OPERATOR), gate=12)
)
def test_examples(name: str) -> None:
    """Each rule takes what its examples say, with the same numbers, and leaves the near misses."""
    assert failures(rules_of("cutlass")[name]) == []


@pytest.mark.long
@pytest.mark.exhaustive
def test_every_condition_is_shown() -> None:
    """No condition can be left out without an example noticing."""
    assert idle_conditions(rules_of("cutlass").values()) == set()


@pytest.mark.long
def test_everything_stays_out_of_the_bodies_of_functions() -> None:
    """Weights, scales and biases are inputs of the calls."""
    assert {rule.constants for rule in rules_of("cutlass").values()} == {"lift"}


# -- what is recorded --------------------------------------------------------------------------


def test_layouts_are_recorded_with_convolutions_only() -> None:
    """The function of a convolution says how its kernel wants images and filters."""
    for name, rule in rules_of("cutlass").items():
        filters = "IHWO" if name == "conv2d_transpose" else "OHWI"
        layouts = {"data_layout": "NHWC", "kernel_layout": filters}
        assert rule.metadata == (layouts if "conv2d" in name else {})


def test_layouts_are_in_the_file(tmp_path: Path) -> None:
    """They stand in the function's metadata."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[1, 4, 6, 6] x, float[8, 4, 3, 3] w, float[8] b) => (float[1, 8, 4, 4] y) {
        c = Conv (x, w, b) y = Relu (c) }"""
    )
    onnx.save(model, tmp_path / "m.onnx")
    pipeline.partition(
        tmp_path / "m.onnx", PartitionSettings(output=tmp_path / "out.onnx", target=["cutlass"])
    )
    (function,) = onnx.load(tmp_path / "out.onnx").functions
    metadata = {item.key: item.value for item in function.metadata_props}
    assert (function.domain, rule_name(function.name)) == ("cutlass", "conv2d_bias_relu")
    assert (metadata["data_layout"], metadata["kernel_layout"]) == ("NHWC", "OHWI")


# -- rules against each other ------------------------------------------------------------------

HEADER = '<ir_version: 11, opset_import: ["": 23]>'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("m = MatMul (x, w) s = Add (m, b) y = Add (s, r)", "matmul_bias_residual_add: m, s, y"),
        ("m = MatMul (x, w) s = Add (m, r) y = Add (s, b)", "matmul: m"),
        ("m = MatMul (x, w) y = Add (m, r)", "matmul: m"),
        ("m = MatMul (x, w) s = Add (m, b) y = Mul (s, s)", "matmul_bias: m, s"),
        (
            "m = MatMul (x, w) s = Add (m, b) h = Sigmoid (s) y = Mul (s, h)",
            "matmul_bias: m, s",
        ),
        (
            "m = MatMul (x, w) s = Add (m, b) a = Relu (s) z = Mul (r, a) y = Relu (z)",
            "matmul_bias_relu_residual_multiply_relu: m, s, a, z, y",
        ),
    ],
)
def test_residuals_and_biases(body: str, expected: str) -> None:
    """A residual is no bias, and what is computed from the product is no residual."""
    head = "g (float[4, 8] x, float[8, 6] w, float[6] b, float[4, 6] r) => (float[4, 6] y)"
    rules = list(rules_of("cutlass").values())
    assert taken(selected(rules, f"{HEADER} {head} {{ {body} }}")) == [expected]


def test_a_mask_is_no_bias() -> None:
    """TVM takes a mask that is added to scores for a bias; it is one number for each row, too."""
    text = """g (float[2, 2, 5, 8] q, float[2, 2, 8, 5] k, float[1, 1, 5, 5] mask)
        => (float[2, 2, 5, 5] y) { m = MatMul (q, k) y = Add (m, mask) }"""
    rules = list(rules_of("cutlass").values())
    assert taken(selected(rules, f"{HEADER} {text}")) == ["matmul: m"]


@pytest.mark.parametrize("dtype", ["float16", "float"])
@pytest.mark.parametrize("attributes", ["is_causal = 1", "scale = 0.5", "q_num_heads = 2"])
def test_attention_keeps_its_attributes(dtype: str, attributes: str) -> None:
    """Scale, causality and heads travel with the call, so they are not asked for."""
    heads = "q_num_heads = 2, kv_num_heads = 2"
    shape, extra = ("2, 5, 8", heads) if "heads" in attributes else ("2, 2, 5, 4", attributes)
    inputs = ", ".join(f"{dtype}[{shape}] {name}" for name in "qkv")
    text = f"g ({inputs}) => ({dtype}[{shape}] y) {{ y = Attention <{extra}> (q, k, v) }}"
    rules = list(rules_of("cutlass").values())
    assert taken(selected(rules, f"{HEADER} {text}")) == ["attention: y"]


# -- real models -------------------------------------------------------------------------------

MODELS = {
    "bert-dynamo23": {
        "cutlass.layer_norm": 25,
        "cutlass.attention_bias": 12,
        "cutlass.matmul_bias_residual_add": 24,
        "cutlass.matmul_transposed_bias": 1,
        "cutlass.matmul_bias_gelu": 12,
        "cutlass.matmul_bias": 36,
    },
    "qwen3-dynamo23": {
        "cutlass.rms_norm": 17,
        "cutlass.attention_bias": 4,
        "cutlass.matmul": 29,
    },
    "opt-dynamo18": {
        "cutlass.layer_norm": 13,
        "cutlass.matmul_transposed_bias_residual_add": 6,
        "cutlass.matmul_bias_residual_add": 6,
        "cutlass.matmul_transposed_bias_relu": 6,
        "cutlass.matmul_bias": 18,
        "cutlass.matmul": 13,
    },
    "deit-dynamo18": {
        "cutlass.conv2d_bias": 1,
        "cutlass.layer_norm": 13,
        "cutlass.matmul_transposed_bias_residual_add": 1,
        "cutlass.matmul_bias_residual_add": 12,
        "cutlass.matmul_transposed_bias": 1,
        "cutlass.matmul_bias_gelu": 6,
        "cutlass.matmul_bias": 18,
        "cutlass.matmul": 12,
    },
    "t5_encoder-legacy17-fp16": {"cutlass.rms_norm": 13, "cutlass.matmul": 48},
    "qonnx_residual_block": {
        "cutlass.conv2d_bias_relu_residual_add": 1,
        "cutlass.conv2d_bias_relu": 1,
        "cutlass.conv2d_bias": 1,
    },
}


@pytest.mark.long
@pytest.mark.parametrize("name", each_model(MODELS, gate=3))
def test_real_models(name: str, tmp_path: Path) -> None:
    """The partitioned model is equivalent at both levels, and the counts are these."""
    assert (
        counts_when_equivalent(real_model(name), tmp_path / "out.onnx", "cutlass") == MODELS[name]
    )


def test_two_targets(tmp_path: Path) -> None:
    """The first target takes what it can, the second one what is left."""
    path = real_model("bert-dynamo23")
    both = pipeline.partition(
        path, PartitionSettings(output=tmp_path / "a.onnx", target=["cublas", "cutlass"])
    )
    assert both.counts["cublas.matmul_bias"] == 60
    assert both.counts["cutlass.layer_norm"] == 25
    assert not any("matmul" in rule for rule, n in both.counts.items() if n and "cutlass" in rule)
    assert both.ok
    other = pipeline.partition(
        path, PartitionSettings(output=tmp_path / "b.onnx", target=["cutlass", "cublas"])
    )
    assert not any(count for rule, count in other.counts.items() if rule.startswith("cublas."))
