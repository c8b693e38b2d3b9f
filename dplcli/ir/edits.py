"""Edits of the table, in batches: what always holds does so again after each.

A new node mostly makes the value that an old one made. So whoever reads it needs no edit, and
names and what graphs return stay. Nodes that go and nodes that come are one step, therefore:
:meth:`Editor.replace`. New nodes share the place of the node that they are put before or put for,
so nothing is sorted; when a place is used up, all are spread anew.

A mistake of the caller raises :class:`~dplcli.ir.table.TableError`; the table is broken then.
Whether each value is made before it is read is up to the caller, and :meth:`Table.check` tells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dplcli.ir.relations import Ids, Places, ascending, distinct, follow, group, offsets, unnest
from dplcli.ir.table import OMITTED, ROOM, GraphKind, GraphRow, Payload, Table, TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

_NONE = np.zeros(0, np.int64)
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class NewNodes:
    """Nodes to be added, n of them; a single number stands for all.

    Attributes:
        operator: Which of :attr:`Table.operators` each is, (n,).
        in_count: How many inputs it has, (n,).
        inputs: The values that they read, node by node, (m,).
        out_count: How many outputs it has, (n,).
        outputs: The values that they make, node by node.
        anchor: The node before which each is put, (n,); if that goes, it is put in its place. Those
            of one anchor come in their own order. With -1 it is put at the end of *graph*.
        graph: The graph, (n,), where there is no anchor.
        attributes: Which of :attr:`Table.attribute_sets` each has, (n,).
        names: Their names; none have one if there are none.
        remark: Which of :attr:`Table.remarks` each has, (n,).
        tensor: What it makes, if it is a Constant: which of :attr:`Table.tensors`, (n,); else -1.
    """

    operator: NDArray[np.integer] | int
    in_count: NDArray[np.integer]
    inputs: NDArray[np.integer]
    out_count: NDArray[np.integer]
    outputs: NDArray[np.integer]
    anchor: NDArray[np.integer] | int = -1
    graph: NDArray[np.integer] | int = -1
    attributes: NDArray[np.integer] | int = 0
    names: Sequence[bytes] = ()
    remark: NDArray[np.integer] | int = 0
    tensor: NDArray[np.integer] | int = -1

    @staticmethod
    def joined(parts: Sequence[NewNodes]) -> NewNodes:
        """Return all nodes of several batches, which have names, anchors and no tensors."""

        def column(name: str) -> Places:
            return np.concatenate([_NONE, *(getattr(part, name) for part in parts)])

        return NewNodes(
            operator=column("operator"),
            in_count=column("in_count"),
            inputs=column("inputs"),
            out_count=column("out_count"),
            outputs=column("outputs"),
            anchor=column("anchor"),
            attributes=column("attributes"),
            names=[name for part in parts for name in part.names],
            remark=column("remark"),
        )


class Editor:
    """Edits one table.

    Args:
        table: The table; nobody else edits it meanwhile.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._operators = {kind: number for number, kind in enumerate(table.operators)}
        self._sets = {texts: number for number, texts in enumerate(table.attribute_sets)}
        self._types = {text: number for number, text in enumerate(table.tensor_types)}
        self._remarks = {remark: number for number, remark in enumerate(table.remarks)}

    # What nodes share.

    def operator(self, domain: bytes, op_type: bytes, overload: bytes = b"") -> int:
        """Return the number of an operator."""
        return _number(self._operators, self.table.operators, (domain, op_type, overload))

    def attribute_set(self, texts: Iterable[bytes]) -> int:
        """Return the number of a set of encoded attributes."""
        return _number(self._sets, self.table.attribute_sets, tuple(texts))

    def tensor_type(self, text: bytes) -> int:
        """Return the number of an encoded tensor without name and data."""
        return _number(self._types, self.table.tensor_types, text)

    def remark(self, doc: bytes = b"", metadata: bytes = b"") -> int:
        """Return the number of what nodes carry: documentation, and encoded metadata."""
        return _number(self._remarks, self.table.remarks, (doc, metadata))

    # Values.

    def add_values(self, graph: NDArray[np.integer] | int, names: Sequence[bytes]) -> Ids:
        """Add values under names that are free, (n,); something must define them before long.

        Args:
            graph: The graph that will define each, (n,).
            names: Their names.
        """
        at, size = self._keep(names)
        return self.table.values.append(
            len(names),
            name_at=at,
            name_size=size,
            graph=graph,
            producer=-1,
            uses=0,
            returned=0,
            tensor=-1,
            given=False,
        )

    def add_tensors(
        self,
        types: NDArray[np.integer] | int,
        payloads: Sequence[Payload],
        *,
        external: bool = False,
    ) -> Ids:
        """Add tensors, n of them; each is data of whatever it is stored as.

        Args:
            types: The number of each one's type, (n,).
            payloads: They themselves.
            external: Whether their data lies in a file beside the model.
        """
        table = self.table
        first, count = len(table.payloads), len(payloads)
        table.payloads += payloads
        return table.tensors.append(
            count,
            begin=-1,
            end=np.arange(first, first + count),
            type=types,
            external=external,
            stored_as=-1,
        )

    def store(
        self, values: Ids | Places, tensors: Ids | Places, gone: Ids | Places = _NONE
    ) -> Places:
        """Let values be stored tensors, and take the nodes *gone* out, which made them.

        Returns:
            The values that nodes *gone* have read.
        """
        lost = self._take_out(gone, values)
        columns = self.table.values
        _require((columns.producer[values] < 0).all(), "a stored value is made")
        columns.tensor[values] = tensors
        self._edited(columns.graph[values])
        return lost

    def state(self, value: int, text: bytes) -> None:
        """State a value's type: an encoded ValueInfoProto without the name."""
        self.table.stated[value] = text
        self._edited(self.table.values.graph[[value]])

    # Nodes.

    def replace(self, gone: Ids | Places, new: NewNodes) -> tuple[Ids, Places]:
        """Take nodes out, with bodies that they have, and put others in.

        What *new* make must be made by nobody else than by *gone*. What else those made, nobody
        may read.

        Returns:
            The new nodes, (n,), and the values that *gone* have read.
        """
        place, room, graph = self._places(new, gone)
        made = new.outputs[new.outputs != OMITTED]
        _require(ascending(made).size == made.size, "a value is made twice")
        # what comes is counted first, so that what goes knows whether it is still read
        np.add.at(self.table.values.uses, new.inputs, 1)
        lost = self._take_out(gone, made)
        values = self.table.values
        is_free = (values.producer[made] < 0) & (values.tensor[made] < 0) & ~values.given[made]
        _require(is_free.all(), "a value is made twice")
        return self._append(new, place, room, graph), lost

    def add(self, new: NewNodes) -> Ids:
        """Put nodes in: what they make nobody has made before."""
        return self.replace(_NONE, new)[0]

    def remove(self, gone: Ids | Places) -> Places:
        """Take nodes out; nobody else may read what they made.

        Returns:
            The values that they have read.
        """
        return self._take_out(gone, _NONE)

    def sweep(self, values: Ids | Places) -> Places:
        """Take out what only made or stored values that nobody reads, and what only that needed.

        What is stored and given stays.

        Returns:
            The nodes taken out.
        """
        table, columns = self.table, self.table.values
        removed = [_NONE]
        while values.size:
            values = ascending(values[values != OMITTED])
            unread = values[(columns.uses[values] == 0) & (columns.returned[values] == 0)]
            maker = columns.producer[unread]
            stored = unread[(maker < 0) & (columns.tensor[unread] >= 0) & ~columns.given[unread]]
            columns.tensor[stored] = -1
            self._edited(columns.graph[stored])
            gone = ascending(maker[maker >= 0])
            row, made = table.outputs_of(gone)
            is_read = (columns.uses[made] > 0) | (columns.returned[made] > 0)
            is_needed = np.zeros(gone.size, np.bool_)
            is_needed[row[is_read & (made != OMITTED)]] = True
            gone = gone[~is_needed]
            removed.append(gone)
            values = self.remove(gone)
        return np.concatenate(removed)

    def rewire(self, old: Ids | Places, new: Ids | Places) -> Places:
        """Let whatever reads a value of *old* (n,) read that of *new* (n,), in all graphs.

        Chains of these are followed. What graphs return stays.

        Returns:
            The nodes that read something else now.
        """
        table = self.table
        forward = np.arange(table.values.size)
        forward[old] = new
        forward = follow(forward)
        changed = np.flatnonzero(forward[table.inputs.value] != table.inputs.value)
        # slots of nodes that are gone may be among them
        node = self._readers(changed)
        place, node = changed[node >= 0], node[node >= 0]
        was = table.inputs.value[place]
        np.subtract.at(table.values.uses, was, 1)
        np.add.at(table.values.uses, forward[was], 1)
        table.inputs.value[place] = forward[was]
        touched = ascending(node)
        self._touch(touched)
        return touched

    def set_inputs(
        self, nodes: Ids | Places, in_count: NDArray[np.integer], inputs: NDArray[np.integer]
    ) -> Places:
        """Let distinct nodes (n,) read other values, in another number if need be.

        Args:
            nodes: The nodes.
            in_count: How many each reads, (n,).
            inputs: These, node by node.

        Returns:
            The values that they have read.
        """
        table = self.table
        _, was = table.inputs_of(nodes)
        np.subtract.at(table.values.uses, was, 1)
        np.add.at(table.values.uses, inputs, 1)
        at = table.inputs.size + offsets(in_count)
        table.inputs.append(inputs.size, value=inputs)
        table.nodes.in_at[nodes] = at
        table.nodes.in_count[nodes] = in_count
        self._touch(nodes)
        return ascending(was)

    def rename(
        self, values: Ids | Places, wanted: Ids | Places, gone: Ids | Places = _NONE
    ) -> Places:
        """Let whoever makes a value of *values* (n,) make that of *wanted* (n,) in its place.

        Whoever read the former reads the latter. Nodes *gone*, which made the latter, a copy, are
        taken out.

        Returns:
            The values that *gone* have read.
        """
        table, columns = self.table, self.table.values
        _require((columns.returned[values] == 0).all(), "a value that is returned is renamed")
        maker = columns.producer[values]
        _require((maker >= 0).all(), "a value that no node makes is renamed")
        self.rewire(values, wanted)
        lost = self._take_out(gone, wanted)
        _require((columns.producer[wanted] < 0).all(), "a value is made twice")
        row, place = unnest(table.nodes.out_at[maker], table.nodes.out_count[maker])
        is_it = table.outputs.value[place] == values[row]
        table.outputs.value[place[is_it]] = wanted[row[is_it]]
        columns.producer[wanted], columns.producer[values] = maker, -1
        columns.tensor[wanted], columns.tensor[values] = columns.tensor[values], -1
        self._touch(maker)
        return lost

    # Graphs.

    def add_function(
        self, fields: bytes, names: Sequence[bytes], imports: Mapping[str, int]
    ) -> int:
        """Add a function without nodes.

        Args:
            fields: An encoded FunctionProto without nodes, inputs, outputs and opsets.
            names: What it is given.
            imports: Its opsets.

        Returns:
            Its graph.
        """
        graph = self._add_graph(GraphRow(GraphKind.FUNCTION, -1, -1, fields=fields), names)
        self.table.imports[graph] = dict(imports)
        return graph

    def add_body(self, owner: int, attribute: bytes, fields: bytes, names: Sequence[bytes]) -> int:
        """Add a body without nodes to a new node, one of whose attributes is a graph of nothing.

        Args:
            owner: The node.
            attribute: That attribute's name; with ``[i]`` behind it, if it is a list of graphs.
            fields: An encoded GraphProto without nodes, inputs and outputs.
            names: What it is given.

        Returns:
            Its graph.
        """
        parent = int(self.table.nodes.graph[owner])
        row = GraphRow(GraphKind.BODY, -1, -1, parent, owner, attribute, fields)
        return self._add_graph(row, names)

    def _add_graph(self, row: GraphRow, names: Sequence[bytes]) -> int:
        table = self.table
        graph = len(table.graphs)
        table.graphs.append(row)
        table.returned.append(np.zeros(0, np.int32))
        table.given[graph] = self.add_values(graph, names)
        table.values.given[table.given[graph]] = True
        table.modified.add(graph)
        return graph

    def set_returned(self, graph: int, values: Ids | Places) -> None:
        """Say what a new graph returns."""
        table = self.table
        _require(table.graphs[graph].begin < 0, "a graph of the file returns what it did")
        np.subtract.at(table.values.returned, table.returned[graph], 1)
        table.returned[graph] = values.astype(np.int32)
        np.add.at(table.values.returned, table.returned[graph], 1)
        table.modified.add(graph)

    def remove_functions(self, graphs: Sequence[int]) -> None:
        """Take functions out, which nobody calls any more."""
        table = self.table
        kinds = {table.graphs[graph].kind for graph in graphs}
        _require(kinds <= {GraphKind.FUNCTION}, "a graph that is no function is taken out")
        gone = np.flatnonzero(table.nodes.live & np.isin(table.nodes.graph, graphs))
        for graph in graphs:
            self._drop_graph(graph)
        self._take_out(gone, _NONE)
        table.modified.add(0)

    def withhold(self, values: Ids | Places) -> None:
        """Let stored values be no inputs of their graphs any more."""
        columns = self.table.values
        _require((columns.tensor[values] >= 0).all(), "an input is taken off that is not stored")
        columns.given[values] = False
        self._edited(columns.graph[values])

    def set_imports(self, graph: int, imports: Mapping[str, int]) -> None:
        """Set the opsets of a function, or of the model: graph 0."""
        self.table.imports[graph] = dict(imports)
        self.table.modified.add(graph)

    def set_ir_version(self, version: int) -> None:
        """Set the model's IR version."""
        self.table.ir_version = version
        self.table.modified.add(0)

    # Parts of these.

    def _readers(self, places: Places) -> Places:
        """Return the live node that each slot of inputs is of, (n,); -1 for none."""
        nodes = self.table.nodes
        live = np.flatnonzero(nodes.live & (nodes.in_count > 0))
        if not live.size or not places.size:
            return np.full(places.size, -1)
        begin = nodes.in_at[live]
        order = np.argsort(begin, kind="stable")  # mostly they are in order
        near = order[np.maximum(np.searchsorted(begin, places, side="right", sorter=order) - 1, 0)]
        is_in = (begin[near] <= places) & (places < begin[near] + nodes.in_count[live[near]])
        return np.where(is_in, live[near], -1)

    def _keep(self, names: Sequence[bytes]) -> tuple[Places, Places]:
        """Put names into the arena; return where each is and its size, (n,)."""
        size = np.fromiter(map(len, names), np.int64, len(names))
        at = self.table.data.size + len(self.table.arena) + offsets(size)
        self.table.arena += b"".join(names)
        return at, size

    def _edited(self, graphs: NDArray[np.integer]) -> None:
        self.table.modified.update(ascending(graphs).tolist())

    def _touch(self, nodes: Ids | Places) -> None:
        self.table.nodes.touched[nodes] = True
        self._edited(self.table.nodes.graph[nodes])

    def _bodies(self, owners: Ids | Places) -> list[int]:
        """Return the bodies that nodes have."""
        rows = [
            (number, graph.owner)
            for number, graph in enumerate(self.table.graphs)
            if graph.live and graph.owner >= 0
        ]
        if not rows:
            return []
        number, owner = np.array(rows).T
        found: list[int] = number[np.isin(owner, owners)].tolist()
        return found

    def _with_bodies(self, nodes: Ids | Places) -> Places:
        """Return distinct nodes and all in bodies that they have."""
        table = self.table
        nodes = found = ascending(nodes).astype(np.int64)
        while bodies := self._bodies(nodes):
            nodes = np.flatnonzero(table.nodes.live & np.isin(table.nodes.graph, bodies))
            nodes = nodes[~np.isin(nodes, found)]
            found = np.concatenate([found, nodes])
        return found

    def _drop_graph(self, graph: int) -> Ids:
        """Forget what a graph defines and returns; return the latter."""
        table = self.table
        was = table.returned[graph]
        np.subtract.at(table.values.returned, was, 1)
        table.returned[graph] = was[:0]
        mine = np.flatnonzero(table.values.graph == graph)
        mine = mine[mine != OMITTED]
        table.values.given[mine] = False
        table.values.tensor[mine] = -1
        table.graphs[graph] = replace(table.graphs[graph], live=False)
        return was

    def _take_out(self, gone: Ids | Places, kept: Ids | Places) -> Places:
        """Take nodes out, and bodies that they have.

        Args:
            gone: The nodes.
            kept: What they make that something else makes from now on.

        Returns:
            What they have read.
        """
        if not gone.size:
            return _NONE
        table, values = self.table, self.table.values
        gone = self._with_bodies(gone)
        _require(table.nodes.live[gone].all(), "a node is taken out twice")
        _, read = table.inputs_of(gone)
        _, made = table.outputs_of(gone)
        np.subtract.at(values.uses, read, 1)
        bodies = self._bodies(gone)
        read = np.concatenate([read, *map(self._drop_graph, bodies)])
        table.nodes.live[gone] = False
        made = made[made != OMITTED]
        values.producer[made] = -1
        values.tensor[made] = -1
        unread = made[~np.isin(made, kept)]
        is_read = (values.uses[unread] > 0) | (values.returned[unread] > 0)
        _require(not is_read.any(), "a value is still read whose node is taken out")
        self._edited(table.nodes.graph[gone])
        lost = ascending(read)
        return lost[~(np.isin(lost, made) | np.isin(values.graph[lost], bodies))]

    def _append(self, new: NewNodes, place: Places, room: Places, graph: Places) -> Ids:
        table = self.table
        in_at = table.inputs.size + offsets(new.in_count)
        out_at = table.outputs.size + offsets(new.out_count)
        table.inputs.append(new.inputs.size, value=new.inputs)
        table.outputs.append(new.outputs.size, value=new.outputs)
        name_at, name_size = self._keep(new.names) if len(new.names) else (0, 0)
        nodes = table.nodes.append(
            place.size,
            operator=new.operator,
            attributes=new.attributes,
            graph=graph,
            in_at=in_at,
            in_count=new.in_count,
            out_at=out_at,
            out_count=new.out_count,
            head=-1,
            end=-1,
            name_at=name_at,
            name_size=name_size,
            remark=new.remark,
            remarked=False,
            place=place,
            room=room,
            live=True,
            touched=True,
        )
        row, made = table.outputs_of(nodes)
        row, made = row[made != OMITTED], made[made != OMITTED]
        table.values.producer[made] = nodes[row]
        table.values.tensor[made] = np.broadcast_to(new.tensor, place.shape)[row]
        self._edited(graph)
        return nodes

    def _places(self, new: NewNodes, gone: Ids | Places) -> tuple[Places, Places, Places]:
        """Return place, room and graph of each new node, (n,)."""
        nodes = self.table.nodes
        count = new.in_count.size
        anchor = np.broadcast_to(np.asarray(new.anchor, np.int64), count)
        graph = np.array(np.broadcast_to(np.asarray(new.graph, np.int64), count))
        place, room = np.zeros(count, np.int64), np.full(count, ROOM)
        here = np.flatnonzero(anchor >= 0)
        if here.size:
            graph[here] = nodes.graph[anchor[here]]
            which, example = distinct(anchor[here])
            anchors = anchor[here][example]
            stays = ~np.isin(anchors, gone)
            rank, mine = _ranks(which, anchors.size)
            parts = mine + stays
            if (nodes.room[anchors] < parts).any():
                self._spread()
            share = nodes.room[anchors] // parts
            _require((share > 0).all(), "too many nodes are put in one place")
            room[here] = share[which]
            behind = parts[which] - 1 - rank
            place[here] = nodes.place[anchors][which] - share[which] * behind
            nodes.room[anchors[stays]] = share[stays]
        end = np.flatnonzero(anchor < 0)
        if end.size:
            _require((graph[end] >= 0).all(), "a new node has no graph")
            last = np.zeros(len(self.table.graphs), np.int64)
            there = np.flatnonzero(nodes.live & np.isin(nodes.graph, graph[end]))
            np.maximum.at(last, nodes.graph[there], nodes.place[there])
            rank, _ = _ranks(graph[end], last.size)
            place[end] = last[graph[end]] + (rank + 1) * ROOM
        return place, room, graph

    def _spread(self) -> None:
        """Spread places anew, so that others fit between them."""
        nodes = self.table.nodes
        order = self.table.in_order()
        nodes.place[order] = (np.arange(order.size) + 1) * ROOM
        nodes.room[order] = ROOM


def _ranks(key: Places, size: int) -> tuple[Places, Places]:
    """Return how many rows before it have the same key, (n,); and how many there are, (size,)."""
    order, at, count = group(key, size)
    rank = np.empty(key.size, np.int64)
    rank[order] = np.arange(key.size) - np.repeat(at, count)
    return rank, count


def _number(known: dict[_T, int], listed: list[_T], item: _T) -> int:
    """Return the number of an item; a new one is listed."""
    number = known.setdefault(item, len(listed))
    if number == len(listed):
        listed.append(item)
    return number


def _require(holds: object, what: str) -> None:
    if not holds:
        raise TableError(what)
