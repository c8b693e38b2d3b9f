"""Write a region, which is a set of calls of one target, as a function that makes those calls.

A call of such a function carries what any call of dpl's functions does: under ``dpl.nodes`` one
entry per node of the body, which here is a call of a partition: what it calls, its name, the names
of what it makes. Under ``dpl.undo``, by the number of the entry, is what else there was of it:

==============  ==================================================================================
``run``         how many runs of dpl the graph had been through before: calls of a later run are
                undone first
``remarks``     ``{"0": {"metadata": {…}}}``: what each call carried, its own ``dpl.nodes`` and
                ``dpl.undo`` included
``types``       what the file stated of values that only the region reads, as for partitions
``offsets``     how many nodes before the last one each lay, unless they stood in one row
``moved``       nodes that had to move behind the region's call: first output, and how many nodes
                before the last one of the region they lay
==============  ==================================================================================

The calls in the body carry nothing: they stand for other nodes each time the function is called.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dplcli.ir import Attribute, Function, Graph, Node, Tensor, Value
from dplcli.ir.marks import NODES_KEY
from dplcli.passes.call_records import UNDO_KEY
from dplcli.passes.marks import CODEGEN_KEY
from dplcli.passes.origin import describe_type
from dplcli.passes.region_steps import steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir import Model
    from dplcli.passes.region_order import Place
    from dplcli.passes.region_steps import Source, Step

    Structure: TypeAlias = tuple[object, ...]

_SHORT_TENSOR = 64
"""Most elements of an attribute's tensor that is compared by its data."""


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

    def metadata(self, run: int, place: Place) -> Mapping[str, str]:
        """Return what the new call carries.

        Args:
            run: How many runs of dpl the graph has been through.
            place: Where the calls were.
        """
        steps = self.steps
        nodes = [[step.function_name, step.name, step.output_names] for step in steps]
        remarks = {
            str(i): {"metadata": dict(s.metadata)} for i, s in enumerate(steps) if s.metadata
        }
        rest: dict[str, Any] = {"run": run, "remarks": remarks, "types": self._types()}
        if len(steps) == len(self.calls):
            rest["offsets"] = [] if place.is_row else place.offsets
            rest["moved"] = place.moved
        rest = {key: value for key, value in rest.items() if value}
        return {NODES_KEY: _dump(nodes), UNDO_KEY: _dump(rest)}

    def _types(self) -> dict[str, object]:
        """Write down what the file states of values that are inside from now on."""
        found: dict[str, object] = {}
        leaving = set(self.outputs)
        for number, step in enumerate(self.steps):
            for index, value in enumerate(step.outputs):
                known = step.types.get(index)
                if isinstance(value, Value):
                    known = None if value in leaving else value.stated_type
                if known is not None:
                    key = f"{number}.{index}" if index else f"{number}"
                    found[key] = describe_type(known)
        return found


def _dump(item: object) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


def outline_region(calls: Sequence[Node]) -> RegionOutline:
    """Work out interface and structure of a set of calls, which are in order."""
    steps = [step for call in calls for step in steps_of(call)]
    outputs = _outputs_of(calls)
    made: dict[Source, object] = {}
    inputs: dict[Source, int] = {}
    passed: dict[str, Attribute] = {}
    known: dict[int, object] = {}
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
        frozen = known.get(id(step.attributes))
        if frozen is None:
            frozen = known[id(step.attributes)] = _frozen(step.attributes)
        structure += [step.function.key, tuple(wires), present, frozen]
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
        node.attributes = step.attributes
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
