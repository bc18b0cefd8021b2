//! What a pass is, and what it leaves behind.

use attnc_ir::{Diagnostics, Graph, ValueId};

/// A rewriting step over the whole graph.
///
/// On entry the graph is verified; on exit it must verify again, with the same inputs and outputs of the
/// same types, and every output must have the same value as before for every input.
pub trait Pass {
    /// Kebab-case, unique, shown in remarks: `fuse-attention`.
    fn name(&self) -> &'static str;

    /// Whether what follows cannot do without it. Rewrites of such a pass do not count for
    /// [`crate::Options::stop_after`]: they give every kernel operands it can read.
    fn is_lowering(&self) -> bool {
        false
    }

    /// Rewrites the graph. Before each rewrite it asks [`Trace::claim`], and leaves a remark where a person
    /// would want to know.
    ///
    /// # Errors
    /// Where the graph cannot be what this pass needs; never for a rewrite that merely does not apply.
    fn run(&self, graph: &mut Graph, trace: &mut Trace) -> Result<Change, Diagnostics>;
}

/// Whether a pass rewrote anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The graph is as it was.
    None,
    /// Something was rewritten.
    Some,
}

impl Change {
    /// `Some` where `changed`.
    #[must_use]
    pub fn from(changed: bool) -> Self {
        if changed { Self::Some } else { Self::None }
    }
}

/// What a remark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemarkKind {
    /// Nodes became one.
    Fused,
    /// A candidate stayed as it was, with the reason.
    Declined,
    /// A pattern was given its name.
    Recognised,
    /// Something else to know.
    Note,
}

impl RemarkKind {
    /// The word in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fused => "fused",
            Self::Declined => "declined",
            Self::Recognised => "recognised",
            Self::Note => "note",
        }
    }
}

/// Something a pass did or did not do, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The pass.
    pub pass: &'static str,
    /// What the remark says.
    pub kind: RemarkKind,
    /// The source nodes concerned.
    pub nodes: Vec<String>,
    /// The sentence.
    pub message: String,
    /// For a refusal: the first node that stood in the way. For a note: the node that it is about.
    pub at: Option<String>,
}

/// The record of a session: remarks, and the budget of rewrites.
#[derive(Debug, Default)]
pub struct Trace {
    pub(crate) pass: &'static str,
    pub(crate) uncounted: bool,
    pub(crate) limit: Option<usize>,
    /// What the passes had to say, in order.
    pub remarks: Vec<Remark>,
    /// Rewrites made so far.
    pub rewrites: usize,
}

impl Trace {
    /// Asks to make one rewrite; false where the session is to stop before it.
    #[must_use]
    pub fn claim(&mut self) -> bool {
        if self.uncounted {
            return true;
        }
        if self.limit.is_some_and(|limit| self.rewrites >= limit) {
            return false;
        }
        self.rewrites += 1;
        true
    }

    /// Leaves a remark about the source nodes of `values`.
    pub fn remark(
        &mut self,
        kind: RemarkKind,
        graph: &Graph,
        values: &[ValueId],
        message: impl Into<String>,
    ) {
        let nodes = values.iter().map(|&v| source_name(graph, v)).collect();
        self.remark_on(kind, nodes, message);
    }

    /// Leaves a remark about source nodes by name, where they are gone by now.
    pub fn remark_on(&mut self, kind: RemarkKind, nodes: Vec<String>, message: impl Into<String>) {
        self.remarks.push(Remark {
            pass: self.pass,
            kind,
            nodes,
            message: message.into(),
            at: None,
        });
    }

    /// Leaves something to know about a node, and the node that makes it so.
    pub fn note(&mut self, graph: &Graph, node: ValueId, message: impl Into<String>, at: ValueId) {
        self.remark(RemarkKind::Note, graph, &[node], message);
        if let Some(remark) = self.remarks.last_mut() {
            remark.at = Some(source_name(graph, at));
        }
    }

    /// Leaves a refusal: the candidate, why, and the node in the way.
    pub fn decline(
        &mut self,
        graph: &Graph,
        candidate: ValueId,
        reason: impl Into<String>,
        at: Option<ValueId>,
    ) {
        self.remarks.push(Remark {
            pass: self.pass,
            kind: RemarkKind::Declined,
            nodes: vec![source_name(graph, candidate)],
            message: reason.into(),
            at: at.map(|v| source_name(graph, v)),
        });
    }
}

/// The name a person knows a value by: its source node, else its own name.
#[must_use]
pub fn source_name(graph: &Graph, value: ValueId) -> String {
    let node = graph.node(value);
    node.origin
        .first()
        .cloned()
        .unwrap_or_else(|| format!("%{}", node.name()))
}
