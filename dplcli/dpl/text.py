"""The text spelling of patterns: a subset of Python's expressions, parsed and never executed."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.dpl.pattern import (
    STANDARD_DOMAIN,
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DFPattern,
    InputPattern,
    OpPattern,
    OrPattern,
    OutputPattern,
    Place,
    TypedPattern,
    WildcardPattern,
)
from dplcli.errors import PatternSyntaxError, did_you_mean
from dplcli.ir.types import DTYPE_CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dplcli.dpl.pattern import AttributeValue
    from dplcli.ir import Dim, SchemaLibrary

_BINARY_OPS = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.MatMult: "MatMul",
    ast.Pow: "Pow",
}


_RELAX_METHODS = frozenset(
    {"used_by", "only_used_by", "same_shape_as", "fork_to", "dup", "has_attr", "has_type"}
    | {"has_ty", "optional", "dominates", "match"}
)
"""Methods of TVM's patterns that the text form does not have."""

_NAMEABLE = (CallPattern, ConstantPattern, OrPattern, AndPattern, TypedPattern)


def parse_pattern(text: str, schemas: SchemaLibrary) -> DFPattern:
    """Read the text form of a pattern.

    Args:
        text: Lines ``name = expression``, then one expression.
        schemas: The standard operators, to refuse those that do not exist.

    Raises:
        PatternSyntaxError: With line, column and, if possible, what was meant.
    """
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise PatternSyntaxError(
            error.msg, line=error.lineno or 1, column=max((error.offset or 1) - 1, 0)
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise PatternSyntaxError(f"the pattern cannot be parsed: {error}") from error
    try:
        return _PatternParser(schemas).parse(module)
    except PatternSyntaxError as error:
        error.column = _character_column(text, error.line, error.column)
        raise
    except RecursionError as error:
        raise PatternSyntaxError(
            "the pattern is nested too deeply", hint="name its parts on lines of their own"
        ) from error


def _character_column(text: str, line: int, column: int) -> int:
    """Turn a column in UTF-8 bytes, as ``ast`` counts, into one in characters."""
    lines = text.splitlines()
    shown = lines[line - 1] if line <= len(lines) else ""
    return len(shown.encode()[:column].decode(errors="ignore"))


class _PatternParser:
    def __init__(self, schemas: SchemaLibrary) -> None:
        self.schemas = schemas
        self.op_types = frozenset(schemas.op_types(STANDARD_DOMAIN))
        self.assigned: dict[str, DFPattern] = {}
        self.wildcards: dict[str, WildcardPattern] = {}
        self.words: dict[str, Callable[[ast.Call], DFPattern]] = {
            "const": self._const,
            "input": self._input,
        }
        self.methods: dict[str, Callable[[ast.Call, DFPattern], DFPattern]] = {
            "has_dtype": self._has_dtype,
            "has_rank": self._has_rank,
            "has_shape": self._has_shape,
        }

    def parse(self, module: ast.Module) -> DFPattern:
        if not module.body:
            raise PatternSyntaxError("the pattern is empty")
        *assignments, last = module.body
        for statement in assignments:
            self._assign(statement)
        if not isinstance(last, ast.Expr):
            raise _wrong(
                last, "the last line must be an expression: the value that the pattern makes"
            )
        if isinstance(last.value, ast.Tuple):
            raise _wrong(last, "a pattern with several outputs is not supported")
        return self._pattern(last.value)

    def _assign(self, statement: ast.stmt) -> None:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise _wrong(statement, "expected a line: name = pattern")
        target = statement.targets[0]
        if not isinstance(target, ast.Name):
            raise _wrong(target, "only a name can be assigned")
        if target.id in self.assigned or target.id in self.wildcards:
            raise _wrong(target, f"{target.id!r} has a meaning already")
        if target.id == "_" or target.id in self.op_types:
            raise _wrong(target, f"{target.id!r} cannot be used as a name")
        pattern = self._pattern(statement.value)
        if target.id in self.wildcards:
            raise _wrong(target, f"{target.id!r} is named inside its own pattern")
        if isinstance(pattern, _NAMEABLE) and not pattern.name:
            pattern = replace(pattern, name=target.id)
        self.assigned[target.id] = pattern

    def _pattern(self, node: ast.expr) -> DFPattern:  # noqa: C901, PLR0911  # a case per kind
        place = _place(node)
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant(value=None):
                return AbsentPattern(place)
            case ast.Constant(value=bool()):
                raise _wrong(node, "a truth value is not a pattern")
            case ast.Constant(value=int() | float() as number):
                return ConstantPattern(value=number, place=place)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return ConstantPattern(value=-number, place=place)
            case ast.UnaryOp(op=ast.USub()):
                return self._call_of("Neg", node, [node.operand])
            case ast.BinOp(op=ast.BitOr()):
                return OrPattern(self._pattern(node.left), self._pattern(node.right), place=place)
            case ast.BinOp(op=ast.BitAnd()):
                return AndPattern(self._pattern(node.left), self._pattern(node.right), place=place)
            case ast.BinOp() if type(node.op) in _BINARY_OPS:
                return self._call_of(_BINARY_OPS[type(node.op)], node, [node.left, node.right])
            case ast.Subscript():
                return self._output(node)
            case ast.Call():
                return self._call(node)
            case _:
                raise _wrong(node, f"{ast.unparse(node)!r} is not a pattern")

    def _name(self, node: ast.Name) -> DFPattern:
        if node.id == "_":
            return WildcardPattern(place=_place(node))
        if node.id in self.assigned:
            return self.assigned[node.id]
        if node.id in self.op_types:
            raise _wrong(node, f"the operator {node.id!r} needs arguments", f"write {node.id}(…)")
        if node.id not in self.wildcards:
            self.wildcards[node.id] = WildcardPattern(node.id, _place(node))
        return self.wildcards[node.id]

    def _output(self, node: ast.Subscript) -> DFPattern:
        pattern = self._pattern(node.value)
        if not isinstance(pattern, CallPattern):
            raise _wrong(node, "only a node has outputs to choose from")
        if not isinstance(node.slice, ast.Constant) or type(node.slice.value) is not int:
            raise _wrong(node.slice, "the output must be chosen by a number")
        return OutputPattern(pattern, node.slice.value, _place(node))

    def _call(self, node: ast.Call) -> DFPattern:
        match node.func:
            case ast.Name(id=word) if word in self.words:
                return self.words[word](node)
            case ast.Name(id="optional"):
                raise _wrong(node, "optional takes an operator first", "write optional(Relu)(x)")
            case ast.Call(func=ast.Name(id="optional")):
                return self._optional(node, node.func)
            case ast.Attribute(value=inner, attr=method) if method in self.methods:
                return self.methods[method](node, self._pattern(inner))
        return self._call_op(self._op(node.func), node)

    # -- operators ---------------------------------------------------------------------------

    def _op(self, node: ast.expr) -> OpPattern:
        match node:
            case ast.Name():
                self._check_op(node)
                return OpPattern(((STANDARD_DOMAIN, node.id),))
            case ast.BinOp(op=ast.BitOr()):
                return self._op(node.left) | self._op(node.right)
            case ast.Attribute():
                domain, _, op_type = ast.unparse(node).rpartition(".")
                if not all(part.isidentifier() for part in domain.split(".")):
                    raise _wrong(node, f"{ast.unparse(node)!r} is not an operator")
                self._check_method(node, domain, op_type)
                if domain == "ai.onnx":
                    domain = STANDARD_DOMAIN
                return OpPattern(((domain, op_type),))
            case _:
                raise _wrong(node, f"{ast.unparse(node)!r} is not an operator")

    def _check_method(self, node: ast.expr, owner: str, name: str) -> None:
        """Refuse what is meant as a method of a pattern, not as an operator of a domain."""
        is_pattern = owner in self.assigned or owner in self.wildcards
        hint = did_you_mean(name, self.methods)
        if is_pattern or name in _RELAX_METHODS or (hint and "." not in owner):
            raise _wrong(node, f"patterns have no method {name!r}", hint)

    def _check_op(self, node: ast.Name) -> None:
        if node.id in self.op_types:
            return
        if node.id in self.assigned:
            raise _wrong(node, f"{node.id!r} is a pattern and takes no arguments")
        words = [*self.words, "optional", *self.op_types]
        raise _wrong(node, f"unknown operator {node.id!r}", did_you_mean(node.id, words))

    def _call_of(self, op_type: str, node: ast.expr, args: Sequence[ast.expr]) -> CallPattern:
        op = OpPattern(((STANDARD_DOMAIN, op_type),))
        patterns = tuple(self._pattern(arg) for arg in args)
        return CallPattern(op, patterns, place=_place(node))

    def _call_op(self, op: OpPattern, node: ast.Call, *first: DFPattern) -> CallPattern:
        args = list(node.args)
        rest = bool(args) and isinstance(args[-1], ast.Constant) and args[-1].value is ...
        if rest:
            args.pop()
        patterns = (*first, *(self._pattern(arg) for arg in args))
        attributes: list[tuple[str, AttributeValue]] = []
        attributes_name = ""
        for keyword in node.keywords:
            if keyword.arg is None:
                attributes_name = _word(keyword.value)
                continue
            if keyword.arg in dict(attributes):
                raise _wrong(keyword.value, f"the attribute {keyword.arg!r} is given twice")
            attributes.append((keyword.arg, _literal(keyword.value)))
        call = CallPattern(
            op,
            patterns,
            rest=rest,
            attributes=tuple(attributes),
            attributes_name=attributes_name,
            place=_place(node),
        )
        self._check_against_schema(call, node)
        return call

    def _check_against_schema(self, call: CallPattern, node: ast.Call) -> None:
        """Refuse what no opset version of the operator allows."""
        for domain, op_type in call.op.ops:
            versions = list(self.schemas.versions(op_type, domain))
            if not versions:
                continue
            most = max(schema.max_inputs for schema in versions)
            if len(call.args) > most:
                raise _wrong(node, f"{op_type} takes at most {most} inputs, not {len(call.args)}")
            fewest = min(schema.min_inputs for schema in versions)
            if len(call.args) < fewest and not call.rest:
                raise _wrong(
                    node,
                    f"{op_type} takes at least {fewest} inputs, not {len(call.args)}",
                    "write ... as the last argument if the others do not matter",
                )
            known = {name for schema in versions for name in schema.attributes}
            for name, _ in call.attributes:
                if name not in known:
                    raise _wrong(
                        node,
                        f"{op_type} has no attribute {name!r}",
                        did_you_mean(name, sorted(known)),
                    )

    # -- words and methods -------------------------------------------------------------------

    def _optional(self, node: ast.Call, word: ast.Call) -> DFPattern:
        if len(word.args) != 1 or word.keywords or not node.args:
            raise _wrong(node, "optional takes an operator, then its inputs", "optional(Relu)(x)")
        base = self._pattern(node.args[0])
        outer = ast.copy_location(
            ast.Call(func=word.args[0], args=node.args[1:], keywords=node.keywords), node
        )
        extended = self._call_op(self._op(word.args[0]), outer, base)
        return OrPattern(base, extended, place=_place(node))

    def _const(self, node: ast.Call) -> DFPattern:
        name = self._only_word(node, "const() or const(name)")
        return ConstantPattern(name, place=_place(node))

    def _input(self, node: ast.Call) -> DFPattern:
        if len(node.args) > 1 or node.keywords:
            raise _wrong(node, 'write input() or input("name")')
        source = _literal(node.args[0]) if node.args else ""
        if not isinstance(source, str):
            raise _wrong(node, 'write input() or input("name")')
        return InputPattern(source, source, place=_place(node))

    def _only_word(self, node: ast.Call, usage: str) -> str:
        if len(node.args) > 1 or node.keywords:
            raise _wrong(node, f"write {usage}")
        return _word(node.args[0]) if node.args else ""

    def _has_dtype(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        _refuse_keywords(node)
        dtypes = tuple(_literal(arg) for arg in node.args)
        for dtype in dtypes:
            if dtype not in DTYPE_CODES:
                raise _wrong(
                    node,
                    f"{dtype!r} is not an element type",
                    did_you_mean(str(dtype), DTYPE_CODES),
                )
        return TypedPattern(inner, dtypes=tuple(map(str, dtypes)), place=_place(node))

    def _has_rank(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        _refuse_keywords(node)
        ranks = [_literal(arg) for arg in node.args]
        if not all(type(rank) is int for rank in ranks):
            raise _wrong(node, "a rank is a number")
        return TypedPattern(inner, ranks=tuple(map(int, ranks)), place=_place(node))  # type: ignore[arg-type]  # checked

    def _has_shape(self, node: ast.Call, inner: DFPattern) -> DFPattern:
        _refuse_keywords(node)
        return TypedPattern(
            inner, shape=tuple(_dimension(arg) for arg in node.args), place=_place(node)
        )


def _dimension(node: ast.expr) -> Dim:
    match node:
        case ast.Name(id="_"):
            return None
        case ast.Name():
            return node.id
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case _:
            raise _wrong(node, "a dimension is a number, a letter, or _ for any")


def _refuse_keywords(node: ast.Call) -> None:
    if node.keywords:
        raise _wrong(node, "takes no keywords")


def _word(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise _wrong(node, "expected a name")
    return "" if node.id == "_" else node.id


def _literal(node: ast.expr) -> AttributeValue:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise _wrong(node, f"{ast.unparse(node)!r} is not a literal") from error
    items = value if isinstance(value, (list, tuple)) else [value]
    if not all(type(item) in {int, float, str} for item in items):
        raise _wrong(node, "expected a number, a string or a list of them")
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _place(node: ast.expr) -> Place:
    return Place(node.lineno, node.col_offset)


def _wrong(node: ast.expr | ast.stmt, message: str, hint: str | None = None) -> PatternSyntaxError:
    return PatternSyntaxError(message, line=node.lineno, column=node.col_offset, hint=hint)
