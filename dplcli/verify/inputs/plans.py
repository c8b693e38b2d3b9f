"""Plans of sizes, tried in turn until the model runs.

A symbol gets one number over all inputs. A dimension that a model declares dynamic need not be
so: exports bake in batch sizes, add a past to a present, or want an image of a certain size. So
there are several plans. The first ones tell most: no two sizes are equal, and none is what a
reshape could make of others. Later ones are more likely to run: the batch is 1, sizes are equal,
images and sequences are larger or smaller. Then come the sizes that onnxruntime asked for when it
refused the others, and the sizes that something else in the model has: a table of 100 positions
wants 100 of them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from types import MappingProxyType

import numpy as np

from dplcli.errors import UsageError
from dplcli.verify.inputs.given import check_known
from dplcli.verify.inputs.sizes import (
    CHANNELS,
    LEAST_BATCH,
    LEAST_LENGTH,
    Dimensions,
    Role,
    rank_of,
    shape_of,
    with_rank,
)
from dplcli.verify.model import Port

NO_SIZES: Mapping[str, int] = MappingProxyType({})
_MOST_ELEMENTS = 1 << 26
_MANY_ELEMENTS = 1 << 22
_MOST_WANTED = 6
_MOST_STATIC = 8
_MOST_TIED = 3


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
    rank: int = 2

    def size(self, role: Role) -> int:
        """Return the size of a dimension by its role."""
        by_role = {"batch": self.batch, "channel": CHANNELS, "image": self.spatial}
        return by_role.get(role, self.length)


_PLANS = (
    SizePlan(LEAST_BATCH, 64, LEAST_LENGTH, distinct=True, batches=True),
    SizePlan(LEAST_BATCH, 64, LEAST_LENGTH, distinct=True),
    SizePlan(1, 64, LEAST_LENGTH, distinct=True, rank=1),
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
        sizes = _sizes(plan, ports, {**own, **given}, fixed)
        if (key := tuple(sorted(sizes.items()))) not in seen:
            seen.add(key)
            if _elements(ports, sizes) <= _MOST_ELEMENTS:
                yield sizes


def _plans(
    ports: Sequence[Port], wanted: Sequence[int], static: Iterable[int]
) -> Iterator[SizePlan]:
    """Yield plans; late those for which already to make up values takes seconds."""
    late = [p for p in _PLANS if _elements(ports, _sizes(p, ports, NO_SIZES, ())) > _MANY_ELEMENTS]
    yield from (plan for plan in _PLANS if plan not in late)
    for size in wanted[:_MOST_WANTED]:
        yield from (SizePlan(batch, 64, size) for batch in (2, 1))
    for size in islice(static, _MOST_STATIC):
        yield from (SizePlan(batch, 64, size) for batch in (size, 2, 1))
        yield SizePlan(size, size, size)
        yield SizePlan(size, 64, 8)
    yield from (*late, *_LAST_PLANS)


def _sizes(
    plan: SizePlan, ports: Sequence[Port], pinned: Mapping[str, int], fixed: Collection[int]
) -> dict[str, int]:
    """Return the ranks and all sizes under a plan."""
    ranks = {rank_of(port): plan.rank if port.shape is None else len(port.shape) for port in ports}
    of = Dimensions(ports, ranks)
    sizes = {symbol: plan.size(role) for symbol, role in of.roles.items()}
    if plan.distinct:
        ones = {s: n for s, n in sizes.items() if n == 1 or of.roles[s] == "channel"}
        same = {s: s if plan.batches or role != "batch" else role for s, role in of.roles.items()}
        sizes = of.apart(sizes, {**ones, **pinned}, fixed, same)
    else:
        sizes |= {symbol: size for symbol, size in pinned.items() if symbol in sizes}
        of.add_up(sizes, pinned)
    return {**ranks, **sizes, **pinned}


def _elements(ports: Sequence[Port], sizes: Mapping[str, int]) -> int:
    return sum(int(np.prod(shape_of(port, sizes), dtype=np.float64)) for port in ports)


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
            result[rank_of(port)] = len(shape)
        elif len(port.shape) != len(shape):
            raise UsageError(
                f"the shape of {name!r} has {len(shape)} dimensions, but {len(port.shape)} in the "
                "model"
            )
        ranked = with_rank(port, len(shape))
        for axis, (symbol, dim) in enumerate(zip(ranked.symbols, shape, strict=True)):
            if symbol is None and (declared := (ranked.shape or ())[axis]) != dim:
                raise UsageError(f"dimension {axis} of {name!r} is {declared}, not {dim}")
            if symbol is not None and result.setdefault(symbol, dim) != dim:
                raise UsageError(f"two sizes are given for {symbol!r}: {result[symbol]} and {dim}")
    return result
