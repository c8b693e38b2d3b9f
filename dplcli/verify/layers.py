"""Two models compared inside: every value that both compute, and the first that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.verify.alignment import Alignment, Pair
from dplcli.verify.intermediates import DEFAULT_CAP, Stream
from dplcli.verify.judgement import REFERENCE
from dplcli.verify.layer_result import Layer, Layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dplcli.verify.capturing import Fed
    from dplcli.verify.cutting import Wiring
    from dplcli.verify.result import OutputComparison
    from dplcli.verify.sessions import Source


class Inside:
    """Two models that run on the same inputs, looked into.

    Args:
        fed: The original and its inputs.
        candidate: The candidate.
        wirings: The main graphs of both.
        seed: Which inputs to use.
        cap: How many bytes of values to hold at once, of each model.
    """

    def __init__(
        self,
        fed: Fed,
        candidate: Source,
        wirings: tuple[Wiring, Wiring],
        seed: int,
        cap: int = DEFAULT_CAP,
    ) -> None:
        """Run nothing yet."""
        self.seed = seed
        self.wirings = wirings
        self.judge = fed.judge(REFERENCE, seed)
        feeds = fed.feeds[seed]
        self.streams = Stream(fed.source, feeds, cap), Stream(candidate, feeds, cap)

    def align(self) -> Alignment:
        """Find which values ought to be the same.

        Raises:
            RunError: A model does not run.
        """
        alignment = Alignment(*self.wirings)
        alignment.by_structure()
        alignment.by_log()
        mine, other = alignment.unaligned()
        if mine and other:
            ours, theirs = self.streams
            alignment.by_numbers(ours.sketches(mine), theirs.sketches(other), self.judge)
        alignment.by_dataflow()
        return alignment

    def compare(self) -> Layers:
        """Compare every value that both models compute.

        Raises:
            RunError: A model does not run.
        """
        alignment = self.align()
        makers = self.wirings[0].makers
        pairs = [alignment.pairs[name] for name in makers if name in alignment.pairs]
        found = dict(self._compared(pairs))
        layers = tuple(
            Layer(
                pair.original,
                pair.candidate,
                self.wirings[0].nodes[makers[pair.original]].op_type,
                pair.how,
                found[pair.original],
            )
            for pair in pairs
            if pair.original in found
        )
        kept = self._meant(layers)
        meant = set(map(id, kept))
        doubtful = tuple(layer for layer in layers if id(layer) not in meant)
        dropped = len(doubtful)
        mine, other = (len(names) + dropped for names in alignment.unaligned())
        peak = max(stream.peak for stream in self.streams)
        return Layers(kept, (mine, other), self.seed, peak, doubtful)

    def _meant(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Leave out pairs that differ and yet lead to nothing that does.

        What dataflow aligned, and all that comes of it agrees again: the two are other steps on
        the way to one result, and were not meant to be the same.
        """
        wiring = self.wirings[0]
        agreed = {layer.original for layer in layers if layer.ok}
        wrong = {layer.original for layer in layers if not layer.ok}
        ends = [name for name in wiring.outputs if name in wrong]
        ends += [layer.original for layer in layers if not layer.ok and layer.how == "structure"]
        felt = wiring.between(agreed, ends)
        return tuple(
            layer
            for layer in layers
            if layer.ok or layer.how != "dataflow" or wiring.makers[layer.original] in felt
        )

    def _compared(self, pairs: Sequence[Pair]) -> Iterator[tuple[str, OutputComparison]]:
        """Compare pairs, a few at a time; what is no tensor is left out."""
        ours, theirs = self.streams
        own = ours.sizes([pair.original for pair in pairs])
        other = theirs.sizes([pair.candidate for pair in pairs])
        partners = {pair.original: pair.candidate for pair in pairs}
        sizes = {
            name: max(size, other[partners[name]])
            for name, size in own.items()
            if partners[name] in other
        }
        for chunk in ours.chunks(sizes):
            mine, found = ours.values(chunk), theirs.values([partners[n] for n in chunk])
            for name in chunk:
                yield name, self.judge.compare(name, mine[name], found[partners[name]])


def boundaries(
    layers: Layers, at: Layer, wirings: tuple[Wiring, Wiring], shared: Mapping[str, str]
) -> tuple[set[int], set[int], dict[str, str]]:
    """Return what computes *at* in both models from values that agree, and these values in pairs.

    Args:
        layers: The comparison.
        at: A value that differs.
        wirings: The main graphs of both models.
        shared: What both are given from outside: the original's name and the candidate's.
    """
    agreed = dict(shared) | {layer.original: layer.candidate for layer in layers.layers if layer.ok}
    ours = wirings[0].between(agreed.keys(), [at.original])
    theirs = wirings[1].between(set(agreed.values()), [at.candidate])
    return ours, theirs, agreed
