//! The walk over a model: its structure is checked, its nodes are imported in order, functions are inlined
//! where they are called.
//!
//! Invariant: a problem never ends the walk. The results of a node that could not be imported are poisoned,
//! nodes that need them are skipped, and everything found is reported together.

pub(crate) mod control;
mod ports;

use crate::attrs::Attrs;
use crate::call::Call;
use crate::context::Context;
use crate::error::{ImportError, OpError, OpResult, Unsupported};
use crate::file::Files;
use crate::known::Known;
use crate::order::{label, order};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto,
};
use crate::value::Value;
use crate::{Import, PortInfo, ops, tensor};
use attnc_ir::{Diagnostic, Diagnostics};
use std::collections::HashMap;

/// Operator sets whose operators are known.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=ops::NEWEST;
/// Functions that call functions, so deep.
const MAX_CALLS: usize = 16;
/// Walks over a model, as long as each learns something; see [`crate::known`].
const MAX_WALKS: usize = 4;
/// Nodes after inlining; a bound on what calls of calls of calls can unfold to.
const MAX_NODES: usize = 1_000_000;

/// The names that nodes see: of the main graph, or of one call of a function.
struct Scope<'m> {
    /// In front of the names of values, so that they are unique in the graph.
    prefix: String,
    /// What is known of each name; `None` where it could not be imported, or an operand was left out.
    values: HashMap<&'m str, Option<Value>>,
    /// Operands of a call that were left out.
    absent: Vec<&'m str>,
    attrs: HashMap<&'m str, &'m AttributeProto>,
    opsets: &'m [OperatorSetIdProto],
    depth: usize,
}

struct Importer<'m> {
    cx: Context,
    files: &'m mut Files,
    initializers: HashMap<&'m str, &'m TensorProto>,
    functions: HashMap<(&'m str, &'m str, &'m str), &'m FunctionProto>,
    invalid: Vec<Diagnostic>,
    unsupported: Vec<Unsupported>,
    nodes: usize,
}

/// A walk's end.
struct Walked<'m> {
    importer: Importer<'m>,
    inputs: Vec<PortInfo>,
    outputs: Vec<PortInfo>,
}

fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// Imports a decoded model.
pub(crate) fn import(
    model: &ModelProto,
    files: &mut Files,
    bytes: usize,
) -> Result<Import, ImportError> {
    let Some(graph) = &model.graph else {
        return Err(ImportError::Malformed {
            bytes,
            reason: "it holds no graph".to_owned(),
        });
    };
    let mut known = Known::default();
    let mut walks = 1;
    loop {
        let mut walked = walk(model, graph, files, known.clone());
        let constraints = std::mem::take(&mut walked.importer.cx.constraints);
        let solved = std::mem::take(&mut walked.importer.cx.solved);
        match known.with(constraints.clone(), solved) {
            Some(more) if walked.importer.failed() && walks < MAX_WALKS => known = more,
            _ => {
                walked.importer.cx.constraints = constraints;
                return walked.importer.finish(walked.inputs, walked.outputs);
            }
        }
        walks += 1;
    }
}

/// One walk from the inputs to the outputs.
fn walk<'m>(
    model: &'m ModelProto,
    graph: &'m GraphProto,
    files: &'m mut Files,
    known: Known,
) -> Walked<'m> {
    let name = if graph.name.is_empty() {
        "model"
    } else {
        &graph.name
    };
    let functions = model
        .functions
        .iter()
        .map(|f| ((domain(&f.domain), f.name.as_str(), f.overload.as_str()), f))
        .collect();
    let mut importer = Importer {
        cx: Context::new(name, known),
        files,
        initializers: HashMap::new(),
        functions,
        invalid: Vec::new(),
        unsupported: Vec::new(),
        nodes: 0,
    };
    let mut scope = Scope {
        prefix: String::new(),
        values: HashMap::new(),
        absent: Vec::new(),
        attrs: HashMap::new(),
        opsets: &model.opset_import,
        depth: 0,
    };
    importer.check_opsets(&model.opset_import);
    importer.add_initializers(graph, &mut scope);
    let inputs = importer.add_inputs(&graph.input, &mut scope);
    let outputs: Vec<&str> = graph.output.iter().map(|o| o.name.as_str()).collect();
    importer.import_nodes(&graph.node, &outputs, &mut scope);
    let outputs = importer.add_outputs(&graph.output, &mut scope);
    Walked {
        importer,
        inputs,
        outputs,
    }
}

impl<'m> Importer<'m> {
    fn failed(&self) -> bool {
        !self.invalid.is_empty() || !self.unsupported.is_empty()
    }

    fn finish(
        mut self,
        inputs: Vec<PortInfo>,
        outputs: Vec<PortInfo>,
    ) -> Result<Import, ImportError> {
        if !self.invalid.is_empty() {
            return Err(ImportError::Invalid(Diagnostics(self.invalid)));
        }
        if !self.unsupported.is_empty() {
            return Err(ImportError::Unsupported(self.unsupported));
        }
        self.cx.graph.remove_dead();
        Ok(Import {
            graph: self.cx.graph,
            inputs,
            outputs,
            constraints: self.cx.constraints,
            derived: self.cx.derived,
            notes: self.cx.notes.into_iter().collect(),
        })
    }

    fn check_opsets(&mut self, opsets: &[OperatorSetIdProto]) {
        match opsets.iter().find(|o| domain(&o.domain).is_empty()) {
            None => self.invalid.push(Diagnostic::error(
                "no-opset",
                "the model imports no operator set of the domain ai.onnx",
            )),
            Some(o) if !OPSETS.contains(&o.version) => self.unsupported.push(Unsupported {
                node: "the model".to_owned(),
                op: String::new(),
                domain: String::new(),
                opset: o.version,
                what: format!("operator set {}", o.version),
                needed: format!("one of {} to {}", OPSETS.start(), OPSETS.end()),
            }),
            Some(_) => {}
        }
    }

    fn add_initializers(&mut self, graph: &'m GraphProto, scope: &mut Scope<'m>) {
        for tensor in &graph.initializer {
            if self.initializers.insert(&tensor.name, tensor).is_some() {
                let twice = "two constants have this name";
                self.invalid
                    .push(Diagnostic::error("duplicate-name", twice).at(&tensor.name));
            }
            if let Err(error) = tensor::check(tensor, self.files) {
                self.report(error, &tensor.name, None, 0);
                scope.values.insert(&tensor.name, None);
            }
        }
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |v| v.name.as_str());
            let error = OpError::unsupported("a sparse constant", "a dense constant");
            self.report(error, name, None, 0);
        }
    }

    /// The value of a name; a constant is read when it is first asked for.
    fn lookup(&mut self, name: &'m str, scope: &mut Scope<'m>) -> Option<Value> {
        if let Some(found) = scope.values.get(name) {
            return found.clone();
        }
        let tensor = (scope.depth == 0).then(|| self.initializers.get(name).copied())??;
        let value = match tensor::decode(tensor, self.files) {
            Ok(value) => {
                value.set_name(name);
                let double = tensor.data_type == crate::proto::data_type::DOUBLE;
                self.note_double("constant", name, double);
                Some(value)
            }
            Err(error) => {
                self.report(error, name, None, 0);
                None
            }
        };
        scope.values.insert(name, value.clone());
        value
    }

    /// The graph has no double: what is one is converted where it comes in (an input by the host, which
    /// refuses what f32 cannot hold), and outputs are converted back.
    fn note_double(&mut self, what: &str, name: &str, is_double: bool) {
        if is_double {
            let note = format!("{what} `{name}` is double, computed as f32");
            self.cx.notes.insert(note);
        }
    }

    fn import_nodes(&mut self, nodes: &'m [NodeProto], outputs: &[&str], scope: &mut Scope<'m>) {
        let initializers = &self.initializers;
        let known = |name: &str| {
            scope.values.contains_key(name)
                || scope.absent.contains(&name)
                || (scope.depth == 0 && initializers.contains_key(name))
        };
        let problems = self.invalid.len();
        let order = order(nodes, &known, outputs, &mut self.invalid);
        if self.invalid.len() > problems {
            return;
        }
        for n in order {
            let node = &nodes[n];
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                self.invalid.push(Diagnostic::error(
                    "too-many-nodes",
                    format!("more than {MAX_NODES} nodes once functions are inlined"),
                ));
                return;
            }
            let label = format!("{}{}", scope.prefix, label(node, n));
            self.import_node(node, &label, scope);
        }
    }

    fn import_node(&mut self, node: &'m NodeProto, label: &str, scope: &mut Scope<'m>) {
        let before = self.cx.graph.id_bound();
        let opset = scope
            .opsets
            .iter()
            .find(|o| domain(&o.domain) == domain(&node.domain))
            .map_or(0, |o| o.version);
        let results = match self.results(node, label, opset, scope) {
            Ok(results) => results,
            Err(error) => {
                if let Some(error) = error {
                    self.report(error, label, Some(node), opset);
                }
                Vec::new()
            }
        };
        for id in self.cx.take_added() {
            let origin = &mut self.cx.graph.node_mut(id).origin;
            if origin.is_empty() {
                origin.push(label.to_owned());
            }
        }
        for (n, output) in node
            .output
            .iter()
            .enumerate()
            .filter(|(_, o)| !o.is_empty())
        {
            let value = results.get(n).cloned();
            if let Some(value) = &value {
                let name = format!("{}{output}", scope.prefix);
                match value {
                    Value::Graph(id) if id.index() >= before => self.cx.graph.rename(*id, &name),
                    value => value.set_name(&name),
                }
            } else if !results.is_empty() {
                let error =
                    OpError::unsupported(format!("result {n} (`{output}`)"), "another result");
                self.report(error, label, Some(node), opset);
            }
            scope.values.insert(output, value);
        }
    }

    /// The results of a node. The error is `None` where an operand could not be imported: that was reported.
    fn results(
        &mut self,
        node: &'m NodeProto,
        label: &str,
        opset: i64,
        scope: &mut Scope<'m>,
    ) -> Result<Vec<Value>, Option<OpError>> {
        let attrs = resolve_attrs(node, scope)?;
        let key = (
            domain(&node.domain),
            node.op_type.as_str(),
            node.overload.as_str(),
        );
        let function = self.functions.get(&key).copied();
        let control = control::attributes(&node.op_type).filter(|_| key.0.is_empty());
        let op = match (function, control) {
            (Some(_), _) => None,
            (None, Some(known)) => {
                ops::check_attributes(&attrs, known)?;
                None
            }
            (None, None) => Some(ops::find(node, &attrs, opset)?),
        };
        let mut inputs = Vec::new();
        for name in &node.input {
            if name.is_empty() || scope.absent.contains(&name.as_str()) {
                inputs.push(None);
            } else {
                inputs.push(Some(self.lookup(name, scope).ok_or(None)?));
            }
        }
        if let Some(function) = function {
            return self.inline(function, inputs, attrs, label, scope);
        }
        let Some(op) = op else {
            return self.control(node, inputs, &attrs, label, scope);
        };
        if inputs.len() > op.most_inputs {
            let found = format!(
                "{} operands, expected at most {}",
                inputs.len(),
                op.most_inputs
            );
            return Err(Some(OpError::invalid("operand-count", found)));
        }
        let wanted: Vec<bool> = node.output.iter().map(|o| !o.is_empty()).collect();
        let call = |of: &mut Self, import: ops::Importer, inputs: Vec<Option<Value>>| {
            import(&mut Call {
                cx: &mut of.cx,
                files: of.files,
                opset,
                attrs: attrs.clone(),
                inputs,
                wanted: wanted.clone(),
            })
        };
        let mut results = call(self, op.import, inputs.clone())?;
        for (graph, import) in op.subgraphs {
            if attrs.get(graph).is_some() {
                let body = self.body(&attrs, graph, scope)?;
                results = self.round(&body, results, &format!("{label}/{graph}/"), scope)?;
            }
            let behind = results.into_iter().map(Some);
            results = call(
                self,
                *import,
                inputs.iter().cloned().chain(behind).collect(),
            )?;
        }
        Ok(results)
    }

    fn inline(
        &mut self,
        function: &'m FunctionProto,
        inputs: Vec<Option<Value>>,
        attrs: Attrs<'m>,
        label: &str,
        caller: &Scope<'m>,
    ) -> Result<Vec<Value>, Option<OpError>> {
        if caller.depth >= MAX_CALLS {
            let deep = format!("functions call each other more than {MAX_CALLS} deep");
            return Err(Some(OpError::invalid("recursive-function", deep)));
        }
        if inputs.len() > function.input.len() {
            let found = format!(
                "{} operands, expected {}",
                inputs.len(),
                function.input.len()
            );
            return Err(Some(OpError::invalid("operand-count", found)));
        }
        let defaults = function
            .attribute_proto
            .iter()
            .map(|a| (a.name.as_str(), a));
        let mut scope = Scope {
            prefix: format!("{label}/"),
            values: HashMap::new(),
            absent: Vec::new(),
            attrs: defaults.chain(attrs.0.iter().copied()).collect(),
            opsets: &function.opset_import,
            depth: caller.depth + 1,
        };
        let takes = |name: &str| {
            function.attribute.iter().any(|a| a == name)
                || function.attribute_proto.iter().any(|a| a.name == name)
        };
        if let Some((name, _)) = attrs.0.iter().find(|(name, _)| !takes(name)) {
            let what = format!("attribute `{name}`, which the function does not take");
            return Err(Some(OpError::unsupported(what, "another attribute")));
        }
        let mut inputs = inputs.into_iter();
        for name in &function.input {
            match inputs.next().flatten() {
                Some(value) => drop(scope.values.insert(name, Some(value))),
                None => scope.absent.push(name),
            }
        }
        let outputs: Vec<&str> = function.output.iter().map(String::as_str).collect();
        self.import_nodes(&function.node, &outputs, &mut scope);
        function
            .output
            .iter()
            .map(|name| {
                scope
                    .values
                    .get(name.as_str())
                    .cloned()
                    .flatten()
                    .ok_or(None)
            })
            .collect()
    }

    fn report(&mut self, error: OpError, at: &str, node: Option<&NodeProto>, opset: i64) {
        match error {
            OpError::Invalid(diagnostic) => {
                let diagnostic = match node {
                    Some(node) => diagnostic.at(format!("{at} ({})", node.op_type)),
                    None => diagnostic.at(at),
                };
                self.invalid.push(diagnostic);
            }
            OpError::Unsupported { what, needed } => self.unsupported.push(Unsupported {
                node: at.to_owned(),
                op: node.map_or(String::new(), |n| n.op_type.clone()),
                domain: node.map_or(String::new(), |n| domain(&n.domain).to_owned()),
                opset,
                what,
                needed,
            }),
        }
    }
}

/// The node's attributes, those that refer to the call's replaced by them or left out.
fn resolve_attrs<'m>(node: &'m NodeProto, scope: &Scope<'m>) -> OpResult<Attrs<'m>> {
    let mut attrs = Attrs::default();
    for attr in &node.attribute {
        let value = if attr.ref_attr_name.is_empty() {
            Some(attr)
        } else {
            scope.attrs.get(attr.ref_attr_name.as_str()).copied()
        };
        if attrs.get(&attr.name).is_some() {
            let twice = format!("attribute `{}` is given twice", attr.name);
            return Err(OpError::invalid("bad-attribute", twice));
        }
        if let Some(value) = value {
            attrs.0.push((&attr.name, value));
        }
    }
    Ok(attrs)
}
