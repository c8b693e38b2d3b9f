"""Outlining the repeated blocks of a model, checking and writing it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dplcli.dpl import PatternRule
from dplcli.dpl.builders import wildcard
from dplcli.dpl.expectation import parse_expectations, unmet_expectations
from dplcli.onnx_io import is_modified, paused_gc
from dplcli.passes.marks import REPEAT_DOMAIN
from dplcli.passes.repeat import outline_repeats
from dplcli.passes.repeat_search import RepeatOptions
from dplcli.pipeline.partitioning import PartitionOutcome, PartitionSettings
from dplcli.pipeline.writing import (
    finish,
    open_model,
    protect_files,
    say_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dplcli.ir import Model
    from dplcli.passes.repeat import Family
    from dplcli.pipeline.writing import Progress

_EXPECTED_NAME = re.compile(rf"^\s*{REPEAT_DOMAIN}\.(\w+)\s*[<>=]")


@dataclass(frozen=True)
class RepeatOutcome(PartitionOutcome):
    """What :func:`repeat` did.

    Attributes:
        families: The kinds of blocks, those in the bodies of others behind them.
        size: Bytes of the file before and after, external data not counted; the second is 0 if
            none was made.
    """

    families: tuple[Family, ...] = ()
    size: tuple[int, int] = (0, 0)


@paused_gc()
def repeat(
    model_path: Path,
    *,
    output: Path,
    options: RepeatOptions | None = None,
    settings: PartitionSettings | None = None,
    progress: Progress | None = None,
) -> RepeatOutcome:
    """Outline every repeated block as a call of one function, verify the result, and write it.

    The output appears complete, or not at all, as that of :func:`partition` does.

    Args:
        model_path: The model.
        output: Where to write the result.
        options: What counts as a repeated block.
        settings: How to check and write; expectations are of names such as ``repeat.layer``.
        progress: Told what is being done.

    Raises:
        DplError: The model cannot be used, the output cannot be written, or no verdict on the
            result can be reached.
    """
    settings = settings or PartitionSettings()
    say = progress or say_nothing
    placeholders = _named_in(settings.expectations)
    expected = parse_expectations(settings.expectations, placeholders)
    model = open_model(model_path, output, settings, say)
    protect_files(model, output, settings.failed_path(output), set())
    outcome = _outline(model, options or RepeatOptions(), say)
    counts = {rule.qualified_name: 0 for rule in placeholders} | outcome.counts
    outcome = replace(outcome, unmet=unmet_expectations(expected, counts))

    is_met = not outcome.unmet
    before = model_path.stat().st_size
    verdict = finish(
        model, model_path, output, settings, say, is_changed=outcome.is_changed, is_met=is_met
    )
    return replace(outcome, verdict=verdict, size=(before, verdict.size))


def _named_in(expectations: Iterable[str]) -> list[PatternRule]:
    """Return a rule for each block named: which there are is not known before they are found."""
    found = (_EXPECTED_NAME.match(text) for text in expectations)
    names = dict.fromkeys(match.group(1) for match in found if match is not None)
    return [PatternRule(target=REPEAT_DOMAIN, name=name, pattern=wildcard()) for name in names]


def _outline(model: Model, options: RepeatOptions, say: Progress) -> RepeatOutcome:
    before, is_sorted = model.graph.node_count, is_modified(model)
    say("searching for repeated blocks")
    result = outline_repeats(model, options)
    partitions = [p for family in result.families for p in family.partitions]
    return RepeatOutcome(
        label="" if model.path is None else model.path.name,
        rules=result.selection.rules,
        selection=result.selection,
        notes=tuple(model.notes),
        partitions=tuple(partitions),
        nodes=(before, model.graph.node_count),
        families=tuple(result.families),
        is_sorted=is_sorted,
    )
