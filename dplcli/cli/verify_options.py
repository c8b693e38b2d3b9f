"""Options that decide how two models are compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.input_options import input_options, parse_request, parse_sizes
from dplcli.cli.runner_options import execution_settings, runner_options
from dplcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = TypeVar("Command", bound=Callable[..., Any])


_MUTANTS = 20


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
    tolerances: tuple[str, ...] = (),
    mutants: int | None = None,
    min_power: float | None = None,
    save_results: Path | None = None,
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
        tolerances=_parse_tolerances(tolerances),
        mutants=(_MUTANTS if min_power is not None else 0) if mutants is None else mutants,
        min_power=min_power,
        save_results=save_results,
        refill_weights=refill_weights,
        sizes=single,
        request=parse_request(
            inputs, whole, ranges, save_inputs, corners=corners, allow_code=allow_code
        ),
        custom_ops=tuple(dict.fromkeys(custom_ops)),
        execution=execution_settings(**runner),
        third_opinion=third_opinion,
    )


def _parse_tolerances(texts: tuple[str, ...]) -> dict[str, pipeline.Override]:
    found: dict[str, pipeline.Override] = {}
    for text in texts:
        name, override = _parse_tolerance(text)
        if name in found:
            raise UsageError(f"--tolerance {text!r}: {name} has one already", hint="join them")
        found[name] = override
    return found


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
