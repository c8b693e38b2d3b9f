"""The search for repeated blocks grows with the model, not with its square.

Work is counted in calls of Python functions, which are the same in every run.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import onnx
import onnx.helper
import pytest

from dplcli.passes.repeat import outline_repeats
from dplcli.settings import RepeatSettings
from tests.support.helpers import model_from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    Steps = list[tuple[str, list[str], str]]

LIMIT = 13
"""Ten times the nodes may take so many times the calls."""


def stack(count: int) -> Steps:
    """Layers of ten nodes, one after the other."""
    steps: Steps = []
    value = "x"
    ops = ("Relu", "Sin", "Cos", "Tanh", "Abs", "Sigmoid", "Elu", "Floor", "Ceil")
    for layer in range(count // 10):
        start = value
        for number, op in enumerate(ops):
            steps.append((op, [value], f"v{layer}_{number}"))
            value = steps[-1][2]
        steps.append(("Add", [value, start], f"v{layer}"))
        value = f"v{layer}"
    return steps


def chain(count: int) -> Steps:
    """One operator, again and again."""
    return [("Relu", [f"v{n - 1}" if n else "x"], f"v{n}") for n in range(count)]


def fan(count: int) -> Steps:
    """Equal branches, all of which read one value, listed row by row."""
    ops = ("Relu", "Sin", "Cos", "Tanh", "Abs")
    branches = count // len(ops)
    return [
        (op, [f"v{row - 1}_{branch}" if row else "x"], f"v{row}_{branch}")
        for row, op in enumerate(ops)
        for branch in range(branches)
    ]


def braid(count: int) -> Steps:
    """The same with a value that another node of each branch takes out in the middle."""
    branches = count // 6
    steps = fan(branches * 5)
    taken = [("Neg", [f"v2_{branch}"], f"n{branch}") for branch in range(branches)]
    return steps[: 3 * branches] + taken + steps[3 * branches :]


def comb(count: int) -> Steps:
    """Equal nodes, all of which one node reads."""
    steps: Steps = [("Relu", ["x"], f"v{number}") for number in range(count - 1)]
    return [*steps, ("Sum", [f"v{number}" for number in range(count - 1)], "y")]


def stairs(count: int) -> Steps:
    """Branches of which each is one node longer than the one before it."""
    steps: Steps = []
    branch = 0
    while len(steps) < count:
        for row in range(branch):
            steps.append(("Relu", [f"v{branch}_{row - 1}" if row else "x"], f"v{branch}_{row}"))
        branch += 1
    return steps


def jumble(count: int) -> Steps:
    """Operators and wires by chance: much that is nearly equal, little that repeats."""
    chance = random.Random(7)  # noqa: S311  # not for cryptography
    steps: Steps = []
    for number in range(count):
        reads = [f"v{max(0, number - chance.randint(1, 6))}" if number else "x"]
        op = chance.choice(("Relu", "Sin", "Add", "Mul"))
        if op in {"Add", "Mul"}:
            reads.append(f"v{max(0, number - chance.randint(1, 9))}" if number else "x")
        steps.append((op, reads, f"v{number}"))
    return steps


def model_of(steps: Steps) -> bytes:
    """Write a model that returns what its last node makes."""
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, reads, [makes]) for op, reads, makes in steps],
        "g",
        [info("x", onnx.TensorProto.FLOAT, [4])],
        [info(steps[-1][2], onnx.TensorProto.FLOAT, [4])],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    data: bytes = onnx.helper.make_model(
        graph, ir_version=8, opset_imports=opsets
    ).SerializeToString()
    return data


def calls_for(data: bytes) -> int:
    """Count the calls of Python functions that outlining takes."""
    model = model_from_bytes(data)
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        outline_repeats(model, RepeatSettings())
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "shape",
    [
        *(stack, fan, braid, comb),
        *(pytest.param(shape, marks=pytest.mark.long) for shape in (chain, stairs, jumble)),
    ],
)
def test_work_grows_with_the_model(shape: Callable[[int], Steps]) -> None:
    """From 300 to 3,000 nodes."""
    small, large = (calls_for(model_of(shape(count))) for count in (300, 3_000))
    assert large < LIMIT * small
