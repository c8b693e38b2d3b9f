"""Parts of packages that are had only when somebody asks for them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(package: str, offers: Mapping[str, str]) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package that offers what modules define (PEP 562).

    The package imports the same names under ``TYPE_CHECKING``, so a type checker knows them, and
    misses what is not there.

    Args:
        package: Its name.
        offers: The names from each module, with spaces between; ``name=other`` where the module
            calls it *other*.
    """
    homes: dict[str, tuple[str, str]] = {}
    for module, names in offers.items():
        for offer in names.split():
            name, _, other = offer.partition("=")
            homes[name] = module, other or name

    def attribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, other = homes[name]
        found: object = getattr(import_module(module), other)
        setattr(sys.modules[package], name, found)
        return found

    return attribute
