"""Operators of onnxruntime for floating point: FusedConv, FusedGemm, FusedMatMul and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dplcli.dpl.draft_attributes import BuildError
from dplcli.dpl.transforms.ort_common import (
    MICROSOFT,
    dtype_of,
    in_first_place,
    input_of,
    node_called,
    number_called,
    number_of,
    value_called,
)
from dplcli.ir.operators import attribute_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.dpl.draft import GraphBuilder, Operand
    from dplcli.dpl.match import Match
    from dplcli.ir import Node, Value

_ACTIVATION_PARAMETERS: dict[str, tuple[tuple[str, float], ...]] = {
    "LeakyRelu": (("alpha", 0.01),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "Elu": (("alpha", 1.0),),
    "Celu": (("alpha", 1.0),),
    "ThresholdedRelu": (("alpha", 1.0),),
    "Selu": (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
}
"""The attributes of activations, in the order of FusedConv's ``activation_params``."""

_FLOAT32 = np.finfo(np.float32)
_SMALLEST_BATCHED_RANK = 3


def ort_fused_conv(match: Match, build: GraphBuilder) -> Operand:
    """Make a FusedConv of ``conv``, of what is added to it (``z``) and of the activation ``y``."""
    conv = node_called(match, "conv")
    parameters: list[float] | None = None
    activation = None
    if match.root.op_type != "Add":
        activation = match.root.op_type
        parameters = _bounds(match) if activation == "Clip" else _parameters(match.root)
    return build.op(
        "FusedConv",
        input_of(conv, 0),
        input_of(conv, 1),
        input_of(conv, 2),
        match.value("z"),
        domain=MICROSOFT,
        **conv.attributes,
        activation=activation,
        activation_params=parameters or None,
    )


def _parameters(node: Node) -> list[float]:
    known = _ACTIVATION_PARAMETERS.get(node.op_type, ())
    return [number_of(node, name, default) for name, default in known]


def _bounds(match: Match) -> list[float]:
    low, high = number_called(match, "low"), number_called(match, "high")
    return [
        float(_FLOAT32.min) if low is None else low,
        float(_FLOAT32.max) if high is None else high,
    ]


def ort_fused_gemm(match: Match, build: GraphBuilder) -> Operand:
    """Make a FusedGemm of ``gemm`` and the activation that is the root."""
    gemm = node_called(match, "gemm")
    names = [name for name, _ in _ACTIVATION_PARAMETERS.get(match.root.op_type, ())]
    parameters = dict(zip(names, _parameters(match.root), strict=True))
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
        self.transposed = [bool(number_of(node, name, 0)) for name in ("transA", "transB")]
        batched = ("transBatchA", "transBatchB")
        self.batch_moved = [bool(number_of(node, name, 0)) for name in batched]
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
        made = build.op(op_type, *inputs, domain=MICROSOFT, epsilon=epsilon)
        return in_first_place(match, made)
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
