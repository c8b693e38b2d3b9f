"""Calls in pattern texts: operators, functions, words and methods."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from dplcli.dpl import builders
from dplcli.dpl.callee import STANDARD_DOMAIN, FunctionName
from dplcli.dpl.literals import (
    place_of,
    read_array,
    read_attribute,
    read_dimension,
    read_literal,
    read_number,
    read_shape,
    read_text,
    read_word,
    wrong,
)
from dplcli.dpl.pattern import (
    CallPattern,
    ConstantPattern,
    InputPattern,
    OpPattern,
    OrPattern,
    WildcardPattern,
)
from dplcli.dpl.schema_check import check_call
from dplcli.errors import did_you_mean
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dplcli.dpl.pattern import AttributeValue, DFPattern
    from dplcli.ir import SchemaLibrary

_FOREIGN_METHODS = frozenset({"fork_to", "dup", "has_attr", "has_ty", "optional", "match", "named"})
"""Methods of TVM's patterns, and of ours in Python, that the text form does not have."""


class Reader(Protocol):
    """Whoever reads the expressions inside a call."""

    assigned: dict[str, DFPattern]
    wildcards: dict[str, WildcardPattern]

    def pattern(self, node: ast.expr) -> DFPattern:
        """Read an expression."""


class CallReader:
    """Reads calls.

    Attributes:
        op_types: The standard operators.
    """

    def __init__(self, reader: Reader, schemas: SchemaLibrary) -> None:
        """Read arguments by *reader*."""
        self.reader = reader
        self.schemas = schemas
        self.op_types = frozenset(schemas.op_types(STANDARD_DOMAIN))
        self.words: dict[str, Callable[[ast.Call], DFPattern]] = {
            "const": self._const,
            "input": self._input,
            "is_value": self._is_value,
            "same_shape": self._same_shape,
            "dominates": self._dominates,
            "repeat": self._repeat,
            "if_": self._if,
        }
        self.methods: dict[str, Callable[[ast.Call, DFPattern], DFPattern]] = {
            "has_dtype": self._has_dtype,
            "has_rank": self._has_rank,
            "has_shape": self._has_shape,
            "has_type": self._has_type,
            "same_shape_as": self._same_shape_as,
            "used_by": self._used_by,
            "only_used_by": self._used_by,
            "dominates": self._method_dominates,
        }

    def call(self, node: ast.Call) -> DFPattern:
        """Read a call that makes a value."""
        _refuse_repetition(node)
        match node.func:
            case ast.Name(id=word) if word in self.words:
                return self.words[word](node)
            case ast.Name(id="optional"):
                raise wrong(node, "optional takes an operator first", "write optional(Relu)(x)")
            case ast.Name(id="unordered"):
                raise wrong(node, "unordered stands inside a call", "write Concat(unordered(a, b))")
            case ast.Name(id="call"):
                return self._call_function(node)
            case ast.Name(id="op" | "function"):
                raise wrong(node, f"{ast.unparse(node)} needs arguments", "write op()(x, ...)")
            case ast.Call(func=ast.Name(id="optional")):
                return self._optional(node, node.func)
            case ast.Attribute(value=inner, attr=method) if method in self.methods:
                return self.methods[method](node, self.reader.pattern(inner))
        return self._call_op(self._op(node.func), node)

    # -- callees -------------------------------------------------------------------------------

    def _op(self, node: ast.expr) -> OpPattern:
        match node:
            case ast.Name():
                self._check_op(node)
                return builders.is_op(node.id)
            case ast.BinOp(op=ast.BitOr()):
                return self._op(node.left) | self._op(node.right)
            case ast.Call(func=ast.Name(id="op")):
                return self._op_of_kind(node)
            case ast.Call(func=ast.Name(id="function")):
                return self._function(node)
            case ast.Call(func=ast.Name(id="call"), args=[name], keywords=[]):
                return OpPattern((FunctionName(read_text(name)),))
            case ast.Attribute():
                return self._foreign_op(node)
            case _:
                raise wrong(node, f"{ast.unparse(node)!r} is not an operator")

    def _foreign_op(self, node: ast.Attribute) -> OpPattern:
        domain, _, op_type = ast.unparse(node).rpartition(".")
        if not all(part.isidentifier() for part in domain.split(".")):
            raise wrong(node, f"{ast.unparse(node)!r} is not an operator")
        owned = domain in self.reader.assigned or domain in self.reader.wildcards
        hint = did_you_mean(op_type, self.methods)
        if owned or op_type in _FOREIGN_METHODS or (hint and "." not in domain):
            raise wrong(node, f"patterns have no method {op_type!r}", hint)
        return builders.is_op(op_type, domain)

    def _check_op(self, node: ast.Name) -> None:
        if node.id in self.op_types:
            return
        if node.id in self.reader.assigned:
            raise wrong(node, f"{node.id!r} is a pattern and takes no arguments")
        more = ["optional", "unordered", "call", "function", "op"]
        hint = did_you_mean(node.id, [*self.words, *more, *self.op_types])
        raise wrong(node, f"unknown operator {node.id!r}", hint)

    def _op_of_kind(self, node: ast.Call) -> OpPattern:
        _refuse_repetition(node)
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        if node.args or set(named) - {"kind"}:
            raise wrong(node, 'write op() or op(kind="elementwise")')
        kind = read_text(named["kind"]) if named else ""
        try:
            return builders.is_op(kind=kind)
        except ValueError as error:
            raise wrong(node, str(error)) from error

    def _function(self, node: ast.Call) -> OpPattern:
        usage = 'write function([a, b], body) or function(..., body, metadata={"Composite": "f"})'
        _refuse_repetition(node)
        if len(node.args) != 2 or {k.arg for k in node.keywords} - {"metadata"}:  # noqa: PLR2004  # inputs, body
            raise wrong(node, usage)
        inputs, body = node.args
        params: list[DFPattern] | None = None
        if isinstance(inputs, (ast.List, ast.Tuple)):
            params = [self.reader.pattern(item) for item in inputs.elts]
        elif not isinstance(inputs, ast.Constant) or inputs.value is not ...:
            raise wrong(inputs, usage)
        metadata = read_literal(node.keywords[0].value) if node.keywords else {}
        if not isinstance(metadata, dict) or not all(
            isinstance(item, str) for pair in metadata.items() for item in pair
        ):
            raise wrong(node.keywords[0].value, "metadata are texts by name")
        return builders.is_function(params, self._several(body), metadata)

    def _several(self, node: ast.expr) -> Any:  # noqa: ANN401  # a pattern or a tuple of them
        if isinstance(node, ast.Tuple):
            return tuple(self.reader.pattern(item) for item in node.elts)
        return self.reader.pattern(node)

    def _call_function(self, node: ast.Call) -> CallPattern:
        if not node.args:
            raise wrong(node, 'write call("name", x, ...)')
        op = OpPattern((FunctionName(read_text(node.args[0])),))
        rest = ast.copy_location(ast.Call(node.func, node.args[1:], node.keywords), node)
        return self._call_op(op, rest)

    # -- operators -----------------------------------------------------------------------------

    def _call_op(self, op: OpPattern, node: ast.Call, *first: DFPattern) -> CallPattern:
        args = list(node.args)
        rest = bool(args) and isinstance(args[-1], ast.Constant) and args[-1].value is ...
        if rest:
            args.pop()
        is_unordered = len(args) == 1 and _is_unordered(args[0])
        if is_unordered:
            args = args[0].args  # type: ignore[attr-defined]  # a call, see _is_unordered
        call = CallPattern(
            op,
            (*first, *(self.reader.pattern(arg) for arg in args)),
            rest=rest,
            is_unordered=is_unordered,
            place=place_of(node),
        )
        attributes, attributes_name = self._attributes(node.keywords)
        call = replace(call, attributes=attributes, attributes_name=attributes_name)
        check_call(call, node, self.schemas)
        return call

    def _attributes(
        self, keywords: Sequence[ast.keyword]
    ) -> tuple[tuple[tuple[str, AttributeValue], ...], str]:
        """Read ``name=value``, ``**{"a name": value}`` and ``**attrs``."""
        attributes: dict[str, AttributeValue] = {}
        attributes_name = ""
        for keyword in keywords:
            pairs = [(keyword.arg, keyword.value)]
            if isinstance(keyword.value, ast.Dict) and keyword.arg is None:
                keys = [None if key is None else read_text(key) for key in keyword.value.keys]
                pairs = list(zip(keys, keyword.value.values, strict=True))
            for name, value in pairs:
                if name is None:
                    if attributes_name:
                        raise wrong(value, "the other attributes have one name")
                    attributes_name = read_word(value) or "_"
                    continue
                if name in attributes:
                    raise wrong(value, f"the attribute {name!r} is given twice")
                attributes[name] = read_attribute(value)
        return tuple(attributes.items()), attributes_name

    def _optional(self, node: ast.Call, word: ast.Call) -> DFPattern:
        if len(word.args) != 1 or word.keywords or not node.args:
            raise wrong(node, "optional takes an operator, then its inputs", "optional(Relu)(x)")
        base = self.reader.pattern(node.args[0])
        outer = ast.copy_location(ast.Call(word.args[0], node.args[1:], node.keywords), node)
        extended = self._call_op(self._op(word.args[0]), outer, base)
        return OrPattern(base, extended, place=place_of(node))

    # -- words ---------------------------------------------------------------------------------

    def _const(self, node: ast.Call) -> DFPattern:
        if len(node.args) > 1 or node.keywords:
            raise wrong(node, "write const() or const(name)")
        name = read_word(node.args[0]) if node.args else ""
        if name.startswith("_"):
            raise wrong(node, f"{name!r} cannot be used as a name")
        return ConstantPattern(name, place=place_of(node))

    def _input(self, node: ast.Call) -> DFPattern:
        if len(node.args) > 1 or node.keywords:
            raise wrong(node, 'write input() or input("name")')
        source = read_text(node.args[0]) if node.args else ""
        return InputPattern(source, source, place=place_of(node))

    def _is_value(self, node: ast.Call) -> DFPattern:
        usage = 'write is_value([1.0, 2.0], dtype="float32")'
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        if len(node.args) != 1 or set(named) - {"dtype", "shape"}:
            raise wrong(node, usage)
        items = read_literal(node.args[0])
        try:
            dtype = read_text(named["dtype"]) if "dtype" in named else None
            array = read_array(items, dtype)
            if "shape" in named:
                array = array.reshape(read_shape(named["shape"]))
        except (ValueError, TypeError, OverflowError) as error:
            raise wrong(node, f"not an array: {error}", usage) from error
        return replace(builders.is_value(array), place=place_of(node))

    def _same_shape(self, node: ast.Call) -> DFPattern:
        first, second = self._patterns(node, 2, "same_shape(a, b)")
        return replace(builders.same_shape(first, second), place=place_of(node))

    def _dominates(self, node: ast.Call) -> DFPattern:
        parent, path, child = self._patterns(node, 3, "dominates(parent, path, child)")
        return replace(builders.dominates(parent, path, child), place=place_of(node))

    def _repeat(self, node: ast.Call) -> DFPattern:
        if len(node.args) < 2:  # noqa: PLR2004  # operator and base
            raise wrong(node, "write repeat(Cast, x, min=0, max=8)")
        own = {k.arg: read_number(k.value) for k in node.keywords if k.arg in {"min", "max"}}
        others = [keyword for keyword in node.keywords if keyword.arg not in own]
        inner = ast.copy_location(ast.Call(node.func, node.args[2:], others), node)
        base = self.reader.pattern(node.args[1])
        step = self._call_op(self._op(node.args[0]), inner, WildcardPattern())
        try:
            chain = builders.repeat(step.op, base, min=own.get("min", 0), max=own.get("max"))
        except ValueError as error:
            raise wrong(node, str(error)) from error
        return replace(chain, step=step, place=place_of(node))

    def _if(self, node: ast.Call) -> DFPattern:
        if len(node.args) != 3 or node.keywords:  # noqa: PLR2004  # as the usage says
            raise wrong(node, "write if_(condition, then, otherwise)")
        condition = self.reader.pattern(node.args[0])
        results = [self._several(arg) for arg in node.args[1:]]
        return replace(builders.is_if(condition, *results), place=place_of(node))

    def _patterns(self, node: ast.Call, count: int, usage: str) -> list[DFPattern]:
        if len(node.args) != count or node.keywords:
            raise wrong(node, f"write {usage}")
        return [self.reader.pattern(arg) for arg in node.args]

    # -- methods -------------------------------------------------------------------------------

    def _has_dtype(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        for arg in node.args:
            dtype = read_text(arg)
            if dtype not in DTYPE_CODES:
                hint = did_you_mean(dtype, DTYPE_CODES)
                raise wrong(node, f"{dtype!r} is not an element type", hint)
        return self._typed(node, inner.has_dtype, map(read_text, node.args))

    def _has_rank(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        return self._typed(node, inner.has_rank, map(read_number, node.args))

    def _has_shape(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        return self._typed(node, inner.has_shape, map(read_dimension, node.args))

    def _has_type(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        if len(node.args) != 1:
            raise wrong(node, 'write x.has_type("float32[n, 4]")')
        return self._typed(node, inner.has_type, map(read_text, node.args))

    def _typed(self, node: ast.Call, method: Callable[..., Any], args: Any) -> DFPattern:  # noqa: ANN401  # an iterator
        if node.keywords:
            raise wrong(node, "takes no keywords")
        if not node.args and method.__name__ != "has_shape":
            raise wrong(node, f"{method.__name__} takes what is allowed", 'x.has_dtype("float32")')
        try:
            typed: DFPattern = replace(method(*args), place=place_of(node))
        except ValueError as error:
            raise wrong(node, str(error)) from error
        return typed

    def _same_shape_as(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        (other,) = self._patterns(node, 1, "a.same_shape_as(b)")
        return replace(builders.same_shape(inner, other), place=place_of(node))

    def _used_by(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        indices = [*node.args[1:], *named.values()]
        if not node.args or len(indices) > 1 or set(named) - {"index"}:
            raise wrong(node, "write a.used_by(b) or a.used_by(b, 0)")
        assert isinstance(node.func, ast.Attribute)  # noqa: S101  # it is a method
        index = read_number(indices[0]) if indices else None
        only = node.func.attr == "only_used_by"
        consumer = self.reader.pattern(node.args[0])
        return replace(builders.edge(inner, consumer, only=only, index=index), place=place_of(node))

    def _method_dominates(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        if not node.args or len(node.args) > 2 or node.keywords:  # noqa: PLR2004  # child and path
            raise wrong(node, "write child.dominates(parent, path)")
        parent, *path = [self.reader.pattern(arg) for arg in node.args]
        region = builders.dominates(parent, path[0] if path else None, inner)
        return replace(region, place=place_of(node))


def _refuse_repetition(node: ast.Call) -> None:
    seen: set[str] = set()
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg in seen:
            raise wrong(keyword.value, f"{keyword.arg!r} is given twice")
        seen.add(keyword.arg or "")


def _is_unordered(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "unordered"
        and not node.keywords
    )
