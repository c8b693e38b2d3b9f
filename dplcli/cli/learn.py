"""``dpl learn``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click

from dplcli import api
from dplcli.cli import options
from dplcli.cli.job import PairCommand
from dplcli.cli.printing import say, write
from dplcli.errors import UsageError
from dplcli.outcomes.rules import LearnOutcome
from dplcli.report.layout import lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.cli.job import Invocation, Models
    from dplcli.outcomes.rules import RulesOutcome
    from dplcli.report.document import Document
    from dplcli.report.layout import Part
    from dplcli.settings import BaseSettings, LearnSettings


class _LearnCommand(PairCommand):
    """Write a catalogue of rules: for nodes of MODEL, or for what leads from one model to another.

    MODEL --nodes NAMES: one rule for this subgraph, and for all that is like it. It keeps the
    operators, how they are wired, and numbers and attributes that say what is computed; it leaves
    weights, shapes and all other attributes free.

    --before FILE --after FILE: a rule for each kind of place at which the two models differ. Each
    is tried on graphs made up for it, last on some of which nothing was learned. What the rules
    make of --before is compared with --after by structure, and with --before in onnxruntime.

    Exit codes: 0 a catalogue was written; 1 no rule of two models was proved; 2 it could not be
    done.
    """

    suffix = ".yaml"

    def pair(self, call: Invocation) -> tuple[Any, ...]:
        """Return what may be two folders."""
        return vars(call.settings)["before"], vars(call.settings)["after"]

    def one(self, call: Invocation) -> None:
        """Learn rules; the catalogue itself is what is printed."""
        given, printing = cast("LearnSettings", call.settings), call.printing
        output = given.output
        if output is not None and output.exists():
            raise UsageError(f"{output}: exists", hint="choose another name")
        if output is not None and not output.parent.is_dir():
            raise UsageError(f"{output}: there is no folder {str(output.parent)!r}")
        printing.check(*call.models, *given.files(), printed=[] if output else ["the catalogue"])
        with printing.progress() as tell:
            learned = self.learned(call.models, given.but(progress=tell))
        document = cast("Document", learned.document())
        if output is None:
            write(learned.yaml)
        if not printing.quiet and not printing.fills_stdout:
            _tell(learned, document.text(verbose=printing.verbose), output)
        for warning in document.notes:
            say(f"dpl: warning: {warning}", err=True)
        replace(printing, quiet=True).conclude(document)  # it is said

    def document(self, models: Models, settings: BaseSettings) -> Document:
        """Learn rules from one of many pairs."""
        before, after = models
        chosen = cast("LearnSettings", settings.but(before=before, after=after))
        return cast("Document", self.learned((None,), chosen).document())

    def learned(self, models: tuple[Path | None, ...], settings: LearnSettings) -> RulesOutcome:
        """Learn rules, and write the catalogue if a file is named for it."""
        nodes = [name.strip() for text in settings.nodes for name in text.split(",")]
        named = settings.but(nodes=list(filter(None, nodes)) or settings.nodes)
        learned: RulesOutcome = api.JOBS["learn"].function(*models, named)
        if settings.output is not None and learned.yaml:
            learned.save(settings.output)
        return learned


def _tell(result: RulesOutcome, text: Part, output: Path | None) -> None:
    """Say what was learned, on standard error if the catalogue itself is printed or missing."""
    is_beside = output is None or not result.yaml
    for line in lines_of(text, None):
        said = line.plain
        if is_beside and not said.startswith(" "):
            start = said.startswith("Learned ")  # a sentence of ours; anything else may be a name
            said = f"dpl: {'l' + said[1:] if start else said}"
        say(said, err=is_beside)
    if isinstance(result, LearnOutcome) and output is None:
        hint = f"write it with -o FILE, then: dpl match {result.label} --patterns FILE"
        say(f"dpl: hint: {hint}", err=True)


command = _LearnCommand(
    "learn",
    models=[click.Argument(["model"], type=options.PATH, required=False)],
    verbose="Say what the rule keeps and leaves free.",
)
