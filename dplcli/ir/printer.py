"""Print nodes as ONNX text does, and graphs as a window round the node that matters."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np

from dplcli.ir.types import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dplcli.ir.model import Node
    from dplcli.ir.types import Attribute


_LONG = 60
_OPAQUE_KINDS = frozenset({"sparse_tensor", "type_proto"})


def print_node(node: Node) -> str:
    """Return one line: ``y = Conv <group = 1> (x, w)``, with the node's name if it has one."""
    outputs = ", ".join("" if out is None else out.name for out in node.outputs)
    inputs = ", ".join('""' if value is None else value.name for value in node.inputs)
    stated = ", ".join(
        f"{name} = {print_attribute(attr)}" for name, attr in node.attributes.items()
    )
    attributes = f" <{stated}>" if stated else ""
    name = f"[{node.name}] " if node.name else ""
    op = f"{node.qualified_op}:{node.overload}" if node.overload else node.qualified_op
    return f"{name}{outputs} = {op}{attributes} ({inputs})"


def node_window(node: Node, *, radius: int = 3) -> list[str]:
    """Return the lines of *radius* nodes before and after *node*, which is marked ``>``."""
    before, after = ([*islice(_run(node, step), radius)] for step in ("prev", "next"))
    lines = [f"  {print_node(other)}" for other in reversed(before)]
    lines.append(f"> {print_node(node)}")
    return [*lines, *(f"  {print_node(other)}" for other in after)]


def _run(node: Node, step: Literal["prev", "next"]) -> Iterator[Node]:
    """Iterate over the nodes before *node*, or behind it, nearest first."""
    current = getattr(node, step)
    while current is not None:
        yield current
        current = getattr(current, step)


def print_attribute(attribute: Attribute) -> str:
    """Return the value of an attribute, in one line."""
    if attribute.ref:
        return f"@{attribute.ref}"
    value = attribute.value
    if isinstance(value, tuple):
        text = f"[{', '.join(map(_print_item, value))}]"
        return text if len(text) <= _LONG else f"[{len(value)} items]"
    return _print_item(value) if attribute.kind not in _OPAQUE_KINDS else f"<{attribute.kind}>"


def _print_item(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return str(short_float(value))
    return repr(value) if isinstance(value, (bytes, int)) else "{…}"


def short_float(value: float | np.generic) -> float:
    """Return a number with no digit that its type does not need; ONNX keeps attributes as float32.

    What numpy made has a type of its own.
    """
    with np.errstate(over="ignore"):
        return float(str(value if isinstance(value, np.generic) else np.float32(value)))


def print_numbers(tensor: Tensor) -> str:
    """Return the elements of a tensor, each as short as its type allows."""
    data = tensor.numpy()
    if data.dtype.kind != "f":
        return str(data.tolist())
    return str(np.array([*map(short_float, data.reshape(-1))]).reshape(data.shape).tolist())
