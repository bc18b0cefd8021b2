//! `Einsum`: sums of products written with letters, as transposed operands of matrix products.
//!
//! ```text
//! bhld,bhmd->bhlm   is   matmul(x, transpose(y, [0, 1, 3, 2]))
//! ```
//!
//! Operands are joined from left to right. Of two operands, letters that both have and that are needed later
//! become batch axes, those that nobody needs later are contracted, and the rest are rows and columns.
//! Letters of one operand that nobody else has are summed first, repeated ones take its diagonal. `...`
//! stands for axes without letters, and broadcasts.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{BinaryOp, Dim, Op, ReduceOp};

/// More operands than any model has.
const MAX_OPERANDS: usize = 32;

/// A letter, or an axis that `...` stands for, counted from the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// Outermost have the largest number.
    Hidden(usize),
    Letter(char),
}

/// A value and what its axes are called.
struct Term {
    value: Value,
    labels: Vec<Label>,
}

/// The labels of each operand, and of the result where it is written out.
struct Equation {
    operands: Vec<Vec<Label>>,
    result: Vec<Label>,
}

pub(super) fn einsum(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let text = c
        .attrs
        .string("equation")?
        .ok_or_else(|| OpError::invalid("bad-attribute", "attribute `equation` is missing"))?
        .to_owned();
    let values = c.all()?;
    if values.len() > MAX_OPERANDS {
        return Err(OpError::unsupported(
            format!("{} operands", values.len()),
            format!("at most {MAX_OPERANDS}"),
        ));
    }
    let ranks: Vec<_> = values.iter().map(|v| c.rank(v)).collect();
    let equation = parse(&text, &ranks)
        .map_err(|why| OpError::invalid("bad-attribute", format!("equation `{text}`: {why}")))?;
    let mut terms = values
        .into_iter()
        .zip(equation.operands)
        .map(|(value, labels)| diagonal(c, Term { value, labels }))
        .collect::<OpResult<std::collections::VecDeque<_>>>()?;
    let mut out = terms
        .pop_front()
        .ok_or_else(|| OpError::invalid("operand-count", "no operand is given"))?;
    while let Some(next) = terms.pop_front() {
        let later = |label: &Label| {
            equation.result.contains(label) || terms.iter().any(|t| t.labels.contains(label))
        };
        let left = summed(c, out, &|l| later(l) || next.labels.contains(l))?;
        let right = summed(c, next, &|l| later(l) || left.labels.contains(l))?;
        out = joined(c, &left, &right, &later)?;
    }
    let out = summed(c, out, &|l| equation.result.contains(l))?;
    Ok(vec![ordered(c, &out, &equation.result)?])
}

fn parse(text: &str, ranks: &[usize]) -> Result<Equation, String> {
    let text: String = text.chars().filter(|ch| !ch.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (text.as_str(), None),
    };
    let parts: Vec<_> = left.split(',').collect();
    if parts.len() != ranks.len() {
        return Err(format!(
            "{} parts for {} operands",
            parts.len(),
            ranks.len()
        ));
    }
    let operands = parts
        .iter()
        .zip(ranks)
        .map(|(part, &rank)| {
            let hidden = rank.checked_sub(part.replace("...", "").chars().count());
            let labels = labels(part, hidden.unwrap_or(0))?;
            (labels.len() == rank)
                .then_some(labels)
                .ok_or_else(|| format!("`{part}` for {rank} axes"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let all = || operands.iter().flatten().copied();
    let widest = all().filter(|l| matches!(l, Label::Hidden(_))).max();
    let widest = widest.map_or(0, |l| match l {
        Label::Hidden(n) => n + 1,
        Label::Letter(_) => 0,
    });
    let result = match right {
        Some(right) => labels(right, widest)?,
        None => {
            let mut once: Vec<_> = all()
                .filter(|l| matches!(l, Label::Letter(_)) && all().filter(|m| m == l).count() == 1)
                .collect();
            once.sort_unstable();
            let hidden = (0..widest).rev().map(Label::Hidden);
            hidden.chain(once).collect()
        }
    };
    for (n, label) in result.iter().enumerate() {
        if result[..n].contains(label) || !all().any(|l| l == *label) {
            return Err(format!(
                "{label:?} of the result is there twice or nowhere else"
            ));
        }
    }
    Ok(Equation { operands, result })
}

/// The labels of one part, with `hidden` axes for its `...`.
fn labels(part: &str, hidden: usize) -> Result<Vec<Label>, String> {
    let letters = |text: &str| {
        text.chars()
            .map(|ch| match ch.is_ascii_alphabetic() {
                true => Ok(Label::Letter(ch)),
                false => Err(format!("`{ch}` is no letter")),
            })
            .collect::<Result<Vec<_>, _>>()
    };
    match part.split_once("...") {
        None => letters(part),
        Some((before, after)) => {
            let mut out = letters(before)?;
            out.extend((0..hidden).rev().map(Label::Hidden));
            out.extend(letters(after)?);
            Ok(out)
        }
    }
}

/// Repeated letters of one operand are one axis: every `n + 1`-th element of both as one.
fn diagonal(c: &mut Call<'_, '_>, term: Term) -> OpResult<Term> {
    let Term {
        mut value,
        mut labels,
    } = term;
    while let Some((first, again)) = repeated(&labels) {
        let rank = labels.len();
        let mut perm: Vec<_> = (0..rank).filter(|n| *n != first && *n != again).collect();
        perm.extend([first, again]);
        value = c.transpose(&value, perm)?;
        let mut shape = c.shape(&value);
        let sizes = shape.split_off(rank - 2);
        let Some(size) = sizes[0].as_const().filter(|n| sizes[1].is(*n)) else {
            return Err(OpError::unsupported(
                format!("a diagonal of {} by {}", sizes[0], sizes[1]),
                "two constant lengths that are equal",
            ));
        };
        shape.push(Dim::from(size.saturating_mul(size)));
        value = c.reshape(&value, shape)?;
        let op = Op::Slice {
            axis: rank - 2,
            start: Dim::zero(),
            len: Dim::from(size),
            step: size + 1,
        };
        value = c.apply(op, &[&value])?;
        let label = labels[first];
        labels.remove(again);
        labels.remove(first);
        labels.push(label);
    }
    Ok(Term { value, labels })
}

fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    let again = (0..labels.len()).find(|&n| labels[..n].contains(&labels[n]))?;
    let first = labels.iter().position(|l| *l == labels[again])?;
    Some((first, again))
}

/// The term without the axes whose labels are not needed: summed over them.
fn summed(c: &mut Call<'_, '_>, term: Term, needed: &dyn Fn(&Label) -> bool) -> OpResult<Term> {
    let axes: Vec<usize> = (0..term.labels.len())
        .filter(|&n| !needed(&term.labels[n]))
        .collect();
    if axes.is_empty() {
        return Ok(term);
    }
    let labels = term.labels.into_iter().filter(|l| needed(l)).collect();
    let op = Op::Reduce {
        op: ReduceOp::Sum,
        axes,
        keep_dims: false,
    };
    let value = c.apply(op, &[&term.value])?;
    Ok(Term { value, labels })
}

/// The product of two terms, summed over what both have and nobody needs later.
fn joined(
    c: &mut Call<'_, '_>,
    a: &Term,
    b: &Term,
    later: &dyn Fn(&Label) -> bool,
) -> OpResult<Term> {
    let shared = |l: &&Label| b.labels.contains(l);
    let copied = |labels: Vec<&Label>| labels.into_iter().copied().collect::<Vec<_>>();
    let batch = copied(a.labels.iter().filter(|l| shared(l) && later(l)).collect());
    let inner = copied(a.labels.iter().filter(|l| shared(l) && !later(l)).collect());
    let rows = copied(a.labels.iter().filter(|l| !shared(l)).collect());
    let columns = copied(b.labels.iter().filter(|l| !a.labels.contains(l)).collect());
    let labels: Vec<_> = [&batch[..], &rows, &columns].concat();
    let left = ordered(c, a, &[&batch[..], &rows, &inner].concat())?;
    if inner.is_empty() {
        let right = ordered(c, b, &[&batch[..], &columns].concat())?;
        let mut wide = c.shape(&left);
        wide.extend(columns.iter().map(|_| Dim::one()));
        let left = c.reshape(&left, wide)?;
        let mut wide = c.shape(&right);
        let at = batch.len();
        wide.splice(at..at, rows.iter().map(|_| Dim::one()));
        let right = c.reshape(&right, wide)?;
        let value = c.binary(BinaryOp::Mul, &left, &right)?;
        return Ok(Term { value, labels });
    }
    // One axis each of rows, columns and what is summed.
    let right = ordered(c, b, &[&batch[..], &inner, &columns].concat())?;
    let (from, to) = (c.shape(&left), c.shape(&right));
    let n = batch.len();
    let (from_rows, summed) = from[n..].split_at(rows.len());
    let left = three(c, &left, &from[..n], from_rows, summed)?;
    let right = three(
        c,
        &right,
        &to[..n],
        &to[n..n + inner.len()],
        &to[n + inner.len()..],
    )?;
    let product = c.apply(Op::MatMul, &[&left, &right])?;
    let mut shape = c.shape(&product)[..n].to_vec();
    shape.extend(from_rows.iter().cloned());
    shape.extend(to[n + inner.len()..].iter().cloned());
    let value = c.reshape(&product, shape)?;
    Ok(Term { value, labels })
}

fn three(
    c: &mut Call<'_, '_>,
    x: &Value,
    batch: &[Dim],
    rows: &[Dim],
    columns: &[Dim],
) -> OpResult<Value> {
    let mut shape = batch.to_vec();
    shape.push(rows.iter().cloned().product());
    shape.push(columns.iter().cloned().product());
    c.reshape(x, shape)
}

/// The term's value with its axes in that order.
fn ordered(c: &mut Call<'_, '_>, term: &Term, order: &[Label]) -> OpResult<Value> {
    let perm = order
        .iter()
        .filter_map(|label| term.labels.iter().position(|l| l == label))
        .collect();
    c.transpose(&term.value, perm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_read() {
        let letters = |text: &str| text.chars().map(Label::Letter).collect::<Vec<_>>();
        let found = parse("b i j, bjk", &[3, 3]).unwrap();
        assert_eq!(found.result, letters("ik"));
        let found = parse("...ij->...ji", &[4]).unwrap();
        assert_eq!(found.operands[0][0], Label::Hidden(1));
        assert_eq!(found.result.len(), 4);
        for (bad, ranks) in [
            ("ij->ik", &[2][..]),
            ("ij", &[3]),
            ("i,j", &[1]),
            ("i2", &[2]),
        ] {
            assert!(parse(bad, ranks).is_err(), "{bad}");
        }
        assert!(parse("ij->ii", &[2]).is_err());
    }
}
