"""Inputs that grow until the outputs hold many different numbers, and what does not grow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from dplcli.verify import Settings, VerificationResult, inputs
from dplcli.verify.compare import Facts, Judge
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.inputs import (
    FEW_NUMBERS,
    Reference,
    distinct_numbers,
    find_stimulus,
    stretched,
)
from dplcli.verify.model import Dataflow, Port, input_ports, read_model
from dplcli.verify.settings import Feed, InputRequest, Leaf, Outputs, StoppedError
from tests.verify.conftest import TOKENS, Save, reference

FLOAT, INT64 = 1, 7

SCORES = """g (float[N, 4] x) => (float[N, 2] y)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul (x, w) }"""

FIXED = """g (float[1, 4] x) => (float[1, 2] y)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul (x, w) }"""


def shapes(found: Reference) -> dict[str, tuple[int, ...]]:
    """Return the shape of every input."""
    return {choice.name: choice.shape for choice in found.stimulus.choices}


def check(path: Path, **settings: object) -> VerificationResult:
    """Compare a model with itself."""
    return verify_equivalence(path, path, Settings(levels=("disable",), **settings))  # type: ignore[arg-type]


# -- what grows -----------------------------------------------------------------------------------


def test_batch_grows_until_there_are_many_numbers(save: Save) -> None:
    """Two numbers a row, two seeds: 64 times three rows, the most there may be, give 768."""
    found = reference(save(SCORES))

    assert shapes(found) == {"x": (192, 4)}
    assert found.distinct == 768
    assert (found.stimulus.limit, found.stimulus.is_refused) == ("", False)


def test_batch_grows_no_further_than_is_worth_it(save: Save) -> None:
    """Thirty-two numbers a row and seed: 16 rows give a thousand."""
    found = reference(save("g (float[N, 32] x) => (float[N, 32] y) { y = Tanh (x) }"))

    assert shapes(found) == {"x": (16, 32)}


def test_lengths_grow_before_the_batch(save: Save) -> None:
    """Twice the tokens, and then as many rows as may be; all inputs that share a size follow."""
    found = reference(save(TOKENS))

    assert shapes(found) == {"ids": (192, 14)}
    assert found.distinct > FEW_NUMBERS


def test_enough_numbers_leave_the_sizes_alone(save: Save) -> None:
    """Nothing is run once more."""
    found = reference(save("g (float[N, 600] x) => (float[N, 600] y) { y = Neg (x) }"))

    assert shapes(found) == {"x": (2, 600)}
    assert found.distinct == 2_400


def test_seeds_are_added_where_no_size_is_open(save: Save) -> None:
    """Two numbers each: fifty seeds, which the result names and the report counts."""
    result = check(save(FIXED))

    assert result.seeds == tuple(range(50))
    assert list(result.cases.values()) == [f"seed {seed}" for seed in range(50)]
    assert result.fed == "seeds 0 to 49"
    assert result.to_json()["seeds"] == list(range(50))


def test_growth_is_the_same_each_time(save: Save) -> None:
    """Counts decide, not clocks: the same model is fed the same."""
    for text in (SCORES, TOKENS, FIXED):
        first, again = reference(save(text)), reference(save(text))
        assert first.feeds.keys() == again.feeds.keys()
        for case, feeds in first.feeds.items():
            for name, feed in feeds.items():
                assert np.array_equal(np.asarray(feed), np.asarray(again.feeds[case][name]))


def test_difference_of_one_row_in_a_hundred_is_found(save: Save) -> None:
    """What shows in a large batch only is what this is for."""
    text = """g (float[N, 4] x) => (float[N, 4] y)
    <int64 zero = {0}, int64 first = {40}, float w = {2}>
    { s = Shape (x) n = Gather (s, zero) b = Less (n, first) z = Mul (x, w)
      y = Where (b, x, SIDE) }"""
    ours, theirs = save(text.replace("SIDE", "x")), save(text.replace("SIDE", "z"), "theirs")

    assert not verify_equivalence(ours, theirs).equivalent
    assert verify_equivalence(ours, theirs, Settings(sizes={"N": 2})).equivalent


def test_total_of_past_and_present_is_kept() -> None:
    """A mask over both is as long as both together, whatever grows."""
    ports = [
        Port("ids", "tensor", INT64, ("batch", "seq")),
        Port("mask", "tensor", INT64, ("batch", "total")),
        Port("past_key", "tensor", FLOAT, ("batch", 4, "past", 8)),
    ]
    sizes = {"batch": 2, "seq": 6, "past": 7, "total": 13}

    assert stretched(ports, sizes, "length", 2, ()) == {
        "batch": 2,
        "seq": 12,
        "past": 14,
        "total": 26,
    }
    assert stretched(ports, sizes, "length", 2, {"past"})["total"] == 19
    assert stretched(ports, sizes, "length", 2, {"total"})["total"] == 13
    assert stretched(ports, sizes, "batch", 8, ())["batch"] == 16


def test_input_without_a_shape_grows_in_its_batch() -> None:
    """Its rank is the one that ran."""
    ports = [Port("x", "tensor", FLOAT, None)]
    sizes = {"x:rank": 2, "x:0": 2, "x:1": 6}

    assert stretched(ports, sizes, "batch", 4, ()) == sizes | {"x:0": 8}


# -- what the user gave ---------------------------------------------------------------------------


def test_given_size_stays(save: Save) -> None:
    """Seeds are added instead."""
    found = reference(save(SCORES), sizes={"N": 2})

    assert shapes(found) == {"x": (2, 4)}
    assert len(found.stimulus.cases) == 25


def test_given_shape_stays_and_the_other_sizes_grow(save: Save) -> None:
    """One of two inputs is settled."""
    path = save(
        "g (float[N, 4] x, float[M, 4] z) => (float[N, 4] y, float[M, 4] w)"
        "{ y = Neg (x) w = Neg (z) }"
    )

    found = shapes(reference(path, request=InputRequest(shapes={"x": (3, 4)})))

    assert found["x"] == (3, 4)
    assert found["z"][0] > 2


@pytest.mark.parametrize("seeds", [(0, 1), (7,)])
def test_given_seeds_stay(save: Save, seeds: tuple[int, ...]) -> None:
    """Also those that there would be without being asked for; sizes still grow."""
    assert check(save(FIXED), seeds=seeds).seeds == seeds
    grown = check(save(SCORES), seeds=seeds)
    assert grown.seeds == seeds
    assert grown.inputs[0].shape == (192, 4)


def test_given_inputs_stay(save: Save, tmp_path: Path) -> None:
    """So do those that are made up to fit them."""
    given = tmp_path / "x.npz"
    np.savez(given, x=np.ones((3, 4), np.float32))
    text = "g (float[N, 4] x, float[N, 4] z) => (float[N, 4] y) { y = Add (x, z) }"

    found = reference(save(text), request=InputRequest(given=given))

    assert shapes(found) == {"x": (3, 4), "z": (3, 4)}
    assert found.stimulus.cases == {0: "x.npz"}
    assert found.stimulus.limit == "inputs were given"
    assert found.distinct == 12


def test_what_is_proved_is_fed_little(save: Save) -> None:
    """Numbers prove nothing more there."""
    path = save(SCORES)

    proved = verify_equivalence(path, path, Settings(), prove=True)

    assert proved.inputs[0].shape == (3, 4)
    assert proved.seeds == tuple(proved.cases) == (0, 1)


# -- larger ones that do not run ------------------------------------------------------------------

POSITIONS = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch, seq] ids) => (float[a, b, c] y) <int64 zero = {0}, int64 one = {1}>
{ s = Shape (ids) n = Gather (s, one) r = Range (zero, n, one) p = Gather (places, r)
  e = Gather (words, ids) y = Add (e, p) }"""


@pytest.mark.parametrize(("rows", "length"), [(13, 7), (16, 14)])
def test_length_stays_where_the_table_of_positions_ends(save: Save, rows: int, length: int) -> None:
    """The last that ran is used, and the batch grows all the same."""
    model = onnx.parser.parse_model(POSITIONS)
    places = np.random.default_rng(0).standard_normal((rows, 2)).astype(np.float32)
    words = np.random.default_rng(1).standard_normal((9, 2)).astype(np.float32)
    for values, name in ((places, "places"), (words, "words")):
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))

    found = reference(save(model))

    assert shapes(found)["ids"][1] == length
    assert shapes(found)["ids"][0] > 2
    assert (found.stimulus.limit, found.stimulus.is_refused) == ("", False)


def test_batch_that_is_baked_in_is_what_limits_a_check(save: Save) -> None:
    """Where seeds are given, too, few numbers remain, and it is said why."""
    path = save("""g (float[N, 4] x) => (float[a, b] y)
    <int64[2] s = {2, 4}, float[4, 1] w = {1, 2, 3, 4}> { r = Reshape (x, s) y = MatMul (r, w) }""")

    found = reference(path, seeds=(0, 1))

    assert shapes(found) == {"x": (2, 4)}
    assert found.distinct == 4
    assert found.stimulus.is_refused
    assert found.stimulus.limit.startswith("with N=5 it does not run: ")
    assert reference(path).distinct >= FEW_NUMBERS
    assert reference(path).stimulus.limit == ""


def test_sizes_that_make_nan_of_numbers_are_refused(save: Save) -> None:
    """NaN equals NaN, so nothing would be compared any more."""
    path = save("""g (float[N, 2] x) => (float[N, 2] y) <int64 zero = {0}, float most = {20}>
    { s = Shape (x) n = Gather (s, zero) f = Cast <to = 1> (n) d = Sub (most, f)
      l = Log (d) y = Mul (x, l) }""")

    found = reference(path)

    assert shapes(found) == {"x": (12, 2)}
    assert all(np.isfinite(leaf.data).all() for run in found.outputs.values() for leaf in run["y"])


@dataclass
class Fragile:
    """A runner that dies of more rows than it can take, and runs again when it is restarted."""

    most: int
    restarts: int = 0
    is_dead: bool = False
    tried: list[int] = field(default_factory=list)

    def run(self, feeds: Mapping[str, Feed]) -> Outputs:
        """Return the input; crash if it is too large."""
        assert not self.is_dead
        values = np.asarray(feeds["x"])
        self.tried.append(len(values))
        if len(values) > self.most:
            self.is_dead = True
            raise StoppedError("crashed (SIGSEGV)", "running the original")
        return {"y": (Leaf("", "float32", values),)}

    def restart(self) -> None:
        """Live again."""
        self.is_dead = False
        self.restarts += 1


def grow(path: Path, runner: object, *, more_seeds: bool = False) -> inputs.Stimulus:
    """Let inputs grow in a runner of ours."""
    flow = Dataflow(read_model(path))
    judge = Judge(Settings(), Facts(), 0)
    ports = input_ports(flow.model.graph)
    found, _ = find_stimulus(
        flow,
        ports,
        runner,  # type: ignore[arg-type]
        (0, 1),
        {},
        judge=judge,
        grow=True,
        more_seeds=more_seeds,
    )
    return found


def test_crash_of_a_larger_size_is_not_the_end(save: Save) -> None:
    """The process is started again, and the largest sizes that run are used."""
    path = save("g (float[N, 4] x) => (float[N, 4] y) { y = Identity (x) }")
    runner = Fragile(most=20)

    found = grow(path, runner)

    assert runner.tried == [2, 2, 128, 64, 32, 16, 16, 1]
    assert [len(np.asarray(feeds["x"])) for feeds in found.feeds.values()] == [16, 16, 1]
    assert found.is_refused
    assert (runner.restarts, runner.is_dead) == (3, False)


# -- cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        pytest.param({"_CHEAP": 0}, 48, id="work-for-few"),
        pytest.param({"_CHEAP": 0, "_BEARABLE": 0}, 3, id="no-work"),
    ],
)
def test_growth_is_bounded(
    save: Save, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], rows: int
) -> None:
    """By the work of a run for many numbers, and by more work for a few."""
    path = save(SCORES)
    for name, limit in limits.items():
        monkeypatch.setattr(inputs, name, limit)

    found = reference(path)

    assert shapes(found) == {"x": (rows, 4)}
    assert len(found.stimulus.seeds) == 2
    if rows == 3:
        assert found.stimulus.limit == "more seeds would take too long"
        assert not found.stimulus.is_refused


def test_weights_are_work(save: Save) -> None:
    """A thousand numbers of a layer are worth it only if it is small; a hundred are in any case."""
    text = "g (float[N, 500] x) => (float[N, 20] y) { h = MatMul (x, v) y = MatMul (h, w) }"
    rng = np.random.default_rng(0)
    found = {}
    for width in (1, 4_000):
        model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + text)
        for name, shape in (("v", (500, width)), ("w", (width, 20))):
            values = rng.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        found[width] = shapes(reference(save(model)))["x"][0]

    assert found == {1: 32, 4_000: 8}


def test_output_that_ignores_the_input_does_not_grow(save: Save) -> None:
    """More of the same would say nothing more; its numbers are not counted."""
    path = save("""g (float[N, 4] x) => (float[N, 4] y)
    <float zero = {0}, float[4] c = {1, 2, 3, 4}> { n = Mul (x, zero) y = Add (n, c) }""")

    found = reference(path)

    assert found.blind == ("y",)
    assert found.distinct == 0
    assert shapes(found) == {"x": (2, 4)}
    assert found.stimulus.limit == "no output depends on an input"


def test_model_without_inputs_is_left_alone(save: Save) -> None:
    """It computes one thing only; its numbers count."""
    found = reference(save("g () => (float[3] y) <float[3] c = {1, 2, 3}> { y = Neg (c) }"))

    assert found.distinct == 3
    assert len(found.stimulus.cases) == 2


def test_choice_of_a_few_needs_no_hundred_seeds(save: Save) -> None:
    """The largest of three is one of three, however often it is asked."""
    found = reference(save("g (float[1, 3] x) => (int64[1, 1] y) { y = ArgMax <axis = 1> (x) }"))

    assert found.distinct == 3
    assert len(found.stimulus.cases) == 16
    assert found.stimulus.limit == "16 seeds give no more"


def run_of(**outputs: object) -> Outputs:
    """Return outputs of one array each."""
    return {
        name: (Leaf("", np.asarray(values).dtype.name, np.asarray(values)),)
        for name, values in outputs.items()
    }


def test_different_numbers_are_counted_output_by_output() -> None:
    """Over all runs together; NaN is none, words count, and what is ignored does not."""
    nan = float("nan")
    runs = [run_of(a=[1.0, 2.0, nan], b=["x", "y"]), run_of(a=[2.0, 3.0, nan], b=["x", "x"])]

    assert distinct_numbers(runs) == 5
    assert distinct_numbers(runs[:1]) == 4
    assert distinct_numbers(runs, ("a",)) == 2
    assert distinct_numbers([run_of(a=np.zeros((0, 3)))]) == 0


def test_crash_for_another_seed_leaves_those_that_ran(save: Save) -> None:
    """Two seeds give a verdict, as before; the report of few numbers says what happened."""

    class Moody(Fragile):
        def run(self, feeds: Mapping[str, Feed]) -> Outputs:
            return super().run({"x": np.zeros(9)} if len(self.tried) == 4 else feeds)

    path = save("g (float[1, 3] x) => (float[1, 3] y) { y = Identity (x) }")
    found = grow(path, runner := Moody(most=5), more_seeds=True)

    assert found.seeds == tuple(found.feeds) == (0, 1)
    assert found.is_refused
    assert found.limit.startswith("with seeds 2 to 15 it does not run: onnxruntime crashed")
    assert (runner.restarts, runner.is_dead) == (1, False)


def test_inputs_do_not_grow_beyond_what_fits_into_memory(
    save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little is computed of them."""
    monkeypatch.setattr(inputs, "_MOST_FED", 2 * 12 * 4)

    assert shapes(reference(save(SCORES))) == {"x": (12, 4)}
    assert len(reference(save(FIXED)).stimulus.seeds) == 24


def test_large_output_is_sampled_all_over() -> None:
    """A constant beginning does not hide what comes later."""
    values = np.zeros(1_000_000)
    values[500_000:] = np.arange(500_000)

    assert 5_000 < distinct_numbers([run_of(a=values)]) <= 1 << 14
