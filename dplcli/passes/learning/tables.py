"""What a learned rule keeps of the example it is learned from; everything else it leaves free.

A rule is to find the example's kin: the same operators wired the same way, for which one kernel
can stand in. Attributes that a pattern does not name travel into the function and are given at
each call, so a kernel can handle any value of them.
"""

from __future__ import annotations

from types import MappingProxyType

_KEPT_BY_REASON = {
    "which axes, in what order, and which element type": """
        axes axis batch_axis batch_dims dtype equation perm time_axis to
    """,
    "operands that are transposed, grouped or laid out in another way": """
        group layout storage_order transA transB
    """,
    "which way, which half, which end": """
        direction end exclusive inverse largest onesided reverse select_last_index start upper
    """,
    "another formula under the same name": """
        activation activations approximate detect_negative detect_positive fmod input_forget
        interleaved is_causal linear_before_reset mode p post_transform reduction training_mode
        unidirectional update_rule
    """,
    "where a window or a sample falls, and what counts in it": """
        align_corners auto_pad ceil_mode coordinate_transformation_mode count_include_pad
        nearest_mode padding_mode
    """,
    "what the result looks like": """
        allowzero keepdims new_axis noop_with_empty_axes
    """,
}

KEPT_ATTRIBUTES = frozenset(" ".join(_KEPT_BY_REASON.values()).split())
"""Attributes that say what a node computes, rather than on how much or how finely.

A rule names them where they differ from the schema's default. It leaves all others free: strides,
pads, dilations, kernel_shape, epsilon, alpha, momentum, hidden_size and so on. What an opset keeps
in an input (``axes`` of Squeeze) counts as an attribute if it is constant.
"""

NUMBER_SLOTS = MappingProxyType(
    {
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Mod"), (0, 1)),
        **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), (0, 1)),
        **dict.fromkeys(("Max", "Min", "Sum", "Mean"), None),
        "Clip": (1, 2),
        "Gather": (1,),
        "Range": (0, 1, 2),
        "Trilu": (1,),
        "Where": (1, 2),
    }
)
"""By standard operator, the inputs (None: all) in which a single number says what is computed.

``Div(x, 1.4142135)`` is a step of Gelu and ``Clip(x, 0, 6)`` is ReLU6; a scale of
QuantizeLinear is a parameter, as weights are.
"""

BIASED = frozenset({"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger"})
"""Standard operators to whose result a constant of rank 1 or more is added as a bias.

Even if it has one element, it is a weight and no number.
"""

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
"""Standard operators whose bias has one number per channel."""

RANKED_SLOTS = MappingProxyType(
    {
        **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "DeformConv"), (1, 0)),
        "QLinearConv": (3, 0),
        **dict.fromkeys(("AveragePool", "LpPool", "MaxPool", "MaxUnpool"), (0,)),
        **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), (0,)),
    }
)
"""By standard operator, the inputs that show over how many dimensions a window runs."""

LEAF_NAMES = MappingProxyType(
    {
        **dict.fromkeys(("data", "data_0", "input", "input_data", "inputs", "tensor"), "x"),
        "input_mean": "mean",
        "input_var": "var",
        "max": "high",
        "min": "low",
    }
)
"""Better names for some formal inputs, after the shipped catalogues."""
