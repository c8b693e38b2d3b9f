"""The pattern language: patterns, their text form, the matcher and rules."""

from typing import TYPE_CHECKING

from dplcli.language.pattern import (
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
from dplcli.language.text import parse_pattern
from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.language.conditions import Condition
    from dplcli.language.matcher import Matcher, StepBudgetExceededError
    from dplcli.language.pattern import DFPattern
    from dplcli.language.replacement import GraphBuilder, Operand, RewriteFunction, RewriteRule
    from dplcli.language.rule import Example, Match, PatternRule, Rejection
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
