"""The masks of attention: what is added to scores, taken apart.

A mask is a sum of terms. One that adds 0 or -inf is a choice of keys, which the operators write as
a boolean mask; one that takes just the keys after the query away is causal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.dpl.shapes import described, items_of, shape_of
from dplcli.dpl.transforms.causality import causal_offset
from dplcli.dpl.transforms.finite_masks import above_lowest, is_lowest, without_lowest
from dplcli.dpl.transforms.operands import number_of
from dplcli.dpl.transforms.tensor_layouts import length_of
from dplcli.ir import Tensor
from dplcli.ir.parameters import inputs_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node, Value

_MOST_TERMS = 8
_SWALLOWS = {"float32": -1e30, "float64": -1e30, "bfloat16": -1e30}
"""Numbers so low that adding a score to them changes nothing, in the types that have such."""


class Choice(NamedTuple):
    """A choice of keys.

    Attributes:
        keep: Where it is true keys take part.
        is_negated: Whether they do where it is false.
        number: What is added to the scores of the others.
    """

    keep: Value
    is_negated: bool
    number: float = -np.inf


@dataclass(frozen=True)
class Mask:
    """What is added to the scores.

    Attributes:
        added: Float tensors that are added as they are.
        choices: Choices of keys.
        is_causal: Whether keys after the query get -inf, too.
    """

    added: tuple[Value, ...] = ()
    choices: tuple[Choice, ...] = ()
    is_causal: bool = False

    @property
    def tensors(self) -> list[Value]:
        """Everything that has to broadcast to the scores."""
        return [*self.added, *(choice.keep for choice in self.choices)]

    @property
    def is_boolean(self) -> bool:
        """Whether it can be written as a boolean mask."""
        is_sharp = all(choice.number == -np.inf for choice in self.choices)
        return is_sharp and bool(self.choices) and not self.added

    @property
    def may_hide_all(self) -> bool:
        """Whether all keys of a query may get -inf."""
        is_sharp = any(choice.number == -np.inf for choice in self.choices)
        return is_sharp or bool(self.added)

    def with_choice(self, choice: Choice) -> Mask:
        """Add what ``Where(keep, scores, number)`` does."""
        return Mask(self.added, (*self.choices, choice), self.is_causal)


def read_mask(
    terms: Sequence[Value], scores: Dims, past: Number = 0, *, split: bool = False
) -> Mask:
    """Take apart what is added to scores, or chooses them.

    A term that says nothing special when taken apart stays as it is.

    Args:
        terms: What is added, or boolean tensors that choose.
        scores: The shape of the scores.
        past: How many keys come before the first query.
        split: Whether choices are taken apart, too.
    """
    pending = [behind_identities(term) for term in terms]
    added: list[Value] = []
    choices: list[Choice] = []
    is_causal = False
    while pending:
        term = pending.pop(0)
        plain = _unconverted(term)
        if _is_zero(plain):
            continue
        if causal_offset(plain, scores) == past:
            is_causal = True
        elif split and (both := _conjuncts(plain)):
            pending = [*both, *pending]
        elif (choice := _as_choice(plain)) is not None:
            choices.append(choice)
        elif (parts := _summands(plain, scores, past)) and len(pending) + len(added) < _MOST_TERMS:
            pending = [*parts, *pending]
        else:
            added.append(_unconverted(term, only_idle=True))
    return Mask(tuple(added), tuple(choices), is_causal)


def _unconverted(term: Value, *, only_idle: bool = False) -> Value:
    """Look through conversions to another type, which do nothing to 0 and -inf, and idle Pads."""
    node = term.producer
    while node is not None and not node.domain and node.inputs and node.inputs[0] is not None:
        source = behind_identities(node.inputs[0])
        if node.op_type == "Pad":
            is_passed = _pads_nothing(node)
        else:
            is_passed = node.op_type in {"Cast", "CastLike"}
            is_passed = is_passed and not (only_idle and _dtype(source) != _dtype(term))
        if not is_passed:
            break
        term, node = source, source.producer
    return term


def _pads_nothing(node: Node) -> bool:
    inputs = inputs_of(node)
    pads = items_of(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    return pads is not None and all(type(pad) is int and pad == 0 for pad in pads)


def _dtype(value: Value) -> str | None:
    known = value.known_type()
    return None if known is None else known.dtype


def swallows_scores(number: float, dtype: str) -> bool:
    """Tell whether a score added to *number* vanishes, so that adding is replacing."""
    return number == -np.inf or number <= _SWALLOWS.get(dtype, -np.inf)


def _is_zero(term: Value) -> bool:
    """Tell whether a term adds nothing."""
    if _dtype(term) == "bool":
        return False
    if number_of(term) == 0:
        return True
    node = node_of(term, "ConstantOfShape")
    filler = None if node is None else node.attributes.get("value")
    if node is not None and filler is None:
        return True
    tensor = term.constant if filler is None or filler.ref else filler.value
    return isinstance(tensor, Tensor) and not tensor.is_external and not np.any(tensor.numpy())


def _as_choice(term: Value) -> Choice | None:
    """Read ``Where(keep, 0, -inf)``, ``Where(drop, -inf, 0)``, or a boolean mask."""
    if _dtype(term) == "bool":
        return Choice(term, is_negated=False)
    node = node_of(term, "Where")
    if node is None or node.inputs[0] is None:
        return None
    numbers = (number_of(node.inputs[1]), number_of(node.inputs[2]))
    if numbers not in {(0.0, -np.inf), (-np.inf, 0.0)}:
        return None
    return Choice(behind_identities(node.inputs[0]), numbers[0] != 0)


def _conjuncts(term: Value) -> list[Value]:
    """Take a boolean mask apart that chooses what two others choose."""
    node = node_of(term, "And")
    return [] if node is None else [behind_identities(p) for p in node.inputs if p is not None]


def _summands(term: Value, scores: Dims, past: Number) -> list[Value]:
    """Take a sum apart, if a part of it says something that the whole does not."""
    node = node_of(term, "Add")
    if node is None:
        return []
    parts = [behind_identities(part) for part in node.inputs if part is not None]
    special = any(
        _is_zero(part) or causal_offset(part, scores) == past or _as_choice(part) is not None
        for part in parts
    )
    return parts if special else []


# -- making masks ------------------------------------------------------------------------------


def objection_to(tensor: Value, scores: Dims) -> str:
    """Say why a mask may not broadcast to the scores, or ""."""
    shape = shape_of(tensor)
    if shape is None:
        return "the rank of the mask is not known"
    if len(shape) > len(scores):
        return "the mask has more dimensions than the scores"
    for dim, wanted in zip(reversed(shape), reversed(scores), strict=False):
        if dim not in {1, wanted}:
            own, other = described(tensor, dim), described(tensor, wanted)
            return f"a dimension of the mask is {own}, which is not known to be 1 or {other}"
    return ""


def build_float(
    build: GraphBuilder, mask: Mask, dtype: str, *, keeps_lowest: bool = True
) -> Operand:
    """Return one float tensor to add.

    Args:
        build: Who makes nodes.
        mask: The mask.
        dtype: The element type.
        keeps_lowest: Whether the lowest number may stand in it.
    """
    parts: list[Operand] = [
        item if keeps_lowest else without_lowest(build, item, dtype) for item in mask.added
    ]
    for choice in mask.choices:
        zero, filler = (_number(build, each, dtype, keeps_lowest) for each in (0, choice.number))
        pair = (filler, zero) if choice.is_negated else (zero, filler)
        parts.append(build.op("Where", choice.keep, *pair))
    total = parts[0]
    for part in parts[1:]:
        total = build.op("Add", total, part)
    return total


def _number(build: GraphBuilder, number: float, dtype: str, keeps_lowest: bool) -> Operand:  # noqa: FBT001  # passed on
    made = np.array(number, np.dtype(dtype))
    if not keeps_lowest and is_lowest(made):
        made = np.array(above_lowest(dtype))
    return build.constant(made)


def build_boolean(build: GraphBuilder, mask: Mask) -> Operand:
    """Return one boolean tensor that is true where a key takes part."""
    kept = [build.op("Not", item.keep) if item.is_negated else item.keep for item in mask.choices]
    total: Operand = kept[0]
    for part in kept[1:]:
        total = build.op("And", total, part)
    return total


def joint_shape(tensors: Sequence[Value], scores: Dims) -> Dims:
    """Return the shape that masks have together, each of which broadcasts to the scores."""
    shapes = [shape_of(tensor) or () for tensor in tensors]
    rank = max(map(len, shapes), default=0)
    dims: list[Number] = []
    for place in range(1, rank + 1):
        is_wide = any(len(shape) >= place and shape[-place] != 1 for shape in shapes)
        dims.append(scores[-place] if is_wide else 1)
    return tuple(reversed(dims))


def rows_and_columns(
    build: GraphBuilder,
    mask: Operand,
    shape: Dims,
    scores: Dims,
    owners: Sequence[tuple[Operand, int]],
) -> Operand:
    """Widen a mask to one row per query and one column per key, as kernels want it.

    Args:
        build: Who makes nodes.
        mask: The mask.
        shape: Its shape.
        scores: The shape of the scores.
        owners: Values that have the dimension of the queries, and of the keys, and where.
    """
    if shape[-2:] == scores[-2:]:
        return mask
    if all(isinstance(dim, int) for dim in scores[-2:]):
        wanted = build.constant(np.array([1] * max(len(shape) - 2, 0) + list(scores[-2:])))
        return build.op("Expand", mask, wanted)
    parts = [build.constant(np.ones(len(shape) - 2, np.int64))] if len(shape) > 2 else []  # noqa: PLR2004  # rows and columns
    lengths = [length_of(build, *owner) for owner in owners]
    return build.op("Expand", mask, build.op("Concat", *parts, *lengths, axis=0))


def node_of(value: Value, op_type: str) -> Node | None:
    """Return the standard node of that type that makes a value."""
    node = value.producer
    return node if node is not None and node.op_type == op_type and not node.domain else None
