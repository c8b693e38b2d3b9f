"""``--with cublas`` without a GPU: descriptors, and what they say, computed in numpy."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dplcli.errors import UsageError
from dplcli.execute import kernels_for
from dplcli.execute.cublas import library
from dplcli.execute.cublas.library import DESCRIPTION, LAYOUT, Descriptors
from dplcli.execute.cublas.matmul import BIAS, COMPUTE_32F, RELU, Layout, Matmul, lower
from dplcli.execute.cutlass import library as cutlass
from dplcli.execute.plan import PlanOp, RefusedError
from dplcli.execute.session import check
from dplcli.pipeline import verify
from dplcli.verify.check import Check, Execution
from dplcli.verify.engines import Session
from dplcli.verify.values import ModelSource
from tests.corpus.nets import corpus, listed_models, real_model
from tests.execute.emulated import (
    Emulated,
    HostDevice,
    Listed,
    opened,
    real_library,
    use,
    use_template,
)
from tests.execute.one_call import compare_calls, compare_examples
from tests.execute.support import net, partitioned
from tests.execute.test_product import SHAPES, W, X, Z, made
from tests.support.helpers import strides

if TYPE_CHECKING:
    import ctypes as c
    from pathlib import Path

NET = """g (float[N,5,8] x) => (float[N,5,6] y)
  <float[8,7] w, float[7] b, float[6,7] v, float[6] d> {
    p = MatMul (x, w) q = Add (p, b) r = Relu (q)
    t = Transpose <perm = [1, 0]> (v) s = MatMul (r, t) y = Add (d, s) }"""


def test_a_product_is_described() -> None:
    """Column-major: the right matrix is A, the left one B, and rows are columns."""
    plan = made(PlanOp("add", [10, Z], 11), PlanOp("relu", [11], 12))
    found = lower(plan, SHAPES)
    assert (found.a, found.b, found.d) == (Layout(5, 3, 5), Layout(3, 4, 3), Layout(5, 4, 5, 1, 20))
    assert (found.transpose_a, found.transpose_b) == (False, False)
    assert (found.epilogue, found.tail) == (RELU | BIAS, "")
    assert (found.compute, found.scale) == (COMPUTE_32F, "float32")


def test_a_gelu_stays_apart() -> None:
    """The bias is in the epilogue, and the Gelu is not."""
    found = lower(made(PlanOp("add", [10, Z], 11), PlanOp("gelu", [11], 12)), SHAPES)
    assert (found.epilogue, found.tail) == (BIAS, "gelu")


@pytest.mark.parametrize(
    ("op", "dtype", "said"),
    [
        (PlanOp("sigmoid", [10], 11), "float32", "sigmoid after the product: no epilogue"),
        (PlanOp("multiply", [10, Z], 11), "float32", "multiply after the product: no epilogue"),
        (PlanOp("relu", [10], 11), "float64", "float64 with an epilogue"),
        (PlanOp("relu", [10], 11), "int8", "values are of type int8"),
    ],
)
def test_what_cublas_does_not_do(op: PlanOp, dtype: str, said: str) -> None:
    """Each has its reason."""
    plan = made(op)
    plan.dtypes = dict.fromkeys(plan.dtypes, dtype)
    with pytest.raises(RefusedError, match=said):
        lower(plan, SHAPES)


def test_a_convolution_is_no_product_of_matrices() -> None:
    """It is refused by name."""
    with pytest.raises(RefusedError, match="convolution: cuBLASLt multiplies matrices"):
        lower(made(kind="convolution"), {X: (1, 3, 8, 8), W: (4, 3, 3, 3)})


def _turned(plan_settings: tuple[bool, bool]) -> Matmul:
    plan = made(PlanOp("add", [10, Z], 11))
    turned_a, turned_b = plan_settings
    plan.ops[0].settings = {"transpose_a": turned_a, "transpose_b": turned_b}
    left = (2, 3, 4) if turned_a else (2, 4, 3)
    right = (2, 5, 3) if turned_b else (2, 3, 5)
    return lower(plan, {X: left, W: right, Z: (5,)})


@pytest.mark.parametrize("is_real", [False, True], ids=["listed", "real"])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_descriptors_say_what_they_were_told(turned: tuple[bool, bool], *, is_real: bool) -> None:
    """They are read back from the real library, where it is; it needs no GPU for that."""
    functions: Any = real_library() if is_real else Listed()
    matmul = _turned(turned)
    made_ = Descriptors(functions, matmul)
    read = Emulated(functions).read
    told = read(made_.matmul, DESCRIPTION)
    assert (told["compute"], told["scale"], told["epilogue"]) == (COMPUTE_32F, 0, BIAS)
    assert (bool(told["transpose_a"]), bool(told["transpose_b"])) == (turned[1], turned[0])
    for handle, layout in ((made_.a, matmul.a), (made_.b, matmul.b), (made_.d, matmul.d)):
        assert read(handle, LAYOUT) == vars(layout) | {"type": 0}
    made_.set("bias", 0x1230)
    assert read(made_.matmul, DESCRIPTION)["bias"] == 0x1230


@pytest.mark.parametrize("target", ["cublas", "cutlass"])
def test_sizes_that_grow_take_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """What was taken for sizes of long ago is given back; those sizes run again all the same."""
    use(monkeypatch)
    use_template(monkeypatch)
    device = HostDevice()
    for module in (library, cutlass):
        monkeypatch.setattr(module, "Device", lambda _: device)
    _, path = partitioned(net(NET), tmp_path, target=target)
    session, bodies = opened(path, target), Session(ModelSource(path), "disable")
    counts = []
    for size in (*range(1, 25), 1):
        feeds = {"x": np.random.default_rng(size).standard_normal((size, 5, 8)).astype(np.float32)}
        (found,), (wanted,) = session.run(feeds)["y"], bodies.run(feeds)["y"]
        assert np.allclose(found.data.astype(float), wanted.data.astype(float), 1e-4, 1e-4)
        counts.append(len(device.pieces))
    assert counts[0] < counts[7] == counts[-1] == max(counts)


@pytest.mark.parametrize("is_real", [False, True], ids=["listed", "real"])
def test_partitions_agree_with_their_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_real: bool
) -> None:
    """A session runs them, one product each; sizes may change from run to run."""
    emulated = use(monkeypatch, real_library() if is_real else None)
    _, path = partitioned(net(NET), tmp_path, target="cublas")
    session, bodies = opened(path), Session(ModelSource(path), "disable")
    for size in (1, 3, 0, 1):
        x = np.random.default_rng(size).standard_normal((size, 5, 8)).astype(np.float32)
        (found,), (wanted,) = (each.run({"x": x})["y"] for each in (session, bodies))
        np.testing.assert_allclose(found.data.tolist(), wanted.data.tolist(), rtol=1e-5, atol=1e-5)
    assert [(item.runs, item.why) for item in session.record()] == [(4, ""), (4, "")]
    assert [item.primitives for item in session.record()] == [
        ("cublasLtMatmul RELU_BIAS",),
        ("cublasLtMatmul BIAS",),
    ]
    assert emulated.products == 6
    times = session.profile({"x": np.ones((2, 5, 8), np.float32)})
    assert [item.call for item in times] == [item.call for item in session.record()]
    assert all(item.milliseconds > 0 and item.reorders > 0 for item in times)


def test_a_library_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the driver is older than the library."""
    monkeypatch.setattr(use(monkeypatch), "cublasLtCreate", lambda _: 1, raising=False)
    with pytest.raises(UsageError, match=r"13\.0\.0 does not start here: cublasLtCreate returned"):
        check("cublas")


SQUARE = """g (float[N,5,8] x) => (float[N,5,8] y) <float[8,8] w, float[8] b> {
    p = MatMul (x, w) q = Add (p, b) y = Relu (q) }"""


@pytest.mark.parametrize(
    "fault",
    [{}, {"transpose_a": 1}, {"epilogue": BIAS}, {"epilogue": RELU}, {"leading": 7}],
    ids=str,
)
def test_a_wrong_descriptor_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: dict[str, int]
) -> None:
    """The check says no, so the emulator looks at what the library is told."""
    emulated = use(monkeypatch)
    honest = Emulated.read

    def read(self: Emulated, handle: c.c_void_p, table: dict[str, Any]) -> dict[str, Any]:
        found = honest(self, handle, table)
        return found | {name: value for name, value in fault.items() if name in found}

    monkeypatch.setattr(Emulated, "read", read)
    original, path = partitioned(net(SQUARE), tmp_path, target="cublas")
    settings = Check(execution=Execution(isolated=False, kernels=kernels_for("cublas")))
    result = verify(original, path, check=settings)
    assert result.verdict == ("different" if fault else "equivalent")
    assert result.kernels is not None
    assert result.kernels.ran == 1
    assert emulated.products


def test_calls_of_a_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call agrees with its body in onnxruntime."""
    use(monkeypatch)
    agreed, refused = compare_calls(real_model("deit-dynamo18.onnx"), tmp_path, "cublas")
    assert agreed.total() >= 5
    assert not refused


@pytest.mark.long
@pytest.mark.parametrize("stride", strides(16))
def test_calls_of_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int) -> None:
    """Every call of a model agrees, or has a reason; nearly all of floats run."""
    if corpus() is None:
        pytest.skip("there is no corpus")
    use(monkeypatch)
    agreed: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    seen: set[str] = set()
    for name in [*listed_models()][::stride]:
        ran, left = compare_calls(real_model(name), tmp_path, "cublas", seen)
        agreed += ran
        refused += left
    assert agreed.total() > 30
    assert agreed.total() > 6 * refused.total(), refused


@pytest.mark.long
def test_every_example_is_classified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the catalogue takes agrees, or has a reason; all kinds of floats run."""
    use(monkeypatch)
    agreed, refused = compare_examples(tmp_path, "cublas")
    kinds = ("matmul", "matmul_transposed")
    floats = {
        f"{kind}{tail}" for kind in kinds for tail in ("", "_bias", "_bias_relu", "_bias_gelu")
    }
    ran = {name.split(".")[-1] for name, count in agreed.items() if count}
    assert ran >= floats | {"dense", "batch_matmul"}, (agreed, refused)
    assert all(refused)
