"""``dpl partition``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import api
from dplcli.cli import many, options
from dplcli.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def _moved(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: FBT001  # click's signature
    del ctx, param
    if value:
        raise UsageError("--repeat is a command of its own now", hint="dpl repeat MODEL")


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
@click.option(
    "--repeat",
    is_flag=True,
    hidden=True,
    is_eager=True,
    expose_value=False,
    callback=_moved,
    help="Say that this is dpl repeat now.",
)
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
    """Outline matched subgraphs of MODEL as functions for a target.

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
            hints=printing.wants_hints,
            progress=say,
            **_POLICIES.take(given),
            **REGIONS.take(given),
            **writing,
            **options.take_verification(given),
        )
    printing.conclude(result)
