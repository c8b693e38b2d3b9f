"""What matches in a model, and why the rest does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.dpl.expectation import parse_expectations, unmet_expectations
from dplcli.errors import UsageError, did_you_mean
from dplcli.onnx_io import load_model, paused_gc
from dplcli.passes.explanation import Explainer
from dplcli.passes.selection import select_matches
from dplcli.pipeline.inspecting import find_nodes
from dplcli.pipeline.policies import Policies
from dplcli.pipeline.rules import RuleSource, load_any_rules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.dpl.rule import Rule
    from dplcli.passes.explanation import NodeExplanation, RuleExplanation
    from dplcli.passes.selection import Selection


@dataclass(frozen=True)
class MatchOutcome:
    """What :func:`match` found.

    Attributes:
        label: The model's file name.
        rules: The rules, in listed order.
        selection: Matches taken, and matches refused with reasons.
        unmet: The expectations that were not met, each with what was found.
        notes: What a reader should know about the model.
    """

    label: str
    rules: tuple[Rule, ...]
    selection: Selection
    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Matches per rule, rules without any included."""
        counts = {rule.qualified_name: 0 for rule in self.rules}
        for found in self.selection.matches:
            counts[found.rule.qualified_name] += 1
        return counts


@dataclass(frozen=True)
class ExplainOutcome:
    """What :func:`explain` found out.

    Attributes:
        label: The model's file name.
        rules: What became of each rule.
        verdicts: What each rule says of the node asked about; empty if none was.
        notes: What a reader should know about the model.
    """

    label: str
    rules: tuple[RuleExplanation, ...]
    verdicts: tuple[NodeExplanation, ...] = ()
    notes: tuple[str, ...] = ()


@paused_gc()
def match(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    *,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    rules: Sequence[Rule] = (),
    expectations: Sequence[str] = (),
    allow_code: bool = False,
    policies: Policies | None = None,
) -> MatchOutcome:
    """Find what :func:`partition` would outline, without changing anything.

    Args:
        model_path: The model.
        patterns: Paths of catalogues, or names of shipped ones.
        targets: Names of shipped catalogues that are complete for a target.
        rules: Rules made in Python; they come after those of the catalogues.
        expectations: Such as ``dnnl.conv2d_bias_relu>=33``.
        allow_code: Whether YAML may name Python functions to import.
        policies: What to use instead of the policies that rules state.

    Raises:
        DplError: The model or a catalogue cannot be used.
    """
    model = load_model(model_path)
    model.note_refutations()
    tried, _ = load_any_rules(
        RuleSource(patterns, targets, rules, allow_code, policies or Policies()), model
    )
    expected = parse_expectations(expectations, tried)
    selection = select_matches(model, tried)
    outcome = MatchOutcome(model_path.name, tuple(tried), selection, notes=tuple(model.notes))
    return replace(outcome, unmet=unmet_expectations(expected, outcome.counts))


@paused_gc()
def explain(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    *,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    rules: Sequence[Rule] = (),
    only: Sequence[str] = (),
    node: str | None = None,
    allow_code: bool = False,
    policies: Policies | None = None,
) -> ExplainOutcome:
    """Say why rules match where they do, and why not elsewhere.

    Args:
        model_path: The model.
        patterns: Paths of catalogues, or names of shipped ones.
        targets: Names of shipped catalogues that are complete for a target.
        rules: Rules made in Python; they come after those of the catalogues.
        only: Names of the rules to explain, with or without their target; empty for all.
        node: Name of a node, or of a value it makes, to be asked about; None for the whole model.
        allow_code: Whether YAML may name Python functions to import.
        policies: What to use instead of the policies that rules state.

    Raises:
        DplError: The model or a catalogue cannot be used, or there is no such rule or node.
    """
    model = load_model(model_path)
    model.note_refutations()
    tried, _ = load_any_rules(
        RuleSource(patterns, targets, rules, allow_code, policies or Policies()), model
    )
    asked = _named_rules(tried, only)
    nodes = [] if node is None else find_nodes(model, node)
    explainer = Explainer(model, tried)
    verdicts = tuple(explainer.node(rule, found) for found in nodes for rule in asked)
    summaries = () if node is not None else tuple(map(explainer.rule, asked))
    return ExplainOutcome(model_path.name, summaries, verdicts, tuple(model.notes))


def _named_rules(rules: Sequence[Rule], names: Sequence[str]) -> list[Rule]:
    for name in names:
        if not any(name in {rule.name, rule.qualified_name} for rule in rules):
            known = sorted({n for rule in rules for n in (rule.name, rule.qualified_name)})
            raise UsageError(
                f"--rule {name}: there is no such rule",
                hint=did_you_mean(name, known) or f"there are: {', '.join(r.name for r in rules)}",
            )
    wanted = set(names)
    return [rule for rule in rules if not wanted or wanted & {rule.name, rule.qualified_name}]
