"""Nodes that change the shape of a tensor and not the order of its elements.

Reshape, Flatten, Squeeze, Unsqueeze, and Transpose where it only moves dimensions of 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.shapes import Knowledge
from dplcli.ir.operators import attribute_of

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node, Value

_RESHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_KEEPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice")
_REACH = 3


@nodewise(*_KEEPING, reach=_REACH)
def drop_reshaping(match: Match, build: GraphBuilder) -> Operand | None:  # noqa: ARG001  # nothing is made
    """Take out a node that gives its input the shape it has.

    Before: ``y = Expand(x, target)`` where *x* is provably as large as *y*
    After:  whoever read *y* reads *x*
    Holds when: all dimensions of *x* and *y* are provably equal; a Slice goes forward.
    """
    node = match.root
    data = node.inputs[0]
    if data is None or len(match.outputs) != 1:
        return None
    knowledge = node.graph.model.memory(Knowledge)
    before, after = knowledge.shape(data), knowledge.shape(match.outputs[0])
    if before is None or before != after:
        return None
    if node.op_type == "Slice" and not _goes_forward(node, knowledge):
        return None
    return data


def _goes_forward(node: Node, knowledge: Knowledge) -> bool:
    steps = node.inputs[4] if len(node.inputs) > 4 else None  # noqa: PLR2004  # the slot of steps
    if steps is None:
        return True
    content = knowledge.content(steps)
    return content is not None and all(isinstance(step, int) and step > 0 for step in content)


@nodewise("Reshape", reach=_REACH)
def fix_reshape_targets(match: Match, build: GraphBuilder) -> Operand | None:
    """Write the target of a Reshape as a constant where 0 and -1 can say what is computed.

    Before: ``y = Reshape(x, Concat(batch, seq, [12, 64]))`` with *x* ``[batch, seq, 768]``
    After:  ``y = Reshape(x, [0, 0, 12, 64])``
    Holds when: every dimension of *y* is a number, or is provably the one at its place in *x*,
    but for one.
    """
    node = match.root
    data, target = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if data is None or target is None or target.is_constant or not match.outputs:
        return None
    numbers = target_of(node.graph.model.memory(Knowledge), data, match.outputs[0])
    return None if numbers is None else _reshape(build, data, numbers)


@nodewise(*_RESHAPING, "Transpose", reach=_REACH)
def merge_reshapes(match: Match, build: GraphBuilder) -> Operand | None:
    """Reshape once what is reshaped twice.

    Before: ``y = Reshape(Unsqueeze(x, [1]), [2, 3, 4])``
    After:  ``y = Reshape(x, [2, 3, 4])``
    Holds when: the shape of *y* can be said in terms of that of *x*, as for
    :func:`fix_reshape_targets`; what comes between may be read elsewhere, too.
    """
    node = match.root
    knowledge = node.graph.model.memory(Knowledge)
    middle = node.inputs[0]
    inner = None if middle is None else middle.producer
    if inner is None or inner.graph is not node.graph or not match.outputs:
        return None
    if not keeps_order(node, knowledge) or not keeps_order(inner, knowledge):
        return None
    source, result = inner.inputs[0], match.outputs[0]
    if source is None:
        return None
    shape = knowledge.shape(source)
    if shape is not None and shape == knowledge.shape(result):
        return source
    numbers = target_of(knowledge, source, result)
    return None if numbers is None else _reshape(build, source, numbers)


def keeps_order(node: Node, knowledge: Knowledge) -> bool:
    """Tell whether the elements of what *node* makes are those it reads, in the same order."""
    if node.domain:
        return False
    if node.op_type in _RESHAPING:
        return True
    if node.op_type != "Transpose" or node.inputs[0] is None:
        return False
    perm, shape = attribute_of(node, "perm"), knowledge.shape(node.inputs[0])
    if perm is None or perm.ref or shape is None or not isinstance(perm.value, tuple):
        return False
    kept = [axis for axis in perm.value if shape[axis] != 1]
    return kept == sorted(kept)


def target_of(knowledge: Knowledge, source: Value, result: Value) -> list[int] | None:
    """Return the constant target with which a Reshape of *source* gives the shape of *result*."""
    before, after = knowledge.shape(source), knowledge.shape(result)
    if after is None:
        return None
    return numbers_for(before, after)


def numbers_for(before: Dims | None, after: Dims) -> list[int] | None:
    """Say *after* by numbers, 0 for what is as it was, and -1 for at most one dimension."""
    numbers: list[int] = []
    for axis, dim in enumerate(after):
        if isinstance(dim, int):
            if dim <= 0:
                return None
            numbers.append(dim)
        elif before is not None and axis < len(before) and before[axis] == dim:
            numbers.append(0)
        else:
            numbers.append(-1)
    return numbers if numbers.count(-1) <= 1 else None


def _reshape(build: GraphBuilder, data: Value, numbers: list[int]) -> Operand:
    return build.op("Reshape", data, build.constant(np.array(numbers, dtype=np.int64)))
