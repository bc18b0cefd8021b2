//! Linear attention: the executor against the oracle, and the oracle against what recurrences must do.

mod common;

use attnc_cpu::Tensor;
use attnc_ir::{LinearAttention, LinearResult, Op, UpdateRule, ValueId};
use common::{Case, assert_close, dims};
use proptest::prelude::*;

/// Batch, key heads, query heads a key head, keys, columns of Q and K, columns of V.
type Sizes = [usize; 6];

fn op(rule: UpdateRule, result: LinearResult) -> Op {
    Op::LinearAttention(LinearAttention {
        rule,
        scale: 0.7,
        result,
    })
}

/// Keys are small enough for the delta rule to be stable.
fn operands(case: &mut Case, rule: UpdateRule, sizes: Sizes, per_head_decay: bool) -> Vec<ValueId> {
    let [batch, kv_heads, per_kv, len, depth, width] = sizes;
    let mut out = vec![
        case.floats("q", &[batch, kv_heads * per_kv, len, depth], 1.0),
        case.floats("k", &[batch, kv_heads, len, depth], 0.5),
        // A view that is not packed.
        case.floats("v", &[batch, len, kv_heads, width], 1.0),
        case.floats("state", &[batch, kv_heads, depth, width], 1.0),
    ];
    out[2] = case.apply(Op::Transpose(vec![0, 2, 1, 3]), &[out[2]]);
    if rule.is_gated() {
        let columns = if per_head_decay { 1 } else { depth };
        out.push(case.floats("decay", &[batch, kv_heads, len, columns], 0.5));
    }
    if rule.is_delta() {
        out.push(case.floats("beta", &[batch, kv_heads, len, 1], 1.0));
    }
    out
}

/// Keys `start..start + len` of an operand; the state is as it is.
fn part(case: &mut Case, operand: ValueId, n: usize, start: usize, len: usize) -> ValueId {
    if n == 3 {
        return operand;
    }
    let cut = Op::Slice {
        axis: 2,
        start: start.into(),
        len: len.into(),
        step: 1,
    };
    case.apply(cut, &[operand])
}

fn rule() -> impl Strategy<Value = UpdateRule> {
    proptest::sample::select(UpdateRule::ALL)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_executor_agrees(
        seed: u64, rule in rule(), per_head: bool,
        batch in 1usize..3, kv_heads in 1usize..3, per_kv in 1usize..4,
        len in 0usize..20, depth in 1usize..20, width in 1usize..20,
    ) {
        let mut case = Case::new(seed);
        let sizes = [batch, kv_heads, per_kv, len, depth, width];
        let operands = operands(&mut case, rule, sizes, per_head);
        for result in LinearResult::ALL {
            let out = case.apply(op(rule, *result), &operands);
            case.check(out, 1e-5);
        }
    }

    /// A state that is handed on is as if the keys had come at once.
    #[test]
    fn the_state_says_everything_about_the_past(
        seed: u64, rule in rule(), len in 2usize..12, cut in 0usize..12,
    ) {
        let mut case = Case::new(seed);
        let all = operands(&mut case, rule, [2, 2, 2, len, 5, 3], false);
        let cut = cut.min(len);
        let first: Vec<ValueId> = (0..all.len()).map(|n| part(&mut case, all[n], n, 0, cut)).collect();
        let state = case.apply(op(rule, LinearResult::State), &first);
        let mut rest: Vec<ValueId> =
            (0..all.len()).map(|n| part(&mut case, all[n], n, cut, len - cut)).collect();
        rest[3] = state;
        let before = case.apply(op(rule, LinearResult::Output), &first);
        let behind = case.apply(op(rule, LinearResult::Output), &rest);
        let joined = case.apply(Op::Concat { axis: 2 }, &[before, behind]);
        let whole = case.apply(op(rule, LinearResult::Output), &all);
        assert_close(&case.oracle(joined), &case.oracle(whole), 1e-12);
        let last = case.apply(op(rule, LinearResult::State), &rest);
        let end = case.apply(op(rule, LinearResult::State), &all);
        assert_close(&case.oracle(last), &case.oracle(end), 1e-12);
    }
}

/// By hand: one head, one column of each, two keys.
#[test]
fn two_keys_by_hand() {
    let mut case = Case::new(1);
    let mut value = |name: &str, shape: &[usize], data: &[f32]| {
        case.given(name, Tensor::f32(shape.to_vec(), data.to_vec()))
    };
    let q = value("q", &[1, 1, 2, 1], &[1.0, 2.0]);
    let k = value("k", &[1, 1, 2, 1], &[0.5, 1.0]);
    let v = value("v", &[1, 1, 2, 1], &[4.0, 8.0]);
    let state = value("state", &[1, 1, 1, 1], &[10.0]);
    let decay = value("decay", &[1, 1, 2, 1], &[0.0, -std::f32::consts::LN_2]);
    let beta = value("beta", &[1, 1, 2, 1], &[1.0, 0.5]);
    let mut found = |rule: UpdateRule, gates: &[ValueId]| {
        let operands = [&[q, k, v, state], gates].concat();
        let op = Op::LinearAttention(LinearAttention {
            rule,
            scale: 1.0,
            result: LinearResult::Output,
        });
        let out = case.apply(op, &operands);
        case.oracle(out).to_f64()
    };
    // 10 + 0.5 * 4 = 12; 12 + 8 = 20.
    assert_eq!(found(UpdateRule::Linear, &[]), [12.0, 40.0]);
    // 12; 12 / 2 + 8 = 14, but for the rounding of ln 2.
    let gated = found(UpdateRule::Gated, &[decay]);
    assert!(
        gated[0] == 12.0 && (gated[1] - 28.0).abs() < 1e-6,
        "{gated:?}"
    );
    // 10 + 0.5 (4 - 5) = 9.5; 9.5 + 0.5 (8 - 9.5) = 8.75.
    assert_eq!(found(UpdateRule::Delta, &[beta]), [9.5, 17.5]);
    // 9.5; 4.75 + 0.5 (8 - 4.75) = 6.375.
    let both = found(UpdateRule::GatedDelta, &[decay, beta]);
    assert!(both[0] == 9.5 && (both[1] - 12.75).abs() < 1e-6, "{both:?}");
}

#[test]
fn no_heads_and_no_columns() {
    let mut case = Case::new(3);
    for sizes in [[0, 1, 1, 2, 3, 4], [1, 1, 1, 2, 3, 0]] {
        let mut case = Case::new(3);
        let operands = operands(&mut case, UpdateRule::Linear, sizes, false);
        let out = case.apply(op(UpdateRule::Linear, LinearResult::Output), &operands);
        assert_eq!(case.run(out).shape(), case.shape(out));
    }
    let x = case.floats("x", &[1, 1, 1, 1], 1.0);
    let zeros = case.apply(Op::Broadcast(dims(&[2, 1, 1, 1])), &[x]);
    let bad = case.graph.apply(
        op(UpdateRule::Linear, LinearResult::Output),
        &[x, x, zeros, x],
    );
    assert!(bad.is_err(), "a value of another batch");
}
