"""Random models that say all that a file can say: nothing of it is lost in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplcli.analysis.extract import Wiring, left_out, part_between
from dplcli.errors import UsageError
from dplcli.ir.traversal import check_structure
from dplcli.onnx_io import losses, to_proto
from dplcli.passes.inline import inline
from dplcli.passes.merge import merge_partitions
from dplcli.passes.partition import partition
from dplcli.passes.repeat import outline_repeats
from dplcli.passes.rewrite import rewrite
from dplcli.passes.select import select_matches
from dplcli.settings import RepeatSettings
from tests.passes.repeating import chain, numbered
from tests.support.beside import decorated, lost_in_silence
from tests.support.helpers import model_from_bytes, proto_from_text, rule
from tests.support.random_models import sound_cases
from tests.support.structure import differences

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    import onnx

    from dplcli.ir import Model

RANDOM = st.randoms(use_true_random=False)
PAIRS = [
    rule(pattern, name=f"p{number}", **settings)
    for number, (pattern, settings) in enumerate(
        (
            ('Neg(op(kind="elementwise")(x))', {"escape": "outputs"}),
            ("Add(const(k), x)", {"constants": "embed"}),
            ("Relu(x)", {}),
            ('op(kind="elementwise")(op(kind="elementwise")(x))', {}),
        )
    )
]


def check_undone(model: onnx.ModelProto, outline: Callable[[Model], object]) -> None:
    """Outline, look at what the file says then, and put everything back."""
    ir = model_from_bytes(model.SerializeToString())
    outline(ir)
    check_structure(ir)
    written, said = to_proto(ir), losses(ir, in_calls=True)
    silent = lost_in_silence(model, written, "\n".join(said))
    assert [line for line in silent if not line.startswith("the sharding")] == []
    again = model_from_bytes(written.SerializeToString())
    inline(again, [f for f in again.functions.values() if f.domain != "own"])
    assert differences(model, to_proto(again)) == []


@given(case=sound_cases(), random=RANDOM)
@settings(max_examples=12, deadline=None)
def test_rewriting(case: tuple[onnx.ModelProto, list[object]], random: Random) -> None:
    """Rules that keep the numbers keep the rest, or it is said."""
    before, rules = case
    model = decorated(before, random)
    ir = model_from_bytes(model.SerializeToString())
    rewrite(ir, rules)  # type: ignore[arg-type]  # rules
    check_structure(ir)
    assert lost_in_silence(model, to_proto(ir), "\n".join(losses(ir))) == []


@pytest.mark.long
@given(case=sound_cases(), random=RANDOM, merge=st.booleans())
@settings(max_examples=12, deadline=None)
def test_partition_and_inline(
    case: tuple[onnx.ModelProto, list[object]], random: Random, *, merge: bool
) -> None:
    """What is inside calls is said, and comes back with them."""
    model = decorated(case[0], random)

    def outline(ir: Model) -> None:
        partition(ir, select_matches(ir, PAIRS))
        if merge:
            merge_partitions(ir)

    check_undone(model, outline)


@given(random=RANDOM, nested=st.booleans())
@settings(max_examples=12, deadline=None)
def test_repeat_and_inline(random: Random, *, nested: bool) -> None:
    """Blocks carry different things in each of their copies."""
    block = numbered("[n#] a# = Neg (@) [m#] b# = Abs (a#) [o#] c# = Sin (b#) [p#] d# = Cos (c#)")
    model = decorated(proto_from_text(chain(5, block)), random)
    check_undone(model, lambda ir: outline_repeats(ir, RepeatSettings(nested=nested)))


@given(case=sound_cases(), random=RANDOM)
@settings(max_examples=12, deadline=None)
def test_extract(case: tuple[onnx.ModelProto, list[object]], random: Random) -> None:
    """Every node of a part is as it was, and what is said of its values is."""
    model = decorated(case[0], random)
    wiring = Wiring(model)
    ends = random.sample(sorted(wiring.makers), min(2, len(wiring.makers)))
    try:
        part = part_between(wiring, (), ends, {})
    except UsageError:  # a type is not known, or nothing is between
        return
    said = "\n".join(left_out(wiring, part))
    nodes = {node.output[0]: node for node in model.graph.node}
    assert all(nodes[node.output[0]] == node for node in part.graph.node)
    infos = {info.name: info for info in (*model.graph.input, *model.graph.value_info)}
    infos |= {info.name: info for info in model.graph.output}
    for info in (*part.graph.input, *part.graph.output):
        assert info == infos[info.name]
    assert part.configuration == model.configuration
    assert part.metadata_props == model.metadata_props
    assert ("training" in said) == bool(model.training_info)
    there = {name for node in part.graph.node for name in (*node.input, *node.output)}
    kept = {note.tensor_name for note in part.graph.quantization_annotation}
    for note in model.graph.quantization_annotation:
        if note.tensor_name in there - kept:
            assert repr(note.tensor_name) in said or "…" in said
