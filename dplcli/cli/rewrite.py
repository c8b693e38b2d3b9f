"""``dpl rewrite``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.options import (
    PATH,
    allow_code_option,
    catalog_options,
    expect_option,
    model_argument,
)
from dplcli.cli.rewrite_options import carry_out, run_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@click.command("rewrite")
@model_argument
@catalog_options
@expect_option
@allow_code_option
@click.option(
    "--only",
    multiple=True,
    metavar="RULE[@NODE]",
    help="Try nothing else: this rule, everywhere or at one node, which is found by its name or an "
    "output's. Repeatable.",
)
@click.option(
    "--skip",
    multiple=True,
    metavar="RULE[@NODE]",
    help="Do not try this rule, or not at this node. Repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Stop after so many applications.",
)
@click.option(
    "--opset",
    type=click.IntRange(min=1),
    metavar="N",
    help="Raise the model to this opset before anything is matched.",
)
@click.option(
    "--plan",
    type=PATH,
    metavar="FILE",
    help="Write what is done as a list that can be edited, for dpl apply.",
)
@run_options
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    limit: int | None,
    opset: int | None,
    plan: Path | None,
    **options: Any,  # noqa: ANN401  # the options of run_options
) -> None:
    """Replace subgraphs of MODEL by the rewrites of catalogues, until none matches.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """

    def job(
        output: Path,
        settings: pipeline.RewriteSettings,
        say: Callable[[str], None],
        trace: pipeline.Trace | None,
    ) -> pipeline.RewriteOutcome:
        return pipeline.rewrite(
            model,
            output=output,
            patterns=patterns,
            targets=targets,
            settings=settings,
            allow_code=allow_code,
            progress=say,
            trace=trace,
        )

    settings = pipeline.RewriteSettings(
        expectations=expectations, only=only, skip=skip, limit=limit, opset=opset, plan=plan
    )
    carry_out(model, job, options | {"allow_code": allow_code}, settings=settings, reads=patterns)
