"""Random rules over the sample models: valid graphs, and nothing is missed."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest

from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import load_model, to_proto
from dplcli.passes.rewrite import RestrictingObserver, Restriction, rewrite
from tests.corpus.nets import listed_models, real_model
from tests.passes.rewriting import (
    Rewritten,
    check_interface,
    check_leftovers,
    check_names,
    check_settled,
)
from tests.support.helpers import model_from_bytes, rewriting_catalogues, shipped_rewrites, thinned
from tests.support.random_models import cascading_rules

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


@pytest.mark.long
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


def check_nothing_is_passed_over(path: Path) -> int:
    """Rewrite as always, and with each rule tried in full at every root; return how often."""
    rules = [each for name in rewriting_catalogues() for each in shipped_rewrites(name)]
    results = []
    for skip in ([], [Restriction("nobody")]):
        model = load_model(path)
        done = rewrite(model, rules, RestrictingObserver(skip=skip))
        refused = [(item.rule.name, item.root.label, item.reason) for item in done.refused]
        written = to_proto(model).SerializeToString(deterministic=True)
        results.append((written, refused, len(done.applications)))
    assert results[0] == results[1]
    return results[0][2]


@pytest.mark.long
def test_shipped_rules_over_the_samples() -> None:
    """No rule is passed over that could be applied."""
    assert sum(map(check_nothing_is_passed_over, SAMPLES)) > 40


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(10, listed_models(), first=2))
def test_shipped_rules_over_real_models(name: str) -> None:
    """The same for models of the corpus."""
    check_nothing_is_passed_over(real_model(name))
