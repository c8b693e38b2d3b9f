"""Write a region, which is a set of calls of one target, as a function that makes those calls.

What a call of such a function carries under ``dpl.nodes`` has one entry per call inside::

    ["dnnl.conv2d_relu", "conv2d_relu_0", ["r1"], [], [["Conv", "conv1", ["c1"]], …]]

that is the function called, the call's name, the names of what it makes, no attribute that is left
to its default, and last what the call itself had under ``dpl.nodes``. The calls in the body say
nothing: they stand for other nodes each time that the function is called.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dplcli.ir import Attribute, Function, Graph, Node, Tensor, Value
from dplcli.passes.marks import CODEGEN_KEY, function_of, is_partition
from dplcli.passes.partition import NODES_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Model

    Source: TypeAlias = Value | tuple[Node, Value]
    """A value of the graph, or one inside a region that a call inside the new one stands for."""

    Structure: TypeAlias = tuple[object, ...]

_SHORT_TENSOR = 64
"""Most elements of an attribute's tensor that is compared by its data."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call inside a region.

    Attributes:
        function: The function that it calls.
        inputs: What it reads.
        outputs: What it makes.
        attributes: Its attributes, by reference only where the graph's own function supplies them.
        name: The name that it has, or had, in the graph.
        entry: What ``dpl.nodes`` of the new call says of it.
    """

    function: Function
    inputs: tuple[Source | None, ...]
    outputs: tuple[Source | None, ...]
    attributes: Mapping[str, Attribute]
    name: str
    entry: str


def steps_of(call: Node) -> list[Step]:
    """Return what *call* does inside a region: itself, or the calls of the region it stands for."""
    function = function_of(call)
    assert function is not None  # noqa: S101  # the caller has looked
    if is_partition(function):
        entry = _entry(call)
        return [Step(function, call.inputs, call.outputs, call.attributes, call.name, entry)]
    return _inlined(call, function)


def _entry(call: Node) -> str:
    outputs = [value.name if value is not None else "" for value in call.outputs]
    entry = _dump([call.qualified_op, call.name, outputs])
    known = _description_of(call)
    return f"{entry[:-1]},[],{known}]" if known else entry


def _description_of(call: Node) -> str:
    """Return what *call* has under ``dpl.nodes``; "" if that is nothing, or no list."""
    if call.source is None:
        return call.metadata.get(NODES_KEY, "")
    known = described_nodes(call)
    return "" if known is None else _dump(known)


def described_nodes(call: Node) -> list[object] | None:
    """Read what *call* has under ``dpl.nodes``; None if that is nothing, or no list."""
    metadata = call.metadata if call.source is None else call.graph.model.codec.metadata(call)
    try:
        known = json.loads(metadata.get(NODES_KEY, ""))
    except (ValueError, RecursionError):
        return None
    return known if isinstance(known, list) else None


def _dump(entry: object) -> str:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def _inlined(call: Node, region: Function) -> list[Step]:
    """Return the steps of *region* as *call* has them."""
    body = region.body
    given = [*call.inputs, *[None] * len(body.inputs)]
    known: dict[Value, Source | None] = dict(zip(body.inputs, given, strict=False))
    made = zip(body.outputs, call.outputs, strict=False)
    known |= {inner: outer for inner, outer in made if outer is not None}
    described = described_nodes(call) or []

    def outside(value: Value | None) -> Source | None:
        return None if value is None else known.get(value, (call, value))

    steps = []
    for number, node in enumerate(body):
        function = function_of(node)
        assert function is not None  # noqa: S101  # see is_region
        entry = described[number] if len(described) == body.node_count else None
        steps.append(
            Step(
                function,
                tuple(map(outside, node.inputs)),
                tuple(map(outside, node.outputs)),
                _supplied(node.attributes, call.attributes),
                _name_in(entry) or node.name,
                _dump([node.qualified_op, node.name, []] if entry is None else entry),
            )
        )
    return steps


def _name_in(entry: object) -> str:
    match entry:
        case [_, str(name), *_]:
            return name
        case _:
            return ""


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


@dataclass(frozen=True, slots=True)
class RegionOutline:
    """A set of calls as one call to be.

    Attributes:
        calls: The calls, in order.
        steps: What they do.
        inputs: What the new call reads: each value once, in order of first use.
        outputs: What it makes: what others than *calls* read.
        attributes: What it passes on from the function that its graph is the body of.
        structure: Equal for sets of calls that do the same.
    """

    calls: Sequence[Node]
    steps: Sequence[Step]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    attributes: Mapping[str, Attribute]
    structure: Structure

    @property
    def domain(self) -> str:
        """The target."""
        return self.calls[0].domain

    @property
    def description(self) -> str:
        """What the new call has under ``dpl.nodes``."""
        return f"[{','.join([step.entry for step in self.steps])}]"


def outline_region(calls: Sequence[Node]) -> RegionOutline:
    """Work out interface and structure of a set of calls, which are in order."""
    steps = [step for call in calls for step in steps_of(call)]
    outputs = _outputs_of(calls)
    made: dict[Source, object] = {}
    inputs: dict[Source, int] = {}
    passed: dict[str, Attribute] = {}
    structure: list[object] = []
    for number, step in enumerate(steps):
        wires = []
        for source in step.inputs:
            if source is not None and source not in made:
                inputs.setdefault(source, len(inputs))
            wires.append(None if source is None else made.get(source, inputs.get(source)))
        for index, source in enumerate(step.outputs):
            if source is not None:
                made[source] = (number, index)
        present = tuple([source is not None for source in step.outputs])
        structure += [step.function.key, tuple(wires), present, _frozen(step.attributes)]
        passed |= {item.ref: item for item in step.attributes.values() if item.ref}
    structure += [made[value] for value in outputs]
    structure.append(calls[0].graph.opset_imports.get(calls[0].domain, 0))
    read = [source for source in inputs if isinstance(source, Value)]
    return RegionOutline(calls, steps, read, outputs, passed, tuple(structure))


def _outputs_of(calls: Sequence[Node]) -> list[Value]:
    """Return what is read by others than *calls*; of what nobody reads, one, or there is none."""
    members = set(calls)
    made = [value for call in calls for value in call.outputs if value is not None]
    read = [
        value
        for value in made
        if value.returned_by or any(user not in members for user, _ in value.iter_uses())
    ]
    return read or made[-1:]


def _frozen(attributes: Mapping[str, Attribute]) -> object:
    """Return what is equal for equal attributes."""
    return tuple(
        sorted(
            [(name, item.kind, item.ref, _content(item.value)) for name, item in attributes.items()]
        )
    )


def _content(value: object) -> str:
    """Return what is equal for equal values; of what cannot be looked into, its identity."""
    if isinstance(value, tuple):
        return f"({','.join(map(_content, value))})"
    if isinstance(value, (int, float, str, bytes)) or value is None:
        return repr(value)
    if not isinstance(value, Tensor) or value.is_external or value.size > _SHORT_TENSOR:
        return f"<{id(value)}>"
    data = value.numpy()
    if data.dtype == object:
        return f"<{id(value)}>"
    return f"{value.dtype}{value.shape}{data.tobytes()!r}"


def make_region(model: Model, outline: RegionOutline, name: str) -> Function:
    """Write the function for *outline*."""
    domain = outline.domain
    scope = outline.calls[0].graph
    body = Graph(model, {domain: scope.opset_imports[domain]})
    body.name = name
    body.modified = True
    names = _Names(body)
    values = _formal_inputs(body, outline, names)
    for number, step in enumerate(outline.steps):
        node = Node(body, step.function.name, domain, f"{step.function.name}_{number}")
        node.overload = step.function.overload
        node.attributes = {
            key: Attribute(item.kind, None, item.ref) if item.ref else item
            for key, item in step.attributes.items()
        }
        node.inputs = tuple([None if read is None else values[read] for read in step.inputs])
        for slot, value in enumerate(node.inputs):
            if value is not None:
                value.add_use(node, slot)
        outputs: list[Value | None] = []
        for index, made in enumerate(step.outputs):
            value = None if made is None else names.value(f"{node.name.lower()}_out", node, index)
            outputs.append(value)
            if made is not None and value is not None:
                values[made] = value
        node.outputs = tuple(outputs)
        body.append(node)
    for output in outline.outputs:
        body.add_output(values[output])
    function = Function(domain, name, body)
    function.attributes = tuple(outline.attributes)
    function.metadata = {CODEGEN_KEY: domain}
    return function


def _formal_inputs(body: Graph, outline: RegionOutline, names: _Names) -> dict[Source, Value]:
    """Name the inputs after those of the functions that read them."""
    values: dict[Source, Value] = {}
    wanted = set(outline.inputs)
    for step in outline.steps:
        formals = step.function.body.inputs
        for slot, source in enumerate(step.inputs):
            if source in wanted and source not in values:
                name = formals[slot].name if slot < len(formals) else "x"
                value = values[source] = names.value(name)
                value.is_graph_input = True
                body.inputs.append(value)
    return values


class _Names:
    """Names for the values of one body, thousands of which want the same."""

    def __init__(self, body: Graph) -> None:
        self.body = body
        self._numbers: dict[str, int] = {}

    def value(self, wanted: str, node: Node | None = None, index: int = 0) -> Value:
        """Define a value under the name *wanted*, or with a number behind it."""
        name = wanted
        while name in self.body.values:
            number = self._numbers[wanted] = self._numbers.get(wanted, 0) + 1
            name = f"{wanted}_{number}"
        value = self.body.values[name] = Value(name, self.body, node, index)
        return value
