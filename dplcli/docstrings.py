"""What classes and functions say of themselves, where a reader sees it: in help and in schemas."""

from __future__ import annotations

import sys
from functools import cache
from inspect import getdoc, getsource
from typing import Any


def docstring(described: Any) -> str:  # noqa: ANN401  # a class or a function
    """Return a docstring; ``python -OO`` takes it out of the program, and not out of its text."""
    if sys.flags.optimize > 1:
        return _stated(described.__module__).get(described.__qualname__, "")
    return getdoc(described) or ""


@cache
def _stated(module: str) -> dict[str, str]:
    import ast  # noqa: PLC0415  # for python -OO alone

    stated: dict[str, str] = {}
    try:
        pending: list[tuple[str, ast.AST]] = [("", ast.parse(getsource(sys.modules[module])))]
    except OSError:  # a program without its text
        return stated
    for prefix, outer in pending:
        for part in ast.iter_child_nodes(outer):
            if isinstance(part, (ast.ClassDef, ast.FunctionDef)):
                stated[prefix + part.name] = ast.get_docstring(part) or ""
                pending.append((f"{prefix}{part.name}.", part))
    return stated
