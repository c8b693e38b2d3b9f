"""Reports for CI services and code hosts: JUnit XML, SARIF and Markdown."""

from __future__ import annotations

import os
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from dplcli.escaping import code, markdown, one_line, visible
from dplcli.report.document import Case, versions
from dplcli.report.layout import kind_of, mood_of, plain_of
from dplcli.report.tables import number, percent
from dplcli.report.verify import comparisons

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dplcli.report.document import Document, Finding, SourceLocation
    from dplcli.report.layout import Cell, TextTable
    from dplcli.verify import OutputComparison

    Json = dict[str, Any]


# Reports as JUnit XML, which CI services show as tests: one for each output, level and seed.


_LONGEST = 80
"""Characters of a model's name in the names of cases, which have room for 200."""


def junit_xml(document: Document, seconds: float = 0.0) -> str:
    """Return *document* as JUnit XML.

    The first suite has one case, which passes if the command's answer is yes, so that no file is
    without a case. Of many models each has a suite, with its own answer.

    Args:
        document: The report.
        seconds: How long the command took, by the clock: the time of the first case. The others
            have no time of their own, as all of them are one run; of many models each has.
    """
    verdict, *others = cases_of(document)
    suites: dict[str, list[Case]] = {}
    if document.about != "models":
        suites[f"{document.command}: {document.subject}"] = [verdict._replace(seconds=seconds)]
    for case in others:
        suites.setdefault(case.group, []).append(case)
    cases = [case for suite in suites.values() for case in suite]
    attributes = _counts(cases) | {"time": f"{seconds:.3f}"}  # models were done side by side
    root = ET.Element("testsuites", {"name": one_line(document.command)} | attributes)
    for position, (name, of_suite) in enumerate(suites.items()):
        _suite(root, name, of_suite, is_first=not position)
    ET.indent(root, " ")
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def cases_of(document: Document) -> list[Case]:
    """Return all that was tried, the answer of the whole command first."""
    outputs = () if document.verification is None else comparisons(document.verification)
    cases = [_verdict(document), *map(_comparison, outputs), *document.cases]
    return [case._replace(model=case.model or document.model) for case in cases]


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    count = Counter(case.status for case in cases)
    return {
        "tests": str(len(cases)),
        "failures": str(count["failed"]),
        "errors": str(count["error"]),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


def _suite(root: ET.Element, name: str, cases: Sequence[Case], *, is_first: bool) -> None:
    skipped = str(sum(case.status == "skipped" for case in cases))
    attributes = {"name": one_line(name)} | _counts(cases) | {"skipped": skipped}
    suite = ET.SubElement(root, "testsuite", attributes)
    if is_first:
        properties = ET.SubElement(suite, "properties")
        for package, version in versions().items():
            ET.SubElement(properties, "property", name=f"version.{package}", value=version)
    for case in cases:
        name = f"{one_line(case.model, _LONGEST)}: {case.name}" if case.model else case.name
        attributes = {
            "name": one_line(name),
            "classname": one_line(case.group),
            "time": f"{case.seconds:.3f}",
        }
        element = ET.SubElement(suite, "testcase", attributes)
        if case.status == "passed":
            continue
        tag = "failure" if case.status == "failed" else case.status
        message = one_line(case.message.partition("\n")[0])
        reason = ET.SubElement(element, tag, message=message)
        if case.status != "skipped":
            reason.set("type", "dpl")
            reason.text = visible(case.message)


def _verdict(document: Document) -> Case:
    told = {case.message for case in document.cases if case.status == "failed"}
    reasons = [line for line in document.failures if line not in told]
    is_compared = document.verification is not None and not document.verification.equivalent
    if document.ok or (told and not reasons and not is_compared):
        return Case(document.command, "verdict", "passed")
    message = "\n".join([document.verdict, *reasons])
    return Case(document.command, "verdict", "failed", message)


def _comparison(output: OutputComparison) -> Case:
    group = f"level {output.level}"
    name = f"{output.name}, seed {output.seed}"
    if output.ok:
        return Case(group, name, "passed")
    figures = {
        "type": f"{output.dtype} {list(output.shape)}",
        "max abs": output.max_abs and number(output.max_abs),
        "max rel": output.max_rel and number(output.max_rel),
        "max ulp": output.max_ulp and str(output.max_ulp),
        "rtol": number(output.rtol),
        "atol": number(output.atol),
        "error of tolerance": output.share and percent(output.share),
        "elements outside": str(output.mismatches),
    }
    lines = [output.reason or "it differs"]
    lines += [f"{label}: {figure}" for label, figure in figures.items() if figure]
    return Case(group, name, "failed", "\n".join(lines))


# Findings as SARIF 2.1.0, which code hosts show at the lines of a catalogue.


_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_KINDS = {
    "catalogue": "A mistake in a catalogue",
    "equivalence": "A rule changes what a model computes",
    "expectation": "A rule matches more or less often than expected",
    "example": "An example of a rule turns out differently",
    "made-up-graph": "A rule fails on a graph made up for its pattern",
}


def sarif_record(document: Document) -> Json:
    """Return the findings of *document* as SARIF.

    A finding without a place becomes a notification of the run, and so does a verdict of no.
    """
    placed = [(finding, finding.place) for finding in document.findings if finding.place]
    kinds = sorted({finding.kind for finding, _ in placed})
    said = [(f.severity, f"{f.rule}: {f.message}") for f in document.findings if not f.place]
    if not document.ok:
        said.append(("error", "\n".join([f"{document.verdict}.", *document.failures])))
    notifications = [{"level": level, "message": {"text": visible(text)}} for level, text in said]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "dpl",
                        "version": versions()["dpl"],
                        "rules": [
                            {"id": kind, "shortDescription": {"text": _KINDS.get(kind, kind)}}
                            for kind in kinds
                        ],
                    }
                },
                "originalUriBaseIds": {_ROOT: {"description": {"text": "The repository"}}},
                "invocations": [
                    {"executionSuccessful": True, "toolExecutionNotifications": notifications}
                ],
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, place, kinds) for finding, place in placed],
            }
        ],
    }


def _result(finding: Finding, place: SourceLocation, kinds: list[str]) -> Json:
    region: Json = {"startLine": max(place.line, 1)}
    if place.column is not None:
        region["startColumn"] = max(place.column, 1)
    where = {"artifactLocation": _artifact(place.file), "region": region}
    rule = {"fullyQualifiedName": one_line(finding.rule)}
    return {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": finding.severity,
        "message": {"text": visible(f"{finding.rule}: {finding.message}")},
        "locations": [{"physicalLocation": where, "logicalLocations": [rule]}],
    }


_ROOT = "SRCROOT"


def _artifact(file: str) -> Json:
    """Return where a file is, relative to the repository, as code hosts need it.

    The repository is the nearest folder upwards that has a ``.git``, else the working directory. A
    file outside of it has its full path; a catalogue that dpl ships has its name alone.
    """
    here = Path.cwd()
    path = Path(os.path.normpath(here / file))
    if not (Path(file).is_absolute() or os.path.exists(path)):  # noqa: PTH110  # of any length
        return {"uri": quote(Path(os.path.normpath(file)).as_posix(), errors="surrogatepass")}
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    if not path.is_relative_to(root):
        return {"uri": path.as_uri()}
    place = path.relative_to(root).as_posix()
    return {"uri": quote(place, errors="surrogatepass"), "uriBaseId": _ROOT}


# Reports as Markdown, for the summaries that CI services show beside a run.


_MOST_ROWS, _MANY_ROWS = 50, 20
"""So many rows of a table are written, and so many are shown at once."""
_SYMBOLS = {"yes": "✅ ", "no": "❌ ", "warn": "⚠️ "}


def markdown_text(document: Document) -> str:
    """Return *document* as Markdown; in tables, what needs a look comes first."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield "<!-- dpl report -->"  # tells dpl that it may replace the file
    mark = "no" if not document.ok else "" if document.is_idle else "yes"
    yield f"## {_SYMBOLS.get(mark, '')}{markdown(document.verdict)}"
    yield ""
    yield f"{code(document.command)} of {code(document.subject)}"
    lines = [f"- {_SYMBOLS['no']}{markdown(line)}" for line in document.reasons]
    lines += [f"- {markdown(name)}: {markdown(value)}" for name, value in document.facts]
    if lines:
        yield from ("", *lines)
    for kind, blocks in groupby(document.blocks(), kind_of):
        yield from _written(kind, blocks)
    said = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield from ("", f"<sub>{markdown(said)}</sub>")


def _written(kind: str, blocks: Iterable[Any]) -> Iterator[str]:
    """Yield tables; or lines, of which those that are indented belong to the one before.

    Of many lines the first are shown, and those that say more than others by their colour.
    """
    if kind == "table":
        for table in blocks:
            yield from _table(table) if table.rows else ()
        return
    lines = [block for block in blocks if block.plain.strip()]
    more = () if kind == "code" else [line for line in lines[_MOST_ROWS:] if mood_of(line)]
    shown = [*lines[:_MOST_ROWS], *more]
    yield ""
    if kind == "code":
        code_lines = "\n".join(markdown(line.plain.rstrip()) for line in shown)
        yield f"<pre>{code_lines}</pre>"
    for line in shown if kind != "code" else ():
        start = "###" if kind == "heading" else "  -" if line.plain.startswith(" ") else "-"
        yield f"{start} {_SYMBOLS.get(mood_of(line), '')}{markdown(line.plain.strip())}"
    if len(shown) < len(lines):
        yield from ("", f"and {len(lines) - len(shown):,} more.")


def _table(table: TextTable) -> Iterator[str]:
    """Yield a table under its title; a long one without bad news is folded."""
    rows = table.worst_first()
    moods = {mood_of(cell) for row in rows for cell in row}
    is_folded = len(rows) > _MANY_ROWS and "no" not in moods
    if is_folded:
        summary = markdown(f"{table.title or 'rows'}: {len(rows):,}")
        yield from ("", f"<details><summary>{summary}</summary>")
    elif table.title:
        yield from ("", f"### {markdown(table.title)}")
    yield ""
    yield f"| {' | '.join(map(markdown, table.columns))} |"
    yield f"| {' | '.join('---:' if right else '---' for right in table.is_right)} |"
    for row in rows[:_MOST_ROWS]:
        yield f"| {' | '.join(map(_cell, row, table.looks))} |"
    if (left := len(rows) - _MOST_ROWS) > 0:
        yield from ("", f"and {left} more.")
    if is_folded:
        yield from ("", "</details>")


def _cell(cell: Cell, look: str) -> str:
    write = code if look == "name" else markdown
    return f"{_SYMBOLS.get(mood_of(cell), '')}{write(plain_of(cell).strip())}"
