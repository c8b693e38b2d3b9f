"""Partition, merge, repeat and inline one after the other, in any order, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import to_proto
from dplcli.passes.inline import inline
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.records import is_region
from dplcli.passes.repeat import outline_repeats
from dplcli.passes.select import select_matches
from dplcli.pipeline.partitioning import written_functions
from dplcli.settings import RepeatSettings
from tests.passes.rewriting import all_nodes
from tests.passes.test_inline_properties import drawn_rule
from tests.passes.test_repeat_properties import planted
from tests.support.helpers import check_sound, model_from_bytes, proto_from_text
from tests.support.helpers import rule as rule_of
from tests.support.random_models import HEADER, scoped_models
from tests.support.random_models import named as with_names
from tests.support.strategies import graphs
from tests.support.structure import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import onnx

    from dplcli.ir import Model
    from dplcli.language import PatternRule
    from tests.support.strategies import RandomGraph

TARGETS = ("one", "two")
CATALOG = ("Relu(Abs(x))", "Neg(Add(x, y))", "Add(Relu(x), y)", "Mul(x, const(w))", "Relu(x)")


class Step(NamedTuple):
    """One run of dpl.

    Attributes:
        word: What it does, for a failure.
        run: Does it.
        keeps_order: Whether nodes will find back to their places. Calls of an earlier run that are
            inlined while those of a later one stay may go elsewhere among them, and read past an
            Identity that is in one; and so may what is in a region that has grown.
    """

    word: str
    run: Callable[[Model], object]
    keeps_order: bool = True


@st.composite
def models(draw: st.DrawFn) -> tuple[onnx.ModelProto, list[RandomGraph]]:
    """Draw a flat graph, one with planted blocks, or one with branches and a function."""
    kind = draw(st.sampled_from(("flat", "blocks", "scopes")))
    if kind == "flat":
        graph = draw(graphs(14))
        return with_names(proto_from_text(HEADER + graph.text())), [graph]
    if kind == "blocks":
        return with_names(proto_from_text(draw(planted()).text())), []
    drawn = draw(scoped_models())
    return with_names(proto_from_text(drawn.text())), drawn.graphs()


def drawn_rules(data: st.DataObject, found: Sequence[RandomGraph]) -> list[PatternRule]:
    """Draw one or two rules of one target."""
    target = data.draw(st.sampled_from(TARGETS))
    count = data.draw(st.integers(1, 2))
    if found:
        return [
            drawn_rule(data, data.draw(st.sampled_from(found)), n, target) for n in range(count)
        ]
    texts = data.draw(
        st.lists(st.sampled_from(CATALOG), min_size=count, max_size=count, unique=True)
    )
    return [
        rule_of(
            text,
            target=target,
            name=f"r{n}",
            constants=data.draw(st.sampled_from(("auto", "embed", "lift"))),
            escape=data.draw(st.sampled_from(("refuse", "duplicate", "outputs"))),
            order=data.draw(st.sampled_from(("outermost", "program"))),
        )
        for n, text in enumerate(texts)
    ]


def drawn_step(data: st.DataObject, found: Sequence[RandomGraph], model: Model) -> Step:
    """Draw what is done next."""
    kind = data.draw(
        st.sampled_from(("partition", "partition", "both", "merge", "repeat", "inline"))
    )
    has_regions = any(is_region(function) for function in model.functions.values())
    if kind == "merge":
        return Step("merge", merge_partitions, keeps_order=not has_regions)
    if kind == "repeat":
        options = RepeatSettings(
            min_saving=0,
            min_nodes=data.draw(st.integers(1, 4)),
            same_attributes=data.draw(st.booleans()),
        )
        return Step("repeat", lambda model: outline_repeats(model, options))
    if kind == "inline":
        written = [f"{f.domain}::{f.name}" for f in written_functions(model)]
        chosen = data.draw(st.sets(st.sampled_from(written), max_size=2)) if written else set()
        chosen = with_callers(model, chosen)
        return Step(f"inline {chosen}", lambda m: _inline(m, chosen), keeps_order=not chosen)
    rules = drawn_rules(data, found)
    merge = kind == "both"
    keeps_order = not (merge and has_regions)
    return Step(f"{kind} {rules}", lambda m: _partition(m, rules, merge=merge), keeps_order)


def with_callers(model: Model, chosen: set[str]) -> set[str]:
    """Add the functions that call those chosen: it is they who know what was there before."""
    callers = {f.body: f"{f.domain}::{f.name}" for f in written_functions(model)}
    while True:
        more = {
            callers[graph]
            for graph in callers
            for node in graph
            if node.qualified_op.replace(".", "::") in chosen
        }
        if more <= chosen:
            return chosen
        chosen |= more


def _partition(model: Model, rules: list[PatternRule], *, merge: bool) -> None:
    partition(model, select_matches(model, rules))
    if merge:
        merge_partitions(model)


def _inline(model: Model, chosen: set[str]) -> None:
    functions = [f for f in model.functions.values() if f"{f.domain}::{f.name}" in chosen]
    result = inline(model, functions)
    assert not result.refused
    assert all(item.is_restored for item in result.calls)


def taken(proto: onnx.ModelProto, step: Step) -> onnx.ModelProto:
    """Take a step, through a file."""
    model = model_from_bytes(proto.SerializeToString())
    step.run(model)
    check_structure(model)
    return to_proto(model)


def restored(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Inline all that dpl wrote."""
    model = model_from_bytes(proto.SerializeToString())
    result = inline(model, written_functions(model))
    check_structure(model)
    assert not result.refused
    assert all(item.is_restored for item in result.calls)
    return to_proto(model)


@pytest.mark.long
@given(st.data())
def test_any_order_is_sound_final_and_undone(data: st.DataObject) -> None:
    """Each result is sound, the same step again changes nothing, and inlining ends at the start."""
    original, found = data.draw(models())
    proto = original
    keeps_order = True
    for _ in range(data.draw(st.integers(1, 5))):
        step = drawn_step(data, found, model_from_bytes(proto.SerializeToString()))
        proto = taken(proto, step)
        keeps_order &= step.keeps_order
        assert taken(proto, step) == proto, step.word
    check_sound(original, proto)
    again = restored(proto)
    if keeps_order:
        assert differences(original, again) == []
    else:
        check_sound(original, again)
        assert identities(again) == identities(original)


def identities(model: onnx.ModelProto) -> list[tuple[str, str, list[str]]]:
    """Return what tells every node from others, in no order."""
    return sorted((node.op_type, node.name, list(node.output)) for node in all_nodes(model))
