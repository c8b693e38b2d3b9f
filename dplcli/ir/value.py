"""Values: what flows between nodes, with maintained use-lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir.codec import TypeStatement
from dplcli.ir.tensor import tensor_of_attributes
from dplcli.ir.types import TensorType, shared_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.ir.codec import StatedType
    from dplcli.ir.graph import Graph
    from dplcli.ir.node import Node
    from dplcli.ir.tensor import Tensor

    Use = tuple[Node, int]
    """A node and the input slot in which it reads a value."""

_MANY_USES = 32
FIRST_IR_WITH_PLAIN_INITIALIZERS = 4
"""First IR version in which an initializer need not be a graph input as well."""


class Value:
    """One tensor (or sequence, or optional) that flows through a graph.

    Attributes:
        name: Its name in the file; unique in its graph.
        graph: The graph that defines it.
        producer: The node it comes from, or None for graph inputs and initializers.
        index: Which output of the producer it is.
        is_graph_input: Whether it is an input of its graph (initializers can be both).
        returned_by: The graphs that return it, once per output: its own, or bodies inside it.
        type_source: Declaration of its type: what the file states, opaque or a
            :class:`TypeStatement`, or what was found; None if there is none.
    """

    __slots__ = (
        "_constant",
        "_uses",
        "graph",
        "index",
        "is_graph_input",
        "name",
        "producer",
        "returned_by",
        "type_source",
    )

    def __init__(
        self, name: str, graph: Graph, producer: Node | None = None, index: int = 0
    ) -> None:
        """Create a value without uses; :class:`Graph` registers it."""
        self.name = name
        self.graph = graph
        self.producer = producer
        self.index = index
        self.is_graph_input = False
        self.returned_by: tuple[Graph, ...] = ()
        self.type_source: object = None
        self._constant: object = None
        self._uses: list[Use] | dict[Use, None] = []

    def __repr__(self) -> str:
        """Show the name and where it comes from."""
        return f"<Value {self.name!r} of {self.producer!r}>"

    @property
    def is_graph_output(self) -> bool:
        """Whether its graph returns it."""
        return self.graph in self.returned_by

    @property
    def uses(self) -> tuple[Use, ...]:
        """Every (node, input slot) that reads it, nested graphs included; safe while editing."""
        return tuple(self._uses)

    @property
    def use_count(self) -> int:
        """How many input slots read it."""
        return len(self._uses)

    def iter_uses(self) -> Iterator[Use]:
        """Iterate without copying; do not edit meanwhile."""
        return iter(self._uses)

    def add_use(self, node: Node, slot: int) -> None:
        """Record that *node* reads this value in *slot*."""
        if type(self._uses) is list:
            self._uses.append((node, slot))
        else:
            self._uses[node, slot] = None  # type: ignore[call-overload]  # narrowed above

    def remove_use(self, node: Node, slot: int) -> None:
        """Forget that *node* reads this value in *slot*, in constant time also for many uses."""
        if type(self._uses) is list and len(self._uses) > _MANY_USES:
            self._uses = dict.fromkeys(self._uses)
        if type(self._uses) is list:
            self._uses.remove((node, slot))
        else:
            del self._uses[node, slot]  # type: ignore[arg-type]  # narrowed above

    # -- constants ---------------------------------------------------------------------------

    @property
    def is_initializer(self) -> bool:
        """Whether the graph stores data for it."""
        return self._constant is not None and self.producer is None

    @property
    def is_constant(self) -> bool:
        """Whether its data is in the file and nobody can override it.

        An initializer that is also a graph input is overridable from IR version 4 on; before,
        every initializer had to be listed as an input, so there it means nothing.
        """
        if self.producer is not None:
            return self.producer.op_type == "Constant" and self.producer.domain == ""
        if self._constant is None:
            return False
        return not self.is_graph_input or (
            self.graph.model.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS
        )

    def set_initializer(self, source: object) -> None:
        """Give the value stored data: an opaque source or a Tensor."""
        self._constant = source

    @property
    def initializer_source(self) -> object:
        """What :meth:`set_initializer` was given."""
        return self._constant

    @property
    def constant(self) -> Tensor | None:
        """The constant it holds, not decoded; None if it is not constant or not one tensor."""
        if not self.is_constant:
            return None
        if self.producer is None:
            return self.graph.model.codec.tensor(self._constant)
        return tensor_of_attributes(self.producer.attributes)

    # -- types -------------------------------------------------------------------------------

    @property
    def declared_type(self) -> TensorType | None:
        """The tensor type that the file states; None if it states none."""
        known = self.type_source
        if type(known) is TensorType:
            return known
        if type(known) is TypeStatement:
            return known.type
        declared = None if known is None else self.graph.model.codec.declared_type(known)
        if declared is None and (tensor := self.constant) is not None:
            declared = shared_type(tensor.dtype, tensor.shape)
        if declared is not None:
            self.type_source = declared
        return declared

    @property
    def stated_type(self) -> StatedType | None:
        """What the file states of it beside the interface of its graph, or is to state."""
        made = self.graph.stated_types.get(self.name)
        if made is not None:
            return made
        source = self.type_source
        return source.stated if type(source) is TypeStatement else None

    def note_type(self, found: TensorType) -> None:
        """Let *found* be the declared type; what the file states stays known."""
        source = self.type_source
        self.type_source = source.refined(found) if type(source) is TypeStatement else found

    def known_type(self) -> TensorType | None:
        """The declared type, or what shape inference finds (run once for the whole model).

        What a pass has made is inferred node by node.
        """
        known = self.type_source
        if type(known) is TypeStatement:
            if not self.graph.model.is_checked:
                self.graph.model.check_statements()
                return self.known_type()
            known = known.type
        if type(known) is TensorType and known.dtype is not None and known.shape is not None:
            return known
        found = self.settled_type()
        if found is None and self.producer is not None and self.producer.source is None:
            self.graph.model.infer_outputs(self.producer)
            return self.declared_type
        return found

    def settled_type(self) -> TensorType | None:
        """As :meth:`known_type`, but nothing is inferred for what a pass has made."""
        if self.producer is not None or self.graph.owner is not None:  # else it is given
            self.graph.model.check_statements()
        declared = self.declared_type
        if declared is not None and declared.dtype is not None and declared.shape is not None:
            return declared
        return self.graph.model.inferred_types().get(self, declared)


def record_uses(node: Node) -> None:
    """Record the uses by a node whose inputs have just been set."""
    slot = 0
    for value in node.inputs:
        if value is not None:
            uses = value._uses  # noqa: SLF001  # Value's own module
            if type(uses) is list:
                uses.append((node, slot))
            else:
                value.add_use(node, slot)
        slot += 1  # noqa: SIM113  # enumerate would make a tuple a time, in the loader's hot loop
