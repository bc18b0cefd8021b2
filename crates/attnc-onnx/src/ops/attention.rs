//! The `Attention` operator of opsets 23 and 24.
//!
//! Order as in the standard: scale, softcap, mask, softmax. A truth-valued mask, causality and the count of
//! valid keys become the `mask_mod`; softcap and a number-valued mask the `score_mod`. Causality is aligned
//! by the past: query `i` sees key `j` where `j <= i + past`.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::scalar::{ExprId, ScalarBuilder};
use attnc_ir::{Attention, BinaryOp, CompareOp, DType, Dim, Extents, Op, PadMode, Shape, UnaryOp};

/// Key index among the index variables of the two expressions.
const KV: usize = 3;
/// Query index.
const Q: usize = 2;

pub(super) fn attention(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    check_results(c)?;
    let (q, k, v) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let flat = c.rank(&q) == 3;
    let q = heads(c, &q, "q_num_heads")?;
    let k = heads(c, &k, "kv_num_heads")?;
    let v = heads(c, &v, "kv_num_heads")?;
    let (past, k, v) = with_past(c, &k, &v)?;
    let q_shape = c.shape(&q);
    let extents = vec![
        q_shape[0].clone(),
        q_shape[1].clone(),
        q_shape[2].clone(),
        c.shape(&k)[2].clone(),
    ];
    let scale = match c.attrs.float("scale")? {
        Some(scale) => f64::from(scale),
        None => match q_shape[3].as_const() {
            #[expect(clippy::cast_precision_loss, reason = "head dims are small")]
            Some(d) if d > 0 => 1.0 / (d as f64).sqrt(),
            _ => {
                return Err(OpError::unsupported(
                    "a head dim that varies",
                    "a constant head dim, or scale",
                ));
            }
        },
    };
    let mut mods = Mods {
        e: ScalarBuilder::new(Extents::new(extents.clone())),
        captured: Vec::new(),
        score: None,
        mask: None,
    };
    mods.softcap(c)?;
    if let Some(mask) = c.optional(3) {
        mods.attn_mask(c, mask, &extents)?;
    }
    mods.lengths(c, &extents, &past)?;
    let Mods {
        e,
        captured,
        score,
        mask,
    } = mods;
    let op = Op::Attention(Attention {
        scale,
        score_mod: score.map(|root| e.finish(root)),
        mask_mod: mask.map(|root| e.finish(root)),
    });
    let mut args = vec![&q, &k, &v];
    args.extend(&captured);
    let mut out = c.apply(op, &args)?;
    if flat {
        let shape = c.shape(&out);
        out = c.transpose(&out, vec![0, 2, 1, 3])?;
        let merged = shape[1].clone() * shape[3].clone();
        out = c.reshape(&out, vec![shape[0].clone(), shape[2].clone(), merged])?;
    }
    Ok(vec![out, k, v])
}

fn check_results(c: &Call<'_, '_>) -> OpResult<()> {
    if c.wants(3) {
        return Err(OpError::unsupported(
            "the result qk_matmul_output",
            "the first three results only",
        ));
    }
    let mode = c.attrs.int("qk_matmul_output_mode")?.unwrap_or(0);
    if !(0..=3).contains(&mode) {
        return Err(OpError::invalid(
            "bad-attribute",
            format!("qk_matmul_output_mode is {mode}"),
        ));
    }
    // Softmax is computed in f32: exactly what 1 asks for, and more than 10 and 16 (f16, bf16) do.
    match c.attrs.int("softmax_precision")? {
        None | Some(1 | 10 | 16) => Ok(()),
        Some(n) => Err(OpError::unsupported(
            format!("softmax_precision {n}"),
            "1, float",
        )),
    }
}

/// `[B, N, H * D]` as `[B, H, N, D]`; what has 4 axes is that already.
fn heads(c: &mut Call<'_, '_>, x: &Value, attr: &str) -> OpResult<Value> {
    let shape = c.shape(x);
    let count = c.attrs.int(attr)?;
    let bad = |c: &Call<'_, '_>| {
        let count = count.map_or("not given".to_owned(), |n| n.to_string());
        let found = c.ty(x);
        OpError::invalid(
            "shape-mismatch",
            format!("{attr} is {count}, the operand is {found}"),
        )
    };
    match (shape.len(), count) {
        (4, None) => Ok(x.clone()),
        (4, Some(n)) if shape[1].is(n) => Ok(x.clone()),
        (3, Some(n)) if n > 0 => {
            let heads = Dim::from(n);
            let dim = shape[2].exact_div(&heads).ok_or_else(|| bad(c))?;
            let apart = c.reshape(x, vec![shape[0].clone(), shape[1].clone(), heads, dim])?;
            c.transpose(&apart, vec![0, 2, 1, 3])
        }
        _ => Err(bad(c)),
    }
}

/// The number of keys before these, and all keys and values.
fn with_past(c: &mut Call<'_, '_>, k: &Value, v: &Value) -> OpResult<(Dim, Value, Value)> {
    match (c.optional(4), c.optional(5)) {
        (None, None) => Ok((Dim::zero(), k.clone(), v.clone())),
        (Some(past_k), Some(past_v)) if c.rank(&past_k) == 4 => {
            let past = c.shape(&past_k)[2].clone();
            let k = c.apply(Op::Concat { axis: 2 }, &[&past_k, k])?;
            let v = c.apply(Op::Concat { axis: 2 }, &[&past_v, v])?;
            Ok((past, k, v))
        }
        (Some(past_k), Some(_)) => Err(OpError::invalid(
            "shape-mismatch",
            format!("past_key is {}, expected 4 axes", c.ty(&past_k)),
        )),
        _ => Err(OpError::invalid(
            "operand-count",
            "past_key and past_value go together",
        )),
    }
}

/// The expressions under construction, over `b, h, q_idx, kv_idx`.
struct Mods {
    e: ScalarBuilder,
    captured: Vec<Value>,
    score: Option<ExprId>,
    mask: Option<ExprId>,
}

impl Mods {
    fn score(&mut self) -> ExprId {
        self.score.unwrap_or_else(|| self.e.arg())
    }

    fn and(&mut self, condition: ExprId) {
        self.mask = Some(match self.mask {
            Some(mask) => self.e.binary(BinaryOp::And, mask, condition),
            None => condition,
        });
    }

    /// Loads from a value that becomes an operand of the attention.
    fn capture(&mut self, c: &Call<'_, '_>, value: Value, index: Vec<ExprId>) -> ExprId {
        let dtype = c.dtype(&value);
        self.captured.push(value);
        self.e.load(2 + self.captured.len(), dtype, index)
    }

    /// `softcap * tanh(score / softcap)`.
    fn softcap(&mut self, c: &Call<'_, '_>) -> OpResult<()> {
        let cap = c.attrs.float("softcap")?.unwrap_or(0.0);
        if cap > 0.0 {
            let (score, cap) = (self.score(), self.e.float(cap));
            let bent = self.e.binary(BinaryOp::Div, score, cap);
            let bent = self.e.unary(UnaryOp::Tanh, bent);
            self.score = Some(self.e.binary(BinaryOp::Mul, bent, cap));
        }
        Ok(())
    }

    /// A mask that broadcasts to `[B, H, M, N]`; from opset 24 it may end before the last key.
    fn attn_mask(&mut self, c: &mut Call<'_, '_>, mask: Value, extents: &Shape) -> OpResult<()> {
        let ty = c.ty(&mask);
        let mask = match ty.shape.last() {
            Some(last) if c.opset >= 24 && *last != extents[KV] => {
                let mut after = vec![Dim::zero(); ty.rank() - 1];
                after.push(extents[KV].clone() - last.clone());
                let before = vec![Dim::zero(); ty.rank()];
                let fill = if ty.dtype == DType::Bool {
                    0.0
                } else {
                    f64::NEG_INFINITY
                };
                let mode = PadMode::Constant(fill);
                c.apply(
                    Op::Pad {
                        before,
                        after,
                        mode,
                    },
                    &[&mask],
                )?
            }
            _ => mask,
        };
        let shape = c.shape(&mask);
        let skip = 4usize.checked_sub(shape.len());
        let fits = |skip: usize| {
            shape
                .iter()
                .zip(&extents[skip..])
                .all(|(m, e)| m.is(1) || m == e)
        };
        let Some(skip) = skip.filter(|&skip| fits(skip)) else {
            let wanted: Vec<_> = extents.iter().map(Dim::to_string).collect();
            return Err(OpError::invalid(
                "shape-mismatch",
                format!(
                    "attn_mask is {ty}, expected [{}] or what broadcasts to it",
                    wanted.join(", ")
                ),
            ));
        };
        let variables = self.e.indices();
        let index = shape
            .iter()
            .zip(&variables[skip..])
            .map(|(d, &i)| if d.is(1) { self.e.int(0) } else { i })
            .collect();
        let load = self.capture(c, mask, index);
        match ty.dtype {
            DType::Bool => self.and(load),
            dtype if dtype.is_float() => {
                let score = self.score();
                self.score = Some(self.e.binary(BinaryOp::Add, score, load));
            }
            _ => {
                return Err(OpError::invalid(
                    "dtype-mismatch",
                    format!("attn_mask is {ty}, expected bool or float"),
                ));
            }
        }
        Ok(())
    }

    /// Causality, and the count of valid keys of each sequence, which aligns it where it is given.
    fn lengths(&mut self, c: &Call<'_, '_>, extents: &Shape, past: &Dim) -> OpResult<()> {
        let variables = self.e.indices();
        let (q, kv) = (variables[Q], variables[KV]);
        let mut before = self.e.int(past.clone());
        if let Some(valid) = c.optional(6) {
            if c.optional(4).is_some() {
                return Err(OpError::invalid(
                    "operand-count",
                    "nonpad_kv_seqlen and past_key exclude each other",
                ));
            }
            let ty = c.ty(&valid);
            if !ty.dtype.is_int() || ty.shape != extents[..1] {
                return Err(OpError::invalid(
                    "shape-mismatch",
                    format!("nonpad_kv_seqlen is {ty}, expected i32[{}]", extents[0]),
                ));
            }
            let count = self.capture(c, valid, vec![variables[0]]);
            let count = self.e.cast(DType::I32, count);
            let inside = self.e.compare(CompareOp::Lt, kv, count);
            self.and(inside);
            let queries = self.e.int(extents[Q].clone());
            before = self.e.binary(BinaryOp::Sub, count, queries);
        }
        if c.attrs.flag("is_causal", false)? {
            let last = self.e.binary(BinaryOp::Add, q, before);
            let seen = self.e.compare(CompareOp::Le, kv, last);
            self.and(seen);
        }
        Ok(())
    }
}
