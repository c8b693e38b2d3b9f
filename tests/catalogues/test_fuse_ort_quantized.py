"""What the rules of ``fuse_ort_quantized.yaml`` make of random numbers, in steps of the scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tests.catalogues.fused import (
    SEEDS,
    Array,
    Arrays,
    Case,
    before_and_after,
    floats,
)
from tests.support.processor import adds_in_32_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

pytestmark = pytest.mark.long


def encoding(
    rng: np.random.Generator, name: str, dtype: str, scale: float, zero: float = 0.5
) -> Arrays:
    """Draw a scale, and a zero point near a place between the lowest number and the highest."""
    bounds = np.iinfo(dtype)
    place = bounds.min + zero * 255 + rng.integers(-20, 20)
    return {
        f"s{name}": np.array(scale * rng.uniform(0.5, 2), np.float32),
        f"z{name}": np.clip(place, bounds.min, bounds.max).astype(dtype),
    }


def numbers(rng: np.random.Generator, dtype: str, *dims: int) -> Array:
    """Draw from all numbers of a type."""
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max + 1, dims).astype(dtype)


PLAIN = {
    "Add": ("QLinearAdd", "r = Add (da, db)", 0.05),
    "Mul": ("QLinearMul", "r = Mul (da, db)", 0.1),
    "Where": ("QLinearWhere", "r = Where (k, da, db)", 0.02),
    "Concat": ("QLinearConcat", "r = Concat <axis = -1> (da, db, da)", 0.02),
    "Sigmoid": ("QLinearSigmoid", "r = Sigmoid (da)", 1 / 256),
    "LeakyRelu": ("QLinearLeakyRelu", "r = LeakyRelu <alpha = 0.1> (da)", 0.02),
    "Softmax": ("QLinearSoftmax", "r = Softmax <axis = 1> (da)", 1 / 256),
    "AveragePool": (
        "QLinearAveragePool",
        "r = AveragePool <kernel_shape = [3, 2], pads = [1, 0, 1, 0], strides = [2, 1]> (da)",
        0.02,
    ),
    "GlobalAveragePool": ("QLinearGlobalAveragePool", "r = GlobalAveragePool (da)", 0.01),
}


def plain_case(rng: np.random.Generator, name: str, dtype: str) -> Case:
    """Make an operator on one or two tensors with one scale each."""
    made, line, scale = PLAIN[name]
    dims = [int(n) for n in rng.integers(3, 8, 4)]
    feeds = {"a": numbers(rng, dtype, *dims), "b": numbers(rng, dtype, *dims)}
    weights = encoding(rng, "a", dtype, 0.02) | encoding(rng, "b", dtype, 0.02)
    weights |= encoding(rng, "y", dtype, scale, 0 if name == "Sigmoid" else 0.5)
    weights["k"] = rng.integers(0, 2, dims).astype(bool)
    if name == "Softmax":
        weights["sy"] = np.array(rng.uniform(1, 2) / 256, np.float32)
        weights["zy"] = np.array(np.iinfo(dtype).min, dtype)
    body = (
        "da = DequantizeLinear (a, sa, za) db = DequantizeLinear (b, sb, zb) "
        f"{line} y = QuantizeLinear (r, sy, zy)"
    )
    if "db" not in line:
        feeds.pop("b")
        body = body.replace("db = DequantizeLinear (b, sb, zb) ", "")
    return Case(made, feeds, weights, body, dtype, 4)


def product_weights(
    rng: np.random.Generator, dtype: str, dims: Sequence[int], channels: int, *, each: bool
) -> Arrays:
    """Draw weights and a bias, with a scale for each channel or one for all."""
    count = (channels,) if each else ()
    scale = rng.uniform(0.002, 0.02, count).astype(np.float32)
    zero = np.zeros(count, dtype) if each else numbers(rng, dtype)
    bias = rng.integers(-2000, 2000, channels).astype(np.int32)
    return {"b": numbers(rng, dtype, *dims), "sb": scale, "zb": zero, "c": bias}


PRODUCTS = {
    "Conv": ("QLinearConv", "r = Conv <pads = [1, 1, 1, 1]> (da, db, dc)", (2, 3, 6, 5), 0),
    "Gemm": ("QGemm", "r = Gemm <transB = 1> (da, db, dc)", (3, 16), 0),
    "MatMul": ("QLinearMatMul", "r = MatMul (da, db)", (2, 3, 16), 1),
}
FLOATING = {
    "Gemm": "QGemm",
    "MatMul": "MatMulIntegerToFloat",
}
SHAPES = {"Conv": (4, 3, 3, 3), "Gemm": (6, 16), "MatMul": (16, 6)}
PAIRS = (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))


def product_case(
    rng: np.random.Generator, name: str, types: tuple[str, str], *, each: bool, floating: bool
) -> Case:
    """Make a convolution or a matrix product, quantised again or left a float."""
    made, line, dims, axis = PRODUCTS[name]
    data, kernel = types
    shape = SHAPES[name]
    weights = encoding(rng, "a", data, 0.02) | encoding(rng, "y", data, 0.2)
    weights |= product_weights(rng, kernel, shape, shape[axis], each=each)
    if types == ("uint8", "int8") and not adds_in_32_bits():
        weights["b"] //= 2
    weights["sc"] = weights["sa"] * weights["sb"]
    body = (
        f"da = DequantizeLinear (a, sa, za) db = DequantizeLinear <axis = {axis}> (b, sb, zb) "
        f"dc = DequantizeLinear <axis = 0> (c, sc) {line} "
    )
    if "dc)" not in line:
        body = body.replace("dc = DequantizeLinear <axis = 0> (c, sc) ", "")
    body = body.replace("r = ", "y = ") if floating else body + "y = QuantizeLinear (r, sy, zy)"
    if floating:
        made = FLOATING[name]
    feeds = {"a": numbers(rng, data, *dims)}
    return Case(made, feeds, weights, body, "float32" if floating else data, len(dims))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("seed", SEEDS)
def test_quantised_operators_are_within_a_step(name: str, dtype: str, seed: int) -> None:
    """Nothing is off by more than one step, and that is rare but for Softmax."""
    case = plain_case(np.random.default_rng(seed), name, dtype)

    assert_within_a_step(*before_and_after(case), often=0.6 if name == "Softmax" else 0.02)


@pytest.mark.parametrize("types", PAIRS, ids="-".join)
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "scales"])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_quantised_products_are_within_a_step(
    name: str, types: tuple[str, str], seed: int, *, each: bool
) -> None:
    """Sums of products are exact; a result is off by one step where it lies between two."""
    case = product_case(np.random.default_rng(seed), name, types, each=each, floating=False)

    assert_within_a_step(*before_and_after(case))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", PLAIN)
def test_a_scale_in_a_vector_is_a_number(name: str, dtype: str) -> None:
    """Some operators take no vectors of one number; what they read becomes a number."""
    case = plain_case(np.random.default_rng(0), name, dtype)
    vectors = {key: data.reshape(1) for key, data in case.weights.items() if not data.ndim}

    before, after = before_and_after(case._replace(weights=case.weights | vectors))

    assert_within_a_step(before, after, often=0.6 if name == "Softmax" else 0.02)


def assert_within_a_step(before: NDArray[Any], after: NDArray[Any], *, often: float = 0.02) -> None:
    """Compare numbers of 8 bits, of which so many may differ by one."""
    assert before.dtype == after.dtype
    steps = np.abs(before.astype(int) - after.astype(int))
    assert steps.max() <= 1
    assert (steps > 0).mean() < often
    assert len(np.unique(before)) > 3, "nearly all of it is cut off: this shows nothing"


@pytest.mark.parametrize("types", PAIRS, ids="-".join)
@pytest.mark.parametrize("each", [False, True], ids=["one scale", "scales"])
@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("seed", SEEDS)
def test_products_that_stay_floats_are_rounded_only(
    name: str, types: tuple[str, str], seed: int, *, each: bool
) -> None:
    """What no QuantizeLinear follows has the numbers of the product of dequantised values."""
    case = product_case(np.random.default_rng(seed), name, types, each=each, floating=True)

    before, after = before_and_after(case)

    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())


def dynamic_case(rng: np.random.Generator, *, each: bool, shared: bool) -> Case:
    """Make a product of data that are quantised on the way, for it alone or for two."""
    weights = product_weights(rng, "int8", (16, 6), 6, each=each)
    weights["v"] = floats(rng, 6)
    body = "q, sa, za = DynamicQuantizeLinear (x) "
    for name in ("e", "f") if shared else ("e",):
        body += (
            f"i{name} = MatMulInteger (q, b, za, zb) j{name} = Cast <to = 1> (i{name}) "
            f"t{name} = Mul (sa, sb) k{name} = Mul (j{name}, t{name}) {name} = Add (k{name}, v) "
        )
    body += "y = Mul (e, f)" if shared else "y = Neg (e)"
    made = "DynamicQuantizeLinear MatMulIntegerToFloat MatMulIntegerToFloat Mul"
    if not shared:
        made = "DynamicQuantizeMatMul Neg"
    return Case(made, {"x": floats(rng, 2, 3, 16)}, weights, body, "float32", 3)


@pytest.mark.parametrize("each", [False, True], ids=["one scale", "scales"])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize("seed", SEEDS)
def test_dynamically_quantised_products_are_rounded_only(
    seed: int, *, each: bool, shared: bool
) -> None:
    """The integers are the same, so there is nothing but the rounding of the scales."""
    case = dynamic_case(np.random.default_rng(seed), each=each, shared=shared)

    before, after = before_and_after(case)

    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())


def packed_case(rng: np.random.Generator, dtype: str, size: int, *, by_rows: bool) -> Case:
    """Make a product with weights of four bits, in blocks; every other time with zero points."""
    blocks, columns = (int(n) for n in rng.integers(1, 4, 2))
    lowest = -8 if dtype == "int4" else 0
    weights: Arrays = {
        "w": rng.integers(lowest, lowest + 16, (blocks * size, columns)),
        "s": rng.uniform(0.1, 0.2, (blocks, columns)).astype(np.float32),
        "z": rng.integers(lowest, lowest + 16, (blocks, columns)),
    }
    if by_rows:
        weights = {name: np.ascontiguousarray(data.T) for name, data in weights.items()}
    for name in ("w", "z"):
        weights[name] = weights[name].astype(getattr(ml_dtypes, dtype))
    zero = ", z" if rng.integers(2) else ""
    body = f"d = DequantizeLinear <axis = {int(by_rows)}, block_size = {size}> (w, s{zero}) "
    body += "t = Transpose (d) y = MatMul (a, t)" if by_rows else "y = MatMul (a, d)"
    feeds = {"a": floats(rng, 2, 3, blocks * size)}
    return Case("MatMulNBits", feeds, weights, body, "float32", 3)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("by_rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize("seed", SEEDS)
def test_packed_weights_are_the_same_weights(
    dtype: str, size: int, seed: int, *, by_rows: bool
) -> None:
    """Numbers, scales and zero points go to their places."""
    case = packed_case(np.random.default_rng(seed), dtype, size, by_rows=by_rows)

    before, after = before_and_after(case)

    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())
