"""Pair the nodes, inputs, outputs and functions of two models, by dataflow and not by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from dplcli.ir.model import called_function
from dplcli.ir.operators import COMMUTATIVE, draws_random, schema_of
from dplcli.ir.traversal import enclosing_node, is_read
from dplcli.ir.types import CHUNK, Tensor
from dplcli.keys import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from dplcli.ir import Attribute, Function, Graph, Model, Node, Value

    Form: TypeAlias = tuple[Hashable, ...]

    Key: TypeAlias = tuple[str, str, str]

    FunctionPair = tuple[Function, Function]

    NodePair = tuple[Node, Node]

    Both: TypeAlias = tuple[list["T"], list["T"]]

    ValuePair = tuple[Value, Value]


T = TypeVar("T")
U = TypeVar("U")

# What a node says by itself, in a form that two models can be compared by.


ANY_SLOT = -1
"""The slot of an operand whose place among the inputs does not matter."""
CAPTURED = -2
"""The slot in which a body of a node reads a value."""
_RETURNED = -3
_ABSENT = -1

_GRAPHS = frozenset({"graph", "graphs"})
_ONES = frozenset({"strides", "dilations"})


class Numbers:
    """Numbers forms: equal forms of both models get the same small number.

    Attributes:
        bodies: The form of a node's bodies, by the node and all that the form depends on. Kept
            since a deep body is part of the form of every node around it.
    """

    def __init__(self) -> None:
        self._known: dict[Form, int] = {}
        self.bodies: dict[tuple[Node, Form], Form] = {}

    def __call__(self, form: Form) -> int:
        """Return the number of *form*."""
        return self._known.setdefault(form, len(self._known))


class ModelReader:
    """Reads the nodes and constants of one model, each once.

    Args:
        aliases: The other model's keys of functions that have another key there.
        shared: The places of files, with a type, where both models have a constant.
    """

    def __init__(self, aliases: Mapping[Key, Key], shared: AbstractSet[Form] = frozenset()) -> None:
        self.aliases = aliases
        self.shared = shared
        self._tensors: dict[Value, Tensor | None] = {}
        self._contents: dict[Value, Content] = {}
        self._attributes: dict[tuple[int, str, str, int], Form] = {}
        self._captured: dict[Node, tuple[Value, ...]] = {}
        self._harmless: set[Function] = set()
        self._random_bodies: dict[Node, bool] = {}

    def label(self, node: Node) -> Key:
        """Return the key of the operator or function that *node* calls."""
        key = (node.domain, node.op_type, node.overload)
        return self.aliases.get(key, key)

    def nodes(self, graph: Graph) -> Iterator[Node]:
        """Iterate over the nodes of *graph*, without those that only hold a constant."""
        return (node for node in graph if not is_stored(node))

    def tensor(self, value: Value) -> Tensor | None:
        """Return the constant that *value* is, not decoded; None if it is computed."""
        if value not in self._tensors:
            self._tensors[value] = value.constant
        return self._tensors[value]

    def content(self, value: Value) -> Content:
        """Return what a constant holds."""
        if value not in self._contents:
            tensor = self.tensor(value)
            assert tensor is not None  # noqa: S101  # only constants are asked for
            self._contents[value] = Content(tensor)
        return self._contents[value]

    def attributes(self, node: Node) -> Form:
        """Return the attributes of *node* that state more than a default, bodies left out."""
        stated = node.attributes
        if not stated:
            return ()
        version = node.graph.opset_imports.get(node.domain, 0)
        key = (id(stated), node.domain, node.op_type, version)
        if key not in self._attributes:
            self._attributes[key] = tuple(sorted(attribute_forms(node).items()))
        return self._attributes[key]

    def is_random(self, node: Node) -> bool:
        """Tell whether *node* computes something else each time; recursion is as deep as bodies."""
        if node.subgraphs:
            if node not in self._random_bodies:
                inner = (inner for body in node.subgraphs.values() for inner in body)
                self._random_bodies[node] = any(map(self.is_random, inner))
            return self._random_bodies[node]
        is_harmless = called_function(node) in self._harmless
        return not is_harmless and draws_random(node, self._harmless)

    def captured(self, node: Node) -> tuple[Value, ...]:
        """Return the values of outer graphs that the bodies of *node* read or return, each once."""
        if not node.subgraphs:
            return ()
        if node not in self._captured:
            found: dict[Value, None] = {}
            for body in node.subgraphs.values():
                read = [value for inner in body for value in (*inner.inputs, *self.captured(inner))]
                seen = (value for value in (*read, *body.outputs) if value is not None)
                found.update((value, None) for value in seen if value.graph is not body)
            self._captured[node] = tuple(found)
        return self._captured[node]


class Content:
    """What a constant holds: two are equal if element type, shape and every bit are.

    Two that share their data are not read. Others are told apart by their first chunk, and then
    compared chunk by chunk. Digests of all of them took two to four times as long.

    Args:
        tensor: The constant. Its data may turn out to be unreadable when it is compared.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @cached_property
    def _digest(self) -> bytes:
        digest = blake2b(digest_size=16)
        for part in islice(self._tensor.chunks(), 1):
            digest.update(repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes())
        return digest.digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Content):
            return False
        ours, theirs = self._tensor, other._tensor
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return False
        if share_data(ours, theirs):
            return True
        if self._digest != other._digest:
            return False
        parts = zip(ours.chunks(), theirs.chunks(), strict=True) if ours.size > CHUNK else ()
        return all(has_same_bits(*pair) for pair in islice(parts, 1, None))


def share_data(first: Tensor, second: Tensor) -> bool:
    """Tell whether the data of two tensors of one type is the same object, or lies in one place."""
    return first is second or (first.is_external and first.place == second.place is not None)


def shared_places(models: tuple[Model, Model]) -> set[Form]:
    """Return at which places of files both models have a constant, and of which type.

    What lies there is told by its place, and not read.
    """
    if not all(model.may_have_external_data for model in models):
        return set()
    places: list[set[Form]] = []
    for model in models:
        values = chain.from_iterable(graph.values.values() for graph in model.graphs())
        stored = (value.constant for value in values if is_read(value))
        tensors = [tensor for tensor in stored if tensor is not None and tensor.is_external]
        places.append({(t.dtype, t.shape, t.place) for t in tensors if t.place is not None})
    return places[0] & places[1]


def has_same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Tell whether two arrays of one type and shape hold the same; -0 is not 0."""
    if one.dtype.hasobject:
        return np.array_equal(one, other)
    bits, others = (np.ascontiguousarray(each).view(np.uint8) for each in (one, other))
    return np.array_equal(bits, others)


def attribute_forms(node: Node) -> dict[str, Form]:
    """Return a form of every attribute of *node* that states more than a default."""
    schema = schema_of(node)
    defaults = schema.defaults if schema is not None else {}
    forms = {}
    for name, attribute in node.attributes.items():
        if attribute.kind in _GRAPHS or _is_textual_default(node, name, attribute):
            continue
        form = attribute_form(attribute)
        if name not in defaults or attribute_form(defaults[name]) != form:
            forms[name] = form
    return forms


def attribute_form(attribute: Attribute) -> Form:
    """Return what *attribute* says in a form that can be compared."""
    if attribute.ref:
        return ("ref", attribute.ref)
    value: Any = attribute.value
    if isinstance(value, Tensor):
        return (attribute.kind, Content(value))
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return (attribute.kind, tuple(Content(item) for item in value))
    if attribute.kind == "float":  # files hold 32 bits, a rule may have made more
        return (attribute.kind, repr(np.float32(value)))
    return (attribute.kind, repr(value))


def _is_textual_default(node: Node, name: str, attribute: Attribute) -> bool:
    """Tell whether *attribute* states a default that the standard gives in words only."""
    value = attribute.value
    if node.domain or not isinstance(value, tuple) or not value:
        return False
    if name in _ONES:
        return all(item == 1 for item in value)
    if name == "pads":
        mode = node.attributes.get("auto_pad")
        return not any(value) and (mode is None or mode.value == "NOTSET")
    if name == "perm":
        return value == tuple(reversed(range(len(value))))
    if name != "kernel_shape" or "Conv" not in node.op_type or "Pool" in node.op_type:
        return False
    return any(v is not None and v.is_constant for v in node.inputs[1:])  # which says how large


def is_commutative(node: Node) -> bool:
    """Tell whether the inputs of *node* may stand in any order."""
    return not node.domain and node.op_type in COMMUTATIVE


def free_inputs(values: Iterable[Value]) -> list[Value]:
    """Leave out constants: old files list every initializer as an input, too."""
    return [value for value in values if not value.is_constant]


def slots(node: Node) -> tuple[Value | None, ...]:
    """Return the inputs of *node* without omitted ones at the end."""
    inputs = node.inputs
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


def made(node: Node) -> Iterator[Value]:
    """Iterate over the outputs of *node* without omitted ones."""
    return (value for value in node.outputs if value is not None)


def both_there(
    first: Iterable[Value | None], second: Iterable[Value | None]
) -> Iterator[ValuePair]:
    """Pair values by place, without places where one is omitted."""
    for old, new in zip(first, second, strict=False):
        if old is not None and new is not None:
            yield old, new


def operands(node: Node, number: Callable[[Value], int]) -> tuple[int, ...]:
    """Number what *node* reads, sorted where the order does not matter."""
    found = [_ABSENT if value is None else number(value) for value in slots(node)]
    return tuple(sorted(found) if is_commutative(node) else found)


def is_stored(node: Node) -> bool:
    """Tell whether *node* only holds a constant, which might as well be an initializer."""
    return node.op_type == "Constant" and any(value.constant is not None for value in made(node))


def readers(value: Value, graph: Graph) -> Iterator[tuple[Node, int]]:
    """Iterate over the nodes of *graph* that read *value*, and the slots in which they do.

    A Constant may read, too, which is no use: what it holds does not depend on that.
    """
    returned = ((body.owner, CAPTURED) for body in value.returned_by if body is not graph)
    for user, slot in chain(value.iter_uses(), returned):
        reader = None if user is None else enclosing_node(user, graph)
        if reader is None or is_stored(reader):
            continue
        if is_commutative(reader):
            yield reader, ANY_SLOT
        else:
            yield reader, slot if reader is user else CAPTURED


# How two models differ.


Facet: TypeAlias = Literal["names", "order", "doc", "metadata", "value-info", "storage", "other"]
"""A kind of difference that no computed number depends on, as far as dpl knows."""

FACETS: Mapping[Facet, str] = {
    "names": "what nodes and inner values are called",
    "order": "the order of nodes, of operands that commute, and of lists",
    "doc": "documentation",
    "metadata": "metadata, producer, IR version, imports that no node uses, and the like",
    "value-info": "types stated of inner values",
    "storage": "how the same is stored: a constant as initializer or Constant node, in which field "
    "or file; a default that is stated",
    "other": "fields that dpl does not know",
}


@dataclass(frozen=True)
class Remark:
    """A difference that no computed number depends on.

    Attributes:
        facet: What kind it is.
        where: The graph, and the node or value in it.
        before: What the first model says.
        after: What the second says.
    """

    facet: Facet
    where: str
    before: str
    after: str


@dataclass(frozen=True)
class AttributeChange:
    """An attribute that differs; None where it is neither stated nor has a default."""

    name: str
    before: Attribute | None
    after: Attribute | None


@dataclass(frozen=True)
class InputChange:
    """A slot that reads something else; None where nothing is read."""

    slot: int
    before: Value | None
    after: Value | None


@dataclass(frozen=True)
class NodeChange:
    """A node that is in both graphs and differs.

    Attributes:
        before: The node in the first graph.
        after: The node in the second.
        attributes: The attributes that differ.
        inputs: The slots that read something else; other data of a weight does not count here.
        outputs: Indices of the outputs that only one of the two makes.
    """

    before: Node
    after: Node
    attributes: tuple[AttributeChange, ...] = ()
    inputs: tuple[InputChange, ...] = ()
    outputs: tuple[int, ...] = ()

    @property
    def is_other_op(self) -> bool:
        """Whether another operator stands in the same place."""
        return self.before.qualified_op != self.after.qualified_op


@dataclass(frozen=True)
class Distance:
    """How far two weights of one type and shape are apart.

    Attributes:
        changed: How many elements differ.
        size: How many there are.
        max_abs: The largest difference; None if the elements are no numbers.
        max_rel: The largest difference, relative to the larger of the two elements.
    """

    changed: int
    size: int
    max_abs: float | None
    max_rel: float | None


class DeclaredValue(NamedTuple):
    """A value, and its type as the file states it."""

    name: str
    type: str | None

    @classmethod
    def of(cls, value: Value) -> DeclaredValue:
        """Return what the file says of *value*."""
        declared = value.declared_type
        return cls(value.name, None if declared is None else str(declared))


@keys("before=ends.0 after=ends.1 distance")
@dataclass(frozen=True)
class WeightChange:
    """A constant that holds something else; no distance if type or shape differ."""

    before: Value
    after: Value
    distance: Distance | None

    @property
    def ends(self) -> tuple[DeclaredValue, DeclaredValue]:
        """Both, with the types that the files state."""
        return DeclaredValue.of(self.before), DeclaredValue.of(self.after)


@keys("side what before=ends.0 after=ends.1")
@dataclass(frozen=True)
class SignatureChange:
    """An input or output that differs.

    Attributes:
        side: Whether it is an input or an output.
        what: ``added``, ``removed``, ``renamed``, ``moved`` to another place, ``retyped``, or
            ``rewired``: an output that returns something else.
        before: It in the first graph; None if added.
        after: It in the second; None if removed.
    """

    side: Literal["input", "output"]
    what: Literal["added", "removed", "renamed", "moved", "retyped", "rewired"]
    before: Value | None
    after: Value | None

    @property
    def ends(self) -> tuple[DeclaredValue | None, DeclaredValue | None]:
        """Both, with the types that the files state."""
        before, after = self.before, self.after
        return (
            None if before is None else DeclaredValue.of(before),
            None if after is None else DeclaredValue.of(after),
        )


@keys(
    "scope.before=before.scope scope.after=after.scope nodes.before=sizes.0 nodes.after=sizes.1 "
    "nodes.paired=paired signature removed added changed=changes weights"
)
@dataclass(frozen=True)
class GraphDiff:
    """How two graphs differ; the bodies inside are compared by themselves.

    Attributes:
        before: The first graph.
        after: The second.
        partners: The nodes that are in both: of the first graph, with that of the second.
        added: The nodes that only the second has, in its order.
        removed: The nodes that only the first has, in its order.
        changes: The nodes of both that differ, in the first one's order.
        weights: The constants that differ.
        signature: The inputs and outputs that differ.
        beside: Finds what else differs; no computed number depends on it.
    """

    before: Graph
    after: Graph
    partners: Mapping[Node, Node]
    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changes: tuple[NodeChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()
    signature: tuple[SignatureChange, ...] = ()
    beside: Callable[[], Iterable[Remark]] = tuple

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """What *beside* finds, once somebody asks."""
        return tuple(self.beside())

    @property
    def paired(self) -> int:
        """How many nodes are in both."""
        return len(self.partners)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many nodes each graph has."""
        return self.paired + len(self.removed), self.paired + len(self.added)

    @property
    def count(self) -> int:
        """How many differences there are, remarks not counted."""
        parts = (self.added, self.removed, self.changes, self.weights, self.signature)
        return sum(map(len, parts))


@dataclass(frozen=True)
class FunctionChange:
    """A function that only one model has, or whose name or declarations differ."""

    what: Literal["added", "removed", "renamed", "redeclared"]
    before: Function | None
    after: Function | None


@dataclass(frozen=True)
class OpsetChange:
    """A domain that is imported in another version, or by one model only (None)."""

    domain: str
    before: int | None
    after: int | None


@keys(
    "equal=is_equal ignored=ignored_facets counts not_counted opsets functions graphs "
    "remarks=counted"
)
@dataclass(frozen=True)
class ModelDiff:
    """How two models differ.

    Attributes:
        graphs: The graphs that are in both: main, bodies, functions.
        functions: Functions whose differences are not in their bodies.
        opsets: Imports of used domains that differ.
        ignored: The facets that do not count.
        beside: Finds what else differs of the models as a whole.
    """

    graphs: tuple[GraphDiff, ...]
    functions: tuple[FunctionChange, ...]
    opsets: tuple[OpsetChange, ...]
    ignored: frozenset[Facet]
    beside: Callable[[], Iterable[Remark]]

    @cached_property
    def all_remarks(self) -> tuple[Remark, ...]:
        """The remarks on the models and on all graphs."""
        return (*self.beside(), *chain.from_iterable(graph.remarks for graph in self.graphs))

    @property
    def counted(self) -> tuple[Remark, ...]:
        """The remarks that count."""
        return tuple(r for r in self.all_remarks if r.facet not in self.ignored)

    @property
    def count(self) -> int:
        """How many differences count."""
        others = len(self.functions) + len(self.opsets) + len(self.counted)
        return others + sum(graph.count for graph in self.graphs)

    @property
    def ignored_facets(self) -> list[Facet]:
        """The facets that do not count, in the order of :data:`FACETS`."""
        return [facet for facet in FACETS if facet in self.ignored]

    @property
    def not_counted(self) -> Mapping[str, int]:
        """How many remarks of each of these facets there are."""
        counts = Counter(remark.facet for remark in self.all_remarks)
        return {facet: counts[facet] for facet in self.ignored_facets}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many differences of each kind there are."""
        graphs = self.graphs
        changes = [change for graph in graphs for change in graph.changes]
        return {
            "added": sum(len(graph.added) for graph in graphs),
            "removed": sum(len(graph.removed) for graph in graphs),
            "changed": len(changes),
            "replaced": sum(change.is_other_op for change in changes),
            "attributes": sum(len(change.attributes) for change in changes),
            "rewired": sum(len(change.inputs) for change in changes),
            "weights": sum(len(graph.weights) for graph in graphs),
            "signature": sum(len(graph.signature) for graph in graphs),
            "functions": len(self.functions),
            "opsets": len(self.opsets),
            "remarks": len(self.counted),
        }

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs that counts."""
        return not self.count


# One of two graphs that are compared. Values get equal numbers if they are computed alike.


Detail: TypeAlias = Literal["exact", "alike", "loose"]
"""How much of a node counts: all; all but the data of its constants; only what it calls."""


@dataclass(eq=False)
class Side:
    """One of the two graphs.

    Attributes:
        graph: The graph.
        reader: What reads its model.
        numbers: The numbers that both sides use.
        given: Numbers of the inputs that have a partner.
        outer: Numbers a value of a graph around this one.
        tag: Tells the two sides apart, for values that are never equal.
        nodes: Its nodes in order, those that only hold a constant left out.
        position: Where each of them stands.
        made: Their numbers, by all that they are computed from.
    """

    graph: Graph
    reader: ModelReader
    numbers: Numbers
    given: Mapping[Value, int]
    outer: Callable[[Value], int]
    tag: int

    def __post_init__(self) -> None:
        """List the nodes and number them."""
        self.nodes = list(self.reader.nodes(self.graph))
        self.position = {node: place for place, node in enumerate(self.nodes)}
        self._locals: dict[Detail, dict[Node, int]] = {}
        self._values = dict(self.given)
        self.made = self._number(self.graph)

    def local(self, detail: Detail) -> Mapping[Node, int]:
        """Number the nodes by what each says by itself, its constants included."""
        if detail not in self._locals:
            self._locals[detail] = {node: self._local(node, detail) for node in self.nodes}
        return self._locals[detail]

    def constant(self, value: Value, detail: Detail) -> int | None:
        """Number a constant by its data, or by its type alone; None if *value* is computed."""
        tensor = self.reader.tensor(value)
        if tensor is None:
            return None
        form: Form = (tensor.dtype, tensor.shape)
        if detail == "exact":
            shared = self.reader.shared
            place = (*form, tensor.place) if shared and tensor.is_external else ()
            form = place if place in shared else (*form, self.reader.content(value))
        return self.numbers(("constant", *form))

    def number_of(self, value: Value) -> int:
        """Number *value* by all that it is computed from."""
        number = self._values.get(value)
        if number is None:
            number = self.constant(value, "exact")
        if number is None and value.graph is self.graph:
            number = self.numbers(("without partner", self.tag, value.name))
        self._values[value] = self.outer(value) if number is None else number
        return self._values[value]

    def _local(self, node: Node, detail: Detail) -> int:
        form: Form = ("local", self.reader.label(node))
        if detail != "loose":
            inputs = operands(node, lambda value: self._stored(value, detail))
            form += (self.reader.attributes(node), inputs)
        return self.numbers(form)

    def _stored(self, value: Value, detail: Detail) -> int:
        number = self.constant(value, detail)
        return self.numbers(("computed",)) if number is None else number

    def _number(self, graph: Graph) -> dict[Node, int]:
        """Number the nodes of *graph* or of a body in it; recursion is as deep as bodies nest."""
        numbers, reader = self.numbers, self.reader
        found: dict[Node, int] = {}
        for node in reader.nodes(graph):
            inputs = operands(node, self.number_of)
            form: Form = ("made", reader.label(node), inputs, reader.attributes(node))
            if node.subgraphs:
                form += (self._bodies(node),)
            if reader.is_random(node):
                form += ("random", self.tag, len(found), id(graph))
            found[node] = numbers(form)
            for output in made(node):
                self._values[output] = numbers(("output", found[node], output.index))
        return found

    def _bodies(self, node: Node) -> Form:
        """Return what the bodies of *node* compute from what they capture.

        The answer is kept: each graph around *node* asks again, mostly with the same captures.
        """
        captured = self.reader.captured(node)
        key = (node, tuple(map(self.number_of, captured)))
        if key not in self.numbers.bodies:
            self.numbers.bodies[key] = tuple(
                self._body(name, body) for name, body in sorted(node.subgraphs.items())
            )
        return self.numbers.bodies[key]

    def _body(self, name: str, body: Graph) -> Form:
        for place, value in enumerate(free_inputs(body.inputs)):
            self._values[value] = input_number(self.numbers, body, place)
        found = self._number(body)
        outputs = tuple(map(self.number_of, body.outputs))
        return (name, len(body.inputs), outputs, tuple(sorted(found.values())))


def input_number(numbers: Numbers, graph: Graph, place: int) -> int:
    """Number an input of *graph* by its depth and place: the same from every graph around it."""
    depth = 0
    while graph.owner is not None:
        depth += 1
        graph = graph.owner.graph
    return numbers(("input", depth, place))


# Looking past nodes that only one graph has, where pairs do not grow from neighbour to neighbour.


_FARTHEST = 3
"""How many nodes are passed over at the most, in both graphs together."""
_WIDEST = 16
"""How many nodes are looked at in one distance; among more of them nothing is clear."""


def bridges(pairing: Pairing, pair: NodePair) -> Iterator[NodePair]:
    """Propose partners near *pair*, past as few nodes without a partner as possible."""
    local = tuple(side.local("loose") for side in pairing.sides)
    sides = tuple(zip(pairing.sides, pair, strict=True))
    for step in (_behind, _before):
        first, second = (_rings(pairing, step, side, node) for side, node in sides)
        for passed in range(1, _FARTHEST + 1):
            rings = zip(first[: passed + 1], second[passed::-1], strict=True)
            found = [near for ring in rings if all(ring) for near in unique_pairs(local, ring)]
            yield from found
            if found:
                break


def _rings(
    pairing: Pairing, step: Callable[[Side, Node], Iterator[Node]], side: Side, node: Node
) -> list[list[Node]]:
    """List the nodes without a partner next to *node*, then those next to these, and so on."""
    rings: list[list[Node]] = []
    seen = {node}
    ring = [node]
    for _ in range(_FARTHEST + 1):
        if ring:
            near = dict.fromkeys(chain.from_iterable(step(side, member) for member in ring))
            ring = [other for other in pairing.free(near) if other not in seen]
            ring = ring if len(ring) <= _WIDEST else []
            seen.update(ring)
        rings.append(ring)
    return rings


def _behind(side: Side, node: Node) -> Iterator[Node]:
    return (user for output in made(node) for user, _ in readers(output, side.graph))


def _before(side: Side, node: Node) -> Iterator[Node]:
    return (v.producer for v in slots(node) if v is not None and v.producer in side.position)


# Which local function of one model is which of the other.


def pair_functions(first: Model, second: Model) -> list[FunctionPair]:
    """Pair functions by their keys, then by their bodies if one function of each model has it.

    A renamed function may call another one. So it is looked at again when that one has a partner.
    """
    shared = first.functions.keys() & second.functions.keys()
    pairs = [(f, second.functions[key]) for key, f in first.functions.items() if key in shared]
    rest = [[f for k, f in m.functions.items() if k not in shared] for m in (first, second)]
    while rest[0] and rest[1]:
        numbers = Numbers()
        readers_of = (ModelReader({}), ModelReader(aliases_of(pairs)))
        forms = tuple(
            {function: _body_form(function, reader, numbers) for function in functions}
            for functions, reader in zip(rest, readers_of, strict=True)
        )
        found = unique_pairs(forms, (rest[0], rest[1]))
        if not found:
            break
        pairs += found
        taken = {function for pair in found for function in pair}
        rest = [[f for f in functions if f not in taken] for functions in rest]
    return pairs


def aliases_of(pairs: list[FunctionPair]) -> dict[Key, Key]:
    """Return the first model's key of each function that has another key in the second model."""
    return {other.key: one.key for one, other in pairs if one.key != other.key}


def _body_form(function: Function, reader: ModelReader, numbers: Numbers) -> Form:
    body = function.body
    given = {value: numbers(("input", place)) for place, value in enumerate(body.inputs)}
    side = Side(body, reader, numbers, given=given, outer=nowhere(numbers, 0), tag=0)
    outputs = tuple(side.number_of(value) for value in body.outputs)
    numbered = tuple(sorted(side.made.values()))
    return (len(body.inputs), outputs, numbered, declared(function))


def nowhere(numbers: Numbers, tag: int) -> Callable[[Value], int]:
    """Return a numbering of values from outside all graphs: by name, for this *tag* only."""
    return lambda value: numbers(("nowhere", tag, value.name))


def declared(function: Function) -> Form:
    """Return the attributes that *function* declares, their defaults, and what its nodes import."""
    defaults = sorted((name, attribute_form(item)) for name, item in function.defaults.items())
    in_use = {node.domain for node in function.body}
    imports = sorted(item for item in function.body.opset_imports.items() if item[0] in in_use)
    return (tuple(sorted(function.attributes)), tuple(defaults), tuple(imports))


def function_changes(
    first: Model, second: Model, pairs: list[FunctionPair]
) -> Iterator[FunctionChange]:
    """Yield the functions that differ in more than their bodies."""
    paired = {function for pair in pairs for function in pair}
    for one, other in pairs:
        if one.key != other.key:
            yield FunctionChange("renamed", one, other)
        if declared(one) != declared(other):
            yield FunctionChange("redeclared", one, other)
    yield from (
        FunctionChange("removed", f, None) for f in first.functions.values() if f not in paired
    )
    yield from (
        FunctionChange("added", None, f) for f in second.functions.values() if f not in paired
    )


# Telling nodes without a partner apart by what lies around them.
#
# Colours are refined round by round (B. Weisfeiler and A. Leman, 1968). A node's colour says what
# its neighbours are, then what their neighbours are, and so on. A neighbour with a partner has a
# colour of its own that never changes, so an edit changes colours nearby only.


ROUNDS = 3


def refine(
    pairing: Pairing, nodes: Both[Node], detail: Detail
) -> list[tuple[dict[Node, int], ...]]:
    """Colour *nodes*, none of which has a partner, by their neighbours up to each distance.

    Args:
        pairing: The pairs there are.
        nodes: The nodes of the first and of the second graph.
        detail: How much of a node counts.

    Returns:
        The colours of the first and of the second graph, before the first round and after each;
        none if one of them has no node.
    """
    if not all(nodes):
        return []
    locals_of = zip(nodes, (side.local(detail) for side in pairing.sides), strict=True)
    rounds = [tuple({node: local[node] for node in own} for own, local in locals_of)]
    for _ in range(ROUNDS):
        views = (_View(pairing, which, own, detail) for which, own in enumerate(rounds[-1]))
        rounds.append(tuple({node: view.colour(node) for node in view.colours} for view in views))
    return rounds


@dataclass
class _View:
    """What the nodes of one graph see of each other in one round."""

    pairing: Pairing
    which: int
    colours: Mapping[Node, int]
    detail: Detail

    def colour(self, node: Node) -> int:
        """Return the colour of *node* after this round."""
        side = self.pairing.sides[self.which]
        uses = self.pairing.uses(self.which, node, self._node)
        return side.numbers(("seen", self.colours[node], operands(node, self._source), uses))

    def _source(self, value: Value) -> int:
        side, maker = self.pairing.sides[self.which], value.producer
        if maker is not None and maker in side.position:
            return side.numbers(("made by", self._node(maker), value.index))
        constant = None if self.detail == "exact" else side.constant(value, "alike")
        if constant is None:
            return side.number_of(value)
        return side.numbers(("some constant",)) if self.detail == "loose" else constant

    def _node(self, node: Node) -> Form:
        if self.pairing.is_paired(node):
            return ("paired", self.pairing.number(node))
        return ("seen", self.colours[node])


# Finding out which node of one graph is which of the other, by dataflow alone.
#
# Nodes that compute the same from the inputs are paired first. From there, and from the inputs and
# outputs, pairs grow to neighbours. If several neighbours would do, what lies around them decides.
# Names play no part.


_MANY = 16
"""If this many numbers are equal, that is no accident."""


def align(
    sides: tuple[Side, Side], inputs: Sequence[ValuePair], outputs: Sequence[PositionPair]
) -> Pairing:
    """Pair the nodes of two graphs.

    Args:
        sides: The graphs.
        inputs: Their inputs that are one.
        outputs: For each pair of outputs: where it stands in either graph.

    """
    pairing = Pairing(sides, inputs, outputs)
    growth = PairGrowth(pairing)
    _pair_equal(pairing)
    if pairing.is_complete():
        return pairing
    growth.from_interface()
    for detail in DETAILS[:2]:
        _pair_by_colour(pairing, growth, detail)
    growth.bridging = True
    growth.from_interface()
    _pair_by_colour(pairing, growth, "loose")
    _pair_in_order(pairing, growth)
    growth.from_interface()
    _pair_by_inputs(pairing)
    _pair_replaced(pairing)
    return pairing


def _pair_equal(pairing: Pairing) -> None:
    """Pair nodes that compute the same; among several, those whose results are used alike."""
    computed = tuple(side.made for side in pairing.sides)
    pairing.add(unique_pairs(computed, pairing.rest()))
    doubtful = grouped(computed, pairing.rest())
    used = pairing.used() if doubtful else ()
    for nodes in doubtful:
        for one, other in grouped(used, nodes):
            pairing.add(zip(one, other, strict=False))
        pairing.add(zip(*map(pairing.free, nodes), strict=False))


def _pair_by_colour(pairing: Pairing, growth: PairGrowth, detail: Detail) -> None:
    """Pair nodes that are the only ones of their colour, from the widest view to the narrowest.

    In the narrowest view, without neighbours, a node must hold a weight.
    """
    views = refine(pairing, pairing.rest(), detail)
    for distance, colours in reversed(list(enumerate(views))):
        found = unique_pairs(colours, pairing.rest())
        if not distance:
            found = [p for p in found if detail == "exact" and _has_weights(pairing, p[0])]
        growth.run(pairing.add(found))


def _pair_in_order(pairing: Pairing, growth: PairGrowth) -> None:
    """Pair nodes of one colour in order, if both graphs have the same number of them."""
    for detail in DETAILS:
        nodes = pairing.rest()
        for colours in refine(pairing, nodes, detail)[-1:]:
            groups = grouped(colours, nodes)
            equal = (zip(*group, strict=True) for group in groups if len(set(map(len, group))) == 1)
            growth.run(pairing.add(chain.from_iterable(equal)))


def _pair_by_inputs(pairing: Pairing) -> None:
    """Pair nodes that are alike and read the same, however their results are used."""
    nodes = pairing.rest()
    keys = tuple(
        {node: (side.local("exact")[node], pairing.read(which, node)) for node in nodes[which]}
        for which, side in enumerate(pairing.sides)
    )
    for one, other in grouped(keys, nodes):
        pairing.add(zip(one, other, strict=False))


def _pair_replaced(pairing: Pairing) -> None:
    """Pair nodes of different operators that read the same and are read in the same places.

    All nodes that read them must have a partner, and none may lie in a body.
    """
    places: tuple[dict[Node, Form], ...] = ({}, {})
    for which, nodes in enumerate(pairing.rest()):
        for node in nodes:
            users = (user for value in made(node) for user, _ in value.iter_uses())
            uses = pairing.uses(which, node, pairing.number)
            if uses and all(map(pairing.is_paired, users)):
                places[which][node] = (pairing.read(which, node), uses)
    pairing.add(unique_pairs(places, (list(places[0]), list(places[1]))))


def _has_weights(pairing: Pairing, node: Node) -> bool:
    """Tell whether *node* holds so much data that it is no accident if another holds the same."""
    tensors = [pairing.sides[0].reader.tensor(value) for value in slots(node) if value is not None]
    return any(tensor is not None and tensor.size >= _MANY for tensor in tensors)


# Which node, input and output of one graph is which of the other.


@dataclass(eq=False)
class Pairing:
    """Partners between two graphs.

    Attributes:
        sides: The two graphs.
        inputs: Inputs that are one.
        outputs: For each pair of outputs: where it stands in the first and in the second graph.
        forth: The partner of a node of the first graph.
    """

    sides: tuple[Side, Side]
    inputs: Sequence[ValuePair]
    outputs: Sequence[PositionPair]
    forth: dict[Node, Node] = field(default_factory=dict)
    _numbers: dict[Node, int] = field(default_factory=dict)

    def add(self, pairs: Iterable[NodePair]) -> list[NodePair]:
        """Make the nodes of each pair partners."""
        added = list(pairs)
        for first, second in added:
            self._numbers[first] = self._numbers[second] = len(self.forth)
            self.forth[first] = second
        return added

    def is_paired(self, node: Node) -> bool:
        """Tell whether *node*, of either graph, has a partner."""
        return node in self._numbers

    def is_same_call(self, first: Node, second: Node) -> bool:
        """Tell whether two nodes, one of each graph, are calls of the same."""
        ours, theirs = (side.reader for side in self.sides)
        return ours.label(first) == theirs.label(second)

    def number(self, node: Node) -> int | None:
        """Return the number of the pair that *node* belongs to, if any."""
        return self._numbers.get(node)

    def free(self, nodes: Iterable[Node]) -> list[Node]:
        """List those of *nodes* that have no partner."""
        return [node for node in nodes if node not in self._numbers]

    def rest(self) -> tuple[list[Node], list[Node]]:
        """List the nodes of either graph that have no partner, in order."""
        first, second = (self.free(side.nodes) for side in self.sides)
        return first, second

    def is_complete(self) -> bool:
        """Tell whether one of the graphs has no node left that could be paired."""
        return len(self.forth) == min(len(side.nodes) for side in self.sides)

    def place(self, pair: NodePair) -> tuple[int, int]:
        """Return a key to sort pairs by; it does not depend on which graph comes first."""
        one, other = (side.position[n] for side, n in zip(self.sides, pair, strict=True))
        return one + other, abs(one - other)

    @cached_property
    def _returned(self) -> tuple[Mapping[Value, list[int]], ...]:
        """For each value that a graph returns: as which of the paired outputs it does."""
        found: tuple[dict[Value, list[int]], ...] = (defaultdict(list), defaultdict(list))
        for number, places in enumerate(self.outputs):
            for which, place in enumerate(places):
                found[which][self.sides[which].graph.outputs[place]].append(number)
        return found

    def uses(self, which: int, node: Node, number: Callable[[Node], Hashable]) -> Form:
        """Return who reads what *node* makes, by *number* unless that is None, and in which slot.

        To be returned is a use, too.
        """
        found: list[tuple[Any, ...]] = []
        for value in made(node):
            for user, slot in readers(value, self.sides[which].graph):
                if (known := number(user)) is not None:
                    found.append((value.index, slot, known))
            returned = self._returned[which].get(value, ())
            found += [(value.index, _RETURNED, place) for place in returned]
        return tuple(sorted(found))

    def used(self) -> tuple[Mapping[Node, int], ...]:
        """Number the nodes of both graphs by all that is computed from them."""
        found: tuple[dict[Node, int], ...] = ({}, {})
        for which, (side, numbered) in enumerate(zip(self.sides, found, strict=True)):
            for node in reversed(side.nodes):
                uses = self.uses(which, node, numbered.get)
                numbered[node] = side.numbers(("used", side.local("exact")[node], uses))
        return found

    def read(self, which: int, node: Node) -> Form:
        """Number what *node* of one graph reads, in its order; equal values get equal numbers."""
        return tuple(_ABSENT if v is None else self.resolve(which, v) for v in slots(node))

    def same_value(self, first: Value | None, second: Value | None) -> bool:
        """Tell whether two values correspond: partners or equal computations make them."""
        if first is None or second is None:
            return first is second
        return self.resolve(0, first) == self.resolve(1, second) or self.are_partners(first, second)

    def are_partners(self, first: Value, second: Value) -> bool:
        """Tell whether partners make two values."""
        maker = first.producer
        return (
            maker is not None
            and maker in self.forth
            and self.forth[maker] is second.producer
            and first.index == second.index
        )

    def resolve(self, which: int, value: Value) -> int:
        """Number *value* of one graph, or of a graph around it; equal values get equal numbers."""
        side = self.sides[which]
        number = side.number_of(value)
        maker = value.producer
        if maker is None or number in self._common or maker not in self._numbers:
            return number
        return side.numbers(("of partners", id(self), self._numbers[maker], value.index))

    @cached_property
    def _common(self) -> set[int]:
        """The numbers of the values that both graphs compute."""
        first, second = (
            {side.number_of(value) for node in side.nodes for value in made(node)}
            for side in self.sides
        )
        return first & second


PositionPair = tuple[int, int]
"""Where an output stands in the first graph, and in the second."""


def unique_pairs(keys: Sequence[Mapping[T, Hashable]], items: Both[T]) -> list[tuple[T, T]]:
    """Pair the items whose key only one item of each graph has."""
    return [(a[0], b[0]) for a, b in grouped(keys, items) if len(a) == len(b) == 1]


def grouped(keys: Sequence[Mapping[T, Hashable]], items: Both[T]) -> list[Both[T]]:
    """Group items of both graphs by their keys, keys that only one graph has left out."""
    groups: dict[Hashable, Both[T]] = {}
    for which, own in enumerate(items):
        for item in own:
            groups.setdefault(keys[which][item], ([], []))[which].append(item)
    return [pair for pair in groups.values() if pair[0] and pair[1]]


DETAILS: tuple[Detail, ...] = ("exact", "alike", "loose")
"""What two nodes can have in common, from the most to the least."""


# From pairs of nodes to pairs of their neighbours.


_VOTE = 2
"""What a vote of a neighbour weighs; each level that two nodes have in common weighs one."""


class PairGrowth:
    """Pairs nodes whose neighbours are pairs.

    Attributes:
        bridging: Whether to look past nodes that only one graph has where nothing else helps.
    """

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.bridging = False

    def from_interface(self) -> None:
        """Grow from the inputs and outputs, and from all pairs there are."""
        pairing = self.pairing
        first, second = (side.graph for side in pairing.sides)
        proposed = [pair for values in pairing.inputs for pair in self._of_readers(values)]
        for one, other in pairing.outputs:
            proposed += self._of_makers((first.outputs[one], second.outputs[other]))
        self.run([*self._choose(proposed), *pairing.forth.items()])

    def run(self, pairs: Iterable[NodePair]) -> None:
        """Grow from *pairs*, which are partners already, round by round."""
        frontier = list(pairs)
        stalled: list[NodePair] = []
        while frontier and not self.pairing.is_complete():
            stalled += frontier
            frontier = self._choose([near for pair in frontier for near in self._near(pair)])
            if not frontier and self.bridging:
                found = (near for pair in stalled for near in bridges(self.pairing, pair))
                frontier, stalled = self._choose(found), []

    def _near(self, pair: NodePair) -> Iterator[NodePair]:
        """Iterate over what could be partners if *pair* are."""
        first, second = pair
        if is_commutative(first):
            yield from self._of_operands(pair)
        else:
            for values in zip(slots(first), slots(second), strict=False):
                yield from self._of_makers(values)
        for pair_of_values in both_there(first.outputs, second.outputs):
            yield from self._of_readers(pair_of_values)

    def _of_makers(self, values: tuple[Value | None, Value | None]) -> Iterator[NodePair]:
        """Propose the nodes that make two values that should be one."""
        old, new = values
        if old is not None and new is not None and old.index == new.index:
            makers = (self._free_makers(0, [old]), self._free_makers(1, [new]))
            yield from (
                pair for pair in zip(*makers, strict=False) if self.pairing.is_same_call(*pair)
            )

    def _of_operands(self, pair: NodePair) -> Iterator[NodePair]:
        """Propose the makers of operands whose place does not matter, where it is clear which."""
        first, second = (
            [(maker, 0) for maker in dict.fromkeys(self._free_makers(which, slots(node)))]
            for which, node in enumerate(pair)
        )
        yield from self._clear_pairs(first, second)

    def _of_readers(self, values: ValuePair) -> Iterator[NodePair]:
        """Propose the nodes that read two values that are one, where it is clear which."""
        found: list[list[tuple[Node, int]]] = []
        for value, side in zip(values, self.pairing.sides, strict=True):
            every = readers(value, side.graph)
            free = (item for item in every if not self.pairing.is_paired(item[0]))
            found.append(list(dict.fromkeys(free)))
        yield from self._clear_pairs(found[0], found[1])

    def _clear_pairs(
        self, first: list[tuple[Node, int]], second: list[tuple[Node, int]]
    ) -> Iterator[NodePair]:
        """Pair nodes with one counterpart only: in every detail, but for data, then by operator."""
        for detail in DETAILS:
            if not first or not second:
                return
            keys = [
                {(node, slot): (side.local(detail)[node], slot) for node, slot in items}
                for side, items in zip(self.pairing.sides, (first, second), strict=True)
            ]
            taken: set[Node] = set()
            for (one, _), (other, _) in unique_pairs(keys, (first, second)):
                yield one, other
                taken |= {one, other}
            first = [item for item in first if item[0] not in taken]
            second = [item for item in second if item[0] not in taken]

    def _choose(self, proposed: Iterable[NodePair]) -> list[NodePair]:
        """Make partners of the best proposed pairs; the order of the models plays no part."""
        votes: dict[NodePair, int] = {}
        for pair in proposed:
            votes[pair] = votes.get(pair, self._likeness(pair)) + _VOTE
        place = self.pairing.place
        chosen: list[NodePair] = []
        for pair in sorted(votes, key=lambda pair: (-votes[pair], *place(pair))):
            if not any(map(self.pairing.is_paired, pair)):
                chosen += self.pairing.add([pair])
        return chosen

    def _likeness(self, pair: NodePair) -> int:
        """Count the details that two nodes have in common: one that counts more counts the rest."""
        first, second = self.pairing.sides
        for weight, detail in enumerate(DETAILS):
            if first.local(detail)[pair[0]] == second.local(detail)[pair[1]]:
                return len(DETAILS) - weight
        return 0

    def _free_makers(self, which: int, values: Iterable[Value | None]) -> list[Node]:
        """List the nodes of one graph that make *values* and have no partner."""
        makers = [value.producer for value in values if value is not None]
        position = self.pairing.sides[which].position
        return self.pairing.free(maker for maker in makers if maker in position)


# Which input and output of one graph is which of the other.


def pair_inputs(first: Sequence[Value], second: Sequence[Value]) -> list[ValuePair]:
    """Pair the inputs of main graphs: by name, then those left that are declared alike, in order.

    Who calls a model names its inputs, so that names count here.
    """
    olds, news = free_inputs(first), free_inputs(second)
    pairs, olds = with_twins(olds, news, lambda old, new: old.name == new.name)
    alike, _ = with_twins(olds, news, lambda old, new: old.declared_type == new.declared_type)
    return pairs + alike


def pair_places(first: Sequence[Value], second: Sequence[Value]) -> list[ValuePair]:
    """Pair the inputs of bodies and functions, which are told apart by their places."""
    return list(zip(free_inputs(first), free_inputs(second), strict=False))


def pair_outputs(first: Side, second: Side, *, by_name: bool) -> list[PositionPair]:
    """Pair outputs: by name in main graphs, those left by what they are, then in order."""
    olds, news = first.graph.outputs, second.graph.outputs
    if not by_name:
        return [(place, place) for place in range(min(len(olds), len(news)))]

    def is_equal(old: int, new: int) -> bool:
        return first.number_of(olds[old]) == second.number_of(news[new])

    left, right = list(range(len(olds))), list(range(len(news)))
    # A file may return a value twice: the first of a name is paired with the first of that name.
    named, left = with_twins(left, right, lambda old, new: olds[old].name == news[new].name)
    alike, left = with_twins(left, right, is_equal)
    return [*named, *alike, *zip(left, right, strict=False)]


def with_twins(
    olds: Iterable[T], news: list[U], is_twin: Callable[[T, U], bool]
) -> tuple[list[tuple[T, U]], list[T]]:
    """Pair each item with its first twin among *news*, which is taken out of that list.

    Returns:
        The pairs, and the items without a twin.
    """
    pairs: list[tuple[T, U]] = []
    left: list[T] = []
    for old in olds:
        twin = next((new for new in news if is_twin(old, new)), None)
        if twin is None:
            left.append(old)
        else:
            news.remove(twin)
            pairs.append((old, twin))
    return pairs, left


# All graphs of two models.


class ModelPairing:
    """Pairs the graphs of two models, and the nodes in them.

    Attributes:
        models: The two models.
        functions: Their functions that are one.
    """

    def __init__(self, first: Model, second: Model) -> None:
        self.models = (first, second)
        self.functions = pair_functions(first, second)
        shared, aliases = shared_places(self.models), aliases_of(self.functions)
        self._readers = (ModelReader({}, shared), ModelReader(aliases, shared))

    def pairings(self) -> Iterator[tuple[Pairing, bool]]:
        """Pair the main graphs with the bodies in them, and the functions; True for main graphs."""
        first, second = self.models
        yield from self._pairings((first.graph, second.graph), None, is_main=True)
        for one, other in self.functions:
            yield from self._pairings((one.body, other.body), None, is_main=False)

    def _pairings(
        self, graphs: tuple[Graph, Graph], outer: Pairing | None, *, is_main: bool
    ) -> Iterator[tuple[Pairing, bool]]:
        """Pair two graphs, and the bodies of the nodes that they share, however deep."""
        numbers = Numbers() if outer is None else outer.sides[0].numbers
        inputs = (pair_inputs if is_main else pair_places)(*(graph.inputs for graph in graphs))
        sides = []
        for which, graph in enumerate(graphs):
            given = {pair[which]: input_number(numbers, graph, k) for k, pair in enumerate(inputs)}
            resolve = partial(outer.resolve, which) if outer else nowhere(numbers, which)
            sides.append(Side(graph, self._readers[which], numbers, given, resolve, which))
        ours, theirs = sides
        outputs = pair_outputs(ours, theirs, by_name=is_main)
        pairing = align((ours, theirs), inputs, outputs)
        yield pairing, is_main
        for first, second in ((n, pairing.forth[n]) for n in ours.nodes if n in pairing.forth):
            for name in (name for name in first.subgraphs if name in second.subgraphs):
                bodies = (first.subgraphs[name], second.subgraphs[name])
                yield from self._pairings(bodies, pairing, is_main=False)
