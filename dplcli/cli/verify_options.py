"""Options that decide how two models are compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.input_options import input_options, parse_request, parse_sizes
from dplcli.cli.runner_options import execution_settings, runner_options

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = TypeVar("Command", bound=Callable[..., Any])


def verify_options(command: Command) -> Command:
    """Add what decides how two models are compared."""
    options = [
        click.option(
            "--seed",
            "seeds",
            type=int,
            multiple=True,
            help="Seed of one set of inputs; repeatable. Default: 0 and 1.",
        ),
        click.option(
            "--level",
            "levels",
            type=click.Choice(pipeline.LEVELS),
            multiple=True,
            help="onnxruntime's optimisation level; repeatable. Default: disable and all.",
        ),
        click.option("--rtol", type=float, help="Relative tolerance, instead of the derived one."),
        click.option("--atol", type=float, help="Absolute tolerance, instead of the derived one."),
        click.option(
            "--refill-weights",
            is_flag=True,
            help="Give weights made by ConstantOfShape seeded random values, in both models.",
        ),
        click.option(
            "--custom-ops",
            type=click.Path(path_type=Path),
            multiple=True,
            metavar="LIBRARY",
            help="Register custom operators from this shared library with onnxruntime: for the "
            "result, and for the original if it does not run without. Repeatable.",
        ),
        *runner_options(),
    ]
    for option in reversed(options):
        command = option(command)
    return input_options(command)


def input_code_option(command: Command) -> Command:
    """Add --allow-code to a command that reads no catalogues."""
    return click.option(
        "--allow-code", is_flag=True, help="Let --inputs name a Python function, which is called."
    )(command)


def verify_settings(  # noqa: PLR0913  # one parameter per option
    seeds: tuple[int, ...],
    levels: tuple[str, ...],
    rtol: float | None,
    atol: float | None,
    sizes: tuple[str, ...],
    *,
    refill_weights: bool,
    custom_ops: tuple[Path, ...] = (),
    inputs: str | None = None,
    ranges: tuple[str, ...] = (),
    save_inputs: Path | None = None,
    corners: bool = False,
    allow_code: bool = False,
    third_opinion: bool = False,
    **runner: Any,  # noqa: ANN401  # the other options of runner_options
) -> pipeline.VerifySettings:
    """Gather the options of :func:`verify_options`."""
    single, whole = parse_sizes(sizes)
    default = pipeline.VerifySettings()
    return pipeline.VerifySettings(
        seeds=tuple(dict.fromkeys(seeds)) or default.seeds,
        levels=tuple(dict.fromkeys(levels)) or default.levels,
        rtol=rtol,
        atol=atol,
        refill_weights=refill_weights,
        sizes=single,
        request=parse_request(
            inputs, whole, ranges, save_inputs, corners=corners, allow_code=allow_code
        ),
        custom_ops=tuple(dict.fromkeys(custom_ops)),
        execution=execution_settings(**runner),
        third_opinion=third_opinion,
    )
