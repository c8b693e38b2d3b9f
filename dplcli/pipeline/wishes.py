"""What a rule asks of a graph, read off its conditions, so that graphs drawn for it fit more often.

Conditions are solved for single facets: the rank, a size, the element type, or numbers of a
value, or an attribute. Each has a range of what it may be, and some are to equal others. A wish is
no condition: who draws may do otherwise, and now and then does.
"""

from __future__ import annotations

import ast
import math
import operator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from dplcli.language.pattern import CallPattern, all_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

    from dplcli.language.rule import Rule

_MOST_RANK = 6
_LARGEST_NUMBER = 4096
_TURNED = {ast.Eq: ast.Eq, ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}


@dataclass(frozen=True)
class Wish:
    """What a number may be.

    Attributes:
        low: The least.
        high: The largest.
        is_open: Whether neither of these is meant, but what lies between.
        items: The numbers that it may be, if they are few; None for all between.
    """

    low: float = -math.inf
    high: float = math.inf
    is_open: bool = False
    items: tuple[float, ...] | None = None

    def admits(self, number: float) -> bool:
        """Tell whether a number is one of them."""
        if self.items is not None and number not in self.items:
            return False
        inside = self.low < number < self.high
        return inside or (not self.is_open and self.low <= number <= self.high)

    def within(self, other: Wish) -> Wish:
        """Return what both allow; *other*, where that is nothing."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        both = replace(self, low=low, high=high, is_open=self.is_open or other.is_open)
        items = self.items if other.items is None else other.items
        if items is not None:
            kept = tuple(number for number in items if both.admits(number) and other.admits(number))
            return replace(both, items=kept) if kept else other
        return both if low <= high else other

    def draw(self, random: np.random.Generator, *, is_whole: bool = False) -> float:
        """Draw one of them: near an end, or between."""
        if self.items is not None:
            return self.items[int(random.integers(len(self.items)))]
        low, high = self.low, self.high
        if is_whole:
            past = int(self.is_open)
            low = math.floor(low + past) if low > -math.inf else low
            high = math.ceil(high - past) if high < math.inf else high
        width = 8.0 if is_whole else max(1.0, abs(low if high == math.inf else high))
        low = high - width if low == -math.inf else low
        high = low + width if high == math.inf else high
        low, high = (-4.0, 4.0) if math.isnan(low) or math.isnan(high) else (low, high)
        if is_whole:
            return float(random.integers(int(low), max(int(high), int(low)) + 1))
        share = float(random.choice([0.5, 0.01, 0.99, random.random()]))
        return low + (high - low) * share


_Kind: TypeAlias = Literal["rank", "dtype", "shape", "size", "length", "number", "element"]
_ITEMS: Mapping[_Kind, _Kind] = {"shape": "size", "number": "element"}
"""What one item of a facet is, of those that have some."""


class Facet(NamedTuple):
    """Something that a condition speaks of.

    Attributes:
        kind: What it is of a value or attribute. A *number* is each of its elements.
        name: The name that the pattern binds.
        at: Which size or element, from either end.
        past: How much more than that is meant.
    """

    kind: _Kind
    name: str
    at: int = 0
    past: float = 0.0


@dataclass
class Wishes:
    """What a graph is to be, by the names that conditions mention it of.

    Attributes:
        ranges: What each facet may be.
        texts: What an element type or a text of an attribute may be.
        alike: Pairs of facets that are to be equal.
        turned: Results of a Transpose that shall swap the last two axes.
        roots: By result, the value that it has the shape of.
        twins: By result, the value that its shape follows from, in the main.
    """

    ranges: dict[Facet, Wish] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    alike: list[tuple[Facet, Facet]] = field(default_factory=list)
    turned: set[str] = field(default_factory=set)
    roots: Mapping[str, str] = field(default_factory=dict)
    twins: Mapping[str, str] = field(default_factory=dict)

    def _rooted(self, facet: Facet) -> Facet:
        """Return the facet of what can be drawn that is to be asked for instead."""
        if facet.kind in {"rank", "shape"}:
            return facet._replace(name=self.twins.get(facet.name, facet.name))
        if facet.kind in {"size", "dtype"}:
            return facet._replace(name=self.roots.get(facet.name, facet.name))
        return facet

    def ranks(self, name: str) -> list[int]:
        """Return the ranks that a value shall have; none if any will do."""
        wanted = self.ranges.get(Facet("rank", name))
        return [] if wanted is None else [r for r in range(_MOST_RANK) if wanted.admits(r)]

    def sizes(self, name: str) -> dict[int, Wish]:
        """Return what sizes of a value shall be, by axis."""
        found = {q.at: r for q, r in self.ranges.items() if (q.kind, q.name) == ("size", name)}
        length = self.ranges.get(Facet("length", name))
        return found if length is None else {0: length, **found}

    def number(self, name: str) -> Wish | None:
        """Return what each element of a constant, or an attribute, shall be."""
        return self.ranges.get(Facet("number", name))

    def elements(self, name: str) -> dict[int, Wish]:
        """Return what single elements of a constant shall be."""
        return {q.at: r for q, r in self.ranges.items() if (q.kind, q.name) == ("element", name)}

    def equals(self, facet: Facet) -> Iterator[Facet]:
        """Yield what a facet is to equal, the difference in *past*."""
        for one, other in self.alike:
            for mine, its in ((one, other), (other, one)):
                if mine._replace(past=0.0) == facet:
                    yield its._replace(past=its.past - mine.past)

    # -- reading conditions --------------------------------------------------------------------

    def add(  # noqa: C901  # a case for each form
        self, condition: ast.expr, random: np.random.Generator
    ) -> None:
        """Read a condition; of an ``or``, one operand."""
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
            case ast.Call(ast.Name("all"), [ast.Compare() as every]):
                self.add(every, random)
            case ast.Call(ast.Name("is_close"), [ast.Name() as constant, number, *_]):
                self._relate(constant, ast.Eq, number)
            case ast.Call(ast.Name("same_shape"), [ast.Name(one), ast.Name(other)]):
                shapes = (self._rooted(Facet("shape", name)) for name in (one, other))
                self.alike.append((next(shapes), next(shapes)))
            case ast.Call(ast.Name("per_tensor"), [ast.Name(name)]):
                self._narrow(Facet("rank", name), Wish(items=(0,)))
            case ast.Call(ast.Name("transposes_last_two"), [ast.Name(name)]):
                self.turned.add(name)
            case _:
                pass

    def _relate(self, left: ast.expr, relation: type[ast.cmpop], right: ast.expr) -> None:
        """Note what one side is to be, if the other is stated or is a facet, too."""
        sides = facet_of(left), facet_of(right)
        if relation is ast.Eq and sides[0] is not None and sides[1] is not None:
            self.alike.append((self._rooted(sides[0]), self._rooted(sides[1])))
        self._narrow_by(left, relation, right)
        if relation in _TURNED:
            self._narrow_by(right, _TURNED[relation], left)

    def _narrow_by(self, asked: ast.expr, relation: type[ast.cmpop], given: ast.expr) -> None:
        match asked, given:
            case ast.BinOp(inner, ast.Mod(), ast.Constant(int(step))), ast.Constant(int(rest)):
                facet = facet_of(inner)
                if facet is not None and relation is ast.Eq and step > 0:
                    items = tuple(float(rest + step * times) for times in range(5))
                    self._narrow(facet, Wish(items=items))
            case _, ast.List(items) | ast.Tuple(items) if relation is ast.Eq:
                facet = facet_of(asked)
                if facet is not None and facet.kind in {"number", "shape"}:
                    self._narrow_each(facet, items)
            case _:
                facet = facet_of(asked)
                if facet is not None:
                    with suppress(ValueError, TypeError, OverflowError):
                        self._narrow_to(facet, relation, ast.literal_eval(given))

    def _narrow_each(self, whole: Facet, items: list[ast.expr]) -> None:
        """Note what the elements of a list are to be; one that is computed is left open."""
        is_shape = whole.kind == "shape"
        count = Wish(items=(float(len(items)),))
        self._narrow(Facet("rank" if is_shape else "length", whole.name), count)
        for at, item in enumerate(items):
            part = Facet("size" if is_shape else "element", whole.name, at)
            with suppress(ValueError, TypeError):
                self._narrow(part, Wish(items=(float(ast.literal_eval(item)),)))

    def _narrow_to(self, facet: Facet, relation: type[ast.cmpop], stated: object) -> None:
        items: list[Any] = list(stated) if isinstance(stated, (list, tuple, set)) else [stated]
        texts = [item for item in items if isinstance(item, str)]
        if texts and relation in {ast.Eq, ast.In}:
            self.texts[self._rooted(facet).name] = texts
            return
        numbers = tuple(float(item) - facet.past for item in items if not isinstance(item, str))
        if not numbers:
            return
        by_relation: dict[type[ast.cmpop], Wish] = {
            ast.Eq: Wish(items=numbers),
            ast.In: Wish(items=numbers),
            ast.Lt: Wish(high=numbers[0], is_open=True),
            ast.LtE: Wish(high=numbers[0]),
            ast.Gt: Wish(low=numbers[0], is_open=True),
            ast.GtE: Wish(low=numbers[0]),
        }
        if relation in by_relation:
            self._narrow(facet._replace(past=0.0), by_relation[relation])

    def _narrow(self, facet: Facet, wanted: Wish) -> None:
        facet = self._rooted(facet)
        known = self.ranges.get(facet)
        self.ranges[facet] = wanted if known is None else known.within(wanted)


_PAST: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}


def facet_of(  # noqa: C901, PLR0911, PLR0912  # a case for each form
    part: ast.expr,
) -> Facet | None:
    """Return the facet that an expression is, if it is one, perhaps and a number."""
    match part:
        case ast.Attribute(ast.Name(name), "rank"):
            return Facet("rank", name)
        case ast.Call(ast.Name("len"), [ast.Attribute(ast.Name(name), "shape")]):
            return Facet("rank", name)
        case ast.Attribute(ast.Name(name), "dtype"):
            return Facet("dtype", name)
        case ast.Attribute(ast.Name(name), "shape"):
            return Facet("shape", name)
        case ast.Call(ast.Name("len"), [held]):
            found = facet_of(held)
            return (
                None if found is None or found.kind != "number" else found._replace(kind="length")
            )
        case ast.Call(ast.Name("list" | "tuple" | "float" | "int" | "number"), [held]):
            return facet_of(held)
        case ast.Subscript(held, at):
            found = facet_of(held)
            with suppress(ValueError, TypeError):
                place = ast.literal_eval(at)
                if found is not None and found.kind in _ITEMS and isinstance(place, int):
                    return found._replace(kind=_ITEMS[found.kind], at=place)
            return None
        case ast.Name(name) | ast.Attribute(ast.Name(name), "value"):
            return Facet("number", name)
        case ast.Attribute(ast.Attribute(ast.Name(name), "attrs"), attribute):
            return Facet("number", f"{name}.{attribute}")
        case ast.BinOp(inner, sign, ast.Constant(int() | float() as number)):
            found = facet_of(inner)
            if found is None or type(sign) not in _PAST:
                return None
            return found._replace(past=_PAST[type(sign)](found.past, float(number)))
        case _:
            return None


def wishes_of(
    rule: Rule,
    random: np.random.Generator,
    roots: Mapping[str, str] = MappingProxyType({}),
    twins: Mapping[str, str] = MappingProxyType({}),
) -> Wishes:
    """Read off the conditions of *rule* what a graph is to be, for it to apply.

    Args:
        rule: The rule.
        random: Decides which operand of an ``or`` is read.
        roots: By result of the pattern, the value that it has the shape of.
        twins: By result, the value that its shape follows from, in the main.
    """
    wishes = Wishes(roots=roots, twins=twins)
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
