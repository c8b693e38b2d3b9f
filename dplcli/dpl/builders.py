"""The functions that patterns are made with in Python; the words are TVM's."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dplcli.dpl.callee import FunctionName, FunctionPattern, OpKind, OpName
from dplcli.dpl.combinators import Combinators
from dplcli.dpl.pattern import (
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DominatorPattern,
    EdgePattern,
    ExactValue,
    InputPattern,
    NotPattern,
    OpPattern,
    OrPattern,
    OutputsPattern,
    RepeatPattern,
    SameShapePattern,
    TypedPattern,
    WildcardPattern,
)
from dplcli.ir.tensor import ArrayTensor
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import Dim

_TYPE = re.compile(r"^([A-Za-z][A-Za-z0-9]*|[?_]?)(?:\[(.*)\])?$")
_IF = OpPattern((OpName("If"),))
_BRANCHES = ("then_branch", "else_branch")


class Unordered(tuple[Any, ...]):
    """Arguments in any order; see :func:`unordered`."""

    __slots__ = ()


def wildcard(name: str = "") -> WildcardPattern:
    """Match any present value."""
    return WildcardPattern(name)


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
        return ConstantPattern(array, value)
    if array is None:
        return ConstantPattern(name, value)
    if not exact:
        raise TypeError("is_const(array) compares data: say exact=True, or give value=NUMBER")
    return ConstantPattern(name, exact=exact_value(array))


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
    return InputPattern(source, source)


def is_op(op_type: str = "", domain: str = "", *, kind: str = "") -> OpPattern:
    """Name an operator; call the result with argument patterns to match a node of it.

    Args:
        op_type: Its name; "" for any operator, or any of a class.
        domain: Its domain; "" and "ai.onnx" are the standard one.
        kind: A class of operators: elementwise, broadcast, injective, reduction, out-fusable or
            opaque (TVM's ``TOpPattern``).

    Raises:
        ValueError: There is no such class.
    """
    if not op_type:
        return OpPattern((OpKind(kind),))
    return OpPattern((OpName(op_type, "" if domain == "ai.onnx" else domain),))


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
    return OutputsPattern(patterns)


def repeat(  # as the text form
    op: OpPattern | str,
    base: Any,  # noqa: ANN401  # a pattern or a number
    *args: Any,  # noqa: ANN401  # patterns, numbers or None
    min: int = 0,  # noqa: A002  # the word of the text form
    max: int | None = None,  # noqa: A002  # the word of the text form
    **attributes: object,
) -> RepeatPattern:
    """Match a chain of *op* nodes that ends in *base*, longest first (Relay's recursive patterns).

    Args:
        op: The operator of every node of the chain.
        base: What the chain ends in; it is the first input of the last node.
        args: Further inputs of each node; what they bind means nothing outside the node.
        min: Fewest nodes.
        max: Most nodes, or None.
        attributes: Attributes of each node.

    Raises:
        ValueError: No chain has so many nodes.
    """
    if min < 0 or (max is not None and max < min):
        raise ValueError(f"no chain has at least {min} and at most {max} nodes")
    callee = is_op(op) if isinstance(op, str) else op
    step = call_pattern(callee, (WildcardPattern(), *args), attributes)
    return RepeatPattern(step, as_pattern(base), min, max)


def dominates(parent: DFPattern, path: DFPattern | None, child: DFPattern) -> DominatorPattern:
    """Match *child* where all uses of *parent* lead to it through *path* nodes only.

    Without a *path* any node may lie between them.
    """
    return DominatorPattern(parent, WildcardPattern() if path is None else path, child)


def edge(
    producer: DFPattern, consumer: DFPattern, *, only: bool = False, index: int | None = None
) -> EdgePattern:
    """Connect two patterns; a chain on the right side is entered at its start."""
    chain: list[EdgePattern] = []
    start: DFPattern = consumer
    while isinstance(start, EdgePattern):
        chain.append(start)
        start = start.producer
    joined = EdgePattern(producer, start, only, index)
    for link in reversed(chain):
        joined = replace(link, producer=joined)
    return joined


def either(left: DFPattern, right: Any) -> OrPattern:  # noqa: ANN401  # as as_pattern
    """Match *left*, or else *right*."""
    return OrPattern(left, as_pattern(right))


def both(left: DFPattern, right: Any) -> AndPattern:  # noqa: ANN401  # as as_pattern
    """Match *left* and *right* at the same value."""
    return AndPattern(left, as_pattern(right))


def negation(pattern: DFPattern) -> NotPattern:
    """Match what *pattern* does not."""
    return NotPattern(pattern)


def same_shape(pattern: DFPattern, other: DFPattern) -> SameShapePattern:
    """Match *pattern* where its value has the shape of what *other* matches elsewhere."""
    return SameShapePattern(pattern, other)


def typed(
    pattern: DFPattern,
    *,
    dtypes: tuple[str, ...] | None = None,
    ranks: tuple[int, ...] | None = None,
    shape: tuple[Dim, ...] | None = None,
) -> TypedPattern:
    """Demand facts of the value's type.

    Raises:
        ValueError: There is no such element type.
    """
    for dtype in dtypes or ():
        if dtype not in DTYPE_CODES:
            raise ValueError(f"{dtype!r} is not an element type")
    for dim in shape or ():
        if isinstance(dim, str) and not dim.isidentifier():
            raise ValueError(f"{dim!r} is not a dimension: a number, a letter, or None for any")
    return TypedPattern(pattern, dtypes, ranks, shape)


def has_type(pattern: DFPattern, text: str) -> TypedPattern:
    """Demand a type such as ``float32[n, 4]``.

    Raises:
        ValueError: It is no type.
    """
    found = _TYPE.match("".join(text.split()))
    if found is None:
        raise ValueError(f"{text!r} is not a type; write float32[n, 4]")
    dtype, dims = found.groups()
    shape = None
    if dims is not None:
        items = [item.strip() for item in dims.split(",")] if dims.strip() else []
        shape = tuple(_dimension(item, text) for item in items)
    dtypes = None if dtype in {"", "?", "_"} else (dtype,)
    if dtypes is None and shape is None:
        raise ValueError(f"{text!r} is not a type; write float32[n, 4]")
    return typed(pattern, dtypes=dtypes, shape=shape)


def _dimension(item: str, text: str) -> Dim:
    if item in {"_", "?"}:
        return None
    if item.isdecimal():
        return int(item)
    if item.isidentifier():
        return item
    raise ValueError(f"{text!r}: {item!r} is not a dimension: a number, a letter, or _ for any")


def call_pattern(
    op: OpPattern, args: Sequence[Any], attributes: Mapping[str, object]
) -> CallPattern:
    """Make a node pattern; see :meth:`OpPattern.__call__`."""
    rest = bool(args) and args[-1] is ...
    given = args[:-1] if rest else args
    is_unordered = len(given) == 1 and isinstance(given[0], Unordered)
    patterns = tuple(as_pattern(arg) for arg in (given[0] if is_unordered else given))
    call = CallPattern(op, patterns, rest=rest, is_unordered=is_unordered)
    return call.has_attr(attributes) if attributes else call


def as_pattern(arg: Any) -> DFPattern:  # noqa: ANN401  # see Raises
    """Read a number as a constant and None as an omitted input.

    Raises:
        TypeError: *arg* is none of these.
    """
    if arg is None:
        return AbsentPattern()
    if isinstance(arg, (int, float)):
        return ConstantPattern(value=int(arg) if isinstance(arg, int) else float(arg))
    if isinstance(arg, Combinators):
        return cast("DFPattern", arg)
    raise TypeError(f"{arg!r} is not a pattern, a number or None")
