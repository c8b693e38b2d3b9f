"""Wrong models made on purpose, one change each, to learn what a check notices.

Changed is what lies inside the regions that a tool wrote: bodies of partitions and their calls,
nodes that a rewrite put there; in a model without either, every node. A change is a weight (whole,
or its largest element), an attribute, two operands swapped, or an operator taken for its neighbour.
Of bodies of If, Loop and Scan only the weights are changed that they read: other changes there make
loops that do not end.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from dplcli.ir.marks import RULE_KEY
from dplcli.verify.dataflow import subgraphs
from dplcli.verify.idle import Idleness
from dplcli.verify.sessions import Array

Weights = dict[str, Array]
_Change = Callable[[onnx.ModelProto, Weights], str]

_ORDERED = frozenset({"Sub", "Div", "Pow", "MatMul", "Less", "Greater", "Mod", "PRelu"})
_NEIGHBOURS = {
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Max": "Min",
    "Min": "Max",
    "MaxPool": "AveragePool",
    "GlobalAveragePool": "GlobalMaxPool",
    "Relu": "Softplus",
    "Sigmoid": "Tanh",
    "Tanh": "Sigmoid",
    "ReduceMean": "ReduceMax",
    "Sqrt": "Exp",
}
# Attributes that decide about types or about nothing at inference.
_LEFT_ALONE = frozenset(
    {"to", "dtype", "keepdims", "ceil_mode", "allowzero", "storage_order", "saturate", "momentum"}
    | {"training_mode", "num_outputs", "spatial", "stash_type", "noop_with_empty_axes", "group"}
)
_TABLES = frozenset({"Gather", "GatherElements", "GatherND"})
_MOVED = frozenset({"Reshape", "Resize", "Slice", "Tile", "Expand", "Pad", "ConstantOfShape"})
_MOST_SHOWN = 8
_FACTORS = (1.1, -1.0, 10.0)
_PARTITION_KEYS = frozenset({"Composite", "Codegen"})
_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE})
_BYTES = frozenset({onnx.TensorProto.INT8, onnx.TensorProto.UINT8})


@dataclass(frozen=True)
class Place:
    """A node that may be changed: number of its function (-1: main graph), and its own there."""

    function: int
    node: int

    def find(self, model: onnx.ModelProto) -> onnx.NodeProto:
        """Return the node in *model*."""
        owner = model.graph if self.function < 0 else model.functions[self.function]
        node: onnx.NodeProto = owner.node[self.node]
        return node


@dataclass(frozen=True)
class Regions:
    """What may be changed, and what it is called."""

    label: str
    places: tuple[Place, ...]


def regions_of(model: onnx.ModelProto) -> Regions:
    """Return the nodes inside what a tool wrote, or all nodes if nothing says so."""
    written = [
        index
        for index, function in enumerate(model.functions)
        if any(entry.key in _PARTITION_KEYS for entry in function.metadata_props)
    ]
    names = {(model.functions[i].domain, model.functions[i].name) for i in written}
    places = [Place(i, n) for i in written for n in range(len(model.functions[i].node))]
    calls = [
        Place(-1, index)
        for index, node in enumerate(model.graph.node)
        if (node.domain, node.op_type) in names
    ]
    if calls:
        return Regions("partitions", (*places, *calls))
    rewritten = [
        Place(-1, index)
        for index, node in enumerate(model.graph.node)
        if any(entry.key == RULE_KEY for entry in node.metadata_props)
    ]
    if rewritten:
        return Regions("rewritten nodes", tuple(rewritten))
    everywhere = [Place(-1, index) for index in range(len(model.graph.node))]
    bodies = [Place(i, n) for i, f in enumerate(model.functions) for n in range(len(f.node))]
    return Regions("whole model", (*everywhere, *bodies))


def changes(
    model: onnx.ModelProto, weights: Mapping[str, Array], rng: np.random.Generator
) -> Iterator[_Change]:
    """Yield random changes without end, or none if there is nothing to change.

    Each is applied to a fresh copy of *model* and *weights*, and says in words what it did; it
    says '' if it could do nothing.
    """
    places = regions_of(model).places
    idleness = Idleness(model)
    sites = [
        sites
        for sites in (
            _weight_sites(model, weights, places, idleness),
            _attribute_sites(model, places, idleness),
            _operand_sites(model, places),
        )
        if sites
    ]
    while sites:
        kind = sites[int(rng.integers(len(sites)))]
        yield _seeded(kind[int(rng.integers(len(kind)))], int(rng.integers(2**32)))


_Site = Callable[[onnx.ModelProto, Weights, np.random.Generator], str]


def _seeded(site: _Site, seed: int) -> _Change:
    return lambda model, weights: site(model, weights, np.random.default_rng(seed))


def _weight_sites(
    model: onnx.ModelProto,
    weights: Mapping[str, Array],
    places: tuple[Place, ...],
    idleness: Idleness,
) -> list[_Site]:
    """Return the weights that the places read from outside, or hold as constants."""
    tensors = {t.name: i for i, t in enumerate(model.graph.initializer)}
    found: dict[str, _Site] = {}
    constants: list[_Site] = []
    for place in places:
        node = place.find(model)
        if node.op_type == "Constant" and any(a.name == "value" for a in node.attribute):
            tensor = next(a.t for a in node.attribute if a.name == "value")
            if tensor.data_type in _FLOATS and _is_here(tensor):
                constants.append(_constant_site(place))
        for name, whole in _reads(node) if place.function < 0 else ():
            if idleness.is_key_bias(name):
                continue
            if name in weights:
                found[name] = _refilled_site(name, whole=whole)
            elif name in tensors and _is_weight(model.graph.initializer[tensors[name]]):
                found[name] = _tensor_site(tensors[name], whole=whole)
    return [*found.values(), *constants]


def _reads(node: onnx.NodeProto) -> Iterator[tuple[str, bool]]:
    """Yield what a node or its bodies compute with, and whether only some of it may be used."""
    if node.op_type not in _MOVED:
        yield from ((name, node.op_type in _TABLES) for name in node.input)
    for body in subgraphs(node):
        for inner in body.node:
            yield from _reads(inner)


def _is_here(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location != onnx.TensorProto.EXTERNAL and 0 not in tensor.dims


def _is_weight(tensor: onnx.TensorProto) -> bool:
    is_many = len(tensor.dims) > 0 and int(np.prod(tensor.dims)) > 1
    wanted = tensor.data_type in _FLOATS or (tensor.data_type in _BYTES and is_many)
    return wanted and _is_here(tensor)


def _refilled_site(name: str, *, whole: bool) -> _Site:
    def change(_: onnx.ModelProto, weights: Weights, rng: np.random.Generator) -> str:
        values, what = _changed(weights[name], rng, whole=whole)
        weights[name] = values
        return f"weight {name!r} {what}" if what else ""

    return change


def _tensor_site(index: int, *, whole: bool) -> _Site:
    def change(model: onnx.ModelProto, _: Weights, rng: np.random.Generator) -> str:
        tensor = model.graph.initializer[index]
        values, what = _changed(onnx.numpy_helper.to_array(tensor), rng, whole=whole)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        return f"weight {tensor.name!r} {what}" if what else ""

    return change


def _constant_site(place: Place) -> _Site:
    def change(model: onnx.ModelProto, _: Weights, rng: np.random.Generator) -> str:
        node = place.find(model)
        tensor = next(a.t for a in node.attribute if a.name == "value")
        values, what = _changed(onnx.numpy_helper.to_array(tensor), rng, whole=True)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        return f"constant {node.output[0]!r} {what}" if what else ""

    return change


def _changed(values: Array, rng: np.random.Generator, *, whole: bool) -> tuple[Array, str]:
    """Return other values, and what is other about them; '' if nothing is."""
    if values.dtype.kind != "f":
        rolled = np.roll(values, 1)
        return (rolled, "rolled by one") if (rolled != values).any() else (values, "")
    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers) & (numbers != 0)
    if not finite.any():
        return values, ""
    how = int(rng.integers(len(_FACTORS) + (not whole)))
    if how < len(_FACTORS):
        changed, what = numbers * _FACTORS[how], f"times {_FACTORS[how]:g}"
    else:
        changed = numbers.copy()
        flat = int(np.where(finite, np.abs(numbers), 0).argmax())
        index = tuple(int(axis) for axis in np.unravel_index(flat, numbers.shape))
        changed[index] *= 10
        what = f"at {list(index)} times 10"
    with np.errstate(over="ignore"):
        return changed.astype(values.dtype), what


def _attribute_sites(
    model: onnx.ModelProto, places: tuple[Place, ...], idleness: Idleness
) -> list[_Site]:
    kinds = (onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.FLOAT)
    return [
        _attribute_site(place, index, idleness.idle_axes(node, item.name))
        for place in places
        for node in [place.find(model)]
        for index, item in enumerate(node.attribute)
        if item.type in kinds and not item.ref_attr_name and item.name not in _LEFT_ALONE
        if node.op_type not in {"Constant", "Cast", "ConstantOfShape"}
        if not idleness.is_idle_attribute(node, item)
    ]


def _attribute_site(place: Place, index: int, idle: frozenset[int]) -> _Site:
    def change(model: onnx.ModelProto, _: Weights, rng: np.random.Generator) -> str:
        node = place.find(model)
        item = node.attribute[index]
        before = onnx.helper.get_attribute_value(item)
        _change_attribute(item, rng, idle)
        after = onnx.helper.get_attribute_value(item)
        if before == after:
            return ""
        return f"{node.op_type} {node.output[0]!r}: {_difference(item.name, before, after)}"

    return change


def _difference(name: str, before: object, after: object) -> str:
    """Say what became of an attribute; of a long list, what became of its elements."""
    match before, after:
        case [*old], [*new] if len(old) > _MOST_SHOWN:
            pairs = enumerate(zip(old, new, strict=True))
            return ", ".join(f"{name}[{i}] {a} -> {b}" for i, (a, b) in pairs if a != b)
    return f"{name} {before} -> {after}"


def _change_attribute(
    item: onnx.AttributeProto, rng: np.random.Generator, idle: frozenset[int]
) -> None:
    if item.type == onnx.AttributeProto.FLOAT:
        item.f = item.f * 2 + 0.125
    elif item.type == onnx.AttributeProto.INT:
        item.i = 1 - item.i if item.i in {0, 1} else item.i + int(rng.choice((-1, 1)))
    elif item.name == "pads":
        # Kept in sum, so that the shape stays.
        half = len(item.ints) // 2
        axis = int(rng.integers(half)) if half else 0
        if half and item.ints[axis + half] > 0:
            item.ints[axis] += 1
            item.ints[axis + half] -= 1
        elif half and item.ints[axis] > 0:
            item.ints[axis] -= 1
            item.ints[axis + half] += 1
    elif item.name == "perm" and len(item.ints) > 1:
        first, second = rng.choice(len(item.ints), 2, replace=False)
        item.ints[first], item.ints[second] = item.ints[second], item.ints[first]
    elif axes := [axis for axis in range(len(item.ints)) if axis not in idle]:
        item.ints[axes[int(rng.integers(len(axes)))]] += 1


def _operand_sites(model: onnx.ModelProto, places: tuple[Place, ...]) -> list[_Site]:
    sites: list[_Site] = []
    for place in places:
        node = place.find(model)
        if node.domain not in {"", "ai.onnx"}:
            continue
        if node.op_type in _ORDERED and len(node.input) > 1 and node.input[0] != node.input[1]:
            sites.append(_swap_site(place, 0, 1))
        if node.op_type == "Where" and node.input[1] != node.input[2]:
            sites.append(_swap_site(place, 1, 2))
        if node.op_type in _NEIGHBOURS:
            sites.append(_neighbour_site(place))
    return sites


def _swap_site(place: Place, first: int, second: int) -> _Site:
    def change(model: onnx.ModelProto, _: Weights, __: np.random.Generator) -> str:
        node = place.find(model)
        node.input[first], node.input[second] = node.input[second], node.input[first]
        return f"{node.op_type} {node.output[0]!r}: operands swapped"

    return change


def _neighbour_site(place: Place) -> _Site:
    def change(model: onnx.ModelProto, _: Weights, __: np.random.Generator) -> str:
        node = place.find(model)
        before, node.op_type = node.op_type, _NEIGHBOURS[node.op_type]
        return f"{before} {node.output[0]!r} -> {node.op_type}"

    return change
