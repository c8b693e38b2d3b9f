"""``dpl inline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import api
from dplcli.cli import many, options

if TYPE_CHECKING:
    from pathlib import Path


_CHOICE = "What is inlined"


@click.command("inline", cls=options.GroupedCommand)
@many.takes_models("inlined")
@options.option(
    _CHOICE,
    "--target",
    "targets",
    multiple=True,
    metavar="NAMES",
    callback=options.listed,
    help="Inline the functions of this domain, such as dnnl, or of several, such as dnnl,cublas, "
    "whoever wrote them. Repeatable.",
)
@options.option(
    _CHOICE,
    "--function",
    "functions",
    multiple=True,
    metavar="DOMAIN::NAME",
    help="Inline all calls of this function. Repeatable.",
)
@options.option(
    _CHOICE,
    "--call",
    "calls",
    multiple=True,
    metavar="NAME",
    help="Inline one call, found by its name or by an output's. Repeatable.",
)
@options.option(
    _CHOICE,
    "--all-functions",
    is_flag=True,
    help="Inline every function, also those that dpl did not write.",
)
@options.write_options("inlined")
@options.verify_options
@options.input_code_option
@options.printing_options(
    "Also list every call, and say what is being done.", "junit", "markdown", "html"
)
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    targets: tuple[str, ...],
    functions: tuple[str, ...],
    calls: tuple[str, ...],
    all_functions: bool,
    output: Path | None,
    allow_code: bool,
    printing: options.Printing,
    **given: Any,  # noqa: ANN401  # those of write_options and verify_options
) -> None:
    """Put functions of MODEL back in the place of their calls.

    Without a choice, all functions that dpl partition wrote: the nodes come back under the names
    and in the order that they had. The result is checked and compared with MODEL before it is
    written.
    """
    writing = options.WRITING.take(given)
    output = options.choose_output(model, output, "inlined", writing)
    printing.check(model, output)
    with printing.progress() as say:
        result = api.inline(
            model,
            output=output,
            target=targets,
            function=functions,
            call=calls,
            all_functions=all_functions,
            allow_code=allow_code,
            progress=say,
            **writing,
            **options.take_verification(given),
        )
    printing.conclude(result)
