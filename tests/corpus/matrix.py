"""One cell of the matrix: a model, a target, and a way to write its partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplcli import pipeline
from dplcli.errors import VerificationError
from dplcli.onnx_io import check_model
from dplcli.settings import PartitionSettings

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.outcomes.partitioning import PartitionOutcome

TARGETS = ("dnnl", "cublas", "cutlass")
"""What is tried; one word more is one column more."""

FORMS = {
    "plain": PartitionSettings(),
    "merged": PartitionSettings(merge=True),
}
"""Ways to write partitions, by name: each is tried with every policy for constants."""

CONSTANTS = ("lift", "embed")

LARGEST_GROWTH = 0.05
"""How much a file may grow with lifted constants, as a part of its size."""

FOR_EACH_FUNCTION = 700
"""By how many bytes more, for each function: it is there once, however large the weights are."""

FOR_EACH_CALL = {"plain": 0, "merged": 350}
"""By how many bytes more, for each partition: a call in a region is written down twice."""


@dataclass(frozen=True)
class Cell:
    """What became of a model.

    Attributes:
        partitions: How many calls were written.
        functions: How many functions.
        growth: By how much the file grew, as a part of its size.
        ran: Whether onnxruntime runs the original, so that both could be compared.
    """

    partitions: int
    functions: int
    growth: float
    ran: bool


def fill(  # noqa: PLR0913  # by keyword
    model: Path,
    folder: Path,
    *,
    target: str,
    constants: str,
    form: str = "plain",
    verify: bool = True,
) -> Cell:
    """Partition *model* and check what must hold of every cell.

    onnx.checker and the comparison in onnxruntime, without optimisation and with all of it, are
    the partition's own: it fails if they do. A second run must copy the file.

    Args:
        model: The model.
        folder: Where to write.
        target: The catalogue.
        constants: What becomes of constants, in every rule.
        form: One of :data:`FORMS`.
        verify: Whether to compare numbers.
    """
    once, twice = folder / "once.onnx", folder / "twice.onnx"

    def run(source: Path, output: Path, *, verified: bool) -> PartitionOutcome:
        settings = FORMS[form].but(
            output=output,
            target=[target],
            constants=constants,
            verify=verified,
            seed=0,
            level=("disable", "all"),
        )
        return pipeline.partition(source, settings)

    try:
        outcome = run(model, once, verified=verify)
        ran = verify
    except VerificationError:
        outcome, ran = run(model, once, verified=False), False
    assert outcome.ok
    if outcome.is_changed and check_model(model) == "":
        assert check_model(once) == ""
    assert outcome.is_changed == (once.read_bytes() != model.read_bytes())
    if outcome.is_changed and ran:
        assert outcome.verification is not None
        assert outcome.verification.proof is not None
        levels = {output.level for output in outcome.verification.outputs}
        told = " ".join(outcome.verification.warnings)
        ran = "it was not run" not in told
        is_silent = not ran or "outputs are not compared" in told
        assert levels == (set() if is_silent else {"disable", "all"})
    assert not run(once, twice, verified=False).is_changed
    assert twice.read_bytes() == once.read_bytes()
    size = model.stat().st_size
    functions = {partition.function for partition in outcome.partitions}
    functions |= {region.function for region in outcome.regions or ()}
    return Cell(len(outcome.partitions), len(functions), once.stat().st_size / size - 1, ran)
