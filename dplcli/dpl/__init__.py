"""The pattern language: patterns, their text form, the matcher, rules and catalogues."""

from typing import TYPE_CHECKING

from dplcli.dpl.builders import (
    absent,
    dominates,
    is_call,
    is_const,
    is_function,
    is_if,
    is_input,
    is_op,
    is_value,
    outputs,
    repeat,
    unordered,
    wildcard,
)
from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.dpl.catalog import Catalog, load_catalog, load_catalogs, read_catalogs
    from dplcli.dpl.catalog_files import (
        find_catalog,
        is_shipped_target,
        shipped_catalogs,
        shipped_targets,
    )
    from dplcli.dpl.conditions import Condition
    from dplcli.dpl.match import Match, Rejection
    from dplcli.dpl.matcher import Matcher
    from dplcli.dpl.pattern import DFPattern
    from dplcli.dpl.rule import Example, PatternRule, RewriteRule
    from dplcli.dpl.state import StepBudgetExceededError
    from dplcli.dpl.text import parse_pattern
else:
    __getattr__ = lazy(
        __name__,
        {
            "Catalog": "dplcli.dpl.catalog",
            "load_catalog": "dplcli.dpl.catalog",
            "load_catalogs": "dplcli.dpl.catalog",
            "read_catalogs": "dplcli.dpl.catalog",
            "find_catalog": "dplcli.dpl.catalog_files",
            "is_shipped_target": "dplcli.dpl.catalog_files",
            "shipped_catalogs": "dplcli.dpl.catalog_files",
            "shipped_targets": "dplcli.dpl.catalog_files",
            "Condition": "dplcli.dpl.conditions",
            "Match": "dplcli.dpl.match",
            "Rejection": "dplcli.dpl.match",
            "Matcher": "dplcli.dpl.matcher",
            "DFPattern": "dplcli.dpl.pattern",
            "Example": "dplcli.dpl.rule",
            "PatternRule": "dplcli.dpl.rule",
            "RewriteRule": "dplcli.dpl.rule",
            "StepBudgetExceededError": "dplcli.dpl.state",
            "parse_pattern": "dplcli.dpl.text",
        },
    )

__all__ = [
    "Catalog",
    "Condition",
    "DFPattern",
    "Example",
    "Match",
    "Matcher",
    "PatternRule",
    "Rejection",
    "RewriteRule",
    "StepBudgetExceededError",
    "absent",
    "dominates",
    "find_catalog",
    "is_call",
    "is_const",
    "is_function",
    "is_if",
    "is_input",
    "is_op",
    "is_shipped_target",
    "is_value",
    "load_catalog",
    "load_catalogs",
    "outputs",
    "parse_pattern",
    "read_catalogs",
    "repeat",
    "shipped_catalogs",
    "shipped_targets",
    "unordered",
    "wildcard",
]
