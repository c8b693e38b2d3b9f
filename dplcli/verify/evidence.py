"""What two models gave, kept in one file, so that it can be judged again with other tolerances.

The file is a numpy archive without pickles: the arrays, and one text with everything else
(``dpl.results/1``). It holds all that a verdict rests on:

- what was fed;
- what the original gave with optimisation off and at each level;
- what the candidate gave at each level;
- what is known of the outputs;
- how far the original's own last bits move them, if it rounds to steps.

A model can be compared with it later, too, also by another version of onnxruntime.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dplcli.errors import UsageError, opt
from dplcli.verify.check import REFERENCE_LEVEL, Check
from dplcli.verify.compare import Depth, Facts, Judge, Limit, check_names, excused, judge_level
from dplcli.verify.inputs import ARCHIVE_ERRORS, candidate_source, write_arrays
from dplcli.verify.model import check_expansion, input_ports, output_ports, read_model
from dplcli.verify.run import Runner, at_level, check_setup, run_cases, run_levels
from dplcli.verify.values import Array, Feed, Leaf, Outputs, Runs, storable
from dplcli.verify.verdict import InputChoice, LocalJudgement, Proof, Sight, VerificationResult

RESULTS_SCHEMA = "dpl.results/1"
RECORD = "record"
"""The text in an archive that says what its arrays are."""
_TUPLES = ("seeds", "levels", "reasons", "warnings", "blind_outputs", "doubts")


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on.

    Attributes:
        facts: What the original says about its outputs.
        originals: What the original gave, per level and case.
        candidates: What the candidate gave, per level and case.
        measured: How far outputs move with the original's own last bits, where measured.
        result: The verdict at the time when the models ran; the comparisons are made anew.
        feeds: What was fed, per case.
        runtime: The version of onnxruntime that ran the models, "" if unknown.
        excuses: Why outputs passed that are outside their tolerance, by level and name.
    """

    facts: Facts
    originals: Mapping[str, Runs]
    candidates: Mapping[str, Runs]
    measured: Mapping[str, Limit]
    result: VerificationResult
    feeds: Mapping[int, Mapping[str, Feed]]
    runtime: str
    excuses: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def original_at(self, level: str) -> Runs | None:
        """Return what the original gave at *level*, if it ran."""
        return self.originals.get(level)

    def limits(self) -> Mapping[str, Limit]:
        """Return how far outputs move with the original's own last bits."""
        return self.measured

    def judge(self, check: Check) -> VerificationResult:
        """Return the verdict with the tolerances of *check*, which decide alone if chosen.

        Raises:
            UsageError: A tolerance is for an output that the models do not have.
        """
        first = _first(self)
        check_names(check.tolerances, first)
        reference = self.originals[REFERENCE_LEVEL]
        outputs = [
            comparison
            for level, runs in self.candidates.items()
            for comparison in judge_level(Judge(check, self.facts, 0, level), reference, runs, self)
        ]
        result = self.result
        if check.chooses_tolerance:
            doubts = blindness(result.blind_outputs, first, self.feeds)
            result = replace(result, regions=None, doubts=doubts)
        else:
            outputs = [excused(each, self.excuses.get((each.level, each.name))) for each in outputs]
        equivalent = not result.objections and all(output.ok for output in outputs)
        return replace(result, equivalent=equivalent, outputs=tuple(outputs))


def _first(evidence: Evidence) -> Outputs:
    """Return what the original gave in the first case."""
    return next(iter(evidence.originals[REFERENCE_LEVEL].values()), {})


def blindness(
    blind: Collection[str], names: Collection[str], feeds: Mapping[int, Mapping[str, Feed]]
) -> tuple[str, ...]:
    """Doubt a comparison of outputs that no input changes; a model without inputs has no others."""
    unseen = [name for name in names if name in blind] if any(feeds.values()) else []
    if not unseen:
        return ()
    which = "no output" if len(unseen) == len(names) else f"nothing of {', '.join(unseen[:3])}"
    return (f"{which} changes with the inputs; give others (--inputs)",)


def save_evidence(path: Path, evidence: Evidence) -> None:
    """Write *evidence* to a file in one step.

    Raises:
        UsageError: The file cannot be written.
    """
    arrays: dict[str, Array] = {}
    record = {
        "schema": RESULTS_SCHEMA,
        "facts": asdict(evidence.facts) | {"stepped": sorted(evidence.facts.stepped)},
        "limits": {name: asdict(limit) for name, limit in evidence.measured.items()},
        "result": {name: getattr(evidence.result, name) for name in _TUPLES}
        | {
            "proof": None if evidence.result.proof is None else asdict(evidence.result.proof),
            "unproved": evidence.result.unproved,
            "regions": evidence.result.regions and asdict(evidence.result.regions),
            "inputs": [asdict(choice) for choice in evidence.result.inputs],
            "cases": list(evidence.result.cases.items()),
        },
        "runtime": evidence.runtime,
        "excuses": [[*key, text] for key, text in evidence.excuses.items()],
        "feeds": [
            [case, name, _packed_feed(feed, arrays)]
            for case, feeds in evidence.feeds.items()
            for name, feed in feeds.items()
        ],
        "originals": packed_runs(evidence.originals, arrays),
        "candidates": packed_runs(evidence.candidates, arrays),
    }
    arrays[RECORD] = np.array(json.dumps(record))
    write_arrays(opt("save_results"), path, arrays.items())


def load_evidence(path: Path) -> Evidence:
    """Read what `save_evidence` wrote.

    Raises:
        UsageError: The file is missing, damaged or something else.
    """
    try:
        record, arrays = read_record(path)
        if record["schema"] != RESULTS_SCHEMA:
            raise UsageError(f"{path}: holds {record['schema']!r}, not {RESULTS_SCHEMA!r}")
        facts, result = record["facts"], record["result"]
        plain: dict[str, Any] = {name: tuple(result[name]) for name in _TUPLES}
        cases = dict(result["cases"])
        feeds: dict[int, dict[str, Feed]] = {case: {} for case in cases}
        for case, name, packed in record["feeds"]:
            feeds.setdefault(case, {})[name] = _unpacked_feed(packed, arrays)
        originals = unpacked_runs(record["originals"], arrays)
        levels = {REFERENCE_LEVEL: originals[REFERENCE_LEVEL], **originals} if originals else {}
        return Evidence(
            facts=Facts(
                coarsest=facts["coarsest"],
                depths={name: Depth(**depth) for name, depth in facts["depths"].items()},
                stepped=frozenset(facts["stepped"]),
                rounds=facts["rounds"],
            ),
            originals=levels,
            candidates=unpacked_runs(record["candidates"], arrays),
            measured={name: Limit(**limit) for name, limit in record["limits"].items()},
            result=VerificationResult(
                equivalent=False,
                **plain,
                inputs=tuple(
                    InputChoice(**(choice | {"shape": tuple(choice["shape"])}))
                    for choice in result["inputs"]
                ),
                cases=cases,
                **_grounds(result),
            ),
            feeds=feeds,
            runtime=record["runtime"],
            excuses={(level, name): text for level, name, text in record["excuses"]},
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, *ARCHIVE_ERRORS) as error:
        raise UsageError(
            f"{path}: holds no saved results", hint="dpl verify --save-results writes such files"
        ) from error


def _grounds(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record says of proof and regions."""
    proof, regions = result["proof"], result["regions"]
    if regions is not None:
        names = ("differing", "unseen", "changes", "notes", "odd")
        told = {name: tuple(regions[name]) for name in names}
        regions = regions | told | {"sights": tuple(Sight(**each) for each in regions["sights"])}
    return {
        "proof": None if proof is None else Proof(**proof),
        "unproved": result["unproved"],
        "regions": None if regions is None else LocalJudgement(**regions),
    }


def read_record(path: Path) -> tuple[Any, dict[str, Array]]:
    """Return the text of an archive, which is JSON, and its arrays.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged, or something else; there are others, see `ARCHIVE_ERRORS`.
    """
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays[RECORD])), arrays


def packed_runs(levels: Mapping[str, Runs], arrays: dict[str, Array]) -> list[dict[str, object]]:
    """Describe runs, and put their arrays into *arrays*."""
    return [
        {
            "level": level,
            "seed": case,
            "output": name,
            "leaves": [
                {"label": leaf.label, "dtype": leaf.dtype, "array": _put(leaf.data, arrays)}
                for leaf in leaves
            ],
        }
        for level, runs in levels.items()
        for case, outputs in runs.items()
        for name, leaves in outputs.items()
    ]


def unpacked_runs(
    entries: Any,  # noqa: ANN401  # JSON
    arrays: Mapping[str, Array],
) -> dict[str, dict[int, Outputs]]:
    """Return the runs that `packed_runs` described, by level."""
    levels: dict[str, dict[int, Outputs]] = {}
    for entry in entries:
        runs = levels.setdefault(str(entry["level"]), {})
        runs.setdefault(int(entry["seed"]), {})[str(entry["output"])] = tuple(
            Leaf(leaf["label"], leaf["dtype"], arrays[leaf["array"]]) for leaf in entry["leaves"]
        )
    return levels


def _put(array: Array, arrays: dict[str, Array]) -> str:
    """Put an array into *arrays*, and return its key there."""
    key = f"a{len(arrays)}"
    arrays[key] = storable(array)
    return key


def _packed_feed(feed: Feed, arrays: dict[str, Array]) -> object:
    """Describe a feed, and put its arrays into *arrays*: None, one array, or a list of them."""
    if feed is None:
        return None
    if isinstance(feed, list):
        return [_packed_feed(item, arrays) for item in feed]
    is_text = feed.dtype.kind == "O"
    dtype = onnx.TensorProto.STRING if is_text else onnx.helper.np_dtype_to_tensor_dtype(feed.dtype)
    return {"array": _put(feed, arrays), "dtype": int(dtype)}


def _unpacked_feed(packed: Any, arrays: Mapping[str, Array]) -> Feed:  # noqa: ANN401  # JSON
    if packed is None:
        return None
    if isinstance(packed, list):
        return [_unpacked_feed(item, arrays) for item in packed]  # type: ignore[misc]  # arrays
    values = arrays[packed["array"]]
    if packed["dtype"] == onnx.TensorProto.STRING:
        return values.astype(object)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(packed["dtype"])
    return values.view(dtype) if values.dtype.kind == "V" else values


# Comparing a model with a file of results, of another version of onnxruntime or another machine.
#
# The original is not run again: what it was fed, and what it gave, is in the file.


def verify_against(
    evidence: Evidence, candidate: Path, check: Check, *, progress: Callable[[str], None]
) -> VerificationResult:
    """Compare what *candidate* computes with what the original of *evidence* gave.

    Args:
        evidence: What was fed, and what came out.
        candidate: The model in question.
        check: Levels, tolerances, custom operators and execution are used.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        ModelLoadError: The file is missing or holds no model.
        UsageError: A tolerance is for an unknown output, or a library cannot be loaded.
    """
    check_setup(check.custom_ops, check.execution)
    # Name the inputs and outputs that only the results or only the candidate have.
    model = read_model(candidate)
    check_expansion(candidate, model, check.execution)
    graph = model.graph
    fed = next(iter(evidence.feeds.values()), {})
    gave = _first(evidence)
    reasons = [
        *_differences("input", fed, [port.name for port in input_ports(graph)]),
        *_differences("output", gave, [port.name for port in output_ports(graph)]),
    ]
    runs: dict[str, Runs] = {}
    if not reasons:
        source = candidate_source(candidate, check)

        def run(level: str) -> Runs:
            progress(f"running the candidate, {at_level(level)}")
            return run_cases(Runner(source, level), evidence.feeds, tuple(evidence.result.cases))

        runs, failures = run_levels(check.judged_levels, run)
        reasons = [*failures.values()]
    result = replace(
        evidence.result,
        levels=check.judged_levels,
        proof=None,
        unproved="",
        regions=None,
        doubts=blindness(evidence.result.blind_outputs, gave, evidence.feeds),
        reasons=tuple(reasons),
        warnings=(*evidence.result.warnings, *_other_versions(evidence)),
    )
    return replace(evidence, candidates=runs, result=result, excuses={}).judge(check)


def _differences(what: str, saved: Mapping[str, object], names: Sequence[str]) -> list[str]:
    missing = [f"the candidate has no {what} {name!r}" for name in saved if name not in names]
    return missing + [
        f"the results hold no {what} {name!r}, which the candidate has"
        for name in names
        if name not in saved
    ]


def _other_versions(evidence: Evidence) -> list[str]:
    from dplcli.verify.engines import RUNTIME_VERSION  # noqa: PLC0415  # loads onnxruntime

    if evidence.runtime in {"", RUNTIME_VERSION}:
        return []
    return [
        f"the results are onnxruntime {evidence.runtime}'s; the candidate ran in {RUNTIME_VERSION}"
    ]
