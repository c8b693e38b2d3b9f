"""What is provable of shapes, and of the small tensors that shapes are computed from.

Shape inference forgets what ``Shape``, ``Gather`` and ``Concat`` do to dimensions that are no
numbers, and Reshape to ``[batch, seq, -1, 4]`` then has dimensions that nothing is known of. Here
dimensions are polynomials (:mod:`dplcli.ir.symbolic.size`), followed through the graph as far as
it takes; whatever cannot be followed is an unknown of its own, equal to itself alone.

Empty tensors are left out of account: a Reshape to ``[0, -1]`` takes its 0 for "as it was".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from dplcli.ir.symbolic.size import Extent, Size, TooComplexError, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from numpy.typing import NDArray

    from dplcli.ir.node import Node
    from dplcli.ir.types import TensorType
    from dplcli.ir.value import Value

Extents: TypeAlias = tuple[Extent, ...]
Found: TypeAlias = tuple[Extent | None, ...] | None
"""What a rule finds: None is a rank, or a dimension, that it does not know."""

MOST_ITEMS = 64
"""Tensors with more elements are not followed."""


class Question(NamedTuple):
    """What is asked of a value: its shape, or the elements of a small tensor."""

    kind: Literal["shape", "items"]
    value: Value


if TYPE_CHECKING:
    Answer: TypeAlias = Extents | NDArray[Any] | None
    Steps: TypeAlias = Generator[Question, Answer, Answer]
    FoundSteps: TypeAlias = Generator[Question, Answer, Found]
    ShapeSteps: TypeAlias = Generator[Question, Answer, Extents | None]
    ItemSteps: TypeAlias = Generator[Question, Answer, NDArray[Any] | None]
    ShapeRule: TypeAlias = Callable[[Node, int], FoundSteps]
    ItemRule: TypeAlias = Callable[[Node, int], ItemSteps]

_MADE_UP = re.compile(r"unk__\d+")
"""Symbols that onnx's shape inference makes up; another run gives them to other dimensions."""

_UNFOLLOWABLE = (TooComplexError, ArithmeticError, ValueError, TypeError, LookupError)
"""What a rule raises at a node that is not as it should be."""


def shape_of(value: Value) -> Extents | None:
    """Return the dimensions of a tensor; None if not even the rank is known."""
    return cast("Extents | None", _analysis_of(value).answer(Question("shape", value)))


def items_of(value: Value) -> NDArray[Any] | None:
    """Return the elements of a small tensor, as an array of objects; None if they are not known.

    An element is a bool, a float, an int or a :class:`Size`.
    """
    return cast("NDArray[Any] | None", _analysis_of(value).answer(Question("items", value)))


def ask_shape(value: Value | None) -> ShapeSteps:
    """Ask for a shape, in a rule, by ``yield from``."""
    if value is None:
        return None
    answer = yield Question("shape", value)
    return cast("Extents | None", answer)


def ask_items(value: Value | None) -> ItemSteps:
    """Ask for the elements of a small tensor, in a rule, by ``yield from``."""
    if value is None:
        return None
    answer = yield Question("items", value)
    return cast("NDArray[Any] | None", answer)


class _Analysis:
    """Answers, each worked out once; they stay true while a pass replaces equals by equals."""

    def __init__(self, types: Mapping[Value, TensorType]) -> None:
        self.types = types
        self.known: dict[Question, Answer] = {}
        self.named: dict[str, Value] = {}

    def answer(self, asked: Question) -> Answer:
        """Work out an answer and all that it takes, without recursion."""
        if asked in self.known:
            return self.known[asked]
        pending: list[tuple[Question, Steps]] = [(asked, self._steps(asked))]
        answer: Answer = None
        while pending:
            question, steps = pending[-1]
            try:
                wanted = steps.send(answer)
            except StopIteration as stop:
                answer = self.known[question] = stop.value
                pending.pop()
                continue
            if wanted in self.known:
                answer = self.known[wanted]
            else:
                self.known[wanted] = None  # a cycle, in a graph that is none, knows nothing
                pending.append((wanted, self._steps(wanted)))
                answer = None
        return answer

    def _steps(self, asked: Question) -> Steps:
        return self._shape(asked.value) if asked.kind == "shape" else self._items(asked.value)

    # -- shapes --------------------------------------------------------------------------------

    def _shape(self, value: Value) -> Steps:
        known = value.known_type()
        stated = None if known is None else known.shape
        if stated is not None and all(type(dim) is int for dim in stated):
            return cast("Extents", stated)
        rule = _rule_for(value, _shape_rules())
        found: Found = None
        if rule is not None:
            found = yield from _guarded(rule(cast("Node", value.producer), value.index))
        if found is None and stated is None:
            return None
        dims = found or (None,) * len(stated or ())
        words = stated if stated is not None and len(stated) == len(dims) else (None,) * len(dims)
        return tuple(
            self._dim(value, axis, dim, word)
            for axis, (dim, word) in enumerate(zip(dims, words, strict=True))
        )

    def _dim(self, value: Value, axis: int, found: object, stated: object) -> Extent:
        """Choose what says most of one dimension."""
        if isinstance(stated, int):
            return stated
        if isinstance(found, (int, Size)):
            return found
        if isinstance(stated, str) and not _MADE_UP.fullmatch(stated):
            return unknown(stated)
        return unknown(f"{self._label(value)}.shape[{axis}]")

    def _label(self, value: Value) -> str:
        """Name a value uniquely; bodies may use one name twice."""
        label, number = value.name, 0
        while self.named.setdefault(label, value) is not value:
            number += 1
            label = f"{value.name}#{number}"
        return label

    # -- elements ------------------------------------------------------------------------------

    def _items(self, value: Value) -> Steps:
        tensor = value.constant
        if tensor is not None:
            is_small = tensor.size <= MOST_ITEMS and not tensor.is_external
            data = tensor.numpy() if is_small else None
            if data is None or data.dtype.kind not in "biuf":
                return None
            return objects(data)
        rule = _rule_for(value, _item_rules())
        if rule is None:
            return None
        found = yield from _guarded(rule(cast("Node", value.producer), value.index))
        return found if found is not None and found.size <= MOST_ITEMS else None


def objects(data: NDArray[Any]) -> NDArray[Any]:
    """Turn an array of numbers into one of Python's bools, ints and floats."""
    made = np.empty(data.shape, dtype=object)
    made.reshape(-1)[:] = data.reshape(-1).tolist()
    return made


def _guarded(steps: Generator[Question, Answer, Any]) -> Generator[Question, Answer, Any]:
    """Take what goes wrong in a rule for "not known"."""
    try:
        return (yield from steps)
    except _UNFOLLOWABLE:
        return None


def _rule_for(value: Value, rules: Mapping[str, Any]) -> Any:  # noqa: ANN401  # of either kind
    node = value.producer
    return None if node is None else rules.get(node.qualified_op)


def _shape_rules() -> Mapping[str, ShapeRule]:
    from dplcli.ir.symbolic.shape_rules import SHAPE_RULES  # noqa: PLC0415  # it asks this module

    return SHAPE_RULES


def _item_rules() -> Mapping[str, ItemRule]:
    from dplcli.ir.symbolic.item_rules import ITEM_RULES  # noqa: PLC0415  # it asks this module

    return ITEM_RULES


def _analysis_of(value: Value) -> _Analysis:
    """Return the analysis of a value's model, a new one if types have been inferred anew."""
    kept = vars(value.graph.model)  # what it knows lives and dies with the model
    types = value.graph.model.inferred_types()
    analysis = kept.get("_symbolic")
    if not isinstance(analysis, _Analysis) or analysis.types is not types:
        analysis = kept["_symbolic"] = _Analysis(types)
    return analysis
