"""Put constants back that were embedded in a function: as they were, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir import Attribute, Tensor
from dplcli.ir.traversal import behind_identities, enclosing_node
from dplcli.passes.inlined_names import find_value
from dplcli.passes.rewriter import GraphRewriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Graph, Node, Value
    from dplcli.passes.call_records import ConstantRecord
    from dplcli.passes.inlined_names import InlinedNames

_KINDS = {
    "value_float": "float",
    "value_floats": "floats",
    "value_int": "int",
    "value_ints": "ints",
    "value_string": "string",
    "value_strings": "strings",
}


class EmbeddedConstants:
    """The constants of one call.

    Args:
        call: The call.
        records: What they were, by name.
        names: Names in use.

    Attributes:
        nodes: The nodes put back.
    """

    def __init__(
        self, call: Node, records: Mapping[str, ConstantRecord], names: InlinedNames
    ) -> None:
        """Put constants back for *call*, which is still in its graph."""
        self.call = call
        self.records = records
        self.names = names
        self.nodes: list[Node] = []

    def put_back(self, name: str, constant: Tensor) -> Value | None:
        """Return the value of that name, which is made if it is not there.

        Returns:
            None if the record does not say what it was.
        """
        copies: list[str] = []
        while True:
            found = self._find(name, constant)
            record = self.records.get(name)
            if found is not None or record is None or not record.reads:
                break
            if name in copies:
                return None
            copies.append(name)
            name = record.reads
        if found is None and record is not None:
            found = self._make(name, record, constant)
        for copy in reversed(copies):
            if found is not None:
                found = self._copy(copy, self.records[copy], found)
        return found

    def _find(self, name: str, constant: Tensor) -> Value | None:
        """Return the constant of that name, if it is still there and as it was."""
        value = find_value(self.call.graph, name)
        if value is None or not is_made_before(value, self.call):
            return None
        tensor = behind_identities(value).constant
        return value if tensor is not None and same_data(tensor, constant) else None

    def _make(self, name: str, record: ConstantRecord, constant: Tensor) -> Value:
        graph = self._graph(record)
        name = self.names.value(graph, name)
        rewriter = GraphRewriter(graph)
        if record.node is None and _holds_data(graph):
            value = rewriter.add_initializer(name, constant)
        else:
            attributes = _attributes(record.attribute, constant)
            value = self._insert(graph, "Constant", (), name, record)
            assert value.producer is not None  # noqa: S101  # it was just made
            value.producer.attributes = attributes
        if record.known is not None:
            graph.stated_types[name] = record.known
        return value

    def _copy(self, name: str, record: ConstantRecord, source: Value) -> Value:
        graph = self._graph(record)
        if find_value(graph, source.name) is not source:
            graph = self.call.graph
        name = self.names.value(graph, name)
        value = self._insert(graph, "Identity", (source,), name, record)
        if record.known is not None:
            graph.stated_types[name] = record.known
        return value

    def _insert(
        self,
        graph: Graph,
        op_type: str,
        inputs: Sequence[Value],
        name: str,
        record: ConstantRecord,
    ) -> Value:
        rewriter = GraphRewriter(graph)
        anchor = enclosing_node(self.call, graph)
        assert anchor is not None  # noqa: S101  # the graph is round the call
        node = rewriter.insert(
            anchor,
            op_type,
            inputs,
            name=self.names.node(record.node or ""),
            metadata=record.remarks.metadata,
        )
        node.doc = record.remarks.doc
        value = rewriter.make_value(name, node)
        node.outputs = (value,)
        self.nodes.append(node)
        return value

    def _graph(self, record: ConstantRecord) -> Graph:
        """Return the graph so many levels up, or the outermost there is."""
        graph = self.call.graph
        for _ in range(record.up):
            if graph.owner is None:
                break
            graph = graph.owner.graph
        return graph


def _holds_data(graph: Graph) -> bool:
    """Tell whether a graph can have initializers: the body of a function cannot."""
    return graph.owner is not None or graph is graph.model.graph


def _attributes(name: str, constant: Tensor) -> Mapping[str, Attribute]:
    """Return the attributes of a Constant node that held its number in the attribute *name*."""
    kind = _KINDS.get(name)
    if kind is None:
        return {"value": Attribute("tensor", constant)}
    data = constant.numpy().tolist()
    return {name: Attribute(kind, tuple(data) if isinstance(data, list) else data)}


def is_made_before(value: Value, node: Node) -> bool:
    """Tell whether *node*, or what it would be replaced by, may read *value*."""
    here = enclosing_node(node, value.graph)
    maker = value.producer
    return here is not None and (maker is None or maker.position < here.position)


def same_data(first: Tensor, second: Tensor) -> bool:
    """Tell whether two constants are the same."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    one, other = first.numpy(), second.numpy()
    if one.dtype == object:
        return bool(one.tolist() == other.tolist())
    return bool(one.tobytes() == other.tobytes())
