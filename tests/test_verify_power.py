"""The benchmark of the verdict: what it changes, and whether a change counts."""

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from benchmarks.effects import CLEAR, distance, measure_effect, measure_noise, moved
from benchmarks.mutations import KINDS, Scope, put, scopes_of, values_of
from benchmarks.verify_power import Record, mutant_table

NET = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[2, 3, 3] x, bool c) => (float[2, 3, 3] y)
<float[3] w = {1.1, -2, 3}, float[1] tiny = {1e-12}, int8[2, 2] q = {127, -128, 0, 5}>
{
    half = Constant <value_float = 0.5> ()
    a = Transpose <perm = [0, 2, 1]> (x)
    b = Softmax <axis = -1> (a)
    d = Add (b, tiny)
    e = Sqrt (d)
    f = If (c) <
        then_branch = yes () => (float[2, 3, 3] g) { g = Relu (e) },
        else_branch = no () => (float[2, 3, 3] h) { h = Mul (e, w) }
    >
    y = Mul (f, half)
}
"""


@pytest.fixture
def net() -> onnx.ModelProto:
    """A model with something to change, in a body too."""
    return parser.parse_model(NET)


def changes(scope: Scope, kind: str) -> list[str]:
    """Return the changes of a kind, in words."""
    return [what for what, _ in KINDS[kind](scope)]


def test_each_scope_offers_what_it_reads(net: onnx.ModelProto) -> None:
    """A constant is changed where a node reads it, not in every body that could."""
    main, *bodies = scopes_of(net)
    assert [main.place, *(body.place for body in bodies)] == ["graph", "body", "body"]
    assert changes(main, "axis") == ["Softmax 'b': axis 0", "Softmax 'b': axis 1"]
    assert changes(main, "perm") == ["Transpose 'a': perm [0, 1, 2]"]  # not the axis of two
    assert changes(main, "scalar") == ["constant 'half' times 1.01"]  # not the epsilon
    assert len(changes(main, "epsilon")) == 2
    assert changes(main, "float16") == []  # w is read in a body only
    assert sorted(changes(b, "activation") + changes(b, "float16") for b in bodies) == [
        ["Relu 'g' left out"],
        ["weight 'w' through float16"],
    ]


def test_a_change_changes_the_model_it_was_found_in(net: onnx.ModelProto) -> None:
    """A change writes into the model, not into a copy."""
    what, change = next(KINDS["epsilon"](scopes_of(net)[0]))
    change()
    tiny = next(t for t in net.graph.initializer if t.name == "tiny")
    assert what == "Add 'd': epsilon 0.001"
    assert values_of(tiny).tolist() == [np.float32(1e-3)]
    onnx.checker.check_model(net)


@pytest.mark.parametrize("kind", ["epsilon", "axis", "perm", "scalar", "activation", "float16"])
def test_changes_of_each_kind_leave_a_valid_model(kind: str, net: onnx.ModelProto) -> None:
    """Every change is one, and onnx accepts what comes of it."""
    count = sum(len(changes(scope, kind)) for scope in scopes_of(net))
    assert count
    for number in range(count):
        mutant = parser.parse_model(NET)
        found = [change for scope in scopes_of(mutant) for _, change in KINDS[kind](scope)]
        before = mutant.SerializeToString(deterministic=True)
        found[number]()
        assert mutant.SerializeToString(deterministic=True) != before
        onnx.checker.check_model(mutant, full_check=True)


def test_a_step_stays_inside_the_type() -> None:
    """The largest integer goes down, as one step up would be the smallest."""
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])
    tensors = {
        "q": numpy_helper.from_array(np.array([[127, 127], [127, 127]], np.int8), "q"),
        "s": numpy_helper.from_array(np.array(0.5, np.float32), "s"),
        "z": numpy_helper.from_array(np.array(127, np.int8), "z"),
    }
    scope = Scope("graph", [node], tensors, {})
    for kind in ("weight-step", "zero-point"):
        for _, change in KINDS[kind](scope):
            change()
    assert values_of(tensors["q"]).min() >= 125
    assert values_of(tensors["z"]) == 126
    assert changes(scope, "scale") == ["scale 's' times 1.01"]
    assert changes(scope, "scalar") == []  # a scale is no other constant


def test_a_bias_of_integers_moves_by_a_step_at_least() -> None:
    """1 % of a small integer is a step, away from 0."""
    node = helper.make_node("QLinearConv", [*"abcdefgh", "bias"], ["y"])
    bias = numpy_helper.from_array(np.array([-3, 0, 5, 1000], np.int32), "bias")
    [(_, change)] = KINDS["bias"](Scope("graph", [node], {"bias": bias}, {}))
    change()
    assert values_of(bias).tolist() == [-4, 0, 6, 1010]


def test_erf_by_tanh_is_close_to_erf_and_not_the_same() -> None:
    """The other Gelu is the known approximation, wrong by at most 0.0005."""
    text = '<ir_version: 8, opset_import: ["" : 17]> n (float[9] x) => (float[9] y) { y = Erf (x) }'
    erf, tanh = parser.parse_model(text), parser.parse_model(text)
    next(iter(KINDS["gelu"](scopes_of(tanh)[0])))[1]()
    onnx.checker.check_model(tanh, full_check=True)
    x = {"x": np.linspace(-2, 2, 9, dtype=np.float32)}
    [ours], [theirs] = (ReferenceEvaluator(model).run(None, x) for model in (erf, tanh))
    assert 1e-5 < np.abs(np.subtract(ours, theirs)).max() < 1e-3


def test_half_a_unit_moves_almost_every_float_and_nothing_far() -> None:
    """Floats move by a unit at most; zeros, fill values and what is not finite stay."""
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    found = moved(values, np.random.default_rng(1))
    assert (found != values).mean() > 0.9
    assert (np.abs(found - values) <= np.spacing(np.abs(values))).all()
    fixed = np.array([0, np.inf, -np.inf, np.nan, -3.4e38], np.float32)
    np.testing.assert_array_equal(moved(fixed, np.random.default_rng(2)), fixed)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([3.0, 0.0], [0.0, 4.0], (4.0, math.sqrt(12.5))),
        ([math.nan, 1.0], [math.nan, 1.0], (0.0, 0.0)),
        ([math.nan, 1.0], [1.0, 1.0], (math.inf, math.inf)),
        ([math.inf, 1.0], [-math.inf, 1.0], (math.inf, math.inf)),
    ],
)
def test_distance(ours: list[float], theirs: list[float], expected: tuple[float, float]) -> None:
    """What is finite in one only is endlessly far."""
    assert distance(np.array(ours), np.array(theirs)) == expected


def test_distance_of_what_is_no_number() -> None:
    """Words are equal or not; sequences are as far as their worst element."""
    words = np.array(["a", "b"], object)
    assert distance(words, words.copy()) == (0.0, 0.0)
    assert distance(words, words[::-1]) == (1.0, 1.0)
    assert distance([np.zeros(2), np.zeros(1)], [np.zeros(2), np.ones(1)]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="another shape"):
        distance(np.zeros(2), np.zeros((1, 2)))
    with pytest.raises(ValueError, match="another length"):
        distance([np.zeros(2)], [])


def saved(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model."""
    onnx.save(model, path)
    return path


def test_the_effect_is_in_units_of_the_noise(net: onnx.ModelProto, tmp_path: Path) -> None:
    """A last bit does not count, 1 % does."""
    original = saved(net, tmp_path / "original.onnx")
    x = np.random.default_rng(0).normal(size=(2, 3, 3)).astype(np.float32)
    feeds = [{"x": x, "c": np.zeros((), bool)}]
    baseline = measure_noise(original, feeds, 3, tmp_path)
    assert 0 < baseline.noise[0]["y"][0] < 1e-5
    assert measure_effect(original, feeds, baseline) == [0]
    last = next(t for t in net.graph.initializer if t.name == "w")
    put(last, values_of(last) * (1 + 2.0**-23))
    assert 0 < measure_effect(saved(net, tmp_path / "m.onnx"), feeds, baseline)[0] < CLEAR
    put(last, values_of(last) * 1.01)
    assert measure_effect(saved(net, tmp_path / "m.onnx"), feeds, baseline)[0] > 100 * CLEAR


def test_noise_moves_no_exponent_and_no_mask(tmp_path: Path) -> None:
    """The square of a negative number stays one, and a fill value does not become infinite."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> n (float[2] x) => (float[2] y) '
        "<float two = {2}, float[2] mask = {-3.4028235e38, 0}> "
        "{ a = Pow (x, two)\n y = Add (a, mask) }"
    )
    original = saved(parser.parse_model(text), tmp_path / "o.onnx")
    feeds = [{"x": np.array([-1.5, -2.5], np.float32)}]
    baseline = measure_noise(original, feeds, 3, tmp_path)
    assert math.isfinite(baseline.noise[0]["y"][0])


def test_an_integer_output_counts_from_one_step(tmp_path: Path) -> None:
    """An integer that never moves by itself counts when it moves by one."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> '
        "n (int32[4] x) => (int32[4] y) <int32[4] k = {1, 2, 3, 4}> { y = Add (x, k) }"
    )
    model = parser.parse_model(text)
    feeds = [{"x": np.zeros(4, np.int32)}]
    baseline = measure_noise(saved(model, tmp_path / "o.onnx"), feeds, 1, tmp_path)
    assert model.graph.initializer[0].data_type == TensorProto.INT32
    put(model.graph.initializer[0], np.array([1, 2, 3, 5]))
    effect = measure_effect(saved(model, tmp_path / "m.onnx"), feeds, baseline)
    assert effect == [pytest.approx(CLEAR)]


def test_the_table_counts_what_is_large_enough() -> None:
    """Only what was caught or missed counts, and pairs are no mutants."""
    verdicts = ["caught", "caught", "missed", "too small", "refused", "no verdict"]
    records = [Record("m", "scale", verdict, what=f"change {verdict}") for verdict in verdicts]
    records.append(Record("m", "onnxsim", "equivalent"))  # a pair
    records.append(Record("m", "scale", "missed", what="another", unseen=True))
    table = mutant_table(records, lambda record: record.kind, "kind")
    cells = {str(c.header): list(c.cells) for c in table.columns}
    assert cells["kind"] == ["scale", "all"]
    assert [cells[name][1] for name in ("made", "counted", "caught", "missed")] == list("7422")
    assert cells["unseen"] == ["1", "1"]
