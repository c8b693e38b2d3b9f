"""Which element types hold every number of which others, so that a Cast loses nothing."""

from __future__ import annotations

from typing import NamedTuple


class _Range(NamedTuple):
    """What a type can hold.

    Attributes:
        digits: Binary digits of a number: those of an integer without its sign, or those of a
            float's significand, the hidden one included.
        low: Exponent of the smallest positive number, subnormal ones included; 0 for integers.
        high: The largest number is below two to this power.
        signed: Whether there are negative numbers.
        special: Whether there are infinities, too.
    """

    digits: int
    low: int
    high: int
    signed: bool = True
    special: bool = False


_RANGES = {
    "bool": _Range(1, 0, 1, signed=False),
    **{f"uint{bits}": _Range(bits, 0, bits, signed=False) for bits in (2, 4, 8, 16, 32, 64)},
    **{f"int{bits}": _Range(bits - 1, 0, bits - 1) for bits in (2, 4, 8, 16, 32, 64)},
    "float16": _Range(11, -24, 16, special=True),
    "bfloat16": _Range(8, -133, 128, special=True),
    "float32": _Range(24, -149, 128, special=True),
    "float64": _Range(53, -1074, 1024, special=True),
    "float8e4m3fn": _Range(4, -9, 9),
    "float8e5m2": _Range(3, -16, 16, special=True),
}


def widens(source: str, target: str) -> bool:
    """Tell whether *target* holds every number of *source* exactly.

    ``float16`` and ``bfloat16`` are both within ``float32``, and that is within ``float64``;
    an integer type is within a float type that has as many binary digits (``int32`` in
    ``float64``, ``int8`` in ``float16``), and ``bool`` is within all; a type is within itself.
    The smallest integer, a power of two, takes no more digits than the others. Of types that
    are not listed (text, complex numbers, the rarer 8-bit and 4-bit floats) nothing is said.
    """
    if source == target:
        return True
    small, large = _RANGES.get(source), _RANGES.get(target)
    if small is None or large is None or target == "bool":
        return False
    if (small.signed and not large.signed) or (small.special and not large.special):
        return False
    if small.low < 0 and large.low == 0:
        return False
    smallest = small.high + 1 if small.signed and small.low == 0 else small.high
    reach = large.high if large.low < 0 else smallest
    return small.digits <= large.digits and small.low >= large.low and smallest <= reach
