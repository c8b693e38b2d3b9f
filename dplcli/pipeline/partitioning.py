"""Outlining, checking and writing a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.dpl.expectation import parse_expectations, unmet_expectations
from dplcli.errors import UsageError, VerificationError
from dplcli.onnx_io import (
    check_destination,
    check_external_data,
    check_model,
    external_files,
    load_model,
    paused_gc,
    staged,
)
from dplcli.passes.partition import partition as outline_matches
from dplcli.passes.selection import select_matches
from dplcli.pipeline.matching import MatchOutcome
from dplcli.pipeline.rules import RuleSource, load_rules
from dplcli.pipeline.verifying import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dplcli.dpl import PatternRule
    from dplcli.ir import Model
    from dplcli.passes.partition import Partition
    from dplcli.verify import Settings as VerifySettings
    from dplcli.verify import VerificationResult

    Progress = Callable[[str], None]


@dataclass(frozen=True)
class PartitionOutcome(MatchOutcome):
    """What :func:`partition` did.

    Attributes:
        partitions: The calls written, in program order.
        output: The file written; None if nothing was, because the answer is no.
        kept: Where a failed result was kept for a look.
        nodes: Nodes of the model before and after, function bodies not counted.
        objection: What onnx.checker says of the result though it accepts the original, or "".
        verification: The numerical check; None if it was not made.
    """

    partitions: tuple[Partition, ...] = ()
    output: Path | None = None
    kept: Path | None = None
    nodes: tuple[int, int] = (0, 0)
    objection: str = ""
    verification: VerificationResult | None = None

    @property
    def is_changed(self) -> bool:
        """Whether the result differs from the model at all."""
        return bool(self.partitions)

    @property
    def is_success(self) -> bool:
        """Whether the answer is yes: valid, equivalent as far as checked, as expected."""
        equivalent = self.verification is None or self.verification.equivalent
        return equivalent and not self.objection and not self.unmet


@dataclass(frozen=True)
class PartitionSettings:
    """How :func:`partition` should go about it.

    Attributes:
        verify: Whether to compare the result with the original in onnxruntime.
        verification: How to compare; None for the defaults.
        expectations: Such as ``dnnl.conv2d_bias_relu>=33``.
        in_place: Whether the output may replace the input.
        keep_failed: Whether to keep a result that fails as ``*.failed.onnx``.
    """

    verify: bool = True
    verification: VerifySettings | None = None
    expectations: Sequence[str] = ()
    in_place: bool = False
    keep_failed: bool = False


@paused_gc()
def partition(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    *,
    output: Path,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    rules: Sequence[PatternRule] = (),
    settings: PartitionSettings | None = None,
    allow_code: bool = False,
    progress: Progress | None = None,
) -> PartitionOutcome:
    """Outline every match as a function call, verify the result, and write it.

    The output appears complete, or not at all: it is written beside its place, checked, compared
    with the original, and only then put there. Arguments as for :func:`match`.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    settings = settings or PartitionSettings()
    say = progress or _say_nothing
    check_output(model_path, output, in_place=settings.in_place)
    say(f"reading {model_path.name}")
    model = load_model(model_path)
    check_external_data(model)
    tried, files = load_rules(RuleSource(patterns, targets, rules, allow_code), model)
    failed = output.with_name(f"{output.stem}.failed.onnx") if settings.keep_failed else None
    protect_files(model, output, failed, files)
    expected = parse_expectations(settings.expectations, tried)
    outcome = _outline(model, tried, say)
    outcome = replace(outcome, unmet=unmet_expectations(expected, outcome.counts))
    say("writing")
    with staged(model, output) as written:
        outcome = _checked(outcome, model_path, written.path, settings, say)
        if outcome.is_success:
            written.commit()
            return replace(outcome, output=output)
        if failed is not None:
            written.keep_as(failed)
            return replace(outcome, kept=failed)
    return outcome


def _outline(model: Model, rules: Sequence[PatternRule], say: Progress) -> PartitionOutcome:
    before = model.graph.node_count
    say("matching")
    selection = select_matches(model, rules)
    say("outlining")
    partitions = outline_matches(model, selection)
    return PartitionOutcome(
        label="" if model.path is None else model.path.name,
        rules=tuple(rules),
        selection=selection,
        notes=tuple(model.notes),
        partitions=tuple(partitions),
        nodes=(before, model.graph.node_count),
    )


def default_output(model_path: Path) -> Path:
    """Return where :func:`partition` writes if nobody says otherwise."""
    return model_path.parent / f"{model_path.stem}.partitioned.onnx"


def protect_files(model: Model, output: Path, failed: Path | None, catalogs: set[Path]) -> None:
    """Refuse to write where something lies that the run reads, or brings along.

    Raises:
        UsageError: A path to write to is a catalogue, or holds weights, or would be the model.
    """
    data = external_files(model, output.parent)
    for path in (output, failed):
        if path is None:
            continue
        if path.resolve() in catalogs:
            raise UsageError(f"{path}: is a catalogue that this run reads")
        if path.resolve() in data:
            raise UsageError(f"{path}: is where the model's weights lie, or must lie")
        if path is failed and model.path is not None and path.resolve() == model.path.resolve():
            raise UsageError(f"{path}: a failed result would replace the model itself")


def check_output(model_path: Path, output: Path, *, in_place: bool) -> None:
    """Refuse early what could only fail after the work is done.

    Raises:
        UsageError: The output is the input, without leave.
        ModelExportError: The output's folder is missing or not writable.
    """
    check_destination(output)
    if output.exists() and model_path.exists() and output.samefile(model_path) and not in_place:
        raise UsageError(
            f"{output}: the output is the input", hint="pass --in-place to replace the model"
        )


def _checked(
    outcome: PartitionOutcome,
    original: Path,
    candidate: Path,
    settings: PartitionSettings,
    say: Progress,
) -> PartitionOutcome:
    """Add what onnx.checker and onnxruntime say; a model that is unchanged needs neither."""
    if not settings.verify or not outcome.is_changed:
        return outcome
    say("checking the result with onnx.checker")
    objection = check_model(candidate)
    if objection and check_model(original):
        objection = ""
    outcome = replace(outcome, objection=objection)
    if objection:
        return outcome
    try:
        result = compare(original, candidate, settings.verification, say)
    except VerificationError as error:
        without = "pass --no-verify to write the result unverified"
        hint = f"{error.hint}; or {without}" if error.hint else without
        raise VerificationError(error.message, hint=hint) from error
    return replace(outcome, verification=result)


def _say_nothing(phrase: str) -> None:
    """Report progress to nobody."""
