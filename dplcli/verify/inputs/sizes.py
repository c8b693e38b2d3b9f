"""Sizes of open dimensions, so that they coincide as little as small numbers can.

Where two sizes are equal, or one is a product of others, a transposed axis or a wrong target of a
reshape goes unnoticed. The sizes that are sums of others, in the inputs or inside the model, are
kept apart, too.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Literal

import onnx

from dplcli.verify.model import Port

Role = Literal["batch", "channel", "image", "length"]

CHANNELS = 3
IMAGE_RANK = 4
_THINNEST = 8
"""An axis of fewer is none of an image: points have two or three coordinates."""

LEAST_BATCH, LEAST_LENGTH = 2, 6
"""Where the search for sizes begins."""

_STEP = 32
"""Sizes of images are multiples: most nets halve them five times."""

_TRIED: Mapping[Role, tuple[int, int]] = {"batch": (1, 12), "length": (1, 32), "image": (_STEP, 5)}
"""By role, how far apart the numbers are that are tried for a size, and how many."""


def shape_of(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the dimensions of one input under one plan."""
    if port.shape is None:
        port = with_rank(port, sizes.get(rank_of(port), 0))
    return tuple(
        dim if isinstance(dim, int) else sizes[symbol or ""]
        for dim, symbol in zip(port.shape or (), port.symbols, strict=True)
    )


def rank_of(port: Port) -> str:
    """Return under which name sizes hold the rank of an input."""
    return f"{port.name}:rank"


def with_rank(port: Port, rank: int) -> Port:
    """Return an input with a rank if it declares none."""
    return port if port.shape is not None else replace(port, shape=(None,) * rank)


def holds_indices(port: Port) -> bool:
    """Tell whether an input holds whole numbers as indices are."""
    return port.dtype in {onnx.TensorProto.INT32, onnx.TensorProto.INT64}


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
        self.sums = {
            name: parts
            for port in ranked
            for name, parts in port.parts.items()
            if all(isinstance(part, int) or part in self.roles for part in parts)
        }

    def apart(
        self,
        starts: Mapping[str, int],
        pinned: Mapping[str, int],
        fixed: Collection[int],
        same: Mapping[str, Hashable],
    ) -> dict[str, int]:
        """Return a size for each symbol.

        Args:
            starts: Where to begin to search upwards, for each symbol.
            pinned: Sizes that are known; those of channels always are.
            fixed: Sizes to keep clear of.
            same: What symbols of one size have in common.
        """
        sizes = {symbol: pinned[symbol] for symbol in self.roles if symbol in pinned}
        taken = {size for size in (*sizes.values(), *self.summed(sizes)) if size > 1}
        chosen: dict[Hashable, int] = {}
        for role, (step, most) in _TRIED.items():
            for symbol in self.roles:
                if self.roles[symbol] != role or symbol in sizes or symbol in self.sums:
                    continue
                if (key := same[symbol]) not in chosen:
                    free = (size for size in count(starts[symbol], step) if size not in taken)
                    new = min(
                        (
                            [size, *self.summed({**sizes, symbol: size}, symbol)]
                            for size in islice(free, most)
                        ),
                        key=lambda new: _clashes(new, taken, fixed),
                    )
                    chosen[key] = new[0]
                    taken |= {*new} - {1}
                sizes[symbol] = chosen[key]
        self.add_up(sizes, pinned)
        return {symbol: sizes[symbol] for symbol in self.roles}

    def summed(self, sizes: Mapping[str, int], of: str | None = None) -> list[int]:
        """Return the sums of which all parts have sizes; only those of one part, if it is named."""
        known = [_known(p, sizes) for p in self.sums.values() if of is None or of in p]
        return [sum(parts) for parts in known if all(parts)]

    def add_up(self, sizes: dict[str, int], given: Collection[str]) -> None:
        """Set the sizes that are sums; of one that is *given*, a part that is not."""
        for symbol, parts in self.sums.items():
            if symbol in given:
                free = next((p for p in parts if isinstance(p, str) and p not in given), "")
                left = sizes.get(symbol, 0) - sum(_known([p for p in parts if p != free], sizes))
                if free and left > 0:
                    sizes[free] = left
        for symbol, parts in self.sums.items():
            if symbol in self.roles and symbol not in given:
                sizes[symbol] = sum(_known(parts, sizes))


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
    rank = len(port.symbols)
    if (axis == 0 and rank > 1) or _is_state(port, axis, symbol):
        return "batch"
    if any(symbol in (name, *parts) for name, parts in port.sums.items()):
        return "length"
    if rank < IMAGE_RANK:
        # the channels of a single image come first
        is_image = (
            rank == IMAGE_RANK - 1 and port.shape is not None and port.shape[0] in {1, CHANNELS}
        )
        return "image" if is_image and not holds_indices(port) else "length"
    if axis == 1 and None not in port.symbols:
        return "channel"
    dims = port.shape or ()
    is_open = sum(name is not None for name in port.symbols[1:]) > 1
    is_wide = min((dim for dim in dims[2:] if isinstance(dim, int)), default=0) >= _THINNEST
    return "image" if is_open or (is_wide and dims[1] in {1, CHANNELS}) else "length"


def _is_state(port: Port, axis: int, symbol: str) -> bool:
    """Tell whether this is the unnamed middle axis of a recurrent state (layers, batch, hidden)."""
    if len(port.symbols) != IMAGE_RANK - 1 or axis != 1 or ":" not in symbol:
        return False
    first, _, last = port.shape or (None, None, None)
    return isinstance(first, int) and first > 1 and isinstance(last, int)


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
    taken = {*map(sizes.__getitem__, of.roles), *of.summed(sizes)} - {1}
    return {**sizes, **of.apart(starts, {**kept, **ones}, {*fixed, *taken}, same)}


def smaller_size(role: str, size: int) -> int:
    """Return where to search for a smaller size; for one that is small, near it."""
    if role == "batch":
        return 1 if size > 1 else LEAST_BATCH  # what holds for several need not hold for one
    if role == "image":
        return max(_STEP, size // 2 // _STEP * _STEP)
    return max(LEAST_LENGTH // 2, size // 2)
