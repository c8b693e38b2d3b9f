"""What the calls inside a region are: each a call of a partition, with what it had in the graph."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.ir import Node, Value
from dplcli.ir.functions import called_function
from dplcli.ir.marks import NODES_KEY
from dplcli.passes.call_records import UNDO_KEY, read_call
from dplcli.passes.marks import is_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dplcli.ir import Attribute, Function
    from dplcli.ir.codec import StatedType

    Source: TypeAlias = Value | tuple[Node, Value]
    """A value of the graph, or one inside a region that a call inside the new one stands for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call inside a region.

    Attributes:
        function: The function that it calls.
        inputs: What it reads.
        outputs: What it makes.
        attributes: Its attributes, by reference only where the graph's own function supplies them.
        name: The name that it has, or had, in the graph.
        output_names: The names that its outputs have, or had, there.
        metadata: What it carries, or carried.
        types: By output, what the file stated of those that are inside a region already.
    """

    function: Function
    inputs: tuple[Source | None, ...]
    outputs: tuple[Source | None, ...]
    attributes: Mapping[str, Attribute]
    name: str
    output_names: tuple[str, ...]
    metadata: Mapping[str, str]
    types: Mapping[int, StatedType] = field(default_factory=dict)

    @property
    def function_name(self) -> str:
        """What it calls, as an operator: ``dnnl.conv2d_relu``."""
        return f"{self.function.domain}.{self.function.name}"


def steps_of(call: Node) -> list[Step]:
    """Return what *call* does inside a region: itself, or the calls of the region it stands for."""
    function = called_function(call)
    assert function is not None  # noqa: S101  # the caller has looked
    if not is_partition(function):
        return _inlined(call, function)
    names = tuple([value.name if value is not None else "" for value in call.outputs])
    attributes, metadata = call.attributes, call.remarks.metadata
    return [Step(function, call.inputs, call.outputs, attributes, call.name, names, metadata)]


def undo_of(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Read ``dpl.undo``; what is no object is as good as missing."""
    found = _parsed(metadata.get(UNDO_KEY, ""))
    return found if isinstance(found, dict) else {}


def run_of(call: Node) -> int:
    """Return how many runs its graph had been through when *call* was written."""
    metadata = call.remarks.metadata
    run = undo_of(metadata).get("run", 0) if UNDO_KEY in metadata else 0
    return run if type(run) is int and run > 0 else 0


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _inlined(call: Node, region: Function) -> list[Step]:
    """Return the steps of *region* as *call* has them."""
    body = region.body
    given = [*call.inputs, *[None] * len(body.inputs)]
    known: dict[Value, Source | None] = dict(zip(body.inputs, given, strict=False))
    made = zip(body.outputs, call.outputs, strict=False)
    known |= {inner: outer for inner, outer in made if outer is not None}

    def outside(value: Value | None) -> Source | None:
        return None if value is None else known.get(value, (call, value))

    notes = _Notes(call, body.node_count)
    record = read_call(call)
    stated: dict[int, dict[int, StatedType]] = {}
    for (number, index), known_type in ({} if record is None else record.types).items():
        stated.setdefault(number, {})[index] = known_type
    steps = []
    for number, node in enumerate(body):
        function = called_function(node)
        assert function is not None  # noqa: S101  # see is_region
        outputs = tuple(map(outside, node.outputs))
        steps.append(
            Step(
                function,
                tuple(map(outside, node.inputs)),
                outputs,
                _supplied(node.attributes, call.attributes),
                notes.name(number) or f"{call.name}/{node.name}",
                notes.outputs(number, outputs),
                notes.metadata(number),
                stated.get(number, {}),
            )
        )
    return steps


class _Notes:
    """What a call of a region says of the calls that it stands for, as far as it can be read."""

    def __init__(self, call: Node, count: int) -> None:
        metadata = call.remarks.metadata
        entries = _parsed(metadata.get(NODES_KEY, ""))
        fits = isinstance(entries, list) and len(entries) == count
        self.call = call
        self.entries: list[object] = entries if isinstance(entries, list) and fits else []
        remarks = undo_of(metadata).get("remarks")
        self.remarks: dict[str, Any] = remarks if fits and isinstance(remarks, dict) else {}

    def name(self, number: int) -> str:
        """Return the name of a call; "" if that is not known."""
        match self.entries[number : number + 1]:
            case [[str(), str(name), *_]]:
                return name
            case _:
                return ""

    def outputs(self, number: int, made: tuple[Source | None, ...]) -> tuple[str, ...]:
        """Return the names of what a call makes; those known of the graph are certain."""
        match self.entries[number : number + 1]:
            case [[str(), str(), [*names], *_]] if len(names) == len(made):
                told = [name if isinstance(name, str) else "" for name in names]
            case _:
                told = [""] * len(made)
        return tuple([self._output(source, name) for source, name in zip(made, told, strict=True)])

    def _output(self, source: Source | None, told: str) -> str:
        if source is None:
            return ""
        if isinstance(source, Value):
            return source.name
        return told or f"{self.call.name}/{source[1].name}"

    def metadata(self, number: int) -> Mapping[str, str]:
        """Return what a call carried."""
        match self.remarks.get(str(number)):
            case {"metadata": {**found}}:
                items = ((key, text) for key, text in found.items() if isinstance(text, str))
                return {str(key): text for key, text in items}
            case _:
                return {}


def _supplied(
    attributes: Mapping[str, Attribute], given: Mapping[str, Attribute]
) -> Mapping[str, Attribute]:
    """Put in what a caller gives for attributes that are its affair."""
    if not any(item.ref for item in attributes.values()):
        return attributes
    supplied = {
        name: given.get(item.ref) if item.ref else item for name, item in attributes.items()
    }
    return {name: item for name, item in supplied.items() if item is not None}
