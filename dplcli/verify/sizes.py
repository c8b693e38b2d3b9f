"""Numbers for symbolic dimensions: plans to try in turn until the model runs.

A symbol gets one number over all inputs. What a model declares dynamic need not be: exports bake
in batch sizes, add a past to a present, or want an image of a certain size. So there are several
plans, from informative (all sizes different, a batch of 2) to accommodating (a batch of 1, equal
sizes, larger or smaller images and sequences), and at last the sizes that onnxruntime asked for
when it refused the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import onnx

from dplcli.errors import UsageError
from dplcli.verify.interface import Port

MOST_ELEMENTS = 1 << 26
_MOST_WANTED = 6
_CHANNELS = 3
_IMAGE_RANK = 4
_GUESSED_RANKS = (2, 1, 4, 3, 0)
_SPATIAL_STEP = 32
_SEQUENCE_WORDS = ("past", "seq", "len", "token", "time", "step", "point")


@dataclass(frozen=True)
class Plan:
    """Sizes by role; *distinct* counts up where one role has several symbols.

    Attributes:
        batch: Size of what only ever is the first axis.
        spatial: Smallest size of an axis of an image.
        length: Smallest size of everything else.
        distinct: Whether symbols of one role get different sizes.
        rank: Rank of inputs that do not declare one.
    """

    batch: int
    spatial: int
    length: int
    distinct: bool = False
    rank: int = _GUESSED_RANKS[0]


_PLANS = (
    Plan(2, 64, 6, distinct=True),
    Plan(1, 64, 6, distinct=True, rank=1),
    Plan(2, 64, 8, rank=4),
    Plan(1, 64, 8, rank=3),
    Plan(1, 224, 16, rank=0),
    Plan(4, 32, 4),
    Plan(1, 32, 1, rank=1),
    Plan(1, 128, 64),
    Plan(1, 256, 256),
    Plan(1, 640, 512),
    Plan(1, 320, 4096),
    Plan(1, 512, 16_000),
    Plan(3, 96, 2),
    Plan(1, 1, 1),
)


def size_plans(
    ports: Sequence[Port], given: Mapping[str, int], wanted: Sequence[int]
) -> Iterator[dict[str, int]]:
    """Yield a size per symbol, and per ``input:axis`` of unnamed axes, without repetition.

    Args:
        ports: The inputs; those without a declared rank get one per plan (see `shape_of`).
        given: Sizes that the user fixed; they hold in every plan.
        wanted: Sizes that failures of earlier plans asked for; read when those are exhausted.

    Raises:
        UsageError: *given* names a dimension that no input has.
    """
    check_sizes(ports, given)
    seen: set[tuple[tuple[str, int], ...]] = set()
    for plan in _plans(wanted):
        ranked = [_with_rank(port, plan.rank) for port in ports]
        sizes = {**_apply(plan, ranked), **given}
        if _elements(ranked, sizes) > MOST_ELEMENTS:
            continue
        if (key := tuple(sorted(sizes.items()))) not in seen:
            seen.add(key)
            yield sizes


def check_sizes(ports: Sequence[Port], given: Mapping[str, int]) -> None:
    """Raise where a size is given for a dimension that no input has.

    Raises:
        UsageError: Names the dimension, and those that there are.
    """
    symbols = {s for port in ports for s in port.symbols if s is not None}
    free = any(port.shape is None for port in ports)
    unknown = [n for n in given if n not in symbols and not (free and ":" in n)]
    if unknown:
        known = ", ".join(sorted(symbols)) or "none"
        raise UsageError(f"no input has a dimension {unknown[0]!r}", hint=f"there are: {known}")


def belonging(ports: Sequence[Port], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return those of *sizes* that are dimensions of *ports*."""
    symbols = {s for port in ports for s in port.symbols if s is not None}
    open_ports = tuple(f"{port.name}:" for port in ports if port.shape is None)
    return {
        name: size
        for name, size in sizes.items()
        if name in symbols or (open_ports and name.startswith(open_ports))
    }


def shaped_sizes(
    ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Return *sizes*, and those of every symbol in the whole *shapes* of some inputs.

    Raises:
        UsageError: A shape is given for what is no input, has another rank or contradicts a fixed
            dimension, or two numbers are given for one symbol.
    """
    by_name = {port.name: port for port in ports}
    result = dict(sizes)
    for name, shape in shapes.items():
        port = by_name.get(name)
        if port is None:
            known = ", ".join(by_name) or "none"
            raise UsageError(f"the model has no input {name!r}", hint=f"there are: {known}")
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


def _plans(wanted: Sequence[int]) -> Iterator[Plan]:
    yield from _PLANS
    for size in wanted[:_MOST_WANTED]:
        yield from (Plan(batch, 64, size) for batch in (2, 1))


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


def _apply(plan: Plan, ports: Sequence[Port]) -> dict[str, int]:
    lengths, images = count(plan.length), count(plan.spatial, _SPATIAL_STEP)
    sizes = {_rank(port): len(port.shape or ()) for port in ports}
    roles = _roles(ports)
    for symbol, role in roles.items():
        match role:
            case "batch":
                sizes[symbol] = plan.batch
            case "channel":
                sizes[symbol] = _CHANNELS
            case "image":
                sizes[symbol] = next(images) if plan.distinct else plan.spatial
            case _:
                sizes[symbol] = next(lengths) if plan.distinct else plan.length
    for symbol in roles:
        if "total" in symbol.lower():
            past = [sizes[name] for name in roles if "past" in name.lower() and name != symbol]
            sizes[symbol] = _total(ports, sizes, symbol, past)
    return sizes


def _total(
    ports: Sequence[Port], sizes: Mapping[str, int], symbol: str, past: Sequence[int]
) -> int:
    """Return past plus present for a decoder that is fed its own past, else the own size."""
    present = [
        shape_of(port, sizes)[1]
        for port in ports
        if len(port.symbols) > 1 and symbol not in port.symbols and _holds_integers(port)
    ]
    return past[0] + present[0] if past and present else sizes[symbol]


def _roles(ports: Sequence[Port]) -> dict[str, str]:
    """Return per symbol the most telling role that any input gives it, in order of appearance."""
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
    if rank < _IMAGE_RANK or any(word in symbol.lower() for word in _SEQUENCE_WORDS):
        return "length" if rank != _IMAGE_RANK - 1 or _holds_integers(port) else _in_three(port)
    if axis == 1 and all(dim is not None for dim in port.symbols):
        return "channel"
    return "image"


def _is_state(port: Port, axis: int, symbol: str) -> bool:
    """Tell the unnamed middle axis of a recurrent state: (layers, batch, hidden)."""
    if len(port.symbols) != _IMAGE_RANK - 1 or axis != 1 or ":" not in symbol:
        return False
    first, _, last = port.shape or (None, None, None)
    return isinstance(first, int) and first > 1 and isinstance(last, int)


def _in_three(port: Port) -> str:
    """Return the role of an axis of a tensor of rank 3: an image if its channels stand first."""
    return "image" if port.shape is not None and port.shape[0] in {1, _CHANNELS} else "length"


def _holds_integers(port: Port) -> bool:
    return port.dtype in {onnx.TensorProto.INT32, onnx.TensorProto.INT64}
