"""Draws that go after what is missing: what they reach, what they keep to, and other sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from dplcli.shapes import Knowledge
from dplcli.verify.coverage import Known, PlaceCoverage, calls_of, show_inner
from dplcli.verify.draw_specs import DrawSpec
from dplcli.verify.ranges import Grid
from dplcli.verify.search import (
    GENERAL,
    LONG,
    Search,
    Sizes,
    Wanted,
    climbed,
    drawn_for,
    general_draws,
    sizes_of,
)
from tests.support.helpers import model_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.verify.values import Array

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
ROUNDS, FIRST = 6, 24


class Place:
    """Two models that are searched for what they may do.

    Attributes:
        specs: What may be drawn.
        covered: What runs showed.
    """

    def __init__(
        self, ours: str, theirs: str, seen: Mapping[str, Array], **specs: DrawSpec
    ) -> None:
        self.models = [onnx.parser.parse_model(HEADER + text) for text in (ours, theirs)]
        for model in self.models:
            show_inner(model)
        self.seen = seen
        self.specs = {name: specs.get(name, DrawSpec()) for name in seen}
        self.covered = PlaceCoverage()
        self.made = [{name for n in m.graph.node for name in n.output} for m in self.models]
        self.run(seen)

    def run(self, fed: Mapping[str, Any]) -> None:
        """Run both models."""
        for side, model in enumerate(self.models):
            names = [info.name for info in model.graph.output]
            with np.errstate(all="ignore"):
                found: Any = ReferenceEvaluator(model).run(None, dict(fed))
            for call in calls_of(model, {**fed, **dict(zip(names, found, strict=True))}):
                self.covered.add(side, call, fed, Known(is_main=True))

    def search(self, **more: Any) -> Search:  # noqa: ANN401  # as Search takes them
        """Return the search of the place."""
        usual = {"replays": [], "beside": [], "first": FIRST}
        return Search(self.covered, self.made, self.seen, self.specs, **{**usual, **more})

    def left(self) -> set[str]:
        """Return what is missing still."""
        pieces = {f"{k.side} {k.value} {k.piece}" for k in self.covered.missing(self.made)}
        rows = self.covered.missing_rows().items()
        return pieces | {f"{side} {name} row {row}" for (side, name), own in rows for row in own}

    def searched(self) -> set[str]:
        """Return what is missing after the search."""
        search = self.search()
        for _ in range(ROUNDS):
            for fed in search.draws(1000):
                self.run(fed)
        return self.left()


def f32(*shape: int) -> Array:
    """Return ordinary numbers."""
    return np.asarray(np.random.default_rng(1).normal(size=shape or (6,)), np.float32)


def i64(*numbers: int) -> Array:
    """Return whole numbers."""
    return np.array(numbers or range(6))


XW = "(float[6] x, float[6] w) => (float[6] y)"
TABLE = "(int64[2] i) => (float[2] y) <float[8] t ="
PRODUCT = """(float[2, 3] x) => (float[2, 3] y)
<float[3, 3] W = {0.3, 0.1, 0.7, 0.2, 0.5, -0.4, 1, 2, -3}"""
REACHED = {
    "limits of a cast": (
        "(int64[6] i) => (float[6] y) { y = Cast <to = 1> (i) }",
        "(int64[6] i) => (float[6] y) { t = Cast <to = 6> (i) y = Cast <to = 1> (t) }",
        {"i": i64()},
    ),
    "a cast of floats": (
        "(float[6] x) => (uint8[6] y) { y = Cast <to = 2> (x) }",
        "(float[6] x) => (uint8[6] y) { t = Cast <to = 6> (x) y = Cast <to = 2> (t) }",
        {"x": f32()},
    ),
    "equal operands": (
        f"{XW} {{ d = Sub (x, w) y = Sign (d) }}",
        f"{XW} {{ g = Greater (x, w) l = Less (x, w) e = Equal (x, w) y = Where (g, x, w) }}",
        {"x": f32(), "w": f32()[::-1]},
    ),
    "equal whole numbers": (
        "(int64[6] i, int64[6] j) => (bool[6] y) { y = Less (i, j) }",
        "(int64[6] i, int64[6] j) => (bool[6] y) { t = Less (j, i) y = Not (t) }",
        {"i": i64(), "j": i64(9, 9, 9, 9, 9, 9)},
    ),
    "rows of a table": (
        f"{TABLE} {{0, 1, 2, 3, 4, 5, 6, 7}}> {{ y = Gather (t, i) }}",
        f"{TABLE} {{0, 1, 2, 3, 9, 5, 6, 8}}> {{ y = Gather (t, i) }}",
        {"i": i64(0, 1)},
    ),
    "all true": (
        "(bool[6] c) => (int64[1, n] y) { y = NonZero (c) }",
        "(bool[6] c) => (int64[1, n] y) { t = Not (c) s = Not (t) y = NonZero (s) }",
        {"c": i64(0, 1, 0, 1, 0, 1).astype(bool)},
    ),
    "behind a product": (
        f"{PRODUCT}, float k = {{35}}> {{ h = MatMul (x, W) y = Min (h, k) }}",
        f"{PRODUCT}, float k = {{-70}}> {{ h = MatMul (x, W) y = Max (h, k) }}",
        {"x": f32(2, 3)},
    ),
    "ties of a rounding": (
        "(float[6] x) => (float[6] y) { y = Round (x) }",
        "(float[6] x) => (float[6] y) <float h = {0.5}> { t = Add (x, h) y = Floor (t) }",
        {"x": f32()},
    ),
    "a guard against 0": (
        f"{XW} <float e = {{1e-12}}> {{ a = Abs (w) m = Max (a, e) y = Div (x, m) }}",
        f"{XW} {{ a = Abs (w) y = Div (x, a) }}",
        {"x": f32(), "w": f32()},
    ),
    "NaN and infinity": (
        "(float[6] x) => (bool[6] y) { n = IsNaN (x) f = IsInf (x) y = Or (n, f) }",
        "(float[6] x) => (bool[6] y) { y = IsNaN (x) }",
        {"x": f32()},
    ),
    "a word": (
        '(string[6] s) => (bool[6] y) <string k = {"fast"}> { y = Equal (s, k) }',
        '(string[6] s) => (bool[6] y) <string k = {"slow"}> { y = Equal (s, k) }',
        {"s": np.array(["a"] * 6, object)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "seen"), REACHED.values(), ids=REACHED)
def test_what_plain_draws_miss_is_reached(
    ours: str, theirs: str, seen: Mapping[str, Array]
) -> None:
    """The search ends with nothing left; what the original computes does not show it."""
    place = Place(ours, theirs, seen)
    assert place.left()
    assert not place.searched()


@pytest.mark.parametrize(
    "case", ["equal operands", "rows of a table", "a word", "behind a product"]
)
def test_each_run_draws_the_same(case: str) -> None:
    """Names and numbers of draws are all that chance comes from."""
    first, second = (Place(*REACHED[case]) for _ in range(2))
    one, other = first.search(), second.search()
    for _ in range(3):
        drawn = one.draws(9), other.draws(9)
        first_ones, others = (
            [{name: np.asarray(v).tolist() for name, v in fed.items()} for fed in each]
            for each in drawn
        )
        assert first_ones == others
        for fed in drawn[0]:
            first.run(fed)
            second.run(fed)


def test_nothing_more_is_drawn_when_all_is_seen() -> None:
    """But for the first draws, which a place always gets, as far as may be afforded."""
    text = "(float[6] x) => (float[6] y) { y = Relu (x) }"
    place = Place(text, text, {"x": f32()})
    search = place.search()
    assert len(search.draws(1000)) == FIRST
    assert not search.draws(1000)
    assert len(place.search().draws(5)) == 5
    assert not place.search().draws(0)


def test_what_showed_a_difference_elsewhere_comes_first() -> None:
    """Where it has the shape of what the place reads."""
    text = "(float[6] x) => (float[6] y) { y = Relu (x) }"
    place, known = Place(text, text, {"x": f32()}), f32(6) + 7
    first, *_ = place.search(replays=[{"x": f32(3)}, {"q": known}, {"x": known}]).draws(9)
    assert first["x"] is known


def test_numbers_and_words_beside_what_differs_are_drawn() -> None:
    """A label of which the word changed."""
    text = "(string[6] s) => (string[6] y) { y = Identity (s) }"
    place = Place(text, text, {"s": np.array(["a"] * 6, object)})
    drawn = place.search(beside=["kiwi", 3]).draws(4)
    assert {"kiwi", "KIWI", "Kiwi"} <= {
        word for fed in drawn for word in np.asarray(fed["s"]).tolist()
    }


# What draws keep to.

GROUPS = [(1e9, -1e9), (3.0, 4.0, 5.0), (0.3,), (np.inf, -np.inf)]
BOUNDS = st.tuples(st.integers(-50, 50), st.integers(0, 50)).map(lambda n: (n[0], n[0] + n[1]))
TYPES = ("float32", "float16", "float64", "int64", "int32", "int8", "uint8")


@given(dtype=st.sampled_from(TYPES), bounds=BOUNDS, number=st.integers(0, 60))
def test_nothing_leaves_what_can_be_there(dtype: str, bounds: tuple[int, int], number: int) -> None:
    """Whatever is wanted; a second value is drawn near the first."""
    low, high = (abs(bounds[0]), abs(bounds[0]) + 9) if dtype == "uint8" else bounds
    spec = DrawSpec(low=low, high=high)
    likes = {name: np.ones((3, 4), dtype) for name in "ab"}
    drawn = drawn_for(
        Wanted(GROUPS, rows=[7, 99], most=1e12), likes, dict.fromkeys("ab", spec), number
    )
    for value in drawn.values():
        assert (value.dtype, value.shape) == (np.dtype(dtype), (3, 4))
        assert low <= value.min() <= value.max() <= high


@given(
    axis=st.integers(1, 90),
    number=st.integers(0, 60),
    rows=st.lists(st.integers(0, 99)).map(sorted),
)
def test_an_index_stays_in_its_table(axis: int, number: int, rows: list[int]) -> None:
    """Counted from either end; a row that is wanted and there is chosen."""
    likes, specs = {"i": np.zeros(5, np.int64)}, {"i": DrawSpec(axis=axis)}
    value = drawn_for(Wanted(GROUPS, rows=rows), likes, specs, number)["i"]
    assert -axis <= value.min() <= value.max() < axis
    there = {row for row in rows if row < axis}
    assert not there or {*value.tolist()} <= there


@given(number=st.integers(0, 60), distance=st.floats(0, 100))
def test_steps_stay(number: int, distance: float) -> None:
    """A quantised number stays on its steps, in a climb, too."""
    spec = DrawSpec(grid=Grid(*(np.array(number) for number in (0.5, -4.0, 3.5))))
    likes = {"x": np.zeros((4, 4), np.float32)}
    fed = drawn_for(Wanted(GROUPS), likes, {"x": spec}, number)
    for value in map(np.asarray, (fed["x"], climbed(fed, {"x": spec}, distance, number)["x"])):
        assert np.array_equal(value * 2, np.round(value * 2))
        assert -4 <= value.min() <= value.max() <= 3.5


@given(number=st.integers(0, 60), distance=st.floats(0, 1e9))
def test_a_climb_stays_within_bounds(number: int, distance: float) -> None:
    """And leaves whole numbers as they are."""
    fed = {"x": np.linspace(-1, 1, 7, dtype=np.float32), "i": i64()}
    moved = climbed(fed, {"x": DrawSpec(low=-2, high=3), "i": DrawSpec()}, distance, number)
    value = np.asarray(moved["x"], np.float64)
    assert -2 <= value.min() <= value.max() <= 3
    assert moved["i"] is fed["i"]


@pytest.mark.parametrize(
    ("spec", "inside"),
    [(DrawSpec(is_turns=True), lambda n: n >= 0), (DrawSpec(never_zero=True), lambda n: n != 0)],
)
def test_whole_numbers_mean_something(spec: DrawSpec, inside: Any) -> None:  # noqa: ANN401
    """A number of turns is not negative, and nothing is divided by 0."""
    for number in range(60):
        value = drawn_for(Wanted([*GROUPS, (0.0,)]), {"i": i64()}, {"i": spec}, number)["i"]
        assert inside(value).all()


def test_values_of_one_type_are_often_equal() -> None:
    """But not all of them, and not in every draw."""
    likes = {"a": np.zeros(400, np.float32), "b": np.zeros(400, np.float32)}
    specs = dict.fromkeys(likes, DrawSpec())
    shares = []
    for number in range(8):
        drawn = drawn_for(Wanted([tuple(range(50))]), likes, specs, number)
        shares.append(float((drawn["a"] == drawn["b"]).mean()))
    assert max(shares) > 0.5
    assert min(shares) < 0.1


# Other sizes.


def sizes(text: str, arrays: Mapping[str, Array]) -> Sizes | None:
    """Return what a place reads, as sizes."""
    graph = model_from_text(HEADER + text).graph
    return sizes_of(arrays, graph, Knowledge())


SEQUENCE = "(float[N, 8] x, int64[N] i, float[8] w) => (float[M, 8] y) { y = Add (x, w) }"
LENGTH = """(float[N, T] x) => (float[N, T] y, int64[1] n)
<int64[1] k = {24}> { s = Shape <start = 1> (x) n = Add (s, k) y = Relu (x) }"""


def tried(found: Sizes, bounds: set[int]) -> set[tuple[int, int]]:
    """Return each size, and what is tried instead."""
    return {(before, size) for before, size, _ in found.tried(bounds)}


def test_sizes_that_callers_choose() -> None:
    """0 to 3, beside and beyond each bound, and many; 2 for all at once; none that is fixed."""
    found = sizes(SEQUENCE, {"x": f32(2, 8), "i": i64(0, 1), "w": f32(8)})
    assert found is not None
    assert tried(found, set()) == {(2, size) for size in (0, 1, 2, 3, 61, *LONG)}
    beyond = tried(found, {10, 10**6}) - tried(found, set())
    assert beyond == {(2, size) for size in (9, 10, 11, 21, 22)}
    assert sizes(SEQUENCE, {"w": f32(8)}) is None
    assert sizes(SEQUENCE, {"nothing": f32(8)}) is None


def test_each_size_is_tried_of_what_stays_small() -> None:
    """A size of long rows is not: all draws are held at once."""
    text = "(float[N, 2] x, float[M, 99] z, int64[N] i) => (float[N, 2] y) { y = Relu (x) }"
    found = sizes(text, {"x": f32(7, 2), "z": f32(6, 99), "i": i64(*range(7))})
    assert found is not None
    each = [(before, size) for before, size, _ in found.tried(set(), each=True)][1:]
    assert {size for before, size in each if before == 7} == {*range(1024), *LONG} - {7}
    assert {size for before, size in each if before == 6} == {0, 1, 2, 3, *LONG}
    assert [size for _, size in each] == sorted(size for _, size in each)
    (rows,), (others,) = ([s for s, b in found.chosen.items() if b == size] for size in (7, 6))
    assert (found.indices_for_one_more(rows), found.indices_for_one_more(others)) == (1, 0)


def test_all_that_depends_on_a_size_follows() -> None:
    """What may not be drawn stays, unless its size is another one."""
    found = sizes(SEQUENCE, {"x": f32(2, 8), "i": i64(0, 1), "w": f32(8)})
    assert found is not None
    specs = {"x": DrawSpec(low=0), "i": DrawSpec(axis=5)}
    for _, size, chosen in found.tried({10}):
        fed = found.fed(chosen, 2, specs)
        assert fed is not None
        assert (fed["x"].shape, fed["i"].shape) == ((size, 8), (size,))
        assert fed["w"] is found.arrays["w"]
        assert fed["x"].min(initial=0) >= 0
        assert fed["i"].max(initial=0) < 5
        assert found.fed(chosen, 2, {"i": specs["i"]}) is None or size in {0, 2}


def test_numbers_that_follow_from_sizes() -> None:
    """They are computed, not drawn; what stands beside a size is a bound."""
    found = sizes(LENGTH, {"x": f32(2, 5), "n": i64(29)})
    assert found is not None
    assert found.bounds() == {24}
    lengths = {}
    for before, size, chosen in found.tried(found.bounds()):
        fed = found.fed(chosen, before, {"x": DrawSpec(), "n": DrawSpec()})
        if fed is not None and before == 5:
            assert fed["x"].shape == (2, size)
            lengths[size] = fed["n"].tolist()
    assert lengths == {
        size: [size + 24] for size in (0, 1, 2, 3, 12, 23, 24, 25, 49, 50, 61, *LONG)
    }


def test_an_index_into_what_has_the_size() -> None:
    """It stays within the shorter one."""
    found = sizes(SEQUENCE, {"x": f32(6, 8), "i": i64(), "w": f32(8)})
    assert found is not None
    for _, size, chosen in found.tried(set()):
        fed = found.fed(chosen, 6, {"x": DrawSpec(), "i": DrawSpec(axis=6)})
        assert fed is not None
        assert not size or fed["i"].max() < size


def test_sizes_are_drawn_as_other_values_are() -> None:
    """Once more the same."""
    found = sizes(SEQUENCE, {"x": f32(2, 8), "i": i64(0, 1), "w": f32(8)})
    assert found is not None
    (*_, chosen) = next(found.tried(set()))
    one, other = (found.fed(chosen, 2, {"x": DrawSpec(), "i": DrawSpec()}) for _ in range(2))
    assert one is not None
    assert other is not None
    assert all(np.array_equal(one[name], other[name]) for name in one)


# Scalars.


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "O"])
def test_a_scalar_stays_an_array(dtype: str) -> None:
    """As what a place is fed is told from sequences."""
    like = np.array("a" if dtype == "O" else 1, np.dtype(dtype))
    for number in range(12):
        value = drawn_for(Wanted(GROUPS), {"x": like}, {"x": DrawSpec()}, number)["x"]
        assert isinstance(value, np.ndarray)


def test_a_scalar_stays_an_array_in_a_climb() -> None:
    """Else it counts as what is left out, and no run shows anything."""
    moved = climbed({"x": np.array(1, np.float32)}, {"x": DrawSpec()}, 1.0, 0)
    assert isinstance(moved["x"], np.ndarray)


# Draws for many places at once.


def general(like: Array, **known: Any) -> list[Array]:  # noqa: ANN401  # as DrawSpec takes them
    """Return what is drawn for one value."""
    drawn = general_draws({"x": like}, {"x": DrawSpec(**known)}, GENERAL)
    return [np.asarray(fed["x"]) for fed in drawn]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_first_as_large_as_what_was_seen(scale: float) -> None:
    """Then rows of one number each, then few numbers, then from tiny to large."""
    plain, rows, few, spread = general(f32(40, 50), scale=scale)
    assert 0.4 * scale < plain.std() < 0.6 * scale
    close = np.isclose(rows, np.sort(rows, axis=1)[:, 25:26], rtol=0.3)
    assert close.mean() > 0.9
    assert max(np.unique(few, return_counts=True)[1]) > 50
    assert np.abs(spread[spread != 0]).min() < 1e-6
    assert np.abs(spread).max() > 500


def test_all_codes_of_a_small_type() -> None:
    """Each is as likely as another."""
    assert {*general(np.zeros((200, 50), np.uint8))[0].reshape(-1).tolist()} == {*range(256)}


@pytest.mark.parametrize("axis", [1, 2, 7, 70_000])
def test_all_indices_of_an_axis(axis: int) -> None:
    """None lies beyond."""
    found = general(np.zeros((40, 50), np.int64), axis=axis)
    assert found[0].min() >= 0
    assert all(-axis <= one.min() <= one.max() < axis for one in found)
    assert axis > 7 or {*found[0].reshape(-1).tolist()} == {*range(axis)}


def test_half_precision_is_drawn_small() -> None:
    """Its products overflow soon."""
    assert np.abs(general(np.zeros((40, 50), np.float16), scale=2.0)[0]).max() < 8


def test_words_of_a_place_and_others() -> None:
    """In several spellings; one of them is empty."""
    found = {word for one in general(np.full(200, "a", object), words=("fast",)) for word in one}
    assert {"fast", "FAST", "", "onefasttwofastfastthree"} <= found


def test_turns_of_a_loop_are_few() -> None:
    """Each takes time."""
    found = [int(one) for one in general(np.array(3), is_turns=True)]
    assert min(found) >= 0
    assert max(found) <= 2_048


def test_each_of_two_values_is_another() -> None:
    """The same in each run of dpl."""
    fed = {"x": f32(4, 5), "w": f32(4, 5)}
    specs = {name: DrawSpec() for name in fed}
    one, other = (general_draws(fed, specs, 1)[0] for _ in range(2))
    assert not np.array_equal(np.asarray(one["x"]), np.asarray(one["w"]))
    assert all(np.array_equal(np.asarray(one[n]), np.asarray(other[n])) for n in fed)
