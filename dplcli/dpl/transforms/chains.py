"""Nodes that undo, repeat or continue what the node before them does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dplcli.dpl.dtype_lattice import widens
from dplcli.dpl.nodewise import nodewise
from dplcli.dpl.transforms.remake import remade
from dplcli.ir.operators import attribute_of

if TYPE_CHECKING:
    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node, Value

_REACH = 2
_REPEATABLE = ("Relu", "Abs", "Floor", "Ceil", "Round", "Sign")


@nodewise("Identity")
def drop_identity(match: Match, build: GraphBuilder) -> Operand | None:  # noqa: ARG001  # nothing is made
    """Read what an Identity copies.

    Holds when: the copy is not returned; or what it copies is made in the same graph and not
    returned, too, so that its maker can make the result under the result's name.
    """
    node = match.root
    source = node.inputs[0]
    if source is None or len(match.outputs) != 1:
        return None
    if not match.outputs[0].returned_by:
        return source
    is_made_here = source.producer is not None and source.graph is node.graph
    return source if is_made_here and not source.returned_by else None


@nodewise(*_REPEATABLE, reach=_REACH)
def drop_repeated(match: Match, build: GraphBuilder) -> Operand | None:  # noqa: ARG001  # nothing is made
    """Read the input of a node that does nothing more to what the same operator has made."""
    inner = inner_node(match.root)
    return (
        match.root.inputs[0] if inner is not None and inner.op_type == match.root.op_type else None
    )


@nodewise("Transpose", reach=_REACH)
def merge_transposes(match: Match, build: GraphBuilder) -> Operand | None:
    """Transpose once what is transposed twice, or not at all.

    Before: ``y = Transpose(Transpose(x, perm=p), perm=q)``
    After:  ``y = Transpose(x, perm=[p[i] for i in q])``
    """
    inner = inner_node(match.root)
    if inner is None or inner.op_type != "Transpose":
        return None
    source, first, second = inner.inputs[0], _perm(inner), _perm(match.root)
    if source is None or first is None or second is None or len(first) != len(second):
        return None
    perm = [first[axis] for axis in second]
    return source if perm == sorted(perm) else build.op("Transpose", source, perm=perm)


def _perm(node: Node) -> tuple[int, ...] | None:
    perm = attribute_of(node, "perm")
    if perm is None or perm.ref or not isinstance(perm.value, tuple):
        return None
    numbers = perm.value
    return numbers if sorted(numbers) == [*range(len(numbers))] else None


@nodewise("Cast", reach=_REACH)
def merge_casts(match: Match, build: GraphBuilder) -> Operand | None:
    """Convert once what is converted twice, if the first conversion keeps every number.

    Before: ``y = Cast(Cast(x, to=float64), to=float32)`` with *x* float16
    After:  ``y = Cast(x, to=float32)``
    """
    inner = inner_node(match.root)
    if inner is None or inner.op_type != "Cast":
        return None
    source, middle = inner.inputs[0], match.root.inputs[0]
    if source is None or middle is None:
        return None
    first, second, last = (_dtype(value) for value in (source, middle, match.root.outputs[0]))
    if first is None or second is None or last is None or not widens(first, second):
        return None
    if first == last:
        return source
    return remade(build, match.root, [source])[0]


def _dtype(value: Value | None) -> str | None:
    known = None if value is None else value.known_type()
    return None if known is None else known.dtype


def inner_node(node: Node) -> Node | None:
    """Return the standard operator's node of the same graph that makes the first input."""
    value = node.inputs[0] if node.inputs else None
    inner = None if value is None else value.producer
    if inner is None or inner.domain or inner.graph is not node.graph:
        return None
    return inner


@nodewise("Concat", reach=_REACH)
def merge_concats(match: Match, build: GraphBuilder) -> Operand | None:
    """Join at once what is joined in steps, along one axis.

    Before: ``y = Concat(a, Concat(b, c, axis=1), axis=1)``
    After:  ``y = Concat(a, b, c, axis=1)``
    Holds when: nothing else reads the inner result.
    """
    node = match.root
    parts: list[Value | None] = []
    for value in node.inputs:
        inner = None if value is None else value.producer
        if value is not None and inner is not None and _continues(node, inner, value):
            parts += inner.inputs
        else:
            parts.append(value)
    return None if len(parts) == len(node.inputs) else remade(build, node, parts)[0]


def _continues(node: Node, inner: Node, value: Value) -> bool:
    if inner.op_type != "Concat" or inner.domain or inner.graph is not node.graph:
        return False
    is_read_here_only = value.use_count == 1 and not value.returned_by
    return is_read_here_only and inner.attributes.get("axis") == node.attributes.get("axis")
