"""``dpl bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import api
from dplcli.cli import options
from dplcli.cli.run import FED, RUN

if TYPE_CHECKING:
    from pathlib import Path

_TIMING = options.SettingsGroup(
    "The timing",
    options.Setting(
        "runs",
        type=int,
        metavar="N",
        help="How many rounds: in each, both models run some times in a row. Default: 20.",
    ),
    options.Setting(
        "threads",
        type=int,
        metavar="N",
        help="How many threads each model has; 0 for as many as there are cores. Default: 1.",
    ),
)


@click.command("bench", cls=options.GroupedCommand)
@click.argument("first", metavar="A", type=options.PATH)
@click.argument("second", metavar="[B]", type=options.PATH, required=False)
@_TIMING
@FED
@RUN
@options.EXECUTION
@options.KERNELS
@options.input_code_option
@options.printing_options("Say what is being done.", "junit", "markdown", "html")
def command(
    *,
    first: Path,
    second: Path | None,
    allow_code: bool,
    printing: options.Printing,
    **given: Any,  # noqa: ANN401  # those of the groups
) -> None:
    """Time A and B by turns on the same inputs, and say which is quicker.

    A runs in onnxruntime alone. With --with the partitions of B run on a library; without B, those
    of A do. Exits with 1 if fewer partitions ran there than --require asks for.
    """
    printing.check(first, second)
    keywords: dict[str, Any] = {}
    for group in (_TIMING, RUN, FED, options.EXECUTION, options.KERNELS):
        keywords |= group.take(given)
    with printing.progress() as say:
        result = api.bench(first, second, allow_code=allow_code, progress=say, **keywords)
    printing.conclude(result)
