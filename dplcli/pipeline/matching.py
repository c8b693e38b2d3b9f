"""What matches in a model, why the rest does not, and how much of the work matches cover."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dplcli.language.rule import judge_expectations, parse_expectations
from dplcli.onnx_io import built_again, check_sizes, load_model, open_sizes, paused_gc
from dplcli.outcomes.matching import MatchOutcome
from dplcli.passes.select import measure, select_matches
from dplcli.pipeline.hints import hints_on_matches
from dplcli.pipeline.inspecting import exact_types, sizes_in
from dplcli.pipeline.rules import assuming, load_any_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dplcli.ir import Model
    from dplcli.language.rule import Rule
    from dplcli.passes.select import Coverage, GapCause
    from dplcli.settings import ExplainSettings, MatchSettings
    from dplcli.verify import Check
    from dplcli.verify.check import Sums
    from dplcli.verify.verdict import VerificationResult


# What matches in a model, and why the rest does not.


@paused_gc()
def match(model_path: Path, settings: MatchSettings) -> MatchOutcome:
    """Find what :func:`partition` would outline; nothing is changed.

    Args:
        model_path: The model.
        settings: Which rules, and what is expected of them.

    Raises:
        DplError: The model or a catalogue cannot be used.
    """
    if settings.progress is not None:
        settings.progress(f"matching in {model_path.name}")
    model, tried = read_with_rules(model_path, settings)
    expected = parse_expectations(settings.expect, tried)
    selection = select_matches(model, tried)
    hints: tuple[str, ...] = ()
    if settings.hints:
        hints, refused = hints_on_matches(model_path, model, selection)
        selection = replace(selection, refused=[*refused])
    outcome = MatchOutcome(
        label=model_path.name,
        rules=tuple(tried),
        selection=selection,
        notes=tuple(model.notes),
        hints=hints,
    )
    return replace(outcome, expected=judge_expectations(expected, outcome.counts))


def read_with_rules(
    model_path: Path, source: MatchSettings | ExplainSettings
) -> tuple[Model, list[Rule]]:
    """Read a model, and the rules that a job names."""
    sums: Sums = {}
    if source.shape:
        from dplcli.verify.check import assumed_sums  # noqa: PLC0415  # rarely needed

        sums = assumed_sums(source.shape)
    model = assuming(load_model(model_path), sums)
    model.note_refutations()
    rules, _ = load_any_rules(source, model)
    return model, rules


# Measuring how much of the work of a model is inside matches.


_ANY_SIZE = 224
"""A size that most models take at most axes: of an image, a sequence or a batch."""


class Measuring:
    """Measures how much of a model is inside matches that are about to be outlined.

    The match of each node is noted at once, and so are costs if all sizes are known. A check
    chooses the sizes that are open; in that case costs are counted after the check.

    Args:
        model: The model that was matched, as it was loaded.
        outcome: What became of each node (:func:`dplcli.passes.select.fates`).
        sizes: A number per symbolic dimension of the inputs, or per ``input:axis``.
        can_wait: Whether the result will be checked.

    Raises:
        UsageError: No input has such a dimension.
    """

    def __init__(
        self,
        model: Model,
        outcome: Sequence[str | GapCause],
        sizes: Mapping[str, int],
        *,
        can_wait: bool,
    ) -> None:
        self._model = model
        self._fates = outcome
        self._sizes = sizes
        check_sizes(model, sizes)
        waits = can_wait and not sizes.keys() >= {*open_sizes(model)}
        self._coverage = None if waits else self._measured(model, ())

    def coverage(self, result: VerificationResult | None) -> Coverage:
        """Return what was measured, at the sizes given and, for the others, those of the check."""
        if self._coverage is None:
            model = built_again(self._model)
            fed = {} if result is None else {item.name: item.shape for item in result.inputs}
            chosen = {n: s for n, s in sizes_in(model, fed).items() if n not in self._sizes}
            self._sizes = {**self._sizes, **chosen}
            self._coverage = self._measured(model, tuple(chosen))
        return self._coverage

    def _measured(self, model: Model, chosen: tuple[str, ...]) -> Coverage:
        types, problem = exact_types(model, self._sizes)
        missing = tuple(name for name in open_sizes(model) if name not in self._sizes)
        coverage = measure(model, self._fates, types, missing)
        if missing and coverage.total.whole.unknown and not self._are_awaited(missing, coverage):
            coverage = measure(model, self._fates, types)
        return replace(coverage, problem=problem, sizes=self._sizes, chosen=chosen)

    def _are_awaited(self, missing: Sequence[str], coverage: Coverage) -> bool:
        """Tell whether costs would be known if sizes were given: nobody is asked for the others."""
        model = built_again(self._model)
        types, _ = exact_types(model, {**self._sizes, **dict.fromkeys(missing, _ANY_SIZE)})
        told = measure(model, self._fates, types)
        return told.total.whole.unknown < coverage.total.whole.unknown


def given_sizes(model: Model, check: Check | None) -> dict[str, int]:
    """Return the sizes that the user gave, including those in whole shapes of inputs."""
    if check is None:
        return {}
    return {**sizes_in(model, check.request.shapes), **check.sizes}
