"""What is wrong with what a place gives: one judgement, whatever it was fed.

Rounding is told from meaning. A few units in the last place are rounding. If there is more, the
place is computed in float64 (:mod:`dplcli.verify.float64`): there both have to agree, but for what
a unit in the last place moves of constants that differ, and the candidate may not round much
further than the original does. What cannot be computed so has to agree within a thousand roundings;
what rounds to steps may be off by what the original's own last bits move.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import TensorProto

from dplcli.analysis.extract import made_name
from dplcli.ir.operators import COMPARISONS, LOOPING, UNROUNDED, WEIGHT_AXES
from dplcli.verify import compare, float64
from dplcli.verify.check import REFERENCE_LEVEL
from dplcli.verify.compare import FLOATS, UNITS, Judge, Limit, hides_differences, scale_of
from dplcli.verify.cuts import truncates
from dplcli.verify.draw_specs import LARGE_CONSTANT
from dplcli.verify.float64 import Exact
from dplcli.verify.model import attribute, dtype_name
from dplcli.verify.numbering import content_of
from dplcli.verify.run import Runner
from dplcli.verify.values import Leaf, StoppedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir.types import Exempt
    from dplcli.verify.cuts import CutModels, Place
    from dplcli.verify.experiment import Experiment, Feeding
    from dplcli.verify.layers import Pair
    from dplcli.verify.values import Array, Feed, Outputs
    from dplcli.verify.verdict import OutputComparison

_NO_LIMITS: Mapping[str, Limit] = MappingProxyType({})

_INDICES = frozenset({"int32", "int64", "bool"})
"""Types of sizes and places: steps on two ways to one result are easily taken for each other."""

FEW, THOUSAND = 1, 1 << 10
"""The roundings that pass at once, and those that a place may have that has no float64."""

_EVALUATED_BYTES = 1 << 25
"""Places with more bytes of values are not computed in float64."""

_EVALUATED_WORK = 1 << 28
"""Nor are places that take more multiplications."""

_SLOWER = 1 << 8
"""How many times as long onnx's evaluator takes where it computes one element after the other."""

_EACH = 64
"""What each element of a value counts for, in multiplications: it is drawn, copied and compared."""

_JUMPING = COMPARISONS | {"Hardmax", "Shrink", "Sign", "ThresholdedRelu"}
"""Operators that jump where they are fed, beside those that round to steps."""

_AT_ONCE = 1 << 22
"""How many elements of stored tables are compared at once."""

_NEXT_TO_NOTHING = 1e-6
"""What a tiny result of a rule may be off, where float64 cannot be asked."""

_MOST_OTHER = 0.5
"""Two constants of which a smaller share is another are not two ways to compute one."""


@dataclass(frozen=True)
class Failure:
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
        inputs: What of it the model itself was fed when it showed.
    """

    reason: str
    is_misfit: bool = False
    fits: bool = True
    is_final: bool = False
    is_drawn: bool = False
    is_sure: bool = False
    apart: Array | None = None
    fed: Mapping[str, Array] = field(default_factory=dict, repr=False)
    inputs: Mapping[str, Feed] = field(default_factory=dict, repr=False)


@dataclass
class Seen:
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
            room = THOUSAND - len(self.numbers)
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


_EQUAL, _UNLIKE = _Difference(), _Difference(other=1, far=1)
"""Of constants that are the same, and of those that cannot be compared."""


@dataclass
class Record:
    """What is known of a place so far.

    Attributes:
        seen: What was seen of it.
        is_joined: Whether it holds places that gave something else.
        is_guessed: Whether it holds other numbers, which were hardly meant to be the same.
        length: How many failures in a row it holds.
        cause: What failed first on the way to it.
        behind: What failed last on the way to it; several if none of them is behind the others.
        replays: What was drawn when a place failed that was joined to it.
        is_drawn_for: Whether it was fed drawn values.
        is_moved: Whether some run did not give the same bits.
        alike: The place of its kind that was drawn for, if it was not.
        wider: What was drawn for instead, if it differs on values that cannot be there.
        rounding: How far it is off, in units in the last place.
        note: What is to be said though it is no difference.
        odd: For which numbers it differs though that is no difference.
        is_excused: Whether its last difference was excused by the original's own last bits.
        untried: A smaller size that it was not fed with, for want of time.
        shown: How many elements would have moved if what differs inside were luck.
    """

    seen: Seen = field(default_factory=Seen)
    is_joined: bool = False
    is_guessed: bool = False
    length: int = 0
    cause: tuple[Pair, Failure] | None = None
    behind: list[tuple[Pair, Failure]] = field(default_factory=list)
    replays: list[Mapping[str, Array]] = field(default_factory=list)
    is_drawn_for: bool = False
    is_moved: bool = False
    alike: Pair | None = None
    wider: Place | None = None
    rounding: float | None = None
    note: str = ""
    odd: set[Exempt] = field(default_factory=set)
    is_excused: bool = False
    shown: int = 0
    untried: str = ""


class Judgement:
    """Says what is wrong with what places give.

    Attributes:
        records: What is known of each place, by the candidate's value.
        exact: How many places were computed in float64.

    Args:
        models: The two models.
        experiment: Runs places.
        judge: Says how to compare; places have tolerances of their own.
    """

    def __init__(self, models: CutModels, experiment: Experiment, judge: Judge) -> None:
        self._models, self._experiment, self._judge = models, experiment, judge
        self.records: dict[str, Record] = defaultdict(Record)
        self.exact = 0
        self._is_of_rule = judge.check.of_rule is not None
        self._known_differences: dict[Place, list[_Difference]] = {}

    def failure(
        self, place: Place, feeding: Feeding, given: Sequence[Leaf], exact: Exact | None
    ) -> Failure | None:
        """Say what is wrong with what a place gives, if something is."""
        pair, expected = place.pair, feeding.expected[place.pair.original]
        record = self.records[pair.candidate]
        fits = forms_of(expected) == forms_of(given)
        comparison = self.compared(place, feeding, given, THOUSAND)
        reason = "" if comparison.ok else comparison.reason or "it differs"
        unit = UNITS.get(self._coarsest(place, feeding))
        if exact is not None and fits and unit is not None:
            reason = exact.objection(
                expected[0].data,
                given[0].data,
                unit,
                reason,
                is_joined=record.is_joined,
                moves=not (self.has_same_constants(place) or self.has_edited_constants(place)),
                rounds_freely=self._is_of_rule,
            )
        elif self._is_of_rule and fits and self._are_tiny(expected, given):
            reason = ""
        elif record.is_joined and not place.hides and not record.is_guessed:
            again = self.compared(place, feeding, given, FEW)
            reason = "" if again.ok else reason or again.reason or "it differs"
        elif reason and fits and self._may_be_unsteady(place, feeding):
            limits = self._unsteadiness(place, feeding)
            if self.compared(place, feeding, given, THOUSAND, limits).ok:
                reason, record.is_excused = "", True
        if not reason:
            return None
        reason = f"{feeding.what}{_at(comparison, feeding, place)}: {reason}"
        if pair.candidate in self._models.theirs.outputs:
            return Failure(reason)
        is_index = expected[0].dtype in _INDICES if expected else False
        is_guess = pair.how == "readers" and (is_index or not self._is_one_node(pair))
        is_guess = is_guess and not self._is_rounded(pair)
        apart = None
        if fits and expected[0].dtype in FLOATS and len(given) == 1:
            with np.errstate(invalid="ignore"):
                apart = given[0].data.astype(np.float64) - expected[0].data.astype(np.float64)
        is_misfit = is_guess or not fits
        is_sure = not is_misfit and self.has_same_operators(place)
        return Failure(reason, is_misfit=is_misfit, fits=fits, is_sure=is_sure, apart=apart)

    @staticmethod
    def _are_tiny(expected: Sequence[Leaf], given: Sequence[Leaf]) -> bool:
        """Tell whether two results are floats that are off by next to nothing."""
        return all(
            one.dtype in FLOATS
            and np.allclose(one.data, other.data, 0, _NEXT_TO_NOTHING, equal_nan=True)
            for one, other in zip(expected, given, strict=True)
        )

    def _may_be_unsteady(self, place: Place, feeding: Feeding) -> bool:
        """Tell whether the original's own last bits may excuse a difference."""
        if all(node.op_type in UNROUNDED for node in place.nodes[0]):
            return False
        return feeding.is_drawn or (place.hides and self.may_round_elsewhere(place))

    def may_round_elsewhere(self, place: Place) -> bool:
        """Tell whether a difference may be one of rounding to steps.

        Not if both parts are the same nodes with other constants: then it is these.
        """
        is_rough = not any(each.far for each in self.differences(place))
        return not self.has_same_operators(place) or is_rough

    @staticmethod
    def has_same_operators(place: Place) -> bool:
        """Tell whether both parts have the same operators, in one order."""
        ours, theirs = ([node.op_type for node in nodes] for nodes in place.nodes)
        return ours == theirs

    def has_same_constants(self, place: Place) -> bool:
        """Tell whether both parts read equal constants in one order."""
        return not any(each.other for each in self.differences(place))

    def has_edited_constants(self, place: Place) -> bool:
        """Tell whether a few numbers of a constant are others, which nothing in advance makes."""
        return any(each.is_edit for each in self.differences(place))

    def differences(self, place: Place) -> list[_Difference]:
        """Return how the constants differ that both parts read in one order."""
        if place not in self._known_differences:
            pairs = self.constants(place)
            self._known_differences[place] = (
                [_UNLIKE] if pairs is None else [self._difference(*pair) for pair in pairs]
            )
        return self._known_differences[place]

    def _difference(self, one: TensorProto, other: TensorProto) -> _Difference:
        """Compare two constants; those in files are equal if they are the same part."""
        if (one.data_type, one.dims) != (other.data_type, other.dims):
            return _UNLIKE
        if TensorProto.EXTERNAL in (one.data_location, other.data_location):
            known = content_of(one)
            is_same = bool(known) and known == content_of(other)
            if is_same or [*one.external_data] == [*other.external_data]:
                return _EQUAL
        tables = [
            self._experiment.table(*each)
            for each in zip(self._models.sides, (one, other), strict=True)
        ]
        ours, theirs = tables
        return _UNLIKE if ours is None or theirs is None else _difference(ours, theirs)

    def has_same_weights(self, place: Place) -> bool:
        """Tell whether both parts read equal large constants in one order."""
        pairs = self.constants(place, LARGE_CONSTANT)
        return pairs is not None and not any(self._difference(*pair).other for pair in pairs)

    def constants(
        self, place: Place, beyond: int = -1
    ) -> list[tuple[TensorProto, TensorProto]] | None:
        """Return the constants that both parts read, in one order; None if one reads more.

        Args:
            place: Where.
            beyond: Those of more elements alone.
        """
        ours, theirs = (
            [
                tensor
                for row in sorted(part.nodes)
                for name in side.wiring.reads[row]
                if (tensor := side.stored(name)) is not None and np.prod(tensor.dims) > beyond
            ]
            for side, part in zip(self._models.sides, place.parts, strict=True)
        )
        return [*zip(ours, theirs, strict=True)] if len(ours) == len(theirs) else None

    def _is_rounded(self, pair: Pair) -> bool:
        """Tell whether both values are what the same operator rounds to steps."""
        ours = (
            self._models.ours.nodes[row] for row in self._models.ours.readers.get(pair.original, ())
        )
        theirs = (
            self._models.theirs.nodes[row]
            for row in self._models.theirs.readers.get(pair.candidate, ())
        )
        kinds = [
            {node.op_type for node in nodes if compare.rounds(node)} for nodes in (ours, theirs)
        ]
        return not kinds[0].isdisjoint(kinds[1])

    def _is_one_node(self, pair: Pair) -> bool:
        """Tell whether the same operator makes both, from values that correspond, or constants."""
        cuts, makers = self._models.cuts, self._models.theirs.makers
        ours = self._models.ours.nodes[self._models.ours.makers[pair.original]]
        theirs = self._models.theirs.nodes[makers[pair.candidate]]
        kinds = {(node.op_type, node.domain, len(node.input)) for node in (ours, theirs)}
        return len(kinds) == 1 and all(
            cuts[b].original == a if b in cuts else b not in makers
            for a, b in zip(ours.input, theirs.input, strict=True)
        )

    def _unsteadiness(self, place: Place, feeding: Feeding) -> dict[str, Limit]:
        """Return how far the last bits of the original move the value of a place, over steps."""
        name, case = place.pair.original, self._judge.case
        source, feeds = self._experiment.cut_out(self._models.sides[0], [place], feeding)
        outputs: dict[int, Outputs] = {case: {made_name(name): tuple(feeding.expected[name])}}
        create = partial(Runner, level=REFERENCE_LEVEL)
        exact = self._exact_inputs(place)
        limits = compare.measure_limits(source, {case: feeds}, outputs, create, exact)
        limit = limits.get(made_name(name))
        if limit is None or not np.isfinite(limit.max_abs):
            return {}
        if feeding.is_drawn:  # rows of one number, say, leave nothing but rounding
            limit = Limit(float64.TOO_COARSE * limit.max_abs, np.inf)
        return {name: limit}

    def _exact_inputs(self, place: Place) -> set[str]:
        """Return the inputs of the model at which a part of it jumps: nothing was rounded there."""
        nodes = (self._models.ours.nodes[row] for row in place.parts[0].nodes)
        jumping = (
            n for n in nodes if n.op_type in _JUMPING or hides_differences(n) or truncates(n)
        )
        return {name for node in jumping for name in node.input if name in self._models.inputs}

    def compared(  # noqa: PLR0913  # what is compared, and how
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
        maker = self._models.ours.nodes[self._models.ours.makers[name]]
        coarsest = self._coarsest(place, feeding)
        if coarsest == "float64" and self._is_of_rule:
            coarsest = "float32"
        ranges = self._models.ranges[0]
        rounds = maker.op_type == "Cast" and not (
            ranges.is_whole(maker.input[0]) or ranges.is_integral(maker.input[0])
        )
        is_stepped = compare.quantises(maker) or (rounds and coarsest != "")
        is_stepped = is_stepped and roundings > FEW and self.may_round_elsewhere(place)
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

    def in_float64(self, places: Sequence[Place], feeding: Feeding) -> dict[Place, Exact]:
        """Compute places of both models in float64, where that can be done and says something."""
        ours, theirs = self._models.sides
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
                given = self._experiment.run(side, [*arrays_of], [feeding], precision)
            except StoppedError:
                return {}
            arrays_of = {
                place: arrays
                for place, known in arrays_of.items()
                if (
                    arrays := float64.extended(
                        known, given[place, 0], rounds_freely=self._is_of_rule
                    )
                )
            }
        self.exact += len(arrays_of)
        return {place: Exact(*arrays) for place, arrays in arrays_of.items()}

    def _is_small(self, place: Place, feeding: Feeding) -> bool:
        read = sum(array.nbytes for array in feeding.arrays(place).values())
        size_out = sum(leaf.data.nbytes for leaf in feeding.expected.get(place.pair.original, ()))
        is_looping = any(node.op_type in LOOPING for node in place.any_node())
        most = _EVALUATED_WORK // _SLOWER if is_looping else _EVALUATED_WORK
        is_light = self.work(place, feeding) <= most
        return is_light and read + size_out <= _EVALUATED_BYTES

    def work(self, place: Place, feeding: Feeding) -> int:
        """Estimate the multiplications of one run of the original's part."""
        size_out = sum(leaf.data.size for leaf in feeding.expected.get(place.pair.original, ()))
        work = sum(array.size for array in feeding.arrays(place).values()) + size_out
        work *= _EACH
        for node in place.nodes[0]:
            if (slot := WEIGHT_AXES.get(node.op_type)) is None or len(node.input) <= slot[0]:
                continue
            weight = self._models.ours.initializers.get(node.input[slot[0]])
            if weight is not None and weight.dims:
                positions = size_out // max(weight.dims[slot[1]], 1)
                work += int(np.prod(weight.dims)) * positions
        return work


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


def is_same(expected: Sequence[Leaf], given: Sequence[Leaf]) -> bool:
    """Tell whether two values are the same, element for element."""
    return forms_of(expected) == forms_of(given) and all(
        np.array_equal(a.data, b.data) for a, b in zip(expected, given, strict=True)
    )


def off_by(expected: Sequence[Leaf], given: Sequence[Leaf]) -> float:
    """Return how many units in the last place of the largest number a value is off, at most."""
    if is_same(expected, given):
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


def forms_of(leaves: Sequence[Leaf]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the types and shapes of a value."""
    return [(leaf.dtype, leaf.data.shape) for leaf in leaves]


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
