"""Compare two models by dataflow: how paired graphs differ, and how far weights are apart."""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, cast

import numpy as np

from dplcli.diff.pairing import (
    AttributeChange,
    Distance,
    GraphDiff,
    InputChange,
    ModelDiff,
    ModelPairing,
    NodeChange,
    OpsetChange,
    Remark,
    SignatureChange,
    WeightChange,
    attribute_form,
    attribute_forms,
    both_there,
    free_inputs,
    function_changes,
    has_same_bits,
    is_commutative,
    share_data,
    slots,
    with_twins,
)
from dplcli.ir.model import scope_of
from dplcli.ir.operators import fixed_attribute, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.diff.pairing import Facet, Pairing, ValuePair
    from dplcli.ir import Model, Node, Tensor, Value

    Operands = Iterable[tuple[int, Value | None, Value | None]]

    Statements = Mapping[tuple[str, str], str]

K = TypeVar("K", str, tuple[str, str])
V = TypeVar("V")


# Differences that no computed number depends on: names, order, documentation and the like.


def remarks_on(pairing: Pairing, *, named: bool) -> Iterator[Remark]:
    """Yield the differences between partners that do not change what they compute.

    Args:
        pairing: Which node is which.
        named: Whether the names of inputs and outputs are compared elsewhere.
    """
    where = scope_of(pairing.sides[0].graph)
    for first in pairing.sides[0].nodes:
        if first in pairing.forth:
            yield from _node_remarks(f"{where}: {first.label}", first, pairing.forth[first])
    yield from _order(where, pairing)
    constants = list(dict.fromkeys(_constants(pairing)))
    pairs = [*_computed(pairing, named=named), *constants]
    for before, after in pairs:
        if before.name != after.name:
            yield Remark("names", where, before.name, after.name)
    for before, after in constants:
        if (before.producer is None) != (after.producer is None):
            yield Remark("storage", f"{where}: {before.name}", _stored(before), _stored(after))
    for before, after in pairs:
        if _stated(before) != _stated(after):
            place = f"{where}: {before.name}"
            yield Remark("value-info", place, _stated(before), _stated(after))


def _node_remarks(place: str, first: Node, second: Node) -> Iterator[Remark]:
    if first.name != second.name:
        yield Remark("names", place, first.name, second.name)
    old, new = first.remarks, second.remarks
    if old.doc != new.doc:
        yield Remark("doc", place, old.doc, new.doc)
    yield from mapping_remarks(place, old.metadata, new.metadata)


def mapping_remarks(where: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Remark]:
    """Yield the entries of two ``metadata_props`` that differ."""
    for key, before, after in _differing(old, new):
        yield Remark("metadata", f"{where}: {key}", before or "", after or "")


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    """Yield the keys under which two mappings hold something else, in order, and what they hold."""
    for key in sorted(old.keys() | new.keys()) if old != new else ():
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _order(where: str, pairing: Pairing) -> Iterator[Remark]:
    """Yield one remark if the partners stand in another order."""
    first, second = pairing.sides
    places = [second.position[pairing.forth[n]] for n in first.nodes if n in pairing.forth]
    for before, after in pairwise(places):
        if after < before:
            early, late = second.nodes[after].label, second.nodes[before].label
            yield Remark("order", where, f"{early} after {late}", f"{early} before {late}")
            return


def _computed(pairing: Pairing, *, named: bool) -> Iterator[ValuePair]:
    """Yield the inputs and the results of nodes that correspond to each other."""
    if not named:
        yield from pairing.inputs
    for first, second in pairing.forth.items():
        for old, new in both_there(first.outputs, second.outputs):
            if not (named and old.is_graph_output and new.is_graph_output):
                yield old, new


def _constants(pairing: Pairing) -> Iterator[ValuePair]:
    """Yield the constants that partners read in the same slot."""
    readers = [side.reader for side in pairing.sides]
    for first, second in pairing.forth.items():
        for old, new in both_there(first.inputs, second.inputs):
            if readers[0].tensor(old) is not None and readers[1].tensor(new) is not None:
                yield old, new


def _stored(value: Value) -> str:
    return "initializer" if value.producer is None else "Constant node"


def _stated(value: Value) -> str:
    stated = value.stated_type
    if stated is None:
        return ""
    return "not a tensor" if stated.known is None else str(stated.known)


# How far apart two weights are.


def distance(first: Tensor, second: Tensor) -> Distance | None:
    """Measure how far two constants are apart; None if they differ in type or shape.

    An element has changed if its bits have. So 0 and -0 count as changed, though 0 apart.
    """
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return None
    if first.dtype == "string":
        changed = int((first.numpy() != second.numpy()).sum())
        return Distance(changed, first.size, None, None)
    if share_data(first, second):
        return Distance(0, first.size, 0.0, 0.0)
    changed, max_abs, max_rel = 0, 0.0, 0.0
    for one, other in zip(first.chunks(), second.chunks(), strict=True):
        found = _chunk_distance(one, other)
        changed += found[0]
        max_abs, max_rel = _larger(max_abs, found[1]), _larger(max_rel, found[2])
    return Distance(changed, first.size, max_abs, max_rel)


def _chunk_distance(one: NDArray[Any], other: NDArray[Any]) -> tuple[int, float, float]:
    if has_same_bits(one, other):  # element by element takes ten times as long
        return 0, 0.0, 0.0
    changed = (_bits(one) != _bits(other)).any(axis=1)
    count = int(changed.sum())
    wide = np.complex128 if one.dtype.kind == "c" else _wide(one.dtype)
    a, b = one[changed].astype(wide), other[changed].astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | ((a != a) & (b != b))  # noqa: PLR0124  # NaN
        apart = np.where(same, 0, np.abs(a - b)).astype(np.float64)
        larger = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
        relative = np.where(same, 0, apart / np.where(larger == 0, 1, larger))
    return count, float(apart.max()), float(relative.max())


def _wide(dtype: np.dtype[Any]) -> type[Any]:
    """Return the type to subtract in: exact Python numbers for 64-bit integers, else float64."""
    return np.object_ if dtype.kind in "iu" and dtype.itemsize == 8 else np.float64  # noqa: PLR2004


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """View the elements of *array* as their bytes, one row each."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1)


def _larger(first: float, second: float) -> float:
    """Return the larger number; NaN counts as the largest."""
    return second if second != second or second > first else first  # noqa: PLR0124  # NaN


# How two graphs differ, once their nodes are paired.


_Side: TypeAlias = Literal["input", "output"]


class Comparison:
    """The differences between the graphs of a pairing.

    Args:
        pairing: Which node is which.
        named: Whether names of inputs and outputs count, as in a main graph.
    """

    def __init__(self, pairing: Pairing, *, named: bool) -> None:
        self.pairing = pairing
        self.named = named
        self._weights: dict[tuple[Value, Value], WeightChange] = {}

    def result(self, remarks: Iterable[Remark]) -> GraphDiff:
        """Compare every pair of nodes, inputs and outputs."""
        pairing = self.pairing
        removed, added = pairing.rest()
        first, second = pairing.sides
        changes = [self._change(n, pairing.forth[n]) for n in first.nodes if n in pairing.forth]
        signature = tuple(self._signature())  # which notes weights, too
        return GraphDiff(
            before=first.graph,
            after=second.graph,
            partners=pairing.forth,
            added=tuple(added),
            removed=tuple(removed),
            changes=tuple(change for change in changes if change is not None),
            weights=tuple(self._weights.values()),
            signature=signature,
            remarks=tuple(remarks),
        )

    def _change(self, first: Node, second: Node) -> NodeChange | None:
        change = NodeChange(
            first,
            second,
            attributes=tuple(attribute_changes(first, second)),
            inputs=tuple(self._input_changes(first, second)),
            outputs=tuple(_output_changes(first, second)),
        )
        is_other_call = not self.pairing.is_same_call(first, second)
        differs = change.attributes or change.inputs or change.outputs or is_other_call
        return change if differs else None

    def _input_changes(self, first: Node, second: Node) -> Iterator[InputChange]:
        for slot, before, after in self._operands(first, second):
            if before is None or after is None or not self._is_weight(before, after):
                yield InputChange(slot, before, after)

    def _is_weight(self, before: Value, after: Value) -> bool:
        """Tell whether two different values are constants; if so, note their distance."""
        old, new = (
            side.reader.tensor(value)
            for side, value in zip(self.pairing.sides, (before, after), strict=True)
        )
        if old is None or new is None:
            return False
        if (before, after) not in self._weights:
            self._note(before, after, distance(old, new))
        return True

    def _note(self, before: Value, after: Value, apart: Distance | None) -> None:
        if apart is None or apart.changed:
            self._weights[before, after] = WeightChange(before, after, apart)

    def _operands(self, first: Node, second: Node) -> Operands:
        """Pair the operands of two nodes; leave out those that are the same."""
        both = [
            (slot, before, after)
            for slot, (before, after) in enumerate(zip_longest(slots(first), slots(second)))
        ]
        differing = [item for item in both if not self.pairing.same_value(*item[1:])]
        if differing and is_commutative(first) and is_commutative(second):
            return self._unordered(both)
        return differing

    def _unordered(self, both: list[tuple[int, Value | None, Value | None]]) -> Operands:
        """Pair operands in any order: those of partners, equal ones, constants with constants."""
        places = [place for place, _, _ in both]
        left = [(slot, old) for slot, old, _ in both if old is not None]
        news = [new for _, _, new in both if new is not None]
        # two nodes that compute the same are equal, but only one is the partner
        for is_same in (self.pairing.are_partners, self.pairing.same_value):
            _, left = with_twins(left, news, lambda old, new: is_same(old[1], new))  # noqa: B023
        first, second = (side.reader for side in self.pairing.sides)
        left.sort(key=lambda item: first.tensor(item[1]) is not None)
        news.sort(key=lambda value: second.tensor(value) is not None)
        if len(left) == len(news):
            return [(slot, old, new) for (slot, old), new in zip(left, news, strict=True)]
        found: list[tuple[int, Value | None, Value | None]] = [(s, old, None) for s, old in left]
        return found + [(places[-1], None, new) for new in news]

    def _signature(self) -> Iterator[SignatureChange]:
        pairing = self.pairing
        first, second = (side.graph for side in pairing.sides)
        befores, afters = free_inputs(first.inputs), free_inputs(second.inputs)
        for old, new in pairing.inputs:
            yield from self._interface_change("input", old, new)
            self._compare_default(old, new)
        pairs = [(befores.index(old), afters.index(new)) for old, new in pairing.inputs]
        yield from self._unpaired("input", befores, afters, pairs)
        for one, other in pairing.outputs:
            old, new = first.outputs[one], second.outputs[other]
            yield from self._interface_change("output", old, new)
            if not pairing.same_value(old, new) and not self._is_weight(old, new):
                yield SignatureChange("output", "rewired", old, new)
        yield from self._unpaired("output", first.outputs, second.outputs, pairing.outputs)

    def _interface_change(self, side: _Side, old: Value, new: Value) -> Iterator[SignatureChange]:
        if not self.named:
            return
        if old.name != new.name:
            yield SignatureChange(side, "renamed", old, new)
        if old.declared_type != new.declared_type:
            yield SignatureChange(side, "retyped", old, new)

    def _unpaired(
        self,
        side: _Side,
        befores: list[Value],
        afters: list[Value],
        pairs: Iterable[tuple[int, int]],
    ) -> Iterator[SignatureChange]:
        """Yield what only one graph has, and what changed its place among the pairs."""
        ordered = sorted(pairs)
        ranks = {new: rank for rank, new in enumerate(sorted(new for _, new in ordered))}
        for rank, (old, new) in enumerate(ordered):
            if ranks[new] != rank:
                yield SignatureChange(side, "moved", befores[old], afters[new])
        for which, values in enumerate((befores, afters)):
            paired = {pair[which] for pair in ordered}
            for value in (v for place, v in enumerate(values) if place not in paired):
                if which:
                    yield SignatureChange(side, "added", None, value)
                else:
                    yield SignatureChange(side, "removed", value, None)

    def _compare_default(self, old: Value, new: Value) -> None:
        """Compare the default data of two inputs, where they have any."""
        tensors = [
            value.graph.model.codec.tensor(value.initializer_source)
            for value in (old, new)
            if value.is_initializer
        ]
        if tensors:
            self._note(old, new, distance(*tensors) if len(tensors) > 1 else None)


def attribute_changes(first: Node, second: Node) -> Iterator[AttributeChange]:
    """Yield the attributes that differ.

    To state a default is no difference. If the opsets differ, an unstated default may differ, too.
    """
    versions = [node.graph.opset_imports.get(node.domain) for node in (first, second)]
    is_other_opset = versions[0] != versions[1]
    if first.attributes is second.attributes and not is_other_opset:
        return
    stated = (attribute_forms(first), attribute_forms(second))
    schemas = (schema_of(first), schema_of(second))
    defaults = [
        {name: attribute_form(value) for name, value in schema.defaults.items()} if schema else {}
        for schema in schemas
    ]
    names = stated[0].keys() | stated[1].keys()
    if is_other_opset and first.qualified_op == second.qualified_op:
        names |= defaults[0].keys() & defaults[1].keys()
    forms = [
        {name: own.get(name, default.get(name)) for name in names}
        for own, default in zip(stated, defaults, strict=True)
    ]
    for name, *_ in _differing(*forms):
        yield AttributeChange(name, fixed_attribute(first, name), fixed_attribute(second, name))


def _output_changes(first: Node, second: Node) -> Iterator[int]:
    for index, (old, new) in enumerate(zip_longest(first.outputs, second.outputs)):
        if (old is None) != (new is None):
            yield index


# Compare two models by dataflow.


DEFAULT_IGNORED: frozenset[Facet] = frozenset(
    {"names", "order", "doc", "metadata", "value-info", "storage"}
)
"""Facets that do not count unless the user says so: no computed number depends on them."""


class Differ(ModelPairing):
    """Compares two models.

    Args:
        first: One model.
        second: The other.
        statements: What each model says of itself, by facet and key.
    """

    def __init__(
        self, first: Model, second: Model, statements: tuple[Statements, Statements] = ({}, {})
    ) -> None:
        super().__init__(first, second)
        self.statements = statements

    def result(self, ignored: frozenset[Facet] = DEFAULT_IGNORED) -> ModelDiff:
        """Compare the main graphs with the bodies in them, and the functions."""
        first, second = self.models
        graphs = [
            Comparison(pairing, named=is_main).result(remarks_on(pairing, named=is_main))
            for pairing, is_main in self.pairings()
        ]
        return ModelDiff(
            graphs=tuple(graphs),
            functions=tuple(function_changes(first, second, self.functions)),
            opsets=tuple(OpsetChange(*found) for found in _imports(first, second, used=True)),
            remarks=tuple(self._remarks()),
            ignored=ignored,
        )

    def _remarks(self) -> Iterator[Remark]:
        for (facet, key), old, new in _differing(*self.statements):
            yield Remark(cast("Facet", facet), key, old or "", new or "")
        for domain, old_version, new_version in _imports(*self.models, used=False):
            versions = [str(v or "") for v in (old_version, new_version)]
            yield Remark("metadata", f"import of {domain or 'ai.onnx'}", *versions)
        for one, other in self.functions:
            where = f"function {one.domain}::{one.name}"
            yield from mapping_remarks(where, one.metadata, other.metadata)


def _imports(
    first: Model, second: Model, *, used: bool
) -> Iterator[tuple[str, int | None, int | None]]:
    """Yield the imports that differ: of domains that some node is in, or of all others."""
    in_use = {
        node.domain for model in (first, second) for graph in model.graphs() for node in graph
    }
    for domain, old, new in _differing(first.opset_imports, second.opset_imports):
        if (domain in in_use) is used:
            yield domain, old, new
