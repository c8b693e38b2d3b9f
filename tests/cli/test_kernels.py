"""``--with dnnl``: of verify, partition and run; and ``dpl kernels``."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from dplcli.execute.onednn import library
from dplcli.verify.run import end_workers
from tests.cli.support import contents
from tests.execute.support import (
    CRASHES,
    NO_LAST_OPERATOR,
    OTHER_OPERATOR,
    OTHER_PADDING,
    REFUSES_TO_LOOK,
    SWAPPED_WEIGHTS,
    faulty,
    needs_onednn,
    net,
    partitioned,
    written,
)
from tests.support.helpers import thinned

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.support import Dpl

COMPILER = shutil.which("c++")


@pytest.mark.parametrize(
    "named", ["/nowhere/libdnnl.so.3", pytest.param("libc.so.6", marks=pytest.mark.long)]
)
def test_without_the_library_the_extra_is_named(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Exit code 2, one message, nothing written."""
    original = written(net(), folder / "m.onnx")
    assert dpl("partition", original, "--target", "dnnl", "-o", "p.onnx", "--no-verify").code == 0
    monkeypatch.setenv(library.VARIABLE, named)
    for command in (
        ("verify", "m.onnx", "p.onnx", "--with", "dnnl"),
        ("run", "p.onnx", "--with", "dnnl", "-o", "y.npz"),
        ("partition", "m.onnx", "--target", "dnnl", "-o", "o.onnx", "--with", "dnnl"),
    ):
        answer = dpl(*command)
        assert answer.code == 2
        assert answer.message.startswith("oneDNN was not found: ")
        assert "pip install 'dplcli[dnnl]'" in answer.hint
    assert not (folder / "y.npz").exists()
    assert not (folder / "o.onnx").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [
        ("cublas", {"DPL_CUBLASLT_LIBRARY": "/nowhere.so"}, "libcublasLt was not found: "),
        ("cublas", {"DPL_CUBLASLT_LIBRARY": "libm.so.6"}, "libm.so.6 has no cublasLtMatmul"),
        ("cutlass", {"DPL_NVCC": "/nowhere/nvcc"}, "CUTLASS was not found: here is no /nowhere/nv"),
        ("cutlass", {"DPL_CUTLASS_INCLUDE": "/nowhere"}, "no folder of its headers"),
        (
            "cutlass",
            {"DPL_NVCC": "true", "DPL_CUTLASS_INCLUDE": "include"},
            "libcudart was not found: ",
        ),
    ],
)
def test_without_a_gpu_library_the_extra_is_named(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, dict[str, str], str]
) -> None:
    """Exit code 2, one message, nothing written."""
    target, variables, said = case
    written(
        net("g (float[2,3] x) => (float[2,4] y) <float[3,4] w> { y = MatMul (x, w) }"),
        folder / "m.onnx",
    )
    (folder / "include/cutlass").mkdir(parents=True)
    (folder / "include/cutlass/cutlass.h").touch()
    settings = {"DPL_CUDART_LIBRARY": "/nowhere.so", "DPL_CACHE": str(folder / "cache")}
    for name, value in (settings | variables).items():
        monkeypatch.setenv(name, value)
    end_workers()  # those of other tests were started with other variables
    answer = dpl("partition", "m.onnx", "--target", target, "-o", "o.onnx", "--with", target)
    end_workers()
    assert answer.code == 2
    assert said in answer.message
    assert f"pip install 'dplcli[{target}]'" in answer.hint
    assert not (folder / "o.onnx").exists()


@pytest.mark.long
def test_reports_list_every_partition(dpl: Dpl, folder: Path) -> None:
    """JSON, JUnit and the page."""
    needs_onednn()
    written(net(), folder / "m.onnx")
    reports = ("--json", "r.json", "--junit", "r.xml", "--html", "r.html")
    answer = dpl(
        "partition", "m.onnx", "--target", "dnnl", "-o", "p.onnx", "--with", "dnnl", *reports
    )
    assert answer.code == 0, answer.err
    assert "2 of 2 partitions ran on oneDNN." in answer.out
    kernels = json.loads((folder / "r.json").read_text())["verification"]["kernels"]
    calls = [item["call"] for item in kernels["partitions"]]
    assert len(calls) == kernels["ran"] == 2
    cases = ET.parse(folder / "r.xml").iter("testcase")  # noqa: S314  # our own file
    assert {f"m.onnx: {call}" for call in calls} <= {case.get("name") for case in cases}
    page = (folder / "r.html").read_text()
    assert all(call in page for call in calls)


@pytest.mark.long
def test_nothing_to_run_is_no_success(dpl: Dpl, folder: Path) -> None:
    """``--with`` never succeeds with nothing run, also where no rule matched."""
    needs_onednn()
    text = "g (float[2] x) => (float[2] y) { y = Sin (x) }"
    written(net(text), folder / "m.onnx")
    answer = dpl("partition", "m.onnx", "--target", "dnnl", "-o", "p.onnx", "--with", "dnnl")
    assert answer.code == 1
    assert "there is no partition for dnnl: nothing ran on oneDNN" in answer.out
    assert not (folder / "p.onnx").exists()
    answer = dpl("run", "m.onnx", "--with", "dnnl", "-o", "y.npz")
    assert answer.code == 1
    assert not (folder / "y.npz").exists()


@pytest.mark.long
def test_run_gives_what_the_model_gives(dpl: Dpl, folder: Path) -> None:
    """With and without the library, on the same inputs."""
    needs_onednn()
    partitioned(net(), folder)
    data = np.random.default_rng(5).standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.savez(folder / "x.npz", x=data)
    for name, more in (("a.npz", ()), ("b.npz", ("--with", "dnnl", "--require", "2"))):
        answer = dpl("run", "p.onnx", "--inputs", "x.npz", "-o", name, *more)
        assert answer.code == 0, answer.err
    answer = dpl("run", "p.onnx", "--with", "dnnl", "--check", "--json", "r.json")
    assert (answer.code, "Equivalent" in answer.out) == (0, True)
    assert json.loads((folder / "r.json").read_text())["verification"]["accepted"]
    one, other = (np.load(folder / name)["y"] for name in ("a.npz", "b.npz"))
    assert one.shape == (2, 4, 8, 8)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_options_that_contradict_each_other(dpl: Dpl, folder: Path) -> None:
    """Each is refused before any work is done."""
    written(net(), folder / "m.onnx")
    for command, said in (
        (("run", "m.onnx", "--require", "all"), "--require counts partitions"),
        (("run", "m.onnx", "--check"), "--check is about partitions --with a library"),
        (("run", "m.onnx", "--with", "dnnl", "--require", "some"), "is no number of partitions"),
        (
            ("partition", "m.onnx", "--target", "dnnl", "--no-verify", "--with", "dnnl"),
            "--with runs the result",
        ),
        (("run", "m.onnx", "-o", "m.onnx"), "m.onnx"),
    ):
        answer = dpl(*command)
        assert answer.code == 2
        assert said in answer.message


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("no-such-compiler --fast", "CXX=no-such-compiler --fast: there is no such compiler"),
        ("'", "CXX=': is no command"),
        ("false", "false: ends with exit code 1"),
        ("true", "true: writes nothing"),
        pytest.param(f"{COMPILER} -Dnullptr=odd", "was not declared", marks=pytest.mark.long),
    ],
)
def test_a_compiler_that_fails(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, said: str
) -> None:
    """Exit code 2, what the compiler said, and nothing written."""
    if "None" in compiler:
        pytest.skip("no C++ compiler")
    monkeypatch.setenv("CXX", compiler)
    answer = dpl("kernels", "build", "-o", "new.so")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.message
    assert list(folder.iterdir()) == []


def test_without_a_compiler_it_is_said(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in PATH, and nothing in CXX."""
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(folder))
    answer = dpl("kernels", "build", "-o", "new.so")
    assert answer.code == 2
    assert answer.message == "there is no C++ compiler: c++, g++ and clang++ are not found"
    assert "CXX" in answer.hint


def test_nothing_to_plan(dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 and no file, for a model without partitions; other files are kept."""
    needs_onednn()
    model = written(net("g (float[2] x) => (float[2] y) { y = Sin (x) }"), folder / "m.onnx")
    answer = dpl("kernels", "plan", "m.onnx", "-o", "p.plan")
    assert (answer.code, answer.out) == (1, "")
    assert "m.onnx has no partition for dnnl, so no plan is written" in answer.err
    assert dpl("kernels", "plan", "m.onnx", "-o", "m.onnx").code == 2
    monkeypatch.setenv("CXX", "true")
    answer = dpl("kernels", "build", "-o", "m.onnx")
    assert answer.code == 2
    assert answer.message == "--output m.onnx: exists and is no shared library, so it is kept"
    assert list(folder.iterdir()) == [model]


@pytest.mark.long
def test_a_plan_says_what_runs_and_what_does_not(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table and the record; without the library, the extra is named."""
    needs_onednn()
    text = """g (float[1,3,8,8] x) => (float[1,4,16,16] y) <float[3,4,2,2] w, float[4,4,3,3] v> {
        c = ConvTranspose <strides = [2,2], output_shape = [16,16]> (x, w) r = Relu (c)
        d = Conv <pads = [1,1,1,1]> (r, v) y = Relu (d) }"""
    partitioned(net(text), folder)
    answer = dpl("kernels", "plan", "p.onnx", "-o", "p.plan", "--json", "p.json")
    assert answer.code == 0, answer.err
    assert "1 of 2 partitions is in the plan. Wrote p.plan." in answer.out
    record = json.loads((folder / "p.json").read_text())
    assert (record["schema"], record["planned"]) == ("dpl.kernels/1", 1)
    assert [item["why"] for item in record["partitions"] if not item["library"]] == [
        "ConvTranspose with output_shape"
    ]
    assert (folder / "p.plan").read_text().count("\ncall ") == 1
    monkeypatch.setenv(library.VARIABLE, "/nowhere/libdnnl.so.3")
    answer = dpl("kernels", "plan", "p.onnx", "-o", "q.plan")
    assert answer.code == 2
    assert "pip install 'dplcli[dnnl]'" in answer.hint
    assert not (folder / "q.plan").exists()


@pytest.mark.long
def test_a_plan_that_computes_something_else_is_not_written(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What oneDNN gives is compared first; --no-verify writes the plan all the same."""
    partitioned(net(), folder)
    monkeypatch.setenv(library.VARIABLE, str(faulty(folder, OTHER_PADDING)))
    answer = dpl("kernels", "plan", "p.onnx", "-o", "p.plan")
    assert answer.code == 1
    assert "NOT equivalent" in answer.out
    assert "the model with the plan fails the check, so it is not written" in answer.err
    assert not (folder / "p.plan").exists()
    assert dpl("kernels", "plan", "p.onnx", "-o", "p.plan", "--no-verify").code == 0
    assert (folder / "p.plan").exists()


@pytest.mark.long
def test_a_crash_of_the_library_is_an_answer(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library runs in a process of its own: one message, and nothing half-written."""
    original, result = partitioned(net(), folder)
    monkeypatch.setenv(library.VARIABLE, str(faulty(folder, CRASHES)))
    before = contents(folder)
    answer = dpl("verify", original, result, "--with", "dnnl")
    assert answer.code == 1
    assert "crashed (SIGABRT)" in answer.out + answer.err
    answer = dpl("run", result, "--with", "dnnl", "-o", "y.npz")
    assert answer.code == 2
    assert "crashed (SIGABRT)" in answer.message
    answer = dpl("partition", original, "--target", "dnnl", "-o", "o.onnx", "--with", "dnnl")
    assert answer.code == 1
    assert contents(folder) == before


@pytest.mark.long
def test_a_crash_on_looking_is_an_answer(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the library is asked what it runs."""
    original, result = partitioned(net(), folder)
    monkeypatch.setenv(library.VARIABLE, str(faulty(folder, REFUSES_TO_LOOK)))
    answer = dpl("kernels", "plan", result, "-o", "p.plan")
    assert answer.code == 2
    assert answer.message == "oneDNN crashed (SIGSEGV) while it was asked what it runs"
    answer = dpl("verify", original, result, "--with", "dnnl")
    assert answer.code == 1
    assert "crashed (SIGSEGV)" in answer.out + answer.err
    assert not (folder / "p.plan").exists()


TWINS = """g (float[1,3,8,8] x) => (float[1,3,8,8] y) <float[3,3,3,3] w, float[3,3,3,3] v> {
    c = Conv <pads = [1,1,1,1]> (x, w) r = Relu (c)
    d = Conv <pads = [1,1,1,1]> (r, v) s = Add (d, r) y = Relu (s) }"""
"""Two convolutions with weights of one shape."""


FAULTS = {
    "operator": (OTHER_OPERATOR, "conv2d_relu"),
    "attribute": (OTHER_PADDING, "conv2d_relu"),
    "post-op": (NO_LAST_OPERATOR, "conv2d_relu"),
    "weights": (SWAPPED_WEIGHTS, "conv2d_"),  # whichever runs second
}
"""What is wrong with a library, and how the name of the call begins that shows it first."""


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(4, FAULTS))
def test_a_library_that_computes_something_else_is_noticed(
    dpl: Dpl, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All partitions ran, and the numbers say no; the wrong one is named, and nothing written."""
    original, result = partitioned(net(TWINS), folder)
    fault, first = FAULTS[name]
    monkeypatch.setenv(library.VARIABLE, str(faulty(folder, fault)))
    answer = dpl("verify", original, result, "--with", "dnnl")
    assert answer.code == 1
    assert "2 of 2 partitions ran on oneDNN." in answer.out
    assert "NOT equivalent" in answer.out
    named = re.findall(r"partition '([^']*)' .* by itself gives something else", answer.out)
    assert named, answer.out
    assert named[0].startswith(first)
    answer = dpl("partition", original, "--target", "dnnl", "-o", "o.onnx", "--with", "dnnl")
    assert answer.code == 1
    assert not (folder / "o.onnx").exists()
    answer = dpl("run", result, "--with", "dnnl", "-o", "y.npz", "--check")
    assert answer.code == 1
    assert "by itself gives something else" in answer.out
    assert not (folder / "y.npz").exists()
    answer = dpl("run", result, "--with", "dnnl")
    assert answer.code == 0
    assert "what they gave is not checked; --check does that" in answer.out
