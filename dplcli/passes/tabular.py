"""What can be said of matches on the table: of all that are alike at once, as few as there are.

:mod:`dplcli.passes.outlining` and :mod:`dplcli.passes.replacing` take matches so. What they decide
is what the code for objects decides, :mod:`dplcli.passes.select`; where that is more than can be
asked of many at once, they leave the whole model to it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dplcli.dpl.joins import NONE, Joins, Objects
from dplcli.ir.relations import distinct_lists
from dplcli.ir.table import OMITTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dplcli.dpl.conditions import Condition
    from dplcli.dpl.joins import Matches
    from dplcli.ir import Model
    from dplcli.ir.relations import Flags, Ids, Places
    from dplcli.ir.table import Table


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
                answers[number] = not condition.reason_against(bindings)
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
