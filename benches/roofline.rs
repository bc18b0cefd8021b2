//! The least that has to be done: operations, and bytes that move, kernel by kernel.
//!
//! ```
//! use attnc_benches::roofline::Piece;
//! let peaks = attnc_benches::peak::Peaks { flops_f32: 100e9, flops_f16: None, copy: 10e9 };
//! let matmul = Piece { flops: 1e9, bytes: 1e6 };
//! assert_eq!(matmul.seconds(&peaks, attnc::HostDType::F32), 0.01);
//! ```
//!
//! Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model" (2009).

use crate::peak::{Bound, Peaks};
use attnc::HostDType;
use attnc::ir::{Dim, Graph, Op, ValueId};
use attnc::plan::DimValues;

/// The work of one kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Piece {
    /// Operations.
    pub flops: f64,
    /// Bytes read once and written once.
    pub bytes: f64,
}

impl Piece {
    /// What bounds it.
    #[must_use]
    pub fn bound(&self, peaks: &Peaks, dtype: HostDType) -> Bound {
        if self.flops / peaks.flops(dtype) >= self.bytes / peaks.copy {
            Bound::Arithmetic
        } else {
            Bound::Bandwidth
        }
    }

    /// The least time.
    #[must_use]
    pub fn seconds(&self, peaks: &Peaks, dtype: HostDType) -> f64 {
        (self.flops / peaks.flops(dtype)).max(self.bytes / peaks.copy)
    }
}

/// The kernels of an optimised graph. Only products of matmul and attention are counted as operations; a
/// pointwise kernel reads of each operand no more than it writes, as a lookup in a table does.
///
/// # Errors
/// In words, where a length has no value.
pub fn of_graph(graph: &Graph, dims: &DimValues) -> Result<Vec<Piece>, String> {
    let size = |dim: &Dim| dims.eval(dim).map(|n| n as f64).map_err(|e| e.to_string());
    let elements = |id: ValueId| {
        graph
            .ty(id)
            .shape
            .iter()
            .map(size)
            .product::<Result<f64, _>>()
    };
    let mut pieces = Vec::new();
    for id in graph.topo_order() {
        let node = graph.node(id);
        if matches!(node.op, Op::Input | Op::Constant(_)) || node.op.is_view() {
            continue;
        }
        let result = elements(id)?;
        let last = |at: usize| {
            node.operands()
                .get(at)
                .and_then(|&o| graph.ty(o).shape.last())
                .map_or(Ok(0.0), size)
        };
        let flops = match node.op {
            Op::MatMul => 2.0 * result * last(0)?,
            // Scores have the axes of the result, with keys for the width of V.
            Op::Attention(_) => {
                let keys = graph
                    .ty(node.operands()[1])
                    .shape
                    .iter()
                    .nth_back(1)
                    .map_or(Ok(0.0), size)?;
                2.0 * (result / last(2)?) * keys * (last(0)? + last(2)?)
            }
            _ => 0.0,
        };
        let mut bytes = result * node.ty.dtype.bytes() as f64;
        for &operand in node.operands() {
            // A view that repeats moves no more than what it repeats.
            let root = elements(root(graph, operand))?;
            let mut read = elements(operand)?.min(root);
            if matches!(node.op, Op::Map { .. }) {
                read = read.min(result);
            }
            bytes += read * graph.ty(operand).dtype.bytes() as f64;
        }
        pieces.push(Piece { flops, bytes });
    }
    Ok(pieces)
}

fn root(graph: &Graph, mut id: ValueId) -> ValueId {
    while graph.node(id).op.is_view() {
        id = graph.node(id).operands()[0];
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Work;
    use crate::shapes;
    use crate::task::Task;

    #[test]
    fn work_is_bound_by_what_takes_longer() {
        let peaks = Peaks {
            flops_f32: 100.0,
            flops_f16: Some(200.0),
            copy: 10.0,
        };
        let of = |flops, bytes, dtype| {
            let piece = Piece { flops, bytes };
            (piece.seconds(&peaks, dtype), piece.bound(&peaks, dtype))
        };
        assert_eq!(of(1000.0, 10.0, HostDType::F32), (10.0, Bound::Arithmetic));
        assert_eq!(of(1000.0, 10.0, HostDType::F16), (5.0, Bound::Arithmetic));
        assert_eq!(of(10.0, 100.0, HostDType::F32), (10.0, Bound::Bandwidth));
    }

    #[test]
    fn a_graph_of_one_kernel_is_the_work_of_its_shape() {
        for shape in shapes::smoke() {
            let task = Task::new(&shape).unwrap();
            let options = attnc::opt::Options::default();
            let graph = attnc::optimise(&task.model.graph, &options).unwrap().graph;
            let pieces = of_graph(&graph, &task.bound.dims).unwrap();
            assert_eq!(pieces.len(), 1, "{}", shape.title);
            assert_eq!(Some(pieces[0].bytes), shape.bytes(), "{}", shape.title);
            let unmasked = match &shape.work {
                Work::Attention(a) => (4 * a.heads * a.q * a.kv * a.d) as f64,
                _ => shape.flops().unwrap(),
            };
            assert_eq!(pieces[0].flops, unmasked, "{}", shape.title);
        }
    }
}
