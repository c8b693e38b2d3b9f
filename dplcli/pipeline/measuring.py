"""Measuring how much of a model's work is inside matches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.onnx_io import exact_types, open_sizes
from dplcli.passes.coverage import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.ir import Model, Shape, Value
    from dplcli.passes.coverage import Coverage
    from dplcli.passes.selection import Selection


def measured_coverage(model: Model, selection: Selection, sizes: Mapping[str, int]) -> Coverage:
    """Say how much of *model* is inside the matches of *selection*, not outlined yet.

    Args:
        model: The model that was matched, as it was loaded.
        selection: What was found.
        sizes: A number per symbolic dimension of the inputs, or per ``input:axis``.

    Raises:
        UsageError: No input has such a dimension.
    """
    types, problem = exact_types(model, sizes)

    def shape_of(value: Value) -> Shape | None:
        known = types.get(value) or value.declared_type
        return None if known is None else known.shape

    missing = tuple(name for name in open_sizes(model) if name not in sizes)
    return replace(measure(model, selection, shape_of, missing), problem=problem)
