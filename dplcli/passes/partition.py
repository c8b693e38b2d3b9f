"""Outline the selected matches as functions of their target's domain.

After Relay's ``pattern.partition`` and Relax's ``FuseOpsByPattern``
(``src/relax/transform/fuse_ops.cc``); what the file looks like is set down in the README.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from dplcli.ir import Attribute, Function, TypeStatement
from dplcli.ir.model import (
    NO_REMARKS,
    NODES_KEY,
    Remarks,
    StatedType,
    called_function,
)
from dplcli.ir.operators import attribute_of, possible_attributes, schema_of
from dplcli.ir.traversal import (
    behind_identities,
    dependents_before,
    is_identity,
    outwards,
    with_bodies,
)
from dplcli.ir.types import GRAPH_KINDS
from dplcli.keys import keys
from dplcli.language.rule import PatternRule
from dplcli.passes.foreign import is_foreign, lacks_type, statement_for
from dplcli.passes.forms import (
    FormKey,
    bodies_in_form,
    first_form,
    form_of,
    tensor_key,
    use_of,
)
from dplcli.passes.inline import BodyCopier
from dplcli.passes.records import CODEGEN_KEY, COMPOSITE_KEY, UNDO_KEY, read_call
from dplcli.passes.rewriter import (
    BodyWriter,
    GraphRewriter,
    claim,
    inherit_devices,
    raise_ir_version,
    unique,
)
from dplcli.passes.select import (
    computed_attributes,
    copies,
    in_program_order,
    replaced_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from dplcli.ir import Graph, Model, Node, Value
    from dplcli.language.rule import Match
    from dplcli.passes.forms import Form, Wire
    from dplcli.passes.select import Selection

    Structure: TypeAlias = tuple[object, ...]

    AttributeKey: TypeAlias = tuple[int, str]

    Json = dict[str, Any]


# Give structurally equal matches of a rule one function, and each match its call of it.
#
# Two matches are structurally equal if the same operators are wired the same way, in whatever order
# the file has them (dplcli.passes.forms). Attribute values do not count: they are declared as the
# function's attributes and given at each call, completed with their defaults where one match states
# what another leaves out.


_POSITION = attrgetter("position")

OPSET_OF_UNDECLARED = 1
"""Version to import of a custom domain that the model uses without importing it."""

_OPSET_OF_CONSTANTS = 13
"""Opset to import for Constant nodes in a model that uses no standard operator at all."""


@dataclass(slots=True)
class Blueprint:
    """What outlines have in common whose matches differ in nothing but their values.

    Attributes:
        form: What the function of such matches is called after.
        structure: Equal for structurally equal matches of one rule, whatever their attributes; the
            same object where one :class:`OutlineMaker` has made them.
        stated: By node, the attributes that the file states.
        wording: What a call says of its nodes, with blanks for their names.
    """

    form: Form
    structure: Structure
    stated: Sequence[Mapping[str, Attribute]]
    wording: str


@dataclass(slots=True)
class Outline:
    """One match as a function call to be.

    Attributes:
        match: The match.
        inputs: What the call reads: each value once, in the order of the pattern's names.
        outputs: What the call makes.
        embedded: The constants that go into the body.
        replaced: The nodes that the call takes the place of.
        common: What it has in common with others.
        nodes: The nodes of the match, in the order of the function's body.
        swapped: The numbers of those whose two operands the body has the other way round.
        form: What the function of such matches is called after; None if it is no match of a rule.
        reads_plainly: Whether what the nodes read can be told from structure and inputs: nothing
            is embedded, read through Identity nodes or in bodies, or omitted at the end.
        attributes: By node number and name, the attributes to give at the call.
        completed: Which of them the file left out.
        computed: By name, further attributes to give at the call, which no node of it has.
    """

    match: Match
    inputs: list[Value]
    outputs: list[Value]
    embedded: list[Value]
    replaced: Sequence[Node]
    common: Blueprint
    nodes: tuple[Node, ...]
    swapped: tuple[int, ...]
    form: Form | None
    reads_plainly: bool
    attributes: dict[AttributeKey, Attribute] = field(default_factory=dict)
    completed: list[AttributeKey] = field(default_factory=list)
    computed: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def last(self) -> Node:
        """The last node in program order, where the call is to stand."""
        return max(self.match.nodes, key=_POSITION)


@dataclass(slots=True)
class OutlinedFunction:
    """One function and the outlines that become calls of it.

    Attributes:
        outlines: Its members, in program order.
        attribute_names: Name under which the function declares each attribute.
        named: The attributes of a call by declared name, for each :attr:`Outline.attributes`.
        lacking: What sets it off from another function of its form in this model: attributes that
            are not given, and whose defaults are not known there.
    """

    outlines: list[Outline]
    attribute_names: dict[AttributeKey, str]
    named: dict[int, dict[str, Attribute]] = field(default_factory=dict)
    lacking: tuple[object, ...] = ()

    def call_attributes(self, item: Outline) -> Mapping[str, Attribute]:
        """Return the attributes to give at the call; calls share them where outlines do."""
        named = self.named.get(id(item.attributes))
        if named is None:
            named = {self.attribute_names[where]: a for where, a in item.attributes.items()}
            self.named[id(item.attributes)] = named
        return {**item.computed, **named} if item.computed else named

    def references(self, number: int) -> dict[str, Attribute]:
        """Return the attributes of one node of the body that each call gives."""
        attributes = self.outlines[0].attributes
        return {
            key[1]: Attribute(attributes[key].kind, None, declared)
            for key, declared in self.attribute_names.items()
            if key[0] == number
        }

    def write(self, model: Model, name: str) -> Function:
        """Write the function."""
        first = self.outlines[0]
        rule = rule_of(first.match)
        imports = first.match.root.graph.opset_imports
        domains = {node.domain for node in with_bodies(first.match.nodes)}
        if first.embedded:
            domains.add("")
            model.opset_imports.setdefault("", _OPSET_OF_CONSTANTS)
        for domain in sorted(domains):
            version = model.opset_imports.setdefault(domain, OPSET_OF_UNDECLARED)
            imports.setdefault(domain, version)
        body = BodyWriter(model, name, {domain: imports[domain] for domain in sorted(domains)})
        self.fill(body)
        function = Function(rule.target, name, body.graph)
        function.attributes = (*first.computed, *self.attribute_names.values())
        function.metadata = {
            **{name: text for name, text in rule.metadata.items() if name not in rule.computed},
            COMPOSITE_KEY: rule.metadata.get(COMPOSITE_KEY, rule.qualified_name),
            CODEGEN_KEY: rule.target,
            "PartitionedFromPattern": "".join(f"{node.op_type}_" for node in first.nodes),
        }
        return function

    def fill(self, body: BodyWriter) -> None:
        """Write the nodes of the first member into *body*, attributes by reference."""
        first = self.outlines[0]
        # Name the inputs after the pattern's names, else after the operator's formal inputs.
        named = {value: name for name, value in reversed(tuple(first.match.bindings.items()))}
        values: dict[Value, Value] = {}
        for value in first.inputs:
            origin = behind_identities(value)
            values[origin] = body.add_input(named.get(origin) or _formal_name(origin, first))
        for number in range(len(first.nodes)):
            node = first.nodes[number]
            attributes = self.references(number)
            if node.subgraphs:  # which stand in the function, among the others
                stated = node.attributes.items()
                attributes = {name: attributes.get(name, a) for name, a in stated} | attributes
            captured = {v: _inside(body, v, values) for v in bodies_in_form(node).captured}
            read = _operands(first, number)
            inputs = [None if value is None else _inside(body, value, values) for value in read]
            while inputs and inputs[-1] is None:
                inputs.pop()
            operator = (node.domain, node.op_type, node.overload)
            wanted = f"{node.op_type}_{number}".lower()
            names = ["" if output is None else f"{wanted}_out" for output in node.outputs]
            copy = body.add_node(operator, f"{node.op_type}_{number}", inputs, attributes, names)
            if node.subgraphs:
                _take_bodies(node, copy, captured)
            pairs = zip(node.outputs, copy.outputs, strict=True)
            values.update((old, new) for old, new in pairs if old is not None and new is not None)
        for output in first.outputs:
            body.graph.add_output(values[output])


class _Numbered(NamedTuple):
    """Names for the copies of bodies in a function: numbers behind the name of their node."""

    prefix: str
    numbers: Iterator[int]

    def node(self, _wanted: str) -> str:
        return f"{self.prefix}.{next(self.numbers)}"

    def value(self, _graph: Graph, _wanted: str) -> str:
        return f"{self.prefix}.{next(self.numbers)}"


def _take_bodies(node: Node, copy: Node, captured: Mapping[Value, Value]) -> None:
    """Give *copy*, in the body of a function, the bodies of *node*, without what is its alone."""
    names = _Numbered(copy.name, count())
    BodyCopier({**captured}, attrgetter("attributes"), names).copy_bodies(node, copy)
    form = bodies_in_form(copy)
    for number, graph in enumerate(form.graphs):
        graph.name, graph.likeness, graph.annotations = f"{copy.name}.{number}", None, {}
        for inner in graph:
            inner.remarks = NO_REMARKS
    for value in form.values:
        if not value.is_initializer and not value.is_graph_input:
            value.type_source = None


def rule_of(match: Match) -> PatternRule:
    """Return the rule of a match that is to be outlined."""
    assert isinstance(match.rule, PatternRule)  # noqa: S101  # the other rules rewrite
    return match.rule


class OutlineMaker:
    """Works out interface and structure of matches; what those that are alike share, once."""

    def __init__(self) -> None:
        self._blueprints: dict[tuple[object, ...], Blueprint] = {}
        self._structures: dict[Structure, Structure] = {}

    def outline(self, match: Match) -> Outline:
        """Describe one match as a call."""
        may_embed = rule_of(match).constants != "lift"
        numbers: dict[Node, int] = {}
        inputs: dict[Value, int] = {}
        read: list[Value] = []
        embedded: list[Value] = []
        operators: list[object] = []
        wires: list[tuple[Wire, ...]] = []
        reads_plainly = True
        for number, node in enumerate(match.nodes):
            numbers[node] = number
            of_node: list[Wire] = []
            bodies = bodies_in_form(node) if node.subgraphs else None
            reads_plainly = reads_plainly and bodies is None
            for value in node.inputs if bodies is None else (*node.inputs, *bodies.captured):
                if value is None:
                    of_node.append(None)
                    continue
                producer = value.producer
                if producer in numbers:
                    of_node.append((numbers[producer], value.index))
                elif may_embed and _is_embedded(value, match):
                    of_node.append(tensor_key(value))
                    embedded.append(value)
                else:
                    origin = value if producer is None else behind_identities(value)
                    reads_plainly = reads_plainly and origin is value
                    if origin not in inputs:
                        inputs[origin] = len(read)
                        read.append(value)
                    of_node.append(inputs[origin])
            while of_node and of_node[-1] is None:
                of_node.pop()
                reads_plainly = False
            wires.append(tuple(of_node))
            outputs = node.outputs
            operators += (node.op_type, node.domain, node.overload, id(node.attributes), bodies)
            operators.append(
                len(outputs)
                if None not in outputs
                else tuple([value is not None for value in outputs])
            )
        returned, escaping = _outputs_of(match)
        named: dict[Value, tuple[int, str]] = {}
        for place, (name, value) in enumerate(match.bindings.items()):
            named.setdefault(value, (place, name))
        names = tuple([named.get(origin, _UNNAMED) for origin in inputs])
        places = tuple([(numbers[output.producer], output.index) for output in returned])  # type: ignore[index]  # nodes of the match make them
        key = (id(match.root.graph.opset_imports), *operators, *wires, names, places, escaping)
        common = self._blueprints.get(key)
        if common is None:
            common = self._blueprints[key] = self._blueprint(match, wires, names, places, escaping)
        form = common.form
        return Outline(
            match,
            _ordered(read, form.inputs),
            _ordered(returned, form.outputs),
            embedded,
            replaced_nodes(match),
            common,
            tuple(_ordered(match.nodes, form.order)),
            form.swapped,
            form,
            reads_plainly=reads_plainly and not embedded,
            computed=computed_attributes(match),
        )

    def _blueprint(
        self,
        match: Match,
        wires: list[tuple[Wire, ...]],
        names: tuple[tuple[int, str], ...],
        outputs: tuple[tuple[int, int], ...],
        escaping: int,
    ) -> Blueprint:
        opsets = match.root.graph.opset_imports
        operators = []
        for node in match.nodes:
            operator = (node.domain, node.op_type, node.overload)
            schema = schema_of(node) if node.attributes else None
            opset = opsets.get(node.domain, 0)
            use = use_of(operator, opset, schema, _plain(node), node.outputs)
            if node.subgraphs:
                use = use._replace(stated=(*use.stated, bodies_in_form(node).digest))
            operators.append(use)
        form = form_of(FormKey(tuple(operators), tuple(wires), names, outputs, escaping))
        nodes = _ordered(match.nodes, form.order)
        versions = [opsets.get(domain, 0) for domain in dict.fromkeys(n.domain for n in nodes)]
        structure = (form.wiring, *versions)
        structure = self._structures.setdefault(structure, structure)
        return Blueprint(form, structure, [*map(_plain, nodes)], wording_of(nodes))


def _plain(node: Node) -> Mapping[str, Attribute]:
    """Return the attributes of *node* that its call is given: all but bodies."""
    if not node.subgraphs:
        return node.attributes
    return {name: each for name, each in node.attributes.items() if each.kind not in GRAPH_KINDS}


_UNNAMED = (0, "")
_Item = TypeVar("_Item")


def _ordered(items: Sequence[_Item], order: Sequence[int]) -> list[_Item]:
    return [items[number] for number in order]


def _outputs_of(match: Match) -> tuple[list[Value], int]:
    """Return what is read of what the roots make, then the inner values that others read.

    Also how many these are.
    """
    outputs: list[Value] = []
    for root in match.roots:
        root_outputs = root.made
        outputs += [v for v in root_outputs if v.use_count or v.returned_by] or root_outputs[:1]
    inner = match.escaping if match.rule.escape == "outputs" else ()
    return [*outputs, *inner], len(inner)


def _is_embedded(value: Value, match: Match) -> bool:
    origin = behind_identities(value)
    if not origin.is_constant or origin.constant is None:
        return False
    return rule_of(match).constants == "embed" or origin in match.constants


def group(outlines: Iterable[Outline]) -> list[OutlinedFunction]:
    """Sort outlines of one rule, made by one maker, into kinds; in order of first appearance."""
    by_structure: dict[int, list[Outline]] = {}
    for item in outlines:
        by_structure.setdefault(id(item.common.structure), []).append(item)
    kinds = []
    for members in by_structure.values():
        _gather_attributes(members)
        by_kinds: dict[tuple[tuple[AttributeKey, str], ...], list[Outline]] = {}
        alike: dict[int, list[Outline]] = {}
        for item in members:
            same = alike.get(id(item.attributes))
            if same is None:
                key = tuple(sorted((where, attr.kind) for where, attr in item.attributes.items()))
                same = alike[id(item.attributes)] = by_kinds.setdefault(key, [])
            same.append(item)
        wanted = {where for key in by_kinds for where, _ in key}
        for key, same in by_kinds.items():
            names = _name_attributes(same[0])
            kinds.append(OutlinedFunction(same, names, lacking=_lacking(wanted, same[0], key)))
    return kinds


def _lacking(
    wanted: Iterable[AttributeKey], item: Outline, given: Sequence[tuple[AttributeKey, str]]
) -> tuple[object, ...]:
    """Return which of the *wanted* attributes are not given, and which are not of their kind."""
    kinds = dict(given)
    missing = sorted(where for where in wanted if where not in kinds)
    schemas = [schema_of(node) for node in item.nodes] if kinds else []
    odd = [
        (where, kind)
        for where, kind in given
        if (schema := schemas[where[0]]) and schema.attributes.get(where[1], kind) != kind
    ]
    return (*missing, *odd)


def _gather_attributes(outlines: Sequence[Outline]) -> None:
    """Give each outline every attribute that the nodes of any of them state, in its own order.

    Outlines of one blueprint share the result, unless something was completed.
    """
    blueprints = {id(item.common): item.common for item in outlines}
    wanted = {
        (number, name): None
        for common in blueprints.values()
        for number, attributes in enumerate(common.stated)
        for name in attributes
    }
    complete: dict[int, dict[AttributeKey, Attribute]] = {}
    for item in outlines:
        blueprint = complete.get(id(item.common))
        if blueprint is not None:
            item.attributes = blueprint
            continue
        _complete(item, wanted)
        if not item.completed and len(item.attributes) == len(wanted):
            complete[id(item.common)] = item.attributes


def _complete(item: Outline, wanted: Iterable[AttributeKey]) -> None:
    stated = item.common.stated
    own = [(number, name) for number, attributes in enumerate(stated) for name in attributes]
    for where in sorted(dict.fromkeys([*own, *wanted]), key=itemgetter(0)):
        number, name = where
        attribute = stated[number].get(name)
        if attribute is None:
            attribute = attribute_of(item.nodes[number], name)
            if attribute is None:
                continue
            item.completed.append(where)
        item.attributes[where] = attribute


def _name_attributes(item: Outline) -> dict[AttributeKey, str]:
    """Name the attributes; the names do not depend on which of them are given.

    Where two operators can have an attribute of one name, that of the second has a number.
    """
    names_at: dict[AttributeKey, str] = {}
    used = set(item.computed)
    last = max((number for number, _ in item.attributes), default=0)
    for number, node in enumerate(item.nodes[: last + 1]):
        given = [name for at, name in item.attributes if at == number]
        possible = possible_attributes(node) if number < last else frozenset()
        # a file may have an attribute without a name
        names = {name: claim(name or "attribute", used) for name in sorted(possible.union(given))}
        names_at.update(((number, name), names[name]) for name in given)
    return {where: names_at[where] for where in item.attributes}


def _formal_name(origin: Value, item: Outline) -> str:
    """Return what the first node that reads a value calls it."""
    for number, node in enumerate(item.nodes):
        for slot, value in enumerate(_operands(item, number)):
            if value is not None and behind_identities(value) is origin:
                return formal_input(node, slot) or "x"
        if origin in map(behind_identities, bodies_in_form(node).captured):
            return "captured"
    return "x"


def _operands(item: Outline, number: int) -> tuple[Value | None, ...]:
    """Return what a node reads, in the order that it has in the body."""
    inputs = item.nodes[number].inputs
    return inputs[::-1] if number in item.swapped else inputs


def formal_input(node: Node, slot: int) -> str:
    """Return what the standard calls an input of *node*; "" if that is not known."""
    schema = schema_of(node)
    formals = () if schema is None else schema.inputs
    return formals[min(slot, len(formals) - 1)] if formals else ""


def _inside(body: BodyWriter, value: Value, values: dict[Value, Value]) -> Value:
    """Return what stands for *value* in the body: a formal input, an inner value or a constant."""
    inner = values.get(value) or values.get(behind_identities(value))
    if inner is not None:
        return inner
    # functions have no initializers
    tensor = behind_identities(value).constant
    assert tensor is not None  # noqa: S101  # outline() embeds nothing else
    name = unique("Constant", {node.name for node in body.graph}.__contains__)
    attributes = {"value": Attribute("tensor", tensor)}
    node = body.add_node(("", "Constant", ""), name, (), attributes, [f"{name.lower()}_out"])
    (output,) = node.outputs
    assert output is not None  # noqa: S101  # it was asked for
    values[value] = output
    return output


# What a call says of the nodes that it took the place of, beyond their operators and names.
#
# The metadata ``dpl.nodes`` of a call lists the nodes. What cannot be read off that list and the
# function's body stands in ``dpl.undo``, a JSON object that is left out where there is nothing to
# say. Numbers of nodes are places in ``dpl.nodes``:
#
# ==============  ==================================================================================
# ``run``         how many partitions the graph had been through before, if any
# ``order``       the nodes as they stood, unless that was in one row: their numbers, and behind one
#                                 the first output of what stood there, if it was none of them; the
#                                 call stands in the place of the last one
# ``behind``      of nodes that had to move behind the call, and of those that made embedded
#                                 constants: by first output, that of what stood just behind
# ``reads``       by node and input slot, what was read through Identity nodes, or is embedded now;
#                                 ``""`` for a trailing omitted input
# ``swapped``     the nodes whose two operands stood the other way round
# ``constants``   the embedded constants by name, and what made them (_constant)
# ``types``       what the file stated of inner values, by node or ``NODE.OUTPUT``: element type,
#                                 shape, perhaps remarks; or a ``ValueInfoProto`` in base 64; or one
#                                 of these, and how the value is quantised
# ``remarks``     by node, ``doc_string``, ``metadata_props``, and the rest of it in base 64
# ``repeated``    the nodes whose names other nodes had, too, or in whose bodies there are such
# ``bodies``      by node, what the function's body does not tell of its bodies (_bodies)
# ``stated``      the outputs of the call whose types the file states now, and did not state before
# ==============  ==================================================================================


quoted = json.encoder.encode_basestring
encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class OriginRecorder:
    """Records how a model was before it is partitioned.

    Args:
        model: The model, which is not edited before all *outlines* have been made.
        outlines: What is to be outlined; each is described as soon as it is made.

    Attributes:
        names: The names that nodes have.
    """

    def __init__(self, model: Model, outlines: Iterable[Outline]) -> None:
        self.names: set[str] = set()
        self._repeated: dict[Graph, set[str]] = {}
        for outermost in (model.graph, *(function.body for function in model.functions.values())):
            names = [node.name for graph in outermost.and_inner() for node in graph]
            self.names.update(names)
            if len(set(names)) < len(names):
                repeated = {name for name, n in Counter(names).items() if name and n > 1}
                self._repeated.update(dict.fromkeys(outermost.and_inner(), repeated))
        self._runs: dict[Graph, int] = {}
        self._statements: dict[int, tuple[StatedType, object]] = {}
        self._behind: dict[Graph, dict[str, str]] = {}
        self._last: dict[Node, str] = {}
        self._found: dict[int, tuple[str, Json]] = {}
        self._lasts: dict[int, str] = {}
        for item in outlines:
            self._lasts[id(item)] = item.last.first_output
            self._found[id(item)] = _describe_nodes(item), self._describe(item)

    def stand_for(self, call: Node, item: Outline) -> None:
        """Let *call* have the place of the last node that it stands for."""
        self._last[call] = self._lasts[id(item)]

    def metadata(
        self, item: Outline, moved: Iterable[Node], stated: Sequence[int]
    ) -> Mapping[str, str]:
        """Return, once, the metadata that say what a call stands for.

        Args:
            item: What is outlined, its attributes complete.
            moved: The nodes that have to move behind the call.
            stated: The outputs of the call whose types are stated from now on.
        """
        nodes, rest = self._found.pop(id(item))
        if item.completed:
            # Add to the entries of nodes the attributes that the file left to their defaults.
            entries = json.loads(nodes)
            names: dict[int, list[str]] = {}
            for number, name in item.completed:
                names.setdefault(number, []).append(name)
            for number, of_node in names.items():
                entries[number].append(of_node)
            nodes = encode_json(entries)
        if moved:
            behind = self._order_of(item.match.root.graph)
            follow = [self._last.get(node, node.first_output) for node in moved]
            told = {name: behind[name] for name in follow if name in behind}
            rest["behind"] = told | rest.get("behind", {})
        if stated:
            rest["stated"] = stated
        return {NODES_KEY: nodes, UNDO_KEY: encode_json(rest)} if rest else {NODES_KEY: nodes}

    def _describe(self, item: Outline) -> Json:
        """Say what cannot be read off the list of nodes and the function's body."""
        graph = item.match.root.graph
        run = self._runs.get(graph)
        if run is None:
            run = self._runs[graph] = _runs_of(graph)
        nodes, repeated = item.nodes, self._repeated.get(graph)
        origin: Json = {"run": run} if run else {}
        if not _stands_in_one_row(item):
            behind = self._order_of(item.match.root.graph)
            origin["order"] = told_order(item.nodes, behind)
            origin["behind"] = self._constants_behind(item, behind)
        if not item.reads_plainly:
            origin["reads"] = outside_reads(item)
            origin["bodies"] = {
                f"{n}": _bodies(v, item) for n, v in enumerate(nodes) if v.subgraphs
            }
        if item.swapped:
            origin["swapped"] = list(item.swapped)
        if item.embedded:
            origin["constants"] = self._constants(item)
        origin["remarks"] = remarks_by_number(node.remarks for node in nodes)
        if repeated:
            origin["repeated"] = [
                number
                for number, node in enumerate(nodes)
                if not repeated.isdisjoint(each.name for each in with_bodies((node,)))
            ]
        origin["types"] = self._types(item)
        return {key: value for key, value in origin.items() if value}

    def _order_of(self, graph: Graph) -> Mapping[str, str]:
        """Say what stands behind each node of *graph*, which is not edited yet when first asked."""
        if graph not in self._behind:
            self._behind[graph] = names_behind(graph)
        return self._behind[graph]

    @staticmethod
    def _constants_behind(item: Outline, behind: Mapping[str, str]) -> Json:
        read: list[Value] = [*item.embedded]
        told: Json = {}
        for value in read:  # through Identity nodes, too
            if value.producer is not None and value.graph is item.match.root.graph:
                told[value.name] = behind[value.name]
                read += value.producer.read
        return told

    def _types(self, item: Outline) -> Json:
        """Describe what the file states of inner values, by the places of these."""
        entries: Json = {}
        kept: set[Node] = set()
        if item.match.escaping:
            kept = set(item.match.nodes).difference(item.replaced)
        outputs = item.outputs
        for number, node in enumerate(item.nodes):
            if node in kept:
                continue
            for value in node.outputs:
                if value is None or value in outputs:
                    continue
                is_plain = type(value.type_source) is not TypeStatement
                if is_plain and not value.graph.stated_types and not value.graph.annotations:
                    continue
                stated = stated_of(value)
                if stated is None:
                    continue
                if id(stated) not in self._statements:  # values share what is stated of them
                    self._statements[id(stated)] = stated, describe_type(stated)
                place = f"{number}.{value.index}" if value.index else f"{number}"
                entries[place] = self._statements[id(stated)][1]
        return entries

    def _constants(self, item: Outline) -> Json:
        """Describe the embedded constants, and the Identity nodes that they come through."""
        entries: Json = {}
        graph = item.match.root.graph
        for read in item.embedded:
            value = read
            while value.name not in entries:
                entry = entries[value.name] = _constant(value, graph)
                stated = stated_of(value)
                if stated is not None:
                    entry["type"] = describe_type(stated)
                maker = value.producer
                if maker is None:
                    break
                if not maker.inputs or maker.inputs[0] is None:
                    break
                value = maker.inputs[0]
        return entries


def wording_of(nodes: Iterable[Node]) -> str:
    """Write down, as JSON, what a call stands for, so that it can be undone; without names.

    One entry per node of the function's body: operator, place for the node's name, places for the
    names of the outputs.
    """
    entries = []
    for node in nodes:
        outputs = ",".join(["%s"] * len(node.outputs))
        entries.append(f"[{quoted(node.qualified_op).replace('%', '%%')},%s,[{outputs}]")
    return f"[{'],'.join(entries)}]]"


def _describe_nodes(item: Outline) -> str:
    """Write down, as JSON, what a call stands for, so that it can be undone."""
    names = []
    for node in item.nodes:
        names.append(node.name)
        names += ["" if output is None else output.name for output in node.outputs]
    return item.common.wording % tuple(map(quoted, names))


def _runs_of(graph: Graph) -> int:
    """Count the partitions that a graph has been through, as far as its calls tell."""
    if not graph.model.functions:
        return 0
    runs = [
        -1 if (record := read_call(node)) is None else record.run
        for node in graph
        if called_function(node) is not None and NODES_KEY in node.remarks.metadata
    ]
    return max(runs, default=-1) + 1


def _stands_in_one_row(item: Outline) -> bool:
    """Tell whether the nodes follow each other, and nothing made by nodes is embedded."""
    expected: Node | None = item.nodes[0]
    for node in item.nodes:
        if node is not expected:
            return False
        expected = node.next
    return all(value.producer is None for value in item.embedded)


def names_behind(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the order of *nodes*, all of a graph, by first outputs: what stands behind each."""
    named = [node.first_output for node in nodes if node.first_output]
    return dict(zip(named, [*named[1:], ""], strict=True))


def told_order(nodes: Sequence[Node], behind: Mapping[str, str]) -> list[int | str]:
    """Say how *nodes*, which a call is to stand for, stood; nothing if that was in one row.

    Args:
        nodes: The nodes, in the order of the record.
        behind: The order of the graph.
    """
    numbers = sorted(range(len(nodes)), key=lambda number: nodes[number].position)
    order: list[int | str] = []
    for number, other in zip(numbers, [*numbers[1:], None], strict=True):
        order.append(number)
        following = behind.get(nodes[number].first_output)
        if other is not None and following and following != nodes[other].first_output:
            order.append(following)
    return [] if order == list(range(len(nodes))) else order


def stated_of(value: Value) -> StatedType | None:
    """Return what the file states of a value beside the interface of its graph."""
    stated = value.stated_type
    annotations = value.graph.annotations.get(value.name, ())
    return (stated or StatedType(None))._replace(annotations=annotations) if annotations else stated


def describe_type(stated: StatedType) -> object:
    """Write a type: element type, shape, remarks; or what the codec encodes it as."""
    kind = stated.known
    if stated.annotations:
        plain = describe_type(stated._replace(annotations=()))
        said = [[dict(p), b64encode(rest).decode()] for p, rest in stated.annotations]
        return {"type": plain, "annotations": said}
    if kind is None:
        return b64encode(stated.encoded).decode()
    shape = None if kind.shape is None else list(kind.shape)
    remark = describe_remarks(stated.remarks)
    return [kind.dtype, shape, remark] if remark else [kind.dtype, shape]


def outside_reads(item: Outline) -> Json:
    """List what the body does not tell: embedded constants, Identity nodes, omitted inputs."""
    inside: set[Node | None] = set(item.nodes)
    given = set(item.inputs)
    reads: Json = {}
    for number, node in enumerate(item.nodes):
        inputs = node.inputs
        slots = {}
        for slot, value in enumerate(inputs):
            if value is None or (maker := value.producer) in inside:
                continue
            is_told = maker is None or behind_identities(value).producer not in inside
            if not is_told or value not in given:
                slots[f"{slot}"] = value.name
        if inputs and inputs[-1] is None:
            slots[f"{len(inputs) - 1}"] = ""
        if slots:
            reads[f"{number}"] = slots
    return reads


def _bodies(node: Node, item: Outline) -> Json:
    """Describe the bodies of *node*: all that their form leaves open.

    ``attributes`` is the order of its attributes, ``captures`` which values it captures by another
    name than the call reads them by. The rest is of graphs, nodes and values in the order of the
    form: names, remarks (of graphs, too), and what is stated of types.
    """
    form, codec = bodies_in_form(node), node.graph.model.codec
    captures = {
        f"{place}": value.name
        for place, value in enumerate(form.captured)
        if value.producer not in item.nodes and value not in item.inputs
    }
    types = {f"{n}": codec.statement_of(value) for n, value in enumerate(form.values)}
    rest = {f"{n}": codec.graph_remarks(graph) for n, graph in enumerate(form.graphs)}
    return {
        "attributes": list(node.attributes),
        "captures": captures,
        "graphs": [graph.name for graph in form.graphs],
        "nodes": [inner.name for inner in form.nodes],
        "values": [value.name for value in form.values],
        "types": {key: b64encode(encoded).decode() for key, encoded in types.items() if encoded},
        "remarks": remarks_by_number(inner.remarks for inner in form.nodes),
        "rest": {key: b64encode(encoded).decode() for key, encoded in rest.items() if encoded},
    }


def _constant(value: Value, graph: Graph) -> Json:
    """Describe how a constant, or a copy of one, is made.

    ``node`` is the name of the node that makes it; an initializer has none. ``reads`` is what an
    Identity reads. ``attribute`` is the attribute of a Constant that holds the number, if that is
    not ``value``; ``rest`` is what else is in that. ``up`` is how many graphs outside it lies.
    """
    entry: Json = {}
    levels = [*outwards(graph)].index(value.graph)
    if levels:
        entry["up"] = levels
    node = value.producer
    if node is None:
        return entry
    entry["node"] = node.name
    if behind_identities(value) is not value:
        source = node.inputs[0]
        entry["reads"] = "" if source is None else source.name
    else:
        for name, attribute in node.attributes.items():
            entry |= {"attribute": name} if name != "value" else {}
            entry |= {"rest": b64encode(attribute.rest).decode()} if attribute.rest else {}
    remarks = describe_remarks(node.remarks)
    if remarks:
        entry["remarks"] = remarks
    return entry


def remarks_by_number(carried: Iterable[Remarks]) -> Json:
    """List what nodes carry for readers and tools, by their number."""
    return {f"{n}": describe_remarks(remarks) for n, remarks in enumerate(carried) if any(remarks)}


def describe_remarks(remarks: Remarks) -> Json:
    """Write what a node or a type carries, as far as it carries anything."""
    entry: Json = {"doc": remarks.doc, "metadata": dict(remarks.metadata)}
    entry["rest"] = b64encode(remarks.rest).decode()
    return {key: value for key, value in entry.items() if value}


@keys(
    "rule=match.rule target=function.domain function call=call.name scope=call.scope "
    "nodes=match.nodes inputs=call.read outputs=call.made"
)
class Partition(NamedTuple):
    """One match that became a call.

    Attributes:
        match: What was matched; its nodes are no longer in the graph.
        function: The function called.
        call: The call.
    """

    match: Match
    function: Function
    call: Node


def partition(model: Model, selection: Selection) -> list[Partition]:
    """Replace every selected match by a call of a function.

    The model is edited in place; without matches it is left as it is.

    Returns:
        One entry per match, in program order.
    """
    if not selection.matches:
        return []
    matches = in_program_order(selection.matches)
    by_rule: dict[str, list[Outline]] = {}
    maker = OutlineMaker()

    def outlines() -> Iterator[Outline]:
        for match in matches:
            item = maker.outline(match)
            by_rule.setdefault(match.rule.qualified_name, []).append(item)
            yield item

    origins = OriginRecorder(model, outlines())
    kinds = [kind for items in by_rule.values() for kind in group(items)]
    outliner = Outliner(model, {rule.name for rule in selection.rules}, origins)
    partitions = outliner.replace_all(kinds)
    raise_ir_version(model)
    for kind in kinds:
        for item in kind.outlines:
            for value in item.embedded:
                _drop_if_unread(value)
    return [partitions[id(match)] for match in matches]


class Outliner:
    """Writes the functions and the calls.

    Args:
        model: The model to edit.
        reserved: Names of the rules: a variant's name must not look like another rule's.
        origins: Knows how the model was.
    """

    def __init__(self, model: Model, reserved: set[str], origins: OriginRecorder) -> None:
        self.model = model
        self.origins = origins
        self.node_names = set(origins.names)
        used = {key[:2] for key in model.functions}
        for graph in model.graphs():
            used.update([(node.domain, node.op_type) for node in graph if node.domain])
        self.names = FunctionNames(model, used, reserved)
        self.may_share = False
        self.kept: dict[Graph, list[Node]] = {}
        self.types: dict[Value, StatedType] = {}

    def replace_all(self, kinds: Sequence[OutlinedFunction]) -> dict[int, Partition]:
        """Write all functions from the graphs as they are, then put the calls in.

        Where calls may compute again what others compute, all nodes stay to the end.

        Args:
            kinds: What to outline; contracted to single nodes, all of them must form no cycle.

        Returns:
            What each match became, by its identity.
        """
        made = {}
        self.may_share = any(copies(item.match) for kind in kinds for item in kind.outlines)
        functions = [kind.write(self.model, self.names.claim(kind)) for kind in kinds]
        for value in self._untyped(kinds):
            stated = statement_for(value)
            if stated is not None:
                self.types[value] = stated
        for kind, function in zip(kinds, functions, strict=True):
            version = self.model.opset_imports.setdefault(function.domain, 1)
            for number, item in enumerate(kind.outlines):
                scope = item.match.root.graph
                scope.opset_imports.setdefault(function.domain, version)
                call = self._replace(item, kind, function, number)
                made[id(item.match)] = Partition(item.match, function, call)
        for graph, nodes in self.kept.items():
            GraphRewriter(graph).erase(nodes)
        self.model.functions = {f.key: f for f in functions} | self.model.functions
        return made

    def _untyped(self, kinds: Sequence[OutlinedFunction]) -> Iterator[Value]:
        """Yield what calls will make of which onnx can tell no type, and the file states none."""
        for kind in kinds:
            nodes = with_bodies(kind.outlines[0].nodes)
            if any(node.domain and is_foreign(node) for node in nodes):
                for item in kind.outlines:
                    yield from filter(lacks_type, item.outputs)

    def _replace(
        self, item: Outline, kind: OutlinedFunction, function: Function, number: int
    ) -> Node:
        match = item.match
        graph = match.root.graph
        rewriter = GraphRewriter(graph)
        anchor = item.last
        moved: list[Node] = []
        outputs = item.outputs
        if (len(outputs) != 1 or outputs[0].producer is not anchor) and any(
            output.producer is not anchor for output in outputs
        ):
            moved = dependents_before(anchor, item.outputs, match.nodes)
        stated = [number for number, output in enumerate(outputs) if output in self.types]
        metadata = self.origins.metadata(item, moved, stated)
        graph.stated_types |= {
            outputs[number].name: self.types[outputs[number]] for number in stated
        }
        if moved:
            rewriter.move_behind(anchor, moved)
        call = rewriter.insert(
            anchor,
            function.name,
            item.inputs,
            domain=function.domain,
            name=claim(f"{function.name}_{number}", self.node_names),
            attributes=kind.call_attributes(item),
            remarks=Remarks(metadata=metadata),
        )
        self.origins.stand_for(call, item)
        rewriter.take_over_outputs(call, item.outputs)
        inherit_devices(call, item.nodes)
        if self.may_share:
            self.kept.setdefault(graph, []).extend(item.replaced)
        else:
            rewriter.erase(item.replaced)
        return call


@dataclass
class FunctionNames:
    """Names of functions: the same for the same form of a rule, in every model.

    Attributes:
        model: The model.
        used: Domains and names that functions or operators go by. If something else has the name
            that a function should have, the function's gets a number.
        reserved: Names of the rules: a variant's name must not look like another rule's.
    """

    model: Model
    used: set[tuple[str, str]]
    reserved: AbstractSet[str]
    _first: dict[str, FormKey | None] = field(default_factory=dict)

    def claim(self, kind: OutlinedFunction) -> str:
        """Return the name of a function, and take it."""
        item = kind.outlines[0]
        rule = rule_of(item.match)

        def is_used(name: str) -> bool:
            if (rule.target, name) in self.used:
                return True
            return name in self.reserved and name != rule.name

        suffix = "" if item.form is None else self._suffix(rule, item, item.form, kind.lacking)
        name = unique(f"{rule.name}{suffix}", is_used)
        self.used.add((rule.target, name))
        return name

    def _suffix(
        self, rule: PatternRule, item: Outline, form: Form, lacking: tuple[object, ...]
    ) -> str:
        if rule.qualified_name not in self._first:
            first = first_form(rule, self.model.codec.schemas)
            self._first[rule.qualified_name] = first
        opsets = item.match.root.graph.opset_imports
        domains = sorted({node.domain for node in item.nodes})
        others = [
            (domain, opsets.get(domain, 0))
            for domain in domains
            if opsets.get(domain, 0) != self.model.opset_imports.get(domain, 0)
        ]
        if form.wiring == self._first[rule.qualified_name] and not lacking and not others:
            return ""
        return f"_{form.suffix(*lacking, *others)}"


def _drop_if_unread(value: Value) -> None:
    """Take out a constant, and the Identity nodes through which it was read."""
    while not (value.use_count or value.returned_by or value.is_graph_input):
        if value.graph.values.get(value.name) is not value:
            return
        rewriter = GraphRewriter(value.graph)
        producer = value.producer
        if producer is None:
            rewriter.drop_initializer(value)
            return
        origin = producer.inputs[0] if is_identity(producer) else None
        if origin is None and not value.is_constant:
            return  # a call has taken the place of the copy
        rewriter.erase([producer])
        if origin is None:
            return
        value = origin
