"""Random models whose types are known all along: valid, and runnable in onnxruntime."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import ArrayLike

    Shape = tuple[int, ...]

UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "Softplus", "Identity", "LeakyRelu")
BINARY = ("Add", "Mul", "Sub", "Max", "Min")
CONSTANTS = (0.0, 1.0, -1.0, 0.5, 2.0)
LARGEST = 4096
"""Elements of a value; of larger ones nothing is made."""


class Typed(NamedTuple):
    """A value: its name and its shape; all are of float32."""

    name: str
    shape: Shape


class Net:
    """A model that grows.

    Args:
        draw: Draws from a strategy.
        opset: The version of the standard operators.
    """

    def __init__(self, draw: st.DrawFn, opset: int) -> None:
        self.draw = draw
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: list[Typed] = []
        self.count = 0

    def name(self) -> str:
        """Return a name that is not taken."""
        self.count += 1
        return f"v{self.count}"

    def one_of(self, items: Sequence[Any]) -> Any:  # noqa: ANN401  # what the items are
        """Draw one of *items*; the first ones are simpler."""
        return self.draw(st.sampled_from(list(items)))

    def chance(self, one_in: int) -> bool:
        """Draw true once in so many times."""
        return not self.draw(st.integers(0, one_in - 1).map(lambda n: one_in - 1 - n))

    def value(self, fits: Callable[[Shape], bool] = lambda _: True) -> Typed | None:
        """Draw a value of a shape that fits, later ones more often; None if there is none."""
        found = [value for value in self.values if fits(value.shape)]
        if not found:
            return None
        return found[-1] if self.chance(2) else self.draw(st.sampled_from(found))

    def constant(self, data: ArrayLike, dtype: str = "float32") -> str:
        """Add a constant: an initializer, or a node."""
        name = self.name()
        tensor = numpy_helper.from_array(np.asarray(data, dtype), name)
        if self.chance(4):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        return name

    def weight(self, *shape: int) -> str:
        """Add a weight of small numbers that are neither 0 nor alike."""
        numbers = np.arange(prod(shape)) + self.draw(st.integers(1, 5))
        return self.constant(np.sin(numbers).reshape(shape) * 0.7)

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        **attributes: Any,  # noqa: ANN401  # as onnx takes them
    ) -> Typed:
        """Add a node of one output."""
        made = Typed(self.name(), tuple(shape))
        name = "" if self.chance(8) else f"n_{made.name}"
        self.nodes.append(helper.make_node(op_type, inputs, [made.name], name, **attributes))
        if prod(made.shape) <= LARGEST:
            self.values.append(made)
        return made


def _activated(net: Net, value: Typed) -> None:
    match net.draw(st.integers(0, 4)):
        case 0:
            net.add("Relu", [value.name], value.shape)
        case 1:
            bounds = [net.constant(0.0), net.constant(6.0)]
            net.add("Clip", [value.name, *bounds], value.shape)
        case 2:
            gate = net.add("Sigmoid", [value.name], value.shape)
            net.add("Mul", [value.name, gate.name], value.shape)
        case 3:
            scaled = net.add("Div", [value.name, net.constant(2**0.5)], value.shape)
            bent = net.add("Erf", [scaled.name], value.shape)
            more = net.add("Add", [bent.name, net.constant(1.0)], value.shape)
            twice = net.add("Mul", [value.name, more.name], value.shape)
            net.add("Mul", [twice.name, net.constant(0.5)], value.shape)
        case _:
            pass


def _unary(net: Net) -> None:
    if value := net.value():
        net.add(str(net.one_of(UNARY)), [value.name], value.shape)


def _binary(net: Net) -> None:
    if value := net.value():
        cut = net.draw(st.integers(0, len(value.shape)))
        shape = [1 if net.chance(3) else dim for dim in value.shape[cut:]]
        other = net.weight(*shape) if net.chance(2) else net.constant(net.one_of(CONSTANTS))
        reads = [value.name, other]
        net.add(str(net.one_of(BINARY)), reads[::-1] if net.chance(2) else reads, value.shape)


def _joined(net: Net) -> None:
    first = net.value()
    if first and (second := net.value(lambda shape: shape == first.shape)):
        net.add(str(net.one_of(BINARY)), [first.name, second.name], first.shape)


def _conv(net: Net) -> None:
    value = net.value(lambda shape: len(shape) == 4 and min(shape[2:]) >= 3)  # NCHW
    if value is None:
        return
    batch, channels, *sizes = value.shape
    made, kernel, pad = (net.draw(st.sampled_from(c)) for c in ((4, 2, 3), (1, 3), (0, 1)))
    stride = 1 + net.chance(3)
    inputs = [value.name, net.weight(made, channels, kernel, kernel)]
    inputs += [net.weight(made)] if net.chance(2) else []
    shape = [batch, made, *[(size + 2 * pad - kernel) // stride + 1 for size in sizes]]
    attributes = {"pads": [pad] * 4, "strides": [stride] * 2}
    out = net.add("Conv", inputs, shape, **attributes)
    if net.chance(2):
        moments = [net.weight(made), net.weight(made), net.weight(made)]
        variance = net.constant(np.linspace(0.5, 1.5, made))
        out = net.add("BatchNormalization", [out.name, *moments, variance], shape)
    if net.chance(3):
        out = net.add("Add", [out.name, net.weight(made, 1, 1)], shape)
    if net.chance(3) and (other := net.value(lambda other: other == out.shape)):
        out = net.add("Add", [out.name, other.name], shape)
    _activated(net, out)


def _linear(net: Net) -> None:
    value = net.value(lambda shape: len(shape) >= 2)  # a matrix at least
    if value is None:
        return
    rows, made = value.shape[-1], net.draw(st.sampled_from((4, 2, 3)))
    shape = (*value.shape[:-1], made)
    if len(shape) == 2 and net.chance(2):  # a matrix
        inputs = [value.name, net.weight(made, rows), net.weight(made)]
        out = net.add("Gemm", inputs, shape, transB=1, alpha=net.one_of((1.0, 0.5)))
    else:
        out = net.add("MatMul", [value.name, net.weight(rows, made)], shape)
        if net.chance(2):
            out = net.add("Add", [out.name, net.weight(made)], shape)
    _activated(net, out)


def _normalized(net: Net) -> None:
    value = net.value(lambda shape: len(shape) >= 2 and shape[-1] > 1)  # rows
    if value is None:
        return
    shape, few = value.shape, (*value.shape[:-1], 1)

    def mean(of: str) -> str:
        if net.opset >= 18:  # axes became an input
            return net.add("ReduceMean", [of, net.constant([-1], "int64")], few).name
        return net.add("ReduceMean", [of], few, axes=[-1]).name

    away = net.add("Sub", [value.name, mean(value.name)], shape)
    square = net.add("Pow", [away.name, net.constant(2.0)], shape)
    spread = net.add("Add", [mean(square.name), net.constant(1e-3)], few)
    root = net.add("Sqrt", [spread.name], few)
    out = net.add("Div", [away.name, root.name], shape)
    out = net.add("Mul", [out.name, net.weight(shape[-1])], shape)
    net.add("Add", [out.name, net.weight(shape[-1])], shape)


def _softmax(net: Net) -> None:
    if value := net.value(bool):
        net.add("Softmax", [value.name], value.shape, axis=net.one_of((-1, 0)))


def _transposed(net: Net) -> None:
    if value := net.value(lambda shape: len(shape) > 1):
        order = net.draw(st.permutations(range(len(value.shape))))
        shape = [value.shape[axis] for axis in order]
        net.add("Transpose", [value.name], shape, perm=list(order))


def _reshaped(net: Net) -> None:
    if value := net.value(bool):
        size, last = prod(value.shape), value.shape[-1]
        wanted, shape = net.draw(
            st.sampled_from(
                [([-1], [size]), ([-1, last], [size // last, last]), ([1, -1], [1, size])]
            )
        )
        net.add("Reshape", [value.name, net.constant(wanted, "int64")], shape)


def _reduced(net: Net) -> None:
    if value := net.value(bool):
        axis = net.draw(st.integers(0, len(value.shape) - 1))
        kept = int(net.chance(2))
        shape = [1 if at == axis else d for at, d in enumerate(value.shape) if kept or at != axis]
        axes = net.constant([axis], "int64")
        net.add("ReduceSum", [value.name, axes], shape, keepdims=kept)


def _sliced(net: Net) -> None:
    value = net.value(lambda shape: bool(shape) and shape[-1] > 1)
    if value is None:
        return
    end = net.one_of((2**63 - 1, value.shape[-1], -1))
    length = value.shape[-1] - 1 - (end == -1)
    bounds = [net.constant([number], "int64") for number in (1, end, -1)]
    if length:
        net.add("Slice", [value.name, *bounds], (*value.shape[:-1], length))


def _concatenated(net: Net) -> None:
    first = net.value(bool)
    if first and (second := net.value(lambda shape: shape[1:] == first.shape[1:] and bool(shape))):
        shape = (first.shape[0] + second.shape[0], *first.shape[1:])
        net.add("Concat", [first.name, second.name], shape, axis=0)


def _quantized(net: Net) -> None:
    if value := net.value():
        scale = [net.constant(0.1), net.constant(3, "uint8")]
        steps = net.name()
        net.nodes.append(helper.make_node("QuantizeLinear", [value.name, *scale], [steps]))
        net.add("DequantizeLinear", [steps, *scale], value.shape)


def _selected(net: Net) -> None:
    first = net.value()
    if first and (second := net.value(lambda shape: shape == first.shape)):
        greater = net.name()
        reads = [first.name, second.name]
        net.nodes.append(helper.make_node("Greater", reads, [greater]))
        net.add("Where", [greater, *reads], first.shape)


def _branched(net: Net) -> None:
    value = net.value()
    if value is None:
        return
    total, condition = net.name(), net.name()
    net.nodes.append(helper.make_node("ReduceSum", [value.name], [total], keepdims=0))
    net.nodes.append(helper.make_node("Greater", [total, net.constant(0.3)], [condition]))
    branches = []
    for _ in range(2):
        inner, out = net.name(), net.name()
        first = helper.make_node(str(net.one_of(BINARY)), [value.name, value.name], [inner])
        last = helper.make_node(str(net.one_of(UNARY)), [inner], [out])
        info = helper.make_tensor_value_info(out, TensorProto.FLOAT, value.shape)
        branches.append(helper.make_graph([first, last], f"b_{out}", [], [info]))
    attributes = {"then_branch": branches[0], "else_branch": branches[1]}
    net.add("If", [condition], value.shape, **attributes)


def _looped(net: Net) -> None:
    value = net.value()
    if value is None:
        return
    number, going, state, still, bent, after = (net.name() for _ in range(6))
    nodes = [
        helper.make_node("Identity", [going], [still]),
        helper.make_node(str(net.one_of(UNARY)), [state], [bent]),
        helper.make_node(str(net.one_of(BINARY)), [bent, value.name], [after]),
    ]
    reads = [
        helper.make_tensor_value_info(number, TensorProto.INT64, []),
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        helper.make_tensor_value_info(state, TensorProto.FLOAT, value.shape),
    ]
    makes = [
        helper.make_tensor_value_info(still, TensorProto.BOOL, []),
        helper.make_tensor_value_info(after, TensorProto.FLOAT, value.shape),
    ]
    body = helper.make_graph(nodes, f"b_{after}", reads, makes)
    times = net.constant(net.one_of((2, 1, 0)), "int64")
    net.add("Loop", [times, "", value.name], value.shape, body=body)


GROWN = (
    *(_unary, _binary, _joined, _conv, _conv, _linear, _linear, _normalized, _softmax),
    *(
        _transposed,
        _reshaped,
        _reduced,
        _sliced,
        _concatenated,
        _quantized,
        _selected,
        _branched,
        _looped,
    ),
)
"""What a model grows by."""


@st.composite
def typed_models(draw: st.DrawFn, max_steps: int = 8) -> onnx.ModelProto:
    """Draw a model of up to so many steps of one to ten nodes each; the types of inner values too.

    All that nobody reads is an output, and now and then what somebody reads.
    """
    net = Net(draw, draw(st.sampled_from((17, 13, 15, 18, 19, 21))))
    shapes = [(1, 3, 6, 6), (2, 4, 8), (2, 6), (4,)]
    for shape in draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=2)):
        net.values.append(Typed(net.name(), shape))
    inputs = [*net.values]
    for grow in draw(st.lists(st.sampled_from(GROWN), min_size=1, max_size=max_steps)):
        grow(net)
    bodies = [a.g for node in net.nodes for a in node.attribute if a.HasField("g")]
    nodes = [*net.nodes, *[node for body in bodies for node in body.node]]
    read = {name for node in nodes for name in node.input}
    made = [value for value in net.values if value not in inputs]
    outputs = [value for value in made if value.name not in read or net.chance(12)]
    outputs = outputs or [net.add("Identity", [inputs[0].name], inputs[0].shape)]
    graph = helper.make_graph(
        net.nodes,
        "g",
        [_info(value) for value in inputs],
        [_info(value) for value in outputs],
        net.initializers,
        value_info=[_info(value) for value in made if value not in outputs],
    )
    if net.chance(2):
        del graph.value_info[:]
    if net.chance(3):  # a name says how many there are of it, for whoever runs the model
        for value in graph.input:
            size = value.type.tensor_type.shape.dim[0]
            size.dim_param = f"n{size.dim_value}"
    opsets = [helper.make_opsetid("", net.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _info(value: Typed) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value.name, TensorProto.FLOAT, value.shape)
