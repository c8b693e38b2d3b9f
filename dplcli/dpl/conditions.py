"""``where``: expressions over the captured names, evaluated by simpleeval, never executed.

A condition that needs an unknown fact (a shape nobody knows, say) is a no, with that as reason.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

import numpy as np
from simpleeval import EvalWithCompoundTypes, InvalidExpression

from dplcli.dpl.compiler import post_order
from dplcli.dpl.facts import UnknownFactError, ValueFacts
from dplcli.errors import PatternSyntaxError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.dpl.pattern import DFPattern
    from dplcli.ir import Dim, Value


def same_shape(first: ValueFacts, second: ValueFacts) -> bool:
    """Tell whether both shapes are known and equal dimension for dimension."""
    a, b = first.shape, second.shape
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            raise UnknownFactError(f"a dimension of {first.name!r} or {second.name!r} is unknown")
    return a == b


def broadcasts_to(small: ValueFacts, large: ValueFacts) -> bool:
    """Tell whether *small* broadcasts to the shape of *large* without changing it."""
    a, b = small.shape, large.shape
    if len(a) > len(b):
        return False
    return all(_stretches(x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def _stretches(small: Dim, large: Dim) -> bool:
    if small == 1:
        return True
    if small is None or large is None:
        raise UnknownFactError("a dimension is unknown")
    return small == large


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
    if axis < 0:
        return channels == 1 and all(dim == 1 for dim in shape)
    return shape[axis] == channels and all(
        dim == 1 for index, dim in enumerate(shape) if index != axis
    )


def is_close(constant: ValueFacts, number: float, rtol: float = 1e-3) -> bool:
    """Tell whether every element of a constant is within *rtol* of *number*."""
    data = np.asarray(constant.value, dtype=np.float64)
    return bool(np.allclose(data, number, rtol=rtol, atol=1e-12))


FUNCTIONS: dict[str, Callable[..., object]] = {
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "all": all,
    "any": any,
    "prod": math.prod,
    "same_shape": same_shape,
    "broadcasts_to": broadcasts_to,
    "per_channel": per_channel,
    "is_close": is_close,
}
"""Every function a condition may call."""


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
        names = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        self._used = names - FUNCTIONS.keys()
        self._helper = _helper_call(self._tree)
        self._evaluator = EvalWithCompoundTypes(functions=FUNCTIONS)

    def __repr__(self) -> str:
        """Read as written."""
        return f"Condition({self.text!r})"

    def check_names(self, bound: frozenset[str]) -> None:
        """Refuse names and functions that do not exist.

        Raises:
            PatternSyntaxError: The expression names something unbound.
        """
        called = {
            node.func.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Name):
                continue
            known = FUNCTIONS if node.id in called else bound
            if node.id not in known and node.id not in FUNCTIONS:
                what = "function" if node.id in called else "name"
                raise PatternSyntaxError(
                    f"where: {self.text!r} uses the {what} {node.id!r}, which "
                    + ("does not exist" if node.id in called else "the pattern does not bind"),
                    line=1,
                    column=node.col_offset,
                    hint=did_you_mean(node.id, sorted(known)),
                )

    def reason_against(self, bindings: Mapping[str, Value]) -> str:
        """Return why the condition does not hold for *bindings*, or "" if it does.

        A name whose part of the pattern took no part in the match (the other side of an
        alternative) is no obstacle: a condition over it holds.
        """
        if not self._used <= bindings.keys():
            return ""
        facts = {name: ValueFacts(bindings[name]) for name in self._used}
        try:
            if self._helper is not None:
                function, arguments = self._helper
                holds = function(*[facts[name] for name in arguments])
            else:
                self._evaluator.names = facts
                holds = self._evaluator.eval(self.text, previously_parsed=self._tree)
            return "" if bool(holds) else f"{self.text!r} does not hold"
        except UnknownFactError as error:
            return f"{self.text!r} is not known to hold: {error}"
        except (InvalidExpression, ValueError, TypeError, ArithmeticError, LookupError) as error:
            return f"{self.text!r} cannot be evaluated: {error}"


def _helper_call(tree: ast.expr) -> tuple[Callable[..., object], list[str]] | None:
    """Take apart ``helper(name, …)``, the commonest condition, which needs no evaluator."""
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
        return None
    function = FUNCTIONS.get(tree.func.id)
    arguments = [arg.id for arg in tree.args if isinstance(arg, ast.Name)]
    if function is None or len(arguments) < len(tree.args):
        return None
    return function, arguments


def bound_names(pattern: DFPattern) -> frozenset[str]:
    """Return every name that *pattern* binds."""
    return frozenset(getattr(part, "name", "") for part in post_order(pattern)) - {""}


def _syntax_message(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
