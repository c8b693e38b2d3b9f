"""The library's front door: what the commands do, for programs.

Every function takes paths and plain settings and returns a frozen outcome; none prints.
"""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.catalog.places import shipped_catalogs, shipped_targets
    from dplcli.catalog.plan import plan_schema
    from dplcli.catalog.python import installed_catalogs
    from dplcli.dpl.rule import POLICIES, Policies
    from dplcli.execute import kernels_for
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
    from dplcli.pipeline.doctor import diagnose
    from dplcli.pipeline.inspecting import find_nodes, inspect, view
    from dplcli.pipeline.learning import learn_rewrites
    from dplcli.pipeline.matching import explain, match
    from dplcli.pipeline.partitioning import (
        InlineChoice,
        PartitionSettings,
        inline,
        partition,
        repeat,
    )
    from dplcli.pipeline.proving import DEFAULT_TRIALS
    from dplcli.pipeline.rewriting import RewriteSettings, apply_plan, rewrite
    from dplcli.pipeline.rules import RuleSource, load_rules
    from dplcli.pipeline.running import run_model
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
    from dplcli.verify.settings import (
        LEVELS,
        Execution,
        InputRequest,
        Kernels,
        Override,
        VerificationResult,
    )
    from dplcli.verify.settings import Settings as VerifySettings
else:
    __getattr__ = lazy(
        __name__,
        {
            "dplcli.catalog.places": "shipped_catalogs shipped_targets",
            "dplcli.catalog.python": "installed_catalogs",
            "dplcli.catalog.plan": "plan_schema",
            "dplcli.dpl.rule": "POLICIES Policies",
            "dplcli.execute": "kernels_for",
            "dplcli.passes.repeat": "RepeatOptions",
            "dplcli.passes.rewrite": "Trace",
            "dplcli.pipeline.bisecting": (
                "MEMORY_CAP MOST_CAUSES=MOST bisect_models bisect_rules compare_layers diff "
                "reproduce"
            ),
            "dplcli.pipeline.catalogs": (
                "catalog_contract catalog_schema check_catalogs learn list_catalogs "
                "load_catalog_rules model_contract try_catalogs write_bindings"
            ),
            "dplcli.pipeline.doctor": "diagnose",
            "dplcli.pipeline.inspecting": "find_nodes inspect view",
            "dplcli.pipeline.learning": "learn_rewrites",
            "dplcli.pipeline.matching": "explain match",
            "dplcli.pipeline.partitioning": (
                "InlineChoice PartitionSettings inline partition repeat"
            ),
            "dplcli.pipeline.proving": "DEFAULT_TRIALS",
            "dplcli.pipeline.rewriting": "RewriteSettings apply_plan rewrite",
            "dplcli.pipeline.rules": "RuleSource load_rules",
            "dplcli.pipeline.running": "run_model",
            "dplcli.pipeline.verifying": "compare input_request judge_again verify verify_against",
            "dplcli.pipeline.writing": "WriteSettings check_output default_output write_text",
            "dplcli.targets.contract": "Contract",
            "dplcli.verify.layers": "Layer Layers",
            "dplcli.verify.settings": (
                "Execution InputRequest Kernels LEVELS Override VerificationResult "
                "VerifySettings=Settings"
            ),
        },
    )
