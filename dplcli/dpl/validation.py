"""What pydantic objects to in a file, as one message with a place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dplcli.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import ValidationError

    from dplcli.errors import CatalogError

    Where: TypeAlias = tuple[str | int, ...]


class Places(Protocol):
    """What knows where the items of some data are written."""

    def error(self, message: str, where: Where, hint: str | None = None) -> CatalogError:
        """Point at the item at *where*."""


def explain_invalid(
    source: Places, error: ValidationError, keys_at: Callable[[Where], Iterable[str]]
) -> CatalogError:
    """Turn the first thing that pydantic objects to into a message that points into the file.

    Args:
        source: The file, or a part of it.
        error: All that pydantic objects to.
        keys_at: Returns the keys that may stand where an unknown one stands.
    """
    problems: list[Any] = list(error.errors())
    misspelt = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    problem = (misspelt or problems)[0]
    where = tuple(problem["loc"])
    hint = None
    match problem["type"]:
        case "extra_forbidden":
            message = f"unknown key {where[-1]!r}"
            hint = did_you_mean(str(where[-1]), keys_at(where))
        case "missing":
            message = f"the key {where[-1]!r} is missing"
        case "string_pattern_mismatch":
            message = f"{where[-1]}: {problem['input']!r} is not a name: letters, digits and _"
        case _:
            text = problem["msg"].removeprefix("Value error, ")
            message = f"{'.'.join(map(str, where))}: {text[:1].lower()}{text[1:]}"
    return source.error(message, where, hint)
