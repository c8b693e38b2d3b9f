"""``where``: expressions over the captured names, evaluated by simpleeval, never executed.

A condition that needs an unknown fact (a shape nobody knows, say) is a no, with that as reason.
"""

from __future__ import annotations

import ast
import operator
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from simpleeval import DEFAULT_OPERATORS, EvalWithCompoundTypes, InvalidExpression

from dplcli.dpl.facts import UnknownFactError, ValueFacts
from dplcli.errors import PatternSyntaxError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Value


_LARGEST_EXPONENT = 64
_LARGEST_NUMBER = 2**64


def same_shape(first: ValueFacts, second: ValueFacts) -> bool:
    """Tell whether both shapes are known and equal dimension for dimension."""
    return first.shape == second.shape


def broadcasts_to(small: ValueFacts, large: ValueFacts) -> bool:
    """Tell whether *small* broadcasts to the shape of *large* without changing it."""
    a, b = small.shape, large.shape
    if len(a) > len(b):
        return False
    return all(x in (1, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def per_channel(bias: ValueFacts, output: ValueFacts) -> bool:
    """Tell whether *bias* has one number per channel (axis 1) of *output* and no other extent.

    ``(C, 1, 1)`` and ``(1, C, 1, 1)`` are, for an output of rank 4; ``(C,)`` is not: it runs
    along the last axis.
    """
    channels, rank = output.channels_and_rank
    shape = bias.shape
    axis = 1 - (rank - len(shape))
    if len(shape) > rank:
        return False
    wanted: list[object] = [1] * len(shape)
    if axis >= 0:
        wanted[axis] = channels
    elif channels != 1:
        return False
    return list(shape) == wanted


def is_close(constant: ValueFacts, number: float, rtol: float = 1e-3) -> bool:
    """Tell whether every element of a constant is within *rtol* of *number*."""
    data = np.asarray(constant.value, dtype=np.float64)
    return bool(np.allclose(data, number, rtol=rtol, atol=1e-12))


def _product(numbers: Iterable[float]) -> float:
    """Multiply numbers of ordinary size, such as dimensions."""
    product: float = 1
    for number in numbers:
        product = product * number
        if abs(product) > _LARGEST_NUMBER:
            raise ValueError("a product is too large")
    return product


def _on_values(function: Callable[..., object], count: int) -> Callable[..., object]:
    """Let *function* take that many captured values first, and say so if it is given others."""

    @wraps(function)
    def checked(*args: object) -> object:
        if len(args) < count or {*map(type, args[:count])} != {ValueFacts}:
            names = "a name" if count == 1 else f"{count} names"
            raise TypeError(f"{function.__name__} takes {names} of the pattern first")
        return function(*args)

    return checked


FUNCTIONS: dict[str, Callable[..., object]] = {
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "all": all,
    "any": any,
    "prod": _product,
    "same_shape": _on_values(same_shape, 2),
    "broadcasts_to": _on_values(broadcasts_to, 2),
    "per_channel": _on_values(per_channel, 2),
    "is_close": _on_values(is_close, 1),
}
"""Every function a condition may call."""


_FACTS = ("dtype", "shape", "rank", "name", "is_const", "value", "uses", "attrs")
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
            if isinstance(operand, int) and abs(operand) > _LARGEST_NUMBER:
                raise ValueError("a number is too large")
        return operation(left, right)

    return checked


def _power(base: Any, exponent: Any) -> object:  # noqa: ANN401  # a number or an array
    if abs(exponent) > _LARGEST_EXPONENT:
        raise ValueError(f"an exponent is larger than {_LARGEST_EXPONENT}")
    return base**exponent


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_OPERATORS = DEFAULT_OPERATORS | {kind: _numeric(op) for kind, op in _ARITHMETIC.items()}


_UNANSWERABLE = (
    InvalidExpression,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
)


class Condition:
    """One expression of a ``where`` list.

    Args:
        text: The expression.

    Raises:
        PatternSyntaxError: It is not one expression.
    """

    def __init__(self, text: str) -> None:
        """Parse *text*."""
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            column = (getattr(error, "offset", None) or 1) - 1
            raise PatternSyntaxError(
                f"where: {self.text!r} is not an expression: {_syntax_message(error)}",
                column=column,
            ) from error
        self._indent = len(text) - len(text.lstrip())
        for node in ast.walk(self._tree):
            self._check_form(node)
        self._local = _local_names(self._tree)
        self._used = {node.id for node in _names_in(self._tree)} - self._local
        self._helper = _helper_call(self._tree)
        self._evaluator = EvalWithCompoundTypes(functions=FUNCTIONS, operators=_OPERATORS)

    def __repr__(self) -> str:
        """Read as written."""
        return f"Condition({self.text!r})"

    def check_names(self, bound: frozenset[str]) -> None:
        """Refuse names that the pattern does not bind.

        Raises:
            PatternSyntaxError: The expression names something unbound.
        """
        for node in _names_in(self._tree):
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
            f"where: {self.text!r} {what}",
            line=node.lineno,
            column=len(shown) + indent,
            hint=hint,
        )

    def reason_against(self, bindings: Mapping[str, Value]) -> str:
        """Return why the condition does not hold for *bindings*, or "" if it does.

        A name whose part of the pattern took no part in the match (the other side of an
        alternative) is no obstacle: the operands of ``and`` and ``or`` that use it are left out,
        and a condition of which nothing is left holds.
        """
        tree: ast.expr | None = self._tree
        facts = {name: ValueFacts(bindings[name]) for name in self._used if name in bindings}
        if len(facts) < len(self._used):
            tree = _without(self._tree, self._used - facts.keys())
        if tree is None:
            return ""
        try:
            holds = bool(self._evaluate(tree, facts))
        except UnknownFactError as error:
            return f"{self.text!r} is not known to hold: {error}"
        except _UNANSWERABLE as error:
            return f"{self.text!r} cannot be evaluated: {' '.join(str(error).split())}"
        return "" if holds else f"{self.text!r} does not hold"

    def _evaluate(self, tree: ast.expr, facts: dict[str, ValueFacts]) -> object:
        if self._helper is not None:
            function, arguments = self._helper
            return function(*[facts[name] for name in arguments])
        self._evaluator.names = facts
        with np.errstate(all="ignore"):
            answer: object = self._evaluator.eval(self.text, previously_parsed=tree)
        return answer


def _names_in(tree: ast.expr) -> list[ast.Name]:
    """Return the names in an expression that are not those of called functions."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
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


def _without(tree: ast.expr, absent: AbstractSet[str]) -> ast.expr | None:
    """Leave out the operands of ``and`` and ``or`` that use *absent* names; None if all do."""
    if not any(node.id in absent for node in _names_in(tree)):
        return tree
    if not isinstance(tree, ast.BoolOp):
        return None
    kept = [left for value in tree.values if (left := _without(value, absent)) is not None]
    return ast.BoolOp(op=tree.op, values=kept) if kept else None


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


def _syntax_message(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
