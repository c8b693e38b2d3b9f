"""Conditions that make no sense: beside their pattern, beside each other, or alone.

A quantity is any expression that a condition compares with constants, such as ``x.rank``. The
values that it may have are kept as a set of constants and a range. Two quantities are unrelated.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dplcli.errors import did_you_mean
from dplcli.ir.operators import MOVED
from dplcli.ir.types import DTYPE_CODES
from dplcli.language.conditions import UNANSWERABLE, Condition, in_plain_words, without
from dplcli.language.pattern import (
    AndPattern,
    CallPattern,
    ConstantPattern,
    OpName,
    OrPattern,
    OutputPattern,
    SameShapePattern,
    TypedPattern,
    all_parts,
    hidden_parts,
    unknown_dtype,
    visible_parts,
)
from dplcli.language.text import names_of, parts_at_value

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from dplcli.errors import PatternSyntaxError
    from dplcli.ir import SchemaLibrary
    from dplcli.language.pattern import DFPattern

    Ranges: TypeAlias = "dict[str, _Range]"


def mistakes_in(
    conditions: Sequence[Condition],
    pattern: DFPattern,
    schemas: SchemaLibrary,
    as_written: Sequence[bool],
) -> Iterator[tuple[int, PatternSyntaxError]]:
    """Yield what is wrong with the conditions of a rule, each with the number of its condition.

    Args:
        conditions: All must hold; their names are bound by the pattern.
        pattern: The pattern.
        schemas: The standard operators.
        as_written: Whether each text stands in the file like this. Where values were put into it,
            parts of it may well hold for all matches.
    """
    alone: set[int] = set()
    for number, condition in enumerate(conditions):
        faults = [*_strange_words(condition, pattern, schemas)]
        faults += _constants(condition, is_written=as_written[number]) if not faults else []
        for fault in faults:
            alone.add(number)
            yield number, condition.wrong(fault.node, fault.what, fault.hint)
    yield from _contradictions(conditions, pattern, alone)


class _Fault(NamedTuple):
    node: ast.expr
    what: str
    hint: str | None = None


# Words in conditions: element types, and attributes of the nodes that make values.


_OF_DTYPES = frozenset({"cast", "widens"})


def _strange_words(
    condition: Condition, pattern: DFPattern, schemas: SchemaLibrary
) -> Iterator[_Fault]:
    for node in condition.nodes:
        texts: list[ast.expr] = []
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(isinstance(s, ast.Attribute) and s.attr == "dtype" for s in sides):
                    lists = (ast.List, ast.Tuple, ast.Set)
                    for side in sides:
                        texts += side.elts if isinstance(side, lists) else [side]
            case ast.Call(func=ast.Name(id=name), args=args) if name in _OF_DTYPES:
                texts = list(args)
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id=name), attr="attrs"), attr=attribute
            ):
                attributes = _attributes_of(name, pattern, schemas)
                if attributes and attribute not in attributes:
                    what = f"asks for the attribute {attribute!r}, which {name!r} does not have"
                    yield _Fault(node, what, did_you_mean(attribute, sorted(attributes)))
            case _:
                pass
        for text in texts:
            value = text.value if isinstance(text, ast.Constant) else None
            if isinstance(value, str) and value not in DTYPE_CODES:
                what, hint = unknown_dtype(value)
                yield _Fault(text, f"is wrong: {what}", hint)


def _attributes_of(name: str, pattern: DFPattern, schemas: SchemaLibrary) -> set[str] | None:
    """Return the attributes that the node may have that makes *name*; None if unknown."""
    pending = [part for part in visible_parts(pattern) if name in names_of(part)]
    attributes: set[str] = set()
    while pending:
        match pending.pop():
            case CallPattern(op=op):
                for choice in op.choices:
                    if not isinstance(choice, OpName):
                        return None
                    its = schemas.attributes_of(choice.op_type, choice.domain)
                    if its is None:
                        return None
                    attributes |= its
                    attributes |= {item.attribute for item in MOVED.get(choice.op_type, ())}
                    for schema in schemas.versions(choice.op_type, choice.domain):
                        attributes.update(schema.inputs)
            case OutputPattern(node=node):
                pending.append(node)
            case AndPattern(left=left, right=right):
                pending.append(left if isinstance(left, CallPattern) else right)
            case part if inner := parts_at_value(part):
                pending += inner
            case _:
                return None
    return attributes


# What is said of one quantity.


@dataclass(frozen=True)
class _Range:
    """The values that a quantity may have.

    Attributes:
        only: The constants that it may be; None for any.
        never: Those that it is not.
        low: Numbers are at least this, or more than this if *above*.
        high: Numbers are at most this, or less than this if *below*.
        above: Whether *low* itself is left out.
        below: Whether *high* itself is left out.
        whole: Whether its numbers are whole.
    """

    only: frozenset[Hashable] | None = None
    never: frozenset[Hashable] = frozenset()
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    whole: bool = False

    def and_(self, other: _Range) -> _Range:
        """Return the values that both allow."""
        low, above = max((self.low, self.above), (other.low, other.above))
        high, within = min((self.high, not self.below), (other.high, not other.below))
        only = self.only if other.only is None else other.only
        if self.only is not None and other.only is not None:
            only = self.only & other.only
        never = self.never | other.never
        whole = self.whole or other.whole
        return _Range(only, never, low, high, above, not within, whole)

    @property
    def is_empty(self) -> bool:
        """Whether there is no such value."""
        if self.only is not None:
            return not any(map(self._allows, self.only - self.never))
        if not self.whole:
            return self.low > self.high or (self.low == self.high and (self.above or self.below))
        if math.inf in {abs(self.low), abs(self.high)}:  # math.isinf takes no number beyond floats
            return False
        low = math.floor(self.low) + 1 if self.above else math.ceil(self.low)
        high = math.ceil(self.high) - 1 if self.below else math.floor(self.high)
        return high < low + len(self.never) and all(n in self.never for n in range(low, high + 1))

    def _allows(self, value: Hashable) -> bool:
        if not isinstance(value, (int, float)):
            return True
        if self.whole and value != value // 1:
            return False
        if value < self.low or value > self.high:
            return False
        return not (value == self.low and self.above) and not (value == self.high and self.below)


_WHOLE = _Range(low=0, whole=True)
_COUNTS = frozenset({"len", "depth", "columns"})
_COUNTED = frozenset({"rank", "uses"})


def _possible(node: ast.expr) -> _Range:
    """Return what a quantity may be, whatever the match."""
    match node:
        case ast.Attribute(attr=fact) if fact in _COUNTED:
            return _WHOLE
        case ast.Attribute(value=ast.Name(), attr="dtype"):
            return _Range(only=frozenset(DTYPE_CODES))
        case ast.Attribute(value=ast.Name(), attr="is_const"):
            return _Range(only=frozenset({True, False}))
        case ast.Call(func=ast.Name(id=name)) if name in _COUNTS:
            return _WHOLE
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=int())):
            return _WHOLE
        case _:
            return _Range()


# What a condition says of quantities: a tree of "all", "any" and single statements.


class _Says(NamedTuple):
    """A statement about a quantity."""

    quantity: str
    values: _Range


class _All(NamedTuple):
    parts: tuple[_Claim, ...]


class _Any(NamedTuple):
    parts: tuple[_Claim, ...]


_Claim: TypeAlias = "_Says | _All | _Any"
_TRUE, _FALSE = _All(()), _Any(())
_MOST_TEXTS = 4096


@lru_cache(maxsize=_MOST_TEXTS)
def _claim_of(text: str, captures: tuple[tuple[str, str], ...]) -> _Claim:
    condition = Condition(text, dict(captures))
    return _Reader(condition).read(condition.tree)


class _Reader(NamedTuple):
    """Reads what an expression says if it holds, or if it does not."""

    condition: Condition

    def read(self, node: ast.expr, *, holds: bool = True) -> _Claim:
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.read(inner, holds=not holds)
            case ast.BoolOp(op=sign, values=values):
                return self._several(values, every=isinstance(sign, ast.And), holds=holds)
            case ast.Call(func=ast.Name(id="all" | "any" as word), args=[ast.List(elts=items)]):
                return self._several(items, every=word == "all", holds=holds)
            case _ if self.condition.is_constant(node):
                return self._constant(node, holds=holds)
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                claims = tuple(
                    self._compared(a, sign, b, holds=holds)
                    for a, sign, b in zip(sides, ops, others, strict=False)
                )
                return claims[0] if len(claims) == 1 else _All(claims) if holds else _Any(claims)
            case _:
                return _true_or_not(node, holds=holds)

    def _several(self, parts: Sequence[ast.expr], *, every: bool, holds: bool) -> _Claim:
        claims = tuple(self.read(part, holds=holds) for part in parts)
        return _All(claims) if every is holds else _Any(claims)

    def _constant(self, node: ast.expr, *, holds: bool) -> _Claim:
        try:
            return _TRUE if bool(self.condition.constant(node)) is holds else _FALSE
        except UNANSWERABLE:
            return _FALSE

    def _compared(self, left: ast.expr, sign: ast.cmpop, right: ast.expr, *, holds: bool) -> _Claim:
        if self.condition.is_constant(left) and type(sign) in _TURNED:
            left, right, sign = right, left, _TURNED[type(sign)]()
        if not self.condition.is_constant(right) or self.condition.is_constant(left):
            return _true_or_not(ast.Compare(left, [sign], [right]), holds=holds)
        possible = _possible(left)
        try:
            value = self.condition.constant(right)
            if isinstance(value, str) and possible.whole and not isinstance(left, ast.Subscript):
                return _FALSE if isinstance(sign, ast.Eq) is holds else _TRUE
            values = _compared_with(type(sign), value, holds=holds, whole=possible.whole)
        except UNANSWERABLE:
            values = None
        if values is None:
            return _true_or_not(ast.Compare(left, [sign], [right]), holds=holds)
        match left:  # the length of a shape is a rank
            case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=of, attr="shape")]):
                quantity = f"{ast.unparse(of)}.rank"
            case _:
                quantity = ast.unparse(left)
        return _Says(quantity, possible.and_(values))


_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}
_ORDER = frozenset({ast.Lt, ast.LtE, ast.Gt, ast.GtE})


def _compared_with(  # noqa: PLR0911  # a case per kind of comparison
    sign: type[ast.cmpop],
    value: Any,  # noqa: ANN401  # a constant
    *,
    holds: bool,
    whole: bool,
) -> _Range | None:
    """Return the values for which a comparison holds, or does not; None if that is not known."""
    if not holds:
        if sign in _ORDER and not whole:
            return None  # a number may be NaN
        sign = _OPPOSITE.get(sign, ast.Is)
    if sign in {ast.In, ast.NotIn}:
        if not isinstance(value, (list, tuple, set)):
            return None
        items = frozenset(value)
        return _Range(only=items) if sign is ast.In else _Range(never=items)
    if not isinstance(value, (int, float, str)) or (isinstance(value, float) and math.isnan(value)):
        return None
    if sign in {ast.Eq, ast.NotEq}:
        items = frozenset({value})
        return _Range(only=items) if sign is ast.Eq else _Range(never=items)
    if sign not in _ORDER or isinstance(value, str):
        return None
    if sign in {ast.Lt, ast.LtE}:
        return _Range(high=value, below=sign is ast.Lt)
    return _Range(low=value, above=sign is ast.Gt)


def _true_or_not(node: ast.expr, *, holds: bool) -> _Says:
    is_fact = isinstance(node, ast.Attribute) and node.attr == "is_const"
    quantity = ast.unparse(node) if is_fact else f"bool({ast.unparse(node)})"
    return _Says(quantity, _Range(only=frozenset({holds})))


def _with(ranges: Ranges, claim: _Claim) -> Ranges | None:
    """Return what is known if *claim* holds, too; None if it cannot hold."""
    if isinstance(claim, _Says):
        values = claim.values
        if claim.quantity in ranges:
            values = values.and_(ranges[claim.quantity])
        return None if values.is_empty else {**ranges, claim.quantity: values}
    if isinstance(claim, _All):
        current: Ranges | None = ranges
        for part in claim.parts:
            current = None if current is None else _with(current, part)
        return current
    ways = [way for part in claim.parts if (way := _with(ranges, part)) is not None]
    return ways[0] if len(ways) == 1 else ranges if ways else None


# Conditions that are constant, and those that contradict each other.


_ALWAYS_KNOWN = frozenset({"uses", "is_const", "name"})


def _constants(condition: Condition, *, is_written: bool) -> Iterator[_Fault]:
    """Find what holds for every match or for none."""
    for node in _truths(condition.tree):
        is_whole = node is condition.tree
        if not (is_whole or is_written) or not condition.is_constant(node):
            continue
        try:
            holds = bool(condition.constant(node))
        except UNANSWERABLE as error:
            yield _Fault(node, f"cannot be computed: {in_plain_words(error)}")
            return
        if holds and not is_written:
            continue
        word = "always" if holds else "never"
        part = "" if is_whole else f": its part {ast.unparse(node)!r} {word} holds"
        what = f"{word} holds" if is_whole else "asks in part nothing of the match"
        yield _Fault(node, f"{what}{part}")
        return
    if is_written and _is_always_true(condition):
        yield _Fault(condition.tree, "always holds")


def _truths(tree: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of a condition that are asked whether they hold, the largest ones first."""
    pending = [tree]
    while pending:
        node = pending.pop(0)
        yield node
        match node:
            case ast.BoolOp(values=values):
                pending += values
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                pending.append(inner)
            case ast.Call(func=ast.Name(id="all" | "any"), args=[ast.List(elts=items)]):
                pending += items
            case _:
                pass


def _is_always_true(condition: Condition) -> bool:
    """Tell whether it cannot be false; what is unknown of a match does not hold, however."""
    if isinstance(condition.tree, ast.Name):
        return True
    facts = {node.attr for node in condition.nodes if isinstance(node, ast.Attribute)}
    if not facts or not facts <= _ALWAYS_KNOWN:
        return False
    if any(isinstance(node, ast.Call) for node in condition.nodes):
        return False
    return _with({}, _Reader(condition).read(condition.tree, holds=False)) is None


def _contradictions(
    conditions: Sequence[Condition], pattern: DFPattern, wrong: set[int]
) -> Iterator[tuple[int, PatternSyntaxError]]:
    said = {
        n: _claim_of(each.text, each.captures)
        for n, each in enumerate(conditions)
        if n not in wrong
    }
    if not said:
        return
    claims = dict(sorted(said.items(), key=lambda item: isinstance(item[1], _Any)))
    facts, certain = _facts(pattern)
    if _with(facts, _All(tuple(claims.values()))) is not None:
        return
    ranges, before = facts, dict[int, _Claim]()
    for number in claims:
        condition = conditions[number]
        optional = frozenset(condition.names - certain)
        tree = without(condition.tree, optional, (ast.And,))  # whichever of them take part
        if tree is None:
            continue
        claim = _Reader(condition).read(tree)
        then = _with(ranges, claim)
        if then is not None:
            ranges, before[number] = then, claim
            continue
        excluding = (n for n, one in before.items() if _with({}, _All((one, claim))) is None)
        other = next(excluding, None)
        if _with({}, claim) is None:
            what = "never holds"
        elif _with(facts, claim) is None:
            what = "never holds, for the pattern says otherwise"
        elif other is not None:
            what = f"never holds together with {conditions[other].text!r}"
        else:
            what = "never holds together with the conditions before it"
        yield number, condition.wrong(condition.tree, what)


def _facts(pattern: DFPattern) -> tuple[Ranges, frozenset[str]]:
    """Return what the pattern says of quantities, and the names that every match binds."""
    certain: dict[int, dict[int, DFPattern]] = {}
    for part in all_parts(pattern):
        hidden = {id(item) for item in hidden_parts(part)}
        parts = part.args if isinstance(part, CallPattern) else part.parts
        if isinstance(part, SameShapePattern):
            parts = (part.pattern,)
        inner = [certain[id(item)] for item in parts if id(item) not in hidden]
        if isinstance(part, OrPattern):
            left, right = certain[id(part.left)], certain[id(part.right)]
            shared = {key: item for key, item in left.items() if key in right}
        else:
            shared = {key: item for each in inner for key, item in each.items()}
        certain[id(part)] = shared | {id(part): part}
    facts: Ranges = {}
    names: set[str] = set()
    for part in certain[id(pattern)].values():
        names.update(names_of(part))
        for quantity, values in _stated(part):
            facts[quantity] = facts.get(quantity, _Range()).and_(values)
    return facts, frozenset(names)


def _stated(  # noqa: C901  # a case per kind
    part: DFPattern,
) -> Iterator[tuple[str, _Range]]:
    """Yield what one part of a pattern says of its value."""
    if isinstance(part, ConstantPattern) and part.name:
        yield f"{part.name}.is_const", _Range(only=frozenset({True}))
    if isinstance(part, CallPattern) and part.name:
        for name, value in part.attributes:
            if isinstance(value, int):
                yield f"{part.name}.attrs.{name}", _Range(only=frozenset({value}))
    if not isinstance(part, TypedPattern):
        return
    inner: DFPattern = part
    names = {part.name}
    while isinstance(inner, TypedPattern):
        inner = inner.pattern
        names.add(inner.name)
    ranks = part.ranks if part.shape is None else (len(part.shape),)
    for name in names - {""}:
        if ranks is not None:
            yield f"{name}.rank", replace(_WHOLE, only=frozenset(ranks))
        if part.dtypes is not None:
            yield f"{name}.dtype", _Range(only=frozenset(part.dtypes))
        for axis, dim in enumerate(part.shape or ()):
            if isinstance(dim, int):
                yield f"{name}.shape[{axis}]", replace(_WHOLE, only=frozenset({dim}))
