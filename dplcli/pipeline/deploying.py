"""Plans of partitions, and the library that runs them in programs without dpl."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.errors import ModelLoadError, UsageError, opt
from dplcli.execute import LIBRARIES, kernels_for
from dplcli.execute.onednn.library import Library
from dplcli.outcomes.running import KernelsOutcome
from dplcli.pipeline.verifying import compare
from dplcli.pipeline.writing import write_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAN_MARK = b"dpl-plan "
"""What a plan begins with."""

_NOT_HERE = "on this CPU onnxruntime runs all partitions of the plan, so no numbers were compared"


def plan_kernels(
    path: Path,
    output: Path,
    math: str = "fp32",
    *,
    verify: bool = True,
    progress: Callable[[str], None] | None = None,
) -> KernelsOutcome:
    """Write a plan of the partitions of a model that oneDNN runs; none if there is no such.

    None is written, either, if the model gives something else on oneDNN.

    Args:
        path: The model.
        output: The plan to write.
        math: In which arithmetic products of float32 may be computed: "fp32" or "bf16".
        verify: Whether to compare what partitions give on oneDNN with what their bodies give.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: The model cannot be read, there is no oneDNN, or the plan cannot be written.
    """
    from dplcli.verify import run  # noqa: PLC0415  # numpy
    from dplcli.verify.check import Check, Execution  # noqa: PLC0415  # numpy

    if not path.is_file():
        raise ModelLoadError(f"{path}: no such file")
    planner = "dplcli.execute.onednn.session"
    text, partitions = run.plan_kernels(path, "dnnl", planner, LIBRARIES["dnnl"], math)
    outcome = KernelsOutcome(label=path.name, partitions=tuple(partitions), output=output)
    if outcome.taken and verify:
        here = math if math == "fp32" or Library().has_bf16 else "fp32"  # which such a plan runs in
        check = Check(execution=Execution(kernels=kernels_for("dnnl", math=here)))
        result = compare(path, path, check, progress)
        if result.kernels is None or result.kernels.ran:
            outcome = replace(outcome, verification=result)
        else:  # where this CPU would be inexact; the plan is for others, too
            outcome = replace(outcome, notes=(_NOT_HERE,))
    if outcome.ok:
        write_text(output, text, opt("output"))
    return outcome


def build_kernels(output: Path, dnnl: str | None) -> tuple[str, str]:
    """Compile the library that runs plans, as :func:`dplcli.execute.operators.build_library` does.

    Raises:
        UsageError: There is no compiler, it fails, or the library cannot be written.
    """
    from dplcli.execute.operators import build_library  # noqa: PLC0415  # onnxruntime

    try:
        return build_library(output, dnnl)
    except OSError as error:
        raise UsageError(
            f"{opt('output')} {output}: cannot be written: {error.strerror}"
        ) from error
