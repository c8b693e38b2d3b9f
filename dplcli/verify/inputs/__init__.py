"""Inputs that a model accepts: given or drawn, with sizes for them."""

import lzma
import math
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property, partial
from itertools import chain, count, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO
from zlib import crc32

import ml_dtypes
import numpy as np
import onnx
from google.protobuf.message import DecodeError

from dplcli.errors import UsageError, VerificationError
from dplcli.files import write_file
from dplcli.ir import Dim, Graph, Node, Value, operators
from dplcli.shapes.knowledge import Knowledge
from dplcli.shapes.terms import Algebra, Number, Term, add, negative
from dplcli.verify.check import REFERENCE_LEVEL, Check, InputFunction, InputRequest, Sums
from dplcli.verify.compare import Facts, Judge
from dplcli.verify.inputs.files import ARCHIVE_ERRORS, check_saving, write_arrays
from dplcli.verify.inputs.given import GivenSet, check_known, read_given
from dplcli.verify.model import (
    Dataflow,
    Domain,
    Kind,
    Port,
    Purpose,
    Waypoint,
    input_domain,
    input_ports,
    integer,
    kind_of,
    numbers_in,
    output_ports,
    stored,
)
from dplcli.verify.power import blind_outputs
from dplcli.verify.run import Runner, open_original
from dplcli.verify.values import (
    Array,
    BlockCuts,
    Feed,
    ModelSource,
    Outputs,
    RunError,
    StoppedError,
    arrays_in,
    storable,
)
from dplcli.verify.verdict import InputChoice

# Numbers for symbolic dimensions: plans to try in turn until the model runs.
#
# A symbol gets one number over all inputs. A dimension that a model declares dynamic need not be
# so: exports bake in batch sizes, add a past to a present, or want an image of a certain size. So
# there are several plans. The first ones tell most: no two sizes are equal, and none is what a
# reshape could make of others (`_apart`). Later ones are more likely to run: the batch is 1, sizes
# are equal, images and sequences are larger or smaller. Then come the sizes that onnxruntime asked
# for when it refused the others, and the sizes that something else in the model has: a table of
# 100 positions wants 100 of them.


MOST_ELEMENTS = 1 << 26
_MOST_WANTED = 6
_MOST_STATIC = 8
_MOST_TIED = 3
_MANY_ELEMENTS = 1 << 22
_LONGEST = 1 << 16
_SHAPES = frozenset({("Reshape", 1), ("Expand", 1), ("ConstantOfShape", 0)})
NO_SIZES: Mapping[str, int] = MappingProxyType({})
_CHANNELS = 3
_IMAGE_RANK = 4
_GUESSED_RANKS = (2, 1, 4, 3, 0)
_SPATIAL_STEP = 32
_TRIED = {"batch": (1, 12), "length": (1, 32), "image": (_SPATIAL_STEP, 5)}
"""By role, how far apart the numbers are that are tried for a size, and how many."""
_SEQUENCE_WORDS = ("past", "seq", "len", "token", "time", "step", "point")


@dataclass(frozen=True)
class SizePlan:
    """Sizes by role.

    Attributes:
        batch: Size of a dimension that only ever is the first axis.
        spatial: Smallest size of an axis of an image.
        length: Smallest size of every other dimension.
        distinct: Whether sizes are searched upwards from these, so that none coincide. A batch of
            1 stays.
        batches: Whether those of several batches differ, too.
        rank: Rank of inputs that do not declare one.
    """

    batch: int
    spatial: int
    length: int
    distinct: bool = False
    batches: bool = False
    rank: int = _GUESSED_RANKS[0]

    def size(self, role: str) -> int:
        """Return the size of a dimension by its role."""
        by_role = {"batch": self.batch, "channel": _CHANNELS, "image": self.spatial}
        return by_role.get(role, self.length)


_PLANS = (
    SizePlan(2, 64, 6, distinct=True, batches=True),
    SizePlan(2, 64, 6, distinct=True),
    SizePlan(1, 64, 6, distinct=True, rank=1),
    SizePlan(2, 64, 8, rank=4),
    SizePlan(1, 64, 8, rank=3),
    SizePlan(1, 224, 16, rank=0),
    SizePlan(4, 32, 4),
    SizePlan(1, 128, 64),
    SizePlan(1, 256, 256),
    SizePlan(1, 640, 512),
    SizePlan(1, 320, 4096),
    SizePlan(1, 512, 16_000),
    SizePlan(3, 96, 2),
)
_SHORT_PLAN = SizePlan(1, 64, 3, distinct=True)
"""It is tried first where a run is dear."""
_LAST_PLANS = (SizePlan(1, 32, 1, rank=1), SizePlan(1, 1, 1))
"""They run wherever sizes are broadcast, and show little."""


def size_plans(  # noqa: PLR0913  # what is known of sizes, one kind each
    ports: Sequence[Port],
    given: Mapping[str, int],
    wanted: Sequence[int],
    static: Iterable[int] = (),
    *,
    tied: Mapping[str, int] = NO_SIZES,
    fixed: Collection[int] = (),
    is_dear: bool = False,
) -> Iterator[dict[str, int]]:
    """Yield sizes: one per symbol, and one per ``input:axis`` of an unnamed axis; none twice.

    Args:
        ports: The inputs. Those without a declared rank get one per plan (see `shape_of`).
        given: Sizes that the user fixed, also of other inputs. They hold in every plan.
        wanted: Sizes that failures of earlier plans asked for, read once the plans are used up.
        static: Sizes that other parts of the model have, the likely ones first; read after those.
        tied: Sizes that seem to be the only ones, see `tied_sizes`; they hold in the first plans.
        fixed: Sizes that the first plans keep clear of, see `fixed_sizes`.
        is_dear: Whether a run is so much work that small sizes come first.
    """
    seen: set[tuple[tuple[str, int], ...]] = set()
    first = ((plan, tied) for plan in _PLANS[:_MOST_TIED] if tied)
    others = ((plan, NO_SIZES) for plan in _plans(ports, wanted, static))
    short = [(_SHORT_PLAN, tied)] if is_dear else []
    for plan, own in chain(short, first, others):
        ranked, sizes = _apply(plan, ports, {**own, **given}, fixed)
        if _elements(ranked, sizes) > MOST_ELEMENTS:
            continue
        if (key := tuple(sorted(sizes.items()))) not in seen:
            seen.add(key)
            yield sizes


def shaped_sizes(
    ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Return *sizes* and the sizes of all symbols in *shapes*, which are given for whole inputs.

    Raises:
        UsageError: A shape is for no input, has another rank or contradicts a fixed dimension; or
            one symbol gets two numbers.
    """
    by_name = {port.name: port for port in ports}
    result = dict(sizes)
    check_known(shapes, by_name, "the model has no input {!r}")
    for name, shape in shapes.items():
        port = by_name[name]
        if port.shape is None:
            result |= {_rank(port): len(shape)}
        elif len(port.shape) != len(shape):
            raise UsageError(
                f"the shape of {name!r} has {len(shape)} dimensions, but {len(port.shape)} in the "
                "model"
            )
        ranked = _with_rank(port, len(shape))
        for axis, (symbol, dim) in enumerate(zip(ranked.symbols, shape, strict=True)):
            declared = dim if ranked.shape is None else ranked.shape[axis]
            if symbol is None and declared != dim:
                raise UsageError(f"dimension {axis} of {name!r} is {declared}, not {dim}")
            if symbol is not None and result.setdefault(symbol, dim) != dim:
                raise UsageError(f"two sizes are given for {symbol!r}: {result[symbol]} and {dim}")
    return result


def _plans(
    ports: Sequence[Port], wanted: Sequence[int], static: Iterable[int]
) -> Iterator[SizePlan]:
    """Yield plans; late those for which already to make up values takes seconds."""
    late = [p for p in _PLANS if _elements(*_apply(p, ports, NO_SIZES, ())) > _MANY_ELEMENTS]
    yield from (plan for plan in _PLANS if plan not in late)
    for size in wanted[:_MOST_WANTED]:
        yield from (SizePlan(batch, 64, size) for batch in (2, 1))
    for size in islice(static, _MOST_STATIC):
        yield from (SizePlan(batch, 64, size) for batch in (size, 2, 1))
        yield SizePlan(size, size, size)
        yield SizePlan(size, 64, 8)
    yield from (*late, *_LAST_PLANS)


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


def related_sizes(flow: Dataflow, ports: Sequence[Port]) -> Sums:
    """Return which sizes have to be sums of others, since both meet somewhere in the main graph.

    A mask that is added to scores over past and present keys is as long as both together.
    """
    symbols = {symbol for port in ports for symbol in port.symbols if symbol is not None}
    if len(symbols) < 2:  # noqa: PLR2004  # two may be related
        return {}
    sums: dict[str, Counter[str]] = {}
    for terms in _equations(flow):
        _replace(terms, sums)
        for name in sorted(symbols & terms.keys(), reverse=True):
            rest = Counter({n: -terms[name] * times for n, times in terms.items() if n != name})
            is_sum = rest.keys() <= symbols | {""} and min(rest.values(), default=-1) > 0
            if abs(terms[name]) == 1 and is_sum:
                for own in sums.values():
                    _replace(own, {name: rest})
                sums[name] = rest
                break
    return {
        name: (*(parts - Counter({"": parts[""]})).elements(), *filter(None, [parts[""]]))
        for name, parts in sums.items()
    }


def _equations(flow: Dataflow) -> Iterator[Counter[str]]:
    """Yield sums of sizes of inputs that are 0: sizes that meet, and what outputs declare."""
    known = flow.graph.model.memory(Knowledge)
    for value in flow.graph.values.values():
        known.type_of(value)
    for one, *others in map(tuple, known.algebra.meetings):
        yield from (_linear(known.algebra, add(one, negative(other))) for other in others)
    for value in flow.graph.outputs:
        declared = value.declared_type and value.declared_type.shape
        for said, number in zip(declared or (), known.shape(value) or (), strict=False):
            terms = _linear(known.algebra, number)
            if isinstance(said, str) and terms[said] != 1:
                terms[said] -= 1
                yield terms


def _linear(algebra: Algebra, number: Number) -> Counter[str]:
    """Return how often a number has each size of an input, 1 (as "") and each other product."""
    terms: Counter[str] = Counter()
    if isinstance(number, int):
        return Counter({"": number})
    for product, factor in number.products.items():
        match product and algebra.meaning(Term({product: 1})):
            case ():
                name = ""
            case ("symbol", Graph(), str() as name):
                pass
            case ("dim", Value() as value, int() as axis):
                name = f"{value.name}:{axis}"
            case _:
                name = f"{product}"
        terms[name] += factor
    return terms


def _replace(terms: Counter[str], sums: Mapping[str, Counter[str]]) -> None:
    """Put sums in the place of their names; what is there no times is left out."""
    for name in sums.keys() & terms.keys():
        times = terms.pop(name)
        for part, factor in sums[name].items():
            terms[part] += times * factor
    for name in [name for name, times in terms.items() if not times]:
        del terms[name]


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
    shapes = [*targets, *(dims for dims in (*computed, *matrices) if len(dims) > 1)]
    return frozenset(_telling(shapes))


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


def shape_of(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the dimensions of one input under one plan."""
    if port.shape is None:
        return tuple(sizes[f"{port.name}:{axis}"] for axis in range(sizes.get(_rank(port), 0)))
    return tuple(
        dim if isinstance(dim, int) else sizes[symbol or ""]
        for dim, symbol in zip(port.shape, port.symbols, strict=True)
    )


def _rank(port: Port) -> str:
    return f"{port.name}:rank"


def _with_rank(port: Port, rank: int) -> Port:
    return port if port.shape is not None else replace(port, shape=(None,) * rank)


def _elements(ports: Sequence[Port], sizes: Mapping[str, int]) -> int:
    return sum(int(np.prod(shape_of(port, sizes), dtype=np.float64)) for port in ports)


def _apply(
    plan: SizePlan, ports: Sequence[Port], pinned: Mapping[str, int], fixed: Collection[int]
) -> tuple[list[Port], dict[str, int]]:
    """Return the inputs with the ranks that a plan gives them, and all sizes."""
    ranked = [_with_rank(port, plan.rank) for port in ports]
    roles = _roles(ranked)
    sizes = {symbol: plan.size(role) for symbol, role in roles.items()}
    if plan.distinct:
        ones = {s: n for s, n in sizes.items() if n == 1 or roles[s] == "channel"}
        same = {s: s if plan.batches or role != "batch" else role for s, role in roles.items()}
        sizes = _apart(ranked, sizes, {**ones, **pinned}, fixed, same)
    else:
        sizes |= {symbol: size for symbol, size in pinned.items() if symbol in sizes}
        _Lengths(ranked).add_up(sizes, pinned)
    ranks = {_rank(port): len(port.shape or ()) for port in ranked}
    return ranked, {**ranks, **sizes, **pinned}


def _apart(
    ports: Sequence[Port],
    starts: Mapping[str, int],
    pinned: Mapping[str, int],
    fixed: Collection[int],
    same: Mapping[str, Hashable],
) -> dict[str, int]:
    """Return a size for each symbol, so that they coincide as little as small numbers can.

    Where two sizes are equal, or one is a product of others, a transposed axis or a wrong target
    of a reshape goes unnoticed.

    Args:
        ports: The inputs, with ranks.
        starts: Where to begin to search upwards, for each symbol.
        pinned: Sizes that are known; those of channels always are.
        fixed: Sizes to keep clear of.
        same: What symbols of one size have in common.
    """
    roles, lengths = _roles(ports), _Lengths(ports)
    sizes = {symbol: pinned[symbol] for symbol in roles if symbol in pinned}
    sizes_taken = {size for size in (*sizes.values(), *lengths.sums(sizes)) if size > 1}
    chosen: dict[Hashable, list[int]] = {}
    for role, (step, most) in _TRIED.items():
        for symbol in (symbol for symbol in roles if roles[symbol] == role):
            if symbol in sizes or lengths.is_total(symbol):
                continue
            if (key := same[symbol]) not in chosen:
                numbers = (size for size in count(starts[symbol], step) if size not in sizes_taken)
                tried = [
                    [size, *lengths.sums_with(symbol, size, sizes)]
                    for size in islice(numbers, most)
                ]
                chosen[key] = min(tried, key=lambda new: _clashes(new, sizes_taken, fixed))
                sizes_taken |= {*chosen[key]} - {1}
            sizes[symbol] = chosen[key][0]
    sizes = {symbol: sizes.get(symbol, 0) for symbol in roles}
    lengths.add_up(sizes, pinned)
    return sizes


def _clashes(new: Sequence[int], made: set[int], fixed: Collection[int]) -> tuple[int, int, int]:
    """Count of *new* sizes those that are made up, those that are fixed, and those of products.

    The first one is new, the others are sums with it.
    """
    own, every = {*made, new[0]}, {*made, *fixed, new[0]}
    products = 0
    for size in new:
        is_product = any(size % one == 0 and size // one in every for one in own)
        is_factor = any(one % size == 0 and one // size in every for one in made)
        products += is_product or is_factor or any(size * one in fixed for one in made)
    return sum(map(made.__contains__, new)), sum(size in fixed for size in new), products


class _Lengths:
    """The lengths that add up in a decoder that is fed its own past."""

    def __init__(self, ports: Sequence[Port]) -> None:
        roles = _roles(ports)
        self._sums = {name: own for port in ports for name, own in port.parts.items()}
        self._past: list[str | int] = [
            s for s in roles if "past" in s.lower() and roles[s] != "batch" and not self._adds(s)
        ]
        shapes = [
            (port.symbols, port.shape or ())
            for port in ports
            if _holds_integers(port) and not any(map(self._adds, port.symbols))
        ]
        present = [names[1] or dims[1] for names, dims in shapes if len(names) > 1]
        self._present = [dim for dim in dict.fromkeys(present) if dim is not None]

    def is_total(self, symbol: str) -> bool:
        """Tell whether a symbol is a total of others."""
        return symbol in self._sums or (_is_total(symbol) and bool(self._past and self._present))

    def _adds(self, symbol: str | None) -> bool:
        return symbol in self._sums or _is_total(symbol)

    def sums(self, sizes: Mapping[str, int]) -> list[int]:
        """Return each past plus each present that are known."""
        present = _known(self._present, sizes)
        return [one + other for one in _known(self._past, sizes) for other in present]

    def sums_with(self, symbol: str, size: int, sizes: Mapping[str, int]) -> list[int]:
        """Return the sums that there are if a symbol gets this size."""
        is_present = self._past if symbol in self._present else []
        others = self._present if symbol in self._past else is_present
        return [size + other for other in _known(others, sizes)]

    def add_up(self, sizes: dict[str, int], given: Collection[str]) -> None:
        """Set the sizes that are totals; of one that is *given*, a part that is not."""
        for symbol in self._sums.keys() & given:
            parts = self._sums[symbol]
            free = next((part for part in parts if isinstance(part, str) and part not in given), "")
            left = sizes.get(symbol, 0) - sum(_known((p for p in parts if p != free), sizes))
            if free and left > 0:
                sizes[free] = left
        for symbol, size in sizes.items():
            if symbol in given:
                continue
            if symbol in self._sums:
                sizes[symbol] = sum(_known(self._sums[symbol], sizes))
            elif _is_total(symbol):
                sizes[symbol] = next(iter(self.sums(sizes)), size)


def _known(dims: Iterable[str | int], sizes: Mapping[str, int]) -> list[int]:
    numbers = (dim if isinstance(dim, int) else sizes.get(dim, 0) for dim in dims)
    return [size for size in numbers if size]


def _is_total(symbol: str | None) -> bool:
    return "total" in (symbol or "").lower()


def other_sizes(
    ports: Sequence[Port],
    sizes: Mapping[str, int],
    starts: Mapping[str, int],
    fixed: Collection[int] = (),
) -> dict[str, int]:
    """Return *sizes* with other ones for some symbols; what was equal stays so.

    Args:
        ports: The inputs.
        sizes: Sizes that run.
        starts: Where to search for the others; 1 stays 1.
        fixed: Sizes to keep clear of, beside all of *sizes*.
    """
    ranked = [_with_rank(port, sizes.get(_rank(port), 0)) for port in ports]
    roles = _roles(ranked)
    kept = {symbol: sizes[symbol] for symbol in roles if symbol not in starts}
    ones = {symbol: 1 for symbol, start in starts.items() if start == 1}
    same = {symbol: (roles[symbol], sizes[symbol]) for symbol in roles}
    taken = {*map(sizes.__getitem__, roles), *_Lengths(ranked).sums(sizes)} - {1}
    return {**sizes, **_apart(ranked, starts, {**kept, **ones}, {*fixed, *taken}, same)}


def smaller_size(role: str, size: int) -> int:
    """Return where to search for a smaller size; for one that is small, near it."""
    if role == "batch":
        return 1 if size > 1 else _PLANS[0].batch  # what holds for several need not hold for one
    if role == "image":
        return max(_SPATIAL_STEP, size // 2 // _SPATIAL_STEP * _SPATIAL_STEP)
    return max(_PLANS[0].length // 2, size // 2)


def _roles(ports: Sequence[Port]) -> dict[str, str]:
    """Return the role of each symbol: the first that an input gives it other than the batch."""
    roles: dict[str, str] = {}
    for port in ports:
        for axis, symbol in enumerate(port.symbols):
            if symbol is None:
                continue
            role = _role(port, axis, symbol)
            if roles.get(symbol, "batch") == "batch":
                roles[symbol] = role
    return roles


def _role(port: Port, axis: int, symbol: str) -> str:
    rank = len(port.symbols)
    if "batch" in symbol.lower() or (axis == 0 and rank > 1) or _is_state(port, axis, symbol):
        return "batch"
    if symbol in chain(port.sums, *port.sums.values()):
        return "length"
    if rank < _IMAGE_RANK or any(word in symbol.lower() for word in _SEQUENCE_WORDS):
        is_image = rank == _IMAGE_RANK - 1 and not _holds_integers(port)  # the channels come first
        is_image = is_image and port.shape is not None and port.shape[0] in {1, _CHANNELS}
        return "image" if is_image else "length"
    if axis == 1 and all(dim is not None for dim in port.symbols):
        return "channel"
    return "image"


def _is_state(port: Port, axis: int, symbol: str) -> bool:
    """Tell whether this is the unnamed middle axis of a recurrent state (layers, batch, hidden)."""
    if len(port.symbols) != _IMAGE_RANK - 1 or axis != 1 or ":" not in symbol:
        return False
    first, _, last = port.shape or (None, None, None)
    return isinstance(first, int) and first > 1 and isinstance(last, int)


def _holds_integers(port: Port) -> bool:
    return port.dtype in {onnx.TensorProto.INT32, onnx.TensorProto.INT64}


# Values to feed: drawn from a seed, inside the domain that the consumers set.


_WORDS = ("alpha", "Beta", "gamma delta", "the", "42", "x")
_SEQUENCE_LENGTH = 3
_MOST_POSITIONS = 63
_MOST_EXACT = 2**53
_INDEX_DTYPES = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_FLOAT_RANGES = (
    (Purpose.ABOVE_ONE, 1.1, 3.0, "Acosh"),
    (Purpose.UNIT, -0.9, 0.9, "Asin, Acos or Atanh"),
    (Purpose.POSITIVE, 0.1, 2.0, "Log, Sqrt or Reciprocal"),
)
_FEEDABLE = frozenset({"tensor", "sequence", "optional", "optional sequence"})


class Mood(Enum):
    """How far values go.

    BOLD leaves optionals out and hides all keys from a query, both for odd seeds. CAUTIOUS stays
    near 0 and 1.
    """

    BOLD = "bold"
    PLAIN = "plain"
    CAUTIOUS = "cautious"


@dataclass(frozen=True)
class Range:
    """How one input is drawn.

    Attributes:
        kind: 'normal', 'uniform', 'integers' (*high* included), 'mask', 'switch', 'words',
            'parts' (whole numbers that add up to *high*), or 'hiding' (a mask whose last row is all
            hidden for odd seeds).
        low: Smallest value, where the kind has one.
        high: Largest value, where the kind has one.
        how: The same in words, for the report.
        absent: Whether it is left out for odd seeds.
    """

    kind: str
    low: float
    high: float
    how: str
    absent: bool = False


def check_feedable(ports: Sequence[Port]) -> None:
    """Refuse an input of a type for which no values can be made.

    Raises:
        VerificationError: There is such an input; the error names it and its type.
    """
    for port in ports:
        if port.kind not in _FEEDABLE or port.dtype == onnx.TensorProto.UNDEFINED:
            raise VerificationError(
                f"input {port.name!r} is a {port.type_name}: dpl cannot make values for that",
                hint="give them: --inputs FILE" if port.kind in _FEEDABLE else None,
            )


def asked_range(port: Port, low: float, high: float) -> Range:
    """Return how to draw *port* from the range that the user asked for, both ends included.

    Raises:
        UsageError: The input holds no numbers, or its type does not have those of the range.
        VerificationError: No values can be made for an input of this type at all.
    """
    check_feedable([port])
    how = f"from {low:g} to {high:g}, as asked"
    if _is_float(port.dtype):
        return Range("uniform", low, high, how)
    if port.dtype == onnx.TensorProto.STRING:
        raise UsageError(f"a range is given for {port.name!r}, which is a string")
    wanted = onnx.helper.tensor_dtype_to_np_dtype(port.dtype)
    least, most = 0, 1
    if wanted.kind != "b":
        info = ml_dtypes.iinfo(wanted)  # type: ignore[no-untyped-call]
        least, most = max(int(info.min), -_MOST_EXACT), min(int(info.max), _MOST_EXACT)
    if low != int(low) or high != int(high) or low < least or high > most:
        raise UsageError(
            f"the range of {port.name!r} is {low:g} to {high:g}, but it is {port.type_name}",
            hint=f"give whole numbers from {least} to {most}",
        )
    return Range("integers", low, high, how)


def is_bold(port: Port, domain: Domain) -> bool:
    """Tell whether BOLD values differ from PLAIN ones: for a mask, or an optional."""
    return port.may_be_absent or (Purpose.MASK in domain.uses and Purpose.ANGLE not in domain.uses)


def choose_range(port: Port, domain: Domain, sizes: Mapping[str, int], mood: Mood) -> Range:
    """Return how to draw *port*: as varied as its domain and *mood* allow."""
    chosen = _choose(port, domain, sizes, mood)
    if mood is Mood.BOLD and port.may_be_absent:
        return replace(chosen, absent=True, how=f"{chosen.how}; absent for odd seeds")
    if mood is Mood.BOLD and chosen.kind in {"mask", "switch"} and Purpose.MASK in domain.uses:
        return replace(
            chosen, kind="hiding", how=f"{chosen.how}; for odd seeds the last row hides all"
        )
    return chosen


def _choose(port: Port, domain: Domain, sizes: Mapping[str, int], mood: Mood) -> Range:
    cautious = mood is Mood.CAUTIOUS
    if port.dtype == onnx.TensorProto.STRING:
        return Range("words", 0, 0, "words of a fixed list")
    if port.dtype == onnx.TensorProto.BOOL:
        return Range("mask" if cautious else "switch", int(cautious), 1, "false and true")
    if domain.parts and (size := _parts(domain, sizes)) is not None:
        return Range("parts", 0, size, f"whole numbers that add up to {size}")
    if domain.bounds and not _is_float(port.dtype):
        low, high = _index_range(domain, sizes)
        high = min(high, low + 1) if cautious else high
        return Range("integers", low, high, f"indices from {low} to {high}")
    if _is_float(port.dtype):
        return _float_range(port, domain, cautious=cautious)
    return _integer_range(port, domain, cautious=cautious)


def _parts(domain: Domain, sizes: Mapping[str, int]) -> int | None:
    sizes_of_parts = [sizes.get(str(part), part) for part in domain.parts]
    return next((part for part in sizes_of_parts if isinstance(part, int)), None)


def _index_range(domain: Domain, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the largest range that every bound allows; 0 to 1 if no size is known.

    What only negative indices can meet is no bound: a model may add the size of the axis to them.
    """
    limits = [(sizes.get(str(b.limit), b.limit), b.offset) for b in domain.bounds]
    positive = [
        (limit, offset) for limit, offset in limits if isinstance(limit, int) and limit > offset
    ]
    if not positive:
        return 0, 1
    low = max(0, *(-offset for _, offset in positive))
    high = min(limit - 1 - offset for limit, offset in positive)
    return low, max(low, high)


def _float_range(port: Port, domain: Domain, *, cautious: bool) -> Range:
    for purpose, low, high, readers in _FLOAT_RANGES:
        if purpose in domain.uses:
            return Range("uniform", low, high, f"uniform in [{low:g}, {high:g}], for {readers}")
    if onnx.TensorProto.DataType.Name(port.dtype) == "FLOAT8E8M0":
        return Range("uniform", 0.25, 4.0, "powers of two in [0.25, 4]")
    if cautious:
        return Range("uniform", 0.0, 1.0, "uniform in [0, 1]")
    return Range("normal", 0, 1, "normal with mean 0 and deviation 1")


def _integer_range(port: Port, domain: Domain, *, cautious: bool) -> Range:
    if Purpose.COUNT in domain.uses or port.shape == ():
        return Range("integers", 1, 1 if cautious else 4, "small counts")
    if cautious:
        return Range("mask", 1, 1, "ones")
    info = np.iinfo(np.int8) if port.dtype == onnx.TensorProto.INT8 else np.iinfo(np.uint8)
    is_byte = port.dtype in {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}
    if is_byte and Purpose.MASK not in domain.uses:
        return Range("integers", info.min, info.max, f"integers from {info.min} to {info.max}")
    if Purpose.ANGLE in domain.uses:
        return Range("integers", 0, _MOST_POSITIONS, f"positions from 0 to {_MOST_POSITIONS}")
    masking = {Purpose.NUMBER, Purpose.MASK} & domain.uses != {
        Purpose.NUMBER
    } or "mask" in port.name.lower()
    if masking and (port.dtype in _INDEX_DTYPES or Purpose.MASK in domain.uses):
        return Range("mask", 0, 1, "0 and 1, the first of each row 1")
    return Range("integers", 0, 7, "integers from 0 to 7")


def _is_float(dtype: int) -> bool:
    name = onnx.TensorProto.DataType.Name(dtype)
    return "FLOAT" in name or name in {"DOUBLE", "COMPLEX64", "COMPLEX128"}


def draw(port: Port, chosen: Range, sizes: Mapping[str, int], seed: int) -> Feed:
    """Return the values of one input for one seed, always the same for the same arguments.

    A single boolean takes both values over any two consecutive seeds.
    """
    rng = np.random.default_rng([seed, crc32(port.name.encode())])
    shape = shape_of(port, sizes)
    if chosen.absent and seed % 2:
        return None
    if chosen.kind == "switch" and np.prod(shape) == 1:
        return np.full(shape, (seed + crc32(port.name.encode())) % 2, dtype=bool)
    if port.is_sequence:
        return [_array(rng, port.dtype, chosen, shape) for _ in range(_SEQUENCE_LENGTH)]
    array = _array(rng, port.dtype, chosen, shape)
    if chosen.kind == "hiding" and seed % 2:
        _hide(array)
    return array


def _hide(array: Array) -> None:
    """Set the last row of a mask to 0, and the first row of a boolean mask to true.

    In some models true hides. A mask of one row is left alone: nothing would be left to see.
    """
    rows = array.reshape(-1, array.shape[-1]) if array.size and array.ndim else array[:0]
    if len(rows) < 2:  # noqa: PLR2004
        return
    if array.dtype.kind == "b":
        rows[0] = True
    rows[-1] = 0


def _array(rng: np.random.Generator, dtype: int, chosen: Range, shape: tuple[int, ...]) -> Array:
    if chosen.kind == "words":
        return np.array(rng.choice(_WORDS, size=shape), dtype=object)
    values: Array
    match chosen.kind:
        case "normal":
            values = np.asarray(rng.standard_normal(shape))
        case "uniform":
            values = np.asarray(rng.uniform(chosen.low, chosen.high, shape))
        case "mask" | "switch" | "hiding":
            values = np.asarray(rng.random(shape) < max(0.75, chosen.low))
            if values.ndim:
                values[..., :1] = True
        case "parts":
            values = _parts_of(rng, int(chosen.high), shape)
        case _:
            low, high = int(chosen.low), int(chosen.high)
            values = np.asarray(rng.integers(low, high, shape, endpoint=True))
            if values.size > 1:
                first, step = rng.integers(values.size), rng.integers(1, values.size)
                values.flat[[first, (first + step) % values.size]] = low, high
    return values.astype(onnx.helper.tensor_dtype_to_np_dtype(dtype))


def _parts_of(rng: np.random.Generator, total: int, shape: tuple[int, ...]) -> Array:
    """Return whole numbers that add up to *total*; for a scalar, the size of each part."""
    if shape == ():
        return np.asarray(rng.integers(1, max(total, 1), endpoint=True))
    count = int(np.prod(shape))
    cuts = np.sort(rng.integers(0, total, max(count - 1, 0), endpoint=True))
    return np.diff(np.concatenate([[0], cuts, [total]])[: count + 1]).reshape(shape)


# Finding inputs that the original accepts: plans of sizes and ranges, tried until one runs.
#
# The user's own values come first. What they leave open is made up so that it fits them. A case is
# one set of inputs: of a seed, of a file, or of other sizes than those of the seeds.
# The last ones find what is right for one set of sizes only, or for few rows only.


_CAUTIOUS_PLANS = 5
_MOST_SMALL = 3
_MOST_OTHERS = 4
_MOST_SHOWN = 4
_WANTED = re.compile(r"requested shape:\{[^}]*\}|[Ee]xpected:? \d+")

_CHEAP = 1 << 25
"""The work up to which a case may have larger sizes than those of the seeds."""

_DEAR = 1 << 33
"""The work from which on a run is dear: that of a billion weights at eight positions."""

_LARGER = ((64, 2), (64, 1), (8, 1))
"""How many times as large the batch and the lengths are in a larger case; the first that runs."""

_LONG = 16
"""The larger cases have lengths of about so much."""

_LONGEST = 1 << 13
"""The largest number beyond which a length is tried."""

_MOST_BOUNDS = 4
"""How many numbers a bound of sizes has at most, one for each axis."""

_PATCH = 256  # pixels, after the 16 x 16 of vision transformers

Feeds = dict[str, Feed]
NO_FEEDS: Mapping[str, Feed] = MappingProxyType({})


@dataclass(frozen=True)
class Stimulus:
    """What to feed, and how it was chosen.

    Attributes:
        feeds: The values of every input, per case.
        choices: What each input was fed over all cases that are judged; its shape for the seeds.
        cases: What to call each case that is judged. Other cases in *feeds* only tell whether an
            output depends on the inputs at all.
        seeds: The seeds that were drawn from or, if inputs are given, those that were asked for.
    """

    feeds: Mapping[int, Mapping[str, Feed]]
    choices: tuple[InputChoice, ...]
    cases: Mapping[int, str]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class _Found:
    """Inputs that run: their values and the outputs per case, how free ones were drawn, sizes."""

    feeds: dict[int, Feeds]
    outputs: dict[int, Outputs]
    ranges: Mapping[str, Range]
    sizes: Mapping[str, int]
    mood: Mood = Mood.PLAIN

    @property
    def is_finite(self) -> bool:
        """Whether no float of any output is NaN or infinite."""
        given = (leaves for outputs in self.outputs.values() for leaves in outputs.values())
        floats = (leaf.data for leaves in given for leaf in leaves if leaf.data.dtype.kind == "f")
        return all(bool(np.isfinite(data).all()) for data in floats)

    def add(self, feeds: Feeds, outputs: Outputs) -> int:
        """Add a case, and return its number."""
        number = max(self.feeds) + 1
        self.feeds[number], self.outputs[number] = feeds, outputs
        return number


def find_stimulus(  # noqa: PLR0913  # what there is, and what is asked
    flow: Dataflow,
    ports: Sequence[Port],
    runner: Runner,
    seeds: Sequence[int],
    sizes: Mapping[str, int],
    *,
    request: InputRequest | None = None,
    resize: bool = False,
    may_save: bool = False,
) -> tuple[Stimulus, dict[int, Outputs]]:
    """Return the first inputs that run for every case, with the outputs that they give.

    There are at least two cases, if a second one can be made: only between two cases does it show
    whether an output depends on the inputs.

    Args:
        flow: The model.
        ports: Its inputs.
        runner: Runs it.
        seeds: One case is made for each.
        sizes: Sizes that the user fixed.
        request: What else the user wants.
        resize: Whether to add cases of other sizes, unless inputs or whole shapes are given.
        may_save: Whether one of the seeds is enough where a run is dear.

    Raises:
        VerificationError: An input has a type that cannot be made, or no attempt ran. The message
            is what onnxruntime said of the first attempt, the most plausible one.
        UsageError: A size, shape or range is for no input, or a value does not fit.
    """
    request = request or InputRequest()
    given = read_given(request, flow.model.graph, ports, seeds)
    search = _Search(flow, ports, runner, request, sizes)
    drawn = tuple(dict.fromkeys(seeds))
    if given:
        inputs, cases = search.with_given(given, seeds)
    else:
        # without a second case, nobody knows whether an output depends on the inputs
        inputs = search.run(drawn if len(drawn) > 1 else (*drawn, drawn[0] + 1), {})
        drawn = drawn[:1] if may_save and search.is_dear else drawn
        cases = {seed: f"seed {seed}" for seed in drawn}
    if resize and not given and not request.shapes:
        cases |= search.add_other_sizes(inputs, drawn[0])
    choices = [search.describe(port, inputs, cases) for port in ports]
    return Stimulus(inputs.feeds, tuple(choices), cases, drawn), inputs.outputs


class _Search:
    """The search for inputs of one model."""

    def __init__(
        self,
        flow: Dataflow,
        ports: Sequence[Port],
        runner: Runner,
        request: InputRequest,
        sizes: Mapping[str, int],
    ) -> None:
        """Settle the sizes and ranges that the user asked for.

        Raises:
            UsageError: One of them is for no input, or does not fit.
        """
        self._flow = flow
        self._ports = ports
        self._runner = runner
        self._sizes = shaped_sizes(ports, request.shapes, sizes)
        # Refuse a size for a dimension that no input has.
        symbols = {s for port in ports for s in port.symbols if s is not None}
        free = any(port.shape is None for port in ports)
        named = [name for name in self._sizes if not (free and ":" in name)]
        check_known(named, sorted(symbols), "no input has a dimension {!r}")
        self._domain = cache(partial(input_domain, flow))
        by_name = {port.name: port for port in ports}
        check_known(request.ranges, by_name, "a range is given for {!r}, which is no input")
        self._asked = {
            name: asked_range(by_name[name], low, high)
            for name, (low, high) in request.ranges.items()
        }
        self._origin: dict[str, str] = {}
        self._has_run = False
        self._fixed = fixed_sizes(flow)

    @cached_property
    def is_dear(self) -> bool:
        """Whether one run takes seconds, told by the work in it."""
        sizes = next(size_plans(self._ports, self._sizes, ()), None)
        return sizes is not None and self._work(sizes) > _DEAR

    def run(self, seeds: Sequence[int], fixed: Mapping[str, Feed]) -> _Found:
        """Return inputs that run for every seed.

        Args:
            seeds: The cases.
            fixed: Inputs that are given, the same for every seed.
        """
        free = [port for port in self._ports if port.name not in fixed]
        check_feedable(free)
        first_error: RunError | None = None
        wanted: list[int] = []
        spare: _Found | None = None
        empty: _Found | None = None
        small: list[_Found] = []
        sizes = {**_fitting(self._ports, fixed), **self._sizes}
        for plan, mood in self._attempts(free, sizes, wanted):
            if small and small[-1].sizes == plan:
                continue
            try:
                found = self._attempt(plan, mood, seeds, fixed)
            except RunError as error:
                first_error = first_error or error
                wanted += [size for size in _sizes_in(str(error)) if size not in wanted]
                if spare is not None:
                    return spare
                continue
            if mood is Mood.BOLD and not found.is_finite:
                spare = found
                continue
            least = self._least_following(found.outputs.values()) if plan else None
            if least == 0:
                empty = empty or found
            elif least == 1 and len(small) < _MOST_SMALL:
                small.append(found)
            else:
                return found
        if left := next(filter(None, (*small, spare, empty)), None):
            return left
        raise VerificationError(
            f"no inputs were found that the original accepts; onnxruntime says: {first_error}",
            hint=_way_out(free, str(first_error), asked=bool(self._asked)),
        ) from first_error

    def _attempt(
        self,
        sizes: Mapping[str, int],
        mood: Mood,
        seeds: Sequence[int],
        fixed: Mapping[str, Feed] = NO_FEEDS,
    ) -> _Found:
        """Return inputs of these sizes for every seed, and what they give.

        Raises:
            RunError: The original does not run on them.
            StoppedError: It crashed, or took longer than allowed.
        """
        free = [port for port in self._ports if port.name not in fixed]
        ranges = {
            port.name: self._asked.get(port.name)
            or choose_range(port, self._domain(port), sizes, mood)
            for port in free
        }
        feeds = {
            s: {**fixed, **{p.name: draw(p, ranges[p.name], sizes, s) for p in free}} for s in seeds
        }
        outputs = dict(zip(feeds, self._runner.run_each([*feeds.values()]), strict=True))
        self._has_run = True
        return _Found(feeds, outputs, ranges, sizes, mood)

    def _least_following(self, runs: Iterable[Outputs]) -> int | None:
        """Return the least size of an output that follows from sizes of inputs; None if none does.

        A size of 0 or 1 shows little: not which row is which, nor what was summed over the rows.
        """
        chosen = {symbol for port in self._ports for symbol in port.symbols}
        given = [item for outputs in runs for item in outputs.items()]
        sizes: list[int] = []
        for port in output_ports(self._flow.model.graph):
            shapes = [leaf.data.shape for name, ls in given if name == port.name for leaf in ls]
            for axis, dim in enumerate(port.shape or ()):
                if axis and not isinstance(dim, int) and dim not in chosen:
                    sizes += [shape[axis] for shape in shapes if axis < len(shape)]
        return min(sizes, default=None)

    def _attempts(
        self, free: Sequence[Port], sizes: Mapping[str, int], wanted: Sequence[int]
    ) -> Iterator[tuple[dict[str, int], Mood]]:
        """Yield sizes and moods to try, the likely ones first."""
        bold = any(is_bold(p, self._domain(p)) for p in free if p.name not in self._asked)
        tied = tied_sizes(self._flow, free)
        static = self._static_sizes()
        plans = size_plans(
            free, sizes, wanted, static, tied=tied, fixed=self._fixed, is_dear=self.is_dear
        )
        for index, plan in enumerate(plans):
            if bold:
                yield plan, Mood.BOLD
            yield plan, Mood.PLAIN
            if index < _CAUTIOUS_PLANS:
                yield plan, Mood.CAUTIOUS

    def _static_sizes(self) -> Iterator[int]:
        """Yield sizes that may be the only ones, if nothing ran by now."""
        if not self._has_run:
            yield from static_sizes(self._flow)

    def with_given(
        self, given: Sequence[GivenSet], seeds: Sequence[int]
    ) -> tuple[_Found, dict[int, str]]:
        """Return one case per given set; the inputs that a set leaves open are drawn."""
        every: list[_Found] = []
        cases: dict[int, str] = {}
        numbers = chain(dict.fromkeys(seeds), count(max(seeds) + 1))
        for number, one in zip(numbers, given, strict=False):
            if one.values.keys() != given[0].values.keys():
                raise UsageError(
                    f"{one.label} holds {_listed(one)}, but {given[0].label} {_listed(given[0])}",
                    hint="every case must hold the same inputs",
                )
            if twice := [name for name in one.values if name in self._asked]:
                raise UsageError(
                    f"{one.label}: holds values for {twice[0]!r}, for which a range is given, too"
                )
            every.append(self._run_given(number, one))
            cases[number] = one.label
        more = f" and {len(given) - 1} more" if len(given) > 1 else ""
        self._origin = dict.fromkeys(given[0].values, f"from {given[0].label}{more}")
        found = replace(
            every[-1],
            feeds={case: feeds for one in every for case, feeds in one.feeds.items()},
            outputs={case: outputs for one in every for case, outputs in one.outputs.items()},
        )
        if len(cases) == 1:
            self._add_made_up(found, given[0])
        return found, cases

    def _run_given(self, number: int, one: GivenSet) -> _Found:
        if any(port.name not in one.values for port in self._ports):
            return self.run([number], one.values)
        feeds: Feeds = {port.name: one.values[port.name] for port in self._ports}
        try:
            return _Found({number: feeds}, {number: self._runner.run(feeds)}, {}, {})
        except RunError as error:
            raise UsageError(
                f"{one.label}: the original does not accept these inputs; onnxruntime says: {error}"
            ) from error

    def _add_made_up(self, found: _Found, one: GivenSet) -> None:
        """Add a case of the same shapes that is all made up, if it runs."""
        seed = max(found.feeds) + 1
        try:
            check_feedable([port for port in self._ports if port.name not in self._asked])
            sizes = {**self._sizes, **_fitting(self._ports, one.values)}
            plan = next(size_plans(self._ports, sizes, (), fixed=self._fixed))
            attempt = self._attempt(plan, Mood.PLAIN, [seed])
        except (RunError, VerificationError, UsageError, StopIteration):
            return
        found.add(attempt.feeds[seed], attempt.outputs[seed])

    def add_other_sizes(self, found: _Found, seed: int) -> dict[int, str]:
        """Add cases of other, of larger and of long sizes to *found*; return their names.

        A case is left out where the original runs on none of the sizes tried, and where an output
        has other sizes than it declares: what rests on the declaration need not hold there.
        """
        cases: dict[int, str] = {}
        for kind, tried in (
            ("other", self._smaller_sizes(found.sizes)),
            ("larger", self._larger_sizes(found.sizes)),
            ("long", self._long_sizes(found.sizes)),
        ):
            for sizes in islice((each for each in tried if each != found.sizes), _MOST_OTHERS):
                try:
                    attempt = self._attempt(sizes, found.mood, (seed,))
                except RunError:
                    continue
                except StoppedError:
                    self._runner.restart()
                    continue
                is_usable = attempt.is_finite or not found.is_finite
                if is_usable and self._are_as_declared(attempt.outputs[seed], sizes):
                    changed = [f"{n}={size}" for n, size in sizes.items() if size != found.sizes[n]]
                    shown = [*changed[:_MOST_SHOWN], *["…"] * (len(changed) > _MOST_SHOWN)]
                    number = found.add(attempt.feeds[seed], attempt.outputs[seed])
                    cases[number] = f"{kind} sizes ({', '.join(shown)})"
                    break
        return cases

    def _are_as_declared(self, outputs: Outputs, sizes: Mapping[str, int]) -> bool:
        """Tell whether outputs have the sizes that they share with inputs by name."""
        return all(
            sizes.get(dim, size) == size
            for port in output_ports(self._flow.model.graph)
            for leaf in outputs[port.name]
            for dim, size in zip(port.shape or (), leaf.data.shape, strict=False)
            if isinstance(dim, str)
        )

    def _open_roles(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the roles of the sizes that may be others."""
        ranked = [_with_rank(port, sizes.get(_rank(port), 0)) for port in self._ports]
        kept = self._sizes.keys() | tied_sizes(self._flow, self._ports)
        roles = _roles(ranked)
        return {s: role for s, role in roles.items() if role != "channel" and s not in kept}

    def _larger_sizes(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield sizes many times as large as *sizes*, where that is little work."""
        roles = self._open_roles(sizes)
        for batch, length in _LARGER:
            times = {"batch": batch, "length": length, "image": 1}
            starts = {s: sizes[s] * times[role] for s, role in roles.items() if times[role] > 1}
            others = other_sizes(self._ports, sizes, starts, self._fixed)
            if starts and self._work(others) <= _CHEAP:
                yield others

    def _long_sizes(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield sizes with lengths beyond a number that sizes are compared with, where it is cheap.

        A length that is cut off at 512 shows in no run that is shorter.
        """
        lengths = [s for s, role in self._open_roles(sizes).items() if role == "length"]
        for bound in sorted(self._bounds_of_sizes(), reverse=True) if lengths else ():
            starts = dict.fromkeys(lengths, bound + 1)
            others = other_sizes(self._ports, sizes, starts, self._fixed)
            if self._work(others) <= _CHEAP:
                yield others

    def _bounds_of_sizes(self) -> set[int]:
        """Return the whole numbers that sizes may be compared with, or that are a part of one."""
        nodes = [*self._flow.nodes()]
        measuring = operators.MEASURING | operators.BOUNDED_BY_SIZE
        if measuring.isdisjoint(node.op_type for node in nodes):
            return set()
        arrays = (
            numbers_in(stored(value))
            for node in nodes
            if node.op_type in operators.BOUNDING or node.op_type in {"Add", "Sub"}
            for value in node.inputs
            if value is not None
        )
        return {
            number
            for array in arrays
            if array is not None and array.dtype == np.int64 and array.size <= _MOST_BOUNDS
            for number in array.reshape(-1).tolist()
            if _LONG <= number <= _LONGEST
        }

    def _smaller_sizes(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield sizes other than *sizes*: all that are open, only the batch, and all but that."""
        roles = self._open_roles(sizes)
        batch = {symbol for symbol, role in roles.items() if role == "batch"}
        for changed in (roles.keys(), batch, roles.keys() - batch):
            starts = {symbol: smaller_size(roles[symbol], sizes[symbol]) for symbol in changed}
            others = other_sizes(self._ports, sizes, starts, self._fixed)
            images = [symbol for symbol in changed if roles[symbol] == "image"]
            if images:  # what holds for even sizes need not hold for odd ones
                yield {**others, **{symbol: others[symbol] - 1 for symbol in images}}
            if others != sizes:
                yield others

    def _work(self, sizes: Mapping[str, int]) -> int:
        """Estimate the multiplications and copies of one run; it may be wrong by ten times.

        Every weight is used once at every position: a row, an index or a patch of an image. Every
        node touches as many elements as the inputs have.
        """
        tensors = (stored(value) for value in self._flow.values())
        weights = sum(math.prod(tensor.shape) for tensor in tensors if tensor is not None)
        value_count = sum(value.producer is not None for value in self._flow.values())
        shapes = [shape_of(port, sizes) for port in self._ports]
        positions = max(map(_positions, self._ports, shapes), default=1)
        return weights * positions + value_count * sum(map(math.prod, shapes))

    def describe(self, port: Port, found: _Found, cases: Iterable[int]) -> InputChoice:
        """Return what one input was fed over the *cases* that are judged."""
        fed = [arrays_in(found.feeds[case][port.name]) for case in cases]
        if port.name in found.ranges:
            how, shape = found.ranges[port.name].how, shape_of(port, found.sizes)
        else:
            how, shape = self._origin[port.name], fed[0][0].shape if fed[0] else ()
        arrays = (array for arrays in fed for array in arrays)
        numbers = [a.astype(np.float64) for a in arrays if a.size and a.dtype.kind not in "OUSc"]
        least = min((float(a.min()) for a in numbers), default=math.nan)
        most = max((float(a.max()) for a in numbers), default=math.nan)
        low, high = (number if math.isfinite(number) else None for number in (least, most))
        return InputChoice(port.name, port.type_name, shape, low, high, how)


def _positions(port: Port, shape: Sequence[int]) -> int:
    """Return at how many rows, indices or patches of an image a model looks."""
    if len(shape) >= _IMAGE_RANK:
        return shape[0] * max(math.prod(shape[2:]) // _PATCH, 1)
    if _holds_integers(port):
        return math.prod(shape)
    fixed = math.prod(dim for dim in port.shape or () if isinstance(dim, int))
    return math.prod(shape) // max(fixed, 1)


def _listed(one: GivenSet) -> str:
    return ", ".join(map(repr, one.values)) or "nothing"


def _fitting(ports: Sequence[Port], given: Mapping[str, Feed]) -> dict[str, int]:
    """Return the sizes of symbols in given arrays; the first array decides."""
    sizes: dict[str, int] = {}
    for port in ports:
        if isinstance(array := given.get(port.name), np.ndarray):
            for symbol, dim in zip(port.symbols, array.shape, strict=False):
                if symbol is not None:
                    sizes.setdefault(symbol, dim)
    return sizes


def _way_out(free: Sequence[Port], refusal: str, *, asked: bool) -> str:
    # onnxruntime blocks channels by 8 or by 16, as wide as the vectors of the processor on which it
    # optimised the model (mlas, `MlasNchwcGetBlockSize`); no input makes up for the other width.
    if "nchwc" in refusal.casefold():
        return (
            "operators of com.microsoft.nchwc run only on processors like the one on which "
            "onnxruntime optimised the model: take the model from before that, or such a processor"
        )
    if asked:
        return "give another --range, or none: dpl then takes one that the model suggests"
    symbols = list(dict.fromkeys(s for port in free for s in port.symbols if s is not None))
    sizes = f"give sizes: {' '.join(f'--shape {s}=N' for s in symbols[:3])}; " if symbols else ""
    return f"{sizes}or values: --inputs FILE"


def _sizes_in(message: str) -> list[int]:
    """Return the sizes that a refusal of onnxruntime asks for."""
    numbers = [n for found in _WANTED.finditer(message) for n in re.findall(r"\d+", found.group())]
    return [int(number) for number in numbers if int(number) > 1]


# The original as it runs, with inputs that it accepts.


@dataclass(frozen=True)
class Reference:
    """The original, what it was fed, and what it gave with optimisation off.

    Attributes:
        source: What ran.
        facts: What it says about its values.
        stimulus: What it was fed.
        outputs: What it gave, per case.
        blind: Outputs that ignore what it is fed.
    """

    source: ModelSource
    facts: Facts
    stimulus: Stimulus
    outputs: dict[int, Outputs]
    blind: tuple[str, ...]

    @property
    def feeds(self) -> Mapping[int, Mapping[str, Feed]]:
        """What it was fed, per case and input."""
        return self.stimulus.feeds


def open_reference(  # noqa: PLR0913  # the model, how to run it, and whom to tell
    path: Path,
    flow: Dataflow,
    facts: Facts,
    settings: Check,
    *,
    create: Callable[[ModelSource], Runner] = lambda source: Runner(source, REFERENCE_LEVEL),
    resize: bool = True,
    blocks: BlockCuts | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Reference:
    """Run the original on inputs that it accepts.

    Args:
        path: The original.
        flow: What it holds.
        facts: What it says about its outputs.
        settings: Seeds, sizes, wishes for the inputs.
        create: Creates a session with optimisation off.
        resize: Whether to feed other sizes, too, than those of the seeds.
        blocks: Where the original is cut; None if it runs whole.
        say: Called with a short phrase before each step that may take long.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
    """
    every_port = input_ports(flow.model.graph)
    sums = {**related_sizes(flow, every_port), **settings.request.sums}
    ports = [replace(port, sums=sums) for port in every_port]
    judge = Judge(settings, facts, settings.first_seeds[0])
    source = ModelSource(path, execution=settings.execution.plain(), blocks=blocks)
    source, runner = open_original(source, settings.custom_ops, create)
    say("looking for inputs that the original accepts")
    stimulus, outputs = find_stimulus(
        flow,
        ports,
        runner,
        settings.first_seeds,
        settings.sizes,
        request=settings.request,
        resize=resize,
        may_save=settings.seeds is None,
    )
    runs = [outputs[case] for case in _of_one_shape(stimulus.feeds)]
    if len(runs) == 1:  # inputs are given, and no two of one shape
        runs = list(outputs.values())
    blind = blind_outputs(judge, runs) if ports and len(runs) > 1 else ()
    return Reference(source, facts, stimulus, outputs, blind)


def fed_reference(
    path: Path, model: onnx.ModelProto, settings: Check, say: Callable[[str], None]
) -> Reference:
    """Run a model that nothing is compared with place by place; save what it is fed, if asked.

    Raises:
        VerificationError: onnxruntime does not run it, or no inputs were found that it accepts.
        UsageError: What it is fed cannot be written.
    """
    reference = open_reference(path, Dataflow(model), Facts(), settings, resize=False, say=say)
    if settings.request.save is not None:
        save_inputs(settings.request.save, reference.stimulus)
    return reference


def _of_one_shape(feeds: Mapping[int, Mapping[str, Feed]]) -> list[int]:
    """Return the cases whose inputs have the shapes of the first, but for what is left out.

    An output whose shape follows from an input's depends on that; its numbers need not.
    """
    shapes = {
        case: {name: [a.shape for a in arrays_in(feed)] for name, feed in fed.items()}
        for case, fed in feeds.items()
    }
    first = next(iter(shapes.values()))
    return [
        case
        for case, known in shapes.items()
        if all(not shape or not first[n] or shape == first[n] for n, shape in known.items())
    ]


def candidate_source(path: Path, settings: Check, blocks: BlockCuts | None = None) -> ModelSource:
    """Return the candidate as the user deploys it."""
    return ModelSource(
        path,
        libraries=settings.custom_ops,
        execution=settings.execution,
        name="candidate",
        blocks=blocks,
    )


# Writing what was fed, so that a comparison can be run again, by dpl or another tool.


def save_inputs(path: Path, stimulus: Stimulus) -> None:
    """Write the inputs of every case as .npz, in one step and the same bytes each time.

    A single case has the inputs' own names, several cases have ``NAME@CASE``. Elements of a
    sequence are ``NAME[0]``, ``NAME[1]``, …; an empty sequence or an absent optional is an empty
    array ``NAME[]``. numpy has no name for bfloat16 and the like. Such arrays are raw bytes of that
    width in the file, and are read back as the type that the model declares.

    Raises:
        UsageError: The file cannot be written.
    """
    cases = {
        str(case) if label == f"seed {case}" else label.rpartition("@")[2]: stimulus.feeds[case]
        for case, label in stimulus.cases.items()
    }
    write_arrays("--save-inputs", path, _members(cases))


def save_outputs(path: Path, outputs: Outputs) -> None:
    """Write what a model gave as .npz: arrays by the names of the outputs.

    Raises:
        UsageError: The file cannot be written.
    """
    leaves = ((name, leaf) for name, given in outputs.items() for leaf in given)
    write_arrays("--output", path, ((f"{name}{leaf.label}", leaf.data) for name, leaf in leaves))


def _members(cases: Mapping[str, Mapping[str, Feed]]) -> Iterator[tuple[str, Array]]:
    for label, feeds in cases.items():
        suffix = f"@{label}" if len(cases) > 1 else ""
        for name, feed in feeds.items():
            if feed is None or (isinstance(feed, list) and not feed):
                yield f"{name}[]{suffix}", np.empty(0, np.uint8)
            elif isinstance(feed, list):
                for index, item in enumerate(feed):
                    yield f"{name}[{index}]{suffix}", item
            else:
                yield f"{name}{suffix}", feed
