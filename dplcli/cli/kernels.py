"""``dpl kernels``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli import options
from dplcli.cli.printing import progress, say
from dplcli.report.running import plan_document

if TYPE_CHECKING:
    from pathlib import Path


_GROUPED: dict[str, Any] = {"cls": options.GroupedOption, "group": "Kernels"}
_RESULT = _GROUPED | {"type": options.PATH, "required": True}


@click.group("kernels")
def command() -> None:
    """Take partitions that run on oneDNN into programs without dpl."""


@command.command(
    "plan", cls=options.GroupedCommand, short_help="Write what oneDNN runs of a model."
)
@click.argument("model", type=options.PATH)
@click.option(
    "-o",
    "--output",
    **_RESULT,
    metavar="FILE.plan",
    help="Write the plan.",
)
@click.option(
    "--math",
    **_GROUPED,
    type=click.Choice(("fp32", "bf16")),
    default="fp32",
    help="Compute products of float32 in bfloat16 (bf16) where the CPU is quicker at that. "
    "Default: fp32.",
)
@click.option(
    "--verify/--no-verify",
    **_GROUPED,
    default=True,
    help="Compare what oneDNN gives with what onnxruntime gives before the plan is written.",
)
@options.printing_options("Say what is being done.")
def plan(*, model: Path, output: Path, math: str, verify: bool, printing: options.Printing) -> None:
    """Write a plan of what oneDNN runs of MODEL, for the library that dpl kernels build compiles.

    MODEL is what dpl partition --target dnnl wrote. The plan fits it and the oneDNN that is found
    here. Exit code 1, and no plan, if oneDNN runs none of its partitions, or the model gives
    something else with it.
    """
    printing.check(model, output)
    options.check_report_path(
        str(output), model, option="--output", mark=pipeline.PLAN_MARK, kind="plan of dpl"
    )
    with printing.progress() as tell:
        tell("planning")
        found = pipeline.plan_kernels(model, output, math, verify=verify, progress=tell)
    printing.conclude(plan_document(found))


@command.command("build", cls=options.GroupedCommand, short_help="Compile the library for plans.")
@click.option(
    "-o",
    "--output",
    **_RESULT,
    metavar="FILE.so",
    help="Write the shared library.",
)
@click.option(
    "--dnnl",
    **_GROUPED,
    metavar="FILE",
    help="Where oneDNN (libdnnl.so.3) will be. Default: where dpl finds it here. "
    "DPL_DNNL_LIBRARY, when the library is used, wins.",
)
@options.quiet_option
def build(*, output: Path, dnnl: str | None, quiet: bool) -> None:
    """Compile the custom operators that run plans: one library for every model.

    It needs a compiler of C++17 (c++, g++ or clang++; CXX names another), and neither headers nor
    libraries: at run time it looks for oneDNN and is given onnxruntime's functions.
    """
    options.check_report_path(
        str(output), option="--output", mark=b"\x7fELF", kind="shared library"
    )
    with progress(quiet=quiet, verbose=False) as tell:
        tell("compiling")
        compiler, place = pipeline.build_kernels(output, dnnl)
    if not quiet:
        say(f"Wrote {output}, by {compiler}. It looks for oneDNN at {place}.")
