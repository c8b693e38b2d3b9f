"""Patterns as frozen values: the words of the language, and no logic.

The words are those of TVM's dataflow pattern language (``python/tvm/relax/dpl/pattern.py``,
``python/tvm/relay/dataflow_pattern``) on ONNX's values and nodes. Matching lives in
:mod:`dplcli.dpl.matcher`; the text spelling in :mod:`dplcli.dpl.text`.

A pattern object is one thing: used twice, it matches the same value (or node) twice. Two patterns
are equal if they read the same: ``repr`` gives the text form.
"""

from __future__ import annotations

import json
import keyword
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.call_patterns import WAIVED, CallPattern, OpPattern, OutputPattern
from dplcli.dpl.callee import OpName
from dplcli.dpl.combinators import Combinators
from dplcli.dpl.leaf_patterns import (
    AbsentPattern,
    ConstantPattern,
    ExactValue,
    InputPattern,
    WildcardPattern,
)
from dplcli.dpl.written import AttributeValue, Place, spelled_attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.ir import Dim

    Spell: TypeAlias = Callable[["DFPattern"], str]

__all__ = [
    "WAIVED",
    "AbsentPattern",
    "AndPattern",
    "AttributeValue",
    "CallPattern",
    "ConstantPattern",
    "DFPattern",
    "DominatorPattern",
    "EdgePattern",
    "ExactValue",
    "InputPattern",
    "NotPattern",
    "OpPattern",
    "OrPattern",
    "OutputPattern",
    "OutputsPattern",
    "Place",
    "RepeatPattern",
    "SameShapePattern",
    "TypedPattern",
    "WildcardPattern",
]


@dataclass(frozen=True, eq=False, repr=False)
class _PairPattern(Combinators):
    """Two patterns with a sign between them."""

    left: DFPattern
    right: DFPattern
    name: str = ""
    place: Place | None = None
    needs_brackets = True
    sign = ""

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """Both."""
        return (self.left, self.right)

    def spelled(self, spell: Spell) -> str:
        """``p | q`` or ``p & q``."""
        return f"{_operand(self.left, spell)} {self.sign} {_operand(self.right, spell)}"


class OrPattern(_PairPattern):
    """The left pattern or else the right one."""

    sign = "|"

    @property
    def folded(self) -> tuple[CallPattern, DFPattern] | None:
        """With and without the right node: ``optional``."""
        right = self.right
        if not isinstance(right, CallPattern) or right.bodies or right.is_unordered:
            return None
        is_named = isinstance(right.op.choices[0], OpName) and not right.op.parts
        is_round = bool(right.args) and right.args[0] is self.left
        return (right, self.left) if is_named and is_round else None

    def spelled_folded(self, spell: Spell) -> str:
        """``optional(Relu)(p)``."""
        assert isinstance(self.right, CallPattern)  # noqa: S101  # see folded
        return self.right.spelled_as_option(spell)


class AndPattern(_PairPattern):
    """Both patterns at the same value."""

    sign = "&"


@dataclass(frozen=True, eq=False, repr=False)
class NotPattern(Combinators):
    """A value that *pattern* does not match; names that stand only inside bind nothing."""

    pattern: DFPattern
    name: str = ""
    place: Place | None = None
    needs_brackets = True

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """What must not match."""
        return (self.pattern,)

    def spelled(self, spell: Spell) -> str:
        """``~p``."""
        return f"~{_operand(self.pattern, spell)}"


@dataclass(frozen=True, eq=False, repr=False)
class TypedPattern(Combinators):
    """A pattern whose value's type is known and as stated; a field that is None is free."""

    pattern: DFPattern
    dtypes: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    shape: tuple[Dim, ...] | None = None
    name: str = ""
    place: Place | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """What the value must match besides."""
        return (self.pattern,)

    def spelled(self, spell: Spell) -> str:
        """``x.has_rank(4)``."""
        inner = _operand(self.pattern, spell)
        dims = ", ".join("_" if dim is None else str(dim) for dim in self.shape or ())
        letters = [dim for dim in self.shape or () if isinstance(dim, str)]
        if self.shape is not None and (self.dtypes or any(map(keyword.iskeyword, letters))):
            dtype = self.dtypes[0] if self.dtypes else "?"
            return f'{inner}.has_type("{dtype}[{dims}]")'
        if self.shape is not None:
            return f"{inner}.has_shape({dims})"
        if self.ranks is not None:
            return f"{inner}.has_rank({', '.join(map(str, self.ranks))})"
        return f"{inner}.has_dtype({', '.join(json.dumps(d) for d in self.dtypes or ())})"


@dataclass(frozen=True, eq=False, repr=False)
class SameShapePattern(Combinators):
    """A pattern whose value provably has the shape of what *other* matches elsewhere."""

    pattern: DFPattern
    other: DFPattern
    name: str = ""
    place: Place | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """What the value must match, and what it is compared with."""
        return (self.pattern, self.other)

    def spelled(self, spell: Spell) -> str:
        """``same_shape(a, b)``."""
        return f"same_shape({spell(self.pattern)}, {spell(self.other)})"


@dataclass(frozen=True, eq=False, repr=False)
class EdgePattern(Combinators):
    """The consumer, one of whose inputs is the producer (Relax's ``used_by``).

    As a value it is the consumer's, so that chains read from left to right.

    Attributes:
        producer: What the edge comes from.
        consumer: What it leads to.
        only: Whether nothing else may use the producer's value.
        index: The consumer's input slot, or None for any.
    """

    producer: DFPattern
    consumer: DFPattern
    only: bool = False
    index: int | None = None
    name: str = ""
    place: Place | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """Both ends."""
        return (self.producer, self.consumer)

    def spelled(self, spell: Spell) -> str:
        """``p.used_by(q)``."""
        word = "only_used_by" if self.only else "used_by"
        index = "" if self.index is None else f", {self.index}"
        inner = _operand(self.producer, spell)
        return f"{inner}.{word}({spell(self.consumer)}{index})"


@dataclass(frozen=True, eq=False, repr=False)
class RepeatPattern(Combinators):
    """A chain of nodes of one kind that ends in *base* (Relay's recursive patterns).

    Attributes:
        step: One node of the chain; its first argument stands for the rest of the chain. Names
            inside it are bound afresh in each node, so they mean nothing outside.
        base: What the chain ends in.
        least: Fewest nodes.
        most: Most nodes, or None.
    """

    step: CallPattern
    base: DFPattern
    least: int = 0
    most: int | None = None
    name: str = ""
    place: Place | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The base, then the further inputs of each node."""
        return (self.base, *self.step.args[1:])

    def spelled(self, spell: Spell) -> str:
        """``repeat(Cast, p, min=1, max=8)``."""
        args = [spell(arg) for arg in self.step.args[1:]]
        if self.step.is_unordered:
            args = [f"unordered({', '.join(args)})"]
        args.insert(0, spell(self.base))
        rest = ["..."] if self.step.rest else []
        bounds = [f"min={self.least}"] if self.least else []
        bounds += [] if self.most is None else [f"max={self.most}"]
        attributes = spelled_attributes(self.step.attributes)
        if self.step.attributes_name:
            attributes.append(f"**{self.step.attributes_name}")
        items = [self.step.op.spelled(spell), *args, *rest, *bounds, *attributes]
        return f"repeat({', '.join(items)})"


@dataclass(frozen=True, eq=False, repr=False)
class DominatorPattern(Combinators):
    """A region between a parent and the child that all its uses lead to (Relay's dominator).

    Attributes:
        parent: The node at the top, whose outputs are read inside the region only.
        path: What every node between the two must match, each time anew.
        child: The node at the bottom; its value is the pattern's.
    """

    parent: DFPattern
    path: DFPattern
    child: DFPattern
    name: str = ""
    place: Place | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """All three."""
        return (self.parent, self.path, self.child)

    def spelled(self, spell: Spell) -> str:
        """``dominates(parent, path, child)``."""
        return f"dominates({', '.join(map(spell, self.parts))})"


@dataclass(frozen=True, eq=False, repr=False)
class OutputsPattern(Combinators):
    """Several outputs at once: the pattern of a graph rather than of a tree; only outermost."""

    outputs: tuple[DFPattern, ...]
    place: Place | None = None
    name: str = field(default="", init=False)

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The outputs."""
        return self.outputs

    def spelled(self, spell: Spell) -> str:
        """``q, k, v``."""
        return ", ".join(map(spell, self.outputs))


DFPattern: TypeAlias = (
    WildcardPattern
    | AbsentPattern
    | ConstantPattern
    | InputPattern
    | CallPattern
    | OutputPattern
    | OrPattern
    | AndPattern
    | NotPattern
    | TypedPattern
    | SameShapePattern
    | EdgePattern
    | RepeatPattern
    | DominatorPattern
    | OutputsPattern
)
"""Every kind of pattern there is; matched exhaustively wherever patterns are taken apart."""


def _operand(part: DFPattern, spell: Spell) -> str:
    """Write *part* so that an operator or a method may stand beside it."""
    text = spell(part)
    is_number = text[:1].isdigit() or text.startswith("-")
    return f"({text})" if is_number or (part.needs_brackets and not text.isidentifier()) else text
