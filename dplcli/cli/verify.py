"""``dpl verify``, also of the values inside two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli import many, options
from dplcli.errors import UsageError, VerificationError
from dplcli.report.document import verification_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# Options that keep what models gave, and judge it later or elsewhere.


RESULTS = options.SettingsGroup(
    "Saved results",
    options.Setting(
        "save_results",
        type=options.PATH,
        metavar="FILE",
        help="Write what was fed and what both models gave to a numpy archive, for --from and "
        "--against. Without CANDIDATE, ORIGINAL stands for both.",
    ),
    options.Setting(
        "judged",
        "--from",
        type=options.PATH,
        metavar="FILE",
        help="Judge saved results, with --rtol, --atol and --tolerance; no model is run.",
    ),
    options.Setting(
        "against",
        type=options.PATH,
        metavar="FILE",
        help="Run one model on saved inputs, and compare with what the original gave then: "
        "with another version of onnxruntime, on another machine.",
    ),
)


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

    @property
    def title(self) -> str:
        """What reports call it."""
        names = [path.name for path in (self.candidate, self.original) if path is not None]
        names += [path.name for path in (self.judged, self.against) if path is not None]
        return " against ".join(names)

    def compare(
        self, settings: pipeline.VerifySettings, say: Callable[[str], None]
    ) -> pipeline.VerificationResult:
        """Return the verdict."""
        if self.judged is not None:
            return pipeline.judge_again(self.judged, settings=settings)
        if self.candidate is None:
            raise UsageError("dpl verify needs a model")
        if self.against is not None:
            return pipeline.verify_against(
                self.against, self.candidate, settings=settings, progress=say
            )
        return pipeline.verify(
            self.original or self.candidate, self.candidate, settings=settings, progress=say
        )


def choose_subject(
    models: tuple[Path | None, Path | None],
    settings: pipeline.VerifySettings,
    *,
    layers: bool,
    judged: Path | None = None,
    against: Path | None = None,
) -> Subject:
    """Decide what is compared, from arguments and options.

    Args:
        models: ORIGINAL and CANDIDATE, as far as given.
        settings: All the other options.
        layers: Whether --layers was given.
        judged: What --from was given.
        against: What --against was given.

    Raises:
        UsageError: Arguments and options do not go together.
    """
    original, candidate = models
    if judged is not None and against is not None:
        raise UsageError("--from and --against contradict each other", hint="pass one of them")
    if judged is not None:
        _check_offline(settings, models, layers=layers)
        return Subject(None, None, judged=judged)
    if against is not None:
        if original is None or candidate is not None:
            raise UsageError("--against takes one model: dpl verify MODEL --against RESULTS")
        _check_saved_inputs(settings, layers=layers)
        return Subject(None, original, against=against)
    if original is not None and candidate is None and settings.save_results is not None:
        candidate = original
    if original is None or candidate is None:
        raise UsageError(
            "dpl verify needs ORIGINAL and CANDIDATE",
            hint="or saved results: --from RESULTS, MODEL --against RESULTS",
        )
    request = settings.request
    _check_results_path(settings.save_results, (original, candidate, request.given, request.save))
    return Subject(original, candidate)


def _check_offline(
    settings: pipeline.VerifySettings, models: tuple[Path | None, ...], *, layers: bool
) -> None:
    """Refuse options that do nothing when saved results are judged."""
    plain = pipeline.VerifySettings(
        rtol=settings.rtol, atol=settings.atol, tolerances=settings.tolerances
    )
    if settings != plain or layers or any(model is not None for model in models):
        raise UsageError(
            "--from judges what was saved: no model is run",
            hint="only --rtol, --atol, --tolerance and where to report go with it",
        )


def _check_saved_inputs(settings: pipeline.VerifySettings, *, layers: bool) -> None:
    """Refuse options that do nothing when inputs are saved and the original is not run."""
    plain = pipeline.VerifySettings(
        rtol=settings.rtol,
        atol=settings.atol,
        tolerances=settings.tolerances,
        levels=settings.levels,
        custom_ops=settings.custom_ops,
        execution=settings.execution,
    )
    if settings != plain or layers:
        raise UsageError(
            "--against feeds what was saved, and does not run the original",
            hint="only levels, tolerances, --custom-ops, where the model runs and where to report "
            "go with it",
        )


def _check_results_path(save_results: Path | None, others: tuple[Path | None, ...]) -> None:
    """Refuse early where results cannot be, or must not be, written."""
    if save_results is None:
        return
    folder = save_results.parent
    if save_results.is_dir() or not folder.is_dir():
        raise UsageError(f"--save-results {save_results}: is not a file in a folder that exists")
    if any(path is not None and save_results.resolve() == path.resolve() for path in others):
        raise UsageError(f"--save-results {save_results}: is another file of this command")


_INSIDE = "The values inside"


def look_inside(
    original: Path,
    candidate: Path,
    result: pipeline.VerificationResult,
    settings: pipeline.VerifySettings,
    cap: int,
) -> pipeline.Layers | str:
    """Compare what is inside two models, for the seed that is worst; or say why it cannot be."""
    if result.reasons and not result.outputs:
        return "nothing inside was compared: the candidate cannot be run on the same inputs"
    wrong = [output for output in result.outputs if not output.ok]
    seed = wrong[0].seed if wrong else None
    try:
        return pipeline.compare_layers(original, candidate, settings, seed=seed, cap=cap)
    except VerificationError as error:
        return error.message


# ``dpl verify``.


@click.command("verify", cls=options.GroupedCommand)
@click.argument("original", type=options.PATH, required=False)
@click.argument("candidate", type=options.PATH, required=False)
@many.takes_pairs("original", "candidate")
@RESULTS
@options.option(
    _INSIDE,
    "--layers",
    is_flag=True,
    help="Compare the values inside, too: a row for every value that both models compute, "
    "found by what dpl noted when it changed the model, by dataflow and by numbers.",
)
@options.option(
    _INSIDE,
    "--max-memory",
    type=click.IntRange(min=1),
    default=pipeline.MEMORY_CAP,
    show_default=True,
    metavar="MB",
    help="With --layers: hold so many megabytes of values of each model at once.",
)
@options.verify_options
@options.input_code_option
@options.printing_options("Say what is being done.", *options.EVERY_FORM)
def command(  # noqa: PLR0913  # one parameter per option
    *,
    original: Path | None,
    candidate: Path | None,
    layers: bool,
    max_memory: int,
    allow_code: bool,
    printing: options.Printing,
    **given: Any,  # noqa: ANN401  # those of RESULTS and verify_options
) -> None:
    """Compare ORIGINAL and CANDIDATE numerically in onnxruntime.

    Exits with 0 if every output of the candidate agrees with the original within the tolerance
    derived from its type and magnitude, at every optimisation level; else with 1.
    """
    results = RESULTS.take(given)
    printing.check(original, candidate, *results.values())
    save_results = results.pop("save_results", None)
    settings = options.take_verification(given, allow_code=allow_code, save_results=save_results)
    subject = choose_subject((original, candidate), settings, layers=layers, **results)
    inside = None
    with printing.progress() as say:
        result = subject.compare(settings, say)
        if layers and subject.original is not None and subject.candidate is not None:
            inside = look_inside(subject.original, subject.candidate, result, settings, max_memory)
    files = (subject.original, subject.candidate)
    document = verification_document(subject.title, result, inside, files=files)
    printing.conclude(document)
