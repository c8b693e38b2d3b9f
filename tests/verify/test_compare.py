"""Distances and tolerances, element by element."""

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx.parser
import pytest

from dplcli.verify.check import Check
from dplcli.verify.compare import Facts, Judge, derive_tolerance, measure_limits
from dplcli.verify.run import Runner
from dplcli.verify.values import Leaf, ModelSource
from dplcli.verify.verdict import OutputComparison

JUDGE = Judge(Check(), Facts(), 0)
INF, NAN = float("inf"), float("nan")


def compare(
    ours: object, theirs: object, dtype: npt.DTypeLike = np.float32, judge: Judge = JUDGE
) -> OutputComparison:
    """Compare two arrays of one type."""
    left, right = np.asarray(ours, dtype), np.asarray(theirs, dtype)
    return judge.compare(
        "y", [Leaf("", left.dtype.name, left)], [Leaf("", right.dtype.name, right)]
    )


def test_distances_of_known_arrays() -> None:
    """Each figure is what its definition says."""
    found = compare([3, 4, 0, 0], [3, 5, 0, 1])

    assert found.max_abs == 1
    assert found.max_rel == 0.25
    assert found.rmse == pytest.approx(0.5**0.5)
    assert found.cosine == pytest.approx(29 / (5 * 35**0.5))
    assert (found.mismatches, found.worst_index, found.ok) == (2, (3,), False)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_step_is_one_ulp(dtype: npt.DTypeLike) -> None:
    """Neighbours are one unit apart, across zero too, and zero is zero with either sign."""
    one = np.asarray(1, dtype)
    tiny = np.nextafter(np.asarray(0, dtype), one)

    assert compare(one, np.nextafter(one, np.asarray(2, dtype)), dtype).max_ulp == 1
    assert compare(-tiny, tiny, dtype).max_ulp == 2
    assert compare(-0.0, 0.0, dtype).max_ulp == 0


@pytest.mark.parametrize("size", [1, 1 << 14, (1 << 14) + 1])
@pytest.mark.parametrize("step", [0.0, 1e-6, 1e-2, 1e9, NAN, INF])
def test_one_element_decides(size: int, step: float) -> None:
    """It is the only one that is off, in the first or the last place."""
    ours = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    for place in (0, -1):
        theirs = ours.copy()
        theirs[place] += np.float32(step)
        sides = [Leaf("", "float32", ours)], [Leaf("", "float32", theirs)]
        assert JUDGE.compare("y", *sides).ok == (step < 1e-4)


def test_ulp_of_bfloat16_counts_its_own_steps() -> None:
    """bfloat16 travels as float32, but its distance is in bfloat16 numbers."""
    ours, theirs = (np.array([value], np.float32) for value in (1.0, 1.0078125))

    found = JUDGE.compare("y", [Leaf("", "bfloat16", ours)], [Leaf("", "bfloat16", theirs)])

    assert found.max_ulp == 1


@pytest.mark.parametrize(
    ("ours", "theirs", "ok", "nans"),
    [
        pytest.param([NAN, 1], [NAN, 1], True, 0, id="nan-in-place"),
        pytest.param([NAN, 1], [0, 1], False, 1, id="nan-vanished"),
        pytest.param([0, 1], [NAN, 1], False, 1, id="nan-appeared"),
        pytest.param([INF, 1], [INF, 1], True, 0, id="infinity-in-place"),
        pytest.param([INF, 1], [-INF, 1], False, 0, id="infinity-changed-sign"),
        pytest.param([INF, 1], [3e38, 1], False, 0, id="infinity-became-finite"),
        pytest.param([1, 1], [INF, 1], False, 0, id="infinity-appeared"),
        pytest.param([INF, 1], [NAN, 1], False, 1, id="infinity-became-nan"),
    ],
)
def test_nan_and_infinity_agree_in_place(
    ours: list[float], theirs: list[float], *, ok: bool, nans: int
) -> None:
    """What is not finite has to be the same at the same place, whatever the tolerance."""
    found = compare(ours, theirs, judge=Judge(Check(rtol=1.0, atol=1e9), Facts(), 0))

    assert (found.ok, found.nan_mismatches) == (ok, nans)
    if not ok:
        assert (found.mismatches, found.worst_index) == (1, (0,))


def test_figures_are_finite_or_none() -> None:
    """Overflow, emptiness and all-NaN give None, never a number that JSON cannot hold."""
    for ours, theirs in [([NAN], [NAN]), ([1e308], [-1e308]), ([], []), ([0.0], [1.0])]:
        found = compare(ours, theirs, np.float64)
        for value in (found.max_abs, found.max_rel, found.rmse, found.cosine):
            assert value is None or np.isfinite(value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.bool_])
def test_whole_numbers_are_exact(dtype: npt.DTypeLike) -> None:
    """Integers and booleans have no tolerance, not even one that the user gives for floats."""
    loose = Judge(Check(rtol=1.0, atol=1e9), Facts(), 0)

    assert compare([1, 0], [1, 0], dtype, loose).ok
    assert not compare([1, 0], [1, 1], dtype, loose).ok


def test_large_integers_differ_by_one() -> None:
    """Two integers beyond float64's precision are told apart."""
    assert not compare([2**62], [2**62 + 1], np.int64).ok


def test_strings_are_exact() -> None:
    """Text is equal or not."""
    ours, theirs = (np.array(words, object) for words in (["a", "b"], ["a", "B"]))

    found = JUDGE.compare("y", [Leaf("", "string", ours)], [Leaf("", "string", theirs)])

    assert (found.ok, found.mismatches, found.worst_index) == (False, 1, (1,))


def test_small_outputs_are_judged_by_their_own_magnitude() -> None:
    """A softmax over a thousand classes lives near 1e-3: an error of 1e-5 is seen there."""
    ours = np.full(1000, 1e-3)
    theirs = ours.copy()
    theirs[17] += 1e-5

    assert not compare(ours, theirs).ok


@pytest.mark.parametrize(
    ("fills", "ok"),
    [
        pytest.param([-3.4028235e38], False, id="one-lowest-number"),
        pytest.param([-65504.0, -65504.0], False, id="lowest-of-half-precision"),
        pytest.param([-1e9, -1e9, -3.4028235e38, -3.4028235e38], False, id="two-kinds"),
        pytest.param([-1e9], True, id="one-large-number-may-be-computed"),
        pytest.param([-1e4, 9e3, 5e2], True, id="large-numbers-near-each-other"),
    ],
)
def test_what_fills_masked_places_excuses_nobody(fills: list[float], ok: bool) -> None:  # noqa: FBT001
    """Logits beside -3.4e38 are judged by the logits; beside a computed number, by that."""
    logits = np.array([1.5, -2.0, 0.25])

    found = compare([*logits, *fills], [*(logits * 1.004), *fills])

    assert found.ok is ok


def test_rounding_of_a_long_sum_is_tolerated() -> None:
    """Sums of 4,096 terms in another order agree."""
    terms = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    forwards = terms.cumsum(axis=1, dtype=np.float32)[:, -1]
    backwards = terms[:, ::-1].cumsum(axis=1, dtype=np.float32)[:, -1]

    found = compare(forwards, backwards)

    assert found.max_abs
    assert found.ok


@pytest.mark.parametrize("index", range(8))
def test_one_percent_fails_wherever_it_is(index: int) -> None:
    """1 % off in any element that is not negligible beside the largest one is not tolerated."""
    ours = np.array([1, -2, 0.5, 8, -4, 0.1, 3, 7], np.float32)
    theirs = ours.copy()
    theirs[index] *= np.float32(1.01)

    found = compare(ours, theirs)

    assert not found.ok
    assert found.worst_index == (index,)


def test_float32_output_of_half_precision_layers_gets_their_tolerance() -> None:
    """The coarsest type that a model computes with decides, not only the output's own."""
    values = np.ones(1, np.float32)

    plain = derive_tolerance("float32", values, coarsest="float32", rtol=None, atol=None)
    halved = derive_tolerance("float32", values, coarsest="float16", rtol=None, atol=None)
    exact = derive_tolerance("float16", values, coarsest="float32", rtol=None, atol=None)

    assert plain.rtol == pytest.approx(1.2e-4, rel=0.05)
    assert halved == exact
    assert halved.rtol == pytest.approx(1.6e-2, rel=0.05)


def test_given_tolerance_replaces_the_derived_one_alone() -> None:
    """Rtol and atol are replaced one by one."""
    values = np.full(1, 10, np.float32)

    given = derive_tolerance("float32", values, coarsest="", rtol=None, atol=0.5)

    assert given.atol == 0.5
    assert given.rtol == pytest.approx(1.2e-4, rel=0.05)


def test_a_square_moves_by_its_rounding_alone() -> None:
    """The exponent is meant as it stands: a negative number has no power of 2.0000001."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[4] x) => (float[4] y) <float two = {2.0}> { y = Pow (x, two) }""")
    source = ModelSource(Path("m.onnx"), content=model.SerializeToString())
    create = partial(Runner, level="disable")
    feeds = {0: {"x": np.array([-3, -2, -1, -0.5], np.float32)}}

    limits = measure_limits(source, feeds, {0: create(source).run(feeds[0])}, create)

    assert 1e-7 < limits["y"].max_abs < 1e-3
