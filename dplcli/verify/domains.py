"""Which values an input may take, read from the operators that consume it.

An index has to lie inside the axis that it selects from, a mask is 0 or 1, Log wants a positive
number. The consumers are found by following the input through everything that moves values
without changing them: reshapes, casts, subgraphs, calls of local functions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx

from dplcli.verify.dataflow import Dataflow, Frame, entering, leaving, small_values, walk
from dplcli.verify.interface import Dim, Port
from dplcli.verify.purposes import Use, purposes

_MOST_PLACES = 20_000

# Operators whose outputs hold nothing but values of the given input slots.
_ALL_SLOTS = tuple(range(64))
_MOVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Transpose"), (0,)),
    **dict.fromkeys(("Slice", "Expand", "Tile", "Pad", "Split", "Dropout", "Compress"), (0,)),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Cast", "CastLike"), (0,)),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "TopK", "ReverseSequence", "Squeeze"), (0,)),
    **dict.fromkeys(("ScatterND", "ScatterElements"), (0, 2)),
    **dict.fromkeys(("Concat", "Max", "Min"), _ALL_SLOTS),
    "Where": (1, 2),
}
# Operators that select by index: slot of the indices -> slot of the data, axis (or the name of
# the attribute that holds it, with its default).
_INDEXED: dict[tuple[str, int], tuple[int, int | tuple[str, int]]] = {
    ("Gather", 1): (0, ("axis", 0)),
    ("GatherElements", 1): (0, ("axis", 0)),
    ("ScatterElements", 1): (0, ("axis", 0)),
    ("ArrayFeatureExtractor", 1): (0, -1),
    ("GatherBlockQuantized", 1): (0, ("gather_axis", 0)),
    ("RotaryEmbedding", 1): (2, 0),
    ("RotaryEmbedding", 3): (1, 0),
    ("GroupQueryAttention", 9): (7, 0),
    ("SoftmaxCrossEntropyLoss", 1): (0, 1),
    ("NegativeLogLikelihoodLoss", 1): (0, 1),
    ("EmbedLayerNormalization", 0): (2, 0),
    ("EmbedLayerNormalization", 1): (4, 0),
    ("EmbedLayerNormalization", 8): (3, 0),
}
# Operators that take lengths, 1 to the size of an axis: slot of the lengths -> slot of the data,
# name of the attribute that decides and, for each of its values, the axis.
_LENGTHS: dict[tuple[str, int], tuple[int, str, tuple[int, int]]] = {
    ("RNN", 4): (0, "layout", (0, 1)),
    ("GRU", 4): (0, "layout", (0, 1)),
    ("LSTM", 4): (0, "layout", (0, 1)),
    ("ReverseSequence", 1): (0, "time_axis", (0, 1)),
    ("Attention", 6): (1, "", (-2, -2)),
}
_AXES = frozenset({("CumSum", 1), ("CumProd", 1)})
_PARTS = frozenset({("Split", 1), ("SplitToSequence", 1)})
_INDEXED_ND = frozenset({("GatherND", 1), ("ScatterND", 1)})
_COUNTS = frozenset(
    {("Loop", 0), ("Tile", 1), ("Expand", 1), ("ConstantOfShape", 0), ("Reshape", 1), ("TopK", 1)}
    | {("Range", 0), ("Range", 1), ("Range", 2), ("Slice", 1), ("Slice", 2), ("OneHot", 1)}
    | {("Pad", 1), ("Resize", 3), ("Unsqueeze", 1)}
)
_POSITIVE = frozenset({"Log", "Sqrt", "Reciprocal"})
_UNIT = frozenset({"Asin", "Acos", "Atanh"})
_ARITHMETIC = frozenset({"Add", "Sub", "Div", "Mod", "Pow", "MatMul", "MatMulInteger"})


@dataclass(frozen=True)
class Bound:
    """An index plus *offset* selects from an axis of size *limit* (a number or a symbol)."""

    limit: int | str
    offset: int = 0


@dataclass
class Domain:
    """What the consumers of one input say about its values.

    Attributes:
        bounds: Axes from which it selects.
        parts: Sizes of axes that it divides: its values add up to that.
        uses: What else it is taken for.
    """

    bounds: set[Bound] = field(default_factory=set)
    parts: set[int | str] = field(default_factory=set)
    uses: set[Use] = field(default_factory=set)


@dataclass(frozen=True)
class _Place:
    """A value on the way; *cast* tells whether it changed its type since the input."""

    frame: Frame
    name: str
    offset: int = 0
    cast: bool = False


def input_domain(flow: Dataflow, port: Port) -> Domain:
    """Follow *port* to its consumers and collect what they allow.

    The walk stops after a fixed number of values, so that a huge graph costs no more than a
    large one; what lies behind is then not asked.
    """
    domain = Domain(uses=purposes(flow, port))
    start = _Place(flow.main, port.name)
    walk(start, lambda place: _onward(flow, place, domain), _MOST_PLACES)
    return domain


def _onward(flow: Dataflow, place: _Place, domain: Domain) -> Iterator[_Place]:
    for frame, name in leaving(place.frame, place.name):
        yield _Place(frame, name, place.offset, place.cast)
    for node, slot in place.frame.body.consumers.get(place.name, ()):
        if (entered := flow.enter(place.frame, node)) is not None:
            frame, formals = entered
            for name in formals[slot : slot + 1]:
                yield _Place(frame, name, place.offset, place.cast)
            continue
        _note(domain, place, node, slot)
        for name in entering(node, slot):
            yield _Place(place.frame, name, place.offset, place.cast)
        if slot in _MOVES.get(node.op_type, ()):
            cast = place.cast or node.op_type == "Cast"
            for name in node.output:
                yield _Place(place.frame, name, place.offset, cast)
        elif (step := _constant_step(place.frame, node, slot)) is not None:
            yield _Place(place.frame, node.output[0], place.offset + step, place.cast)


def _note(domain: Domain, place: _Place, node: onnx.NodeProto, slot: int) -> None:
    key = (node.op_type, slot)
    if key in _PARTS and not node.domain:
        dims = _data_dims(place.frame, node, 0)
        axis = place.frame.integer(node, "axis", 0)
        domain.parts.update(dim for dim in dims[axis : axis + 1 or None] if dim)
    domain.bounds.update(
        Bound(limit, place.offset) for limit in _limits(place.frame, node, slot) if limit
    )
    domain.bounds.update(
        Bound(limit, place.offset - 1) for limit in _longest(place.frame, node, slot) if limit
    )
    if key in _COUNTS:
        domain.uses.add(Use.COUNT)
    elif node.op_type in _POSITIVE:
        domain.uses.add(Use.POSITIVE)
    elif node.op_type in _UNIT:
        domain.uses.add(Use.UNIT)
    elif node.op_type == "Acosh":
        domain.uses.add(Use.ABOVE_ONE)
    elif node.op_type in _ARITHMETIC and not place.cast:
        domain.uses.add(Use.NUMBER)


def _limits(frame: Frame, node: onnx.NodeProto, slot: int) -> list[Dim]:
    key = (node.op_type, slot)
    if node.op_type == "OneHot" and slot == 0:
        depth = frame.constant(node.input[1])
        values = None if depth is None else small_values(depth)
        return [] if values is None else [int(values.reshape(-1)[0])]
    if key in _INDEXED_ND:
        return list(_data_dims(frame, node, 0))
    if key in _AXES:
        return [len(_data_dims(frame, node, 0))]
    if key not in _INDEXED or _is_other_rotation(node, slot):
        return []
    data, axis = _INDEXED[key]
    if not isinstance(axis, int):
        axis = frame.integer(node, axis[0], axis[1])
    dims = _data_dims(frame, node, data)
    return [dims[axis]] if -len(dims) <= axis < len(dims) else []


def _longest(frame: Frame, node: onnx.NodeProto, slot: int) -> list[Dim]:
    """Return the size that a length in input *slot* may reach: it is the last index, plus one."""
    if (node.op_type, slot) not in _LENGTHS or node.domain:
        return []
    data, switch, axes = _LENGTHS[node.op_type, slot]
    axis = axes[bool(frame.integer(node, switch, 0))]
    dims = _data_dims(frame, node, data)
    return [dims[axis]] if -len(dims) <= axis < len(dims) else []


def _is_other_rotation(node: onnx.NodeProto, slot: int) -> bool:
    """Tell the slot that holds no positions: onnxruntime's own operator has another order."""
    own = node.domain == "com.microsoft"
    return node.op_type == "RotaryEmbedding" and slot == (3 if own else 1)


def _data_dims(frame: Frame, node: onnx.NodeProto, slot: int) -> tuple[Dim, ...]:
    return (frame.dims(node.input[slot]) or ()) if slot < len(node.input) else ()


def _constant_step(frame: Frame, node: onnx.NodeProto, slot: int) -> int | None:
    """Return what an Add or Sub of one constant integer adds to its input *slot*."""
    if node.op_type not in {"Add", "Sub"} or (node.op_type == "Sub" and slot == 1):
        return None
    other = frame.constant(node.input[1 - slot])
    values = None if other is None else small_values(other)
    if values is None or values.size != 1 or values.dtype.kind not in "iu":
        return None
    step = int(values.reshape(-1)[0])
    return -step if node.op_type == "Sub" else step
