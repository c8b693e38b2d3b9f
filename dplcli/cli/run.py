"""``dpl run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli import options
from dplcli.report.running import run_document

if TYPE_CHECKING:
    from pathlib import Path

_INPUTS = options.SettingsGroup(
    "What the model is fed",
    *(item for item in options.INPUTS.settings if item.field != "corners"),
)
_RUN = options.SettingsGroup(
    "The run",
    options.Setting("seed", type=int, help="Seed of inputs that are made up. Default: 0."),
    options.Setting(
        "level",
        type=click.Choice(("disable", "basic", "extended", "all")),
        help="onnxruntime's optimisation level. Default: all.",
    ),
)


@click.command("run", cls=options.GroupedCommand)
@options.model_argument
@click.option(
    "-o", "--output", type=options.PATH, metavar="FILE.npz", help="Write what the model gives."
)
@_INPUTS
@_RUN
@options.EXECUTION
@options.KERNELS
@options.input_code_option
@options.printing_options("Say what is being done.")
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
    asked, inputs = _RUN.take(given), _INPUTS.take(given)
    sizes, shapes = options.parse_sizes(inputs.pop("sizes", ()))
    settings = pipeline.VerifySettings(
        seeds=(asked.get("seed", 0),),
        levels=(asked.get("level", "all"),),
        sizes=sizes,
        request=pipeline.input_request(**inputs, shapes=shapes, allow_code=allow_code),
        execution=pipeline.Execution(
            kernels=options.take_kernels(given), **options.EXECUTION.take(given)
        ),
    )
    with printing.progress() as say:
        outcome = pipeline.run_model(model, output=output, settings=settings, progress=say)
    printing.conclude(run_document(outcome))
