"""``dnnl.yaml`` and ``dnnl_ops.yaml``: the table, its order, every condition, and real models."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import onnx
import pytest

from dplcli import pipeline
from dplcli.dpl import PatternRule, parse_pattern, read_catalogs
from dplcli.dpl.scoping import bound_names
from dplcli.onnx_io.build import model_from_text as model_of_example
from dplcli.passes.selection import select_matches
from dplcli.pipeline.trials import Trier
from tests.corpus.nets import SHARED, manifest
from tests.helpers import SCHEMAS, model_from_text

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
    assert SINGLE <= set(names())
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


@pytest.mark.parametrize("name", names())
def test_rules_hold_on_examples_and_on_graphs_made_up(name: str) -> None:
    """What a rule outlines computes the same; what it must leave it leaves."""
    trials = list(Trier(SCHEMAS).trials(rules()[name]))

    assert [trial for trial in trials if trial.verdict == "failed"] == []


@pytest.mark.parametrize("name", names())
def test_rules_show_what_they_take_and_what_they_leave(name: str) -> None:
    """An example of each kind at least."""
    assert {example.after == "unchanged" for example in rules()[name].examples} == {True, False}


@pytest.mark.parametrize("name", names())
def test_every_condition_has_a_near_miss(name: str) -> None:
    """Without it, the rule takes an example that it must leave."""
    rule = rules()[name]
    misses = [example.before for example in rule.examples if example.after == "unchanged"]

    for number, condition in enumerate(rule.where):
        laxer = replace(rule, where=(*rule.where[:number], *rule.where[number + 1 :]))
        assert any(takes(laxer, text) for text in misses), condition.text


DEMAND = re.compile(r"\.has_(?:dtype|rank|shape)\([^()]*\)")


@pytest.mark.parametrize("name", names())
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


@pytest.mark.parametrize("name", names())
def test_a_rule_wins_what_its_examples_show(name: str) -> None:
    """No rule that is listed before takes a part of it away."""
    rule = rules()[name]
    for example in rule.examples:
        if example.after != "unchanged":
            model = model_of_example(example.before, "example")
            selection = select_matches(model, list(rules().values()))

            assert name in {match.rule.name for match in selection.matches}, example.origin
