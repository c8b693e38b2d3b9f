"""One of the two graphs that are compared, numbered by what computes its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from dplcli.diff.reading import free_inputs, is_commutative, readers, slots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dplcli.diff.reading import Form, Numbers, Reader
    from dplcli.ir import Graph, Node, Value

    Resolve: TypeAlias = Callable[[Value], int]

Detail: TypeAlias = Literal["exact", "alike", "loose"]
"""How much of a node counts: all of it; not the data of its constants; only what it calls."""

_ABSENT = -1
_RETURNED = -3


class Side:
    """One graph of a pair.

    Attributes:
        graph: The graph.
        reader: What reads its model.
        nodes: Its nodes in order, those that only hold a constant left out.
        position: Where each of them stands.

    Args:
        graph: The graph.
        reader: What reads its model.
        numbers: The numbers that both sides use.
        given: Numbers of the inputs that have a partner.
        outer: Numbers a value from round the graph.
        tag: Tells the sides apart where they must not be mistaken for each other.
    """

    def __init__(  # noqa: PLR0913  # what a side is made of
        self,
        graph: Graph,
        reader: Reader,
        numbers: Numbers,
        *,
        given: Mapping[Value, int],
        outer: Resolve,
        tag: int,
    ) -> None:
        """Look at *graph*; nothing is numbered yet."""
        self.graph = graph
        self.reader = reader
        self.numbers = numbers
        self.nodes = list(reader.nodes(graph))
        self.position = {node: place for place, node in enumerate(self.nodes)}
        self._given = given
        self._outer = outer
        self._tag = tag
        self._locals: dict[Detail, dict[Node, int]] = {}
        self._values: dict[Detail, dict[Value, int]] = {}
        self._made: dict[Detail, dict[Node, int]] = {}

    def local(self, detail: Detail) -> Mapping[Node, int]:
        """Number the nodes by what each says by itself, its constants included."""
        if detail not in self._locals:
            self._locals[detail] = {node: self._local(node, detail) for node in self.nodes}
        return self._locals[detail]

    def made(self, detail: Detail) -> Mapping[Node, int]:
        """Number the nodes by all that leads to them, from the inputs down."""
        if detail not in self._made:
            values = self._values[detail] = dict(self._given)
            self._made[detail] = self._number(self.graph, values, detail)
        return self._made[detail]

    def number_of(self, value: Value, detail: Detail) -> int:
        """Number *value* by all that leads to it."""
        self.made(detail)
        return self._value(value, self._values[detail], detail)

    def used(self, detail: Detail, returned: Mapping[Value, list[int]]) -> dict[Node, int]:
        """Number the nodes by all that comes of them, from the outputs up.

        Args:
            detail: How much of a node counts.
            returned: For each output value, numbers for what it is returned as.
        """
        local = self.local(detail)
        found: dict[Node, int] = {}
        for node in reversed(self.nodes):
            uses = []
            for index, output in enumerate(node.outputs):
                if output is None:
                    continue
                uses += [
                    (index, slot, found[user])
                    for user, slot in readers(output, self.graph)
                    if user in found
                ]
                uses += [(index, _RETURNED, number) for number in returned.get(output, ())]
            found[node] = self.numbers(("used", local[node], tuple(sorted(uses))))
        return found

    def constant(self, value: Value, detail: Detail) -> int:
        """Number a constant by its data, or by its type alone."""
        tensor = self.reader.tensor(value)
        assert tensor is not None  # noqa: S101  # only constants are asked for
        if detail == "exact":
            return self.numbers(("constant", *self.reader.content(value)))
        return self.numbers(("constant", tensor.dtype, tensor.shape))

    def _local(self, node: Node, detail: Detail) -> int:
        label = self.reader.label(node)
        if detail == "loose":
            return self.numbers(("local", label))
        inputs = [_ABSENT if v is None else self._stored(v, detail) for v in slots(node)]
        if is_commutative(node):
            inputs.sort()
        return self.numbers(("local", label, self.reader.attributes(node), tuple(inputs)))

    def _stored(self, value: Value, detail: Detail) -> int:
        if self.reader.tensor(value) is not None:
            return self.constant(value, detail)
        return self.numbers(("computed",))

    def _number(self, graph: Graph, values: dict[Value, int], detail: Detail) -> dict[Node, int]:
        """Number the nodes of *graph*, which may be a body; recursion is as deep as bodies nest."""
        numbers, reader = self.numbers, self.reader
        made: dict[Node, int] = {}
        for node in reader.nodes(graph):
            inputs = [_ABSENT if v is None else self._value(v, values, detail) for v in slots(node)]
            if is_commutative(node):
                inputs.sort()
            form: Form = (reader.label(node), tuple(inputs))
            if detail != "loose":
                form = (*form, reader.attributes(node))
            if node.subgraphs:
                form = (*form, self._bodies(node, values, detail))
            if detail == "exact" and reader.is_random(node):
                form = (*form, "random", self._tag, len(made), id(graph))
            number = made[node] = numbers(("made", *form))
            for output in node.outputs:
                if output is not None:
                    values[output] = numbers(("output", number, output.index))
        return made

    def _bodies(self, node: Node, values: dict[Value, int], detail: Detail) -> Form:
        """Return what the bodies of *node* compute, from what they capture.

        Asked again for each graph round *node*, mostly with the same answer, which is kept.
        """
        captured = self.reader.captured(node)
        given = tuple(self._value(value, values, detail) for value in captured)
        key = (node, (detail, *given))
        if key not in self.numbers.bodies:
            self.numbers.bodies[key] = tuple(
                self._body(name, body, values, detail)
                for name, body in sorted(node.subgraphs.items())
            )
        return self.numbers.bodies[key]

    def _body(self, name: str, body: Graph, values: dict[Value, int], detail: Detail) -> Form:
        for place, value in enumerate(free_inputs(body.inputs)):
            values[value] = input_number(self.numbers, body, place)
        made = self._number(body, values, detail)
        outputs = tuple(self._value(value, values, detail) for value in body.outputs)
        return (name, len(body.inputs), outputs, tuple(sorted(made.values())))

    def _value(self, value: Value, values: dict[Value, int], detail: Detail) -> int:
        known = values.get(value)
        if known is not None:
            return known
        if self.reader.tensor(value) is not None:
            number = self.constant(value, detail)
        elif value.graph is self.graph:
            number = self.numbers(("without partner", self._tag, value.name))
        else:
            number = self._outer(value)
        values[value] = number
        return number


def input_number(numbers: Numbers, graph: Graph, place: int) -> int:
    """Number an input of *graph*: a body's own, as seen from it and from any graph round it."""
    return numbers(("input", depth_of(graph), place))


def depth_of(graph: Graph) -> int:
    """Count the nodes round *graph*."""
    depth = 0
    while graph.owner is not None:
        depth += 1
        graph = graph.owner.graph
    return depth
