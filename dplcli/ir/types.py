"""Element types, shapes, attribute values and constant tensors, in the words of ONNX and numpy."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Element types, shapes and attribute values, in the words of ONNX and numpy.


_DTYPES = """
    undefined float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64
    complex64 complex128 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz uint4 int4
    float4e2m1 float8e8m0 uint2 int2 float6e2m3 float6e3m2
"""
DTYPE_NAMES = tuple(_DTYPES.split())
"""Name of each element type; the index is ONNX's ``TensorProto.DataType`` code."""

DTYPE_CODES = {name: code for code, name in enumerate(DTYPE_NAMES)}
"""The same the other way round."""

Dim: TypeAlias = int | str | None
"""One dimension: a number, a symbol, or unknown."""

Shape: TypeAlias = tuple[Dim, ...]

Exempt: TypeAlias = Literal["nan", "inf", "zero_sign", "overflow"]
"""Numbers for which a rewrite may be wrong: no number, infinite, -0, and so large that what is made
of them leaves the type."""


_MADE_UP = "unk__"


def is_made_up(dim: Dim) -> bool:
    """Tell whether a dimension is a symbol that inference makes up, as onnx's does.

    It stands for the same size within one model; where sizes are the same by arithmetic only, there
    are several.
    """
    return isinstance(dim, str) and dim.startswith(_MADE_UP) and dim[len(_MADE_UP) :].isdigit()


def made_up(number: int) -> str:
    """Return such a symbol."""
    return f"{_MADE_UP}{number}"


def summands(dim: Dim) -> tuple[int | str, ...]:
    """Return what a symbol such as ``past + sequence`` is the sum of; () if it is no sum."""
    parts = [part.strip() for part in dim.split("+")] if isinstance(dim, str) else []
    if len(parts) < 2 or not all(part.isidentifier() or part.isdecimal() for part in parts):  # noqa: PLR2004  # a sum
        return ()
    return tuple(int(part) if part.isdecimal() else part for part in parts)


_MOST_TIMES = 16


def summands_stated(text: str) -> tuple[int | str, ...]:
    """Return what somebody says that a size is: ``past``, ``past + 1``, ``2*past``; () if nothing.

    A part that is multiplied is there so many times.
    """
    parts: list[int | str] = []
    for part in text.split("+"):
        one, _, other = (word.strip() for word in part.partition("*"))
        if one.isidentifier():
            one, other = other or "1", one
        times = int(one) if one.isdecimal() and len(one) < len(str(LARGEST_SIZE)) else 0
        if not times or (other and not (other.isidentifier() and times <= _MOST_TIMES)):
            return ()
        parts += [other] * times if other else [times]
    return tuple(parts)


LARGEST_SIZE = 10**18


def dtype_name(code: int) -> str:
    """Name the element type *code*; a code newer than this table reads ``type<code>``."""
    return DTYPE_NAMES[code] if 0 <= code < len(DTYPE_NAMES) else f"type{code}"


def bits_of(dtype: str) -> int:
    """Return the size of one element in bits; 0 for a type that has no size."""
    number = re.search(r"[0-9]+", dtype)
    return 8 if dtype == "bool" else int(number[0]) if number else 0


class TensorType(NamedTuple):
    """What is known of a tensor before it is computed.

    Attributes:
        dtype: Name of the element type, or None if unknown.
        shape: Its dimensions, or None if even the rank is unknown.
    """

    dtype: str | None
    shape: Shape | None

    def __str__(self) -> str:
        """Read as ONNX text does: ``float32[1,3,n,?]``, or ``float32`` for an unknown rank."""
        if self.shape is None:
            return self.dtype or "?"
        dims = ",".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.dtype or '?'}[{dims}]"


def contradicts(first: TensorType, second: TensorType) -> bool:
    """Tell whether no tensor has both types; a symbol may stand for any number."""
    if first.dtype != second.dtype and None not in (first.dtype, second.dtype):
        return True
    if first.shape is None or second.shape is None:
        return False
    return len(first.shape) != len(second.shape) or any(
        old != new and isinstance(old, int) and isinstance(new, int)
        for old, new in zip(first.shape, second.shape, strict=True)
    )


@lru_cache(maxsize=1024)
def shared_type(dtype: str | None, shape: Shape | None) -> TensorType:
    """Return a type; most values of a model share a few, so they share the object, too."""
    return TensorType(dtype, shape)


PLAIN_KINDS = frozenset({"int", "ints", "float", "floats", "string", "strings"})
"""The kinds of attributes that hold numbers or texts, and no tensors, graphs or types."""

GRAPH_KINDS = frozenset({"graph", "graphs"})
"""The kinds of attributes that hold bodies."""


class Attribute(NamedTuple):
    """One attribute of a node.

    Attributes:
        kind: ONNX's ``AttributeProto.AttributeType`` in lower case: ``int``, ``floats``, …
        value: int, float, str (bytes if not UTF-8), a Tensor, or a tuple of these; for the other
            kinds (graphs, sparse tensors, types) whatever the codec uses, opaque to the IR.
        ref: Name of the enclosing function's attribute that supplies the value, or "".
        rest: What else there is, as the codec encodes it: documentation, and what dpl does not
            know.
    """

    kind: str
    value: object
    ref: str = ""
    rest: bytes = b""


# Constant tensors, read only when somebody looks at the numbers.


CHUNK = 1 << 20
"""Elements of a constant that are looked at together, where it may be large."""


class Tensor(ABC):
    """A constant tensor whose element type and shape are at hand and whose data may not be."""

    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Name of the element type, as in :data:`dplcli.ir.types.DTYPE_NAMES`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""

    @property
    @abstractmethod
    def is_external(self) -> bool:
        """Whether the data lies in a file beside the model."""

    @property
    def place(self) -> Hashable:
        """Where the data lies: the same for tensors of one type that share it; None if unknown."""
        return None

    @abstractmethod
    def numpy(self) -> NDArray[Any]:
        """Decode the data; this reads the external file, if there is one.

        Raises:
            ModelLoadError: The data cannot be read.
        """

    def reader(self) -> Callable[[int, int], NDArray[Any]]:
        """Return what reads the elements from one to another one, in order, (n,).

        A file of data is never read as a whole.

        Raises:
            ModelLoadError: The data cannot be read; what is returned raises it, too.
        """
        flat = self.numpy().reshape(-1)
        return lambda begin, end: flat[begin:end]

    def chunks(self) -> Iterator[NDArray[Any]]:
        """Yield the elements in order, (n,) at a time; a file of data is never read as a whole.

        Raises:
            ModelLoadError: The data cannot be read.
        """
        read = self.reader()
        for start in range(0, self.size, CHUNK):
            yield read(start, min(start + CHUNK, self.size))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def content(self) -> tuple[Hashable, ...]:
        """Equal for tensors that hold the same; for short ones, as it is a copy of the data.

        Raises:
            ModelLoadError: The data cannot be read.
        """
        data = self.numpy()
        encoded = repr(data.tolist()) if data.dtype.hasobject else data.tobytes()
        return (self.dtype, self.shape, encoded)


class ArrayTensor(Tensor):
    """A constant that a pass has computed."""

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[Any]) -> None:
        """Hold *array*, which must not be changed afterwards; nobody can through the tensor."""
        self._array = array.view()
        self._array.flags.writeable = False

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return _name_of(self._array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._array.shape

    @property
    def is_external(self) -> bool:
        """Never: the data is in memory."""
        return False

    def numpy(self) -> NDArray[Any]:
        """Return the array itself."""
        return self._array


@cache
def _name_of(dtype: np.dtype[Any]) -> str:
    name = dtype.name.replace("_", "")
    for name_of_ours in (name, name.removesuffix("fn"), name.removesuffix("fnu")):
        if name_of_ours in DTYPE_NAMES:
            return name_of_ours
    return "string"


_NUMPY_TYPES: dict[str, type[np.generic]] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}


def tensor_of_attributes(attributes: Mapping[str, Attribute]) -> Tensor | None:
    """Return the tensor of a ``Constant`` node; None if sparse or set by a function's caller."""
    for name, attribute in attributes.items():
        if attribute.ref:
            return None
        if name == "value" and isinstance(attribute.value, Tensor):
            return attribute.value
        if name in _NUMPY_TYPES:
            return _array_tensor(attribute.value, _NUMPY_TYPES[name])
    return None


def _array_tensor(value: Any, dtype: type[np.generic]) -> Tensor | None:  # noqa: ANN401  # any kind
    try:
        return ArrayTensor(np.array(value, dtype=dtype))
    except (ValueError, TypeError, OverflowError):
        return None  # the attribute is of another kind than its name says
