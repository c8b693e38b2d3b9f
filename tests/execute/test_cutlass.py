"""``--with cutlass`` without a GPU: which instance, what it is told, and what nvcc makes of it."""

from __future__ import annotations

import _ctypes
import ctypes as c
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dplcli.errors import UsageError
from dplcli.execute.cuda import Device
from dplcli.execute.cutlass import library as cutlass
from dplcli.execute.cutlass.library import Compiler, TemplateInstance, instance_of, loaded
from dplcli.execute.plan import LibraryError, PlanOp, RefusedError
from dplcli.execute.product import product_of
from dplcli.verify.engines import Session
from dplcli.verify.values import ModelSource
from tests.corpus.nets import each_model, real_model
from tests.execute.emulated import opened, use_template
from tests.execute.one_call import compare_calls, compare_examples
from tests.execute.support import net, partitioned
from tests.execute.test_product import SHAPES, WINDOW, W, X, Z, made

if TYPE_CHECKING:
    from dplcli.execute.plan import KernelPlan

IMAGES = {X: (2, 3, 9, 8), W: (4, 3, 3, 3), Z: (1, 4, 1, 1)}


def test_a_kind_has_an_instance() -> None:
    """Convolutions and products share the template; what differs is in the flags."""
    plan = made(
        PlanOp("add", [10, Z], 11),
        PlanOp("hard_swish", [11], 12),
        PlanOp("multiply", [12, 4], 13),
        PlanOp("relu", [13], 14),
        kind="convolution",
    )
    found = instance_of(product_of(plan, IMAGES | {4: (2, 4, 5, 4)}))
    assert found == TemplateInstance("float32", "HardSwish", "multiplies", "ReLu")
    assert {"-DDPL_ACTIVATION=HardSwish", "-DDPL_BINARY=multiplies"} <= set(found.flags)
    half = TemplateInstance("float16", "HardSwish", "multiplies", "ReLu")
    assert "-DDPL_HALF" in half.flags
    assert half.file_name != found.file_name
    assert instance_of(product_of(made(), SHAPES)) == TemplateInstance("float32")


def _grouped(plan: KernelPlan) -> KernelPlan:
    plan.ops[0].settings = {**WINDOW, "groups": 3}
    return plan


@pytest.mark.parametrize(
    ("plan", "shapes", "said"),
    [
        (_grouped(made(kind="convolution")), {X: (2, 3, 9, 8), W: (3, 1, 3, 3)}, "in groups"),
        (made(PlanOp("add", [10, Z], 11), PlanOp("add", [11, 4], 12), PlanOp("sigmoid", [12], 13)),
         SHAPES | {4: (4, 5)}, "sigmoid after the residual"),
    ],
    ids=["groups", "last"],
)  # fmt: skip
def test_what_the_template_has_not(
    plan: KernelPlan, shapes: dict[int, tuple[int, ...]], said: str
) -> None:
    """Each has its reason."""
    with pytest.raises(RefusedError, match=said):
        instance_of(product_of(plan, shapes))


def test_other_ranks_and_types_have_no_instance() -> None:
    """Convolutions of lines or volumes, and bfloat16."""
    line = made(kind="convolution")
    line.ops[0].settings = {**WINDOW, **{k: v[:1] for k, v in WINDOW.items() if k != "groups"}}
    with pytest.raises(RefusedError, match="not of images"):
        instance_of(product_of(line, {X: (2, 3, 9), W: (4, 3, 3)}))
    plan = made()
    plan.dtypes = dict.fromkeys(plan.dtypes, "bfloat16")
    with pytest.raises(RefusedError, match="values are of type bfloat16"):
        instance_of(product_of(plan, SHAPES))


NET = """g (float[1,3,9,8] x) => (float[1,5,2,6] y)
  <float[5,3,3,3] w, float[5] b, float[5,5,2,2] v, float[5] d> {
    c = Conv <pads = [1,0,2,0], strides = [3,1], dilations = [1,1]> (x, w, b)
    s = Sigmoid (c) a = Mul (c, s)
    e = Conv <pads = [0,1,0,1], dilations = [2,2]> (a, v, d) r = Relu (e)
    y = Identity (r) }"""


def test_partitions_agree_with_their_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session runs them, with channels last and back again."""
    use_template(monkeypatch)
    _, path = partitioned(net(NET), tmp_path, target="cutlass")
    session, bodies = opened(path, "cutlass"), Session(ModelSource(path), "disable")
    x = np.random.default_rng(0).standard_normal((1, 3, 9, 8)).astype(np.float32)
    for _ in range(2):
        (found,), (wanted,) = (each.run({"x": x})["y"] for each in (session, bodies))
        np.testing.assert_allclose(found.data.tolist(), wanted.data.tolist(), rtol=1e-5, atol=1e-5)
    assert [(item.runs, item.why) for item in session.record()] == [(2, ""), (2, "")]
    kinds = {item.primitives for item in session.record()}
    assert kinds == {
        ("implicit_gemm float32 SiLu plus Identity",),
        ("implicit_gemm float32 ReLu plus Identity",),
    }


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    each_model(
        [
            "bert-legacy17.onnx",
            "depth_anything-dynamo18.onnx",
            "detr-legacy17.onnx",
            "mobilenetv3-legacy17-fp16.onnx",
            "mobilevit-legacy17.onnx",
            "vit-legacy17-half.onnx",
        ],
        gate=3,
    ),
)
def test_calls_of_real_models(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each agrees with its body, or has a reason."""
    use_template(monkeypatch)
    agreed, refused = compare_calls(real_model(name), tmp_path, "cutlass")
    assert agreed.total() >= 2
    assert agreed.total() > refused.total(), refused


@pytest.mark.long
def test_every_example_is_classified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the catalogue takes agrees, or has a reason; of products and convolutions most run."""
    use_template(monkeypatch)
    agreed, refused = compare_examples(tmp_path, "cutlass")
    assert sum(count > 0 for count in agreed.values()) > 30, (agreed, refused)
    assert all(refused), refused


def compiler() -> Compiler:
    """Return nvcc and the headers; skip the test if they are not at hand."""
    found = Compiler()
    if found.missing:
        pytest.skip(f"CUTLASS cannot be compiled here: {found.missing}")
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "instance",
    [
        TemplateInstance("float16", "GELU", "plus", "ReLu"),
        TemplateInstance("float32", "HardSwish", "multiplies"),
    ],
    ids=str,
)
def test_an_instance_is_compiled_once(
    instance: TemplateInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its function is there, and the second time nothing is compiled."""
    found = compiler()
    monkeypatch.setenv("DPL_CACHE", str(tmp_path))
    assert hasattr(loaded(instance, found), "dpl_product")
    monkeypatch.setattr(found, "missing", "nothing")
    assert hasattr(loaded(instance, found), "dpl_product")
    assert [path.name for path in (tmp_path / "cutlass").iterdir()] == [instance.file_name]


REACHES_THE_GPU, MISALIGNED, INVALID, UNSUPPORTED = 7, 1, 4, 5
"""``cutlass::Status``; the first is an internal error, of the driver that is not there."""


@pytest.mark.long
def test_the_host_code_looks_at_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, what can be launched gets as far as the driver, and the rest does not."""
    found = compiler()
    try:
        Device("")
    except UsageError:
        monkeypatch.setenv("DPL_CACHE", str(tmp_path))
    else:
        pytest.skip("there is a GPU, which the addresses here are not for")
    function = loaded(TemplateInstance("float16"), found).dpl_product

    def status(*sizes: int) -> int:
        places = [c.c_void_p(1 << 20)] * 5
        answer: int = function(*places, (c.c_int * 16)(*sizes), None)
        return answer

    plain = (0, 0, 1, 1, 1, 1, 1)
    assert status(1, 9, 9, 8, 8, 3, 3, 7, 7, *plain) == REACHES_THE_GPU
    assert status(1, 9, 9, 8, 8, 3, 3, 6, 9, 0, 2, 2, 1, 1, 1, 0) == REACHES_THE_GPU
    assert status(1, 1, 128, 8, 16, 1, 1, 1, 128, *plain) == REACHES_THE_GPU  # matrices
    assert status(1, 9, 9, 7, 8, 3, 3, 7, 7, *plain) == INVALID
    assert status(1, 9, 9, 8, 7, 3, 3, 7, 7, *plain) == MISALIGNED
    assert status(1, 99, 99, 8, 8, 33, 33, 67, 67, *plain) == UNSUPPORTED
    assert status(1, 1, 1 << 22, 1024, 16, 1, 1, 1, 1 << 22, *plain) == INVALID  # over 2 GB


class _Fake(Compiler):
    """Compiles another library, quickly."""

    def __init__(self) -> None:
        self.missing, self.count = "", 0

    def compile(self, instance: TemplateInstance, path: Path) -> None:
        del instance
        self.count += 1
        path.write_bytes(Path(_ctypes.__file__).read_bytes())


def test_what_others_could_have_written_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library is code, so it is loaded only if it is this user's own."""
    monkeypatch.setenv("DPL_CACHE", str(tmp_path))
    instance, fake = TemplateInstance("float32"), _Fake()
    for _ in range(2):
        assert isinstance(loaded(instance, fake), c.CDLL)
    assert fake.count == 1
    path = tmp_path / "cutlass" / instance.file_name
    path.chmod(0o722)
    loaded(instance, fake)
    assert fake.count == 2
    assert not path.stat().st_mode & 0o022
    path.parent.chmod(0o777)
    loaded(instance, fake)
    assert fake.count == 3
    monkeypatch.setenv("DPL_CACHE", "")
    loaded(instance, fake)
    loaded(instance, fake)
    assert fake.count == 5


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and nothing is kept."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'product.cu(3): error: no' >&2\nexit 1\n")
    nvcc.chmod(0o700)
    (tmp_path / "cutlass").mkdir()
    (tmp_path / "cutlass/cutlass.h").touch()
    monkeypatch.setenv(cutlass.COMPILER, str(nvcc))
    monkeypatch.setenv(cutlass.HEADERS, str(tmp_path))
    monkeypatch.setenv("DPL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(LibraryError, match=r"is not compiled: product\.cu\(3\): error: no"):
        loaded(TemplateInstance("float32"), Compiler())
    assert not list((tmp_path / "cache/cutlass").glob("*.so"))
    monkeypatch.setenv(cutlass.COMPILER, "/nowhere/nvcc")
    with pytest.raises(LibraryError, match=r"here is no /nowhere/nvcc \(DPL_NVCC\)"):
        loaded(TemplateInstance("float32"), Compiler())
    assert os.environ[cutlass.HEADERS]
