"""``dnnl.yaml`` and ``dnnl_ops.yaml``: the table, its order, every condition, and real models."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli import pipeline
from dplcli.catalog import read_catalogs
from dplcli.language import PatternRule, parse_pattern
from dplcli.language.text import bound_names
from dplcli.onnx_io.scratch import model_from_text as model_of_example
from dplcli.passes.select import select_matches
from dplcli.settings import PartitionSettings
from tests.catalogues.near_misses import failed_trials, kinds_of_examples
from tests.corpus.nets import each_model, real_model
from tests.support.helpers import SCHEMAS, model_from_text, one_in

if TYPE_CHECKING:
    from pathlib import Path

ROOTS = ("conv1d", "conv2d", "conv3d", "deconv2d", "deconv3d", "dense")
ACTIVATIONS = ("_relu", "_tanh", "_sigmoid", "_clip", "_gelu", "_swish", "_mish", "")
FIRST = ("qnn.conv2d", "qnn.dense", "dense_bias_sum", "conv2d_bias_sum_relu", "conv2d_bias_sum")
BIASES = ("_bias", "")

SINGLE = {
    *("batch_norm", "conv1d", "conv2d", "conv3d", "deconv2d", "deconv3d", "dense", "max_pool2d"),
    *("max_pool3d", "avg_pool2d", "avg_pool3d", "global_avg_pool2d", "abs", "clip", "exp", "log"),
    *("sqrt", "round", "relu", "leaky_relu", "tanh", "sigmoid", "softmax", "add", "multiply"),
    *("layer_norm", "batch_matmul"),
}
"""What TVM annotates operator by operator, under the names of the table."""


def table() -> list[str]:
    """Return the names of TVM's table in its order, as the loops that make it say."""
    made = [
        f"{root}{bias}{activation}"
        for bias, activation, root in product(BIASES, ACTIVATIONS, ROOTS)
        if bias or activation
    ]
    return [*FIRST, *made]


@cache
def rules() -> dict[str, PatternRule]:
    """Read the catalogues with all examples."""
    every = read_catalogs(["dnnl_ops"], SCHEMAS, with_examples=True).patterns
    return {rule.name: rule for rule in every}


def names() -> list[str]:
    """List the rules, to try each."""
    return list(rules())


def takes(rule: PatternRule, text: str) -> bool:
    """Tell whether a rule matches anything in an example's model."""
    return bool(select_matches(model_of_example(text, "example"), [rule]).matches)


# -- the table -----------------------------------------------------------------------------------


def test_the_table_is_complete_and_in_tvm_s_order() -> None:
    """95 entries; what is added stands between them."""
    wanted = table()
    found = [name for name in names() if name in set(wanted)]

    assert len(wanted) == 95
    assert found == wanted


def test_every_operator_that_tvm_annotates_has_a_rule_after_the_table() -> None:
    """Composites win over the operators in them."""
    assert set(names()) >= SINGLE
    last = max(names().index(name) for name in table())
    assert all(names().index(name) > last for name in SINGLE)


def test_what_is_added_comes_before_what_would_take_its_nodes() -> None:
    """A longer match is listed before each part of it."""
    order = {name: number for number, name in enumerate(names())}

    for longer, shorter in (
        ("conv2d_bn_sum_relu", "conv2d_bn"),
        ("conv2d_bn_hardswish", "conv2d_bn"),
        ("conv2d_bias_leaky_relu", "conv2d_bias"),
        ("conv2d_hardswish", "conv2d"),
        ("conv2d_sum_relu", "conv2d"),
        ("conv2d_bn", "conv2d"),
    ):
        assert order[longer] < order[shorter], longer


def test_functions_are_named_as_composites() -> None:
    """The name is the contract with a kernel."""
    assert rules()["qnn.conv2d"].qualified_name == "dnnl.qnn.conv2d"
    assert {rule.constants for rule in rules().values()} == {"lift"}


# -- examples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(40, names(), gate=12))
def test_rules_hold_on_examples_and_on_graphs_made_up(name: str) -> None:
    """What a rule outlines computes the same; what it must leave it leaves."""
    assert failed_trials(rules()[name]) == []


@pytest.mark.parametrize("name", names())
def test_rules_show_what_they_take_and_what_they_leave(name: str) -> None:
    """An example of each kind at least."""
    assert kinds_of_examples(rules()[name]) == {"taken", "left"}


@pytest.mark.parametrize("name", one_in(16, names(), gate=4))
def test_every_condition_has_a_near_miss(name: str) -> None:
    """Without it, the rule takes an example that it must leave."""
    rule = rules()[name]
    misses = [example.before for example in rule.examples if example.after == "unchanged"]

    for number, condition in enumerate(rule.where):
        laxer = replace(rule, where=(*rule.where[:number], *rule.where[number + 1 :]))
        assert any(takes(laxer, text) for text in misses), condition.text


DEMAND = re.compile(r"\.has_(?:dtype|rank|shape)\([^()]*\)")


@pytest.mark.parametrize("name", one_in(16, names(), gate=4))
def test_every_demand_on_a_type_has_a_near_miss(name: str) -> None:
    """The same for types, ranks and shapes, which stand in the pattern."""
    rule = rules()[name]
    misses = [example.before for example in rule.examples if example.after == "unchanged"]
    text = repr(rule.pattern)

    for demand in sorted(set(DEMAND.findall(text))):
        pattern = parse_pattern(text.replace(demand, ""), SCHEMAS)
        known = bound_names(pattern)
        kept = tuple(c for c in rule.where if c.names <= known)
        laxer = replace(rule, pattern=pattern, where=kept)
        assert any(takes(laxer, text) for text in misses), demand


@pytest.mark.parametrize("name", one_in(16, names(), gate=4))
def test_a_rule_wins_what_its_examples_show(name: str) -> None:
    """No rule that is listed before takes a part of it away."""
    rule = rules()[name]
    for example in rule.examples:
        if example.after != "unchanged":
            model = model_of_example(example.before, "example")
            selection = select_matches(model, list(rules().values()))

            assert name in {match.rule.name for match in selection.matches}, example.origin


# -- what examples cannot show -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("conv2d_bias_relu", "t = Conv (x, w, b) y = Relu (t)"),
        ("conv2d_relu", "t = Conv (x, w) y = Relu (t)"),
        ("conv2d_bias", "y = Conv (x, w, b)"),
    ],
)
@pytest.mark.parametrize(("dtype", "fits"), [("bfloat16", True), ("float16", False)])
def test_element_types_that_onnxruntime_cannot_run(
    name: str, body: str, dtype: str, *, fits: bool
) -> None:
    """OneDNN has kernels for bfloat16 on every processor, for float16 on few."""
    model = model_from_text(
        '<ir_version: 10, opset_import: ["" : 22]>\n'
        f"g ({dtype}[1, 3, 6, 6] x, {dtype}[4, 3, 3, 3] w, {dtype}[4] b) "
        f"=> ({dtype}[1, 4, 4, 4] y) {{ {body} }}"
    )

    assert bool(select_matches(model, [rules()[name]]).matches) is fits


def test_a_bias_of_unknown_shape_is_no_bias() -> None:
    """What is not known is no."""
    model = model_from_text(
        "g (float[1, 3, 6, 6] x, float[4, 3, 3, 3] w, float[4, 1, N] b) => (float[1, 4, 4, 4] y) "
        "{ u = Conv (x, w) t = Add (u, b) y = Relu (t) }"
    )
    selection = select_matches(model, [rules()["conv2d_bias_relu"]])

    assert selection.matches == []
    assert [refusal.stage for refusal in selection.refused] == ["where"]


def test_channels_of_a_grouped_transposed_convolution() -> None:
    """The weight has the channels of one group: 2 groups of 3 make 6."""
    text = (
        "g (float[1, 4, 5, 5] x, float[4, 3, 3, 3] w, float[{size}, 1, 1] b) "
        "=> (float[M, N, O, P] y) {{ u = ConvTranspose <group = 2> (x, w) y = Add (u, b) }}"
    )
    rule = [rules()["deconv2d_bias"]]

    assert select_matches(model_from_text(text.format(size=6)), rule).matches
    assert not select_matches(model_from_text(text.format(size=3)), rule).matches


# -- real models ---------------------------------------------------------------------------------

FOUND = {
    "bert-legacy17": {
        "dense_bias_sum": 24,
        "dense_bias_tanh": 1,
        "dense_bias_gelu": 12,
        "dense_bias": 36,
        "layer_norm": 25,
        "batch_matmul": 24,
    },
    "efficientnet-legacy17": {
        "conv2d_bias_sum": 10,
        "conv2d_bias_sigmoid": 16,
        "conv2d_bias_swish": 49,
        "conv2d_bias": 6,
        "dense_bias": 1,
        "global_avg_pool2d": 17,
    },
    "mobilenetv2-legacy13-qdq-perchannel": {
        "qnn.conv2d": 52,
        "qnn.dense": 1,
        "qnn.add": 11,
        "global_avg_pool2d": 1,
    },
    "mobilenetv3-legacy13": {
        "conv2d_bias_sum": 7,
        "conv2d_bias_relu": 14,
        "conv2d_bias_hardswish": 18,
        "conv2d_bias": 13,
        "dense_bias": 2,
        "global_avg_pool2d": 10,
    },
    "resnet18-legacy13-keepbn": {
        "conv2d_bn_sum_relu": 8,
        "conv2d_bn_relu": 9,
        "conv2d_bn": 4,
        "dense_bias": 1,
        "global_avg_pool2d": 1,
    },
    "resnet18-legacy13-qoperator": {"qnn.conv2d": 21},
    "whisper_encoder-legacy17": {
        "dense_bias_sum": 8,
        "conv1d_bias_gelu": 2,
        "dense_bias_gelu": 4,
        "dense_bias": 8,
        "dense": 4,
        "layer_norm": 9,
        "batch_matmul": 8,
    },
}
"""How often each rule is found. Of a quantised net, convolutions whose dequantised input is read
by others, too, are not: the copy would have to be computed twice."""


@pytest.mark.long
@pytest.mark.parametrize("name", each_model(FOUND, gate=3))
def test_real_models_are_partitioned_as_counted(tmp_path: Path, name: str) -> None:
    """The counts are exact, and the result is equivalent at both levels of optimisation."""
    path = tmp_path / "out.onnx"
    settings = PartitionSettings(seed=0, level=("disable", "all"))
    outcome = pipeline.partition(real_model(name), settings.but(output=path, target=["dnnl"]))

    found = {rule.removeprefix("dnnl."): n for rule, n in outcome.counts.items() if n}
    assert found == FOUND[name]
    assert outcome.ok
    assert outcome.verification is not None
    assert outcome.verification.proof is not None
    assert {output.level for output in outcome.verification.outputs} == {"disable", "all"}
    onnx.checker.check_model(path, full_check=True)


def test_the_order_of_the_patterns_on_a_small_net() -> None:
    """A residual block with a bias: the sum wins over bias and ReLU, single operators come last."""
    model = model_from_text(
        "g (float[1, 4, 6, 6] x, float[4, 4, 1, 1] w, float[4] b, float[5, 3] k) "
        "=> (float[1, 4, 6, 6] y, float[5, 3] z) { c = Conv (x, w, b) r = Relu (c) "
        "d = Conv (r, w, b) s = Add (d, x) y = Relu (s) z = Abs (k) }"
    )
    every = list(rules().values())
    composites = [rule for rule in every if rule.origin.startswith("dnnl.yaml")]

    assert sorted(m.rule.name for m in select_matches(model, composites).matches) == [
        *("conv2d_bias_relu", "conv2d_bias_sum_relu"),
    ]
    assert sorted(m.rule.name for m in select_matches(model, every).matches) == [
        *("abs", "conv2d_bias_relu", "conv2d_bias_sum_relu"),
    ]
