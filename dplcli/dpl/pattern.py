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
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.dpl.callee import (
    Callee,
    FunctionName,
    FunctionPattern,
    OpName,
)
from dplcli.dpl.combinators import Combinators

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.ir import Dim

    Spell: TypeAlias = Callable[["DFPattern"], str]

Scalar: TypeAlias = int | float | str
AttributeValue: TypeAlias = Scalar | tuple[Scalar, ...]

WAIVED = "_"
"""What ``**_`` binds: attributes that a replacement may lose."""


@dataclass(frozen=True)
class Place:
    """Where in a pattern's text something stands: 1-based line, 0-based column."""

    line: int
    column: int


@dataclass(frozen=True)
class ExactValue:
    """A tensor to compare bit by bit.

    Attributes:
        dtype: Name of the element type.
        shape: The dimensions.
        data: The elements' bytes in row-major order.
        items: The elements as nested lists, for the text form.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    items: object = field(compare=False, hash=False)


@dataclass(frozen=True, eq=False, repr=False)
class WildcardPattern(Combinators):
    """Any present value; named, the same value wherever the name stands."""

    name: str = ""
    place: Place | None = None

    @property
    def is_shareable(self) -> bool:
        """A name says by itself what is the same."""
        return not self.name

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``x`` or ``_``."""
        return self.name or "_"


@dataclass(frozen=True, eq=False, repr=False)
class AbsentPattern(Combinators):
    """An optional input that is omitted."""

    place: Place | None = None
    name: str = field(default="", init=False)

    @property
    def is_shareable(self) -> bool:
        """Nothing is the same as nothing."""
        return False

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``None``."""
        return "None"


@dataclass(frozen=True, eq=False, repr=False)
class ConstantPattern(Combinators):
    """A constant; perhaps of one element that equals *value* in its own dtype, or of exact data."""

    name: str = ""
    value: float | None = None
    exact: ExactValue | None = None
    place: Place | None = None

    @property
    def own_line(self) -> str:
        """A constant of a given value is named by assignment."""
        return "" if self.value is None and self.exact is None else self.name

    @property
    def is_shareable(self) -> bool:
        """A name says by itself what is the same."""
        return not self.name

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``const(w)``, ``2.0`` or ``is_value([1, 2], dtype="int64")``."""
        if self.exact is not None:
            items = _literal(self.exact.items)
            shape = f", shape={list(self.exact.shape)}" if 0 in self.exact.shape else ""
            return f'is_value({items}, dtype="{self.exact.dtype}"{shape})'
        if self.value is not None:
            return _literal(self.value)
        return f"const({self.name})"


@dataclass(frozen=True, eq=False, repr=False)
class InputPattern(Combinators):
    """A graph or function input that carries no data; with *source*, the one of that name."""

    source: str = ""
    name: str = ""
    place: Place | None = None

    @property
    def own_line(self) -> str:
        """An input is named after itself, or by assignment."""
        return "" if self.name == self.source else self.name

    @property
    def is_shareable(self) -> bool:
        """A name says by itself what is the same."""
        return not self.name

    def spelled(self, spell: Spell) -> str:  # noqa: ARG002  # it has no parts
        """``input("x")``."""
        return f"input({json.dumps(self.source) if self.source else ''})"


@dataclass(frozen=True)
class OpPattern:
    """A callee: one of several operators or functions, preferred ones first."""

    choices: tuple[Callee, ...]

    def __or__(self, other: OpPattern) -> OpPattern:
        """Accept either callee."""
        return OpPattern(self.choices + tuple(c for c in other.choices if c not in self.choices))

    def __call__(self, *args: Any, **attributes: object) -> CallPattern:  # noqa: ANN401  # see Args
        """Match a node of this operator with exactly these inputs.

        Args:
            args: One pattern per input; a number is a constant, None an omitted input, ``...`` as
                the last one any further inputs, and one :func:`unordered` all of them.
            attributes: Attributes that must be equal, defaults included.

        Raises:
            TypeError: An argument is none of these.
        """
        from dplcli.dpl.builders import call_pattern  # noqa: PLC0415  # they build on this module

        return call_pattern(self, args, attributes)

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns inside its function patterns."""
        functions = (c for c in self.choices if isinstance(c, FunctionPattern))
        return tuple(part for function in functions for part in function.parts)

    def spelled(self, spell: Spell) -> str:
        """``Conv`` or ``(Add | Sub)``."""
        texts = [
            c.spelled_with(spell) if isinstance(c, FunctionPattern) else c.spelled()
            for c in self.choices
        ]
        return texts[0] if len(texts) == 1 else f"({' | '.join(texts)})"


@dataclass(frozen=True, eq=False, repr=False)
class CallPattern(Combinators):
    """A node: its operator, inputs and attributes.

    As a value it is the node's output 0; ``pattern[1]`` is output 1.

    Attributes:
        op: The callee.
        args: One pattern per input.
        rest: Whether further inputs may follow.
        is_unordered: Whether the inputs may come in any order, whatever the operator.
        attributes: What must be equal after defaults are filled in.
        attributes_name: Name that binds all attributes not named; "_" waives them, "" leaves
            them free.
        bodies: By attribute name, patterns for the results of the node's bodies.
        name: Name of the node, which is also that of its output 0, or "".
        output_names: Names of the outputs from 1 on, "" for those without.
        place: Where it stands in the text.
    """

    op: OpPattern
    args: tuple[DFPattern, ...] = ()
    rest: bool = False
    is_unordered: bool = False
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    attributes_name: str = ""
    bodies: tuple[tuple[str, tuple[DFPattern, ...]], ...] = ()
    name: str = ""
    output_names: tuple[str, ...] = ()
    place: Place | None = None

    def __getitem__(self, index: int) -> OutputPattern:
        """Match output *index* of the node.

        Raises:
            IndexError: A negative index: how many outputs a node has is not known.
        """
        if index < 0:
            raise IndexError("outputs are counted from the first one")
        return OutputPattern(self, index)

    def outputs(self, *names: str) -> tuple[DFPattern, ...]:
        """Name the first outputs, "" for those without, and return a pattern for each.

        The first of them is the node itself, which is a new pattern object.
        """
        node = replace(self, name=names[0], output_names=names[1:])
        return (node, *(OutputPattern(node, index) for index in range(1, len(names))))

    def has_attr(self, attributes: Mapping[str, object]) -> CallPattern:
        """Return a pattern that also demands these attributes; it is a new pattern object.

        Raises:
            TypeError: A value is no number, string, or list of them.
        """
        merged = dict(self.attributes) | {k: attribute_value(v) for k, v in attributes.items()}
        return replace(self, attributes=tuple(merged.items()))

    def bind_attrs(self, name: str = WAIVED) -> CallPattern:
        """Return a pattern that binds all attributes not named; it is a new pattern object."""
        return replace(self, attributes_name=name)

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """Patterns of functions called, arguments, then results of bodies."""
        results = tuple(result for _, of_body in self.bodies for result in of_body)
        return (*self.op.parts, *self.args, *results)

    @property
    def own_line(self) -> str:
        """``conv``, or ``y, mean`` where further outputs have names."""
        if not self.output_names:
            return self.name
        return ", ".join(name or "_" for name in (self.name, *self.output_names))

    def spelled(self, spell: Spell) -> str:
        """``Conv(x, w, group=1, **attrs)``."""
        if self.bodies:
            return f"if_({', '.join([spell(self.args[0]), *self._branches(spell)])})"
        args = [spell(arg) for arg in self.args]
        if self.is_unordered:
            args = [f"unordered({', '.join(args)})"]
        return self._spelled_with(spell, args)

    def _branches(self, spell: Spell) -> list[str]:
        texts = [", ".join(map(spell, results)) for _, results in self.bodies]
        return [
            text if len(results) == 1 else f"({text})"
            for text, (_, results) in zip(texts, self.bodies, strict=True)
        ]

    def _spelled_with(self, spell: Spell, args: list[str]) -> str:
        items = [*args, *(["..."] if self.rest else []), *spelled_attributes(self.attributes)]
        if self.attributes_name:
            items.append(f"**{self.attributes_name}")
        if len(self.op.choices) == 1 and isinstance(self.op.choices[0], FunctionName):
            return f"call({', '.join([json.dumps(self.op.choices[0].name), *items])})"
        return f"{self.op.spelled(spell)}({', '.join(items)})"

    def spelled_as_option(self, spell: Spell) -> str:
        """``optional(Add)(base, b)``: this node, or its first argument alone."""
        text = self._spelled_with(spell, [spell(arg) for arg in self.args])
        op = self.op.spelled(spell)
        return f"optional({op.strip('()')}){text.removeprefix(op)}"


@dataclass(frozen=True, eq=False, repr=False)
class OutputPattern(Combinators):
    """One output of the node that *node* matches."""

    node: CallPattern
    index: int
    name: str = ""
    place: Place | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The node."""
        return (self.node,)

    @property
    def is_shareable(self) -> bool:
        """Two that mean the same output of the same node are the same."""
        return False

    @property
    def given_name(self) -> str:
        """The name that the node gives to this output."""
        names = (self.node.name, *self.node.output_names)
        return names[self.index] if self.index < len(names) else ""

    def spelled(self, spell: Spell) -> str:
        """``node[1]``, or its name."""
        if self.index and self.given_name:
            return self.given_name
        return f"{spell(self.node)}[{self.index}]"


@dataclass(frozen=True, eq=False, repr=False)
class OrPattern(Combinators):
    """The left pattern or else the right one."""

    left: DFPattern
    right: DFPattern
    name: str = ""
    place: Place | None = None
    needs_brackets = True

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """Both."""
        return (self.left, self.right)

    @property
    def folded(self) -> tuple[CallPattern, DFPattern] | None:
        """With and without the right node: ``optional``."""
        right = self.right
        if not isinstance(right, CallPattern) or right.bodies or right.is_unordered:
            return None
        named = isinstance(right.op.choices[0], (OpName,)) and not right.op.parts
        return (
            (right, self.left) if named and right.args[:1] and right.args[0] is self.left else None
        )

    def spelled(self, spell: Spell) -> str:
        """``p | q``."""
        return f"{_operand(self.left, spell)} | {_operand(self.right, spell)}"

    def spelled_folded(self, spell: Spell) -> str:
        """``optional(Relu)(p)``."""
        assert isinstance(self.right, CallPattern)  # noqa: S101  # see folded
        return self.right.spelled_as_option(spell)


@dataclass(frozen=True, eq=False, repr=False)
class AndPattern(Combinators):
    """Both patterns at the same value."""

    left: DFPattern
    right: DFPattern
    name: str = ""
    place: Place | None = None
    needs_brackets = True

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """Both."""
        return (self.left, self.right)

    def spelled(self, spell: Spell) -> str:
        """``p & q``."""
        return f"{_operand(self.left, spell)} & {_operand(self.right, spell)}"


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
        if self.dtypes is not None and self.shape is not None:
            return f'{inner}.has_type("{self.dtypes[0]}[{dims}]")'
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
        args = [spell(arg) for arg in self.parts]
        rest = ["..."] if self.step.rest else []
        bounds = [f"min={self.least}"] if self.least else []
        bounds += [] if self.most is None else [f"max={self.most}"]
        attributes = spelled_attributes(self.step.attributes)
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


def attribute_value(value: object) -> AttributeValue:
    """Freeze the value of an attribute.

    Raises:
        TypeError: It is no number, string, or list of them.
    """
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, float, str)) for v in value):
        return tuple(value)
    raise TypeError(f"{value!r} is not an attribute value: a number, a string or a list of them")


def spelled_attributes(attributes: tuple[tuple[str, AttributeValue], ...]) -> list[str]:
    """Write ``name=value`` for each, or ``**{"a name": value}`` where it cannot be a keyword."""
    return [
        f"{name}={_literal(value)}"
        if name.isidentifier() and not keyword.iskeyword(name)
        else f"**{{{json.dumps(name)}: {_literal(value)}}}"
        for name, value in attributes
    ]


def _operand(part: DFPattern, spell: Spell) -> str:
    """Write *part* so that an operator or a method may stand beside it."""
    text = spell(part)
    is_number = text[:1].isdigit() or text.startswith("-")
    return f"({text})" if is_number or (part.needs_brackets and not text.isidentifier()) else text


def _literal(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "1e999" if value > 0 else "-1e999" if value < 0 else '"nan"'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
