"""The power of a check: wrong models made on purpose, and outputs that say nothing."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import EncodeError

from dplcli.analysis.extract import subgraphs
from dplcli.files import resolved
from dplcli.ir import Node, Shape, Value
from dplcli.ir.model import RULE_KEY
from dplcli.ir.operators import ORDERED, REARRANGING, SET_BY_NUMBERS, canonical_domain, is_random
from dplcli.onnx_io.convert import load_data
from dplcli.verify.compare import Judge
from dplcli.verify.model import Dataflow, integer, model_of, numbers_in, stored
from dplcli.verify.values import Array, ModelSource, Outputs, RunError, StoppedError
from dplcli.verify.verdict import Power

# Changes that change no result, whatever the model is fed. They say nothing about a check.


_SPATIAL = 2
_SCALES = frozenset({"Mul", "Div"})
_ATTENTION = frozenset({"Attention", "MultiHeadAttention"})
_ADDS = frozenset({"Add", "Gemm"})


class Idleness:
    """Tells which attributes and weights of a model cannot matter.

    Args:
        model: The model.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)  # which loses its large weights
        self._values = {value.name: value for value in Dataflow(copy).values()}
        self._ends = {f.name: f.node[-1].op_type for f in model.functions if f.node}
        self._spreading = {"ConvTranspose"} | {
            function.name
            for function in model.functions
            if any(node.op_type == "ConvTranspose" for node in function.node)
        }

    def is_idle_attribute(self, node: onnx.NodeProto, item: onnx.AttributeProto) -> bool:
        """Tell whether an attribute cannot matter at all."""
        if item.name == "beta":
            return len([given for given in node.input if given]) < len(("A", "B", "C"))
        axes = self.idle_axes(node, item.name)
        return bool(axes) and len(axes) >= len(item.ints)

    def idle_axes(self, node: onnx.NodeProto, name: str) -> frozenset[int]:
        """Return the axes along which an attribute of a window cannot matter.

        Dilations do not matter where the kernel has one element. Strides do not matter where the
        result has one element; for a transposed convolution, where the input has one.
        """
        extents: list[Shape] = []
        if name == "dilations":
            extents = [tuple(item.ints) for item in node.attribute if item.name == "kernel_shape"]
            extents += self._extents(node.input[1:2])
        if name == "strides":
            side = node.input if node.op_type in self._spreading else node.output
            extents = self._extents(side[:1])
        return frozenset(
            axis for extent in extents for axis, size in enumerate(extent) if size == 1
        )

    def is_key_bias(self, weight: str) -> bool:
        """Tell whether a weight is added to the keys of attention, and to nothing else.

        Such a bias adds the same number to the scores of all keys of a query, and Softmax ignores
        what is added to all.
        """
        value = self._values.get(weight)
        if value is None or value.use_count != 1 or len(_shape_of(value)) != 1:
            return False
        ((node, slot),) = value.iter_uses()
        if slot == 0 or slot != len(node.inputs) - 1:
            return False
        if self._ends.get(node.op_type, node.op_type) not in _ADDS:
            return False
        return _scores_keys(node.outputs[0])

    def _extents(self, names: Sequence[str]) -> list[Shape]:
        values = (self._values[name] for name in names if name in self._values)
        return [_shape_of(value)[_SPATIAL:] for value in values]


def _shape_of(value: Value) -> Shape:
    known = value.declared_type
    return () if known is None or known.shape is None else known.shape


def _scores_keys(value: Value | None) -> bool:
    """Tell whether a value holds the keys of attention."""
    while value is not None and value.use_count == 1:
        ((node, slot),) = value.iter_uses()
        if node.op_type in _ATTENTION:
            return slot == 1 and "softcap" not in node.attributes
        if node.op_type == "MatMul":
            return slot == 1 and _becomes_a_share(node.outputs[0])
        if slot or not (_scales(node) or node.op_type in REARRANGING):
            return False
        value = node.outputs[0]
    return False


def _becomes_a_share(value: Value | None) -> bool:
    """Tell whether scores go to a Softmax, with nothing but factors and masks before it."""
    while value is not None and value.use_count == 1:
        ((node, slot),) = value.iter_uses()
        if node.op_type == "Softmax":
            return integer(node, "axis", -1) == -1
        if not ((_scales(node) and not slot) or node.op_type == "Add"):
            return False
        value = node.outputs[0]
    return False


def _scales(node: Node) -> bool:
    """Tell whether a node multiplies what it reads first by a single number."""
    factor = node.inputs[1] if node.op_type in _SCALES else None
    known = None if factor is None else factor.declared_type
    return known is not None and known.shape is not None and set(known.shape) <= {1}


# Wrong models made on purpose, one change each, to learn what a check notices.
#
# Changes are made where a tool was at work: in the bodies and calls of partitions, and in nodes
# that a rewrite made. In a model without either, every node may change. A change is another weight
# (as a whole, or its largest element), another attribute, two operands swapped, or one operator
# taken for another. In bodies of If, Loop and Scan only weights change: other changes make endless
# loops. A weight in another file is read when its turn comes, and stands in the mutant itself; the
# others stay where they are.


_Site = Callable[[onnx.ModelProto, np.random.Generator], str]
"""Changes a model somewhere, and says in words what it did; "" if it could do nothing."""

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
_MOST_SHOWN = 8
_FACTORS = (1.1, -1.0, 10.0)
_PARTITION_KEYS = frozenset({"Composite", "Codegen"})
_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE})
_BYTES = frozenset({onnx.TensorProto.INT8, onnx.TensorProto.UINT8})


@dataclass(frozen=True)
class NodePosition:
    """A node that may be changed: number of its function (-1: main graph), and its own there."""

    function: int
    node: int

    def find(self, model: onnx.ModelProto) -> onnx.NodeProto:
        """Return the node in *model*."""
        owner = model.graph if self.function < 0 else model.functions[self.function]
        node: onnx.NodeProto = owner.node[self.node]
        return node


@dataclass(frozen=True)
class ChangeableNodes:
    """The nodes that may be changed, and what to call them."""

    label: str
    places: tuple[NodePosition, ...]


def changeable_nodes(model: onnx.ModelProto) -> ChangeableNodes:
    """Return the nodes inside what a tool wrote, or all nodes if nothing says so."""
    written = {
        index
        for index, function in enumerate(model.functions)
        if any(entry.key in _PARTITION_KEYS for entry in function.metadata_props)
    }
    names = {(model.functions[i].domain, model.functions[i].name) for i in written}
    main = {NodePosition(-1, index): node for index, node in enumerate(model.graph.node)}
    inner = [
        NodePosition(index, number)
        for index, function in enumerate(model.functions)
        for number in range(len(function.node))
    ]
    calls = [place for place, node in main.items() if (node.domain, node.op_type) in names]
    if calls:
        own = [place for place in inner if place.function in written]
        return ChangeableNodes("partitions", (*own, *calls))
    rewritten = [
        place
        for place, node in main.items()
        if any(entry.key == RULE_KEY for entry in node.metadata_props)
    ]
    if rewritten:
        return ChangeableNodes("rewritten nodes", tuple(rewritten))
    return ChangeableNodes("whole model", (*main, *inner))


def changes(
    model: onnx.ModelProto, rng: np.random.Generator, home: Path = Path()
) -> Iterator[tuple[_Site, int]]:
    """Yield random changes and seeds for them without end, or none if there is nothing to change.

    Each is applied to a fresh copy of *model*.

    Args:
        model: The model, without the weights that lie in other files.
        rng: Draws.
        home: The folder in which other files are looked up.
    """
    places = changeable_nodes(model).places
    idleness = Idleness(model)
    kinds = (
        _weight_sites(model, places, idleness, home),
        _attribute_sites(model, places, idleness),
        _operand_sites(model, places),
    )
    sites = [kind for kind in kinds if kind]
    while sites:
        kind = sites[int(rng.integers(len(sites)))]
        yield kind[int(rng.integers(len(kind)))], int(rng.integers(2**32))


def _weight_sites(
    model: onnx.ModelProto,
    places: tuple[NodePosition, ...],
    idleness: Idleness,
    home: Path,
) -> list[_Site]:
    """Return changes of the weights that the places read, or hold in themselves."""
    tensors = {t.name: i for i, t in enumerate(model.graph.initializer)}
    sites: dict[str, _Site] = {}
    held: list[_Site] = []
    for place in places:
        node = place.find(model)
        held += [
            _tensor_site(partial(_held_at, place, number), home, whole=True)
            for number, (_, tensor) in enumerate(_held(node))
            if _is_weight(tensor)
        ]
        for name, whole in _reads(node) if place.function < 0 else ():
            if idleness.is_key_bias(name):
                continue
            if name in tensors and _is_weight(model.graph.initializer[tensors[name]]):
                find = partial(_initializer_at, tensors[name])
                sites[name] = _tensor_site(find, home, whole=whole)
    return [*sites.values(), *held]


def _held(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield the tensors of a Constant and of the bodies of a node, and what to call them."""
    if node.op_type == "Constant":
        name = f"constant {node.output[0]!r}"
        yield from ((name, item.t) for item in node.attribute if item.HasField("t"))
    for body in subgraphs(node):
        yield from ((f"weight {tensor.name!r}", tensor) for tensor in body.initializer)
        for inner in body.node:
            yield from _held(inner)


def _reads(node: onnx.NodeProto) -> Iterator[tuple[str, bool]]:
    """Yield what a node and its bodies compute with, and whether they may use only a part of it."""
    if node.op_type not in SET_BY_NUMBERS:
        yield from ((name, node.op_type in _TABLES) for name in node.input)
    for body in subgraphs(node):
        for inner in body.node:
            yield from _reads(inner)


def _is_weight(tensor: onnx.TensorProto) -> bool:
    size = math.prod(tensor.dims)
    is_number = tensor.data_type in _FLOATS
    return size > 0 and (is_number or (tensor.data_type in _BYTES and size > 1))


def _tensor_site(
    find: Callable[[onnx.ModelProto], tuple[str, onnx.TensorProto]], home: Path, *, whole: bool
) -> _Site:
    def change(model: onnx.ModelProto, rng: np.random.Generator) -> str:
        label, tensor = find(model)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            try:
                load_data(tensor, home)
            except (OSError, ValueError, onnx.checker.ValidationError):
                return ""
        values, what = _changed(onnx.numpy_helper.to_array(tensor), rng, whole=whole)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        return f"{label} {what}" if what else ""

    return change


def _initializer_at(index: int, model: onnx.ModelProto) -> tuple[str, onnx.TensorProto]:
    tensor = model.graph.initializer[index]
    return f"weight {tensor.name!r}", tensor


def _held_at(
    place: NodePosition, number: int, model: onnx.ModelProto
) -> tuple[str, onnx.TensorProto]:
    return next(islice(_held(place.find(model)), number, None))


def _changed(values: Array, rng: np.random.Generator, *, whole: bool) -> tuple[Array, str]:
    """Return changed values and what changed, in words; '' if nothing did."""
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


def _node_site(
    place: NodePosition, change: Callable[[onnx.NodeProto, np.random.Generator], str]
) -> _Site:
    return lambda model, rng: change(place.find(model), rng)


def _attribute_sites(
    model: onnx.ModelProto, places: tuple[NodePosition, ...], idleness: Idleness
) -> list[_Site]:
    kinds = (onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.FLOAT)
    return [
        _node_site(place, partial(_attribute_changed, index, idleness.idle_axes(node, item.name)))
        for place in places
        for node in [place.find(model)]
        for index, item in enumerate(node.attribute)
        if item.type in kinds and not item.ref_attr_name and item.name not in _LEFT_ALONE
        if node.op_type not in {"Constant", "Cast", "ConstantOfShape"}
        if not idleness.is_idle_attribute(node, item)
    ]


def _attribute_changed(
    index: int, idle: frozenset[int], node: onnx.NodeProto, rng: np.random.Generator
) -> str:
    item = node.attribute[index]
    before = onnx.helper.get_attribute_value(item)
    if item.type == onnx.AttributeProto.FLOAT:
        item.f = item.f * 2 + 0.125
    elif item.type == onnx.AttributeProto.INT:
        item.i = 1 - item.i if item.i in {0, 1} else item.i + int(rng.choice((-1, 1)))
    elif item.name == "pads":
        # The sum stays the same, and so does the shape.
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
    after = onnx.helper.get_attribute_value(item)
    if before == after:
        return ""
    return f"{node.op_type} {node.output[0]!r}: {_difference(item.name, before, after)}"


def _difference(name: str, before: object, after: object) -> str:
    """Say how an attribute changed; of a long list, name only the elements that changed."""
    match before, after:
        case [*old], [*new] if len(old) > _MOST_SHOWN:
            pairs = enumerate(zip(old, new, strict=True))
            return ", ".join(f"{name}[{i}] {a} -> {b}" for i, (a, b) in pairs if a != b)
    return f"{name} {before} -> {after}"


def _operand_sites(model: onnx.ModelProto, places: tuple[NodePosition, ...]) -> list[_Site]:
    sites: list[_Site] = []
    for place in places:
        node = place.find(model)
        if canonical_domain(node.domain):
            continue
        if node.op_type in ORDERED and len(node.input) > 1 and node.input[0] != node.input[1]:
            sites.append(_node_site(place, partial(_swapped, 0)))
        if node.op_type == "Where" and node.input[1] != node.input[2]:
            sites.append(_node_site(place, partial(_swapped, 1)))
        if node.op_type in _NEIGHBOURS:
            sites.append(_node_site(place, _mistaken))
    return sites


def _swapped(slot: int, node: onnx.NodeProto, _: np.random.Generator) -> str:
    node.input[slot], node.input[slot + 1] = node.input[slot + 1], node.input[slot]
    return f"{node.op_type} {node.output[0]!r}: operands swapped"


def _mistaken(node: onnx.NodeProto, _: np.random.Generator) -> str:
    before, node.op_type = node.op_type, _NEIGHBOURS[node.op_type]
    return f"{before} {node.output[0]!r} -> {node.op_type}"


# Measuring the power of a check: how many wrong models would it have refused?


# Tries per mutant asked for: onnxruntime refuses many of the changed models.
_PATIENCE = 10


def measure_power(
    candidate: ModelSource, count: int, seed: int, is_caught: Callable[[ModelSource], bool]
) -> Power:
    """Try *count* wrong candidates, fewer where no more of them run.

    Args:
        candidate: The model in question; it is not changed.
        count: How many mutants to try.
        seed: Decides which.
        is_caught: Runs a mutant and tells whether the check refuses it.
            Raises RunError if onnxruntime does not run it.
    """
    model = model_of(candidate)
    tried: set[str] = set()
    caught = 0
    missed: list[str] = []
    drawn = changes(model, np.random.default_rng(seed), resolved(candidate.path).parent)
    for _, (change, number) in zip(range(_PATIENCE * count), drawn, strict=False):
        if caught + len(missed) == count:
            break
        mutant = onnx.ModelProto()
        mutant.CopyFrom(model)
        what = change(mutant, np.random.default_rng(number))
        if not what or what in tried:
            continue
        tried.add(what)
        try:
            refused = is_caught(replace(candidate, content=mutant.SerializeToString()))
        except (RunError, StoppedError, ValueError, EncodeError):
            continue  # it does not run, or is too large once a weight stands in it
        if refused:
            caught += 1
        else:
            missed.append(what)
    return Power(caught, caught + len(missed), tuple(missed), changeable_nodes(model).label)


# What the check cannot see: outputs that say nothing about the computation behind them.


def blind_outputs(judge: Judge, runs: Sequence[Outputs]) -> tuple[str, ...]:
    """Return the outputs that *judge* finds equal for all inputs.

    Args:
        judge: The tolerances in force.
        runs: The original's outputs for different inputs, at least two.
    """
    first, *others = runs
    return tuple(
        name
        for name, leaves in first.items()
        if all(judge.compare(name, leaves, other[name]).ok for other in others)
    )


def value_warnings(runs: Sequence[Outputs], blind: Sequence[str]) -> list[str]:
    """Name the *blind* outputs, and others that are all NaN or one number throughout."""
    warnings = [
        f"output {name!r} does not change with the input; the check has no power over it"
        for name in blind
    ]
    for name in runs[0]:
        leaves = [leaf.data for outputs in runs for leaf in outputs[name]]
        numbers = [data for data in leaves if data.size and data.dtype.kind in "fiu"]
        if not numbers or name in blind:
            continue
        if all(np.isnan(data).all() for data in numbers):
            warnings.append(f"output {name!r} is NaN everywhere")
        elif all(data.size > 1 and (data == data.flat[0]).all() for data in numbers):
            warnings.append(f"output {name!r} has the same number in every element")
    return warnings


def random_warnings(flow: Dataflow) -> list[str]:
    """Warn of an operator that draws random numbers: nothing behind it can be compared fairly."""

    def is_true(value: Value | None) -> bool | None:
        numbers = None if value is None else numbers_in(stored(value))
        return None if numbers is None else bool(numbers.any())

    for node in flow.nodes():
        output = next(filter(None, node.outputs), None)
        if output is not None and is_random(node.domain, node.op_type, node.inputs, is_true):
            return [f"the model draws random numbers ({node.op_type} {output.name!r})"]
    return []
