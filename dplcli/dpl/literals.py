"""What the readers of pattern texts share: places, complaints, and values written out."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.dpl.pattern import Place
from dplcli.errors import PatternSyntaxError
from dplcli.ir.types import DTYPE_CODES

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


_VALUES_BY_KIND = "biufc"
_LARGEST_EXTENT = 1_000_000


def read_shape(node: ast.expr) -> list[int]:
    """Read the extents of an array, which is written out and hence not large."""
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    extents = [read_number(item) for item in items]
    if any(extent > _LARGEST_EXTENT for extent in extents):
        raise wrong(node, "the array is too large")
    return extents


def read_array(items: object, dtype: str | None) -> np.ndarray[Any, np.dtype[Any]]:
    """Make the array; numbers with a point are float32 and others int64 unless *dtype* says.

    Raises:
        ValueError: They are no numbers, truth values or texts, or the dtype cannot hold them.
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
        made = array.astype(dtype)
    if made.dtype.kind not in "fc" and not np.array_equal(made, array):
        raise ValueError(f"{dtype} cannot hold all items")
    return made
