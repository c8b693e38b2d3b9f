"""The options of commands that write a model: where to, and what becomes of one that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import PATH
from dplcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = TypeVar("Command", bound=Callable[..., Any])


def write_options(what: str) -> Callable[[Command], Command]:
    """Add --output, --in-place, --keep-failed and --no-verify; *what* is made of the model."""
    options = (
        click.option("--no-verify", is_flag=True, help="Do not check the result."),
        click.option(
            "--keep-failed", is_flag=True, help="Keep a result that fails, as OUTPUT.failed.onnx."
        ),
        click.option("--in-place", is_flag=True, help="Replace the model by the result."),
        click.option(
            "-o",
            "--output",
            type=PATH,
            help=f"Where to write the result. Default: MODEL.{what}.onnx beside the model.",
        ),
    )

    def add(command: Command) -> Command:
        for option in options:
            command = option(command)
        return command

    return add


def choose_output(model: Path, output: Path | None, what: str, *, in_place: bool) -> Path:
    """Return where the result is to be written.

    Raises:
        UsageError: Two places are named.
    """
    if in_place and output is not None:
        raise UsageError("--in-place and --output contradict each other", hint="pass one of them")
    return model if in_place else output or pipeline.default_output(model, what)
