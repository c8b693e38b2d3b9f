"""Which input and output of one graph is which of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.diff.reading import free_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dplcli.diff.pairing import Places, ValuePair
    from dplcli.diff.side import Side
    from dplcli.ir import Value


def pair_inputs(first: Sequence[Value], second: Sequence[Value]) -> list[ValuePair]:
    """Pair the inputs of main graphs: by name, then those left that are declared alike, in order.

    Who calls a model names its inputs, so that names count here.
    """
    olds, news = free_inputs(first), {value.name: value for value in free_inputs(second)}
    pairs = [(old, news.pop(old.name)) for old in olds if old.name in news]
    paired = {old for old, _ in pairs}
    left = list(news.values())
    for old in olds:
        if old in paired:
            continue
        twin = next((new for new in left if new.declared_type == old.declared_type), None)
        if twin is not None:
            left.remove(twin)
            pairs.append((old, twin))
    return pairs


def pair_places(first: Sequence[Value], second: Sequence[Value]) -> list[ValuePair]:
    """Pair the inputs of bodies and functions, which are told apart by their places."""
    return list(zip(free_inputs(first), free_inputs(second), strict=False))


def pair_outputs(first: Side, second: Side, *, by_name: bool) -> list[Places]:
    """Pair outputs: by name in main graphs, those left by what they are, then in order."""
    olds, news = first.graph.outputs, second.graph.outputs
    if not by_name:
        return [(place, place) for place in range(min(len(olds), len(news)))]
    places = {value.name: place for place, value in enumerate(news)}
    pairs = [(k, places.pop(value.name)) for k, value in enumerate(olds) if value.name in places]
    left = _left(len(olds), (old for old, _ in pairs)), sorted(places.values())
    alike = []
    for old in left[0]:
        number = first.number_of(olds[old], "exact")
        twin = next(
            (new for new in left[1] if second.number_of(news[new], "exact") == number), None
        )
        if twin is not None:
            left[1].remove(twin)
            alike.append((old, twin))
    rest = _left(len(olds), (old for old, _ in (*pairs, *alike)))
    return [*pairs, *alike, *zip(rest, left[1], strict=False)]


def _left(count: int, taken: Iterable[int]) -> list[int]:
    known = set(taken)
    return [place for place in range(count) if place not in known]
