"""onnx's shape inference within bounds of time and memory.

It runs in C++ without letting go of Python, so nothing stops it: neither a signal nor a clock. It
looks into a function once for each call, calls in calls included, so thirty functions of two calls
each take hours. It also keeps a message for each element of a vector that it takes for a shape, so
a constant of eight bytes can ask for all memory. Calls are therefore counted beforehand, and
memory is limited while it runs.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import ModelProto

from dplcli.ir import TensorType
from dplcli.ir.functions import MANY, expanded_sizes
from dplcli.onnx_io.attributes import graphs_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from onnx import NodeProto

    from dplcli.ir import Dim

    FunctionKey = tuple[str, str, str]

INFERENCE_ERRORS = (
    onnx.shape_inference.InferenceError,
    onnx.defs.SchemaError,
    onnx.checker.ValidationError,
    MemoryError,
    RuntimeError,
    ValueError,
    TypeError,
)
"""What onnx raises where it cannot infer."""

_MOST_NODES = 250_000
_MOST_TIMES = 8
_LEAST_MEMORY = 512 << 20
_MEMORY_PER_BYTE = 64
_UNITS = 1 << 20
_LONG_VECTOR = 1 << 14
_LENGTH = "dpl length "


def most_nodes(stated: int) -> int:
    """Return how many nodes inference may look at in a model whose file states so many.

    What a file states is worth some time for each node. Where functions call functions, the rest
    is out of proportion to what anybody wrote; a second or two are given to it.
    """
    return max(_MOST_NODES, _MOST_TIMES * stated)


class Expansion:
    """How many nodes a model stands for: each call counts as what it calls.

    Args:
        model: The model.
    """

    def __init__(self, model: ModelProto) -> None:
        """Count."""
        functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.stated = self._outside = len(model.graph.node)
        self.sizes: dict[FunctionKey, int] = {}
        self.calls: dict[FunctionKey, int] = {}
        if not functions:
            return
        self._outside, self.calls = _count(model.graph.node, functions)
        counted = {key: _count(function.node, functions) for key, function in functions.items()}
        self.sizes = expanded_sizes(
            {key: count for key, (count, _) in counted.items()},
            {key: calls for key, (_, calls) in counted.items()},
        )
        self.stated = self._outside + sum(count for count, _ in counted.values())

    @property
    def total(self) -> int:
        """How many nodes the model stands for."""
        return self._total_without(())

    @property
    def is_bounded(self) -> bool:
        """Whether that is in proportion to the file."""
        return self.total <= most_nodes(self.stated)

    def too_large(self) -> set[FunctionKey]:
        """Choose functions not to look into, largest first, so that the rest is in proportion."""
        left_out: set[FunctionKey] = set()
        total, most = self.total, most_nodes(self.stated)
        for key in sorted(self.sizes, key=self.sizes.__getitem__, reverse=True):
            if total <= most:
                break
            left_out.add(key)
            if key in self.calls:
                total = self._total_without(left_out)
        return left_out

    def _total_without(self, left_out: Container[FunctionKey]) -> int:
        called = (n * self.sizes[key] for key, n in self.calls.items() if key not in left_out)
        return min(self._outside + sum(called), MANY)


def _count(
    nodes: Iterable[NodeProto], functions: Mapping[FunctionKey, object]
) -> tuple[int, dict[FunctionKey, int]]:
    """Count nodes, and calls by function, bodies of nodes included."""
    count = 0
    calls: dict[FunctionKey, int] = {}
    pending = [nodes]
    while pending:
        for node in pending.pop():
            count += 1
            key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type, node.overload)
            if key in functions:
                calls[key] = calls.get(key, 0) + 1
            if node.attribute:
                pending += [graph.node for _, graph in graphs_of(node)]
    return count, calls


def infer_shapes(model: ModelProto, *, data_prop: bool = False) -> tuple[ModelProto, str]:
    """Infer types with onnx; of what would take too long or too much memory less is found.

    Args:
        model: The model; its large weights should be gone.
        data_prop: Whether to follow the arithmetic that is done with shapes.

    Returns:
        The model with what was found, and a clause that says what was given up, or "".

    Raises:
        Exception: One of :data:`INFERENCE_ERRORS`.
    """
    problem = ""
    expansion = Expansion(model)
    if not expansion.is_bounded:
        problem = beyond(expansion.total)
        left_out = expansion.too_large()
        kept = [f for f in model.functions if (f.domain, f.name, f.overload) not in left_out]
        model = _with_functions(model, kept)
    try:
        return _infer(model, data_prop=data_prop), problem
    except MemoryError:
        given_up = f"shape inference was given up at {_megabytes(model.ByteSize())} MB"
    if data_prop:
        try:
            return _infer(model, data_prop=False), problem or f"some of {given_up}"
        except MemoryError:
            pass
    raise MemoryError(given_up)


def without_length(shape: Sequence[Dim]) -> Sequence[Dim]:
    """Name the length of a long vector by a symbol; :func:`with_length` undoes that.

    Data propagation, and what is read as a shape, take a message for each element of a vector
    whose length is a number.
    """
    if len(shape) != 1 or not isinstance(shape[0], int) or shape[0] <= _LONG_VECTOR:
        return shape
    return (f"{_LENGTH}{shape[0]}",)


def with_length(found: TensorType) -> TensorType:
    """Put numbers back into what was inferred from :func:`without_length`."""
    if found.shape is None or not any(map(_is_length, found.shape)):
        return found
    shape = [int(str(dim)[len(_LENGTH) :]) if _is_length(dim) else dim for dim in found.shape]
    return TensorType(found.dtype, tuple(shape))


def _is_length(dim: Dim) -> bool:
    """Tell our symbols from those that a file may have by chance or malice."""
    return isinstance(dim, str) and dim.startswith(_LENGTH) and dim[len(_LENGTH) :].isdecimal()


def beyond(total: int) -> str:
    """Say that functions in functions are too much for inference."""
    number = f"{total:,}" if total < MANY else "endlessly many"
    return f"shape inference does not look into functions that stand for {number} nodes"


def _with_functions(model: ModelProto, functions: Iterable[onnx.FunctionProto]) -> ModelProto:
    copy = ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.graph.CopyFrom(model.graph)
    copy.functions.extend(functions)
    return copy


def _infer(model: ModelProto, *, data_prop: bool) -> ModelProto:
    with limited_memory(model.ByteSize()):
        return onnx.shape_inference.infer_shapes(model, data_prop=data_prop)


def _megabytes(size: int) -> int:
    return (_LEAST_MEMORY + _MEMORY_PER_BYTE * size) // _UNITS


@contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """Let C++ raise MemoryError where it takes far more than a message of *size* bytes needs.

    Linux alone can do that; elsewhere nothing is limited.
    """
    used = _address_space()
    if used is None:
        yield
        return
    import resource  # noqa: PLC0415  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + _LEAST_MEMORY + _MEMORY_PER_BYTE * size
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int | None:
    """Return how many bytes of addresses this process has; None if the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pages * _page_size()


@lru_cache(maxsize=1)
def _page_size() -> int:
    import resource  # noqa: PLC0415  # not on Windows

    return resource.getpagesize()
