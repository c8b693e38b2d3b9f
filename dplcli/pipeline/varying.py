"""Graphs changed: an example of a rule varied at random, and a counterexample made simpler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dplcli.catalog.sketch import Instance, InstanceNode, VariantSketch
from dplcli.ir.types import DTYPE_CODES, Tensor
from dplcli.pipeline.drawing import (
    CONSTANT_KINDS,
    DRAWN_TYPES,
    SELDOM,
    DeadEndError,
    as_type,
    numbers_of,
)
from dplcli.pipeline.sampling import Sampler
from dplcli.pipeline.wishes import stated_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from dplcli.ir import Model, SchemaLibrary
    from dplcli.language.pattern import AttributeValue
    from dplcli.language.rule import Rule
    from dplcli.pipeline.drawing import Array, Shape

FLOATS = ("float32", "float64", "float16")

# Drawing a graph by changing one that is there: an example of the rule.


def instance_of(model: Model) -> Instance:
    """Describe a small model by names.

    Raises:
        DeadEndError: It has bodies, functions, or types that are not made up.
    """
    graph = model.graph
    instance = Instance(outputs=[value.name for value in graph.outputs])
    sizes: dict[object, int] = {}
    for value in graph.inputs:
        if value.is_initializer:
            continue
        kind = value.known_type()
        if kind is None or kind.dtype not in DTYPE_CODES or kind.shape is None:
            raise DeadEndError
        shape = tuple(
            dim if isinstance(dim, int) else sizes.setdefault(dim, 2 + len(sizes))
            for dim in kind.shape
        )
        instance.inputs[value.name] = (kind.dtype, shape)
    for value in graph.initializers:
        instance.constants[value.name] = _data_of(value.constant)
    for node in graph:
        if node.op_type == "Constant" and node.outputs[0] is not None:
            instance.constants[node.outputs[0].name] = _data_of(node.outputs[0].constant)
            continue
        attributes: dict[str, Any] = {}
        for name, attribute in node.attributes.items():
            item = attribute.value
            attributes[name] = item.numpy() if isinstance(item, Tensor) else item
            if attribute.ref or not isinstance(
                attributes[name], (int, float, str, tuple, np.ndarray)
            ):
                raise DeadEndError
        read, made = (
            tuple("" if v is None else v.name for v in side) for side in (node.inputs, node.outputs)
        )
        instance.nodes.append(InstanceNode(node.op_type, node.domain, read, made, attributes))
    return instance


def _data_of(tensor: Tensor | None) -> Array:
    if tensor is None or tensor.dtype not in DRAWN_TYPES:
        raise DeadEndError
    return np.asarray(tensor.numpy())


def changed_at_random(
    graph: Instance, rule: Rule, schemas: SchemaLibrary, opset: int, random: np.random.Generator
) -> Instance:
    """Return *graph* with one to three things changed."""
    changed = graph
    for _ in range(int(random.integers(1, 4))):
        match int(random.integers(6)):
            case 0 | 1:
                changed = _with_constant(changed, stated_numbers(rule), random)
            case 2:
                sizes = sorted({d for _, shape in changed.inputs.values() for d in shape})
                if sizes:
                    old = int(random.choice(sizes))
                    changed = resized(changed, old, int(random.integers(1, 7)))
            case 3:
                changed = _with_attribute(changed, rule, schemas, opset, random)
            case 4:
                changed = _with_narrow_input(changed, random)
            case _:
                changed = retyped(changed, FLOATS, str(random.choice(FLOATS)))
    return changed


def _with_constant(
    graph: Instance, wished: Sequence[float], random: np.random.Generator
) -> Instance:
    if not graph.constants:
        return graph
    name = str(random.choice(sorted(graph.constants)))
    old = graph.constants[name]
    if old.dtype.kind == "f":
        kind = str(random.choice(CONSTANT_KINDS))
        numbers = numbers_of(kind, old.shape, random, wished)
    elif old.dtype.kind in "iu" and old.size:
        numbers = old.astype(np.float64).reshape(-1)
        numbers[int(random.integers(old.size))] += float(random.choice([-1, 1]))
        if old.min() >= 0:  # a place counted from the end is another kind of graph
            numbers = np.maximum(numbers, 0)
        numbers = numbers.reshape(old.shape)
    else:
        return graph
    return _with_data(graph, name, as_type(numbers, str(old.dtype)))


def _with_attribute(
    graph: Instance, rule: Rule, schemas: SchemaLibrary, opset: int, random: np.random.Generator
) -> Instance:
    at = int(random.integers(len(graph.nodes)))
    node = graph.nodes[at]
    schema = schemas.find(node.op_type, node.domain, opset)
    if schema is None or not schema.attributes:
        return graph
    name = str(random.choice(sorted(schema.attributes)))
    attributes = dict(node.attributes)
    old = attributes.get(name)
    if name in attributes and random.random() < SELDOM:
        del attributes[name]
    elif isinstance(old, tuple) and old and isinstance(old[0], int):
        attributes[name] = tuple(int(n) for n in random.permutation(old))
    else:
        sampler = Sampler(VariantSketch({}, schemas), rule, schemas, opset, random, daring=1.0)
        value = sampler.attribute(node.op_type, name, schema.attributes[name], 4)
        if value is None:
            return graph
        attributes[name] = value
    return _with_node(graph, at, attributes=attributes)


def _with_narrow_input(graph: Instance, random: np.random.Generator) -> Instance:
    """Give one input, or constant, one element along an axis, so that it is broadcast."""
    names = [name for name, (_, shape) in graph.inputs.items() if shape]
    if not names:
        return graph
    name = str(random.choice(names))
    dtype, shape = graph.inputs[name]
    axis = int(random.integers(len(shape)))
    return _with_input(graph, name, dtype, (*shape[:axis], 1, *shape[axis + 1 :]))


def resized(graph: Instance, old: int, new: int) -> Instance:
    """Return *graph* with *new* wherever a size was *old*: of inputs, constants, and lists."""
    inputs = {
        name: (dtype, tuple(new if d == old else d for d in shape))
        for name, (dtype, shape) in graph.inputs.items()
    }
    constants: dict[str, Array] = {}
    for name, data in graph.constants.items():
        if data.dtype.kind in "iu" and data.ndim == 1:
            constants[name] = np.where(data == old, np.asarray(new, data.dtype), data)
            continue
        changed = data
        for axis, size in enumerate(data.shape):
            if size == old:
                changed = np.take(changed, np.arange(new) % old, axis=axis)
        constants[name] = changed
    return replace(graph, inputs=inputs, constants=constants)


def retyped(graph: Instance, old: Collection[str], new: str) -> Instance:
    """Return *graph* with the type *new* wherever inputs and constants are of *old* types."""
    inputs = {
        name: (new if kind in old else kind, shape) for name, (kind, shape) in graph.inputs.items()
    }
    constants = {
        name: as_type(data, new) if str(data.dtype) in old else data
        for name, data in graph.constants.items()
    }
    return replace(graph, inputs=inputs, constants=constants)


# Making a graph simpler, one step at a time: what is wrong with a rule shows best in a small graph.


def simpler(graph: Instance) -> Iterator[Instance]:
    """Yield graphs that are simpler than *graph* in one thing, those that save most first."""
    for kind in {kind: None for kind, _ in graph.inputs.values() if kind != "float32"}:
        yield retyped(graph, [kind], "float32")
    for name, data in graph.constants.items():
        if data.dtype.kind == "f":  # fed, if the rule allows it: a pattern may ask for a constant
            others = {other: kept for other, kept in graph.constants.items() if other != name}
            fed = {**graph.inputs, name: (str(data.dtype), data.shape)}
            yield replace(graph, inputs=fed, constants=others)
    yield from _without_axes(graph)
    shapes = [shape for _, shape in graph.inputs.values()]
    shapes += [data.shape for data in graph.constants.values()]
    sizes = sorted({d for shape in shapes for d in shape if d > 1}, reverse=True)
    for size in sizes:
        for new in range(1, min(size, 4)):
            yield resized(graph, size, new)
    for name, (dtype, shape) in graph.inputs.items():
        for axis, size in enumerate(shape):
            for new in range(1, min(size, 3)):
                yield _with_input(graph, name, dtype, (*shape[:axis], new, *shape[axis + 1 :]))
    yield from _plainer_attributes(graph)
    yield from _plainer_constants(graph)


def _without_axes(graph: Instance) -> Iterator[Instance]:
    """Drop the first axis of everything that has the most, or of one operand."""
    ranks = [len(shape) for _, shape in graph.inputs.values()]
    ranks += [data.ndim for data in graph.constants.values() if data.dtype.kind == "f"]
    most = max(ranks, default=0)
    if most > 0:
        inputs = {
            name: (kind, shape[1:] if len(shape) == most else shape)
            for name, (kind, shape) in graph.inputs.items()
        }
        longest = {
            name: data[0]
            for name, data in graph.constants.items()
            if data.ndim == most and len(data) and data.dtype.kind == "f"
        }
        yield replace(graph, inputs=inputs, constants=graph.constants | longest)
    for name, (kind, shape) in graph.inputs.items():
        if shape:
            yield _with_input(graph, name, kind, shape[1:])
            yield _with_input(graph, name, kind, shape[:-1])
    for name, data in graph.constants.items():
        if data.ndim and data.size and data.dtype.kind == "f":
            yield _with_data(graph, name, data[0])


def _plainer_attributes(graph: Instance) -> Iterator[Instance]:
    for at, node in enumerate(graph.nodes):
        for name, value in node.attributes.items():
            without = {key: kept for key, kept in node.attributes.items() if key != name}
            yield _with_node(graph, at, attributes=without)
            plainer: list[AttributeValue] = []
            if isinstance(value, tuple) and value and all(isinstance(n, int) for n in value):
                if name != "perm":
                    plainer = [(0,) * len(value), (1,) * len(value)]
                    low = [1 if isinstance(n, int) and n > 1 else n for n in value]
                    plainer.append(tuple(low))
            elif isinstance(value, int) and name not in {"to", "axis"}:
                plainer = [number for number in (0, 1) if number < value]
            elif isinstance(value, int) and name == "axis":
                plainer = [number for number in (0, 1, -1) if abs(number) < abs(value)]
            elif isinstance(value, float):
                plainer = [number for number in (1.0, 0.5) if len(repr(value)) > len(repr(number))]
            for simple in plainer:
                if simple != value:
                    yield _with_node(graph, at, attributes={**node.attributes, name: simple})


def _with_node(graph: Instance, at: int, **changes: Any) -> Instance:  # noqa: ANN401  # fields
    node = replace(graph.nodes[at], **changes)
    return replace(graph, nodes=[*graph.nodes[:at], node, *graph.nodes[at + 1 :]])


def _with_input(graph: Instance, name: str, dtype: str, shape: Shape) -> Instance:
    return replace(graph, inputs={**graph.inputs, name: (dtype, shape)})


def _with_data(graph: Instance, name: str, data: Array) -> Instance:
    return replace(graph, constants={**graph.constants, name: data})


def _plainer_constants(graph: Instance) -> Iterator[Instance]:
    for name, data in graph.constants.items():
        if data.dtype.kind != "f":
            continue
        options = [np.full(data.shape, number) for number in (0.0, 1.0, 2.0, -1.0)]
        options += [np.round(data), np.round(data, 1)]
        cost = _untidiness(data)
        for option in options:
            plain = as_type(option, str(data.dtype))
            if _untidiness(plain) < cost:
                yield _with_data(graph, name, plain)


def _untidiness(data: Array) -> int:
    numbers = data.reshape(-1).tolist()
    return sum(len(f"{number:g}") for number in numbers) + len(set(numbers))
