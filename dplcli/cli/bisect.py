"""``dpl bisect``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click

from dplcli import pipeline
from dplcli.batch.models import is_one_model
from dplcli.cli import options
from dplcli.cli.job import JobCommand, do_all, each_of, pairs_of
from dplcli.errors import UsageError, opt
from dplcli.pipeline.verifying import check_of
from dplcli.report.bisect import models_document, reproduced_document, rules_document
from dplcli.settings import BisectSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.cli.job import Invocation, Models
    from dplcli.report.document import Document
    from dplcli.settings import BaseSettings


_TWO = 2


class _BisectCommand(JobCommand):
    """Find what makes a model compute something else.

    With catalogues: the smallest sets of applications of rules, or of partitions, that break MODEL,
    or each of many. With two models, or two folders of them: the first place where CANDIDATE leaves
    ORIGINAL, by what flows into it and never by name.

    Exits with 0 if there is nothing to find: the whole is equivalent; with 1 if something was
    found; with 2 if the original does not run.
    """

    suffix = ""

    def begin(self, call: Invocation) -> None:
        """Take many models, if there are rules to try on each, or else two folders."""
        (paths,), chosen = call.models, cast("BisectSettings", call.settings)
        has_rules = bool(chosen.patterns or chosen.target)
        is_one = [is_one_model([path]) for path in paths]
        is_apart = chosen.reproduce is not None or not paths
        if has_rules and not is_apart and (is_one != [True] or call.batch.is_wanted):
            do_all(self, each_of(self, paths, (), chosen), call)
        elif not has_rules and not is_apart and is_one == [False, False]:
            do_all(self, pairs_of(self, paths, chosen), call)
        elif call.batch.is_wanted:
            raise UsageError(f"{opt('resume')} and {opt('scheduler')} are for many models")
        else:
            self.one(replace(call, models=paths or (None,)))

    def document(self, models: Models, settings: BaseSettings) -> Document:
        """Look for faults in a model or between two, or reproduce one."""
        chosen, paths = cast("BisectSettings", settings), [path for path in models if path]
        _check(paths, chosen)
        if chosen.reproduce is not None:
            done = pipeline.reproduce(chosen.reproduce, allow_code=chosen.allow_code)
            return reproduced_document(done)
        told: dict[str, Any] = {"check": check_of(chosen)}
        told |= {"output": chosen.output, "progress": chosen.progress}
        if len(paths) == _TWO:
            both = pipeline.bisect_models(*paths, **told)
            return models_document(both, files=tuple(paths))
        found = pipeline.bisect_rules(paths[0], chosen, kind=chosen.by, most=chosen.most, **told)
        catalogs = [item for item in chosen.patterns if isinstance(item, str)]
        return rules_document(found, file=paths[0], catalogs=catalogs)


def _check(models: Sequence[Path], chosen: BisectSettings) -> None:
    """Refuse arguments that do not go together."""
    has_rules = bool(chosen.patterns or chosen.target)
    if chosen.reproduce is not None:
        if models or chosen.beyond({"reproduce", "allow_code"}):
            raise UsageError(
                f"{opt('reproduce', 'DIR')} stands alone: all it needs is in the folder"
            )
        return
    if chosen.mutants or chosen.min_power is not None:
        raise UsageError(
            f"{opt('mutants')} and {opt('min_power')} measure a check; "
            "bisect looks for what one found",
            hint="dpl verify and the commands that write a model take them",
        )
    if len(models) not in (1, _TWO):
        raise UsageError(f"{len(models)} models are named", hint="name one, with rules, or two")
    if len(models) == 1 and not has_rules:
        raise UsageError(
            "one model is named and no rules",
            hint=f"pass {opt('patterns', 'CATALOGUE')}, or a second model to compare it with",
        )


command = _BisectCommand(
    "bisect",
    verbose="Say what is being done.",
    forms=options.EVERY_FORM,
    models=[
        click.Argument(
            ["models"], type=options.PATH, nargs=-1, metavar="[MODEL... | ORIGINAL CANDIDATE]"
        )
    ],
    settings=BisectSettings,
)
