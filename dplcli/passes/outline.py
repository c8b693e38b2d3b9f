"""Give structurally equal matches of a rule one function, and each match its call of it.

Two matches are structurally equal if the same operators are wired the same way. Attribute values
do not count: they are declared as the function's attributes and given at each call, completed
with their defaults where one match states what another leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from dplcli.dpl.rule import PatternRule
from dplcli.ir import Attribute, Function, Graph, Node, Value
from dplcli.ir.operators import attribute_of, schema_of
from dplcli.ir.traversal import behind_identities
from dplcli.passes.judgement import replaced_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dplcli.dpl.match import Match
    from dplcli.ir import Model

    Structure: TypeAlias = tuple[object, ...]
    AttributeKey: TypeAlias = tuple[int, str]


_POSITION = attrgetter("position")

OPSET_OF_UNDECLARED = 1
"""Version to import of a custom domain that the model uses without importing it."""

_SHORT_CONSTANT = 64
"""Most elements of an embedded constant that is compared by its data."""

_OPSET_OF_CONSTANTS = 13
"""Opset to import for Constant nodes in a model that uses no standard operator at all."""


@dataclass(slots=True)
class Outline:
    """One match as a function call to be.

    Attributes:
        match: The match.
        inputs: What the call reads: each value once, in order of first use.
        outputs: What the call makes.
        embedded: The constants that go into the body.
        replaced: The nodes that the call takes the place of.
        structure: Equal for structurally equal matches of one rule, whatever their attributes.
        stated: By node, the attributes that the file states.
        reads_plainly: Whether what the nodes read can be told from structure and inputs: nothing
            is embedded, read through Identity nodes or omitted at the end.
        attributes: By node number and name, the attributes to give at the call.
        completed: Which of them the file left out.
    """

    match: Match
    inputs: list[Value]
    outputs: list[Value]
    embedded: list[Value]
    replaced: Sequence[Node]
    structure: Structure
    stated: Sequence[Mapping[str, Attribute]] = ()
    reads_plainly: bool = False
    attributes: dict[AttributeKey, Attribute] = field(default_factory=dict)
    completed: list[AttributeKey] = field(default_factory=list)

    @property
    def last(self) -> Node:
        """The last node in program order, where the call is to stand."""
        return max(self.match.nodes, key=_POSITION)


@dataclass(slots=True)
class Kind:
    """One function and the outlines that become calls of it.

    Attributes:
        outlines: Its members, in program order.
        attribute_names: Name under which the function declares each attribute.
        named: The attributes of a call by declared name, for each :attr:`Outline.attributes`.
    """

    outlines: list[Outline]
    attribute_names: dict[AttributeKey, str]
    named: dict[int, dict[str, Attribute]] = field(default_factory=dict)

    def call_attributes(self, item: Outline) -> Mapping[str, Attribute]:
        """Return the attributes to give at the call; calls share them where outlines do."""
        known = self.named.get(id(item.attributes))
        if known is None:
            known = {self.attribute_names[where]: a for where, a in item.attributes.items()}
            self.named[id(item.attributes)] = known
        return known

    def write(self, model: Model, name: str) -> Function:
        """Write the function."""
        return make_function(model, self, name)


def rule_of(match: Match) -> PatternRule:
    """Return the rule of a match that is to be outlined."""
    assert isinstance(match.rule, PatternRule)  # noqa: S101  # the other rules rewrite
    return match.rule


def outline(match: Match) -> Outline:
    """Work out interface and structure of *match*."""
    may_embed = rule_of(match).constants != "lift"
    opsets = match.root.graph.opset_imports
    numbers: dict[Node | None, int] = {}
    inputs: dict[Value, int] = {}
    read: list[Value] = []
    embedded: list[Value] = []
    structure: list[object] = []
    stated: list[Mapping[str, Attribute]] = []
    reads_plainly = True
    for number, node in enumerate(match.nodes):
        numbers[node] = number
        domain = node.domain
        structure += (domain, node.op_type, node.overload, opsets.get(domain, 0))
        for value in node.inputs:
            producer = None if value is None else value.producer
            if value is None:
                structure.append(None)
            elif (maker := numbers.get(producer)) is not None:
                structure.append((maker, value.index))
            elif may_embed and _is_embedded(value, match):
                structure.append(_constant_key(value))
                embedded.append(value)
                reads_plainly = False
            else:
                origin = value if producer is None else behind_identities(value)
                reads_plainly = reads_plainly and origin is value
                if origin not in inputs:
                    inputs[origin] = len(read)
                    read.append(value)
                structure.append(inputs[origin])
        while structure[-1] is None:
            structure.pop()
            reads_plainly = False
        structure.append(tuple([output is not None for output in node.outputs]))
        stated.append(node.attributes)
    outputs = _outputs_of(match)
    structure += [(numbers[output.producer], output.index) for output in outputs]
    return Outline(
        match,
        read,
        outputs,
        embedded,
        replaced_nodes(match),
        tuple(structure),
        stated,
        reads_plainly,
    )


def _outputs_of(match: Match) -> list[Value]:
    """Return what is read of what the roots make, then the inner values that others read."""
    outputs: list[Value] = []
    for root in match.roots:
        made = [v for v in root.outputs if v is not None]
        outputs += [v for v in made if v.use_count or v.returned_by] or made[:1]
    return outputs + list(match.escaping if match.rule.escape == "outputs" else ())


def _is_embedded(value: Value, match: Match) -> bool:
    origin = behind_identities(value)
    if not origin.is_constant or origin.constant is None:
        return False
    return rule_of(match).constants == "embed" or origin in match.constants


def _constant_key(value: Value) -> object:
    """Return what is equal for constants that can share a function: their data, if it is short."""
    tensor = behind_identities(value).constant
    if tensor is None or tensor.is_external or tensor.size > _SHORT_CONSTANT:
        return value
    data = tensor.numpy()
    if data.dtype == object:
        return value
    return (tensor.dtype, tensor.shape, data.tobytes())


def group(outlines: Iterable[Outline]) -> list[Kind]:
    """Sort outlines of one rule into kinds, in order of first appearance."""
    by_structure: dict[Structure, list[Outline]] = {}
    for item in outlines:
        by_structure.setdefault(item.structure, []).append(item)
    kinds = []
    for members in by_structure.values():
        _gather_attributes(members)
        by_attributes: dict[tuple[tuple[AttributeKey, str], ...], list[Outline]] = {}
        keys: dict[int, tuple[tuple[AttributeKey, str], ...]] = {}
        for item in members:
            key = keys.get(id(item.attributes))
            if key is None:
                key = tuple([(where, attr.kind) for where, attr in item.attributes.items()])
                keys[id(item.attributes)] = key
            by_attributes.setdefault(key, []).append(item)
        kinds += [Kind(same, _name_attributes(same[0])) for same in by_attributes.values()]
    return kinds


def _gather_attributes(outlines: Sequence[Outline]) -> None:
    """Give each outline every attribute that the nodes of any of them state.

    Nodes share decoded attributes, so outlines whose nodes share all of theirs share the result.
    """
    keys = [tuple(map(id, item.stated)) for item in outlines]
    shared = dict(zip(keys, [item.stated for item in outlines], strict=True))
    wanted = {
        (number, name): None
        for of_nodes in shared.values()
        for number, attributes in enumerate(of_nodes)
        for name in attributes
    }
    ordered = sorted(wanted, key=lambda where: where[0])
    complete: dict[tuple[int, ...], dict[AttributeKey, Attribute]] = {}
    for item, key in zip(outlines, keys, strict=True):
        known = complete.get(key)
        if known is not None:
            item.attributes = known
            continue
        _complete(item, ordered)
        if not item.completed and len(item.attributes) == len(ordered):
            complete[key] = item.attributes


def _complete(item: Outline, wanted: Iterable[AttributeKey]) -> None:
    for where in wanted:
        number, name = where
        attribute = item.stated[number].get(name)
        if attribute is None:
            attribute = attribute_of(item.match.nodes[number], name)
            if attribute is None:
                continue
            item.completed.append(where)
        item.attributes[where] = attribute


def _name_attributes(item: Outline) -> dict[AttributeKey, str]:
    names: dict[AttributeKey, str] = {}
    taken: set[str] = set()
    for where in item.attributes:
        names[where] = unique(where[1], taken.__contains__)
        taken.add(names[where])
    return names


def unique(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return *name*, or the first of ``name_1``, ``name_2``, … that is not taken."""
    if not is_taken(name):
        return name
    number = 1
    while is_taken(f"{name}_{number}"):
        number += 1
    return f"{name}_{number}"


def make_function(model: Model, kind: Kind, name: str) -> Function:
    """Write the function for *kind*; its body is the first member's, attributes by reference."""
    first = kind.outlines[0]
    rule = rule_of(first.match)
    scope = first.match.root.graph
    domains = {node.domain for node in first.match.nodes}
    if first.embedded:
        domains.add("")
        model.opset_imports.setdefault("", _OPSET_OF_CONSTANTS)
    for domain in sorted(domains):
        version = model.opset_imports.setdefault(domain, OPSET_OF_UNDECLARED)
        scope.opset_imports.setdefault(domain, version)
    body = Graph(model, {d: scope.opset_imports[d] for d in sorted(domains)})
    body.name = name
    body.modified = True
    values = _formal_inputs(body, first)
    for number, node in enumerate(first.match.nodes):
        references = {
            key[1]: Attribute(attribute.kind, None, kind.attribute_names[key])
            for key, attribute in first.attributes.items()
            if key[0] == number
        }
        _copy_node(body, node, number, references, values)
    for output in first.outputs:
        body.add_output(values[output])
    function = Function(rule.target, name, body)
    function.attributes = tuple(kind.attribute_names.values())
    trace = "".join(f"{node.op_type}_" for node in first.match.nodes)
    function.metadata = {
        **rule.metadata,
        "Composite": rule.qualified_name,
        "Codegen": rule.target,
        "PartitionedFromPattern": trace,
    }
    return function


def _formal_inputs(body: Graph, item: Outline) -> dict[Value, Value]:
    """Name the inputs after the pattern's names, else after the operator's formal inputs."""
    named = {value: name for name, value in item.match.bindings.items()}
    values: dict[Value, Value] = {}
    for value in item.inputs:
        wanted = named.get(behind_identities(value)) or _formal_name(value, item.match.nodes)
        formal = Value(unique(wanted, body.values.__contains__), body)
        formal.is_graph_input = True
        body.values[formal.name] = formal
        body.inputs.append(formal)
        values[behind_identities(value)] = formal
    return values


def _formal_name(value: Value, nodes: Sequence[Node]) -> str:
    members = set(nodes)
    for user, slot in value.iter_uses():
        if user in members:
            schema = schema_of(user)
            if schema is not None and schema.inputs:
                return schema.inputs[min(slot, len(schema.inputs) - 1)]
    return "x"


def _copy_node(
    body: Graph,
    node: Node,
    number: int,
    attributes: Mapping[str, Attribute],
    values: dict[Value, Value],
) -> None:
    copy = Node(body, node.op_type, node.domain, f"{node.op_type}_{number}")
    copy.overload = node.overload
    copy.attributes = dict(attributes)
    inputs = [None if value is None else _inside(body, value, values) for value in node.inputs]
    while inputs and inputs[-1] is None:
        inputs.pop()
    copy.inputs = tuple(inputs)
    for slot, value in enumerate(inputs):
        if value is not None:
            value.add_use(copy, slot)
    outputs: list[Value | None] = []
    for index, output in enumerate(node.outputs):
        outputs.append(None if output is None else _define(body, copy, index))
        if output is not None:
            values[output] = outputs[-1]  # type: ignore[assignment]  # just defined
    copy.outputs = tuple(outputs)
    body.append(copy)


def _inside(body: Graph, value: Value, values: dict[Value, Value]) -> Value:
    """Return what stands for *value* in the body: a formal input, an inner value or a constant."""
    known = values.get(value) or values.get(behind_identities(value))
    return known or _embed(body, value, values)


def _define(body: Graph, node: Node, index: int) -> Value:
    name = unique(f"{node.name.lower()}_out", body.values.__contains__)
    value = body.values[name] = Value(name, body, node, index)
    return value


def _embed(body: Graph, value: Value, values: dict[Value, Value]) -> Value:
    """Put a constant into the body: functions have no initializers."""
    tensor = behind_identities(value).constant
    assert tensor is not None  # noqa: S101  # outline() embeds nothing else
    node = Node(body, "Constant", "", unique("Constant", _node_names(body).__contains__))
    node.attributes = {"value": Attribute("tensor", tensor)}
    values[value] = _define(body, node, 0)
    node.outputs = (values[value],)
    body.append(node)
    return values[value]


def _node_names(body: Graph) -> set[str]:
    return {node.name for node in body}
