//! Lookups.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::eval::{Elems, is_tame};
use crate::value::Value;
use attnc_ir::{Dim, Op};

pub(super) fn gather(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, indices) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(0, c.rank(&x))?;
    if let Some(counted) = counted(c, &x, &indices) {
        return Ok(vec![counted]);
    }
    within(c, &x, axis, &indices);
    Ok(vec![c.apply(Op::Gather { axis }, &[&x, &indices])?])
}

/// An element of what counts along its only axis, at a known index, follows from lengths: `Range(n)[-1]`.
fn counted(c: &mut Call<'_, '_>, x: &Value, indices: &Value) -> Option<Value> {
    let Value::Graph(id) = *x else {
        return None;
    };
    let node = c.cx.graph.node(id);
    let Op::Iota {
        shape, start, step, ..
    } = node.op.clone()
    else {
        return None;
    };
    let name = node.name().to_owned();
    let [size] = shape.as_slice() else {
        return None;
    };
    let indices = indices.as_ints()?;
    let mut data = Vec::new();
    for index in &indices.data {
        let index = match index.as_const() {
            Some(n) if n < 0 => size.clone() + index.clone(),
            _ => index.clone(),
        };
        let beyond = size.clone() - Dim::one() - index.clone();
        if index.as_const().is_some_and(|n| n < 0) || beyond.as_const().is_some_and(|n| n < 0) {
            return None;
        }
        c.cx.require(index.clone() + Dim::one(), size.clone(), || {
            format!("the list that `{name}` counts")
        });
        data.push(start.clone() + step.clone() * index);
    }
    data.iter().all(is_tame).then(|| {
        Value::ints(Elems {
            data,
            dtype: indices.dtype,
            shape: indices.shape,
        })
    })
}

/// Where the indices count up to a length, that must not be beyond the table: a position beyond the last.
fn within(c: &mut Call<'_, '_>, x: &Value, axis: usize, indices: &Value) {
    let Value::Graph(mut id) = *indices else {
        return;
    };
    while let Op::Reshape(_) | Op::Broadcast(_) = c.cx.graph.node(id).op {
        id = c.cx.graph.node(id).operands()[0];
    }
    if let Op::Iota {
        shape,
        axis: along,
        start,
        step,
    } = c.cx.graph.node(id).op.clone()
        && step.as_const().is_some_and(|n| n > 0)
    {
        let last = start + step * (shape[along].clone() - Dim::one());
        let size = c.shape(x)[axis].clone();
        let name = c.cx.graph.node(id).name().to_owned();
        c.cx.require(last + Dim::one(), size, || {
            format!("the table that `{name}` counts")
        });
    }
}

pub(super) fn gather_elements(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, indices) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(0, c.rank(&x))?;
    Ok(vec![c.apply(Op::GatherElements { axis }, &[&x, &indices])?])
}

pub(super) fn gather_nd(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, indices) = (c.input(0)?, c.input(1)?);
    let batch_dims = c.attrs.int("batch_dims")?.unwrap_or(0);
    let batch_dims = usize::try_from(batch_dims).map_err(|_| {
        OpError::invalid(
            "bad-attribute",
            format!("attribute `batch_dims` is {batch_dims}"),
        )
    })?;
    Ok(vec![c.apply(Op::GatherNd { batch_dims }, &[&x, &indices])?])
}
