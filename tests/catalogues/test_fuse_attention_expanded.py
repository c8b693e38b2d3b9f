"""The function bodies of Attention and RotaryEmbedding, as onnx itself writes them out.

onnx comes with a test case for each feature of the operators, and the same with the body in the
operator's place. `fuse_attention` has to find the operator in the body again, attributes, inputs
and all, without anything being folded before; and whatever it makes has to give the numbers that
belong to the case.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dplcli.catalog import read_catalogs
from dplcli.onnx_io import model_from_proto, to_proto
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.language.replacement import RewriteRule

CATALOGUE = Path(__file__).parents[2] / "patterns" / "fuse_attention.yaml"
OPERATORS = {"Attention", "RotaryEmbedding"}

RETURNED = "scores or probabilities are returned: the operator would return a cache beside them"
CACHE_LENGTH = "the mask is computed from the length of the cache that the match would make"
PADDED = "lengths without padding are an input of the operator, and a mask in the body"
WINDOW = "windows are attributes of the operator from opset 25 on, and a mask in the body"

NOT_CLAIMED = {
    "attention_4d_with_qk_matmul": RETURNED,
    "attention_4d_with_qk_matmul_bias": RETURNED,
    "attention_4d_with_qk_matmul_softcap": RETURNED,
    "attention_4d_with_qk_matmul_softmax": RETURNED,
    "attention_4d_with_past_and_present_qk_matmul": RETURNED,
    "attention_4d_with_past_and_present_qk_matmul_bias": RETURNED,
    "attention_4d_with_past_and_present_qk_matmul_bias_3d_mask": RETURNED,
    "attention_4d_with_past_and_present_qk_matmul_bias_4d_mask": RETURNED,
    "attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": RETURNED,
    "attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": RETURNED,
    "attention_3d_with_past_and_present_qk_matmul": RETURNED,
    "attention_3d_with_past_and_present_qk_matmul_bias": RETURNED,
    "attention_3d_with_past_and_present_qk_matmul_softcap": RETURNED,
    "attention_3d_with_past_and_present_qk_matmul_softmax": RETURNED,
    "attention_23_fullymasked_qk_matmul_output_mode3_zero": RETURNED,
    "attention_24_fullymasked_qk_matmul_output_mode3_zero": RETURNED,
    "attention_24_qk_matmul_output_mode3_softmax_precision": RETURNED,
    "attention_4d_causal_with_past_and_present": CACHE_LENGTH,
    "attention_4d_diff_heads_mask4d_padded_kv": PADDED,
    "attention_4d_padded_kv_bf16": PADDED,
    "attention_4d_causal_padded_kv_bf16": PADDED,
    "attention_4d_gqa_causal_nonpad_decode": PADDED,
    "attention_4d_gqa_causal_nonpad_decode_fp16": PADDED,
    "attention_4d_causal_nonpad_continued_prefill": PADDED,
    "attention_4d_causal_nonpad_negative_offset_structural_empty": PADDED,
    "attention_4d_causal_nonpad_attn_mask_composition": PADDED,
    "attention_4d_causal_nonpad_batch_prefill": PADDED,
    "attention_local_window": WINDOW,
    "attention_bidirectional_window": WINDOW,
    "attention_local_window_rank1_boolean_mask": WINDOW,
    "attention_local_window_with_past": WINDOW,
    "attention_local_window_ext_cache_rank3_head_mask": WINDOW,
    "attention_local_window_ext_cache_rank4_batch_mask": WINDOW,
    "attention_local_window_ext_cache_rank2_mask": WINDOW,
    "attention_local_window_ext_cache_float16_mask": WINDOW,
    "attention_3d_local_window": WINDOW,
    "attention_local_window_gqa_rank4_mask": WINDOW,
}
"""Bodies in which the operator is not found, or not with all its attributes, and why."""

LEFT_OUT = {"left_window_size": -1, "right_window_size": -1, "is_causal": 0}
"""What the cases state though it is the default."""


HALF_STEPS = 2e-3
"""Two steps of a float16: kernels round once where the body rounds after each operation."""


class Case(NamedTuple):
    """A model, and inputs with the outputs that belong to them."""

    model: onnx.ModelProto
    data: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float


@cache
def cases() -> dict[str, Case]:
    """Make the cases of both operators; onnx does so when their modules are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node  # noqa: PLC0415  # it takes a second
        from onnx.backend.test.case.node import attention, rotaryembedding  # noqa: F401, PLC0415
    return {
        made.name.removeprefix("test_"): Case(
            made.model,
            [(list(inputs), list(outputs)) for inputs, outputs in made.data_sets or ()],
            made.rtol,
            made.atol,
        )
        for made in node._NodeTestCases  # noqa: SLF001  # onnx collects them there
        if made.model is not None
    }


CASES = sorted(
    name
    for name, case in cases().items()
    if f"{name}_expanded" in cases() and case.model.graph.node[0].op_type in OPERATORS
)


@cache
def rules() -> tuple[RewriteRule, ...]:
    """Read the catalogue."""
    return tuple(read_catalogs([str(CATALOGUE)], SCHEMAS).rewrites)


@cache
def rewritten(name: str) -> onnx.ModelProto:
    """Rewrite the body of a case."""
    model = model_from_proto(cases()[f"{name}_expanded"].model, Path(), name)
    rewrite(model, rules())
    return to_proto(model)


def test_every_case_is_known() -> None:
    """The list of what is not claimed names cases that exist."""
    assert len(CASES) > 100
    assert set(CASES) >= NOT_CLAIMED.keys()


@pytest.mark.parametrize("name", [n for n in CASES if n not in NOT_CLAIMED])
def test_the_operator_is_found_in_its_body(name: str) -> None:
    """One node is left: the operator, with the inputs and attributes that the case has."""
    expected = cases()[name].model.graph.node[0]

    nodes, copies = _what_is_read(rewritten(name).graph)

    assert [node.op_type for node in nodes] == [expected.op_type]
    assert [_behind(copies, value) for value in nodes[0].input] == list(expected.input)
    assert _attributes(nodes[0]) == _attributes(expected)


@pytest.mark.parametrize("name", NOT_CLAIMED)
def test_what_is_not_claimed_is_not_found(name: str) -> None:
    """The list of what is not claimed is no longer than it has to be."""
    expected = cases()[name].model.graph.node[0]

    nodes, _ = _what_is_read(rewritten(name).graph)

    assert [node.op_type for node in nodes] != [expected.op_type]


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_the_case_come_out(name: str) -> None:
    """Claimed or not, what is made of the body gives what belongs to the case."""
    case = cases()[f"{name}_expanded"]
    assert case.data
    for inputs, outputs in case.data:
        found = _run(rewritten(name), inputs)
        for value, wanted in zip(found, outputs, strict=True):
            is_half = np.asarray(wanted).dtype.itemsize < np.dtype(np.float32).itemsize
            np.testing.assert_allclose(
                np.asarray(value, np.float64),
                np.asarray(wanted, np.float64),
                rtol=max(case.rtol, HALF_STEPS) if is_half else case.rtol,
                atol=case.atol,
            )


def _what_is_read(graph: onnx.GraphProto) -> tuple[list[onnx.NodeProto], dict[str, str]]:
    """Return the nodes that outputs depend on, and which values are copies of which.

    The bodies have nodes that nobody reads, and copies.
    """
    needed = {output.name for output in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    copies = {node.output[0]: node.input[0] for node in nodes if node.op_type == "Identity"}
    return [node for node in reversed(nodes) if node.op_type != "Identity"], copies


def _behind(copies: dict[str, str], value: str) -> str:
    while value in copies:
        value = copies[value]
    return value


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes that are no defaults; numbers to seven digits."""
    found = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in found.items()
        if LEFT_OUT.get(name) != value
    }


def _run(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Run a model in onnxruntime; in onnx where that lacks an opset or a kernel."""
    feeds = dict(zip([item.name for item in model.graph.input], inputs, strict=True))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, feeds))
    except Exception:  # noqa: BLE001  # of many kinds
        return list(ReferenceEvaluator(model).run(None, feeds))
