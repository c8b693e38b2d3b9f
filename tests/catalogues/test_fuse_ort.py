"""``fuse_ort.yaml``: its rules one by one and together, and beside onnxruntime's own optimiser."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnxruntime as ort
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from dplcli.errors import PassError
from dplcli.onnx_io import load_model, to_proto
from dplcli.onnx_io.scratch import model_from_text as model_of_example
from dplcli.onnx_io.scratch import text_of_model
from dplcli.passes.rewrite import rewrite
from tests.catalogues.near_misses import failed_trials, kinds_of_examples
from tests.support.helpers import one_in, shipped_rewrites, thinned
from tests.support.processor import adds_in_32_bits

if TYPE_CHECKING:
    from dplcli.ir import Model
    from dplcli.language.replacement import RewriteRule

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_models"
OWN = ("fuse_ort.yaml", "fuse_ort_quantized.yaml")

FLOAT, DOUBLE, HALF = "tensor(float)", "tensor(double)", "tensor(float16)"
BYTES = frozenset({"tensor(uint8)", "tensor(int8)"})
FLOATS = frozenset({FLOAT})
KERNELS = {
    **dict.fromkeys(("BiasGelu", "Gelu", "FastGelu", "QuickGelu"), FLOATS),
    **dict.fromkeys(("FusedConv", "FusedGemm", "EmbedLayerNormalization"), FLOATS),
    "FusedMatMul": {FLOAT, DOUBLE},
    **dict.fromkeys(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "MatMulNBits"),
        frozenset({FLOAT, HALF}),
    ),
    **dict.fromkeys(("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu"), BYTES),
    **dict.fromkeys(("QLinearSoftmax", "QLinearWhere", "QGemm", "MatMulIntegerToFloat"), BYTES),
    "DynamicQuantizeMatMul": BYTES,
}
"""Element types for which the rules make an operator."""


@cache
def rules() -> dict[str, RewriteRule]:
    """Read the catalogue and the one for quantised tensors, without the one for attention."""
    every = shipped_rewrites("fuse_ort")
    return {rule.name: rule for rule in every if rule.origin.startswith(OWN)}


def names() -> list[str]:
    """List the rules, to try each; their examples are read when they are tried."""
    every = shipped_rewrites("fuse_ort", with_examples=False)
    return [rule.name for rule in every if rule.origin.startswith(OWN)]


def operators(proto: onnx.ModelProto) -> Counter[str]:
    """Count the operators of the main graph."""
    return Counter(node.op_type for node in proto.graph.node)


def fused(model: Model) -> Counter[str]:
    """Apply all rules, and count the operators."""
    rewrite(model, list(rules().values()))
    return operators(to_proto(model))


QUANTISED_PRODUCTS = {
    *("qlinear_conv", "qlinear_matmul", "qgemm", "qgemm_to_float"),
    "matmul_integer_to_float_of_dequantized",
}
"""Rules that make products of uint8 and int8."""

NUMBERS = re.compile(r" moved by |\] is \S+ instead of ")
"""What is said of results that are apart."""


# -- rule by rule ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(6, names(), gate=8))
def test_rules_hold_on_examples_and_on_graphs_made_up(name: str) -> None:
    """What a rule makes is valid and computes the same; what it must leave it leaves."""
    failed = failed_trials(rules()[name])
    if name in QUANTISED_PRODUCTS and not adds_in_32_bits():
        # onnxruntime's own operator saturates on this CPU; all but its numbers has to be right
        failed = [trial for trial in failed if not NUMBERS.search(trial.reason)]
    assert failed == []


@pytest.mark.parametrize("name", names())
def test_rules_show_what_they_take_and_what_they_leave(name: str) -> None:
    """A rule has an example of each kind, and says when it holds and how exactly."""
    rule = rules()[name]

    assert kinds_of_examples(rule) == {"taken", "left"}
    assert "Holds" in rule.doc
    assert "Numerics:" in rule.doc


@pytest.mark.parametrize("name", thinned(8, names()))
def test_every_condition_has_a_near_miss(name: str) -> None:
    """Without a condition, some example that says what comes out comes out otherwise.

    What one alternative of a pattern must leave another one may take, so not all say `unchanged`.
    """
    rule = rules()[name]
    texts = [example.before for example in rule.examples if example.after != "any"]
    for condition in rule.where:
        careless = replace(rule, where=tuple(c for c in rule.where if c is not condition))

        assert any(made(text, careless) != made(text, rule) for text in texts), condition.text


def made(text: str, rule: RewriteRule) -> str:
    """Return what a rule makes of a model; "" if it stumbles over it."""
    model = model_of_example(text, "near miss")
    try:
        rewrite(model, [rule])
    except PassError:
        return ""
    return text_of_model(model)


@pytest.mark.parametrize("name", thinned(4, names(), first=2))
def test_rules_leave_each_other_their_work(name: str) -> None:
    """With all rules at work, an example becomes as small as by its own rule, or smaller."""
    rule = rules()[name]
    for example in rule.examples:
        if example.after == "unchanged":
            continue
        alone = model_of_example(example.before, "example")
        together = model_of_example(example.before, "example")
        rewrite(alone, [rule])
        rewrite(together, list(rules().values()))

        assert together.graph.node_count <= alone.graph.node_count, example.origin
        assert rewrite(together, list(rules().values())).rounds == 0


@pytest.mark.parametrize("op_type", KERNELS)
def test_there_are_kernels_for_what_is_made(op_type: str) -> None:
    """Onnxruntime registers a CPU kernel for each element type that a rule fuses."""
    found = {
        element
        for kernel in ort_state.get_all_opkernel_def()
        if (kernel.domain, kernel.op_name) == ("com.microsoft", op_type)
        and kernel.provider == "CPUExecutionProvider"
        for elements in kernel.type_constraints.values()
        for element in elements
    }

    assert found >= KERNELS[op_type]


# -- on models ---------------------------------------------------------------------------------


COUNTS = {
    "residual_block": {"FusedConv": 2, "Relu": 0},
    "super_resolution": {"FusedConv": 3, "Relu": 0},
    "light_squeezenet": {"FusedConv": 26, "Relu": 0},
    "deit": {"SkipLayerNormalization": 13, "BiasGelu": 6, "FusedMatMul": 6, "Erf": 0},
}


@pytest.mark.parametrize("name", COUNTS)
def test_sample_models_become_as_many_fused_operators(name: str) -> None:
    """The counts of each operator, and of those that they stand for."""
    found = fused(load_model(SAMPLES / f"{name}.onnx"))

    assert {op_type: found[op_type] for op_type in COUNTS[name]} == COUNTS[name]


@pytest.mark.parametrize("name", [*COUNTS, "resnet18_bn", "light_resnet50"])
def test_as_much_is_found_as_by_onnxruntime(name: str, tmp_path: Path) -> None:
    """After onnxruntime's basic clean-up, no operator of its extended level is rarer here.

    A layer normalisation may be counted as one of a sum.
    """
    path = SAMPLES / f"{name}.onnx"
    basic = optimised(path, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC, tmp_path / "basic.onnx")
    theirs = optimised(path, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, tmp_path / "ext.onnx")
    wanted = Counter(
        node.op_type for node in onnx.load(theirs).graph.node if node.domain == "com.microsoft"
    )

    found = fused(load_model(basic))

    assert wanted <= found
    assert wanted


def optimised(path: Path, level: ort.GraphOptimizationLevel, to: Path) -> Path:
    """Let onnxruntime write what it makes of a model."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(to)
    options.log_severity_level = 4
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return to


FAN_OUT = """<ir_version: 10, opset_import: ["" : 21]>
g (uint8[4] a, uint8[4] b) => ({outputs})
<float s = {{0.5}}, uint8 z = {{0}}> {{
  da = DequantizeLinear (a, s, z)
  db = DequantizeLinear (b, s, z)
  {sums}
}}
"""


def test_a_value_that_many_read_is_dequantised_for_none_of_them() -> None:
    """Each sum takes the quantised value, and the DequantizeLinear goes with the last."""
    count = 12
    sums = "\n  ".join(
        f"r{i} = Add (da, db)\n  y{i} = QuantizeLinear (r{i}, s, z)" for i in range(count)
    )
    outputs = ", ".join(f"uint8[4] y{i}" for i in range(count))
    model = model_of_example(FAN_OUT.format(outputs=outputs, sums=sums), "fan out")

    assert fused(model) == {"QLinearAdd": count}


def test_sums_cost_no_more_each_where_there_are_more() -> None:
    """Four times as many sums without a normalisation take at most five times as many calls."""
    short, long = (calls_on_a_chain(length) for length in (100, 400))

    assert long <= 5 * short


def calls_on_a_chain(length: int) -> int:
    """Count the calls of Python functions while rules look at a chain of sums."""
    lines = "\n".join(f"  v{i + 1} = Add (v{i}, b)" for i in range(length))
    text = f"g (float[4] v0, float[4] b) => (float[4] v{length}) {{\n{lines}\n}}"
    model = model_of_example(text, "chain")
    calls: Counter[str] = Counter()
    chosen = [rule for name, rule in rules().items() if "layer_normalization" in name]
    sys.setprofile(lambda _, event, __: calls.update([event]))
    try:
        rewrite(model, chosen)
    finally:
        sys.setprofile(None)
    return calls["call"]
