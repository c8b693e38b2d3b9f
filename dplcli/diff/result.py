"""In what two models differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.ir import Attribute, Function, Graph, Node, Value

Facet: TypeAlias = Literal["names", "order", "doc", "metadata", "value-info", "storage"]
"""A kind of difference that no number that the model computes depends on."""

FACETS: Mapping[Facet, str] = {
    "names": "what nodes and inner values are called",
    "order": "the order of the nodes",
    "doc": "documentation",
    "metadata": "metadata, producer, IR version, imports that no node uses",
    "value-info": "types stated of inner values",
    "storage": "whether a constant is an initializer or a Constant node",
}


@dataclass(frozen=True)
class Remark:
    """A difference that nothing computed depends on, unless the reader wants to know.

    Attributes:
        facet: What kind it is.
        where: The graph, and the node or value in it.
        before: What the first model says.
        after: What the second says.
    """

    facet: Facet
    where: str
    before: str
    after: str


@dataclass(frozen=True)
class AttributeChange:
    """An attribute that differs; None where it is neither stated nor has a default."""

    name: str
    before: Attribute | None
    after: Attribute | None


@dataclass(frozen=True)
class InputChange:
    """A slot that reads something else; None where nothing is read."""

    slot: int
    before: Value | None
    after: Value | None


@dataclass(frozen=True)
class NodeChange:
    """A node that is in both graphs, and what of it is not the same.

    Attributes:
        before: The node in the first graph.
        after: The node in the second.
        attributes: Its attributes that differ.
        inputs: What it reads that differs, unless it is only the data of a weight.
        outputs: Indices of the outputs that only one of the two makes.
    """

    before: Node
    after: Node
    attributes: tuple[AttributeChange, ...] = ()
    inputs: tuple[InputChange, ...] = ()
    outputs: tuple[int, ...] = ()

    @property
    def is_other_op(self) -> bool:
        """Whether another operator stands in the same place."""
        return self.before.qualified_op != self.after.qualified_op


@dataclass(frozen=True)
class Distance:
    """How far two weights of one type and shape are apart.

    Attributes:
        changed: How many elements differ.
        size: How many there are.
        max_abs: The largest difference; None if the elements are no numbers.
        max_rel: The largest difference, relative to the larger of the two elements.
    """

    changed: int
    size: int
    max_abs: float | None
    max_rel: float | None


@dataclass(frozen=True)
class WeightChange:
    """A constant that holds something else; no distance if type or shape differ."""

    before: Value
    after: Value
    distance: Distance | None


@dataclass(frozen=True)
class SignatureChange:
    """An input or output that differs.

    Attributes:
        side: Whether it is an input or an output.
        what: ``added``, ``removed``, ``renamed``, ``moved`` to another place, ``retyped``, or
            ``rewired``: an output that returns something else.
        before: It in the first graph; None if added.
        after: It in the second; None if removed.
    """

    side: Literal["input", "output"]
    what: Literal["added", "removed", "renamed", "moved", "retyped", "rewired"]
    before: Value | None
    after: Value | None


@dataclass(frozen=True)
class GraphDiff:
    """In what two graphs differ, bodies inside left to their own.

    Attributes:
        before: The first graph.
        after: The second.
        paired: How many nodes are in both.
        added: The nodes that only the second has, in its order.
        removed: The nodes that only the first has, in its order.
        changes: The nodes of both that differ, in the first one's order.
        weights: The constants that differ.
        signature: The inputs and outputs that differ.
        remarks: What else differs.
    """

    before: Graph
    after: Graph
    paired: int
    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changes: tuple[NodeChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()
    signature: tuple[SignatureChange, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def count(self) -> int:
        """How many differences there are, remarks not counted."""
        parts = (self.added, self.removed, self.changes, self.weights, self.signature)
        return sum(map(len, parts))


@dataclass(frozen=True)
class FunctionChange:
    """A function that only one model has, that is called otherwise, or declares otherwise."""

    what: Literal["added", "removed", "renamed", "redeclared"]
    before: Function | None
    after: Function | None


@dataclass(frozen=True)
class OpsetChange:
    """A domain that is imported in another version, or by one model only (None)."""

    domain: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class ModelDiff:
    """In what two models differ.

    Attributes:
        graphs: The graphs that are in both: main, bodies, functions.
        functions: Functions that differ but for what their bodies hold.
        opsets: Imports of used domains that differ.
        remarks: What else differs of the models as such.
        ignored: The facets that do not count.
    """

    graphs: tuple[GraphDiff, ...]
    functions: tuple[FunctionChange, ...]
    opsets: tuple[OpsetChange, ...]
    remarks: tuple[Remark, ...]
    ignored: frozenset[Facet]

    @property
    def all_remarks(self) -> tuple[Remark, ...]:
        """The remarks on the models and on all graphs."""
        return self.remarks + tuple(r for graph in self.graphs for r in graph.remarks)

    @property
    def counted(self) -> tuple[Remark, ...]:
        """The remarks that count."""
        return tuple(r for r in self.all_remarks if r.facet not in self.ignored)

    @property
    def count(self) -> int:
        """How many differences count."""
        others = len(self.functions) + len(self.opsets) + len(self.counted)
        return others + sum(graph.count for graph in self.graphs)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs that counts."""
        return not self.count
