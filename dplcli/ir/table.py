"""The graph as a table: all graphs of a model are rows of the same few relations.

The main graph, the bodies of If, Loop and Scan, and functions share one relation of nodes and one
of values, so that one query matches in all of them and uses count across scopes. Operators and
sets of attributes are numbered, equal ones alike. The bytes of the file are kept; rows say where
in them they stand, so that nothing is decoded before somebody asks.

Ids are rows of a relation. Value 0 is the omitted one: a node that leaves an input or an output
out reads or makes it. What always holds is in :meth:`Table.check`. What passes make stands beside
the file: names in the arena, data of tensors in payloads, other fields of graphs as they will be
written. Edits are in :mod:`dplcli.ir.edits`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from dplcli.ir.relations import (
    Flags,
    Ids,
    Places,
    Relation,
    ascending,
    beside,
    distinct_lists,
    unnest,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

OMITTED: Final = 0
"""The value that stands for an input or output that is left out."""
ROOM: Final = 1 << 32
"""How far apart nodes of a file are placed, so that others fit between them."""


class GraphKind(Enum):
    """Where a graph is in its model."""

    MAIN = "main"
    BODY = "body"
    FUNCTION = "function"


@dataclass(frozen=True)
class GraphRow:
    """A graph; a model has few, so they are objects.

    Attributes:
        kind: Where it is.
        begin: Where it begins in the file, in bytes; -1 for a new graph.
        end: Where it ends.
        parent: The graph that holds its owner; -1 for none.
        owner: The node whose attribute it is; -1 for none.
        attribute: The name of that; with ``[i]`` behind it, if it is a list of graphs.
        fields: Of a new graph, its encoded message but for nodes, inputs, outputs and opsets.
        live: Whether it is still there.
    """

    kind: GraphKind
    begin: int
    end: int
    parent: int = -1
    owner: int = -1
    attribute: bytes = b""
    fields: bytes = b""
    live: bool = True


class Nodes(Relation):
    """Nodes, of all graphs.

    Attributes:
        operator: Which of :attr:`Table.operators`.
        attributes: Which of :attr:`Table.attribute_sets`.
        graph: The graph that it is in.
        in_at: Where its inputs begin in :attr:`Table.inputs`, and how many there are.
        in_count: See there.
        out_at: Where its outputs begin in :attr:`Table.outputs`, and how many there are.
        out_count: See there.
        head: Where it begins in the file, its tag included; -1 for a new node.
        end: Where it ends there.
        name_at: Where its name begins in the file; from the size of that on, in the arena.
        name_size: How many bytes that has.
        remarked: Whether it has documentation or metadata.
        remark: Of a new node, which of :attr:`Table.remarks`.
        place: It stands behind the nodes of its graph that have a lower place.
        room: Places ``place - room + 1`` to ``place`` are its own.
        live: Whether it is still there.
        touched: Whether it reads or makes something else than in the file, or is new.
    """

    operator: Ids
    attributes: Ids
    graph: Ids
    in_at: Places
    in_count: Ids
    out_at: Places
    out_count: Ids
    head: Places
    end: Places
    name_at: Places
    name_size: Ids
    remarked: Flags
    remark: Ids
    place: Places
    room: Places
    live: Flags
    touched: Flags


class Values(Relation):
    """Values, of all graphs; a name that two scopes define is two values.

    Attributes:
        name_at: Where its name begins in the file; from the size of that on, in the arena.
        name_size: How many bytes that has.
        graph: The graph that defines it.
        producer: The node that makes it; -1 for none.
        uses: How many inputs of live nodes it is.
        returned: How many outputs of graphs it is.
        tensor: Its row in :attr:`Table.tensors`, if it is stored or made by a Constant; else -1.
        given: Whether it is an input of its graph.
    """

    name_at: Places
    name_size: Ids
    graph: Ids
    producer: Ids
    uses: Ids
    returned: Ids
    tensor: Ids
    given: Flags


class Slots(Relation):
    """The items of a ragged column of values."""

    value: Ids


class Tensors(Relation):
    """Encoded tensors.

    Attributes:
        begin: Where it begins in the file; -1 for a new tensor.
        end: Where it ends there; of a new tensor, which of :attr:`Table.payloads` it is.
        type: Which of :attr:`Table.tensor_types`; of a sparse tensor -1.
        external: Whether its data lies in a file beside the model.
        stored_as: The value that the file stores it as; -1 for none.
    """

    begin: Places
    end: Places
    type: Ids
    external: Flags
    stored_as: Ids


class FileParts(Relation):
    """What the file holds of graphs beside their nodes, and of the model beside its graphs.

    Attributes:
        graph: The graph that it is of; -1 for the model.
        number: The number of the field.
        head: Where it begins in the file, tag and size included.
        begin: Where its content begins.
        end: Where it ends.
    """

    graph: Ids
    number: Ids
    head: Places
    begin: Places
    end: Places


class Infos(Relation):
    """What the file states of values: inputs and outputs of graphs, and what lies between.

    Attributes:
        graph: The graph that states it.
        number: The number of the field, as in :class:`FileParts`.
        head: Where it begins in the file, tag and size included.
        name_at: Where the value's name begins; all else that is stated stands behind that.
        name_size: How many bytes that has.
        end: Where it ends.
    """

    graph: Ids
    number: Ids
    head: Places
    name_at: Places
    name_size: Ids
    end: Places


class TableError(AssertionError):
    """The table contradicts itself: a mistake in dpl."""


@dataclass(frozen=True, eq=False)
class Payload:
    """A new tensor, encoded but for its name, which is that of the value that it is stored as.

    Attributes:
        front: The fields that stand before the name; they begin with its type.
        back: Those behind it, in pieces, so that data need not be copied.
    """

    front: bytes
    back: tuple[bytes | memoryview, ...] = ()


@dataclass(eq=False)
class Table:
    """A model.

    Attributes:
        data: The file's bytes, zeros behind them.
        graphs: Its graphs; the main one is the first, and a body is behind the graph that holds it.
        nodes: Their nodes.
        values: Their values.
        inputs: What nodes read.
        outputs: What nodes make.
        tensors: What is stored.
        parts: What else the file holds.
        infos: What it states of values.
        returned: What each graph returns, in order.
        operators: Domain, type and overload of each operator, as the file spells them.
        attribute_sets: The encoded attributes of each set; the first has none.
        tensor_types: Encoded tensors without name and data.
        notes: What a reader should know about the file.
        sorted: The main graph (0) and functions whose nodes stand in another order than there.
        original: The file, if it is spelled in another way than *data*.
        arena: Names that passes have made.
        payloads: Tensors that passes have made.
        remarks: What new nodes carry: documentation, and encoded metadata; the first is nothing.
        stated: Types that passes state of values: an encoded ValueInfoProto without the name.
        given: What new graphs are given, in order.
        imports: Opsets of functions and of the model (graph 0), where they are not those of the
            file: version by domain.
        ir_version: That of the model, if it is not that of the file.
        modified: The graphs in which anything was edited; 0 also if the model was.
    """

    data: NDArray[np.uint8]
    graphs: list[GraphRow]
    nodes: Nodes
    values: Values
    inputs: Slots
    outputs: Slots
    tensors: Tensors
    parts: FileParts
    infos: Infos
    returned: list[Ids]
    operators: list[tuple[bytes, bytes, bytes]]
    attribute_sets: list[tuple[bytes, ...]]
    tensor_types: list[bytes]
    notes: list[str] = field(default_factory=list)
    sorted: list[int] = field(default_factory=list)
    original: bytes = b""
    arena: bytearray = field(default_factory=bytearray)
    payloads: list[Payload] = field(default_factory=list)
    remarks: list[tuple[bytes, bytes]] = field(default_factory=lambda: [(b"", b"")])
    stated: dict[int, bytes] = field(default_factory=dict)
    given: dict[int, Ids] = field(default_factory=dict)
    imports: dict[int, dict[str, int]] = field(default_factory=dict)
    ir_version: int | None = None
    modified: set[int] = field(default_factory=set)

    def copy(self) -> Table:
        """Return a table that can be edited by itself; it shares what is never edited."""
        shared = (self.data, self.original, *self.payloads)
        return deepcopy(self, {id(item): item for item in shared})

    @property
    def is_one_graph(self) -> bool:
        """Whether it is one graph, in the order of its file, and all tensors are dense."""
        return len(self.graphs) == 1 and not self.sorted and bool((self.tensors.type >= 0).all())

    def names(self, values: Ids | Places) -> list[bytes]:
        """Return the names of values, (n,)."""
        return self._texts(self.values.name_at[values], self.values.name_size[values])

    def node_names(self, nodes: Ids | Places) -> list[bytes]:
        """Return the names of nodes, (n,); most need none."""
        return self._texts(self.nodes.name_at[nodes], self.nodes.name_size[nodes])

    def _texts(self, at: Places, size: Ids) -> list[bytes]:
        of_file = memoryview(self.data.data)
        base = len(of_file)
        spans = zip(at.tolist(), (at + size).tolist(), strict=True)
        with memoryview(self.arena) as arena:
            return [
                (of_file[a:b] if a < base else arena[a - base : b - base]).tobytes()
                for a, b in spans
            ]

    def inputs_of(self, nodes: Ids | Places) -> tuple[Places, Ids]:
        """Return what nodes (n,) read, in order: the row in *nodes* and the value of each, (m,)."""
        row, place = unnest(self.nodes.in_at[nodes], self.nodes.in_count[nodes])
        return row, self.inputs.value[place]

    def outputs_of(self, nodes: Ids | Places) -> tuple[Places, Ids]:
        """Return what nodes (n,) make, in order: the row in *nodes* and the value of each, (m,)."""
        row, place = unnest(self.nodes.out_at[nodes], self.nodes.out_count[nodes])
        return row, self.outputs.value[place]

    def alike(self, nodes: Places, kinds: Ids | Places) -> tuple[Places, Places]:
        """Number nodes (n,) by operator, attributes, and the kinds of what they read and make.

        Args:
            nodes: The nodes.
            kinds: A number for each value, (v,); that of the omitted one differs from all others.

        Returns:
            The number of each, (n,), by the first; and that one's place in *nodes*, (k,).
        """
        columns = self.nodes
        _, read = self.inputs_of(nodes)
        _, made = self.outputs_of(nodes)
        in_count, out_count = columns.in_count[nodes], columns.out_count[nodes]
        count, items = beside((in_count, kinds[read]), (out_count, kinds[made]))
        heads = (columns.operator[nodes], columns.attributes[nodes], in_count)
        return distinct_lists(count, heads, (items,))

    def rows_by_graph(self) -> tuple[list[int], list[int]]:
        """Return the first node of each graph in the file, and how many it has there."""
        graph = self.nodes.graph
        numbers = np.arange(len(self.graphs))
        first = np.searchsorted(graph, numbers)
        return first.tolist(), (np.searchsorted(graph, numbers, "right") - first).tolist()

    def in_order(self) -> Places:
        """Return live nodes, graph by graph, producers before whatever reads what they make."""
        live = np.flatnonzero(self.nodes.live)
        return live[np.lexsort((self.nodes.place[live], self.nodes.graph[live]))]

    def check(self) -> None:
        """Refuse a table that contradicts itself.

        - ``uses`` counts the inputs of live nodes, ``returned`` the outputs of graphs.
        - A value is made by one live node at most, and its ``producer`` is that node.
        - What a live node reads or a graph returns is made, stored or given, in the same graph or
          in one round it.
        - Who makes a value stands before whoever reads it: a body reads where its owner stands.
        - Places of live nodes of one graph do not overlap.
        - What is stored is made by no node but a Constant, and not in a function.
        - Of a graph that is gone nothing is left; its owner is gone then, and only then.

        Raises:
            TableError: One of these does not hold.
        """
        nodes, values = self.nodes, self.values
        live = self.in_order()
        reader, read = self.inputs_of(live)
        reader = live[reader]
        uses = np.bincount(read, minlength=values.size)
        _require(np.array_equal(uses[1:], values.uses[1:]), "uses are not counted right")
        returned = np.bincount(np.concatenate(self.returned), minlength=values.size)
        _require(np.array_equal(returned, values.returned), "returned values are not counted right")
        maker, made = self.outputs_of(live)
        maker, made = live[maker[made != OMITTED]], made[made != OMITTED]
        _require(ascending(made).size == made.size, "a value is made twice")
        producer = np.full(values.size, -1)
        producer[made] = maker
        _require(np.array_equal(producer, values.producer), "producers are not right")
        _require((nodes.graph[maker] == values.graph[made]).all(), "a value is of another graph")
        wanted = np.flatnonzero((values.uses > 0) | (values.returned > 0))
        wanted = wanted[wanted != OMITTED]
        is_stored = (values.tensor >= 0) & (values.producer < 0)
        is_function = np.array([graph.kind is GraphKind.FUNCTION for graph in self.graphs])
        _require(not is_function[values.graph[is_stored]].any(), "a function stores something")
        made_stored = values.producer[(values.tensor >= 0) & (values.producer >= 0)]
        constant = [number for number, kind in enumerate(self.operators) if is_constant(kind)]
        _require(np.isin(nodes.operator[made_stored], constant).all(), "a stored value is made")
        self._check_graphs(live)
        is_there = (values.producer >= 0) | (values.tensor >= 0) | values.given
        _require(is_there[wanted].all(), "a value is read that nothing defines")
        self._check_order(reader[read != OMITTED], read[read != OMITTED])
        for graph in range(len(self.graphs)):
            mine = live[nodes.graph[live] == graph]
            _require(
                (nodes.place[mine][1:] - nodes.room[mine][1:] >= nodes.place[mine][:-1]).all(),
                "places overlap",
            )

    def _check_graphs(self, live: Places) -> None:
        """Refuse a graph without its owner, and what is left of one that is gone."""
        for number, graph in enumerate(self.graphs):
            has_owner = graph.owner < 0 or bool(self.nodes.live[graph.owner])
            in_place = graph.parent < 0 or self.graphs[graph.parent].live
            _require(not graph.live or (has_owner and in_place), "a graph has lost its owner")
            _require(graph.live or graph.owner < 0 or not has_owner, "an owner has lost its graph")
            _require(graph.live or not self.returned[number].size, "a lost graph returns something")
        gone = np.array([not graph.live for graph in self.graphs])
        values = self.values
        left = (values.producer >= 0) | (values.tensor >= 0) | values.given
        _require(not gone[values.graph[left]].any(), "a lost graph defines something")
        _require(not gone[self.nodes.graph[live]].any(), "a lost graph has nodes")

    def _check_order(self, reader: Places, read: Ids) -> None:
        """Refuse reads (m,) of what is not visible, or not made before."""
        nodes, values = self.nodes, self.values
        parent = np.array([graph.parent for graph in self.graphs])
        owner = np.array([graph.owner for graph in self.graphs])
        while True:
            outside = np.flatnonzero(nodes.graph[reader] != values.graph[read])
            if not outside.size:
                break
            graph = nodes.graph[reader[outside]]
            _require((parent[graph] >= 0).all(), "a value of another graph is read")
            reader = reader.copy()
            reader[outside] = owner[graph]
        maker = values.producer[read]
        has_maker = maker >= 0
        before = nodes.place[maker[has_maker]] < nodes.place[reader[has_maker]]
        _require(before.all(), "a value is read before it is made")


def is_constant(operator: tuple[bytes, bytes, bytes]) -> bool:
    """Tell whether an operator is the standard's Constant."""
    return operator[0] in {b"", b"ai.onnx"} and operator[1] == b"Constant"


def _require(holds: object, what: str) -> None:
    if not holds:
        raise TableError(what)
