"""What the graph says of the sizes of inputs: which are sums of others, which it has itself."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from dplcli.ir import Dim, Node, Value, operators
from dplcli.shapes.knowledge import Knowledge
from dplcli.shapes.terms import Number, Product, Term, add, multiply, negative
from dplcli.verify.check import Sums
from dplcli.verify.model import (
    Dataflow,
    Port,
    Purpose,
    Waypoint,
    influences,
    integer,
    numbers_in,
    stored,
)

_LONGEST = 1 << 16
"""No size is tried that is larger."""

_SHAPES = frozenset({("Reshape", 1), ("Expand", 1), ("ConstantOfShape", 0)})
"""The inputs that hold a shape."""


# Sizes that are sums.


class SizeTerms:
    """The sizes in a main graph as terms in the sizes of its inputs.

    Args:
        flow: The model.
        ports: Its inputs.
    """

    def __init__(self, flow: Dataflow, ports: Sequence[Port]) -> None:
        self._flow, self._ports = flow, ports
        self._known = flow.graph.model.memory(Knowledge)
        self._atoms: dict[str, Term] = {}
        for port in ports:
            value = flow.graph.values.get(port.name)
            for symbol, size in zip(port.symbols, self._sizes(value), strict=False):
                if (
                    symbol
                    and isinstance(size, Term)
                    and self._known.algebra.meaning(size) is not None
                ):
                    self._atoms.setdefault(symbol, size)
        self._names = {p: name for name, atom in self._atoms.items() for p in atom.products}
        self._inside = [s for value in flow.graph.values.values() for s in self._sizes(value)]

    def _sizes(self, value: Value | None) -> Sequence[Number]:
        is_known = value is not None and self._known.type_of(value) is not None
        return (self._known.shape(value) if value is not None and is_known else None) or ()

    def inner(self) -> Sums:
        """Return the sums of different sizes of inputs that are sizes inside the graph."""
        found = (self._parts(size) for size in dict.fromkeys(self._inside))
        return {" + ".join(map(str, p)): p for p in found if 1 < len(p) == len({*p})}

    def related(self) -> Sums:
        """Return which sizes of inputs have to be sums of others, since both meet somewhere.

        A mask that is added to scores over past and present keys is as long as both together.
        """
        sums: dict[str, Number] = {}
        for equation in self._equations():
            number = self._replaced(equation, sums)
            products = _products(number)
            names = (name for product, name in self._names.items() if product in products)
            for name in sorted(names, reverse=True):
                (product,) = (atom := self._atoms[name]).products
                rest = add(atom, multiply(number, -products[product]))
                if abs(products[product]) == 1 and self._parts(rest):
                    sums = {n: self._replaced(own, {name: rest}) for n, own in sums.items()}
                    sums[name] = rest
                    break
        return {name: self._parts(own) for name, own in sums.items()}

    def _equations(self) -> Iterator[Number]:
        """Yield terms that are 0: of sizes that meet, of what outputs declare, and of masks.

        A mask has an element for each key, so its rows are as long as those of the scores.
        """
        for one, *others in map(tuple, self._known.algebra.meetings):
            yield from (add(one, negative(other)) for other in others)
        for value in self._flow.graph.outputs:
            declared = value.declared_type and value.declared_type.shape
            for said, size in zip(declared or (), self._sizes(value), strict=False):
                if isinstance(said, str) and said in self._atoms:
                    yield add(size, negative(self._atoms[said]))
        for port in self._ports:
            *rows, last = port.symbols or [None]
            for purpose, value in influences(self._flow, port) if rows and last else ():
                keys = next(reversed(self._sizes(value)), 0)
                if purpose is Purpose.MASK and last in self._atoms and isinstance(keys, Term):
                    yield add(keys, negative(self._atoms[last]))

    def _replaced(self, number: Number, sums: Mapping[str, Number]) -> Number:
        """Return a term with sums in the place of their names."""
        for name, own in sums.items():
            (product,) = (atom := self._atoms[name]).products
            times = _products(number).get(product, 0)
            number = add(number, multiply(times, add(own, negative(atom))))
        return number

    def _parts(self, number: Number) -> tuple[int | str, ...]:
        """Return the sizes of inputs and the number that a term is the sum of; () if it is none."""
        terms = _products(number)
        if not terms.keys() <= self._names.keys() | {()} or min(terms.values()) <= 0:
            return ()
        names = (self._names[p] for p, times in terms.items() if p for _ in range(times))
        return (*names, *([terms[()]] if () in terms else []))


def _products(number: Number) -> Mapping[Product, int]:
    return number.products if isinstance(number, Term) else {(): number}


# Sizes that the graph has.


def tied_sizes(flow: Dataflow, ports: Sequence[Port]) -> dict[str, int]:
    """Return the sizes of symbols that meet another size where both have to be equal.

    That is the size that a matrix product or a convolution sums over, and an axis along which
    two values are added. (There, 1 would do as well, and show less.)
    """
    symbols = {symbol for port in ports for symbol in port.symbols if symbol is not None}
    met: dict[str, set[int]] = defaultdict(set)
    for node in flow.nodes():
        for one, other in _met(node):
            for symbol, size in ((one, other), (other, one)):
                if symbol in symbols and isinstance(size, int) and size > 1:
                    met[str(symbol)].add(size)
    return {symbol: sizes.pop() for symbol, sizes in met.items() if len(sizes) == 1}


def _met(node: Node) -> Iterable[tuple[Dim, Dim]]:
    """Return the pairs of sizes that have to be equal, those of the first two inputs of *node*."""
    read = (Waypoint(value).dims if value else None for value in (*node.inputs[:2], None, None))
    one, other = (dims or () for dims in islice(read, 2))
    least_rank = min(len(one), len(other))
    match node.op_type:
        case op_type if op_type in operators.ARITHMETIC:
            return zip(reversed(one), reversed(other), strict=False)
        case "MatMul" if least_rank > 0:
            return [(one[-1], other[-2:][0])]
        case "Gemm" if least_rank > 1:
            axes = integer(node, "transA", 0), integer(node, "transB", 0)
            return [(one[-1 - axes[0]], other[-2 + axes[1]])]
        case "Conv" if least_rank > 1 and integer(node, "group", 1) == 1:
            return [(one[1], other[1])]
        case _:
            return []


def static_sizes(flow: Dataflow) -> list[int]:
    """Return the sizes that are fixed somewhere in the main graph, the likely ones first.

    Shapes that are stored, as for a Reshape or Expand, come before the shapes of values, and those
    before the shapes of weights. What is there more often comes first.
    """
    found: dict[int, None] = {}
    for kind in _known_shapes(flow):
        sizes = Counter(_telling(kind))
        found |= dict.fromkeys(sorted(sizes, key=lambda size: (-sizes[size], size)))
    return list(found)


def fixed_sizes(flow: Dataflow) -> frozenset[int]:
    """Return the sizes in the main graph that made-up ones could be mistaken for.

    The length of a vector is none: most vectors are shapes, or go with a matrix. Neither are the
    extents of a kernel.
    """
    targets, computed, weights = _known_shapes(flow)
    matrices = [dims[:2] for dims in weights]
    return frozenset(_telling([*targets, *(d for d in (*computed, *matrices) if len(d) > 1)]))


def _known_shapes(flow: Dataflow) -> tuple[list[Sequence[Dim]], ...]:
    """Return shapes that are stored, the shapes of values, and those of weights."""
    shapes: list[Sequence[Dim]] = []
    computed: list[Sequence[Dim]] = []
    weights: list[Sequence[Dim]] = []
    for value in flow.values():
        if (tensor := stored(value)) is None:
            known = value.declared_type
            computed += [known.shape] if known and known.shape else []
            continue
        weights.append(tensor.shape)
        if any((node.op_type, slot) in _SHAPES for node, slot in value.iter_uses()):
            numbers = numbers_in(tensor)
            shapes += [] if numbers is None else [numbers.reshape(-1).tolist()]
    return shapes, computed, weights


def _telling(shapes: Iterable[Sequence[Dim]]) -> Iterator[int]:
    dims = (dim for dims in shapes for dim in dims if isinstance(dim, int))
    return (dim for dim in dims if 1 < dim <= _LONGEST)
