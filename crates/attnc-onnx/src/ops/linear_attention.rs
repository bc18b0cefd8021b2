//! `LinearAttention` of opset 27: the recurrence of [`attnc_ir::LinearAttention`] with heads in the last axis.

use super::attend;
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{LinearAttention, LinearResult, Op, UpdateRule};

pub(super) fn linear_attention(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let rule = rule(c)?;
    let (heads, kv_heads) = (count(c, "q_num_heads")?, count(c, "kv_num_heads")?);
    let (q, k, v) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let q = attend::split_heads(c, &q, heads, "q_num_heads")?;
    let k = attend::split_heads(c, &k, kv_heads, "kv_num_heads")?;
    let v = attend::split_heads(c, &v, kv_heads, "kv_num_heads")?;
    let scale = c.attrs.float("scale")?.filter(|s| *s != 0.0);
    let scale = attend::scale(c, scale, &c.shape(&q)[3])?;
    let state = match c.optional(3) {
        Some(past) => past,
        None => {
            let (k, v) = (c.ty(&k), c.shape(&v));
            let shape = [&k.shape[0], &k.shape[1], &k.shape[3], &v[3]].map(Clone::clone);
            c.splat(k.dtype, &shape, 0.0)?
        }
    };
    let mut operands = vec![q, k, v, state];
    if rule.is_gated() {
        let decay = gate(c, 4, "decay", rule)?;
        operands.push(attend::split_heads(c, &decay, kv_heads, "kv_num_heads")?);
    }
    if rule.is_delta() {
        let beta = gate(c, 5, "beta", rule)?;
        operands.push(rates(c, &beta, kv_heads, &operands[1].clone())?);
    }
    let operands: Vec<&Value> = operands.iter().collect();
    let node = |c: &mut Call<'_, '_>, result| {
        let linear = LinearAttention {
            rule,
            scale,
            result,
        };
        c.apply(Op::LinearAttention(linear), &operands)
    };
    let rows = node(c, LinearResult::Output)?;
    let mut results = vec![attend::merge_heads(c, &rows)?];
    if c.wants(1) {
        results.push(node(c, LinearResult::State)?);
    }
    Ok(results)
}

fn rule(c: &Call<'_, '_>) -> OpResult<UpdateRule> {
    let name = c.attrs.string("update_rule")?.unwrap_or("gated_delta");
    UpdateRule::from_name(name).ok_or_else(|| {
        let known: Vec<_> = UpdateRule::ALL.iter().map(|r| r.name()).collect();
        let message = format!(
            "attribute `update_rule` is `{name}`, expected {}",
            known.join(", ")
        );
        OpError::invalid("bad-attribute", message)
    })
}

fn count(c: &Call<'_, '_>, name: &str) -> OpResult<i64> {
    c.attrs
        .int(name)?
        .ok_or_else(|| OpError::invalid("bad-attribute", format!("attribute `{name}` is missing")))
}

/// An operand that the rule needs.
fn gate(c: &Call<'_, '_>, operand: usize, name: &str, rule: UpdateRule) -> OpResult<Value> {
    c.optional(operand).ok_or_else(|| {
        let message = format!(
            "`{name}` is missing: update_rule `{}` needs it",
            rule.name()
        );
        OpError::invalid("operand-count", message)
    })
}

/// The rates of each key head `[B, T, H_kv]`, or of all `[B, T, 1]`, as `[B, H_kv, T, 1]`.
fn rates(c: &mut Call<'_, '_>, beta: &Value, kv_heads: i64, k: &Value) -> OpResult<Value> {
    let shared = c.shape(beta).last().is_some_and(|last| last.is(1));
    let groups = if shared { 1 } else { kv_heads };
    let beta = attend::split_heads(c, beta, groups, "kv_num_heads")?;
    let mut shape = c.shape(k);
    shape[3] = 1.into();
    c.broadcast(&beta, &shape)
}
