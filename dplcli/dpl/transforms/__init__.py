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

_MODULES: dict[str, str] = {
    "constants_to_initializers": "constant_nodes",
    "drop_identity": "chains",
    "drop_repeated": "chains",
    "drop_reshaping": "reshapes",
    "drop_unread": "constant_nodes",
    "drop_zero_states": "states",
    "fix_reshape_targets": "reshapes",
    "fold_constants": "fold_constants",
    "merge_casts": "chains",
    "merge_clips": "clips",
    "merge_common": "merge_common",
    "merge_concats": "chains",
    "merge_initializers": "merge_initializers",
    "merge_reshapes": "reshapes",
    "merge_slices_into_split": "slices",
    "merge_transposes": "chains",
    "pad_into_average_pool": "pads",
    "pad_into_conv": "pads",
    "pad_into_max_pool": "pads",
    "reuse_shape_arithmetic": "shape_arithmetic",
    "transpose_into_gemm": "gemms",
    "group_normalization": "group_normalization",
    "resolve_cast_like": "casts",
    **dict.fromkeys(
        ("reduce_l1", "reduce_l2", "reduce_log_sum", "reduce_log_sum_exp", "reduce_sum_square"),
        "reductions",
    ),
    **dict.fromkeys(
        (
            *("instance_normalization", "layer_normalization", "rms_normalization"),
            "layer_normalization_of_rows",
            "layer_normalization_of_rows_with_statistics",
        ),
        "normalizations",
    ),
    "ort_embed_layer_normalization": "ort_fusions",
    "ort_fused_conv": "ort_fusions",
    "ort_fused_gemm": "ort_fusions",
    "ort_fused_matmul_scale": "ort_fusions",
    "ort_fused_matmul_transpose": "ort_fusions",
    "ort_skip_layer_normalization": "ort_fusions",
    "ort_skip_simplified_layer_normalization": "ort_fusions",
}
"""The module of each function."""


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
