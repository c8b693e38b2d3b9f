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
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto

from dplcli.ir.model import followers_last
from dplcli.ir.operators import KERNEL_SLOT, WINDOWED, canonical_domain, commutes, may_be_random
from dplcli.onnx_io.convert import names_read, schema_in_force
from dplcli.onnx_io.infer import functions_in_order

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from onnx import GraphProto, ModelProto

    from dplcli.onnx_io.infer import FunctionKey

    ValueNumber: TypeAlias = "tuple[int, int]"
    """What a value is: the number of what makes it, and which output of that it is."""

    Scope: TypeAlias = "dict[str, ValueNumber]"

    CallKey: TypeAlias = "tuple[bytes, tuple[bool, ...], tuple[bool, ...]]"
    """A kind of call: all but its names, and which of the values that it reads and makes it has."""

SHORT = 4096
"""Tensors of more bytes than this are compared by digest, so that they are not copied about."""

_FIRST_IR_WITH_DEFAULTS = 4
"""In older files every stored tensor is an input, too."""

_NO_VALUE: ValueNumber = (-1, 0)


_NOT_VALUES = {"name", "type", "doc_string"}
"""The fields of an attribute that say nothing about its value, or that the value shows."""


class _DoubtError(Exception):
    """It cannot be told what a node computes; the message says why."""


@dataclass(eq=False)
class _Kind:
    """Nodes that are the same but for their names, so that all else is looked at once.

    Attributes:
        node: One of them, without names.
        text: That, written out.
        domain: The domain of its operator.
        function: What it calls, by content; None if it is no call.
        has_bodies: Whether it has bodies: what they compute depends on what they capture.
        is_copy: Whether it gives what it reads.
        is_constant: Whether it is a Constant.
        shrinks: Whether operands at the end can be left out, results too.
        commutes: Whether two operands may change places.
        kernel: Which operand's shape may make attributes superfluous.
        operators: The number of operator and attributes, by that shape.
        constant: What a Constant makes, once that is known.
    """

    node: NodeProto
    text: bytes
    domain: str
    function: str | None
    has_bodies: bool
    is_copy: bool
    is_constant: bool
    shrinks: bool
    commutes: bool
    kernel: int | None
    operators: dict[tuple[int, ...], int] = field(default_factory=dict)
    constant: ValueNumber | None = None


class _Step(NamedTuple):
    """A node, its kind, and the names that it reads and makes."""

    node: NodeProto
    kind: _Kind
    reads: list[str]
    makes: list[str]


class _Body(NamedTuple):
    """What stands in the place of a call: its nodes, and what it is given and returns."""

    steps: Sequence[_Step]
    inputs: list[str]
    outputs: list[str]


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

    Alike nodes are taken to draw the same random numbers, as they do where one model is the other.

    Args:
        by_name: Whether those of other names draw other numbers, even if they are alike.
    """

    def __init__(self, *, by_name: bool = False) -> None:
        self._by_name = by_name
        self._numbers: dict[Hashable, int] = {}
        self._shapes: dict[ValueNumber, tuple[int, ...]] = {}
        # of the model that is being numbered
        self._opsets: dict[str, int] = {}
        self._functions: dict[FunctionKey, str] = {}
        self._bodies: Mapping[CallKey, GraphProto] = {}
        self._kinds: dict[bytes, _Kind] = {}
        self._called: dict[CallKey, _Body] = {}
        self._found = Numbered()

    def model(
        self,
        model: ModelProto,
        given: Mapping[str, str] | None = None,
        bodies: Mapping[CallKey, GraphProto] | None = None,
    ) -> Numbered:
        """Number a model.

        Args:
            model: The model. A tensor in another file is what its entries say about the place.
            given: Values that others read by these names, whatever computes them.
            bodies: What stands in the place of calls, which are numbered as what that computes.
        """
        self._found = numbered = Numbered()
        stated = {(canonical_domain(each.domain), each.version) for each in model.opset_import}
        self._opsets = dict(stated or {("", 1)})
        if len(self._opsets) < len(stated):
            numbered.doubts.append("a domain is imported twice, in two versions")
        self._functions = _contents(model)
        self._bodies, self._kinds, self._called = bodies or {}, {}, {}
        stored = self._stored(model.graph)
        scope = dict(stored)
        for info in model.graph.input:
            if info.name not in stored or model.ir_version >= _FIRST_IR_WITH_DEFAULTS:
                scope[info.name] = self._value("input", info.name, stored.get(info.name))
        given_values = self._run(
            self._steps(model.graph.node), [scope], numbered.nodes, given or {}
        )
        numbered.values = scope | given_values
        numbered.outputs = self._returned(
            (info.name for info in model.graph.output), [numbered.values]
        )
        for number, times in numbered.nodes.items():
            if times > 1 and _may_draw(node := numbered.example[number]):
                numbered.doubts.append(f"{node.op_type} may draw random numbers, and two are alike")
        return numbered

    def _number(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _value(self, *key: Hashable) -> ValueNumber:
        return self._number(*key), 0

    def _doubtful(self, doubt: _DoubtError) -> ValueNumber:
        self._found.doubts.append(str(doubt))
        return self._value("unique", len(self._numbers))  # like no other

    def _stored(self, graph: GraphProto) -> Scope:
        """Number what a graph stores, by name."""
        scope: Scope = {}
        for tensor in graph.initializer:
            scope[tensor.name] = self._tensor(tensor)
        for sparse in graph.sparse_initializer:
            scope[sparse.values.name] = self._tensor(sparse)
        if len(scope) < len(graph.initializer) + len(graph.sparse_initializer):
            self._found.doubts.append("two constants have the same name")
        return scope

    def _tensor(self, tensor: TensorProto | SparseTensorProto) -> ValueNumber:
        """Number a constant."""
        try:
            if isinstance(tensor, SparseTensorProto):
                parts = _content(tensor.values), _content(tensor.indices)
                return self._value("sparse", tuple(tensor.dims), *parts)
            content = _content(tensor)
        except _DoubtError as doubt:
            return self._doubtful(doubt)
        value = self._value(content)
        self._shapes[value] = content.dims
        return value

    def _steps(self, nodes: Sequence[NodeProto]) -> Sequence[_Step]:
        """Return nodes with their kinds, each behind those that it reads."""
        steps = []
        for node in nodes:
            reads, makes, text = _parts(node)
            kind = self._kinds.get(text)
            if kind is None:
                kind = self._kinds[text] = self._kind(text)
            steps.append(_Step(node, kind, reads, makes))
        # Each has to stand behind those that it reads.
        needed = [
            [*names_read(each.node)] if each.kind.has_bodies else each.reads for each in steps
        ]
        later = {name for each in steps for name in each.makes if name}
        for step, names in zip(steps, needed, strict=True):
            if not later.isdisjoint(names):
                break
            later.difference_update(step.makes)
        else:
            return steps
        maker = {name: place for place, step in enumerate(steps) for name in step.makes if name}
        readers: dict[int, list[int]] = {place: [] for place in range(len(steps))}
        for place, names in enumerate(needed):
            for name in names:
                if name in maker:
                    readers[maker[name]].append(place)
        order = followers_last(readers)
        if len(order) < len(steps):
            self._found.doubts.append("a node needs what it makes")
        return [steps[place] for place in order]

    def _kind(self, text: bytes) -> _Kind:
        node = NodeProto.FromString(text)
        domain, op_type = canonical_domain(node.domain), node.op_type
        function = self._functions.get((domain, op_type, node.overload))
        version = self._opsets.get(domain, 0)
        return _Kind(
            node=node,
            text=text,
            domain=domain,
            function=function,
            has_bodies=any(item.HasField("g") or item.graphs for item in node.attribute),
            is_copy=not domain and op_type == "Identity" and not node.attribute,
            is_constant=not domain and op_type == "Constant",
            shrinks=function is None and _declared(domain, op_type, version)[1],
            commutes=commutes(domain, op_type, 2),
            kernel=None if domain else KERNEL_SLOT.get(op_type),
        )

    def _run(
        self,
        steps: Sequence[_Step],
        scopes: list[Scope],
        nodes: Counter[int],
        given: Mapping[str, str],
    ) -> Scope:
        """Number steps, into the innermost scope; return those values that are given, as made."""
        scope = scopes[-1]
        given_values: Scope = {}
        for step in steps:
            for name, number in zip(step.makes, self._made_by(step, scopes, nodes), strict=True):
                if not name:
                    continue
                if name in scope:
                    self._found.doubts.append(f"two values have the name {name!r}")
                scope[name] = number
                if name in given:
                    given_values[name] = number
                    scope[name] = self._value("given", given[name])
        return given_values

    def _returned(self, names: Iterable[str], scopes: list[Scope]) -> list[ValueNumber]:
        """Return what a graph returns."""
        values = []
        for name in names:
            try:
                values.append(_read(name, scopes))
            except _DoubtError as doubt:
                values.append(self._doubtful(doubt))
        return values

    def _made_by(
        self, step: _Step, scopes: list[Scope], nodes: Counter[int]
    ) -> Sequence[ValueNumber]:
        """Number what a node makes."""
        node, kind, reads, makes = step
        scope = scopes[-1]
        try:
            read = [scope[name] if name in scope else _read(name, scopes) for name in reads]
            if kind.is_copy and len(read) == len(makes) == 1 and read != [_NO_VALUE]:
                return read
            if kind.is_constant and not read and len(makes) == 1:
                if kind.constant is None:
                    kind.constant = self._constant_of(kind.node)
                return [kind.constant]
            if kind.function and (body := self._body_of(step)):
                # as deep as the call, and it sees nothing around it
                inside = [*({} for _ in scopes[1:]), dict(zip(body.inputs, read, strict=True))]
                self._run(body.steps, inside, nodes, {})
                return self._returned(body.outputs, inside)
            number = self._computation(kind, read, makes, scopes)
        except _DoubtError as doubt:
            number, _ = self._doubtful(doubt)
        if number in nodes:
            nodes[number] += 1
        else:
            nodes[number] = 1
            self._found.example.setdefault(number, node)
        return [(number, place) for place in range(len(makes))]

    def _body_of(self, call: _Step) -> _Body | None:
        """Return what stands in the place of a call, if that is known."""
        key = call.kind.text, tuple(map(bool, call.reads)), tuple(map(bool, call.makes))
        if key in self._bodies and key not in self._called:
            graph = self._bodies[key]
            ends = [info.name for info in graph.input], [info.name for info in graph.output]
            self._called[key] = _Body(self._steps(graph.node), *ends)
        return self._called.get(key)

    def _computation(
        self, kind: _Kind, read: list[ValueNumber], makes: list[str], scopes: list[Scope]
    ) -> int:
        """Return the number of what a node computes."""
        outputs = len(makes)
        if kind.shrinks:
            while read and read[-1] == _NO_VALUE:
                read.pop()
            while outputs and not makes[outputs - 1]:
                outputs -= 1
        shape: tuple[int, ...] = ()
        if kind.kernel is not None and kind.kernel < len(read):
            shape = self._shapes.get(read[kind.kernel], ())[2:]
        operator = kind.operators.get(shape)
        if operator is None:
            operator = self._operator(kind, shape, scopes)
            if not kind.has_bodies:
                kind.operators[shape] = operator
        if kind.commutes and len(read) == 2:  # noqa: PLR2004  # a pair
            read.sort()
        own = next(filter(None, makes), "") if self._by_name and _may_draw(kind.node) else ""
        return self._number("node", operator, tuple(read), outputs, own)

    def _operator(self, kind: _Kind, kernel: tuple[int, ...], scopes: list[Scope]) -> int:
        """Number an operator with its attributes."""
        node, domain = kind.node, kind.domain
        if domain not in self._opsets:
            raise _DoubtError(f"no opset of {domain!r} is imported, which {node.op_type} is of")
        version = self._opsets[domain]
        defaults, _, since = _declared(domain, node.op_type, version)
        if kind.function:
            defaults, since = {}, version
        given = {item.name: self._attribute(item, scopes) for item in node.attribute}
        if len(given) < len(node.attribute):
            raise _DoubtError(f"{node.op_type} has an attribute twice")
        stated = {name: value for name, value in given.items() if defaults.get(name) != value}
        implied = [] if domain else _implied(node, stated, kernel)
        attributes = frozenset(item for item in stated.items() if item[0] not in implied)
        return self._number(
            "operator", domain, node.op_type, node.overload, since, kind.function, attributes
        )

    def _constant_of(self, node: NodeProto) -> ValueNumber:
        """Number what a Constant makes."""
        if len(node.attribute) == 1:
            (item,) = node.attribute
            _require_one_value(item)
            match item.name, item.type:
                case "value", AttributeProto.TENSOR:
                    return self._tensor(item.t)
                case "sparse_value", AttributeProto.SPARSE_TENSOR:
                    return self._tensor(item.sparse_tensor)
                case (
                    ("value_float", AttributeProto.FLOAT)
                    | ("value_int", AttributeProto.INT)
                    | ("value_floats", AttributeProto.FLOATS)
                    | ("value_ints", AttributeProto.INTS)
                ):
                    given = onnx.helper.get_attribute_value(item)
                    kind = TensorProto.FLOAT if "float" in item.name else TensorProto.INT64
                    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
                    return self._tensor(onnx.numpy_helper.from_array(np.array(given, dtype)))
                case _:
                    pass
        return self._value("made", *((item.name, _value_of(item)) for item in node.attribute))

    def _attribute(self, item: AttributeProto, scopes: list[Scope]) -> Hashable:
        """Return what an attribute says."""
        if item.HasField("g") or item.graphs:
            _require_one_value(item)
            graphs = [item.g] if item.HasField("g") else item.graphs
            return item.type, *(self._body(graph, scopes) for graph in graphs)
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
        scopes = [*scopes, scope]
        self._run(self._steps(graph.node), scopes, inner, {})
        self._found.nodes.update(inner)
        outputs = self._returned((info.name for info in graph.output), scopes)
        return self._number("body", tuple(outputs), frozenset(inner.items()))


def call_key(node: NodeProto) -> CallKey:
    """Return what kind of call a node is."""
    reads, makes, text = _parts(node)
    return text, tuple(map(bool, reads)), tuple(map(bool, makes))


def _parts(node: NodeProto) -> tuple[list[str], list[str], bytes]:
    """Return the names that a node reads and makes, and all else that says what it computes."""
    rest = NodeProto()
    rest.CopyFrom(node)
    rest.ClearField("input")
    rest.ClearField("output")
    rest.ClearField("name")
    rest.ClearField("doc_string")
    rest.ClearField("metadata_props")
    return node.input[:], node.output[:], rest.SerializeToString()


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
    contents: dict[FunctionKey, str] = {}
    for key, (function, called) in functions_in_order(model).items():
        text = function.SerializeToString(deterministic=True)
        inside = sorted((inner, contents[inner]) for inner in called)
        contents[key] = digest(repr((text, inside)).encode())
    return contents


def _may_draw(node: NodeProto) -> bool:
    return may_be_random(node.domain, node.op_type)


@cache
def _declared(domain: str, op_type: str, version: int) -> tuple[dict[str, Hashable], bool, int]:
    """Return what need not be written down.

    Returns:
        The values of attributes; whether operands at the end can be left out, results too: not
        those of Split, which counts them, and nobody knows of others; and since which version the
        operator has been as it is.
    """
    schema = schema_in_force(op_type, version, domain)
    if schema is None:
        return {}, False, version
    given = ((name, each.default_value) for name, each in schema.attributes.items())
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    is_fixed = all(port.option != variadic for port in (*schema.inputs, *schema.outputs))
    defaults = {name: _value_of(value) for name, value in given if value.name}
    return defaults, is_fixed, schema.since_version


def _implied(
    node: NodeProto, stated: Mapping[str, Hashable], kernel: tuple[int, ...]
) -> Sequence[str]:
    """Return attributes that say what the standard takes for granted, in prose."""
    if node.op_type != "Transpose" and node.op_type not in WINDOWED:
        return []
    lists = {
        item.name: tuple(item.ints)
        for item in node.attribute
        if item.type == AttributeProto.INTS and _count_values(item) == 1
    }
    if node.op_type == "Transpose":
        permutation = lists.get("perm", ())
        is_implied = bool(permutation) and permutation == (*reversed(range(len(permutation))),)
        return ["perm"] * is_implied
    rank = len(lists.get("kernel_shape", kernel))
    if not rank:
        return []
    taken = {"strides": (1,) * rank, "dilations": (1,) * rank, "kernel_shape": kernel}
    if "auto_pad" not in stated:
        taken["pads"] = (0, 0) * rank
    return [name for name, value in taken.items() if lists.get(name) == value]


def _count_values(item: AttributeProto) -> int:
    return sum(each.name not in _NOT_VALUES for each, _ in item.ListFields())


def _require_one_value(item: AttributeProto) -> None:
    """Refuse an attribute with two values: which of them counts is anyone's guess."""
    if _count_values(item) > 1:
        raise _DoubtError(f"the attribute {item.name!r} has more than one value")


def _value_of(item: AttributeProto) -> Hashable:
    """Return what says the name and value of an attribute without bodies."""
    if item.ref_attr_name:
        raise _DoubtError(f"the attribute {item.name!r} refers to one of a function, outside it")
    if item.HasField("t"):
        _require_one_value(item)
        return item.type, _content(item.t)
    if item.tensors:
        _require_one_value(item)
        return item.type, *map(_content, item.tensors)
    copied = AttributeProto()
    copied.CopyFrom(item)
    copied.ClearField("doc_string")
    text: bytes = copied.SerializeToString(deterministic=True)
    return text


# Constants.


class _Content(NamedTuple):
    """What a tensor holds."""

    data_type: int
    dims: tuple[int, ...]
    data: Hashable


def _content(tensor: TensorProto) -> _Content:
    data_type, dims = tensor.data_type, tuple(tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        if known := content_of(tensor):
            return _Content(data_type, dims, known)
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if "location" not in entries:
            raise _DoubtError(f"the data of {tensor.name!r} lies nowhere")
        return _Content(data_type, dims, frozenset(entries.items()))
    if data_type == TensorProto.STRING:
        return _Content(data_type, dims, tuple(tensor.string_data))
    try:
        data = raw_data(tensor)
    except (ValueError, TypeError) as error:
        raise _DoubtError(f"the constant {tensor.name!r} cannot be read: {error}") from error
    return _Content(data_type, dims, data if len(data) <= SHORT else digest(data))


_CHECKSUM, _READ = "checksum", "read by dpl: "


def mark(tensor: TensorProto, digested: str) -> None:
    """Note what the external data of a tensor holds, so that it is told by that, wherever it lies.

    onnx has a key for it, which onnxruntime accepts.
    """
    tensor.external_data.add(key=_CHECKSUM, value=f"{_READ}{digested}")


def content_of(tensor: TensorProto) -> str:
    """Return the digest that :func:`mark` noted; "" if there is none."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    known = entries.get(_CHECKSUM, "")
    return known.removeprefix(_READ) if known.startswith(_READ) else ""


def raw_data(tensor: TensorProto) -> bytes:
    """Return the elements of a tensor as the field ``raw_data`` would hold them.

    Raises:
        ValueError: The tensor is damaged.
        TypeError: It has no known type.
    """
    if tensor.HasField("raw_data"):
        held: bytes = tensor.raw_data
        return held
    if tensor.data_type not in TensorProto.DataType.values():
        raise TypeError(f"there is no element type {tensor.data_type}")
    packed: bytes = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)).raw_data
    return packed


def digest(data: bytes) -> str:
    """Return what stands for long data."""
    return hashlib.sha256(data).hexdigest()
