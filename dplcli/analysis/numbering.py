"""Numbers for what is computed alike: equal numbers for equal nodes and values of two models.

A value gets its number from the node that makes it and the numbers of what that reads. So two
values have equal numbers if the same computation makes them from the same inputs and constants.
(B. Alpern, M. Wegman, F. Zadeck, Detecting Equality of Variables in Programs, POPL 1988.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from dplcli.ir.model import called_function
from dplcli.ir.operators import COMMUTATIVE, draws_random, schema_of
from dplcli.ir.traversal import enclosing_node, is_read
from dplcli.ir.types import CHUNK, GRAPH_KINDS, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from dplcli.ir import Attribute, Function, Graph, Model, Node, Value

    Form: TypeAlias = tuple[Hashable, ...]

    Key: TypeAlias = tuple[str, str, str]

    ValuePair = tuple[Value, Value]

# What a node says by itself, in a form that two models can be compared by.


ANY_SLOT = -1
"""The slot of an operand whose place among the inputs does not matter."""
CAPTURED = -2
"""The slot in which a body of a node reads a value."""
ABSENT = -1

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
            values: dict[Value, None] = {}
            for body in node.subgraphs.values():
                read = [value for inner in body for value in (*inner.inputs, *self.captured(inner))]
                seen = (value for value in (*read, *body.outputs) if value is not None)
                values.update((value, None) for value in seen if value.graph is not body)
            self._captured[node] = tuple(values)
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
        if attribute.kind in GRAPH_KINDS or _is_textual_default(node, name, attribute):
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


def operands(
    node: Node, number: Callable[[Value], int], *, in_order: bool = False
) -> tuple[int, ...]:
    """Number what *node* reads, sorted where the order does not matter, or *in_order*."""
    numbers = [ABSENT if value is None else number(value) for value in slots(node)]
    return tuple(numbers if in_order or not is_commutative(node) else sorted(numbers))


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
        is_as_written: Whether operands count in their order, and copies do not: what an Identity
            gives has the number of what it reads.
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
    is_as_written: bool = False

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
        made_by: dict[Node, int] = {}
        for node in reader.nodes(graph):
            source = node.inputs[0] if node.inputs else None
            if self.is_as_written and node.op_type == "Identity" and source is not None:
                self._values.update((output, self.number_of(source)) for output in made(node))
                continue
            inputs = operands(node, self.number_of, in_order=self.is_as_written)
            form: Form = ("made", reader.label(node), inputs, reader.attributes(node))
            if node.subgraphs:
                # What its bodies compute from what they capture. The answer is kept: each
                # graph around the node asks again, mostly with the same captures.
                captured = self.reader.captured(node)
                key = (node, tuple(map(self.number_of, captured)))
                if key not in self.numbers.bodies:
                    self.numbers.bodies[key] = tuple(
                        self._body(name, body) for name, body in sorted(node.subgraphs.items())
                    )
                form += (self.numbers.bodies[key],)
            if reader.is_random(node):
                form += ("random", self.tag, len(made_by), id(graph))
            made_by[node] = numbers(form)
            for output in made(node):
                self._values[output] = numbers(("output", made_by[node], output.index))
        return made_by

    def _body(self, name: str, body: Graph) -> Form:
        for place, value in enumerate(free_inputs(body.inputs)):
            self._values[value] = input_number(self.numbers, body, place)
        numbered = self._number(body)
        outputs = tuple(map(self.number_of, body.outputs))
        return (name, len(body.inputs), outputs, tuple(sorted(numbered.values())))


def input_number(numbers: Numbers, graph: Graph, place: int) -> int:
    """Number an input of *graph* by its depth and place: the same from every graph around it."""
    depth = 0
    while graph.owner is not None:
        depth += 1
        graph = graph.owner.graph
    return numbers(("input", depth, place))


def nowhere(numbers: Numbers, tag: int) -> Callable[[Value], int]:
    """Return a numbering of values from outside all graphs: by name, for this *tag* only."""
    return lambda value: numbers(("nowhere", tag, value.name))


def same_structure(first: Model, second: Model) -> bool:
    """Tell whether two main graphs return the same, whatever the names in them.

    Inputs and outputs correspond by position, and Identity nodes are skipped. Functions are told by
    their names.
    """
    numbers = Numbers()
    returned = []
    for graph in (first.graph, second.graph):
        given = {
            value: input_number(numbers, graph, place)
            for place, value in enumerate(free_inputs(graph.inputs))
        }
        side = Side(
            graph, ModelReader({}), numbers, given, nowhere(numbers, 0), 0, is_as_written=True
        )
        returned.append([side.number_of(value) for value in graph.outputs])
    return returned[0] == returned[1]
