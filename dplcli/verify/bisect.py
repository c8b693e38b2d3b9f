"""Find and cut out the place where two models part; find the fewest changes that part them."""

from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import onnx
from google.protobuf.message import EncodeError

from dplcli.analysis.extract import Wiring, cut, label_of, subgraphs
from dplcli.errors import UsageError
from dplcli.onnx_io.infer import ONNX_ERRORS
from dplcli.verify.compare import Judge
from dplcli.verify.inputs import candidate_source, names_made_by_shape
from dplcli.verify.layers import Inside, capture, feed, type_of, value_of
from dplcli.verify.model import read_model, read_whole
from dplcli.verify.settings import Junction, RunError, Settings, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.verify.inputs import Reference
    from dplcli.verify.layers import Layer, Layers
    from dplcli.verify.settings import Array


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
        weights = self.source.weights or {}
        self.made = {self.wiring.makers[name] for name in weights if name in self.wiring.makers}
        self.known: dict[str, Array | list[Array] | None] = dict(self.feeds) | dict(weights)

    def growing(self, names: Collection[str], rounds: int) -> Iterator[set[int]]:
        """Yield the nodes that make *names*, then more and more around them, in the end all.

        Nodes whose values were refilled are left out.
        """
        nodes = self.wiring.with_constants(self.wiring.holders(names)) - self.made
        everything = set(range(len(self.wiring.nodes))) - self.made
        for _ in range(rounds):
            if not nodes or nodes == everything:
                break
            yield nodes
            nodes = self.wiring.with_constants(self.wiring.neighbours(nodes)) - self.made
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
        return read_whole(path)
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
        settings: How they are compared.
        seed: Number of the case to use; None for the first seed.
    """

    def __init__(
        self, original: Path, candidate: Path, settings: Settings, seed: int | None = None
    ) -> None:
        """Find inputs, and read both models.

        Raises:
            VerificationError: The original does not run, or there are no inputs for it.
            UsageError: A model's weights cannot be read.
        """
        self.seed = settings.first_seeds[0] if seed is None else seed
        made_by_shape = names_made_by_shape(read_model(candidate).graph)
        self.settings = settings
        self.fed = feed(original, settings, made_by_shape)
        self.candidate = candidate_source(candidate, settings, self.fed.source.weights)
        self.specimen = Specimen(self.fed, self.seed)
        self.wirings = self.specimen.wiring, Wiring(whole_model(candidate))
        self.judge = Judge(settings, self.fed.facts, self.seed)

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
        return Inside(self.fed, self.candidate, self.wirings, self.judge, cap).compare()

    def junction(self, layers: Layers, at: Layer) -> Junction:
        """Return the place at a layer that differs, fed with values that agree."""
        agreed = {each.original: each.candidate for each in layers.layers if each.ok}
        return Junction(at.original, at.candidate, at.how, agreed)

    @property
    def _shared(self) -> dict[str, str]:
        """What both models get from outside, graph inputs and refilled weights; the names agree."""
        names = [*self.specimen.feeds, *(self.fed.source.weights or {})]
        return {name: name for name in names}

    def write(self, at: Junction, folder: Path) -> CutPair | None:
        """Write the nodes of both models that compute *at*, and what flows into them.

        Inputs and output of the candidate's part get the original's names, so that the two files
        can be compared like any two models.

        Returns:
            What was written; None if it cannot be cut out.
        """
        agreed = {**self._shared, **at.agreed}
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
        other = _renamed(cut(self.wirings[1], theirs, candidate_types, [at.candidate]), partners)
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


def _renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
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
        for node in graph.node:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
        sparse = (item.values for item in graph.sparse_initializer)
        for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse):
            item.name = new.get(item.name, item.name)
    return model


def _labels(wiring: Wiring, nodes: set[int]) -> tuple[str, ...]:
    """Name nodes by what they make."""
    return tuple(label_of(wiring.nodes[index]) for index in sorted(nodes))
