"""Rewrite on the table: rules are tried and matches replaced in batches, with the same result.

The *common case* is what :func:`replace_rows` does as :mod:`dplcli.passes.rewrite` does, byte for
byte, without an edit of objects. It is:

- a model of one graph in the order of its file, of IR version 4 or later;
- rules whose replacements are texts, which take consumers first, have one output and no Python
  function, and do not ask how often a value is read; they may ask for types if the file states all
  types truly and in numbers, or for those of what is given or stored;
- matches that joins find without the search and that see no Identity node, whose root is their last
  node, and whose replacement reads nothing that they make;
- a few rounds, in which no value is replaced again and again.

A turn of a rule is one batch. One by one, each replacement could make way for the next: a node is
gone, or a value has fewer readers. Where a batch might differ for that, it is not the common case.
Whatever else occurs is noticed, too, and the model is left to the code for objects then.

Matches that are alike have one draft, that of the first of them; texts that compute a constant are
evaluated for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dplcli.dpl.joins import NONE, Joins
from dplcli.dpl.replacement import (
    BuildError,
    Draft,
    DraftConstant,
    DraftNode,
    DraftOutput,
    Replacement,
    as_tensor,
    constant_for,
    draft_replacement,
    operands_of,
)
from dplcli.dpl.rule import Match, Rejection, read_match
from dplcli.errors import PassError
from dplcli.ir.edits import Editor, NewNodes
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.relations import ascending, disjoint, distinct_lists, follow
from dplcli.ir.table import OMITTED
from dplcli.ir.types import UnknownTypeError
from dplcli.passes.rewrite import (
    FREE_NODES,
    GROWTH,
    PATIENCE,
    NewNames,
    NewNodeNames,
)
from dplcli.passes.select import judge
from dplcli.passes.tabular import Asker, TypedRows, is_closed, members_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from dplcli.dpl.joins import Matches
    from dplcli.dpl.replacement import ConstantPart, Operand, RewriteRule
    from dplcli.ir import Attribute, Graph, Model, Node, Tensor, Value
    from dplcli.ir.relations import Flags, Ids, Places
    from dplcli.ir.table import Table


_MOST_ROUNDS = 16
"""After so many rounds a model is left to objects: the rules may go on for ever."""

_MOST_KINDS = 1000
"""If matches are of more kinds than that, to replace them one by one costs less."""

_FEW, _MANY_ROUNDS = 8, 4
"""From so many rounds on, one with fewer applications is left to objects: many may follow."""


class UncommonError(Exception):
    """The model, a rule or what came of it is not the common case."""


class EditableRows(TypedRows, Protocol):
    """A table that is edited, and objects of the rows that are asked for.

    Attributes:
        made_attributes: What sets of attributes hold that new nodes have, by number.
        made_tensors: What tensors hold that passes have made, by number.
    """

    made_attributes: dict[int, Mapping[str, Attribute]]
    made_tensors: dict[int, Tensor]

    def follow_edits(self) -> None:
        """Let new objects be of the table as it is now, until its next edit."""


class RowRewriting(NamedTuple):
    """What rules did to a table.

    Attributes:
        counts: How often each rule was applied.
        rounds: How many rounds changed something.
        refused: Why other matches, at nodes that are still there, were not replaced.
    """

    counts: dict[str, int]
    rounds: int
    refused: tuple[Rejection, ...]


def replace_rows(rows: EditableRows, rules: Sequence[RewriteRule]) -> RowRewriting | None:
    """Apply rules until none matches; the table is edited.

    Returns:
        What was done, as :func:`dplcli.passes.rewrite.rewrite` does it; None if it is not the
        common case: the table is of no use then.
    """
    model = rows.model
    if model.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS or "" not in model.opset_imports:
        return None
    if not rows.table.is_one_graph:
        return None
    try:
        return _Driver(rows, rules).run()
    except (UncommonError, UnknownTypeError, PassError):
        return None  # an error is found again, and then it tells which node it is about


class _TableNames(NewNames):
    """Names for nodes and values of a table of one graph."""

    def __init__(self, model: Model, table: Table) -> None:
        super().__init__(model)
        self.table = table

    @cached_property
    def _nodes(self) -> set[str]:
        every = np.arange(self.table.nodes.size)
        return {name.decode() for name in self.table.node_names(every)}

    @cached_property
    def _values(self) -> set[str]:
        every = np.arange(self.table.values.size)
        return {name.decode() for name in self.table.names(every)}

    def node(self, wanted: str, free: Container[str] = ()) -> str:
        """Return *wanted*, or with a number behind it if a node that stays has that name."""
        return wanted if wanted in free else super().node(wanted)

    def _clashes_in(self, graph: Graph) -> Callable[[str], bool]:
        del graph  # there is one
        return self._values.__contains__

    def value(self, graph: Graph, source: str, what: str) -> str:
        """Return a name for a value, which is taken from then on."""
        name = super().value(graph, source, what)
        self._values.add(name)
        return name


class _Driver:
    """Applies rules to one table, as :class:`dplcli.passes.rewrite.RewriteDriver` does to a model.

    Attributes:
        counts: How often each rule was applied.
        replaced: How often each value was given another maker, (v,).
    """

    def __init__(self, rows: EditableRows, rules: Sequence[RewriteRule]) -> None:
        self.rows = rows
        self.rules = rules
        self.table = rows.table
        self.graph = rows.model.graph
        self.editor = Editor(self.table)
        self.counts = {rule.qualified_name: 0 for rule in rules}
        self.largest = GROWTH * (self.table.nodes.size + FREE_NODES)
        self.replaced = np.zeros(self.table.values.size, np.int32)
        self.names: _TableNames | None = None
        self._ask_anew()

    def _ask_anew(self) -> None:
        """Forget what was known of the table before it was edited."""
        self.rows.follow_edits()
        self.joins = Joins(self.table, self.rows)
        if self.rows.has_exact_types:
            self.joins.know_types(self.rows.types())
        self.asker = Asker(self.rows, self.joins)

    def run(self) -> RowRewriting:
        """Apply the rules until none matches.

        Raises:
            UncommonError: It is not the common case.
        """
        for rule in self.rules:
            self._candidates(rule)
        rounds = 0
        while True:
            before = sum(self.counts.values())
            refused: list[tuple[RewriteRule, Matches]] = []
            for rule in self.rules:
                refused += self._take_turn(rule)
            count = sum(self.counts.values()) - before
            if not count:
                found = tuple(item for each in refused for item in self._rejections(*each))
                return RowRewriting(self.counts, rounds, found)
            rounds += 1
            _require(rounds < _MOST_ROUNDS)
            _require(count >= _FEW or rounds < _MANY_ROUNDS)
            _require(np.count_nonzero(self.table.nodes.live) <= self.largest)

    def _take_turn(self, rule: RewriteRule) -> Iterator[tuple[RewriteRule, Matches]]:
        """Replace what a rule matches; yield the refused, one of each root, in program order."""
        roots = self._candidates(rule)
        if not roots.size:
            return
        matches = self.joins.matches(rule.matcher.program, roots)
        _require(not matches.left.size and not matches.identities[0].size)
        if not matches.size:
            return
        place = self.table.nodes.place
        matches = matches.take(np.lexsort((np.arange(matches.size), -place[matches.roots])))
        nodes = members_of(matches)
        _require((place[nodes] <= place[matches.roots][:, None])[nodes >= 0].all())
        taken = self._choose(rule, matches, nodes)
        gone = np.zeros(self.table.nodes.size, np.bool_)
        gone[nodes[taken][nodes[taken] >= 0]] = True
        is_first = np.ones(matches.size, np.bool_)
        is_first[1:] = matches.roots[1:] != matches.roots[:-1]
        refused = np.flatnonzero(is_first & ~gone[matches.roots])
        yield rule, matches.take(refused[::-1])
        if taken.size:
            self._check_order(matches, nodes, taken)
            self._apply(rule, matches.take(taken), nodes[taken], nodes)

    def _candidates(self, rule: RewriteRule) -> Ids:
        """Return the nodes at which a rule might match; there are none if it is not common."""
        found = np.zeros(0, np.int32)
        if not rule.holds_for(self.graph):
            return found
        if rule.is_nodewise:
            heads = rule.heads
            _require(heads is not None and self.joins.present.isdisjoint(heads))
            return found
        found = self.joins.candidates(rule.matcher.program)
        _require(is_common(rule) or not found.size)
        return found

    def _choose(self, rule: RewriteRule, matches: Matches, nodes: Ids) -> Places:
        """Return which matches (m,), of nodes (m, w), are replaced, in order of their turn."""
        closed = is_closed(self.table, nodes, outputs=matches.subjects)
        is_read = self._is_read(matches.subjects)
        _require(rule.escape == "refuse" or bool((closed | ~is_read).all()))
        may = np.flatnonzero(closed & is_read)
        may = may[self.asker.hold(rule.where, matches.take(may))]
        return may[disjoint(nodes[may])]

    def _is_read(self, values: Ids) -> Flags:
        columns = self.table.values
        found: Flags = (columns.uses[values] > 0) | (columns.returned[values] > 0)
        return found

    def _check_order(self, matches: Matches, nodes: Ids, taken: Places) -> None:
        """Refuse a batch in which one match could be taken since another was replaced before.

        That is one whose inner values are read by nothing else but what is gone then.
        """
        gone = ascending(nodes[taken][nodes[taken] >= 0])
        is_apart = ~np.isin(nodes, gone).any(axis=1)
        left = nodes[is_apart]
        if not left.size:
            return
        _, read = self.table.inputs_of(gone)
        uses = self.table.values.uses
        lost = np.bincount(read, minlength=uses.size)
        before = is_closed(self.table, left, outputs=matches.subjects[is_apart])
        after = is_closed(self.table, left, outputs=matches.subjects[is_apart], uses=uses - lost)
        _require((before == after).all())

    def _rejections(self, rule: RewriteRule, matches: Matches) -> Iterator[Rejection]:
        """Say why matches are refused; nothing was edited since they were found."""
        for root, state in matches.states():
            match = read_match(rule, root, state)
            assert match is not None  # noqa: S101  # its root is one of its nodes
            verdict = judge(match)
            assert isinstance(verdict, Rejection)  # noqa: S101  # or it had been taken
            yield verdict

    def _apply(self, rule: RewriteRule, matches: Matches, nodes: Ids, near: Ids) -> None:
        """Replace matches, in order of their turn.

        Args:
            rule: The rule.
            matches: The matches, m of them.
            nodes: Their nodes, -1 for none, (m, w).
            near: Those of all matches of this turn; what is dead after it must not be among them.
        """
        if self.names is None:
            self.names = _TableNames(self.rows.model, self.table)
        count = self.counts[rule.qualified_name] = self.counts[rule.qualified_name] + matches.size
        _require(count <= self.largest)
        more = self.table.values.size - self.replaced.size
        self.replaced = np.pad(self.replaced, (0, more))
        self.replaced[matches.subjects] += 1
        _require(self.replaced.max() <= PATIENCE)
        # one by one, what is dead by now would have been dead before its turn
        matters = np.zeros(self.table.nodes.size, np.bool_)
        matters[near[near >= 0]] = True
        is_subject = np.zeros(self.table.values.size, np.bool_)
        is_subject[matches.subjects] = True
        reader, read = self.table.inputs_of(np.flatnonzero(self.table.nodes.live))
        matters[np.flatnonzero(self.table.nodes.live)[reader[is_subject[read]]]] = True
        removed = _Batch(self, rule, matches, nodes).replace(self.names)
        _require(not matters[removed[removed < matters.size]].any())
        self.editor.set_imports(0, self.rows.model.opset_imports)
        self._ask_anew()


def is_common(rule: RewriteRule) -> bool:
    """Tell whether a rule may be applied on the table, wherever it matches."""
    return (
        isinstance(rule.replacement, Replacement)
        and not (rule.once or rule.has_code or rule.counts_uses or rule.producers_first)
        and rule.reach is not None
        and not rule.follows_shapes
    )


def _require(holds: object) -> None:
    if not holds:
        raise UncommonError


@dataclass(eq=False)
class _Kind:
    """Matches (k,) of which one draft is that of all.

    Attributes:
        rows: Which of the matches they are.
        draft: The draft of the first.
        columns: What each value that the draft reads is in all, (k,).
        root: The root of the first.
        outputs: What that makes.
        made: The new values, (k,), by part and output.
        tensors: What the outputs become, (k,), if that is stored.
    """

    rows: Places
    draft: Draft
    columns: dict[Value, Ids]
    root: Node
    outputs: tuple[Value, ...]
    made: dict[tuple[int, int], Places] = field(default_factory=dict)
    tensors: Ids = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def output(self) -> Operand:
        """What takes the place of the match's output."""
        return self.draft.outputs[0]

    @cached_property
    def parts(self) -> list[tuple[DraftNode | DraftConstant, list[int]]]:
        """The parts of the draft, each with those of its outputs that are new values.

        The other one is the match's output.
        """
        new = self.output
        found: list[tuple[DraftNode | DraftConstant, list[int]]] = []
        for part in self.draft.parts:
            if isinstance(part, DraftConstant):
                found.append((part, [] if part is new else [0]))
                continue
            mine = new.index if isinstance(new, DraftOutput) and new.node is part else None
            found.append((part, [n for n in range(part.output_count) if n != mine]))
        return found


class _Batch:
    """The replacements of one turn of a rule, for m matches in order of their turn."""

    def __init__(self, driver: _Driver, rule: RewriteRule, matches: Matches, nodes: Ids) -> None:
        self.driver = driver
        self.rule = rule
        self.matches = matches
        self.table = driver.table
        self.editor = driver.editor
        self.rows = driver.rows
        place = np.where(nodes < 0, np.iinfo(np.int64).max, self.table.nodes.place[nodes])
        self.nodes = np.take_along_axis(nodes, np.argsort(place, axis=1), axis=1)
        assert isinstance(rule.replacement, Replacement)  # noqa: S101  # it is common
        self.text = rule.replacement
        self.which, self.kinds = self._sort()

    def _sort(self) -> tuple[Places, list[_Kind]]:
        """Sort the matches into kinds."""
        which, example = distinct_lists(
            np.zeros(self.matches.size, np.int64), list(self._facts()), ()
        )
        _require(example.size <= _MOST_KINDS)
        order = np.argsort(which, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(which))[:-1])
        kinds = []
        for part, (root, state) in zip(parts, self.matches.take(example).states(), strict=True):
            match = read_match(self.rule, root, state)
            assert match is not None  # noqa: S101  # its root is one of its nodes
            draft = draft_replacement(match, self.text)
            if not isinstance(draft, Draft) or draft.is_respelled:
                raise UncommonError
            names = {value: n for n, value in match.bindings.items() if n in self.text.used}
            read = dict.fromkeys(operands_of(draft))
            _require(all(value in names and value.producer not in match.nodes for value in read))
            columns = {value: self.matches.values[names[value]][part] for value in read}
            kinds.append(_Kind(part, draft, columns, match.root, match.outputs))
        return which, kinds

    def _facts(self) -> Iterator[Ids]:
        """Yield what drafts depend on, constants aside: a column (m,) each."""
        nodes, types = self.table.nodes, self.rows.types()
        yield types[self.matches.subjects]
        for column in self.matches.nodes.T:
            for fact in (nodes.operator, nodes.attributes):
                yield np.where(column == NONE, NONE, fact[column])
        names = sorted(self.text.used & self.matches.values.keys())
        columns = [self.matches.values[name] for name in names]
        for number, column in enumerate(columns):
            yield np.where(column == NONE, NONE, types[column])
            yield from (column == other for other in columns[:number])
        for call in self.text.calls:
            for expression in call.attributes.values():
                if expression.scope != "types":
                    names = sorted(expression.names & self.matches.values.keys())
                    yield from (self.matches.values[name] for name in names)

    def replace(self, names: _TableNames) -> Places:
        """Replace all; return the nodes that nobody needs any more, which are taken out, too."""
        node_names, remarks = self._name(names)
        for kind in self.kinds:
            self._store_constants(kind)
        parts = [part for kind in self.kinds for part in self._new_nodes(kind, node_names, remarks)]
        new = NewNodes.joined(parts)
        forward = self._forward()
        _require(self._stay_read(new, forward))
        forward = follow(forward)
        new = replace(new, inputs=forward[new.inputs])
        moved = np.flatnonzero(forward != np.arange(forward.size))
        self.editor.rewire(moved, forward[moved])
        lost: list[Places] = [
            kind.columns[value].astype(np.int64) for kind in self.kinds for value in kind.columns
        ]
        stays = np.zeros(self.matches.size, np.bool_)
        for kind in self.kinds:
            if isinstance(kind.output, DraftConstant):
                old = self.matches.subjects[kind.rows]
                lost.append(self.editor.store(old, kind.tensors, self._members(kind.rows)))
                stays[kind.rows] = True
        gone = self._members(np.flatnonzero(~stays))
        lost.append(self.editor.replace(gone, new)[1])
        return self.editor.sweep(np.concatenate(lost))

    def _members(self, rows: Places) -> Places:
        """Return the nodes of some matches."""
        nodes = self.nodes[rows]
        return nodes[nodes >= 0].astype(np.int64)

    def _stay_read(self, new: NewNodes, forward: Places) -> bool:
        """Tell whether somebody reads what each match makes when its turn comes.

        Whoever does is replaced before it.

        Args:
            new: The new nodes, which read what they do before anything is read as something else.
            forward: As :meth:`_forward` returns it, but for chains.
        """
        values, subjects = self.table.values, self.matches.subjects
        _, lost = self.table.inputs_of(self._members(np.arange(self.matches.size)))
        size = values.size
        uses = values.uses - np.bincount(lost, minlength=size)
        uses += np.bincount(new.inputs, minlength=size)
        for old in subjects[forward[subjects] != subjects].tolist():
            uses[forward[old]] += uses[old]
        return bool(((uses[subjects] > 0) | (values.returned[subjects] > 0)).all())

    def _forward(self) -> Places:
        """Return what takes the place of each value, (v,), or the value itself."""
        forward = np.arange(self.table.values.size)
        for kind in self.kinds:
            if isinstance(kind.output, DraftOutput):
                continue
            old = self.matches.subjects[kind.rows]
            # what is returned needs its name, so it would be made again, or by a copy
            _require((self.table.values.returned[old] == 0).all())
            if not isinstance(kind.output, DraftConstant):
                forward[old] = kind.columns[kind.output]
        return forward

    def _name(self, names: _TableNames) -> tuple[list[list[bytes]], list[int]]:
        """Name all that is new, match by match; add the new values.

        Returns:
            The names of the new nodes of each match, and which remark they have.
        """
        table, graph = self.table, self.driver.graph
        op_types = [op_type.decode() for _, op_type, _ in table.operators]
        count = (self.nodes >= 0).sum(axis=1).tolist()
        members = self.nodes[self.nodes >= 0]
        texts = iter([name.decode() for name in table.node_names(members)])
        kinds_of = iter([op_types[number] for number in table.nodes.operator[members].tolist()])
        subjects = [name.decode() for name in table.names(self.matches.subjects)]
        encoded = self.rows.model.codec.encoded_metadata
        node_names: list[list[bytes]] = []
        remarks: list[int] = []
        fresh: list[bytes] = []
        first = np.zeros(self.matches.size, np.int64)
        for row, (which, size, base) in enumerate(
            zip(self.which.tolist(), count, subjects, strict=True)
        ):
            kind = self.kinds[which]
            mine = list(islice(texts, size))
            namer = NewNodeNames(names, dict(zip(mine, islice(kinds_of, size), strict=True)))
            origin = namer.origin(self.rule, kind.draft, mine[-1:])
            remarks.append(self.editor.remark(b"", encoded(origin)))
            made = []
            first[row] = len(fresh)
            for part, outputs in kind.parts:
                if isinstance(part, DraftNode):
                    made.append(namer.node(part.op_type).encode())
                what = part.op_type if isinstance(part, DraftNode) else "Constant"
                fresh += [names.value(graph, base, what).encode() for _ in outputs]
            node_names.append(made)
        ids = self.editor.add_values(0, fresh)
        for kind in self.kinds:
            at = first[kind.rows] + (int(ids[0]) if fresh else 0)
            for number, (_, outputs) in enumerate(kind.parts):
                for index in outputs:
                    kind.made[number, index] = at
                    at = at + 1
        return node_names, remarks

    def _store_constants(self, kind: _Kind) -> None:
        """Store the constants of matches that are alike, but for those that become outputs."""
        for number, (part, _) in enumerate(kind.parts):
            if not isinstance(part, DraftConstant):
                continue
            assert part.source is not None  # noqa: S101  # a text made it
            found = self._tensors(kind, part, part.source)
            if part is kind.output:
                kind.tensors = found
            else:
                self.editor.store(kind.made[number, 0], found)

    def _tensors(self, kind: _Kind, part: DraftConstant, constant: ConstantPart) -> Ids:
        """Add the tensors of one constant for matches that are alike, (k,)."""
        bound = self.matches.values
        read = sorted(constant.expression.names & bound.keys())
        names = self.text.used & bound.keys()  # operands beside it may decide its type
        is_same = constant.expression.scope == "types"
        columns = [] if is_same else [bound[name][kind.rows] for name in read]
        which, example = distinct_lists(np.zeros(kind.rows.size, np.int64), columns, ())
        tensors = [part.tensor]
        for row in kind.rows[example[1:]].tolist():
            values = {name: int(bound[name][row]) for name in names}
            found = {name: self.rows.value(v) for name, v in values.items() if v != NONE}
            match = Match(self.rule, kind.root, (), found, (), {}, kind.outputs)
            try:
                tensors.append(as_tensor(constant_for(match, constant)))
            except BuildError as error:
                raise UncommonError from error
        encoded = [self.rows.model.codec.encoded_tensor(tensor) for tensor in tensors]
        types = np.array([self.editor.tensor_type(text) for text, _ in encoded])
        rows = self.editor.add_tensors(types[which], [encoded[n][1] for n in which.tolist()])
        made = zip(rows.tolist(), which.tolist(), strict=True)
        self.rows.made_tensors.update((row, tensors[number]) for row, number in made)
        return rows

    def _new_nodes(
        self, kind: _Kind, names: Sequence[Sequence[bytes]], remarks: Sequence[int]
    ) -> Iterator[NewNodes]:
        """Yield the new nodes of matches that are alike, part by part."""
        size = kind.rows.size
        subjects = self.matches.subjects[kind.rows].astype(np.int64)
        remark = np.array([remarks[row] for row in kind.rows.tolist()])
        nth = 0
        for number, (part, fresh) in enumerate(kind.parts):
            if not isinstance(part, DraftNode):
                continue
            made: list[Places] = [
                kind.made[number, index] if index in fresh else subjects
                for index in range(part.output_count)
            ]
            read = [self._operand(kind, operand) for operand in part.inputs]
            yield NewNodes(
                operator=np.full(size, self._operator(part)),
                in_count=np.full(size, len(read)),
                inputs=np.stack(read, axis=1).ravel() if read else np.zeros(0, np.int64),
                out_count=np.full(size, len(made)),
                outputs=np.stack(made, axis=1).ravel(),
                anchor=self.matches.roots[kind.rows],
                attributes=np.full(size, self._attributes(part)),
                names=[names[row][nth] for row in kind.rows.tolist()],
                remark=remark,
            )
            nth += 1

    def _operand(self, kind: _Kind, operand: Operand | None) -> Places:
        """Return what an operand is in matches that are alike, (k,)."""
        if operand is None:
            return np.full(kind.rows.size, OMITTED)
        if not isinstance(operand, (DraftOutput, DraftConstant)):
            return kind.columns[operand].astype(np.int64)
        if isinstance(operand, DraftOutput):
            return kind.made[kind.draft.parts.index(operand.node), operand.index]
        return kind.made[kind.draft.parts.index(operand), 0]

    def _operator(self, part: DraftNode) -> int:
        _require(part.function is None)
        if part.domain:
            self.rows.model.opset_imports.setdefault(part.domain, part.version)
        return self.editor.operator(part.domain.encode(), part.op_type.encode())

    def _attributes(self, part: DraftNode) -> int:
        encoded = self.rows.model.codec.encoded_attribute
        number = self.editor.attribute_set(encoded(*item) for item in part.attributes.items())
        self.rows.made_attributes[number] = part.attributes
        return number
