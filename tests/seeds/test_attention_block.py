"""The attention block of seed document 4, "DPL 模式重写": permute, reshape, matmul, softmax.

There a pattern of fourteen nodes is rewritten to one call of ``nn.attention``, which takes lengths
before heads. ONNX's Attention takes heads side by side in the last axis instead, so what is left
are Reshapes, which move no data, and no Transpose at all.
"""

from __future__ import annotations

import pytest

from dplcli.analysis.numbering import same_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.rewrite import rewrite
from tests.support.helpers import (
    check_sound,
    model_from_text,
    print_model,
    proto_from_text,
    shipped_rewrites,
)

HEADER = '<ir_version: 10, opset_import: ["" : 23]>\n'
ROWS = "float[2,64,8,40]"
BLOCK = """
g (%s q, %s k, %s v) => (%s lv72)
<int64[3] merged = {%s, 64, 40}, int64[4] apart = {%s, 8, 64, 40}, float c = {0.15811388194561005}>
{
  lv58 = Transpose <perm = [0, 2, 1, 3]> (q)
  lv59 = Reshape (lv58, merged)
  lv61 = Transpose <perm = [0, 2, 1, 3]> (k)
  lv62 = Reshape (lv61, merged)
  lv64 = Transpose <perm = [0, 2, 1, 3]> (v)
  lv65 = Reshape (lv64, merged)
  lv62_transposed = Transpose <perm = [0, 2, 1]> (lv62)
  lv3_1 = MatMul (lv59, lv62_transposed)
  lv68 = Mul (lv3_1, c)
  lv69 = Softmax <axis = -1> (lv68)
  lv_3 = MatMul (lv69, lv65)
  lv71 = Reshape (lv_3, apart)
  lv72 = Transpose <perm = [0, 2, 1, 3]> (lv71)
}
"""
AFTER = """
g (%s q, %s k, %s v) => (%s lv72)
<int64[3] rows = {0, 0, 320}, int64[4] apart = {0, 0, 8, -1}>
{
  a = Reshape (q, rows)
  b = Reshape (k, rows)
  c = Reshape (v, rows)
  d = Attention <q_num_heads = 8, kv_num_heads = 8> (a, b, c)
  lv72 = Reshape (d, apart)
}
"""


@pytest.mark.parametrize(
    ("batch", "merged"), [pytest.param("2", 16, id="static"), pytest.param("n", -1, id="dynamic")]
)
def test_the_block_becomes_one_attention(batch: str, merged: int) -> None:
    """Fourteen nodes become one operator, and the numbers stay."""
    rows = (ROWS.replace("2,", f"{batch},", 1),) * 4
    before = HEADER + BLOCK % (*rows, merged, 2 if merged > 0 else -1)
    model = model_from_text(before)
    rules = shipped_rewrites("fuse_attention")

    rewrite(model, rules)

    expected = model_from_text(HEADER + AFTER % rows)
    assert same_structure(model, expected), print_model(model)
    if batch == "2":
        check_sound(proto_from_text(before), to_proto(model))
