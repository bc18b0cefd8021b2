//! The order in which to import nodes, and what is wrong with how they hang together.
//!
//! Files should list nodes in an order where operands come first; those that do not are sorted. Kahn 1962,
//! among the ready nodes the first of the file first. Only nodes that an output depends on are given back.

use crate::proto::{GraphProto, NodeProto};
use attnc_ir::Diagnostic;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// What a node is called in messages: its name, else its first result, else its operator and position.
pub(crate) fn label(node: &NodeProto, index: usize) -> String {
    if !node.name.is_empty() {
        return node.name.clone();
    }
    match node.output.iter().find(|o| !o.is_empty()) {
        Some(output) => output.clone(),
        None => format!("{}#{index}", node.op_type),
    }
}

/// Positions of the nodes that `outputs` depend on, operands first. `known` are the names that no node
/// computes. Findings are added to `invalid`.
pub(crate) fn order(
    nodes: &[NodeProto],
    known: &dyn Fn(&str) -> bool,
    outputs: &[&str],
    invalid: &mut Vec<Diagnostic>,
) -> Vec<usize> {
    let producers = producers(nodes, known, invalid);
    let mut missing = vec![0usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (n, node) in nodes.iter().enumerate() {
        for input in needed(node) {
            match producers.get(input) {
                Some(&from) => {
                    missing[n] += 1;
                    users[from].push(n);
                }
                None if known(input) => {}
                None => invalid.push(
                    Diagnostic::error(
                        "dangling-input",
                        format!("`{input}` is computed by no node, and is neither an input nor a constant"),
                    )
                    .at(label(node, n)),
                ),
            }
        }
    }
    let sorted = sort(missing, &users);
    if sorted.len() < nodes.len() {
        invalid.push(cycle(nodes, &sorted));
    }
    let mut live = vec![false; nodes.len()];
    for &output in outputs {
        match producers.get(output) {
            Some(&n) => live[n] = true,
            None if known(output) => {}
            None => invalid.push(
                Diagnostic::error("dangling-output", "the output is computed by no node")
                    .at(output),
            ),
        }
    }
    for &n in sorted.iter().rev() {
        live[n] = live[n] || users[n].iter().any(|&user| live[user]);
    }
    sorted.into_iter().filter(|&n| live[n]).collect()
}

/// The names a node needs: its operands, and what the graphs inside of it see of the names around it.
fn needed(node: &NodeProto) -> Vec<&str> {
    let operands = node.input.iter().map(String::as_str);
    let mut names: Vec<&str> = operands.filter(|i| !i.is_empty()).collect();
    for graph in node.attribute.iter().filter_map(|a| a.g.as_deref()) {
        names.extend(free_names(graph));
    }
    names
}

/// The names that a graph uses and does not define, ascending.
pub(crate) fn free_names(graph: &GraphProto) -> BTreeSet<&str> {
    let outputs = graph.output.iter().map(|o| o.name.as_str());
    let mut names: BTreeSet<&str> = outputs.collect();
    names.extend(graph.node.iter().flat_map(needed));
    let defined = graph
        .node
        .iter()
        .flat_map(|n| &n.output)
        .map(String::as_str);
    let inputs = graph.input.iter().map(|i| i.name.as_str());
    let constants = graph.initializer.iter().map(|t| t.name.as_str());
    for name in defined.chain(inputs).chain(constants) {
        names.remove(name);
    }
    names
}

fn producers<'m>(
    nodes: &'m [NodeProto],
    known: &dyn Fn(&str) -> bool,
    invalid: &mut Vec<Diagnostic>,
) -> HashMap<&'m str, usize> {
    let mut producers = HashMap::new();
    for (n, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            if known(output) || producers.insert(output.as_str(), n).is_some() {
                invalid.push(
                    Diagnostic::error("duplicate-name", format!("`{output}` is computed twice"))
                        .at(label(node, n)),
                );
            }
        }
    }
    producers
}

fn sort(mut missing: Vec<usize>, users: &[Vec<usize>]) -> Vec<usize> {
    let mut ready: BinaryHeap<_> = (0..missing.len())
        .filter(|&n| missing[n] == 0)
        .map(Reverse)
        .collect();
    let mut sorted = Vec::with_capacity(missing.len());
    while let Some(Reverse(n)) = ready.pop() {
        sorted.push(n);
        for &user in &users[n] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    sorted
}

fn cycle(nodes: &[NodeProto], sorted: &[usize]) -> Diagnostic {
    let mut left = vec![true; nodes.len()];
    for &n in sorted {
        left[n] = false;
    }
    let stuck: Vec<_> = (0..nodes.len())
        .filter(|&n| left[n])
        .map(|n| label(&nodes[n], n))
        .collect();
    let shown = stuck[..stuck.len().min(8)].join("`, `");
    Diagnostic::error(
        "cyclic-graph",
        format!(
            "{} nodes depend on themselves or on such nodes: `{shown}`",
            stuck.len()
        ),
    )
    .at(stuck[0].clone())
}
