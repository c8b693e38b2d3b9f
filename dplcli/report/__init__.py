"""Outcomes as tables, sentences and JSON."""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.report.catalog import explain_document
    from dplcli.report.diff import diff_document
    from dplcli.report.document import model_document, verification_document
    from dplcli.report.learn import learn_document
    from dplcli.report.partition import match_document, partition_document
    from dplcli.report.rewrite import extract_document, inline_document, rewrite_document
    from dplcli.report.running import accuracy_document, bench_document, run_document
else:
    __getattr__ = lazy(__name__)
