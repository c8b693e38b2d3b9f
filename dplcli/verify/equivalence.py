"""Judging whether two models compute the same, with onnxruntime as the witness.

The original runs with graph optimisation off: that is the reference. The candidate runs at every
level asked for. At a level other than 'disable' an output passes if it agrees with the reference,
or with the original *at the same level*: the first says that the candidate is right, the second
that it gives whoever deploys at that level what the original gives them today. Both are needed,
because the optimiser moves results on its own (by 0.14 for one quantised vision transformer) and
that is not the candidate's doing. Each comparison names the baseline that it was held against.
Where the original rounds to steps inside, an output that fails both is judged by what the
original's own last bits move (`dplcli.verify.sensitivity`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dplcli.errors import VerificationError
from dplcli.verify.compare import Limit
from dplcli.verify.dataflow import Dataflow
from dplcli.verify.evidence import Evidence, runtime_version, save_evidence
from dplcli.verify.execution import TIMEOUT, Execution
from dplcli.verify.interface import (
    check_expansion,
    input_ports,
    read_model,
    signature_differences,
)
from dplcli.verify.judgement import REFERENCE as _REFERENCE
from dplcli.verify.judgement import Runs, check_names, facts_of, judge_level, make_judge
from dplcli.verify.mutation import measure_power
from dplcli.verify.opinion import Opinion
from dplcli.verify.power import blind_outputs, blind_warnings, random_warnings, value_warnings
from dplcli.verify.refill import (
    MATRIX_GAINS,
    Drawer,
    Weight,
    find_weights,
    names_made_by_shape,
    replace_weights,
)
from dplcli.verify.result import OutputComparison, Power, Settings, VerificationResult
from dplcli.verify.saving import check_saving, save_inputs
from dplcli.verify.sensitivity import measure_limits
from dplcli.verify.sessions import (
    Leaf,
    Outputs,
    RunError,
    Runner,
    Source,
    StoppedError,
    check_setup,
    open_original,
    run_seeds,
)
from dplcli.verify.stimulus import Stimulus, find_stimulus
from dplcli.verify.third_opinion import Evaluator

Progress = Callable[[str], None]
DEFAULT_SETTINGS = Settings()

# Seconds that a mutant of a fast model may take.
_PATIENCE = 20.0
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
    check_setup(settings.custom_ops, settings.execution)
    check_saving(settings.request, original, candidate)
    ours, theirs = read_model(original), read_model(candidate)
    check_names(settings.tolerances, [output.name for output in ours.graph.output])
    if differences := signature_differences(ours.graph, theirs.graph):
        return VerificationResult(
            equivalent=False,
            seeds=settings.seeds,
            levels=settings.levels,
            reasons=tuple(differences),
        )
    nodes = (len(ours.graph.node), len(theirs.graph.node))
    made = names_made_by_shape(theirs.graph)
    for path, model in ((original, ours), (candidate, theirs)):
        check_expansion(path, model, settings.execution)
    del theirs
    check = _Check(Dataflow(ours), settings, progress or (lambda _: None), nodes)
    if settings.refill_weights:
        check.plan_refill(made)
    try:
        return check.run(original, candidate)
    except StoppedError as error:
        raise VerificationError(f"no verdict: {error.message}", hint=error.hint) from error


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
        self._facts = facts_of(flow)
        self._weights: list[Weight] = []
        self._drawer = Drawer([], 0)
        self._warnings = random_warnings(flow)
        self._slowest = 0.0

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
        witness = _Original(self, reference)
        outputs: list[OutputComparison] = []
        reasons: list[str] = []
        candidates: dict[str, Runs] = {}
        source = self._as_deployed(self._source(candidate, gain))
        source = replace(source, libraries=self._settings.custom_ops)
        third = Evaluator(reference.source, source, reference.stimulus.feeds, self._agree)
        opinions: list[Opinion] = []
        for level in self._settings.levels:
            try:
                runs = self._run_candidate(source, level, reference.stimulus)
            except RunError as error:
                reasons.append(f"onnxruntime does not run the candidate ({_at(level)}): {error}")
            except StoppedError as error:
                reasons.append(error.message)
            else:
                candidates[level] = runs
                found = self._compare(witness, runs, level)
                outputs += found
                opinions += self._third_opinions(third, found, reference, runs)
        result = VerificationResult(
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
            opinions=tuple(opinions),
            power=self._power(source, witness, is_run=not reasons),
            min_power=self._settings.min_power,
        )
        self._save(witness, candidates, result)
        return result

    def _power(self, candidate: Source, witness: "_Original", *, is_run: bool) -> Power | None:
        """Return how many mutants of *candidate* the check notices, if that was asked for."""
        count = self._settings.mutants
        if not count or not is_run:
            return None
        self._say(f"trying {count} mutants")

        def is_caught(mutant: Source) -> bool:
            execution = self._for_mutants(mutant.execution)
            runner = Runner(replace(mutant, name="mutant", execution=execution), _REFERENCE)
            stimulus = witness.reference.stimulus
            for case in stimulus.cases:
                runs = {case: runner.run(stimulus.feeds[case])}
                if not all(found.ok for found in self._compare(witness, runs, _REFERENCE)):
                    return True
            return False

        return measure_power(candidate, count, self._settings.seeds[0], is_caught)

    def _for_mutants(self, execution: Execution) -> Execution:
        """Return how a mutant runs: one that never ends is given up soon."""
        enough = _PATIENCE + 10 * self._slowest
        if not execution.isolated or (execution.timeout or enough) < enough:
            return execution
        return replace(execution, timeout=min(enough, TIMEOUT))

    def _save(
        self, witness: "_Original", candidates: Mapping[str, Runs], result: VerificationResult
    ) -> None:
        """Write what was run to a file, with all that judging it again may need."""
        if self._settings.save_results is None:
            return
        levels = [level for level in candidates if level != _REFERENCE]
        reruns = {level: runs for level in levels if (runs := witness.original_at(level))}
        evidence = Evidence(
            facts=self._facts,
            originals={_REFERENCE: witness.reference.outputs, **reruns},
            candidates=candidates,
            measured=witness.limits(),
            result=result,
            feeds=witness.reference.stimulus.feeds,
            runtime=runtime_version(),
        )
        save_evidence(self._settings.save_results, evidence)

    def _third_opinions(
        self,
        third: Evaluator,
        found: Sequence[OutputComparison],
        reference: _Reference,
        runs: Runs,
    ) -> list[Opinion]:
        failed = [comparison for comparison in found if not comparison.ok]
        if not failed or not self._settings.third_opinion:
            return []
        self._say("asking onnx's reference evaluator")
        return third.opinions(failed, reference.outputs, runs)

    def _agree(
        self, name: str, expected: Sequence[Leaf], actual: Sequence[Leaf], seed: int
    ) -> bool:
        return make_judge(self._settings, self._facts, seed).compare(name, expected, actual).ok

    def _source(self, path: Path, gain: float) -> Source:
        """Return what to run: the file, or a copy in memory with refilled weights."""
        execution = self._settings.execution.plain()
        if not self._weights:
            return Source(path, execution=execution)
        self._say(f"refilling {len(self._weights):,} weights")
        values = self._drawer.values(gain)
        content = replace_weights(read_model(path), values)
        return Source(path, content, values, execution=execution)

    def _as_deployed(self, source: Source) -> Source:
        """Return *source* with the provider and the options that the user deploys with."""
        return replace(source, execution=self._settings.execution)

    def _session(self, source: Source, which: str, level: str) -> Runner:
        nodes = self._nodes[which != "original"]
        self._say(f"creating a session for the {which} ({nodes:,} nodes), {_at(level)}")
        return Runner(replace(source, name=which), level)

    def _reference(self, source: Source) -> _Reference:
        ports = input_ports(self._flow.model.graph)
        source, runner = open_original(
            source,
            self._settings.custom_ops,
            lambda attempt: self._session(attempt, "original", _REFERENCE),
        )
        if source.libraries and _SHARED_LIBRARIES not in self._warnings:
            self._warnings.append(_SHARED_LIBRARIES)
        self._say("looking for inputs that the original accepts")
        judge = make_judge(self._settings, self._facts, self._settings.seeds[0])
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

    def _power_warnings(self, reference: _Reference) -> list[str]:
        refillable = bool(reference.blind and not self._weights and find_weights(self._flow))
        return [
            *blind_warnings(reference.blind, refillable=refillable),
            *value_warnings(list(reference.outputs.values()), reference.blind),
        ]

    def _run_candidate(
        self, candidate: Source, level: str, stimulus: Stimulus
    ) -> dict[int, Outputs]:
        start = time.monotonic()
        runner = self._session(candidate, "candidate", level)
        self._say(f"running the candidate, {_at(level)}")
        runs = run_seeds(runner, stimulus.feeds, tuple(stimulus.cases))
        self._slowest = max(self._slowest, time.monotonic() - start)
        return runs

    def _compare(self, witness: "_Original", runs: Runs, level: str) -> list[OutputComparison]:
        expected = witness.reference.outputs
        return judge_level(
            self._settings, self._facts, level, reference=expected, runs=runs, witness=witness
        )

    def rerun_original(self, reference: _Reference, level: str) -> Runs | None:
        """Return what the original gives at *level*; None, with a warning, if it does not run."""
        try:
            runner = self._session(self._as_deployed(reference.source), "original", level)
            stimulus = reference.stimulus
            return run_seeds(runner, stimulus.feeds, tuple(stimulus.cases))
        except (RunError, StoppedError) as error:
            self._warnings.append(f"the original does not run, {_at(level)}: {error}")
            return None

    def measure(self, reference: _Reference) -> Mapping[str, Limit]:
        """Return how far the original's last bits move its outputs, if it rounds to steps."""
        if not self._facts.rounds:
            return {}
        self._say("measuring what the original's own last bits move")
        return measure_limits(
            reference.source,
            reference.stimulus.feeds,
            reference.outputs,
            lambda source: self._session(source, "original", _REFERENCE),
        )


class _Original:
    """What else is known of the original: found when it is first asked for."""

    def __init__(self, check: _Check, reference: _Reference) -> None:
        self.reference = reference
        self._check = check
        self._levels: dict[str, Runs | None] = {}
        self._limits: Mapping[str, Limit] | None = None

    def original_at(self, level: str) -> Runs | None:
        """Return what the original gives at *level*; None if it does not run."""
        if level not in self._levels:
            self._levels[level] = self._check.rerun_original(self.reference, level)
        return self._levels[level]

    def limits(self) -> Mapping[str, Limit]:
        """Return how far each output moves with the original's own last bits."""
        if self._limits is None:
            self._limits = self._check.measure(self.reference)
        return self._limits


def _at(level: str) -> str:
    return "optimisation off" if level == _REFERENCE else f"optimisation level {level}"
