"""What a rule asks of a graph, read off its conditions, so that graphs drawn for it fit more often.

A wish is no condition: who draws may do otherwise, and now and then does.
"""

from __future__ import annotations

import ast
import operator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dplcli.dpl.pattern import CallPattern
from dplcli.dpl.text import all_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from dplcli.dpl.rule import Rule

_MOST_RANK = 5
_LARGEST_NUMBER = 4096
_HOLDS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.In: lambda item, items: item in items,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_TURNED = {ast.Eq: ast.Eq, ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_NO_WISH = ValueError, TypeError, OverflowError
"""A side states nothing, or nothing that can be."""


@dataclass
class Wishes:
    """What a graph is to be, by the names that conditions mention it of.

    Attributes:
        ranks: Ranks that a value shall have.
        dtypes: Element types that a value shall have.
        sizes: A size that an axis of a value shall have.
        close: A number that a constant shall be.
        words: Texts that an attribute shall be.
        turned: Results of a Transpose that shall swap the last two axes.
    """

    ranks: dict[str, list[int]] = field(default_factory=dict)
    dtypes: dict[str, list[str]] = field(default_factory=dict)
    sizes: dict[str, dict[int, int]] = field(default_factory=dict)
    close: dict[str, float] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    turned: set[str] = field(default_factory=set)

    def add(self, condition: ast.expr, random: np.random.Generator) -> None:
        """Read what a condition compares with something stated; of an ``or``, one operand."""
        match condition:
            case ast.BoolOp(ast.And(), operands):
                for operand in operands:
                    self.add(operand, random)
            case ast.BoolOp(ast.Or(), operands):
                self.add(operands[int(random.integers(len(operands)))], random)
            case ast.Compare(left, relations, others):
                sides = [left, *others]
                for one, relation, other in zip(sides, relations, others, strict=False):
                    self._relate(one, type(relation), other)
            case ast.Call(ast.Name("is_close"), [ast.Name() as constant, number, *_]):
                self._relate(constant, ast.Eq, number)
            case ast.Call(ast.Name("per_tensor"), [ast.Name(name)]):
                self.ranks[name] = [0]
            case ast.Call(ast.Name("transposes_last_two"), [ast.Name(name)]):
                self.turned.add(name)
            case _:
                pass

    def _relate(self, left: ast.expr, relation: type[ast.cmpop], right: ast.expr) -> None:
        """Note what one side is to be, if the other is stated."""
        with suppress(*_NO_WISH):
            if relation in _HOLDS:
                self._wish(left, relation, ast.literal_eval(right))
        with suppress(*_NO_WISH):
            if relation in _TURNED:
                self._wish(right, _TURNED[relation], ast.literal_eval(left))

    def _wish(self, asked: ast.expr, relation: type[ast.cmpop], stated: object) -> None:
        number = stated if isinstance(stated, (int, float)) and relation is ast.Eq else None
        items = stated if isinstance(stated, (list, tuple)) else [stated]
        texts = [item for item in items if isinstance(item, str)]
        match asked:
            case ast.Attribute(ast.Name(name), "rank"):
                ranks = [r for r in range(_MOST_RANK + 1) if _HOLDS[relation](r, stated)]
                both = [rank for rank in self.ranks.get(name, ranks) if rank in ranks]
                self.ranks[name] = both or ranks
            case ast.Attribute(ast.Name(name), "dtype") if texts:
                self.dtypes[name] = texts
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), axis) if number is not None:
                self.sizes.setdefault(name, {})[ast.literal_eval(axis)] = int(number)
            case ast.Call(ast.Name("len"), [held]) if number is not None:
                if name := _holder(held):
                    self.sizes.setdefault(name, {})[0] = int(number)
            case ast.Subscript(ast.Attribute(ast.Name(name), "value")) if number is not None:
                self.close[name] = float(number)
            case _ if name := _holder(asked):
                if texts:
                    self.words[name] = texts
                elif number is not None:
                    self.close[name] = float(number)
            case _:
                pass


def _holder(held: ast.expr) -> str:
    """Return the name whose numbers or text an expression stands for; "" if it is none."""
    match held:
        case (
            ast.Name(name)
            | ast.Attribute(ast.Name(name), "value")
            | ast.Attribute(ast.Attribute(ast.Name(name), "attrs"))
        ):
            return name
        case _:
            return ""


def wishes_of(rule: Rule, random: np.random.Generator) -> Wishes:
    """Read off the conditions of *rule* what a graph is to be, for it to apply."""
    wishes = Wishes()
    for condition in rule.where:
        wishes.add(condition.tree, random)
    return wishes


def stated_numbers(rule: Rule) -> list[float]:
    """Return the numbers that stand in the conditions and attributes of a rule, and 0 and 1.

    They are good sizes, attributes and elements of constants.
    """
    numbers = [1.0, 0.0]
    for node in (node for condition in rule.where for node in condition.nodes):
        match node:
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                numbers.append(-float(number))
            case ast.Constant(int() | float() as number):
                numbers.append(float(number))
            case _:
                pass
    for part in all_parts(rule.pattern):
        for _, value in part.attributes if isinstance(part, CallPattern) else ():
            items = value if isinstance(value, tuple) else (value,)
            numbers += [float(item) for item in items if isinstance(item, (int, float))]
    return [number for number in dict.fromkeys(numbers) if abs(number) < _LARGEST_NUMBER]
