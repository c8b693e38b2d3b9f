"""Write a result, check it, compare it with the original, and only then put it in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.errors import InvalidGraphError, UsageError, VerificationError
from dplcli.files import encoded, write_file
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import (
    check_destination,
    check_external_data,
    check_imports,
    check_model,
    external_files,
    is_modified,
    load_model,
    staged,
)
from dplcli.outcomes import BrokenTurn, Verdict
from dplcli.passes.rewrite import RewriteObserver
from dplcli.pipeline.verifying import compare, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dplcli.dpl import RewriteRule
    from dplcli.ir import Model
    from dplcli.passes.rewrite import Application
    from dplcli.verify import Settings as VerifySettings

    Progress = Callable[[str], None]


@dataclass(frozen=True)
class WriteSettings:
    """How a result is checked and written.

    Attributes:
        verify: Whether to compare the result with the original in onnxruntime.
        verification: How to compare; None for the defaults.
        expectations: Such as ``dnnl.conv2d_bias_relu>=33``.
        in_place: Whether the output may replace the input.
        keep_failed: Whether to keep a result that fails as ``*.failed.onnx``.

    Raises:
        UsageError: The check is asked to have some power, and not to be made.
    """

    verify: bool = True
    verification: VerifySettings | None = None
    expectations: Sequence[str] = ()
    in_place: bool = False
    keep_failed: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, before any work is done."""
        if self.verify or self.verification is None:
            return
        if self.verification.mutants or self.verification.min_power is not None:
            raise UsageError(
                "a check that is not made has no power",
                hint="leave --no-verify out, or --mutants and --min-power",
            )

    def failed_path(self, output: Path) -> Path | None:
        """Return where a result that fails is kept, if it is."""
        return output.with_name(f"{output.stem}.failed.onnx") if self.keep_failed else None


def write_checked(
    model: Model,
    output: Path,
    settings: WriteSettings,
    check: Callable[[Path], Verdict],
    *,
    is_wanted: Callable[[int], bool],
) -> Verdict:
    """Write *model* beside *output*, check it, and put it there if all is well.

    Args:
        model: The result.
        output: Where to write it.
        settings: Whether to keep what fails.
        check: Says what is to be said of the file.
        is_wanted: Tells whether a file of so many bytes is to be written if it is sound.

    Raises:
        DplError: The output cannot be written, or no verdict can be reached.
    """
    with staged(model, output) as written:
        size = written.path.stat().st_size
        verdict = replace(check(written.path), size=size)
        if is_wanted(size) and verdict.is_sound:
            written.commit()
            return replace(verdict, output=output)
        failed = settings.failed_path(output)
        if failed is not None:
            written.keep_as(failed)
            return replace(verdict, kept=failed)
    return verdict


def open_model(model_path: Path, output: Path, settings: WriteSettings, say: Progress) -> Model:
    """Read a model whose edited version is to be written to *output*.

    Raises:
        DplError: The model cannot be used, or the output cannot be written.
    """
    check_output(model_path, output, in_place=settings.in_place)
    say(f"reading {model_path.name}")
    model = load_model(model_path)
    check_imports(model)
    check_external_data(model)
    model.note_refutations()
    return model


def finish(  # noqa: PLR0913  # what, where and whether
    model: Model,
    original: Path,
    output: Path,
    settings: WriteSettings,
    say: Progress,
    *,
    is_changed: bool,
    is_met: bool = True,
) -> Verdict:
    """Check an edited model as the settings say, and write it if all is well.

    Args:
        model: The result.
        original: The file that it was read from.
        output: Where to write it.
        settings: How to check and write.
        say: Told what is being done.
        is_changed: Whether it differs from the file at all; else there is nothing to check.
        is_met: Whether what the user expects holds; else nothing is written.

    Raises:
        DplError: The output cannot be written, or no verdict can be reached.
    """

    def check(written: Path) -> Verdict:
        if not settings.verify or not is_changed:
            return Verdict()
        return check_result(original, written, settings.verification, say)

    say("writing")
    return write_checked(model, output, settings, check, is_wanted=lambda _size: is_met)


def check_result(
    original: Path, candidate: Path, verification: VerifySettings | None, say: Progress
) -> Verdict:
    """Ask onnx.checker, then onnxruntime, what they say of *candidate*.

    Raises:
        VerificationError: No verdict can be reached.
    """
    prepare(verification)
    say("checking the result with onnx.checker")
    objection = check_model(candidate)
    if objection and not check_model(original):
        return Verdict(objection)
    try:
        return Verdict(verification=compare(original, candidate, verification, say))
    except VerificationError as error:
        without = "pass --no-verify to write the result unverified"
        hint = f"{error.hint}; or {without}" if error.hint else without
        raise VerificationError(error.message, hint=hint) from error


def default_output(model_path: Path, what: str = "partitioned") -> Path:
    """Return where a result is written if nobody says otherwise: ``MODEL.partitioned.onnx``."""
    return model_path.parent / f"{model_path.stem}.{what}.onnx"


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


def write_text(path: Path, text: str, label: str) -> None:
    """Write a report in one step; a pipe or a device is written to, and stays one.

    Args:
        path: Where to.
        text: The report.
        label: The option that asked for it, for messages.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        write_file(path, encoded(text))
    except OSError as error:
        raise UsageError(f"{label} {path}: cannot be written: {error.strerror}") from error


def say_nothing(phrase: str) -> None:
    """Report progress to nobody."""


# Checking a rewrite after every turn of a rule, so that the one that breaks it is known.


class StepVerifier(RewriteObserver):
    """Compares the model with the original after every turn, and ends the rewrite if it differs.

    Args:
        model: The model that is being edited.
        original: The file it was loaded from.
        output: Where the result will be; what is checked is written beside it, and taken away.
        verification: How to compare.
        say: Told of each step.

    Attributes:
        broken: The turn that broke the model; None as long as none has.
        verdict: The verdict on the last turn.
    """

    def __init__(
        self,
        model: Model,
        original: Path,
        output: Path,
        verification: VerifySettings | None,
        say: Progress,
    ) -> None:
        self.model = model
        self.original = original
        self.output = output
        self.verification = verification
        self.say = say
        self.broken: BrokenTurn | None = None
        self.verdict = Verdict()
        self._round = 0
        self._applications: list[Application] = []

    @property
    def is_over(self) -> bool:
        """Whether a turn has broken the model."""
        return self.broken is not None

    def begin(self) -> None:
        """Check the model if it was changed before any rule had a turn."""
        if not is_modified(self.model):
            return
        reason = self._objection()
        if reason:
            self.broken = BrokenTurn("", 0, (), reason, self.verdict)

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """Begin to list what the turn does."""
        del rule, candidates
        self._round = number
        self._applications = []

    def applied(self, application: Application) -> None:
        """List an application."""
        self._applications.append(application)

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """Check the model if it was changed."""
        if not count:
            return
        name = rule.qualified_name
        times = "once" if count == 1 else f"{count:,} times"
        self.say(f"round {self._round}: {name} was applied {times}")
        reason = self._objection()
        if reason:
            done = tuple(self._applications)
            self.broken = BrokenTurn(name, self._round, done, reason, self.verdict)

    def _objection(self) -> str:
        try:
            check_structure(self.model)
        except InvalidGraphError as error:
            return f"the graph is broken: {error.message}"
        with staged(self.model, self.output) as written:
            self.verdict = check_result(self.original, written.path, self.verification, self.say)
        if self.verdict.objection:
            return f"onnx.checker refuses the result: {self.verdict.objection}"
        return "" if self.verdict.is_sound else "the result is not equivalent to the original"
