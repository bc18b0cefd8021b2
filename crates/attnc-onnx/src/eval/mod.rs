//! Evaluating an operation at import, once for lengths and once for numbers.
//!
//! Invariant on entry: the operands fit the operation and `ty` is the type it gives
//! ([`attnc_ir::infer::result_type`]); on exit the result has that type.

mod element;

pub(crate) use element::{Element, MAX_INT, is_tame, weight};

use attnc_ir::{BinaryOp, DType, Dim, Op, PadMode, ReduceOp, TensorData, TensorType, to_odd};

/// A small tensor of known elements, row-major.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Elems<T> {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<T>,
}

impl<T> Elems<T> {
    pub(crate) fn scalar(dtype: DType, value: T) -> Self {
        Self {
            dtype,
            shape: Vec::new(),
            data: vec![value],
        }
    }

    pub(crate) fn list(dtype: DType, data: Vec<T>) -> Self {
        Self {
            dtype,
            shape: vec![data.len()],
            data,
        }
    }

    pub(crate) fn ty(&self) -> TensorType {
        TensorType::new(self.dtype, self.shape.iter().copied())
    }

    fn at(&self, index: &[usize]) -> &T {
        &self.data[ravel(index, &self.shape)]
    }

    /// The element at an index of a shape this broadcasts to.
    fn broadcast_at(&self, index: &[usize]) -> &T {
        let skip = index.len() - self.shape.len();
        let own: Vec<_> = self
            .shape
            .iter()
            .zip(&index[skip..])
            .map(|(&d, &i)| if d == 1 { 0 } else { i })
            .collect();
        self.at(&own)
    }
}

impl Elems<Dim> {
    /// The elements as numbers, if all are.
    pub(crate) fn numbers(&self) -> Option<Elems<f64>> {
        Some(Elems {
            dtype: self.dtype,
            shape: self.shape.clone(),
            data: self.data.iter().map(f64::length).collect::<Option<_>>()?,
        })
    }
}

impl Elems<f64> {
    /// The elements of a constant; `None` without data.
    pub(crate) fn of(data: &TensorData) -> Option<Self> {
        Some(Self {
            dtype: data.dtype,
            shape: data.shape.clone(),
            data: data.to_f64()?,
        })
    }

    /// As a constant of the graph. Values are those of the element type already.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the values are values of the element type"
    )]
    pub(crate) fn to_constant(&self) -> TensorData {
        let mut bytes = Vec::with_capacity(self.data.len() * self.dtype.bytes());
        for &v in &self.data {
            match self.dtype {
                DType::F32 => bytes.extend((v as f32).to_le_bytes()),
                DType::F16 => bytes.extend(half::f16::from_f32(to_odd(v)).to_le_bytes()),
                DType::BF16 => bytes.extend(half::bf16::from_f32(to_odd(v)).to_le_bytes()),
                DType::I32 => bytes.extend((v as i32).to_le_bytes()),
                DType::U32 => bytes.extend((v as u32).to_le_bytes()),
                DType::Bool => bytes.extend(u32::from(v != 0.0).to_le_bytes()),
            }
        }
        TensorData::new(self.dtype, self.shape.clone(), bytes.into())
    }
}

fn ravel(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (i, d)| at * d + i)
}

/// Calls `f` with every index of `shape` in row-major order, until it gives `None`.
fn for_each_index<T>(shape: &[usize], mut f: impl FnMut(&[usize]) -> Option<T>) -> Option<Vec<T>> {
    let count: usize = shape.iter().product();
    let mut index = vec![0; shape.len()];
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(f(&index)?);
        for (i, d) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *d {
                break;
            }
            *i = 0;
        }
    }
    Some(out)
}

/// The result of `op`, or `None` where it cannot be known yet.
pub(crate) fn evaluate<T: Element>(
    op: &Op,
    args: &[&Elems<T>],
    dtype: DType,
    shape: &[usize],
) -> Option<Elems<T>> {
    let data = match op {
        Op::Unary(op) => args[0]
            .data
            .iter()
            .map(|a| T::unary(*op, a, dtype))
            .collect::<Option<_>>()?,
        Op::Cast(to) => args[0]
            .data
            .iter()
            .map(|a| a.cast(args[0].dtype, *to))
            .collect::<Option<_>>()?,
        Op::Binary(op) => for_each_index(shape, |i| {
            T::binary(*op, args[0].broadcast_at(i), args[1].broadcast_at(i), dtype)
        })?,
        Op::Compare(op) => for_each_index(shape, |i| {
            let truth = T::compare(*op, args[0].broadcast_at(i), args[1].broadcast_at(i))?;
            T::literal(f64::from(u8::from(truth)), DType::Bool)
        })?,
        Op::Where => for_each_index(shape, |i| {
            let chosen = if args[0].broadcast_at(i).as_index()? != 0 {
                1
            } else {
                2
            };
            Some(args[chosen].broadcast_at(i).clone())
        })?,
        Op::Reduce { op, axes, .. } => reduce(*op, args[0], axes)?,
        Op::CumSum {
            axis,
            exclusive,
            reverse,
        } => cumsum(args[0], *axis, *exclusive, *reverse)?,
        Op::Iota {
            axis, start, step, ..
        } => for_each_index(shape, |i| {
            T::length(&(start.clone() + step.clone() * Dim::from(i[*axis])))
        })?,
        Op::Length(dim) => vec![T::length(dim)?],
        _ => rearrange(op, args, shape)?,
    };
    Some(Elems {
        dtype,
        shape: shape.to_vec(),
        data,
    })
}

/// The operations that only move elements.
fn rearrange<T: Element>(op: &Op, args: &[&Elems<T>], shape: &[usize]) -> Option<Vec<T>> {
    let x = args.first()?;
    match op {
        Op::Reshape(_) => Some(x.data.clone()),
        Op::Broadcast(_) => for_each_index(shape, |i| Some(x.broadcast_at(i).clone())),
        Op::Transpose(perm) => for_each_index(shape, |i| {
            let mut from = vec![0; i.len()];
            for (n, &p) in perm.iter().enumerate() {
                from[p] = i[n];
            }
            Some(x.at(&from).clone())
        }),
        Op::Slice {
            axis, start, step, ..
        } => {
            let start = start.as_const()?;
            for_each_index(shape, |i| {
                let at = start + i64::try_from(i[*axis]).ok()? * step;
                moved(x, i, *axis, at, false)
            })
        }
        Op::Concat { axis } => for_each_index(shape, |i| {
            let mut from = i.to_vec();
            for part in args {
                if from[*axis] < part.shape[*axis] {
                    return Some(part.at(&from).clone());
                }
                from[*axis] -= part.shape[*axis];
            }
            None
        }),
        Op::Gather { axis } => {
            let rank = args[1].shape.len();
            for_each_index(shape, |i| {
                let at = args[1].at(&i[*axis..axis + rank]).as_index()?;
                let mut from = i.to_vec();
                from.splice(*axis..axis + rank, [0]);
                moved(x, &from, *axis, at, true)
            })
        }
        Op::GatherElements { axis } => for_each_index(shape, |i| {
            moved(x, i, *axis, args[1].at(i).as_index()?, true)
        }),
        Op::Pad {
            before,
            mode: PadMode::Constant(fill),
            ..
        } => pad(x, before, *fill, shape),
        _ => None,
    }
}

/// The element of `x` at `index` with position `at` on one axis; `None` outside.
fn moved<T: Element>(x: &Elems<T>, index: &[usize], axis: usize, at: i64, wrap: bool) -> Option<T> {
    let size = i64::try_from(x.shape[axis]).ok()?;
    let at = if wrap && at < 0 { at + size } else { at };
    let mut from = index.to_vec();
    from[axis] = usize::try_from(at).ok().filter(|_| at < size)?;
    let inside = from.iter().zip(&x.shape).all(|(i, d)| i < d);
    inside.then(|| x.at(&from).clone())
}

fn pad<T: Element>(x: &Elems<T>, before: &[Dim], fill: f64, shape: &[usize]) -> Option<Vec<T>> {
    let before: Vec<i64> = before.iter().map(Dim::as_const).collect::<Option<_>>()?;
    for_each_index(shape, |i| {
        let from: Option<Vec<usize>> = i
            .iter()
            .zip(&before)
            .map(|(&i, b)| usize::try_from(i64::try_from(i).ok()? - b).ok())
            .collect();
        match from {
            Some(from) if from.iter().zip(&x.shape).all(|(i, d)| i < d) => {
                Some(x.at(&from).clone())
            }
            _ => T::literal(fill, x.dtype),
        }
    })
}

fn reduce<T: Element>(op: ReduceOp, x: &Elems<T>, axes: &[usize]) -> Option<Vec<T>> {
    let step = match op {
        ReduceOp::Sum => BinaryOp::Add,
        ReduceOp::Prod => BinaryOp::Mul,
        ReduceOp::Min => BinaryOp::Min,
        ReduceOp::Max => BinaryOp::Max,
        ReduceOp::Any => BinaryOp::Or,
        ReduceOp::All => BinaryOp::And,
        // The order of summation is the executor's business.
        ReduceOp::Mean => return None,
    };
    let kept: Vec<usize> = (0..x.shape.len())
        .map(|n| if axes.contains(&n) { 1 } else { x.shape[n] })
        .collect();
    let mut out: Vec<Option<T>> = vec![None; kept.iter().product()];
    let mut at = 0;
    for_each_index(&x.shape, |i| {
        let to: Vec<_> = i
            .iter()
            .zip(&kept)
            .map(|(&i, &d)| if d == 1 { 0 } else { i })
            .collect();
        let slot = &mut out[ravel(&to, &kept)];
        *slot = Some(match slot.take() {
            None => x.data[at].clone(),
            Some(sum) => T::binary(step, &sum, &x.data[at], x.dtype)?,
        });
        at += 1;
        Some(())
    })?;
    let empty = match op {
        ReduceOp::Sum | ReduceOp::Any => T::literal(0.0, x.dtype),
        ReduceOp::Prod | ReduceOp::All => T::literal(1.0, x.dtype),
        _ => None,
    };
    out.into_iter()
        .map(|v| v.or_else(|| empty.clone()))
        .collect()
}

fn cumsum<T: Element>(x: &Elems<T>, axis: usize, exclusive: bool, reverse: bool) -> Option<Vec<T>> {
    for_each_index(&x.shape, |i| {
        let here = i[axis];
        let (from, to) = match (reverse, exclusive) {
            (false, false) => (0, here + 1),
            (false, true) => (0, here),
            (true, false) => (here, x.shape[axis]),
            (true, true) => (here + 1, x.shape[axis]),
        };
        let mut sum = T::literal(0.0, x.dtype)?;
        let mut index = i.to_vec();
        for n in from..to {
            index[axis] = n;
            sum = T::binary(BinaryOp::Add, &sum, x.at(&index), x.dtype)?;
        }
        Some(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(shape: &[usize], data: &[i64]) -> Elems<Dim> {
        Elems {
            dtype: DType::I32,
            shape: shape.to_vec(),
            data: data.iter().map(|&n| Dim::from(n)).collect(),
        }
    }

    fn run(op: &Op, args: &[&Elems<Dim>], shape: &[usize]) -> Option<Vec<i64>> {
        let out = evaluate(op, args, DType::I32, shape)?;
        out.data.iter().map(Dim::as_const).collect()
    }

    #[test]
    fn moving_elements() {
        let x = ints(&[2, 3], &[0, 1, 2, 3, 4, 5]);
        assert_eq!(
            run(&Op::Transpose(vec![1, 0]), &[&x], &[3, 2]),
            Some(vec![0, 3, 1, 4, 2, 5])
        );
        let backwards = Op::Slice {
            axis: 1,
            start: 2.into(),
            len: 2.into(),
            step: -2,
        };
        assert_eq!(run(&backwards, &[&x], &[2, 2]), Some(vec![2, 0, 5, 3]));
        let at = ints(&[2], &[-1, 0]);
        assert_eq!(
            run(&Op::Gather { axis: 1 }, &[&x, &at], &[2, 2]),
            Some(vec![2, 0, 5, 3])
        );
        let outside = ints(&[1], &[3]);
        assert_eq!(run(&Op::Gather { axis: 1 }, &[&x, &outside], &[2, 1]), None);
        let y = ints(&[2, 1], &[8, 9]);
        let joined = run(&Op::Concat { axis: 1 }, &[&x, &y], &[2, 4]);
        assert_eq!(joined, Some(vec![0, 1, 2, 8, 3, 4, 5, 9]));
    }

    #[test]
    fn sums() {
        let x = ints(&[2, 3], &[0, 1, 2, 3, 4, 5]);
        let sum = Op::Reduce {
            op: ReduceOp::Sum,
            axes: vec![1],
            keep_dims: false,
        };
        assert_eq!(run(&sum, &[&x], &[2]), Some(vec![3, 12]));
        let cum = Op::CumSum {
            axis: 1,
            exclusive: true,
            reverse: true,
        };
        assert_eq!(run(&cum, &[&x], &[2, 3]), Some(vec![3, 2, 0, 9, 5, 0]));
    }
}
