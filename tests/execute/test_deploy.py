"""Partitions on oneDNN in programs without dpl: ``dpl kernels build`` and ``dpl kernels plan``."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from platform import machine
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from dplcli.execute import operators
from dplcli.execute.onednn import library as onednn
from tests.corpus.nets import real_model
from tests.execute.support import (
    NET,
    RESIDUALS,
    WIDE,
    needs_onednn,
    net,
    partitioned,
    written,
)
from tests.execute.test_limits import CONVOLUTIONS, steps
from tests.support.pages import blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.float32]]

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
import numpy as np, onnxruntime as ort

def opened(model, plan, library, threads="", **settings):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name, value in settings.items():
        setattr(options, name, value)
    if plan:
        options.add_session_config_entry("dpl.plan", plan)
        if threads:
            options.add_session_config_entry("dpl.threads", threads)
        options.register_custom_ops_library(library)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

def run(session, feeds):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))
"""


def dpl(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run dpl in a process of its own."""
    return subprocess.run(  # noqa: S603  # our own command
        [sys.executable, "-m", "dplcli", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def program(
    text: str, *arguments: object, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that knows onnxruntime and not dpl."""
    whole = f"{PROGRAM}\n{text}\nassert not any(name.startswith('dpl') for name in sys.modules)\n"
    return subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", whole, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def library() -> Path:
    """Return the library, which is compiled once for all tests."""
    needs_onednn()
    return Path(os.environ[operators.VARIABLE])


def planned(model: Path, *options: str) -> Path:
    """Write the plan of a model; every call has to be in it."""
    path = model.with_suffix(".plan")
    done = dpl("kernels", "plan", model, "-o", path, *options)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(\S+) of \1 partitions? (is|are) in the plan", done.stdout), done.stdout
    return path


def fed(folder: Path, name: str = "x.npz", **arrays: NDArray[np.generic]) -> Path:
    """Write inputs."""
    np.savez(folder / name, **arrays)  # type: ignore[arg-type]  # its stubs are wrong
    return folder / name


ONE_RUN = """
library, model, plan, inputs, output = sys.argv[1:6]
np.savez(output, **run(opened(model, plan, library), dict(np.load(inputs))))
"""


def ran(
    folder: Path,
    library: Path,
    model: Path,
    plan: Path | str,
    inputs: Path,
    **environment: str,
) -> tuple[Arrays, Sequence[str]]:
    """Run a model; return what it gave, and the primitives that oneDNN says it ran."""
    given = (library, model, plan, inputs, "y.npz")
    done = program(ONE_RUN, *given, folder=folder, ONEDNN_VERBOSE="1", **environment)
    assert done.returncode == 0, done.stderr
    primitives = [
        found for line in done.stdout.splitlines() if (found := onednn.read_primitive(line))
    ]
    return np.load(folder / "y.npz"), [each.kind for each in primitives if not each.is_reorder]


@pytest.mark.long
def test_build_writes_what_the_compiler_makes(tmp_path: Path, library: Path) -> None:
    """And says which compiler that was; this one has made the library before."""
    compiler, path = tmp_path / "cc", tmp_path / "libdpl_dnnl.so"
    compiler.write_text(
        f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\ncp {library} "$2"\n', encoding="utf-8"
    )
    compiler.chmod(0o755)
    done = dpl("kernels", "build", "-o", path, CXX=str(compiler))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Wrote {path}, by {compiler}")
    assert path.read_bytes() == library.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "merge"),
    [
        pytest.param("resnet50-legacy17", False, marks=pytest.mark.exhaustive),
        pytest.param("resnet50-legacy17", True, marks=pytest.mark.exhaustive),
        pytest.param("mobilenetv2-legacy13", False, marks=pytest.mark.exhaustive),
        ("bert-legacy17", True),
        pytest.param("gpt2-dynamo20", False, marks=pytest.mark.exhaustive),
    ],
)
def test_a_program_gives_what_dpl_run_gives(
    tmp_path: Path,
    library: Path,
    name: str,
    merge: bool,  # noqa: FBT001  # pytest's
) -> None:
    """On real models: each call runs as it does for dpl, and gives the same numbers."""
    original, model = real_model(name), tmp_path / "p.onnx"
    options = ["--merge"] if merge else []
    done = dpl("partition", original, "--target", "dnnl", "-o", model, "--no-verify", *options)
    assert done.returncode == 0, done.stderr
    plan = tmp_path / "p.plan"
    done = dpl("kernels", "plan", model, "-o", plan)
    assert done.returncode == 0, done.stderr
    given, taken = tmp_path / "given.npz", tmp_path / "taken.npz"
    done = dpl(
        *("run", model, "--with", "dnnl", "-o", given, "--save-inputs", taken),
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr
    taken = fed(tmp_path, **{key.split("/")[-1]: value for key, value in np.load(taken).items()})
    found, primitives = ran(tmp_path, library, model, plan, taken)
    calls = re.findall(r"(?m)^call ", plan.read_text())
    assert len(primitives) >= len(calls) > 0
    wanted = np.load(given)
    assert set(found) == set(wanted)
    for key, array in wanted.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_the_page_says_how(tmp_path: Path, library: Path) -> None:
    """The commands and the program of docs/kernels.md, as they stand there."""
    page = ROOT / "docs" / "kernels.md"
    shutil.copy(ROOT / "sample_models" / "residual_block.onnx", tmp_path)
    shutil.copy(library, tmp_path / "libdpl_dnnl.so")  # compiled once is enough
    commands = [
        shlex.split(line)
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if line.startswith("dpl ") and ("partitioned.plan" in line or "--target dnnl" in line)
    ]
    assert [words[1] for words in commands] == ["partition", "kernels", "verify"]
    (code,) = [block for block in blocks(page, "python") if "dpl.plan" in block]
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for words in commands[:2]:
            done = dpl(*words[1:])
            assert done.returncode == 0, done.stderr
        shown = program(code, folder=tmp_path, ONEDNN_VERBOSE="1")
        assert shown.returncode == 0, shown.stderr
        assert ",exec,cpu,convolution," in shown.stdout
        done = dpl(*commands[2][1:])
    finally:
        os.chdir(before)
    assert done.returncode == 0, done.stderr
    assert "Equivalent in onnxruntime" in done.stdout


@pytest.mark.long
def test_threads_and_shapes(tmp_path: Path, library: Path) -> None:
    """One session, four threads, batches of five sizes: each run gives what stock gives."""
    _, model = partitioned(net(), tmp_path, merge=True)
    text = """
from concurrent.futures import ThreadPoolExecutor
library, model, plan = sys.argv[1:4]
session, stock = opened(model, plan, library, intra_op_num_threads=2), opened(model, "", "")

def check(seed):
    x = np.random.default_rng(seed).standard_normal((1 + seed % 5, 3, 8, 8), np.float32)
    a, b = run(session, {"x": x})["y"], run(stock, {"x": x})["y"]
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / np.abs(b).max())

with ThreadPoolExecutor(4) as pool:
    print(max(pool.map(check, range(200))))
"""
    done = program(text, library, model, planned(model), folder=tmp_path, OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize(("limit", "more"), [("", 2), ("1", 0), ("2", 1)])
def test_a_limit_of_threads_holds_in_every_thread(
    tmp_path: Path, library: Path, limit: str, more: int
) -> None:
    """OpenMP keeps a number for each thread; another one than registered may run the session."""
    _, model = partitioned(net(WIDE), tmp_path)
    text = """
import os
from threading import Thread
library, model, plan, limit = sys.argv[1:5]
session = opened(model, plan, library, limit, intra_op_num_threads=1)

def check(batch):
    run(session, {"x": np.ones((batch, 16), np.float32)})
    print(len(os.listdir("/proc/self/task")) - before)

before = len(os.listdir("/proc/self/task")) + 1
thread = Thread(target=check, args=(640,))
thread.start()
thread.join()
"""
    given = (library, model, planned(model), limit)
    done = program(text, *given, folder=tmp_path, OMP_NUM_THREADS="3")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == more


@pytest.mark.long
def test_two_sessions_have_their_own_plans(tmp_path: Path, library: Path) -> None:
    """Calls of the same names, in two models of other attributes and weights."""
    models = []
    for name, text in (
        ("a", NET),
        ("b", NET.replace("c = Conv <pads", "c = Conv <dilations = [2,2], pads")),
    ):
        (tmp_path / name).mkdir()
        proto = net(text.replace("[1,1,1,1]> (x", "[2,2,2,2]> (x") if name == "b" else text)
        models.append(partitioned(proto, tmp_path / name)[1])
    plans = [planned(model) for model in models]
    calls = [re.findall(r"(?m)^call .*", plan.read_text()) for plan in plans]
    assert calls[0] == calls[1]
    text = """
library, *places = sys.argv[1:]
pairs = list(zip(places[::2], places[1::2]))
sessions = [opened(model, plan, library) for model, plan in pairs]
stock = [opened(model, "", "") for model, _ in pairs]
x = np.random.default_rng(0).standard_normal((2, 3, 8, 8), np.float32)
for _ in range(2):
    for one, other in zip(sessions, stock):
        a, b = run(one, {"x": x})["y"], run(other, {"x": x})["y"]
        print(np.abs(a - b).max() / np.abs(b).max())
del sessions[0], one
a = run(sessions[0], {"x": x})["y"]
print(np.abs(a - run(stock[1], {"x": x})["y"]).max())
print(np.abs(run(stock[0], {"x": x})["y"] - a).max() > 0.1)
"""
    places = [place for pair in zip(models, plans, strict=True) for place in pair]
    done = program(text, library, *places, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    *errors, differ = done.stdout.split()
    assert all(float(error) < 1e-5 for error in errors)
    assert differ == "True"


@pytest.mark.long
def test_an_initializer_that_is_an_input_may_change(tmp_path: Path, library: Path) -> None:
    """Weights that a caller may give are read at each run."""
    model = net()
    (w,) = [tensor for tensor in model.graph.initializer if tensor.name == "w"]
    model.graph.input.append(
        onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, list(w.dims))
    )
    _, result = partitioned(model, tmp_path)
    plan = planned(result)
    text = """
library, model, plan = sys.argv[1:4]
session, stock = opened(model, plan, library), opened(model, "", "")
r = np.random.default_rng(0)
x = r.standard_normal((2, 3, 8, 8), np.float32)
for w in ({}, {"w": r.standard_normal((4, 3, 3, 3), np.float32)}, {}):
    a, b = (run(each, {"x": x, **w})["y"] for each in (session, stock))
    print(np.abs(a - b).max() / np.abs(b).max())
"""
    done = program(text, library, result, plan, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(float(error) < 1e-5 for error in done.stdout.split())
    assert len(done.stdout.split()) == 3


@pytest.mark.long
def test_values_of_a_region_are_kept_while_they_are_read(tmp_path: Path, library: Path) -> None:
    """They share memory and are added in place, but not before their last reader."""
    _, model = partitioned(net(RESIDUALS), tmp_path, merge=True)
    data = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)
    inputs = fed(tmp_path, x=data)
    stock, _ = ran(tmp_path, library, model, "", inputs)
    wanted = stock["y"]
    for options, near in (((), 1e-5), (("--math", "bf16"), 0.02)):
        plan = planned(model, *options)
        assert ("\nmath 1 " in plan.read_text()) == bool(options)
        found, primitives = ran(tmp_path, library, model, plan, inputs)
        assert primitives == ["convolution"] * 5
        np.testing.assert_allclose(found["y"], wanted, near, near * np.abs(wanted).max())


@pytest.mark.long
@pytest.mark.parametrize(
    ("batch", "merge", "kind"),
    [
        ("1,16", True, "convolution"),
        ("2,3,5", False, "convolution"),
        ("1,15", True, "matmul"),
        ("64", True, "matmul"),
        ("1,2,1,2,16", True, "matmul"),
    ],
)
def test_wide_products_are_convolutions_with_avx2_at_most(
    tmp_path: Path, library: Path, batch: str, *, merge: bool, kind: str
) -> None:
    """They are quicker there; the numbers stay."""
    if not machine().endswith("86_64"):
        pytest.skip("what oneDNN may use is limited on x86 only")
    _, model = partitioned(net(WIDE.replace("BATCH", batch)), tmp_path, merge=merge)
    shape = (*map(int, batch.split(",")), 16)
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    inputs = fed(tmp_path, x=data)
    plan = planned(model)
    found, primitives = ran(tmp_path, library, model, plan, inputs, ONEDNN_MAX_CPU_ISA="AVX2")
    given = dict(found)
    stock, _ = ran(tmp_path, library, model, "", inputs)
    assert primitives == [kind] * 2
    np.testing.assert_allclose(given["y"], stock["y"], rtol=1e-5, atol=1e-4)


@pytest.mark.long
def test_calls_inside_an_if(tmp_path: Path, library: Path) -> None:
    """With a weight, and a bound, of the graph around."""
    text = """g (float[1,3,8,8] x, bool q) => (float[1,3,8,8] y)
        <float[3,3,3,3] w, float[3] b> {
        low = Constant <value = float {0}> () high = Constant <value = float {1}> ()
        y = If (q) <then_branch = t () => (float[1,3,8,8] a) {
                c = Conv <pads = [1,1,1,1]> (x, w, b) a = Clip (c, low, high) },
            else_branch = e () => (float[1,3,8,8] n) { n = Neg (x) }> }"""
    _, model = partitioned(net(text), tmp_path)
    plan = planned(model)
    assert "\nfixed " in plan.read_text()
    data = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    inputs = fed(tmp_path, x=data, q=np.array(True))  # noqa: FBT003  # numpy's
    found, primitives = ran(tmp_path, library, model, plan, inputs)
    assert primitives == ["convolution"]
    given = dict(found)
    stock, none = ran(tmp_path, library, model, "", inputs)
    assert none == []
    np.testing.assert_allclose(given["y"], stock["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_the_cpu_decides_about_8_bits(tmp_path: Path, library: Path) -> None:
    """The plan has them; where they would be inexact, or harm, the bodies run in onnxruntime."""
    if not machine().endswith("86_64"):
        pytest.skip("what oneDNN may use is limited on x86 only")
    _, model = partitioned(onnx.load(steps(tmp_path)), tmp_path)
    plan = planned(model)
    right = plan.read_text()
    random = np.random.default_rng(0)
    shapes = {f"x{number}": shape for number, (shape, _, _) in enumerate(CONVOLUTIONS)}
    inputs = fed(
        tmp_path, "x.npz", **{name: random.random(s, np.float32) for name, s in shapes.items()}
    )
    stock, _ = ran(tmp_path, library, model, "", inputs)
    wanted = dict(stock)
    version = " ".join(map(str, onednn.Library().version))
    exact = not onednn.Library().objection_to_steps(allow_inexact=False)
    for change, isa, runs in (
        ("", "ALL", exact),
        ("", "AVX2", False),
        ("inexact\n", "AVX2", True),
        (f"faulty {version} 99 0 0 1 0 it%20harms\n", "ALL", False),
        (f"faulty {version} 99 0 0 1 1073741824 it%20harms\n", "ALL", exact),  # on other CPUs
    ):
        plan.write_text(right.replace("\nfunction", f"\n{change}function", 1))
        found, primitives = ran(tmp_path, library, model, plan, inputs, ONEDNN_MAX_CPU_ISA=isa)
        assert primitives == ["convolution"] * (len(shapes) if runs else 0), (change, isa)
        for name, numbers in wanted.items():
            apart = np.abs(found[name] - numbers).max()
            assert apart <= (0.0 if not runs else 40 if change == "inexact\n" else 0.91), name


CLIP = """g (float[N,3,8,8] x) => (float[N,4,8,8] y) <float[4,3,3,3] w, float[4] b> {
    low = Constant <value = float {0}> () high = Constant <value = float {6}> ()
    c = Conv <pads = [1,1,1,1]> (x, w, b) y = Clip (c, low, high) }"""

REFUSED = {
    "another attribute": (
        r"(?m)^(attribute pads ints 4) 1 1 1 1$",
        r"\1 0 0 0 0",
        "its attribute pads",
    ),
    "an attribute too many": (
        r"(?m)^(call .*)$",
        r"\1\nattribute odd int 1 1",
        "its attribute odd",
    ),
    "another bound": (
        r"(?m)^(fixed \d+) 0000c040$",
        r"\1 0000e040",
        "holds other numbers than the plan",
    ),
    "another weight": (r"(?m)^(input \d+ 1 1 4 4 3) 3 3$", r"\1 5 5", "has the shape (4, 3, 3, 3)"),
    "another call": (r"(?m)^call .*$", "call other", "it was made for another model"),
    "another type": (r"(?m)^(function \S+ \S+ \d \d) 1", r"\1 11", "input parameter (x)"),
    "a kind that is none": (r"(?m)^(op \S+) 13 ", r"\1 9999 ", "no operator has this number"),
    "no settings": (r"(?m)^set .*\n", "", "returned status"),
    "another version": (r"^dpl-plan 4", "dpl-plan 9", "no plan of this version of dpl"),
    "no end": (r"(?m)^end\n", "", "the end of the plan is missing"),
    "half a line": (r"(?m)^(outputs) .*$", r"\1 1", "something is missing"),
    "words": (r"(?m)^outputs .*$", "outputs 1 one", "'one' is no number"),
    "a huge count": (r"(?m)^outputs .*$", "outputs 99999999999999 1", "something is missing"),
    "a value of nowhere": (r"(?m)^outputs .*$", "outputs 1 77", "value 77 is not known"),
    "no inputs": (r"(?m)^input .*\n", "", "another number of inputs"),
    "a number of no size": (
        r"(?m)^(outputs .*)$",
        r"number 0 1 3 00\n\1",
        "another size than its shape",
    ),
    "too many sizes": (
        r"(?m)^(outputs .*)$",
        r"view 0 13" + " 1" * 13 + r"\n\1",
        "more dimensions",
    ),
    "something else": (r"(?s)^.*$", "not a plan\n", "no plan of this version"),
    "too old": (r"(?m)^oldest .*$", "oldest 99 0 0", "needed is 99.0.0 or later"),
}


@pytest.mark.long
def test_a_wrong_plan_is_refused(tmp_path: Path, library: Path) -> None:
    """When the session is made, with a reason, and without a crash."""
    _, model = partitioned(net(CLIP), tmp_path)
    right = planned(model).read_text()
    places: list[Path] = []
    for name, (pattern, text, _) in REFUSED.items():
        wrong, count = re.subn(pattern, text, right)
        assert count, name
        places.append(tmp_path / f"{len(places)}.plan")
        places[-1].write_text(wrong)
    code = """
library, model, *plans = sys.argv[1:]
for plan in plans:
    try:
        opened(model, plan, library)
    except Exception as error:
        print(" ".join(str(error).split()))
    else:
        print("nothing")
"""
    done = program(code, library, model, *places, tmp_path / "none.plan", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    *said, missing = done.stdout.splitlines()
    for answer, (name, (_, _, wanted)) in zip(said, REFUSED.items(), strict=True):
        assert wanted in answer, (name, answer)
    assert "none.plan cannot be read: No such file" in missing


@pytest.mark.long
def test_a_session_without_a_plan_or_a_library(tmp_path: Path, library: Path) -> None:
    """It is said what is missing, and how to give it."""
    _, model = partitioned(net(CLIP), tmp_path)
    plan = planned(model)
    code = """
library, model, plan, named = sys.argv[1:]
options = ort.SessionOptions()
if plan:
    options.add_session_config_entry("dpl.plan", plan)
if named:
    options.add_session_config_entry("dpl.library", named)
try:
    options.register_custom_ops_library(library)
except Exception as error:
    print(error)
"""
    for arguments, environment, said in (
        (("", ""), {}, "no configuration entry dpl.plan"),
        ((plan, "/nowhere/libdnnl.so.3"), {}, "oneDNN was not found: /nowhere/libdnnl.so.3"),
        ((plan, "libc.so.6"), {}, "libc.so.6 is no oneDNN"),
        ((plan, ""), {onednn.VARIABLE: "/gone.so"}, "oneDNN was not found: /gone.so"),
        ((plan, onednn.Library().path), {onednn.VARIABLE: "/gone.so"}, ""),
    ):
        done = program(code, library, model, *arguments, folder=tmp_path, **environment)
        assert done.returncode == 0, done.stderr
        assert (said in done.stdout) if said else done.stdout == ""


@pytest.mark.long
def test_verify_judges_what_is_deployed(tmp_path: Path, library: Path) -> None:
    """A plan that says another bound, and constants that would not tell: the numbers do."""
    original, model = partitioned(net(), tmp_path)
    plan = planned(model)
    given = ("verify", original, model, "--custom-ops", library, "--session-option")
    assert dpl(*given, f"dpl.plan={plan}").returncode == 0
    wrong = tmp_path / "wrong.plan"
    wrong.write_text(re.sub(r"(?m)^(op \S+) 58 ", r"\1 62 ", plan.read_text()))  # Sigmoid for Relu
    answer = dpl(*given, f"dpl.plan={wrong}")
    assert answer.returncode == 1
    assert "NOT equivalent" in answer.stdout
    answer = dpl(*given, "session.intra_op.allow_spinning=0")
    assert answer.returncode == 2
    assert "no configuration entry dpl.plan" in answer.stderr
    assert "dpl kernels plan" in answer.stderr


@pytest.mark.long
def test_names_of_all_kinds(tmp_path: Path, library: Path) -> None:
    """Blanks, percent signs and letters beyond ASCII in names of calls."""
    _, path = partitioned(net(), tmp_path)
    model = onnx.load(path)
    for node, name in zip(model.graph.node, ("a b %41 ü\n#", "end"), strict=True):
        node.name = name
    plan = planned(written(model, path))
    data = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    _, primitives = ran(tmp_path, library, path, plan, fed(tmp_path, x=data))
    assert primitives == ["convolution"] * 2
