"""Judging whether two models compute the same, with onnxruntime as the witness.

The original runs with graph optimisation off: that is the reference. The candidate runs at every
level asked for. At a level other than 'disable' an output passes if it agrees with the reference,
or with the original *at the same level*: the first says that the candidate is right, the second
that it gives whoever deploys at that level what the original gives them today. Both are needed,
because the optimiser moves results on its own (by 0.14 for one quantised vision transformer) and
that is not the candidate's doing. Each comparison names the baseline that it was held against.
Where the original rounds to steps inside, an output that fails both is judged by what the
original's own last bits move (`dplcli.verify.compare`).
"""

import json
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dplcli.errors import DplError, UsageError, VerificationError
from dplcli.files import write_file
from dplcli.verify.compare import (
    REFERENCE_LEVEL,
    Depth,
    Facts,
    Limit,
    Runs,
    check_names,
    facts_of,
    judge_level,
    make_judge,
    measure_limits,
)
from dplcli.verify.compare import REFERENCE_LEVEL as _REFERENCE
from dplcli.verify.engines import one_line
from dplcli.verify.inputs import (
    MATRIX_GAINS,
    Drawer,
    Stimulus,
    Weight,
    check_saving,
    find_stimulus,
    find_weights,
    names_made_by_shape,
    replace_weights,
    save_inputs,
)
from dplcli.verify.model import (
    Dataflow,
    check_expansion,
    input_ports,
    output_ports,
    read_model,
    signature_differences,
)
from dplcli.verify.power import (
    blind_outputs,
    blind_warnings,
    measure_power,
    random_warnings,
    value_warnings,
)
from dplcli.verify.run import Runner, check_setup, open_original, run_seeds
from dplcli.verify.settings import (
    TIMEOUT,
    Array,
    Execution,
    Feed,
    InputChoice,
    Leaf,
    ModelSource,
    Opinion,
    OutputComparison,
    Outputs,
    Power,
    RunError,
    Settings,
    Side,
    StoppedError,
    VerificationResult,
    is_exotic,
)

# What two models gave, kept in one file, so that it can be judged again with other tolerances.
#
# The file is a numpy archive without pickles: the arrays, and one text with everything else
# (``dpl.results/1``). It holds what a verdict rests on: what was fed, the original with
# optimisation off and at each level, the candidate at each level, what is known of the outputs,
# and how far the original's own last bits move them if it rounds to steps. So a model can also be
# compared with it later, by another version of onnxruntime (`dplcli.verify.equivalence`).


RESULTS_SCHEMA = "dpl.results/1"
_RECORD = "record"


@dataclass(frozen=True)
class Evidence:
    """Everything that a verdict rests on.

    Attributes:
        facts: What the original says about its outputs.
        originals: What the original gave, per level and seed.
        candidates: What the candidate gave, per level and seed.
        measured: How far outputs move with the original's own last bits, where measured.
        result: The verdict when the models ran; its comparisons are made anew.
        feeds: What was fed, per case.
        runtime: The version of onnxruntime that ran the models, "" if unknown.
    """

    facts: Facts
    originals: Mapping[str, Runs]
    candidates: Mapping[str, Runs]
    measured: Mapping[str, Limit]
    result: VerificationResult = field(
        default_factory=lambda: VerificationResult(equivalent=False, seeds=(), levels=())
    )
    feeds: Mapping[int, Mapping[str, Feed]] = field(default_factory=dict)
    runtime: str = ""

    def original_at(self, level: str) -> Runs | None:
        """Return what the original gave at *level*, if it ran."""
        return self.originals.get(level)

    def limits(self) -> Mapping[str, Limit]:
        """Return how far outputs move with the original's own last bits."""
        return self.measured

    def judge(self, settings: Settings) -> VerificationResult:
        """Return the verdict with the tolerances of *settings*.

        Raises:
            UsageError: A tolerance is for an output that the models do not have.
        """
        first = next(iter(self.originals[REFERENCE_LEVEL].values()), {})
        check_names(settings.tolerances, first)
        outputs: list[OutputComparison] = []
        for level, runs in self.candidates.items():
            outputs += judge_level(
                settings,
                self.facts,
                level,
                reference=self.originals[REFERENCE_LEVEL],
                runs=runs,
                witness=self,
            )
        equivalent = not self.result.reasons and all(output.ok for output in outputs)
        return replace(self.result, equivalent=equivalent, outputs=tuple(outputs))


def save_evidence(path: Path, evidence: Evidence) -> None:
    """Write *evidence* to a file in one step.

    Raises:
        UsageError: The file cannot be written.
    """
    arrays: dict[str, Array] = {}
    record = {
        "schema": RESULTS_SCHEMA,
        "facts": {
            "coarsest": evidence.facts.coarsest,
            "depths": {name: vars(depth) for name, depth in evidence.facts.depths.items()},
            "stepped": sorted(evidence.facts.stepped),
            "rounds": evidence.facts.rounds,
        },
        "limits": {name: vars(limit) for name, limit in evidence.measured.items()},
        "result": {
            "seeds": evidence.result.seeds,
            "levels": evidence.result.levels,
            "inputs": [vars(choice) for choice in evidence.result.inputs],
            "reasons": evidence.result.reasons,
            "warnings": evidence.result.warnings,
            "blind_outputs": evidence.result.blind_outputs,
            "refilled": evidence.result.refilled,
            "cases": list(evidence.result.cases.items()),
        },
        "runtime": evidence.runtime,
        "feeds": [
            [case, name, _packed_feed(feed, arrays)]
            for case, feeds in evidence.feeds.items()
            for name, feed in feeds.items()
        ],
        "originals": _packed(evidence.originals, arrays),
        "candidates": _packed(evidence.candidates, arrays),
    }
    arrays[_RECORD] = np.array(json.dumps(record))
    try:
        write_file(path, lambda stream: np.savez_compressed(stream, allow_pickle=False, **arrays))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def load_evidence(path: Path) -> Evidence:
    """Read what `save_evidence` wrote.

    Raises:
        UsageError: The file is missing, damaged or something else.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        record = json.loads(str(arrays[_RECORD]))
        if record["schema"] != RESULTS_SCHEMA:
            raise UsageError(f"{path}: holds {record['schema']!r}, not {RESULTS_SCHEMA!r}")
        facts, result = record["facts"], record["result"]
        originals = _unpacked(record["originals"], arrays)
        levels = {REFERENCE_LEVEL: originals[REFERENCE_LEVEL], **originals} if originals else {}
        return Evidence(
            facts=Facts(
                facts["coarsest"],
                {name: Depth(**depth) for name, depth in facts["depths"].items()},
                frozenset(facts["stepped"]),
                facts["rounds"],
            ),
            originals=levels,
            candidates=_unpacked(record["candidates"], arrays),
            measured={name: Limit(**limit) for name, limit in record["limits"].items()},
            result=VerificationResult(
                equivalent=False,
                seeds=tuple(result["seeds"]),
                levels=tuple(result["levels"]),
                inputs=tuple(
                    InputChoice(**(choice | {"shape": tuple(choice["shape"])}))
                    for choice in result["inputs"]
                ),
                reasons=tuple(result["reasons"]),
                warnings=tuple(result["warnings"]),
                blind_outputs=tuple(result["blind_outputs"]),
                refilled=result["refilled"],
                cases=dict(result["cases"]),
            ),
            feeds=_unpacked_feeds(record["feeds"], dict(result["cases"]), arrays),
            runtime=record["runtime"],
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path}: holds no saved results", hint="dpl verify --save-results writes such files"
        ) from error


def _packed(levels: Mapping[str, Runs], arrays: dict[str, Array]) -> list[dict[str, object]]:
    """Describe runs, and put their arrays into *arrays*."""
    entries: list[dict[str, object]] = []
    for level, runs in levels.items():
        for seed, outputs in runs.items():
            for name, leaves in outputs.items():
                packed = []
                for leaf in leaves:
                    key = f"a{len(arrays)}"
                    text = leaf.data.dtype.kind == "O"
                    arrays[key] = leaf.data.astype(str) if text else leaf.data
                    packed.append({"label": leaf.label, "dtype": leaf.dtype, "array": key})
                entries.append({"level": level, "seed": seed, "output": name, "leaves": packed})
    return entries


def _unpacked(
    entries: list[dict[str, object]], arrays: Mapping[str, Array]
) -> dict[str, dict[int, Outputs]]:
    levels: dict[str, dict[int, Outputs]] = {}
    for entry in entries:
        runs = levels.setdefault(str(entry["level"]), {})
        leaves = entry["leaves"]
        if not isinstance(leaves, list):
            raise TypeError
        runs.setdefault(int(str(entry["seed"])), {})[str(entry["output"])] = tuple(
            Leaf(leaf["label"], leaf["dtype"], arrays[leaf["array"]]) for leaf in leaves
        )
    return levels


def runtime_version() -> str:
    """Return the version of onnxruntime that is installed, "" if nobody says."""
    try:
        return version("onnxruntime")
    except PackageNotFoundError:
        return ""


def _packed_feed(feed: Feed, arrays: dict[str, Array]) -> object:
    """Describe a feed, and put its arrays into *arrays*: None, one array, or a list of them."""
    if feed is None:
        return None
    if isinstance(feed, list):
        return [_packed_feed(item, arrays) for item in feed]
    key = f"a{len(arrays)}"
    if feed.dtype.kind == "O":
        arrays[key] = feed.astype(str)
        return {"array": key, "dtype": int(onnx.TensorProto.STRING)}
    dtype = onnx.helper.np_dtype_to_tensor_dtype(feed.dtype)
    arrays[key] = feed.view(f"V{feed.dtype.itemsize}") if is_exotic(feed) else feed
    return {"array": key, "dtype": int(dtype)}


def _unpacked_feeds(
    entries: Any,  # noqa: ANN401  # JSON
    cases: Mapping[int, str],
    arrays: Mapping[str, Array],
) -> dict[int, dict[str, Feed]]:
    feeds: dict[int, dict[str, Feed]] = {case: {} for case in cases}
    for case, name, packed in entries:
        feeds.setdefault(case, {})[name] = _unpacked_feed(packed, arrays)
    return feeds


def _unpacked_feed(packed: Any, arrays: Mapping[str, Array]) -> Feed:  # noqa: ANN401  # JSON
    if packed is None:
        return None
    if isinstance(packed, list):
        return [_unpacked_array(item, arrays) for item in packed]
    return _unpacked_array(packed, arrays)


def _unpacked_array(packed: Any, arrays: Mapping[str, Array]) -> Array:  # noqa: ANN401  # JSON
    values = arrays[packed["array"]]
    if packed["dtype"] == onnx.TensorProto.STRING:
        return values.astype(object)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(packed["dtype"])
    return values.view(dtype) if values.dtype.kind == "V" else values


# Comparing a model with what a file of results holds: another version's, another machine's.
#
# The reference is not run again. What it was fed, and what the original gave for it, is in the file
# (`dplcli.verify.equivalence`).


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
    source = ModelSource(
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
    gave = next(iter(evidence.originals[REFERENCE_LEVEL].values()), {})
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


# Asking onnx's reference evaluator about outputs that fail (`dplcli.verify.settings`).


Agree = Callable[[str, Sequence[Leaf], Sequence[Leaf], int], bool]


class Evaluator:
    """Both models in the reference evaluator, run once per seed that is asked for."""

    def __init__(
        self,
        original: ModelSource,
        candidate: ModelSource,
        feeds: Mapping[int, Mapping[str, Feed]],
        agree: Agree,
    ) -> None:
        """Remember what to run.

        Args:
            original: The model that is right by definition.
            candidate: The other one.
            feeds: The inputs per seed.
            agree: Tells whether two results of an output are the same within the tolerance of a
                seed.
        """
        self._sources = {
            name: replace(source, name=name, libraries=(), execution=source.execution.plain())
            for name, source in (("original", original), ("candidate", candidate))
        }
        self._feeds = feeds
        self._agree = agree
        self._results: dict[tuple[str, int], Outputs | Exception] = {}

    def opinions(
        self,
        failed: Sequence[OutputComparison],
        original: Mapping[int, Outputs],
        candidate: Mapping[int, Outputs],
    ) -> list[Opinion]:
        """Return an opinion on each comparison that failed.

        Args:
            failed: The comparisons, of one level.
            original: What the original gave in onnxruntime, per seed.
            candidate: What the candidate gave in onnxruntime at that level, per seed.
        """
        return [
            self._opinion(item, original[item.seed][item.name], candidate[item.seed][item.name])
            for item in failed
        ]

    def _opinion(
        self, item: OutputComparison, ours: Sequence[Leaf], theirs: Sequence[Leaf]
    ) -> Opinion:
        blank = Opinion(item.name, item.level, item.seed)
        try:
            right = self._result("original", item.seed)[item.name]
            side = _side(
                original=self._agree(item.name, right, ours, item.seed),
                candidate=self._agree(item.name, right, theirs, item.seed),
            )
        except Exception as error:  # noqa: BLE001  # it may give, and raise, anything
            return replace(blank, problem=_why(error))
        try:
            actual = self._result("candidate", item.seed)[item.name]
            equal = self._agree(item.name, right, actual, item.seed)
        except Exception as error:  # noqa: BLE001  # it may give, and raise, anything
            return replace(blank, agrees_with=side, problem=_why(error))
        return replace(blank, agrees_with=side, models_agree=equal)

    def _result(self, which: str, seed: int) -> Outputs:
        """Return what a model gives in the evaluator; raise what it raised, each time."""
        if (which, seed) not in self._results:
            try:
                runner = Runner(self._sources[which], "disable", "reference")
                self._results[which, seed] = runner.run(self._feeds[seed])
            except Exception as error:  # noqa: BLE001  # it may raise anything
                self._results[which, seed] = error
        found = self._results[which, seed]
        if isinstance(found, Exception):
            raise found
        return found


def _why(error: Exception) -> str:
    """Return in one line why there is no opinion."""
    if isinstance(error, (RunError, DplError)):
        return str(error)
    return one_line(f"{type(error).__name__}: {error}")


def _side(*, original: bool, candidate: bool) -> Side:
    if original and candidate:
        return "both"
    if original or candidate:
        return "original" if original else "candidate"
    return "neither"


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

    source: ModelSource
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

    def _power(self, candidate: ModelSource, witness: "_Original", *, is_run: bool) -> Power | None:
        """Return how many mutants of *candidate* the check notices, if that was asked for."""
        count = self._settings.mutants
        if not count or not is_run:
            return None
        self._say(f"trying {count} mutants")

        def is_caught(mutant: ModelSource) -> bool:
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

    def _source(self, path: Path, gain: float) -> ModelSource:
        """Return what to run: the file, or a copy in memory with refilled weights."""
        execution = self._settings.execution.plain()
        if not self._weights:
            return ModelSource(path, execution=execution)
        self._say(f"refilling {len(self._weights):,} weights")
        values = self._drawer.values(gain)
        content = replace_weights(read_model(path), values)
        return ModelSource(path, content, values, execution=execution)

    def _as_deployed(self, source: ModelSource) -> ModelSource:
        """Return *source* with the provider and the options that the user deploys with."""
        return replace(source, execution=self._settings.execution)

    def _session(self, source: ModelSource, which: str, level: str) -> Runner:
        nodes = self._nodes[which != "original"]
        self._say(f"creating a session for the {which} ({nodes:,} nodes), {_at(level)}")
        return Runner(replace(source, name=which), level)

    def _reference(self, source: ModelSource) -> _Reference:
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
        self, candidate: ModelSource, level: str, stimulus: Stimulus
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
