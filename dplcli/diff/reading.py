"""What a node says by itself, in a form that can be compared between two models."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

from dplcli.ir.functions import called_function
from dplcli.ir.operators import COMMUTATIVE, schema_of
from dplcli.ir.randomness import RANDOM_OPS, draws_random
from dplcli.ir.tensor import Tensor
from dplcli.ir.traversal import enclosing_node

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from dplcli.ir import Attribute, Function, Graph, Node, Value

    Form: TypeAlias = tuple[Hashable, ...]
    Key: TypeAlias = tuple[str, str, str]

ANY_SLOT = -1
"""The slot of an operand whose place among the inputs does not matter."""
CAPTURED = -2
"""The slot in which a body of a node reads a value."""

_GRAPHS = frozenset({"graph", "graphs"})
_ONES = frozenset({"strides", "dilations"})


class Numbers:
    """Small numbers for forms, the same for both models.

    Attributes:
        bodies: The form of a node's bodies, by the node and all that it depends on. A body that
            nests deeply is part of the form of each node round it.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._known: dict[Form, int] = {}
        self.bodies: dict[tuple[Node, Form], Form] = {}

    def __call__(self, form: Form) -> int:
        """Return the number of *form*."""
        return self._known.setdefault(form, len(self._known))


class Reader:
    """Reads the nodes and constants of one model; what it has read it remembers.

    Args:
        aliases: For functions that the other model has under another key: that key.
    """

    def __init__(self, aliases: Mapping[Key, Key]) -> None:
        """Remember nothing yet."""
        self.aliases = aliases
        self._tensors: dict[Value, Tensor | None] = {}
        self._contents: dict[Value, Form] = {}
        self._attributes: dict[tuple[int, str, str, int], Form] = {}
        self._captured: dict[Node, tuple[Value, ...]] = {}
        self._harmless: set[Function] = set()
        self._random_bodies: dict[Node, bool] = {}

    def label(self, node: Node) -> Key:
        """Return what *node* calls."""
        key = (node.domain, node.op_type, node.overload)
        return self.aliases.get(key, key)

    def nodes(self, graph: Graph) -> Iterator[Node]:
        """Iterate over the nodes of *graph* that are not just constants."""
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

    def content(self, value: Value) -> Form:
        """Return what a constant holds; equal only if every bit is."""
        if value not in self._contents:
            tensor = self.tensor(value)
            assert tensor is not None  # noqa: S101  # only constants are asked for
            self._contents[value] = content_of(tensor)
        return self._contents[value]

    def attributes(self, node: Node) -> Form:
        """Return the attributes of *node* but its bodies; those that state a default are left out.

        So are those that state what the operator's page gives as the default in words.
        """
        stated = node.attributes
        if not stated:
            return ()
        version = node.graph.opset_imports.get(node.domain, 0)
        key = (id(stated), node.domain, node.op_type, version)
        if key not in self._attributes:
            self._attributes[key] = tuple(
                sorted((name, form) for name, form in attribute_forms(node).items())
            )
        return self._attributes[key]

    def is_random(self, node: Node) -> bool:
        """Tell whether *node* computes something else each time; recursion is as for bodies."""
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
        """Return what the bodies of *node* read or return from round it, each once."""
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


def content_of(tensor: Tensor) -> Form:
    """Return element type, shape and a digest of the data."""
    array = tensor.numpy()
    data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    return (tensor.dtype, tensor.shape, blake2b(data, digest_size=16).digest())


def attribute_forms(node: Node) -> dict[str, Form]:
    """Return a comparable form of every attribute of *node* that states more than a default."""
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
    """Return what *attribute* says, comparable and sortable."""
    if attribute.ref:
        return ("ref", attribute.ref)
    value = attribute.value
    if isinstance(value, Tensor):
        return (attribute.kind, repr(content_of(value)))
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return (attribute.kind, repr([content_of(item) for item in value]))
    return (attribute.kind, repr(value))


def _is_textual_default(node: Node, name: str, attribute: Attribute) -> bool:
    """Tell whether *attribute* states what the standard says in words is the default."""
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
    """Tell whether the weight of *node* is there to say how large the kernel is."""
    return "Conv" in node.op_type and any(
        value is not None and value.is_constant for value in node.inputs[1:]
    )


def is_commutative(node: Node) -> bool:
    """Tell whether the inputs of *node* may stand in any order."""
    return not node.domain and node.op_type in COMMUTATIVE


def free_inputs(values: Iterable[Value]) -> list[Value]:
    """Leave out what is an input only because old files list every initializer as one."""
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
