"""The functions that rewrite rules of YAML catalogues may name without importing anything.

Each takes a match and a :class:`~dplcli.language.replacement.GraphBuilder` and describes what takes
the match's place. Those made by :func:`nodewise` need no pattern: they look at nodes one by one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dplcli.errors import CatalogError, did_you_mean

if TYPE_CHECKING:
    from dplcli.language.replacement import RewriteFunction


_FUNCTIONS = {
    "attention": """
        attention attention_causal attention_with_cache finite_mask onnxruntime_attention
        onnxruntime_attention_with_cache
    """,
    "onnxruntime": "ort_dequantised_concat ort_dequantised_gemm ort_dequantised_pool "
    "ort_matmul_nbits ort_qlinear_concat",
    "rotary": "onnxruntime_rotary_embedding rotary_embedding",
    "simplification": """
        constants_to_initializers drop_unread drop_zero_states fold_constants inline_bodies
        merge_common merge_initializers merge_slices_into_split reuse_shape_arithmetic
        split_sequences
    """,
}
"""The functions of each module."""

_MODULES = {name: module for module, names in _FUNCTIONS.items() for name in names.split()}


def find_transform(name: str) -> RewriteFunction:
    """Return the function called *name*.

    Raises:
        CatalogError: There is none.
    """
    if name not in _MODULES:
        hint = did_you_mean(name, _MODULES) or f"there are: {', '.join(sorted(_MODULES))}"
        raise CatalogError(f"dpl has no function {name!r}", hint=hint)
    module = import_module(f"dplcli.rewrites.{_MODULES[name]}")
    function: RewriteFunction = getattr(module, name)
    return function
