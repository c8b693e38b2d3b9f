"""What oneDNN does not compute stays with onnxruntime: ranks, and tensors without elements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from platform import machine
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from dplcli.execute.plan import RefusedError
from dplcli.execute.translate import translate
from dplcli.onnx_io import model_from_proto
from dplcli.verify import engines
from dplcli.verify.values import ModelSource, RunError
from tests.execute.support import SECONDS, needs_onednn, opened, written
from tests.support.processor import adds_in_32_bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Array = Any
    Shape = tuple[int, ...]

RANKS = (0, 1, 2, 3, 4, 5, 6, 7, 12, 13)
OPERATORS: Mapping[str, str] = {
    **{kind: f"y = {kind} (x)" for kind in ("Abs", "HardSwish", "Round", "Elu", "HardSigmoid")},
    "Clip": "y = Clip (x, one, one)",
    "Add": "y = Add (x, x)",
    "Add number": "y = Add (x, one)",
    "Add row": "y = Add (x, row)",
    "Mul Add": "t = Mul (x, x) y = Add (t, x)",
    "Softmax": "y = Softmax (x)",
    "LogSoftmax": "y = LogSoftmax <axis = 0> (x)",
    "Norm": "y = LayerNormalization (x, row, row)",
    "Norm of a vector": "y = LayerNormalization <axis = 0> (x, row, row)",
    "BatchNormalization": "y = BatchNormalization (x, channel, channel, channel, channel)",
    "Mean": "y = ReduceMean <axes = [-1]> (x)",
    "Mean of all": "y = ReduceMean (x)",
    "Mean of the first": "y = ReduceMean <axes = [0], keepdims = 0> (x)",
    "MatMul": "y = MatMul (x, matrix)",
    "MatMul of batches": "y = MatMul (x, turned)",
    "Gemm": "y = Gemm (x, matrix, four)",
    "Conv": "y = Conv (x, kernel)",
    "ConvTranspose": "y = ConvTranspose (x, kernel)",
    "MaxPool": "y = MaxPool <kernel_shape = [ONES]> (x)",
    "AveragePool": "y = AveragePool <kernel_shape = [ONES]> (x)",
    "GlobalAveragePool": "y = GlobalAveragePool (x)",
    "steps": "q = QuantizeLinear (x, one) d = DequantizeLinear (q, one) y = Relu (d)",
}
"""Bodies, in one input and in constants that :func:`constants` makes for its shape."""


def shapes() -> Iterator[Shape]:
    """Yield a shape of each rank, and such with ones and zeros."""
    for rank in RANKS:
        yield (2,) * rank
        if rank:
            yield (1,) * rank
            yield (0,) + (2,) * (rank - 1)
            yield (2,) * (rank - 1) + (0,)
        if rank > 2:
            yield (2, 0) + (2,) * (rank - 2)


def constants(shape: Shape) -> dict[str, Array]:
    """Return what bodies read beside an input of a shape."""
    last, channels = shape[-1] if shape else 1, shape[1] if len(shape) > 1 else 1
    window = (1,) * max(len(shape) - 2, 1)
    turned = (*shape[:-2], *shape[:-3:-1])
    sizes: dict[str, Shape] = {
        "one": (),
        "row": (last,),
        "channel": (channels,),
        "four": (4,),
        "matrix": (last, 4),
        "turned": turned,
        "kernel": (channels, channels, *window),
    }
    random = np.random.default_rng(len(shape))
    return {
        name: np.asarray(random.uniform(0.5, 2, size), np.float32) for name, size in sizes.items()
    }


def one(name: str, shape: Shape, first: str = "") -> onnx.ModelProto:
    """Return a model of one call; the first size may have a name in the place of a number."""
    body = OPERATORS[name].replace("ONES", ", ".join("1" * max(len(shape) - 2, 1)))
    given = {key: value for key, value in constants(shape).items() if key in body}
    reads = ", ".join(["x", *given])
    sizes = [first, *map(str, shape[1:])] if first else [*map(str, shape)]
    kind = f"float[{', '.join(sizes)}]" if shape else "float"
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "dnnl" : 1]>
        g ({kind} x) => (float y) {{ y = dnnl.f ({reads}) }}
        <domain: "dnnl", opset_import: ["" : 17]> f ({reads}) => (y) {{ {body} }}"""
    )
    model.graph.node[0].name = "call"
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for key, value in given.items():
        model.graph.initializer.append(numpy_helper.from_array(value, key))
    return model


def data(shape: Shape) -> Array:
    """Return numbers of a shape."""
    return np.asarray(np.random.default_rng(7).uniform(0.1, 2, shape), np.float32)


def runs(model: onnx.ModelProto, shape: Shape, path: Path) -> Array | None:
    """Return what onnxruntime makes of a model; None if it refuses it."""
    try:
        (leaf,) = engines.Session(ModelSource(written(model, path)), "disable").run(
            {"x": data(shape)}
        )["y"]
    except RunError:
        return None
    return leaf.data


@pytest.mark.long
@pytest.mark.parametrize("is_open", [False, True], ids=["stated", "open"])
def test_every_rank_and_size(tmp_path: Path, is_open: bool) -> None:  # noqa: FBT001  # pytest's
    """All operators, ranks and sizes in one session: each call gives what its body gives."""
    needs_onednn()
    whole = onnx.ModelProto(ir_version=8)
    whole.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("dnnl", 1)])
    whole.graph.name = "g"
    feeds: dict[str, Array] = {}
    wanted: dict[str, Array] = {}
    for shape in shapes():
        if is_open and (0 in shape or 2 not in shape):
            continue  # a product of nothing, or a mean of one number, fails, and says so
        for name in OPERATORS:
            model = one(name, shape, f"n{len(wanted)}" if is_open else "")
            result = runs(model, shape, tmp_path / "one.onnx")
            if result is None:
                continue
            key = f"_{len(wanted)}"
            names = {value: value + key for value in ("x", "y", *constants(shape))}
            (call,) = model.graph.node
            call.name = f"{name} {shape} {key}"
            call.op_type = model.functions[0].name = f"f{key}"
            call.input[:] = [names[value] for value in call.input]
            call.output[:] = [names["y"]]
            for part in (*model.graph.input, *model.graph.output, *model.graph.initializer):
                part.name = names[part.name]
            for field in ("node", "input", "output", "initializer"):
                getattr(whole.graph, field).extend(getattr(model.graph, field))
            whole.functions.extend(model.functions)
            feeds[names["x"]], wanted[names["y"]] = data(shape), result
    runner = opened(written(whole, tmp_path / "whole.onnx"))
    found = runner.run(feeds)
    record = runner.record()
    for item in record:
        result = wanted["y" + item.function.removeprefix("dnnl::f")]
        (leaf,) = found["y" + item.function.removeprefix("dnnl::f")]
        assert leaf.data.shape == result.shape, item.call
        np.testing.assert_allclose(leaf.data.astype(float), result, 1e-4, 1e-4, err_msg=item.call)
        assert bool(item.why) != bool(item.runs)
    assert sum(item.runs for item in record) > len(record) / 4


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("Abs", (), "abs of rank 0"),
        ("Add", (), "add of rank 0"),
        ("Abs", (2,) * 13, "abs of rank 13"),
        ("Norm of a vector", (5,), "layer_norm of rank 1"),
        ("Norm", (2,) * 6, "layer_norm of rank 6"),
        ("BatchNormalization", (2,) * 6, "batch_norm_inference of rank 6"),
        ("Gemm", (2, 0), "matmul of a tensor without elements"),
        ("Mean", (3, 1), "a ReduceMean of single numbers"),
        ("Abs", (2,) * 12, ""),
        ("Add number", (2,), ""),  # the number is seen as a row
        ("Norm", (2,) * 5, ""),
        ("Mean", (1, 3), ""),
    ],
)
def test_limits_have_a_reason(name: str, shape: Shape, why: str) -> None:
    """It says what it is about; one dimension less, or one element more, is translated."""
    (call,) = model_from_proto(one(name, shape), Path(), "m.onnx").graph
    if not why:
        assert translate(call).ops
        return
    with pytest.raises(RefusedError) as refused:
        translate(call)
    assert str(refused.value) == why


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "shape", "empty"),
    [
        ("MatMul", (2, 3), (0, 4)),
        ("Gemm", (2, 3), (0, 4)),
        ("Conv", (1, 2, 5, 5), (0, 2, 5, 5)),
        ("MaxPool", (1, 2, 5, 5), (0, 2, 5, 5)),
        ("Mean", (2, 3), (0, 1)),
        ("Mean of the first", (2, 3), None),
        ("Mean of all", (2, 3), None),
    ],
)
def test_no_elements_in_a_run(name: str, shape: Shape, empty: Shape | None, tmp_path: Path) -> None:
    """An expert that gets no token makes none; a mean of no rows is refused: it would be zero."""
    needs_onednn()
    model = one(name, shape, "n")
    runner = opened(written(model, tmp_path / "m.onnx"))
    runner.run({"x": np.ones(shape, np.float32)})
    nothing = {"x": np.ones((0, *shape[1:]), np.float32)}
    if empty is None:
        with pytest.raises(RunError, match=r"its input 0 has the shape \(0, 3\), which"):
            runner.run(nothing)
        return
    for _ in range(2):  # made for these sizes, and found again
        (leaf,) = runner.run(nothing)["y"]
        assert leaf.data.shape == empty
    (leaf,) = runner.run({"x": np.ones(shape, np.float32)})["y"]
    assert leaf.data.size


LEVELS = ("AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "ALL")
CONVOLUTIONS = (
    ((1, 96, 6, 6), (24, 96, 1, 1), "pads = [0,0,0,0]"),  # broke the heap of 3.2 with AMX
    ((1, 24, 6, 6), (144, 24, 1, 1), "pads = [0,0,0,0]"),
    ((2, 8, 9, 9), (12, 8, 3, 3), "pads = [1,1,1,1], strides = [2,2]"),
    ((1, 16, 7, 7), (16, 1, 3, 3), "group = 16, pads = [1,1,1,1]"),
    ((1, 3, 8, 8), (5, 3, 5, 5), "dilations = [1,1], pads = [2,2,2,2]"),
)
CHECKER = "libc_malloc_debug.so.0"
"""glibc's: the process ends where the heap is broken."""


def steps(folder: Path) -> Path:
    """Write a model of 8-bit products: convolutions of all kinds, and a product of matrices."""
    random = np.random.default_rng(0)
    most = 100 if adds_in_32_bits() else 63  # what onnxruntime computes exactly
    body, inputs, weights = [], [], []
    for number, (shape, kernel, settings) in enumerate(CONVOLUTIONS):
        inputs.append(helper.make_tensor_value_info(f"x{number}", onnx.TensorProto.FLOAT, shape))
        numbers = random.integers(-most, most, kernel).astype(np.int8)
        weights.append(numpy_helper.from_array(numbers, f"w{number}"))
        body.append(
            f"""q{number} = QuantizeLinear (x{number}, s, z)
            d{number} = DequantizeLinear (q{number}, s, z)
            v{number} = DequantizeLinear (w{number}, s, i)
            c{number} = Conv <{settings}> (d{number}, v{number})
            r{number} = QuantizeLinear (c{number}, t, z)
            y{number} = DequantizeLinear (r{number}, t, z)"""
        )
    outputs = ", ".join(f"float[a{n},b{n},c{n},d{n}] y{n}" for n in range(len(CONVOLUTIONS)))
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g () => ({outputs})
        <float s = {{0.02}}, float t = {{0.9}}, uint8 z = {{128}}, int8 i = {{0}}>
        {{ {" ".join(body)} }}"""
    )
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(weights)
    return written(model, folder / "m.onnx")


@pytest.mark.long
@pytest.mark.skipif(not machine().endswith("86_64"), reason="for x86 only")
def test_steps_leave_the_heap_whole(tmp_path: Path) -> None:
    """8-bit products, each six times under an allocator that checks, with all that the CPU has."""
    needs_onednn()
    if not any(Path("/lib").glob(f"**/{CHECKER}")):
        pytest.skip("glibc's allocator that checks is not installed")
    model, result = steps(tmp_path), tmp_path / "p.onnx"
    command = [sys.executable, "-m", "dplcli", "partition", str(model), "-o", str(result)]
    run([*command, "--target", "dnnl", "--no-verify", "-q"], {})
    code = """
import sys
from pathlib import Path
import numpy as np
from dplcli.execute import kernels_for
from dplcli.execute.session import open_session
from dplcli.verify.engines import Session
from dplcli.verify.check import Execution
from dplcli.verify.values import ModelSource
path, original = map(Path, sys.argv[1:])
asked = Execution(isolated=False, kernels=kernels_for("dnnl"))
session = open_session(ModelSource(path, execution=asked), "all")
plain = Session(ModelSource(original), "disable")
shapes = {port.name: port.shape for port in plain._session.get_inputs()}
for seed in range(6):
    random = np.random.default_rng(seed)
    feeds = {name: random.random(shape, np.float32) for name, shape in shapes.items()}
    found, wanted = session.run(feeds), plain.run(feeds)
    for name in wanted:
        a, b = found[name][0].data, wanted[name][0].data
        assert np.abs(a - b).max() <= 0.91, name  # a step
print(*sorted({name for item in session.record() for name in item.primitives}))
print(*{item.why for item in session.record() if item.why})
"""
    checked = {"MALLOC_CHECK_": "3", "LD_PRELOAD": CHECKER, "OMP_NUM_THREADS": "1"}
    for level in LEVELS:
        said = run(
            [sys.executable, "-c", code, str(result), str(model)],
            {**checked, "ONEDNN_MAX_CPU_ISA": level},
        )
        assert "convolution" in said or "VNNI" in said, (level, said)


def run(command: list[str], variables: Mapping[str, str]) -> str:
    """Run a command of our own."""
    done = subprocess.run(  # noqa: S603  # ours
        command,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, (variables, done.stdout, done.stderr)
    return done.stdout
