"""Pair the nodes, inputs, outputs and functions of two models, by dataflow and not by name."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from dplcli.ir.model import called_function
from dplcli.ir.operators import COMMUTATIVE, RANDOM_OPS, draws_random, schema_of
from dplcli.ir.traversal import enclosing_node
from dplcli.ir.types import CHUNK, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.ir import Attribute, Function, Graph, Model, Node, Value

    Form: TypeAlias = tuple[Hashable, ...]

    Key: TypeAlias = tuple[str, str, str]

    Resolve: TypeAlias = Callable[[Value], int]

    NextNodes: TypeAlias = "Callable[[Side, Node], Iterator[Node]]"

    FunctionPair = tuple[Function, Function]

    Colours = tuple[Mapping[Node, int], Mapping[Node, int]]

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
    """

    def __init__(self, aliases: Mapping[Key, Key]) -> None:
        self.aliases = aliases
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
        return (node for node in graph if not self.is_stored(node))

    def is_stored(self, node: Node) -> bool:
        """Tell whether *node* only holds a constant, which might as well be an initializer."""
        if node.op_type != "Constant" or node.domain or not node.outputs:
            return False
        output = node.outputs[0]
        return output is not None and self.tensor(output) is not None

    def tensor(self, value: Value) -> Tensor | None:
        """Return the constant that *value* is, not decoded; None if it is computed."""
        if value.producer is not None and value.producer.op_type != "Constant":
            return None
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
            forms = attribute_forms(node)
            self._attributes[key] = tuple((name, forms[name]) for name in sorted(forms))
        return self._attributes[key]

    def is_random(self, node: Node) -> bool:
        """Tell whether *node* computes something else each time; recursion is as deep as bodies."""
        if node.subgraphs:
            if node not in self._random_bodies:
                inner = (inner for body in node.subgraphs.values() for inner in body)
                self._random_bodies[node] = any(map(self.is_random, inner))
            return self._random_bodies[node]
        function = called_function(node)
        if function is not None:
            return function not in self._harmless and draws_random(node, self._harmless)
        may_be = node.op_type in RANDOM_OPS or node.op_type == "Dropout"
        return may_be and draws_random(node)

    def captured(self, node: Node) -> tuple[Value, ...]:
        """Return the values of outer graphs that the bodies of *node* read or return, each once."""
        if node not in self._captured:
            found: dict[Value, None] = {}
            for body in node.subgraphs.values():
                read = [value for inner in body for value in (*inner.inputs, *self._inside(inner))]
                seen = (value for value in (*read, *body.outputs) if value is not None)
                found.update((value, None) for value in seen if value.graph is not body)
            self._captured[node] = tuple(found)
        return self._captured[node]

    def _inside(self, node: Node) -> tuple[Value, ...]:
        return self.captured(node) if node.subgraphs else ()


class Content:
    """What a constant holds: two are equal if element type, shape and every bit are.

    It is hashed by its first chunk, and the others are compared with those of another constant
    that has the same hash. Digests of all of them took two to four times as long.

    Args:
        tensor: The constant.

    Raises:
        ModelLoadError: Its data cannot be read; comparing may raise it, too.
    """

    __slots__ = ("_key", "_tensor")

    def __init__(self, tensor: Tensor) -> None:
        digest = blake2b(digest_size=16)
        for part in islice(tensor.chunks(), 1):
            digest.update(repr(part.tolist()).encode() if part.dtype.hasobject else part.tobytes())
        self._key = (tensor.dtype, tensor.shape, digest.digest())
        self._tensor = tensor

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Content) or self._key != other._key:
            return False
        if self._tensor.size <= CHUNK or self._tensor is other._tensor:
            return True
        parts = zip(self._tensor.chunks(), other._tensor.chunks(), strict=True)
        return all(has_same_bits(*pair) for pair in islice(parts, 1, None))


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
    return name == "kernel_shape" and "Pool" not in node.op_type and _tells_kernel(node)


def _tells_kernel(node: Node) -> bool:
    """Tell whether a constant weight of *node* says how large the kernel is."""
    return "Conv" in node.op_type and any(
        value is not None and value.is_constant for value in node.inputs[1:]
    )


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


def readers(value: Value, graph: Graph) -> Iterator[tuple[Node, int]]:
    """Iterate over the nodes of *graph* that read *value*, and the slots in which they do."""
    for user, slot in value.iter_uses():
        if user.graph is graph:
            yield user, ANY_SLOT if is_commutative(user) else slot
            continue
        enclosing = enclosing_node(user, graph)
        if enclosing is not None:
            yield enclosing, CAPTURED
    for body in value.returned_by:
        if body is graph or body.owner is None:
            continue
        enclosing = enclosing_node(body.owner, graph)
        if enclosing is not None:
            yield enclosing, CAPTURED


# How two models differ.


Facet: TypeAlias = Literal["names", "order", "doc", "metadata", "value-info", "storage"]
"""A kind of difference that no computed number depends on."""

FACETS: Mapping[Facet, str] = {
    "names": "what nodes and inner values are called",
    "order": "the order of the nodes",
    "doc": "documentation",
    "metadata": "metadata, producer, IR version, imports that no node uses",
    "value-info": "types stated of inner values",
    "storage": "whether a constant is an initializer or a Constant node",
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


@dataclass(frozen=True)
class WeightChange:
    """A constant that holds something else; no distance if type or shape differ."""

    before: Value
    after: Value
    distance: Distance | None


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
        remarks: What else differs; no computed number depends on it.
    """

    before: Graph
    after: Graph
    partners: Mapping[Node, Node]
    added: tuple[Node, ...] = ()
    removed: tuple[Node, ...] = ()
    changes: tuple[NodeChange, ...] = ()
    weights: tuple[WeightChange, ...] = ()
    signature: tuple[SignatureChange, ...] = ()
    remarks: tuple[Remark, ...] = ()

    @property
    def paired(self) -> int:
        """How many nodes are in both."""
        return len(self.partners)

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


@dataclass(frozen=True)
class ModelDiff:
    """How two models differ.

    Attributes:
        graphs: The graphs that are in both: main, bodies, functions.
        functions: Functions whose differences are not in their bodies.
        opsets: Imports of used domains that differ.
        remarks: What else differs of the models as a whole.
        ignored: The facets that do not count.
    """

    graphs: tuple[GraphDiff, ...]
    functions: tuple[FunctionChange, ...]
    opsets: tuple[OpsetChange, ...]
    remarks: tuple[Remark, ...]
    ignored: frozenset[Facet]

    @property
    def all_remarks(self) -> tuple[Remark, ...]:
        """The remarks on the models and on all graphs."""
        return self.remarks + tuple(r for graph in self.graphs for r in graph.remarks)

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
    def is_equal(self) -> bool:
        """Whether nothing differs that counts."""
        return not self.count


# One of two graphs that are compared. Values get equal numbers if they are computed alike.


Detail: TypeAlias = Literal["exact", "alike", "loose"]
"""How much of a node counts: all; all but the data of its constants; only what it calls."""

_ABSENT = -1
_RETURNED = -3


class Side:
    """One of the two graphs.

    Attributes:
        graph: The graph.
        reader: What reads its model.
        nodes: Its nodes in order, those that only hold a constant left out.
        position: Where each of them stands.

    Args:
        graph: The graph.
        reader: What reads its model.
        numbers: The numbers that both sides use.
        given: Numbers of the inputs that have a partner.
        outer: Numbers a value of a graph around this one.
        tag: Tells the two sides apart, for values that are never equal.
    """

    def __init__(  # noqa: PLR0913  # what a side is made of
        self,
        graph: Graph,
        reader: ModelReader,
        numbers: Numbers,
        *,
        given: Mapping[Value, int],
        outer: Resolve,
        tag: int,
    ) -> None:
        self.graph = graph
        self.reader = reader
        self.numbers = numbers
        self.nodes = list(reader.nodes(graph))
        self.position = {node: place for place, node in enumerate(self.nodes)}
        self._given = given
        self._outer = outer
        self._tag = tag
        self._locals: dict[Detail, dict[Node, int]] = {}
        self._values: dict[Detail, dict[Value, int]] = {}
        self._made: dict[Detail, dict[Node, int]] = {}

    def local(self, detail: Detail) -> Mapping[Node, int]:
        """Number the nodes by what each says by itself, its constants included."""
        if detail not in self._locals:
            self._locals[detail] = {node: self._local(node, detail) for node in self.nodes}
        return self._locals[detail]

    def made(self, detail: Detail) -> Mapping[Node, int]:
        """Number the nodes by all that they are computed from."""
        if detail not in self._made:
            values = self._values[detail] = dict(self._given)
            self._made[detail] = self._number(self.graph, values, detail)
        return self._made[detail]

    def number_of(self, value: Value, detail: Detail) -> int:
        """Number *value* by all that it is computed from."""
        self.made(detail)
        return self._value(value, self._values[detail], detail)

    def used(self, detail: Detail, returned: Mapping[Value, list[int]]) -> dict[Node, int]:
        """Number the nodes by all that is computed from them.

        Args:
            detail: How much of a node counts.
            returned: For each output value, numbers for what it is returned as.
        """
        local = self.local(detail)
        found: dict[Node, int] = {}
        for node in reversed(self.nodes):
            uses = []
            for index, output in enumerate(node.outputs):
                if output is None:
                    continue
                uses += [
                    (index, slot, found[user])
                    for user, slot in readers(output, self.graph)
                    if user in found
                ]
                uses += [(index, _RETURNED, number) for number in returned.get(output, ())]
            found[node] = self.numbers(("used", local[node], tuple(sorted(uses))))
        return found

    def constant(self, value: Value, detail: Detail) -> int:
        """Number a constant by its data, or by its type alone."""
        tensor = self.reader.tensor(value)
        assert tensor is not None  # noqa: S101  # only constants are asked for
        if detail == "exact":
            return self.numbers(("constant", self.reader.content(value)))
        return self.numbers(("constant", tensor.dtype, tensor.shape))

    def _local(self, node: Node, detail: Detail) -> int:
        label = self.reader.label(node)
        if detail == "loose":
            return self.numbers(("local", label))
        inputs = [_ABSENT if v is None else self._stored(v, detail) for v in slots(node)]
        if is_commutative(node):
            inputs.sort()
        return self.numbers(("local", label, self.reader.attributes(node), tuple(inputs)))

    def _stored(self, value: Value, detail: Detail) -> int:
        if self.reader.tensor(value) is not None:
            return self.constant(value, detail)
        return self.numbers(("computed",))

    def _number(self, graph: Graph, values: dict[Value, int], detail: Detail) -> dict[Node, int]:
        """Number the nodes of *graph* or of a body in it; recursion is as deep as bodies nest."""
        numbers, reader = self.numbers, self.reader
        made: dict[Node, int] = {}
        for node in reader.nodes(graph):
            inputs = [_ABSENT if v is None else self._value(v, values, detail) for v in slots(node)]
            if is_commutative(node):
                inputs.sort()
            form: Form = (reader.label(node), tuple(inputs))
            if detail != "loose":
                form = (*form, reader.attributes(node))
            if node.subgraphs:
                form = (*form, self._bodies(node, values, detail))
            if detail == "exact" and reader.is_random(node):
                form = (*form, "random", self._tag, len(made), id(graph))
            number = made[node] = numbers(("made", *form))
            for output in node.outputs:
                if output is not None:
                    values[output] = numbers(("output", number, output.index))
        return made

    def _bodies(self, node: Node, values: dict[Value, int], detail: Detail) -> Form:
        """Return what the bodies of *node* compute from what they capture.

        The answer is kept: each graph around *node* asks again, mostly with the same captures.
        """
        captured = self.reader.captured(node)
        given = tuple(self._value(value, values, detail) for value in captured)
        key = (node, (detail, *given))
        if key not in self.numbers.bodies:
            self.numbers.bodies[key] = tuple(
                self._body(name, body, values, detail)
                for name, body in sorted(node.subgraphs.items())
            )
        return self.numbers.bodies[key]

    def _body(self, name: str, body: Graph, values: dict[Value, int], detail: Detail) -> Form:
        for place, value in enumerate(free_inputs(body.inputs)):
            values[value] = input_number(self.numbers, body, place)
        made = self._number(body, values, detail)
        outputs = tuple(self._value(value, values, detail) for value in body.outputs)
        return (name, len(body.inputs), outputs, tuple(sorted(made.values())))

    def _value(self, value: Value, values: dict[Value, int], detail: Detail) -> int:
        known = values.get(value)
        if known is not None:
            return known
        if self.reader.tensor(value) is not None:
            number = self.constant(value, detail)
        elif value.graph is self.graph:
            number = self.numbers(("without partner", self._tag, value.name))
        else:
            number = self._outer(value)
        values[value] = number
        return number


def input_number(numbers: Numbers, graph: Graph, place: int) -> int:
    """Number an input of *graph* by its depth and place: the same from every graph around it."""
    return numbers(("input", depth_of(graph), place))


def depth_of(graph: Graph) -> int:
    """Count the nodes around *graph*."""
    depth = 0
    while graph.owner is not None:
        depth += 1
        graph = graph.owner.graph
    return depth


# Looking past nodes that only one graph has, where pairs do not grow from neighbour to neighbour.


_FARTHEST = 3
"""How many nodes are passed over at the most, in both graphs together."""
_WIDEST = 16
"""How many nodes are looked at in one distance; among more of them nothing is clear."""


def bridges(pairing: Pairing, pair: NodePair) -> Iterator[NodePair]:
    """Propose partners near *pair*, past as few nodes without a partner as possible."""
    for step in (_behind, _before):
        rings = [
            _rings(pairing, side, node, step)
            for side, node in zip(pairing.sides, pair, strict=True)
        ]
        if rings[0][0] and rings[1][0]:
            yield from _nearest(pairing, rings[0], rings[1])


def _nearest(pairing: Pairing, first: list[list[Node]], second: list[list[Node]]) -> list[NodePair]:
    local = tuple(side.local("loose") for side in pairing.sides)
    for passed in range(1, _FARTHEST + 1):
        found: list[NodePair] = []
        for ours in range(passed + 1):
            if ours < len(first) and passed - ours < len(second):
                found += unique_pairs(local, (first[ours], second[passed - ours]))
        if found:
            return found
    return []


def _rings(pairing: Pairing, side: Side, node: Node, step: NextNodes) -> list[list[Node]]:
    """List the nodes without a partner next to *node*, then those next to these, and so on."""
    rings: list[list[Node]] = []
    seen = {node}
    ring = [node]
    for _ in range(_FARTHEST + 1):
        found: dict[Node, None] = {}
        for near in ring:
            for other in step(side, near):
                if other in seen or pairing.is_paired(other):
                    continue
                found[other] = None
                if len(found) > _WIDEST:
                    return [*rings, []]
        seen |= found.keys()
        ring = list(found)
        rings.append(ring)
        if not ring:
            break
    return rings


def _behind(side: Side, node: Node) -> Iterator[Node]:
    for output in node.outputs:
        if output is not None:
            yield from (user for user, _ in readers(output, side.graph) if user in side.position)


def _before(side: Side, node: Node) -> Iterator[Node]:
    for value in slots(node):
        if value is not None and value.producer in side.position:
            yield value.producer


# Which local function of one model is which of the other.


def pair_functions(first: Model, second: Model) -> list[FunctionPair]:
    """Pair functions by their keys, then by their bodies if one function of each model has it.

    A renamed function may call another one. So it is looked at again when that one has a partner.
    """
    shared = first.functions.keys() & second.functions.keys()
    pairs = [
        (first.functions[key], second.functions[key]) for key in first.functions if key in shared
    ]
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
    outputs = tuple(side.number_of(value, "exact") for value in body.outputs)
    made = tuple(sorted(side.made("exact").values()))
    return (len(body.inputs), outputs, made, declared(function))


def nowhere(numbers: Numbers, tag: int) -> Resolve:
    """Return a numbering of values from outside all graphs: by name, for this *tag* only."""
    return lambda value: numbers(("nowhere", tag, value.name))


def declared(function: Function) -> Form:
    """Return the attributes that *function* declares, and their defaults."""
    defaults = sorted((name, repr(item.value)) for name, item in function.defaults.items())
    return (tuple(sorted(function.attributes)), tuple(defaults))


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
    for function in first.functions.values():
        if function not in paired:
            yield FunctionChange("removed", function, None)
    for function in second.functions.values():
        if function not in paired:
            yield FunctionChange("added", None, function)


# Telling nodes without a partner apart by what lies around them.
#
# Colours are refined round by round (B. Weisfeiler and A. Leman, 1968). A node's colour says what
# its neighbours are, then what their neighbours are, and so on. A neighbour with a partner has a
# colour of its own that never changes, so an edit changes colours nearby only.


ROUNDS = 3
_BEYOND = -1


def refine(
    pairing: Pairing,
    nodes: tuple[list[Node], list[Node]],
    detail: Detail,
) -> list[Colours]:
    """Colour *nodes*, none of which has a partner, by their neighbours up to each distance.

    Args:
        pairing: The pairs there are.
        nodes: The nodes of the first and of the second graph.
        detail: How much of a node counts.

    Returns:
        The colours of the first and of the second graph, before the first round and after each.
    """
    firsts, seconds = (
        _rounds(pairing, which, nodes[which], detail) for which in range(len(pairing.sides))
    )
    return list(zip(firsts, seconds, strict=True))


def _rounds(
    pairing: Pairing, which: int, nodes: list[Node], detail: Detail
) -> list[dict[Node, int]]:
    side, returned = pairing.sides[which], pairing.returned(which)
    local = side.local(detail)
    colours = {node: local[node] for node in nodes}
    found = [colours]
    for _ in range(ROUNDS):
        view = _View(pairing, side, colours, returned, detail)
        colours = {node: view.colour(node) for node in nodes}
        found.append(colours)
    return found


@dataclass
class _View:
    """What the nodes see of each other in one round."""

    pairing: Pairing
    side: Side
    colours: Mapping[Node, int]
    returned: Mapping[Value, list[int]]
    detail: Detail

    def colour(self, node: Node) -> int:
        """Return the colour of *node* after this round."""
        inputs = [(0, 0) if value is None else self._source(value) for value in slots(node)]
        if is_commutative(node):
            inputs.sort()
        uses = []
        for index, output in enumerate(node.outputs):
            if output is None:
                continue
            uses += [
                (index, slot, *self._node(user))
                for user, slot in readers(output, self.side.graph)
                if user in self.side.position
            ]
            uses += [(index, 0, _BEYOND, number) for number in self.returned.get(output, ())]
        return self.side.numbers(("seen", self.colours[node], tuple(inputs), tuple(sorted(uses))))

    def _source(self, value: Value) -> tuple[int, int]:
        maker = value.producer
        if maker is not None and maker in self.side.position:
            kind, number = self._node(maker)
            return kind, self.side.numbers(("made", kind, number, value.index))
        if self.detail == "loose" and self.side.reader.tensor(value) is not None:
            return _BEYOND, _BEYOND
        if self.detail == "alike" and self.side.reader.tensor(value) is not None:
            return _BEYOND, self.side.constant(value, "alike")
        return _BEYOND, self.side.number_of(value, "exact")

    def _node(self, node: Node) -> tuple[int, int]:
        if self.pairing.is_paired(node):
            return 1, self.pairing.number(node)
        return 2, self.colours[node]


# Finding out which node of one graph is which of the other, by dataflow alone.
#
# Nodes that compute the same from the inputs are paired first. Nodes that are alike in both
# directions, but for the data of constants, come next. From there pairs grow to neighbours. If
# several neighbours would do, what lies around them decides. Names play no part.


_PASSES = 4
"""How often colours are made anew at the most, after they have led to pairs."""
_WORTHWHILE = 32
"""Colours are made anew if they have led to at least one pair for this many nodes."""
_MANY = 16
"""If this many numbers are equal, that is no accident."""
_SECOND = 1


def align(
    sides: tuple[Side, Side], inputs: Iterable[ValuePair], outputs: Sequence[PositionPair]
) -> tuple[Pairing, int]:
    """Pair the nodes of two graphs.

    Args:
        sides: The graphs.
        inputs: Their inputs that are one.
        outputs: For each pair of outputs: where it stands in either graph.

    Returns:
        The pairs, and how many neighbours were looked at.
    """
    pairing = Pairing(sides, inputs, outputs)
    growth = PairGrowth(pairing)
    _pair_equal(pairing)
    if pairing.is_complete():
        return pairing, growth.steps
    _pair_alike(pairing)
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
    return pairing, growth.steps


def _pair_equal(pairing: Pairing) -> None:
    """Pair nodes that compute the same; among several, those whose results are used alike."""
    first, second = pairing.sides
    made = (first.made("exact"), second.made("exact"))
    classes = grouped(made, (first.nodes, second.nodes))
    doubtful: list[tuple[list[Node], list[Node]]] = []
    for one, other in classes:
        if len(one) == 1 and len(other) == 1:
            pairing.add(one[0], other[0])
        else:
            doubtful.append((one, other))
    if not doubtful:
        return
    used = (first.used("exact", pairing.returned(0)), second.used("exact", pairing.returned(1)))
    for nodes in doubtful:
        for one, other in grouped(used, nodes):
            _pair_all(pairing, zip(one, other, strict=False))
        free = [[n for n in members if not pairing.is_paired(n)] for members in nodes]
        _pair_all(pairing, zip(*free, strict=False))


def _pair_alike(pairing: Pairing) -> None:
    """Pair nodes that no other node of their graph is like, by what they come from or lead to."""
    first, second = pairing.sides
    made = (first.made("alike"), second.made("alike"))
    used = (first.used("alike", pairing.returned(0)), second.used("alike", pairing.returned(1)))
    numbers = first.numbers
    both = tuple(
        {node: numbers(("both", made[which][node], used[which][node])) for node in side.nodes}
        for which, side in enumerate(pairing.sides)
    )
    for colours in (both, made, used):
        _pair_all(pairing, unique_pairs(colours, pairing.rest()))


def _pair_by_colour(pairing: Pairing, growth: PairGrowth, detail: Detail) -> None:
    """Pair nodes that are the only ones of their colour, from the widest view to the narrowest.

    In the narrowest view, without neighbours, a node must hold a weight.
    """
    for _ in range(_PASSES):
        nodes = pairing.rest()
        if not nodes[0] or not nodes[1]:
            return
        before = len(pairing.forth)
        views = refine(pairing, nodes, detail)
        for distance, colours in reversed(list(enumerate(views))):
            found = unique_pairs(colours, pairing.rest())
            if not distance:
                found = [
                    pair for pair in found if detail == "exact" and _has_weights(pairing, pair)
                ]
            _pair_all(pairing, found)
            growth.run(found)
        if (len(pairing.forth) - before) * _WORTHWHILE < len(nodes[0]) + len(nodes[1]):
            return


def _pair_in_order(pairing: Pairing, growth: PairGrowth) -> None:
    """Pair nodes of one colour in order, if both graphs have the same number of them."""
    for detail in DETAILS:
        nodes = pairing.rest()
        if not nodes[0] or not nodes[1]:
            return
        colours = refine(pairing, nodes, detail)[-1]
        found = [
            pair
            for one, other in grouped(colours, nodes)
            if len(one) == len(other)
            for pair in zip(one, other, strict=True)
        ]
        _pair_all(pairing, found)
        growth.run(found)


def _pair_by_inputs(pairing: Pairing) -> None:
    """Pair nodes that are alike and read the same, however their results are used."""
    nodes = pairing.rest()
    keys = []
    for which, side in enumerate(pairing.sides):
        local = side.local("exact")
        found = {}
        for node in nodes[which]:
            inputs = [-1 if v is None else pairing.resolve(which, v) for v in slots(node)]
            found[node] = side.numbers(("reads", local[node], tuple(inputs)))
        keys.append(found)
    for one, other in grouped(keys, nodes):
        _pair_all(pairing, zip(one, other, strict=False))


def _pair_replaced(pairing: Pairing) -> None:
    """Pair nodes of different operators that read the same and are read in the same places."""
    readers_of = _Places(pairing)
    found = tuple(
        {n: place for n in nodes if (place := readers_of.place(which, n)) is not None}
        for which, nodes in enumerate(pairing.rest())
    )
    _pair_all(pairing, unique_pairs(found, (list(found[0]), list(found[1]))))


class _Places:
    """Where nodes stand: what they read, and the partners that read what they make."""

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.returned = (pairing.returned(0), pairing.returned(_SECOND))

    def place(self, which: int, node: Node) -> Hashable | None:
        """Return where *node* stands; None unless everything that reads it has a partner."""
        uses: list[tuple[int, ...]] = []
        for index, output in enumerate(node.outputs):
            if output is None:
                continue
            for user, slot in output.iter_uses():
                if not self.pairing.is_paired(user):
                    return None
                uses.append((index, slot, self.pairing.number(user)))
            uses += [(index, -1, number) for number in self.returned[which].get(output, ())]
        if not uses:
            return None
        inputs = [-1 if v is None else self.pairing.resolve(which, v) for v in slots(node)]
        return tuple(inputs), tuple(sorted(uses))


def _has_weights(pairing: Pairing, pair: NodePair) -> bool:
    """Tell whether the nodes hold so much equal data that it is no accident."""
    tensors = [pairing.sides[0].reader.tensor(v) for v in slots(pair[0]) if v is not None]
    return any(tensor is not None and tensor.size >= _MANY for tensor in tensors)


def _pair_all(pairing: Pairing, pairs: Iterable[NodePair]) -> None:
    for pair in pairs:
        pairing.add(*pair)


# Which node, input and output of one graph is which of the other.


class Pairing:
    """Partners between two graphs.

    Attributes:
        sides: The two graphs.
        inputs: Inputs that are one.
        outputs: For each pair of outputs: where it stands in the first and in the second graph.
        forth: The partner of a node of the first graph.
        back: The partner of a node of the second graph.
    """

    def __init__(
        self, sides: tuple[Side, Side], inputs: Iterable[ValuePair], outputs: Sequence[PositionPair]
    ) -> None:
        self.sides = sides
        self.inputs = list(inputs)
        self.outputs = outputs
        self.forth: dict[Node, Node] = {}
        self.back: dict[Node, Node] = {}
        self._input_partner = dict(self.inputs)
        self._shared: set[int] | None = None
        self._numbers: dict[Node, int] = {}

    def add(self, first: Node, second: Node) -> None:
        """Make two nodes partners."""
        self._numbers[first] = self._numbers[second] = len(self.forth)
        self.forth[first] = second
        self.back[second] = first

    def is_paired(self, node: Node) -> bool:
        """Tell whether *node*, of either graph, has a partner."""
        return node in self._numbers

    def is_same_call(self, first: Node, second: Node) -> bool:
        """Tell whether two nodes, one of each graph, are calls of the same."""
        ours, theirs = (side.reader for side in self.sides)
        return ours.label(first) == theirs.label(second)

    def number(self, node: Node) -> int:
        """Return the number of the pair that *node* belongs to."""
        return self._numbers[node]

    def rest(self) -> tuple[list[Node], list[Node]]:
        """List the nodes of either graph that have no partner, in order."""
        first, second = ([n for n in side.nodes if n not in self._numbers] for side in self.sides)
        return first, second

    def is_complete(self) -> bool:
        """Tell whether one of the graphs has no node left that could be paired."""
        return len(self.forth) == min(len(side.nodes) for side in self.sides)

    def place(self, pair: NodePair) -> tuple[int, int]:
        """Return a key to sort pairs by; it does not depend on which graph comes first."""
        one, other = (side.position[n] for side, n in zip(self.sides, pair, strict=True))
        return one + other, abs(one - other)

    def returned(self, which: int) -> Mapping[Value, list[int]]:
        """Number the outputs, and return the numbers of each value that a graph returns."""
        graph, numbers = self.sides[which].graph, self.sides[which].numbers
        found: dict[Value, list[int]] = {}
        for number, places in enumerate(self.outputs):
            value = graph.outputs[places[which]]
            found.setdefault(value, []).append(numbers(("returned", number)))
        return found

    def same_value(self, first: Value | None, second: Value | None) -> bool:
        """Tell whether two values correspond: partners or equal computations make them."""
        if first is None or second is None:
            return first is second
        if self.resolve(0, first) == self.resolve(_SECOND, second):
            return True
        return self.are_partners(first, second)

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
        number = side.number_of(value, "exact")
        maker = value.producer
        if maker is None or number in self._common() or maker not in self._numbers:
            return number
        return side.numbers(("of partners", id(self), self._numbers[maker], value.index))

    def resolver(self, which: int) -> Callable[[Value], int]:
        """Return :meth:`resolve` for one side."""
        return lambda value: self.resolve(which, value)

    def _common(self) -> set[int]:
        """Return the numbers of the values that both graphs compute."""
        if self._shared is None:
            first, second = (
                {
                    side.number_of(output, "exact")
                    for node in side.nodes
                    for output in node.outputs
                    if output is not None
                }
                for side in self.sides
            )
            self._shared = first & second
        return self._shared


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
        steps: How many neighbours were looked at, for tests of growth.
    """

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.bridging = False
        self.steps = 0

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
                self.steps += len(stalled)
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
        for outputs in zip(first.outputs, second.outputs, strict=False):
            if outputs[0] is not None and outputs[1] is not None:
                yield from self._of_readers((outputs[0], outputs[1]))

    def _of_makers(self, values: tuple[Value | None, Value | None]) -> Iterator[NodePair]:
        """Propose the nodes that make two values that should be one."""
        self.steps += 1
        first, second = (
            None if value is None else self._free_maker(value, side)
            for value, side in zip(values, self.pairing.sides, strict=True)
        )
        if first is None or second is None or values[0] is None or values[1] is None:
            return
        if self.pairing.is_same_call(first, second) and values[0].index == values[1].index:
            yield first, second

    def _of_operands(self, pair: NodePair) -> Iterator[NodePair]:
        """Propose the makers of operands whose place does not matter, where it is clear which."""
        makers: tuple[list[Node], list[Node]] = ([], [])
        for which, node in enumerate(pair):
            side = self.pairing.sides[which]
            found = [self._free_maker(v, side) for v in slots(node) if v is not None]
            makers[which].extend(dict.fromkeys(maker for maker in found if maker is not None))
            self.steps += len(node.inputs)
        keyed = tuple([(node, 0) for node in nodes] for nodes in makers)
        yield from self._clear_pairs(keyed[0], keyed[1])

    def _of_readers(self, values: ValuePair) -> Iterator[NodePair]:
        """Propose the nodes that read two values that are one, where it is clear which."""
        found: list[list[tuple[Node, int]]] = []
        for value, side in zip(values, self.pairing.sides, strict=True):
            all_readers = list(readers(value, side.graph))
            self.steps += len(all_readers)
            free = [item for item in all_readers if not self.pairing.is_paired(item[0])]
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
        chosen = []
        for pair in sorted(votes, key=lambda pair: (-votes[pair], *place(pair))):
            if not any(map(self.pairing.is_paired, pair)):
                self.pairing.add(*pair)
                chosen.append(pair)
        return chosen

    def _likeness(self, pair: NodePair) -> int:
        sides = self.pairing.sides
        for weight, detail in enumerate(DETAILS):
            if sides[0].local(detail)[pair[0]] == sides[1].local(detail)[pair[1]]:
                return len(DETAILS) - weight
        return 0

    def _free_maker(self, value: Value, side: Side) -> Node | None:
        """Return the node of the graph that makes *value*, unless it has a partner."""
        maker = value.producer
        if maker is None or maker not in side.position or self.pairing.is_paired(maker):
            return None
        return maker


# Which input and output of one graph is which of the other.


def pair_inputs(first: Sequence[Value], second: Sequence[Value]) -> list[ValuePair]:
    """Pair the inputs of main graphs: by name, then those left that are declared alike, in order.

    Who calls a model names its inputs, so that names count here.
    """
    olds, news = free_inputs(first), {value.name: value for value in free_inputs(second)}
    pairs = [(old, news.pop(old.name)) for old in olds if old.name in news]
    paired = {old for old, _ in pairs}
    others = (old for old in olds if old not in paired)
    left = list(news.values())
    alike, _ = with_twins(others, left, lambda old, new: old.declared_type == new.declared_type)
    return pairs + alike


def pair_places(first: Sequence[Value], second: Sequence[Value]) -> list[ValuePair]:
    """Pair the inputs of bodies and functions, which are told apart by their places."""
    return list(zip(free_inputs(first), free_inputs(second), strict=False))


def pair_outputs(first: Side, second: Side, *, by_name: bool) -> list[PositionPair]:
    """Pair outputs: by name in main graphs, those left by what they are, then in order."""
    olds, news = first.graph.outputs, second.graph.outputs
    if not by_name:
        return [(place, place) for place in range(min(len(olds), len(news)))]
    # A file may return a value twice: the first of a name is paired with the first of that name.
    places: dict[str, deque[int]] = {}
    for place, value in enumerate(news):
        places.setdefault(value.name, deque()).append(place)
    pairs = [(k, places[v.name].popleft()) for k, v in enumerate(olds) if places.get(v.name)]
    paired = {old for old, _ in pairs}
    others = (place for place in range(len(olds)) if place not in paired)
    left = sorted(chain.from_iterable(places.values()))

    def is_equal(old: int, new: int) -> bool:
        return first.number_of(olds[old], "exact") == second.number_of(news[new], "exact")

    alike, rest = with_twins(others, left, is_equal)
    return [*pairs, *alike, *zip(rest, left, strict=False)]


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
