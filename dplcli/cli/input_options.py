"""Options that decide what two models are fed."""

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

_NUMBER = re.compile("[0-9]{1,18}")
_SHAPE = re.compile("[0-9]{1,18}(x[0-9]{1,18})+")


def input_options(command: Command) -> Command:
    """Add what decides which values two models are compared on."""
    options = [
        click.option(
            "--inputs",
            metavar="PATH|FUNCTION",
            help="Feed these values: a .npz file with an array per input, a .npy file, a folder of "
            "onnx test data (input_0.pb, or several test_data_set_0), or a Python function "
            "module:function or FILE.py:function, which takes a seed and returns a dict "
            "(--allow-code). Inputs that it leaves out are made up.",
        ),
        click.option(
            "--shape",
            "--size",
            "sizes",
            multiple=True,
            metavar="DIM=N",
            help="Size of a symbolic dimension, or of INPUT:AXIS; or a whole shape, "
            "INPUT=1x3x224x224. Repeatable.",
        ),
        click.option(
            "--range",
            "ranges",
            multiple=True,
            metavar="INPUT=LOW:HIGH",
            help="Draw an input from this range, both ends included. Repeatable.",
        ),
        click.option(
            "--corners",
            is_flag=True,
            help="Also feed zeros, negative, large and denormal values, where the original is "
            "itself stable there.",
        ),
        click.option(
            "--save-inputs",
            type=click.Path(path_type=Path),
            metavar="FILE.npz",
            help="Write what was fed, for --inputs and other tools.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def parse_sizes(texts: tuple[str, ...]) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Return sizes of dimensions and whole shapes, as --shape gives them.

    Raises:
        UsageError: A text is neither, or two contradict each other.
    """
    sizes: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        if separator and name and _NUMBER.fullmatch(value):
            is_new = sizes.setdefault(name, int(value)) == int(value)
        elif separator and name and _SHAPE.fullmatch(value):
            shape = tuple(map(int, value.split("x")))
            is_new = shapes.setdefault(name, shape) == shape
        else:
            raise UsageError(
                f"--shape {text!r}: not a size",
                hint="write --shape batch=4, or --shape image=1x3x224x224",
            )
        if not is_new:
            raise UsageError(f"--shape {text}: {name!r} has another size already")
    return sizes, shapes


def parse_ranges(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Return the ranges that --range gives, by input.

    Raises:
        UsageError: A text is no range, or two are given for one input.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, separator, value = text.rpartition("=")
        low, colon, high = value.partition(":")
        try:
            bounds = float(low), float(high)
        except ValueError:
            bounds = None
        if not separator or not name or not colon or bounds is None:
            raise UsageError(f"--range {text!r}: not a range", hint="write --range ids=0:1000")
        if ranges.setdefault(name, bounds) != bounds:
            raise UsageError(f"--range {text}: {name!r} has another range already")
    return ranges


def parse_request(  # noqa: PLR0913  # one parameter per option
    inputs: str | None,
    shapes: dict[str, tuple[int, ...]],
    ranges: tuple[str, ...],
    save_inputs: Path | None,
    *,
    corners: bool,
    allow_code: bool,
) -> pipeline.InputRequest:
    """Gather the options of :func:`input_options`."""
    return pipeline.input_request(
        inputs,
        ranges=parse_ranges(ranges),
        shapes=shapes,
        corners=corners,
        save=save_inputs,
        allow_code=allow_code,
    )
