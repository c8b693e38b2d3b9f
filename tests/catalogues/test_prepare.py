"""The catalogue ``prepare``: its examples, its conditions, and models as exporters leave them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dplcli.catalog import read_catalogs
from dplcli.errors import DplError
from dplcli.onnx_io.read import model_from_text
from dplcli.passes.rewrite import rewrite
from dplcli.pipeline.proving import Trier
from tests.catalogues.near_misses import FEW
from tests.helpers import SCHEMAS, one_in

if TYPE_CHECKING:
    from dplcli.dpl.replacement import RewriteRule

CATALOG = Path(__file__).parents[2] / "patterns" / "prepare.yaml"


@cache
def rules() -> dict[str, RewriteRule]:
    """Read the catalogue."""
    return {
        rule.name: rule
        for rule in read_catalogs([str(CATALOG)], SCHEMAS, with_examples=True).rewrites
    }


NAMES = [
    line.split(":")[1].strip() for line in CATALOG.read_text().splitlines() if "- name:" in line
]
CONDITIONS = [(name, number) for name in NAMES for number, _ in enumerate(rules()[name].where)]


@pytest.mark.parametrize("name", one_in(6, NAMES))
def test_rules_do_what_they_say(name: str) -> None:
    """Every example comes out as written, equal in onnxruntime; so do graphs made up."""
    rule = rules()[name]
    trials = list(Trier(SCHEMAS, FEW).trials(rule))

    assert [(trial.place, trial.reason) for trial in trials if trial.verdict == "failed"] == []
    assert rule.doc
    assert {example.after == "unchanged" for example in rule.examples} == {True, False}


@pytest.mark.parametrize(("name", "number"), CONDITIONS)
def test_no_condition_is_idle(name: str, number: int) -> None:
    """Without any one of its conditions a rule takes a graph that the examples say it must not."""
    rule = rules()[name]
    loose = replace(rule, where=rule.where[:number] + rule.where[number + 1 :])

    assert any(_takes(loose, e.before) for e in rule.examples if e.after == "unchanged")


def _takes(rule: RewriteRule, text: str) -> bool:
    try:
        return rewrite(model_from_text(text, "before"), [rule]).rounds > 0
    except DplError:
        return True  # it went on without an end
