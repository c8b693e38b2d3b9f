"""``dpl partition``, also of what a model repeats (``--repeat``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import api
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path


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
@options.KERNELS
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
    writing = options.WRITING.take(given)
    output = options.choose_output(model, output, "partitioned", writing)
    printing.check(model, output, *patterns)
    with printing.progress() as say:
        result = api.partition(
            model,
            output=output,
            patterns=patterns,
            target=targets,
            expect=expectations,
            allow_code=allow_code,
            prepare=prepare,
            lists=printing.verbose or printing.json_path is not None,
            hints=printing.wants_hints,
            progress=say,
            **_POLICIES.take(given),
            **REGIONS.take(given),
            **REPEAT.take(given),
            **writing,
            **options.take_verification(given),
        )
    printing.conclude(result)
