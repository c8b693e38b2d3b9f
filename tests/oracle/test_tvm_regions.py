"""Regions against TVM's own: MergeCompositeFunctions of the wheel, run live on random graphs.

Where TVM's result is well formed there must be as many regions as dpl makes. It is not always: what
a group depends on is not passed on to those that depend on the group already, so two groups may
come to need each other.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.passes.merged import groups
from tests.support.helpers import rule
from tests.support.strategies import RandomGraph, Step

pytest.importorskip("tvm", reason="the oracle is TVM's Relax: pip install apache-tvm")

import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from tests.oracle.relax_side import RELAX_OPS, RelaxGraph, graph_of

pytestmark = pytest.mark.long

TARGETS = {"Relu": "s", "Add": "s", "Neg": "t", "Mul": "t"}
BINARY = ("Add", "Mul", "Sub")
RULES = [
    rule(f"{op}(x, y)" if op in BINARY else f"{op}(x)", name=op.lower(), target=target)
    for op, target in TARGETS.items()
]
PATTERNS = [
    (
        f"{target}.{op.lower()}",
        is_op(RELAX_OPS[op])(*[wildcard() for _ in range(2 if op in BINARY else 1)]),
    )
    for op, target in TARGETS.items()
]
CYCLE = graph_of(
    "v0=Add(a,a) v1=Add(v0,b) v2=Sub(v1,v0) v3=Neg(a) v4=Add(v3,v0) v5=Sigmoid(v2) v8=Mul(v5,v3)",
    "v4 v8",
)


def regions_of_tvm(graph: RandomGraph) -> int | None:
    """Count the calls in main that TVM makes; None if what it makes is not well formed."""
    module = RelaxGraph(graph).module
    fused = relax.transform.FuseOpsByPattern(PATTERNS, annotate_codegen=False)(module)
    merged = relax.transform.MergeCompositeFunctions()(fused)
    try:
        relax.analysis.well_formed(merged)
    except ValueError:
        return None
    bindings = [item for block in merged["main"].body.blocks for item in block.bindings]
    return sum(
        isinstance(item.value, relax.Call) and isinstance(item.value.op, tvm.ir.GlobalVar)
        for item in bindings
    )


def dense_graph(random: Random) -> RandomGraph:
    """Draw a graph with many ways from node to node, all of whose values lead to an output."""
    values = ["a", "b"]
    steps: list[Step] = []
    for number in range(random.randint(4, 16)):
        near = values[-random.randint(2, 6) :]
        reads = tuple(random.choice(near) for _ in range(random.randint(1, 2)))
        ops = BINARY if len(reads) > 1 else ("Relu", "Neg", "Sigmoid")
        steps.append(Step(f"v{number}", random.choice(ops), reads))
        values.append(f"v{number}")
    read = {name for step in steps for name in step.reads}
    return RandomGraph(tuple(steps), tuple(v for v in values[2:] if v not in read))


@pytest.mark.parametrize("seed", range(4))
def test_as_many_regions(seed: int) -> None:
    """There are as many as TVM makes, wherever TVM makes sense."""
    random = Random(seed)  # noqa: S311  # nothing secret
    compared = 0
    for _ in range(60):
        graph = dense_graph(random)
        theirs = regions_of_tvm(graph)
        if theirs is not None:
            compared += 1
            assert len(groups(RULES, graph.text())) == theirs, graph.text()
    assert compared > 50


def test_a_cycle_that_tvm_makes() -> None:
    """Where TVM's two regions need each other, dpl makes three."""
    assert regions_of_tvm(CYCLE) is None
    assert groups(RULES, CYCLE.text()) == ["t: v3", "s: v0 v1 v4", "t: v8"]
