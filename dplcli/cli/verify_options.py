"""Options that decide how two models are compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.runner_options import execution_settings, runner_options
from dplcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = TypeVar("Command", bound=Callable[..., Any])


_NUMBER = re.compile("[0-9]{1,18}")


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
            "--size",
            "sizes",
            multiple=True,
            metavar="DIM=N",
            help="Size of a symbolic dimension, or of INPUT:AXIS. Repeatable.",
        ),
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
    return command


def verify_settings(  # noqa: PLR0913  # one parameter per option
    seeds: tuple[int, ...],
    levels: tuple[str, ...],
    rtol: float | None,
    atol: float | None,
    sizes: tuple[str, ...],
    *,
    refill_weights: bool,
    custom_ops: tuple[Path, ...] = (),
    third_opinion: bool = False,
    **runner: Any,  # noqa: ANN401  # the other options of runner_options
) -> pipeline.VerifySettings:
    """Gather the options of :func:`verify_options`."""
    default = pipeline.VerifySettings()
    return pipeline.VerifySettings(
        seeds=tuple(dict.fromkeys(seeds)) or default.seeds,
        levels=tuple(dict.fromkeys(levels)) or default.levels,
        rtol=rtol,
        atol=atol,
        refill_weights=refill_weights,
        sizes=dict(_parse_size(text) for text in sizes),
        custom_ops=tuple(dict.fromkeys(custom_ops)),
        execution=execution_settings(**runner),
        third_opinion=third_opinion,
    )


def _parse_size(text: str) -> tuple[str, int]:
    name, separator, number = text.rpartition("=")
    if not separator or not name or not _NUMBER.fullmatch(number):
        raise UsageError(f"--size {text!r}: not a size", hint="write --size batch=4")
    return name, int(number)
