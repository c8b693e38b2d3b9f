"""A plan as one product, and what is done to its result: what a library for GPUs runs in one call.

A plan is a product if it is a MatMul or a convolution, then perhaps a bias, an activation, a tensor
that is added or multiplied, and another activation. What an activation is called is found by its
numbers, so that it does not matter how a body spells it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.execute.plan import RefusedError, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from dplcli.execute.plan import KernelPlan, OpenShape, PlanOp, Setting, Shape


@dataclass(frozen=True)
class Product:
    """One product. Values are numbers of the plan.

    Attributes:
        kind: ``matmul`` or ``convolution``.
        left: The left matrix, or the image.
        right: The right matrix, or the filter.
        bias: A row with one number for each column, or channel.
        activation: What is done to the biased result, a key of :data:`CURVES`; "" for nothing.
        binary: What then is done with *residual*: ``add`` or ``multiply``; "" for nothing.
        residual: A tensor of the shape of the result, or a row as *bias* is.
        last: What is done in the end, as *activation*.
        settings: The attributes of the MatMul, or convolution.
        shapes: The shapes of what is read.
        shape: The shape of the result.
        dtype: The type of all elements.
    """

    kind: str
    left: int
    right: int
    bias: int | None
    activation: str
    binary: str
    residual: int | None
    last: str
    settings: Mapping[str, Setting]
    shapes: Mapping[int, Shape]
    shape: Shape
    dtype: str

    @property
    def is_row(self) -> bool:
        """Whether the residual is a row."""
        return self.residual is not None and self.shapes[self.residual] != self.shape


@dataclass(frozen=True)
class Matrices:
    """A MatMul as matrices in row-major order.

    Attributes:
        rows: Of the left matrix and the result.
        depth: Columns of the left matrix, and rows of the right one.
        columns: Of the right matrix and the result.
        batch: How many products there are.
        left_stride: Elements from one left matrix to the next; 0 if it is the same.
        right_stride: The same of the right ones.
        is_left_turned: Whether the left matrix is stored transposed.
        is_right_turned: Whether the right one is.
        is_spread: Whether both have to be repeated first, so that each has all batches.
    """

    rows: int
    depth: int
    columns: int
    batch: int
    left_stride: int
    right_stride: int
    is_left_turned: bool
    is_right_turned: bool
    is_spread: bool = False


def sampled(shapes: Mapping[int, OpenShape]) -> dict[int, Shape]:
    """Return shapes with numbers for what is open: one for each symbol, and 1 for what has none.

    For the question whether a library would run a plan at all.
    """
    symbols = {size for shape in shapes.values() for size in shape if isinstance(size, str)}
    sizes = dict(zip(sorted(symbols), count(101), strict=False))
    return {
        number: tuple(size if isinstance(size, int) else sizes.get(size or "", 1) for size in shape)
        for number, shape in shapes.items()
    }


def product_of(plan: KernelPlan, shapes: Mapping[int, Shape]) -> Product:
    """Return what a plan computes, as one product.

    Args:
        plan: The plan.
        shapes: The shapes of its inputs.

    Raises:
        RefusedError: It is something else, or a shape is missing.
    """
    if plan.is_region:
        raise RefusedError("it is a region, and a call of the library is one product")
    if len(plan.outputs) != 1:
        raise RefusedError("it returns several values")
    return _Reader(plan, shapes).product()


class _Reader:
    """Reads a plan from its product to its end."""

    def __init__(self, plan: KernelPlan, shapes: Mapping[int, Shape]) -> None:
        self.plan = plan
        self.shapes = {**shapes, **{n: array.shape for n, array in plan.numbers.items()}}
        self.main, *self.rest = plan.ops
        if self.main.kind not in {"matmul", "convolution"}:
            raise RefusedError(f"{self.main.kind}, which is no product")
        self.axis = -1 if self.main.kind == "matmul" else 1
        self.shape = self._result(self.main)
        self.value = self.main.output

    def product(self) -> Product:
        left, right, *more = self.main.inputs
        bias = more[0] if more else self._added_row()
        activation = self._activation()
        binary, residual = self._binary()
        last = self._activation() if binary else ""
        if self.rest:
            raise RefusedError(f"{self.rest[0].kind} after the product")
        if self.value != self.plan.outputs[0]:
            raise RefusedError("it returns something before the end")
        read = (left, right, bias, residual, self.value)
        dtypes = {self.plan.dtypes[number] for number in read if number is not None}
        if len(dtypes) > 1:
            raise RefusedError(f"types {', '.join(sorted(dtypes))} in one product")
        main, parts = self.main, (left, right, bias, activation, binary, residual, last)
        return Product(main.kind, *parts, main.settings, self.shapes, self.shape, dtypes.pop())

    def _read(self, number: int) -> Shape:
        if number not in self.shapes:
            raise RefusedError("the rank of an input is not known, or it is computed")
        return self.shapes[number]

    def _result(self, op: PlanOp) -> Shape:
        left, right = self._read(op.inputs[0]), self._read(op.inputs[1])
        if op.kind == "convolution":
            places = windows(left[2:], right[2:], op.settings)
            return (left[0], right[0], *(place or 0 for place in places))
        try:
            batch = np.broadcast_shapes(left[:-2], right[:-2])
        except ValueError:
            raise RefusedError("the batches of its matrices differ") from None
        rows = left[-1] if op.settings["transpose_a"] else left[-2]
        return (*batch, rows, right[-2] if op.settings["transpose_b"] else right[-1])

    def _takes(self, op: PlanOp) -> list[int]:
        """Return what an operator reads besides the result so far, which it reads once."""
        others = [number for number in op.inputs if number != self.value]
        return others if len(others) == len(op.inputs) - 1 else []

    def _is_row(self, number: int) -> bool:
        shape = self._read(number)
        place = self.axis + (len(shape) if self.axis < 0 else len(shape) - len(self.shape))
        channels = self.shape[self.axis]
        return (
            len(shape) <= len(self.shape)
            and 0 <= place < len(shape)
            and shape[place] == channels == math.prod(shape)
        )

    def _added_row(self) -> int | None:
        if self.rest and self.rest[0].kind == "add":
            (other, *_) = self._takes(self.rest[0]) or (None,)
            if other is not None and self._is_row(other):
                self.value = self.rest.pop(0).output
                return other
        return None

    def _binary(self) -> tuple[str, int | None]:
        if not self.rest or self.rest[0].kind not in {"add", "multiply"}:
            return "", None
        op = self.rest[0]
        (other, *_) = self._takes(op) or (None,)
        if other is None:
            raise RefusedError(f"{op.kind} of the product and itself")
        if self._read(other) != self.shape and not self._is_row(other):
            raise RefusedError(f"{op.kind} of a tensor that is neither a row nor of the same shape")
        self.value = self.rest.pop(0).output
        return op.kind, other

    def _activation(self) -> str:
        """Take the operators off that compute an activation, and return its name."""
        known: dict[int, Any] = {self.value: SAMPLES}
        name, end, result = "", 0, self.value
        for place, op in enumerate(self.rest, 1):
            function = _FUNCTIONS.get(op.kind)
            operands = [known.get(n, self.plan.scalars.get(n)) for n in op.inputs]
            if function is None or any(operand is None for operand in operands):
                break
            with np.errstate(all="ignore"):
                made = known[op.output] = function(op.settings, *operands)
            later = {number for other in self.rest[place:] for number in other.inputs}
            close = (n for n, c in CURVES.items() if np.allclose(made, c, rtol=1e-5, atol=1e-6))
            found = next(close, "")
            if found and not later & (known.keys() - {op.output}):
                name, end, result = found, place, op.output
        self.value, self.rest = result, self.rest[end:]
        return name


def matrices_of(product: Product) -> Matrices:
    """Return a MatMul as matrices."""
    left, right = product.shapes[product.left], product.shapes[product.right]
    turned = bool(product.settings["transpose_a"]), bool(product.settings["transpose_b"])
    rows, depth = left[:-3:-1] if turned[0] else left[-2:]
    columns = right[-2] if turned[1] else right[-1]
    batches = [math.prod(shape[:-2]) for shape in (left, right)]
    if batches[1] == 1 and not turned[0]:  # one tall product
        return Matrices(rows * batches[0], depth, columns, 1, 0, 0, *turned)
    is_spread = 1 not in batches and _stripped(left[:-2]) != _stripped(right[:-2])
    lefts = rows * depth if is_spread or batches[0] > 1 else 0
    rights = depth * columns if is_spread or batches[1] > 1 else 0
    batch = math.prod(product.shape[:-2])
    return Matrices(rows, depth, columns, batch, lefts, rights, *turned, is_spread=is_spread)


def whole(product: Product) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return what gives either matrix of a product all batches, if it has to have them."""
    batch = product.shape[:-2]
    if not matrices_of(product).is_spread:
        return lambda array: array
    return lambda array: np.broadcast_to(array, (*batch, *array.shape[-2:]))


def _stripped(batch: Shape) -> Shape:
    """Return sizes without the ones that they begin with."""
    first = next((place for place, size in enumerate(batch) if size != 1), len(batch))
    return batch[first:]


_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(array: NDArray[Any]) -> NDArray[Any]:
    """Compute a Gelu by erf, in float64."""
    wide = array.astype(np.float64)
    made: NDArray[Any] = 0.5 * wide * (1 + _erf(wide / math.sqrt(2)))
    return made


def _sigmoid(array: Any) -> Any:  # noqa: ANN401  # numbers of any shape
    return 1 / (1 + np.exp(-array))


def _hard_swish(array: Any) -> Any:  # noqa: ANN401  # numbers of any shape
    return array * np.clip(array + 3, 0, 6) / 6


_LARGE = np.array([20, 300, 1e4, 1e8, 1e16, 1e30, 3e38])
SAMPLES = np.concatenate([np.linspace(-9, 9, 109), _LARGE, -_LARGE])
"""Numbers that activations are known by; large ones, too: a Clip to 0 and 100 is no Relu."""

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda _, a, b: np.add(a, b),
    "clamp": lambda settings, a: np.clip(a, settings["min"], settings["max"]),
    "divide": lambda _, a, b: np.divide(a, b),
    "exp": lambda _, a: np.exp(a),
    "gelu": lambda _, a: gelu(a),
    "hard_swish": lambda _, a: _hard_swish(a),
    "maximum": lambda _, a, b: np.maximum(a, b),
    "minimum": lambda _, a, b: np.minimum(a, b),
    "multiply": lambda _, a, b: np.multiply(a, b),
    "relu": lambda _, a: np.maximum(a, 0),
    "sigmoid": lambda _, a: _sigmoid(a),
    "subtract": lambda _, a, b: np.subtract(a, b),
    "tanh": lambda _, a: np.tanh(a),
}
"""What operators of a plan do to numbers."""

with np.errstate(over="ignore"):
    CURVES = {
        "relu": np.maximum(SAMPLES, 0),
        "sigmoid": _sigmoid(SAMPLES),
        "silu": SAMPLES * _sigmoid(SAMPLES),
        "hard_swish": _hard_swish(SAMPLES),
        "gelu": gelu(SAMPLES),
    }
"""What activations do to the samples."""
