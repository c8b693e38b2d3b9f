"""The one text of a report: a terminal shows the most important of it, files show all."""

from __future__ import annotations

from dplcli.outcomes import ModelAnswer
from dplcli.report.ci import markdown_text
from dplcli.report.html import html_page
from dplcli.report.layout import TextTable
from dplcli.report.many import many_document
from dplcli.verify.check import Kernels
from dplcli.verify.verdict import KernelReport, PartitionRun
from tests.report.made import compared, output, result


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
