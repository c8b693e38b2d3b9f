"""Measuring how much of a model's work is inside matches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.onnx_io import built_again, check_sizes, exact_types, open_sizes
from dplcli.passes.coverage import fates, measure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Model, Shape, Value
    from dplcli.passes.coverage import Coverage
    from dplcli.passes.selection import Selection
    from dplcli.verify import Settings as VerifySettings
    from dplcli.verify.result import VerificationResult


class Measuring:
    """Says how much of a model is inside matches that are about to be outlined.

    Which node is in which match is noted at once, and where all sizes are known, what it costs. A
    check chooses the sizes that are left open, so there costs are counted when it is done.

    Args:
        model: The model that was matched, as it was loaded.
        selection: What was found.
        sizes: A number per symbolic dimension of the inputs, or per ``input:axis``.
        can_wait: Whether a check of the result is to come.

    Raises:
        UsageError: No input has such a dimension.
    """

    def __init__(
        self, model: Model, selection: Selection, sizes: Mapping[str, int], *, can_wait: bool
    ) -> None:
        """Note what became of each node."""
        self._model = model
        self._fates = fates(model, selection)
        self._sizes = sizes
        check_sizes(model, sizes)
        waits = can_wait and not sizes.keys() >= {*open_sizes(model)}
        self._coverage = None if waits else self._measured(model, ())

    def coverage(self, result: VerificationResult | None) -> Coverage:
        """Return what was measured, at the sizes that a check chose where nobody gave any."""
        if self._coverage is None:
            model = built_again(self._model)
            fed = {} if result is None else {item.name: item.shape for item in result.inputs}
            chosen = {n: s for n, s in _sizes_in(model, fed).items() if n not in self._sizes}
            self._sizes = {**self._sizes, **chosen}
            self._coverage = self._measured(model, tuple(chosen))
        return self._coverage

    def _measured(self, model: Model, chosen: tuple[str, ...]) -> Coverage:
        types, problem = exact_types(model, self._sizes)

        def shape_of(value: Value) -> Shape | None:
            known = types.get(value) or value.declared_type
            return None if known is None else known.shape

        missing = tuple(name for name in open_sizes(model) if name not in self._sizes)
        found = measure(model, self._fates, shape_of, missing)
        return replace(found, problem=problem, sizes=self._sizes, chosen=chosen)


def measured_coverage(model: Model, selection: Selection, sizes: Mapping[str, int]) -> Coverage:
    """Say how much of *model* is inside the matches of *selection*, not outlined yet.

    Raises:
        UsageError: No input has such a dimension.
    """
    return Measuring(model, selection, sizes, can_wait=False).coverage(None)


def given_sizes(model: Model, settings: VerifySettings | None) -> dict[str, int]:
    """Return the sizes that somebody gave, those in whole shapes of inputs included."""
    if settings is None:
        return {}
    return {**_sizes_in(model, settings.request.shapes), **settings.sizes}


def _sizes_in(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return what the *shapes* of inputs say of dimensions that *model* leaves open."""
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        shape, declared = shapes.get(value.name), value.declared_type
        if shape is None or declared is None or declared.shape is None:
            continue
        for axis, (dim, size) in enumerate(zip(declared.shape, shape, strict=False)):
            if not isinstance(dim, int):
                sizes.setdefault(dim or f"{value.name}:{axis}", size)
    return sizes
