"""What calls and functions that dpl wrote say of what they took the place of."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dplcli.ir import Annotation
from dplcli.ir.model import NO_REMARKS, NODES_KEY, Remarks, StatedType, called_function
from dplcli.ir.types import DTYPE_CODES, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.ir import Function, Graph, Node


# Read what a call says of the nodes that it took the place of.
#
# Files come from anywhere, so everything is checked; what does not read, or does not fit the
# function, is as good as missing.


UNDO_KEY = "dpl.undo"
"""Metadata key of a call: what else it takes to put them back (:mod:`dplcli.passes.partition`)."""

_LONGEST_DISTANCE = 1 << 31

Kind = TypeVar("Kind")


class RecordEntry(NamedTuple):
    """One node that a call stands for.

    Attributes:
        op: Its operator, with the domain.
        name: Its name.
        outputs: Names of its outputs, "" where one is omitted.
        defaulted: The attributes that the file left to their defaults.
    """

    op: str
    name: str
    outputs: tuple[str, ...]
    defaulted: frozenset[str]

    @property
    def first_output(self) -> str:
        """The name of its first output, as :attr:`dplcli.ir.Node.first_output`."""
        return next(filter(None, self.outputs), "")

    def fits(self, node: Node) -> bool:
        """Tell whether *node* may be a copy of it: of the same operator, with as many outputs."""
        if node.qualified_op != self.op or len(node.outputs) != len(self.outputs):
            return False
        pairs = zip(node.outputs, self.outputs, strict=True)
        return all((value is None) == (not name) for value, name in pairs)


@dataclass(frozen=True)
class ConstantRecord:
    """What made a constant that is embedded in a function.

    Attributes:
        up: How many graphs outside the call's it was.
        node: Name of the node that made it; None for an initializer.
        attribute: The attribute that held the number.
        reads: What an Identity node copied; "" for other nodes.
        known: The type that the file stated of it.
        remarks: What the node carried for readers and tools.
        rest: What the attribute did.
    """

    up: int = 0
    node: str | None = None
    attribute: str = "value"
    reads: str = ""
    known: StatedType | None = None
    remarks: Remarks = NO_REMARKS
    rest: bytes = b""


class BodiesRecord(NamedTuple):
    """What the bodies of a node had that their form leaves open; all in the order of the form.

    Attributes:
        attributes: The node's attributes, in their order.
        captures: What was captured, where the call reads it by another name.
        graphs: Names of the graphs.
        nodes: Names of the nodes.
        values: Names of the values.
        types: What was stated of values, as the codec encodes it.
        remarks: What nodes carried for readers and tools.
        rest: What graphs did, as the codec encodes it.
    """

    attributes: tuple[str, ...]
    captures: Mapping[int, str]
    graphs: tuple[str, ...]
    nodes: tuple[str, ...]
    values: tuple[str, ...]
    types: Mapping[int, bytes]
    remarks: Mapping[int, Remarks]
    rest: Mapping[int, bytes]


@dataclass(frozen=True)
class CallRecord:
    """What a call stands for; :mod:`dplcli.passes.partition` explains the parts."""

    entries: tuple[RecordEntry, ...]
    run: int = 0
    order: tuple[int | str, ...] = ()
    behind: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    swapped: frozenset[int] = frozenset()
    constants: Mapping[str, ConstantRecord] = field(default_factory=dict)
    types: Mapping[tuple[int, int], StatedType] = field(default_factory=dict)
    remarks: Mapping[int, Remarks] = field(default_factory=dict)
    repeated: frozenset[int] = frozenset()
    stated: frozenset[int] = frozenset()
    bodies: Mapping[int, BodiesRecord] = field(default_factory=dict)

    def following(self) -> dict[str, str]:
        """Say what stood just behind nodes, all by first outputs; "" for the last one."""
        order = self.order or range(len(self.entries))
        names = [i if isinstance(i, str) else self.entries[i].first_output for i in order]
        pairs = zip(order, names, [*names[1:], ""], strict=True)
        return {name: after for i, name, after in pairs if not isinstance(i, str)} | {**self.behind}


class _UnreadableError(Exception):
    """The metadata are not what dpl writes."""


def read_call(call: Node) -> CallRecord | None:
    """Return what a call stands for; None if it does not say, or cannot be understood."""
    entries = read_entries(call)
    try:
        rest = _as(dict, _parsed(call.remarks.metadata.get(UNDO_KEY, "{}"))) if entries else {}
        return _record(entries, rest) if entries else None
    except _UnreadableError:
        return None


def read_entries(call: Node) -> tuple[RecordEntry, ...]:
    """Return which nodes a call stands for; none if it does not say, or cannot be understood."""
    try:
        return tuple(map(_entry, _as(list, _parsed(call.remarks.metadata.get(NODES_KEY, "[]")))))
    except _UnreadableError:
        return ()


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableError from error


def _record(entries: tuple[RecordEntry, ...], rest: Mapping[str, Any]) -> CallRecord:
    stated = _as(list, rest.get("order", []))
    order = tuple(item if isinstance(item, str) else _distance(item) for item in stated)
    if order and sorted(i for i in order if isinstance(i, int)) != list(range(len(entries))):
        raise _UnreadableError
    return CallRecord(
        entries,
        _distance(rest.get("run", 0)),
        order,
        {name: _text(item) for name, item in _as(dict, rest.get("behind", {})).items()},
        {
            _number(key): {_number(slot): _text(name) for slot, name in _as(dict, slots).items()}
            for key, slots in _as(dict, rest.get("reads", {})).items()
        },
        frozenset(_distance(item) for item in _as(list, rest.get("swapped", []))),
        {name: _constant(_as(dict, i)) for name, i in _as(dict, rest.get("constants", {})).items()},
        {_output(key): _type(item) for key, item in _as(dict, rest.get("types", {})).items()},
        {_number(key): _remarks(i) for key, i in _as(dict, rest.get("remarks", {})).items()},
        frozenset(_distance(item) for item in _as(list, rest.get("repeated", []))),
        frozenset(_distance(item) for item in _as(list, rest.get("stated", []))),
        {
            _number(key): _bodies(_as(dict, i))
            for key, i in _as(dict, rest.get("bodies", {})).items()
        },
    )


def _bodies(item: Mapping[str, Any]) -> BodiesRecord:
    def texts(key: str) -> tuple[str, ...]:
        return tuple(map(_text, _as(list, item.get(key, []))))

    def numbered(key: str, read: Callable[[Any], Kind]) -> dict[int, Kind]:
        return {_number(n): read(each) for n, each in _as(dict, item.get(key, {})).items()}

    def encoded(text: object) -> bytes:
        return _bytes(_text(text))

    return BodiesRecord(
        texts("attributes"),
        numbered("captures", _text),
        texts("graphs"),
        texts("nodes"),
        texts("values"),
        numbered("types", encoded),
        numbered("remarks", _remarks),
        numbered("rest", encoded),
    )


def _entry(item: object) -> RecordEntry:
    parts = _as(list, item)
    if len(parts) not in {3, 4}:
        raise _UnreadableError
    op, name, outputs, *defaulted = parts
    names = tuple(map(_text, _as(list, outputs)))
    left_out = frozenset(_text(part) for given in defaulted for part in _as(list, given))
    return RecordEntry(_text(op), _text(name), names, left_out)


def _constant(item: Mapping[str, Any]) -> ConstantRecord:
    node, stated = item.get("node"), item.get("type")
    return ConstantRecord(
        _distance(item.get("up", 0)),
        None if node is None else _text(node),
        _text(item.get("attribute", "value")),
        _text(item.get("reads", "")),
        None if stated is None else _type(stated),
        _remarks(item.get("remarks", {})),
        _bytes(_text(item.get("rest", ""))),
    )


def _type(item: object) -> StatedType:
    if isinstance(item, str):
        return StatedType(None, encoded=_bytes(item))
    if isinstance(item, dict):
        told = (_as(list, each) for each in _as(list, item.get("annotations")))
        annotations = tuple(_annotation(*each) for each in told if len(each) == 2)  # noqa: PLR2004  # as written
        return _type(item.get("type"))._replace(annotations=annotations)
    parts = _as(list, item)
    if len(parts) not in {2, 3}:
        raise _UnreadableError
    dtype, shape, *remarks = parts
    if dtype is not None and (not isinstance(dtype, str) or dtype not in DTYPE_CODES):
        raise _UnreadableError
    dims = None if shape is None else tuple(map(_dim, _as(list, shape)))
    return StatedType(TensorType(dtype, dims), _remarks(remarks[0]) if remarks else NO_REMARKS)


def _annotation(parameters: object, rest: object) -> Annotation:
    names = {key: _text(name) for key, name in _as(dict, parameters).items()}
    return Annotation(names, _bytes(_text(rest)))


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise _UnreadableError from error


def _dim(item: object) -> int | str | None:
    return item if item is None or isinstance(item, str) else _distance(item, 1 << 63)


def _remarks(item: object) -> Remarks:
    parts = _as(dict, item)
    metadata = {key: _text(value) for key, value in _as(dict, parts.get("metadata", {})).items()}
    return Remarks(_text(parts.get("doc", "")), metadata, _bytes(_text(parts.get("rest", ""))))


def _output(key: str) -> tuple[int, int]:
    number, _, index = key.partition(".")
    return _number(number), _number(index or "0")


def _number(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 10):  # noqa: PLR2004  # a short number
        raise _UnreadableError
    return int(key)


def _distance(item: object, beyond: int = _LONGEST_DISTANCE) -> int:
    if type(item) is int and 0 <= item < beyond:
        return item
    raise _UnreadableError


def _as(kind: type[Kind], item: object) -> Kind:
    if not isinstance(item, kind):
        raise _UnreadableError
    return item


def _text(item: object) -> str:
    return _as(str, item)


def align(record: CallRecord, body: Graph) -> dict[Node, int | None] | None:
    """Find the entry of each node of a function's body.

    Returns:
        The entry's number, None for a constant that was embedded; or None if the body is not what
        the record describes.
    """
    entries = record.entries
    spare = body.node_count - len(entries)
    numbers: dict[Node, int | None] = {}
    number = 0
    for node in body:
        fits = number < len(entries) and entries[number].fits(node)
        if spare and is_constant_node(node) and not (fits and node.name == f"Constant_{number}"):
            numbers[node] = None
            spare -= 1
            continue
        if not fits:
            return None
        numbers[node] = number
        number += 1
    return numbers if number == len(entries) and not spare else None


def is_constant_node(node: Node) -> bool:
    """Tell whether *node* is a Constant of the standard domain."""
    return node.op_type == "Constant" and not node.domain


# Tell the functions that partitions and merges have written from others.


COMPOSITE_KEY = "Composite"
"""Metadata key of a function that stands for the nodes of a match: the rule's name."""

CODEGEN_KEY = "Codegen"
"""Metadata key of a function that is handed to a target: the target's name."""

REPEAT_DOMAIN = "repeat"
"""Domain of the functions that stand for repeated blocks: no target, which supplies kernels."""


def is_partition(function: Function) -> bool:
    """Tell whether *function* stands for the nodes of one match."""
    return COMPOSITE_KEY in function.metadata


def is_region(function: Function) -> bool:
    """Tell whether *function* makes calls of such functions, and nothing else."""
    metadata = function.metadata
    if COMPOSITE_KEY in metadata or metadata.get(CODEGEN_KEY) != function.domain:
        return False
    outputs = function.body.outputs
    if len(set(outputs)) < len(outputs) or any(value.producer is None for value in outputs):
        return False
    called = [partition_called(node) for node in function.body]
    return all(inner is not None and inner.domain == function.domain for inner in called)


def is_written(function: Function) -> bool:
    """Tell whether a partition or a merge wrote *function*."""
    return is_partition(function) or is_region(function)


def call_of_written(node: Node) -> Function | None:
    """Return the function that *node* calls, if a partition or a merge wrote it."""
    if not node.domain:
        return None
    function = called_function(node)
    return function if function is not None and is_written(function) else None


def is_for_target(function: Function) -> bool:
    """Tell whether a target is handed calls of *function*, which a partition or a merge wrote."""
    return function.domain != REPEAT_DOMAIN


def partition_called(node: Node) -> Function | None:
    """Return the function of a match that *node* calls, if it does."""
    function = called_function(node)
    return function if function is not None and is_partition(function) else None
