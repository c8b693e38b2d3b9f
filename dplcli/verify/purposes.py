"""What whole numbers and booleans are for, told by where their influence ends.

A mask reaches a softmax through casts, comparisons and arithmetic, without selecting anything; a
position reaches a sine or cosine, perhaps through a matrix of frequencies. Neither shows at the
operator that reads the input first: both are cast to float there, and multiplied.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import onnx

from dplcli.verify.dataflow import Dataflow, Frame, entering, leaving, walk
from dplcli.verify.interface import Port

_MOST_PLACES = 4_000
_WHOLE = frozenset(
    {onnx.TensorProto.BOOL, onnx.TensorProto.INT8, onnx.TensorProto.UINT8}
    | {onnx.TensorProto.INT32, onnx.TensorProto.INT64}
)
_FIRST_ONLY = frozenset(
    {"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Transpose", "Slice", "Expand"}
    | {"Tile", "Pad", "Split", "Cast", "CastLike", "Gather", "GatherND", "GatherElements"}
    | {"ReduceMax", "ReduceMin", "Trilu", "Clip", "QuantizeLinear", "DequantizeLinear"}
)
_ALL_INPUTS = frozenset(
    {"Not", "Neg", "Sub", "Mul", "Add", "Div", "Where", "And", "Or", "Equal", "Greater", "Less"}
    | {"GreaterOrEqual", "LessOrEqual", "Max", "Min", "Concat", "ScatterND", "ScatterElements"}
)
_MIXES = frozenset({"MatMul", "Gemm", "Einsum"})
_MASKED = {("Softmax", 0), ("Attention", 3), ("MultiHeadAttention", 4), ("MultiHeadAttention", 5)}
_TURNS = frozenset({"Sin", "Cos"})


class Use(Enum):
    """What a consumer takes its input for."""

    COUNT = "count"
    NUMBER = "number"
    POSITIVE = "positive"
    UNIT = "unit"
    ABOVE_ONE = "above one"
    MASK = "mask"
    ANGLE = "angle"


@dataclass(frozen=True)
class _Place:
    """A value on the way; *mixed* tells whether a matrix product lies between."""

    frame: Frame
    name: str
    mixed: bool = False


def purposes(flow: Dataflow, port: Port) -> set[Use]:
    """Return whether *port* masks an attention or turns by an angle; nothing for other types."""
    found: set[Use] = set()
    if port.dtype not in _WHOLE:
        return found
    start = _Place(flow.main, port.name)
    walk(start, lambda place: _onward(flow, place, found), _MOST_PLACES)
    return found


def _onward(flow: Dataflow, place: _Place, found: set[Use]) -> Iterator[_Place]:
    for frame, name in leaving(place.frame, place.name):
        yield _Place(frame, name, place.mixed)
    for node, slot in place.frame.body.consumers.get(place.name, ()):
        if (entered := flow.enter(place.frame, node)) is not None:
            frame, formals = entered
            for name in formals[slot : slot + 1]:
                yield _Place(frame, name, place.mixed)
            continue
        if (node.op_type, slot) in _MASKED and not place.mixed:
            found.add(Use.MASK)
        elif node.op_type in _TURNS:
            found.add(Use.ANGLE)
        for name in entering(node, slot):
            yield _Place(place.frame, name, place.mixed)
        if _carries(node.op_type, slot):
            mixed = place.mixed or node.op_type in _MIXES
            for name in node.output:
                yield _Place(place.frame, name, mixed)


def _carries(op_type: str, slot: int) -> bool:
    return op_type in _ALL_INPUTS or op_type in _MIXES or (slot == 0 and op_type in _FIRST_ONLY)
