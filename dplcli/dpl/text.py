"""The text spelling of patterns: a subset of Python's expressions, parsed and never executed."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.dpl import builders
from dplcli.dpl.literals import BINARY_OPS, parse_lines, place_of, wrong
from dplcli.dpl.pattern import (
    AbsentPattern,
    AndPattern,
    CallPattern,
    ConstantPattern,
    DFPattern,
    NotPattern,
    OrPattern,
    OutputPattern,
    OutputsPattern,
    WildcardPattern,
)
from dplcli.dpl.scoping import all_parts, check_pattern
from dplcli.dpl.text_calls import CallReader
from dplcli.errors import PatternSyntaxError

if TYPE_CHECKING:
    from dplcli.ir import SchemaLibrary


_LINE_ENDS = re.compile(r"\r\n|\r|\n")


def parse_pattern(text: str, schemas: SchemaLibrary) -> DFPattern:
    """Read the text form of a pattern; see :func:`read_pattern`."""
    return read_pattern(text, schemas)[0]


def read_pattern(text: str, schemas: SchemaLibrary) -> tuple[DFPattern, tuple[str, ...]]:
    """Read the text form of a pattern, and the names of the lines that it does not need.

    Args:
        text: Lines ``name = expression``, then one expression, or several separated by commas.
        schemas: The standard operators, to refuse those that do not exist.

    Raises:
        PatternSyntaxError: With line, column and, if possible, what was meant.
    """
    module = parse_lines(text, "the pattern")
    try:
        reader = PatternReader(schemas)
        pattern = reader.read(module)
        check_pattern(pattern)
    except PatternSyntaxError as error:
        error.column = character_column(text, error.line, error.column)
        raise
    except RecursionError as error:
        raise PatternSyntaxError(
            "the pattern is nested too deeply", hint="name its parts on lines of their own"
        ) from error
    return pattern, reader.unused_in(pattern)


def character_column(text: str, line: int, column: int) -> int:
    """Turn a column in UTF-8 bytes, as ``ast`` counts, into one in characters."""
    lines = _LINE_ENDS.split(text)
    shown = lines[line - 1] if line <= len(lines) else ""
    return len(shown.encode()[:column].decode(errors="ignore"))


class PatternReader:
    """Reads statements and expressions; calls are read by :class:`CallReader`.

    Attributes:
        assigned: What each assigned name or label stands for.
        wildcards: What each name that is not assigned stands for.
    """

    def __init__(self, schemas: SchemaLibrary) -> None:
        """Start with no names."""
        self.assigned: dict[str, DFPattern] = {}
        self.wildcards: dict[str, WildcardPattern] = {}
        self.calls = CallReader(self, schemas)

    def read(self, module: ast.Module) -> DFPattern:
        """Read a whole pattern."""
        if not module.body:
            raise PatternSyntaxError("the pattern is empty")
        *assignments, last = module.body
        for statement in assignments:
            self._assign(statement)
        if not isinstance(last, ast.Expr):
            raise wrong(
                last, "the last line must be an expression: the value that the pattern makes"
            )
        if isinstance(last.value, ast.Tuple):
            return self._outputs(last.value)
        return self.pattern(last.value)

    def unused_in(self, pattern: DFPattern) -> tuple[str, ...]:
        """Name the assigned lines that *pattern* does not need."""
        needed = {id(part) for part in all_parts(pattern)}
        used = (
            id(part.node if isinstance(part, OutputPattern) else part)
            for part in self.assigned.values()
        )
        pairs = zip(self.assigned, used, strict=True)
        return tuple(name for name, part in pairs if part not in needed)

    def _outputs(self, node: ast.Tuple) -> DFPattern:
        if not node.elts:
            raise wrong(node, "the pattern has no outputs")
        outputs = tuple(self.pattern(item) for item in node.elts)
        return outputs[0] if len(outputs) == 1 else OutputsPattern(outputs, place_of(node))

    def _assign(self, statement: ast.stmt) -> None:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            raise wrong(statement, "expected a line: name = pattern")
        target = statement.targets[0]
        if isinstance(target, ast.Tuple):
            self._assign_outputs(target, statement.value)
            return
        name = self._new_name(target)
        pattern = self.pattern(statement.value)
        if name in self.wildcards:
            raise wrong(target, f"{name!r} is named inside its own pattern")
        is_label = name.startswith("_")
        if not is_label and not pattern.name and _is_nameable(pattern):
            pattern = replace(pattern, name=name)
        self.assigned[name] = pattern

    def _assign_outputs(self, target: ast.Tuple, value: ast.expr) -> None:
        """Read ``y, mean, _ = LayerNormalization(x, scale)``."""
        names = ["" if _is_blank(item) else self._new_name(item) for item in target.elts]
        repeated = {name for name in names if name and names.count(name) > 1}
        if repeated or not any(names):
            raise wrong(target, "each output needs a name of its own, or _")
        node = self.pattern(value)
        if not isinstance(node, CallPattern):
            raise wrong(value, "only a node has several outputs to name")
        clash = next((name for name in names if name in self.wildcards), None)
        if clash is not None:
            raise wrong(target, f"{clash!r} is named inside its own pattern")
        bound = ["" if name.startswith("_") else name for name in names]
        node = replace(node, name=bound[0] or node.name, output_names=tuple(bound[1:]))
        for index, name in enumerate(names):
            if name:
                self.assigned[name] = (
                    OutputPattern(node, index, place=node.place) if index else node
                )

    def _new_name(self, target: ast.expr) -> str:
        if not isinstance(target, ast.Name):
            raise wrong(target, "only a name can be assigned")
        name = target.id
        if name in self.assigned or name in self.wildcards:
            raise wrong(target, f"{name!r} has a meaning already")
        if name == "_" or name in self.calls.op_types:
            raise wrong(target, f"{name!r} cannot be used as a name")
        return name

    def pattern(self, node: ast.expr) -> DFPattern:  # noqa: C901, PLR0911, PLR0912  # a case per kind
        """Read an expression."""
        place = place_of(node)
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Constant(value=None):
                return AbsentPattern(place)
            case ast.Constant(value=bool()):
                raise wrong(node, "a truth value is not a pattern")
            case ast.Constant(value=int() | float() as number):
                return ConstantPattern(value=number, place=place)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=bool())):
                raise wrong(node.operand, "a truth value is not a pattern")
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return ConstantPattern(value=-number, place=place)
            case ast.UnaryOp(op=ast.USub()):
                return self._operator("Neg", node, node.operand)
            case ast.UnaryOp(op=ast.Invert()):
                return NotPattern(self.pattern(node.operand), place=place)
            case ast.BinOp(op=ast.BitOr()):
                return OrPattern(self.pattern(node.left), self.pattern(node.right), place=place)
            case ast.BinOp(op=ast.BitAnd()):
                return AndPattern(self.pattern(node.left), self.pattern(node.right), place=place)
            case ast.BinOp(op=ast.BitXor() | ast.RShift()):
                only = isinstance(node.op, ast.RShift)
                ends = self.pattern(node.left), self.pattern(node.right)
                return replace(builders.edge(*ends, only=only), place=place)
            case ast.BinOp() if type(node.op) in BINARY_OPS:
                return self._operator(BINARY_OPS[type(node.op)], node, node.left, node.right)
            case ast.Subscript():
                return self._output(node)
            case ast.Call():
                return self.calls.call(node)
            case _:
                raise wrong(node, f"{ast.unparse(node)!r} is not a pattern")

    def _operator(self, op_type: str, node: ast.expr, *args: ast.expr) -> CallPattern:
        call = builders.is_op(op_type)(*(self.pattern(arg) for arg in args))
        return replace(call, place=place_of(node))

    def _name(self, node: ast.Name) -> DFPattern:
        name = node.id
        if name == "_":
            return WildcardPattern(place=place_of(node))
        if name in self.assigned:
            return self.assigned[name]
        if name in self.calls.op_types:
            raise wrong(node, f"the operator {name!r} needs arguments", f"write {name}(…)")
        if name not in self.wildcards:
            bound = "" if name.startswith("_") else name
            self.wildcards[name] = WildcardPattern(bound, place_of(node))
        return self.wildcards[name]

    def _output(self, node: ast.Subscript) -> DFPattern:
        pattern = self.pattern(node.value)
        if not isinstance(pattern, CallPattern):
            raise wrong(node, "only a node has outputs to choose from")
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if type(index) is not int:
            raise wrong(node.slice, "the output must be chosen by a number")
        return OutputPattern(pattern, index, place=place_of(node))


def _is_nameable(pattern: DFPattern) -> bool:
    return not isinstance(pattern, (WildcardPattern, AbsentPattern, OutputsPattern))


def _is_blank(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "_"
