"""What the tests of kernels share: the library, or why there is none, and models to run on it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx.parser
import pytest

from dplcli.errors import UsageError
from dplcli.execute import kernels_for, operators
from dplcli.execute.onednn.library import Library
from dplcli.pipeline import partition
from dplcli.settings import PartitionSettings
from dplcli.verify.check import Check, Execution
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.verify.check import Kernels

SECONDS = 120
"""How long a library may take for anything: if its heap is broken, it may never end."""

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
NUMPY = {"float": "float32", "double": "float64"}
NET = """g (float[N,3,8,8] x) => (float[N,4,8,8] y)
  <float[4,3,3,3] w, float[4] b, float[4,4,3,3] v> {
    c = Conv <pads = [1,1,1,1]> (x, w, b) r = Relu (c)
    d = Conv <pads = [1,1,1,1]> (r, v, b) s = Add (d, r) y = Relu (s) }"""
"""Two convolutions, the second with a residual; weights are filled in by :func:`net`."""

RESIDUALS = """g (float[1,4,8,8] x) => (float[1,4,8,8] y)
  <float[4,4,3,3] w, float[4,4,3,3] v, float[4,4,3,3] u, float[4,4,3,3] t> {
    c = Conv <pads = [1,1,1,1]> (x, w) p = Relu (c)
    d = Conv <pads = [1,1,1,1]> (p, v) q = Relu (d)
    e = Conv <pads = [1,1,1,1]> (q, u) r = Relu (e)
    f = Conv <pads = [1,1,1,1]> (r, t) fs = Add (f, p) s = Relu (fs)
    h = Conv <pads = [1,1,1,1]> (s, w) hs = Add (h, p) y = Relu (hs) }"""
"""One value is added to what is made much later, twice."""

READ_OUTSIDE = """g (float[1,3,8,8] x) => (float[1,4,8,8] y, float[1,4,8,8] c)
  <float[4,3,3,3] w> { c = Conv <pads = [1,1,1,1]> (x, w) y = Relu (c) }"""
"""What a library would run as one operator, and both values are outputs."""

WIDE = """g (float[BATCH,16] x) => (float[BATCH,512] y)
  <float[512,16] w, float[512] b, float[16,512] v> {
    root = Constant <value_float = 1.4142135> () one = Constant <value_float = 1.0> ()
    half = Constant <value_float = 0.5> () t = Transpose <perm = [1, 0]> (w)
    p = MatMul (x, t) c = Add (p, b) d = Div (c, root) e = Erf (d) f = Add (e, one)
    g1 = Mul (c, f) g2 = Mul (g1, half) q = MatMul (x, v) s = Add (q, g2) y = Relu (s) }"""
"""Two products, the first by a transposed matrix; rows of the results are 2 KiB apart."""


@cache
def missing() -> str:
    """Return why oneDNN cannot be used here; "" if it can."""
    try:
        Library()
    except UsageError as error:
        return error.message
    return uncompiled()


@cache
def uncompiled() -> str:
    """Return why the custom operators cannot be compiled here; "" if they are.

    That is done once, for all processes that run tests, and later runs.
    """
    above = Path(os.environ["DPL_CACHE"]).parents
    of_all_runs = (place for place in above if place.name.startswith("pytest-of-"))
    folder = next(of_all_runs, above[1]) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    made_of = operators.digest()
    with suppress(UsageError):
        made_of += Library().path  # it is compiled in
    made = folder / f"{sha256(made_of.encode()).hexdigest()[:32]}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            try:
                operators.build_library(made, None)
            except UsageError as error:
                return error.message
    os.environ[operators.VARIABLE] = str(made)
    return ""


def needs_onednn() -> None:
    """Skip the test if there is no oneDNN, or no compiler for what runs plans on it."""
    if missing():
        pytest.skip(missing())


def opened(
    path: Path, level: str = "disable", *, allow_inexact: bool = False, threads: int = 0
) -> Runner:
    """Open a partitioned model with its kernels, in a process of its own: oneDNN may end it.

    Args:
        path: The model.
        level: How far onnxruntime optimises it.
        allow_inexact: Whether the library may round more.
        threads: How many threads it has; 0 for as many as there are cores.
    """
    asked = Execution(
        options=(("intra_op_num_threads", str(threads)),),
        kernels=kernels_for("dnnl", allow_inexact=allow_inexact),
        timeout=SECONDS,
    )
    return Runner(ModelSource(path, execution=asked), level)


CRASHES, REFUSES_TO_LOOK, OTHER_OPERATOR, OTHER_PADDING, NO_LAST_OPERATOR, SWAPPED_WEIGHTS = range(
    1, 7
)
"""The faults of ``faulty.c``."""


def faulty(folder: Path, fault: int) -> Path:
    """Compile a oneDNN with a fault, around the one that is here."""
    needs_onednn()
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    real = Path(Library().path)
    if not real.is_absolute():
        pytest.skip("where oneDNN is, is not known")
    made = folder / f"libfaulty{fault}.so"
    source = Path(__file__).parent / "faulty.c"
    command = [compiler, "-shared", "-fPIC", f"-DFAULT={fault}", str(source), "-o", str(made)]
    command += ["-Wl,--no-as-needed", str(real), f"-Wl,-rpath,{real.parent}"]
    done = subprocess.run(  # noqa: S603  # our own source
        command, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return made


def net(text: str = NET, opset: int = 17) -> onnx.ModelProto:
    """Parse a model and give its initializers without numbers random ones."""
    import numpy as np  # noqa: PLC0415

    head, _, rest = text.partition(" {")
    head, _, stated = head.partition("<")
    model = onnx.parser.parse_model(f"{HEADER.replace('17', str(opset))}{head} {{{rest}")
    random = np.random.default_rng(0)
    for item in filter(None, stated.rstrip("> \n").split(", ")):
        kind, name = item.split()
        dtype, _, sizes = kind.rstrip("]").partition("[")
        shape = tuple(map(int, sizes.split(",")))
        data = random.standard_normal(shape).astype(NUMPY.get(dtype, dtype))
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    return model


def asking(kernels: Kernels | None = None, target: str = "dnnl", **settings: object) -> Check:
    """Return settings of a check that runs partitions on the library of a target."""
    execution = Execution(kernels=kernels or kernels_for(target), timeout=SECONDS)
    return Check(execution=execution, **settings)  # type: ignore[arg-type]


def written(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model."""
    path.write_bytes(model.SerializeToString())
    return path


def partitioned(
    model: onnx.ModelProto,
    folder: Path,
    *,
    target: str = "dnnl",
    patterns: Sequence[str] = (),
    **settings: object,
) -> tuple[Path, Path]:
    """Write a model and its partitioned form."""
    original, result = written(model, folder / "m.onnx"), folder / "p.onnx"
    chosen = PartitionSettings(verify=False, **settings)  # type: ignore[arg-type]
    partition(original, chosen.but(output=result, patterns=patterns, target=(target,)))
    return original, result
