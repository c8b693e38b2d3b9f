"""Two models compared inside: every value that both compute, and the first that differs."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from dplcli.verify.compare import FLOATS, facts_of, value_depths
from dplcli.verify.inputs import open_reference
from dplcli.verify.model import (
    Dataflow,
    logged_values,
    model_of,
    read_model,
)
from dplcli.verify.numbering import Numbering, same_numbers
from dplcli.verify.run import Runner
from dplcli.verify.settings import REFERENCE_LEVEL, Leaf, RunError

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.onnx_io.cutting import Wiring
    from dplcli.verify.compare import Judge
    from dplcli.verify.inputs import Reference
    from dplcli.verify.settings import (
        Array,
        Feed,
        ModelSource,
        OutputComparison,
        Outputs,
        Settings,
    )


# What flows through a model: inputs that it accepts, and the values inside it.


def feed(path: Path, settings: Settings, made: Collection[str] | None = None) -> Reference:
    """Find inputs that the model at *path* runs on, as the verification does.

    Args:
        path: The model.
        settings: Seeds, sizes, and whether to refill weights.
        made: If given, no other weights are refilled.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
    """
    flow = Dataflow(read_model(path))
    facts = replace(facts_of(flow), depths=value_depths(flow))
    return open_reference(
        path,
        flow,
        facts,
        settings,
        made=made,
        create=lambda source: Runner(source, REFERENCE_LEVEL),
    )


def capture(source: ModelSource, names: Iterable[str], feeds: Mapping[str, Feed]) -> Outputs:
    """Run a model with optimisation off, and return values of its main graph by name.

    Raises:
        RunError: onnxruntime does not run it.
    """
    model = model_of(source)
    declared = {info.name: info for info in model.graph.output}
    return _run_for(
        source, model, [declared.get(name, onnx.ValueInfoProto(name=name)) for name in names], feeds
    )


def _run_for(
    source: ModelSource,
    model: onnx.ModelProto,
    wanted: Iterable[onnx.ValueInfoProto],
    feeds: Mapping[str, Feed],
) -> Outputs:
    """Run *model*, a copy of *source*, with the outputs *wanted* instead of its own."""
    del model.graph.output[:]
    model.graph.output.extend(wanted)
    return Runner(replace(source, content=model.SerializeToString()), REFERENCE_LEVEL).run(feeds)


def value_of(leaves: Sequence[Leaf]) -> Array | list[Array] | None:
    """Return what was captured in a form that can be fed; None if there is none."""
    arrays = [_array_of(leaf) for leaf in leaves]
    known = [array for array in arrays if array is not None]
    if len(known) < len(arrays) or not arrays or any(leaf.label[:1] == "." for leaf in leaves):
        return None
    if leaves[0].label:
        return known
    return known[0]


def _array_of(leaf: Leaf) -> Array | None:
    if leaf.dtype == "bfloat16":
        dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
        return leaf.data.astype(dtype)
    is_raw = leaf.dtype not in {leaf.data.dtype.name, "string"}
    return None if is_raw else leaf.data


def type_of(value: Array | list[Array], *, is_sized: bool = True) -> onnx.TypeProto:
    """Return the type of a value, with its sizes or their number."""
    if isinstance(value, list):
        inner = onnx.helper.make_tensor_type_proto(_element_type(value[0]), None)
        return onnx.helper.make_sequence_type_proto(inner)
    shape = value.shape if is_sized else [None] * value.ndim
    return onnx.helper.make_tensor_type_proto(_element_type(value), shape)


def _element_type(array: Array) -> int:
    if array.dtype.kind in "OUS":
        return onnx.TensorProto.STRING
    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(array.dtype))


# Values inside a model, a few at a time: all of them may not fit into memory.


_WIDEST = 8
_SAMPLE = 512
_PREFIX = "dpl/elements of/"


@dataclass(frozen=True)
class Sketch:
    """What is kept of a value to tell it from others.

    Attributes:
        dtype: Its element type.
        shape: Its dimensions.
        sample: Up to 512 elements, at places that depend on the shape alone.
    """

    dtype: str
    shape: tuple[int, ...]
    sample: Leaf


def sketch(leaf: Leaf) -> Sketch:
    """Remember a value by a sample of its elements."""
    flat = leaf.data.reshape(-1)
    if flat.size > _SAMPLE:
        places = np.random.default_rng(flat.size).choice(flat.size, _SAMPLE, replace=False)
        flat = flat[np.sort(places)]
    return Sketch(leaf.dtype, leaf.data.shape, Leaf("", leaf.dtype, flat.copy()))


@dataclass
class ValueStream:
    """The values inside a model that runs on given inputs, with optimisation off.

    Attributes:
        source: The model.
        feeds: What it is fed.
        cap: How many bytes of values to hold at once; one value may need more.
        peak: The most bytes of values that were held at once.
    """

    source: ModelSource
    feeds: Mapping[str, Feed]
    cap: int
    peak: int = 0

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Return how many bytes each tensor takes at most; other values are left out."""
        found: dict[str, int] = {}
        pending = [list(names)]
        while pending:
            part = pending.pop()
            if not part:
                continue
            try:
                found |= self._measure(part)
            except RunError:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]] if middle else []
        return {name: found[name] for name in names if name in found}

    def _measure(self, names: Sequence[str]) -> dict[str, int]:
        """Let the model itself count elements, so that nothing large is copied."""
        model = model_of(self.source)
        wanted = []
        for name in names:
            count = f"{_PREFIX}{name}"
            model.graph.node.add(op_type="Size", input=[name], output=[count], name=count)
            wanted.append(onnx.helper.make_tensor_value_info(count, onnx.TensorProto.INT64, []))
        values = _run_for(self.source, model, wanted, self.feeds)
        return {name: int(values[_PREFIX + name][0].data) * _WIDEST for name in names}

    def chunks(self, sizes: Mapping[str, int]) -> Iterator[list[str]]:
        """Yield names in order, in groups whose values fit under the cap together."""
        chunk: list[str] = []
        used = 0
        for name, size in sizes.items():
            if chunk and used + size > self.cap:
                yield chunk
                chunk, used = [], 0
            chunk.append(name)
            used += size
        if chunk:
            yield chunk

    def values(self, names: Sequence[str]) -> Outputs:
        """Return the values of *names* all at once.

        Raises:
            RunError: The model does not run when it is asked for them.
        """
        found = capture(self.source, names, self.feeds)
        held = sum(leaf.data.nbytes for leaves in found.values() for leaf in leaves)
        self.peak = max(self.peak, held)
        return found

    def sketches(self, names: Sequence[str]) -> dict[str, Sketch]:
        """Return a sketch of every tensor among *names*."""
        found = {}
        for chunk in self.chunks(self.sizes(names)):
            for name, leaves in self.values(chunk).items():
                if len(leaves) == 1 and not leaves[0].label:
                    found[name] = sketch(leaves[0])
        return found


# Which values of two models ought to be the same. Names do not count. Values are aligned in this
# order:
#
# 1. Graph outputs, and values with equal numbers (`dplcli.verify.numbering`): alike nodes compute
#    them.
# 2. Values that the candidate took over, as the log of a rewrite or a partition says. The log is in
#    the candidate's metadata, and the original has to have the nodes that it names.
# 3. Values that hold the same numbers, if there are enough different numbers to mean something.
# 4. Nodes of one operator that read aligned values, or whose results are aligned. Whether their
#    values agree plays no part here: this is where a fault shows.


_TELLING = 8
_MOST_WALKED = 64

_ROUNDED = 1e-12
"""More than sums and differences of float64 are rounded by, so that none is missed."""

_TRIED = 32
"""How many elements are tried, to find the one that tells values apart best."""


@dataclass(frozen=True)
class Pair:
    """Two values that ought to be the same.

    Attributes:
        original: The value of the original.
        candidate: The value of the candidate.
        how: ``structure``, ``log``, ``numbers``, ``dataflow`` or ``output``.
    """

    original: str
    candidate: str
    how: str


class Alignment:
    """Pairs of values of two models, each value in one pair at most.

    Args:
        ours: The original.
        theirs: The candidate.
    """

    def __init__(self, ours: Wiring, theirs: Wiring) -> None:
        self.ours = ours
        self.theirs = theirs
        self.pairs: dict[str, Pair] = {}
        self.taken: dict[str, str] = {}
        self.moving = _moving(ours), _moving(theirs)
        given = {info.name for info in theirs.model.graph.input}
        for info in ours.model.graph.input:
            if info.name in given:
                self._add(info.name, info.name, "input")

    def unaligned(self) -> tuple[list[str], list[str]]:
        """Return the values of each model that nodes make and that are in no pair yet."""
        mine = [name for name in self.ours.makers if name not in self.pairs]
        return mine, [name for name in self.theirs.makers if name not in self.taken]

    def by_structure(self) -> None:
        """Align graph outputs, and values that are computed alike, from the graph inputs on."""
        numbering = Numbering()
        ours = numbering.model(self.ours.model).values
        theirs = numbering.model(self.theirs.model).values
        for name, partner in self._ends():
            if ours.get(name) == theirs.get(partner):
                self._add(name, partner, "structure")
            else:
                self._add(name, partner, "output")
        partners = same_numbers(
            {name: ours[name] for name in self.ours.makers},
            {name: theirs[name] for name in self.theirs.makers},
        )
        for name, partner in partners.items():
            self._add(name, partner, "structure")

    def _ends(self) -> Iterator[tuple[str, str]]:
        """Yield the outputs of both, which ought to be the same whatever else is."""
        ends = zip(self.ours.model.graph.output, self.theirs.model.graph.output, strict=False)
        return ((ours.name, theirs.name) for ours, theirs in ends)

    def by_log(self) -> None:
        """Align values that the candidate says it took over, if the original confirms it."""
        for node in self.theirs.nodes:
            for logged in logged_values(node):
                maker = self.ours.makers.get(logged.name)
                if maker is not None and logged.is_made_by(self.ours.nodes[maker]):
                    self._add(logged.name, logged.name, "log")

    def by_numbers(
        self, mine: Mapping[str, Sketch], other: Mapping[str, Sketch], judge: Judge
    ) -> None:
        """Align values that hold the same numbers, if there are enough different ones."""
        groups: dict[tuple[str, tuple[int, ...]], dict[str, Sketch]] = defaultdict(dict)
        for name, sketch in other.items():
            groups[sketch.dtype, sketch.shape][name] = sketch
        samples: dict[tuple[str, tuple[int, ...]], _Samples] = {}
        for name, sketch in mine.items():
            kind = sketch.dtype, sketch.shape
            if kind not in groups or not _tells(sketch):
                continue
            if kind not in samples:
                samples[kind] = _Samples(groups[kind])
            if (partner := samples[kind].take_nearest(sketch, judge)) is not None:
                self._add(name, partner, "numbers")

    def by_dataflow(self) -> None:
        """Align the rest: nodes by what they read, then by who reads them."""
        self._forwards()
        self._backwards()

    def _add(self, name: str, partner: str, how: str) -> bool:
        if name in self.pairs or partner in self.taken:
            return False
        self.pairs[name] = Pair(name, partner, how)
        self.taken[partner] = name
        return True

    def _forwards(self) -> None:
        """Align nodes that compute from aligned values, in the original's order.

        If only one node of the same operator reads the counterparts of what a node reads, the two
        are aligned. Else a result is aligned with one that comes from the same aligned values and
        goes into the same operators.
        """
        for index, node in enumerate(self.ours.nodes):
            if all(name in self.pairs for name in node.output if name):
                continue
            found = self._counterparts(node, index)
            if len(found) == 1:
                self._join(node, self.theirs.nodes[found.pop()])
                continue
            for name in filter(None, node.output):
                if (partner := self._likewise(name)) is not None:
                    self._add(name, partner, "dataflow")

    def _counterparts(self, node: onnx.NodeProto, index: int) -> set[int]:
        """Return the nodes of the same operator that read the counterparts of what *node* reads."""
        moving = [name for name in self.ours.reads[index] if name in self.moving[0]]
        if not moving or not all(name in self.pairs for name in moving):
            return set()
        partners = {self.pairs[name].candidate for name in moving}
        return {
            reader
            for reader in self.theirs.readers.get(min(partners), ())
            if partners <= set(self.theirs.reads[reader])
            and is_alike(node, self.theirs.nodes[reader])
            and not any(n in self.taken for n in self.theirs.nodes[reader].output if n)
        }

    def _likewise(self, name: str) -> str | None:
        """Return the nearest value that comes from where *name* comes from and goes where it goes.

        It is best to go into all of the same operators, and enough to go into some of them.
        """
        start = _sources(self.ours, name, self.pairs, self.moving[0])
        uses = _uses(self.ours, name)
        if not start or not uses:
            return None
        partners = {self.pairs[source].candidate for source in start}
        best, merit = None, (False, 0)
        for other in self._reached(partners):
            theirs = _uses(self.theirs, other)
            found = (theirs == uses, (theirs & uses).total())
            if found > merit and self._comes_from(other, partners):
                best, merit = other, found
        return best

    def _comes_from(self, name: str, partners: set[str]) -> bool:
        return _sources(self.theirs, name, self.taken, self.moving[1]) == partners

    def _reached(self, names: Iterable[str]) -> Iterator[str]:
        """Yield values of the candidate computed from *names* with no aligned value between."""
        pending, seen = deque(names), set[str]()
        while pending and len(seen) < _MOST_WALKED:
            for reader in self.theirs.readers.get(pending.popleft(), ()):
                for made in self.theirs.nodes[reader].output:
                    if made and made not in self.taken and made not in seen:
                        seen.add(made)
                        pending.append(made)
                        yield made

    def _backwards(self) -> None:
        """Align what two nodes of one operator read, slot by slot, if their results are aligned."""
        for node in reversed(self.ours.nodes):
            pair = self.pairs.get(node.output[0]) if node.output else None
            maker = None if pair is None else self.theirs.makers.get(pair.candidate)
            if maker is None or not is_alike(node, self.theirs.nodes[maker]):
                continue
            for name, partner in zip(node.input, self.theirs.nodes[maker].input, strict=True):
                if name in self.ours.makers and partner in self.theirs.makers:
                    self._add(name, partner, "dataflow")

    def _join(self, node: onnx.NodeProto, other: onnx.NodeProto) -> None:
        for name, partner in zip(node.output, other.output, strict=False):
            if name and partner:
                self._add(name, partner, "dataflow")


def _moving(wiring: Wiring) -> set[str]:
    """Return the values that depend on what the model is fed."""
    given = {info.name for info in wiring.model.graph.input}
    found = given - wiring.initializers.keys() - wiring.sparse.keys()
    for index, node in enumerate(wiring.nodes):
        if any(name in found for name in wiring.reads[index]):
            found.update(filter(None, node.output))
    return found


def _sources(
    wiring: Wiring, name: str, aligned: Container[str], moving: Container[str]
) -> set[str] | None:
    """Return the nearest aligned values that *name* comes from; None if they are far away."""
    found, seen = set[str](), set[int]()
    pending = [name]
    while pending:
        index = wiring.makers.get(pending.pop())
        if index is None or index in seen:
            continue
        seen.add(index)
        if len(seen) > _MOST_WALKED:
            return None
        for read in wiring.reads[index]:
            if read in moving and read in aligned:
                found.add(read)
            elif read in moving:
                pending.append(read)
    return found


def _uses(wiring: Wiring, name: str) -> Counter[tuple[str, int]]:
    """Return which operators read a value, and in which slots."""
    return Counter(
        (wiring.nodes[reader].op_type, slot)
        for reader in wiring.readers.get(name, ())
        for slot, read in enumerate(wiring.nodes[reader].input)
        if read == name
    )


def is_alike(node: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    """Tell whether two nodes have the same operator, and read as many values."""
    kind = node.op_type, node.domain, len(node.input)
    return kind == (other.op_type, other.domain, len(other.input))


def _tells(sketch: Sketch) -> bool:
    """Tell whether there are so many different numbers that to agree is no accident."""
    if sketch.dtype not in FLOATS:
        return False
    data = sketch.sample.data
    return np.unique(data[np.isfinite(data)]).size >= _TELLING


class _Samples:
    """What values of one type and shape hold, to find which agrees best with another value.

    The values are sorted by the element that tells them apart best, so that few are looked at.
    """

    def __init__(self, sketches: Mapping[str, Sketch]) -> None:
        self._names: list[str] = [*sketches]
        self._rows = np.stack([sketch.sample.data for sketch in sketches.values()])
        self._is_free = np.ones(len(self._names), dtype=bool)
        width = self._rows.shape[1]
        some = range(0, width, -(-width // _TRIED))
        self._telling = max(some, key=lambda column: np.unique(self._rows[:, column]).size)
        column = self._rows[:, self._telling].astype(np.float64)
        self._order = np.argsort(column, kind="stable")
        self._sorted = column[self._order]

    def take_nearest(self, sketch: Sketch, judge: Judge) -> str | None:
        """Return which value agrees best with one, and never again; None if none does."""
        own = judge.compare("", (sketch.sample,), (sketch.sample,))
        ours = sketch.sample.data.astype(np.float64)
        places = self._near(ours[self._telling], own.atol, own.rtol)
        theirs = self._rows[places].astype(np.float64)
        is_same = (theirs == ours) | (np.isnan(theirs) & np.isnan(ours))
        with np.errstate(invalid="ignore"):
            apart = np.where(is_same, 0.0, np.abs(theirs - ours))
            is_near = np.isfinite(apart) & (apart <= own.atol + own.rtol * np.abs(ours))
        distance = np.where((is_same | is_near).all(axis=1), apart.max(axis=1), np.inf)
        if np.isinf(distance).all():
            return None
        place = int(places[np.argmin(distance)])
        self._is_free[place] = False
        return self._names[place]

    def _near(self, element: np.float64, atol: float, rtol: float) -> Array:
        """Return the places of free values whose telling element may agree with this one."""
        if not np.isfinite(element):
            return np.flatnonzero(self._is_free)
        allowed = atol + rtol * np.abs(element)
        reach = allowed + _ROUNDED * (allowed + np.abs(element))
        first = np.searchsorted(self._sorted, element - reach, side="left")
        last = np.searchsorted(self._sorted, element + reach, side="right")
        places = np.sort(self._order[first:last])
        return places[self._is_free[places]]


# How two models compare inside.


@dataclass(frozen=True)
class Layer:
    """A value of the original, beside the value of the candidate that ought to be the same.

    Attributes:
        original: Its name in the original.
        candidate: Its name in the candidate.
        op_type: The operator that makes it in the original.
        how: What aligned the two: ``structure``, ``log``, ``numbers``, ``dataflow`` or ``output``.
        comparison: How they compare, with optimisation off.
    """

    original: str
    candidate: str
    op_type: str
    how: str
    comparison: OutputComparison

    @property
    def ok(self) -> bool:
        """Whether the two agree."""
        return self.comparison.ok


@dataclass(frozen=True)
class Layers:
    """Two models compared inside.

    Attributes:
        layers: The values aligned, in the original's order.
        alone: How many values of the original and of the candidate have no counterpart.
        seed: Number of the case.
        peak: The most bytes of values that were held at once, of one model.
        doubtful: Pairs that dataflow suggests and that differ, though all that is computed from
            them agrees. Most likely they are different steps on the way to one result.
    """

    layers: tuple[Layer, ...]
    alone: tuple[int, int]
    seed: int
    peak: int
    doubtful: tuple[Layer, ...] = ()

    @property
    def first(self) -> Layer | None:
        """The first value that differs, in the original's order; None if all agree."""
        return next((layer for layer in self.layers if not layer.ok), None)

    def counts(self) -> Counter[str]:
        """Count the values aligned by what aligned them."""
        return Counter(layer.how for layer in self.layers)

    def to_json(self) -> dict[str, object]:
        """Return the record ``dpl.layers/1``."""
        first = self.first
        return {
            "schema": "dpl.layers/1",
            "seed": self.seed,
            "alone": list(self.alone),
            "first": None if first is None else first.original,
            "layers": [
                {
                    "original": layer.original,
                    "candidate": layer.candidate,
                    "op_type": layer.op_type,
                    "aligned_by": layer.how,
                    **_figures(layer.comparison),
                }
                for layer in self.layers
            ],
        }


def _figures(comparison: OutputComparison) -> dict[str, object]:
    record = comparison.to_json()
    for key in ("name", "level", "baseline", "seed"):
        del record[key]
    return record


class Inside:
    """Two models that run on the same inputs, looked into.

    Args:
        reference: The original and its inputs.
        candidate: The candidate.
        wirings: The main graphs of both.
        judge: Compares values of the two, with optimisation off.
        cap: How many bytes of values to hold at once, of each model.
    """

    def __init__(
        self,
        reference: Reference,
        candidate: ModelSource,
        wirings: tuple[Wiring, Wiring],
        judge: Judge,
        cap: int,
    ) -> None:
        self.wirings = wirings
        self.judge = judge
        feeds = reference.feeds[judge.case]
        self.streams = ValueStream(reference.source, feeds, cap), ValueStream(candidate, feeds, cap)

    def align(self) -> Alignment:
        """Find which values ought to be the same.

        Raises:
            RunError: A model does not run.
        """
        alignment = Alignment(*self.wirings)
        alignment.by_structure()
        alignment.by_log()
        mine, other = alignment.unaligned()
        if mine and other:
            ours, theirs = self.streams
            alignment.by_numbers(ours.sketches(mine), theirs.sketches(other), self.judge)
        alignment.by_dataflow()
        return alignment

    def compare(self) -> Layers:
        """Compare every value that both models compute.

        Raises:
            RunError: A model does not run.
        """
        alignment = self.align()
        makers = self.wirings[0].makers
        pairs = [alignment.pairs[name] for name in makers if name in alignment.pairs]
        found = dict(self._compared(pairs))
        layers = tuple(
            Layer(
                pair.original,
                pair.candidate,
                self.wirings[0].nodes[makers[pair.original]].op_type,
                pair.how,
                found[pair.original],
            )
            for pair in pairs
            if pair.original in found
        )
        kept = self._meant(layers)
        meant = set(map(id, kept))
        doubtful = tuple(layer for layer in layers if id(layer) not in meant)
        dropped = len(doubtful)
        mine, other = (len(names) + dropped for names in alignment.unaligned())
        peak = max(stream.peak for stream in self.streams)
        return Layers(kept, (mine, other), self.judge.case, peak, doubtful)

    def _meant(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Leave out pairs that were never meant to be the same.

        Dataflow aligned them, they differ, and all that is computed from them agrees again. So they
        are different steps on the way to one result.
        """
        wiring = self.wirings[0]
        agreed = {layer.original for layer in layers if layer.ok}
        wrong = {layer.original for layer in layers if not layer.ok}
        ends = [name for name in wiring.outputs if name in wrong]
        ends += [layer.original for layer in layers if not layer.ok and layer.how == "structure"]
        felt = wiring.between(agreed, ends)
        return tuple(
            layer
            for layer in layers
            if layer.ok or layer.how != "dataflow" or wiring.makers[layer.original] in felt
        )

    def _compared(self, pairs: Sequence[Pair]) -> Iterator[tuple[str, OutputComparison]]:
        """Compare pairs, a few at a time; what is no tensor is left out."""
        ours, theirs = self.streams
        own = ours.sizes([pair.original for pair in pairs])
        other = theirs.sizes([pair.candidate for pair in pairs])
        partners = {pair.original: pair.candidate for pair in pairs}
        sizes = {
            name: max(size, other[partners[name]])
            for name, size in own.items()
            if partners[name] in other
        }
        for chunk in ours.chunks(sizes):
            mine, found = ours.values(chunk), theirs.values([partners[n] for n in chunk])
            for name in chunk:
                yield name, self.judge.compare(name, mine[name], found[partners[name]])
