//! Removes every node that no output depends on.
//!
//! On exit every node is an input or is used.

use crate::{Change, Pass, Trace};
use attnc_ir::{Diagnostics, Graph};

/// See the module.
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead-code"
    }

    fn is_lowering(&self) -> bool {
        true
    }

    fn run(&self, graph: &mut Graph, _trace: &mut Trace) -> Result<Change, Diagnostics> {
        Ok(Change::from(graph.remove_dead() > 0))
    }
}
