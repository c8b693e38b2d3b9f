"""Options that write a report in the forms that CI services and people read."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dplcli import pipeline
from dplcli.cli.options import check_report_path
from dplcli.cli.printing import write
from dplcli.errors import UsageError
from dplcli.files import append_to_file, encoded
from dplcli.report.escaping import inert_markup, json_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.report.document import Document

    Command = TypeVar("Command", bound=Callable[..., Any])

_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
_HELP = {
    "junit": "Write a report as JUnit XML: a test for each output, level and seed.",
    "sarif": "Write what has a place in a catalogue as SARIF 2.1.0, for code hosts.",
    "markdown": "Write a report as Markdown; to the file that $GITHUB_STEP_SUMMARY names, it is "
    "added.",
    "html": "Write a report as one page of HTML with plots (needs: pip install 'dplcli[report]').",
}
_KINDS = {
    "junit": "JUnit report of dpl",
    "sarif": "SARIF report of dpl",
    "markdown": "Markdown report of dpl",
    "html": "HTML report of dpl",
}
_MARKS = {
    "junit": b'<testsuites name="dpl',
    "sarif": b'"name": "dpl"',
    "markdown": b"<!-- dpl report -->",
    "html": b'<meta name="generator" content="dpl">',
}


@dataclass(frozen=True)
class ReportFiles:
    """Where to write which form of the report; None for nowhere, - for standard output.

    Attributes:
        junit: JUnit XML.
        sarif: SARIF.
        markdown: Markdown.
        html: HTML.
    """

    junit: str | None = None
    sarif: str | None = None
    markdown: str | None = None
    html: str | None = None

    @property
    def wanted(self) -> dict[str, str]:
        """The forms that are wanted, and where."""
        paths = {field.name: getattr(self, field.name) for field in fields(self)}
        return {form: path for form, path in paths.items() if path is not None}

    @property
    def takes_stdout(self) -> bool:
        """Whether one of them goes to standard output, so that no table may."""
        return "-" in self.wanted.values()

    def check(
        self, json_path: str | None, *others: Path | str | None, has_plots: bool = True
    ) -> None:
        """Refuse, before any work is done, what cannot be or must not be written.

        Args:
            json_path: Where the JSON goes.
            others: The other files of the command.
            has_plots: Whether the page of this command has plots.

        Raises:
            UsageError: Two reports want one place, a file is no report of dpl, or cannot be
                written, or the library that draws plots is missing.
        """
        wanted = {"--json": json_path} | {f"--{form}": path for form, path in self.wanted.items()}
        printed = [option for option, path in wanted.items() if path == "-"]
        if len(printed) > 1:
            raise UsageError(
                f"{printed[0]} - and {printed[1]} - both want standard output",
                hint="name a file for one",
            )
        taken = [*others, None if json_path == "-" else json_path]
        for form, path in self.wanted.items():
            if path != "-":
                mark = b"" if form == "markdown" and _is_step_summary(path) else _MARKS[form]
                check_report_path(path, *taken, option=f"--{form}", mark=mark, kind=_KINDS[form])
                taken.append(path)
        if self.html is not None and has_plots:
            from dplcli.report.plots import check_plotting  # noqa: PLC0415  # only for a page

            check_plotting()

    def write(self, document: Document) -> None:
        """Write every form that is wanted.

        Raises:
            UsageError: One cannot be written.
        """
        for form, path in self.wanted.items():
            text = _rendered(form, document)
            if path == "-":
                write(text if form == "sarif" else inert_markup(text))
            elif form == "markdown" and _is_step_summary(path):
                _append(Path(path), text)
            else:
                pipeline.write_text(Path(path), text, f"--{form}")


def report_options(*forms: str) -> Callable[[Command], Command]:
    """Add an option for each of *forms*; for all of them if none is named."""

    def add(command: Command) -> Command:
        for form in reversed(forms or tuple(_HELP)):
            option = click.option(f"--{form}", f"report_{form}", metavar="FILE", help=_HELP[form])
            command = option(command)
        return command

    return add


def take_reports(options: dict[str, Any]) -> ReportFiles:
    """Take what the options of :func:`report_options` were given out of *options*."""
    names = [field.name for field in fields(ReportFiles)]
    return ReportFiles(**{name: options.pop(f"report_{name}", None) for name in names})


def _rendered(form: str, document: Document) -> str:
    """Return the report in one form; each module is imported only where it is wanted."""
    if form == "junit":
        from dplcli.report.junit import junit_xml  # noqa: PLC0415

        return junit_xml(document)
    if form == "sarif":
        from dplcli.report.sarif import sarif_record  # noqa: PLC0415

        return json_text(sarif_record(document))
    if form == "markdown":
        from dplcli.report.markdown import markdown_text  # noqa: PLC0415

        return markdown_text(document)
    from dplcli.report.html import html_page  # noqa: PLC0415

    return html_page(document)


def _is_step_summary(path: str) -> bool:
    """Tell whether *path* is the file that GitHub shows beside a run, which steps share."""
    summary = os.environ.get(_STEP_SUMMARY)
    return bool(summary) and Path(path).resolve() == Path(summary or "").resolve()


def _append(path: Path, text: str) -> None:
    try:
        append_to_file(path, encoded(f"\n{text}"))
    except OSError as error:
        raise UsageError(f"--markdown {path}: cannot be written: {error.strerror}") from error
