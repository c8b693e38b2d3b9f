"""What a match of the attention pattern computes, or why it is no attention.

Holds when: the queries, keys and values are ``(batch, heads, length, size)`` or ``(batch, length,
size)`` with provably equal batches and fitting numbers of heads; the softmax is over the keys; all
scalings are by positive numbers; the mask broadcasts to the scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from dplcli.dpl.shapes import described, shape_of
from dplcli.dpl.shapes.terms import divide
from dplcli.dpl.transforms.attention_masks import (
    Choice,
    Mask,
    objection_to,
    read_mask,
    swallows_scores,
)
from dplcli.dpl.transforms.operands import Followed, follow, number_of, ungrouped
from dplcli.ir.operators import attribute_of
from dplcli.ir.traversal import behind_identities

if TYPE_CHECKING:
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.shapes.terms import Number
    from dplcli.dpl.shapes.view import Dims
    from dplcli.ir import Node, Value

_HEADS_RANK = 4
_ROUNDING = 1e-6
_RANKS = (3, _HEADS_RANK)
_FLOATS = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2, "float64": 2e-6}
"""Element types of attention, and how far constants in them are from what they are meant to be."""


class NotAttentionError(Exception):
    """A match is no attention.

    Args:
        reason: Why.
        at: The value concerned.
    """

    def __init__(self, reason: str, at: Value | Node | None = None) -> None:
        """Say why."""
        super().__init__(reason)
        self.at = at

    def rejection(self, match: Match) -> Rejection:
        """Refuse *match* for this reason."""
        return match.reject(str(self), at=self.at)


@dataclass(frozen=True)
class AttentionParts:
    """An attention.

    Attributes:
        query: The queries, ``(batch, heads, length, size)`` or without heads.
        key: The keys, the last two axes swapped.
        value: The values.
        scores: Shape of the scores.
        dtype: The element type.
        scale: What scores are multiplied by.
        softcap: What they are limited to, or 0.
        mask: What is added to them.
        softmax_dtype: What the softmax is computed in; "" for the type of the scores.
        is_guarded: Whether queries without keys get 0.
    """

    query: Followed
    key: Followed
    value: Followed
    scores: Dims
    dtype: str
    scale: float
    softcap: float
    mask: Mask
    softmax_dtype: str
    is_guarded: bool

    @property
    def rank(self) -> int:
        """The number of axes of queries, keys and values."""
        return len(self.scores)

    @property
    def default_scale(self) -> float | None:
        """``1 / sqrt(size)``, if the size is known."""
        size = self.query.shape[-1]
        return size**-0.5 if isinstance(size, int) and size > 0 else None

    @property
    def has_default_scale(self) -> bool:
        """Whether the scale is the usual one, as near as its type tells."""
        usual = self.default_scale
        return usual is not None and abs(self.scale / usual - 1) <= _FLOATS[self.dtype]


def read_attention(match: Match) -> AttentionParts:
    """Take a match of the attention pattern apart.

    Raises:
        NotAttentionError: It is none.
    """
    dtype = _element_type(match)
    query, key, value = (_operand(match, name) for name in ("q", "kt", "v"))
    if not query.rank == key.rank == value.rank or query.rank not in _RANKS:
        _refuse("queries, keys and values do not all have 3 or 4 axes", match.value("q"))
    _check_axis(match, query.rank)
    _check_dimensions(query, key, value)
    scores = (*query.shape[:-1], key.shape[-1])
    softcap, by = _softcap(match)
    scale = query.scale * key.scale * _factor(match) * by
    if not scale > 0:
        _refuse(
            f"the scale is {scale:.6g}, and operators take positive ones only", match.value("q")
        )
    return AttentionParts(
        query,
        key,
        value,
        scores,
        dtype,
        scale,
        softcap,
        _mask(match, dtype, scores),
        _softmax_type(match, dtype),
        _is_guarded(match),
    )


def _refuse(reason: str, at: Value | Node | None = None) -> NoReturn:
    raise NotAttentionError(reason, at)


def _element_type(match: Match) -> str:
    found = {_dtype(match.value(name)) for name in ("q", "kt", "v")}
    dtype = found.pop()
    if found or dtype not in _FLOATS:
        _refuse("queries, keys and values are not known to be of one float type", match.value("q"))
    return dtype


def _dtype(value: Value | None) -> str:
    known = None if value is None else value.known_type()
    return "" if known is None else known.dtype or ""


def _operand(match: Match, name: str) -> Followed:
    value = match.value(name)
    followed = None if value is None else follow(value)
    if followed is None:
        _refuse("its rank is not known", value)
    if name == "v" and followed.scale != 1:
        return followed.without_scaling()
    return followed


def _check_axis(match: Match, rank: int) -> None:
    """Refuse a softmax that is not over the keys."""
    softmax = match.node("p")
    axis = None if softmax is None else attribute_of(softmax, "axis")
    if axis is None or axis.value not in {-1, rank - 1}:
        _refuse("the softmax is not over the last axis", softmax)


def _check_dimensions(query: Followed, key: Followed, value: Followed) -> None:
    """Refuse batches and heads that are not known to fit: operators do not broadcast them."""
    for name, other in (("keys", key), ("values", value)):
        if other.shape[0] != query.shape[0]:
            own, batch = (described(other.value, each.shape[0]) for each in (query, other))
            reason = f"the batch is {own} for queries and {batch} for {name}"
            _refuse(f"{reason}: not known to be equal", other.value)
    if query.rank < _HEADS_RANK:
        return
    heads, of_keys, of_values = (operand.shape[1] for operand in (query, key, value))
    if of_keys != of_values or of_keys not in {heads, 1}:
        told = [described(value.value, number) for number in (heads, of_keys, of_values)]
        numbers = f"{told[0]}, {told[1]} and {told[2]}"
        _refuse(f"{numbers} heads of queries, keys and values do not provably fit", value.value)


def _factor(match: Match) -> float:
    """Return what the scores are multiplied by after the product."""
    factor, divisor = match.value("factor"), match.value("divisor")
    named = factor if factor is not None else divisor
    if named is None:
        return 1.0
    number = number_of(named)
    if number is None:
        _refuse("the scale is not a known number", named)
    if divisor is not None and number == 0:
        _refuse("the scores are divided by 0", named)
    return number if divisor is None else 1 / number


def _softcap(match: Match) -> tuple[float, float]:
    """Return what scores are capped at, and what they are multiplied by besides.

    ``c * tanh(u * x)`` caps ``(c * u) * x`` at c.
    """
    again = match.value("cap_again")
    if again is None:
        return 0.0, 1.0
    cap, uncap = number_of(match.value("cap")), number_of(match.value("uncap"))
    inner = uncap if uncap is not None else 1 / cap if cap else None
    outer = number_of(again)
    if inner is None or outer is None or not 0 < outer < math.inf:
        _refuse("what the scores are capped at is not a known positive number", again)
    factor = inner * outer
    return outer, 1.0 if abs(factor - 1) <= _ROUNDING else factor


def _mask(match: Match, dtype: str, scores: Dims) -> Mask:
    terms = [value for name in ("mask", "bias") if (value := match.value(name)) is not None]
    mask = read_mask(terms, scores)
    keep, drop, fill = (match.value(name) for name in ("keep", "drop", "fill"))
    chosen = keep if keep is not None else drop
    if chosen is not None:
        number = number_of(fill)
        if number is None or not swallows_scores(number, dtype):
            _refuse("what stands in the place of masked scores is not known to swallow them", fill)
        mask = mask.with_choice(Choice(behind_identities(chosen), keep is None, number))
    for tensor in mask.tensors:
        objection = objection_to(tensor, scores)
        if objection:
            _refuse(objection, tensor)
    for tensor in mask.added:
        if _dtype(tensor) != dtype:
            _refuse(f"the mask is not known to be {dtype}", tensor)
    return mask


def _is_guarded(match: Match) -> bool:
    """Tell whether queries without keys get 0."""
    if match.value("guarded") is None:
        return False
    lowest = match.value("lowest")
    if number_of(match.value("zero")) != 0 or (
        lowest is not None and number_of(lowest) != -math.inf
    ):
        _refuse("what becomes of queries without keys is not known to be 0", match.value("guarded"))
    return True


def _softmax_type(match: Match, dtype: str) -> str:
    """Return the type that the softmax is computed in, if it is another one."""
    wide = _dtype(match.value("wide"))
    allowed = (("scores", {dtype}), ("wide", {dtype, wide}), ("narrow", {dtype, wide}))
    for name, types in allowed:
        if not _converted_types(match.value(name)) <= types:
            _refuse("scores are converted to another type on the way", match.value(name))
    if _dtype(match.value("scores")) != dtype or _dtype(match.value("narrow")) != dtype:
        _refuse("conversions round the softmax do not cancel out", match.value("wide"))
    if wide == dtype:
        return ""
    if wide not in {"float32", "float64"} or dtype == "float64":
        _refuse(f"the softmax is computed in {wide}", match.value("wide"))
    return wide


def _converted_types(value: Value | None) -> set[str]:
    """Return the types that a value has on its way through conversions, the first one included."""
    found = set()
    while value is not None:
        value = behind_identities(value)
        found.add(_dtype(value))
        node = value.producer
        if node is None or node.op_type != "Cast" or node.domain:
            break
        value = node.inputs[0]
    return found


def grouped_heads(parts: AttentionParts) -> tuple[Value, Value, Number] | None:
    """Return keys and values before their heads were repeated, and the number of heads.

    Keys and values are ``(batch, heads, length, size)``. None if they were not repeated alike.
    """
    of_keys = _before_repetition(parts.key, (0, 1, 3, 2))
    of_values = _before_repetition(parts.value)
    if of_keys is None or of_values is None:
        return None
    (key, times), (value, same_times) = of_keys, of_values
    heads = divide(parts.scores[1], times)
    shapes = (shape_of(key), shape_of(value))
    if times != same_times or heads is None or any(s is None or s[1] != heads for s in shapes):
        return None
    return key, value, heads


def _before_repetition(
    operand: Followed, perm: tuple[int, ...] = (0, 1, 2, 3)
) -> tuple[Value, int] | None:
    found = operand.seen_as(perm)
    return None if found is None else ungrouped(found.value, 1)
