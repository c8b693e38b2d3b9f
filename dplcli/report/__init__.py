"""Outcomes as tables, sentences and JSON."""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.report.diff import diff_document
    from dplcli.report.explain import explain_document
    from dplcli.report.inline import extract_document, inline_document
    from dplcli.report.inspect import model_document
    from dplcli.report.learn import learn_document
    from dplcli.report.match import match_document
    from dplcli.report.partition import partition_document
    from dplcli.report.rewrite import rewrite_document
    from dplcli.report.running import accuracy_document, bench_document, run_document
    from dplcli.report.verify import verification_document
else:
    __getattr__ = lazy(__name__)
