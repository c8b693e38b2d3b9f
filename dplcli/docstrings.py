"""Docstrings as data: help of commands and descriptions in schemas are made of them."""

from __future__ import annotations

import re
import sys
from functools import cache
from inspect import getdoc, getsource
from typing import Any


def docstring(described: Any) -> str:  # noqa: ANN401  # a class or a function
    """Return a docstring; ``python -OO`` takes it out of the program, and not out of its text."""
    if sys.flags.optimize > 1:
        return _stated(described.__module__).get(described.__qualname__, "")
    return getdoc(described) or ""


def attributes(described: Any) -> dict[str, str]:  # noqa: ANN401  # a class
    """Return what the docstring of a class says of each attribute, in one line each."""
    listed = docstring(described).partition("\nAttributes:\n")[2]
    told = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in told}


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
