"""Options that look at the values inside two models, and how these are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.errors import VerificationError
from dplcli.report.layer_report import layer_table
from dplcli.report.layout import Group, Text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dplcli.report.layout import Part

    Command = TypeVar("Command", bound=Callable[..., Any])


def layer_options(command: Command) -> Command:
    """Add --layers and --max-memory."""
    command = click.option(
        "--max-memory",
        type=click.IntRange(min=1),
        default=pipeline.MEMORY_CAP,
        show_default=True,
        metavar="MB",
        help="With --layers: hold so many megabytes of values of each model at once.",
    )(command)
    return click.option(
        "--layers",
        is_flag=True,
        help="Compare the values inside, too: a row for every value that both models compute, "
        "found by what dpl noted when it changed the model, by dataflow and by numbers.",
    )(command)


def look_inside(
    original: Path,
    candidate: Path,
    result: pipeline.VerificationResult,
    settings: pipeline.VerifySettings,
    cap: int,
) -> pipeline.Layers | str:
    """Compare what is inside two models, for the seed that is worst; or say why it cannot be."""
    if result.reasons and not result.outputs:
        return "nothing inside was compared: the candidate cannot be run on the same inputs"
    wrong = [output for output in result.outputs if not output.ok]
    seed = wrong[0].seed if wrong else None
    try:
        return pipeline.compare_layers(original, candidate, settings, seed=seed, cap=cap)
    except VerificationError as error:
        return error.message


def with_layers(
    table: Part,
    record: Callable[[], dict[str, object]],
    inside: pipeline.Layers | str | None,
) -> tuple[Part, Callable[[], dict[str, object]]]:
    """Put what is inside before a verdict, and beside its record."""
    if inside is None:
        return table, record
    if isinstance(inside, str):
        note = Text(f"note: {inside}", style="yellow")
        return Group(note, table), lambda: {**record(), "layers": None}
    layers = inside
    return (
        Group(layer_table(layers), Text(), table),
        lambda: {**record(), "layers": layers.to_json()},
    )
