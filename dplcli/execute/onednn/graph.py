"""A plan as a graph of oneDNN: its partitions, compiled for given shapes, and run."""

from __future__ import annotations

import ctypes as c
import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dplcli.execute.onednn.faults import misread
from dplcli.execute.onednn.library import Library
from dplcli.execute.plan import LibraryError, PlanOp, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dplcli.execute.plan import KernelPlan, Setting, Shape

_MOST_DIMS = 12
_Dims = c.c_int64 * _MOST_DIMS


class _Tensor(c.Structure):
    """``dnnl_graph_logical_tensor_t``."""

    _fields_ = (
        ("id", c.c_size_t),
        ("ndims", c.c_int),
        ("dims", _Dims),
        ("data_type", c.c_int),
        ("property", c.c_int),
        ("layout", c.c_int),
        ("strides", _Dims),
    )


KINDS = {
    "abs": 0,
    "add": 2,
    "avg_pool": 3,
    "batch_norm_inference": 7,
    "clamp": 10,
    "convolution": 13,
    "conv_transpose": 16,
    "dequantize": 19,
    "divide": 20,
    "elu": 23,
    "exp": 26,
    "gelu": 27,
    "hard_swish": 29,
    "layer_norm": 33,
    "leaky_relu": 35,
    "log": 36,
    "log_softmax": 37,
    "matmul": 39,
    "maximum": 40,
    "max_pool": 41,
    "minimum": 43,
    "mish": 44,
    "multiply": 46,
    "quantize": 49,
    "reciprocal": 50,
    "reduce_mean": 54,
    "relu": 58,
    "round": 61,
    "sigmoid": 62,
    "softmax": 64,
    "sqrt": 68,
    "static_reshape": 72,
    "static_transpose": 73,
    "subtract": 74,
    "tanh": 75,
}
"""``dnnl_graph_op_kind_t``."""

SETTINGS = {
    "alpha": 1,
    "beta": 2,
    "epsilon": 3,
    "max": 4,
    "min": 5,
    "scales": 0x20,
    "axis": 0x30,
    "begin_norm_axis": 0x31,
    "groups": 0x32,
    "axes": 0x40,
    "dilations": 0x41,
    "kernel": 0x43,
    "order": 0x44,
    "output_padding": 0x45,
    "pads_begin": 0x46,
    "pads_end": 0x47,
    "shape": 0x48,
    "strides": 0x4B,
    "zps": 0x4D,
    "exclude_pad": 0x60,
    "keep_dims": 0x61,
    "keep_stats": 0x62,
    "special_zero": 0x64,
    "transpose_a": 0x65,
    "transpose_b": 0x66,
    "use_affine": 0x67,
    "auto_broadcast": 0x80,
    "auto_pad": 0x81,
    "data_format": 0x83,
    "qtype": 0x85,
    "rounding_type": 0x86,
    "weights_format": 0x87,
}
"""``dnnl_graph_op_attr_t``."""

DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "int8": 5, "uint8": 6}
"""``dnnl_data_type_t``, by numpy's names."""

_END = 25
_CPU = 1
_ANY, _STRIDED = 1, 2
_VARYING, _CONSTANT = 1, 2
_FUSION = 1
_UNKNOWN = -1
_ALIGNMENT = 64


INEXACT = "oneDNN rounds 8-bit products coarsely on a CPU without VNNI (--allow-inexact)"
_PRODUCTS = frozenset({"convolution", "conv_transpose", "matmul"})


class OneDnn(Library):
    """oneDNN: it runs a plan as one partition, or a region as several.

    Args:
        threads: How many threads it has; 0 for its own choice.
        allow_inexact: Whether it runs what it is known to be inexact at.

    Raises:
        UsageError: There is none, or one that cannot be used.
    """

    def __init__(self, threads: int = 0, *, allow_inexact: bool = False) -> None:
        super().__init__(threads)
        self._allow_inexact = allow_inexact

    def judge(self, plan: KernelPlan) -> str:
        """Return why the library does not run a plan; "" if it does."""
        if not (self._allow_inexact or self.is_exact_in_steps) and multiplies_steps(plan):
            return INEXACT
        used = {number for op in plan.ops for number in (*op.inputs, op.output)}
        if strange := {plan.dtypes[number] for number in used} - DTYPES.keys():
            return f"values are of type {min(strange)}"
        known = {
            number: tuple(size for size in shape if isinstance(size, int))
            for number, shape in plan.shapes.items()
            if all(isinstance(size, int) for size in shape)
        }
        try:
            partitions = _Graph(self, plan, known).partitions
        except RefusedError as error:
            return str(error)
        try:
            return _objection(plan, partitions)
        finally:
            for part in partitions:
                part.destroy()

    def compile(self, plan: KernelPlan, shapes: Mapping[int, Shape]) -> CompiledPlan:
        """Compile a plan for given shapes of all its inputs."""
        return CompiledPlan(self, plan, shapes)


def ends_of(plan: KernelPlan) -> list[int]:
    """Return the values that operators read, and that are to be made all the same, in order.

    These are read outside, too, or fused with what reads them they would be wrong.
    """
    read = {number for op in plan.ops for number in op.inputs}
    return sorted(read.intersection(plan.outputs) | misread(plan))


def most_parts(plan: KernelPlan) -> int:
    """Return into how many parts the library may split a plan that is no region."""
    return plan.parts + len(misread(plan))


def multiplies_steps(plan: KernelPlan) -> bool:
    """Tell whether some product is one of 8-bit numbers."""
    converted = {op.output for op in plan.ops if op.kind == "dequantize"}
    return any(op.kind in _PRODUCTS and converted.issuperset(op.inputs[:2]) for op in plan.ops)


def _objection(plan: KernelPlan, partitions: Sequence[_Partition]) -> str:
    groups = ["+".join(plan.ops[n].kind for n in part.ops) for part in partitions]
    if not plan.is_region and len(partitions) > most_parts(plan):
        return f"oneDNN would run it in {len(partitions)} parts: {', '.join(groups)}"
    refused = [
        group for part, group in zip(partitions, groups, strict=True) if not part.is_supported
    ]
    return f"oneDNN has no implementation of {refused[0]}" if refused else ""


class _Partition:
    """A partition that the library offers."""

    def __init__(self, library: Library, handle: int) -> None:
        self.library, self.handle = library, c.c_void_p(handle)
        flag, count = c.c_uint8(), c.c_size_t()
        library.call("dnnl_graph_partition_is_supported", self.handle, c.byref(flag))
        library.call("dnnl_graph_partition_get_op_num", self.handle, c.byref(count))
        ids = (c.c_size_t * count.value)()
        library.call("dnnl_graph_partition_get_ops", self.handle, count, ids)
        self.is_supported, self.ops = bool(flag.value), sorted(ids)

    def ports(self, which: str) -> list[_Tensor]:
        count = c.c_size_t()
        name = f"dnnl_graph_partition_get_{which}_ports"
        self.library.call(f"{name}_num", self.handle, c.byref(count))
        found = (_Tensor * count.value)()
        self.library.call(name, self.handle, count, found)
        return list(found)

    def destroy(self) -> None:
        self.library.call("dnnl_graph_partition_destroy", self.handle)


class _Graph:
    """The graph of a plan, and its partitions."""

    def __init__(self, library: Library, plan: KernelPlan, shapes: Mapping[int, Shape]) -> None:
        self.library, self.plan, self.shapes = library, plan, shapes
        self.tensors: dict[int, _Tensor] = {}
        graph = c.c_void_p()
        library.call("dnnl_graph_graph_create", c.byref(graph), _CPU)
        try:
            for number, op in enumerate(plan.ops):
                self._add(graph, number, op)
            self._end(graph)
            library.call("dnnl_graph_graph_finalize", graph)
            library.call("dnnl_graph_graph_filter", graph, _FUSION)
            count = c.c_size_t()
            library.call("dnnl_graph_graph_get_partition_num", graph, c.byref(count))
            handles = (c.c_void_p * count.value)()
            library.call("dnnl_graph_graph_get_partitions", graph, count, handles)
        except LibraryError as error:
            raise RefusedError(f"oneDNN refuses it: {error}") from error
        finally:
            library.call("dnnl_graph_graph_destroy", graph)
        self.partitions = []
        for part in (_Partition(library, handle) for handle in handles if handle):
            if part.ops[0] < len(plan.ops):
                self.partitions.append(part)
            else:
                part.destroy()  # of an end alone

    def _add(self, graph: c.c_void_p, number: int, op: PlanOp) -> None:
        handle = c.c_void_p()
        call = self.library.call
        name = f"{op.kind}_{number}".encode()
        call("dnnl_graph_op_create", c.byref(handle), c.c_size_t(number), KINDS[op.kind], name)
        try:
            for setting, value in op.settings.items():
                _set(self.library, handle, setting, value)
            for value in op.inputs:
                call("dnnl_graph_op_add_input", handle, c.byref(self._tensor(value)))
            call("dnnl_graph_op_add_output", handle, c.byref(self._tensor(op.output)))
            call("dnnl_graph_add_op", graph, handle)
        except LibraryError as error:
            raise LibraryError(f"{op.kind}: {error}") from error
        finally:
            call("dnnl_graph_op_destroy", handle)

    def _end(self, graph: c.c_void_p) -> None:
        call = self.library.call
        for at, value in enumerate(ends_of(self.plan)):
            handle, number = c.c_void_p(), len(self.plan.ops) + at
            call("dnnl_graph_op_create", c.byref(handle), c.c_size_t(number), _END, b"end")
            call("dnnl_graph_op_add_input", handle, c.byref(self._tensor(value)))
            call("dnnl_graph_add_op", graph, handle)
            call("dnnl_graph_op_destroy", handle)

    def _tensor(self, number: int) -> _Tensor:
        if number not in self.tensors:
            plan = self.plan
            shape = self.shapes.get(number)
            if number in plan.numbers:
                shape = plan.numbers[number].shape
            constant = number in plan.constant or number in plan.numbers
            self.tensors[number] = logical(
                self.library, number, plan.dtypes[number], shape, is_constant=constant
            )
        return self.tensors[number]


def logical(
    library: Library, number: int, dtype: str, shape: Shape | None, *, is_constant: bool = False
) -> _Tensor:
    """Describe a value; row-major if its shape is known, else as the library likes."""
    made = _Tensor()
    kind, of = DTYPES[dtype], _CONSTANT if is_constant else _VARYING
    if shape is None:
        library.call(
            "dnnl_graph_logical_tensor_init",
            c.byref(made),
            c.c_size_t(number),
            kind,
            _UNKNOWN,
            _ANY,
            of,
        )
        return made
    strides = [math.prod(max(size, 1) for size in shape[at + 1 :]) for at in range(len(shape))]
    library.call(
        "dnnl_graph_logical_tensor_init_with_strides",
        c.byref(made),
        c.c_size_t(number),
        kind,
        len(shape),
        _Dims(*shape),
        _Dims(*strides),
        of,
    )
    return made


def _set(library: Library, op: c.c_void_p, name: str, value: Setting) -> None:
    key = SETTINGS[name]
    one = c.c_size_t(1)
    match value:
        case bool():
            library.call("dnnl_graph_op_set_attr_bool", op, key, (c.c_uint8 * 1)(value), one)
        case int():
            library.call("dnnl_graph_op_set_attr_s64", op, key, (c.c_int64 * 1)(value), one)
        case float():
            library.call("dnnl_graph_op_set_attr_f32", op, key, (c.c_float * 1)(value), one)
        case str():
            text = value.encode()
            library.call("dnnl_graph_op_set_attr_str", op, key, text, c.c_size_t(len(text)))
        case [float(), *_]:
            scales = (c.c_float * len(value))(*(float(each) for each in value))
            library.call("dnnl_graph_op_set_attr_f32", op, key, scales, c.c_size_t(len(value)))
        case _:
            numbers = (c.c_int64 * len(value))(*value)
            library.call("dnnl_graph_op_set_attr_s64", op, key, numbers, c.c_size_t(len(value)))


class _Pair(c.Structure):
    """``dnnl_graph_inplace_pair_t``."""

    _fields_ = (("source", c.c_size_t), ("made", c.c_size_t))


class _Step(NamedTuple):
    """A partition as code, with the values that it reads and makes."""

    handle: c.c_void_p
    inputs: list[int]
    outputs: list[int]


_FEWEST_ROWS = 16
_LONGEST_SUM = 2048
_STEP = 512
"""2 KiB of float32: rows so far apart share few sets of the cache."""


def _with_convolution(
    library: Library, plan: KernelPlan, part: _Partition, known: Mapping[int, _Tensor]
) -> tuple[_Partition, int, _Tensor] | None:
    """Return a partition with a product by constant weights as a convolution of width one.

    None if there is none, or if the product is as quick. The bounds were measured with oneDNN 3.2
    and AVX2: within them the convolution takes 0.35 to 1.05 times as long, and outside up to 3
    times. Beside the partition are the weights, and how the convolution reads them.
    """
    ops = [plan.ops[n] for n in part.ops]
    products = [op for op in ops if op.kind == "matmul"]
    if not library.has_slow_products or len(products) != 1:
        return None
    (product,) = products
    data, weights = product.inputs[:2]
    given = {int(port.id): _dims(known[int(port.id)]) for port in part.ports("input")}
    rows, sizes = given.get(data, ()), given.get(weights, ())
    is_turned = bool(product.settings.get("transpose_b"))
    if (
        product.settings.get("transpose_a")
        or not 3 <= len(rows) <= 5  # noqa: PLR2004  # a batch, and windows of one to three sizes
        or len(sizes) != 2  # noqa: PLR2004  # a matrix
        or not (weights in plan.constant or weights in plan.numbers)
        or sum(op.inputs.count(weights) for op in plan.ops) > 1
        or plan.dtypes[weights] != "float32"
        or known[data].layout != _STRIDED
    ):
        return None
    made, summed = sizes if is_turned else sizes[::-1]
    if made % _STEP or summed > _LONGEST_SUM or math.prod(rows[:-1]) < _FEWEST_ROWS:
        return None
    inner = len(rows) - 2
    given[weights] = (*sizes, *(1,) * inner) if is_turned else (*(1,) * inner, *sizes)
    convolution = PlanOp(
        "convolution",
        product.inputs,
        product.output,
        {
            "strides": [1] * inner,
            "pads_begin": [0] * inner,
            "pads_end": [0] * inner,
            "dilations": [1] * inner,
            "data_format": "NXC",
            "weights_format": "OIX" if is_turned else "XIO",
            "groups": 1,
        },
    )
    written = replace(plan, ops=[convolution if op is product else op for op in ops])
    if weights in plan.numbers:
        shaped = plan.numbers[weights].reshape(given[weights])
        written.numbers = {**plan.numbers, weights: shaped}
    try:
        graph = _Graph(library, written, given)
    except RefusedError:
        return None
    if len(graph.partitions) == 1 and graph.partitions[0].is_supported:
        return graph.partitions[0], weights, graph.tensors[weights]
    for each in graph.partitions:
        each.destroy()
    return None


def _dims(tensor: _Tensor) -> Shape:
    return tuple(tensor.dims[: tensor.ndims])


class CompiledPlan:
    """A plan for given shapes, as code.

    Attributes:
        output_shapes: The shape of each output.
    """

    def __init__(self, library: Library, plan: KernelPlan, shapes: Mapping[int, Shape]) -> None:
        """Compile.

        Args:
            library: The library.
            plan: A plan that the library runs.
            shapes: The shape of every input.

        Raises:
            RefusedError: The library does not run it for these shapes.
        """
        plan = replace(plan, shapes=dict(shapes))  # now that they are known
        self._library, self._plan = library, plan
        graph = _Graph(library, plan, shapes)
        if why := _objection(plan, graph.partitions):
            raise RefusedError(f"{why}, for inputs of shapes {list(shapes.values())}")
        given = (*plan.inputs, *plan.numbers)
        known = {number: graph.tensors[number] for number in given if number in graph.tensors}
        compiled = []
        pending = list(graph.partitions)
        while pending:
            part = next(
                part for part in pending if all(int(p.id) in known for p in part.ports("input"))
            )
            pending.remove(part)
            compiled.append(self._with_convolution(part, known) or self._compile(part, known))
        self.output_shapes = [_dims(known[number]) for number in plan.outputs]
        self._buffers, addresses = self._laid_out(compiled, known)
        self._tensors = {
            number: self._bound(tensor, addresses.get(number)) for number, tensor in known.items()
        }
        self._steps = [
            (
                step.handle,
                library.stream,
                c.c_size_t(len(step.inputs)),
                self._handles(step.inputs),
                c.c_size_t(len(step.outputs)),
                self._handles(step.outputs),
            )
            for step in compiled
        ]

    def _handles(self, numbers: Sequence[int]) -> c.Array[c.c_void_p]:
        values = [self._tensors[number].value for number in numbers]
        return (c.c_void_p * len(values))(*values)

    def _with_convolution(self, part: _Partition, known: dict[int, _Tensor]) -> _Step | None:
        """Compile a partition with a convolution for its product; None if the product stays."""
        written = _with_convolution(self._library, self._plan, part, known)
        if written is None:
            return None
        quicker, weights, tensor = written
        tried = {**known, weights: tensor}
        try:
            step = self._compile(quicker, tried, is_plain=True)
        except RefusedError:  # the library has the product, and not the convolution
            return None
        known.update(tried)
        return step

    def _compile(
        self, part: _Partition, known: dict[int, _Tensor], *, is_plain: bool = False
    ) -> _Step:
        """Compile a partition; what it makes joins *known*, laid out as it likes if it is inner."""
        library = self._library
        given = [known[int(port.id)] for port in part.ports("input")]
        made = []
        for port in part.ports("output"):
            out = _Tensor()
            is_last = int(port.id) in self._plan.outputs
            library.call(
                "dnnl_graph_logical_tensor_init",
                c.byref(out),
                c.c_size_t(port.id),
                port.data_type,
                _UNKNOWN,
                _STRIDED if is_last or is_plain else _ANY,
                _VARYING,
            )
            made.append(out)
        handle = c.c_void_p()
        library.call("dnnl_graph_compiled_partition_create", c.byref(handle), part.handle)
        sides = [(c.c_size_t(len(side)), _pointers(side)) for side in (given, made)]
        try:
            library.call(
                "dnnl_graph_partition_compile",
                part.handle,
                handle,
                *sides[0],
                *sides[1],
                library.engine,
            )
        except LibraryError as error:
            raise RefusedError(f"oneDNN does not compile it: {error}") from error
        for out in made:
            full = _Tensor()
            library.call(
                "dnnl_graph_compiled_partition_query_logical_tensor",
                handle,
                c.c_size_t(out.id),
                c.byref(full),
            )
            known[int(full.id)] = full
        return _Step(handle, [int(t.id) for t in given], [int(t.id) for t in made])

    def _laid_out(
        self, steps: Sequence[_Step], known: Mapping[int, _Tensor]
    ) -> tuple[list[NDArray[np.generic]], dict[int, int]]:
        """Give constants and inner values their memory; return it, and the address of each.

        What is not read any more makes room for what comes next, so that little memory is touched:
        it stays in the caches. Where the library can compute in place, as with a residual that it
        adds to, the value takes the place of what it is made from.
        """
        outer = {*self._plan.inputs, *self._plan.outputs, *self._plan.numbers}
        last = {n: at for at, step in enumerate(steps) for n in (*step.inputs, *step.outputs)}
        sizes: list[int] = []
        places: dict[int, int] = {}
        free: list[int] = []
        for at, step in enumerate(steps):
            dying = {n for n in step.inputs if n in places and last[n] == at}
            for source, made in self._pairs_in_place(step):
                if source in dying and made not in outer:
                    places[made] = places[source]
                    dying.remove(source)
            for made in step.outputs:
                if made in outer or made in places:
                    continue
                size = self._size(known[made])
                fitting = [place for place in free if sizes[place] >= size]
                if fitting:
                    places[made] = min(fitting, key=sizes.__getitem__)
                elif free:
                    places[made] = max(free, key=sizes.__getitem__)
                else:
                    places[made] = len(sizes)
                    sizes.append(0)
                sizes[places[made]] = max(sizes[places[made]], size)
                if places[made] in free:
                    free.remove(places[made])
            free += [places[n] for n in dying]
        room = [np.empty(size + _ALIGNMENT, np.uint8) for size in sizes]
        starts = [each.ctypes.data + -each.ctypes.data % _ALIGNMENT for each in room]
        addresses = {number: starts[place] for number, place in places.items()}
        addresses |= {number: array.ctypes.data for number, array in self._plan.numbers.items()}
        return [*room, *self._plan.numbers.values()], addresses

    def _size(self, tensor: _Tensor) -> int:
        size = c.c_size_t()
        self._library.call("dnnl_graph_logical_tensor_get_mem_size", c.byref(tensor), c.byref(size))
        return size.value

    def _pairs_in_place(self, step: _Step) -> list[tuple[int, int]]:
        """Return the inputs that may be written to, each with the output that may be there."""
        count, pairs = c.c_size_t(), c.POINTER(_Pair)()
        self._library.call(
            "dnnl_graph_compiled_partition_get_inplace_ports",
            step.handle,
            c.byref(count),
            c.byref(pairs),
        )
        return [(pairs[n].source, pairs[n].made) for n in range(count.value)]

    def _bound(self, tensor: _Tensor, address: int | None) -> c.c_void_p:
        """Create a tensor; those of inputs and outputs are given their data at each run."""
        handle = c.c_void_p()
        self._library.call(
            "dnnl_graph_tensor_create",
            c.byref(handle),
            c.byref(tensor),
            self._library.engine,
            c.c_void_p(address),
        )
        return handle

    def run(self, inputs: Mapping[int, int], outputs: Sequence[int]) -> None:
        """Run.

        Args:
            inputs: The address of each input that has changed since the last run.
            outputs: Where to write each output.

        Raises:
            LibraryError: The library failed.
        """
        call = self._library.call
        places = zip(self._plan.outputs, outputs, strict=True)
        for number, address in (*inputs.items(), *places):
            if number in self._tensors:
                data = c.c_void_p(address)
                call("dnnl_graph_tensor_set_data_handle", self._tensors[number], data)
        execute = self._library.functions.dnnl_graph_compiled_partition_execute
        for step in self._steps:
            if status := execute(*step):
                raise LibraryError(f"running a partition returned status {status}")
        call("dnnl_stream_wait", self._library.stream)


def _pointers(tensors: Sequence[_Tensor]) -> c.Array[c._Pointer[_Tensor]]:
    return (c.POINTER(_Tensor) * len(tensors))(*map(c.pointer, tensors))
