"""onnx's C++ in a fork: what it says comes back, and what ends it ends nothing else."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import TensorProto, helper

from dplcli.ir import TensorType
from dplcli.onnx_io import bounded as limits
from dplcli.onnx_io import check_model
from dplcli.onnx_io.bounded import GivenUpError, bounded
from dplcli.onnx_io.infer import infer_node
from tests.support.helpers import model_from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.support import Dpl, Save

pytestmark = [
    pytest.mark.forks,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is forked"),
]


def split(outputs: int, stated: int) -> onnx.ModelProto:
    """Return a Split into so many outputs that says another number of them."""
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node("Split", ["x"], names, num_outputs=stated)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 4])
    typed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in names]
    graph = helper.make_graph([node], "g", [x], typed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_what_is_answered_comes_back() -> None:
    """Of any length; and what the fork changes stays there."""
    changed: list[int] = []

    def work() -> bytes:
        changed.append(1)
        return b"x" * 1_000_000

    assert bounded(work, 0) == b"x" * 1_000_000
    assert changed == []


def test_what_is_raised_comes_back() -> None:
    """With its words, as a RuntimeError, which is one of those that onnx raises."""

    def work() -> bytes:
        raise onnx.checker.ValidationError("a wörd")

    with pytest.raises(RuntimeError, match="a wörd"):
        bounded(work, 0)


def forever() -> bytes:
    """Go on until somebody ends the process."""
    while True:
        pass


def asleep() -> bytes:
    """Wait for what does not come, as for a lock that nobody holds any more."""
    time.sleep(60)
    return b""


def too_much() -> bytes:
    """Ask for more memory than there is leave to."""
    return bytes(2 << 30)


def end(how: int) -> Callable[[], bytes]:
    """Return what ends the process by a signal."""

    def work() -> bytes:
        os.kill(os.getpid(), how)
        return b""

    return work


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (end(signal.SIGSEGV), r"as onnx crashed \(SIGSEGV\)"),
        (end(signal.SIGABRT), r"as onnx crashed \(SIGABRT\)"),
        (end(signal.SIGTERM), r"as onnx crashed \(SIGTERM\)"),
        (lambda: os._exit(3), "as onnx ended the process"),
        (too_much, "at 512 MB"),
        (forever, "after 1 s"),
        (asleep, "after 3 s"),
    ],
)
def test_what_ends_a_fork_is_said(
    work: Callable[[], bytes], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals, an exit, memory, time, also of waiting: the next one answers."""
    monkeypatch.setattr(limits, "_LEAST_SECONDS", 1)
    monkeypatch.setattr(limits, "_SLOWEST", 3 if work is asleep else 60)
    with pytest.raises(GivenUpError, match=f"^{why}$"):
        bounded(work, 0)
    assert bounded(lambda: b"fine", 0) == b"fine"


def children() -> set[str]:
    """Return the processes that this one started, zombies included."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            if f"\nPPid:\t{os.getpid()}\n" in status.read_text():
                found.add(status.parent.name)
    return found


def test_an_interrupted_wait_leaves_no_process() -> None:
    """Ctrl-C while onnx works."""
    before = signal.getsignal(signal.SIGALRM)
    others = children()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            bounded(forever, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert children() == others


@pytest.mark.parametrize(
    "command",
    [
        ("inspect",),
        ("view", "-o", "v.html"),
        ("match", "--target", "dnnl"),
        ("rewrite", "-p", "prepare", "-o", "o.onnx"),
        ("partition", "--target", "dnnl", "-o", "o.onnx"),
        ("learn", "--nodes", "split", "-o", "rule.yaml"),
    ],
    ids=lambda words: words[0],
)
def test_a_split_into_more_than_it_says_is_survived(
    dpl: Dpl, save: Save, command: tuple[str, ...]
) -> None:
    """Onnx 1.23 ends the process on it, without a word."""
    model = split(3, 2)
    model.graph.node[0].name = "split"
    save(model)

    answer = dpl(command[0], "m.onnx", *command[1:])

    assert answer.code in {0, 2}
    assert "internal error" not in answer.err
    assert answer.out or answer.message


def test_the_checker_survives_it(tmp_path: Path) -> None:
    """What it says without types counts: nothing of this one, all of another mistake."""
    model = split(3, 2)
    onnx.save(model, tmp_path / "m.onnx")
    assert check_model(tmp_path / "m.onnx") == ""
    model.graph.node[0].input.append("nowhere")
    onnx.save(model, tmp_path / "m.onnx")
    assert "nowhere" in check_model(tmp_path / "m.onnx")


NODES = [
    (split(3, 2), False),
    (split(1, 1 << 40), False),
    (split(2, 2), True),
]


def made_by_the_node_of(model: onnx.ModelProto) -> list[object]:
    """Return what onnx says of the only node of a model."""
    (node,) = model_from_bytes(model.SerializeToString()).graph
    return [*infer_node(node, {value: value.declared_type for value in node.read}, {})]


@pytest.mark.parametrize(("model", "is_known"), NODES)
def test_a_node_that_would_crash_inference_is_not_asked(
    model: onnx.ModelProto, *, is_known: bool
) -> None:
    """The near miss is."""
    for info in model.graph.output:
        info.ClearField("type")
    assert any(made_by_the_node_of(model)) == is_known


@pytest.mark.parametrize("axis", [1 << 31, -(1 << 31), 1])
def test_a_normalisation_from_an_axis_far_away_ends(axis: int) -> None:
    """Onnx goes through all axes up to it."""
    node = helper.make_node("LayerNormalization", ["x", "x"], ["y", "m"], axis=axis)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert any(made_by_the_node_of(model)) == (axis == 1)


def test_a_size_below_zero_is_none() -> None:
    """GatherND takes the last one of its indices for a rank."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2])
    indices = helper.make_tensor_value_info("i", TensorProto.INT64, [4, -1])
    node = helper.make_node("GatherND", ["x", "i"], ["y"])
    graph = helper.make_graph([node], "g", [x, indices], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (found,) = made_by_the_node_of(model)
    assert found is None or (isinstance(found, TensorType) and found.shape is None)
