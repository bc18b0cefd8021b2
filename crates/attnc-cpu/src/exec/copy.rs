//! Moving elements: views that have to be packed, and concatenation.

use super::layout::Rows;
use super::view::View;
use rayon::prelude::*;

/// Elements below which threads cost more than they save.
pub(crate) const SEQUENTIAL: usize = 1 << 14;

/// Writes the elements of a view in row-major order.
pub(crate) fn pack(view: &View<'_>, out: &mut [u32]) {
    if out.is_empty() {
        return;
    }
    // Rows of at least a few hundred elements, so that finding their start does not matter.
    let shape = &view.layout.shape;
    let mut axis = shape.len();
    let mut len = 1;
    while axis > 0 && len < 256 {
        axis -= 1;
        len *= shape[axis];
    }
    let rows = Rows::new(view.layout, axis);
    if out.len() <= SEQUENTIAL {
        for (n, row) in out.chunks_exact_mut(rows.len()).enumerate() {
            rows.copy(view.lanes, n, row);
        }
    } else {
        out.par_chunks_exact_mut(rows.len())
            .with_min_len(SEQUENTIAL.div_ceil(rows.len()))
            .enumerate()
            .for_each(|(n, row)| rows.copy(view.lanes, n, row));
    }
}

/// Writes operands one after another along an axis.
pub(crate) fn concat(operands: &[View<'_>], axis: usize, out: &mut [u32]) {
    let parts: Vec<Rows> = operands.iter().map(|v| Rows::new(v.layout, axis)).collect();
    let run: usize = parts.iter().map(Rows::len).sum();
    if run == 0 || out.is_empty() {
        return;
    }
    if axis == 0 || out.len() == run {
        // One run: each operand is a stretch of the result.
        let mut rest = out;
        for (view, part) in operands.iter().zip(&parts) {
            let (here, later) = rest.split_at_mut(part.len());
            pack(view, here);
            rest = later;
        }
        return;
    }
    out.par_chunks_exact_mut(run)
        .with_min_len(SEQUENTIAL.div_ceil(run))
        .enumerate()
        .for_each(|(n, mut row)| {
            for (view, part) in operands.iter().zip(&parts) {
                let (here, later) = row.split_at_mut(part.len());
                part.copy(view.lanes, n, here);
                row = later;
            }
        });
}
