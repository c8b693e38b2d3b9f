"""Types by onnx's shape inference, without dragging the weights along."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import onnx
from onnx import GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto

from dplcli.errors import DplError
from dplcli.ir import TensorType
from dplcli.ir.model import is_exact
from dplcli.ir.types import contradicts
from dplcli.onnx_io.attributes import graphs_of
from dplcli.onnx_io.bounded_inference import (
    INFERENCE_ERRORS,
    with_length,
    without_length,
)
from dplcli.onnx_io.exporter import to_proto
from dplcli.onnx_io.function_inference import infer_in_functions
from dplcli.onnx_io.node_inference import NodeInference
from dplcli.onnx_io.stated_types import IN_MEMORY_LIMIT, infer_soundly, settle
from dplcli.onnx_io.types import decode_type

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from dplcli.ir import Graph, Model, Value

_SMALL_TENSOR_BYTES = 1024


def infer_types(model: Model) -> tuple[Mapping[Value, TensorType], str]:
    """Infer the types of a loaded model's values.

    Weights play no part in shape inference, so a copy of the model without them is inferred;
    small tensors stay, because shapes are computed from them. A copy that is still too large for
    one message goes through a file.

    Returns:
        Types that inference found for values of the main graph, of nested graphs and inside
        functions, and a sentence that says why there are not more, or "".
    """
    source = model.source
    if not isinstance(source, ModelProto):
        return {}, ""
    exact = _exact_types(model, {})
    if exact is not None:
        return exact, ""
    types: dict[Value, TensorType] = {}
    try:
        found = infer_soundly(_without_weights(source), has_bodies=bool(model.graph.inner))
    except INFERENCE_ERRORS as error:
        reason = _explain(error)
    else:
        reason = found.problem
        _collect(model.graph, source.graph, found.graph, types)
        if found.believed:
            settle(model, types, found.believed)
        _refute(model, types)
    refuted, in_functions = infer_in_functions(model, types)
    for value, stated in refuted.items():
        model.refute(value, stated, types.get(value))
    return types, reason or in_functions


def _refute(model: Model, types: Mapping[Value, TensorType]) -> None:
    """Note what the model states of its values and is not so."""
    for graph in model.graph.and_inner():
        for value in graph.values.values():
            if value.type_source is None:
                continue
            found = types.get(value)
            if value.is_initializer:
                if type(value.type_source) is TensorType:
                    continue
                tensor = model.codec.tensor(value.initializer_source)
                found = TensorType(tensor.dtype, tensor.shape)
            said = value.stated_type
            stated = value.declared_type if said is None else said.known
            if stated is not None and found is not None and contradicts(stated, found):
                model.refute(value, stated, found)


def inferred_graph(
    source: ModelProto, sizes: Mapping[str, int] | None = None, without: Container[str] = ()
) -> tuple[GraphProto | None, str]:
    """Infer the types of a model's values.

    Args:
        source: The model.
        sizes: Numbers for symbolic dimensions of the inputs, and for ``input:axis``.
        without: Names of values of which nothing that is stated is believed.

    Returns:
        The main graph with its types and without its weights, None if there is none, and why
        there is not more in it, or "". A long vector's length is a symbol in it.
    """
    skeleton = _without_weights(source)
    if sizes:
        _set_sizes(skeleton.graph, sizes)
    try:
        found = infer_soundly(skeleton, without)
    except INFERENCE_ERRORS as error:
        return None, _explain(error)
    return found.graph, found.problem


def infer_types_for_sizes(
    model: Model, sizes: Mapping[str, int]
) -> tuple[dict[Value, TensorType], str]:
    """Infer the types of a loaded model's values, with numbers for symbolic dimensions.

    Args:
        model: The model, as it was loaded.
        sizes: A number per symbol of the inputs, or per ``input:axis``.

    Returns:
        As :func:`infer_types`, inputs included.
    """
    types: dict[Value, TensorType] = {}
    if not isinstance(model.source, ModelProto):
        return types, ""
    given = _inputs_of_sizes(model, sizes)
    exact = _exact_types(model, given)
    if exact is not None:
        return {**given, **exact}, ""
    inferred, reason = inferred_graph(model.source, sizes, _refuted_names(model))
    if inferred is not None:
        _collect(model.graph, model.source.graph, inferred, types)
        _collect_values(model.graph, inferred.input, types)
    return types, reason


def _exact_types(model: Model, given: Mapping[Value, TensorType]) -> dict[Value, TensorType] | None:
    """Infer a model node by node, each kind once, where all sizes are numbers.

    That takes a third of the time of onnx's inference of a whole model, which copies it twice.

    Args:
        model: The model, as it was loaded.
        given: Types of inputs that replace what is declared.

    Returns:
        What nodes make; None at the first output whose type does not follow, for which whoever
        sees the whole model may know more.
    """
    if model.functions or model.graph.inner:
        return None
    known = {value: found for value, found in given.items() if is_exact(found)}
    made: dict[Value, TensorType] = {}
    nodes = NodeInference()
    try:
        for node in model.graph:
            if not all(value is None or _is_typed(value, known) for value in node.inputs):
                return None
            found = nodes.infer(node, known, {})
            if len(found) != len(node.outputs):
                return None
            for value, output in zip(node.outputs, found, strict=True):
                if value is not None and not _is_settled(output, value.declared_type):
                    return None
                if value is not None and output is not None:
                    known[value] = made[value] = output
    except DplError:
        return None  # a constant that cannot be read
    return made


def _is_typed(value: Value, known: dict[Value, TensorType]) -> bool:
    """Tell whether the type of an input is known to the last number; add what is declared."""
    if value in known:
        return True
    if value.is_initializer and type(value.type_source) is not TensorType:
        return False  # a statement may contradict what is stored
    declared = value.declared_type
    if declared is None or declared.dtype is None or not is_exact(declared):
        return False
    known[value] = declared
    return True


def _is_settled(found: TensorType | None, declared: TensorType | None) -> bool:
    """Tell whether a type is known to the last number, and not what a file contradicts."""
    if found is None or found.dtype is None or found.shape is None or not is_exact(found):
        return False
    if declared is None or found == declared:
        return True
    if declared.dtype not in {None, found.dtype}:
        return False
    stated = found.shape if declared.shape is None else declared.shape
    return len(stated) == len(found.shape) and all(
        not isinstance(dim, int) or dim == size
        for dim, size in zip(stated, found.shape, strict=True)
    )


def _inputs_of_sizes(model: Model, sizes: Mapping[str, int]) -> dict[Value, TensorType]:
    """Return the types of the inputs with *sizes* in the place of their symbols."""
    types: dict[Value, TensorType] = {}
    for value in model.graph.inputs:
        declared = value.declared_type
        if declared is None or declared.shape is None or is_exact(declared):
            continue
        shape = tuple(
            dim if isinstance(dim, int) else sizes.get(dim or f"{value.name}:{axis}", dim)
            for axis, dim in enumerate(declared.shape)
        )
        types[value] = TensorType(declared.dtype, shape)
    return types


def _set_sizes(graph: GraphProto, sizes: Mapping[str, int]) -> None:
    """Put numbers in the place of the inputs' symbols; what else is declared stays."""
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            size = sizes.get(dim.dim_param or f"{value.name}:{axis}")
            if size is not None and dim.WhichOneof("value") != "dim_value":
                dim.dim_value = size


def infer_types_anew(model: Model) -> tuple[Mapping[Value, TensorType], str]:
    """Infer the types of a model's values as it is now, edits included.

    Returns:
        As :func:`infer_types`.
    """
    if not isinstance(model.source, ModelProto) or model.source.ByteSize() > IN_MEMORY_LIMIT:
        return {}, ""
    inferred, reason = inferred_graph(to_proto(model), without=_refuted_names(model))
    types: dict[Value, TensorType] = {}
    if inferred is not None:
        _collect_edited(model.graph, inferred, types)
    _, in_functions = infer_in_functions(model, types)
    return types, reason or in_functions


def _refuted_names(model: Model) -> set[str]:
    return {value.name for value in model.refuted}


def _without_weights(source: ModelProto) -> ModelProto:
    """Copy *source*, declaring large initializers as inputs instead of storing them."""
    skeleton = ModelProto(ir_version=source.ir_version)
    skeleton.opset_import.extend(source.opset_import)
    skeleton.functions.extend(source.functions)
    graph = skeleton.graph
    graph.name = source.graph.name
    graph.node.extend(source.graph.node)
    graph.value_info.extend(source.graph.value_info)
    graph.output.extend(source.graph.output)
    graph.input.extend(source.graph.input)
    declared = {value.name for value in source.graph.input}
    large = [tensor for tensor in source.graph.initializer if not _is_small(tensor)]
    graph.initializer.extend(tensor for tensor in source.graph.initializer if _is_small(tensor))
    graph.input.extend(_declare(tensor for tensor in large if tensor.name not in declared))
    graph.input.extend(
        _declaration(s.values.name, s.values.data_type, s.dims)
        for s in source.graph.sparse_initializer
        if s.values.name not in declared
    )
    return skeleton


def _is_small(tensor: TensorProto) -> bool:
    return tensor.data_location != TensorProto.EXTERNAL and tensor.ByteSize() <= _SMALL_TENSOR_BYTES


def _declare(tensors: Iterable[TensorProto]) -> Iterable[ValueInfoProto]:
    for tensor in tensors:
        yield _declaration(tensor.name, tensor.data_type, tensor.dims)


def _declaration(name: str, dtype: int, dims: Sequence[int]) -> ValueInfoProto:
    """Declare a tensor, a long vector by a symbol for its length."""
    return onnx.helper.make_tensor_value_info(name, dtype, without_length(dims))


@lru_cache(maxsize=1024)
def _decoded(encoded: bytes) -> TensorType | None:
    """Read a type; a long vector's length is a number again."""
    found = decode_type(TypeProto.FromString(encoded))
    return None if found is None else with_length(found)


def _collect(
    graph: Graph, source: GraphProto, inferred: GraphProto, types: dict[Value, TensorType]
) -> None:
    _collect_values(graph, (*inferred.value_info, *inferred.output), types)
    by_source = {id(inner.source): inner for node in graph for inner in node.subgraphs.values()}
    if not by_source:
        return
    for before, after in zip(source.node, inferred.node, strict=True):
        for old, new in zip(before.attribute, after.attribute, strict=True):
            inner = by_source.get(id(old.g)) if old.HasField("g") else None
            if inner is not None:
                _collect(inner, old.g, new.g, types)


def _collect_edited(graph: Graph, inferred: GraphProto, types: dict[Value, TensorType]) -> None:
    """Collect types from the graph as it was exported: its nodes are in the same order."""
    _collect_values(graph, (*inferred.value_info, *inferred.output), types)
    if not graph.inner:
        return
    for node, proto in zip(graph, inferred.node, strict=True):
        for name, body in graphs_of(proto) if node.subgraphs else ():
            _collect_edited(node.subgraphs[name], body, types)


def _collect_values(
    graph: Graph, infos: Iterable[ValueInfoProto], types: dict[Value, TensorType]
) -> None:
    for info in infos:
        value = graph.values.get(info.name)
        found = None if value is None else _decoded(info.type.SerializeToString())
        if value is not None and found is not None:
            types[value] = found


def _explain(error: Exception) -> str:
    reason = str(error).strip().splitlines()[-1]
    return f"onnx shape inference failed, only declared types are known: {reason}"
