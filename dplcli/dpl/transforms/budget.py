"""How many bytes the folding of constants may add to a model.

Each fold is judged by itself, and by what stands in the model: a budget that a run spends would
be there anew in the next run, which would then fold what this one refused. While other rules only
take nodes out, what is refused once is refused for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dplcli.ir import Model, Node, Tensor, Value

_BYTES_PER_NODE = 4
"""What one fold may add for each node of the model: a small part of what a node takes."""

MOST_BYTES = 4096
"""What one fold may add to any model."""

_NODE = 40
"""What a node takes in a file besides its names."""

_BITS = {"complex128": 128, "complex64": 64, "bool": 8}


def may_become(node: Node, size: int) -> bool:
    """Tell whether *node* may become constants of *size* bytes."""
    growth = size - freed_by(node)
    if growth <= 0 or growth > MOST_BYTES:
        return growth <= 0
    return growth <= _BYTES_PER_NODE * _node_count(node.graph.model)


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
