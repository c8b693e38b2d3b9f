"""What is understood of operators, held against onnx: a later opset slips nothing in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import onnx
import pytest
from onnx import TensorProto, helper

from dplcli.execute.plan import RefusedError
from dplcli.execute.translate import _UNDERSTOOD, translate
from dplcli.onnx_io import model_from_proto

OLDEST = 7
Schema: TypeAlias = Any
"""`onnx.defs.OpSchema`, of which onnx has no complete types."""

Value: TypeAlias = Any
"""What an attribute holds."""

VALUES: dict[Any, Any] = {
    onnx.AttributeProto.INT: 1,
    onnx.AttributeProto.FLOAT: 0.625,
    onnx.AttributeProto.INTS: [1, 1],
    onnx.AttributeProto.STRING: "other",
}


def versions() -> list[Schema]:
    """Return the schemas of all operators understood, in each version that is in force."""
    opsets = range(OLDEST, onnx.defs.onnx_opset_version() + 1)
    found = {
        (name, schema.since_version): schema
        for name in sorted(_UNDERSTOOD)
        for opset in opsets
        if onnx.defs.has(name, opset, "")
        for schema in [onnx.defs.get_schema(name, opset)]
    }
    return [*found.values()]


def call_of(schema: Schema, count: int, **attributes: Value) -> onnx.ModelProto:
    """Return a model that calls a function of one node, which is given *count* inputs."""
    opset = max(schema.since_version, OLDEST)
    names = [f"x{number}" for number in range(count)]
    kinds = [_kind(schema, number) for number in range(count)]
    node = helper.make_node(schema.name, names, ["y"], **attributes)
    imports = [helper.make_opsetid("", opset)]
    function = helper.make_function("dnnl", "f", names, ["y"], [node], imports)
    inputs = [
        helper.make_tensor_value_info(f"{name}_", kind, [1, 2, 4, 4])
        for name, kind in zip(names, kinds, strict=True)
    ]
    call = helper.make_node("f", [f"{name}_" for name in names], ["z"], domain="dnnl")
    output = helper.make_empty_tensor_value_info("z")
    graph = helper.make_graph([call], "g", inputs, [output])
    imports = [*imports, helper.make_opsetid("dnnl", 1)]
    return helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=10)


def _kind(schema: Schema, number: int) -> int:
    """Return a type that an input may have: float, or the first that there is."""
    types = schema.inputs[min(number, len(schema.inputs) - 1)].types
    if "tensor(float)" in types:
        return TensorProto.FLOAT
    return int(
        TensorProto.DataType.Value(min(types).removeprefix("tensor(").removesuffix(")").upper())
    )


def why(model: onnx.ModelProto) -> str:
    """Return why a call is not translated; "" if it is."""
    (call,) = model_from_proto(model, Path(), "m.onnx").graph
    try:
        translate(call)
    except RefusedError as error:
        return str(error)
    return ""


def test_every_understood_operator_is_one_of_onnx() -> None:
    """No name is misspelt, and no attribute: some version has each."""
    schemas = versions()
    assert {schema.name for schema in schemas} == {*_UNDERSTOOD}
    for name, (_, names) in _UNDERSTOOD.items():
        known = {each for schema in schemas if schema.name == name for each in schema.attributes}
        assert {*names.split()} <= known


@pytest.mark.parametrize("schema", versions(), ids=lambda s: f"{s.name}-{s.since_version}")
def test_what_is_not_understood_stays_with_onnxruntime(schema: Schema) -> None:
    """An attribute or an input beyond the table is a reason, by its name, in every version."""
    most, names = _UNDERSTOOD[schema.name]
    count = max(schema.min_input, 1)
    for name, attribute in schema.attributes.items():
        if name in names.split():
            continue
        said = why(call_of(schema, count, **{name: VALUES[attribute.type]}))
        default = attribute.default_value
        if default.name and helper.get_attribute_value(default) == VALUES[attribute.type]:
            assert f"with {name}" not in said
            said = why(call_of(schema, count, **{name: VALUES[attribute.type] + 1}))
        assert said == f"{schema.name} with {name}"
    if schema.max_input > most:
        assert "inputs" in why(call_of(schema, most + 1))


@pytest.mark.parametrize("name", ["NoSuchOperator", "Einsum", "GridSample"])
def test_another_operator_is_a_reason(name: str) -> None:
    """It is named."""
    schema = onnx.defs.get_schema("Relu")
    model = call_of(schema, 1)
    model.functions[0].node[0].op_type = name
    assert why(model) == f"operator {name}"


@pytest.mark.parametrize(
    ("asked", "dtype"), [(None, "uint8"), (0, "uint8"), (2, "uint8"), (3, "int8"), (4, "")]
)
def test_the_type_of_steps_is_the_one_asked_for(asked: int | None, dtype: str) -> None:
    """A QuantizeLinear without a zero point says its type by an attribute since opset 21."""
    attributes: dict[str, Value] = {} if asked is None else {"output_dtype": asked}
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], **attributes)
    imports = [helper.make_opsetid("", 21)]
    function = helper.make_function("dnnl", "f", ["x", "s"], ["y"], [node], imports)
    graph = helper.make_graph(
        [helper.make_node("f", ["x_", "s_"], ["z"], domain="dnnl")],
        "g",
        [helper.make_tensor_value_info("x_", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("z")],
        [helper.make_tensor("s_", TensorProto.FLOAT, [], [0.5])],
    )
    imports = [*imports, helper.make_opsetid("dnnl", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=10)

    if not dtype:
        assert "steps of type uint16" in why(model)
        return
    (call,) = model_from_proto(model, Path(), "m.onnx").graph
    plan = translate(call)
    assert plan.dtypes[plan.outputs[0]] == dtype
