"""The functions that rewrite rules of YAML catalogues may name without importing anything.

Each takes a match and a :class:`~dplcli.dpl.draft.GraphBuilder` and describes what takes the
match's place. Those made by :func:`nodewise` need no pattern: they look at nodes one by one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dplcli.errors import CatalogError, did_you_mean

if TYPE_CHECKING:
    from dplcli.dpl.draft import RewriteFunction

_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "attention": ("attention",),
    "attention_layouts": (
        "attention_causal",
        "attention_of_rows",
        "attention_unmerged",
        "attention_with_cache",
    ),
    "casts": ("resolve_cast_like",),
    "chains": (
        "drop_identity",
        "drop_repeated",
        "merge_casts",
        "merge_concats",
        "merge_transposes",
    ),
    "clips": ("merge_clips",),
    "constant_nodes": ("constants_to_initializers", "drop_unread"),
    "finite_masks": ("finite_mask",),
    "fold_constants": ("fold_constants",),
    "gemms": ("transpose_into_gemm",),
    "group_normalization": ("group_normalization",),
    "merge_common": ("merge_common",),
    "merge_initializers": ("merge_initializers",),
    "normalizations": (
        "instance_normalization",
        "layer_normalization",
        "layer_normalization_of_rows",
        "layer_normalization_of_rows_with_statistics",
        "rms_normalization",
    ),
    "onnxruntime_attention": ("onnxruntime_attention", "onnxruntime_attention_with_cache"),
    "ort_fusions": (
        "ort_embed_layer_normalization",
        "ort_fused_conv",
        "ort_fused_gemm",
        "ort_fused_matmul_scale",
        "ort_fused_matmul_transpose",
        "ort_skip_layer_normalization",
        "ort_skip_simplified_layer_normalization",
    ),
    "ort_nbits": ("ort_matmul_nbits",),
    "ort_quantized": (
        "ort_dequantized_matmul",
        "ort_dynamic_quantize_matmul",
        "ort_matmul_bias",
        "ort_matmul_integer_to_float",
        "ort_qgemm",
        "ort_qlinear_binary",
        "ort_qlinear_concat",
        "ort_qlinear_conv",
        "ort_qlinear_matmul",
        "ort_qlinear_unary",
        "ort_qlinear_where",
    ),
    "pads": ("pad_into_average_pool", "pad_into_conv", "pad_into_max_pool"),
    "reductions": (
        "reduce_l1",
        "reduce_l2",
        "reduce_log_sum",
        "reduce_log_sum_exp",
        "reduce_sum_square",
    ),
    "reshapes": ("drop_reshaping", "fix_reshape_targets", "merge_reshapes"),
    "rotary_embedding": ("onnxruntime_rotary_embedding", "rotary_embedding"),
    "rotary_tables": ("double_later",),
    "shape_arithmetic": ("reuse_shape_arithmetic",),
    "slices": ("merge_slices_into_split",),
    "states": ("drop_zero_states",),
}
"""The functions of each module."""

_MODULES = {name: module for module, names in _FUNCTIONS.items() for name in names}


def find_transform(name: str) -> RewriteFunction:
    """Return the function called *name*.

    Raises:
        CatalogError: There is none.
    """
    if name not in _MODULES:
        hint = did_you_mean(name, _MODULES) or f"there are: {', '.join(sorted(_MODULES))}"
        raise CatalogError(f"dpl has no function {name!r}", hint=hint)
    module = import_module(f"dplcli.dpl.transforms.{_MODULES[name]}")
    function: RewriteFunction = getattr(module, name)
    return function
