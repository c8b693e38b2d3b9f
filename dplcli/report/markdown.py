"""Reports as Markdown, for the summaries that CI services show beside a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.report.document import chosen_layers, versions
from dplcli.report.escaping import code, markdown
from dplcli.report.measures import number, percent, ranked, share_of_tolerance, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dplcli.report.document import Document
    from dplcli.verify import OutputComparison, VerificationResult

_MOST_ROWS = 50
_SYMBOLS = {"passed": "✅", "failed": "❌", "skipped": "▫️"}
_LEVELS = {"error": "❌", "warning": "⚠️", "note": "▫️"}


def markdown_text(document: Document) -> str:
    """Return *document* as Markdown; of long tables the rows that need looking at come first."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield "<!-- dpl report -->"  # tells dpl that it may replace the file
    yield f"## {_SYMBOLS['passed' if document.ok else 'failed']} {markdown(document.verdict)}"
    yield ""
    yield f"{code(document.command)} of {code(document.subject)}"
    yield from _bullets(document)
    if document.verification is not None:
        yield from _outputs(document.verification)
        yield from _inputs(document.verification)
    yield from _layers(document)
    for section in document.sections:
        lines = [(code(mark), code(text)) for mark, text in section.rows]
        yield from _table(markdown(section.title), ("", "what"), lines)
    if document.rules:
        rows = [(code(rule.name), str(rule.used), str(rule.refused)) for rule in document.rules]
        yield from _table("Rules", ("rule", "-applied", "-refused"), rows)
    yield from _findings(document)
    said = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield from ("", f"<sub>{markdown(said)}</sub>")


def _bullets(document: Document) -> Iterator[str]:
    """List what is wrong, then what weakens the verdict, then facts."""
    lines = [f"- {_LEVELS['error']} {markdown(line)}" for line in document.failures]
    lines += [f"- {_LEVELS['warning']} {markdown(line)}" for line in document.notes]
    lines += [f"- {markdown(name)}: {markdown(value)}" for name, value in document.facts]
    if lines:
        yield from ("", *lines)


def _outputs(result: VerificationResult) -> Iterator[str]:
    columns = ("", "output", "level", "-max abs", "-max rel", "-max ulp", "-of tolerance", "why")
    rows = [_output(output) for output in ranked(result.outputs)]
    yield from _table("Outputs", columns, rows)
    yield from ("", f"Of the inputs ({markdown(result.fed)}) those that give the worst are shown.")


def _output(output: OutputComparison) -> tuple[str, ...]:
    return (
        _SYMBOLS["passed" if output.ok else "failed"],
        code(output.name),
        output.level,
        number(output.max_abs),
        number(output.max_rel),
        "" if output.max_ulp is None else str(output.max_ulp),
        percent(share_of_tolerance(output)),
        markdown(output.reason or ""),
    )


def _inputs(result: VerificationResult) -> Iterator[str]:
    rows = [
        (
            code(choice.name),
            markdown(f"{choice.dtype} {list(choice.shape)}"),
            f"{value(choice.low)} to {value(choice.high)}" if choice.low is not None else "",
            markdown(choice.how),
        )
        for choice in result.inputs
    ]
    yield from _table("Inputs", ("input", "type", "range", "how"), rows)


def _layers(document: Document) -> Iterator[str]:
    rows = [
        (
            _SYMBOLS["passed" if layer.ok else "failed"],
            code(layer.name),
            code(layer.op_type),
            percent(layer.share),
        )
        for layer in chosen_layers(document.layers, _MOST_ROWS)
    ]
    yield from _table("Values on the way", ("", "value", "operator", "-of tolerance"), rows)
    if len(document.layers) > _MOST_ROWS:
        yield from ("", f"and {len(document.layers) - _MOST_ROWS} more.")


def _findings(document: Document) -> Iterator[str]:
    rows = [
        (
            _LEVELS[finding.severity],
            code(finding.rule),
            "" if finding.place is None else code(f"{finding.place.file}:{finding.place.line}"),
            markdown(finding.message),
        )
        for finding in document.findings
    ]
    yield from _table("Findings", ("", "rule", "place", "what"), rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Iterable[str]]) -> Iterator[str]:
    """Return a table under a heading, if it has a row; columns with a dash hold numbers."""
    if not rows:
        return
    yield from ("", f"### {title}", "")
    yield f"| {' | '.join(column.removeprefix('-') for column in columns)} |"
    yield f"| {' | '.join('---:' if column.startswith('-') else '---' for column in columns)} |"
    for row in rows[:_MOST_ROWS]:
        yield f"| {' | '.join(row)} |"
    if len(rows) > _MOST_ROWS:
        yield from ("", f"and {len(rows) - _MOST_ROWS} more.")
