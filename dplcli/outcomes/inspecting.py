"""What a model is made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dplcli.ir.model import calls_in
from dplcli.ir.printer import node_window, print_attribute
from dplcli.ir.types import TensorType
from dplcli.keys import keys
from dplcli.outcomes.base import ModelOutcome, StoredOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Function, Model, Node, Value


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ViewOutcome(ModelOutcome):
    """A model to draw.

    Attributes:
        model: The model; the types of its values are inferred.
        costs: The floating-point operations of the nodes of which they are known.
        open_sizes: The dimensions of inputs that are not known, on which other costs depend.
        layers: Parts of the main graph that are alike and make up most of it, each with its nodes.
    """

    model: Model
    costs: Mapping[Node, int] = field(default_factory=dict)
    open_sizes: tuple[str, ...] = ()
    layers: Sequence[Sequence[Node]] = ()


class TypedValue(NamedTuple):
    """A value and its type, as far as it is known."""

    name: str
    dtype: str | None
    shape: Sequence[int | str | None] | None

    @classmethod
    def of(cls, value: Value) -> TypedValue:
        """Return what is known of *value*."""
        known = value.known_type()
        return cls(value.name, known and known.dtype, known and known.shape)

    def __str__(self) -> str:
        """Write it as ONNX text does."""
        if self.dtype is None:
            return f"{self.name} (not a tensor)"
        shape = None if self.shape is None else tuple(self.shape)
        return f"{self.name} {TensorType(self.dtype, shape)}"


@keys("*=function nodes=function.body.node_count calls composite")
class FunctionUse(NamedTuple):
    """A function, and how many nodes call it."""

    function: Function
    calls: int

    @property
    def composite(self) -> str:
        """The rule that it was made by."""
        return self.function.metadata.get("Composite", "")


@dataclass(frozen=True)
class Weights:
    """How many initializers there are, their elements, and how many lie in other files."""

    count: int
    elements: int
    external: int


@keys(
    "model=label ir_version=ir.ir_version opsets inputs outputs nodes.total=total "
    "nodes.main=ir.graph.node_count nodes.by_op=counts initializers=weights overridable functions "
    "notes",
    "dpl.inspect/1",
)
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InspectOutcome(StoredOutcome):
    """What a model is made of.

    Attributes:
        ir: The model.
    """

    ir: Model

    @property
    def opsets(self) -> Mapping[str, int]:
        """The versions of the operators of each domain."""
        return {domain or "ai.onnx": n for domain, n in sorted(self.ir.opset_imports.items())}

    @property
    def inputs(self) -> list[TypedValue]:
        """What has to be given."""
        return [TypedValue.of(v) for v in self.ir.graph.inputs if not v.is_initializer]

    @property
    def outputs(self) -> list[TypedValue]:
        """What it gives."""
        return [TypedValue.of(value) for value in self.ir.graph.outputs]

    @property
    def overridable(self) -> list[TypedValue]:
        """Inputs with a default."""
        return [TypedValue.of(value) for value in self.ir.graph.inputs if value.is_overridable]

    @property
    def total(self) -> int:
        """How many nodes all graphs have."""
        return self.ir.node_count

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes of each operator all graphs have, the most frequent first."""
        counts = Counter(node.qualified_op for graph in self.ir.graphs() for node in graph)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def weights(self) -> Weights:
        """The initializers."""
        tensors = [
            self.ir.codec.tensor(value.initializer_source)
            for graph in self.ir.graphs()
            for value in graph.initializers
        ]
        size, external = sum(t.size for t in tensors), sum(t.is_external for t in tensors)
        return Weights(len(tensors), size, external)

    @property
    def functions(self) -> list[FunctionUse]:
        """The functions."""
        return [FunctionUse(each, len(calls)) for each, calls in calls_in(self.ir).items()]


@keys("*=node scope=node.scope inputs outputs attributes window")
class NodeView(NamedTuple):
    """A node and what is around it."""

    node: Node

    @property
    def inputs(self) -> list[TypedValue | None]:
        """What it reads."""
        return [None if each is None else TypedValue.of(each) for each in self.node.inputs]

    @property
    def outputs(self) -> list[TypedValue | None]:
        """What it makes."""
        return [None if each is None else TypedValue.of(each) for each in self.node.outputs]

    @property
    def made(self) -> str:
        """What it makes, with the types, in words."""
        values = [(value.name, value.known_type()) for value in self.node.outputs if value]
        return ", ".join(name if kind is None else f"{name} {kind}" for name, kind in values)

    @property
    def attributes(self) -> Mapping[str, str]:
        """Its attributes, as text."""
        return {name: print_attribute(each) for name, each in self.node.attributes.items()}

    @property
    def window(self) -> list[str]:
        """The nodes around it, as text."""
        return node_window(self.node)


@keys("model=label nodes", "dpl.node/1")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NodesOutcome(ModelOutcome):
    """Nodes of a model, for dpl inspect --node and --nodes.

    Attributes:
        nodes: The nodes.
    """

    nodes: tuple[NodeView, ...]
