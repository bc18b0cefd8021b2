//! Attention with its two functions under construction, for every operator that is one.
//!
//! What changes scores becomes the `score_mod`, what leaves keys out the `mask_mod`. The same functions,
//! begun from a product of queries and keys instead of the running score, give the scores themselves where
//! an operator has them as a result.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::scalar::{ExprId, ScalarBuilder};
use attnc_ir::{Attention, BinaryOp, CompareOp, DType, Dim, Extents, Op, Shape, UnaryOp};

/// Query index among the index variables of the two expressions.
pub(super) const Q: usize = 2;
/// Key index.
pub(super) const KV: usize = 3;

/// `[B, H, M, N]` of queries and keys with heads apart.
pub(super) fn extents(c: &Call<'_, '_>, q: &Value, k: &Value) -> OpResult<Shape> {
    let (q_shape, k_shape) = (c.shape(q), c.shape(k));
    match (q_shape.as_slice(), k_shape.as_slice()) {
        ([batch, heads, queries, _], [_, _, keys, _]) => Ok(vec![
            batch.clone(),
            heads.clone(),
            queries.clone(),
            keys.clone(),
        ]),
        _ => Err(OpError::invalid(
            "shape-mismatch",
            format!("expected 4 axes, found {} and {}", c.ty(q), c.ty(k)),
        )),
    }
}

/// The scale that is given, or the standard one of the head dim.
pub(super) fn scale(c: &Call<'_, '_>, given: Option<f32>, head_dim: &Dim) -> OpResult<f64> {
    match (given, head_dim.as_const()) {
        (Some(scale), _) => Ok(f64::from(scale)),
        #[expect(clippy::cast_precision_loss, reason = "head dims are small")]
        (None, Some(d)) if d > 0 => Ok(1.0 / (d as f64).sqrt()),
        _ => Err(OpError::unsupported(
            format!("a head dim that varies in {} inputs", c.inputs.len()),
            "a constant head dim, or scale",
        )),
    }
}

/// Whether `softmax_precision` is what is computed, or less.
pub(super) fn check_precision(c: &mut Call<'_, '_>) -> OpResult<()> {
    // Softmax is computed in f32: exactly what 1 asks for, and more than 10 and 16 (f16, bf16) do.
    match c.attrs.int("softmax_precision")? {
        None | Some(1 | 10 | 16) => Ok(()),
        Some(11) => {
            c.cx.notes.insert("double is computed as f32".to_owned());
            Ok(())
        }
        Some(n) => Err(OpError::unsupported(
            format!("softmax_precision {n}"),
            "1, float",
        )),
    }
}

/// `[B, N, H * D]` as `[B, H, N, D]`.
pub(super) fn split_heads(
    c: &mut Call<'_, '_>,
    x: &Value,
    heads: i64,
    what: &str,
) -> OpResult<Value> {
    let shape = c.shape(x);
    let count = Dim::from(heads);
    let dim = match shape.as_slice() {
        [_, _, hidden] if heads > 0 => hidden.exact_div(&count),
        _ => None,
    };
    let Some(dim) = dim else {
        let found = c.ty(x);
        return Err(OpError::invalid(
            "shape-mismatch",
            format!("{what} is {heads}, the operand is {found}"),
        ));
    };
    let apart = c.reshape(x, vec![shape[0].clone(), shape[1].clone(), count, dim])?;
    c.transpose(&apart, vec![0, 2, 1, 3])
}

/// `[B, H, N, D]` as `[B, N, H * D]`.
pub(super) fn merge_heads(c: &mut Call<'_, '_>, x: &Value) -> OpResult<Value> {
    let x = c.transpose(x, vec![0, 2, 1, 3])?;
    let shape = c.shape(&x);
    let merged = shape[2].clone() * shape[3].clone();
    c.reshape(&x, vec![shape[0].clone(), shape[1].clone(), merged])
}

/// The expressions under construction, over `b, h, q_idx, kv_idx`.
pub(super) struct Mods {
    pub(super) e: ScalarBuilder,
    extents: Shape,
    captured: Vec<Value>,
    /// Operands in front of the captured ones.
    before: usize,
    score: Option<ExprId>,
    mask: Option<ExprId>,
    sink: Option<ExprId>,
}

impl Mods {
    pub(super) fn new(extents: &Shape) -> Self {
        Self {
            e: ScalarBuilder::new(Extents::new(extents.clone())),
            extents: extents.clone(),
            captured: Vec::new(),
            before: 3,
            score: None,
            mask: None,
            sink: None,
        }
    }

    /// Begins with scores that are there, `[B, H, M, N]`.
    pub(super) fn of_scores(c: &Call<'_, '_>, scores: &Value, extents: &Shape) -> Self {
        let mut mods = Self::new(extents);
        mods.before = 0;
        let index = mods.e.indices();
        mods.score = Some(mods.capture(c, scores.clone(), index));
        mods
    }

    fn score(&mut self) -> ExprId {
        self.score.unwrap_or_else(|| self.e.arg())
    }

    /// Leaves out keys for which the condition is false.
    pub(super) fn and(&mut self, condition: ExprId) {
        self.mask = Some(match self.mask {
            Some(mask) => self.e.binary(BinaryOp::And, mask, condition),
            None => condition,
        });
    }

    /// One more key, of value zero, with that logit. It may depend on batch, head and query.
    pub(super) fn sink(&mut self, logit: ExprId) {
        self.sink = Some(logit);
    }

    /// Adds to the score.
    pub(super) fn add(&mut self, bias: ExprId) {
        let score = self.score();
        self.score = Some(self.e.binary(BinaryOp::Add, score, bias));
    }

    /// Loads from a value that becomes an operand of the attention.
    pub(super) fn capture(&mut self, c: &Call<'_, '_>, value: Value, index: Vec<ExprId>) -> ExprId {
        let dtype = c.dtype(&value);
        self.captured.push(value);
        self.e
            .load(self.before + self.captured.len() - 1, dtype, index)
    }

    /// Loads from a value that broadcasts to the scores.
    pub(super) fn load(&mut self, c: &Call<'_, '_>, value: &Value, what: &str) -> OpResult<ExprId> {
        let ty = c.ty(value);
        let skip = 4usize.checked_sub(ty.rank()).filter(|&skip| {
            let mut pairs = ty.shape.iter().zip(&self.extents[skip..]);
            pairs.all(|(m, e)| m.is(1) || m == e)
        });
        let Some(skip) = skip else {
            let wanted: Vec<_> = self.extents.iter().map(Dim::to_string).collect();
            return Err(OpError::invalid(
                "shape-mismatch",
                format!(
                    "{what} is {ty}, expected [{}] or what broadcasts to it",
                    wanted.join(", ")
                ),
            ));
        };
        let variables = self.e.indices();
        let index = ty
            .shape
            .iter()
            .zip(&variables[skip..])
            .map(|(d, &i)| if d.is(1) { self.e.int(0) } else { i })
            .collect();
        Ok(self.capture(c, value.clone(), index))
    }

    /// An integer of each sequence, as i32.
    pub(super) fn of_sequence(
        &mut self,
        c: &Call<'_, '_>,
        value: Value,
        what: &str,
    ) -> OpResult<ExprId> {
        let ty = c.ty(&value);
        if !ty.dtype.is_int() || ty.shape != self.extents[..1] {
            let message = format!("{what} is {ty}, expected i32[{}]", self.extents[0]);
            return Err(OpError::invalid("shape-mismatch", message));
        }
        let batch = self.e.indices()[0];
        let load = self.capture(c, value, vec![batch]);
        Ok(self.e.cast(DType::I32, load))
    }

    /// `softcap * tanh(score / softcap)`; nothing where it is 0.
    pub(super) fn softcap(&mut self, cap: f32) {
        if cap > 0.0 {
            let (score, cap) = (self.score(), self.e.float(cap));
            let bent = self.e.binary(BinaryOp::Div, score, cap);
            let bent = self.e.unary(UnaryOp::Tanh, bent);
            self.score = Some(self.e.binary(BinaryOp::Mul, bent, cap));
        }
    }

    /// Query `i` stands at key `i + before` and sees from `left` keys before there to `right` keys after.
    pub(super) fn window(&mut self, before: ExprId, left: Option<i64>, right: Option<i64>) {
        let variables = self.e.indices();
        let (q, kv) = (variables[Q], variables[KV]);
        let at = self.e.binary(BinaryOp::Add, q, before);
        if let Some(right) = right {
            let right = self.e.int(right);
            let last = self.e.binary(BinaryOp::Add, at, right);
            let seen = self.e.compare(CompareOp::Le, kv, last);
            self.and(seen);
        }
        if let Some(left) = left {
            let left = self.e.int(left);
            let first = self.e.binary(BinaryOp::Sub, at, left);
            let seen = self.e.compare(CompareOp::Ge, kv, first);
            self.and(seen);
        }
    }

    /// The attention of queries, keys and values, all `[B, H, N, D]`.
    pub(super) fn attention(
        self,
        c: &mut Call<'_, '_>,
        [q, k, v]: [&Value; 3],
        scale: f64,
    ) -> OpResult<Value> {
        let op = Op::Attention(Attention {
            score_mod: self.score.map(|root| self.e.finish(root)),
            mask_mod: self.mask.map(|root| self.e.finish(root)),
            sink: self.sink.map(|root| self.e.finish(root)),
            ..Attention::new(scale)
        });
        let mut args = vec![q, k, v];
        args.extend(&self.captured);
        c.apply(op, &args)
    }

    /// The scores, -inf where there is no key, in f32.
    pub(super) fn scores(mut self, c: &mut Call<'_, '_>) -> OpResult<Value> {
        let mut root = self.score();
        if let Some(mask) = self.mask {
            let none = self.e.float(f32::NEG_INFINITY);
            root = self.e.select(mask, root, none);
        }
        let op = Op::Map {
            expr: self.e.finish(root),
            shape: self.extents,
            dtype: DType::F32,
        };
        c.apply(op, &self.captured.iter().collect::<Vec<_>>())
    }
}

/// Keys or values with each head once for every query head that shares it.
pub(super) fn repeat_heads(c: &mut Call<'_, '_>, x: &Value, heads: &Dim) -> OpResult<Value> {
    let shape = c.shape(x);
    if shape[1] == *heads {
        return Ok(x.clone());
    }
    let Some(each) = heads.exact_div(&shape[1]) else {
        let message = format!("{heads} query heads share {} key heads", shape[1]);
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let mut apart = shape.clone();
    apart.insert(2, Dim::one());
    let x = c.reshape(x, apart.clone())?;
    apart[2] = each;
    let x = c.apply(Op::Broadcast(apart), &[&x])?;
    let mut all = shape;
    all[1] = heads.clone();
    c.reshape(&x, all)
}

/// `scale * q kᵀ` as a value.
pub(super) fn product(c: &mut Call<'_, '_>, q: &Value, k: &Value, scale: f64) -> OpResult<Value> {
    let heads = c.shape(q)[1].clone();
    let k = repeat_heads(c, k, &heads)?;
    let k = c.swap_last(&k)?;
    let scores = c.apply(Op::MatMul, &[q, &k])?;
    c.with(BinaryOp::Mul, &scores, scale)
}
