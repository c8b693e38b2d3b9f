"""A plan as one product: what is one, what nearly is, and what activations are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplcli.execute.plan import KernelPlan, PlanOp, RefusedError
from dplcli.execute.product import matrices_of, product_of, sampled

X, W, Z, S = 0, 1, 2, 3
"""Values of the plans here: the matrices or image and filter, another tensor, a number."""

TURNS: dict[str, Any] = {"transpose_a": False, "transpose_b": False}
WINDOW: dict[str, Any] = {
    "strides": [2, 1],
    "pads_begin": [1, 0],
    "pads_end": [2, 0],
    "dilations": [1, 2],
    "groups": 1,
}


def made(*ops: PlanOp, kind: str = "matmul", scalar: float = 0.0) -> KernelPlan:
    """Return a plan: a product that makes 10, and what follows it."""
    settings = TURNS if kind == "matmul" else WINDOW
    plan = KernelPlan([PlanOp(kind, [X, W], 10, settings), *ops], [X, W, Z, S])
    plan.outputs = [plan.ops[-1].output]
    plan.dtypes = dict.fromkeys(range(20), "float32")
    plan.scalars = {S: scalar}
    return plan


SHAPES = {X: (4, 3), W: (3, 5), Z: (5,), S: (1,)}


def test_a_product_is_read_to_its_end() -> None:
    """Bias, activation, residual and the last activation."""
    plan = made(
        PlanOp("add", [Z, 10], 11),
        PlanOp("sigmoid", [11], 12),
        PlanOp("multiply", [12, 11], 13),
        PlanOp("add", [13, 4], 14),
        PlanOp("clamp", [14], 15, {"min": 0.0, "max": 3.4028234663852886e38}),
    )
    product = product_of(plan, SHAPES | {4: (4, 5)})
    assert (product.bias, product.activation) == (Z, "silu")
    assert (product.binary, product.residual, product.last) == ("add", 4, "relu")
    assert not product.is_row
    assert product.shape == (4, 5)


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        ([PlanOp("tanh", [10], 11)], "tanh after the product"),
        ([PlanOp("clamp", [10], 11, {"min": 0.0, "max": 6.0})], "clamp after the product"),
        ([PlanOp("clamp", [10], 11, {"min": 0.0, "max": 1e6})], "clamp after the product"),
        ([PlanOp("add", [10, 10], 11)], "add of the product and itself"),
        ([PlanOp("subtract", [10, Z], 11)], "subtract after the product"),
        ([PlanOp("relu", [10], 11), PlanOp("sigmoid", [11], 12)], "sigmoid after the product"),
        # an inner value of what would be an activation is read again
        (
            [
                PlanOp("sigmoid", [10], 11),
                PlanOp("multiply", [10, 11], 12),
                PlanOp("add", [12, 11], 13),
            ],
            "sigmoid after the product",
        ),
    ],
)
def test_near_misses_of_activations(ops: list[PlanOp], said: str) -> None:
    """What is no activation of the tables stays a reason."""
    with pytest.raises(RefusedError, match=said):
        product_of(made(*ops), SHAPES)


@pytest.mark.parametrize("shape", [(4, 1), (1,), (4,), (1, 4, 5), (2, 5)])
def test_near_misses_of_a_bias(shape: tuple[int, ...]) -> None:
    """A bias is a row, and a residual has the shape of the result."""
    with pytest.raises(RefusedError, match="add of a tensor that is neither a row"):
        product_of(made(PlanOp("add", [10, Z], 11)), SHAPES | {Z: shape})


def test_hard_swish_is_known_by_its_numbers() -> None:
    """However it is spelled; with another number it is none."""
    clip: dict[str, Any] = {"min": 0.0, "max": 6.0}
    ops = [
        PlanOp("add", [10, 4], 11),
        PlanOp("clamp", [11], 12, clip),
        PlanOp("multiply", [10, 12], 13),
        PlanOp("divide", [13, S], 14),
    ]
    for divisor, found in ((6.0, "hard_swish"), (6.1, "")):
        plan = made(*ops, scalar=divisor)
        plan.scalars[4] = 3.0
        shapes = SHAPES | {4: (1,)}
        if found:
            assert product_of(plan, shapes).activation == found
        else:
            with pytest.raises(RefusedError):
                product_of(plan, shapes)


def test_other_plans_are_refused() -> None:
    """Regions, several results, types that differ, and what begins otherwise."""
    region = made()
    region.is_region = True
    several = made(PlanOp("relu", [10], 11))
    several.outputs = [11, 10]
    inner = made(PlanOp("relu", [10], 11))
    inner.outputs = [10]
    mixed = made()
    mixed.dtypes[W] = "float16"
    late = made()
    late.ops.insert(0, PlanOp("relu", [X], 9))
    for plan, said in (
        (region, "a region"),
        (several, "several values"),
        (inner, "before the end"),
        (mixed, "types float16, float32"),
        (late, "relu, which is no product"),
    ):
        with pytest.raises(RefusedError, match=said):
            product_of(plan, SHAPES)
    with pytest.raises(RefusedError, match="the rank of an input is not known"):
        product_of(made(), {X: (4, 3)})
    with pytest.raises(RefusedError, match="batches of its matrices differ"):
        product_of(made(), {X: (2, 4, 3), W: (3, 3, 5)})


def test_windows_of_a_convolution() -> None:
    """Padding on both sides, stride and dilation, each by dimension."""
    product = product_of(made(kind="convolution"), {X: (1, 3, 9, 8), W: (4, 3, 3, 3)})
    assert product.shape == (1, 4, 5, 4)


@pytest.mark.parametrize(
    ("left", "right", "facts"),
    [
        ((2, 7, 4, 3), (3, 5), (56, 1, 0, 0, False)),  # one tall product
        ((2, 7, 4, 3), (1, 1, 3, 5), (56, 1, 0, 0, False)),
        ((2, 7, 4, 3), (2, 7, 3, 5), (4, 14, 12, 15, False)),
        ((1, 4, 3), (7, 3, 5), (4, 7, 0, 15, False)),
        ((2, 1, 4, 3), (7, 3, 5), (4, 14, 12, 15, True)),  # repeated first
        ((1, 2, 4, 3), (2, 1, 3, 5), (4, 4, 12, 15, True)),  # as many, and not one by one
        ((0, 4, 3), (3, 5), (0, 1, 0, 0, False)),
    ],
)
def test_batches(
    left: tuple[int, ...], right: tuple[int, ...], facts: tuple[int, int, int, int, bool]
) -> None:
    """How many products there are, and how far apart."""
    found = matrices_of(product_of(made(), {X: left, W: right}))
    steps = found.left_stride, found.right_stride, found.is_spread
    assert (found.rows, found.batch, *steps) == facts
    assert found.rows * found.batch * 5 == np.prod(product_of(made(), {X: left, W: right}).shape)


def test_open_sizes_are_alike_by_name() -> None:
    """A symbol is one size everywhere; what has none fits anything."""
    found = sampled({0: ("N", 3, None), 1: ("N", "M", 3)})
    assert found[0][0] == found[1][0] != found[1][1]
    assert found[0][1:] == (3, 1)
