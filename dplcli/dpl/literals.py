"""What the readers of pattern texts share: places, complaints, and values written out."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dplcli.dpl.pattern import Place
from dplcli.errors import PatternSyntaxError

if TYPE_CHECKING:
    from dplcli.dpl.pattern import AttributeValue
    from dplcli.ir import Dim


BINARY_OPS = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.MatMult: "MatMul",
    ast.Pow: "Pow",
}
"""The operators that Python's signs stand for."""


_MOST_BITS = 4096


def parse_lines(text: str, what: str) -> ast.Module:
    """Parse lines of Python's grammar, which are never executed.

    Args:
        text: The lines.
        what: What they are, for messages.

    Raises:
        PatternSyntaxError: They do not parse.
    """
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise PatternSyntaxError(
            error.msg, line=error.lineno or 1, column=max((error.offset or 1) - 1, 0)
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise PatternSyntaxError(f"{what} cannot be parsed: {error}") from error
    for node in ast.walk(module):
        number = node.value if isinstance(node, ast.Constant) else None
        if (
            isinstance(node, ast.expr)
            and isinstance(number, int)
            and number.bit_length() > _MOST_BITS
        ):
            raise wrong(node, "the number is too large")
    return module


def place_of(node: ast.expr) -> Place:
    """Return where *node* stands."""
    return Place(node.lineno, node.col_offset)


def wrong(
    node: ast.expr | ast.stmt | ast.keyword, message: str, hint: str | None = None
) -> PatternSyntaxError:
    """Complain about *node*."""
    return PatternSyntaxError(message, line=node.lineno, column=node.col_offset, hint=hint)


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
    """Read a name; ``_`` is none."""
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
    """Read what Python's own ``literal_eval`` can."""
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
