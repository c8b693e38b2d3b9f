"""Parts of packages that are had only when somebody asks for them."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORT = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: as (\w+))?")


def lazy(package: str) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package (PEP 562).

    It offers what the package imports under ``TYPE_CHECKING``: type checkers read these lines, and
    so does it, when it is first asked.
    """

    def attribute(name: str) -> object:
        home = offers_of(package).get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, other = home
        found: object = getattr(import_module(module), other)
        setattr(sys.modules[package], name, found)
        return found

    return attribute


@cache
def offers_of(package: str) -> dict[str, tuple[str, str]]:
    """Return the modules that offer the names of a lazy package, and what they call them."""
    loader: Any = sys.modules[package].__loader__
    return indented_imports(loader.get_source(package))


def indented_imports(source: str) -> dict[str, tuple[str, str]]:
    """Return what a module imports under ``TYPE_CHECKING``: by name, where it is and as what."""
    return {
        own or name: (module, name)
        for module, *names in _IMPORT.findall(source)
        for name, own in _NAME.findall("".join(names))
    }
