"""The Python front door: ``import dplcli as dpl``. The commands are a skin over these functions.

A model is a path, an ``onnx.ModelProto``, an ``onnx_ir.Model``, an ``ONNXProgram`` of torch, or
what another function returned. It is never changed, and nothing is written but what is asked for by
name (``output=``, ``plan=``, …). Keywords are the fields of :mod:`dplcli.settings`, from which the
options of the commands are made, too; what can be given several times there is one value or
several here. What stops a job is a :class:`DplError`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
)

from dplcli import pipeline, report
from dplcli.errors import DplError, UsageError, opt
from dplcli.files import temporary_file
from dplcli.outcomes.base import ModelOutcome, StoredOutcome
from dplcli.settings import (
    AccuracySettings,
    ApplySettings,
    BaseSettings,
    BenchSettings,
    ComparingSettings,
    DiffSettings,
    ExplainSettings,
    ExtractSettings,
    InlineSettings,
    LearnSettings,
    MatchSettings,
    PartitionSettings,
    RepeatingSettings,
    ResultSettings,
    RewriteSettings,
    RunSettings,
    keyword,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onnx import ModelProto

    from dplcli.onnx_io.objects import IrModel, TorchProgram
    from dplcli.outcomes.comparing import AccuracyOutcome, DiffOutcome, VerifyOutcome
    from dplcli.outcomes.inspecting import InspectOutcome
    from dplcli.outcomes.matching import ExplainOutcome, MatchOutcome
    from dplcli.outcomes.partitioning import PartitionOutcome
    from dplcli.outcomes.rewriting import RewriteOutcome
    from dplcli.outcomes.rules import LearnOutcome, RewritesOutcome, RulesOutcome
    from dplcli.outcomes.running import BenchOutcome, RunOutcome
    from dplcli.outcomes.written import ExtractOutcome, InlineOutcome, WrittenOutcome
    from dplcli.passes.rewrite import Trace
    from dplcli.settings import EditSettings, File, Inputs
    from dplcli.verify.layers import Layers

ModelLike: TypeAlias = "File | ModelProto | IrModel | TorchProgram | StoredOutcome"
"""What functions take for a model."""

P = ParamSpec("P")
M = TypeVar("M")
N = TypeVar("N")
S = TypeVar("S")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
AnyOutcome = TypeVar("AnyOutcome", bound="ModelOutcome")
AnyWritten = TypeVar("AnyWritten", bound="WrittenOutcome")
Chosen = TypeVar("Chosen", bound=ResultSettings)


# Models, as they are given and as results hold them.


class _Scratch:
    """A folder for a while: as long as somebody holds this object."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dpl-"))
        self.remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class _Stored:
    """A model: its file, or what is in it, and the folder where its external data lies."""

    place: Path | bytes
    folder: Path
    scratch: _Scratch | None = None

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.place.name if isinstance(self.place, Path) else "model.onnx"

    def proto(self) -> ModelProto:
        from dplcli.onnx_io.objects import read_proto  # noqa: PLC0415  # only for a message

        return read_proto(self.place, self.folder)

    @contextmanager
    def file(self) -> Iterator[Path]:
        """Yield a path of it, beside its external data."""
        if isinstance(self.place, Path):
            yield self.place
            return
        with temporary_file(self.folder, ".onnx") as path:
            path.write_bytes(self.place)
            yield path

    def save(self, path: Path) -> None:
        from dplcli.onnx_io import load_model, staged  # noqa: PLC0415  # only to save

        with self.file() as file, staged(load_model(file), path) as written:
            written.commit()


def _stored(model: ModelLike) -> _Stored:
    """Find a model's file, or make one.

    Raises:
        DplError: It is no model, or it cannot be written.
    """
    if isinstance(model, StoredOutcome):
        return cast("_Stored", model.stored)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return _Stored(path, path.parent)
    from dplcli.onnx_io.objects import write_object  # noqa: PLC0415  # only for objects

    scratch = _Scratch()
    return _Stored(write_object(model, scratch.folder), scratch.folder, scratch)


def _path_of(model: ModelLike) -> Path | None:
    """Return the file of a model that is given by its path; reports draw it as it was before."""
    return Path(model) if isinstance(model, (str, os.PathLike)) else None


@contextmanager
def _file_of(model: ModelLike) -> Iterator[Path]:
    with _stored(model).file() as path:
        yield path


def _mentions_files(path: Path) -> bool:
    """Tell whether a model may have external data; a false alarm does no harm."""
    from dplcli.onnx_io import read_model_file  # noqa: PLC0415  # only where nothing is written
    from dplcli.onnx_io.read import may_refer  # noqa: PLC0415  # only where nothing is written

    return may_refer(read_model_file(path))


class _Packed(_Stored):
    """A part of a model, whose external data goes into one file."""

    def save(self, path: Path) -> None:
        from dplcli.onnx_io.external_data import pack_file  # noqa: PLC0415  # only to save

        pack_file(self.folder / self.name, path)


# From keywords to settings.


class _Job(NamedTuple):
    """A job: what does it, given models and settings, and the class of the settings."""

    function: Callable[..., Any]
    settings: type[BaseSettings]


JOBS: dict[str, _Job] = {}
"""The jobs by their names; commands and pipeline files do the same as the functions below."""


class _OfPair(Protocol[P, R_co]):
    """A job with two models, of which one may be missing."""

    def __call__(
        self,
        first: ModelLike | None = None,
        second: ModelLike | None = None,
        /,
        *args: P.args,
        **keywords: P.kwargs,
    ) -> R_co: ...


class _OfOne(Protocol[P, R_co]):
    """A job with a model, which may be missing."""

    def __call__(
        self, model: ModelLike | None = None, /, *args: P.args, **keywords: P.kwargs
    ) -> R_co: ...


class _OfFed(Protocol[P, R_co]):
    """A job with a model and what it is fed."""

    def __call__(
        self, model: ModelLike, inputs: Inputs = None, /, *args: P.args, **keywords: P.kwargs
    ) -> R_co: ...


@contextmanager
def _says_keywords(settings: type[BaseSettings]) -> Iterator[None]:
    """Let errors name keywords where the command would name its options."""
    try:
        yield
    except DplError as error:
        error.spell(settings.as_keyword)
        raise


def _given(kind: Callable[P, S], *more: str) -> Callable[[Callable[..., R]], Any]:
    """Make a function of keywords of one that takes settings.

    Args:
        kind: The class of the settings.
        more: Settings that may also be given by position, after the models.
    """
    settings = cast("type[BaseSettings]", kind)

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        *models, _ = signature(function).parameters.values()
        taken = settings.signature(*models, by_place=more)
        some = [each for each in taken.parameters.values() if each.kind is not each.KEYWORD_ONLY]
        places = Signature([*some, Parameter("keywords", Parameter.VAR_KEYWORD)])

        @wraps(function)
        @_says_keywords(settings)
        def call(*values: object, **keywords: Any) -> R:  # noqa: ANN401  # the settings say
            try:
                given = places.bind(*values, **keywords)
                given.apply_defaults()
                asked, also = given.args[: len(models)], given.args[len(models) :]
                chosen = settings(**dict(zip(more, also, strict=True)), **given.kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(*asked, chosen)

        JOBS[function.__name__] = _Job(function, settings)
        call.__signature__ = taken  # type: ignore[attr-defined]  # for help()
        head, _, rest = (function.__doc__ or "").partition("        settings: ")
        told = (
            f"        {name}: {field.help.partition(' Default: MODEL.')[0]}\n"  # in memory, here
            for name, field in settings.options.items()
        )
        if rest:
            call.__doc__ = head + "".join(told) + rest.partition("\n")[2]
        return call

    return decorate


def _job(
    kind: Callable[P, S],
) -> Callable[[Callable[[M, S], R]], Callable[Concatenate[M, P], R]]:
    """Make a function of one model and keywords of one that takes a model and settings."""
    return _given(kind)


def _job_of_two(
    kind: Callable[P, S],
) -> Callable[[Callable[[M, N, S], R]], Callable[Concatenate[M, N, P], R]]:
    """Do the same for two models, or a plan and a model."""
    return _given(kind)


def _job_of_pair(kind: Callable[P, S]) -> Callable[[Callable[[Any, Any, S], R]], _OfPair[P, R]]:
    return _given(kind)


def _job_of_any(kind: Callable[P, S]) -> Callable[[Callable[[Any, S], R]], _OfOne[P, R]]:
    return _given(kind)


def _job_of_fed(kind: Callable[P, S]) -> Callable[[Callable[[Any, S], R]], _OfFed[P, R]]:
    return _given(kind, "inputs")


class _Traced(BaseSettings):
    """What programs alone ask of a rewrite.

    Attributes:
        trace: Filled with what happens.
    """

    trace: Trace | None = keyword(default=None)


class _RewriteKeywords(RewriteSettings, _Traced):
    """How to rewrite."""


class _ApplyKeywords(ApplySettings, _Traced):
    """How to apply a plan. It says what to try, and at which opset."""


def _write(
    model: ModelLike, settings: Chosen, run: Callable[[Path, Chosen], AnyWritten]
) -> tuple[AnyWritten, _Stored | None]:
    """Run a job that writes a model, where the settings say or into memory.

    Args:
        model: The model.
        settings: Where to write the result, and how.
        run: Does it, from a path to the output of the settings.

    Returns:
        The outcome, and the result if there is one.
    """
    stored, output = _stored(model), settings.output
    if settings.in_place:
        if output not in {None, stored.place}:
            hint = "pass one of them"
            raise UsageError(
                f"{opt('in_place')} and {opt('output')} contradict each other", hint=hint
            )
        if not isinstance(stored.place, Path) or stored.scratch is not None:
            raise UsageError("only a file can be replaced in place, and the model is none")
        output = stored.place
    if output is None and settings.keep_failed:
        raise UsageError("a result that fails is kept beside the output", hint="pass an output")
    if output is None and settings.external_data != "copy":
        raise UsageError("external data is put beside the output", hint="pass an output")
    told: dict[str, Any] = {"label": stored.name, "is_verified": settings.verify}
    with stored.file() as path:
        if output is not None:
            outcome = replace(run(path, settings.but(output=output)), **told)
            written = outcome.delivery.output
            kept = None if written is None else _Stored(written, written.parent)
            return outcome, kept
        folder, scratch = path.parent, stored.scratch
        if scratch is None and not (_mentions_files(path) and os.access(folder, os.W_OK)):
            scratch = _Scratch()
            folder = scratch.folder
        with temporary_file(folder, ".onnx") as place:
            outcome = replace(run(path, settings.but(output=place)), **told)
            if outcome.delivery.output is None:
                return outcome, None
            content = place.read_bytes()
    delivery = replace(outcome.delivery, output=None)
    return replace(outcome, delivery=delivery), _Stored(content, folder, scratch)


def _looked(stored: _Stored, settings: S, job: Callable[[Path, S], AnyOutcome]) -> AnyOutcome:
    """Do a job with a model; the answer calls it what reports do."""
    with stored.file() as path:
        return replace(job(path, settings), label=stored.name)


def _catalogs_in(settings: MatchSettings | EditSettings | PartitionSettings) -> list[str]:

    return pipeline.catalogs_in(vars(settings)["patterns"])


# What can be done.


def load(model: ModelLike) -> InspectOutcome:
    """Read a model, to look at it or to use it several times.

    Raises:
        DplError: It is no model.
    """
    stored = _stored(model)
    with stored.file() as path:
        loaded = pipeline.inspect(path)
    from dplcli.outcomes.inspecting import InspectOutcome  # noqa: PLC0415  # each job loads its own

    outcome = InspectOutcome(label=stored.name, ir=loaded, notes=tuple(loaded.notes))
    return outcome.answered(partial(report.model_document, outcome), stored)


@_job(MatchSettings)
def match(model: ModelLike, settings: MatchSettings) -> MatchOutcome:
    """Find where rules match; nothing is changed.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.MatchSettings`.

    Raises:
        DplError: The model or a catalogue cannot be used.
    """
    outcome = _looked(_stored(model), settings, pipeline.match)
    return outcome.answered(
        partial(report.match_document, outcome, catalogs=_catalogs_in(settings))
    )


@_job(ExplainSettings)
def explain(model: ModelLike, settings: ExplainSettings) -> ExplainOutcome:
    """Explain why rules match where they do, and why nowhere else.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.ExplainSettings`.

    Raises:
        DplError: The model or a catalogue cannot be used, or there is no such rule or node.
    """
    outcome = _looked(_stored(model), settings, pipeline.explain)
    return outcome.answered(partial(report.explain_document, outcome, file=_path_of(model)))


@_job(_RewriteKeywords)
def rewrite(model: ModelLike, settings: _RewriteKeywords) -> RewriteOutcome:
    """Replace what matches until nothing does, and verify the result.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.RewriteSettings`.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    written = _write(
        model, settings, lambda file, chosen: pipeline.rewrite(file, chosen, settings.trace)
    )
    return _rewritten(written, model, _catalogs_in(settings))


@_job_of_two(_ApplyKeywords)
def apply(plan: File, model: ModelLike, settings: _ApplyKeywords) -> RewriteOutcome:
    """Do to a model only what a plan lists, and verify the result.

    Args:
        plan: The plan, as :func:`rewrite` writes it.
        model: The model.
        settings: See :class:`dplcli.settings.ApplySettings`.

    Raises:
        DplError: As for :func:`rewrite`; or the plan cannot be used.
    """
    written = _write(
        model,
        settings,
        lambda file, chosen: pipeline.apply_plan(Path(plan), file, chosen, settings.trace),
    )
    return _rewritten(written, model, [os.fspath(plan), *_catalogs_in(settings)])


def _rewritten(
    written: tuple[RewriteOutcome, _Stored | None],
    model: ModelLike,
    catalogs: Sequence[str],
) -> RewriteOutcome:

    outcome, stored = written
    file = _path_of(model)
    document = partial(report.rewrite_document, outcome, file=file, catalogs=catalogs)
    return outcome.answered(document, stored)


@_job(PartitionSettings)
def partition(model: ModelLike, settings: PartitionSettings) -> PartitionOutcome:
    """Outline every match as a function call, and verify the result.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.PartitionSettings`.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    outcome, stored = _write(model, settings, pipeline.partition)
    file, catalogs = _path_of(model), _catalogs_in(settings)
    document = partial(report.partition_document, outcome, file=file, catalogs=catalogs)
    return outcome.answered(document, stored)


@_job(RepeatingSettings)
def repeat(model: ModelLike, settings: RepeatingSettings) -> PartitionOutcome:
    """Outline every block that the model repeats as a function call, and verify the result.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.RepeatingSettings`.

    Raises:
        DplError: The model cannot be used, the output cannot be written, or no verdict on the
            result can be reached.
    """
    outcome, stored = _write(model, settings, pipeline.repeat)
    return outcome.answered(
        partial(report.partition_document, outcome, file=_path_of(model)), stored
    )


@_job(InlineSettings)
def inline(model: ModelLike, settings: InlineSettings) -> InlineOutcome:
    """Put functions back in the place of their calls, and verify the result.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.InlineSettings`.

    Raises:
        DplError: The model cannot be used, something chosen is not there, the output cannot be
            written, or no verdict on the result can be reached.
    """
    outcome, stored = _write(model, settings, pipeline.inline)
    return outcome.answered(partial(report.inline_document, outcome, file=_path_of(model)), stored)


@_job(ExtractSettings)
def extract(model: ModelLike, settings: ExtractSettings) -> ExtractOutcome:
    """Cut out what computes some values from others, as a model of its own.

    It has the nodes, weights and functions that it needs, under their names. Inputs of the model
    that are needed as well are inputs of the part, too. External data that it needs goes into one
    file beside it, and is never held in memory.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.ExtractSettings`.

    Raises:
        DplError: A value is not there, plays no part or has no type that is known; the model cannot
            be used, or the output cannot be written.
    """
    stored, scratch, place = _stored(model), None, settings.output
    if place is None:
        scratch = _Scratch()
        place = scratch.folder / stored.name
    outcome = _looked(stored, settings.but(output=place), pipeline.extract)
    if scratch is not None:
        outcome = replace(outcome, delivery=replace(outcome.delivery, output=None))
    packed = _Packed(place, place.parent, scratch)
    return outcome.answered(partial(report.extract_document, outcome), packed)


@_job_of_pair(ComparingSettings)
def verify(
    original: ModelLike | None = None,
    candidate: ModelLike | None = None,
    settings: ComparingSettings = ComparingSettings(),  # noqa: B008  # frozen
) -> VerifyOutcome:
    """Compare two models numerically in onnxruntime.

    Args:
        original: The model that is right by definition. With ``against=``, the only model; with
            ``judged=``, none.
        candidate: The model in question; with ``save_results=``, *original* by default.
        settings: See :class:`dplcli.settings.ComparingSettings`.

    Raises:
        DplError: A file is no model, or no verdict can be reached.
    """
    check = pipeline.check_of(settings)
    stored = [None if model is None else _stored(model) for model in (original, candidate)]
    with ExitStack() as stack:
        paths = [None if each is None else stack.enter_context(each.file()) for each in stored]
        if settings.rename and paths[0] is not None and paths[1] is not None:
            paths[0], _ = stack.enter_context(pipeline.restated(paths[0], {}, settings.rename))
        elif settings.rename:
            hint = "say it where they are compared, or save results again"
            raise UsageError(f"{opt('rename')} takes two models", hint=hint)
        subject = pipeline.choose_subject((paths[0], paths[1]), settings, check)
        result = subject.compare(check, settings.progress or (lambda _phrase: None))
        inside: Layers | str | None = None
        if settings.layers and subject.original is not None and subject.candidate is not None:
            inside = pipeline.look_inside(subject.original, subject.candidate, result, check)
    pairs = zip(paths, stored, strict=True)
    names = {path: each.name for path, each in pairs if each is not None and path is not None}
    title, files = subject.title(names), (subject.original, subject.candidate)
    one, other = subject.original or subject.judged or subject.against, subject.candidate
    models = tuple("" if path is None else names.get(path, path.name) for path in (one, other))
    from dplcli.outcomes.comparing import VerifyOutcome  # noqa: PLC0415  # each job loads its own

    outcome = VerifyOutcome(labels=models, verification=result, layers=inside)
    return outcome.answered(partial(report.verification_document, title, outcome, files=files))


@_job_of_two(AccuracySettings)
def accuracy(
    original: ModelLike, candidate: ModelLike, settings: AccuracySettings
) -> AccuracyOutcome:
    """Measure how near a model comes to one that it approximates, such as its quantised form.

    Args:
        original: The model that is approximated.
        candidate: The model that approximates it.
        settings: See :class:`dplcli.settings.AccuracySettings`.

    Raises:
        DplError: A file is no model, or they cannot be run on the same inputs.
    """
    ours, theirs = _stored(original), _stored(candidate)
    with ours.file() as one, theirs.file() as other:
        outcome = pipeline.accuracy(one, other, settings)
    outcome = replace(outcome, labels=(ours.name, theirs.name))
    return outcome.answered(partial(report.accuracy_document, outcome))


@_job_of_two(DiffSettings)
def diff(first: ModelLike, second: ModelLike, settings: DiffSettings) -> DiffOutcome:
    """Compare the structures of two models by their dataflow.

    Args:
        first: One model.
        second: The other.
        settings: See :class:`dplcli.settings.DiffSettings`.

    Raises:
        DplError: One is no model, a weight cannot be read, or there is no such thing to ignore.
    """
    one, other = _stored(first), _stored(second)
    with one.file() as before, other.file() as after:
        outcome = pipeline.diff(before, after, ignore=settings.ignore, progress=settings.progress)
    outcome = replace(outcome, labels=(one.name, other.name))
    return outcome.answered(partial(report.diff_document, outcome, files=(before, after)))


@_job_of_any(LearnSettings)
def learn(
    model: ModelLike | None = None,
    settings: LearnSettings = LearnSettings(),  # noqa: B008  # frozen
) -> RulesOutcome:
    """Learn a rule from nodes of a model, or rules from two models.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.LearnSettings`.

    Raises:
        DplError: A model cannot be used, or the nodes make no subgraph.
    """
    before, after = (
        cast("ModelLike | None", settings.before),
        cast("ModelLike | None", settings.after),
    )
    if before is not None and after is not None:
        if model is not None:
            raise UsageError(
                f"MODEL does not go with {opt('before')} and {opt('after')}",
                hint="rules are learned from nodes of one model, or from two models",
            )
        with _file_of(before) as one, _file_of(after) as other:
            learned = pipeline.learn_rewrites(
                one,
                other,
                name=settings.name,
                budget=settings.budget,
                unproved=settings.unproved,
                verify=settings.verify,
                progress=settings.progress,
            )
        return _learned(learned)
    if model is None:
        raise UsageError(
            "no model is named",
            hint=f"pass MODEL {opt('nodes', 'NAMES')}, "
            f"or {opt('before', 'FILE')} {opt('after', 'FILE')}",
        )
    if not [node for node in settings.nodes if node.strip(" ,")]:
        raise UsageError("no node is named", hint="dpl inspect --nodes lists the names")
    with _file_of(model) as path:
        found = pipeline.learn(
            path,
            nodes=settings.nodes,
            name=settings.name,
            target=settings.target or "custom",
            exact=settings.exact,
        )
    return _learned(found)


def _learned(outcome: LearnOutcome | RewritesOutcome) -> RulesOutcome:

    return outcome.answered(partial(report.learn_document, outcome))


@_job_of_fed(RunSettings)
def run(model: ModelLike, settings: RunSettings) -> RunOutcome:
    """Run a model in onnxruntime, in a process of its own.

    Args:
        model: The model.
        settings: See :class:`dplcli.settings.RunSettings`. Inputs may also be given by position.

    Raises:
        DplError: The model cannot be used, inputs do not fit, or onnxruntime does not run it.
    """
    outcome = _looked(_stored(model), settings, pipeline.run_model)
    return outcome.answered(partial(report.run_document, outcome))


@_job_of_pair(BenchSettings)
def bench(
    first: ModelLike,
    second: ModelLike | None = None,
    settings: BenchSettings = BenchSettings(),  # noqa: B008  # frozen
) -> BenchOutcome:
    """Time two models by turns, each in a process of its own.

    Args:
        first: The model that is the measure; it runs in onnxruntime alone.
        second: The other, whose partitions run on a library if *kernels* names one; by default
            the same model.
        settings: See :class:`dplcli.settings.BenchSettings`.

    Raises:
        DplError: A model cannot be used or run, inputs do not fit, or a library is missing.
    """
    ours = _stored(first)
    theirs = None if second is None else _stored(second)
    with ours.file() as path, nullcontext(None) if theirs is None else theirs.file() as other:
        outcome = pipeline.bench(path, other, settings)
    labels = (ours.name, (theirs or ours).name)
    sides = zip(outcome.sides, labels, strict=True)
    outcome = replace(
        outcome,
        label=labels[0],
        sides=tuple(replace(side, label=label) for side, label in sides),
    )
    return outcome.answered(partial(report.bench_document, outcome))
