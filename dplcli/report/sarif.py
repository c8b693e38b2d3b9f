"""Findings as SARIF 2.1.0, which code hosts show at the lines of a catalogue."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dplcli.report.document import versions
from dplcli.report.escaping import one_line, visible

if TYPE_CHECKING:
    from dplcli.report.document import Document, Finding, Place

    Json = dict[str, Any]

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_KINDS = {
    "catalogue": "A mistake in a catalogue",
    "equivalence": "A rule changes what a model computes",
    "example": "An example of a rule turns out differently",
    "made-up-graph": "A rule fails on a graph made up for its pattern",
}


def sarif_record(document: Document) -> Json:
    """Return the findings of *document* that have a place in a file.

    What has none becomes a notification of the run, and so does a verdict of no: it would be lost.
    """
    placed = [finding for finding in document.findings if finding.place is not None]
    others = [finding for finding in document.findings if finding.place is None]
    kinds = sorted({finding.kind for finding in placed})
    said = [_notification(f"{f.rule}: {f.message}", f.severity) for f in others]
    if not document.ok:
        lines = [f"{document.verdict}.", *document.failures]
        said.append(_notification("\n".join(lines), "error"))
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
                            {
                                "id": kind,
                                "shortDescription": {"text": _KINDS.get(kind, kind)},
                            }
                            for kind in kinds
                        ],
                    }
                },
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": said}],
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, kinds) for finding in placed],
            }
        ],
    }


def _notification(text: str, severity: str) -> Json:
    return {"level": severity, "message": {"text": visible(text)}}


def _result(finding: Finding, kinds: list[str]) -> Json:
    assert finding.place is not None  # noqa: S101  # the caller sorted them
    return {
        "ruleId": finding.kind,
        "ruleIndex": kinds.index(finding.kind),
        "level": finding.severity,
        "message": {"text": visible(f"{finding.rule}: {finding.message}")},
        "locations": [
            {
                "physicalLocation": _location(finding.place),
                "logicalLocations": [{"fullyQualifiedName": one_line(finding.rule)}],
            }
        ],
    }


def _location(place: Place) -> Json:
    region: Json = {"startLine": max(place.line, 1)}
    if place.column is not None:
        region["startColumn"] = max(place.column, 1)
    return {"artifactLocation": {"uri": _uri(place.file)}, "region": region}


def _uri(file: str) -> str:
    """Return a reference relative to the working directory, which code hosts need, if it is below.

    A file elsewhere is named in full: there is no other way to find it.
    """
    path = Path(file)
    if path.is_absolute():
        here = Path.cwd()
        if not path.is_relative_to(here):
            return path.as_uri()
        path = path.relative_to(here)
    return quote(Path(os.path.normpath(path)).as_posix(), errors="surrogatepass")
