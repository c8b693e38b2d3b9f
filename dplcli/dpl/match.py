"""What a search finds: matches, and the reasons why a find is no match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.dpl.rule import PatternRule
    from dplcli.ir import Node, Value

Stage: TypeAlias = Literal["where", "check", "escape", "convexity", "overlap", "budget"]


class Match(NamedTuple):
    """One place where a rule's pattern fits.

    Attributes:
        rule: The rule.
        root: The node that makes the pattern's value.
        nodes: The nodes matched, in topological order, Identity nodes between them included.
        bindings: What each name of the pattern is bound to: a leaf's value, or output 0 of a
            named node; names that took no part are missing.
        constants: The constants that ``const(…)`` and number leaves matched.
    """

    rule: PatternRule
    root: Node
    nodes: tuple[Node, ...]
    bindings: Mapping[str, Value]
    constants: tuple[Value, ...]


class Rejection(NamedTuple):
    """Why a pattern that fits at *root* was refused.

    Attributes:
        rule: The rule.
        root: The node it fits at.
        stage: Which test it failed.
        reason: What the test found, for a reader.
        at: The value or node concerned.
    """

    rule: PatternRule
    root: Node
    stage: Stage
    reason: str
    at: Value | Node | None = None
