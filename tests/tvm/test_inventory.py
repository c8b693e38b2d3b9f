"""Where TVM's tests of partitions are here, and where the bugs that its users met are.

The keys are the names that the tests have there.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTS = Path(__file__).parents[1]

RELAY_PARTITION = {
    "test_double_partition": ("tvm/test_partitioning::test_double_partition",),
    "test_partition_dominator": ("tvm/test_partitioning::test_partition_dominator",),
    "test_quadruple_partition_dominator": (
        "tvm/test_partitioning::test_quadruple_partition_dominator",
    ),
    "test_partition_batchnorm": ("tvm/test_partitioning::test_partition_batchnorm",),
    "test_partition_double_batchnorm": ("tvm/test_partitioning::test_partition_double_batchnorm",),
    "test_overlappting_partitions": ("tvm/test_partitioning::test_overlapping_partitions",),
    "test_partition_overused": (
        "tvm/test_partitioning::test_partition_overused",
        "tvm/test_partitioning::test_refusals_of_overlapping_ways_are_reported",
    ),
    "test_partition_fuzzy_tuple": ("tvm/test_partitioning::test_partition_fuzzy_tuple",),
    "test_partition_fuzzy_function_args": (
        "tvm/test_partitioning::test_partition_fuzzy_function_args",
    ),
    "test_partition_check": ("tvm/test_partitioning::test_partition_check",),
    "test_partition_check_types": ("tvm/test_partitioning::test_partition_check_types",),
    "test_partition_option": ("tvm/test_partitioning::test_partition_option",),
    "test_partition_function": ("tvm/test_partitioning::test_partition_function",),
    "test_partition_optional_function": (
        "tvm/test_partitioning::test_partition_optional_function",
    ),
    "test_partition_function_with_fuzzy_body": (
        "tvm/test_partitioning::test_partition_function_with_fuzzy_body",
    ),
    "test_partition_constant_embedding": (
        "tvm/test_partitioning::test_partition_constant_embedding",
    ),
    "test_matched_outside_but_dominated": (
        "tvm/test_partitioning::test_matched_outside_but_dominated",
        "tvm/test_partitioning::test_matched_outside_and_not_dominated",
        "tvm/test_partitioning::test_duplicate_leaves_nothing_to_a_second_run",
    ),
    "test_partition_parallel_branch_with_same_input": (
        "tvm/test_partitioning::test_partition_parallel_branch_with_same_input",
    ),
}
"""Relay's tests of ``partition`` (test_dataflow_pattern.py at v0.19.0)."""

MERGE_COMPOSITE = {
    "test_simple_merge": ("tvm/test_partitioning::test_simple_merge",),
    "test_branch_merge": ("tvm/test_partitioning::test_branch_merge",),
    "test_reuse_call_merge": ("tvm/test_partitioning::test_reuse_call_merge",),
    "test_multiple_patterns": ("tvm/test_partitioning::test_multiple_patterns",),
    "test_optional_pattern": ("tvm/test_partitioning::test_optional_pattern",),
    "test_merge_order": ("tvm/test_partitioning::test_merge_order",),
    "test_parallel_merge": ("tvm/test_partitioning::test_parallel_merge",),
    "test_multiple_input_subgraphs": ("tvm/test_partitioning::test_multiple_input_subgraphs",),
    "test_tuple_get_item_merge": ("tvm/test_partitioning::test_tuple_get_item_merge",),
    "test_pattern_with_check": ("tvm/test_partitioning::test_pattern_with_check",),
    "test_diamond_not_merge": ("tvm/test_partitioning::test_diamond_not_merge",),
    "test_type_check": ("tvm/test_partitioning::test_type_check",),
    "test_einsum_reshape_pattern": ("tvm/test_partitioning::test_einsum_reshape_pattern",),
}
"""Relay's MergeComposite (test_pass_merge_composite.py at v0.19.0)."""

MERGE_COMPOSITE_FUNCTIONS = {
    name: (f"tvm/test_regions::{name}",)
    for name in (
        "test_conv2d_relu_x2",
        "test_diamond_cyclic_dep",
        "test_diamond",
        "test_merge_producers",
        "test_merge_producers_cyclic_dep",
        "test_merge_compiler_regions_example",
        "test_mixed_non_composite",
        "test_reshape",
        "test_handle_existence_of_call_tir",
        "test_tuple_projection_merging",
        "test_tuple_projection_preserves_real_cycle_boundary",
        "test_tuple_projection_rejects_escaping_tuple",
    )
}
"""Relax's MergeCompositeFunctions (test_transform_merge_composite_functions.py)."""

FUSE_OPS_BY_PATTERN = {
    "test_partition_conv2d_relu": ("tvm/test_partitioning::test_partition_conv2d_relu",),
    "test_partition_multiple_patterns": (
        "tvm/test_partitioning::test_partition_multiple_patterns",
    ),
    "test_partition_order": ("tvm/test_partitioning::test_partition_order",),
    "test_branch_tuple_output": ("tvm/test_partitioning::test_branch_tuple_output",),
    "test_cyclic_dependency": (
        "tvm/test_partitioning::test_cyclic_dependency",
        "tvm/test_partitioning::test_cyclic_dependency_leaves_the_smaller_match",
        "tvm/test_partitioning::test_two_matches_that_need_each_other",
        "tvm/test_partitioning::test_two_matches_that_need_each_others_inner_value",
        "tvm/test_partitioning::test_two_rules_that_need_each_other",
        "tvm/test_partitioning::test_three_matches_in_a_ring",
        "tvm/test_partitioning::test_matches_that_need_each_other_through_outside_nodes",
    ),
    "test_bind_params": ("tvm/test_fuse_ops_by_pattern::test_bind_params",),
    "test_annotate_codegen": ("tvm/test_fuse_ops_by_pattern::test_annotate_codegen",),
    "test_no_op_if_no_patterns_match": (
        "tvm/test_partitioning::test_partition_leaves_input_proto_alone",
    ),
    "test_unmatched_calls_may_include_lambda_functions": (
        "tvm/test_fuse_ops_by_pattern::test_unmatched_calls_may_include_lambda_functions",
    ),
    "test_compare_with_merge_composite_path": (
        "tvm/test_fuse_ops_by_pattern::test_compare_with_merge_composite_path",
    ),
    "test_multiple_entries_multiple_calls_same_extern": (
        "tvm/test_fuse_ops_by_pattern::test_multiple_entries_multiple_calls_same_extern",
    ),
    "test_ignore_call_tir": ("tvm/test_fuse_ops_by_pattern::test_ignore_call_tir",),
    "test_unused": ("tvm/test_partitioning::test_unused",),
    "test_check_pattern": ("tvm/test_partitioning::test_check_pattern",),
    "test_bind_constants": ("tvm/test_partitioning::test_bind_constants",),
    "test_split": (
        "tvm/test_partitioning::test_split",
        "tvm/test_partitioning::test_split_of_which_one_output_is_matched",
    ),
    "test_clip": ("tvm/test_fuse_ops_by_pattern::test_clip",),
    "test_matmul_add3": ("tvm/test_partitioning::test_matmul_add3",),
    "test_intermediate_var_to_var_binding": (
        "tvm/test_partitioning::test_intermediate_var_to_var_binding",
    ),
    "test_multple_runs": ("tvm/test_partitioning::test_multiple_runs",),
    "test_error_on_repeated_variable_definitions": (
        "tvm/test_fuse_ops_by_pattern::test_error_on_repeated_variable_definitions",
    ),
    "test_matmul_symbolic_var": ("tvm/test_partitioning::test_matmul_symbolic_var",),
    "test_match_maximal_subgraph": ("tvm/test_partitioning::test_match_maximal_subgraph",),
    "test_dataflow_inside_branch": ("tvm/test_partitioning::test_dataflow_inside_branch",),
    "test_concat": ("tvm/test_partitioning::test_concat",),
    "test_unique_boundary_output_precedes_last_group_binding": (
        "tvm/test_partitioning::test_unique_boundary_output_precedes_last_group_binding",
    ),
    "test_inline_bound_static_shape_argument": (
        "tvm/test_partitioning::test_inline_bound_static_shape_argument",
    ),
}
"""Relax's FuseOpsByPattern (test_transform_fuse_ops_by_pattern.py)."""

DEFECTS = {
    # the matcher
    "no way back into operands": ("tvm/test_probes::test_r1_commuted_operands",),
    "no way back into alternatives": ("tvm/test_probes::test_r2_alternatives",),
    "unordered tuples are greedy": ("tvm/test_probes::test_r3_unordered",),
    "only Add and Mul commute, and only by name": (
        "tvm/test_probes::test_r12_alternative_callees",
        "language/test_matcher::test_variadic_operators_commute",
    ),
    "re-association reads arguments that are not there": (
        "tvm/test_probes::test_patterns_with_too_few_arguments",
        "tvm/test_probes::test_r13_no_re_association",
    ),
    "has_dtype crashes on an unknown type": ("tvm/test_probes::test_r7_unknown_element_type",),
    "has_ty accepts what is not known": ("tvm/test_probes::test_r7_unknown_types",),
    "is_gv compares by substring": ("tvm/test_relax_matching::test_global_var_pattern",),
    "recursive patterns print for ever (15350)": (
        "tvm/test_fuse_ops_by_pattern::test_a_pattern_that_repeats_itself_has_an_end",
    ),
    "a function below an alternative crashes (13278)": (
        "tvm/test_partitioning::test_partition_optional_function",
    ),
    "a dominator beside a function crashes (14424)": (
        "tvm/test_fuse_ops_by_pattern::test_a_region_beside_a_function",
    ),
    "dominators are exponential on diamonds": (
        "tvm/test_probes::test_stacked_diamonds_are_linear",
    ),
    "branches of a recursion are forced to be one": (
        "tvm/test_probes::test_repeat_binds_anew_in_each_step",
    ),
    # graphs
    "a graph output is no use": ("tvm/test_probes::test_g3_a_graph_output_is_a_use",),
    "constants never match in a graph": ("tvm/test_probes::test_g4_constants_in_graphs",),
    "slots do not count constants": ("tvm/test_probes::test_g4cd_slots_count_constants",),
    "a graph does not commute": ("tvm/test_probes::test_g5_commuted_operands_in_graphs",),
    "two leaves cannot be one value": ("tvm/test_probes::test_g6_leaves_may_coincide",),
    "a copy of a chain is stricter": (
        "tvm/test_probes::test_g8_a_repeated_chain_is_as_strict_as_the_first",
    ),
    "same_shape is lost": ("tvm/test_probes::test_g10_same_shape_in_a_graph",),
    "a refused match hides all others": (
        "tvm/test_probes::test_g11_a_refused_match_hides_no_other",
    ),
    "clean-up is needed for edges (15904)": (
        "tvm/test_fuse_ops_by_pattern::test_clean_up_is_not_needed",
    ),
    # partitions
    "a refused check keeps the nodes": (
        "passes/test_select::test_a_refused_match_leaves_its_nodes_free",
        "passes/test_select::test_another_way_to_match_is_tried",
        "tvm/test_probes::test_f7_alternatives_and_a_check",
    ),
    "what is used outside is rewritten wrongly (5930)": (
        "tvm/test_partitioning::test_partition_overused",
    ),
    "the order of alternatives decides": ("tvm/test_partitioning::test_partition_option",),
    "an extra node in a diamond is overlooked (5552)": (
        "tvm/test_partitioning::test_diamond_not_merge",
    ),
    "types of einsum are not known (14556)": (
        "tvm/test_partitioning::test_einsum_reshape_pattern",
    ),
    "broadcast_to and sequence_mask fail (10404, 14556)": (
        "tvm/test_fuse_ops_by_pattern::test_operators_of_data_dependent_shape",
    ),
    "squeeze(argwhere) fails (13543)": ("tvm/test_fuse_ops_by_pattern::test_argwhere_and_squeeze",),
    "a second match steals a shared node": (
        "tvm/test_probes::test_f1_shared_inner_node_refused",
        "tvm/test_probes::test_f1_shared_inner_node_as_an_output",
    ),
    "a cycle raises an exception": ("tvm/test_partitioning::test_cyclic_dependency",),
    "a cycle through two nodes is not seen": (
        "tvm/test_probes::test_f8_nodes_between",
        "tvm/test_peer_defects::test_f1_non_convex_through_many_nodes",
        "tvm/test_peer_defects::test_f1_non_convex_through_a_body",
    ),
    "partitions that need each other": (
        "tvm/test_partitioning::test_two_matches_that_need_each_other",
        "tvm/test_partitioning::test_three_matches_in_a_ring",
    ),
    "a copy of a value ends a match": (
        "tvm/test_probes::test_w12_vv_match_through_identities",
        "tvm/test_partitioning::test_intermediate_var_to_var_binding",
    ),
    "a residual matches twice (15308)": ("tvm/test_partitioning::test_matmul_add3",),
    "the smaller of two matches is taken (16922)": (
        "tvm/test_partitioning::test_match_maximal_subgraph",
    ),
    "functions go while they are visited (17160)": (
        "tvm/test_fuse_ops_by_pattern::test_functions_and_matches_in_all_of_them",
    ),
    "outputs of tuples (14525)": ("tvm/test_partitioning::test_split",),
    "values made twice (16421)": (
        "tvm/test_fuse_ops_by_pattern::test_error_on_repeated_variable_definitions",
    ),
    "code outside dataflow blocks is left alone": (
        "tvm/test_probes::test_f4_bodies_are_partitioned",
    ),
    "a projection is never a root": ("tvm/test_probes::test_f3_an_output_may_be_the_root",),
    # regions
    "a group that grows is not known to those that depend on it": (
        "tvm/test_regions::test_a_region_that_grows_after_others_depend_on_it",
        "oracle/test_tvm_regions::test_a_cycle_that_tvm_makes",
    ),
    # catalogues of targets
    "add(bias, conv) crashes the check": (
        "tvm/test_fuse_ops_by_pattern::test_a_bias_on_either_side",
    ),
    "a projection crashes the check (15013)": (
        "tvm/test_fuse_ops_by_pattern::test_a_root_that_is_an_output_of_a_split",
    ),
    # rewriting
    "a rule that undoes itself has no end (15495)": (
        "passes/test_rewrite_growth::test_rules_without_an_end",
        "passes/test_rewrite_catalogues::test_rules_without_an_end_are_named",
    ),
    "a hundred rounds are the end of everything": (
        "passes/test_rewrite_growth::test_a_long_way_is_no_endless_one",
    ),
    "nodes that are rebuilt hang the pass (5680)": (
        "tvm/test_rewriting_functions::test_match_match",
    ),
    "an identity rewrite crashes (5605)": ("tvm/test_rewriting_functions::test_nested_rewrite",),
    # rules from functions
    "attributes of a rule are ignored": (
        "tvm/test_probes::test_fm1_attributes_of_a_pattern_count",
    ),
    "constants of a rule are refused": ("tvm/test_probes::test_fm2_constants_in_a_pattern",),
    "scalars of a rule are ignored": ("tvm/test_probes::test_fm3_scalar_arguments_count",),
}
"""What does not work in TVM and its users met, with the numbers of issues."""


@cache
def docstrings() -> dict[str, str]:
    """Return what each test of the suite says of itself, by ``folder/file::test``."""
    found = {}
    for path in TESTS.rglob("test_*.py"):
        name = path.relative_to(TESTS).with_suffix("").as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found[f"{name}::{node.name}"] = ast.get_docstring(node) or ""
    return found


@pytest.mark.parametrize(
    ("table", "count"),
    [
        (RELAY_PARTITION, 18),
        (MERGE_COMPOSITE, 13),
        (MERGE_COMPOSITE_FUNCTIONS, 12),
        (FUSE_OPS_BY_PATTERN, 27),
    ],
)
def test_every_upstream_test_is_here(table: Mapping[str, tuple[str, ...]], count: int) -> None:
    """None is missing, and the tests named say which of TVM's they are."""
    assert len(table) == count
    assert [name for name, tests in table.items() if not tests] == []
    for upstream, tests in table.items():
        assert [test for test in tests if upstream not in docstrings().get(test, "")] == []


def test_every_defect_has_a_test() -> None:
    """Tests may be renamed, but not without this table."""
    named = [test for tests in DEFECTS.values() for test in tests]
    assert [test for test in named if test not in docstrings()] == []
    assert [defect for defect, tests in DEFECTS.items() if not tests] == []
