"""Rewrites that leave out nodes: folded, computed once, undone or continued by the node before."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from dplcli.ir import ArrayTensor, Attribute, Tensor, Value
from dplcli.ir.model import is_in_function
from dplcli.ir.operators import (
    COPYING,
    FOLDABLE,
    MEASURING,
    ORDERING,
    RANDOM_OPS,
    attribute_of,
    flops,
    is_placeholder,
)
from dplcli.ir.traversal import is_read
from dplcli.ir.types import bits_of
from dplcli.language.replacement import dtype_of, nodewise
from dplcli.rewrites.operands import (
    array_of,
    fill_of,
    input_of,
    item_of,
    remade,
    slice_of,
    whole_of,
)
from dplcli.shapes import Knowledge, shape_of
from dplcli.shapes.rules import CONTENT_RULES, WHOLE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.ir import Graph, Node
    from dplcli.language.replacement import GraphBuilder, Operand
    from dplcli.language.rule import Match, Rejection
    from dplcli.shapes.rules import Dims

    Signature: TypeAlias = tuple[Hashable, ...]

    Key: TypeAlias = tuple[Hashable, ...]


# Slices that together are a Split.


_FIRST_OPSET = 13
"""From here on the lengths are an input of Split."""


class _Piece(NamedTuple):
    """What a Slice takes of one axis."""

    axis: int
    start: int
    end: int


@nodewise("Slice", reach=3)
def merge_slices_into_split(match: Match, build: GraphBuilder) -> Operand | None:
    """Cut a tensor into pieces at once.

    Before: ``a = Slice(x, [0], [2], [1]); b = Slice(x, [2], [6], [1])`` with *x* ``[n, 6]``
    After:  ``a, b = Split(x, [2, 4], axis=1)``
    Holds when: the pieces are the whole axis, do not overlap, and go forward one by one.

    The first Slice becomes the Split. The others are then replaced by its other outputs.
    """
    node = match.root
    piece, data = _piece(node), node.inputs[0]
    if piece is None or data is None or build.opset < _FIRST_OPSET or len(match.outputs) != 1:
        return None
    split = _piece_of_split(data, node, piece)
    if split is not None:
        return split
    shape = shape_of(data)
    cuts = sorted({p for p in _pieces(data, node) if p.axis == piece.axis})
    if shape is None or len(cuts) < 2 or not _is_whole(cuts, shape[piece.axis]):  # noqa: PLR2004  # one piece is no cut
        return None
    lengths = np.array([cut.end - cut.start for cut in cuts], dtype=np.int64)
    cut = build.constant(lengths, is_shared=True)
    parts = build.ops("Split", data, cut, outputs=len(cuts), axis=piece.axis)
    return parts[cuts.index(piece)]


def _is_whole(cuts: Sequence[_Piece], length: object) -> bool:
    touch = all(first.end == second.start for first, second in pairwise(cuts))
    return touch and cuts[0].start == 0 and cuts[-1].end == length


def _pieces(data: Value, node: Node) -> Iterator[_Piece]:
    for user, slot in data.iter_uses():
        if slot == 0 and user.graph is node.graph and user.op_type == "Slice" and not user.domain:
            piece = _piece(user)
            if piece is not None:
                yield piece


def _piece(node: Node) -> _Piece | None:
    """Return what a Slice along one axis takes; None if that is not known in numbers."""
    axis, places = slice_of(node) or (0, range(0))
    return _Piece(axis, places.start, places.stop) if places and places.step == 1 else None


def _content(value: Value) -> Dims | None:
    return value.graph.model.memory(Knowledge).content(value)


def _piece_of_split(data: Value, node: Node, piece: _Piece) -> Value | None:
    """Return the output of a Split of the same data that is *piece* already."""
    for user, slot in data.iter_uses():
        if slot or user.op_type != "Split" or user.domain or user.graph is not node.graph:
            continue
        lengths = input_of(user, 1)
        content = None if lengths is None else _content(lengths)
        axis = user.attributes.get("axis")
        if content is None or axis is None or axis.value != piece.axis:
            continue
        start = 0
        for output, length in zip(user.outputs, content, strict=False):
            if not isinstance(length, int):
                break
            if (start, start + length) == piece[1:] and user.position < node.position:
                return output
            start += length
    return None


@nodewise("SplitToSequence", reach=3)
def split_sequences(match: Match, build: GraphBuilder) -> Operand | None:
    """Split a tensor into parts of which each has a name.

    Before: ``q = SplitToSequence(x, [2, 3]); y = SequenceAt(q, 1)``
    After:  ``a, b = Split(x, [2, 3]); q = SequenceConstruct(a, b); y = SequenceAt(q, 1)``
    Holds when: how many parts there are is known, none of them loses an axis, and all that reads
    the sequence takes what was put into it.
    """
    (sequence,) = match.outputs
    data, axis = match.root.inputs[0], attribute_of(match.root, "axis")
    if data is None or axis is None or not isinstance(axis.value, int) or sequence.returned_by:
        return None
    if not all(_takes_parts(user) for user, _ in sequence.iter_uses()):
        return None
    cut = _lengths(match.root, data, axis.value, build)
    if cut is None or not 1 <= cut[1] <= _MOST_PARTS:
        return None
    lengths, count = cut
    parts = build.ops("Split", data, lengths, outputs=count, axis=axis.value)
    return build.op("SequenceConstruct", *parts)


_MOST_PARTS = 64


def _takes_parts(node: Node) -> bool:
    if node.op_type == "ConcatFromSequence":
        return True
    place = input_of(node, 1) if node.op_type == "SequenceAt" else None
    return place is not None and place.is_constant


def _lengths(node: Node, data: Value, axis: int, build: GraphBuilder) -> tuple[Operand, int] | None:
    """Return how long the parts are that a SplitToSequence makes, and how many there are."""
    split, shape = input_of(node, 1), shape_of(data)
    form = () if split is None else shape_of(split)
    if split is not None and form is not None and len(form) == 1:
        count = form[0] if dtype_of(split) == "int64" else None
        return (split, count) if isinstance(count, int) else None
    keeps_axis = split is not None or attribute_of(node, "keepdims") == Attribute("int", 1)
    step = 1 if split is None else whole_of(split)
    length = shape[axis] if shape else None
    if not keeps_axis or step is None or step < 1 or not isinstance(length, int):
        return None
    lengths = [min(step, length - start) for start in range(0, length, step)]
    return build.constant(np.array(lengths, dtype=np.int64), is_shared=True), len(lengths)


# Initial states of recurrent layers.


_FIRST_STATE = 5
_STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
_DEEPEST = 8
_MOST_STATE_ELEMENTS = 1 << 16


@nodewise("LSTM", "GRU", "RNN", reach=_DEEPEST)
def drop_zero_states(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
    """Leave out an initial state that is all zeros, which is the default.

    Before: ``y = GRU(x, w, r, b, None, ConstantOfShape(shape))``
    After:  ``y = GRU(x, w, r, b)``
    Holds when: all elements are zero, whatever the shape is. The two states of an LSTM are judged
    one by one.
    """
    node = match.root
    inputs = list(node.inputs)
    for slot in range(_FIRST_STATE, _FIRST_STATE + _STATES[node.op_type]):
        value = input_of(node, slot)
        if value is not None and is_zero(value):
            inputs[slot] = None
    if inputs == list(node.inputs):
        return None
    copy = remade(build, node, inputs)
    return [copy[value.index] for value in match.outputs]


def is_zero(value: Value) -> bool:
    """Tell whether every element of *value* is provably zero."""
    for _ in range(_DEEPEST):
        if value.is_constant:
            return _holds_zeros(value.constant)
        node = value.producer
        if node is None or node.domain:
            return False
        if node.op_type == "ConstantOfShape":
            fill = fill_of(value)
            return fill == 0 or (isinstance(fill, Tensor) and _holds_zeros(fill))
        source = node.inputs[0] if node.op_type in COPYING else None
        if source is None:
            return False
        value = source
    return False


def _holds_zeros(tensor: Tensor | None) -> bool:
    if tensor is None or tensor.is_external or tensor.size > _MOST_STATE_ELEMENTS:
        return False
    array = tensor.numpy()
    return array.dtype.kind in "fiu" and not array.any()


# Bodies that run once, or not at all, whatever the inputs.


_STATES_OF_LOOP = 2
"""Where the states begin, among what a Loop reads and among what its body does."""

_FIRST_IDENTITY_OF_ALL = 16
"""The first opset in which an Identity may copy a sequence or an optional."""


@nodewise("If", "Loop", reach=3)
def inline_bodies(match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection | None:
    """Put what a body holds in the place of its If or Loop.

    Before: ``y = If(true) <then_branch = {t = Exp(x) y = Neg(t)}, else_branch = …>``
    After:  ``t = Exp(x); y = Neg(t)``
    Holds when: the condition of the If is known; or the Loop has one turn, or none: as its number
    of turns and its condition say, or because its body ends it.
    """
    node = match.root
    results = _of_branch(node, build) if node.op_type == "If" else _of_loop(node, build)
    values = [results[old.index] if old.index < len(results) else None for old in match.outputs]
    outputs = [item for item in values if item is not None]
    if len(outputs) < len(values):
        return None
    for new, old in zip(outputs, match.outputs, strict=True):
        is_tensor = not isinstance(new, Value) or dtype_of(new) is not None
        if old.returned_by and not is_tensor and build.opset < _FIRST_IDENTITY_OF_ALL:
            return match.reject(f"no Identity of opset {build.opset} may copy it", at=old)
    return outputs


def _of_branch(node: Node, build: GraphBuilder) -> Sequence[Operand | None]:
    """Return what an If makes, if it is known which branch makes it."""
    chosen = _number(input_of(node, 0))
    body = node.subgraphs.get("then_branch" if chosen else "else_branch")
    if chosen is None or body is None or not all(value.is_constant for value in body.inputs):
        return ()
    return build.copy(body)


def _of_loop(node: Node, build: GraphBuilder) -> Sequence[Operand | None]:
    """Return what a Loop makes, if it has one turn or none."""
    body = node.subgraphs.get("body")
    states = [value for value in node.inputs[_STATES_OF_LOOP:] if value is not None]
    if body is None or len(body.inputs) != _STATES_OF_LOOP + len(states):
        return ()
    turns = _turns(node, body)
    if turns is None or any(value.is_initializer for value in body.inputs):
        return ()
    if turns == 0:
        return states  # what it stacks is empty, and stays
    number, proceeds = (
        build.constant(np.full((1,) * _rank_of(value), content))
        for value, content in zip(body.inputs, (np.int64(0), np.True_), strict=False)
    )
    copies = build.copy(body, [number, proceeds, *states])[1:]
    rows = [build.op("Unsqueeze", item, axes=[0]) for item in copies[len(states) :]]
    return [*copies[: len(states)], *rows]


def _turns(node: Node, body: Graph) -> int | None:
    """Return how often a Loop runs its body: once, or not at all; None if that is not known."""
    limit, condition = input_of(node, 0), input_of(node, 1)
    most, starts = _number(limit), _number(condition)
    if (most is not None and most <= 0) or starts == 0:
        return 0
    if (condition is not None and starts is None) or (limit is not None and most is None):
        return None
    proceeds = _number(body.outputs[0]) if body.outputs else None
    return 1 if most == 1 or proceeds == 0 else None


def _number(value: Value | None) -> int | None:
    stored = array_of(value)  # what was folded is known here before it is known of shapes
    item = item_of(value) if stored is None or stored.size != 1 else stored.item()
    return item if isinstance(item, int) else None


def _rank_of(value: Value) -> int:
    """Return the rank that is stated of a number; that of a scalar if none is."""
    kind = value.declared_type
    return 0 if kind is None else len(kind.shape or ())


# How many bytes the folding of constants may add to a model.
#
# Each fold is judged by itself, and by what stands in the model: a budget that a run spends would
# be there anew in the next run, which would then fold what this one refused. While other rules only
# take nodes out, what is refused once is refused for good.


_BYTES_PER_NODE = 4
"""What one fold may add for each node of the model: a small part of what a node takes."""

MOST_BYTES = 4096
"""What one fold may add to any model."""

_NODE = 40
"""What a node takes in a file besides its names."""


def may_become(node: Node, size: int) -> bool:
    """Tell whether *node* may become constants of *size* bytes."""
    growth = size - freed_by(node)
    if growth <= 0 or growth > MOST_BYTES:
        return growth <= 0
    count = node.graph.model.node_count
    return growth <= _BYTES_PER_NODE * count


def freed_by(node: Node) -> int:
    """Return how many bytes go away with *node*: its own, and constants that only it reads."""
    named = [value for value in (*node.inputs, *node.outputs) if value is not None]
    held = bytes_of(node.outputs[0]) if node.op_type == "Constant" and node.outputs[0] else 0
    freed = _NODE + len(node.name) + sum(len(value.name) for value in named) + held
    for value in set(node.read):
        is_only_reader = all(user is node for user, _ in value.iter_uses())
        if is_only_reader and not value.returned_by:
            freed += bytes_of(value)
    return freed


def bytes_of(value: Value) -> int:
    """Return the size of a constant's data in a file; 0 for what is no constant."""
    tensor = value.constant if value.is_constant else None
    return 0 if tensor is None else size_in_bytes(tensor.dtype, tensor.size)


def size_in_bytes(dtype: str, count: int) -> int:
    """Return what *count* elements of a type take in a file; of text at least."""
    return (count * (bits_of(dtype) or 8) + 7) // 8


# Nodes that do nothing but hold data, and nodes that nobody reads.


@nodewise("Constant")
def constants_to_initializers(match: Match, build: GraphBuilder) -> Operand | None:
    """Let the graph store what a Constant node holds.

    Holds when: the graph can (it is no function's body), the data is one dense tensor, and it is
    not itself what the graph returns.
    """
    value = match.root.outputs[0]
    if value is None or value.returned_by or is_in_function(match.root.graph):
        return None
    tensor = value.constant
    return None if tensor is None else build.constant(tensor)


def _is_read_at_all(node: Node) -> bool:
    return any(value is not None and is_read(value) for value in node.outputs)


@nodewise(unread=True, concerns=lambda node: not _is_read_at_all(node))
def drop_unread(match: Match, build: GraphBuilder) -> Sequence[Operand] | None:  # noqa: ARG001  # nothing is made
    """Take out a node none of whose outputs is read: no operator has an effect but its results."""
    return None if match.outputs else ()


# Nodes whose inputs are all constant become what they compute.
#
# Before: ``y = Mul(a, b)`` with constants *a* and *b*
# After:  ``y`` is a constant
# Holds when: the operator always gives the same result, has no body and stands for no weight; and
# the result takes hardly more bytes than what goes: the node, and the constants that only it reads.
# Numerics: onnx's reference evaluator computes each node in its own element type.


_MOST_WORK = 1 << 24
"""Elements of the inputs or of the results of a node beyond which it is not computed."""


@nodewise(reach=3)
class fold_constants:  # noqa: N801  # catalogues call it by this name
    """Folds the nodes of one model."""

    def __init__(self) -> None:
        self.meets_shapes = False
        self.operations = 0

    def concerns(self, node: Node) -> bool:
        """Tell whether *node* may be folded."""
        if not self.meets_shapes and node.op_type in MEASURING and _is_read_at_all(node):
            self.meets_shapes = True
        return is_foldable(node) or (self.meets_shapes and _may_follow_from_shapes(node))

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection | None:
        """Describe the constants that take the place of a node."""
        node = match.root
        self.meets_shapes = self.meets_shapes or node.op_type in MEASURING
        arrays = _known(node, match.outputs) if self.meets_shapes and match.outputs else None
        if arrays is None and not is_foldable(node):
            return None
        size = _expected_size(node, match.outputs)
        if size is None or size > _MOST_WORK:
            return match.reject("how large the result is cannot be told, or it is too large")
        if not may_become(node, size):
            return match.reject(
                f"{size:,} bytes of constants are more than the file may grow by for one node"
            )
        if arrays is None:
            work = _operations(node, match.outputs)
            if work > _MOST_OPERATIONS or self.operations + work > _MOST_IN_ALL:
                return match.reject("onnx's reference evaluator would take too long to compute it")
            self.operations += work
        why = "onnx's reference evaluator cannot compute it as it should be"
        if node.op_type in ORDERING and any(map(_has_nan, node.read)):
            arrays, why = None, f"what {node.op_type} makes of NaN is said nowhere"
        else:
            arrays = arrays or _computed(node, match.outputs, build)
        if arrays is None:
            return match.reject(why)
        return [build.constant(array) for array in arrays]


def _has_nan(value: Value) -> bool:
    """Tell whether a constant has an element that is no number."""
    tensor = value.constant
    if tensor is None or tensor.is_external or "float" not in tensor.dtype:
        return False
    return bool(np.isnan(tensor.numpy().astype(np.float32)).any())


_MOST_OPERATIONS = 1 << 36
"""What the evaluator does in a few seconds, by matrix products; for one node."""

_MOST_IN_ALL = 1 << 38

_SLOWER = {"Einsum": 1 << 6} | dict.fromkeys(
    (
        *("Erf", "GatherElements", "GatherND", "GridSample", "Resize", "ReverseSequence"),
        *("Scatter", "ScatterElements", "ScatterND", "TopK", "Upsample"),
    ),
    1 << 16,
)
"""How many operations of a matrix product take as long as one of these: most loop in Python."""


def _operations(node: Node, outputs: Sequence[Value]) -> int:
    """Estimate how long the evaluator takes, in operations of a matrix product."""
    facts = node.graph.model.memory(Knowledge)

    def sizes(value: Value) -> tuple[int | None, ...] | None:
        shape = facts.fact(value).shape
        return (
            None if shape is None else tuple(dim if isinstance(dim, int) else None for dim in shape)
        )

    shapes = [sizes(value) or () for value in (*node.inputs, *outputs) if value is not None]
    elements = max(prod(filter(None, shape)) for shape in shapes)
    return max(flops(node, sizes) or 0, elements) * _SLOWER.get(node.op_type, 1)


def _computed(
    node: Node, outputs: Sequence[Value], build: GraphBuilder
) -> list[NDArray[Any]] | None:
    """Return the results, if they are of the types that they should be."""
    results = build.evaluate(node)
    if results is None or len(results) != len(node.outputs):
        return None
    wanted = [results[value.index] for value in outputs]
    is_typed = all(
        dtype_of(value) in (None, ArrayTensor(array).dtype)
        for value, array in zip(outputs, wanted, strict=True)
    )
    return wanted if is_typed else None


def _known(node: Node, outputs: Sequence[Value]) -> list[NDArray[Any]] | None:
    """Return whole numbers that follow from shapes and constants, whatever the inputs."""
    if not _may_follow_from_shapes(node):
        return None
    knowledge = node.graph.model.memory(Knowledge)
    arrays = [knowledge.array(value) for value in outputs]
    constants = [array for array in arrays if array is not None]
    return constants if len(constants) == len(arrays) else None


def _may_follow_from_shapes(node: Node) -> bool:
    """Tell whether a node makes whole numbers, as far as is known, in a way that dpl follows."""
    if node.domain or node.op_type not in CONTENT_RULES:
        return False
    types = (value.known_type() for value in node.made)
    return all(each is None or each.dtype is None or each.dtype in WHOLE for each in types)


def is_foldable(node: Node) -> bool:
    """Tell whether *node* is one to compute: constant inputs, the same result each time.

    A placeholder is none: folded, a weight that was left out of the file would be in it.
    """
    if node.domain or node.op_type not in FOLDABLE or node.subgraphs or is_placeholder(node):
        return False
    inputs = node.read
    if not inputs or not all(value.is_constant for value in inputs):
        return False
    tensors = [value.constant for value in inputs]
    return all(t is not None and not t.is_external and t.size <= _MOST_WORK for t in tensors)


def _expected_size(node: Node, outputs: Sequence[Value]) -> int | None:
    """Return how many bytes the results will take; None if that is not known beforehand."""
    knowledge = node.graph.model.memory(Knowledge)
    total = 0
    for fact in map(knowledge.fact, outputs):
        if fact.dtype is None or fact.shape is None:
            return None
        dims = [dim for dim in fact.shape if isinstance(dim, int)]
        if len(dims) < len(fact.shape):
            return None
        total += size_in_bytes(fact.dtype, prod(dims))
    return total


# What is computed twice is computed once.
#
# Before: ``a = Relu(x); b = Relu(x)``
# After:  whoever read *b* reads *a*
# Holds when: operator, attributes and inputs are the same; equal short constants count as the same.
# Not for what is random, has a body or comes from an unknown domain.
# Numerics: none.


_RANDOM = RANDOM_OPS | {"Dropout", "Constant", "Identity"}
"""Operators that may give something else each time; and two that other rules see to."""

_DOMAINS = frozenset({"", "ai.onnx.ml"})
_SHORT = 64


@nodewise()
class merge_common:  # noqa: N801  # catalogues call it by this name
    """Remembers the nodes of one model by what they compute."""

    def __init__(self) -> None:
        self._known: dict[Signature, list[Node]] = {}

    def concerns(self, node: Node) -> bool:
        """Tell whether an earlier node may compute the same; if not, remember *node*."""
        if node.op_type in _RANDOM or node.subgraphs or node.domain not in _DOMAINS:
            return False
        if not _is_read_at_all(node) or is_placeholder(node):
            return False
        alike = self._known.setdefault(_signature(node), [])
        if alike and (len(alike) > 1 or alike[0] is not node):
            return True
        alike[:] = [node]
        return False

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | None:  # noqa: ARG002  # nothing is made
        """Return the outputs of an earlier node that computes the same."""
        node = match.root
        if node.op_type in _RANDOM or node.subgraphs or node.domain not in _DOMAINS:
            return None
        if is_placeholder(node):  # weights of equal shape are different weights
            return None
        alike = self._known.setdefault(_signature(node), [])
        for other in alike:
            if other is node or not _is_there(other) or other.position > node.position:
                continue
            if _same_attributes(other, node):
                by_index = {output.index: output for output in other.made}
                values = [
                    by_index[value.index] for value in match.outputs if value.index in by_index
                ]
                return values if len(values) == len(match.outputs) else None
        alike[:] = [other for other in alike if other is not node and _is_there(other)] + [node]
        return None


def _signature(node: Node) -> Signature:
    """Return what equal nodes have in common, attributes apart."""
    return (node.graph, node.domain, node.op_type, *map(_identity, node.inputs))


def _identity(value: Value | None) -> Hashable:
    """Return what two inputs that are the same have in common: for short constants the data."""
    if value is None or not value.is_constant:
        return value
    tensor = value.constant
    if tensor is None or tensor.is_external or tensor.size > _SHORT:
        return value
    return tensor.content


def _same_attributes(first: Node, second: Node) -> bool:
    a, b = first.attributes, second.attributes
    return a.keys() == b.keys() and all(_same_value(a[name], b[name]) for name in a)


def _same_value(first: Attribute, second: Attribute) -> bool:
    a, b = first.value, second.value
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return max(a.size, b.size) <= _SHORT and a.content == b.content
    return first == second


def _is_there(node: Node) -> bool:
    """Tell whether *node* is still in its graph."""
    output = next(iter(node.made), None)
    return output is not None and output.producer is node and _is_known(output)


def _is_known(value: Value) -> bool:
    """Tell whether *value* is still in its graph."""
    return value.graph.values.get(value.name) is value


# Constants that are stored twice are stored once.
#
# Before: ``t = Add(x, a); y = Mul(t, b)`` with equal weights *a* and *b*
# After:  ``y = Mul(t, a)``
# Holds when: element type, shape and bytes are equal, and the data is not in another file.
# Numerics: none.


_SHORTEST = 64
"""Bytes of the smallest constants that are compared."""

_LONGEST = 1 << 28
"""Bytes of the largest constants that are compared."""


@nodewise()
class merge_initializers:  # noqa: N801  # catalogues call it by this name
    """Remembers the constants of one model by what they hold."""

    def __init__(self) -> None:
        self._keys: dict[Value, Key | None] = {}
        self._sizes: dict[Key, Value] = {}
        self._known: dict[Key, Value] = {}

    def concerns(self, node: Node) -> bool:
        """Tell whether an earlier node may read the same constant under another name."""
        if node.subgraphs or not _is_read_at_all(node):
            return False
        first = self._first
        return any(value is not None and first(value) is not value for value in node.inputs)

    def __call__(self, match: Match, build: GraphBuilder) -> Sequence[Operand] | None:
        """Make the node anew if an earlier one reads the same constant under another name."""
        node = match.root
        if node.subgraphs:
            return None
        inputs = [None if value is None else self._first(value) for value in node.inputs]
        if inputs == list(node.inputs):
            return None
        copy = remade(build, node, inputs)
        return [copy[value.index] for value in match.outputs]

    def _first(self, value: Value) -> Value:
        """Return the first constant seen that equals *value*."""
        if not value.is_initializer or value.returned_by:
            return value
        tensor = value.constant
        if tensor is None or tensor.is_external:
            return value
        if not _SHORTEST <= bytes_of(value) <= _LONGEST:
            return value
        coarse: Key = (value.graph, tensor.dtype, tensor.shape)
        alone = self._sizes.setdefault(coarse, value)
        if alone is value:
            return value
        self._known.setdefault(self._key(alone, coarse), alone)
        other = self._known.setdefault(self._key(value, coarse), value)
        if not _is_known(other):
            other = self._known[self._key(value, coarse)] = value
        return other

    def _key(self, value: Value, coarse: Key) -> Key:
        key = self._keys.get(value)
        if key is None:
            tensor = value.constant
            array = None if tensor is None else tensor.numpy()
            if array is None or array.dtype.hasobject:
                key = (*coarse, value)
            else:
                key = (*coarse, blake2b(array.tobytes(), digest_size=16).digest())
            self._keys[value] = key
        return key


# The whole numbers that exporters compute from shapes again and again.


_ARITHMETIC_REACH = 3


@nodewise(*sorted(CONTENT_RULES.keys() - {"Identity"}), reach=_ARITHMETIC_REACH)
class reuse_shape_arithmetic:  # noqa: N801  # catalogues call it by this name
    """Reads whole numbers where they were computed first.

    Before: ``n = Gather(Shape(x), 0); m = Gather(Shape(Relu(x)), 0)``
    After:  whoever read *m* reads *n*
    Holds when: both are provably equal, element type and rank included.
    """

    def __init__(self) -> None:
        self._known: dict[Key, Value] = {}
        self._meets_shapes = False

    def concerns(self, node: Node) -> bool:
        """Tell whether whole numbers may follow from shapes."""
        if not self._meets_shapes and node.op_type in MEASURING and _is_read_at_all(node):
            self._meets_shapes = True
        return self._meets_shapes and _may_follow_from_shapes(node)

    def __call__(self, match: Match, build: GraphBuilder) -> Operand | None:  # noqa: ARG002  # nothing is made
        """Return an earlier value with the same elements."""
        if not self.concerns(match.root) or len(match.outputs) != 1:
            return None
        (value,) = match.outputs
        knowledge = value.graph.model.memory(Knowledge)
        fact = knowledge.fact(value)
        if fact.content is None or fact.shape is None or not fact.content:
            return None
        # terms of two algebras look alike and mean different numbers
        key: Key = (knowledge, value.graph, fact.dtype, len(fact.shape), fact.content)
        other = self._known.get(key)
        if other is None or other is value or not _comes_before(other, value):
            self._known[key] = value
            return None
        return None if value.returned_by and other.returned_by else other


def _comes_before(other: Value, value: Value) -> bool:
    if not _is_known(other):
        return False
    if other.producer is None or value.producer is None:
        return other.producer is None
    return other.producer.position < value.producer.position
