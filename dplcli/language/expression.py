"""Expressions: the one reader of the texts of patterns, conditions and replacements.

A text is parsed into Python's own tree (:mod:`ast`), whose nodes have types and positions, and is
never executed. Patterns, replacements, conditions and the checks of conditions walk that tree.
"""

from __future__ import annotations

import ast
import re
import warnings
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from dplcli.errors import PatternSyntaxError, did_you_mean
from dplcli.ir.operators import canonical_domain
from dplcli.ir.types import DTYPE_CODES
from dplcli.language.pattern import STANDARD_DOMAIN, OpName, OpPattern, TextPosition, is_op

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dplcli.ir import Dim, OpSchema, SchemaLibrary
    from dplcli.language.pattern import AttributeValue, Callee


Read = TypeVar("Read")
"""What a text says, once it is read."""

_MOST_BITS = 4096
_LONGEST = 200_000
"""Characters: they are read in a part of a second."""

_OTHER_DOMAINS = ("com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training")

MOST_OUTPUTS = 1000
"""More outputs no node has."""

_LINE_ENDS = re.compile(r"\r\n|\r|\n")


def parse_lines(text: str, what: str) -> list[ast.stmt]:
    """Parse lines of Python without executing them; see :func:`_parsed`."""
    tree = _parsed(text, what, "exec")
    assert isinstance(tree, ast.Module)  # noqa: S101  # as the mode says
    return tree.body


def parse_expression(text: str, what: str) -> ast.expr:
    """Parse one expression without executing it; see :func:`_parsed`."""
    tree = _parsed(text, what, "eval")
    assert isinstance(tree, ast.Expression)  # noqa: S101  # as the mode says
    return tree.body


def _parsed(text: str, what: str, mode: str) -> ast.AST:
    """Parse a text; the columns of its nodes count characters.

    Args:
        text: The text.
        what: What it is, for messages.
        mode: That of Python's ``compile``.

    Raises:
        PatternSyntaxError: It does not parse, or is too long.
    """
    if len(text) > _LONGEST:
        raise PatternSyntaxError(f"{what} has {len(text):,} characters, more than {_LONGEST:,}")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's advice is not for the reader
            tree = ast.parse(text, mode=mode)
    except SyntaxError as error:
        raise PatternSyntaxError(
            error.msg, line=error.lineno or 1, column=max((error.offset or 1) - 1, 0)
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise PatternSyntaxError(f"{what} cannot be parsed: {error}") from error
    if not text.isascii():
        starts = [  # of each byte of a line, the character that it belongs to
            [at for at, letter in enumerate(f"{line}\n") for _ in letter.encode(errors="replace")]
            for line in _LINE_ENDS.split(text)
        ]
        for node in ast.walk(tree):
            if isinstance(node, (ast.expr, ast.stmt, ast.keyword)):
                node.col_offset = starts[node.lineno - 1][node.col_offset]
    # a number of so many bits is written in a quarter as many characters, or more
    for node in ast.walk(tree) if len(text) > _MOST_BITS // 4 else ():
        number = node.value if isinstance(node, ast.Constant) else None
        if isinstance(number, int) and number.bit_length() > _MOST_BITS:
            raise wrong(node, "the number is too large")  # type: ignore[arg-type]  # a Constant
    return tree


def place_of(node: ast.expr) -> TextPosition:
    """Return where *node* stands."""
    return TextPosition(node.lineno, node.col_offset)


def wrong(
    node: ast.expr | ast.stmt | ast.keyword, message: str, hint: str | None = None
) -> PatternSyntaxError:
    """Make the error that points at *node*."""
    return PatternSyntaxError(message, line=node.lineno, column=node.col_offset, hint=hint)


class TextReader(ABC, Generic[Read]):
    """Reads lines ``name = expression`` and one expression: a pattern, or a replacement.

    Args:
        schemas: The operators.

    Attributes:
        what: What the text is, for messages.
        side: What stands on the right side of a line, for messages.
        result: What the last expression is, for messages.
        operators: What each operator variable stands for.
        op_types: The standard operators.
    """

    what: ClassVar[str]
    side: ClassVar[str]
    result: ClassVar[str]

    def __init__(self, schemas: SchemaLibrary) -> None:
        self.schemas = schemas
        self.op_types = schemas.op_types(STANDARD_DOMAIN)
        self.operators: dict[str, OpPattern] = {}

    @abstractmethod
    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Read a line, of which *target* stands on the left side."""

    @abstractmethod
    def conclude(self, last: ast.expr) -> Read:
        """Read the last expression."""

    def read(self, text: str | Sequence[ast.stmt]) -> Read:
        """Read a whole text, or its lines, parsed.

        Raises:
            PatternSyntaxError: With line, column and, if possible, what was meant. It is the first
                mistake; those of other lines are its ``further``.
        """
        body = parse_lines(text, f"the {self.what}") if isinstance(text, str) else text
        if not body:
            raise PatternSyntaxError(f"the {self.what} is empty")
        *assignments, last = body
        mistakes = _LineMistakes()
        try:
            for statement in assignments:
                with mistakes.gathered(statement):
                    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                        raise wrong(statement, f"expected a line: name = {self.side}")
                    self.assign(statement.targets[0], statement.value)
            with mistakes.gathered(last):
                if not isinstance(last, ast.Expr):
                    what = f"the last line must be an expression: {self.result}"
                    raise wrong(last, what)
                result = self.conclude(last.value)
        except RecursionError as error:
            hint = "name its parts on lines of their own"
            raise PatternSyntaxError(f"the {self.what} is nested too deeply", hint=hint) from error
        if mistakes.found:
            first, *others = mistakes.found
            first.further = tuple(others)
            raise first
        return result

    def check_output(self, choices: Iterable[Callee], index: int, at: ast.expr) -> None:
        """Refuse an output that none of some operators has.

        Raises:
            PatternSyntaxError: It points *at* the choice.
        """
        if message := missing_output(choices, index, self.schemas):
            raise wrong(at, message)

    def unknown_op(self, node: ast.Name, others: Iterable[str]) -> PatternSyntaxError:
        """Make the error for an operator that is not a standard one, nor one of *others*."""
        domain = next((d for d in _OTHER_DOMAINS if node.id in self.schemas.op_types(d)), "")
        hint = f"write {domain}.{node.id}(…)" if domain else None
        hint = hint or did_you_mean(node.id, [*others, *self.op_types, *self.operators])
        return wrong(node, f"unknown operator {node.id!r}", hint)

    def foreign_op(self, node: ast.expr) -> OpPattern:
        """Read a dotted operator: ``com.microsoft.Gelu``.

        Raises:
            PatternSyntaxError: Its domain does not have it, and all that the domain has are known.
        """
        domain, op_type = read_dotted(node)
        names = self.schemas.op_types(canonical_domain(domain))
        if names and op_type not in names:
            label = f"{domain}.{op_type}"
            raise wrong(node, f"unknown operator {label!r}", did_you_mean(op_type, sorted(names)))
        return is_op(op_type, domain)


class _LineMistakes:
    """What is wrong with lines, each by itself.

    If a line is wrong, the meaning of its name is unknown. A mistake right at such a name may come
    of that alone, so the reader is not told.
    """

    def __init__(self) -> None:
        self.found: list[PatternSyntaxError] = []
        self.unknown: set[str] = set()

    @contextmanager
    def gathered(self, statement: ast.stmt) -> Iterator[None]:
        """Keep the mistake that is raised inside."""
        try:
            yield
        except PatternSyntaxError as error:
            names = [part for part in ast.walk(statement) if isinstance(part, ast.Name)]
            unclear = [name for name in names if name.id in self.unknown]
            if all((error.line, error.column) != (n.lineno, n.col_offset) for n in unclear):
                self.found.append(error)
            self.unknown |= {name.id for name in names if isinstance(name.ctx, ast.Store)}


def missing_output(choices: Iterable[Callee], index: int, schemas: SchemaLibrary) -> str:
    """Say that none of some operators has an output; "" if one has, or nobody knows one."""
    most = 0
    for choice in choices:
        versions: list[OpSchema] = []
        if isinstance(choice, OpName):
            versions += schemas.versions(choice.op_type, choice.domain)
        its = max((schema.max_outputs for schema in versions), default=MOST_OUTPUTS)
        most = max(most, its)
    if 0 <= index < min(most, MOST_OUTPUTS):
        return ""
    names = [choice.spelled() for choice in choices if isinstance(choice, OpName)]
    return f"{' or '.join(names) or 'no node'} has no output {index}"


_SIGNS = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.MatMult: "MatMul",
    ast.Pow: "Pow",
}


def signed(node: ast.expr) -> tuple[str, list[ast.expr]] | None:
    """Return the operator that a sign stands for, with its operands; None if there is none."""
    match node:
        case ast.UnaryOp(op=ast.USub()):
            return "Neg", [node.operand]
        case ast.BinOp() if type(node.op) in _SIGNS:
            return _SIGNS[type(node.op)], [node.left, node.right]
        case _:
            return None


def read_dotted(node: ast.expr) -> tuple[str, str]:
    """Read domain and type of an operator: ``com.microsoft.Gelu``."""
    domain, _, op_type = ast.unparse(node).rpartition(".")
    if not isinstance(node, ast.Attribute) or not all(map(str.isidentifier, domain.split("."))):
        raise wrong(node, f"{ast.unparse(node)!r} is not an operator")
    return domain, op_type


def read_dimension(node: ast.expr) -> Dim:
    """Read a number, a letter, or ``_`` for any."""
    match node:
        case ast.Name(id="_"):
            return None
        case ast.Name():
            return node.id
        case ast.Constant(value=int() as number) if not isinstance(number, bool) and number >= 0:
            return number
        case _:
            raise wrong(node, "a dimension is a number, a letter, or _ for any")


def read_word(node: ast.expr) -> str:
    """Read a name; ``_`` gives ""."""
    if not isinstance(node, ast.Name):
        raise wrong(node, "expected a name")
    return "" if node.id == "_" else node.id


def read_text(node: ast.expr) -> str:
    """Read a text in quotes."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise wrong(node, "expected a text in quotes")
    return node.value


def read_number(node: ast.expr) -> int:
    """Read a whole number that is not negative."""
    value = node.value if isinstance(node, ast.Constant) else None
    if type(value) is not int or value < 0:
        raise wrong(node, "expected a whole number")
    return value


def read_literal(node: ast.expr) -> object:
    """Read a literal of Python."""
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError) as error:
        raise wrong(node, f"{ast.unparse(node)!r} is not a literal") from error
    return value


def read_attribute(node: ast.expr) -> AttributeValue:
    """Read a number, a text, or a list of them."""
    value = read_literal(node)
    items = value if isinstance(value, (list, tuple)) else [value]
    if not all(type(item) in {int, float, str} for item in items):
        raise wrong(node, "expected a number, a string or a list of them")
    return tuple(value) if isinstance(value, (list, tuple)) else value  # type: ignore[return-value]  # checked


_VALUES_BY_KIND = "biufc"
_LARGEST_EXTENT = 1_000_000


def read_shape(node: ast.expr) -> list[int]:
    """Read the dimensions of an array, each at most a million."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    extents = [read_number(item) for item in items]
    if any(extent > _LARGEST_EXTENT for extent in extents):
        raise wrong(node, "the array is too large")
    return extents


def read_array(items: object, dtype: str | None) -> np.ndarray[Any, np.dtype[Any]]:
    """Make an array; without *dtype*, floats become float32 and whole numbers int64.

    Raises:
        ValueError: The items are of another kind, or *dtype* cannot hold them.
    """
    array = np.array(items)
    if dtype == "string" or (dtype is None and array.dtype.kind == "U"):
        if array.dtype.kind != "U":
            raise ValueError("not all items are texts")
        return array.astype(object)
    if dtype is None:
        dtype = "float32" if array.dtype.kind == "f" else array.dtype.name
    if dtype not in DTYPE_CODES or np.dtype(dtype).kind not in _VALUES_BY_KIND:
        raise ValueError(f"there are no values of {dtype!r} in texts")
    if array.dtype.kind not in _VALUES_BY_KIND + ("U" if np.dtype(dtype).kind == "f" else ""):
        raise ValueError("not all items are numbers")
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
    if converted.dtype.kind not in "fc" and not np.array_equal(converted, array):
        raise ValueError(f"{dtype} cannot hold all items")
    return converted
