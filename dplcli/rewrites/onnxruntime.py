"""Operators of onnxruntime's own: fused ones, and ones on quantised tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.replacement import BuildError
from dplcli.ir.operators import attribute_of, schema_of
from dplcli.ir.traversal import behind_identities
from dplcli.rewrites.operands import input_of, node_called, node_of, value_called

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from dplcli.dpl.replacement import GraphBuilder, Operand
    from dplcli.dpl.rule import Match, Rejection
    from dplcli.ir import Node, Value


# What the functions that make operators of onnxruntime share.


MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""


def array_of(value: Value | None) -> NDArray[Any] | None:
    """Return the data of a constant, also behind Identity nodes; None if it is no constant."""
    tensor = None if value is None else behind_identities(value).constant
    return None if tensor is None else tensor.numpy()


def number_called(match: Match, name: str) -> float | None:
    """Return the only element of a constant; None if the name took no part."""
    value = match.value(name)
    data = array_of(value)
    if value is None:
        return None
    if data is None or data.size != 1:
        raise BuildError(f"{name!r} is not a constant of one element")
    return float(data.reshape(()))


def number_of(node: Node, name: str, default: float) -> float:
    """Return an attribute that is a number; *default* if the node has none.

    Raises:
        BuildError: A caller of the function supplies it.
    """
    attribute = attribute_of(node, name)
    if attribute is None:
        return default
    if not isinstance(attribute.value, (int, float)):
        raise BuildError(f"{name} of {node.op_type} is not known")
    return float(attribute.value)


def dtype_of(value: Value) -> str:
    """Return the element type of a value.

    Raises:
        BuildError: It is not known.
    """
    known = value.known_type()
    if known is None or known.dtype is None:
        raise BuildError(f"the element type of {value.name!r} is unknown")
    return known.dtype


def in_first_place(match: Match, made: Operand) -> tuple[Operand, ...]:
    """Put *made* in the place of the first output, and leave the other outputs as they are.

    A rule lists a node behind its first output if others may read what the node makes: it stays
    for them, and goes with the match if there are none.
    """
    return (made, *match.outputs[1:])


def own(
    match: Match, build: GraphBuilder, op_type: str, *inputs: Operand | None, **attributes: object
) -> tuple[Operand, ...]:
    """Put an operator of onnxruntime's own in the place of the first output."""
    made = build.op(op_type, *inputs, domain=MICROSOFT, **attributes)
    return in_first_place(match, made)


# Operators of onnxruntime for floating point: FusedConv, FusedGemm, FusedMatMul and the like.


_FLOAT32 = np.finfo(np.float32)
_SMALLEST_BATCHED_RANK = 3


def ort_fused_conv(match: Match, build: GraphBuilder) -> Operand:
    """Make a FusedConv of ``conv``, of what is added to it (``z``) and of the activation ``y``."""
    conv, root = node_called(match, "conv"), match.root
    attributes: dict[str, object] = {**conv.attributes}
    if root.op_type != "Add":
        found = _bounds(match) if root.op_type == "Clip" else [*_parameters_of(root).values()]
        attributes |= {"activation": root.op_type, "activation_params": found or None}
    inputs = [*(input_of(conv, slot) for slot in range(3)), match.value("z")]
    return build.op("FusedConv", *inputs, domain=MICROSOFT, **attributes)


def _parameters_of(node: Node) -> dict[str, float]:
    """Return the attributes of an activation, in the order of FusedConv's ``activation_params``."""
    schema = schema_of(node)
    names = () if schema is None else sorted(schema.defaults)
    return {name: number_of(node, name, 0.0) for name in names}


def _bounds(match: Match) -> list[float]:
    low, high = number_called(match, "low"), number_called(match, "high")
    return [
        float(_FLOAT32.min) if low is None else low,
        float(_FLOAT32.max) if high is None else high,
    ]


def ort_fused_gemm(match: Match, build: GraphBuilder) -> Operand:
    """Make a FusedGemm of ``gemm`` and the activation that is the root."""
    gemm = node_called(match, "gemm")
    parameters = _parameters_of(match.root)
    return build.op(
        "FusedGemm",
        *gemm.inputs,
        domain=MICROSOFT,
        **gemm.attributes,
        activation=match.root.op_type,
        **{f"activation_{name}": number for name, number in parameters.items()},
    )


# -- FusedMatMul ---------------------------------------------------------------------------------


class _Product:
    """A MatMul or FusedMatMul, with all attributes of the latter."""

    def __init__(self, node: Node) -> None:
        self.inputs: list[Value | None] = [input_of(node, 0), input_of(node, 1)]
        self.transposed, self.batch_moved = (
            [bool(number_of(node, f"{name}{side}", 0)) for side in "AB"]
            for name in ("trans", "transBatch")
        )
        self.alpha = number_of(node, "alpha", 1.0)

    def made_by(self, build: GraphBuilder) -> Operand:
        return build.op(
            "FusedMatMul",
            *self.inputs,
            domain=MICROSOFT,
            alpha=self.alpha,
            transA=self.transposed[0],
            transB=self.transposed[1],
            transBatchA=self.batch_moved[0],
            transBatchB=self.batch_moved[1],
        )


def ort_fused_matmul_transpose(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Let the product ``y`` transpose what ``t`` transposes; ``t`` stays for its other readers.

    Either of the last two dimensions, or of the first one to the last place but one (and then,
    maybe, of the last two).
    """
    transpose = node_called(match, "t")
    product = _Product(node_called(match, "y"))
    slot = 1 if match.value("b") is None else 0
    perm = attribute_of(transpose, "perm")
    order = () if perm is None or not isinstance(perm.value, tuple) else perm.value
    rank = len(order)
    plain = tuple(range(rank))
    if order == (*plain[:-2], rank - 1, rank - 2):
        if product.batch_moved[slot]:
            raise BuildError("the product moves the first dimension of this operand already")
        product.transposed[slot] ^= True
    elif order in {(*plain[1:-1], 0, rank - 1), (*plain[1:], 0)}:
        _move_batch(match, product, slot, rank, transposed=order[-1] == 0)
    else:
        raise BuildError(f"FusedMatMul cannot transpose by {list(order)}")
    product.inputs[slot] = input_of(transpose, 0)
    return in_first_place(match, product.made_by(build))


def _move_batch(match: Match, product: _Product, slot: int, rank: int, *, transposed: bool) -> None:
    other = value_called(match, "a" if slot else "b").known_type()
    if rank < _SMALLEST_BATCHED_RANK or other is None or other.shape is None:
        raise BuildError("FusedMatMul moves the first dimension of operands of known rank only")
    if len(other.shape) != rank:
        raise BuildError("FusedMatMul moves the first dimension where both ranks are equal only")
    if product.transposed[slot] or product.batch_moved[slot]:
        raise BuildError("the product transposes this operand already")
    product.batch_moved[slot] = True
    product.transposed[slot] = transposed


def ort_fused_matmul_scale(match: Match, build: GraphBuilder) -> Operand:
    """Let the product ``m`` multiply by what it, or its operand ``x``, is scaled by (``c``)."""
    product = _Product(node_called(match, "m"))
    scaled = match.node("s")
    factor = number_called(match, "c") or 0.0
    divides = (match.root if scaled is None else scaled).op_type == "Div"
    typed = value_called(match, "a" if scaled is None else "x")
    with np.errstate(all="ignore"):
        scale = float(np.float64(1) / np.float64(factor)) if divides else factor
        exact = product.alpha * scale
        product.alpha = float(np.float32(exact))
    if not product.alpha or not np.isfinite(product.alpha):
        raise BuildError(f"alpha cannot be {exact}")
    if product.alpha != exact and dtype_of(typed) == "float64":
        raise BuildError(f"alpha is a float32, which {exact} is not")
    if scaled is not None:
        product.inputs[0 if match.value("a") is None else 1] = value_called(match, "x")
    return product.made_by(build)


# -- normalisation -------------------------------------------------------------------------------


def ort_skip_layer_normalization(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a SkipLayerNormalization of ``x``, ``skip``, ``bias`` and the normalisation ``y``."""
    gamma, beta = value_called(match, "gamma"), match.value("beta")
    inputs = (value_called(match, "x"), value_called(match, "skip"), gamma, beta)
    return _skip(match, build, "SkipLayerNormalization", (*inputs, match.value("bias")))


def ort_skip_simplified_layer_normalization(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a SkipSimplifiedLayerNormalization, which divides by the root mean square only."""
    gamma = value_called(match, "gamma")
    inputs = (value_called(match, "x"), value_called(match, "skip"), gamma, match.value("bias"))
    return _skip(match, build, "SkipSimplifiedLayerNormalization", inputs)


def _skip(
    match: Match, build: GraphBuilder, op_type: str, inputs: Sequence[Value | None]
) -> Sequence[Operand]:
    """Make the operator; its fourth output is the sum, if anything outside reads that."""
    total = value_called(match, "sum")
    matched = set(match.nodes)
    epsilon = _epsilon(match)
    if not total.returned_by and all(node in matched for node, _ in total.iter_uses()):
        return own(match, build, op_type, *inputs, epsilon=epsilon)
    made, *_, added = build.ops(op_type, *inputs, domain=MICROSOFT, outputs=4, epsilon=epsilon)
    return (made, added)


def _epsilon(match: Match) -> float:
    """Return the constant called ``eps``, or the attribute of the standard operator's node."""
    known = number_called(match, "eps")
    return number_of(node_called(match, "y"), "epsilon", 1e-5) if known is None else known


_INT32 = 6


def ort_embed_layer_normalization(match: Match, build: GraphBuilder) -> Operand:
    """Make an EmbedLayerNormalization of three look-ups, or two, and the normalisation ``y``."""

    def narrow(name: str) -> Operand | None:
        ids = match.value(name)
        if ids is None or dtype_of(ids) == "int32":
            return ids
        return build.op("Cast", ids, to=_INT32)

    inputs = (
        narrow("ids"),
        narrow("segment_ids"),
        value_called(match, "words"),
        value_called(match, "positions"),
        match.value("segments"),
        value_called(match, "gamma"),
        value_called(match, "beta"),
        None,
        narrow("position_ids"),
    )
    made = build.ops(
        "EmbedLayerNormalization", *inputs, domain=MICROSOFT, outputs=2, epsilon=_epsilon(match)
    )
    return made[0]


# MatMulNBits: a matrix product whose weights are packed numbers of four bits.


_BITS = 4
_MIDDLE = 8
"""What MatMulNBits takes for a zero point where there is none."""


def ort_matmul_nbits(match: Match, build: GraphBuilder) -> Sequence[Operand]:
    """Make a MatMulNBits of ``a`` and of the weights that ``dw`` dequantises in blocks.

    The weights lie K by N with blocks along the first axis, or, where the product is called
    ``by_rows``, N by K with blocks along the second.
    """
    decoding = node_called(match, "dw")
    by_rows = match.value("by_rows") is not None
    if int(number_of(decoding, "axis", 1)) % 2 != by_rows:
        raise BuildError("the blocks do not lie along the rows of the product")
    weights, scales = (_matrix(input_of(decoding, slot), by_rows) for slot in (0, 1))
    stated = input_of(decoding, 2)
    zeros = None if stated is None else _matrix(stated, by_rows)
    size = int(number_of(decoding, "block_size", 0))
    if scales.shape[0] != len(weights) or scales.size * size != weights.size:
        raise BuildError("the scales are not one for each block")
    unsigned = dtype_of(value_called(match, "w")) == "uint4"
    shift = 0 if unsigned else _MIDDLE
    if zeros is None and unsigned:
        zeros = np.zeros(scales.shape, np.int16)
    blocks = (weights.astype(np.int16) + shift).reshape(*scales.shape, size)
    inputs: list[Operand | None] = [
        value_called(match, "a"),
        build.constant(_packed(blocks)),
        build.constant(np.ascontiguousarray(scales)),
        None if zeros is None else build.constant(_packed(zeros.astype(np.int16) + shift)),
    ]
    sizes = {"K": weights.shape[1], "N": len(weights), "bits": _BITS, "block_size": size}
    return own(match, build, "MatMulNBits", *inputs, **sizes)


def _matrix(value: Value | None, by_rows: bool) -> NDArray[Any]:  # noqa: FBT001  # private
    """Return a constant matrix, with the columns of the product as its rows."""
    data = array_of(value)
    if data is None or data.ndim != 2:  # noqa: PLR2004  # a matrix
        raise BuildError("the weights are not constant matrices")
    return data if by_rows else data.T


def _packed(numbers: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Pack numbers of four bits in pairs along the last axis, the first of a pair below."""
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros_like(numbers[..., :1])], axis=-1)
    return (numbers[..., 0::2] | numbers[..., 1::2] << _BITS).astype(np.uint8)


# Operators on quantised tensors.


def ort_qlinear_concat(match: Match, build: GraphBuilder) -> Sequence[Operand] | Rejection:
    """Make a QLinearConcat, if every input of the Concat ``r`` is dequantised from bytes.

    A zero point that the model omits becomes a constant, since the operator needs one.
    """
    dtype = dtype_of(match.outputs[0])
    zero = build.constant(np.zeros((), np.dtype(dtype)))
    inputs: list[Operand | None] = [match.value("sy"), match.value("zy") or zero]
    for value in node_called(match, "r").inputs:
        node = None if value is None else node_of(behind_identities(value), "DequantizeLinear")
        if node is None:
            return match.reject("an input of the Concat is not dequantised", at=value)
        data, scale, stated = (input_of(node, slot) for slot in range(3))
        if data is None or dtype_of(data) != dtype:
            return match.reject(f"an input of the Concat is not of {dtype}", at=value)
        if scale is None or _shape_of(scale) not in {(), (1,)}:
            return match.reject("an input of the Concat has several scales", at=value)
        inputs += [data, scale, stated or zero]
    axis = attribute_of(node_called(match, "r"), "axis")
    return own(match, build, "QLinearConcat", *inputs, axis=axis)


def _shape_of(value: Value) -> tuple[object, ...] | None:
    known = value.known_type()
    return None if known is None else known.shape
