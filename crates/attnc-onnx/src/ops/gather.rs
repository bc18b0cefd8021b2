//! Lookups.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::Op;

pub(super) fn gather(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, indices) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(0, c.rank(&x))?;
    Ok(vec![c.apply(Op::Gather { axis }, &[&x, &indices])?])
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
