"""Shapes as numbers: of inputs of given sizes, and of all that is computed from them.

onnx's inference of a whole model follows some of the arithmetic that exporters do with shapes, and
gives up where it meets the rest (Div, Where, Range, …). Here the nodes are gone through in order:
what is computed from shapes and constants alone is evaluated, and what onnx left open is inferred
anew, node by node, with these values at hand.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.errors import UsageError
from dplcli.ir import TensorType
from dplcli.ir.flops import flops
from dplcli.ir.model import is_exact
from dplcli.onnx_io.evaluation import evaluate
from dplcli.onnx_io.function_inference import infer_in_functions
from dplcli.onnx_io.node_inference import NodeInference
from dplcli.onnx_io.shape_inference import infer_types_for_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from dplcli.ir import Graph, Model, Node, Shape, Value

_SHORT = 1024
"""Most elements of a value that is evaluated."""

_MOST_WORK = 1_000_000
"""Most operations for a value that is evaluated: a window may be huge, and a sum run forever."""

_OPAQUE = frozenset({"If", "Loop", "Scan"})

_BOUNDED = frozenset({"Compress", "NonZero", "Unique"})
"""Operators whose result is as short as what they read, though no inference says so."""


def exact_types(model: Model, sizes: Mapping[str, int]) -> tuple[Mapping[Value, TensorType], str]:
    """Find the types of a loaded model's values, for inputs of given sizes.

    Args:
        model: The model, as it was loaded.
        sizes: A number per symbolic dimension of the inputs, or per ``input:axis``.

    Returns:
        What is known of the values of the main graph, of graphs inside it and of functions, and
        why there is not more ("" if nothing went wrong).

    Raises:
        UsageError: No input has such a dimension.
    """
    check_sizes(model, sizes)
    types: dict[Value, TensorType] = {}
    problem = ""
    if sizes:
        types, problem = infer_types_for_sizes(model, sizes)
    elif not _are_exact(model, types):
        types = dict(model.inferred_types())
    walk = _Walk(types)
    if model.functions or not _are_exact(model, types):
        for graph in model.graph.and_inner():
            walk.go_through(graph)
    _, in_functions = infer_in_functions(model, types)
    for function in model.functions.values():
        for graph in function.body.and_inner():
            walk.go_through(node for node in graph if not node.has_references)
    return types, problem or in_functions


def _are_exact(model: Model, types: Mapping[Value, TensorType]) -> bool:
    """Tell whether all is known outside functions; then nothing is to be inferred."""
    for graph in model.graph.and_inner():
        for node in graph:
            for value in node.outputs:
                if value is None:
                    continue
                known = types.get(value) or value.declared_type
                if known is None or not is_exact(known):
                    return False
    return True


def open_sizes(model: Model) -> list[str]:
    """Name the dimensions of the inputs that the model leaves open: by symbol, or input:axis."""
    found: dict[str, None] = {}
    for value in model.graph.inputs:
        known = None if value.is_initializer else value.declared_type
        for axis, dim in enumerate(known.shape or () if known is not None else ()):
            if not isinstance(dim, int):
                found[dim or f"{value.name}:{axis}"] = None
    return list(found)


def check_sizes(model: Model, sizes: Mapping[str, int]) -> None:
    """Refuse sizes of what no input has.

    Raises:
        UsageError: No input has such a dimension.
    """
    known = open_sizes(model)
    for name in sizes:
        if name not in known and not _has_open_rank(model.graph, name):
            there = ", ".join(sorted(known)) or "none"
            raise UsageError(f"no input has a dimension {name!r}", hint=f"there are: {there}")


def _has_open_rank(graph: Graph, name: str) -> bool:
    """Tell whether *name* is an axis of an input whose rank is not declared."""
    value = graph.values.get(name.rpartition(":")[0])
    if value is None or not value.is_graph_input:
        return False
    return value.declared_type is None or value.declared_type.shape is None


class _Walk:
    """Goes through graphs, and adds to *types*.

    Args:
        types: What is known; nested graphs see what the graphs round them found.
    """

    def __init__(self, types: dict[Value, TensorType]) -> None:
        self.types = types
        self.data: dict[Value, NDArray[Any]] = {}
        self._nodes = NodeInference()

    def go_through(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node.op_type in _OPAQUE:
                continue
            try:
                self._infer(node)
                self._evaluate(node)
            except Exception:  # noqa: BLE001, S112  # a broken node: what it makes stays unknown
                continue

    def _infer(self, node: Node) -> None:
        """Infer what *node* makes, unless it is known, as far as its inputs are."""
        if all(value is None or self._is_exact(value) for value in node.outputs):
            return
        if not all(value is None or self._is_known(value) for value in node.inputs):
            return
        made = self._nodes.infer(node, self.types, self.data)
        for value, found in zip(node.outputs, made, strict=False):
            if value is not None and found is not None and found.shape is not None:
                self.types[value] = found

    def _evaluate(self, node: Node) -> None:
        """Compute a short value that depends on shapes and constants only."""
        if node.op_type == "Shape" and not node.domain:
            self._evaluate_shape(node)
            return
        inputs = []
        for value in node.inputs:
            array = None if value is None else self._value(value)
            if value is not None and array is None:
                return
            inputs.append(array)
        is_bounded = node.op_type in _BOUNDED or all(map(self._is_short, node.outputs))
        if not inputs or not is_bounded or not self._is_cheap(node):
            return
        arrays = evaluate(node, inputs)
        for value, made in zip(node.outputs, arrays or (), strict=False):
            if value is not None and made.size <= _SHORT:
                known = self._type(value)
                dtype = made.dtype.name if known is None else known.dtype
                self.data[value] = made
                self.types[value] = TensorType(dtype, made.shape)

    def _evaluate_shape(self, node: Node) -> None:
        read, made = node.inputs[0], node.outputs[0]
        known = None if read is None else self._type(read)
        if made is None or known is None or known.shape is None or not is_exact(known):
            return
        stated = [node.attributes.get(name) for name in ("start", "end")]
        ends = [None if end is None else end.value for end in stated]
        part = slice(*(end if isinstance(end, int) else None for end in ends))
        self.data[made] = np.array(known.shape[part], dtype=np.int64)

    def _is_cheap(self, node: Node) -> bool:
        """Tell whether *node* is not known to compute much though what it makes is short."""
        cost = flops(node, self._shape)
        return cost is None or cost <= _MOST_WORK

    def _shape(self, value: Value) -> Shape | None:
        known = self._type(value)
        return None if known is None else known.shape

    def _value(self, value: Value) -> NDArray[Any] | None:
        known = self.data.get(value)
        if known is not None:
            return known
        tensor = value.constant if value.is_constant else None
        if tensor is None or tensor.is_external or tensor.size > _SHORT:
            return None
        array = np.asarray(tensor.numpy())
        self.data[value] = array
        return array

    def _type(self, value: Value) -> TensorType | None:
        return self.types.get(value) or value.declared_type

    def _is_exact(self, value: Value) -> bool:
        known = self._type(value)
        return known is not None and is_exact(known)

    def _is_known(self, value: Value) -> bool:
        known = self._type(value)
        return known is not None and known.shape is not None

    def _is_short(self, value: Value | None) -> bool:
        """Tell whether a value is known to be short."""
        known = None if value is None else self._type(value)
        if known is None or known.shape is None:
            return False
        sizes = [dim for dim in known.shape if isinstance(dim, int)]
        return len(sizes) == len(known.shape) and prod(sizes) <= _SHORT
