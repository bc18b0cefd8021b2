//! Keys that a finite fill takes out of a softmax.
//!
//! ```text
//! select(kv_idx <= q_idx, score, -1e4)          where false, the score is -1e4, whatever it was
//! score + select(kv_idx <= q_idx, 0, -3.4e38)   where false, the score is about -3.4e38
//! ```
//!
//! A fill is a number, and a row of nothing else is the softmax of these numbers. But where a row has a maximum
//! of more than `fill + 104`, `exp(fill - maximum)` is less than half of the least f32, 2^-149, so that a key
//! so filled adds exactly 0 and may be skipped. Whoever skips checks the row's maximum at the end, and walks
//! the row again without skipping where it is no greater.
//!
//! A term *added* to the score fills only if it is beyond -2^127 (exporters take the least f32 or bf16): then
//! the sum is at most -3 · 2^125 for any score of at most 2^125. A greater one, within a factor 8 of what f32
//! can hold, is garbage of a masked key, and garbage in masked keys reaches no output. Of `score - 1e4`
//! nothing of the kind can be said: such keys are computed.

use crate::scalar::{ExprId, Scalar, ScalarBuilder, ScalarExpr};
use crate::{BinaryOp, DType, Extents, UnaryOp};

/// The greatest number taken for a fill.
pub const FILL: f32 = -1e3;
/// A fill that also absorbs what it is added to: -2^127.
const ABSORBING: f32 = f32::from_bits(0xff00_0000);
/// The greatest sum of an absorbing fill and a score: -3 · 2^125.
const ABSORBED: f32 = f32::from_bits(0xfec0_0000);
/// `exp(-x)` is 0 in f32 from here on.
const UNDERFLOW: f64 = 104.0;

/// The keys that a `score_mod` does not fill.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveKeys {
    /// True where the score is no fill: bool over `b, h, q_idx, kv_idx`.
    pub mask: ScalarExpr,
    /// Filled keys add exactly 0 to rows whose maximum is greater than this.
    pub settled_above: f32,
}

/// The keys that a `score_mod` over these extents does not fill; `None` if it fills none.
#[must_use]
pub fn live_keys(score_mod: &ScalarExpr, extents: &Extents) -> Option<LiveKeys> {
    let mut e = ScalarBuilder::new(extents.clone());
    let indices = e.indices();
    let root = super::inline(&mut e, score_mod, &indices);
    let Live { mask, ceiling } = live(&mut e, root)?;
    Some(LiveKeys {
        mask: e.finish(mask),
        settled_above: round_up(f64::from(ceiling) + UNDERFLOW),
    })
}

#[expect(clippy::cast_possible_truncation, reason = "rounded up below")]
fn round_up(x: f64) -> f32 {
    let near = x as f32;
    let near = near.max(f32::MIN);
    if f64::from(near) < x {
        near.next_up()
    } else {
        near
    }
}

/// Where a value is no fill, and the greatest value it has elsewhere.
#[derive(Clone, Copy)]
struct Live {
    mask: ExprId,
    ceiling: f32,
}

fn live(e: &mut ScalarBuilder, id: ExprId) -> Option<Live> {
    match e.node(id).clone() {
        Scalar::Float(bits) => {
            let ceiling = f32::from_bits(bits);
            let mask = e.bool(false);
            (ceiling <= FILL).then_some(Live { mask, ceiling })
        }
        Scalar::Select(c, a, b) if !reads_score(e, c) => {
            let (a, b) = (live(e, a), live(e, b));
            let ceiling = [a, b]
                .iter()
                .flatten()
                .map(|l| l.ceiling)
                .reduce(f32::max)?;
            let always = e.bool(true);
            let [a, b] = [a, b].map(|l| l.map_or(always, |l| l.mask));
            let mask = e.select(c, a, b);
            Some(Live { mask, ceiling })
        }
        Scalar::Binary(BinaryOp::Add, ..) => live_sum(e, id),
        Scalar::Binary(BinaryOp::Max, a, b) => {
            let (value, least) = match (e.as_float(a), e.as_float(b)) {
                (_, Some(x)) => (a, x),
                (Some(x), _) => (b, x),
                _ => return None,
            };
            let Live { mask, ceiling } = live(e, value).filter(|_| least <= FILL)?;
            Some(Live {
                mask,
                ceiling: ceiling.max(least),
            })
        }
        Scalar::Binary(BinaryOp::Mul, a, b) => {
            live_product(e, a, b).or_else(|| live_product(e, b, a))
        }
        _ => None,
    }
}

/// A sum, where any term is an absorbing fill.
fn live_sum(e: &mut ScalarBuilder, id: ExprId) -> Option<Live> {
    let (mut terms, mut stack) = (Vec::new(), vec![id]);
    while let Some(id) = stack.pop() {
        match *e.node(id) {
            Scalar::Binary(BinaryOp::Add, a, b) => stack.extend([a, b]),
            _ => terms.push(id),
        }
    }
    let mut mask = None;
    for term in terms {
        let Some(fill) = live(e, term).filter(|l| l.ceiling <= ABSORBING) else {
            continue;
        };
        let so_far = mask.unwrap_or(fill.mask);
        mask = Some(e.binary(BinaryOp::And, so_far, fill.mask));
    }
    mask.map(|mask| Live {
        mask,
        ceiling: ABSORBED,
    })
}

/// `flag * fill` and `(1 - flag) * fill` with a flag that is 0 or 1.
fn live_product(e: &mut ScalarBuilder, flag: ExprId, fill: ExprId) -> Option<Live> {
    let ceiling = e.as_float(fill).filter(|x| *x <= FILL && x.is_finite())?;
    let mask = match *e.node(flag) {
        Scalar::Binary(BinaryOp::Sub, one, flag) if e.as_float(one) == Some(1.0) => {
            as_flag(e, flag)?
        }
        _ => {
            let flag = as_flag(e, flag)?;
            e.unary(UnaryOp::Not, flag)
        }
    };
    Some(Live { mask, ceiling })
}

fn as_flag(e: &ScalarBuilder, id: ExprId) -> Option<ExprId> {
    match *e.node(id) {
        Scalar::Cast(_, flag) if e.dtype(flag) == DType::Bool => Some(flag),
        _ => None,
    }
}

fn reads_score(e: &ScalarBuilder, id: ExprId) -> bool {
    // Expressions are small, and conditions smaller.
    let (mut seen, mut stack) = (std::collections::BTreeSet::new(), vec![id]);
    while let Some(id) = stack.pop() {
        if *e.node(id) == Scalar::Arg {
            return true;
        }
        stack.extend(
            e.node(id)
                .operands()
                .into_iter()
                .filter(|o| seen.insert(*o)),
        );
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompareOp, Dim};

    fn causal(make: impl Fn(&mut ScalarBuilder, ExprId, ExprId) -> ExprId) -> Option<LiveKeys> {
        let extents = Extents::new(["B", "H", "S", "S"].map(Dim::sym).to_vec());
        let mut e = ScalarBuilder::new(extents.clone());
        let (q, kv, score) = (e.index(2), e.index(3), e.arg());
        let mask = e.compare(CompareOp::Le, kv, q);
        let root = make(&mut e, mask, score);
        live_keys(&e.finish(root), &extents)
    }

    #[test]
    fn a_chosen_fill_takes_keys_out_whatever_it_is() {
        let fill = |fill: f32| {
            causal(|e, mask, score| {
                let fill = e.float(fill);
                e.select(mask, score, fill)
            })
        };
        let live = fill(-1e4).unwrap();
        assert_eq!(live.mask.to_string(), "d3 <= d2");
        assert_eq!(live.settled_above, -9896.0);
        assert_eq!(fill(f32::MIN).unwrap().settled_above, f32::MIN);
        assert!(f64::from(fill(-1e9).unwrap().settled_above) >= -1e9 + 104.0);
        assert_eq!(fill(0.0), None);
    }

    #[test]
    fn an_added_fill_takes_keys_out_if_it_absorbs_the_score() {
        let added = |fill: f32| {
            causal(|e, mask, score| {
                let (zero, fill) = (e.float(0.0), e.float(fill));
                let bias = e.select(mask, zero, fill);
                let half = e.float(0.5);
                let sum = e.binary(BinaryOp::Add, score, bias);
                e.binary(BinaryOp::Add, half, sum)
            })
        };
        assert_eq!(added(f32::MIN).unwrap().mask.to_string(), "d3 <= d2");
        assert_eq!(added(-1e9), None);
        assert_eq!(f64::from(ABSORBING), -2f64.powi(127));
        assert_eq!(f64::from(ABSORBED), -3.0 * 2f64.powi(125));
    }

    #[test]
    fn a_condition_on_the_score_is_no_mask() {
        let live = causal(|e, _, score| {
            let (zero, fill) = (e.float(0.0), e.float(-1e9));
            let positive = e.compare(CompareOp::Gt, score, zero);
            e.select(positive, score, fill)
        });
        assert_eq!(live, None);
    }
}
