//! Every rewrite, executed: the graph after each pass is held to the graph as imported.

use super::made_inputs;
use crate::support::{Outcome, agree, ensure};
use attnc::opt::{Change, Options, Session, pipeline};
use attnc::plan::DimValues;
use attnc::{Model, oracle};
use std::path::Path;

/// In f64, what a rewrite may move is rounding only; `f32` constants that fold round once.
const TOLERANCE: f64 = 1e-6;

pub(super) fn agree_after_every_pass(path: &Path) -> Outcome {
    let model = Model::open(path)?;
    let inputs = made_inputs(&model, (2, 11), 3)?;
    let run = |model: &Model| oracle::run(model, &inputs, &DimValues::default());
    let expected = run(&model)?;
    let mut changed = Vec::new();
    let mut wrong: Vec<String> = Vec::new();
    let mut observer = |pass: &'static str, graph: &attnc::ir::Graph, change: Change| {
        if change == Change::None {
            return;
        }
        changed.push(pass);
        let now = Model {
            graph: graph.clone(),
            ..model.clone()
        };
        let outcome = run(&now)
            .map_err(Into::into)
            .and_then(|found| agree(pass, &expected, &found, TOLERANCE));
        if let Err(error) = outcome {
            wrong.push(format!("after {pass}: {}", error.message().unwrap_or("?")));
        }
    };
    let mut graph = model.graph.clone();
    Session::new(None)
        .observe(&mut observer)
        .run(&mut graph, &pipeline(&Options::default()))?;
    ensure(wrong.is_empty(), || wrong.join("\n"))?;
    ensure(changed.contains(&"fuse-attention"), || {
        format!("only {changed:?} changed the graph")
    })
}
