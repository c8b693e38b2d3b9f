"""Between ONNX files and the IR."""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.onnx_io.convert import OnnxSchemas
    from dplcli.onnx_io.external_data import check_external_data, external_files
    from dplcli.onnx_io.infer import check_model, check_sizes, open_sizes
    from dplcli.onnx_io.opset import AdaptedNode, RaisedOpset, raise_opset
    from dplcli.onnx_io.read import (
        built_again,
        check_imports,
        load_model,
        model_from_proto,
        parse_model,
        paused_gc,
        read_model_file,
    )
    from dplcli.onnx_io.write import (
        StagedModel,
        check_destination,
        is_modified,
        staged,
        to_proto,
        written_size,
    )
else:
    __getattr__ = lazy(
        __name__,
        {
            "AdaptedNode": "dplcli.onnx_io.opset",
            "OnnxSchemas": "dplcli.onnx_io.convert",
            "RaisedOpset": "dplcli.onnx_io.opset",
            "StagedModel": "dplcli.onnx_io.write",
            "built_again": "dplcli.onnx_io.read",
            "check_destination": "dplcli.onnx_io.write",
            "check_external_data": "dplcli.onnx_io.external_data",
            "check_imports": "dplcli.onnx_io.read",
            "check_model": "dplcli.onnx_io.infer",
            "check_sizes": "dplcli.onnx_io.infer",
            "external_files": "dplcli.onnx_io.external_data",
            "is_modified": "dplcli.onnx_io.write",
            "load_model": "dplcli.onnx_io.read",
            "model_from_proto": "dplcli.onnx_io.read",
            "open_sizes": "dplcli.onnx_io.infer",
            "parse_model": "dplcli.onnx_io.read",
            "paused_gc": "dplcli.onnx_io.read",
            "raise_opset": "dplcli.onnx_io.opset",
            "read_model_file": "dplcli.onnx_io.read",
            "staged": "dplcli.onnx_io.write",
            "to_proto": "dplcli.onnx_io.write",
            "written_size": "dplcli.onnx_io.write",
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
