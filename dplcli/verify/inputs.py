"""Values to feed: seeded, inside the domain that the consumers set, alike for both models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import onnx

from dplcli.errors import VerificationError
from dplcli.verify.domains import Domain, Use
from dplcli.verify.interface import Port
from dplcli.verify.result import InputChoice
from dplcli.verify.sessions import Array, Feed
from dplcli.verify.sizes import shape_of

_WORDS = ("alpha", "Beta", "gamma delta", "the", "42", "x")
_SEQUENCE_LENGTH = 2
_INDEX_DTYPES = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
_FEEDABLE = frozenset({"tensor", "sequence", "optional"})


@dataclass(frozen=True)
class Range:
    """How one input is drawn.

    Attributes:
        kind: 'normal', 'uniform', 'integers' (*high* included), 'mask', 'switch' or 'words'.
        low: Smallest value, where the kind has one.
        high: Largest value, where the kind has one.
        how: The same in words, for the report.
    """

    kind: str
    low: float
    high: float
    how: str


def check_feedable(ports: Sequence[Port]) -> None:
    """Raise where an input has a type for which no values can be made.

    Raises:
        VerificationError: Names the input and its type.
    """
    for port in ports:
        if port.kind not in _FEEDABLE or port.dtype == onnx.TensorProto.UNDEFINED:
            raise VerificationError(
                f"input {port.name!r} is a {port.type_name}: dpl cannot make values for that"
            )


def choose_range(port: Port, domain: Domain, sizes: Mapping[str, int], *, cautious: bool) -> Range:
    """Return how to draw *port*: as varied as its domain allows, or *cautious* near 0 and 1."""
    if port.dtype == onnx.TensorProto.STRING:
        return Range("words", 0, 0, "words of a fixed list")
    if port.dtype == onnx.TensorProto.BOOL:
        return Range("mask" if cautious else "switch", int(cautious), 1, "false and true")
    if domain.bounds:
        low, high = _index_range(domain, sizes)
        high = min(high, low + 1) if cautious else high
        return Range("integers", low, high, f"indices from {low} to {high}")
    if _is_float(port.dtype):
        return _float_range(domain, cautious=cautious)
    return _integer_range(port, domain, cautious=cautious)


def _index_range(domain: Domain, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the largest range that every bound allows; 0 to 1 where no size is known."""
    limits = [(sizes.get(str(b.limit), b.limit), b.offset) for b in domain.bounds]
    known = [(limit, offset) for limit, offset in limits if isinstance(limit, int)]
    if not known:
        return 0, 1
    low = max(0, *(-offset for _, offset in known))
    high = min(limit - 1 - offset for limit, offset in known)
    return low, max(low, high)


def _float_range(domain: Domain, *, cautious: bool) -> Range:
    if Use.ABOVE_ONE in domain.uses:
        return Range("uniform", 1.1, 3.0, "uniform in [1.1, 3], for Acosh")
    if Use.UNIT in domain.uses:
        return Range("uniform", -0.9, 0.9, "uniform in [-0.9, 0.9], for Asin, Acos or Atanh")
    if Use.POSITIVE in domain.uses:
        return Range("uniform", 0.1, 2.0, "uniform in [0.1, 2], for Log, Sqrt or Reciprocal")
    if cautious:
        return Range("uniform", 0.0, 1.0, "uniform in [0, 1]")
    return Range("normal", 0, 1, "normal with mean 0 and deviation 1")


def _integer_range(port: Port, domain: Domain, *, cautious: bool) -> Range:
    if Use.COUNT in domain.uses or port.shape == ():
        return Range("integers", 1, 1 if cautious else 4, "small counts")
    if cautious:
        return Range("mask", 1, 1, "ones")
    info = np.iinfo(np.int8) if port.dtype == onnx.TensorProto.INT8 else np.iinfo(np.uint8)
    if port.dtype in {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}:
        return Range("integers", info.min, info.max, f"integers from {info.min} to {info.max}")
    masking = Use.NUMBER not in domain.uses or "mask" in port.name.lower()
    if port.dtype in _INDEX_DTYPES and masking:
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
    if chosen.kind == "switch" and np.prod(shape) == 1:
        return np.full(shape, (seed + crc32(port.name.encode())) % 2, dtype=bool)
    if port.kind == "sequence":
        return [_array(rng, port.dtype, chosen, shape) for _ in range(_SEQUENCE_LENGTH)]
    return _array(rng, port.dtype, chosen, shape)


def _array(rng: np.random.Generator, dtype: int, chosen: Range, shape: tuple[int, ...]) -> Array:
    if chosen.kind == "words":
        return np.array(rng.choice(_WORDS, size=shape), dtype=object)
    values: Array
    match chosen.kind:
        case "normal":
            values = np.asarray(rng.standard_normal(shape))
        case "uniform":
            values = np.asarray(rng.uniform(chosen.low, chosen.high, shape))
        case "mask" | "switch":
            values = np.asarray(rng.random(shape) < max(0.75, chosen.low))
            if values.ndim:
                values[..., :1] = True
        case _:
            values = np.asarray(
                rng.integers(int(chosen.low), int(chosen.high), shape, endpoint=True)
            )
    return values.astype(onnx.helper.tensor_dtype_to_np_dtype(dtype))


def describe(
    port: Port, chosen: Range, sizes: Mapping[str, int], fed: Sequence[Feed]
) -> InputChoice:
    """Return what one input was fed over all seeds."""
    low: float | None = None
    high: float | None = None
    arrays = list(_numeric(fed))
    if arrays:
        low = float(min(a.min() for a in arrays))
        high = float(max(a.max() for a in arrays))
    return InputChoice(port.name, port.type_name, shape_of(port, sizes), low, high, chosen.how)


def _numeric(fed: Sequence[Feed]) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    for feed in fed:
        for array in feed if isinstance(feed, list) else [feed]:
            if array is not None and array.size and array.dtype.kind not in "OUSc":
                yield array.astype(np.float64)
