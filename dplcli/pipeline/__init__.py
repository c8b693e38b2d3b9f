"""The library's front door: what the commands do, for programs.

Every function takes paths and plain settings and returns a frozen outcome; none prints.
"""

from dplcli.passes.repeat_search import RepeatOptions
from dplcli.passes.trace import Trace
from dplcli.pipeline.bisecting import MOST as MOST_CAUSES
from dplcli.pipeline.bisecting import bisect_rules
from dplcli.pipeline.catalogs import (
    catalog_schema,
    check_catalogs,
    list_catalogs,
    load_catalog_rules,
    try_catalogs,
)
from dplcli.pipeline.contracts import catalog_contract, model_contract, write_bindings
from dplcli.pipeline.diffing import DiffOutcome, diff
from dplcli.pipeline.diverging import MEMORY_CAP, bisect_models, compare_layers
from dplcli.pipeline.feeding import input_request
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
from dplcli.pipeline.reproducing import reproduce
from dplcli.pipeline.rewrite_outcome import RewriteOutcome, RewriteSettings
from dplcli.pipeline.rewriting import apply_plan, rewrite
from dplcli.pipeline.rules import RuleSource, load_rules
from dplcli.pipeline.verifying import compare, judge_again, verify, verify_against
from dplcli.pipeline.writing import WriteSettings, check_output, default_output, write_text
from dplcli.targets import Contract
from dplcli.verify import LEVELS, Execution, Override, VerificationResult
from dplcli.verify import Settings as VerifySettings
from dplcli.verify.bisect_result import BisectOutcome, ModelsOutcome, Reproduced
from dplcli.verify.layer_result import Layer, Layers
from dplcli.verify.request import InputRequest

__all__ = [
    "LEVELS",
    "MEMORY_CAP",
    "MOST_CAUSES",
    "POLICIES",
    "BisectOutcome",
    "Contract",
    "DiffOutcome",
    "Execution",
    "ExplainOutcome",
    "InlineChoice",
    "InlineOutcome",
    "InputRequest",
    "Layer",
    "Layers",
    "LearnOutcome",
    "MatchOutcome",
    "ModelsOutcome",
    "Override",
    "PartitionOutcome",
    "PartitionSettings",
    "Policies",
    "RepeatOptions",
    "RepeatOutcome",
    "Reproduced",
    "RewriteOutcome",
    "RewriteSettings",
    "RuleSource",
    "Trace",
    "VerificationResult",
    "VerifySettings",
    "WriteSettings",
    "apply_plan",
    "bisect_models",
    "bisect_rules",
    "catalog_contract",
    "catalog_schema",
    "check_catalogs",
    "check_output",
    "compare",
    "compare_layers",
    "default_output",
    "diff",
    "explain",
    "find_nodes",
    "inline",
    "input_request",
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
    "reproduce",
    "rewrite",
    "try_catalogs",
    "verify",
    "verify_against",
    "write_bindings",
    "write_text",
]
