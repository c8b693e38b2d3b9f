"""Models as text, saved where onnxruntime can find them."""

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

from dplcli.verify import Check
from dplcli.verify.compare import facts_of
from dplcli.verify.inputs import Reference, open_reference
from dplcli.verify.model import Dataflow, read_model
from dplcli.verify.run import Runner

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Return a function that writes ONNX text, or a model, to a file and returns its path."""

    def write(model: str | onnx.ModelProto, name: str = "model") -> Path:
        if isinstance(model, str):
            header = "" if model.lstrip().startswith("<") else HEADER
            model = onnx.parser.parse_model(header + model)
        path = tmp_path / f"{name}.onnx"
        onnx.save(model, str(path))
        return path

    return write


HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def save_away(model: onnx.ModelProto, path: Path, *, data: str = "") -> Path:
    """Write a model whose weights lie in the file *data* beside it, or in a file each."""
    for tensor in model.graph.initializer:  # onnx moves only what stands as bytes
        values = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(
        model,
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=bool(data),
        location=data or None,
        size_threshold=0,
    )
    return path


TOKENS = """g (int64[batch, seq] ids) => (float[batch, 2] y)
<float[4, 2] table = {1.1, 2.39, 3.7, 4.171, 0.5, 6.28, 7.07, 8.313}>
{ e = Gather (table, ids) y = ReduceMean <axes = [1], keepdims = 0> (e) }"""
"""Tokens of which both sizes are free."""


def reference(path: Path, **settings: object) -> Reference:
    """Open a model as the check does."""
    flow = Dataflow(read_model(path))
    return open_reference(
        path,
        flow,
        facts_of(flow),
        Check(**settings),  # type: ignore[arg-type]
        create=lambda source: Runner(source, "disable"),
    )
