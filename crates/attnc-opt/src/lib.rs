//! Passes of attnc: from the imported graph to one whose nodes are kernels.
//!
//! [`optimise`] runs the [`pipeline()`] in a [`Session`] and reports what fused, what did not, and why.
//! Every rewrite preserves the meaning of the graph; tests execute the graph before and after each pass.
//!
//! On exit every node is an input, a constant, a view, or a kernel: `matmul`, `attention`, `linear_attention`, `softmax`,
//! `layer_norm`, `rms_norm`, `reduce`, `cumsum` or `map`; softmax, norms and reductions run over trailing
//! axes; operands of `matmul` and `attention` resolve to strided windows.

mod candidates;
mod extract;
mod pass;
pub mod passes;
mod pipeline;
mod session;

pub use candidates::{Candidate, find_attention};
pub use pass::{Change, Pass, Remark, RemarkKind, Trace, source_name};
pub use pipeline::pipeline;
pub use session::{Observer, OptError, Session};

use attnc_ir::{Graph, LinearResult, Op, ValueId};

/// What to do and what to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether attention is fused; `--no-fuse` turns it off for comparison.
    pub fuse_attention: bool,
    /// Stop before rewrite N + 1, to bisect a bad one.
    pub stop_after: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fuse_attention: true,
            stop_after: None,
        }
    }
}

/// What became of one attention that did not fuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declined {
    /// The softmax (or attention) node.
    pub node: String,
    /// Why.
    pub reason: String,
    /// The first node in the way.
    pub at: Option<String>,
}

/// The count that users ask for first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttentionReport {
    /// Softmaxes over keys between two contractions, and attention ops, in the graph as imported; a softmax
    /// written out in primitive ops is one.
    pub found: usize,
    /// Attention nodes in the result.
    pub fused: usize,
    /// The rest, each with its reason.
    pub declined: Vec<Declined>,
}

/// An optimised graph and what happened on the way.
#[derive(Debug, Clone)]
pub struct Optimised {
    /// The graph; see the crate for what holds of it.
    pub graph: Graph,
    /// Remarks of all passes, in order.
    pub remarks: Vec<Remark>,
    /// Rewrites made.
    pub rewrites: usize,
    /// Attention found, fused and declined.
    pub attention: AttentionReport,
}

/// Runs the pipeline.
///
/// # Errors
/// Where the graph is not valid, or a pass broke it: the pass is named.
pub fn optimise(graph: Graph, options: &Options) -> Result<Optimised, OptError> {
    let mut found = attention_count(&graph);
    // A softmax that the source writes out in primitive ops counts as well, once it has its name.
    let mut count = |pass: &'static str, graph: &Graph, _: Change| {
        if pass == "recognise-softmax" {
            found = found.max(attention_count(graph));
        }
    };
    let mut graph = graph;
    let mut session = Session::new(options.stop_after).observe(&mut count);
    session.run(&mut graph, &pipeline(options))?;
    let (remarks, rewrites) = session.into_parts();
    let attention = report(&graph, found, &remarks, options);
    Ok(Optimised {
        graph,
        remarks,
        rewrites,
        attention,
    })
}

/// Candidates, and linear attentions, which are kernels as they are.
fn attention_count(graph: &Graph) -> usize {
    find_attention(graph).len() + linear_attention_count(graph)
}

/// One that gives its state too has two nodes.
fn linear_attention_count(graph: &Graph) -> usize {
    let rows = |v: &ValueId| match &graph.node(*v).op {
        Op::LinearAttention(linear) => linear.result == LinearResult::Output,
        _ => false,
    };
    graph.values().filter(rows).count()
}

fn report(graph: &Graph, found: usize, remarks: &[Remark], options: &Options) -> AttentionReport {
    let fused = graph
        .values()
        .filter(|&v| matches!(graph.node(v).op, Op::Attention(_)))
        .count()
        + linear_attention_count(graph);
    let mut declined: Vec<Declined> = remarks
        .iter()
        .filter(|r| r.pass == "fuse-attention" && r.kind == RemarkKind::Declined)
        .map(|r| Declined {
            node: r.nodes.join(", "),
            reason: r.message.clone(),
            at: r.at.clone(),
        })
        .collect();
    let unreached = match options.stop_after {
        _ if !options.fuse_attention => Some("attention fusion was turned off".to_owned()),
        Some(1) => Some("the passes stopped after 1 rewrite".to_owned()),
        Some(n) => Some(format!("the passes stopped after {n} rewrites")),
        None => None,
    };
    if let Some(reason) = unreached.filter(|_| found > fused + declined.len()) {
        let left = find_attention(graph).into_iter().filter(|c| !c.is_op);
        let left = left.map(|c| source_name(graph, c.node));
        let left: Vec<_> = left
            .filter(|node| !declined.iter().any(|d| d.node == *node))
            .collect();
        declined.extend(left.into_iter().map(|node| Declined {
            node,
            reason: reason.clone(),
            at: None,
        }));
    }
    AttentionReport {
        found,
        fused,
        declined,
    }
}
