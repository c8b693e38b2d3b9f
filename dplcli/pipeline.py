"""The library's front door: what the commands do, for programs.

Every function takes paths and plain settings and returns a frozen outcome; none prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.dpl import load_catalogs, shipped_catalogs
from dplcli.errors import CatalogError, UsageError, VerificationError, did_you_mean
from dplcli.onnx_io import (
    check_destination,
    check_external_data,
    check_model,
    load_model,
    paused_gc,
    staged,
)
from dplcli.passes.partition import partition as outline_matches
from dplcli.passes.selection import select_matches
from dplcli.verify import LEVELS, VerificationResult
from dplcli.verify import Settings as VerifySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from dplcli.dpl import PatternRule
    from dplcli.ir import Model, Node
    from dplcli.passes.partition import Partition
    from dplcli.passes.selection import Selection

    Progress = Callable[[str], None]

__all__ = [
    "LEVELS",
    "Expectation",
    "MatchOutcome",
    "PartitionOutcome",
    "PartitionSettings",
    "VerificationResult",
    "VerifySettings",
    "check_output",
    "default_output",
    "find_nodes",
    "inspect",
    "load_rules",
    "match",
    "parse_expectations",
    "partition",
    "verify",
]

_EXPECTATION = re.compile(r"^\s*([\w.]+)\s*(>=|<=|==|=|>|<)\s*([0-9]{1,9})\s*$")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">=": lambda found, wanted: found >= wanted,
    "<=": lambda found, wanted: found <= wanted,
    "==": lambda found, wanted: found == wanted,
    "=": lambda found, wanted: found == wanted,
    ">": lambda found, wanted: found > wanted,
    "<": lambda found, wanted: found < wanted,
}


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
class Expectation:
    """A demand on the number of matches of a rule."""

    text: str
    rule: str
    relation: str
    number: int

    def is_met(self, counts: dict[str, int]) -> bool:
        """Tell whether *counts* satisfy it."""
        return _COMPARE[self.relation](counts[self.rule], self.number)


def load_rules(patterns: Iterable[str], targets: Iterable[str], model: Model) -> list[PatternRule]:
    """Read the rules of all catalogues named.

    Args:
        patterns: Paths of catalogues, or names of shipped ones.
        targets: Names of shipped catalogues that are complete for a target.
        model: Supplies the operator schemas.

    Raises:
        CatalogError: A catalogue cannot be found or read, or none is named.
    """
    names = [*patterns, *targets]
    if not names:
        raise UsageError("no catalogue is named", hint="pass --patterns FILE or --target NAME")
    shipped = shipped_catalogs()
    for target in targets:
        if target not in shipped:
            hint = did_you_mean(target, shipped) or f"there are: {', '.join(shipped)}"
            raise CatalogError(f"--target {target}: no such catalogue", hint=hint)
    rules = load_catalogs(names, model.codec.schemas)
    if not rules:
        raise CatalogError(f"{', '.join(names)}: no rules to apply")
    return rules


@paused_gc()
def match(
    model_path: Path,
    *,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    expectations: Sequence[str] = (),
) -> MatchOutcome:
    """Find what :func:`partition` would outline, without changing anything.

    Raises:
        DplError: The model or a catalogue cannot be used.
    """
    model = load_model(model_path)
    rules = load_rules(patterns, targets, model)
    expected = parse_expectations(expectations, rules)
    selection = select_matches(model, rules)
    outcome = MatchOutcome(model_path.name, tuple(rules), selection, notes=tuple(model.notes))
    return replace(outcome, unmet=_unmet(expected, outcome.counts))


@paused_gc()
def partition(  # noqa: PLR0913  # all by keyword
    model_path: Path,
    *,
    output: Path,
    patterns: Sequence[str] = (),
    targets: Sequence[str] = (),
    settings: PartitionSettings | None = None,
    progress: Progress | None = None,
) -> PartitionOutcome:
    """Outline every match as a function call, verify the result, and write it.

    The output appears complete, or not at all: it is written beside its place, checked, compared
    with the original, and only then put there.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    settings = settings or PartitionSettings()
    say = progress or _say_nothing
    check_output(model_path, output, in_place=settings.in_place)
    say(f"reading {model_path.name}")
    model = load_model(model_path)
    rules = load_rules(patterns, targets, model)
    expected = parse_expectations(settings.expectations, rules)
    before = model.graph.node_count
    say("matching")
    selection = select_matches(model, rules)
    say("outlining")
    partitions = outline_matches(model, selection)
    say("writing")
    with staged(model, output) as written:
        outcome = PartitionOutcome(
            label=model_path.name,
            rules=tuple(rules),
            selection=selection,
            notes=tuple(model.notes),
            partitions=tuple(partitions),
            nodes=(before, model.graph.node_count),
        )
        outcome = replace(outcome, unmet=_unmet(expected, outcome.counts))
        outcome = _checked(outcome, model_path, written.path, settings, say)
        if outcome.is_success:
            written.commit()
            return replace(outcome, output=output)
        if settings.keep_failed:
            kept = output.with_name(f"{output.stem}.failed.onnx")
            written.keep_as(kept)
            return replace(outcome, kept=kept)
    return outcome


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
    from dplcli.verify.equivalence import verify_equivalence  # noqa: PLC0415  # onnxruntime

    for path in (original, candidate):
        check_external_data(load_model(path))
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
    return model_path.with_name(f"{model_path.stem}.partitioned.onnx")


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


def parse_expectations(texts: Iterable[str], rules: Sequence[PatternRule]) -> list[Expectation]:
    """Read expectations such as ``dnnl.conv2d_bias_relu>=33``.

    Raises:
        UsageError: One is malformed, or names a rule that the catalogues do not have.
    """
    known = {rule.qualified_name for rule in rules}
    expectations = []
    for text in texts:
        found = _EXPECTATION.match(text)
        if found is None:
            raise UsageError(
                f"--expect {text!r}: not an expectation", hint="write RULE>=NUMBER, or <= == > <"
            )
        rule, relation, number = found.groups()
        if rule not in known:
            raise UsageError(
                f"--expect {text!r}: there is no rule {rule!r}",
                hint=did_you_mean(rule, sorted(known)),
            )
        expectations.append(Expectation(text.strip(), rule, relation, int(number)))
    return expectations


def _unmet(expected: Iterable[Expectation], counts: dict[str, int]) -> tuple[str, ...]:
    return tuple(
        f"expected {item.text}, found {counts[item.rule]}"
        for item in expected
        if not item.is_met(counts)
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
        result = verify(original, candidate, settings=settings.verification, progress=say)
    except VerificationError as error:
        without = "pass --no-verify to write the result unverified"
        hint = f"{error.hint}; or {without}" if error.hint else without
        raise VerificationError(error.message, hint=hint) from error
    return replace(outcome, verification=result)


def _say_nothing(phrase: str) -> None:
    """Report progress to nobody."""
