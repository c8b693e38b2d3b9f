"""A model that runs in blocks, one after the other: memory holds the weights of one block alone.

A run of a large model takes its weights, and the copies that onnxruntime makes of them: float16
becomes float32, and what a matrix product reads is packed. What flows through the model is small
beside that. So the model is cut at values, few of them, and each block runs by itself on what those
before it gave. A block names its weights where they lie in files: nothing is copied.

Whoever runs a model, for whatever part of the check, gets the same numbers from blocks, but for one
thing: onnxruntime computes float16 in float32 from node to node, and rounds what it is asked for.
So two models are cut at the same values, as far as both have them.

What is computed from stored values alone belongs to each block that reads it. Every other node
belongs to the first block whose ends need it.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.analysis.extract import Wiring, cut, subgraphs
from dplcli.errors import VerificationError, opt
from dplcli.files import cache_folder, place_in, write_file
from dplcli.ir.operators import MATRIX_SLOT, may_be_random
from dplcli.onnx_io.convert import all_nodes, decode_type, load_data
from dplcli.onnx_io.external_data import places_in
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.cuts import CutModels
from dplcli.verify.evidence import RECORD, packed_runs, read_record, unpacked_runs
from dplcli.verify.inputs import ARCHIVE_ERRORS
from dplcli.verify.layers import alone, type_of, value_of
from dplcli.verify.model import bytes_of, model_of
from dplcli.verify.run import Runner
from dplcli.verify.values import BlockCuts, Leaf, RunError, arrays_in, leaves_of
from dplcli.verify.verdict import GIGABYTE, BlockReport, MemoryPlan, Need

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dplcli.verify.model import Dataflow
    from dplcli.verify.run import Kind
    from dplcli.verify.values import Array, Feed, ModelSource, Outputs, PartitionTime
    from dplcli.verify.verdict import PartitionRun

# The engine.


class InBlocks:
    """A session of a model that is cut into blocks; it opens one of them at a time.

    Args:
        source: The model, and where it is cut.
        level: The optimisation level.
        engine: What runs it.
    """

    def __init__(self, source: ModelSource, level: str, engine: Kind) -> None:
        assert source.blocks is not None  # noqa: S101  # nobody asks otherwise
        self._source, self._level, self._engine = source, level, engine
        self._blocks = source.blocks
        self._wiring = wiring = Wiring(model_of(source))
        makers = {wiring.makers[name] for name in wiring.outputs if name in wiring.makers}
        self._stored = stored_rows(wiring) - makers
        self._places = places_of(wiring, self._blocks.ends)
        self._is_noting = level == REFERENCE_LEVEL and engine == "onnxruntime"
        self._record: dict[str, PartitionRun] = {}

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output of the model."""
        return self.run_each([feeds])[0]

    def run_each(self, feeds: Sequence[Mapping[str, Feed]]) -> list[Outputs]:
        """Return every output for each of several sets of inputs.

        Raises:
            RunError: onnxruntime does not accept a block, or the inputs.
            StoppedError: The process crashed, or took longer than allowed.
        """
        wiring, nodes = self._wiring, self._wiring.nodes
        for name in {name for each in feeds for name in each} & wiring.initializers.keys():
            del wiring.initializers[name]  # a default that somebody replaces
        kept = self._kept(feeds)
        values = [{**known, **each} for known, each in zip(kept, feeds, strict=True)]
        given = set.intersection(*map(set, values))
        results = [self._given(each, given) for each in values]
        wanted = wiring.outputs - results[0].keys()
        rows = sorted(wiring.between(given, wanted) - self._stored, key=self._places.__getitem__)
        last = {name: self._places[row] for row in rows for name in wiring.reads[row]}
        noted = self._blocks.noted if self._is_noting else frozenset[str]()
        for number in dict.fromkeys(map(self._places.__getitem__, rows)):
            own = {row for row in rows if self._places[row] == number}
            made = [name for row in sorted(own) for name in nodes[row].output if name]
            passed = {name for name in made if name in noted or last.get(name, -1) > number}
            ends = [name for name in made if name in passed or name in wanted]
            runs = self._run_block(number, own, ends, values) if ends else [{} for _ in values]
            for each, outputs, known, run in zip(values, results, kept, runs, strict=True):
                outputs |= {name: leaves for name, leaves in run.items() if name in wanted}
                each |= {name: _feed(name, run[name]) for name in passed}
                if self._blocks.kept is not None and self._is_noting:
                    known |= {name: each[name] for name in passed}
                for name in [name for name in each if last.get(name, -1) <= number]:
                    del each[name]
        names = [info.name for info in wiring.model.graph.output]
        return [{name: outputs[name] for name in names} for outputs in results]

    def record(self) -> list[PartitionRun]:
        """Return what has become of each partition so far."""
        return [*self._record.values()]

    def profile(self, feeds: Mapping[str, Feed]) -> list[PartitionTime]:
        """Return nothing: blocks are not timed."""
        del feeds
        return []

    def _kept(self, feeds: Sequence[Mapping[str, Feed]]) -> list[dict[str, Feed]]:
        """Return what is known of earlier runs on the same inputs."""
        if self._blocks.kept is None or not self._is_noting:
            return [{} for _ in feeds]
        return [self._blocks.kept.setdefault(_digest(each), {}) for each in feeds]

    def _given(
        self, values: Mapping[str, Feed], known: Collection[str]
    ) -> dict[str, tuple[Leaf, ...]]:
        """Return the outputs that no node need compute: they are fed, known or stored."""
        wiring = self._wiring
        given = {name: _leaves(values[name]) for name in wiring.outputs if name in known}
        for name in wiring.outputs & wiring.initializers.keys() - given.keys():
            tensor = TensorProto()
            tensor.CopyFrom(wiring.initializers[name])
            if tensor.data_location == TensorProto.EXTERNAL:
                load_data(tensor, self._source.path.parent)
            given[name] = leaves_of(onnx.numpy_helper.to_array(tensor))
        return given

    def _run_block(
        self, number: int, rows: set[int], ends: Sequence[str], values: Sequence[Mapping[str, Feed]]
    ) -> Sequence[Outputs]:
        """Run a block on what those before it gave; its session is closed then."""
        source, wiring, count = self._source, self._wiring, self._blocks.count
        place = f"{source.name}, block {number + 1} of {count}"
        self._blocks.say(f"running the {place}")
        rows = with_stored(wiring, self._stored, rows)
        read = wiring.entering(rows)
        if lost := [name for name in read if any(name not in each for each in values)]:
            raise RunError(f"the value {lost[0]!r} is missing")
        types = self._types(read, values)
        model = cut(wiring, rows, types, ends)
        is_huge = any(math.prod(t.dims) * _BYTES_OF_FLOAT > _HUGE for t in model.graph.initializer)
        options = (*source.execution.options, *_SPARING, *([_UNPACKED] if is_huge else []))
        execution = replace(source.execution, options=options)
        block = replace(alone(source, model, place), execution=execution)
        fed = [{name: each[name] for name in read} for each in values]
        file = self._result_of(block, fed)
        if file is not None and (known := _read_results(file)) is not None:
            return known
        start = time.monotonic()
        runner = Runner(block, self._level, self._engine)
        runs = runner.run_each(fed)
        for item in runner.record():
            self._record[item.call] = item
        if file is not None and time.monotonic() - start > _WORTH_STORING:
            _write_results(file, runs)
        return runs

    def _result_of(self, block: ModelSource, feeds: Sequence[Mapping[str, Feed]]) -> Path | None:
        """Return the file for what a block gives; None if that is not stored.

        Its name tells the block, its weights and what it is fed, and what runs it.
        """
        execution, folder = block.execution, self._blocks.results
        if folder is None or block.content is None:
            return None
        model = onnx.ModelProto.FromString(block.content)
        has_code = bool(block.libraries) or execution.kernels is not None
        draws = any(may_be_random(n.domain, n.op_type) for n in all_nodes(model.graph))
        if has_code or draws:
            return None
        digest = hashlib.sha256(block.content)
        about: list[object] = [self._level, self._engine, execution.provider, execution.options]
        about += [version("onnxruntime"), version("numpy"), platform.processor()]
        for location in sorted({place.location for place in places_in(model)}):
            data = place_in(block.path.parent, location)
            status = data.stat()
            about += [str(data), status.st_size, status.st_mtime_ns]
        digest.update(repr(about).encode())
        for each in feeds:
            digest.update(_digest(each))
        file = folder / f"{digest.hexdigest()}{_END}"
        self._blocks.stored.add(file)
        return file

    def _types(
        self, names: Sequence[str], values: Sequence[Mapping[str, Feed]]
    ) -> dict[str, onnx.TypeProto]:
        """Return what is stated of values, where it holds for all that they are fed."""
        graph = self._wiring.model.graph
        stated = {info.name: info.type for info in (*graph.value_info, *graph.input)}
        inputs = {info.name for info in graph.input}
        types = {}
        for name in names:
            fed = [each[name] for each in values]
            known = stated.get(name)
            is_shape = _is_shape(fed) and name not in inputs
            is_told = known is not None and (name in inputs or all(_fits(known, v) for v in fed))
            if is_shape or not is_told:
                known = next((type_of(v, is_sized=is_shape) for v in fed if v is not None), None)
            if known is None:
                raise RunError(f"the value {name!r} cannot be fed")
            types[name] = known
        return types


# Results of blocks, stored until the check is over.


_WORTH_STORING = 1.0
"""Seconds that a block takes at least, if what it gives is stored."""
_END = ".block.npz"
_OLD = 7 * 24 * 3600.0


def results_folder() -> Path | None:
    """Return where results of blocks are stored; what was left there long ago is removed."""
    folder = cache_folder()
    if folder is None:
        return None
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in folder.glob(f"*{_END}"):
            if time.time() - file.stat().st_mtime > _OLD:
                file.unlink()
    return folder


def forget(*cuts: BlockCuts) -> None:
    """Remove what was stored for a check that is over."""
    for place in (place for each in cuts for place in each.stored):
        with suppress(OSError):
            place.unlink(missing_ok=True)


def _write_results(place: Path, runs: Sequence[Outputs]) -> None:
    """Store what a block gave; numbers only."""
    arrays: dict[str, Array] = {}
    record = packed_runs({"": dict(enumerate(runs))}, arrays)
    if any(array.dtype.kind not in "biuf" for array in arrays.values()):
        return
    arrays[RECORD] = np.array(json.dumps(record))
    with suppress(OSError):
        write_file(place, lambda file: np.savez(file, allow_pickle=False, **arrays))


def _read_results(place: Path) -> list[Outputs] | None:
    """Return what a block gave before; None if that is not stored."""
    try:
        runs = unpacked_runs(*read_record(place))[""]
    except (OSError, ValueError, KeyError, EOFError, *ARCHIVE_ERRORS):
        return None
    return [runs[number] for number in sorted(runs)]


def _is_shape(fed: Sequence[Feed]) -> bool:
    """Tell whether values may be shapes: onnxruntime wants to know how many numbers these have."""
    shapes = {v.shape for v in fed if isinstance(v, np.ndarray) and v.dtype.kind in "iu"}
    return len(shapes) == 1 and len(next(iter(shapes))) == 1


def _fits(stated: onnx.TypeProto, value: Feed) -> bool:
    """Tell whether a tensor has the type and the sizes that are stated."""
    known = decode_type(stated)
    if not isinstance(value, np.ndarray) or known is None or known.shape is None:
        return False
    actual = type_of(value).tensor_type.elem_type
    if (stated.tensor_type.elem_type, len(known.shape)) != (actual, value.ndim):
        return False
    sizes = zip(known.shape, value.shape, strict=True)
    return all(dim == size for dim, size in sizes if isinstance(dim, int))


def _leaves(feed: Feed) -> tuple[Leaf, ...]:
    """Return a value as a session gives it: bfloat16 as float32."""
    return tuple(
        replace(leaf, data=leaf.data.astype(np.float32)) if leaf.dtype == "bfloat16" else leaf
        for leaf in leaves_of(feed)
    )


def _feed(name: str, leaves: Sequence[Leaf]) -> Feed:
    value = value_of(leaves)
    if value is None:
        raise RunError(f"the value {name!r} cannot be handed from block to block")
    return value


def _digest(feeds: Mapping[str, Feed]) -> bytes:
    """Return what tells inputs from others."""
    digest = hashlib.sha256()
    for name, feed in sorted(feeds.items()):
        for array in arrays_in(feed):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            is_plain = array.dtype.kind not in "OUS"
            digest.update(array.tobytes() if is_plain else repr(array.tolist()).encode())
    return digest.digest()


_SPARING = (
    ("enable_cpu_mem_arena", "0"),
    ("enable_mem_pattern", "0"),
    ("execution_order", "priority"),
)
"""Else what one run took, its copies of weights among it, is held while the next one takes more.

By priority, a weight is copied just before it is read; else all are copied first.
"""
_HUGE = 1 << 30
_UNPACKED = ("session.disable_prepacking", "1")
"""Weights of so many bytes in float32 are not packed: for a moment there would be two copies."""


# Which node belongs to which block.


def stored_rows(wiring: Wiring) -> set[int]:
    """Return the nodes that compute with nothing but what is stored."""
    rows: set[int] = set()
    functions = {(each.domain, each.name) for each in wiring.model.functions}
    known = {*wiring.initializers, *wiring.sparse} - {i.name for i in wiring.model.graph.input}
    for row, node in enumerate(wiring.nodes):
        is_plain = (node.domain, node.op_type) not in functions and not any(subgraphs(node))
        is_still = is_plain and not may_be_random(node.domain, node.op_type)
        if is_still and all(name in known for name in wiring.reads[row]):
            rows.add(row)
            known.update(node.output)
    return rows


def with_stored(wiring: Wiring, stored: Collection[int], rows: Iterable[int]) -> set[int]:
    """Return nodes and those that compute what they read from stored values."""
    whole, pending = {*rows}, [*rows]
    while pending:
        for name in wiring.reads[pending.pop()]:
            row = wiring.makers.get(name)
            if row is not None and row in stored and row not in whole:
                whole.add(row)
                pending.append(row)
    return whole


def places_of(wiring: Wiring, ends: Sequence[Sequence[str]]) -> dict[int, int]:
    """Return the block of each node: the first whose ends need it, or the first that can have it.

    Args:
        wiring: The model.
        ends: For each block but the last, what it makes for others.
    """
    places: dict[int, int] = {}
    before: set[str] = set()
    for number, names in enumerate(ends):
        for row in wiring.between(before, names):
            places.setdefault(row, number)
        before.update(names)
    for row, names in enumerate(wiring.reads):
        if row in places:
            continue
        earliest = 0
        for name in names:
            if (maker := wiring.makers.get(name)) is not None:
                place = places[maker]
                is_end = place < len(ends) and name in ends[place]
                earliest = max(earliest, place + is_end)
        places[row] = earliest
    return places


# How much memory a run needs.


_SMALL = 1 << 28
"""Models with fewer bytes of weights are run at once, whatever memory there is."""
_SHARE = 8
"""Which part of the memory that is free a check takes without being told."""
_LEAST = 10**9
_UNEVEN = 2
"""A candidate whose blocks would be so many times as large is cut elsewhere than the original."""
_HEAVY = 1 << 18
"""From how many bytes of weights on what a node gives is kept, so that it is not computed twice."""
_PICKING = frozenset({"Gather", "GatherND", "GatherElements", "GatherBlockQuantized"})
_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_BYTES_OF_FLOAT = 4


def _costs(wiring: Wiring, row: int) -> Iterator[tuple[str, int, int]]:
    """Yield the stored values that a node reads: the name, its bytes, and those of copies of it."""
    node = wiring.nodes[row]
    for name in wiring.reads[row]:
        if (tensor := wiring.initializers.get(name)) is None:
            continue
        size = bytes_of(tensor)
        wide = math.prod(tensor.dims) * _BYTES_OF_FLOAT
        if node.op_type in _PICKING:
            copies = 0
        elif tensor.data_type in _HALVES or node.op_type == "DequantizeLinear":
            copies = wide
        else:
            is_packed = node.op_type in MATRIX_SLOT or node.domain
            copies = size if is_packed else 0
        yield name, size, copies


def need_of(wiring: Wiring, rows: Iterable[int], values: int = 0) -> Need:
    """Return what a run of some nodes needs.

    Args:
        wiring: The model.
        rows: The nodes.
        values: The bytes of what flows.
    """
    sizes: dict[str, int] = {}
    copies: Counter[str] = Counter()
    for row in rows:
        for name, size, copied in _costs(wiring, row):
            sizes[name] = size
            copies[name] = max(copies[name], copied)
    return Need(sum(sizes.values()), sum(copies.values()), values)


def values_of(flow: Dataflow, sizes: Mapping[str, int]) -> int:
    """Return how many bytes of values there are at once at the most, if they go when last read.

    Args:
        flow: The model.
        sizes: The sizes of symbols; others count as the largest of them.
    """
    usual = max((size for name, size in sizes.items() if not name.endswith(":rank")), default=1)
    changes: Counter[int] = Counter()
    order = {node: number for number, node in enumerate(flow.graph)}
    for node, number in order.items():
        for value in node.outputs:
            known = None if value is None else value.declared_type
            if value is None or known is None or known.shape is None:
                continue
            dims = (d if isinstance(d, int) else sizes.get(str(d), usual) for d in known.shape)
            readers = (order.get(user, number) for user, _ in value.iter_uses())
            size = math.prod(dims) * _BYTES_OF_FLOAT
            changes[number] += size
            changes[max(readers, default=number) + 1] -= size
    return max(accumulate(changes[number] for number in range(len(order) + 1)), default=0)


def free_memory() -> int | None:
    """Return how many bytes of memory can be had; None if the system does not say."""
    try:
        rows = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    free = next((int(r.split()[1]) * 1024 for r in rows if r.startswith("MemAvailable:")), None)
    group = Path("/sys/fs/cgroup")
    try:
        most, used = ((group / f"memory.{each}").read_text().strip() for each in ("max", "current"))
        stated = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached = next((int(size) for name, size in stated if name == "inactive_file"), 0)
    except (OSError, ValueError):
        return free
    if most == "max" or free is None:
        return free
    return min(free, int(most) - int(used) + cached)


# Where to cut.


def is_large(*models: onnx.ModelProto) -> bool:
    """Tell whether models have so many weights that memory may run short."""
    return any(
        sum(bytes_of(tensor) for tensor in model.graph.initializer) >= _SMALL for model in models
    )


def plan_blocks(
    models: tuple[ModelSource, ModelSource],
    names: Iterable[str],
    values: int,
    most: float | None,
    say: Callable[[str], None],
) -> tuple[MemoryPlan, tuple[BlockCuts, BlockCuts] | None]:
    """Decide whether two models run in blocks, and in which.

    Args:
        models: The original and the candidate.
        names: What is fed.
        values: How many bytes flow through the original at the most.
        most: How many gigabytes of memory may be taken; None for a part of what is free.
        say: Called with a short phrase before each block.

    Returns:
        What a run takes, and where the models are cut; None if they run whole.

    Raises:
        VerificationError: A run would not fit into the memory that is free.
    """
    wirings = tuple(Wiring(model_of(source)) for source in models)
    needs = [need_of(wiring, range(len(wiring.nodes)), values) for wiring in wirings]
    need = max(needs, key=lambda each: each.total)
    free = free_memory()
    limit = need.total if free is None else max(free // _SHARE, _LEAST)
    if most is not None:
        limit = int(most * GIGABYTE)
    cuts, largest = None, need
    if need.total > limit:
        room = max(limit - values, limit // 2)  # what flows is an estimate, and a high one
        cuts = _cuts(wirings, _partners(models, names, wirings), room, say)
        of_blocks = (
            each
            for wiring, own in zip(wirings, cuts, strict=True)
            for each in _needs_in(wiring, own.ends, values)
        )
        largest = max(of_blocks, key=lambda each: each.total)
    count = 1 if cuts is None else max(each.count for each in cuts)
    plan = MemoryPlan(need, limit, free, count, largest)
    if free is not None and largest.copies + largest.values > free:  # weights may stay on disk
        raise VerificationError(
            f"there is not enough memory: {str(plan)[0].lower()}{str(plan)[1:-1]}",
            hint=f"free some; or feed less: {opt('shape', 'batch=1')}; "
            f"or leave the check out: {opt('verify')}",
        )
    return plan, cuts


def reports(source: ModelSource, roundings: Mapping[str, float]) -> tuple[BlockReport, ...]:
    """Return what was seen of each block of a model.

    Args:
        source: The original, and where it is cut.
        roundings: How far each place is off, by its value.
    """
    if source.blocks is None:
        return ()
    wiring = Wiring(model_of(source))
    places = places_of(wiring, source.blocks.ends)
    found = []
    for block in range(source.blocks.count):
        rows = [row for row, number in places.items() if number == block]
        made = (name for row in rows for name in wiring.nodes[row].output)
        own = {name: roundings[name] for name in made if name in roundings}
        worst = max(own, key=own.__getitem__, default="")
        off = own.get(worst, 0.0)
        shown = off if math.isfinite(off) else None
        found.append(BlockReport(block + 1, len(rows), len(own), worst, shown))
    return tuple(found)


def _cuts(
    wirings: Sequence[Wiring], partners: Mapping[str, str], limit: int, say: Callable[[str], None]
) -> tuple[BlockCuts, BlockCuts]:
    """Return where two models are cut: at the same values, as far as both have them."""
    ends = _ends(wirings[0], limit, partners)
    theirs = [[partners[name] for name in each if name in partners] for each in ends]
    stored = stored_rows(wirings[0])
    heavy = [
        name
        for row, node in enumerate(wirings[0].nodes)
        if row not in stored
        and need_of(wirings[0], with_stored(wirings[0], stored, [row])).weights >= _HEAVY
        for name in node.output
        if name in partners
    ]
    noted = frozenset(partners[name] for name in heavy)
    most = max(limit, *(need.total for need in _needs_in(wirings[0], ends, 0)))
    if any(need.total > _UNEVEN * most for need in _needs_in(wirings[1], theirs, 0)):
        theirs, noted = _ends(wirings[1], limit, dict.fromkeys(wirings[1].makers, "")), frozenset()
    return (
        BlockCuts(InBlocks, ends, frozenset(heavy), {}, say, results_folder()),
        BlockCuts(InBlocks, theirs, noted, None, say, results_folder()),
    )


def _partners(
    models: tuple[ModelSource, ModelSource], names: Iterable[str], wirings: Sequence[Wiring]
) -> dict[str, str]:
    """Return which value of the original is which of the candidate, where nodes make both."""
    try:
        pairs = CutModels(*models, dict.fromkeys(names)).pairs()
    except RunError:
        return {}
    return {
        pair.original: pair.candidate
        for pair in pairs
        if pair.original in wirings[0].makers and pair.candidate in wirings[1].makers
    }


def _needs_in(wiring: Wiring, ends: Sequence[Sequence[str]], values: int) -> Iterator[Need]:
    """Yield what each block needs."""
    stored = stored_rows(wiring)
    rows: dict[int, list[int]] = {}
    for row, place in places_of(wiring, ends).items():
        if row not in stored:
            rows.setdefault(place, []).append(row)
    for own in rows.values():
        yield need_of(wiring, with_stored(wiring, stored, own), values)


def _ends(wiring: Wiring, limit: int, partners: Mapping[str, str]) -> list[list[str]]:
    """Return the values at which a model is cut, so that no block needs more than *limit*.

    Of the places where that can be, those are taken at which few values are alive, and such as
    both models have. A node that needs more by itself is a block by itself.
    """
    stored = stored_rows(wiring)
    last = {name: row for row, names in enumerate(wiring.reads) for name in names}
    alive: Counter[int] = Counter()
    spans: list[tuple[int, int, str]] = []
    for row, node in enumerate(wiring.nodes):
        for name in node.output if row not in stored else ():
            if last.get(name, -1) > row:
                spans.append((row, last[name], name))
                weight = 1 if name in partners else 3
                alive[row] += weight
                alive[last[name]] -= weight
    scores = [*accumulate(alive[row] for row in range(len(wiring.nodes)))]
    costs = [
        {}
        if row in stored
        else {
            name: size + copies
            for each in with_stored(wiring, stored, [row])
            for name, size, copies in _costs(wiring, each)
        }
        for row in range(len(wiring.nodes))
    ]
    ends: list[list[str]] = []
    begin = 0
    while begin < len(costs):
        held: set[str] = set()
        totals = [0]
        for own in costs[begin:]:
            more = sum(cost for name, cost in own.items() if name not in held)
            if totals[-1] and more and totals[-1] + more > limit:
                break
            held |= own.keys()
            totals.append(totals[-1] + more)
        else:
            break
        del totals[0]
        rows = [n for n, total in enumerate(totals) if 2 * total >= totals[-1]]
        best = begin + min(rows, key=lambda n: (scores[begin + n], -n))
        ends.append([name for made, read, name in spans if made <= best < read])
        begin = best + 1
    return ends
