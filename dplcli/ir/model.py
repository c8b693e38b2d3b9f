"""Models: functions and graphs of nodes in topological order, and values with their uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from dplcli.ir.types import Tensor, TensorType, is_made_up, shared_type, tensor_of_attributes
from dplcli.keys import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

    from dplcli.ir.types import Attribute, Dim

    Use: TypeAlias = "tuple[Node, int]"
    """A node and the input slot in which it reads a value."""


# Graphs: nodes in topological order.
#
# Nested graphs (bodies of If, Loop, Scan) are graphs of their own; a value of an outer graph that
# an inner node reads is simply that value, with the inner node in its use-list.


_GAP = 1 << 40
_FILLED = 1.4
"""How many more positions may be taken in a range that is twice as wide."""
_SHARE = 8
"""A new node takes the first eighth of a gap; mostly further ones follow it."""


class Graph:
    """A main graph, the body of a function, or the body of an If, Loop or Scan.

    Nodes form a linked list in topological order, each with a position label, so that insertion,
    removal and "which comes first" take constant time.

    Attributes:
        model: The model it belongs to.
        name: Graph name.
        owner: The node whose attribute it is; None for a main graph or a function body.
        function: The function whose body it is, if it is one.
        inputs: Its inputs, overridable initializers included.
        outputs: What it returns; never None.
        values: Every value it defines, by name.
        source: The opaque graph it was loaded from.
        likeness: The source of the body that it is a copy of, made by a pass; or what the codec
            has encoded of one (:meth:`Codec.graph_remarks`).
        modified: Whether anything was edited since loading.
        inner: The bodies that its nodes have, in order of loading.
        erased: Names of the values taken out since loading.
        dropped: Those of them that the graph stored data for.
        stated_types: Types to state in the file from now on, by name; an empty one for none.
        annotations: What the graph says of how values are quantised, by name.
        opset_imports: Domain to version, as in force here (shared with the enclosing graph).
    """

    inputs: list[Value]
    outputs: list[Value]
    node_count: int

    def __init__(
        self, model: Model, opset_imports: dict[str, int], *, owner: Node | None = None
    ) -> None:
        self.model = model
        self.opset_imports = opset_imports
        self.name = ""
        self.owner = owner
        self.function: Function | None = None
        self.inner: list[Graph] = []
        if owner is not None:
            owner.graph.inner.append(self)
        self.inputs = []
        self.outputs = []
        self.values: dict[str, Value] = {}
        self.source: object = None
        self.likeness: object = None
        self.modified = False
        self.erased: set[str] = set()
        self.dropped: set[str] = set()
        self.stated_types: dict[str, StatedType] = {}
        self.annotations: dict[str, tuple[Annotation, ...]] = {}
        self.node_count = 0
        self._first: Node | None = None
        self._last: Node | None = None

    def __repr__(self) -> str:
        """Show name and size."""
        return f"<Graph {self.name!r} with {self.node_count} nodes>"

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the nodes in topological order; removing the current one is safe."""
        node = self._first
        while node is not None:
            following = node.next
            yield node
            node = following

    def __reversed__(self) -> Iterator[Node]:
        """Iterate from the last node to the first; removing the current one is safe."""
        node = self._last
        while node is not None:
            preceding = node.prev
            yield node
            node = preceding

    @property
    def scope(self) -> str:
        """Its name for readers, as :func:`scope_of` gives it."""
        return scope_of(self)

    @property
    def computing_count(self) -> int:
        """How many of its nodes compute something: a Constant holds data."""
        return sum(node.op_type != "Constant" or bool(node.domain) for node in self)

    def clear(self) -> None:
        """Forget everything an outermost graph holds."""
        self.inputs, self.outputs, self.values, self.inner = [], [], {}, []
        self._first = self._last = None
        self.node_count = 0

    @property
    def initializers(self) -> list[Value]:
        """The values that the graph stores data for, in file order."""
        return [value for value in self.values.values() if value.is_initializer]

    def add_output(self, value: Value) -> None:
        """Return *value*, of this graph or one round it, as a further output."""
        self.outputs.append(value)
        value.returned_by += (self,)

    def and_inner(self) -> Iterator[Graph]:
        """Iterate over this graph and those inside it, outer ones first."""
        pending = [self]
        while pending:
            graph = pending.pop()
            yield graph
            pending += reversed(graph.inner)

    # -- building and editing: used by the loader and by passes.rewriter only ------------------

    def append(self, node: Node) -> None:
        """Link *node* in as the last one; its inputs must be defined already."""
        last = self._last
        if last is None:
            self._first = node
            node.position = _GAP
        else:
            last.next = node
            node.position = last.position + _GAP
        node.prev = last
        node.next = None
        self._last = node
        self.node_count += 1

    def insert_before(self, anchor: Node, node: Node) -> None:
        """Link *node* in just before *anchor*."""
        before = anchor.prev
        node.prev, node.next = before, anchor
        anchor.prev = node
        if before is None:
            self._first = node
        else:
            before.next = node
        self.node_count += 1
        low = 0 if before is None else before.position
        node.position = low + (anchor.position - low) // _SHARE
        if node.position == low:
            # Give *node*, which has no position between its neighbours', and those round it new
            # ones.
            centre = node.position = 0 if node.prev is None else node.prev.position
            first = last = node
            count, width, most = 1, 1, 1.0
            while True:
                width *= 2
                most *= _FILLED
                start = centre - centre % width
                while first.prev is not None and first.prev.position >= start:
                    first, count = first.prev, count + 1
                while last.next is not None and last.next.position < start + width:
                    last, count = last.next, count + 1
                if count <= most:
                    break
            gap = width // (count + 1)
            current: Node | None = first
            for rank in range(1, count + 1):
                assert current is not None  # noqa: S101  # they were counted
                current.position = start + rank * gap
                current = current.next

    def insert_behind(self, anchor: Node, node: Node) -> None:
        """Link *node* in just behind *anchor*."""
        if anchor.next is None:
            self.append(node)
        else:
            self.insert_before(anchor.next, node)

    def unlink(self, node: Node) -> None:
        """Take *node* out of the list; its values and uses are the caller's affair."""
        if node.prev is None:
            self._first = node.next
        else:
            node.prev.next = node.next
        if node.next is None:
            self._last = node.prev
        else:
            node.next.prev = node.prev
        node.prev = node.next = None
        self.node_count -= 1

    def arrange(self, nodes: Iterable[Node]) -> None:
        """Put all nodes into another topological order."""
        self._first = self._last = None
        self.node_count = 0
        for node in nodes:
            self.append(node)


# Keys of metadata that say what dpl wrote, and from what.
#
# Models are exchanged as files, so these are a format: other modules, and other tools, read them.


RULE_KEY = "dpl.rule"
"""Of a node that a rule has made: the rule's name."""

ORIGIN_KEY = "dpl.replaces"
"""Of a node that a rule has made: who made its results before, but for its own name."""

NODES_KEY = "dpl.nodes"
"""Of a call: the nodes it stands for."""


# Where graphs are: their names for readers.


def scope_of(graph: Graph) -> str:
    """Name a graph: ``main``, ``main/loop_1.body``, or ``function local::f``."""
    parts: list[str] = []
    while graph.owner is not None:
        owner = graph.owner
        attribute = next(name for name, body in owner.subgraphs.items() if body is graph)
        parts.append(f"{owner.label}.{attribute}")
        graph = owner.graph
    return "/".join([_outermost_name(graph), *reversed(parts)])


def is_in_function(graph: Graph) -> bool:
    """Tell whether *graph* is the body of a function, or lies in it."""
    while graph.owner is not None:
        graph = graph.owner.graph
    return graph is not graph.model.graph


def _outermost_name(graph: Graph) -> str:
    function = graph.function
    return "main" if function is None else f"function {function.domain}::{function.name}"


# Models and model-local functions.


Memory = TypeVar("Memory")

QUICKLY_CHECKED = 10_000
"""For so many nodes onnx infers types in a fraction of the time that a command takes to start."""

_MOST_REFUTATIONS = 5
"""So many values with wrong types are named; where one size was changed, all types are wrong."""


@keys("domain name overload?")
@dataclass(eq=False, repr=False)
class Function:
    """A model-local function.

    Attributes:
        domain: Its domain.
        name: Its name in the domain.
        overload: Its overload, nearly always "".
        body: Inputs, outputs and nodes.
        attributes: Names of the declared attributes without a default.
        defaults: The declared attributes that have a default.
        metadata: ``metadata_props``.
        source: The opaque function it was loaded from; None if made by a pass.
    """

    domain: str
    name: str
    body: Graph
    overload: str = ""
    attributes: tuple[str, ...] = ()
    defaults: Mapping[str, Attribute] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    source: object = None

    def __post_init__(self) -> None:
        """Let the body know whose it is: a model may have too many functions to search them."""
        self.body.function = self

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it in a model: domain, name, overload."""
        return (self.domain, self.name, self.overload)

    @property
    def qualified_name(self) -> str:
        """``dnnl::conv2d_relu``, with its overload if it has one."""
        overload = f":{self.overload}" if self.overload else ""
        return f"{self.domain}::{self.name}{overload}"


class Model:
    """A whole ONNX model.

    Attributes:
        codec: Decoder of the opaque sources.
        graph: The main graph.
        functions: Model-local functions by :attr:`Function.key`.
        ir_version: IR version of the file.
        opset_imports: Domain to version.
        source: The opaque model it was loaded from.
        path: The file it was loaded from, or None.
        may_have_external_data: False if tensors surely have no data in other files.
        notes: What a reader should know about the file (sorted nodes, failed inference, …).
        taken: Names that what lies beside the graph uses, so that no new value may have them.
        called_beside: Operators, as :attr:`Function.key`, that are used beside the graph.
        annotated: The graphs of the file that say how values are quantised.
        trained: Values that training updates, and that nodes read in the file.
        is_spread: Whether some node says which devices it runs on.
        kinds: If all types turned out to be known, as numbers: by node of the file, a number that
            is equal only for nodes with operator, attributes and types in common.
        sums: Symbols of inputs that are sums of others, as somebody has said.
        refuted: By value, what the file states of its type though the graph contradicts it.
        conflicts: What makes its nodes mean different things to different readers.
        implied: By node and input slot, constants for what the node keeps in attributes though
            later opsets have it as an input (:mod:`dplcli.ir.operators`).
    """

    ir_version: int
    graph: Graph

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.opset_imports: dict[str, int] = {}
        self.graph = Graph(self, self.opset_imports)
        self.functions: dict[tuple[str, str, str], Function] = {}
        self.ir_version = 0
        self.source: object = None
        self.path: Path | None = None
        self.may_have_external_data = True
        self.is_spread = False
        self.taken: frozenset[str] = frozenset()
        self.called_beside: frozenset[tuple[str, str, str]] = frozenset()
        self.trained: list[Value] = []
        self.annotated: list[Graph] = []
        self._holders: dict[str, Graph] = {}
        self.notes: list[str] = []
        self.conflicts: list[str] = []
        self.refuted: dict[Value, TensorType] = {}
        self.sums: Mapping[str, tuple[int | str, ...]] = {}
        self.implied: dict[tuple[Node, int], Value] = {}
        self.kinds: Mapping[Node, int] = {}
        self._inference: KnownTypes | None = None
        self._tried: set[Node] = set()
        self._memories: dict[object, Any] = {}

    def graphs(self) -> Iterator[Graph]:
        """Iterate over every graph: main, then function bodies, each before those inside it."""
        yield from self.graph.and_inner()
        for function in self.functions.values():
            yield from function.body.and_inner()

    @property
    def node_count(self) -> int:
        """How many nodes all graphs have."""
        return sum(graph.node_count for graph in self.graphs())

    @property
    def computing_count(self) -> int:
        """How many of its nodes compute something, those in bodies and functions included."""
        return sum(graph.computing_count for graph in self.graphs())

    def protect(self, value: Value, holder: str) -> None:
        """Let *value* count as returned, since something beside the graph names it.

        Args:
            value: A value of any graph.
            holder: What names it, for readers.
        """
        if holder not in self._holders:
            self._holders[holder] = Graph(self, {})
            self._holders[holder].name = holder
        if self._holders[holder] not in value.returned_by:
            value.returned_by += (self._holders[holder],)

    def memory(self, kind: Callable[[], Memory]) -> Memory:
        """Return the object of *kind* that is kept with this model; make it when first asked."""
        if kind not in self._memories:
            self._memories[kind] = kind()
        kept: Memory = self._memories[kind]
        return kept

    def forget(self) -> bool:
        """Drop the objects that :meth:`memory` keeps; tell whether there were any."""
        had_some = bool(self._memories)
        self._memories.clear()
        return had_some

    def infer(self) -> KnownTypes:
        """Infer the types of all values, once, when somebody first asks for one.

        Stated types that the graph contradicts are not believed from then on.
        """
        if self._inference is None:
            self._inference = self.codec.inference(self)
            self._inference.run()
            self.kinds = self._inference.kinds
            if self._inference.problem:
                self.notes.append(self._inference.problem)
            self.notes += self._refutations()
        return self._inference

    def note_refutations(self) -> None:
        """Infer the types if that is cheap, to note wrong statements of types that nobody reads."""
        if self.node_count <= QUICKLY_CHECKED:
            self.infer()

    def refute(self, value: Value, stated: TensorType, found: TensorType | None) -> None:
        """Replace the type that the file states of *value* by *found*, as the graph makes it."""
        self.refuted.setdefault(value, stated)
        value.note_type(found or TensorType(None, None))

    def _refutations(self) -> list[str]:
        """Say which types the file states that are not so."""
        label = self.path or "the model"
        lines = []
        for value, stated in islice(self.refuted.items(), _MOST_REFUTATIONS):
            scope = scope_of(value.graph)
            what = f"output {value.name!r}" if value.is_graph_output else f"{value.name!r}"
            where = "" if scope == "main" else f" in {scope}"
            lines.append(
                f"{label}: {what}{where} is stated to be {stated}, and is {value.declared_type}; "
                "the statement is left as it is, and not relied on"
            )
        others = len(self.refuted) - len(lines)
        if others:
            lines.append(
                f"{label}: {others:,} more value{'s are' if others > 1 else ' is'} not what the "
                "file states"
            )
        return lines

    def infer_outputs(self, node: Node) -> None:
        """Infer the types of the outputs of a node that a pass has made.

        The same is done for nodes that it needs for that. What fails is tried again after the next
        edit, not before.
        """
        inference = self.infer()
        pending = [node]
        opened: set[Node] = set()
        while pending:
            current = pending.pop()
            if current in self._tried:
                continue
            if current not in opened:
                opened.add(current)
                pending += [current, *self._unknown_makers(current, opened)]
                continue
            inference.look_at(current)
            self._tried.add(current)

    def _unknown_makers(self, node: Node, opened: Container[Node]) -> list[Node]:
        """List the nodes made by passes that make inputs of *node* of which nothing is known."""
        types = self.infer().types
        makers = [
            value.producer
            for value in node.inputs
            if value is not None and value.type_source is None and value not in types
        ]
        return [m for m in makers if m is not None and m.source is None and m not in opened]

    def note_edit(self) -> None:
        """Let types that could not be inferred be tried again."""
        self._tried.clear()

    def infer_again(self) -> list[Value]:
        """Infer the types of the model as it is now, if somebody asked for types before.

        Returns:
            The values of which more is known than before.
        """
        before = self._inference
        if before is None or (all(map(is_exact, before.types.values())) and self._is_typed(before)):
            return []
        self._inference = anew = self.codec.inference(self, is_anew=True)
        anew.run()
        self._inference = before
        more = {
            value: known
            for value, known in anew.types.items()
            if says_more(known, before.types.get(value, value.declared_type))
        }
        for value, known in more.items():
            value.note_type(known)
        self.note_edit()
        return list(more)

    def _is_typed(self, inference: KnownTypes) -> bool:
        """Tell whether something is known of all outputs of loaded nodes.

        Nodes made by passes are inferred one by one; nothing is known of the values in functions.
        """
        return all(
            output is None or output in inference.types or output.type_source is not None
            for graph in self.graph.and_inner()
            for node in graph
            if node.source is not None
            for output in node.outputs
        )


_NUMBERS = {int}


def is_exact(known: TensorType | None) -> bool:
    """Tell whether a type is known, and every dimension is a number."""
    return known is not None and known.shape is not None and set(map(type, known.shape)) <= _NUMBERS


def is_settled(known: TensorType | None) -> bool:
    """Tell whether element type and rank are known, and no size has a symbol made up by onnx."""
    if known is None or known.dtype is None or known.shape is None:
        return False
    return set(map(type, known.shape)) <= _NUMBERS or not any(map(is_made_up, known.shape))


def says_more(found: TensorType, known: TensorType | None) -> bool:
    """Tell whether *found* has a dimension that *known* lacks, or a number for its symbol."""
    if found.shape is None:
        return False
    if known is None or known.shape is None:
        return True
    return any(
        (old is None and new is not None) or (isinstance(new, int) and not isinstance(old, int))
        for new, old in zip(found.shape, known.shape, strict=False)
    )


# What the IR asks of the loader: to decode a part when it is first looked at.
#
# The IR keeps each node, tensor and type as the opaque object that the loader found (*source*) and
# never looks inside. So a weight that no rule reads is never decoded or copied, and untouched parts
# are written back as they came.


class Remarks(NamedTuple):
    """What a node, or the type of a value, carries for readers and tools.

    Attributes:
        doc: Its ``doc_string``.
        metadata: Its ``metadata_props``.
        rest: Of a node, what else is there, as the codec encodes it: the devices that it runs on,
            and what dpl does not know.
    """

    doc: str = ""
    metadata: Mapping[str, str] = MappingProxyType({})
    rest: bytes = b""


NO_REMARKS = Remarks()


class Annotation(NamedTuple):
    """How a tensor is quantised.

    Attributes:
        parameters: Tensors by what they are for, such as ``SCALE_TENSOR``.
        rest: What else is there, as the codec encodes it.
    """

    parameters: Mapping[str, str]
    rest: bytes = b""

    def renamed(self, names: Mapping[str, str]) -> Annotation:
        """Return the same by other names of tensors."""
        tensors = {what: names.get(name, name) for what, name in self.parameters.items()}
        return self._replace(parameters=tensors)


class StatedType(NamedTuple):
    """What a file states of a value beside the graph's interface.

    Attributes:
        known: The type, if it is a tensor's.
        remarks: What is added for readers and tools.
        encoded: The whole statement as the codec encodes it, if the rest does not say it all.
        annotations: How the graph says that the value is quantised.
    """

    known: TensorType | None
    remarks: Remarks = NO_REMARKS
    encoded: bytes = b""
    annotations: tuple[Annotation, ...] = ()


class TypeStatement:
    """A :class:`StatedType`, decoded when it is first asked for.

    Values of which the file states the same share it.

    Args:
        encoded: The statement as the codec encodes it, without the value's name.
        decode: Reads the type, if it is a tensor's, and the whole statement.
    """

    __slots__ = ("_decode", "_decoded", "encoded")

    def __init__(
        self, encoded: bytes, decode: Callable[[bytes], tuple[TensorType | None, StatedType]]
    ) -> None:
        self.encoded = encoded
        self._decode = decode
        self._decoded: tuple[TensorType | None, StatedType] | None = None

    @property
    def type(self) -> TensorType | None:
        """The type; None if it is not a tensor's."""
        return (self._decoded or self._read())[0]

    @property
    def stated(self) -> StatedType:
        """All that is stated."""
        return (self._decoded or self._read())[1]

    def refined(self, found: TensorType) -> TypeStatement:
        """Return the same statement of a value of which more is known than it says."""
        copy = TypeStatement(self.encoded, self._decode)
        copy._decoded = found, self.stated
        return copy

    def _read(self) -> tuple[TensorType | None, StatedType]:
        self._decoded = self._decode(self.encoded)
        return self._decoded


class FormalInput(NamedTuple):
    """What the standard says of the type of an input.

    Attributes:
        variable: What all inputs and outputs of one element type have in common: ``T``.
        dtypes: The element types that it may have.
    """

    variable: str
    dtypes: frozenset[str]

    @property
    def only_dtype(self) -> str:
        """The element type that it has whatever the others are, of indices int64; "" if none."""
        if len(self.dtypes) == 1:
            return min(self.dtypes)
        return "int64" if self.dtypes == _INDEX_DTYPES else ""


_INDEX_DTYPES = frozenset({"int32", "int64"})


@dataclass(frozen=True)
class OpSchema:
    """What the standard says of one operator at one opset version.

    Attributes:
        inputs: Names of the formal inputs; a variadic last one counts once.
        min_inputs: Fewest inputs a node must have.
        max_inputs: Most inputs a node may have (a large number if variadic).
        outputs: Names of the formal outputs.
        max_outputs: Most outputs a node may have.
        min_outputs: Fewest outputs a node must have.
        attributes: Kind of each attribute.
        defaults: The attributes that have a machine-readable default.
        since: The opset it came with.
        required_attributes: The attributes that a node must state.
        required_inputs: The places of the formal inputs that are not optional.
        typed_by: By formal output, the input whose element type it has, or what that type always
            is; None if something else decides.
        typed: What is said of the type of each formal input.
    """

    inputs: tuple[str, ...]
    min_inputs: int
    max_inputs: int
    outputs: tuple[str, ...]
    max_outputs: int
    attributes: Mapping[str, str]
    defaults: Mapping[str, Attribute] = field(default_factory=dict)
    since: int = 1
    min_outputs: int = 1
    required_attributes: frozenset[str] = frozenset()
    required_inputs: frozenset[int] = frozenset()
    typed_by: tuple[int | str | None, ...] = ()
    typed: tuple[FormalInput, ...] = ()

    @cached_property
    def integer_inputs(self) -> frozenset[int]:
        """The inputs that are int64 (or int32) whatever the others are."""
        return frozenset(n for n, formal in enumerate(self.typed) if formal.dtypes <= _INDEX_DTYPES)

    def formal(self, slot: int) -> FormalInput | None:
        """Return what is said of the type of an input; None if there is none of that number."""
        last = len(self.inputs) - 1
        at = min(slot, last) if self.max_inputs > len(self.inputs) else slot
        return self.typed[at] if 0 <= at <= last else None


class SchemaLibrary(Protocol):
    """Knowledge of the standard operators."""

    def find(self, op_type: str, domain: str, version: int) -> OpSchema | None:
        """Return the schema in force at opset *version*, or None if there is none."""

    def versions(self, op_type: str, domain: str) -> Iterable[OpSchema]:
        """Return every version of an operator's schema, oldest first; none if unknown."""

    def op_types(self, domain: str) -> frozenset[str]:
        """Return all operators of *domain*; none if they are not known."""

    def attributes_of(self, op_type: str, domain: str) -> frozenset[str] | None:
        """Return the attributes of an operator, of all versions; None if they are not known."""


class KnownTypes(Protocol):
    """The types of a model's values.

    Attributes:
        problem: A clause that says what was given up, or "".
    """

    problem: str

    @property
    def kinds(self) -> Mapping[Node, int]:
        """As :attr:`Model.kinds`."""

    @property
    def types(self) -> Mapping[Value, TensorType]:
        """What is known so far beside what the file states."""

    def run(self) -> None:
        """Look at all nodes; refute what the file states otherwise (:meth:`Model.refute`)."""

    def look_at(self, node: Node) -> None:
        """Infer what a node makes that a pass has made."""


class Codec(Protocol):
    """Decoder of opaque sources."""

    schemas: SchemaLibrary

    def remarks(self, node: Node) -> Remarks:
        """Read what *node*, whose source is set, carries for readers and tools."""

    def graph_remarks(self, graph: Graph) -> bytes:
        """Encode what a body, or what it is a copy of, carries for readers and tools."""

    def statement_of(self, value: Value) -> bytes:
        """Encode what the file states, or is to state, of a value of a body; nothing of data."""

    def readable(self, kind: Literal["graph", "value"], encoded: bytes) -> bytes | None:
        """Return what one of these two has encoded; None if it cannot be read."""

    def placements(self, node: Node) -> Mapping[tuple[str, str], str]:
        """Read where *node* runs: by configuration, its ``pipeline stage`` and its ``devices``."""

    def devices(self, node: Node, nodes: Iterable[Node]) -> bytes:
        """Encode what *node*, in the place of *nodes*, is to say of its devices."""

    def moved_devices(self, own: bytes, names: Mapping[str, str], call: bytes = b"") -> bytes:
        """Return the rest of what a node carries, by the names of where it was copied to."""

    def restated(self, stated: StatedType, symbols: Mapping[str, Dim]) -> StatedType:
        """Return a statement with other words, or numbers, for the symbols of sizes."""

    def tensor(self, source: object) -> Tensor:
        """Wrap a tensor without decoding its data."""

    def declared_type(self, source: object) -> TensorType | None:
        """Decode a declared type; None if it is not a tensor's."""

    def inference(self, model: Model, *, is_anew: bool = False) -> KnownTypes:
        """Return what infers the types of a model as it is now.

        Args:
            model: The model.
            is_anew: Whether it has been edited since it was inferred first.
        """

    def evaluate(
        self, node: Node, inputs: Sequence[NDArray[Any] | None]
    ) -> tuple[NDArray[Any], ...] | None:
        """Compute the outputs of one node; None if that is not possible."""


# Values: what flows between nodes, with maintained use-lists.


_MANY_USES = 32
FIRST_IR_WITH_PLAIN_INITIALIZERS = 4
"""First IR version in which an initializer need not be a graph input as well."""


class Value:
    """One tensor (or sequence, or optional) that flows through a graph.

    Attributes:
        name: Its name in the file; unique in its graph.
        graph: The graph that defines it.
        producer: The node it comes from, or None for graph inputs and initializers.
        index: Which output of the producer it is.
        is_graph_input: Whether it is an input of its graph (initializers can be both).
        returned_by: The graphs that return it, once per output: its own, or bodies inside it.
        type_source: Declaration of its type: what the file states, opaque or a
            :class:`TypeStatement`, or what was found; None if there is none.
    """

    __slots__ = (
        "_constant",
        "_uses",
        "graph",
        "index",
        "is_graph_input",
        "name",
        "producer",
        "returned_by",
        "type_source",
    )

    def __init__(
        self, name: str, graph: Graph, producer: Node | None = None, index: int = 0
    ) -> None:
        self.name = name
        self.graph = graph
        self.producer = producer
        self.index = index
        self.is_graph_input = False
        self.returned_by: tuple[Graph, ...] = ()
        self.type_source: object = None
        self._constant: object = None
        self._uses: list[Use] | dict[Use, None] = []

    def __repr__(self) -> str:
        """Show the name and where it comes from."""
        return f"<Value {self.name!r} of {self.producer!r}>"

    @property
    def is_graph_output(self) -> bool:
        """Whether its graph returns it."""
        return self.graph in self.returned_by

    @property
    def holder(self) -> str:
        """What beside the graph names it, for readers; "" if nothing does."""
        names = (g.name for g in self.returned_by if g.owner is None and g is not self.graph)
        return next(names, "")

    @property
    def uses(self) -> tuple[Use, ...]:
        """Every (node, input slot) that reads it, nested graphs included; safe while editing."""
        return tuple(self._uses)

    @property
    def use_count(self) -> int:
        """How many input slots read it."""
        return len(self._uses)

    def iter_uses(self) -> Iterator[Use]:
        """Iterate without copying; do not edit meanwhile."""
        return iter(self._uses)

    def add_use(self, node: Node, slot: int) -> None:
        """Record that *node* reads this value in *slot*."""
        if type(self._uses) is list:
            self._uses.append((node, slot))
        else:
            self._uses[node, slot] = None  # type: ignore[call-overload]  # narrowed above

    def remove_use(self, node: Node, slot: int) -> None:
        """Forget that *node* reads this value in *slot*, in constant time also for many uses."""
        uses = self._uses
        if type(uses) is list:
            if len(uses) <= _MANY_USES:
                uses.remove((node, slot))
                return
            uses = self._uses = dict.fromkeys(uses)
        del uses[node, slot]  # type: ignore[arg-type]  # narrowed above

    # -- constants ---------------------------------------------------------------------------

    @property
    def is_initializer(self) -> bool:
        """Whether the graph stores data for it."""
        return self._constant is not None and self.producer is None

    @property
    def is_constant(self) -> bool:
        """Whether its data is in the file and nobody can override it.

        An initializer that is also a graph input is overridable from IR version 4 on; before,
        every initializer had to be listed as an input, so there it means nothing.
        """
        if self.producer is not None:
            return self.producer.op_type == "Constant" and self.producer.domain == ""
        if self._constant is None:
            return False
        return not self.is_graph_input or (
            self.graph.model.ir_version < FIRST_IR_WITH_PLAIN_INITIALIZERS
        )

    @property
    def is_overridable(self) -> bool:
        """Whether it is an input with a default, which is data of the file."""
        return self.is_graph_input and self.is_initializer and not self.is_constant

    def set_initializer(self, source: object) -> None:
        """Give the value stored data: an opaque source or a Tensor."""
        self._constant = source

    @property
    def initializer_source(self) -> object:
        """What :meth:`set_initializer` was given."""
        return self._constant

    @property
    def constant(self) -> Tensor | None:
        """The constant it holds, not decoded; None if it is not constant or not one tensor."""
        if not self.is_constant:
            return None
        if self.producer is None:
            return self.graph.model.codec.tensor(self._constant)
        return tensor_of_attributes(self.producer.attributes)

    # -- types -------------------------------------------------------------------------------

    @property
    def declared_type(self) -> TensorType | None:
        """The tensor type that the file states; None if it states none."""
        known = self.type_source
        if type(known) is TensorType:
            return known
        if type(known) is TypeStatement:
            return known.type
        declared = None if known is None else self.graph.model.codec.declared_type(known)
        if declared is None and (tensor := self.constant) is not None:
            declared = shared_type(tensor.dtype, tensor.shape)
        if declared is not None:
            self.type_source = declared
        return declared

    @property
    def stated_type(self) -> StatedType | None:
        """What the file states of it beside the interface of its graph, or is to state."""
        made = self.graph.stated_types.get(self.name)
        if made is not None:
            return made if made.known is not None or made.encoded else None
        source = self.type_source
        return source.stated if type(source) is TypeStatement else None

    def note_type(self, found: TensorType) -> None:
        """Let *found* be the declared type; what the file states stays known."""
        source = self.type_source
        self.type_source = source.refined(found) if type(source) is TypeStatement else found

    def known_type(self) -> TensorType | None:
        """The type: what the file declares if the graph does not contradict it, else what follows.

        Types are inferred when this is first asked of a value that is made, for the whole model.
        """
        known, model = self.type_source, self.graph.model
        if type(known) is TensorType and is_settled(known):
            return known
        is_given = self.producer is None and self.graph.owner is None
        if not is_given or type(known) is TypeStatement:
            model.infer()
        declared = self.declared_type
        if is_settled(declared):
            return declared
        types = model.infer().types
        if self not in types and self.producer is not None and self.producer.source is None:
            model.infer_outputs(self.producer)
        return types.get(self, declared)


def record_uses(nodes: Iterable[Node]) -> None:
    """Record the uses by nodes whose inputs have just been set."""
    for node in nodes:
        slot = 0
        for value in node.inputs:
            if value is not None:
                uses = value._uses  # noqa: SLF001  # Value's own module
                if type(uses) is list:
                    uses.append((node, slot))
                else:
                    value.add_use(node, slot)
            slot += 1  # noqa: SIM113  # enumerate would make a tuple a time, in the hot loop


# Nodes: one operation each.


_NO_SUBGRAPHS: Mapping[str, Graph] = MappingProxyType({})
NO_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType({})


@keys("op_type domain name output=first_output")
class Node:
    """One operation.

    Attributes:
        op_type: Operator name.
        domain: Operator domain; "" is the standard one ("ai.onnx" reads as "").
        overload: Overload of a model-local function, nearly always "".
        name: Node name; may be empty and, in bad files, not unique.
        inputs: Values read, None where one is omitted; a bad file may omit what is needed, too.
        outputs: Values made, None where one is omitted.
        graph: The graph it is in.
        subgraphs: Its graph attributes by name; empty for nearly all nodes.
        source: The opaque node it was loaded from; None if made by a pass.
        rewired: Whether its inputs or outputs differ from the source's.
    """

    op_type: str
    domain: str
    name: str
    graph: Graph

    __slots__ = (
        "_edited_inputs",
        "_remarks",
        "attributes",
        "domain",
        "graph",
        "inputs",
        "name",
        "next",
        "op_type",
        "outputs",
        "overload",
        "position",
        "prev",
        "rewired",
        "source",
        "subgraphs",
    )

    def __init__(
        self, graph: Graph, op_type: str, domain: str = "", name: str = "", source: object = None
    ) -> None:
        self.graph = graph
        self.op_type = op_type
        self.domain = domain
        self.overload = ""
        self.name = name
        self.inputs: tuple[Value | None, ...] = ()
        self._edited_inputs: list[Value | None] | None = None
        self.outputs: tuple[Value | None, ...] = ()
        self.subgraphs: Mapping[str, Graph] = _NO_SUBGRAPHS
        self.source = source
        self.rewired = False
        self._remarks: Remarks | None = NO_REMARKS
        self.attributes: Mapping[str, Attribute] = NO_ATTRIBUTES
        self.position = 0
        self.prev: Node | None = None
        self.next: Node | None = None

    def __repr__(self) -> str:
        """Show the operator and what identifies the node."""
        return f"<Node {self.qualified_op} {self.label!r}>"

    def rewire(self, slot: int, value: Value) -> None:
        """Let it read *value* in *slot*; the use-lists are the caller's affair.

        A Concat of 100,000 values may be rewired as often. So this takes constant time, and the
        tuple of inputs is made when somebody reads it.
        """
        if self._edited_inputs is None:
            self._edited_inputs = list(self.inputs)
            del self.inputs
        self._edited_inputs[slot] = value
        self.rewired = True

    if not TYPE_CHECKING:  # or any attribute would be one that a node may have

        def __getattr__(self, name: str) -> tuple[Value | None, ...]:
            """Make the inputs of a node that was rewired; a slot that is set never asks."""
            if name != "inputs" or self._edited_inputs is None:
                raise AttributeError(name=name, obj=self)
            self.inputs = tuple(self._edited_inputs)
            self._edited_inputs = None
            return self.inputs

    @property
    def qualified_op(self) -> str:
        """``Conv``, or ``com.microsoft.Gelu`` outside the standard domain."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def label(self) -> str:
        """The node's name, else its first output's: what a reader can search for."""
        return self.name or self.first_output

    @property
    def first_output(self) -> str:
        """The name of its first output, which identifies it even if nodes have no names."""
        return next((out.name for out in self.outputs if out is not None), "")

    @property
    def scope(self) -> str:
        """The graph it is in: ``main``, or the path to a body or a function."""
        return scope_of(self.graph)

    @property
    def read(self) -> list[Value]:
        """The values read, in order, without what is omitted."""
        return [value for value in self.inputs if value is not None]

    @property
    def made(self) -> list[Value]:
        """The values made, in order, without what is omitted."""
        return [value for value in self.outputs if value is not None]

    @property
    def remarks(self) -> Remarks:
        """What it carries for readers and tools, wherever it comes from."""
        if self._remarks is None:
            self._remarks = self.graph.model.codec.remarks(self)
        return self._remarks

    @remarks.setter
    def remarks(self, remarks: Remarks | None) -> None:
        """Set what it carries; None if its source says that when somebody asks."""
        self._remarks = remarks

    @property
    def has_references(self) -> bool:
        """Whether callers of the function it is in give it an attribute: its value is not here."""
        return any(attribute.ref for attribute in self.attributes.values())


# Model-local functions and the nodes that call them.


Key = TypeVar("Key", bound="Hashable")

MANY = 10**15
"""More nodes than any model has; what is more, or without an end, counts as this."""


def called_function(node: Node) -> Function | None:
    """Return the function of its model that *node* calls; None if it is an operator."""
    return node.graph.model.functions.get((node.domain, node.op_type, node.overload))


def calls_in(model: Model) -> dict[Function, list[Node]]:
    """List the calls of each function of *model*, wherever they are."""
    calls: dict[Function, list[Node]] = {function: [] for function in model.functions.values()}
    for graph in model.graphs():
        for node in graph:
            function = called_function(node)
            if function is not None:
                calls[function].append(node)
    return calls


def callees(function: Function) -> list[Function]:
    """List the functions that *function* calls, each once."""
    return callees_in(function.body)


def callees_in(body: Graph) -> list[Function]:
    """List the functions that are called in *body*, each once."""
    called = dict.fromkeys(called_function(node) for graph in body.and_inner() for node in graph)
    return [function for function in called if function is not None]


def callers_first(calls: Mapping[Function, Sequence[Node]]) -> list[Function]:
    """Sort functions so that each follows all that call it; what lies on a cycle is left out.

    Args:
        calls: The functions, with their calls (:func:`calls_in`).
    """
    return followers_last({function: callees(function) for function in calls})


def followers_last(followers: Mapping[Key, Iterable[Key]]) -> list[Key]:
    """Sort so that each comes before those that follow it (Kahn's algorithm).

    What lies on a cycle, or behind one, is left out. Where the order is free, it is that of
    *followers*, which lists everything.
    """
    waiting = dict.fromkeys(followers, 0)
    for following in followers.values():
        for key in following:
            waiting[key] += 1
    ready = [key for key, count in waiting.items() if not count]
    for key in ready:
        for follower in followers[key]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return ready


def expanded_sizes(
    own: Mapping[Key, int], calls: Mapping[Key, Mapping[Key, int]]
) -> dict[Key, int]:
    """Count the nodes that functions stand for: each call counts as what it calls.

    Nothing is expanded: 40 functions that call each other twice take 40 steps.

    Args:
        own: By function, how many nodes it has.
        calls: By function, how often it calls which other.

    Returns:
        The counts, at most :data:`MANY`, which a function that reaches itself has.
    """
    callers: dict[Key, list[Key]] = {key: [] for key in own}
    for key, called in calls.items():
        for inner in called:
            callers[inner].append(key)
    sizes = dict.fromkeys(own, MANY)
    for key in followers_last(callers):
        inside = sum(count * sizes[inner] for inner, count in calls.get(key, {}).items())
        sizes[key] = min(own[key] + inside, MANY)
    return sizes
