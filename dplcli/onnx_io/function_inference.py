"""Types inside model-local functions, from their calls.

A function of a model is called by that model alone. So its body is inferred like a graph of its
own, for each of its calls that differ, and what they agree on holds inside: an element type, a
rank, a dimension, or that two dimensions are equal. Callers come before what they call.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

from dplcli.errors import DplError
from dplcli.ir import ArrayTensor, TensorType
from dplcli.ir.functions import (
    called_function,
    callees,
    callers_first,
    calls_in,
    nodes_stood_for,
)
from dplcli.ir.model import is_exact
from dplcli.ir.types import contradicts
from dplcli.onnx_io.attributes import encode_attribute, graphs_of
from dplcli.onnx_io.bounded_inference import (
    INFERENCE_ERRORS,
    beyond,
    most_nodes,
)
from dplcli.onnx_io.exporter import encode_function, encode_node
from dplcli.onnx_io.stated_types import infer_soundly
from dplcli.onnx_io.tensors import tensor_to_proto
from dplcli.onnx_io.types import decode_type, encode_type

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from dplcli.ir import Attribute, Dim, Function, Graph, Model, Node, Tensor, Value

    Types = dict[Value, TensorType]

_SHORT = 1024
_SCALES = 8
"""Most elements of a constant that inference may look at: of whole numbers, and of others."""


def infer_in_functions(model: Model, types: Types) -> tuple[Types, str]:
    """Add to *types* what is known inside the functions that *model* calls.

    Args:
        model: The model, as it is now.
        types: What is known of values outside functions beyond what the model states.

    Returns:
        What functions state of values inside them and is not so at some call, and a clause that
        says what was given up, or "".
    """
    refuted: Types = {}
    if not model.functions:
        return refuted, ""
    calls = calls_in(model)
    budget = _Budget(model)
    for function in callers_first(calls):
        if calls[function]:
            refuted |= _infer_body(function, calls[function], types, budget)
    return refuted, budget.problem


class _Budget:
    """How many nodes inference may still look at inside the functions that functions call.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._sizes = nodes_stood_for(model)
        outside = [node for graph in model.graph.and_inner() for node in graph]
        called = filter(None, map(called_function, outside))
        self._total = len(outside) + sum(self._sizes[function] for function in called)
        self._left = 2 * most_nodes(sum(graph.node_count for graph in model.graphs()))
        self._encoded: dict[Function, FunctionProto] = {}
        self.problem = ""

    def called_by(self, function: Function, sites: int) -> list[FunctionProto]:
        """Return the functions that *function* reaches, if that is not too much for *sites*."""
        cost = self._sizes[function] * sites
        if cost > self._left:
            self.problem = beyond(self._total)
            return []
        reached = _reached(function)
        self._left -= cost if reached else 0
        for called in reached:
            if called not in self._encoded:
                self._encoded[called] = FunctionProto.FromString(encode_function(called))
        return [self._encoded[called] for called in reached]


def _infer_body(function: Function, calls: Sequence[Node], types: Types, budget: _Budget) -> Types:
    """Infer the body of *function*, all of whose calls are typed as far as they will be."""
    symbols = _Symbols(function)
    given = [_site(function, node, types, symbols) for node in calls]
    sites = [*{site.key: site for site in given}.values()]
    if len(sites) > _MOST_SITES:
        sites = [_common_site(function, sites, symbols)]
    protos = budget.called_by(function, len(sites))
    found = [_types_at(function, site, protos) for site in sites]
    types.update(_join(found, symbols))
    return {
        value: stated
        for at_site in found
        for value, known in at_site.items()
        if (stated := value.declared_type) is not None and contradicts(stated, known)
    }


class _Symbols:
    """Names of dimensions inside a function: its own, those that calls bring, and new ones.

    What the function declares is a name for itself at each call, so a symbol that a call brings
    goes by another name where they would be one.

    Args:
        function: The function.
    """

    def __init__(self, function: Function) -> None:
        values = (v for graph in function.body.and_inner() for v in graph.values.values())
        declared = (value.declared_type for value in values)
        shapes = [known.shape for known in declared if known is not None]
        self._own = {dim for shape in shapes for dim in shape or () if isinstance(dim, str)}
        self._names = (f"{function.name}:{number}" for number in count())
        self._taken = set(self._own)
        self._made: set[str] = set()
        self._brought: dict[str, str] = {}

    def brought(self, known: TensorType | None) -> TensorType | None:
        """Return a type that a call brings, in names that mean nothing else inside."""
        if known is None or known.shape is None:
            return known
        return TensorType(known.dtype, tuple(map(self._inside, known.shape)))

    def _inside(self, dim: Dim) -> Dim:
        if not isinstance(dim, str):
            return dim
        if dim in self._own or dim in self._made:
            if dim not in self._brought:
                self._brought[dim] = self.new()
            return self._brought[dim]
        self._taken.add(dim)
        return dim

    def take(self, types: Types) -> None:
        """Let no new symbol be one of those in *types*."""
        self._taken.update(
            dim for known in types.values() for dim in known.shape or () if isinstance(dim, str)
        )

    def new(self) -> str:
        """Return a symbol that is not in use."""
        name = next(name for name in self._names if name not in self._taken)
        self._taken.add(name)
        self._made.add(name)
        return name


@dataclass
class _Site:
    """What a function is given by calls that are alike.

    Attributes:
        types: By input, its type.
        constants: By input, its data, if it is short.
        attributes: The attributes whose value is known.
        unknown: The attributes that are given, though not known here.
    """

    types: Sequence[TensorType | None]
    constants: Sequence[Tensor | None]
    attributes: dict[str, Attribute]
    unknown: frozenset[str]

    @property
    def key(self) -> Hashable:
        """Equal for calls that are alike."""
        attributes = [
            (name, item.kind, item.value if item.kind in _PLAIN_KINDS else id(item.value))
            for name, item in self.attributes.items()
        ]
        return (*self.types, *map(_data_key, self.constants), *attributes, self.unknown)


def _site(function: Function, call: Node, types: Types, symbols: _Symbols) -> _Site:
    missing = len(function.body.inputs) - len(call.inputs)
    given = [*call.inputs, *[None] * missing][: len(function.body.inputs)]
    stated = {**function.defaults, **call.attributes}
    attributes = {name: item for name, item in stated.items() if not item.ref}
    known = [symbols.brought(_type_of(value, types)) for value in given]
    constants = [_short_constant(value) for value in given]
    return _Site(known, constants, attributes, frozenset(stated.keys() - attributes.keys()))


def _common_site(function: Function, sites: Sequence[_Site], symbols: _Symbols) -> _Site:
    """Return what many calls that differ have in common."""
    formals = function.body.inputs
    given = [
        {formal: known for formal, known in zip(formals, site.types, strict=True) if known}
        for site in sites
    ]
    known = _join(given, symbols)
    attributes = {
        name: item
        for name, item in sites[0].attributes.items()
        if item.kind in _PLAIN_KINDS and all(site.attributes.get(name) == item for site in sites)
    }
    given_somewhere = frozenset().union(*(site.attributes.keys() | site.unknown for site in sites))
    return _Site(
        [known.get(formal) for formal in formals],
        [None] * len(formals),
        attributes,
        given_somewhere - attributes.keys(),
    )


def _join(found: Sequence[Types], symbols: _Symbols) -> Types:
    """Return what holds at all sites.

    Where dimensions differ between sites, those that are equal at each of them share a symbol.
    """
    if len(found) == 1:
        return found[0]
    for types in found:
        symbols.take(types)
    shared: dict[tuple[Dim, ...], str] = {}

    def common(dims: tuple[Dim, ...]) -> Dim:
        if len({*dims}) == 1:
            return dims[0]
        if None in dims:
            return None
        if dims not in shared:
            shared[dims] = symbols.new()
        return shared[dims]

    joined = {}
    for value in found[0]:
        known = [types[value] for types in found if value in types]
        if len(known) < len(found):
            continue
        dtypes, shapes = {item.dtype for item in known}, [item.shape for item in known]
        ranks = {None if shape is None else len(shape) for shape in shapes}
        shape = None
        if len(ranks) == 1 and None not in ranks:
            sizes = zip(*(shape or () for shape in shapes), strict=True)
            shape = tuple([common(dims) for dims in sizes])
        joined[value] = TensorType(dtypes.pop() if len(dtypes) == 1 else None, shape)
    return joined


def _types_at(function: Function, site: _Site, called: Iterable[FunctionProto]) -> Types:
    """Infer the body of *function* as *site* calls it."""
    formals = zip(function.body.inputs, site.types, strict=True)
    types = {formal: known for formal, known in formals if known is not None}
    try:
        model, nodes = _model_at(function, site, called)
        inferred = infer_soundly(model).graph
    except INFERENCE_ERRORS:
        return types
    _collect(function.body, inferred, nodes, types)
    return types


def _model_at(
    function: Function, site: _Site, called: Iterable[FunctionProto]
) -> tuple[ModelProto, list[Node]]:
    """Write the body as a model of its own; return it with the nodes that are in it."""
    body = function.body
    model = ModelProto(ir_version=max(body.model.ir_version, _FIRST_IR_WITH_FUNCTIONS))
    undeclared = {node.domain: 1 for inner in body.and_inner() for node in inner}
    for domain, version in {**undeclared, **body.opset_imports}.items():
        model.opset_import.add(domain=domain, version=version)
    model.functions.extend(called)
    graph = model.graph
    graph.name = function.name
    for formal, known, constant in zip(body.inputs, site.types, site.constants, strict=True):
        if constant is not None:
            graph.initializer.append(tensor_to_proto(constant, formal.name))
        elif known is not None:
            graph.input.append(encode_type(formal.name, known))
        else:
            graph.input.append(ValueInfoProto(name=formal.name))
    if isinstance(function.source, FunctionProto):
        graph.value_info.extend(function.source.value_info)
    graph.output.extend(ValueInfoProto(name=value.name) for value in body.outputs)
    return model, _add_nodes(graph, body, site)


_MOST_SITES = 32
"""Calls that differ, up to which each is looked at by itself."""

_PLAIN_KINDS = frozenset({"int", "ints", "float", "floats", "string", "strings"})

_FIRST_IR_WITH_FUNCTIONS = 8


def _reached(function: Function) -> list[Function]:
    """List what *function* calls, and what that calls, and so on."""
    found: dict[Function, None] = {}
    pending = callees(function)
    while pending:
        called = pending.pop()
        if called not in found:
            found[called] = None
            pending += callees(called)
    return [*found]


def _type_of(value: Value | None, types: Types) -> TensorType | None:
    """Return what is known of what a call gives: numbers rather than symbols."""
    if value is None:
        return None
    declared, found = value.declared_type, types.get(value)
    if found is not None and is_exact(found):
        return found
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        return declared
    return found or declared


def _short_constant(value: Value | None) -> ArrayTensor | None:
    """Read data that shapes may be computed from: whole numbers, or the scales of a Resize."""
    tensor = None if value is None else value.constant
    if tensor is None or tensor.is_external or tensor.dtype == "string":
        return None
    most = _SHORT if tensor.dtype in {"int64", "int32"} else _SCALES
    try:
        return ArrayTensor(np.asarray(tensor.numpy())) if tensor.size <= most else None
    except DplError:
        return None  # it cannot be read, so no shape follows from it


def _data_key(tensor: Tensor | None) -> Hashable:
    return None if tensor is None else (tensor.dtype, tensor.shape, tensor.numpy().tobytes())


def _add_nodes(graph: GraphProto, body: Graph, site: _Site) -> list[Node]:
    """Add the nodes of *body* all attributes of which are known; return them."""
    added = []
    for node in body:
        proto = NodeProto.FromString(encode_node(node))
        called = called_function(node)
        if called is not None:
            _drop_absent(proto, called, site)
        if _resolve(proto, site.attributes):
            graph.node.append(proto)
            added.append(node)
    return added


def _drop_absent(proto: NodeProto, called: Function, site: _Site) -> None:
    """Leave out of a call what refers to attributes that are not given, and has no default."""
    given = site.attributes.keys() | site.unknown
    kept = [
        item
        for item in proto.attribute
        if not item.ref_attr_name or item.ref_attr_name in given or item.name in called.defaults
    ]
    if len(kept) < len(proto.attribute):
        del proto.attribute[:]
        proto.attribute.extend(kept)


def _resolve(proto: NodeProto, known: Mapping[str, Attribute]) -> bool:
    """Replace references to attributes of the function; tell whether all are known."""
    for position, item in enumerate(proto.attribute):
        name = item.ref_attr_name
        if name and name not in known:
            return False
        if name:
            proto.attribute[position].CopyFrom(encode_attribute(item.name, known[name]))
    return all(_resolve(inner, known) for _, graph in graphs_of(proto) for inner in graph.node)


def _collect(graph: Graph, inferred: GraphProto, nodes: Iterable[Node], types: Types) -> None:
    """Note the types of what *nodes* make, whose messages *inferred* holds in the same order."""
    for info in (*inferred.value_info, *inferred.output):
        value = graph.values.get(info.name)
        found = decode_type(info.type)
        if value is not None and found is not None:
            types[value] = found
    for node, proto in zip(nodes, inferred.node, strict=True):
        for name, inner in graphs_of(proto):
            body = node.subgraphs.get(name)  # none where the caller gives it
            if body is not None:
                _collect(body, inner, body, types)
