"""The graphs of a model as numbered nodes, for the search of what repeats in them.

A node's label says all that two nodes must have in common to stand at the same place of two equal
blocks: operator, opset, how many inputs and which outputs are there, the names and kinds of the
attributes. What feeds it does not count: that is compared edge by edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.ir import Tensor
from dplcli.ir.operators import attribute_of, schema_of
from dplcli.ir.traversal import enclosing_node
from dplcli.passes.marks import REPEAT_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from dplcli.ir import Attribute, Graph, Model, Node, Value

FIXED = -1
"""Label of a node that no block may contain."""

_LARGE_CONSTANT = 64
"""A Constant node of more elements is taken for a weight: blocks read it and do not contain it."""

_PLAIN_KINDS = frozenset({"int", "ints", "string", "strings", "float", "floats"})

_WINDOW_ATTRIBUTES = ("dilations", "pads", "strides")

_COLOURINGS = 3
"""How far the finest colours look."""


class RepeatIndex:
    """Every node that may be in a block, by number; numbers follow the graphs' order.

    Args:
        model: The model, which must not be edited while the index is in use.
        graphs: Which of its graphs to look at.
        same_attributes: Whether the values of attributes are part of the label.

    Attributes:
        nodes: The nodes.
        numbers: The number of each.
        labels: By node, equal for those that may stand for each other; :data:`FIXED` for others.
        makers: By node and input slot, the node that makes what is read and the index of its
            output; None for what no node of the same graph makes.
        readers: By node, what reads its outputs in the same graph: output, slot and reader.
        shown: By node, the outputs that are also read elsewhere: returned, or inside a body.
        full_size: How many nodes there would be without the blocks found before.
        colours: Labels of ever larger neighbourhoods, the smallest first.
    """

    def __init__(
        self, model: Model, graphs: Iterable[Graph], *, same_attributes: bool = False
    ) -> None:
        """Number the nodes of *graphs*."""
        self.model = model
        self.nodes: list[Node] = []
        self.numbers: dict[Node, int] = {}
        self.labels: list[int] = []
        self.makers: list[tuple[tuple[int, int] | None, ...]] = []
        self.readers: list[list[tuple[int, int, int]]] = []
        self.shown: list[tuple[int, ...]] = []
        self._same_attributes = same_attributes
        self.full_size = 0
        self._sizes: dict[tuple[str, str, str], int] = {}
        self._numbers: dict[Hashable, int] = {}
        for graph in graphs:
            self._add(graph)
        self.colours = [self.labels]
        for _ in range(_COLOURINGS):
            self.colours.append(self._refined(self.colours[-1]))

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self.nodes)

    def _add(self, graph: Graph) -> None:
        numbers = self.numbers
        first = len(self.nodes)
        for number, node in enumerate(graph, first):
            numbers[node] = number
            self.nodes.append(node)
            self.labels.append(self._label(node))
            self.readers.append([])
            makers: list[tuple[int, int] | None] = []
            for slot, value in enumerate(node.inputs):
                if value is None or value.producer is None or value.graph is not graph:
                    makers.append(None)
                    continue
                maker = numbers[value.producer]
                makers.append((maker, value.index))
                self.readers[maker].append((value.index, slot, number))
            self.makers.append(tuple(makers))
        self.shown += [_shown_outputs(node) for node in self.nodes[first:]]
        self.full_size += sum(self._size(node) for node in self.nodes[first:])

    def _size(self, node: Node) -> int:
        """Count the nodes that *node* stands for: a call, for those of the function."""
        if not is_repeat_call(node):
            return 1
        key = (node.domain, node.op_type, node.overload)
        if key not in self._sizes:
            function = self.model.functions.get(key)
            self._sizes[key] = 1
            if function is not None:
                self._sizes[key] = sum(self._size(inner) for inner in function.body)
        return self._sizes[key]

    def _label(self, node: Node) -> int:
        if _is_fixed(node):
            return FIXED
        opset = node.graph.opset_imports.get(node.domain, 0)
        inputs = [value is not None for value in node.inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [value is not None for value in node.outputs]
        operator = (node.domain, node.op_type, node.overload, opset)
        key = (operator, tuple(inputs), tuple(outputs), self._attributes(node))
        return self._numbers.setdefault(key, len(self._numbers))

    def _attributes(self, node: Node) -> Hashable:
        """Return names and kinds of what *node* states or leaves to the schema's defaults."""
        known = complete_attributes(node)
        if self._same_attributes:
            return tuple(sorted((name, fingerprint(a)) for name, a in known.items()))
        return tuple(sorted((name, attribute.kind) for name, attribute in known.items()))

    def _refined(self, colours: Sequence[int]) -> list[int]:
        """Let the colour of each node tell those of its neighbours, too."""
        numbers: dict[Hashable, int] = {}
        refined = []
        for number, colour in enumerate(colours):
            if colour == FIXED:
                refined.append(FIXED)
                continue
            above = tuple(
                [None if m is None else (colours[m[0]], m[1]) for m in self.makers[number]]
            )
            below = [(index, slot, colours[user]) for index, slot, user in self.readers[number]]
            below.sort()
            key = (colour, above, tuple(below))
            refined.append(numbers.setdefault(key, len(numbers)))
        return refined


def complete_attributes(node: Node) -> dict[str, Attribute]:
    """Return the attributes of *node*, with those it leaves to defaults that need no inference."""
    schema = schema_of(node)
    known: dict[str, Attribute] = {**(schema.defaults if schema else {}), **node.attributes}
    if "kernel_shape" in known:
        for name in _WINDOW_ATTRIBUTES:
            implied = known.get(name) or attribute_of(node, name)
            if implied is not None:
                known[name] = implied
    return known


def is_repeat_call(node: Node) -> bool:
    """Tell whether *node* is a call that an earlier search has left."""
    return node.domain == REPEAT_DOMAIN


def _is_fixed(node: Node) -> bool:
    if node.subgraphs or is_repeat_call(node):
        return True
    if not node.domain and "" not in node.graph.opset_imports:
        return True
    if not any(value is not None for value in node.outputs):
        return True
    return is_constant(node) and not _is_small(node)


def is_constant(node: Node) -> bool:
    """Tell whether *node* is a Constant of the standard domain."""
    return node.op_type == "Constant" and not node.domain


def _is_small(node: Node) -> bool:
    value = node.outputs[0]
    tensor = None if value is None else value.constant
    return tensor is not None and not tensor.is_external and tensor.size <= _LARGE_CONSTANT


def _shown_outputs(node: Node) -> tuple[int, ...]:
    return tuple(
        value.index for value in node.outputs if value is not None and is_read_elsewhere(value)
    )


def is_read_elsewhere(value: Value) -> bool:
    """Tell whether *value* is returned, or read in a body inside its graph."""
    if value.returned_by:
        return True
    return any(user.graph is not value.graph for user, _ in value.iter_uses())


def body_readers(node: Node) -> list[Node]:
    """List the nodes of the same graph whose bodies read or return what *node* makes."""
    found = []
    for value in node.outputs:
        if value is None:
            continue
        inner = [user for user, _ in value.iter_uses() if user.graph is not node.graph]
        inner += [g.owner for g in value.returned_by if g is not node.graph and g.owner is not None]
        found += [enclosing_node(user, node.graph) for user in inner]
    return [reader for reader in found if reader is not None]


def fingerprint(attribute: Attribute) -> Hashable:
    """Return what is equal for attributes of equal value; long tensors equal only themselves."""
    if attribute.ref:
        return (attribute.kind, "ref", attribute.ref)
    value = attribute.value
    if attribute.kind == "tensor":
        return (attribute.kind, *_tensor_key(value))
    if attribute.kind in _PLAIN_KINDS:
        return (attribute.kind, repr(value))
    return (attribute.kind, str(id(value)))


def _tensor_key(value: object) -> tuple[Hashable, ...]:
    if not isinstance(value, Tensor) or value.is_external or value.size > _LARGE_CONSTANT:
        return (str(id(value)),)
    data = value.numpy()
    content = repr(data.tolist()) if data.dtype == object else data.tobytes()
    return (value.dtype, value.shape, content)
