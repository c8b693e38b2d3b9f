"""Patterns as frozen values: the words of the language, without the matching.

The words are those of TVM's dataflow pattern language (``python/tvm/relax/dpl/pattern.py``,
``python/tvm/relay/dataflow_pattern``) on ONNX's values and nodes. Matching lives in
:mod:`dplcli.language.matcher`; the text spelling in :mod:`dplcli.language.text`.

A pattern object is one thing: used twice, it matches the same value (or node) twice. Two patterns
are equal if they read the same: ``repr`` gives the text form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from dplcli.errors import did_you_mean
from dplcli.ir.operators import OP_KINDS, canonical_domain
from dplcli.ir.types import DTYPE_CODES, ArrayTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from numpy.typing import ArrayLike

    from dplcli.ir import Dim

    Spell: TypeAlias = "Callable[[DFPattern], str]"


# What a node pattern calls: operators by name or class, and model-local functions.


STANDARD_DOMAIN = ""
ANY_DOMAIN = "*"


@dataclass(frozen=True)
class OpName:
    """An operator of one domain ("" is the standard one), or of any ("*")."""

    op_type: str
    domain: str = STANDARD_DOMAIN

    def spelled(self) -> str:
        """``Conv``, ``com.microsoft.Gelu`` or ``op("Gelu", domain=any)``."""
        if self.domain == ANY_DOMAIN:
            return f"op({json.dumps(self.op_type)}, domain=any)"
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True)
class OpKind:
    """Every standard operator of a class (TVM's ``TOpPattern``); "" is any operator at all."""

    kind: str = ""

    def __post_init__(self) -> None:
        """Refuse a class that does not exist.

        Raises:
            ValueError: Names those that do.
        """
        if self.kind and self.kind not in OP_KINDS:
            raise ValueError(
                f"no class of operators {self.kind!r}; there are: {', '.join(OP_KINDS)}"
            )

    def spelled(self) -> str:
        """``op(kind="elementwise")``."""
        return f'op(kind="{self.kind}")' if self.kind else "op()"


@dataclass(frozen=True)
class FunctionName:
    """A model-local function by its name, perhaps ``domain::name``; "" is any function."""

    name: str = ""

    def accepts(self, domain: str, name: str) -> bool:
        """Tell whether the function *name* of *domain* is meant."""
        return self.name in {"", name, f"{domain}::{name}"}

    def spelled(self) -> str:
        """``call("local::f")``."""
        return f"call({json.dumps(self.name)})"


@dataclass(frozen=True, eq=False)
class FunctionPattern:
    """A model-local function by what it computes (TVM's ``FunctionPattern``).

    Attributes:
        params: One pattern per formal input, or None for any number of any inputs. They are not
            linked to the arguments of the call.
        results: One pattern per output, from the first; further outputs do not matter.
        metadata: Entries that the function's metadata must have.
    """

    params: tuple[DFPattern, ...] | None
    results: tuple[DFPattern, ...]
    metadata: tuple[tuple[str, str], ...] = ()

    @cached_property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns it is made of."""
        return (*(self.params or ()), *self.results)

    def spelled_with(self, spell: Callable[[DFPattern], str]) -> str:
        """``function([a, b], body)``."""
        params = "..." if self.params is None else f"[{', '.join(map(spell, self.params))}]"
        results = ", ".join(map(spell, self.results))
        shown = results if len(self.results) == 1 else f"({results})"
        wanted = f", metadata={json.dumps(dict(self.metadata))}" if self.metadata else ""
        return f"function({params}, {shown}{wanted})"


Callee: TypeAlias = OpName | OpKind | FunctionName | FunctionPattern


# Places in texts, and the values of attributes.


Scalar: TypeAlias = int | float | str
AttributeValue: TypeAlias = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True)
class TextPosition:
    """Where in a pattern's text something stands: 1-based line, 0-based column."""

    line: int
    column: int


_SCALARS = (Real, str)


def _scalar(value: Real | str) -> Scalar:
    """Turn numpy's numbers, and truth values, into Python's plain ones."""
    if isinstance(value, str):
        return str(value)
    return int(value) if isinstance(value, Integral) else float(value)


def attribute_value(value: object) -> AttributeValue:
    """Freeze the value of an attribute.

    Raises:
        TypeError: It is no number, string, or list of them.
    """
    if isinstance(value, (list, tuple)) and all(isinstance(v, _SCALARS) for v in value):
        return tuple(map(_scalar, value))
    if isinstance(value, _SCALARS):
        return _scalar(value)
    raise TypeError(f"{value!r} is not an attribute value: a number, a string or a list of them")


# The functions that patterns are made with in Python; the words are TVM's.


_TYPE = re.compile(r"^([A-Za-z][A-Za-z0-9]*|[?_]?)(?:\[(.*)\])?$")


# Patterns of nodes and of their outputs.


@dataclass(frozen=True)
class OpPattern:
    """A callee: one of several operators or functions, preferred ones first.

    Attributes:
        choices: Those.
        name: Named, it is the same operator wherever the name stands, and a replacement may use it.
    """

    choices: tuple[Callee, ...]
    name: str = ""

    def as_code(self) -> str:
        """Write it as Python code does."""
        texts = [f'is_op("{c.op_type}")' for c in self.choices if isinstance(c, OpName)]
        return " | ".join(texts) if len(texts) < 2 else f"({' | '.join(texts)})"  # noqa: PLR2004  # one choice needs no brackets

    def named(self, name: str) -> OpPattern:
        """Return an operator variable: ``(is_op("Mul") | is_op("Add")).named("f")``.

        Raises:
            ValueError: A choice is a function.
        """
        if not all(isinstance(choice, (OpName, OpKind)) for choice in self.choices):
            raise ValueError("a variable stands for operators, not for functions")
        return OpPattern(self.choices, name)

    def __or__(self, other: OpPattern) -> OpPattern:
        """Accept either callee.

        Raises:
            TypeError: The other one is not a callee but a pattern.
        """
        if not isinstance(other, OpPattern):
            as_pattern(self)
        return OpPattern(self.choices + tuple(c for c in other.choices if c not in self.choices))

    def __call__(self, *args: Any, **attributes: object) -> CallPattern:  # noqa: ANN401  # see Args
        """Match a node of this operator with exactly these inputs.

        Args:
            args: One pattern per input; a number is a constant, None an omitted input, ``...`` as
                the last one any further inputs, :func:`variadic` any number of inputs at its place,
                and one :func:`unordered` all of them.
            attributes: Attributes that must be equal, defaults included.

        Raises:
            TypeError: An argument is none of these.
        """
        rest = bool(args) and args[-1] is ...
        given = args[:-1] if rest else args
        is_unordered = len(given) == 1 and isinstance(given[0], Unordered)
        patterns = tuple(as_pattern(arg) for arg in (given[0] if is_unordered else given))
        call = CallPattern(self, patterns, rest=rest, is_unordered=is_unordered)
        return call.has_attr(attributes) if attributes else call

    @cached_property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns inside its function patterns."""
        functions = (c for c in self.choices if isinstance(c, FunctionPattern))
        return tuple(part for function in functions for part in function.parts)

    def spelled(self, spell: Spell) -> str:
        """``Conv``, ``(Add | Sub)`` or the name of a variable."""
        if self.name:
            return self.name
        text = self.alternatives(spell)
        return text if len(self.choices) == 1 else f"({text})"

    def alternatives(self, spell: Spell) -> str:
        """``Conv`` or ``Add | Sub``, without brackets."""
        return " | ".join(
            c.spelled_with(spell) if isinstance(c, FunctionPattern) else c.spelled()
            for c in self.choices
        )


_IF = OpPattern((OpName("If"),))
_BRANCHES = ("then_branch", "else_branch")


class Unordered(tuple[Any, ...]):
    """Arguments in any order; see :func:`unordered`."""

    __slots__ = ()


def wildcard(name: str = "") -> WildcardPattern:
    """Match any present value."""
    return WildcardPattern(name=name)


def rest(name: str = "") -> VariadicPattern:
    """Match any number of inputs in a row, as an argument of a node: ``Concat(*head, x)``."""
    return VariadicPattern(name=name)


def absent() -> AbsentPattern:
    """Match an omitted optional input."""
    return AbsentPattern()


def is_const(
    array: ArrayLike | None = None,
    *,
    name: str = "",
    value: float | None = None,
    exact: bool = False,
) -> ConstantPattern:
    """Match a constant: an initializer that is no graph input, or a ``Constant`` node's output.

    Args:
        array: Name to bind it to, if it is a text; else, with *exact*, the data to equal.
        name: Name to bind it to.
        value: Demand exactly one element, equal to this number in the constant's own dtype.
        exact: Demand the dtype, shape and bytes of *array* (TVM's ``is_expr``).

    Raises:
        TypeError: *array* is given without *exact*.
    """
    if isinstance(array, str) and not exact:
        return ConstantPattern(value, name=array)
    if array is None:
        return ConstantPattern(value, name=name)
    if not exact:
        raise TypeError("is_const(array) compares data: say exact=True, or give value=NUMBER")
    return ConstantPattern(name=name, exact=exact_value(array))


def is_value(array: ArrayLike) -> ConstantPattern:
    """Match a constant of the dtype, shape and bytes of *array*."""
    return is_const(array, exact=True)


def exact_value(array: ArrayLike) -> ExactValue:
    """Freeze an array for comparison."""
    data = np.ascontiguousarray(array).reshape(np.shape(array))
    tensor = ArrayTensor(data)
    raw = (
        "\0".join(map(str, data.reshape(-1))).encode()
        if data.dtype.kind in "OUS"
        else data.tobytes()
    )
    return ExactValue(tensor.dtype, tensor.shape, raw, data.tolist() if data.size else [])


def is_input(source: str = "") -> InputPattern:
    """Match a graph or function input that carries no data; any one, or the one of that name."""
    return InputPattern(source, name=source)


def is_op(op_type: str = "", domain: str = "", *, kind: str = "") -> OpPattern:
    """Name an operator; call the result with argument patterns to match a node of it.

    Args:
        op_type: Its name; "" for any operator, or any of a class.
        domain: Its domain; "" and "ai.onnx" are the standard one, "*" is any.
        kind: A class of operators: elementwise, broadcast, injective, reduction, out-fusable or
            opaque (TVM's ``TOpPattern``).

    Raises:
        ValueError: There is no such class.
    """
    if not op_type:
        return OpPattern((OpKind(kind),))
    return OpPattern((OpName(op_type, canonical_domain(domain)),))


def op_var(name: str, *op_types: str) -> OpPattern:
    """Name an operator variable: one of some operators, the same wherever the result is called."""
    return OpPattern(tuple(is_op(op_type).choices[0] for op_type in op_types), name)


def is_call(name: str = "") -> OpPattern:
    """Name a model-local function, perhaps as ``domain::name``; "" for any."""
    return OpPattern((FunctionName(name),))


def is_function(
    params: Sequence[Any] | None,
    results: Any,  # noqa: ANN401  # a pattern or several
    metadata: Mapping[str, str] | None = None,
) -> OpPattern:
    """Describe a model-local function by its body; call the result to match a call of it.

    Args:
        params: One pattern per formal input; None for any number of any inputs.
        results: A pattern for the first output, or a tuple of them.
        metadata: What the function's metadata must say.
    """
    patterns = None if params is None else tuple(map(as_pattern, params))
    outputs = tuple(map(as_pattern, results if isinstance(results, tuple) else (results,)))
    return OpPattern((FunctionPattern(patterns, outputs, tuple((metadata or {}).items())),))


def is_if(condition: Any, then: Any, otherwise: Any) -> CallPattern:  # noqa: ANN401  # patterns
    """Match an ``If`` node by its condition and the results of its branches, several as tuples."""
    results = tuple(
        tuple(map(as_pattern, result if isinstance(result, tuple) else (result,)))
        for result in (then, otherwise)
    )
    bodies = tuple(zip(_BRANCHES, results, strict=True))
    return CallPattern(_IF, (as_pattern(condition),), bodies=bodies)


def unordered(*args: Any) -> Unordered:  # noqa: ANN401  # patterns, numbers or None
    """Let the inputs of a node come in any order: ``is_op("Concat")(unordered(a, b))``."""
    return Unordered(args)


def outputs(*patterns: DFPattern) -> OutputsPattern:
    """Describe a graph by several of its outputs.

    Raises:
        ValueError: There are fewer than two.
    """
    if len(patterns) < 2:  # noqa: PLR2004  # one output needs no such pattern
        raise ValueError("several outputs are at least two")
    return OutputsPattern(tuple(map(as_pattern, patterns)))


def repeat(  # as the text form
    step: DFPattern | OpPattern | str,
    *args: Any,  # noqa: ANN401  # patterns, numbers or None
    min: int = 0,  # noqa: A002  # the word of the text form
    max: int | None = None,  # noqa: A002  # the word of the text form
    **named: Any,  # noqa: ANN401  # a pattern, or attributes
) -> RepeatPattern:
    """Match a chain of equal steps that ends in a base, longest first (Relay's recursive patterns).

    ``repeat("Add", base, b)`` is a chain of single nodes, each of which reads the one before it
    first. ``repeat(is_op("Relu")(is_op("Conv")(wildcard(), w)), base)`` is one of steps of several
    nodes: the wildcard without a name is what the step before it makes. A name says which wildcard
    is meant where there are others: ``repeat(is_op("Add")(is_op("Relu")(h), h), h=base)``.

    Args:
        step: What every step is, or the operator of its only node.
        args: The base, or any value; after an operator also further inputs of each node. What a
            step binds means nothing outside of it.
        min: Fewest steps.
        max: Most steps, or None.
        named: The base, by the name of the wildcard; after an operator attributes of each node.

    Raises:
        TypeError: There is no base, or more than one.
        ValueError: No chain has so many steps, or no wildcard is the step before.
    """
    if min < 0 or (max is not None and max < min):
        raise ValueError(f"no chain has at least {min} and at most {max} nodes")
    if isinstance(step, DFPattern):
        if len(args) + len(named) > 1:
            raise TypeError("a chain of steps ends in one base: repeat(step, base)")
        name, base = next(iter(named.items()), ("", args[0] if args else WildcardPattern()))
        return RepeatPattern(step, hole_of(step, name), as_pattern(base), min, max)
    if not args:
        raise TypeError("a chain ends in a base: repeat(op, base)")
    hole = WildcardPattern()
    callee = is_op(step) if isinstance(step, str) else step
    return RepeatPattern(callee(hole, *args[1:], **named), hole, as_pattern(args[0]), min, max)


def hole_of(step: DFPattern, name: str) -> WildcardPattern:
    """Return the wildcard of a step that stands for the step before it; "" is one without a name.

    Raises:
        ValueError: None does, or it is unclear which.
    """
    leaves = (part for part in visible_parts(step) if isinstance(part, WildcardPattern))
    holes = [leaf for leaf in leaves if leaf.name == name]
    if not holes or (len(holes) > 1 and not name):
        often = "no value is" if not holes else f"{len(holes)} values may be"
        raise ValueError(f"{often} {name or '_'}, which a step of a chain has of the step before")
    return holes[0]


def dominates(parent: DFPattern, path: DFPattern | None, child: DFPattern) -> DominatorPattern:
    """Match *child* where all uses of *parent* lead to it through *path* nodes only.

    Without a *path* any node may lie between them.
    """
    between = WildcardPattern() if path is None else as_pattern(path)
    return DominatorPattern(as_pattern(parent), between, as_pattern(child))


def as_pattern(arg: Any) -> DFPattern:  # noqa: ANN401  # see Raises
    """Read a number as a constant and None as an omitted input.

    Raises:
        TypeError: *arg* is none of these.
    """
    if arg is None:
        return AbsentPattern()
    if isinstance(arg, (int, float)):
        return ConstantPattern(value=int(arg) if isinstance(arg, int) else float(arg))
    if isinstance(arg, DFPattern):
        return arg
    if isinstance(arg, OpPattern):
        raise TypeError(f"{arg.as_code()} is not called: {arg.as_code()}(x) is a node that reads x")
    raise TypeError(f"{arg!r} is not a pattern, a number or None")


_DTYPES_ELSEWHERE = {"float": "float32", "double": "float64", "half": "float16", "long": "int64"}
"""What ONNX's texts, and PyTorch, call some element types."""


def unknown_dtype(name: str) -> tuple[str, str | None]:
    """Say that there is no such element type, and which one was perhaps meant."""
    meant = _DTYPES_ELSEWHERE.get(name.lower())
    hint = f"did you mean {meant!r}?" if meant else did_you_mean(name, DTYPE_CODES)
    return f"{name!r} is not an element type", hint


def _dimension(item: str, text: str) -> Dim:
    if item in {"_", "?"}:
        return None
    if item.isdecimal():
        return int(item)
    if item.isidentifier():
        return item
    raise ValueError(f"{text!r}: {item!r} is not a dimension: a number, a letter, or _ for any")


# The base of all patterns: operators and methods.


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DFPattern:
    """A pattern. Two are equal if their texts are; operators and methods combine them.

    Attributes:
        name: What it binds, or "".
        place: Where it stands in a text, if it was read from one.
        write: Writes the text form; :mod:`dplcli.language.text`, which reads it, puts it here.
    """

    name: str = ""
    place: TextPosition | None = None
    write: ClassVar[Callable[[DFPattern], str]]

    @cached_property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns it is directly made of, left to right, each as often as it occurs."""
        return tuple(part for part in vars(self).values() if isinstance(part, DFPattern))

    def __repr__(self) -> str:
        """Return the text form."""
        return DFPattern.write(self)

    def __eq__(self, other: object) -> bool:
        """Compare the texts."""
        if self is other:
            return True
        return isinstance(other, DFPattern) and repr(self) == repr(other)

    def __hash__(self) -> int:
        """Hash the text."""
        return hash(repr(self))

    # -- operators -----------------------------------------------------------------------------

    def __or__(self, other: Any) -> OrPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match either; this one is tried first."""
        return OrPattern(self, as_pattern(other))

    def __and__(self, other: Any) -> AndPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match both at the same value."""
        return AndPattern(self, as_pattern(other))

    def __invert__(self) -> NotPattern:
        """Match what this does not match."""
        return NotPattern(self)

    def __xor__(self, other: DFPattern) -> EdgePattern:
        """Match *other* where it uses this (Relax's ``a ^ b``)."""
        return self.used_by(other)

    def __rshift__(self, other: DFPattern) -> EdgePattern:
        """Match *other* where it uses this, and nothing else does (Relax's ``a >> b``)."""
        return self.only_used_by(other)

    def __add__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Add``."""
        return is_op("Add")(self, other)

    def __sub__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Sub``."""
        return is_op("Sub")(self, other)

    def __mul__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Mul``."""
        return is_op("Mul")(self, other)

    def __truediv__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Div``."""
        return is_op("Div")(self, other)

    def __matmul__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``MatMul``."""
        return is_op("MatMul")(self, other)

    def __pow__(self, other: Any) -> CallPattern:  # noqa: ANN401  # a pattern, a number or None
        """Match ``Pow``."""
        return is_op("Pow")(self, other)

    def __radd__(self, other: float) -> CallPattern:
        """Match ``Add`` of a number."""
        return is_op("Add")(other, self)

    def __rsub__(self, other: float) -> CallPattern:
        """Match ``Sub`` from a number."""
        return is_op("Sub")(other, self)

    def __rmul__(self, other: float) -> CallPattern:
        """Match ``Mul`` of a number."""
        return is_op("Mul")(other, self)

    def __rtruediv__(self, other: float) -> CallPattern:
        """Match ``Div`` of a number."""
        return is_op("Div")(other, self)

    def __rpow__(self, other: float) -> CallPattern:
        """Match ``Pow`` of a number."""
        return is_op("Pow")(other, self)

    def __neg__(self) -> CallPattern:
        """Match ``Neg``."""
        return is_op("Neg")(self)

    # -- methods -------------------------------------------------------------------------------

    def named(self, name: str) -> Self:
        """Return a pattern that also binds *name* to what it matches; a new pattern object."""
        return replace(self, name=name)

    def optional(self, build_round: Callable[[DFPattern], DFPattern]) -> OrPattern:
        """Match this pattern alone, or *build_round* of it (Relay's ``optional``)."""
        return self | build_round(self)

    def used_by(self, other: DFPattern, index: int | None = None) -> EdgePattern:
        """Match *other* where it uses this value, in input slot *index* if that is given."""
        return self._edge(other, only=False, index=index)

    def only_used_by(self, other: DFPattern, index: int | None = None) -> EdgePattern:
        """Match *other* where it uses this value, and nothing else does.

        A graph output is a use, too, and so is a node that reads the value inside a body.
        """
        return self._edge(other, only=True, index=index)

    def _edge(self, consumer: DFPattern, *, only: bool, index: int | None) -> EdgePattern:
        """Connect two patterns; if *consumer* is a chain of edges, this one leads to its start."""
        chain: list[EdgePattern] = []
        start = as_pattern(consumer)
        while isinstance(start, EdgePattern):
            chain.append(start)
            start = start.producer
        joined = EdgePattern(self, start, only, index)
        for link in reversed(chain):
            joined = replace(link, producer=joined)
        return joined

    def not_used_by(self, other: DFPattern, index: int | None = None) -> UnusedPattern:
        """Match this value where nothing that reads it is *other*: not followed by it.

        Args:
            other: What no reader is; names that stand only inside it bind nothing.
            index: The input slot that it does not read the value in; None for any.
        """
        return UnusedPattern(self, as_pattern(other), index)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Match this as the child of a region: see :func:`dplcli.language.dominates`.

        As in Relay the method belongs to the child; *path* is anything if it is not given.
        """
        return dominates(parent, path, self)

    def same_shape_as(self, other: DFPattern) -> SameShapePattern:
        """Match if the value provably has the shape of what *other* matches elsewhere."""
        return SameShapePattern(self, as_pattern(other))

    def has_dtype(self, *dtypes: str) -> TypedPattern:
        """Match if the value's element type is known and one of *dtypes*.

        Raises:
            ValueError: There is no such element type.
        """
        for dtype in dtypes:
            if dtype not in DTYPE_CODES:
                raise ValueError("; ".join(filter(None, unknown_dtype(dtype))))
        return TypedPattern(self, dtypes=dtypes)

    def has_rank(self, *ranks: int) -> TypedPattern:
        """Match if the value's rank is known and one of *ranks*."""
        return TypedPattern(self, ranks=ranks)

    def has_shape(self, *dims: Dim | Sequence[Dim]) -> TypedPattern:
        """Match if the value's shape is known and equal; TVM's ``has_shape([1, 3])`` is understood.

        None is any dimension, a letter one dimension that is the same wherever the pattern has it.

        Raises:
            ValueError: Something is no dimension.
        """
        only: Any = dims[0] if len(dims) == 1 else None
        shape: tuple[Any, ...] = tuple(only) if isinstance(only, (list, tuple)) else dims
        for dim in shape:
            if not (dim.isidentifier() if isinstance(dim, str) else isinstance(dim, int | None)):
                raise ValueError(f"{dim!r} is not a dimension: a number, a letter, or None for any")
        return TypedPattern(self, shape=shape)

    def has_type(self, text: str) -> TypedPattern:
        """Match if the value's type is known and equals ``float32[n, 4]``, with n as a variable.

        Raises:
            ValueError: *text* is no type.
        """
        parts = _TYPE.match("".join(text.split()))
        dtype, dims = ("", None) if parts is None else parts.groups()
        has_dtype = dtype not in {"", "?", "_"}
        if dims is None and not has_dtype:
            raise ValueError(f"{text!r} is not a type; write float32[n, 4]")
        items = dims.split(",") if dims else []
        shape = None if dims is None else tuple(_dimension(item, text) for item in items)
        return replace(self.has_dtype(dtype) if has_dtype else TypedPattern(self), shape=shape)


WAIVED = "_"
"""What ``**_`` binds: attributes that a replacement may lose."""


@dataclass(frozen=True, eq=False, repr=False)
class CallPattern(DFPattern):
    """A node: its operator, inputs and attributes.

    Used as a value it stands for output 0 of the node; ``pattern[1]`` is output 1.

    Attributes:
        op: The callee.
        args: One pattern per input.
        rest: Whether further inputs may follow.
        is_unordered: Whether the inputs may come in any order, whatever the operator.
        attributes: What must be equal after defaults are filled in.
        captures: Attributes whose values are bound to names, and these names.
        attributes_name: Name that binds all attributes not named; "_" waives them, "" leaves
            them free.
        bodies: By attribute name, patterns for the results of the node's bodies.
        output_names: Names of the outputs from 1 on, "" for those without. The name of the node is
            also that of its output 0.
    """

    op: OpPattern
    args: tuple[DFPattern, ...] = ()
    rest: bool = False
    is_unordered: bool = False
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    captures: tuple[tuple[str, str], ...] = ()
    attributes_name: str = ""
    bodies: tuple[tuple[str, tuple[DFPattern, ...]], ...] = ()
    output_names: tuple[str, ...] = ()

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

    def bind_attr(self, attribute: str, name: str) -> CallPattern:
        """Return a pattern that binds the value of an attribute, which may be a default, to a name.

        Conditions and replacements use the name as they would a number, a text or a list. It is a
        new pattern object.
        """
        return replace(self, captures=(*self.captures, (attribute, name)))

    def bind_attrs(self, name: str = WAIVED) -> CallPattern:
        """Return a pattern that binds all attributes not named; it is a new pattern object."""
        return replace(self, attributes_name=name)

    @property
    def is_variadic(self) -> bool:
        """Whether an argument takes any number of inputs."""
        return any(isinstance(arg, VariadicPattern) for arg in self.args)

    @cached_property
    def parts(self) -> tuple[DFPattern, ...]:
        """Patterns of functions called, arguments, then results of bodies."""
        results = tuple(result for _, of_body in self.bodies for result in of_body)
        return (*self.op.parts, *self.args, *results)


@dataclass(frozen=True, eq=False, repr=False)
class OutputPattern(DFPattern):
    """One output of the node that *node* matches."""

    node: CallPattern
    index: int


# The leaves of a pattern: values, whatever makes them.


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
class WildcardPattern(DFPattern):
    """Any present value; named, the same value wherever the name stands."""


@dataclass(frozen=True, eq=False, repr=False)
class VariadicPattern(DFPattern):
    """Any number of inputs in a row; named, the same ones wherever the name stands.

    Attributes:
        element: What each of them is, with new bindings for each; None for anything.
    """

    element: DFPattern | None = None

    def each(self, element: DFPattern) -> VariadicPattern:
        """Match inputs each of which is *element*; what it binds means nothing outside."""
        return replace(self, element=as_pattern(element))


@dataclass(frozen=True, eq=False, repr=False)
class AbsentPattern(DFPattern):
    """An optional input that is omitted."""

    name: str = field(default="", init=False)


@dataclass(frozen=True, eq=False, repr=False)
class ConstantPattern(DFPattern):
    """A constant; perhaps of one element that equals *value* in its own dtype, or of exact data."""

    value: float | None = None
    exact: ExactValue | None = None


@dataclass(frozen=True, eq=False, repr=False)
class InputPattern(DFPattern):
    """A graph or function input that carries no data; with *source*, the one of that name."""

    source: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class _PairPattern(DFPattern):
    """Two patterns with a sign between them."""

    left: DFPattern
    right: DFPattern


class OrPattern(_PairPattern):
    """The left pattern or else the right one."""


class AndPattern(_PairPattern):
    """Both patterns at the same value."""


@dataclass(frozen=True, eq=False, repr=False)
class NotPattern(DFPattern):
    """A value that *pattern* does not match; names that stand only inside it bind nothing."""

    pattern: DFPattern


@dataclass(frozen=True, eq=False, repr=False)
class TypedPattern(DFPattern):
    """A pattern, and what must be known of its value's type; None stands for any."""

    pattern: DFPattern
    dtypes: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    shape: tuple[Dim, ...] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class SameShapePattern(DFPattern):
    """A pattern whose value provably has the shape of the value that *other* matches."""

    pattern: DFPattern
    other: DFPattern


@dataclass(frozen=True, eq=False, repr=False)
class EdgePattern(DFPattern):
    """The consumer, one of whose inputs is the producer (Relax's ``used_by``).

    Used as a value it stands for the consumer, so chains are written from left to right.

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


@dataclass(frozen=True, eq=False, repr=False)
class UnusedPattern(DFPattern):
    """A pattern, and what nothing is that reads its value.

    Attributes:
        pattern: What the value is.
        consumer: What no reader is; names that stand only inside it bind nothing.
        index: The input slot of the reader, or None for any.
    """

    pattern: DFPattern
    consumer: DFPattern
    index: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class RepeatPattern(DFPattern):
    """A chain of steps of one kind that ends in *base* (Relay's recursive patterns).

    Attributes:
        step: One step of the chain. Names inside it are bound afresh in each step, so they mean
            nothing outside.
        hole: What stands in the step for the rest of the chain.
        base: What the chain ends in.
        least: Fewest steps.
        most: Most steps, or None.
    """

    step: DFPattern
    hole: WildcardPattern
    base: DFPattern
    least: int = 0
    most: int | None = None

    @cached_property
    def parts(self) -> tuple[DFPattern, ...]:
        """The base, then the step."""
        return (self.base, self.step)

    @cached_property
    def link(self) -> CallPattern | None:
        """The node that a step begins with, if it alone reads the step before, as its first input.

        A text names the operator of such a chain.
        """
        call = self.step
        if not (isinstance(call, CallPattern) and call.args and call.args[0] is self.hole):
            return None
        read = [part for whole in all_parts(call) for part in whole.parts]
        is_read_again = sum(part is self.hole for part in read) > 1
        has_names = self.hole.name or call.name or call.output_names or call.bodies
        return None if is_read_again or has_names else call

    @property
    def unit(self) -> str:
        """What a message calls a step."""
        return "step" if self.link is None else "node"


@dataclass(frozen=True, eq=False, repr=False)
class DominatorPattern(DFPattern):
    """A region between a parent and the child that all its uses lead to (Relay's dominator).

    Attributes:
        parent: The node at the top, whose outputs are read inside the region only.
        path: What every node between the two must match, with new bindings for each.
        child: The node at the bottom; the pattern stands for its value.
    """

    parent: DFPattern
    path: DFPattern
    child: DFPattern


@dataclass(frozen=True, eq=False, repr=False)
class OutputsPattern(DFPattern):
    """Several outputs: a pattern of a graph rather than of a tree. It is always a whole pattern."""

    outputs: tuple[DFPattern, ...]
    name: str = field(default="", init=False)

    @cached_property
    def parts(self) -> tuple[DFPattern, ...]:
        """The outputs."""
        return self.outputs


# What a pattern is made of.


def all_parts(pattern: DFPattern) -> list[DFPattern]:
    """List every pattern object once, parts before wholes, left to right."""
    ordered: dict[int, DFPattern] = {}
    pending: list[tuple[DFPattern, bool]] = [(pattern, False)]
    while pending:
        current, expanded = pending.pop()
        if id(current) in ordered:
            continue
        if expanded:
            ordered[id(current)] = current
            continue
        pending.append((current, True))
        pending.extend((part, False) for part in reversed(current.parts))
    return list(ordered.values())


def visible_parts(pattern: DFPattern) -> list[DFPattern]:
    """List the pattern objects that a match binds; those inside ``~``, steps and paths are not."""
    return reachable([pattern])


def taken_parts(pattern: DFPattern) -> list[DFPattern]:
    """List the pattern objects whose nodes a match takes; those inside ``~`` are not."""
    return reachable([pattern], _parts_taken)


def _parts_taken(part: DFPattern) -> tuple[DFPattern, ...]:
    is_denied = isinstance(part, (NotPattern, UnusedPattern))
    return shown_parts(part) if is_denied else part.parts


def hidden_parts(part: DFPattern) -> tuple[DFPattern, ...]:
    """Return the parts of *part* whose bindings cannot be seen outside of it."""
    match part:
        case NotPattern():
            return (part.pattern,)
        case UnusedPattern():
            return (part.consumer,)
        case RepeatPattern():
            return (part.step,)
        case VariadicPattern():
            return part.parts
        case DominatorPattern():
            return (part.path,)
        case _:
            return ()


def shown_parts(part: DFPattern) -> tuple[DFPattern, ...]:
    """Return the parts of *part* whose bindings can be seen outside of it."""
    match part:
        case NotPattern() | VariadicPattern():
            return ()
        case UnusedPattern():
            return (part.pattern,)
        case RepeatPattern():
            return (part.base,)
        case DominatorPattern():
            return (part.parent, part.child)
        case _:
            return part.parts


def reachable(
    roots: Iterable[DFPattern],
    parts_of: Callable[[DFPattern], Iterable[DFPattern]] = shown_parts,
) -> list[DFPattern]:
    """List *roots*, and what is reached from them by *parts_of*, each once."""
    parts: dict[int, DFPattern] = {}
    pending = list(roots)
    while pending:
        part = pending.pop()
        if id(part) not in parts:
            parts[id(part)] = part
            pending.extend(parts_of(part))
    return list(parts.values())
