"""``dpl partition``, also of what a model repeats (``--repeat``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import (
    allow_code_option,
    catalog_options,
    check_json_path,
    choose_output,
    conclude,
    expect_option,
    model_argument,
    output_options,
    policy_options,
    report_options,
    take_reports,
    verify_options,
    verify_settings,
    write_options,
)
from dplcli.cli.printing import progress
from dplcli.errors import UsageError
from dplcli.report.partition import partition_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dplcli.outcomes import PartitionOutcome

    Command = TypeVar("Command", bound=Callable[..., Any])


# ``dpl partition --repeat``: its options.


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


# ``dpl partition``.


@click.command("partition")
@model_argument
@catalog_options
@repeat_options
@expect_option
@allow_code_option
@policy_options("constants", "escape", "order")
@write_options("partitioned")
@click.option(
    "--merge",
    is_flag=True,
    help="Merge neighbouring partitions of one target, those that are in MODEL already included, "
    "into regions: functions that call them.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="With --merge: leave matches alone whose region has no heavy operator (Conv, Gemm, "
    "MatMul, LayerNormalization, ...), unless it is the target's only region.",
)
@verify_options
@report_options()
@output_options("Also list every match and refusal, and say what is being done.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    constants: tuple[str, ...],
    escape: tuple[str, ...],
    order: tuple[str, ...],
    output: Path | None,
    in_place: bool,
    keep_failed: bool,
    merge: bool,
    prune: bool,
    no_verify: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **others: Any,  # noqa: ANN401  # those of repeat_, verify_ and report_options
) -> None:
    """Outline matched subgraphs of MODEL as functions for a target, or what it repeats.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """
    repeat = take_repeat_options(
        others, patterns + targets, (*constants, *escape, *order, merge, prune)
    )
    reports = take_reports(others)
    output = choose_output(model, output, "partitioned", in_place=in_place)
    check_json_path(json_path, model, output, *patterns)
    reports.check(json_path, model, output, *patterns)
    settings = pipeline.PartitionSettings(
        verify=not no_verify,
        verification=verify_settings(**others, allow_code=allow_code),
        expectations=expectations,
        in_place=in_place,
        keep_failed=keep_failed,
        measure=True,
        merge=merge,
        prune=prune,
    )
    with progress(quiet=quiet, verbose=verbose) as say:
        outcome: PartitionOutcome
        if repeat is not None:
            outcome = pipeline.repeat(
                model, output=output, options=repeat, settings=settings, progress=say
            )
        else:
            outcome = pipeline.partition(
                model,
                output=output,
                patterns=patterns,
                targets=targets,
                settings=settings,
                allow_code=allow_code,
                policies=pipeline.Policies(constants=constants, escape=escape, order=order),
                progress=say,
            )
    document = partition_document(
        outcome, catalogues=patterns, is_verified=not no_verify, verbose=verbose
    )
    conclude(document, json_path, quiet=quiet, reports=reports)
