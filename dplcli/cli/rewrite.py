"""``dpl rewrite``, and the options and reports that ``dpl apply`` shares with it."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from dplcli import api, pipeline
from dplcli.cli import completion, many, options
from dplcli.cli.printing import say, write
from dplcli.errors import DplError
from dplcli.escaping import json_text
from dplcli.outcomes import RewriteOutcome, TraceOutcome
from dplcli.report.json import parts_of, published
from dplcli.report.rewrite import trace_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Job = Callable[..., RewriteOutcome]


# What ``dpl rewrite`` and ``dpl apply`` have in common: options, and how they report.


def _percent(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read ``5`` or ``5%``."""
    if value is None:
        return None
    try:
        number = float(value.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{value!r} is not a number of percent.", ctx, param)
    return number


RUN = options.SettingsGroup(
    "The run",
    options.Setting(
        "dry_run",
        is_flag=True,
        help="Show what would be done; verify and write no model.",
    ),
    options.Setting(
        "verify_each",
        is_flag=True,
        help="Check the model after every turn of a rule, and name the one that breaks it.",
    ),
    options.Setting(
        "max_growth",
        callback=_percent,
        metavar="PERCENT",
        help="By how much the model may grow, with the external data that it uses. Default: 5, and "
        "16 kB in any case.",
    ),
)


_TRACE = (
    options.option(
        options.PRINTING,
        "--trace",
        is_flag=True,
        help="Print every turn of every rule, applied or refused.",
    ),
    options.option(
        options.PRINTING,
        "--trace-json",
        metavar="FILE",
        help="Write the same as JSON; - is standard output, instead of the tables.",
    ),
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how to write, check and report a result."""
    printing = options.printing_options(
        "Also list every application and refusal, and say what is being done.",
        *options.EVERY_FORM,
        before=_TRACE,
    )
    return options.write_options("rewritten")(RUN(options.verify_options(printing(command))))


def carry_out(  # what the commands hand over
    model: Path,
    job: Job,
    given: dict[str, Any],
    *,
    chosen: Mapping[str, Any] = MappingProxyType({}),
    reads: Iterable[Path | str] = (),
) -> None:
    """Do *job*, report it, and end with 1 if the answer is no.

    Args:
        model: The model.
        job: A function of the API, given the model.
        given: What the options of :func:`run_options` were given.
        chosen: Further keywords.
        reads: Other files of the command, which no report may replace.
    """
    reads = tuple(reads)
    printing: options.Printing = given.pop("printing")
    trace_json: str | None = given.pop("trace_json")
    is_traced: bool = given.pop("trace")
    writing = options.WRITING.take(given)
    output = options.choose_output(model, given.pop("output"), "rewritten", writing)
    files = (model, output, chosen.get("plan"), *reads)
    printed = ["--trace-json -"] if trace_json == "-" else []
    printed += ["--trace"] if is_traced else []
    printing.check(*files, printed=printed)
    options.check_json_path(trace_json, *files, *printing.files, option="--trace-json")
    if trace_json == "-":
        printing = replace(printing, quiet=True)
    with (
        _traced(model.name, trace_json, is_printed=is_traced and not printing.quiet) as trace,
        printing.progress() as say,
    ):
        result = job(
            output=output,
            hints=printing.wants_hints,
            progress=say,
            trace=trace,
            **chosen,
            **writing,
            **RUN.take(given),
            **options.take_verification(given),
        )
    printing.conclude(result)


@contextmanager
def _traced(
    label: str, trace_json: str | None, *, is_printed: bool
) -> Iterator[pipeline.Trace | None]:
    """Report what happened, also where it ended with an error."""
    if not is_printed and trace_json is None:
        yield None
        return
    trace = pipeline.Trace()
    try:
        yield trace
    except DplError:
        if trace.turns:
            _write_trace(trace, label, trace_json, is_printed=is_printed)
        raise
    _write_trace(trace, label, trace_json, is_printed=is_printed)


def _write_trace(
    trace: pipeline.Trace, label: str, trace_json: str | None, *, is_printed: bool
) -> None:
    text = json_text(published(parts_of(TraceOutcome(label=label, trace=trace))))
    if trace_json == "-":
        write(text)
    elif trace_json is not None:
        pipeline.write_text(Path(trace_json), text, "--trace-json")
    if is_printed:
        for line in trace_lines(trace):
            say(line)
        say()


# ``dpl rewrite``.


CHOICE = options.SettingsGroup(
    "What is applied",
    options.Setting(
        "only",
        multiple=True,
        metavar="RULE[@NODE]",
        shell_complete=completion.rules,
        help="Try nothing else: this rule, everywhere or at one node, which is found by its name "
        "or an output's. Repeatable.",
    ),
    options.Setting(
        "skip",
        multiple=True,
        metavar="RULE[@NODE]",
        shell_complete=completion.rules,
        help="Do not try this rule, or not at this node. Repeatable.",
    ),
    options.Setting(
        "limit",
        type=click.IntRange(min=0),
        metavar="N",
        help="Stop after so many applications.",
    ),
    options.Setting(
        "opset",
        type=click.IntRange(min=1),
        metavar="N",
        help="Raise the model to this opset before anything is matched.",
    ),
    options.Setting(
        "plan",
        type=options.PATH,
        metavar="FILE",
        help="Write what is done as a list that can be edited, for dpl apply.",
    ),
)


@click.command("rewrite", cls=options.GroupedCommand)
@many.takes_models("rewritten")
@options.catalog_options
@options.expect_option
@options.allow_code_option
@CHOICE
@run_options
def command(  # one parameter per options.option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    **given: Any,  # noqa: ANN401  # those of run_options, and what is applied
) -> None:
    """Replace subgraphs of MODEL by the rewrites of catalogues, until none matches.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """
    chosen = {"expect": expectations, "allow_code": allow_code, **CHOICE.take(given)}
    job = partial(api.rewrite, model, patterns=patterns, target=targets)
    carry_out(model, job, given, chosen=chosen, reads=patterns)
