"""Catalogues and their examples: whether they hold, and show what each condition is for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from dplcli import pipeline
from dplcli.catalog import read_catalogs
from dplcli.onnx_io import OnnxSchemas
from dplcli.onnx_io.scratch import model_from_text
from dplcli.passes.select import select_matches
from dplcli.pipeline.proving import Trier
from dplcli.settings import PartitionSettings

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dplcli.ir import Model
    from dplcli.language import PatternRule, RewriteRule
    from dplcli.language.rule import Example
    from dplcli.outcomes.rules import Trial

SCHEMAS = OnnxSchemas()


FEW = 8
"""Graphs on which shipped rules are tried here; `dpl patterns test` takes more."""


@cache
def rules_of(catalogue: str) -> dict[str, PatternRule]:
    """Return the rules of a catalogue with their examples, by name."""
    read = read_catalogs([catalogue], SCHEMAS, with_examples=True)
    return {rule.name: rule for rule in read.patterns}


def failures(rule: PatternRule) -> list[str]:
    """Run the examples of a rule in onnxruntime and return what is wrong, by place."""
    trials = [trial for trial in Trier(SCHEMAS, 1).trials(replace(rule)) if trial.kind == "example"]
    assert trials, "there is no example"
    assert any(example.after != "unchanged" for example in rule.examples), "there is no hit"
    assert any(example.after == "unchanged" for example in rule.examples), "there is no near miss"
    return [f"{trial.place}: {trial.reason}" for trial in trials if trial.verdict != "passed"]


def failed_trials(rule: PatternRule | RewriteRule) -> list[Trial]:
    """Try a rule on its examples and on graphs made up for it, and return what fails."""
    return [trial for trial in Trier(SCHEMAS, FEW).trials(rule) if trial.verdict == "failed"]


def kinds_of_examples(rule: PatternRule | RewriteRule) -> set[str]:
    """Say whether a rule has examples that it takes, and examples that it leaves."""
    return {"left" if example.after == "unchanged" else "taken" for example in rule.examples}


def counts_when_equivalent(model: Path, output: Path, target: str) -> dict[str, int]:
    """Partition a model, prove it, check it at both levels, and count what was taken."""
    both = PartitionSettings(level=("disable", "all"))
    outcome = pipeline.partition(model, both.but(output=output, target=[target]))
    assert outcome.verification is not None
    assert outcome.verification.proof is not None
    assert {found.level for found in outcome.verification.outputs} == {"disable", "all"}
    assert outcome.ok
    return {rule: count for rule, count in outcome.counts.items() if count}


def idle_conditions(rules: Iterable[PatternRule]) -> set[str]:
    """Return the conditions that change nothing of what is taken in any example.

    Rules share the conditions of fragments, so it is enough that one of them needs a condition.
    """
    wanted: set[str] = set()
    needed: set[str] = set()
    for rule in rules:
        for number, condition in enumerate(rule.where):
            wanted.add(condition.text)
            if condition.text in needed:
                continue
            looser = replace(rule, where=(*rule.where[:number], *rule.where[number + 1 :]))
            if any(taken_in(looser, item) != taken_in(rule, item) for item in rule.examples):
                needed.add(condition.text)
    return wanted - needed


def taken_in(rule: PatternRule, example: Example) -> list[list[str]]:
    """Name the nodes of each match in an example."""
    matches = select_matches(_model(example.before), [rule]).matches
    return [[f"{node.op_type} {node.label}" for node in match.nodes] for match in matches]


@cache
def _model(text: str) -> Model:
    return model_from_text(text, "example")
