"""Operators that a body spells out, such as a Gelu by Erf: recognised by what they compute.

The nodes are tried with numbers. That is proof enough of what they are, and blind to how they are
ordered and written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dplcli.ir import Node, Value

    Numbers = NDArray[np.float64]
    Read = Callable[[Node, str], object]
    """The value of an attribute of a node, as the call gives it; None if it is not given."""

_MOST_NODES = 16
_erf = np.vectorize(math.erf)
_SAMPLES = np.linspace(-6, 6, 97) * np.array([[1], [0.3], [1e-2], [1e-3]]) + 0.01
"""Rows wide and narrow: where a row is narrow, an epsilon counts."""


def _normalized(x: Numbers, epsilon: float) -> Numbers:
    off = x - x.mean(-1, keepdims=True)
    result: Numbers = off / np.sqrt((off * off).mean(-1, keepdims=True) + epsilon)
    return result


_CURVES = {
    "gelu": _SAMPLES * 0.5 * (1 + _erf(_SAMPLES / math.sqrt(2))),
    "gelu_tanh": _SAMPLES
    * 0.5
    * (1 + np.tanh(math.sqrt(2 / math.pi) * (_SAMPLES + 0.044715 * _SAMPLES**3))),
    "hard_swish": _SAMPLES * np.clip(_SAMPLES / 6 + 0.5, 0, 1),
}
_ROUNDING = 2e-6
"""How far the samples may be from a curve: the two Gelus are 4e-4 apart."""

_CURVE_CONSTANTS = (
    math.sqrt(2),
    math.sqrt(0.5),
    math.sqrt(2 / math.pi),
    0.044715,
    math.sqrt(2 / math.pi) * 0.044715,
    1 / 6,
)
"""What the curves are made of, and no float holds. A half's square root of 2 is 1e-4 off."""

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Div": np.divide,
    "Erf": _erf,
    "Mul": np.multiply,
    "Pow": np.power,
    "Reciprocal": np.reciprocal,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Tanh": np.tanh,
}
_FIRST = frozenset({"Add", "Div", "HardSigmoid", "Mul", "Pow", "ReduceMean"})


@dataclass(frozen=True)
class Composite:
    """Nodes that are one operator.

    Attributes:
        kind: Which: ``gelu``, ``gelu_tanh``, ``hard_swish`` or ``layer_norm`` (of the last axis,
            without scale and shift).
        source: What it reads.
        members: Its nodes.
        result: What it makes.
        epsilon: That of a ``layer_norm``.
    """

    kind: str
    source: Value
    members: frozenset[Node]
    result: Value
    epsilon: float = 0.0


def as_meant(number: np.generic) -> float:
    """Return a constant; that of a curve as it was before it was rounded to its type."""
    is_rounded = not isinstance(number, np.integer)  # bfloat16 is no np.floating
    meant = (each for each in _CURVE_CONSTANTS if is_rounded and number.dtype.type(each) == number)
    return next(meant, float(number))


def composite_from(
    first: Node,
    sources: Mapping[Value, int | None],
    single: Callable[[Value], float | None],
    read: Read,
) -> Composite | None:
    """Return the operator whose first node is *first*; None if it begins none.

    Args:
        first: A node of a body.
        sources: What is known before it, with its rank.
        single: Returns the one number of a constant, as :func:`as_meant` has it.
        read: Reads an attribute.
    """
    if first.domain or first.op_type not in _FIRST:
        return None
    for source in dict.fromkeys(first.inputs):
        if source is None or source not in sources or single(source) is not None:
            continue
        found = _followed(first, source, sources[source], single, read)
        if found is not None:
            return found
    return None


def _followed(
    first: Node,
    source: Value,
    rank: int | None,
    single: Callable[[Value], float | None],
    read: Read,
) -> Composite | None:
    after = list(first.graph)
    place = after.index(first)
    known: dict[Value, Any] = {source: _SAMPLES}
    members: list[Node] = []
    epsilons: list[float] = []
    for node in after[place : place + _MOST_NODES]:
        given = [value for value in node.inputs if value is not None]
        made = [known[value] if value in known else single(value) for value in given]
        is_known = not node.domain and all(number is not None for number in made)
        result = _computed(node, made, rank, read) if is_known else None
        if result is None:
            continue
        members.append(node)
        (output,) = [value for value in node.outputs if value is not None]
        known[output] = result
        if node.op_type == "Add":
            epsilons += [number for number in made if isinstance(number, float)]
        kind, epsilon = _recognised(result, epsilons)
        if kind:
            found = Composite(kind, source, frozenset(members), output, epsilon)
            return found if _is_whole(members, output) else None
    return None


def _computed(node: Node, made: Sequence[Any], rank: int | None, read: Read) -> Numbers | None:
    """Compute a node; None if it is none that an operator here is made of."""
    if node.op_type in _ARITHMETIC:
        with np.errstate(all="ignore"):
            result: Numbers = _ARITHMETIC[node.op_type](*made)
        return result
    data = made[0] if made else None
    if not isinstance(data, np.ndarray):
        return None
    if node.op_type == "HardSigmoid":
        alpha, beta = read(node, "alpha"), read(node, "beta")
        slope = alpha if isinstance(alpha, float) else 0.2
        offset = beta if isinstance(beta, float) else 0.5
        return np.clip(slope * data + offset, 0, 1)
    if node.op_type == "Clip" and len(made) == 3:  # noqa: PLR2004  # with both bounds
        return np.clip(data, made[1], made[2])
    if node.op_type == "ReduceMean" and rank is not None:
        axes, kept = made[1:] or read(node, "axes"), read(node, "keepdims")
        is_last = isinstance(axes, Sequence) and list(axes) in ([-1], [rank - 1])
        if is_last and kept in {None, 1}:
            mean: Numbers = data.mean(-1, keepdims=True)
            return mean
    return None


def _recognised(result: Numbers, epsilons: Sequence[float]) -> tuple[str, float]:
    if np.shape(result) != _SAMPLES.shape:
        return "", 0.0
    for kind, curve in _CURVES.items():
        if np.allclose(result, curve, rtol=_ROUNDING, atol=_ROUNDING):
            return kind, 0.0
    for epsilon in epsilons:
        if np.allclose(result, _normalized(_SAMPLES, epsilon), rtol=1e-9, atol=0):
            return "layer_norm", epsilon
    return "", 0.0


def _is_whole(members: Sequence[Node], output: Value) -> bool:
    """Tell whether nothing else reads what lies inside."""
    inner = {value for node in members for value in node.outputs if value is not None} - {output}
    return not any(value.returned_by for value in inner) and all(
        user in members for value in inner for user, _ in value.iter_uses()
    )
