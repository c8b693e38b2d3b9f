"""The classes of operators: complete, and true of what onnxruntime computes."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
import onnx.helper
import onnxruntime as ort
import pytest

from dplcli.ir.operators import OP_KINDS, kind_of

NEWEST_OPSET = 28
"""The opset the table was written for."""

Array = npt.NDArray[np.generic]
BASE = np.array([[-2.5, -0.75, 0.5], [0.875, 1.25, 3.5]], np.float32)
REPLACEMENTS = (-3.25, 0.25, 1.75, np.inf, np.nan)


def versions_of(op_type: str) -> list[onnx.defs.OpSchema]:
    """Return every version of a standard operator, newest first."""
    schemas = onnx.defs.get_all_schemas_with_history()
    found = [s for s in schemas if s.name == op_type and not s.domain and not s.deprecated]
    return sorted(found, key=lambda schema: -schema.since_version)


def takes_one_float(schema: onnx.defs.OpSchema) -> bool:
    """Tell whether one float32 input and no attribute make a valid node."""
    return (
        schema.min_input == 1
        and "tensor(float)" in schema.inputs[0].types
        and not any(attribute.required for attribute in schema.attributes.values())
    )


def session_of(
    op_type: str, opset: int, shape: tuple[int, ...] = BASE.shape, **attributes: object
) -> ort.InferenceSession:
    """Return onnxruntime's session of one node with one float32 input."""
    node = onnx.helper.make_node(op_type, ["x"], ["y"])
    node.attribute.extend(onnx.helper.make_attribute(*each) for each in attributes.items())
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = onnx.ValueInfoProto(name="y")  # onnxruntime infers the type
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    opset_imports = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opset_imports)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def newest_session(op_type: str) -> ort.InferenceSession:
    """Return a session of the newest version that onnxruntime runs; skip the test if none."""
    for schema in filter(takes_one_float, versions_of(op_type)):
        try:
            return session_of(op_type, schema.since_version)
        except Exception:  # noqa: BLE001, S112  # onnxruntime's errors share no public base
            continue
    return pytest.skip(f"onnxruntime has no {op_type}")


def run(session: ort.InferenceSession, x: Array) -> Array:
    """Return the output for the input *x*."""
    (y,) = session.run(None, {"x": x})
    assert isinstance(y, np.ndarray)
    return y


def differing(left: Array, right: Array) -> set[int]:
    """Return the flat positions at which two arrays differ; NaN equals NaN."""
    same = (left == right) | ((left != left) & (right != right))  # noqa: PLR0124  # NaN, of any type
    return {int(position) for position in np.flatnonzero(~same)}


def test_every_standard_operator_is_of_exactly_one_kind() -> None:
    """No operator is missing, none is in two classes."""
    times = Counter(op_type for op_types in OP_KINDS.values() for op_type in op_types)
    schemas = onnx.defs.get_all_schemas_with_history()
    standard = {schema.name for schema in schemas if not schema.domain}
    assert {op_type: times[op_type] for op_type in standard if times[op_type] != 1} == {}
    assert [kind for kind, count in times.items() if count > 1] == []


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < NEWEST_OPSET, reason="this onnx is older than the table"
)
def test_the_table_names_no_operator_that_onnx_does_not_know() -> None:
    """There are no slips of the pen."""
    schemas = onnx.defs.get_all_schemas_with_history()
    standard = {schema.name for schema in schemas if not schema.domain}
    assert frozenset[str]().union(*OP_KINDS.values()) - standard == set()


def test_the_kinds_are_those_of_tvm_in_its_order() -> None:
    """The names are what patterns say, and the order is that of OpPatternKind."""
    expected = ["elementwise", "broadcast", "injective", "reduction", "out-fusable", "opaque"]
    assert list(OP_KINDS) == expected


@pytest.mark.parametrize(
    ("kind", "op_types"),
    [
        ("elementwise", "Relu Cast CastLike Clip Identity Sigmoid LeakyRelu Not Gelu Dropout"),
        ("broadcast", "Add Where Max Sum PRelu Pow Equal Expand Mod DequantizeLinear Unsqueeze"),
        ("injective", "Reshape Transpose Slice Concat Split Gather Pad Tile Resize Upsample Trilu"),
        ("reduction", "ReduceSum ReduceMean ReduceLogSumExp ArgMax"),
        ("out-fusable", "Conv MatMul Gemm QLinearConv MaxPool GlobalAveragePool RoiAlign Einsum"),
        ("out-fusable", "BatchNormalization LayerNormalization Softmax Attention OneHot"),
        ("opaque", "If Loop Constant Shape TopK NonZero CumSum LSTM Scatter ScatterND LRN Size"),
        (None, "relu Unheard FusedConv com.microsoft.Gelu TreeEnsemble Adam"),
    ],
)
def test_kind_of_well_known_operators(kind: str | None, op_types: str) -> None:
    """Operators of the standard domain have their class, others have none."""
    assert {op_type: kind_of(op_type) for op_type in op_types.split()} == dict.fromkeys(
        op_types.split(), kind
    )


@pytest.mark.parametrize(
    "op_type",
    sorted(op for op in OP_KINDS["elementwise"] if any(map(takes_one_float, versions_of(op)))),
)
def test_an_elementwise_operator_maps_each_element_by_itself(op_type: str) -> None:
    """Changing an input element changes the output element at its place, and no other."""
    session = newest_session(op_type)
    before = run(session, BASE)
    assert before.shape == BASE.shape
    for place in range(BASE.size):
        seen: set[int] = set()
        for replacement in REPLACEMENTS:
            x = BASE.copy()
            x.flat[place] = replacement
            seen |= differing(before, run(session, x))
        assert seen == {place}


def test_enough_elementwise_operators_are_executed() -> None:
    """The property above is not proved of an empty list."""
    executable = [
        op for op in OP_KINDS["elementwise"] if any(map(takes_one_float, versions_of(op)))
    ]
    assert len(executable) >= 40


@pytest.mark.parametrize(
    ("op_type", "opset", "shape", "attributes"),
    [
        ("Flatten", 13, (2, 3, 2), {}),
        ("Transpose", 13, (2, 3), {}),
        ("Transpose", 13, (2, 3, 4), {"perm": [1, 2, 0]}),
        ("Squeeze", 13, (2, 1, 3, 1), {}),
        ("Squeeze", 11, (2, 1, 3, 1), {"axes": [1]}),
        ("Concat", 13, (2, 3), {"axis": 1}),
        ("Split", 13, (4, 3), {}),
        ("Slice", 9, (4, 3), {"starts": [1, 0], "ends": [3, 2]}),
        ("Pad", 10, (2, 3), {"pads": [1, 0, 0, 2]}),
        ("Pad", 10, (2, 3), {"pads": [-1, 0, 0, 2]}),
        ("Trilu", 14, (3, 3), {}),
        ("Trilu", 14, (3, 3), {"upper": 0}),
        ("DepthToSpace", 13, (1, 8, 2, 3), {"blocksize": 2}),
        ("DepthToSpace", 13, (1, 8, 2, 3), {"blocksize": 2, "mode": "CRD"}),
        ("SpaceToDepth", 13, (1, 2, 4, 6), {"blocksize": 2}),
    ],
)
def test_an_injective_operator_copies_elements(
    op_type: str, opset: int, shape: tuple[int, ...], attributes: dict[str, object]
) -> None:
    """The output holds no other values than the input, each once at most, and zeros to fill up."""
    assert kind_of(op_type) == "injective"
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    y = run(session_of(op_type, opset, shape, **attributes), x)
    copied = Counter(y[y != 0].tolist())
    assert copied
    assert copied <= Counter(x.ravel().tolist())
