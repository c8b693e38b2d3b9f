"""Between ONNX files and the IR."""

from dplcli.onnx_io.checker import check_model
from dplcli.onnx_io.exporter import (
    StagedModel,
    check_destination,
    is_modified,
    staged,
    to_proto,
    written_size,
)
from dplcli.onnx_io.external_data import check_external_data, external_files
from dplcli.onnx_io.loader import (
    built_again,
    check_imports,
    load_model,
    model_from_proto,
    paused_gc,
)
from dplcli.onnx_io.model_file import parse_model, read_model_file
from dplcli.onnx_io.opset_raising import AdaptedNode, RaisedOpset, raise_opset
from dplcli.onnx_io.schemas import OnnxSchemas
from dplcli.onnx_io.sized_inference import check_sizes, exact_types, open_sizes

__all__ = [
    "AdaptedNode",
    "OnnxSchemas",
    "RaisedOpset",
    "StagedModel",
    "built_again",
    "check_destination",
    "check_external_data",
    "check_imports",
    "check_model",
    "check_sizes",
    "exact_types",
    "external_files",
    "is_modified",
    "load_model",
    "model_from_proto",
    "open_sizes",
    "parse_model",
    "paused_gc",
    "raise_opset",
    "read_model_file",
    "staged",
    "to_proto",
    "written_size",
]
