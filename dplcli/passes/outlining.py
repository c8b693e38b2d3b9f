"""Outline on the table: matches become calls in batches, with the same result as one by one.

What :func:`dplcli.passes.tabular.select_rows` has chosen is written as
:mod:`dplcli.passes.partition` would write it, byte for byte, without an edit of objects.

Where the file states all types truly and in numbers, objects are made of examples only: of the
first of all matches that are alike, which the code for objects outlines, and of matches that are
refused, of which it says why. Else there are objects of all rows, as types must be inferred
(:class:`~dplcli.passes.tabular.TypedRows`); they stay as they were in the file.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.joins import NONE
from dplcli.dpl.rule import read_match
from dplcli.ir.edits import Editor, NewNodes
from dplcli.ir.model import NODES_KEY
from dplcli.ir.relations import ascending, beside, distinct_lists, offsets, sums, unnest
from dplcli.ir.table import OMITTED
from dplcli.passes.partition import (
    FunctionNames,
    group,
    json_members,
    outline,
    outside_reads,
    quoted,
    remarks_by_number,
    statement_text,
)
from dplcli.passes.records import UNDO_KEY
from dplcli.passes.rewriter import FIRST_IR_WITH_FUNCTIONS, claim

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Attribute, Function, Graph, Value
    from dplcli.ir.relations import Ids, Places
    from dplcli.passes.partition import Outline, OutlinedFunction
    from dplcli.passes.tabular import RowSelection, Taking


_OUTPUT_BITS = 20
"""A node has fewer outputs than numbers of so many bits."""


@dataclass(eq=False)
class _Kind:
    """Matches (k,) of one rule that differ only in names and in which values they read.

    Attributes:
        rows: Which of the rule's matches they are.
        outline: The first of them, as the code for objects draws it.
        attributes: Which of the table's sets a call gives.
        nodes: A template of what a call says of its nodes, for names of nodes and values.
        reads: What else it says of what they read.
        types: What it says of types of inner values.
    """

    rows: Places
    outline: Outline
    attributes: int = 0
    nodes: str = ""
    reads: str = ""
    types: str = ""


def outline_rows(selection: RowSelection) -> dict[str, int]:
    """Replace every match by a call of a function; the table is edited.

    Returns:
        How many functions were written for each rule.
    """
    if not selection.taken:
        return {}
    return _Outliner(selection).outline()


class _Outliner:
    """Writes the functions and the calls into a table."""

    def __init__(self, selection: RowSelection) -> None:
        self.selection = selection
        self.rows = selection.rows
        self.table = selection.rows.table
        self.model = selection.rows.model
        self.types = self.rows.types()
        self.editor = Editor(self.table)
        every = np.arange(self.table.nodes.size)
        names = [name.decode() for name in self.table.node_names(every)]
        self.names = set(names)
        self.repeated: set[str] = set()
        if len(self.names) < len(names):
            self.repeated = {name for name, n in Counter(names).items() if name and n > 1}
        self.rank = np.empty(every.size, np.int64)
        self.rank[self.table.in_order()] = every
        used = {
            (domain.decode(), op_type.decode())
            for domain, op_type, _ in self.table.operators
            if domain not in {b"", b"ai.onnx"}
        }
        self.function_names = FunctionNames(
            self.model, used, {rule.name for rule in selection.rules}
        )

    def outline(self) -> dict[str, int]:
        """Draw all, then edit."""
        place = self.table.nodes.place
        first = [place[item.matches.roots[0]] for item in self.selection.taken]
        written = {}
        drawn = []
        for at in np.argsort(first).tolist():
            taking = self.selection.taken[at]
            drawing = _Drawing(self, taking)
            drawn += [(drawing, function) for function in drawing.functions]
            written[taking.rule.qualified_name] = len(drawing.functions)
        made = []
        for drawing, (outlined, kinds) in drawn:
            name = self.function_names.claim(outlined)
            made.append((drawing, outlined.write(self.model, name), kinds))
        calls = []
        for drawing, function, kinds in made:
            self.model.opset_imports.setdefault(function.domain, 1)
            calls.append(drawing.calls(function, kinds))
        gone = np.concatenate([item.nodes for item in self.selection.taken])
        self.editor.replace(gone, NewNodes.joined(calls))
        for _, function, _ in made:
            self._add(function)
        self.editor.set_imports(0, self.model.opset_imports)
        if self.model.ir_version < FIRST_IR_WITH_FUNCTIONS:
            self.editor.set_ir_version(FIRST_IR_WITH_FUNCTIONS)
        return written

    def attribute_set(self, attributes: Mapping[str, Attribute]) -> int:
        """Return the number of a set of attributes."""
        encoded = self.model.codec.encoded_attribute
        return self.editor.attribute_set(encoded(*item) for item in attributes.items())

    def _add(self, function: Function) -> None:
        """Add a function that was written as objects."""
        body: Graph = function.body
        fields = self.model.codec.encoded_function(function)
        given = [value.name.encode() for value in body.inputs]
        graph = self.editor.add_function(fields, given, body.opset_imports)
        made = [value for node in body for value in node.outputs if value is not None]
        ids = self.editor.add_values(graph, [value.name.encode() for value in made])
        known: dict[Value | None, int] = {None: OMITTED}
        known |= dict(zip(body.inputs, self.table.given[graph].tolist(), strict=True))
        known |= dict(zip(made, ids.tolist(), strict=True))
        nodes = list(body)
        operators = [(node.domain, node.op_type, node.overload) for node in nodes]
        self.editor.add(
            NewNodes(
                operator=np.array([self.editor.operator(*map(str.encode, o)) for o in operators]),
                in_count=np.array([len(node.inputs) for node in nodes]),
                inputs=np.array([known[v] for node in nodes for v in node.inputs], np.int64),
                out_count=np.array([len(node.outputs) for node in nodes]),
                outputs=np.array([known[v] for node in nodes for v in node.outputs], np.int64),
                graph=graph,
                attributes=np.array([self.attribute_set(node.attributes) for node in nodes]),
                names=[node.name.encode() for node in nodes],
            )
        )
        self.editor.set_returned(graph, np.array([known[value] for value in body.outputs]))


class _Drawing:
    """The matches of one rule as calls to be, m of them.

    Attributes:
        functions: Each function to be written, with the kinds of matches that call it.
        nodes: The nodes of the matches, match by match in the order of the function's body.
        in_count: How many values each call reads, (m,).
        inputs: These, match by match in the order of the function's.
        out_count: How many it makes, (m,).
        outputs: These.
    """

    def __init__(self, outliner: _Outliner, taking: Taking) -> None:
        self.outliner = outliner
        self.taking = taking
        self.rows = outliner.rows
        self.table = outliner.table
        self.size = taking.count.size
        self.begin = offsets(taking.count)
        self.match = np.repeat(np.arange(self.size), taking.count)
        self.functions: list[tuple[OutlinedFunction, list[_Kind]]] = []
        code = self._wire()
        self._find_outputs()
        self.nodes = self.taking.nodes
        self._sort(code)
        self._offset_texts = self._offsets()
        self._names = self._names_by_node()
        self._odd_texts = self._find_odd_texts()

    def _wire(self) -> Places:
        """Find what each call reads; return what each input slot of its nodes is, (s,).

        That is -1 where it is omitted; an odd number where a node of the match makes it; else twice
        the place among what the call reads.
        """
        table, nodes = self.table, self.taking.nodes
        column = np.arange(nodes.size) - self.begin[self.match]
        where = np.full(table.nodes.size, NONE, np.int64)
        where[nodes] = np.arange(nodes.size)
        row, read = table.inputs_of(nodes)
        match = self.match[row]
        maker = table.values.producer[read]
        at = np.where(maker < 0, NONE, where[maker])
        inside = (at >= 0) & (self.match[at] == match)
        code = np.full(read.size, -1, np.int64)
        _, out_place = unnest(table.nodes.out_at[nodes], table.nodes.out_count[nodes])
        index = np.zeros(table.values.size, np.int64)
        out_row, made = table.outputs_of(nodes)
        index[made] = out_place - table.nodes.out_at[nodes][out_row]
        code[inside] = 2 * (column[at[inside]] << _OUTPUT_BITS | index[read[inside]]) + 1
        outside = np.flatnonzero(~inside & (read != OMITTED))
        key = match[outside] * np.int64(table.values.size) + read[outside]
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(first.size, np.int64)
        first = outside[first[order]]
        self.in_count = np.bincount(match[first], minlength=self.size)
        rank[order] = np.arange(first.size) - offsets(self.in_count)[match[first]]
        code[outside] = 2 * rank[which]
        self.inputs = read[first]
        return code

    def _find_outputs(self) -> None:
        """Find what each call makes: what is read of what its root makes, or the first of that."""
        table = self.table
        row, made = table.outputs_of(self.taking.matches.roots)
        row, made = row[made != OMITTED], made[made != OMITTED]
        is_read = (table.values.uses[made] > 0) | (table.values.returned[made] > 0)
        has_read = np.zeros(self.size, np.bool_)
        has_read[row[is_read]] = True
        is_first = np.ones(row.size, np.bool_)
        is_first[1:] = row[1:] != row[:-1]
        keep = is_read | (is_first & ~has_read[row])
        self.out_count = np.bincount(row[keep], minlength=self.size)
        self.outputs = made[keep]

    def _sort(self, code: Places) -> None:
        """Sort the matches into kinds, and these into functions."""
        while True:
            was_checked = self.rows.model.is_checked
            kinds = self._kinds(code)
            functions = group([kind.outline for kind in kinds])
            if self.rows.model.is_checked == was_checked:
                break
            self.outliner.types = self.rows.types()  # defaults depend on types, which are known now
        known = {id(kind.outline): kind for kind in kinds}
        for function in functions:
            mine = [known[id(item)] for item in function.outlines]
            for each in mine:
                given = function.call_attributes(each.outline)
                each.attributes = self.outliner.attribute_set(given)
                self._describe(each)
                self._arrange(each)
            self.functions.append((function, mine))

    def _arrange(self, kind: _Kind) -> None:
        """Bring nodes and inputs of a kind's matches into the order of its form."""
        form = kind.outline.form
        assert form is not None  # noqa: S101  # outline() has found it
        for column, begin, order in (
            ("nodes", self.begin, form.order),
            ("inputs", offsets(self.in_count), form.inputs),
        ):
            if order != tuple(range(len(order))):
                heap = getattr(self, column)
                first = begin[kind.rows][:, None]
                arranged = heap.copy()
                arranged[first + np.arange(len(order))] = heap[first + np.array(order)]
                setattr(self, column, arranged)

    def _kinds(self, code: Places) -> list[_Kind]:
        """Sort the matches into kinds, in order of first appearance."""
        nodes, taking, types = self.table.nodes, self.taking, self.outliner.types
        members = taking.nodes
        _, read = self.table.inputs_of(members)
        _, made = self.table.outputs_of(members)
        is_made = np.zeros(self.table.values.size, np.bool_)
        is_made[self.outputs] = True
        kind = np.where(made == OMITTED, NONE, 2 * types[made] + is_made[made])
        one = np.ones(members.size, np.int64)
        count, facts = beside(
            (one, nodes.operator[members]),
            (one, nodes.attributes[members]),
            (one, nodes.in_count[members]),
            (one, nodes.out_count[members]),
            (nodes.in_count[members], code),
            (nodes.in_count[members], types[read]),
            (nodes.out_count[members], kind),
        )
        bound = [self._slot_of(value) for value in taking.matches.values.values()]
        heads = (taking.count, *bound)
        which, example = distinct_lists(sums(taking.count, count), heads, (facts,))
        order = np.argsort(which, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(which))[:-1])
        kinds = []
        examples = taking.matches.take(example).states()
        for part, (root, state) in zip(parts, examples, strict=True):
            match = read_match(taking.rule, root, state)
            assert match is not None  # noqa: S101  # its root is one of its nodes
            kinds.append(_Kind(part, outline(match)))
        return kinds

    def _slot_of(self, value: Ids) -> Places:
        """Return which input of each call is the *value* bound to a name, (m,); -1 for none."""
        match = np.repeat(np.arange(self.size), self.in_count)
        at = np.flatnonzero(self.inputs == value[match])
        found = np.full(self.size, NONE, np.int64)
        found[match[at]] = at - offsets(self.in_count)[match[at]]
        return found

    def _describe(self, kind: _Kind) -> None:
        """Write down what all matches of a kind say alike."""
        item = kind.outline
        left_out: dict[int, list[str]] = {}
        for number, name in item.completed:
            left_out.setdefault(number, []).append(name)
        entries = []
        for number, node in enumerate(item.nodes):
            made = ",".join(["%s"] * len(node.outputs))
            entry = f"[{quoted(node.qualified_op).replace('%', '%%')},%s,[{made}]"
            if number in left_out:
                entry += f",[{','.join(map(quoted, left_out[number])).replace('%', '%%')}]"
            entries.append(entry)
        kind.nodes = f"[{'],'.join(entries)}]]"
        reads = {} if item.reads_plainly else outside_reads(item)
        kind.reads = json_members({"reads": reads, "swapped": list(item.swapped)})
        types = []
        for number, node in enumerate(item.nodes):
            for value in node.outputs:
                stated = None if value is None or value in item.outputs else value.stated_type
                if value is not None and stated is not None:
                    place = f"{number}.{value.index}" if value.index else f"{number}"
                    types.append(f'"{place}":{statement_text(stated)}')
        if types:
            kind.types = f'"types":{{{",".join(types)}}}'

    def _offsets(self) -> list[str]:
        """Say of each match how many nodes before the last one each lay, but if in one row."""
        rank = self.outliner.rank[self.nodes]
        last = self.outliner.rank[self.taking.nodes][self.begin + self.taking.count - 1][self.match]
        which, example = distinct_lists(self.taking.count, (), (last - rank,))
        texts = []
        for row in example.tolist():
            begin, count = int(self.begin[row]), int(self.taking.count[row])
            found = (last - rank)[begin : begin + count].tolist()
            plain = found == list(reversed(range(count)))
            texts.append("" if plain else json_members({"offsets": found}))
        return [texts[number] for number in which.tolist()]

    def _names_by_node(self) -> list[list[str]]:
        """Return, of each match, the names of each node and of what that makes, in JSON."""
        nodes, table = self.nodes, self.table
        out_count = table.nodes.out_count[nodes]
        row, made = table.outputs_of(nodes)
        names = np.empty(nodes.size + made.size, np.object_)
        names[np.arange(nodes.size) + offsets(out_count)] = table.node_names(nodes)
        names[np.arange(made.size) + row + 1] = table.names(made)
        quotes = [quoted(name.decode()) for name in names.tolist()]
        count = sums(self.taking.count, out_count + 1)
        begin = offsets(count)
        spans = zip(begin.tolist(), (begin + count).tolist(), strict=True)
        return [quotes[a:b] for a, b in spans]

    def _find_odd_texts(self) -> dict[int, str]:
        """Return what few matches say: remarks of nodes, and names that others have, too."""
        found: dict[int, str] = {}
        repeated = self.outliner.repeated
        odd = self.match[self.table.nodes.remarked[self.taking.nodes]]
        if repeated:
            odd = np.arange(self.size)
        for match in ascending(odd).tolist():
            begin = int(self.begin[match])
            members = self.nodes[begin : begin + int(self.taking.count[match])]
            nodes = [self.rows.node(row) for row in members.tolist()]
            again = [number for number, node in enumerate(nodes) if node.name in repeated]
            text = json_members({"remarks": remarks_by_number(nodes), "repeated": again})
            if text:
                found[match] = text
        return found

    def calls(self, function: Function, kinds: Sequence[_Kind]) -> NewNodes:
        """Return the calls of one function, and claim their names."""
        outliner, taking = self.outliner, self.taking
        encoded = outliner.model.codec.encoded_metadata
        rows = np.concatenate([kind.rows for kind in kinds])
        which = np.repeat(np.arange(len(kinds)), [kind.rows.size for kind in kinds])
        order = np.argsort(rows)
        rows, which = rows[order], which[order]
        remarks, names = [], []
        for number, (match, of_kind) in enumerate(zip(rows.tolist(), which.tolist(), strict=True)):
            kind = kinds[of_kind]
            metadata = {NODES_KEY: kind.nodes % tuple(self._names[match])}
            odd = self._odd_texts.get(match, "")
            rest = (self._offset_texts[match], kind.reads, odd, kind.types)
            if said := ",".join(filter(None, rest)):
                metadata[UNDO_KEY] = f"{{{said}}}"
            remarks.append(outliner.editor.remark(b"", encoded(metadata)))
            names.append(claim(f"{function.name}_{number}", outliner.names).encode())
        operator = outliner.editor.operator(function.domain.encode(), function.name.encode())
        _, read = unnest(offsets(self.in_count)[rows], self.in_count[rows])
        _, made = unnest(offsets(self.out_count)[rows], self.out_count[rows])
        return NewNodes(
            operator=np.full(rows.size, operator),
            in_count=self.in_count[rows],
            inputs=self.inputs[read],
            out_count=self.out_count[rows],
            outputs=self.outputs[made],
            anchor=taking.matches.roots[rows],
            attributes=np.array([kind.attributes for kind in kinds])[which],
            names=names,
            remark=np.array(remarks),
        )
