"""Where two models differ: nodes that one has and the other has not, and the values around them.

The pairs of nodes come from `dplcli.diff.pairing`. Those pairs that do not compute the same from
the same are dissolved here, until what is left says which value of one graph is which of the other.
What has no partner falls apart into regions, which are connected by what they read and make.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Literal

from dplcli.diff.comparison import Differ
from dplcli.diff.pairing import is_commutative, slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.diff.pairing import ModelReader, Pairing, ValuePair
    from dplcli.ir import Model, Node, Value

    Nearness = Callable[[NDArray[Any], NDArray[Any]], bool]

    Readers = dict[ValuePair, list[Node | None]]

_MOST_TRIED = 64
"""How many alike nodes are looked at for one, beside that of the same name."""


@dataclass(frozen=True, eq=False)
class ChangedRegion:
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


def find_regions(
    first: Model, second: Model, *, is_near: Nearness | None = None
) -> list[ChangedRegion]:
    """Find where two models differ, in the main graphs, in bodies and in functions.

    A region without removed nodes has been inserted, or cannot be told from its surroundings.

    Args:
        first: One model.
        second: The other.
        is_near: Tells whether two constants of one type and shape count as one; without, they must
            be equal.
    """
    pairings = (pairing for pairing, _ in Differ(first, second).pairings())
    return [region for pairing in pairings for region in _Border(pairing, is_near).regions()]


def corresponding_values(
    first: Model, second: Model
) -> Iterator[tuple[str, str, Literal["structure", "readers", "output"]]]:
    """Pair the values of two main graphs by name: what is returned first, then what nodes make.

    Yields:
        The two names, and what says that they are one. A value may come up more than once.
    """
    pairing, _ = next(Differ(first, second).pairings())
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
        self.ours, self.theirs = pairing.sides
        self.kept = {
            first: second
            for first, second in pairing.forth.items()
            if pairing.is_same_call(first, second)
            and self.ours.reader.attributes(first) == self.theirs.reader.attributes(second)
            and first.subgraphs.keys() == second.subgraphs.keys()
        }
        self._keep_merged()

    def _keep_merged(self) -> None:
        """Take a node without a partner for one that computes the same: the two were merged."""
        numbers = self.ours.made
        known = {numbers[node]: second for node, second in self.kept.items()}
        for node in self.ours.nodes:
            if node not in self.kept and numbers[node] in known and not node.subgraphs:
                self.kept[node] = known[numbers[node]]

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

    def regions(self) -> list[ChangedRegion]:
        """Return the regions in the order of the first graph."""
        equations = self.settled()
        partners = {second: first for first, second in reversed(self.kept.items())}
        removed, added = self._alone()
        if not removed and not added:
            return []
        originals = {second: first for first, second in reversed(equations)}
        originals |= {second: first for first, second in self.pairing.inputs}
        for second, first in partners.items():
            originals |= _by_partner(second, first)
        return [
            ChangedRegion(*parts, originals) for parts in _components(removed, added, equations)
        ]

    def _equations(self) -> list[ValuePair]:
        """Dissolve pairs until all others read the same, or what takes the place of it.

        Returns:
            Values that no pair makes, in pairs: the readers say that one stands for the other.
        """
        while True:
            found, wrong = self._read()
            if not wrong:
                wrong = _outvoted(found) or self._misled(found)
            if not wrong:
                return list(found)
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
            found = alike.get(self._label(self.ours.reader, node), {})
            namesake = namesakes.get(_names(node)[1])
            tried = [] if namesake is None or namesake not in found else [namesake]
            tried += islice(found, _MOST_TRIED)
            partner = next((o for o in tried if self._read_alike(node, o, stood_for)), None)
            if partner is not None:
                del found[partner]
                self.kept[node] = partner
                self.paired_again.add(node)
        return len(self.kept) > count

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
        found: Readers = defaultdict(list)
        wrong: set[Node] = set()
        for place, other in self.pairing.outputs:
            pair = self.ours.graph.outputs[place], self.theirs.graph.outputs[other]
            if self._is_one(*pair):
                continue
            if self._is_gone(pair[0]):
                found[pair].append(None)
            elif pair[0].producer in self.kept:
                wrong.add(pair[0].producer)
        for first, second in self.kept.items():
            for old, new in self._operands(first, second):
                if self._is_one(old, new):
                    continue
                if old is None or new is None or not self._is_gone(old):
                    wrong.add(first)
                elif _may_be_one(old, new):
                    found[old, new].append(first)
                else:
                    wrong.add(first)
        return found, wrong

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
        readers = self.ours.reader, self.theirs.reader
        if readers[0].tensor(first) is not None or readers[1].tensor(second) is not None:
            return self._are_equal(first, second)
        maker = first.producer
        if maker is None or maker not in self.ours.position:
            return second.producer not in self.theirs.position and self.pairing.same_value(
                first, second
            )
        partner = self.kept.get(maker)
        return partner is not None and partner is second.producer and first.index == second.index

    def _are_equal(self, first: Value, second: Value) -> bool:
        """Tell whether two values are constants that count as one."""
        ours, theirs = self.ours.reader, self.theirs.reader
        one, other = ours.tensor(first), theirs.tensor(second)
        if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        if ours.content(first) == theirs.content(second):
            return True
        return self.is_near is not None and self.is_near(one.numpy(), other.numpy())

    def _by_name(
        self, removed: Iterable[Node], added: Iterable[Node], known: Iterable[ValuePair]
    ) -> list[ValuePair]:
        """Pair values of one name: tools keep the name of what they compute in another way.

        So neighbouring places do not become one. A name is a hint, no more: where readers say
        something else it does not count.
        """
        taken = {value for pair in known for value in pair}
        named = {value.name: value for node in added for value in _made(node)}
        found = []
        for value in (value for node in removed for value in _made(node)):
            other = named.get(value.name)
            if other is not None and not {value, other} & taken and _may_be_one(value, other):
                found.append((value, other))
        return found


def _outvoted(found: Readers) -> set[Node]:
    """Return the readers of values that most others take for another one."""
    votes: dict[Value, list[tuple[int, bool, ValuePair]]] = defaultdict(list)
    for pair, readers in found.items():
        weight = len(readers) + len(found) * readers.count(None)
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
    read, made = slots(node), node.outputs
    return tuple(tuple(value.name if value else "" for value in some) for some in (read, made))


def _made(node: Node) -> Iterator[Value]:
    return (value for value in node.outputs if value is not None)


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
    known = [(a, b) for a, b in sizes if isinstance(a, int) and isinstance(b, int)]
    return len(ours.shape) == len(theirs.shape) and all(a == b for a, b in known)
