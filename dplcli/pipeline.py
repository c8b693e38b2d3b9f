"""The library's front door: what the commands do, for programs.

Every function takes paths and plain settings and returns a frozen outcome; none prints.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.dpl import load_catalogs, shipped_targets
from dplcli.dpl.catalog import check_distinct
from dplcli.dpl.expectation import parse_expectations, unmet_expectations
from dplcli.errors import CatalogError, UsageError, VerificationError, did_you_mean
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
from dplcli.verify import LEVELS, VerificationResult
from dplcli.verify import Settings as VerifySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dplcli.dpl import PatternRule
    from dplcli.ir import Model, Node
    from dplcli.passes.partition import Partition
    from dplcli.passes.selection import Selection

    Progress = Callable[[str], None]

__all__ = [
    "LEVELS",
    "MatchOutcome",
    "PartitionOutcome",
    "PartitionSettings",
    "VerificationResult",
    "VerifySettings",
    "check_output",
    "compare",
    "default_output",
    "find_nodes",
    "inspect",
    "load_rules",
    "match",
    "partition",
    "verify",
]


@dataclass(frozen=True)
class MatchOutcome:
    """What :func:`match` found.

    Attributes:
        label: The model's file name.
        rules: The rules, in listed order.
        selection: Matches taken, and matches refused with reasons.
        unmet: The expectations that were not met, each with what was found.
        notes: What a reader should know about the model.
    """

    label: str
    rules: tuple[PatternRule, ...]
    selection: Selection
    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Matches per rule, rules without any included."""
        counts = {rule.qualified_name: 0 for rule in self.rules}
        for found in self.selection.matches:
            counts[found.rule.qualified_name] += 1
        return counts


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


@dataclass(frozen=True)
class RuleSource:
    """Where the rules of a run come from, in order of priority.

    Attributes:
        patterns: Paths of catalogues, or names of shipped ones.
        targets: Names of shipped catalogues that are complete for a target.
        rules: Rules made in Python.
    """

    patterns: Sequence[str] = ()
    targets: Sequence[str] = ()
    rules: Sequence[PatternRule] = ()


def load_rules(source: RuleSource, model: Model) -> tuple[list[PatternRule], set[Path]]:
    """Gather the rules of *source*, and the files that they were read from.

    Raises:
        UsageError: No rule is named.
        CatalogError: A catalogue cannot be found or read, or two rules have the same name.
    """
    names = [*source.patterns, *source.targets]
    if not names and not source.rules:
        raise UsageError("no catalogue is named", hint="pass --patterns FILE or --target NAME")
    known = shipped_targets() if source.targets else []
    for target in source.targets:
        if target not in known:
            hint = did_you_mean(target, known) or f"there are: {', '.join(known)}"
            raise CatalogError(f"--target {target}: no such catalogue", hint=hint)
    files: set[Path] = set()
    rules = [*load_catalogs(names, model.codec.schemas, files=files), *source.rules]
    if not rules:
        raise CatalogError(f"{', '.join(names)}: no rules to apply")
    check_distinct(rules)
    return rules, files


@paused_gc()
def match(
    model_path: Path,
    *,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    rules: Sequence[PatternRule] = (),
    expectations: Sequence[str] = (),
) -> MatchOutcome:
    """Find what :func:`partition` would outline, without changing anything.

    Args:
        model_path: The model.
        patterns: Paths of catalogues, or names of shipped ones.
        targets: Names of shipped catalogues that are complete for a target.
        rules: Rules made in Python; they come after those of the catalogues.
        expectations: Such as ``dnnl.conv2d_bias_relu>=33``.

    Raises:
        DplError: The model or a catalogue cannot be used.
    """
    model = load_model(model_path)
    tried, _ = load_rules(RuleSource(patterns, targets, rules), model)
    expected = parse_expectations(expectations, tried)
    selection = select_matches(model, tried)
    outcome = MatchOutcome(model_path.name, tuple(tried), selection, notes=tuple(model.notes))
    return replace(outcome, unmet=unmet_expectations(expected, outcome.counts))


@paused_gc()
def partition(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    *,
    output: Path,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    rules: Sequence[PatternRule] = (),
    settings: PartitionSettings | None = None,
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
    tried, files = load_rules(RuleSource(patterns, targets, rules), model)
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


def verify(
    original: Path,
    candidate: Path,
    *,
    settings: VerifySettings | None = None,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare two models in onnxruntime.

    Raises:
        DplError: A file is no model, or no verdict can be reached.
    """
    for path in (original, candidate):
        check_external_data(load_model(path))
    return compare(original, candidate, settings, progress)


def compare(
    original: Path, candidate: Path, settings: VerifySettings | None, progress: Progress | None
) -> VerificationResult:
    """Compare two files that are known to be whole."""
    from dplcli.verify.equivalence import verify_equivalence  # noqa: PLC0415  # onnxruntime

    return verify_equivalence(original, candidate, settings or VerifySettings(), progress=progress)


def inspect(model_path: Path) -> Model:
    """Load a model to look at it.

    Raises:
        DplError: The file is no model.
    """
    return load_model(model_path)


def find_nodes(model: Model, name: str) -> list[Node]:
    """Return the nodes whose name, or an output's, is *name*; graphs in order.

    Raises:
        UsageError: There is none.
    """
    found, names = [], set()
    for graph in model.graphs():
        for node in graph:
            known = {node.name, *(output.name for output in node.outputs if output is not None)}
            names |= known
            if name in known:
                found.append(node)
    if not found:
        raise UsageError(
            f"{name!r}: no node has this name or makes a value of this name",
            hint=did_you_mean(name, sorted(names)),
        )
    return found


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
