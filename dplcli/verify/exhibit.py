"""Two parts of models with what flows into them, as files that show how they differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import onnx
from google.protobuf.message import EncodeError

from dplcli.errors import UsageError
from dplcli.verify.capturing import capture, type_of, value_of
from dplcli.verify.compare import Judge
from dplcli.verify.cutting import Wiring, cut
from dplcli.verify.dataflow import Dataflow
from dplcli.verify.interface import read_model, read_whole
from dplcli.verify.judgement import REFERENCE, facts_of
from dplcli.verify.sessions import RunError, Runner, Source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.verify.capturing import Fed
    from dplcli.verify.result import OutputComparison
    from dplcli.verify.sessions import Array, Feed, Outputs

DATA = "test_data_set_0"


class Rules(NamedTuple):
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
        reason: Why there is nothing to compare: onnxruntime refuses the candidate; or "".
    """

    outputs: tuple[OutputComparison, ...] = ()
    reason: str = ""

    @property
    def differs(self) -> bool:
        """Whether the candidate is not what the original is."""
        return bool(self.reason) or any(not output.ok for output in self.outputs)


def show(
    sources: tuple[Source, Source],
    feeds: tuple[Mapping[str, Feed], Mapping[str, Feed]],
    pairs: Sequence[tuple[str, str]],
    rules: Rules,
) -> Shown:
    """Run two models and compare outputs in pairs.

    As in a verification, the candidate passes if it agrees with the original with optimisation
    off, or at its own level.

    Raises:
        RunError: The original does not run.
    """
    original, candidate = sources
    facts = facts_of(Dataflow(read_model(original.path)))
    judge = Judge(
        level=rules.level,
        baseline=REFERENCE,
        seed=0,
        coarsest=rules.coarsest,
        rtol=rules.rtol,
        atol=rules.atol,
        depths=facts.depths,
        stepped=facts.stepped,
    )
    try:
        theirs = Runner(candidate, rules.level).run(feeds[1])
    except RunError as error:
        Runner(original, REFERENCE).run(feeds[0])
        return Shown(reason=f"onnxruntime does not run the candidate: {error}")
    found = Shown()
    for baseline in dict.fromkeys((REFERENCE, rules.level)):
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


def write_feed(path: Path, name: str, feed: Array | list[Array]) -> None:
    """Write one input as the tests of ONNX have it."""
    if isinstance(feed, list):
        path.write_bytes(onnx.numpy_helper.from_list(feed, name).SerializeToString())
    else:
        path.write_bytes(onnx.numpy_helper.from_array(feed, name).SerializeToString())


def read_feed(path: Path, *, is_sequence: bool) -> Array | list[Array]:
    """Read one input.

    Raises:
        UsageError: There is no such file, or it holds no value.
    """
    try:
        data = path.read_bytes()
        if is_sequence:
            values: list[Array] = onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
            return values
        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        raise UsageError(f"{path}: holds no value of ONNX: {error}") from error


class Item(NamedTuple):
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

    inputs: tuple[Item, ...]
    outputs: tuple[str, ...]
    nodes: int


class Specimen:
    """A model that runs, of which parts can be cut out together with their inputs.

    Args:
        fed: The model, and what it is fed.
        seed: Which of its inputs to use.
    """

    def __init__(self, fed: Fed, seed: int) -> None:
        """Read the model, its weights too.

        Raises:
            UsageError: The weights cannot be read.
        """
        self.fed = fed
        self.feeds = fed.feeds[seed]
        self.wiring = Wiring(whole_model(fed.source.path))
        weights = fed.source.weights or {}
        self.made = {self.wiring.makers[name] for name in weights if name in self.wiring.makers}
        self.known: dict[str, Array | list[Array] | None] = dict(self.feeds) | dict(weights)

    @property
    def all_nodes(self) -> set[int]:
        """All nodes but those that are replaced by what their values were refilled with."""
        return set(range(len(self.wiring.nodes))) - self.made

    def growing(self, names: Collection[str], rounds: int) -> Iterator[set[int]]:
        """Yield the nodes that make *names*, then more and more around them, in the end all."""
        nodes = self.wiring.with_constants(self.wiring.holders(names)) - self.made
        everything = self.all_nodes
        for _ in range(rounds):
            if not nodes or nodes == everything:
                break
            yield nodes
            nodes = self.wiring.with_constants(self.wiring.neighbours(nodes)) - self.made
        yield everything

    def values(self, names: Iterable[str]) -> dict[str, Array | list[Array]] | None:
        """Return what *names* hold; None if one of them cannot be fed.

        Raises:
            RunError: The model does not run when it is asked for them.
        """
        wanted = list(names)
        if unknown := [name for name in wanted if name not in self.known]:
            found = capture(self.fed.source, unknown, self.feeds)
            self.known |= {name: value_of(leaves) for name, leaves in found.items()}
        values = {name: self.known[name] for name in wanted}
        fed = {name: value for name, value in values.items() if value is not None}
        return fed if len(fed) == len(values) else None

    def write(
        self, folder: Path, name: str, nodes: set[int], ends: Sequence[str] = ()
    ) -> Cutting | None:
        """Write a model of *nodes* and what flows into it; None if it cannot be cut out there.

        Args:
            folder: Where to.
            name: The model's file name.
            nodes: What to keep.
            ends: What it returns; if empty, all that leaves it.
        """
        starts, ends = self.wiring.entering(nodes), ends or self.wiring.leaving(nodes)
        try:
            values = self.values([*starts, *ends])
        except RunError:
            return None
        if values is None:
            return None
        types = {key: type_of(value) for key, value in values.items()}
        model = cut(self.wiring, nodes, types, ends)
        if (content := serialised(model)) is None:
            return None
        (folder / name).write_bytes(content)
        (folder / DATA).mkdir(exist_ok=True)
        items = []
        for number, start in enumerate(starts):
            item = Item(f"{DATA}/input_{number}.pb", start, isinstance(values[start], list))
            write_feed(folder / item.file, start, values[start])
            items.append(item)
        for number, end in enumerate(ends):
            write_feed(folder / DATA / f"output_{number}.pb", end, values[end])
        return Cutting(tuple(items), tuple(ends), len(nodes))


def serialised(model: onnx.ModelProto) -> bytes | None:
    """Return a model as bytes; None if it is too large for that (2 GB)."""
    try:
        content: bytes = model.SerializeToString()
    except (ValueError, EncodeError):
        return None
    return content


def whole_model(path: Path) -> onnx.ModelProto:
    """Read a model with its weights.

    Raises:
        UsageError: The weights cannot be read.
    """
    try:
        return read_whole(path)
    except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise UsageError(f"{path}: its weights cannot be read: {error}") from error
