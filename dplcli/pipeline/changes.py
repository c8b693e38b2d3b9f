"""What rules do to a model, as single steps of which some can be left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dplcli.dpl import PatternRule, RewriteRule
from dplcli.dpl.plan import PlanEntry
from dplcli.errors import UsageError
from dplcli.ir.scopes import scope_of
from dplcli.passes.partition import partition
from dplcli.passes.replay import replay
from dplcli.passes.rewriting import rewrite
from dplcli.passes.selection import in_program_order, select_matches
from dplcli.pipeline.plans import describe_change
from dplcli.pipeline.rules import load_any_rules, load_rewrites, load_rules
from dplcli.verify.bisect_result import Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.dpl.match import Match
    from dplcli.ir import Model
    from dplcli.pipeline.rules import RuleSource

KINDS = ("rewrite", "partition")


class Changes(Protocol):
    """A way of changing a model in steps.

    Attributes:
        kind: ``rewrite`` or ``partition``.
    """

    kind: str

    def plan(self, model: Model) -> tuple[Step, ...]:
        """Return the steps that would be done to *model*, which may be edited."""

    def apply(self, model: Model, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Do *steps* to *model* and nothing else; return those that fit."""


class Rewrites:
    """Rules that replace, applied one after the other as a plan lists them."""

    kind = "rewrite"

    def __init__(self, rules: Sequence[RewriteRule]) -> None:
        """Apply *rules*."""
        self.rules = rules

    def plan(self, model: Model) -> tuple[Step, ...]:
        """Return the steps that would be done to *model*, which may be edited."""
        done = rewrite(model, self.rules)
        return tuple(
            Step(
                item.rule,
                item.scope,
                item.root.qualified_op,
                item.root.output,
                tuple(node.output for node in item.removed) or (item.root.output,),
                describe_change(item),
            )
            for item in done.applications
        )

    def apply(self, model: Model, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Do *steps* to *model* and nothing else; return those that fit."""
        entries = [PlanEntry(s.rule, s.scope, s.output, s.op_type, s.text) for s in steps]
        done = replay(model, self.rules, entries=entries, skip_missing=True)
        missing = {id(item.entry) for item in done.missing}
        return tuple(
            step for step, entry in zip(steps, entries, strict=True) if id(entry) not in missing
        )


class Partitions:
    """Matches that become functions."""

    kind = "partition"

    def __init__(self, rules: Sequence[PatternRule]) -> None:
        """Outline what *rules* match."""
        self.rules = rules

    def plan(self, model: Model) -> tuple[Step, ...]:
        """Return the partitions that would be made of *model*."""
        matches = in_program_order(select_matches(model, self.rules).matches)
        return tuple(map(_partition_step, matches))

    def apply(self, model: Model, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Outline what *steps* list and nothing else; return those that fit."""
        wanted = {step.place for step in steps}
        names = {step.rule for step in steps}
        found = select_matches(model, [r for r in self.rules if r.qualified_name in names])
        matches = [m for m in found.matches if _partition_step(m).place in wanted]
        done = {_partition_step(match).place for match in matches}
        partition(model, replace(found, matches=matches))
        return tuple(step for step in steps if step.place in done)


def _partition_step(match: Match) -> Step:
    root = match.root
    made = [next((o.name for o in node.outputs if o is not None), "") for node in match.nodes]
    output = next((o.name for o in root.outputs if o is not None), "")
    nodes = ", ".join(f"{node.qualified_op} {node.label!r}" for node in match.nodes)
    rule = match.rule.qualified_name
    text = f"{nodes} -> {rule}"
    return Step(rule, scope_of(root.graph), root.qualified_op, output, tuple(made), text)


def load_changes(source: RuleSource, model: Model, kind: str | None) -> tuple[Changes, set[Path]]:
    """Read rules, and return how they change a model, with the files that they were read from.

    Args:
        source: Where the rules come from.
        model: A model that they are for.
        kind: ``rewrite`` or ``partition``; None for what the catalogues are for.

    Raises:
        UsageError: The catalogues are for both, and it is not said which is meant.
        CatalogError: A catalogue cannot be read, or has no such rule.
    """
    if kind is None:
        rules, _ = load_any_rules(source, model)
        kinds = {isinstance(rule, RewriteRule) for rule in rules}
        if len(kinds) > 1:
            raise UsageError(
                "the catalogues have rules that replace and rules that outline",
                hint="say which to look at: --by rewrite or --by partition",
            )
        kind = KINDS[0] if kinds == {True} else KINDS[1]
    if kind == KINDS[0]:
        rewrites, files = load_rewrites(source, model)
        return Rewrites(rewrites), files
    patterns, files = load_rules(source, model)
    return Partitions(patterns), files
