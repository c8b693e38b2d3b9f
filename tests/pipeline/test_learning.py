"""Rules learned from two models: what they say, what they explain, and what cannot be learned."""

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dplcli.analysis.pairing import find_differences
from dplcli.language import RewriteRule
from dplcli.language.foldings import is_near
from dplcli.outcomes.rules import RewritesOutcome
from dplcli.outcomes.written import Delivery
from dplcli.passes.rewrite import rewrite
from dplcli.pipeline.catalogs import check_catalogs, load_catalog_rules, try_catalogs
from dplcli.pipeline.learning import learn_rewrites
from dplcli.pipeline.proving import DEFAULT_TRIALS
from tests.passes.rewriting import rewrite_rule, rewritten
from tests.support.helpers import model_from_bytes, proto_from_text, with_long
from tests.support.strategies import RandomGraph, graphs

TRIALS, FEW = 20, 12
"""Graphs that each rule is tried on as it is learned, and again, with other numbers."""


def save(folder: Path, before: str | onnx.ModelProto, after: str | onnx.ModelProto) -> list[Path]:
    """Save two models."""
    paths = [folder / "a.onnx", folder / "b.onnx"]
    for path, given_as in zip(paths, (before, after), strict=True):
        proto = proto_from_text(given_as) if isinstance(given_as, str) else given_as
        path.write_bytes(proto.SerializeToString())
    return paths


def learned(folder: Path, before: str, after: str, trials: int = TRIALS) -> RewritesOutcome:
    """Learn from two models, and check what must hold of whatever is learned."""
    paths = save(folder, before, after)
    outcome = learn_rewrites(*paths, trials=trials)
    if outcome.yaml:
        check_catalogue(outcome, paths)
    return outcome


def check_catalogue(outcome: RewritesOutcome, paths: list[Path]) -> None:
    """Check that a catalogue loads, and does to the first model what the outcome says."""
    catalogue = paths[0].parent / "learned.yaml"
    catalogue.write_text(outcome.yaml, encoding="utf-8")
    assert not [p for p in check_catalogs([str(catalogue)]) if p.severity == "error"]
    rules = [r for r in load_catalog_rules([str(catalogue)]) if isinstance(r, RewriteRule)]
    assert [rule.name for rule in rules] == [item.rule.name for item in outcome.learned]
    first, second = (model_from_bytes(path.read_bytes()) for path in paths)
    counts = rewrite(first, rules).counts
    assert all(counts.get(rule.name) for rule in rules)
    if not outcome.left and not outcome.beyond:
        assert not find_differences(first, second, is_near=is_near)
    failed = {item.rule.name for item in outcome.learned if item.trial.verdict == "failed"}
    for trial in try_catalogs([str(catalogue)], trials=FEW, seed=1):
        assert trial.verdict != "failed" or trial.rule.name in failed


def texts(outcome: RewritesOutcome) -> list[str]:
    """Return name, number of places, pattern, conditions and replacement of each rule."""
    found = []
    for item in outcome.learned:
        where = [f"where {condition.text}" for condition in item.rule.where]
        lines = [f"{item.rule.name} {item.places}", repr(item.rule.pattern).strip(), *where]
        found.append("\n".join([*lines, f"-> {item.rule.becomes.strip()}"]))
    return found


CASES = {
    "gelu by hand": (
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2,3] x) => (float[2,3] y)
           <float root = {1.4142135}, float one = {1.0}, float half = {0.5}> {
            a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half) }""",
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2,3] x) => (float[2,3] y) { y = Gelu (x) }""",
        """gelu 1
div = Div(a, const(b))
erf = Erf(div)
add = Add(erf, 1.0)
mul = Mul(add, a)
mul_1 = Mul(mul, 0.5)
mul_1
where is_close(b, 1.4142135, 5e-06)
where shaped_like(mul_1, a)
-> Gelu(a)""",
    ),
    "its own example shows what is wrong": (
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2,3,4] x) => (float[2,3,4] y)
           <float[4] c = {1,2,3,4}, float root = {1.4142135}, float one = {1}, float half = {0.5}> {
            s = Add (x, c) a = Div (s, root) b = Erf (a) d = Add (b, one) e = Mul (s, d)
            y = Mul (e, half) }""",
        """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        g (float[2,3,4] x) => (float[2,3,4] y) <float[4] c = {1,2,3,4}> {
            y = com.microsoft.BiasGelu (x, c) }""",
        """bias_gelu 1
add = Add(a, b)
div = Div(add, const(b_1))
erf = Erf(div)
add_1 = Add(erf, 1.0)
mul = Mul(add_1, add)
mul_1 = Mul(mul, 0.5)
mul_1
where is_close(b_1, 1.4142135, 5e-06)
where shaped_like(mul_1, a)
where b.rank == 1
-> com.microsoft.BiasGelu(a, b)""",
    ),
    "two Transpose": (
        """g (float[2,3,4] x) => (float[3,4,2] y) {
            a = Transpose <perm = [1,0,2]> (x) y = Transpose <perm = [0,2,1]> (a) }""",
        "g (float[2,3,4] x) => (float[3,4,2] y) { y = Transpose <perm = [1,2,0]> (x) }",
        """transpose_transpose_to_transpose 1
transpose_1 = Transpose(x, perm=perm)
transpose_2 = Transpose(transpose_1, perm=perm_1)
transpose_2
-> Transpose(x, perm=[perm[i] for i in perm_1])""",
    ),
    "a new node that an old opset lacks": (
        """g (bool[2,5] c, float[2,5] a, float[2,5] b) => (float[2,5] y) {
            n = Not (c) y = Where (n, a, b) }""",
        "g (bool[2,5] c, float[2,5] a, float[2,5] b) => (float[2,5] y) { y = Where (c, b, a) }",
        """not_where_to_where 1
not_1 = Not(x)
where = Where(not_1, x_1, y)
where
-> Where(x, y, x_1)""",
    ),
    "Transpose moved": (
        """g (float[2,3,4] x) => (float[2,3,4] y) {
            a = Transpose <perm = [1,0,2]> (x) b = Relu (a) y = Transpose <perm = [1,0,2]> (b) }""",
        "g (float[2,3,4] x) => (float[2,3,4] y) { y = Relu (x) }",
        """transpose_relu_transpose_to_relu 1
transpose_1 = Transpose(x, perm=[1, 0, 2])
relu = Relu(transpose_1)
transpose_2 = Transpose(relu, perm=[1, 0, 2])
transpose_2
-> Relu(x)""",
    ),
    "BatchNormalization into Conv": (
        """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
           <float[2,2,1,1] w = {1,2,3,4}, float[2] s = {7,3}, float[2] h = {5,6.5},
            float[2] m = {0.25,11}, float[2] v = {3.5,8.5}> {
            c = Conv <pads = [0,0,0,0]> (x, w)
            y = BatchNormalization <epsilon = 0.5> (c, s, h, m, v) }""",
        """g (float[1,2,4,4] x) => (float[1,2,4,4] y)
           <float[2,2,1,1] w = {3.5,7,3,4}, float[2] b = {4.125,-4.5}> {
            y = Conv <pads = [0,0,0,0]> (x, w, b) }""",
        """conv_batch_normalization_to_conv 1
conv = Conv(x, const(w), **attrs)
batch_normalization = BatchNormalization(conv, const(scale), const(b), const(mean), const(var), \
training_mode=0, epsilon=epsilon, momentum=momentum)
batch_normalization
-> Conv(x, const(w.value * along(scale.value / sqrt(var.value + epsilon), 0, w.rank)), \
const(b.value - mean.value * (scale.value / sqrt(var.value + epsilon))), **attrs)""",
    ),
    "an Identity": (
        "g (float[2] x) => (float[2] y) { a = Identity (x) y = Relu (a) }",
        "g (float[2] x) => (float[2] y) { y = Relu (x) }",
        "drop_identity 1\nidentity = Identity(x)\nidentity\n-> x",
    ),
    "a Cast to the type there is": (
        "g (float[2] x) => (float[2] y) { a = Cast <to = 1> (x) y = Relu (a) }",
        "g (float[2] x) => (float[2] y) { y = Relu (x) }",
        """drop_cast 1
cast_1 = Cast(x, to="float32")
cast_1
where x.dtype == cast_1.dtype
-> x""",
    ),
    "a rule that matches what it makes": (
        "g (float[2] x) => (float[2] y) { y = Relu (x) }",
        "g (float[2] x) => (float[2] y) { a = Relu (x) y = Relu (a) }",
        "relu_to_relu_relu 1\nrelu = Relu(x)\nrelu\n-> Relu(Relu(x))",
    ),
    "a factor folded into a weight": (
        """g (float[2,2] x) => (float[2,3] y) <float[2,3] w = {1,2,3,4,5,6}, float[3] s = {1,2,3}> {
            a = MatMul (x, w) y = Mul (a, s) }""",
        """g (float[2,2] x) => (float[2,3] y) <float[2,3] w = {1,4,9,4,10,18}> {
            y = MatMul (x, w) }""",
        """mat_mul_mul_to_mat_mul 1
mat_mul = MatMul(a, const(b))
mul = Mul(mat_mul, const(b_1))
mul
where b.rank == 2
where b_1.rank == 1
-> MatMul(a, const(b.value * b_1.value))""",
    ),
    "what the new node reads lies above": (
        """g (float[2,3] x) => (float[3,2] t, int64[2] y) {
            t = Transpose <perm = [1,0]> (x) y = Shape (t) }""",
        """g (float[2,3] x) => (float[3,2] t, int64[2] y) <int64[2] p = {1,0}> {
            t = Transpose <perm = [1,0]> (x) s = Shape (x) y = Gather (s, p) }""",
        """transpose_shape_to_shape_gather 1
transpose_1 = Transpose(x, perm=[1, 0])
shape = Shape(transpose_1, start=0)
shape
-> Gather(Shape(x), [1, 0])""",
    ),
    "what makes it right lies above": (
        "g (float[2] x) => (float[2] y) { a = Relu (x) b = Relu (a) y = Neg (b) }",
        "g (float[2] x) => (float[2] y) { a = Relu (x) y = Neg (a) }",
        "drop_relu_relu 1\nrelu = Relu(x)\nrelu_1 = Relu(relu)\nrelu_1\n-> relu",
    ),
    "an attribute of another operator": (
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[2,4] x) => (float[2] y) <int64[1] axes = {1}> {
            a = Abs (x) y = ReduceSum <keepdims = 0> (a, axes) }""",
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[2,4] x) => (float[2] y) <int64[1] axes = {1}> {
            y = ReduceL1 <keepdims = 0> (x, axes) }""",
        """reduce_l1 1
abs_1 = Abs(x)
reduce_sum = ReduceSum(abs_1, axes, noop_with_empty_axes=0, keepdims=keepdims)
reduce_sum
-> ReduceL1(x, axes, keepdims=keepdims)""",
    ),
}


NARROWED = {"a factor folded into a weight", "its own example shows what is wrong"}
"""Two that are narrowed by several conditions: few graphs do not show that each is needed."""


QUICK = {"two Transpose", "BatchNormalization into Conv", "an Identity"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    with_long(CASES, CASES.keys() - QUICK, {"its own example shows what is wrong"}),
)
def test_learns_one_rule(
    request: pytest.FixtureRequest, tmp_path: Path, before: str, after: str, expected: str
) -> None:
    """A small pair of models gives the rule that a person would write, or one like it."""
    case = request.node.callspec.id
    outcome = learned(tmp_path, before, after, DEFAULT_TRIALS if case in NARROWED else TRIALS)
    assert (outcome.left, outcome.beyond, outcome.explained) == ((), 0, 1)
    (found,) = texts(outcome)
    (item,) = outcome.learned
    assert found == expected
    assert item.trial.verdict == "passed"


def test_places_of_one_kind_give_one_rule(tmp_path: Path) -> None:
    """What differs between the places is captured, what is the same is kept."""
    before = """g (float[2,2,2] x) => (float[2,2,2] y) {
        a = Softmax <axis = 0> (x) b = Log (a) c = Neg (b)
        d = Softmax <axis = 1> (c) y = Log (d) }"""
    after = """g (float[2,2,2] x) => (float[2,2,2] y) {
        b = LogSoftmax <axis = 0> (x) c = Neg (b) y = LogSoftmax <axis = 1> (c) }"""
    outcome = learned(tmp_path, before, after)
    assert (outcome.explained, outcome.left) == (2, ())
    pattern = "softmax = Softmax(x, axis=axis)\nlog_1 = Log(softmax)\nlog_1"
    assert texts(outcome) == [f"log_softmax 2\n{pattern}\n-> LogSoftmax(x, axis=axis)"]


@pytest.mark.long
def test_two_kinds_give_two_rules_the_most_frequent_first(tmp_path: Path) -> None:
    """Each kind has its rule."""
    before = """g (float[2] x, float[2] z) => (float[2] y) {
        a = Softmax (x) b = Log (a) c = Neg (z) d = Add (b, c) e = Abs (d) f = Softmax (e)
        y = Log (f) }"""
    after = """g (float[2] x, float[2] z) => (float[2] y) {
        b = LogSoftmax (x) d = Sub (b, z) e = Abs (d) y = LogSoftmax (e) }"""
    outcome = learned(tmp_path, before, after)
    assert (outcome.left, outcome.beyond, outcome.explained) == ((), 0, 3)
    assert [(item.rule.name, item.places) for item in outcome.learned] == [
        ("log_softmax", 2),
        ("sub", 1),
    ]
    assert {item.trial.verdict for item in outcome.learned} == {"passed"}


def test_constants_that_differ_between_places(tmp_path: Path) -> None:
    """A number that differs between the places is captured, and computed with."""
    before = """g (float[2] x) => (float[2] y) <float p = {4.0}, float q = {8.0}> {
        a = Div (x, p) c = Tanh (a) y = Div (c, q) }"""
    after = """g (float[2] x) => (float[2] y) <float p = {0.25}, float q = {0.125}> {
        a = Mul (x, p) c = Tanh (a) y = Mul (q, c) }"""
    outcome = learned(tmp_path, before, after)
    assert (outcome.explained, outcome.left) == (2, ())
    assert texts(outcome)[0].endswith("-> Mul(a, const(1 / b.value))")


@pytest.mark.long
def test_variants_of_one_kind_have_names_of_their_own(tmp_path: Path) -> None:
    """No expression says the new numbers of both places, so each place has a rule, and a name."""
    before = """g (float[2] x) => (float[2] y) <float p = {4}, float q = {9}> {
        a = Mul (x, p) b = Tanh (a) c = Mul (b, q) y = Tanh (c) }"""
    after = """g (float[2] x) => (float[2] y)
        <float one = {1}, float two = {2}, float three = {3}, float seven = {7}> {
        a = Mul (x, three) r = Mul (x, one) s = Add (a, r) b = Tanh (s)
        c = Mul (b, seven) d = Mul (b, two) e = Add (c, d) y = Tanh (e) }"""
    outcome = learned(tmp_path, before, after)
    assert [text.splitlines()[0] for text in texts(outcome)] == [
        "mul_to_mul_mul_add 1",
        "mul_to_mul_mul_add_1 1",
    ]
    assert (outcome.explained, outcome.left) == (2, ())


def test_says_why_a_place_is_left(tmp_path: Path) -> None:
    """One kind has a rule, the other has none: its weights were trained."""
    weights = [", ".join(str((n * k) % 23 + 0.5) for n in range(20)) for k in (3, 7)]
    before = f"""g (float[20] x) => (float[20] y) <float[20] w = {{{weights[0]}}}> {{
        a = Softmax (x) b = Log (a) y = Mul (b, w) }}"""
    after = f"""g (float[20] x) => (float[20] y) <float[20] w = {{{weights[1]}}}> {{
        b = LogSoftmax (x) y = Mul (b, w) }}"""
    outcome = learned(tmp_path, before, after)
    what = "Mul -> Mul: no expression was found for a constant of float32 [20] of the new nodes"
    assert (outcome.explained, outcome.left) == (1, ((what, 1, ""),))


def test_a_weight_that_changed_has_no_rule(tmp_path: Path) -> None:
    """Large weights are not written down."""
    weight = "g (float[20] x) => (float[20] y) <float[20] w = {%s}> { y = Add (x, w) }"
    numbers = [str(number * number + 0.5) for number in range(20)]
    others = [str(number + 100.25) for number in reversed(range(20))]
    outcome = learned(tmp_path, weight % ",".join(numbers), weight % ",".join(others))
    what = "Add -> Add: no expression was found for a constant of float32 [20] of the new nodes"
    assert (outcome.learned, outcome.yaml, outcome.left) == ((), "", ((what, 1, ""),))


def test_the_same_models(tmp_path: Path) -> None:
    """Names, the order of nodes and where constants are stored are no difference."""
    before = """g (float[2] x) => (float[2] y) <float[2] w = {1,2}> {
        a = Neg (x) b = Abs (x) c = Add (a, w) y = Add (c, b) }"""
    after = """g (float[2] x) => (float[2] y) {
        w = Constant <value = float[2] {1,2}> () q = Abs (x) p = Neg (x) r = Add (p, w)
        y = Add (r, q) }"""
    outcome = learned(tmp_path, before, after)
    assert (outcome.learned, outcome.left, outcome.beyond) == ((), (), 0)


def test_merged_nodes_are_no_difference(tmp_path: Path) -> None:
    """Nodes that compute the same are one computation, however often it is written down."""
    before = "g (float[2] x) => (float[2] y) { a = Neg (x) b = Neg (x) c = Abs (b) y = Add (a, c) }"
    after = "g (float[2] x) => (float[2] y) { a = Neg (x) c = Abs (a) y = Add (a, c) }"
    assert learned(tmp_path, before, after).left == ()


@pytest.mark.long
def test_a_rule_that_is_wrong_is_not_written(tmp_path: Path) -> None:
    """What is left has the graph that shows it."""
    before = "g (float[2] x) => (float[2] y) { a = Relu (x) y = Neg (a) }"
    after = "g (float[2] x) => (float[2] y) { y = Neg (x) }"
    outcome = learned(tmp_path, before, after)
    assert (outcome.learned, outcome.yaml) == ((), "")
    (left,) = outcome.left
    assert left.what.startswith("Relu -> nothing: the rule learned from it is wrong: ")
    assert "relu = Relu (x)" in left.counterexample


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "condition"),
    [
        (
            """<ir_version: 8, opset_import: ["" : 18]>
            g (float[2,3,8] x) => (float[2,3,4] l, float[2,3,4] r)
            <int64[1] zero = {0}, int64[1] four = {4}, int64[1] eight = {8}, int64[1] axis = {2}> {
            l = Slice (x, zero, four, axis) r = Slice (x, four, eight, axis) }""",
            """<ir_version: 8, opset_import: ["" : 18]>
            g (float[2,3,8] x) => (float[2,3,4] l, float[2,3,4] r) {
            l, r = Split <axis = 2, num_outputs = 2> (x) }""",
            "x.shape[2] == 8",
        ),
        (
            """g (float[2,3,4] x, float[2,4,3] z) => (float[2,3,3] y) <float c = {0.70710677}> {
            a = Mul (x, c) b = Mul (z, c) y = MatMul (a, b) }""",
            """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
            g (float[2,3,4] x, float[2,4,3] z) => (float[2,3,3] y) {
            y = com.microsoft.FusedMatMul <alpha = 0.5> (x, z) }""",
            "b.rank == 0",
        ),
    ],
    ids=["size", "rank"],
)
def test_sizes_and_ranks_are_asked_for(
    before: str, after: str, condition: str, tmp_path: Path
) -> None:
    """Of what an axis is long, and of numbers: with more axes they would add some to the result."""
    outcome = learned(tmp_path, before, after, trials=DEFAULT_TRIALS)
    (item,) = outcome.learned
    assert item.trial.verdict == "passed"
    assert condition in {each.text for each in item.rule.where}


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            (
                "g (float[2,3] x) => (float[2,3] y) <int64[1] n = {-1}> "
                "{ a = Exp (x) b = ReduceSum (a, n) y = Div (a, b) }"
            ),
            "g (float[2,3] x) => (float[2,3] y) { y = Softmax (x) }",
            "    except:\n      - inf\n",
        ),
        (
            (
                "g (float[4,3] a, float[4,5] b) => (float[3,5] y) "
                "{ t = Transpose <perm = [1, 0]> (a) y = MatMul (t, b) }"
            ),
            "g (float[4,3] a, float[4,5] b) => (float[3,5] y) { y = Gemm <transA = 1> (a, b) }",
            "    opsets:\n      - 11\n",
        ),
    ],
)
def test_says_for_what_a_rule_holds(tmp_path: Path, before: str, after: str, said: str) -> None:
    """Not for infinities; not for opsets in which a Gemm has three inputs."""
    outcome = learned(tmp_path, before, after)
    assert [item.trial.verdict for item in outcome.learned] == ["passed"]
    assert said in outcome.yaml


@pytest.mark.long
def test_says_where_the_rules_do_more(tmp_path: Path) -> None:
    """What the second model has as before, a rule changes all the same."""
    before = """g (float[2] x) => (float[2] y) {
        a = Neg (x) b = Neg (a) c = Abs (b) d = Neg (c) y = Neg (d) }"""
    after = "g (float[2] x) => (float[2] y) { c = Abs (x) d = Neg (c) y = Neg (d) }"
    outcome = learned(tmp_path, before, after)
    assert (outcome.explained, len(outcome.left) + outcome.beyond) == (1, 1)


HEAD = '<ir_version: 9, opset_import: ["" : 17]> g '

SHAPED = {
    "parts of an axis": (
        """(float[2,4] x) => (float[2,2] p, float[2,2] q)
        <int64[1] o = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[1] n = {-1}> {
        p = Slice (x, o, two, n) q = Slice (x, two, four, n) }""",
        """(float[2,4] x) => (float[2,2] p, float[2,2] q) <int64[2] s = {2, 2}> {
        p, q = Split <axis = 1> (x, s) }""",
        {"x.shape[-1] == 4", "x.shape[1] == 4", "x.rank == 2"},
        "(float[2,6] x) => (float[2,2] p, float[2,2] q)",
    ),
    "a whole shape": (
        """(float[2,3,1,1] x) => (float[2,3] y) <int64[2] s = {2,3}> {
        a = Relu (x) y = Reshape (a, s) }""",
        "(float[2,3,1,1] x) => (float[2,3] y) { a = Relu (x) y = Flatten <axis = 1> (a) }",
        {"x.rank == 4", *(f"x.shape[{axis}] == {size}" for axis, size in enumerate((2, 3, 1, 1)))},
        "(float[1,2,3,1] x) => (float[2,3] y)",
    ),
    "sizes made of several": (
        """(float[2,6,4] x) => (float[2,4,6] y) <int64[4] s = {2,6,2,2}, int64[3] t = {2,4,6}> {
        a = Reshape (x, s) b = Transpose <perm = [0,2,3,1]> (a) y = Reshape (b, t) }""",
        "(float[2,6,4] x) => (float[2,4,6] y) { y = Transpose <perm = [0,2,1]> (x) }",
        {"x.rank == 3", *(f"x.shape[{axis}] == {size}" for axis, size in enumerate((2, 6, 4)))},
        "(float[2,4,6] x) => (float[2,4,6] y)",
    ),
    "a window over all": (
        """(float[1,3,7,7] x) => (float[1,3,1,1] y) <float n = {1}> {
        a = Add (x, n) y = AveragePool <kernel_shape = [7,7]> (a) }""",
        """(float[1,3,7,7] x) => (float[1,3,1,1] y) <float n = {1}> {
        a = Add (x, n) y = GlobalAveragePool (a) }""",
        {"x.rank == 4", "x.shape[2] == 7", "x.shape[3] == 7"},
        "(float[1,3,8,8] x) => (float[1,3,2,2] y)",
    ),
    "the number that a mean divides by": (
        """(float[3,5] x) => (float[3,1] y) <float n = {5}, int64[1] a = {1}> {
        s = ReduceSum (x, a) y = Div (s, n) }""",
        "(float[3,5] x) => (float[3,1] y) { y = ReduceMean <axes = [1]> (x) }",
        {"x.rank == 2", "x.shape[1] == 5"},
        "(float[3,4] x) => (float[3,1] y)",
    ),
}
"""Two models, conditions of the rule, and the head of a model of other sizes."""


@pytest.mark.parametrize(
    ("before", "after", "conditions", "other"), with_long(SHAPED, SHAPED.keys() - {"a whole shape"})
)
def test_numbers_bring_the_shapes_that_they_were_read_off(
    tmp_path: Path, before: str, after: str, conditions: set[str], other: str
) -> None:
    """The rule is proved, and leaves the same nodes on other sizes alone."""
    outcome = learned(tmp_path, HEAD + before, HEAD + after)
    (item,) = outcome.learned
    assert item.trial.verdict == "passed"
    assert conditions <= {condition.text for condition in item.rule.where}
    near = model_from_bytes(
        proto_from_text(HEAD + other + before[before.index("<") :]).SerializeToString()
    )
    assert not rewrite(near, [item.rule]).rounds


def test_a_rank_goes_with_a_size(tmp_path: Path) -> None:
    """The first size of a bias says nothing of where it lies if the bias has other axes."""
    outcome = learned(
        tmp_path,
        """g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y) {
            a = MatMul (x, w) y = Add (a, b) }""",
        "g (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y) { y = Gemm (x, w, b) }",
    )
    (item,) = outcome.learned
    texts = {condition.text for condition in item.rule.where}
    sized = {text.split(".")[0] for text in texts if ".shape[0] ==" in text}
    assert {f"{name}.rank == 1" for name in sized} <= texts


def test_the_budget_is_counted(tmp_path: Path) -> None:
    """What is not looked at is said; the same budget gives the same answer."""
    paths = save(tmp_path, *CASES["gelu by hand"][:2])
    outcome = learn_rewrites(*paths, budget=1, verify=False)
    assert (outcome.learned, outcome.spent) == ((), 1)
    (left,) = outcome.left
    assert left == learn_rewrites(*paths, budget=1, verify=False).left[0]
    assert learn_rewrites(*paths, trials=TRIALS, verify=False).spent is None


@pytest.mark.long
def test_a_place_left_alone_is_a_counterexample(tmp_path: Path) -> None:
    """A condition tells the places that were changed from one of the same kind that was not."""
    before = """g (float[2,3] x, float[2,3] w, float[1,2,3] z) => (float[2,3] y, float[1,2,3] v) {
        a = Neg (x) b = Neg (a) c = Neg (w) d = Neg (c) y = Add (b, d)
        e = Neg (z) f = Neg (e) v = Abs (f) }"""
    after = """g (float[2,3] x, float[2,3] w, float[1,2,3] z) => (float[2,3] y, float[1,2,3] v) {
        y = Add (x, w) e = Neg (z) f = Neg (e) v = Abs (f) }"""
    outcome = learned(tmp_path, before, after)
    (item,) = outcome.learned
    assert (item.places, outcome.explained, outcome.left, outcome.beyond) == (2, 2, (), 0)
    assert [condition.text for condition in item.rule.where] == ["x.rank == 2"]


@pytest.mark.long
def test_what_the_rules_make_is_run(tmp_path: Path) -> None:
    """A right result is said to be, and one that nobody asked about is not run."""
    before = "g (float[2] x) => (float[2] y) { a = Softmax (x) y = Log (a) }"
    right = "g (float[2] x) => (float[2] y) { y = LogSoftmax (x) }"
    delivery = learned(tmp_path, before, right).delivery
    assert isinstance(delivery, Delivery)
    assert delivery.is_sound
    paths = save(tmp_path, before, right)
    assert learn_rewrites(*paths, verify=False).delivery is None


OWN = '<ir_version: 8, opset_import: ["" : 17, "my" : 1]> '


@pytest.mark.long
def test_an_operator_that_onnxruntime_does_not_have(tmp_path: Path) -> None:
    """The rule is not wrong, only not proved; who asks for it gets it."""
    before = OWN + "g (float[2] x) => (float[2] y) { a = Relu (x) y = Neg (a) }"
    after = OWN + "g (float[2] x) => (float[2] y) { y = my.Foo (x) }"
    outcome = learn_rewrites(*save(tmp_path, before, after), unproved=True)
    (item,) = outcome.learned
    assert item.trial.verdict == "not tried"
    assert outcome.delivery == "onnxruntime has no my.Foo"
    # but an operator that it has, and uses in another way, is wrong
    assert not learned(tmp_path, before, before.replace("Neg", "Exp")).learned


@pytest.mark.long
def test_attributes_that_no_place_states(tmp_path: Path) -> None:
    """Shape with an end is not the Shape that was learned from."""
    before = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (int64 y) {
        s = Shape (x) y = ReduceProd <keepdims = 0> (s) }"""
    after = "g (float[2,3] x) => (int64 y) { y = Size (x) }"
    (item,) = learned(tmp_path, before, f'<ir_version: 8, opset_import: ["" : 17]> {after}').learned
    own, other = (
        model_from_bytes(proto_from_text(text).SerializeToString())
        for text in (before, before.replace("Shape (x)", "Shape <end = 1> (x)"))
    )
    assert rewrite(own, [item.rule]).rounds == 1
    assert rewrite(other, [item.rule]).rounds == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (
            "<float hi = {inf}> { a = Abs (x) y = Min (a, hi) }",
            "{ y = Abs (x) }",
            "min_1 = Min(x, 1e999)",
        ),
        (
            "{ a = Abs (x) y = Neg (a) }",
            "<float lo = {-inf}, float z = {0}> { a = Abs(x) b = Neg (a) y = Clip (b, lo, z) }",
            "Clip(Neg(abs_1), -1e999, 0.0)",
        ),
    ],
)
def test_infinities_are_written(tmp_path: Path, before: str, after: str, found: str) -> None:
    """The language writes an infinity as 1e999."""
    start = OWN + "g (float[2] x) => (float[2] y) "
    outcome = learned(tmp_path, start + before, start + after, DEFAULT_TRIALS)
    assert found in texts(outcome)[0]
    assert outcome.learned[0].trial.verdict == "passed"


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (
            "<float lo = {nan}> { a = Abs(x) b = Neg (a) y = Max (b, lo) }",
            "a rule cannot write nan",
        ),
        (
            "{ a = Abs(x) y = my.Foo_Bar (a) }",
            "a rule cannot write the name of the operator 'my.Foo-Bar'",
        ),
        (
            """<float s = {0.5}, int8 z = {3}> { a = Abs (x) b = Neg (a)
               q = QuantizeLinear (b, s, z) y = DequantizeLinear (q, s, z) }""",
            "a rule cannot write a constant of int8 beside other types",
        ),
    ],
)
def test_what_a_rule_cannot_write(tmp_path: Path, after: str, reason: str) -> None:
    """The reason says what it is."""
    start = OWN + "g (float[2] x) => (float[2] y) "
    made = proto_from_text(start + after)
    for node in made.graph.node:
        node.op_type = node.op_type.replace("_", "-")  # no text can name it
    paths = save(tmp_path, start + "{ a = Abs (x) y = Neg (a) }", made)
    outcome = learn_rewrites(*paths)
    (left,) = outcome.left
    assert left.what.endswith(f": {reason}")


def test_what_differs_everywhere_is_not_tried(tmp_path: Path) -> None:
    """Rules for one place each would say no more than the second model."""
    scaled = [f"a{n} = Mul (t{n}, f{n}) t{n + 1} = Tanh (a{n})" for n in range(6)]
    factors = ", ".join(f"float f{n} = {{{0.37 + n * n}}}" for n in range(6))
    head = "g (float[2] t0) => (float[2] y)"
    before = " ".join(f"t{n + 1} = Tanh (t{n})" for n in range(6))
    outcome = learned(
        tmp_path,
        f"{head} {{ {before} y = Neg (t6) }}",
        f"{head} <{factors}> {{ {' '.join(scaled)} y = Neg (t6) }}",
    )
    assert not outcome.learned
    assert any("each of the 6 places has numbers of its own" in what for what, *_ in outcome.left)


def test_nodes_that_only_share_a_constant_are_no_pattern(tmp_path: Path) -> None:
    """A search for them would go through all choices of such nodes."""
    head = "g (float[2] x, float[2] z) => (float[2] y, float[2] v) <float[1] w = {3}"
    outcome = learned(
        tmp_path,
        head + "> { y = Mul (x, w) v = Mul (z, w) }",
        head + ", float[1] b = {2}> { s = Add (w, b) y = Div (x, s) v = Div (z, s) }",
    )
    reason = "the nodes have nothing but constants in common, which is no pattern"
    assert (outcome.learned, outcome.left) == ((), ((f"2 Mul -> Add, 2 Div: {reason}", 1, ""),))


RULES = [
    ("Add(x, Neg(y))", "Sub(x, y)"),
    ("Neg(Neg(x))", "x"),
    ("Neg(Sub(x, y))", "Sub(y, x)"),
    ("Mul(Neg(x), Neg(y))", "Mul(x, y)"),
    ("Relu(Relu(x))", "Relu(x)"),
    ("Sub(x, Mul(y, z))", "Add(x, Mul(Neg(y), z))"),
]


@pytest.mark.long
@given(graphs(max_nodes=12), st.sampled_from(RULES))
def test_learns_back_what_a_rule_did(
    tmp_path: Path, graph: RandomGraph, texts: tuple[str, str]
) -> None:
    """What is learned from a model and what a rule made of it makes the same of the model."""
    pattern, becomes = texts
    done = rewritten(graph.text(), [rewrite_rule(pattern, becomes)])
    paths = save(tmp_path, done.before, done.after)
    outcome = learn_rewrites(*paths, trials=0, unproved=True, verify=False)
    if not done.done.rounds:
        assert (outcome.learned, outcome.left) == ((), ())
        return
    if outcome.yaml:
        check_catalogue(outcome, paths)
    assert outcome.learned or outcome.left
