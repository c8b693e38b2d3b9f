"""How many bytes the folding of constants may add to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dplcli.ir import Model, Node, Tensor, Value

_SHARE = 32
"""A model may grow by one part in so many."""

_NODE = 40
"""What a node takes in a file besides its names."""

_BITS = {"complex128": 128, "complex64": 64, "bool": 8}
_MOST_LOOKS = 64


class SizeBudget:
    """The bytes that one model may take: a little more than it took at first."""

    def __init__(self) -> None:
        """Measure the model when first asked."""
        self._most = 0
        self._size = 0
        self._nodes = 0
        self._looks = 0

    def allows(self, node: Node, size: int) -> bool:
        """Tell whether *node* may become constants of *size* bytes."""
        growth = size - freed_by(node)
        if growth <= 0:
            return True
        model = node.graph.model
        if not self._most:
            self._look(model)
            self._most = self._size + self._size // _SHARE
        if self._size + growth > self._most and self._may_have_shrunk(model):
            self._look(model)
        return self._size + growth <= self._most

    def spend(self, node: Node, size: int) -> None:
        """Note that *node* becomes constants of *size* bytes."""
        self._size += max(size - freed_by(node), 0)

    def _look(self, model: Model) -> None:
        self._size = measure(model)
        self._nodes = _node_count(model)
        self._looks += 1

    def _may_have_shrunk(self, model: Model) -> bool:
        return self._looks < _MOST_LOOKS and _node_count(model) < self._nodes


def measure(model: Model) -> int:
    """Estimate the bytes of a model's constants and nodes."""
    total = 0
    for graph in model.graphs():
        total += sum(bytes_of(value) for value in graph.initializers)
        total += sum(_bytes_of_node(node) for node in graph)
    return total


def freed_by(node: Node) -> int:
    """Return how many bytes go away with *node*: its own, and constants that only it reads."""
    freed = _bytes_of_node(node)
    for value in {item for item in node.inputs if item is not None}:
        is_only_reader = all(user is node for user, _ in value.iter_uses())
        if is_only_reader and not value.returned_by and not value.is_graph_input:
            freed += bytes_of(value)
    return freed


def _node_count(model: Model) -> int:
    return sum(graph.node_count for graph in model.graphs())


def _bytes_of_node(node: Node) -> int:
    named = [value for value in (*node.inputs, *node.outputs) if value is not None]
    held = bytes_of(node.outputs[0]) if node.op_type == "Constant" and node.outputs[0] else 0
    return _NODE + len(node.name) + sum(len(value.name) for value in named) + held


def bytes_of(value: Value) -> int:
    """Return the size of a constant's data; 0 for what is no constant."""
    tensor = value.constant if value.is_constant else None
    return 0 if tensor is None else tensor_bytes(tensor)


def tensor_bytes(tensor: Tensor) -> int:
    """Return the size of a tensor's data in a file."""
    return size_in_bytes(tensor.dtype, tensor.size)


def size_in_bytes(dtype: str, count: int) -> int:
    """Return what *count* elements of a type take in a file; of text at least."""
    digits = "".join(char if char.isdigit() else " " for char in dtype).split()
    bits = _BITS.get(dtype, int(digits[0]) if digits else 8)
    return (count * bits + 7) // 8
