"""Measure what ``dpl verify`` is worth: how many wrong models it refuses, and false alarms.

Mutants: a model with one change (:mod:`benchmarks.mutations`), compared with its original as
``dpl verify ORIGINAL MUTANT`` does it. A mutant counts only if anybody could see it: its effect
has to be ten times the original's noise (:mod:`benchmarks.effects`) for one of the inputs, which
are those that dpl makes from ``--seeds``, of which it uses 0 and 1 by default.

Equivalent pairs: the original beside itself partitioned, rewritten, and as other tools write it.
None may be refused. A pair in which the tool changed no node does not count.

Run it from the root of the repository, with dplcli and its ``benchmark`` extra installed::

    python -m benchmarks.verify_power sample_models/*.onnx
    python -m benchmarks.verify_power models/*.onnx --kinds scale epsilon --mutants 5 --pairs none
    python -m benchmarks.verify_power models/*.onnx --external --keep missed --log power.jsonl

The exit code is 1 if fewer than ``--least`` of the mutants that count are caught, or if there is a
false alarm. Where there is no verdict (an error, or ``--limit`` seconds passed) neither is counted.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.effects import CLEAR, Feeds, measure_effect, measure_noise, widened
from benchmarks.mutations import KINDS, scopes_of
from benchmarks.peers import PEERS, missing_packages, run_limited
from dplcli import pipeline
from dplcli.settings import PartitionSettings, RewriteSettings
from dplcli.verify.evidence import load_evidence

LEAST = 0.95
USUAL = (0, 1)  # the seeds that dpl verify uses by default
WIDTH = 130  # of the tables where there is no terminal
_TRIES = 5  # changes tried for each mutant that is wanted
_FILE_SIZE = 1024  # bytes of a weight that goes to a file of its own
_CATALOGS = (
    *("prepare", "fuse", "fuse_attention"),
    *("fuse_ort", "fuse_ort_attention", "fuse_ort_quantized"),
)
_RIGHT = frozenset({"caught", "refused", "equivalent"})
_TARGETS = ("dnnl", "cublas", "cutlass")
_PEERS = ("onnxslim", "onnxsim", "ort-basic", "ort-extended")

# --- verdicts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    """One comparison.

    Attributes:
        model: The original.
        kind: What was changed, or the tool that made the candidate.
        verdict: For a mutant 'caught' or 'missed'; 'too small', with ``--small`` 'refused' or
            'passed'. For a pair 'equivalent', 'alarm', 'unchanged' or 'not written'. For both
            'no verdict'.
        what: The change in words.
        place: 'graph', 'body', 'function' or 'file'.
        quantised: Whether the original is.
        ratio: Effect over noise.
        unseen: Whether only inputs show it that ``dpl verify`` does not use by default.
        why: What the verdict rests on.
        seconds: How long it took.
        kept: Where the two models are.
    """

    model: str
    kind: str
    verdict: str
    what: str = ""
    place: str = ""
    quantised: bool = False
    ratio: float = 0.0
    unseen: bool = False
    why: str = ""
    seconds: float = 0.0
    kept: str = ""


def judge(original: Path, candidate: Path) -> tuple[str, str]:
    """Return the verdict of ``dpl verify``, and what it rests on, as a text of one line."""
    result = pipeline.verify(original, candidate)
    if any("another input" in reason for reason in result.reasons):
        return "no verdict", "weights have become inputs"
    said = [*result.objections, *(output.reason or "" for output in result.outputs)]
    if not result.equivalent:
        return "different", next(filter(None, said), "")
    said = [
        f"{o.name} at {o.level}: {o.max_abs or 0:.3g} of {o.atol:.3g} ({o.derivation})"
        for o in result.outputs
    ]
    said += [f"blind: {name}" for name in result.blind_outputs]
    said += [] if result.regions is None else [f"{result.regions.judged} places judged alone"]
    return "equivalent", "; ".join(said)


def feeds_for(original: Path, seeds: Sequence[int], results: Path) -> Feeds:
    """Return what dpl feeds a model."""
    settings = pipeline.Check(seeds=tuple(seeds), save_results=results, levels=("disable",))
    pipeline.verify(original, original, check=settings)
    return [dict(case) for case in load_evidence(results).feeds.values()]


def is_quantised(model: onnx.ModelProto) -> bool:
    """Tell whether a model computes with quantised numbers."""
    marks = ("Quant", "QLinear", "Integer", "NBits")
    return any(mark in n.op_type for s in scopes_of(model) for n in s.nodes for mark in marks)


class Bench:
    """One original and what it is compared with.

    Args:
        model: The original's file.
        folder: An empty folder.
        arguments: The options.
    """

    def __init__(self, model: Path, folder: Path, arguments: argparse.Namespace) -> None:
        self.model = model
        self.original = model
        self.folder = folder
        self.arguments = arguments
        self.proto = onnx.load(model)
        self.quantised = is_quantised(self.proto)
        if arguments.external:
            self.original = self.save(self.proto, "original.onnx")
            self.proto = onnx.load(self.original)

    def record(self, kind: str, verdict: str, why: str = "") -> Record:
        """Return a record about this model."""
        return Record(self.model.name, kind, verdict, quantised=self.quantised, why=why)

    def save(self, model: onnx.ModelProto, name: str) -> Path:
        """Write a model, with ``--external`` its weights beside it."""
        path = self.folder / name
        (self.folder / f"{name}.data").unlink(missing_ok=True)
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save(
            copy,
            path,
            save_as_external_data=self.arguments.external,
            location=f"{name}.data",
            size_threshold=_FILE_SIZE,
        )
        return path

    def limited(self, function: Callable[..., object], *args: object) -> tuple[Any, str]:
        """Call a function in a process of its own; return its answer, and why there is none."""
        ending = run_limited(self.arguments.limit, function, *args)
        return ending.answer, ending.problem

    def verdict(self, candidate: Path, record: Record, words: Mapping[str, str]) -> Record:
        """Fill in the verdict; keep the two models where it is not the right one."""
        start = time.perf_counter()
        answer, problem = self.limited(judge, self.original, candidate)
        said, why = answer or ("no verdict", problem)
        seconds = round(time.perf_counter() - start, 1)
        found = replace(record, verdict=words.get(said, said), why=why, seconds=seconds)
        if self.arguments.keep is None or found.verdict in _RIGHT:
            return found
        name = f"{self.model.stem}-{found.kind}-{crc32(found.what.encode()):08x}"
        place = self.arguments.keep / name
        place.mkdir(parents=True, exist_ok=True)
        for path in (self.original, candidate):
            for file in (path, path.with_name(f"{path.name}.data")):
                if file.exists():
                    shutil.copyfile(file, place / file.name)
        return replace(found, kept=str(place))

    def mutants(self) -> Iterator[Record]:
        """Judge so many mutants that count; yield those that are too small, too."""
        options, original, saved = self.arguments, self.original, self.folder / "results.npz"
        if not options.mutants:
            return
        feeds, problem = self.limited(feeds_for, original, options.seeds, saved)
        if options.wide and not problem:
            feeds = [*feeds, *widened(feeds, options.wide)]
        known = (original, feeds, options.draws, self.folder)
        baseline, problem = (None, problem) if problem else self.limited(measure_noise, *known)
        if problem:
            yield self.record("mutants", "no verdict", why=problem)
            return
        counted = 0
        for kind, place, what, change in self.changes():
            path = self.save(change(), "mutant.onnx")
            ratios, problem = self.limited(measure_effect, path, feeds, baseline)
            if problem:
                continue  # it does not run, or gives another shape
            ratio = max(ratios)
            used = [
                each for seed, each in zip(options.seeds, ratios, strict=False) if seed in USUAL
            ]
            made = self.record(kind, "too small")
            made = replace(made, what=what, place=place, ratio=ratio)
            made = replace(made, unseen=max(used, default=0.0) < CLEAR <= ratio)
            if ratio >= CLEAR:
                made = self.verdict(path, made, {"equivalent": "missed", "different": "caught"})
            elif options.small and ratio > 0:
                made = self.verdict(path, made, {"equivalent": "passed", "different": "refused"})
            yield made
            counted += made.verdict != "too small"
            if counted == options.mutants:
                break

    def changes(self) -> Iterator[tuple[str, str, str, Callable[[], onnx.ModelProto]]]:
        """Yield changes in a random order: kind, place, words, and what makes the mutant.

        Kinds take turns, and so do the places of each kind, so that what is rare is tried, too.
        """
        rng = np.random.default_rng([crc32(self.model.name.encode()), *self.arguments.seeds])
        sites: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
        for number, scope in enumerate(scopes_of(self.proto)):
            for kind in self.arguments.kinds:
                place = "file" if self.arguments.external else scope.place
                for index, (what, _) in enumerate(KINDS[kind](scope)):
                    sites.setdefault((kind, place), []).append((number, index, what))
        for _ in range(_TRIES):
            for kind, place in rng.permutation(sorted(sites)).tolist():
                here = sites[kind, place]
                if here:
                    number, index, what = here.pop(int(rng.integers(len(here))))
                    yield kind, place, what, partial(self._changed, kind, number, index)

    def _changed(self, kind: str, number: int, index: int) -> onnx.ModelProto:
        mutant = onnx.ModelProto()
        mutant.CopyFrom(self.proto)
        _, change = list(KINDS[kind](scopes_of(mutant)[number]))[index]
        change()
        return mutant

    def pairs(self) -> Iterator[Record]:
        """Judge what tools make of the model, where they change it."""
        for name in self.arguments.pairs:
            candidate = self.folder / "candidate.onnx"
            candidate.unlink(missing_ok=True)
            record = self.record(name, "")
            ending = run_limited(self.arguments.limit, EQUIVALENTS[name], self.original, candidate)
            if ending.problem or not candidate.exists():
                yield replace(record, verdict="not written", why=ending.problem)
            elif _nodes(self.original) == _nodes(candidate):
                yield replace(record, verdict="unchanged")
            else:
                yield self.verdict(candidate, record, {"different": "alarm"})


def _nodes(path: Path) -> list[bytes]:
    """Return what a model does, without what is noted about it."""
    model = onnx.load(path, load_external_data=False)
    nodes = [node for scope in scopes_of(model) for node in scope.nodes]
    for node in nodes:
        del node.metadata_props[:]
        node.ClearField("doc_string")
        node.ClearField("name")
    return [node.SerializeToString(deterministic=True) for node in nodes]


def _partitioned(target: str, model: Path, output: Path) -> None:
    settings = PartitionSettings(verify=False)
    pipeline.partition(model, settings.but(output=output, target=[target]))


def _rewritten(catalog: str, model: Path, output: Path) -> None:
    settings = RewriteSettings(verify=False)
    pipeline.rewrite(model, settings.but(output=output, patterns=[catalog]))


EQUIVALENTS: Mapping[str, Callable[[Path, Path], object]] = {
    **{target: partial(_partitioned, target) for target in _TARGETS},
    **{catalog: partial(_rewritten, catalog) for catalog in _CATALOGS},
    **{peer: PEERS[peer] for peer in _PEERS},
}


# --- the report ---------------------------------------------------------------------------------

_COUNTED = ("caught", "missed")
_COLUMNS = (
    *("made", "too small", "refused", "passed"),
    *("counted", "caught", "missed", "unseen", "no verdict"),
)


def mutant_table(records: Sequence[Record], by: Callable[[Record], str], title: str) -> Table:
    """Return a table of mutants: a row for each group and a last one for all.

    Unseen are those of the missed that the usual inputs do not show.
    """
    table = Table(title, *_COLUMNS, title="mutants")
    made = [record for record in records if record.what]
    for row in [*sorted({by(record) for record in made}), "all"]:
        here = [record for record in made if row in {by(record), "all"}]
        found = Counter(record.verdict for record in here)
        found["made"], found["counted"] = len(here), sum(found[word] for word in _COUNTED)
        found["unseen"] = sum(record.unseen for record in here if record.verdict == "missed")
        table.add_row(row, *(str(found[name]) for name in _COLUMNS))
    return table


def group_of(record: Record) -> str:
    """Return the row of a mutant."""
    return f"{record.kind}, {'quantised' if record.quantised else 'float'}"


def pair_table(records: Sequence[Record]) -> Table:
    """Return a table of equivalent pairs, a row for each tool."""
    names = ("equivalent", "alarm", "no verdict", "unchanged", "not written")
    table = Table("candidate", *names, title="equivalent pairs")
    for kind in EQUIVALENTS:
        found = Counter(record.verdict for record in records if record.kind == kind)
        if found:
            table.add_row(kind, *(str(found[name]) for name in names))
    return table


def line_of(record: Record) -> str:
    """Return a record as a line of the log on the screen."""
    where = ", not for the usual inputs" if record.unseen else ""
    ratio = f" ({record.ratio:.3g} x noise{where})" if record.what else ""
    why = f": {record.why}" if record.verdict not in {"caught", "equivalent"} and record.why else ""
    return f"{record.verdict:12}{record.model} {record.kind}, {record.what}{ratio}{why}"


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("models", nargs="+", type=Path)
    add("--mutants", type=int, default=4, help="that count, for each model")
    add(
        "--kinds", nargs="+", choices=KINDS, default=[*KINDS], metavar="KIND", help=", ".join(KINDS)
    )
    choices = [*EQUIVALENTS, "none"]
    add(
        "--pairs",
        nargs="+",
        choices=choices,
        default=[*EQUIVALENTS],
        metavar="TOOL",
        help=", ".join(choices),
    )
    add("--small", action="store_true", help="judge mutants that are too small to count, too")
    add("--external", action="store_true", help="put weights into files of their own")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2, 3], help="of inputs that show an effect")
    add("--wide", type=float, default=0, help="show effects for floats so many times as large, too")
    add("--draws", type=int, default=5, help="how often last bits are moved")
    add("--limit", type=float, default=120, help="seconds for each step")
    add("--least", type=float, default=LEAST, help="share of mutants to catch")
    add("--keep", type=Path, help="folder for pairs that were missed, or are alarms")
    add("--log", type=Path, help="file to add a line of JSON to for each comparison")
    arguments = parser.parse_args(argv)
    arguments.pairs = [name for name in arguments.pairs if name != "none"]
    for name in missing_packages([name for name in arguments.pairs if name in PEERS]):
        print(f"{name} is not installed: skipped")
        arguments.pairs.remove(name)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every model; return the exit code."""
    arguments = read_options(argv)
    records: list[Record] = []
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as name:
            bench = Bench(model, Path(name), arguments)
            for make in (bench.mutants, bench.pairs):
                for record in make():
                    records.append(record)
                    print(line_of(record), flush=True)
                    if arguments.log is not None:
                        with arguments.log.open("a", encoding="utf-8") as file:
                            print(json.dumps(asdict(record)), file=file)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if arguments.mutants:
        console.print(mutant_table(records, group_of, "kind"))
        console.print(mutant_table(records, lambda record: record.place, "place"))
    if arguments.pairs:
        console.print(pair_table(records))
    found = Counter(record.verdict for record in records)
    counted = sum(found[word] for word in _COUNTED)
    print(f"caught {found['caught']} of {counted} mutants; {found['alarm']} false alarms")
    return int(found["caught"] < arguments.least * counted or found["alarm"] > 0)


if __name__ == "__main__":
    sys.exit(main())
