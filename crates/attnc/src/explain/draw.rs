//! The optimised graph as a picture, for Graphviz and Mermaid.
//!
//! A box is a kernel. Weights are left out and views are passed through, so that what is left is the
//! shape of the model: a line carries the type of what flows along it.

use crate::ir::{Graph, Op, ValueId};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What a box is drawn as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Port,
    Attention,
    Kernel,
}

struct Picture {
    /// Identifier, what to draw, lines of text.
    boxes: Vec<(String, Kind, Vec<String>)>,
    /// From, to, the type that flows.
    lines: Vec<(String, String, String)>,
}

impl Picture {
    fn of(graph: &Graph) -> Self {
        let order = graph.topo_order();
        let drawn = order.iter().copied().filter(|&id| is_drawn(graph, id));
        let mut picture = Self {
            boxes: drawn.clone().map(|id| node_box(graph, id)).collect(),
            lines: Vec::new(),
        };
        for id in drawn {
            for source in sources(graph, graph.node(id).operands()) {
                picture.connect(graph, source, name(id));
            }
        }
        for (at, (output, id)) in graph.outputs().iter().enumerate() {
            let target = format!("out{at}");
            let lines = vec![output.clone(), graph.ty(*id).to_string()];
            picture.boxes.push((target.clone(), Kind::Port, lines));
            for source in sources(graph, &[*id]) {
                picture.connect(graph, source, target.clone());
            }
        }
        picture
    }

    fn connect(&mut self, graph: &Graph, source: ValueId, target: String) {
        let ty = graph.ty(source).to_string();
        self.lines.push((name(source), target, ty));
    }
}

fn is_drawn(graph: &Graph, id: ValueId) -> bool {
    let op = &graph.node(id).op;
    !op.is_view() && !matches!(op, Op::Constant(_) | Op::Length(_))
}

/// The boxes behind values: views are passed through, weights lead nowhere.
fn sources(graph: &Graph, values: &[ValueId]) -> BTreeSet<ValueId> {
    let mut found = BTreeSet::new();
    let mut stack = values.to_vec();
    while let Some(id) = stack.pop() {
        if is_drawn(graph, id) {
            found.insert(id);
        } else {
            stack.extend(graph.node(id).operands());
        }
    }
    found
}

fn name(id: ValueId) -> String {
    format!("n{}", id.index())
}

fn node_box(graph: &Graph, id: ValueId) -> (String, Kind, Vec<String>) {
    let node = graph.node(id);
    let kind = match node.op {
        Op::Input => Kind::Port,
        Op::Attention(_) | Op::LinearAttention(_) => Kind::Attention,
        _ => Kind::Kernel,
    };
    let mut lines = vec![if kind == Kind::Port {
        node.name().to_owned()
    } else {
        node.op.name().to_owned()
    }];
    if kind == Kind::Port {
        lines.push(node.ty.to_string());
    } else {
        lines.extend(node.origin.first().cloned());
    }
    if let Op::Attention(attention) = &node.op {
        let mods: Vec<_> = attention.functions().map(|(name, _)| name).collect();
        lines.push(
            format!("scale {} {}", attention.scale, mods.join(" "))
                .trim_end()
                .to_owned(),
        );
    }
    if let Op::LinearAttention(linear) = &node.op {
        lines.push(format!(
            "{} scale {} {}",
            linear.rule.name(),
            linear.scale,
            linear.result.name()
        ));
    }
    if node.epilogue.is_some() {
        lines.push("+ epilogue".to_owned());
    }
    (name(id), kind, lines)
}

/// The graph in Graphviz's language: `attnc explain m.onnx --format dot | dot -Tsvg`.
#[must_use]
pub fn dot(graph: &Graph) -> String {
    let picture = Picture::of(graph);
    let mut out = String::from(
        "digraph {\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=9];\n",
    );
    for (id, kind, lines) in &picture.boxes {
        let label: Vec<_> = lines.iter().map(|l| html(l)).collect();
        let style = match kind {
            Kind::Port => ", shape=ellipse",
            Kind::Attention => ", fillcolor=\"#ffe0a3\"",
            Kind::Kernel => "",
        };
        let _ = writeln!(out, "  {id} [label=<{}>{style}];", label.join("<br/>"));
    }
    for (from, to, ty) in &picture.lines {
        let _ = writeln!(out, "  {from} -> {to} [label=<{}>];", html(ty));
    }
    out.push_str("}\n");
    out
}

/// Text within one of Graphviz's HTML-like labels.
fn html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The graph in Mermaid's language, which Markdown pages render.
#[must_use]
pub fn mermaid(graph: &Graph) -> String {
    let picture = Picture::of(graph);
    let mut out = String::from("flowchart TD\n");
    for (id, kind, lines) in &picture.boxes {
        let label: Vec<_> = lines.iter().map(|l| entities(l)).collect();
        let label = label.join("<br/>");
        let _ = match kind {
            Kind::Port => writeln!(out, "  {id}([\"{label}\"])"),
            Kind::Attention => writeln!(out, "  {id}[\"{label}\"]:::attention"),
            Kind::Kernel => writeln!(out, "  {id}[\"{label}\"]"),
        };
    }
    for (from, to, ty) in &picture.lines {
        let _ = writeln!(out, "  {from} -->|\"{}\"| {to}", entities(ty));
    }
    out.push_str("  classDef attention fill:#ffe0a3,stroke:#c08000\n");
    out
}

/// Text that Mermaid would read as its own language.
fn entities(text: &str) -> String {
    text.replace('#', "#35;")
        .replace('"', "#quot;")
        .replace('<', "#lt;")
        .replace('>', "#gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        crate::ir::text::parse(
            "graph @g(%\"a \\\"b\\\"\": f32[B, 4]) {
  %w = constant f32[4, 2] splat 0.5
  %t = transpose %\"a \\\"b\\\"\", perm = [1, 0]
  %u = transpose %t, perm = [1, 0]
  %y = matmul %u, %w
  return %y
}",
        )
        .unwrap()
    }

    #[test]
    fn views_are_passed_through_and_weights_left_out() {
        let picture = Picture::of(&graph());
        let heads: Vec<_> = picture.boxes.iter().map(|b| b.2[0].as_str()).collect();
        assert_eq!(heads, ["a \"b\"", "matmul", "y"]);
        assert_eq!(picture.lines.len(), 2);
    }

    #[test]
    fn quotes_are_escaped() {
        assert!(dot(&graph()).contains("label=<a &quot;b&quot;<br/>f32[B, 4]>"));
        assert!(mermaid(&graph()).contains("([\"a #quot;b#quot;<br/>f32[B, 4]\"])"));
    }
}
