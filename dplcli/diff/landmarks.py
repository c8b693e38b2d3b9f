"""Tell nodes apart by what both graphs have before and behind them, however far away.

Between two landmarks a rewrite may have changed every node but a few, so that no neighbourhood is
the same; what lies between the same landmarks in both graphs still belongs together. Landmarks
are pairs of nodes, and weights that both graphs hold. The last one before a node and the first one
behind it, in an order that is the same for both graphs, are found in one walk each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from dplcli.diff.reading import readers, slots

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from dplcli.diff.pairing import Pairing
    from dplcli.diff.side import Side
    from dplcli.ir import Node, Tensor

    Ranks: TypeAlias = Mapping[Hashable, int]

MANY = 16
"""From how many numbers on equal data is no chance."""
_NONE = -1


def is_weight(tensor: Tensor | None) -> bool:
    """Tell whether a constant holds data that is hardly the same by chance."""
    return tensor is not None and tensor.size >= MANY


def landmark_colours(pairing: Pairing) -> tuple[dict[Node, int], dict[Node, int]]:
    """Number the nodes of both graphs by the landmarks before and behind them."""
    marks = tuple(_marks(pairing, side) for side in pairing.sides)
    ranks = _ranks(
        *(_first_places(side, of) for side, of in zip(pairing.sides, marks, strict=True))
    )
    first, second = (
        _colours(side, of, ranks) for side, of in zip(pairing.sides, marks, strict=True)
    )
    return first, second


def _marks(pairing: Pairing, side: Side) -> dict[Node, list[Hashable]]:
    """List the landmarks that each node may be or hold."""
    found: dict[Node, list[Hashable]] = {}
    for node in side.nodes:
        values = [v for v in slots(node) if v is not None and is_weight(side.reader.tensor(v))]
        marks: list[Hashable] = [side.reader.content(value) for value in values]
        if pairing.is_paired(node):
            marks.append(pairing.number(node))
        found[node] = marks
    return found


def _first_places(side: Side, marks: Mapping[Node, list[Hashable]]) -> dict[Hashable, int]:
    places: dict[Hashable, int] = {}
    for node in side.nodes:
        for mark in marks[node]:
            places.setdefault(mark, side.position[node])
    return places


def _ranks(first: Ranks, second: Ranks) -> dict[Hashable, int]:
    """Order the landmarks of both graphs in a way that does not depend on which comes first."""
    shared = [mark for mark in first if mark in second]
    shared.sort(
        key=lambda m: (first[m] + second[m], abs(first[m] - second[m]), isinstance(m, int), repr(m))
    )
    return {mark: rank for rank, mark in enumerate(shared)}


def _colours(side: Side, marks: Mapping[Node, list[Hashable]], ranks: Ranks) -> dict[Node, int]:
    before: dict[Node, int] = {}
    own = {node: [ranks[mark] for mark in marks[node] if mark in ranks] for node in side.nodes}
    for node in side.nodes:
        makers = [value.producer for value in slots(node) if value is not None]
        known = [before[maker] for maker in makers if maker is not None and maker in before]
        before[node] = max([*own[node], *known], default=_NONE)
    behind: dict[Node, int] = {}
    for node in reversed(side.nodes):
        users = {u for o in node.outputs if o is not None for u, _ in readers(o, side.graph)}
        known = [min([*own[user], behind[user]]) for user in users if user in behind]
        behind[node] = min(known, default=len(ranks))
    return {node: side.numbers(("between", before[node], behind[node])) for node in side.nodes}
