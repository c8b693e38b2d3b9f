"""Calls of functions that a partition wrote: leaves, to rules that do not name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.callee import FunctionName, FunctionPattern, OpName
from dplcli.dpl.pattern import CallPattern
from dplcli.dpl.scoping import all_parts
from dplcli.passes.marks import call_of_written

if TYPE_CHECKING:
    from dplcli.dpl.rule import Rule
    from dplcli.ir import Function, Node


def is_leaf_call(node: Node, rule: Rule) -> bool:
    """Tell whether *node* calls a function that a partition wrote and *rule* does not name.

    ``op()`` and ``call("")`` mean the operators and functions of the model as its author wrote it;
    else a second run would outline the calls of the first.
    """
    function = call_of_written(node)
    return function is not None and not _names(rule, function)


def _names(rule: Rule, function: Function) -> bool:
    """Tell whether the pattern of *rule* asks for *function* by name or by metadata."""
    for part in all_parts(rule.pattern):
        for callee in part.op.choices if isinstance(part, CallPattern) else ():
            match callee:
                case OpName(op_type, domain):
                    named = (domain, op_type) == (function.domain, function.name)
                case FunctionName(name):
                    named = bool(name) and callee.accepts(function.domain, function.name)
                case FunctionPattern():
                    named = bool(callee.metadata)
                case _:
                    named = False
            if named:
                return True
    return False
