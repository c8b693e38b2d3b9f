"""Random rules over random models: what must hold whatever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx.printer
from hypothesis import Phase, assume, given, note, settings

from tests.rewriting import check_settled, rewritten
from tests.scoped import flat_cases, rich_cases, scoped_cases

if TYPE_CHECKING:
    from dplcli.dpl import RewriteRule

    Case = tuple[onnx.ModelProto, list[RewriteRule]]

PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
SETTINGS = settings(max_examples=150, deadline=None, derandomize=True, phases=PHASES)


def check_case(case: Case) -> None:
    """Rewrite, check everything but the numbers (the operators are made up), and rewrite again."""
    model, rules = case
    assume(rules)
    for rule in rules:
        note(f"{rule.name}: {rule.pattern!r}  ->  {rule.becomes}  if {rule.where}")
    note(onnx.printer.to_text(model))
    result = rewritten(model, rules)
    onnx.checker.check_model(result.after)
    check_settled(result, rules)


@SETTINGS
@given(flat_cases())
def test_flat_graphs(case: Case) -> None:
    """A graph and rules that follow it: the work-list misses nothing."""
    check_case(case)


@SETTINGS
@given(scoped_cases())
def test_branches_and_functions(case: Case) -> None:
    """Captured values, bodies inside bodies, functions."""
    check_case(case)


@SETTINGS
@given(rich_cases())
def test_the_whole_language(case: Case) -> None:
    """Negations, edges, options, shapes, several outputs, chains and regions."""
    check_case(case)
