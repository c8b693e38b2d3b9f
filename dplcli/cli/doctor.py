"""``dpl doctor``."""

from __future__ import annotations

import click

from dplcli import pipeline
from dplcli.cli import options
from dplcli.report.inspect import diagnosis_document


@click.command("doctor", cls=options.GroupedCommand)
@options.printing_options()
def command(*, printing: options.Printing) -> None:
    """Look at what dpl runs on: versions, execution providers, extras, catalogues.

    Exit code 1 if something is wrong. Paste the output into a report of a fault.
    """
    printing.check()
    printing.conclude(diagnosis_document(pipeline.diagnose()))
