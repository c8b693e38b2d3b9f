"""Kernels that compute as oneDNN does on a CPU with AMX: bodies whose products are of bfloat16."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import onnx

from dplcli.verify.apart import in_bf16
from dplcli.verify.check import Execution
from dplcli.verify.engines import Session
from dplcli.verify.model import model_of
from dplcli.verify.values import ModelSource
from dplcli.verify.verdict import PartitionRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.verify.values import Feed, Outputs

FAULT = "DPL_TEST_FAULT"
"""Names an operator that is left out of bodies."""


def check(target: str, math: str) -> None:
    """Find them."""
    assert (target, math) == ("dnnl", "bf16")


def open_session(source: ModelSource, level: str) -> RoundingSession:
    """Open a model with them."""
    return RoundingSession(source, level)


class RoundingSession:
    """Stock onnxruntime on rounded bodies."""

    def __init__(self, source: ModelSource, level: str) -> None:
        rounded = in_bf16(source)
        model = model_of(rounded)
        for function in model.functions:
            for node in function.node:
                if node.op_type == os.environ.get(FAULT):
                    node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output))
        content = model.SerializeToString()
        execution = Execution(widens=source.execution.widens)
        rounded = ModelSource(source.path, content, execution=execution)
        self.session = Session(rounded, level)
        self.calls = [node for node in model.graph.node if node.domain == "dnnl"]
        self.runs = 0

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return every output."""
        self.runs += 1
        return self.session.run(feeds)

    def record(self) -> list[PartitionRun]:
        """Return what has become of each partition: all ran."""
        return [
            PartitionRun(call.name, f"dnnl::{call.op_type}", "rounding", runs=self.runs)
            for call in self.calls
        ]

    def profile(self, feeds: Mapping[str, Feed]) -> list[object]:
        """Say nothing of times."""
        self.run(feeds)
        return []
