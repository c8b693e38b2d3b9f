"""Each place where two models differ, judged by itself: on what enters there, and on what tells.

The outputs of a whole model are a poor witness. Where a model rounds to steps, sorts, or repeats
itself, the last bits of a value decide over large differences further down; and a branch that is
not taken, a bound that is not met, a number that is not fed show in no output at all.

So both models are aligned before anything runs (:mod:`dplcli.analysis.pairing`), and cut at the
values of pairs. What lies between two cuts is a place. Where both models say the same, node for
node (:mod:`dplcli.verify.numbering`), nothing need run. Each other place is cut out of both models
and runs by itself:

- on what the original computes there, for the inputs of the model;
- on values that tell (:mod:`dplcli.verify.draws`), within what can be there at all
  (:mod:`dplcli.verify.ranges`); with branches taken that the inputs do not take.

A difference on what the inputs reach is a difference. One that only drawn values show is a doubt,
unless the model gives it when its own inputs have these values. Where the original itself gives no
finite number, nothing is compared. A place that gave nothing, or one number only, is not seen. That
is a doubt, too.

Rounding is told from meaning. A few units in the last place are rounding. If there is more, the
place is computed in float64 (:mod:`dplcli.verify.float64`): there both have to agree, but for what
a unit in the last place moves of constants that differ, and the candidate may not round much
further than the original does. What cannot be computed so has to agree within a thousand roundings;
what rounds to steps may be off by what the original's own last bits move.

Some pairs are guesses: steps on two ways to one result. So a place that gives something else is
joined with those that read it, a few times. What was joined has to agree in float64, or in nearly
all bits: else a difference could hide behind the tolerance of a longer way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.analysis.extract import Wiring, made_name
from dplcli.diff.comparison import Differ
from dplcli.diff.sentences import sentences
from dplcli.ir.operators import BOUNDING, MEASURING, UNROUNDED, WEIGHT_AXES
from dplcli.shapes.knowledge import Knowledge
from dplcli.verify import compare, float64
from dplcli.verify.behaviours import beside_edits, bounds_of, edits, is_guard
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.compare import FLOATS, UNITS, Judge, Limit, scale_of
from dplcli.verify.cuts import CutModels, Feeding, Place
from dplcli.verify.draw_specs import BOUND_CONSTANT, LARGE_CONSTANT, draw_specs
from dplcli.verify.float64 import Exact
from dplcli.verify.layers import Pair, ValueStream, value_of
from dplcli.verify.model import attribute, bytes_of, dtype_name
from dplcli.verify.numbering import content_of
from dplcli.verify.run import Runner
from dplcli.verify.search import GENERAL, Search, general_draws, sizes_of
from dplcli.verify.values import Leaf, RunError, StoppedError, leaves_of
from dplcli.verify.verdict import Junction, LocalJudgement, Sight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onnx import NodeProto

    from dplcli.verify.coverage import PlaceCoverage
    from dplcli.verify.draw_specs import DrawSpec
    from dplcli.verify.inputs import Reference
    from dplcli.verify.values import Array, Feed, ModelSource, Outputs
    from dplcli.verify.verdict import OutputComparison

_NO_LIMITS: Mapping[str, Limit] = MappingProxyType({})

_INDICES = frozenset({"int32", "int64", "bool"})
"""Types of sizes and places: steps on two ways to one result are easily taken for each other."""

_HELD = 1 << 29
"""How many bytes of the original's values are held at once; one place may need more."""

_JOINED = 8
"""How often in a row a place that gives other numbers is joined with those that read it."""

_MOST_TOLD = 3
"""Of how many values it is told what the inputs reach."""

_FEW, _THOUSAND = 1, 1 << 10
"""The roundings that pass at once, and those that a place may have that has no float64."""

_SEEN = 14
"""How many elements a difference has to move behind an operator that rounds to steps, in all cases
together, when other elements have it. If it moves none where it is, that is luck once in a million
times."""

_EVALUATED_BYTES = 1 << 25
"""Places with more bytes of values are not computed in float64."""

_EVALUATED_WORK = 1 << 28
"""Nor are places that take more multiplications."""

_MOST_DRAWN = 1 << 28
"""How many multiplications may be done on drawn values, for all places together."""

_MOST_SEARCHED = 1 << 33
"""How many on draws that go after what no run showed, for all places together."""

_ROUNDS, _BATCH = 6, 8
"""How often it is drawn for what is missing, and how many draws at once."""

_WIDENED = 4
"""Through how many truth values in a row a place looks if it differs on drawn values alone."""

_JOINED_BATCH = 64
"""How many draws there are first for a joined place: what differs inside may show seldom."""

_NEVER_EMPTY = frozenset({"Einsum", "GRU", "LSTM", "RNN"})
"""Operators of which onnxruntime's kernels end the process if they are fed nothing."""

_MOST_OF_A_SIZE = 1 << 29
"""How many for one draw with another size."""

_DEEPEST_IF = 3
"""How deep If nodes lie in each other whose branches are all taken; further in, as the last."""

_EACH = 64
"""What each element of a value counts for, in multiplications: it is drawn, copied and compared."""

_AT_ONCE = 1 << 22
"""How many elements of stored tables are compared at once."""

_MOST_OTHER = 0.5
"""Two constants of which a smaller share is another are not two ways to compute one."""

_TELLING = 2
"""How many different finite numbers a place has to give."""


def judge_places(
    reference: Reference, candidate: ModelSource, judge: Judge, cases: Sequence[int]
) -> LocalJudgement:
    """Judge the places where a candidate differs.

    Args:
        reference: The original and its inputs.
        candidate: The candidate.
        judge: Says how to compare; places have tolerances of their own.
        cases: The inputs to use, by number.

    Raises:
        RunError: A model does not run when it is asked for inner values, or one cannot be fed.
        StoppedError: The process crashed, or took longer than allowed.
    """
    return _Places(reference, candidate, judge, cases).judge()


@dataclass(frozen=True)
class _Failure:
    """What is wrong with a place.

    Attributes:
        reason: It, in words.
        is_misfit: Whether the two values were never meant to be the same.
        fits: Whether they have one type and one shape.
        is_final: Whether nothing that follows can make up for it.
        is_drawn: Whether it shows on values alone that the inputs do not reach, or on no output.
        is_sure: Whether the same operators gave it, at two values that are meant to be the same.
        apart: How far the candidate is off, if both give one array of floats of one shape.
        fed: What was drawn for it when it showed, by the original's names.
    """

    reason: str
    is_misfit: bool = False
    fits: bool = True
    is_final: bool = False
    is_drawn: bool = False
    is_sure: bool = False
    apart: Array | None = None
    fed: Mapping[str, Array] = field(default_factory=dict, repr=False)


@dataclass
class _Seen:
    """What was seen of a place: how often it ran, and what it gave.

    Attributes:
        runs: How often it ran and gave the same.
        numbers: Different numbers that it gave, a few of them; infinities only beside others.
        low: The least.
        high: The largest.
    """

    runs: int = 0
    numbers: set[object] = field(default_factory=set)
    low: float = np.inf
    high: float = -np.inf

    def add(self, leaves: Sequence[Leaf]) -> None:
        """Note what it gave once."""
        self.runs += 1
        for leaf in leaves:
            flat = leaf.data.reshape(-1)
            if flat.dtype.kind == "f":
                finite = flat[np.isfinite(flat)]
                flat = flat[~np.isnan(flat)] if finite.size else finite
            else:
                finite = flat
            if finite.size and flat.dtype.kind in "fiu":
                self.low = min(self.low, float(finite.min()))
                self.high = max(self.high, float(finite.max()))
            room = _THOUSAND - len(self.numbers)
            self.numbers.update(flat[:room].tolist() if room > 0 else ())


class _Difference(NamedTuple):
    """How two constants differ, in numbers of elements.

    Whoever computes a constant in advance rounds it, by a few units in the last place of its
    largest number. Whoever edits one leaves most elements as they are.

    Attributes:
        other: Elements that are not the same.
        far: Those that are off by more than rounding of the largest element.
        moved: Those that are off by more than rounding of their own.
        size: All elements.
    """

    other: int = 0
    far: int = 0
    moved: int = 0
    size: int = 1

    @property
    def is_edit(self) -> bool:
        """Whether a few elements are others, by more than rounding of their own."""
        return self.moved > 0 and self.other < self.size * _MOST_OTHER

    @property
    def is_in_part(self) -> bool:
        """Whether a few elements are others, by more than rounding of the largest."""
        return 0 < self.far < self.size * _MOST_OTHER


_EQUAL, _UNLIKE = _Difference(), _Difference(other=1, far=1)
"""Of constants that are the same, and of those that cannot be compared."""


class _Places(CutModels):
    """The places where a candidate differs.

    Attributes:
        feeds: What the original is fed, in each case.
        joined: Values whose places hold some that gave something else.
        guessed: Values whose places hold other numbers, which were hardly meant to be the same.
        lengths: How many failures in a row a value's place holds.
        causes: For a value of the candidate what failed first on the way to it.
        nearest: The one that failed last, or None if several did, none of them behind the others.
        sizes: Upper bounds of the bytes of the original's values.
        differences: How the constants of a place differ, one by one.
        exact: How many places were computed in float64.
        sights: What was seen, by the candidate's value.
        roundings: How far each place is off, by the original's value.
        replayed: What was drawn when a place failed that was joined, by the candidate's value.
        left: How much work may still be done on drawn values.
        left_to_search: How much may be done on draws for what no run showed.
        moved: Places of which some run did not give the same bits, by the candidate's value.
        alike: For a place that was not drawn for, the one of its kind that was.
        wider: For a place that differs on values that cannot be there, what was drawn for instead.
        is_excused: Whether the last drawn difference was excused by the original's last bits.
        notes: Places that give something else where the original gives no finite number.
    """

    def __init__(
        self, reference: Reference, candidate: ModelSource, judge: Judge, cases: Sequence[int]
    ) -> None:
        super().__init__(reference.source, candidate, reference.feeds[cases[0]])
        self.feeds = {case: {**self.defaults, **reference.feeds[case]} for case in cases}
        self._judge = judge
        self.stream = ValueStream(self.sides[0].source, self.inputs, _HELD)
        self.sizes: dict[str, int] = {}
        self.joined: set[str] = set()
        self.guessed: set[str] = set()
        self.lengths: dict[str, int] = {}
        self.causes: dict[str, tuple[Pair, _Failure]] = {}
        self.nearest: dict[str, tuple[Pair, _Failure] | None] = {}
        self.differences: dict[Place, list[_Difference]] = {}
        self.exact = 0
        self.sights: dict[str, _Seen] = {}
        self.roundings: dict[str, float] = {}
        self.replayed: dict[str, list[Mapping[str, Array]]] = defaultdict(list)
        self.left = _MOST_DRAWN
        self.left_to_search = _MOST_SEARCHED
        self.moved: set[str] = set()
        self.alike: dict[str, Pair] = {}
        self.wider: dict[str, Place] = {}
        self.is_excused = False
        self.notes: dict[Pair, str] = {}

    def judge(self) -> LocalJudgement:
        """Judge all places that are not the same node for node."""
        # Cuts at what cannot be fed are given up.
        changed = self.changed()
        while not self._are_feedable([self.place(pair) for pair in changed]):
            changed = self.changed()
        pairs = self.pairs()
        if missing := [
            name
            for name in self.theirs.outputs
            if name in self.theirs.makers and name not in self.cuts
        ]:
            raise RunError(f"the output {missing[0]!r} cannot be told from others")
        every = self._agreed()
        failed = self._failed(changed)
        while taken := self._misfits(failed) or self._first(failed):
            failed = self._without(taken, failed)
        objections = {pair: self._said(pair, failure) for pair, failure in self._stored().items()}
        doubts: dict[Pair, str] = {}
        for pair, failure in failed.items():
            first, why = self.causes.get(pair.candidate, (pair, failure))
            if why.is_drawn != failure.is_drawn:
                first, why = pair, failure
            (doubts if failure.is_drawn else objections)[first] = self._said(first, why)
        objections, doubts = map(self._in_order, (objections, doubts))
        seen = [pair for pair in self.changed() if pair not in failed]
        unseen = dict(self._unseen(seen))
        noted = {
            pair: f"{label} differs where the original is fed or gives NaN, an infinity or -0"
            for pair, label in self.notes.items()
            if pair in seen
        }
        if self._judge.settings.strict:
            objections |= noted
            noted = {}
        doubtful = [*objections, *doubts, *unseen]
        return LocalJudgement(
            judged=len(changed),
            unchanged=len(pairs) - len(changed),
            differing=tuple(objections.values()),
            exact=self.exact,
            unseen=(*doubts.values(), *unseen.values()),
            changes=tuple(self._changes(doubtful)) if doubtful else (),
            notes=tuple(noted.values()),
            sights=tuple(self._sight(pair) for pair in seen if pair not in unseen),
            places=(*_junctions(doubtful, every), *_junctions(failed, self._agreed())),
            case=next(iter(self.feeds)),
            roundings={pair.original: self.roundings.get(pair.original, 0.0) for pair in changed},
        )

    def _in_order(self, told: Mapping[Pair, str]) -> dict[Pair, str]:
        """Return what is said of places, the first one that is computed first."""
        return dict(sorted(told.items(), key=lambda item: self.order[item[0].original]))

    # Which places there are.

    def _are_feedable(self, places: Sequence[Place]) -> bool:
        """Measure what places read; give up cuts at what is no tensor, and tell whether none is."""
        if places:
            needed = dict.fromkeys(name for place in places for name in self._needed(place))
            self.sizes |= self.stream.sizes([n for n in needed if n not in self.sizes])
            lost = [
                name
                for place in places
                for name in place.reads
                if name not in self.sizes and name not in self.inputs and name in self.partners
            ]
            for name in dict.fromkeys(lost):
                del self.cuts[self.partners.pop(name).candidate]
            return not lost
        return True

    def _stored(self) -> dict[Pair, _Failure]:
        """Compare outputs that the candidate stores with what the original computes."""
        computed = [name for name in self.ours.outputs if name in self.order]
        stored = {
            Pair(name, name, "output"): onnx.numpy_helper.to_array(tensor)
            for name in computed
            if (tensor := self.theirs.initializers.get(name)) is not None
            and tensor.data_location != TensorProto.EXTERNAL
        }
        values = self.stream.values([pair.original for pair in stored]) if stored else {}
        judge = replace(self._judge, facts=compare.Facts(), roundings=_THOUSAND)
        failures = {}
        for pair, array in stored.items():
            compared = judge.compare(pair.original, values[pair.original], leaves_of(array))
            if not compared.ok:
                failures[pair] = _Failure(
                    compared.reason or "another value is stored", is_final=True
                )
        return failures

    def _agreed(self) -> dict[str, str]:
        return {pair.original: pair.candidate for pair in self.cuts.values()}

    def _unseen(self, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, str]]:
        """Say which places gave nothing that tells."""
        for pair in pairs:
            place = self.place(pair)
            sight = self.sights.get(pair.candidate, _Seen())
            if self.draws_random(place):
                why = "draws random numbers, so that what differs there cannot be seen"
            elif not sight.runs:
                why = "was not seen: nothing of it ran"
            elif missing := self._missing(pair):
                why = f"was not seen where {missing}"
            elif len(sight.numbers) < _TELLING and not self._is_still(place):
                what = "one number" if sight.numbers else "no finite number"
                why = f"was not seen: it gives {what}, whatever it is fed"
            else:
                continue
            yield pair, f"{_label(self.ours, pair.original)} {why}"

    def _covered(self, pair: Pair) -> tuple[Place, PlaceCoverage]:
        """Return the place that was drawn for, of several that are alike, and what it showed."""
        drawn = self.alike.get(pair.candidate, pair)
        place = self.wider.get(drawn.candidate) or self.place(drawn)
        return place, self.coverage[drawn.candidate]

    def _missing(self, pair: Pair) -> str:
        """Say which behaviours of a place no run showed; "" if all were seen."""
        place, covered = self._covered(pair)
        rows_left = {} if self._is_still(place) else covered.missing_rows()
        told = [
            f"{covered.met[key].op_type} {key.value!r} of the {_SIDES[key.side]} is {key.piece}"
            for key in covered.missing(_made_in(place))
        ]
        told += [
            f"row {rows[0]:,} of what {name!r} of the {_SIDES[side]} reads is chosen"
            for (side, name), rows in rows_left.items()
        ]
        if place.pair.candidate not in self.moved:
            told += [f"{label} reads {what}" for label, (_, what) in edits(*place.nodes).items()]
            told += [f"what differs in {name!r} is read" for name in self._unread(place, covered)]
        return " or ".join(told[:_MOST_TOLD])

    def _unread(self, place: Place, covered: PlaceCoverage) -> Iterator[str]:
        """Yield constants of which a few numbers are others, without tables read by rows."""
        by_rows = {
            name
            for row in place.parts[0].nodes
            for at, name in enumerate(self.ours.nodes[row].input)
            if f"{self.ours.nodes[row].output[0]}.{at}" in covered.tables[0]
        }
        pairs = self._constants(place) or []
        for (one, _), found in zip(pairs, self._differences(place), strict=False):
            if found.is_edit and one.name not in by_rows:
                yield one.name

    def _sight(self, pair: Pair) -> Sight:
        seen = self.sights.get(pair.candidate, _Seen())
        low, high = (seen.low, seen.high) if seen.low <= seen.high else (None, None)
        place, covered = self._covered(pair)
        reached, possible = covered.count(_made_in(place))
        label = _label(self.ours, pair.original)
        return Sight(label, seen.runs, len(seen.numbers), low, high, reached, possible)

    def _changes(self, pairs: Sequence[Pair]) -> Iterator[str]:
        """Say what the models say differently at places."""
        places = [self.place(pair) for pair in pairs]
        rows = ({row for place in places for row in place.parts[which].nodes} for which in (0, 1))
        outputs_of = [
            {name for row in some for name in side.wiring.nodes[row].output if name}
            for side, some in zip(self.sides, rows, strict=True)
        ]
        chosen = {
            node
            for model, names in zip(self.models, outputs_of, strict=True)
            for node in model.graph
            if any(output is not None and output.name in names for output in node.outputs)
        }
        for graph in Differ(*self.models).result().graphs:
            owner = graph.before.owner
            while owner is not None and owner.graph.owner is not None:
                owner = owner.graph.owner
            if owner is None or owner in chosen:
                yield from sentences(graph, chosen if owner is None else None)

    def _is_still(self, place: Place) -> bool:
        """Tell whether a place always gives the same: it reads nothing, or but sizes and types."""
        end = place.pair.original
        if len({*self.ranges[0][end]}) == 1 or self.ranges[0].is_size(end):
            return True
        return all(
            self.ranges[which].is_size(name)
            or all(
                _tells_size(side.wiring.nodes[row], name)
                for row in side.wiring.readers.get(name, ())
                if row in part.nodes
            )
            for which, (side, part) in enumerate(zip(self.sides, place.parts, strict=True))
            for name in part.reads
        )

    # Places that are joined with those that read them.

    def _misfits(self, failed: Mapping[Pair, _Failure]) -> list[Pair]:
        """Return the pairs that were never meant to be the same."""
        misfits = (pair for pair, failure in failed.items() if failure.is_misfit)
        return [pair for pair in misfits if self._may(pair, failed[pair])]

    def _first(self, failed: Mapping[Pair, _Failure]) -> list[Pair]:
        """Return the other pairs that may be joined: those that read none that failed, too."""
        wrong = {pair.candidate for pair in failed}
        return [
            pair
            for pair, failure in failed.items()
            if self._may(pair, failure) and wrong.isdisjoint(self.place(pair).parts[1].reads)
        ]

    def _may(self, pair: Pair, failure: _Failure) -> bool:
        """Tell whether a place may be joined with those that read it."""
        is_open = not failure.is_final and pair.candidate not in self.theirs.outputs
        return is_open and self.lengths.get(pair.candidate, 0) < _JOINED

    def _without(self, pairs: Sequence[Pair], failed: dict[Pair, _Failure]) -> dict[Pair, _Failure]:
        """Take cuts out, and judge again what reaches further now; return what fails then."""
        again: dict[str, Pair] = {}
        for pair in pairs:
            failure = failed.pop(pair)
            del self.cuts[pair.candidate], self.partners[pair.original]
            cause = self.causes.get(pair.candidate, (pair, failure))
            for reader in self._readers(pair.candidate):
                again[reader.candidate] = reader
                self.replayed[reader.candidate] += self.replayed[pair.candidate]
                self.replayed[reader.candidate] += [failure.fed] * bool(failure.fed)
                if not failure.is_misfit or pair.candidate in self.joined:
                    self.joined.add(reader.candidate)
                if (failure.is_misfit and failure.fits) or pair.candidate in self.guessed:
                    self.guessed.add(reader.candidate)
                length = self.lengths.get(pair.candidate, 0) + failure.fits
                self.lengths[reader.candidate] = max(length, self.lengths.get(reader.candidate, 0))
                known = self.causes.get(reader.candidate, cause)
                self.causes[reader.candidate] = min(
                    cause, known, key=lambda each: self.order[each[0].original]
                )
                is_only = reader.candidate not in self.nearest
                self.nearest[reader.candidate] = (pair, failure) if is_only else None
        left = {pair: why for pair, why in failed.items() if pair.candidate not in again}
        return left | self._failed([p for p in again.values() if p.candidate in self.cuts])

    def _said(self, pair: Pair, failure: _Failure) -> str:
        called = _label(self.ours, pair.original)
        if pair.candidate != pair.original:
            called += f" ({pair.candidate!r} in the candidate)"
        return f"{called}, {failure.reason}"

    def _readers(self, name: str) -> Iterator[Pair]:
        """Yield the pairs next behind a value of the candidate that is no cut any more."""
        pending, seen = [name], {name}
        while pending:
            for row in self.theirs.readers.get(pending.pop(), ()):
                for output in filter(None, self.theirs.nodes[row].output):
                    if output in self.cuts:
                        yield self.cuts[output]
                    elif output not in seen:
                        seen.add(output)
                        pending.append(output)

    # Places that run: on what the original computes there, then on what is drawn.

    def _failed(self, pairs: Iterable[Pair]) -> dict[Pair, _Failure]:
        """Return the pairs whose places give something else."""
        wanted = [*dict.fromkeys(pairs)]
        places = [self.place(pair) for pair in wanted]
        while not self._are_feedable(places):
            places = [self.place(pair) for pair in wanted if pair.candidate in self.cuts]
        places = [place for place in places if not self.draws_random(place)]
        failures: dict[Pair, _Failure] = {}
        is_fed = {place: bool(place.reads) for place in places}
        for cases, some in (
            ([*self.feeds][:1], [place for place in places if not is_fed[place]]),
            ([*self.feeds], [place for place in places if is_fed[place]]),
        ):
            for group in self._groups(some):
                failures |= self._failed_of(group, cases)
        return failures

    def _failed_of(self, group: Sequence[Place], cases: Sequence[int]) -> dict[Pair, _Failure]:
        """Return the pairs of a group whose places give something else in some cases."""
        names = [*dict.fromkeys(name for place in group for name in self._captured(place))]
        feedings = [
            Feeding(_COMPUTED, {**_fed_as(outputs), **self.feeds[case]}, outputs)
            for case, outputs in self.stream.runs(names, {case: self.feeds[case] for case in cases})
        ]
        for place in group:
            self.sights[place.pair.candidate] = _Seen()
            self.wider.pop(place.pair.candidate, None)
        # First on the original's values, then on what is drawn.
        failures: dict[Pair, _Failure] = {}
        results = self.results(self.sides[1], group, feedings)
        for number, feeding in enumerate(feedings):
            left = [place for place in group if place.pair not in failures]
            given = {place: results[place, number] for place in left}
            failures |= self._failures_of(feeding, given, is_first=not number)
        rest = [place for place in group if place.pair not in failures]
        return failures | self._drawn_failures(rest, feedings[0])

    def _needed(self, place: Place) -> list[str]:
        return [name for name in (*place.reads, place.pair.original) if name in self.order]

    def _captured(self, place: Place) -> list[str]:
        end = place.pair.original
        return [name for name in self._needed(place) if name in self.sizes or name == end]

    def _groups(self, places: Sequence[Place]) -> Iterator[list[Place]]:
        """Yield places in groups whose values, and whose weights, may be held at once."""
        group: list[Place] = []
        held: set[object] = set()
        used = [0, 0]  # by values, and by weights
        most = [_HELD // len(self.feeds), _HELD]
        for place in places:
            values: dict[object, int] = {n: self.sizes.get(n, 0) for n in self._needed(place)}
            parts = [values, self._weights(place)]
            more = [sum(size for name, size in own.items() if name not in held) for own in parts]
            sums = [*map(sum, zip(used, more, strict=True))]
            if group and any(total > limit for total, limit in zip(sums, most, strict=True)):
                yield group
                group, held, sums = [], set(), [sum(own.values()) for own in parts]
            group.append(place)
            held.update(*parts)
            used = sums
        if group:
            yield group

    def _weights(self, place: Place) -> Mapping[object, int]:
        """Return how many bytes of weights each part of a place reads."""
        return {
            (side.place, name): bytes_of(tensor)
            for side, part in zip(self.sides, place.parts, strict=True)
            for row in part.nodes
            for name in side.wiring.reads[row]
            if (tensor := side.wiring.initializers.get(name)) is not None
        }

    def _failures_of(
        self,
        feeding: Feeding,
        results: Mapping[Place, Sequence[Leaf] | RunError],
        *,
        is_first: bool,
    ) -> dict[Pair, _Failure]:
        """Say what is wrong with what places give in one feeding; note the others."""
        failures: dict[Pair, _Failure] = {}
        doubtful: dict[Place, Sequence[Leaf]] = {}
        for place, given in results.items():
            self._note_rounding(place, feeding, given)
            if isinstance(given, RunError):
                reason = f"{feeding.what}: onnxruntime does not run it: {given}"
                failures[place.pair] = _Failure(reason)
            elif not _is_same(feeding.expected[place.pair.original], given) and (
                self._is_joined(place)
                or not self._compared(place, feeding, given, _FEW, is_brief=True).ok
            ):
                doubtful[place] = given
        exact = self._in_float64(
            [
                place
                for place, given in doubtful.items()
                if is_first or not self._compared(place, feeding, given, _THOUSAND).ok
            ],
            feeding,
        )
        for place, given in doubtful.items():
            failure = self._failure(place, feeding, given, exact.get(place))
            if failure and (alone := self._by_itself(place, feeding)) is not None:
                failure = self._failure(place, alone, given, exact.get(place))
            if failure:
                failures[place.pair] = failure
        for place, given in results.items():
            if place.pair not in failures and not isinstance(given, RunError):
                if failure := self._hidden(place, feeding, given, is_near=place not in doubtful):
                    failures[place.pair] = failure
                self.sights[place.pair.candidate].add(feeding.expected[place.pair.original])
        return failures

    def _note_rounding(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf] | RunError
    ) -> None:
        """Note how far off a place is; what is joined may not be its doing."""
        end = place.pair.original
        off = np.inf if isinstance(given, RunError) else _off(feeding.expected[end], given)
        if off:
            self.moved.add(place.pair.candidate)
        own = 0.0 if self._is_joined(place) else off
        self.roundings[end] = max(self.roundings.get(end, off), own)

    def _by_itself(self, place: Place, feeding: Feeding) -> Feeding | None:
        """Return what the original's part gives by itself, where it gives something else so.

        onnxruntime computes half precision in float32 from node to node, and rounds what it is
        asked for: fed what was rounded, the original gives something else, too.
        """
        ours = self.results(self.sides[0], [place], [feeding])[place, 0]
        if isinstance(ours, RunError) or _is_same(feeding.expected[place.pair.original], ours):
            return None
        return replace(feeding, expected={**feeding.expected, place.pair.original: ours})

    def _is_joined(self, place: Place) -> bool:
        return place.pair.candidate in self.joined

    def _hidden(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf], *, is_near: bool
    ) -> _Failure | None:
        """Say what is wrong with a place that gives the same but for rounding, if something is."""
        is_same = _is_same(feeding.expected[place.pair.original], given)
        if not is_same and self._has_same_operators(place) and self._has_edited_constants(place):
            return _Failure("a few of the numbers that it stores are others", is_final=True)
        if not self._is_joined(place):
            return None
        _, cause = self.causes[place.pair.candidate]
        is_guess = not (cause.is_sure or self._has_same_operators(place))
        if place.hides and not (is_near and self._would_show(place, feeding)):
            return _Failure("it differs before it is rounded to steps", is_drawn=is_guess)
        large = [leaf.data for leaf in feeding.expected[place.pair.original] if leaf.data.size > 1]
        if bool(large) and all(bool((data == data.flat[0]).all()) for data in large):
            return _Failure("it differs where all that follows is one number", is_drawn=is_guess)
        return None

    def _would_show(self, place: Place, feeding: Feeding) -> bool:
        """Tell whether it is no luck that what differs inside a place does not show at its end.

        The differences are given to other elements of what the original computes there. If many
        elements of the end move then, and none did before, the candidate has rounded to the same
        steps already.
        """
        before = self.nearest.get(place.pair.candidate) if place.hides else None
        end = feeding.expected[place.pair.original]
        if before is None or before[1].apart is None or len(end) != 1:
            return False
        pair, apart = before[0], before[1].apart
        cuts = {**self.partners, pair.original: pair}
        part = self._part(self.ours, cuts, place.pair.original)
        if pair.original not in part.reads or not np.isfinite(apart).all():
            return False
        inputs = {name: feeding.feeds[name] for name in next(iter(self.feeds.values()))}
        ((_, outputs),) = self.stream.runs([pair.original], {self._judge.case: inputs})
        (leaf,) = outputs[pair.original]
        moved = np.random.default_rng(0).choice(apart.reshape(-1), leaf.data.shape)
        moved = (leaf.data.astype(np.float64) + moved).astype(leaf.data.dtype)
        fed = replace(feeding, feeds={**feeding.feeds, pair.original: moved})
        only = replace(place, parts=(part, part), reads=part.reads)
        try:
            source, feeds = self.cut_out(self.sides[0], [only], fed, cuts)
            (found,) = Runner(source, REFERENCE_LEVEL).run(feeds)[made_name(part.end)]
        except RunError:
            return False
        if found.data.shape != end[0].data.shape:
            return False
        return int((found.data != end[0].data).sum()) * len(self.feeds) >= _SEEN

    def _failure(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf], exact: Exact | None
    ) -> _Failure | None:
        """Say what is wrong with what a place gives, if something is."""
        pair, expected = place.pair, feeding.expected[place.pair.original]
        fits = _forms(expected) == _forms(given)
        comparison = self._compared(place, feeding, given, _THOUSAND)
        reason = "" if comparison.ok else comparison.reason or "it differs"
        unit = UNITS.get(self._coarsest(place, feeding))
        if exact is not None and fits and unit is not None:
            reason = exact.objection(
                expected[0].data,
                given[0].data,
                unit,
                reason,
                is_joined=self._is_joined(place),
                moves=not (self._has_same_constants(place) or self._has_edited_constants(place)),
            )
        elif self._is_joined(place) and not place.hides and pair.candidate not in self.guessed:
            again = self._compared(place, feeding, given, _FEW)
            reason = "" if again.ok else reason or again.reason or "it differs"
        elif reason and fits and self._may_be_unsteady(place, feeding):
            limits = self._unsteadiness(place, feeding)
            if self._compared(place, feeding, given, _THOUSAND, limits).ok:
                reason, self.is_excused = "", True
        if not reason:
            return None
        reason = f"{feeding.what}{_at(comparison, feeding, place)}: {reason}"
        if pair.candidate in self.theirs.outputs:
            return _Failure(reason)
        is_index = expected[0].dtype in _INDICES if expected else False
        is_guess = pair.how == "readers" and (is_index or not self._is_one_node(pair))
        is_guess = is_guess and not self._is_rounded(pair)
        apart = None
        if fits and expected[0].dtype in FLOATS and len(given) == 1:
            with np.errstate(invalid="ignore"):
                apart = given[0].data.astype(np.float64) - expected[0].data.astype(np.float64)
        is_misfit = is_guess or not fits
        is_sure = not is_misfit and self._has_same_operators(place)
        return _Failure(reason, is_misfit=is_misfit, fits=fits, is_sure=is_sure, apart=apart)

    def _may_be_unsteady(self, place: Place, feeding: Feeding) -> bool:
        """Tell whether the original's own last bits may excuse a difference."""
        if all(node.op_type in UNROUNDED for node in place.nodes[0]):
            return False
        return feeding.is_drawn or (place.hides and self._may_round_elsewhere(place))

    def _may_round_elsewhere(self, place: Place) -> bool:
        """Tell whether a difference may be one of rounding to steps.

        Not if both parts are the same nodes with other constants: then it is these.
        """
        is_rough = not any(each.far for each in self._differences(place))
        return not self._has_same_operators(place) or is_rough

    def _has_same_operators(self, place: Place) -> bool:
        ours, theirs = (Counter(node.op_type for node in nodes) for nodes in place.nodes)
        return ours == theirs

    def _has_same_constants(self, place: Place) -> bool:
        """Tell whether both parts read equal constants in one order."""
        return not any(each.other for each in self._differences(place))

    def _has_edited_constants(self, place: Place) -> bool:
        """Tell whether a few numbers of a constant are others, which nothing in advance makes."""
        return any(each.is_edit for each in self._differences(place))

    def _differences(self, place: Place) -> list[_Difference]:
        """Return how the constants differ that both parts read in one order."""
        if place not in self.differences:
            pairs = self._constants(place)
            self.differences[place] = (
                [_UNLIKE] if pairs is None else [self._difference(*pair) for pair in pairs]
            )
        return self.differences[place]

    def _difference(self, one: TensorProto, other: TensorProto) -> _Difference:
        """Compare two constants; those in files are equal if they are the same part."""
        if (one.data_type, one.dims) != (other.data_type, other.dims):
            return _UNLIKE
        if TensorProto.EXTERNAL in (one.data_location, other.data_location):
            known = content_of(one)
            is_same = bool(known) and known == content_of(other)
            if is_same or [*one.external_data] == [*other.external_data]:
                return _EQUAL
        tables = [self.table(*each) for each in zip(self.sides, (one, other), strict=True)]
        ours, theirs = tables
        return _UNLIKE if ours is None or theirs is None else _difference(ours, theirs)

    def _constants(self, place: Place) -> list[tuple[TensorProto, TensorProto]] | None:
        """Return the constants that both parts read, in one order; None if one reads more."""
        ours, theirs = (
            [
                tensor
                for row in sorted(part.nodes)
                for name in side.wiring.reads[row]
                if (tensor := side.stored(name)) is not None
            ]
            for side, part in zip(self.sides, place.parts, strict=True)
        )
        return [*zip(ours, theirs, strict=True)] if len(ours) == len(theirs) else None

    def _is_rounded(self, pair: Pair) -> bool:
        """Tell whether both values are what the same operator rounds to steps."""
        ours = (self.ours.nodes[row] for row in self.ours.readers.get(pair.original, ()))
        theirs = (self.theirs.nodes[row] for row in self.theirs.readers.get(pair.candidate, ()))
        kinds = [
            {node.op_type for node in nodes if compare.rounds(node)} for nodes in (ours, theirs)
        ]
        return not kinds[0].isdisjoint(kinds[1])

    def _is_one_node(self, pair: Pair) -> bool:
        """Tell whether the same operator makes both, from values that correspond, or constants."""
        ours = self.ours.nodes[self.ours.makers[pair.original]]
        theirs = self.theirs.nodes[self.theirs.makers[pair.candidate]]
        kinds = {(node.op_type, node.domain, len(node.input)) for node in (ours, theirs)}
        return len(kinds) == 1 and all(
            self.cuts[b].original == a if b in self.cuts else b not in self.theirs.makers
            for a, b in zip(ours.input, theirs.input, strict=True)
        )

    def _unsteadiness(self, place: Place, feeding: Feeding) -> dict[str, Limit]:
        """Return how far the last bits of the original move the value of a place, over steps."""
        name, case = place.pair.original, self._judge.case
        source, feeds = self.cut_out(self.sides[0], [place], feeding)
        outputs: dict[int, Outputs] = {case: {made_name(name): tuple(feeding.expected[name])}}
        create = partial(Runner, level=REFERENCE_LEVEL)
        limits = compare.measure_limits(source, {case: feeds}, outputs, create)
        limit = limits.get(made_name(name))
        if limit is None or not np.isfinite(limit.max_abs):
            return {}
        if feeding.is_drawn:  # rows of one number, say, leave nothing but rounding
            limit = Limit(float64.TOO_COARSE * limit.max_abs, np.inf)
        return {name: limit}

    def _compared(  # noqa: PLR0913  # what is compared, and how
        self,
        place: Place,
        feeding: Feeding,
        given: Sequence[Leaf],
        roundings: int,
        limits: Mapping[str, Limit] = _NO_LIMITS,
        *,
        is_brief: bool = False,
    ) -> OutputComparison:
        """Compare what a place gives with what the original gives there."""
        name = place.pair.original
        maker = self.ours.nodes[self.ours.makers[name]]
        coarsest = self._coarsest(place, feeding)
        ranges = self.ranges[0]
        rounds = maker.op_type == "Cast" and not (
            ranges.is_whole(maker.input[0]) or ranges.is_integral(maker.input[0])
        )
        is_stepped = compare.quantises(maker) or (rounds and coarsest != "")
        is_stepped = is_stepped and roundings > _FEW and self._may_round_elsewhere(place)
        facts = compare.Facts(coarsest=coarsest, stepped=frozenset({name} if is_stepped else ()))
        judge = replace(
            self._judge, facts=facts, roundings=roundings, limits=limits, is_brief=is_brief
        )
        return judge.compare(name, feeding.expected[name], given)

    def _coarsest(self, place: Place, feeding: Feeding) -> str:
        """Return the coarsest float type that the original's part has to do with, "" if none."""
        types = {array.dtype.name for array in feeding.arrays(place).values()}
        types |= {leaf.dtype for leaf in feeding.expected.get(place.pair.original, ())}
        types |= {
            dtype_name(to.i) for node in place.nodes[0] if (to := attribute(node, "to")) is not None
        }
        return max(types & FLOATS, key=UNITS.__getitem__, default="")

    def _in_float64(self, places: Sequence[Place], feeding: Feeding) -> dict[Place, Exact]:
        """Compute places of both models in float64, where that can be done and says something."""
        ours, theirs = self.sides
        asked = [
            place
            for place in places
            if not place.jumps
            and all(array.dtype.kind not in "OUS" for array in feeding.arrays(place).values())
            and all(leaf.dtype in FLOATS for leaf in feeding.expected[place.pair.original])
            and self._is_small(place, feeding)
            and self._coarsest(place, feeding) != "float64"  # that would be no finer
        ]
        arrays_of: dict[Place, tuple[Array, ...]] = dict.fromkeys(asked, ())
        for side, precision in (
            (ours, float64.PLAIN),
            (theirs, float64.PLAIN),
            (ours, float64.MOVED),
            (ours, float64.CONSTANTS_MOVED),
            (theirs, float64.CONSTANTS_MOVED),
        ):
            if not arrays_of:
                return {}
            try:
                given = self.results(side, [*arrays_of], [feeding], precision)
            except StoppedError:
                return {}
            arrays_of = {
                place: arrays
                for place, known in arrays_of.items()
                if (arrays := float64.extended(known, given[place, 0]))
            }
        self.exact += len(arrays_of)
        return {place: Exact(*arrays) for place, arrays in arrays_of.items()}

    def _is_small(self, place: Place, feeding: Feeding) -> bool:
        read = sum(array.nbytes for array in feeding.arrays(place).values())
        size_out = sum(leaf.data.nbytes for leaf in feeding.expected.get(place.pair.original, ()))
        is_light = self._work(place, feeding) <= _EVALUATED_WORK
        return is_light and read + size_out <= _EVALUATED_BYTES

    def _work(self, place: Place, feeding: Feeding) -> int:
        """Estimate the multiplications of one run of the original's part."""
        size_out = sum(leaf.data.size for leaf in feeding.expected.get(place.pair.original, ()))
        work = sum(array.size for array in feeding.arrays(place).values()) + size_out
        work *= _EACH
        for node in place.nodes[0]:
            if (slot := WEIGHT_AXES.get(node.op_type)) is None or len(node.input) <= slot[0]:
                continue
            weight = self.ours.initializers.get(node.input[slot[0]])
            if weight is not None and weight.dims:
                positions = size_out // max(weight.dims[slot[1]], 1)
                work += int(np.prod(weight.dims)) * positions
        return work

    # Places on drawn values.

    def _drawn_failures(self, places: Sequence[Place], seen: Feeding) -> dict[Pair, _Failure]:
        """Run places on drawn values; say what is wrong with what some give.

        Args:
            places: Where; they gave the same on what the original computes.
            seen: What it computes.
        """
        failures: dict[Pair, _Failure] = {}
        for some, count in self._affordable(places, seen):
            # What places read that look past cuts is not among what was seen.
            if names := [n for place in some for n in place.reads if n not in seen.feeds]:
                more = _fed_as(self.stream.values(names))
                seen = replace(seen, feeds={**seen.feeds, **more})
            specs, feedings = self._feedings(some, seen, count)
            failures |= self._drawn(some, feedings, seen)
            for place in some:
                failures |= self._sought(place, seen, specs, failures)
            for place in some:
                failure = failures.get(place.pair)
                if failure is not None and failure.is_drawn and not failure.is_misfit:
                    covered = self.coverage[place.pair.candidate]
                    wider = self._spurious(place, seen)
                    if wider is None:
                        self.coverage[place.pair.candidate] = covered
                    else:
                        del failures[place.pair]
            ways = {place: self._ways(place) for place in some}
            for taken in dict.fromkeys(way for each in ways.values() for way in each):
                with_if = [p for p in some if p.pair not in failures and taken in ways[p]]
                what = f"with the {', in it the '.join(map(_BRANCH.__getitem__, taken))} taken"
                forced = [replace(fed, taken=taken, what=what) for fed in feedings]
                failures |= self._drawn(with_if, forced, seen)
        return failures

    def _feedings(
        self, places: Sequence[Place], seen: Feeding, count: int
    ) -> tuple[Mapping[str, DrawSpec], list[Feeding]]:
        """Return what is known of the values to draw, and some draws for all places."""
        specs = draw_specs(self, places, seen)
        self.axes |= {name: spec.axis for name, spec in specs.items() if spec.axis}
        drawn = general_draws(seen.feeds, specs, count)
        return specs, [Feeding(_DRAWN, fed, {}, is_drawn=True) for fed in drawn]

    def _sought(
        self,
        place: Place,
        seen: Feeding,
        specs: Mapping[str, DrawSpec],
        failures: Mapping[Pair, _Failure],
    ) -> dict[Pair, _Failure]:
        """Draw for what no run of a place showed yet, and for other sizes."""
        found = {pair: failures[pair] for pair in [place.pair] if pair in failures}
        found = found or self._searched(place, seen, specs)
        return found or self._resized(place, seen, specs)

    def _spurious(self, place: Place, seen: Feeding) -> Place | None:
        """Return a wider place in which what drawn values showed does not show; None if none is.

        Truth values hang together, as whether a number is even and whether 4 divides it: they are
        never what was drawn. So the place looks past them, to what they are told of.
        (Counterexample-guided refinement: E. Clarke et al., CAV 2000.)
        """
        wider: Place | None = place
        for _ in range(_WIDENED):
            truths = self._truths(wider, seen) if wider is not None else []
            if wider is None or not truths:
                break
            wider = self.even(self.place(place.pair, wider.without | {*truths}))
        if (
            wider is None
            or wider is place
            or len(self._truths(place, seen)) == 1 == len(place.reads)
        ):
            return None
        seen = self._with_more([wider], seen)
        work = 2 * self._work(wider, seen) * _BATCH * _ROUNDS
        if work > self.left_to_search:
            return None
        self.left_to_search -= work
        self.coverage.pop(place.pair.candidate, None)
        specs, feedings = self._feedings([wider], seen, GENERAL)
        fed = [Feeding(_COMPUTED, seen.feeds, {}, is_drawn=True), *feedings]
        self.wider[place.pair.candidate] = wider
        found = self._drawn([wider], fed, seen)
        if found or self._sought(wider, seen, specs, found):
            del self.wider[place.pair.candidate]
            return None
        return wider

    def _truths(self, place: Place, seen: Feeding) -> list[str]:
        """Return the truth values that a place reads and that nodes make."""
        made = [name for name in place.reads if name in self.order]
        fed = self._with_more([place], seen).feeds
        return [n for n in made if isinstance(a := fed.get(n), np.ndarray) and a.dtype.kind == "b"]

    def _searched(
        self, place: Place, seen: Feeding, specs: Mapping[str, DrawSpec]
    ) -> dict[Pair, _Failure]:
        """Draw for what no run of a place showed, until all is seen or the budget ends."""
        name, work = place.pair.candidate, 2 * self._work(place, seen)
        search = Search(
            self.coverage[name],
            _made_in(place),
            seen.feeds,
            {name: specs[name] for name in place.reads if name in specs},
            replays=self.replayed[name],
            beside=[] if name in self.moved else beside_edits(*place.nodes),
            first=_JOINED_BATCH if self._is_joined(place) or name in self.wider else _BATCH,
        )
        failures: dict[Pair, _Failure] = {}
        for _ in range(_ROUNDS):
            drawn = search.draws(self.left_to_search // max(work, 1))
            if failures or not drawn:
                break
            self.left_to_search -= work * len(drawn)
            feedings = [Feeding(_DRAWN, fed, {}, is_drawn=True) for fed in drawn]
            failures = self._drawn([place], feedings, seen)
        return failures

    def _resized(
        self, place: Place, seen: Feeding, specs: Mapping[str, DrawSpec]
    ) -> dict[Pair, _Failure]:
        """Draw for a place with other sizes, which callers choose: 0, 1, 2, and beyond bounds."""
        graph = self.models[0].graph
        sizes = sizes_of(seen.arrays(place), graph, graph.model.memory(Knowledge))
        if sizes is None:
            return {}
        bounds = set[int]().union(
            sizes.bounds(),
            *(
                bounds_of(nodes, self.sides[which].stored)
                for which, nodes in enumerate(place.nodes)
            ),
        )
        feedings: list[Feeding] = []
        may_be_empty = not any(node.op_type in _NEVER_EMPTY for node in place.any_node())
        power = 2 if any(node.op_type in WEIGHT_AXES for node in place.any_node()) else 1
        for before, size, chosen in sizes.tried(bounds):
            if not size and not may_be_empty:
                continue
            work = 2 * self._work(place, seen) * max(1, size // max(before, 1)) ** power
            is_cheap = work <= min(self.left_to_search, _MOST_OF_A_SIZE)
            feeds = sizes.fed(chosen, before, specs) if is_cheap else None
            if feeds is not None:
                self.left_to_search -= work
                what = f"fed with a size of {size:,} instead of {before:,}"
                feedings.append(Feeding(what, {**seen.feeds, **feeds}, {}, is_drawn=True))
        return self._drawn([place], feedings, seen)

    def _with_more(self, places: Sequence[Place], seen: Feeding) -> Feeding:
        """Add what places read that look past cuts."""
        names = [n for place in places for n in place.reads if n not in seen.feeds]
        if not names:
            return seen
        return replace(seen, feeds={**seen.feeds, **_fed_as(self.stream.values(names))})

    def _drawn(
        self, places: Sequence[Place], feedings: Sequence[Feeding], seen: Feeding
    ) -> dict[Pair, _Failure]:
        """Run places of both models on drawn values."""
        failures: dict[Pair, _Failure] = {}
        try:
            ours, theirs = (self.results(side, places, feedings) for side in self.sides)
        except StoppedError:
            return {}  # as where a whole number is divided by zero
        for number, drawn in enumerate(feedings):
            for place in places:
                expected, given = ours[place, number], theirs[place, number]
                if place.pair in failures or isinstance(expected, RunError):
                    continue
                feeding = replace(drawn, expected={place.pair.original: expected})
                if isinstance(given, RunError):
                    if not self._is_only_unsupported(place, feeding):
                        reason = f"{feeding.what}: onnxruntime does not run it: {given}"
                        failures[place.pair] = _Failure(reason, is_drawn=True)
                elif failure := self._judged_draw(place, feeding, given):
                    if failure.is_drawn:
                        failure = replace(failure, reason=failure.reason + _reach(place, seen))
                    failures[place.pair] = failure
        return failures

    def _judged_draw(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf]
    ) -> _Failure | None:
        """Say what is wrong with a place in one draw, and note what it showed if nothing is."""
        end, name = place.pair.original, place.pair.candidate
        expected = feeding.expected[end]
        finite = _where_finite(expected, given)
        if not _is_same(given, finite) or _has_other_zeros(expected, given):
            self.notes[place.pair] = _label(self.ours, end)
        if not _is_same(expected, finite):
            self.moved.add(name)
        self.is_excused = place.hides and not self._compared(place, feeding, finite, _FEW).ok
        failure = self._drawn_failure(place, feeding, finite)
        if failure is None:
            has_none = any(
                leaf.data.dtype.kind == "f" and np.isnan(leaf.data).any() for leaf in expected
            )
            if self.is_excused or has_none:  # what it might have shown was not judged
                self.coverage[name].revoke(feeding.feeds)
            self.sights[name].add(expected)
            return None
        if not _is_finite(place, feeding) and not any(map(is_guard, place.nodes[0])):
            self.notes[place.pair] = _label(self.ours, end)
            return None
        return replace(failure, fed=feeding.arrays(place))

    def _is_only_unsupported(self, place: Place, feeding: Feeding) -> bool:
        """Tell whether a place that is fed nothing is refused by operators the original has not."""
        is_fed = all(array.size for array in feeding.arrays(place).values())
        return not is_fed and not self._has_same_operators(place)

    def _drawn_failure(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf]
    ) -> _Failure | None:
        """Say what is wrong with what a place gives for drawn values, if something is."""
        if self._compared(place, feeding, given, _THOUSAND, is_brief=True).ok:
            return None
        exact = self._in_float64([place], feeding)
        failure = self._failure(place, feeding, given, exact.get(place))
        if failure is None:
            return None
        return self._reached(place, feeding) or replace(failure, is_drawn=True)

    def _reached(self, place: Place, feeding: Feeding) -> _Failure | None:
        """Say what is wrong if the inputs of the model themselves have the drawn values."""
        direct = {name: feeding.feeds[name] for name in place.reads if name in self.inputs}
        if not direct or feeding.taken:
            return None
        case = next(iter(self.feeds))
        feeds = {case: {**self.feeds[case], **direct}}
        try:
            ((_, outputs),) = self.stream.runs(self._captured(place), feeds)
            real = replace(feeding, feeds={**_fed_as(outputs), **feeds[case]}, expected=outputs)
            given = self.results(self.sides[1], [place], [real])[place, 0]
        except (RunError, StoppedError):
            return None
        if isinstance(given, RunError):
            return None
        given = _where_finite(outputs[place.pair.original], given)
        if self._compared(place, real, given, _THOUSAND).ok:
            return None
        return self._failure(place, real, given, self._in_float64([place], real).get(place))

    def _affordable(
        self, places: Sequence[Place], seen: Feeding
    ) -> Iterator[tuple[list[Place], int]]:
        """Yield which places to run on how many draws, within the work that is left.

        Of places of one kind that the inputs show, one is enough, unless their weights differ: a
        wrong one shows on no input if it weighs what is zero there.
        """
        together: dict[int, list[Place]] = defaultdict(list)
        kinds: dict[object, Pair] = {}
        for narrow in places:
            kind, sight = self._kind(narrow), self.sights[narrow.pair.candidate]
            is_shown, is_joined = len(sight.numbers) >= _TELLING, self._is_joined(narrow)
            is_known = kind in kinds and is_shown and not narrow.branches and not is_joined
            if is_known and self._has_same_constants(narrow):
                self.alike[narrow.pair.candidate] = kinds[kind]
                continue
            if not (place := self.even(narrow)):
                continue
            kinds.setdefault(kind, narrow.pair)
            work = self._work(place, seen) * (1 + len(self._ways(place)))
            count = GENERAL if work * GENERAL <= self.left else 1
            if work > self.left and is_shown:
                yield [place], 0
                continue
            self.left -= work * count
            if place.without:
                yield [place], count
            else:
                together[count].append(place)
        yield from ((some, count) for count, some in together.items())

    def _kind(self, place: Place) -> object:
        """Return what two places share that differ in weights alone."""
        forms_of = []
        for side, part in zip(self.sides, place.parts, strict=True):
            cuts = self.cuts_of(side.place, place.without)
            wires = {
                name: place.reads.index(cuts[name].original) if name in cuts else at
                for at, name in enumerate(part.reads)
            }
            for row in sorted(part.nodes):
                node = side.wiring.nodes[row]
                known = (
                    name in side.wiring.makers or name in wires
                    for name in (*node.input, *node.output)
                )
                ends = tuple(
                    wires.setdefault(name, len(wires)) if is_known else -1
                    for name, is_known in zip((*node.input, *node.output), known, strict=True)
                )
                attributes = tuple(item.SerializeToString() for item in node.attribute)
                read = [side.wiring.initializers.get(name) for name in node.input]
                most = BOUND_CONSTANT if node.op_type in BOUNDING else LARGE_CONSTANT
                forms = (_form_of(tensor, most) for tensor in read)
                forms_of.append((node.domain, node.op_type, attributes, ends, *forms))
        return tuple(forms_of)

    def _ways(self, place: Place) -> list[tuple[bool, ...]]:
        """Return which branches the If nodes of a place take in turn: those in no other, and so on.

        If there is none whose branches can be chosen, there is no way.
        """
        depth = min(self.depth_of_ifs(place), _DEEPEST_IF)
        return [*product((True, False), repeat=depth)] if depth else []


_SIDES = ("original", "candidate")

_COMPUTED = "fed what the original computes"

_DRAWN = "fed drawn values"


def _made_in(place: Place) -> tuple[set[str], set[str]]:
    """Return what the nodes of both parts give, those in bodies too."""
    ours, theirs = ({name for node in nodes for name in node.output} for nodes in place.nodes)
    return ours, theirs


_BRANCH = {True: "then-branch", False: "else-branch"}


def _fed_as(outputs: Mapping[str, Sequence[Leaf]]) -> dict[str, Feed]:
    """Return what a model gave as it is fed, without what cannot be fed."""
    values = {name: value_of(leaves) for name, leaves in outputs.items()}
    return {name: value for name, value in values.items() if value is not None}


def _form_of(tensor: TensorProto | None, most: int) -> object:
    """Return what is known of a constant by itself: small ones count in full."""
    if tensor is None or np.prod(tensor.dims) > most:
        return None if tensor is None else (tensor.data_type, tuple(tensor.dims))
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.ClearField("name")
    return copy.SerializeToString()


def _tells_size(node: NodeProto, name: str) -> bool:
    """Tell whether a node reads nothing of a value but its size or its type."""
    return node.op_type in MEASURING or (node.op_type == "CastLike" and node.input[0] != name)


def _where_finite(expected: Sequence[Leaf], given: Sequence[Leaf]) -> Sequence[Leaf]:
    """Return *given* with what is expected wherever that is no finite number."""
    if _forms(expected) != _forms(given):
        return given
    return [
        replace(new, data=np.where(np.isfinite(old.data), new.data, old.data))
        if old.data.dtype.kind == "f"
        else new
        for old, new in zip(expected, given, strict=True)
    ]


def _all_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _is_finite(place: Place, feeding: Feeding) -> bool:
    """Tell whether a place is fed finite numbers alone."""
    arrays = feeding.arrays(place).values()
    return all(map(_all_finite, arrays))


def _has_other_zeros(expected: Sequence[Leaf], given: Sequence[Leaf]) -> bool:
    """Tell whether some zeros have another sign."""
    return _forms(expected) == _forms(given) and any(
        old.data.dtype.kind == "f"
        and bool(((old.data == 0) & (np.signbit(old.data) != np.signbit(new.data))).any())
        for old, new in zip(expected, given, strict=True)
    )


def _reach(place: Place, seen: Feeding) -> str:
    """Say what the inputs of the model gave where a place reads."""
    told = []
    for name in place.reads[:_MOST_TOLD]:
        array = seen.feeds.get(name)
        if isinstance(array, np.ndarray) and array.dtype.kind in "fiub" and array.size:
            least, most = array.min(), array.max()
            told.append(
                f"{name} = {least}" if least == most else f"{name} from {least:.6g} to {most:.6g}"
            )
    return f"; the inputs reach {', '.join(told)}" if told else ""


def _at(found: OutputComparison, feeding: Feeding, place: Place) -> str:
    """Say what was fed where a difference is largest: single values, and those of that shape."""
    if found.worst_index is None or not feeding.is_drawn:
        return ""
    shown = []
    for name, array in feeding.arrays(place).items():
        if array.dtype.kind in "fiub":
            if array.size == 1:
                shown.append(f"{name} = {array.item()!s:.12}")
            elif array.shape == found.shape:
                number = array[found.worst_index]
                shown.append(f"{name} = {number if array.dtype.kind == 'b' else f'{number:.6g}'}")
    return f" ({', '.join(shown)})" if shown else ""


def _junctions(pairs: Iterable[Pair], agreed: Mapping[str, str]) -> Iterator[Junction]:
    return (Junction(pair.original, pair.candidate, pair.how, agreed) for pair in pairs)


def _is_same(expected: Sequence[Leaf], given: Sequence[Leaf]) -> bool:
    """Tell whether two values are the same, element for element."""
    return _forms(expected) == _forms(given) and all(
        np.array_equal(a.data, b.data) for a, b in zip(expected, given, strict=True)
    )


def _off(expected: Sequence[Leaf], given: Sequence[Leaf]) -> float:
    """Return how many units in the last place of the largest number a value is off, at most."""
    if _is_same(expected, given):
        return 0.0
    worst = 0.0
    for old, new in zip(expected, given, strict=False):
        unit = UNITS.get(old.dtype, 1.0) * scale_of(old.data) if old.dtype in FLOATS else 1.0
        if old.data.shape != new.data.shape or old.data.dtype.kind not in "iuf" or not unit:
            return np.inf
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(new.data.astype(np.float64) - old.data.astype(np.float64))
        worst = max(worst, float(np.nanmax(apart, initial=0.0)) / unit)
    return worst


def _difference(ours: Array, theirs: Array) -> _Difference:
    """Compare two constants of one shape, element by element."""
    unit = UNITS.get(ours.dtype.name)
    other_count = far_count = moved_count = 0
    for start in range(0, ours.size, _AT_ONCE):
        one, other = (each.reshape(-1)[start : start + _AT_ONCE] for each in (ours, theirs))
        is_other = one != other
        if not is_other.any():
            continue
        is_far, is_moved = is_other, np.zeros_like(is_other)
        if unit is not None:
            old, new = one.astype(np.float64), other.astype(np.float64)
            is_other &= ~(np.isnan(old) & np.isnan(new))
            rounded = float64.ROUNDED_AGAIN * unit
            with np.errstate(over="ignore", invalid="ignore"):  # one infinity minus another
                off = np.abs(new - old)
                is_far = is_other & ~(off <= rounded * scale_of(old))
                is_moved = is_other & ~(off <= rounded * np.abs(old))
        other_count += int(is_other.sum())
        far_count += int(is_far.sum())
        moved_count += int(is_moved.sum())
    return _Difference(other_count, far_count, moved_count, ours.size)


def _label(wiring: Wiring, name: str) -> str:
    return f"{wiring.nodes[wiring.makers[name]].op_type} {name!r}"


def _forms(leaves: Sequence[Leaf]) -> list[tuple[str, tuple[int, ...]]]:
    return [(leaf.dtype, leaf.data.shape) for leaf in leaves]
