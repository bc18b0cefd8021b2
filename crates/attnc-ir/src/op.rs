//! The operations of the graph: as few as express everything.
//!
//! *Views* never move data by themselves, *pointwise* and *data* ops all have a scalar form
//! ([`crate::scalar::of_node`]), and the rest are what kernels are written for. Pointwise ops, `where` and
//! the batch axes of `matmul` broadcast as in NumPy.

use crate::scalar::ScalarExpr;
use crate::{Attention, DType, Dim, LinearAttention, Shape, TensorData};

/// What a node computes. Operands are listed in each comment in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A graph input. No operands.
    Input,
    /// A weight or literal. No operands.
    Constant(TensorData),

    // Views.
    /// `x` with its elements, in row-major order, under another shape.
    Reshape(Shape),
    /// Result axis `i` is axis `perm[i]` of `x`.
    Transpose(Vec<usize>),
    /// `x` repeated along new leading axes and along axes of length 1.
    Broadcast(Shape),
    /// Along `axis`: elements `start, start + step, …`, `len` of them. `step` may be negative.
    Slice {
        /// The axis that is cut.
        axis: usize,
        /// Index of the first element taken.
        start: Dim,
        /// Number of elements taken.
        len: Dim,
        /// Distance between elements taken; not 0.
        step: i64,
    },

    // Data.
    /// Operands one after another along the axis.
    Concat {
        /// The axis that grows.
        axis: usize,
    },
    /// `x` with elements added around it.
    Pad {
        /// Elements added before, per axis; may be negative (then they are cut).
        before: Vec<Dim>,
        /// Elements added after, per axis; may be negative.
        after: Vec<Dim>,
        /// Where their values come from.
        mode: PadMode,
    },
    /// `x, indices`: `x` with the axis replaced by the axes of `indices`. Negative indices count from the end.
    Gather {
        /// The axis looked up.
        axis: usize,
    },
    /// `x, indices` of one rank: as `Gather`, one index an element.
    GatherElements {
        /// The axis looked up.
        axis: usize,
    },
    /// `x, indices`: the last axis of `indices` holds one index for each of the axes of `x` after the first
    /// `batch_dims`, which both share.
    GatherNd {
        /// Number of leading axes that `x` and `indices` share.
        batch_dims: usize,
    },
    /// Counts along an axis: element `(…, i, …)` is `start + i * step`. i32. No operands.
    Iota {
        /// Shape of the result.
        shape: Shape,
        /// The axis that is counted.
        axis: usize,
        /// Value at index 0.
        start: Dim,
        /// Difference of neighbours.
        step: Dim,
    },
    /// A value of lengths, known when they are: i32, no axes, no operands.
    Length(Dim),

    // Pointwise.
    /// `x`.
    Unary(UnaryOp),
    /// `x, y`, broadcast.
    Binary(BinaryOp),
    /// `x, y`, broadcast; the result is bool.
    Compare(CompareOp),
    /// `condition, x, y`, broadcast: `x` where true.
    Where,
    /// `x` in another element type. Float to int truncates towards zero; to bool: not equal 0.
    Cast(DType),

    // Reductions.
    /// `x` reduced over axes.
    Reduce {
        /// How elements are joined.
        op: ReduceOp,
        /// The axes that are reduced, ascending.
        axes: Vec<usize>,
        /// Whether reduced axes stay, with length 1.
        keep_dims: bool,
    },
    /// `x` summed along an axis up to each element.
    CumSum {
        /// The axis.
        axis: usize,
        /// Whether the element itself is left out.
        exclusive: bool,
        /// Whether the sum starts at the end.
        reverse: bool,
    },
    /// `x`: `exp(x - max) / sum(exp(x - max))` along an axis.
    Softmax {
        /// The axis.
        axis: usize,
    },
    /// `x, gain, bias`: `(x - mean) / sqrt(variance + eps) * gain + bias` over the axes from `axis` on.
    LayerNorm {
        /// The first axis that is normalised over.
        axis: usize,
        /// Added to the variance.
        eps: f64,
    },
    /// `x, gain`: `x / sqrt(mean(x * x) + eps) * gain` over the axes from `axis` on.
    RmsNorm {
        /// The first axis that is normalised over.
        axis: usize,
        /// Added to the mean square.
        eps: f64,
    },

    // Contractions.
    /// `a [.., M, K], b [.., K, N]`: the product over K, leading axes broadcast. Both of rank 2 or more.
    MatMul,
    /// `x [N, C, spatial..], w [F, C / groups, kernel..]`, optionally `bias [F]`.
    Conv(Conv),
    /// `q, k, v, captured..`.
    Attention(Attention),
    /// `q, k, v, state`, then `decay` and `beta` where the rule has them.
    LinearAttention(LinearAttention),

    // Fused.
    /// `captured..`: every element computed by a scalar expression over its index `d0, d1, …`.
    Map {
        /// The expression; loads refer to operands by number.
        expr: ScalarExpr,
        /// Shape of the result, which gives the extents of `d0, d1, …`.
        shape: Shape,
        /// Element type of the result: the expression's, or any float type where that is f32.
        dtype: DType,
    },
}

/// Convolution parameters, one entry a spatial axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conv {
    /// Distance between windows.
    pub strides: Vec<usize>,
    /// Distance between the elements of a window.
    pub dilations: Vec<usize>,
    /// Zeros before each axis.
    pub pads_before: Vec<usize>,
    /// Zeros after each axis.
    pub pads_after: Vec<usize>,
    /// Channel groups.
    pub groups: usize,
}

/// Where padding takes its values from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PadMode {
    /// This value, converted to the element type.
    Constant(f64),
    /// The nearest element.
    Edge,
    /// Mirrored at the outermost element.
    Reflect,
}

macro_rules! named_ops {
    ($(#[$doc:meta])* $ty:ident { $($(#[$vdoc:meta])* $variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $ty { $($(#[$vdoc])* $variant),+ }

        impl $ty {
            /// All of them, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name in the text form.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The operation of that name, if there is one.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|op| op.name() == name)
            }
        }
    };
}
pub(crate) use named_ops;

named_ops! {
    /// Operations on one element.
    UnaryOp {
        /// Negation.
        Neg = "neg",
        /// Absolute value.
        Abs = "abs",
        /// Square root.
        Sqrt = "sqrt",
        /// `1 / sqrt(x)`.
        Rsqrt = "rsqrt",
        /// `1 / x`.
        Reciprocal = "reciprocal",
        /// `e^x`.
        Exp = "exp",
        /// Natural logarithm.
        Log = "log",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// Sine.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// `1 / (1 + e^-x)`.
        Sigmoid = "sigmoid",
        /// The error function.
        Erf = "erf",
        /// Towards minus infinity.
        Floor = "floor",
        /// Towards plus infinity.
        Ceil = "ceil",
        /// To the nearest, halves to even.
        Round = "round",
        /// -1, 0 or 1.
        Sign = "sign",
        /// `max(x, 0)`.
        Relu = "relu",
        /// `log(1 + e^x)`.
        Softplus = "softplus",
        /// `x / 2 * (1 + erf(x / sqrt(2)))`. Hendrycks and Gimpel 2016, arXiv:1606.08415.
        Gelu = "gelu",
        /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`, the same paper's approximation.
        GeluTanh = "gelu_tanh",
        /// `x * sigmoid(x)`.
        Silu = "silu",
        /// Logical negation of a bool.
        Not = "not",
        /// Whether a float is not a number.
        IsNan = "is_nan",
        /// Whether a float is infinite.
        IsInf = "is_inf",
    }
}

named_ops! {
    /// Operations on two elements of one type.
    BinaryOp {
        /// Sum.
        Add = "add",
        /// Difference.
        Sub = "sub",
        /// Product.
        Mul = "mul",
        /// Quotient; of integers, towards zero.
        Div = "div",
        /// Remainder with the sign of the divisor (of integers), as Python's `%`.
        Mod = "mod",
        /// Remainder with the sign of the dividend, as C's `fmod`.
        Rem = "rem",
        /// Power.
        Pow = "pow",
        /// The smaller.
        Min = "min",
        /// The larger.
        Max = "max",
        /// Both (of bools).
        And = "and",
        /// Either (of bools).
        Or = "or",
        /// One but not both (of bools).
        Xor = "xor",
    }
}

named_ops! {
    /// Comparisons.
    CompareOp {
        /// `x == y`.
        Eq = "eq",
        /// `x != y`.
        Ne = "ne",
        /// `x < y`.
        Lt = "lt",
        /// `x <= y`.
        Le = "le",
        /// `x > y`.
        Gt = "gt",
        /// `x >= y`.
        Ge = "ge",
    }
}

named_ops! {
    /// Ways to join the elements of a row.
    ReduceOp {
        /// Sum.
        Sum = "sum",
        /// Arithmetic mean.
        Mean = "mean",
        /// The smallest.
        Min = "min",
        /// The largest.
        Max = "max",
        /// Product.
        Prod = "prod",
        /// Whether any is true.
        Any = "any",
        /// Whether all are true.
        All = "all",
    }
}

impl Op {
    /// The operation's name in the text form.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Constant(_) => "constant",
            Self::Reshape(_) => "reshape",
            Self::Transpose(_) => "transpose",
            Self::Broadcast(_) => "broadcast",
            Self::Slice { .. } => "slice",
            Self::Concat { .. } => "concat",
            Self::Pad { .. } => "pad",
            Self::Gather { .. } => "gather",
            Self::GatherElements { .. } => "gather_elements",
            Self::GatherNd { .. } => "gather_nd",
            Self::Iota { .. } => "iota",
            Self::Length(_) => "length",
            Self::Unary(op) => op.name(),
            Self::Binary(op) => op.name(),
            Self::Compare(op) => op.name(),
            Self::Where => "where",
            Self::Cast(_) => "cast",
            Self::Reduce { op, .. } => match op {
                ReduceOp::Sum => "reduce_sum",
                ReduceOp::Mean => "reduce_mean",
                ReduceOp::Min => "reduce_min",
                ReduceOp::Max => "reduce_max",
                ReduceOp::Prod => "reduce_prod",
                ReduceOp::Any => "reduce_any",
                ReduceOp::All => "reduce_all",
            },
            Self::CumSum { .. } => "cumsum",
            Self::Softmax { .. } => "softmax",
            Self::LayerNorm { .. } => "layer_norm",
            Self::RmsNorm { .. } => "rms_norm",
            Self::MatMul => "matmul",
            Self::Conv(_) => "conv",
            Self::Attention(_) => "attention",
            Self::LinearAttention(_) => "linear_attention",
            Self::Map { .. } => "map",
        }
    }

    /// Operands the operation itself takes: least and most. Operands past the most are captured by an
    /// epilogue.
    #[must_use]
    pub fn arity(&self) -> (usize, usize) {
        match self {
            Self::Input | Self::Constant(_) | Self::Iota { .. } | Self::Length(_) => (0, 0),
            Self::Reshape(_)
            | Self::Transpose(_)
            | Self::Broadcast(_)
            | Self::Slice { .. }
            | Self::Pad { .. }
            | Self::Unary(_)
            | Self::Cast(_)
            | Self::Reduce { .. }
            | Self::CumSum { .. }
            | Self::Softmax { .. } => (1, 1),
            Self::Gather { .. }
            | Self::GatherElements { .. }
            | Self::GatherNd { .. }
            | Self::Binary(_)
            | Self::Compare(_)
            | Self::RmsNorm { .. }
            | Self::MatMul => (2, 2),
            Self::Where | Self::LayerNorm { .. } => (3, 3),
            Self::Conv(_) => (2, 3),
            Self::Concat { .. } => (1, usize::MAX),
            Self::Attention(_) => (3, usize::MAX),
            Self::LinearAttention(linear) => {
                let count = linear.rule.operands();
                (count, count)
            }
            Self::Map { .. } => (0, usize::MAX),
        }
    }

    /// Whether this is a change of index only.
    #[must_use]
    pub fn is_view(&self) -> bool {
        matches!(
            self,
            Self::Reshape(_) | Self::Transpose(_) | Self::Broadcast(_) | Self::Slice { .. }
        )
    }

    /// Whether this computes each element from the elements of the same (broadcast) index.
    #[must_use]
    pub fn is_pointwise(&self) -> bool {
        matches!(
            self,
            Self::Unary(_) | Self::Binary(_) | Self::Compare(_) | Self::Where | Self::Cast(_)
        )
    }

    /// Whether a node of this op may carry an epilogue.
    #[must_use]
    pub fn takes_epilogue(&self) -> bool {
        matches!(
            self,
            Self::MatMul
                | Self::Softmax { .. }
                | Self::LayerNorm { .. }
                | Self::RmsNorm { .. }
                | Self::Reduce { .. }
                | Self::Attention(_)
        )
    }
}
