"""Compare two models by running them on inputs."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplcli.catalog.compiled import read_compiled
from dplcli.catalog.python import FUNCTION, find_function
from dplcli.errors import UsageError, opt
from dplcli.files import resolved
from dplcli.onnx_io import check_external_data, load_model, to_proto
from dplcli.outcomes.comparing import AccuracyOutcome
from dplcli.passes.rewrite import rewrite as rewrite_model
from dplcli.pipeline.rules import READERS
from dplcli.settings import EngineSettings, KernelSettings, several
from dplcli.verify import Check
from dplcli.verify.check import Execution, InputFunction, InputRequest, Override, sizes_and_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.settings import AccuracySettings, BaseSettings, ComparingSettings
    from dplcli.verify import VerificationResult

    Progress = Callable[[str], None]


# What settings of a job say about a comparison.


_SPELLED_OUT = "qoperator_to_qdq"
"""The catalogue that writes operators on quantised tensors with floats between steps."""

_MUTANTS = 20
"""How many wrong versions are tried if nothing is said but how many must be refused."""


def check_of(chosen: BaseSettings) -> Check:
    """Return what settings of a job say about a comparison, or about the run of one model.

    Raises:
        UsageError: A function is named without leave, or the wishes contradict each other.
        CatalogError: The function cannot be imported.
    """
    given = {name: value for name, value in vars(chosen).items() if value is not None}
    names = (field.name for field in fields(Check))
    alike = {name: given[name] for name in names if name in given}
    if "min_power" in given:
        alike.setdefault("mutants", _MUTANTS)
    sizes, shapes, sums = sizes_and_shapes(given["shape"])
    own = given.get("tolerance", {})
    # Describe what models are fed: a path, a function or its name, or arrays.
    inputs, label = given.get("inputs"), ""
    function: InputFunction | None = None
    if callable(inputs):
        inputs, function, label = None, inputs, "inputs"
    elif inputs is not None and not isinstance(inputs, (str, os.PathLike)):
        arrays = {name: _fed(value) for name, value in inputs.items()}
        inputs, function, label = None, lambda _seed: arrays, "inputs"  # the same for every seed
    elif inputs is not None:
        label = os.fspath(inputs)
        if not Path(label).exists():
            function = _function(label, allow_code=given.get("allow_code", False))
    return Check(
        **alike,
        seeds=several(given["seed"]) or None,
        levels=several(given["level"]) or None,
        tolerances={name: Override(**limits) for name, limits in own.items()},
        sizes=sizes,
        request=InputRequest(
            given=None if inputs is None or function is not None else Path(inputs),
            function=function,
            label=label,
            ranges=given["range"],
            shapes=shapes,
            sums=sums,
            save=given.get("save_inputs"),
        ),
        execution=_execution(given),
    )


def _execution(given: Mapping[str, Any]) -> Execution:
    limits = ("provider", "timeout", "memory_limit")
    fields = {name: given[name] for name in limits if name in given}
    options = tuple((key, str(value)) for key, value in given["session_option"].items())
    if "kernels" in given:
        from dplcli.execute import kernels_for  # noqa: PLC0415  # rarely asked for

        require = str(given.get("require", "any"))
        fields["kernels"] = kernels_for(
            given["kernels"], require, allow_inexact=given["allow_inexact"], math=given["math"]
        )
    return Execution(**fields, options=options)


def _fed(value: object) -> object:
    """Return the arrays of a sequence as a list."""
    import numpy as np  # noqa: PLC0415  # only where a model will run

    is_sequence = isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1
    items = list(value) if is_sequence else []  # type: ignore[call-overload]  # an array
    return items if items and all(isinstance(item, np.ndarray) for item in items) else value


def _function(inputs: str, *, allow_code: bool) -> InputFunction | None:
    """Import the function that *inputs* names; return None if it names no function."""
    reference = FUNCTION.fullmatch(inputs)
    if reference is None:
        return None
    if not allow_code:
        raise UsageError(
            f"{opt('inputs')} {inputs}: is code, which is executed",
            hint=f"pass {opt('allow_code')} if you trust it",
        )
    module = Path(reference["module"])
    is_file = module.suffix == ".py"
    if is_file and not module.is_file():
        raise UsageError(f"{opt('inputs')} {inputs}: there is no file {str(module)!r}")
    folder = module.parent if is_file else Path.cwd()
    name = module.stem if is_file else reference["module"]
    return find_function(f"{name}:{reference['function']}", folder, opt("inputs"))


# Comparing two models.


def verify(
    original: Path,
    candidate: Path,
    *,
    check: Check | None = None,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare two models in onnxruntime.

    Raises:
        DplError: A file is no model, or no verdict can be reached.
    """
    prepare(check)
    for path in (original, candidate):
        check_external_data(load_model(path))
    return compare(original, candidate, check, progress, prove=True)


def prepare(check: Check | None) -> None:
    """Start the process that will run the models, while dpl does something else."""
    from dplcli.verify.run import warm_up  # noqa: PLC0415  # only where models run

    if check is None or check.execution.isolated:
        warm_up()


def compare(
    original: Path,
    candidate: Path,
    check: Check | None,
    progress: Progress | None,
    *,
    prove: bool = False,
) -> VerificationResult:
    """Compare two files whose external data was checked before.

    With *prove*, a proof that they are one graph is tried first.
    """
    from dplcli.verify.equivalence import verify_equivalence  # noqa: PLC0415  # onnxruntime

    return verify_equivalence(original, candidate, check or Check(), prove=prove, progress=progress)


def prove(original: Path, candidate: Path) -> tuple[str, str]:
    """Prove by structure that a file is the other one up to functions; no model is run.

    Returns:
        What is proved, or "", and why nothing is, or "".
    """
    from dplcli.verify.proof import UnprovedError, prove_same  # noqa: PLC0415  # onnx's inliner

    try:
        return str(prove_same(original, candidate)), ""
    except UnprovedError as error:
        return "", str(error)


def judge_again(results: Path, *, check: Check | None = None) -> VerificationResult:
    """Judge saved results with other tolerances; no model is run.

    Args:
        results: What a verification saved (`Check.save_results`).
        check: Its tolerances are used, nothing else of it.

    Raises:
        UsageError: The file holds no saved results, or a tolerance is for an unknown output.
    """
    from dplcli.verify.evidence import load_evidence  # noqa: PLC0415  # onnxruntime

    return load_evidence(results).judge(check or Check())


def accuracy(original: Path, candidate: Path, chosen: AccuracySettings) -> AccuracyOutcome:
    """Run two models on the same inputs, and measure how near they are.

    Raises:
        DplError: A file is no model, or they cannot be run on the same inputs.
    """
    from dplcli.verify.accuracy import measure_accuracy  # noqa: PLC0415  # onnxruntime

    check = check_of(chosen)
    prepare(check)
    for path in (original, candidate):
        check_external_data(load_model(path))
    measured = measure_accuracy(
        original,
        candidate,
        check,
        layers=chosen.layers,
        spelled_out=_spelled_out(candidate) if chosen.layers else None,
        say=chosen.progress or (lambda _phrase: None),
    )
    asked = {
        "sqnr": chosen.min_sqnr,
        "cosine": chosen.min_cosine,
        "agreement": chosen.min_agreement,
    }
    return AccuracyOutcome(
        labels=(original.name, candidate.name),
        measured=measured,
        bounds={name: least for name, least in asked.items() if least is not None},
    )


def _spelled_out(path: Path) -> bytes | None:
    """Return a model with floats between steps in the place of operators on quantised tensors.

    None if it has no such operators.
    """
    model = load_model(path)
    rules = read_compiled([_SPELLED_OUT], model.codec.schemas, readers=READERS).rewrites
    done = any(rewrite_model(model, rules).counts.values())
    return to_proto(model).SerializeToString() if done else None


# What is compared: two models, or results that were saved.


@dataclass(frozen=True)
class Subject:
    """The models or results that are compared.

    Attributes:
        original: The model that is right by definition; None if results are.
        candidate: The model in question; None if results are judged again.
        judged: Results to judge again.
        against: Results to compare the candidate with.
    """

    original: Path | None
    candidate: Path | None
    judged: Path | None = None
    against: Path | None = None

    def title(self, names: Mapping[Path, str]) -> str:
        """Return what reports call it; *names* has those of models that are not their file's."""
        parts = (self.candidate, self.original, self.judged, self.against)
        return " against ".join(names.get(path, path.name) for path in parts if path is not None)

    def compare(self, check: Check, say: Progress) -> VerificationResult:
        """Return the verdict."""
        if self.judged is not None:
            return judge_again(self.judged, check=check)
        if self.candidate is None:
            raise UsageError("dpl verify needs a model")
        if self.against is not None:
            from dplcli.verify import evidence  # noqa: PLC0415  # onnxruntime

            prepare(check)
            check_external_data(load_model(self.candidate))
            saved = evidence.load_evidence(self.against)
            return evidence.verify_against(saved, self.candidate, check, progress=say)
        return verify(self.original or self.candidate, self.candidate, check=check, progress=say)


_JUDGING = {"judged", "against", "rtol", "atol", "tolerance", "max_memory", "allow_code"}
"""Options that say how saved results are judged, or nothing of them."""

_RUNNING = {*_JUDGING, "level", "custom_ops", *EngineSettings.options, *KernelSettings.options}
"""Options that say how one model is run, too."""


def choose_subject(
    models: tuple[Path | None, Path | None], chosen: ComparingSettings, check: Check
) -> Subject:
    """Decide what is compared, from arguments and options.

    Args:
        models: ORIGINAL and CANDIDATE, as far as given.
        chosen: The options.
        check: What they say about the comparison.

    Raises:
        UsageError: Arguments and options do not go together.
    """
    original, candidate = models
    if chosen.judged is not None and chosen.against is not None:
        raise UsageError(
            f"{opt('judged')} and {opt('against')} contradict each other", hint="pass one of them"
        )
    if chosen.judged is not None:
        if chosen.beyond(_JUDGING) or models != (None, None):
            raise UsageError(
                f"{opt('judged')} judges what was saved: no model is run",
                hint=f"only {opt('rtol')}, {opt('atol')}, {opt('tolerance')} and where to "
                "report go with it",
            )
        return Subject(None, None, judged=chosen.judged)
    if chosen.against is not None:
        if original is None or candidate is not None:
            raise UsageError(
                f"{opt('against')} takes one model: dpl verify MODEL --against RESULTS"
            )
        if chosen.beyond(_RUNNING):
            raise UsageError(
                f"{opt('against')} feeds what was saved, and does not run the original",
                hint=f"only levels, tolerances, {opt('custom_ops')}, where the model runs and "
                "where to report go with it",
            )
        return Subject(None, original, against=chosen.against)
    if original is not None and candidate is None and check.save_results is not None:
        candidate = original
    if original is None or candidate is None:
        raise UsageError(
            "dpl verify needs ORIGINAL and CANDIDATE",
            hint=f"or saved results: {opt('judged', 'RESULTS')}, MODEL {opt('against', 'RESULTS')}",
        )
    request = check.request
    _check_results_path(check.save_results, (original, candidate, request.given, request.save))
    return Subject(original, candidate)


def _check_results_path(save_results: Path | None, others: tuple[Path | None, ...]) -> None:
    """Refuse early where results cannot be, or must not be, written."""
    if save_results is None:
        return
    folder = save_results.parent
    if save_results.is_dir() or not folder.is_dir():
        raise UsageError(
            f"{opt('save_results')} {save_results}: is not a file in a folder that exists"
        )
    if any(path is not None and resolved(save_results) == resolved(path) for path in others):
        raise UsageError(f"{opt('save_results')} {save_results}: is another file of this command")


# Running one model.
