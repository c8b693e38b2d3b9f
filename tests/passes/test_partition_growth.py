"""What is alike is asked once: the work of a partition, counted and not timed.

The net is a chain of Conv, Add and Relu, every second block with a residual Add.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from dplcli.catalog import find_catalog, read_catalogs
from dplcli.language import conditions
from dplcli.language.conditions import Expression
from dplcli.language.matcher import Matcher
from dplcli.onnx_io import infer
from dplcli.passes.partition import OutlineMaker, partition
from dplcli.passes.select import select_matches
from tests.support.helpers import SCHEMAS, model_from_bytes, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dplcli.ir import Model

LIMIT = 11
"""Ten times the blocks may take so many times the calls of Python functions."""


def net(blocks: int, *, typed: bool = True) -> bytes:
    """Write the net; without *typed* the types between are left to inference."""
    rng, shape, nodes, data = np.random.default_rng(0), [1, 4, 2, 2], [], []
    before, last, node = "x", "x", onnx.helper.make_node
    for i in range(blocks):
        for name, dims in ((f"w{i}", (4, 4, 3, 3)), (f"b{i}", (1, 4, 1, 1))):
            array = rng.standard_normal(dims).astype(np.float32)
            data.append(onnx.numpy_helper.from_array(array, name))
        nodes.append(node("Conv", [last, f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        nodes.append(node("Add", [f"c{i}", f"b{i}"], [f"a{i}"], f"add{i}"))
        if i % 2:
            nodes.append(node("Add", [f"a{i}", before], [f"s{i}"], f"sum{i}"))
        nodes.append(node("Relu", [nodes[-1].output[0]], [f"r{i}"], f"relu{i}"))
        before, last = last, f"r{i}"
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name in ("x", *(each.output[0] for each in nodes))
    ]
    between = infos[1:-1] if typed else []
    graph = onnx.helper.make_graph(nodes, "net", infos[:1], infos[-1:], data, value_info=between)
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets)
    encoded: bytes = model.SerializeToString()
    return encoded


def partitioned(blocks: int, catalog: str, *, typed: bool = True) -> tuple[Model, int]:
    """Partition the net; return it and the number of matches."""
    rules = read_catalogs([str(find_catalog(catalog))], SCHEMAS).patterns
    model = model_from_bytes(net(blocks, typed=typed))
    return model, len(partition(model, select_matches(model, rules)))


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str], list[int]]:
    """Count the calls of a function or a method."""

    def watch(owner: object, name: str) -> list[int]:
        calls, original = [0], getattr(owner, name)

        def counted(*args: object, **given: object) -> object:
            calls[0] += 1
            return original(*args, **given)

        monkeypatch.setattr(owner, name, counted)
        return calls

    return watch


@pytest.mark.parametrize("catalog", ["conv_relu", "dnnl"])
def test_a_search_begins_where_something_matches(
    count: Callable[[object, str], list[int]], catalog: str
) -> None:
    """Dozens of rules are rooted in Relu and Add: fingerprints leave the two that match."""
    searches = count(Matcher, "solutions")
    _, matches = partitioned(40, catalog)
    assert (matches, searches[0]) == (40, 40)


@pytest.mark.parametrize("typed", [True, False])
def test_what_is_alike_is_inferred_and_drawn_once(
    count: Callable[[object, str], list[int]], *, typed: bool
) -> None:
    """However long the net is: a blueprint for each function, a node of each kind for inference."""
    drawn, asked = count(OutlineMaker, "_blueprint"), count(infer, "infer_node")
    for blocks in (10, 100):
        drawn[0] = asked[0] = 0
        model, matches = partitioned(blocks, "conv_relu", typed=typed)
        kinds = {(node.op_type, node.inputs[1] is None) for node in model.graph}
        assert (matches, drawn[0], len(kinds)) == (blocks, 2, 2)
        assert 0 < asked[0] <= 8


def test_expressions_are_compiled_once(count: Callable[[object, str], list[int]]) -> None:
    """Not once for a match; and once without the parts whose names take no part."""
    compiled, run = count(conditions._Compiler, "compiled"), count(Expression, "_run")  # noqa: SLF001
    wanted = rule("Relu(x & ~Add(_, _)) | Relu(Add(x, y))", "y.rank == 4 or x.rank == 77")
    model = model_from_bytes(net(60))
    assert len(select_matches(model, [wanted]).matches) == 60
    other = rule("Relu(x) | Relu(Sub(x, y))", "x.rank == 44 or y.rank == 7")
    assert not select_matches(model, [other]).matches
    assert (compiled[0], run[0]) == (2, 120)


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of Python functions that *work* makes."""
    calls = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("catalog", ["conv_relu", "dnnl"])
def test_the_work_grows_with_the_model(catalog: str) -> None:
    """Ten times the blocks take ten times the calls; a match takes a few hundred."""
    partitioned(2, catalog)  # catalogues and schemas are read once

    def sizes() -> Iterator[int]:
        for blocks in (30, 300):
            yield calls_of(lambda: partitioned(blocks, catalog))  # noqa: B023  # called at once

    small, large = sizes()
    assert large / small <= LIMIT
    assert (large - small) / 270 <= 400
