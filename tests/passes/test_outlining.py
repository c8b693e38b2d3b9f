"""What is partitioned on the table is as if it were on objects: bytes, report and record."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from dplcli import pipeline
from dplcli.dpl import PatternRule
from dplcli.dpl.conditions import Condition
from dplcli.dpl.rule import Policies
from dplcli.ir.relations import distinct_lists
from dplcli.onnx_io import read
from dplcli.passes import tabular
from dplcli.pipeline import matching, partitioning
from dplcli.report.partition import match_document, partition_document
from tests.corpus.matrix import CONSTANTS, TARGETS
from tests.corpus.nets import each_model, listed_models, real_model
from tests.helpers import pattern_of, proto_from_text
from tests.strategies import RandomGraph, graphs, near_patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Node
    from dplcli.passes.tabular import RowSelection, TypedRows

BODIES = {AttributeProto.GRAPH, AttributeProto.GRAPHS}


class Run:
    """One partition of a model: the file, what is said of it, and whether objects were needed."""

    def __init__(self, data: bytes, *, on_table: bool, **options: Any) -> None:  # noqa: ANN401
        """Partition *data*."""
        self.was_on_table = False
        self.had_objects = True
        policies = Policies(constants=[c] if (c := options.pop("constants", "")) else ())
        select = tabular.select_rows

        def spy(rows: TypedRows, rules: Sequence[Any]) -> RowSelection | None:
            found = select(rows, rules) if on_table else None
            self.was_on_table = found is not None
            self.had_objects = not rows.has_exact_types
            return found

        with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
            patch.setattr(partitioning, "select_rows", spy)
            patch.setattr(partitioning, "MANY_NODES", 0)
            model, output = Path(name) / "m.onnx", Path(name) / "result.onnx"
            model.write_bytes(data)
            outcome = pipeline.partition(
                model,
                output=output,
                settings=pipeline.PartitionSettings(verify=False, measure=True),
                policies=policies,
                **options,
            )
            self.data = output.read_bytes()
            documents = [
                partition_document(outcome, is_verified=False, verbose=verbose)
                for verbose in (False, True)
            ]
            where = str(Path(name).resolve())
            self.texts = [repr(shown(document.text)).replace(where, "") for document in documents]
            self.record = repr(documents[0].record()).replace(where, "")
            self.count = len(outcome.partitions)
            self.refused = len(outcome.selection.refused)


def shown(part: Any) -> object:  # noqa: ANN401  # any part of a report
    """Return what a report shows, as plain values."""
    if isinstance(part, (str, int, float, type(None))):
        return part
    if isinstance(part, (list, tuple)):
        return [shown(item) for item in part]
    if hasattr(part, "__dict__"):
        return {key: shown(item) for key, item in vars(part).items()}
    return str(part)


def same(data: bytes, **options: Any) -> Run:  # noqa: ANN401
    """Partition a model both ways; return the run on the table, if that decided it."""
    found = Run(data, on_table=True, **options)
    expected = Run(data, on_table=False, **options)
    assert found.data == expected.data
    assert found.texts == expected.texts
    assert found.record == expected.record
    return found


def stated(proto: onnx.ModelProto) -> bytes | None:
    """Return a model with sizes for all dimensions and types for all values, as far as known.

    None for one with functions or bodies.
    """
    nodes = proto.graph.node
    if proto.functions or any(a.type in BODIES for node in nodes for a in node.attribute):
        return None
    stored = {tensor.name for tensor in proto.graph.initializer}
    given_only = [info for info in proto.graph.input if info.name not in stored]
    del proto.graph.input[:], proto.graph.value_info[:]
    proto.graph.input.extend(given_only)
    proto.ir_version = max(proto.ir_version, 4)
    for info in proto.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_value = 4
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    try:
        found: bytes = onnx.shape_inference.infer_shapes(proto, data_prop=True).SerializeToString()
    except (ValueError, onnx.shape_inference.InferenceError):
        return None
    return found


CHOICES = list(product(TARGETS, CONSTANTS))


@pytest.mark.long
@pytest.mark.parametrize("name", each_model(listed_models()))
def test_real_models(name: str) -> None:
    """Real models, decided on the table of their objects; with all types stated, on it alone.

    Every other one has them stated.
    """
    proto = onnx.load(real_model(name), load_external_data=False)
    data = proto.SerializeToString()
    if [*listed_models()].index(name) % 2:
        data = stated(proto) or data
    target, constants = CHOICES[len(data) % len(CHOICES)]
    same(data, targets=[target], constants=constants)


# Small nets.


NET = """
net (float[1, 8, 6, 6] x, float[1, 8, 6, 6] r) => (float[1, 8, 6, 6] y, float[1, 8, 6, 6] z)
<float[8, 8, 1, 1] w, float[8, 8, 3, 3] v, float[1, 8, 1, 1] b, float[1, 1, 1, 6] c> {
    c1 = Conv(x, w)
    a1 = Add(c1, b)
    r1 = Relu(a1)
    [second] c2 = Conv<pads = [1, 1, 1, 1]>(r1, v)
    a2 = Add(c2, b)
    s2 = Add(a2, r)
    r2 = Relu(s2)
    c3 = Conv(r2, w)
    a3 = Add(c3, c)
    r3 = Relu(a3)
    c4 = Conv(r3, w)
    a4 = Add(c4, b)
    z = Relu(a4)
    [odd] c5 = Conv(z, w)
    n = Neg(c4)
    a5 = Add(c5, b)
    r5 = Relu(a5)
    y = Add(n, r5)
}
"""


def net(text: str = NET) -> onnx.ModelProto:
    """Read a net and state all types."""
    proto = proto_from_text(text)
    for info in proto.graph.value_info:
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        tensor = numpy_helper.from_array(np.zeros(dims, np.float32), info.name)
        proto.graph.initializer.append(tensor)
    del proto.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(proto)


def test_a_net() -> None:
    """Kinds with and without attributes, a node between, two refused for different reasons."""
    found = same(net().SerializeToString(), patterns=["conv_relu"])
    assert found.was_on_table
    assert not found.had_objects
    assert (found.count, found.refused) == (3, 4)


def rule_of(pattern: str, *where: str, name: str = "r", **settings: Any) -> PatternRule:  # noqa: ANN401
    """Make a rule that lifts constants."""
    policies = {"constants": "lift", **settings}
    conditions = tuple(map(Condition, where))
    return PatternRule(
        target="t", name=name, pattern=pattern_of(pattern), where=conditions, **policies
    )


ADD_RELU = "a = Add(x, y)\nRelu(a)"
RULES = [
    [rule_of("c = Conv(x, w)\na = Add(c, b)\nRelu(a)")],
    [rule_of("c = Conv(x, w)\na = Add(c, b)\nRelu(a)", "per_channel(b, c)")],
    [rule_of("c = Conv(x, w)\na = Add(c, b)\nRelu(a)", "b.shape == (1, 8, 1, 1)")],
    [rule_of("c = Conv(x, w)\na = Add(c, b)\nRelu(a)", "b.name == 'c'")],
    [rule_of("c = Conv(x, w)\na = Add(c, b)\nRelu(a)", "c.uses == 1", "b.is_const")],
    [rule_of("c = Conv(x, w)\na = Add(c, b)\nRelu(a)", "x.name != b.name")],
    [rule_of("c = Conv(x, w)\nAdd(c, b)"), rule_of("Relu(Add(x, y))", name="s")],
    [rule_of("Relu(Add(x, y))"), rule_of("c = Conv(x, w)\nAdd(c, b)", name="s")],
    [rule_of("Add(Add(x, y), z)"), rule_of("Relu(x)", name="s"), rule_of("Neg(x)", name="u")],
    [rule_of("Neg(Conv(x, w))"), rule_of("Relu(x) | Neg(x)", name="s")],
    [rule_of("Relu(Sigmoid(x))")],
]


@pytest.mark.parametrize("rules", RULES)
def test_rules(rules: Sequence[PatternRule]) -> None:
    """Overlaps, escapes, and conditions that ask for types, makers, names and more."""
    assert same(net().SerializeToString(), rules=rules).was_on_table


def test_what_nodes_carry() -> None:
    """Names that repeat, names that clash with those of calls, quotes, remarks."""
    proto = net()
    names = ['"quoted" %s', "r_0", "r_0", "", "ä\\"]
    for node, name in zip(proto.graph.node, names, strict=False):
        node.name = name
    proto.graph.node[1].doc_string = "a doc"
    proto.graph.node[4].metadata_props.add(key="k", value="v")
    found = same(proto.SerializeToString(), rules=RULES[0])
    assert found.was_on_table
    assert found.count > 1


def test_defaults() -> None:
    """An attribute that one match leaves to its default, in words of the operator's page."""
    text = """
    net (float[1, 8, 6, 6] x) => (float[1, 8, 6, 6] y) <float[8, 8, 1, 1] w> {
        c1 = Conv(x, w)
        r1 = Relu(c1)
        c2 = Conv<kernel_shape = [1, 1], group = 1>(r1, w)
        r2 = Relu(c2)
        c3 = Conv<auto_pad = "VALID", strides = [1, 1]>(r2, w)
        y = Relu(c3)
    }
    """
    found = same(net(text).SerializeToString(), rules=[rule_of("Relu(Conv(x, w))")])
    assert found.was_on_table
    assert found.count == 3


# Near misses: what is not the common case is noticed, and the answer is the same.


def changed(what: str) -> onnx.ModelProto:
    """Return the net with one thing that the table leaves to objects."""
    proto = net()
    graph = proto.graph
    if what == "a type is missing":
        del graph.value_info[3]
    if what == "a type is wrong":
        graph.value_info[3].type.tensor_type.shape.dim[1].dim_value = 9
    if what == "a size is open":
        graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    if what == "a function":
        one = [helper.make_node("Relu", ["p"], ["q"])]
        opset = [helper.make_opsetid("", 17)]
        proto.functions.append(helper.make_function("f", "g", ["p"], ["q"], one, opset))
    if what == "a body":
        inner = helper.make_tensor_value_info("i", TensorProto.FLOAT, [1, 8, 6, 6])
        nodes = [helper.make_node("Relu", ["x"], ["i"])]
        body = helper.make_graph(nodes, "body", [], [inner])
        graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [1]))
        graph.node.append(
            helper.make_node("If", ["yes"], ["unread"], then_branch=body, else_branch=body)
        )
        info = helper.make_tensor_value_info("unread", TensorProto.FLOAT, [1, 8, 6, 6])
        graph.value_info.append(info)
    if what == "another order":
        first = graph.node[0]
        graph.node.append(first)
        del graph.node[0]
    if what == "an Identity":
        graph.node.insert(1, helper.make_node("Identity", ["c1"], ["copy"]))
        graph.node[2].input[0] = "copy"
        info = helper.make_tensor_value_info("copy", TensorProto.FLOAT, [1, 8, 6, 6])
        graph.value_info.append(info)
    return proto


@pytest.mark.parametrize("what", ["a type is missing", "a type is wrong", "a size is open"])
def test_types_that_are_not_stated(what: str) -> None:
    """All is decided on the table, and objects tell the types."""
    for rules in RULES:
        found = same(changed(what).SerializeToString(), rules=rules)
        assert found.was_on_table
        assert found.had_objects


@pytest.mark.parametrize("what", ["a function", "a body", "another order", "an Identity"])
def test_other_models(what: str) -> None:
    """A model that is not the common case."""
    found = same(changed(what).SerializeToString(), rules=RULES[0])
    assert not found.was_on_table
    assert found.count


CONV_ADD = "c = Conv(x, w)\na = Add(c, b)\nRelu(a)"


@pytest.mark.parametrize(
    "rule",
    [
        rule_of(CONV_ADD, escape="duplicate"),
        rule_of(CONV_ADD, escape="outputs"),
        rule_of(CONV_ADD, order="program"),
        rule_of(CONV_ADD, constants="embed"),
        rule_of("c = Conv(x, w)\na = Add(c, const(b))\nRelu(a)", constants="auto"),
        rule_of(CONV_ADD, check=lambda _match: None),
        rule_of("c = Conv(x, w)\nc, Neg(c)"),
    ],
    ids=["duplicate", "outputs", "program", "embed", "auto", "check", "two outputs"],
)
def test_other_rules(rule: PatternRule) -> None:
    """A rule that is not the common case, behind one that is."""
    rules = [rule_of("Neg(x)", name="first"), rule]
    assert not same(net().SerializeToString(), rules=rules).was_on_table


def test_a_copy_is_read() -> None:
    """What an Identity makes is read by a call, which reads the original instead."""
    text = "g (float[2] a) => (float[2] v, float[2] y) { v = Identity(a)\n y = Add(v, a) }"
    found = same(proto_from_text(text).SerializeToString(), rules=[rule_of("Add(x, x)")])
    assert not found.was_on_table
    assert found.count == 1


def neighbours(node: Node) -> object:
    """Say what stands round a node."""
    made = [value for value in node.outputs if value is not None]
    return (
        node.label,
        [value and value.producer and value.producer.label for value in node.inputs],
        [(user.label, slot) for value in made for user, slot in value.iter_uses()],
        node.prev and node.prev.label,
        node.next and node.next.label,
    )


def test_refusals_answer_after_the_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of a model that was partitioned in batches are as in the file."""
    monkeypatch.setattr(partitioning, "MANY_NODES", 0)
    model = tmp_path / "m.onnx"
    model.write_bytes(net().SerializeToString())
    settings = pipeline.PartitionSettings(verify=False)
    outcome = pipeline.partition(
        model, output=tmp_path / "o.onnx", rules=RULES[0], settings=settings
    )
    expected = pipeline.match(model, rules=RULES[0]).selection.refused
    assert expected
    found = [neighbours(item.root) for item in outcome.selection.refused]
    assert found == [neighbours(item.root) for item in expected]


@pytest.mark.parametrize("is_stated", [True, False])
def test_many_constants(*, is_stated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node reads its own Constant: few are alike, and objects of all cost less."""
    lines, last = [], "x"
    for number in range(30):
        lines += [
            f"k{number} = Constant<value_floats = [{number}.0]>()",
            f"a{number} = Add({last}, k{number})",
            f"r{number} = Relu(a{number})",
        ]
        last = f"r{number}"
    head = f"g (float[4] x) => (float[4] {last})"
    proto = proto_from_text(f"{head} {{\n" + "\n".join(lines) + "\n}")
    if is_stated:
        proto = onnx.shape_inference.infer_shapes(proto)
    monkeypatch.setattr(read, "_MOST_KINDS", 10)
    found = same(proto.SerializeToString(), rules=[rule_of("Relu(Add(x, y))")])
    assert found.was_on_table
    assert found.had_objects
    assert found.count == 30


def test_auto_without_constants() -> None:
    """A rule that would embed constants, but matches none."""
    rule = rule_of(CONV_ADD, constants="auto")
    assert same(net().SerializeToString(), rules=[rule]).was_on_table


@pytest.mark.long
@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_random(data: st.DataObject) -> None:
    """Random graphs, with patterns near to what is in them."""
    graph: RandomGraph = data.draw(graphs(10))
    proto = proto_from_text(graph.text())
    if data.draw(st.booleans()):
        proto = onnx.shape_inference.infer_shapes(proto)
    elif data.draw(st.booleans()):
        for info in proto.graph.input:
            info.type.tensor_type.shape.dim[0].dim_param = "n"
    for node in proto.graph.node if data.draw(st.booleans()) else ():
        node.name = data.draw(st.sampled_from(["", "a", "r0_0", "r1"]))
    number = data.draw(st.integers(1, 3))
    rules = [
        rule_of(
            data.draw(near_patterns(graph)).text(),
            name=f"r{place}",
            constants=data.draw(st.sampled_from(["lift", "auto"])),
        )
        for place in range(number)
    ]
    same(proto.SerializeToString(), rules=rules)


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 1), max_size=3))))
def test_distinct_lists(rows: list[tuple[int, list[int]]]) -> None:
    """Equal rows have equal numbers, in the order of their first appearance."""
    count = np.array([len(items) for _, items in rows], np.int64)
    head = np.array([head for head, _ in rows], np.int64)
    items = np.array([item for _, items in rows for item in items], np.int64)
    which, example = distinct_lists(count, (head,), (items,))
    keys = [(head, *items) for head, items in rows]
    first = list(dict.fromkeys(keys))
    assert which.tolist() == [first.index(key) for key in keys]
    assert example.tolist() == [keys.index(key) for key in first]


def matched(data: bytes, *, on_table: bool, **options: Any) -> tuple[object, ...]:  # noqa: ANN401
    """Match as the command does; return all that is said."""
    select, was_on_table = tabular.select_rows, False

    def spy(rows: TypedRows, rules: Sequence[Any]) -> RowSelection | None:
        nonlocal was_on_table
        found = select(rows, rules) if on_table else None
        was_on_table = found is not None
        return found

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "select_rows", spy)
        patch.setattr(matching, "MANY_NODES", 0)
        model = Path(name) / "m.onnx"
        model.write_bytes(data)
        outcome = pipeline.match(model, **options)
        documents = [match_document(outcome, verbose=verbose) for verbose in (False, True)]
        texts = [repr(shown(document.text)) for document in documents]
        assert was_on_table == on_table
        return texts, repr(documents[0].record()), outcome.counts, outcome.unmet


@pytest.mark.parametrize("is_stated", [True, False])
def test_match(*, is_stated: bool) -> None:
    """What matches, without a function being written."""
    proto = net()
    if not is_stated:
        del proto.graph.value_info[:]
    data = proto.SerializeToString()
    options = {"patterns": ["conv_relu"], "expectations": ["dnnl.conv2d_bias_relu>=7"]}
    assert matched(data, on_table=True, **options) == matched(data, on_table=False, **options)


def test_match_with_lists() -> None:
    """Whoever lists all matches has objects of each from the beginning."""
    data = net().SerializeToString()
    assert matched(data, on_table=False, patterns=["conv_relu"], lists=True)[2]
