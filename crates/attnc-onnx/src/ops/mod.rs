//! The operators: one table, one file a family.
//!
//! An importer reads operands and attributes of a [`Call`] and gives the results. The table says which
//! attributes it understands; any other is an error before it runs, so none is ever ignored.

mod attend;
mod attention;
mod causal_conv;
mod constant;
mod contrib;
mod contrib_attention;
mod conv;
mod einsum;
mod elementwise;
mod flex_attention;
mod fused;
mod gather;
mod linear_attention;
mod matmul;
mod nbits;
mod norm;
mod pool;
mod quantised;
mod reduce;
mod resize;
mod rotary;
mod scatter;
mod select;
mod shape;

use crate::Operator;
use crate::attrs::Attrs;
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::proto::NodeProto;
use crate::value::Value;
use attnc_ir::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

pub(crate) type Importer = fn(&mut Call<'_, '_>) -> OpResult<Vec<Value>>;

/// How an operator is imported.
pub(crate) struct OpEntry {
    domain: &'static str,
    name: &'static str,
    /// More operands than this are an error.
    pub(crate) most_inputs: usize,
    attrs: &'static [&'static str],
    /// The newest operator set whose definition of it this follows. Sets up to there that changed it are
    /// told apart by the importer, or only allow more element types.
    newest: i64,
    pub(crate) import: Importer,
    /// The results go through the subgraph of that attribute, where it is given, and then, behind the
    /// operands, through that importer; and so on.
    pub(crate) subgraphs: &'static [(&'static str, Importer)],
}

/// The newest operator set of ONNX whose operators were all compared with their importers.
pub(crate) const NEWEST: i64 = 28;

const fn op(
    name: &'static str,
    most_inputs: usize,
    attrs: &'static [&'static str],
    import: Importer,
) -> OpEntry {
    OpEntry {
        domain: "",
        name,
        most_inputs,
        attrs,
        newest: NEWEST,
        import,
        subgraphs: &[],
    }
}

/// An operator of `com.microsoft`, all of which are of version 1.
const fn ms(
    name: &'static str,
    most_inputs: usize,
    attrs: &'static [&'static str],
    import: Importer,
) -> OpEntry {
    OpEntry {
        domain: "com.microsoft",
        name,
        most_inputs,
        attrs,
        newest: 1,
        import,
        subgraphs: &[],
    }
}

const ANY: usize = usize::MAX;

const OPS: &[OpEntry] = &[
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
    op("Concat", ANY, &["axis"], shape::concat),
    op("Expand", 2, &[], shape::expand),
    op("Flatten", 1, &["axis"], shape::flatten),
    op("Pad", 4, &["mode", "pads", "value"], shape::pad),
    op("Reshape", 2, &["allowzero", "shape"], shape::reshape),
    op("Shape", 1, &["start", "end"], shape::shape),
    op("Size", 1, &[], shape::size),
    op("Slice", 5, &["starts", "ends", "axes"], shape::slice),
    op("Split", 2, &["axis", "split", "num_outputs"], shape::split),
    op("Squeeze", 2, &["axes"], shape::squeeze),
    op("Tile", 2, &[], shape::tile),
    op(
        "DepthToSpace",
        1,
        &["blocksize", "mode"],
        shape::depth_to_space,
    ),
    op("SpaceToDepth", 1, &["blocksize"], shape::space_to_depth),
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
    op("SequenceAt", 2, &[], select::sequence_at),
    op(
        "SplitToSequence",
        2,
        &["axis", "keepdims"],
        select::split_to_sequence,
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
        select::scatter_elements,
    ),
    op("ScatterND", 3, &["reduction"], scatter::scatter_nd),
    op(
        "TensorScatter",
        3,
        &["axis", "mode"],
        scatter::tensor_scatter,
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
    // Of ONNX Runtime.
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

/// Every operator of the table.
pub(crate) fn operators() -> impl Iterator<Item = Operator> {
    OPS.iter().map(|entry| Operator {
        domain: entry.domain,
        name: entry.name,
        most_inputs: entry.most_inputs,
        attributes: entry.attrs,
    })
}

const REDUCE: &[&str] = &["axes", "keepdims", "noop_with_empty_axes"];

/// What is said of an operator that is not known.
const ELSEWHERE: (&str, &str) = (
    "the operator is not supported",
    "an export that writes it in other operators",
);

/// Why an operator of the standard is not supported, and what would be needed.
fn refusal(op: &str) -> (&'static str, &'static str) {
    match op {
        "Compress" | "Unique" => (
            "a result whose length depends on data",
            "an export that selects with a mask (Where) instead of a list of positions",
        ),
        "NonMaxSuppression" => (
            "sorting by data",
            "an export that thresholds or masks instead",
        ),
        "SequenceMap" => (
            "control flow over sequences",
            "an export without it: traced, or with its loops unrolled",
        ),
        "ConvInteger" | "QLinearConv" => {
            ("convolutions of quantised models", "the model in floats")
        }
        "RandomNormal" | "RandomNormalLike" | "RandomUniform" | "RandomUniformLike"
        | "Bernoulli" | "Multinomial" => ("random numbers", "a model exported for inference"),
        _ => ELSEWHERE,
    }
}

/// The importer of a node, if its operator and all its attributes are known.
pub(crate) fn find(node: &NodeProto, attrs: &Attrs<'_>, opset: i64) -> OpResult<&'static OpEntry> {
    let domain = if node.domain == "ai.onnx" {
        ""
    } else {
        &node.domain
    };
    let Some(entry) = OPS
        .iter()
        .find(|e| e.name == node.op_type && e.domain == domain)
    else {
        let (what, needed) = if domain.is_empty() {
            refusal(&node.op_type)
        } else {
            ELSEWHERE
        };
        return Err(OpError::unsupported(what, needed));
    };
    if opset > entry.newest {
        return Err(OpError::unsupported(
            format!("the operator as operator set {opset} defines it"),
            format!("operator set {} or older", entry.newest),
        ));
    }
    check_attributes(attrs, entry.attrs)?;
    Ok(entry)
}

/// Refuses attributes that are not among the known ones.
pub(crate) fn check_attributes(attrs: &Attrs<'_>, known: &[&str]) -> OpResult<()> {
    let names = attrs.0.iter().map(|(name, _)| *name);
    let unknown: Vec<_> = names.filter(|name| !known.contains(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let needed = if known.is_empty() {
        "no attribute".to_owned()
    } else {
        format!("only `{}`", known.join("`, `"))
    };
    let what = format!("attribute `{}`", unknown.join("`, `"));
    Err(OpError::unsupported(what, needed))
}
