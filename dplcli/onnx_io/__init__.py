"""Between ONNX files and the IR."""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
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
else:
    __getattr__ = lazy(
        __name__,
        {
            "check_model": "dplcli.onnx_io.checker",
            "StagedModel": "dplcli.onnx_io.exporter",
            "check_destination": "dplcli.onnx_io.exporter",
            "is_modified": "dplcli.onnx_io.exporter",
            "staged": "dplcli.onnx_io.exporter",
            "to_proto": "dplcli.onnx_io.exporter",
            "written_size": "dplcli.onnx_io.exporter",
            "check_external_data": "dplcli.onnx_io.external_data",
            "external_files": "dplcli.onnx_io.external_data",
            "built_again": "dplcli.onnx_io.loader",
            "check_imports": "dplcli.onnx_io.loader",
            "load_model": "dplcli.onnx_io.loader",
            "model_from_proto": "dplcli.onnx_io.loader",
            "paused_gc": "dplcli.onnx_io.loader",
            "parse_model": "dplcli.onnx_io.model_file",
            "read_model_file": "dplcli.onnx_io.model_file",
            "AdaptedNode": "dplcli.onnx_io.opset_raising",
            "RaisedOpset": "dplcli.onnx_io.opset_raising",
            "raise_opset": "dplcli.onnx_io.opset_raising",
            "OnnxSchemas": "dplcli.onnx_io.schemas",
            "check_sizes": "dplcli.onnx_io.sized_inference",
            "exact_types": "dplcli.onnx_io.sized_inference",
            "open_sizes": "dplcli.onnx_io.sized_inference",
        },
    )

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
