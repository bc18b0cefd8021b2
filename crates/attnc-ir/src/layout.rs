//! Where the elements of a value lie in the buffer of the value it is a view of.
//!
//! `transpose(reshape(slice(x)))` is no work: it is `x` read with an offset and other strides. The chain of
//! views is composed as polynomials over the index variables, so `reshape` of `transpose` of `reshape` is
//! seen through wherever it is affine.
//!
//! ```
//! use attnc_ir::{DType, Graph, Op, TensorType, layout};
//! let mut g = Graph::new("heads");
//! let x = g.add_input("x", TensorType::new(DType::F32, ["B".into(), "S".into(), attnc_ir::Dim::from(64)]));
//! let split = g.apply(Op::Reshape(vec!["B".into(), "S".into(), 4.into(), 16.into()]), &[x]).unwrap();
//! let heads = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[split]).unwrap();
//! let l = layout::resolve(&g, heads).unwrap();
//! assert_eq!(l.base, x);
//! assert_eq!(l.strides.iter().map(ToString::to_string).collect::<Vec<_>>(), ["64 * S", "16", "64", "1"]);
//! ```

use crate::scalar::load_indices;
use crate::{Dim, Extents, Graph, Shape, ValueId};

/// A value as a strided window on the buffer of `base`. Everything counts elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The value whose buffer holds the elements: not a view.
    pub base: ValueId,
    /// Position of the first element.
    pub offset: Dim,
    /// Distance of neighbours, per axis; 0 where the axis repeats one element or has length 1.
    pub strides: Vec<Dim>,
}

impl Layout {
    /// Whether the elements lie one after another in row-major order.
    #[must_use]
    pub fn is_contiguous(&self, shape: &[Dim]) -> bool {
        let packed = row_major(shape);
        self.strides
            .iter()
            .zip(&packed)
            .zip(shape)
            .all(|((s, p), d)| s == p || d.is(1))
    }
}

/// Strides of a packed row-major buffer of that shape.
#[must_use]
pub fn row_major(shape: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::one(); shape.len()];
    for n in (1..shape.len()).rev() {
        strides[n - 1] = strides[n].clone() * shape[n].clone();
    }
    strides
}

/// Strides of a packed buffer of that shape with its axes laid out in the order `storage`, outermost first.
#[must_use]
pub fn storage_strides(shape: &[Dim], storage: Option<&[usize]>) -> Vec<Dim> {
    let Some(order) = storage else {
        return row_major(shape);
    };
    let permuted: Shape = order.iter().map(|&n| shape[n].clone()).collect();
    let mut strides = vec![Dim::one(); shape.len()];
    for (stride, &n) in row_major(&permuted).into_iter().zip(order) {
        strides[n] = stride;
    }
    strides
}

/// The value the views lead to, and the index into it as polynomials over the index variables of `value`.
#[must_use]
pub fn source_index(graph: &Graph, value: ValueId) -> (ValueId, Vec<Dim>) {
    let shape = &graph.ty(value).shape;
    let ext = Extents::new(shape.clone());
    let mut index: Vec<Dim> = (0..shape.len())
        .map(|n| {
            if shape[n].is(1) {
                Dim::zero()
            } else {
                Dim::index(u32::try_from(n).expect("few axes"))
            }
        })
        .collect();
    let mut at = value;
    while graph.node(at).op.is_view() && graph.node(at).epilogue.is_none() {
        let source = graph.node(at).operands()[0];
        let inner = load_indices(
            &graph.node(at).op,
            &graph.ty(source).shape,
            &graph.ty(at).shape,
        )
        .expect("a view has an index map");
        index = inner
            .iter()
            .map(|d| {
                d.substitute(&ext, &|atom| match atom {
                    crate::Atom::Index(n) => Some(index[*n as usize].clone()),
                    _ => None,
                })
            })
            .collect();
        at = source;
    }
    (at, index)
}

/// Position in the buffer of the base, as a polynomial over the index variables of `value`.
#[must_use]
pub fn flat_index(graph: &Graph, value: ValueId) -> (ValueId, Dim) {
    let (base, index) = source_index(graph, value);
    let node = graph.node(base);
    let strides = storage_strides(&node.ty.shape, node.storage.as_deref());
    let flat = index.into_iter().zip(strides).map(|(i, s)| i * s).sum();
    (base, flat)
}

/// The value as a strided window, or `None` where its index into the base is not affine.
#[must_use]
pub fn resolve(graph: &Graph, value: ValueId) -> Option<Layout> {
    let (base, mut rest) = flat_index(graph, value);
    let mut strides = Vec::new();
    for n in 0..graph.ty(value).rank() {
        let (stride, left) = rest.split_index(u32::try_from(n).ok()?)?;
        if !stride.indices().is_empty() {
            return None;
        }
        strides.push(stride);
        rest = left;
    }
    Some(Layout {
        base,
        offset: rest,
        strides,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Op, TensorType};

    fn dims(text: &[&str]) -> Shape {
        text.iter().map(|t| t.parse().unwrap()).collect()
    }

    fn strides(graph: &Graph, value: ValueId) -> Option<Vec<String>> {
        resolve(graph, value).map(|l| l.strides.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn folding_heads_into_the_batch_and_back_is_seen_through() {
        let mut g = Graph::new("g");
        let x = g.add_input(
            "x",
            TensorType {
                dtype: DType::F32,
                shape: dims(&["B", "S", "64"]),
            },
        );
        let split = g
            .apply(Op::Reshape(dims(&["B", "S", "4", "16"])), &[x])
            .unwrap();
        let heads = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[split]).unwrap();
        let folded = g
            .apply(Op::Reshape(dims(&["4 * B", "S", "16"])), &[heads])
            .unwrap();
        let turned = g.apply(Op::Transpose(vec![0, 2, 1]), &[folded]).unwrap();
        let back = g
            .apply(Op::Reshape(dims(&["B", "4", "16", "S"])), &[turned])
            .unwrap();
        assert_eq!(strides(&g, back).unwrap(), ["64 * S", "16", "1", "64"]);
        // Merging batch and heads of a transposed value is no stride.
        assert_eq!(strides(&g, folded), None);
    }

    #[test]
    fn packed_projections_are_offsets() {
        let mut g = Graph::new("g");
        let x = g.add_input(
            "x",
            TensorType {
                dtype: DType::F32,
                shape: dims(&["B", "S", "192"]),
            },
        );
        let k = g
            .apply(
                Op::Slice {
                    axis: 2,
                    start: 64.into(),
                    len: 64.into(),
                    step: 1,
                },
                &[x],
            )
            .unwrap();
        let split = g
            .apply(Op::Reshape(dims(&["B", "S", "4", "16"])), &[k])
            .unwrap();
        let l = resolve(&g, split).unwrap();
        assert_eq!(l.offset, 64.into());
        assert_eq!(strides(&g, split).unwrap(), ["192 * S", "192", "16", "1"]);
    }

    #[test]
    fn storage_order_makes_the_transpose_contiguous() {
        let mut g = Graph::new("g");
        let x = g.add_input(
            "x",
            TensorType {
                dtype: DType::F32,
                shape: dims(&["B", "4", "S", "16"]),
            },
        );
        g.node_mut(x).storage = Some(vec![0, 2, 1, 3]);
        let t = g.apply(Op::Transpose(vec![0, 2, 1, 3]), &[x]).unwrap();
        let joined = g.apply(Op::Reshape(dims(&["B", "S", "64"])), &[t]).unwrap();
        assert_eq!(strides(&g, joined).unwrap(), ["64 * S", "64", "1"]);
    }
}
