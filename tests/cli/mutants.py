"""Seeded single mistakes in a partitioned model, each of a size that somebody could make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.random import Generator

OTHER_OP = {
    "Relu": "Abs",
    "Add": "Mul",
    "Mul": "Add",
    "Sum": "Max",
    "Sigmoid": "Tanh",
    "Tanh": "Sigmoid",
    "Clip": "Relu",
    "LeakyRelu": "Relu",
    "Erf": "Tanh",
    "Sub": "Add",
    "Div": "Mul",
}
SWAPPED = {"scale", "shift", "mean", "var"}


@dataclass(frozen=True)
class Mutant:
    """A model with one mistake in it, and what the mistake is."""

    kind: str
    what: str
    model: onnx.ModelProto


def mutants(model: onnx.ModelProto, seed: int, count: int) -> list[Mutant]:
    """Return *count* different mutants, or all there are, in seeded order."""
    rng = np.random.default_rng(seed)
    makers = [*_operators(model), *_attributes(model), *_weights(model), *_inputs(model)]
    chosen = rng.permutation(len(makers))[:count]
    return [_made(model, rng, *makers[index]) for index in chosen]


def _made(model: onnx.ModelProto, rng: Generator, kind: str, place: tuple[int, int]) -> Mutant:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    what = {
        "operator": _swap_operator,
        "attribute": _change_attribute,
        "weight": _change_weight,
        "input": _swap_inputs,
    }[kind](copy, place, rng)
    assert copy != model
    return Mutant(kind, what, copy)


def _calls(model: onnx.ModelProto) -> Iterator[tuple[int, onnx.NodeProto]]:
    written = {(function.domain, function.name) for function in model.functions}
    for index, node in enumerate(model.graph.node):
        if (node.domain, node.op_type) in written:
            yield index, node


def _operators(model: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every operator in a function body that another one of the same arity can stand for."""
    for row, function in enumerate(model.functions):
        for column, node in enumerate(function.node):
            if node.op_type in OTHER_OP:
                yield "operator", (row, column)


def _swap_operator(model: onnx.ModelProto, place: tuple[int, int], _: Generator) -> str:
    function = model.functions[place[0]]
    node = function.node[place[1]]
    old, node.op_type = node.op_type, OTHER_OP[node.op_type]
    if old in {"Clip", "LeakyRelu"}:
        del node.input[1:]
        del node.attribute[:]
    return f"{function.name}: {node.op_type} instead of {old}"


def _attributes(model: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every attribute of a call that can be changed without changing a shape."""
    for row, call in _calls(model):
        for column, attribute in enumerate(call.attribute):
            if _is_changeable(attribute):
                yield "attribute", (row, column)


def _is_changeable(attribute: onnx.AttributeProto) -> bool:
    name = attribute.name.rsplit("_", 1)[0] if attribute.name[-1].isdigit() else attribute.name
    if name.endswith("pads"):
        return any(attribute.ints)
    return name.endswith(("epsilon", "alpha", "min", "max", "beta"))


def _change_attribute(model: onnx.ModelProto, place: tuple[int, int], _: Generator) -> str:
    call = model.graph.node[place[0]]
    attribute = call.attribute[place[1]]
    if attribute.ints:
        half = len(attribute.ints) // 2
        side = next(i for i, pad in enumerate(attribute.ints) if pad)
        attribute.ints[side] -= 1
        attribute.ints[(side + half) % (2 * half)] += 1
    else:
        attribute.f = attribute.f + 0.5
    return f"{call.name}: {attribute.name} is {list(attribute.ints) or attribute.f}"


def _weights(model: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every float weight that a call reads, or that lies in a function body."""
    read = {name for _, call in _calls(model) for name in call.input}
    for row, tensor in enumerate(model.graph.initializer):
        if tensor.name in read and tensor.data_type == onnx.TensorProto.FLOAT:
            yield "weight", (-1, row)
    for row, function in enumerate(model.functions):
        for column, node in enumerate(function.node):
            if node.op_type == "Constant" and node.attribute[0].t.data_type == 1:
                yield "weight", (row, column)


def _change_weight(model: onnx.ModelProto, place: tuple[int, int], rng: Generator) -> str:
    """Make one weight far larger than the others: one wrong number among thousands."""
    row, column = place
    if row < 0:
        tensor = model.graph.initializer[column]
    else:
        tensor = model.functions[row].node[column].attribute[0].t
    values = numpy_helper.to_array(tensor).copy()
    at = tuple(int(rng.integers(size)) for size in values.shape)
    name = tensor.name
    values[at] += 10 * values.std() + np.abs(values).max() + 0.1
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    return f"{name or model.functions[row].name}{list(at)} is {values[at]:.3g}"


def _inputs(model: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every pair of neighbouring inputs of a call that are per-channel figures."""
    functions = {(item.domain, item.name): item for item in model.functions}
    for row, call in _calls(model):
        names = functions[call.domain, call.op_type].input
        for column in range(len(names) - 1):
            if {names[column], names[column + 1]} <= SWAPPED:
                yield "input", (row, column)


def _swap_inputs(model: onnx.ModelProto, place: tuple[int, int], _: Generator) -> str:
    call = model.graph.node[place[0]]
    column = place[1]
    first, second = call.input[column], call.input[column + 1]
    call.input[column], call.input[column + 1] = second, first
    return f"{call.name}: {first} and {second} swapped"
