"""Which functions are worth a call of a target's library, and which regions are not.

After ``prune_dnnl_subgraphs`` of TVM (``python/tvm/relay/op/contrib/dnnl.py``): a region without
an operator that is worth it goes back to where it was, unless it is the target's only one. TVM
counts convolutions and transposed ones, dense layers, batched matrix products, layer normalisation
and global average pooling; the operators that ONNX has for these, or for many of these in one, are
heavy here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dplcli.ir.functions import called_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dplcli.ir import Function, Node
    from dplcli.passes.merge import Region

_BY_DOMAIN = {
    "": """
        Conv ConvTranspose ConvInteger QLinearConv DeformConv CausalConvWithState
        Gemm MatMul MatMulInteger QLinearMatMul Einsum
        LayerNormalization RMSNormalization SimplifiedLayerNormalization GlobalAveragePool
        Attention LinearAttention LSTM GRU RNN
        """,
    "ai.onnx.preview": "FlexAttention",
    "com.microsoft": """
        FusedConv NhwcConv NhwcFusedConv QLinearConv ConvTransposeWithDynamicPads WordConvEmbedding
        FusedGemm FusedMatMul FusedMatMulActivation TransposeMatMul SparseToDenseMatMul
        GemmFastGelu GemmFloat8 QGemm MatMulInteger16 MatMulIntegerToFloat DynamicQuantizeMatMul
        MatMulNBits MatMulNBitsMlp MatMulNBitsQkv MatMulBnb4 MatMulFpQ4 QOrderedMatMul
        SkipLayerNormalization SkipSimplifiedLayerNormalization EmbedLayerNormalization
        QEmbedLayerNormalization QOrderedLayerNormalization QLinearGlobalAveragePool
        Attention QAttention QOrderedAttention MultiHeadAttention GroupQueryAttention
        PackedAttention PackedMultiHeadAttention DecoderAttention DecoderMaskedSelfAttention
        DecoderMaskedMultiHeadAttention LongformerAttention QOrderedLongformerAttention
        PagedAttention SparseAttention DynamicSparseAttention LinearAttention
        DynamicQuantizeLSTM AttnLSTM MoE QMoE
        """,
}

HEAVY = frozenset((domain, name) for domain, names in _BY_DOMAIN.items() for name in names.split())
"""Domain and name of the operators that make a region worth it."""


def is_heavy(node: Node) -> bool:
    """Tell whether *node* is such an operator, or calls a function that has one at any depth."""
    pending = [node]
    seen: set[Function] = set()
    while pending:
        current = pending.pop()
        if (current.domain, current.op_type) in HEAVY:
            return True
        function = called_function(current)
        if function is not None and function not in seen:
            seen.add(function)
            pending += [inner for graph in function.body.and_inner() for inner in graph]
    return False


def light_regions(regions: Sequence[Region]) -> list[Region]:
    """Return the regions without such an operator, but none that is its target's only one."""
    counts = Counter(region.call.domain for region in regions)
    return [
        region for region in regions if counts[region.call.domain] > 1 and not is_heavy(region.call)
    ]
