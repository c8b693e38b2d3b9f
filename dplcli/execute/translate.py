"""A call of a partition, with the function's body, as a plan.

Operator by operator: no table of kinds of partitions. What a library cannot be told exactly is
refused, and the reason says which operator it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.execute.composites import as_meant, composite_from
from dplcli.execute.plan import KernelPlan, PlanOp, RefusedError, broadcast, windows
from dplcli.ir.model import called_function
from dplcli.ir.operators import default_of
from dplcli.ir.types import dtype_name, tensor_of_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.execute.composites import Composite
    from dplcli.execute.plan import Setting, Shape
    from dplcli.ir import Attribute, Function, Node, Tensor, Value

    PlainShape = tuple[int | None, ...]

_SAME_SHAPE = {
    **{name: name.lower() for name in ("Abs", "Exp", "Log", "Mish", "Reciprocal", "Relu")},
    **{name: name.lower() for name in ("Round", "Sigmoid", "Sqrt", "Tanh")},
    "HardSwish": "hard_swish",
}
_BROADCAST = {
    "Add": "add",
    "Div": "divide",
    "Max": "maximum",
    "Min": "minimum",
    "Mul": "multiply",
    "Sub": "subtract",
    "Sum": "add",
}
_WITH_ALPHA = {"Elu": ("elu", 1.0), "LeakyRelu": ("leaky_relu", 0.01)}
_WINDOWS = "auto_pad dilations kernel_shape pads strides"
_UNDERSTOOD = {
    **dict.fromkeys(_SAME_SHAPE, (1, "")),
    **dict.fromkeys(_BROADCAST, (1 << 16, "")),
    **dict.fromkeys(_WITH_ALPHA, (1, "alpha")),
    "AveragePool": (1, f"{_WINDOWS} ceil_mode count_include_pad"),
    "BatchNormalization": (5, "epsilon momentum training_mode"),
    "Clip": (3, "min max"),
    "Conv": (3, f"{_WINDOWS} group"),
    "ConvTranspose": (3, f"{_WINDOWS} group output_padding"),
    "DequantizeLinear": (3, "axis"),
    "Gelu": (1, "approximate"),
    "Gemm": (3, "alpha beta transA transB"),
    "GlobalAveragePool": (1, ""),
    "HardSigmoid": (1, "alpha beta"),
    "Identity": (1, ""),
    "LayerNormalization": (3, "axis epsilon"),
    "LogSoftmax": (1, "axis"),
    "MatMul": (2, ""),
    "MaxPool": (1, f"{_WINDOWS} ceil_mode storage_order"),
    "QLinearConv": (9, f"{_WINDOWS} group"),
    "QLinearMatMul": (8, ""),
    "QuantizeLinear": (3, "axis output_dtype saturate"),
    "ReduceMean": (2, "axes keepdims noop_with_empty_axes"),
    "Softmax": (1, "axis"),
    "Transpose": (1, "perm"),
}
"""How many inputs of each operator are understood, and which attributes, at every opset.

Of others, what says more than a default does is left to onnxruntime: a later opset may add
something that changes the numbers. What counts for other types only (``saturate``) is understood.
"""

_STEPS = frozenset({"int8", "uint8"})
_DTYPES = frozenset({"float32", "float16", "bfloat16", "float64", *_STEPS})
_LARGEST = float(np.finfo(np.float32).max)
_RANKS = {
    "avg_pool": (3, 5),
    "batch_norm_inference": (2, 5),
    "conv_transpose": (3, 5),
    "convolution": (3, 5),
    "layer_norm": (2, 5),
    "max_pool": (3, 5),
}
_ANY_RANK = (1, 12)
"""How many dimensions oneDNN computes with: beyond, it fails, ends the process, or is wrong."""
_LAST_AXIS = 13
"""The opset from which a softmax is over one axis."""


def translate(call: Node) -> KernelPlan:
    """Return what *call* computes, as a plan.

    Args:
        call: A call of a function.

    Raises:
        RefusedError: Something in the body has no counterpart, or is not known well enough.
    """
    function = called_function(call)
    assert function is not None  # noqa: S101  # the caller has looked
    return _Translator().translate(call, function)


class _Translator:
    """Writes a plan.

    Attributes:
        plan: What is written.
        shapes: The shape of each value, with None for what is open; None if the rank is.
        arrays: The constants whose numbers are known.
    """

    def __init__(self) -> None:
        self.plan = KernelPlan()
        self.shapes: dict[int, PlainShape | None] = {}
        self.arrays: dict[int, Callable[[], np.ndarray]] = {}

    def translate(self, call: Node, function: Function) -> KernelPlan:
        for value in call.inputs:
            if value is None:
                raise RefusedError("an input is omitted")
            known = value.known_type()
            if known is None or known.dtype is None:
                raise RefusedError(f"the type of {value.name!r} is not known")
            number = self.new(known.dtype, _plain(known.shape))
            self.plan.inputs.append(number)
            if known.shape is not None:
                self.plan.given[number] = tuple(known.shape)
            if (tensor := value.constant) is not None:
                self.plan.constant.add(number)
                self.arrays[number] = partial(self._array, number, tensor)
                self.shapes[number] = self.plan.given[number] = tensor.shape
        self.plan.is_region = all(called_function(node) is not None for node in function.body)
        made = self.body(function, call.attributes, self.plan.inputs)
        self.plan.outputs = made
        self._drop_unread()
        if not self.plan.ops:
            raise RefusedError("it computes nothing")
        if set(made) & {*self.plan.inputs, *self.plan.numbers} or len(set(made)) < len(made):
            raise RefusedError("it returns what it is given, or a value twice")
        used = {n for op in self.plan.ops for n in (*op.inputs, op.output)}
        strange = {self.plan.dtypes[number] for number in used} - _DTYPES
        if strange:
            raise RefusedError(f"values are of type {min(strange)}")
        for op in self.plan.ops:
            self._check_sizes(op)
        self.plan.numbers = {n: a for n, a in self.plan.numbers.items() if n in used}
        fixed = dict(self.plan.fixed)
        scalars = [n for n in used if n in self.arrays and self.shapes[n] in {(), (1,)}]
        self.plan.scalars = {n: float(self.arrays[n]().reshape(-1)[0]) for n in scalars}
        self.plan.fixed = fixed  # no setting was made from these
        return self.plan

    def _check_sizes(self, op: PlanOp) -> None:
        """Refuse an operator on tensors of more dimensions than it takes, or of no elements."""
        for place, number in enumerate((op.output, *op.inputs)):
            shape = self.plan.views.get(number, self.shapes[number])
            if shape is None:
                continue
            is_data = place < 2  # noqa: PLR2004  # the result, and the first operand
            fewest, most = _RANKS.get(op.kind, _ANY_RANK) if is_data else _ANY_RANK
            if not fewest <= len(shape) <= most:
                raise RefusedError(f"{op.kind} of rank {len(shape)}")
            if 0 in shape:
                raise RefusedError(f"{op.kind} of a tensor without elements")

    def _drop_unread(self) -> None:
        """Leave out what nothing reads: transposes that products do by themselves."""
        needed = set(self.plan.outputs)
        for op in reversed(self.plan.ops):
            if op.output in needed:
                needed.update(op.inputs)
        self.plan.ops = [op for op in self.plan.ops if op.output in needed]

    def _array(self, number: int, tensor: Tensor) -> np.ndarray:
        """Return the numbers of a constant input; the plan is right for these only."""
        found = self.plan.fixed[number] = tensor.numpy()
        return found

    def new(self, dtype: str, shape: PlainShape | None) -> int:
        number = len(self.plan.dtypes)
        self.plan.dtypes[number] = dtype
        self.shapes[number] = shape
        return number

    def number(self, array: np.ndarray) -> int:
        """Add a constant of the body."""
        number = self.new(array.dtype.name, array.shape)
        self.plan.numbers[number] = np.ascontiguousarray(array)
        self.arrays[number] = lambda: array
        return number

    def emit(
        self, kind: str, inputs: Sequence[int], shape: PlainShape | None, **settings: Setting
    ) -> int:
        output = self.new(self.plan.dtypes[inputs[0]], shape)
        self.plan.ops.append(PlanOp(kind, list(inputs), output, settings))
        return output

    def body(
        self, function: Function, given: Mapping[str, Attribute], inputs: Sequence[int]
    ) -> list[int]:
        """Translate the operators of a function; return what it returns."""
        made: dict[Value, int] = dict(zip(function.body.inputs, inputs, strict=True))
        nodes = list(function.body)
        done: set[Node] = set()
        for node in nodes:
            if node in done:
                continue
            attributes = _given(node, given)
            spelt = composite_from(
                node,
                {value: self._rank(number) for value, number in made.items()},
                lambda value: self._single(made.get(value)),
                lambda node, name: getattr(_given(node, given).get(name), "value", None),
            )
            if spelt is not None:
                done |= spelt.members
                self._composite(spelt, made, done)
                continue
            read = [None if value is None else made[value] for value in node.inputs]
            inner = called_function(node)
            if inner is not None:
                numbers = [number for number in read if number is not None]
                results = self.body(inner, attributes, numbers)
            else:
                opset = node.graph.opset_imports.get(node.domain, 0)
                results = [self.operator(node, _Facts(attributes, opset, read))]
            pairs = zip(node.outputs, results, strict=False)
            made.update({value: number for value, number in pairs if value is not None})
            extra = node.outputs[len(results) :]
            if any(value is not None and (value.use_count or value.returned_by) for value in extra):
                raise RefusedError(f"a further output of {node.op_type} is read")
        return [made[value] for value in function.body.outputs]

    # -- operators ---------------------------------------------------------------------------------

    def operator(self, node: Node, facts: _Facts) -> int:
        """Add what one node computes."""
        op_type = node.op_type
        if node.domain and (node.domain, op_type) != ("com.microsoft", "Gelu"):  # as the standard's
            raise RefusedError(f"operator {node.domain}.{op_type}")
        if op_type == "Constant":
            return self._constant(facts)
        if op_type not in _UNDERSTOOD or facts.at(0) is None:
            raise RefusedError(f"operator {op_type}")
        most, names = _UNDERSTOOD[op_type]
        if any(number is not None for number in facts.read[most:]):
            raise RefusedError(f"{op_type} with more than {most} inputs")
        for name, given in facts.attributes.items():
            if name not in names.split() and given != default_of(node, name):
                raise RefusedError(f"{op_type} with {name}")
        shape = self.shapes[facts.data]
        if op_type in _SAME_SHAPE and len(facts.present) == 1:
            return self.emit(_SAME_SHAPE[op_type], [facts.data], shape)
        if op_type in _BROADCAST and len(facts.present) > 1:
            return self._binary(_BROADCAST[op_type], facts.present)
        if op_type in _WITH_ALPHA:
            kind, default = _WITH_ALPHA[op_type]
            return self.emit(kind, [facts.data], shape, alpha=facts.number("alpha", default))
        result: int = getattr(self, f"_{op_type.lower()}")(facts)
        return result

    def _constant(self, facts: _Facts) -> int:
        tensor = tensor_of_attributes(facts.attributes)
        if tensor is None:
            raise RefusedError("a Constant that is no tensor")
        return self.number(tensor.numpy())

    def _binary(self, kind: str, read: Sequence[int]) -> int:
        result = read[0]
        for other in read[1:]:
            added = None
            if kind == "add":
                added = self._bias(result, other) or self._bias(other, result)
            if added is None:
                a, b = self.shapes[result], self.shapes[other]
                shape = None if a is None or b is None else broadcast(a, b)
                pair = [self._lifted(result), self._lifted(other)]
                added = self.emit(kind, pair, shape, auto_broadcast="numpy")
            result = added
        return result

    def _lifted(self, number: int) -> int:
        """Return a scalar as a tensor of one element, which is what oneDNN takes."""
        if self.shapes[number] != ():
            return number
        if number in self.plan.numbers:
            return self.number(self.plan.numbers[number].reshape(1))
        if number not in self.plan.inputs:
            raise RefusedError("a scalar that is computed")
        self._view(number, (1,))
        return number

    def _view(self, number: int, shape: Shape) -> None:
        """Let the operators see an input in another shape, if none has seen it otherwise."""
        seen = any(number in op.inputs for op in self.plan.ops)
        if seen and self.plan.views.get(number, self.shapes[number]) != shape:
            raise RefusedError("an input that is read in two shapes")
        self.plan.views[number] = shape

    def _bias(self, product: int, row: int) -> int | None:
        """Make a row of constants that is added to a product its bias; None if it is none.

        A bias is what the library is quickest with. And oneDNN 3.12.1 overruns the heap where a
        product of one row is followed by an addition.
        """
        op = self.plan.ops[-1] if self.plan.ops else None
        if op is None or op.output != product or len(op.inputs) != 2:  # noqa: PLR2004  # no bias
            return None
        shape, own = self.shapes[product], self.shapes[row]
        if row not in self.plan.constant or shape is None or own is None:
            return None
        axis = {"matmul": -1, "convolution": 1}.get(op.kind)
        if axis is None or None in own:
            return None
        place = len(own) + axis if axis < 0 else len(own) - len(shape) + axis
        channels, count = shape[axis], math.prod(size for size in own if size is not None)
        is_row = channels is not None and count == channels and len(own) <= len(shape)
        if not is_row or not 0 <= place < len(own) or own[place] != count:
            return None
        self._view(row, (count,))
        op.inputs.append(row)
        return product

    def _spatial(self, facts: _Facts, rank: int) -> dict[str, Setting]:
        """Return what windows have in common."""
        pads = facts.numbers("pads", [0] * 2 * rank)
        named = facts.text("auto_pad", "NOTSET")
        return {
            **({} if named == "NOTSET" else {"auto_pad": named}),
            "strides": facts.numbers("strides", [1] * rank),
            "pads_begin": pads[:rank],
            "pads_end": pads[rank:],
            "dilations": facts.numbers("dilations", [1] * rank),
            "data_format": "NCX",
        }

    def _ranked(self, number: int | None, what: str) -> PlainShape:
        shape = None if number is None else self.shapes[number]
        if shape is None:
            raise RefusedError(f"the rank of {what} is not known")
        return shape

    def _weighed(self, facts: _Facts) -> tuple[PlainShape, PlainShape, int, dict[str, Setting]]:
        """Return the shapes of data and weights of a convolution, its groups and its windows."""
        weights = self._ranked(facts.at(1), "the weights")
        known = self.shapes[facts.data]
        data = (None,) * len(weights) if known is None else known  # the rank is that of the weights
        spatial = self._spatial(facts, len(weights) - 2)
        return data, weights, int(facts.number("group", 1)), spatial

    def _conv(self, facts: _Facts) -> int:
        data, weights, groups, spatial = self._weighed(facts)
        shape = (data[0], weights[0], *windows(data[2:], weights[2:], spatial))
        own: dict[str, Setting] = {"groups": groups, "weights_format": "OIX"}
        return self.emit("convolution", facts.present, shape, **own, **spatial)

    def _convtranspose(self, facts: _Facts) -> int:
        data, weights, groups, spatial = self._weighed(facts)
        rank = len(weights) - 2
        channels = None if weights[1] is None else weights[1] * groups
        own: dict[str, Setting] = {"groups": groups, "weights_format": "IOX"}
        own["output_padding"] = facts.numbers("output_padding", [0] * rank)
        shape = (data[0], channels, *(None,) * rank)
        return self.emit("conv_transpose", facts.present, shape, **own, **spatial)

    def _batchnormalization(self, facts: _Facts) -> int:
        if facts.number("training_mode", 0):
            raise RefusedError("a BatchNormalization that trains")
        read, shape = facts.present[:5], self.shapes[facts.data]
        epsilon = float(facts.number("epsilon", 1e-5))
        return self.emit("batch_norm_inference", read, shape, epsilon=epsilon, data_format="NCX")

    def _clip(self, facts: _Facts) -> int:
        bounds = {"min": facts.number("min", -_LARGEST), "max": facts.number("max", _LARGEST)}
        for place, name in enumerate(bounds, 1):
            if (number := facts.at(place)) is None:
                continue
            if number not in self.arrays:
                raise RefusedError("a bound of Clip is not constant")
            if (array := self.arrays[number]()).size != 1:
                raise RefusedError("a bound of Clip is not one number")
            bounds[name] = array.reshape(-1)[0]
        low, high = map(float, bounds.values())
        return self.emit("clamp", [facts.data], self.shapes[facts.data], min=low, max=high)

    def _matmul(self, facts: _Facts) -> int:
        a, b = (self._ranked(facts.at(place), "an operand") for place in (0, 1))
        if min(len(a), len(b)) < 2:  # noqa: PLR2004  # matrices
            raise RefusedError("a MatMul of vectors")
        shape = (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])
        (first, is_first), (second, is_second) = map(self._turned, facts.present[:2])
        return self.emit(
            "matmul", [first, second], shape, transpose_a=is_first, transpose_b=is_second
        )

    def _turned(self, number: int) -> tuple[int, bool]:
        """Return an operand of a product, or what it is the transpose of."""
        maker = next((op for op in self.plan.ops if op.output == number), None)
        if maker is not None and maker.kind == "static_transpose":
            order = maker.settings["order"]
            rank = len(self._ranked(number, "an operand"))
            if order == [*range(rank - 2), rank - 1, rank - 2]:
                return maker.inputs[0], True
        return number, False

    def _gemm(self, facts: _Facts) -> int:
        if facts.number("alpha", 1.0) != 1 or facts.number("beta", 1.0) != 1:
            raise RefusedError("a Gemm with alpha or beta")
        a, b = (self._ranked(facts.at(place), "an operand") for place in (0, 1))
        turned = [bool(facts.number(name, 0)) for name in ("transA", "transB")]
        rows = a[-1] if turned[0] else a[0]
        columns = b[0] if turned[1] else b[-1]
        settings = dict(zip(("transpose_a", "transpose_b"), turned, strict=True))
        product = self.emit("matmul", facts.present[:2], (rows, columns), **settings)
        bias = facts.at(2)
        return product if bias is None else self._binary("add", [product, bias])

    def _transpose(self, facts: _Facts) -> int:
        data = facts.data
        shape = self._ranked(data, "the data")
        order = facts.numbers("perm", [*range(len(shape))][::-1])
        return self.emit("static_transpose", [data], tuple(shape[n] for n in order), order=order)

    def _softmax(self, facts: _Facts, kind: str = "softmax") -> int:
        shape = self._ranked(facts.data, "the data")
        axis = int(facts.number("axis", -1 if facts.opset >= _LAST_AXIS else 1))
        if facts.opset < _LAST_AXIS and axis not in {-1, len(shape) - 1}:
            raise RefusedError("a Softmax over several axes")
        return self.emit(kind, facts.present, shape, axis=axis)

    def _logsoftmax(self, facts: _Facts) -> int:
        return self._softmax(facts, "log_softmax")

    def _layernormalization(self, facts: _Facts) -> int:
        shape = self._ranked(facts.data, "the data")
        axis = int(facts.number("axis", -1))
        if axis not in {-1, len(shape) - 1}:
            raise RefusedError("a LayerNormalization over several axes")
        return self._normalized(facts.present, shape, float(facts.number("epsilon", 1e-5)))

    def _gelu(self, facts: _Facts) -> int:
        data = facts.data
        if facts.text("approximate", "none") == "tanh":
            return self._gelu_by_tanh(data)
        return self.emit("gelu", [data], self.shapes[data])

    def _hardsigmoid(self, facts: _Facts) -> int:
        data = facts.data
        dtype, shape = self.plan.dtypes[data], self.shapes[data]
        for kind, name, default in (("multiply", "alpha", 0.2), ("add", "beta", 0.5)):
            number = self.number(np.array([facts.number(name, default)], dtype))
            data = self.emit(kind, [data, number], shape, auto_broadcast="numpy")
        return self.emit("clamp", [data], shape, min=0.0, max=1.0)

    def _reducemean(self, facts: _Facts) -> int:
        shape = self._ranked(facts.data, "the data")
        axes = facts.numbers("axes", [])
        if (given := facts.at(1)) is not None:
            if given not in self.arrays:
                raise RefusedError("a ReduceMean over axes that are computed")
            axes = [int(axis) for axis in self.arrays[given]().reshape(-1)]
        if not axes:
            if facts.number("noop_with_empty_axes", 0):
                raise RefusedError("a ReduceMean over no axis")
            axes = list(range(len(shape)))
        axes = sorted(axis % len(shape) for axis in axes)
        if all(shape[axis] == 1 for axis in axes):
            raise RefusedError("a ReduceMean of single numbers")
        kept = bool(facts.number("keepdims", 1))
        if not kept and len(axes) == len(shape):
            raise RefusedError("a ReduceMean to a scalar")
        sizes = enumerate(shape)
        made = [1 if axis in axes else n for axis, n in sizes if kept or axis not in axes]
        data = facts.data
        return self.emit("reduce_mean", [data], tuple(made), axes=axes, keep_dims=kept)

    # -- steps -------------------------------------------------------------------------------------

    def _scales(self, facts: _Facts, rank: int | None) -> dict[str, Setting]:
        """Return how an operator converts between steps and numbers, which has to be constant."""
        scale, zero = facts.present[1], facts.at(2)
        if scale not in self.arrays or (zero is not None and zero not in self.arrays):
            raise RefusedError("a scale or a zero point that is computed")
        scales = np.asarray(self.arrays[scale]())
        if scales.dtype != np.float32:
            raise RefusedError(f"scales of type {scales.dtype.name}")
        if scales.ndim > 1:
            raise RefusedError("scales by block")
        zeros = np.zeros(scales.size) if zero is None else np.asarray(self.arrays[zero]())
        is_one = scales.size == 1
        axis = int(facts.number("axis", 1))
        if not is_one and axis < 0:
            if rank is None:
                raise RefusedError("the rank of what has scales is not known")
            axis += rank
        return {
            "scales": scales.reshape(-1).tolist(),
            "zps": np.broadcast_to(zeros.reshape(-1), scales.size).astype(int).tolist(),
            "qtype": "per_tensor" if is_one else "per_channel",
            **({} if is_one else {"axis": axis}),
        }

    def _dequantizelinear(self, facts: _Facts) -> int:
        data = facts.data
        settings = self._scales(facts, self._rank(data))
        dtype, shape = self.plan.dtypes[data], self.shapes[data]
        if dtype == "int32" and data in self.arrays:
            return self._bias_in_numbers(data, settings)
        if dtype not in _STEPS:
            raise RefusedError(f"steps of type {dtype}")
        output = self.new("float32", shape)
        self.plan.ops.append(PlanOp("dequantize", [data], output, settings))
        return output

    def _bias_in_numbers(self, data: int, settings: Mapping[str, Any]) -> int:
        """Return a bias of whole numbers as numbers: the library takes it in no other form."""
        array = np.asarray(self.arrays[data]())
        shape = [1] * array.ndim
        if settings["qtype"] == "per_channel":
            shape[settings["axis"]] = array.shape[settings["axis"]]
        scales, zeros = (np.reshape(settings[name], shape) for name in ("scales", "zps"))
        numbers = (array.astype(np.float64) - zeros) * scales.astype(np.float64)
        return self.number(numbers.astype(np.float32))

    def _quantizelinear(self, facts: _Facts) -> int:
        data, zero = facts.data, facts.at(2)
        asked = int(facts.number("output_dtype", 0))
        dtype = dtype_name(asked) if asked else "uint8"
        if zero is not None:
            dtype = self.plan.dtypes[zero]
        if dtype not in _STEPS or self.plan.dtypes[data] != "float32":
            raise RefusedError(f"steps of type {dtype} from {self.plan.dtypes[data]}")
        settings = self._scales(facts, self._rank(data))
        output = self.new(dtype, self.shapes[data])
        self.plan.ops.append(PlanOp("quantize", [data], output, settings))
        return output

    def _qlinearconv(self, facts: _Facts) -> int:
        read = facts.read
        data = self._dequantizelinear(facts.part(read[:3]))
        weights = self._dequantizelinear(facts.part(read[3:6], axis=0))
        operands = [data, weights]
        if (bias := facts.at(8)) is not None:
            parts = (facts.part(read[:3]), facts.part(read[3:6]))
            one, other = (np.asarray(self._scales(part, None)["scales"]) for part in parts)
            if bias not in self.arrays:
                raise RefusedError("a bias that is computed")
            numbers = np.asarray(self.arrays[bias]()).astype(np.float64) * (one[0] * other)
            operands.append(self.number(numbers.astype(np.float32)))
        product = self._conv(_Facts(facts.attributes, facts.opset, operands))
        return self._quantizelinear(facts.part([product, *read[6:8]]))

    def _qlinearmatmul(self, facts: _Facts) -> int:
        read = facts.read
        operands = [self._dequantizelinear(facts.part(read[at : at + 3])) for at in (0, 3)]
        product = self._matmul(facts.part(operands))
        return self._quantizelinear(facts.part([product, *read[6:8]]))

    def _identity(self, facts: _Facts) -> int:
        return facts.data

    def _globalaveragepool(self, facts: _Facts) -> int:
        shape, data = self._ranked(facts.data, "the data"), facts.data
        axes, window = list(range(2, len(shape))), [size for size in shape[2:] if size is not None]
        made = (*shape[:2], *[1] * len(axes))
        if len(window) < len(axes):
            return self.emit("reduce_mean", [data], made, axes=axes, keep_dims=True)
        # oneDNN reduces what has its channels last, as in regions, by its slow reference code
        return self.emit(
            "avg_pool",
            [data],
            made,
            kernel=window,
            strides=[1] * len(axes),
            pads_begin=[0] * len(axes),
            pads_end=[0] * len(axes),
            exclude_pad=False,
            rounding_type="floor",
            data_format="NCX",
        )

    def _maxpool(self, facts: _Facts, kind: str = "max_pool") -> int:
        data = self._ranked(facts.data, "the data")
        kernel = facts.numbers("kernel_shape", [])
        spatial = self._spatial(facts, len(kernel))
        up = bool(facts.number("ceil_mode", 0))
        if up or facts.number("storage_order", 0):
            raise RefusedError("a pool that rounds up, or orders by columns")
        shape = (*data[:2], *windows(data[2:], kernel, spatial))
        if kind == "avg_pool":
            if any(step != 1 for step in facts.numbers("dilations", [])):
                raise RefusedError("an AveragePool with dilations")
            spatial.pop("dilations")
            spatial["exclude_pad"] = not facts.number("count_include_pad", 0)
        return self.emit(
            kind, facts.present, shape, kernel=kernel, rounding_type="floor", **spatial
        )

    def _averagepool(self, facts: _Facts) -> int:
        return self._maxpool(facts, "avg_pool")

    # -- several operators that are one ------------------------------------------------------------

    def _composite(self, spelt: Composite, made: dict[Value, int], done: set[Node]) -> None:
        """Add what several nodes compute together."""
        data = made[spelt.source]
        shape = self.shapes[data]
        if spelt.kind == "gelu_tanh":
            made[spelt.result] = self._gelu_by_tanh(data)
        elif spelt.kind == "layer_norm":
            result, read = spelt.result, [data]
            for op_type in ("Mul", "Add"):
                user = _only_user(result, op_type)
                row = None if user is None else self._row_beside(user, result, made, shape)
                if user is None or row is None:
                    break
                done.add(user)
                (result,) = [output for output in user.outputs if output is not None]
                read.append(row)
            made[result] = self._normalized(read, shape, spelt.epsilon)
        else:
            made[spelt.result] = self.emit(spelt.kind, [data], shape)

    def _row_beside(
        self, user: Node, value: Value, made: Mapping[Value, int], shape: PlainShape | None
    ) -> int | None:
        """Return what scales or shifts the last axis of *value*; None if nothing does."""
        (other,) = [each for each in user.inputs if each is not value] or [None]
        number = None if other is None else made.get(other)
        if number is None or shape is None:
            return None
        row = self.shapes[number]
        fits = row is not None and len(row) == 1 and (row[0] == shape[-1] or shape[-1] is None)
        return number if fits else None

    def _normalized(self, read: Sequence[int], shape: PlainShape | None, epsilon: float) -> int:
        """Add a layer normalisation of the last axis; scale and shift go together."""
        given = list(read)
        if len(given) == 2:  # noqa: PLR2004  # a scale alone
            row = self.shapes[given[1]]
            if row is None or row[0] is None:
                raise RefusedError("the size of a scale is not known")
            given.append(self.number(np.zeros(row[0], self.plan.dtypes[given[1]])))
        return self.emit(
            "layer_norm",
            given,
            shape,
            keep_stats=False,
            begin_norm_axis=-1,
            use_affine=len(given) > 1,
            epsilon=epsilon,
        )

    def _gelu_by_tanh(self, data: int) -> int:
        """Write it out: oneDNN knows the form by erf alone before 3.8, and fuses what follows."""
        dtype, shape = self.plan.dtypes[data], self.shapes[data]

        def of(kind: str, one: int, other: float) -> int:
            if isinstance(other, float):
                other = self.number(np.array([other], dtype))
            return self.emit(kind, [one, other], shape, auto_broadcast="numpy")

        self.plan.parts = max(self.plan.parts, 2)
        cube = of("multiply", of("multiply", data, data), data)
        inner = of("add", of("multiply", cube, 0.044715), data)
        bent = self.emit("tanh", [of("multiply", inner, math.sqrt(2 / math.pi))], shape)
        return of("multiply", of("multiply", of("add", bent, 1.0), data), 0.5)

    def _rank(self, number: int) -> int | None:
        shape = self.shapes[number]
        return None if shape is None else len(shape)

    def _single(self, number: int | None) -> float | None:
        """Return the one number of a constant; None if it is none, or has several."""
        if number is None or number not in self.arrays:
            return None
        shape = self.shapes[number]
        if shape is None or math.prod(size or 0 for size in shape) != 1:
            return None
        return as_meant(self.arrays[number]().reshape(-1)[0])


class _Facts:
    """A node as the call gives it: its attributes, and the numbers of what it reads.

    Attributes:
        attributes: Those of the node.
        opset: The version that it is of.
        read: What it reads; None for what is omitted.
        present: What of that is not.
        stated: Numbers in the place of attributes, for a part of an operator.
    """

    def __init__(
        self,
        attributes: Mapping[str, Attribute],
        opset: int,
        read: Sequence[int | None],
        **stated: float,
    ) -> None:
        self.attributes, self.opset, self.read, self.stated = attributes, opset, read, stated
        self.present = [number for number in read if number is not None]

    @property
    def data(self) -> int:
        """The first of what it reads, which it has."""
        return self.present[0]

    def at(self, place: int) -> int | None:
        """Return what it reads at a place; None if that is omitted."""
        return self.read[place] if len(self.read) > place else None

    def part(self, read: Sequence[int | None], **stated: float) -> _Facts:
        """Return a part of it, which reads *read* and has no attributes but those *stated*."""
        return _Facts({}, self.opset, read, **stated)

    def number(self, name: str, default: float) -> float:
        value = self._value(name, default)
        return value if isinstance(value, (int, float)) else default

    def numbers(self, name: str, default: Sequence[int]) -> list[int]:
        value = self._value(name, default)
        return [int(item) for item in value] if isinstance(value, Sequence) else list(default)

    def text(self, name: str, default: str) -> str:
        value = self._value(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def _value(self, name: str, default: object) -> object:
        found = self.attributes.get(name)
        return self.stated.get(name, default) if found is None else found.value


def _given(node: Node, given: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Return the attributes of a node of a body, those of the call in the place of references."""
    attributes = {
        name: given.get(each.ref) if each.ref else each for name, each in node.attributes.items()
    }
    return {name: each for name, each in attributes.items() if each is not None}


def _only_user(value: Value, op_type: str) -> Node | None:
    """Return the one node that reads a value, if it is of a type and nothing else reads it."""
    users = [user for user, _ in value.iter_uses()]
    if len(users) != 1 or value.returned_by or users[0].op_type != op_type or users[0].domain:
        return None
    return users[0]


def _plain(shape: Sequence[int | str | None] | None) -> PlainShape | None:
    """Return a shape with None for what is a symbol."""
    if shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in shape)
