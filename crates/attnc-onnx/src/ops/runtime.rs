//! The table of the operators of ONNX Runtime, `com.microsoft`.

use super::{OpEntry, contrib, contrib_attention, fused, ms, nbits, norm, quantised};
use attnc_ir::UnaryOp;

pub(super) const OPS: &[OpEntry] = &[
    ms("BiasGelu", 2, &[], |c| contrib::biased(c, UnaryOp::Gelu)),
    ms("FastGelu", 2, &[], |c| {
        contrib::biased(c, UnaryOp::GeluTanh)
    }),
    ms("Gelu", 1, &[], |c| contrib::biased(c, UnaryOp::Gelu)),
    ms("QuickGelu", 1, &["alpha"], contrib::quick_gelu),
    ms(
        "SkipLayerNormalization",
        5,
        &["epsilon"],
        contrib::skip_layer_norm,
    ),
    ms(
        "SkipSimplifiedLayerNormalization",
        4,
        &["epsilon"],
        contrib::skip_rms_norm,
    ),
    ms(
        "SimplifiedLayerNormalization",
        2,
        &["axis", "epsilon", "stash_type"],
        norm::rms_norm,
    ),
    ms(
        "EmbedLayerNormalization",
        9,
        &["epsilon", "mask_index_type"],
        contrib::embed_layer_norm,
    ),
    ms(
        "FusedMatMul",
        2,
        &["alpha", "transA", "transB", "transBatchA", "transBatchB"],
        fused::matmul,
    ),
    ms(
        "TransposeMatMul",
        2,
        &["alpha", "transA", "transB"],
        fused::matmul,
    ),
    ms(
        "FusedGemm",
        3,
        &[
            "activation",
            "activation_alpha",
            "activation_beta",
            "activation_gamma",
            "alpha",
            "beta",
            "transA",
            "transB",
        ],
        fused::gemm,
    ),
    ms(
        "FusedConv",
        4,
        &[
            "activation",
            "activation_params",
            "auto_pad",
            "dilations",
            "group",
            "kernel_shape",
            "pads",
            "strides",
        ],
        fused::conv,
    ),
    ms(
        "MatMulNBits",
        6,
        // The accuracy level says what may be given up; nothing is.
        &["K", "N", "accuracy_level", "bits", "block_size"],
        nbits::matmul_nbits,
    ),
    ms(
        "MatMulIntegerToFloat",
        7,
        &[],
        quantised::matmul_integer_to_float,
    ),
    ms(
        "DynamicQuantizeMatMul",
        5,
        &[],
        quantised::dynamic_quantize_matmul,
    ),
    ms(
        "RotaryEmbedding",
        4,
        &[
            "interleaved",
            "is_packed_batching",
            "num_heads",
            "rotary_embedding_dim",
            "scale",
        ],
        contrib::rotary_embedding,
    ),
    ms(
        "MultiHeadAttention",
        8,
        &["mask_filter_value", "num_heads", "scale", "unidirectional"],
        contrib_attention::multi_head,
    ),
    ms(
        "Attention",
        6,
        &[
            "do_rotary",
            "mask_filter_value",
            "num_heads",
            "past_present_share_buffer",
            "qkv_hidden_sizes",
            "scale",
            "unidirectional",
        ],
        contrib_attention::packed,
    ),
    ms(
        "GroupQueryAttention",
        17,
        &[
            "do_rotary",
            "kv_num_heads",
            "local_window_size",
            "num_heads",
            "rotary_interleaved",
            "scale",
            "smooth_softmax",
            "softcap",
        ],
        contrib_attention::group_query,
    ),
];
