"""Wrong models made on purpose: each kind of change, with onnx alone.

The changes of :data:`KINDS` are mistakes that converters and rewriters make. They are independent
of what ``dpl verify --mutants`` tries. Whether a changed model runs, and whether anybody could see
the change, is for :mod:`benchmarks.verify_power` to find out.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dplcli.onnx_io.infer import ONNX_ERRORS

_ENDLESS = 1e30  # numbers this large stand for infinity: they are left alone
_SMALL = 1e-2  # what is added before a root, and not larger than this, is an epsilon
_EPSILONS = (1e-3, 0.125)
_PERCENT = 1.01

Array: TypeAlias = np.ndarray[Any, Any]
Where: TypeAlias = EllipsisType | tuple[int | EllipsisType, ...]
"""An index of an array."""

Change: TypeAlias = tuple[str, Callable[[], object]]
"""What is changed, in words, and a function that does it."""


# --- the parts of a model -----------------------------------------------------------------------


@dataclass
class Scope:
    """A graph, a body or a function.

    Attributes:
        place: Which of the three.
        nodes: Its nodes, as a field of the model.
        tensors: The constants that can be read there, by name.
        types: The types of its values, as far as they are known.
    """

    place: str
    nodes: Any
    tensors: dict[str, onnx.TensorProto]
    types: Mapping[str, onnx.TypeProto.Tensor]

    def constants(self) -> Iterator[tuple[onnx.NodeProto, int, str]]:
        """Yield each node and slot that reads a constant, and its name."""
        for node in self.nodes:
            for slot, name in enumerate(node.input):
                if name in self.tensors:
                    yield node, slot, name

    def read(self) -> dict[str, onnx.TensorProto]:
        """Return the constants that are read there."""
        return {name: self.tensors[name] for _, _, name in self.constants()}

    def dims(self, name: str) -> list[int | str]:
        """Return the dimensions of a value; none if they are not known."""
        known = self.types.get(name)
        return [] if known is None else [d.dim_param or d.dim_value for d in known.shape.dim]


def scopes_of(model: onnx.ModelProto) -> list[Scope]:
    """Return the main graph, its bodies, and the functions; constants become whole tensors."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except ONNX_ERRORS:  # types are wanted, not needed
        graph = model.graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    types = {info.name: info.type.tensor_type for info in infos}
    found = list(_scopes("graph", model.graph, {}, types))
    for function in model.functions:
        inside = _scopes("function", function, {}, {})
        found += [replace(scope, place="function") for scope in inside]
    return found


def _scopes(
    place: str,
    owner: onnx.GraphProto | onnx.FunctionProto,
    outer: dict[str, onnx.TensorProto],
    types: Mapping[str, onnx.TypeProto.Tensor],
) -> Iterator[Scope]:
    held = outer | {tensor.name: tensor for tensor in getattr(owner, "initializer", ())}
    for node in owner.node:
        for item in node.attribute if node.op_type == "Constant" else ():
            if item.name == "value_float":
                value = numpy_helper.from_array(np.array(item.f, np.float32))
                item.CopyFrom(onnx.helper.make_attribute("value", value))
            if item.name == "value":
                held[node.output[0]] = item.t
    yield Scope(place, owner.node, held, types)
    for node in owner.node:
        for item in node.attribute:
            for body in (*item.graphs, *([item.g] if item.HasField("g") else [])):
                yield from _scopes("body", body, held, types)


def values_of(tensor: onnx.TensorProto) -> Array:
    """Return the values of a constant."""
    return numpy_helper.to_array(tensor)


def put(tensor: onnx.TensorProto, values: Array | float) -> None:
    """Change the values of a constant; one number is for all of them."""
    made = np.broadcast_to(values, tuple(tensor.dims)).astype(values_of(tensor).dtype)
    tensor.CopyFrom(numpy_helper.from_array(made, tensor.name))


def single(tensor: onnx.TensorProto) -> float:
    """Return the value of a float that stands alone, 0 for any other constant."""
    is_one = is_float(tensor) and math.prod(tensor.dims) == 1
    return float(values_of(tensor).reshape(-1)[0]) if is_one else 0.0


def is_float(tensor: onnx.TensorProto) -> bool:
    """Tell whether a constant is of a usual float type."""
    return tensor.data_type in {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE}


# --- mutations: each function yields the changes of one kind that a scope offers ----------------

_THREE = (1, 4, 6), (2, 5, 7)
_TWO = (1, 3), (2, 4)
# The slots of scales and of zero points.
_QUANTISED: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul"), _THREE),
    **dict.fromkeys(("QLinearGlobalAveragePool", "QLinearSigmoid", "QLinearLeakyRelu"), _TWO),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), ((1,), (2,))),
    **dict.fromkeys(("MatMulInteger", "ConvInteger"), ((), (2, 3))),
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulNBits"), ((2,), (3,))),
    "QGemm": ((1, 4, 7), (2, 5, 8)),
    "MatMulIntegerToFloat": ((2, 3), (4, 5)),
    "DynamicQuantizeLSTM": ((8, 10), (9, 11)),
}
# The largest numbers of the types of quantised weights.
_LARGEST: Mapping[int, int] = {
    TensorProto.INT8: 127,
    TensorProto.UINT8: 255,
    TensorProto.INT4: 7,
    TensorProto.UINT4: 15,
}
_MATRIX = 2
_ACTIVATIONS = frozenset(
    {"Relu", "Sigmoid", "Tanh", "Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "Elu"}
    | {"Selu", "Gelu", "FastGelu", "QuickGelu", "Softplus", "Erf", "Swish", "Mish"}
)
_FACTORS = {"Gemm": ("alpha", "beta"), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
# The slots of biases.
_BIAS = {"Conv": 2, "Gemm": 2, "ConvTranspose": 2, "FusedConv": 2, "QLinearConv": 8, "LSTM": 3}


def _slots(scope: Scope, which: int) -> dict[str, onnx.TensorProto]:
    """Return the scales (0) or the zero points (1)."""
    return {
        name: scope.tensors[name]
        for node, slot, name in scope.constants()
        if slot in _QUANTISED.get(node.op_type, ((), ()))[which]
    }


def scale(scope: Scope) -> Iterator[Change]:
    """Change a scale of quantisation by 1 %."""
    for name, tensor in _slots(scope, 0).items():
        yield f"scale {name!r} times 1.01", partial(_enlarge, tensor)


def _enlarge(tensor: onnx.TensorProto) -> None:
    """Multiply by 1.01; integers by a step at least."""
    values = values_of(tensor)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            put(tensor, values * _PERCENT)
        return
    far = np.ceil(np.abs(values.astype(np.float64)) / 100)
    put(tensor, values + np.sign(values) * far)


def zero_point(scope: Scope) -> Iterator[Change]:
    """Move a zero point by a step."""
    for name, tensor in _slots(scope, 1).items():
        if tensor.data_type in _LARGEST:
            yield f"zero point {name!r} one step off", partial(_step, tensor, ...)


def _step(tensor: onnx.TensorProto, where: Where) -> None:
    """Move integers by a step: up, or down from the largest."""
    moved = values_of(tensor).astype(np.int64)
    largest = _LARGEST[tensor.data_type]
    moved[where] += np.where(moved[where] >= largest, -1, 1)
    put(tensor, moved)


def weight_step(scope: Scope) -> Iterator[Change]:
    """Move one quantised weight, or all of a channel, by a step."""
    zeros = _slots(scope, 1)
    for node, _, name in scope.constants():
        tensor = scope.tensors[name]
        rank = len(tensor.dims)
        if tensor.data_type not in _LARGEST or rank < _MATRIX or name in zeros:
            continue
        rng = np.random.default_rng(math.prod(tensor.dims))
        one = tuple(int(rng.integers(size)) for size in tensor.dims)
        is_conv = rank > _MATRIX or node.op_type == "QGemm"
        channel = (one[0], ...) if is_conv else (..., one[-1])
        yield f"weight {name!r} at {list(one)} one step off", partial(_step, tensor, one)
        yield f"weight {name!r}, a channel one step off", partial(_step, tensor, channel)


def epsilon(scope: Scope) -> Iterator[Change]:
    """Change the epsilon of a normalisation, or what is added before a root."""
    rooted = {name for n in scope.nodes if n.op_type in {"Sqrt", "Pow"} for name in n.input}
    for node in scope.nodes:
        if "Normalization" in node.op_type and not node.op_type.startswith("LpNorm"):
            for value in _EPSILONS:
                item = onnx.helper.make_attribute("epsilon", value)
                what = f"{node.op_type} {node.output[0]!r}: epsilon {value:g}"
                yield what, partial(_set_attribute, node, item)
    for node, _, name in scope.constants():
        tensor = scope.tensors[name]
        if node.op_type == "Add" and node.output[0] in rooted and 0 < single(tensor) <= _SMALL:
            for value in _EPSILONS:
                yield f"Add {node.output[0]!r}: epsilon {value:g}", partial(put, tensor, value)


def _set_attribute(node: onnx.NodeProto, item: onnx.AttributeProto) -> None:
    others = [known for known in node.attribute if known.name != item.name]
    del node.attribute[:]
    node.attribute.extend([*others, item])


def axis(scope: Scope) -> Iterator[Change]:
    """Take another axis for Softmax, Concat, ReduceMean and others."""
    for node in scope.nodes:
        rank = len(scope.dims(node.input[0])) if node.input else 0
        for now, change in _axes(scope, node):
            for new in range(rank):
                if now % rank != new:
                    yield f"{node.op_type} {node.output[0]!r}: axis {new}", partial(change, new)


def _axes(scope: Scope, node: onnx.NodeProto) -> Iterator[tuple[int, Callable[[int], object]]]:
    """Yield the only axis of a node, and what changes it."""
    for item in node.attribute:
        if item.name == "axis":
            yield item.i, partial(setattr, item, "i")
        elif item.name == "axes" and len(item.ints) == 1:
            yield item.ints[0], partial(item.ints.__setitem__, 0)
    if node.op_type.startswith("Reduce") and len(node.input) > 1:
        held = scope.tensors.get(node.input[1])
        if held is not None and held.dims == [1]:
            yield int(values_of(held)[0]), partial(put, held)


def perm(scope: Scope) -> Iterator[Change]:
    """Swap two axes of a Transpose that have, as far as is known, the same size."""
    for node in scope.nodes:
        for item in node.attribute:
            if node.op_type != "Transpose" or item.name != "perm":
                continue
            dims = scope.dims(node.input[0]) or [0] * len(item.ints)
            for i, a in enumerate(item.ints):
                for j, b in enumerate(item.ints[:i]):
                    if dims[a] == dims[b] != 1:
                        swapped = list(item.ints)
                        swapped[i], swapped[j] = b, a
                        what = f"Transpose {node.output[0]!r}: perm {swapped}"
                        yield what, partial(_set_ints, item, swapped)


def _set_ints(item: onnx.AttributeProto, values: Sequence[int]) -> None:
    del item.ints[:]
    item.ints.extend(values)


def gelu(scope: Scope) -> Iterator[Change]:
    """Take tanh for erf in a Gelu, or the other way round."""
    for index, node in enumerate(scope.nodes):
        what = f"{node.op_type} {node.output[0]!r}: the other approximation"
        if node.op_type == "Gelu" and node.domain in {"", "ai.onnx"}:
            is_tanh = any(item.s == b"tanh" for item in node.attribute)
            other = onnx.helper.make_attribute("approximate", "none" if is_tanh else "tanh")
            yield what, partial(_set_attribute, node, other)
        elif node.op_type in {"Gelu", "FastGelu"} and len(node.input) == 1:
            other_type = "FastGelu" if node.op_type == "Gelu" else "Gelu"
            yield what, partial(setattr, node, "op_type", other_type)
        elif node.op_type == "Erf":
            yield what, partial(_erf_by_tanh, scope, index)


def _erf_by_tanh(scope: Scope, index: int) -> None:
    """Write tanh(2 / sqrt(pi) * (z + 0.08943 * z ** 3)) for erf(z): Gelu's z is x / sqrt(2)."""
    erf = scope.nodes[index]
    known = scope.types.get(erf.input[0])
    dtype = onnx.helper.tensor_dtype_to_np_dtype(known.elem_type if known else 1)
    name, node = f"{erf.output[0]}_by_tanh", onnx.helper.make_node
    factors = 2 / math.sqrt(math.pi), 2 * 0.044715
    made = [
        *(
            node("Constant", [], [f"{name}{i}"], value=numpy_helper.from_array(np.array(f, dtype)))
            for i, f in enumerate(factors)
        ),
        node("Mul", [erf.input[0], erf.input[0]], [f"{name}_square"]),
        node("Mul", [f"{name}_square", f"{name}1"], [f"{name}_part"]),
        node("Mul", [f"{name}_part", erf.input[0]], [f"{name}_cube"]),
        node("Add", [f"{name}_cube", erf.input[0]], [f"{name}_sum"]),
        node("Mul", [f"{name}_sum", f"{name}0"], [f"{name}_scaled"]),
        node("Tanh", [f"{name}_scaled"], [erf.output[0]]),
    ]
    nodes = [*scope.nodes[:index], *made, *scope.nodes[index + 1 :]]
    del scope.nodes[:]
    scope.nodes.extend(nodes)


def half(scope: Scope) -> Iterator[Change]:
    """Take a float32 weight through float16 and back."""
    for name, tensor in scope.read().items():
        if tensor.data_type == TensorProto.FLOAT and math.prod(tensor.dims) > 1:
            yield f"weight {name!r} through float16", partial(_halve, tensor)


def _halve(tensor: onnx.TensorProto) -> None:
    with np.errstate(over="ignore"):
        put(tensor, values_of(tensor).astype(np.float16))


def scalar(scope: Scope) -> Iterator[Change]:
    """Change a single float by 1 %."""
    scales = _slots(scope, 0)
    for name, tensor in scope.read().items():
        if name not in scales and _SMALL < abs(single(tensor)) < _ENDLESS:
            yield f"constant {name!r} times 1.01", partial(_enlarge, tensor)


def activation(scope: Scope) -> Iterator[Change]:
    """Leave an activation out."""
    for node in scope.nodes:
        if node.op_type in _ACTIVATIONS:
            yield f"{node.op_type} {node.output[0]!r} left out", partial(_leave_out, node)


def _leave_out(node: onnx.NodeProto) -> None:
    node.op_type, node.domain = "Identity", ""
    del node.attribute[:]
    del node.input[1:]


def attribute(scope: Scope) -> Iterator[Change]:
    """Move padding to the other side, dilate a kernel, or change alpha or beta by 1 %."""
    for node in scope.nodes:
        items = {item.name: item for item in node.attribute}
        called = f"{node.op_type} {node.output[0]!r}" if node.output else ""
        if (pads := items.get("pads")) is not None and any(pads.ints):
            count, moved = len(pads.ints) // 2, list(pads.ints)
            step = 1 if moved[count] else -1
            moved[0], moved[count] = moved[0] + step, moved[count] - step
            yield f"{called}: pads {moved}", partial(_set_ints, pads, moved)
        if pads is not None and "dilations" in items and max(items["kernel_shape"].ints) > 1:
            yield f"{called}: dilated", partial(_dilate, items)
        for name in _FACTORS.get(node.op_type, ()):
            value = (items[name].f if name in items else 1.0) * _PERCENT
            item = onnx.helper.make_attribute(name, value)
            yield f"{called}: {name} times 1.01", partial(_set_attribute, node, item)


def _dilate(items: Mapping[str, onnx.AttributeProto]) -> None:
    """Dilate a kernel by one, with as much padding as keeps the size."""
    kernel = [*items["kernel_shape"].ints] * 2
    wider = [pad + (k - 1) // 2 for pad, k in zip(items["pads"].ints, kernel, strict=True)]
    _set_ints(items["pads"], wider)
    _set_ints(items["dilations"], [number + 1 for number in items["dilations"].ints])


def operands(scope: Scope) -> Iterator[Change]:
    """Swap the operands of Sub, Div, MatMul or Pow."""
    for node in scope.nodes:
        if node.op_type in {"Sub", "Div", "MatMul", "Pow"} and node.input[0] != node.input[1]:
            swapped = [node.input[1], node.input[0]]
            what = f"{node.op_type} {node.output[0]!r}: operands swapped"
            yield what, partial(node.input.__setitem__, slice(0, 2), swapped)


def bias(scope: Scope) -> Iterator[Change]:
    """Change a bias by 1 %."""
    for node, slot, name in scope.constants():
        tensor = scope.tensors[name]
        wanted = _BIAS.get(node.op_type, 2 if "Normalization" in node.op_type else None)
        is_long = len(tensor.dims) == 1 < math.prod(tensor.dims)
        is_usual = is_float(tensor) or tensor.data_type == TensorProto.INT32
        if is_usual and is_long and (slot == wanted or node.op_type == "Add"):
            yield f"bias {name!r} times 1.01", partial(_enlarge, tensor)


KINDS: Mapping[str, Callable[[Scope], Iterator[Change]]] = {
    "scale": scale,
    "zero-point": zero_point,
    "weight-step": weight_step,
    "epsilon": epsilon,
    "axis": axis,
    "perm": perm,
    "gelu": gelu,
    "float16": half,
    "scalar": scalar,
    "activation": activation,
    "attribute": attribute,
    "operands": operands,
    "bias": bias,
}
