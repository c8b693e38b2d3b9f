"""An operator with a binary one behind it: what oneDNN makes of both is right, or it is not asked.

That is for all shapes that broadcast to that of the first operator's result.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from dplcli.execute.onednn.faults import misread
from dplcli.execute.onednn.graph import OneDnn
from dplcli.execute.plan import KernelPlan, PlanOp
from tests.execute.support import needs_onednn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dplcli.execute.plan import OpenShape, Setting, Shape

    Array = Any

X, W, FIRST, OPERAND, SECOND, LAST = range(6)
"""The values of a plan: what the operator reads, what it makes, and so on."""


class Operator(NamedTuple):
    """An operator.

    Attributes:
        kind: Its kind.
        reads: The shapes of what it reads.
        compute: It, in numpy.
        settings: Its attributes.
    """

    kind: str
    reads: tuple[Shape, ...]
    compute: Callable[..., Array]
    settings: dict[str, Setting]


def softmax(x: Array) -> Array:
    """Over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def windows(x: Array) -> Array:
    """Return the windows of 3 x 3 of images."""
    return sliding_window_view(x, (3, 3), (2, 3))


def normalised(x: Array) -> Array:
    """Over the last axis."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def by_channels(x: Array, w: Array) -> Array:
    """Convolve with windows of one place."""
    return np.einsum("nchw,ochw->nohw", x, np.broadcast_to(w, (*w.shape[:2], *x.shape[2:])))


PLACES: dict[str, Setting] = {"strides": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
POOL: dict[str, Setting] = {**PLACES, "kernel": (3, 3), "rounding_type": "floor"}
IMAGES: dict[str, Setting] = {"data_format": "NCX"}
OPERATORS = {
    "matrices": Operator("matmul", ((5, 8), (8, 6)), np.matmul, {}),
    "3 by matrix": Operator("matmul", ((3, 5, 8), (8, 6)), np.matmul, {}),
    "4 by matrix": Operator("matmul", ((2, 3, 5, 8), (8, 6)), np.matmul, {}),
    "turned": Operator(
        "matmul", ((2, 3, 5, 8), (6, 8)), lambda x, w: x @ w.T, {"transpose_b": True}
    ),
    "batches": Operator("matmul", ((2, 3, 5, 8), (2, 3, 8, 6)), np.matmul, {}),
    "convolution": Operator(
        "convolution",
        ((2, 4, 5, 7), (6, 4, 1, 1)),
        by_channels,
        {**PLACES, **IMAGES, "dilations": (1, 1), "groups": 1, "weights_format": "OIX"},
    ),
    "max": Operator(
        "max_pool",
        ((2, 6, 5, 7),),
        lambda x: windows(x).max((-1, -2)),
        {**POOL, **IMAGES, "dilations": (1, 1)},
    ),
    "average": Operator(
        "avg_pool",
        ((2, 6, 5, 7),),
        lambda x: windows(x).mean((-1, -2)),
        {**POOL, **IMAGES, "exclude_pad": False},
    ),
    "softmax": Operator("softmax", ((3, 5, 7),), softmax, {"axis": -1}),
    "normal": Operator(
        "layer_norm",
        ((3, 5, 7),),
        normalised,
        {"epsilon": 1e-5, "keep_stats": False, "begin_norm_axis": -1, "use_affine": False},
    ),
    "mean": Operator(
        "reduce_mean",
        ((2, 3, 5, 7),),
        lambda x: x.mean((2, 3), keepdims=True),
        {"axes": [2, 3], "keep_dims": True},
    ),
    "tanh": Operator("tanh", ((2, 3, 5, 7),), np.tanh, {}),
}
QUICK = {"4 by matrix", "max"}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "multiply": np.multiply,
    "subtract": np.subtract,
    "maximum": np.maximum,
}


def operands(whole: Shape) -> Iterator[Shape]:
    """Yield all shapes that broadcast to one."""
    for rank in range(1, len(whole) + 1):
        for mask in product((True, False), repeat=rank):
            last = whole[len(whole) - rank :]
            yield tuple(size if kept else 1 for size, kept in zip(last, mask, strict=True))


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in OPERATORS],
)
def test_what_is_fused_is_right(name: str) -> None:
    """In a region, on either side, alone or with an activation between or behind."""
    needs_onednn()
    library = OneDnn(1)
    operator = OPERATORS[name]
    random = np.random.default_rng(0)
    fed = [random.standard_normal(shape).astype(np.float32) for shape in operator.reads]
    whole = operator.compute(*fed)
    for number, shape in enumerate(operands(whole.shape)):
        operand = random.standard_normal(shape).astype(np.float32)
        for place, kind in enumerate(BINARY):
            is_left, is_constant, bent = bool(number % 2), bool(place % 2), (number + place) % 3
            ops = [
                PlanOp(operator.kind, [X, W][: len(fed)], FIRST, operator.settings),
                PlanOp("relu", [FIRST], LAST),
            ][: 2 if bent == 1 else 1]
            pair = [ops[-1].output, OPERAND]
            ops.append(
                PlanOp(kind, pair[::-1] if is_left else pair, SECOND, {"auto_broadcast": "numpy"})
            )
            if bent == 2:  # of three ways
                ops.append(PlanOp("relu", [SECOND], LAST))
            reads = dict(zip((X, W), fed, strict=False)) | {OPERAND: operand}
            plan = KernelPlan(
                ops=ops,
                inputs=list(reads),
                outputs=[ops[-1].output],
                dtypes=dict.fromkeys(range(6), "float32"),
                constant={OPERAND} if is_constant else set(),
                shapes={value: array.shape for value, array in reads.items()},
                is_region=True,
            )
            assert library.judge(plan) == ""
            compiled = library.compile(plan, {value: a.shape for value, a in reads.items()})
            found = np.full(compiled.output_shapes[0], np.nan, np.float32)
            compiled.run({value: a.ctypes.data for value, a in reads.items()}, [found.ctypes.data])
            middle = np.maximum(whole, 0) if bent == 1 else whole
            wanted = BINARY[kind](*((operand, middle) if is_left else (middle, operand)))
            if bent == 2:
                wanted = np.maximum(wanted, 0)
            np.testing.assert_allclose(found, wanted, 1e-4, 1e-4, err_msg=f"{kind} {shape} {bent}")


@pytest.mark.parametrize(
    ("data", "weights", "operand", "is_apart"),
    [
        (("n", 4, 8), (8, 16), (16,), False),
        (("n", 4, 8), (8, 16), (1, 1, 16), False),
        (("n", 4, 8), (8, 16), ("n", 4, 16), False),
        (("n", 4, 8), (8, 16), (4, 16), True),
        (("n", 4, 8), (8, 16), ("m", 4, 16), True),
        ((None, 4, 8), (8, 16), (None, 4, 16), True),  # they may be two numbers
        ((4, 8), (8, 16), (4, 1), False),
        (("n", 4, 8), ("n", 8, 16), (4, 16), False),
        (None, (8, 16), (4, 16), True),
        (None, (2, 8, 16), (4, 16), False),
        (("n", 4, 8), (8, 16), None, True),
    ],
)
def test_shapes_that_are_open(
    data: OpenShape | None, weights: OpenShape | None, operand: OpenShape | None, *, is_apart: bool
) -> None:
    """What is not known to fit is kept apart, and runs all the same."""
    needs_onednn()
    stated = {X: data, W: weights, OPERAND: operand}
    plan = KernelPlan(
        ops=[
            PlanOp("matmul", [X, W], FIRST),
            PlanOp("relu", [FIRST], LAST),
            PlanOp("add", [OPERAND, LAST], SECOND),
        ],
        inputs=[X, W, OPERAND],
        outputs=[SECOND],
        dtypes=dict.fromkeys(range(6), "float32"),
        shapes={value: shape for value, shape in stated.items() if shape is not None},
    )
    assert misread(plan) == ({LAST} if is_apart else set())
    assert OneDnn(1).judge(plan) == ""
