"""``dpl init``: a first pipeline file, made by looking at the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dplcli.batch.build_file import FILE_NAME
from dplcli.batch.models import find_models
from dplcli.cli import options
from dplcli.cli.job import RESULTS, Asked, Batch, rows_of
from dplcli.cli.options import Printing
from dplcli.cli.printing import say
from dplcli.errors import UsageError, counted
from dplcli.files import encoded, resolved, write_new_file
from dplcli.settings import MatchSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dplcli.outcomes.base import ModelAnswer

_OUTPUT = "built"
_HEADER = """\
# What dpl build does with the models, and what CI expects of them (dpl build --check).
# dpl schema pipeline prints the JSON Schema of this file, for editors.
"""


@click.command("init", cls=options.GroupedCommand)
@click.argument("models", type=options.PATH, nargs=-1, metavar="[MODEL...]")
@click.option(
    "--target",
    cls=options.GroupedOption,
    group="The file",
    default="dnnl",
    show_default=True,
    metavar="NAME",
    help="The target that the models are partitioned for.",
)
@options.settings_options(Batch, without="resume")
@options.quiet_option
def command(  # one parameter per option
    *, models: tuple[Path, ...], target: str, settings: Batch, quiet: bool
) -> None:
    """Write a first pipeline file, dpl.yaml, by looking at the models; it is run by dpl build.

    MODEL is a file, a folder or a glob; without, the working directory. The file expects of each
    model the matches that it has now, so that CI tells when there are fewer.
    """
    place = Path(FILE_NAME)
    if place.exists():
        raise UsageError(f"{place}: exists, so it is kept", hint="edit it, or delete it first")
    given = models or (Path(),)
    results = resolved(Path(_OUTPUT))
    meant = find_models(given, RESULTS)
    for each in meant:
        if each.problem:
            say(f"dpl: left out: {each.problem}", err=True)
    found = [
        each
        for each in meant
        if not each.problem and not resolved(each.path).is_relative_to(results)
    ]
    if not found:
        raise UsageError("no model is found")
    asked = [Asked(each, (each.path,), None) for each in found]
    printing = Printing(quiet, verbose=False)
    rows = list(rows_of("match", asked, MatchSettings(target=target, hints=False), printing))
    said = settings.answers(rows, lambda _task: None, printing)
    errors = [answer for answer in said if answer.status == "error"]
    for answer in errors:
        say(f"dpl: left out: {answer.messages[0]}", err=True)
    if len(errors) == len(said):
        raise UsageError("no model could be read", hint=errors[0].hint or None)
    write_new_file(place, encoded("".join(_lines(given, said, target))))
    if not quiet:
        total = sum(used for answer in said for _, used, _ in answer.rules)
        models_read = counted(len(said) - len(errors), "model")
        say(f"Wrote {place}: {models_read}, {total:,} matches for {target}.")
        say("Next: dpl build")


def _lines(given: Iterable[Path], answers: Sequence[ModelAnswer], target: str) -> Iterator[str]:
    """Yield the lines of the file."""
    yield f"{_HEADER}\nmodels:\n"
    broken = [answer.label for answer in answers if answer.status == "error"]
    named = {str(path) for path in given}
    for text in sorted(named - {*broken}):
        yield f"  - path: {_text(text)}\n"
    if without := [label for label in broken if label not in named]:
        yield "    without:  # could not be read\n"
        yield from (f"      - {_text(label)}\n" for label in without)
    for answer in answers:
        expected = [f"{name}>={used}" for name, used, _ in answer.rules if used]
        if expected:
            yield f"  - path: {_text(answer.label)}\n"
            yield "    expect:\n"
            yield from (f"      - {_text(text)}\n" for text in expected)
    yield f"output: {_OUTPUT}\n"
    matched = any(used for answer in answers for _, used, _ in answer.rules)
    if matched:
        yield f"targets: [{_text(target)}]\nsteps:\n  - partition: {{}}\n"
    else:
        yield f"# nothing matches for {target}\nsteps:\n  - rewrite: {{patterns: [prepare]}}\n"
    yield "verify: true\n"


def _text(text: str) -> str:
    """Write a text as YAML, which takes that of JSON."""
    return text if text.replace("/", "").replace("_", "").isalnum() else json.dumps(text)
