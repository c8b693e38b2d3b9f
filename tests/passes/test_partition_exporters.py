"""Partitions in models as exporters write them: full of functions of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from tests.support.helpers import check_idempotent, partitioned, rule, run_model, taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.language import PatternRule

# As torch.export and export_modules_as_functions write them: dots in domains and in names, an
# opset of the domain's own, one function per layer, and the same library functions in all of them.
DOMAINS = {"torch": "pkg.torch.2.9.0", "lib": "pkg.onnxscript.torch_lib"}
TORCH = """<ir_version: 10, opset_import: ["" : 18, "torch" : 1, "lib" : 1]>
    main_graph (float[2,4] x) => (float[2,4] linear_1)
      <float[4,4] weight = {1,0,0,0, 0,2,0,0, 0,0,3,0, 0,0,0,4}, float[4] bias = {1,2,3,4}>
    { h = torch.layer1 (x, weight, bias) linear_1 = torch.layer2 (h, weight, bias) }
    <domain: "torch", opset_import: ["" : 18, "lib" : 1]> layer1 (x, weight, bias) => (relu) {
      [node_t] t = Transpose <perm = [1, 0]> (weight) [node_mm] mm = MatMul (x, t)
      [node_add] add = lib.aten_add <alpha = 1.0> (mm, bias) [node_relu] relu = Relu (add) }
    <domain: "torch", opset_import: ["" : 18, "lib" : 1]> layer2 (x, weight, bias) => (relu) {
      [node_t] t = Transpose <perm = [1, 0]> (weight) [node_mm] mm = MatMul (x, t)
      [node_add] add = lib.aten_add <alpha = 2.0> (mm, bias) [node_relu] relu = Relu (add) }
    <domain: "lib", opset_import: ["" : 18]> aten_add <alpha: float = 1.0> (self, other) => (y) {
      a = Constant <value_float: float = @alpha> () b = CastLike (a, other)
      c = Mul (other, b) y = Add (self, c) }"""


def torch_model() -> bytes:
    """Return the model with the names that torch gives, which ONNX text cannot spell."""
    proto: onnx.ModelProto = onnx.parser.parse_model(TORCH)
    for item in (proto, *proto.functions):
        for opset in item.opset_import:
            opset.domain = DOMAINS.get(opset.domain, opset.domain)
        for node in item.graph.node if isinstance(item, onnx.ModelProto) else item.node:
            node.domain = DOMAINS.get(node.domain, node.domain)
            node.op_type = node.op_type.replace("layer2", "layer.2")
    for function in proto.functions:
        function.domain = DOMAINS[function.domain]
        function.name = function.name.replace("layer2", "layer.2")
    data: bytes = proto.SerializeToString()
    return data


def functions(model: onnx.ModelProto, domain: str) -> list[str]:
    """Name the functions of one domain."""
    return [function.name for function in model.functions if function.domain == domain]


@pytest.mark.parametrize("constants", ["auto", "embed", "lift"])
def test_layers_of_torch_share_one_partition(constants: str) -> None:
    """Both layers call it, import its domain, and keep their names and versions."""
    pattern = "MatMul(x, Transpose(w, perm=[1, 0]))"
    linear = rule(pattern, target="cublas", name="matmul_transposed", constants=constants)
    result = check_bytes([linear], torch_model())
    assert functions(result, "cublas") == ["matmul_transposed"]
    assert functions(result, "pkg.torch.2.9.0") == ["layer1", "layer.2"]
    for layer in (f for f in result.functions if f.name.startswith("layer")):
        assert [n.op_type for n in layer.node] == ["matmul_transposed", "aten_add", "Relu"]
        domains = {item.domain for item in layer.opset_import}
        assert domains == {"", "cublas", "pkg.onnxscript.torch_lib"}


def test_a_call_of_a_library_function_in_a_match() -> None:
    """The function written imports the library's domain, and its alpha travels along."""
    pattern = 'Relu(call("aten_add", MatMul(x, Transpose(w)), bias))'
    result = check_bytes([rule(pattern, target="cublas", name="linear")], torch_model())
    (linear,) = (function for function in result.functions if function.domain == "cublas")
    assert list(linear.attribute) == ["perm", "alpha"]
    assert {item.domain for item in linear.opset_import} == {"", "pkg.onnxscript.torch_lib"}


@pytest.mark.parametrize("constants", ["auto", "embed", "lift"])
def test_the_body_of_a_library_function(constants: str) -> None:
    """Its scale is a Constant of which only a caller knows the value: it is passed in."""
    scaled = rule("Add(a, Mul(b, CastLike(s, b)))", name="scaled", constants=constants)
    result = check_bytes([scaled], torch_model())
    (library,) = (function for function in result.functions if function.name == "aten_add")
    assert [node.op_type for node in library.node] == ["Constant", "scaled"]


# -- onnxscript ------------------------------------------------------------------------------------

SILU = "Mul(x, Sigmoid(Mul(x, CastLike(a, x))))"
RELU = "Max(x, CastLike(const(), _))"


@pytest.mark.long
@pytest.mark.parametrize(
    ("patterns", "matches"),
    [
        ([SILU, RELU, "MatMul(x, w)"], 6),
        (["Neg(MatMul(x, w)) | MatMul(x, w)"], 4),
        (['call("aten_silu", MatMul(x, w))', "MatMul(x, w)"], 4),
        (['call("", x, ...)'], 5),
        (["op()(...)"], 18),
    ],
    ids=["parts", "branches", "calls", "any-call", "anything"],
)
@pytest.mark.parametrize("constants", ["auto", "embed", "lift"])
def test_functions_of_onnxscript(patterns: list[str], matches: int, constants: str) -> None:
    """Loops, branches and functions that call functions, in every way to treat constants."""
    pytest.importorskip("onnxscript", reason="writes the model")
    from tests.passes.onnxscript_model import written  # noqa: PLC0415  # needs onnxscript

    rules = [rule(p, name=f"r{n}", constants=constants) for n, p in enumerate(patterns)]
    data = written()
    assert len(partitioned(rules, data)[1].matches) == matches
    check_bytes(rules, data)


# -- what both share -------------------------------------------------------------------------------


def check_bytes(rules: Sequence[PatternRule], data: bytes) -> onnx.ModelProto:
    """Partition; check validity, numbers and a second run."""
    before = onnx.ModelProto.FromString(data)
    _, selection, written = partitioned(rules, data)
    assert taken(selection)
    result: onnx.ModelProto = onnx.ModelProto.FromString(written)
    onnx.checker.check_model(result, full_check=True)
    check_numbers(before, result)
    check_idempotent(rules, written)
    return result


def check_numbers(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Compare both in onnxruntime, optimised or not."""
    rng = np.random.default_rng(0)
    feeds = {}
    for info in before.graph.input:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        is_float = info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[info.name] = (
            rng.uniform(-1, 1, shape).astype(np.float32) if is_float else np.asarray(3)
        )
    wanted = run_model(before, feeds, optimise=False)
    for optimise in (False, True):
        for name, array in run_model(after, feeds, optimise=optimise).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-6)
