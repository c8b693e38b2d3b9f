"""``dpl partition``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dplcli import pipeline
from dplcli.cli.funnel import answer_no
from dplcli.cli.options import (
    allow_code_option,
    catalog_options,
    check_json_path,
    emit,
    expect_option,
    model_argument,
    output_options,
)
from dplcli.cli.policy_options import policy_options
from dplcli.cli.printing import progress
from dplcli.cli.repeat_options import repeat_options, run_repeat, take_repeat_options
from dplcli.cli.report_options import report_options, take_reports
from dplcli.cli.verify_options import verify_options, verify_settings
from dplcli.cli.write_options import choose_output, write_options
from dplcli.report.catalog_findings import broken_rule
from dplcli.report.coverage import coverage_record, coverage_report
from dplcli.report.document import result_document, rule_uses
from dplcli.report.layout import Group, Text
from dplcli.report.records import partition_record
from dplcli.report.region_report import region_table, regions_record
from dplcli.report.tables import (
    functions_by_rule,
    listing,
    rule_table,
    summary_line,
)
from dplcli.report.written_report import check_failure, ending, whereabouts

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.report.document import Document
    from dplcli.report.layout import Part


@click.command("partition")
@model_argument
@catalog_options
@repeat_options
@expect_option
@allow_code_option
@policy_options("constants", "escape", "order")
@write_options("partitioned")
@click.option(
    "--merge",
    is_flag=True,
    help="Merge neighbouring partitions of one target, those that are in MODEL already included, "
    "into regions: functions that call them.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="With --merge: leave matches alone whose region has no heavy operator (Conv, Gemm, "
    "MatMul, LayerNormalization, ...), unless it is the target's only region.",
)
@verify_options
@report_options()
@output_options("Also list every match and refusal, and say what is being done.")
def command(  # noqa: PLR0913  # one parameter per option
    *,
    model: Path,
    patterns: tuple[str, ...],
    targets: tuple[str, ...],
    expectations: tuple[str, ...],
    allow_code: bool,
    constants: tuple[str, ...],
    escape: tuple[str, ...],
    order: tuple[str, ...],
    output: Path | None,
    in_place: bool,
    keep_failed: bool,
    merge: bool,
    prune: bool,
    no_verify: bool,
    json_path: str | None,
    quiet: bool,
    verbose: bool,
    **others: Any,  # noqa: ANN401  # those of repeat_, verify_ and report_options
) -> None:
    """Outline matched subgraphs of MODEL as functions for a target, or what it repeats.

    The result is checked with onnx.checker and compared with the original in onnxruntime before
    it is written; if it fails, nothing is written and the exit code is 1.
    """
    repeat = take_repeat_options(
        others, patterns + targets, (*constants, *escape, *order, merge, prune)
    )
    reports = take_reports(others)
    output = choose_output(model, output, "partitioned", in_place=in_place)
    check_json_path(json_path, model, output, *patterns)
    reports.check(json_path, model, output, *patterns)
    settings = pipeline.PartitionSettings(
        verify=not no_verify,
        verification=verify_settings(**others, allow_code=allow_code),
        expectations=expectations,
        in_place=in_place,
        keep_failed=keep_failed,
        measure=True,
        merge=merge,
        prune=prune,
    )
    if repeat is not None:
        silent = quiet or reports.takes_stdout
        printing: Any = {"json_path": json_path, "quiet": silent, "verbose": verbose}
        blocks = run_repeat(model, output, repeat, settings, **printing)
        reports.write(_document(blocks, ()))
        _conclude(blocks)
        return
    with progress(quiet=quiet, verbose=verbose) as say:
        outcome = pipeline.partition(
            model,
            output=output,
            patterns=patterns,
            targets=targets,
            settings=settings,
            allow_code=allow_code,
            policies=pipeline.Policies(constants=constants, escape=escape, order=order),
            progress=say,
        )
    reports.write(_document(outcome, patterns))
    emit(
        _report(outcome, verify=not no_verify, verbose=verbose),
        lambda: (
            partition_record(
                outcome.counts,
                outcome.partitions,
                outcome.selection,
                outcome.verification,
                unmet=outcome.unmet,
                objection=outcome.objection,
            )
            | {"coverage": coverage_record(outcome.selection, outcome.coverage)}
            | regions_record(outcome.regions)
        ),
        json_path,
        quiet=quiet or reports.takes_stdout,
    )
    _conclude(outcome)


def _document(outcome: pipeline.PartitionOutcome, patterns: tuple[str, ...]) -> Document:
    before, after = outcome.nodes
    return result_document(
        "dpl partition",
        outcome.label,
        outcome.verification,
        ok=outcome.is_success,
        failures=[*outcome.unmet, *check_failure(outcome)],
        notes=outcome.notes,
        facts=[
            ("nodes before", f"{before:,}"),
            ("nodes after", f"{after:,}"),
            ("partitions", f"{len(outcome.partitions):,}"),
        ],
        rules=rule_uses(outcome.counts, outcome.selection.refused),
        findings=broken_rule(
            outcome.rules, outcome.counts, outcome.verification, catalogues=patterns
        ),
    )


def _conclude(outcome: pipeline.PartitionOutcome) -> None:
    if not outcome.is_success:
        answer_no([*outcome.unmet, *check_failure(outcome), whereabouts(outcome)])


def _report(outcome: pipeline.PartitionOutcome, *, verify: bool, verbose: bool) -> Part:
    selection = outcome.selection
    functions = functions_by_rule(outcome.partitions)
    parts: list[Part] = [rule_table(outcome.counts, selection.refused, functions)]
    if verbose:
        parts += listing(selection)
    if outcome.regions is not None:
        parts += [Text(), region_table(outcome.regions)]
    parts += [Text(), summary_line(outcome.nodes, selection)]
    if outcome.coverage is not None:
        parts += [coverage_report(outcome.coverage, verbose=verbose)]
    said = "" if outcome.coverage is None else outcome.coverage.problem
    notes = [note for note in outcome.notes if note != said]
    parts += [Text(f"note: {note}", style="yellow") for note in notes]
    parts += ending(outcome, is_changed=outcome.is_changed, is_verified=verify)
    return Group(*parts)
