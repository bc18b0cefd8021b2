//! Fused attention held to the oracle: ragged lengths, grouped heads, masks, fills, and what must not leak.

mod common;

use attnc_cpu::Tensor;
use attnc_ir::scalar::{ScalarBuilder, ScalarExpr};
use attnc_ir::{Attention, BinaryOp, CompareOp, DType, Dim, Extents, Op, UnaryOp, ValueId};
use common::{Case, assert_close};
use proptest::prelude::*;

/// Lengths of one attention; the executor's blocks are 64 queries and 128 keys, and parts of many keys 512.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    batch: usize,
    kv_heads: usize,
    heads_per_kv: usize,
    m: usize,
    n: usize,
    d: usize,
    dv: usize,
}

impl Lengths {
    fn heads(self) -> usize {
        self.kv_heads * self.heads_per_kv
    }

    /// A builder over `b, h, q_idx, kv_idx`.
    fn builder(self) -> ScalarBuilder {
        let extents = [self.batch, self.heads(), self.m, self.n];
        ScalarBuilder::new(Extents::new(extents.map(Dim::from).to_vec()))
    }
}

prop_compose! {
    fn lengths()(
        batch in 1usize..3,
        kv_heads in 1usize..3,
        heads_per_kv in 1usize..4,
        m in prop_oneof![Just(1usize), 1usize..70],
        n in prop_oneof![3 => Just(1usize), 3 => 1usize..260, 1 => 520usize..1100],
        d in 1usize..20,
        dv in 1usize..20,
    ) -> Lengths {
        Lengths { batch, kv_heads, heads_per_kv, m, n, d, dv }
    }
}

/// q, k and v; k and v as views of `[B, N, H_kv, D]`, as projections give them.
fn operands(case: &mut Case, l: Lengths) -> [ValueId; 3] {
    let q = case.floats("q", &[l.batch, l.heads(), l.m, l.d], 3.0);
    let k = case.floats("k", &[l.batch, l.n, l.kv_heads, l.d], 3.0);
    let v = case.floats("v", &[l.batch, l.n, l.kv_heads, l.dv], 2.0);
    // Errors are held against the largest result. Where all values cancel there is none to speak of, so the first
    // column of V has one sign.
    let (name, value) = case.inputs.pop().unwrap();
    let mut data: Vec<f32> = value.to_f64().iter().map(|&x| x as f32).collect();
    data.iter_mut().step_by(l.dv).for_each(|x| *x = x.abs());
    case.inputs
        .push((name, Tensor::f32(value.shape().to_vec(), data)));
    let heads_first = || Op::Transpose(vec![0, 2, 1, 3]);
    let (k, v) = (
        case.apply(heads_first(), &[k]),
        case.apply(heads_first(), &[v]),
    );
    [q, k, v]
}

/// `kv_idx <= q_idx + shift`: causal, aligned to a corner by the shift.
fn causal(l: Lengths, shift: i64) -> ScalarExpr {
    let mut e = l.builder();
    let limit = e.int(Dim::index(2) + Dim::from(shift));
    let kv_idx = e.index(3);
    let root = e.compare(CompareOp::Le, kv_idx, limit);
    e.finish(root)
}

/// `keep[b, kv_idx]`, a load from operand `operand`.
fn padding(l: Lengths, operand: usize) -> ScalarExpr {
    let mut e = l.builder();
    let (b, kv_idx) = (e.index(0), e.index(3));
    let root = e.load(operand, DType::Bool, vec![b, kv_idx]);
    e.finish(root)
}

fn attend(
    case: &mut Case,
    scale: f64,
    score_mod: Option<ScalarExpr>,
    mask_mod: Option<ScalarExpr>,
    operands: &[ValueId],
) -> ValueId {
    let op = Op::Attention(Attention {
        score_mod,
        mask_mod,
        ..Attention::new(scale)
    });
    case.apply(op, operands)
}

/// Attention written out in f64, without the code of either executor.
fn by_hand(case: &Case, l: Lengths, score: impl Fn(f64, [usize; 4]) -> Option<f64>) -> Vec<f64> {
    by_hand_with(case, l, score, |_, _| f64::NEG_INFINITY, |p, _| p)
}

/// The same with a sink a row and a function of each probability; keys without a score have probability 0.
fn by_hand_with(
    case: &Case,
    l: Lengths,
    score: impl Fn(f64, [usize; 4]) -> Option<f64>,
    sink: impl Fn(usize, usize) -> f64,
    weight: impl Fn(f64, [usize; 4]) -> f64,
) -> Vec<f64> {
    let value = |name: &str| {
        let (_, t) = case.inputs.iter().find(|(n, _)| n == name).unwrap();
        t.to_f64()
    };
    let (q, k, v) = (value("q"), value("k"), value("v"));
    let mut out = Vec::new();
    for b in 0..l.batch {
        for h in 0..l.heads() {
            let g = h / l.heads_per_kv;
            for i in 0..l.m {
                let row = |j: usize| (b * l.n + j) * l.kv_heads + g;
                let scores: Vec<f64> = (0..l.n)
                    .map(|j| {
                        let q = &q[((b * l.heads() + h) * l.m + i) * l.d..][..l.d];
                        let k = &k[row(j) * l.d..][..l.d];
                        let dot = q.iter().zip(k).map(|(x, y)| x * y).sum();
                        score(dot, [b, h, i, j]).unwrap_or(f64::NEG_INFINITY)
                    })
                    .collect();
                let sink = sink(h, i);
                let max = scores.iter().fold(f64::MIN.max(sink), |m, s| m.max(*s));
                let sum: f64 =
                    scores.iter().map(|s| (s - max).exp()).sum::<f64>() + (sink - max).exp();
                let probability = |s: f64| {
                    if sum == 0.0 {
                        0.0
                    } else {
                        (s - max).exp() / sum
                    }
                };
                out.extend((0..l.dv).map(|d| {
                    let weighted = scores
                        .iter()
                        .enumerate()
                        .map(|(j, &s)| weight(probability(s), [b, h, i, j]) * v[row(j) * l.dv + d]);
                    weighted.sum::<f64>()
                }));
            }
        }
    }
    out
}

fn assert_is(found: &Tensor, expected: &[f64], tolerance: f64) {
    for (n, (f, e)) in found.to_f64().iter().zip(expected).enumerate() {
        assert!(
            (f - e).abs() <= tolerance,
            "element {n}: found {f}, expected {e}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn plain_and_causal(seed: u64, l in lengths(), scale in 0.05f64..1.5, shift in -40i64..40) {
        let mut case = Case::new(seed);
        let qkv = operands(&mut case, l);
        let plain = attend(&mut case, scale, None, None, &qkv);
        case.check(plain, 1e-5);
        assert_is(&case.oracle(plain), &by_hand(&case, l, |s, _| Some(scale * s)), 1e-9);
        let masked = attend(&mut case, scale, None, Some(causal(l, shift)), &qkv);
        case.check(masked, 1e-5);
        let hand = by_hand(&case, l, |s, [_, _, i, j]| {
            (j as i64 <= i as i64 + shift).then_some(scale * s)
        });
        assert_is(&case.oracle(masked), &hand, 1e-9);
    }

    #[test]
    fn sinks(seed: u64, l in lengths(), shift in -40i64..40) {
        let mut case = Case::new(seed);
        let [q, k, v] = operands(&mut case, l);
        let logits = case.floats("logits", &[l.heads()], 4.0);
        let mut e = ScalarBuilder::new(Extents::new([l.batch, l.heads(), l.m].map(Dim::from).to_vec()));
        let (h, q_idx, third) = (e.index(1), e.index(2), e.int(3));
        let logit = e.load(3, DType::F32, vec![h]);
        // Every third row has no sink: some rows have neither key nor sink.
        let place = e.binary(BinaryOp::Mod, q_idx, third);
        let zero = e.int(0);
        let none = e.compare(CompareOp::Eq, place, zero);
        let minus_infinity = e.float(f32::NEG_INFINITY);
        let sink = e.select(none, minus_infinity, logit);
        let attention = Attention {
            mask_mod: Some(causal(l, shift)),
            sink: Some(e.finish(sink)),
            ..Attention::new(0.3)
        };
        let y = case.apply(Op::Attention(attention), &[q, k, v, logits]);
        case.check(y, 1e-5);
        let logits = case.inputs.iter().find(|(n, _)| n == "logits").unwrap().1.to_f64();
        let hand = by_hand_with(
            &case,
            l,
            |s, [_, _, i, j]| (j as i64 <= i as i64 + shift).then_some(0.3 * s),
            |h, i| if i % 3 == 0 { f64::NEG_INFINITY } else { logits[h] },
            |p, _| p,
        );
        assert_is(&case.oracle(y), &hand, 1e-9);
    }

    #[test]
    fn functions_of_probabilities(seed: u64, l in lengths(), shift in -40i64..40, kind in 0usize..4) {
        let mut case = Case::new(seed);
        let [q, k, v] = operands(&mut case, l);
        let keep = case.floats("keep", &[l.batch, l.n], 2.0);
        let mut e = l.builder();
        let (p, b, kv_idx) = (e.arg(), e.index(0), e.index(3));
        let keep_at = e.load(3, DType::F32, vec![b, kv_idx]);
        let root = match kind {
            0 => e.binary(BinaryOp::Mul, p, keep_at),
            1 => e.binary(BinaryOp::Mul, p, p),
            // A weight also for keys that are not there.
            2 => {
                let tenth = e.float(0.1);
                e.binary(BinaryOp::Add, p, tenth)
            }
            _ => {
                let (limit, zero) = (e.float(0.05), e.float(0.0));
                let high = e.compare(CompareOp::Gt, p, limit);
                e.select(high, p, zero)
            }
        };
        let attention = Attention {
            mask_mod: Some(causal(l, shift)),
            prob_mod: Some(e.finish(root)),
            ..Attention::new(0.3)
        };
        let y = case.apply(Op::Attention(attention), &[q, k, v, keep]);
        if kind < 3 {
            // A threshold is not continuous: f32 and f64 may lie on either side of it.
            case.check(y, 1e-5);
        }
        let keep = case.inputs.iter().find(|(n, _)| n == "keep").unwrap().1.to_f64();
        let hand = by_hand_with(
            &case,
            l,
            |s, [_, _, i, j]| (j as i64 <= i as i64 + shift).then_some(0.3 * s),
            |_, _| f64::NEG_INFINITY,
            |p, [b, _, _, j]| match kind {
                0 => p * keep[b * l.n + j],
                1 => p * p,
                2 => p + f64::from(0.1f32),
                _ => if p > f64::from(0.05f32) { p } else { 0.0 },
            },
        );
        assert_is(&case.oracle(y), &hand, 1e-9);
    }

    #[test]
    fn padding_bias_and_softcap(seed: u64, l in lengths()) {
        let mut case = Case::new(seed);
        let [q, k, v] = operands(&mut case, l);
        let keep = case.bools("keep", &[l.batch, l.n]);
        let bias = case.floats("bias", &[l.heads(), l.m, l.n], 4.0);
        let mut e = l.builder();
        let (score, cap) = (e.arg(), e.float(5.0));
        let index = [1, 2, 3].map(|n| e.index(n)).to_vec();
        let capped = e.binary(BinaryOp::Div, score, cap);
        let capped = e.unary(UnaryOp::Tanh, capped);
        let capped = e.binary(BinaryOp::Mul, capped, cap);
        let bias_at = e.load(4, DType::F32, index);
        let root = e.binary(BinaryOp::Add, capped, bias_at);
        let score_mod = Some(e.finish(root));
        let all = [q, k, v, keep, bias];
        let y = attend(&mut case, 0.3, score_mod, Some(padding(l, 3)), &all);
        case.check(y, 1e-5);
        let value = |name: &str| case.inputs.iter().find(|(n, _)| n == name).unwrap().1.to_f64();
        let (keep, bias) = (value("keep"), value("bias"));
        let hand = by_hand(&case, l, |s, [b, h, i, j]| {
            let capped = (0.3 * s / 5.0).tanh() * 5.0;
            (keep[b * l.n + j] != 0.0).then_some(capped + bias[(h * l.m + i) * l.n + j])
        });
        assert_is(&case.oracle(y), &hand, 1e-9);
    }

    /// `where(keep, score, fill)` and `score + (keep ? 0 : fill)`, with rows whose keys are all filled.
    #[test]
    fn finite_fills_are_numbers(seed: u64, l in lengths(), all_filled: bool, add: bool) {
        for fill in [f32::MIN, -1e9, -1e4] {
            let mut case = Case::new(seed);
            let [q, k, v] = operands(&mut case, l);
            let keep = if all_filled {
                case.given("keep", Tensor::bool(vec![l.batch, l.n], vec![false; l.batch * l.n]))
            } else {
                case.bools("keep", &[l.batch, l.n])
            };
            let mut e = l.builder();
            let (score, fill_at) = (e.arg(), e.float(fill));
            let (b, kv_idx) = (e.index(0), e.index(3));
            let kept = e.load(3, DType::Bool, vec![b, kv_idx]);
            let root = if add {
                let zero = e.float(0.0);
                let bias = e.select(kept, zero, fill_at);
                e.binary(BinaryOp::Add, score, bias)
            } else {
                e.select(kept, score, fill_at)
            };
            let score_mod = Some(e.finish(root));
            let y = attend(&mut case, 0.25, score_mod, None, &[q, k, v, keep]);
            // f32 scores keep less and less of what a fill is added to: exactly nothing at the lowest number.
            // At -1e9 the literal f32 result is the mean, which the f64 oracle does not see.
            if fill == -1e9 && add {
                let kept = case.inputs[3].1.to_f64();
                let row = |b: usize| kept[b * l.n..(b + 1) * l.n].iter().all(|&k| k == 0.0);
                if (0..l.batch).any(row) {
                    continue;
                }
            }
            let tolerance = if fill == -1e4 && add { 2e-3 } else { 1e-5 };
            case.check(y, tolerance);
        }
    }

    /// NaN in keys and values that are not there, by either kind of mask, changes no bit.
    #[test]
    fn what_is_masked_does_not_leak(seed: u64, l in lengths(), boolean: bool) {
        let mut case = Case::new(seed);
        let [q, k, v] = operands(&mut case, l);
        let keep = case.bools("keep", &[l.batch, l.n]);
        let (score_mod, mask_mod) = if boolean {
            (None, Some(padding(l, 3)))
        } else {
            let mut e = l.builder();
            let (score, none) = (e.arg(), e.float(f32::NEG_INFINITY));
            let (b, kv_idx) = (e.index(0), e.index(3));
            let kept = e.load(3, DType::Bool, vec![b, kv_idx]);
            let root = e.select(kept, score, none);
            (Some(e.finish(root)), None)
        };
        let y = attend(&mut case, 0.5, score_mod, mask_mod, &[q, k, v, keep]);
        let clean = case.run(y);
        let kept = case.inputs[3].1.to_f64();
        for poison in [f32::NAN, f32::INFINITY] {
            for (input, width) in [(1, l.kv_heads * l.d), (2, l.kv_heads * l.dv)] {
                let (name, value) = case.inputs[input].clone();
                let mut data: Vec<f32> = value.to_f64().iter().map(|&x| x as f32).collect();
                for (row, &kept) in data.chunks_exact_mut(width).zip(&kept) {
                    if kept == 0.0 {
                        row.fill(poison);
                    }
                }
                case.inputs[input] = (name, Tensor::f32(value.shape().to_vec(), data));
            }
            assert_eq!(case.run(y).to_f64(), clean.to_f64());
            assert_close(&case.oracle(y), &clean, 1e-5);
        }
    }

    /// A causal row does not change with a later key.
    #[test]
    fn the_future_does_not_reach_the_past(seed: u64, l in lengths(), at in 0usize..260) {
        let at = at % l.n;
        let mut case = Case::new(seed);
        let qkv = operands(&mut case, l);
        // A scale so small that every key that is there has a weight that f32 shows.
        let y = attend(&mut case, 0.01, None, Some(causal(l, 0)), &qkv);
        let before = case.run(y).to_f64();
        for (input, width) in [(1, l.kv_heads * l.d), (2, l.kv_heads * l.dv)] {
            let (name, value) = case.inputs[input].clone();
            let mut data: Vec<f32> = value.to_f64().iter().map(|&x| x as f32).collect();
            for b in 0..l.batch {
                data[(b * l.n + at) * width..][..width].iter_mut().for_each(|x| *x += 50.0);
            }
            case.inputs[input] = (name, Tensor::f32(value.shape().to_vec(), data));
        }
        let after = case.run(y).to_f64();
        for (n, row) in before.chunks(l.dv).enumerate() {
            if n % l.m < at {
                assert_eq!(row, &after[n * l.dv..(n + 1) * l.dv], "row {n}, key {at}");
            } else if l.m > at && n % l.m == at {
                assert_ne!(row, &after[n * l.dv..(n + 1) * l.dv], "row {n}, key {at}");
            }
        }
    }
}

#[test]
fn rows_without_keys_are_zero_whatever_is_masked() {
    let l = Lengths {
        batch: 1,
        kv_heads: 1,
        heads_per_kv: 1,
        m: 40,
        n: 130,
        d: 3,
        dv: 5,
    };
    let mut case = Case::new(7);
    let qkv = operands(&mut case, l);
    // Queries 0 to 34 see no key, the others key 0 up to their distance.
    let masked = attend(&mut case, 1.0, None, Some(causal(l, -35)), &qkv);
    let mut e = l.builder();
    let none = e.float(f32::NEG_INFINITY);
    let additive = e.arg();
    let additive = e.binary(BinaryOp::Add, additive, none);
    let nothing = attend(&mut case, 1.0, Some(e.finish(additive)), None, &qkv);
    for (y, dead) in [(masked, 35), (nothing, 40)] {
        let out = case.run(y).to_f64();
        assert!(out[..dead * l.dv].iter().all(|&x| x == 0.0));
        assert!(out[dead * l.dv..].iter().all(|&x| x != 0.0));
        case.check(y, 1e-5);
    }
}

#[test]
fn a_score_that_is_nan_spoils_its_row_only() {
    let l = Lengths {
        batch: 1,
        kv_heads: 1,
        heads_per_kv: 1,
        m: 3,
        n: 150,
        d: 2,
        dv: 2,
    };
    let mut case = Case::new(8);
    let qkv = operands(&mut case, l);
    let y = attend(&mut case, 1.0, None, None, &qkv);
    let mut q: Vec<f32> = case.inputs[0]
        .1
        .to_f64()
        .iter()
        .map(|&x| x as f32)
        .collect();
    q[3] = f32::NAN;
    case.inputs[0].1 = Tensor::f32(vec![1, 1, 3, 2], q);
    let out = case.run(y).to_f64();
    assert!(out[2..4].iter().all(|x| x.is_nan()));
    assert!(out[..2].iter().chain(&out[4..]).all(|x| x.is_finite()));
    case.check(y, 1e-5);
}

#[test]
fn keys_in_parts_are_those_of_one_walk_whatever_threads_there_are() {
    let l = Lengths {
        batch: 2,
        kv_heads: 1,
        heads_per_kv: 3,
        m: 5,
        n: 1300,
        d: 16,
        dv: 12,
    };
    let mut case = Case::new(11);
    let [q, k, v] = operands(&mut case, l);
    let keep = case.bools("keep", &[l.batch, l.n]);
    // Of the first sequence only the last part has keys, of the second only the first and the last.
    let kept = (0..2 * l.n).map(|n| n > 1200 && !(1400..2590).contains(&n));
    case.inputs[3].1 = Tensor::bool(vec![l.batch, l.n], kept.collect());
    // Values that no query sees may be anything.
    let mut values = case.inputs[2].1.to_f64();
    values[..600 * l.dv].fill(f64::NAN);
    let values = values.iter().map(|&v| v as f32).collect();
    case.inputs[2].1 = Tensor::f32(vec![l.batch, l.n, l.kv_heads, l.dv], values);
    let y = attend(&mut case, 0.4, None, Some(padding(l, 3)), &[q, k, v, keep]);
    let by_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| case.run(y).to_f64())
    };
    let all = by_threads(4);
    assert_eq!(by_threads(1), all);
    assert!(all.iter().all(|x| x.is_finite() && *x != 0.0));
    assert_is(&case.run(y), &case.oracle(y).to_f64(), 1e-5);
}

#[test]
fn no_keys_give_zeros() {
    let mut case = Case::new(9);
    let q = case.floats("q", &[1, 1, 3, 2], 1.0);
    let k = case.floats("k", &[1, 1, 0, 2], 1.0);
    let v = case.floats("v", &[1, 1, 0, 2], 1.0);
    let y = attend(&mut case, 1.0, None, None, &[q, k, v]);
    assert_eq!(case.run(y).to_f64(), [0.0; 6]);
    case.check(y, 0.0);
}

#[test]
fn an_epilogue_follows() {
    let l = Lengths {
        batch: 2,
        kv_heads: 2,
        heads_per_kv: 1,
        m: 33,
        n: 129,
        d: 4,
        dv: 4,
    };
    let mut case = Case::new(10);
    let [q, k, v] = operands(&mut case, l);
    let y = attend(&mut case, 0.5, None, None, &[q, k, v]);
    let plain = case.run(y).to_f64();
    let gate = case.floats("gate", &[l.dv], 1.0);
    let mut e = ScalarBuilder::new(Extents::new(common::dims(&[2, 2, 33, 4])));
    let (acc, d) = (e.arg(), e.index(3));
    let g = e.load(3, DType::F32, vec![d]);
    let root = e.binary(BinaryOp::Mul, acc, g);
    let epilogue = e.finish(root);
    let Op::Attention(attention) = case.graph.node(y).op.clone() else {
        panic!("an attention");
    };
    let y = case.apply(Op::Attention(attention), &[q, k, v, gate]);
    case.graph.node_mut(y).epilogue = Some(epilogue);
    let gates = case.inputs[3].1.to_f64();
    let expected: Vec<f64> = plain
        .iter()
        .enumerate()
        .map(|(n, x)| x * gates[n % 4])
        .collect();
    assert_is(&case.run(y), &expected, 1e-5);
    case.check(y, 1e-5);
}
