"""Two models compared inside: every value that both compute, and the first that differs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
import onnx
from google.protobuf.message import EncodeError

from dplcli.analysis.extract import Wiring, cut, label_of, subgraphs
from dplcli.analysis.pairing import corresponding_values
from dplcli.errors import UsageError
from dplcli.keys import keys
from dplcli.onnx_io import model_from_proto
from dplcli.onnx_io.infer import ONNX_ERRORS
from dplcli.onnx_io.interface import rename_in
from dplcli.verify.check import REFERENCE_LEVEL, Check, Whole
from dplcli.verify.compare import Judge, facts_of, value_depths
from dplcli.verify.inputs import candidate_source, open_reference
from dplcli.verify.model import Dataflow, model_of, read_model, whole_of
from dplcli.verify.run import Runner
from dplcli.verify.values import Leaf, ModelSource, RunError
from dplcli.verify.verdict import Junction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Model
    from dplcli.verify.inputs import Reference
    from dplcli.verify.values import Array, Feed, Outputs
    from dplcli.verify.verdict import OutputComparison

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


def models_of(
    wirings: tuple[Wiring, Wiring], sources: tuple[ModelSource, ModelSource]
) -> list[Model]:
    """Return two models as graphs of dpl's own."""
    return [
        model_from_proto(wiring.model, source.path.parent, source.path.name)
        for wiring, source in zip(wirings, sources, strict=True)
    ]


def align(wirings: tuple[Wiring, Wiring], models: Sequence[Model]) -> dict[str, Pair]:
    """Pair the values that the nodes of two main graphs make.

    Returns:
        The pairs by the original's name, each value in one at most.
    """
    pairs: dict[str, Pair] = {}
    taken: set[str] = set()
    for names in corresponding_values(models[0], models[1]):
        both = [*zip(wirings, names, strict=False)]
        is_made = all(name in wiring.makers for wiring, name in both)
        is_used = any(name in w.outputs or w.readers.get(name) for w, name in both)
        if is_made and is_used and names[0] not in pairs and names[1] not in taken:
            pairs[names[0]] = Pair(*names)
            taken.add(names[1])
    return pairs


def returned(ours: Wiring, theirs: Wiring) -> dict[str, Pair]:
    """Pair what nodes of two main graphs make that both return under one name."""
    names = (name for name in ours.makers if name in theirs.makers)
    both = ours.outputs & theirs.outputs
    return {name: Pair(name, name, "output") for name in names if name in both}


# What flows through a model: inputs that it accepts, and the values inside it.


def feed(path: Path, check: Check) -> Reference:
    """Find inputs that the model at *path* runs on, as the verification does.

    Args:
        path: The model.
        check: Seeds and sizes.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
    """
    flow = Dataflow(read_model(path))
    facts = replace(facts_of(flow), depths=value_depths(flow))
    return open_reference(path, flow, facts, check)


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


def alone(source: ModelSource, model: onnx.ModelProto, name: str) -> ModelSource:
    """Return a part of a model as it runs by itself."""
    return replace(source, content=model.SerializeToString(), name=name, blocks=None)


def value_of(leaves: Sequence[Leaf]) -> Array | list[Array] | None:
    """Return what was captured in a form that can be fed; None if there is none."""
    bfloat16 = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
    arrays = []
    for leaf in leaves:
        is_narrow = leaf.dtype == "bfloat16"
        is_raw = not is_narrow and leaf.dtype not in {leaf.data.dtype.name, "string"}
        if is_raw or leaf.label[:1] == ".":
            return None
        arrays.append(leaf.data.astype(bfloat16) if is_narrow else leaf.data)
    if not arrays:
        return None
    return arrays if leaves[0].label else arrays[0]


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


WIDEST = 8
"""How many bytes an element takes at most."""

_PREFIX = "dpl/elements of/"
_INT64 = onnx.TensorProto.INT64


@dataclass
class ValueStream:
    """The values inside a model that runs on given inputs, with optimisation off.

    Attributes:
        source: The model.
        feeds: What it is fed.
        cap: How many bytes of values to hold at once; one value may need more.
    """

    source: ModelSource
    feeds: Mapping[str, Feed]
    cap: int

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Return how many bytes each tensor takes at most; other values are left out."""
        by_name: dict[str, int] = {}
        pending = [list(names)]
        while pending:
            part = pending.pop()
            if not part:
                continue
            try:
                # Let the model itself count elements, so that nothing large is copied.
                model = model_of(self.source)
                counts = [f"{_PREFIX}{name}" for name in part]
                for name, count in zip(part, counts, strict=True):
                    model.graph.node.add(op_type="Size", input=[name], output=[count], name=count)
                    model.graph.output.append(onnx.helper.make_tensor_value_info(count, _INT64, []))
                values = _opened_for(self.source, model, counts).run(self.feeds)
                by_name |= {name: int(values[_PREFIX + name][0].data) * WIDEST for name in part}
            except RunError:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]] if middle else []
        return {name: by_name[name] for name in names if name in by_name}

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
        return capture(self.source, names, self.feeds)

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


def chunks_of_both(
    ours: ValueStream, theirs: ValueStream, partners: Mapping[str, str]
) -> Iterator[list[str]]:
    """Yield names of the first model, in groups that both can hold; what is no tensor is left out.

    Args:
        ours: The values of the first model.
        theirs: Those of the second.
        partners: Values of the second, by those of the first.
    """
    own = ours.sizes([*partners])
    other = theirs.sizes([partners[name] for name in own])
    both = (name for name in own if partners[name] in other)
    yield from ours.chunks({name: max(own[name], other[partners[name]]) for name in both})


# How two models compare inside.


@keys(
    "original candidate op_type aligned_by=how *=comparison -name -level -baseline -seed",
    columns="value=original candidate=renamed made_by=op_type aligned_by=how "
    "max_abs=comparison.max_abs:figure max_rel=comparison.max_rel:figure "
    "atol=comparison.atol:figure used=comparison.share:percent verdict=comparison.fate:fate",
)
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

    @property
    def renamed(self) -> str:
        """The name in the candidate, if it is another."""
        return "" if self.candidate == self.original else self.candidate


@keys("seed alone first=first.original layers", "dpl.layers/1")
@dataclass(frozen=True)
class Layers:
    """Two models compared inside.

    Attributes:
        layers: The values aligned, in the original's order.
        alone: How many values of the original and of the candidate have no counterpart.
        seed: Number of the case.
        doubtful: Pairs that readers suggest and that differ, though all that is computed from
            them agrees. Most likely they are different steps on the way to one result.
    """

    layers: tuple[Layer, ...]
    alone: tuple[int, int]
    seed: int
    doubtful: tuple[Layer, ...] = ()

    @property
    def first(self) -> Layer | None:
        """The first value that differs, in the original's order; None if all agree."""
        return next((layer for layer in self.layers if not layer.ok), None)

    def counts(self) -> Counter[str]:
        """Count the values aligned by what aligned them."""
        return Counter(layer.how for layer in self.layers)


def _never_meant(wiring: Wiring, layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Return pairs that were never meant to be the same.

    Their readers aligned them, or they rest on such a pair; they differ, and all that is computed
    from them agrees again. So they are different steps on the way to one result.
    """
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
    guesses = (layer for layer in layers if layer.original in guessed)
    return tuple(layer for layer in guesses if wiring.makers[layer.original] not in felt)


# Find and cut out the place where two models part; find the fewest changes that part them.


# Delta debugging: the smallest part of a list that still breaks something.
#
# This is ``ddmin`` of Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input"
# (2002). Each half is tried alone, then left out; then each quarter, and so on, until to leave out
# any single item mends it. One culprit in *n* is found in about ``2 log2 n`` trials.


T = TypeVar("T")


def minimise(
    items: Sequence[T], try_out: Callable[[Sequence[T]], Sequence[T] | None]
) -> tuple[T, ...]:
    """Return a part of *items*, in order, of which no single item can be left out.

    Args:
        items: All of them together break something.
        try_out: Tries a part. It returns None if nothing is broken, else the items that took
            effect: an item may need another one that was left out.
    """
    current, parts = tuple(items), 2
    tried: set[tuple[int, ...]] = {tuple(map(id, current))}
    while len(current) > 1:
        parts = min(parts, len(current))
        for part, is_rest in _splits(current, parts):
            key = tuple(map(id, part))
            if key in tried:
                continue
            tried.add(key)
            broken = try_out(part)
            if broken is not None:
                current = tuple(broken)
                parts = max(parts - 1, 2) if is_rest else 2
                break
        else:
            if parts == len(current):
                break
            parts *= 2
    return current


def _splits(items: tuple[T, ...], parts: int) -> Iterator[tuple[tuple[T, ...], bool]]:
    """Yield each of so many parts, then the rest without each; tell whether it is a rest."""
    bounds = [len(items) * index // parts for index in range(parts + 1)]
    spans = list(pairwise(bounds))
    for start, end in spans:
        yield items[start:end], False
    if parts > 2:  # noqa: PLR2004  # of two parts, each is the rest without the other
        for start, end in spans:
            yield items[:start] + items[end:], True


# Parts of two models as files, with what flows into them, to show how they differ.


ORIGINAL = "original.onnx"
CANDIDATE = "candidate.onnx"
DATA = "test_data_set_0"


class Cutting(NamedTuple):
    """A part of a model that was written.

    Attributes:
        inputs: How many values flow into it.
        outputs: Names of what flows out of it.
        nodes: How many nodes it has.
    """

    inputs: int
    outputs: tuple[str, ...]
    nodes: int


class Specimen:
    """A model from which parts can be cut out together with what flows into them.

    Args:
        reference: The model, and what it is fed.
        seed: Number of the case to use.
    """

    def __init__(self, reference: Reference, seed: int) -> None:
        """Read the model, its weights too.

        Raises:
            UsageError: The weights cannot be read.
        """
        self.source = reference.source
        self.feeds = reference.feeds[seed]
        self.wiring = Wiring(whole_model(self.source.path))
        self.known: dict[str, Array | list[Array] | None] = dict(self.feeds)

    def growing(self, names: Collection[str], rounds: int) -> Iterator[set[int]]:
        """Yield the nodes that make *names*, then more and more around them, in the end all."""
        nodes = self.wiring.with_constants(self.wiring.holders(names))
        everything = set(range(len(self.wiring.nodes)))
        for _ in range(rounds):
            if not nodes or nodes == everything:
                break
            yield nodes
            nodes = self.wiring.with_constants(self.wiring.neighbours(nodes))
        yield everything

    def values(self, names: Iterable[str]) -> dict[str, Array | list[Array]] | None:
        """Return what *names* hold; None if the model does not give one, or it cannot be fed."""
        wanted = list(names)
        if unknown := [name for name in wanted if name not in self.known]:
            try:
                outputs = capture(self.source, unknown, self.feeds)
            except RunError:
                return None
            self.known |= {name: value_of(leaves) for name, leaves in outputs.items()}
        values = {name: self.known[name] for name in wanted}
        fed = {name: value for name, value in values.items() if value is not None}
        return fed if len(fed) == len(values) else None

    def write(self, folder: Path, name: str, nodes: set[int]) -> Cutting | None:
        """Write a model of *nodes* and what flows into it; None if it cannot be cut out there."""
        starts, ends = self.wiring.entering(nodes), self.wiring.leaving(nodes)
        if (values := self.values([*starts, *ends])) is None:
            return None
        types = {key: type_of(value) for key, value in values.items()}
        model = cut(self.wiring, nodes, types, ends)
        if not _saved(model, folder / name):
            return None
        _write_data(folder, starts, ends, values)
        return Cutting(len(starts), tuple(ends), len(nodes))


def _write_data(
    folder: Path,
    starts: Sequence[str],
    ends: Sequence[str],
    values: Mapping[str, Array | list[Array]],
) -> None:
    """Write what is fed and what the original gives, in the form of onnx test data."""
    (folder / DATA).mkdir(exist_ok=True)
    for kind, names in (("input", starts), ("output", ends)):
        for number, name in enumerate(names):
            value = values[name]
            packed = (
                onnx.numpy_helper.from_list(value, name)
                if isinstance(value, list)
                else onnx.numpy_helper.from_array(value, name)
            )
            content: bytes = packed.SerializeToString()
            (folder / DATA / f"{kind}_{number}.pb").write_bytes(content)


def _saved(model: onnx.ModelProto, path: Path) -> bool:
    """Write a model unless it is too large for one file (2 GB); tell whether it was written."""
    try:
        content = model.SerializeToString()
    except (ValueError, EncodeError):
        return False
    path.write_bytes(content)
    return True


def whole_model(path: Path) -> onnx.ModelProto:
    """Read a model with its weights.

    Raises:
        UsageError: The weights cannot be read.
    """
    try:
        return whole_of(ModelSource(path))
    except (OSError, *ONNX_ERRORS) as error:
        raise UsageError(f"{path}: its weights cannot be read: {error}") from error


# The place where two models part, cut out of both.


class CutPair(NamedTuple):
    """Two parts that were written with what flows into them.

    Attributes:
        inputs: How many values flow into them.
        original: The nodes of the original's part, in words.
        candidate: The nodes of the candidate's part.
    """

    inputs: int
    original: tuple[str, ...]
    candidate: tuple[str, ...]


class DivergenceSearch:
    """Two models, the inputs that both run on, and the way to compare them inside.

    Args:
        original: The model that is right by definition.
        candidate: The model in question.
        check: How they are compared.
        seed: Number of the case to use; None for the first seed.
    """

    def __init__(
        self, original: Path, candidate: Path, check: Check, seed: int | None = None
    ) -> None:
        """Find inputs, and read both models.

        Raises:
            VerificationError: The original does not run, or there are no inputs for it.
            UsageError: A model's weights cannot be read.
        """
        self.seed = check.first_seeds[0] if seed is None else seed
        self.fed = feed(original, check)
        self.candidate = candidate_source(candidate, check)
        self.specimen = Specimen(self.fed, self.seed)
        self.wirings = self.specimen.wiring, Wiring(whole_model(candidate))
        self.judge = Judge(check, self.fed.facts, self.seed)

    @property
    def whole(self) -> Whole:
        """What the two models are to parts of them."""
        return Whole(self.fed.facts.coarsest, self.fed.facts.rounds)

    def layers(self, cap: int) -> Layers:
        """Compare what is inside.

        Args:
            cap: How many bytes of values to hold at once, of each model.

        Raises:
            RunError: A model does not run with optimisation off.
        """
        sources, wiring = (self.fed.source, self.candidate), self.wirings[0]
        ours, theirs = (ValueStream(each, self.specimen.feeds, cap) for each in sources)
        aligned = align(self.wirings, models_of(self.wirings, sources))
        pairs = [aligned[name] for name in wiring.makers if name in aligned]
        partners = {pair.original: pair.candidate for pair in pairs}
        comparisons = {}
        for chunk in chunks_of_both(ours, theirs, partners):  # a few at a time
            mine, others = ours.values(chunk), theirs.values([partners[name] for name in chunk])
            for name in chunk:
                comparisons[name] = self.judge.compare(name, mine[name], others[partners[name]])
        layers = tuple(
            Layer(
                pair.original,
                pair.candidate,
                wiring.nodes[wiring.makers[pair.original]].op_type,
                pair.how,
                comparisons[pair.original],
            )
            for pair in pairs
            if pair.original in comparisons
        )
        doubtful = _never_meant(wiring, layers)
        names = {layer.original for layer in doubtful}
        kept = tuple(layer for layer in layers if layer.original not in names)
        own, other = (len(w.makers) - len(aligned) + len(names) for w in self.wirings)
        return Layers(kept, (own, other), self.seed, doubtful)

    def junction(self, layers: Layers, at: Layer) -> Junction:
        """Return the place at a layer that differs, fed with values that agree."""
        agreed = {each.original: each.candidate for each in layers.layers if each.ok}
        return Junction(at.original, at.candidate, at.how, agreed)

    def write(self, at: Junction, folder: Path) -> CutPair | None:
        """Write the nodes of both models that compute *at*, and what flows into them.

        Inputs and output of the candidate's part get the original's names, so that the two files
        can be compared like any two models.

        Returns:
            What was written; None if it cannot be cut out.
        """
        agreed = {**{name: name for name in self.specimen.feeds}, **at.agreed}
        agreed.pop(at.original, None)
        back = {partner: name for name, partner in agreed.items()}
        ours = self.wirings[0].between(agreed.keys(), [at.original])
        theirs = self.wirings[1].between(back.keys(), [at.candidate])
        starts = self.wirings[0].entering(ours), self.wirings[1].entering(theirs)
        is_closed = all(n in agreed for n in starts[0]) and all(n in back for n in starts[1])
        if not ours or not theirs or not is_closed:
            return None
        wanted = list(dict.fromkeys([*starts[0], *(back[name] for name in starts[1])]))
        values = self.specimen.values([*wanted, at.original])
        if values is None:
            return None
        types = {name: type_of(value) for name, value in values.items()}
        partners = {agreed[name]: name for name in wanted} | {at.candidate: at.original}
        mine = cut(self.wirings[0], ours, types, [at.original])
        candidate_types = {name: types[partner] for name, partner in partners.items()}
        other = renamed(cut(self.wirings[1], theirs, candidate_types, [at.candidate]), partners)
        for model in (mine, other):
            del model.graph.input[:]
            for name in wanted:  # also what one part does not read: both are fed the same
                model.graph.input.add(name=name, type=types[name])
        if not _saved(mine, folder / ORIGINAL) or not _saved(other, folder / CANDIDATE):
            return None
        _write_data(folder, wanted, [at.original], values)
        return CutPair(
            len(wanted), _labels(self.wirings[0], ours), _labels(self.wirings[1], theirs)
        )


def renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
    """Return *model* with values of other names; what has one of the new names already gives way.

    To swap names everywhere, in bodies too, changes nothing else.
    """
    graphs = [model.graph]
    for graph in graphs:
        graphs += [body for node in graph.node for body in subgraphs(node)]
    used = {name for graph in graphs for node in graph.node for name in (*node.input, *node.output)}
    used |= {item.name for graph in graphs for item in graph.initializer}
    new = dict(names)
    for number, name in enumerate(sorted(set(names.values()) - names.keys())):
        if name in used:
            new[name] = next(f"{name}_{n}" for n in count(number) if f"{name}_{n}" not in used)
            used.add(new[name])
    for graph in graphs:
        rename_in(graph, new)
    return model


def _labels(wiring: Wiring, nodes: set[int]) -> tuple[str, ...]:
    """Name nodes by what they make."""
    return tuple(label_of(wiring.nodes[index]) for index in sorted(nodes))
