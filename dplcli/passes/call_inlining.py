"""Put the body of a function in the place of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir import Tensor
from dplcli.ir.operators import schema_of
from dplcli.ir.traversal import behind_identities, captured_values
from dplcli.passes.body_copies import BodyCopier, CallAttributes
from dplcli.passes.call_records import CallRecord, align
from dplcli.passes.embedded import EmbeddedConstants, is_made_before, same_data
from dplcli.passes.inlined_names import find_value
from dplcli.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.ir import Attribute, Function, Node, Remarks, Value
    from dplcli.passes.body_copies import Values
    from dplcli.passes.inlined_names import InlinedNames


class Replacement(NamedTuple):
    """What took the place of a call.

    Attributes:
        nodes: The nodes, in order; those that were there anyway do not count.
        is_restored: Whether they are what the call says that it stood for.
    """

    nodes: tuple[Node, ...]
    is_restored: bool


def inline_call(
    call: Node, function: Function, record: CallRecord | None, names: InlinedNames
) -> Replacement:
    """Replace *call* by copies of the nodes of *function*, as the record says they were.

    Args:
        call: The call; its outputs keep their names.
        function: What it calls.
        record: What it says that it stands for; None if it says nothing.
        names: Names in use.
    """
    numbers = None if record is None else align(record, function.body)
    if numbers is None:
        record = None
    nodes = _Inliner(call, function, record, numbers or {}, names).run()
    return Replacement(tuple(nodes), record is not None)


class _Inliner:
    def __init__(
        self,
        call: Node,
        function: Function,
        record: CallRecord | None,
        numbers: Mapping[Node, int | None],
        names: InlinedNames,
    ) -> None:
        self.call = call
        self.body = function.body
        self.record = record or CallRecord(())
        self.numbers = numbers
        self.names = names
        self.graph = call.graph
        self.rewriter = GraphRewriter(call.graph)
        self.attributes = CallAttributes(function, call)
        self.embedded = EmbeddedConstants(call, self.record.constants, names)
        self.constants: dict[Value, Tensor] = {}
        self.values: Values = {}
        self.returned: dict[Value, Value] = {}
        self.copies: list[tuple[Value, Value]] = []
        self.made: list[Node] = []

    def run(self) -> list[Node]:
        """Put the body in the place of the call."""
        inputs = [*self.call.inputs, *[None] * len(self.body.inputs)]
        self.values.update(zip(self.body.inputs, inputs, strict=False))
        for inner, outer in zip(self.body.outputs, self.call.outputs, strict=False):
            if outer is None:
                continue
            if inner.producer is None or inner in self.returned:
                self.copies.append((inner, outer))
            else:
                self.returned[inner] = outer
        for node in self.body:
            self._put(node)
        for inner, outer in self.copies:
            self._put_copy(inner, outer)
        self.rewriter.erase([self.call])
        return [*self.embedded.nodes, *self.made]

    def _put(self, node: Node) -> None:
        number = self.numbers.get(node)
        if number is None and node in self.numbers:
            value = node.outputs[0]
            tensor = None if value is None else value.constant
            if value is not None and tensor is not None and value not in self.returned:
                self.constants[value] = tensor
                return
        inputs = self._inputs(node, number)
        left_out = () if number is None else self.record.entries[number].defaulted
        attributes = self.attributes.applied_to(node, left_out)
        if number is None or not self._is_there(node, number, inputs, attributes):
            self._insert(node, number, inputs, attributes)
        self._state_types(node, number)

    def _inputs(self, node: Node, number: int | None) -> list[Value | None]:
        reads = {} if number is None else self.record.reads.get(number, {})
        inputs = [
            None if value is None else self._read(value, reads.get(slot))
            for slot, value in enumerate(node.inputs)
        ]
        while number is None and inputs and inputs[-1] is None:
            inputs.pop()
        omitted = [slot for slot, name in reads.items() if not name]
        if omitted and len(inputs) <= max(omitted) < _most_inputs(node):
            inputs += [None] * (max(omitted) + 1 - len(inputs))
        return inputs

    def _read(self, value: Value, name: str | None) -> Value | None:
        """Return what to read for *value* of the body, by the name that was read if possible."""
        constant = self.constants.get(value)
        if constant is not None:
            found = None if name is None else self.embedded.put_back(name, constant)
            return found or self._plain_constant(value)
        known = self.values[value]
        if name is None or known is None:
            return known
        other = find_value(self.graph, name)
        if other is None or not is_made_before(other, self.call):
            return known
        return other if behind_identities(other) is behind_identities(known) else known

    def _plain_constant(self, value: Value) -> Value | None:
        """Put an embedded constant in as the node it is in the body."""
        if value not in self.values:
            assert value.producer is not None  # noqa: S101  # a Constant node makes it
            self._insert(value.producer, None, [], value.producer.attributes)
        return self.values[value]

    def _is_there(
        self,
        node: Node,
        number: int,
        inputs: list[Value | None],
        attributes: Mapping[str, Attribute],
    ) -> bool:
        """Look for the node that this one repeats: it stayed because others needed it."""
        if any(value in self.returned for value in node.outputs):
            return False
        entry = self.record.entries[number]
        first = next((name for name in entry.outputs if name), "")
        value = self.graph.values.get(first)
        there = None if value is None else value.producer
        if value is None or there is None or not is_made_before(value, self.call):
            return False
        same = (there.qualified_op, there.overload) == (node.qualified_op, node.overload)
        if not same or there.subgraphs or node.subgraphs or list(there.inputs) != inputs:
            return False
        if tuple("" if v is None else v.name for v in there.outputs) != entry.outputs:
            return False
        if not _same_attributes(there.attributes, attributes):
            return False
        pairs = zip(node.outputs, there.outputs, strict=True)
        self.values.update((inner, outer) for inner, outer in pairs if inner is not None)
        return True

    def _insert(
        self,
        node: Node,
        number: int | None,
        inputs: list[Value | None],
        attributes: Mapping[str, Attribute],
    ) -> None:
        remarks = self._remarks(node, number)
        copy = self.rewriter.insert(
            self.call,
            node.op_type,
            inputs,
            domain=node.domain,
            name=self._name(node, number),
            attributes=attributes,
            metadata=remarks.metadata,
        )
        copy.overload = node.overload
        copy.doc = remarks.doc
        if node.subgraphs:
            self._copy_bodies(node, copy)
        outputs: list[Value | None] = []
        for index, value in enumerate(node.outputs):
            outputs.append(None if value is None else self._define(value, copy, index, number))
        copy.outputs = tuple(outputs)
        self.made.append(copy)

    def _copy_bodies(self, node: Node, copy: Node) -> None:
        for value in captured_values(node):
            if value in self.constants:
                self._plain_constant(value)
        BodyCopier(self.attributes, self.values, self.names).copy_bodies(node, copy)

    def _define(self, value: Value, copy: Node, index: int, number: int | None) -> Value:
        outer = self.returned.get(value)
        if outer is None:
            wanted = f"{self._prefix}/{value.name}"
            if number is not None:
                wanted = self.record.entries[number].outputs[index]
            outer = self.rewriter.make_value(self.names.value(self.graph, wanted), copy, index)
        else:
            outer.producer, outer.index = copy, index
        self.values[value] = outer
        return outer

    @property
    def _prefix(self) -> str:
        return self.call.label or self.call.op_type

    def _name(self, node: Node, number: int | None) -> str:
        if number is None:
            return self.names.node(f"{self._prefix}/{node.name or node.op_type}")
        name = self.record.entries[number].name
        return self.names.node(name, repeated=number in self.record.repeated)

    def _remarks(self, node: Node, number: int | None) -> Remarks:
        """Return what the node carried; a call in a body says itself what it stands for."""
        if number is None:
            return node.remarks
        return self.record.remarks.get(number) or node.remarks

    def _state_types(self, node: Node, number: int | None) -> None:
        if number is None:
            return
        for index, value in enumerate(node.outputs):
            known = self.record.types.get((number, index))
            made = None if value is None else self.values.get(value)
            if known is not None and made is not None and value not in self.returned:
                self.graph.stated_types[made.name] = known

    def _put_copy(self, inner: Value, outer: Value) -> None:
        """Let the function return what it reads, or the same value twice."""
        source = self.values[inner]
        name = self.names.node(f"{self._prefix}/Identity")
        copy = self.rewriter.insert(self.call, "Identity", [source], name=name)
        self.rewriter.take_over_outputs(copy, [outer])
        self.made.append(copy)


def _most_inputs(node: Node) -> int:
    """Return how many inputs a node may have, as far as that is known."""
    schema = schema_of(node)
    return 0 if schema is None else schema.max_inputs


def _same_attributes(first: Mapping[str, Attribute], second: Mapping[str, Attribute]) -> bool:
    if first is second:
        return True
    return first.keys() == second.keys() and all(
        _same_attribute(first[name], second[name]) for name in first
    )


def _same_attribute(first: Attribute, second: Attribute) -> bool:
    one, other = first.value, second.value
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return first.ref == second.ref and same_data(one, other)
    return (first.kind, first.ref, repr(one)) == (second.kind, second.ref, repr(other))
