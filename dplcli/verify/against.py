"""Comparing a model with what a file of results holds: another version's, another machine's.

The reference is not run again. What it was fed, and what the original gave for it, is in the file
(`dplcli.verify.evidence`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dplcli.errors import UsageError
from dplcli.verify.evidence import Evidence, runtime_version
from dplcli.verify.execution import Execution
from dplcli.verify.interface import check_expansion, input_ports, output_ports, read_model
from dplcli.verify.judgement import REFERENCE, Runs
from dplcli.verify.result import Settings, VerificationResult
from dplcli.verify.sessions import RunError, Runner, Source, StoppedError, check_setup, run_seeds

Progress = Callable[[str], None]


def verify_against(
    evidence: Evidence, candidate: Path, settings: Settings, *, progress: Progress
) -> VerificationResult:
    """Compare what *candidate* computes here with what the original of *evidence* gave.

    Args:
        evidence: What was fed and what came out of it.
        candidate: The model in question.
        settings: Levels, tolerances, custom operators and execution are used.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        ModelLoadError: The file is missing or holds no model.
        UsageError: A tolerance is for an unknown output, a library cannot be loaded, or the
            original computed with weights that were refilled.
    """
    if evidence.result.refilled:
        raise UsageError(
            f"the results are of a model of which {evidence.result.refilled:,} weights were "
            "refilled: a model's own weights do not give them",
            hint="save results without --refill-weights, or compare the two models",
        )
    check_setup(settings.custom_ops, settings.execution)
    reasons = _other_names(evidence, candidate, settings.execution)
    runs: dict[str, Runs] = {}
    source = Source(
        candidate,
        libraries=settings.custom_ops,
        execution=settings.execution,
        name="candidate",
    )
    cases = tuple(evidence.result.cases)
    for level in settings.levels if not reasons else ():
        progress(f"running the candidate, optimisation level {level}")
        try:
            runs[level] = run_seeds(Runner(source, level), evidence.feeds, cases)
        except RunError as error:
            reasons.append(f"onnxruntime does not run the candidate (level {level}): {error}")
        except StoppedError as error:
            reasons.append(error.message)
    result = replace(
        evidence.result,
        levels=settings.levels,
        reasons=tuple(reasons),
        warnings=(*evidence.result.warnings, *_other_versions(evidence)),
    )
    return replace(evidence, candidates=runs, result=result).judge(settings)


def _other_names(evidence: Evidence, candidate: Path, execution: Execution) -> list[str]:
    """Say what of the saved inputs and outputs the candidate does not have, or has besides."""
    model = read_model(candidate)
    check_expansion(candidate, model, execution)
    graph = model.graph
    fed = next(iter(evidence.feeds.values()), {})
    gave = next(iter(evidence.originals[REFERENCE].values()), {})
    return [
        *_differences("input", fed, [port.name for port in input_ports(graph)]),
        *_differences("output", gave, [port.name for port in output_ports(graph)]),
    ]


def _differences(what: str, saved: Mapping[str, object], names: Sequence[str]) -> list[str]:
    missing = [f"the candidate has no {what} {name!r}" for name in saved if name not in names]
    return missing + [
        f"the results hold no {what} {name!r}, which the candidate has"
        for name in names
        if name not in saved
    ]


def _other_versions(evidence: Evidence) -> list[str]:
    here = runtime_version()
    if not evidence.runtime or evidence.runtime == here:
        return []
    return [f"the results are onnxruntime {evidence.runtime}'s; the candidate ran in {here}"]
