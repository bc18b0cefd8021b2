//! Pulling the expression of a value's element out of the graph.
//!
//! Starting at a value and an index, producers are substituted into their consumer for as long as they
//! have a scalar form and the caller wants them inlined; what is left are loads of the remaining values.

use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr, of_node};
use attnc_ir::{DType, Graph, ValueId};
use std::collections::HashMap;

/// What to do with a value on the way.
pub(crate) enum Step {
    /// Substitute its scalar form, if it has one.
    Inline,
    /// Load it.
    Load,
    /// Use this expression instead.
    Replace(ExprId),
}

/// Decides, for a value read at an index.
pub(crate) type Policy<'a> = dyn FnMut(&mut ScalarBuilder, ValueId, &[ExprId]) -> Step + 'a;

/// Collects one expression and the values it loads.
pub(crate) struct Extractor<'g> {
    graph: &'g Graph,
    /// Operand number of the first value in `loads`.
    first: usize,
    /// The values that are loaded, in order of their operand numbers.
    pub(crate) loads: Vec<ValueId>,
    forms: HashMap<ValueId, Option<ScalarExpr>>,
    done: HashMap<(ValueId, Vec<ExprId>), ExprId>,
    depth: usize,
    size: usize,
}

/// Chains longer than this are cut: the rest is computed by a kernel of its own.
const MAX_DEPTH: usize = 128;

/// Expressions larger than this are cut likewise, so that shaders stay readable and compile quickly.
const MAX_SIZE: usize = 512;

impl<'g> Extractor<'g> {
    /// An extractor whose first load is operand `first`.
    pub(crate) fn new(graph: &'g Graph, first: usize) -> Self {
        Self {
            graph,
            first,
            loads: Vec::new(),
            forms: HashMap::new(),
            done: HashMap::new(),
            depth: 0,
            size: 0,
        }
    }

    /// The element of `value` at `index`.
    pub(crate) fn element(
        &mut self,
        e: &mut ScalarBuilder,
        value: ValueId,
        index: Vec<ExprId>,
        policy: &mut Policy<'_>,
    ) -> ExprId {
        let key = (value, index);
        if let Some(&known) = self.done.get(&key) {
            return known;
        }
        let (value, index) = (key.0, key.1.clone());
        let result = match policy(e, value, &index) {
            Step::Replace(expr) => expr,
            Step::Inline if self.depth < MAX_DEPTH && self.size < MAX_SIZE => {
                match self.form(value) {
                    Some(form) => self.inline(e, value, &form, &index, policy),
                    None => self.load(e, value, index),
                }
            }
            Step::Inline | Step::Load => self.load(e, value, index),
        };
        self.done.insert(key, result);
        result
    }

    /// Values are looked at anew from here on, by another policy.
    pub(crate) fn forget(&mut self) {
        self.done.clear();
    }

    fn form(&mut self, value: ValueId) -> Option<ScalarExpr> {
        let graph = self.graph;
        self.forms
            .entry(value)
            .or_insert_with(|| of_node(graph, value))
            .clone()
    }

    fn inline(
        &mut self,
        e: &mut ScalarBuilder,
        value: ValueId,
        form: &ScalarExpr,
        index: &[ExprId],
        policy: &mut Policy<'_>,
    ) -> ExprId {
        self.depth += 1;
        self.size += form.nodes().len();
        let operands = self.graph.node(value).operands().to_vec();
        let result = e.inline(form, index, None, &mut |e, operand, _, index| {
            self.element(e, operands[operand], index, policy)
        });
        self.depth -= 1;
        result
    }

    fn load(&mut self, e: &mut ScalarBuilder, value: ValueId, index: Vec<ExprId>) -> ExprId {
        let dtype = self.graph.ty(value).dtype;
        let operand = self.operand(value);
        e.load(operand, dtype, index)
    }

    /// The operand number of a loaded value.
    pub(crate) fn operand(&mut self, value: ValueId) -> usize {
        let at = self
            .loads
            .iter()
            .position(|&v| v == value)
            .unwrap_or_else(|| {
                self.loads.push(value);
                self.loads.len() - 1
            });
        self.first + at
    }
}

/// The result type of an expression as a value's element type.
pub(crate) fn value_dtype(expr: &ScalarExpr, wanted: DType) -> DType {
    if wanted.is_float() {
        wanted
    } else {
        expr.result()
    }
}
