"""Packages whose parts are imported when somebody asks for them, for a quick start."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package that offers what its modules define (PEP 562).

    The package imports the same names under ``TYPE_CHECKING``, so a type checker knows them, and
    misses what is not there.

    Args:
        package: Its name.
        homes: The names that it offers, and the module of each; ``module:name`` where the name is
            another one there.
    """

    def attribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, other = homes[name].partition(":")
        found: object = getattr(import_module(module), other or name)
        setattr(sys.modules[package], name, found)
        return found

    return attribute
