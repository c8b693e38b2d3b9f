"""Partitions on a GPU of NVIDIA's, by cuBLASLt and CUTLASS, against their bodies in onnxruntime.

``python -m pytest -m gpu tests/execute/test_gpu.py`` needs the extras ``cublas`` and ``cutlass``,
or the libraries that ``DPL_CUBLASLT_LIBRARY``, ``DPL_CUDART_LIBRARY``, ``DPL_NVCC`` and
``DPL_CUTLASS_INCLUDE`` name. Where there is no compiler, a cache folder (``DPL_CACHE``) of compiled
instances will do: ``python -m tests.execute.test_gpu`` compiles those that are needed here, on any
machine. The same tests run emulated, in the long part, so that what a GPU is asked is right.
"""

from __future__ import annotations

import ctypes as c
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dplcli.errors import UsageError
from dplcli.execute import LIBRARIES
from dplcli.execute.cublas.library import CublasLt, Descriptors, call
from dplcli.execute.cublas.matmul import RELU, lower
from dplcli.execute.cutlass.library import Compiler, TemplateInstance, loaded
from dplcli.execute.product import SAMPLES, gelu
from dplcli.execute.session import library_of
from dplcli.onnx_io import load_model
from dplcli.pipeline import verify
from dplcli.verify.engines import Session
from dplcli.verify.values import ModelSource
from tests.execute.emulated import opened, use, use_template
from tests.execute.support import asking, net, partitioned
from tests.execute.test_product import W, X, made

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PRODUCTS = {
    "plain": "y = MatMul (x, w)",
    "bias": "p = MatMul (x, w) y = Add (p, b)",
    "relu": "p = MatMul (x, w) q = Add (b, p) y = Relu (q)",
    "gelu": "p = MatMul (x, w) q = Add (p, b) e = Gelu (q) y = Identity (e)",
    "turned": "t = Transpose <perm = [1, 0]> (v) p = MatMul (x, t) q = Add (p, b) y = Relu (q)",
    "batches": "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t)",
    "squared": "y = MatMul (x, x)",
    "residual": "p = MatMul (x, w) q = Add (p, b) s = Add (q, r) y = Relu (s)",
    "scaled": "p = MatMul (x, w) q = Add (p, b) g = Relu (q) y = Mul (g, r)",
}
CONVOLUTIONS = {
    "plain": "y = Conv <pads = [1,1,1,1]> (x, w)",
    "bias": "y = Conv <pads = [0,2,1,0], strides = [2,1], dilations = [1,2]> (x, w, b)",
    "relu": "c = Conv <strides = [2,2]> (x, w, b) y = Relu (c)",
    "sigmoid": "c = Conv (x, w, b) y = Sigmoid (c)",
    "silu": "c = Conv (x, w, b) s = Sigmoid (c) y = Mul (c, s)",
    "hard_swish": "c = Conv (x, w, b) h = HardSwish (c) y = Identity (h)",
    "residual": "c = Conv <pads = [1,1,1,1]> (x, w, b) s = Add (c, x) y = Relu (s)",
    "scaled": "c = Conv <pads = [1,1,1,1]> (x, w, b) y = Mul (x, c)",
}
LIMITS = {"float": 2e-5, "float16": 1e-2}


@cache
def missing(target: str) -> str:
    """Return why a target cannot run here; "" if it can."""
    try:
        library_of(target)
    except UsageError as error:
        return error.message
    return ""


HOW = [pytest.param("gpu", marks=pytest.mark.gpu), pytest.param("emulated", marks=pytest.mark.long)]


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the GPU, and skip the test if there is none, or emulate it."""
    asked = request.node.callspec.params
    if asked["how"] == "emulated":
        use(monkeypatch)
        use_template(monkeypatch)
    elif missing(asked["target"]):
        pytest.skip(missing(asked["target"]))


def _matrices(body: str, dtype: str, rows: int, depth: int, columns: int) -> str:
    kind = dtype
    more = f", {kind}[N,{rows},{columns}] r" if ", r)" in body else ""
    weights = {
        "w": f"{kind}[{depth},{columns}] w",
        "v": f"{kind}[{columns},{depth}] v",
        "b": f"{kind}[{columns}] b",
    }
    read = [text for name, text in weights.items() if f" {name})" in body or f"({name}" in body]
    stated = f" <{', '.join(read)}>" if read else ""
    rows = depth if body == PRODUCTS["squared"] else rows  # as both operands are the same
    shape = f"N,{rows},{columns if read else rows}"
    return f"g ({kind}[N,{rows},{depth}] x{more}) => ({kind}[{shape}] y){stated} {{ {body} }}"


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("target", ["cublas", "cutlass"])
@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: str, target: str, how: str, tmp_path: Path) -> None:
    """Each agrees with its body; its size changes from run to run."""
    for sizes in ((5, 8, 16), (33, 129, 65), *([(128, 768, 3072)] if how == "gpu" else [])):
        text = _matrices(PRODUCTS[name], dtype, *sizes)
        _, path = partitioned(net(text, opset=20), tmp_path, target=target)
        _compare(path, target, LIMITS[dtype], (1, 3, 1))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("target", ["cublas"])
@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose <perm = [1, 0]> (v) y = MatMul (x, t)",
        "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t)",
    ],
    ids=["dense", "batch_matmul"],
)
def test_products_of_float64(body: str, target: str, how: str, tmp_path: Path) -> None:
    """The two rules for them, without an epilogue."""
    assert how
    text = _matrices(body, "double", 33, 17, 9)
    _, path = partitioned(net(text), tmp_path, target=target)
    _compare(path, target, 1e-14, (2, 1))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("target", ["cutlass"])
@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, dtype: str, target: str, how: str, tmp_path: Path) -> None:
    """Each agrees with its body."""
    for channels, size in ((3, 9), (16, 14), *([(64, 56)] if how == "gpu" else [])):
        text = _image(CONVOLUTIONS[name], dtype, channels, size)
        _, path = partitioned(net(text, opset=20), tmp_path, target=target)
        _compare(path, target, LIMITS[dtype], (2,))


def _image(body: str, dtype: str, channels: int, size: int) -> str:
    stated = f"{dtype}[{channels},{channels},3,3] w, {dtype}[{channels}] b"
    if ", b)" not in body:
        stated = stated.partition(", f")[0]
    image = f"{dtype}[2,{channels},{size},{size}]"
    return f"g ({image} x) => ({dtype}[a,b,c,d] y) <{stated}> {{ {body} }}"


def _compare(path: Path, target: str, limit: float, batches: tuple[int, ...]) -> None:
    session, bodies = opened(path, target), Session(ModelSource(path), "disable")
    (only,) = session.record()
    assert only.library.startswith(LIBRARIES[target]), only.why
    for batch in batches:
        feeds = {
            name: np.random.default_rng(batch)
            .standard_normal([size if isinstance(size, int) else batch for size in shape])
            .astype(dtype)
            for name, (dtype, shape) in _inputs(path).items()
        }
        ((found,),) = session.run(feeds).values()
        ((wanted,),) = bodies.run(feeds).values()
        numbers, others = (leaf.data.astype(float) for leaf in (wanted, found))
        assert np.abs(numbers - others).max() <= limit * np.abs(numbers).max()
    (only,) = session.record()
    assert only.runs == len(batches)
    if target == "cutlass":
        assert only.primitives[0] in {f"implicit_gemm {instance}" for instance in instances()}


def _inputs(path: Path) -> dict[str, tuple[str, tuple[object, ...]]]:
    found: dict[str, tuple[str, tuple[object, ...]]] = {}
    for value in load_model(path).graph.inputs:
        known = value.known_type()
        assert known is not None
        assert known.shape is not None
        found[str(value.name)] = str(known.dtype), tuple(known.shape)
    return found


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("how", HOW[:1])
@pytest.mark.parametrize("target", ["cublas", "cutlass"])
def test_a_net_is_verified(target: str, how: str, tmp_path: Path) -> None:
    """In a process of its own, as the command does."""
    assert how == "gpu"
    text = """g (float[N,5,8] x) => (float[N,5,6] y)
      <float[8,7] w, float[7] b, float[6,7] v, float[6] d> {
        p = MatMul (x, w) q = Add (p, b) r = Relu (q)
        t = Transpose <perm = [1, 0]> (v) s = MatMul (r, t) y = Add (d, s) }"""
    original, path = partitioned(net(text), tmp_path, target=target)
    result = verify(original, path, check=asking(target=target))
    assert result.verdict == "equivalent"
    assert result.kernels is not None
    assert result.kernels.ran == 2


@pytest.mark.gpu
def test_which_gelu_the_epilogue_is() -> None:
    """It is believed to be the one by tanh; if this fails, a Gelu need not stay apart."""
    if missing("cublas"):
        pytest.skip(missing("cublas"))
    samples = SAMPLES[:109].astype(np.float32)
    assert np.array_equal(_after(samples, RELU), np.maximum(samples, 0))
    found = _after(samples, GELU)
    bell = np.tanh(np.sqrt(2 / np.pi) * (samples + 0.044715 * samples**3))
    assert np.abs(found - 0.5 * samples * (1 + bell)).max() < 1e-5
    assert np.abs(found - gelu(samples)).max() > 1e-4


GELU = 32


def _after(samples: NDArray[np.float32], epilogue: int) -> NDArray[np.float32]:
    """Return what an epilogue of cuBLASLt makes of numbers: of their product with one."""
    library = library_of("cublas")
    assert isinstance(library, CublasLt)
    matmul = replace(lower(made(), {X: (len(samples), 1), W: (1, 1)}), epilogue=epilogue)
    device, told = library.device, Descriptors(library.functions, matmul)
    places = [device.allocate(samples.nbytes) for _ in range(3)]
    device.write(places[0], samples)
    device.write(places[1], np.ones(1, np.float32))
    x, w, y = map(c.c_void_p, places)
    one, zero = c.byref(c.c_float(1)), c.byref(c.c_float(0))
    operands = (one, w, told.a, x, told.b, zero, y, told.d, y, told.d)
    rest = (None, None, c.c_size_t(0), None)
    call(library.functions, "cublasLtMatmul", library.handle, told.matmul, *operands, *rest)
    found = np.empty_like(samples)
    device.wait()
    device.read(places[2], found)
    return found


def instances() -> list[TemplateInstance]:
    """Return the instances that the tests of this file need."""
    after = [("Identity", "plus"), ("ReLu", "plus"), ("GELU", "plus"), ("ReLu", "multiplies")]
    images = [("Sigmoid", "plus"), ("SiLu", "plus"), ("HardSwish", "plus")]
    rest = [("Identity", "plus", "ReLu"), ("Identity", "multiplies")]
    return [
        TemplateInstance(dtype, *names)
        for dtype in ("float32", "float16")
        for names in (*after, *images, *rest)
    ]


if __name__ == "__main__":
    for each in instances():
        loaded(each, Compiler())
