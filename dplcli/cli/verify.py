"""``dpl verify``, also of the values inside two models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import api, pipeline
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path


# Options that keep what models gave, and judge it later or elsewhere.


RESULTS = options.SettingsGroup(
    "Saved results",
    options.Setting(
        "save_results",
        type=options.PATH,
        metavar="FILE",
        help="Write what was fed and what both models gave to a numpy archive, for --from and "
        "--against. Without CANDIDATE, ORIGINAL stands for both.",
    ),
    options.Setting(
        "judged",
        "--from",
        type=options.PATH,
        metavar="FILE",
        help="Judge saved results, with --rtol, --atol and --tolerance; no model is run.",
    ),
    options.Setting(
        "against",
        type=options.PATH,
        metavar="FILE",
        help="Run one model on saved inputs, and compare with what the original gave then: "
        "with another version of onnxruntime, on another machine.",
    ),
)


_INSIDE = "The values inside"


# ``dpl verify``.


@click.command("verify", cls=options.GroupedCommand)
@click.argument("original", type=options.PATH, required=False)
@click.argument("candidate", type=options.PATH, required=False)
@many.takes_pairs("original", "candidate")
@RESULTS
@options.option(
    _INSIDE,
    "--layers",
    is_flag=True,
    help="Compare the values inside, too: a row for every value that both models compute, "
    "told by structure, by what reads it, or as an output of one name.",
)
@options.option(
    _INSIDE,
    "--max-memory",
    type=click.IntRange(min=1),
    default=pipeline.MEMORY_CAP,
    show_default=True,
    metavar="MB",
    help="With --layers: hold so many megabytes of values of each model at once.",
)
@options.verify_options
@options.KERNELS
@options.input_code_option
@options.printing_options(
    "Also show how errors are spread and where tolerances come from; say what is being done.",
    *options.EVERY_FORM,
)
def command(  # noqa: PLR0913  # one parameter per option
    *,
    original: Path | None,
    candidate: Path | None,
    layers: bool,
    max_memory: int,
    allow_code: bool,
    printing: options.Printing,
    **given: Any,  # noqa: ANN401  # those of RESULTS and verify_options
) -> None:
    """Compare ORIGINAL and CANDIDATE numerically in onnxruntime.

    Each place where the two differ is judged by itself, on what the original computes there and on
    values that tell; the outputs have to agree within a tolerance that follows from their type and
    magnitude, at every optimisation level. Exits with 0 if both are equivalent; with 1 if they are
    not, or if the check cannot tell.
    """
    results = RESULTS.take(given)
    printing.check(original, candidate, *results.values())
    with printing.progress() as say:
        result = api.verify(
            original,
            candidate,
            layers=layers,
            max_memory=max_memory,
            allow_code=allow_code,
            progress=say,
            **results,
            **options.take_verification(given),
        )
    printing.conclude(result)
