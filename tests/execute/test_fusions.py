"""An operator with a binary one behind it: what oneDNN makes of both is right, or it is not asked.

That is for all shapes that broadcast to that of the first operator's result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

from dplcli.execute.onednn.faults import misread
from dplcli.execute.onednn.library import Library
from dplcli.execute.onednn.plans import plan_text
from dplcli.execute.onednn.session import OneDnn
from dplcli.execute.operators import VARIABLE
from dplcli.execute.plan import KernelPlan, PlanOp
from tests.execute.support import SECONDS, needs_onednn, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dplcli.execute.plan import OpenShape, Setting, Shape

    Array = Any

X, W, FIRST, OPERAND, SECOND, LAST = range(6)
"""The values of a plan: what the operator reads, what it makes, and so on."""


class Operator(NamedTuple):
    """An operator.

    Attributes:
        kind: Its kind.
        reads: The shapes of what it reads.
        compute: It, in numpy.
        settings: Its attributes.
    """

    kind: str
    reads: tuple[Shape, ...]
    compute: Callable[..., Array]
    settings: dict[str, Setting]


def softmax(x: Array) -> Array:
    """Over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def windows(x: Array) -> Array:
    """Return the windows of 3 x 3 of images."""
    return sliding_window_view(x, (3, 3), (2, 3))


def normalised(x: Array) -> Array:
    """Over the last axis."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def by_channels(x: Array, w: Array) -> Array:
    """Convolve with windows of one place."""
    return np.einsum("nchw,ochw->nohw", x, np.broadcast_to(w, (*w.shape[:2], *x.shape[2:])))


PLACES: dict[str, Setting] = {"strides": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
POOL: dict[str, Setting] = {**PLACES, "kernel": (3, 3), "rounding_type": "floor"}
IMAGES: dict[str, Setting] = {"data_format": "NCX"}
OPERATORS = {
    "matrices": Operator("matmul", ((5, 8), (8, 6)), np.matmul, {}),
    "3 by matrix": Operator("matmul", ((3, 5, 8), (8, 6)), np.matmul, {}),
    "4 by matrix": Operator("matmul", ((2, 3, 5, 8), (8, 6)), np.matmul, {}),
    "turned": Operator(
        "matmul", ((2, 3, 5, 8), (6, 8)), lambda x, w: x @ w.T, {"transpose_b": True}
    ),
    "batches": Operator("matmul", ((2, 3, 5, 8), (2, 3, 8, 6)), np.matmul, {}),
    "convolution": Operator(
        "convolution",
        ((2, 4, 5, 7), (6, 4, 1, 1)),
        by_channels,
        {**PLACES, **IMAGES, "dilations": (1, 1), "groups": 1, "weights_format": "OIX"},
    ),
    "max": Operator(
        "max_pool",
        ((2, 6, 5, 7),),
        lambda x: windows(x).max((-1, -2)),
        {**POOL, **IMAGES, "dilations": (1, 1)},
    ),
    "average": Operator(
        "avg_pool",
        ((2, 6, 5, 7),),
        lambda x: windows(x).mean((-1, -2)),
        {**POOL, **IMAGES, "exclude_pad": False},
    ),
    "softmax": Operator("softmax", ((3, 5, 7),), softmax, {"axis": -1}),
    "normal": Operator(
        "layer_norm",
        ((3, 5, 7),),
        normalised,
        {"epsilon": 1e-5, "keep_stats": False, "begin_norm_axis": -1, "use_affine": False},
    ),
    "mean": Operator(
        "reduce_mean",
        ((2, 3, 5, 7),),
        lambda x: x.mean((2, 3), keepdims=True),
        {"axes": [2, 3], "keep_dims": True},
    ),
    "tanh": Operator("tanh", ((2, 3, 5, 7),), np.tanh, {}),
}
QUICK = {"4 by matrix", "max"}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "multiply": np.multiply,
    "subtract": np.subtract,
    "maximum": np.maximum,
}


def operands(whole: Shape) -> Iterator[Shape]:
    """Yield all shapes that broadcast to one."""
    for rank in range(1, len(whole) + 1):
        for mask in product((True, False), repeat=rank):
            last = whole[len(whole) - rank :]
            yield tuple(size if kept else 1 for size, kept in zip(last, mask, strict=True))


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in OPERATORS],
)
def test_what_is_fused_is_right(name: str, tmp_path: Path) -> None:
    """In a region, on either side, alone or with an activation between or behind."""
    needs_onednn()
    operator = OPERATORS[name]
    random = np.random.default_rng(0)
    fed = [random.standard_normal(shape).astype(np.float32) for shape in operator.reads]
    whole = operator.compute(*fed)
    data = dict(zip("xw", fed, strict=False))
    nodes: list[onnx.NodeProto] = []
    calls: dict[Any, Any] = {}
    wanted: dict[str, tuple[str, Array]] = {}
    for number, shape in enumerate(operands(whole.shape)):
        data[f"operand{number}"] = random.standard_normal(shape).astype(np.float32)
        for place, kind in enumerate(BINARY):
            is_left, is_constant, bent = bool(number % 2), bool(place % 2), (number + place) % 3
            plan = _plan(operator, kind, (is_left, bent))
            reads = [*"xw"[: len(fed)], f"operand{number}{'c' if is_constant else ''}"]
            pairs = zip(plan.inputs, reads, strict=True)
            plan.given = {n: data[read.rstrip("c")].shape for n, read in pairs}
            plan.constant = {OPERAND} if is_constant else set()
            call = f"{number}: {kind} {shape} {bent}"
            calls["dnnl", f"f{len(calls)}"] = [(call, plan, {})]
            made = f"y{len(nodes)}"
            nodes.append(helper.make_node(f"f{len(nodes)}", reads, [made], call, domain="dnnl"))
            middle = np.maximum(whole, 0) if bent == 1 else whole
            other = data[f"operand{number}"]
            result = BINARY[kind](*((other, middle) if is_left else (middle, other)))
            wanted[made] = call, np.maximum(result, 0) if bent == 2 else result
    for made, found in _ran(nodes, calls, data, tmp_path).items():
        call, numbers = wanted.pop(made)
        np.testing.assert_allclose(found, numbers, 1e-4, 1e-4, err_msg=call)
    assert not wanted


def _plan(operator: Operator, kind: str, how: tuple[bool, int]) -> KernelPlan:
    """Return an operator with a binary one behind it, and perhaps an activation."""
    is_left, bent = how
    inputs = [X, W][: len(operator.reads)]
    ops = [
        PlanOp(operator.kind, inputs, FIRST, operator.settings),
        PlanOp("relu", [FIRST], LAST),
    ][: 2 if bent == 1 else 1]
    pair = [ops[-1].output, OPERAND]
    ops.append(PlanOp(kind, pair[::-1] if is_left else pair, SECOND, {"auto_broadcast": "numpy"}))
    if bent == 2:  # of three ways
        ops.append(PlanOp("relu", [SECOND], LAST))
    return KernelPlan(
        ops=ops,
        inputs=[*inputs, OPERAND],
        outputs=[ops[-1].output],
        dtypes=dict.fromkeys(range(6), "float32"),
        is_region=True,
    )


RUN = """
import sys, numpy as np, onnxruntime as ort
folder, library, dnnl = sys.argv[1:]
options = ort.SessionOptions()
options.add_session_config_entry("dpl.plan", folder + "/m.plan")
options.add_session_config_entry("dpl.library", dnnl)
options.register_custom_ops_library(library)
session = ort.InferenceSession(folder + "/m.onnx", options, providers=["CPUExecutionProvider"])
feeds = dict(np.load(folder + "/x.npz"))
feeds = {each.name: feeds[each.name] for each in session.get_inputs()}
names = [each.name for each in session.get_outputs()]
np.savez(folder + "/y.npz", **dict(zip(names, session.run(names, feeds))))
"""


def _ran(
    nodes: list[onnx.NodeProto], calls: dict[Any, Any], data: dict[str, Array], folder: Path
) -> dict[str, Array]:
    """Run calls of a plan in one session of a program, and return what each made."""
    read = sorted({name for node in nodes for name in node.input})
    model = onnx.ModelProto(ir_version=8)
    model.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("dnnl", 1)])
    graph = model.graph
    graph.name = "g"
    graph.node.extend(nodes)
    for name in read:
        array = data[name.rstrip("c")]
        if name.endswith("c"):
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            code = onnx.TensorProto.FLOAT
            graph.input.append(helper.make_tensor_value_info(name, code, array.shape))
    for node in nodes:
        code = onnx.TensorProto.FLOAT
        graph.output.append(helper.make_tensor_value_info(node.output[0], code, None))
    written(model, folder / "m.onnx")
    (folder / "m.plan").write_text(plan_text(calls, "test"))
    np.savez(folder / "x.npz", **data)
    command = [sys.executable, "-c", RUN, str(folder), os.environ[VARIABLE], Library().path]
    done = subprocess.run(  # noqa: S603  # our own program
        command, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "y.npz"))


@pytest.mark.parametrize(
    ("data", "weights", "operand", "is_apart"),
    [
        (("n", 4, 8), (8, 16), (16,), False),
        (("n", 4, 8), (8, 16), (1, 1, 16), False),
        (("n", 4, 8), (8, 16), ("n", 4, 16), False),
        (("n", 4, 8), (8, 16), (4, 16), True),
        (("n", 4, 8), (8, 16), ("m", 4, 16), True),
        ((None, 4, 8), (8, 16), (None, 4, 16), True),  # they may be two numbers
        ((4, 8), (8, 16), (4, 1), False),
        (("n", 4, 8), ("n", 8, 16), (4, 16), False),
        (None, (8, 16), (4, 16), True),
        (None, (2, 8, 16), (4, 16), False),
        (("n", 4, 8), (8, 16), None, True),
    ],
)
def test_shapes_that_are_open(
    data: OpenShape | None, weights: OpenShape | None, operand: OpenShape | None, *, is_apart: bool
) -> None:
    """What is not known to fit is kept apart, and runs all the same."""
    needs_onednn()
    stated = {X: data, W: weights, OPERAND: operand}
    plan = KernelPlan(
        ops=[
            PlanOp("matmul", [X, W], FIRST),
            PlanOp("relu", [FIRST], LAST),
            PlanOp("add", [OPERAND, LAST], SECOND),
        ],
        inputs=[X, W, OPERAND],
        outputs=[SECOND],
        dtypes=dict.fromkeys(range(6), "float32"),
        given={value: shape for value, shape in stated.items() if shape is not None},
    )
    assert misread(plan) == ({LAST} if is_apart else set())
    why = OneDnn(Path(os.environ[VARIABLE])).judge(plan)
    assert why == "" or (operand == (4, 1) and why.startswith("oneDNN has reference code alone"))
