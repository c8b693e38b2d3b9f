"""Types of what calls read, where inference stops at the calls themselves.

What a partition makes is known if its body stands in its place, and what an operator of onnxruntime
makes is known to onnxruntime.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import onnx

from dplcli.errors import DplError
from dplcli.ir.model import called_function
from dplcli.ir.types import TensorType
from dplcli.onnx_io import model_from_proto
from dplcli.onnx_io.infer import ONNX_ERRORS, inlined
from dplcli.verify.engines import output_types
from dplcli.verify.model import model_of
from dplcli.verify.values import RunError

if TYPE_CHECKING:
    from dplcli.ir import Model, Value
    from dplcli.verify.values import ModelSource


def complete_types(model: Model, source: ModelSource) -> None:
    """Note the types of what the calls of the main graph read, as far as they can be found out.

    Args:
        model: The model; what is found is noted there.
        source: The same, to be read once more.
    """
    pending = _open_values(model)
    if not pending:
        return
    proto = model_of(source)
    try:
        twin = model_from_proto(inlined(proto), source.path.parent, source.path.name)
    except (*ONNX_ERRORS, DplError):
        return  # the calls that need to know are refused, and say so
    for value in (value for node in twin.graph for value in node.outputs):
        if value is not None and value.name in pending and (known_type := value.known_type()):
            _note(pending[value.name], known_type)
    pending = _open_values(model)
    if not pending:
        return
    stated = {output.name for output in proto.graph.output}
    asked = [name for name in pending if name not in stated]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked)
    try:
        types = output_types(replace(source, content=proto.SerializeToString()))
    except RunError:
        return
    for name, value in pending.items():
        _note(value, types[name])


def _open_values(model: Model) -> dict[str, Value]:
    values = {}
    for node in model.graph:
        if called_function(node) is None:
            continue
        for value in node.inputs:
            known = None if value is None else value.known_type()
            if value is not None and (known is None or None in known):
                values[value.name] = value
    return values


def _note(value: Value, found: TensorType) -> None:
    old = value.known_type()
    dtype = found.dtype if old is None else old.dtype or found.dtype
    shape = found.shape if old is None else old.shape or found.shape
    value.note_type(TensorType(dtype, shape))
