"""Sizes of open dimensions: plans of them, tried in turn until the model runs.

A symbol gets one number over all inputs. A dimension that a model declares dynamic need not be
so: exports bake in batch sizes, add a past to a present, or want an image of a certain size. So
there are several plans. The first ones tell most: no two sizes are equal, and none is a product of
others, for then a transposed axis or a wrong target of a reshape would go unnoticed. Later ones
are more likely to run: the batch is 1, sizes are equal, images and sequences are larger or smaller.
Then come the sizes that onnxruntime asked for when it refused the others, and the sizes that
something else in the model has: a table of 100 positions wants 100 of them.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from types import MappingProxyType
from typing import Literal

from onnx import TensorProto

from dplcli.verify.model import Port

Role = Literal["batch", "channel", "image", "length"]

NO_SIZES: Mapping[str, int] = MappingProxyType({})
IMAGE_RANK = 4
_MOST_IMAGE_RANK = 5
"""That of images of three dimensions; sizes of images along more axes are too many elements."""

_CHANNELS = 3

_THINNEST = 8
"""An axis of fewer is none of an image: points have two or three coordinates."""

_STEP = 32
"""Sizes of images are multiples: most nets halve them five times."""

_SEARCHED = {"batch": (1, 12), "length": (1, 32), "image": (_STEP, 5)}
"""By role, how far apart the numbers are that are tried for a size, and how many."""

_MOST_ELEMENTS, _MANY_ELEMENTS = 1 << 26, 1 << 22
"""Beyond the first, inputs are not made up; beyond the second, that takes seconds."""

_MOST_WANTED, _MOST_STATIC, _MOST_TIED = 6, 8, 3


@dataclass(frozen=True)
class SizePlan:
    """Sizes by role.

    Attributes:
        batch: Size of a dimension that is the first axis.
        image: Smallest size of an axis of an image.
        length: Smallest size of every other dimension.
        distinct: Whether sizes are searched upwards from these, so that none coincide. A batch of
            1 stays.
        batches: Whether those of several batches differ, too.
        rank: Rank of inputs that do not declare one.
    """

    batch: int
    image: int
    length: int
    distinct: bool = False
    batches: bool = False
    rank: int = 2


_FIRST = SizePlan(2, 64, 6, distinct=True, batches=True)
_PLANS = (
    _FIRST,
    replace(_FIRST, batches=False),
    SizePlan(1, 64, 6, distinct=True, rank=1),
    SizePlan(2, 64, 8, rank=4),
    SizePlan(1, 224, 16, rank=3),
    SizePlan(4, 32, 4, rank=0),
    SizePlan(1, 256, 256),
    SizePlan(1, 640, 512),
    SizePlan(1, 320, 4096),
)
_LAST_PLAN = SizePlan(1, 1, 1)
"""It runs wherever sizes are broadcast, and shows little."""


def shape_of(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the dimensions of one input under one plan."""
    ranked = with_rank(port, sizes.get(rank_of(port), 0))
    pairs = zip(ranked.shape or (), ranked.symbols, strict=True)
    return tuple(dim if isinstance(dim, int) else sizes[symbol or ""] for dim, symbol in pairs)


def rank_of(port: Port) -> str:
    """Return under which name sizes hold the rank of an input."""
    return f"{port.name}:rank"


def with_rank(port: Port, rank: int) -> Port:
    """Return an input with a rank if it declares none."""
    return port if port.shape is not None else replace(port, shape=(None,) * rank)


def holds_indices(port: Port) -> bool:
    """Tell whether an input holds whole numbers as indices are."""
    return port.dtype in {TensorProto.INT32, TensorProto.INT64}


def size_plans(  # noqa: PLR0913  # what is known of sizes, one kind each
    ports: Sequence[Port],
    given: Mapping[str, int],
    wanted: Sequence[int],
    static: Iterable[int] = (),
    *,
    tied: Mapping[str, int] = NO_SIZES,
    fixed: Collection[int] = (),
) -> Iterator[dict[str, int]]:
    """Yield sizes: one per symbol, and one per ``input:axis`` of an unnamed axis; none twice.

    Args:
        ports: The inputs. Those without a declared rank get one per plan (see `shape_of`).
        given: Sizes that the user fixed, also of other inputs. They hold in every plan.
        wanted: Sizes that failures of earlier plans asked for, read once the plans are used up.
        static: Sizes that other parts of the model have, the likely ones first; read after those.
        tied: Sizes that seem to be the only ones, see `tied_sizes`; they hold in the first plans.
        fixed: Sizes that the first plans keep clear of, see `fixed_sizes`.
    """
    seen: set[frozenset[tuple[str, int]]] = set()
    first = ((plan, {**tied, **given}) for plan in _PLANS[:_MOST_TIED] if tied)
    others = ((plan, given) for plan in _plans(ports, wanted, static))
    for plan, pinned in chain(first, others):
        sizes = _planned(plan, ports, pinned, fixed)
        key = frozenset(sizes.items())
        if key not in seen and _elements(ports, sizes) <= _MOST_ELEMENTS:
            yield sizes
        seen.add(key)


def _plans(
    ports: Sequence[Port], wanted: Sequence[int], static: Iterable[int]
) -> Iterator[SizePlan]:
    """Yield plans; late those for which already to make up values takes seconds."""
    made = {plan: _elements(ports, _planned(plan, ports, {}, ())) for plan in _PLANS}
    yield from (plan for plan in _PLANS if made[plan] <= _MANY_ELEMENTS)
    asked = dict.fromkeys(size for size in wanted if size > 1)
    for size in islice(asked, _MOST_WANTED):
        yield from (SizePlan(batch, 64, size) for batch in (2, 1))
    for size in islice(static, _MOST_STATIC):
        yield from (SizePlan(batch, 64, size) for batch in (size, 2, 1))
        yield from (SizePlan(size, size, size), SizePlan(size, 64, 8))
    yield from (plan for plan in _PLANS if made[plan] > _MANY_ELEMENTS)
    yield _LAST_PLAN


def _planned(
    plan: SizePlan, ports: Sequence[Port], pinned: Mapping[str, int], fixed: Collection[int]
) -> dict[str, int]:
    """Return the ranks and all sizes under a plan."""
    ranks = {rank_of(port): plan.rank if port.shape is None else len(port.shape) for port in ports}
    of = Dimensions(ports, ranks)
    by_role = {"batch": plan.batch, "channel": _CHANNELS, "image": plan.image}
    sizes = {symbol: by_role.get(role, plan.length) for symbol, role in of.roles.items()}
    if plan.distinct:
        still = {s: n for s, n in sizes.items() if n == 1 or of.roles[s] == "channel"}
        same = {s: s if plan.batches or role != "batch" else role for s, role in of.roles.items()}
        sizes = of.apart(sizes, {**still, **pinned}, fixed, same)
    else:
        sizes = of.added_up({**sizes, **{s: pinned[s] for s in sizes.keys() & pinned}}, pinned)
    return {**ranks, **sizes, **pinned}


def _elements(ports: Sequence[Port], sizes: Mapping[str, int]) -> int:
    return sum(math.prod(shape_of(port, sizes)) for port in ports)


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
    of = Dimensions(ports, sizes)
    kept = {symbol: sizes[symbol] for symbol in of.roles if symbol not in starts}
    ones = {symbol: 1 for symbol, start in starts.items() if start == 1}
    same = {symbol: (role, sizes[symbol]) for symbol, role in of.roles.items()}
    taken = {*(sizes[symbol] for symbol in of.roles), *of.summed(sizes)} - {1}
    return {**sizes, **of.apart(starts, {**kept, **ones}, {*fixed, *taken}, same)}


def smaller_size(role: str, size: int) -> int:
    """Return where to search for a smaller size; for one that is small, near it."""
    if role == "batch":
        return 1 if size > 1 else _FIRST.batch  # what holds for several need not hold for one
    if role == "image":
        return max(_STEP, size // 2 // _STEP * _STEP)
    return max(_FIRST.length // 2, size // 2)


class Dimensions:
    """The open dimensions of all inputs.

    Args:
        ports: The inputs.
        sizes: The ranks of those that declare none.

    Attributes:
        roles: What each dimension is, by symbol.
        sums: Sizes that are sums of others: dimensions, and sizes inside the model.
    """

    def __init__(self, ports: Sequence[Port], sizes: Mapping[str, int]) -> None:
        ranked = [with_rank(port, sizes.get(rank_of(port), 0)) for port in ports]
        self.roles: dict[str, Role] = {}
        # The first input with two axes or more that has a symbol says what it is.
        for port in sorted(ranked, key=lambda port: len(port.symbols) == 1):
            for axis, symbol in enumerate(port.symbols):
                if symbol is not None:
                    self.roles.setdefault(symbol, _role(port, axis, symbol))
        sums = {name: parts for port in ranked for name, parts in port.parts.items()}
        self.sums = {
            name: parts
            for name, parts in sums.items()
            if all(isinstance(part, int) or part in self.roles for part in parts)
        }

    def apart(
        self,
        starts: Mapping[str, int],
        pinned: Mapping[str, int],
        fixed: Collection[int],
        same: Mapping[str, Hashable],
    ) -> dict[str, int]:
        """Return a size for each symbol, so that they coincide as little as small numbers can.

        Args:
            starts: Where to begin to search upwards, for each symbol.
            pinned: Sizes that are known; those of channels always are.
            fixed: Sizes to keep clear of.
            same: What symbols of one size have in common.
        """
        sizes = {symbol: pinned[symbol] for symbol in self.roles if symbol in pinned}
        taken = {size for size in (*sizes.values(), *self.summed(sizes)) if size > 1}
        chosen: dict[Hashable, int] = {}
        left = {s: r for s, r in self.roles.items() if s not in {*sizes, *self.sums}}
        for symbol in sorted(left, key=lambda symbol: [*_SEARCHED].index(left[symbol])):
            step, most = _SEARCHED[left[symbol]]
            if (key := same[symbol]) not in chosen:
                free = (size for size in count(starts[symbol], step) if size not in taken)
                tried = (
                    [n, *self.summed({**sizes, symbol: n}, symbol)] for n in islice(free, most)
                )
                new = min(tried, key=lambda new: _clashes(new, taken, fixed))
                chosen[key] = new[0]
                taken |= {*new} - {1}
            sizes[symbol] = chosen[key]
        return self.added_up(sizes, pinned)

    def summed(self, sizes: Mapping[str, int], of: str | None = None) -> list[int]:
        """Return the sums of which all parts have sizes; only those of one part, if it is named."""
        known = [_known(p, sizes) for p in self.sums.values() if of is None or of in p]
        return [sum(parts) for parts in known if all(parts)]

    def added_up(self, sizes: Mapping[str, int], given: Collection[str]) -> dict[str, int]:
        """Return sizes with sums; of one that is *given*, with the part that is not."""
        made = dict(sizes)
        for symbol, parts in self.sums.items():
            if symbol in given:
                free = next((p for p in parts if isinstance(p, str) and p not in given), "")
                left = made.get(symbol, 0) - sum(_known([p for p in parts if p != free], made))
                made |= {free: left // parts.count(free)} if free and left > 0 else {}
        for symbol, parts in self.sums.items():
            if symbol in self.roles and symbol not in given:
                made[symbol] = sum(_known(parts, made))
        return {symbol: made[symbol] for symbol in self.roles}


def _known(parts: Sequence[int | str], sizes: Mapping[str, int]) -> list[int]:
    """Return the sizes of parts, 0 for those that have none yet."""
    return [part if isinstance(part, int) else sizes.get(part, 0) for part in parts]


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


def _role(port: Port, axis: int, symbol: str) -> Role:
    """Return the role that an input gives to the dimension of one of its axes."""
    dims, rank = port.shape or (), len(port.symbols)
    if axis == 0 and rank > 1:
        return "batch"
    if any(symbol in (name, *parts) for name, parts in port.sums.items()):
        return "length"
    if rank == IMAGE_RANK - 1:
        return _role_of_three(port, axis)
    if rank >= IMAGE_RANK and axis == 1 and None not in port.symbols:
        return "channel"
    is_open = sum(name is not None for name in port.symbols[1:]) > 1
    is_wide = min((dim for dim in dims[2:] if isinstance(dim, int)), default=0) >= _THINNEST
    may_be_image = IMAGE_RANK <= rank <= _MOST_IMAGE_RANK
    is_image = may_be_image and (is_open or (is_wide and dims[1] in {1, _CHANNELS}))
    return "image" if is_image else "length"


def _role_of_three(port: Port, axis: int) -> Role:
    """Return the role of an axis after the first of three."""
    first, middle, last = port.shape or ()
    if axis == 1 and middle is None and first != 1 and {type(first), type(last)} == {int}:
        return "batch"  # of a recurrent state: layers, batch, hidden
    return "image" if first in {1, _CHANNELS} and not holds_indices(port) else "length"
