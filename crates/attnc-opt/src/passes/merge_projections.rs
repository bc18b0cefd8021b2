//! The projections of one attention (Q, K and V of the same rows) become one product, and windows on it.
//!
//! ```text
//! %q = matmul %x, %wq, %bq        %q+k+v = matmul %x, [%wq %wk %wv], [%bq %bk %bv]
//! %k = matmul %x, %wk, %bk        %q = slice %q+k+v, axis = 2, start = 0, len = 384
//! %v = matmul %x, %wv, %bv        %k = slice %q+k+v, axis = 2, start = 384, len = 384   …
//! ```
//!
//! One launch instead of three reads `%x` once and fills a device that one of them would not. The weights are put
//! together here, on the host; nothing else may read them, so that none is held twice. The slices are strides for
//! whoever reads them. MiniLM (6 layers, d 384), merged against not, same run: on the CPU 1.03 to 1.08 × at 1 × 128,
//! 1.02 × at 8 × 128; on lavapipe alike at 1 × 128 (0.97 to 1.01), 1.1 × at 1 × 7, where launches count. It costs the
//! copy: 8 MiB more at the peak and 6 to 12 ms once.
//!
//! Gate and up projections of a feed-forward are left alone: there the gate rides on the stores of the other
//! product. Merged, a pass over both halves has to join them: 0.79 to 0.88 × on the CPU at 1 × 7 (d 576, 1536), and
//! at 1 × 128 within what runs differ by.
//!
//! On entry biases ride on their products' stores. On exit projections that only attention reads, directly or
//! through elementwise work such as rotary embeddings, share a product if they share rows and form.

use crate::{Change, Pass, RemarkKind, Trace, source_name};
use attnc_ir::scalar::{ExprId, Scalar, ScalarExpr};
use attnc_ir::{Diagnostics, Dim, Graph, Op, SharedBytes, TensorData, TensorType, ValueId, layout};

/// See the module.
pub struct MergeProjections;

/// No merged weight is larger: a product that large fills a device by itself, and weights put together are no longer
/// read from the model's file as they lie there.
const MAX_BYTES: usize = 16 << 20;

impl Pass for MergeProjections {
    fn name(&self) -> &'static str {
        "merge-projections"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut groups: Vec<Vec<Projection>> = Vec::new();
        for value in graph.topo_order() {
            let Some(one) = projection(graph, value) else {
                continue;
            };
            match groups.iter_mut().find(|group| group[0].is_beside(&one)) {
                Some(group) => group.push(one),
                None => groups.push(vec![one]),
            }
        }
        let mut changed = false;
        for group in groups.into_iter().filter(|group| group.len() > 1) {
            if let Some(reason) = obstacle(&group) {
                let first = &group[0];
                let names: Vec<_> = group.iter().map(|p| source_name(graph, p.value)).collect();
                let message = format!("{} stay products of their own: {reason}", names.join(", "));
                trace.note(graph, first.value, message, first.attention);
                continue;
            }
            if !trace.claim() {
                break;
            }
            merge(graph, &group, trace);
            changed = true;
        }
        if changed {
            graph.remove_dead();
        }
        Ok(Change::from(changed))
    }
}

/// A product with a constant matrix that may become part of another.
struct Projection {
    value: ValueId,
    left: ValueId,
    /// The attention that reads it. Those of other layers are other groups: all at once would need more memory.
    attention: ValueId,
    /// The matrix, and whether a row of it in memory is a column of the product.
    weight: TensorData,
    by_columns: bool,
    rows: usize,
    columns: usize,
    epilogue: Option<ScalarExpr>,
    /// Constant vectors that the epilogue reads, an element a column.
    vectors: Vec<TensorData>,
}

impl Projection {
    fn is_beside(&self, other: &Self) -> bool {
        let types = |p: &Self| p.vectors.iter().map(|v| v.dtype).collect::<Vec<_>>();
        self.left == other.left
            && self.attention == other.attention
            && self.rows == other.rows
            && self.by_columns == other.by_columns
            && self.weight.dtype == other.weight.dtype
            && self.epilogue == other.epilogue
            && types(self) == types(other)
    }

    fn bytes(&self) -> usize {
        self.rows * self.columns * self.weight.dtype.bytes()
    }
}

/// Why projections of one form are not merged.
fn obstacle(group: &[Projection]) -> Option<String> {
    let bytes: usize = group.iter().map(Projection::bytes).sum();
    let odd = group.iter().find(|p| p.columns % 4 != 0);
    match odd {
        Some(odd) => Some(format!("{} columns are no whole vectors", odd.columns)),
        None if bytes > MAX_BYTES => Some(format!(
            "their {} MiB of weights fill a device one by one",
            bytes >> 20
        )),
        None => None,
    }
}

fn projection(graph: &Graph, value: ValueId) -> Option<Projection> {
    let node = graph.node(value);
    let [left, right, ..] = node.operands() else {
        return None;
    };
    let plain = matches!(node.op, Op::MatMul) && node.storage.is_none();
    if !plain || graph.is_output(value) || !is_read_anywhere(graph, value) {
        return None;
    }
    let attention = attention_of(graph, value)?;
    let (weight, by_columns) = matrix(graph, *right)?;
    let size = |n: usize| usize::try_from(graph.ty(*right).shape[n].as_const()?).ok();
    let (rows, columns) = (size(0)?, size(1)?);
    Some(Projection {
        value,
        left: *left,
        attention,
        weight,
        by_columns,
        rows,
        columns,
        epilogue: node.epilogue.clone(),
        vectors: vectors(graph, value, columns)?,
    })
}

/// What the epilogue reads, if that is constant vectors along the columns, which nothing else reads.
fn vectors(graph: &Graph, value: ValueId, columns: usize) -> Option<Vec<TensorData>> {
    let node = graph.node(value);
    let last = u32::try_from(node.ty.rank()).ok()?.checked_sub(1)?;
    let captured = node.operands().iter().enumerate().skip(2);
    let vectors = captured.map(|(n, &operand)| {
        let (Op::Constant(data), Some(epilogue)) = (&graph.node(operand).op, &node.epilogue) else {
            return None;
        };
        let column = |at: &ExprId| matches!(epilogue.node(*at), Scalar::Int(dim) if dim.as_index() == Some(last));
        let mut loads = epilogue.loads_of(n).into_iter();
        let by_column = loads.all(|index| matches!(index, [at] if column(at)));
        let private = data.shape == [columns] && graph.only_user(operand).is_some();
        (by_column && private && data.bytes.is_some()).then(|| data.clone())
    });
    vectors.collect()
}

/// The data of a constant matrix that nothing else reads, and whether it is the transpose of what lies in memory.
fn matrix(graph: &Graph, value: ValueId) -> Option<(TensorData, bool)> {
    let window = layout::resolve(graph, value)?;
    let Op::Constant(data) = &graph.node(window.base).op else {
        return None;
    };
    let ty = graph.ty(value);
    let whole =
        ty.rank() == 2 && ty.elements() == graph.ty(window.base).elements() && window.offset.is(0);
    if !whole || data.bytes.is_none() || !is_private(graph, window.base) {
        return None;
    }
    let [row, column] = window.strides.as_slice() else {
        return None;
    };
    let by_columns = row.is(1) && *column == ty.shape[0];
    (by_columns || window.is_contiguous(&ty.shape)).then(|| (data.clone(), by_columns))
}

/// Whether a constant is read once, through views.
fn is_private(graph: &Graph, value: ValueId) -> bool {
    graph.only_user(value).is_some_and(|user| {
        let is_view = graph.node(user).op.is_view();
        !is_view || is_private(graph, user)
    })
}

/// Whether every use, through views, reads strides or single elements: attention and elementwise work do.
fn is_read_anywhere(graph: &Graph, value: ValueId) -> bool {
    let mut users = graph.users(value).into_iter();
    users.all(|user| match &graph.node(user).op {
        Op::Attention(_) => true,
        op if op.is_view() => !graph.is_output(user) && is_read_anywhere(graph, user),
        op => passes_on(op),
    })
}

/// The first attention that reads the value, through views and elementwise work.
fn attention_of(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let mut seen = vec![value];
    let mut next = 0;
    while let Some(&at) = seen.get(next) {
        next += 1;
        for user in graph.users(at) {
            let op = &graph.node(user).op;
            if matches!(op, Op::Attention(_)) {
                return Some(user);
            }
            if passes_on(op) && !seen.contains(&user) {
                seen.push(user);
            }
        }
    }
    None
}

/// Whether the op is a view or elementwise work.
fn passes_on(op: &Op) -> bool {
    op.is_view() || op.is_pointwise() || matches!(op, Op::Concat { .. } | Op::Map { .. })
}

fn merge(graph: &mut Graph, group: &[Projection], trace: &mut Trace) {
    let first = &group[0];
    let names: Vec<_> = group.iter().map(|p| source_name(graph, p.value)).collect();
    let message = format!(
        "{} products of one operand are one: {}",
        group.len(),
        names.join(", ")
    );
    let columns: usize = group.iter().map(|p| p.columns).sum();
    let weights: Vec<&TensorData> = group.iter().map(|p| &p.weight).collect();
    let right = if first.by_columns {
        let data = beside(&weights, 1, vec![columns, first.rows]);
        let stored = graph.add_constant(data);
        let op = Op::Transpose(vec![1, 0]);
        graph
            .apply(op, &[stored])
            .expect("a matrix has a transpose")
    } else {
        graph.add_constant(beside(&weights, first.rows, vec![first.rows, columns]))
    };
    let mut operands = vec![first.left, right];
    for n in 0..first.vectors.len() {
        let vectors: Vec<_> = group.iter().map(|p| &p.vectors[n]).collect();
        operands.push(graph.add_constant(beside(&vectors, 1, vec![columns])));
    }
    let mut shape = graph.ty(first.value).shape.clone();
    let last = shape.len() - 1;
    shape[last] = Dim::from(columns);
    let ty = TensorType {
        dtype: graph.ty(first.value).dtype,
        shape,
    };
    let parts: Vec<&str> = group.iter().map(|p| graph.node(p.value).name()).collect();
    let name = name_of(&parts);
    let merged = graph.insert(Op::MatMul, &operands, ty, Some(&name));
    let origins = group
        .iter()
        .flat_map(|p| graph.node(p.value).origin.clone());
    let origins: Vec<_> = origins.collect();
    let node = graph.node_mut(merged);
    node.epilogue = first.epilogue.clone();
    node.origin = origins;
    let mut start = 0;
    for part in group {
        let slice = Op::Slice {
            axis: last,
            start: Dim::from(start),
            len: Dim::from(part.columns),
            step: 1,
        };
        let slice = graph
            .apply(slice, &[merged])
            .expect("a part of the columns");
        graph.supersede(part.value, slice);
        start += part.columns;
    }
    trace.remark_on(RemarkKind::Fused, names, message);
}

/// The names of all of them, with the path that they share before and behind written once:
/// `layer.0/query+key+value/Add` of `layer.0/query/Add` and so on.
fn name_of(parts: &[&str]) -> String {
    let is_path = |c: char| matches!(c, '/' | '.');
    let first = parts[0];
    let before = first.rmatch_indices(is_path).map(|(at, _)| &first[..=at]);
    let before = before
        .chain([""])
        .find(|p| parts.iter().all(|n| n.starts_with(p)));
    let behind = first.match_indices(is_path).map(|(at, _)| &first[at..]);
    let behind = behind
        .chain([""])
        .find(|p| parts.iter().all(|n| n.ends_with(p)));
    let (before, behind) = (before.unwrap_or_default(), behind.unwrap_or_default());
    let own = |name: &&'_ str| {
        let own = name.strip_prefix(before)?.strip_suffix(behind)?;
        (!own.is_empty()).then(|| own.to_owned())
    };
    match parts.iter().map(own).collect::<Option<Vec<_>>>() {
        Some(own) => format!("{before}{}{behind}", own.join("+")),
        None => parts.join("+"),
    }
}

/// Constants of `rows` rows each, side by side, named after all of them.
fn beside(parts: &[&TensorData], rows: usize, shape: Vec<usize>) -> TensorData {
    let bytes = |part: &TensorData| {
        part.bytes
            .clone()
            .unwrap_or_else(|| SharedBytes::from(Vec::new()))
    };
    let parts_bytes: Vec<SharedBytes> = parts.iter().map(|p| bytes(p)).collect();
    let mut joined = Vec::with_capacity(parts_bytes.iter().map(|b| b.len()).sum());
    for row in 0..rows {
        for part in &parts_bytes {
            let width = part.len() / rows;
            joined.extend_from_slice(&part[row * width..(row + 1) * width]);
        }
    }
    let data = TensorData::new(parts[0].dtype, shape, joined.into());
    let names: Option<Vec<&str>> = parts.iter().map(|p| p.name.as_deref()).collect();
    match names {
        Some(names) => data.named(&names.join("+")),
        None => data,
    }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn merged_products_are_named_after_their_parts() {
        assert_eq!(name_of(&["q", "k", "v"]), "q+k+v");
        assert_eq!(
            name_of(&["/layer.0/query/Add_out", "/layer.0/key/Add_out"]),
            "/layer.0/query+key/Add_out"
        );
        assert_eq!(name_of(&["linear", "linear_1"]), "linear+linear_1");
        // What is before and what is behind overlap.
        assert_eq!(name_of(&["a/b/c", "a/b/b/c"]), "a/b/c+a/b/b/c");
    }
}
