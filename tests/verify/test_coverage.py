"""What runs showed of a place: pieces, rows of tables, and what need not be shown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from dplcli.verify.coverage import Known, PlaceCoverage, calls_of, show_inner, watch_bodies
from dplcli.verify.model import input_differences
from dplcli.verify.ranges import Interval
from tests.support.strategies import FOUR_TIMES, growth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dplcli.verify.behaviours import Call
    from dplcli.verify.values import Array

    Feeds = Mapping[str, Array]

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
EVERY = ({"y", "h", "t"}, {"y", "h", "t"})


def model(text: str) -> onnx.ModelProto:
    """Return a model that also gives what its inner nodes read and give."""
    parsed = onnx.parser.parse_model(HEADER + text)
    show_inner(parsed)
    return parsed


def run(
    covered: PlaceCoverage, side: int, text: str, feeds: Feeds, known: Known | None = None
) -> None:
    """Note what a model does on some feeds."""
    shown = model(text)
    names = [info.name for info in shown.graph.output]
    given: Any = ReferenceEvaluator(shown).run(None, dict(feeds))
    for call in calls_of(shown, {**feeds, **dict(zip(names, given, strict=True))}):
        covered.add(side, call, feeds, known or Known(is_main=True))


def pair(ours: str, theirs: str, *feeds: Feeds, known: Known | None = None) -> PlaceCoverage:
    """Return what two models showed on the same feeds."""
    covered = PlaceCoverage()
    for fed in feeds:
        run(covered, 0, ours, fed, known)
        run(covered, 1, theirs, fed, known)
    return covered


def missing(covered: PlaceCoverage) -> set[str]:
    """Return what was not reached, by model, value and piece."""
    return {f"{key.side} {key.value} {key.piece}" for key in covered.missing(EVERY)}


def fed(*numbers: float) -> Feeds:
    """Return an input of four numbers."""
    return {"x": np.resize(np.array(numbers, np.float32), 4)}


RELU = "(float[4] x) => (float[4] y) { h = Neg (x) y = Relu (h) }"
CLIP = "(float[4] x) => (float[4] y) <float lo = {-6}> { y = Clip (x, lo) }"


# Pieces.


def test_each_run_adds_what_it_reached() -> None:
    """Two runs show together what neither shows alone; inner values count."""
    covered = pair(RELU, CLIP, fed(1))
    assert missing(covered) == {"0 y above 0", "1 y below its min"}
    assert covered.count(EVERY) == (2, 4)
    run(covered, 0, RELU, fed(-1))
    run(covered, 1, CLIP, fed(-7))
    assert not missing(covered)
    assert covered.count(EVERY) == (4, 4)


def test_the_nearest_run_is_kept() -> None:
    """The search goes on from there."""
    feeds = [fed(5), fed(-5), fed(3)]
    covered = pair(CLIP, CLIP, *feeds)
    (met,) = {id(m): m for k, m in covered.met.items() if not k.side and m.distance}.values()
    assert met.distance == pytest.approx(1)
    assert met.fed is feeds[1]


def test_other_places_are_not_asked_for() -> None:
    """Only what the nodes of this place give."""
    assert not pair(RELU, CLIP, fed(1)).missing(({"h"}, {"h"}))
    assert pair(RELU, CLIP, fed(1)).count(({"y"}, set())) == (1, 2)


def test_ranges_prove_what_is_out_of_reach() -> None:
    """It is not asked for, nor counted."""
    held = {"x": Interval(1, 2), "lo": Interval(-6, -6)}
    known = Known(within=lambda name: held.get(name, Interval()), is_main=True)
    covered = pair(CLIP, CLIP, fed(1.5), known=known)
    assert not missing(covered)
    assert covered.count(EVERY) == (2, 2)


def test_what_was_excused_was_not_seen() -> None:
    """A run whose difference was not judged showed nothing; another one may."""
    first, second = fed(-7), fed(-8)
    covered = pair(CLIP, CLIP, first)
    covered.revoke(fed(-7))  # other arrays: another run
    assert not [m for k, m in covered.met.items() if k.piece == "below its min" and m.distance]
    covered.revoke(first)
    assert missing(covered) == {
        f"{n} y {what} its min" for n in (0, 1) for what in ("below", "above")
    }
    run(covered, 0, CLIP, second)
    assert "0 y below its min" not in missing(covered)


def test_what_another_run_reached_too_stays() -> None:
    """Unless only the excused run reached it."""
    first, second = fed(-7, 1), fed(-8, 1)
    covered = pair(CLIP, CLIP, first, second)
    covered.revoke(first)
    assert not missing(covered)


UNLESS = {
    "alike: as many ties in both": (
        "(float[4] x) => (int64[1] y) { y = ArgMax (x) }",
        "(float[4] x) => (int64[1] y) { h = Neg (x) t = Neg (h) y = ArgMax (t) }",
        set(),
    ),
    "alike: another attribute": (
        "(float[4] x) => (int64[1] y) { y = ArgMax (x) }",
        "(float[4] x) => (int64[1] y) { y = ArgMax <select_last_index = 1> (x) }",
        {"0 y of a tie", "1 y of a tie"},
    ),
    "alike: another constant": (
        "(float[4] x) => (bool[4] y) <float k = {3}> { y = Less (x, k) }",
        "(float[4] x) => (bool[4] y) <float k = {4}> { y = Less (x, k) }",
        {f"{n} y of {what}" for n in (0, 1) for what in ("equal numbers", "a larger number")},
    ),
    "alike: the same constant": (
        "(float[4] x) => (bool[4] y) <float k = {3}> { y = Less (x, k) }",
        "(float[4] x) => (bool[4] y) <float k = {3}> { h = Neg (x) t = Neg (h) y = Less (t, k) }",
        set(),
    ),
    "fewer: a Sqrt that the original has not": (
        "(float[4] x) => (float[4] y) { y = Abs (x) }",
        "(float[4] x) => (float[4] y) { h = Mul (x, x) y = Sqrt (h) }",
        {"0 y below 0", "1 y of a negative number", "1 y of zero"},
    ),
    "fewer: a Sqrt that is gone": (
        "(float[4] x) => (float[4] y) { h = Mul (x, x) y = Sqrt (h) }",
        "(float[4] x) => (float[4] y) { y = Abs (x) }",
        {"1 y below 0"},
    ),
    "fewer: a Div by zero as often": (
        "(float[4] x) => (float[4] y) { h = Div (x, x) y = Div (h, x) }",
        "(float[4] x) => (float[4] y) { h = Mul (x, x) t = Div (x, h) y = Div (t, x) }",
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "expected"), UNLESS.values(), ids=UNLESS)
def test_what_need_not_be_reached(ours: str, theirs: str, expected: set[str]) -> None:
    """What both models do alike, and what the candidate does no oftener."""
    assert missing(pair(ours, theirs, fed(1, 2, 1.5, 1.25))) == expected


# Bodies.

BODIES = """(bool c, int64 n, float x) => (float y, float z) {
 y = If (c) <then_branch = a () => (float p) { p = Relu (x) },
             else_branch = b () => (float q) { o = Neg (x) q = HardSwish (o) }>
 z = Loop (n, c, x) <body = d (int64 i, bool g, float s) => (bool r, float t) {
  k = Constant <value = float {2}> () t = Mul (s, k) r = Less (t, k) }> }"""


def noted(covered: PlaceCoverage, given: Mapping[str, Any], call: Call) -> None:
    """Note what one node did."""
    covered.add(0, call, given, Known(is_main=True))


def watched(*feeds: Mapping[str, object]) -> PlaceCoverage:
    """Return what runs of a model with bodies showed."""
    covered = PlaceCoverage()
    parsed = onnx.parser.parse_model(HEADER + BODIES)
    for each in feeds:
        given: dict[str, Any] = {name: np.asarray(value) for name, value in each.items()}
        given["x"] = given["x"].astype(np.float32)
        watch_bodies(parsed, given, partial(noted, covered, given))
    return covered


def test_nodes_of_bodies_are_watched_as_often_as_they_run() -> None:
    """Each branch when it is taken, each turn of a loop."""
    covered = watched({"c": True, "n": 3, "x": 0.5})
    values = {key.value for key in covered.met}
    assert {"y", "z", "p", "r"} <= values
    assert "q" not in values
    reached = {f"{k.value} {k.piece}" for k, met in covered.met.items() if not met.distance}
    assert reached == {
        "y true", "p above 0", "z in two turns", "z ending early",
        "r of equal numbers", "r of a smaller number",
    }  # fmt: skip

    covered = watched({"c": True, "n": 1, "x": 0.5}, {"c": False, "n": 1, "x": 4.0})
    reached = {f"{k.value} {k.piece}" for k, met in covered.met.items() if not met.distance}
    assert {"y true", "y false", "q below -3", "z in one turn", "z without a turn"} <= reached


def test_what_the_evaluator_cannot_run_is_not_seen() -> None:
    """It is no error."""
    parsed = onnx.parser.parse_model(HEADER + BODIES)
    calls: list[Call] = []
    watch_bodies(parsed, {}, calls.append)
    assert not calls


BOXES = """(float[1, N, 4] b, float[1, 1, N] s) => (float k) {
    one = Constant <value = int64[1] {1}> ()
    half = Constant <value = float[1] {0.5}> ()
    picked = NonMaxSuppression (b, s, one, half, half)
    c = Constant <value = bool {1}> ()
    k = If (c) <then_branch = t () => (float p) {
            f = Cast <to = 1> (picked) p = ReduceMax <keepdims = 0> (f) },
        else_branch = e () => (float q) { q = Constant <value = float {0}> () }> }"""


@pytest.mark.parametrize(("count", "is_seen"), [(8, True), (4_000, False)])
def test_the_evaluator_stops_before_what_takes_it_long(count: int, *, is_seen: bool) -> None:
    """It compares boxes in a loop of Python: the square of their number counts."""
    parsed = onnx.parser.parse_model(HEADER + BOXES)
    feeds = {"b": np.ones((1, count, 4), np.float32), "s": np.ones((1, 1, count), np.float32)}
    calls: list[Call] = []
    watch_bodies(parsed, feeds, calls.append)
    assert ("p" in {name for call in calls for name in call.node.output}) == is_seen


# Rows of tables.

TABLES = {
    "Gather": ("Gather (t0, i)", (5, 2), [1, -1], {1, 4}),
    "Gather along an axis": ("Gather <axis = 1> (t0, i)", (2, 4), [0, -2], {0, 2}),
    "GatherElements": ("GatherElements (t0, j)", (5, 2), [[1, -1]], {1, 4}),
    "GatherND": ("GatherND (t0, j)", (5, 2), [[1, 0], [-1, 1]], {1, 4}),
}


@pytest.mark.parametrize(("node", "shape", "index", "rows"), TABLES.values(), ids=TABLES)
def test_rows_that_are_chosen(
    node: str, shape: tuple[int, int], index: Iterable[object], rows: set[int]
) -> None:
    """Counted from either end, of a table that both models hold alike: none has to be chosen."""
    inputs, table = "(int64[2] i, int64[N, 2] j)", f"float[{shape[0]},{shape[1]}] t0 = {{0}}"
    text = f"{inputs} => (float[a, b] y) <{table}> {{ y = {node} }}"
    ours, theirs = (with_table(text, change) for change in ((), ()))
    feeds = {"i": np.array([0, 0]), "j": np.zeros((1, 2), np.int64)}
    feeds["j" if "j)" in node else "i"] = np.array(index)
    covered = PlaceCoverage()
    note(covered, 0, ours, feeds)
    assert {*np.flatnonzero(covered.tables[0]["y.0"].chosen)} == rows
    assert {*covered.missing_rows()[0, "y.0"]} == {
        *range(max(shape) if "axis" in node else 5)
    } - rows
    note(covered, 1, theirs, feeds)
    fresh = PlaceCoverage(covered.met, covered.tables)
    assert not fresh.missing_rows()


def with_table(text: str, changed: Iterable[tuple[int, ...]]) -> onnx.ModelProto:
    """Return a model whose table counts up, but for some elements."""
    parsed = onnx.parser.parse_model(HEADER + text)
    (tensor,) = parsed.graph.initializer
    values = np.arange(np.prod(tensor.dims), dtype=np.float32).reshape(tensor.dims)
    for place in changed:
        values[place] += 1
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, "t0"))
    return parsed


def note(
    covered: PlaceCoverage, side: int, of: onnx.ModelProto, feeds: Feeds, known: Known | None = None
) -> None:
    """Note what a model does."""
    (given,) = ReferenceEvaluator(of).run(None, dict(feeds))
    for call in calls_of(of, {**feeds, "y": np.asarray(given)}):
        covered.add(side, call, feeds, known or Known(is_main=True))


LOOKUP = "(int64[2] i) => (float[2, 3] y) <float[6, 3] t0 = {0}> { y = Gather (t0, i) }"


@pytest.mark.parametrize(
    ("changed", "index", "left"),
    [
        ([], [0, 1], []),
        ([(4, 2)], [0, 1], [4]),  # both models, the row that differs
        ([(4, 2)], [0, 4], []),
        ([(4, 2)], [0, -2], []),
        ([(1, 0), (5, 1)], [1, 0], [5]),
        ([(n, 0) for n in range(6)], [0, 1], [2, 3, 4, 5]),  # one may be wrong among others
    ],
)
def test_rows_that_differ_have_to_be_chosen(
    changed: list[tuple[int, ...]], index: list[int], left: list[int]
) -> None:
    """Of two tables that are alike otherwise."""
    covered, feeds = PlaceCoverage(), {"i": np.array(index)}
    note(covered, 0, with_table(LOOKUP, ()), feeds)
    note(covered, 1, with_table(LOOKUP, changed), feeds)
    assert covered.missing_rows() == ({(0, "y.0"): left, (1, "y.0"): left} if left else {})


@pytest.mark.parametrize(
    ("known", "left"),
    [
        (Known(within=lambda _: Interval(0, 3)), [2, 3]),
        (Known(within=lambda _: Interval(-1, 1)), [5]),
        (Known(is_size=lambda _: True), []),
    ],
)
def test_rows_beyond_what_an_index_may_be_are_not_asked_for(known: Known, left: list[int]) -> None:
    """Of a table in one model only; none where sizes alone choose."""
    covered = PlaceCoverage()
    note(covered, 0, with_table(LOOKUP, ()), {"i": np.array([0, 1])}, known)
    assert covered.missing_rows() == ({(0, "y.0"): left} if left else {})
    assert covered.count(EVERY) == ((2, 2 + len(left)) if left else (0, 0))


# Sizes.


HALVES = "(float[1] x) => (float[1] y) { y = Relu (x) }"


def test_a_place_of_many_nodes() -> None:
    """Which pieces have to be reached is told of all at once, alike in both models or not."""

    def prepared(count: int) -> Callable[[], object]:
        covered = pair(HALVES, HALVES, {"x": np.array([1], np.float32)})
        for side, nodes in ((0, count), (1, count // 2)):
            one = next(met for key, met in covered.met.items() if key.side == side)
            key = next(key for key in covered.met if key.side == side)
            for number in range(nodes):
                covered.met[key._replace(value=f"v{number}")] = one
        return lambda: covered.missing(({"y"}, {"y"}))

    assert growth(prepared, 1000) < FOUR_TIMES


def test_a_model_of_many_inputs() -> None:
    """What two models are fed is compared by name, also if no name of theirs is the same."""

    def prepared(count: int) -> Callable[[], object]:
        tensor = onnx.helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, [1])
        graphs = []
        for first in "ab":
            graph = onnx.GraphProto(input=[tensor] * count)
            for number, info in enumerate(graph.input):
                info.name = f"{number}{first}"
            graphs.append(graph)
        return lambda: input_differences(*graphs)

    assert growth(prepared, 2000) < FOUR_TIMES
