"""Pair the nodes, inputs, outputs and functions of two models, by dataflow and not by name.

What has no partner falls apart into differences, with the values around them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from dplcli.analysis.numbering import (
    ABSENT,
    ModelReader,
    Numbers,
    Side,
    attribute_form,
    both_there,
    free_inputs,
    input_number,
    is_commutative,
    made,
    nowhere,
    operands,
    readers,
    shared_places,
    slots,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from dplcli.analysis.numbering import Detail, Form, Key, ValuePair
    from dplcli.ir import Function, Graph, Model, Node, Value

    FunctionPair = tuple[Function, Function]

    NodePair = tuple[Node, Node]

    Both: TypeAlias = tuple[list["T"], list["T"]]

    Nearness = Callable[[NDArray[Any], NDArray[Any]], bool]

    Readers = dict[ValuePair, list[Node | None]]

T = TypeVar("T")
U = TypeVar("U")

_RETURNED = -3
"""The slot in which a graph reads what it returns."""


# Looking past nodes that only one graph has, where pairs do not grow from neighbour to neighbour.


_FARTHEST = 3
"""How many nodes are passed over at the most, in both graphs together."""
_WIDEST = 16
"""How many nodes are looked at in one distance; among more of them nothing is clear."""


def bridges(pairing: Pairing, pair: NodePair) -> Iterator[NodePair]:
    """Propose partners near *pair*, past as few nodes without a partner as possible."""
    local = tuple(side.local("loose") for side in pairing.sides)
    sides = tuple(zip(pairing.sides, pair, strict=True))
    for step in (_behind, _before):
        first, second = (_rings(pairing, step, side, node) for side, node in sides)
        for passed in range(1, _FARTHEST + 1):
            rings = zip(first[: passed + 1], second[passed::-1], strict=True)
            pairs = [near for ring in rings if all(ring) for near in unique_pairs(local, ring)]
            yield from pairs
            if pairs:
                break


def _rings(
    pairing: Pairing, step: Callable[[Side, Node], Iterator[Node]], side: Side, node: Node
) -> list[list[Node]]:
    """List the nodes without a partner next to *node*, then those next to these, and so on."""
    rings: list[list[Node]] = []
    seen = {node}
    ring = [node]
    for _ in range(_FARTHEST + 1):
        if ring:
            near = dict.fromkeys(chain.from_iterable(step(side, member) for member in ring))
            ring = [other for other in pairing.free(near) if other not in seen]
            ring = ring if len(ring) <= _WIDEST else []
            seen.update(ring)
        rings.append(ring)
    return rings


def _behind(side: Side, node: Node) -> Iterator[Node]:
    return (user for output in made(node) for user, _ in readers(output, side.graph))


def _before(side: Side, node: Node) -> Iterator[Node]:
    return (v.producer for v in slots(node) if v is not None and v.producer in side.position)


# Which local function of one model is which of the other.


def pair_functions(first: Model, second: Model) -> list[FunctionPair]:
    """Pair functions by their keys, then by their bodies if one function of each model has it.

    A renamed function may call another one. So it is looked at again when that one has a partner.
    """
    shared = first.functions.keys() & second.functions.keys()
    pairs = [(f, second.functions[key]) for key, f in first.functions.items() if key in shared]
    rest = [[f for k, f in m.functions.items() if k not in shared] for m in (first, second)]
    while rest[0] and rest[1]:
        numbers = Numbers()
        readers_of = (ModelReader({}), ModelReader(aliases_of(pairs)))
        forms = tuple(
            {function: _body_form(function, reader, numbers) for function in functions}
            for functions, reader in zip(rest, readers_of, strict=True)
        )
        alike = unique_pairs(forms, (rest[0], rest[1]))
        if not alike:
            break
        pairs += alike
        taken = {function for pair in alike for function in pair}
        rest = [[f for f in functions if f not in taken] for functions in rest]
    return pairs


def aliases_of(pairs: list[FunctionPair]) -> dict[Key, Key]:
    """Return the first model's key of each function that has another key in the second model."""
    return {other.key: one.key for one, other in pairs if one.key != other.key}


def _body_form(function: Function, reader: ModelReader, numbers: Numbers) -> Form:
    body = function.body
    given = {value: numbers(("input", place)) for place, value in enumerate(body.inputs)}
    side = Side(body, reader, numbers, given=given, outer=nowhere(numbers, 0), tag=0)
    outputs = tuple(side.number_of(value) for value in body.outputs)
    numbered = tuple(sorted(side.made.values()))
    return (len(body.inputs), outputs, numbered, declared(function))


def declared(function: Function) -> Form:
    """Return the attributes that *function* declares, their defaults, and what its nodes import."""
    defaults = sorted((name, attribute_form(item)) for name, item in function.defaults.items())
    in_use = {node.domain for node in function.body}
    imports = sorted(item for item in function.body.opset_imports.items() if item[0] in in_use)
    return (tuple(sorted(function.attributes)), tuple(defaults), tuple(imports))


# Telling nodes without a partner apart by what lies around them.
#
# Colours are refined round by round (B. Weisfeiler and A. Leman, 1968). A node's colour says what
# its neighbours are, then what their neighbours are, and so on. A neighbour with a partner has a
# colour of its own that never changes, so an edit changes colours nearby only.


ROUNDS = 3


def refine(
    pairing: Pairing, nodes: Both[Node], detail: Detail
) -> list[tuple[dict[Node, int], ...]]:
    """Colour *nodes*, none of which has a partner, by their neighbours up to each distance.

    Args:
        pairing: The pairs there are.
        nodes: The nodes of the first and of the second graph.
        detail: How much of a node counts.

    Returns:
        The colours of the first and of the second graph, before the first round and after each;
        none if one of them has no node.
    """
    if not all(nodes):
        return []
    locals_of = zip(nodes, (side.local(detail) for side in pairing.sides), strict=True)
    rounds = [tuple({node: local[node] for node in own} for own, local in locals_of)]
    for _ in range(ROUNDS):
        views = (_View(pairing, which, own, detail) for which, own in enumerate(rounds[-1]))
        rounds.append(tuple({node: view.colour(node) for node in view.colours} for view in views))
    return rounds


@dataclass
class _View:
    """What the nodes of one graph see of each other in one round."""

    pairing: Pairing
    which: int
    colours: Mapping[Node, int]
    detail: Detail

    def colour(self, node: Node) -> int:
        """Return the colour of *node* after this round."""
        side = self.pairing.sides[self.which]
        uses = self.pairing.uses(self.which, node, self._node)
        return side.numbers(("seen", self.colours[node], operands(node, self._source), uses))

    def _source(self, value: Value) -> int:
        side, maker = self.pairing.sides[self.which], value.producer
        if maker is not None and maker in side.position:
            return side.numbers(("made by", self._node(maker), value.index))
        constant = None if self.detail == "exact" else side.constant(value, "alike")
        if constant is None:
            return side.number_of(value)
        return side.numbers(("some constant",)) if self.detail == "loose" else constant

    def _node(self, node: Node) -> Form:
        if self.pairing.is_paired(node):
            return ("paired", self.pairing.number(node))
        return ("seen", self.colours[node])


# Finding out which node of one graph is which of the other, by dataflow alone.
#
# Nodes that compute the same from the inputs are paired first. From there, and from the inputs and
# outputs, pairs grow to neighbours. If several neighbours would do, what lies around them decides.
# Names play no part.


_MANY = 16
"""If this many numbers are equal, that is no accident."""


def align(
    sides: tuple[Side, Side], inputs: Sequence[ValuePair], outputs: Sequence[PositionPair]
) -> Pairing:
    """Pair the nodes of two graphs.

    Args:
        sides: The graphs.
        inputs: Their inputs that are one.
        outputs: For each pair of outputs: where it stands in either graph.

    """
    pairing = Pairing(sides, inputs, outputs)
    growth = PairGrowth(pairing)
    # Pair nodes that compute the same; among several, those whose results are used alike.
    computed = tuple(side.made for side in pairing.sides)
    pairing.add(unique_pairs(computed, pairing.rest()))
    doubtful = grouped(computed, pairing.rest())
    used = pairing.used() if doubtful else ()
    for nodes in doubtful:
        for one, other in grouped(used, nodes):
            pairing.add(zip(one, other, strict=False))
        pairing.add(zip(*map(pairing.free, nodes), strict=False))
    if pairing.is_complete():
        return pairing
    growth.from_interface()
    for detail in DETAILS[:2]:
        _pair_by_colour(pairing, growth, detail)
    growth.bridging = True
    growth.from_interface()
    _pair_by_colour(pairing, growth, "loose")
    _pair_in_order(pairing, growth)
    growth.from_interface()
    _pair_by_inputs(pairing)
    _pair_replaced(pairing)
    return pairing


def _pair_by_colour(pairing: Pairing, growth: PairGrowth, detail: Detail) -> None:
    """Pair nodes that are the only ones of their colour, from the widest view to the narrowest.

    In the narrowest view, without neighbours, a node must hold a weight.
    """
    views = refine(pairing, pairing.rest(), detail)
    for distance, colours in reversed(list(enumerate(views))):
        pairs = unique_pairs(colours, pairing.rest())
        if not distance:
            pairs = [p for p in pairs if detail == "exact" and _has_weights(pairing, p[0])]
        growth.run(pairing.add(pairs))


def _pair_in_order(pairing: Pairing, growth: PairGrowth) -> None:
    """Pair nodes of one colour in order, if both graphs have the same number of them."""
    for detail in DETAILS:
        nodes = pairing.rest()
        for colours in refine(pairing, nodes, detail)[-1:]:
            groups = grouped(colours, nodes)
            equal = (zip(*group, strict=True) for group in groups if len(set(map(len, group))) == 1)
            growth.run(pairing.add(chain.from_iterable(equal)))


def _pair_by_inputs(pairing: Pairing) -> None:
    """Pair nodes that are alike and read the same, however their results are used."""
    nodes = pairing.rest()
    keys = tuple(
        {node: (side.local("exact")[node], pairing.read(which, node)) for node in nodes[which]}
        for which, side in enumerate(pairing.sides)
    )
    for one, other in grouped(keys, nodes):
        pairing.add(zip(one, other, strict=False))


def _pair_replaced(pairing: Pairing) -> None:
    """Pair nodes of different operators that read the same and are read in the same places.

    All nodes that read them must have a partner, and none may lie in a body.
    """
    places: tuple[dict[Node, Form], ...] = ({}, {})
    for which, nodes in enumerate(pairing.rest()):
        for node in nodes:
            users = (user for value in made(node) for user, _ in value.iter_uses())
            uses = pairing.uses(which, node, pairing.number)
            if uses and all(map(pairing.is_paired, users)):
                places[which][node] = (pairing.read(which, node), uses)
    pairing.add(unique_pairs(places, (list(places[0]), list(places[1]))))


def _has_weights(pairing: Pairing, node: Node) -> bool:
    """Tell whether *node* holds so much data that it is no accident if another holds the same."""
    tensors = [pairing.sides[0].reader.tensor(value) for value in slots(node) if value is not None]
    return any(tensor is not None and tensor.size >= _MANY for tensor in tensors)


# Which node, input and output of one graph is which of the other.


@dataclass(eq=False)
class Pairing:
    """Partners between two graphs.

    Attributes:
        sides: The two graphs.
        inputs: Inputs that are one.
        outputs: For each pair of outputs: where it stands in the first and in the second graph.
        forth: The partner of a node of the first graph.
    """

    sides: tuple[Side, Side]
    inputs: Sequence[ValuePair]
    outputs: Sequence[PositionPair]
    forth: dict[Node, Node] = field(default_factory=dict)
    _numbers: dict[Node, int] = field(default_factory=dict)

    def add(self, pairs: Iterable[NodePair]) -> list[NodePair]:
        """Make the nodes of each pair partners."""
        added = list(pairs)
        for first, second in added:
            self._numbers[first] = self._numbers[second] = len(self.forth)
            self.forth[first] = second
        return added

    def is_paired(self, node: Node) -> bool:
        """Tell whether *node*, of either graph, has a partner."""
        return node in self._numbers

    def is_same_call(self, first: Node, second: Node) -> bool:
        """Tell whether two nodes, one of each graph, are calls of the same."""
        ours, theirs = (side.reader for side in self.sides)
        return ours.label(first) == theirs.label(second)

    def number(self, node: Node) -> int | None:
        """Return the number of the pair that *node* belongs to, if any."""
        return self._numbers.get(node)

    def free(self, nodes: Iterable[Node]) -> list[Node]:
        """List those of *nodes* that have no partner."""
        return [node for node in nodes if node not in self._numbers]

    def rest(self) -> tuple[list[Node], list[Node]]:
        """List the nodes of either graph that have no partner, in order."""
        first, second = (self.free(side.nodes) for side in self.sides)
        return first, second

    def is_complete(self) -> bool:
        """Tell whether one of the graphs has no node left that could be paired."""
        return len(self.forth) == min(len(side.nodes) for side in self.sides)

    def place(self, pair: NodePair) -> tuple[int, int]:
        """Return a key to sort pairs by; it does not depend on which graph comes first."""
        one, other = (side.position[n] for side, n in zip(self.sides, pair, strict=True))
        return one + other, abs(one - other)

    @cached_property
    def _returned(self) -> tuple[Mapping[Value, list[int]], ...]:
        """For each value that a graph returns: as which of the paired outputs it does."""
        places_of: tuple[dict[Value, list[int]], ...] = (defaultdict(list), defaultdict(list))
        for number, places in enumerate(self.outputs):
            for which, place in enumerate(places):
                places_of[which][self.sides[which].graph.outputs[place]].append(number)
        return places_of

    def uses(self, which: int, node: Node, number: Callable[[Node], Hashable]) -> Form:
        """Return who reads what *node* makes, by *number* unless that is None, and in which slot.

        To be returned is a use, too.
        """
        readings: list[tuple[Any, ...]] = []
        for value in made(node):
            for user, slot in readers(value, self.sides[which].graph):
                if (reader_number := number(user)) is not None:
                    readings.append((value.index, slot, reader_number))
            returned = self._returned[which].get(value, ())
            readings += [(value.index, _RETURNED, place) for place in returned]
        return tuple(sorted(readings))

    def used(self) -> tuple[Mapping[Node, int], ...]:
        """Number the nodes of both graphs by all that is computed from them."""
        numbers_of: tuple[dict[Node, int], ...] = ({}, {})
        for which, (side, numbered) in enumerate(zip(self.sides, numbers_of, strict=True)):
            for node in reversed(side.nodes):
                uses = self.uses(which, node, numbered.get)
                numbered[node] = side.numbers(("used", side.local("exact")[node], uses))
        return numbers_of

    def read(self, which: int, node: Node) -> Form:
        """Number what *node* of one graph reads, in its order; equal values get equal numbers."""
        return tuple(ABSENT if v is None else self.resolve(which, v) for v in slots(node))

    def same_value(self, first: Value | None, second: Value | None) -> bool:
        """Tell whether two values correspond: partners or equal computations make them."""
        if first is None or second is None:
            return first is second
        return self.resolve(0, first) == self.resolve(1, second) or self.are_partners(first, second)

    def are_partners(self, first: Value, second: Value) -> bool:
        """Tell whether partners make two values."""
        maker = first.producer
        return (
            maker is not None
            and maker in self.forth
            and self.forth[maker] is second.producer
            and first.index == second.index
        )

    def resolve(self, which: int, value: Value) -> int:
        """Number *value* of one graph, or of a graph around it; equal values get equal numbers."""
        side = self.sides[which]
        number = side.number_of(value)
        maker = value.producer
        if maker is None or number in self._common or maker not in self._numbers:
            return number
        return side.numbers(("of partners", id(self), self._numbers[maker], value.index))

    @cached_property
    def _common(self) -> set[int]:
        """The numbers of the values that both graphs compute."""
        first, second = (
            {side.number_of(value) for node in side.nodes for value in made(node)}
            for side in self.sides
        )
        return first & second


PositionPair = tuple[int, int]
"""Where an output stands in the first graph, and in the second."""


def unique_pairs(keys: Sequence[Mapping[T, Hashable]], items: Both[T]) -> list[tuple[T, T]]:
    """Pair the items whose key only one item of each graph has."""
    return [(a[0], b[0]) for a, b in grouped(keys, items) if len(a) == len(b) == 1]


def grouped(keys: Sequence[Mapping[T, Hashable]], items: Both[T]) -> list[Both[T]]:
    """Group items of both graphs by their keys, keys that only one graph has left out."""
    groups: dict[Hashable, Both[T]] = {}
    for which, own in enumerate(items):
        for item in own:
            groups.setdefault(keys[which][item], ([], []))[which].append(item)
    return [pair for pair in groups.values() if pair[0] and pair[1]]


DETAILS: tuple[Detail, ...] = ("exact", "alike", "loose")
"""What two nodes can have in common, from the most to the least."""


# From pairs of nodes to pairs of their neighbours.


_VOTE = 2
"""What a vote of a neighbour weighs; each level that two nodes have in common weighs one."""


class PairGrowth:
    """Pairs nodes whose neighbours are pairs.

    Attributes:
        bridging: Whether to look past nodes that only one graph has where nothing else helps.
    """

    def __init__(self, pairing: Pairing) -> None:
        self.pairing = pairing
        self.bridging = False

    def from_interface(self) -> None:
        """Grow from the inputs and outputs, and from all pairs there are."""
        pairing = self.pairing
        first, second = (side.graph for side in pairing.sides)
        proposed = [pair for values in pairing.inputs for pair in self._of_readers(values)]
        for one, other in pairing.outputs:
            proposed += self._of_makers((first.outputs[one], second.outputs[other]))
        self.run([*self._choose(proposed), *pairing.forth.items()])

    def run(self, pairs: Iterable[NodePair]) -> None:
        """Grow from *pairs*, which are partners already, round by round."""
        frontier = list(pairs)
        stalled: list[NodePair] = []
        while frontier and not self.pairing.is_complete():
            stalled += frontier
            frontier = self._choose([near for pair in frontier for near in self._near(pair)])
            if not frontier and self.bridging:
                found = (near for pair in stalled for near in bridges(self.pairing, pair))
                frontier, stalled = self._choose(found), []

    def _near(self, pair: NodePair) -> Iterator[NodePair]:
        """Iterate over what could be partners if *pair* are."""
        first, second = pair
        if is_commutative(first):
            yield from self._of_operands(pair)
        else:
            for values in zip(slots(first), slots(second), strict=False):
                yield from self._of_makers(values)
        for pair_of_values in both_there(first.outputs, second.outputs):
            yield from self._of_readers(pair_of_values)

    def _of_makers(self, values: tuple[Value | None, Value | None]) -> Iterator[NodePair]:
        """Propose the nodes that make two values that should be one."""
        old, new = values
        if old is not None and new is not None and old.index == new.index:
            makers = (self._free_makers(0, [old]), self._free_makers(1, [new]))
            yield from (
                pair for pair in zip(*makers, strict=False) if self.pairing.is_same_call(*pair)
            )

    def _of_operands(self, pair: NodePair) -> Iterator[NodePair]:
        """Propose the makers of operands whose place does not matter, where it is clear which."""
        first, second = (
            [(maker, 0) for maker in dict.fromkeys(self._free_makers(which, slots(node)))]
            for which, node in enumerate(pair)
        )
        yield from self._clear_pairs(first, second)

    def _of_readers(self, values: ValuePair) -> Iterator[NodePair]:
        """Propose the nodes that read two values that are one, where it is clear which."""
        both: list[list[tuple[Node, int]]] = []
        for value, side in zip(values, self.pairing.sides, strict=True):
            every = readers(value, side.graph)
            free = (item for item in every if not self.pairing.is_paired(item[0]))
            both.append(list(dict.fromkeys(free)))
        yield from self._clear_pairs(both[0], both[1])

    def _clear_pairs(
        self, first: list[tuple[Node, int]], second: list[tuple[Node, int]]
    ) -> Iterator[NodePair]:
        """Pair nodes with one counterpart only: in every detail, but for data, then by operator."""
        for detail in DETAILS:
            if not first or not second:
                return
            keys = [
                {(node, slot): (side.local(detail)[node], slot) for node, slot in items}
                for side, items in zip(self.pairing.sides, (first, second), strict=True)
            ]
            taken: set[Node] = set()
            for (one, _), (other, _) in unique_pairs(keys, (first, second)):
                yield one, other
                taken |= {one, other}
            first = [item for item in first if item[0] not in taken]
            second = [item for item in second if item[0] not in taken]

    def _choose(self, proposed: Iterable[NodePair]) -> list[NodePair]:
        """Make partners of the best proposed pairs; the order of the models plays no part."""
        votes: dict[NodePair, int] = {}
        for pair in proposed:
            votes[pair] = votes.get(pair, self._likeness(pair)) + _VOTE
        place = self.pairing.place
        chosen: list[NodePair] = []
        for pair in sorted(votes, key=lambda pair: (-votes[pair], *place(pair))):
            if not any(map(self.pairing.is_paired, pair)):
                chosen += self.pairing.add([pair])
        return chosen

    def _likeness(self, pair: NodePair) -> int:
        """Count the details that two nodes have in common: one that counts more counts the rest."""
        first, second = self.pairing.sides
        for weight, detail in enumerate(DETAILS):
            if first.local(detail)[pair[0]] == second.local(detail)[pair[1]]:
                return len(DETAILS) - weight
        return 0

    def _free_makers(self, which: int, values: Iterable[Value | None]) -> list[Node]:
        """List the nodes of one graph that make *values* and have no partner."""
        makers = [value.producer for value in values if value is not None]
        position = self.pairing.sides[which].position
        return self.pairing.free(maker for maker in makers if maker in position)


# Which input and output of one graph is which of the other.


def pair_inputs(
    first: Sequence[Value], second: Sequence[Value], *, by_name: bool
) -> list[ValuePair]:
    """Pair inputs: by name in main graphs, then those left that are declared alike, in order.

    Who calls a model names its inputs. Those of bodies and functions are told by their places.
    """
    olds, news = free_inputs(first), free_inputs(second)
    if not by_name:
        return [*zip(olds, news, strict=False)]
    pairs, olds = with_twins(olds, news, lambda old, new: old.name == new.name)
    alike, _ = with_twins(olds, news, lambda old, new: old.declared_type == new.declared_type)
    return pairs + alike


def pair_outputs(first: Side, second: Side, *, by_name: bool) -> list[PositionPair]:
    """Pair outputs: by name in main graphs, those left by what they are, then in order."""
    olds, news = first.graph.outputs, second.graph.outputs
    if not by_name:
        return [(place, place) for place in range(min(len(olds), len(news)))]

    def is_equal(old: int, new: int) -> bool:
        return first.number_of(olds[old]) == second.number_of(news[new])

    left, right = list(range(len(olds))), list(range(len(news)))
    # A file may return a value twice: the first of a name is paired with the first of that name.
    named, left = with_twins(left, right, lambda old, new: olds[old].name == news[new].name)
    alike, left = with_twins(left, right, is_equal)
    return [*named, *alike, *zip(left, right, strict=False)]


def with_twins(
    olds: Iterable[T], news: list[U], is_twin: Callable[[T, U], bool]
) -> tuple[list[tuple[T, U]], list[T]]:
    """Pair each item with its first twin among *news*, which is taken out of that list.

    Returns:
        The pairs, and the items without a twin.
    """
    pairs: list[tuple[T, U]] = []
    left: list[T] = []
    for old in olds:
        twin = next((new for new in news if is_twin(old, new)), None)
        if twin is None:
            left.append(old)
        else:
            news.remove(twin)
            pairs.append((old, twin))
    return pairs, left


# All graphs of two models.


class ModelPairing:
    """Pairs the graphs of two models, and the nodes in them.

    Attributes:
        models: The two models.
        functions: Their functions that are one.
    """

    def __init__(self, first: Model, second: Model) -> None:
        self.models = (first, second)
        self.functions = pair_functions(first, second)
        shared, aliases = shared_places(self.models), aliases_of(self.functions)
        self._readers = (ModelReader({}, shared), ModelReader(aliases, shared))

    def pairings(self) -> Iterator[tuple[Pairing, bool]]:
        """Pair the main graphs with the bodies in them, and the functions; True for main graphs."""
        first, second = self.models
        yield from self._pairings((first.graph, second.graph), None, is_main=True)
        for one, other in self.functions:
            yield from self._pairings((one.body, other.body), None, is_main=False)

    def _pairings(
        self, graphs: tuple[Graph, Graph], outer: Pairing | None, *, is_main: bool
    ) -> Iterator[tuple[Pairing, bool]]:
        """Pair two graphs, and the bodies of the nodes that they share, however deep."""
        numbers = Numbers() if outer is None else outer.sides[0].numbers
        inputs = pair_inputs(*(graph.inputs for graph in graphs), by_name=is_main)
        sides = []
        for which, graph in enumerate(graphs):
            given = {pair[which]: input_number(numbers, graph, k) for k, pair in enumerate(inputs)}
            resolve = partial(outer.resolve, which) if outer else nowhere(numbers, which)
            sides.append(Side(graph, self._readers[which], numbers, given, resolve, which))
        ours, theirs = sides
        outputs = pair_outputs(ours, theirs, by_name=is_main)
        pairing = align((ours, theirs), inputs, outputs)
        yield pairing, is_main
        for first, second in ((n, pairing.forth[n]) for n in ours.nodes if n in pairing.forth):
            for name in (name for name in first.subgraphs if name in second.subgraphs):
                bodies = (first.subgraphs[name], second.subgraphs[name])
                yield from self._pairings(bodies, pairing, is_main=False)


# Where two models differ: nodes that one has and the other has not, and the values around them.
#
# Those pairs of nodes that do not compute the same from the same are dissolved here, until what is
# left says which value of one graph is which of the other.


_MOST_TRIED = 64
"""How many alike nodes are looked at for one, beside that of the same name."""


@dataclass(frozen=True, eq=False)
class Difference:
    """Connected nodes of one graph, and what stands in their place in the other.

    Attributes:
        removed: Nodes of the first graph, in its order.
        added: Nodes of the second graph, in its order.
        outputs: Values that nodes in *removed* make and others need, and what stands for them.
        originals: Values of the second graph by what they are in the first.
    """

    removed: tuple[Node, ...]
    added: tuple[Node, ...]
    outputs: tuple[ValuePair, ...]
    originals: Mapping[Value, Value]


def find_differences(
    first: Model, second: Model, *, is_near: Nearness | None = None
) -> list[Difference]:
    """Find where two models differ, in the main graphs, in bodies and in functions.

    A difference without removed nodes has been inserted, or cannot be told from its surroundings.

    Args:
        first: One model.
        second: The other.
        is_near: Tells whether two constants of one type and shape count as one; without, they must
            be equal.
    """
    pairings = (pairing for pairing, _ in ModelPairing(first, second).pairings())
    return [each for pairing in pairings for each in _Border(pairing, is_near).differences()]


def corresponding_values(
    first: Model, second: Model
) -> Iterator[tuple[str, str, Literal["structure", "readers", "output"]]]:
    """Pair the values of two main graphs by name: what is returned first, then what nodes make.

    Yields:
        The two names, and what says that they are one. A value may come up more than once.
    """
    pairing, _ = next(ModelPairing(first, second).pairings())
    border = _Border(pairing, None)
    for place, position in pairing.outputs:
        yield first.graph.outputs[place].name, second.graph.outputs[position].name, "output"
    equations = border.settled()
    for one, other in border.kept.items():
        for old, new in _by_partner(one, other).items():
            yield old.name, new.name, "structure"
    for old, new in equations:
        yield old.name, new.name, "readers"


class _Border:
    """Which value of one graph is which of the other, and where there is none.

    Args:
        pairing: The partners, of which some are dissolved.
        is_near: Tells whether two constants of one type and shape count as one.
    """

    def __init__(self, pairing: Pairing, is_near: Nearness | None) -> None:
        self.pairing = pairing
        self.is_near = is_near
        self.paired_again: set[Node] = set()
        self._read_constants: dict[Node, tuple[int | None, ...]] = {}
        self.ours, self.theirs = pairing.sides
        self.kept = {
            first: second
            for first, second in pairing.forth.items()
            if pairing.is_same_call(first, second)
            and self.ours.reader.attributes(first) == self.theirs.reader.attributes(second)
            and first.subgraphs.keys() == second.subgraphs.keys()
        }
        # Take a node without a partner for one that computes the same: the two were merged.
        numbers = self.ours.made
        keepers = {numbers[node]: second for node, second in self.kept.items()}
        for node in self.ours.nodes:
            if node not in self.kept and numbers[node] in keepers and not node.subgraphs:
                self.kept[node] = keepers[numbers[node]]

    def settled(self) -> list[ValuePair]:
        """Settle which pairs are kept; return values that stand for each other between them."""
        equations = self._equations()
        while self._pair_again(equations):
            equations = self._equations()
        return equations + self._by_name(*self._alone(), equations)

    def _alone(self) -> tuple[list[Node], list[Node]]:
        """Return the nodes of either graph that no pair keeps."""
        partners = set(self.kept.values())
        removed = [node for node in self.ours.nodes if node not in self.kept]
        return removed, [node for node in self.theirs.nodes if node not in partners]

    def differences(self) -> list[Difference]:
        """Return the differences in the order of the first graph."""
        equations = self.settled()
        partners = {second: first for first, second in reversed(self.kept.items())}
        removed, added = self._alone()
        if not removed and not added:
            return []
        originals = {second: first for first, second in reversed(equations)}
        originals |= {second: first for first, second in self.pairing.inputs}
        for second, first in partners.items():
            originals |= _by_partner(second, first)
        return [Difference(*parts, originals) for parts in _components(removed, added, equations)]

    def _equations(self) -> list[ValuePair]:
        """Dissolve pairs until all others read the same, or what takes the place of it.

        Returns:
            Values that no pair makes, in pairs: the readers say that one stands for the other.
        """
        while True:
            asked, wrong = self._read()
            if not wrong:
                wrong = _outvoted(asked) or self._misled(asked)
            if not wrong:
                return list(asked)
            for node in wrong:
                self.kept.pop(node, None)

    def _misled(self, found: Readers) -> set[Node]:
        """Return readers of two names where one of the pair has a likelier partner, which is left.

        Layers are alike. Where one was rewritten, a node of it is easily taken for that of the next
        layer. It is not, if a node without a partner makes the same names of the same names.
        """
        removed, added = ({_names(node): node for node in nodes} for nodes in self._alone())
        readers = self.ours.reader, self.theirs.reader
        wrong: set[Node] = set()
        for (old, new), asking in found.items():
            for first in filter(None, asking if old.name != new.name else ()):
                second = self.kept[first]
                label = self._label(readers[0], first)
                likelier = added.get(_names(first)), removed.get(_names(second))
                if any(
                    node is not None and self._label(reader, node) == label
                    for node, reader in zip(likelier, reversed(readers), strict=True)
                ):
                    wrong.add(first)
        return wrong

    def _pair_again(self, equations: Iterable[ValuePair]) -> bool:
        """Pair nodes that are alike and read the same, now that this is known; each once.

        Those first whose results have the same name.
        """
        stood_for = set(equations)
        back = set(self.kept.values())
        alike: dict[tuple[object, ...], dict[Node, None]] = defaultdict(dict)
        namesakes: dict[tuple[str, ...], Node] = {}
        for node in self.theirs.nodes:
            if node not in back and not node.subgraphs:
                alike[self._label(self.theirs.reader, node)][node] = None
                namesakes[_names(node)[1]] = node
        count = len(self.kept)
        for node in self.ours.nodes:
            if node in self.kept or node in self.paired_again or node.subgraphs:
                continue
            candidates = alike.get(self._label(self.ours.reader, node), {})
            namesake = namesakes.get(_names(node)[1])
            tried = [] if namesake is None or namesake not in candidates else [namesake]
            tried += islice(candidates, _MOST_TRIED)
            constants = self._constants(self.ours, node) if tried else ()
            partner = next(
                (
                    other
                    for other in tried
                    if self._may_read_alike(constants, self._constants(self.theirs, other))
                    and self._read_alike(node, other, stood_for)
                ),
                None,
            )
            if partner is not None:
                del candidates[partner]
                self.kept[node] = partner
                self.paired_again.add(node)
        return len(self.kept) > count

    def _constants(self, side: Side, node: Node) -> tuple[int | None, ...]:
        """Number the constants that a node reads, by slot; None for all else."""
        if node not in self._read_constants:
            self._read_constants[node] = tuple(
                side.number_of(value) if value and side.reader.tensor(value) is not None else None
                for value in slots(node)
            )
        return self._read_constants[node]

    def _may_read_alike(self, ours: Sequence[int | None], theirs: Sequence[int | None]) -> bool:
        """Tell whether no constant stands against another one; operands may have been swapped."""
        return self.is_near is not None or not any(
            one != other and one not in theirs
            for one, other in zip(ours, theirs, strict=False)
            if one is not None and other is not None
        )

    def _read_alike(self, first: Node, second: Node, stood_for: AbstractSet[ValuePair]) -> bool:
        """Tell whether two nodes read the same, or what has the same name and takes its place."""
        for old, new in self._operands(first, second):
            if self._is_one(old, new) or (old, new) in stood_for:
                continue
            if old is None or new is None or old.name != new.name or not self._is_gone(old):
                return False
            if new.producer is None or not _may_be_one(old, new):
                return False
        return True

    @staticmethod
    def _label(reader: ModelReader, node: Node) -> tuple[object, ...]:
        return (reader.label(node), reader.attributes(node), len(node.outputs))

    def _read(self) -> tuple[Readers, set[Node]]:
        """Ask each pair what it reads; None reads what a graph returns.

        Returns:
            Pairs of values to put up with, with who asks for each; and nodes that read others.
        """
        asked: Readers = defaultdict(list)
        wrong: set[Node] = set()
        for place, other in self.pairing.outputs:
            pair = self.ours.graph.outputs[place], self.theirs.graph.outputs[other]
            if self._is_one(*pair):
                continue
            if self._is_gone(pair[0]):
                asked[pair].append(None)
            elif pair[0].producer in self.kept:
                wrong.add(pair[0].producer)
        for first, second in self.kept.items():
            for old, new in self._operands(first, second):
                if self._is_one(old, new):
                    continue
                if old is None or new is None or not self._is_gone(old):
                    wrong.add(first)
                elif _may_be_one(old, new):
                    asked[old, new].append(first)
                else:
                    wrong.add(first)
        return asked, wrong

    def _operands(self, first: Node, second: Node) -> Iterator[tuple[Value | None, Value | None]]:
        ours, theirs = list(slots(first)), list(slots(second))
        if is_commutative(first) and len(ours) == len(theirs) == 2:  # noqa: PLR2004  # operands to swap
            crossed = [*zip(ours, reversed(theirs), strict=True)]
            straight = [*zip(ours, theirs, strict=True)]
            if self._fit(crossed) > self._fit(straight):
                theirs.reverse()
        if first.subgraphs:
            ours += self.ours.reader.captured(first)
            theirs += self.theirs.reader.captured(second)
        return zip_longest(ours, theirs)

    def _fit(self, pairs: Iterable[tuple[Value | None, Value | None]]) -> int:
        """Count operands that are one twice, and those that at least have the same name once."""
        return sum(
            2 if self._is_one(old, new) else bool(old and new and old.name == new.name)
            for old, new in pairs
        )

    def _is_gone(self, value: Value) -> bool:
        """Tell whether a node without a partner makes *value* of the first graph."""
        return value.producer in self.ours.position and value.producer not in self.kept

    def _is_one(self, first: Value | None, second: Value | None) -> bool:
        if first is None or second is None:
            return first is second
        ours, theirs = self.ours.reader, self.theirs.reader
        one, other = ours.tensor(first), theirs.tensor(second)
        if one is not None or other is not None:  # some count as one that are not equal
            if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
                return False
            if ours.content(first) == theirs.content(second):
                return True
            return self.is_near is not None and self.is_near(one.numpy(), other.numpy())
        maker = first.producer
        if maker is None or maker not in self.ours.position:
            return second.producer not in self.theirs.position and self.pairing.same_value(
                first, second
            )
        partner = self.kept.get(maker)
        return partner is not None and partner is second.producer and first.index == second.index

    def _by_name(
        self, removed: Iterable[Node], added: Iterable[Node], known: Iterable[ValuePair]
    ) -> list[ValuePair]:
        """Pair values of one name: tools keep the name of what they compute in another way.

        So neighbouring places do not become one. A name is a hint, no more: where readers say
        something else it does not count.
        """
        taken = {value for pair in known for value in pair}
        named = {value.name: value for node in added for value in made(node)}
        pairs = []
        for value in (value for node in removed for value in made(node)):
            other = named.get(value.name)
            if other is not None and not {value, other} & taken and _may_be_one(value, other):
                pairs.append((value, other))
        return pairs


def _outvoted(found: Readers) -> set[Node]:
    """Return the readers of values that most others take for another one."""
    votes: dict[Value, list[tuple[int, bool, ValuePair]]] = defaultdict(list)
    for pair, asking in found.items():
        weight = len(asking) + len(found) * asking.count(None)
        votes[pair[0]].append((weight, pair[0].name == pair[1].name, pair))
    wrong: set[Node] = set()
    for candidates in votes.values():
        best = max(candidates, key=lambda item: item[:2])
        for _, _, pair in candidates:
            if pair is not best[2]:
                wrong.update(reader for reader in found[pair] if reader is not None)
    return wrong


def _components(
    removed: list[Node], added: list[Node], equations: list[ValuePair]
) -> Iterator[tuple[tuple[Node, ...], tuple[Node, ...], tuple[ValuePair, ...]]]:
    """Connect nodes by what they read of each other and by what stands for what they make."""
    members = dict.fromkeys([*removed, *added])
    joined = _Joined()
    borders = {value for pair in equations for value in pair}
    for node in members:
        for value in node.inputs:
            if value is not None and value.producer in members and value not in borders:
                joined.add(value.producer, node)
    for first, second in equations:
        if first.producer in members and second.producer in members:
            joined.add(first.producer, second.producer)
    parts: dict[Node | None, tuple[list[Node], list[Node], list[ValuePair]]] = {}
    for node in members:
        parts.setdefault(joined.root(node), ([], [], []))
    for node in removed:
        parts[joined.root(node)][0].append(node)
    for node in added:
        parts[joined.root(node)][1].append(node)
    for pair in equations:
        parts[joined.root(pair[0].producer)][2].append(pair)
    return ((tuple(old), tuple(new), tuple(pairs)) for old, new, pairs in parts.values())


class _Joined:
    """Nodes that belong together."""

    def __init__(self) -> None:
        self._above: dict[Node | None, Node | None] = {}

    def root(self, node: Node | None) -> Node | None:
        """Return the node that stands for all that belong to *node*."""
        while node in self._above:
            node = self._above[node]
        return node

    def add(self, one: Node | None, other: Node | None) -> None:
        """Let two nodes belong together."""
        one, other = self.root(one), self.root(other)
        if one is not other:
            self._above[other] = one


def _by_partner(second: Node, first: Node) -> dict[Value, Value]:
    pairs = zip(second.outputs, first.outputs, strict=False)
    return {new: old for new, old in pairs if new is not None and old is not None}


def _names(node: Node) -> tuple[tuple[str, ...], ...]:
    """Return the names of what a node reads, and of what it makes."""
    ends = slots(node), node.outputs
    return tuple(tuple(value.name if value else "" for value in some) for some in ends)


def _may_be_one(first: Value, second: Value) -> bool:
    """Tell whether no type that is known of two values says that they differ."""
    ours, theirs = first.known_type(), second.known_type()
    if ours is None or theirs is None:
        return True
    if None not in (ours.dtype, theirs.dtype) and ours.dtype != theirs.dtype:
        return False
    if ours.shape is None or theirs.shape is None:
        return True
    sizes = zip(ours.shape, theirs.shape, strict=False)
    sizes_of_both = [(a, b) for a, b in sizes if isinstance(a, int) and isinstance(b, int)]
    return len(ours.shape) == len(theirs.shape) and all(a == b for a, b in sizes_of_both)
