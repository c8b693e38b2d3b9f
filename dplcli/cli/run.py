"""``dpl run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import api
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path

FED = options.SettingsGroup(
    "What the model is fed",
    *(item for item in options.INPUTS.settings if item.field != "corners"),
)
RUN = options.SettingsGroup(
    "The run",
    options.Setting("seed", type=int, help="Seed of inputs that are made up. Default: 0."),
    options.Setting(
        "level",
        type=click.Choice(("disable", "basic", "extended", "all")),
        help="onnxruntime's optimisation level. Default: all.",
    ),
)


@click.command("run", cls=options.GroupedCommand)
@many.takes_models(suffix=".npz")
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    metavar="FILE.npz",
    help="Write what the model gives; of several models, into this folder.",
)
@FED
@RUN
@options.EXECUTION
@options.KERNELS
@options.input_code_option
@options.printing_options("Say what is being done.", "junit", "markdown", "html")
def command(
    *,
    model: Path,
    output: Path | None,
    allow_code: bool,
    printing: options.Printing,
    **given: Any,  # noqa: ANN401  # those of the groups
) -> None:
    """Run MODEL once in onnxruntime, its partitions on a library if --with names one.

    Exits with 1 if fewer partitions ran there than --require asks for.
    """
    printing.check(model, output)
    if output is not None:
        given["output"] = output
    keywords = RUN.take(given) | FED.take(given)
    keywords |= options.EXECUTION.take(given) | options.KERNELS.take(given)
    with printing.progress() as say:
        result = api.run(model, allow_code=allow_code, progress=say, **keywords, **given)
    printing.conclude(result)
