"""The jobs of dpl, from files to files.

Every function takes paths and plain settings and returns a frozen outcome; none prints. Programs
use :mod:`dplcli`, which takes models in any form and makes results of the outcomes.
"""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.catalog.finding import shipped_catalogs, shipped_targets
    from dplcli.catalog.plan import plan_schema
    from dplcli.catalog.python import installed_catalogs
    from dplcli.passes.rewrite import Trace
    from dplcli.pipeline.bisecting import bisect_models, bisect_rules, diff, look_inside, reproduce
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
    from dplcli.pipeline.deploying import PLAN_MARK, build_kernels, plan_kernels
    from dplcli.pipeline.doctor import diagnose
    from dplcli.pipeline.explaining import explain
    from dplcli.pipeline.extracting import extract
    from dplcli.pipeline.inspecting import find_nodes, inspect, view
    from dplcli.pipeline.learning import learn_rewrites
    from dplcli.pipeline.matching import match
    from dplcli.pipeline.partitioning import inline, partition, repeat
    from dplcli.pipeline.proving import DEFAULT_TRIALS
    from dplcli.pipeline.rewriting import apply_plan, restated, rewrite
    from dplcli.pipeline.rules import catalogs_in
    from dplcli.pipeline.running import bench, run_model
    from dplcli.pipeline.verifying import (
        accuracy,
        check_of,
        choose_subject,
        compare,
        judge_again,
        verify,
    )
    from dplcli.pipeline.writing import default_output, write_text
    from dplcli.verify.check import Check
    from dplcli.verify.verdict import VerificationResult
else:
    __getattr__ = lazy(__name__)
