"""The place where one model leaves another, cut out of both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.verify.capturing import feed, type_of
from dplcli.verify.cutting import Wiring, cut
from dplcli.verify.exhibit import DATA, Item, Specimen, serialised, whole_model, write_feed
from dplcli.verify.interface import read_model
from dplcli.verify.layers import Inside, boundaries
from dplcli.verify.refill import names_made_by_shape, replace_weights
from dplcli.verify.sessions import RunError, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import onnx

    from dplcli.verify.layer_result import Layer, Layers
    from dplcli.verify.result import Settings
    from dplcli.verify.sessions import Array


@dataclass(frozen=True)
class CutPair:
    """Two parts that were written, and what flows into them.

    Attributes:
        inputs: What is fed, by the original's name.
        names: For each input its name in the original's part, and in the candidate's; None where
            a part does not read it.
        outputs: What is compared: the original's name and the candidate's.
        original: The nodes of the original's part, for a reader.
        candidate: Those of the candidate's.
    """

    inputs: tuple[Item, ...]
    names: tuple[tuple[str | None, str | None], ...]
    outputs: tuple[tuple[str, str], ...]
    original: tuple[str, ...]
    candidate: tuple[str, ...]

    def fed(self) -> Iterator[tuple[Item, str | None, str | None]]:
        """Yield each input with its names."""
        for item, (ours, theirs) in zip(self.inputs, self.names, strict=True):
            yield item, ours, theirs


class Comparison:
    """Two models, the inputs that both run on, and what was found inside.

    Args:
        original: The model that is right by definition.
        candidate: The model in question.
        settings: How they are compared.
        seed: Which inputs to use; None for the first.
    """

    def __init__(
        self, original: Path, candidate: Path, settings: Settings, seed: int | None = None
    ) -> None:
        """Find inputs, and read both models.

        Raises:
            VerificationError: The original does not run, or there are no inputs for it.
            UsageError: A model's weights cannot be read.
        """
        self.seed = settings.seeds[0] if seed is None else seed
        made = names_made_by_shape(read_model(candidate).graph)
        self.fed = feed(original, settings, made)
        self.candidate = _candidate(candidate, self.fed.source, settings)
        self.specimen = Specimen(self.fed, self.seed)
        self.wirings = self.specimen.wiring, Wiring(whole_model(candidate))

    def layers(self, cap: int) -> Layers:
        """Compare what is inside.

        Args:
            cap: How many bytes of values to hold at once, of each model.

        Raises:
            RunError: A model does not run with optimisation off.
        """
        return Inside(self.fed, self.candidate, self.wirings, self.seed, cap).compare()

    @property
    def shared(self) -> dict[str, str]:
        """What both are given from outside: graph inputs and refilled weights."""
        names = [*self.specimen.feeds, *(self.fed.source.weights or {})]
        return {name: name for name in names}

    def write(self, layers: Layers, at: Layer, folder: Path) -> CutPair | None:
        """Write what computes *at* in both models, and what flows into that.

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
        values = self._values([*wanted, at.original])
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
            _written(folder, wanted, values, at.original),
            names,
            ((at.original, at.candidate),),
            _labels(self.wirings[0], ours),
            _labels(self.wirings[1], theirs),
        )

    def _values(self, names: Sequence[str]) -> dict[str, Array | list[Array]] | None:
        """Return what values of the original hold; None if that cannot be fed."""
        try:
            return self.specimen.values(names)
        except RunError:
            return None


def _saved(model: onnx.ModelProto, path: Path) -> bool:
    """Write a model unless it is too large for one file; tell whether it was."""
    content = serialised(model)
    if content is not None:
        path.write_bytes(content)
    return content is not None


def _written(
    folder: Path, names: Sequence[str], values: Mapping[str, Array | list[Array]], end: str
) -> tuple[Item, ...]:
    """Write what is fed, and what the original gives for it."""
    (folder / DATA).mkdir(exist_ok=True)
    items = []
    for number, name in enumerate(names):
        file = f"{DATA}/input_{number}.pb"
        write_feed(folder / file, name, values[name])
        items.append(Item(file, name, isinstance(values[name], list)))
    write_feed(folder / DATA / "output_0.pb", end, values[end])
    return tuple(items)


def _candidate(path: Path, original: Source, settings: Settings) -> Source:
    """Return the candidate to run, with the weights that the original was given."""
    if not original.weights:
        return Source(path, libraries=settings.custom_ops, execution=settings.execution)
    content = replace_weights(read_model(path), original.weights)
    deployed = replace(original, libraries=settings.custom_ops, execution=settings.execution)
    return replace(deployed, path=path, content=content)


def _labels(wiring: Wiring, nodes: set[int]) -> tuple[str, ...]:
    """Name nodes for a reader, by what they make."""
    found = (wiring.nodes[index] for index in sorted(nodes))
    return tuple(f"{node.op_type} {next(filter(None, node.output), '')!r}" for node in found)
