"""Between ONNX files and the IR."""

from typing import TYPE_CHECKING

from dplcli.lazy import lazy

if TYPE_CHECKING:
    from dplcli.onnx_io.convert import OnnxSchemas
    from dplcli.onnx_io.external_data import (
        EXTERNAL_DATA,
        ExternalData,
        check_external_data,
        data_used,
        external_files,
    )
    from dplcli.onnx_io.infer import check_model, check_sizes, fault_of, open_sizes
    from dplcli.onnx_io.interface import Restated, restate
    from dplcli.onnx_io.opset import AdaptedNode, RaisedOpset, raise_opset
    from dplcli.onnx_io.read import (
        as_written,
        built_again,
        check_imports,
        load_model,
        losses,
        model_from_proto,
        parse_model,
        paused_gc,
        read_model_file,
    )
    from dplcli.onnx_io.strip import STRIPPERS
    from dplcli.onnx_io.write import (
        StagedModel,
        check_destination,
        is_modified,
        staged,
        to_proto,
        written_size,
    )
else:
    __getattr__ = lazy(__name__)
