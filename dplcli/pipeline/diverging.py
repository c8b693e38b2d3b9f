"""Comparing two models inside, and finding the first place where one leaves the other."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

from dplcli.dpl.reproducer import FILE, InputItem, Reproducer
from dplcli.errors import VerificationError
from dplcli.files import put_folder, temporary_folder
from dplcli.pipeline.bisecting import what_differs
from dplcli.pipeline.exhibiting import README, check_folder, tolerance_of
from dplcli.pipeline.reproducing import shows
from dplcli.pipeline.verifying import verify
from dplcli.pipeline.writing import say_nothing
from dplcli.verify import Settings as VerifySettings
from dplcli.verify.bisect_result import ModelsOutcome, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dplcli.pipeline.writing import Progress
    from dplcli.verify.divergence import Comparison, CutPair
    from dplcli.verify.layer_result import Layer, Layers

MEMORY_CAP = 256
"""Megabytes of intermediate values of each model that are held at once."""

_MOST_TRIED = 24
_OFF = "disable"


def compare_layers(
    original: Path,
    candidate: Path,
    settings: VerifySettings | None = None,
    *,
    seed: int | None = None,
    cap: int = MEMORY_CAP,
) -> Layers:
    """Compare two models inside, with optimisation off.

    Args:
        original: The model that is right by definition.
        candidate: The model in question.
        settings: How to compare.
        seed: The seed of the inputs; None for the first.
        cap: How many megabytes of values to hold at once, of each model.

    Raises:
        VerificationError: A model does not run with optimisation off.
        DplError: A file is no model, or no inputs can be made.
    """
    with _inside(original, candidate, settings or VerifySettings(), seed) as comparison:
        return comparison.layers(cap << 20)


def bisect_models(  # noqa: PLR0913  # all by keyword
    original: Path,
    candidate: Path,
    *,
    settings: VerifySettings | None = None,
    output: Path | None = None,
    cap: int = MEMORY_CAP,
    progress: Progress | None = None,
) -> ModelsOutcome:
    """Find the first value that differs though all that flows into it agrees.

    Args:
        original: The model that is right by definition.
        candidate: The model in question.
        settings: How to compare.
        output: The folder to write a reproducer to; None for nowhere.
        cap: How many megabytes of values to hold at once, of each model.
        progress: Called with a short phrase before each step that may take long.

    Raises:
        VerificationError: The original does not run, or no inputs were found for it.
        DplError: A file is no model.
    """
    settings, say = settings or VerifySettings(), progress or say_nothing
    if output is not None:
        check_folder(output)
    labels = original.name, candidate.name
    result = verify(original, candidate, settings=settings, progress=say)
    if result.equivalent:
        return ModelsOutcome(labels, result)
    if not any(not item.ok for item in result.outputs):
        remark = "no value inside can be compared, because the candidate does not run like this"
        return ModelsOutcome(labels, result, remark=remark)
    _, levels, seed = what_differs(result)
    try:
        with _inside(original, candidate, settings, seed) as comparison:
            say("comparing the values inside")
            layers = comparison.layers(cap << 20)
            say("cutting out where they part")
            place = _Finder(comparison, layers, settings, labels, output).find(levels)
    except VerificationError as error:
        return ModelsOutcome(labels, result, remark=error.message)
    remark = "" if place is not None else _unplaced(layers)
    return ModelsOutcome(labels, result, layers, place, remark)


def _unplaced(layers: Layers) -> str:
    if layers.first is None:
        return (
            "with optimisation off all values inside agree: it is onnxruntime's optimiser that "
            "makes them differ"
        )
    return "no part of the models shows the difference by itself: it builds up over many nodes"


@contextmanager
def _inside(
    original: Path, candidate: Path, settings: VerifySettings, seed: int | None
) -> Iterator[Comparison]:
    """Open two models; what onnxruntime says of the candidate becomes an error of ours."""
    from dplcli.verify.divergence import Comparison  # noqa: PLC0415  # onnxruntime
    from dplcli.verify.sessions import RunError  # noqa: PLC0415

    try:
        yield Comparison(original, candidate, settings, seed)
    except RunError as error:
        raise VerificationError(
            f"the values inside cannot be compared: onnxruntime does not run the candidate with "
            f"optimisation off: {error}"
        ) from error


class _Finder:
    """Looks for the place, and writes it down."""

    def __init__(
        self,
        comparison: Comparison,
        layers: Layers,
        settings: VerifySettings,
        labels: tuple[str, str],
        output: Path | None,
    ) -> None:
        self.comparison = comparison
        self.layers = layers
        self.settings = settings
        self.labels = labels
        self.output = output

    def find(self, levels: Sequence[str]) -> Place | None:
        """Return the first place that shows the difference by itself."""
        wrong = (layer for layer in self.layers.layers if not layer.ok)
        for layer in (*islice(wrong, _MOST_TRIED), *self.layers.doubtful[:_MOST_TRIED]):
            for level in dict.fromkeys((_OFF, *levels)):
                if (place := self._try(layer, level)) is not None:
                    return place
        return None

    def _try(self, layer: Layer, level: str) -> Place | None:
        with temporary_folder(self._beside()) as folder:
            parts = self.comparison.write(self.layers, layer, folder)
            if parts is None:
                return None
            spec = self._spec(parts, level, folder)
            if not shows(folder, spec):
                return None
            ours, theirs = (wiring.nodes for wiring in self.comparison.wirings)
            total = len(ours), len(theirs)
            place = Place(layer, parts.original, parts.candidate, level, self.output, total)
            if self.output is not None:
                (folder / FILE).write_text(spec.to_text(), encoding="utf-8")
                (folder / README).write_text(_readme(place, self.labels), encoding="utf-8")
                put_folder(folder, self.output)
        return place

    def _beside(self) -> Path | None:
        """Return a folder from which the result can be moved to its place."""
        if self.output is None or self.output.is_dir():
            return self.output
        return self.output.resolve().parent

    def _spec(self, parts: CutPair, level: str, folder: Path) -> Reproducer:
        libraries = []
        for number, path in enumerate(self.settings.custom_ops):
            libraries.append(f"libraries/{number}/{path.name}")
            (folder / libraries[-1]).parent.mkdir(parents=True)
            shutil.copyfile(path, folder / libraries[-1])
        inputs = [
            InputItem(file=item.file, original=ours, candidate=theirs, is_sequence=item.is_sequence)
            for item, ours, theirs in parts.fed()
        ]
        return Reproducer.model_validate(
            {
                "schema": "dpl.reproducer/1",
                "kind": "models",
                "inputs": inputs,
                "outputs": list(parts.outputs),
                "level": level,
                "coarsest": self.comparison.fed.facts.coarsest,
                **tolerance_of(self.settings, [original for original, _ in parts.outputs]),
                "custom_ops": libraries,
                "needs_custom_ops": bool(self.comparison.fed.source.libraries),
            }
        )


def _readme(place: Place, labels: tuple[str, str]) -> str:
    layer = place.layer
    lines = [
        "# A difference, by itself",
        "",
        (
            f"`original.onnx` is a part of `{labels[0]}`, `candidate.onnx` the part of "
            f"`{labels[1]}` that ought to compute the same from the same inputs:"
        ),
        "",
        f"- original: {', '.join(place.original)}, of {place.total[0]:,} nodes",
        f"- candidate: {', '.join(place.candidate)}, of {place.total[1]:,} nodes",
        "",
        (
            f"All that flows in agrees in both models; the value {layer.original!r} (in the "
            f"candidate: {layer.candidate!r}) does not: {layer.comparison.reason}."
        ),
        "",
        (
            "Run it again from inside this folder; exit code 1: they still differ, 0: they agree, "
            "2: it could not be tried."
        ),
        "",
        "    dpl bisect --reproduce .",
        "",
        "- `test_data_set_0/`: what is fed, and what the original gives.",
        f"- `{FILE}`: which input is which, and how the results are compared.",
    ]
    return "\n".join(lines) + "\n"
