"""Write a result beside its place, check it, and put it there only if it is sound."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from dplcli import onnx_io
from dplcli.errors import InvalidGraphError, UsageError, VerificationError, did_you_mean, opt
from dplcli.files import encoded, resolved, write_file
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import check_model, load_model, staged
from dplcli.outcomes.rewriting import BrokenTurn
from dplcli.outcomes.written import Delivery
from dplcli.passes.rewrite import RewriteObserver
from dplcli.pipeline.rules import assuming
from dplcli.pipeline.verifying import check_of, compare, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dplcli.ir import Model
    from dplcli.language import RewriteRule
    from dplcli.passes.rewrite import Application
    from dplcli.settings import ResultSettings
    from dplcli.verify import Check
    from dplcli.verify.check import Sums

    Progress = Callable[[str], None]

_NO_SUMS: Mapping[str, tuple[int | str, ...]] = MappingProxyType({})


class WriteJob:
    """Edits a model, checks the result and writes it.

    Args:
        path: The file of the model.
        settings: Where to write the result, how to check it, and whom to tell.

    Attributes:
        moves_only: Whether the result is to be the model itself, but for functions.
        model: The model, as it is edited.
        opset: The opset to raise it to; None for its own.

    Raises:
        UsageError: There is nothing of such a name to leave out, or the check cannot be meant.
    """

    moves_only: bool = True
    model: Model
    opset: int | None = None
    _is_edited: bool = False

    def __init__(self, path: Path, settings: ResultSettings) -> None:
        kinds = onnx_io.STRIPPERS
        for kind in settings.strip:
            if kind not in kinds:
                hint = did_you_mean(kind, kinds) or f"there are: {', '.join(kinds)}"
                raise UsageError(f"{opt('strip')}: there is no {kind!r} to leave out", hint=hint)
        self.path = self.reference = path
        self.output = output = settings.output or default_output(path, settings.result)
        self.failed = (
            output.with_name(f"{output.stem}.failed.onnx") if settings.keep_failed else None
        )
        self.writing = settings
        self.verification = check_of(settings)
        self.say = settings.progress or say_nothing

    def open(self) -> Model:
        """Read the model.

        Raises:
            DplError: It cannot be used, or the output cannot be written.
        """
        check_output(self.path, self.output, in_place=self.writing.in_place)
        self.begin(will_run=self.writing.verify)
        self.model = self.load()
        return self.model

    @property
    def takes_back(self) -> bool:
        """Whether what fails the check is taken back, so that the rest is written."""
        return not (self.writing.all_or_nothing or self.writing.strict)

    def load(self) -> Model:
        """Read the model as this job edits it."""
        model = load_editable(self.path, self.opset, self.verification.request.sums)
        model.note_refutations()
        return model

    def unedited(self) -> Model:
        """Return the model as it was read; read it again if it was edited."""
        if self._is_edited:
            self.model = self.load()
        self._is_edited = True
        return self.model

    def try_out(self, model: Model) -> tuple[str, Delivery]:
        """Check an edited model; write nothing.

        Returns:
            Why it is not sound, "" if it is, and what the check said.

        Raises:
            DplError: No verdict can be reached.
        """
        if broken := graph_objection(model):
            return broken, Delivery()
        how = self.writing.external_data
        with staged(model, self.output, external_data=how) as written:
            delivery = self.check(written.path)
        return delivery.complaint, delivery

    def begin(self, *, will_run: bool) -> None:
        """Say that the model is read; start the process that will run it, if one will."""
        if will_run:
            prepare(self.verification)
        self.say(f"reading {self.path.name}")

    def protect(self, model: Model, catalogs: set[Path]) -> None:
        """Refuse to overwrite a file that the run reads or that the result needs.

        Raises:
            UsageError: A path to write to is a catalogue, holds weights, or is the model.
        """
        data = onnx_io.external_files(model, self.output.parent)
        for path in filter(None, (self.output, self.failed)):
            if resolved(path) in catalogs:
                raise UsageError(f"{path}: is a catalogue that this run reads")
            if resolved(path) in data:
                raise UsageError(f"{path}: is where the model's weights lie, or must lie")
            if path is self.failed and resolved(path) == resolved(self.path):
                raise UsageError(f"{path}: a failed result would replace the model itself")

    def check(self, written: Path) -> Delivery:
        """Ask onnx.checker and onnxruntime about a result."""
        delivery = check_result(
            self.reference, written, self.verification, self.say, prove=self.moves_only
        )
        unproved = delivery.verification.unproved if delivery.verification else ""
        return doubted(delivery, "not proved by structure, judged by numbers alone", unproved)

    def finish(
        self,
        model: Model,
        *,
        is_changed: bool,
        is_wanted: Callable[[Delivery], bool] = lambda _delivery: True,
        known: Delivery | None = None,
    ) -> Delivery:
        """Write *model* beside the output, check it, and put it there if all is well.

        Args:
            model: The result.
            is_changed: Whether it differs from the file; if not, there is nothing to check.
            is_wanted: Tells whether a sound file of such a size is to be written.
            known: What an earlier check said; None if there was none.

        Raises:
            DplError: The output cannot be written, or no verdict can be reached.
        """
        self.say("writing")
        strip = self.writing.strip
        with staged(model, self.output, strip, self.writing.external_data) as written:
            size = written.path.stat().st_size
            delivery = Delivery()
            runs_kernels = self.verification.execution.kernels is not None
            if self.writing.verify and (is_changed or strip or runs_kernels):
                delivery = self.check(written.path) if known is None or strip else known
            elif self.writing.verify:
                delivery = Delivery(fault=onnx_io.fault_of(model, self.path))
            delivery = replace(
                delivery,
                size=size,
                data=written.data_size,
                used=written.used,
                unused=written.unused,
                stripped=written.stripped,
            )
            if is_wanted(delivery) and delivery.is_sound:
                written.commit()
                return replace(delivery, output=self.output, linked=written.linked)
            if self.failed is not None:
                written.keep_as(self.failed)
                return replace(delivery, kept=self.failed)
        return delivery


def doubted(delivery: Delivery, what: str, why: str) -> Delivery:
    """Add to a verdict what is not proved, and why; nothing if there is no reason."""
    verification = delivery.verification
    if verification is None or not why:
        return delivery
    warnings = (f"{what}: {why}", *verification.warnings)
    return replace(delivery, verification=replace(verification, warnings=warnings))


def load_editable(path: Path, opset: int | None = None, sums: Sums = _NO_SUMS) -> Model:
    """Read a model that is to be edited.

    Args:
        path: The file.
        opset: The opset to raise it to; None for its own.
        sums: Dimensions that are sums of others, as somebody has said.

    Raises:
        DplError: It cannot be used.
    """
    return _editable(load_model(path, opset=opset), sums)


def _editable(model: Model, sums: Sums) -> Model:
    onnx_io.check_imports(model)
    onnx_io.check_external_data(model)
    return assuming(model, sums)


def graph_objection(model: Model) -> str:
    """Say how the graph of an edited model is broken; "" if it is not."""
    try:
        check_structure(model)
    except InvalidGraphError as error:
        return f"the graph is broken: {error.message}"
    return ""


def check_result(
    original: Path,
    candidate: Path,
    verification: Check,
    say: Progress,
    *,
    prove: bool = False,
) -> Delivery:
    """Check *candidate* with onnx.checker, then compare it in onnxruntime.

    With *prove*, a proof that it is the original up to functions is tried first.

    Raises:
        VerificationError: No verdict can be reached.
    """
    prepare(verification)
    say("checking the result with onnx.checker")
    # What onnx accepts with all types it is to accept afterwards; what it does not, without them.
    for may_lack in (False, True):
        objection = check_model(candidate, may_lack_types=may_lack)
        if not objection:
            break
        if not check_model(original, may_lack_types=may_lack):
            return Delivery(objection)
    try:
        return Delivery(verification=compare(original, candidate, verification, say, prove=prove))
    except VerificationError as error:
        without = f"pass {opt('verify')} to write the result unverified"
        hint = f"{error.advice}; or {without}" if error.advice else without
        raise VerificationError(error.wording, hint=hint) from error


def default_output(model_path: Path, what: str) -> Path:
    """Return where a result is written by default: ``MODEL.partitioned.onnx``."""
    return model_path.parent / f"{model_path.stem}.{what}.onnx"


def check_output(model_path: Path, output: Path, *, in_place: bool) -> None:
    """Refuse an output that cannot or must not be written, before any work is done.

    Raises:
        UsageError: The output is the input, and *in_place* is false.
        ModelExportError: The output's folder is missing or not writable.
    """
    onnx_io.check_destination(output)
    if output.exists() and model_path.exists() and output.samefile(model_path) and not in_place:
        raise UsageError(
            f"{output}: the output is the input",
            hint=f"pass {opt('in_place')} to replace the model",
        )


def write_text(path: Path, text: str, label: str) -> None:
    """Write a report in one step; a pipe or a device stays what it is.

    Args:
        path: The file.
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


# Checking a rewrite after every turn of a rule, to find the rule that breaks the model.


@dataclass
class StepVerifier(RewriteObserver):
    """Compares the model with the original after every turn; ends the rewrite if they differ.

    Attributes:
        job: The job. What is checked is written beside its output and removed again.
        model: The model that is being edited.
        broken: The turn that broke the model; None as long as none has.
        delivery: What became of the result of the last turn.
    """

    job: WriteJob
    model: Model
    broken: BrokenTurn | None = None
    delivery: Delivery = field(default_factory=Delivery)
    _round: int = 0
    _applications: list[Application] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether a turn has broken the model."""
        return self.broken is not None

    def begin(self) -> None:
        """Check the model if it was changed before any rule had a turn."""
        if onnx_io.is_modified(self.model):
            self._check("")

    def turn_started(self, number: int, rule: RewriteRule, candidates: int) -> None:
        """Begin a new list of applications."""
        del rule, candidates
        self._round = number
        self._applications = []

    def applied(self, application: Application) -> None:
        """Add an application to the list."""
        self._applications.append(application)

    def turn_ended(self, rule: RewriteRule, count: int) -> None:
        """Check the model if it was changed."""
        if not count:
            return
        name = rule.qualified_name
        times = "once" if count == 1 else f"{count:,} times"
        self.job.say(f"round {self._round}: {name} was applied {times}")
        self._check(name)

    def _check(self, rule: str) -> None:
        """Check the model as *rule* left it in this round."""
        reason, self.delivery = self.job.try_out(self.model)
        if reason:
            done = tuple(self._applications)
            self.broken = BrokenTurn(rule, self._round, done, reason, self.delivery)
