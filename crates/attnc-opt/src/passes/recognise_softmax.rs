//! Softmax written out in primitive ops gets its name.
//!
//! ```text
//! %m = reduce_max %x     %d = sub %x, %m     %e = exp %d
//! %s = reduce_sum %e     %p = div %e, %s                        %p = softmax %x
//! ```
//!
//! Each rule is an identity of real numbers: `(exp(y) v) / sum(exp(y)) = softmax(y) v`, where the sum is divided
//! by after the product;
//! `exp(y) / sum(exp(y)) = softmax(y)`; `exp(x - (m + log(sum(exp(x - m))))) = softmax(x)` (the exponential
//! of a log-softmax); `softmax(x - max(x)) = softmax(x)`. Reductions are over the last axis, kept with
//! length 1. A positive term added to the sum (1 in softmax1, a guard) is one more element of the row:
//!
//! ```text
//! exp(y) / (exp(z) + sum(exp(y)))     %c = concat %y, %z     %s = softmax %c     %p = slice %s (without %z)
//! ```
//!
//! On exit no softmax written like this remains.

use super::matching::{kept_reduction, pair, unary_of};
use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::{
    BinaryOp, DType, Diagnostics, Dim, Graph, Op, PadMode, ReduceOp, TensorData, TensorType,
    UnaryOp, ValueId,
};

/// See the module.
pub struct RecogniseSoftmax;

impl Pass for RecogniseSoftmax {
    fn name(&self) -> &'static str {
        "recognise-softmax"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let rules = [normalised_exp, exp_of_log_softmax, shifted_softmax];
            let alone = rules.iter().find_map(|rule| rule(graph, value));
            let found = alone.map(|row| (row, None));
            let Some((row, times)) = found.or_else(|| normalised_product(graph, value)) else {
                continue;
            };
            if !trace.claim() {
                break;
            }
            let p = row.softmax(graph)?;
            let new = match times {
                None => p,
                Some(v) => graph.apply(Op::MatMul, &[p, v])?,
            };
            graph.node_mut(new).origin = graph.node(value).origin.clone();
            let message = "the ops are a softmax over the last axis";
            trace.remark(RemarkKind::Recognised, graph, &[new], message);
            graph.supersede(value, new);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

/// What a softmax is over: a row, and perhaps one more element behind it.
struct Row {
    x: ValueId,
    more: Option<Term>,
}

/// The logit of an element.
enum Term {
    Literal(f64),
    /// Broadcasts to the row, with one element along the last axis; plus a literal.
    Value(ValueId, f64),
}

impl Row {
    fn alone(x: ValueId) -> Self {
        Self { x, more: None }
    }

    /// The probabilities of the row.
    fn softmax(&self, graph: &mut Graph) -> Result<ValueId, Diagnostics> {
        let TensorType { dtype, shape } = graph.ty(self.x).clone();
        let axis = shape.len() - 1;
        let all = match self.more {
            None => return Ok(graph.apply(Op::Softmax { axis }, &[self.x])?),
            Some(Term::Literal(logit)) => {
                let mut after = vec![Dim::zero(); shape.len()];
                let before = after.clone();
                after[axis] = Dim::one();
                let mode = PadMode::Constant(logit);
                graph.apply(
                    Op::Pad {
                        before,
                        after,
                        mode,
                    },
                    &[self.x],
                )?
            }
            Some(Term::Value(mut logit, plus)) => {
                if plus != 0.0 {
                    #[expect(clippy::cast_possible_truncation, reason = "the sum was in f32")]
                    let plus = TensorData::f32(Vec::new(), &[plus as f32]);
                    let plus = graph.add_constant(plus);
                    let plus = match dtype {
                        DType::F32 => plus,
                        _ => graph.apply(Op::Cast(dtype), &[plus])?,
                    };
                    logit = graph.apply(Op::Binary(BinaryOp::Add), &[logit, plus])?;
                }
                let mut one = shape.clone();
                one[axis] = Dim::one();
                let logit = graph.apply(Op::Broadcast(one), &[logit])?;
                graph.apply(Op::Concat { axis }, &[self.x, logit])?
            }
        };
        let p = graph.apply(Op::Softmax { axis }, &[all])?;
        let row = Op::Slice {
            axis,
            start: Dim::zero(),
            len: shape[axis].clone(),
            step: 1,
        };
        Ok(graph.apply(row, &[p])?)
    }
}

/// The row where the value is `exp(y) / (sum(exp(y)) + ..)`.
fn normalised_exp(graph: &Graph, value: ValueId) -> Option<Row> {
    // What broadcasts beyond the row is something else.
    let fits = |row: &Row| graph.ty(row.x).shape == graph.ty(value).shape;
    quotients(graph, value)
        .into_iter()
        .find_map(|(exp, sum)| normalised(graph, exp, sum).filter(fits))
}

/// The row and `v` where the value is `(exp(y) v) / (sum(exp(y)) + ..)`.
fn normalised_product(graph: &Graph, value: ValueId) -> Option<(Row, Option<ValueId>)> {
    quotients(graph, value)
        .into_iter()
        .find_map(|(product, sum)| {
            if graph.node(product).op != Op::MatMul || graph.ty(product) != graph.ty(value) {
                return None;
            }
            let [exp, v] = pair(graph, product);
            let row = normalised(graph, exp, sum)?;
            // One sum for each row of the product.
            let rows = |v: ValueId| graph.ty(v).shape.split_last().map(|(_, rows)| rows);
            let same = [sum, exp, row.x].iter().all(|&v| rows(v) == rows(product));
            same.then_some((row, Some(v)))
        })
}

/// `a` and `b` where the value is `a / b`, or `a` times the reciprocal of `b`.
fn quotients(graph: &Graph, value: ValueId) -> Vec<(ValueId, ValueId)> {
    let inverse = |v| unary_of(graph, v, UnaryOp::Reciprocal);
    match graph.node(value).op {
        Op::Binary(BinaryOp::Div) => {
            let [a, b] = pair(graph, value);
            vec![(a, b)]
        }
        Op::Binary(BinaryOp::Mul) => {
            let [a, b] = pair(graph, value);
            let sides = [(a, inverse(b)), (b, inverse(a))];
            let found = sides.into_iter().filter_map(|(x, y)| Some((x, y?)));
            found.collect()
        }
        _ => Vec::new(),
    }
}

/// The row whose probabilities are `exp` divided by `sum`.
fn normalised(graph: &Graph, exp: ValueId, sum: ValueId) -> Option<Row> {
    let y = unary_of(graph, exp, UnaryOp::Exp)?;
    if last_axis(graph, sum, ReduceOp::Sum) == Some(exp) {
        return Some(Row::alone(unshifted(graph, y)));
    }
    let [a, b] = binary_of(graph, sum, BinaryOp::Add)?;
    let term = [(a, b), (b, a)]
        .into_iter()
        .find_map(|(s, t)| (last_axis(graph, s, ReduceOp::Sum) == Some(exp)).then_some(t))?;
    one_more(graph, y, term)
}

/// The row `y` with one element whose exponential is `term`, without what both are shifted by.
fn one_more(graph: &Graph, y: ValueId, term: ValueId) -> Option<Row> {
    let shift = binary_of(graph, y, BinaryOp::Sub);
    if let Some(constant) = positive(graph, term) {
        let logit = constant.ln();
        // Behind `x - m` the element of logit `l` is one of logit `m + l` behind `x`.
        let row = shift.filter(|[_, m]| is_one_a_row(graph, y, *m));
        return Some(match row {
            Some([x, m]) => Row {
                x,
                more: Some(Term::Value(m, logit)),
            },
            None => Row {
                x: y,
                more: Some(Term::Literal(logit)),
            },
        });
    }
    let z = unary_of(graph, term, UnaryOp::Exp).filter(|z| is_one_a_row(graph, y, *z))?;
    if let Some([x, m]) = shift {
        if unary_of(graph, z, UnaryOp::Neg) == Some(m) {
            let more = Some(Term::Literal(0.0));
            return Some(Row { x, more });
        }
        if let Some([t, same]) = binary_of(graph, z, BinaryOp::Sub)
            && same == m
        {
            let more = Some(Term::Value(t, 0.0)).filter(|_| is_one_a_row(graph, x, t));
            return more.map(|more| Row {
                x,
                more: Some(more),
            });
        }
    }
    let more = Some(Term::Value(z, 0.0));
    Some(Row { x: y, more })
}

/// The number above 0 that every element is.
fn positive(graph: &Graph, value: ValueId) -> Option<f64> {
    match &graph.node(value).op {
        Op::Constant(data) => data.splat_f64().filter(|c| *c > 0.0 && c.is_finite()),
        _ => None,
    }
}

/// Whether a value has one element for each row of `x`, or for several.
fn is_one_a_row(graph: &Graph, x: ValueId, value: ValueId) -> bool {
    let (row, of) = (&graph.ty(value).shape, &graph.ty(x).shape);
    row.len() <= of.len() && row.last().is_none_or(|d| d.is(1))
}

/// `x` where the value is `exp(x - (m + log(sum(exp(x - m)))))`, or that without `m`.
fn exp_of_log_softmax(graph: &Graph, value: ValueId) -> Option<Row> {
    let log_softmax = unary_of(graph, value, UnaryOp::Exp)?;
    let [x, lse] = binary_of(graph, log_softmax, BinaryOp::Sub)?;
    let log = |v| unary_of(graph, v, UnaryOp::Log);
    let (max, sum) = match binary_of(graph, lse, BinaryOp::Add) {
        Some([a, b]) => log(b)
            .map(|s| (Some(a), s))
            .or_else(|| log(a).map(|s| (Some(b), s)))?,
        None => (None, log(lse)?),
    };
    let y = unary_of(graph, last_axis(graph, sum, ReduceOp::Sum)?, UnaryOp::Exp)?;
    let same = match max {
        Some(max) => binary_of(graph, y, BinaryOp::Sub)? == [x, max],
        None => y == x,
    };
    same.then(|| Row::alone(unshifted(graph, x)))
}

/// `x` where the value is `softmax(x - max(x))`.
fn shifted_softmax(graph: &Graph, value: ValueId) -> Option<Row> {
    let Op::Softmax { axis } = graph.node(value).op else {
        return None;
    };
    let y = graph.node(value).operands()[0];
    let x = unshifted(graph, y);
    (x != y && axis == graph.ty(value).rank() - 1).then(|| Row::alone(x))
}

/// `x` where the value is `x - max(x)`, else the value.
fn unshifted(graph: &Graph, value: ValueId) -> ValueId {
    match binary_of(graph, value, BinaryOp::Sub) {
        Some([x, max]) if last_axis(graph, max, ReduceOp::Max) == Some(x) => x,
        _ => value,
    }
}

fn binary_of(graph: &Graph, value: ValueId, op: BinaryOp) -> Option<[ValueId; 2]> {
    (graph.node(value).op == Op::Binary(op)).then(|| pair(graph, value))
}

/// The operand of a reduction over the last axis that is kept with length 1, also where the keeping is a
/// reshape.
fn last_axis(graph: &Graph, value: ValueId, wanted: ReduceOp) -> Option<ValueId> {
    let (x, first) = kept_reduction(graph, value, wanted)?;
    (first + 1 == graph.ty(x).rank()).then_some(x)
}
