"""What is rewritten on the table is as if it were on objects: bytes, report and record."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dplcli import pipeline
from dplcli.errors import DplError
from dplcli.onnx_io.read import TableRows
from dplcli.passes import replacing
from dplcli.pipeline import rewriting
from dplcli.report.rewrite import rewrite_document
from tests.passes.test_outlining import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from dplcli.dpl import RewriteRule
    from dplcli.passes.replacing import EditableRows, RowRewriting

    Case = tuple[onnx.ModelProto, list[RewriteRule]]


class Run:
    """One rewrite of a model: the file, what is said of it, and whether it was on the table."""

    def __init__(self, data: bytes, rules: Sequence[RewriteRule], *, on_table: bool) -> None:
        """Rewrite *data*."""
        self.was_on_table = False
        replace = replacing.replace_rows

        def spy(rows: EditableRows, rules: Sequence[RewriteRule]) -> RowRewriting | None:
            found = replace(rows, rules) if on_table else None
            if found is not None:
                self.was_on_table = True
                assert isinstance(rows, TableRows)
                rows.table.check()
            return found

        with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
            patch.setattr(rewriting, "replace_rows", spy)
            patch.setattr(rewriting, "MANY_NODES", 0)
            patch.setattr(rewriting, "QUICKLY_CHECKED", -1)
            patch.setattr("dplcli.ir.model.QUICKLY_CHECKED", -1)
            model, output = Path(name) / "m.onnx", Path(name) / "result.onnx"
            model.write_bytes(data)
            self.error = ""
            try:
                outcome = pipeline.rewrite(
                    model,
                    output=output,
                    rules=rules,
                    settings=pipeline.RewriteSettings(verify=False, max_growth=1e9),
                )
            except DplError as error:
                self.error = str(error)
                return
            self.data = output.read_bytes()
            where = str(Path(name).resolve())
            documents = [
                rewrite_document("x", outcome, catalogs=(), is_verified=False, verbose=verbose)
                for verbose in (False, True)
            ]
            self.texts = [repr(shown(document.text)).replace(where, "") for document in documents]
            self.record = repr(documents[0].record()).replace(where, "")
            self.count = len(outcome.applications)
            self.refused = [(item.rule.name, item.stage, item.reason) for item in outcome.refused]


def same(data: bytes, rules: Sequence[RewriteRule]) -> Run:
    """Rewrite a model both ways; return the run on the table, if that decided it."""
    found = Run(data, rules, on_table=True)
    expected = Run(data, rules, on_table=False)
    assert found.error == expected.error
    if not found.error:
        assert found.refused == expected.refused
        assert found.texts == expected.texts
        assert found.record == expected.record
        assert found.data == expected.data
    return found
