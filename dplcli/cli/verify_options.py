"""Options that decide how two models are compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = TypeVar("Command", bound=Callable[..., Any])


_MUTANTS = 20
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
            "--tolerance",
            "tolerances",
            multiple=True,
            metavar="OUTPUT=rtol:R,atol:A",
            help="Tolerances of one output, or one of the two; for integers, atol is in steps. "
            "Repeatable.",
        ),
        click.option(
            "--mutants",
            type=int,
            help="Measure the power of the check: try so many wrong versions of the result, and "
            "count those that it refuses. Default: none, or 20 with --min-power.",
        ),
        click.option(
            "--min-power",
            type=float,
            metavar="SHARE",
            help="Exit with 1 unless the check refuses this share of the mutants, such as 0.9.",
        ),
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
    tolerances: tuple[str, ...] = (),
    mutants: int | None = None,
    min_power: float | None = None,
    save_results: Path | None = None,
) -> pipeline.VerifySettings:
    """Gather the options of :func:`verify_options`."""
    default = pipeline.VerifySettings()
    return pipeline.VerifySettings(
        seeds=tuple(dict.fromkeys(seeds)) or default.seeds,
        levels=tuple(dict.fromkeys(levels)) or default.levels,
        rtol=rtol,
        atol=atol,
        tolerances=dict(_parse_tolerance(text) for text in tolerances),
        mutants=(_MUTANTS if min_power is not None else 0) if mutants is None else mutants,
        min_power=min_power,
        save_results=save_results,
        refill_weights=refill_weights,
        sizes=dict(_parse_size(text) for text in sizes),
        custom_ops=tuple(dict.fromkeys(custom_ops)),
    )


def _parse_tolerance(text: str) -> tuple[str, pipeline.Override]:
    name, separator, parts = text.rpartition("=")
    given: dict[str, float] = {}
    for part in parts.split(","):
        kind, _, number = part.partition(":")
        try:
            value = float(number)
        except ValueError:
            separator = ""
            break
        if kind not in {"rtol", "atol"} or kind in given:
            separator = ""
        given[kind] = value
    if not separator or not name:
        raise UsageError(
            f"--tolerance {text!r}: not a tolerance",
            hint="write --tolerance logits=rtol:1e-3,atol:1e-5, or one of the two",
        )
    return name, pipeline.Override(**given)


def _parse_size(text: str) -> tuple[str, int]:
    name, separator, number = text.rpartition("=")
    if not separator or not name or not _NUMBER.fullmatch(number):
        raise UsageError(f"--size {text!r}: not a size", hint="write --size batch=4")
    return name, int(number)
