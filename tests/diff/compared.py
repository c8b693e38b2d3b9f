"""What the tests of the difference share: two models as text, and the outcome as short words."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dplcli.diff import DEFAULT_IGNORED, Differ
from tests.support.helpers import model_from_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from dplcli.diff import Facet, ModelDiff, NodeChange
    from dplcli.ir import Model

NET = """g (float[1,2,8,8] x) => (float[1,2,8,8] y)
<float[2,2,1,1] w = {1,2,3,4}, float[2] b = {5,6}> {
  c = Conv <strides = [1, 1], group = 1> (x, w, b)
  r = Relu (c)
  s = Sigmoid (r)
  y = Add (s, x)
}"""


def difference(
    before: str | Model, after: str | Model, ignored: frozenset[Facet] = DEFAULT_IGNORED
) -> ModelDiff:
    """Compare two models, given as text or loaded."""
    first, second = (
        model_from_text(model) if isinstance(model, str) else model for model in (before, after)
    )
    return Differ(first, second).result(ignored)


def words(found: ModelDiff) -> list[str]:
    """Say every difference that counts in a few words, sorted."""
    said = [f"opset {o.domain} {o.before} {o.after}" for o in found.opsets]
    said += [
        f"function {f.what} {f.before.name if f.before else '-'} {f.after.name if f.after else '-'}"
        for f in found.functions
    ]
    for graph in found.graphs:
        said += [f"-{node.op_type}" for node in graph.removed]
        said += [f"+{node.op_type}" for node in graph.added]
        said += [word for change in graph.changes for word in _change_words(change)]
        said += [
            f"weight {change.before.name} "
            f"{change.distance.changed if change.distance else 'other type'}"
            for change in graph.weights
        ]
        said += [
            f"{s.side} {s.what} {s.before.name if s.before else '-'} "
            f"{s.after.name if s.after else '-'}"
            for s in graph.signature
        ]
    return sorted(said + [f"{r.facet} {r.before} {r.after}" for r in found.counted])


def _change_words(change: NodeChange) -> list[str]:
    said = [f"{change.before.op_type}.{a.name}" for a in change.attributes]
    said += [
        f"{change.before.op_type}[{i.slot}] {i.before.name if i.before else '-'} "
        f"{i.after.name if i.after else '-'}"
        for i in change.inputs
    ]
    said += [f"{change.before.op_type} output {index}" for index in change.outputs]
    if change.is_other_op:
        said.append(f"{change.before.op_type} -> {change.after.op_type}")
    return said


def calls_in(work: Callable[[], object]) -> int:
    """Count the calls of Python functions that *work* makes: the same on every machine."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
