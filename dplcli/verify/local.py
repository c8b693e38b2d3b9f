"""Each place where two models differ, judged by itself on values that the original computes.

The outputs of a whole model are a poor witness. Where a model rounds to steps, sorts, or repeats
itself, the last bits of a value decide over large differences further down. A tolerance that
allows for that hides mistakes; one that does not refuses what is right.

So the candidate is cut at values that both models compute (`dplcli.verify.layers` finds them).
What lies between two cuts is a region. A region that says in both models the same, node for node,
needs no run. Each other one runs alone: it is fed what the original computes there, and has to
give what the original gives. Many regions run in one session.

- A few units in the last place are rounding.
- If there is more, both regions are computed in float64 (`dplcli.verify.float64`). There they have
  to agree, but for what a unit in the last place of their constants moves: constants that were
  computed in advance are rounded, too. And the candidate may not round much further than the
  original does.
- What cannot be computed in float64 has to agree within the tolerance of a thousand roundings. A
  region that rounds to steps may be off by as much as the original's own last bits move it.

Some cuts were found by dataflow or by a log, and were never meant to be the same: steps on two
ways to one result. So a region that gives something else is joined with those that read it, a few
times, and may agree there after all. Behind an operator that rounds to steps that could be luck,
so it counts only if a difference as large as this one, at other elements, shows behind the steps
of the original. (onnxruntime's optimiser rounds values before they are moved, not after: then what
is rounded again is the same.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from dplcli.ir.operators import CONTROL_FLOW
from dplcli.onnx_io.cutting import Wiring, cut, made_name, subgraphs
from dplcli.onnx_io.infer import ONNX_ERRORS
from dplcli.onnx_io.opset import all_nodes
from dplcli.verify.compare import (
    FLOATS,
    UNITS,
    Facts,
    Judge,
    Limit,
    hides_differences,
    measure_limits,
    quantises,
    rounds,
    scale_of,
)
from dplcli.verify.float64 import in_float64, wide_feed
from dplcli.verify.layers import Inside, is_alike, type_of, value_of
from dplcli.verify.model import (
    attribute,
    dtype_name,
    external_places,
    model_of,
    whole_of,
)
from dplcli.verify.numbering import Numbering
from dplcli.verify.run import Runner
from dplcli.verify.settings import (
    REFERENCE_LEVEL,
    Junction,
    LocalJudgement,
    RunError,
    StoppedError,
    leaves_of,
    one_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onnx import ModelProto, NodeProto

    from dplcli.verify.inputs import Reference
    from dplcli.verify.layers import Pair
    from dplcli.verify.settings import Array, Feed, Leaf, ModelSource, OutputComparison, Outputs

    Values = Mapping[str, Sequence[Leaf]]

_NO_LIMITS: Mapping[str, Limit] = MappingProxyType({})

_INDICES = frozenset({"int32", "int64", "bool"})
"""Types of sizes and places: steps on two ways to one result are easily taken for each other."""

CHOOSERS = frozenset({"Gather", "GatherND", "GatherElements"})

_HELD = 1 << 29
"""How many bytes of the original's values are held at once; one region may need more."""

_JOINED = 8
"""How often in a row a region that gives other numbers is joined with those that read it."""

_FEW, _THOUSAND = 1, 1 << 10
"""The roundings that pass at once, and those that a region may have that has no float64."""

_SEEN = 20
"""How many elements a difference has to move behind an operator that rounds to steps, when other
elements have it. If it moves none where it is, that is no luck."""

_EXACT = 1e-9
"""The share of the largest element that two ways to compute it may differ by in float64."""

_FAR = 2.0**-6
"""The share of the largest element beyond which no rounding is looked for."""

_ROUNDED_AGAIN = 16.0
"""How many times as far as a unit in the last place of constants moves it, a value may move: what
is computed in advance may be rounded in several steps."""

_TOO_COARSE = 16.0
"""How many times as far from float64 as the original's a candidate's value may be."""

_EVALUATED = 64.0
"""The original may be this many times as far from float64 as its last bits move it. Else the
evaluator computes something else than onnxruntime."""

_EVALUATED_BYTES = 1 << 28
"""Regions with more bytes of values are not computed in float64."""

_EVALUATION_TIME = 10.0
"""How many seconds regions may take in float64; the first that take longer are the last."""

_NARROWER = 2.0**-24
"""Rounding in float64 is finer than in float32 by this, and a margin of 32."""


def judge_regions(reference: Reference, candidate: ModelSource, judge: Judge) -> LocalJudgement:
    """Judge the regions of a candidate.

    Args:
        reference: The original and its inputs.
        candidate: The candidate.
        judge: Says which inputs to use; regions have tolerances of their own.

    Raises:
        RunError: A model does not run when it is asked for inner values, or one cannot be fed.
        StoppedError: The process crashed, or took longer than allowed.
    """
    return _Regions(reference, candidate, judge).judge()


@dataclass(frozen=True)
class _Part:
    """What one model computes in a region.

    Attributes:
        nodes: The rows of its nodes.
        reads: The values that enter.
        end: The value that it computes.
    """

    nodes: set[int]
    reads: Sequence[str]
    end: str


@dataclass(frozen=True, eq=False)
class _Region:
    """The nodes of both models that compute the values of a pair from cuts.

    Attributes:
        pair: The pair.
        parts: Those of the original, and of the candidate.
        hides: Whether some node may give the same for values that differ by more than rounding.
        jumps: Whether rounding may be enlarged to a step: then float64 would say little.
        branches: Whether it holds nodes that need not have run.
        casts: The float types that the original converts to.
    """

    pair: Pair
    parts: tuple[_Part, _Part]
    hides: bool
    jumps: bool
    branches: bool
    casts: frozenset[str]


@dataclass(frozen=True)
class _Failure:
    """What is wrong with a region.

    Attributes:
        reason: It, in words.
        is_misfit: Whether the two values were never meant to be the same.
        fits: Whether they have one type and one shape.
        is_final: Whether nothing that follows can make up for it.
        given: What the candidate gives, if that is one array of the original's type and shape.
    """

    reason: str
    is_misfit: bool = False
    fits: bool = True
    is_final: bool = False
    given: Array | None = None


@dataclass(frozen=True)
class _Side:
    """One of the two models.

    Attributes:
        place: 0 for the original, 1 for the candidate.
        source: How it runs.
        wiring: Its main graph.
    """

    place: int
    source: ModelSource
    wiring: Wiring

    def inside(self, row: int) -> Iterator[NodeProto]:
        """Yield a node and what it holds; all functions, if it may call one."""
        node = self.wiring.nodes[row]
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph)
        if node.domain:
            for function in self.wiring.model.functions:
                yield from all_nodes(function)


class _Regions:
    """The regions of a candidate.

    Attributes:
        cuts: Pairs of values that both models compute, by the candidate's name.
        partners: The same pairs by the original's name.
        joined: Values whose regions hold some that gave something else.
        guessed: Values whose regions hold other numbers, which were hardly meant to be the same.
        lengths: How many failures in a row a value's region holds.
        causes: For a value of the candidate what failed first on the way to it.
        nearest: The one that failed last, or None if several did, none of them behind the others.
        moving: Values of the candidate that depend on what it is fed.
        order: The place of each value in the original.
        sizes: Upper bounds of the bytes of the original's values.
        exact: How many regions were computed in float64.
        has_stopped: Whether that took too long, or ended the process.
        unseen: By value, what differs where nothing may have run.
        weak: Values that show little of what differs on the way to them.
    """

    def __init__(self, reference: Reference, candidate: ModelSource, judge: Judge) -> None:
        self.feeds = reference.feeds[judge.case]
        self._judge = judge
        ours, theirs = _comparable(reference.source, candidate)
        self.ours, self.theirs = Wiring(ours), Wiring(theirs)
        self.sides = (
            _Side(0, reference.source, self.ours),
            _Side(1, candidate, self.theirs),
        )
        inside = Inside(reference, candidate, (self.ours, self.theirs), judge, _HELD)
        self.stream = inside.streams[0]
        alignment = inside.align()
        pairs = alignment.pairs.values()
        self.moving = alignment.moving[1]
        self.sizes = self.stream.sizes(
            [p.original for p in pairs if p.original in self.ours.makers]
        )
        self.cuts = {
            pair.candidate: pair
            for pair in pairs
            if pair.original in self.sizes or pair.original in self.feeds
        }
        self.partners = {pair.original: pair for pair in self.cuts.values()}
        self.joined: set[str] = set()
        self.guessed: set[str] = set()
        self.lengths: dict[str, int] = {}
        self.causes: dict[str, tuple[Pair, _Failure]] = {}
        self.nearest: dict[str, tuple[Pair, _Failure] | None] = {}
        self.order = {name: place for place, name in enumerate(self.ours.makers)}
        self.exact = 0
        self.has_stopped = False
        self.unseen: dict[str, str] = {}
        self.weak: set[str] = set()

    def judge(self) -> LocalJudgement:
        """Judge all regions that are not the same node for node."""
        pairs = sorted(
            (pair for pair in self.cuts.values() if pair.original in self.order),
            key=lambda pair: self.order[pair.original],
        )
        numbering = Numbering()
        ours = numbering.model(self.ours.model, {pair.original: pair.original for pair in pairs})
        theirs = numbering.model(
            self.theirs.model, {pair.candidate: pair.original for pair in pairs}
        )
        changed = [
            pair
            for pair in pairs
            if pair.candidate in self.theirs.makers  # else it is stored: there is nothing to run
            and ours.values[pair.original] != theirs.values[pair.candidate]
        ]
        if missing := [name for name in self.theirs.outputs if name not in self.cuts]:
            raise RunError(f"the output {missing[0]!r} is no tensor that can be measured")
        every = self._agreed()
        failed = self._failed(changed)
        while taken := self._misfits(failed) or self._first(failed):
            failed = self._without(taken, failed)
        found = {pair: self._said(pair, failure) for pair, failure in self._stored(pairs).items()}
        for pair, failure in failed.items():
            first, why = self.causes.get(pair.candidate, (pair, failure))
            found[first] = self._said(first, why)
        return LocalJudgement(
            judged=len(changed),
            unchanged=len(pairs) - len(changed),
            differing=tuple(found.values()),
            exact=self.exact,
            weak=len(self.weak & self.cuts.keys()),
            unseen=tuple(said for name, said in self.unseen.items() if name in self.cuts),
            places=(*_junctions(found, every), *_junctions(failed, self._agreed())),
            case=self._judge.case,
        )

    def _stored(self, pairs: Sequence[Pair]) -> dict[Pair, _Failure]:
        """Compare outputs that the candidate stores with what the original computes."""
        stored = {
            pair: onnx.numpy_helper.to_array(tensor)
            for pair in pairs
            if pair.candidate in self.theirs.outputs
            and (tensor := self.theirs.initializers.get(pair.candidate)) is not None
            and tensor.data_location != TensorProto.EXTERNAL
        }
        values = self.stream.values([pair.original for pair in stored]) if stored else {}
        judge = replace(self._judge, facts=Facts(), roundings=_THOUSAND)
        found = {}
        for pair, array in stored.items():
            compared = judge.compare(pair.original, values[pair.original], leaves_of(array))
            if not compared.ok:
                found[pair] = _Failure(compared.reason or "another value is stored", is_final=True)
        return found

    def _agreed(self) -> dict[str, str]:
        return {pair.original: pair.candidate for pair in self.cuts.values()}

    # Regions that are joined with those that read them.

    def _misfits(self, failed: Mapping[Pair, _Failure]) -> list[Pair]:
        """Return the pairs that were never meant to be the same."""
        return [
            pair
            for pair, failure in failed.items()
            if failure.is_misfit and self._may(pair, failure)
        ]

    def _first(self, failed: Mapping[Pair, _Failure]) -> list[Pair]:
        """Return the other pairs that may be joined: those that read none that failed, too."""
        wrong = {pair.candidate for pair in failed}
        return [
            pair
            for pair, failure in failed.items()
            if self._may(pair, failure) and wrong.isdisjoint(self._region(pair).parts[1].reads)
        ]

    def _may(self, pair: Pair, failure: _Failure) -> bool:
        """Tell whether a region may be joined with those that read it."""
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
                if not failure.is_misfit or pair.candidate in self.joined:
                    self.joined.add(reader.candidate)
                if (failure.is_misfit and failure.fits) or pair.candidate in self.guessed:
                    self.guessed.add(reader.candidate)
                length = self.lengths.get(pair.candidate, 0) + failure.fits
                self.lengths[reader.candidate] = max(length, self.lengths.get(reader.candidate, 0))
                known = self.causes.get(reader.candidate, cause)
                self.causes[reader.candidate] = min(cause, known, key=self._place)
                is_only = reader.candidate not in self.nearest
                self.nearest[reader.candidate] = (pair, failure) if is_only else None
        left = {pair: why for pair, why in failed.items() if pair.candidate not in again}
        return left | self._failed([p for p in again.values() if p.candidate in self.cuts])

    def _place(self, cause: tuple[Pair, _Failure]) -> int:
        return self.order[cause[0].original]

    def _said(self, pair: Pair, failure: _Failure) -> str:
        called = _label(self.ours, pair.original)
        if pair.candidate != pair.original:
            called += f" ({pair.candidate!r} in the candidate)"
        return f"{called}, fed what the original computes: {failure.reason}"

    def _readers(self, name: str) -> Iterator[Pair]:
        """Yield the pairs next behind a value of the candidate that is no cut any more."""
        pending, seen = [name], {name}
        while pending:
            for row in self.theirs.readers.get(pending.pop(), ()):
                for made in filter(None, self.theirs.nodes[row].output):
                    if made in self.cuts:
                        yield self.cuts[made]
                    elif made not in seen:
                        seen.add(made)
                        pending.append(made)

    # Regions that run.

    def _region(self, pair: Pair) -> _Region:
        ours = self._part(self.ours, self.partners, pair.original)
        theirs = self._part(self.theirs, self.cuts, pair.candidate)
        if unknown := [name for name in theirs.reads if name not in self.cuts]:
            raise RunError(f"{unknown[0]!r} of the candidate cannot be fed")
        converted = {
            dtype_name(to.i)
            for row in ours.nodes
            if (to := attribute(self.ours.nodes[row], "to")) is not None
        }
        nodes = [
            node
            for side, part in zip(self.sides, (ours, theirs), strict=True)
            for row in part.nodes
            for node in side.inside(row)
        ]
        hides = any(hides_differences(node) for node in nodes)
        jumps = hides or any(_truncates(node) for node in nodes)
        branches = any(node.op_type in CONTROL_FLOW for node in nodes)
        return _Region(pair, (ours, theirs), hides, jumps, branches, frozenset(converted & FLOATS))

    @staticmethod
    def _part(wiring: Wiring, cuts: Mapping[str, Pair], end: str) -> _Part:
        nodes = wiring.between(cuts, [end])
        return _Part(nodes, wiring.entering(nodes, cuts), end)

    def _failed(self, pairs: Iterable[Pair]) -> dict[Pair, _Failure]:
        """Return the pairs whose regions give something else."""
        regions = [self._region(pair) for pair in dict.fromkeys(pairs)]
        found: dict[Pair, _Failure] = {}
        for group in self._groups(regions):
            names = dict.fromkeys(name for region in group for name in self._needed(region))
            found |= self._failures(group, self.stream.values([*names]))
        return found

    def _needed(self, region: _Region) -> list[str]:
        ours, theirs = region.parts
        names = [*ours.reads, *(self.cuts[name].original for name in theirs.reads), ours.end]
        return [name for name in names if name in self.sizes]

    def _groups(self, regions: Sequence[_Region]) -> Iterator[list[_Region]]:
        """Yield regions in groups whose values may be held at once."""
        group: list[_Region] = []
        held: dict[str, int] = {}
        size = 0
        for region in regions:
            new = {n: self.sizes[n] for n in self._needed(region) if n not in held}
            if group and size + sum(new.values()) > _HELD:
                yield group
                group, held, size = [], {}, 0
                new = {name: self.sizes[name] for name in self._needed(region)}
            group.append(region)
            held |= new
            size += sum(new.values())
        if group:
            yield group

    def _failures(self, regions: Sequence[_Region], values: Values) -> dict[Pair, _Failure]:
        """Run regions on the original's values; say what is wrong with what some give."""
        found: dict[Pair, _Failure] = {}
        doubtful: dict[_Region, Sequence[Leaf]] = {}
        same: set[_Region] = set()
        for region, given in self._results(self.sides[1], regions, values):
            if isinstance(given, RunError):
                found[region.pair] = _Failure(f"onnxruntime does not run it: {given}")
            elif not self._compared(region, values, given, _FEW).ok:
                doubtful[region] = given
            elif _is_same(values[region.pair.original], given):
                same.add(region)
        exact = self._in_float64([*doubtful], values)
        for region, given in doubtful.items():
            if failure := self._failure(region, values, given, exact.get(region)):
                found[region.pair] = failure
        for region in regions:
            if region.pair not in found:
                would_show = region in same and self._would_show(region, values)
                if failure := self._hidden(region, values, would_show=would_show):
                    found[region.pair] = failure
                self._note(region, values, would_show=would_show)
        return found

    def _hidden(self, region: _Region, values: Values, *, would_show: bool) -> _Failure | None:
        """Say what is wrong with a region that gives the same, if something is."""
        pair = region.pair
        if self._stores_something_else(pair):
            return _Failure("rows differ that no input chose", is_final=True)
        if pair.candidate in self.joined and region.hides and not would_show:
            return _Failure("it differs before it is rounded to steps")
        if pair.candidate in self.joined and _says_nothing(values[pair.original]):
            return _Failure("it differs where all that follows is one number")
        return None

    def _would_show(self, region: _Region, values: Values) -> bool:
        """Tell whether it is no luck that what differs inside a region does not show at its end.

        The differences are given to other elements of what the original computes there. If many
        elements of the end move then, and none did before, the candidate has rounded to the same
        steps already.
        """
        before = self.nearest.get(region.pair.candidate) if region.hides else None
        if before is None or before[1].given is None or len(values[region.pair.original]) != 1:
            return False
        pair, given = before[0], before[1].given
        cuts = {**self.partners, pair.original: pair}
        part = self._part(self.ours, cuts, region.pair.original)
        known = {**values, **self.stream.values([pair.original])}
        (leaf,) = known[pair.original]
        with np.errstate(invalid="ignore"):
            apart = given.astype(np.float64) - leaf.data.astype(np.float64)
        if pair.original not in part.reads or not np.isfinite(apart).all():
            return False
        moved = np.random.default_rng(0).permutation(apart.reshape(-1)).reshape(apart.shape)
        moved = leaf.data.astype(np.float64) + moved
        known[pair.original] = (replace(leaf, data=moved.astype(leaf.data.dtype)),)
        try:
            source, feeds = self._cut_out(
                self.sides[0], [replace(region, parts=(part, part))], known, cuts
            )
            (found,) = Runner(source, REFERENCE_LEVEL).run(feeds)[made_name(part.end)]
        except RunError:
            return False
        return int((found.data != values[region.pair.original][0].data).sum()) >= _SEEN

    def _note(self, region: _Region, values: Values, *, would_show: bool) -> None:
        """Remember what a region does not show though it gives the same."""
        pair = region.pair
        if _says_nothing(values[pair.original]) or (
            pair.candidate in self.guessed and region.hides and not would_show
        ):
            self.weak.add(pair.candidate)
        if region.branches:
            self.unseen[pair.candidate] = f"{_label(self.ours, pair.original)} differs in a body"

    def _failure(
        self, region: _Region, values: Values, given: Sequence[Leaf], exact: _Exact | None
    ) -> _Failure | None:
        """Say what is wrong with what a region gives, if something is."""
        pair, expected = region.pair, values[region.pair.original]
        fits = _forms(expected) == _forms(given)
        found = self._compared(region, values, given, _THOUSAND)
        reason = "" if found.ok else found.reason or "it differs"
        unit = UNITS.get(self._coarsest(region, values))
        if exact is not None and fits and unit is not None:
            reason = exact.objection(expected[0].data, given[0].data, unit, reason)
        elif reason and region.hides and fits:
            limits = self._unsteadiness(region, values)
            if self._compared(region, values, given, _THOUSAND, limits).ok:
                reason = ""
        if not reason:
            return None
        if pair.candidate in self.theirs.outputs:
            return _Failure(reason)
        is_index = expected[0].dtype in _INDICES
        is_guess = pair.how == "dataflow" and (is_index or not self._is_one_node(pair))
        is_guess = is_guess and not self._is_rounded(pair)
        array = given[0].data if fits and expected[0].dtype in FLOATS and len(given) == 1 else None
        return _Failure(reason, is_misfit=is_guess or not fits, fits=fits, given=array)

    def _is_rounded(self, pair: Pair) -> bool:
        """Tell whether both values are what the same operator rounds to steps."""
        ours = (self.ours.nodes[row] for row in self.ours.readers.get(pair.original, ()))
        theirs = (self.theirs.nodes[row] for row in self.theirs.readers.get(pair.candidate, ()))
        kinds = [{node.op_type for node in nodes if rounds(node)} for nodes in (ours, theirs)]
        return not kinds[0].isdisjoint(kinds[1])

    def _stores_something_else(self, pair: Pair) -> bool:
        """Tell whether both choose rows of stored tables, and these differ by more than rounding.

        No input need choose the rows that differ.
        """
        nodes = (
            self.ours.nodes[self.ours.makers[pair.original]],
            self.theirs.nodes[self.theirs.makers[pair.candidate]],
        )
        if not all(node.op_type in CHOOSERS and not node.domain for node in nodes):
            return False
        stored = [
            side.wiring.initializers.get(node.input[0])
            for side, node in zip(self.sides, nodes, strict=True)
        ]
        tables = [
            onnx.numpy_helper.to_array(tensor)
            for tensor in stored
            if tensor is not None and tensor.data_location != TensorProto.EXTERNAL
        ]
        if len(tables) < len(nodes) or tables[0].shape != tables[1].shape:
            return False
        ours, theirs = tables
        if ours.dtype.kind != "f":
            return not np.array_equal(ours, theirs)
        allowed = _ROUNDED_AGAIN * UNITS.get(ours.dtype.name, 0.0) * scale_of(ours)
        is_same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        return not np.allclose(ours[~is_same], theirs[~is_same], rtol=0, atol=allowed)

    def _is_one_node(self, pair: Pair) -> bool:
        """Tell whether the same operator makes both, from values that correspond, or constants."""
        ours = self.ours.nodes[self.ours.makers[pair.original]]
        theirs = self.theirs.nodes[self.theirs.makers[pair.candidate]]
        return is_alike(ours, theirs) and all(
            self.cuts[b].original == a if b in self.cuts else b not in self.moving
            for a, b in zip(ours.input, theirs.input, strict=True)
        )

    def _unsteadiness(self, region: _Region, values: Values) -> dict[str, Limit]:
        """Return how far the last bits of the original move the value of a region, over steps."""
        name, case = region.pair.original, self._judge.case
        source, feeds = self._cut_out(self.sides[0], [region], values)
        outputs: dict[int, Outputs] = {case: {made_name(name): tuple(values[name])}}
        create = partial(Runner, level=REFERENCE_LEVEL)
        limits = measure_limits(source, {case: feeds}, outputs, create)
        found = limits.get(made_name(name))
        return {} if found is None else {name: found}

    def _compared(
        self,
        region: _Region,
        values: Values,
        given: Sequence[Leaf],
        roundings: int,
        limits: Mapping[str, Limit] = _NO_LIMITS,
    ) -> OutputComparison:
        """Compare what a region gives with what the original gives there."""
        name = region.pair.original
        maker = self.ours.nodes[self.ours.makers[name]]
        coarsest = self._coarsest(region, values)
        is_stepped = quantises(maker) or (maker.op_type == "Cast" and coarsest != "")
        facts = Facts(coarsest=coarsest, stepped=frozenset({name} if is_stepped else ()))
        judge = replace(self._judge, facts=facts, roundings=roundings, limits=limits)
        return judge.compare(name, values[name], given)

    def _coarsest(self, region: _Region, values: Values) -> str:
        """Return the coarsest float type that a region has to do with, "" if none."""
        types = {leaf.dtype for read in self._needed(region) for leaf in values[read]}
        fed = (self.feeds.get(name) for name in region.parts[0].reads)
        types |= region.casts | {array.dtype.name for array in fed if isinstance(array, np.ndarray)}
        return max(types & FLOATS, key=UNITS.__getitem__, default="")

    def _in_float64(self, regions: Sequence[_Region], values: Values) -> dict[_Region, _Exact]:
        """Compute regions of both models in float64, where that can be done and says something."""
        ours, theirs = self.sides
        asked = [
            region
            for region in regions
            if not region.jumps
            and self._is_small(region)
            and self._coarsest(region, values) != "float64"  # that would be no finer
        ]
        found: dict[_Region, tuple[Array, ...]] = dict.fromkeys(asked, ())
        for side, precision in (
            (ours, _PLAIN),
            (theirs, _PLAIN),
            (ours, _MOVED),
            (ours, _CONSTANTS_MOVED),
            (theirs, _CONSTANTS_MOVED),
        ):
            if self.has_stopped or not found:
                return {}
            try:
                given = dict(self._results(side, [*found], values, precision))
            except StoppedError:
                self.has_stopped = True
                return {}
            found = {
                region: arrays
                for region, known in found.items()
                if (arrays := _with(known, given[region]))
            }
        self.exact += len(found)
        return {region: _Exact(*arrays) for region, arrays in found.items()}

    def _is_small(self, region: _Region) -> bool:
        return sum(self.sizes[name] for name in self._needed(region)) <= _EVALUATED_BYTES

    def _results(
        self,
        side: _Side,
        regions: Sequence[_Region],
        values: Values,
        precision: _Precision | None = None,
    ) -> Iterator[tuple[_Region, Sequence[Leaf] | RunError]]:
        """Yield what regions give for the original's values, or why they do not run.

        The sizes of what they are fed are stated, but not if one does not run so: a body may state
        others, which onnxruntime overlooks where it cannot tell beforehand.
        """
        pending = [(list(regions), True)] if regions else []
        while pending:
            some, is_sized = pending.pop()
            try:
                source, feeds = self._cut_out(side, some, values, is_sized=is_sized)
                if precision is None:
                    given = Runner(source, REFERENCE_LEVEL).run(feeds)
                else:
                    given = precision.run(source, feeds)
            except RunError as error:
                if len(some) > 1:
                    middle = len(some) // 2
                    pending += [(some[:middle], True), (some[middle:], True)]
                elif is_sized:
                    pending.append((some, False))
                else:
                    yield some[0], error
            else:
                for region in some:
                    yield region, given[made_name(region.parts[side.place].end)]

    def _cut_out(
        self,
        side: _Side,
        regions: Sequence[_Region],
        values: Values,
        cuts: Mapping[str, Pair] | None = None,
        *,
        is_sized: bool = True,
    ) -> tuple[ModelSource, dict[str, Feed]]:
        """Return the regions of one model as one model, and what the original feeds them.

        Args:
            side: The model.
            regions: Its regions.
            values: What the original computes.
            cuts: What can be fed, by its name in the model; None for all pairs.
            is_sized: Whether the model states the sizes of what it is fed.

        Raises:
            RunError: Something cannot be fed.
        """
        parts = [region.parts[side.place] for region in regions]
        if cuts is None:
            cuts = self.cuts if side.place else self.partners
        feeds: dict[str, Feed] = {}
        for name in dict.fromkeys(name for part in parts for name in part.reads):
            if name not in cuts:
                raise RunError(f"{name!r} cannot be fed")
            original = cuts[name].original
            feeds[name] = value_of(values[original]) if original in values else self.feeds[original]
        types = {
            name: type_of(_known(value, name), is_sized=is_sized) for name, value in feeds.items()
        }
        nodes = {row for part in parts for row in part.nodes}
        model = cut(side.wiring, nodes, types, [part.end for part in parts], cuts)
        content, held = model.SerializeToString(), side.source.weights or {}
        away = [t.name for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
        weights = {name: held[name] for name in away if name in held}  # others are refused
        return replace(side.source, content=content, weights=weights, name="region"), feeds


@dataclass(frozen=True)
class _Precision:
    """How a region is computed in float64.

    Attributes:
        moves_constants: Whether float constants are moved in their last place.
        moves_inputs: Whether what is fed is moved so, too.
    """

    moves_constants: bool = False
    moves_inputs: bool = False

    def run(self, source: ModelSource, feeds: Mapping[str, Feed]) -> Outputs:
        """Run a model in onnx's reference evaluator.

        Raises:
            RunError: It cannot be had in float64, or does not run.
            StoppedError: It takes too long.
        """
        constants = np.random.default_rng(0) if self.moves_constants else None
        inputs = np.random.default_rng(1) if self.moves_inputs else None
        try:
            wide = in_float64(whole_of(source), constants)
            content = wide.SerializeToString()
        except (OSError, *ONNX_ERRORS) as error:
            raise RunError(f"it cannot be had in float64: {one_line(str(error))}") from error
        execution = replace(source.execution.plain(), timeout=_EVALUATION_TIME)
        plain = replace(source, content=content, weights=None, libraries=(), execution=execution)
        given = {name: wide_feed(value, inputs) for name, value in feeds.items()}
        return Runner(plain, REFERENCE_LEVEL, "float64").run(given)


_PLAIN = _Precision()
_MOVED = _Precision(moves_constants=True, moves_inputs=True)
_CONSTANTS_MOVED = _Precision(moves_constants=True)


@dataclass(frozen=True, eq=False)
class _Exact:
    """What a region gives in float64.

    Attributes:
        ours: The original.
        theirs: The candidate.
        moved: The original with its constants, and what it is fed, moved in their last bits.
        ours_moved: The original with its constants moved.
        theirs_moved: The candidate with its constants moved.
    """

    ours: Array
    theirs: Array
    moved: Array
    ours_moved: Array
    theirs_moved: Array

    def objection(self, expected: Array, given: Array, unit: float, reason: str) -> str:
        """Say why a region gives something else; "" if it does not.

        Args:
            expected: What the original gives in its own type, of one shape with all others.
            given: What the candidate gives.
            unit: The unit in the last place of 1, in the coarsest type.
            reason: Why these are too far apart for a thousand roundings; "" if they are not.
        """
        if not all(np.isfinite(values).all() for values in (*vars(self).values(), expected, given)):
            return reason
        scale = scale_of(self.ours)
        least = unit * scale
        rounded, sensitivity = _apart(expected, self.ours), _apart(self.moved, self.ours)
        if rounded > _EVALUATED * (sensitivity + least):
            return reason
        constants = max(_apart(self.ours_moved, self.ours), _apart(self.theirs_moved, self.theirs))
        apart = _apart(self.theirs, self.ours)
        if apart > _EXACT * scale + _NARROWER * rounded + _ROUNDED_AGAIN * constants:
            share = f", {apart / scale:.2g} of the largest element" if scale else ""
            return f"computed in float64, it is up to {apart:.3g} off{share}"
        usual = max(rounded, sensitivity, least)
        if reason and (further := _apart(given, self.theirs)) > _TOO_COARSE * usual:
            if not usual:
                return f"it is rounded, and the original is exact; {reason}"
            times = f"{further / usual:.0f} times as far as in the original"
            return f"it is rounded {times}; {reason}"
        return ""


def _with(known: tuple[Array, ...], given: Sequence[Leaf] | RunError) -> tuple[Array, ...]:
    """Add what a region gives in float64; return nothing if that is none, or far from the other."""
    if isinstance(given, RunError):
        return ()
    values = given[0].data
    if values.dtype != np.float64 or (known and values.shape != known[0].shape):
        return ()
    is_second = len(known) == 1  # the candidate, as it is
    if is_second and _apart(values, known[0]) > _FAR * scale_of(known[0]):
        return ()
    return (*known, values)


def _apart(one: Array, other: Array) -> float:
    """Return the largest difference of two elements; NaN if one of them is."""
    with np.errstate(invalid="ignore"):  # infinite in both
        return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max(initial=0.0))


def _truncates(node: NodeProto) -> bool:
    to = attribute(node, "to") if node.op_type == "Cast" else None
    return to is not None and dtype_name(to.i) not in FLOATS


def _junctions(pairs: Iterable[Pair], agreed: Mapping[str, str]) -> Iterator[Junction]:
    return (Junction(pair.original, pair.candidate, pair.how, agreed) for pair in pairs)


def _comparable(*sources: ModelSource) -> list[ModelProto]:
    """Read models; weights in files are read, too, unless all take what the first one takes.

    Raises:
        RunError: They cannot be read.
    """
    models = [model_of(source) for source in sources]
    try:
        places = [
            external_places(model, source.path.parent, source.weights or {})
            for model, source in zip(models, sources, strict=True)
        ]
        if all(found <= places[0] for found in places):
            return models
        return [whole_of(source) for source in sources]
    except (OSError, *ONNX_ERRORS) as error:
        raise RunError(f"weights cannot be read: {one_line(str(error))}") from error


def _is_same(expected: Sequence[Leaf], given: Sequence[Leaf]) -> bool:
    """Tell whether two values are the same, element for element."""
    return _forms(expected) == _forms(given) and all(
        np.array_equal(a.data, b.data) for a, b in zip(expected, given, strict=True)
    )


def _says_nothing(leaves: Sequence[Leaf]) -> bool:
    """Tell whether all elements are the same number, as behind a Clip that is never left."""
    large = [leaf.data for leaf in leaves if leaf.data.size > 1]
    return bool(large) and all(bool((data == data.flat[0]).all()) for data in large)


def _label(wiring: Wiring, name: str) -> str:
    return f"{wiring.nodes[wiring.makers[name]].op_type} {name!r}"


def _forms(leaves: Sequence[Leaf]) -> list[tuple[str, tuple[int, ...]]]:
    return [(leaf.dtype, leaf.data.shape) for leaf in leaves]


def _known(value: Array | list[Array] | None, name: str) -> Array | list[Array]:
    if value is None:
        raise RunError(f"the value {name!r} cannot be fed")
    return value
