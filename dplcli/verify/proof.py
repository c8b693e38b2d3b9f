"""The proof that two models are one graph, node for node, once all calls are written out.

A partition only moves nodes into functions. Whether it moved them rightly needs no numbers and no
tolerance: onnx's own inliner puts the bodies back in the place of the calls, and what comes out
must be the original. (dpl could do that by itself. But then a mistake in how it outlines could
cancel out with the same mistake in how it undoes that.)

Two graphs are the same if each value of one is computed as a value of the other is: by the same
operator, of the same opset, with the same attributes, of the same operands. Equal computations
get equal numbers, those of values that are read first: value numbering (B. Alpern, M. Wegman,
F. Zadeck, Detecting Equality of Variables in Programs, POPL 1988). Then outputs have to have the
same numbers, and each number has to stand for as many nodes here as there.

What does not matter: names of inner values and nodes, the order of nodes, documentation, types
that the file states, whether a default is written down, whether a constant is stored or made by a
Constant, and Identity. Two nodes that compute the same may stand for each other, since operators
give the same for the same. Only those that draw random numbers do not, and nobody knows of those
that neither the standard nor onnxruntime has; so two of them that are alike are not proved.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx
import onnx.inliner
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
)
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor

from dplcli.files import text_path
from dplcli.ir.model import expanded_sizes
from dplcli.ir.operators import KERNEL_SLOT, RANDOM_OPS, WINDOWED
from dplcli.onnx_io.convert import graphs_of, names_read
from dplcli.onnx_io.infer import Expansion
from dplcli.verify.engines import one_line
from dplcli.verify.model import attribute, read_model, signature_differences
from dplcli.verify.settings import Proof

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
    from pathlib import Path

    Numbered: TypeAlias = "tuple[int, int]"
    """What a value is: the number of what makes it, and which output of that it is."""

    FunctionKey: TypeAlias = "tuple[str, str, str]"

_SHORT = 64
"""Tensors of more bytes than this are compared by digest, so that they are not copied about."""

_FIRST_IR_WITH_DEFAULTS = 4
"""In older files every stored tensor is an input, too."""

_DIGEST, _IN_FILE = "digest", "in file"
_WITHOUT_TENSOR = {AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT}
_NO_VALUE: Numbered = (-1, 0)
_NO_NODES = {"Constant", "Identity"}

_KNOWN_DOMAINS = {"", "ai.onnx.ml", "ai.onnx.preview", "com.microsoft"}
"""What their operators give depends on their operands alone, if their names do not say else."""

_RANDOM_NAMES = ("Dropout", "Random", "Sampling")

_NOT_VALUES = {"name", "type", "doc_string"}
"""The fields of an attribute that say nothing about its value, or that the value shows."""


class UnprovedError(Exception):
    """Two models are not proved to be the same graph; the message says why."""


def prove(original: Path, candidate: Path) -> Proof:
    """Prove that two files hold the same graph, up to functions.

    Weights in external files are the same if they are the same bytes of the same file; else they
    are read.

    Raises:
        UnprovedError: They do not, or onnx's inliner cannot tell.
    """
    ours, theirs = read_model(original), read_model(candidate)
    for difference in signature_differences(ours.graph, theirs.graph):
        raise UnprovedError(difference)
    for model, path in ((ours, original), (theirs, candidate)):
        if not Expansion(model).is_bounded:
            raise UnprovedError(f"the functions of {path.name} stand for too many nodes")
    folders = original.parent, candidate.parent
    is_same_data = _external(ours, folders[0]) == _external(theirs, folders[1])
    for model, folder in zip((ours, theirs), folders, strict=True):
        _shorten(model, None if is_same_data else folder)
    moved = _moved(ours, theirs)
    numbering = _Numbering()
    before, after = numbering.model(_inlined(ours)), numbering.model(_inlined(theirs))
    numbering.require_same(before, after)
    return Proof(sum(before.nodes.values()), *moved)


# Weights: short stand-ins, which are equal where the weights are.


def _external(model: ModelProto, folder: Path) -> set[Hashable]:
    """Return which parts of which files a model's weights are."""
    found: set[Hashable] = set()
    for tensor in _tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            info = ExternalDataInfo(tensor)
            try:
                file = os.stat(folder / info.location)  # noqa: PTH116  # one call for both
            except (OSError, ValueError) as error:
                raise UnprovedError(f"the weights in {info.location!r} cannot be read") from error
            found.add((file.st_dev, file.st_ino, *_place(info)))
    return found


def _place(info: ExternalDataInfo) -> tuple[str, object, object]:
    return info.location, info.offset, info.length


def _shorten(model: ModelProto, folder: Path | None) -> None:
    """Put digests in the place of the data of long tensors.

    Args:
        model: The model, which is edited.
        folder: Where its external data is; None if it need not be read.
    """
    for tensor in _tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            if folder is None:
                place = repr(_place(ExternalDataInfo(tensor)))
                _replace_data(tensor, place.encode(), _IN_FILE)
                continue
            try:
                with text_path(folder) as path:
                    load_external_data_for_tensor(tensor, path)
            except Exception as error:  # onnx has several, of no common kind
                raise UnprovedError(f"weights cannot be read: {one_line(str(error))}") from error
        tensor.ClearField("doc_string")
        if tensor.data_type == TensorProto.STRING:
            continue
        if not tensor.HasField("raw_data"):
            try:
                raw = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor))
            except Exception as error:
                raise UnprovedError(f"a constant cannot be read: {one_line(str(error))}") from error
            _replace_data(tensor, raw.raw_data, "")
        if len(tensor.raw_data) > _SHORT:
            _replace_data(tensor, hashlib.sha256(tensor.raw_data).digest(), _DIGEST)


def _replace_data(tensor: TensorProto, data: bytes, what: str) -> None:
    """Put something else in the place of a tensor's data, and say what it is."""
    short = TensorProto(
        name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, doc_string=what
    )
    short.raw_data = data
    tensor.CopyFrom(short)


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Iterate over all tensors of a model, and the parts of sparse ones."""
    pending: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        if isinstance(graph, GraphProto):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for item in node.attribute:
                if item.type in _WITHOUT_TENSOR:
                    continue
                if item.HasField("t"):
                    yield item.t
                yield from item.tensors
                sparse = [item.sparse_tensor] if item.HasField("sparse_tensor") else []
                for each in (*sparse, *item.sparse_tensors):
                    yield from (each.values, each.indices)
            pending += (body for _, body in graphs_of(node))


# Calls: written out, and counted.


def _inlined(model: ModelProto) -> ModelProto:
    """Put the bodies of functions in the place of their calls.

    Raises:
        UnprovedError: onnx's inliner does not do it.
    """
    if not model.functions:
        return model
    names = {(_domain(function.domain), function.name) for function in model.functions}
    if hidden := sorted(name for domain, name in names if not domain):
        raise UnprovedError(f"a function has the name of an operator of the standard: {hidden[0]}")
    _write_defaults(model)
    try:
        inlined = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # it has several, of no common kind
        raise UnprovedError(f"onnx's inliner fails: {one_line(str(error))}") from error
    for node in _nodes(inlined.graph):
        if (_domain(node.domain), node.op_type) in names:
            called = f"{node.domain}::{node.op_type}"
            raise UnprovedError(f"onnx's inliner leaves a call of {called} as it is")
    return inlined


def _write_defaults(model: ModelProto) -> None:
    """Write into calls what functions take for granted: onnx's inliner does not look there."""
    for function in model.functions:
        known = {*function.attribute, *(item.name for item in function.attribute_proto)}
        read = (item.ref_attr_name for node in _nodes(function) for item in node.attribute)
        if unknown := {name for name in read if name} - known:
            raise UnprovedError(f"{function.name} has no attribute {min(unknown)!r}, but reads it")
    defaults = {_key(each): each.attribute_proto for each in model.functions}
    if not any(defaults.values()):
        return
    for root in (model.graph, *model.functions):
        for node in _nodes(root):
            implied = defaults.get((node.domain, node.op_type, node.overload))
            if implied:
                given = {item.name: item.ref_attr_name for item in node.attribute}
                if any(given.get(item.name) for item in implied):
                    raise UnprovedError(f"the default of {node.op_type} may stand for a reference")
                node.attribute.extend(item for item in implied if item.name not in given)


def _moved(ours: ModelProto, theirs: ModelProto) -> tuple[int, int, int]:
    """Count calls that only one model has: the nodes they stand for, the calls of each."""
    known = [{_key(function): function for function in model.functions} for model in (ours, theirs)]
    nodes, calls = 0, [0, 0]
    for side, model in enumerate((ours, theirs)):
        own = known[side].keys() - known[1 - side].keys()
        if not own:
            continue
        counted = {key: _count(each, known[side]) for key, each in known[side].items()}
        sizes = expanded_sizes(
            {key: count for key, (count, _) in counted.items()},
            {key: called for key, (_, called) in counted.items()},
        )
        others = (function for key, function in known[side].items() if key not in own)
        for root in (model.graph, *others):
            for key, times in _count(root, own)[1].items():
                calls[side] += times
                nodes += times * sizes[key]
    return nodes, calls[1], calls[0]


def _count(
    root: GraphProto | FunctionProto, functions: Container[FunctionKey]
) -> tuple[int, Counter[FunctionKey]]:
    """Count nodes that are no calls, and calls by function."""
    count = 0
    calls: Counter[FunctionKey] = Counter()
    for node in _nodes(root):
        if (key := (node.domain, node.op_type, node.overload)) in functions:
            calls[key] += 1
        else:
            count += bool(node.domain) or node.op_type not in _NO_NODES
    return count, calls


def _key(function: FunctionProto) -> FunctionKey:
    return function.domain, function.name, function.overload


def _nodes(root: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Iterate over the nodes of a graph or function and of every body in it."""
    pending = [root.node]
    while pending:
        for node in pending.pop():
            yield node
            pending += (body.node for _, body in graphs_of(node))


# Value numbering.


@dataclass
class _Numbered:
    """A graph in numbers.

    Attributes:
        outputs: What it returns.
        nodes: How often each computation stands in it, and in bodies.
        example: A node for each.
    """

    outputs: list[Numbered]
    nodes: Counter[int]
    example: dict[int, NodeProto]


class _Numbering:
    """Gives equal numbers to equal computations, in all graphs that it is shown."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._opsets: dict[str, int] = {}
        self._shapes: dict[Numbered, tuple[int, ...]] = {}

    def model(self, model: ModelProto) -> _Numbered:
        """Number a model without functions.

        Raises:
            UnprovedError: It cannot be told what some node computes.
        """
        stated = {(_domain(each.domain), each.version) for each in model.opset_import}
        self._opsets = dict(stated or {("", 1)})
        if len(self._opsets) < len(stated):
            raise UnprovedError("a domain is imported twice, in two versions")
        found = _Numbered([], Counter(), {})
        defaults = self._stored(model.graph)
        scope: dict[str, Numbered] = dict(defaults)
        for info in model.graph.input:
            if info.name not in defaults or model.ir_version >= _FIRST_IR_WITH_DEFAULTS:
                scope[info.name] = self._value("input", info.name, defaults.get(info.name))
        found.outputs = self._graph(model.graph, [scope], found)
        for number, node in found.example.items():
            if found.nodes[number] > 1 and _draws(node):
                raise UnprovedError(f"{node.op_type} may draw random numbers, and two are alike")
        return found

    @staticmethod
    def require_same(ours: _Numbered, theirs: _Numbered) -> None:
        """Refuse two graphs that are not the same.

        Raises:
            UnprovedError: They are not; the message says where they differ first.
        """
        for one, other, whose in ((ours, theirs, "the original"), (theirs, ours, "the candidate")):
            for number, node in one.example.items():
                if one.nodes[number] != other.nodes[number]:
                    name = _name(node)
                    here, there = one.nodes[number], other.nodes[number]
                    raise UnprovedError(
                        f"{node.op_type} {name!r} of {whose} has no counterpart"
                        if not there
                        else f"{whose} computes {node.op_type} {name!r} {here} times, not {there}"
                    )
        if ours.outputs != theirs.outputs:
            raise UnprovedError("an output is another value")

    def _number(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _value(self, *key: Hashable) -> Numbered:
        return self._number(*key), 0

    def _stored(self, graph: GraphProto) -> dict[str, Numbered]:
        """Number what a graph stores, by name."""
        found = {tensor.name: self._constant(tensor) for tensor in graph.initializer}
        for sparse in graph.sparse_initializer:
            found[sparse.values.name] = self._value("sparse", _sparse_content(sparse))
        return found

    def _constant(self, tensor: TensorProto) -> Numbered:
        value = self._value("constant", *_content(tensor))
        self._shapes[value] = tuple(tensor.dims)
        return value

    def _graph(
        self, graph: GraphProto, scopes: list[dict[str, Numbered]], found: _Numbered
    ) -> list[Numbered]:
        """Number the nodes of a graph; return what it returns."""
        scope = scopes[-1]
        for node in _in_order(graph.node):
            scope.update(zip(node.output, self._node(node, scopes, found), strict=True))
        return [self._read(info.name, scopes) for info in graph.output]

    @staticmethod
    def _read(name: str, scopes: list[dict[str, Numbered]]) -> Numbered:
        if not name:
            return _NO_VALUE
        for scope in reversed(scopes):
            if name in scope:
                return scope[name]
        raise UnprovedError(f"nothing makes the value {name!r}")

    def _node(
        self, node: NodeProto, scopes: list[dict[str, Numbered]], found: _Numbered
    ) -> Iterable[Numbered]:
        """Number a node; return what it makes."""
        domain = _domain(node.domain)
        read = [self._read(name, scopes) for name in node.input]
        if domain not in self._opsets:
            raise UnprovedError(f"no opset of {domain!r} is imported, which {node.op_type} is of")
        if not domain and len(node.output) == 1:
            if node.op_type == "Identity" and len(read) == 1 and read != [_NO_VALUE]:
                return read
            if node.op_type == "Constant" and not read:
                return [self._made(node)]
        version = self._opsets[domain]
        defaults, shrinks = _declared(domain, node.op_type, version)
        while shrinks and read and read[-1] == _NO_VALUE:
            read.pop()
        attributes: frozenset[Hashable] = frozenset()
        if node.attribute:
            given = {item.name: self._attribute(item, scopes, found) for item in node.attribute}
            if len(given) < len(node.attribute):
                raise UnprovedError(f"{node.op_type} {_name(node)!r} has an attribute twice")
            implied = [] if domain else self._implied(node, read)
            attributes = frozenset(
                (name, value)
                for name, value in given.items()
                if defaults.get(name) != value and name not in implied
            )
        operator = (domain, node.op_type, node.overload, version)
        outputs = len(node.output)
        while shrinks and outputs and not node.output[outputs - 1]:
            outputs -= 1
        number = self._number("node", operator, attributes, tuple(read), outputs)
        found.nodes[number] += 1
        found.example.setdefault(number, node)
        return [(number, place) for place in range(len(node.output))]

    def _implied(self, node: NodeProto, read: Sequence[Numbered]) -> list[str]:
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

    def _made(self, node: NodeProto) -> Numbered:
        """Number what a Constant makes."""
        if len(node.attribute) == 1:
            (item,) = node.attribute
            _require_one_value(item)
            match item.name, item.type:
                case "value", AttributeProto.TENSOR:
                    return self._constant(item.t)
                case "sparse_value", AttributeProto.SPARSE_TENSOR:
                    return self._value("sparse", _sparse_content(item.sparse_tensor))
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

    def _attribute(
        self, item: AttributeProto, scopes: list[dict[str, Numbered]], found: _Numbered
    ) -> Hashable:
        """Return what an attribute says."""
        if item.HasField("g") or item.graphs:
            _require_one_value(item)
            graphs = [item.g] if item.HasField("g") else item.graphs
            return tuple(self._body(graph, scopes, found) for graph in graphs)
        return _value_of(item)

    def _body(
        self, graph: GraphProto, scopes: list[dict[str, Numbered]], found: _Numbered
    ) -> Hashable:
        """Number a body: what it returns, and which nodes it has."""
        for name in (name for node in graph.node for name in node.output if name):
            if any(name in outer for outer in scopes):  # who reads it first may mean the outer one
                raise UnprovedError(f"two values have the name {name!r}, one in a body")
        scope = self._stored(graph)
        for place, info in enumerate(graph.input):
            scope[info.name] = self._value("given", len(scopes), place, scope.get(info.name))
        inner = _Numbered([], Counter(), found.example)
        outputs = self._graph(graph, [*scopes, scope], inner)
        found.nodes.update(inner.nodes)
        return self._number("body", tuple(outputs), frozenset(inner.nodes.items()))


def _in_order(nodes: Sequence[NodeProto]) -> Iterable[NodeProto]:
    """Return nodes such that each stands behind those it reads."""
    maker = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    read = [names_read(node) if node.attribute else node.input for node in nodes]
    needs = [[maker[name] for name in names if name in maker] for names in read]
    if all(place > other for place, others in enumerate(needs) for other in others):
        return nodes
    try:
        order = [*TopologicalSorter(dict(enumerate(needs))).static_order()]
    except CycleError as error:
        raise UnprovedError("a node needs what it makes") from error
    return [nodes[place] for place in order]


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _name(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output), "")


def _draws(node: NodeProto) -> bool:
    """Tell whether a node may give something else each time, even for a seed: in a loop it does."""
    return (
        _domain(node.domain) not in _KNOWN_DOMAINS
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
    if sum(field.name not in _NOT_VALUES for field, _ in item.ListFields()) > 1:
        raise UnprovedError(f"the attribute {item.name!r} has more than one value")


def _value_of(item: AttributeProto) -> Hashable:
    """Return what says the name and value of an attribute without bodies."""
    if item.ref_attr_name:
        raise UnprovedError(f"the attribute {item.name!r} refers to one of a function, outside it")
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


def _sparse_content(sparse: SparseTensorProto) -> Hashable:
    """Return what a sparse tensor holds."""
    return tuple(sparse.dims), _content(sparse.values), _content(sparse.indices)


def _content(tensor: TensorProto) -> tuple[Hashable, ...]:
    """Return what a tensor holds."""
    words = tuple(tensor.string_data)
    what = tensor.doc_string if tensor.doc_string in {_DIGEST, _IN_FILE} else ""
    return tensor.data_type, tuple(tensor.dims), tensor.raw_data, words, what
