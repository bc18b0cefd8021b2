//! A graph as text: see the [module](super) for the form.

use super::literal::{self, implied_dtype, inline_text};
use super::names::{quoted, sigil_name};
use crate::scalar::ScalarExpr;
use crate::scalar::print::Names;
use crate::{Attention, DType, Dim, Graph, Node, Op, PadMode, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// The names of the index variables in the expressions of attention.
pub(super) const ATTENTION_INDICES: [&str; 4] = ["b", "h", "q_idx", "kv_idx"];

/// The text of a graph, and where each value stands in it.
#[derive(Debug, Clone, Default)]
pub struct Printout {
    /// The text.
    pub text: String,
    /// For each value the bytes of its definition, or of the first place where it is written out.
    pub spans: BTreeMap<ValueId, Range<usize>>,
}

/// The canonical text.
#[must_use]
pub fn print(graph: &Graph) -> String {
    Printout::new(graph).text
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

impl Printout {
    /// The canonical text of a graph.
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        Self::write(graph, false)
    }

    /// The canonical text with a comment `// from "…"` behind every value whose source nodes are known.
    #[must_use]
    pub fn with_origins(graph: &Graph) -> Self {
        Self::write(graph, true)
    }

    fn write(graph: &Graph, origins: bool) -> Self {
        let mut writer = Writer {
            graph,
            origins,
            lengths: input_lengths(graph),
            out: Self::default(),
        };
        writer.header();
        let mut order = graph.topo_order();
        // A cyclic graph is printed too, for the diagnostics about it.
        let ordered: BTreeSet<_> = order.iter().copied().collect();
        order.extend(graph.values().filter(|v| !ordered.contains(v)));
        for id in order {
            writer.line(id);
        }
        writer.footer();
        writer.out
    }
}

/// The run-time lengths in the types of inputs; they win over the short names of index variables.
fn input_lengths(graph: &Graph) -> BTreeSet<String> {
    let dims = graph.inputs().iter().flat_map(|&v| &graph.ty(v).shape);
    dims.flat_map(Dim::symbols).map(|s| s.to_string()).collect()
}

/// Which operand a name in an expression means: the first captured one of that name, else the first.
pub(super) fn named_operand<T: PartialEq>(
    operands: &[T],
    captured_from: usize,
    name: &T,
) -> Option<usize> {
    let captured = (captured_from..operands.len()).find(|&n| operands[n] == *name);
    captured.or_else(|| operands.iter().position(|o| o == name))
}

struct Writer<'a> {
    graph: &'a Graph,
    origins: bool,
    lengths: BTreeSet<String>,
    out: Printout,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    /// Adds text that stands for a value.
    fn push_value(&mut self, id: ValueId, text: &str) {
        let start = self.out.text.len();
        self.push(text);
        self.out
            .spans
            .entry(id)
            .or_insert(start..start + text.len());
    }

    fn header(&mut self) {
        self.push(&format!("graph {}(", sigil_name('@', self.graph.name())));
        for (n, &input) in self.graph.inputs().iter().enumerate() {
            if n > 0 {
                self.push(", ");
            }
            let text = format!("{}: {}", self.value_name(input), self.graph.ty(input));
            self.push_value(input, &text);
        }
        self.push(") {\n");
    }

    fn footer(&mut self) {
        self.push("  return");
        for (n, (name, value)) in self.graph.outputs().iter().enumerate() {
            self.push(if n == 0 { " " } else { ", " });
            if !self.graph.contains(*value) {
                self.push(&format!("%\"\" as {}", quoted(name)));
                continue;
            }
            self.push(&self.value_name(*value));
            if name != self.graph.node(*value).name() {
                self.push(&format!(" as {}", quoted(name)));
            }
        }
        self.push("\n}\n");
    }

    fn value_name(&self, id: ValueId) -> String {
        sigil_name('%', self.graph.node(id).name())
    }

    fn line(&mut self, id: ValueId) {
        let node = self.graph.node(id);
        if self.graph.inputs().contains(&id) || inline_text(self.graph, id).is_some() {
            return;
        }
        self.push("  ");
        let start = self.out.text.len();
        self.push(&format!("{} = {}", self.value_name(id), node.op.name()));
        self.operands(node);
        self.attributes(node);
        if let Some(order) = &node.storage {
            self.push(&format!(", storage = {order:?}"));
        }
        self.out.spans.insert(id, start..self.out.text.len());
        if self.origins && !node.origin.is_empty() {
            let from: Vec<_> = node.origin.iter().map(|o| quoted(o)).collect();
            self.push(&format!(" // from {}", from.join(", ")));
        }
        self.push("\n");
    }

    /// What stands between the op and its attributes.
    fn operands(&mut self, node: &Node) {
        match &node.op {
            Op::Constant(data) => {
                return self.push(&format!(" {} {}", node.ty, literal::payload(data)));
            }
            Op::Length(dim) => return self.push(&format!(" {dim}")),
            Op::Iota { .. } => return self.push(&format!(" {}", node.ty)),
            Op::Map { .. } => self.push(&format!(" {}", node.ty)),
            _ => {}
        }
        let literals: Vec<_> = node
            .operands()
            .iter()
            .map(|&o| inline_text(self.graph, o))
            .collect();
        let dtypes: Vec<Option<DType>> = node
            .operands()
            .iter()
            .zip(&literals)
            .map(|(&o, l)| l.is_none().then(|| self.graph.ty(o).dtype))
            .collect();
        for (n, (&operand, literal)) in node.operands().iter().zip(&literals).enumerate() {
            let first = n == 0 && !matches!(node.op, Op::Map { .. });
            self.push(if first { " " } else { ", " });
            match literal {
                None => self.push(&self.value_name(operand)),
                Some((dtype, text))
                    if implied_dtype(node.op.name(), n, &dtypes) == Some(*dtype) =>
                {
                    self.push_value(operand, text);
                }
                Some((dtype, text)) => self.push_value(operand, &format!("{dtype} {text}")),
            }
        }
    }

    fn attribute(&mut self, name: &str, value: impl fmt::Display) {
        self.push(&format!(", {name} = {value}"));
    }

    fn attributes(&mut self, node: &Node) {
        match &node.op {
            Op::Reshape(shape) | Op::Broadcast(shape) => self.attribute("shape", list(shape)),
            Op::Transpose(perm) => self.attribute("perm", list(perm)),
            Op::Slice {
                axis,
                start,
                len,
                step,
            } => {
                self.attribute("axis", axis);
                self.attribute("start", start);
                self.attribute("len", len);
                if *step != 1 {
                    self.attribute("step", step);
                }
            }
            Op::Concat { axis }
            | Op::Gather { axis }
            | Op::GatherElements { axis }
            | Op::Softmax { axis } => self.attribute("axis", axis),
            Op::GatherNd { batch_dims } => self.attribute("batch_dims", batch_dims),
            Op::Pad {
                before,
                after,
                mode,
            } => {
                self.attribute("before", list(before));
                self.attribute("after", list(after));
                match mode {
                    PadMode::Constant(value) => self.attribute("value", double(*value)),
                    PadMode::Edge => self.attribute("mode", "edge"),
                    PadMode::Reflect => self.attribute("mode", "reflect"),
                }
            }
            Op::Iota {
                axis, start, step, ..
            } => {
                self.attribute("axis", axis);
                self.attribute("start", start);
                self.attribute("step", step);
            }
            Op::Cast(to) => self.attribute("to", to),
            Op::Reduce {
                axes, keep_dims, ..
            } => {
                self.attribute("axes", list(axes));
                self.flag("keep_dims", *keep_dims);
            }
            Op::CumSum {
                axis,
                exclusive,
                reverse,
            } => {
                self.attribute("axis", axis);
                self.flag("exclusive", *exclusive);
                self.flag("reverse", *reverse);
            }
            Op::LayerNorm { axis, eps } | Op::RmsNorm { axis, eps } => {
                self.attribute("axis", axis);
                self.attribute("eps", double(*eps));
            }
            Op::Conv(conv) => {
                self.attribute("strides", list(&conv.strides));
                self.attribute("dilations", list(&conv.dilations));
                self.attribute("pads_before", list(&conv.pads_before));
                self.attribute("pads_after", list(&conv.pads_after));
                self.attribute("groups", conv.groups);
            }
            Op::Attention(attention) => {
                self.attribute("scale", double(attention.scale));
                for (name, expr) in attention.functions() {
                    let arg = Attention::argument(name).unwrap_or("arg");
                    self.attribute(name, self.expression(node, expr, true, arg));
                }
            }
            Op::LinearAttention(linear) => {
                self.attribute("rule", linear.rule.name());
                self.attribute("scale", double(linear.scale));
                self.attribute("result", linear.result.name());
            }
            Op::Map { expr, .. } => {
                self.attribute("expr", self.expression(node, expr, false, "arg"));
            }
            Op::Input
            | Op::Constant(_)
            | Op::Length(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Where
            | Op::MatMul => {}
        }
        if let Some(expr) = &node.epilogue {
            let text = self.expression(node, expr, false, "acc");
            let operand = node.operands().first().map(|&o| self.graph.ty(o).dtype);
            if epilogue_dtype(expr, operand) == node.ty.dtype {
                self.attribute("epilogue", text);
            } else {
                self.attribute("epilogue", format!("{} {text}", node.ty.dtype));
            }
        }
    }

    fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.attribute(name, value);
        }
    }

    fn expression(&self, node: &Node, expr: &ScalarExpr, attention: bool, arg: &str) -> String {
        let from = node.op.arity().0;
        let operand = |n: usize| match node.operands().get(n) {
            None => format!("%\"\"#{n}"),
            Some(id) if named_operand(node.operands(), from, id) == Some(n) => self.value_name(*id),
            Some(id) => format!("{}#{n}", self.value_name(*id)),
        };
        let index = |n: u32| match ATTENTION_INDICES.get(n as usize) {
            Some(name) if attention && !self.lengths.contains(*name) => (*name).to_owned(),
            _ => format!("d{n}"),
        };
        let names = Names {
            operand: &operand,
            index: &index,
            arg,
        };
        format!("{{ {} }}", expr.to_text(&names))
    }
}

/// The element type of a node with that epilogue where none is stated: f32 is stored as the first operand.
pub(super) fn epilogue_dtype(epilogue: &ScalarExpr, operand: Option<DType>) -> DType {
    match operand {
        Some(dtype) if epilogue.result() == DType::F32 && dtype.is_float() => dtype,
        _ => epilogue.result(),
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let texts: Vec<_> = items.iter().map(T::to_string).collect();
    format!("[{}]", texts.join(", "))
}

/// The shortest text that reads back to the same f64; always with a point or an exponent.
fn double(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else {
        format!("{value:?}")
    }
}
