"""What the printer shows, to the letter."""

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from dplcli.ir.printer import node_window, print_node
from tests.support.helpers import print_graph
from tests.support.models import ir_of, node_making, parse

CHAIN = (
    "g (float[2] x) => (y) { a = Neg (x) b = Abs (a) [mid] d = Exp (b) e = Log (d) y = Sin (e) }"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = Relu (x)", "y = Relu (x)"),
        ("[n] y = Relu (x)", "[n] y = Relu (x)"),
        ("y = Clip (x, , x)", 'y = Clip (x, "", x)'),
        ("y, z = Foo ()", "y, z = Foo ()"),
        ("y = com.acme.Op (x)", "y = com.acme.Op (x)"),
        ("y = com.acme.Op:one (x)", "y = com.acme.Op:one (x)"),
        (
            "y = Conv <pads = [0, 1], group = 2> (x, x)",
            "y = Conv <pads = [0, 1], group = 2> (x, x)",
        ),
        ('y = Op <mode = "a\\"b", f = 0.5> (x)', 'y = Op <mode = "a\\"b", f = 0.5> (x)'),
        ("y = Op <f = 0.1, g = 1e-5> (x)", "y = Op <f = 0.1, g = 1e-05> (x)"),
        ("y = Op <f = [0.1, 16777217.0]> (x)", "y = Op <f = [0.1, 16777216.0]> (x)"),
        ('y = Op <names = ["a", "b"]> (x)', 'y = Op <names = ["a", "b"]> (x)'),
        ("y = Constant <value = float[2, 1] {1, 2}> ()", "y = Constant <value = float32[2, 1]> ()"),
        ("y = Op <many = [" + ", ".join(["10"] * 40) + "]> (x)", "y = Op <many = [40 items]> (x)"),
        ("y = If (x) <then_branch = t () => (x) { }>", "y = If <then_branch = {…}> (x)"),
    ],
)
def test_a_node_reads_as_in_onnx_text(text: str, expected: str) -> None:
    """Each part of a node is shown as ONNX text has it, long lists and bodies shortened."""
    model = ir_of(f"g (x) => (y) {{ {text} }}")
    assert print_node(node_making(model, "y")) == expected


def test_an_attribute_of_the_caller() -> None:
    """An attribute that the function's caller supplies is shown with an at sign."""
    model = ir_of("""<ir_version: 8, opset_import: ["" : 17, "o" : 1]>
        g (x) => (y) { y = o.f <k = 1.0> (x) }
        <domain: "o", opset_import: ["" : 17]>
        f <k> (a) => (b) { b = LeakyRelu <alpha: float = @k> (a) }""")
    (body,) = (function.body for function in model.functions.values())
    assert print_graph(body) == "(a) => (b) {\n  b = LeakyRelu <alpha = @k> (a)\n}"


def exotic_attributes() -> dict[str, onnx.AttributeProto]:
    """Return one attribute of each kind that text does not have."""
    tensor = onnx.numpy_helper.from_array(np.array([1], np.float32), "t")
    index = onnx.numpy_helper.from_array(np.array([1], np.int64), "i")
    sparse = onnx.helper.make_sparse_tensor(tensor, index, [2])
    kind = onnx.helper.make_tensor_type_proto(1, [2])
    make = onnx.helper.make_attribute
    return {
        "tensors": make("a", [tensor, tensor]),
        "sparse_tensor": make("a", sparse),
        "sparse_tensors": make("a", [sparse]),
        "type_proto": make("a", kind),
        "type_protos": make("a", [kind]),
        "graphs": make("a", [parse("g () => () { }").graph]),
        "bytes": make("a", b"\xff\n"),
        "newline": make("a", "two\nlines"),
        "newlines": make("a", ["two\nlines"]),
    }


@pytest.mark.parametrize("kind", exotic_attributes())
def test_any_attribute_is_shown_in_one_line(kind: str) -> None:
    """A node is one line, the same in every run, whatever its attributes hold."""
    proto = parse("g (x) => (y) { y = Op (x) }")
    proto.graph.node[0].attribute.append(exotic_attributes()[kind])
    text = print_node(node_making(ir_of(proto), "y"))
    assert "\n" not in text
    assert " at 0x" not in text
    assert len(text) < 120


WINDOW = """\
  b = Abs (a)
> [mid] d = Exp (b)
  e = Log (d)"""
START = """\
> a = Neg (x)
  b = Abs (a)
  [mid] d = Exp (b)
  e = Log (d)"""


def test_window() -> None:
    """The node is marked and shown with its neighbours, as far as there are any."""
    model = ir_of(CHAIN)
    assert node_window(node_making(model, "d"), radius=1) == WINDOW.splitlines()
    assert node_window(node_making(model, "a")) == START.splitlines()
    assert node_window(node_making(model, "y"), radius=0) == ["> y = Sin (e)"]


GRAPH = """\
(x, i) => (y, z) {
  t = Neg (x)
  y, z = Split (t, i)
}"""


def test_graph() -> None:
    """A graph is shown with its inputs and outputs, one node a line."""
    model = ir_of("g (float[2] x, int64 i) => (y, z) { t = Neg (x) y, z = Split (t, i) }")
    assert print_graph(model.graph) == GRAPH
    assert print_graph(ir_of("g () => () { }").graph) == "() => () {\n\n}"
