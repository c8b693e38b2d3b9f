"""A plan as text, which the custom operators in ``native/`` read and run.

It says what each call computes, in lines of words, with oneDNN's own numbers for kinds and
settings. Every decision is in it: what is kept apart, what has to be made, which versions are not
used.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from dplcli.execute.onednn.faults import misread
from dplcli.execute.onednn.library import KNOWN_BAD, OLDEST
from dplcli.execute.plan import TYPE_CODES, signature_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dplcli.execute.plan import KernelPlan, OpenShape, Setting
    from dplcli.ir import Attribute

    Named = tuple[str, KernelPlan, Mapping[str, Attribute]]
    """A call: its name, what it computes, and its attributes."""

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

_PRODUCTS = frozenset({"convolution", "conv_transpose", "matmul"})
_EMPTY = frozenset({"avg_pool", "max_pool", "reduce_mean"}) | _PRODUCTS
"""What oneDNN computes wrongly of tensors without elements, or ends the process."""

MATHS = {"fp32": 0, "bf16": 1}
"""``dnnl_fpmath_mode_t``."""

FEWEST_ROWS = 2
"""Products of fewer rows stay in float32: to pack their operands costs more than it saves."""

_OPEN = -1


def multiplies_steps(plan: KernelPlan) -> bool:
    """Tell whether some product is one of 8-bit numbers."""
    converted = {op.output for op in plan.ops if op.kind == "dequantize"}
    return any(op.kind in _PRODUCTS and converted.issuperset(op.inputs[:2]) for op in plan.ops)


def plan_text(
    functions: Mapping[tuple[str, str], Sequence[Named]], comment: str, *, is_inexact: bool = False
) -> str:
    """Return the plan of the calls of some functions.

    Args:
        functions: The calls of each function, which is known by domain and name.
        comment: Who made it.
        is_inexact: Whether 8-bit products may be inexact.
    """
    lines = _plan_lines(functions, comment, is_inexact=is_inexact)
    return "".join(f"{line}\n" for line in lines)


def hosted_text(functions: Mapping[tuple[str, str], Sequence[Named]]) -> str:
    """Return a plan that names the calls of some functions, and has the program run them."""
    lines = ["dpl-plan 4", "hosted"]
    for (domain, name), calls in functions.items():
        lines.append(_line("function", _word(domain), _word(name), 0, *_types(calls[0][1])))
        lines += [_line("call", _word(call)) for call, *_ in calls]
    return "".join(f"{line}\n" for line in (*lines, "end"))


def _types(plan: KernelPlan) -> Iterator[object]:
    """Return the element types of the inputs and of the outputs of a call."""
    sides = signature_of(plan)
    return chain.from_iterable(_several(TYPE_CODES[dtype] for dtype in side) for side in sides)


def _plan_lines(
    functions: Mapping[tuple[str, str], Sequence[Named]], comment: str, *, is_inexact: bool
) -> Iterator[str]:
    yield "dpl-plan 4"
    yield f"# {comment}"
    yield _line("oldest", *OLDEST)
    for fault in KNOWN_BAD:
        about = (int(fault.is_of_steps), fault.isa, _word(fault.what))
        yield _line("faulty", *fault.first, *fault.mended, *about)
    if is_inexact:
        yield "inexact"
    for (domain, name), calls in functions.items():
        has_steps = any(multiplies_steps(plan) for _, plan, _ in calls)
        yield _line("function", _word(domain), _word(name), int(has_steps), *_types(calls[0][1]))
        for call, plan, attributes in calls:
            yield _line("call", _word(call))
            for key, attribute in attributes.items():
                if (stated := _attribute(attribute)) is not None:
                    yield _line("attribute", _word(key), *stated)
            yield from _call_lines(plan)
    yield "end"


def _call_lines(plan: KernelPlan) -> Iterator[str]:
    used = {number for op in plan.ops for number in (*op.inputs, op.output)}
    for number in sorted(used | set(plan.inputs)):
        yield _line("value", number, DTYPES.get(plan.dtypes[number], 0))
    for number in plan.inputs:
        shape = plan.given.get(number)
        flags = (int(number in plan.constant), int(shape is not None))
        yield _line("input", number, *flags, *_shape(shape or ()))
    for number, view in plan.views.items():
        yield _line("view", number, *_shape(view))
    for number, array in plan.fixed.items():
        yield _line("fixed", number, _bytes(array))
    for number, array in plan.numbers.items():
        yield _line("number", number, *_shape(array.shape), _bytes(array))
    for op in plan.ops:
        yield _line("op", op.kind, KINDS[op.kind], *_several(op.inputs), op.output)
        yield from (_line("set", SETTINGS[name], *_setting(n)) for name, n in op.settings.items())
    yield _line("outputs", *_several(plan.outputs))
    # Ends are read, and to be made all the same: somebody outside reads them, too, or fused with
    # what reads them they would be wrong. Parts say how often a plan that is no region is split.
    read, wrong = {number for op in plan.ops for number in op.inputs}, misread(plan)
    yield _line("ends", *_several(sorted(read.intersection(plan.outputs) | wrong)))
    yield _line("parts", plan.parts + len(wrong))
    if plan.is_region:
        yield "region"
    if any(op.kind in _EMPTY for op in plan.ops):
        yield "elements"
    if plan.math != "fp32":
        yield _line("math", MATHS[plan.math], FEWEST_ROWS)


def _setting(value: Setting) -> tuple[object, ...]:
    match value:
        case bool():
            return "b", 1, int(value)
        case int():
            return "i", 1, value
        case float():
            return "f", 1, _float(value)
        case str():
            return "s", _word(value)
        case _ if any(isinstance(item, float) for item in value):
            return "f", *_several(map(_float, value))
        case _:
            return "i", *_several(value)


def _attribute(attribute: Attribute) -> tuple[object, ...] | None:
    """Return an attribute of a call for the library to compare; None if it cannot."""
    kind, value = attribute.kind, attribute.value
    match value:
        case int() if kind == "int":
            return kind, 1, value
        case float() | int() if kind == "float":
            return kind, 1, _float(value)
        case str() | bytes() if kind == "string":
            data = value.encode() if isinstance(value, str) else value
            return kind, data.hex() or "-"
        case tuple() if kind == "ints":
            return kind, *_several(value)
        case tuple() if kind == "floats":
            return kind, *_several(map(_float, value))
    return None


def _line(*words: object) -> str:
    return " ".join(map(str, words))


def _word(name: str) -> str:
    return quote(name, safe="")


def _several(items: Iterable[object]) -> list[object]:
    found = list(items)
    return [len(found), *found]


def _shape(shape: OpenShape) -> list[object]:
    return _several(size if isinstance(size, int) else _OPEN for size in shape)


def _float(value: float) -> str:
    return np.float32(value).tobytes().hex()


def _bytes(array: np.ndarray) -> str:
    return np.ascontiguousarray(array).tobytes().hex() or "-"
