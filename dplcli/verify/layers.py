"""Two models compared inside: every value that both compute, and the first that differs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx

from dplcli.analysis.pairing import corresponding_values
from dplcli.keys import keys
from dplcli.onnx_io import model_from_proto
from dplcli.verify.compare import facts_of, value_depths
from dplcli.verify.inputs import open_reference
from dplcli.verify.model import (
    Dataflow,
    model_of,
    read_model,
)
from dplcli.verify.run import Runner
from dplcli.verify.settings import REFERENCE_LEVEL, Leaf, RunError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.analysis.extract import Wiring
    from dplcli.ir import Model
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


# Which values of two models ought to be the same: told by structure, before anything runs.
#
# A pair is no claim. It says where both models can be cut, and what lies between two cuts is judged
# by itself (`dplcli.verify.places`). So a wrong pair makes a place larger, and never hides one.


@dataclass(frozen=True)
class Pair:
    """Two values that ought to be the same.

    Attributes:
        original: The value of the original.
        candidate: The value of the candidate.
        how: ``structure``: alike nodes make them of the same; ``readers``: what reads them takes
            one for the other; ``output``: both models return them under one name.
    """

    original: str
    candidate: str
    how: Literal["structure", "readers", "output"]


def align(
    wirings: tuple[Wiring, Wiring], sources: tuple[ModelSource, ModelSource]
) -> tuple[dict[str, Pair], list[Model]]:
    """Pair the values that the nodes of two main graphs make.

    Returns:
        The pairs by the original's name, each value in one at most; and both models as they were
        compared. Weights that lie nowhere but in memory are inputs of these.
    """
    models = []
    for wiring, source in zip(wirings, sources, strict=True):
        proto = wiring.model
        if held := source.weights:
            proto = onnx.ModelProto()
            proto.CopyFrom(wiring.model)
            tensors = [*proto.graph.initializer]
            del proto.graph.initializer[:]
            proto.graph.initializer.extend(tensor for tensor in tensors if tensor.name not in held)
            proto.graph.input.extend(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                for tensor in tensors
                if tensor.name in held
            )
        models.append(model_from_proto(proto, source.path.parent, source.path.name))
    pairs: dict[str, Pair] = {}
    taken: set[str] = set()
    for names in corresponding_values(models[0], models[1]):
        both = [*zip(wirings, names, strict=False)]
        is_made = all(name in wiring.makers for wiring, name in both)
        is_used = any(name in w.outputs or w.readers.get(name) for w, name in both)
        if is_made and is_used and names[0] not in pairs and names[1] not in taken:
            pairs[names[0]] = Pair(*names)
            taken.add(names[1])
    return pairs, models


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
    return _opened_for(source, model_of(source), names).run(feeds)


def _opened_for(source: ModelSource, model: onnx.ModelProto, names: Iterable[str]) -> Runner:
    """Open *model*, a copy of *source*, with outputs of these names instead of its own."""
    declared = {info.name: info for info in model.graph.output}
    wanted = [declared.get(name, onnx.ValueInfoProto(name=name)) for name in names]
    del model.graph.output[:]
    model.graph.output.extend(wanted)
    return Runner(replace(source, content=model.SerializeToString()), REFERENCE_LEVEL)


def value_of(leaves: Sequence[Leaf]) -> Array | list[Array] | None:
    """Return what was captured in a form that can be fed; None if there is none."""
    arrays = [_array_of(leaf) for leaf in leaves]
    readable = [array for array in arrays if array is not None]
    if len(readable) < len(arrays) or not arrays or any(leaf.label[:1] == "." for leaf in leaves):
        return None
    if leaves[0].label:
        return readable
    return readable[0]


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
_PREFIX = "dpl/elements of/"
_INT64 = onnx.TensorProto.INT64


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
        by_name: dict[str, int] = {}
        pending = [list(names)]
        while pending:
            part = pending.pop()
            if not part:
                continue
            try:
                by_name |= self._measure(part)
            except RunError:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]] if middle else []
        return {name: by_name[name] for name in names if name in by_name}

    def _measure(self, names: Sequence[str]) -> dict[str, int]:
        """Let the model itself count elements, so that nothing large is copied."""
        model = model_of(self.source)
        counts = [f"{_PREFIX}{name}" for name in names]
        for name, count in zip(names, counts, strict=True):
            model.graph.node.add(op_type="Size", input=[name], output=[count], name=count)
            model.graph.output.append(onnx.helper.make_tensor_value_info(count, _INT64, []))
        values = _opened_for(self.source, model, counts).run(self.feeds)
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
        outputs = capture(self.source, names, self.feeds)
        held = sum(leaf.data.nbytes for leaves in outputs.values() for leaf in leaves)
        self.peak = max(self.peak, held)
        return outputs

    def runs(
        self, names: Sequence[str], feeds: Mapping[int, Mapping[str, Feed]]
    ) -> Iterator[tuple[int, Outputs]]:
        """Yield the values of *names* for each of several cases.

        Raises:
            RunError: The model does not run when it is asked for them.
        """
        if not names:
            yield from ((case, {}) for case in feeds)
            return
        runner = _opened_for(self.source, model_of(self.source), names)
        yield from zip(feeds, runner.run_each([*feeds.values()]), strict=True)


def is_alike(node: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    """Tell whether two nodes have the same operator, and read as many values."""
    kind = node.op_type, node.domain, len(node.input)
    return kind == (other.op_type, other.domain, len(other.input))


# How two models compare inside.


@keys("original candidate op_type aligned_by=how *=comparison -name -level -baseline -seed")
@dataclass(frozen=True)
class Layer:
    """A value of the original, beside the value of the candidate that ought to be the same.

    Attributes:
        original: Its name in the original.
        candidate: Its name in the candidate.
        op_type: The operator that makes it in the original.
        how: What aligned the two: ``structure``, ``readers`` or ``output``.
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


@keys("seed alone first=first.original layers", "dpl.layers/1")
@dataclass(frozen=True)
class Layers:
    """Two models compared inside.

    Attributes:
        layers: The values aligned, in the original's order.
        alone: How many values of the original and of the candidate have no counterpart.
        seed: Number of the case.
        peak: The most bytes of values that were held at once, of one model.
        doubtful: Pairs that readers suggest and that differ, though all that is computed from
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

    def compare(self) -> Layers:
        """Compare every value that both models compute.

        Raises:
            RunError: A model does not run.
        """
        ours, theirs = self.streams
        aligned, _ = align(self.wirings, (ours.source, theirs.source))
        makers = self.wirings[0].makers
        pairs = [aligned[name] for name in makers if name in aligned]
        comparisons = dict(self._compared(pairs))
        layers = tuple(
            Layer(
                pair.original,
                pair.candidate,
                self.wirings[0].nodes[makers[pair.original]].op_type,
                pair.how,
                comparisons[pair.original],
            )
            for pair in pairs
            if pair.original in comparisons
        )
        kept = self._meant(layers)
        meant = set(map(id, kept))
        doubtful = tuple(layer for layer in layers if id(layer) not in meant)
        dropped = len(doubtful)
        mine, other = (len(w.makers) - len(aligned) + dropped for w in self.wirings)
        peak = max(stream.peak for stream in self.streams)
        return Layers(kept, (mine, other), self.judge.case, peak, doubtful)

    def _meant(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Leave out pairs that were never meant to be the same.

        Their readers aligned them, or they rest on such a pair; they differ, and all that is
        computed from them agrees again. So they are different steps on the way to one result.
        """
        wiring = self.wirings[0]
        agreed = {layer.original for layer in layers if layer.ok}
        guessed: set[str] = set()
        ends = []
        for layer in layers:
            reads = wiring.reads[wiring.makers[layer.original]]
            if not layer.ok and (layer.how == "readers" or not guessed.isdisjoint(reads)):
                guessed.add(layer.original)
            if not layer.ok and (layer.original not in guessed or layer.original in wiring.outputs):
                ends.append(layer.original)
        felt = wiring.between(agreed, ends)
        return tuple(
            layer
            for layer in layers
            if layer.original not in guessed or wiring.makers[layer.original] in felt
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
            mine, theirs_given = ours.values(chunk), theirs.values([partners[n] for n in chunk])
            for name in chunk:
                yield name, self.judge.compare(name, mine[name], theirs_given[partners[name]])
