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

from dplcli.execute.plan import KernelPlan, PlanOp, RefusedError
from dplcli.ir.model import called_function
from dplcli.ir.types import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dplcli.execute.plan import Setting, Shape
    from dplcli.ir import Attribute, Function, Node, Value

    OpenShape = tuple[int | None, ...]

_SAME_SHAPE = {
    "Abs": "abs",
    "Exp": "exp",
    "HardSwish": "hard_swish",
    "Log": "log",
    "Mish": "mish",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
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
_DTYPES = frozenset({"float32", "float16", "bfloat16"})
_LARGEST = float(np.finfo(np.float32).max)
_LAST_AXIS = 13
"""The opset from which a softmax is over one axis."""


def translate(call: Node, numbers: Mapping[str, np.ndarray]) -> KernelPlan:
    """Return what *call* computes, as a plan.

    Args:
        call: A call of a function.
        numbers: Constants of the model that the model does not hold itself, by name.

    Raises:
        RefusedError: Something in the body has no counterpart, or is not known well enough.
    """
    function = called_function(call)
    assert function is not None  # noqa: S101  # the caller has looked
    return _Translator(numbers).translate(call, function)


class _Translator:
    """Writes a plan.

    Attributes:
        plan: What is written.
        shapes: The shape of each value, with None for what is open; None if the rank is.
        arrays: The constants whose numbers are known.
    """

    def __init__(self, numbers: Mapping[str, np.ndarray]) -> None:
        self.plan = KernelPlan()
        self.given = numbers
        self.shapes: dict[int, OpenShape | None] = {}
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
            if value.name in self.given or value.is_constant:
                self.plan.constant.add(number)
                self.arrays[number] = partial(self._array, value)
                self.shapes[number] = self._known_shape(value)
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
        self.plan.numbers = {n: a for n, a in self.plan.numbers.items() if n in used}
        self.plan.scalars = {n: self._scalar(n, "") for n in self.arrays if self._is_scalar(n)}
        return self.plan

    def _drop_unread(self) -> None:
        """Leave out what nothing reads: transposes that products do by themselves."""
        needed = set(self.plan.outputs)
        for op in reversed(self.plan.ops):
            if op.output in needed:
                needed.update(op.inputs)
        self.plan.ops = [op for op in self.plan.ops if op.output in needed]

    def _array(self, value: Value) -> np.ndarray:
        given = self.given.get(value.name)
        if given is not None:
            return given
        tensor = value.constant
        if tensor is None:
            raise RefusedError(f"the numbers of {value.name!r} are not at hand")
        return tensor.numpy()

    def _known_shape(self, value: Value) -> Shape:
        given = self.given.get(value.name)
        if given is not None:
            return given.shape
        tensor = value.constant
        if tensor is None:
            raise RefusedError(f"the shape of {value.name!r} is not known")
        return tensor.shape

    def new(self, dtype: str, shape: OpenShape | None) -> int:
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
        self, kind: str, inputs: Sequence[int], shape: OpenShape | None, **settings: Setting
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
            attributes = {}
            for name, attribute in node.attributes.items():
                source = given.get(attribute.ref) if attribute.ref else attribute
                if source is not None:
                    attributes[name] = source
            gelu = self._gelu(node, made)
            if gelu is not None:
                operand, members, result = gelu
                done |= members
                made[result] = self.emit("gelu", [operand], self.shapes[operand])
                continue
            read = [None if value is None else made[value] for value in node.inputs]
            inner = called_function(node)
            if inner is not None:
                numbers = [number for number in read if number is not None]
                results = self.body(inner, attributes, numbers)
            else:
                results = [self.operator(node, _Facts(node, attributes), read)]
            pairs = zip(node.outputs, results, strict=False)
            made.update((value, number) for value, number in pairs if value is not None)
            extra = node.outputs[len(results) :]
            if any(value is not None and (value.use_count or value.returned_by) for value in extra):
                raise RefusedError(f"a further output of {node.op_type} is read")
        return [made[value] for value in function.body.outputs]

    # -- operators ---------------------------------------------------------------------------------

    def operator(self, node: Node, facts: _Facts, read: Sequence[int | None]) -> int:
        """Add what one node computes."""
        op_type = node.op_type
        if node.domain:
            raise RefusedError(f"operator {node.domain}.{op_type}")
        if op_type == "Constant":
            return self._constant(facts)
        first = read[0] if read else None
        if first is None:
            raise RefusedError(f"operator {op_type}")
        present = [number for number in read if number is not None]
        shape = self.shapes[first]
        if op_type in _SAME_SHAPE and len(present) == 1:
            return self.emit(_SAME_SHAPE[op_type], [first], shape)
        if op_type in _BROADCAST and len(present) > 1:
            return self._binary(_BROADCAST[op_type], present)
        if op_type in _WITH_ALPHA:
            kind, default = _WITH_ALPHA[op_type]
            return self.emit(kind, [first], shape, alpha=facts.number("alpha", default))
        handler = getattr(self, f"_{op_type.lower()}", None)
        if handler is None:
            raise RefusedError(f"operator {op_type}")
        result: int = handler(facts, read)
        return result

    def _constant(self, facts: _Facts) -> int:
        tensor = facts.attributes.get("value")
        if tensor is None or tensor.kind != "tensor":
            raise RefusedError("a Constant that is no tensor")
        assert isinstance(tensor.value, Tensor)  # noqa: S101  # it is of that kind
        return self.number(tensor.value.numpy())

    def _binary(self, kind: str, read: Sequence[int]) -> int:
        result = read[0]
        for other in read[1:]:
            added = None
            if kind == "add":
                added = self._bias(result, other) or self._bias(other, result)
            result = self._paired(kind, result, other) if added is None else added
        return result

    def _paired(self, kind: str, one: int, other: int) -> int:
        a, b = self.shapes[one], self.shapes[other]
        shape = None if a is None or b is None else _broadcast(a, b)
        read = [self._lifted(one), self._lifted(other)]
        return self.emit(kind, read, shape, auto_broadcast="numpy")

    def _lifted(self, number: int) -> int:
        """Return a scalar as a tensor of one element, which is what oneDNN takes."""
        if self.shapes[number] == ():
            if number in self.plan.numbers:
                return self.number(self.plan.numbers[number].reshape(1))
            if number in self.plan.inputs:
                self._view(number, (1,))
            else:
                raise RefusedError("a scalar that is computed")
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
        channels = shape[axis]
        sizes = [size for size in own if size is not None]
        count = math.prod(sizes)
        if (
            channels is None
            or count != channels
            or not 0 <= place < len(own)
            or len(own) > len(shape)
        ):
            return None
        if own[place] != count:
            return None
        self._view(row, (count,))
        op.inputs.append(row)
        return product

    def _spatial(self, facts: _Facts, rank: int) -> dict[str, Setting]:
        """Return what windows have in common."""
        if facts.text("auto_pad", "NOTSET") != "NOTSET":
            raise RefusedError("auto_pad")
        pads = facts.numbers("pads", [0] * 2 * rank)
        return {
            "strides": facts.numbers("strides", [1] * rank),
            "pads_begin": pads[:rank],
            "pads_end": pads[rank:],
            "dilations": facts.numbers("dilations", [1] * rank),
            "data_format": "NCX",
        }

    def _ranked(self, number: int | None, what: str) -> OpenShape:
        shape = None if number is None else self.shapes[number]
        if shape is None:
            raise RefusedError(f"the rank of {what} is not known")
        return shape

    def _conv(self, facts: _Facts, read: Sequence[int | None]) -> int:
        weights = self._ranked(read[1], "the weights")
        known = None if read[0] is None else self.shapes[read[0]]
        data = (None,) * len(weights) if known is None else known  # the rank is that of the weights
        rank = len(weights) - 2
        spatial = self._spatial(facts, rank)
        sizes = _windows(data[2:], weights[2:], spatial)
        shape = (data[0], weights[0], *sizes)
        present = [number for number in read if number is not None]
        group = int(facts.number("group", 1))
        return self.emit(
            "convolution", present, shape, groups=group, weights_format="OIX", **spatial
        )

    def _convtranspose(self, facts: _Facts, read: Sequence[int | None]) -> int:
        if "output_shape" in facts.attributes:
            raise RefusedError("a ConvTranspose of a stated shape")
        weights = self._ranked(read[1], "the weights")
        known = None if read[0] is None else self.shapes[read[0]]
        data = (None,) * len(weights) if known is None else known
        rank = len(weights) - 2
        spatial = self._spatial(facts, rank)
        group = int(facts.number("group", 1))
        channels = None if weights[1] is None else weights[1] * group
        return self.emit(
            "conv_transpose",
            [number for number in read if number is not None],
            (data[0], channels, *(None,) * rank),
            groups=group,
            weights_format="IOX",
            output_padding=facts.numbers("output_padding", [0] * rank),
            **spatial,
        )

    def _batchnormalization(self, facts: _Facts, read: Sequence[int | None]) -> int:
        if facts.number("training_mode", 0):
            raise RefusedError("a BatchNormalization that trains")
        given = [number for number in read[:5] if number is not None]
        return self.emit(
            "batch_norm_inference",
            given,
            self.shapes[given[0]],
            epsilon=float(facts.number("epsilon", 1e-5)),
            data_format="NCX",
        )

    def _clip(self, facts: _Facts, read: Sequence[int | None]) -> int:
        low, high = facts.number("min", -_LARGEST), facts.number("max", _LARGEST)
        if len(read) > 1 and read[1] is not None:
            low = self._scalar(read[1], "a bound of Clip")
        if len(read) > 2 and read[2] is not None:  # noqa: PLR2004  # the upper bound
            high = self._scalar(read[2], "a bound of Clip")
        data = read[0]
        assert data is not None  # noqa: S101  # see operator()
        return self.emit("clamp", [data], self.shapes[data], min=float(low), max=float(high))

    def _is_scalar(self, number: int) -> bool:
        shape = self.shapes[number]
        return shape is not None and all(size == 1 for size in shape)

    def _scalar(self, number: int, what: str) -> float:
        if number not in self.arrays:
            raise RefusedError(f"{what} is not constant")
        array = self.arrays[number]()
        if array.size != 1:
            raise RefusedError(f"{what} is not one number")
        return float(array.reshape(-1)[0])

    def _matmul(self, _: _Facts, read: Sequence[int | None]) -> int:
        a, b = self._ranked(read[0], "an operand"), self._ranked(read[1], "an operand")
        if min(len(a), len(b)) < 2:  # noqa: PLR2004  # matrices
            raise RefusedError("a MatMul of vectors")
        batch = _broadcast(a[:-2], b[:-2])
        shape = None if batch is None else (*batch, a[-2], b[-1])
        (first, is_first), (second, is_second) = map(self._turned, read[:2])
        return self.emit(
            "matmul", [first, second], shape, transpose_a=is_first, transpose_b=is_second
        )

    def _turned(self, number: int | None) -> tuple[int, bool]:
        """Return an operand of a product, or what it is the transpose of."""
        assert number is not None  # noqa: S101  # it has a rank
        maker = next((op for op in self.plan.ops if op.output == number), None)
        if maker is not None and maker.kind == "static_transpose":
            order = maker.settings["order"]
            rank = len(self._ranked(number, "an operand"))
            if order == [*range(rank - 2), rank - 1, rank - 2]:
                return maker.inputs[0], True
        return number, False

    def _gemm(self, facts: _Facts, read: Sequence[int | None]) -> int:
        if facts.number("alpha", 1.0) != 1 or facts.number("beta", 1.0) != 1:
            raise RefusedError("a Gemm with alpha or beta")
        a, b = self._ranked(read[0], "an operand"), self._ranked(read[1], "an operand")
        turned = [bool(facts.number(name, 0)) for name in ("transA", "transB")]
        rows = a[-1] if turned[0] else a[0]
        columns = b[0] if turned[1] else b[-1]
        operands = [n for n in read[:2] if n is not None]
        product = self.emit(
            "matmul", operands, (rows, columns), transpose_a=turned[0], transpose_b=turned[1]
        )
        third = read[2] if len(read) > 2 else None  # noqa: PLR2004  # the bias
        return product if third is None else self._binary("add", [product, third])

    def _transpose(self, facts: _Facts, read: Sequence[int | None]) -> int:
        data = read[0]
        shape = self._ranked(data, "the data")
        order = facts.numbers("perm", [*range(len(shape))][::-1])
        assert data is not None  # noqa: S101  # it has a rank
        return self.emit("static_transpose", [data], tuple(shape[n] for n in order), order=order)

    def _softmax(self, facts: _Facts, read: Sequence[int | None], kind: str = "softmax") -> int:
        shape = self._ranked(read[0], "the data")
        axis = int(facts.number("axis", -1 if facts.opset >= _LAST_AXIS else 1))
        if facts.opset < _LAST_AXIS and axis not in {-1, len(shape) - 1}:
            raise RefusedError("a Softmax over several axes")
        return self.emit(kind, [n for n in read if n is not None], shape, axis=axis)

    def _logsoftmax(self, facts: _Facts, read: Sequence[int | None]) -> int:
        return self._softmax(facts, read, "log_softmax")

    def _layernormalization(self, facts: _Facts, read: Sequence[int | None]) -> int:
        shape = self._ranked(read[0], "the data")
        axis = int(facts.number("axis", -1))
        if axis not in {-1, len(shape) - 1}:
            raise RefusedError("a LayerNormalization over several axes")
        given = [number for number in read if number is not None]
        if len(given) == 2:  # noqa: PLR2004  # a scale alone
            raise RefusedError("a LayerNormalization without a bias")
        return self.emit(
            "layer_norm",
            given,
            shape,
            keep_stats=False,
            begin_norm_axis=-1,
            use_affine=len(given) > 1,
            epsilon=float(facts.number("epsilon", 1e-5)),
        )

    def _identity(self, _: _Facts, read: Sequence[int | None]) -> int:
        assert read[0] is not None  # noqa: S101  # see operator()
        return read[0]

    def _globalaveragepool(self, _: _Facts, read: Sequence[int | None]) -> int:
        shape = self._ranked(read[0], "the data")
        axes = list(range(2, len(shape)))
        made = (*shape[:2], *[1] * len(axes))
        return self.emit(
            "reduce_mean", [n for n in read if n is not None], made, axes=axes, keep_dims=True
        )

    def _maxpool(self, facts: _Facts, read: Sequence[int | None], kind: str = "max_pool") -> int:
        data = self._ranked(read[0], "the data")
        kernel = facts.numbers("kernel_shape", [])
        spatial = self._spatial(facts, len(kernel))
        up = bool(facts.number("ceil_mode", 0))
        if up or facts.number("storage_order", 0):
            raise RefusedError("a pool that rounds up, or orders by columns")
        sizes = _windows(data[2:], kernel, spatial)
        if kind == "avg_pool":
            if any(step != 1 for step in facts.numbers("dilations", [])):
                raise RefusedError("an AveragePool with dilations")
            spatial.pop("dilations")
            spatial["exclude_pad"] = not facts.number("count_include_pad", 0)
        return self.emit(
            kind,
            [n for n in read if n is not None],
            (*data[:2], *sizes),
            kernel=kernel,
            rounding_type="floor",
            **spatial,
        )

    def _averagepool(self, facts: _Facts, read: Sequence[int | None]) -> int:
        return self._maxpool(facts, read, "avg_pool")

    # -- several operators that are one ------------------------------------------------------------

    def _gelu(self, node: Node, made: Mapping[Value, int]) -> tuple[int, set[Node], Value] | None:
        """Recognise a Gelu, also one that is written with Erf, whose first node is *node*.

        Returns:
            What it reads, its nodes, and what it makes.
        """
        source = node.inputs[0] if node.inputs else None
        if node.op_type == "Gelu" and not node.domain and source is not None:
            if "approximate" in node.attributes and node.attributes["approximate"].value != b"none":
                raise RefusedError("a Gelu by tanh")
            return made[source], {node}, _only(node)
        if node.op_type not in {"Div", "Mul"}:
            return None
        for value in dict.fromkeys(node.inputs):
            if value is None or made.get(value) in self.arrays:
                continue
            members = self._nodes_of_gelu(node, value, made)
            if members:
                result = _only(members[-1])
                inner = {_only(member) for member in members} - {result}
                users = [user for each in inner for user, _ in each.iter_uses()]
                is_whole = not any(each.returned_by for each in inner)
                return (
                    (made[value], set(members), result)
                    if (is_whole and all(user in members for user in users))
                    else None
                )
        return None

    def _nodes_of_gelu(self, first: Node, source: Value, made: Mapping[Value, int]) -> list[Node]:
        """Return the nodes from *first* on that compute a Gelu of *source*; none if none do.

        What they compute is tried with numbers: that is proof enough of what they are, and blind
        to how they are ordered.
        """
        after = list(first.graph)
        known: dict[Value, Any] = {source: _SAMPLES}
        members: list[Node] = []
        for node in after[after.index(first) :]:
            function = _ARITHMETIC.get(node.op_type)
            read = [self._sampled(value, known, made) for value in node.inputs]
            if function is None or node.domain or any(value is None for value in read):
                continue
            members.append(node)
            result = known[_only(node)] = function(*read)
            if np.shape(result) == _SAMPLES.shape and np.allclose(result, _GELU, atol=1e-5):
                return members
        return []

    def _sampled(
        self, value: Value | None, known: Mapping[Value, Any], made: Mapping[Value, int]
    ) -> NDArray[Any] | float | None:
        if value is None:
            return None
        if value in known:
            found: NDArray[Any] = known[value]
            return found
        number = made.get(value)
        if number is None or number not in self.arrays or not self._is_scalar(number):
            return None
        return float(self.arrays[number]().reshape(-1)[0])


_erf = np.vectorize(math.erf)
_SAMPLES = np.linspace(-6, 6, 97)
_GELU = _SAMPLES * 0.5 * (1 + _erf(_SAMPLES / math.sqrt(2)))
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Div": np.divide,
    "Erf": _erf,
}


class _Facts:
    """The attributes of a node as the call gives them."""

    def __init__(self, node: Node, attributes: Mapping[str, Attribute]) -> None:
        self.attributes = attributes
        self.opset = node.graph.opset_imports.get(node.domain, 0)

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
        return default if found is None else found.value


def _only(node: Node) -> Value:
    (value,) = [output for output in node.outputs if output is not None]
    return value


def _plain(shape: Sequence[int | str | None] | None) -> OpenShape | None:
    """Return a shape with None for what is a symbol."""
    if shape is None:
        return None
    return tuple(size if isinstance(size, int) else None for size in shape)


def _broadcast(one: Sequence[int | None], other: Sequence[int | None]) -> OpenShape | None:
    """Return the shape of a broadcast; None for a size that is open."""
    length = max(len(one), len(other))
    pairs = zip(
        (1,) * (length - len(one)) + tuple(one),
        (1,) * (length - len(other)) + tuple(other),
        strict=True,
    )
    return tuple(b if a == 1 else a if b in {1, a} else None for a, b in pairs)


def _windows(
    sizes: OpenShape, kernel: Sequence[int | None], spatial: Mapping[str, Any]
) -> list[int | None]:
    """Return over how many places windows run, by dimension."""
    found: list[int | None] = []
    for n, (size, width) in enumerate(zip(sizes, kernel, strict=True)):
        if size is None or width is None:
            found.append(None)
            continue
        reach = spatial["dilations"][n] * (width - 1) + 1
        room = size + spatial["pads_begin"][n] + spatial["pads_end"][n] - reach
        found.append(room // spatial["strides"][n] + 1)
    return found
