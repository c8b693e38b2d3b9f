"""Expressions over the captured names, evaluated by simpleeval, never executed."""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from simpleeval import DEFAULT_OPERATORS, EvalWithCompoundTypes, InvalidExpression

from dplcli.dpl.array_helpers import joined
from dplcli.dpl.facts import UnknownFactError, ValueFacts
from dplcli.dpl.helpers import FUNCTIONS, LARGEST_NUMBER
from dplcli.dpl.room import claim, limited
from dplcli.errors import PatternSyntaxError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Value


_LARGEST_EXPONENT = 64
_FACTS = ("dtype", "shape", "rank", "name", "is_const", "value", "uses", "attrs")
_TYPE_FACTS = frozenset({"dtype", "shape", "rank"})
_MOST_ANSWERS = 10_000
_ALLOWED = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Slice, ast.BoolOp),
    *(ast.UnaryOp, ast.BinOp, ast.Compare, ast.List, ast.Tuple, ast.Set, ast.IfExp),
    *(ast.ListComp, ast.GeneratorExp),
)


def _numeric(operation: Callable[[Any, Any], Any]) -> Callable[[object, object], object]:
    """Let *operation* work on numbers of ordinary size and arrays only."""

    def checked(left: object, right: object) -> object:
        for operand in (left, right):
            if isinstance(operand, (str, bytes, list, tuple)):
                raise TypeError("arithmetic is for numbers")
            if isinstance(operand, int) and abs(operand) > LARGEST_NUMBER:
                raise ValueError("a number is too large")
        _claim_result(left, right)
        return operation(left, right)

    return checked


def _compared(operation: Callable[[Any, Any], Any]) -> Callable[[object, object], object]:
    """Let *operation* compare anything, arrays only if the result is not too large."""

    def checked(left: object, right: object) -> object:
        _claim_result(left, right)
        return operation(left, right)

    return checked


def _claim_result(left: object, right: object) -> None:
    """Claim the elements of what two operands broadcast to, if one is an array."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        claim(math.prod(np.broadcast_shapes(_dims_of(left), _dims_of(right))))


def _dims_of(operand: object) -> tuple[int, ...]:
    if isinstance(operand, (list, tuple)):
        return np.asarray(operand).shape
    return operand.shape if isinstance(operand, np.ndarray) else ()


def _added(left: Any, right: Any) -> object:  # noqa: ANN401  # numbers, arrays, lists
    """Add numbers or arrays, or join two lists."""
    if isinstance(left, (list, tuple)) and type(left) is type(right):
        return joined(left, right)
    return _plus(left, right)


def _power(base: Any, exponent: Any) -> object:  # noqa: ANN401  # a number or an array
    if abs(exponent) > _LARGEST_EXPONENT:
        raise ValueError(f"an exponent is larger than {_LARGEST_EXPONENT}")
    return base**exponent


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_plus = _numeric(operator.add)
_OPERATORS = (
    DEFAULT_OPERATORS
    | {kind: _numeric(operation) for kind, operation in _ARITHMETIC.items()}
    | {kind: _compared(DEFAULT_OPERATORS[kind]) for kind in _COMPARISONS}
    | {ast.Add: _added}
)


UNANSWERABLE = (
    InvalidExpression,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
)


class Expression:
    """An expression over captured names.

    Args:
        text: The expression.
        role: What it is for, to begin messages with.

    Raises:
        PatternSyntaxError: It is not one expression.
    """

    def __init__(self, text: str, role: str = "where") -> None:
        """Parse *text*."""
        self.role = role
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            column = (getattr(error, "offset", None) or 1) - 1
            raise PatternSyntaxError(
                f"{self.role}: {self.text!r} is not an expression: {_syntax_message(error)}",
                column=column,
            ) from error
        self._indent = len(text) - len(text.lstrip())
        for node in ast.walk(self._tree):
            self._check_form(node)
        self._local = _local_names(self._tree)
        used = names_in(self._tree)
        self._used = {node.id for node in used} - self._local
        optional = {id(node) for node in optional_names(self._tree)}
        self._needed = {node.id for node in used if id(node) not in optional} - self._local
        self._helper = _helper_call(self._tree) or _comparison_of_names(self._tree)
        self._asked = _type_facts(self._tree, self._used)
        self._answers: dict[tuple[object, ...], object] = {}
        self._evaluator = EvalWithCompoundTypes(functions={}, operators=_OPERATORS)
        self._evaluator.functions = FUNCTIONS

    def __repr__(self) -> str:
        """Read as written."""
        return f"{type(self).__name__}({self.text!r})"

    def check_names(self, bound: frozenset[str]) -> None:
        """Refuse names that the pattern does not bind.

        Raises:
            PatternSyntaxError: The expression names something unbound.
        """
        for node in names_in(self._tree):
            if node.id not in bound and node.id not in self._local:
                raise self._wrong(
                    node,
                    f"uses the name {node.id!r}, which the pattern does not bind",
                    did_you_mean(node.id, sorted(bound)),
                )

    def _check_form(self, node: ast.AST) -> None:
        """Refuse what is not in the language: nothing else is ever evaluated."""
        if isinstance(node, ast.expr) and not isinstance(node, _ALLOWED):
            raise self._wrong(node, f"{ast.unparse(node)!r} is not allowed")
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                raise self._wrong(node, "only the listed functions may be called")
            if node.func.id not in FUNCTIONS:
                raise self._wrong(
                    node,
                    f"uses the function {node.func.id!r}, which does not exist",
                    did_you_mean(node.func.id, FUNCTIONS),
                )
        if isinstance(node, ast.Attribute):
            of_attributes = isinstance(node.value, ast.Attribute) and node.value.attr == "attrs"
            if node.attr.startswith("_") or not (of_attributes or node.attr in _FACTS):
                raise self._wrong(
                    node,
                    f"asks for {node.attr!r}, which does not exist",
                    did_you_mean(node.attr, _FACTS),
                )

    def _wrong(self, node: ast.expr, what: str, hint: str | None = None) -> PatternSyntaxError:
        lines = self.text.splitlines()
        shown = lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="ignore")
        indent = self._indent if node.lineno == 1 else 0
        return PatternSyntaxError(
            f"{self.role}: {self.text!r} {what}",
            line=node.lineno,
            column=len(shown) + indent,
            hint=hint,
        )

    @property
    def names(self) -> frozenset[str]:
        """The captured names that it uses."""
        return frozenset(self._used)

    def asks_for(self, fact: str) -> bool:
        """Tell whether it may ask a captured value for *fact*, as in ``x.uses``."""
        parts = (part for part in ast.walk(self._tree) if isinstance(part, ast.Attribute))
        return any(part.attr == fact for part in parts)

    def value(self, bindings: Mapping[str, Value]) -> object:
        """Return what it comes to.

        Raises:
            UnknownFactError: It needs something that is not known, or a name that took no part.
            ValueError: It cannot be evaluated.
        """
        absent = sorted(self._needed - bindings.keys())
        if absent:
            raise UnknownFactError(f"{absent[0]!r} took no part in the match")
        try:
            return self._evaluate(self._tree, self._facts(bindings))
        except UNANSWERABLE as error:
            raise ValueError(" ".join(str(error).split())) from error

    def _facts(self, bindings: Mapping[str, Value]) -> dict[str, ValueFacts | None]:
        """Say what there is to ask of each name; of one that may be absent perhaps nothing."""
        facts: dict[str, ValueFacts | None] = {}
        for name in self._used:
            bound = bindings.get(name)
            if bound is not None:
                facts[name] = ValueFacts(bound)
            elif name not in self._needed:
                facts[name] = None
        return facts

    def _evaluate(self, tree: ast.expr, facts: Mapping[str, ValueFacts | None]) -> object:
        if self._helper is not None:
            function, arguments = self._helper
            return function(*[facts[name] for name in arguments])
        key = self._key(facts) if tree is self._tree else None
        if key in self._answers:
            return self._answers[key]
        self._evaluator.names = facts
        try:
            with np.errstate(all="ignore"), limited():
                answer: object = self._evaluator.eval(self.text, previously_parsed=tree)
        finally:
            self._evaluator.names = {}  # rules outlive the models that they are asked about
        if key is not None and isinstance(answer, (bool, int, float, str)):
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def _key(self, facts: Mapping[str, ValueFacts | None]) -> tuple[object, ...] | None:
        """Return what the answer depends on; None if there is more than types, or not all known.

        The same types come again and again in one model.
        """
        if not self._asked:
            return None
        try:
            key = tuple([getattr(facts[name], fact) for name, fact in self._asked])
            hash(key)
        except (UnknownFactError, AttributeError, KeyError):
            return None
        return key


def names_in(tree: ast.expr) -> list[ast.Name]:
    """Return the names in an expression that are not those of called functions."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    ]


def _type_facts(tree: ast.expr, used: AbstractSet[str]) -> tuple[tuple[str, str], ...]:
    """Return each name of *used* with what is asked of its type; none if more is asked."""
    mentions = [node for node in names_in(tree) if node.id in used]
    facts = {
        id(part.value): (part.value.id, part.attr)
        for part in ast.walk(tree)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.attr in _TYPE_FACTS
    }
    if any(id(node) not in facts for node in mentions):
        return ()
    return tuple(sorted({facts[id(node)] for node in mentions}))


def optional_names(tree: ast.expr) -> list[ast.Name]:
    """Return the names that :func:`value_or` may find absent: its first arguments."""
    return [
        node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "value_or"
        and node.args
        and isinstance(node.args[0], ast.Name)
    ]


def _local_names(tree: ast.expr) -> set[str]:
    """Return the variables of comprehensions."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.comprehension)
        for target in ast.walk(node.target)
        if isinstance(target, ast.Name)
    }


def _helper_call(tree: ast.expr) -> tuple[Callable[..., object], list[str]] | None:
    """Take apart ``helper(name, …)``, the commonest condition, which needs no evaluator."""
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
        return None
    function = FUNCTIONS.get(tree.func.id)
    arguments = [arg.id for arg in tree.args if isinstance(arg, ast.Name)]
    unchecked = getattr(function, "__wrapped__", None)
    if unchecked is None or len(arguments) < len(tree.args):
        return None
    if len(arguments) != unchecked.__code__.co_argcount:
        return None
    return unchecked, arguments


def _comparison_of_names(tree: ast.expr) -> tuple[Callable[..., object], list[str]] | None:
    """Take apart ``a.name != b.name``, which comes second and needs none either."""
    if not isinstance(tree, ast.Compare) or len(tree.ops) > 1:
        return None
    sides = [tree.left, *tree.comparators]
    owners = [
        side.value.id
        for side in sides
        if isinstance(side, ast.Attribute)
        and isinstance(side.value, ast.Name)
        and side.attr == "name"
    ]
    compare = {ast.Eq: _have_one_name, ast.NotEq: _have_two_names}.get(type(tree.ops[0]))
    return None if compare is None or len(owners) < len(sides) else (compare, owners)


def _have_one_name(first: ValueFacts, second: ValueFacts) -> bool:
    return first.name == second.name


def _have_two_names(first: ValueFacts, second: ValueFacts) -> bool:
    return first.name != second.name


def _syntax_message(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
