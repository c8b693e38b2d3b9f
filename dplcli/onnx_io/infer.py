"""Types and shapes by onnx's own inference, and its checker: of models, functions and nodes."""

from __future__ import annotations

import re
from itertools import count, zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from dplcli.errors import DplError, UsageError
from dplcli.files import text_path
from dplcli.ir import TensorType, TypeStatement
from dplcli.ir.model import (
    MANY,
    QUICKLY_CHECKED,
    called_function,
    expanded_sizes,
    followers_last,
    is_exact,
    is_settled,
)
from dplcli.ir.operators import SIZED_BY, canonical_domain
from dplcli.ir.types import PLAIN_KINDS, contradicts, made_up, shared_type
from dplcli.onnx_io.bounded import GivenUpError, bounded
from dplcli.onnx_io.convert import (
    all_nodes,
    decode_type,
    encode_attribute,
    encode_type,
    graphs_of,
    schema_in_force,
)
from dplcli.onnx_io.write import encode_node
from dplcli.shapes import Knowledge

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Container,
        Generator,
        Hashable,
        Iterable,
        Mapping,
        Sequence,
    )
    from pathlib import Path

    from numpy.typing import NDArray
    from onnx import FunctionProto
    from onnx.defs import OpSchema

    from dplcli.ir import Attribute, Dim, Function, Graph, Model, Node, Tensor, Value

    FunctionKey = tuple[str, str, str]

    Known: TypeAlias = "TensorType | TypeProto"
    """A type: of a tensor, or of a sequence, an optional or a map as onnx says it."""

    Task: TypeAlias = Generator["Task", Sequence[Known | None], Sequence[Known | None]]
    """Says what a node makes; it yields what has to be done before it goes on."""


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


# onnx's own checker and inliner, of whole models.
#
# They look into a function once for each call, so thirty functions that each call the next one
# twice take hours. Therefore calls are counted beforehand. What else they cost is limited while
# they run (`bounded`).


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
"""So many nodes and calls, or so many times those that the file states, take a second or two."""


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
        called = sum(count * self.sizes[key] for key, count in self.calls.items())
        return min(self._outside + called, MANY)

    @property
    def is_bounded(self) -> bool:
        """Whether inference may look at all of them."""
        return self.total <= max(_MOST_NODES, _MOST_TIMES * self.stated)

    @property
    def is_runnable(self) -> bool:
        """Whether onnxruntime, which looks at all nodes for each call, may expand all calls."""
        return self.is_bounded and self.total_calls <= max(_MOST_CALLS, _MOST_TIMES * self.stated)


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
    return {key: (functions[key], calls[key].keys()) for key in followers_last(callers)}


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


def with_operator_defined(content: bytes, op_type: str) -> bytes:
    """Put in the place of an operator's nodes the function that ONNX defines it by, if it does.

    Args:
        content: A small model.
        op_type: A standard operator.
    """
    model = onnx.load_from_string(content)
    inlined_there = onnx.inliner.inline_selected_functions(
        model, [("", op_type)], inline_schema_functions=True
    )
    return bytes(inlined_there.SerializeToString())


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


def check_model(path: Path, *, is_full: bool = True, may_lack_types: bool = True) -> str:
    """Run the check of onnx on the file at *path*.

    The full check infers types. That is left out where it would take too long or too much memory.

    Args:
        path: The file.
        is_full: Whether types are to be inferred.
        may_lack_types: Whether it is no objection that onnx knows no type of what a node reads.

    Returns:
        What the checker objects to, in one line; "" if nothing.
    """
    try:
        with text_path(path) as name:
            return _objection(
                name,
                path.stat().st_size,
                is_full=is_full and _is_bounded(path),
                may_lack_types=may_lack_types,
            )
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


def _objection(model: bytes | str, size: int, *, is_full: bool, may_lack_types: bool = True) -> str:
    """Return what the checker says against a model or a file.

    Types are left out where they make onnx crash, and if they may lack where onnx objects to
    nothing but that it knows no type of an input. It knows none behind a call of a function with an
    operator of a domain that it does not know. Where there is such an operator in the graph itself,
    it is silent.
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
        if is_full and may_lack_types and not _BESIDE_UNKNOWN_TYPES.sub("", " ".join(said.split())):
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


# What one node makes, by the inference of its schema.


_INDICES = frozenset({"int32", "int64"})
"""The types of what an operator may read as a shape."""

_SHORT = 1024
_SCALES = 8
"""Most elements of a constant that inference may look at: whole numbers, and other numbers."""

_FARTHEST_AXIS = 1 << 16


def infer_node(
    node: Node,
    types: Mapping[Value, Known | None],
    data: Mapping[Value, NDArray[Any]],
    attributes: Mapping[str, Attribute] = MappingProxyType({}),
) -> list[Known | None]:
    """Infer what a node without bodies makes, from what it reads.

    onnx holds the node against its schema first, so what a schema excludes does no harm.

    Args:
        node: The node.
        types: What is known of its inputs.
        data: The elements of inputs, as far as they are known and few.
        attributes: What the callers of the function it is in give.

    Returns:
        A type by output; None for what is not known.
    """
    unknown: list[Known | None] = [None] * len(node.outputs)
    try:
        version = node.graph.opset_imports[node.domain]
        schema = schema_in_force(node.op_type, version, node.domain)
        proto = NodeProto.FromString(encode_node(node))
        if schema is None or not _resolve(proto, attributes):
            return unknown
        found = infer_outputs(
            schema,
            proto,
            {
                value.name: _encoded(types.get(value), is_shape=slot > 0 or len(node.inputs) == 1)
                for slot, value in enumerate(node.inputs)
                if value is not None
            },
            {value.name: numpy_helper.from_array(item, value.name) for value, item in data.items()},
            node.graph.opset_imports,
            max(node.graph.model.ir_version, _FIRST_IR_WITH_FUNCTIONS),
        )
    except (*ONNX_ERRORS, KeyError):
        return unknown
    return [
        None if value is None or value.name not in found else _decoded(found[value.name])
        for value in node.outputs
    ]


_FIRST_IR_WITH_FUNCTIONS = 8


def infer_outputs(  # noqa: PLR0913, PLR0917  # what onnx takes
    schema: OpSchema,
    node: NodeProto,
    types: Mapping[str, TypeProto],
    data: Mapping[str, TensorProto],
    opsets: Mapping[str, int],
    ir_version: int,
) -> Mapping[str, TypeProto]:
    """Ask onnx for the types of what one node makes.

    Returns:
        By name, what is known; nothing for a node on which onnx's inference would crash.

    Raises:
        RuntimeError: onnx refuses it; or another one of :data:`ONNX_ERRORS`.
    """
    if endangers_inference(node):
        return {}
    found: Mapping[str, TypeProto] = onnx.shape_inference.infer_node_outputs(
        schema,
        node,
        {**types},
        {**data},
        opset_imports=[helper.make_opsetid(*item) for item in opsets.items()],
        ir_version=ir_version,
    )
    return found


def endangers_inference(node: NodeProto) -> bool:
    """Tell whether the inference of a node's schema would end the process, or not end itself.

    onnx 1.23 writes beyond its vector where a Split has more outputs than it says, makes as many
    sizes as it says, and goes through all axes up to the first one of a normalisation. It believes
    all that stands in a body.
    """
    for item in node.attribute:
        if item.name == "num_outputs" and item.i != len(node.output):
            return True
        if item.name == "axis" and abs(item.i) > _FARTHEST_AXIS:
            return True
        if item.HasField("g") or item.graphs:
            return True
    return False


def _encoded(known: Known | None, *, is_shape: bool) -> TypeProto:
    """Write a type for onnx.

    GatherND takes a size below zero for a rank, and crashes. Where onnx knows the length of a
    vector that it may read as a shape, it makes a message for each element.
    """
    if known is None:
        return TypeProto()
    if not isinstance(known, TensorType):
        return known
    shape = known.shape
    if shape is not None:
        shape = tuple([None if isinstance(dim, int) and dim < 0 else dim for dim in shape])
        length = shape[0] if is_shape and len(shape) == 1 and known.dtype in _INDICES else None
        if isinstance(length, int) and length > _LONG_VECTOR:
            shape = (f"{_LENGTH}{length}",)
    return encode_type("", TensorType(known.dtype, shape)).type


_LONG_VECTOR = 1 << 14
_LENGTH = "dpl length "


def _decoded(proto: TypeProto) -> Known | None:
    """Read what onnx says; the length of a long vector is a number again."""
    found = decode_type(proto)
    if found is None:
        return proto if proto.WhichOneof("value") is not None else None
    if found.shape is None:
        return None if found.dtype is None else found
    return TensorType(found.dtype, tuple([_number(dim) for dim in found.shape]))


def _number(dim: Dim) -> Dim:
    """Return the number that a symbol of ours stands for; a file may have such by malice."""
    if isinstance(dim, str) and dim.startswith(_LENGTH) and dim[len(_LENGTH) :].isdecimal():
        return int(dim[len(_LENGTH) :])
    return dim


def _resolve(proto: NodeProto, known: Mapping[str, Attribute]) -> bool:
    """Replace references to attributes of the function; tell whether all are known."""
    for position, item in enumerate(proto.attribute):
        name = item.ref_attr_name
        if name and name not in known:
            return False
        if name:
            proto.attribute[position].CopyFrom(encode_attribute(item.name, known[name]))
    return True


# The types of a model: one pass over its nodes, in order.
#
# A node is asked for what it makes, given what is known of what it reads: onnx once for all nodes
# that are alike, a body or a function by a pass over its own nodes. What onnx leaves open,
# as at a Reshape to sizes that the model computes, `shapes` derives.
#
# A file states types, too. We believe a statement that says more than follows from what a node
# reads. We do not believe one that contradicts it, and nothing rests on that one.


_MOST_STEPS = 20_000
_MOST_TIMES_STEPS = 8
"""Nodes in functions that are looked at: so many, and so many for each node of the file."""


class _Scope:
    """What is known of the values of a main graph, or of a function as one kind of call gives it.

    Args:
        is_file: Whether it is the main graph as the file has it. Then its values say themselves
            what is stated of them, and only what differs from that is kept here.
        attributes: What a function is given, by name.

    Attributes:
        types: What is known, by value.
        containers: The types of sequences, optionals and other values that are no tensors.
        refuted: What is stated though it is not so.
        data: The elements of what a function is given, as far as they are known and few.
        given: Equal for calls that give a function the same attributes.
        knowledge: What follows from the arithmetic on sizes; made when first asked for.
    """

    def __init__(
        self, *, is_file: bool = False, attributes: Mapping[str, Attribute] = MappingProxyType({})
    ) -> None:
        self.is_file = is_file
        self.attributes = attributes
        self.given: Hashable = tuple(
            [
                (name, item.kind, item.value if item.kind in PLAIN_KINDS else id(item.value))
                for name, item in attributes.items()
            ]
        )
        self.types: dict[Value, TensorType] = {}
        self.containers: dict[Value, TypeProto] = {}
        self.refuted: dict[Value, TensorType] = {}
        self.data: dict[Value, NDArray[Any]] = {}
        self.knowledge: Knowledge | None = None


class _Kind(NamedTuple):
    """What all nodes of one kind have in common.

    Attributes:
        number: Its number.
        made: By output, what a node makes.
        whole: By output, what to note of it; None if nodes differ in that.
        kept: What the key names by identity.
    """

    number: int
    made: Sequence[Known | None]
    whole: Sequence[TensorType | None] | None
    kept: object


class Inference:
    """Infers the types of a model's values.

    Args:
        model: The model, as it is now.
        sizes: Types of inputs that replace what is declared; then values do not learn their types.
        is_anew: Whether the model has been edited since it was inferred first.

    Attributes:
        problem: A clause that says what was given up, or "".
        kinds: If all types turn out to be known, as numbers: by node, the number of its kind.
    """

    def __init__(
        self,
        model: Model,
        sizes: Mapping[Value, TensorType] | None = None,
        *,
        is_anew: bool = False,
    ) -> None:
        self._model = model
        self._is_anew = is_anew
        self.problem = ""
        self.kinds: dict[Node, int] = {}
        self._scope = _Scope(is_file=sizes is None)
        self._scope.types.update(sizes or {})
        self._alike: dict[Hashable, _Kind] = {}
        self._types: dict[TensorType, TensorType] = {}
        self._said: dict[object, object] = {}
        self._data: dict[Value, NDArray[Any] | None] = {}
        self._calls: dict[Hashable, Sequence[Known | None] | None] = {}
        self._inside: dict[Function, _Inside] = {}
        self._left = _MOST_STEPS + _MOST_TIMES_STEPS * model.node_count
        self._symbols = count()
        self._is_exact = not model.functions and not model.graph.inner

    @property
    def types(self) -> dict[Value, TensorType]:
        """What is known beside what the file states."""
        return self._scope.types

    def container_of(self, value: Value) -> TypeProto | None:
        """Return the type of a value that is no tensor; None if it is one, or not known."""
        return self._scope.containers.get(value) or _stated_container(value)

    def run(self) -> None:
        """Look at all nodes of the main graph, and so at the functions that it calls."""
        graph = self._model.graph
        for inner in graph.and_inner():
            self._check_stored(inner)
        _work_off(self._graph(graph, self._scope))
        if not self._is_exact:
            self.kinds = {}
        for function in self._model.functions.values():
            if function not in self._inside:  # nobody calls it
                _work_off(self._look_into(function, _Scope()))
        for inside in self._inside.values():
            inside.name_sizes()
            self._scope.types.update(inside.types)
            for value, stated in inside.refuted.items():
                if self._scope.is_file:
                    self._model.refute(value, stated, inside.types.get(value))

    def look_at(self, node: Node) -> None:
        """Infer what a node makes that a pass has made."""
        made = _work_off(self._made_by(node, self._scope))
        self._learn(node, made, self._scope)

    # -- graphs ------------------------------------------------------------------------------------

    def _check_stored(self, graph: Graph) -> None:
        """Take the data's own type for that of what a graph stores, whatever is stated."""
        for value in graph.values.values():
            if value.producer is not None:
                break  # inputs and initializers come first
            if type(value.type_source) is TensorType or not value.is_initializer:
                continue  # it is the data's own, or there is none
            stated = value.declared_type
            if stated is not None:
                tensor = self._model.codec.tensor(value.initializer_source)
                found = shared_type(tensor.dtype, tensor.shape)
                if contradicts(stated, found):
                    self._is_exact = False
                    if self._scope.is_file:
                        self._model.refute(value, stated, found)
                elif not value.is_constant and stated != found:
                    self._is_exact = False

    def _graph(self, graph: Graph, scope: _Scope) -> Task:
        """Look at the nodes of a graph in order."""
        types, has_functions = scope.types, bool(self._model.functions)
        for node in graph:
            if node.subgraphs or (has_functions and called_function(node) is not None):
                made = yield self._made_by(node, scope)
                self._learn(node, made, scope)
                continue
            kind = self._kind(node, scope)
            if kind.whole is None:
                self._learn(node, kind.made, scope)
                continue
            self.kinds[node] = kind.number
            for value, known in zip(node.outputs, kind.whole, strict=True):
                if known is not None and value is not None:
                    types[value] = known
        return []

    def _made_by(self, node: Node, scope: _Scope) -> Task:
        """Say what a node makes."""
        function = called_function(node)
        if function is not None:
            return (yield self._call(node, function, scope))
        if node.subgraphs:
            return (yield self._with_bodies(node, scope))
        return self._kind(node, scope).made

    def _kind(self, node: Node, scope: _Scope) -> _Kind:
        """Say what a node makes that has no bodies and calls nothing, once for all alike."""
        slots = () if node.domain else SIZED_BY.get(node.op_type, ())
        data = self._data_read(node, slots, scope) if slots else {}
        alike = self._key(node, data, scope)
        kind = self._alike.get(alike)
        if kind is None:
            kind = self._alike[alike] = self._new_kind(node, data, scope)
        return kind

    def _key(
        self, node: Node, data: Mapping[Value, NDArray[Any]], scope: _Scope
    ) -> tuple[Hashable, ...]:
        """Return what nodes of a kind have in common; what they share is told by its identity."""
        types, said, domain = scope.types, self._said, node.domain
        version = node.graph.opset_imports.get(domain)
        key: list[Hashable] = [scope.is_file, node.op_type, domain, version, id(node.attributes)]
        for value in (*node.inputs, None, *node.outputs):
            known: object = None if value is None else types.get(value)
            if known is None and value is not None and value.type_source is not None:
                source = value.type_source
                if source not in said:  # statements of one type may differ in remarks
                    declared = value.declared_type
                    if declared is not None:
                        said[source] = self._shared(declared)
                    else:  # an interface may state nothing of a value but its name
                        said[source] = source if _stated_container(value) else None
                known = said[source]
            key.append(id(known))
        if data:
            key += [value and _data_key(data.get(value)) for value in node.inputs]
        if scope.containers:
            key += [value and id(scope.containers.get(value)) for value in node.inputs]
        if not scope.is_file and node.has_references:
            key.append(scope.given)
        return tuple(key)

    def _new_kind(self, node: Node, data: Mapping[Value, NDArray[Any]], scope: _Scope) -> _Kind:
        given = [value for value in node.inputs if value is not None]
        types = {value: self._read(value, scope) for value in given}
        found: Sequence[Known | None]
        tensor = _constant_of(node)
        if tensor is not None:
            found = [shared_type(tensor.dtype, tensor.shape)]
        else:
            found = infer_node(node, types, data, scope.attributes)
        kept = (node.attributes, types, [value.type_source for value in given + node.made])
        number, whole = len(self._alike), self._whole(node, found, scope)
        return _Kind(number, found, whole, kept)

    def _whole(
        self, node: Node, made: Sequence[Known | None], scope: _Scope
    ) -> Sequence[TensorType | None] | None:
        """Say what to note of what a node makes; None if that cannot be said for all alike."""
        whole: list[TensorType | None] = []
        for value, found in zip(node.outputs, made, strict=True):
            if value is None:
                whole.append(None)
                continue
            is_stated = value.type_source is not None  # a Constant comes to know its type below
            known, is_wrong = _believed(value, found)
            if is_wrong or not isinstance(known, TensorType) or self._is_open(value, known, scope):
                return None
            stated = value.declared_type
            self._is_exact &= is_exact(known) and (not is_settled(stated) or is_exact(stated))
            stands = scope.is_file and is_stated and known == stated
            whole.append(None if stands else self._shared(known))
        return whole

    # -- values ------------------------------------------------------------------------------------

    def _read(self, value: Value, scope: _Scope) -> Known | None:
        """Return what is known of a value that a node reads."""
        known = scope.types.get(value) or scope.containers.get(value)
        if known is not None:
            return known
        if value.is_constant and value.producer is None:
            tensor = self._model.codec.tensor(value.initializer_source)
            return shared_type(tensor.dtype, tensor.shape)
        stated = value.declared_type
        if stated is None and (container := _stated_container(value)) is not None:
            scope.containers[value] = container
            return container
        return stated

    def _data_of(self, value: Value, scope: _Scope) -> NDArray[Any] | None:
        """Return the elements of a constant that sizes may be computed from."""
        if value in scope.data:
            return scope.data[value]
        if value not in self._data:
            self._data[value] = _short_constant(value)
        return self._data[value]

    def _data_read(
        self, node: Node, slots: Iterable[int], scope: _Scope
    ) -> dict[Value, NDArray[Any]]:
        """Return the known elements of the inputs that say how large the results are.

        They may be computed of sizes. That is not followed where it could tell nothing new.
        """
        stated = [value.declared_type for value in node.outputs if value is not None]
        is_open = not all(is_settled(known) and not is_exact(known) for known in stated)
        found = {}
        for slot in slots:
            value = node.inputs[slot] if slot < len(node.inputs) else None
            if value is None:
                continue
            array = self._data_of(value, scope)
            if array is None and is_open and not value.is_constant:
                array = self._knowledge(scope).numbers(value)
            if array is not None:
                found[value] = array
        return found

    def _learn(self, node: Node, made: Sequence[Known | None], scope: _Scope) -> None:
        """Note what a node makes, beside what is stated of it."""
        self._is_exact = False
        for value, found in zip_longest(node.outputs, made[: len(node.outputs)]):
            if value is not None:
                self._note(value, found, scope)

    def _note(self, value: Value, found: Known | None, scope: _Scope) -> None:
        known, is_wrong = _believed(value, found)
        if is_wrong and (stated := value.declared_type) is not None:
            scope.refuted[value] = stated
            if scope.is_file:
                self._model.refute(value, stated, known if isinstance(known, TensorType) else None)
        if known is not None and not isinstance(known, TensorType):
            scope.containers[value] = known
            return
        is_open = self._is_open(value, known, scope)
        if known is not None:
            if is_open and known.shape is not None:
                known = TensorType(known.dtype, tuple([self._named(dim) for dim in known.shape]))
            scope.types[value] = self._shared(known)
        if is_open and value.producer is not None:
            derived = self._knowledge(scope).type_of(value)
            if derived is not None:
                scope.types[value] = self._shared(derived)

    @staticmethod
    def _is_open(value: Value, known: Known | None, scope: _Scope) -> bool:
        """Tell whether a type is wanted of a value that is not wholly known."""
        if scope.is_file and is_settled(value.declared_type):
            return False
        if known is None:
            return True
        return isinstance(known, TensorType) and (
            known.dtype is None or known.shape is None or None in known.shape
        )

    def _shared(self, known: TensorType) -> TensorType:
        """Return the one object for equal types, so that identities tell kinds of nodes."""
        return self._types.setdefault(known, known)

    def _named(self, dim: Dim) -> Dim:
        """Give a size that nobody knows a symbol, which says where it is the same."""
        return made_up(next(self._symbols)) if dim is None else dim

    def _knowledge(self, scope: _Scope) -> Knowledge:
        if scope.knowledge is None:
            is_kept = scope.is_file and not self._is_anew
            bound = None if scope.is_file else scope.types
            scope.knowledge = self._model.memory(Knowledge) if is_kept else Knowledge(bound)
            for value, array in scope.data.items():
                scope.knowledge.give(value, array)
        return scope.knowledge

    # -- bodies ------------------------------------------------------------------------------------

    def _with_bodies(self, node: Node, scope: _Scope) -> Task:
        """Look at the bodies of a node; say what it makes.

        What a Loop carries may have another shape each time.
        """
        bodies = node.subgraphs
        read = [None if value is None else self._read(value, scope) for value in node.inputs]
        op_type = node.op_type if not node.domain else ""
        given: list[Known | None] = []
        scanned = node.attributes.get("num_scan_inputs")
        split = len(read) - (scanned.value if scanned and isinstance(scanned.value, int) else 0)
        if op_type == "Loop":
            given = [TensorType("int64", None), *read[1:2], *map(_without_shape, read[2:])]
        elif op_type == "Scan":
            axes = _axes(node, "scan_input_axes", len(read) - split)
            given = [*read[:split], *map(_without_axis, read[split:], axes)]
        elif op_type == "SequenceMap":
            given = [_element(known) for known in read]
        for body in bodies.values():
            for formal, known in zip_longest(body.inputs, given[: len(body.inputs)]):
                self._note(formal, known, scope)
            yield self._graph(body, scope)
        made = [[self._read(value, scope) for value in body.outputs] for body in bodies.values()]
        if op_type == "If" and len(made) == len(("then", "else")):
            return [_common(*both) for both in zip(*made, strict=False)]
        if op_type == "Loop" and made:
            carried = len(read) - 2
            each_time = [_with_axis(known, 0, None) for known in made[0][1 + carried :]]
            return [*map(_without_shape, made[0][1 : 1 + carried]), *each_time]
        if op_type == "Scan" and made:
            axes = _axes(node, "scan_output_axes", len(made[0]) - split)
            length = _length(read[split:], _axes(node, "scan_input_axes", len(read) - split))
            scans = zip(made[0][split:], axes, strict=False)
            return [*made[0][:split], *[_with_axis(known, at, length) for known, at in scans]]
        if op_type == "SequenceMap" and made:
            return [_sequence_of(known) for known in made[0]]
        return []

    # -- functions ---------------------------------------------------------------------------------

    def _call(self, node: Node, function: Function, scope: _Scope) -> Task:
        """Look into a function, once for all calls that give it the same; say what it returns."""
        inner = self._scope_of(node, function, scope)
        formals = function.body.inputs
        key = (
            function,
            inner.given,
            *[inner.types.get(v) or _key_of(inner.containers.get(v)) for v in formals],
            *[_data_key(inner.data.get(v)) for v in formals],
        )
        if key not in self._calls:
            self._calls[key] = None
            self._calls[key] = yield self._look_into(function, inner)
        returned = self._calls[key]
        if returned is None:
            self.problem = self.problem or _ENDLESS
            return []
        return self._outside(returned, [inner.types.get(v) for v in formals])

    def _look_into(self, function: Function, scope: _Scope) -> Task:
        """Look at the body of a function; say what it returns."""
        size = sum(graph.node_count for graph in function.body.and_inner())
        if size > self._left:
            self.problem = self.problem or _TOO_MUCH
            return []
        self._left -= size
        for formal in function.body.inputs:
            self._note(formal, scope.types.get(formal), scope)
        yield self._graph(function.body, scope)
        if function not in self._inside:
            self._inside[function] = _Inside(function)
        self._inside[function].add(scope)
        return [self._read(value, scope) for value in function.body.outputs]

    def _scope_of(self, node: Node, function: Function, scope: _Scope) -> _Scope:
        """Make a scope of what a call gives; numbers come before symbols."""
        told = {**function.defaults, **node.attributes}
        attributes: dict[str, Attribute] = {}
        for name, item in told.items():
            if not item.ref:
                attributes[name] = item
            elif item.ref in scope.attributes:
                attributes[name] = scope.attributes[item.ref]
        inner = _Scope(attributes=attributes)
        for formal, value in zip(function.body.inputs, node.inputs, strict=False):
            if value is None:
                continue
            known, data = self._read(value, scope), self._data_of(value, scope)
            if data is not None:
                inner.data[formal] = data
            if isinstance(known, TensorType):
                stated = value.declared_type
                if scope.is_file and is_settled(stated) and not is_exact(known):
                    known = stated or known
                inner.types[formal] = self._shared(known)
            elif known is not None:
                inner.containers[formal] = known
        return inner

    def _outside(
        self, returned: Sequence[Known | None], given: Iterable[TensorType | None]
    ) -> list[Known | None]:
        """Return what a call makes; symbols that inference made up inside are new for each call."""
        names: dict[Dim, Dim] = {}
        for known in given:
            names.update({dim: dim for dim in (known and known.shape) or ()})

        def named(dim: Dim) -> Dim:
            return names.setdefault(dim, self._named(None)) if isinstance(dim, str) else dim

        return [
            _renamed(known, named) if isinstance(known, TensorType) else known for known in returned
        ]


_TOO_MUCH = "shape inference does not look into all functions: too many calls differ"
_ENDLESS = "shape inference does not look into functions that stand for endlessly many nodes"


def _work_off(task: Task) -> Sequence[Known | None]:
    """Do a task and what it waits for, without recursion: functions may call each other deeply."""
    waiting = [task]
    answer: Sequence[Known | None] | None = None
    while True:
        try:
            inner = next(waiting[-1]) if answer is None else waiting[-1].send(answer)
        except StopIteration as done:
            waiting.pop()
            made: Sequence[Known | None] = done.value
            if not waiting:
                return made
            answer = made
        else:
            waiting.append(inner)
            answer = None


class _Inside:
    """What is known inside a function: what all kinds of calls agree on.

    That is an element type, a rank, a size, or that two sizes are equal. Where sizes differ between
    calls, those that are equal at each of them share a symbol. A symbol that the function states
    may mean another size at each call, so one that a call brings gets a new name.

    Args:
        function: The function.

    Attributes:
        types: By value, what is known.
        refuted: By value, what the function states though a call contradicts it.
    """

    def __init__(self, function: Function) -> None:
        values = (v for graph in function.body.and_inner() for v in graph.values.values())
        stated = (value.declared_type for value in values)
        self._own = {dim for known in stated if known is not None for dim in known.shape or ()}
        self._name = function.name
        self._taken: set[Dim] = {*self._own}
        self._brought: dict[Dim, Dim] = {}
        self._made: dict[Dim, Dim] = {}
        self._is_first = True
        self.types: dict[Value, TensorType] = {}
        self.refuted: dict[Value, TensorType] = {}

    def add(self, scope: _Scope) -> None:
        """Learn from one more kind of call."""
        self.refuted |= scope.refuted
        found = {value: _renamed(known, self._inside) for value, known in scope.types.items()}
        if self._is_first:
            self.types, self._is_first = found, False
            return
        shared: dict[tuple[Dim, Dim], Dim] = {}

        def size(one: Dim, other: Dim) -> Dim:
            if one is None or other is None or one == other:
                return one if one == other else None
            if (one, other) not in shared:
                shared[one, other] = self._new()
            return shared[one, other]

        both = [
            (value, known, found[value]) for value, known in self.types.items() if value in found
        ]
        self.types = {value: _common_type(known, other, size) for value, known, other in both}

    def name_sizes(self) -> None:
        """Number the symbols that were made here; call it last."""
        numbers = count()

        def named(dim: Dim) -> Dim:
            if dim not in self._made:
                return dim
            while self._made[dim] is None:
                name = f"{self._name}:{next(numbers)}"
                self._made[dim] = None if name in self._taken else name
            return self._made[dim]

        self.types = {value: _renamed(known, named) for value, known in self.types.items()}

    def _inside(self, dim: Dim) -> Dim:
        if not isinstance(dim, str):
            return dim
        if dim not in self._own:
            self._taken.add(dim)
            return dim
        if dim not in self._brought:
            self._brought[dim] = self._new()
        return self._brought[dim]

    def _new(self) -> str:
        """Return a symbol for now; no file has one with a line break."""
        name = f"\n{len(self._made)}"
        self._made[name] = None
        return name


def _renamed(known: TensorType, name: Callable[[Dim], Dim]) -> TensorType:
    """Return a type with other names for its sizes."""
    shape = known.shape
    if shape is None or is_exact(known):
        return known
    return TensorType(known.dtype, tuple([name(dim) for dim in shape]))


# What is stated of a value, constants, and containers of tensors.


def _believed(value: Value, found: Known | None) -> tuple[Known | None, bool]:
    """Add to what is found what is stated beyond it; tell whether the statement is wrong instead.

    Numbers alone are added. Stated symbols are the exporter's; what they mean is not known.
    """
    stated = value.declared_type
    if stated is None or not (found is None or isinstance(found, TensorType)):
        return found or _stated_container(value), False
    if found is not None and contradicts(stated, found):
        return found, True
    if found is None:
        found = TensorType(None, None)
    dtype = stated.dtype if found.dtype is None else found.dtype
    said = stated.shape and tuple([dim if isinstance(dim, int) else None for dim in stated.shape])
    if said is None or found.shape is None:
        return TensorType(dtype, said if found.shape is None else found.shape), False
    pairs = zip(said, found.shape, strict=True)
    return TensorType(dtype, tuple([dim if old is None else old for old, dim in pairs])), False


def _stated_container(value: Value) -> TypeProto | None:
    """Read what the file states of a value that is no tensor."""
    source = value.type_source
    encoded = source.encoded if isinstance(source, TypeStatement) else source
    if not isinstance(encoded, bytes):
        return None
    stated = ValueInfoProto.FromString(encoded).type
    is_tensor = stated.WhichOneof("value") in {None, "tensor_type"}
    return None if is_tensor else stated


def _constant_of(node: Node) -> Tensor | None:
    """Return what a Constant holds; None if it is sparse, or given by a call."""
    if node.op_type != "Constant" or node.domain or len(node.outputs) != 1:
        return None
    return None if node.outputs[0] is None else node.outputs[0].constant


def _short_constant(value: Value) -> NDArray[Any] | None:
    """Read data that shapes may be computed from: whole numbers, or the scales of a Resize."""
    tensor = value.constant
    if tensor is None or tensor.is_external or tensor.dtype == "string":
        return None
    most = _SHORT if tensor.dtype in _INDICES else _SCALES
    try:
        return np.asarray(tensor.numpy()) if tensor.size <= most else None
    except DplError:
        return None  # it cannot be read, so no shape follows from it


def _data_key(array: NDArray[Any] | None) -> Hashable:
    return None if array is None else (array.dtype.str, array.shape, array.tobytes())


def _key_of(container: TypeProto | None) -> bytes:
    return b"" if container is None else container.SerializeToString(deterministic=True)


def _common(first: Known | None, second: Known | None) -> Known | None:
    """Return what two branches have in common."""
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return first if first == second else None
    return _common_type(first, second, lambda one, other: one if one == other else None)


def _common_type(
    first: TensorType, second: TensorType, size: Callable[[Dim, Dim], Dim]
) -> TensorType:
    """Return what two types have in common; *size* says it of sizes."""
    dtype = first.dtype if first.dtype == second.dtype else None
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(map(size, first.shape, second.shape)))


def _without_shape(known: Known | None) -> Known | None:
    return TensorType(known.dtype, None) if isinstance(known, TensorType) else known


def _axes(node: Node, name: str, number: int) -> list[int]:
    """Return the axes of what a Scan reads or makes turn by turn."""
    stated = node.attributes.get(name)
    axes = stated.value if stated is not None and isinstance(stated.value, tuple) else ()
    return [*axes, *[0] * number][:number]


def _without_axis(known: Known | None, axis: int) -> Known | None:
    if not isinstance(known, TensorType) or known.shape is None:
        return known
    kept = [*known.shape]
    if -len(kept) <= axis < len(kept):
        del kept[axis]
        return TensorType(known.dtype, tuple(kept))
    return TensorType(known.dtype, None)


def _with_axis(known: Known | None, axis: int, size: Dim) -> Known | None:
    if not isinstance(known, TensorType) or known.shape is None:
        return known
    place = axis + (len(known.shape) + 1) * (axis < 0)
    return TensorType(known.dtype, (*known.shape[:place], size, *known.shape[place:]))


def _length(read: Sequence[Known | None], axes: Sequence[int]) -> Dim:
    """Return how many turns a Scan takes."""
    for known, axis in zip(read, axes, strict=True):
        shape = known.shape if isinstance(known, TensorType) else None
        if shape is not None and -len(shape) <= axis < len(shape) and shape[axis] is not None:
            return shape[axis]
    return None


def _element(known: Known | None) -> Known | None:
    """Return what a sequence holds; of anything else, that itself."""
    if known is None or isinstance(known, TensorType) or not known.HasField("sequence_type"):
        return known
    return _decoded(known.sequence_type.elem_type)


def _sequence_of(known: Known | None) -> Known | None:
    if known is None:
        return None
    element = known if not isinstance(known, TensorType) else encode_type("", known).type
    return helper.make_sequence_type_proto(element)


# Questions about a whole model.


def infer_for_sizes(model: Model, sizes: Mapping[str, int]) -> Inference:
    """Infer the types of a loaded model's values, with numbers for symbolic dimensions.

    Args:
        model: The model, as it was loaded.
        sizes: A number per symbol of the inputs, or per ``input:axis``.

    Raises:
        UsageError: No input has such a dimension.
    """
    check_sizes(model, sizes)
    given: dict[Value, TensorType] = {}
    for value in model.graph.inputs:
        stated = value.declared_type
        if stated is not None and stated.shape is not None and not is_exact(stated):
            shape = tuple(
                dim if isinstance(dim, int) else sizes.get(dim or f"{value.name}:{axis}", dim)
                for axis, dim in enumerate(stated.shape)
            )
            given[value] = TensorType(stated.dtype, shape)
    inference = Inference(model, given)
    inference.run()
    return inference


def types_by_name(model: Model) -> dict[str, TypeProto]:
    """Return the types of the values of the main graph, in onnx's words; numbers where possible."""
    inference = model.infer()
    assert isinstance(inference, Inference)  # noqa: S101  # the codec's
    found = {}
    for value in model.graph.values.values():
        known = _most_known(value, inference.types)
        proto = encode_type("", known).type if known else inference.container_of(value)
        if proto is not None:
            found[value.name] = proto
    return found


def state_types(model: Model) -> dict[str, TypeProto]:
    """Let the values of the main graph, and of bodies in it, state what is known.

    Returns:
        As :func:`types_by_name`.
    """
    types = model.infer().types
    for graph in model.graph.and_inner():
        for value in graph.values.values():
            known = _most_known(value, types)
            if known is not None and known != value.declared_type:
                value.note_type(known)
    return types_by_name(model)


def _most_known(value: Value, types: Mapping[Value, TensorType]) -> TensorType | None:
    """Return what is known, with a number for each symbol that turns out to be one."""
    said, found = value.known_type(), types.get(value)
    if said is None or found is None or said.shape is None or found.shape is None:
        return said or found
    pairs = zip(said.shape, found.shape, strict=True)
    dims = [old if old is not None and not isinstance(new, int) else new for old, new in pairs]
    return TensorType(said.dtype, tuple(dims))


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
