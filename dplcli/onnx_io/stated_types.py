"""What a file states of types, against what its graph computes.

A statement that says more than inference finds is believed; one that contradicts it is not, and
neither is what would follow from it. onnx's own inference believes every statement and infers on
from it, so here it is asked without them first, and then with those that are left.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import onnx
from onnx import GraphProto, ModelProto, TypeProto

from dplcli.files import temporary_folder
from dplcli.ir import TensorType
from dplcli.ir.model import is_exact
from dplcli.ir.types import contradicts
from dplcli.onnx_io.attributes import graphs_of
from dplcli.onnx_io.bounded_inference import infer_shapes
from dplcli.onnx_io.node_inference import infer_node
from dplcli.onnx_io.types import decode_type, encode_type

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Dim, Model, Node, Value

    Place = tuple[tuple[int, str], ...]
    """A graph: the bodies to go through on the way from the main one, by node and attribute."""

    Name = tuple[Place, str]
    """A value: its graph and its name."""

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

    Args:
        model: The model, with what is stated of the values in its graphs. It is used up.
        without: Names of values of which nothing that is stated is believed.
        has_bodies: False if surely no node has a body.

    Raises:
        RuntimeError: onnx cannot do it; or another one of ``INFERENCE_ERRORS``.
    """
    stated = _Statements(model.graph, has_bodies=has_bodies)
    found, problem = _infer(model)
    if not stated.is_any:
        return Inference(found, problem)
    gaps = stated.beyond(found, without)
    ends = gaps - {*stated.read()} if gaps else gaps
    if stated.put_back(gaps - ends):
        found, problem = _infer(model)
    stated.complete(found, ends)
    return Inference(found, problem, frozenset(name for _, name in gaps))


def _infer(model: ModelProto) -> tuple[GraphProto, str]:
    if model.ByteSize() < IN_MEMORY_LIMIT:
        found, problem = infer_shapes(model, data_prop=True)
        return found.graph, problem
    with temporary_folder() as folder:
        before, after = folder / "before.onnx", folder / "after.onnx"
        onnx.save(model, before)
        onnx.shape_inference.infer_shapes_path(before, after, data_prop=True)
        return onnx.load(after, load_external_data=False).graph, ""


class _Statements:
    """What was stated in a graph, from which it is taken out.

    Args:
        graph: The graph.
        has_bodies: Whether to look for bodies of its nodes.
        is_body: Whether it is one; what the inputs of a main graph are stated to be is given.
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

    def beyond(self, found: GraphProto, without: Container[str], place: Place = ()) -> set[Name]:
        """Return the values of which more was stated than *found*, and nothing else."""
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

    def read(self) -> Iterator[Name]:
        """Iterate over what is read; of a body anything may be."""
        for node in self.graph.node:
            for name in node.input:
                yield (), name
        for step, body in self.bodies.items():
            for place, name in (*body.read(), *(((), name) for name in body.types)):
                yield (), name
                yield (step, *place), name

    def put_back(self, names: AbstractSet[Name], place: Place = ()) -> bool:
        """State again what was stated of *names*, numbers only; tell whether there is anything.

        A symbol is what an exporter saw once. What follows from those of the inputs is found.
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

    def complete(self, found: GraphProto, names: AbstractSet[Name]) -> None:
        """Add to the outputs of the main graph in *names* what is stated; nothing reads them."""
        for info in found.output:
            stated = self.types.get(info.name)
            if stated is None or ((), info.name) not in names:
                continue
            said, known = _decoded(stated), _decoded(info.type)
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
    said, known = _decoded(stated), _decoded(found)
    if said is None or known is None or contradicts(said, known):
        return False
    numbers = said.shape and tuple([dim if isinstance(dim, int) else None for dim in said.shape])
    return _joined(TensorType(said.dtype, numbers), known) != known


def _decoded(proto: TypeProto) -> TensorType | None:
    return _read_type(proto.SerializeToString())


@lru_cache(maxsize=1024)
def _read_type(encoded: bytes) -> TensorType | None:
    return decode_type(TypeProto.FromString(encoded))


def _joined(said: TensorType, known: TensorType) -> TensorType:
    """Add to what is known what is said beyond it."""
    dtype = said.dtype if known.dtype is None else known.dtype
    if known.shape is None or said.shape is None:
        return TensorType(dtype, said.shape if known.shape is None else known.shape)
    pairs = zip(said.shape, known.shape, strict=True)
    return TensorType(dtype, tuple([_dim(said_dim, dim) for said_dim, dim in pairs]))


def _dim(said: Dim, known: Dim) -> Dim:
    is_open = known is None or (isinstance(known, str) and known.startswith(_MADE_UP))
    return said if isinstance(said, int) or (is_open and said is not None) else known


_MADE_UP = "unk__"
"""How the symbols begin that onnx's inference makes up."""


def settle(model: Model, types: dict[Value, TensorType], believed: Container[str]) -> None:
    """Settle which of the statements to believe that contradict each other: the earlier ones.

    onnx says nothing of them where a model has operators that it does not know.

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

    def __init__(self, types: dict[Value, TensorType], believed: Container[str]) -> None:
        self.types = types
        self.believed = believed
        self.changed: set[Value] = set()
        self.made: dict[Hashable, Sequence[TensorType | None]] = {}

    def look_at(self, node: Node) -> None:
        """Correct what *node* makes, if it contradicts what is known of what it reads."""
        follows = any(value in self.changed for value in node.inputs)
        inferred = self._found(node, follows=follows)
        for value, found in zip(node.outputs, inferred, strict=False):
            if value is not None:
                self._learn(value, found, follows=follows)

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

    def _found(self, node: Node, *, follows: bool) -> Sequence[TensorType | None]:
        """Infer what *node* makes, if it may be in question; nodes that are alike once."""
        if not follows and all(v is None or v.name not in self.believed for v in node.outputs):
            return ()
        read = [v if v is None or v.is_constant else self.types.get(v, v) for v in node.inputs]
        key = (node.op_type, node.domain, id(node.attributes), len(node.outputs), *read)
        if key not in self.made:
            found = infer_node(node, self.types)
            self.made[key] = [*found, *[None] * (len(node.outputs) - len(found))]
        return self.made[key]


def statements_hold(model: Model) -> bool:
    """Tell whether all types are stated, as numbers, and each is what its node makes.

    It is the quick answer for large models: nodes that are alike are inferred once, so a net of
    100,000 nodes takes some tenths of a second where onnx takes seconds. It is never a wrong yes:
    what holds at each node holds for all.
    """
    if model.graph.inner or model.functions:
        return False
    constants: set[Value] = set()
    for value in model.graph.values.values():
        if value.producer is not None:
            break  # inputs and initializers come first
        if not _is_given(value, constants):
            return False
    for value in model.graph.outputs:
        value.declared_type  # noqa: B018  # types that are alike are one object from here on
    seen: set[tuple[object, ...]] = set()
    for node in model.graph:
        inputs, outputs = node.inputs, node.outputs
        key = (
            node.op_type,
            node.domain,
            id(node.attributes),
            len(outputs),
            *[v if v is None or v in constants else id(v.type_source) for v in inputs + outputs],
        )
        if key not in seen:
            if not _makes_what_is_stated(node):
                return False
            seen.add(key)
        if node.op_type == "Constant":
            constants.update(value for value in outputs if value is not None)
    return True


def _is_given(value: Value, constants: set[Value]) -> bool:
    """Tell whether all is known of an input or initializer; note if shapes may depend on it."""
    source, known = value.type_source, value.declared_type
    if value.is_initializer and known is not None and known.dtype not in _FLOATS:
        constants.add(value)
    if value.is_initializer and value.is_graph_input:
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


def _makes_what_is_stated(node: Node) -> bool:
    if node.source is None or node.subgraphs:
        return False
    made = [value for value in node.outputs if value is not None]
    stated = [value.declared_type for value in made]
    if any(known is None or not is_exact(known) for known in stated):
        return False
    found = dict(zip(node.outputs, infer_node(node), strict=False))
    return [found.get(value) for value in made] == stated
