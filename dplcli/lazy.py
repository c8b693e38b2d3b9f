"""What is had only when somebody asks for it: parts of packages, and items of long lists."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Item = TypeVar("Item")


class Deferred(Sequence[Item]):
    """A list whose length is known, and whose items are made when somebody asks for one.

    Args:
        size: How many items it has.
        make: Makes all of them.
    """

    def __init__(self, size: int, make: Callable[[], Sequence[Item]]) -> None:
        self._size = size
        self._make = make
        self._items: Sequence[Item] | None = None

    def __len__(self) -> int:
        """Count the items, without making them."""
        return self._size

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401  # an item, or a list for a slice
        """Return an item or some of them."""
        if self._items is None:
            self._items = self._make()
        return self._items[place]

    def __eq__(self, other: object) -> bool:
        """Compare the items, which are made for that."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list


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
