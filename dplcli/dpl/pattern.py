"""Patterns as frozen values: the words of the language, and no logic.

The words are those of TVM's dataflow pattern language (``python/tvm/relax/dpl/pattern.py``,
``python/tvm/relay/dataflow_pattern``) on ONNX's values and nodes. Matching lives in
:mod:`dplcli.dpl.matcher`; the text spelling in :mod:`dplcli.dpl.text`.

A pattern object is one thing: used twice, it matches the same value (or node) twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import EllipsisType

    from dplcli.ir import Dim

Scalar: TypeAlias = int | float | str
AttributeValue: TypeAlias = Scalar | tuple[Scalar, ...]

STANDARD_DOMAIN = ""


@dataclass(frozen=True)
class Place:
    """Where in a pattern's text something stands: 1-based line, 0-based column."""

    line: int
    column: int


class _Combinators:
    """Operators and methods that build a larger pattern from this one."""

    __slots__ = ()

    @property
    def _self(self) -> DFPattern:
        return cast("DFPattern", self)

    def __or__(self, other: DFPattern) -> OrPattern:
        """Match either; this one is tried first."""
        return OrPattern(self._self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        """Match both at the same value."""
        return AndPattern(self._self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        """Match ``Add``."""
        return _call("Add", self._self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        """Match ``Sub``."""
        return _call("Sub", self._self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        """Match ``Mul``."""
        return _call("Mul", self._self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        """Match ``Div``."""
        return _call("Div", self._self, other)

    def __matmul__(self, other: DFPattern) -> CallPattern:
        """Match ``MatMul``."""
        return _call("MatMul", self._self, other)

    def __pow__(self, other: DFPattern) -> CallPattern:
        """Match ``Pow``."""
        return _call("Pow", self._self, other)

    def __neg__(self) -> CallPattern:
        """Match ``Neg``."""
        return _call("Neg", self._self)

    def optional(self, build: Callable[[DFPattern], DFPattern]) -> OrPattern:
        """Match this pattern alone, or what *build* makes round it (Relay's ``optional``)."""
        return OrPattern(self._self, build(self._self))

    def has_dtype(self, *dtypes: str) -> TypedPattern:
        """Match if the value's element type is known and one of *dtypes*."""
        return TypedPattern(self._self, dtypes=dtypes)

    def has_rank(self, *ranks: int) -> TypedPattern:
        """Match if the value's rank is known and one of *ranks*."""
        return TypedPattern(self._self, ranks=ranks)

    def has_shape(self, *dims: Dim) -> TypedPattern:
        """Match if the value's shape is known and equal: None is any dimension, a letter one
        dimension that is the same wherever the pattern names it.
        """  # noqa: D205  # one sentence
        return TypedPattern(self._self, shape=dims)


@dataclass(frozen=True, eq=False)
class WildcardPattern(_Combinators):
    """Any present value; named, the same value wherever the name stands."""

    name: str = ""
    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class AbsentPattern(_Combinators):
    """An optional input that is omitted."""

    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class ConstantPattern(_Combinators):
    """A constant; with *value*, one of exactly one element that equals it in its own dtype."""

    name: str = ""
    value: float | None = None
    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class InputPattern(_Combinators):
    """A graph or function input that carries no data; with *source*, the one of that name."""

    source: str = ""
    name: str = ""
    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True)
class OpPattern:
    """A callee: one of several operators of one domain each.

    Attributes:
        ops: (domain, op_type) pairs, preferred ones first.
    """

    ops: tuple[tuple[str, str], ...]

    def __or__(self, other: OpPattern) -> OpPattern:
        """Accept either callee."""
        return OpPattern(self.ops + tuple(op for op in other.ops if op not in self.ops))

    def __call__(
        self, *args: DFPattern | float | EllipsisType | None, **attributes: object
    ) -> CallPattern:
        """Match a node of this operator with exactly these inputs.

        Args:
            args: One pattern per input; a number is a constant, None an omitted input, and ``...``
                as the last one any further inputs.
            attributes: Attributes that must be equal, defaults included.
        """
        rest = bool(args) and args[-1] is ...
        patterns = tuple(as_pattern(arg) for arg in (args[:-1] if rest else args))
        call = CallPattern(self, patterns, rest=rest)
        return call.has_attr(attributes) if attributes else call


@dataclass(frozen=True, eq=False)
class CallPattern(_Combinators):
    """A node: its operator, inputs and attributes.

    As a value it is the node's output 0; ``pattern[1]`` is output 1.

    Attributes:
        op: The callee.
        args: One pattern per input.
        rest: Whether further inputs may follow.
        attributes: What must be equal after defaults are filled in.
        attributes_name: Name that binds all attributes not named, or "".
        name: Name the node was given in the text, or "".
        place: Where it stands in the text.
    """

    op: OpPattern
    args: tuple[DFPattern, ...]
    rest: bool = False
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    attributes_name: str = ""
    name: str = ""
    place: Place | None = field(default=None, repr=False)

    def __getitem__(self, index: int) -> OutputPattern:
        """Match output *index* of the node."""
        return OutputPattern(self, index)

    def named(self, name: str) -> CallPattern:
        """Return a pattern that also binds *name* to the node's output; a new pattern object."""
        return replace(self, name=name)

    def has_attr(self, attributes: dict[str, object]) -> CallPattern:
        """Return a pattern that also demands these attributes; it is a new pattern object."""
        merged = dict(self.attributes) | {k: _attribute_value(v) for k, v in attributes.items()}
        return replace(self, attributes=tuple(merged.items()))


@dataclass(frozen=True, eq=False)
class OutputPattern(_Combinators):
    """One output of the node that *node* matches."""

    node: CallPattern
    index: int
    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class OrPattern(_Combinators):
    """The left pattern or else the right one."""

    left: DFPattern
    right: DFPattern
    name: str = ""
    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class AndPattern(_Combinators):
    """Both patterns at the same value."""

    left: DFPattern
    right: DFPattern
    name: str = ""
    place: Place | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class TypedPattern(_Combinators):
    """A pattern whose value's type is known and as stated; a field that is None is free."""

    pattern: DFPattern
    dtypes: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    shape: tuple[Dim, ...] | None = None
    name: str = ""
    place: Place | None = field(default=None, repr=False)


DFPattern: TypeAlias = (
    WildcardPattern
    | AbsentPattern
    | ConstantPattern
    | InputPattern
    | CallPattern
    | OutputPattern
    | OrPattern
    | AndPattern
    | TypedPattern
)
"""Every kind of pattern there is; matched exhaustively wherever patterns are taken apart."""


def wildcard(name: str = "") -> WildcardPattern:
    """Match any present value."""
    return WildcardPattern(name)


def absent() -> AbsentPattern:
    """Match an omitted optional input."""
    return AbsentPattern()


def is_const(name: str = "", *, value: float | None = None) -> ConstantPattern:
    """Match a constant: an initializer that is no graph input, or a ``Constant`` node's output.

    Args:
        name: Name to bind it to.
        value: Demand exactly one element, equal to this number in the constant's own dtype.
    """
    return ConstantPattern(name, value)


def is_input(source: str = "") -> InputPattern:
    """Match a graph or function input that carries no data; any one, or the one of that name."""
    return InputPattern(source, source)


def is_op(op_type: str, domain: str = STANDARD_DOMAIN) -> OpPattern:
    """Name an operator; call the result with argument patterns to match a node of it."""
    return OpPattern((("" if domain == "ai.onnx" else domain, op_type),))


def as_pattern(arg: DFPattern | float | EllipsisType | None) -> DFPattern:
    """Read a number as a constant and None as an omitted input.

    Raises:
        TypeError: *arg* is none of these.
    """
    if arg is None:
        return AbsentPattern()
    if isinstance(arg, (int, float)):
        return ConstantPattern(value=arg)
    if isinstance(arg, _Combinators):
        return arg
    raise TypeError(f"{arg!r} is not a pattern, a number or None")


def _call(op_type: str, *args: DFPattern | float | None) -> CallPattern:
    return is_op(op_type)(*args)


def _attribute_value(value: object) -> AttributeValue:
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, float, str)) for v in value):
        return tuple(value)
    raise TypeError(f"{value!r} is not an attribute value: a number, a string or a list of them")
