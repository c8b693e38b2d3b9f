"""A rewrite leaves onnxruntime no more nodes to run than the model did, and the file no larger."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from dplcli import pipeline
from dplcli.settings import RewriteSettings
from tests.corpus.nets import real_model
from tests.support.helpers import proto_from_text, thinned

NAMES = [
    *("pytorch_super_resolution", "qonnx_residual_block", "resnet18-legacy13-keepbn"),
    *("deit-dynamo18", "bert-legacy17", "bert-legacy13-eager", "depth_anything-dynamo18"),
    *("dit-dynamo18", "mamba-legacy17", "t5_encoder-legacy17", "llama_deep-dynamo18-int4"),
    *("qwen3-dynamo23", "gemma2-dynamo20", "sd_unet-legacy17", "trt_loop", "keras_tract_tf2"),
]
WIDTH, HEADS = 8, 2


def optimised(path: Path) -> Counter[str]:
    """Return the operators that are left when onnxruntime has optimised a model."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path.with_suffix(".optimised.onnx"))
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    written = onnx.load(path.with_suffix(".optimised.onnx"))
    return Counter(node.op_type for node in written.graph.node if node.op_type != "Constant")


def rewritten(path: Path, folder: Path) -> Path:
    """Rewrite a model as the README does first."""
    output = folder / "rewritten.onnx"
    settings = RewriteSettings(verify=False)
    pipeline.rewrite(path, settings.but(output=output, patterns=["prepare", "fuse"]))
    return output


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(3, NAMES, first=1))
def test_real_models(tmp_path: Path, name: str) -> None:
    """Dropped biases, joined reshapes and the like do not keep onnxruntime from its own fusions."""
    model = tmp_path / "model.onnx"
    model.write_bytes(real_model(name).read_bytes())
    result = rewritten(model, tmp_path)
    assert optimised(result).total() <= optimised(model).total()
    assert result.stat().st_size <= model.stat().st_size


def layer_norm(x: str, y: str) -> str:
    """Return a layer normalisation in parts, as it was exported up to opset 16."""
    return f"""
        {y}_m = ReduceMean <axes = [-1]> ({x})  {y}_s = Sub ({x}, {y}_m)
        {y}_p = Pow ({y}_s, two)  {y}_v = ReduceMean <axes = [-1]> ({y}_p)
        {y}_e = Add ({y}_v, epsilon)  {y}_r = Sqrt ({y}_e)  {y}_d = Div ({y}_s, {y}_r)
        {y}_g = Mul ({y}_d, ones)  {y} = Add ({y}_g, zeros)"""


def heads(x: str, y: str, perm: str) -> str:
    """Return a projection to heads, to a shape that the model computes."""
    return f"""
        {y}_m = MatMul ({x}, w_{y})  {y}_b = Add ({y}_m, zeros)  {y}_s = Shape ({y}_b)
        {y}_0 = Gather ({y}_s, first)  {y}_f = Unsqueeze <axes = [0]> ({y}_0)
        {y}_1 = Gather ({y}_s, second)  {y}_l = Unsqueeze <axes = [0]> ({y}_1)
        {y}_t = Concat <axis = 0> ({y}_f, {y}_l, heads, size)  {y}_h = Reshape ({y}_b, {y}_t)
        {y} = Transpose <perm = {perm}> ({y}_h)"""


def bert_layer() -> onnx.ModelProto:
    """Return the attention of a BERT as opset 12 has it, its scales ones and its biases zeros."""
    model = proto_from_text(f"""<ir_version: 8, opset_import: ["" : 12]>
    bert (float[b, 16, {WIDTH}] x, int64[b, 16] mask) => (float[b, 16, {WIDTH}] y) {{
        u = Unsqueeze <axes = [1]> (mask)  v = Unsqueeze <axes = [2]> (u)
        f = Cast <to = 1> (v)  n = Sub (one, f)  seen = Mul (n, least)
        {layer_norm("x", "h")} {heads("h", "q", "[0, 2, 1, 3]")} {heads("h", "k", "[0, 2, 3, 1]")}
        {heads("h", "v_", "[0, 2, 1, 3]")}
        s = MatMul (q, k)  d = Div (s, root)  a = Add (d, seen)  p = Softmax <axis = 3> (a)
        c = MatMul (p, v_)  t = Transpose <perm = [0, 2, 1, 3]> (c)  r = Reshape (t, whole)
        o = MatMul (r, w_o)  ob = Add (o, zeros)  z = Add (ob, h) {layer_norm("z", "y")}
    }}""")
    random = np.random.default_rng(0)
    square = (WIDTH, WIDTH)
    data = {
        **{name: random.standard_normal(square, np.float32) for name in ("w_q", "w_k", "w_v_")},
        "w_o": random.standard_normal(square, np.float32),
        "ones": np.ones(WIDTH, np.float32),
        "zeros": np.zeros(WIDTH, np.float32),
        "one": np.float32(1),
        "two": np.float32(2),
        "epsilon": np.float32(1e-12),
        "least": np.float32(-10000),
        "root": np.float32(np.sqrt(WIDTH // HEADS)),
        "first": np.int64(0),
        "second": np.int64(1),
        "whole": np.array([0, 0, WIDTH]),
        "heads": np.array([HEADS]),
        "size": np.array([WIDTH // HEADS]),
    }
    for name, array in data.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def test_attention_of_zero_biases(tmp_path: Path) -> None:
    """Mask, biases, scales and the targets of reshapes are what onnxruntime looks for."""
    model = tmp_path / "model.onnx"
    onnx.save(bert_layer(), model)
    result = rewritten(model, tmp_path)
    left = optimised(model)
    assert left["Attention"] == 1
    assert optimised(result) == left
    assert result.stat().st_size < model.stat().st_size
