"""Every type that ONNX has loads, reads by its name and comes back."""

import re

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from dplcli.ir import ArrayTensor, TensorType, Value
from dplcli.ir.traversal import check_structure
from dplcli.ir.types import DTYPE_CODES, dtype_name
from dplcli.onnx_io import to_proto
from tests.support.models import ir_of, parse

CODES = {name: code for name, code in onnx.TensorProto.DataType.items() if name != "UNDEFINED"}
COPY = "g (float[3] x) => (float[3] y) { y = Identity (x) }"


def typed_model(code: int) -> onnx.ModelProto:
    """Return a model with an input, an initializer and a Constant of one element type."""
    proto = parse("g (float[3] x) => (w) { y = Identity (x) c = Constant <value = float {1}> () }")
    proto.graph.input[0].type.tensor_type.elem_type = code
    if code == onnx.TensorProto.STRING:
        tensor = onnx.TensorProto(name="w", data_type=code, dims=[3])
        tensor.string_data.extend([b"a", "ü".encode(), b""])
    else:
        tensor = onnx.helper.make_tensor("w", code, [3], [0, 1, 0])
    proto.graph.initializer.append(tensor)
    proto.graph.node[1].attribute[0].t.CopyFrom(tensor)
    return proto


def test_every_element_type_has_a_name() -> None:
    """The table of names covers the installed onnx, and says what onnx says."""
    for name, code in CODES.items():
        expected = {"float": "float32", "double": "float64"}.get(name.lower(), name.lower())
        assert dtype_name(code) == expected
        assert DTYPE_CODES[expected] == code


def test_strings_that_are_not_utf_8_are_bytes_and_come_back() -> None:
    """Onnx lets them pass, and so does onnxruntime; other elements of the tensor are text."""
    proto = typed_model(onnx.TensorProto.STRING)
    proto.graph.initializer[0].string_data[0] = b"\xff\xfe"
    model = ir_of(proto)
    tensor = model.graph.values["w"].constant
    assert tensor is not None
    assert tensor.numpy().tolist() == [b"\xff\xfe", "ü", ""]
    model.graph.modified = True
    assert to_proto(model).SerializeToString(deterministic=True) == proto.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_every_element_type_loads_and_comes_back(code: int) -> None:
    """Inputs, initializers and Constants of any element type keep it, and decode."""
    expected = typed_model(code).SerializeToString(deterministic=True)
    model = ir_of(typed_model(code))
    check_structure(model)
    values = model.graph.values
    assert [str(values[name].known_type()) for name in "xwc"] == [f"{dtype_name(code)}[3]"] * 3
    for name in "wc":
        tensor = values[name].constant
        assert tensor is not None
        assert tensor.dtype == dtype_name(code)
        assert (tensor.shape, tensor.numpy().shape, tensor.size) == ((3,), (3,), 3)
    model.graph.modified = True
    assert to_proto(model).SerializeToString(deterministic=True) == expected


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_a_computed_constant_keeps_its_element_type(code: int) -> None:
    """The array of a constant, held as a constant again, has the constant's element type."""
    tensor = ir_of(typed_model(code)).graph.values["w"].constant
    assert tensor is not None
    assert ArrayTensor(tensor.numpy()).dtype == tensor.dtype


def test_a_newer_element_type_is_not_an_error() -> None:
    """A code that this version does not know is passed on under its number."""
    proto = parse(COPY)
    proto.graph.input[0].type.tensor_type.elem_type = 99
    assert str(ir_of(proto).graph.values["x"].declared_type) == "type99[3]"


@pytest.mark.parametrize(
    "declared",
    [
        "seq(float[N])",
        "optional(float[2])",
        "optional(seq(int64[2]))",
        "map(int64, float[2])",
        "seq(map(string, float))",
        "sparse_tensor(float[3])",
    ],
)
def test_other_types_are_carried_and_read_as_unknown(declared: str) -> None:
    """A sequence, optional, map or sparse tensor is no dense tensor, and is kept as it is."""
    proto = parse(f"g ({declared} x) => ({declared} y) {{ y = Identity (x) }}")
    expected = proto.SerializeToString(deterministic=True)
    model = ir_of(proto)
    check_structure(model)
    assert [model.graph.values[name].known_type() for name in "xy"] == [None, None]
    model.graph.modified = True
    assert to_proto(model).SerializeToString(deterministic=True) == expected


@pytest.mark.parametrize(
    ("declared", "read"),
    [
        ("float", "float32[]"),
        ("float[]", "float32"),
        ("float[N, 2, ?]", "float32[N,2,?]"),
        ("string[1]", "string[1]"),
        ("float[0]", "float32[0]"),
    ],
)
def test_shapes_read_as_declared(declared: str, read: str) -> None:
    """A scalar, an unknown rank, symbols, unknown and zero dimensions are told apart."""
    model = ir_of(f"g ({declared} x) => ({declared} y) {{ y = Identity (x) }}")
    assert str(model.graph.values["x"].declared_type) == read


def test_negative_dimension_reads_as_unknown() -> None:
    """A dimension of -1, as some converters write, is an unknown one."""
    proto = parse(COPY)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert str(ir_of(proto).graph.values["x"].declared_type) == "float32[?]"


@pytest.mark.parametrize(
    ("attribute", "dtype", "content"),
    [
        ("value_float = 1.5", "float32", 1.5),
        ("value_floats = [1.5, 2.0]", "float32", [1.5, 2.0]),
        ("value_int = -3", "int64", -3),
        ("value_ints = [1, 2]", "int64", [1, 2]),
        ('value_string = "a"', "string", "a"),
        ('value_strings = ["a", "bc"]', "string", ["a", "bc"]),
        ("value = int32[2] {4, 5}", "int32", [4, 5]),
    ],
)
def test_constant_node(attribute: str, dtype: str, content: object) -> None:
    """A Constant node holds a constant, in whichever attribute it is stated."""
    model = ir_of(f"g () => (c) {{ c = Constant <{attribute}> () }}")
    value = model.graph.values["c"]
    assert value.is_constant
    assert not value.is_initializer
    assert value.constant is not None
    assert value.constant.dtype == dtype
    np.testing.assert_array_equal(value.constant.numpy(), content)


def function_constant() -> Value:
    """Return the value of a Constant that the function's caller sets."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g () => (y) { y = o.f <k = 1> () }
        <domain: "o", opset_import: ["" : 17]>
        f <k> () => (c) { c = Constant <value_int: int = @k> () }""")
    return model.functions["o", "f", ""].body.values["c"]


def test_constant_set_by_the_caller_has_no_value() -> None:
    """A Constant whose attribute the function's caller supplies holds nothing to read."""
    assert function_constant().constant is None


def test_foreign_constant_is_not_one() -> None:
    """An operator called Constant in another domain is no constant."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g () => (c) { c = o.Constant <value_int = 1> () }""")
    assert not model.graph.values["c"].is_constant


STATED = """g (float[N] x) => (float[N] y)
    <float[N] a, float[N] b, float[M] c> { a = Neg (x) b = Abs (a) c = Exp (b) y = Log (c) }"""


def test_values_of_which_the_same_is_stated_share_the_statement() -> None:
    """It is decoded once for all of them; their names do not count, nor how long they are."""
    long = "a" * 200
    values = ir_of(re.sub(r"\ba\b", long, STATED)).graph.values
    first, second = values[long], values["b"]
    assert first.type_source is second.type_source
    assert first.type_source is not values["c"].type_source
    assert str(first.declared_type) == str(second.declared_type) == "float32[N]"
    assert str(values["c"].declared_type) == "float32[M]"


@pytest.mark.parametrize("part", ["denotation", "doc_string", "metadata"])
def test_statements_that_say_more_are_not_shared(part: str) -> None:
    """What one of two values has beside its type is its own, and stays in the file."""
    proto = parse(STATED)
    info = proto.graph.value_info[0]
    if part == "denotation":
        info.type.tensor_type.shape.dim[0].denotation = "BATCH"
    elif part == "doc_string":
        info.doc_string = "said"
    else:
        info.metadata_props.add(key="k", value="v")
    model = ir_of(proto)
    first, second = (model.graph.values[name].stated_type for name in "ab")
    assert first != second
    assert str(model.graph.values["a"].declared_type) == "float32[N]"
    assert to_proto(model) == proto


def test_what_is_found_out_does_not_displace_what_is_stated() -> None:
    """The type that counts is the better one; what the file states can still be written down."""
    value = ir_of(STATED).graph.values["a"]
    stated = value.stated_type
    value.note_type(TensorType("float32", (7,)))
    assert str(value.declared_type) == str(value.known_type()) == "float32[7]"
    assert value.stated_type == stated
    assert str(ir_of(STATED).graph.values["b"].declared_type) == "float32[N]"


def test_data_has_its_own_type_whatever_else_is_stated() -> None:
    """An initializer of which nothing is stated, and one with a statement, which counts."""
    text = """g (float[N] x) => (y) <float[2] k = {1, 2}, float[2] l = {1, 2}> {
        a = Add (x, k) y = Add (a, l) }"""
    proto = parse(text)
    proto.graph.value_info.add(name="l").type.CopyFrom(proto.graph.input[0].type)
    values = ir_of(proto).graph.values
    assert str(values["k"].declared_type) == "float32[2]"
    assert str(values["l"].declared_type) == "float32[N]"
    assert values["k"].stated_type is None
