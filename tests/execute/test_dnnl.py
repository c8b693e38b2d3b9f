"""Partitions on oneDNN: what runs is right, what is wrong is noticed, what cannot run is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from platform import machine
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from dplcli.errors import UsageError
from dplcli.execute import session
from dplcli.execute.onednn import library
from dplcli.execute.onednn.library import Fault, Library
from dplcli.execute.plan import RefusedError
from dplcli.execute.translate import translate
from dplcli.onnx_io import model_from_proto
from dplcli.pipeline import verify
from dplcli.verify import engines
from dplcli.verify.check import Execution, Kernels
from dplcli.verify.values import ModelSource, RunError
from dplcli.verify.verdict import KernelReport
from tests.execute.support import (
    HEADER,
    NET,
    READ_OUTSIDE,
    RESIDUALS,
    SECONDS,
    asking,
    needs_onednn,
    net,
    opened,
    partitioned,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.execute.onednn.session import OneDnnSession
    from dplcli.execute.plan import KernelPlan
    from dplcli.execute.session import KernelSession
    from dplcli.ir import Node


ROOT = Path(__file__).parent.parent.parent


def test_every_partition_runs_and_is_counted(tmp_path: Path) -> None:
    """The library names the primitive that it ran; each call ran once in each of four cases."""
    needs_onednn()
    result = verify(*partitioned(net(), tmp_path), check=asking())
    report = result.kernels
    assert result.verdict == "equivalent"
    assert report is not None
    assert [(item.runs, item.why) for item in report.partitions] == [(4, ""), (4, "")]
    assert report.runs == 4
    assert all(item.primitives[0].startswith("convolution ") for item in report.partitions)
    assert not any(output.max_abs is None for output in result.outputs)


def _another_pad(plan: KernelPlan) -> None:
    plan.ops[0].settings["strides"] = [1, 1]
    plan.ops[0].settings["pads_begin"] = [2, 1]
    plan.ops[0].settings["pads_end"] = [0, 1]


def _no_last_operator(plan: KernelPlan) -> None:
    last = plan.ops.pop()
    plan.outputs = [plan.ops[-1].output if n == last.output else n for n in plan.outputs]


def _swapped_bias(plan: KernelPlan) -> None:
    op = plan.ops[0]
    op.inputs.pop()


@pytest.mark.long
@pytest.mark.parametrize(
    "change", [_another_pad, _no_last_operator, _swapped_bias], ids=["attribute", "post-op", "bias"]
)
def test_a_wrong_plan_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[KernelPlan], None]
) -> None:
    """An attribute changed, a post-op or a bias dropped: the check says no."""
    needs_onednn()

    def wrong(call: Node) -> KernelPlan:
        plan = translate(call)
        if call.name.endswith("relu_0"):
            change(plan)
        return plan

    monkeypatch.setattr("dplcli.execute.planned.translate", wrong)
    settings = asking()
    here = replace(settings, execution=replace(settings.execution, isolated=False, timeout=None))
    result = verify(*partitioned(net(), tmp_path), check=here)
    assert result.verdict == "different"
    assert result.kernels is not None
    assert result.kernels.ran == 2


@pytest.mark.long
def test_a_partition_is_judged_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a Sigmoid that is nearly 0, last bits look like much; a wrong plan still is one."""
    needs_onednn()
    text = """g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float[4,3,3,3] w, float[4,4,3,3] v> {
        c = Conv <pads = [1,1,1,1]> (x, w) r = Relu (c)
        d = Conv <pads = [1,1,1,1]> (r, v) f = Constant <value_float = 60.0> ()
        o = Sub (d, f) y = Sigmoid (o) }"""
    original, result = partitioned(net(text), tmp_path)
    settings = asking()
    here = replace(settings, execution=replace(settings.execution, isolated=False, timeout=None))
    found = verify(original, result, check=here)
    assert found.verdict == "equivalent"
    assert any("by themselves" in (output.excuse or "") for output in found.outputs)

    def wrong(call: Node) -> KernelPlan:
        plan = translate(call)
        if call.op_type.endswith("relu"):
            _no_last_operator(plan)
        return plan

    monkeypatch.setattr("dplcli.execute.planned.translate", wrong)
    found = verify(original, result, check=here)
    assert found.verdict == "different"
    assert "by itself gives something else than its body" in found.reasons[0]


def test_what_fails_at_one_level_is_the_candidates_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original runs there without kernels, so onnxruntime's optimiser is not to blame."""
    needs_onednn()
    create = session.open_session

    def failing(source: ModelSource, level: str) -> KernelSession | OneDnnSession:
        if level == "all":
            raise RunError("a kernel failed")
        return create(source, level)

    monkeypatch.setattr(session, "open_session", failing)
    settings = asking()
    here = replace(settings, execution=replace(settings.execution, isolated=False, timeout=None))
    found = verify(*partitioned(net(), tmp_path), check=here)
    assert found.verdict == "different"
    assert [warning.partition(":")[0] for warning in found.warnings] == [
        "oneDNN gives a number where the model gives NaN"
    ]
    assert "(optimisation level all): a kernel failed" in found.reasons[0]


@pytest.mark.long
def test_other_inputs_and_outputs_than_tensors(tmp_path: Path) -> None:
    """Strings go in, and sequences come out, beside partitions that run."""
    needs_onednn()
    text = """g (float[1,3,8,8] x, string[2] s) => (string[2] t, seq(float[1,4,8,8]) q)
        <float[4,3,3,3] w> {
        c = Conv <pads = [1,1,1,1]> (x, w) r = Relu (c)
        t = Identity (s) q = SequenceConstruct (r) }"""
    found = verify(*partitioned(net(text), tmp_path), check=asking())
    assert found.verdict == "equivalent"
    assert found.kernels is not None
    assert found.kernels.ran == 1


@pytest.mark.long
def test_swapped_weights_are_noticed(tmp_path: Path) -> None:
    """The kernel is given what the call gives."""
    needs_onednn()
    text = NET.replace("float[4,3,3,3] w", "float[4,3,3,3] w, float[4,3,3,3] u")
    original, result = partitioned(net(text), tmp_path)
    model = onnx.load(result)
    for node in model.graph.node:
        node.input[:] = ["u" if name == "w" else name for name in node.input]
    random = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    if all(tensor.name != "u" for tensor in model.graph.initializer):
        model.graph.initializer.append(onnx.numpy_helper.from_array(random, "u"))
    assert verify(original, written(model, result), check=asking()).verdict == "different"


@pytest.mark.long
def test_shapes_may_change_from_run_to_run(tmp_path: Path) -> None:
    """One session, three batch sizes: each is compiled once, and right."""
    needs_onednn()
    original, result = partitioned(net(), tmp_path)
    for size in (1, 3, 2):
        found = verify(original, result, check=asking(sizes={"N": size}))
        assert found.verdict == "equivalent"
    runner = opened(result, "all")
    for size in (1, 3, 1):
        data = np.random.default_rng(size).standard_normal((size, 3, 8, 8)).astype(np.float32)
        (leaf,) = runner.run({"x": data})["y"]
        assert leaf.data.shape == (size, 4, 8, 8)
    assert [item.runs for item in runner.record()] == [3, 3]


@pytest.mark.long
def test_two_sessions_and_shared_functions(tmp_path: Path) -> None:
    """One function, weights of their own; two models at once do not mix their plans up."""
    needs_onednn()
    text = """g (float[1,3,8,8] x) => (float[1,3,8,8] y) <float[3,3,3,3] w, float[3,3,3,3] v> {
        c = Conv <pads = [1,1,1,1]> (x, w) r = Relu (c)
        d = Conv <pads = [1,1,1,1]> (r, v) y = Relu (d) }"""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, one = partitioned(net(text), tmp_path / "a")
    assert len(onnx.load(one).functions) == 1
    _, other = partitioned(net(text.replace("c = Conv", "n = Neg (x) c = Conv")), tmp_path / "b")
    model = onnx.load(other)
    for tensor in model.graph.initializer:
        data = 2 * onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(data, tensor.name))
    written(model, other)
    first, second = (opened(path, "all") for path in (one, other))
    data = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    for _ in range(2):
        (small,), (large,) = (each.run({"x": data})["y"] for each in (first, second))
        assert np.allclose(4 * small.data.astype(float), large.data.astype(float), 1e-4, 1e-4)


@pytest.mark.long
def test_a_region_goes_in_whole(tmp_path: Path) -> None:
    """Its partitions are the library's affair: layouts between them, too."""
    needs_onednn()
    original, result = partitioned(net(), tmp_path, merge=True)
    (function,) = {node.op_type for node in onnx.load(result).graph.node if node.domain}
    assert function == "region"
    every = Kernels("dnnl", "oneDNN", "dplcli.execute.session", "all")
    for size in (1, 3):
        found = verify(original, result, check=asking(every, sizes={"N": size}))
        assert found.accepted
        assert found.kernels is not None
        (item,) = found.kernels.partitions
        assert len(item.primitives) == 2


@pytest.mark.long
def test_values_of_a_region_are_kept_while_they_are_read(tmp_path: Path) -> None:
    """They share memory and are added in place, but not before their last reader; in each run."""
    needs_onednn()
    found = verify(
        *partitioned(net(RESIDUALS), tmp_path, merge=True), check=asking(seeds=(0, 1, 2))
    )
    assert found.verdict == "equivalent"
    assert not any(output.excuse for output in found.outputs)
    assert found.kernels is not None
    assert [(len(item.primitives), item.runs) for item in found.kernels.partitions] == [(5, 3)]


def test_a_value_that_is_read_outside_is_made(tmp_path: Path) -> None:
    """The library does not fuse it away with the partition that reads it."""
    needs_onednn()
    found = verify(
        *partitioned(net(READ_OUTSIDE), tmp_path, patterns=["dnnl_ops"], merge=True),
        check=asking(),
    )
    assert found.verdict == "equivalent"
    assert found.kernels is not None
    (region,) = found.kernels.partitions
    assert [name.partition(" ")[0] for name in region.primitives] == ["convolution", "eltwise"]


def ran_as(original: Path, result: Path) -> list[str]:
    """Return the kinds of the primitives that run; the numbers have to be those of the original."""
    shape = [dim.dim_value for dim in onnx.load(original).graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    runner = opened(result)
    (found,) = runner.run(feeds)["y"]
    (wanted,) = engines.Session(ModelSource(original), "disable").run(feeds)["y"]
    assert np.allclose(found.data.astype(float), wanted.data.astype(float), 1e-4, 1e-3)
    named = [name for item in runner.record() for name in item.primitives]
    return [name.partition(" ")[0] for name in named]


TWICE = """g (float[1,16,512] x) => (float[1,16,512] y) <float[512,512] v> {
    p = MatMul (x, v) q = Relu (p) r = MatMul (q, v) y = Relu (r) }"""
ONCE = """g (float[1,16,LONG] x) => (float[1,16,WIDE] y) <float[LONG,WIDE] v> {
    p = MatMul (x, v) y = Relu (p) }"""


@pytest.mark.long
@pytest.mark.skipif(not machine().endswith("86_64"), reason="for x86 only")
@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (ONCE.replace("LONG", "2048").replace("WIDE", "512"), {"convolution"}),
        (ONCE.replace("LONG", "2048").replace("WIDE", "520"), {"matmul"}),
        (ONCE.replace("LONG", "2049").replace("WIDE", "512"), {"matmul"}),
        (TWICE, {"matmul"}),  # weights would be read in two shapes
    ],
    ids=["wide", "not-wide", "long", "read-twice"],
)
def test_other_products_stay_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kinds: set[str]
) -> None:
    """A convolution would be slower, or could not be."""
    needs_onednn()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert set(ran_as(*partitioned(net(text), tmp_path, merge=True))) == kinds


@pytest.mark.long
def test_calls_inside_an_if_run(tmp_path: Path) -> None:
    """How often is not known beforehand, so it is not held against them."""
    needs_onednn()
    text = """g (float[1,3,8,8] x, bool q) => (float[1,3,8,8] y) <float[3,3,3,3] w> {
        y = If (q) <then_branch = t () => (float[1,3,8,8] a) {
                c = Conv <pads = [1,1,1,1]> (x, w) a = Relu (c) },
            else_branch = e () => (float[1,3,8,8] n) { n = Neg (x) }> }"""
    original, result = partitioned(net(text), tmp_path)
    found = verify(original, result, check=asking(seeds=(0, 1, 2, 3)))
    assert found.verdict in {"equivalent", "inconclusive"}
    assert found.kernels is not None
    (item,) = found.kernels.partitions
    assert item.is_repeated
    assert item.library
    ran, untaken = replace(item, runs=1), replace(item, runs=0)
    every = Kernels("dnnl", "oneDNN", "dplcli.execute.session", "all")
    left = replace(untaken, library="")
    for partitions, is_enough in (
        ((ran, untaken), True),
        ((untaken,), False),
        ((ran, left), False),
    ):
        assert (not KernelReport(every, 1, tuple(partitions)).complaints) == is_enough


@pytest.mark.long
@pytest.mark.parametrize(
    ("last", "number"),
    [("Relu (c)", 0), ("Clip (c, low, high)", -1), ("Sigmoid (c)", None), ("Elu (c)", None)],
)
def test_what_lets_no_nan_through_is_said(tmp_path: Path, last: str, number: float | None) -> None:
    """A Relu and a Clip give a number; the check feeds no NaN, so it warns."""
    needs_onednn()
    text = f"""g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float[4,3,1,1] w> {{
        low = Constant <value_float = -1.0> () high = Constant <value_float = 1.0> ()
        c = Conv (x, w) y = {last} }}"""
    original, result = partitioned(net(text), tmp_path)
    found = verify(original, result, check=asking())
    said = [warning for warning in found.warnings if "NaN" in warning]
    assert len(said) == (number is not None)

    runner = opened(result)
    (given,) = runner.run({"x": np.full((1, 3, 8, 8), np.nan, np.float32)})["y"]
    wanted = np.full((1, 4, 8, 8), np.nan if number is None else number)
    assert np.array_equal(given.data.astype(float), wanted, equal_nan=True)


@pytest.mark.long
def test_a_body_that_cannot_run_has_a_reason(tmp_path: Path) -> None:
    """Its body runs in onnxruntime; with --require all the answer is no."""
    needs_onednn()
    text = """g (float[1,3,8,8] x) => (float[1,4,16,16] y) <float[3,4,2,2] w, float[4,4,3,3] v> {
        c = ConvTranspose <strides = [2,2], output_shape = [16,16]> (x, w) r = Relu (c)
        d = Conv <pads = [1,1,1,1]> (r, v) y = Relu (d) }"""
    original, result = partitioned(net(text), tmp_path)
    some = verify(original, result, check=asking())
    assert some.verdict == "equivalent"
    assert some.kernels is not None
    assert [item.why for item in some.kernels.partitions if item.why] == [
        "ConvTranspose with output_shape"
    ]
    every = Kernels("dnnl", "oneDNN", "dplcli.execute.session", "all")
    answer = verify(original, result, check=asking(every))
    assert (answer.verdict, answer.accepted) == ("equivalent", False)
    assert answer.objections == ("1 of 2 partitions ran on oneDNN; --require all asks for 2",)


def test_weights_that_are_computed_beforehand_are_constant(tmp_path: Path) -> None:
    """Where onnxruntime folds what makes them, the library folds a normalisation into its weights.

    From the second run on there is one convolution. Otherwise it would be worked out in each run,
    by the library's slow reference code.
    """
    needs_onednn()
    text = """g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float[4,3,3,3] w> {
        n = Constant <value = int64[1] {4}> ()
        a = ConstantOfShape <value = float[1] {0.5}> (n)
        b = ConstantOfShape <value = float[1] {2.0}> (n)
        c = Conv <pads = [1,1,1,1]> (x, w)
        d = BatchNormalization (c, a, b, b, a) y = Relu (d) }"""
    original, result = partitioned(net(text), tmp_path)
    assert {node.op_type for node in onnx.load(result).graph.node} >= {"ConstantOfShape"}
    runner = opened(result, "all", threads=1)  # others wait for a core where more is at work
    plain = engines.Session(ModelSource(original), "all")
    data = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    runner.run({"x": np.zeros_like(data)})
    best = min(runner.profile({"x": data})[0].milliseconds for _ in range(50))
    (leaf,) = runner.run({"x": data})["y"]
    (wanted,) = plain.run({"x": data})["y"]
    assert np.allclose(leaf.data.astype(float), wanted.data.astype(float), 1e-5, 1e-5)
    assert best < 1  # the slow reference code would take longer


def test_a_call_of_constants_alone_runs_each_time(tmp_path: Path) -> None:
    """What the library takes for constant it computes once, and would write once."""
    needs_onednn()
    text = """g (float[1,3,8,8] x) => (float[1,4,8,8] y, float[1,4,8,8] z)
        <float[1,3,8,8] k, float[4,3,3,3] w> {
        c = Conv <pads = [1,1,1,1]> (x, w) y = Relu (c)
        d = Conv <pads = [1,1,1,1]> (k, w) z = Relu (d) }"""
    original, result = partitioned(net(text), tmp_path)
    runner = opened(result)
    plain = engines.Session(ModelSource(original), "disable")
    for seed in range(3):
        data = np.random.default_rng(seed).standard_normal((1, 3, 8, 8)).astype(np.float32)
        found, wanted = runner.run({"x": data}), plain.run({"x": data})
        for name in "yz":
            (one,), (other,) = found[name], wanted[name]
            assert np.allclose(one.data.astype(float), other.data.astype(float), 1e-5, 1e-5)
            one.data[:] = 7
    assert [item.runs for item in runner.record()] == [3, 3]


def test_a_faulty_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said which one it is, and why."""
    needs_onednn()
    fault = Fault(Library().version, (99, 0, 0), is_of_steps=False, isa=0, what="it is wrong")
    monkeypatch.setattr(library, "KNOWN_BAD", (fault,))
    with pytest.raises(UsageError, match="which is known to be faulty: it is wrong"):
        Library()
    monkeypatch.setattr(library, "KNOWN_BAD", (fault._replace(isa=1 << 30),))
    assert Library().version == fault.first  # on CPUs of another kind
    monkeypatch.setattr(library, "KNOWN_BAD", (fault._replace(mended=fault.first),))
    assert Library().version == fault.first  # in which it is mended
    monkeypatch.setattr(library, "KNOWN_BAD", (fault._replace(is_of_steps=True),))
    assert Library().objection_to_steps(allow_inexact=True).endswith("it is wrong")
    monkeypatch.setattr(library, "KNOWN_BAD", ())
    monkeypatch.setattr(library, "OLDEST", (99, 0, 0))
    with pytest.raises(UsageError, match=r"dpl needs 99\.0\.0 or later"):
        Library()


@pytest.mark.parametrize(
    ("version", "isa", "harms"),
    [
        ((3, 2, 0), "AMX", True),
        ((3, 3, 6), "AMX", True),
        ((3, 4, 0), "AMX", False),
        ((3, 7, 2), "AMX", False),
        ((3, 2, 0), "VNNI", False),
    ],
)
def test_harm_is_known_by_version_and_cpu(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], isa: str, *, harms: bool
) -> None:
    """8-bit products of width one break the heap before oneDNN 3.4, with AMX alone."""
    needs_onednn()
    found = Library()
    found.version = version
    bits = {"VNNI": 0x41, "AMX": 0x241}[isa]  # of dnnl_cpu_isa_t
    monkeypatch.setattr(Library, "_isa", lambda _: bits)
    why = found.objection_to_steps(allow_inexact=False)
    assert ("corrupt the heap with AMX" in why) == harms == bool(why)


@pytest.mark.parametrize(
    ("installed", "more"),
    [("libdnnl.so.3.6", ["libdnnl.so.3.6"]), ("libdnnl.so.2", []), (None, [])],
)
def test_the_library_of_the_system_may_have_a_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: str | None, more: list[str]
) -> None:
    """Debian 13 has ``libdnnl.so.3.6`` alone; that of Debian 12 is too old to be tried."""
    monkeypatch.delenv(library.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(library, "find_library", {"dnnl": installed}.get)
    assert list(library.candidates()) == ["libdnnl.so.3", *more]


def test_execution_knows_plain_runs() -> None:
    """The original never runs with kernels."""
    execution = asking().execution
    assert not execution.is_plain
    assert execution.plain() == Execution(timeout=execution.timeout)


STEPS = """g (uint8[1,8,6,6] x) => (uint8[1,4,6,6] y)
  <int8[4,8,3,3] w = {%s}, float ws = {0.02}, int8 wz = {0}, float xs = {0.05}, uint8 xz = {128},
   int32[4] b = {500, -300, 40, 0}, float bs = {0.001}, int32 bz = {0},
   float ys = {0.9}, uint8 yz = {128}> {
    xd = DequantizeLinear (x, xs, xz) wd = DequantizeLinear (w, ws, wz)
    bd = DequantizeLinear (b, bs, bz) c = Conv <pads = [1,1,1,1]> (xd, wd, bd)
    y = QuantizeLinear (c, ys, yz) }"""
"""A convolution of steps; its weights are filled in."""


def _quantized(folder: Path, most: int) -> tuple[Path, Path]:
    """Write a convolution of 8-bit numbers, whose weights are up to so large."""
    weights = np.random.default_rng(0).integers(-most, most + 1, 4 * 8 * 9)
    text = STEPS % ", ".join(map(str, weights))
    return partitioned(onnx.parser.parse_model(HEADER.format(17) + text), folder)


@pytest.mark.long
def test_products_of_steps_are_exact_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With VNNI they are right to the step; without they are run only if that is allowed."""
    needs_onednn()
    original, result = _quantized(tmp_path, 127)
    data = np.random.default_rng(1).integers(0, 256, (1, 8, 6, 6)).astype(np.uint8)
    (wanted,) = engines.Session(ModelSource(original), "disable").run({"x": data})["y"]
    if not Library().objection_to_steps(allow_inexact=False):
        runner = opened(result)
        (leaf,) = runner.run({"x": data})["y"]
        assert np.array_equal(leaf.data, wanted.data)
        assert [item.runs for item in runner.record()] == [1]
    if not machine().endswith("86_64"):
        pytest.skip("what oneDNN may use is set on x86 only")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    runner = opened(result)
    runner.run({"x": data})
    (item,) = runner.record()
    assert "on a CPU without VNNI (--allow-inexact)" in item.why
    runner = opened(result, allow_inexact=True)
    runner.run({"x": data})
    assert [item.runs for item in runner.record()] == [1]


@pytest.mark.long
def test_a_plan_is_written_where_nothing_of_it_runs(tmp_path: Path) -> None:
    """It is for other CPUs, too; the note says that no numbers were compared."""
    needs_onednn()
    if not machine().endswith("86_64"):
        pytest.skip("what oneDNN may use is set on x86 only")
    _, result = _quantized(tmp_path, 127)
    command = [sys.executable, "-m", "dplcli", "kernels", "plan", str(result), "-o", "p.plan"]
    poorer = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603  # dpl itself
        [*command, "--json", "p.json"],
        env=poorer,
        cwd=tmp_path,
        capture_output=True,
        check=True,
        timeout=300,
    )
    said = "on this CPU onnxruntime runs all partitions of the plan, so no numbers were compared"
    assert f"note: {said}" in " ".join(done.stdout.decode().split())
    record = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert (record["planned"], record["notes"], "verification" in record) == (1, [said], False)
    assert (tmp_path / "p.plan").read_text(encoding="utf-8").count("\ncall ") == 1


@pytest.mark.long
@pytest.mark.parametrize(("most", "verdict"), [(63, 0), (127, 1)])
def test_without_vnni_large_weights_are_wrong(tmp_path: Path, most: int, verdict: int) -> None:
    """OneDNN emulates a poorer CPU: sums of two products leave 16 bits. The check says no."""
    needs_onednn()
    original, result = _quantized(tmp_path, most)
    command = [sys.executable, "-m", "dplcli", "verify", str(original), str(result)]
    command += ["--with", "dnnl"]
    poorer = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": str(ROOT)}

    def answer(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603  # dpl itself
            [*command, *more],
            env=poorer,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )

    if not machine().endswith("86_64"):
        pytest.skip("for x86 only")
    refused = answer()
    assert refused.returncode == 1
    assert "0 of 1 partition ran on oneDNN" in refused.stdout
    assert answer("--allow-inexact").returncode == verdict


@pytest.mark.parametrize(
    ("body", "kinds"),
    [
        ('y = Gelu <approximate = "tanh"> (c)', {"tanh"}),
        ("h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (c) y = Mul (c, h)", {"hard_swish"}),
        ("h = HardSigmoid <alpha = 0.2, beta = 0.5> (c) y = Mul (c, h)", {"clamp", "multiply"}),
        ("y = HardSigmoid (c)", {"clamp"}),
        ("m = ReduceMean <axes = [2, 3], keepdims = 0> (c) y = Relu (m)", {"reduce_mean", "relu"}),
        (
            """two = Constant <value_float = 2.0> () eps = Constant <value_float = 0.001> ()
               m = ReduceMean <axes = [-1]> (c) o = Sub (c, m) q = Pow (o, two)
               v = ReduceMean <axes = [-1]> (q) e = Add (v, eps) r = Sqrt (e) y = Div (o, r)""",
            {"layer_norm"},
        ),
        (
            """two = Constant <value_float = 2.0> () eps = Constant <value_float = 0.001> ()
               m = ReduceMean <axes = [-2]> (c) o = Sub (c, m) q = Mul (o, o)
               v = ReduceMean <axes = [-2]> (q) e = Add (v, eps) r = Sqrt (e) y = Div (o, r)""",
            {"reduce_mean", "divide"},
        ),
    ],
    ids=["gelu-tanh", "hard-swish", "not-hard-swish", "hard-sigmoid", "mean", "norm", "not-norm"],
)
def test_what_a_body_spells_out_is_one_operator(body: str, kinds: set[str]) -> None:
    """The library has it, or it is written out; what is nearly the same is not taken for it."""
    opset = 20 if "Gelu" in body else 17
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {opset}, "dnnl" : 1]>
        g (float[1,4,8,8] c0) => (float[?,?,?,?] y0) {{ y0 = dnnl.f (c0) }}
        <domain: "dnnl", opset_import: ["" : {opset}]> f (c) => (y) {{ {body} }}"""
    )
    read = model_from_proto(model, Path(), "m.onnx")
    (call,) = read.graph
    plan = translate(call)
    found = {op.kind for op in plan.ops}
    assert kinds <= found
    if len(kinds) == 1 and kinds <= {"hard_swish", "layer_norm"}:
        assert found == kinds
    assert "hard_swish" in kinds or "hard_swish" not in found
    assert "layer_norm" in kinds or "layer_norm" not in found
    if "layer_norm" in found:
        assert plan.ops[-1].settings["epsilon"] == pytest.approx(0.001)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float"])
@pytest.mark.parametrize(
    ("root", "kinds"), [(2**0.5, {"gelu"}), (1.4, set()), (2**0.5 + 0.03, set())]
)
def test_constants_are_judged_at_the_precision_of_their_type(
    dtype: str, root: float, kinds: set[str]
) -> None:
    """A half has no square root of 2, but one that is nearest; another number is another curve."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 17, "dnnl" : 1]>
        g ({dtype}[1,8] c0) => ({dtype}[?,?] y0) <{dtype} r, {dtype} one, {dtype} half> {{
            y0 = dnnl.f (c0, r, one, half) }}
        <domain: "dnnl", opset_import: ["" : 17]> f (c, r, one, half) => (y) {{
            d = Div (c, r) e = Erf (d) p = Add (e, one) m = Mul (c, p) y = Mul (m, half) }}"""
    )
    kind = onnx.TensorProto.DataType.Value("FLOAT" if dtype == "float" else dtype.upper())
    values = {"r": root, "one": 1.0, "half": 0.5}
    for name, value in values.items():
        number = onnx.helper.make_tensor(name, kind, [], [value])
        model.graph.initializer.append(number)
    (call,) = model_from_proto(model, Path(), "m.onnx").graph
    if kinds:
        assert {op.kind for op in translate(call).ops} == kinds
    else:
        with pytest.raises(RefusedError, match="operator Erf"):
            translate(call)


def test_reference_code_is_no_gain(tmp_path: Path) -> None:
    """The library has no more than plain loops for 8-bit pooling in onnxruntime's layout."""
    needs_onednn()
    text = """g (float[1,8,16,16] x) => (float[1,8,8,8] y) {
        s = Constant <value = float {0.02}> () z = Constant <value = uint8 {128}> ()
        q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)
        p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (d)
        r = QuantizeLinear (p, s, z) y = DequantizeLinear (r, s, z) }"""
    for body, why in ((text, "reference code alone for pooling"), (NET, "")):
        runner = opened(partitioned(net(body), tmp_path)[1])
        assert all(why in item.why and bool(why) == bool(item.why) for item in runner.record())
