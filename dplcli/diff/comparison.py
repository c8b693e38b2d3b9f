"""Say in what two graphs differ whose nodes have been paired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from dplcli.diff.reading import attribute_form, attribute_forms, is_commutative, slots
from dplcli.diff.result import (
    AttributeChange,
    GraphDiff,
    InputChange,
    NodeChange,
    SignatureChange,
    WeightChange,
)
from dplcli.diff.weights import distance
from dplcli.ir.operators import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dplcli.diff.pairing import Pairing
    from dplcli.diff.result import Remark
    from dplcli.ir import Attribute, Node, Value

    Operands = Iterable[tuple[int, Value | None, Value | None]]

_Side: TypeAlias = Literal["input", "output"]


class Comparison:
    """The differences between the graphs of a pairing.

    Args:
        pairing: Which node is which.
        named: Whether names of inputs and outputs count, as in a main graph.
    """

    def __init__(self, pairing: Pairing, *, named: bool) -> None:
        """Compare nothing yet."""
        self.pairing = pairing
        self.named = named
        self._weights: dict[tuple[Value, Value], WeightChange] = {}

    def result(self, remarks: Iterable[Remark]) -> GraphDiff:
        """Compare every pair of nodes, inputs and outputs."""
        pairing = self.pairing
        removed, added = pairing.rest()
        first, second = pairing.sides
        changes = [self._change(n, pairing.forth[n]) for n in first.nodes if n in pairing.forth]
        signature = tuple(self._signature())
        return GraphDiff(
            before=first.graph,
            after=second.graph,
            paired=len(pairing.forth),
            added=tuple(added),
            removed=tuple(removed),
            changes=tuple(change for change in changes if change is not None),
            weights=tuple(self._weights.values()),
            signature=signature,
            remarks=tuple(remarks),
        )

    # -- nodes -------------------------------------------------------------------------------

    def _change(self, first: Node, second: Node) -> NodeChange | None:
        change = NodeChange(
            first,
            second,
            attributes=tuple(attribute_changes(first, second)),
            inputs=tuple(self._input_changes(first, second)),
            outputs=tuple(_output_changes(first, second)),
        )
        is_other_call = self._label(0, first) != self._label(1, second)
        differs = change.attributes or change.inputs or change.outputs or is_other_call
        return change if differs else None

    def _label(self, which: int, node: Node) -> object:
        return self.pairing.sides[which].reader.label(node)

    def _input_changes(self, first: Node, second: Node) -> Iterator[InputChange]:
        for slot, before, after in self._operands(first, second):
            if before is None and after is None:
                continue
            if before is not None and after is not None and self._is_weight(before, after):
                continue
            yield InputChange(slot, before, after)

    def _is_weight(self, before: Value, after: Value) -> bool:
        """Tell whether two values that are not one are constants, and measure their distance."""
        first, second = self.pairing.sides
        old, new = first.reader.tensor(before), second.reader.tensor(after)
        if old is None or new is None:
            return False
        if (before, after) not in self._weights:
            change = WeightChange(before, after, distance(old, new))
            self._weights[before, after] = change
        return True

    def _operands(self, first: Node, second: Node) -> Operands:
        """Pair what two nodes read; leave out what is the same."""
        olds, news = slots(first), slots(second)
        length = max(len(olds), len(news))
        padded = tuple((*values, *[None] * (length - len(values))) for values in (olds, news))
        differing = [
            (slot, before, after)
            for slot, (before, after) in enumerate(zip(*padded, strict=True))
            if not self.pairing.same_value(before, after)
        ]
        if len(differing) > 1 and is_commutative(first) and is_commutative(second):
            return self._unordered(differing)
        return differing

    def _unordered(self, differing: list[tuple[int, Value | None, Value | None]]) -> Operands:
        """Pair operands in any order: the same ones first, constants with constants then."""
        places = [place for place, _, _ in differing]
        olds = [(slot, old) for slot, old, _ in differing if old is not None]
        news = [new for _, _, new in differing if new is not None]
        left = []
        for slot, old in olds:
            twin = next((new for new in news if self.pairing.same_value(old, new)), None)
            if twin is None:
                left.append((slot, old))
            else:
                news.remove(twin)
        first, second = (side.reader for side in self.pairing.sides)
        left.sort(key=lambda item: first.tensor(item[1]) is not None)
        news.sort(key=lambda value: second.tensor(value) is not None)
        if len(left) == len(news):
            return [(slot, old, new) for (slot, old), new in zip(left, news, strict=True)]
        found: list[tuple[int, Value | None, Value | None]] = [(s, old, None) for s, old in left]
        return found + [(places[-1], None, new) for new in news]

    # -- inputs and outputs --------------------------------------------------------------------

    def _signature(self) -> Iterator[SignatureChange]:
        pairing = self.pairing
        first, second = (side.graph for side in pairing.sides)
        befores = [value for value in first.inputs if not value.is_constant]
        afters = [value for value in second.inputs if not value.is_constant]
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
        """Yield what only one graph has, and what has another place among the pairs."""
        ordered = sorted(pairs)
        ranks = {new: rank for rank, new in enumerate(sorted(new for _, new in ordered))}
        for rank, (old, new) in enumerate(ordered):
            if ranks[new] != rank:
                yield SignatureChange(side, "moved", befores[old], afters[new])
        for which, values in enumerate((befores, afters)):
            paired = {pair[which] for pair in ordered}
            for place, value in enumerate(values):
                if place not in paired and which:
                    yield SignatureChange(side, "added", None, value)
                elif place not in paired:
                    yield SignatureChange(side, "removed", value, None)

    def _compare_default(self, old: Value, new: Value) -> None:
        """Compare the data of inputs that have some in case that none is given."""
        tensors = [
            value.graph.model.codec.tensor(value.initializer_source)
            for value in (old, new)
            if value.is_initializer
        ]
        if not tensors:
            return
        if len(tensors) == 1:
            self._weights[old, new] = WeightChange(old, new, None)
            return
        apart = distance(*tensors)
        if apart is None or apart.changed:
            self._weights[old, new] = WeightChange(old, new, apart)


def attribute_changes(first: Node, second: Node) -> Iterator[AttributeChange]:
    """Yield the attributes that differ, those with which only one states the default left out.

    Where the nodes are of different opsets, a default that is not stated may differ, too.
    """
    is_other_opset = _version(first) != _version(second)
    if first.attributes is second.attributes and not is_other_opset:
        return
    stated = (attribute_forms(first), attribute_forms(second))
    defaults = (_defaults(first), _defaults(second))
    names = stated[0].keys() | stated[1].keys()
    if is_other_opset and first.qualified_op == second.qualified_op:
        names |= defaults[0].keys() & defaults[1].keys()
    for name in sorted(names):
        forms = tuple(
            forms.get(name, default.get(name))
            for forms, default in zip(stated, defaults, strict=True)
        )
        if forms[0] != forms[1]:
            yield AttributeChange(name, _attribute(first, name), _attribute(second, name))


def _version(node: Node) -> int | None:
    return node.graph.opset_imports.get(node.domain)


def _defaults(node: Node) -> Mapping[str, object]:
    schema = schema_of(node)
    return {} if schema is None else {k: attribute_form(v) for k, v in schema.defaults.items()}


def _attribute(node: Node, name: str) -> Attribute | None:
    stated = node.attributes.get(name)
    schema = schema_of(node)
    return stated if stated is not None or schema is None else schema.defaults.get(name)


def _output_changes(first: Node, second: Node) -> Iterator[int]:
    olds, news = first.outputs, second.outputs
    for index in range(max(len(olds), len(news))):
        old = olds[index] if index < len(olds) else None
        new = news[index] if index < len(news) else None
        if (old is None) != (new is None):
            yield index
