"""The commands that are a job of :mod:`dplcli.api` and nothing else."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from dplcli import pipeline
from dplcli.cli import options
from dplcli.cli.job import JobCommand, ModelCommand, PairCommand, placed
from dplcli.cli.options import EVERY_FORM, PATH
from dplcli.cli.printing import say, write
from dplcli.docstrings import docstring
from dplcli.errors import DplError, UsageError, opt
from dplcli.escaping import json_text
from dplcli.settings import TraceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dplcli.cli.job import Invocation

_WRITES = "junit", "markdown", "html"
_DOING = "Say what is being done."


# Each function makes the command of its name; what it says of itself is the help of the command.
#
# Jobs that look at models.


def match() -> JobCommand:
    """Show where patterns match in MODEL; nothing is changed.

    The matches are those that dpl partition would outline.
    """
    verbose = "Also list every match and refusal."
    return ModelCommand("match", verbose=verbose, forms=EVERY_FORM)


def explain() -> JobCommand:
    """Say why patterns match where they do in MODEL, and why not elsewhere.

    Per rule: how many nodes were tried, matched, refused and at which stage, and the attempt that
    got furthest: which part of the pattern failed at which node, what was expected and found.
    With --node: the same for one node, as a tree. The page of --html draws the patterns beside the
    model, with what fits and what does not.
    """
    verbose = "Show the whole pattern of every nearest miss."
    return ModelCommand("explain", verbose=verbose, forms=["html"])


def diff() -> JobCommand:
    """Show in what the structures of models A and B differ.

    Nodes are compared by dataflow: what they are called and in which order they stand does not
    matter, but the names of the model's inputs and outputs do. Equal models may compute other
    numbers only through what --ignore leaves out; to compare numbers use dpl verify.

    Exit codes: 0 structurally equal; 1 different; 2 it could not be done.
    """
    return PairCommand(
        "diff",
        models=[click.Argument([name], type=PATH, metavar=name.upper()) for name in ("a", "b")],
        verbose="Show every difference; else long lists are shortened.",
        forms=["markdown", "html"],
    )


def verify() -> JobCommand:
    """Compare ORIGINAL and CANDIDATE numerically in onnxruntime.

    Each place where the two differ is judged by itself, on what the original computes there and on
    values that tell; the outputs have to agree within a tolerance that follows from their type and
    magnitude, at every optimisation level. Exits with 0 if both are equivalent; with 1 if they are
    not, or if the check cannot tell.
    """
    names = ("original", "candidate")
    return _VerifyCommand(
        "verify",
        models=[click.Argument([name], type=PATH, required=False) for name in names],
        verbose="Also show how errors are spread and where tolerances come from; "
        "say what is being done.",
        forms=EVERY_FORM,
    )


def accuracy() -> JobCommand:
    """Measure how near CANDIDATE comes to ORIGINAL, which it approximates, as if quantised.

    Both run on the same inputs. Figures of each output, and of the values inside with --layers:
    signal to quantisation noise (SQNR), cosine, and how often the largest element is at one place
    (top-1 agreement). Exits with 1 where less is reached than is asked for, or where a number is
    finite in one model alone. Whether two models compute the same is for dpl verify.
    """
    names = ("original", "candidate")
    return PairCommand(
        "accuracy",
        models=[click.Argument([name], type=PATH) for name in names],
        verbose="Show every value inside; else the least accurate.",
        forms=["junit", "markdown", "html"],
    )


# Jobs that run models.


class _RunCommand(ModelCommand):
    suffix = ".npz"


class _VerifyCommand(PairCommand):
    first = ("The check",)


def run() -> JobCommand:
    """Run MODEL once in onnxruntime, its partitions on a library if --with names one.

    Exits with 1 if fewer partitions ran there than --require asks for.
    """
    return _RunCommand("run", verbose=_DOING, forms=_WRITES)


class _BenchCommand(PairCommand):
    takes_many = False


def bench() -> JobCommand:
    """Time A and B by turns on the same inputs, and say which is quicker.

    A runs in onnxruntime alone. With --with the partitions of B run on a library; without B, those
    of A do. Exits with 1 if fewer partitions ran there than --require asks for.
    """
    models = [
        click.Argument(["first"], metavar="A", type=PATH),
        click.Argument(["second"], metavar="[B]", type=PATH, required=False),
    ]
    return _BenchCommand("bench", models=models, verbose=_DOING, forms=_WRITES)


# Jobs that write a model.


def _moved(_context: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001  # click's signature
    if value:
        raise UsageError("--repeat is a command of its own now", hint="dpl repeat MODEL")


def partition() -> JobCommand:
    """Outline matched subgraphs of MODEL as functions for a target.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """
    moved = click.Option(
        ["--repeat"],
        is_flag=True,
        hidden=True,
        is_eager=True,
        expose_value=False,
        callback=_moved,
        help="Say that this is dpl repeat now.",
    )
    verbose = "Also list every match and refusal, and say what is being done."
    return ModelCommand("partition", verbose=verbose, forms=EVERY_FORM, more=[moved])


def repeat() -> JobCommand:
    """Outline what MODEL repeats, such as the layers of a transformer, as functions.

    No pattern is needed. The result is checked and compared with the original before it is
    written; if it fails, nothing is written and the exit code is 1.
    """
    verbose = "Also list every call, and say what is being done."
    return ModelCommand("repeat", verbose=verbose, forms=EVERY_FORM)


def inline() -> JobCommand:
    """Put functions of MODEL back in the place of their calls.

    Without a choice, all functions that dpl partition wrote: the nodes come back under the names
    and in the order that they had. The result is checked and compared with MODEL before it is
    written.
    """
    verbose = "Also list every call, and say what is being done."
    return ModelCommand("inline", verbose=verbose, forms=_WRITES)


def extract() -> JobCommand:
    """Write the part of MODEL that computes some values from others, as a model of its own.

    It has the nodes, weights and functions that it needs and no others, under their names; inputs
    of MODEL that it needs as well are inputs of it, too. External data is copied, not read into
    memory.
    """
    return ModelCommand("extract", verbose=_DOING, forms=["markdown", "html"])


class _RewriteCommand(ModelCommand):
    """A command that can print and write what rules did, turn by turn."""

    def one(self, call: Invocation) -> None:
        """Do the job; report the turns, also where it ended with an error."""
        extra, printing = cast("TraceSettings", call.extra), call.printing
        place, settings = extra.trace_json, placed(call.models[-1], call.settings)
        files = (*call.models, *settings.files())
        printed = [opt("trace_json", "-")] * (place == "-") + [
            opt("print_trace")
        ] * extra.print_trace
        printing.check(*files, printed=printed)
        if place not in {None, "-"}:
            options.check_report_path(place, *files, *printing.files, option=opt("trace_json"))
        if place == "-":
            printing = replace(printing, quiet=True)
        is_printed = extra.print_trace and not printing.quiet
        with (
            _traced(call.models[-1].name, place, is_printed=is_printed) as trace,
            printing.progress() as tell,
        ):
            chosen = settings.but(trace=trace, progress=tell)
            document = self.document(call.models, chosen)
        printing.conclude(document)


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
    from dplcli.outcomes.rewriting import TraceOutcome  # noqa: PLC0415  # only for a trace
    from dplcli.report.json import parts_of, published  # noqa: PLC0415  # only for a trace
    from dplcli.report.rewrite import trace_lines  # noqa: PLC0415  # only for a trace

    if trace_json is not None:
        record = published(parts_of(TraceOutcome(label=label, trace=trace)))
        text = json_text(record)
        if trace_json == "-":
            write(text)
        else:
            pipeline.write_text(Path(trace_json), text, opt("trace_json"))
    if is_printed:
        for line in trace_lines(trace):
            say(line)
        say()


_TOLD: dict[str, Any] = {
    "verbose": "Also list every application and refusal, and say what is being done.",
    "forms": EVERY_FORM,
    "extra": TraceSettings,
}


def rewrite() -> JobCommand:
    """Replace subgraphs of MODEL by the rewrites of catalogues, until none matches.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """
    return _RewriteCommand("rewrite", **_TOLD)


def apply() -> JobCommand:
    """Do to MODEL what PLAN lists, which dpl rewrite --plan wrote and somebody may have edited.

    Each entry is one application of a rule; they are done in the order of the plan, and nothing
    else is. An entry that does not fit is the answer no: exit code 1, and nothing is written.
    """
    return _RewriteCommand("apply", [click.Argument(["plan"], type=PATH)], **_TOLD)


_MAKERS: dict[str, Callable[[], JobCommand]] = {
    maker.__name__: maker
    for maker in (
        *(accuracy, apply, bench, diff, explain, extract, inline, match),
        *(partition, repeat, rewrite, run, verify),
    )
}


@cache
def job_command(name: str) -> JobCommand:
    """Return the command; its options are made when somebody asks for it."""
    command = _MAKERS[name]()
    command.help = docstring(_MAKERS[name])
    return command
