"""Differences that nothing computed depends on: names, order, documentation and the like."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dplcli.diff.reading import slots
from dplcli.diff.result import Remark
from dplcli.ir.scopes import scope_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dplcli.diff.pairing import Pairing
    from dplcli.ir import Value


def remarks_on(pairing: Pairing, *, named: bool) -> Iterator[Remark]:
    """Yield what differs between partners beside what they compute.

    Args:
        pairing: Which node is which.
        named: Whether the names of inputs and outputs are compared elsewhere.
    """
    where = scope_of(pairing.sides[0].graph)
    for first in pairing.sides[0].nodes:
        second = pairing.forth.get(first)
        if second is None:
            continue
        place = f"{where}: {first.label}"
        if first.name != second.name:
            yield Remark("names", place, first.name, second.name)
        old, new = first.remarks, second.remarks
        if old.doc != new.doc:
            yield Remark("doc", place, old.doc, new.doc)
        yield from mapping_remarks(place, old.metadata, new.metadata)
    yield from _order(where, pairing)
    pairs = list(_value_pairs(pairing, named=named))
    for old_value, new_value in pairs:
        if old_value.name != new_value.name:
            yield Remark("names", where, old_value.name, new_value.name)
    yield from _storage(where, pairing)
    yield from _types(where, pairs)


def mapping_remarks(where: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Remark]:
    """Yield the entries of two ``metadata_props`` that differ."""
    if old == new:
        return
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield Remark("metadata", f"{where}: {key}", old.get(key, ""), new.get(key, ""))


def _order(where: str, pairing: Pairing) -> Iterator[Remark]:
    """Yield one remark if the partners stand in another order."""
    first, second = pairing.sides
    places = [second.position[pairing.forth[n]] for n in first.nodes if n in pairing.forth]
    for before, after in pairwise(places):
        if after < before:
            early, late = second.nodes[after].label, second.nodes[before].label
            yield Remark("order", where, f"{early} after {late}", f"{early} before {late}")
            return


def _value_pairs(pairing: Pairing, *, named: bool) -> Iterator[tuple[Value, Value]]:
    """Yield the inner values that are one."""
    if not named:
        yield from pairing.inputs
    for first, second in pairing.forth.items():
        for old, new in zip(first.outputs, second.outputs, strict=False):
            if old is None or new is None:
                continue
            if not (named and old.is_graph_output and new.is_graph_output):
                yield old, new
    yield from dict.fromkeys(_constants(pairing))


def _constants(pairing: Pairing) -> Iterator[tuple[Value, Value]]:
    """Yield the constants that partners read in the same slot."""
    readers = [side.reader for side in pairing.sides]
    for first, second in pairing.forth.items():
        for old, new in zip(slots(first), slots(second), strict=False):
            if old is None or new is None:
                continue
            if readers[0].tensor(old) is not None and readers[1].tensor(new) is not None:
                yield old, new


def _storage(where: str, pairing: Pairing) -> Iterator[Remark]:
    for old, new in dict.fromkeys(_constants(pairing)):
        if (old.producer is None) != (new.producer is None):
            yield Remark("storage", f"{where}: {old.name}", _stored(old), _stored(new))


def _stored(value: Value) -> str:
    return "initializer" if value.producer is None else "Constant node"


def _types(where: str, pairs: Iterable[tuple[Value, Value]]) -> Iterator[Remark]:
    for old, new in pairs:
        before, after = _stated(old), _stated(new)
        if before != after:
            yield Remark("value-info", f"{where}: {old.name}", before, after)


def _stated(value: Value) -> str:
    stated = value.stated_type
    if stated is None:
        return ""
    return "not a tensor" if stated.known is None else str(stated.known)
