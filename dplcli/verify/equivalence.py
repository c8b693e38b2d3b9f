"""Judging whether two models compute the same, with onnxruntime as the witness.

The original runs with graph optimisation off: that is the reference. The candidate runs at every
level asked for. At a level other than 'disable' an output passes if it agrees with the reference,
or with the original *at the same level*: the first says that the candidate is right, the second
that it gives whoever deploys at that level what the original gives them today. Both are needed,
because the optimiser moves results on its own (by 0.14 for one quantised vision transformer) and
that is not the candidate's doing. Each comparison names the baseline that it was held against.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dplcli.errors import VerificationError
from dplcli.verify.compare import Judge, severity
from dplcli.verify.dataflow import Dataflow
from dplcli.verify.interface import input_ports, read_model, signature_differences
from dplcli.verify.power import blind_outputs, blind_warnings, random_warnings, value_warnings
from dplcli.verify.refill import (
    MATRIX_GAINS,
    Drawer,
    Weight,
    find_weights,
    names_made_by_shape,
    replace_weights,
)
from dplcli.verify.result import OutputComparison, Settings, VerificationResult
from dplcli.verify.saving import check_saving, save_inputs
from dplcli.verify.sessions import Outputs, RunError, Runner, Source, check_libraries
from dplcli.verify.stimulus import Stimulus, find_stimulus
from dplcli.verify.tolerance import working_type

Progress = Callable[[str], None]
DEFAULT_SETTINGS = Settings()

_REFERENCE = "disable"
_SHARED_LIBRARIES = "the original does not run without the custom operators, so it uses them, too"


def verify_equivalence(
    original: Path,
    candidate: Path,
    settings: Settings = DEFAULT_SETTINGS,
    *,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare what two model files compute on inputs made for the original.

    Neither file is changed, and external data is only read by onnxruntime. That the candidate has
    another signature, or that onnxruntime refuses it, is an answer: not equivalent.

    Args:
        original: The model that is right by definition.
        candidate: The model in question.
        settings: Seeds, levels, tolerances, sizes.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        ModelLoadError: A file is missing or holds no model.
        VerificationError: No verdict: onnxruntime does not run the original, or no inputs were
            found that it accepts.
        UsageError: A size was given for a dimension that the original does not have, or a
            library of custom operators cannot be loaded.
    """
    check_libraries(settings.custom_ops)
    check_saving(settings.request, original, candidate)
    ours, theirs = read_model(original), read_model(candidate)
    if differences := signature_differences(ours.graph, theirs.graph):
        return VerificationResult(
            equivalent=False,
            seeds=settings.seeds,
            levels=settings.levels,
            reasons=tuple(differences),
        )
    nodes = (len(ours.graph.node), len(theirs.graph.node))
    made = names_made_by_shape(theirs.graph)
    del theirs
    check = _Check(Dataflow(ours), settings, progress or (lambda _: None), nodes)
    if settings.refill_weights:
        check.plan_refill(made)
    return check.run(original, candidate)


@dataclass(frozen=True)
class _Reference:
    """The original's outputs per seed, what it was fed, and which outputs ignore that."""

    source: Source
    stimulus: Stimulus
    outputs: dict[int, Outputs]
    blind: tuple[str, ...]


class _Check:
    """One verification under way: collects warnings, creates each session once."""

    def __init__(
        self, flow: Dataflow, settings: Settings, say: Progress, nodes: tuple[int, int]
    ) -> None:
        self._flow = flow
        self._settings = settings
        self._say = say
        self._nodes = nodes
        self._coarsest = working_type(flow)
        self._weights: list[Weight] = []
        self._drawer = Drawer([], 0)
        self._warnings = random_warnings(flow)

    def plan_refill(self, made: set[str]) -> None:
        """Choose the weights to refill: those that both models make in the main graph.

        Args:
            made: What ConstantOfShape makes in the candidate.
        """
        found = find_weights(self._flow)
        self._weights = [weight for weight in found if weight.name in made]
        self._drawer = Drawer(self._weights, self._settings.seeds[0])
        if not found:
            self._warnings.append("there are no weights to refill: no ConstantOfShape makes one")
        elif missing := len(found) - len(self._weights):
            self._warnings.append(
                f"{missing} weights keep their values: the candidate does not make them any more"
            )

    def run(self, original: Path, candidate: Path) -> VerificationResult:
        """Return the verdict on two files with the same signature."""
        gain, *lower = MATRIX_GAINS
        reference = self._reference(self._source(original, gain))
        while self._weights and reference.blind and lower:
            gain = lower.pop(0)
            reference = self._reference(self._source(original, gain))
        if (path := self._settings.request.save) is not None:
            save_inputs(path, reference.stimulus)
        outputs: list[OutputComparison] = []
        reasons: list[str] = []
        source = replace(self._source(candidate, gain), libraries=self._settings.custom_ops)
        for level in self._settings.levels:
            try:
                runs = self._run_candidate(source, level, reference.stimulus)
            except RunError as error:
                reasons.append(f"onnxruntime does not run the candidate ({_at(level)}): {error}")
            else:
                outputs += self._compare(reference, runs, level)
        return VerificationResult(
            equivalent=not reasons and all(output.ok for output in outputs),
            seeds=self._settings.seeds,
            levels=self._settings.levels,
            inputs=reference.stimulus.choices,
            outputs=tuple(outputs),
            reasons=tuple(reasons),
            warnings=(*self._warnings, *reference.stimulus.notes, *self._power_warnings(reference)),
            blind_outputs=reference.blind,
            refilled=len(self._weights),
            cases=reference.stimulus.cases,
        )

    def _source(self, path: Path, gain: float) -> Source:
        """Return what to run: the file, or a copy in memory with refilled weights."""
        if not self._weights:
            return Source(path)
        self._say(f"refilling {len(self._weights):,} weights")
        values = self._drawer.values(gain)
        return Source(path, replace_weights(read_model(path), values), values)

    def _session(self, source: Source, which: str, level: str) -> Runner:
        nodes = self._nodes[which != "original"]
        self._say(f"creating a session for the {which} ({nodes:,} nodes), {_at(level)}")
        return Runner(source, level)

    def _reference(self, source: Source) -> _Reference:
        ports = input_ports(self._flow.model.graph)
        source, runner = self._open_original(source)
        self._say("looking for inputs that the original accepts")
        judge = self._judge(_REFERENCE, _REFERENCE, self._settings.seeds[0])
        stimulus, outputs = find_stimulus(
            self._flow,
            ports,
            runner,
            self._settings.seeds,
            self._settings.sizes,
            request=self._settings.request,
            judge=judge,
        )
        runs = list(outputs.values())
        blind = blind_outputs(judge, runs) if ports and len(runs) > 1 else ()
        return _Reference(source, stimulus, outputs, blind)

    def _open_original(self, source: Source) -> tuple[Source, Runner]:
        """Create the session that is right by definition, without custom operators if it can be."""
        libraries = self._settings.custom_ops
        problem: RunError | None = None
        for attempt in [source, replace(source, libraries=libraries)][: 1 + bool(libraries)]:
            try:
                runner = self._session(attempt, "original", _REFERENCE)
            except RunError as error:
                problem = error
                continue
            if attempt.libraries and _SHARED_LIBRARIES not in self._warnings:
                self._warnings.append(_SHARED_LIBRARIES)
            return attempt, runner
        raise VerificationError(
            f"onnxruntime does not run the original model: {problem}"
        ) from problem

    def _judge(self, level: str, baseline: str, seed: int) -> Judge:
        rtol, atol = self._settings.rtol, self._settings.atol
        return Judge(level, baseline, seed, self._coarsest, rtol, atol)

    def _power_warnings(self, reference: _Reference) -> list[str]:
        refillable = bool(reference.blind and not self._weights and find_weights(self._flow))
        return [
            *blind_warnings(reference.blind, refillable=refillable),
            *value_warnings(list(reference.outputs.values()), reference.blind),
        ]

    def _run_candidate(
        self, candidate: Source, level: str, stimulus: Stimulus
    ) -> dict[int, Outputs]:
        runner = self._session(candidate, "candidate", level)
        self._say(f"running the candidate, {_at(level)}")
        return {case: runner.run(stimulus.feeds[case]) for case in stimulus.cases}

    def _compare(
        self, reference: _Reference, runs: dict[int, Outputs], level: str
    ) -> list[OutputComparison]:
        found = self._worst(reference.outputs, runs, level, _REFERENCE)
        if level == _REFERENCE or all(comparison.ok for comparison in found):
            return found
        try:
            runner = self._session(reference.source, "original", level)
            stimulus = reference.stimulus
            alike = {case: runner.run(stimulus.feeds[case]) for case in stimulus.cases}
        except RunError as error:
            self._warnings.append(f"the original does not run, {_at(level)}: {error}")
            return found
        again = self._worst(alike, runs, level, level)
        return [b if b.ok and not a.ok else a for a, b in zip(found, again, strict=True)]

    def _worst(
        self, expected: dict[int, Outputs], actual: dict[int, Outputs], level: str, baseline: str
    ) -> list[OutputComparison]:
        """Compare every output for every case; return the worst case of each output."""
        per_seed = []
        for seed, theirs in actual.items():
            judge = self._judge(level, baseline, seed)
            ours = expected[seed]
            per_seed.append([judge.compare(name, ours[name], theirs[name]) for name in ours])
        return [
            replace(max(same, key=severity), by_seed=same) for same in zip(*per_seed, strict=True)
        ]


def _at(level: str) -> str:
    return "optimisation off" if level == _REFERENCE else f"optimisation level {level}"
