"""Random rules over the sample models: valid graphs, and nothing is missed."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest

from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from tests.helpers import model_from_bytes
from tests.passes.rewriting import (
    Rewritten,
    check_interface,
    check_leftovers,
    check_names,
    check_settled,
)
from tests.random_models import cascading_rules

SAMPLES = sorted((Path(__file__).parents[2] / "sample_models").glob("*.onnx"))


def plainly_named(path: Path) -> onnx.ModelProto:
    """Read a model and give its values names that can stand in a pattern."""
    model = onnx.load(path)
    names: dict[str, str] = {"": ""}
    graph = model.graph
    for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        item.name = names.setdefault(item.name, f"t{len(names)}")
    for number, node in enumerate(graph.node):
        node.input[:] = [names.setdefault(name, f"t{len(names)}") for name in node.input]
        node.output[:] = [names.setdefault(name, f"t{len(names)}") for name in node.output]
        node.name = f"n{number}"
    return model


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_random_rules_over_a_model(path: Path) -> None:
    """Rules that follow the model, and what earlier ones of them have made of it."""
    before = plainly_named(path)
    applied = 0
    for seed in range(4):
        rules = cascading_rules(random.Random(seed), before)  # noqa: S311  # not for cryptography
        model = model_from_bytes(before.SerializeToString())
        done = rewrite(model, rules)
        applied += len(done.applications)
        check_structure(model)
        after = to_proto(model)
        check_interface(before, after)
        check_names(before, after)
        check_leftovers(before, after)
        check_settled(Rewritten(before, model, after, done), rules)
    assert applied
