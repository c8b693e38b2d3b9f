"""Values inside two models: paired by structure, compared a few at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.verify import Check
from dplcli.verify.layers import DivergenceSearch, ValueStream, capture, feed, minimise, value_of
from tests.support.helpers import proto_from_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.verify.layers import Layers
    from dplcli.verify.values import Outputs

NET = """g (float[4, 16] x) => (float[4, 16] y) {
    a = Tanh (x)  b = Sin (x)  c = Mul (a, b)  d = Cos (c)  y = Add (d, a) }"""


def inside(folder: Path, ours: str, theirs: str, cap: int = 1 << 28) -> Layers:
    """Compare two models, given as text, inside."""
    for name, text in (("a.onnx", ours), ("b.onnx", theirs)):
        onnx.save(proto_from_text(text), folder / name)
    return DivergenceSearch(folder / "a.onnx", folder / "b.onnx", Check()).layers(cap)


@given(st.data())
def test_what_is_left_breaks_and_nothing_of_it_can_go(data: st.DataObject) -> None:
    """For any number of items, and any sets of them that break it together."""
    count = data.draw(st.integers(1, 40))
    items = [f"i{number}" for number in range(count)]
    sets = data.draw(
        st.lists(st.sets(st.sampled_from(items), min_size=1, max_size=4), min_size=1, max_size=3)
    )
    trials = 0

    def try_out(part: Sequence[str]) -> Sequence[str] | None:
        nonlocal trials
        trials += 1
        return part if any(group <= set(part) for group in sets) else None

    left = minimise(items, try_out)

    assert set(left) in sets
    assert not any(group < set(left) for group in sets)
    assert list(left) == [item for item in items if item in left]
    assert trials <= count * count + 3 * count


def test_one_culprit_of_many_takes_few_trials() -> None:
    """About two for each halving."""
    items, tried = [object() for _ in range(1000)], 0

    def try_out(part: Sequence[object]) -> Sequence[object] | None:
        nonlocal tried
        tried += 1
        return part if items[777] in part else None

    assert minimise(items, try_out) == (items[777],)
    assert tried <= 22


def test_items_that_took_no_effect_are_dropped() -> None:
    """What a trial says took effect is what is looked at further."""
    left = minimise(list(range(100)), lambda part: [i for i in part if i in (3, 50)] or None)
    assert len(left) == 1


def test_names_mean_nothing(tmp_path: Path) -> None:
    """Names that are swapped between other values mislead nobody."""
    swapped = """g (float[4, 16] x) => (float[4, 16] y) {
        d = Tanh (x)  c = Sin (x)  b = Mul (d, c)  a = Cos (b)  y = Add (a, d) }"""
    layers = inside(tmp_path, NET, swapped)
    assert [(item.original, item.candidate, item.how) for item in layers.layers] == [
        *(("a", "d", "structure"), ("b", "c", "structure"), ("c", "b", "structure")),
        *(("d", "a", "structure"), ("y", "y", "output")),
    ]
    assert layers.first is None


def test_readers_pair_what_is_computed_otherwise(tmp_path: Path) -> None:
    """Another way to the same values: what is only in one model is left alone, not wrong."""
    other = """g (float[4, 16] x) => (float[4, 16] y) {
        a = Tanh (x)  n = Neg (x)  m = Sin (n)  b = Neg (m)  c = Mul (a, b)
        k = Cos (c)  y = Add (a, k) }"""
    layers = inside(tmp_path, NET, other)
    assert {item.original: item.how for item in layers.layers} == {
        "a": "structure",
        "b": "readers",
        "c": "structure",
        "d": "structure",
        "y": "output",
    }
    assert (layers.first, layers.alone) == (None, (0, 2))


def test_other_steps_to_one_result_are_no_difference(tmp_path: Path) -> None:
    """Both read one value and feed one operator, but only what comes of them is the same."""
    ours = "g (float[4, 16] x) => (float[4, 16] y) { a = Neg (x)  b = Abs (a)  y = Tanh (b) }"
    other = "g (float[4, 16] x) => (float[4, 16] y) { a = Identity (x)  b = Abs (a)  y = Tanh (b) }"
    layers = inside(tmp_path, ours, other.replace("Identity", "Selu"))
    assert layers.first is not None
    assert layers.first.original == "a"
    layers = inside(tmp_path, ours, other)
    assert layers.first is None


def test_steps_to_one_result_may_be_several(tmp_path: Path) -> None:
    """Two values in a row differ, and what comes of them is the same."""
    ours = """g (float[4, 16] x) => (float[4, 16] y) <float o = {1}> {
        m = Neg (o)  a = Mul (x, m)  b = Abs (a)  y = Tanh (b) }"""
    layers = inside(tmp_path, ours, ours.replace("Neg (o)", "Abs (o)"))
    assert layers.first is None


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (("Sin (x)", "Cos (x)"), "b"),
        (("Mul (a, b)", "Sub (a, b)"), "c"),
        (("Mul (a, b)", "Mul (a, a)"), "c"),
        (("Add (d, a)", "Sub (d, a)"), "y"),
    ],
)
def test_names_the_first_value_that_differs(
    tmp_path: Path, change: tuple[str, str], first: str
) -> None:
    """Whichever node is another one."""
    layers = inside(tmp_path, NET, NET.replace(*change))
    assert layers.first is not None
    assert layers.first.original == first


def test_never_holds_more_than_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of 256 bytes under a cap of one and of two of them, and the same table."""
    held: list[int] = []
    values_of = ValueStream.values

    def values(stream: ValueStream, names: Sequence[str]) -> Outputs:
        outputs = values_of(stream, names)
        held.append(sum(leaf.data.nbytes for leaves in outputs.values() for leaf in leaves))
        return outputs

    monkeypatch.setattr(ValueStream, "values", values)
    whole = inside(tmp_path, NET, NET)
    of_whole = max(held)
    for count in (1, 2):
        held.clear()
        # a size is counted with 8 bytes for each element
        layers = inside(tmp_path, NET, NET, cap=count * 4 * 16 * 8)
        assert max(held) <= count * 4 * 16 * 4 < of_whole
        assert layers.layers == whole.layers


def test_what_is_no_tensor_is_left_out(tmp_path: Path) -> None:
    """Sequences inside are not compared, nor what is stored; all else is."""
    net = """g (float[4, 16] x) => (float[4, 16] y) {
        s = SequenceConstruct (x, x)  i = Constant <value = int64 {1}> ()
        t = SequenceAt (s, i)  y = Tanh (t) }"""
    layers = inside(tmp_path, net, net)
    assert [item.original for item in layers.layers] == ["t", "y"]


def test_captured_values_can_be_fed_again(tmp_path: Path) -> None:
    """Among them sequences, and bfloat16, which numpy has no type for."""
    net = """g (float[2] x) => (float[2] y) {
        h = Cast <to = 16> (x)  s = SequenceConstruct (x, x)  y = Cast <to = 1> (h) }"""
    onnx.save(proto_from_text(net), tmp_path / "m.onnx")
    fed = feed(tmp_path / "m.onnx", Check())
    half, pair = (value_of(capture(fed.source, [name], fed.feeds[0])[name]) for name in ("h", "s"))
    assert isinstance(half, np.ndarray)
    assert half.dtype.name == "bfloat16"
    assert isinstance(pair, list)
    assert [array.shape for array in pair] == [(2,), (2,)]
