//! Pixels and channels changed into each other.

use super::slice::FAR;
use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::Dim;

/// Blocks of channels become blocks of pixels.
pub(super) fn depth_to_space(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, block, [batch, depth, height, width]) = pixels(c)?;
    let Some(rest) = depth.exact_div(&(block.clone() * block.clone())) else {
        let message = format!("blocks of {block} by {block} from {depth} channels");
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let (apart, perm) = match c.attrs.string("mode")?.unwrap_or("DCR") {
        "DCR" => (
            [block.clone(), block.clone(), rest.clone()],
            [0, 3, 4, 1, 5, 2],
        ),
        "CRD" => (
            [rest.clone(), block.clone(), block.clone()],
            [0, 1, 4, 2, 5, 3],
        ),
        other => {
            let message = format!("attribute `mode` is `{other}`, expected `DCR` or `CRD`");
            return Err(OpError::invalid("bad-attribute", message));
        }
    };
    let mut shape = vec![batch.clone()];
    shape.extend(apart);
    shape.extend([height.clone(), width.clone()]);
    let x = c.reshape(&x, shape)?;
    let x = c.transpose(&x, perm.to_vec())?;
    let shape = vec![batch, rest, height * block.clone(), width * block];
    Ok(vec![c.reshape(&x, shape)?])
}

/// Blocks of pixels become blocks of channels.
pub(super) fn space_to_depth(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (x, block, [batch, depth, height, width]) = pixels(c)?;
    let (Some(rows), Some(columns)) = (height.exact_div(&block), width.exact_div(&block)) else {
        let message = format!("blocks of {block} by {block} from {height} by {width}");
        return Err(OpError::invalid("shape-mismatch", message));
    };
    let (b, d) = (batch.clone(), depth.clone());
    let apart = vec![
        b,
        d,
        rows.clone(),
        block.clone(),
        columns.clone(),
        block.clone(),
    ];
    let x = c.reshape(&x, apart)?;
    let x = c.transpose(&x, vec![0, 3, 5, 1, 2, 4])?;
    let shape = vec![batch, depth * block.clone() * block, rows, columns];
    Ok(vec![c.reshape(&x, shape)?])
}

/// The operand, `blocksize`, and the four lengths.
fn pixels(c: &Call<'_, '_>) -> OpResult<(Value, Dim, [Dim; 4])> {
    let x = c.input(0)?;
    let block = c.attrs.int("blocksize")?.unwrap_or(0);
    match <[Dim; 4]>::try_from(c.shape(&x)) {
        Ok(dims) if (1..FAR).contains(&block) => Ok((x, Dim::from(block), dims)),
        _ => {
            let message = format!("blocks of {block} of {}", c.ty(&x));
            Err(OpError::invalid("shape-mismatch", message))
        }
    }
}
