"""The form of a match, and the name that a function of that form has in every model.

Whoever supplies a kernel sees the name of a function, its attributes and its inputs, never the
body. So the name has to say all: matches of one rule have functions of one name if and only if the
same operators are wired the same way. How a file orders nodes, and in which order it gives the
operands of an operator that commutes, is no part of the form.

The form that a rule's pattern describes if every choice in it falls on the first that is offered
has the rule's own name. The name of any other form ends in a digest of it, which is the same in
every model and every release.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from dplcli.catalog.sketch import NoInstanceError, sketches
from dplcli.ir import Tensor
from dplcli.ir.operators import commutes, lacks_default, meaning_of
from dplcli.ir.traversal import behind_identities, bodies_of
from dplcli.ir.types import GRAPH_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dplcli.catalog.sketch import VariantSketch
    from dplcli.ir import Attribute, Graph, Node, OpSchema, SchemaLibrary, Value
    from dplcli.language.rule import PatternRule

    OutputSlot = tuple[int, int]
    Wire = OutputSlot | int | str | None
    _Rank = tuple[int, int, bytes, bytes]

_ROUNDS = 3
"""How often unnamed inputs are told apart by what reads them: patterns are a few nodes deep."""

_TRIES = 64
"""How many orders are tried of operands that look alike from all sides; most often they are."""

_SUFFIX_BYTES = 4
_MANY_INPUTS = 8
_NEWEST = (1 << 31) - 1


class OperatorUse(NamedTuple):
    """What one node of a match is, apart from what it reads.

    Attributes:
        domain: Domain of its operator.
        op_type: Its operator.
        overload: Which overload of a function it calls.
        meaning: Which of the meanings that the standard has given the operator.
        stated: The attributes given for which there is no default, and a digest of the bodies.
        outputs: Which outputs it has.
    """

    domain: str
    op_type: str
    overload: str
    meaning: int
    stated: tuple[str, ...]
    outputs: tuple[bool, ...]


class FormKey(NamedTuple):
    """What a match computes, in the order of a file.

    Attributes:
        operators: Its nodes; each stands behind those that it reads.
        wires: What each slot of each node reads: the output of a node, an input by number, a
            constant of the body by its digest; None if it is omitted.
        names: By input, its name in the rule's pattern, with the place among those; or "".
        outputs: What it makes for others.
        escaping: How many of these, at the end, are in no order.
    """

    operators: tuple[OperatorUse, ...]
    wires: tuple[tuple[Wire, ...], ...]
    names: tuple[tuple[int, str], ...]
    outputs: tuple[OutputSlot, ...]
    escaping: int = 0


class Form(NamedTuple):
    """A wiring in an order that no file has a say in.

    Attributes:
        order: The nodes of the wiring, in the order of the body.
        swapped: The places in the body of nodes that give their two operands the other way round
            there.
        inputs: The inputs of the wiring, in the order of the function's: as the pattern first names
            them, then the unnamed ones as the body first reads them.
        outputs: The outputs of the wiring, in the order of the function's.
        wiring: The wiring so ordered; equal for equal forms.
    """

    order: tuple[int, ...]
    swapped: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    wiring: FormKey

    def suffix(self, *more: object) -> str:
        """Return the digest that sets the names of such functions off from those of others."""
        operators, wires, names, outputs, _ = self.wiring
        said = ([tuple(each) for each in operators], wires, [name for _, name in names], outputs)
        return blake2b(repr((said, *more)).encode(), digest_size=_SUFFIX_BYTES).hexdigest()


@lru_cache(maxsize=4096)
def form_of(wiring: FormKey) -> Form:
    """Bring a wiring into its form.

    Operands of an operator that commutes come in this order: what inner nodes make, inputs as the
    pattern names them, other inputs, constants. Nodes come as the outputs need them. Where two
    operands look alike from below, what reads them decides; where they look alike from all sides,
    both orders are tried (McKay, Practical Graph Isomorphism, 1981), and that of the file is kept
    if the form is the same.
    """
    forms = _ordered(wiring, _ranks(wiring), _TRIES)
    return min(forms, key=lambda form: (repr(form.wiring), len(form.swapped), form.order))


def _ordered(wiring: FormKey, ranks: dict[Wire, _Rank], tries: int) -> Iterator[Form]:
    """Yield a form for each way to tell apart operands that look alike."""
    alike = [
        (_digest(use, sorted(ranks[wire] for wire in wires)), wires)
        for use, wires in zip(wiring.operators, wiring.wires, strict=True)
        if _commutes(use, wires) and wires[0] != wires[1] and ranks[wires[0]] == ranks[wires[1]]
    ]
    if not alike or tries < len(alike[0][1]):
        yield _form_by(wiring, ranks)
        return
    _, pair = min(alike, key=lambda each: each[0])
    for wire in pair:
        told = ranks | {wire: (*ranks[wire][:3], _digest("first", ranks[wire]))}
        yield from _ordered(wiring, _refined(wiring, told), tries // len(pair))


def _form_by(wiring: FormKey, ranks: Mapping[Wire, _Rank]) -> Form:
    """Return the form in which operands are ordered by their ranks."""
    turned = [
        _commutes(use, wires) and ranks[wires[1]] < ranks[wires[0]]
        for use, wires in zip(wiring.operators, wiring.wires, strict=True)
    ]
    read = [w[::-1] if swap else w for w, swap in zip(wiring.wires, turned, strict=True)]
    # Order the nodes as the outputs need them.
    placed: dict[int, None] = {}
    for first in (*(number for number, _ in wiring.outputs), *range(len(read))):
        pending = [first]
        while pending:
            number = pending[-1]
            needed = (w[0] for w in read[number] if isinstance(w, tuple) and w[0] not in placed)
            missing = next(needed, None)
            if missing is None:
                placed.setdefault(pending.pop())
            else:
                pending.append(missing)
    order = list(placed)
    place = {number: at for at, number in enumerate(order)}
    is_named = (number for number, (_, name) in enumerate(wiring.names) if name)
    named = sorted(is_named, key=wiring.names.__getitem__)
    used = (wire for number in order for wire in read[number] if isinstance(wire, int))
    arrived = tuple(dict.fromkeys((*named, *used)))
    slot = {number: at for at, number in enumerate(arrived)}

    def renumbered(wire: Wire) -> Wire:
        if isinstance(wire, tuple):
            return place[wire[0]], wire[1]
        return slot[wire] if isinstance(wire, int) else wire

    ends = [(place[number], index) for number, index in wiring.outputs]
    kept = len(ends) - wiring.escaping
    leaving = [*range(kept), *sorted(range(kept, len(ends)), key=ends.__getitem__)]
    return Form(
        tuple(order),
        tuple(at for at, number in enumerate(order) if turned[number]),
        arrived,
        tuple(leaving),
        FormKey(
            tuple(wiring.operators[number] for number in order),
            tuple(tuple(map(renumbered, read[number])) for number in order),
            tuple((0, wiring.names[number][1]) for number in arrived),
            tuple(ends[at] for at in leaving),
        ),
    )


def _commutes(use: OperatorUse, wires: Sequence[Wire]) -> bool:
    return commutes(use.domain, use.op_type, len(wires)) and None not in wires


def _keys(wiring: FormKey) -> tuple[list[bytes], list[bytes]]:
    """Return digests of inputs and nodes. They do not depend on where something stands."""
    inputs = [_digest(name) for _, name in wiring.names]
    nodes: list[bytes] = []
    for _ in range(_ROUNDS):
        nodes.clear()
        readers: list[list[tuple[bytes, int]]] = [[] for _ in inputs]
        for use, wires in zip(wiring.operators, wiring.wires, strict=True):
            read = [
                _digest(nodes[wire[0]], wire[1])
                if isinstance(wire, tuple)
                else inputs[wire]
                if isinstance(wire, int)
                else _digest(wire)
                for wire in wires
            ]
            free = _commutes(use, wires)
            nodes.append(_digest(tuple(use), sorted(read) if free else read))
            for at, wire in enumerate(wires):
                if isinstance(wire, int):
                    readers[wire].append((nodes[-1], 0 if free else at))
        inputs = [_digest(key, sorted(of)) for key, of in zip(inputs, readers, strict=True)]
    return inputs, nodes


def _ranks(wiring: FormKey) -> dict[Wire, _Rank]:
    """Return how each wire stands among operands; equal for those that look alike."""
    inputs, nodes = _keys(wiring)

    def rank(wire: Wire) -> _Rank:
        match wire:
            case tuple():
                return 0, 0, _digest(nodes[wire[0]], wire[1]), b""
            case int():
                place, name = wiring.names[wire]
                return (1, place, b"", b"") if name else (2, 0, inputs[wire], b"")
            case _:
                return 3, 0, _digest(wire), b""

    wires = {wire for of_node in wiring.wires for wire in of_node}
    return _refined(wiring, {wire: rank(wire) for wire in (*wires, *wiring.outputs)})


def _refined(wiring: FormKey, ranks: dict[Wire, _Rank]) -> dict[Wire, _Rank]:
    """Tell wires apart by what reads them, and nodes by what they read, as far as that goes."""
    kept = len(wiring.outputs) - wiring.escaping
    leaves: dict[Wire, int] = {wire: min(kept, at) for at, wire in enumerate(wiring.outputs)}
    outputs_of: list[list[Wire]] = [[] for _ in wiring.operators]
    for wire in ranks:
        if isinstance(wire, tuple):
            outputs_of[wire[0]].append(wire)
    while True:
        readers: dict[Wire, list[bytes]] = {wire: [] for wire in ranks}
        of_node: list[bytes] = []
        for number, (use, wires) in enumerate(zip(wiring.operators, wiring.wires, strict=True)):
            free = _commutes(use, wires)
            read = [ranks[wire] for wire in wires]
            given = sorted(ranks[wire] for wire in outputs_of[number])
            of_node.append(_digest(use, sorted(read) if free else read, given))
            for at, wire in enumerate(wires):
                readers[wire].append(_digest(of_node[number], 0 if free else at))
        finer = {
            wire: (
                *rank[:3],
                _digest(
                    rank[3],
                    leaves.get(wire),
                    sorted(readers[wire]),
                    of_node[wire[0]] if isinstance(wire, tuple) else b"",
                ),
            )
            for wire, rank in ranks.items()
        }
        if len(set(finer.values())) == len(set(ranks.values())):
            return ranks
        ranks = finer


def _digest(*key: object) -> bytes:
    return blake2b(repr(key).encode(), digest_size=8).digest()


def use_of(
    operator: tuple[str, str, str],
    opset: int,
    schema: OpSchema | None,
    stated: Mapping[str, object],
    outputs: Sequence[object],
) -> OperatorUse:
    """Describe a node by itself.

    Args:
        operator: Domain, operator and overload.
        opset: The opset of that domain.
        schema: What the standard says of the operator.
        stated: The attributes that are given.
        outputs: The outputs; None or "" where one is omitted.
    """
    domain, op_type, overload = operator
    free = tuple(sorted(name for name in stated if lacks_default(domain, op_type, name, schema)))
    meaning = meaning_of(domain, op_type, opset)
    return OperatorUse(domain, op_type, overload, meaning, free, tuple(map(bool, outputs)))


class BodyForm(NamedTuple):
    """The bodies of a node, If, Loop or Scan, as a function takes them along.

    A body counts as it is written: its nodes in their order, its attributes and data as they are,
    and the types of its inputs, without which onnxruntime runs no Loop in a function. What its
    values and nodes are called does not count, nor other types, nor what is said for readers.

    Attributes:
        digest: Equal for bodies that are the same; "" for a node without.
        captured: What they read or return of what lies round them, each once.
        graphs: The bodies, and those inside them.
        values: What is defined in them.
    """

    digest: str
    captured: tuple[Value, ...]
    graphs: tuple[Graph, ...]
    values: tuple[Value, ...]

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all bodies."""
        return [node for graph in self.graphs for node in graph]


_NO_BODIES = BodyForm("", (), (), ())


def bodies_in_form(node: Node) -> BodyForm:
    """Bring the bodies of *node* into their form: values in the order in which they come up."""
    if not node.subgraphs:
        return _NO_BODIES
    graphs = tuple(bodies_of(node))
    numbers: dict[Value, int] = {}

    def numbered(values: Iterable[Value | None]) -> list[int | None]:
        return [None if v is None else numbers.setdefault(v, len(numbers)) for v in values]

    said: list[object] = [(name, body.node_count) for name, body in sorted(node.subgraphs.items())]
    for graph in graphs:
        types = [graph.model.codec.statement_of(value) for value in graph.inputs]
        said.append((numbered(graph.inputs), types))
        for inner in graph:
            attributes = [(name, _said_by(each)) for name, each in inner.attributes.items()]
            operator = (inner.domain, inner.op_type, inner.overload)
            said.append((operator, numbered(inner.inputs), attributes, numbered(inner.outputs)))
        said.append(numbered(graph.outputs))
    for graph in graphs:
        data = [(numbered((value,)), tensor_key(value)) for value in graph.initializers]
        said += sorted(data, key=repr)
    digest = blake2b(repr(said).encode(), digest_size=8).hexdigest()
    captured = tuple(value for value in numbers if value.graph not in graphs)
    values = tuple(value for value in numbers if value.graph in graphs)
    return BodyForm(digest, captured, graphs, values)


def _said_by(attribute: Attribute) -> tuple[object, ...]:
    """Return what an attribute of a node in a body says; its graphs are told by themselves."""
    value = attribute.value
    if isinstance(value, Tensor):
        value = constant_key(*value.content)
    elif attribute.kind in GRAPH_KINDS:
        value = None
    elif isinstance(value, tuple):
        value = [constant_key(*v.content) if isinstance(v, Tensor) else v for v in value]
    return attribute.kind, repr(value), attribute.ref, attribute.rest


def tensor_key(value: Value) -> str:
    """Return what constants share that can share a function: their data."""
    tensor = behind_identities(value).constant
    if tensor is None or tensor.is_external:  # what lies elsewhere is not read
        return constant_key("external", behind_identities(value).name)
    dtype, shape, data = tensor.content
    return constant_key(dtype, shape, data.encode() if isinstance(data, str) else data)


# The form that has the name of the rule.


def first_form(rule: PatternRule, schemas: SchemaLibrary) -> FormKey | None:
    """Return the form of what a rule's pattern describes, at the newest opset.

    None if the pattern leaves open what that is.
    """
    try:
        sketch, outputs = next(iter(sketches(rule, schemas)))
    except (NoInstanceError, StopIteration):
        return None
    return form_of(_sketched(rule, sketch, outputs, schemas)).wiring


class FurtherForm(NamedTuple):
    """A form that differs from another in how many inputs one operator has.

    Attributes:
        op_type: The operator.
        more: How many it has more.
        name: What such functions are called.
    """

    op_type: str
    more: int
    name: str


def further_forms(rule: PatternRule, schemas: SchemaLibrary) -> dict[str, list[FurtherForm]]:
    """Return, by the name of each form that a rule spells out, those with inputs it leaves open.

    A pattern may end the operands of a node in ``...``.
    """
    forms: dict[str, list[FurtherForm]] = {}
    try:
        for sketch, outputs in sketches(rule, schemas):
            sketched = _sketched(rule, sketch, outputs, schemas)
            name = f"{rule.name}_{form_of(sketched).suffix()}" if forms else rule.name
            more = forms.setdefault(name, [])
            for number in sorted(sketch.open_nodes):
                use, wires = sketched.operators[number], sketched.wires[number]
                schema = schemas.find(use.op_type, use.domain, _NEWEST)
                room = 0 if schema is None else schema.max_inputs - len(wires)
                for count in range(1, room + 1 if room < _MANY_INPUTS else 1):
                    given = tuple(len(sketched.names) + each for each in range(count))
                    of_nodes = list(sketched.wires)
                    of_nodes[number] = (*wires, *given)
                    names = (*sketched.names, *((0, ""),) * count)
                    key = sketched._replace(wires=tuple(of_nodes), names=names)
                    name = f"{rule.name}_{form_of(key).suffix()}"
                    more.append(FurtherForm(use.op_type, count, name))
    except NoInstanceError:
        pass
    return forms


def _sketched(
    rule: PatternRule, sketch: VariantSketch, outputs: Sequence[str], schemas: SchemaLibrary
) -> FormKey:
    """Return the wiring of a made-up graph."""
    places = {name: at for at, (name, _) in enumerate(rule.matcher.program.names)}
    slots: dict[str, OutputSlot] = {}
    inputs: dict[str, int] = {}
    constant = set() if rule.constants == "lift" else set(sketch.given)
    operators, wires = [], []
    for number, node in enumerate(sketch.nodes):
        of_node: list[Wire] = []
        for name in node.inputs:
            if not name or name in slots:
                of_node.append(slots.get(name))
            elif name in constant:
                data = sketch.given[name]
                of_node.append(constant_key(data.dtype.name, data.shape, data.tobytes()))
            else:
                of_node.append(inputs.setdefault(name, len(inputs)))
        wires.append(tuple(of_node))
        schema = schemas.find(node.op_type, node.domain, _NEWEST)
        operator = (node.domain, node.op_type, "")
        operators.append(use_of(operator, _NEWEST, schema, node.attributes, node.outputs))
        slots.update((name, (number, index)) for index, name in enumerate(node.outputs))
    names = tuple((places[name], name) if name in places else (0, "") for name in inputs)
    returned = tuple(slots[name] for name in outputs if name in slots)
    return FormKey(tuple(operators), tuple(wires), names, returned)


def constant_key(*content: object) -> str:
    """Return what stands for a constant of the body in a wiring: a digest of its content."""
    return blake2b(repr(content).encode(), digest_size=8).hexdigest()
