"""What differs between two graphs: a short sentence for each change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dplcli.analysis.numbering import readers
from dplcli.diff.comparison import AttributeChange, distance
from dplcli.ir.operators import attribute_of
from dplcli.ir.printer import print_attribute
from dplcli.ir.types import Tensor, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from dplcli.diff.comparison import (
        Distance,
        GraphDiff,
        InputChange,
        NodeChange,
        SignatureChange,
        WeightChange,
    )
    from dplcli.ir import Attribute, Node, Value


class Wording(NamedTuple):
    """How changes are written.

    Attributes:
        arrow: What stands between before and after.
        quote: Makes what is written of a name.
    """

    arrow: str
    quote: Callable[[str], str]

    def pair(self, before: object, after: object) -> str:
        """Write what was before and what is after."""
        return f"{before} {self.arrow} {after}"

    def once(self, before: str, after: str) -> str:
        """Write a name before and after, once if it is the same."""
        return before if before == after else self.pair(before, after)

    def named(self, node: Node) -> str:
        """Write the operator of a node and its name, or that of its first output."""
        return f"{node.qualified_op} {self.quote(node.label)}"


SENTENCES = Wording("→", repr)
"""Changes in sentences: ``Conv 'b2': dilations [1, 1] → [2, 1]``."""
ROWS = Wording("->", str)
"""The same in rows of a table: ``Conv b2: dilations [1, 1] -> [2, 1]``."""

_MOST_ITEMS = 8
"""Up to how many numbers are written out."""
_MOST_FACTS = 4
"""Up to how many facts about a node are written."""


def sentences(diff: GraphDiff, nodes: Collection[Node] | None = None) -> Iterator[str]:
    """Yield a sentence for each change: of nodes, of weights, then of inputs and outputs.

    Args:
        diff: The changes.
        nodes: Nodes of either graph. Only what changes of them is said, of weights and inputs that
            they read, and of outputs that they make. All is said if this is None.
    """
    chosen = None if nodes is None else frozenset(nodes)

    def is_chosen(*found: Node | None) -> bool:
        return chosen is None or not chosen.isdisjoint(found)

    def concerns(change: WeightChange | SignatureChange) -> bool:
        ends = ((change.before, diff.before), (change.after, diff.after))
        return any(
            is_chosen(value.producer, *(node for node, _ in readers(value, graph)))
            for value, graph in ends
            if value is not None
        )

    told = [node_change(item) for item in diff.changes if is_chosen(item.before, item.after)]
    told += [removed(node) for node in diff.removed if is_chosen(node)]
    told += [added(node) for node in diff.added if is_chosen(node)]
    told += [weight(item) for item in diff.weights if concerns(item)]
    told += [signature(item) for item in diff.signature if concerns(item)]
    yield from dict.fromkeys(told)


def removed(node: Node) -> str:
    """Say that only the first graph has *node*."""
    return f"{SENTENCES.named(node)} is gone"


def added(node: Node) -> str:
    """Say that only the second graph has *node*."""
    return f"{SENTENCES.named(node)} is new"


def node_change(change: NodeChange) -> str:
    """Say what differs of a node that is in both graphs."""
    name = both(change.before, change.after)
    read = [_reading(item) for item in change.inputs]
    facts = [*attributes(change), *outputs(change), *read]
    if len(facts) > _MOST_FACTS:
        facts = [*facts[: _MOST_FACTS - 1], f"{len(facts) - _MOST_FACTS + 1} differences more"]
    if not facts:
        return name if change.is_other_op else f"{name}: another operator"
    if change.is_other_op or len(read) != len(facts):
        return f"{name}: {'; '.join(facts)}"
    return f"{name} {' and '.join(facts)}"


def both(before: Node, after: Node, wording: Wording = SENTENCES) -> str:
    """Name a node of both graphs, once if it has the same name in both."""
    if before.qualified_op == after.qualified_op and before.label != after.label:
        return f"{wording.named(before)} ({wording.quote(after.label)})"
    return wording.once(wording.named(before), wording.named(after))


def attributes(change: NodeChange, wording: Wording = SENTENCES) -> Iterator[str]:
    """Say how the attributes of a node differ, with defaults that the standard gives in words."""
    for item in change.attributes:
        said = attribute(item, wording)
        if item.before is None or item.after is None:
            ends = (attribute_of(node, item.name) for node in (change.before, change.after))
            full = AttributeChange(item.name, *ends)
            said = said if full.before == full.after else attribute(full, wording)
        yield said


def attribute(change: AttributeChange, wording: Wording = SENTENCES) -> str:
    """Say how an attribute differs."""
    old, new = (item and not item.ref and item.value for item in (change.before, change.after))
    said = wording.pair(_value_of(change.before), _value_of(change.after))
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        # how the data of two tensors differs
        apart, kind = distance(old, new), TensorType(old.dtype, old.shape)
        few = _few(old, new, wording)
        said = (few if few or apart is None else f"{kind}: {_apart(apart)}") or said
    elif isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new) > _MOST_ITEMS:
        count = sum(one != other for one, other in zip(old, new, strict=True))
        said = f"{_value_of(change.before)}: {count} of them differ"
    return f"{change.name} {said}"


def outputs(change: NodeChange) -> Iterator[str]:
    """Say which outputs only one of two nodes makes."""
    for index in change.outputs:
        is_made = any(change.after.outputs[index : index + 1])
        yield f"output {index} {'added' if is_made else 'removed'}"


def _reading(change: InputChange) -> str:
    before, after = change.before, change.after
    if before is None or after is None:
        value = before or after
        return f"{'also' if before is None else 'no longer'} reads {value.name if value else ''!r}"
    if before.name != after.name:
        return f"reads {after.name!r}, not {before.name!r}"
    makers = [SENTENCES.named(it.producer) if it.producer else "no node" for it in (after, before)]
    return f"reads {after.name!r} of {makers[0]}, not of {makers[1]}"


def weight(change: WeightChange, wording: Wording = SENTENCES) -> str:
    """Say how far a weight is from what it was."""
    before, after = change.before, change.after
    name = f"weight {wording.once(wording.quote(before.name), wording.quote(after.name))}"
    old, new = type_of(before), type_of(after)
    if change.distance is None and old == new:
        return f"{name}: stored in one model only"
    data = _few(before.constant, after.constant, wording)
    if data is None:
        data = _apart(change.distance) if change.distance else wording.pair(old, new)
    return f"{name}: {data}"


def type_of(value: Value) -> TensorType | None:
    """Return the type of a weight."""
    tensor = value.constant
    return value.declared_type if tensor is None else TensorType(tensor.dtype, tensor.shape)


def signature(change: SignatureChange, wording: Wording = SENTENCES) -> str:
    """Say how an input or output differs."""
    before, after = change.before, change.after
    value = before or after
    name = f"{change.side} {wording.quote(value.name if value else '')}"
    if before is None or after is None:
        return f"{name} is {'new' if before is None else 'gone'}"
    if change.what == "renamed":
        return f"{name} {wording.arrow} {wording.quote(after.name)}: renamed"
    if change.what == "moved":
        return f"{name}: at another place among the {change.side}s"
    if change.what == "retyped":
        types = before.declared_type, after.declared_type
        return f"{name}: {'another type' if types == (None, None) else wording.pair(*types)}"
    makers = (wording.named(v.producer) if v.producer else v.name for v in (before, after))
    return f"{name}: made by {wording.pair(*makers)}"


def _apart(found: Distance) -> str:
    kind, by = "texts", ""
    if found.max_abs is not None:
        kind, by = "numbers", f", by at most {found.max_abs:.3g}"
    return f"{found.changed:,} of {found.size:,} {kind}{by}"


def _few(before: Tensor | None, after: Tensor | None, wording: Wording) -> str | None:
    """Write out two short vectors, or two numbers; None if that does not tell them apart."""
    if before is None or after is None or before.dtype != after.dtype:
        return None
    if len(before.shape) != len(after.shape):
        return None
    old, new = _written(before), _written(after)
    return wording.pair(old, new) if old and new and old != new else None


def _written(tensor: Tensor) -> str:
    if len(tensor.shape) > 1 or tensor.size > _MOST_ITEMS:
        return ""
    text = ", ".join(map(str, tensor.numpy().reshape(-1)))
    return f"[{text}]" if tensor.shape else text


def _value_of(item: Attribute | None) -> str:
    if item is None:
        return "(none)"
    if isinstance(item.value, tuple) and len(item.value) > _MOST_ITEMS and not item.ref:
        return f"[{len(item.value)} items]"
    return print_attribute(item)
