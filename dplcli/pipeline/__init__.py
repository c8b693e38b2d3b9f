"""The library's front door: what the commands do, for programs.

Every function takes paths and plain settings and returns a frozen outcome; none prints.
"""

from dplcli.passes.repeat_search import RepeatOptions
from dplcli.passes.trace import Trace
from dplcli.pipeline.catalogs import (
    catalog_schema,
    check_catalogs,
    list_catalogs,
    load_catalog_rules,
    try_catalogs,
)
from dplcli.pipeline.contracts import catalog_contract, model_contract, write_bindings
from dplcli.pipeline.inlining import InlineChoice, InlineOutcome, inline
from dplcli.pipeline.inspecting import find_nodes, inspect
from dplcli.pipeline.learning import LearnOutcome, learn
from dplcli.pipeline.matching import (
    ExplainOutcome,
    MatchOutcome,
    explain,
    match,
)
from dplcli.pipeline.partitioning import (
    PartitionOutcome,
    PartitionSettings,
    partition,
)
from dplcli.pipeline.plans import plan_schema
from dplcli.pipeline.policies import POLICIES, Policies
from dplcli.pipeline.repeating import RepeatOutcome, repeat
from dplcli.pipeline.rewrite_outcome import RewriteOutcome, RewriteSettings
from dplcli.pipeline.rewriting import apply_plan, rewrite
from dplcli.pipeline.rules import RuleSource, load_rules
from dplcli.pipeline.verifying import compare, judge_again, verify
from dplcli.pipeline.writing import WriteSettings, check_output, default_output, write_text
from dplcli.targets import Contract
from dplcli.verify import LEVELS, Override, VerificationResult
from dplcli.verify import Settings as VerifySettings

__all__ = [
    "LEVELS",
    "POLICIES",
    "Contract",
    "ExplainOutcome",
    "InlineChoice",
    "InlineOutcome",
    "LearnOutcome",
    "MatchOutcome",
    "Override",
    "PartitionOutcome",
    "PartitionSettings",
    "Policies",
    "RepeatOptions",
    "RepeatOutcome",
    "RewriteOutcome",
    "RewriteSettings",
    "RuleSource",
    "Trace",
    "VerificationResult",
    "VerifySettings",
    "WriteSettings",
    "apply_plan",
    "catalog_contract",
    "catalog_schema",
    "check_catalogs",
    "check_output",
    "compare",
    "default_output",
    "explain",
    "find_nodes",
    "inline",
    "inspect",
    "judge_again",
    "learn",
    "list_catalogs",
    "load_catalog_rules",
    "load_rules",
    "match",
    "model_contract",
    "partition",
    "plan_schema",
    "repeat",
    "rewrite",
    "try_catalogs",
    "verify",
    "write_bindings",
    "write_text",
]
