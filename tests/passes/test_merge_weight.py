"""Which operators make a region worth a call."""

from __future__ import annotations

import onnx.defs
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from dplcli.ir.operators import HEAVY
from dplcli.passes.merge import is_heavy
from tests.support.helpers import model_from_text

KNOWN = {
    (schema.domain, schema.name) for schema in onnxruntime_pybind11_state.get_all_operator_schema()
}
KNOWN |= {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
TVM = ("Conv", "ConvTranspose", "Gemm", "MatMul", "LayerNormalization", "GlobalAveragePool")
"""What TVM's ``prune_dnnl_subgraphs`` counts, in ONNX's words."""


@pytest.mark.parametrize("op", sorted(HEAVY), ids="::".join)
def test_every_operator_exists(op: tuple[str, str]) -> None:
    """No name in the list is misspelt."""
    assert op in KNOWN


def test_what_tvm_counts_is_there() -> None:
    """And what it does not count is not."""
    assert {("", name) for name in TVM} <= HEAVY
    light = "Relu Add MaxPool Softmax BatchNormalization Clip AveragePool Concat Transpose Constant"
    assert not HEAVY & {("", name) for name in light.split()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("o = Relu (a)", False),
        ("o = MatMul (a, a)", True),
        ("o = own.light (a)", False),
        ("o = own.deep (a)", True),
        ("o = own.MatMul (a)", False),
        ("o = own.unknown (a)", False),
    ],
)
def test_what_is_heavy(body: str, *, expected: bool) -> None:
    """An operator of that name and domain, or a function with one in it, however deep."""
    model = model_from_text(
        f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2,2] a) => (float[2,2] o) {{ {body} }}
        <domain: "own", opset_import: ["" : 17]> light (x) => (y) {{ y = Relu (x) }}
        <domain: "own", opset_import: ["" : 17, "own" : 1]> deep (x) => (y) {{
            h = own.light (x) y = own.inner (h) }}
        <domain: "own", opset_import: ["" : 17]> inner (x) => (y) {{ y = Gemm (x, x) }}
        <domain: "own", opset_import: ["" : 17]> MatMul (x) => (y) {{ y = Relu (x) }}"""
    )
    (node,) = model.graph
    assert is_heavy(node) is expected
