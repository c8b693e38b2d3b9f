"""A graph under way: chance, sizes, and leaves with what the conditions of a rule ask of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dplcli.catalog.sketch import Instance, InstanceNode, VariantSketch
from dplcli.ir import operators
from dplcli.pipeline.wishes import Facet, Wishes, stated_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.ir import SchemaLibrary
    from dplcli.language.pattern import AttributeValue
    from dplcli.language.rule import Rule

    Shape: TypeAlias = tuple[int, ...]
    Type: TypeAlias = tuple[str, Shape]
    Array: TypeAlias = NDArray[Any]
    Attributes: TypeAlias = dict[str, AttributeValue | Array]


class DeadEndError(Exception):
    """What was drawn so far fits together with nothing; draw again."""


# Constants.


def numbers_of(  # noqa: PLR0911  # a case for each kind
    kind: str, shape: Shape, random: np.random.Generator, wished: Sequence[float]
) -> NDArray[np.float64]:
    """Return numbers of one kind."""
    match kind:
        case "positive":
            return random.uniform(0.5, 1.5, shape)
        case "mixed":
            return np.round(random.normal(0, 2, shape), 3)
        case "zero":
            return np.zeros(shape)
        case "one":
            return np.ones(shape)
        case "negative":
            return -random.uniform(0.5, 2.5, shape)
        case "small":
            return random.uniform(1e-4, 1e-2, shape)
        case "huge":
            return random.choice([-1.0, 1.0], shape) * random.uniform(100, 3000, shape)
        case "nan":
            values = random.uniform(0.5, 1.5, shape)
            return np.where(random.random(shape) < 0.5, np.nan, values)  # noqa: PLR2004  # half
        case "whole":
            return random.integers(-3, 4, shape).astype(np.float64)
        case _:
            return np.full(shape, float(random.choice(list(wished) or [1.0])))


_LARGEST = {
    **dict.fromkeys(("int8", "uint8"), 3.0),
    **dict.fromkeys(("int16", "int32", "int64", "uint16", "uint32", "uint64"), 9.0),
    "float16": 16.0,
}
_USUAL = ("positive", "mixed", "wished")
CONSTANT_KINDS = (*_USUAL, "zero", "one", "negative", "small", "huge", "whole", "nan")


def as_type(numbers: NDArray[Any], dtype: str) -> Array:
    """Return numbers in an element type; a number out of range becomes the nearest in it."""
    if dtype == "bool":
        return np.asarray(numbers > 0)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        whole = np.round(np.nan_to_num(numbers, nan=1.0))
        return np.asarray(
            np.clip(whole, max(limits.min, -(2**31)), min(limits.max, 2**31 - 1)), dtype=kind
        )
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=kind)


# Sizes and types.


OTHER_TYPES = ("float64", "int64", "int32", "uint8", "float16", "int8", "bool", "uint32", "int16")
_TYPES = ("float32", "int64", "int32", "bool", *OTHER_TYPES)
DRAWN_TYPES = frozenset({*_TYPES, "bfloat16", "uint16", "uint64"})
SIZES: Mapping[str, tuple[int, ...]] = {
    "N": (1, 2),
    "C": (4, 4, 2, 6),
    "E": (2, 4),
    "Q": (2, 1, 3),
    "H": (4, 6, 8),
    "I": (2, 3),
    "J": (1, 2),
    "kernel_shape": (1, 2, 3),
}
"""What some sizes are drawn from; others are sizes of the graph."""

_WINDOWS = (4, 5, 6, 7)
"""The sizes of an image that a window may run over, beside those that a large window asks for."""

_SHARED = frozenset(["N", "C", "s", "kernel_shape"])
"""Sizes that are mostly the same in all nodes of a graph."""

OF_IMAGES = (
    operators.WINDOWED
    | operators.GLOBAL_POOLS
    | {"GridSample", "GroupNormalization", "InstanceNormalization"}
) - {"Col2Im"}
"""Operators whose first operand is a batch of images."""


def label_of(node: InstanceNode) -> str:
    """Return the name of an operator, with its domain."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


HALF, SELDOM, RARELY = 0.5, 0.3, 0.12
"""Shares of daring graphs in which something unusual is done."""

LARGEST_SIZE = 64
"""The largest size that is drawn: graphs stay small."""

_LARGE_WINDOW = 4
"""A window from here on is as large as the smallest images."""


@dataclass
class Drawing:
    """One graph of a variant of a pattern, as far as it is drawn.

    Attributes:
        sketch: The nodes of the variant.
        rule: The rule.
        schemas: The standard operators.
        opset: The opset of the graphs.
        random: Where chance comes from.
        daring: From 0 to 1, how far from the usual the graph may be.
        fitting: The ranks of graphs that were no dead ends.
        types: Element type and shape of each value so far.
        slots: Which slots of the node at hand read a value.
        made: The graph so far.
        wishes: What conditions ask of it.
        values: Whole numbers that are computed, as of a Shape.
        usual: Sizes that operators share in this graph.
        bound: The attributes that the pattern binds by a name.
        rests: By a name, all other attributes of a node.
        dtype: The element type of what has none of its own.
        rank: The rank of most of what data comes in by.
        dims: Sizes, from the first axis on.
    """

    sketch: VariantSketch
    rule: Rule
    schemas: SchemaLibrary
    opset: int
    random: np.random.Generator
    daring: float = 0.0
    fitting: set[int] = field(default_factory=set)
    types: dict[str, Type] = field(default_factory=dict)
    slots: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    made: Instance = field(default_factory=Instance)
    wishes: Wishes = field(default_factory=Wishes)
    values: dict[str, Array] = field(default_factory=dict)
    usual: dict[str, int] = field(default_factory=dict)
    bound: dict[str, AttributeValue | Array] = field(default_factory=dict)
    rests: dict[str, Attributes] = field(default_factory=dict)
    dtype: str = "float32"
    rank: int = 0
    dims: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read once for all graphs what numbers the rule states, and whose shape each value has."""
        self.numbers = stated_numbers(self.rule)
        self.leaves = {leaf.name: leaf for leaf in self.sketch.leaves}
        large = [int(n) for n in self.numbers if _LARGE_WINDOW <= n <= LARGEST_SIZE / 2]
        self.windows = (*_WINDOWS, *(size + more for size in large for more in (0, 1, 3)))
        self.is_of_images = any(node.op_type in OF_IMAGES for node in self.sketch.nodes)
        self.roots: dict[str, str] = {}
        self.twins: dict[str, str] = {}
        for node in self.sketch.nodes:
            first = node.inputs[0] if node.inputs else ""
            for name in node.outputs if first else ():
                self.twins[name] = self.twins.get(first, first)
                if node.op_type in operators.KEEPS_SHAPE | operators.BROADCASTING:
                    self.roots[name] = self.roots.get(first, first)

    # -- chance --------------------------------------------------------------------------------

    def one_of(self, items: Sequence[Any]) -> Any:  # noqa: ANN401  # of any kind
        """Draw one of some things, each as often."""
        return items[int(self.random.integers(len(items)))]

    def dares(self, share: float) -> bool:
        """Tell whether to do something unusual, that is done in *share* of daring graphs."""
        return bool(self.random.random() < share * min(1.0, 2 * self.daring))

    # -- leaves --------------------------------------------------------------------------------

    def shape(self, name: str) -> Shape | None:
        """Return the shape of a value, None if it is a leaf that has none yet."""
        return self.types[name][1] if name in self.types else None

    def leaf(  # one parameter per fact
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "",
        *,
        data: NDArray[Any] | None = None,
        positive: bool = False,
    ) -> Shape:
        """Give a leaf its type, unless it has one; *data* makes it a constant."""
        if not name:
            return ()
        if name in self.types:
            return self.types[name][1]
        if name in self.sketch.given:
            # Add a constant whose number the pattern states, as one element in some shape.
            data = self.sketch.given[name]
            if name not in self.sketch.exact:
                ones = (1,) * int(self.random.integers(self.rank + 2)) if self.dares(HALF) else ()
                data = np.broadcast_to(data, ones)
                data = as_type(np.asarray(data, dtype=np.float64), dtype or self.dtype)
            self.made.constants[name] = data
            self.types[name] = (str(data.dtype), data.shape)
            return data.shape
        leaf = self.leaves.get(name)
        chosen = tuple(map(int, shape))
        if leaf is not None and data is None:
            chosen = self._wished_shape(name, leaf, chosen)
        kind = self._dtype_for(name, leaf.dtype if leaf else "", dtype or self.dtype)
        self.types[name] = (kind, chosen)
        if data is None and (leaf is None or not (leaf.is_constant or self.dares(RARELY))):
            self.made.inputs[name] = self.types[name]
            return chosen
        if data is not None:
            data = self._as_wished(name, np.asarray(data))
        else:
            data = self._constant(name, chosen, kind, positive=positive)
        self.made.constants[name] = as_type(np.asarray(data), kind)
        self.types[name] = (kind, self.made.constants[name].shape)
        return self.types[name][1]

    def _dtype_for(self, name: str, stated: str, usual: str) -> str:
        """Choose the element type of a leaf: the pattern's, one that is asked for, or the usual."""
        wished = self.wishes.texts.get(name, [])
        kind = stated or usual
        for other in self.wishes.equals(Facet("dtype", name)):
            kind = self.types.get(other.name, (kind, ()))[0]
        if wished and not stated and kind not in wished:
            kind = str(self.one_of(wished))
        kind = self._accepted(name, kind, wished)
        if kind not in DRAWN_TYPES:
            raise DeadEndError
        return kind

    def _readers(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield what reads a value, and what reads results that have its element type."""
        for node in self.sketch.nodes:
            for slot, read in enumerate(node.inputs):
                if read != name:
                    continue
                yield label_of(node), slot
                schema = self.schemas.find(node.op_type, node.domain, self.opset)
                if schema is not None and schema.typed_by[:1] == (slot,):
                    yield from self._readers(node.outputs[0])

    def _accepted(self, name: str, kind: str, wished: Sequence[str]) -> str:
        """Return *kind*, or another type if those that read the leaf do not take that."""
        for op_type, slot in [*self._readers(name), *self.slots.get(name, ())]:
            domain, _, plain = op_type.rpartition(".")
            schema = self.schemas.find(plain, domain, self.opset)
            formals = () if schema is None else schema.typed
            if slot < len(formals) and kind not in formals[slot].dtypes:
                options = [other for other in wished or _TYPES if other in formals[slot].dtypes]
                if not options:
                    raise DeadEndError
                kind = str(options[0] if "bool" in options else self.one_of(options))
        return kind

    def wanted_rank(self, name: str) -> int | None:
        """Return a rank that a leaf shall have; None if nobody says any."""
        leaf = self.leaves.get(name)
        if leaf is not None and leaf.shape is not None:
            return len(leaf.shape)
        if leaf is not None and leaf.rank is not None:
            return int(leaf.rank)
        for other in self.wishes.equals(Facet("rank", name)):
            if (rank := self._known(other)) is not None:
                return int(rank)
        ranks = self.wishes.ranks(name)
        return int(self.one_of(ranks)) if ranks and not self.dares(RARELY) else None

    def _known(self, facet: Facet) -> float | None:
        """Return a facet of what is drawn already; None if it is not."""
        shape = self.shape(facet.name)
        data = self.made.constants.get(facet.name, self.values.get(facet.name))
        with suppress(IndexError):
            if shape is not None and facet.kind in {"rank", "shape"}:
                return len(shape) + facet.past
            if shape is not None and facet.kind in {"size", "length"}:
                return shape[facet.at] + facet.past
            if data is not None and facet.kind in {"number", "element"}:
                return float(data.reshape(-1)[facet.at]) + facet.past
        return None

    def _wished_shape(self, name: str, leaf: Any, shape: Shape) -> Shape:  # noqa: ANN401  # a wish is of any kind
        if leaf.shape is not None:
            return tuple(leaf.shape)
        if not self.dares(RARELY):
            for other in self.wishes.equals(Facet("shape", name)):
                if other.kind == "shape" and other.name in self.types:
                    return self.types[other.name][1]
        rank = self.wanted_rank(name)
        allowed = self.wishes.ranks(name) if leaf.rank is None else ()
        if rank is not None and rank != len(shape) and len(shape) not in allowed:
            shape = (*self.dims, *self.dims)[: max(rank - len(shape), 0)] + shape
            shape = shape[len(shape) - rank :]
        return self._with_wished_sizes(name, list(shape))

    def _with_wished_sizes(self, name: str, dims: list[int]) -> Shape:
        """Return a shape with the sizes that conditions ask for, or that others have."""
        for axis, wanted in self.wishes.sizes(name).items():
            if -len(dims) <= axis < len(dims) and not wanted.admits(dims[axis]):
                dims[axis] = int(wanted.draw(self.random, is_whole=True))
        for axis in range(-len(dims), len(dims)) if not self.dares(RARELY) else ():
            for other in self.wishes.equals(Facet("size", name, axis)):
                if (size := self._known(other)) is not None:
                    dims[axis] = int(size)
        if any(not 0 <= size <= LARGEST_SIZE for size in dims):
            raise DeadEndError
        return tuple(dims)

    def _as_wished(self, name: str, data: NDArray[Any]) -> NDArray[Any]:
        """Return numbers with those that conditions ask for in their places."""
        elements, wanted = self.wishes.elements(name), self.wishes.number(name)
        equals = [self._known(other) for other in self.wishes.equals(Facet("number", name))]
        if not (elements or wanted or equals) or self.dares(RARELY):
            return data
        length = self.wishes.ranges.get(Facet("length", name))
        if length is not None and length.items and not length.admits(data.size) and data.ndim == 1:
            data = np.resize(data, int(length.items[0]))
        flat = np.array(data, dtype=np.float64 if data.dtype.kind == "f" else np.int64).reshape(-1)
        is_whole = data.dtype.kind != "f"
        for at in range(flat.size):
            each = elements.get(at, elements.get(at - flat.size, wanted))
            if each is not None and not each.admits(float(flat[at])):
                flat[at] = each.draw(self.random, is_whole=is_whole)
        known = [number for number in equals if number is not None]
        return np.full(data.shape, known[0]) if known else flat.reshape(data.shape)

    def _constant(
        self, name: str, shape: Shape, dtype: str, *, positive: bool
    ) -> NDArray[np.float64]:
        wanted = self.wishes.number(name)
        if wanted is not None and not self.dares(RARELY):
            if self.dares(HALF):  # one number, which may add rank to what it is applied to
                shape = (1,) * int(self.random.integers(self.rank + 2))
            elif not self.dares(SELDOM) and self.wanted_rank(name) in {None, 0}:
                shape = ()
            return np.full(shape, wanted.draw(self.random))
        kind = str(self.one_of(CONSTANT_KINDS if self.dares(0.7) else _USUAL))
        if positive and not self.dares(RARELY):
            kind = "positive"
        data = numbers_of(kind, shape, self.random, self.numbers)
        # Rules of arithmetic hold where it does not wrap or overflow.
        if dtype in _LARGEST:
            data = np.clip(data, -_LARGEST[dtype], _LARGEST[dtype])
            data = data if dtype == "float16" else np.nan_to_num(data, nan=1.0)
        return self._as_wished(name, data)

    # -- what forms ask for ----------------------------------------------------------------------

    def size(self, name: str, choices: Sequence[int]) -> int:
        """Draw a size; those of images are mostly the same in one graph, as of all filters."""
        if not choices:
            return int(self.one_of(self.dims))
        if name not in self.usual or name not in _SHARED or self.dares(SELDOM):
            self.usual[name] = int(self.one_of(choices))
        return self.usual[name]

    def dims_from(self, at: int, count: int) -> Shape:
        """Return so many of the graph's sizes, in another order now and then."""
        dims = [*self.dims, 7, 8, 9, 2, 3][at : at + count]
        if self.types and self.random.random() < SELDOM:
            dims = [int(dim) for dim in self.random.permutation(dims)]  # as a product may want it
        return tuple(dims)

    def mark(self) -> tuple[dict[str, Type], dict[str, Type], dict[str, Array]]:
        """Return what :meth:`reset` takes to forget what is drawn from here on."""
        return dict(self.types), dict(self.made.inputs), dict(self.made.constants)

    def reset(self, mark: tuple[dict[str, Type], dict[str, Type], dict[str, Array]]) -> None:
        """Forget what was drawn since."""
        self.types, self.made.inputs, self.made.constants = mark

    def data(self, name: str, rank: int | None = None) -> Shape:
        """Give a leaf that data comes in by a shape of the graph's own rank."""
        return self.leaf(name, self.dims_from(0, self.rank if rank is None else rank))

    def ranked(self, name: str) -> Shape:
        """Give a leaf that data comes in by a shape, and be content with no scalar."""
        if not (shape := self.data(name)):
            raise DeadEndError
        return shape

    # -- shapes beside others ---------------------------------------------------------------------

    def beside(self, base: Shape) -> Shape:  # noqa: PLR0911  # a case for each kind
        """Draw a shape that broadcasts with *base*."""
        rank = len(base)
        choice = int(self.random.integers(9))
        if not self.dares(1.0):
            choice = choice % 4
        match choice:
            case 0 | 1:
                return base
            case 2:
                return base[-1:]
            case 3:
                return ()
            case 4:
                return tuple(1 if self.random.random() < HALF else d for d in base)
            case 5:
                return base[int(self.random.integers(rank + 1)) :]
            case 6:
                return (base[1], *(1,) * (rank - 2)) if rank > 1 else (1,)
            case 7:
                return (int(self.random.integers(1, 3)), *base)
            case _:  # where the base has a one, this may have more
                return tuple(3 if d == 1 else d for d in base)

    def image(self) -> Shape:
        """Draw the shape of a batch of images."""
        spatial = [self.size("s", self.windows) for _ in range(max(self.rank - 2, 0))]
        return (self.size("N", SIZES["N"]), self.size("C", SIZES["C"]), *spatial)
