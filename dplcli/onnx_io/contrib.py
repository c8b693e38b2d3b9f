"""The operators of ``com.microsoft`` and their attributes, since onnx does not know them.

They are written down for one version of onnxruntime, because asking it for them takes longer than
reading a catalogue. Another version is asked. A test compares the table with the version that it is
for, and shows the lines that are missing.
"""

from __future__ import annotations

from functools import cache

from dplcli.version import version_of

CONTRIB = "com.microsoft"

TABLE_VERSION = "1.32.0"
"""The version of onnxruntime that the table is for."""

_OPERATORS = """
Attention: do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes
  rotary_embedding_dim scale unidirectional
AttnLSTM: activation_alpha activation_beta activations clip direction hidden_size input_forget
BeamSearch: decoder decoder_start_token_id early_stopping encoder eos_token_id init_decoder
  model_type no_repeat_ngram_size pad_token_id vocab_size
BiasAdd:
BiasDropout: seed
BiasGelu:
BiasSoftmax: axis is_inner_broadcast
BiasSplitGelu:
BifurcationDetector: max_ngram_size min_ngram_size
BitmaskBiasDropout: seed
BitmaskDropout: seed
BranchwiseRMSNorm: epsilon num_branches
CDist: metric
CausalConvWithState: activation channels_last dilation input_channel_offset input_channels ndim
  state_channels_last state_length state_update_capacity state_window
ComplexMul:
ComplexMulConj:
ConvStateReplay:
ConvTransposeWithDynamicPads: auto_pad dilations group kernel_shape output_padding strides
CropAndResize: extrapolation_value mode
DecoderAttention: mask_filter_value num_heads
DecoderMaskedMultiHeadAttention: mask_filter_value num_heads output_qk past_present_share_buffer
  scale
DecoderMaskedSelfAttention: do_rotary mask_filter_value num_heads past_present_share_buffer scale
DequantizeBFP: bfp_type block_dim dtype
DequantizeLinear: axis
DequantizeWithOrder: order_input order_output to
DynamicQuantizeLSTM: activation_alpha activation_beta activations clip direction hidden_size
  input_forget
DynamicQuantizeMatMul:
DynamicSparseAttention: attention_mode auxiliary_kv_shared do_rotary is_causal kv_num_heads
  local_window_size num_heads output_bf16 qk_norm_epsilon rotary_interleaved rotary_offset scale
  selected_kv_source smooth_softmax
DynamicTimeWarping:
EPContext: embed_mode ep_cache_context ep_sdk_version hardware_architecture main_context max_size
  notes onnx_model_filename partition_name source
EmbedLayerNormalization: epsilon mask_index_type
EngramGate: epsilon
ExpandDims:
FastGelu:
FusedConv: activation activation_params auto_pad dilations group kernel_shape pads strides
FusedGemm: activation activation_alpha activation_beta activation_gamma alpha beta transA transB
FusedMatMul: alpha transA transB transBatchA transBatchB
FusedMatMulActivation: activation activation_alpha activation_axis activation_beta
  activation_gamma alpha transA transB transBatchA transBatchB
GatedAdd:
GatedDeltaNet: beta_activation chunk_size gate_activation gate_lower_bound qk_l2_norm scale
  state_update_capacity update_rule
GatedDeltaNetStateReplay:
GatedRMSNorm: activation epsilon
GatedRelativePositionBias: num_heads
GatherBlockQuantized: bits block_size gather_axis quantize_axis
GatherND:
GatherPacked: K output_dtype packed_type
Gelu:
GemmFastGelu:
GemmFloat8: activation alpha beta dtype transA transB
GemmaRotaryEmbedding:
GreedySearch: decoder decoder_start_token_id encoder eos_token_id init_decoder model_type
  no_repeat_ngram_size pad_token_id vocab_size
GridSample: align_corners mode padding_mode
GroupNorm: activation channels_last epsilon groups
GroupQueryAttention: causal do_rotary k_norm_epsilon k_quant_type kv_cache_bit_width kv_num_heads
  local_window_size num_heads q_norm_epsilon qk_norm_epsilon qk_output rotary_interleaved scale
  sliding_window_cache smooth_softmax softcap v_quant_type
HyperConnectionLowRankMix: epsilon gate_div gate_mul num_branches reduction_scale silu_alpha
HyperConnectionPostMix: num_branches
HyperConnectionPreMix: num_branches reduction_scale
Inverse:
Irfft: normalized onesided signal_ndim
IsAllFinite: isinf_only isnan_only
LinearAttention: chunk_size kv_num_heads q_num_heads scale state_window update_rule
LinearAttentionGate:
LongformerAttention: num_heads window
MRotaryEmbedding: interleaved is_packed_batching mrope_layout mrope_section num_heads
  rotary_embedding_dim scale
Mamba2Verify: d_state epsilon head_dim heads n_groups time_step_min
MatMulBlockQuantizedFp4Weight: block_size
MatMulBlockQuantizedFp8Weight: block_size
MatMulBnb4: K N block_size quant_type training_mode transB
MatMulFpQ4: blk_quant_type
MatMulInteger16:
MatMulIntegerToFloat:
MatMulNBits: K N accuracy_level bits block_size weight_prepacked
MatMulNBitsMlp: K N accuracy_level activation bits block_size epsilon
MatMulNBitsQLoRA: K N accuracy_level bits block_size lora_bits lora_block_size
MatMulNBitsQkv: K Nkv Nq accuracy_level bits block_size epsilon
MatMulPacked: K N activation_type packed_type
MaxpoolWithMask: auto_pad kernel_shape pads storage_order strides
MoE: activation_alpha activation_beta activation_type k normalize_routing_weights swiglu_fusion
  swiglu_limit swiglu_limit_after_activation use_sparse_mixer
MoEGroupRouter: group_topk n_group router_sentinel top_k topk_group
MoEPacked: activation_type down_type gate_type k normalize_routing_weights routed_scaling_factor
  routing_epsilon up_type
MulInteger:
MultiHeadAttention: mask_filter_value num_heads scale unidirectional
MurmurHash3: positive seed
NGramHashMapping: max_ngram_size n_head_per_ngram pad_id reset_on_eos
NGramRepeatBlock: ngram_size
NhwcConv: auto_pad dilations group kernel_shape pads strides
NhwcFusedConv: activation activation_params auto_pad dilations group kernel_shape pads strides
NhwcMaxPool: auto_pad ceil_mode dilations kernel_shape pads strides
PackedAttention: num_heads qkv_hidden_sizes scale
PackedMultiHeadAttention: mask_filter_value num_heads scale
PackedSparseAttentionIndexer: compress_ratio epsilon head_weight_scale index_topk
  indexshare_state_policy max_output_entries policy_mode scale state_capacity
  state_update_capacity token_budget
PackedSparseAttentionIndexerMerge: max_output_entries policy_mode
Pad: mode
PagedAttention: do_rotary is_causal k_cache_dtype k_quant_type kv_cache_layout kv_num_heads
  local_window_size num_heads qk_norm_epsilon rotary_interleaved rotary_offset scale softcap
  v_cache_dtype v_head_size v_quant_type
QAttention: do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional
QEmbedLayerNormalization: epsilon
QGemm: alpha transA transB
QLinearAdd:
QLinearAveragePool: auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides
QLinearConcat: axis
QLinearConv: auto_pad channels_last dilations group kernel_shape pads strides
QLinearGlobalAveragePool: channels_last
QLinearLeakyRelu: alpha
QLinearMul:
QLinearReduceMean: axes keepdims
QLinearSigmoid:
QLinearSoftmax: axis opset
QLinearWhere:
QMoE: accuracy_level activation_alpha activation_beta activation_type block_size
  expert_weight_bits fc1_expert_weight_bits fc2_expert_weight_bits fc3_expert_weight_bits k
  normalize_routing_weights quant_type swiglu_fusion swiglu_limit swiglu_limit_after_activation
  use_sparse_mixer weights_prepacked
QOrderedAttention: num_heads order_input order_output order_weight qkv_hidden_sizes unidirectional
QOrderedGelu: order_X order_Y
QOrderedLayerNormalization: axis epsilon order_X order_Y
QOrderedLongformerAttention: num_heads order_global_weight order_input order_output order_weight
  window
QOrderedMatMul: order_A order_B order_Y
QuantizeBFP: bfp_type block_dim
QuantizeLinear: axis
QuantizeWithOrder: order_input order_output
QuickGelu: alpha
RMSNormRotary: epsilon flatten_batch input_start input_width output_fp16 rotary_embedding_dim
  use_fp32_arithmetic
Range:
ReduceSumInteger: axes keepdims
RelativePositionBias: is_bidirectional max_distance
RemovePadding:
RestorePadding:
Rfft: normalized onesided signal_ndim
RotaryEmbedding: interleaved is_packed_batching num_heads rotary_embedding_dim scale
RouterGateUpProj: activation activation_alpha activation_beta limit router_size
SampleOp:
Sampling: custom decoder decoder_start_token_id encoder eos_token_id filter_value init_decoder
  min_tokens_to_keep model_type no_repeat_ngram_size pad_token_id presence_penalty temperature
  top_p vocab_size
ScaledSiLU: alpha
SkipGroupNorm: activation channels_last epsilon groups
SkipLayerNormalization: epsilon
SkipSimplifiedLayerNormalization: epsilon
Snpe: DLC notes snpe_version target_device
SparseAttention: do_rotary kv_num_heads num_heads rotary_interleaved scale sparse_block_size
SparseAttentionIndexer: compress_ratio epsilon head_weight_scale index_topk policy_mode scale
  token_budget
SparsePagedAttention: attention_mode auxiliary_cache_layout auxiliary_kv_shared do_rotary
  is_causal k_quant_type kv_num_heads local_window_size num_heads qk_norm_epsilon
  rotary_interleaved rotary_offset scale selected_kv_source softcap v_quant_type
SparseToDenseMatMul: alpha transA transB
SpeculativePrefixCommit: head_rows
SwiGLU: activation_alpha activation_beta limit round_activation
Tokenizer: mark mincharnum pad_value separators tokenexp
TorchEmbedding:
TransposeMatMul: alpha transA transB
Trilu: upper
UnfoldTensor: dim size step
Unique:
VarlenCausalConvWithState: activation delta_offset dilation group_size state_update_capacity
VarlenNGramHashMapping: max_ngram_size n_head_per_ngram pad_id reset_on_eos state_update_capacity
WhisperBeamSearch: beginning_timestamp_token_id decoder decoder_output_cross_qk
  decoder_start_token_id early_stopping encoder eos_token_id init_decoder model_type
  no_repeat_ngram_size no_speech_token_id no_timestamps_token_id pad_token_id start_of_lm_token_id
  transcribe_token_id translate_token_id vocab_size
WordConvEmbedding: char_embedding_size conv_window_size embedding_size
"""


@cache
def contrib_operators() -> dict[str, frozenset[str]]:
    """Return the attributes of each operator, by its name."""
    is_other = version_of("onnxruntime") != TABLE_VERSION
    return installed_operators() if is_other else written_operators()


def installed_operators() -> dict[str, frozenset[str]]:
    """Ask onnxruntime for the attributes of each operator, by its name."""
    from onnxruntime.capi import (  # noqa: PLC0415  # slow to load
        onnxruntime_pybind11_state as state,
    )

    found: dict[str, frozenset[str]] = {}
    for schema in state.get_all_operator_schema():
        if schema.domain == CONTRIB:
            known = found.get(schema.name, frozenset[str]())
            found[schema.name] = known.union(schema.attributes)
    return found


def written_operators() -> dict[str, frozenset[str]]:
    """Return what the table says of each operator, by its name."""
    lines = _OPERATORS.replace("\n  ", " ").split("\n")[1:-1]
    pairs = (line.split(":") for line in lines)
    return {name: frozenset(attributes.split()) for name, attributes in pairs}
