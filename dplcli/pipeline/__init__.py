"""The library's front door: what the commands do, for programs.

Every function takes paths and plain settings and returns a frozen outcome; none prints.
"""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
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
else:
    __getattr__ = lazy(
        __name__,
        {
            "RepeatOptions": "dplcli.passes.repeat_search",
            "Trace": "dplcli.passes.trace",
            "MOST_CAUSES": "dplcli.pipeline.bisecting:MOST",
            "bisect_rules": "dplcli.pipeline.bisecting",
            "catalog_schema": "dplcli.pipeline.catalogs",
            "check_catalogs": "dplcli.pipeline.catalogs",
            "list_catalogs": "dplcli.pipeline.catalogs",
            "load_catalog_rules": "dplcli.pipeline.catalogs",
            "try_catalogs": "dplcli.pipeline.catalogs",
            "catalog_contract": "dplcli.pipeline.contracts",
            "model_contract": "dplcli.pipeline.contracts",
            "write_bindings": "dplcli.pipeline.contracts",
            "DiffOutcome": "dplcli.pipeline.diffing",
            "diff": "dplcli.pipeline.diffing",
            "MEMORY_CAP": "dplcli.pipeline.diverging",
            "bisect_models": "dplcli.pipeline.diverging",
            "compare_layers": "dplcli.pipeline.diverging",
            "input_request": "dplcli.pipeline.feeding",
            "InlineChoice": "dplcli.pipeline.inlining",
            "InlineOutcome": "dplcli.pipeline.inlining",
            "inline": "dplcli.pipeline.inlining",
            "find_nodes": "dplcli.pipeline.inspecting",
            "inspect": "dplcli.pipeline.inspecting",
            "LearnOutcome": "dplcli.pipeline.learning",
            "learn": "dplcli.pipeline.learning",
            "ExplainOutcome": "dplcli.pipeline.matching",
            "MatchOutcome": "dplcli.pipeline.matching",
            "explain": "dplcli.pipeline.matching",
            "match": "dplcli.pipeline.matching",
            "PartitionOutcome": "dplcli.pipeline.partitioning",
            "PartitionSettings": "dplcli.pipeline.partitioning",
            "partition": "dplcli.pipeline.partitioning",
            "plan_schema": "dplcli.pipeline.plans",
            "POLICIES": "dplcli.pipeline.policies",
            "Policies": "dplcli.pipeline.policies",
            "RepeatOutcome": "dplcli.pipeline.repeating",
            "repeat": "dplcli.pipeline.repeating",
            "reproduce": "dplcli.pipeline.reproducing",
            "RewriteOutcome": "dplcli.pipeline.rewrite_outcome",
            "RewriteSettings": "dplcli.pipeline.rewrite_outcome",
            "apply_plan": "dplcli.pipeline.rewriting",
            "rewrite": "dplcli.pipeline.rewriting",
            "RuleSource": "dplcli.pipeline.rules",
            "load_rules": "dplcli.pipeline.rules",
            "compare": "dplcli.pipeline.verifying",
            "judge_again": "dplcli.pipeline.verifying",
            "verify": "dplcli.pipeline.verifying",
            "verify_against": "dplcli.pipeline.verifying",
            "WriteSettings": "dplcli.pipeline.writing",
            "check_output": "dplcli.pipeline.writing",
            "default_output": "dplcli.pipeline.writing",
            "write_text": "dplcli.pipeline.writing",
            "Contract": "dplcli.targets",
            "LEVELS": "dplcli.verify",
            "Execution": "dplcli.verify",
            "Override": "dplcli.verify",
            "VerificationResult": "dplcli.verify",
            "VerifySettings": "dplcli.verify:Settings",
            "BisectOutcome": "dplcli.verify.bisect_result",
            "ModelsOutcome": "dplcli.verify.bisect_result",
            "Reproduced": "dplcli.verify.bisect_result",
            "Layer": "dplcli.verify.layer_result",
            "Layers": "dplcli.verify.layer_result",
            "InputRequest": "dplcli.verify.request",
        },
    )

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
