"""Reports on many models: one table, one JSON, one JUnit file and one page for all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dplcli.errors import counted
from dplcli.keys import keys
from dplcli.outcomes.base import ModelAnswer
from dplcli.report.ci import cases_of
from dplcli.report.document import Case, Document
from dplcli.report.json import published
from dplcli.report.layout import Group, Heading, Text, lines_of
from dplcli.report.tables import RuleUse, note, percent, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dplcli.report.layout import Part

    Json = dict[str, Any]

_LONGEST_FIGURE = 16
_STYLES = {"yes": "green", "no": "bold red", "error": "bold red"}
_WORDS: Mapping[str, Literal["ok", "no", "error"]] = {"yes": "ok", "no": "no", "error": "error"}


def answer_of(
    label: str,
    document: Document,
    *,
    with_record: bool = False,
    with_text: bool = False,
    verbose: bool = False,
) -> ModelAnswer:
    """Return what a command said of one of many models, as plain data.

    Args:
        label: The model, as it is named.
        document: The report of the command.
        with_record: Whether the JSON is wanted, too.
        with_text: Whether what a terminal would show is.
        verbose: Whether that says more.
    """
    said = document.text(verbose=verbose)
    return ModelAnswer(
        label=label,
        status="yes" if document.ok else "no",
        verdict=document.verdict,
        messages=document.reasons,
        notes=document.notes,
        figures=_figures(document),
        rules=tuple((rule.name, rule.used, rule.refused) for rule in document.rules),
        cases=[(c.group, c.name, c.status, c.message) for c in cases_of(document)],
        record=document.record() if with_record else None,
        lines=[line.plain for line in lines_of(said, None)] if with_text else (),
    )


def _figures(document: Document) -> dict[str, str]:
    """Return what a table of many models has a column for."""
    figures = {
        name.replace(" of the main graph", ""): text  # a column has no room
        for name, text in document.facts
        if len(text) <= _LONGEST_FIGURE
    }
    if document.verification is not None:
        shares = [each.share for each in document.verification.outputs]
        known = [share for share in shares if share is not None]
        figures["of tolerance"] = percent(max(known)) if known else ""
    return figures


def many_document(command: str, answers: Sequence[ModelAnswer]) -> Document:
    """Report on many models.

    Args:
        command: What was run, such as 'dpl match'.
        answers: What it said of each model, in order.
    """
    count: Counter[str] = Counter(answer.status for answer in answers)
    bad = [answer for answer in answers if answer.status != "yes"]
    models = counted(len(answers), "model")
    totals = _totals(answers)
    words = ((count["no"], "not"), (count["error"], "could not be done"))
    parts = [f"{count['yes']} ok", *(f"{number} {word}" for number, word in words if number)]
    verdict = f"{models}: {', '.join(parts)}"
    cases = tuple(case for answer in answers for case in _cases(answer))
    notes = tuple(about(answer, line) for answer in answers for line in answer.notes)

    def said(*, verbose: bool) -> Part:
        parts: list[Part] = []
        for answer in answers:
            if answer.lines:
                parts += [Heading(answer.label)]
                parts += [*(Text(line, whole=True) for line in answer.lines), Text()]
        parts += [_table(answers), Text()]
        if verbose:
            rules = [(rule, *counts) for rule, counts in totals.items()]
            failed = [each for each in cases if each.status == "failed"]
            parts.append(table_of(rules, "Rules", "rule used:count refused:count"))
            parts += [table_of(failed, "What failed"), *map(note, notes)]
        return Group(*parts, Text(f"{verdict}.", style="bold red" if bad else "bold green"))

    return Document(
        said=said,
        of=Answers(command, answers, totals),
        ok=not bad,
        about="models",
        command=command,
        subject=models,
        verdict=verdict,
        failures=tuple(line for answer in answers for line in complaints(answer)),
        notes=notes,
        facts=tuple((_WORDS[status], str(count[status])) for status in _WORDS if count[status]),
        cases=cases,
        rules=tuple(RuleUse(name, *counts) for name, counts in totals.items()),
    )


def complaints(answer: ModelAnswer) -> list[str]:
    """Say what is wrong with one of many models, a sentence a line; nothing if all is well."""
    return [about(answer, line) for line in answer.messages if answer.status != "yes"]


def about(answer: ModelAnswer, line: str) -> str:
    """Return a line that says which model it is about; many do so by themselves."""
    if answer.label in line:
        return line
    return f"{answer.label}: {line.removeprefix(f'{Path(answer.label).name}: ')}"


def _table(answers: Sequence[ModelAnswer]) -> Part:
    """Return a row for each model; the columns are the figures that any of them has."""
    names = list(dict.fromkeys(name for answer in answers for name in answer.figures))
    has_verdicts = any(answer.verdict for answer in answers)
    rows = []
    for answer in answers:
        word = (has_verdicts and answer.verdict) or _WORDS[answer.status]
        why = next(iter(answer.messages), "").partition("\n    ")[0]  # without an excerpt
        for name in (answer.label, Path(answer.label).name):
            why = why.removeprefix(f"{name}: ")
        figures = (answer.figures.get(name, "") for name in names)
        reason = "" if answer.status == "yes" else why
        rows.append((answer.label, Text(word, _STYLES[answer.status]), *figures, reason))
    columns = " ".join(f"{name.replace(' ', '_')}=:number" for name in names)
    ranks = (answer.status == "yes" for answer in answers)
    return table_of(rows, "Models", f"model result {columns} why:prose?", ranks=ranks)


def _totals(answers: Iterable[ModelAnswer]) -> dict[str, RuleTotal]:
    """Return how often each rule was used and refused in all models, the most used first."""
    used: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for answer in answers:
        for name, uses, refusals in answer.rules:
            used[name] += uses
            refused[name] += refusals
    return {name: RuleTotal(used[name], refused[name]) for name, _ in used.most_common()}


def _cases(answer: ModelAnswer) -> Iterable[Case]:
    """Return what was tried of one model: a suite of its own."""
    cases, seconds = answer.cases, answer.seconds
    if answer.status == "error":
        cases = [("verdict", "verdict", "error", "\n".join(answer.messages))]
    for group, name, status, message in cases:
        inner = name if group == "verdict" else f"{group}: {name}"
        yield Case(answer.label, inner, status, message, answer.label, seconds)
        seconds = 0.0  # the first has the time of all


class RuleTotal(NamedTuple):
    """How often a rule was used in all models, and refused."""

    used: int
    refused: int


class AnswerItem(NamedTuple):
    """What was said of one of many models.

    Attributes:
        model: The model.
        status: Whether the answer is yes or no, or there is none.
        verdict: The answer in a few words.
        messages: Why the answer is no, or why there is none.
        result: The document of the command; of dpl build, steps with one each.
    """

    model: str
    status: Literal["ok", "no", "error"]
    verdict: str
    messages: Sequence[str]
    result: Mapping[str, Any] | None


class ManyCounts(NamedTuple):
    """How many models ended how."""

    ok: int
    no: int
    error: int


@keys("command models rules answers=items", "dpl.models/1")
class Answers(NamedTuple):
    """What was said of many models, by any command and by dpl build."""

    command: str
    answers: Sequence[ModelAnswer]
    rules: Mapping[str, RuleTotal]

    @property
    def models(self) -> ManyCounts:
        """How many models ended how."""
        count: Counter[str] = Counter(answer.status for answer in self.answers)
        return ManyCounts(ok=count["yes"], no=count["no"], error=count["error"])

    @property
    def items(self) -> list[AnswerItem]:
        """What was said of each."""
        items = []
        for answer in self.answers:
            status, record = _WORDS[answer.status], answer.record
            if record is not None:
                steps = record.get("steps")
                done = {"steps": [step and published(step) for step in steps or ()]}
                record = published(record) if steps is None else done
            messages = answer.messages if answer.status != "yes" else ()
            items.append(AnswerItem(answer.label, status, answer.verdict, messages, record))
        return items
