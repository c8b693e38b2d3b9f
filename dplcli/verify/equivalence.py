"""The decision whether two models compute the same, by running both in onnxruntime.

The original runs with graph optimisation off: that is the reference. The candidate runs at every
level asked for. An output passes if one of these holds:

- It agrees with the reference: the candidate is right.
- It agrees with the original *at the same level*. The optimiser moves results on its own (by 0.14
  for one quantised vision transformer), and that is not the candidate's doing. Whoever deploys at
  this level gets what the original gives them today.
- The original rounds to steps inside, and the output is off by little more than the original's own
  last bits move it (`dplcli.verify.compare`).

A candidate that only moves nodes into functions, or out of them, needs no tolerance: it is proved
to be the original (`dplcli.verify.proof`), and has to give the same bits with optimisation off.

Each comparison names its baseline: the level at which the original ran.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from google.protobuf.message import EncodeError
from onnx import ModelProto

from dplcli.errors import VerificationError, opt
from dplcli.files import temporary_folder
from dplcli.verify import compare, inputs, run
from dplcli.verify.accuracy import Sums
from dplcli.verify.apart import ApartJudgement, judge_apart
from dplcli.verify.blocks import forget, is_large, plan_blocks, reports, values_of
from dplcli.verify.check import REFERENCE_LEVEL, TIMEOUT, Check
from dplcli.verify.compare import NOTHING_RETYPED, Judge, Limit, Retyped, in_types
from dplcli.verify.evidence import Evidence, blindness, save_evidence
from dplcli.verify.float32 import holds_bfloat16
from dplcli.verify.layers import CANDIDATE, ORIGINAL
from dplcli.verify.model import (
    Dataflow,
    check_expansion,
    input_ports,
    lost_defaults,
    narrowed_inputs,
    read_model,
    signature_differences,
)
from dplcli.verify.places import judge_places
from dplcli.verify.power import measure_power, random_warnings, value_warnings
from dplcli.verify.proof import UnprovedError, prove_same
from dplcli.verify.refused import without_refused
from dplcli.verify.run import Runner
from dplcli.verify.values import (
    BlockCuts,
    ModelSource,
    Outputs,
    RunError,
    Runs,
    StoppedError,
)
from dplcli.verify.verdict import (
    KernelReport,
    LocalJudgement,
    MemoryPlan,
    OutputComparison,
    PartitionRun,
    Power,
    VerificationResult,
)

Progress = Callable[[str], None]

# Comparing two files.


DEFAULT_CHECK = Check()

# In how many cases places are judged, where outputs fail in more.
_MOST_JUDGED = 8
_MOST_OF_BF16 = 0.05
"""How far an output may be from float32 behind products in bfloat16, as a relative error."""

# How many places are noted that differ where nothing finite is given.
_MOST_NOTED = 4
# More of the elements than this move by what the optimiser does, not by chance of rounding.
_MOST_MOVED = 0.5
# With fewer nodes, to start another process takes longer than to wait for one session.
_WORTH_A_PROCESS = 10_000
# With more weights than this, a gigabyte of floats, one session at a time has to do.
_MANY_WEIGHTS = 1 << 28
# How many times as far as the optimiser or its own last bits an output may move, if it is excused.
_UNSTEADY = 4.0
# Seconds that a mutant of a fast model is given: it may never end.
_PATIENCE = 20.0
_UNJUDGED = "not all partitions that ran could be judged alone, and bfloat16's tolerance is wide"
_SHARED_LIBRARIES = "the original does not run without the custom operators, so it uses them, too"


def verify_equivalence(
    original: Path,
    candidate: Path,
    check: Check = DEFAULT_CHECK,
    *,
    prove: bool = False,
    progress: Progress | None = None,
) -> VerificationResult:
    """Compare what two model files compute on inputs made for the original.

    Neither file is changed, and external data is only read by onnxruntime. That the candidate has
    another signature, or that onnxruntime refuses it, is an answer: not equivalent.

    Args:
        original: The model that is right by definition.
        candidate: The model in question.
        check: Seeds, levels, tolerances, sizes.
        prove: Whether to try first to prove that the candidate is the original, up to functions.
            That decides, where onnxruntime runs nothing but the two files on the CPU.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        ModelLoadError: A file is missing or holds no model.
        VerificationError: No verdict: the candidate is not proved to be the original, and
            onnxruntime does not run the original, or no inputs were found that it accepts.
        UsageError: A size was given for a dimension that the original does not have, or a
            library of custom operators cannot be loaded.
    """
    run.check_setup(check.custom_ops, check.execution)
    request = check.request
    inputs.check_saving(opt("save_inputs"), request.save, original, candidate, request.given)
    ours, theirs = read_model(original), read_model(candidate)
    compare.check_names(check.tolerances, [output.name for output in ours.graph.output])
    if differences := signature_differences(ours.graph, theirs.graph, converts=True):
        return VerificationResult(
            equivalent=False,
            seeds=check.first_seeds,
            levels=check.judged_levels,
            reasons=tuple(differences),
        )
    retyped = Retyped.of(ours.graph, theirs.graph)
    check = replace(check, request=replace(request, exact_in=retyped.inputs))
    nodes = (len(ours.graph.node), len(theirs.graph.node))
    is_quantised = compare.is_quantised(theirs) and not compare.is_quantised(ours)
    refusal = _refusal(((original, ours), (candidate, theirs)), check)
    lost = lost_defaults(ours, theirs)
    is_scarce = check.max_memory is not None or is_large(ours, theirs)
    del theirs
    say = progress or (lambda _: None)
    blank = VerificationResult(
        equivalent=True,
        seeds=check.first_seeds,
        levels=(),
        min_power=check.min_power,
        doubts=tuple(
            f"input {name!r}, which has a default that a caller may replace, is gone"
            for name in lost
        ),
        is_quantised=is_quantised,
        retyped=retyped.said,
    )
    if prove and not retyped.said:
        say("putting the functions back, to prove that nothing else was changed")
        try:
            blank = replace(blank, proof=prove_same(original, candidate))
        except UnprovedError as error:
            blank = replace(blank, unproved=str(error))
    decides = check.execution.is_plain and not check.custom_ops
    is_proved = decides and blank.proof is not None
    flow = Dataflow(ours, infers=not is_proved or check.mutants > 0)
    cuts: tuple[BlockCuts, BlockCuts] | None = None
    try:
        if is_scarce and refusal is None:
            memory, cuts = _plan((original, candidate), flow, check, say)
            blank = replace(blank, memory=memory)
    except VerificationError as error:
        refusal = error
    try:
        if refusal is not None:
            raise refusal
        work = _Check(
            original,
            flow,
            check,
            say=say,
            nodes=nodes,
            is_proved=is_proved,
            cuts=cuts,
            retyped=retyped,
        )
    except VerificationError as error:
        if is_proved:
            return replace(blank, warnings=(f"it was not run: {error.message}",))
        is_stopped = isinstance(error, StoppedError)
        is_refused = refusal is None and not is_stopped and check.of_rule is None
        if is_refused and (without := _without_refused(original, candidate, check, blank)):
            return without
        message = f"no verdict: {error.wording}" if is_stopped else error.wording
        raise VerificationError(message, hint=error.advice) from error
    result = work.run(candidate, blank)
    forget(*cuts or ())
    return result


def _refusal(models: Iterable[tuple[Path, ModelProto]], check: Check) -> VerificationError | None:
    """Return why models are not run, if they stand for too many nodes; a proof needs no run."""
    try:
        for path, model in models:
            check_expansion(path, model, check.execution)
    except VerificationError as error:
        return error
    return None


def _plan(
    models: tuple[Path, Path], flow: Dataflow, check: Check, say: Progress
) -> tuple[MemoryPlan, tuple[BlockCuts, BlockCuts] | None]:
    """Decide whether two large models run in blocks; say what a run needs before the first one."""
    ports = input_ports(flow.model.graph)
    plan, cuts = plan_blocks(
        (ModelSource(models[0]), ModelSource(models[1])),
        [port.name for port in ports],
        values_of(flow, next(inputs.size_plans(ports, check.sizes, ()), inputs.NO_SIZES)),
        check.max_memory,
        say,
    )
    say(str(plan))
    return plan, cuts


def _without_refused(
    original: Path, candidate: Path, check: Check, known: VerificationResult
) -> VerificationResult | None:
    """Compare two models without the nodes that onnxruntime refuses; None if there are none."""
    try:
        runnable = without_refused(original, candidate, check.execution)
    except RunError:
        return None
    if runnable is None:
        return None
    if runnable.models is None:
        return replace(known, doubts=(*known.doubts, *runnable.said))
    with temporary_folder() as folder:
        paths = folder / ORIGINAL, folder / CANDIDATE
        try:
            for path, model in zip(paths, runnable.models, strict=True):
                path.write_bytes(model.SerializeToString())
            result = verify_equivalence(*paths, check)
        except (ValueError, EncodeError, VerificationError):  # too large for one file, say
            return None
    return replace(
        result,
        proof=known.proof,
        unproved=known.unproved,
        doubts=(*known.doubts, *result.doubts),
        warnings=(*runnable.said, *result.warnings),
    )


class _Check:
    """One check under way: the original as it ran, and what is asked of it later.

    Args:
        original: The model that is right by definition.
        flow: What it holds.
        check: Seeds, levels, tolerances, sizes.
        say: Called with a short phrase before each step that may take long.
        nodes: How many nodes the original and the candidate have.
        is_proved: Whether the candidate is the original, whatever the numbers say.
        cuts: Where both are cut, if they run in blocks.
        retyped: What the candidate has in other float types.
    """

    def __init__(  # noqa: PLR0913  # two models, how to compare them, and whom to tell
        self,
        original: Path,
        flow: Dataflow,
        check: Check,
        *,
        say: Progress,
        nodes: tuple[int, int],
        is_proved: bool,
        cuts: tuple[BlockCuts, BlockCuts] | None = None,
        retyped: Retyped = NOTHING_RETYPED,
    ) -> None:
        self._cuts = cuts or (None, None)
        self._retyped = retyped
        self._flow = flow
        self._is_proved = is_proved
        self._say = say
        self._nodes = nodes
        self._at_levels: dict[str, Runs | None] = {}
        self._records: dict[str, list[PartitionRun]] = {}
        self._slowest = 0.0
        self._limits: Mapping[str, Limit] | None = None
        self._unjudged = ""
        levels = check.judged_levels
        if is_proved and check.levels is None and check.save_results is None:
            levels = (REFERENCE_LEVEL,)
        self._levels = levels
        is_exact = is_proved and levels == (REFERENCE_LEVEL,) and not check.mutants
        # what is exact needs no tolerance
        facts = compare.Facts() if is_exact else compare.facts_of(flow)
        facts = replace(facts, coarsest=compare.coarsest_of([facts.coarsest, *retyped.types]))
        if check.whole is not None:
            facts = replace(facts, **vars(check.whole))
        open_as = partial(
            inputs.open_reference,
            original,
            flow,
            facts,
            create=lambda source: self._session(source, "original", REFERENCE_LEVEL),
            resize=not self._is_proved or check.mutants > 0,
            blocks=self._cuts[0],
            say=say,
        )
        refused: list[str] = []
        try:
            reference = open_as(check)
        except VerificationError as error:
            if isinstance(error, StoppedError) or not holds_bfloat16(flow.model):
                raise
            check = replace(check, execution=replace(check.execution, widens=True))
            reference = open_as(check)
            why = error.message.rpartition("original model: ")[2]
            refused = [f"what onnxruntime does not run in bfloat16 was computed in float32: {why}"]
        self._check = check
        self._reference = reference
        self._is_same_graph = False
        self._judge = Judge(check, facts, check.first_seeds[0])
        draws = random_warnings(flow)
        self._is_compared = not draws
        if draws:
            draws = [f"{draws[0]}, so its outputs are not compared"]
        self._warnings = [*refused, *draws]
        if reference.source.libraries:
            self._warnings.append(_SHARED_LIBRARIES)
        self._power_warnings = []
        if is_proved and not check.mutants:
            return  # numbers that say little take nothing from a proof
        self._power_warnings = value_warnings([*reference.outputs.values()], reference.blind)

    def run(self, candidate: Path, known: VerificationResult) -> VerificationResult:
        """Return the verdict on a file with the same signature.

        Args:
            candidate: The file.
            known: What is known without running it.
        """
        check, reference, stimulus = self._check, self._reference, self._reference.stimulus
        self._is_same_graph = known.proof is not None
        if check.request.save is not None:
            inputs.save_inputs(check.request.save, stimulus)
        source = inputs.candidate_source(candidate, check, self._cuts[1])
        levels = self._levels
        runs, failures = run.run_levels(
            levels, lambda level: self._run(source, level), at_once=self._at_once(source)
        )
        shared = {  # there the original does not run, either: the optimiser is at fault
            level: why
            for level, why in failures.items()
            if level != REFERENCE_LEVEL and self.original_at(level) is None
        }
        if len(shared) == len(levels) and not self._is_proved:
            raise VerificationError(
                f"no verdict: neither model runs: {'; '.join(shared.values())}",
                hint="onnxruntime's optimiser is at fault: "
                f"name another level ({opt('level', 'disable')})",
            )
        self._warnings += [
            f"neither model runs, {run.at_level(level)}, so nothing is compared there"
            for level in shared
        ]
        reasons = [*known.retyped]
        if refused := [why for level, why in failures.items() if level not in shared]:
            reasons += narrowed_inputs(self._flow.model.graph, read_model(candidate).graph)
            reasons += refused
        outputs = [found for level, given in runs.items() for found in self._judged(given, level)]
        regions = None if reasons else self._regions(source, outputs)
        if regions is not None and not (regions.differing or check.chooses_tolerance):
            same = {o.name for o in outputs if o.level == REFERENCE_LEVEL and not o.max_abs}
            outputs = [
                self._excused(output, regions, is_same=output.name in same) for output in outputs
            ]
        apart = None if reasons else self._apart(source, outputs, regions)
        kernels = check.execution.kernels
        is_bf16 = kernels is not None and kernels.math == "bf16"
        if apart is not None and not self._check.chooses_tolerance:
            outputs = [
                self._in_bf16(output, runs, apart)
                if is_bf16 or check.execution.widens
                else self._excused(output, regions, apart)
                for output in outputs
            ]
            reasons += apart.differing
        are_ok = all(output.ok for output in outputs)
        is_seen = self._is_proved or (apart is not None and apart.excuse)
        doubts = () if reasons or is_seen else self._doubts(outputs, regions)
        if self._check.execution.widens and self._ran() and not (reasons or is_seen):
            doubts = (*doubts, _UNJUDGED)
        result = replace(
            known,
            equivalent=not reasons and are_ok and not (regions and regions.differing),
            doubts=(*known.doubts, *doubts) if are_ok else (),
            seeds=stimulus.seeds,
            levels=levels,
            inputs=stimulus.choices,
            outputs=tuple(outputs),
            reasons=tuple(reasons),
            blind_outputs=reference.blind,
            cases=stimulus.cases,
            power=None if reasons else self._power(source),
            regions=regions,
        )
        noted = () if regions is None else regions.notes[:_MOST_NOTED]
        warnings = (*known.warnings, *self._warnings, *noted, *self._power_warnings)
        result = replace(result, warnings=tuple(dict.fromkeys(warnings)))
        if regions is not None and result.memory is not None:
            seen = reports(reference.source, regions.roundings)
            result = replace(result, memory=replace(result.memory, seen=seen))
        result = self._with_kernels(result)
        self._save(runs, result)
        return result

    def _with_kernels(self, result: VerificationResult) -> VerificationResult:
        """Add where partitions ran; a candidate of which too few ran is refused."""
        kernels = self._check.execution.kernels
        if kernels is None or not self._records:
            return result
        reports = [
            KernelReport(kernels, len(self._reference.stimulus.cases), tuple(self._records[level]))
            for level in result.levels
            if level in self._records
        ]
        report = next((each for each in reports if each.complaints), reports[0])
        return replace(result, kernels=report, warnings=(*result.warnings, *report.warnings))

    def _regions(
        self, candidate: ModelSource, outputs: Sequence[OutputComparison]
    ) -> LocalJudgement | None:
        """Judge by themselves the places that differ; return None if that is not to be done.

        A tolerance that somebody chose decides alone; if an output is outside of it, the place is
        looked for.
        """
        failed = [output for output in outputs if not output.ok]
        is_known = self._is_proved or (
            self._is_same_graph and bool(failed) and self._check.execution.kernels is not None
        )
        if is_known or (self._check.chooses_tolerance and not failed):
            return None
        stimulus = self._reference.stimulus
        others = [case for case in stimulus.cases if case not in stimulus.seeds]
        cases = compare.failed_cases(failed)[:_MOST_JUDGED] or [*stimulus.cases][:2]
        cases += [case for case in others if case not in cases]
        # kernels of a target are judged by the outputs; here, it is about what the graph says
        candidate = replace(
            candidate,
            libraries=self._reference.source.libraries,
            execution=self._reference.source.execution,
        )
        self._say("judging by themselves the places that differ")
        judge = replace(self._judge, case=cases[0])
        try:
            return judge_places(self._reference, candidate, judge, cases)
        except (RunError, StoppedError) as error:
            self._unjudged = str(error)
            return None

    def _ran(self) -> set[str]:
        """Return the calls that ran on a library."""
        return {item.call for level in self._records.values() for item in level if item.runs}

    def _apart(
        self,
        candidate: ModelSource,
        outputs: Sequence[OutputComparison],
        regions: LocalJudgement | None,
    ) -> ApartJudgement | None:
        """Judge partitions by themselves if outputs fail; return None if that says nothing.

        What the graph says is judged by regions, without kernels, or proved.
        """
        failed = [output for output in outputs if not output.ok]
        cases = compare.failed_cases(failed)[:_MOST_JUDGED]
        if self._check.execution.widens:  # what is said in bfloat16 passes with errors of 5 %
            cases = cases or [*self._reference.stimulus.cases][:2]
        is_hopeless = any(output.figures.needed_rtol is None for output in failed)
        is_right = self._is_same_graph or (regions is not None and not regions.differing)
        ran = self._ran()
        if not ran or not cases or is_hopeless or not is_right:
            return None
        judgement: ApartJudgement | None = None
        for case in cases:
            self._say("judging partitions by themselves")
            try:
                judgement = judge_apart(
                    candidate,
                    ran,
                    self._reference.feeds[case],
                    replace(self._judge, case=case),
                    lambda source: self._session(source, "candidate", REFERENCE_LEVEL),
                )
            except (RunError, StoppedError) as error:
                self._warnings.append(f"partitions were not judged by themselves: {error}")
                return None
            if judgement.differing:
                break
        return judgement

    def _doubts(
        self, outputs: Sequence[OutputComparison], regions: LocalJudgement | None
    ) -> tuple[str, ...]:
        """Say why outputs that pass show too little, where places do not decide, either."""
        if regions is not None:
            return regions.unseen
        reference, doubts = self._reference, list[str]()
        names = dict.fromkeys(output.name for output in outputs)
        doubts += blindness(reference.blind, names, reference.feeds)
        if self._check.chooses_tolerance:
            return tuple(doubts)
        if self._unjudged:
            doubts.append(
                f"the places that differ could not be judged by themselves: {self._unjudged}"
            )
        return tuple(dict.fromkeys(doubts))

    def _excused(
        self,
        output: OutputComparison,
        regions: LocalJudgement | None,
        apart: ApartJudgement | None = None,
        *,
        is_same: bool = False,
    ) -> OutputComparison:
        """Accept an output that is outside its tolerance though no region differs.

        With optimisation off, the regions say it all; where kernels of a target are in play, which
        they do not show, partitions by themselves do. At another level the optimiser may treat the
        candidate in another way. There an output may be as far off as it is unsteady: a few times
        as far as the optimiser, or its own last bits, move the original's.
        """
        is_plain = self._check.execution.is_plain and not self._check.custom_ops
        excuse = "" if apart is None else apart.excuse
        if regions is not None and is_plain and regions.judged:
            why, moved = "rounding, amplified by the model", _share_of_moved(output)
            if is_same and moved > _MOST_MOVED:
                why = (
                    f"onnxruntime's optimiser changes {moved:.0%} of the elements, of which none "
                    "differs with optimisation off"
                )
            excuse = f"{why}: {regions.agreement}"
        is_seen = bool(excuse) and len(compare.failed_cases([output])) <= _MOST_JUDGED
        if output.ok or output.figures.needed_rtol is None or not is_seen:
            return output
        if output.level != REFERENCE_LEVEL and not self._is_unsteady(output):
            return output
        return compare.excused(output, excuse)

    def _in_bf16(
        self, output: OutputComparison, runs: Mapping[str, Runs], apart: ApartJudgement
    ) -> OutputComparison:
        """Accept an output behind products in bfloat16, and say how far it is from float32."""
        if output.ok or not apart.excuse:
            return output
        sums = Sums()
        for case in self._reference.stimulus.cases:
            ours, theirs = self._reference.outputs[case], runs[output.level][case]
            for leaf, other in zip(ours[output.name], theirs[output.name], strict=True):
                sums.add(leaf.data, other.data)
        accuracy = sums.figures()
        top = "" if accuracy.agreement is None else f", top-1 agreement {accuracy.agreement:.2%}"
        error = accuracy.relative_error
        words = f"{error:.2%} from float32 (relative error), cosine {accuracy.cosine:.6f}{top}"
        if accuracy.lost or error > _MOST_OF_BF16:
            return replace(output, reason=f"{words}, which is more than {_MOST_OF_BF16:.0%}")
        by_themselves = apart.excuse.rpartition(": ")[2]
        return compare.excused(
            output, f"computed in bfloat16: {words}; {by_themselves} in that arithmetic"
        )

    def _is_unsteady(self, output: OutputComparison) -> bool:
        """Tell whether the original moves about as far, by its optimiser or its own last bits.

        The last bits are asked second: they take sixteen sessions of the original.
        """

        def is_covered(moved: Mapping[str, Limit]) -> bool:
            limit = moved.get(output.name)
            return (
                limit is not None
                and output.max_abs is not None
                and output.max_abs <= _UNSTEADY * limit.max_abs
            )

        alike = self.original_at(output.level)
        by_optimiser = {} if alike is None else compare.movements(alike, self._reference.outputs)
        return is_covered(by_optimiser) or is_covered(self._sensitivity())

    def _run(self, candidate: ModelSource, level: str) -> Runs:
        start = time.monotonic()
        runner = self._session(candidate, "candidate", level)
        self._say(f"running the candidate, {run.at_level(level)}")
        feeds = {n: in_types(f, self._retyped.inputs) for n, f in self._reference.feeds.items()}
        runs = run.run_cases(runner, feeds, tuple(self._reference.stimulus.cases))
        runs = {case: self._retyped.as_original(outputs) for case, outputs in runs.items()}
        self._records[level] = runner.record()
        self._slowest = max(self._slowest, time.monotonic() - start)
        return runs

    def _at_once(self, source: ModelSource) -> int:
        """Return how many sessions of the candidate may be open at the same time."""
        weights = sum(math.prod(tensor.dims) for tensor in self._flow.model.graph.initializer)
        is_possible = source.execution.isolated and run.IS_POSSIBLE and weights <= _MANY_WEIGHTS
        is_possible &= source.blocks is None
        if not is_possible or max(self._nodes) < _WORTH_A_PROCESS:
            return 1
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

    def _run_cases(self, runner: Runner) -> dict[int, Outputs]:
        return run.run_cases(runner, self._reference.feeds, tuple(self._reference.stimulus.cases))

    def _session(self, source: ModelSource, which: str, level: str) -> Runner:
        nodes = self._nodes[which != "original"]
        self._say(f"creating a session for the {which} ({nodes:,} nodes), {run.at_level(level)}")
        return Runner(replace(source, name=which), level)

    def _judged(self, runs: Runs, level: str) -> list[OutputComparison]:
        """Compare what the candidate gave; bit for bit, if it is the original at this level."""
        if not self._is_compared:
            return []
        is_exact = self._is_proved and level == REFERENCE_LEVEL
        return self._compare(runs, level, is_exact=is_exact)

    def _compare(self, runs: Runs, level: str, *, is_exact: bool = False) -> list[OutputComparison]:
        judge = replace(self._judge, level=level, is_exact=is_exact)
        return compare.judge_level(judge, self._reference.outputs, runs, self)

    def original_at(self, level: str) -> Runs | None:
        """Return what the original gives at *level*; None, with a warning, if it does not run."""
        if level not in self._at_levels:
            execution = replace(self._check.execution, kernels=None)
            source = replace(self._reference.source, execution=execution)
            try:
                runs = self._run_cases(self._session(source, "original", level))
            except (RunError, StoppedError) as error:
                self._warnings.append(f"the original does not run, {run.at_level(level)}: {error}")
                self._at_levels[level] = None
            else:
                self._at_levels[level] = runs
        return self._at_levels[level]

    def limits(self) -> Mapping[str, Limit]:
        """Return how far the original's last bits move its outputs, if it rounds to steps."""
        return self._sensitivity() if self._judge.facts.rounds else {}

    def _sensitivity(self) -> Mapping[str, Limit]:
        """Return how far the original's last bits move its outputs, where that can be measured."""
        if self._limits is None:
            self._say("measuring what the original's own last bits move")
            self._limits = compare.measure_limits(
                self._reference.source,
                self._reference.feeds,
                self._reference.outputs,
                lambda source: self._session(source, "original", REFERENCE_LEVEL),
            )
        return self._limits

    def _power(self, candidate: ModelSource) -> Power | None:
        """Return how many mutants of *candidate* the check notices, if that was asked for."""
        count = self._check.mutants
        if not count:
            return None
        self._say(f"trying {count} mutants")

        def is_caught(mutant: ModelSource) -> bool:
            # How a mutant runs: one that never ends is given up soon.
            enough = _PATIENCE + 10 * self._slowest
            execution = (
                mutant.execution
                if not mutant.execution.isolated or (mutant.execution.timeout or enough) < enough
                else replace(mutant.execution, timeout=min(enough, TIMEOUT))
            )
            runner = Runner(replace(mutant, name="mutant", execution=execution), REFERENCE_LEVEL)
            comparisons: list[OutputComparison] = []
            for case in self._reference.stimulus.cases:
                runs = {case: runner.run(self._reference.feeds[case])}
                comparisons += self._compare(runs, REFERENCE_LEVEL)
            said = list(self._warnings)
            regions = self._regions(mutant, comparisons)
            self._warnings = said  # not of the mutant
            if regions is not None and not (regions.differing or self._check.chooses_tolerance):
                comparisons = [self._excused(output, regions) for output in comparisons]
            is_same = regions is None or not (regions.differing or regions.unseen)
            return not is_same or not all(output.ok for output in comparisons)

        return measure_power(candidate, count, self._check.first_seeds[0], is_caught)

    def _save(self, candidates: Mapping[str, Runs], result: VerificationResult) -> None:
        """Write what was run to a file, with all that judging it again may need."""
        if self._check.save_results is None:
            return
        from dplcli.verify.engines import RUNTIME_VERSION  # noqa: PLC0415  # loads onnxruntime

        levels = [level for level in candidates if level != REFERENCE_LEVEL]
        reruns = {level: runs for level in levels if (runs := self.original_at(level))}
        evidence = Evidence(
            facts=self._judge.facts,
            originals={REFERENCE_LEVEL: self._reference.outputs, **reruns},
            candidates=candidates,
            measured=self.limits(),
            result=result,
            feeds=self._reference.feeds,
            runtime=RUNTIME_VERSION,
            excuses={
                (each.level, each.name): each.excuse for each in result.outputs if each.excuse
            },
        )
        save_evidence(self._check.save_results, evidence)


def _share_of_moved(output: OutputComparison) -> float:
    """Return the share of the elements that are outside the tolerance, in all cases."""
    every = output.by_seed or (output,)
    size = sum(math.prod(each.shape) for each in every)
    return sum(each.mismatches for each in every) / max(size, 1)
