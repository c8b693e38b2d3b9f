"""``dpl repeat``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import api
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path


BLOCKS = options.SettingsGroup(
    "What counts as a repeat",
    options.Setting(
        "min_repeats",
        type=click.IntRange(min=2),
        metavar="N",
        help="How often a block must occur. Default: 2.",
    ),
    options.Setting(
        "min_nodes",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many nodes a block must have, constants not counted. Default: 4.",
    ),
    options.Setting(
        "min_saving",
        read=lambda percent: percent / 100,
        type=click.FloatRange(min=0, max=100),
        metavar="PERCENT",
        help="What share of the model's nodes a kind of block must save. Default: 2.",
    ),
    options.Setting(
        "max_families",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many kinds of blocks to outline, the most saving first. Default: all.",
    ),
    options.Setting(
        "same_attributes",
        is_flag=True,
        help="Only blocks whose attributes are equal, too; others are given at each call.",
    ),
    options.Setting("nested", is_flag=True, help="Also outline what repeats inside a block."),
    options.Setting(
        "expect",
        "--expect",
        multiple=True,
        metavar="BLOCK>=N",
        help="Exit with 1 unless a block, such as repeat.layer, occurs so often "
        "(also <= == > <). Repeatable.",
    ),
)


@click.command("repeat", cls=options.GroupedCommand)
@many.takes_models("repeated")
@BLOCKS
@options.write_options("repeated")
@options.verify_options
@options.input_code_option
@options.printing_options("Also list every call, and say what is being done.", *options.EVERY_FORM)
def command(
    *,
    model: Path,
    output: Path | None,
    allow_code: bool,
    printing: options.Printing,
    **given: Any,  # noqa: ANN401  # those of the groups
) -> None:
    """Outline what MODEL repeats, such as the layers of a transformer, as functions.

    No pattern is needed. The result is checked and compared with the original before it is
    written; if it fails, nothing is written and the exit code is 1.
    """
    writing = options.WRITING.take(given)
    output = options.choose_output(model, output, "repeated", writing)
    printing.check(model, output)
    with printing.progress() as say:
        result = api.repeat(
            model,
            output=output,
            allow_code=allow_code,
            progress=say,
            **BLOCKS.take(given),
            **writing,
            **options.take_verification(given),
        )
    printing.conclude(result)
