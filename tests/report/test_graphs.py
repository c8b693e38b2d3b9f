"""What the pictures of reports are told: which nodes belong together, steps, ranges, costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import pytest

from dplcli import pipeline
from dplcli.report.diff import drawn_models
from dplcli.report.document import Drawn, DrawnModel, DrawnPatterns, DrawnStep, key_of
from dplcli.report.explain import explain_document
from dplcli.report.partition import partition_document
from dplcli.report.picture import opened, picture_of, quantised_ranges
from dplcli.report.rewrite import rewrite_document
from dplcli.report.view import (
    beside_record,
    pattern_record,
    view_data,
)
from dplcli.settings import ExplainSettings, PartitionSettings, RewriteSettings
from tests.support.models import ir_of, parse

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.ir import Node


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write a model of four nodes, one of them in a body."""
    path = tmp_path / "m.onnx"
    onnx.save(
        parse(
            """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] y) {
            a = Neg(x) b = Neg(a) d = Relu(b)
            y = If (c) <
              then_branch = t () => (z) { z = Sin(d) }, else_branch = e () => (w) { w = Cos(d) }
            > }"""
        ),
        path,
    )
    return path


def graphs_of(drawn: Drawn) -> list[DrawnModel]:
    """Return what is drawn, which is models."""
    assert all(isinstance(each, DrawnModel) for each in drawn.models)
    return [each for each in drawn.models if isinstance(each, DrawnModel)]


def nodes_of(drawn: DrawnModel) -> dict[tuple[str, str], Node]:
    """Return the nodes of a model by what they go by in pictures."""
    return {
        key_of(node): node for graph in pipeline.view(drawn.path).model.graphs() for node in graph
    }


RULES = """dpl: 1
rewrites:
- {name: first, pattern: Neg(Neg(x)), replacement: Identity(Abs(x))}
- {name: second, pattern: Relu(Identity(Abs(x))), replacement: Sqrt(Abs(x))}
- {name: inner, pattern: Sin(x), replacement: Tan(x)}
"""


def drawn_by_rewriting(model: Path, output: Path) -> Drawn:
    """Rewrite *model* by the rules, and return what the page draws."""
    rules = model.parent / "rules.yaml"
    rules.write_text(RULES)
    settings = RewriteSettings(verify=False, in_place=output == model)
    outcome = pipeline.rewrite(model, settings.but(output=output, patterns=[str(rules)]))
    document = rewrite_document(outcome, file=model, catalogs=())
    return document.draws()


def test_a_step_on_a_step_stands_for_what_it_came_from_and_became(
    model: Path, tmp_path: Path
) -> None:
    """What the second rule takes, the first one made: in the files both are of the same nodes."""
    drawn = drawn_by_rewriting(model, tmp_path / "r.onnx")
    makers = [
        {scope_and_output: node.op_type for scope_and_output, node in nodes_of(each).items()}
        for each in graphs_of(drawn)
    ]
    found = {
        step.title.partition(" ")[2]: [
            sorted(known[key] for key in keys)
            for keys, known in zip(step.nodes, makers, strict=True)
        ]
        for step in drawn.steps
    }

    assert found == {
        "first": [["Neg", "Neg"], ["Abs", "Sqrt"]],
        "second": [["Neg", "Neg", "Relu"], ["Abs", "Sqrt"]],
        "inner": [["Sin"], ["Tan"]],
    }
    assert set(graphs_of(drawn)[0].marks.values()) == {"removed"}
    assert set(graphs_of(drawn)[1].marks.values()) == {"added"}


def test_what_replaces_its_own_file_is_drawn_alone(model: Path) -> None:
    """The file before is gone."""
    drawn = drawn_by_rewriting(model, model)

    assert [each.path for each in graphs_of(drawn)] == [model]
    assert set(graphs_of(drawn)[0].marks.values()) == {"added"}
    assert list(drawn.steps) == []


def test_a_partition_takes_nodes_and_leaves_a_call(tmp_path: Path) -> None:
    """Each step has the nodes of a match, and the call that stands for them."""
    path = tmp_path / "m.onnx"
    onnx.save(
        parse(
            """m (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {2}> {
            a = Conv(x, w) b = Relu(a) c = Conv(b, w) y = Relu(c) }"""
        ),
        path,
    )
    outcome = pipeline.partition(
        path, PartitionSettings(output=tmp_path / "p.onnx", patterns=["conv_relu"], verify=False)
    )
    document = partition_document(outcome, file=path)
    drawn = document.draws()

    assert [[list(keys) for keys in step.nodes] for step in drawn.steps] == [
        [[("main", "a"), ("main", "b")], [("main", "b")]],
        [[("main", "c"), ("main", "y")], [("main", "y")]],
    ]
    assert set(graphs_of(drawn)[0].marks) == {("main", name) for name in "abcy"}
    assert ("nodes of the main graph before", "4") in document.facts
    assert ("nodes of the main graph after", "2") in document.facts


def test_nodes_belong_together_by_what_is_said_then_by_name() -> None:
    """Where something is said of one of two, a shared name says nothing."""
    first = picture_of(
        ir_of("m (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Relu(b) }"), ""
    )
    second = picture_of(
        ir_of("m (float[2] x) => (float[2] y) { b = Neg(x) q = Abs(b) y = Relu(q) }"), ""
    )
    shown = [first, second]
    pairs = [(("main", "a"), ("main", "b")), (("main", "b"), ("main", "q"))]
    unseen = (("main", "gone"), ("main", "b"))

    assert beside_record(shown, Drawn())["pairs"] == [(1, 0), (2, 2)]
    assert beside_record(shown, Drawn(pairs=[*pairs, unseen]))["pairs"] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


def test_a_node_whose_output_has_another_name_is_known_by_its_own() -> None:
    """If no other has it, and it is of the same operator."""
    first, second = (
        ir_of("m (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Relu(b) }"),
        ir_of("m (float[2] x) => (float[2] z) { q = Neg(x) r = Abs(q) z = Elu(r) }"),
    )
    for model in (first, second):
        for node, name in zip(model.graph, ("one", "two", "three"), strict=True):
            node.name = name
    shown = [picture_of(model, "") for model in (first, second)]
    assert beside_record(shown, Drawn())["pairs"] == [(0, 0), (1, 1)]

    next(iter(second.graph)).name = "two"
    assert beside_record(shown, Drawn())["pairs"] == [(1, 1)]


def test_a_node_that_takes_the_output_of_another_stays_itself() -> None:
    """As when an Identity behind it is dropped: its own name says more than that of its output."""
    first = ir_of("m (float[2] x) => (float[2] y) { a = Neg(x) y = Identity(a) }")
    second = ir_of("m (float[2] x) => (float[2] y) { y = Neg(x) }")
    for model in (first, second):
        next(iter(model.graph)).name = "one"
    shown = [picture_of(model, "") for model in (first, second)]

    assert beside_record(shown, Drawn())["pairs"] == [(0, 0)]


def test_a_step_about_nothing_that_is_drawn_is_left_out() -> None:
    """Such as one that removes a Constant."""
    picture = picture_of(ir_of("m (float[2] x) => (float[2] y) { a = Neg(x) y = Abs(a) }"), "")
    steps = [
        DrawnStep("1. gone", "", ([("main", "c")], [("main", "d")])),
        DrawnStep("2. <b>\n", "text", ([("main", "c"), ("main", "y")], [])),
    ]

    assert beside_record([picture, picture], Drawn(steps=steps))["steps"] == [
        ["2. <b>\\n", "text", [1], []]
    ]


def test_equal_models_are_one_picture(model: Path, tmp_path: Path) -> None:
    """Two that differ are two, with pairs that no name tells."""
    other = tmp_path / "o.onnx"
    renamed = onnx.load(model)
    for node in renamed.graph.node:
        node.input[:] = [name.replace("b", "other") for name in node.input]
        node.output[:] = [name.replace("b", "other") for name in node.output]
    onnx.save(renamed, other)
    same = drawn_models(pipeline.diff(model, other), (model, other))
    assert [each.path for each in graphs_of(same)] == [model]
    assert same.note == "Both models have this graph."

    renamed.graph.node[0].op_type = "Abs"
    onnx.save(renamed, other)
    drawn = drawn_models(pipeline.diff(model, other), (model, other))
    assert [each.path for each in graphs_of(drawn)] == [model, other]
    assert (("main", "b"), ("main", "other")) in drawn.pairs


def ranges_of(text: str) -> list[tuple[str, float, float, str]]:
    """Return the quantised ranges of the first node of a graph."""
    return [(*each,) for each in quantised_ranges(next(iter(ir_of(text).graph)))]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            "<float s = {0.5}, uint8 z = {128}> { y = QuantizeLinear(x, s, z) }",
            [("y", -64.0, 63.5, "uint8, in steps of 0.5")],
        ),
        (
            "<float s = {0.5}> { y = QuantizeLinear(x, s) }",
            [("y", 0.0, 127.5, "uint8, in steps of 0.5")],
        ),
        (
            "<float[2] s = {0.5, 2}, int8[2] z = {0, 10}> { y = QuantizeLinear(x, s, z) }",
            [("y", -276.0, 234.0, "int8, in steps of 0.5 to 2 (2 of them)")],
        ),
        ("<float[2] s = {1, 2}, int8[3] z = {0, 1, 2}> { y = QuantizeLinear(x, s, z) }", []),
        ("<int8 z = {0}> { s = Abs(x) y = QuantizeLinear(x, s, z) }", []),
        ("{ y = Relu(x) }", []),
        (
            "<int8[2] q = {1, 2}, float s = {2}> { y = DequantizeLinear(q, s) }",
            [("x", -256.0, 254.0, "int8, in steps of 2")],
        ),
    ],
)
def test_the_numbers_that_a_quantised_tensor_can_hold(
    nodes: str, expected: list[tuple[str, float, float, str]]
) -> None:
    """By scale and zero point, per tensor or channel; nothing where either is not known or fits."""
    found = [
        each
        for node in ir_of(f"m (float[2] x) => (y) {nodes}").graph
        for each in quantised_ranges(node)
    ]

    assert list(map(tuple, found)) == expected


def test_all_tensors_of_a_quantised_operator_have_ranges() -> None:
    """Each role's scale and zero point stand behind it."""
    found = ranges_of(
        """m (uint8[1,1,2,2] x) => (uint8[1,1,2,2] y)
        <float xs = {0.1}, uint8 xz = {0}, uint8[1,1,1,1] w = {1}, float ws = {1},
         uint8 wz = {128}, float ys = {2}, uint8 yz = {1}> {
        y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz) }"""
    )

    assert [(role, low, high) for role, low, high, _ in found] == [
        ("x", 0.0, pytest.approx(25.5)),
        ("w", -128.0, 127.0),
        ("y", -2.0, 508.0),
    ]


def test_costs_are_counted_with_sizes_that_are_given(tmp_path: Path) -> None:
    """Without, those that depend on them are not known, and it is said which they are."""
    path = tmp_path / "m.onnx"
    onnx.save(
        parse(
            """m (float[n,3] x) => (float[n,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}> {
            y = MatMul(x, w) }"""
        ),
        path,
    )
    plain, sized = pipeline.view(path), pipeline.view(path, {"n": 5})
    by_shape = pipeline.view(path, {"x": (5, 3)})

    assert (list(plain.costs.values()), plain.open_sizes) == ([], ("n",))
    assert (list(sized.costs.values()), sized.open_sizes) == ([60], ())
    assert list(by_shape.costs.values()) == [60]
    picture = picture_of(sized.model, "")
    assert view_data(picture, opened(picture)).as_page()["open"] == []


def test_a_nearest_miss_is_a_tree_beside_the_model(model: Path) -> None:
    """Parts lead to what they are parts of; what failed is marked on both sides."""
    rules = model.parent / "p.yaml"
    rules.write_text("dpl: 1\ntarget: t\npatterns:\n- {name: p, pattern: 'Relu(Neg(Abs(x)))'}\n")
    outcome = pipeline.explain(model, ExplainSettings(patterns=[str(rules)]))
    drawn = explain_document(outcome, file=model).draws()
    patterns, beside = drawn.models
    assert isinstance(patterns, DrawnPatterns)
    assert isinstance(beside, DrawnModel)
    record = pattern_record(patterns)
    ops = [record["ops"][row[0]][0] for row in record["nodes"]]

    assert ops == ["Relu", "Neg", "Abs", "x"]
    assert [row[5].get("mark") for row in record["nodes"]] == ["fits", "fits", "does not fit", ""]
    assert [row[2] for row in record["nodes"]] == [[1], [2], [3], []]
    assert [row[3] for row in record["nodes"]] == [[0], [1], [2], [3]]
    assert beside.marks == {
        ("main", "d"): "fits",
        ("main", "b"): "fits",
        ("main", "a"): "does not fit",
    }
    drawn_model = picture_of(pipeline.view(model).model, "")
    (step,) = beside_record([patterns, drawn_model], drawn)["steps"]
    assert step[0].endswith("p")
    assert "expected Abs" in step[1]
    assert step[2] == [0, 1, 2, 3]


def test_rules_without_a_near_miss_draw_the_model_alone(model: Path) -> None:
    """Nothing of them is to be seen."""
    rules = model.parent / "p.yaml"
    rules.write_text("dpl: 1\ntarget: t\npatterns:\n- {name: p, pattern: 'Erf(x)'}\n")
    outcome = pipeline.explain(model, ExplainSettings(patterns=[str(rules)]))
    drawn = explain_document(outcome, file=model).draws()

    assert [type(each) for each in drawn.models] == [DrawnModel]
    assert list(drawn.steps) == []
