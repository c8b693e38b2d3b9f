"""Types and shapes by onnx's own inference, and its checker: of models, functions and nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from dplcli.errors import DplError, UsageError
from dplcli.files import temporary_folder, text_path
from dplcli.ir import TensorType
from dplcli.ir.model import (
    MANY,
    QUICKLY_CHECKED,
    called_function,
    callees,
    callers_first,
    calls_in,
    expanded_sizes,
    in_order,
    is_exact,
    nodes_stood_for,
)
from dplcli.ir.operators import TYPED_BY_TYPES, canonical_domain
from dplcli.ir.types import DTYPE_CODES, PLAIN_KINDS, contradicts, is_made_up
from dplcli.onnx_io.bounded import GivenUpError, bounded
from dplcli.onnx_io.convert import all_nodes, decode_type, encode_attribute, encode_type, graphs_of
from dplcli.onnx_io.external_data import IN_MEMORY, DataPlace
from dplcli.onnx_io.source import source_of
from dplcli.onnx_io.write import encode_function, encode_node, large_tensors, to_proto

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from numpy.typing import NDArray
    from onnx.defs import OpSchema

    from dplcli.ir import Attribute, Dim, Function, Graph, Model, Node, Value

    FunctionKey = tuple[str, str, str]

    Types = dict[Value, TensorType]

    BodyPath = tuple[tuple[int, str], ...]
    """Which graph: the bodies on the way from the main graph, each by node number and attribute."""

    ScopedName = tuple[BodyPath, str]
    """A value: its graph and its name."""


# One node by itself, computed by onnx's reference evaluator.


def evaluate(node: Node, inputs: Sequence[NDArray[Any] | None]) -> tuple[NDArray[Any], ...] | None:
    """Compute *node* with onnx's reference evaluator.

    Args:
        node: The node; its attributes must be known.
        inputs: One array per input, None for an omitted one.

    Returns:
        One array per output; None if the evaluator cannot do it.
    """
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415  # slow to load, rarely needed

    if node.subgraphs or any(attribute.ref for attribute in node.attributes.values()):
        return None
    proto = NodeProto.FromString(encode_node(node))
    names = [value.name for value in node.made]
    feeds = {
        value.name: array
        for value, array in zip(node.inputs, inputs, strict=True)
        if value is not None and array is not None
    }
    graph = helper.make_graph(
        [proto],
        "one_node",
        [onnx.ValueInfoProto(name=name) for name in feeds],
        [onnx.ValueInfoProto(name=name) for name in names],
    )
    opsets = [helper.make_opsetid(*item) for item in node.graph.opset_imports.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # noqa: BLE001  # whatever an operator's implementation does with odd input
        return None
    arrays = tuple(np.asarray(item) for item in found)
    return arrays if len(arrays) == len(node.outputs) else None


# onnx's shape inference of whole models.
#
# It looks into a function once for each call, so thirty functions that each call the next one twice
# take hours. Therefore calls are counted beforehand. What else it costs is limited while it runs
# (`bounded`).


ONNX_ERRORS = (
    onnx.shape_inference.InferenceError,
    onnx.defs.SchemaError,
    onnx.checker.ValidationError,
    MemoryError,
    RuntimeError,
    ValueError,
    TypeError,
)
"""What onnx raises where it cannot read, check, infer or inline: it has no common kind."""

_MOST_NODES = 250_000
_MOST_CALLS = 20_000
_MOST_TIMES = 8
_LONG_VECTOR = 1 << 14
_LENGTH = "dpl length "


def most_nodes(stated: int) -> int:
    """Return how many nodes inference may look at in a model whose file states so many.

    Each node in the file may take its time. Where functions call functions, they stand for far
    more nodes than anybody wrote; the limit gives those a second or two.
    """
    return max(_MOST_NODES, _MOST_TIMES * stated)


class Expansion:
    """How many nodes a model stands for: each call counts as what it calls.

    Args:
        model: The model.
        ignored: The domain and operator of nodes that are not counted.

    Attributes:
        stated: How many nodes the file states.
        sizes: By function, how many nodes it stands for.
        calls: By function, how often the main graph calls it.
        total_calls: How many calls are made, those inside functions included.
    """

    def __init__(self, model: ModelProto, ignored: Container[tuple[str, str]] = ()) -> None:
        functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.stated = self._outside = len(model.graph.node)
        self.sizes: dict[FunctionKey, int] = {}
        self.calls: dict[FunctionKey, int] = {}
        self.total_calls = 0
        if not functions:
            return
        self._outside, self.calls = count_calls(model.graph.node, functions, ignored)
        counted = {
            key: count_calls(function.node, functions, ignored)
            for key, function in functions.items()
        }
        inner = {key: calls for key, (_, calls) in counted.items()}
        self.sizes = expanded_sizes({key: count for key, (count, _) in counted.items()}, inner)
        made = expanded_sizes(dict.fromkeys(counted, 1), inner)
        self.total_calls = min(sum(n * made[key] for key, n in self.calls.items()), MANY)
        self.stated = self._outside + sum(count for count, _ in counted.values())

    @property
    def total(self) -> int:
        """How many nodes the model stands for."""
        return self._total_without(())

    @property
    def is_bounded(self) -> bool:
        """Whether inference may look at all of them."""
        return self.total <= most_nodes(self.stated)

    @property
    def is_runnable(self) -> bool:
        """Whether onnxruntime, which looks at all nodes for each call, may expand all calls."""
        return self.is_bounded and self.total_calls <= max(_MOST_CALLS, _MOST_TIMES * self.stated)

    def too_large(self) -> set[FunctionKey]:
        """Choose functions to leave out, largest first, until the rest is within the limit."""
        left_out: set[FunctionKey] = set()
        total, most = self.total, most_nodes(self.stated)
        for key in sorted(self.sizes, key=self.sizes.__getitem__, reverse=True):
            if total <= most:
                break
            left_out.add(key)
            if key in self.calls:
                total = self._total_without(left_out)
        return left_out

    def _total_without(self, left_out: Container[FunctionKey]) -> int:
        called = (n * self.sizes[key] for key, n in self.calls.items() if key not in left_out)
        return min(self._outside + sum(called), MANY)


def count_calls(
    nodes: Iterable[NodeProto],
    functions: Container[FunctionKey],
    ignored: Container[tuple[str, str]] = (),
) -> tuple[int, dict[FunctionKey, int]]:
    """Count nodes, and calls by function, bodies of nodes included.

    Args:
        nodes: The nodes.
        functions: Whose calls to count.
        ignored: The domain and operator of nodes that are not counted.
    """
    count = 0
    calls: dict[FunctionKey, int] = {}
    pending = [nodes]
    while pending:
        for node in pending.pop():
            key = (canonical_domain(node.domain), node.op_type, node.overload)
            count += key[:2] not in ignored
            if key in functions:
                calls[key] = calls.get(key, 0) + 1
            if node.attribute:
                pending += [graph.node for _, graph in graphs_of(node)]
    return count, calls


def functions_in_order(
    model: ModelProto,
) -> dict[FunctionKey, tuple[FunctionProto, Iterable[FunctionKey]]]:
    """Return functions, and what each calls, behind that; those in a circle are left out."""
    functions = {(canonical_domain(f.domain), f.name, f.overload): f for f in model.functions}
    calls = {key: count_calls(function.node, functions)[1] for key, function in functions.items()}
    callers: dict[FunctionKey, list[FunctionKey]] = {key: [] for key in functions}
    for key, inside in calls.items():
        for inner in inside:
            callers[inner].append(key)
    return {key: (functions[key], calls[key].keys()) for key in in_order(callers)}


def infer_shapes(model: ModelProto) -> tuple[ModelProto, str]:
    """Infer types with onnx, within bounds; leave out what would take too long.

    Args:
        model: The model; its large weights should be gone.

    Returns:
        The model with what was found, and a clause that says what was given up, or "".

    Raises:
        Exception: One of :data:`ONNX_ERRORS`.
    """
    model, problem = _within_bound(model)

    def infer() -> bytes:
        content: bytes = onnx.shape_inference.infer_shapes(model).SerializeToString()
        return content

    found = ModelProto()
    found.ParseFromString(bounded(infer, model.ByteSize()))
    return found, problem


def _within_bound(model: ModelProto) -> tuple[ModelProto, str]:
    """Leave out functions that stand for too many nodes; say so."""
    expansion = Expansion(model)
    if expansion.is_bounded:
        return model, ""
    left_out = expansion.too_large()
    kept = [f for f in model.functions if (f.domain, f.name, f.overload) not in left_out]
    copy = ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.graph.CopyFrom(model.graph)
    copy.functions.extend(kept)
    return copy, beyond(expansion.total)


def without_length(shape: Sequence[Dim]) -> Sequence[Dim]:
    """Name the length of a long vector by a symbol; :func:`with_length` undoes that.

    Where onnx knows the length of a vector, it makes a message for each element that it follows or
    reads as a shape.
    """
    if len(shape) != 1 or not isinstance(shape[0], int) or shape[0] <= _LONG_VECTOR:
        return shape
    return (f"{_LENGTH}{shape[0]}",)


def with_length(found: TensorType) -> TensorType:
    """Put numbers back into what was inferred from :func:`without_length`."""
    if found.shape is None or not any(map(_is_length, found.shape)):
        return found
    shape = [int(str(dim)[len(_LENGTH) :]) if _is_length(dim) else dim for dim in found.shape]
    return TensorType(found.dtype, tuple(shape))


def _is_length(dim: Dim) -> bool:
    """Tell whether a dimension is a symbol of ours; a file may have similar ones by malice."""
    return isinstance(dim, str) and dim.startswith(_LENGTH) and dim[len(_LENGTH) :].isdecimal()


def beyond(total: int) -> str:
    """Say that functions in functions are too much for inference."""
    return f"shape inference does not look into functions that stand for {nodes_of(total)}"


def nodes_of(total: int) -> str:
    """Say how many nodes functions stand for."""
    return f"{total:,} nodes" if total < MANY else "endlessly many nodes"


def inlined(model: ModelProto) -> ModelProto:
    """Put the bodies of functions in the place of their calls, with onnx's inliner.

    Args:
        model: The model; its large weights should be gone.

    Raises:
        Exception: One of :data:`ONNX_ERRORS`; or the functions stand for too many nodes.
    """
    expansion = Expansion(model)
    if not expansion.is_bounded:
        raise GivenUpError(f"as the functions stand for {nodes_of(expansion.total)}")

    def inline() -> bytes:
        content: bytes = onnx.inliner.inline_local_functions(model).SerializeToString()
        return content

    found = ModelProto()
    found.ParseFromString(bounded(inline, model.ByteSize()))
    return found


def write_defaults(model: ModelProto) -> None:
    """Write into calls what functions take for granted: onnx's inliner does not look there.

    Raises:
        GivenUpError: A call passes an attribute on, which may be missing there.
    """
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in model.functions}
    if not any(defaults.values()):
        return
    for node in all_nodes(model.graph, *model.functions):
        implied = defaults.get((node.domain, node.op_type, node.overload), ())
        given = {item.name: item.ref_attr_name for item in node.attribute}
        if any(given.get(item.name) for item in implied):
            raise GivenUpError(f"as the default of {node.op_type} may stand for a reference")
        node.attribute.extend(item for item in implied if item.name not in given)


# onnx's own checker.


def check_model(path: Path, *, is_full: bool = True) -> str:
    """Run the check of onnx on the file at *path*.

    The full check infers types. That is left out where it would take too long or too much memory.

    Returns:
        What the checker objects to, in one line; "" if nothing.
    """
    try:
        with text_path(path) as name:
            return _objection(name, path.stat().st_size, is_full=is_full and _is_bounded(path))
    except OSError as error:
        return " ".join(str(error).split())


def fault_of(model: Model, path: Path) -> str:
    """Return what onnx says against the file of a model, "" if nothing; of a large one, less.

    It looks for types where that takes little time. Of an opset that it does not know, it says
    nothing when it is asked.
    """
    newest = onnx.defs.onnx_opset_version()
    opset = model.opset_imports.get("", 0)
    if opset > newest:
        return f"opset {opset} is not known: onnx {onnx.__version__} has opsets up to {newest}"
    is_small = model.node_count <= QUICKLY_CHECKED
    return check_model(path, is_full=is_small)


def _objection(model: bytes | str, size: int, *, is_full: bool) -> str:
    """Return what the checker says against a model or a file.

    Types are left out where they make onnx crash, and where onnx objects to nothing but that it
    knows no type of an input. It knows none behind a call of a function with an operator of a
    domain that it does not know. Where there is such an operator in the graph itself, it is silent.
    """

    def check() -> bytes:
        onnx.checker.check_model(model, full_check=is_full)
        return b""

    try:
        bounded(check, size)
    except GivenUpError as error:
        return _objection(model, size, is_full=False) if is_full else f"it was given up {error}"
    except (RuntimeError, ValueError, OSError) as error:
        said = str(error)
        if is_full and not _BESIDE_UNKNOWN_TYPES.sub("", " ".join(said.split())):
            return _objection(model, size, is_full=False)
        return first_objection(said)
    return ""


_NO_TYPE = "expected to have type but instead is null"
_BESIDE_UNKNOWN_TYPES = re.compile(
    r" ?(\[ShapeInferenceError\] Inference error\(s\):|\(op_type:[^\[\]]*?\):(?= \[)"
    rf"|\[TypeInferenceError\] Input \d+ {_NO_TYPE})"
)

_NODES_OF = re.compile(r"\(op_type:([^,)]*)(?:, node name: ([^)]*))?\): ")
_SPEC_OF = re.compile(r"Bad node spec for node\. Name: (.*?) OpType: (\S+)")
_KIND_OF = re.compile(r"\[\w*Error\]|Inference error\(s\):")


def first_objection(said: str) -> str:
    """Return the first thing that onnx objects to, and the node: all else mostly follows from it.

    Args:
        said: The message: a line for each node, with those round it, or a sentence and its context.
    """
    spec = _SPEC_OF.search(said)
    first, *others = said.strip().split("\n")
    lines = [first, *(line for line in others if _NODES_OF.match(line))]
    first = next((line for line in lines if not line.endswith(_NO_TYPE)), first)
    nodes = [(spec[2], spec[1])] if spec else _NODES_OF.findall(first)
    text = " ".join(_KIND_OF.sub("", _NODES_OF.sub("", first)).split())
    names = (f"{op} {name!r}" if name else op for op, name in reversed(nodes))
    return ": ".join(filter(None, (" in ".join(names), text)))


def objection_to(content: bytes) -> str:
    """Return what onnx's full check says against the file of a small model, "" if nothing."""
    return _objection(content, len(content), is_full=True)


def _is_bounded(path: Path) -> bool:
    try:
        return Expansion(onnx.load(path, load_external_data=False)).is_bounded
    except (OSError, DecodeError, ValueError):
        return True  # the checker says it better


# Types inside model-local functions, from their calls.
#
# Only the model itself calls its functions. So we infer a body as a graph of its own, once for each
# kind of call. What all results agree on holds inside: an element type, a rank, a dimension, or
# that two dimensions are equal. Callers come before the functions that they call.


_SHORT = 1024
_SCALES = 8
"""Most elements of a constant that inference may look at: whole numbers, and other numbers."""


def infer_in_functions(model: Model, types: Types) -> tuple[Types, str]:
    """Add to *types* what is known inside the functions that *model* calls.

    Args:
        model: The model, as it is now.
        types: What is known of values outside functions beyond what the model states.

    Returns:
        What functions state of values inside them though a call contradicts it, and a clause
        that says what was given up, or "".
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
        self._left = 2 * most_nodes(model.node_count)
        self._encoded: dict[Function, FunctionProto] = {}
        self.problem = ""

    def called_by(self, function: Function, sites: int) -> list[FunctionProto]:
        """Return the functions that *function* reaches, if that is not too much for *sites*."""
        cost = self._sizes[function] * sites
        if cost > self._left:
            self.problem = beyond(self._total)
            return []
        # List what *function* calls, and what that calls, and so on.
        found: dict[Function, None] = {}
        pending = callees(function)
        while pending:
            called = pending.pop()
            if called not in found:
                found[called] = None
                pending += callees(called)
        reached = [*found]
        self._left -= cost if reached else 0
        for called in reached:
            if called not in self._encoded:
                self._encoded[called] = FunctionProto.FromString(encode_function(called))
        return [self._encoded[called] for called in reached]


def _infer_body(function: Function, calls: Sequence[Node], types: Types, budget: _Budget) -> Types:
    """Infer the body of *function*; *types* knows by now what its calls are given."""
    symbols = _Symbols(function)
    given = [_arguments_of(function, node, types, symbols) for node in calls]
    sites = [*{site.key: site for site in given}.values()]
    if len(sites) > _MOST_KINDS_OF_CALLS:
        sites = [_common_arguments(function, sites, symbols)]
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

    A symbol that the function declares may mean another size at each call. A call may bring the
    same symbol with a meaning of its own; inside, that one gets a new name.

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
        """Return a type that a call brings, with new names for symbols that the function has."""
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
        """Reserve the symbols in *types*, so that no new symbol is one of them."""
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
class _Arguments:
    """What a function is given by calls that are alike.

    Attributes:
        types: By input, its type.
        constants: By input, its data, if it is short.
        attributes: The attributes whose value is known.
        unknown: The attributes that are given, but whose value is not known here.
    """

    types: Sequence[TensorType | None]
    constants: Sequence[NDArray[Any] | None]
    attributes: dict[str, Attribute]
    unknown: frozenset[str]

    @property
    def key(self) -> Hashable:
        """Equal for calls that are alike."""
        attributes = [
            (name, item.kind, item.value if item.kind in PLAIN_KINDS else id(item.value))
            for name, item in self.attributes.items()
        ]
        return (*self.types, *map(_data_key, self.constants), *attributes, self.unknown)


def _arguments_of(function: Function, call: Node, types: Types, symbols: _Symbols) -> _Arguments:
    missing = len(function.body.inputs) - len(call.inputs)
    given = [*call.inputs, *[None] * missing][: len(function.body.inputs)]
    stated = {**function.defaults, **call.attributes}
    attributes = {name: item for name, item in stated.items() if not item.ref}
    known = [symbols.brought(_type_of(value, types)) for value in given]
    constants = [_short_constant(value) for value in given]
    return _Arguments(known, constants, attributes, frozenset(stated.keys() - attributes.keys()))


def _common_arguments(
    function: Function, sites: Sequence[_Arguments], symbols: _Symbols
) -> _Arguments:
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
        if item.kind in PLAIN_KINDS and all(site.attributes.get(name) == item for site in sites)
    }
    given_somewhere = frozenset().union(*(site.attributes.keys() | site.unknown for site in sites))
    return _Arguments(
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


def _types_at(function: Function, site: _Arguments, called: Iterable[FunctionProto]) -> Types:
    """Infer the body of *function* as *site* calls it."""
    formals = zip(function.body.inputs, site.types, strict=True)
    types = {formal: known for formal, known in formals if known is not None}
    try:
        model, nodes = _model_at(function, site, called)
        inferred = infer_soundly(model).graph
    except ONNX_ERRORS:
        return types
    _collect_nodes(function.body, nodes, inferred, types)
    return types


def _model_at(
    function: Function, site: _Arguments, called: Iterable[FunctionProto]
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
            graph.initializer.append(numpy_helper.from_array(constant, formal.name))
        elif known is not None:
            graph.input.append(encode_type(formal.name, known))
        else:
            graph.input.append(ValueInfoProto(name=formal.name))
    if isinstance(function.source, FunctionProto):
        graph.value_info.extend(function.source.value_info)
    graph.output.extend(ValueInfoProto(name=value.name) for value in body.outputs)
    return model, _add_nodes(graph, body, site)


_MOST_KINDS_OF_CALLS = 32
"""Kinds of calls that are inferred one by one; of more, what they have in common is inferred."""

_FIRST_IR_WITH_FUNCTIONS = 8


def _type_of(value: Value | None, types: Types) -> TensorType | None:
    """Return the type of what a call gives; numbers come before symbols."""
    if value is None:
        return None
    declared, found = value.declared_type, types.get(value)
    if found is not None and is_exact(found):
        return found
    if declared is not None and declared.dtype is not None and declared.shape is not None:
        return declared
    return found or declared


def _short_constant(value: Value | None) -> NDArray[Any] | None:
    """Read data that shapes may be computed from: whole numbers, or the scales of a Resize."""
    tensor = None if value is None else value.constant
    if tensor is None or tensor.is_external or tensor.dtype == "string":
        return None
    most = _SHORT if tensor.dtype in {"int64", "int32"} else _SCALES
    try:
        return np.asarray(tensor.numpy()) if tensor.size <= most else None
    except DplError:
        return None  # it cannot be read, so no shape follows from it


def _add_nodes(graph: GraphProto, body: Graph, site: _Arguments) -> list[Node]:
    """Add those nodes of *body* whose attributes are all known; return them."""
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


def _drop_absent(proto: NodeProto, called: Function, site: _Arguments) -> None:
    """Drop from a call the references to attributes that nobody gives and that have no default."""
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


# Types of what one node makes, by the inference of its schema.


_INDICES = frozenset({"int32", "int64"})
"""The types of what an operator may read as a shape."""


def infer_node(
    node: Node,
    types: Mapping[Value, TensorType] | None = None,
    data: Mapping[Value, NDArray[Any]] | None = None,
) -> list[TensorType | None]:
    """Infer the types of the outputs of *node* from those of its inputs; empty if unknown.

    The schema's own inference is used; it sees short constant inputs.

    Args:
        node: The node.
        types: What is known of values beyond what the model says.
        data: Values that are known beyond the model's constants.
    """
    if node.has_references:
        return []
    try:
        version = node.graph.opset_imports[node.domain]
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        proto = NodeProto.FromString(encode_node(node))
        arrays = _arrays_read(node, data or {})
        found = infer_outputs(
            schema,
            proto,
            _input_types(node, types or {}),
            {
                value.name: numpy_helper.from_array(data, value.name)
                for value, data in arrays.items()
            },
            node.graph.opset_imports,
            max(node.graph.model.ir_version, 8),
        )
    except (*ONNX_ERRORS, KeyError):
        return []
    types_made = [
        None if value is None or value.name not in found else decode_type(found[value.name])
        for value in node.outputs
    ]
    return [None if known is None else with_length(known) for known in types_made]


def infer_outputs(  # noqa: PLR0913, PLR0917  # what onnx takes
    schema: OpSchema,
    node: NodeProto,
    types: Mapping[str, TypeProto],
    data: Mapping[str, TensorProto],
    opsets: Mapping[str, int],
    ir_version: int,
) -> Mapping[str, TypeProto]:
    """Infer the types of what one node makes.

    onnx holds the node against its schema first, so what a schema excludes does no harm. A node
    with bodies has a fork to itself, as nothing excludes anything in them.

    Returns:
        By name, what is known; nothing for a node on which onnx's inference would crash.

    Raises:
        RuntimeError: onnx refuses it; or another one of :data:`ONNX_ERRORS`.
    """
    if endangers_inference(node):
        return {}

    def infer() -> Mapping[str, TypeProto]:
        imports = [helper.make_opsetid(*item) for item in opsets.items()]
        found: Mapping[str, TypeProto] = onnx.shape_inference.infer_node_outputs(
            schema, node, {**types}, {**data}, opset_imports=imports, ir_version=ir_version
        )
        return found

    def encoded() -> bytes:
        infos = [ValueInfoProto(name=name, type=found) for name, found in infer().items()]
        content: bytes = GraphProto(value_info=infos).SerializeToString()
        return content

    if not any(item.HasField("g") for item in node.attribute):
        return infer()
    answer = GraphProto.FromString(bounded(encoded, node.ByteSize()))
    return {info.name: info.type for info in answer.value_info}


_FARTHEST_AXIS = 1 << 16


def endangers_inference(node: NodeProto) -> bool:
    """Tell whether the inference of a node's schema would end the process, or not end itself.

    onnx 1.23 writes beyond its vector where a Split has more outputs than it says, makes as many
    sizes as it says, and goes through all axes up to the first one of a normalisation.
    """
    for item in node.attribute:
        if item.name == "num_outputs" and item.i != len(node.output):
            return True
        if item.name == "axis" and abs(item.i) > _FARTHEST_AXIS:
            return True
    return False


class NodeInference:
    """Infers nodes, and asks onnx once for all that are alike.

    Nodes are alike if they have the operator, the attributes and the types of inputs in common,
    and the data of constants, where inference may look at it.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[list[TensorType | None], Mapping[str, Attribute]]] = {}

    def infer(
        self,
        node: Node,
        types: Mapping[Value, TensorType] | None = None,
        data: Mapping[Value, NDArray[Any]] | None = None,
    ) -> list[TensorType | None]:
        """Infer the types of the outputs of *node* as :func:`infer_node` does."""
        types, data = types or {}, data or {}
        key = None if node.subgraphs else _key(node, types, data)
        if key is None:
            return infer_node(node, types, data)
        if key not in self._found:
            # attributes are kept, so that no others get their identity
            self._found[key] = infer_node(node, types, data), node.attributes
        return self._found[key][0]


def _key(
    node: Node, types: Mapping[Value, TensorType], data: Mapping[Value, NDArray[Any]]
) -> Hashable:
    """Return what the types of the outputs depend on; None if it cannot be told."""
    if node.source is None:
        return None
    read: list[Hashable] = [
        None if value is None else types.get(value) or value.settled_type() or "unknown"
        for value in node.inputs
    ]
    if node.domain or node.op_type not in TYPED_BY_TYPES:
        arrays = _arrays_read(node, data)
        read += [_data_key(None if value is None else arrays.get(value)) for value in node.inputs]
    return (
        node.op_type,
        node.domain,
        node.graph.opset_imports.get(node.domain),
        id(node.attributes),  # nodes with the same attributes share them
        tuple(read),
        tuple([value is None for value in node.outputs]),
    )


def _arrays_read(node: Node, known: Mapping[Value, NDArray[Any]]) -> dict[Value, NDArray[Any]]:
    """Return the data of inputs that inference may look at: short constants, and what is known."""
    arrays = {}
    for value in node.inputs:
        if value is not None and value in known:
            arrays[value] = known[value]
        elif value is not None and value.is_constant:
            tensor = value.constant
            if tensor is not None and tensor.size <= _SHORT:
                arrays[value] = np.asarray(tensor.numpy())
    return arrays


def _data_key(array: NDArray[Any] | None) -> Hashable:
    return None if array is None else (array.dtype.str, array.shape, array.tobytes())


def _input_types(node: Node, known_types: Mapping[Value, TensorType]) -> dict[str, TypeProto]:
    types = {}
    for slot, value in enumerate(node.inputs):
        known = None if value is None else known_types.get(value) or value.settled_type()
        if value is None or known is None or known.dtype is None:
            continue
        shape: Sequence[Dim] | None = known.shape
        if shape is not None:  # GatherND takes a size below zero for a rank, and crashes
            shape = [None if isinstance(dim, int) and dim < 0 else dim for dim in shape]
        if shape is not None and known.dtype in _INDICES and (slot or len(node.inputs) == 1):
            shape = without_length(shape)
        types[value.name] = helper.make_tensor_type_proto(DTYPE_CODES[known.dtype], shape)
    return types


# What a file states of types, against what its graph computes.
#
# We believe a statement that says more than inference finds. We do not believe one that contradicts
# it, nor what follows from that. onnx's own inference believes every statement and builds on it. So
# we ask it first without any, and then with those that nothing contradicts.


IN_MEMORY_LIMIT = 1 << 30


class Inference(NamedTuple):
    """What onnx's inference finds.

    Attributes:
        graph: The main graph with types, those believed that the file states.
        problem: A clause that says what was given up, or "".
        believed: Names of the values of which more is stated than follows from the inputs.
    """

    graph: GraphProto
    problem: str
    believed: frozenset[str] = frozenset()


def infer_soundly(
    model: ModelProto, without: Container[str] = (), *, has_bodies: bool = True
) -> Inference:
    """Infer the types of a model without weights, and believe no statement that contradicts them.

    Arithmetic that is done with shapes is followed, as long as that is within bounds.

    Args:
        model: The model, with what is stated of the values in its graphs. It is used up.
        without: Names of values of which nothing that is stated is believed.
        has_bodies: False if surely no node has a body.

    Raises:
        RuntimeError: onnx cannot do it; or another one of ``ONNX_ERRORS``.
    """

    def infer(*, data_prop: bool) -> bytes:
        found = _infer_soundly(model, without, has_bodies=has_bodies, data_prop=data_prop)
        answer = ModelProto(graph=found.graph, doc_string=found.problem)
        for name in sorted(found.believed):
            answer.metadata_props.add(key=name)
        content: bytes = answer.SerializeToString()
        return content

    given_up, size = "", model.ByteSize()
    try:
        content = bounded(lambda: infer(data_prop=True), size)
    except GivenUpError as error:
        given_up = f"shape inference was given up {error}"
        try:
            content = bounded(lambda: infer(data_prop=False), size)
        except GivenUpError:
            raise GivenUpError(given_up) from error
    answer = ModelProto.FromString(content)
    problem = answer.doc_string or (given_up and f"some of {given_up}")
    return Inference(answer.graph, problem, frozenset(each.key for each in answer.metadata_props))


def _infer_soundly(
    model: ModelProto, without: Container[str], *, has_bodies: bool, data_prop: bool
) -> Inference:
    stated = _Statements(model.graph, has_bodies=has_bodies)
    found, problem = _infer(model, data_prop=data_prop)
    if not stated.is_any:
        return Inference(found, problem)
    gaps = stated.beyond(found, without)
    ends = gaps - stated.read() if gaps else gaps
    if stated.put_back(gaps - ends):
        found, problem = _infer(model, data_prop=data_prop)
    stated.complete(found, ends)
    return Inference(found, problem, frozenset(name for _, name in gaps))


def _infer(model: ModelProto, *, data_prop: bool) -> tuple[GraphProto, str]:
    if model.ByteSize() < IN_MEMORY_LIMIT:
        model, problem = _within_bound(model)
        return onnx.shape_inference.infer_shapes(model, data_prop=data_prop).graph, problem
    with temporary_folder() as folder:
        before, after = folder / "before.onnx", folder / "after.onnx"
        onnx.save(model, before)
        onnx.shape_inference.infer_shapes_path(before, after, data_prop=data_prop)
        return onnx.load(after, load_external_data=False).graph, ""


class _Statements:
    """What a graph states of its values; it is taken out of the graph.

    Args:
        graph: The graph.
        has_bodies: Whether to look for bodies of its nodes.
        is_body: Whether the graph is a body. The inputs of a main graph keep their types.
    """

    def __init__(self, graph: GraphProto, *, has_bodies: bool, is_body: bool = False) -> None:
        self.graph = graph
        self.types: dict[str, TypeProto] = {info.name: info.type for info in graph.value_info[:]}
        self.beside = [*graph.value_info[:]]
        self.interface = [*graph.output, *(graph.input if is_body else ())]
        del graph.value_info[:]
        for info in self.interface:
            if info.HasField("type"):
                stated = self.types[info.name] = TypeProto()
                stated.CopyFrom(info.type)
                info.ClearField("type")
        self.bodies: dict[tuple[int, str], _Statements] = {}
        for number, node in enumerate(graph.node) if has_bodies else ():
            for name, body in graphs_of(node) if node.attribute else ():
                self.bodies[number, name] = _Statements(body, has_bodies=True, is_body=True)

    @property
    def is_any(self) -> bool:
        """Whether anything was stated."""
        return bool(self.types) or any(body.is_any for body in self.bodies.values())

    def beyond(
        self, found: GraphProto, without: Container[str], place: BodyPath = ()
    ) -> set[ScopedName]:
        """Return the values of which more was stated than *found*, without a contradiction."""
        types = {info.name: info.type for info in (*found.input, *found.value_info, *found.output)}
        stored = {tensor.name for tensor in self.graph.initializer}
        names = {
            (place, name)
            for name, stated in self.types.items()
            if name not in without and name not in stored and _says_more(stated, types.get(name))
        }
        for step, body in self.bodies.items():
            names |= body.beyond(_body(found, step), without, (*place, step))
        return names

    def read(self) -> set[ScopedName]:
        """Return what is read. A name in a body may be one of a graph round it, too."""
        found: set[ScopedName] = {((), name) for node in self.graph.node for name in node.input}
        for step, body in self.bodies.items():
            inside = body.read() | {((), name) for name in body.types}
            found |= {((), name) for _, name in inside}
            found |= {((step, *place), name) for place, name in inside}
        return found

    def put_back(self, names: AbstractSet[ScopedName], place: BodyPath = ()) -> bool:
        """State again what was stated of *names*, without symbols; tell whether there is anything.

        Stated symbols are the exporter's; inference derives its own from those of the inputs.
        """
        kept = {name for where, name in names if where == place}
        self.graph.value_info.extend(info for info in self.beside if info.name in kept)
        for info in self.interface:
            if info.name in kept:
                info.type.CopyFrom(self.types[info.name])
        for info in (*self.graph.value_info, *self.interface):
            for dim in info.type.tensor_type.shape.dim if info.name in kept else ():
                dim.ClearField("dim_param")
        for step, body in self.bodies.items():
            body.put_back(names, (*place, step))
        return bool(names)

    def complete(self, found: GraphProto, names: AbstractSet[ScopedName]) -> None:
        """Add what is stated to those outputs of the main graph in *names*; nothing reads them."""
        for info in found.output:
            stated = self.types.get(info.name)
            if stated is None or ((), info.name) not in names:
                continue
            said, known = (
                _decoded(stated.SerializeToString()),
                _decoded(info.type.SerializeToString()),
            )
            if said is None or known is None:
                info.type.CopyFrom(stated)
            else:
                info.type.CopyFrom(encode_type(info.name, _joined(said, known)).type)


def _body(graph: GraphProto, step: tuple[int, str]) -> GraphProto:
    number, name = step
    return next(body for other, body in graphs_of(graph.node[number]) if other == name)


def _says_more(stated: TypeProto, found: TypeProto | None) -> bool:
    """Tell whether a statement adds more than symbols to what is found, and does not contradict."""
    if found is None or found.WhichOneof("value") is None:
        return True
    said, known = _decoded(stated.SerializeToString()), _decoded(found.SerializeToString())
    if said is None or known is None or contradicts(said, known):
        return False
    numbers = said.shape and tuple([dim if isinstance(dim, int) else None for dim in said.shape])
    return _joined(TensorType(said.dtype, numbers), known) != known


@lru_cache(maxsize=1024)
def _decoded(encoded: bytes) -> TensorType | None:
    """Read a type; a long vector's length is a number again."""
    found = decode_type(TypeProto.FromString(encoded))
    return None if found is None else with_length(found)


def _joined(said: TensorType, known: TensorType) -> TensorType:
    """Add to what is known what is said beyond it."""
    dtype = said.dtype if known.dtype is None else known.dtype
    if known.shape is None or said.shape is None:
        return TensorType(dtype, said.shape if known.shape is None else known.shape)
    pairs = zip(said.shape, known.shape, strict=True)
    return TensorType(dtype, tuple([_dim(said_dim, dim) for said_dim, dim in pairs]))


def _dim(said: Dim, known: Dim) -> Dim:
    is_open = known is None or is_made_up(known)
    return said if isinstance(said, int) or (is_open and said is not None) else known


def settle_contradictions(model: Model, types: Types, believed: Container[str]) -> None:
    """Believe the earlier one of two statements that contradict each other.

    onnx does not find such a pair where a model has operators that it does not know.

    Args:
        model: The model.
        types: What is known of the values outside functions, statements included; corrected here.
        believed: Names of the values of which more is stated than follows from the inputs.
    """
    settling = _Settling(types, believed)
    for graph in model.graph.and_inner():
        for node in graph:
            if not node.subgraphs:
                settling.look_at(node)


class _Settling:
    """Infers node by node what rests on statements.

    Args:
        types: What is known, corrected here.
        believed: Names of the values of which more is stated than follows from the inputs.
    """

    def __init__(self, types: Types, believed: Container[str]) -> None:
        self.types = types
        self.believed = believed
        self.changed: set[Value] = set()
        self.nodes = NodeInference()

    def look_at(self, node: Node) -> None:
        """Correct what *node* makes, if it contradicts what is known of what it reads."""
        follows = any(value in self.changed for value in node.inputs)
        if not follows and all(v is None or v.name not in self.believed for v in node.outputs):
            return  # it is not in question
        found = self.nodes.infer(node, self.types, {})
        for value, known in zip_longest(node.outputs, found):
            if value is not None:
                self._learn(value, known, follows=follows)

    def _learn(self, value: Value, found: TensorType | None, *, follows: bool) -> None:
        before, stated = self.types.get(value), value.declared_type
        known = found
        if stated is not None and (found is None or not contradicts(stated, found)):
            known = stated if found is None else _joined(stated, found)
        if known == before:
            return
        if known is None:
            del self.types[value]
        elif follows or (before is not None and contradicts(before, known)):
            self.types[value] = known
        else:
            return
        self.changed.add(value)


def kinds_of_nodes(model: Model) -> dict[Node, int] | None:
    """Number the nodes by kind, if all types are stated, as numbers, and each is what is made.

    It is the quick answer for large models: nodes that are alike are inferred once, so a net of
    100,000 nodes takes a tenth of a second where onnx takes seconds. It is never a wrong yes:
    what holds at each node holds for all.
    """
    if model.graph.inner or model.functions:
        return None
    constants: set[Value] = set()
    for value in model.graph.values.values():
        if value.producer is not None:
            break  # inputs and initializers come first
        if not is_given(value, constants):
            return None
    for value in model.graph.outputs:
        value.declared_type  # noqa: B018  # types that are alike are one object from here on
    numbers: dict[tuple[object, ...], int] = {}
    kinds: dict[Node, int] = {}
    for node in model.graph:
        outputs = node.outputs
        key = (
            node.op_type,
            node.domain,
            id(node.attributes),
            len(outputs),
            *[v if v in constants else v and id(v.type_source) for v in node.inputs + outputs],
        )
        number = numbers.get(key)
        if number is None:
            if not makes_what_is_stated(node):
                return None
            number = numbers[key] = len(numbers)
        kinds[node] = number
        if node.op_type == "Constant":
            constants.update(value for value in outputs if value is not None)
    return kinds


def is_given(value: Value, constants: set[Value]) -> bool:
    """Tell whether all is known of an input or initializer; note if shapes may depend on it."""
    source, known = value.type_source, value.declared_type
    if value.is_initializer and known is not None and known.dtype not in _FLOATS:
        constants.add(value)
    if value.is_initializer and not value.is_constant:
        return False  # others may be given in its place
    if value.is_initializer and type(source) is TensorType:
        return True  # it is the data's own
    if known is None or not is_exact(known):
        return False
    if not value.is_initializer:
        return True
    tensor = value.graph.model.codec.tensor(value.initializer_source)
    return (tensor.dtype, tensor.shape) == known


_FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})


def makes_what_is_stated(node: Node) -> bool:
    """Tell whether the file states of what a node makes what onnx infers, in numbers."""
    if node.source is None or node.subgraphs:
        return False
    made = node.made
    stated = [value.declared_type for value in made]
    if any(known is None or not is_exact(known) for known in stated):
        return False
    found = dict(zip(node.outputs, infer_node(node), strict=False))
    return [found.get(value) for value in made] == stated


# Types of whole models by onnx's shape inference, without the weights.


_SMALL_TENSOR_BYTES = 1024


def infer_types(model: Model) -> tuple[Mapping[Value, TensorType], str]:
    """Infer the types of a loaded model's values.

    Weights play no part in shape inference, so a copy of the model without them is inferred;
    small tensors stay, because shapes are computed from them. A copy that is still too large for
    one message goes through a file.

    Returns:
        Types that inference found for values of the main graph, of nested graphs and inside
        functions, and a sentence that says why there are not more, or "".
    """
    if model.source is None:
        return {}, ""
    kinds: dict[Node, int] = {}
    exact = _exact_types(model, {}, kinds)
    if exact is not None:
        declared = (value.declared_type for value in exact)
        if all(known is None or known.shape is None or is_exact(known) for known in declared):
            model.kinds = kinds  # each value says its own type
        return exact, ""
    types: Types = {}
    skeleton = _without_weights(source_of(model).proto)
    try:
        found = infer_soundly(skeleton, has_bodies=bool(model.graph.inner))
    except ONNX_ERRORS as error:
        reason = _explain(error)
    else:
        reason = found.problem
        _collect(model.graph, found.graph, types)
        if found.believed:
            settle_contradictions(model, types, found.believed)
        _refute(model, types)
    refuted, in_functions = infer_in_functions(model, types)
    for value, stated in refuted.items():
        model.refute(value, stated, types.get(value))
    return types, reason or in_functions


def _refute(model: Model, types: Mapping[Value, TensorType]) -> None:
    """Note where the model states a wrong type of a value."""
    for graph in model.graph.and_inner():
        for value in graph.values.values():
            if value.type_source is None:
                continue
            found = types.get(value)
            if value.is_initializer:
                if type(value.type_source) is TensorType:
                    continue
                tensor = model.codec.tensor(value.initializer_source)
                found = TensorType(tensor.dtype, tensor.shape)
            said = value.stated_type
            stated = value.declared_type if said is None else said.known
            if stated is not None and found is not None and contradicts(stated, found):
                model.refute(value, stated, found)


def inferred_graph(
    source: ModelProto,
    inputs: Mapping[str, TensorType] = MappingProxyType({}),
    without: Container[str] = (),
) -> tuple[GraphProto | None, str]:
    """Infer the types of a model's values.

    Args:
        source: The model.
        inputs: By name, types that replace those declared of inputs.
        without: Names of values of which nothing that is stated is believed.

    Returns:
        The main graph with its types and without its weights, None if there is none, and why
        there is not more in it, or "". A long vector's length may be a symbol in it.
    """
    skeleton = _without_weights(source)
    for info in skeleton.graph.input:
        if info.name in inputs:
            info.type.CopyFrom(encode_type(info.name, inputs[info.name]).type)
    try:
        found = infer_soundly(skeleton, without)
    except ONNX_ERRORS as error:
        return None, _explain(error)
    return found.graph, found.problem


def infer_types_for_sizes(model: Model, sizes: Mapping[str, int]) -> tuple[Types, str]:
    """Infer the types of a loaded model's values, with numbers for symbolic dimensions.

    Inside functions nothing is inferred (:func:`infer_in_functions`).

    Args:
        model: The model, as it was loaded.
        sizes: A number per symbol of the inputs, or per ``input:axis``.

    Returns:
        As :func:`infer_types`, inputs included.

    Raises:
        UsageError: No input has such a dimension.
    """
    check_sizes(model, sizes)
    types: Types = {}
    if model.source is None:
        return types, ""
    given = _inputs_of_sizes(model, sizes)
    exact = _exact_types(model, given)
    if exact is not None:
        return {**given, **exact}, ""
    inputs = {value.name: known for value, known in given.items()}
    inferred, reason = inferred_graph(source_of(model).proto, inputs, _refuted_names(model))
    if inferred is not None:
        _collect(model.graph, inferred, types)
        _collect_values(model.graph, inferred.input, types)
    return types, reason


def _exact_types(
    model: Model, given: Mapping[Value, TensorType], kinds: dict[Node, int] | None = None
) -> Types | None:
    """Infer a model node by node, each kind once, where all sizes are numbers.

    That takes a third of the time of onnx's inference of a whole model, which copies it twice.

    Args:
        model: The model, as it was loaded.
        given: Types of inputs that replace what is declared.
        kinds: Where to put the kinds of nodes, as :attr:`dplcli.ir.Model.kinds` has them.

    Returns:
        What nodes make; None if the type of an output does not follow, as inference of the whole
        model may know more.
    """
    if model.functions or model.graph.inner:
        return None
    known = {value: found for value, found in given.items() if is_exact(found)}
    nodes = NodeInference()
    alike: dict[tuple[object, ...], tuple[int, Sequence[TensorType | None]]] = {}
    try:
        for node in model.graph:
            read = [v and (known.get(v) or _typed(v, known)) for v in node.inputs]
            stated = [v and id(v.type_source) for v in node.outputs]
            key = (node.op_type, id(node.attributes), len(read), *map(id, read), *stated)
            is_alike = not node.domain and node.op_type in TYPED_BY_TYPES and key in alike
            number, made = alike[key] if is_alike else (len(alike), None)
            if made is None:
                if any(v is not None and t is None for v, t in zip(node.inputs, read, strict=True)):
                    return None
                made = nodes.infer(node, known, {})
                if not _are_certain(made, node.outputs):
                    return None
                alike[key if node.op_type in TYPED_BY_TYPES else (node,)] = number, made
            if kinds is not None:
                kinds[node] = number
            pairs = zip(node.outputs, made, strict=True)
            known.update([(v, found) for v, found in pairs if v is not None and found is not None])
    except DplError:
        return None  # a constant that cannot be read
    return {value: found for value, found in known.items() if value.producer is not None}


def _typed(value: Value, known: Types) -> TensorType | None:
    """Return what is declared of an input, if that is known to the last number; note it."""
    if value.is_initializer and type(value.type_source) is not TensorType:
        return None  # a statement may contradict what is stored
    declared = value.declared_type
    if declared is None or declared.dtype is None or not is_exact(declared):
        return None
    known[value] = declared
    return declared


def _are_certain(found: Sequence[TensorType | None], outputs: Sequence[Value | None]) -> bool:
    """Tell whether the types of outputs are certain, as far as these are there."""
    return len(found) == len(outputs) and all(
        value is None or _is_certain(each, value.declared_type)
        for value, each in zip(outputs, found, strict=True)
    )


def _is_certain(found: TensorType | None, declared: TensorType | None) -> bool:
    """Tell whether a type is known, all sizes are numbers, and the file does not contradict it."""
    if found is None or found.dtype is None or not is_exact(found):
        return False
    return declared is None or not contradicts(declared, found)


def _inputs_of_sizes(model: Model, sizes: Mapping[str, int]) -> Types:
    """Return the types of the inputs with *sizes* in the place of their symbols."""
    types: Types = {}
    for value in model.graph.inputs:
        declared = value.declared_type
        if declared is None or declared.shape is None or is_exact(declared):
            continue
        shape = tuple(
            dim if isinstance(dim, int) else sizes.get(dim or f"{value.name}:{axis}", dim)
            for axis, dim in enumerate(declared.shape)
        )
        types[value] = TensorType(declared.dtype, shape)
    return types


def infer_types_anew(model: Model) -> tuple[Mapping[Value, TensorType], str]:
    """Infer the types of a model's values as it is now, edits included.

    Returns:
        As :func:`infer_types`.
    """
    if model.source is None or source_of(model).size > IN_MEMORY_LIMIT:
        return {}, ""
    proto = to_proto(model, dict.fromkeys(large_tensors(model), DataPlace(IN_MEMORY, 0, 0)))
    inferred, reason = inferred_graph(proto, without=_refuted_names(model))
    types: Types = {}
    if inferred is not None:
        _collect_nodes(model.graph, model.graph, inferred, types)
    _, in_functions = infer_in_functions(model, types)
    return types, reason or in_functions


def _refuted_names(model: Model) -> set[str]:
    return {value.name for value in model.refuted}


def _without_weights(source: ModelProto) -> ModelProto:
    """Copy *source*, declaring large initializers as inputs instead of storing them."""
    skeleton = ModelProto(ir_version=source.ir_version)
    skeleton.opset_import.extend(source.opset_import)
    skeleton.functions.extend(source.functions)
    graph = skeleton.graph
    graph.name = source.graph.name
    graph.node.extend(source.graph.node)
    graph.value_info.extend(source.graph.value_info)
    graph.output.extend(source.graph.output)
    graph.input.extend(source.graph.input)
    declared = {value.name for value in source.graph.input}
    graph.initializer.extend(tensor for tensor in source.graph.initializer if _is_small(tensor))
    large = [(t.name, t.data_type, t.dims) for t in source.graph.initializer if not _is_small(t)]
    sparse = [(s.values.name, s.values.data_type, s.dims) for s in source.graph.sparse_initializer]
    graph.input.extend(
        helper.make_tensor_value_info(name, dtype, without_length(dims))
        for name, dtype, dims in large + sparse
        if name not in declared
    )
    return skeleton


def _is_small(tensor: TensorProto) -> bool:
    return tensor.data_location != TensorProto.EXTERNAL and tensor.ByteSize() <= _SMALL_TENSOR_BYTES


def _collect(graph: Graph, inferred: GraphProto, types: Types) -> None:
    """Note the types of a graph that was inferred as it was loaded, whatever it is now."""
    _collect_values(graph, (*inferred.value_info, *inferred.output), types)
    if graph.source is None:
        return
    places = source_of(graph.model).places
    bodies = [inner for node in graph for inner in node.subgraphs.values()]
    for inner in bodies:
        if inner.source is not None:
            number, name = places[id(inner.source)]
            _collect(inner, dict(graphs_of(inferred.node[number]))[name], types)


def _collect_nodes(graph: Graph, nodes: Iterable[Node], inferred: GraphProto, types: Types) -> None:
    """Note the types of what *nodes* make, whose messages *inferred* holds in the same order."""
    _collect_values(graph, (*inferred.value_info, *inferred.output), types)
    for node, proto in zip(nodes, inferred.node, strict=True) if graph.inner else ():
        for name, inner in graphs_of(proto):
            body = node.subgraphs.get(name)  # none where the caller gives it
            if body is not None:
                _collect_nodes(body, body, inner, types)


def _collect_values(graph: Graph, infos: Iterable[ValueInfoProto], types: Types) -> None:
    for info in infos:
        value = graph.values.get(info.name)
        found = None if value is None else _decoded(info.type.SerializeToString())
        if value is not None and found is not None:
            types[value] = found


def _explain(error: Exception) -> str:
    reason = str(error).strip().splitlines()[-1]
    if isinstance(error, GivenUpError):
        return f"only declared types are known: {reason}"
    return f"onnx shape inference failed, only declared types are known: {reason}"


# Sizes that a model leaves open.


def open_sizes(model: Model) -> list[str]:
    """Name the dimensions of the inputs that the model leaves open: by symbol, or input:axis."""
    found: dict[str, None] = {}
    for value in model.graph.inputs:
        known = None if value.is_initializer else value.declared_type
        for axis, dim in enumerate(known.shape or () if known is not None else ()):
            if not isinstance(dim, int):
                found[dim or f"{value.name}:{axis}"] = None
    return list(found)


def check_sizes(model: Model, sizes: Mapping[str, int]) -> None:
    """Refuse a size for a dimension that no input has.

    Raises:
        UsageError: No input has such a dimension.
    """
    known = open_sizes(model)
    for name in sizes:
        if name not in known and not _has_open_rank(model.graph, name):
            there = ", ".join(sorted(known)) or "none"
            raise UsageError(f"no input has a dimension {name!r}", hint=f"there are: {there}")


def _has_open_rank(graph: Graph, name: str) -> bool:
    """Tell whether *name* is an axis of an input whose rank is not declared."""
    value = graph.values.get(name.rpartition(":")[0])
    if value is None or not value.is_graph_input:
        return False
    return value.declared_type is None or value.declared_type.shape is None
