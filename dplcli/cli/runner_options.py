"""Options that decide where and within which limits onnxruntime runs a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def runner_options() -> list[Callable[[Any], Any]]:
    """Return the decorators that add the options."""
    return [
        click.option(
            "--provider",
            metavar="NAME",
            help="Execution provider that runs the candidate, such as CUDAExecutionProvider. "
            "The reference stays on the CPU.",
        ),
        click.option(
            "--session-option",
            "session_options",
            multiple=True,
            metavar="KEY=VALUE",
            help="Option of onnxruntime's session for the candidate, such as "
            "intra_op_num_threads=1 or session.disable_prepacking=1. Repeatable.",
        ),
        click.option(
            "--timeout",
            type=float,
            metavar="SECONDS",
            help="Time limit to create a session, and for each run. Default: an hour.",
        ),
        click.option(
            "--memory-limit",
            type=int,
            metavar="MB",
            help="Memory that a model and its run may take, beyond onnxruntime itself.",
        ),
        click.option(
            "--third-opinion",
            is_flag=True,
            help="Where the models differ, ask onnx's reference evaluator which one it agrees "
            "with. It can be slow.",
        ),
    ]


def execution_settings(
    provider: str | None = None,
    session_options: tuple[str, ...] = (),
    timeout: float | None = None,
    memory_limit: int | None = None,
) -> pipeline.Execution:
    """Gather the options of :func:`runner_options`."""
    default = pipeline.Execution()
    return pipeline.Execution(
        provider=default.provider if provider is None else provider,
        options=tuple(_parse_option(text) for text in session_options),
        timeout=default.timeout if timeout is None else timeout,
        memory_limit=memory_limit,
    )


def _parse_option(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(
            f"--session-option {text!r}: not an option",
            hint="write --session-option intra_op_num_threads=1",
        )
    return key, value
