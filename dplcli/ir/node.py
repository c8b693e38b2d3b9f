"""Nodes: one operation each."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from dplcli.ir.codec import Remarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dplcli.ir.graph import Graph
    from dplcli.ir.types import Attribute
    from dplcli.ir.value import Value

_NO_SUBGRAPHS: Mapping[str, Graph] = MappingProxyType({})
NO_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType({})
_NO_METADATA: Mapping[str, str] = MappingProxyType({})


class Node:
    """One operation.

    Attributes:
        op_type: Operator name.
        domain: Operator domain; "" is the standard one ("ai.onnx" reads as "").
        overload: Overload of a model-local function, nearly always "".
        name: Node name; may be empty and, in bad files, not unique.
        inputs: Values read, None where an optional input is omitted.
        outputs: Values made, None where an optional output is omitted.
        graph: The graph it is in.
        subgraphs: Its graph attributes by name; empty for nearly all nodes.
        source: The opaque node it was loaded from; None if made by a pass.
        rewired: Whether its inputs or outputs differ from the source's.
        metadata: ``metadata_props`` of a node made by a pass.
        doc: ``doc_string`` of a node made by a pass.
    """

    __slots__ = (
        "_attributes",
        "doc",
        "domain",
        "graph",
        "inputs",
        "metadata",
        "name",
        "next",
        "op_type",
        "outputs",
        "overload",
        "position",
        "prev",
        "rewired",
        "source",
        "subgraphs",
    )

    def __init__(
        self, graph: Graph, op_type: str, domain: str = "", name: str = "", source: object = None
    ) -> None:
        """Create an unconnected node; :class:`Graph` links it in."""
        self.graph = graph
        self.op_type = op_type
        self.domain = domain
        self.overload = ""
        self.name = name
        self.inputs: tuple[Value | None, ...] = ()
        self.outputs: tuple[Value | None, ...] = ()
        self.subgraphs: Mapping[str, Graph] = _NO_SUBGRAPHS
        self.source = source
        self.rewired = False
        self.metadata: Mapping[str, str] = _NO_METADATA
        self.doc = ""
        self._attributes: Mapping[str, Attribute] | None = None
        self.position = 0
        self.prev: Node | None = None
        self.next: Node | None = None

    def __repr__(self) -> str:
        """Show the operator and what identifies the node."""
        return f"<Node {self.qualified_op} {self.label!r}>"

    def rewire(self, inputs: Iterable[Value | None]) -> None:
        """Set what it reads; the use-lists are the caller's affair."""
        self.inputs = tuple(inputs)
        self.rewired = True

    @property
    def qualified_op(self) -> str:
        """``Conv``, or ``com.microsoft.Gelu`` outside the standard domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def label(self) -> str:
        """The node's name, else its first output's: what a reader can search for."""
        return self.name or next((out.name for out in self.outputs if out is not None), "")

    @property
    def remarks(self) -> Remarks:
        """What it carries for readers and tools, wherever it comes from."""
        if self.source is None:
            return Remarks(self.doc, self.metadata)
        return self.graph.model.codec.remarks(self)

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        """The attributes that the file states, decoded on first use; not to be edited."""
        if self._attributes is None:
            self._attributes = (
                {} if self.source is None else self.graph.model.codec.attributes(self)
            )
        return self._attributes

    @attributes.setter
    def attributes(self, attributes: Mapping[str, Attribute]) -> None:
        """Set all attributes of a node made by a pass."""
        self._attributes = attributes

    @property
    def has_references(self) -> bool:
        """Whether callers of the function it is in give it an attribute: its value is not here."""
        return any(attribute.ref for attribute in self.attributes.values())
