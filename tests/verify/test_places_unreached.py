"""What the inputs do not reach: branches, bounds, many turns, rare numbers, and chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dplcli.report.json import parts_of
from dplcli.verify import Check, VerificationResult
from dplcli.verify.check import InputRequest
from dplcli.verify.equivalence import verify_equivalence

if TYPE_CHECKING:
    from tests.verify.conftest import Save


def compare(
    save: Save, ours: str, theirs: str, request: InputRequest | None = None
) -> VerificationResult:
    """Compare two models with optimisation off."""
    settings = Check(levels=("disable",), request=request or InputRequest())
    return verify_equivalence(save(ours), save(theirs, "theirs"), settings, prove=True)


def changed(save: Save, net: str, old: str, new: str) -> VerificationResult:
    """Compare a model with one in which something was replaced."""
    assert old in net
    return compare(save, net, net.replace(old, new))


# -- branches -------------------------------------------------------------------------------------

BRANCHES = """g (float[4, 8] x) => (float[4, 8] y) <float far = {1e6}, float two = {2}>
    { s = ReduceSum <keepdims = 0> (x)  c = Greater (s, far)
      y = If (c) <
        then_branch = t () => (float[4, 8] u) { u = Mul (x, two) },
        else_branch = e () => (float[4, 8] v) { v = Tanh (x) }> }"""


def test_a_branch_that_no_input_takes_is_a_doubt(save: Save) -> None:
    """It is taken nevertheless, and what the models say there is said."""
    found = changed(save, BRANCHES, "{2}", "{3}")
    assert found.verdict == "inconclusive"
    assert found.regions is not None
    (doubt,) = found.doubts
    assert found.regions.unseen == (doubt,)
    assert doubt.startswith("If 'y', ")
    assert found.regions.changes == ("weight 'two': 2.0 → 3.0",)
    assert found.objections == ()


def test_a_branch_that_inputs_take_is_a_difference(save: Save) -> None:
    """The other one: it ran on what was made up."""
    found = changed(save, BRANCHES, "Tanh (x)", "Sin (x)")
    assert found.verdict == "different"
    assert found.objections[0].startswith("If 'y', fed what the original computes: ")


@pytest.mark.parametrize("new", ["u = Add (x, x)", "u = Mul (two, x)"])
def test_another_way_in_a_branch_that_no_input_takes(save: Save, new: str) -> None:
    """It is taken, and gives the same."""
    found = changed(save, BRANCHES, "u = Mul (x, two)", new)
    assert (found.verdict, found.doubts) == ("equivalent", ())


def test_a_condition_that_nothing_can_make_true_is_never_true(save: Save) -> None:
    """A share is not larger than 1, whatever the input is."""
    net = BRANCHES.replace("s = ReduceSum", "p = Sigmoid (x)  s = ReduceMax").replace(
        "0> (x)", "0> (p)"
    )
    found = changed(save, net, "Mul (x, two)", "Neg (x)")
    assert (found.verdict, found.doubts) == ("equivalent", ())


NESTED = """g (float[4, 8] x) => (float[4, 8] y) <float low = {-1e6}, float far = {1e6}>
    { s = ReduceSum <keepdims = 0> (x)  c = Greater (s, low)
      y = If (c) <
        then_branch = t () => (float[4, 8] u) {
          d = Greater (s, far)
          u = If (d) <
            then_branch = tt () => (float[4, 8] p) { p = Sin (x) },
            else_branch = te () => (float[4, 8] q) { q = Tanh (x) }> },
        else_branch = e () => (float[4, 8] v) { v = Neg (x) }> }"""


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("p = Sin (x)", "p = Cos (x)", "inconclusive"),
        ("v = Neg (x)", "v = Identity (x)", "different"),
        ("q = Tanh (x)", "q = Erf (x)", "different"),
        ("p = Sin (x)", "n = Neg (x)  m = Sin (n)  p = Neg (m)", "equivalent"),
    ],
)
def test_branches_in_branches(save: Save, old: str, new: str, verdict: str) -> None:
    """Those inside are taken, too."""
    assert changed(save, NESTED, old, new).verdict == verdict


# -- loops ----------------------------------------------------------------------------------------

LOOP = """g (float[4] x, int64 n) => (float[4] y)
    <int64 late = {LATE}, float k = {0.5}, float o = {0}>
    { t = Constant <value = bool {1}> ()
      y = Loop (n, t, x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
        d = Identity (c)  l = Greater (i, late)  f = Cast <to = 1> (l)  a = Mul (f, o)
        h = Mul (v, k)  w = Add (h, a) }> }"""


@pytest.mark.parametrize("late", [2, 7, 11, 30])
def test_a_loop_that_differs_in_late_turns(save: Save, late: int) -> None:
    """More turns than inputs are made up for, and one more than a constant says."""
    found = changed(save, LOOP.replace("LATE", str(late)), "float o = {0}", "float o = {1}")
    assert found.verdict == "different"
    assert found.objections[0].startswith("Loop 'y', ")


def test_a_loop_that_says_the_same_otherwise(save: Save) -> None:
    """For as many turns."""
    net = LOOP.replace("LATE", "11")
    two = net.replace("float k = {0.5}", "float k = {2}")
    found = compare(save, net, two.replace("Mul (v, k)", "Div (v, k)"))
    assert (found.verdict, found.doubts) == ("equivalent", ())


# -- what can be there ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "is_same"),
    [("Relu (x)", True), ("Sigmoid (x)", True), ("Mul (x, x)", True), ("Selu (x)", False)],
)
def test_a_place_is_not_blamed_for_what_is_never_there(
    save: Save, before: str, *, is_same: bool
) -> None:
    """Behind a Relu no number is negative."""
    net = f"g (float[4, 8] x) => (float[4, 8] y) {{ r = {before}  a = Abs (r)  y = Neg (a) }}"
    found = changed(save, net, "Abs (r)", "Identity (r)")
    assert (found.verdict == "equivalent") == is_same
    assert is_same or found.objections or found.doubts


def test_a_place_behind_steps_is_fed_these(save: Save) -> None:
    """Behind a DequantizeLinear there are multiples of its scale alone."""
    net = """g (float[4, 8] x) => (float[4, 8] y) <float s = {1}, uint8 z = {128}>
        { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  y = Floor (d) }"""
    found = changed(save, net, "Floor", "Ceil")
    assert (found.verdict, found.doubts) == ("equivalent", ())
    assert changed(save, net.replace("{1}", "{0.5}"), "Floor", "Ceil").verdict != "equivalent"


def test_what_depends_on_each_other_is_not_drawn_apart(save: Save) -> None:
    """One part reads a value, and the other one what was computed from it, too."""
    net = """g (float[4, 8] x) => (float[4, 8] s, float[4, 8] t, float[4, 8] y) <float one = {1}>
        { s = Sigmoid (x)  t = Sub (one, s)  y = Mul (s, t) }"""
    found = changed(save, net, "y = Mul (s, t)", "q = Mul (s, s)  y = Sub (s, q)")
    assert (found.verdict, found.doubts) == ("equivalent", ())
    found = changed(save, net, "y = Mul (s, t)", "q = Mul (t, t)  y = Sub (s, q)")
    assert found.verdict == "different"


def test_what_was_seen_is_said(save: Save) -> None:
    """How often a place ran, how many numbers it gave, and from where to where."""
    net = (
        "g (float[4, 8] x) => (float[4, 8] y) <float two = {2}> { s = Tanh (x)  y = Mul (s, two) }"
    )
    found = changed(save, net, "Mul (s, two)", "Add (s, s)")
    assert found.regions is not None
    (sight,) = found.regions.sights
    assert sight.place == "Mul 'y'"
    assert sight.runs > 2
    assert sight.numbers > 20
    assert sight.low is not None
    assert sight.high is not None
    assert -2 <= sight.low < -1.5 < 1.5 < sight.high <= 2
    assert parts_of(found.regions)["sights"] == [vars(sight)]


def test_a_place_that_gives_one_number_is_a_doubt(save: Save) -> None:
    """It is zero for whatever it is fed; another model might be, too."""
    net = """g (float[4, 8] x) => (float[4, 8] y) <float none = {0}>
        { a = Selu (x)  n = Sub (a, a)  y = Mul (n, a) }"""
    found = changed(save, net, "Mul (n, a)", "Mul (n, n)")
    assert found.verdict == "inconclusive"
    (doubt,) = found.doubts
    assert "was not seen: it gives one number, whatever it is fed" in doubt


# -- chance ---------------------------------------------------------------------------------------

DROPOUT = """g (float[4, 8] x) => (float[4, 8] y) <float r = {0.5}, bool t = {1}, float k = {2}>
    { d = Dropout <seed = 3> (x, r, t)  a = Exp (d)  y = Mul (a, k) }"""


@pytest.mark.parametrize("net", [DROPOUT, DROPOUT.replace(" <seed = 3>", "")])
def test_identical_files_that_draw_random_numbers(save: Save, net: str) -> None:
    """They are one model, whatever they give."""
    assert compare(save, net, net).verdict == "equivalent"


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("y = Mul (a, k)", "y = Mul (k, a)", "equivalent"),
        ("y = Mul (a, k)", "y = Add (a, a)", "equivalent"),
        ("{2}", "{3}", "different"),
        ("{0.5}", "{0.1}", "inconclusive"),
        ("seed = 3", "seed = 4", "inconclusive"),
        ("Dropout <seed = 3> (x, r, t)", "Identity (x)", "inconclusive"),
    ],
)
def test_places_beside_random_numbers(save: Save, old: str, new: str, verdict: str) -> None:
    """What reads them is judged by itself; what draws them cannot be."""
    found = changed(save, DROPOUT, old, new)
    assert found.verdict == verdict
    if verdict == "inconclusive":
        assert any("draws random numbers" in doubt for doubt in found.doubts)


# -- inputs with a default ------------------------------------------------------------------------

DEFAULT = "g (float[4] x, float k) => (float[4] y) <float k = {2}> { y = Mul (x, k) }"


def test_an_input_with_a_default_that_is_gone_is_a_doubt(save: Save) -> None:
    """A caller may have fed it; with the default all is the same."""
    found = changed(save, DEFAULT, ", float k)", ")")
    assert found.verdict == "inconclusive"
    assert found.doubts == ("input 'k', which has a default that a caller may replace, is gone",)
    assert changed(save, DEFAULT, "Mul (x, k)", "Mul (k, x)").verdict == "equivalent"


def test_another_default_is_a_difference(save: Save) -> None:
    """Callers that feed nothing get another result."""
    assert changed(save, DEFAULT, "{2}", "{3}").verdict == "different"


# -- numbers that are not finite ------------------------------------------------------------------

SOFTMAX = "g (float[4, 8] x) => (float[4, 8] y) { y = Softmax <axis = 1> (x) }"
NAIVE = """g (float[4, 8] x) => (float[4, 8] y) <int64[1] ax = {1}>
    { e = Exp (x)  s = ReduceSum (e, ax)  y = Div (e, s) }"""


def test_overflow_in_the_candidate_alone_is_a_difference(save: Save) -> None:
    """From 88 on an exponential is infinite; the original takes off the largest one."""
    found = compare(save, SOFTMAX, NAIVE)
    assert found.verdict == "different"
    assert found.objections[0].startswith("Softmax 'y', fed drawn values")


def test_where_nothing_finite_is_given_counts_only_if_asked(save: Save) -> None:
    """A zero of another sign is said in one line; it decides where somebody is strict."""
    net = "g (float[N, 16] x) => (float[N, 16] y) <float z = {0}> { y = LAST }"
    ours, theirs = (
        save(net.replace("LAST", "Add (x, z)")),
        save(net.replace("LAST", "Identity (x)"), "b"),
    )

    usual = verify_equivalence(ours, theirs)
    strict = verify_equivalence(ours, theirs, Check(strict=True))

    assert usual.verdict == "equivalent"
    assert (
        "Add 'y' differs where the original is fed or gives NaN, an infinity or -0"
        in usual.warnings
    )
    assert strict.verdict == "different"


def test_a_note_names_the_node_that_makes_what_is_not_finite(save: Save) -> None:
    """It is the Div that divides by zero, not what reads it, though the cut is behind that."""
    head = "g (float[3, 4] x, float[3, 4] z) => (float[3, 4] y)"
    ours = f"{head} {{ d = Div (x, z)  n = Neg (d)  y = Add (n, x) }}"
    theirs = f"{head} {{ r = Reciprocal (z)  q = Mul (x, r)  n = Neg (q)  y = Sub (x, q) }}"

    warnings = compare(save, ours, theirs).warnings

    assert "Div 'd' differs where the original is fed or gives NaN, an infinity or -0" in warnings
    assert not any(warning.startswith(("Neg", "Add")) for warning in warnings)


def test_numbers_that_are_missing_count_only_if_asked(save: Save) -> None:
    """A tree may send them either way."""
    tree = """<ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
        g (float[N, 2] x) => (float[N, 1] y) { y = ai.onnx.ml.TreeEnsembleRegressor
        <n_targets = 1, nodes_treeids = [0, 0, 0], nodes_nodeids = [0, 1, 2],
        nodes_featureids = [1, 0, 0], nodes_values = [0.5, 0.0, 0.0],
        nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],
        nodes_falsenodeids = [2, 0, 0], nodes_missing_value_tracks_true = [0, 0, 0],
        target_treeids = [0, 0], target_nodeids = [1, 2], target_ids = [0, 0],
        target_weights = [1.0, -1.0]> (x) }"""
    ours, theirs = save(tree), save(tree.replace("true = [0,", "true = [1,"), "b")
    usual = verify_equivalence(ours, theirs)
    assert (usual.verdict, len(usual.warnings)) == ("equivalent", 1)
    assert verify_equivalence(ours, theirs, Check(strict=True)).verdict == "different"


def test_overflow_in_the_original_alone_is_none(save: Save) -> None:
    """Nothing is to be the same where it gives no number."""
    found = compare(save, NAIVE, SOFTMAX)
    assert (found.verdict, found.doubts) == ("equivalent", ())


def test_nan_that_the_inputs_give_counts(save: Save) -> None:
    """Whoever runs the original gets it."""
    net = "g (float[4, 8] x) => (float[4, 8] y) <float none = {0}> { a = Selu (x)  y = Sqrt (a) }"
    found = changed(save, net, "y = Sqrt (a)", "b = Max (a, none)  y = Sqrt (b)")
    assert found.verdict == "different"


def test_each_of_two_alike_places_counts(save: Save) -> None:
    """Both are drawn for if bounds tell them apart; that one gives the same says nothing."""
    net = """g (float[4, 2] x, float[4, 2] z) => (float[4, 2] a, float[4, 2] b)
        <float[2] k = {300, 310}, float[2] m = {300, 310}>
        { a = Min (x, k)  b = Min (z, m) }"""
    theirs = net.replace("k = {300, 310}", "k = {300.00003, 310}")
    found = compare(save, net, theirs.replace("m = {300, 310}", "m = {300, 350}"))
    assert found.verdict == "different"
    assert found.objections[0].startswith("Min 'b', ")
    assert compare(save, net, theirs).verdict == "equivalent"


# -- far off -------------------------------------------------------------------------------------

FUNCTION = """<ir_version: 9, opset_import: ["" : 18, "f" : 1]>
    g (float[4, 8] x) => (float[4, 8] y) <float far = {1e6}> { b = Add (x, far)  y = f.act (b) }
    <domain: "f", opset_import: ["" : 18]> act <alpha: float = 0.1> (x) => (y)
    { y = LeakyRelu <alpha: float = @alpha> (x) }"""
COMPUTED_BOUND = """g (float[4, 8] x) => (bool[4, 8] y) <float far = {100}, float t = {2}>
    { r = Sub (x, far)  p = Relu (r)  m = ReduceMax <keepdims = 0> (p)
      s = Sigmoid (x)  c = Clip (s, m)  y = Greater (c, t) }"""
OVERFLOW = """g (int32[4, 8] x) => (int32[4, 8] y) <int32 none = {0}, int32 low = {-5}>
    { a = Max (x, none)  b = Add (a, a)  y = Max (b, low) }"""

WITHOUT_ZERO = """g (float[4, 16] x) => (float[4, 16] y) <float s = {0.1}, float k = {20}>
    { q = QuantizeLinear (x, s)  d = DequantizeLinear (q, s)  y = Min (d, k) }"""
CHANNELS = """g (float[4, 2] x) => (float[4, 2] y)
    <float[2] s = {0.1, 0.11}, uint8[2] z = {0, 0}, float k = {20}>
    { q = QuantizeLinear <axis = 1> (x, s, z)  d = DequantizeLinear <axis = 1> (q, s, z)
      y = Min (d, k) }"""
LABEL = """g (float[N, 8] x, int64[N, 1] t) => (float[N, 1] y)
    <int64 z = {0}, int64 k = {-100}, float w = {0}>
    { p = LogSoftmax <axis = 1> (x)  c = Max (t, z)  a = GatherElements <axis = 1> (p, c)
      e = Equal (t, k)  y = Where (e, w, a) }"""
WORDS = """<ir_version: 9, opset_import: ["" : 20]>
    g (string[N] x) => (string[N, K] y, int64[N] n)
    { y, n = StringSplit <delimiter = ",", maxsplit = 2> (x) }"""
FAR = ", ".join(["3000"] * 17)
VECTOR = f"""g (float[4, 17] x) => (float[4, 17] y) <float[17] k = {{{FAR}}}>
    {{ a = Selu (x)  y = Min (a, k) }}"""


@pytest.mark.parametrize(
    ("net", "old", "new"),
    [
        pytest.param(FUNCTION, "= 0.1", "= 0.2", id="default-attribute-of-a-function"),
        pytest.param(DEFAULT.replace("y = Mul (x, k)", "c = Min (k, t)  y = Mul (x, c)").replace(
            "{2}>", "{1}, float t = {2}>"), "t = {2}", "t = {3}", id="default-of-an-input"),
        pytest.param(COMPUTED_BOUND, "t = {2}", "t = {3}", id="bound-that-is-computed"),
        pytest.param(OVERFLOW, "{-5}", "{-7}", id="whole-numbers-that-overflow"),
        pytest.param(WITHOUT_ZERO, "{20}", "{22}", id="steps-without-a-zero-point"),
        pytest.param(CHANNELS, "{20}", "{22}", id="steps-of-channels"),
        pytest.param(LABEL, "{-100}", "{-1}", id="label-that-is-told-from-others"),
        pytest.param(WORDS, "= 2", "= 3", id="more-words-than-were-fed"),
        pytest.param(VECTOR, FAR, FAR.replace("3", "6"), id="bounds-in-a-long-vector"),
    ],
)  # fmt: skip
def test_other_models_are_not_equivalent(save: Save, net: str, old: str, new: str) -> None:
    """However far off the values are that show it."""
    assert changed(save, net, old, new).verdict != "equivalent"
