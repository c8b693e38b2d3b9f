"""What the rules of ``fuse_ort.yaml`` make of random floats, in several types and shapes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.catalogues.fused import SEEDS, Case, before_and_after, floats

if TYPE_CHECKING:
    from collections.abc import Callable

    Maker = Callable[[np.random.Generator], Case]

pytestmark = pytest.mark.long


def conv_case(rng: np.random.Generator, activation: str, spatial: int) -> Case:
    """Make a grouped convolution with a residual, in one to three spatial dimensions."""
    size = [int(n) for n in rng.integers(4, 8, spatial)]
    feeds = {"x": floats(rng, 2, 4, *size), "z": floats(rng, 2, 6, *(n - 2 for n in size))}
    weights = {"w": floats(rng, 6, 2, *[3] * spatial), "b": floats(rng, 6)}
    body = f"c = Conv <group = 2> (x, w, b) s = Add (c, z) y = {activation} (s)"
    return Case("FusedConv", feeds, weights, body, "float32", spatial + 2)


def gemm_case(rng: np.random.Generator, activation: str) -> Case:
    """Make a Gemm with everything transposed and scaled."""
    rows, inner, columns = (int(n) for n in rng.integers(1, 9, 3))
    feeds = {"a": floats(rng, inner, rows), "b": floats(rng, columns, inner)}
    body = (
        f"m = Gemm <transA = 1, transB = 1, alpha = 0.7, beta = 1.3> (a, b, c) y = {activation} (m)"
    )
    return Case("FusedGemm", feeds, {"c": floats(rng, 1, columns)}, body, "float32", 2)


def matmul_case(rng: np.random.Generator, dtype: str, rank: int) -> Case:
    """Make a product of transposed and scaled operands; the batch of one may be moved, too."""
    batch = [int(n) for n in rng.integers(1, 4, rank - 2)]
    rows, inner, columns = (int(n) for n in rng.integers(1, 6, 3))
    plain = list(range(rank))
    moved = rank > 2 and bool(rng.integers(2))
    if moved:
        perm = [*plain[1:-1], 0, rank - 1]
        a = floats(rng, rows, *batch, inner, dtype=dtype)
    else:
        perm = [*plain[:-2], rank - 1, rank - 2]
        a = floats(rng, *batch, inner, rows, dtype=dtype)
    feeds = {"a": a, "b": floats(rng, *batch, columns, inner, dtype=dtype)}
    weights = {"c": np.array(0.5, dtype), "d": np.array(4, dtype)}
    body = (
        f"s = Mul (a, c) t = Transpose <perm = {perm}> (s) "
        f"u = Transpose <perm = {[*plain[:-2], rank - 1, rank - 2]}> (b) "
        "m = MatMul (t, u) y = Div (m, d)"
    )
    return Case("FusedMatMul", feeds, weights, body, dtype, rank)


GELUS = {
    "BiasGelu": "d = Div (s, r) e = Erf (d) f = Add (e, one) g = Mul (s, f) y = Mul (g, half)",
    "FastGelu": (
        "p = Pow (s, three) t = Mul (p, k) a = Add (s, t) i = Mul (a, c) n = Tanh (i) "
        "f = Add (n, one) h = Mul (s, half) y = Mul (h, f)"
    ),
}
NUMBERS = {"r": 2**0.5, "one": 1, "half": 0.5, "three": 3, "k": 0.044715, "c": (2 / np.pi) ** 0.5}


def gelu_case(rng: np.random.Generator, made: str, rank: int) -> Case:
    """Make a GELU of a sum with a vector."""
    dims = [int(n) for n in rng.integers(1, 7, rank)]
    weights = {name: np.array(number, np.float32) for name, number in NUMBERS.items()}
    weights["b"] = floats(rng, dims[-1])
    body = "s = Add (x, b) " + GELUS[made]
    return Case(made, {"x": 3 * floats(rng, *dims)}, weights, body, "float32", rank)


def skip_case(rng: np.random.Generator, made: str, dtype: str, rank: int) -> Case:
    """Make a normalised sum of two values and a vector; the sum is read again."""
    dims = [int(n) for n in rng.integers(2, 9, rank)]
    width = dims[-1]
    feeds = {"x": floats(rng, *dims, dtype=dtype), "z": floats(rng, *dims, dtype=dtype)}
    weights = {name: floats(rng, width, dtype=dtype) for name in ("v", "g", "b")}
    norm = "RMSNormalization (s, g)" if "Simplified" in made else "LayerNormalization (s, g, b)"
    body = f"a = Add (x, v) s = Add (a, z) n = {norm} y = Sub (n, s)"
    return Case(f"{made} Sub", feeds, weights, body, dtype, rank, opset=23)


def embed_case(rng: np.random.Generator, ids: str) -> Case:
    """Make embeddings of words, segments and positions."""
    rows, length, width = (int(n) for n in rng.integers(1, 6, 3))
    feeds = {
        "i": rng.integers(0, 9, (rows, length)).astype(ids),
        "j": rng.integers(0, 2, (rows, length)).astype(ids),
        "k": rng.integers(0, 7, (1, length)).astype(ids),
    }
    sizes = {"w": 9, "s": 2, "p": 7}
    weights = {name: floats(rng, count, width) for name, count in sizes.items()}
    weights |= {name: floats(rng, width) for name in ("g", "b")}
    body = (
        "a = Gather (w, i) c = Gather (s, j) d = Gather (p, k) e = Add (a, c) f = Add (e, d) "
        "y = LayerNormalization (f, g, b)"
    )
    casts = "Cast Cast Cast " if ids == "int64" else ""
    return Case(f"{casts}EmbedLayerNormalization", feeds, weights, body, "float32", 3)


FLOATS: dict[str, Maker] = {
    **{
        f"conv {activation} {spatial}d": partial(conv_case, activation=activation, spatial=spatial)
        for activation in ("Relu", "HardSigmoid <alpha = 0.3>", "LeakyRelu", "HardSwish")
        for spatial in (1, 2, 3)
    },
    **{
        f"gemm {activation}": partial(gemm_case, activation=activation)
        for activation in ("Relu", "Elu <alpha = 0.3>", "Selu", "Softplus", "Tanh")
    },
    **{
        f"matmul {dtype} {rank}d": partial(matmul_case, dtype=dtype, rank=rank)
        for dtype in ("float32", "float64")
        for rank in (2, 3, 4)
    },
    **{
        f"{made} {rank}d": partial(gelu_case, made=made, rank=rank)
        for made in GELUS
        for rank in (1, 2, 4)
    },
    **{
        f"{made} {dtype} {rank}d": partial(skip_case, made=made, dtype=dtype, rank=rank)
        for made in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
        for dtype in ("float32", "float16")
        for rank in (2, 3)
    },
    **{f"embeddings {ids}": partial(embed_case, ids=ids) for ids in ("int32", "int64")},
}
PRECISION = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-12}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("seed", SEEDS)
def test_floats_are_as_before(name: str, seed: int) -> None:
    """The operator computes what stood in its place, but for rounding."""
    case = FLOATS[name](np.random.default_rng(seed))

    before, after = before_and_after(case)

    assert before.shape == after.shape
    assert before.dtype == after.dtype
    close = PRECISION[case.result]
    np.testing.assert_allclose(after, before, rtol=close, atol=close * np.abs(before).max())
