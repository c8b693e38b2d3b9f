"""Which local function of one model is which of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.diff.reading import Numbers, Reader
from dplcli.diff.result import FunctionChange
from dplcli.diff.side import Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dplcli.diff.reading import Form, Key
    from dplcli.diff.side import Resolve
    from dplcli.ir import Function, Model, Value

    FunctionPair = tuple[Function, Function]


def pair_functions(first: Model, second: Model) -> list[FunctionPair]:
    """Pair functions by their keys, the rest by their bodies if only one of each has such a body.

    A renamed function may call another one, so that it is looked at again when that has a partner.
    """
    shared = first.functions.keys() & second.functions.keys()
    pairs = [
        (first.functions[key], second.functions[key]) for key in first.functions if key in shared
    ]
    rest = [[f for k, f in m.functions.items() if k not in shared] for m in (first, second)]
    while rest[0] and rest[1]:
        aliases = aliases_of(pairs)
        numbers = Numbers()
        bodies = (
            _by_body(rest[0], Reader({}), numbers),
            _by_body(rest[1], Reader(aliases), numbers),
        )
        found = [
            (bodies[0][form][0], bodies[1][form][0])
            for form in bodies[0]
            if len(bodies[0][form]) == 1 == len(bodies[1].get(form, ()))
        ]
        if not found:
            break
        pairs += found
        taken = {function for pair in found for function in pair}
        rest = [[f for f in functions if f not in taken] for functions in rest]
    return pairs


def aliases_of(pairs: list[FunctionPair]) -> dict[Key, Key]:
    """Return, for each function of the second model under another key: the first one's key."""
    return {other.key: one.key for one, other in pairs if one.key != other.key}


def _by_body(
    functions: list[Function], reader: Reader, numbers: Numbers
) -> Mapping[Form, list[Function]]:
    found: dict[Form, list[Function]] = {}
    for function in functions:
        found.setdefault(_body_form(function, reader, numbers), []).append(function)
    return found


def _body_form(function: Function, reader: Reader, numbers: Numbers) -> Form:
    body = function.body
    given = {value: numbers(("input", place)) for place, value in enumerate(body.inputs)}
    side = Side(body, reader, numbers, given=given, outer=_nowhere(numbers), tag=0)
    outputs = tuple(side.number_of(value, "exact") for value in body.outputs)
    made = tuple(sorted(side.made("exact").values()))
    return (len(body.inputs), outputs, made, declared(function))


def _nowhere(numbers: Numbers) -> Resolve:
    def outer(value: Value) -> int:
        return numbers(("nowhere", value.name))

    return outer


def declared(function: Function) -> Form:
    """Return the attributes that *function* declares, and the defaults of those that have one."""
    defaults = sorted((name, repr(item.value)) for name, item in function.defaults.items())
    return (tuple(sorted(function.attributes)), tuple(defaults))


def function_changes(
    first: Model, second: Model, pairs: list[FunctionPair]
) -> Iterator[FunctionChange]:
    """Yield the functions that differ but for what their bodies hold."""
    paired = {function for pair in pairs for function in pair}
    for one, other in pairs:
        if one.key != other.key:
            yield FunctionChange("renamed", one, other)
        if declared(one) != declared(other):
            yield FunctionChange("redeclared", one, other)
    for function in first.functions.values():
        if function not in paired:
            yield FunctionChange("removed", function, None)
    for function in second.functions.values():
        if function not in paired:
            yield FunctionChange("added", None, function)
