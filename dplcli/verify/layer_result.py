"""How two models compare inside: frozen values, no behaviour."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dplcli.verify.result import OutputComparison


@dataclass(frozen=True)
class Layer:
    """A value of the original, beside the value of the candidate that ought to be the same.

    Attributes:
        original: Its name in the original.
        candidate: Its name in the candidate.
        op_type: The operator that makes it in the original.
        how: What aligned the two: ``structure``, ``log``, ``numbers``, ``dataflow`` or ``output``.
        comparison: How they compare, with optimisation off.
    """

    original: str
    candidate: str
    op_type: str
    how: str
    comparison: OutputComparison

    @property
    def ok(self) -> bool:
        """Whether the two agree."""
        return self.comparison.ok


@dataclass(frozen=True)
class Layers:
    """Two models compared inside.

    Attributes:
        layers: The values aligned, in the original's order.
        alone: How many values of the original and of the candidate have no counterpart.
        seed: The seed of the inputs.
        peak: The most bytes of values that were held at once, of one model.
        doubtful: Pairs that dataflow suggests and that differ, while all that comes of them
            agrees: most likely other steps on the way to one result.
    """

    layers: tuple[Layer, ...]
    alone: tuple[int, int]
    seed: int
    peak: int
    doubtful: tuple[Layer, ...] = ()

    @property
    def first(self) -> Layer | None:
        """The first value that differs, in the original's order; None if none does."""
        return next((layer for layer in self.layers if not layer.ok), None)

    def counts(self) -> Counter[str]:
        """Count the values aligned by what aligned them."""
        return Counter(layer.how for layer in self.layers)

    def to_json(self) -> dict[str, object]:
        """Return the record ``dpl.layers/1``."""
        first = self.first
        return {
            "schema": "dpl.layers/1",
            "seed": self.seed,
            "alone": list(self.alone),
            "first": None if first is None else first.original,
            "layers": [
                {
                    "original": layer.original,
                    "candidate": layer.candidate,
                    "op_type": layer.op_type,
                    "aligned_by": layer.how,
                    **_figures(layer.comparison),
                }
                for layer in self.layers
            ],
        }


def _figures(comparison: OutputComparison) -> dict[str, object]:
    record = comparison.to_json()
    for key in ("name", "level", "baseline", "seed"):
        del record[key]
    return record
