"""Models made from scratch: of ONNX text, and of graphs that are made up for rules."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import onnx
import onnx.parser
import onnx.printer
import onnx.shape_inference
from google.protobuf.message import DecodeError

from dplcli.errors import InvalidModelError
from dplcli.ir.types import DTYPE_CODES, dtype_name
from dplcli.onnx_io import infer
from dplcli.onnx_io.contrib import CONTRIB
from dplcli.onnx_io.read import model_from_proto
from dplcli.onnx_io.write import to_proto

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from onnx import ModelProto

    from dplcli.ir import Model


DEFAULT_OPSET = 21
_NO_GRAPH = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]> empty () => () {{}}\n'
_DEFAULT_HEADER = f'<ir_version: 10, opset_import: ["" : {DEFAULT_OPSET}]>\n'


def model_from_text(text: str, label: str) -> Model:
    """Read ONNX text; without a header of its own it is of opset 21.

    Raises:
        InvalidModelError: It is no model; says why.
    """
    header = "" if text.lstrip().startswith("<") else _DEFAULT_HEADER
    return _from_text(header, text, label, "is not a model in ONNX text", is_checked=True)


def functions_from_text(text: str, label: str) -> Model:
    """Read functions in ONNX text, with or without a model before them.

    Raises:
        InvalidModelError: They are no functions; says why.
    """
    header = "" if text.lstrip().startswith("<ir_version") else _NO_GRAPH
    return _from_text(header, text, label, "is not ONNX text", is_checked=False)


_DEEPEST_TEXT = 1000
"""How deep brackets may nest: the parser of onnx is recursive, and ends the process."""


_BRACKET = re.compile(r"[(){}\[\]]")


def _from_text(header: str, text: str, label: str, wrong: str, *, is_checked: bool) -> Model:
    # How deep brackets nest, those in strings and comments included.
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "({[" else -1
        deepest = max(deepest, depth)
    if deepest > _DEEPEST_TEXT:
        raise InvalidModelError(f"{label}: {wrong}: it nests deeper than {_DEEPEST_TEXT:,}")
    try:
        proto = _parsed(header + text)
        if is_checked:
            onnx.checker.check_model(proto)
    except onnx.parser.ParseError as error:
        reason = _said_by_parser(error, header.count("\n"))
        raise InvalidModelError(f"{label}: {wrong}: {reason}") from error
    except (onnx.checker.ValidationError, ValueError, DecodeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidModelError(f"{label}: {wrong}: {reason}") from error
    return model_from_proto(proto, Path(), label)


def _parsed(text: str) -> ModelProto:
    try:
        return onnx.parser.parse_model(text)
    except (IndexError, OverflowError, RuntimeError) as error:  # C++ does not hold a number
        raise ValueError("a number in it is too large") from error


_PARSER_SAYS = re.compile(
    r"\[ParseError at position \(line: (\d+) column: (\d+)\)\]\nError context: (.*)\n(.*)",
    re.DOTALL,
)
_BEFORE, _BEHIND = 40, 20


def _said_by_parser(error: onnx.parser.ParseError, lines_before: int) -> str:
    """Return where and what the parser of onnx objects to; we put lines before the text."""
    said = error.args[0] if error.args else b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    found = _PARSER_SAYS.fullmatch(text)
    if found is None:
        return " ".join(text.split())
    line, column, what = int(found[1]) - lines_before, int(found[2]), found[4]
    near = " ".join(found[3][max(column - _BEFORE, 0) : column + _BEHIND].split())
    return f"line {line}, column {column}, near {near!r}: {' '.join(what.split())}"


_UNFIT = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)


def text_of_model(model: Model) -> str:
    """Return ONNX text that :func:`model_from_text` reads; opset 21 goes without saying."""
    text = onnx.printer.to_text(to_proto(model))
    head, _, rest = text.partition(">\n")
    is_usual = f'"" : {DEFAULT_OPSET}]' in head
    lines = (rest if is_usual else f"{' '.join(head.split())}>\n{rest}").splitlines()
    return "\n".join(line.rstrip() for line in lines)


RunOnce: TypeAlias = "Callable[[bytes, Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]"
"""Runs a model in onnxruntime, which may end a process; gives nothing if it does not run."""


class MadeUpGraph(Protocol):
    """A graph, by names.

    Attributes:
        nodes: Its nodes in topological order, each with an operator, inputs, outputs, attributes.
        inputs: Element type and shape of each input.
        constants: Its initializers.
        outputs: Names of what it returns.
    """

    nodes: list[Any]
    inputs: dict[str, tuple[str, tuple[int, ...]]]
    constants: dict[str, NDArray[Any]]
    outputs: list[str]


def node_types(  # noqa: PLR0913  # what inference takes, and who else to ask
    node: Any,  # noqa: ANN401  # as in MadeUpGraph
    types: Mapping[str, tuple[str, tuple[int, ...]]],
    constants: Mapping[str, NDArray[Any]],
    opset: int,
    run: RunOnce,
    *,
    may_be_empty: bool = False,
) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """Return element type and shape of what a made-up node makes; None if onnx cannot tell.

    What has no elements fits only if it may be empty. Sizes that depend on data are taken for 2.
    Where onnx cannot tell, as of ``com.microsoft``, onnxruntime does.
    """
    if node.domain == CONTRIB:
        return _types_by_runtime(node, types, constants, opset, run)
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        read = {name: types[name] for name in node.inputs if name}
        kinds = {
            name: onnx.helper.make_tensor_type_proto(DTYPE_CODES[dtype], shape)
            for name, (dtype, shape) in read.items()
        }
        data = {n: onnx.numpy_helper.from_array(constants[n], n) for n in read if n in constants}
        inferred = infer.infer_outputs(schema, _proto_of(node), kinds, data, {"": opset}, 10)
    except (*_UNFIT, onnx.defs.SchemaError, RuntimeError, ValueError, TypeError):
        return None
    found = {}
    for name, kind in inferred.items():
        dims = kind.tensor_type.shape.dim
        if not kind.tensor_type.HasField("shape"):
            return _types_by_runtime(node, types, constants, opset, run)
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else 2 for dim in dims)
        if min(shape, default=1) < (not may_be_empty):
            return None
        found[name] = (dtype_name(kind.tensor_type.elem_type), shape)
    return found


def _types_by_runtime(
    node: Any,  # noqa: ANN401  # as in MadeUpGraph
    types: Mapping[str, tuple[str, tuple[int, ...]]],
    constants: Mapping[str, NDArray[Any]],
    opset: int,
    run: RunOnce,
) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """Run one node, fed ones, and return the types of what it gives; None if it does not run."""
    read = {name: types[name] for name in node.inputs if name}
    fed = {
        name: constants.get(name, np.ones(shape, dtype)) for name, (dtype, shape) in read.items()
    }
    proto = _model_of(
        [_proto_of(node)],
        [
            onnx.helper.make_tensor_value_info(name, DTYPE_CODES[dtype], shape)
            for name, (dtype, shape) in read.items()
        ],
        (),
        [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
        opset,
    )
    given = run(proto.SerializeToString(), fed)
    return {name: (str(array.dtype), array.shape) for name, array in given.items()} or None


_MOST_WHOLE = 64
"""How many whole numbers that are computed are known while a graph is made up."""


def whole_values(
    node: Any,  # noqa: ANN401  # as in MadeUpGraph
    types: Mapping[str, tuple[str, tuple[int, ...]]],
    known: Mapping[str, NDArray[Any]],
    opset: int,
) -> dict[str, NDArray[Any]]:
    """Return the whole numbers that a node makes of sizes, and of numbers that are known."""
    made = [types[name] for name in node.outputs if name in types]
    is_of_sizes = node.op_type in {"Shape", "Size"}
    if node.domain or any(dtype not in {"int64", "int32"} for dtype, _ in made):
        return {}
    if any(math.prod(shape) > _MOST_WHOLE for _, shape in made):
        return {}
    if not (is_of_sizes or all(name in known for name in node.inputs if name)):
        return {}
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415  # only to make graphs up

    fed = {
        name: known[name] if name in known else np.zeros(types[name][1], types[name][0])
        for name in node.inputs
        if name
    }
    inputs = [onnx.ValueInfoProto(name=name) for name in fed]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    proto = _model_of([_proto_of(node)], inputs, (), outputs, opset)
    try:
        given = ReferenceEvaluator(proto).run(None, fed)
    except Exception:  # noqa: BLE001  # whatever its implementations raise
        return {}
    return {info.name: np.asarray(array) for info, array in zip(outputs, given, strict=True)}


def _proto_of(node: Any) -> onnx.NodeProto:  # noqa: ANN401  # as in MadeUpGraph
    attributes = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in node.attributes.items()
    }
    return onnx.helper.make_node(
        node.op_type, node.inputs, node.outputs, domain=node.domain, **attributes
    )


def _model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto],
    outputs: Sequence[onnx.ValueInfoProto],
    opset: int,
) -> ModelProto:
    foreign = {node.domain: 1 for node in nodes if node.domain}
    return onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "made_up", inputs, outputs, constants),
        opset_imports=[
            onnx.helper.make_opsetid("", opset),
            *(onnx.helper.make_opsetid(domain, 1) for domain in foreign),
        ],
        ir_version=10,
    )


def _all_types(
    graph: MadeUpGraph, opset: int, run: RunOnce
) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """Return the types of all values, node by node; None if a node fits together with nothing."""
    types = dict(graph.inputs)
    types |= {name: (str(data.dtype), data.shape) for name, data in graph.constants.items()}
    for node in graph.nodes:
        made = node_types(node, types, graph.constants, opset, run, may_be_empty=True)
        if made is None:
            return None
        types |= made
    return types


def build_model(graph: MadeUpGraph, opset: int, run: RunOnce) -> Model | None:
    """Make a model of a made-up graph; None if operators and shapes do not fit together."""
    inputs = [
        onnx.helper.make_tensor_value_info(name, DTYPE_CODES[dtype], shape)
        for name, (dtype, shape) in graph.inputs.items()
    ]
    constants = [onnx.numpy_helper.from_array(a, name) for name, a in graph.constants.items()]
    try:
        nodes = list(map(_proto_of, graph.nodes))
    except (ValueError, TypeError):
        return None  # an attribute that onnx cannot tell the kind of
    outputs = [onnx.ValueInfoProto(name=name) for name in graph.outputs]
    proto = _model_of(nodes, inputs, constants, outputs, opset)
    if any(map(infer.endangers_inference, nodes)):
        return None
    try:
        if any(node.domain for node in graph.nodes):
            raise onnx.shape_inference.InferenceError("onnx knows nothing of it")
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        known = {info.name: info for info in (*inferred.graph.value_info, *inferred.graph.output)}
        returned = (known[name].type for name in graph.outputs if name in known)
        if not all(kind.tensor_type.HasField("shape") for kind in returned):
            raise onnx.shape_inference.InferenceError("onnx infers no shape")
    except _UNFIT:  # node by node then; onnx does not infer through the bodies of all operators
        types = _all_types(graph, opset, run)
        if types is None:
            return None
        known = {
            name: onnx.helper.make_tensor_value_info(name, DTYPE_CODES[dtype], shape)
            for name, (dtype, shape) in types.items()
        }
        made = [name for node in graph.nodes for name in node.outputs if name]
        proto.graph.value_info.extend(known[name] for name in made if name not in graph.outputs)
    if not all(name in known and known[name].HasField("type") for name in graph.outputs):
        return None
    del proto.graph.output[:]
    proto.graph.output.extend(known[name] for name in graph.outputs)
    try:
        onnx.checker.check_model(proto)  # a full check would only infer the same once more
    except _UNFIT:
        return None
    return model_from_proto(proto, Path(), "made up")
