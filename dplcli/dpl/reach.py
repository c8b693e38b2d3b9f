"""How far above its root a pattern looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.pattern import (
    CallPattern,
    DominatorPattern,
    EdgePattern,
    OutputsPattern,
    RepeatPattern,
)
from dplcli.dpl.scoping import all_parts

if TYPE_CHECKING:
    from dplcli.dpl.pattern import DFPattern


def reach_of(pattern: DFPattern) -> int | None:
    """Return how many nodes lie on the longest way from a match's root up to its leaves.

    A change further above a node cannot make the pattern match there, or no longer match.
    None if there is no such number, or if the pattern looks elsewhere than upwards.
    """
    reach: dict[int, int] = {}
    for part in all_parts(pattern):
        if isinstance(part, (RepeatPattern, DominatorPattern, OutputsPattern)):
            return None
        if isinstance(part, CallPattern) and (part.op.parts or part.bodies):
            return None
        below = max((reach[id(inner)] for inner in part.parts), default=0)
        if isinstance(part, EdgePattern):
            below = max(below, reach[id(part.producer)] + 1)
        reach[id(part)] = below + isinstance(part, CallPattern)
    return reach[id(pattern)]
