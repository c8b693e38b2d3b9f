"""Changes of a model that change no result, whatever it is fed: they say nothing about a check."""

from collections import defaultdict
from collections.abc import Mapping

import onnx
from google.protobuf.message import EncodeError

from dplcli.onnx_io.bounded_inference import INFERENCE_ERRORS, infer_shapes

_SPATIAL = 2
_MOVES = frozenset({"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity"})
_SCALES = frozenset({"Mul", "Div"})
_ATTENTION = frozenset({"Attention", "MultiHeadAttention"})
_ADDS = frozenset({"Add", "Gemm"})

Shapes = Mapping[str, tuple[int, ...]]


class Idleness:
    """What of a model cannot matter.

    Args:
        model: The model.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        """Look at its main graph."""
        self._shapes = _known_shapes(model)
        self._ends = {f.name: f.node[-1].op_type for f in model.functions if f.node}
        self._spreading = {"ConvTranspose"} | {
            function.name
            for function in model.functions
            if any(node.op_type == "ConvTranspose" for node in function.node)
        }
        self._readers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        for node in model.graph.node:
            for slot, name in enumerate(node.input):
                self._readers[name].append((node, slot))

    def is_idle_attribute(self, node: onnx.NodeProto, item: onnx.AttributeProto) -> bool:
        """Tell whether an attribute cannot matter at all."""
        if item.name == "beta":
            return len([given for given in node.input if given]) < len(("A", "B", "C"))
        axes = self.idle_axes(node, item.name)
        return bool(axes) and len(axes) >= len(item.ints)

    def idle_axes(self, node: onnx.NodeProto, name: str) -> frozenset[int]:
        """Return the axes along which an attribute of a window cannot matter.

        Dilations do not where the kernel has one element. Strides do not where the result has one,
        or, of a transposed convolution, where the input has.
        """
        extents: list[tuple[int, ...]] = []
        if name == "dilations":
            extents = [tuple(item.ints) for item in node.attribute if item.name == "kernel_shape"]
            extents += self._extents(node.input[1:2])
        if name == "strides":
            side = node.input if node.op_type in self._spreading else node.output
            extents = self._extents(side[:1])
        return frozenset(
            axis for extent in extents for axis, size in enumerate(extent) if size == 1
        )

    def is_key_bias(self, weight: str) -> bool:
        """Tell whether a weight is added to the keys of attention, and to nothing else.

        It adds the same to the scores of all keys of a query, which Softmax does not see.
        """
        reader = self._only_reader(weight)
        if reader is None or len(self._shapes.get(weight, ())) != 1:
            return False
        node, slot = reader
        if slot == 0 or slot != len(node.input) - 1:
            return False
        if self._ends.get(node.op_type, node.op_type) not in _ADDS:
            return False
        return self._scores_keys(node.output[0])

    def _scores_keys(self, name: str) -> bool:
        """Tell whether a value is what attention compares its queries with."""
        while (reader := self._only_reader(name)) is not None:
            node, slot = reader
            if node.op_type in _ATTENTION:
                return slot == 1 and not any(item.name == "softcap" for item in node.attribute)
            if node.op_type == "MatMul":
                return slot == 1 and self._becomes_a_share(node.output[0])
            is_scaled = node.op_type in _SCALES and slot == 0 and self._is_scalar(node.input[1])
            if slot or not (is_scaled or node.op_type in _MOVES):
                return False
            name = node.output[0]
        return False

    def _becomes_a_share(self, name: str) -> bool:
        """Tell whether scores go through Softmax, with a factor or a mask before it at the most."""
        while (reader := self._only_reader(name)) is not None:
            node, slot = reader
            if node.op_type == "Softmax":
                return all(item.i == -1 for item in node.attribute if item.name == "axis")
            is_scaled = node.op_type in _SCALES and slot == 0 and self._is_scalar(node.input[1])
            if not (is_scaled or node.op_type == "Add"):
                return False
            name = node.output[0]
        return False

    def _only_reader(self, name: str) -> tuple[onnx.NodeProto, int] | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 else None

    def _is_scalar(self, name: str) -> bool:
        return set(self._shapes.get(name, (0,))) <= {1}

    def _extents(self, names: list[str]) -> list[tuple[int, ...]]:
        return [self._shapes[name][_SPATIAL:] for name in names if name in self._shapes]


def _known_shapes(model: onnx.ModelProto) -> Shapes:
    """Return the shapes of values of the main graph; a dimension that is not a number is 0."""
    try:
        graph = infer_shapes(model)[0].graph
    except (*INFERENCE_ERRORS, EncodeError):
        graph = model.graph  # too large, or not well typed: what is stated has to do
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            shapes.setdefault(info.name, tuple(dim.dim_value for dim in dims))
    return shapes
