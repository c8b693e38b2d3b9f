"""How near a model comes to one that it approximates: quantised, or of another precision.

That two such models differ is meant, so nothing is judged place by place. The figures are the usual
ones of quantisation: the ratio of signal to quantisation noise (SQNR), the cosine of the angle
between both results, and how often both have their largest element at one place (top-1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.analysis.extract import Wiring
from dplcli.errors import VerificationError, opt
from dplcli.keys import keys
from dplcli.verify.inputs import check_saving, fed_reference
from dplcli.verify.layers import ValueStream, align, chunks_of_both
from dplcli.verify.model import input_differences, model_of, read_model
from dplcli.verify.run import Runner, check_setup
from dplcli.verify.values import ModelSource, RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dplcli.verify.check import Check
    from dplcli.verify.inputs import Reference
    from dplcli.verify.values import Array, Leaf, Outputs

_HELD = 1 << 28
"""How many bytes of values are held at once of each model, over all inputs."""

_OF_IMAGES = 4
"""From this rank on, ONNX has classes at axis 1: N x C x H x W."""

_SOUND = 60.0
"""From so many decibels on, a value counts as exact if one asks where the accuracy is lost."""


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


@keys("name candidate op_type *=accuracy")
@dataclass(frozen=True)
class NamedAccuracy:
    """A value and how near it is.

    Attributes:
        name: Its name in the original.
        candidate: Its name in the candidate.
        op_type: The operator that makes it in the original; "" if none does.
        accuracy: How near.
    """

    name: str
    candidate: str
    op_type: str
    accuracy: Accuracy


class Loss(NamedTuple):
    """The value that is so much less accurate than the worst of what it is made of.

    Attributes:
        name: Its name in the original.
        op_type: The operator that makes it there.
        decibels: How many decibels of SQNR are lost; what has 60 or more counts as exact.
    """

    name: str
    op_type: str
    decibels: float


@keys("fed made_up=is_made_up outputs layers? loss? notes?")
@dataclass(frozen=True)
class Measured:
    """Two models that were run on the same inputs.

    Attributes:
        fed: What they were fed, a name for each set of inputs.
        is_made_up: Whether that was drawn at random.
        outputs: The outputs that both have.
        layers: The values inside that both compute, in the original's order; None if nobody asked.
        loss: Where most decibels are lost; None if none are.
        notes: What a reader should know.
    """

    fed: tuple[str, ...]
    is_made_up: bool
    outputs: tuple[NamedAccuracy, ...]
    layers: tuple[NamedAccuracy, ...] | None
    loss: Loss | None
    notes: tuple[str, ...]


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


def measure_accuracy(
    original: Path,
    candidate: Path,
    check: Check,
    *,
    layers: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Run two models on the same inputs, and measure how near their values are.

    Args:
        original: The model that is approximated.
        candidate: The model that approximates it.
        check: Inputs, level and what runs the candidate.
        layers: Whether to measure the values inside, too.
        say: Called with a short phrase before each step that may take long.

    Raises:
        ModelLoadError: A file holds no model.
        VerificationError: A model does not run, or both have no output or not the inputs in common.
    """
    check_saving(opt("save_inputs"), check.request.save, original, check.request.given)
    check_setup(check.custom_ops, check.execution)
    protos = read_model(original), read_model(candidate)
    for difference in input_differences(protos[0].graph, protos[1].graph):
        raise VerificationError(
            f"{candidate.name} cannot be fed what {original.name} is: {difference}"
        )
    names = [[info.name for info in proto.graph.output] for proto in protos]
    common = [name for name in names[0] if name in names[1]]
    if not common:
        raise VerificationError(f"{original.name} and {candidate.name} have no output in common")
    reference = fed_reference(original, protos[0], check, say)
    (level,) = check.judged_levels
    cases = [*reference.stimulus.cases]
    feeds = [reference.feeds[case] for case in cases]
    sources = (
        reference.source,
        ModelSource(candidate, libraries=check.custom_ops, execution=check.execution),
    )
    runs = []
    for source, path in zip(sources, (original, candidate), strict=True):
        say(f"running {path.name}")
        try:
            runs.append(Runner(source, level).run_each(feeds))
        except RunError as error:
            raise VerificationError(f"{path.name} does not run: {error}") from error
    sums = {name: Sums() for name in common}
    for ours, theirs in zip(*runs, strict=True):
        for name in common:
            _count(sums[name], name, ours[name], theirs[name])
    wiring = Wiring(model_of(sources[0]))
    makers = {name: wiring.nodes[row].op_type for name, row in wiring.makers.items()}
    outputs = tuple(
        NamedAccuracy(name, name, makers.get(name, ""), sums[name].figures()) for name in common
    )
    inside = None
    if layers:
        say("measuring the values inside")
        inside = tuple(_inside(reference, sources, wiring, cases))
    alone = [n for own, other in (names, names[::-1]) for n in own if n not in other]
    notes = [f"only one model has the output {name!r}: it is not measured" for name in alone]
    return Measured(
        fed=tuple(reference.stimulus.cases.values()),
        is_made_up=check.request.given is None and check.request.function is None,
        outputs=outputs,
        layers=inside,
        loss=None if inside is None else _largest_loss(wiring, inside),
        notes=tuple(notes),
    )


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


def _inside(
    reference: Reference,
    sources: tuple[ModelSource, ModelSource],
    wiring: Wiring,
    cases: Sequence[int],
) -> Iterator[NamedAccuracy]:
    """Measure every float that both models compute: those of one name, and those alike."""
    other = Wiring(model_of(sources[1]))
    pairs = {
        name: name
        for name, row in wiring.makers.items()
        if name in other.makers
        and wiring.nodes[row].op_type == other.nodes[other.makers[name]].op_type
    }
    taken = set(pairs.values())
    for name, pair in align((wiring, other), sources)[0].items():
        if name not in pairs and pair.candidate not in taken:
            pairs[name] = pair.candidate
    pairs = {name: _as_read(other, partner) for name, partner in pairs.items()}
    feeds = {case: reference.feeds[case] for case in cases}
    first = reference.feeds[cases[0]]
    ours, theirs = (ValueStream(source, first, _HELD // len(cases)) for source in sources)
    pairs = {name: pairs[name] for name in wiring.makers if name in pairs}
    for chunk in chunks_of_both(ours, theirs, pairs):
        results: list[list[tuple[int, Outputs]]] = [
            [*ours.runs(chunk, feeds)],
            [*theirs.runs([pairs[name] for name in chunk], feeds)],
        ]
        for name in chunk:
            sums = Sums()
            try:
                for (_, one), (_, two) in zip(*results, strict=True):
                    _count(sums, name, one[name], two[pairs[name]])
            except VerificationError:
                continue  # alike nodes may make values of other shapes
            if sums.is_float:
                op_type = wiring.nodes[wiring.makers[name]].op_type
                yield NamedAccuracy(name, pairs[name], op_type, sums.figures())


def _as_read(wiring: Wiring, name: str) -> str:
    """Return the value that readers get: what is quantised at once is dequantised for them.

    The steps may stand for an operator, too: those that begin at zero for a Relu.
    """
    for op_type in ("QuantizeLinear", "DequantizeLinear"):
        readers = [wiring.nodes[row] for row in wiring.readers.get(name, ())]
        if name in wiring.outputs or {node.op_type for node in readers} != {op_type}:
            return name
        name = readers[0].output[0]
    return name


def _largest_loss(wiring: Wiring, layers: Sequence[NamedAccuracy]) -> Loss | None:
    """Return where most decibels are lost, beyond the worst of what a value is made of."""
    known: dict[str, float] = {}
    measured = {layer.name: layer for layer in layers}
    losses: list[Loss] = []
    for row, node in enumerate(wiring.nodes):
        before = min((known.get(name, _SOUND) for name in wiring.reads[row]), default=_SOUND)
        for name in filter(None, node.output):
            layer = measured.get(name)
            sqnr = None if layer is None else layer.accuracy.sqnr
            known[name] = before if sqnr is None else min(sqnr, _SOUND)
            if layer is not None and before > known[name]:
                losses.append(Loss(name, node.op_type, before - known[name]))
    return max(losses, key=lambda each: each.decibels, default=None)
