"""How much of the work is inside matches, and what was left out and why."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dplcli.errors import UsageError
from dplcli.onnx_io import load_model, model_from_proto, to_proto
from dplcli.onnx_io.infer import Inference
from dplcli.outcomes.partitioning import Covered
from dplcli.passes.partition import partition
from dplcli.passes.select import NO_FIT, NO_ROOT, NO_RULE, fates, select_matches
from dplcli.pipeline.inspecting import exact_types
from dplcli.pipeline.matching import Measuring
from dplcli.report.json import parts_of
from dplcli.report.layout import lines_of
from dplcli.report.partition import coverage_report
from tests.support.helpers import model_from_text, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from dplcli.ir import Model
    from dplcli.language import PatternRule
    from dplcli.passes.select import Coverage, Selection

ROOT = Path(__file__).parents[2]

NET = """g (float[2, 3] x, float[3, 5] w, float[5] b) => (y, z, u) {
    p = MatMul (x, w) q = Add (p, b) y = Relu (q)
    r = MatMul (x, w) z = Tanh (r)
    s = Sigmoid (r) u = Relu (s) }"""
DENSE = rule("Relu(MatMul(x, w) + b)", name="dense")


def measured_coverage(model: Model, selection: Selection, sizes: dict[str, int]) -> Coverage:
    """Measure a model that nobody runs."""
    return Measuring(model, fates(model, selection), sizes, can_wait=False).coverage(None)


def measured(model: Model | str, *rules: PatternRule, **sizes: int) -> Coverage:
    """Match *rules* in a model and measure."""
    model = model if not isinstance(model, str) else model_from_text(model)
    return measured_coverage(model, select_matches(model, rules), sizes)


def printed(coverage: Coverage, *, verbose: bool = False) -> list[str]:
    """Return the report's lines, as in a pipe."""
    lines = lines_of(coverage_report(coverage, verbose=verbose), None, is_ascii=False)
    return [line.plain.rstrip() for line in lines]


def test_work_inside_and_outside_is_counted() -> None:
    """The covered product, sum and activation; the rest by operator, biggest first."""
    found = measured(NET, DENSE)
    inside, whole = found.total

    assert (inside.nodes, inside.flops) == (3, 60 + 10 + 10)
    assert (whole.nodes, whole.flops) == (7, 60 + 10 + 10 + 60 + 10 + 10 + 10)
    assert found.by_op["MatMul"].inside.flops == 60
    assert found.by_op["MatMul"].whole.flops == 120
    assert found.by_target["t"].flops == 80
    assert [(i.op, i.work.flops, i.reason) for i in found.left_out] == [
        ("MatMul", 60, NO_ROOT),
        ("Relu", 10, NO_FIT),
        ("Sigmoid", 10, NO_RULE),
        ("Tanh", 10, NO_RULE),
    ]


def test_a_refusal_is_the_reason() -> None:
    """With the rule, the stage, and the first reason of several."""
    text = """g (float[2] x, float[3] v) => (y, z) { y = Relu (x) z = Relu (v) }"""
    (item,) = measured(text, rule("Relu(x)", "x.rank == 2", name="k")).left_out

    assert (item.op, item.rule, item.stage, item.work.nodes) == ("Relu", "t.k", "where", 2)
    assert "x.rank" in item.reason


def test_of_several_refusals_the_first_rule_speaks() -> None:
    """It has the higher priority."""
    rules = [rule("Relu(x)", f"x.rank == {rank}", name=f"k{rank}") for rank in (2, 3)]
    (item,) = measured("g (float[2] x) => (y) { y = Relu (x) }", *rules).left_out

    assert item.rule == "t.k2"


def test_of_several_refusals_the_nearest_one_speaks() -> None:
    """What fits but for a reader outside is nearer than what wants another rank or constant."""
    text = """g (float[2] x) => (y, z) { r = Exp (x) y = Relu (r) z = Neg (r) }"""
    far, near = rule("Relu(r)", "r.rank == 4", name="far"), rule("Relu(Exp(x))", name="near")

    for rules in ((far, near), (near, far)):
        (item,) = [item for item in measured(text, *rules).left_out if item.op == "Relu"]
        assert (item.rule, item.stage) == ("t.near", "escape")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ('Relu(op(kind="elementwise")(x))', NO_ROOT),
        ("Relu(op()(x))", NO_ROOT),
        ('Relu(op(kind="reduction")(x))', NO_RULE),
        ("Relu(~Sigmoid(x))", NO_ROOT),
        ("Relu(repeat(Sigmoid, Neg(x), min=1))", NO_ROOT),
        ("dominates(Neg(_), Sigmoid(_), Relu(_))", NO_ROOT),
        ("Tanh(x) | Sigmoid(Neg(x))", NO_FIT),
        ('op(kind="reduction")(x)', NO_RULE),
    ],
)
def test_the_reason_knows_every_kind_of_pattern(pattern: str, reason: str) -> None:
    """Classes of operators, chains and alternatives name operators, too."""
    found = measured("g (float[2] x) => (y) { y = Sigmoid (x) }", rule(pattern))

    assert [item.reason for item in found.left_out] == [reason]


def test_unknown_costs_are_counted_and_never_zero() -> None:
    """A foreign operator makes itself, and what reads it, unknown."""
    text = """<ir_version: 8, opset_import: ["" : 17, "c" : 1]>
        g (float[2] x) => (y, z) { t = c.own (x) y = Relu (t) z = Relu (x) }"""
    found = measured(text, rule("Relu(x)"))

    assert (found.total.inside.unknown, found.total.whole.unknown) == (1, 2)
    assert "What 2 nodes cost is not known (1 inside functions)." in printed(found)


def test_two_targets_have_shares_of_their_own() -> None:
    """And the sentence tells them."""
    other = rule("Tanh(x)", name="other", target="o")
    lines = printed(measured(NET, DENSE, other))

    assert lines[0] == "They do 53 % of the work, 90 FLOP of 170 FLOP: o 6 %; t 47 %."


# -- sizes -----------------------------------------------------------------------------------------

SYMBOLIC = """g (float[n, 3] x, float[3, 5] w, float[m, 2] v) => (y, z) {
    y = MatMul (x, w) z = Relu (v) }"""


def test_sizes_that_are_missing_are_asked_for() -> None:
    """By the name that --shape takes; no share is told of what is mostly unknown."""
    found = measured(SYMBOLIC)
    lines = printed(found)

    assert lines[0] == (
        "What 2 nodes cost is not known (0 inside functions); "
        "give the sizes of the inputs: --shape n=N --shape m=N"
    )
    assert not any("%" in line for line in lines)


def test_given_sizes_make_costs_known() -> None:
    """Of symbols, each on its own."""
    found = measured(SYMBOLIC, n=7, m=1)

    assert (found.total.whole.flops, found.total.whole.unknown) == (2 * 7 * 15 + 2, 0)
    assert measured(SYMBOLIC, n=7).symbols == ("m",)


def test_a_size_that_no_input_has_is_refused() -> None:
    """A slip of the pen is no silent guess."""
    with pytest.raises(UsageError, match="no input has a dimension 'k'"):
        measured(SYMBOLIC, k=7)


def test_an_axis_without_a_name_is_given_by_input_and_number() -> None:
    """As in the checks."""
    proto_text = "g (float[n, 3] x) => (y) { y = Relu (x) }"
    proto = to_proto(model_from_text(proto_text))
    proto.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    model = model_from_proto(proto, Path(), "again")

    assert measured(model).symbols == ("x:0",)
    assert measured(load_anew(model), **{"x:0": 5}).total.whole.flops == 15


def load_anew(model: Model) -> Model:
    """Load the protobuf message of a model again."""
    return model_from_proto(to_proto(model), Path(), "again")


ARITHMETIC = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n, 8] x) => (y) {
        s = Shape (x)
        zero = Constant <value = int64[1] {0}> ()
        one = Constant <value = int64[1] {1}> ()
        two = Constant <value = int64[1] {2}> ()
        n = Slice (s, zero, one)
        half = Div (n, two)
        eight = Slice (s, one, two)
        twice = Mul (eight, two)
        target = Concat <axis = 0> (half, twice)
        r = Reshape (x, target)
        last = Sub (half, one)
        part = Slice (r, zero, last)
        y = Relu (part) }"""


def test_arithmetic_on_shapes_is_followed() -> None:
    """Where onnx gives up (Div), what is computed from shapes is evaluated."""
    model = model_from_text(ARITHMETIC)
    types, problem = exact_types(model, {"n": 6})
    shapes = {v.name: types[v].shape for v in model.graph.values.values() if v in types}

    assert problem == ""
    assert shapes["r"] == (3, 16)
    assert shapes["y"] == (2, 16)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("deit", {"batch": 2}),
        ("resnet18_bn", {}),
        ("super_resolution", {}),
        ("light_squeezenet", {}),
        ("residual_block", {}),
    ],
)
def test_the_cost_of_every_node_of_the_samples_is_known(name: str, sizes: dict[str, int]) -> None:
    """Once the batch is."""
    model = load_model(ROOT / "sample_models" / f"{name}.onnx")
    missing = set(measured(model).symbols) - sizes.keys()
    sizes |= dict.fromkeys(missing, 1)
    found = measured(load_model(ROOT / "sample_models" / f"{name}.onnx"), **sizes)

    assert found.total.whole.unknown == 0
    assert found.total.whole.flops > 0


# -- reports ---------------------------------------------------------------------------------------


def test_the_record_keeps_its_keys_and_adds_costs() -> None:
    """Programs that read the counts go on working."""
    model = model_from_text(NET)
    selection = select_matches(model, [DENSE])
    record = parts_of(Covered.of_selection(selection, measured_coverage(model, selection, {})))

    assert parts_of(Covered.of_selection(selection, None)).keys() == {"nodes", "of", "by_op"}
    assert (record["nodes"], record["of"]) == (3, 7)
    unknown = {"covered": 0, "of": 0}
    assert record["flops"] == {"covered": 80, "of": 170, "unknown": unknown}
    assert record["by_op"]["MatMul"] == {
        "covered": 1,
        "of": 2,
        "flops": {"covered": 60, "of": 120, "unknown": unknown},
    }
    assert record["by_target"] == {"t": {"nodes": 3, "flops": 80, "unknown": 0}}
    assert record["left_out"][0] == {
        "op": "MatMul", "nodes": 1, "flops": 60, "unknown": 0, "rule": "", "stage": "",
        "reason": NO_ROOT,
    }  # fmt: skip


def test_a_node_in_two_functions_counts_once() -> None:
    """Both calls compute the dequantisation; it is one node, wherever it is counted."""
    model = model_from_text(
        """g (int8[4] x, float s) => (y, z) {
            d = DequantizeLinear (x, s) y = Relu (d) z = Relu (d) e = Tanh (y) }"""
    )
    selection = select_matches(model, [rule("Relu(DequantizeLinear(x, s))", name="qrelu")])
    covered = Covered.of_selection(selection, measured_coverage(model, selection, {}))

    assert [len(match.nodes) for match in selection.matches] == [2, 2]
    assert (covered.nodes, covered.of) == (3, 4)
    assert covered.measured is not None
    assert sum(item.work.nodes for item in covered.measured.left_out) == 1


def test_the_report_shows_the_biggest_and_verbose_everything() -> None:
    """Five kinds in short; data that moves is only in the long one."""
    ops = ("Abs", "Neg", "Exp", "Sin", "Cos", "Tan", "Identity")
    nodes = " ".join(f"y{i} = {op} (x{min(i, 1)})" for i, op in enumerate(ops))
    outputs = ", ".join(f"y{i}" for i in range(len(ops)))
    found = measured(f"g (float[2000] x0, float[5] x1) => ({outputs}) {{ {nodes} }}")
    short, full = printed(found), printed(found, verbose=True)

    assert short[0] == "They do 0 % of the work, 0 of 2.02 kFLOP."
    assert short[3].split()[:4] == ["Abs", "1", "2.00", "kFLOP"]
    assert short[-1] == "1 more kind of node is left out (--verbose)."
    assert not any("Identity" in line for line in short)
    assert sum("Identity" in line for line in full) == 2


def test_an_empty_model_is_no_error() -> None:
    """No node, no share."""
    found = measured("g (float[2] x) => (x) { }")

    assert found.total.whole.nodes == 0
    assert printed(found) in ([], [""])


@pytest.mark.parametrize(
    "nodes",
    [
        "r = Constant <value = int64[2] {30000, 30000}> () y = Expand (a, r)",
        "r = Constant <value = int64[1] {1000000000}> () y = Tile (a, r)",
        "r = Constant <value = int64[1] {100000000000}> () y = ConstantOfShape (r)",
        "r = Constant <value = int64[1] {-7}> () y = ConstantOfShape (r)",
        "r = Constant <value = int64 {99999999999}> () t = Squeeze (r) y = Range (t, r, t)",
        "y = Constant () r = Identity (y)",
    ],
)
def test_hostile_arithmetic_on_shapes_takes_no_time(nodes: str) -> None:
    """What would be long, or is nonsense, is not computed."""
    text = f"""g (float[2] x) => (y, z) {{
        a = Constant <value = int64[2] {{0, 1}}> () {nodes} z = Relu (x) }}"""
    peak = tracemalloc_peak(lambda: exact_types(model_from_text(text), {}))

    assert peak < 50_000_000
    assert measured(text).by_op["Relu"].whole.flops == 2


def tracemalloc_peak(work: Callable[[], object]) -> int:
    """Return how many bytes of Python's and numpy's memory *work* takes at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_values_found_by_place_are_followed() -> None:
    """NonZero says nothing of its length; that of a short value is computed."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] x) => (y) {
            s = Shape (x) ones = ConstantOfShape <value = int64[1] {1}> (s)
            flat = Constant <value = int64[1] {-1}> () line = Reshape (ones, flat)
            places = NonZero (line) y = Transpose (places) }"""
    model = model_from_text(text)
    types, _ = exact_types(model, {"n": 3})

    assert types[model.graph.values["y"]].shape == (12, 1)


def test_a_constant_that_cannot_be_read_makes_costs_unknown() -> None:
    """Estimating never keeps a model from being partitioned."""
    text = """g (float[n, 4] x) => (y, z) <int64[2] shape = {2, 2}> {
        z = Relu (x) r = Reshape (x, shape) y = Neg (r) }"""
    proto = to_proto(model_from_text(text))
    proto.graph.initializer[0].ClearField("int64_data")
    proto.graph.initializer[0].raw_data = b"123"
    found = measured(model_from_proto(proto, Path(), "again"), n=3)

    assert found.by_op["Relu"].whole.flops == 12
    assert found.by_op["Neg"].whole.unknown == 1


def test_what_a_file_declares_is_not_inferred_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inference takes longer than all the rest, for a large model."""
    text = "g (float[2, 3] x) => (float[2, 3] y) <float[2, 3] r> { r = Relu (x) y = Neg (r) }"
    asked: list[Inference] = []
    monkeypatch.setattr(Inference, "run", asked.append)
    model = model_from_text(text)
    assert measured_coverage(model, select_matches(model, []), {}).total.whole.flops == 12
    assert not asked
    monkeypatch.undo()
    model = model_from_text(text.replace("<float[2, 3] r>", ""))
    assert measured_coverage(model, select_matches(model, []), {}).total.whole.flops == 12
    assert model.infer().types


CALLED = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
    g (float[N, 3] x, float[3, 3] w) => (y) { p = o.h (x, w) y = o.f (p, w) }
    <domain: "o", opset_import: ["" : 17, "o" : 1]> f (a, w) => (z) {
        m = MatMul (a, w) z = Relu (m) }
    <domain: "o", opset_import: ["" : 17, "o" : 1]> h (a, w) => (z) {
        m = o.f (a, w) z = o.f (m, w) }
    <domain: "o", opset_import: ["" : 17, "o" : 1]> unused (a, w) => (z) {
        z = MatMul (a, w) }"""


@pytest.mark.parametrize("sizes", [{}, {"N": 2}])
def test_work_inside_functions_counts_as_often_as_they_are_called(sizes: dict[str, int]) -> None:
    """The function is called twice by another one, and once more; its nodes are two in the file."""
    text = CALLED if sizes else CALLED.replace("N,", "2,")
    found = measured(text, rule("Relu(MatMul(x, w))", name="dense"), **sizes)
    inside, whole = found.total
    assert (inside.nodes, inside.flops, inside.unknown) == (2, 3 * (36 + 6), 0)
    assert (whole.flops, whole.unknown) == (3 * (36 + 6), 1)
    assert found.by_op["o.f"].whole.flops == 0
    (left,) = [item for item in found.left_out if item.op == "MatMul"]
    assert (left.work.nodes, left.work.flops, left.work.unknown) == (1, 0, 1)


def test_what_differs_between_calls_has_no_cost() -> None:
    """Two widths: the sum is not known; the part that is the same at each call is."""
    text = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 3] x, float[2, 5] v) => (y, z) { y = o.f (x) z = o.f (v) }
        <domain: "o", opset_import: ["" : 17]> f (a) => (z) {
            n = Neg (a) z = ReduceSum <keepdims = 0> (n) }"""
    found = measured(text, rule("Neg(x)", name="neg"))
    assert (found.by_op["Neg"].whole.flops, found.by_op["Neg"].whole.unknown) == (0, 1)


def test_an_attribute_that_callers_give_is_not_guessed() -> None:
    """The axis is the callers'; with zero in its place the sizes would be wrong."""
    text = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 3] x, float[N, 3] v) => (y, z) {
            y = o.f <axis = 0> (x) z = o.f <axis = 1> (x) }
        <domain: "o", opset_import: ["" : 17]> f <axis> (a) => (z) {
            c = Concat <axis : int = @axis> (a, a) z = Neg (c) }"""
    found = measured(text, rule("Relu(x)", name="relu"), N=2)
    assert (found.by_op["Neg"].whole.flops, found.by_op["Neg"].whole.unknown) == (0, 1)


def test_work_inside_functions_that_partitions_call_counts() -> None:
    """Outlined with the call, the function is still called, and from the function written."""
    text = """<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 3] x, float[3, 3] w) => (y) { r = Relu (x) y = o.f (r, w) }
        <domain: "o", opset_import: ["" : 17]> f (a, w) => (z) { z = MatMul (a, w) }"""
    model = model_from_text(text)
    rules = [rule("o.f(Relu(x), w)", name="both")]
    partition(model, select_matches(model, rules))
    found = measured(model_from_proto(to_proto(model), Path(), "m"), *rules)
    assert found.by_op["MatMul"].whole.flops == 36


def test_constants_are_neither_work_nor_nodes() -> None:
    """A Constant is data that stands in a node; one of another domain is a node."""
    text = """<ir_version: 8, opset_import: ["" : 17, "c" : 1]>
        g (float[2] x) => (y, z, k) {
            a = Constant <value = float[2] {1, 2}> () b = Constant <value = float[2] {3, 4}> ()
            k = c.Constant (x) s = Add (x, a) y = Relu (s) z = Mul (x, b) }"""
    model = model_from_text(text)
    selection = select_matches(model, [rule("Relu(Add(x, const(a)))", name="r")])
    found = measured_coverage(model, selection, {})
    record = parts_of(Covered.of_selection(selection, found))

    assert (found.total.inside.nodes, found.total.whole.nodes) == (2, 4)
    assert {item.op for item in found.left_out} == {"Mul", "c.Constant"}
    assert (record["nodes"], record["of"]) == (2, 4)
    assert "Constant" not in record["by_op"]
    assert record["by_op"]["c.Constant"]["of"] == 1


def test_a_constant_inside_a_match_is_no_node_inside() -> None:
    """As when it is embedded."""
    text = """g (float[2] x) => (y) { a = Constant <value = float[2] {1, 2}> () y = Add (x, a) }"""
    model = model_from_text(text)
    selection = select_matches(model, [rule("Add(x, Constant())", name="r")])
    record = parts_of(Covered.of_selection(selection, measured_coverage(model, selection, {})))
    assert (record["nodes"], record["of"], record["by_op"].keys()) == (1, 1, {"Add"})


def test_no_share_is_told_where_inference_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known may be nearly everything."""
    monkeypatch.setattr("dplcli.onnx_io.infer._MOST_STEPS", 0)
    monkeypatch.setattr("dplcli.onnx_io.infer._MOST_TIMES_STEPS", 0)
    calls = "".join(
        f"""<domain: "o", opset_import: ["" : 17, "o" : 1]> f{n} (x) => (z) {{
            t = o.f{n - 1} (x) z = o.f{n - 1} (t) }}"""
        for n in range(1, 40)
    )
    text = f"""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (float[2, 3] x) => (y, z) {{ y = Neg (x) z = o.f39 (x) }}
        <domain: "o", opset_import: ["" : 17, "o" : 1]> f0 (x) => (z) {{ z = Relu (x) }} {calls}"""
    lines = printed(measured(text, rule("Neg(x)")))
    assert not any("of the work" in line for line in lines)
    (line,) = [line for line in lines if "cost" in line]
    assert "does not look into all functions" in line


@pytest.mark.parametrize(
    "stated", ["(float[batch, 8] y) {", "(float[2, 8] y) <float[batch, 8] p> {"]
)
def test_a_symbol_that_is_stated_of_a_known_size_hides_no_work(stated: str) -> None:
    """The inputs have numbers alone, so that everything has."""
    model = model_from_text(
        f"g (float[2, 4] x, float[4, 8] w) => {stated} p = MatMul(x, w) y = Relu(p) }}"
    )
    model.infer()
    found = measured(model, rule("MatMul(x, w)"))
    inside, whole = found.total

    assert (inside.flops, whole.flops) == (128, 144)
