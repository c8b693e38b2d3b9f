"""Attributes completed with the defaults that the standard gives, in schemas and in words."""

import pytest

from dplcli.ir.operators import COMMUTATIVE, attribute_of, schema_of
from tests.support.helpers import SCHEMAS
from tests.support.models import ir_of, node_making, parse

UNKNOWN = "float[]"


def read(node: str, name: str, *, opset: int = 17, inputs: str = "float[N] x") -> object:
    """Return attribute *name* of the node that makes ``y``, or None."""
    text = (
        f'<ir_version: 8, opset_import: ["" : {opset}, "o" : 1]> g ({inputs}) => (y) {{ {node} }}'
    )
    found = attribute_of(node_making(ir_of(text), "y"), name)
    return None if found is None else found.value


@pytest.mark.parametrize(
    ("node", "name", "opset", "expected"),
    [
        ("y = Softmax (x)", "axis", 7, 1),
        ("y = Softmax (x)", "axis", 13, -1),
        ("y = Softmax <axis = 0> (x)", "axis", 13, 0),
        ("y = LeakyRelu (x)", "alpha", 17, pytest.approx(0.01)),
        ("y = Conv (x, x)", "group", 17, 1),
        ("y = Conv (x, x)", "auto_pad", 17, "NOTSET"),
        ("y = Gelu (x)", "approximate", 20, "none"),
        ("y = Gelu (x)", "approximate", 19, None),
        ("y = BatchNormalization (x, x, x, x, x)", "spatial", 7, 1),
        ("y = BatchNormalization (x, x, x, x, x)", "spatial", 17, None),
        ("y = BatchNormalization (x, x, x, x, x)", "training_mode", 17, 0),
        ("y = Cast (x)", "to", 17, None),
        ("y = Relu (x)", "axis", 17, None),
        ("y = Unheard (x)", "axis", 17, None),
        ("y = o.Softmax (x)", "axis", 17, None),
        ("y = o.Softmax <axis = 5> (x)", "axis", 17, 5),
    ],
)
def test_stated_then_schema_then_nothing(
    node: str, name: str, opset: int, expected: object
) -> None:
    """What is stated wins; else the schema in force at the opset; else there is no answer."""
    assert read(node, name, opset=opset) == expected


IMAGE = "float[1, 3, H, W] x, float[8, 3, 3, 5] w"
SIGNAL = "float[1, 3, L] x, float[8, 3, K] w"


@pytest.mark.parametrize(
    ("node", "inputs", "name", "expected"),
    [
        ("y = Conv (x, w)", IMAGE, "strides", (1, 1)),
        ("y = Conv (x, w)", IMAGE, "dilations", (1, 1)),
        ("y = Conv (x, w)", IMAGE, "pads", (0, 0, 0, 0)),
        ("y = Conv (x, w)", IMAGE, "kernel_shape", (3, 5)),
        ("y = Conv (x, w)", SIGNAL, "strides", (1,)),
        ("y = Conv (x, w)", SIGNAL, "kernel_shape", None),
        ("y = Conv (x, w)", f"{UNKNOWN} x, {UNKNOWN} w", "strides", None),
        ("y = Conv (x, w)", f"{UNKNOWN} x, {UNKNOWN} w", "kernel_shape", None),
        ("y = Conv <dilations = [2]> (x, w)", f"{UNKNOWN} x, {UNKNOWN} w", "pads", (0, 0)),
        ("y = Conv <pads = [1, 1]> (x, w)", f"{UNKNOWN} x, {UNKNOWN} w", "strides", (1,)),
        ('y = Conv <auto_pad = "SAME_UPPER"> (x, w)', IMAGE, "pads", None),
        ('y = Conv <auto_pad = "NOTSET"> (x, w)', IMAGE, "pads", (0, 0, 0, 0)),
        ('y = Conv <auto_pad = "SAME_UPPER"> (x, w)', IMAGE, "strides", (1, 1)),
        ("y = ConvTranspose (x, w)", IMAGE, "kernel_shape", (3, 5)),
        ("y = ConvTranspose (x, w)", IMAGE, "strides", (1, 1)),
        ("y = ConvInteger (x, w)", IMAGE, "dilations", (1, 1)),
        ("y = QLinearConv (x, s, s, w, s, s, s, s)", f"{IMAGE}, float s", "strides", (1, 1)),
        ("y = QLinearConv (x, s, s, w, s, s, s, s)", f"{IMAGE}, float s", "kernel_shape", (3, 5)),
        ("y = MaxPool <kernel_shape = [2, 2]> (x)", IMAGE, "strides", (1, 1)),
        ("y = MaxPool <kernel_shape = [2, 2]> (x)", IMAGE, "pads", (0, 0, 0, 0)),
        ("y = MaxPool <kernel_shape = [2, 2]> (x)", IMAGE, "dilations", (1, 1)),
        ("y = AveragePool <kernel_shape = [2, 2]> (x)", IMAGE, "strides", (1, 1)),
        ("y = AveragePool <kernel_shape = [2, 2]> (x)", IMAGE, "dilations", (1, 1)),
        ("y = LpPool <kernel_shape = [2]> (x)", f"{UNKNOWN} x", "strides", (1,)),
        ("y = MaxPool (x)", IMAGE, "kernel_shape", None),
        ("y = GlobalMaxPool (x)", IMAGE, "strides", None),
        ("y = Transpose (x)", IMAGE, "perm", (3, 2, 1, 0)),
        ("y = Transpose <perm = [0, 1]> (x)", IMAGE, "perm", (0, 1)),
        ("y = Transpose (x)", f"{UNKNOWN} x", "perm", None),
        ("y = Transpose (x)", "float x", "perm", ()),
        ("t = Relu (x) y = Transpose (t)", IMAGE, "perm", (3, 2, 1, 0)),
    ],
)
def test_defaults_in_words(node: str, inputs: str, name: str, expected: object) -> None:
    """Defaults that the standard gives in words follow from what is known of the shapes."""
    assert read(node, name, inputs=inputs) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("strides", (1, 1)), ("dilations", (1, 1)), ("pads", (0, 0, 0, 0))],
)
def test_col2im_counts_the_sizes_of_its_image(name: str, expected: object) -> None:
    """Col2Im has as many spatial dimensions as its image shape has items."""
    inputs = "float[1, 4, 9] x, int64[2] image, int64[2] block"
    assert read("y = Col2Im (x, image, block)", name, opset=18, inputs=inputs) == expected
    inputs = f"float[1, 4, 9] x, int64[K] image, {UNKNOWN} block"
    assert read("y = Col2Im (x, image, block)", name, opset=18, inputs=inputs) is None


def test_average_pool_dilations_since_opset_19() -> None:
    """A default in words holds only where the schema in force has the attribute."""
    node = "y = AveragePool <kernel_shape = [2, 2]> (x)"
    assert read(node, "dilations", opset=19, inputs=IMAGE) == (1, 1)


def test_attributes_of_the_caller_stay_open() -> None:
    """An attribute that the function's caller supplies is returned as a reference."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (x) => (y) { y = o.f <k = [1, 1], m = "VALID"> (x) }
        <domain: "o", opset_import: ["" : 17]>
        f <k, m> (a) => (b)
        { b = Conv <strides: ints = @k, auto_pad: string = @m, dilations = [1, 1]> (a, a) }""")
    (body,) = (function.body for function in model.functions.values())
    node = next(iter(body))
    strides = attribute_of(node, "strides")
    assert strides is not None
    assert (strides.kind, strides.value, strides.ref) == ("ints", None, "k")
    assert attribute_of(node, "pads") is None
    group = attribute_of(node, "group")
    assert group is not None
    assert group.value == 1


def test_a_function_goes_by_its_own_opset() -> None:
    """Defaults in a function's body are those of the opset that the function imports."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (x) => (y) { t = o.f (x) y = Softmax (t) }
        <domain: "o", opset_import: ["" : 11]> f (a) => (b) { b = Softmax (a) }""")
    (body,) = (function.body for function in model.functions.values())
    found = [attribute_of(node, "axis") for node in (next(iter(body)), node_making(model, "y"))]
    assert [attribute and attribute.value for attribute in found] == [1, -1]


@pytest.mark.parametrize("version", [0, -5, 999, 1 << 40, -(1 << 63)])
def test_absurd_opsets_are_no_crash(version: int) -> None:
    """Whatever opset a file claims, asking for a schema or default gives an answer or None."""
    proto = parse("g (x) => (y) { y = Softmax (x) }")
    proto.opset_import[0].version = version
    node = node_making(ir_of(proto), "y")
    schema = schema_of(node)
    assert (schema is None) == (attribute_of(node, "axis") is None)


def test_missing_opset_import() -> None:
    """A node whose domain the file does not import has no schema."""
    proto = parse("g (x) => (y) { y = Softmax (x) }")
    del proto.opset_import[:]
    assert schema_of(node_making(ir_of(proto), "y")) is None


def test_schema_says_what_an_operator_takes() -> None:
    """Formal inputs and outputs, their numbers and the attributes' kinds are those of ONNX."""
    model = ir_of("g (x) => (y) { t = Clip (x) y = Concat <axis = 0> (t, t) }")
    clip, concat = (schema_of(node) for node in model.graph)
    assert clip is not None
    assert concat is not None
    assert clip.inputs == ("input", "min", "max")
    assert (clip.min_inputs, clip.max_inputs) == (1, 3)
    assert clip.attributes == {}
    assert (concat.inputs, concat.min_inputs) == (("inputs",), 1)
    assert concat.max_inputs > 10**6
    assert concat.attributes == {"axis": "int"}


def test_schema_history() -> None:
    """All versions of an operator come oldest first; operators are listed by domain."""
    schemas = ir_of("g () => () { }").codec.schemas
    assert [len(schema.inputs) for schema in schemas.versions("Clip", "")][:4] == [1, 1, 3, 3]
    assert list(schemas.versions("Clip", "nowhere")) == []
    assert {"Conv", "Relu"} <= set(schemas.op_types(""))
    assert "Conv" not in set(schemas.op_types("ai.onnx.ml"))


def test_commutative_operators_are_known_to_the_standard() -> None:
    """Each operator called commutative exists and takes two or more inputs."""
    schemas = ir_of("g () => () { }").codec.schemas
    for op_type in COMMUTATIVE:
        schema = schemas.find(op_type, "", 18)
        assert schema is not None
        assert schema.max_inputs >= 2


@pytest.mark.parametrize(
    ("op_type", "typed_by"),
    [
        ("Reshape", (0,)),
        ("Where", (1,)),
        ("OneHot", (2,)),
        ("Equal", ("bool",)),
        ("Shape", ("int64",)),
        ("TopK", (0, "int64")),
        ("Dropout", (0, "bool")),
        ("Cast", (None,)),
        ("ConstantOfShape", (None,)),
        ("Loop", (None,)),
        ("SequenceAt", (None,)),
    ],
)
def test_schema_says_which_type_an_output_has(
    op_type: str, typed_by: tuple[int | str | None, ...]
) -> None:
    """That of an input, always the same, or what neither tells; outputs of a Loop differ."""
    schema = SCHEMAS.find(op_type, "", 21)
    assert schema is not None
    assert schema.typed_by == typed_by
