"""The one text of a report: a terminal shows the most important of it, files show all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from dplcli.keys import keys
from dplcli.outcomes.base import ModelAnswer
from dplcli.report.ci import markdown_text
from dplcli.report.html import html_page
from dplcli.report.layout import TextTable, plain_text
from dplcli.report.many import many_document
from dplcli.report.tables import table_of
from dplcli.verify.check import Kernels
from dplcli.verify.verdict import KernelReport, PartitionRun
from tests.report.made import compared, output, result

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_files_name_each_partition_and_a_terminal_each_function() -> None:
    """Where 30 calls of one function ran is one row on a terminal."""
    calls = [PartitionRun(f"call_{n}", "dnnl::dense", "oneDNN", ("matmul",), 1) for n in range(30)]
    report = KernelReport(Kernels("dnnl", "oneDNN", "m"), 1, tuple(calls))
    document = compared("c.onnx against o.onnx", result([output("y")], kernels=report))

    assert "dnnl::dense     30" in " ".join(str(document).splitlines())
    assert "call_7" not in str(document)
    for text in (markdown_text(document).replace("&#95;", "_"), html_page(document)):
        assert "Partitions on oneDNN" in text
        assert all(f"<code>call_{n}</code>" in text for n in range(30))


def test_of_many_models_files_say_what_failed_and_what_rules_did() -> None:
    """The rows of models that failed come first."""
    good = ModelAnswer(label="a.onnx", status="yes", rules=[("r", 3, 1)])
    bad = ModelAnswer(
        label="b.onnx",
        status="no",
        messages=["no"],
        cases=[("level all", "y, seed 1", "failed", "3 elements differ\nmax abs: 2")],
    )
    document = many_document("dpl rewrite", [good, bad])
    rows = {
        each.title: each.worst_first() for each in document.blocks() if isinstance(each, TextTable)
    }

    assert [row[0] for row in rows["Models"]] == ["b.onnx", "a.onnx"]
    assert rows["Rules"] == [("r", "3", "1")]
    assert rows["What failed"] == [("b.onnx", "level all: y, seed 1", "3 elements differ")]
    assert "What failed" not in str(document)


def test_a_reason_is_said_once_in_files() -> None:
    """It stands below the verdict, and so not in the text again."""
    reason = "the candidate lacks 'b'"
    document = compared("c against o", result([], equivalent=False, reasons=(reason,)))

    assert html_page(document).count("the candidate lacks") == 1
    assert markdown_text(document).count("the candidate lacks") == 1


@keys(columns="name=label nodes=size:count? part=share:share =why:prose?")
class Row(NamedTuple):
    """Something that a table has a row for."""

    label: str
    size: int | None
    share: float
    why: str = ""


ROWS = [Row("a", 1_200, 0.999), Row("b", None, 0.001, "it is small")]


@pytest.mark.parametrize(
    ("rows", "columns", "lines"),
    [
        pytest.param(
            ROWS,
            "",
            ["name  nodes   part", "a     1,200  >99 %", "b             <1 %  it is small"],
            id="what-the-class-says",
        ),
        pytest.param(
            [row._replace(size=None, why="") for row in ROWS],
            "",
            ["name   part", "a     >99 %", "b      <1 %"],
            id="an-empty-column-is-left-out",
        ),
        pytest.param(ROWS, "is=label", ["is", "a", "b"], id="other-columns"),
        pytest.param(
            [("x", 3e9), ("y", 0)],
            "what FLOP:flop",
            ["what        FLOP", "x     3.00 GFLOP", "y              0"],
            id="tuples",
        ),
        pytest.param([], "what FLOP:flop", [], id="near-miss-no-rows-no-headings"),
    ],
)
def test_a_record_is_a_row_as_its_class_says(
    rows: Sequence[object], columns: str, lines: list[str]
) -> None:
    """Names of columns, where their parts are, and how they are written stand at the class."""
    text = plain_text(table_of(rows, "Rows", columns))
    assert [line.rstrip() for line in text.splitlines()] == lines


def test_the_number_of_rows_that_are_not_shown_stands_below() -> None:
    """Files show all, so a reader knows where to look."""
    text = plain_text(table_of(ROWS, columns="is=label", most=1))
    assert text.splitlines() == ["is", "a", "and 1 more (--verbose shows all)"]
