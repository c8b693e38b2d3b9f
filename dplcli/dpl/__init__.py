"""The pattern language: patterns, their text form, the matcher and rules."""

from typing import TYPE_CHECKING

from dplcli.dpl.pattern import (
    absent,
    dominates,
    is_call,
    is_const,
    is_function,
    is_if,
    is_input,
    is_op,
    is_value,
    op_var,
    outputs,
    repeat,
    rest,
    unordered,
    wildcard,
)
from dplcli.dpl.text import parse_pattern
from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.dpl.conditions import Condition
    from dplcli.dpl.matcher import Matcher, StepBudgetExceededError
    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.replacement import GraphBuilder, Operand, RewriteFunction, RewriteRule
    from dplcli.dpl.rule import Example, Match, PatternRule, Rejection
else:
    __getattr__ = lazy(__name__)

__all__ = [
    "Condition",
    "DFPattern",
    "Example",
    "GraphBuilder",
    "Match",
    "Matcher",
    "Operand",
    "PatternRule",
    "Rejection",
    "RewriteFunction",
    "RewriteRule",
    "StepBudgetExceededError",
    "absent",
    "dominates",
    "is_call",
    "is_const",
    "is_function",
    "is_if",
    "is_input",
    "is_op",
    "is_value",
    "op_var",
    "outputs",
    "parse_pattern",
    "repeat",
    "rest",
    "unordered",
    "wildcard",
]
