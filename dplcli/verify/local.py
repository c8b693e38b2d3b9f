"""Each place where two models differ, judged by itself on values that the original computes.

The outputs of a whole model are a poor witness. Where a model rounds to steps, sorts, or repeats
itself, the last bits of a value decide over large differences further down. A tolerance that
allows for that hides mistakes; one that does not refuses what is right.

So the candidate is cut at values that both models compute (`dplcli.verify.layers` finds them).
What lies between two cuts is a region. A region that says in both models the same, node for node,
needs no run. Each other one runs alone: it is fed what the original computes there, and has to
give what the original gives, within the tolerance of a few roundings.

Some cuts were found by dataflow or by a log, and were never meant to be the same: steps on two
ways to one result. So a region that gives something else is joined with those that read it, a few
times, and may agree there after all. It may not agree behind an operator that rounds to steps,
which could hide the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnx import ModelProto, TypeProto

from dplcli.onnx_io.infer import ONNX_ERRORS
from dplcli.verify.compare import REFERENCE_LEVEL, Facts, Judge, hides, quantises
from dplcli.verify.engines import one_line
from dplcli.verify.layers import Inside, is_alike, type_of, value_of
from dplcli.verify.model import Wiring, cut, external_places, model_of, whole_of
from dplcli.verify.numbering import Numbering
from dplcli.verify.run import Runner
from dplcli.verify.settings import LocalJudgement, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dplcli.verify.inputs import Reference
    from dplcli.verify.layers import Pair
    from dplcli.verify.settings import Array, Feed, Leaf, ModelSource

_HELD = 1 << 29
"""How many bytes of the original's values are held at once; one region may need more."""

_JOINED = 8
"""How often a region that gives something else is joined with those that read it."""


def judge_regions(reference: Reference, candidate: ModelSource, judge: Judge) -> LocalJudgement:
    """Judge the regions of a candidate.

    Args:
        reference: The original and its inputs.
        candidate: The candidate.
        judge: Says which inputs to use; regions have tolerances of their own.

    Raises:
        RunError: A model does not run when it is asked for inner values, or one cannot be fed.
    """
    return _Regions(reference, candidate, judge).judge()


@dataclass(frozen=True)
class _Region:
    """The nodes of the candidate that compute the value of a pair from cuts.

    Attributes:
        pair: The pair.
        nodes: Their rows.
        reads: The values that enter, by the candidate's names.
    """

    pair: Pair
    nodes: set[int]
    reads: Sequence[str]


@dataclass(frozen=True)
class _Failure:
    """What is wrong with a region.

    Attributes:
        reason: It, in words.
        is_misfit: Whether the two values were never meant to be the same.
    """

    reason: str
    is_misfit: bool


class _Regions:
    """The regions of a candidate.

    Attributes:
        cuts: Pairs of values that both models compute, by the candidate's name.
        joined: Values whose regions hold some that gave something else.
        causes: For a value of the candidate what failed first on the way to it.
        moving: Values of the candidate that depend on what it is fed.
        order: The place of each value in the original.
        sizes: Upper bounds of the bytes of the original's values.
    """

    def __init__(self, reference: Reference, candidate: ModelSource, judge: Judge) -> None:
        self.reference = reference
        self.candidate = candidate
        self._judge = judge
        self.feeds = reference.feeds[judge.case]
        ours, theirs = _comparable(reference.source, candidate)
        self.ours, self.theirs = Wiring(ours), Wiring(theirs)
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
        self.joined: set[str] = set()
        self.causes: dict[str, tuple[Pair, _Failure]] = {}
        self.order = {name: place for place, name in enumerate(self.ours.makers)}

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
            raise RunError(f"nothing in the original corresponds to the output {missing[0]!r}")
        failed = self._failed(changed)
        for _ in range(_JOINED):
            while misfits := [pair for pair, failure in failed.items() if failure.is_misfit]:
                failed = self._without(misfits, failed)
            joined = self._first(failed)
            if not joined:
                break
            failed = self._without(joined, failed, are_joined=True)
        found = {}
        for pair, failure in failed.items():
            first, why = self.causes.get(pair.candidate, (pair, failure))
            found[first.original] = self._said(first, why)
        return LocalJudgement(len(changed), len(pairs) - len(changed), tuple(found.values()))

    def _first(self, failed: Mapping[Pair, _Failure]) -> list[Pair]:
        """Return the pairs that may be joined: inner ones that read none that failed, too."""
        wrong = {pair.candidate for pair in failed}
        return [
            pair
            for pair in failed
            if pair.candidate not in self.theirs.outputs
            and wrong.isdisjoint(self._region(pair).reads)
        ]

    def _without(
        self, pairs: Sequence[Pair], failed: dict[Pair, _Failure], *, are_joined: bool = False
    ) -> dict[Pair, _Failure]:
        """Take cuts out, and judge again what reaches further now; return what fails then.

        Args:
            pairs: The cuts.
            failed: All pairs that fail.
            are_joined: Whether they were meant to be the same, so that nothing may hide them.
        """
        again: dict[str, Pair] = {}
        for pair in pairs:
            failure = failed.pop(pair)
            del self.cuts[pair.candidate]
            cause = self.causes.get(pair.candidate, (pair, failure))
            for reader in self._readers(pair.candidate):
                again[reader.candidate] = reader
                known = self.causes.get(reader.candidate, cause)
                self.causes[reader.candidate] = min(cause, known, key=self._place)
        if are_joined:
            self.joined |= again.keys()
        left = {pair: why for pair, why in failed.items() if pair.candidate not in again}
        return left | self._failed([p for p in again.values() if p.candidate in self.cuts])

    def _place(self, cause: tuple[Pair, _Failure]) -> int:
        return self.order[cause[0].original]

    def _said(self, pair: Pair, failure: _Failure) -> str:
        maker = self.ours.nodes[self.ours.makers[pair.original]]
        called = f"{pair.original!r}"
        if pair.candidate != pair.original:
            called += f" ({pair.candidate!r} in the candidate)"
        return f"{maker.op_type} {called}, fed what the original computes: {failure.reason}"

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

    def _failed(self, pairs: Sequence[Pair]) -> dict[Pair, _Failure]:
        """Return the pairs whose regions give something else."""
        regions = [self._region(pair) for pair in dict.fromkeys(pairs)]
        found = {}
        for group in self._groups(regions):
            names = dict.fromkeys(name for region in group for name in self._needed(region))
            values = self.stream.values([*names])
            for region in group:
                if (failure := self._failure(region, values)) is not None:
                    found[region.pair] = failure
        return found

    def _region(self, pair: Pair) -> _Region:
        others = self.cuts.keys() - {pair.candidate}
        nodes = self.theirs.between(others, [pair.candidate])
        reads = self.theirs.entering(nodes)
        for name in reads:
            if name not in self.cuts:
                raise RunError(f"{name!r} of the candidate cannot be fed")
        return _Region(pair, nodes, reads)

    def _needed(self, region: _Region) -> list[str]:
        names = [self.cuts[name].original for name in region.reads]
        return [name for name in [*names, region.pair.original] if name in self.sizes]

    def _groups(self, regions: Sequence[_Region]) -> Iterator[list[_Region]]:
        """Yield regions in groups whose values may be held at once."""
        group: list[_Region] = []
        held: dict[str, int] = {}
        for region in regions:
            needed = {name: self.sizes[name] for name in self._needed(region)}
            if group and sum((held | needed).values()) > _HELD:
                yield group
                group, held = [], {}
            group.append(region)
            held |= needed
        if group:
            yield group

    def _failure(self, region: _Region, values: Mapping[str, Sequence[Leaf]]) -> _Failure | None:
        """Run a region on the original's values; say what is wrong with what it gives, if it is."""
        pair = region.pair
        ours = values[pair.original]
        is_suggested = pair.how == "dataflow" and pair.candidate not in self.theirs.outputs
        try:
            theirs = self._run(region, values)
        except RunError as error:
            return _Failure(f"onnxruntime does not run it: {error}", is_misfit=False)
        facts = Facts(coarsest=self._judge.facts.coarsest, stepped=self._stepped(region))
        found = replace(self._judge, facts=facts).compare(pair.original, ours, theirs)
        if not found.ok:
            fits = _forms(ours) == _forms(theirs) and self._is_one_node(pair)
            return _Failure(found.reason or "", is_suggested and not fits)
        if pair.candidate in self.joined and any(
            hides(self.theirs.nodes[row]) for row in region.nodes
        ):
            return _Failure("it differs before it is rounded to steps", is_misfit=False)
        return None

    def _is_one_node(self, pair: Pair) -> bool:
        """Tell whether the same operator makes both, from values that correspond, or constants."""
        ours = self.ours.nodes[self.ours.makers[pair.original]]
        theirs = self.theirs.nodes[self.theirs.makers[pair.candidate]]
        return is_alike(ours, theirs) and all(
            self.cuts[b].original == a if b in self.cuts else b not in self.moving
            for a, b in zip(ours.input, theirs.input, strict=True)
        )

    def _stepped(self, region: _Region) -> frozenset[str]:
        """Return the value that a region makes, if a few of its elements may be a step off."""
        name = region.pair.original
        is_stepped = quantises(self.ours.nodes[self.ours.makers[name]])
        return frozenset({name} if is_stepped else ())

    def _run(self, region: _Region, values: Mapping[str, Sequence[Leaf]]) -> Sequence[Leaf]:
        """Return what a region gives for the original's values."""
        feeds: dict[str, Feed] = {}
        for name in region.reads:
            original = self.cuts[name].original
            feeds[name] = value_of(values[original]) if original in values else self.feeds[original]
        name = region.pair.candidate
        types = {read: type_of(_known(value, read)) for read, value in feeds.items()}
        types[name] = TypeProto()  # that is the candidate's to say
        model = cut(self.theirs, region.nodes, types, [name])
        source = replace(self.candidate, content=model.SerializeToString(), name="region")
        return Runner(source, REFERENCE_LEVEL).run(feeds)[name]


def _comparable(*sources: ModelSource) -> list[ModelProto]:
    """Read models; weights in files are read, too, unless all models take the same ones.

    Raises:
        RunError: They cannot be read.
    """
    models = [model_of(source) for source in sources]
    try:
        places = [
            external_places(model, source.path.parent, source.weights or {})
            for model, source in zip(models, sources, strict=True)
        ]
        if all(found == places[0] for found in places):
            return models
        return [whole_of(source) for source in sources]
    except (OSError, *ONNX_ERRORS) as error:
        raise RunError(f"weights cannot be read: {one_line(str(error))}") from error


def _forms(leaves: Sequence[Leaf]) -> list[tuple[str, tuple[int, ...]]]:
    return [(leaf.dtype, leaf.data.shape) for leaf in leaves]


def _known(value: Array | list[Array] | None, name: str) -> Array | list[Array]:
    if value is None:
        raise RunError(f"the value of {name!r} cannot be fed")
    return value
