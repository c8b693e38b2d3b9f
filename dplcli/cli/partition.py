"""``dpl partition``, also of what a model repeats (``--repeat``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli import many, options
from dplcli.errors import UsageError
from dplcli.report.partition import partition_document

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.outcomes import PartitionOutcome


# ``dpl partition --repeat``: its options.


REPEAT = options.SettingsGroup(
    "Repeated blocks, without patterns",
    options.Setting(
        "repeat",
        is_flag=True,
        help="Outline the blocks that the model repeats, such as the layers of a transformer; "
        "no pattern is needed. Not together with --patterns and --target.",
    ),
    options.Setting(
        "min_repeats",
        type=click.IntRange(min=2),
        metavar="N",
        help="With --repeat: How often a block must occur. Default: 2.",
    ),
    options.Setting(
        "min_nodes",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --repeat: How many nodes a block must have, constants not counted. Default: 4.",
    ),
    options.Setting(
        "min_saving",
        read=lambda percent: percent / 100,
        type=click.FloatRange(min=0, max=100),
        metavar="PERCENT",
        help="With --repeat: What share of the model's nodes a kind of block must save. "
        "Default: 2.",
    ),
    options.Setting(
        "max_families",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --repeat: How many kinds of blocks to outline, the most saving first. "
        "Default: all.",
    ),
    options.Setting(
        "same_attributes",
        is_flag=True,
        help="With --repeat: Only blocks whose attributes are equal, too; others are given at "
        "each call.",
    ),
    options.Setting(
        "nested",
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
            "--constants, --escape, --order, --prepare, --merge and --prune are for patterns",
            hint="leave them out with --repeat",
        )
    if has_rules:
        raise UsageError(
            "--repeat needs no patterns",
            hint="run dpl partition with the patterns first, and with --repeat over its result",
        )
    return pipeline.RepeatOptions(**stated)


# ``dpl partition``.


_POLICIES = options.policy_options("constants", "escape", "order")
REGIONS = options.SettingsGroup(
    "Regions",
    options.Setting(
        "merge",
        is_flag=True,
        help="Merge neighbouring partitions of one target, those that are in MODEL already "
        "included, into regions: functions that call them.",
    ),
    options.Setting(
        "prune",
        is_flag=True,
        help="With --merge: leave matches alone whose region has no heavy operator (Conv, Gemm, "
        "MatMul, LayerNormalization, ...), unless it is the target's only region.",
    ),
)


@click.command("partition", cls=options.GroupedCommand)
@many.takes_models("partitioned")
@options.catalog_options
@REPEAT
@options.option(
    options.RULES,
    "--prepare",
    is_flag=True,
    help="Rewrite MODEL by the catalogue prepare first, as dpl rewrite does. The result is "
    "compared with MODEL as it was.",
)
@options.expect_option
@options.allow_code_option
@_POLICIES
@options.write_options("partitioned")
@REGIONS
@options.verify_options
@options.printing_options(
    "Also list every match and refusal, and say what is being done.", *options.EVERY_FORM
)
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    prepare: bool,
    output: Path | None,
    printing: options.Printing,
    **given: Any,  # noqa: ANN401  # those of the groups
) -> None:
    """Outline matched subgraphs of MODEL as functions for a target, or what it repeats.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """
    policies, regions = _POLICIES.take(given), REGIONS.take(given)
    repeat = take_repeat_options(
        given,
        has_rules=bool(patterns or targets),
        has_policies=bool(policies or regions or prepare),
    )
    writing = options.WRITING.take(given)
    output = options.choose_output(model, output, "partitioned", writing)
    printing.check(model, output, *patterns)
    settings = pipeline.PartitionSettings(
        **writing,
        **regions,
        verification=options.take_verification(given, allow_code=allow_code),
        expectations=expectations,
        measure=True,
        prepare=prepare,
        lists=printing.verbose or printing.json_path is not None,
        hints=printing.wants_hints,
    )
    outcome: PartitionOutcome
    with printing.progress() as say:
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
        outcome, catalogs=patterns, is_verified=settings.verify, verbose=printing.verbose
    )
    printing.conclude(document)
