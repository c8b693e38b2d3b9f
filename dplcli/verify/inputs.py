"""Values to feed: seeded, inside the domain that the consumers set, alike for both models."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from zlib import crc32

import numpy as np
import onnx

from dplcli.errors import UsageError, VerificationError
from dplcli.verify.domains import Domain
from dplcli.verify.interface import Port
from dplcli.verify.purposes import Use
from dplcli.verify.result import InputChoice
from dplcli.verify.sessions import Array, Feed
from dplcli.verify.sizes import shape_of

_WORDS = ("alpha", "Beta", "gamma delta", "the", "42", "x")
_SEQUENCE_LENGTH = 2
_MOST_POSITIONS = 63
_MOST_EXACT = 2**53
_INDEX_DTYPES = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_FEEDABLE = frozenset({"tensor", "sequence", "optional", "optional sequence"})


class Mood(Enum):
    """How far to go.

    BOLD also hides every key of a query from it and leaves optionals out, both for odd seeds;
    CAUTIOUS stays near 0 and 1.
    """

    BOLD = "bold"
    PLAIN = "plain"
    CAUTIOUS = "cautious"


@dataclass(frozen=True)
class Range:
    """How one input is drawn.

    Attributes:
        kind: 'normal', 'uniform', 'integers' (*high* included), 'mask', 'switch', 'words',
            'parts' (whole numbers that add up to *high*), or 'hiding': a mask that for odd seeds
            hides the last row whole.
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
    """Raise where an input has a type for which no values can be made.

    Raises:
        VerificationError: Names the input and its type.
    """
    for port in ports:
        if port.kind not in _FEEDABLE or port.dtype == onnx.TensorProto.UNDEFINED:
            raise VerificationError(
                f"input {port.name!r} is a {port.type_name}: dpl cannot make values for that",
                hint="give them: --inputs FILE" if port.kind in _FEEDABLE else None,
            )


def asked_range(port: Port, low: float, high: float) -> Range:
    """Return how to draw *port* from the range that somebody asked for, both ends included.

    Raises:
        UsageError: The input holds no numbers, or the range none that its type has.
        VerificationError: No values can be made for an input of this type at all.
    """
    check_feedable([port])
    how = f"from {low:g} to {high:g}, as asked"
    if _is_float(port.dtype):
        return Range("uniform", low, high, how)
    if port.dtype == onnx.TensorProto.STRING:
        raise UsageError(f"a range is given for {port.name!r}, which is a string")
    wanted = onnx.helper.tensor_dtype_to_np_dtype(port.dtype)
    least, most = (0, 1) if wanted.kind == "b" else _limits(wanted)
    least, most = max(least, -_MOST_EXACT), min(most, _MOST_EXACT)
    if low != int(low) or high != int(high) or low < least or high > most:
        raise UsageError(
            f"the range of {port.name!r} is {low:g} to {high:g}, but it is {port.type_name}",
            hint=f"give whole numbers from {least} to {most}",
        )
    return Range("integers", low, high, how)


def _limits(wanted: np.dtype[np.generic]) -> tuple[int, int]:
    """Return the smallest and the largest number of a type of whole numbers."""
    bits = int(wanted.name.removeprefix("u").removeprefix("int"))
    return (
        (0, 2**bits - 1)
        if wanted.name.startswith("u")
        else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )


def is_bold(port: Port, domain: Domain) -> bool:
    """Tell whether there is anything to be bold about: a mask, or an input that may be absent."""
    return port.may_be_absent or (Use.MASK in domain.uses and Use.ANGLE not in domain.uses)


def choose_range(port: Port, domain: Domain, sizes: Mapping[str, int], mood: Mood) -> Range:
    """Return how to draw *port*: as varied as its domain and *mood* allow."""
    chosen = _choose(port, domain, sizes, mood)
    if mood is Mood.BOLD and port.may_be_absent:
        return replace(chosen, absent=True, how=f"{chosen.how}; absent for odd seeds")
    if mood is Mood.BOLD and chosen.kind in {"mask", "switch"} and Use.MASK in domain.uses:
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
    known = [sizes.get(str(part), part) for part in domain.parts]
    return next((part for part in known if isinstance(part, int)), None)


def _index_range(domain: Domain, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the largest range that every bound allows; 0 to 1 where no size is known."""
    limits = [(sizes.get(str(b.limit), b.limit), b.offset) for b in domain.bounds]
    known = [(limit, offset) for limit, offset in limits if isinstance(limit, int)]
    if not known:
        return 0, 1
    low = max(0, *(-offset for _, offset in known))
    high = min(limit - 1 - offset for limit, offset in known)
    return low, max(low, high)


def _float_range(port: Port, domain: Domain, *, cautious: bool) -> Range:
    if Use.ABOVE_ONE in domain.uses:
        return Range("uniform", 1.1, 3.0, "uniform in [1.1, 3], for Acosh")
    if Use.UNIT in domain.uses:
        return Range("uniform", -0.9, 0.9, "uniform in [-0.9, 0.9], for Asin, Acos or Atanh")
    if Use.POSITIVE in domain.uses:
        return Range("uniform", 0.1, 2.0, "uniform in [0.1, 2], for Log, Sqrt or Reciprocal")
    if onnx.TensorProto.DataType.Name(port.dtype) == "FLOAT8E8M0":
        return Range("uniform", 0.25, 4.0, "powers of two in [0.25, 4]")
    if cautious:
        return Range("uniform", 0.0, 1.0, "uniform in [0, 1]")
    return Range("normal", 0, 1, "normal with mean 0 and deviation 1")


def _integer_range(port: Port, domain: Domain, *, cautious: bool) -> Range:
    if Use.COUNT in domain.uses or port.shape == ():
        return Range("integers", 1, 1 if cautious else 4, "small counts")
    if cautious:
        return Range("mask", 1, 1, "ones")
    info = np.iinfo(np.int8) if port.dtype == onnx.TensorProto.INT8 else np.iinfo(np.uint8)
    is_byte = port.dtype in {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}
    if is_byte and Use.MASK not in domain.uses:
        return Range("integers", info.min, info.max, f"integers from {info.min} to {info.max}")
    if Use.ANGLE in domain.uses:
        return Range("integers", 0, _MOST_POSITIONS, f"positions from 0 to {_MOST_POSITIONS}")
    masking = {Use.NUMBER, Use.MASK} & domain.uses != {Use.NUMBER} or "mask" in port.name.lower()
    if masking and (port.dtype in _INDEX_DTYPES or Use.MASK in domain.uses):
        return Range("mask", 0, 1, "0 and 1, the first of each row 1")
    return Range("integers", 0, 7, "integers from 0 to 7")


def _is_float(dtype: int) -> bool:
    name = onnx.TensorProto.DataType.Name(dtype)
    return "FLOAT" in name or name in {"DOUBLE", "COMPLEX64", "COMPLEX128"}


def draw(port: Port, chosen: Range, sizes: Mapping[str, int], seed: int) -> Feed:
    """Return the values of one input for one seed: the same for the same arguments, always.

    A lone boolean takes both values over any two seeds that follow each other.
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
    """Set the last row of a mask to 0; and a boolean's first to true, which may hide as well.

    A mask of one row is left alone: nothing would be left to see.
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
            values = np.asarray(
                rng.integers(int(chosen.low), int(chosen.high), shape, endpoint=True)
            )
    return values.astype(onnx.helper.tensor_dtype_to_np_dtype(dtype))


def _parts_of(rng: np.random.Generator, total: int, shape: tuple[int, ...]) -> Array:
    """Return whole numbers that add up to *total*; a lone one without axis is the size of each."""
    if shape == ():
        return np.asarray(rng.integers(1, max(total, 1), endpoint=True))
    count = int(np.prod(shape))
    cuts = np.sort(rng.integers(0, total, max(count - 1, 0), endpoint=True))
    return np.diff(np.concatenate([[0], cuts, [total]])[: count + 1]).reshape(shape)


def describe(port: Port, how: str, shape: tuple[int, ...], fed: Sequence[Feed]) -> InputChoice:
    """Return what one input was fed over all cases."""
    low: float | None = None
    high: float | None = None
    arrays = list(_numeric(fed))
    if arrays:
        low = float(min(a.min() for a in arrays))
        high = float(max(a.max() for a in arrays))
        low, high = (x if math.isfinite(x) else None for x in (low, high))
    return InputChoice(port.name, port.type_name, shape, low, high, how)


def _numeric(fed: Sequence[Feed]) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    for feed in fed:
        for array in feed if isinstance(feed, list) else [feed]:
            if array is not None and array.size and array.dtype.kind not in "OUSc":
                yield array.astype(np.float64)
