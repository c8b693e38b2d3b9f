"""Each place where two models differ, judged by itself: on what enters there, and on what tells.

The outputs of a whole model are a poor witness. Where a model rounds to steps, sorts, or repeats
itself, the last bits of a value decide over large differences further down; and a branch that is
not taken, a bound that is not met, a number that is not fed show in no output at all.

So both models are aligned before anything runs (:mod:`dplcli.analysis.pairing`), and cut at the
values of pairs. What lies between two cuts is a place. Where both models say the same, node for
node (:mod:`dplcli.verify.numbering`), nothing need run. Each other place is cut out of both models
and runs by itself:

- on what the original computes there, for the inputs of the model;
- on values drawn for what its operators may do (:mod:`dplcli.verify.search`), within what can be
  there at all (:mod:`dplcli.verify.ranges`); with branches taken that the inputs do not take.

A difference on what the inputs reach is a difference. One that only drawn values show is a doubt,
unless the model gives it when its own inputs have these values. Where the original itself gives no
finite number, nothing is compared. A place is seen when every behaviour of its operators was
reached (:mod:`dplcli.verify.behaviours`). What was not seen is a doubt, too.

What is rounding, and what is not, :mod:`dplcli.verify.judgement` says.

Some pairs are guesses: steps on two ways to one result. So a place that gives something else is
joined with those that read it, a few times. What was joined has to agree in float64, or in nearly
all bits: else a difference could hide behind the tolerance of a longer way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.analysis.extract import Wiring, made_name
from dplcli.diff.comparison import Differ
from dplcli.diff.sentences import sentences
from dplcli.ir.operators import BOUNDING, EXPLOSIVE, HEAVY, NEVER_EMPTY, WEIGHT_AXES
from dplcli.shapes.knowledge import Knowledge, assume
from dplcli.verify import compare, float64
from dplcli.verify.behaviours import (
    beside_edits,
    bounds_of,
    edits,
    is_guard,
    oddities_of,
)
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.cuts import CutModels, Place, truncates
from dplcli.verify.draw_specs import BOUND_CONSTANT, LARGE_CONSTANT, draw_specs
from dplcli.verify.experiment import Experiment, Feeding
from dplcli.verify.judgement import (
    FEW,
    THOUSAND,
    Failure,
    Judgement,
    Seen,
    forms_of,
    is_same,
    off_by,
)
from dplcli.verify.layers import WIDEST, Pair, ValueStream, value_of
from dplcli.verify.model import bytes_of
from dplcli.verify.ranges import Interval
from dplcli.verify.run import Runner
from dplcli.verify.search import (
    AS_SEEN,
    GENERAL,
    LONG,
    MANY,
    Search,
    Sizes,
    finite_of,
    general_draws,
    odd_draws,
    sizes_of,
)
from dplcli.verify.values import Leaf, RunError, StoppedError, arrays_in, leaves_of
from dplcli.verify.verdict import Junction, LocalJudgement, Sight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.ir.types import Exempt
    from dplcli.verify.compare import Judge
    from dplcli.verify.coverage import PlaceCoverage
    from dplcli.verify.draw_specs import DrawSpec
    from dplcli.verify.inputs import Reference
    from dplcli.verify.values import Feed, ModelSource, Outputs

_HELD = 1 << 29
"""How many bytes of the original's values are held at once; one place may need more."""

_JOINED = 8
"""How often in a row a place that gives other numbers is joined with those that read it."""

_MOST_TOLD = 3
"""Of how many values it is told what the inputs reach."""

_SEEN = 14
"""How many elements a difference has to move behind an operator that rounds to steps, in all cases
together, when other elements have it. If it moves none where it is, that is luck once in a million
times."""

_MOST_DRAWN = 1 << 28
"""How many multiplications may be done on drawn values, for all places together."""

_MOST_SEARCHED = 1 << 33
"""How many on draws that go after what no run showed, for all places together."""

_ROUNDS, _BATCH = 6, 8
"""How often it is drawn for what is missing, and how many draws at once."""

_WIDENED = 4
"""How often in a row a place looks past what it reads if it differs on drawn values alone."""

_MOST_MORE = 4
"""With how many drawn inputs, for which a place differs, those behind it are judged, too."""

_NEAR = 3
"""How many nodes back a value is looked for that two others are made from."""

_JOINED_BATCH = 64
"""How many draws there are first for a joined place: what differs inside may show seldom."""

_SHARE = 4
"""Which part of what is left one place may take: there is something left for each."""

_RUNS_EACH = 4
"""How many runs of its own size each place may take for other sizes, whatever is left."""

_MANY_SIZES = 4
"""How many sizes show all that follows from sizes alone, if nothing bounds them."""

_MOST_LENGTHENED = 1 << 30
"""How many for draws with long sizes, of all places together."""

_MOST_OF_A_SIZE = 1 << 29
"""How many for one draw with another size."""

_MANY_ROWS = 64
"""From how many missing rows on a table is read whole."""

_READ_AT_ONCE = 1 << 26
"""How many bytes a place gives at once where a table is read whole."""

_DEEPEST_IF = 3
"""How deep If nodes lie in each other whose branches are all taken; further in, as the last."""

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


class _Places(CutModels):
    """The places where a candidate differs.

    Attributes:
        feeds: What the original is fed, in each case.
        stream: What the original computes.
        sizes: Upper bounds of the bytes of the original's values.
        experiment: Runs places.
        judgement: Says what is wrong with what they give.
        records: What is known of each, by the candidate's value.
        left: How much work may still be done on drawn values.
        left_to_search: How much may be done on draws for what no run showed.
        left_for_length: How much may be done with long sizes.
    """

    def __init__(
        self, reference: Reference, candidate: ModelSource, judge: Judge, cases: Sequence[int]
    ) -> None:
        of_rule = judge.check.of_rule is not None
        inputs = reference.feeds[cases[0]]
        super().__init__(reference.source, candidate, inputs, is_whole=of_rule)
        assume(self.models[0], judge.check.request.sums)
        self.feeds = {case: {**self.defaults, **reference.feeds[case]} for case in cases}
        self._given = len(self.feeds)
        self._kinds: dict[Place, object] = {}
        self._sized: set[object] = set()  # the forms of places that were fed with other sizes
        self._judge = judge
        for name, ends in judge.check.request.ranges.items() if of_rule else ():
            for ranges in self.ranges:
                ranges.limit(name, Interval(*ends))
        self.stream = ValueStream(self.sides[0].source, self.inputs, _HELD)
        self._returned = reference.outputs
        self.sizes = {
            name: leaves[0].data.size * WIDEST
            for name, leaves in reference.outputs[cases[0]].items()
            if len(leaves) == 1 and not leaves[0].label
        }
        self.experiment = Experiment(self)
        self.judgement = Judgement(self, self.experiment, judge)
        self.records = self.judgement.records
        self.left = _MOST_DRAWN
        self.left_to_search = _MOST_SEARCHED
        self.left_for_length = 0 if of_rule else _MOST_LENGTHENED  # rules are tried with many sizes

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
            first, why = self.records[pair.candidate].cause or (pair, failure)
            if why.is_drawn != failure.is_drawn:
                first, why = pair, failure
            (doubts if failure.is_drawn else objections)[first] = self._said(first, why)
        objections, doubts = map(self._in_order, (objections, doubts))
        seen = [pair for pair in self.changed() if pair not in failed]
        unseen = dict(self._unseen(seen))
        noted = {pair: note for pair in seen if (note := self.records[pair.candidate].note)}
        if self._judge.check.strict:
            objections |= noted
            noted = {}
        doubtful = {**objections, **doubts, **unseen}
        return LocalJudgement(
            judged=len(changed),
            unchanged=len(pairs) - len(changed),
            differing=tuple(objections.values()),
            exact=self.judgement.exact,
            unseen=(*doubts.values(), *unseen.values()),
            changes=tuple(self._changes([*doubtful])) if doubtful else (),
            notes=tuple(noted.values()),
            odd=self._odd(failed, seen),
            behaviours=self._behaviours(seen),
            sights=tuple(self._sight(pair) for pair in seen if pair not in unseen),
            places=(
                *_junctions(doubtful, every),
                *_junctions({pair: why.reason for pair, why in failed.items()}, self._agreed()),
            ),
            case=next(iter(self.feeds)),
            roundings={
                pair.original: self.records[pair.candidate].rounding or 0.0 for pair in changed
            },
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
                self.give_up(name)
            return not lost
        return True

    def _stored(self) -> dict[Pair, Failure]:
        """Compare outputs that the candidate stores with what the original computes."""
        computed = [name for name in self.ours.outputs if name in self.order]
        stored = {
            Pair(name, name, "output"): onnx.numpy_helper.to_array(tensor)
            for name in computed
            if (tensor := self.theirs.initializers.get(name)) is not None
            and tensor.data_location != TensorProto.EXTERNAL
        }
        values = self.stream.values([pair.original for pair in stored]) if stored else {}
        judge = replace(self._judge, facts=compare.Facts(), roundings=THOUSAND)
        failures = {}
        for pair, array in stored.items():
            compared = judge.compare(pair.original, values[pair.original], leaves_of(array))
            if not compared.ok:
                failures[pair] = Failure(
                    compared.reason or "another value is stored", is_final=True
                )
        return failures

    def _agreed(self) -> dict[str, str]:
        return {pair.original: pair.candidate for pair in self.cuts.values()}

    def _unseen(self, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, str]]:
        """Say which places gave nothing that tells."""
        for pair in pairs:
            place = self.place(pair)
            record = self.records[pair.candidate]
            sight = record.seen
            if self.draws_random(place):
                why = "draws random numbers, so that what differs there cannot be seen"
            elif not sight.runs:
                why = "was not seen: nothing of it ran"
            elif record.replays and not (record.is_drawn_for or record.alike):
                why = "was not seen: it differs inside for drawn values, which it cannot be fed"
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
        drawn = self.records[pair.candidate].alike or pair
        place = self.records[drawn.candidate].wider or self.place(drawn)
        return place, self.experiment.coverage[drawn.candidate]

    def _missing(self, pair: Pair) -> str:
        """Say which behaviours of a place no run showed; "" if all were seen."""
        place, covered = self._covered(pair)
        rows = covered.missing_rows()
        rows_left = {} if rows and self._is_still(place) else rows
        told = [
            f"{covered.met[key].op_type} {key.value!r} of the {_SIDES[key.side]} is {key.piece}"
            for key in covered.missing(_made_in(place))
        ]
        told += [
            f"row {rows[0]:,} of what {name!r} of the {_SIDES[side]} reads is chosen"
            for (side, name), rows in rows_left.items()
        ]
        if not self.records[place.pair.candidate].is_moved:
            told += [f"{label} reads {what}" for label, (_, what) in edits(*place.nodes).items()]
            told += [f"what differs in {name!r} is read" for name in self._unread(place, covered)]
        if untried := self.records[place.pair.candidate].untried:
            told.append(f"it is fed {untried}, which took too long")
        return " or ".join(told[:_MOST_TOLD])

    def _unread(self, place: Place, covered: PlaceCoverage) -> Iterator[str]:
        """Yield constants of which a few numbers are others, without tables read by rows."""
        by_rows = {
            name
            for row in place.parts[0].nodes
            for at, name in enumerate(self.ours.nodes[row].input)
            if f"{self.ours.nodes[row].output[0]}.{at}" in covered.tables[0]
        }
        pairs = self.judgement.constants(place) or []
        for (one, _), found in zip(pairs, self.judgement.differences(place), strict=False):
            if found.is_edit and one.name not in by_rows:
                yield one.name

    def _sight(self, pair: Pair) -> Sight:
        seen = self.records[pair.candidate].seen
        low, high = (seen.low, seen.high) if seen.low <= seen.high else (None, None)
        place, covered = self._covered(pair)
        reached, possible = covered.count(_made_in(place))
        label = _label(self.ours, pair.original)
        return Sight(label, seen.runs, len(seen.numbers), low, high, reached, possible)

    def _odd(self, failed: Mapping[Pair, Failure], seen: Sequence[Pair]) -> tuple[Exempt, ...]:
        """Return the odd numbers for which places differ, whether that is excused or not."""
        fed = next((why.fed or why.inputs for why in failed.values()), {})
        given = oddities_of(array for array in fed.values() if isinstance(array, np.ndarray))
        given.discard("zero_sign")  # many a draw has it
        return tuple(sorted(given.union(*(self.records[pair.candidate].odd for pair in seen))))

    def _behaviours(self, pairs: Sequence[Pair]) -> dict[str, bool]:
        """Return whether some run showed each behaviour of the operators of places."""
        shown: dict[str, bool] = {}
        for pair in pairs:
            place, covered = self._covered(pair)
            for behaviour, is_reached in covered.behaviours(_made_in(place)):
                shown[behaviour] = is_reached or shown.get(behaviour, False)
        return shown

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
            self.ranges[which].is_size(name) or side.is_measured(name, part)
            for which, (side, part) in enumerate(zip(self.sides, place.parts, strict=True))
            for name in part.reads
        )

    # Places that are joined with those that read them.

    def _misfits(self, failed: Mapping[Pair, Failure]) -> list[Pair]:
        """Return the pairs that were never meant to be the same."""
        misfits = (pair for pair, failure in failed.items() if failure.is_misfit)
        return [pair for pair in misfits if self._may(pair, failed[pair])]

    def _first(self, failed: Mapping[Pair, Failure]) -> list[Pair]:
        """Return the other pairs that may be joined: those that read none that failed, too."""
        wrong = {pair.candidate for pair in failed}
        return [
            pair
            for pair, failure in failed.items()
            if self._may(pair, failure) and wrong.isdisjoint(self.place(pair).parts[1].reads)
        ]

    def _may(self, pair: Pair, failure: Failure) -> bool:
        """Tell whether a place may be joined with those that read it."""
        is_open = not failure.is_final and pair.candidate not in self.theirs.outputs
        return is_open and self.records[pair.candidate].length < _JOINED

    def _without(self, pairs: Sequence[Pair], failed: dict[Pair, Failure]) -> dict[Pair, Failure]:
        """Take cuts out, and judge again what reaches further now; return what fails then."""
        again: dict[str, Pair] = {}
        for pair in pairs:
            failure = failed.pop(pair)
            if failure.inputs and len(self.feeds) < self._given + _MOST_MORE:
                # What follows is fed what the original computes there, too.
                first = next(iter(self.feeds))
                self.feeds[max(self.feeds) + 1] = {**self.feeds[first], **failure.inputs}
            self.give_up(pair.original)
            record = self.records[pair.candidate]
            cause = record.cause or (pair, failure)
            for reader in self._readers(pair.candidate):
                again[reader.candidate] = reader
                its = self.records[reader.candidate]
                its.replays += record.replays + [failure.fed] * bool(failure.fed)
                its.is_joined |= record.is_joined or not failure.is_misfit
                its.is_guessed |= record.is_guessed or (failure.is_misfit and failure.fits)
                its.length = max(its.length, record.length + failure.fits)
                causes = (cause, its.cause or cause)
                its.cause = min(causes, key=lambda each: self.order[each[0].original])
                its.behind.append((pair, failure))
        left = {pair: why for pair, why in failed.items() if pair.candidate not in again}
        return left | self._failed([p for p in again.values() if p.candidate in self.cuts])

    def _said(self, pair: Pair, failure: Failure) -> str:
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

    def _failed(self, pairs: Iterable[Pair]) -> dict[Pair, Failure]:
        """Return the pairs whose places give something else."""
        wanted = [*dict.fromkeys(pairs)]
        places = [self.place(pair) for pair in wanted]
        while not self._are_feedable(places):
            places = [self.place(pair) for pair in wanted if pair.candidate in self.cuts]
        places = [place for place in places if not self.draws_random(place)]
        failures: dict[Pair, Failure] = {}
        is_fed = {place: bool(place.reads) for place in places}
        for cases, some in (
            ([*self.feeds][:1], [place for place in places if not is_fed[place]]),
            ([*self.feeds], [place for place in places if is_fed[place]]),
        ):
            for group in self._groups(some):
                failures |= self._failed_of(group, cases)
        return failures

    def _failed_of(self, group: Sequence[Place], cases: Sequence[int]) -> dict[Pair, Failure]:
        """Return the pairs of a group whose places give something else in some cases."""
        names = [*dict.fromkeys(name for place in group for name in self._captured(place))]
        runs: Iterable[tuple[int, Outputs]] = self.stream.runs(
            names, {case: self.feeds[case] for case in cases}
        )
        if all(self._returned.get(case, {}).keys() >= {*names} for case in cases):
            runs = ((case, self._returned.get(case, {})) for case in cases)
        feedings = []
        for number, (case, outputs) in enumerate(runs):
            fed, is_drawn = {**_fed_as(outputs), **self.feeds[case]}, number >= self._given
            feedings.append(Feeding(_ALSO if is_drawn else _COMPUTED, fed, outputs, is_drawn))
        for place in group:
            record = self.records[place.pair.candidate]
            record.seen, record.shown, record.wider = Seen(), 0, None
            record.is_drawn_for = False
        # First on the original's values, then on what is drawn.
        failures: dict[Pair, Failure] = {}
        results = self.experiment.run(self.sides[1], group, feedings)
        for number, feeding in enumerate(feedings):
            left = [place for place in group if place.pair not in failures]
            given = {place: results[place, number] for place in left}
            if feeding.is_drawn:
                given = {
                    place: leaves
                    if isinstance(leaves, RunError)
                    else _where_finite(feeding.expected[place.pair.original], leaves)
                    for place, leaves in given.items()
                }
            is_last = number == len(feedings) - 1
            failures |= self._failures_of(feeding, given, is_first=not number, is_last=is_last)
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
        is_last: bool,
    ) -> dict[Pair, Failure]:
        """Say what is wrong with what places give in one feeding; note the others."""
        failures: dict[Pair, Failure] = {}
        doubtful: dict[Place, Sequence[Leaf]] = {}
        for place, given in results.items():
            self._note_rounding(place, feeding, given)
            if isinstance(given, RunError):
                reason = f"{feeding.what}: onnxruntime does not run it: {given}"
                failures[place.pair] = Failure(reason)
            elif not is_same(feeding.expected[place.pair.original], given) and (
                self.records[place.pair.candidate].is_joined
                or not self.judgement.compared(place, feeding, given, FEW, is_brief=True).ok
            ):
                doubtful[place] = given
        exact = self.judgement.in_float64(
            [
                place
                for place, given in doubtful.items()
                if is_first or not self.judgement.compared(place, feeding, given, THOUSAND).ok
            ],
            feeding,
        )
        for place, given in doubtful.items():
            failure = self.judgement.failure(place, feeding, given, exact.get(place))
            if failure and (alone := self._by_itself(place, feeding)) is not None:
                failure = self.judgement.failure(place, alone, given, exact.get(place))
            if failure:
                failures[place.pair] = failure
        for place, given in results.items():
            if place.pair not in failures and not isinstance(given, RunError):
                is_near = place not in doubtful
                if failure := self._hidden(place, feeding, given, is_near=is_near, is_last=is_last):
                    failures[place.pair] = failure
                self.records[place.pair.candidate].seen.add(feeding.expected[place.pair.original])
        return failures

    def _note_rounding(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf] | RunError
    ) -> None:
        """Note how far off a place is; what is joined may not be its doing."""
        end = place.pair.original
        off = np.inf if isinstance(given, RunError) else off_by(feeding.expected[end], given)
        record = self.records[place.pair.candidate]
        record.is_moved |= bool(off)
        own = 0.0 if record.is_joined else off
        record.rounding = off if record.rounding is None else max(record.rounding, own)

    def _by_itself(self, place: Place, feeding: Feeding) -> Feeding | None:
        """Return what the original's part gives by itself, where it gives something else so.

        onnxruntime computes half precision in float32 from node to node, and rounds what it is
        asked for: fed what was rounded, the original gives something else, too.
        """
        ours = self.experiment.run(self.sides[0], [place], [feeding])[place, 0]
        if isinstance(ours, RunError) or is_same(feeding.expected[place.pair.original], ours):
            return None
        return replace(feeding, expected={**feeding.expected, place.pair.original: ours})

    def _hidden(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf], *, is_near: bool, is_last: bool
    ) -> Failure | None:
        """Say what is wrong with a place that gives the same but for rounding, if something is."""
        if (
            not is_same(feeding.expected[place.pair.original], given)
            and self.judgement.has_same_operators(place)
            and self.judgement.has_edited_constants(place)
        ):
            return Failure("a few of the numbers that it stores are others", is_final=True)
        record = self.records[place.pair.candidate]
        if not record.is_joined:
            return None
        is_sure = record.cause is not None and record.cause[1].is_sure
        is_guess = not (is_sure or self.judgement.has_same_operators(place))
        if place.hides and is_near and record.shown < _SEEN:
            record.shown += self._moved(place, feeding)
        is_luck = not is_near or (is_last and record.shown < _SEEN)
        if place.hides and is_luck:
            return Failure("it differs before it is rounded to steps", is_drawn=is_guess)
        large = [leaf.data for leaf in feeding.expected[place.pair.original] if leaf.data.size > 1]
        if bool(large) and all(bool((data == data.flat[0]).all()) for data in large):
            return Failure("it differs where all that follows is one number", is_drawn=is_guess)
        return None

    def _moved(self, place: Place, feeding: Feeding) -> int:
        """Return how many elements of a place would move if a difference inside were elsewhere.

        The differences are given to other elements of what the original computes there. If many
        elements of the end move then, and none did before, that is no luck: the candidate has
        rounded to the same steps already.
        """
        end = feeding.expected[place.pair.original]
        behind = [
            (pair, apart)
            for pair, failure in self.records[place.pair.candidate].behind
            if (apart := failure.apart) is not None
        ]
        if len(behind) != 1 or len(end) != 1:
            return 0
        ((pair, apart),) = behind
        cuts = {**self.partners, pair.original: pair}
        part = self._part(self.ours, cuts, place.pair.original)
        if pair.original not in part.reads or not np.isfinite(apart).all():
            return 0
        inputs = {name: feeding.feeds[name] for name in self.inputs}
        ((_, outputs),) = self.stream.runs([pair.original], {self._judge.case: inputs})
        (leaf,) = outputs[pair.original]
        moved = np.random.default_rng(0).choice(apart.reshape(-1), leaf.data.shape)
        moved = (leaf.data.astype(np.float64) + moved).astype(leaf.data.dtype)
        fed = replace(feeding, feeds={**feeding.feeds, pair.original: moved})
        only = replace(place, parts=(part, part), reads=part.reads)
        try:
            source, feeds = self.experiment.cut_out(self.sides[0], [only], fed, cuts)
            (found,) = Runner(source, REFERENCE_LEVEL).run(feeds)[made_name(part.end)]
        except RunError:
            return 0
        if found.data.shape != end[0].data.shape:
            return 0
        return int((found.data != end[0].data).sum())

    # Places on drawn values.

    def _drawn_failures(self, places: Sequence[Place], seen: Feeding) -> dict[Pair, Failure]:
        """Run places on drawn values; say what is wrong with what some give.

        Args:
            places: Where; they gave the same on what the original computes.
            seen: What it computes.
        """
        failures: dict[Pair, Failure] = {}
        for some, count in self._affordable(places, seen):
            # What places read that look past cuts is not among what was seen.
            seen = self._with_more(some, seen)
            specs, feedings = self._feedings(some, seen, count)
            failures |= self._drawn(some, feedings, seen)
            for place in some:
                failures |= self._sought(place, seen, specs, failures)
            for place in some:
                failure = failures.get(place.pair)
                if failure is not None and failure.is_drawn and not failure.is_misfit:
                    covered = self.experiment.coverage[place.pair.candidate]
                    wider = self._spurious(place, seen)
                    if wider is None:
                        self.experiment.coverage[place.pair.candidate] = covered
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
        specs = draw_specs(self, self.experiment, places, seen)
        for name, spec in specs.items():
            if spec.axis:
                other = self.partners[name].candidate if name in self.partners else name
                for ranges, each in zip(self.ranges, (name, other), strict=True):
                    ranges.limit(each, Interval(-spec.axis, spec.axis - 1.0))
        drawn = general_draws(seen.feeds, specs, count)
        if self._judge.check.of_rule is not None:
            drawn += odd_draws(seen.feeds, specs)
        return specs, [Feeding(_DRAWN, fed, {}, is_drawn=True) for fed in drawn]

    def _sought(
        self,
        place: Place,
        seen: Feeding,
        specs: Mapping[str, DrawSpec],
        failures: Mapping[Pair, Failure],
    ) -> dict[Pair, Failure]:
        """Draw for what no run of a place showed yet, and for other sizes."""
        found = {pair: failures[pair] for pair in [place.pair] if pair in failures}
        found = found or self._read_whole(place, seen, specs)
        found = found or self._searched(place, seen, specs)
        return found or self._resized(place, seen, specs)

    def _read_whole(
        self, place: Place, seen: Feeding, specs: Mapping[str, DrawSpec]
    ) -> dict[Pair, Failure]:
        """Draw so many indices at once that each row of a long table is chosen."""
        covered = self.experiment.coverage[place.pair.candidate]
        rows = covered.rows_to_choose()
        sizes = self._sizes(place, seen) if len(rows) >= _MANY_ROWS else None
        if sizes is None:
            return {}
        full, failures = 2 * self.judgement.work(place, seen), dict[Pair, Failure]()
        given = sum(leaf.data.nbytes for leaf in seen.expected.get(place.pair.original, ()))
        for serial, before in sizes.chosen.items():
            if not (each := sizes.indices_for_one_more(serial)):
                continue
            longest = max(_READ_AT_ONCE // max(given // max(before, 1), 1), 1)
            left = len(rows) + 1
            while not failures and 0 < len(rows) < left:
                left, length = len(rows), min(-(-len(rows) // each), longest)
                work = full * length // max(before, 1)
                if work > self.left_to_search // _SHARE:
                    break
                self.left_to_search -= work
                feeds = sizes.fed({**sizes.chosen, serial: length}, before, specs, rows=rows)
                fed = {**seen.feeds, **(feeds or {})}
                what = f"fed with indices of {length * each:,} rows"
                feeding = Feeding(what, fed, {}, is_drawn=True)
                failures = self._drawn([place], [feeding], seen, is_sized=False)
                rows = covered.rows_to_choose()
        return failures

    def _sizes(self, place: Place, seen: Feeding) -> Sizes | None:
        """Return what a place reads as sizes that callers choose; None if that is not known."""
        graph = self.models[0].graph
        return sizes_of(seen.arrays(place), graph, graph.model.memory(Knowledge))

    def _spurious(self, place: Place, seen: Feeding) -> Place | None:
        """Return a wider place in which what drawn values showed does not show; None if none is.

        Values hang together: one that follows from another, as a square from its root, truth
        values, as whether a number is even and whether 4 divides it, and those that are made from
        one value near by, as a sum and a count. They are never what was drawn. So the place looks
        past them. (Refinement by counterexample: E. Clarke et al., CAV 2000.)
        """
        is_alone = len(self._tied(place)) == 1 == len(place.reads)
        wider = None if is_alone else self._past(place, self._tied)
        if wider is None or wider is place:
            return None
        seen = self._with_more([wider], seen)
        work = 2 * self.judgement.work(wider, seen) * _BATCH * _ROUNDS
        if work > self.left_to_search:
            return None
        self.left_to_search -= work
        self.experiment.coverage.pop(place.pair.candidate, None)
        specs, feedings = self._feedings([wider], seen, GENERAL)
        fed = [Feeding(_COMPUTED, seen.feeds, {}, is_drawn=True), *feedings]
        self.records[place.pair.candidate].wider = wider
        found = self._drawn([wider], fed, seen)
        if found or self._sought(wider, seen, specs, found):
            self.records[place.pair.candidate].wider = None
            return None
        return wider

    def _past(self, place: Place | None, tied: Callable[[Place], set[str]]) -> Place | None:
        """Return a place that looks past some of what it reads, a few times; None if none can."""
        for _ in range(_WIDENED):
            if place is None or not (names := tied(place)):
                break
            place = self.even(self.place(place.pair, place.without | names))
        return place

    def _tied(self, place: Place) -> set[str]:
        """Return what a place reads that nodes make and that hangs together with other values."""
        made = {name for name in place.reads if name in self.order}
        near = {name: self.near(name, _NEAR) for name in made}
        beside = {n for n in made for other in made - {n} if not near[n].isdisjoint(near[other])}
        return {n for n in made if self.ranges[0].is_truth(n)} | self._following(place) | beside

    def _following(self, place: Place) -> set[str]:
        """Return what a place reads that follows from something else that it reads."""
        reads = frozenset(place.reads)
        return {n for n in reads if n in self.order and self.follows(n, reads - {n})}

    def _told(self, place: Place) -> set[str]:
        """Return the truth values that a place reads and that follow from what else it reads."""
        return {name for name in self._following(place) if self.ranges[0].is_truth(name)}

    def _searched(
        self, place: Place, seen: Feeding, specs: Mapping[str, DrawSpec]
    ) -> dict[Pair, Failure]:
        """Draw for what no run of a place showed, until all is seen or the budget ends."""
        name, work = place.pair.candidate, 2 * self.judgement.work(place, seen)
        record = self.records[name]
        search = Search(
            self.experiment.coverage[name],
            _made_in(place),
            seen.feeds,
            {name: specs[name] for name in place.reads if name in specs},
            replays=record.replays,
            beside=[] if record.is_moved else beside_edits(*place.nodes),
            first=_JOINED_BATCH if record.is_joined or record.wider else _BATCH,
        )
        failures: dict[Pair, Failure] = {}
        for _ in range(_ROUNDS):
            drawn = search.draws(self.left_to_search // _SHARE // max(work, 1))
            if failures or not drawn:
                break
            self.left_to_search -= work * len(drawn)
            feedings = [Feeding(_DRAWN, fed, {}, is_drawn=True) for fed in drawn]
            failures = self._drawn([place], feedings, seen)
        return failures

    def _resized(
        self, place: Place, seen: Feeding, specs: Mapping[str, DrawSpec]
    ) -> dict[Pair, Failure]:
        """Draw for a place with other sizes, which callers choose: 0, 1, 2, and beyond bounds."""
        form = (
            self._kind(place),
            tuple(a.shape for a in seen.arrays(place).values()),
        )
        covered = self.experiment.coverage[place.pair.candidate]
        if form in self._sized and not self.records[place.pair.candidate].is_joined:
            covered.is_sized = True  # what sizes show does not depend on weights
            return {}
        if (sizes := self._sizes(place, seen)) is None:
            return {}
        bounds = set[int]().union(
            sizes.bounds(),
            *(
                bounds_of(nodes, self.sides[which].stored)
                for which, nodes in enumerate(place.nodes)
            ),
        )
        feedings: list[Feeding] = []
        may_be_empty = not any(node.op_type in NEVER_EMPTY for node in place.any_node())
        power = 2 if any(node.op_type in WEIGHT_AXES for node in place.any_node()) else 1
        may_square = any(  # as the scores of an attention do
            (node.domain, node.op_type) in HEAVY or node.op_type in EXPLOSIVE
            for node in place.any_node()
        )
        record, full = self.records[place.pair.candidate], 2 * self.judgement.work(place, seen)
        # There is always room for what costs a few of the runs that there were.
        budget = self.left_to_search // _SHARE + _RUNS_EACH * full
        record.untried = ""
        numbers = dict.fromkeys(
            n for each in covered.met.values() for n in finite_of(each.piece.draws)
        )
        groups = [AS_SEEN, tuple(numbers) or AS_SEEN]
        rounded = [self._rounded_sizes(place, which) for which in (0, 1)]
        for before, size, chosen in sizes.tried(bounds, each=rounded[0] != rounded[1]):
            if not size and not may_be_empty:
                continue
            what = f"a size of {size:,} instead of {before:,}"
            is_long = size in LONG and size not in bounds
            growth = 2 if is_long and may_square else power
            work = int(full * (size / max(before, 1)) ** growth)
            if work > budget and size < before:
                record.untried = record.untried or what
            if is_long:
                is_cheap = work <= self.left_for_length
            else:
                is_cheap = work <= budget and (size < before or work <= _MOST_OF_A_SIZE)
            group = groups[len(feedings) % 2 or size == MANY]
            feeds = sizes.fed(chosen, before, specs, group) if is_cheap else None
            if feeds is not None:
                if is_long:
                    self.left_for_length -= work
                else:
                    budget -= work
                    self.left_to_search = max(0, self.left_to_search - work)
                fed = {**seen.feeds, **feeds}
                feedings.append(Feeding(f"fed with {what}", fed, {}, is_drawn=True))
        failures = self._drawn([place], feedings, seen, is_sized=False)
        covered.is_sized |= len(feedings) >= _MANY_SIZES
        if not failures and not record.untried:
            self._sized.add(form)
        return failures

    def _rounded_sizes(self, place: Place, which: int) -> list[str]:
        """Return the operators of a part that round what follows from sizes."""
        return [
            node.op_type
            for node in place.nodes[which]
            if (node.op_type in {"Div", "Mod"} or compare.rounds(node) or truncates(node))
            and self.ranges[which].is_size(node.output[0])
        ]

    def _with_more(self, places: Sequence[Place], seen: Feeding) -> Feeding:
        """Add what places read that look past cuts."""
        names = [n for place in places for n in place.reads if n not in seen.feeds]
        if not names:
            return seen
        return replace(seen, feeds={**seen.feeds, **_fed_as(self.stream.values(names))})

    def _drawn(
        self,
        places: Sequence[Place],
        feedings: Sequence[Feeding],
        seen: Feeding,
        *,
        is_sized: bool = True,
    ) -> dict[Pair, Failure]:
        """Run places of both models on drawn values."""
        failures: dict[Pair, Failure] = {}
        try:
            ours, theirs = (
                self.experiment.run(side, places, feedings, is_sized=is_sized)
                for side in self.sides
            )
        except StoppedError:
            return {}  # as where a whole number is divided by zero
        for place in places:
            self.records[place.pair.candidate].is_drawn_for |= bool(feedings)
        for number, drawn in enumerate(feedings):
            for place in places:
                expected, given = ours[place, number], theirs[place, number]
                if place.pair in failures or isinstance(expected, RunError):
                    continue
                feeding = replace(drawn, expected={place.pair.original: expected})
                if isinstance(given, RunError):
                    if self._is_only_unsupported(place, feeding):
                        label = _label(self.ours, place.pair.original)
                        self.records[place.pair.candidate].note = f"{label} {_EMPTY}"
                        continue
                    reason = f"{feeding.what}: onnxruntime does not run it: {given}"
                    failures[place.pair] = Failure(reason, is_drawn=True)
                elif failure := self._judged_draw(place, feeding, given):
                    if failure.is_drawn:
                        failure = replace(failure, reason=failure.reason + _reach(place, seen))
                    failures[place.pair] = failure
        return failures

    def _judged_draw(self, place: Place, feeding: Feeding, given: Sequence[Leaf]) -> Failure | None:
        """Say what is wrong with a place in one draw, and note what it showed if nothing is."""
        end, record = place.pair.original, self.records[place.pair.candidate]
        expected = feeding.expected[end]
        finite = _where_finite(expected, given)
        fed = feeding.arrays(place).values()
        if not is_same(given, finite) or _has_other_zeros(expected, given):
            self._note_odd(place, feeding)
            odd = _oddly(expected, given, oddities_of(fed))
            if odd and self._judge.check.of_rule and not self._is_of_kernels(place, feeding):
                record.odd |= odd
        record.is_moved |= not is_same(expected, finite)
        record.is_excused = (
            place.hides and not self.judgement.compared(place, feeding, finite, FEW).ok
        )
        failure = self._drawn_failure(place, feeding, finite)
        if failure is None:
            has_none = any(
                leaf.data.dtype.kind == "f" and np.isnan(leaf.data).any() for leaf in expected
            )
            if record.is_excused or has_none:  # what it might have shown was not judged
                self.experiment.coverage[place.pair.candidate].revoke(feeding.feeds)
            record.seen.add(expected)
            return None
        oddities = oddities_of(fed)
        of_rule = self._judge.check.of_rule
        covered = self.experiment.coverage[place.pair.candidate]
        if of_rule is not None and any(fed is feeding.feeds for fed in covered.undefined):
            covered.revoke(feeding.feeds)
            return None
        infinite: set[Exempt] = oddities & {"nan", "inf"}
        if infinite and of_rule is not None and self._is_of_kernels(place, feeding):
            return None
        if infinite and (of_rule is not None or not any(map(is_guard, place.nodes[0]))):
            self._note_odd(place, feeding)
            record.odd |= infinite & (of_rule.excused if of_rule else set()) or infinite
            return None
        if of_rule is not None and (
            oddities & of_rule.excused
            or (
                _is_all_finite(given)
                and self.experiment.leaves_range(self.sides[0], place, feeding)
            )
        ):
            covered.revoke(feeding.feeds)
            return None
        return replace(failure, fed=feeding.arrays(place))

    def _note_odd(self, place: Place, feeding: Feeding) -> None:
        """Note that a place differs where no finite number is; name the node that makes it."""
        record = self.records[place.pair.candidate]
        if not record.note.endswith(_ODD):
            record.note = f"{_label(self.ours, self._odd_end(place, feeding))} {_ODD}"

    def _odd_end(self, place: Place, feeding: Feeding) -> str:
        """Return the first value of a place that is not finite though all before it is.

        That is what the place computes, if it is fed such numbers, or if they make no difference.
        """
        part, side = place.parts[0], self.sides[0]
        try:
            source, feeds = self.experiment.cut_out(side, [place], feeding, shows=True)
            outputs = Runner(source, REFERENCE_LEVEL).run(feeds)
        except (RunError, StoppedError):
            return part.end
        made = {name.removeprefix(made_name("")): leaves for name, leaves in outputs.items()}
        values = {**feeds, **_fed_as(made)}
        for row in sorted(part.nodes):
            if all(_is_finite(values.get(n)) for n in side.wiring.reads[row]):
                odd = (n for n in side.wiring.nodes[row].output if not _is_finite(values.get(n)))
                if name := next(odd, None):
                    return str(name)
        return part.end

    def _is_of_kernels(self, place: Place, feeding: Feeding) -> bool:
        """Tell whether onnx's evaluator gives the same for both, in float64."""
        try:
            ours, theirs = (
                self.experiment.run(side, [place], [feeding], float64.PLAIN)[place, 0]
                for side in self.sides
            )
        except StoppedError:
            return False
        if isinstance(ours, RunError) or isinstance(theirs, RunError):
            return False
        pairs = zip(ours, theirs, strict=True)
        return all(np.allclose(one.data, its.data, equal_nan=True) for one, its in pairs)

    def _is_only_unsupported(self, place: Place, feeding: Feeding) -> bool:
        """Tell whether a place that is fed nothing is refused by operators the original has not."""
        is_fed = all(array.size for array in feeding.arrays(place).values())
        return not is_fed and not self.judgement.has_same_operators(place)

    def _drawn_failure(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf]
    ) -> Failure | None:
        """Say what is wrong with what a place gives for drawn values, if something is."""
        if self.judgement.compared(place, feeding, given, THOUSAND, is_brief=True).ok:
            return None
        exact = self.judgement.in_float64([place], feeding)
        failure = self.judgement.failure(place, feeding, given, exact.get(place))
        if failure is None:
            return None
        return self._reached(place, feeding) or replace(failure, is_drawn=True)

    def _reached(self, place: Place, feeding: Feeding) -> Failure | None:
        """Say what is wrong if the inputs of the model themselves have the drawn values."""
        direct = {name: feeding.feeds[name] for name in place.reads if name in self.inputs}
        if not direct or feeding.taken:
            return None
        case = next(iter(self.feeds))
        feeds = {case: {**self.feeds[case], **direct}}
        try:
            ((_, outputs),) = self.stream.runs(self._captured(place), feeds)
            real = replace(feeding, feeds={**_fed_as(outputs), **feeds[case]}, expected=outputs)
            given = self.experiment.run(self.sides[1], [place], [real])[place, 0]
        except (RunError, StoppedError):
            return None
        if isinstance(given, RunError):
            return None
        given = _where_finite(outputs[place.pair.original], given)
        if self.judgement.compared(place, real, given, THOUSAND).ok:
            return None
        exact = self.judgement.in_float64([place], real).get(place)
        failure = self.judgement.failure(place, real, given, exact)
        return None if failure is None else replace(failure, inputs=direct)

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
            kind, sight = self._kind(narrow), self.records[narrow.pair.candidate].seen
            is_joined = self.records[narrow.pair.candidate].is_joined
            is_shown = len(sight.numbers) >= _TELLING
            is_known = kind in kinds and is_shown and not narrow.branches and not is_joined
            if is_known and self.judgement.has_same_weights(narrow):
                self.records[narrow.pair.candidate].alike = kinds[kind]
                continue
            even = self.even(narrow)
            if not (place := self._past(even, self._told) or even):
                continue
            kinds.setdefault(kind, narrow.pair)
            work = self.judgement.work(place, seen) * (1 + len(self._ways(place)))
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
        if place in self._kinds:
            return self._kinds[place]
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
        return self._kinds.setdefault(place, tuple(forms_of))

    def _ways(self, place: Place) -> list[tuple[bool, ...]]:
        """Return which branches the If nodes of a place take in turn: those in no other, and so on.

        If there is none whose branches can be chosen, there is no way.
        """
        depth = min(self.depth_of_ifs(place), _DEEPEST_IF)
        return [*product((True, False), repeat=depth)] if depth else []


_SIDES = ("original", "candidate")

_COMPUTED = "fed what the original computes"

_ODD = "differs where the original is fed or gives NaN, an infinity or -0"

_EMPTY = "does not run in the candidate where a size is 0; in the original it does"

_ALSO = "fed what the original computes for drawn inputs"

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


def _where_finite(expected: Sequence[Leaf], given: Sequence[Leaf]) -> Sequence[Leaf]:
    """Return *given* with what is expected wherever that is no finite number."""
    if forms_of(expected) != forms_of(given):
        return given
    return [
        replace(new, data=np.where(np.isfinite(old.data), new.data, old.data))
        if old.data.dtype.kind == "f"
        else new
        for old, new in zip(expected, given, strict=True)
    ]


def _oddly(
    expected: Sequence[Leaf], given: Sequence[Leaf], oddities: AbstractSet[Exempt]
) -> set[Exempt]:
    """Return for which odd numbers a result differs where it is infinite.

    A number in the place of none is nobody's harm, nor is one in the place of an overflow; an
    infinity minus another is none.
    """
    is_other = any(
        old.data.dtype.kind == "f"
        and (np.isinf(old.data) & (old.data != new.data) & ~np.isnan(new.data)).any()
        for old, new in zip(expected, given, strict=True)
    )
    kinds: tuple[Exempt, ...] = ("inf", "zero_sign")
    return {kind for kind in kinds if is_other and kind in oddities} - (
        {"zero_sign"} if "inf" in oddities else set()
    )


def _is_all_finite(given: Sequence[Leaf]) -> bool:
    return all(_is_finite(leaf.data) for leaf in given)


def _is_finite(value: Feed) -> bool:
    """Tell whether no float of a value is NaN or infinite, as far as it is known."""
    floats = (array for array in arrays_in(value) if array.dtype.kind == "f")
    return all(bool(np.isfinite(array).all()) for array in floats)


def _has_other_zeros(expected: Sequence[Leaf], given: Sequence[Leaf]) -> bool:
    """Tell whether some zeros have another sign."""
    return forms_of(expected) == forms_of(given) and any(
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


def _junctions(told: Mapping[Pair, str], agreed: Mapping[str, str]) -> Iterator[Junction]:
    return (Junction(p.original, p.candidate, p.how, agreed, why) for p, why in told.items())


def _label(wiring: Wiring, name: str) -> str:
    return f"{wiring.nodes[wiring.makers[name]].op_type} {name!r}"
