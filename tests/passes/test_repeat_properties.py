"""Random blocks planted in random graphs: found, valid, equivalent, deterministic, idempotent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.repeating import ANY_SAVING, repeated
from tests.support.helpers import check_sound, proto_from_text
from tests.support.strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.settings import RepeatSettings

UNARY = ("Relu", "Sin", "Cos", "Tanh", "Sigmoid", "Abs", "Elu", "Softsign")
BINARY = ("Add", "Sub", "Mul", "Max")
GLUE = ("Neg", "Floor", "Atan", "Erf")


@dataclass(frozen=True)
class Planted:
    """A graph in which a block is planted several times.

    Attributes:
        lines: The nodes, in an order that suits them.
        weights: How many weights there are.
        outputs: What the graph returns.
        repeats: How often the block is there.
        size: How many nodes it has.
    """

    lines: tuple[str, ...]
    weights: int
    outputs: tuple[str, ...]
    repeats: int
    size: int

    def text(self) -> str:
        """Write it as ONNX text."""
        stored = ", ".join(f"float[3] w{n} = {{{n}, -1, 0.5}}" for n in range(self.weights))
        outputs = ", ".join(f"float[3] {name}" for name in self.outputs)
        values = f" <{stored}>" if stored else ""
        body = " ".join(self.lines)
        return f"g (float[3] x, float[3] y) => ({outputs}){values} {{ {body} }}"


@st.composite
def planted(draw: st.DrawFn) -> Planted:
    """Draw a block, plant it, put other nodes between, and shuffle as far as possible."""
    size = draw(st.integers(4, 9))
    block: list[tuple[str, tuple[str, ...]]] = [("Relu", ("in",))]
    for number in range(1, size):
        operands = [f"n{number - 1}"]
        if draw(st.booleans()):
            others = ["in", "w", *(f"n{other}" for other in range(number))]
            operands.append(draw(st.sampled_from(others)))
        ops = BINARY if len(operands) > 1 else UNARY
        block.append((draw(st.sampled_from(ops)), tuple(draw(st.permutations(operands)))))
    repeats = draw(st.integers(2, 5))
    values, nodes, weights = ["x", "y"], [], 0
    for copy in range(repeats):
        names = {"in": draw(st.sampled_from(values[-2:]))}
        for number, (op, reads) in enumerate(block):
            name = names[f"n{number}"] = f"b{copy}_{number}"
            given_here = []
            for read in reads:
                if read == "w":
                    given_here.append(f"w{weights}")
                    weights += 1
                else:
                    given_here.append(names[read])
            nodes.append((name, op, given_here))
        inner = f"b{copy}_{draw(st.integers(0, size - 1))}"
        values.append(f"b{copy}_{size - 1}")
        for glue in range(draw(st.integers(0, 2))):
            name = f"g{copy}_{glue}"
            read = draw(st.sampled_from([inner, values[-1], "x"]))
            nodes.append((name, draw(st.sampled_from(GLUE)), [read]))
            values.append(name)
    return Planted(
        tuple(f"{n} = {op} ({', '.join(reads)})" for n, op, reads in _shuffled(draw, nodes)),
        weights,
        tuple(_unread(nodes)),
        repeats,
        size,
    )


Line = tuple[str, str, list[str]]


def _shuffled(draw: st.DrawFn, nodes: Sequence[Line]) -> list[Line]:
    """Put *nodes* in another order in which each follows what it reads."""
    if draw(st.booleans()):
        return list(nodes)
    chance = draw(st.randoms(use_true_random=False))
    left, done = list(nodes), {"x", "y"}
    ordered = []
    while left:
        ready = [n for n in left if all(r in done or r.startswith("w") for r in n[2])]
        node = chance.choice(ready)
        left.remove(node)
        done.add(node[0])
        ordered.append(node)
    return ordered


def _unread(nodes: Sequence[Line]) -> list[str]:
    read = {name for _, _, reads in nodes for name in reads}
    return [name for name, _, _ in nodes if name not in read]


def check_all(text: str, options: RepeatSettings = ANY_SAVING) -> int:
    """Check what must hold of every result; return how many nodes are saved."""
    before = proto_from_text(text)
    _, result, written = repeated(text, options)
    assert repeated(text, options)[2] == written
    nodes = [n for f in result.families for p in f.partitions for n in p.match.nodes]
    assert len(set(nodes)) == len(nodes)
    for family in result.families:
        assert len(family.partitions) >= options.min_repeats
        assert family.size >= options.min_nodes
    proto: onnx.ModelProto = onnx.ModelProto.FromString(written)
    check_sound(before, proto)
    _, again, same = repeated(written, options)
    assert not again.families
    assert onnx.ModelProto.FromString(same) == proto
    after = len(proto.graph.node) + sum(len(function.node) for function in proto.functions)
    return len(before.graph.node) - after


@pytest.mark.long
@given(planted())
def test_what_is_planted_is_found(case: Planted) -> None:
    """At least as much is saved as if the planted blocks were outlined."""
    size, repeats = case.size, case.repeats
    assert check_all(case.text()) >= size * repeats - size - repeats


@given(st.data())
def test_random_graphs(data: st.DataObject) -> None:
    """Whatever repeats in a random graph, the result is sound and a second run finds nothing."""
    graph = data.draw(graphs(16))
    smallest = ANY_SAVING.but(
        min_nodes=data.draw(st.integers(1, 3)),
        same_attributes=data.draw(st.booleans()),
    )
    check_all(graph.text(), smallest)
