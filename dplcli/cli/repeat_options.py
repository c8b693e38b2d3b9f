"""``dpl partition --repeat``: its options, and what it prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import emit
from dplcli.cli.printing import progress
from dplcli.errors import UsageError
from dplcli.report.layout import Group, Text
from dplcli.report.records import partition_record
from dplcli.report.region_report import regions_record
from dplcli.report.repeat_report import block_list, family_records, repeat_table, size_line
from dplcli.report.tables import summary_line
from dplcli.report.written_report import ending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dplcli.report.layout import Part

    Command = TypeVar("Command", bound=Callable[..., Any])


class _Option(NamedTuple):
    flag: str
    type: click.IntRange | click.FloatRange
    metavar: str
    help: str


_LIMITS = {
    "min_repeats": _Option(
        "--min-repeats", click.IntRange(min=2), "N", "How often a block must occur. Default: 2."
    ),
    "min_nodes": _Option(
        "--min-nodes",
        click.IntRange(min=1),
        "N",
        "How many nodes a block must have, constants not counted. Default: 4.",
    ),
    "min_saving": _Option(
        "--min-saving",
        click.FloatRange(min=0, max=100),
        "PERCENT",
        "What share of the model's nodes a kind of block must save. Default: 2.",
    ),
    "max_families": _Option(
        "--max-families",
        click.IntRange(min=1),
        "N",
        "How many kinds of blocks to outline, the most saving first. Default: all.",
    ),
}
_SWITCHES = {
    "same_attributes": (
        "--same-attributes",
        "Only blocks whose attributes are equal, too; others are given at each call.",
    ),
    "nested": ("--nested", "Also outline what repeats inside a block."),
}


def repeat_options(command: Command) -> Command:
    """Add --repeat, and what only makes sense with it."""
    for name, (flag, text) in reversed(_SWITCHES.items()):
        command = click.option(flag, name, is_flag=True, help=f"With --repeat: {text}")(command)
    for name, option in reversed(_LIMITS.items()):
        command = click.option(
            option.flag,
            name,
            type=option.type,
            metavar=option.metavar,
            help=f"With --repeat: {option.help}",
        )(command)
    return click.option(
        "--repeat",
        is_flag=True,
        help="Outline the blocks that the model repeats, such as the layers of a transformer; "
        "no pattern is needed. Not together with --patterns and --target.",
    )(command)


def take_repeat_options(
    given: dict[str, Any], patterns: tuple[str, ...], policies: tuple[str | bool, ...]
) -> pipeline.RepeatOptions | None:
    """Take the options of --repeat out of *given*; None if it was not asked for.

    Args:
        given: The options of the command.
        patterns: The catalogues named.
        policies: What was given for the policies of rules and for regions.

    Raises:
        UsageError: One of them was given without --repeat, or --repeat with what is for patterns.
    """
    asked = given.pop("repeat")
    limits = {name: given.pop(name) for name in _LIMITS}
    switches = {name: given.pop(name) for name in _SWITCHES}
    stated = {name: value for name, value in limits.items() if value is not None}
    stated |= {name: True for name, value in switches.items() if value}
    if not asked:
        for name in stated:
            flag = _LIMITS[name].flag if name in _LIMITS else _SWITCHES[name][0]
            raise UsageError(f"{flag} says how to search with --repeat", hint="add --repeat")
        return None
    if any(policies):
        raise UsageError(
            "--constants, --escape, --order, --merge and --prune are for patterns",
            hint="leave them out with --repeat",
        )
    if patterns:
        raise UsageError(
            "--repeat needs no patterns",
            hint="run dpl partition with the patterns first, and with --repeat over its result",
        )
    if "min_saving" in stated:
        stated["min_saving"] /= 100
    return pipeline.RepeatOptions(**stated)


def run_repeat(  # noqa: PLR0913  # one parameter per option
    model: Path,
    output: Path,
    options: pipeline.RepeatOptions,
    settings: pipeline.PartitionSettings,
    *,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
) -> pipeline.RepeatOutcome:
    """Outline the repeated blocks and print what became of the model."""
    with progress(quiet=quiet, verbose=verbose) as say:
        outcome = pipeline.repeat(
            model, output=output, options=options, settings=settings, progress=say
        )
    emit(
        _report(outcome, verify=settings.verify, verbose=verbose),
        lambda: _record(outcome),
        json_path,
        quiet=quiet,
    )
    return outcome


def _record(outcome: pipeline.RepeatOutcome) -> Mapping[str, Any]:
    record = partition_record(
        outcome.counts,
        outcome.partitions,
        outcome.selection,
        outcome.verification,
        unmet=outcome.unmet,
        objection=outcome.objection,
    )
    return {**record, **regions_record(None), "families": family_records(outcome.families)}


def _report(outcome: pipeline.RepeatOutcome, *, verify: bool, verbose: bool) -> Part:
    total = sum(outcome.selection.totals.values())
    parts: list[Part] = [repeat_table(outcome.families, total)]
    if verbose and outcome.families:
        parts += [Text(), block_list(outcome.families)]
    parts += [Text(), summary_line(outcome.nodes, outcome.selection)]
    if outcome.is_changed and outcome.size[1]:
        parts.append(size_line(outcome.size))
    parts += [Text(f"note: {note}", style="yellow") for note in outcome.notes]
    parts += ending(outcome, is_changed=outcome.is_changed, is_verified=verify)
    return Group(*parts)
