"""What the outputs of one pattern share, and how far above each output it lies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dplcli.dpl.pattern import (
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DominatorPattern,
    EdgePattern,
    InputPattern,
    OutputPattern,
    SameShapePattern,
    TypedPattern,
    WildcardPattern,
)
from dplcli.dpl.scoping import visible_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.dpl.pattern import DFPattern, OutputsPattern


def find_anchors(pattern: OutputsPattern) -> list[list[tuple[DFPattern, int]]]:
    """For each output, list the parts it must match that those before it may match, too.

    Each comes with the number of edges between its value and the output's, nearest first.
    """
    seen: set[object] = set()
    anchors = []
    for output in pattern.outputs:
        needed = sorted(_needed(output), key=lambda item: item[1])
        anchors.append([item for item in needed if _identity(item[0]) in seen])
        seen.update(_identity(part) for part in visible_parts(output))
    return anchors


def _identity(part: DFPattern) -> object:
    """Return what is equal for patterns that are bound together."""
    if isinstance(part, (WildcardPattern, ConstantPattern, InputPattern)) and part.name:
        return part.name
    return id(part)


def _needed(output: DFPattern) -> Iterator[tuple[DFPattern, int]]:
    """Yield the parts that every match of *output* binds, with a distance above it, once each."""
    pending = deque([(output, 0)])
    seen: set[int] = set()
    while pending:
        part, distance = pending.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if not isinstance(part, AbsentPattern):
            yield part, distance
        match part:
            case CallPattern():
                pending.extend((arg, distance + 1) for arg in part.args)
            case OutputPattern():
                pending.append((part.node, distance))
            case AndPattern():
                pending += [(part.left, distance), (part.right, distance)]
            case TypedPattern() | SameShapePattern():
                pending.append((part.pattern, distance))
            case EdgePattern():
                pending += [(part.consumer, distance), (part.producer, distance + 1)]
            case DominatorPattern():
                pending.append((part.child, distance))
            case _:
                pass
