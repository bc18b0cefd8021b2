//! Scalar expressions: how one element is computed from its index.
//!
//! A [`ScalarExpr`] is a small DAG of [`Scalar`] nodes over index variables `d0, d1, …`, at most one
//! argument (`score` in a `score_mod`, `acc` in an epilogue) and loads `operand[index, …]`. The same type
//! is a pointwise kernel, an epilogue, a `score_mod`, a `mask_mod`, and what the CPU evaluates
//! (FlexAttention's idea, arXiv:2412.05496, taken through the whole compiler).
//!
//! A view is a change of index; a gather is a load whose index is a load; inlining a producer is
//! substitution ([`ScalarBuilder::inline`]). `relu(x + bias)` over `[B, 64]` with operands `x, bias`:
//!
//! ```
//! use attnc_ir::scalar::ScalarBuilder;
//! use attnc_ir::{BinaryOp, DType, Dim, Extents, UnaryOp};
//! let mut e = ScalarBuilder::new(Extents::new(vec!["B".into(), 64.into()]));
//! let (i, j) = (e.int(Dim::index(0)), e.int(Dim::index(1)));
//! let x = e.load(0, DType::F32, vec![i, j]);
//! let bias = e.load(1, DType::F32, vec![j]);
//! let sum = e.binary(BinaryOp::Add, x, bias);
//! let root = e.unary(UnaryOp::Relu, sum);
//! assert_eq!(e.finish(root).to_string(), "relu(t0[d0, d1] + t1[d1])");
//! ```
//!
//! Invariant: nodes stand before their users, every node is reachable from the root, no two are equal.
//! Integer arithmetic over indices and lengths is one polynomial ([`Scalar::Int`]) as far as it can be, so
//! that comparing, cancelling and proving bounds are arithmetic rather than pattern matching.

mod argument;
pub mod block_mask;
mod builder;
pub mod eval;
mod fold;
mod of_node;
pub mod print;
mod substitute;

pub use block_mask::BlockMask;
pub use builder::ScalarBuilder;
pub use of_node::{has_form, load_indices, of_node};
pub use substitute::LoadFn;

use crate::{BinaryOp, CompareOp, DType, Dim, UnaryOp};

/// Names a node of a [`ScalarExpr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(pub(crate) u32);

impl ExprId {
    /// Position among [`ScalarExpr::nodes`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One step of a scalar expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// An i32: a polynomial over index variables and lengths.
    Int(Dim),
    /// An f32 literal, by its bits; may be infinite or NaN.
    Float(u32),
    /// A truth value.
    Bool(bool),
    /// The argument: `score` or `acc`. f32.
    Arg,
    /// An element of an operand, of the operand's element type (floats of any storage type load as f32).
    Load {
        /// Which operand of the node.
        operand: usize,
        /// One i32 an axis.
        index: Vec<ExprId>,
    },
    /// An operation on one value.
    Unary(UnaryOp, ExprId),
    /// An operation on two values of one type.
    Binary(BinaryOp, ExprId, ExprId),
    /// A comparison of two values of one type; gives a bool.
    Compare(CompareOp, ExprId, ExprId),
    /// `if .0 { .1 } else { .2 }`; what is not chosen does not matter, not even as NaN or out of bounds.
    Select(ExprId, ExprId, ExprId),
    /// The value in another type.
    Cast(DType, ExprId),
}

impl Scalar {
    /// An f32 literal. Every NaN is the same one, so that equal meaning is equal bits.
    #[must_use]
    pub fn float(value: f32) -> Self {
        let value = if value.is_nan() { f32::NAN } else { value };
        Self::Float(value.to_bits())
    }

    /// The nodes this one reads.
    #[must_use]
    pub fn operands(&self) -> Vec<ExprId> {
        match self {
            Self::Int(_) | Self::Float(_) | Self::Bool(_) | Self::Arg => Vec::new(),
            Self::Load { index, .. } => index.clone(),
            Self::Unary(_, a) | Self::Cast(_, a) => vec![*a],
            Self::Binary(_, a, b) | Self::Compare(_, a, b) => vec![*a, *b],
            Self::Select(c, a, b) => vec![*c, *a, *b],
        }
    }
}

/// A scalar expression: see the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScalarExpr {
    nodes: Vec<Scalar>,
    dtypes: Vec<DType>,
    root: ExprId,
}

impl ScalarExpr {
    /// The nodes, operands before users.
    #[must_use]
    pub fn nodes(&self) -> &[Scalar] {
        &self.nodes
    }

    /// The node of that name.
    #[must_use]
    pub fn node(&self, id: ExprId) -> &Scalar {
        &self.nodes[id.index()]
    }

    /// Element type of a node: f32, i32, u32 or bool (floats are f32 whatever their storage type).
    #[must_use]
    pub fn dtype(&self, id: ExprId) -> DType {
        self.dtypes[id.index()]
    }

    /// The node whose value is the expression's.
    #[must_use]
    pub fn root(&self) -> ExprId {
        self.root
    }

    /// Type of the expression's value.
    #[must_use]
    pub fn result(&self) -> DType {
        self.dtype(self.root)
    }

    /// Names of the nodes, operands before users.
    pub fn ids(&self) -> impl Iterator<Item = ExprId> + use<> {
        (0..u32::try_from(self.nodes.len()).expect("expressions are small")).map(ExprId)
    }

    /// Whether the argument occurs.
    #[must_use]
    pub fn uses_arg(&self) -> bool {
        self.nodes.contains(&Scalar::Arg)
    }

    /// The operands that are loaded from, ascending.
    #[must_use]
    pub fn loaded_operands(&self) -> Vec<usize> {
        let mut out: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|n| match n {
                Scalar::Load { operand, .. } => Some(*operand),
                _ => None,
            })
            .collect();
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Number of loads of an operand, each with its index.
    #[must_use]
    pub fn loads_of(&self, operand: usize) -> Vec<&[ExprId]> {
        self.nodes
            .iter()
            .filter_map(|n| match n {
                Scalar::Load { operand: o, index } if *o == operand => Some(index.as_slice()),
                _ => None,
            })
            .collect()
    }

    /// The same expression with operands renumbered.
    #[must_use]
    pub fn map_operands(&self, f: impl Fn(usize) -> usize) -> Self {
        let mut out = self.clone();
        for node in &mut out.nodes {
            if let Scalar::Load { operand, .. } = node {
                *operand = f(*operand);
            }
        }
        out
    }

    /// The same expression with one node replaced, whose operands stand before it.
    #[must_use]
    pub fn replace(&self, id: ExprId, node: Scalar) -> Self {
        let mut changed = self.clone();
        changed.nodes[id.index()] = node;
        // Rebuilding drops what is no longer reached and joins what is now equal.
        let mut e = ScalarBuilder::new(crate::Extents::none());
        let rank = changed.nodes.iter().filter_map(|n| {
            if let Scalar::Int(d) = n {
                d.indices().last().copied()
            } else {
                None
            }
        });
        let indices: Vec<_> = (0..rank.max().map_or(0, |n| n + 1))
            .map(|n| e.index(n))
            .collect();
        let root = e.inline(&changed, &indices, None, &mut |e, operand, dtype, index| {
            e.load(operand, dtype, index)
        });
        e.finish(root)
    }

    /// The run-time lengths that occur, sorted.
    #[must_use]
    pub fn symbols(&self) -> Vec<String> {
        let set: std::collections::BTreeSet<_> = self
            .nodes
            .iter()
            .filter_map(|n| {
                if let Scalar::Int(d) = n {
                    Some(d.symbols())
                } else {
                    None
                }
            })
            .flatten()
            .collect();
        set.into_iter().map(|s| s.to_string()).collect()
    }
}
