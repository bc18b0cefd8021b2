//! No N×N: no buffer of a fused plan has both a query and a key axis.
//!
//! A buffer counts as holding scores (or a mask of their size) where
//!
//! * two of its axes have the lengths of the queries and the keys of an attention, or
//! * its number of elements grows faster than linearly when those lengths grow together, however the
//!   axes were merged. (A number for each *tile* of queries and keys does too, but is a thousandth of that.)
//!
//! The first also catches lengths that are constants, the second shapes that were flattened. A table of what a
//! mask does on tiles, one number for 64 × 64 scores, is none and is known by its shape. That the
//! check is no empty one is shown on the same model without fusion, where it must find something.

use crate::support::{Outcome, ensure, unfused};
use attnc::codegen::BLOCK;
use attnc::ir::{Dim, Extents, Graph, Op};
use attnc::plan::{Buffer, BufferKind, DeviceProfile, Plan};
use attnc::{Model, compile, opt};
use std::collections::BTreeSet;
use std::path::Path;

pub(super) fn none_in_memory(path: &Path) -> Outcome {
    let model = Model::open(path)?;
    let profile = DeviceProfile::webgpu();
    let optimised = compile::optimise(&model.graph, &opt::Options::default())?;
    let axes = lengths(&optimised.graph);
    ensure(!axes.is_empty(), || "nothing fused".to_owned())?;
    let fused = compile::lower(&optimised.graph, &profile)?.plan;
    let tables = held(&fused, &axes);
    ensure(tables.is_empty(), || {
        format!("buffers with queries and keys: {}", tables.join(", "))
    })?;

    let apart = compile::optimise(&model.graph, &unfused())?;
    if !lengths(&apart.graph).is_empty() {
        // Attention that the file itself has as one operator is never taken apart.
        return Ok(());
    }
    let apart = compile::lower(&apart.graph, &profile)?.plan;
    ensure(!held(&apart, &axes).is_empty(), || {
        "the check finds no scores where nothing is fused, so it finds nothing".to_owned()
    })
}

/// Queries and keys of every attention in a fused graph.
pub(super) fn lengths(graph: &Graph) -> BTreeSet<(Dim, Dim)> {
    let attention = graph
        .values()
        .filter(|&v| matches!(graph.node(v).op, Op::Attention(_)));
    attention
        .map(|v| {
            let axis =
                |operand: usize| graph.ty(graph.node(v).operands()[operand]).shape[2].clone();
            (axis(0), axis(1))
        })
        .collect()
}

/// The buffers that hold scores, but for those the host gives.
pub(super) fn held(plan: &Plan, lengths: &BTreeSet<(Dim, Dim)>) -> Vec<String> {
    let made = plan.buffers.iter().filter(|b| b.kind != BufferKind::Input);
    made.filter(|b| {
        let mut lengths = lengths.iter();
        lengths.any(|(m, n)| !is_tiles(b, m, n) && (has_both(b, m, n) || is_square(b, m, n)))
    })
    .map(|b| format!("{} `{}`", b.type_text(), b.name))
    .collect()
}

fn has_both(buffer: &Buffer, m: &Dim, n: &Dim) -> bool {
    let axes = &buffer.shape;
    let pairs = (0..axes.len()).flat_map(|i| (0..axes.len()).map(move |j| (i, j)));
    pairs
        .filter(|(i, j)| i != j)
        .any(|(i, j)| axes[i] == *m && axes[j] == *n)
}

/// Whether there is an element for each tile of queries and keys.
fn is_tiles(buffer: &Buffer, m: &Dim, n: &Dim) -> bool {
    let tiles = |length: &Dim| length.ceil_div(&Dim::from(i64::from(BLOCK)), &Extents::none());
    buffer.shape.len() == 4 && buffer.shape[2..] == [tiles(m), tiles(n)]
}

/// Whether the number of elements is no straight line in the lengths that queries and keys have.
fn is_square(buffer: &Buffer, m: &Dim, n: &Dim) -> bool {
    let grown: BTreeSet<_> = m.symbols().into_iter().chain(n.symbols()).collect();
    let elements = buffer.elements();
    let at = |length: i64| {
        let value = |name: &str| Some(if grown.contains(name) { length } else { 3 });
        elements.eval(&value).unwrap_or(i64::MAX)
    };
    let pairs = 4096 * 4096;
    at(300) - at(200) != at(200) - at(100) && at(4096) >= pairs / 64
}
