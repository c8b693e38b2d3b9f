"""How near a model comes to one that it approximates: quantised, or of another precision.

That two such models differ is meant, so nothing is judged. The figures are the usual ones of
quantisation: the ratio of signal to quantisation noise (SQNR), the cosine of the angle between both
results, and how often both have their largest element at one place (top-1).

Where the accuracy is lost is measured twice. Each place of the candidate is fed what the original
computes, and shows what noise it adds by itself. Of the few that add most, each is then left as it
is in the original, and the outputs show what that gains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.errors import VerificationError, opt
from dplcli.keys import keys
from dplcli.verify.compare import Retyped, in_types
from dplcli.verify.inputs import check_saving, fed_reference
from dplcli.verify.layers import ValueStream, chunks_of_both, value_of
from dplcli.verify.mixing import Alone, Mixing
from dplcli.verify.model import input_differences, read_model
from dplcli.verify.run import Runner, check_setup
from dplcli.verify.values import ModelSource, RunError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Node
    from dplcli.verify.check import Check
    from dplcli.verify.inputs import Reference
    from dplcli.verify.values import Array, Feed, Leaf, Outputs

_HELD = 1 << 28
"""How many bytes of values are held at once of each model, over all inputs."""

_OF_IMAGES = 4
"""From this rank on, ONNX has classes at axis 1: N x C x H x W."""

_MOST_LEFT = 5
"""How many places are left as they are in the original, one after the other."""


class Accuracy(NamedTuple):
    """How near a value of the candidate is to that of the original, over all inputs.

    Attributes:
        sqnr: Power of the original's value over that of the difference, in decibels; infinite
            where nothing differs. None for what is no float.
        cosine: Cosine of the angle between the two, taken as vectors; 1 where both are zero. None
            for what is no float.
        agreement: For floats the share of rows with the largest element at one place: along axis 1
            from rank 4 on, else along the last. For all else the share of equal elements. None if
            a row has one element.
        max_abs: The largest difference.
        lost: How many elements are a finite number in one model alone, or another infinity.
    """

    sqnr: float | None
    cosine: float | None
    agreement: float | None
    max_abs: float
    lost: int

    @property
    def relative_error(self) -> float:
        """Length of the difference over that of the original's value; as SQNR, but no logarithm."""
        return math.inf if self.lost or self.sqnr is None else 10 ** (-self.sqnr / 20)

    @property
    def decibels(self) -> float:
        """SQNR, the least there is where elements are lost or none are floats."""
        return -math.inf if self.lost or self.sqnr is None else self.sqnr


@keys("name candidate op_type *=accuracy sqnr_alone?")
@dataclass(frozen=True)
class NamedAccuracy:
    """A value and how near it is.

    Attributes:
        name: Its name in the original.
        candidate: Its name in the candidate.
        op_type: The operator that makes it in the original; "" if none does.
        accuracy: How near.
        sqnr_alone: Its SQNR if all that it is computed from is the original's: the noise that its
            place adds by itself. None if that is not known.
    """

    name: str
    candidate: str
    op_type: str
    accuracy: Accuracy
    sqnr_alone: float | None = None


class OutputGain(NamedTuple):
    """The SQNR of an output, before and after.

    Attributes:
        name: The output.
        before: Its SQNR in decibels.
        left: The same with the nodes of a place left as they are in the original.
        unrounded: And with their result not rounded to steps, either; None if it is not.
    """

    name: str
    before: float
    left: float
    unrounded: float | None

    @property
    def gain(self) -> float:
        """How many decibels are gained at best."""
        best = max(self.left, self.left if self.unrounded is None else self.unrounded)
        return 0.0 if self.before == best else best - self.before


@dataclass(frozen=True)
class Loss:
    """A place that adds noise, and what is gained if it is left as it is in the original.

    Attributes:
        name: The value that it computes, by its name in the original.
        nodes: The original's nodes.
        sqnr_alone: The SQNR that it leaves by itself.
        outputs: What becomes of the outputs that are floats.
    """

    name: str
    nodes: tuple[Node, ...]
    sqnr_alone: float
    outputs: tuple[OutputGain, ...]

    @property
    def gain(self) -> float:
        """How many decibels are gained, over all outputs."""
        return sum(each.gain for each in self.outputs)


@keys("fed made_up=is_made_up outputs layers? loss? tried? notes?")
@dataclass(frozen=True)
class Measured:
    """Two models that were run on the same inputs.

    Attributes:
        fed: What they were fed, a name for each set of inputs.
        is_made_up: Whether that was drawn at random.
        outputs: The outputs that both have.
        layers: The values inside that both compute, in the original's order; None if nobody asked.
        tried: The places that add most noise by themselves, the worst first, and what is gained if
            one of them is left as it is in the original.
        notes: What a reader should know.
    """

    fed: tuple[str, ...]
    is_made_up: bool
    outputs: tuple[NamedAccuracy, ...]
    layers: tuple[NamedAccuracy, ...] | None
    tried: tuple[Loss, ...]
    notes: tuple[str, ...]

    @property
    def loss(self) -> Loss | None:
        """The place that gains most; the worst by itself, if none gains anything."""
        return max(self.tried, key=lambda each: each.gain, default=None)


class Sums:
    """What is summed up over elements, and makes the figures."""

    def __init__(self) -> None:
        self.is_float = False
        self.signal = self.other = self.product = self.noise = self.largest = 0.0
        self.rows = self.agreed = self.lost = 0

    def add(self, one: Array, two: Array) -> None:
        """Count in one array of each model, of one shape."""
        if one.dtype.kind not in "fiub" or two.dtype.kind not in "fiub":
            self.rows += one.size
            self.agreed += int((one == two).sum())
            return
        self.is_float |= one.dtype.kind == "f"
        if one.dtype.kind != "f":
            self.rows += one.size
            self.agreed += int((one == two).sum())
        elif one.ndim and one.size:
            axis = 1 if one.ndim >= _OF_IMAGES else -1
            if one.shape[axis] > 1:
                agrees = one.argmax(axis) == two.argmax(axis)
                self.rows += agrees.size
                self.agreed += int(agrees.sum())
        a, b = one.astype(np.float64), two.astype(np.float64)
        is_finite = np.isfinite(a) & np.isfinite(b)
        is_same = (a == b) | (np.isnan(a) & np.isnan(b))
        self.lost += int((~is_finite & ~is_same).sum())
        a, b = a[is_finite], b[is_finite]
        self.signal += float(a @ a)
        self.other += float(b @ b)
        self.product += float(a @ b)
        apart = b - a
        self.noise += float(apart @ apart)
        self.largest = max(self.largest, float(np.abs(apart).max(initial=0.0)))

    def figures(self) -> Accuracy:
        """Return the figures."""
        sqnr = cosine = None
        if self.is_float:
            length = math.sqrt(self.signal) * math.sqrt(self.other)
            cosine = self.product / length if length else float(not self.noise)
            if not self.noise:
                sqnr = math.inf
            elif self.signal:
                sqnr = 10 * (math.log10(self.signal) - math.log10(self.noise))
            else:
                sqnr = -math.inf
        agreement = self.agreed / self.rows if self.rows else None
        return Accuracy(sqnr, cosine, agreement, self.largest, self.lost)


def measure_accuracy(  # noqa: PLR0913  # two models, how to run them, and what is asked
    original: Path,
    candidate: Path,
    check: Check,
    *,
    layers: bool = False,
    spelled_out: bytes | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Run two models on the same inputs, and measure how near their values are.

    Args:
        original: The model that is approximated.
        candidate: The model that approximates it.
        check: Inputs, level and what runs the candidate.
        layers: Whether to measure the values inside, too.
        spelled_out: The candidate with operators on floats between steps, to look inside; None if
            it is so as it is.
        say: Called with a short phrase before each step that may take long.

    Raises:
        ModelLoadError: A file holds no model.
        VerificationError: A model does not run, or both have no output or not the inputs in common.
    """
    check_saving(opt("save_inputs"), check.request.save, original, check.request.given)
    check_setup(check.custom_ops, check.execution)
    protos = read_model(original), read_model(candidate)
    graphs = protos[0].graph, protos[1].graph
    for difference in input_differences(*graphs, converts=True):
        raise VerificationError(
            f"{candidate.name} cannot be fed what {original.name} is: {difference}"
        )
    names = [[info.name for info in graph.output] for graph in graphs]
    common = [name for name in names[0] if name in names[1]]
    if not common:
        raise VerificationError(f"{original.name} and {candidate.name} have no output in common")
    retyped = Retyped.of(*graphs)
    request = replace(check.request, exact_in=retyped.inputs)
    reference = fed_reference(original, protos[0], replace(check, request=request), say)
    (level,) = check.judged_levels
    pair = _Pair(
        reference,
        ModelSource(candidate, libraries=check.custom_ops, execution=check.execution),
        retyped.inputs,
        level,
    )
    runs = []
    for place, path in enumerate((original, candidate)):
        say(f"running {path.name}")
        try:
            runs.append(Runner(pair.sources[place], level).run_each([*pair.feeds[place].values()]))
        except RunError as error:
            raise VerificationError(f"{path.name} does not run: {error}") from error
    figures = _figures(common, *runs)
    makers = {name: node.op_type for node in protos[0].graph.node for name in node.output}
    outputs = tuple(
        NamedAccuracy(name, name, makers.get(name, ""), figures[name]) for name in common
    )
    alone = [n for own, other in (names, names[::-1]) for n in own if n not in other]
    notes = [f"only one model has the output {name!r}: it is not measured" for name in alone]
    notes += [*retyped.said]
    if retyped.inputs:
        notes.append("what is fed is rounded so that both models hold it exactly")
    inside: tuple[NamedAccuracy, ...] | None = None
    tried: list[Loss] = []
    if layers:
        say("measuring the values inside")
        if spelled_out is not None:
            source = replace(pair.candidate, content=spelled_out)
            pair = replace(pair, candidate=source)
        mixing = Mixing(*pair.sources)
        inside = tuple(pair.inside(mixing))
        noisy = [each for each in inside if each.sqnr_alone not in {None, math.inf}]
        noisy.sort(key=lambda each: each.sqnr_alone or 0.0)
        for each in noisy[:_MOST_LEFT]:
            say(f"leaving {each.op_type} {each.name!r} as it is in the original")
            try:
                tried.append(pair.left(mixing, each, runs[0], common))
            except (RunError, StoppedError) as error:
                notes.append(f"{each.op_type} {each.name!r} cannot be left as it was: {error}")
    return Measured(
        fed=tuple(reference.stimulus.cases.values()),
        is_made_up=check.request.given is None and check.request.function is None,
        outputs=outputs,
        layers=inside,
        tried=tuple(tried),
        notes=tuple(notes),
    )


def _figures(
    names: Iterable[str], ours: Iterable[Outputs], theirs: Iterable[Outputs]
) -> dict[str, Accuracy]:
    """Return how near values are that two models gave, over all sets of inputs.

    Raises:
        VerificationError: They cannot be compared element by element.
    """
    sums = {name: Sums() for name in names}
    for one, two in zip(ours, theirs, strict=True):
        for name, own in sums.items():
            _count(own, name, one[name], two[name])
    return {name: own.figures() for name, own in sums.items()}


def _count(sums: Sums, name: str, ours: Sequence[Leaf], theirs: Sequence[Leaf]) -> None:
    """Count in what both models give for one set of inputs.

    Raises:
        VerificationError: They cannot be compared element by element.
    """
    forms = [[each.data.shape for each in leaves] for leaves in (ours, theirs)]
    if forms[0] != forms[1]:
        shapes = ["x".join(map(str, form[0])) if form else "nothing" for form in forms]
        raise VerificationError(
            f"{name!r} is {shapes[0]} in one model and {shapes[1]} in the other"
        )
    for one, two in zip(ours, theirs, strict=True):
        sums.add(one.data, two.data)


@dataclass(frozen=True)
class _Pair:
    """Two models and what they are fed.

    Attributes:
        reference: The original, and what it is fed.
        candidate: The candidate.
        types: The inputs that the candidate takes in another float type.
        level: The optimisation level.
    """

    reference: Reference
    candidate: ModelSource
    types: Mapping[str, str]
    level: str

    @property
    def sources(self) -> tuple[ModelSource, ModelSource]:
        """Both models."""
        return self.reference.source, self.candidate

    @property
    def feeds(self) -> tuple[dict[int, Mapping[str, Feed]], dict[int, Mapping[str, Feed]]]:
        """What each is fed, by case."""
        feeds = {case: self.reference.feeds[case] for case in self.reference.stimulus.cases}
        return feeds, {case: in_types(fed, self.types) for case, fed in feeds.items()}

    def inside(self, mixing: Mixing) -> Iterator[NamedAccuracy]:
        """Measure every float that nodes of both models compute, and what its place adds."""
        feeds = self.feeds
        ours, theirs = (
            ValueStream(source, next(iter(own.values())), _HELD // len(own))
            for source, own in zip(mixing.sources, feeds, strict=True)
        )
        layers = {}
        for chunk in chunks_of_both(ours, theirs, {n: ends[0] for n, ends in mixing.ends.items()}):
            ends = {name: mixing.ends[name][0] for name in chunk}
            results = [*ours.runs(chunk, feeds[0])], [*theirs.runs([*ends.values()], feeds[1])]
            for name, end in ends.items():
                sums = Sums()
                try:
                    for (_, one), (_, two) in zip(*results, strict=True):
                        _count(sums, name, one[name], two[end])
                except VerificationError:
                    del mixing.ends[name]  # alike nodes may make values of other shapes
                    continue
                if sums.is_float:
                    node = mixing.nodes(name)[-1]
                    layers[name] = NamedAccuracy(name, end, node.op_type, sums.figures())
        alone: dict[str, float] = {}
        pending = [*ours.chunks(ours.sizes([*layers]))][::-1]
        while pending:
            chunk = pending.pop()
            try:
                alone |= self._alone(mixing, ours, chunk)
            except (RunError, StoppedError):
                middle = len(chunk) // 2
                pending += [chunk[middle:], chunk[:middle]] if middle else []
        for name, layer in layers.items():
            yield replace(layer, sqnr_alone=alone.get(name))

    def _alone(self, mixing: Mixing, ours: ValueStream, names: list[str]) -> dict[str, float]:
        """Return the SQNR of values whose places are fed what the original computes.

        Raises:
            RunError: The places do not run.
        """
        places = Alone(mixing, names)
        asked = [name for name in places.reads if name in mixing.ends]
        sums = {name: Sums() for name in names}
        for case, values in ours.runs(asked, self.feeds[0]):
            known = {name: value_of(leaves) for name, leaves in values.items()}
            for name, one, two in places.run({**self.feeds[0][case], **known}):
                sums[name].add(one.data, two.data)
        return {name: own.figures().decibels for name, own in sums.items()}

    def left(
        self, mixing: Mixing, layer: NamedAccuracy, ours: Sequence[Outputs], common: Sequence[str]
    ) -> Loss:
        """Return what is gained if a place is left as it is in the original.

        Raises:
            RunError: The two models cannot be put together, or do not run so.
        """
        feeds = [*self.feeds[1].values()]
        sources = [mixing.sources[1], mixing.with_original(layer.name, stepped=True)]
        if mixing.is_stepped(layer.name):
            sources.append(mixing.with_original(layer.name, stepped=False))
        before, left, *unrounded = (
            _figures(common, ours, Runner(source, self.level).run_each(feeds)) for source in sources
        )
        changes = tuple(
            OutputGain(
                name,
                before[name].decibels,
                left[name].decibels,
                next((each[name].decibels for each in unrounded), None),
            )
            for name in common
            if before[name].sqnr is not None
        )
        return Loss(layer.name, mixing.nodes(layer.name), layer.sqnr_alone or 0.0, changes)
