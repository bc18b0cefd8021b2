//! Which weights are brought into panels ([`Panels`]) when they are uploaded.
//!
//! Where subgroups are the vector units of a CPU, loads walk the lanes one by one, and what neighbours read lies on as
//! many pages as they own columns; from panels they read one stream (lavapipe, products of MiniLM at 128 rows, 32 × 64
//! tiles: 0.84 of the time with columns of K behind each other, 0.90 of that with rows). GPUs read rows and
//! columns well as they are.
//!
//! On entry: a product whose right side is a matrix, on a device that gains from it. On exit: panels that its K and N
//! are multiples of, where nothing else reads the weight.

use super::matmul::Problem;
use super::{Lowerer, constant};
use crate::choice::is_cpu;
use attnc_ir::{Op, TensorData, ValueId, layout};
use attnc_plan::Panels;

/// Columns of a panel, the widest first: as many as the largest tiles own that lanes share rows of.
const WIDTHS: [u32; 5] = [64, 32, 16, 8, 4];

impl Lowerer<'_> {
    /// The panels that the right side of a product lies in, if it does. From here on its buffer does.
    pub(super) fn panels(&mut self, value: ValueId, problem: &Problem) -> Option<Panels> {
        let (base, panels) = self.possible_panels(value, problem)?;
        self.panels.insert(base, panels);
        Some(panels)
    }

    fn possible_panels(&self, value: ValueId, problem: &Problem) -> Option<(ValueId, Panels)> {
        if !is_cpu(&self.plan.profile) {
            return None;
        }
        let right = self.graph.node(value).operands()[1];
        let base = layout::source_index(self.graph, right).0;
        let Op::Constant(data) = &self.graph.node(base).op else {
            return None;
        };
        let k_axis = problem.whole_b()?;
        let (k, n) = (constant(&problem.k)?, constant(&problem.n)?);
        let columns = WIDTHS.into_iter().find(|&width| n.is_multiple_of(width))?;
        let panels = Panels { columns, k_axis };
        let fits = k > 0 && n > 0 && panels.check(&self.graph.ty(base).shape).is_ok();
        (fits && self.has_one_reader(base, data)).then_some((base, panels))
    }

    /// Whether one operand in all is a view of that constant, and no other constant is its twin.
    fn has_one_reader(&self, base: ValueId, data: &TensorData) -> bool {
        let source = |&value: &ValueId| layout::source_index(self.graph, value).0;
        let is_twin = |id: ValueId| match &self.graph.node(id).op {
            Op::Constant(other) => id != base && other.name.is_some() && other.name == data.name,
            _ => false,
        };
        let mut readers = 0;
        for id in self.graph.topo_order() {
            let node = self.graph.node(id);
            if !node.op.is_view() {
                readers += node
                    .operands()
                    .iter()
                    .filter(|&v| source(v) == base)
                    .count();
            }
            if is_twin(id) || readers > 1 {
                return false;
            }
        }
        let outputs = self.graph.outputs();
        !outputs.iter().any(|(_, value)| source(value) == base)
    }
}
