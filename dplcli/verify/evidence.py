"""What two models gave, kept in one file, so that it can be judged again with other tolerances.

The file is a numpy archive without pickles: the arrays, and one text with everything else
(``dpl.results/1``). It holds what a verdict rests on: what was fed, the original with optimisation
off and at each level, the candidate at each level, what is known of the outputs, and how far the
original's own last bits move them if it rounds to steps. So a model can also be compared with it
later, by another version of onnxruntime (`dplcli.verify.against`).
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dplcli.errors import UsageError
from dplcli.files import write_file
from dplcli.verify.compare import Limit
from dplcli.verify.depth import Depth
from dplcli.verify.judgement import REFERENCE, Facts, Runs, check_names, judge_level
from dplcli.verify.result import InputChoice, OutputComparison, Settings, VerificationResult
from dplcli.verify.sessions import Array, Feed, Leaf, Outputs
from dplcli.verify.values import is_exotic

SCHEMA = "dpl.results/1"
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
        first = next(iter(self.originals[REFERENCE].values()), {})
        check_names(settings.tolerances, first)
        outputs: list[OutputComparison] = []
        for level, runs in self.candidates.items():
            outputs += judge_level(
                settings,
                self.facts,
                level,
                reference=self.originals[REFERENCE],
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
        "schema": SCHEMA,
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
        if record["schema"] != SCHEMA:
            raise UsageError(f"{path}: holds {record['schema']!r}, not {SCHEMA!r}")
        facts, result = record["facts"], record["result"]
        originals = _unpacked(record["originals"], arrays)
        levels = {REFERENCE: originals[REFERENCE], **originals} if originals else {}
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
