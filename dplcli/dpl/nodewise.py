"""Functions that look at nodes one by one, without a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function")

_OPERATORS = "dpl_operators"
_REACH = "dpl_reach"
_FAR = "dpl_far_sighted"
_UNREAD = "dpl_takes_unread"


def nodewise(
    *op_types: str, reach: int = 1, domain: str = "", unread: bool = False
) -> Callable[[Function], Function]:
    """Mark a rewrite function, or a class of them, as one that needs no pattern.

    Args:
        op_types: The operators whose nodes it looks at; none for all.
        reach: How many nodes above the one it looks at it may depend on.
        domain: The operators' domain.
        unread: Whether it looks at nodes that nobody reads, too. Its match has no outputs then, so
            that all it can answer is to take the node out. Most functions have nothing to say
            of such a node.
    """

    def mark(function: Function) -> Function:
        setattr(function, _OPERATORS, frozenset((domain, name) for name in op_types))
        setattr(function, _REACH, reach)
        setattr(function, _UNREAD, unread)
        return function

    return mark


def is_nodewise(function: object) -> bool:
    """Tell whether *function* looks at nodes one by one."""
    return hasattr(function, _OPERATORS)


def operators_of(function: object) -> frozenset[tuple[str, str]] | None:
    """Return the operators (domain, type) it looks at; None for all."""
    return getattr(function, _OPERATORS) or None


def nodewise_reach(function: object) -> int:
    """Return how many nodes above the one it looks at it may depend on."""
    reach: int = getattr(function, _REACH)
    return reach


def takes_unread(function: object) -> bool:
    """Tell whether *function* looks at nodes that nobody reads, too."""
    return getattr(function, _UNREAD, False)


def far_sighted(function: Function) -> Function:
    """Mark a rewrite function that may look at anything above the root, however far away."""
    setattr(function, _FAR, True)
    return function


def is_far_sighted(function: object) -> bool:
    """Tell whether *function* may look at anything above the root."""
    return hasattr(function, _FAR)
