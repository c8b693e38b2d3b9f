"""The work of merging grows with the model, not with its square.

Work is counted in calls of Python functions, which are the same in every run. In the nets ``Relu``
and ``Sum`` are partitions of one target, ``Neg`` is one of another, and ``Abs`` and ``Max`` are
none.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

import onnx
import onnx.helper
import pytest

from dplcli.ir.traversal import check_structure
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.select import select_matches
from tests.support.helpers import model_from_bytes, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.passes.merge import Region

    Steps: TypeAlias = list[tuple[str, str, list[str]]]
    """What each node makes, its operator, and what it reads."""

LIMIT = 13
"""Ten times the nodes may take so many times the calls."""

RULES = [
    rule("Relu(x)", name="relu", target="s"),
    rule("Sum(x, ...)", name="sum", target="s"),
    rule("Neg(x)", name="neg", target="t"),
]


def chain(count: int) -> Steps:
    """One call behind the other, each reading from two before it."""
    names = ["x", "x", *(f"v{number}" for number in range(count))]
    return [(names[i + 2], "Sum", [names[i + 1], names[i]]) for i in range(count)]


def with_readers(count: int) -> Steps:
    """A chain of calls, each read by another node, too."""
    steps = chain(count)
    return [*steps, *((f"r{name}", "Abs", [name]) for name, _, _ in steps)]


def with_readers_between(count: int) -> Steps:
    """The same, each reader where it may stand first."""
    steps: Steps = []
    for name, op, reads in chain(count):
        steps += [(name, op, reads), (f"r{name}", "Abs", [name]), (f"q{name}", "Max", [f"r{name}"])]
    return steps


def with_sources(count: int) -> Steps:
    """A chain of calls, each of which reads what other nodes have made of the input."""
    steps: Steps = []
    for name, op, reads in chain(count):
        steps += [(f"p{name}", "Abs", ["x"]), (f"q{name}", "Max", [f"p{name}"])]
        steps += [(name, op, [*reads, f"q{name}"])]
    return steps


def with_both(count: int) -> Steps:
    """A chain of calls with readers and sources."""
    steps: Steps = []
    for name, op, reads in chain(count):
        steps += [(f"p{name}", "Abs", ["x"]), (name, op, [*reads, f"p{name}"])]
        steps += [(f"r{name}", "Abs", [name])]
    return steps


def beside_a_chain(count: int) -> Steps:
    """A chain of calls that reads, node for node, from a chain of others."""
    steps: Steps = [("a0", "Abs", ["x"]), ("c0", "Relu", ["a0"])]
    for i in range(1, count):
        steps += [(f"a{i}", "Abs", [f"a{i - 1}"]), (f"c{i}", "Sum", [f"c{i - 1}", f"a{i}"])]
    return steps


def above_a_chain(count: int) -> Steps:
    """A chain of calls from which, node for node, a chain of others reads."""
    steps: Steps = [("c0", "Relu", ["x"]), ("a0", "Abs", ["c0"])]
    for i in range(1, count):
        steps += [(f"c{i}", "Relu", [f"c{i - 1}"]), (f"a{i}", "Max", [f"a{i - 1}", f"c{i}"])]
    return steps


def read_by_all(count: int) -> Steps:
    """A first call that all others read from, which have another node between them each."""
    steps: Steps = [("h", "Relu", ["x"]), ("a0", "Abs", ["h"])]
    for i in range(1, count):
        steps += [(f"c{i}", "Sum", ["h", f"a{i - 1}"]), (f"a{i}", "Abs", [f"c{i}"])]
    return steps


def behind_a_chain(count: int) -> Steps:
    """Calls that read from a first one, and what a long chain of others makes of that."""
    steps: Steps = [("h", "Relu", ["x"]), ("a0", "Abs", ["h"])]
    steps += [(f"a{i}", "Abs", [f"a{i - 1}"]) for i in range(1, count)]
    return [*steps, *((f"c{i}", "Sum", ["h", f"a{count - 1}"]) for i in range(count))]


def before_a_chain(count: int) -> Steps:
    """Calls that a last one reads from, and what a long chain of others makes of them."""
    heads = [f"h{i}" for i in range(count)]
    steps: Steps = [(name, "Relu", ["x"]) for name in heads]
    steps += [("a0", "Max", heads)]
    steps += [(f"a{i}", "Abs", [f"a{i - 1}"]) for i in range(1, count)]
    return [*steps, ("c", "Sum", [*heads, f"a{count - 1}"])]


def fan_in(count: int) -> Steps:
    """A call that reads from many."""
    heads = [f"h{i}" for i in range(count)]
    return [*((name, "Relu", ["x"]) for name in heads), ("c", "Sum", heads)]


def fan_out(count: int) -> Steps:
    """A call that many read from."""
    return [("h", "Relu", ["x"]), *((f"c{i}", "Relu", ["h"]) for i in range(count))]


def ladder(count: int) -> Steps:
    """Two chains of calls of two targets, each reading from the other."""
    steps: Steps = [("s0", "Relu", ["x"]), ("t0", "Neg", ["x"])]
    for i in range(1, count):
        steps += [(f"m{i}", "Max", [f"t{i - 1}", f"s{i - 1}"])]
        steps += [(f"s{i}", "Sum", [f"s{i - 1}", f"t{i - 1}"]), (f"t{i}", "Neg", [f"m{i}"])]
    return steps


def two_chains(count: int) -> Steps:
    """Two chains that become one region in the end, with another node from one to the other."""
    steps: Steps = [("a0", "Relu", ["x"]), ("m", "Abs", ["a0"]), ("b0", "Relu", ["m"])]
    for i in range(1, count):
        steps += [(f"a{i}", "Relu", [f"a{i - 1}"]), (f"b{i}", "Sum", [f"b{i - 1}", f"a{i}"])]
    return steps


def written(steps: Steps) -> bytes:
    """Write a model that returns what no node reads."""
    info = onnx.helper.make_tensor_value_info
    read = {name for _, _, reads in steps for name in reads}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, reads, [name], name=name) for name, op, reads in steps],
        "g",
        [info("x", onnx.TensorProto.FLOAT, [2])],
        [info(name, onnx.TensorProto.FLOAT, [2]) for name, _, _ in steps if name not in read],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    data: bytes = onnx.helper.make_model(
        graph, ir_version=8, opset_imports=opsets
    ).SerializeToString()
    return data


def merged_in(steps: Steps) -> tuple[int, list[Region]]:
    """Partition and merge; return how many calls merging took, and the regions."""
    model = model_from_bytes(written(steps))
    partition(model, select_matches(model, RULES))
    count = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        regions = merge_partitions(model)
    finally:
        sys.setprofile(None)
    check_structure(model)
    return count, regions


CASES: dict[Callable[[int], Steps], Callable[[int], int]] = {
    chain: lambda _: 1,
    with_readers: lambda _: 1,
    with_readers_between: lambda _: 1,
    with_sources: lambda _: 1,
    with_both: lambda _: 1,
    beside_a_chain: lambda _: 1,
    above_a_chain: lambda _: 1,
    read_by_all: lambda count: count,
    behind_a_chain: lambda count: count + 1,
    before_a_chain: lambda count: count + 1,
    fan_in: lambda _: 1,
    fan_out: lambda _: 1,
    ladder: lambda count: count * 3 // 2,
    two_chains: lambda _: 2,
}
"""The nets, and how many regions are in one of a given size."""

QUICK = (chain, with_readers, beside_a_chain, read_by_all)


@pytest.mark.parametrize(
    "net",
    [pytest.param(net, marks=() if net in QUICK else pytest.mark.long) for net in CASES],
    ids=lambda net: net.__name__,
)
def test_growth(net: Callable[[int], Steps]) -> None:
    """Ten times the nodes take about ten times the work, and the regions are the right ones."""
    small, few = merged_in(net(150))
    large, many = merged_in(net(1500))

    assert [len(few), len(many)] == [CASES[net](150), CASES[net](1500)]
    assert large <= LIMIT * small
