"""Reading one field after the other gives the table that reading in bulk gives."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

import dplcli.onnx_io.table
from dplcli.errors import InvalidModelError
from dplcli.onnx_io.small import SMALL, NotPlainError, read_small
from dplcli.onnx_io.table import read_table
from tests.corpus.nets import ROOT, listed_models

if TYPE_CHECKING:
    from pathlib import Path

    from dplcli.ir.relations import Relation
    from dplcli.ir.table import Table

RELATIONS = ("nodes", "values", "inputs", "outputs", "tensors", "parts", "infos")
NUMBERED = {("nodes", "operator"), ("nodes", "attributes"), ("tensors", "type")}
"""Columns of numbers that mean something only with what they number."""
NESTED = parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21, "d" : 1], doc_string: "two floors">
main (float[2, N] x, bool c, float[2] w) => (float[2, 640] y, float[2] seen)
<float[2] w = {1.0, 2.0}, int64[2] k = {3, 4}, float[2] m>
{
  a = Add (x, w)
  seen = Identity (a)
  [named] y = If (c) <
    then_branch = then () => (float[2] t) <float[2] w = {5.0, 6.0}> {
      two = Constant <value = float {2.0}> ()
      four = Constant <value_float = 4.0> ()
      inner = If (c) <
        then_branch = deep () => (float[2] d) { d = Mul (a, two) },
        else_branch = other () => (float[2] a) { a = Mul (w, k) }
      >
      t = Clip (inner, , two)
    },
    else_branch = els () => (float[2] e) { e = d.f <n = 3> (a, k) }
  >
  z, _ = Split <axis = 640, num_outputs = -1> (x)
}
<domain: "d", opset_import: ["" : 21]>
f <n> (p, q) => (r) { s = Add (p, q)  r = Relu (s) c = Constant <value = int64[1] {7}> () }
<domain: "d", opset_import: ["" : 21]>
g (p) => (p) { }
""")


def columns(relation: Relation) -> dict[str, list[int]]:
    """Return what a relation holds."""
    return {name: column.tolist() for name, column in relation.__getstate__().items()}


def assert_equal(one: Table, other: Table) -> None:
    """Compare two tables, whatever number an operator or an attribute has."""
    for name in RELATIONS:
        first, second = (columns(getattr(table, name)) for table in (one, other))
        for column in first.keys() | second.keys():
            if (name, column) not in NUMBERED:
                assert first[column] == second[column], (name, column)
    assert operators(one) == operators(other)
    assert one.graphs == other.graphs
    assert [each.tolist() for each in one.returned] == [each.tolist() for each in other.returned]
    assert one.data.tobytes() == other.data.tobytes()
    assert (one.notes, one.sorted, one.original) == (other.notes, other.sorted, other.original)


def operators(table: Table) -> list[tuple[object, ...]]:
    """Return the operator and the attributes of each node, then the types of tensors."""
    rows = zip(table.nodes.operator.tolist(), table.nodes.attributes.tolist(), strict=True)
    found: list[tuple[object, ...]] = [
        (table.operators[operator], table.attribute_sets[attributes])
        for operator, attributes in rows
    ]
    types = table.tensors.type.tolist()
    return found + [(table.tensor_types[kind] if kind >= 0 else b"",) for kind in types]


def in_bulk(data: bytes) -> Table:
    """Read a file in bulk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dplcli.onnx_io.table, "SMALL", -1)
        return read_table(data, "m.onnx")


MODELS = sorted((ROOT / "sample_models").glob("*.onnx"))
SMALL_ONES = [path for path in MODELS if path.stat().st_size <= SMALL]


@pytest.mark.parametrize("path", SMALL_ONES, ids=lambda path: path.stem)
def test_the_models_of_the_project(path: Path) -> None:
    """They are plain, so that they are read here."""
    data = path.read_bytes()
    assert_equal(read_small(data), in_bulk(data))


@pytest.mark.long
def test_real_models() -> None:
    """Equal, or left to the reading in bulk."""
    paths = [path for path in listed_models().values() if path.is_file()]
    small = [path for path in paths if path.stat().st_size <= SMALL]
    compared = 0
    for path in small:
        with suppress(NotPlainError):
            assert_equal(read_small(path.read_bytes()), in_bulk(path.read_bytes()))
            compared += 1
    assert compared > len(small) / 2


def test_all_that_a_model_may_hold() -> None:
    """Bodies in bodies, functions, defaults, constants, numbers that take several bytes."""
    model = onnx.ModelProto.FromString(NESTED.SerializeToString())
    model.graph.node[0].doc_string = "a sum: größer"
    model.metadata_props.add(key="a", value="ü")
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    model.graph.initializer[0].external_data.add(key="location", value="w.bin")
    model.graph.value_info.add(name="a").type.tensor_type.shape.dim.add(dim_param="Größe")
    data = model.SerializeToString(deterministic=True)
    found = read_small(data)
    found.check()
    assert_equal(found, in_bulk(data))
    assert [graph.kind.value for graph in found.graphs] == [
        "main",
        *["function"] * 2,
        *["body"] * 4,
    ]


def odd_models() -> dict[str, onnx.ModelProto]:
    """Return models that are wrong, or that hold what is rare."""
    found: dict[str, onnx.ModelProto] = {}

    def changed(what: str) -> onnx.ModelProto:
        model = onnx.ModelProto()
        model.CopyFrom(NESTED)
        found[what] = model
        return model

    changed("read before it is made").graph.node.insert(0, NESTED.graph.node[2])
    changed("made twice").graph.node.append(NESTED.graph.node[0])
    changed("read but not made").graph.node[0].input[0] = "nowhere"
    changed("returned but not made").graph.output[0].name = "nowhere"
    changed("stored twice").graph.initializer.append(NESTED.graph.initializer[0])
    changed("given twice").graph.input.append(NESTED.graph.input[0])
    changed("sparse").graph.sparse_initializer.add().values.name = "s"
    changed("a body in a number").graph.node[2].attribute[0].type = onnx.AttributeProto.INT
    del changed("out of order").graph.node[0]
    found["out of order"].graph.node.append(NESTED.graph.node[0])
    found["no graph"] = onnx.ModelProto(ir_version=10)
    return found


ODD = odd_models()


@pytest.mark.parametrize("what", ODD)
def test_what_is_odd_is_left_to_others(what: str) -> None:
    """Nothing is said of it here."""
    with pytest.raises(NotPlainError):
        read_small(ODD[what].SerializeToString(deterministic=True))


def test_other_bytes_are_left_to_others() -> None:
    """Names that are no text, unknown fields and choices, other order, no model at all."""
    data = NESTED.SerializeToString(deterministic=True)
    name = data.replace(b"seen", b"s\xffen")
    unknown = data + b"\xa2\x7d\x01\x00"
    twice = data + b"\x08\x0a"
    kind = data.replace(b"\x0a\x05value\x2a", b"\x0a\x05value\x2b")
    for text in (name, unknown, twice, kind, data[:-3], b"\xff"):
        with pytest.raises(NotPlainError):
            read_small(text)
    assert_equal(read_small(data), in_bulk(data))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    """The same table, or it is left to the reading in bulk."""
    text = bytearray(NESTED.SerializeToString(deterministic=True))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.integers(0, 255) | st.sampled_from(list(text)))
    try:
        found = read_small(bytes(text))
    except NotPlainError:
        return
    try:
        assert_equal(found, in_bulk(bytes(text)))
    except InvalidModelError:
        pytest.fail("reading in bulk refuses what was read")
