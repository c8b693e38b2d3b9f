"""Whether the examples of a catalogue show what each of its conditions is for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from dplcli.onnx_io.build import model_from_text
from dplcli.passes.selection import select_matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dplcli.dpl import PatternRule
    from dplcli.dpl.rule import Example
    from dplcli.ir import Model


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
            if any(_taken(looser, item) != _taken(rule, item) for item in rule.examples):
                needed.add(condition.text)
    return wanted - needed


def _taken(rule: PatternRule, example: Example) -> list[list[str]]:
    """Name the nodes of the matches, by operator and node name or first output."""
    matches = select_matches(_model(example.before), [rule]).matches
    return [[f"{node.op_type} {node.label}" for node in match.nodes] for match in matches]


@cache
def _model(text: str) -> Model:
    return model_from_text(text, "example")
