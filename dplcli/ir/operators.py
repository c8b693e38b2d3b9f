"""Facts about operators that the standard says in words rather than in machine-readable schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dplcli.ir.model import Value, called_function
from dplcli.ir.traversal import behind_identities
from dplcli.ir.types import ArrayTensor, Attribute

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dplcli.ir.model import Function, Node, OpSchema


# The class of every standard operator, by how its output elements come from its input elements.
#
# The classes are those of TVM's ``OpPatternKind``, and membership follows TVM's registrations:
# Relay 0.18, ``TOpPattern`` in src/relay/op/** and ``register_pattern`` in
# python/tvm/relay/op/**; where Relay registers several variants, the one closest to the ONNX
# operator; where it registers none, what Relax finds (``AnnotateTIROpPattern``). What TVM has no
# operator for is classed by the definitions below and the operator pages
# https://onnx.ai/onnx/operators/, else it is opaque.
#
# Where TVM's class would not fit these definitions, they win:
#
# * QuantizeLinear and DequantizeLinear (TVM: elementwise) take a scale per axis: broadcast.
# * Dropout (Relay: opaque, Relax: elementwise) is the identity in inference: elementwise.
# * Trilu (elementwise) chooses by position what it copies: injective.
# * Einsum (Relay: injective, Relax: by its equation) may well be a matrix product: out-fusable.
# * Size (injective) and what makes a tensor from a shape alone (ConstantOfShape, EyeLike:
#     elementwise) read no element: opaque.
#
# The table has one class per operator, whatever its version, attributes and number of outputs.


_ELEMENTWISE = """
    Abs Acos Acosh Asin Asinh Atan Atanh BitCast BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh
    Dropout Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish
    Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Swish
    Tan Tanh ThresholdedRelu
"""

_BROADCAST = """
    Add BitShift BitwiseAnd BitwiseOr BitwiseXor Div Mod Mul Pow Sub
    And Equal Greater GreaterOrEqual Less LessOrEqual Or Where Xor
    Max Mean Min Sum
    PRelu SwiGLU
    DequantizeLinear QuantizeLinear
    Expand Unsqueeze
"""

_INJECTIVE = """
    Flatten Reshape Squeeze Transpose
    CenterCropPad Concat Pad Slice Split Tile Trilu
    DepthToSpace SpaceToDepth ReverseSequence
    Gather GatherElements GatherND
    AffineGrid GridSample Resize Upsample
"""

_REDUCTION = """
    ArgMax ArgMin
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare
"""

_OUT_FUSABLE = """
    Conv ConvInteger ConvTranspose DeformConv QLinearConv
    Attention Einsum Gemm MatMul MatMulInteger QLinearMatMul
    AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxRoiPool RoiAlign
    BatchNormalization GroupNormalization InstanceNormalization LayerNormalization
    RMSNormalization
    LogSoftmax Softmax
    NegativeLogLikelihoodLoss OneHot
"""

_OPAQUE = """
    If Loop Scan
    Optional OptionalGetElement OptionalHasElement
    ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap SplitToSequence
    RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer
    Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
    BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow ImageDecoder
    MelWeightMatrix Range Shape Size
    Compress NonMaxSuppression NonZero TopK Unique
    MaxUnpool Scatter ScatterElements ScatterND TensorScatter
    CausalConvWithState CumProd CumSum GRU LSTM LinearAttention RNN
    Col2Im DFT Det RotaryEmbedding STFT
    DynamicQuantizeLinear Hardmax LRN LpNormalization MeanVarianceNormalization
    SoftmaxCrossEntropyLoss
"""

OP_KINDS: Mapping[str, frozenset[str]] = {
    "elementwise": frozenset(_ELEMENTWISE.split()),
    "broadcast": frozenset(_BROADCAST.split()),
    "injective": frozenset(_INJECTIVE.split()),
    "reduction": frozenset(_REDUCTION.split()),
    "out-fusable": frozenset(_OUT_FUSABLE.split()),
    "opaque": frozenset(_OPAQUE.split()),
}
"""The operators of the standard domain by class, from the easiest to fuse to the hardest.

* elementwise (kElemWise): one data input, and each output element depends on the input element at
  its place alone.
* broadcast (kBroadcast): inputs combined element by element once their axes are lined up, in order.
* injective (kInjective): each output element is a copy of an input element (or a filler), taken
  from a place that its own place tells; TVM counts resampling here too.
* reduction (kCommReduce): whole axes folded into one element.
* out-fusable (kOutEWiseFusable): heavy work to whose result elementwise work can be fused.
* opaque (kOpaque): everything else; nothing can be fused to it.
"""

_KIND_OF = {op_type: kind for kind, op_types in OP_KINDS.items() for op_type in op_types}


def kind_of(op_type: str) -> str | None:
    """Return the class of *op_type*; None for an operator the standard domain does not have."""
    return _KIND_OF.get(op_type)


# What the standard says of operators in words rather than in machine-readable schemas.
#
# Sources: the operator pages https://onnx.ai/onnx/operators/ (Conv, ConvTranspose, the pools,
# Transpose and the arithmetic operators).


COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
    | {"Sum", "Max", "Min", "Mean"}
)
"""Operators of the standard domain whose inputs may stand in any order."""

SIZED_BY = {
    **dict.fromkeys(("Expand", "OneHot", "Reshape", "Split", "Squeeze", "Tile", "TopK"), (1,)),
    **dict.fromkeys(("CenterCropPad", "Compress", "Unsqueeze"), (1,)),
    **dict.fromkeys(("ConstantOfShape", "NonMaxSuppression", "NonZero", "Unique"), (0,)),
    "Col2Im": (1, 2),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Upsample": (1,),
}
"""By operator, the inputs whose elements, not whose shapes alone, say how large the results are."""

_WINDOWED = frozenset(
    {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "Col2Im"}
    | {"AveragePool", "LpPool", "MaxPool", "MaxUnpool"}
)
_WEIGHT_SLOT = {"QLinearConv": 3}
_LATER = {
    ("AveragePool", "ceil_mode"): 0,
    ("LpPool", "ceil_mode"): 0,
    ("MaxPool", "ceil_mode"): 0,
    ("Reshape", "allowzero"): 0,
}
"""Attributes that later opsets have, and what they would be in those that have none."""

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool", "MaxUnpool"})


def schema_of(node: Node) -> OpSchema | None:
    """Return the schema in force for *node*; None for an operator the standard does not know."""
    version = node.graph.opset_imports.get(node.domain, 0)
    return node.graph.model.codec.schemas.find(node.op_type, node.domain, version)


def attribute_of(node: Node, name: str) -> Attribute | None:
    """Return attribute *name* of *node*, completed with its default for the node's opset.

    Returns:
        What the file states; else the schema's default; else the default that the operator's page
        gives in words, where the known shapes determine it; else None.
    """
    stated = node.attributes.get(name)
    if stated is not None:
        return stated
    schema = schema_of(node)
    if schema is None:
        return None
    default = schema.defaults.get(name)
    if default is not None:
        return default
    if node.domain:
        return None
    if name not in schema.attributes:
        return _implied_attribute(node, name)
    return _textual_default(node, name)


def _implied_attribute(node: Node, name: str) -> Attribute | None:
    """Say in an attribute of a later opset what an earlier one says in another way."""
    if node.op_type == "BatchNormalization" and name == "training_mode":
        used = sum(output is not None for output in node.outputs)
        return Attribute("int", int(used > 1))
    number = _LATER.get((node.op_type, name))
    if number is not None:
        return Attribute("int", number)
    rank = _spatial_rank(node) if name == "dilations" and node.op_type in _POOLS else None
    return None if rank is None else Attribute("ints", (1,) * rank)


def _textual_default(node: Node, name: str) -> Attribute | None:  # noqa: PLR0911  # a guard each
    if node.op_type == "Transpose" and name == "perm":
        rank = _rank(node, 0)
        return None if rank is None else Attribute("ints", tuple(reversed(range(rank))))
    if node.op_type not in _WINDOWED:
        return None
    if name == "kernel_shape":
        return _kernel_shape(node)
    spatial = _spatial_rank(node)
    if spatial is None:
        return None
    if name in {"strides", "dilations"}:
        return Attribute("ints", (1,) * spatial)
    if name == "pads" and _pads_are_explicit(node):
        return Attribute("ints", (0,) * (2 * spatial))
    return None


def _pads_are_explicit(node: Node) -> bool:
    mode = node.attributes.get("auto_pad")
    return mode is None or mode.value == "NOTSET"


def _kernel_shape(node: Node) -> Attribute | None:
    if node.op_type in _POOLS:
        return None
    slot = _WEIGHT_SLOT.get(node.op_type, 1)
    weight = node.inputs[slot] if slot < len(node.inputs) else None
    known = None if weight is None else weight.known_type()
    if known is None or known.shape is None:
        return None
    kernel = known.shape[2:]
    if not all(isinstance(dim, int) for dim in kernel):
        return None
    return Attribute("ints", kernel)


def _spatial_rank(node: Node) -> int | None:
    """Count spatial dimensions, from the cheapest fact at hand."""
    if node.op_type == "Col2Im":
        return _length(node, 1)
    for name, per_dim in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("pads", 2)):
        stated = node.attributes.get(name)
        if stated is not None and isinstance(stated.value, tuple):
            return len(stated.value) // per_dim
    for slot in (_WEIGHT_SLOT.get(node.op_type, 1), 0):
        if node.op_type in _POOLS and slot:
            continue
        rank = _rank(node, slot)
        if rank is not None:
            return rank - 2
    return None


def _length(node: Node, slot: int) -> int | None:
    """Return the extent of a vector input."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    known = None if value is None else value.known_type()
    if known is None or known.shape is None or len(known.shape) != 1:
        return None
    return known.shape[0] if isinstance(known.shape[0], int) else None


def _rank(node: Node, slot: int) -> int | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    known = None if value is None else value.known_type()
    return None if known is None or known.shape is None else len(known.shape)


# One accessor for what some opsets keep in an attribute and others in an input.
#
# ``axes`` of Squeeze is an attribute up to opset 12 and an input from 13 on; so are the bounds of
# Clip, the axes of the reductions, and more (https://onnx.ai/onnx/operators/, the versions of
# each). Every node is seen as the newest opset would write it: inputs_of lists the inputs, those
# that the node's opset keeps in attributes as constants made for the purpose; parameter_of reads
# an attribute, or the constant input that stands for it.


class Parameter(NamedTuple):
    """One thing that moved.

    Attributes:
        slot: The input it is in the newest opset.
        name: The input's name there.
        attribute: The attribute's name in the opsets that have one.
        kind: The attribute's kind.
        dtype: Element type of the input.
    """

    slot: int
    name: str
    attribute: str
    kind: str
    dtype: str


_AXES = (Parameter(1, "axes", "axes", "ints", "int64"),)
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

MOVED: dict[str, tuple[Parameter, ...]] = {
    **{f"Reduce{name}": _AXES for name in _REDUCTIONS},
    "Squeeze": _AXES,
    "Unsqueeze": _AXES,
    "Clip": (
        Parameter(1, "min", "min", "float", "float32"),
        Parameter(2, "max", "max", "float", "float32"),
    ),
    "DFT": (Parameter(2, "axis", "axis", "int", "int64"),),
    "Dropout": (Parameter(1, "ratio", "ratio", "float", "float32"),),
    "Pad": (
        Parameter(1, "pads", "pads", "ints", "int64"),
        Parameter(2, "constant_value", "value", "float", "float32"),
    ),
    "Reshape": (Parameter(1, "shape", "shape", "ints", "int64"),),
    "Slice": (
        Parameter(1, "starts", "starts", "ints", "int64"),
        Parameter(2, "ends", "ends", "ints", "int64"),
        Parameter(3, "axes", "axes", "ints", "int64"),
    ),
    "Split": (Parameter(1, "split", "split", "ints", "int64"),),
    "TopK": (Parameter(1, "K", "k", "int", "int64"),),
    "Upsample": (Parameter(1, "scales", "scales", "floats", "float32"),),
}
"""By operator of the standard domain, in order of slots."""

_VECTORS = frozenset({"TopK"})
"""Operators whose number becomes an input with one element rather than a scalar."""


def inputs_of(node: Node) -> Sequence[Value | None]:
    """List the inputs as the newest opset would have them; omitted ones at the end are cut off."""
    inputs = list(node.inputs)
    if not node.domain:
        for parameter in MOVED.get(node.op_type, ()):
            if parameter.slot >= len(node.inputs):
                _fill(inputs, parameter.slot, _implied_input(node, parameter))
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def _fill(inputs: list[Value | None], slot: int, value: Value | None) -> None:
    if value is not None:
        inputs += [None] * (slot + 1 - len(inputs))
        inputs[slot] = value


def _implied_input(node: Node, parameter: Parameter) -> Value | None:
    stated = node.attributes.get(parameter.attribute)
    if stated is None or stated.ref:
        return None
    model = node.graph.model
    known = model.implied.get((node, parameter.slot))
    if known is None:
        data: Any = stated.value
        if node.op_type in _VECTORS:
            data = [data]
        known = Value(f"{node.label}.{parameter.name}", node.graph)
        known.set_initializer(ArrayTensor(np.asarray(data, dtype=_dtype_of(node, parameter))))
        model.implied[node, parameter.slot] = known
    return known


def _dtype_of(node: Node, parameter: Parameter) -> str:
    """Return the element type; a bound has that of the data it bounds."""
    if parameter.kind != "float" or node.inputs[0] is None:
        return parameter.dtype
    known = node.inputs[0].known_type()
    is_numeric = known is not None and known.dtype in {"float16", "float64"}
    return str(known.dtype) if known is not None and is_numeric else parameter.dtype


def slot_of(node: Node, name: str) -> int | None:
    """Return the input slot that *name* means at *node*; None if it means an attribute or nothing.

    Both the input's name and the attribute's name of other opsets are understood.
    """
    if not node.domain:
        for parameter in MOVED.get(node.op_type, ()):
            if name in (parameter.name, parameter.attribute):
                return parameter.slot
    schema = schema_of(node)
    if schema is None or name in schema.attributes or name not in schema.inputs:
        return None
    return schema.inputs.index(name)


def parameter_of(node: Node, name: str) -> Attribute | None:
    """Return attribute *name*, completed with its default, or the constant input of that name.

    None if it is neither, or if the input is not constant.
    """
    attribute = attribute_of(node, name)
    if attribute is not None:
        return attribute
    slot = slot_of(node, name)
    if slot is None:
        return None
    inputs = inputs_of(node)
    value = inputs[slot] if slot < len(inputs) else None
    tensor = None if value is None else behind_identities(value).constant
    if tensor is None or len(tensor.shape) > 1:
        return None
    data = tensor.numpy()
    if data.dtype.kind not in "iufb":
        return None
    kind = "float" if data.dtype.kind == "f" else "int"
    moved = {item.slot: item.kind for item in MOVED.get(node.op_type, ())}
    if data.ndim == 0 or (moved.get(slot) == kind and data.size == 1):
        item = data.reshape(()).item()
        return Attribute(kind, item if kind == "float" else int(item))
    return Attribute(f"{kind}s", tuple(data.tolist()))


# Nodes that compute something else each time: two of them are not one.


RANDOM_OPS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
    | {"Multinomial", "Bernoulli"}
)
"""Operators that draw random numbers, whatever they are given."""

_TRAINING_SLOT = 2


def draws_random(node: Node, harmless: set[Function] | None = None) -> bool:
    """Tell whether *node* may draw random numbers, perhaps in a body or a function it calls.

    Args:
        node: The node.
        harmless: Functions that draw none; those found to draw none are added.
    """
    pending = [node]
    seen: set[Function] = set()
    known = seen if harmless is None else harmless
    while pending:
        current = pending.pop()
        if not current.domain and (current.op_type in RANDOM_OPS or _drops_out(current)):
            return True
        graphs = [*current.subgraphs.values()]  # what nests deeper comes when its node does
        function = called_function(current)
        if function is not None and function not in seen and function not in known:
            seen.add(function)
            graphs.append(function.body)
        pending += [inner for graph in graphs for inner in graph]
    if harmless is not None:
        harmless |= seen
    return False


def _drops_out(node: Node) -> bool:
    """Tell whether *node* is a Dropout that may be training; before opset 12 it never is."""
    if node.op_type != "Dropout" or len(node.inputs) <= _TRAINING_SLOT:
        return False
    training = node.inputs[_TRAINING_SLOT]
    if training is None:
        return False
    data = training.constant if training.is_constant else None
    return data is None or bool(data.numpy().any())
