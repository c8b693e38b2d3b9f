"""Apply rewrite rules until nothing changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.errors import PassError
from dplcli.passes.replace import replace_match
from dplcli.passes.selection import in_program_order, select_matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.match import Rejection
    from dplcli.dpl.rule import RewriteRule
    from dplcli.ir import Model

MOST_ROUNDS = 100
"""After so many rounds rules are taken to undo or feed each other (Relay's limit)."""


_GROWTH = 10
_FREE = 1000
"""A model may become ten times as large, and some; beyond, its rules feed each other."""


class RewriteLimitError(PassError):
    """Rules were applied again and again without an end."""


class Rewriting(NamedTuple):
    """What rules did to a model.

    Attributes:
        counts: How often each rule was applied.
        rounds: How many rounds changed something.
        refused: Why the last round's other matches were not replaced.
    """

    counts: dict[str, int]
    rounds: int
    refused: tuple[Rejection, ...]


def rewrite(model: Model, rules: Sequence[RewriteRule], *, rounds: int = MOST_ROUNDS) -> Rewriting:
    """Apply *rules*, in listed order, until none matches; the model is edited in place.

    Raises:
        RewriteLimitError: They still match after so many *rounds*; names the rules.
    """
    counts = {rule.qualified_name: 0 for rule in rules}
    applied: dict[str, None] = {}
    number = 0
    most = _GROWTH * (_size(model) + _FREE)
    for number in range(rounds + 1):
        applied = {}
        refused: list[Rejection] = []
        for rule in rules:
            selection = select_matches(model, [rule])
            refused += selection.refused
            for match in in_program_order(selection.matches):
                rejection = replace_match(match)
                if rejection is not None:
                    refused.append(rejection)
                    continue
                counts[rule.qualified_name] += 1
                applied[rule.qualified_name] = None
        if not applied:
            return Rewriting(counts, number, tuple(refused))
        if _size(model) > most:
            break
    raise RewriteLimitError(
        f"the rules {', '.join(applied)} still match after {min(number + 1, rounds)} rounds",
        hint="a rule matches what it or another rule makes; narrow its pattern",
    )


def _size(model: Model) -> int:
    return sum(graph.node_count for graph in model.graphs())
