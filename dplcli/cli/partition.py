"""``dpl partition``, also of what a model repeats (``--repeat``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import (
    WRITING,
    GroupedCommand,
    SettingsGroup,
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
    setting,
    take_reports,
    take_verification,
    verify_options,
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


REPEAT = SettingsGroup(
    "Repeated blocks, without patterns",
    setting(
        "repeat",
        "--repeat",
        is_flag=True,
        help="Outline the blocks that the model repeats, such as the layers of a transformer; "
        "no pattern is needed. Not together with --patterns and --target.",
    ),
    setting(
        "min_repeats",
        "--min-repeats",
        type=click.IntRange(min=2),
        metavar="N",
        help="With --repeat: How often a block must occur. Default: 2.",
    ),
    setting(
        "min_nodes",
        "--min-nodes",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --repeat: How many nodes a block must have, constants not counted. Default: 4.",
    ),
    setting(
        "min_saving",
        "--min-saving",
        read=lambda percent: percent / 100,
        type=click.FloatRange(min=0, max=100),
        metavar="PERCENT",
        help="With --repeat: What share of the model's nodes a kind of block must save. "
        "Default: 2.",
    ),
    setting(
        "max_families",
        "--max-families",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --repeat: How many kinds of blocks to outline, the most saving first. "
        "Default: all.",
    ),
    setting(
        "same_attributes",
        "--same-attributes",
        is_flag=True,
        help="With --repeat: Only blocks whose attributes are equal, too; others are given at "
        "each call.",
    ),
    setting(
        "nested",
        "--nested",
        is_flag=True,
        help="With --repeat: Also outline what repeats inside a block.",
    ),
)


def take_repeat_options(
    given: dict[str, Any], *, has_rules: bool, has_policies: bool
) -> pipeline.RepeatOptions | None:
    """Take the options of --repeat out of *given*; None if it was not asked for.

    Args:
        given: The options of the command.
        has_rules: Whether catalogues are named.
        has_policies: Whether something is said of policies of rules, or of regions.

    Raises:
        UsageError: One of them was given without --repeat, or --repeat with what is for patterns.
    """
    stated = REPEAT.take(given)
    if not stated.pop("repeat", False):
        if stated:
            flag = "--" + next(iter(stated)).replace("_", "-")
            raise UsageError(f"{flag} says how to search with --repeat", hint="add --repeat")
        return None
    if has_policies:
        raise UsageError(
            "--constants, --escape, --order, --merge and --prune are for patterns",
            hint="leave them out with --repeat",
        )
    if has_rules:
        raise UsageError(
            "--repeat needs no patterns",
            hint="run dpl partition with the patterns first, and with --repeat over its result",
        )
    return pipeline.RepeatOptions(**stated)


# ``dpl partition``.


_POLICIES = policy_options("constants", "escape", "order")
REGIONS = SettingsGroup(
    "Regions",
    setting(
        "merge",
        "--merge",
        is_flag=True,
        help="Merge neighbouring partitions of one target, those that are in MODEL already "
        "included, into regions: functions that call them.",
    ),
    setting(
        "prune",
        "--prune",
        is_flag=True,
        help="With --merge: leave matches alone whose region has no heavy operator (Conv, Gemm, "
        "MatMul, LayerNormalization, ...), unless it is the target's only region.",
    ),
)


@click.command("partition", cls=GroupedCommand)
@model_argument
@catalog_options
@REPEAT
@expect_option
@allow_code_option
@_POLICIES
@write_options("partitioned")
@REGIONS
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
    output: Path | None,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,  # noqa: ANN401  # those of the groups
) -> None:
    """Outline matched subgraphs of MODEL as functions for a target, or what it repeats.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """
    policies, regions = _POLICIES.take(options), REGIONS.take(options)
    repeat = take_repeat_options(
        options, has_rules=bool(patterns or targets), has_policies=bool(policies or regions)
    )
    reports, writing = take_reports(options), WRITING.take(options)
    output = choose_output(model, output, "partitioned", writing)
    check_json_path(json_path, model, output, *patterns)
    reports.check(json_path, model, output, *patterns)
    settings = pipeline.PartitionSettings(
        **writing,
        **regions,
        verification=take_verification(options, allow_code=allow_code),
        expectations=expectations,
        measure=True,
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
                policies=pipeline.Policies(**policies),
                progress=say,
            )
    document = partition_document(
        outcome, catalogs=patterns, is_verified=settings.verify, verbose=verbose
    )
    conclude(document, json_path, quiet=quiet, reports=reports)
