"""Values inside two models: aligned by what they are, compared a few at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplcli.onnx_io.cutting import Wiring
from dplcli.verify import Settings
from dplcli.verify.bisect import DivergenceSearch, minimise
from dplcli.verify.compare import Facts, Judge
from dplcli.verify.layers import Alignment, Sketch, capture, feed, sketch, value_of
from dplcli.verify.settings import Leaf
from tests.helpers import proto_from_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dplcli.verify.layers import Layers

NET = """g (float[4, 16] x) => (float[4, 16] y) {
    a = Tanh (x)  b = Sin (x)  c = Mul (a, b)  d = Cos (c)  y = Add (d, a) }"""


def inside(folder: Path, ours: str, theirs: str, cap: int = 1 << 28) -> Layers:
    """Compare two models, given as text, inside."""
    for name, text in (("a.onnx", ours), ("b.onnx", theirs)):
        onnx.save(proto_from_text(text), folder / name)
    return DivergenceSearch(folder / "a.onnx", folder / "b.onnx", Settings()).layers(cap)


@settings(deadline=None, max_examples=200)
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
        *(("d", "a", "structure"), ("y", "y", "structure")),
    ]
    assert layers.first is None


def test_numbers_align_what_is_computed_otherwise(tmp_path: Path) -> None:
    """Another way to the same values: what is only in one model is left alone, not wrong."""
    other = """g (float[4, 16] x) => (float[4, 16] y) {
        a = Tanh (x)  n = Neg (x)  m = Sin (n)  b = Neg (m)  c = Mul (a, b)
        k = Cos (c)  y = Add (a, k) }"""
    layers = inside(tmp_path, NET, other)
    assert {item.original: item.how for item in layers.layers} == {
        "a": "structure",
        "b": "numbers",
        "c": "numbers",
        "d": "numbers",
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
    even = ours.replace("Neg (x)", "Mul (x, m)").replace("{ a", "{ m = Neg (o)  a")
    even = even.replace("=> (float[4, 16] y)", "=> (float[4, 16] y) <float o = {1}>")
    far = even.replace("Neg (o)", "Abs (o)")
    layers = inside(tmp_path, even, far)
    assert layers.first is None
    assert layers.alone == (2, 2)


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


def test_never_holds_more_than_the_cap(tmp_path: Path) -> None:
    """Values of 256 bytes under a cap of one and of two of them, and the same table."""
    whole = inside(tmp_path, NET, NET)
    for values in (1, 2):
        # a size is counted with 8 bytes for each element
        layers = inside(tmp_path, NET, NET, cap=values * 4 * 16 * 8)
        assert layers.peak <= values * 4 * 16 * 4 < whole.peak
        assert layers.layers == whole.layers


def test_what_is_no_tensor_is_left_out(tmp_path: Path) -> None:
    """A sequence inside is not compared; all else is."""
    net = """g (float[4, 16] x) => (float[4, 16] y) {
        s = SequenceConstruct (x, x)  i = Constant <value = int64 {1}> ()
        t = SequenceAt (s, i)  y = Tanh (t) }"""
    layers = inside(tmp_path, net, net)
    assert [item.original for item in layers.layers] == ["i", "t", "y"]


def test_captured_values_can_be_fed_again(tmp_path: Path) -> None:
    """Among them sequences, and bfloat16, which numpy has no type for."""
    net = """g (float[2] x) => (float[2] y) {
        h = Cast <to = 16> (x)  s = SequenceConstruct (x, x)  y = Cast <to = 1> (h) }"""
    onnx.save(proto_from_text(net), tmp_path / "m.onnx")
    fed = feed(tmp_path / "m.onnx", Settings())
    half, pair = (value_of(capture(fed.source, [name], fed.feeds[0])[name]) for name in ("h", "s"))
    assert isinstance(half, np.ndarray)
    assert half.dtype.name == "bfloat16"
    assert isinstance(pair, list)
    assert [array.shape for array in pair] == [(2,), (2,)]


def _logged(folder: Path, metadata: dict[str, str], op: str = "Cos") -> dict[str, str]:
    """Compare with a candidate whose *d* is computed wrongly and carries *metadata*.

    Returns what aligned each value of the original.
    """
    ours = proto_from_text(NET)
    for node in ours.graph.node:
        node.name = f"n_{node.output[0]}"
    theirs = proto_from_text(NET.replace("d = Cos (c)", "e = Exp (c)  d = Neg (e)"))
    wrong = theirs.graph.node[4]
    for key, value in metadata.items():
        wrong.metadata_props.add(key=key, value=value)
    ours.graph.node[3].op_type = op
    onnx.save(ours, folder / "a.onnx")
    onnx.save(theirs, folder / "b.onnx")
    layers = DivergenceSearch(folder / "a.onnx", folder / "b.onnx", Settings()).layers(1 << 28)
    return {layer.original: layer.how for layer in layers.layers}


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"dpl.replaces": "n_c, n_d"}, id="a-rewrite"),
        pytest.param({"dpl.nodes": '[["Cos","n_d",["d"]]]'}, id="a-partition"),
    ],
)
def test_log_of_the_candidate_aligns(tmp_path: Path, metadata: dict[str, str]) -> None:
    """A value that dpl says it took over is compared with that one, right or wrong."""
    assert _logged(tmp_path, metadata)["d"] == "log"


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"dpl.rule": "r"}, id="no-nodes"),
        pytest.param({"dpl.replaces": "n_c, n_dd"}, id="another-node"),
        pytest.param({"dpl.nodes": '[["Cos","n_c",["d"]]]'}, id="another-name"),
        pytest.param({"dpl.nodes": '[["Sin","n_d",["d"]]]'}, id="another-operator"),
        pytest.param({"dpl.nodes": '[["Cos","n_d",["c"]]]'}, id="another-value"),
        pytest.param({"dpl.nodes": '[["Cos","n_d",["d"]]'}, id="cut-off"),
        pytest.param({"dpl.nodes": '{"Cos": 1}'}, id="no-list"),
        pytest.param({"dpl.nodes": '[["Cos","n_d",7], 3, ["Cos"], ["Cos","n_d",[7]]]'}, id="odd"),
    ],
)
def test_log_that_does_not_fit_aligns_nothing(tmp_path: Path, metadata: dict[str, str]) -> None:
    """Names alone, and what does not read, are no reason."""
    assert "log" not in _logged(tmp_path, metadata).values()


NUMBERS = st.sampled_from([0.0, 1.0, 1.00001, -1.0, 2.0, 3.0, 1e30, np.inf, -np.inf, np.nan])


def sketches(data: st.DataObject, prefix: str) -> dict[str, Sketch]:
    """Return values of eleven elements each; eight of these are always the same."""
    rows = data.draw(st.lists(st.lists(NUMBERS, min_size=3, max_size=3), max_size=7))
    usual = np.arange(8, dtype=np.float32)
    arrays = [np.concatenate([np.array(row, np.float32), usual]) for row in rows]
    return {
        f"{prefix}{place}": sketch(Leaf("", "float32", array)) for place, array in enumerate(arrays)
    }


def nearest(one: Sketch, others: dict[str, Sketch], judge: Judge) -> str | None:
    """Look at every value: the nearest of those that agree, the first of several."""
    found, best = None, np.inf
    own = judge.compare("", (one.sample,), (one.sample,))
    for name, other in others.items():
        away = 0.0
        for a, b in zip(one.sample.data.tolist(), other.sample.data.tolist(), strict=True):
            if np.isnan(a) or np.isnan(b):
                away = away if np.isnan(a) and np.isnan(b) else np.inf
            elif not np.isfinite(a) or not np.isfinite(b):
                away = away if a == b else np.inf
            else:
                apart = abs(a - b)
                away = max(away, apart if apart <= own.atol + own.rtol * abs(a) else np.inf)
        if away < best:
            found, best = name, away
    return found


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_values_are_aligned_by_numbers_as_if_all_were_looked_at(data: st.DataObject) -> None:
    """Whatever the numbers are, and however many values agree."""
    model = proto_from_text("g (float[11] x) => (float[11] y) { y = Relu (x) }")
    alignment = Alignment(Wiring(model), Wiring(model))
    judge = replace(Judge(Settings(), Facts(), 0), level="disable")
    mine, others = sketches(data, "a"), sketches(data, "b")
    expected: dict[str, str] = {}
    left = dict(others)
    for name, one in mine.items():
        if (partner := nearest(one, left, judge)) is not None:
            expected[name] = partner
            del left[partner]

    alignment.by_numbers(mine, others, judge)

    pairs = [pair for pair in alignment.pairs.values() if pair.how == "numbers"]
    assert {pair.original: pair.candidate for pair in pairs} == expected
