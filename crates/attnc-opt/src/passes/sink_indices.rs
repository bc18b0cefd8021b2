//! Tables that are a formula of their index become the formula.
//!
//! ```text
//! %mask = constant bool[1, 1, 1024, 1024] weight "bias"      %mask = map { d3 <= d2 }
//! %pos  = constant i32[1, 512] weight "position_ids"         %pos  = map { d1 }
//! ```
//!
//! A `map` without operands is index arithmetic: it costs no memory, and whatever reads it computes it on
//! the spot, so a causal triangle from any exporter ends up inside attention as `kv_idx <= q_idx`. The
//! formula is checked against every element of the table, so this is a rewrite and not a guess.
//!
//! Recognised: integers affine in the index, or along one short axis affine for each position, or affine in
//! `column - row` between two ends; booleans, and floats of two values, that are true in a band
//! `low <= column - row <= high` (triangles and windows of any offset) or outside one. Any other table that
//! depends on `column - row` alone (a relative bias, T5's buckets) shrinks to its row of diagonals.

mod formula;

use crate::{Change, Pass, RemarkKind, Trace};
use attnc_ir::scalar::{ScalarBuilder, ScalarExpr};
use attnc_ir::{DType, Diagnostics, Dim, Extents, Graph, Op, TensorData, TensorType, ValueId};
use formula::{diagonals, formula};

/// See the module.
pub struct SinkIndices;

impl Pass for SinkIndices {
    fn name(&self) -> &'static str {
        "sink-indices"
    }

    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics> {
        let mut changed = false;
        for value in graph.topo_order() {
            let Op::Constant(data) = &graph.node(value).op else {
                continue;
            };
            let (row, message) = match formula(data) {
                Some(expr) => {
                    let message = format!("the table is the formula {expr}");
                    (Row::Formula(expr), message)
                }
                None => match shrink(data) {
                    Some(row) => (row, "the table is constant along its diagonals".to_owned()),
                    None => continue,
                },
            };
            if !trace.claim() {
                break;
            }
            trace.remark(RemarkKind::Recognised, graph, &[value], message);
            replace(graph, value, row);
            changed = true;
        }
        Ok(Change::from(changed))
    }
}

/// What a table becomes.
enum Row {
    /// Index arithmetic.
    Formula(ScalarExpr),
    /// Its diagonals, and the element as a load of them.
    Diagonals(TensorData, ScalarExpr),
}

/// A table that depends on `column - row` alone as its diagonals, where that is much less.
fn shrink(data: &TensorData) -> Option<Row> {
    if !matches!(data.dtype, DType::F32 | DType::I32 | DType::Bool) || data.len() < MIN_ELEMENTS {
        return None;
    }
    let (row, column, table) = diagonals(data)?;
    let count = table.values.len();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the values are elements of the table"
    )]
    let diagonals = match data.dtype {
        DType::F32 => TensorData::f32(
            vec![count],
            &table.values.iter().map(|&v| v as f32).collect::<Vec<_>>(),
        ),
        DType::I32 => TensorData::i32(
            vec![count],
            &table.values.iter().map(|&v| v as i32).collect::<Vec<_>>(),
        ),
        _ => TensorData::bool(
            vec![count],
            &table.values.iter().map(|&v| v != 0.0).collect::<Vec<_>>(),
        ),
    };
    let mut e = ScalarBuilder::new(Extents::new(
        data.shape.iter().map(|&d| Dim::from(d)).collect(),
    ));
    let axis = |n: usize| Dim::index(u32::try_from(n).expect("few axes"));
    let at = e.int(axis(column) - axis(row) - Dim::from(table.first));
    let root = e.load(0, data.dtype, vec![at]);
    let expr = e.finish(root);
    Some(Row::Diagonals(diagonals, expr))
}

/// Tables smaller than this stay as they are.
const MIN_ELEMENTS: usize = 16;

fn replace(graph: &mut Graph, value: ValueId, row: Row) {
    let TensorType { dtype, shape } = graph.ty(value).clone();
    match row {
        Row::Formula(expr) => graph.node_mut(value).op = Op::Map { expr, shape, dtype },
        Row::Diagonals(data, expr) => {
            let table = graph.add_constant(data);
            graph.set_operands(value, &[table]);
            graph.node_mut(value).op = Op::Map { expr, shape, dtype };
        }
    }
}
