"""The library's front door: what the commands do, for programs.

Every function takes paths and plain settings and returns a frozen outcome; none prints.
"""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.catalog.plan import plan_schema
    from dplcli.dpl.rule import POLICIES, Policies
    from dplcli.passes.repeat import RepeatOptions
    from dplcli.passes.rewrite import Trace
    from dplcli.pipeline.bisecting import (
        MEMORY_CAP,
        bisect_models,
        bisect_rules,
        compare_layers,
        diff,
        reproduce,
    )
    from dplcli.pipeline.bisecting import MOST as MOST_CAUSES
    from dplcli.pipeline.catalogs import (
        catalog_contract,
        catalog_schema,
        check_catalogs,
        learn,
        list_catalogs,
        load_catalog_rules,
        model_contract,
        try_catalogs,
        write_bindings,
    )
    from dplcli.pipeline.inspecting import find_nodes, inspect
    from dplcli.pipeline.matching import explain, match
    from dplcli.pipeline.partitioning import (
        InlineChoice,
        PartitionSettings,
        inline,
        partition,
        repeat,
    )
    from dplcli.pipeline.rewriting import RewriteSettings, apply_plan, rewrite
    from dplcli.pipeline.rules import RuleSource, load_rules
    from dplcli.pipeline.verifying import (
        compare,
        input_request,
        judge_again,
        verify,
        verify_against,
    )
    from dplcli.pipeline.writing import WriteSettings, check_output, default_output, write_text
    from dplcli.targets.contract import Contract
    from dplcli.verify.layers import Layer, Layers
    from dplcli.verify.settings import LEVELS, Execution, InputRequest, Override, VerificationResult
    from dplcli.verify.settings import Settings as VerifySettings
else:
    __getattr__ = lazy(
        __name__,
        {
            "Contract": "dplcli.targets.contract",
            "Execution": "dplcli.verify.settings",
            "InlineChoice": "dplcli.pipeline.partitioning",
            "InputRequest": "dplcli.verify.settings",
            "LEVELS": "dplcli.verify.settings",
            "Layer": "dplcli.verify.layers",
            "Layers": "dplcli.verify.layers",
            "MEMORY_CAP": "dplcli.pipeline.bisecting",
            "MOST_CAUSES": "dplcli.pipeline.bisecting:MOST",
            "Override": "dplcli.verify.settings",
            "POLICIES": "dplcli.dpl.rule",
            "PartitionSettings": "dplcli.pipeline.partitioning",
            "Policies": "dplcli.dpl.rule",
            "RepeatOptions": "dplcli.passes.repeat",
            "RewriteSettings": "dplcli.pipeline.rewriting",
            "RuleSource": "dplcli.pipeline.rules",
            "Trace": "dplcli.passes.rewrite",
            "VerificationResult": "dplcli.verify.settings",
            "VerifySettings": "dplcli.verify.settings:Settings",
            "WriteSettings": "dplcli.pipeline.writing",
            "apply_plan": "dplcli.pipeline.rewriting",
            "bisect_models": "dplcli.pipeline.bisecting",
            "bisect_rules": "dplcli.pipeline.bisecting",
            "catalog_contract": "dplcli.pipeline.catalogs",
            "catalog_schema": "dplcli.pipeline.catalogs",
            "check_catalogs": "dplcli.pipeline.catalogs",
            "check_output": "dplcli.pipeline.writing",
            "compare": "dplcli.pipeline.verifying",
            "compare_layers": "dplcli.pipeline.bisecting",
            "default_output": "dplcli.pipeline.writing",
            "diff": "dplcli.pipeline.bisecting",
            "explain": "dplcli.pipeline.matching",
            "find_nodes": "dplcli.pipeline.inspecting",
            "inline": "dplcli.pipeline.partitioning",
            "input_request": "dplcli.pipeline.verifying",
            "inspect": "dplcli.pipeline.inspecting",
            "judge_again": "dplcli.pipeline.verifying",
            "learn": "dplcli.pipeline.catalogs",
            "list_catalogs": "dplcli.pipeline.catalogs",
            "load_catalog_rules": "dplcli.pipeline.catalogs",
            "load_rules": "dplcli.pipeline.rules",
            "match": "dplcli.pipeline.matching",
            "model_contract": "dplcli.pipeline.catalogs",
            "partition": "dplcli.pipeline.partitioning",
            "plan_schema": "dplcli.catalog.plan",
            "repeat": "dplcli.pipeline.partitioning",
            "reproduce": "dplcli.pipeline.bisecting",
            "rewrite": "dplcli.pipeline.rewriting",
            "try_catalogs": "dplcli.pipeline.catalogs",
            "verify": "dplcli.pipeline.verifying",
            "verify_against": "dplcli.pipeline.verifying",
            "write_bindings": "dplcli.pipeline.catalogs",
            "write_text": "dplcli.pipeline.writing",
        },
    )

__all__ = [
    "LEVELS",
    "MEMORY_CAP",
    "MOST_CAUSES",
    "POLICIES",
    "Contract",
    "Execution",
    "InlineChoice",
    "InputRequest",
    "Layer",
    "Layers",
    "Override",
    "PartitionSettings",
    "Policies",
    "RepeatOptions",
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
