//! The dataflow graph: single-assignment values, each the one result of its node.
//!
//! ```
//! use attnc_ir::{BinaryOp, DType, Graph, Op, TensorType};
//! let mut g = Graph::new("double");
//! let x = g.add_input("x", TensorType::new(DType::F32, ["B"]));
//! let y = g.apply(Op::Binary(BinaryOp::Add), &[x, x]).unwrap();
//! g.add_output("y", y);
//! assert_eq!(g.users(x), [y]);
//! ```
//!
//! Invariant: an operand exists (so edges and operand lists always agree, which is why both are private),
//! and names are unique. Whether types fit is the verifier's business.

use crate::infer;
use crate::scalar::ScalarExpr;
use crate::{Diagnostic, Op, TensorData, TensorType};
use petgraph::Direction;
use petgraph::stable_graph::{NodeIndex, StableDiGraph};
use petgraph::visit::EdgeRef;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// Names a value, and the node that computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(u32);

impl ValueId {
    fn ix(self) -> NodeIndex<u32> {
        NodeIndex::new(self.0 as usize)
    }

    /// A number unique within the graph, small enough to index a table of [`Graph::id_bound`] entries.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<NodeIndex<u32>> for ValueId {
    fn from(ix: NodeIndex<u32>) -> Self {
        Self(u32::try_from(ix.index()).expect("node indices are 32 bits"))
    }
}

/// An operation, its operands, and the type of its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Type of the result, after the epilogue.
    pub ty: TensorType,
    /// Applied to every element of the result on its way out: `arg 0` is the element, the index variables
    /// are those of the result, loads refer to this node's operands. See [`Op::takes_epilogue`].
    pub epilogue: Option<ScalarExpr>,
    /// Order in which the axes are laid out in memory, outermost first; `None` is `0, 1, 2, …`.
    pub storage: Option<Vec<usize>>,
    /// Names of the source nodes (of the ONNX file, say) this came from, for remarks and reports.
    pub origin: Vec<String>,
    operands: Vec<ValueId>,
    name: String,
}

impl Node {
    /// The values it reads, in order.
    #[must_use]
    pub fn operands(&self) -> &[ValueId] {
        &self.operands
    }

    /// The name of its result, without the `%`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The expressions of its op, then its epilogue.
    #[must_use]
    pub fn expressions(&self) -> Vec<&ScalarExpr> {
        let mut all = match &self.op {
            Op::Map { expr, .. } => vec![expr],
            Op::Attention(attention) => attention.functions().map(|(_, expr)| expr).collect(),
            _ => Vec::new(),
        };
        all.extend(&self.epilogue);
        all
    }
}

/// A typed dataflow graph with named inputs and outputs.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    name: String,
    dag: StableDiGraph<Node, (), u32>,
    names: HashMap<String, ValueId>,
    next_name: usize,
    inputs: Vec<ValueId>,
    outputs: Vec<(String, ValueId)>,
}

impl Graph {
    /// An empty graph.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The graph's name, without the `@`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds an input. A taken name gets a number behind it.
    pub fn add_input(&mut self, name: &str, ty: TensorType) -> ValueId {
        let id = self.insert(Op::Input, &[], ty, Some(name));
        self.inputs.push(id);
        id
    }

    /// Adds a constant.
    pub fn add_constant(&mut self, data: TensorData) -> ValueId {
        let ty = data.ty();
        let name = data.name.clone();
        self.insert(Op::Constant(data), &[], ty, name.as_deref())
    }

    /// Marks a value as an output called `name`.
    pub fn add_output(&mut self, name: &str, value: ValueId) {
        self.outputs.push((name.to_owned(), value));
    }

    /// Adds a node whose type follows from its operands.
    ///
    /// # Errors
    /// Where the operands do not fit the operation: what was expected, what was found.
    pub fn apply(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId, Diagnostic> {
        let types: Vec<&TensorType> = operands.iter().map(|&o| &self.node(o).ty).collect();
        let ty = infer::result_type(&op, &types)?;
        Ok(self.insert(op, operands, ty, None))
    }

    /// Adds a node of a stated type, without checking it; the verifier does.
    pub fn insert(
        &mut self,
        op: Op,
        operands: &[ValueId],
        ty: TensorType,
        name: Option<&str>,
    ) -> ValueId {
        let name = self.fresh_name(name);
        let node = Node {
            op,
            ty,
            epilogue: None,
            storage: None,
            origin: Vec::new(),
            operands: operands.to_vec(),
            name: name.clone(),
        };
        let id = ValueId::from(self.dag.add_node(node));
        for operand in operands {
            self.dag.add_edge(operand.ix(), id.ix(), ());
        }
        self.names.insert(name, id);
        id
    }

    fn fresh_name(&mut self, wanted: Option<&str>) -> String {
        if let Some(name) = wanted.filter(|n| !n.is_empty()) {
            if !self.names.contains_key(name) {
                return name.to_owned();
            }
            return (1..)
                .map(|i| format!("{name}.{i}"))
                .find(|n| !self.names.contains_key(n))
                .expect("endless");
        }
        loop {
            let name = self.next_name.to_string();
            self.next_name += 1;
            if !self.names.contains_key(&name) {
                return name;
            }
        }
    }

    /// Gives a value another name; a taken one gets a number behind it.
    pub fn rename(&mut self, id: ValueId, name: &str) {
        let old = self.node(id).name.clone();
        self.names.remove(&old);
        let name = self.fresh_name(Some(name));
        self.names.insert(name.clone(), id);
        self.dag[id.ix()].name = name;
    }

    /// The node that computes a value.
    ///
    /// # Panics
    /// Where the value was removed.
    #[must_use]
    pub fn node(&self, id: ValueId) -> &Node {
        &self.dag[id.ix()]
    }

    /// The node, to change anything but its operands.
    ///
    /// # Panics
    /// Where the value was removed.
    pub fn node_mut(&mut self, id: ValueId) -> &mut Node {
        &mut self.dag[id.ix()]
    }

    /// The type of a value.
    #[must_use]
    pub fn ty(&self, id: ValueId) -> &TensorType {
        &self.node(id).ty
    }

    /// The value of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// Whether the value is still there.
    #[must_use]
    pub fn contains(&self, id: ValueId) -> bool {
        self.dag.contains_node(id.ix())
    }

    /// Replaces a node's operands.
    pub fn set_operands(&mut self, id: ValueId, operands: &[ValueId]) {
        let old: Vec<_> = self
            .dag
            .edges_directed(id.ix(), Direction::Incoming)
            .map(|e| e.id())
            .collect();
        for edge in old {
            self.dag.remove_edge(edge);
        }
        for operand in operands {
            self.dag.add_edge(operand.ix(), id.ix(), ());
        }
        self.dag[id.ix()].operands = operands.to_vec();
    }

    /// Every use of `old`, as an operand or an output, becomes a use of `new`.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        for user in self.users(old) {
            if user == new {
                continue;
            }
            let operands: Vec<_> = self
                .node(user)
                .operands
                .iter()
                .map(|&o| if o == old { new } else { o })
                .collect();
            self.set_operands(user, &operands);
        }
        for (_, value) in &mut self.outputs {
            if *value == old {
                *value = new;
            }
        }
    }

    /// [`Graph::replace_uses`], and `new` takes over the name if it has none of its own, so that a rewritten
    /// graph still speaks of the values its author named.
    pub fn supersede(&mut self, old: ValueId, new: ValueId) {
        self.replace_uses(old, new);
        if self.node(new).name.bytes().all(|b| b.is_ascii_digit()) {
            let name = self.node(old).name.clone();
            let number = self.fresh_name(None);
            self.rename(old, &number);
            self.rename(new, &name);
        }
    }

    /// Removes a node that nothing uses.
    ///
    /// # Panics
    /// Where it is used, or is an input.
    pub fn remove(&mut self, id: ValueId) {
        assert!(!self.is_used(id), "%{} is still used", self.node(id).name);
        assert!(
            !self.inputs.contains(&id),
            "%{} is an input",
            self.node(id).name
        );
        if let Some(node) = self.dag.remove_node(id.ix()) {
            self.names.remove(&node.name);
        }
    }

    /// Whether a node reads the value or it is an output.
    #[must_use]
    pub fn is_used(&self, id: ValueId) -> bool {
        self.dag
            .edges_directed(id.ix(), Direction::Outgoing)
            .next()
            .is_some()
            || self.is_output(id)
    }

    /// Whether the value is an output of the graph.
    #[must_use]
    pub fn is_output(&self, id: ValueId) -> bool {
        self.outputs.iter().any(|(_, v)| *v == id)
    }

    /// The nodes that read a value, each once, in ascending order.
    #[must_use]
    pub fn users(&self, id: ValueId) -> Vec<ValueId> {
        let mut users: Vec<_> = self
            .dag
            .edges_directed(id.ix(), Direction::Outgoing)
            .map(|e| ValueId::from(e.target()))
            .collect();
        users.sort_unstable();
        users.dedup();
        users
    }

    /// The one node that reads the value, if there is exactly one and the value is no output.
    #[must_use]
    pub fn only_user(&self, id: ValueId) -> Option<ValueId> {
        match self.users(id).as_slice() {
            [user] if !self.is_output(id) => Some(*user),
            _ => None,
        }
    }

    /// The inputs, in order.
    #[must_use]
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The outputs, in order, with their names.
    #[must_use]
    pub fn outputs(&self) -> &[(String, ValueId)] {
        &self.outputs
    }

    /// All values, in ascending order of id.
    pub fn values(&self) -> impl Iterator<Item = ValueId> {
        self.dag.node_indices().map(ValueId::from)
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dag.node_count()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the largest [`ValueId::index`].
    #[must_use]
    pub fn id_bound(&self) -> usize {
        self.dag
            .node_indices()
            .next_back()
            .map_or(0, |ix| ix.index() + 1)
    }

    /// All values with operands before users; among those that are ready, the oldest first. Kahn 1962.
    ///
    /// On a cyclic graph, which only a faulty pass can make, the values on and behind cycles are left out.
    #[must_use]
    pub fn topo_order(&self) -> Vec<ValueId> {
        let mut missing: BTreeMap<ValueId, usize> = BTreeMap::new();
        let mut ready = BinaryHeap::new();
        for id in self.values() {
            let count = self.node(id).operands.len();
            if count == 0 {
                ready.push(Reverse(id));
            } else {
                missing.insert(id, count);
            }
        }
        let mut order = Vec::with_capacity(self.len());
        while let Some(Reverse(id)) = ready.pop() {
            order.push(id);
            for edge in self.dag.edges_directed(id.ix(), Direction::Outgoing) {
                let user = ValueId::from(edge.target());
                if let Some(count) = missing.get_mut(&user) {
                    *count -= 1;
                    if *count == 0 {
                        missing.remove(&user);
                        ready.push(Reverse(user));
                    }
                }
            }
        }
        order
    }

    /// Removes every node no output depends on; inputs stay. Gives the number removed.
    pub fn remove_dead(&mut self) -> usize {
        let mut live = vec![false; self.id_bound()];
        let mut stack: Vec<ValueId> = self
            .outputs
            .iter()
            .map(|(_, v)| *v)
            .chain(self.inputs.clone())
            .collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut live[id.index()], true) {
                stack.extend(&self.node(id).operands);
            }
        }
        let dead: Vec<_> = self.values().filter(|id| !live[id.index()]).collect();
        for &id in &dead {
            if let Some(node) = self.dag.remove_node(id.ix()) {
                self.names.remove(&node.name);
            }
        }
        dead.len()
    }

    /// The run-time lengths that occur in types, sorted.
    #[must_use]
    pub fn symbols(&self) -> Vec<String> {
        let set: std::collections::BTreeSet<_> = self
            .values()
            .flat_map(|v| {
                self.ty(v)
                    .shape
                    .iter()
                    .flat_map(crate::Dim::symbols)
                    .collect::<Vec<_>>()
            })
            .collect();
        set.into_iter().map(|s| s.to_string()).collect()
    }
}
