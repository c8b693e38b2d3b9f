"""Raising a model's opset changes the nodes that have to change, and nothing else."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from dplcli.onnx_io import AdaptedNode, paused_gc
from tests.onnx_io.raised import check_raised, parsed, raise_opset
from tests.support.helpers import check_sound

if TYPE_CHECKING:
    import onnx

UNKNOWN_FIELD = bytes([0x82, 0x3F, 3]) + b"new"
"""Field 1008 of a message, which no onnx knows: three bytes."""

NORM = """<ir_version: 7, opset_import: ["" : 12]>
g (float[2, 3, 4] x, float[4] axes) => (float[N, M] y, float[A, B, C] z)
<float[4] w = {1, 2, 3, 4}, float[1] axes_1 = {0}> {
    [first] a = Mul (x, w)
    [second] s = ReduceSum <axes = [1], keepdims = 0> (a)
    [third] t = ReduceSum <axes = [1], keepdims = 0> (x)
    [fourth] y = Add (s, t)
    [fifth] z = Softmax <axis = 1> (a)
    [sixth] unused = Mul (x, axes)
}"""


def node_named(model: onnx.ModelProto, name: str) -> NodeProto:
    """Return the node of the main graph that has a name."""
    (node,) = [node for node in model.graph.node if node.name == name]
    assert isinstance(node, NodeProto)
    return node


def test_adapts_what_changed_and_says_so() -> None:
    """The report names each node that was changed, and the versions."""
    model = parsed(NORM)
    result = raise_opset(model, 18)
    assert (result.before, result.after, result.ir_versions) == (12, 18, (7, 8))
    assert result.adapted == (
        AdaptedNode("ReduceSum", "second", ""),
        AdaptedNode("ReduceSum", "third", ""),
        AdaptedNode("Softmax", "fifth", ""),
    )
    assert str(result) == "raised from opset 12 to 18; adapted: ReduceSum 2, Softmax"
    check_raised(NORM, 18, adapted=3)


def test_leaves_the_other_nodes_byte_for_byte() -> None:
    """A node that may stay keeps its bytes: name, metadata, documentation, unknown fields."""
    model = parsed(NORM)
    for node in model.graph.node:
        node.metadata_props.add(key="from", value="here")
        node.doc_string = "words"
        node.MergeFromString(UNKNOWN_FIELD)
    kept = {
        name: node_named(model, name).SerializeToString() for name in ("first", "fourth", "sixth")
    }
    weight = model.graph.initializer[0].SerializeToString()
    raise_opset(model, 18)
    for name, data in kept.items():
        assert node_named(model, name).SerializeToString() == data
    assert model.graph.initializer[0].SerializeToString() == weight


def test_an_adapted_node_keeps_what_is_not_about_the_change() -> None:
    """Name, outputs, other attributes, metadata, documentation and unknown fields stay."""
    model = parsed(NORM)
    for node in model.graph.node:
        node.metadata_props.add(key="from", value="here")
        node.doc_string = "words"
        node.MergeFromString(UNKNOWN_FIELD)
    raise_opset(model, 18)
    node = node_named(model, "second")
    assert (node.op_type, list(node.output), node.doc_string) == ("ReduceSum", ["s"], "words")
    assert [item.name for item in node.attribute] == ["keepdims"]
    assert [(item.key, item.value) for item in node.metadata_props] == [("from", "here")]
    assert UNKNOWN_FIELD in node.SerializeToString()
    assert node_named(model, "fifth").op_type == "Softmax"


def test_new_names_are_free_and_equal_constants_are_one() -> None:
    """Both reductions read one new initializer, which is called like no other value."""
    model = parsed(NORM)
    raise_opset(model, 18)
    added = [tensor.name for tensor in model.graph.initializer][2:]
    assert added == ["axes_2"]
    assert node_named(model, "second").input[1] == node_named(model, "third").input[1] == "axes_2"
    values = [name for node in model.graph.node for name in node.output]
    assert len(values) == len(set(values))
    names = [node.name for node in model.graph.node]
    assert len(names) == len(set(names))


def test_a_model_that_is_there_already_stays() -> None:
    """Raising to the opset that it has changes not one byte."""
    model = parsed(NORM)
    data = model.SerializeToString(deterministic=True)
    result = raise_opset(model, 12)
    assert not result.is_changed
    assert model.SerializeToString(deterministic=True) == data


BODIES = """<ir_version: 5, opset_import: ["" : 10]>
g (float[2, 3] x, bool c, int64 n) => (float[A, B] y, float[2, 3] l, float[K, E, F] z)
<bool true = {1}> {
    one = Constant <value = float[1, 1] {2}> ()
    soft = Softmax <axis = 0> (x)
    [outer] y = If (c) <
        then_branch = t () => (float[A, B] p) {
            s = Clip <min = 0.5> (x)
            p = ReduceSum <axes = [0]> (s)
        },
        else_branch = e () => (float[A, B] q) {
            q = If (c) <
                then_branch = tt () => (float[A, B] p2) { p2 = ReduceMax <axes = [0]> (x) },
                else_branch = ee () => (float[A, B] q2) {
                    [inner] q2 = ReduceSum <axes = [0]> (x)
                }
            >
        }
    >
    l, z = Loop (n, true, x) <
        body = b (int64 i, bool k, float[2, 3] d) => (bool ko, float[2, 3] co, float[E, F] r) {
        ko = Identity (k)
        co = Identity (d)
        u = Squeeze <axes = [0]> (one)
        r = Mul (soft, u)
    }>
}"""


def test_bodies_are_raised_in_place() -> None:
    """Nodes in If and Loop, nested, are adapted with constants of their own body."""
    model = check_raised(BODIES, 18, adapted=6)
    branch, other = (item.g for item in node_named(model, "outer").attribute)
    assert [tensor.name for tensor in branch.initializer] == ["min", "axes"]
    assert [node.op_type for node in other.node] == ["If"]
    assert not other.initializer
    where = " in else_branch of If 'q' in else_branch of If 'outer'"
    result = raise_opset(parsed(BODIES), 18)
    assert AdaptedNode("ReduceSum", "inner", where) in result.adapted


def test_types_are_known_in_bodies() -> None:
    """A bound gets the element type of the outer value that it bounds."""
    model = parsed(BODIES.replace("float[", "float16["))
    raise_opset(model, 12)
    branch = node_named(model, "outer").attribute[0].g
    assert [tensor.data_type for tensor in branch.initializer] == [TensorProto.FLOAT16]


MASK = """<ir_version: 3, opset_import: ["" : 9]>
g (float[2] x) => (float[2] y) {
    y, mask = Dropout <ratio = 0.25> (x)
}"""


def test_an_output_that_changed_goes_if_nothing_reads_it() -> None:
    """The mask of Dropout became boolean; one that nobody reads is left out."""
    model = check_raised(MASK, 10, adapted=1)
    assert list(model.graph.node[0].output) == ["y"]
    model = parsed(MASK)
    model.graph.value_info.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [2]))
    raise_opset(model, 18)
    check_sound(parsed(MASK), model)
    model = check_raised(MASK.replace('"" : 9', '"" : 11'), 18, adapted=1)
    assert list(model.graph.node[0].output) == ["y"]
    assert not model.graph.node[0].attribute


def test_an_empty_list_counts_as_none() -> None:
    """So the older operators read it; as an input it would be another thing to some."""
    header = '<ir_version: 6, opset_import: ["" : 11]> g (float[1, 3] x) => (float[A] y) '
    for op_type in ("Squeeze", "ReduceSum"):
        before = parsed(f"{header} {{ y = {op_type} (x) }}")
        before.graph.node[0].attribute.add(name="axes", type=AttributeProto.INTS)
        if op_type == "ReduceSum":
            before.graph.node[0].attribute.add(name="keepdims", type=AttributeProto.INT)
            del before.graph.output[0].type.tensor_type.shape.dim[:]
        after = parsed("<ir_version: 8> g () => () {}")
        after.CopyFrom(before)
        raise_opset(after, 13)
        assert list(after.graph.node[0].input) == ["x"]
        check_sound(before, after)


def test_a_bound_beyond_half_precision_is_infinite() -> None:
    """Exporters state the largest float, which float16 does not have."""
    text = """<ir_version: 4, opset_import: ["" : 10]>
    g (float16[2] x) => (float16[2] y) { y = Clip <min = 0.0, max = 3.4e38> (x) }"""
    model = parsed(text)
    raise_opset(model, 11)
    values = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    assert [(array.dtype.name, float(array)) for array in values] == [
        ("float16", 0.0),
        ("float16", math.inf),
    ]


def test_sizes_take_the_place_of_empty_scales() -> None:
    """Since opset 13 only one of the two may be given."""
    text = """<ir_version: 6, opset_import: ["" : 11]>
    g (float[1, 1, 2, 2] x, int64[4] sizes) => (float[A, B, C, D] y) <float[0] none = {}> {
        y = Resize (x, none, none, sizes)
    }"""
    model = parsed(text)
    raise_opset(model, 13)
    assert list(model.graph.node[0].input) == ["x", "none", "", "sizes"]


def test_softmax_over_the_last_dimension_stays() -> None:
    """Where one dimension or the last is meant, the node needs nothing, or its axis stated."""
    header = '<ir_version: 6, opset_import: ["" : 11]> g (float{shape} x) => (float{shape} y) '
    for shape, before, after in (
        ("[2, 3]", "Softmax (x)", []),
        ("[2, 3, 4]", "Softmax <axis = 2> (x)", [2]),
        ("[2, 3, 4]", "Softmax <axis = -1> (x)", [-1]),
        ("[2, 3, 1, 1]", "Softmax <axis = 1> (x)", [1]),
        ("[2, 3, 1, 1]", "Softmax (x)", [1]),
        ("[a, 3, 1, 1]", "Softmax <axis = -3> (x)", [-3]),
    ):
        model = parsed(header.replace("{shape}", shape) + f"{{ y = {before} }}")
        raise_opset(model, 13)
        assert [node.op_type for node in model.graph.node] == ["Softmax"]
        assert [item.i for item in model.graph.node[0].attribute] == after, before


def test_the_standard_goes_by_two_names() -> None:
    """``ai.onnx`` is the standard's domain as well, of nodes and of imports."""
    model = parsed(NORM)
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert len(raise_opset(model, 18).adapted) == 3
    assert [(item.domain, item.version) for item in model.opset_import] == [("ai.onnx", 18)]


def test_other_domains_stay() -> None:
    """Operators of other domains and their versions are not touched."""
    text = NORM.replace('"" : 12', '"" : 12, "com.microsoft" : 1').replace(
        "[sixth] unused = Mul", "[sixth] unused = com.microsoft.Softmax"
    )
    model = parsed(text)
    raise_opset(model, 18)
    versions = [(item.domain, item.version) for item in model.opset_import]
    assert versions == [("", 18), ("com.microsoft", 1)]
    assert node_named(model, "sixth").domain == "com.microsoft"


def test_a_model_without_standard_nodes_gets_the_import() -> None:
    """What a rewrite adds is then of the opset that was asked for."""
    model = parsed(
        """<ir_version: 8, opset_import: ["com.microsoft" : 1]>
        g (float[2] x) => (float[2] y) { y = com.microsoft.Gelu (x) }"""
    )
    result = raise_opset(model, 18)
    assert (result.before, result.after) == (None, 18)
    versions = [(item.domain, item.version) for item in model.opset_import]
    assert versions == [("com.microsoft", 1), ("", 18)]


def test_takes_time_in_proportion() -> None:
    """The work per node does not grow with the number of nodes, even where all are adapted."""
    seconds = []
    for count in (2_000, 20_000):
        lines = [f"v{n} = ReduceSum <axes = [1]> (x)" for n in range(count)]
        model = parsed(
            '<ir_version: 7, opset_import: ["" : 12]> g (float[2, 3] x) => (float[A, B] v0) {'
            + "\n".join(lines)
            + "}"
        )
        start = time.process_time()
        with paused_gc():
            assert len(raise_opset(model, 18).adapted) == count
        seconds.append(time.process_time() - start)
        assert len(model.graph.initializer) == 1
    assert seconds[1] < 40 * seconds[0]
