"""``where``: what must hold for a match to be taken.

A condition that needs an unknown fact (a shape nobody knows, say) is a no, with that as reason.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dplcli.dpl.expressions import UNANSWERABLE, Expression, names_in
from dplcli.dpl.facts import UnknownFactError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Value


class Condition(Expression):
    """One expression of a ``where`` list.

    Args:
        text: The expression.

    Raises:
        PatternSyntaxError: It is not one expression.
    """

    def __init__(self, text: str) -> None:
        """Parse *text*."""
        super().__init__(text)
        self._shorter: dict[frozenset[str], ast.expr | None] = {}

    def reason_against(self, bindings: Mapping[str, Value]) -> str:
        """Return why the condition does not hold for *bindings*, or "" if it does.

        A name whose part of the pattern took no part in the match (the other side of an
        alternative) is no obstacle: the operands of ``and`` and ``or`` that use it are left out,
        and a condition of which nothing is left holds.
        """
        facts = self._facts(bindings)
        is_whole = len(facts) == len(self._used)
        tree = self._tree if is_whole else self._left_of(frozenset(self._used - facts.keys()))
        if tree is None:
            return ""
        try:
            holds = bool(self._evaluate(tree, facts))
        except UnknownFactError as error:
            return f"{self.text!r} is not known to hold: {error}"
        except UNANSWERABLE as error:
            return f"{self.text!r} cannot be evaluated: {' '.join(str(error).split())}"
        return "" if holds else f"{self.text!r} does not hold"

    def _left_of(self, absent: frozenset[str]) -> ast.expr | None:
        """Return what is left of the expression without *absent* names."""
        if absent not in self._shorter:
            self._shorter[absent] = _without(self._tree, absent)
        return self._shorter[absent]


def _without(tree: ast.expr, absent: AbstractSet[str]) -> ast.expr | None:
    """Leave out the operands of ``and`` and ``or`` that use *absent* names; None if all do."""
    if not any(node.id in absent for node in names_in(tree)):
        return tree
    if not isinstance(tree, ast.BoolOp):
        return None
    kept = [left for value in tree.values if (left := _without(value, absent)) is not None]
    return ast.BoolOp(op=tree.op, values=kept) if kept else None
