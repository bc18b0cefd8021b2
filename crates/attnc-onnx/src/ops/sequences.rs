//! Sequences: of parts of one shape, which are then a stack of them.

use crate::call::Call;
use crate::error::{OpError, OpResult};
use crate::value::Value;
use attnc_ir::{Dim, Op};

/// A sequence of parts of one shape is their stack.
pub(super) fn split_to_sequence(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let x = c.input(0)?;
    let mut shape = c.shape(&x);
    let axis = c.axis(0, shape.len())?;
    let (each, keep) = match c.optional(1) {
        None => (Dim::one(), c.attrs.flag("keepdims", true)?),
        // The standard ignores `keepdims` beside a length; exporters and ONNX Runtime do not.
        Some(split) if c.shape(&split).is_empty() => {
            let each = c.dim(&split, "the length of a part")?;
            let keep = !each.is(1) || c.attrs.flag("keepdims", true)?;
            (each, keep)
        }
        Some(split) => {
            let parts = c.dims(&split, "the lengths of the parts")?;
            let first = parts.first().cloned().unwrap_or_default();
            if parts.iter().any(|p| *p != first) {
                return Err(OpError::unsupported(
                    "a sequence of unlike parts",
                    "equal parts",
                ));
            }
            (first, true)
        }
    };
    let Some(many) = shape[axis].exact_div(&each) else {
        return Err(OpError::unsupported(
            "a sequence of unlike parts",
            "equal parts",
        ));
    };
    shape[axis] = each;
    shape.insert(axis, many);
    let apart = c.reshape(&x, shape.clone())?;
    let mut perm: Vec<usize> = (0..shape.len()).collect();
    perm[..=axis].rotate_right(1);
    let stack = c.transpose(&apart, perm)?;
    if keep {
        return Ok(vec![stack]);
    }
    let mut shape = c.shape(&stack);
    shape.remove(axis + 1);
    Ok(vec![c.reshape(&stack, shape)?])
}

/// One part of a sequence.
pub(super) fn sequence_at(c: &mut Call<'_, '_>) -> OpResult<Vec<Value>> {
    let (stack, at) = (c.input(0)?, c.input(1)?);
    let at = c.reshape(&at, Vec::new())?;
    Ok(vec![c.apply(Op::Gather { axis: 0 }, &[&stack, &at])?])
}
