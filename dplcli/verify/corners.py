"""Corner values: all zero, all negative, large, denormal, each where an input allows it.

A corner may be one where the original itself is no guide: it overflows there, or cancels so that
the last bit of its input decides. A difference found there says nothing about the candidate.
So the original also runs on inputs moved by a few roundings, and a corner at which that alone
moves an output by more than the tolerance is left out, and the report says so.
"""

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from dplcli.verify.compare import Judge
from dplcli.verify.inputs import Range
from dplcli.verify.sessions import Array, Feed, Outputs

_LARGE = 1e4
_LARGE_HALF = 1e2
_ROUNDINGS = 4
_SMALL_RANGE = 1e6
_FLOATS = frozenset(
    {"float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"}
    | {"float8_e4m3fnuz", "float8_e5m2fnuz"}
)
_ORDERED = frozenset({"normal", "uniform", "integers"})


def corner_feeds(
    corner: str, feeds: Mapping[str, Feed], ranges: Mapping[str, Range]
) -> dict[str, Feed] | None:
    """Return *feeds* at a corner; None if no input has that corner.

    Args:
        corner: One of `request.CORNERS`.
        feeds: Ordinary inputs.
        ranges: How those were drawn that may be moved to the corner.
    """
    moved = dict(feeds)
    for name, chosen in ranges.items():
        feed = feeds[name]
        if chosen.kind not in _ORDERED or feed is None:
            continue
        if isinstance(feed, list):
            moved[name] = [_at_corner(corner, item, chosen) for item in feed]
        else:
            moved[name] = _at_corner(corner, feed, chosen)
    return None if _is_same(moved, feeds) else moved


def _is_same(moved: Mapping[str, Feed], feeds: Mapping[str, Feed]) -> bool:
    return all(
        np.array_equal(np.asarray(a), np.asarray(b))
        for name in feeds
        for a, b in zip(_arrays(moved[name]), _arrays(feeds[name]), strict=True)
    )


def _arrays(feed: Feed) -> list[Array]:
    if feed is None:
        return []
    return feed if isinstance(feed, list) else [feed]


def _at_corner(corner: str, array: Array, chosen: Range) -> Array:
    """Return an array of the same type and shape at *corner*, inside what *chosen* allows."""
    if array.dtype.name not in _FLOATS and array.dtype.kind not in "iu":
        return array
    wide = array.astype(np.float64)
    is_float = array.dtype.name in _FLOATS
    match corner:
        case "zeros":
            wanted = np.zeros(array.shape)
        case "negative":
            wanted = -np.abs(wide)
        case "large" if is_float:
            info = _info(array.dtype)
            factor = _LARGE if float(info.max) > _SMALL_RANGE else _LARGE_HALF
            wanted = np.clip(wide * factor, float(info.min) / 2, float(info.max) / 2)
        case "large":
            wanted = np.full(array.shape, chosen.high)
        case _ if is_float:
            tiny = float(_info(array.dtype).smallest_subnormal)
            wanted = np.where(wide < 0, -3 * tiny, 3 * tiny)
        case _:
            return array
    if chosen.kind != "normal":
        wanted = np.clip(wanted, chosen.low, chosen.high)
    return wanted.astype(array.dtype)


def _info(dtype: np.dtype[np.generic]) -> np.finfo[np.floating]:
    """Return numpy's figures of a float type, the ones that numpy lacks included."""
    found: np.finfo[np.floating] = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return found


def nudged(feeds: Mapping[str, Feed]) -> dict[str, Feed]:
    """Return *feeds* with every float moved by a few roundings, up and down in turn."""
    return {
        name: [_nudge(item) for item in feed]
        if isinstance(feed, list)
        else feed
        if feed is None
        else _nudge(feed)
        for name, feed in feeds.items()
    }


def _nudge(array: Array) -> Array:
    if array.dtype.name not in _FLOATS or not array.size:
        return array
    wide = array.astype(np.float64)
    step = _ROUNDINGS * float(_info(array.dtype).eps)
    size = np.where(np.abs(wide) > step, np.abs(wide), 1.0) * step
    signs = np.where(np.arange(array.size).reshape(array.shape) % 2, -1.0, 1.0)
    return (wide + signs * size).astype(array.dtype)


def objection(corner: str, judge: Judge, ours: Outputs, moved: Outputs) -> str | None:
    """Say why a corner is no fair test; None if it is one.

    Where zeros give zeros throughout nothing was rounded, so nothing is left to chance.

    Args:
        corner: The corner.
        judge: The tolerances in force.
        ours: The original's outputs at the corner.
        moved: Its outputs for nudged inputs.
    """
    for name, leaves in ours.items():
        for leaf in leaves:
            if leaf.dtype in _FLOATS and not np.isfinite(leaf.data.astype(np.float64)).all():
                return f"output {name!r} is not finite there"
        exact = corner == "zeros" and not any(leaf.data.any() for leaf in leaves)
        if not exact and not judge.compare(name, leaves, moved[name]).ok:
            return f"there the last bits of the input decide over output {name!r}"
    return None
