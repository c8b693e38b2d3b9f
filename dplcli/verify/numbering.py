"""Value numbering: equal numbers for values that are computed alike, over several models.

A value gets its number from the operator that makes it, its opset and attributes, and the numbers
of what that reads. So two values have equal numbers if the same computation makes them from the
same inputs and constants (B. Alpern, M. Wegman, F. Zadeck, Detecting Equality of Variables in
Programs, POPL 1988).

What does not matter: names of inner values and nodes, the order of nodes, documentation, types
that the file states, whether a default is written down, whether a constant is stored or made by a
Constant, and Identity.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
)

from dplcli.ir.model import in_order
from dplcli.ir.operators import KERNEL_SLOT, RANDOM_OPS, WINDOWED, canonical_domain, commutes
from dplcli.onnx_io.convert import names_read
from dplcli.onnx_io.infer import count_calls
from dplcli.verify.model import attribute

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from dplcli.onnx_io.infer import FunctionKey

    ValueNumber: TypeAlias = "tuple[int, int]"
    """What a value is: the number of what makes it, and which output of that it is."""

    Scope: TypeAlias = "dict[str, ValueNumber]"

SHORT = 64
"""Tensors of more bytes than this are compared by digest, so that they are not copied about."""

_FIRST_IR_WITH_DEFAULTS = 4
"""In older files every stored tensor is an input, too."""

_WITHOUT_TENSOR = {AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT}
_NO_VALUE: ValueNumber = (-1, 0)

_KNOWN_DOMAINS = {"", "ai.onnx.ml", "ai.onnx.preview", "com.microsoft"}
"""What their operators give depends on their operands alone, if their names do not say else."""

_RANDOM_NAMES = ("Dropout", "Random", "Sampling")

_NOT_VALUES = {"name", "type", "doc_string"}
"""The fields of an attribute that say nothing about its value, or that the value shows."""


class _DoubtError(Exception):
    """It cannot be told what a node computes; the message says why."""


@dataclass
class Numbered:
    """A model in numbers.

    Attributes:
        values: The numbers of what the main graph is given, stores and makes, by name.
        outputs: The numbers of what it returns.
        nodes: How often each computation stands in it, and in bodies.
        example: A node for each.
        doubts: Why it cannot be told what some node computes; its values are like no others.
    """

    values: Scope = field(default_factory=dict)
    outputs: list[ValueNumber] = field(default_factory=list)
    nodes: Counter[int] = field(default_factory=Counter)
    example: dict[int, NodeProto] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


class Numbering:
    """Gives equal numbers to equal computations, in all models that it is shown.

    Args:
        draws_alike: Whether alike nodes draw the same random numbers. They may be said to in a
            proof that one model is the other. In two runs they do not.
    """

    def __init__(self, *, draws_alike: bool = False) -> None:
        self._draws_alike = draws_alike
        self._numbers: dict[Hashable, int] = {}
        self._shapes: dict[ValueNumber, tuple[int, ...]] = {}
        # of the model that is being numbered
        self._opsets: dict[str, int] = {}
        self._functions: dict[FunctionKey, str] = {}
        self._found = Numbered()

    def model(self, model: ModelProto, given: Mapping[str, str] | None = None) -> Numbered:
        """Number a model.

        Args:
            model: The model. A tensor in another file is what its entries say about the place.
            given: Values that others read by these names, whatever computes them.
        """
        self._found = found = Numbered()
        stated = {(canonical_domain(each.domain), each.version) for each in model.opset_import}
        self._opsets = dict(stated or {("", 1)})
        if len(self._opsets) < len(stated):
            found.doubts.append("a domain is imported twice, in two versions")
        self._functions = _contents(model)
        stored = self._stored(model.graph)
        scope = dict(stored)
        for info in model.graph.input:
            if info.name not in stored or model.ir_version >= _FIRST_IR_WITH_DEFAULTS:
                scope[info.name] = self._value("input", info.name, stored.get(info.name))
        found.outputs = self._graph(model.graph, [scope], found.nodes, given or {})
        for number, node in found.example.items():
            if found.nodes[number] > 1 and _draws(node):
                found.doubts.append(f"{node.op_type} may draw random numbers, and two are alike")
        return found

    def _number(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _value(self, *key: Hashable) -> ValueNumber:
        return self._number(*key), 0

    def _nothing_else(self) -> int:
        """Return a number that nothing else has."""
        return self._number("unique", len(self._numbers))

    def _doubtful(self, doubt: _DoubtError) -> ValueNumber:
        self._found.doubts.append(str(doubt))
        return self._nothing_else(), 0

    def _stored(self, graph: GraphProto) -> Scope:
        """Number what a graph stores, by name."""
        found = {}
        for tensor in (*graph.initializer, *graph.sparse_initializer):
            is_sparse = isinstance(tensor, SparseTensorProto)
            name = tensor.values.name if is_sparse else tensor.name
            try:
                found[name] = self._sparse(tensor) if is_sparse else self._constant(tensor)
            except _DoubtError as doubt:
                found[name] = self._doubtful(doubt)
        return found

    def _sparse(self, tensor: SparseTensorProto) -> ValueNumber:
        parts = _content(tensor.values), _content(tensor.indices)
        return self._value("sparse", tuple(tensor.dims), *parts)

    def _constant(self, tensor: TensorProto) -> ValueNumber:
        value = self._value("constant", *_content(tensor))
        self._shapes[value] = tuple(tensor.dims)
        return value

    def _graph(
        self,
        graph: GraphProto,
        scopes: list[Scope],
        nodes: Counter[int],
        given: Mapping[str, str],
    ) -> list[ValueNumber]:
        """Number the nodes of a graph; return what it returns."""
        scope = scopes[-1]
        made: Scope = {}
        for node in self._in_order(graph.node):
            made.update(zip(node.output, self._made_by(node, scopes, nodes), strict=True))
            for name in node.output:
                scope[name] = self._value("given", given[name]) if name in given else made[name]
        outputs = [self._returned(made, info.name, scopes) for info in graph.output]
        if len(scopes) == 1:
            self._found.values = scope | made
        return outputs

    def _returned(self, made: Scope, name: str, scopes: list[Scope]) -> ValueNumber:
        try:
            return made[name] if name in made else _read(name, scopes)
        except _DoubtError as doubt:
            return self._doubtful(doubt)

    def _in_order(self, nodes: Sequence[NodeProto]) -> Iterable[NodeProto]:
        """Return nodes such that each stands behind those it reads."""
        maker = {name: place for place, node in enumerate(nodes) for name in node.output if name}
        readers: dict[int, list[int]] = {place: [] for place in range(len(nodes))}
        is_sorted = True
        for place, node in enumerate(nodes):
            for name in names_read(node) if node.attribute else node.input:
                if (needed := maker.get(name)) is not None:
                    readers[needed].append(place)
                    is_sorted = is_sorted and needed < place
        if is_sorted:
            return nodes
        order = in_order(readers)
        if len(order) < len(nodes):
            self._found.doubts.append("a node needs what it makes")
        return [nodes[place] for place in order]

    def _made_by(
        self, node: NodeProto, scopes: list[Scope], nodes: Counter[int]
    ) -> Iterable[ValueNumber]:
        """Number a node; return what it makes."""
        try:
            read = [_read(name, scopes) for name in node.input]
            if not canonical_domain(node.domain) and len(node.output) == 1:
                if node.op_type == "Identity" and len(read) == 1 and read != [_NO_VALUE]:
                    return read
                if node.op_type == "Constant" and not read:
                    return [self._constant_of(node)]
            number = self._computation(node, read, scopes)
        except _DoubtError as doubt:
            number, _ = self._doubtful(doubt)
        nodes[number] += 1
        self._found.example.setdefault(number, node)
        return [(number, place) for place in range(len(node.output))]

    def _computation(self, node: NodeProto, read: list[ValueNumber], scopes: list[Scope]) -> int:
        """Return the number of what a node computes."""
        domain = canonical_domain(node.domain)
        if domain not in self._opsets:
            raise _DoubtError(f"no opset of {domain!r} is imported, which {node.op_type} is of")
        if not self._draws_alike and node.op_type in RANDOM_OPS:
            return self._nothing_else()
        version = self._opsets[domain]
        function = self._functions.get((domain, node.op_type, node.overload))
        defaults, shrinks = _declared(domain, node.op_type, version)
        if function is not None:
            defaults, shrinks = {}, False
        while shrinks and read and read[-1] == _NO_VALUE:
            read.pop()
        attributes: frozenset[Hashable] = frozenset()
        if node.attribute:
            given = {item.name: self._attribute(item, scopes) for item in node.attribute}
            if len(given) < len(node.attribute):
                raise _DoubtError(f"{node.op_type} {name_of(node)!r} has an attribute twice")
            implied = [] if domain else self._implied(node, read)
            attributes = frozenset(
                (name, value)
                for name, value in given.items()
                if defaults.get(name) != value and name not in implied
            )
        outputs = len(node.output)
        while shrinks and outputs and not node.output[outputs - 1]:
            outputs -= 1
        operator = (domain, node.op_type, node.overload, version, function)
        if commutes(domain, node.op_type, len(read)):
            read = sorted(read)
        return self._number("node", operator, attributes, tuple(read), outputs)

    def _implied(self, node: NodeProto, read: Sequence[ValueNumber]) -> list[str]:
        """Return attributes that say what the standard takes for granted, in prose."""
        if node.op_type != "Transpose" and node.op_type not in WINDOWED:
            return []
        lists = {item.name: tuple(item.ints) for item in node.attribute}
        if node.op_type == "Transpose":
            permutation = lists.get("perm", ())
            is_implied = bool(permutation) and permutation == (*reversed(range(len(permutation))),)
            return ["perm"] * is_implied
        slot = KERNEL_SLOT.get(node.op_type, len(read))
        shape = self._shapes.get(read[slot], ())[2:] if slot < len(read) else ()
        rank = len(lists.get("kernel_shape", shape))
        ones = (1,) * rank
        found = [name for name in ("strides", "dilations") if rank and lists.get(name) == ones]
        mode = attribute(node, "auto_pad")
        if rank and lists.get("pads") == (0, 0) * rank and (mode is None or mode.s == b"NOTSET"):
            found.append("pads")
        return [*found, "kernel_shape"] if rank and lists.get("kernel_shape") == shape else found

    def _constant_of(self, node: NodeProto) -> ValueNumber:
        """Number what a Constant makes."""
        if len(node.attribute) == 1:
            (item,) = node.attribute
            _require_one_value(item)
            match item.name, item.type:
                case "value", AttributeProto.TENSOR:
                    return self._constant(item.t)
                case "sparse_value", AttributeProto.SPARSE_TENSOR:
                    return self._sparse(item.sparse_tensor)
                case (
                    ("value_float", AttributeProto.FLOAT)
                    | ("value_int", AttributeProto.INT)
                    | ("value_floats", AttributeProto.FLOATS)
                    | ("value_ints", AttributeProto.INTS)
                ):
                    given = onnx.helper.get_attribute_value(item)
                    kind = TensorProto.FLOAT if "float" in item.name else TensorProto.INT64
                    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
                    return self._constant(onnx.numpy_helper.from_array(np.array(given, dtype)))
                case _:
                    pass
        return self._value("made", *((item.name, _value_of(item)) for item in node.attribute))

    def _attribute(self, item: AttributeProto, scopes: list[Scope]) -> Hashable:
        """Return what an attribute says."""
        if item.HasField("g") or item.graphs:
            _require_one_value(item)
            graphs = [item.g] if item.HasField("g") else item.graphs
            return tuple(self._body(graph, scopes) for graph in graphs)
        return _value_of(item)

    def _body(self, graph: GraphProto, scopes: list[Scope]) -> Hashable:
        """Number a body: what it returns, and which nodes it has."""
        for name in (name for node in graph.node for name in node.output if name):
            if any(name in outer for outer in scopes):  # who reads it first may mean the outer one
                raise _DoubtError(f"two values have the name {name!r}, one in a body")
        scope = self._stored(graph)
        for place, info in enumerate(graph.input):
            scope[info.name] = self._value("formal", len(scopes), place, scope.get(info.name))
        inner: Counter[int] = Counter()
        outputs = self._graph(graph, [*scopes, scope], inner, {})
        self._found.nodes.update(inner)
        return self._number("body", tuple(outputs), frozenset(inner.items()))


def same_numbers(ours: Mapping[str, ValueNumber], theirs: dict[str, ValueNumber]) -> dict[str, str]:
    """Return for values of one model values of the other with the same numbers, none twice."""
    alike: dict[ValueNumber, list[str]] = defaultdict(list)
    for name in reversed(theirs):
        alike[theirs[name]].append(name)
    found = {}
    for name, number in ours.items():
        if partners := alike.get(number):
            found[name] = partners.pop()
    return found


def _read(name: str, scopes: Sequence[Scope]) -> ValueNumber:
    """Return the number of a value that is read."""
    if not name:
        return _NO_VALUE
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    raise _DoubtError(f"nothing makes the value {name!r}")


def _contents(model: ModelProto) -> dict[FunctionKey, str]:
    """Return what the functions of a model say, and the functions that they call."""
    known = {(canonical_domain(f.domain), f.name, f.overload): f for f in model.functions}
    calls = {key: count_calls(function.node, known)[1] for key, function in known.items()}
    callers: dict[FunctionKey, list[FunctionKey]] = {key: [] for key in known}
    for key, inside in calls.items():
        for inner in inside:
            callers[inner].append(key)
    found: dict[FunctionKey, str] = {}
    for key in in_order(callers):
        text = known[key].SerializeToString(deterministic=True)
        called = sorted((inner, found[inner]) for inner in calls[key])
        found[key] = digest(repr((text, called)).encode())
    return found


def name_of(node: NodeProto) -> str:
    """Return the name of a node, or that of what it makes."""
    return node.name or next(filter(None, node.output), "")


def _draws(node: NodeProto) -> bool:
    """Tell whether a node may give something else each time, even for a seed: in a loop it does."""
    return (
        canonical_domain(node.domain) not in _KNOWN_DOMAINS
        or node.op_type in RANDOM_OPS
        or any(word in node.op_type for word in _RANDOM_NAMES)
    )


@cache
def _declared(domain: str, op_type: str, version: int) -> tuple[dict[str, Hashable], bool]:
    """Return what need not be written down.

    Returns:
        The values of attributes, and whether operands at the end can be left out, results too:
        not those of Split, which counts them, and nobody knows of others.
    """
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return {}, False
    given = ((name, each.default_value) for name, each in schema.attributes.items())
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    is_fixed = all(port.option != variadic for port in (*schema.inputs, *schema.outputs))
    return {name: _value_of(value) for name, value in given if value.name}, is_fixed


def _require_one_value(item: AttributeProto) -> None:
    """Refuse an attribute with two values: which of them counts is anyone's guess."""
    if sum(each.name not in _NOT_VALUES for each, _ in item.ListFields()) > 1:
        raise _DoubtError(f"the attribute {item.name!r} has more than one value")


def _value_of(item: AttributeProto) -> Hashable:
    """Return what says the name and value of an attribute without bodies."""
    if item.ref_attr_name:
        raise _DoubtError(f"the attribute {item.name!r} refers to one of a function, outside it")
    if item.type not in _WITHOUT_TENSOR:
        if item.HasField("t"):
            _require_one_value(item)
            return "tensor", _content(item.t)
        if item.tensors:
            _require_one_value(item)
            return "tensors", *map(_content, item.tensors)
    if item.doc_string:
        copied = AttributeProto()
        copied.CopyFrom(item)
        item = copied
        item.ClearField("doc_string")
    text: bytes = item.SerializeToString(deterministic=True)
    return text


# Constants.


def _content(tensor: TensorProto) -> tuple[Hashable, ...]:
    """Return what a tensor holds."""
    kind = tensor.data_type, tuple(tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        entries = sorted((entry.key, entry.value) for entry in tensor.external_data)
        return (*kind, "elsewhere", *entries)
    if tensor.data_type == TensorProto.STRING:
        return (*kind, *tensor.string_data)
    try:
        data = raw_data(tensor)
    except (ValueError, TypeError) as error:
        raise _DoubtError(f"the constant {tensor.name!r} cannot be read: {error}") from error
    return (*kind, data if len(data) <= SHORT else digest(data))


def raw_data(tensor: TensorProto) -> bytes:
    """Return the elements of a tensor as the field ``raw_data`` would hold them.

    Raises:
        ValueError: The tensor is damaged.
        TypeError: It has no known type.
    """
    if tensor.HasField("raw_data"):
        held: bytes = tensor.raw_data
        return held
    packed: bytes = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)).raw_data
    return packed


def digest(data: bytes) -> str:
    """Return what stands for long data."""
    return hashlib.sha256(data).hexdigest()
