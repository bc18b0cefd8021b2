//! Running passes one after another, with the graph checked after each.
//!
//! The session verifies the graph before the first pass and after every one, checks that inputs, outputs
//! and their types are what they were, names the pass that broke it, and can stop before rewrite N + 1
//! (`--stop-after N` bisects a bad rewrite). An observer sees the graph after each pass that changed it.

use crate::{Change, Pass, Remark, Trace};
use attnc_ir::{Diagnostics, Graph, TensorType, ValueId};

/// Why optimising failed. Both are faults of ours or of the graph, never a rewrite that did not apply.
#[derive(Debug, thiserror::Error)]
pub enum OptError {
    /// The graph was not valid to begin with.
    #[error("the graph is not valid:\n{0}")]
    Input(Diagnostics),
    /// A pass failed, or left a graph that is not valid.
    #[error("pass {pass} failed:\n{diagnostics}")]
    Pass {
        /// Name of the pass.
        pass: &'static str,
        /// What is wrong.
        diagnostics: Diagnostics,
    },
    /// A pass changed the inputs or outputs.
    #[error("pass {pass} changed the graph's inputs or outputs: {what}")]
    Interface {
        /// Name of the pass.
        pass: &'static str,
        /// What changed.
        what: String,
    },
}

/// Sees the graph after each pass: its name, the graph, and whether it changed anything.
pub type Observer<'a> = dyn FnMut(&'static str, &Graph, Change) + 'a;

/// Runs passes over one graph.
pub struct Session<'a> {
    trace: Trace,
    observer: Option<&'a mut Observer<'a>>,
}

impl<'a> Session<'a> {
    /// A session that stops before rewrite `stop_after + 1`, if given.
    #[must_use]
    pub fn new(stop_after: Option<usize>) -> Self {
        Self {
            trace: Trace {
                limit: stop_after,
                ..Trace::default()
            },
            observer: None,
        }
    }

    /// Shows the graph to `observer` after each pass.
    #[must_use]
    pub fn observe(mut self, observer: &'a mut Observer<'a>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Runs the passes in order.
    ///
    /// # Errors
    /// An invalid graph, or a pass that broke it, by name.
    pub fn run(&mut self, graph: &mut Graph, passes: &[Box<dyn Pass>]) -> Result<(), OptError> {
        attnc_ir::verify(graph).map_err(OptError::Input)?;
        let interface = Interface::of(graph);
        for pass in passes {
            let name = pass.name();
            self.trace.pass = name;
            self.trace.uncounted = pass.is_lowering();
            let blame = |diagnostics| OptError::Pass {
                pass: name,
                diagnostics,
            };
            let change = pass.run(graph, &mut self.trace).map_err(blame)?;
            if change == Change::Some {
                attnc_ir::verify(graph).map_err(blame)?;
                interface
                    .check(graph)
                    .map_err(|what| OptError::Interface { pass: name, what })?;
            }
            if let Some(observer) = &mut self.observer {
                observer(name, graph, change);
            }
        }
        Ok(())
    }

    /// Remarks and number of rewrites so far.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Remark>, usize) {
        (self.trace.remarks, self.trace.rewrites)
    }
}

/// Names and types a pass must not change.
#[derive(PartialEq)]
struct Interface {
    inputs: Vec<(String, TensorType)>,
    outputs: Vec<(String, TensorType)>,
}

impl Interface {
    fn of(graph: &Graph) -> Self {
        let typed = |name: &str, v: ValueId| (name.to_owned(), graph.ty(v).clone());
        Self {
            inputs: graph
                .inputs()
                .iter()
                .map(|&v| typed(graph.node(v).name(), v))
                .collect(),
            outputs: graph
                .outputs()
                .iter()
                .map(|(name, v)| typed(name, *v))
                .collect(),
        }
    }

    fn check(&self, graph: &Graph) -> Result<(), String> {
        let now = Self::of(graph);
        let pairs = self
            .inputs
            .iter()
            .zip(&now.inputs)
            .chain(self.outputs.iter().zip(&now.outputs));
        for ((old_name, old), (new_name, new)) in pairs {
            if old_name != new_name || old != new {
                return Err(format!("{old_name}: {old} became {new_name}: {new}"));
            }
        }
        if *self == now {
            Ok(())
        } else {
            Err("their number differs".to_owned())
        }
    }
}
