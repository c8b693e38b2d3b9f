"""Patterns as queries: all matches at all roots at once, by joins over the graph as a table.

A *frame* holds one partial match a row. Each part of a pattern filters the rows, or extends them:
a node pattern takes the node that makes a value, an alternative makes two rows of one, operands
that commute make a row for each order. Rows stand in the order in which
:mod:`dplcli.dpl.matcher` would come to them, searching depth first. So the matches of a root are
those of that search, in its order; tests hold one against the other.

The columns of a frame are the slots of the compiled pattern: rows of nodes and of values, -1 where
a slot is not bound. So whatever the matcher binds, or finds too little to bind, is bound here.

What is not joined is left to the search. A row for which a condition was not asked is *unsure*; a
root that still has such a row in the end is :attr:`Matches.left`, together with roots that have too
many rows. So every pattern may be asked for: those with chains, regions, negations, bodies or
several outputs come out with the few roots at which the rest of the pattern fits. A root that has
no row at all has no match. :func:`unjoined` says which parts of a pattern are not joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from dplcli.dpl.matcher import (
    AbsentStep,
    AndStep,
    AnyStep,
    Attributes,
    CallStep,
    ConstantStep,
    InputStep,
    LeafStep,
    OrStep,
    OutputsStep,
    OutputStep,
    SharedStep,
    State,
    TypeStep,
    UnnamedStep,
    ValueStep,
    attribute_equals,
    unnamed_attributes,
)
from dplcli.ir.operators import COMMUTATIVE, MOVED, fixed_attribute, slot_of
from dplcli.ir.relations import ascending, distinct, follow, nth, unnest
from dplcli.ir.table import OMITTED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from numpy.typing import NDArray

    from dplcli.dpl.matcher import OpKey, Ops, Program, Requirement, Step
    from dplcli.dpl.pattern import AttributeValue, TypedPattern
    from dplcli.ir import Node, TensorType, Value
    from dplcli.ir.relations import Flags, Ids, Places
    from dplcli.ir.table import Table

    Request: TypeAlias = "tuple[Step, MatchFrame, Ids]"
    """A step, a frame, and the value that each row of it is to match."""

    Extension: TypeAlias = "Generator[Request, MatchFrame, MatchFrame]"
    """Extends a frame. What it needs of other steps it yields, and is sent the frame found."""

ROWS_OF_A_ROOT: Final = 1024
"""A root with more partial matches at a time is left to the search."""
NUMBERS_OF_A_FRAME: Final = 1 << 24
"""A frame with more numbers than this is made again for half of the roots."""
_VISITS, _VISITS_OF_A_STEP = 500, 8
"""How many steps a query may take, in all and beside that for each step of the pattern."""
_WORK, _WORK_OF_A_ROOT = 1 << 26, 1 << 14
"""How many numbers it may move, in all and beside that for each root; else all is left."""

NONE: Final = -1
"""A slot that is not bound."""
_ROOT, _UNSURE, _NOTED = -3, -2, -1
"""The last columns of a frame: which root, whether a condition is left to ask, see :class:`Noted`.
"""


class Objects(Protocol):
    """The table's rows as objects, of which few are asked for.

    What a node's attributes are with their defaults, what a constant holds and what is known of a
    type is asked of these, by the functions that the matcher uses: once for each distinct set of
    attributes, tensor or value.
    """

    def node(self, row: int) -> Node:
        """Return the node of a row."""

    def value(self, row: int) -> Value:
        """Return the value of a row."""


def unjoined(program: Program) -> list[str]:
    """Say which parts of a pattern are not joined, so that roots at which they stand are left."""
    found = dict.fromkeys(reason for step in _steps(program) if (reason := _reason_against(step)))
    return list(found)


def _reason_against(step: Step) -> str:
    if isinstance(step, CallStep):
        alike = "attributes of one name" if step.alike else ""
        return "a function's body" if step.functions else "bodies" if step.bodies else alike
    if isinstance(step, OutputsStep):
        return "several outputs"
    known = isinstance(step, (*_JOINED, ValueStep))
    return "" if known else type(step.pattern).__name__.removesuffix("Pattern").lower()


_JOINED = (OutputStep, OrStep, AndStep, AnyStep, AbsentStep, TypeStep)


# Frames.


@dataclass(frozen=True, eq=False)
class MatchFrame:
    """Partial matches, n of them.

    Attributes:
        origin: The row that each was made from, of the frame that was extended, (n,).
        columns: What each slot is bound to, then three more, (n, slots + 3).
    """

    origin: Places
    columns: Ids

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.columns)

    def column(self, slot: int) -> Ids:
        """Return what a slot is bound to, (n,)."""
        found: Ids = self.columns[:, slot]
        return found

    def take(self, rows: Places) -> MatchFrame:
        """Return some rows, each perhaps more than once; that is what they are made from."""
        return MatchFrame(rows, self.columns.take(rows, axis=0))

    def take_bound(self, rows: Places, slot: int, bound: Ids) -> MatchFrame:
        """Return some rows, (m,), with a slot bound to one number a row, (m,)."""
        columns = self.columns.take(rows, axis=0)
        columns[:, slot] = bound
        return MatchFrame(rows, columns)

    def keep(self, flags: Flags) -> MatchFrame:
        """Return the rows that are marked, (n,)."""
        if flags.all():
            return MatchFrame(np.arange(self.size), self.columns)
        return self.take(np.flatnonzero(flags))

    def bind(self, slot: int, bound: Ids | Places | int) -> MatchFrame:
        """Return the same rows with a slot bound, to one number or to one a row, (n,)."""
        columns = self.columns.copy()
        columns[:, slot] = bound
        return MatchFrame(self.origin, columns)

    def behind(self, first: MatchFrame) -> MatchFrame:
        """Return the same rows as made from what *first*, which was extended, was made from."""
        return MatchFrame(first.origin[self.origin], self.columns)

    @staticmethod
    def merged(preferred: MatchFrame, other: MatchFrame) -> MatchFrame:
        """Return all rows of two frames; of those made from one row the preferred come first."""
        if not preferred.size or not other.size:
            return preferred if preferred.size else other
        origin = np.concatenate([preferred.origin, other.origin])
        order = np.argsort(origin, kind="stable")
        columns = np.concatenate([preferred.columns, other.columns])
        return MatchFrame(origin[order], columns.take(order, axis=0))


@dataclass(frozen=True, eq=False)
class Matches:
    """Matches of one pattern, n of them: root by root, those of a root by preference.

    Attributes:
        joins: What they were found with.
        program: The compiled pattern.
        roots: The node at which each was found, (n,).
        subjects: The output of it that the search began with, (n,).
        columns: What each slot is bound to, (n, slots).
        last_noted: Where the Identity nodes that each looked through are listed in *noted*, (n,);
            -1 for none.
        noted: The Identity nodes that any looked through.
        left: The roots that the search must look at, in order, (k,); they have no rows.
    """

    joins: Joins
    program: Program
    roots: Ids
    subjects: Ids
    columns: Ids
    last_noted: Ids
    noted: Noted
    left: Ids

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.columns)

    def take(self, rows: Places | Flags) -> Matches:
        """Return some of them."""
        return Matches(
            self.joins,
            self.program,
            self.roots[rows],
            self.subjects[rows],
            self.columns[rows],
            self.last_noted[rows],
            self.noted,
            self.left,
        )

    @cached_property
    def nodes(self) -> Ids:
        """The node of each node pattern, (n, calls); -1 where it took no part."""
        return self.columns[:, _call_slots(self.program)]

    @cached_property
    def values(self) -> dict[str, Ids]:
        """By name, the value bound to it, (n,); -1 where it took no part."""
        calls = set(_call_slots(self.program))
        found = {}
        for name, choices in self.program.names:
            bound = np.full(self.size, NONE, np.int32)
            is_free = np.ones(self.size, np.bool_)
            for slot, index in choices:
                here = np.flatnonzero(is_free & (self.columns[:, slot] != NONE))
                is_free[here] = False
                what = self.columns[here, slot]
                if slot in calls:
                    value = self.joins.output(what, index)
                    what = np.where(value == OMITTED, NONE, value)
                bound[here] = what
            found[name] = bound
        return found

    @cached_property
    def identities(self) -> tuple[Places, Ids]:
        """The Identity nodes looked through: a match and a node, each pair once, (m,) both."""
        return self.noted.nodes(self.last_noted, self.joins.table.nodes.graph[self.roots])

    def states(self) -> Iterator[tuple[Node, State]]:
        """Yield each root and a search at its end, as :func:`dplcli.dpl.rule.read_match` asks."""
        objects, program = self.joins.objects, self.program
        row, identity = self.identities
        noted: dict[int, list[Node]] = {}
        for match, node in zip(row.tolist(), identity.tolist(), strict=True):
            noted.setdefault(match, []).append(objects.node(node))
        calls = _call_slots(program)
        kinds = _kinds_of_slots(program)
        starts = zip(self.roots.tolist(), self.subjects.tolist(), strict=True)
        for match, (root, subject) in enumerate(starts):
            node = objects.node(root)
            state = State(node.graph, program.slot_count, 0, objects.value(subject))
            bound = self.columns[match].tolist()
            state.claimed = {objects.node(bound[slot]) for slot in calls if bound[slot] != NONE}
            state.noted = list(noted.get(match, ()))
            for slot, number in enumerate(bound):
                if number != NONE:
                    state.slots[slot] = self._object(kinds.get(slot), slot, number, bound)
            yield node, state

    def _object(self, kind: str | None, slot: int, number: int, bound: Sequence[int]) -> object:
        if kind == "node":
            return self.joins.objects.node(number)
        if kind == "dimension":
            return self.joins.dimensions[number]
        if kind == "attributes":
            steps = [step for step in _calls(self.program) if step.attributes_slot == slot]
            step = next(step for step in steps if bound[step.slot] == number)
            node = self.joins.objects.node(number)
            return Attributes(unnamed_attributes(node, step.pattern.attributes))
        return self.joins.objects.value(number)


def _steps(program: Program) -> Iterator[Step]:
    """Yield the steps of a program, those inside a shared or typed part by themselves."""
    for step in program.steps.values():
        inner = step.inner if isinstance(step, SharedStep) else step
        yield inner
        if isinstance(inner, AndStep) and isinstance(inner.right, TypeStep):
            yield inner.right


def _calls(program: Program) -> list[CallStep]:
    return [step for step in program.steps.values() if isinstance(step, CallStep)]


def _call_slots(program: Program) -> list[int]:
    return [step.slot for step in _calls(program)]


def _kinds_of_slots(program: Program) -> dict[int, str]:
    """Return what the slots hold that do not hold values."""
    kinds = {}
    for step in _steps(program):
        if isinstance(step, CallStep):
            kinds[step.slot] = "node"
            if step.attributes_slot is not None:
                kinds[step.attributes_slot] = "attributes"
        if isinstance(step, TypeStep):
            kinds.update(dict.fromkeys(step.letters.values(), "dimension"))
    return kinds


class Noted:
    """Identity nodes that rows looked through, as lists that share their ends.

    A row has the number of its last entry. An entry is a way from a value to one that it is a copy
    of, and the entry before it.
    """

    def __init__(self, joins: Joins) -> None:
        self.joins = joins
        self.size = 0
        self.entries: list[tuple[Ids, Ids, Ids]] = []

    def add(self, begin: Ids, end: Ids, before: Ids) -> Ids:
        """Add an entry for each of (n,) ways, and return their numbers."""
        self.entries.append((begin, end, before))
        self.size += begin.size
        return np.arange(self.size - begin.size, self.size, dtype=np.int32)

    def nodes(self, last: Ids, graph: Ids) -> tuple[Places, Ids]:
        """Return the nodes that rows (n,) have noted in their graph: row and node, (m,) both."""
        rows, nodes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        if self.entries:
            begin, end, before = map(np.concatenate, zip(*self.entries, strict=True))
            row = np.flatnonzero(last != NONE)
            entry = last[row]
            while row.size:
                here, value = row, begin[entry]
                stop = end[entry]
                while here.size:
                    maker = self.joins.table.values.producer[value]
                    rows.append(here)
                    nodes.append(maker)
                    value = self.joins.copied[value]
                    further = np.flatnonzero(value != stop)
                    here, value, stop = here[further], value[further], stop[further]
                entry = before[entry]
                row, entry = row[entry != NONE], entry[entry != NONE]
        row, node = np.concatenate(rows), np.concatenate(nodes)
        inside = self.joins.table.nodes.graph[node] == graph[row]
        row, node = row[inside], node[inside]
        _, first = distinct(row, node) if row.size else (row, np.zeros(0, np.int64))
        return row[first], node[first].astype(np.int32)


class _TooLargeError(Exception):
    """A frame has more rows than there should be at a time."""


class _TooLongError(Exception):
    """A query takes more steps than it should."""


# Queries.


class Joins:
    """Answers queries over a table, which must not be edited meanwhile.

    Args:
        table: The graph.
        objects: Its rows as objects.

    Attributes:
        operators: Domain and type of each operator, as patterns spell them; behind them one for
            values that no node makes.
        dimensions: What dimension variables are bound to, by number.
    """

    def __init__(self, table: Table, objects: Objects) -> None:
        self.table = table
        self.objects = objects
        self.dimensions: list[object] = []
        self.operators: list[OpKey] = [(_domain(row[0]), _text(row[1])) for row in table.operators]
        self.operators.append(("", ""))
        self._dimension_numbers: dict[object, int] = {}
        self._types: list[TensorType | None] = []
        self._alike_in_type: Ids | None = None
        self._type_numbers: dict[TensorType | None, int] = {}
        self._by_operator: dict[Ops | None, Ids] = {None: table.in_order().astype(np.int32)}
        self._masks: dict[Ops, Flags] = {}
        self._verdicts: dict[tuple[object, ...], NDArray[np.int8]] = {}

    # -- what is known of the graph, for all patterns ----------------------------------------

    def input(self, nodes: Ids, place: int) -> Ids:
        """Return what nodes (n,) read in one place; OMITTED where they have fewer inputs, (n,)."""
        columns = self.table.nodes
        at, count = columns.in_at[nodes], columns.in_count[nodes]
        return nth(self.table.inputs.value, at, count, place, OMITTED)

    def output(self, nodes: Ids, place: int) -> Ids:
        """Return what nodes (n,) make in one place; OMITTED where they have fewer outputs, (n,)."""
        columns = self.table.nodes
        at, count = columns.out_at[nodes], columns.out_count[nodes]
        return nth(self.table.outputs.value, at, count, place, OMITTED)

    def is_of(self, ops: Ops) -> Flags:
        """Tell which operators are among *ops*, (operators + 1,)."""
        if ops not in self._masks:
            self._masks[ops] = np.array([op in ops for op in self.operators], np.bool_)
            self._masks[ops][-1] = False
        return self._masks[ops]

    @cached_property
    def operator(self) -> Ids:
        """The operator of the node that makes each value, Identity nodes not seen, (v,)."""
        return self.made_by[self.original]

    @cached_property
    def made_by(self) -> Ids:
        """The operator of the node that makes each value, (v,)."""
        producer = self.table.values.producer
        made_by = np.full(producer.size, len(self.operators) - 1, np.int32)
        made = np.flatnonzero(producer >= 0)
        made_by[made] = self.table.nodes.operator[producer[made]]
        return made_by

    @cached_property
    def copied(self) -> Ids:
        """What each value is a copy of, by the Identity node that makes it, else itself, (v,)."""
        copied = np.arange(self.table.values.size, dtype=np.int32)
        copies = np.flatnonzero(self.is_of(_IDENTITY)[self.made_by])
        source = self.input(self.table.values.producer[copies], 0)
        copied[copies] = np.where(source == OMITTED, copies, source)
        return copied

    @cached_property
    def original(self) -> Ids:
        """The value behind Identity nodes, (v,)."""
        original: Ids = follow(self.copied)
        return original

    @cached_property
    def index(self) -> Ids:
        """Which output of its node each value is, (v,); 0 for those that no node makes."""
        nodes = self.table.nodes
        index = np.zeros(self.table.values.size, np.int32)
        row, place = unnest(nodes.out_at, nodes.out_count)
        index[self.table.outputs.value[place]] = place - nodes.out_at[row]
        return index

    @cached_property
    def arity(self) -> Ids:
        """How many inputs each node has, without those at the end that are omitted, (n,)."""
        nodes = self.table.nodes
        row, place = unnest(nodes.in_at, nodes.in_count)
        arity = np.zeros(nodes.size, np.int32)
        has = self.table.inputs.value[place] != OMITTED
        arity[row[has]] = place[has] - nodes.in_at[row[has]] + 1  # places ascend: the last stays
        return arity

    @cached_property
    def is_constant(self) -> Flags:
        """Whether each value's data is in the file and nobody can override it, (v,)."""
        values = self.table.values
        stored = (values.tensor >= 0) & (values.producer < 0)
        found = (stored & ~values.given) | self.is_of(_CONSTANT)[self.made_by]
        both = np.flatnonzero(stored & values.given)
        if both.size:  # that depends on the version of the format, hence is equal for all
            found[both] = self.objects.value(int(both[0])).is_constant
        return found

    @cached_property
    def edges(self) -> set[tuple[OpKey, OpKey]]:
        """Which operator reads what another makes, Identity nodes seen and looked through."""
        nodes = self.table.nodes
        live = np.flatnonzero(nodes.live)
        row, value = self.table.inputs_of(live)
        maker = np.concatenate([self.operator[value], self.made_by[value]])
        reader = np.tile(nodes.operator[live[row]], 2)
        _, example = distinct(maker, reader) if row.size else (row, row)
        pairs = zip(maker[example].tolist(), reader[example].tolist(), strict=True)
        return {(self.operators[a], self.operators[b]) for a, b in pairs}

    @cached_property
    def present(self) -> set[OpKey]:
        """The operators that there are."""
        live = self.table.nodes.operator[self.table.nodes.live]
        return {self.operators[number] for number in ascending(live).tolist()}

    # -- queries -----------------------------------------------------------------------------

    def candidates(self, program: Program, graphs: Flags | None = None) -> Ids:
        """Return the nodes at which a pattern might match: graph by graph, producers first.

        Args:
            program: The compiled pattern.
            graphs: Which graphs to look in; all without.
        """
        if any(self._lacks(needed) for needed in program.root.required):
            return np.zeros(0, np.int32)
        rows = self._nodes_of(program.root.heads)
        return rows if graphs is None else rows[graphs[self.table.nodes.graph[rows]]]

    def _nodes_of(self, ops: Ops | None) -> Ids:
        """Return the nodes of some operators, in order."""
        if ops not in self._by_operator:
            rows = self._by_operator[None]
            has = self.is_of(ops or frozenset())[self.table.nodes.operator[rows]]
            self._by_operator[ops] = rows[has]
        return self._by_operator[ops]

    def _lacks(self, needed: Requirement) -> bool:
        if isinstance(needed, frozenset):
            return self.present.isdisjoint(needed)
        makers, readers = needed
        return not any((maker, reader) in self.edges for maker in makers for reader in readers)

    def matches(self, program: Program, roots: Ids | Places | None = None) -> Matches:
        """Return every match at some nodes.

        Args:
            program: The compiled pattern.
            roots: The nodes to look at, each once; those at which it might match without.
        """
        roots = self.candidates(program) if roots is None else roots
        return _Query(self, program, roots.astype(np.int32)).matches()

    # -- what objects are asked for ----------------------------------------------------------

    def types_of(self, values: Ids) -> tuple[Ids, list[TensorType | None]]:
        """Return what is known of the types of values (n,): numbers, and the type of each."""
        numbers, alike = self._type_of, self._alike_in_type
        keys = values if alike is None else alike[values]
        is_new = numbers[keys] == _NOT_ASKED
        new, first = np.unique(keys[is_new], return_index=True)
        for key, value in zip(new.tolist(), values[is_new][first].tolist(), strict=True):
            known = None if value == OMITTED else self.objects.value(value).known_type()
            if known not in self._type_numbers:
                self._type_numbers[known] = len(self._types)
                self._types.append(known)
            numbers[key] = self._type_numbers[known]
        return numbers[keys], self._types

    def know_types(self, alike: Ids) -> None:
        """Let values of equal numbers, (v,), have equal types, so that one of each is asked.

        That of the omitted value is -1.
        """
        self._alike_in_type = alike

    @cached_property
    def _type_of(self) -> Ids:
        """Which type each value has, or all that are known to be alike; :data:`_NOT_ASKED`."""
        alike = self._alike_in_type
        # the last is that of the omitted value
        size = self.table.values.size if alike is None else int(alike.max(initial=-1)) + 2
        return np.full(size, _NOT_ASKED, np.int32)

    def number_of(self, dimension: object) -> int:
        """Return the number of a dimension, which is in :attr:`dimensions`."""
        number = self._dimension_numbers.setdefault(dimension, len(self.dimensions))
        if number == len(self.dimensions):
            self.dimensions.append(dimension)
        return number

    def accepts(self, step: ConstantStep | InputStep, values: Ids) -> Flags:
        """Tell which of *values* (n,), seen behind Identity nodes, a leaf accepts."""
        if isinstance(step, InputStep):
            columns = self.table.values
            stored = (columns.tensor[values] >= 0) & (columns.producer[values] < 0)
            found = columns.given[values] & ~stored
            key: tuple[object, ...] = ("input", step.pattern.source)
            asks = bool(step.pattern.source)
        else:
            found = self.is_constant[values]
            key = ("constant", step.pattern.value, repr(step.pattern.value), step.pattern.exact)
            asks = step.pattern.value is not None or step.pattern.exact is not None
        if asks:
            found = found & self._ask_each(key, step, values, found)
        return found

    def _ask_each(
        self, key: tuple[object, ...], step: ConstantStep | InputStep, values: Ids, wanted: Flags
    ) -> Flags:
        """Ask a leaf, once for each of the values (n,) that are wanted."""
        if key not in self._verdicts:
            self._verdicts[key] = np.full(self.table.values.size, _NOT_ASKED, np.int8)
        known = self._verdicts[key]
        new = ascending(values[wanted & (known[values] == _NOT_ASKED)])
        if isinstance(step, ConstantStep):
            new = self._of_right_size(step, new, known)
        for value in new.tolist():
            known[value] = step.accepts(self.objects.value(value))
        accepted: Flags = known[values] == 1
        return accepted

    def _of_right_size(self, step: ConstantStep, values: Ids, known: NDArray[np.int8]) -> Ids:
        """Return the values (n,) that have as many elements as a leaf wants; deny the others.

        That is asked once for each type of stored tensors.
        """
        tensor = self.table.values.tensor[values]
        stored, kind = values[tensor >= 0], self.table.tensors.type[tensor[tensor >= 0]]
        exact = step.pattern.exact
        size = 1 if exact is None else int(np.prod(exact.shape, dtype=np.int64))
        for number in ascending(kind[kind >= 0]).tolist():
            here = stored[kind == number]
            constant = self.objects.value(int(here[0])).constant
            if constant is not None and constant.size != size:
                known[here] = 0
        left: Ids = values[known[values] == _NOT_ASKED]
        return left

    @cached_property
    def _kinds(self) -> tuple[Places, Places]:
        """Equal numbers for nodes of one operator, set of attributes and graph; an example each."""
        nodes = self.table.nodes
        return distinct(nodes.operator, nodes.attributes, nodes.graph)

    def of_each_kind(self, nodes: Ids, ask: Callable[[Node], int]) -> Places:
        """Ask one node for all that are of its kind, and return what nodes (n,) answer."""
        number, example = self._kinds
        kinds = number[nodes]
        answers = np.zeros(example.size, np.int64)
        for kind in np.flatnonzero(np.bincount(kinds)).tolist():
            answers[kind] = ask(self.objects.node(int(example[kind])))
        found: Places = answers[kinds]
        return found

    def implied(self, nodes: Ids) -> Flags:
        """Tell which nodes (n,) have an attribute that the matcher reads as one input more."""
        found = np.zeros(nodes.size, np.bool_)
        here = np.flatnonzero(self.is_of(_MOVED)[self.table.nodes.operator[nodes]])
        if here.size:
            last = self.of_each_kind(nodes[here], _last_moved)
            found[here] = self.table.nodes.in_count[nodes[here]] <= last
        return found


def _last_moved(node: Node) -> int:
    """Return the last input that an attribute of *node* stands for; -1 for none."""
    moved = MOVED[node.op_type]
    return max((item.slot for item in moved if item.attribute in node.attributes), default=NONE)


_NOT_ASKED = -2
_IDENTITY = frozenset({("", "Identity")})
_CONSTANT = frozenset({("", "Constant")})
_MOVED = frozenset(("", op_type) for op_type in MOVED)
_COMMUTATIVE = frozenset(("", op_type) for op_type in COMMUTATIVE)


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _domain(name: bytes) -> str:
    return "" if name == b"ai.onnx" else _text(name)


class _Query:
    """One pattern asked of some nodes.

    Attributes:
        is_left: Which roots are left to the search, (roots,).
    """

    def __init__(self, joins: Joins, program: Program, roots: Ids) -> None:
        self.joins = joins
        self.table = joins.table
        self.program = program
        self.roots = roots
        self.graph = joins.table.nodes.graph[roots]
        self.noted = Noted(joins)
        self.is_left = np.zeros(roots.size, np.bool_)
        self.visits = _VISITS + _VISITS_OF_A_STEP * len(program.steps)
        self.work = _WORK + _WORK_OF_A_ROOT * roots.size
        self._rivals: dict[Ops | None, Places] = {}

    def matches(self) -> Matches:
        """Answer it."""
        found = self._answer(np.arange(self.roots.size))
        columns = np.concatenate([frame.columns for frame, _ in found])
        subjects = np.concatenate([subject for _, subject in found])
        number = columns[:, _ROOT]
        self.is_left[number[columns[:, _UNSURE] != 0]] = True
        # a root that is a leaf, or an Identity looked through, is no match
        root = self.roots[number]
        is_claimed = (columns[:, _call_slots(self.program)] == root[:, None]).any(axis=1)
        keep = is_claimed & ~self.is_left[number]
        return Matches(
            self.joins,
            self.program,
            root[keep],
            subjects[keep],
            columns[keep, : self.program.slot_count],
            columns[keep, _NOTED],
            self.noted,
            self.roots[self.is_left],
        )

    def _answer(self, rows: Places) -> list[tuple[MatchFrame, Ids]]:
        """Answer it for some of the roots, in parts if need be: frames, with their subjects."""
        at, subject = self.table.outputs_of(self.roots[rows])
        at, subject = at[subject != OMITTED], subject[subject != OMITTED]
        try:
            self._has_room(rows[at])
            columns = np.full((subject.size, self.program.slot_count + 3), NONE, np.int32)
            columns[:, _ROOT] = rows[at]
            columns[:, _UNSURE] = 0
            frame = self._run(self.program.root, MatchFrame(rows[at], columns), subject)
        except _TooLargeError:
            if rows.size > 1:
                half = rows.size // 2
                return self._answer(rows[:half]) + self._answer(rows[half:])
        except _TooLongError:
            pass
        else:
            return [(frame, subject[frame.origin])]
        self.is_left[rows] = True
        nothing = np.zeros((0, self.program.slot_count + 3), np.int32)
        return [(MatchFrame(rows[:0], nothing), subject[:0])]

    def _run(self, step: Step, frame: MatchFrame, subject: Ids) -> MatchFrame:
        """Extend a frame by a step and all that it is made of, however deep that is."""
        pending = [(self._extended(step, frame, subject), frame.size)]
        found: MatchFrame | None = None
        while True:
            try:
                asked = pending[-1][0].send(found)  # type: ignore[arg-type]  # None starts it
            except StopIteration as finished:
                before = pending.pop()[1]
                found = self._bounded(finished.value, before)
                if not pending:
                    return found
                continue
            self.visits -= 1
            self.work -= asked[1].columns.size
            if self.visits < 0 or self.work < 0:
                raise _TooLongError
            if asked[1].size:
                pending.append((self._extended(*asked), asked[1].size))
                found = None
            else:
                found = asked[1].take(np.zeros(0, np.int64))

    def _bounded(self, frame: MatchFrame, before: int) -> MatchFrame:
        """Drop the roots that have too many rows, if there are more rows than *before*."""
        if frame.size <= max(before, ROWS_OF_A_ROOT):
            return frame
        return frame.keep(self._has_room(frame.column(_ROOT))).behind(frame)

    def _has_room(self, roots: Ids) -> Flags:
        """Tell which of the rows to make (n,), given by their roots, are not too many for one.

        The other roots are left to the search.

        Raises:
            _TooLargeError: They are too many in all.
        """
        many = np.bincount(roots, minlength=self.roots.size) > ROWS_OF_A_ROOT
        self.is_left |= many
        keep = ~many[roots]
        if np.count_nonzero(keep) * (self.program.slot_count + 3) > NUMBERS_OF_A_FRAME:
            raise _TooLargeError
        return keep

    # -- what each step does to a frame; subjects are values, (rows,) -------------------------

    def _extended(self, step: Step, frame: MatchFrame, subject: Ids) -> Extension:  # noqa: C901, PLR0911  # a case per kind
        match step:
            case CallStep():
                return (yield from self._called(step, 0, frame, subject))
            case OutputStep():
                return (yield from self._called(step.call, step.index, frame, subject))
            case LeafStep():
                return self._leaf(step, frame, subject)
            case SharedStep():
                return (yield from self._shared(step, frame, subject))
            case OrStep():
                preferred = yield from self._where_plausible(step.left, frame, subject)
                other = yield from self._where_plausible(step.right, frame, subject)
                return MatchFrame.merged(preferred, other)
            case AndStep():
                way = yield step.left, frame, subject
                found = yield step.right, way, subject[way.origin]
                return found.behind(way)
            case TypeStep():
                return self._typed(step, frame, subject)
            case UnnamedStep():
                bound = frame.column(step.slot)
                seen = np.where(bound == NONE, self.joins.original[subject], bound)
                return frame.bind(step.slot, seen).keep(subject != OMITTED)
            case AnyStep():
                return frame.keep(subject != OMITTED)
            case AbsentStep():
                return frame.keep(subject == OMITTED)
            case _:
                return (yield from self._unsure(step, frame, subject))

    def _where_plausible(self, step: Step, frame: MatchFrame, subject: Ids) -> Extension:
        """Extend the rows whose values have an operator that fits."""
        if isinstance(step, CallStep):  # it looks at operators first by itself
            return (yield step, frame, subject)
        way = frame.keep(self._is_plausible(step, subject))
        found = yield step, way, subject[way.origin]
        return found.behind(way)

    def _unsure(self, step: Step, frame: MatchFrame, subject: Ids) -> Extension:
        """Go on with what stands in a step's place, and leave the rest of it to the search."""
        inner = step.outputs[0] if isinstance(step, OutputsStep) else step.stands_for
        if inner is None:
            found = frame.keep(self._is_plausible(step, subject))
        else:
            found = yield inner, frame, subject
        return found.bind(_UNSURE, 1)

    def _is_plausible(self, step: Step, subject: Ids) -> Flags:
        """Tell where a step might match, by operators: of any shape."""
        if step.heads is None:
            return np.ones(subject.shape, np.bool_)
        fits = self.joins.is_of(step.heads)
        found = fits[self.joins.operator[subject]]
        if self.joins.is_of(_IDENTITY)[fits].any():
            found = found | fits[self.joins.made_by[subject]]
        return found

    def _leaf(self, step: LeafStep, frame: MatchFrame, subject: Ids) -> MatchFrame:
        """Bind the value, or compare it with the one bound before."""
        value = self.joins.original[subject]
        bound = frame.column(step.slot)
        keep = (subject != OMITTED) & ((bound == NONE) | (bound == value))
        if isinstance(step, (ConstantStep, InputStep)):
            keep[keep] = self.joins.accepts(step, value[keep])
        return frame.take_bound(np.flatnonzero(keep), step.slot, value[keep])

    def _shared(self, step: SharedStep, frame: MatchFrame, subject: Ids) -> Extension:
        """Match the part where it was not met yet; elsewhere it is the same value again."""
        value = self.joins.original[subject]
        bound = frame.column(step.slot)
        is_there = subject != OMITTED
        new = np.flatnonzero(
            ~is_there | ((bound == NONE) & self._is_plausible(step.inner, subject))
        )
        way = frame.take_bound(new, step.slot, np.where(is_there, value, bound)[new])
        found = yield step.inner, way, subject[new]
        again = frame.keep(is_there & (bound == value))
        return MatchFrame.merged(again, found.behind(way))

    def _typed(self, step: TypeStep, frame: MatchFrame, subject: Ids) -> MatchFrame:
        """Keep the rows whose types are known to fit; bind dimension variables."""
        numbers, fits, sizes = self._types_that_fit(step, subject)
        found = frame.keep(fits[numbers])
        for place, wanted in enumerate(step.pattern.shape or ()):
            if isinstance(wanted, str):
                slot = step.letters[wanted]
                size = sizes[numbers[found.origin], place]
                bound = found.column(slot)
                keep = (bound == NONE) | (bound == size)
                found = found.keep(keep).behind(found).bind(slot, size[keep])
        return found

    def _types_that_fit(self, step: TypeStep, subject: Ids) -> tuple[Ids, Flags, Ids]:
        """Return the number of each value's type, (n,), and what a step makes of each type.

        That is whether it fits, dimension variables aside, (types,); and the numbers of its
        dimensions where the step states a shape, (types, rank).
        """
        numbers, types = self.joins.types_of(subject)
        dims = step.pattern.shape or ()
        fits = np.zeros(len(types), np.bool_)
        sizes = np.full((len(types), len(dims)), NONE, np.int32)
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            known = types[number]
            if known is None or not _type_fits(step.pattern, known):
                continue
            fits[number] = True
            found = (known.shape or ()) if dims else ()
            sizes[number] = [self.joins.number_of(dim) for dim in found]
        return numbers, fits, sizes

    # -- node patterns -----------------------------------------------------------------------

    def _called(self, step: CallStep, index: int, frame: MatchFrame, subject: Ids) -> Extension:
        """Match output *index* of a node: of the one behind Identity nodes, unless one is meant."""
        if not step.sees_identity:
            value = self.joins.original[subject]
            return (yield from self._made(step, index, self._looked(frame, subject, value), value))
        if step.ops == _IDENTITY:
            return (yield from self._made(step, index, frame, subject))
        # an Identity may be meant, or what it copies; the nearest one is preferred
        rows, values = [np.arange(frame.size)], [subject]
        while True:
            value = self.joins.copied[values[-1]]
            further = np.flatnonzero(value != values[-1])
            if not further.size:
                break
            rows.append(rows[-1][further])
            values.append(value[further])
        row, value = np.concatenate(rows), np.concatenate(values)
        order = np.argsort(row, kind="stable")
        way, value = frame.take(row[order]), value[order]
        way = self._looked(way, subject[way.origin], value)
        found = yield from self._made(step, index, way, value)
        return found.behind(way)

    def _looked(self, frame: MatchFrame, subject: Ids, value: Ids) -> MatchFrame:
        """Note the Identity nodes between two values of each row."""
        through = np.flatnonzero(subject != value)
        if not through.size:
            return frame
        noted = frame.column(_NOTED).copy()
        noted[through] = self.noted.add(subject[through], value[through], noted[through])
        return frame.bind(_NOTED, noted)

    def _made(self, step: CallStep, index: int, frame: MatchFrame, value: Ids) -> Extension:
        """Match the node that makes *value*, (n,), as its output *index*."""
        joins = self.joins
        if step.ops is None or step.functions:
            rows = np.flatnonzero(value != OMITTED)
        else:
            rows = np.flatnonzero(joins.is_of(step.ops)[joins.made_by[value]])
        maker = self.table.values.producer[value[rows]]
        graph = self.graph[frame.column(_ROOT)[rows]]
        here = (maker >= 0) & (joins.index[value[rows]] == index)
        here &= self.table.nodes.graph[maker] == graph
        rows, maker = rows[here], maker[here]
        bound = frame.column(step.slot)[rows]
        again = rows[bound == maker]
        rows, maker = rows[bound == NONE], maker[bound == NONE]
        rivals = self._rivals_of(step)
        if rivals.size:
            self.work -= rows.size * rivals.size
            bound = frame.columns[np.ix_(rows, rivals)]
            is_free = (bound != maker[:, None]).all(axis=1)
            rows, maker = rows[is_free], maker[is_free]
        found = yield from self._fitting(step, frame, rows, maker)
        return MatchFrame.merged(frame.take(again), found) if again.size else found

    def _rivals_of(self, step: CallStep) -> Places:
        """Return the slots of other node patterns that might take the same node."""
        if step.ops not in self._rivals:
            slots = [
                other.slot
                for other in _calls(self.program)
                if step.ops is None or other.ops is None or not step.ops.isdisjoint(other.ops)
            ]
            self._rivals[step.ops] = np.array(slots, np.int64)
        slots_of_ops = self._rivals[step.ops]
        others: Places = slots_of_ops[slots_of_ops != step.slot]
        return others

    def _fitting(self, step: CallStep, frame: MatchFrame, rows: Places, maker: Ids) -> Extension:
        """Take nodes (m,) into some rows (m,) of a frame if attributes and inputs fit."""
        if step.functions or step.takers or not rows.size:
            return frame.take_bound(rows, step.slot, maker).bind(_UNSURE, 1)
        joins, operator = self.joins, self.table.nodes.operator
        for peer in step.peers:
            bound = frame.column(peer)[rows]
            is_like = (bound == NONE) | (operator[bound] == operator[maker])
            rows, maker = rows[is_like], maker[is_like]
        fits = np.ones(maker.size, np.int64)
        if step.attributes:
            fits = joins.of_each_kind(maker, partial(_fits_by_kind, step.attributes))
            rows, maker, fits = rows[fits != 0], maker[fits != 0], fits[fits != 0]
        is_open = fits == _NOT_ASKED
        commutes = joins.is_of(_COMMUTATIVE)[operator[maker]]
        commutes = commutes | step.pattern.is_unordered
        implied = np.zeros(maker.size, np.bool_)
        if step.ops is None or not step.ops.isdisjoint(_MOVED):
            implied = joins.implied(maker)
        inputs, keep = self._inputs(step, maker)
        keep = (keep & self._may_fit(step, inputs, commutes)) | implied
        keep[keep] = self._leaves_fit(step, frame, rows[keep], inputs[keep], commutes[keep])
        rows, maker, is_open = rows[keep], maker[keep], is_open[keep]
        way = frame.take_bound(rows, step.slot, maker)
        if step.attributes_slot is not None:
            bound = way.column(step.attributes_slot)
            way = way.bind(_UNSURE, way.column(_UNSURE) | (bound != NONE))
            way = way.bind(step.attributes_slot, np.where(bound == NONE, maker, bound))
        if step.bodies or step.alike:
            way = way.bind(_UNSURE, 1)
        found = yield from self._argued(step, way, inputs[keep], commutes[keep], implied[keep])
        if is_open.any():
            found = self._asked_of_each(step, found, maker[found.origin], is_open[found.origin])
        return found.behind(way)

    def _asked_of_each(
        self, step: CallStep, frame: MatchFrame, nodes: Ids, is_open: Flags
    ) -> MatchFrame:
        """Keep the rows (n,) whose node has the attributes of a step, if that is still open."""
        rows, which = np.unique(nodes[is_open], return_inverse=True)
        asked = map(self.joins.objects.node, rows.tolist())
        has = [all(attribute_equals(node, *each) for each in step.attributes) for node in asked]
        keep = ~is_open
        keep[is_open] = np.array(has, np.bool_)[which]
        return frame.keep(keep).behind(frame)

    def _inputs(self, step: CallStep, nodes: Ids) -> tuple[Ids, Flags]:
        """Return what nodes (n,) read, as a step sees it, (n, w), and whether the arity fits, (n,).

        Inputs that stand for attributes are left out; those that are not there are OMITTED. All are
        listed only if the step takes more than it has arguments for.
        """
        joins = self.joins
        wanted = len(step.args)
        most = int(joins.arity[nodes].max(initial=0))
        width = max(wanted, most) if step.pattern.rest else wanted
        if nodes.size * width > NUMBERS_OF_A_FRAME:
            raise _TooLargeError
        inputs = np.full((nodes.size, width), OMITTED, np.int32)
        fits = np.ones(nodes.size, np.bool_)
        for named, rows in self._named_inputs(step, nodes):
            mine = nodes[rows]
            kept = [place for place in range(most) if place not in named]
            for column, place in enumerate(kept[:width]):
                inputs[rows, column] = joins.input(mine, place)
            if not named and not step.pattern.rest:
                fits[rows] = joins.arity[mine] <= width
                continue
            for place in kept[width:]:
                fits[rows] &= joins.input(mine, place) == OMITTED
        return inputs, fits

    def _named_inputs(
        self, step: CallStep, nodes: Ids
    ) -> Iterator[tuple[frozenset[int], Places | slice]]:
        """Yield inputs that a step names like attributes, and the rows of nodes (n,) with those."""
        known: list[frozenset[int]] = [frozenset()]

        def number(node: Node) -> int:
            slots = (slot_of(node, name) for name, _ in step.attributes)
            places = frozenset(slot for slot in slots if slot is not None)
            if places not in known:
                known.append(places)
            return known.index(places)

        if not step.attributes:
            yield known[0], slice(None)
            return
        numbers = self.joins.of_each_kind(nodes, number)
        for which, places in enumerate(known):
            yield places, np.flatnonzero(numbers == which)

    def _may_fit(self, step: CallStep, inputs: Ids, commutes: Flags) -> Flags:
        """Tell whether inputs (n, w) might be the arguments of a step, each looked at by itself."""
        fits = np.ones(len(inputs), np.bool_)
        some = commutes.any() and inputs.shape[1] > 1
        for place, arg in enumerate(step.args):
            if type(arg) is AnyStep:
                here = inputs[:, place] != OMITTED
                fits &= here | commutes if some else here
            elif arg.heads is not None:
                here = self._is_plausible(arg, inputs[:, place])
                if some:
                    here |= commutes & self._is_plausible(arg, inputs).any(axis=1)
                fits &= here
        return fits

    def _leaves_fit(
        self, step: CallStep, frame: MatchFrame, rows: Places, inputs: Ids, commutes: Flags
    ) -> Flags:
        """Tell whether leaves are of the types asked for, at inputs (m, w) of rows (m,).

        Rows that go on for nothing cost most. Where a shared leaf is bound already, it may stand
        for a copy of the value whose type is not known, so nothing is asked.
        """
        fits = np.ones(rows.size, np.bool_)
        for place, arg in enumerate(step.args):
            inner = arg.inner if isinstance(arg, SharedStep) else arg
            if isinstance(inner, AndStep) and isinstance(inner.left, LeafStep):
                inner = inner.right
            if not isinstance(inner, TypeStep):
                continue
            here = np.flatnonzero(fits & ~commutes)
            if isinstance(arg, SharedStep):
                here = here[frame.column(arg.slot)[rows[here]] == NONE]
            numbers, has, _ = self._types_that_fit(inner, inputs[here, place])
            fits[here] = has[numbers]
        return fits

    def _argued(
        self, step: CallStep, frame: MatchFrame, inputs: Ids, commutes: Flags, implied: Flags
    ) -> Extension:
        """Match the arguments of a step at inputs (n, w), where those are in the table."""
        if not implied.any():
            return (yield from self._assigned(step, frame, inputs, commutes))
        seen = frame.keep(~implied)
        found = yield from self._assigned(step, seen, inputs[~implied], commutes[~implied])
        return MatchFrame.merged(found.behind(seen), frame.keep(implied).bind(_UNSURE, 1))

    def _assigned(
        self, step: CallStep, frame: MatchFrame, inputs: Ids, commutes: Flags
    ) -> Extension:
        """Match arguments at inputs (n, w), in every order where they commute, (n,).

        Each argument takes its own place if it can; the other places come behind, in order. What
        is omitted stays in its place.
        """
        count, width = inputs.shape
        way = MatchFrame(np.arange(count), frame.columns)
        used = np.zeros((count, width), np.bool_)
        is_free = bool(commutes.any()) and width > 1
        spare = sum(type(arg) is AnyStep for arg in step.args)
        for place, arg in enumerate(step.args):
            row = way.origin
            if type(arg) is AnyStep:
                continue
            if not is_free:
                found = yield arg, way, inputs[row, place]
                way = found.behind(way)
                continue
            order = np.array([place, *(other for other in range(width) if other != place)])
            offered = inputs[row][:, order]
            may = (offered != OMITTED) & commutes[row][:, None]
            may[:, 0] = True
            may &= ~used[:, order] & self._is_plausible(arg, offered)
            at, choice = np.nonzero(may)
            if at.size > max(row.size, ROWS_OF_A_ROOT):
                keep = self._has_room(way.column(_ROOT)[at])
                at, choice = at[keep], choice[keep]
            used = used[at]
            used[np.arange(at.size), order[choice]] = True
            tried = way.take(at)
            found = yield arg, tried, offered[at, choice]
            used = used[found.origin]
            way = found.behind(tried).behind(way)
        if is_free and spare:
            unused = ((inputs[way.origin] != OMITTED) & ~used).sum(axis=1)
            way = way.keep((unused >= spare) | ~commutes[way.origin]).behind(way)
        return way


def _fits_by_kind(attributes: Sequence[tuple[str, AttributeValue | None]], node: Node) -> int:
    """Tell whether all nodes like *node* have attributes: 1 or 0; _NOT_ASKED if that differs."""
    answer = 1
    for name, expected in attributes:
        if fixed_attribute(node, name) is None:
            answer = _NOT_ASKED
        elif not attribute_equals(node, name, expected):
            return 0
    return answer


def _type_fits(pattern: TypedPattern, known: TensorType) -> bool:
    """Tell whether a type is as a pattern wants, whatever dimension variables stand for."""
    if pattern.dtypes is not None and known.dtype not in pattern.dtypes:
        return False
    if pattern.ranks is None and pattern.shape is None:
        return True
    if known.shape is None or (pattern.ranks is not None and len(known.shape) not in pattern.ranks):
        return False
    if pattern.shape is None:
        return True
    return len(known.shape) == len(pattern.shape) and all(
        wanted is None or (dim is not None and (isinstance(wanted, str) or dim == wanted))
        for wanted, dim in zip(pattern.shape, known.shape, strict=True)
    )
