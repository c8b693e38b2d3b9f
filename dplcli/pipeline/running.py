"""Run a model once, with its partitions on the library of their target if that is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.errors import VerificationError
from dplcli.onnx_io import check_external_data, load_model
from dplcli.outcomes import RunOutcome
from dplcli.pipeline.verifying import check_of, compare, prepare
from dplcli.verify.settings import (
    REFERENCE_LEVEL,
    KernelReport,
    ModelSource,
    RunError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.settings import RunSettings


def run_model(path: Path, chosen: RunSettings) -> RunOutcome:
    """Run a model in onnxruntime, on given inputs or on inputs made up for it.

    Args:
        path: The model.
        chosen: Seed, sizes and inputs, level and kernels, and where what it gives is written.

    Raises:
        DplError: The file is no model, onnxruntime does not run it, or a library is missing.
    """
    from dplcli.verify.compare import Facts  # noqa: PLC0415  # onnx
    from dplcli.verify.inputs import (  # noqa: PLC0415  # onnx
        check_saving,
        open_reference,
        save_inputs,
        save_outputs,
    )
    from dplcli.verify.model import Dataflow, read_model  # noqa: PLC0415  # onnx
    from dplcli.verify.run import Runner, check_setup  # noqa: PLC0415  # onnxruntime

    settings, output = check_of(chosen), chosen.output
    say = chosen.progress or (lambda _phrase: None)
    for option, place in (("--output", output), ("--save-inputs", settings.request.save)):
        check_saving(option, place, path, settings.request.given)
    prepare(settings)
    check_external_data(load_model(path))
    check_setup(settings.custom_ops, settings.execution)
    try:
        reference = open_reference(
            path,
            Dataflow(read_model(path)),
            Facts(),
            settings,
            create=lambda source: Runner(source, REFERENCE_LEVEL),
            resize=False,
            say=say,
        )
    except VerificationError as error:
        message = error.message.replace("the original model", path.name)
        raise VerificationError(message, hint=error.hint) from error
    if settings.request.save is not None:
        save_inputs(settings.request.save, reference.stimulus)
    case, fed = next(iter(reference.stimulus.cases.items()))
    (level,) = settings.judged_levels
    say("running")
    source = ModelSource(path, libraries=settings.custom_ops, execution=settings.execution)
    try:
        runner = Runner(source, level)
        outputs = runner.run(reference.feeds[case])
    except RunError as error:
        raise VerificationError(f"{path.name} does not run: {error}") from error
    kernels = settings.execution.kernels
    report = None if kernels is None else KernelReport(kernels, 1, tuple(runner.record()))
    verification = None
    if chosen.checked:
        settings = replace(settings, request=replace(settings.request, save=None))
        verification = compare(path, path, settings, chosen.progress)
    outcome = RunOutcome(
        label=path.name,
        fed=fed,
        feeds=reference.stimulus.feeds[case],
        level=level,
        leaves=outputs,
        kernels=report,
        verification=verification,
        notes=reference.stimulus.notes,
    )
    if output is None or outcome.complaints:  # if the answer is no, nothing is left behind
        return outcome
    save_outputs(output, outputs)
    return replace(outcome, output=output)
