"""``dpl extract``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dplcli import api, pipeline
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path

_PART = "The part"


@click.command("extract", cls=options.GroupedCommand)
@many.takes_models("extracted")
@options.option(
    _PART,
    "--from",
    "start",
    multiple=True,
    metavar="VALUES",
    help="What the part is given: values by their names, with commas between them. Default: the "
    "inputs of MODEL. Repeatable.",
)
@options.option(
    _PART,
    "--to",
    "end",
    multiple=True,
    metavar="VALUES",
    help="What the part computes, in the same way. Default: the outputs of MODEL. Repeatable.",
)
@options.option(
    options.RESULT,
    *("-o", "--output"),
    type=options.PATH,
    help="Where to write the part. Default: MODEL.extracted.onnx beside the model. External data "
    "goes to OUTPUT.data.",
)
@options.printing_options("Say what is being done.", "markdown", "html")
def command(
    *,
    model: Path,
    start: tuple[str, ...],
    end: tuple[str, ...],
    output: Path | None,
    printing: options.Printing,
) -> None:
    """Write the part of MODEL that computes some values from others, as a model of its own.

    It has the nodes, weights and functions that it needs and no others, under their names; inputs
    of MODEL that it needs as well are inputs of it, too. External data is copied, not read into
    memory.
    """
    output = output or pipeline.default_output(model, "extracted")
    printing.check(model, output)
    with printing.progress() as say:
        result = api.extract(model, from_=start, to=end, output=output, progress=say)
    printing.conclude(result)
