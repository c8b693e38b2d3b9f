"""Options that several commands share, and the object through which commands print."""

from __future__ import annotations

import errno
import os
import re
import textwrap
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from dplcli import pipeline
from dplcli.cli import completion
from dplcli.cli.main import answer_no
from dplcli.cli.printing import progress, show, write
from dplcli.errors import UsageError
from dplcli.escaping import inert_markup, json_text
from dplcli.files import append_to_file, encoded, end_of, resolved, temporary_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from dplcli.report.document import Document
    from dplcli.settings import BaseSettings
    from dplcli.settings import Option as Field

    Command: TypeAlias = Callable[..., None]
    S = TypeVar("S", bound=BaseSettings)


PATH = click.Path(path_type=Path)
MANY = "Many models"
_START = 2_000


# Named groups of options, and settings that options fill.


class GroupedOption(click.Option):
    """An option that stands under a heading in the help."""

    def __init__(self, *flags: Any, group: str, **told: Any) -> None:  # noqa: ANN401  # click's
        super().__init__(*flags, **told)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help has a heading for each group of options."""

    first: tuple[str, ...] = ()
    """The groups that --help tells first, and in full; without, the first one."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with --help-all."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the groups as they begin; then how many models are done, and the help itself.

        --help names the options about many models. If there are many groups it says in a sentence
        what the options of the first ones are for, and names others, too.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(param, "group", "Options"), []).append(record)
        last = {title: groups.pop(title) for title in (MANY, "Options") if title in groups}
        is_all, is_long = EVERY_OPTION in ctx.meta, len(groups) >= _FEW
        first = self.first or tuple(groups)[:1]
        told = {*(first if is_long else groups), "The result", PRINTING, "Options"}
        ordered = {title: groups[title] for title in first if title in groups} | groups | last
        rest = [title for title in ordered if not is_all and title not in told]
        for title, records in ordered.items():
            if title in rest:
                continue
            with formatter.section(title):
                short = [(flags, _first_sentence(text)) for flags, text in records]
                formatter.write_dl(records if is_all or not is_long else short)
        with formatter.section("More (--help-all)") if rest else nullcontext():
            indent = " " * formatter.current_indent
            wrapper = textwrap.TextWrapper(formatter.width, indent, f"{indent}  ")
            wrapper.break_on_hyphens = False
            for title in rest:
                words = (re.findall(r"--?[\w-]+", record[0]) for record in ordered[title])
                names = (next((w for w in some if w[:2] == "--"), some[0]) for some in words)
                formatter.write(wrapper.fill(f"{title}: {' '.join(names)}") + "\n")


def _first_sentence(text: str) -> str:
    """Return how a text begins: a sentence, or of a long one a part."""
    sentence = text.partition(". ")[0].rstrip(".")
    while len(sentence) > _LONG or sentence.count("(") > sentence.count(")"):
        end = max(sentence.rfind(mark) for mark in ("; ", ": ", " ("))
        if end < 0:
            break
        sentence = sentence[:end]
    return f"{sentence}."


_LONG = 130
EVERY_OPTION = "dpl.help.all"
"""What a context of click notes if the help is to explain every option."""

_FEW = 4
"""If there are fewer groups of options than this, --help tells all."""


def _tell_all(ctx: click.Context, _param: click.Parameter, is_wanted: bool) -> None:  # noqa: FBT001  # click's
    if is_wanted and not ctx.resilient_parsing:
        ctx.meta[EVERY_OPTION] = True
        write(f"{ctx.get_help()}\n")
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_all,
    help="Explain every option and exit.",
)


def options_of(settings: type[BaseSettings]) -> list[click.Option]:
    """Return the options of a command, one for each field that has one."""
    options: list[click.Option] = []
    for each in settings.options.values():
        told: dict[str, Any] = {"help": each.help.replace("{result}", settings.result)}
        if each.is_flag:
            told["is_flag"] = True
        else:
            value = {"metavar": each.metavar, "multiple": each.is_multiple}
            told |= {"type": _type_of(each), **value}
        if each.shown and each.shown == str(each.default):
            told |= {"default": each.default, "show_default": True}
        elif each.shown:
            told["show_default"] = each.shown
        if each.complete:
            told["shell_complete"] = getattr(completion, each.complete)
        if each.is_stated:
            words = [*each.words, each.name]
            options.append(GroupedOption(words, group=each.group, **told))
    return options


def _type_of(field: Field) -> Any:  # noqa: ANN401  # a type, or one of click's
    bounds: dict[str, Any] = {"min": field.least, "max": field.most}
    if field.choices:
        return click.Choice(field.choices)
    if field.kind in {"Model", "Place", "Places"}:
        return PATH
    if field.kind in {"int", "Numbers"}:
        return int if bounds == {"min": None, "max": None} else click.IntRange(**bounds)
    if field.kind == "float" and field.read is None:
        return float if field.least is None else click.FloatRange(**bounds)
    return str


PRINTING = "What is printed"


def check_report_path(
    report: str,
    *others: Path | str | None,
    option: str,
    mark: bytes | None = None,
    kind: str = "JSON report",
) -> None:
    """Refuse, before any work is done, a report that cannot be or must not be written.

    Args:
        report: Where to write it.
        others: The other files of the command; names of shipped catalogues do no harm.
        option: The option, for messages.
        mark: What a file of dpl's has near its beginning, which alone may be replaced; None for
            JSON, any of which may be; empty if what there is stays.
        kind: What such a file is, for messages.

    Raises:
        UsageError: It is another file of the command, a directory, or has no folder.
    """
    path = Path(report)
    try:
        taken = [Path(other) for other in others if other is not None]
        if any(resolved(path) == resolved(other) for other in taken):
            raise UsageError(f"{option} {report}: is another file of this command")
        end_of(path)
        if not report or path.is_dir():
            raise UsageError(f"{option} {report!r}: is not a file")
        if path.is_file() and not _is_replaceable(path, mark):
            raise UsageError(f"{option} {report}: exists and is no {kind}, so it is kept")
        if not path.exists():
            with temporary_file(path.parent):
                pass  # what it is written to before it takes its place
        elif path.is_file() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"{option} {report}: cannot be written: {error.strerror}") from error


def _is_replaceable(path: Path, mark: bytes | None) -> bool:
    with path.open("rb") as file:
        start = file.read(_START)
    if mark is None:
        return path.suffix == ".json" or start[:1] in b"{"
    return not start or mark in start


# What a command prints, and the reports that it writes for programs, CI services and people.


_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_FORMS: Mapping[str, tuple[str, str, bytes | None]] = {
    "json": (
        "Write the result as JSON; - is standard output, instead of the table.",
        "JSON report",
        None,
    ),
    "junit": (
        "Write a report as JUnit XML: a test for each output, level and seed, and each --expect.",
        "JUnit report of dpl",
        b'<testsuites name="dpl',
    ),
    "sarif": (
        "Write what has a place in a catalogue as SARIF 2.1.0, for code hosts.",
        "SARIF report of dpl",
        b'"name": "dpl"',
    ),
    "markdown": (
        "Write a report as Markdown; to the file that $GITHUB_STEP_SUMMARY names, it is added.",
        "Markdown report of dpl",
        b"<!-- dpl report -->",
    ),
    "html": (
        "Write a report as one page of HTML, with plots and tables to search and sort.",
        "HTML report of dpl",
        b'<meta name="generator" content="dpl">',
    ),
}
"""The forms of a report: what the help says, what a file is called, and what one begins with."""

_RECORDS = {"json", "sarif"}
"""Forms in which no terminal looks for markup."""

EVERY_FORM = tuple(form for form in _FORMS if form != "json")
"""The forms that not every command has."""


@dataclass(frozen=True)
class Printing:
    """What a command prints and writes, beside models.

    Attributes:
        quiet: Whether to print only errors.
        verbose: Whether to say more.
        reports: Where to write which form of a report; - for standard output.
        started: When the command began, for reports that say how long it took.
    """

    quiet: bool
    verbose: bool
    reports: Mapping[str, str] = field(default_factory=dict)
    started: float = field(default_factory=lambda: perf_counter())  # noqa: PLW0108  # for tests

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are written."""
        return tuple(place for place in self.reports.values() if place != "-")

    def check(self, *others: Path | str | None, printed: Iterable[str] = ()) -> None:
        """Refuse, before any work is done, what cannot be or must not be written.

        Args:
            others: The other files of the command; names of shipped catalogues do no harm.
            printed: Other options that want standard output.

        Raises:
            UsageError: Two reports want one place, a file is no report of dpl, or cannot be
                written.
        """
        to_stdout = [f"--{form} -" for form, path in self.reports.items() if path == "-"]
        to_stdout += printed
        if len(to_stdout) > 1:
            raise UsageError(
                f"{to_stdout[0]} and {to_stdout[1]} both want standard output",
                hint="name a file for one",
            )
        taken = list(others)
        for form, path in self.reports.items():
            if path != "-":
                _help, kind, mark = _FORMS[form]
                mark = b"" if form == "markdown" and _is_step_summary(path) else mark
                check_report_path(path, *taken, option=f"--{form}", mark=mark, kind=kind)
                taken.append(path)

    @property
    def wants_hints(self) -> bool:
        """Whether anybody reads what else could be done."""
        return not self.quiet or self.has_record

    @property
    def has_record(self) -> bool:
        """Whether JSON is written."""
        return "json" in self.reports

    @property
    def fills_stdout(self) -> bool:
        """Whether a report is standard output, so that nothing else may be."""
        return "-" in self.reports.values()

    def progress(self) -> AbstractContextManager[Callable[[str], None]]:
        """Show what is going on, as far as it is wanted."""
        return progress(quiet=self.quiet, verbose=self.verbose)

    def write_reports(self, document: Document) -> None:
        """Write every form of report that is wanted.

        Raises:
            UsageError: One cannot be written.
        """
        for form, path in self.reports.items():
            if form == "json" and document.of is None:
                continue  # an error has no record
            text = _rendered(form, document, perf_counter() - self.started)
            if path == "-":
                write(text if form in _RECORDS else inert_markup(text))
            elif form == "markdown" and _is_step_summary(path):
                try:
                    append_to_file(Path(path), encoded(f"\n{text}"))
                except OSError as error:
                    reason = f"cannot be written: {error.strerror}"
                    raise UsageError(f"--markdown {path}: {reason}") from error
            else:
                pipeline.write_text(Path(path), text, f"--{form}")

    def conclude(self, document: Document) -> None:
        """Write every form of a report that is wanted, print one, and end with 1 for a no."""
        self.publish(document)
        if not document.ok:
            answer_no(document.complaints)

    def publish(self, document: Document, *, prints: bool = True) -> None:
        """Write every form of *document* that is wanted, and print one if it *prints* any."""
        self.write_reports(document)
        if prints and not self.quiet and not self.fills_stdout:
            show(document.text(verbose=self.verbose))


def printing_params(verbose: str, forms: Iterable[str] = ()) -> list[click.Option]:
    """Return --verbose, --quiet, --json and the reports of a command.

    Args:
        verbose: What --verbose does; "" if there is nothing more to say.
        forms: The forms of report.
    """
    file = {"group": "Reports", "metavar": "FILE"}
    record = {"group": PRINTING, "metavar": "FILE", "help": _FORMS["json"][0]}
    more = GroupedOption(["--verbose", "-v"], group=PRINTING, is_flag=True, help=verbose)
    return [
        *(GroupedOption([f"--{f}", f"report_{f}"], help=_FORMS[f][0], **file) for f in forms),
        *([more] if verbose else []),
        QUIET,
        GroupedOption(["--json", "report_json"], **record),
    ]


QUIET = GroupedOption(["--quiet", "-q"], group=PRINTING, is_flag=True, help="Print only errors.")


def take_printing(given: dict[str, Any]) -> Printing:
    """Take what :func:`printing_params` were given out of *given*."""
    paths = {name: given.pop(f"report_{name}", None) for name in _FORMS}
    reports = {name: path for name, path in paths.items() if path is not None}
    return Printing(given.pop("quiet"), given.pop("verbose", False), reports)


def printing_options(verbose: str = "", *forms: str) -> Callable[[Command], Command]:
    """Add the options of :func:`printing_params`; the command is given a :class:`Printing`."""
    return _options("printing", take_printing, printing_params(verbose, forms))


def settings_options(
    settings: type[BaseSettings], *, without: str = ""
) -> Callable[[Command], Command]:
    """Add options for the fields of *settings* but one; the command is given the settings."""
    params = [each for each in options_of(settings) if each.name != without]
    return _options("settings", partial(take_settings, settings), params)


def _options(
    name: str, take: Callable[[dict[str, Any]], object], params: Iterable[click.Parameter]
) -> Callable[[Command], Command]:
    """Add *params* to a function that becomes a command: it is given what *take* makes of them."""

    def add(command: Command) -> Command:
        @wraps(command)
        def call(**given: Any) -> None:  # noqa: ANN401  # what click gives
            command(**{name: take(given)}, **given)

        # those added later stand before them
        known = getattr(command, "__click_params__", [])
        call.__click_params__ = [*known, *reversed([*params])]  # type: ignore[attr-defined]  # click's
        return call

    return add


quiet_option = _options("quiet", lambda given: given.pop("quiet"), [QUIET])
"""Adds --quiet alone; the command is given whether it is."""


def take_settings(settings: type[S], given: dict[str, Any]) -> S:
    """Make settings of what was given, and take that out of *given*."""
    names = [name for name in settings.options if name in given]
    return settings.read({name: given.pop(name) for name in names})


def _rendered(form: str, document: Document, seconds: float) -> str:
    """Return the report in one form; each module is imported only where it is wanted."""
    if form == "json":
        return json_text(document.json())
    if form == "html":
        from dplcli.report.graphs import graphs_of  # noqa: PLC0415  # only for its form
        from dplcli.report.html import html_page  # noqa: PLC0415  # only for its form

        drawn = graphs_of(document.draws(), document.verification, pipeline.view)
        return html_page(document, drawn)
    from dplcli.report import ci  # noqa: PLC0415  # only for its form

    if form == "junit":
        return ci.junit_xml(document, seconds)
    return (
        ci.markdown_text(document) if form == "markdown" else json_text(ci.sarif_record(document))
    )


def _is_step_summary(path: str) -> bool:
    """Tell whether *path* is the file that GitHub shows beside a run, which steps share."""
    summary = os.environ.get(_STEP_SUMMARY)
    return bool(summary) and resolved(Path(path)) == resolved(Path(summary or ""))
