//! The table of the operators of ONNX itself.

use super::{
    ANY, OpEntry, attention, cache_write, causal_conv, constant, conv, einsum, elementwise,
    flex_attention, gather, linear_attention, matmul, norm, op, pixels, pool, quantised, reduce,
    resize, rotary, scatter, scatter_elements, select, sequences, shape, slice,
};
use attnc_ir::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

pub(super) const OPS: &[OpEntry] = &[
    // Pointwise.
    op("Abs", 1, &[], |c| elementwise::unary(c, UnaryOp::Abs)),
    op("Add", 2, &[], |c| elementwise::binary(c, BinaryOp::Add)),
    op("And", 2, &[], |c| elementwise::binary(c, BinaryOp::And)),
    op(
        "Cast",
        1,
        &["to", "saturate", "round_mode"],
        elementwise::cast,
    ),
    op(
        "CastLike",
        2,
        &["saturate", "round_mode"],
        elementwise::cast_like,
    ),
    op("Ceil", 1, &[], |c| elementwise::unary(c, UnaryOp::Ceil)),
    op("Clip", 3, &["min", "max"], elementwise::clip),
    op("Celu", 1, &["alpha"], elementwise::celu),
    op("Cos", 1, &[], |c| elementwise::unary(c, UnaryOp::Cos)),
    op("Div", 2, &[], |c| elementwise::binary(c, BinaryOp::Div)),
    op("Dropout", 3, &["ratio", "seed"], elementwise::dropout),
    op("Elu", 1, &["alpha"], elementwise::elu),
    op("Equal", 2, &[], |c| elementwise::compare(c, CompareOp::Eq)),
    op("Erf", 1, &[], |c| elementwise::unary(c, UnaryOp::Erf)),
    op("Exp", 1, &[], |c| elementwise::unary(c, UnaryOp::Exp)),
    op("Floor", 1, &[], |c| elementwise::unary(c, UnaryOp::Floor)),
    op("Gelu", 1, &["approximate"], elementwise::gelu),
    op("Greater", 2, &[], |c| {
        elementwise::compare(c, CompareOp::Gt)
    }),
    op("GreaterOrEqual", 2, &[], |c| {
        elementwise::compare(c, CompareOp::Ge)
    }),
    op(
        "HardSigmoid",
        1,
        &["alpha", "beta"],
        elementwise::hard_sigmoid,
    ),
    op("HardSwish", 1, &[], elementwise::hard_swish),
    op("Identity", 1, &[], |c| Ok(vec![c.input(0)?])),
    op(
        "IsInf",
        1,
        &["detect_negative", "detect_positive"],
        elementwise::is_inf,
    ),
    op("IsNaN", 1, &[], |c| elementwise::unary(c, UnaryOp::IsNan)),
    op("LeakyRelu", 1, &["alpha"], elementwise::leaky_relu),
    op("Less", 2, &[], |c| elementwise::compare(c, CompareOp::Lt)),
    op("LessOrEqual", 2, &[], |c| {
        elementwise::compare(c, CompareOp::Le)
    }),
    op("Log", 1, &[], |c| elementwise::unary(c, UnaryOp::Log)),
    op("Max", ANY, &[], |c| elementwise::variadic(c, BinaryOp::Max)),
    op("Mean", ANY, &[], elementwise::mean),
    op("Min", ANY, &[], |c| elementwise::variadic(c, BinaryOp::Min)),
    op("Mish", 1, &[], elementwise::mish),
    op("Mod", 2, &["fmod"], elementwise::modulo),
    op("Mul", 2, &[], |c| elementwise::binary(c, BinaryOp::Mul)),
    op("Neg", 1, &[], |c| elementwise::unary(c, UnaryOp::Neg)),
    op("Not", 1, &[], |c| elementwise::unary(c, UnaryOp::Not)),
    op("Or", 2, &[], |c| elementwise::binary(c, BinaryOp::Or)),
    op("PRelu", 2, &[], elementwise::p_relu),
    op("Pow", 2, &[], elementwise::pow),
    op("Reciprocal", 1, &[], |c| {
        elementwise::unary(c, UnaryOp::Reciprocal)
    }),
    op("Relu", 1, &[], |c| elementwise::unary(c, UnaryOp::Relu)),
    op("Round", 1, &[], |c| elementwise::unary(c, UnaryOp::Round)),
    op("Selu", 1, &["alpha", "gamma"], elementwise::selu),
    op("Sigmoid", 1, &[], |c| {
        elementwise::unary(c, UnaryOp::Sigmoid)
    }),
    op("Sign", 1, &[], |c| elementwise::unary(c, UnaryOp::Sign)),
    op("Sin", 1, &[], |c| elementwise::unary(c, UnaryOp::Sin)),
    op("Softplus", 1, &[], |c| {
        elementwise::unary(c, UnaryOp::Softplus)
    }),
    op("Softsign", 1, &[], elementwise::softsign),
    op("Sqrt", 1, &[], |c| elementwise::unary(c, UnaryOp::Sqrt)),
    op("Sub", 2, &[], |c| elementwise::binary(c, BinaryOp::Sub)),
    op("Sum", ANY, &[], |c| elementwise::variadic(c, BinaryOp::Add)),
    op("Swish", 1, &["alpha"], elementwise::swish),
    op("Tan", 1, &[], elementwise::tan),
    op("Tanh", 1, &[], |c| elementwise::unary(c, UnaryOp::Tanh)),
    op(
        "ThresholdedRelu",
        1,
        &["alpha"],
        elementwise::thresholded_relu,
    ),
    op("Where", 3, &[], elementwise::select),
    op("Xor", 2, &[], |c| elementwise::binary(c, BinaryOp::Xor)),
    // Shapes, views and copies.
    op("Concat", ANY, &["axis"], slice::concat),
    op("Expand", 2, &[], shape::expand),
    op("Flatten", 1, &["axis"], shape::flatten),
    op("Pad", 4, &["mode", "pads", "value"], shape::pad),
    op("Reshape", 2, &["allowzero", "shape"], shape::reshape),
    op("Shape", 1, &["start", "end"], shape::shape),
    op("Size", 1, &[], shape::size),
    op("Slice", 5, &["starts", "ends", "axes"], slice::slice),
    op("Split", 2, &["axis", "split", "num_outputs"], slice::split),
    op("Squeeze", 2, &["axes"], shape::squeeze),
    op("Tile", 2, &[], shape::tile),
    op(
        "DepthToSpace",
        1,
        &["blocksize", "mode"],
        pixels::depth_to_space,
    ),
    op("SpaceToDepth", 1, &["blocksize"], pixels::space_to_depth),
    op("Transpose", 1, &["perm"], shape::transpose),
    op("Trilu", 2, &["upper"], shape::trilu),
    op("Unsqueeze", 2, &["axes"], shape::unsqueeze),
    // Constants.
    op(
        "Constant",
        0,
        &[
            "value",
            "value_float",
            "value_floats",
            "value_int",
            "value_ints",
        ],
        constant::constant,
    ),
    op(
        "ConstantOfShape",
        1,
        &["value"],
        constant::constant_of_shape,
    ),
    op("EyeLike", 1, &["dtype", "k"], constant::eye_like),
    op("Range", 3, &["stash_type"], constant::range),
    // Lookups.
    op("Gather", 2, &["axis"], gather::gather),
    op("GatherElements", 2, &["axis"], gather::gather_elements),
    op("GatherND", 2, &["batch_dims"], gather::gather_nd),
    op(
        "Resize",
        4,
        &[
            "antialias",
            "axes",
            "coordinate_transformation_mode",
            "cubic_coeff_a",
            "exclude_outside",
            "extrapolation_value",
            "keep_aspect_ratio_policy",
            "mode",
            "nearest_mode",
        ],
        resize::resize,
    ),
    op("ArgMax", 1, ARG, |c| select::arg(c, ReduceOp::Max)),
    op("ArgMin", 1, ARG, |c| select::arg(c, ReduceOp::Min)),
    op("SequenceAt", 2, &[], sequences::sequence_at),
    op(
        "SplitToSequence",
        2,
        &["axis", "keepdims"],
        sequences::split_to_sequence,
    ),
    op("NonZero", 1, &[], select::non_zero),
    op("OneHot", 3, &["axis"], select::one_hot),
    op(
        "TopK",
        2,
        &["axis", "k", "largest", "sorted"],
        select::top_k,
    ),
    op(
        "ScatterElements",
        3,
        &["axis", "reduction"],
        scatter_elements::scatter_elements,
    ),
    op("ScatterND", 3, &["reduction"], scatter::scatter_nd),
    op(
        "TensorScatter",
        3,
        &["axis", "mode"],
        cache_write::tensor_scatter,
    ),
    // Reductions and norms.
    op("CumSum", 2, &["exclusive", "reverse"], reduce::cumsum),
    op("LogSoftmax", 1, &["axis"], reduce::log_softmax),
    op("ReduceL1", 2, REDUCE, reduce::l1),
    op("ReduceL2", 2, REDUCE, reduce::l2),
    op("ReduceLogSum", 2, REDUCE, reduce::log_of_sum),
    op("ReduceLogSumExp", 2, REDUCE, reduce::log_sum_exp),
    op("ReduceMax", 2, REDUCE, |c| reduce::reduce(c, ReduceOp::Max)),
    op("ReduceMean", 2, REDUCE, |c| {
        reduce::reduce(c, ReduceOp::Mean)
    }),
    op("ReduceMin", 2, REDUCE, |c| reduce::reduce(c, ReduceOp::Min)),
    op("ReduceProd", 2, REDUCE, |c| {
        reduce::reduce(c, ReduceOp::Prod)
    }),
    op("ReduceSum", 2, REDUCE, |c| reduce::reduce(c, ReduceOp::Sum)),
    op("ReduceSumSquare", 2, REDUCE, reduce::sum_square),
    op("Softmax", 1, &["axis"], reduce::softmax),
    op(
        "LayerNormalization",
        3,
        &["axis", "epsilon", "stash_type"],
        norm::layer_norm,
    ),
    op(
        "BatchNormalization",
        5,
        &["epsilon", "momentum", "spatial", "training_mode"],
        norm::batch_norm,
    ),
    op(
        "GroupNormalization",
        3,
        &["epsilon", "num_groups", "stash_type"],
        norm::group_norm,
    ),
    op(
        "InstanceNormalization",
        3,
        &["epsilon"],
        norm::instance_norm,
    ),
    op(
        "MeanVarianceNormalization",
        1,
        &["axes"],
        norm::mean_variance,
    ),
    op(
        "RMSNormalization",
        2,
        &["axis", "epsilon", "stash_type"],
        norm::rms_norm,
    ),
    op(
        "SimplifiedLayerNormalization",
        2,
        &["axis", "epsilon", "stash_type"],
        norm::rms_norm,
    ),
    // Contractions.
    op(
        "Gemm",
        3,
        &["alpha", "beta", "transA", "transB"],
        matmul::gemm,
    ),
    op("Einsum", ANY, &["equation"], einsum::einsum),
    op("MatMul", 2, &[], matmul::matmul),
    op(
        "Conv",
        3,
        &[
            "auto_pad",
            "dilations",
            "group",
            "kernel_shape",
            "pads",
            "strides",
        ],
        conv::conv,
    ),
    op(
        "ConvTranspose",
        3,
        &[
            "auto_pad",
            "dilations",
            "group",
            "kernel_shape",
            "output_padding",
            "output_shape",
            "pads",
            "strides",
        ],
        conv::conv_transpose,
    ),
    op("AveragePool", 1, AVERAGE_POOL, pool::average),
    op("MaxPool", 1, MAX_POOL, pool::max),
    op("GlobalAveragePool", 1, &[], |c| {
        pool::global(c, ReduceOp::Mean)
    }),
    op("GlobalMaxPool", 1, &[], |c| pool::global(c, ReduceOp::Max)),
    op(
        "Attention",
        7,
        &[
            "is_causal",
            "kv_num_heads",
            "left_window_size",
            "q_num_heads",
            "qk_matmul_output_mode",
            "right_window_size",
            "scale",
            "softcap",
            "softmax_precision",
        ],
        attention::attention,
    ),
    op(
        "CausalConvWithState",
        4,
        &["activation"],
        causal_conv::causal_conv,
    ),
    op(
        "LinearAttention",
        6,
        // The chunk size is a hint that does not change the result.
        &[
            "chunk_size",
            "kv_num_heads",
            "q_num_heads",
            "scale",
            "update_rule",
        ],
        linear_attention::linear_attention,
    ),
    op(
        "RotaryEmbedding",
        4,
        &["interleaved", "num_heads", "rotary_embedding_dim"],
        rotary::rotary_embedding,
    ),
    OpEntry {
        domain: "ai.onnx.preview",
        name: "FlexAttention",
        most_inputs: 3,
        attrs: &["prob_mod", "scale", "score_mod", "softmax_precision"],
        newest: 1,
        import: flex_attention::scores,
        subgraphs: &[
            ("score_mod", flex_attention::probabilities),
            ("prob_mod", flex_attention::output),
        ],
    },
    // Of quantised models.
    op(
        "DequantizeLinear",
        3,
        &["axis", "block_size", "output_dtype"],
        quantised::dequantize,
    ),
    op("DynamicQuantizeLinear", 1, &[], quantised::dynamic_quantize),
    op("MatMulInteger", 4, &[], quantised::matmul_integer),
    op("QLinearMatMul", 8, &[], quantised::qlinear_matmul),
    op(
        "QuantizeLinear",
        3,
        &["axis", "block_size"],
        quantised::quantize,
    ),
];

const ARG: &[&str] = &["axis", "keepdims", "select_last_index"];

const AVERAGE_POOL: &[&str] = &[
    "auto_pad",
    "ceil_mode",
    "count_include_pad",
    "dilations",
    "kernel_shape",
    "pads",
    "strides",
];

const MAX_POOL: &[&str] = &[
    "auto_pad",
    "ceil_mode",
    "dilations",
    "kernel_shape",
    "pads",
    "storage_order",
    "strides",
];

const REDUCE: &[&str] = &["axes", "keepdims", "noop_with_empty_axes"];
