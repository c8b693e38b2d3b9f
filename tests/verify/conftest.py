"""Models as text, saved where onnxruntime can find them."""

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

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
