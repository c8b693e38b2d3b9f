"""Reports as JUnit XML, which CI services show as tests: one for each output, level and seed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from dplcli.report.document import Case, versions
from dplcli.report.escaping import one_line, visible
from dplcli.report.measures import comparisons, number, percent, share_of_tolerance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.report.document import Document
    from dplcli.verify import OutputComparison


def junit_xml(document: Document) -> str:
    """Return *document* as JUnit XML.

    The first suite has one case, which passes if the command's answer is yes; so the file is never
    without one. Times are left out: the same run gives the same bytes.
    """
    suites = {f"{document.command}: {document.subject}": [_verdict(document)]}
    if document.verification is not None:
        for output in comparisons(document.verification):
            suites.setdefault(f"level {output.level}", []).append(_comparison(output))
    for case in document.cases:
        suites.setdefault(case.group, []).append(case)
    cases = [case for suite in suites.values() for case in suite]
    root = ET.Element("testsuites", {"name": one_line(document.command)} | _counts(cases))
    for position, (name, of_suite) in enumerate(suites.items()):
        _suite(root, name, of_suite, is_first=not position)
    ET.indent(root, " ")
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    count = Counter(case.status for case in cases)
    return {"tests": str(len(cases)), "failures": str(count["failed"]), "errors": "0"}


def _suite(root: ET.Element, name: str, cases: Sequence[Case], *, is_first: bool) -> None:
    skipped = str(sum(case.status == "skipped" for case in cases))
    attributes = {"name": one_line(name)} | _counts(cases) | {"skipped": skipped}
    suite = ET.SubElement(root, "testsuite", attributes)
    if is_first:
        properties = ET.SubElement(suite, "properties")
        for package, version in versions().items():
            ET.SubElement(properties, "property", name=f"version.{package}", value=version)
    for case in cases:
        attributes = {"name": one_line(case.name), "classname": one_line(case.group)}
        element = ET.SubElement(suite, "testcase", attributes)
        if case.status == "passed":
            continue
        tag = "failure" if case.status == "failed" else "skipped"
        message = one_line(case.message.partition("\n")[0])
        outcome = ET.SubElement(element, tag, message=message)
        if case.status == "failed":
            outcome.set("type", "dpl")
            outcome.text = visible(case.message)


def _verdict(document: Document) -> Case:
    lines = [document.verdict, *document.failures]
    if document.ok:
        return Case(document.command, "verdict", "passed")
    return Case(document.command, "verdict", "failed", "\n".join(lines))


def _comparison(output: OutputComparison) -> Case:
    group = f"level {output.level}"
    name = f"{output.name}, seed {output.seed}"
    if output.ok:
        return Case(group, name, "passed")
    figures = {
        "type": f"{output.dtype} {list(output.shape)}",
        "max abs": number(output.max_abs),
        "max rel": number(output.max_rel),
        "max ulp": "" if output.max_ulp is None else str(output.max_ulp),
        "rtol": number(output.rtol),
        "atol": number(output.atol),
        "error of tolerance": percent(share_of_tolerance(output)),
        "elements outside": str(output.mismatches),
    }
    lines = [output.reason or "it differs"]
    lines += [f"{label}: {figure}" for label, figure in figures.items() if figure]
    return Case(group, name, "failed", "\n".join(lines))
