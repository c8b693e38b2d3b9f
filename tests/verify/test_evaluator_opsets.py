"""What onnx's evaluator makes of each version of each operator: onnxruntime's result, or nothing.

A case is the text of a node, or of several with ";" between, whose last one gives the outputs. It
may begin with the versions that it is for, as in "7-12|". What a node is given stands in its
parentheses: "f2x3" is a tensor of that shape, the letter its kind ("f_" is a scalar, and letters
behind tell two of one kind apart); "{1, 2}" and "3" are whole numbers, "{0.5}" floats, and ":b"
behind them another kind. All of them are inputs of the model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.defs
import onnx.parser
import pytest

from dplcli.verify import Execution
from dplcli.verify.run import Runner
from dplcli.verify.values import ModelSource, RunError
from tests.support.helpers import one_in, proto_from_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dplcli.verify.run import Kind
    from dplcli.verify.values import Array, Outputs

LEAST = 7
"""The oldest opset that onnxruntime runs."""

KINDS = {
    "f": ("float32", -2.0, 2.0),
    "p": ("float32", 0.1, 0.9),
    "l": ("float32", 1.1, 3.0),
    "i": ("int64", 1, 5),
    "n": ("int32", -9, 9),
    "b": ("bool", 0, 2),
    "q": ("uint8", 0, 256),
    "s": ("int8", -128, 128),
    "u": ("uint32", 0, 16),
    "w": ("str", 0, 4),
}
"""Kinds of tensors by their letters: type and range."""

UNARY = (
    *("Abs", "Asinh", "Atan", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Mish"),
    *("Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Size"),
    *("Softplus", "Softsign", "Tan", "Tanh"),
)

ATTRIBUTES = {
    "Celu": "alpha = 2.0",
    "Elu": "alpha = 2.0",
    "Gelu": 'approximate = "tanh"',
    "HardSigmoid": "alpha = 0.5, beta = 0.25",
    "LeakyRelu": "alpha = 0.25",
    "Selu": "alpha = 2.0, gamma = 3.0",
    "Shrink": "lambd = 0.75, bias = 0.25",
    "Swish": "alpha = 2.0",
    "ThresholdedRelu": "alpha = 0.5",
}
"""Attributes of others, which they are also run without."""

REDUCE = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_RECURRENT = {"RNN": 1, "GRU": 3, "LSTM": 4}
_STATES = {"RNN": "f1x2x5i", "GRU": "f1x2x5i", "LSTM": "f1x2x5i, f1x2x5c"}


def recurrent(op: str) -> Iterator[str]:
    """Yield cases of a recurrent operator, of 3 steps, 2 sequences, 4 inputs and 5 states."""
    out = "y, h, c" if op == "LSTM" else "y, h"
    rows = 5 * _RECURRENT[op]
    one = f"f3x2x4, f1x{rows}x4, f1x{rows}x5, f1x{2 * rows}b"
    two = f"f3x2x4, f2x{rows}x4, f2x{rows}x5, f2x{2 * rows}b"
    yield f"{out} = {op} <hidden_size = 5> ({one})"
    yield f"{out} = {op} <hidden_size = 5> (f3x2x4, f1x{rows}x4, f1x{rows}x5)"
    yield f"{out} = {op} <hidden_size = 5> ({one}, none, {_STATES[op]})"
    yield f"{out} = {op} <hidden_size = 5> ({one}, {{3, 2}}:n)"
    yield f"{out} = {op} <hidden_size = 5> ({one}, {{3, 3}}:n)"
    yield f"{out} = {op} <hidden_size = 5, clip = 0.25> ({one})"
    yield f'{out} = {op} <hidden_size = 5, direction = "reverse"> ({one})'
    yield f'{out} = {op} <hidden_size = 5, direction = "bidirectional"> ({two})'
    if op == "RNN":
        yield f'{out} = {op} <hidden_size = 5, activations = ["Relu"]> ({one})'
    if op == "GRU":
        yield f"{out} = {op} <hidden_size = 5, linear_before_reset = 1> ({one})"
        yield f'{out} = {op} <hidden_size = 5, activations = ["Tanh", "Relu"]> ({one})'
    if op == "LSTM":
        acts = '"Sigmoid", "Tanh", "Tanh"'
        yield f"{out} = {op} <hidden_size = 5, activations = [{acts}]> ({one})"
        yield f"{out} = {op} <hidden_size = 5, input_forget = 1> ({one})"
        yield f"{out} = {op} <hidden_size = 5> ({one}, none, {_STATES[op]}, f1x15d)"
        yield f'{out} = {op} <hidden_size = 5, activations = ["Tanh", "Relu", "Sigmoid"]> ({one})'


def reduction(op: str) -> Iterator[str]:
    """Yield cases of a reduction; its axes were an attribute once."""
    kind = "p" if op == "ReduceLogSum" else "f"
    last = 12 if op == "ReduceSum" else 17
    x = f"{kind}2x3x4"
    yield f"y = {op} ({x})"
    yield f"y = {op} <keepdims = 0> ({x})"
    yield f"y = {op} ({kind}_)"
    for axes in ("1", "0, 2"):
        yield f"-{last}| y = {op} <axes = [{axes}]> ({x})"
        yield f"-{last}| y = {op} <axes = [{axes}], keepdims = 0> ({x})"
        yield f"{last + 1}-| y = {op} ({x}, {{{axes}}})"
        yield f"{last + 1}-| y = {op} <keepdims = 0> ({x}, {{{axes}}})"
    yield f"11-{last}| y = {op} <axes = [-1]> ({x})"
    yield f"{last + 1}-| y = {op} ({x}, {{-1}})"
    yield f"{last + 1}-| y = {op} <noop_with_empty_axes = 1> ({x})"
    yield f"{last + 1}-| y = {op} <noop_with_empty_axes = 1> ({x}, {{}})"
    yield f"{last + 1}-| y = {op} ({x}, {{}})"
    if op != "ReduceMean":  # of nothing it is not defined
        yield f"20-| y = {op} <keepdims = 0> ({kind}2x0x3, {{1}})"
    yield f"-27| y = {op} (n2x3)"
    if op in {"ReduceMax", "ReduceMin"}:
        yield f"12-| y = {op} <keepdims = 0> (s2x3)"
        yield f"20-| y = {op} <keepdims = 0> (b2x3)"


def flattened(op: str) -> Iterator[str]:
    """Yield cases of an operator that once made its input two-dimensional."""
    yield f"y = {op} (f2x3x4)"
    yield f"y = {op} (f2x3)"
    for axis in (0, 1, 2):
        yield f"y = {op} <axis = {axis}> (f2x3x4)"
    yield f"11-| y = {op} <axis = -2> (f2x3x4)"
    yield f"11-| y = {op} <axis = -1> (f2x3x4)"


def arguments(op: str) -> Iterator[str]:
    """Yield cases of ArgMax or ArgMin, with ties."""
    yield f"y = {op} (f2x3)"
    yield f"y = {op} <axis = 1> (n3x40)"
    yield f"y = {op} <axis = 1, keepdims = 0> (f2x3x4)"
    yield f"11-| y = {op} <axis = -1> (f2x3)"
    yield f"12-| y = {op} <axis = 1, select_last_index = 1> (n3x40)"


def pooling(op: str) -> Iterator[str]:
    """Yield cases of a pooling."""
    x = "f1x2x7x7"
    yield f"y = {op} <kernel_shape = [3, 2]> ({x})"
    yield f"y = {op} <kernel_shape = [3]> (f1x2x7)"
    yield f"y = {op} <kernel_shape = [3, 3], strides = [2, 3]> ({x})"
    yield f"y = {op} <kernel_shape = [3, 3], pads = [1, 0, 1, 2], strides = [2, 2]> ({x})"
    yield f"y = {op} <kernel_shape = [3, 3], pads = [1, 0, 1, 2]> ({x})"
    yield f"y = {op} <kernel_shape = [3], pads = [1, 2]> (f1x2x7)"
    yield f"y = {op} <kernel_shape = [2, 2, 2], pads = [1, 0, 1, 0, 0, 1]> (f1x2x4x4x4)"
    for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield f'y = {op} <kernel_shape = [3, 2], strides = [2, 2], auto_pad = "{auto}"> ({x})'
    ceil, dilated = {"AveragePool": (10, 19), "MaxPool": (10, 10), "LpPool": (18, 18)}[op]
    yield f"{ceil}-| y = {op} <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> ({x})"
    yield f"{ceil}-| y = {op} <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (f1x2x6x6)"
    padded = "kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2], ceil_mode = 1"
    yield f"{ceil}-| y = {op} <{padded}> ({x})"
    yield f"{ceil}-| y = {op} <{padded}> (f1x2x6x6)"
    yield f"{dilated}-| y = {op} <kernel_shape = [2, 2], dilations = [2, 3]> ({x})"
    if op == "AveragePool":
        for text in ("kernel_shape = [3, 3], pads = [1, 0, 1, 2]", padded):
            first = 10 if "ceil" in text else 7
            yield f"{first}-| y = {op} <{text}, count_include_pad = 1> ({x})"
            yield f"{first}-| y = {op} <{text}, count_include_pad = 1> (f1x2x6x6)"
    if op == "MaxPool":
        pads = "pads = [1, 0, 1, 2]"
        yield f"8-| y, z = {op} <kernel_shape = [3, 2], strides = [2, 1]> (f2x2x5x6)"
        yield f"8-| y, z = {op} <kernel_shape = [3, 3], {pads}, storage_order = 1> (f1x2x5x6)"
        yield f"12-| y = {op} <kernel_shape = [2, 2]> (s1x2x5x5)"
    if op == "LpPool":
        yield f"y = {op} <kernel_shape = [2, 2], p = 1> ({x})"


def resizing() -> Iterator[str]:
    """Yield cases of Resize; version 10 has scales only, and no attribute but its mode."""
    for mode in ("nearest", "linear"):
        for scales in ("{1.0, 1.0, 2.0, 2.0}", "{1.0, 1.0, 1.7, 0.6}"):
            yield f'10| y = Resize <mode = "{mode}"> (f1x2x4x5, {scales})'
    for mode in ("nearest", "linear", "cubic"):
        for scales in ("{1.0, 1.0, 2.0, 2.0}", "{1.0, 1.0, 1.7, 0.6}"):
            yield f'11-| y = Resize <mode = "{mode}"> (f1x2x4x5, {{}}:f, {scales})'
        yield f'11-12| y = Resize <mode = "{mode}"> (f1x2x4x5, {{}}:f, {{}}:f, {{1, 2, 7, 3}})'
        yield f'13-| y = Resize <mode = "{mode}"> (f1x2x4x5, {{}}:f, none, {{1, 2, 7, 3}})'
        text = f'mode = "{mode}", coordinate_transformation_mode = "pytorch_half_pixel"'
        yield f"11-| y = Resize <{text}> (f1x2x4x5, {{}}:f, {{1.0, 1.0, 1.7, 0.3}})"
        ways = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
        for way in (*ways, "half_pixel_symmetric"):
            text = f'mode = "{mode}", coordinate_transformation_mode = "{way}"'
            first = 19 if way.endswith("symmetric") else 11
            yield f"{first}-| y = Resize <{text}> (f1x2x4x5, {{}}:f, {{1.0, 1.0, 1.7, 0.6}})"
        roi = "{0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.8, 0.9}"
        text = f'mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize"'
        yield f"11-12| y = Resize <{text}> (f1x2x4x5, {roi}, {{}}:f, {{1, 2, 5, 4}})"
        yield f"13-| y = Resize <{text}> (f1x2x4x5, {roi}, none, {{1, 2, 5, 4}})"
        yield f"11-| y = Resize <{text}> (f1x2x4x5, {roi}, {{1.0, 1.0, 1.3, 0.9}})"
        scaled = "{1.0, 1.0, 0.6, 0.7}"
        if mode != "nearest":
            yield f'18-| y = Resize <mode = "{mode}", antialias = 1> (f1x2x8x9, none, {scaled})'
        yield f'18-| y = Resize <mode = "{mode}", axes = [2, 3]> (f1x2x4x5, none, {{2.0, 0.5}})'
        for policy in ("not_larger", "not_smaller"):
            text = f'mode = "{mode}", axes = [2, 3], keep_aspect_ratio_policy = "{policy}"'
            yield f"18-| y = Resize <{text}> (f1x2x4x5, none, none, {{7, 6}})"
    text = 'mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"'
    roi = "{0.0, 0.0, -0.5, 0.2, 1.0, 1.0, 0.8, 1.9}"
    text = f"{text}, extrapolation_value = 9.0"
    yield f"11-| y = Resize <{text}> (f1x2x4x5, {roi}, {{1.0, 1.0, 2.0, 1.2}})"
    for way in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        text = f'mode = "nearest", nearest_mode = "{way}"'
        yield f"11-| y = Resize <{text}> (f1x2x4x5, {{}}:f, {{1.0, 1.0, 1.6, 0.7}})"
    for text in ("cubic_coeff_a = -0.5", "exclude_outside = 1"):
        cubic = f'mode = "cubic", {text}'
        yield f"11-| y = Resize <{cubic}> (f1x2x4x5, {{}}:f, {{1.0, 1.0, 1.6, 0.7}})"


def padding() -> Iterator[str]:
    """Yield cases of Pad; its pads were an attribute once."""
    for mode in ("constant", "reflect", "edge"):
        yield f'-10| y = Pad <mode = "{mode}", pads = [0, 1, 2, 1]> (f3x4)'
        yield f'11-| y = Pad <mode = "{mode}"> (f3x4, {{0, 1, 2, 1}})'
    yield "-10| y = Pad <pads = [0, 1, 2, 1], value = 1.5> (f3x4)"
    yield "-10| y = Pad <pads = [0, -1, 2, 1]> (f3x4)"
    yield "11-| y = Pad (f3x4, {0, 1, 2, 1}, 1.5)"
    yield "11-| y = Pad (f3x4, {0, -1, 2, 1})"
    yield "18-| y = Pad (f3x4, {1, 2}, none, {1})"
    yield "18-| y = Pad (f3x4, {1, 2}, none, {-2})"
    yield '19-| y = Pad <mode = "wrap"> (f3x4, {1, 1, 2, 1})'


def convolution(op: str) -> Iterator[str]:
    """Yield cases of Conv or ConvTranspose."""
    x, w = "f1x4x6x7", "f4x4x3x2"
    yield f"y = {op} ({x}, {w})"
    yield f"y = {op} (f1x4x6, f4x4x3)"
    yield f"y = {op} <kernel_shape = [3, 2]> ({x}, {w}, f4)"
    yield f"y = {op} <strides = [2, 3], pads = [1, 0, 2, 1], dilations = [2, 1]> ({x}, {w})"
    yield f"y = {op} <group = 2> ({x}, f4x2x3x2)"
    for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        yield f'y = {op} <strides = [2, 2], auto_pad = "{auto}"> ({x}, {w})'
    if op == "ConvTranspose":
        yield f"y = {op} <strides = [2, 2], output_padding = [1, 0]> ({x}, {w})"
        yield f"y = {op} <strides = [2, 2], output_shape = [14, 15]> ({x}, {w})"
        yield f"y = {op} <group = 2, strides = [2, 2]> ({x}, f4x3x3x2, f6)"
        yield f"y = {op} <group = 4, pads = [1, 0, 0, 1]> ({x}, f4x1x3x2, f4)"
        yield f"y = {op} <strides = [2, 2], output_shape = [11, 13]> ({x}, {w})"


def broadcast(op: str, kind: str = "f") -> Iterator[str]:
    """Yield cases of an operator of two tensors."""
    yield f"y = {op} ({kind}2x3a, {kind}2x3b)"
    yield f"y = {op} ({kind}4x1x3, {kind}2x1)"
    yield f"y = {op} ({kind}2x3, {kind}_)"


CASES: dict[str, Sequence[str]] = {
    **{op: [f"y = {op} (f2x3)"] for op in UNARY},
    **{op: [f"y = {op} (f2x3)", f"y = {op} <{text}> (f2x3)"] for op, text in ATTRIBUTES.items()},
    **{op: [f"y = {op} (p2x3)"] for op in ("Acos", "Asin", "Atanh", "Log", "Sqrt")},
    **{f"Reduce{op}": [*reduction(f"Reduce{op}")] for op in REDUCE},
    **{op: [*flattened(op)] for op in ("Hardmax", "LogSoftmax", "Softmax")},
    **{op: [*arguments(op)] for op in ("ArgMax", "ArgMin")},
    **{op: [*pooling(op)] for op in ("AveragePool", "LpPool", "MaxPool")},
    **{op: [*convolution(op)] for op in ("Conv", "ConvTranspose")},
    **{op: [*recurrent(op)] for op in ("GRU", "LSTM", "RNN")},
    **{op: [*broadcast(op), *broadcast(op, "n")] for op in ("Add", "Div", "Mul", "Sub")},
    **{op: [*broadcast(op, "b")] for op in ("And", "Or", "Xor")},
    **{op: [*broadcast(op, "n")] for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{
        op: [*broadcast(op), *(f"9-| {case}" for case in broadcast(op, "n"))]
        for op in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{
        op: [
            f"y = {op} (f2x3)",
            f"y = {op} (f2x3a, f2x3b, f2x3c)",
            *(f"8-| {case}" for case in broadcast(op)),
            *(f"12-| {case}" for case in broadcast(op, "n") if op in {"Max", "Min"}),
        ]
        for op in ("Max", "Mean", "Min", "Sum")
    },
    **{
        f"{op}Window": [f"y = {op}Window (9)", f"y = {op}Window <periodic = 0> (9)"]
        for op in ("Blackman", "Hamming", "Hann")
    },
    **{f"Global{op}Pool": [f"y = Global{op}Pool (f2x3x4x5)"] for op in ("Average", "Max", "Lp")},
    "Acosh": ["y = Acosh (l2x3)"],
    "AffineGrid": [
        "y = AffineGrid (f2x2x3, {2, 3, 4, 5})",
        "y = AffineGrid <align_corners = 1> (f2x2x3, {2, 3, 4, 5})",
        "y = AffineGrid (f2x3x4, {2, 3, 4, 5, 6})",
    ],
    "Attention": [
        "y = Attention (f2x2x3x4a, f2x2x5x4b, f2x2x5x4c)",
        "y = Attention <is_causal = 1> (f2x2x3x4a, f2x2x5x4b, f2x2x5x4c)",
        "y = Attention <scale = 0.3, softcap = 2.0> (f2x2x3x4a, f2x2x5x4b, f2x2x5x4c)",
        "y = Attention (f2x2x3x4a, f2x2x5x4b, f2x2x5x4c, f3x5)",
        "y = Attention (f2x2x3x4a, f2x2x5x4b, f2x2x5x4c, b3x5)",
        "y = Attention (f2x4x3x4a, f2x2x5x4b, f2x2x5x4c)",
        "y = Attention <q_num_heads = 2, kv_num_heads = 2> (f2x3x8a, f2x5x8b, f2x5x8c)",
        "y, k, v = Attention (f2x2x3x4a, f2x2x3x4b, f2x2x3x4c, none, f2x2x5x4d, f2x2x5x4e)",
        """y, k, v = Attention <is_causal = 1>
        (f2x2x3x4a, f2x2x3x4b, f2x2x3x4c, none, f2x2x5x4d, f2x2x5x4e)""",
        "24-| y = Attention (f2x2x3x4a, f2x2x5x4b, f2x2x5x4c, none, none, none, {3, 5})",
        "25-| y = Attention <left_window_size = 1> (f2x2x5x4a, f2x2x5x4b, f2x2x5x4c)",
    ],
    "BatchNormalization": [
        "y = BatchNormalization (f2x3x4, f3a, f3b, f3c, p3)",
        "y = BatchNormalization <epsilon = 0.1> (f2x3x4x5, f3a, f3b, f3c, p3)",
        "-8| y = BatchNormalization <momentum = 0.5> (f2x3, f3a, f3b, f3c, p3)",
        "-8| y = BatchNormalization <spatial = 0> (f2x1x4, f1x4a, f1x4b, f1x4c, p1x4)",
        "14-| y, m, v = BatchNormalization <training_mode = 1> (f2x3x4, f3a, f3b, f3c, p3)",
    ],
    "BitCast": [f"y = BitCast <to = {to}> (f2x3)" for to in (6, 12)],
    "BitShift": [
        *(f'y = BitShift <direction = "{way}"> (u2x3a, u2x3b)' for way in ("LEFT", "RIGHT")),
        *(f'28-| y = BitShift <direction = "{way}"> (n2x3, {{3}}:n)' for way in ("LEFT", "RIGHT")),
    ],
    "BitwiseNot": ["y = BitwiseNot (n2x3)"],
    "Cast": [
        *(f"y = Cast <to = {to}> (f2x3)" for to in (1, 6, 7, 9, 10, 11)),
        *(f"y = Cast <to = {to}> (n2x3)" for to in (1, 7, 9, 10)),
        "y = Cast <to = 7> (b2x3)",
        "9-| y = Cast <to = 8> (n2x3)",
        "9-| y = Cast <to = 8> (f2x3)",
        "9-| text = Cast <to = 8> (n2x3); y = Cast <to = 1> (text)",
        *(f"19-| y = Cast <to = {to}> (f2x3)" for to in (16, 17, 19)),
        *(f"19-| y = Cast <to = {to}, saturate = 0> ({{500.0, 9e9}})" for to in (17, 19)),
        *(f"23-| z = Cast <to = {to}> (f2x3); y = Cast <to = 1> (z)" for to in (21, 22, 23)),
        *(f"25-| z = Cast <to = {to}> (f2x3); y = Cast <to = 1> (z)" for to in (25, 26)),
    ],
    "CastLike": [
        "y = CastLike (f2x3, i_)",
        "y = CastLike (n2x3, f_)",
        "y = CastLike (f2, b1)",
        "y = CastLike (f2x3, w1)",
    ],
    "CausalConvWithState": [
        "y, s = CausalConvWithState (f2x3x5, f3x1x4)",
        'y, s = CausalConvWithState <activation = "silu"> (f2x3x5, f3x1x4, f3, f2x3x3)',
    ],
    "CenterCropPad": [
        "y = CenterCropPad (f3x8, {5, 4})",
        "y = CenterCropPad <axes = [-1]> (f3x8, {11})",
    ],
    "Clip": [
        "-10| y = Clip (f2x3)",
        "-10| y = Clip <min = -0.5, max = 0.25> (f2x3)",
        "-10| y = Clip <max = 0.25> (f2x3)",
        "11-| y = Clip (f2x3)",
        "11-| y = Clip (f2x3, -0.5, 0.25)",
        "11-| y = Clip (f2x3, none, 0.25)",
        "11-| y = Clip (f2x3, -0.5)",
        "11-| y = Clip (f2x3, 0.5, -0.25)",
        "12-| y = Clip (s2x3, -5:s, 9:s)",
    ],
    "Col2Im": [
        "y = Col2Im (f1x5x5, {5, 5}, {1, 5})",
        "y = Col2Im <strides = [2, 2], pads = [1, 1, 1, 1]> (f1x9x4, {4, 4}, {3, 3})",
    ],
    "Compress": [
        "y = Compress <axis = 1> (f2x3, {1, 0, 1}:b)",
        "y = Compress (f2x3, {1, 0, 1}:b)",
        "11-| y = Compress <axis = -1> (f2x3, {0, 1}:b)",
    ],
    "Concat": [
        "y = Concat <axis = 1> (f2x3, f2x1)",
        "y = Concat <axis = 0> (f2x3a, f2x3b, f1x3)",
        "11-| y = Concat <axis = -1> (f2x3, f2x1)",
    ],
    "ConcatFromSequence": [
        "l = SequenceConstruct (f2x3a, f2x3b); y = ConcatFromSequence <axis = 1> (l)",
        "l = SequenceConstruct (f2x3a, f2x3b);y = ConcatFromSequence <axis = 1, new_axis = 1> (l)",
        "l = SequenceConstruct (f2x3a, f2x3b);y = ConcatFromSequence <axis = -1, new_axis = 1> (l)",
    ],
    "Constant": [
        "y = Constant <value = float[2] {0.5, 1.5}> ()",
        *(
            f"12-| y = Constant <value_{text}> ()"
            for text in ("int = 3", "ints = [1, 2]", "float = 0.5", "floats = [0.5, 1.5]")
        ),
        '12-| y = Constant <value_string = "a"> ()',
        '12-| y = Constant <value_strings = ["a", "b"]> ()',
    ],
    "ConstantOfShape": [
        "y = ConstantOfShape ({2, 3})",
        "y = ConstantOfShape <value = int64[1] {3}> ({2, 3})",
        "y = ConstantOfShape <value = int64[1] {3}> ({}:i)",
    ],
    "ConvInteger": [
        "y = ConvInteger (q1x2x5x5, q3x2x3x3)",
        "y = ConvInteger <pads = [1, 1, 1, 1]> (q1x2x5x5, q3x2x3x3, 7:q, 9:q)",
        "y = ConvInteger (q1x2x5x5, s3x2x3x3, 7:q)",
    ],
    "CumProd": [
        "y = CumProd (f3x4, 1)",
        "y = CumProd <exclusive = 1> (f3x4, 0)",
        "y = CumProd <reverse = 1, exclusive = 1> (f3x4, -1)",
    ],
    "CumSum": [
        "y = CumSum (f3x4, 1)",
        "y = CumSum <exclusive = 1> (f3x4, 0)",
        "y = CumSum <reverse = 1> (f3x4, 0)",
        "y = CumSum <reverse = 1, exclusive = 1> (f3x4, -1)",
    ],
    "DFT": [
        "-19| y = DFT (f2x5x1)",
        "-19| y = DFT <axis = 1, onesided = 1> (f2x5x1)",
        "-19| y = DFT <axis = 2> (f2x5x4x1)",
        "-19| y = DFT <inverse = 1> (f2x5x2)",
        "-19| y = DFT (f2x5x1, 4)",
        "20-| y = DFT (f2x5x1)",
        "20-| y = DFT <onesided = 1> (f2x5x1, none, 1)",
        "20-| y = DFT (f2x5x4x1)",
        "20-| y = DFT (f2x5x4x1, none, 1)",
        "20-| y = DFT <inverse = 1> (f2x5x2)",
        "20-| y = DFT (f2x5x1, 4)",
    ],
    "DeformConv": ["y = DeformConv (f1x2x5x5, f3x2x2x2, f1x8x4x4)"],
    "DepthToSpace": [
        "y = DepthToSpace <blocksize = 2> (f1x8x2x3)",
        '11-| y = DepthToSpace <blocksize = 2, mode = "CRD"> (f1x8x2x3)',
    ],
    "DequantizeLinear": [
        "y = DequantizeLinear (q2x3, 0.5)",
        "y = DequantizeLinear (s2x3, 0.5, 9:s)",
        "y = DequantizeLinear (n2x3, 0.5)",
        "13-| y = DequantizeLinear (s2x3, p3, s3)",
        "13-| y = DequantizeLinear <axis = 0> (s2x3, p2, s2)",
        "13-| y = DequantizeLinear <axis = -1> (s2x3x4, p4, s4)",
        "21-| y = DequantizeLinear <axis = 1, block_size = 2> (s2x6, p2x3, s2x3)",
    ],
    "Det": ["y = Det (f3x3)", "y = Det (f2x3x3)"],
    "Dropout": [
        "y = Dropout (f2x3)",
        "10-| y, mask = Dropout (f2x3)",
        "-11| y = Dropout <ratio = 0.25> (f2x3)",
        "12-| y = Dropout (f2x3, 0.25)",
        "12-| y, mask = Dropout (f2x3, 0.0, 1:b)",
        "12-| y, mask = Dropout (f2x3, 0.5, 0:b)",
    ],
    "DynamicQuantizeLinear": ["y, s, z = DynamicQuantizeLinear (f2x3)"],
    "Einsum": [
        'y = Einsum <equation = "ij,jk->ik"> (f2x3, f3x4)',
        'y = Einsum <equation = "...ij->...ji"> (f2x3x4)',
        'y = Einsum <equation = "ij,jk"> (f2x3, f3x4)',
    ],
    "Equal": [
        *broadcast("Equal", "n"),
        "y = Equal (b2x3a, b2x3b)",
        "11-| y = Equal (f2x3, f2x3)",
        "19-| y = Equal (w9, w9a)",
    ],
    "Expand": ["y = Expand (f2x1, {3, 1, 4})", "y = Expand (f2x3, {1})", "y = Expand (f1, {2, 3})"],
    "EyeLike": ["y = EyeLike (f3x4)", "y = EyeLike <k = 1, dtype = 7> (f3x4)"],
    "Flatten": [
        "y = Flatten (f2x3x4)",
        *(f"y = Flatten <axis = {axis}> (f2x3x4)" for axis in (0, 2, 3)),
        "11-| y = Flatten <axis = -1> (f2x3x4)",
    ],
    "Gather": [
        "y = Gather (f5x3, {0, 2})",
        "y = Gather (f5x3, i2x2)",
        "y = Gather <axis = 1> (f5x3, 1)",
        "11-| y = Gather <axis = -1> (f5x3, {0, -1}:n)",
    ],
    "GatherElements": [
        "y = GatherElements (f5x3, i2x3)",
        "y = GatherElements <axis = -1> (f3x5, i3x2)",
        "ids = Neg (i3x2); y = GatherElements <axis = 1> (f3x5, ids)",
    ],
    "GatherND": [
        "y = GatherND (f5x5, i3x2)",
        "y = GatherND (f5x5, i3x1)",
        "12-| y = GatherND <batch_dims = 1> (f3x5x2, i3x1)",
    ],
    "Gemm": [
        "y = Gemm (f2x3, f3x4, f2x4)",
        "y = Gemm <alpha = 0.5, beta = 0.25> (f2x3, f3x4, f4)",
        "y = Gemm <transA = 1, transB = 1> (f3x2, f4x3, f2x1)",
        "y = Gemm (f2x3, f3x4, f_)",
        "11-| y = Gemm (f2x3, f3x4)",
    ],
    "GridSample": [
        *(
            f'-19| y = GridSample <mode = "{mode}"{text}> (f1x2x4x5, f1x3x3x2)'
            for mode in ("bilinear", "nearest", "bicubic")
            for text in ("", ", align_corners = 1", ', padding_mode = "border"')
        ),
        *(
            f'20-| y = GridSample <mode = "{mode}"{text}> (f1x2x4x5, f1x3x3x2)'
            for mode in ("linear", "nearest", "cubic")
            for text in ("", ", align_corners = 1", ', padding_mode = "reflection"')
        ),
        "20-| y = GridSample (f1x2x3x4x5, f1x3x3x2x3)",
    ],
    "GroupNormalization": [
        "-20| y = GroupNormalization <num_groups = 2> (f2x4x5, f2a, f2b)",
        "21-| y = GroupNormalization <num_groups = 2, epsilon = 0.1> (f2x4x5, f4a, f4b)",
    ],
    "Identity": [
        "y = Identity (f2x3)",
        "14-| l = SequenceConstruct (f2x3, f2); y = Identity (l)",
        "16-| o = Optional (f2x3); p = Identity (o); y = OptionalGetElement (p)",
    ],
    "If": [
        f"y = If ({flag}:b) <then_branch = g () => (float[2] u) {{ u = Abs (f2) }},"
        " else_branch = h () => (float[2] v) { v = Neg (f2) }>"
        for flag in (0, 1)
    ],
    "ImageDecoder": ["y = ImageDecoder (q9)"],
    "InstanceNormalization": ["y = InstanceNormalization <epsilon = 0.1> (f2x3x4x5, f3a, f3b)"],
    "IsInf": [
        "a = Div (f9, {0.0}); y = IsInf (a)",
        "a = Div (f9, {0.0}); y = IsInf <detect_negative = 0> (a)",
        "a = Div (f9, {0.0}); y = IsInf <detect_positive = 0> (a)",
    ],
    "IsNaN": ["a = Sqrt (f9); y = IsNaN (a)"],
    "LRN": [
        "y = LRN <size = 3> (f2x5x3x3)",
        "y = LRN <size = 5, alpha = 0.5, beta = 0.5, bias = 2.0> (f2x5x3x3)",
    ],
    "LayerNormalization": [
        "y = LayerNormalization (f2x3x4, f4a, f4b)",
        "y, m, d = LayerNormalization <axis = 1, epsilon = 0.1> (f2x3x4, f3x4)",
    ],
    "LinearAttention": [
        f'y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "{rule}">'
        f" (f2x3x8a, f2x3x8b, f2x3x8c{more})"
        for rule, more in (("linear", ""), ("gated", ", none, f2x3x2d"))
    ],
    "Loop": [
        """y, z = Loop (3, 1:b, f2) <body = g (int64 i, bool go, float[2] s)
        => (bool on, float[2] t, float[2] z) { on = Identity (go) t = Add (s, s) z = Neg (s) }>""",
    ],
    "LpNormalization": [
        "y = LpNormalization (f2x3)",
        "y = LpNormalization <axis = 0, p = 1> (f2x3)",
    ],
    "MatMul": [
        f"y = MatMul ({a}, {b})"
        for a, b in (("f2x3", "f3x4"), ("f2x1x2x3", "f4x3x2"), ("f3", "f3x4"), ("f2x3", "f3"))
    ],
    "MatMulInteger": ["y = MatMulInteger (q2x3, q3x4)", "y = MatMulInteger (q2x3, s3x4, 7:q, 9:s)"],
    "MaxRoiPool": [
        """boxes = Reshape ({0.0, 1.0, 1.0, 4.0, 5.0}, {1, 5});
        y = MaxRoiPool <pooled_shape = [2, 2]> (f1x2x6x6, boxes)""",
    ],
    "MaxUnpool": [
        f"p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({x});"
        f"y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (p, i{shape})"
        for x, shape in (
            ("f1x2x4x4", ""),
            ("f1x2x5x5", ", {1, 2, 5, 5}"),
            ("f1x1x3x3", ", {1, 1, 3, 3}"),
        )
    ],
    "MeanVarianceNormalization": [
        "y = MeanVarianceNormalization (f2x3x4x5)",
        "y = MeanVarianceNormalization <axes = [1, 2]> (f2x3x4x5)",
    ],
    "MelWeightMatrix": ["y = MelWeightMatrix (4, 64, 8192, 0.0, 4000.0)"],
    "Mod": [
        "y = Mod (n9, n9b)",
        "y = Mod <fmod = 1> (f2x3a, f2x3b)",
        "y = Mod <fmod = 1> (n9, n9b)",
    ],
    "NegativeLogLikelihoodLoss": [
        f'y = NegativeLogLikelihoodLoss <reduction = "{way}"{text}> (f3x5x2, i3x2{weight})'
        for way in ("mean", "sum", "none")
        for text, weight in (("", ""), (", ignore_index = 1", ", f5"))
    ],
    "NonMaxSuppression": [
        "y = NonMaxSuppression (p1x9x4, p1x2x9)",
        *(
            f"y = NonMaxSuppression {way} (p1x9x4, p1x2x9, {{4}}, {{0.2}}, {{0.3}})"
            for way in ("", "<center_point_box = 1>")
        ),
    ],
    "NonZero": ["y = NonZero (b3x4)"],
    "Not": ["y = Not (b2x3)"],
    "OneHot": [
        "y = OneHot (i2x3, 5, {0.0, 1.0})",
        "y = OneHot <axis = 1> (i2x3, {5}, {-1.0, 1.0})",
        "y = OneHot <axis = 0> (i2x3, 3, {0.0, 1.0})",
        "11-| y = OneHot <axis = -2> ({0, -1, 9, -9}, 5, {0.0, 1.0})",
    ],
    "Optional": ["o = Optional (f2x3); y = OptionalGetElement (o)"],
    "OptionalGetElement": [
        "o = Optional (f2x3); y = OptionalGetElement (o)",
        "18-| y = OptionalGetElement (f2x3)",
    ],
    "OptionalHasElement": [
        "o = Optional (f2x3); y = OptionalHasElement (o)",
        "18-| y = OptionalHasElement (f2x3)",
        "18-| y = OptionalHasElement (none)",
    ],
    "PRelu": ["y = PRelu (f2x3x4, f_)", "y = PRelu (f2x3x4, f3x1)", "y = PRelu (f2x3, f3)"],
    "Pad": [*padding()],
    "Pow": [
        "y = Pow (p2x3, f2x3)",
        "y = Pow (f2x1, 2.0)",
        "12-| y = Pow (f2x3, n2x3)",
        "12-| y = Pow (n2x3, 2.5)",
        "12-| y = Pow (n2x3, i2x3)",
    ],
    "QLinearConv": [
        "y = QLinearConv (q1x2x5x5, 0.02, 9:q, q3x2x3x3, 0.03, 7:q, 0.9, 5:q)",
        """y = QLinearConv <pads = [1, 1, 1, 1]>
        (q1x2x5x5, 0.02, 9:q, s3x2x3x3, p3, {0, 0, 0}:s, 0.9, 128:q, n3)""",
        "y = QLinearConv (q1x2x5, 0.02, 9:q, s3x2x3, p3, {0, 0, 0}:s, 0.9, 128:q)",
    ],
    "QLinearMatMul": [
        "y = QLinearMatMul (q2x3, 0.02, 9:q, q3x4, 0.03, 7:q, 0.9, 5:q)",
        "y = QLinearMatMul (s2x3, 0.02, 9:s, s3x4, 0.03, 7:s, 0.9, 5:s)",
    ],
    "QuantizeLinear": [
        "y = QuantizeLinear (f2x3, 0.5)",
        "y = QuantizeLinear ({0.5, 1.5, 2.5, -0.5, -1.5, 99.0}, 1.0, 9:s)",
        "y = QuantizeLinear (f2x3, 0.01, 120:q)",
        "13-| y = QuantizeLinear (f2x3, p3, s3)",
        "13-| y = QuantizeLinear <axis = 0> (f2x3, p2, s2)",
        "13-| y = QuantizeLinear <axis = -1> (f2x3x4, p4, s4)",
        "21-| y = QuantizeLinear <output_dtype = 3> (f2x3, 0.5)",
        "21-| z = QuantizeLinear <output_dtype = 22> (f2x3, 0.5); y = DequantizeLinear (z, 0.5)",
        "21-| y = QuantizeLinear <axis = 1, block_size = 2> (f2x6, p2x3, s2x3)",
    ],
    "RMSNormalization": [
        "y = RMSNormalization (f2x3x4, f4)",
        "y = RMSNormalization <axis = 1, epsilon = 0.1> (f2x3x4, f3x4)",
    ],
    "Range": ["y = Range (1, 9, 3)", "y = Range (1.0, -0.9, -0.3)", "y = Range (5:n, 1:n, 1:n)"],
    "RegexFullMatch": ['y = RegexFullMatch <pattern = "a.?"> (w9)'],
    "Reshape": [
        "y = Reshape (f2x3x4, {4, 6})",
        "y = Reshape (f2x3x4, {0, -1})",
        "14-| y = Reshape <allowzero = 1> (f0x3, {3, 0})",
    ],
    "Resize": [*resizing()],
    "ReverseSequence": [
        "y = ReverseSequence (f4x3, {1, 4, 2})",
        "y = ReverseSequence <batch_axis = 0, time_axis = 1> (f3x4, {1, 4, 2})",
    ],
    "RoiAlign": [
        "boxes = Reshape ({0.3, 0.6, 4.0, 3.5, 1.0, 0.0, 5.0, 5.0}, {2, 4});"
        f"y = RoiAlign <output_height = 2, output_width = 3{text}> (f1x2x6x6, boxes, {{0, 0}})"
        for text in (
            "",
            ", sampling_ratio = 2, spatial_scale = 0.5",
            ', mode = "max"',
            ', mode = "max", sampling_ratio = 2',
        )
    ],
    "RotaryEmbedding": [
        "y = RotaryEmbedding (f2x2x3x4, f2x3x2a, f2x3x2b)",
        "y = RotaryEmbedding <interleaved = 1> (f2x2x3x4, f9x2a, f9x2b, i2x3)",
        "y = RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4> (f2x3x8, f9x2, f9x2b, i2x3)",
    ],
    "STFT": [
        "y = STFT (f1x16x1, 4, none, 8)",
        "y = STFT <onesided = 0> (f1x16x1, 4, f8)",
    ],
    "Scan": [
        """-8| y, z = Scan <num_scan_inputs = 1, body = g (float[2] s, float[2] e)
        => (float[2] t, float[2] z) { t = Add (s, e) z = Neg (t) }> (none, f1x2, f1x3x2)""",
        """-8| y = Scan <num_scan_inputs = 1, body = g (float[2] e)
        => (float[2] z) { z = Neg (e) }> ({3}, f1x3x2)""",
        *(
            f"9-| y, z = Scan <num_scan_inputs = 1, body = g (float[2] s, float[2] e)"
            f" => (float[2] t, float[2] z) {{ t = Add (s, e) z = Neg (t) }}{text}> (f2, {x})"
            for text, x in (
                ("", "f3x2"),
                (", scan_input_axes = [1], scan_output_axes = [1]", "f2x3"),
                (", scan_input_directions = [1]", "f3x2"),
                (", scan_output_directions = [1]", "f3x2"),
            )
        ),
    ],
    "Scatter": ["-10| y = Scatter <axis = 1> (f2x5, i2x1, f2x1)"],
    "ScatterElements": [
        "y = ScatterElements (f5x5, i1x2, f1x2)",
        "y = ScatterElements <axis = -1> (f5x5, i3x1, f3x1)",
        *(
            f'{first}-| y = ScatterElements <reduction = "{way}"> (f5x5, i9x2, f9x2)'
            for first, way in ((16, "add"), (16, "mul"), (18, "max"), (18, "min"))
        ),
    ],
    "ScatterND": [
        "y = ScatterND (f5x5, i1x2, f1)",
        "y = ScatterND (f5x5, i1x1, f1x5)",
        *(
            f'{first}-| y = ScatterND <reduction = "{way}"> (f5x5, i9x1, f9x5)'
            for first, way in ((16, "add"), (16, "mul"), (18, "max"), (18, "min"))
        ),
    ],
    "SequenceAt": ["l = SequenceConstruct (f2x3, f2); y = SequenceAt (l, -1)"],
    "SequenceConstruct": ["y = SequenceConstruct (f2x3, f2)"],
    "SequenceEmpty": ["l = SequenceEmpty (); y = SequenceInsert (l, f2)"],
    "SequenceErase": [
        "l = SequenceConstruct (f2x3, f2, f3); y = SequenceErase (l)",
        "l = SequenceConstruct (f2x3, f2, f3); y = SequenceErase (l, 0)",
    ],
    "SequenceInsert": [
        "l = SequenceConstruct (f2x3, f2); y = SequenceInsert (l, f3)",
        "l = SequenceConstruct (f2x3, f2); y = SequenceInsert (l, f3, 1)",
    ],
    "SequenceLength": ["l = SequenceConstruct (f2x3, f2); y = SequenceLength (l)"],
    "SequenceMap": [
        """l = SequenceConstruct (f2a, f2b);
        y = SequenceMap (l) <body = g (float[2] e) => (float[2] o) { o = Neg (e) }>""",
    ],
    "Shape": [
        "y = Shape (f2x3x4)",
        "15-| y = Shape <start = 1> (f2x3x4)",
        "15-| y = Shape <start = -2, end = -1> (f2x3x4)",
        "15-| y = Shape <start = 2, end = 1> (f2x3x4)",
    ],
    "Slice": [
        "-9| y = Slice <starts = [1, 0], ends = [3, 9]> (f4x5)",
        "-9| y = Slice <axes = [1], starts = [-3], ends = [-1]> (f4x5)",
        "10-| y = Slice (f4x5, {1, 0}, {3, 9})",
        "10-| y = Slice (f4x5, {-1}, {-9}, {1}, {-2})",
        "10-| y = Slice (f4x5, {-3}, {9}, {-1})",
    ],
    "SoftmaxCrossEntropyLoss": [
        f'y, p = SoftmaxCrossEntropyLoss <reduction = "{way}"{text}> (f3x5x2, i3x2{weight})'
        for way in ("mean", "sum", "none")
        for text, weight in (("", ""), (", ignore_index = 1", ", f5"))
    ],
    "SpaceToDepth": ["y = SpaceToDepth <blocksize = 2> (f1x2x4x6)"],
    "Split": [
        "-12| y, z = Split <axis = 1> (f2x6)",
        "-12| y, z = Split <axis = 1, split = [2, 4]> (f2x6)",
        "-12| y, z = Split (f4x3)",
        "13-17| y, z = Split <axis = 1> (f2x6)",
        "13-| y, z = Split <axis = -1> (f2x6, {2, 4})",
        "18-| y, z = Split <num_outputs = 2> (f4x3)",
        "18-| y, z, v = Split <axis = 1, num_outputs = 3> (f2x7)",
    ],
    "SplitToSequence": [
        "y = SplitToSequence (f4x3)",
        "y = SplitToSequence <axis = 1, keepdims = 0> (f4x3)",
        "y = SplitToSequence (f4x3, 3)",
        "y = SplitToSequence <axis = -1> (f4x3, {1, 2})",
    ],
    "Squeeze": [
        "y = Squeeze (f1x3x1)",
        "-12| y = Squeeze <axes = [0]> (f1x3x1)",
        "11-12| y = Squeeze <axes = [-1]> (f1x3x1)",
        "13-| y = Squeeze (f1x3x1, {0})",
        "13-| y = Squeeze (f1x3x1, {-1, 0})",
    ],
    "StringConcat": ["y = StringConcat (w2x3, w3)"],
    "StringNormalizer": [
        'y = StringNormalizer <stopwords = ["Ab"], is_case_sensitive = 1> (w9)',
    ],
    "StringSplit": [
        "y, z = StringSplit (w5)",
        'y, z = StringSplit <delimiter = "b", maxsplit = 1> (w5)',
    ],
    "SwiGLU": ["y = SwiGLU (f2x3a, f2x3b)", "y = SwiGLU <alpha = 0.5> (f2x3a, f2x3b)"],
    "TensorScatter": [
        "y = TensorScatter (f2x3x5x4, f2x3x2x4)",
        'y = TensorScatter <mode = "circular"> (f2x3x5x4, f2x3x2x4, {1, 4})',
        "y = TensorScatter <axis = 1> (f2x5x4, f2x2x4, {1, 3})",
    ],
    "TfIdfVectorizer": [
        f'y = TfIdfVectorizer <mode = "{mode}", min_gram_length = 1, max_gram_length = 2,'
        " max_skip_count = 1, ngram_counts = [0, 4], ngram_indexes = [0, 1, 2, 3, 4, 5],"
        " pool_int64s = [1, 2, 3, 4, 1, 2, 3, 4], weights = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]> (i2x9)"
        for mode in ("TF", "IDF", "TFIDF")
    ],
    "Tile": ["y = Tile (f2x3, {2, 1})"],
    "TopK": [
        "-9| y, i = TopK <k = 3> (f2x5)",
        "-9| y, i = TopK <k = 2, axis = 0> (f4x5)",
        "10-| y, i = TopK (f2x5, {3})",
        "10-| y, i = TopK <axis = 0> (f4x5, {2})",
        "11-| y, i = TopK <largest = 0> (f2x5, {3})",
        "11-| y, i = TopK <axis = -1> (n2x40, {20})",
        "11-| y, i = TopK <largest = 0> (n2x40, {20})",
    ],
    "Transpose": ["y = Transpose (f2x3x4)", "y = Transpose <perm = [1, 2, 0]> (f2x3x4)"],
    "Trilu": ["y = Trilu (f3x4)", "y = Trilu <upper = 0> (f3x4, 1)", "y = Trilu (f2x3x4, -1)"],
    "Unique": [
        "y, i, j, c = Unique (i9)",
        "y, i, j, c = Unique <sorted = 0> (i9)",
        "y, i, j, c = Unique <axis = 0> (b9x2)",
        "y, i, j, c = Unique <axis = -1, sorted = 0> (b2x9)",
    ],
    "Unsqueeze": [
        "-12| y = Unsqueeze <axes = [0, 3]> (f2x3)",
        "-12| y = Unsqueeze <axes = [3, 0]> (f2x3)",
        "11-12| y = Unsqueeze <axes = [-1]> (f2x3)",
        "13-| y = Unsqueeze (f2x3, {3, 0})",
        "13-| y = Unsqueeze (f2x3, {-1, 1})",
    ],
    "Upsample": [
        case
        for mode in ("nearest", "linear")
        for scales in ("1.0, 1.0, 2.0, 3.0", "1.0, 1.0, 1.5, 1.7")
        for case in (
            f'-8| y = Upsample <mode = "{mode}", scales = [{scales}]> (f1x2x3x4)',
            f'9| y = Upsample <mode = "{mode}"> (f1x2x3x4, {{{scales}}})',
        )
    ],
    "Where": [*(f"y = Where (b2x3, {a}, {b})" for a, b in (("f2x3", "f3"), ("n_", "n2x1")))],
}

EXCEPTIONS = dict.fromkeys(
    (
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike"),
    ),
    "what it gives is random",
)
"""Operators without a case, and why."""

LOOKED_AT = 28
"""The newest opset whose changes the cases show. Look at those of a newer one, and raise this."""


def versions() -> dict[str, list[tuple[int, range]]]:
    """Return for each operator its versions, and the opsets from 7 on at which each is in force."""
    found = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            found[schema.name].append(schema.since_version)
    end = onnx.defs.onnx_opset_version() + 1
    pairs = {op: pairwise([*sorted(since), end]) for op, since in found.items()}
    return {
        op: [(since, range(max(since, LEAST), until)) for since, until in each if until > LEAST]
        for op, each in sorted(pairs.items())
    }


VERSIONS = versions()


def cases(op: str, opset: int) -> Iterator[str]:
    """Yield the cases of an operator at an opset."""
    for case in CASES.get(op, ()):
        span, _, text = case.rpartition("|")
        first, dash, last = span.partition("-")
        least, most = int(first or 0), int(last or (LOOKED_AT if dash or not span else first))
        if least <= opset <= most:
            yield text.strip()


def model(text: str, opset: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return the model of a case, and what it is fed."""
    feeds: dict[str, Array] = {}

    def named(match: re.Match[str]) -> str:
        words = re.findall(r"\{[^}]*\}(?::\w)?|[^,\s]+", match[1])
        return f"({', '.join(_fed(word, feeds) for word in words)})"

    nodes = [
        onnx.parser.parse_node(re.sub(r"\(([^()[]*)\)", named, line)) for line in text.split(";")
    ]
    for node in nodes:
        node.input[:] = ["" if name == "none" else name for name in node.input]
    graph = onnx.helper.make_graph(
        nodes,
        "case",
        [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in nodes[-1].output],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def _fed(word: str, feeds: dict[str, Array]) -> str:
    """Return the name of what a word stands for, which is fed if the word says so."""
    if drawn := re.fullmatch(r"([a-z])(_|\d+(?:x\d+)*)[a-z]?", word):
        dtype, low, high = KINDS[drawn[1]]
        shape = [int(size) for size in drawn[2].split("x")] if drawn[2] != "_" else []
        rng = np.random.default_rng([*word.encode()])
        if dtype == "str":
            feeds[word] = rng.choice(["ab", "Ab", "a b", "bab"], shape).astype(object)
        elif dtype.startswith("float"):
            feeds[word] = rng.uniform(low, high, shape).astype(dtype)
        else:
            whole = rng.integers(int(low), int(high), shape)
            feeds[word] = np.where((whole == 0) & (low < 0), 1, whole).astype(dtype)
        return word
    if written := re.fullmatch(r"(\{)?(-?[\d.][^}:]*|)\}?(?::(\w))?", word):
        values = [float(each) for each in written[2].split(",") if each]
        kind = written[3] or ("f" if "." in written[2] else "i")
        name = f"given_{len(feeds)}"
        feeds[name] = np.array(values if written[1] else values[0]).astype(KINDS[kind][0])
        return name
    return word


def run(
    proto: onnx.ModelProto, feeds: Mapping[str, Array], engine: Kind = "onnxruntime"
) -> Outputs:
    """Return what a model gives in this process."""
    content, execution = proto.SerializeToString(), Execution(isolated=False)
    source = ModelSource(Path("model.onnx"), content=content, execution=execution)
    return Runner(source, "disable", engine).run(feeds)


@pytest.mark.parametrize("op", one_in(24, CASES, gate=3))
def test_it_gives_what_onnxruntime_gives_or_nothing(op: str) -> None:
    """At the first and at the last opset of each version."""
    found = []
    for opset in sorted(
        {opset for _, span in VERSIONS.get(op, ()) for opset in (span[0], span[-1])}
    ):
        for text in cases(op, opset):
            proto, feeds = model(text, opset)
            try:
                expected = run(proto, feeds)
            except RunError as error:
                assert UNKNOWN.search(str(error)), f"opset {opset}: {text}: {error}"  # noqa: PT017
                continue
            with suppress(RunError):  # it refuses
                if not are_equal(expected, run(proto, feeds, "evaluator")):
                    found.append(f"opset {opset}: {text}")
    assert not found


UNKNOWN = re.compile("Could not find an implementation|only \\*guarantees\\* support")
"""How onnxruntime says that it lacks an operator, or is older than an opset."""


def are_equal(expected: Outputs, actual: Outputs) -> bool:
    """Return whether two results are of the same types and shapes, and equal but for rounding."""
    for name, leaves in expected.items():
        for one, other in zip(leaves, actual[name], strict=True):
            if (one.dtype, one.data.shape) != (other.dtype, other.data.shape):
                return False
            if one.data.dtype.kind != "f":
                if (one.data != other.data).any():
                    return False
            elif not np.allclose(one.data, other.data, rtol=1e-4, atol=1e-5, equal_nan=True):
                return False
    return True


def test_each_version_of_each_operator_has_a_case_or_a_reason() -> None:
    """Of the default domain; a version that is marked as deprecated needs none."""
    missing = [
        f"{op} {since}"
        for op, spans in VERSIONS.items()
        for since, span in spans
        if not any(True for opset in span for _ in cases(op, opset))
        and op not in EXCEPTIONS
        and not onnx.defs.get_schema(op, since).deprecated
    ]
    assert not missing, f"look at {', '.join(missing)}; see LOOKED_AT"
    assert not CASES.keys() & EXCEPTIONS


@pytest.mark.parametrize(
    "node",
    [
        "y = Softmax (f2x3x4)",
        "y = LogSoftmax <axis = 0> (f2x3x4)",
        "y = Hardmax (f2x3x4)",
        "y = LRN <size = 3> (f2x5x3x3)",
        "y = LpNormalization <axis = 0, p = 1> (f2x3)",
        "y = ConvTranspose <group = 2> (f1x4x6x7, f4x2x3x2, f4)",
        "y = MaxPool <kernel_shape = [3, 3], pads = [1, 0, 1, 2]> (f1x2x7x7)",
        "y = ReduceSumSquare (n2x3)",
        """boxes = Reshape ({0.3, 0.6, 4.0, 3.5}, {1, 4});
        y = RoiAlign <output_height = 2, output_width = 3> (f1x2x6x6, boxes, {0})""",
    ],
)
def test_what_is_corrected_is_not_refused(node: str) -> None:
    """At opset 12, which has all of them."""
    proto, feeds = model(node, 12)
    assert are_equal(run(proto, feeds), run(proto, feeds, "evaluator"))


def test_the_axis_of_a_softmax_in_a_function_is_that_of_its_opset() -> None:
    """A function states its own; its attributes may be those of the call."""
    proto = proto_from_text("""<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
        g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[2, 3, 4] z)
        { y = Softmax <axis = 1> (x) z = d.f <axis = 1> (x) }
        <domain: "d", opset_import: ["" : 11]>
        f <axis> (a) => (b) { b = Softmax <axis: int = @axis> (a) }""")
    found = run(proto, {"x": np.ones((2, 3, 4), np.float32)}, "evaluator")
    assert {name: float(leaves[0].data[0, 0, 0]) for name, leaves in found.items()} == {
        "y": pytest.approx(1 / 3),
        "z": pytest.approx(1 / 12),
    }


def test_what_is_corrected_is_so_in_functions_that_call_others() -> None:
    """With attributes of the calls."""
    proto = proto_from_text("""<ir_version: 8, opset_import: ["" : 17, "d" : 1]>
        g (float[1, 5, 4, 4] x) => (y)
        { y = d.f <size = [3, 3], pads = [0, 1, 2, 1]> (x) }
        <domain: "d", opset_import: ["" : 17, "d" : 1]>
        f <size, pads> (a) => (c)
        { b = MaxPool <kernel_shape: ints = @size, pads: ints = @pads> (a)  c = d.h (b) }
        <domain: "d", opset_import: ["" : 17]>
        h (a) => (b) { b = LRN <size = 3> (a) }""")
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 5, 4, 4)).astype(np.float32)}
    assert are_equal(run(proto, feeds), run(proto, feeds, "evaluator"))
