"""Matches on the table: chosen in batches, with the same result as one by one.

The *common case* is what :func:`select_rows` decides as :mod:`dplcli.passes.select` does, without
objects but of examples. It is:

- a model of one graph in the order of its file, without functions, of IR version 4 or later;
- rules that outline, take consumers first, refuse what escapes, have one output and no Python
  function; conditions may be whatever there is, and are asked once for all matches that are alike
  to them;
- matches that joins find without the search, which see no Identity node, whose root is their last
  node, and which embed no constant.

Whatever else occurs is noticed: :func:`select_rows` returns None then, and the whole model is left
to the code for objects. :mod:`dplcli.passes.outlining` makes calls of what was chosen.
:mod:`dplcli.passes.replacing` chooses by itself, and asks the same of matches.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dplcli.dpl.joins import NONE, Joins, Objects
from dplcli.dpl.rule import Match, PatternRule, Rejection, read_match
from dplcli.ir.model import FIRST_IR_WITH_PLAIN_INITIALIZERS
from dplcli.ir.operators import flops
from dplcli.ir.relations import ascending, disjoint, distinct_lists
from dplcli.ir.table import OMITTED
from dplcli.passes.select import GapCause, Mentions, Taken, covered, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.dpl.conditions import Condition
    from dplcli.dpl.joins import Matches
    from dplcli.dpl.rule import Rule
    from dplcli.ir import Model, Node, Value
    from dplcli.ir.relations import Flags, Ids, Places
    from dplcli.ir.table import Table
    from dplcli.passes.select import Coverage


MANY_NODES = 5000
"""Of fewer nodes objects are made in no time; array operations cost the same for few rows."""


class TypedRows(Objects, Protocol):
    """A table, and objects of the rows that are asked for.

    Attributes:
        table: The table.
        model: A model with what the file says beside its graphs; these may list nothing.
    """

    table: Table
    model: Model

    @property
    def has_exact_types(self) -> bool:
        """Whether all types are known for sure to be what the file states, in numbers."""

    def types(self) -> Ids:
        """Number what the file states of values and what is known of their types by now, (v,).

        The omitted value has -1.
        """


def count_operators(table: Table, nodes: Places) -> Counter[str]:
    """Count nodes by operator, which is named as nodes of a model name it."""
    count = np.bincount(table.nodes.operator[nodes], minlength=len(table.operators))
    found: Counter[str] = Counter()
    for name, many in zip(qualified_operators(table), count.tolist(), strict=True):
        if many:
            found[name] += many
    return found


def qualified_operators(table: Table) -> list[str]:
    """Return the names of operators as nodes of a model have them."""
    names = []
    for domain, op_type, _ in table.operators:
        prefix = "" if domain in {b"", b"ai.onnx"} else f"{domain.decode()}."
        names.append(prefix + op_type.decode())
    return names


def members_of(matches: Matches) -> Ids:
    """Return the nodes of matches, each once, in the order of rows, -1 for none, (m, w)."""
    nodes = np.sort(matches.nodes, axis=1)
    nodes[:, 1:][nodes[:, 1:] == nodes[:, :-1]] = NONE
    return nodes


def is_closed(
    table: Table, nodes: Ids, *, outputs: Ids, roots: Ids | None = None, uses: Ids | None = None
) -> Flags:
    """Tell of which matches (m,) nothing that their nodes make is read outside.

    Args:
        table: The table.
        nodes: Their nodes, -1 for none, (m, w).
        outputs: A value of each that may be read outside, (m,).
        roots: A node of each whose outputs all may be, (m,).
        uses: How often each value is read, (v,), if that is not as the table has it.
    """
    values = table.values
    uses = values.uses if uses is None else uses
    match, column = np.nonzero(nodes >= 0)
    member = nodes[match, column]
    closed = np.ones(len(nodes), np.bool_)
    row, made = table.outputs_of(member)
    inner = (made != OMITTED) & (made != outputs[match[row]])
    if roots is not None:
        inner &= member[row] != roots[match[row]]
    maker, made = match[row[inner]], made[inner]
    row, read = table.inputs_of(member)
    key = np.sort(match[row] * np.int64(values.size) + read)
    wanted = maker * np.int64(values.size) + made
    inside = np.searchsorted(key, wanted, "right") - np.searchsorted(key, wanted)
    closed[maker[(inside < uses[made]) | (values.returned[made] > 0)]] = False
    return closed


class Asker:
    """Asks conditions of matches, once of those that are alike.

    Args:
        rows: The table.
        joins: What the matches were found with.
    """

    def __init__(self, rows: TypedRows, joins: Joins) -> None:
        self.rows = rows
        self.table = rows.table
        self.joins = joins

    def hold(self, conditions: Sequence[Condition], matches: Matches) -> Flags:
        """Tell of which matches (m,) all conditions hold."""
        holds = np.ones(matches.size, np.bool_)
        for condition in conditions:
            left = np.flatnonzero(holds)
            names = sorted(condition.names & matches.values.keys())
            columns = [matches.values[name][left] for name in names]
            which, example = self.alike(condition.scope, columns, left.size)
            answers = np.zeros(example.size, np.bool_)
            for number, row in enumerate(left[example].tolist()):
                bound = {name: int(matches.values[name][row]) for name in names}
                bindings = {n: self.rows.value(v) for n, v in bound.items() if v != NONE}
                answers[number] = condition.unmet_by(bindings) is None
            holds[left] = answers[which]
        return holds

    def alike(self, scope: str, columns: Sequence[Ids], count: int) -> tuple[Places, Places]:
        """Number rows by what an expression may ask of values.

        Args:
            scope: As in :attr:`dplcli.dpl.conditions.Expression.scope`.
            columns: The values that it names, (m,) each; -1 for none.
            count: How many rows there are.

        Returns:
            The number of each row, (m,), and an example of each number.
        """
        if scope != "names" and not self.rows.has_exact_types:
            scope = "values"  # what is known of open sizes is known of each by itself
        if scope == "names":  # of one graph, in which each names one value
            facts = [column == NONE for column in columns]
            facts += [column == columns[0] for column in columns[1:]]
        else:
            facts = [fact for column in columns for fact in self._facts(column, scope)]
        return distinct_lists(np.zeros(count, np.int64), facts, ())

    def _facts(self, values: Ids, scope: str) -> Iterator[Ids]:
        """Yield what may be asked of values (n,), -1 for none: answers are alike if it is equal."""
        if scope == "values":
            yield values
            return
        types = self.rows.types()
        yield np.where(values == NONE, NONE, types[values])
        if scope == "types":
            return
        nodes = self.table.nodes
        maker = np.where(values == NONE, NONE, self.table.values.producer[values])
        weight = self.joins.input(maker, 1)
        for fact in (nodes.operator[maker], nodes.attributes[maker], types[weight]):
            yield np.where(maker == NONE, NONE, fact)


# Selecting.


@dataclass(eq=False)
class Taking:
    """The matches taken of one rule, m of them, in program order.

    Attributes:
        rule: The rule.
        matches: What joins found of them.
        count: How many nodes each has, (m,).
        nodes: Their nodes, match by match in program order.
    """

    rule: PatternRule
    matches: Matches
    count: Places
    nodes: Places


@dataclass(eq=False)
class RowSelection:
    """What rules found in a table.

    Attributes:
        rows: The table.
        rules: The rules that were tried.
        taken: What was taken, of each rule that has matches, in listed order.
        refused: As in :attr:`dplcli.passes.select.Selection.refused`.
        owner: The rule whose match each node is in, by number; -1 for none, (n,).
    """

    rows: TypedRows
    rules: tuple[PatternRule, ...]
    taken: list[Taking] = field(default_factory=list)
    refused: list[Rejection] = field(default_factory=list)
    owner: Ids = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def counts(self) -> dict[str, int]:
        """How many matches of each rule were taken, of those that have any."""
        return {item.rule.qualified_name: item.count.size for item in self.taken}


def select_rows(rows: TypedRows, rules: Sequence[Rule]) -> RowSelection | None:
    """Try rules on a table, as :func:`dplcli.passes.select.select_matches` does on a model.

    Returns:
        What they found; None if it is not the common case.
    """
    model = rows.model
    common = [rule for rule in rules if isinstance(rule, PatternRule) and _is_common(rule)]
    if len(common) < len(rules) or "" not in model.opset_imports:
        return None
    if model.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS or not rows.table.is_one_graph:
        return None
    selector = _Selector(rows, common)
    if not all(map(selector.select, range(len(common)))):
        return None
    return selector.result()


def _is_common(rule: PatternRule) -> bool:
    return (
        rule.check is None
        and rule.escape == "refuse"
        and not rule.producers_first
        and rule.order == "outermost"
    )


class _Selector:
    """Takes matches of one rule after the other.

    Attributes:
        owner: As in :class:`RowSelection`.
        when: At which visit of a root each node was taken, (n,).
    """

    def __init__(self, rows: TypedRows, rules: Sequence[PatternRule]) -> None:
        self.rows = rows
        self.rules = rules
        self.table = rows.table
        self.joins = Joins(rows.table, rows)
        if rows.has_exact_types:
            self.joins.know_types(rows.types())
        self.asker = Asker(rows, self.joins)
        self.overloads = np.array([bool(row[0] and row[2]) for row in rows.table.operators])
        self.found = RowSelection(rows, tuple(rules))
        self.owner = np.full(rows.table.nodes.size, NONE, np.int32)
        self.when = np.full(rows.table.nodes.size, NONE, np.int64)
        self.visits = 0
        self.refusals: list[tuple[PatternRule, Matches, Ids, Places]] = []

    def select(self, number: int) -> bool:
        """Take matches of a rule; tell whether that is the common case."""
        rule = self.rules[number]
        if not rule.holds_for(self.rows.model.graph):
            return True
        roots = self.joins.candidates(rule.matcher.program)
        matches = self.joins.matches(rule.matcher.program, roots[self.owner[roots] == NONE])
        if matches.left.size or matches.identities[0].size:
            return False
        if not matches.size:
            return True
        nodes = members_of(matches)
        place = self.table.nodes.place
        if ((nodes >= 0) & (place[nodes] > place[matches.roots][:, None])).any():
            return False
        order = np.lexsort((np.arange(matches.size), -place[matches.roots]))
        matches, nodes = matches.take(order), nodes[order]
        is_claimed = ((nodes >= 0) & (self.owner[nodes] != NONE)).any(axis=1)
        closed = is_closed(self.table, nodes, roots=matches.roots, outputs=matches.subjects)
        is_overload = (nodes >= 0) & self.overloads[self.table.nodes.operator[nodes]]
        may = np.flatnonzero(~is_claimed & closed & ~is_overload.any(axis=1))
        may = may[self.asker.hold(rule.where, matches.take(may))]
        taken = may[disjoint(nodes[may])]
        is_first = np.ones(matches.size, np.bool_)
        is_first[1:] = matches.roots[1:] != matches.roots[:-1]
        visit = self.visits + np.cumsum(is_first)
        self.visits = int(visit[-1])
        mine = nodes[taken]
        self.owner[mine[mine >= 0]] = number
        self.when[mine[mine >= 0]] = np.repeat(visit[taken], (mine >= 0).sum(axis=1))
        first = np.flatnonzero(is_first)
        refused = first[~np.isin(matches.roots[first], matches.roots[taken])]
        self.refusals.append((rule, matches.take(refused), nodes[refused], visit[refused]))
        return not taken.size or self._keep(rule, matches.take(taken[::-1]), mine[::-1])

    def _keep(self, rule: PatternRule, matches: Matches, nodes: Ids) -> bool:
        """Keep matches that are taken, in program order; tell whether that is the common case."""
        place = np.where(nodes < 0, np.iinfo(np.int64).max, self.table.nodes.place[nodes])
        nodes = np.take_along_axis(nodes, np.argsort(place, axis=1), axis=1)
        count = (nodes >= 0).sum(axis=1)
        taking = Taking(rule, matches, count, nodes[nodes >= 0].astype(np.int64))
        self.found.taken.append(taking)
        _, read = self.table.inputs_of(taking.nodes)
        if (self.joins.original[read] != read).any():
            return False  # a call is to read what is copied
        if rule.constants == "lift":
            return True
        if rule.constants == "auto":
            slots = list(rule.matcher.program.constant_slots)
            return bool((matches.columns[:, slots] == NONE).all())
        return not self.joins.is_constant[read[read != OMITTED]].any()

    def result(self) -> RowSelection:
        """Return all that was found; say why what was refused was."""
        self.found.owner = self.owner
        for rule, matches, nodes, visits in self.refusals:
            rows = np.flatnonzero(self.owner[matches.roots] == NONE)
            left = matches.take(rows)
            states = zip(left.states(), nodes[rows], visits[rows].tolist(), strict=True)
            for (root, state), members, visit in states:
                match = read_match(rule, root, state)
                assert match is not None  # noqa: S101  # its root is one of its nodes
                verdict = judge(match, self._taken_before(members[members >= 0], visit))
                assert isinstance(verdict, Rejection)  # noqa: S101  # or it had been taken
                self.found.refused.append(verdict)
        return self.found

    def _taken_before(self, nodes: Ids, visit: int) -> Taken:
        """Return what a match of some nodes must know of those taken before a visit."""
        here = nodes[(self.owner[nodes] != NONE) & (self.when[nodes] < visit)]
        claimed = {}
        for row in here.tolist():
            node = self.rows.node(row)
            claimed[node] = Match(self.rules[self.owner[row]], node, (node,), {}, (), {}, ())
        return Taken(claimed)


# Measuring.


class RowFates(NamedTuple):
    """What became of the nodes of a table.

    Attributes:
        causes: Targets, and causes of gaps.
        of: Which of them each node's is, (n,).
        counted: The nodes that do something, in order.
    """

    causes: list[str | GapCause]
    of: Places
    counted: Places

    def listed(self) -> list[str | GapCause]:
        """Return those of all counted nodes, as :func:`dplcli.passes.select.fates` does."""
        return [self.causes[number] for number in self.of[self.counted].tolist()]


def row_fates(selection: RowSelection) -> RowFates:
    """Say which target each node goes to, or why none; ask before anything is outlined."""
    rows, table = selection.rows, selection.rows.table
    causes: list[str | GapCause] = [rule.target for rule in selection.rules]
    fate = selection.owner.astype(np.int64)
    place = {item.root.source: item for item in reversed(selection.refused)}
    for row, item in place.items():
        assert isinstance(row, int)  # noqa: S101  # it is of the file
        fate[row] = len(causes)
        causes.append(GapCause(item.rule.qualified_name, item.stage, item.reason))
    mentions = Mentions(selection.rules)
    for number in ascending(table.nodes.operator[fate < 0]).tolist():
        here = np.flatnonzero((fate < 0) & (table.nodes.operator == number))
        fate[here] = len(causes)
        causes.append(GapCause("", "", mentions.reason(rows.node(int(here[0])))))
    is_data = np.array([name == "Constant" for name in qualified_operators(table)], np.bool_)
    nodes = table.in_order()
    return RowFates(causes, fate, nodes[~is_data[table.nodes.operator[nodes]]])


def measure_rows(selection: RowSelection) -> Coverage:
    """Say how much is inside matches, as :func:`dplcli.passes.select.measure` does.

    All types must be exact.
    """
    rows, table = selection.rows, selection.rows.table
    causes, fate, nodes = row_fates(selection)
    same, example = table.alike(nodes, rows.types())
    costs = [_cost(rows.node(row)) for row in nodes[example].tolist()]
    which, example = distinct_lists(np.zeros(nodes.size, np.int64), (same, fate[nodes]), ())
    alike: dict[tuple[str, str, str | GapCause, int | None], int] = {}
    for row, count in zip(example.tolist(), np.bincount(which).tolist(), strict=True):
        node = rows.node(int(nodes[row]))
        key = (node.domain, node.op_type, causes[fate[nodes[row]]], costs[same[row]])
        alike[key] = alike.get(key, 0) + count
    return covered(alike, ())


def _cost(node: Node) -> int | None:
    def shape_of(value: Value) -> tuple[int | str | None, ...] | None:
        known = value.declared_type
        return None if known is None else known.shape

    return flops(node, shape_of)
