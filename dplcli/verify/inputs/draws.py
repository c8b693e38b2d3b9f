"""The numbers that an input is fed: drawn from a seed, as varied as its consumers allow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from zlib import crc32

import numpy as np
import onnx

from dplcli.errors import UsageError, VerificationError, opt
from dplcli.verify.behaviours import number_info
from dplcli.verify.inputs.sizes import shape_of
from dplcli.verify.model import Domain, Port, Purpose
from dplcli.verify.values import Array, Feed

_WORDS = ("alpha", "Beta", "gamma delta", "the", "42", "x")
_SEQUENCE_LENGTH = 3
_MOST_POSITIONS = 63
_MOST_EXACT = 2**53
"""Up to here a float, as which a range is asked for, is any whole number."""

_SHOWN = 0.75
"""The share of a mask that hides nothing."""

_FLAG_WORD = "mask"
"""A name with it stands for 0 and 1, also where a layer multiplies the numbers as they are: there
is nothing else to tell a mask of rows from a count by."""

_INDEX_DTYPES = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_BYTES: Mapping[int, tuple[int, int]] = {
    onnx.TensorProto.INT8: (-128, 127),
    onnx.TensorProto.UINT8: (0, 255),
}
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
        kind: 'normal', 'uniform', 'integers' (*high* included), 'mask', 'hiding' (a mask whose
            last row is all hidden for odd seeds), 'parts' (whole numbers that add up to *high*), or
            'words'.
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


_MOST_AXES = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""How many axes an array of numpy can have."""


def check_feedable(ports: Sequence[Port]) -> None:
    """Refuse an input of a type for which no values can be made.

    Raises:
        VerificationError: There is such an input; the error names it and its type.
    """
    for port in ports:
        if port.shape is not None and len(port.shape) > _MOST_AXES:
            raise VerificationError(
                f"input {port.name!r} has {len(port.shape)} axes: dpl cannot make values for that, "
                f"since numpy's arrays have {_MOST_AXES} at most"
            )
        if port.kind not in _FEEDABLE or port.dtype == onnx.TensorProto.UNDEFINED:
            raise VerificationError(
                f"input {port.name!r} is a {port.type_name}: dpl cannot make values for that",
                hint=f"give them: {opt('inputs', 'FILE')}" if port.kind in _FEEDABLE else None,
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
        info = number_info(wanted)
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
    chosen = _plain_range(port, domain, sizes, cautious=mood is Mood.CAUTIOUS)
    if mood is Mood.BOLD and port.may_be_absent:
        return replace(chosen, absent=True, how=f"{chosen.how}; absent for odd seeds")
    if mood is Mood.BOLD and chosen.kind == "mask" and Purpose.MASK in domain.uses:
        how = f"{chosen.how}; for odd seeds the last row hides all"
        return replace(chosen, kind="hiding", how=how)
    return chosen


def _plain_range(port: Port, domain: Domain, sizes: Mapping[str, int], *, cautious: bool) -> Range:
    if port.dtype == onnx.TensorProto.STRING:
        return Range("words", 0, 0, "words of a fixed list")
    if port.dtype == onnx.TensorProto.BOOL:
        return Range("mask", int(cautious), 1, "false and true")
    parts = [sizes.get(str(part), part) for part in domain.parts]
    if (size := next((part for part in parts if isinstance(part, int)), None)) is not None:
        return Range("parts", 0, size, f"whole numbers that add up to {size}")
    if _is_float(port.dtype):
        return _float_range(port, domain, cautious=cautious)
    if domain.bounds:
        low, high = _index_range(domain, sizes)
        high = min(high, low + 1) if cautious else high
        return Range("integers", low, high, f"indices from {low} to {high}")
    return _integer_range(port, domain, cautious=cautious)


def _index_range(domain: Domain, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the largest range that every bound allows; 0 to 1 if no size is known.

    What only negative indices can meet is no bound: a model may add the size of the axis to them.
    """
    limits = [(sizes.get(str(b.limit), b.limit), b.offset) for b in domain.bounds]
    ends = [
        (-offset, limit - 1 - offset)
        for limit, offset in limits
        if isinstance(limit, int) and limit > offset
    ]
    low = max([0, *(least for least, _ in ends)])
    return low, max(low, min((most for _, most in ends), default=1))


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
    is_mask = Purpose.MASK in domain.uses
    is_count = Purpose.NUMBER in domain.uses and _FLAG_WORD not in port.name.lower()
    if Purpose.COUNT in domain.uses or port.shape == ():
        return Range("integers", 1, 1 if cautious else 4, "small counts")
    if cautious:
        return Range("mask", 1, 1, "ones")
    if port.dtype in _BYTES and not is_mask:
        low, high = _BYTES[port.dtype]
        return Range("integers", low, high, f"integers from {low} to {high}")
    if Purpose.ANGLE in domain.uses:
        return Range("integers", 0, _MOST_POSITIONS, f"positions from 0 to {_MOST_POSITIONS}")
    if is_mask or (port.dtype in _INDEX_DTYPES and not is_count):
        return Range("mask", 0, 1, "0 and 1, the first of each row 1")
    return Range("integers", 0, 7, "integers from 0 to 7")


def _is_float(dtype: int) -> bool:
    name = onnx.TensorProto.DataType.Name(dtype)
    return "FLOAT" in name or name in {"DOUBLE", "COMPLEX64", "COMPLEX128"}


def draw(port: Port, chosen: Range, sizes: Mapping[str, int], seed: int) -> Feed:
    """Return the values of one input for one seed, always the same for the same arguments.

    A single boolean takes both values over any two consecutive seeds.
    """
    own = crc32(port.name.encode())
    rng = np.random.default_rng([seed, own])
    shape = shape_of(port, sizes)
    if chosen.absent and seed % 2:
        return None
    is_single = port.dtype == onnx.TensorProto.BOOL and np.prod(shape) == 1
    if is_single and chosen.kind == "mask" and not chosen.low:
        return np.full(shape, (seed + own) % 2, dtype=bool)
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
    if array.ndim and array.shape[-1] < array.size:
        rows = array.reshape(-1, array.shape[-1])
        if array.dtype.kind == "b":
            rows[0] = True
        rows[-1] = 0


def _array(rng: np.random.Generator, dtype: int, chosen: Range, shape: tuple[int, ...]) -> Array:
    values: Array
    match chosen.kind:
        case "words":
            return np.array(rng.choice(_WORDS, size=shape), dtype=object)
        case "normal":
            values = np.asarray(rng.standard_normal(shape))
        case "uniform":
            values = np.asarray(rng.uniform(chosen.low, chosen.high, shape))
        case "mask" | "hiding":
            values = np.asarray(rng.random(shape) < max(_SHOWN, chosen.low))
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
