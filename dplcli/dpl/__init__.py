"""The pattern language: patterns, their text form, the matcher, rules and catalogues."""

from dplcli.dpl.catalog import (
    find_catalog,
    load_catalog,
    load_catalogs,
    shipped_catalogs,
    shipped_targets,
)
from dplcli.dpl.conditions import Condition
from dplcli.dpl.match import Match, Rejection
from dplcli.dpl.matcher import Matcher, StepBudgetExceededError
from dplcli.dpl.pattern import DFPattern, absent, is_const, is_input, is_op, wildcard
from dplcli.dpl.rule import PatternRule
from dplcli.dpl.text import parse_pattern

__all__ = [
    "Condition",
    "DFPattern",
    "Match",
    "Matcher",
    "PatternRule",
    "Rejection",
    "StepBudgetExceededError",
    "absent",
    "find_catalog",
    "is_const",
    "is_input",
    "is_op",
    "load_catalog",
    "load_catalogs",
    "parse_pattern",
    "shipped_catalogs",
    "shipped_targets",
    "wildcard",
]
