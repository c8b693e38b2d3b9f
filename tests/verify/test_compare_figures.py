"""Figures of a comparison, the tolerance that it needs, and tolerances of single outputs."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.errors import UsageError
from dplcli.verify import Check, OutputComparison, Override
from dplcli.verify.compare import Depth, Facts, Judge, Limit, derive_tolerance
from dplcli.verify.values import Leaf

JUDGE = Judge(Check(), Facts(), 0)
INF, NAN = float("inf"), float("nan")
FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


def chosen(
    *,
    rtol: float | None = None,
    atol: float | None = None,
    tolerances: Mapping[str, Override] | None = None,
) -> Judge:
    """Return a judge with tolerances that somebody chose."""
    return replace(JUDGE, check=Check(rtol=rtol, atol=atol, tolerances=tolerances or {}))


def compare(
    ours: object, theirs: object, dtype: npt.DTypeLike = np.float32, judge: Judge = JUDGE
) -> OutputComparison:
    """Compare two arrays of one type."""
    left, right = np.asarray(ours, dtype), np.asarray(theirs, dtype)
    return judge.compare(
        "y", [Leaf("", left.dtype.name, left)], [Leaf("", right.dtype.name, right)]
    )


def test_figures_of_known_arrays() -> None:
    """Each figure is what its definition says."""
    figures = compare([3, 4, 0, 0], [3, 5, 0, 1]).figures

    assert figures.mean_abs == 0.5
    assert figures.mean_rel == 0.125
    assert figures.quantile_abs == 1
    assert figures.snr_db == pytest.approx(10 * np.log10(25 / 2))
    assert figures.worst_values == ("0", "1")


def test_quantile_leaves_out_one_in_a_hundred() -> None:
    """One bad element of a thousand moves the largest difference, not the quantile."""
    ours = np.zeros(1000)
    theirs = ours.copy()
    theirs[7] = 5

    found = compare(ours, theirs)

    assert (found.max_abs, found.figures.quantile_abs) == (5, 0)


def test_histogram_counts_representable_numbers_in_powers_of_two() -> None:
    """0, 1, 2 to 3, 4 to 7 steps: each has its own place."""
    ours = np.ones(5, np.float32)
    steps = np.array([0, 1, 2, 3, 4], np.uint32)
    theirs = (ours.view(np.uint32) + steps).view(np.float32)

    assert compare(ours, theirs).figures.ulp_histogram == (1, 1, 2, 1)


def test_infinity_is_counted_apart_from_nan() -> None:
    """An infinity of another sign, a number for an infinity, and a NaN are told apart."""
    found = compare([INF, INF, 1, NAN, 1], [-INF, 5, 1, NAN, NAN])

    assert (found.figures.inf_mismatches, found.nan_mismatches, found.mismatches) == (2, 1, 3)
    assert (found.figures.needed_rtol, found.figures.needed_atol) == (None, None)


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=8), st.sampled_from([0.0, 1e-3]))
def test_needed_tolerance_is_enough_and_not_too_much(
    pairs: list[tuple[float, float]], rtol: float
) -> None:
    """With what is needed an output passes, with a thousandth less it does not."""
    ours, theirs = zip(*pairs, strict=True)
    base = chosen(rtol=rtol, atol=1e-5)
    figures = compare(ours, theirs, judge=base).figures
    assert figures.needed_rtol is not None
    assert figures.needed_atol is not None

    enough = chosen(rtol=figures.needed_rtol, atol=figures.needed_atol)
    assert compare(ours, theirs, judge=enough).ok
    apart = np.asarray(ours, np.float32) != np.asarray(theirs, np.float32)
    if apart.any() and figures.needed_atol > 1e-30:
        short = chosen(rtol=figures.needed_rtol * 0.999, atol=figures.needed_atol * 0.999)
        assert not compare(ours, theirs, judge=short).ok


def test_needed_tolerance_where_none_is_in_force() -> None:
    """Judged exactly, the absolute difference is what is needed."""
    found = compare([1, 2], [1, 2.5], judge=chosen(rtol=0.0, atol=0.0))

    assert (found.ok, found.figures.needed_rtol, found.figures.needed_atol) == (False, 0, 0.5)


def test_override_is_for_its_output_alone_and_wins() -> None:
    """A tolerance of one output replaces the derived and the general one, there only."""
    judge = chosen(rtol=1e-6, atol=0.0, tolerances={"y": Override(rtol=0.5)})
    leaf, other = (Leaf("", "float32", np.array([value], np.float32)) for value in (2, 2.5))

    assert judge.compare("y", [leaf], [other]).ok
    assert not judge.compare("z", [leaf], [other]).ok
    assert not compare([2], [4], judge=judge).ok


def test_integers_are_exact_unless_somebody_loosens_them() -> None:
    """One more is another number, until steps are allowed for this output."""
    loose = chosen(tolerances={"y": Override(atol=1)})

    assert not compare([7], [8], np.int64).ok
    assert compare([7], [8], np.int64, loose).ok
    assert not compare([7], [9], np.int64, loose).ok
    assert not compare([2**60], [2**60 + 1], np.int64).ok


@pytest.mark.parametrize(
    ("flipped", "by", "ok"),
    [
        pytest.param(0, 0, True, id="none"),
        pytest.param(2, 1, True, id="two in a hundred"),
        pytest.param(3, 1, False, id="three in a hundred"),
        pytest.param(1, 2, False, id="two steps"),
        pytest.param(100, 1, False, id="a wrong zero point"),
    ],
)
def test_quantised_output_may_flip_a_few_roundings(flipped: int, by: int, *, ok: bool) -> None:
    """A step here and there is a rounding; a step everywhere, or two, is another model."""
    ours = np.zeros(100, np.uint8)
    theirs = ours.copy()
    theirs[:flipped] = by

    found = compare(ours, theirs, np.uint8, replace(JUDGE, facts=Facts(stepped={"y"})))

    assert (found.ok, found.figures.steps) == (ok, flipped)
    assert compare(ours, theirs, np.uint8).ok == (flipped == 0)
    assert ok or found.reason


def test_measured_movement_covers_flips_but_no_systematic_error() -> None:
    """One large flip passes; the same largest difference everywhere does not; twice it neither."""
    limit = Limit(max_abs=0.5, rmse=0.06)
    judge = replace(JUDGE, limits={"y": limit})
    ours = np.ones(100)
    flip, drift, jump = ours.copy(), ours + 0.5, ours.copy()
    flip[3] += 0.5
    jump[3] += 1.5

    assert compare(ours, flip, judge=judge).ok
    assert compare(ours, flip, judge=judge).figures.sensitivity == 0.5
    assert not compare(ours, flip).ok
    assert "root mean square" in (compare(ours, drift, judge=judge).reason or "")
    assert not compare(ours, jump, judge=judge).ok


def test_measured_movement_excuses_no_nan_and_no_chosen_tolerance() -> None:
    """NaN is judged by place, and who chooses a tolerance gets that one."""
    judge = replace(JUDGE, limits={"y": Limit(9, 9)})

    assert not compare([1, 1], [1, NAN], judge=judge).ok
    assert not compare([1], [2], judge=replace(judge, check=Check(rtol=0.1))).ok
    single = Check(tolerances={"y": Override(atol=0.1)})
    assert not compare([1], [2], judge=replace(judge, check=single)).ok


def test_tolerance_grows_with_the_root_of_the_depth_within_bounds() -> None:
    """Four times as many roundings allow twice as much, between 1,024 and 65,536."""

    def rtol(roundings: int, dtype: str = "float32", operators: int = 1) -> float:
        depth = Depth(roundings, operators)
        values = np.ones(3)
        return derive_tolerance(dtype, values, coarsest="", rtol=None, atol=None, depth=depth).rtol

    assert rtol(16384) == 2 * rtol(4096)
    assert rtol(1) == rtol(1024) < rtol(1025)
    assert rtol(10**9) == rtol(65536)
    assert rtol(10**9, "float16", 4) == rtol(1, "float16", 2) < rtol(1, "float16", 9)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"mutants": -1}, id="mutants"),
        pytest.param({"min_power": 1.5}, id="power"),
        pytest.param({"min_power": NAN}, id="nan"),
    ],
)
def test_settings_that_cannot_be_meant(chosen: dict[str, float]) -> None:
    """A negative number of mutants, or a share beyond all, is refused at once."""
    with pytest.raises(UsageError):
        Check(**chosen)  # type: ignore[arg-type]


def test_override_that_cannot_be_meant() -> None:
    """A negative tolerance is refused."""
    with pytest.raises(UsageError):
        Override(rtol=-1)
