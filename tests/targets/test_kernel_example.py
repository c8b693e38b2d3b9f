"""The worked example: a kernel in C that onnxruntime runs instead of a function's body."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Compile = Callable[..., Path]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ORIGINAL = ROOT / "sample_models" / "residual_block.onnx"
GCC = shutil.which("gcc")

pytestmark = [
    pytest.mark.skipif(GCC is None, reason="gcc, which compiles the kernel, is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel is compiled as on Linux"),
]

CONVOLUTIONS, SEEDS, LEVELS = 2, 2, 2


def dpl(*args: object, calls: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run dpl in a process of its own, as the library's code stays loaded."""
    return subprocess.run(  # noqa: S603  # our own command
        [sys.executable, "-m", "dplcli", *map(str, args)],
        cwd=ROOT,
        env=os.environ | ({} if calls is None else {"KERNEL_CALLS": str(calls)}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outline the convolutions of the example, and write the header for its kernels."""
    path = tmp_path_factory.mktemp("kernel") / "partitioned.onnx"
    done = dpl("partition", ORIGINAL, "--patterns", "conv_relu", "-o", path, "--no-verify")
    assert done.returncode == 0, done.stderr
    done = dpl("inspect", path, "--contract", "--c-header", path.with_name("kernels.h"))
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def library(partitioned: Path) -> Compile:
    """Return what compiles the kernel against the header of the model."""

    def compiled(name: str, *options: str) -> Path:
        path = partitioned.with_name(name)
        command = [str(GCC), "-std=c11", "-O2", "-shared", "-fPIC", *options]
        command += ["-Wall", "-Wextra", "-Werror", "-pedantic"]
        command += [f"-I{partitioned.parent}", f"-I{HERE}"]
        command += [str(HERE / "conv2d_bias_relu.c"), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
        assert done.returncode == 0, done.stderr
        return path

    return compiled


@pytest.mark.long
def test_the_kernel_runs_instead_of_the_body(partitioned: Path, library: Compile) -> None:
    """Each call, at each level and for each seed, and the numbers are the original's."""
    calls = partitioned.with_name("calls")
    kernel = library("kernel.so")
    done = dpl("verify", ORIGINAL, partitioned, "--custom-ops", kernel, calls=calls)

    assert done.returncode == 0, done.stderr
    assert "Equivalent in onnxruntime" in done.stdout
    assert len(calls.read_bytes()) == CONVOLUTIONS * SEEDS * LEVELS


@pytest.mark.long
def test_without_the_library_the_body_runs(partitioned: Path) -> None:
    """The model needs no kernel."""
    calls = partitioned.with_name("no_calls")
    done = dpl("verify", ORIGINAL, partitioned, calls=calls)

    assert done.returncode == 0
    assert not calls.exists()


@pytest.mark.long
def test_a_wrong_kernel_is_found_out(partitioned: Path, library: Compile) -> None:
    """A kernel that forgets its ReLU makes other numbers than the body, and dpl says so."""
    wrong = library("wrong.so", "-DPLANTED_ERROR")
    done = dpl("verify", ORIGINAL, partitioned, "--custom-ops", wrong)

    assert done.returncode == 1
    assert "NOT equivalent" in done.stdout


@pytest.mark.long
def test_a_kernel_is_judged_by_the_bodies_of_the_same_model(
    partitioned: Path, library: Compile
) -> None:
    """The original side runs without kernels where it can: else a kernel would judge itself."""
    wrong = library("wrong.so", "-DPLANTED_ERROR")
    done = dpl("verify", partitioned, partitioned, "--custom-ops", wrong)

    assert done.returncode == 1


@pytest.mark.long
def test_partition_checks_its_result_with_kernels(tmp_path: Path, library: Compile) -> None:
    """A wrong kernel keeps ``dpl partition`` from writing."""
    wrong = library("wrong.so", "-DPLANTED_ERROR")
    output = tmp_path / "out.onnx"
    words = ("partition", ORIGINAL, "--patterns", "conv_relu", "--custom-ops", wrong)
    done = dpl(*words, "-o", output, "--all-or-nothing")

    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_an_original_that_needs_the_operators_gets_them(
    partitioned: Path, library: Compile, tmp_path: Path
) -> None:
    """A model without the function runs with the kernel only, and dpl says what that means."""
    model = onnx.load(partitioned)
    del model.functions[:]
    bare = tmp_path / "bare.onnx"
    onnx.save(model, bare)
    kernel = library("kernel.so")
    proved = dpl("verify", bare, bare)
    done = dpl("verify", bare, bare, "--custom-ops", kernel, "--json", "-")

    assert proved.returncode == 0
    assert "conv2d_bias_relu" in proved.stdout  # what did not run
    assert "by proof" in proved.stdout
    assert done.returncode == 0, done.stderr
    assert "so it uses them, too" in " ".join(json.loads(done.stdout)["warnings"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"not a library", "does not load it")],
    ids=["missing", "no-library"],
)
def test_a_bad_library_is_refused(
    content: bytes | None, message: str, tmp_path: Path, partitioned: Path
) -> None:
    """Before any work: exit code 2, one message."""
    path = tmp_path / "library.so"
    if content is not None:
        path.write_bytes(content)
    done = dpl("verify", ORIGINAL, partitioned, "--custom-ops", path)

    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_a_library_without_operators_is_refused(library: Compile, partitioned: Path) -> None:
    """It exports nothing that onnxruntime could call."""
    path = library("hidden.so", "-DRegisterCustomOps=SomethingElse")
    done = dpl("verify", ORIGINAL, partitioned, "--custom-ops", path)

    assert done.returncode == 2
    assert "RegisterCustomOps" in done.stderr


@pytest.mark.long
def test_bisect_finds_the_partition_whose_kernel_is_wrong(library: Compile, tmp_path: Path) -> None:
    """Over partitions, a wrong kernel is named, and its folder reproduces with the kernel in it."""
    wrong = library("wrong.so", "-DPLANTED_ERROR")
    argv = ("bisect", ORIGINAL, "--patterns", "conv_relu", "--custom-ops", wrong)
    done = dpl(*argv, "-o", tmp_path / "out")

    assert done.returncode == 1, done.stderr
    assert "NOT equivalent: 1 cause in 2 partitions" in done.stdout
    again = dpl("bisect", "--reproduce", tmp_path / "out" / "1")
    assert again.returncode == 1, again.stdout
    right = library("kernel.so")
    (copy,) = (tmp_path / "out" / "1" / "libraries").rglob("*.so")
    shutil.copyfile(right, copy)
    assert dpl("bisect", "--reproduce", tmp_path / "out" / "1").returncode == 0
