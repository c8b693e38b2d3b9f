"""The Python front door: ``import dplcli as dpl``. The commands are a skin over these functions.

A model is a path, an ``onnx.ModelProto``, an ``onnx_ir.Model``, an ``ONNXProgram`` of torch, or
what another function returned. It is never changed, and nothing is written but what is asked for by
name (``output=``, ``plan=``, …). Keywords are named like the options of the commands; what can be
given several times there is one value or several here. What stops a job is a :class:`DplError`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
)

from dplcli.errors import UsageError, did_you_mean
from dplcli.files import temporary_file
from dplcli.outcomes import InspectOutcome, StoredOutcome, VerifyOutcome, WrittenOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike
    from onnx import ModelProto

    from dplcli.dpl.replacement import RewriteRule
    from dplcli.dpl.rule import PatternRule
    from dplcli.onnx_io.objects import IrModel, TorchProgram
    from dplcli.outcomes import (
        BenchOutcome,
        DiffOutcome,
        ExplainOutcome,
        ExtractOutcome,
        InlineOutcome,
        LearnOutcome,
        MatchOutcome,
        PartitionOutcome,
        RewriteOutcome,
        RewritesOutcome,
        RulesOutcome,
        RunOutcome,
    )
    from dplcli.passes.rewrite import Trace
    from dplcli.pipeline.writing import WriteSettings
    from dplcli.report.document import Document
    from dplcli.verify.layers import Layers
    from dplcli.verify.settings import (
        InputRequest,
        Settings,
    )

    Progress = Callable[[str], None]
    File: TypeAlias = str | os.PathLike[str]
    Source: TypeAlias = File | PatternRule | RewriteRule
    """A catalogue by its name or path, the text of a pattern, or a rule."""
    Names: TypeAlias = str | Sequence[str]
    Verdict: TypeAlias = Literal["equivalent", "different", "inconclusive", "unverified"]

ModelLike: TypeAlias = "File | ModelProto | IrModel | TorchProgram | StoredOutcome"
"""What functions take for a model."""

AnyWritten = TypeVar("AnyWritten", bound=WrittenOutcome)


# Keywords. Each function says which of these it takes.


class CheckOptions(TypedDict, total=False):
    """How two models are compared, and on which values.

    Attributes:
        seed: Seeds of inputs. By default 0 and 1.
        level: onnxruntime's optimisation levels. By default ``disable`` and ``all``.
        rtol: Relative tolerance, instead of the derived one.
        atol: Absolute tolerance, instead of the derived one.
        tolerance: Tolerances of single outputs: ``{"logits": {"rtol": 1e-3}}``.
        mutants: How many wrong versions to try, to measure the power of the check.
        min_power: The share of them that it must refuse.
        refill_weights: Whether weights that ConstantOfShape makes get random values.
        custom_ops: Libraries of custom operators.
        third_opinion: Whether onnx's reference evaluator is asked where models differ.
        strict: Whether what differs where the original gives NaN, an infinity or -0 counts.
        inputs: What to feed: a file or folder, a dict of arrays, or a function of a seed. Text may
            also name a function, ``module:function``, with *allow_code*.
        shape: Sizes of dimensions, or whole shapes: ``{"batch": 4, "image": (1, 3, 224, 224)}``.
        range: Smallest and largest value of inputs: ``{"ids": (0, 1000)}``.
        corners: Whether zeros, negative, large and denormal values are fed, too.
        save_inputs: Where to write what was fed, as .npz.
        provider: The execution provider that runs the candidate.
        session_option: Options of its session: ``{"intra_op_num_threads": 1}``.
        timeout: Seconds for each session and run.
        memory_limit: Megabytes for a model and its run.
        kernels: The target whose partitions run on its library: ``dnnl``.
        require: How many of them have to: ``"all"``, ``"any"`` (the default) or a number.
        allow_inexact: Whether partitions run there that the library computes inexactly.
        allow_code: Whether texts may name Python functions to import.
        progress: Called with a short phrase before each step that may take long.
    """

    seed: int | Sequence[int]
    level: Names
    rtol: float
    atol: float
    tolerance: Mapping[str, Mapping[str, float]]
    mutants: int
    min_power: float
    refill_weights: bool
    custom_ops: File | Sequence[File]
    third_opinion: bool
    strict: bool
    inputs: File | Mapping[str, ArrayLike] | Callable[[int], object]
    shape: Mapping[str, int | Sequence[int]]
    range: Mapping[str, tuple[float, float]]
    corners: bool
    save_inputs: File
    provider: str
    session_option: Mapping[str, str | int | bool]
    timeout: float
    memory_limit: int
    kernels: str
    require: str | int
    allow_inexact: bool
    allow_code: bool
    progress: Progress


class ResultOptions(CheckOptions, total=False):
    """Where a result goes, and whether it is checked.

    Attributes:
        output: Where to write it; by default it is only in memory.
        in_place: Whether it replaces the model, which is then a path.
        keep_failed: Whether a result that fails is kept as ``OUTPUT.failed.onnx``.
        strip: What to leave out: ``metadata``, ``value_info``.
        external_data: What becomes of external data: ``copy`` (the default), ``link`` or
            ``repack``.
        verify: Whether it is checked in onnxruntime. By default it is.
        hints: Whether to find out what would let rules do more. By default it is found out.
    """

    output: File | None
    in_place: bool
    keep_failed: bool
    strip: Names
    external_data: Literal["copy", "link", "repack"]
    verify: bool
    hints: bool


class RewriteOptions(ResultOptions, total=False):
    """How to rewrite.

    Attributes:
        expect: How often rules must be applied: ``fuse.add>=3``.
        only: What alone is tried: ``RULE``, ``RULE@NODE`` or ``@NODE``.
        skip: What is not tried.
        limit: After how many applications to stop.
        opset: The opset to raise the model to first.
        plan: Where to write a plan of what was done.
        dry_run: Whether nothing is verified and written.
        verify_each: Whether the model is checked after every turn of a rule.
        max_growth: By how many percent the model may grow.
        trace: Filled with what happens.
    """

    expect: Names
    only: Names
    skip: Names
    limit: int
    opset: int
    plan: File
    dry_run: bool
    verify_each: bool
    max_growth: float
    trace: Trace | None


class PartitionOptions(ResultOptions, total=False):
    """How to partition.

    Attributes:
        expect: How many matches rules must have: ``dnnl.conv2d_relu>=3``.
        constants: Which constants go into functions, instead of what rules say: ``lift``, or for
            one rule ``dnnl.conv2d_relu=lift``.
        escape: What if something outside a match reads a value inside.
        order: Which matches come first.
        merge: Whether neighbours become regions.
        prune: Whether regions without a heavy operator are left alone.
        prepare: Whether the model is rewritten by the catalogue prepare first.
    """

    expect: Names
    constants: Names
    escape: Names
    order: Names
    merge: bool
    prune: bool
    prepare: bool


class RepeatingOptions(ResultOptions, total=False):
    """What counts as a block that a model repeats.

    Attributes:
        expect: How often blocks must occur: ``repeat.layer>=6``.
        min_repeats: How often a block must occur to be outlined.
        min_nodes: How many nodes it must have.
        min_saving: What share of the nodes a kind of block must save, from 0 to 1.
        max_families: How many kinds of blocks to outline.
        same_attributes: Whether their attributes must be equal.
        nested: Whether blocks inside blocks are outlined.
    """

    expect: Names
    min_repeats: int
    min_nodes: int
    min_saving: float
    max_families: int
    same_attributes: bool
    nested: bool


class InlineOptions(ResultOptions, total=False):
    """What to inline; without a choice, what dpl has outlined.

    Attributes:
        target: Domains, whose functions are inlined.
        function: Functions, as ``dnnl::conv2d_relu``.
        call: Single calls, by their names or those of outputs.
        all_functions: Whether every function is inlined.
    """

    target: Names
    function: Names
    call: Names
    all_functions: bool


class VerifyOptions(CheckOptions, total=False):
    """What is kept of a comparison, and what is compared beside outputs.

    Attributes:
        layers: Whether values inside are compared, too.
        max_memory: How many megabytes of them are held at once.
        save_results: Where to write what both models gave.
        judged: Results to judge again (``--from``); no model is run then.
        against: Results of an original, to compare with.
    """

    layers: bool
    max_memory: int
    save_results: File
    judged: File
    against: File


class ExecutionOptions(TypedDict, total=False):
    """How a model is run by itself; as in :class:`CheckOptions`.

    Attributes:
        seed: The seed of the inputs that are made up.
        level: onnxruntime's optimisation level. By default ``all``.
        shape: Sizes of dimensions, or whole shapes.
        range: Smallest and largest value of inputs.
        custom_ops: Libraries of custom operators.
        provider: The execution provider.
        session_option: Options of the session.
        timeout: Seconds to create the session, and to run.
        memory_limit: Megabytes for a model and its run.
        kernels: The target whose partitions run on its library: ``dnnl``.
        require: How many of them have to: ``"all"``, ``"any"`` (the default) or a number.
        allow_inexact: Whether partitions run there that the library computes inexactly.
        save_inputs: Where to write what was fed, as .npz.
        allow_code: Whether *inputs* may name a Python function to import.
        progress: Called with a short phrase before each step that may take long.
    """

    seed: int
    level: str
    shape: Mapping[str, int | Sequence[int]]
    range: Mapping[str, tuple[float, float]]
    custom_ops: File | Sequence[File]
    provider: str
    session_option: Mapping[str, str | int | bool]
    timeout: float
    memory_limit: int
    kernels: str
    require: str | int
    allow_inexact: bool
    save_inputs: File
    allow_code: bool
    progress: Progress


class BenchOptions(ExecutionOptions, total=False):
    """How two models are timed; partitions run on a library in the second only.

    Attributes:
        runs: How many numbers are taken for each model. By default 20.
        threads: How many threads each has; 0 for as many as there are cores. By default 1.
    """

    runs: int
    threads: int


class RunOptions(ExecutionOptions, total=False):
    """How a model is run.

    Attributes:
        output: A ``.npz`` file for what it gives.
    """

    output: File


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
    from dplcli.onnx_io.read import may_refer  # noqa: PLC0415

    return may_refer(read_model_file(path))


class _Packed(_Stored):
    """A part of a model, whose external data goes into one file."""

    def save(self, path: Path) -> None:
        from dplcli.onnx_io.external_data import pack_file  # noqa: PLC0415  # only to save

        pack_file(self.folder / self.name, path)


def _fed(value: object) -> object:
    """Return the arrays of a sequence as a list."""
    import numpy as np  # noqa: PLC0415  # only where a model will run

    is_sequence = isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1
    items = list(value) if is_sequence else []  # type: ignore[call-overload]  # an array
    return items if items and all(isinstance(item, np.ndarray) for item in items) else value


# From keywords to settings.


def _check_keywords(function: str, options: Mapping[str, object], known: type) -> dict[str, Any]:
    """Refuse unknown keywords as Python does."""
    names = [name for base in known.__mro__ for name in getattr(base, "__annotations__", ())]
    names = [*known.__annotations__, *names]
    for name in options:
        if name not in names:
            guess = did_you_mean(name, names)
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}"
                + (f"; {guess}" if guess else "")
            )
    return dict(options)


def _several(value: Any) -> tuple[Any, ...]:  # noqa: ANN401  # whatever may be one or several
    """Return one value or several as several, each once."""
    is_one = isinstance(value, (str, os.PathLike)) or not hasattr(value, "__iter__")
    return (value,) if is_one else tuple(dict.fromkeys(value))


def _sources(patterns: Source | Iterable[Source]) -> list[str | PatternRule | RewriteRule]:
    single = isinstance(patterns, (str, os.PathLike)) or not hasattr(patterns, "__iter__")
    given = [patterns] if single else patterns
    return [
        os.fspath(item) if isinstance(item, os.PathLike) else item
        for item in cast("Iterable[Source]", given)
    ]


def verify_settings(**options: Unpack[CheckOptions]) -> Settings:
    """Return what the keywords say about a comparison, for other jobs of dpl."""
    return _check_settings(_check_keywords("verify_settings", options, CheckOptions))


def _check_settings(given: dict[str, Any]) -> Settings:
    """Take the keywords of :class:`CheckOptions` out of *given*, but for *progress*."""
    from dplcli.verify.settings import Execution, Override, Settings  # noqa: PLC0415  # slow

    fields: dict[str, Any] = {
        name: given.pop(name)
        for name in (
            *("rtol", "atol", "mutants", "min_power", "refill_weights"),
            *("third_opinion", "strict"),
        )
        if name in given
    }
    if "min_power" in fields:
        fields.setdefault("mutants", _MUTANTS)
    for name, other in (("seed", "seeds"), ("level", "levels")):
        if given.get(name) is not None:
            fields[other] = _several(given[name])
        given.pop(name, None)
    if "tolerance" in given:
        overrides = given.pop("tolerance")
        fields["tolerances"] = {name: Override(**limits) for name, limits in overrides.items()}
    if "custom_ops" in given:
        fields["custom_ops"] = tuple(map(Path, _several(given.pop("custom_ops"))))
    if "save_results" in given:
        fields["save_results"] = Path(given.pop("save_results"))
    execution = {name: given.pop(name) for name in _EXECUTION if name in given}
    if "session_option" in given:
        options = given.pop("session_option")
        execution["options"] = tuple((key, str(value)) for key, value in options.items())
    execution |= _kernels(given)
    sizes, request = _input_request(given)
    return Settings(**fields, sizes=sizes, request=request, execution=Execution(**execution))


def _kernels(given: dict[str, Any]) -> dict[str, Any]:
    """Take what runs partitions out of *given*; return fields of an execution."""
    target = given.pop("kernels", None)
    require, allow_inexact = given.pop("require", None), given.pop("allow_inexact", False)
    if target is None and require is not None:
        raise UsageError("--require says how many partitions run --with a library; pass both")
    if target is None and allow_inexact:
        raise UsageError("--allow-inexact is about partitions --with a library; pass both")
    if target is None:
        return {}
    from dplcli.execute import kernels_for  # noqa: PLC0415  # rarely asked for

    require = "any" if require is None else str(require)
    return {"kernels": kernels_for(target, require, allow_inexact=allow_inexact)}


_EXECUTION = ("provider", "timeout", "memory_limit")
_MUTANTS = 20
"""How many wrong versions are tried if nothing is said but how many must be refused."""


def _input_request(given: dict[str, Any]) -> tuple[dict[str, int], InputRequest]:
    """Take out of *given* what models are fed; return sizes of dimensions, and the rest."""
    from dplcli.pipeline.verifying import input_request  # noqa: PLC0415  # only for a check
    from dplcli.verify.settings import sizes_and_shapes  # noqa: PLC0415

    sizes, shapes = sizes_and_shapes(given.pop("shape", {}))
    inputs, saved = given.pop("inputs", None), given.pop("save_inputs", None)
    made: Callable[[int], object] | None = None
    if callable(inputs):
        made = inputs
    elif inputs is not None and not isinstance(inputs, (str, os.PathLike)):
        given_arrays = {name: _fed(value) for name, value in inputs.items()}
        made = lambda _seed: given_arrays  # noqa: E731  # the same for every seed
    request = input_request(
        None if made is not None or inputs is None else os.fspath(inputs),
        ranges=given.pop("range", {}),
        shapes=shapes,
        corners=given.pop("corners", False),
        save=None if saved is None else Path(saved),
        allow_code=given.pop("allow_code", False),
    )
    if made is not None:
        request = replace(request, function=made, label="inputs")
    return sizes, request


def _written_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Take the keywords of :class:`ResultOptions` out of *given*; return fields of settings."""
    found: dict[str, Any] = {
        name: given.pop(name)
        for name in ("in_place", "keep_failed", "verify", "external_data")
        if given.get(name) is not None
    }
    found["strip"] = _several(given.pop("strip", ()))
    found["hints"] = given.pop("hints", True)
    found["verification"] = _check_settings(given)
    if found["verification"].execution.kernels is not None and not found.get("verify", True):
        raise UsageError(
            "--with runs the result, and --no-verify leaves that out; pass one of them"
        )
    return found


def _job(
    model: ModelLike,
    output: File | None,
    settings: WriteSettings,
    run: Callable[[Path, Path], AnyWritten],
) -> tuple[AnyWritten, _Stored | None]:
    """Run a job that writes a model, where the keywords say or into memory.

    Args:
        model: The model.
        output: Where to write the result; None for where *settings* say, or into memory.
        settings: Whether the result replaces the model, and is kept if it fails.
        run: Does it, from a path to a path.

    Returns:
        The outcome, and the result if there is one.
    """
    stored = _stored(model)
    if settings.in_place:
        if output not in {None, stored.place}:
            hint = "pass one of them"
            raise UsageError("--in-place and --output contradict each other", hint=hint)
        if not isinstance(stored.place, Path) or stored.scratch is not None:
            raise UsageError("only a file can be replaced in place, and the model is none")
        output = stored.place
    if output is None and settings.keep_failed:
        raise UsageError("a result that fails is kept beside the output", hint="pass an output")
    if output is None and settings.external_data != "copy":
        raise UsageError("external data is put beside the output", hint="pass an output")
    with stored.file() as path:
        if output is not None:
            outcome = replace(run(path, Path(output)), label=stored.name)
            written = outcome.delivery.output
            kept = None if written is None else _Stored(written, written.parent)
            return outcome, kept
        folder, scratch = path.parent, stored.scratch
        if scratch is None and not (_mentions_files(path) and os.access(folder, os.W_OK)):
            scratch = _Scratch()
            folder = scratch.folder
        with temporary_file(folder, ".onnx") as place:
            outcome = replace(run(path, place), label=stored.name)
            if outcome.delivery.output is None:
                return outcome, None
            content = place.read_bytes()
    delivery = replace(outcome.delivery, output=None)
    return replace(outcome, delivery=delivery), _Stored(content, folder, scratch)


# What can be done.


def load(model: ModelLike) -> InspectOutcome:
    """Read a model, to look at it or to use it several times.

    Raises:
        DplError: It is no model.
    """
    from dplcli.pipeline.inspecting import inspect  # noqa: PLC0415  # each job loads its own
    from dplcli.report.document import model_document  # noqa: PLC0415

    stored = _stored(model)
    with stored.file() as path:
        loaded = inspect(path)
    outcome = InspectOutcome(label=stored.name, ir=loaded, notes=tuple(loaded.notes))
    return outcome.answered(lambda _verbose: model_document(outcome), stored)


def match(  # noqa: PLR0913  # all by keyword
    model: ModelLike,
    *,
    patterns: Source | Iterable[Source] = (),
    target: Names = (),
    expect: Names = (),
    allow_code: bool = False,
    escape: Names = (),
    order: Names = (),
    hints: bool = True,
) -> MatchOutcome:
    """Find where rules match; nothing is changed.

    Args:
        model: The model.
        patterns: Catalogues by name or path, texts of patterns, or rules.
        target: Names of shipped catalogues that are complete for a target.
        expect: How many matches rules must have: ``dnnl.conv2d_relu>=3``.
        allow_code: Whether YAML may name Python functions to import.
        escape: What if something outside a match reads a value inside, instead of what rules say.
        order: Which matches come first.
        hints: Whether to find out what would let more rules match.

    Raises:
        DplError: The model or a catalogue cannot be used.
    """
    from dplcli.dpl.rule import Policies  # noqa: PLC0415  # each job loads its own
    from dplcli.pipeline import matching  # noqa: PLC0415
    from dplcli.pipeline.rules import catalogs_in  # noqa: PLC0415
    from dplcli.report.partition import match_document  # noqa: PLC0415

    stored = _stored(model)
    with stored.file() as path:
        outcome = matching.match(
            path,
            patterns=_sources(patterns),
            targets=_several(target),
            expectations=_several(expect),
            allow_code=allow_code,
            policies=Policies(escape=_several(escape), order=_several(order)),
            hints=hints,
        )
    outcome = replace(outcome, label=stored.name)
    names = catalogs_in(item for item in _sources(patterns) if isinstance(item, str))
    return outcome.answered(
        lambda verbose: match_document(outcome, catalogs=names, verbose=verbose)
    )


def explain(  # noqa: PLR0913  # all by keyword
    model: ModelLike,
    *,
    patterns: Source | Iterable[Source] = (),
    target: Names = (),
    rule: Names = (),
    node: str | None = None,
    allow_code: bool = False,
    escape: Names = (),
    order: Names = (),
) -> ExplainOutcome:
    """Explain why rules match where they do, and why nowhere else.

    Args:
        model: The model.
        patterns: Catalogues by name or path, texts of patterns, or rules.
        target: Names of shipped catalogues that are complete for a target.
        rule: The rules to explain; all by default.
        node: The name of a node or of a value that it makes; None for the whole model.
        allow_code: Whether YAML may name Python functions to import.
        escape: What if something outside a match reads a value inside, instead of what rules say.
        order: Which matches come first.

    Raises:
        DplError: The model or a catalogue cannot be used, or there is no such rule or node.
    """
    from dplcli.dpl.rule import Policies  # noqa: PLC0415  # each job loads its own
    from dplcli.pipeline import matching  # noqa: PLC0415
    from dplcli.report.catalog import explain_document  # noqa: PLC0415

    stored = _stored(model)
    with stored.file() as path:
        outcome = matching.explain(
            path,
            patterns=_sources(patterns),
            targets=_several(target),
            only=_several(rule),
            node=node,
            allow_code=allow_code,
            policies=Policies(escape=_several(escape), order=_several(order)),
        )
    outcome = replace(outcome, label=stored.name)

    def document(verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        return explain_document(outcome, file=_path_of(model), verbose=verbose)

    return outcome.answered(document)


def rewrite(
    model: ModelLike,
    *,
    patterns: Source | Iterable[Source] = (),
    target: Names = (),
    **options: Unpack[RewriteOptions],
) -> RewriteOutcome:
    """Replace what matches until nothing does, and verify the result.

    Args:
        model: The model.
        patterns: Catalogues by name or path, or rules.
        target: Names of shipped catalogues that are complete for a target.
        options: See :class:`RewriteOptions`.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    from dplcli.pipeline import rewriting  # noqa: PLC0415  # each job loads its own

    sources, targets = _sources(patterns), _several(target)
    given = _check_keywords("rewrite", options, RewriteOptions)
    trace, progress = given.pop("trace", None), given.pop("progress", None)
    code = given.get("allow_code", False)

    def run(path: Path, output: Path, settings: rewriting.RewriteSettings) -> RewriteOutcome:
        return rewriting.rewrite(
            path,
            output=output,
            patterns=sources,
            targets=targets,
            settings=settings,
            allow_code=code,
            progress=progress,
            trace=trace,
        )

    return _rewritten("dpl rewrite", model, given, sources, run)


def apply(  # all by keyword
    plan: File,
    model: ModelLike,
    /,
    *,
    patterns: Source | Iterable[Source] = (),
    force: bool = False,
    skip_missing: bool = False,
    **options: Unpack[RewriteOptions],
) -> RewriteOutcome:
    """Do to a model only what a plan lists, and verify the result.

    Args:
        plan: The plan, as :func:`rewrite` writes it.
        model: The model.
        patterns: Catalogues or rules to use instead of those that the plan names.
        force: Whether to apply a plan that was made for another model.
        skip_missing: Whether entries that do not fit are left out.
        options: See :class:`RewriteOptions`. The plan says what to try, and at which opset.

    Raises:
        DplError: As for :func:`rewrite`; or the plan cannot be used.
    """
    from dplcli.pipeline import rewriting  # noqa: PLC0415  # each job loads its own

    sources = _sources(patterns)
    given = _check_keywords("apply", options, RewriteOptions)
    trace, progress = given.pop("trace", None), given.pop("progress", None)
    code = given.get("allow_code", False)

    def run(path: Path, output: Path, settings: rewriting.RewriteSettings) -> RewriteOutcome:
        return rewriting.apply_plan(
            Path(plan),
            path,
            output=output,
            patterns=sources,
            settings=settings,
            force=force,
            skip_missing=skip_missing,
            allow_code=code,
            progress=progress,
            trace=trace,
        )

    return _rewritten("dpl apply", model, given, [os.fspath(plan), *sources], run)


def _rewritten(
    command: str,
    model: ModelLike,
    given: dict[str, Any],
    sources: Sequence[object],
    run: Callable[[Path, Path, Any], RewriteOutcome],
) -> RewriteOutcome:
    from dplcli.pipeline.rewriting import RewriteSettings  # noqa: PLC0415  # each job loads its own
    from dplcli.pipeline.rules import catalogs_in  # noqa: PLC0415
    from dplcli.report.rewrite import rewrite_document  # noqa: PLC0415

    output, plan = given.pop("output", None), given.pop("plan", None)
    settings = RewriteSettings(
        expectations=_several(given.pop("expect", ())),
        only=_several(given.pop("only", ())),
        skip=_several(given.pop("skip", ())),
        plan=None if plan is None else Path(plan),
        **{name: given.pop(name) for name in _REWRITING if name in given},
        **_written_settings(given),
    )
    outcome, stored = _job(model, output, settings, lambda path, place: run(path, place, settings))
    names = catalogs_in(item for item in sources if isinstance(item, str))

    def document(verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        return rewrite_document(
            command,
            outcome,
            file=_path_of(model),
            catalogs=names,
            is_verified=settings.verify,
            verbose=verbose,
        )

    return replace(outcome, is_verified=settings.verify).answered(document, stored)


_REWRITING = ("limit", "opset", "dry_run", "verify_each", "max_growth")


def partition(
    model: ModelLike,
    *,
    patterns: Source | Iterable[Source] = (),
    target: Names = (),
    **options: Unpack[PartitionOptions],
) -> PartitionOutcome:
    """Outline every match as a function call, and verify the result.

    Args:
        model: The model.
        patterns: Catalogues by name or path, texts of patterns, or rules.
        target: Names of shipped catalogues that are complete for a target.
        options: See :class:`PartitionOptions`.

    Raises:
        DplError: The model or a catalogue cannot be used, the output cannot be written, or no
            verdict on the result can be reached.
    """
    from dplcli.dpl.rule import Policies  # noqa: PLC0415  # each job loads its own
    from dplcli.pipeline import partitioning  # noqa: PLC0415
    from dplcli.pipeline.rules import catalogs_in  # noqa: PLC0415
    from dplcli.report.partition import partition_document  # noqa: PLC0415

    sources, targets = _sources(patterns), _several(target)
    given = _check_keywords("partition", options, PartitionOptions)
    progress, code = given.pop("progress", None), given.get("allow_code", False)
    policies = {name: _several(given.pop(name)) for name in _POLICIES if name in given}
    regions = {name: given.pop(name) for name in ("merge", "prune", "prepare") if given.get(name)}
    output = given.pop("output", None)
    settings = partitioning.PartitionSettings(
        expectations=_several(given.pop("expect", ())),
        measure=True,
        **regions,
        **_written_settings(given),
    )

    def run(path: Path, place: Path) -> PartitionOutcome:
        return partitioning.partition(
            path,
            output=place,
            patterns=sources,
            targets=targets,
            settings=settings,
            allow_code=code,
            policies=Policies(**policies),
            progress=progress,
        )

    outcome, stored = _job(model, output, settings, run)
    names = catalogs_in(sources)

    def document(verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        return partition_document(
            outcome,
            file=_path_of(model),
            catalogs=names,
            is_verified=settings.verify,
            verbose=verbose,
        )

    return replace(outcome, is_verified=settings.verify).answered(document, stored)


_POLICIES = ("constants", "escape", "order")


def repeat(model: ModelLike, **options: Unpack[RepeatingOptions]) -> PartitionOutcome:
    """Outline every block that the model repeats as a function call, and verify the result.

    Args:
        model: The model.
        options: See :class:`RepeatingOptions`.

    Raises:
        DplError: The model cannot be used, the output cannot be written, or no verdict on the
            result can be reached.
    """
    from dplcli.passes.repeat import RepeatOptions  # noqa: PLC0415  # each job loads its own
    from dplcli.pipeline import partitioning  # noqa: PLC0415
    from dplcli.report.partition import partition_document  # noqa: PLC0415

    given = _check_keywords("repeat", options, RepeatingOptions)
    progress, output = given.pop("progress", None), given.pop("output", None)
    names = [field.name for field in fields(RepeatOptions)]
    search = RepeatOptions(**{name: given.pop(name) for name in names if name in given})
    settings = partitioning.PartitionSettings(
        expectations=_several(given.pop("expect", ())), **_written_settings(given)
    )

    def run(path: Path, place: Path) -> PartitionOutcome:
        return partitioning.repeat(
            path, output=place, options=search, settings=settings, progress=progress
        )

    outcome, stored = _job(model, output, settings, run)

    def document(verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        return partition_document(
            outcome, file=_path_of(model), is_verified=settings.verify, verbose=verbose
        )

    return replace(outcome, is_verified=settings.verify).answered(document, stored)


def inline(model: ModelLike, **options: Unpack[InlineOptions]) -> InlineOutcome:
    """Put functions back in the place of their calls, and verify the result.

    Args:
        model: The model.
        options: See :class:`InlineOptions`.

    Raises:
        DplError: The model cannot be used, something chosen is not there, the output cannot be
            written, or no verdict on the result can be reached.
    """
    from dplcli.pipeline import partitioning  # noqa: PLC0415  # each job loads its own
    from dplcli.pipeline.writing import WriteSettings  # noqa: PLC0415
    from dplcli.report.rewrite import inline_document  # noqa: PLC0415

    given = _check_keywords("inline", options, InlineOptions)
    progress = given.pop("progress", None)
    chosen = {
        "--all-functions": given.pop("all_functions", False),
        "--call": _several(given.pop("call", ())),
        "--function": _several(given.pop("function", ())),
        "--target": _several(given.pop("target", ())),
    }
    named = [name for name, value in chosen.items() if value]
    if len(named) > 1 and named[0] in {"--all-functions", "--call"}:
        raise UsageError(
            f"{named[0]} and {named[1]} contradict each other", hint="pass one of them"
        )
    everything, calls, functions, targets = chosen.values()
    choice = partitioning.InlineChoice(targets, functions, calls, everything)
    output = given.pop("output", None)
    settings = WriteSettings(**_written_settings(given))
    outcome, stored = _job(
        model,
        output,
        settings,
        lambda path, place: partitioning.inline(
            path, output=place, choice=choice, settings=settings, progress=progress
        ),
    )

    def document(verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        return inline_document(
            outcome, file=_path_of(model), is_verified=settings.verify, verbose=verbose
        )

    return replace(outcome, is_verified=settings.verify).answered(document, stored)


def extract(
    model: ModelLike,
    *,
    from_: Names = (),
    to: Names = (),
    output: File | None = None,
    progress: Progress | None = None,
) -> ExtractOutcome:
    """Cut out what computes some values from others, as a model of its own.

    It has the nodes, weights and functions that it needs, under their names. Inputs of the model
    that are needed as well are inputs of the part, too. External data that it needs goes into one
    file beside it, and is never held in memory.

    Args:
        model: The model.
        from_: Names of values that the part is given; the model's inputs by default.
        to: Names of values that it computes; the model's outputs by default.
        output: Where to write it; by default it is for the result alone.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: A value is not there, plays no part or has no type that is known; the model cannot
            be used, or the output cannot be written.
    """
    from dplcli.pipeline import extracting  # noqa: PLC0415  # each job loads its own
    from dplcli.report.rewrite import extract_document  # noqa: PLC0415

    stored = _stored(model)
    scratch = _Scratch() if output is None else None
    place = Path(output or "") if scratch is None else scratch.folder / stored.name
    with stored.file() as path:
        outcome = extracting.extract(
            path, output=place, start=_several(from_), end=_several(to), progress=progress
        )
    if scratch is not None:
        outcome = replace(outcome, delivery=replace(outcome.delivery, output=None))
    outcome = replace(outcome, label=stored.name)

    def document(_verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        return extract_document(outcome)

    return outcome.answered(document, _Packed(place, place.parent, scratch))


def verify(
    original: ModelLike | None = None,
    candidate: ModelLike | None = None,
    **options: Unpack[VerifyOptions],
) -> VerifyOutcome:
    """Compare two models numerically in onnxruntime.

    Args:
        original: The model that is right by definition. With ``against=``, the only model; with
            ``judged=``, none.
        candidate: The model in question; with ``save_results=``, *original* by default.
        options: See :class:`VerifyOptions`.

    Raises:
        DplError: A file is no model, or no verdict can be reached.
    """
    from dplcli.pipeline import bisecting, verifying  # noqa: PLC0415  # each job loads its own
    from dplcli.report.document import verification_document  # noqa: PLC0415

    given = _check_keywords("verify", options, VerifyOptions)
    progress, layers = given.pop("progress", None), given.pop("layers", False)
    cap = given.pop("max_memory", bisecting.MEMORY_CAP)
    saved = {
        name: Path(given.pop(name)) for name in ("judged", "against") if given.get(name) is not None
    }
    settings = _check_settings(given)
    stored = [None if model is None else _stored(model) for model in (original, candidate)]
    with ExitStack() as stack:
        paths = [None if each is None else stack.enter_context(each.file()) for each in stored]
        subject = verifying.choose_subject((paths[0], paths[1]), settings, layers=layers, **saved)
        result = subject.compare(settings, progress or (lambda _phrase: None))
        inside: Layers | str | None = None
        if layers and subject.original is not None and subject.candidate is not None:
            inside = bisecting.look_inside(
                subject.original, subject.candidate, result, settings, cap
            )
    pairs = zip(paths, stored, strict=True)
    names = {path: each.name for path, each in pairs if each is not None and path is not None}
    title, files = subject.title(names), (subject.original, subject.candidate)
    one, other = subject.original or subject.judged or subject.against, subject.candidate
    models = tuple("" if path is None else names.get(path, path.name) for path in (one, other))

    outcome = VerifyOutcome(labels=models, verification=result, layers=inside)

    def document(verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        return verification_document(
            title, result, inside, models=models, files=files, verbose=verbose
        )

    return outcome.answered(document)


def diff(
    first: ModelLike,
    second: ModelLike,
    *,
    ignore: Names | None = None,
    progress: Progress | None = None,
) -> DiffOutcome:
    """Compare the structures of two models by their dataflow.

    Args:
        first: One model.
        second: The other.
        ignore: What does not count, of ``names``, ``order``, ``doc``, ``metadata``, ``value-info``,
            ``storage`` and ``other``: all but ``other`` by default, and none for ``nothing``.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: One is no model, a weight cannot be read, or there is no such thing to ignore.
    """
    from dplcli.pipeline import bisecting  # noqa: PLC0415  # each job loads its own
    from dplcli.report.diff import diff_document, drawn_models  # noqa: PLC0415

    one, other = _stored(first), _stored(second)
    facets = None if ignore is None else _several(ignore)
    with one.file() as before, other.file() as after:
        outcome = bisecting.diff(before, after, ignore=facets, progress=progress)
    outcome = replace(outcome, labels=(one.name, other.name))

    def document(verbose: bool) -> Document:  # noqa: FBT001  # as the result calls it
        made = diff_document(outcome, verbose=verbose)
        return replace(made, draws=lambda: drawn_models(outcome, (before, after)))

    return outcome.answered(document)


def learn(  # noqa: PLR0913  # all by keyword
    model: ModelLike | None = None,
    *,
    nodes: Names = (),
    before: ModelLike | None = None,
    after: ModelLike | None = None,
    name: str = "",
    target: str = "",
    exact: bool = False,
    verify: bool = True,
    progress: Progress | None = None,
) -> RulesOutcome:
    """Learn a rule from nodes of a model, or rules from two models.

    Args:
        model: The model.
        nodes: Its nodes, by their names or by values that they make.
        before: Instead of *model*: a model as it was.
        after: What somebody made of it.
        name: What to call the rule; by default its operators name it.
        target: The target of the rule; ``custom`` by default.
        exact: Whether every attribute is demanded as it is.
        verify: Whether to run what the rules make of *before*.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        DplError: A model cannot be used, or the nodes make no subgraph.
    """
    from dplcli.pipeline.catalogs import learn as learn_rule  # noqa: PLC0415  # each loads its own
    from dplcli.pipeline.learning import learn_rewrites  # noqa: PLC0415

    if before is not None or after is not None:
        others = {"MODEL": model, "--nodes": nodes, "--target": target, "--exact": exact}
        for option, value in others.items():
            if value:
                raise UsageError(
                    f"{option} does not go with --before and --after",
                    hint="rules are learned from nodes of one model, or from two models",
                )
        if before is None or after is None:
            given, missing = ("--after", "--before") if before is None else ("--before", "--after")
            raise UsageError(f"{given} without {missing}", hint=f"pass {missing} FILE as well")
        with _file_of(before) as one, _file_of(after) as other:
            learned = learn_rewrites(one, other, name=name, verify=verify, progress=progress)
        return _learned(learned)
    if model is None:
        raise UsageError(
            "no model is named", hint="pass MODEL --nodes NAMES, or --before FILE --after FILE"
        )
    if not [node for node in _several(nodes) if node.strip(" ,")]:
        raise UsageError("no node is named", hint="pass --nodes NAME,NAME,…")
    with _file_of(model) as path:
        found = learn_rule(
            path, nodes=_several(nodes), name=name, target=target or "custom", exact=exact
        )
    return _learned(found)


def _learned(outcome: LearnOutcome | RewritesOutcome) -> RulesOutcome:
    from dplcli.report.learn import learn_document  # noqa: PLC0415  # loads rich

    return outcome.answered(lambda verbose: learn_document(outcome, verbose=verbose))


def run(
    model: ModelLike,
    inputs: File | Mapping[str, ArrayLike] | Callable[[int], object] | None = None,
    **options: Unpack[RunOptions],
) -> RunOutcome:
    """Run a model in onnxruntime, in a process of its own.

    Args:
        model: The model.
        inputs: What to feed: a file or folder, a dict of arrays, or a function of a seed. What is
            missing is made up to fit the model, as for :func:`verify`.
        options: See :class:`RunOptions`.

    Raises:
        DplError: The model cannot be used, inputs do not fit, or onnxruntime does not run it.
    """
    from dplcli.pipeline.running import run_model  # noqa: PLC0415  # each job loads its own
    from dplcli.report.running import run_document  # noqa: PLC0415

    given = _check_keywords("run", options, RunOptions)
    output, progress = given.pop("output", None), given.pop("progress", None)
    given["level"] = given.get("level", "all")
    given["seed"] = given.get("seed", 0)
    if inputs is not None:
        given["inputs"] = inputs
    stored = _stored(model)
    with stored.file() as path:
        outcome = run_model(
            path,
            output=None if output is None else Path(output),
            settings=_check_settings(given),
            progress=progress,
        )
    outcome = replace(outcome, label=stored.name)
    return outcome.answered(lambda _verbose: run_document(outcome))


def bench(
    first: ModelLike,
    second: ModelLike | None = None,
    inputs: File | Mapping[str, ArrayLike] | Callable[[int], object] | None = None,
    **options: Unpack[BenchOptions],
) -> BenchOutcome:
    """Time two models by turns, each in a process of its own.

    Args:
        first: The model that is the measure; it runs in onnxruntime alone.
        second: The other, whose partitions run on a library if *kernels* names one; by default
            the same model.
        inputs: What to feed both, as for :func:`run`.
        options: See :class:`BenchOptions`.

    Raises:
        DplError: A model cannot be used or run, inputs do not fit, or a library is missing.
    """
    from dplcli.pipeline import timing  # noqa: PLC0415  # each job loads its own
    from dplcli.report.timing import bench_document  # noqa: PLC0415

    given = _check_keywords("bench", options, BenchOptions)
    progress = given.pop("progress", None)
    numbers = {
        name: given.pop(key) for name, key in (("rounds", "runs"), ("threads",) * 2) if key in given
    }
    given["level"] = given.get("level", "all")
    given["seed"] = given.get("seed", 0)
    if inputs is not None:
        given["inputs"] = inputs
    ours = _stored(first)
    theirs = None if second is None else _stored(second)
    with ours.file() as path, nullcontext(None) if theirs is None else theirs.file() as other:
        outcome = timing.bench(
            path, other, settings=_check_settings(given), progress=progress, **numbers
        )
    labels = (ours.name, (theirs or ours).name)
    sides = zip(outcome.sides, labels, strict=True)
    outcome = replace(
        outcome,
        label=labels[0],
        sides=tuple(replace(side, label=label) for side, label in sides),
    )
    return outcome.answered(lambda _verbose: bench_document(outcome))
