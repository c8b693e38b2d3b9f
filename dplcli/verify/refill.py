"""Random values for weights that a model makes by ConstantOfShape, alike in two models.

Such a model (the `light_*` nets of the onnx package) computes the same number whatever it is fed,
so comparing its outputs proves nothing. Refilled is what :mod:`dplcli.ir.placeholders` takes for a
weight, in the main graph, also where it is read inside a local function.

Matrices and kernels get normal values scaled by their fan-in (after He), so that
activations stay sane in deep nets; vectors get uniform values in [0.5, 1.5], because one of them
may be a variance.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import onnx

from dplcli.ir.placeholders import (
    MOVES,
    OPERANDS,
    WEIGHT_DTYPES,
    can_stand_for_weight,
    is_weight_use,
)
from dplcli.verify.dataflow import Dataflow, Frame, attribute, leaving, small_values
from dplcli.verify.sessions import Array

_MATRIX_PRODUCTS = frozenset({"Gemm", "MatMul"})
_MATRIX_RANK = 2
_DTYPES = frozenset(map(np.dtype, WEIGHT_DTYPES))

# Factors on matrices, tried in turn while an output stays blind: activations that grow in every
# block of a deep residual net drive the last softmax to exactly 0 and 1 otherwise.
MATRIX_GAINS = (1.0, 2.0**-7, 2.0**-14, 2.0**-21)

# Where the temporary models say that the weights are; the values are handed over in memory.
_LOCATION = "dpl-refilled-weights.bin"


@dataclass(frozen=True)
class Weight:
    """One weight to refill.

    Attributes:
        name: Name of the value.
        shape: Its dimensions.
        dtype: Its element type.
        fan_in: Number of terms in a sum that it weighs; 0 for a vector.
        matrix: Whether it is the operand of a Gemm or MatMul.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    fan_in: int
    matrix: bool


def find_weights(flow: Dataflow) -> list[Weight]:
    """Return what the module's rule refills, in the order of the main graph."""
    found = []
    for node in flow.model.graph.node:
        shape, dtype, fill = _made_by(flow, node)
        if not can_stand_for_weight(math.prod(shape), fill):
            continue
        uses = list(_uses(flow, node.output[0]))
        if uses and all(is_weight_use(user.op_type, slot, fill) for user, slot in uses):
            fan_in = _fan_in(shape, *uses[0])
            matrix = uses[0][0].op_type in _MATRIX_PRODUCTS
            found.append(Weight(node.output[0], shape, dtype, fan_in, matrix))
    return found


def draw_weights(weights: list[Weight], seed: int, gain: float) -> dict[str, Array]:
    """Return values by name: the same for the same seed, gain, name and shape.

    Args:
        weights: What to draw.
        seed: Seed of all of them; each weight has a stream of its own.
        gain: Factor on the matrices, see `MATRIX_GAINS`.
    """
    return {weight.name: _draw(weight, seed, gain if weight.matrix else 1.0) for weight in weights}


class Drawer:
    """Draws weights, each once: another gain only moves the exponents of the matrices.

    Args:
        weights: What to draw.
        seed: Seed of all of them.
    """

    def __init__(self, weights: list[Weight], seed: int) -> None:
        """Start with nothing drawn."""
        self._weights = weights
        self._seed = seed
        self._gain = 0.0
        self._values: dict[str, Array] = {}

    def values(self, gain: float) -> dict[str, Array]:
        """Return what :func:`draw_weights` gives; *gain* is one of `MATRIX_GAINS`."""
        if not self._gain:
            self._values = draw_weights(self._weights, self._seed, gain)
        elif gain != self._gain:
            factor = np.float32(gain / self._gain)  # a power of two: nothing is rounded
            scaled = [weight for weight in self._weights if weight.matrix and weight.fan_in]
            moved = [weight for weight in scaled if weight.dtype != np.float16]
            again = [weight for weight in scaled if weight.dtype == np.float16]
            self._values = (
                self._values
                | {w.name: np.multiply(self._values[w.name], factor) for w in moved}
                | draw_weights(again, self._seed, gain)
            )
        self._gain = gain
        return self._values


def names_made_by_shape(graph: onnx.GraphProto) -> set[str]:
    """Return the names that ConstantOfShape makes in the main graph."""
    return {node.output[0] for node in graph.node if node.op_type == "ConstantOfShape"}


def replace_weights(model: onnx.ModelProto, values: Mapping[str, Array]) -> bytes:
    """Return *model* with initializers, declared external, instead of the nodes that made them.

    The argument is changed.
    """
    for index in reversed(range(len(model.graph.node))):
        node = model.graph.node[index]
        if node.op_type == "ConstantOfShape" and node.output[0] in values:
            del model.graph.node[index]
    offset = 0
    for name, array in values.items():
        tensor = model.graph.initializer.add(name=name, dims=array.shape)
        tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entries = {"location": _LOCATION, "offset": str(offset), "length": str(array.nbytes)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        offset += array.nbytes
    content: bytes = model.SerializeToString()
    return content


def _made_by(
    flow: Dataflow, node: onnx.NodeProto
) -> tuple[tuple[int, ...], np.dtype[np.generic], float]:
    """Return static shape, type and fill value of what *node* makes; () if it makes no weight."""
    default = np.zeros(1, np.float32)
    nothing = (), default.dtype, 0.0
    if node.op_type != "ConstantOfShape" or node.domain not in {"", "ai.onnx"}:
        return nothing
    tensor = flow.main.constant(node.input[0])
    dims = None if tensor is None else small_values(tensor)
    value = attribute(node, "value")
    fill = default if value is None else small_values(value.t)
    if dims is None or fill is None or fill.dtype not in _DTYPES:
        return nothing
    shape = tuple(int(dim) for dim in dims.reshape(-1))
    return shape, fill.dtype, float(fill.reshape(-1)[0])


def _uses(flow: Dataflow, name: str) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield the nodes that compute with a value, beyond reshapes and calls; graph outputs too."""
    outputs = {info.name for info in flow.model.graph.output}
    pending: list[tuple[Frame, str]] = [(flow.main, name)]
    while pending:
        frame, current = pending.pop()
        if frame is flow.main and current in outputs:
            yield onnx.NodeProto(), 0
        pending.extend(leaving(frame, current))
        for node, slot in frame.body.consumers.get(current, ()):
            if (entered := flow.enter(frame, node)) is not None:
                pending.extend((entered[0], formal) for formal in entered[1][slot : slot + 1])
            elif node.op_type in MOVES and slot == 0:
                pending.append((frame, node.output[0]))
            else:
                yield node, slot


def _fan_in(shape: tuple[int, ...], node: onnx.NodeProto, slot: int) -> int:
    if node.op_type in OPERANDS or math.prod(shape) == max(shape):
        return 0
    transposed = attribute(node, "transB")
    columns = node.op_type == "MatMul" or (
        node.op_type == "Gemm" and not (transposed and transposed.i)
    )
    if len(shape) == _MATRIX_RANK and slot == 1 and columns:
        return shape[0]
    return math.prod(shape[1:])


def _draw(weight: Weight, seed: int, gain: float) -> Array:
    rng = np.random.default_rng([seed, crc32(weight.name.encode())])
    if not weight.fan_in:
        return rng.uniform(0.5, 1.5, weight.shape).astype(weight.dtype)
    values = rng.standard_normal(weight.shape, dtype=np.float32)
    values *= np.float32(gain * math.sqrt(2 / weight.fan_in))
    return values.astype(weight.dtype, copy=False)
