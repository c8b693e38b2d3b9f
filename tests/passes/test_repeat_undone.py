"""Repeated blocks that were outlined come back as they were, in the order in which they were."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.onnx_io import load_model, to_proto
from dplcli.passes.repeat import outline_repeats
from dplcli.settings import RepeatSettings
from tests.corpus.nets import each_model, light_net, real_model
from tests.passes.inlining import inlined
from tests.passes.test_repeat_models import LAYERS
from tests.support.helpers import model_from_bytes, proto_from_text
from tests.support.structure import differences

ANY_SAVING = RepeatSettings(min_saving=0, min_nodes=2)


def check_undone(before: onnx.ModelProto, *, families: int | None = None) -> None:
    """Outline what repeats in a model, inline it, and compare.

    Blocks that state the same attributes in another order are one: that order is not kept.
    """
    model = model_from_bytes(before.SerializeToString())
    found = outline_repeats(model, ANY_SAVING).families
    assert families is None or len(found) == families
    found_again = differences(before, inlined(to_proto(model))[0])
    assert [each for each in found_again if not each.endswith("order of attributes")] == []


@pytest.mark.parametrize("name", each_model(LAYERS, gate=3))
def test_layers_of_real_models(name: str) -> None:
    """A real model is itself again."""
    check_undone(onnx.load(real_model(name), load_external_data=False))


@pytest.mark.parametrize("name", ["resnet50", "inception_v1"])
def test_blocks_whose_weights_are_nodes(name: str) -> None:
    """In the light nets the weights of a block are made far from where it reads them."""
    model = load_model(light_net(name))
    check_undone(to_proto(model))


@pytest.mark.parametrize(
    "order",
    ["a b c d e f", "d a e b f c", "a d b e c f", "d e a b c f", "a d e b c f"],
)
def test_blocks_in_any_order(order: str) -> None:
    """Two equal blocks may be mixed with each other, each in an order of its own."""
    nodes = {
        "a": "[a] a = Relu (x)",
        "b": "[b] b = Abs (x)",
        "c": "[c] c = Sub (a, b)",
        "d": "[d] d = Abs (y)",
        "e": "[e] e = Relu (y)",
        "f": "[f] f = Sub (e, d)",
    }
    body = "\n".join(nodes[name] for name in order.split())
    text = f"g (float[2] x, float[2] y) => (float[2] c, float[2] f) {{ {body} }}"
    check_undone(proto_from_text(text), families=1)


@pytest.mark.long
@given(st.permutations([f"{part}{block}" for block in range(3) for part in "pqrs"]))
def test_blocks_in_random_order(order: list[str]) -> None:
    """Three blocks of four nodes, mixed at random as far as they may be."""
    reads: dict[str, list[str]] = {"p": [], "q": [], "r": ["p", "q"], "s": ["r", "p"]}
    ops = {"p": "Relu", "q": "Abs", "r": "Sub", "s": "Div"}
    written: list[str] = []
    waiting = list(order)
    while waiting:
        name = next(n for n in waiting if all(f"{r}{n[1]}" in written for r in reads[n[0]]))
        waiting.remove(name)
        written.append(name)
    lines = [
        f"[{n}] {n} = {ops[n[0]]} ({', '.join(f'{r}{n[1]}' for r in reads[n[0]]) or f'x{n[1]}'})"
        for n in written
    ]
    inputs = ", ".join(f"float[2] x{block}" for block in range(3))
    outputs = ", ".join(f"float[2] s{block}" for block in range(3))
    check_undone(proto_from_text(f"g ({inputs}) => ({outputs}) {{ {chr(10).join(lines)} }}"))
