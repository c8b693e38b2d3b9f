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
    "attention": "attention",
    "attention_causal": "attention_layouts",
    "attention_of_rows": "attention_layouts",
    "attention_unmerged": "attention_layouts",
    "attention_with_cache": "attention_layouts",
    "double_later": "rotary_tables",
    "finite_mask": "finite_masks",
    "onnxruntime_attention": "onnxruntime_attention",
    "onnxruntime_attention_with_cache": "onnxruntime_attention",
    "onnxruntime_rotary_embedding": "rotary_embedding",
    "rotary_embedding": "rotary_embedding",
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
