"""Find and cut out the place where two models part; find the fewest changes that part them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import onnx
from google.protobuf.message import EncodeError

from dplcli.errors import UsageError
from dplcli.verify.compare import REFERENCE_LEVEL, Judge, facts_of
from dplcli.verify.inputs import candidate_source, names_made_by_shape, read_pb
from dplcli.verify.layers import Inside, boundaries, capture, feed, type_of, value_of
from dplcli.verify.model import Dataflow, Wiring, cut, read_model, read_whole
from dplcli.verify.run import Runner
from dplcli.verify.settings import RunError, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.verify.inputs import Reference
    from dplcli.verify.layers import Layer, Layers
    from dplcli.verify.settings import Array, Feed, ModelSource, OutputComparison, Outputs


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
            found = try_out(part)
            if found is not None:
                current = tuple(found)
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


DATA = "test_data_set_0"


class Criteria(NamedTuple):
    """How two results are judged.

    Attributes:
        level: Optimisation level at which the candidate runs.
        coarsest: The coarsest float type that the original computes with.
        rtol: Relative tolerance; None for the derived one.
        atol: Absolute tolerance; None for the derived one.
    """

    level: str
    coarsest: str
    rtol: float | None
    atol: float | None


class Shown(NamedTuple):
    """What two models gave for the same inputs.

    Attributes:
        outputs: How each pair of outputs compares.
        reason: Why nothing can be compared: what onnxruntime says against the candidate; or "".
    """

    outputs: tuple[OutputComparison, ...] = ()
    reason: str = ""

    @property
    def differs(self) -> bool:
        """Whether the two models differ."""
        return bool(self.reason) or any(not output.ok for output in self.outputs)


def show(
    sources: tuple[ModelSource, ModelSource],
    feeds: tuple[Mapping[str, Feed], Mapping[str, Feed]],
    pairs: Sequence[tuple[str, str]],
    criteria: Criteria,
) -> Shown:
    """Run two models and compare outputs in pairs.

    As in the check, the candidate passes if it agrees with the original at its own level, or with
    optimisation off.

    Raises:
        RunError: The original does not run.
    """
    original, candidate = sources
    facts = replace(facts_of(Dataflow(read_model(original.path))), coarsest=criteria.coarsest)
    judge = Judge(Settings(rtol=criteria.rtol, atol=criteria.atol), facts, 0, criteria.level)
    try:
        theirs = Runner(candidate, criteria.level).run(feeds[1])
    except RunError as error:
        Runner(original, REFERENCE_LEVEL).run(feeds[0])
        return Shown(reason=f"onnxruntime does not run the candidate: {error}")
    found = Shown()
    for baseline in dict.fromkeys((REFERENCE_LEVEL, criteria.level)):
        ours = Runner(original, baseline).run(feeds[0])
        found = Shown(_compared(ours, theirs, pairs, replace(judge, baseline=baseline)))
        if not found.differs:
            break
    return found


def _compared(
    ours: Outputs, theirs: Outputs, pairs: Sequence[tuple[str, str]], judge: Judge
) -> tuple[OutputComparison, ...]:
    for label, values, names in (
        ("original", ours, [pair[0] for pair in pairs]),
        ("candidate", theirs, [pair[1] for pair in pairs]),
    ):
        if missing := [name for name in names if name not in values]:
            raise UsageError(f"the {label} has no output {missing[0]!r}")
    return tuple(judge.compare(a, ours[a], theirs[b]) for a, b in pairs)


def read_feed(path: Path, *, is_sequence: bool) -> Array | list[Array]:
    """Read one input.

    Raises:
        UsageError: There is no such file, or it holds no value.
    """
    value: Array | list[Array] = read_pb(path, "sequence" if is_sequence else "tensor")[1]
    return value


class WrittenInput(NamedTuple):
    """An input that was written.

    Attributes:
        file: Its path in the folder.
        name: Name of the value.
        is_sequence: Whether it is a sequence of tensors.
    """

    file: str
    name: str
    is_sequence: bool


class Cutting(NamedTuple):
    """A part of a model that was written.

    Attributes:
        inputs: What flows into it.
        outputs: Names of what flows out of it.
        nodes: How many nodes it has.
    """

    inputs: tuple[WrittenInput, ...]
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
                found = capture(self.source, unknown, self.feeds)
            except RunError:
                return None
            self.known |= {name: value_of(leaves) for name, leaves in found.items()}
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
        items = _write_data(folder, starts, ends, values)
        return Cutting(items, tuple(ends), len(nodes))


def _write_data(
    folder: Path,
    starts: Sequence[str],
    ends: Sequence[str],
    values: Mapping[str, Array | list[Array]],
) -> tuple[WrittenInput, ...]:
    """Write what is fed and what the original gives, in the form of onnx test data."""
    (folder / DATA).mkdir(exist_ok=True)
    items = []
    for kind, names in (("input", starts), ("output", ends)):
        for number, name in enumerate(names):
            value, file = values[name], f"{DATA}/{kind}_{number}.pb"
            if isinstance(value, list):
                content = onnx.numpy_helper.from_list(value, name).SerializeToString()
            else:
                content = onnx.numpy_helper.from_array(value, name).SerializeToString()
            (folder / file).write_bytes(content)
            items.append(WrittenInput(file, name, isinstance(value, list)))
    return tuple(items[: len(starts)])


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
    except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{path}: its weights cannot be read: {error}") from error


# The place where two models part, cut out of both.


@dataclass(frozen=True)
class CutPair:
    """Two parts that were written, and what flows into them.

    Attributes:
        inputs: What is fed, by the original's name.
        names: For each input its name in the original's part, and in the candidate's; None where
            a part does not read it.
        outputs: What is compared: the original's name and the candidate's.
        original: The nodes of the original's part, in words.
        candidate: The nodes of the candidate's part, in words.
    """

    inputs: tuple[WrittenInput, ...]
    names: tuple[tuple[str | None, str | None], ...]
    outputs: tuple[tuple[str, str], ...]
    original: tuple[str, ...]
    candidate: tuple[str, ...]

    def fed(self) -> Iterator[tuple[WrittenInput, str | None, str | None]]:
        """Yield each input with its names."""
        for item, (ours, theirs) in zip(self.inputs, self.names, strict=True):
            yield item, ours, theirs


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
        made = names_made_by_shape(read_model(candidate).graph)
        self.settings = settings
        self.fed = feed(original, settings, made)
        self.candidate = candidate_source(candidate, settings, self.fed.source.weights)
        self.specimen = Specimen(self.fed, self.seed)
        self.wirings = self.specimen.wiring, Wiring(whole_model(candidate))

    def layers(self, cap: int) -> Layers:
        """Compare what is inside.

        Args:
            cap: How many bytes of values to hold at once, of each model.

        Raises:
            RunError: A model does not run with optimisation off.
        """
        judge = Judge(self.settings, self.fed.facts, self.seed)
        return Inside(self.fed, self.candidate, self.wirings, judge, cap).compare()

    @property
    def shared(self) -> dict[str, str]:
        """What both models get from outside, graph inputs and refilled weights; the names agree."""
        names = [*self.specimen.feeds, *(self.fed.source.weights or {})]
        return {name: name for name in names}

    def write(self, layers: Layers, at: Layer, folder: Path) -> CutPair | None:
        """Write the nodes of both models that compute *at*, and what flows into them.

        Returns:
            What was written; None if it cannot be cut out.
        """
        ours, theirs, agreed = boundaries(layers, at, self.wirings, self.shared)
        back = {partner: name for name, partner in agreed.items()}
        starts = self.wirings[0].entering(ours), self.wirings[1].entering(theirs)
        is_closed = all(n in agreed for n in starts[0]) and all(n in back for n in starts[1])
        if not ours or not theirs or not is_closed:
            return None
        wanted = list(dict.fromkeys([*starts[0], *(back[name] for name in starts[1])]))
        values = self.specimen.values([*wanted, at.original])
        if values is None:
            return None
        types = {name: type_of(value) for name, value in values.items()}
        renamed = {agreed[n]: t for n, t in types.items() if n in agreed}
        renamed[at.candidate] = types[at.original]
        mine = cut(self.wirings[0], ours, types, [at.original])
        other = cut(self.wirings[1], theirs, renamed, [at.candidate])
        if not _saved(mine, folder / "original.onnx") or not _saved(
            other, folder / "candidate.onnx"
        ):
            return None
        names = tuple(
            (n if n in starts[0] else None, agreed[n] if agreed[n] in starts[1] else None)
            for n in wanted
        )
        return CutPair(
            _write_data(folder, wanted, [at.original], values),
            names,
            ((at.original, at.candidate),),
            _labels(self.wirings[0], ours),
            _labels(self.wirings[1], theirs),
        )


def _labels(wiring: Wiring, nodes: set[int]) -> tuple[str, ...]:
    """Name nodes by what they make."""
    found = (wiring.nodes[index] for index in sorted(nodes))
    return tuple(f"{node.op_type} {next(filter(None, node.output), '')!r}" for node in found)
