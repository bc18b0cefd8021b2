//! Writing a scalar expression as text: infix where there is an operator, `f(x)` elsewhere.
//!
//! The default names are `t0, t1, …` for operands, `d0, d1, …` for index variables and `arg` for the
//! argument; the graph's text form passes the real ones. Values used more than once, unless they are
//! literals, indices or the argument, become `let` bindings in front: `e0 = t0[d0]; e0 * e0 + 1.0`.

use super::{ExprId, Scalar, ScalarExpr};
use crate::{Atom, BinaryOp, CompareOp, Dim};
use std::fmt;

/// The names an expression is written with.
pub struct Names<'a> {
    /// Name of an operand.
    pub operand: &'a dyn Fn(usize) -> String,
    /// Name of an index variable.
    pub index: &'a dyn Fn(u32) -> String,
    /// Name of the argument.
    pub arg: &'a str,
}

impl fmt::Display for ScalarExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(&Names {
            operand: &|n| format!("t{n}"),
            index: &|n| format!("d{n}"),
            arg: "arg",
        }))
    }
}

/// How tightly an operator binds; larger binds tighter.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Whole,
    Or,
    And,
    Compare,
    Sum,
    Product,
    Prefix,
    Atom,
}

impl ScalarExpr {
    /// The expression as text with the given names.
    #[must_use]
    pub fn to_text(&self, names: &Names<'_>) -> String {
        let mut uses = vec![0usize; self.nodes.len()];
        for node in &self.nodes {
            for operand in node.operands() {
                uses[operand.index()] += 1;
            }
        }
        let mut writer = Writer {
            expr: self,
            names,
            bound: vec![None; self.nodes.len()],
        };
        let mut out = String::new();
        let mut count = 0;
        for id in self.ids() {
            let inline = matches!(
                self.node(id),
                Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_) | Scalar::Arg
            );
            if uses[id.index()] > 1 && !inline {
                let text = writer.text(id, Level::Whole);
                out.push_str(&format!("e{count} = {text}; "));
                writer.bound[id.index()] = Some(format!("e{count}"));
                count += 1;
            }
        }
        out.push_str(&writer.text(self.root, Level::Whole));
        out
    }
}

struct Writer<'a> {
    expr: &'a ScalarExpr,
    names: &'a Names<'a>,
    bound: Vec<Option<String>>,
}

impl Writer<'_> {
    fn text(&self, id: ExprId, outer: Level) -> String {
        if let Some(name) = &self.bound[id.index()] {
            return name.clone();
        }
        let (text, level) = match self.expr.node(id) {
            Scalar::Int(dim) => (self.dim(dim), dim_level(dim)),
            Scalar::Float(bits) => (float_text(f32::from_bits(*bits)), Level::Atom),
            Scalar::Bool(b) => (b.to_string(), Level::Atom),
            Scalar::Arg => (self.names.arg.to_owned(), Level::Atom),
            Scalar::Load { operand, index } => {
                let index: Vec<_> = index.iter().map(|&i| self.text(i, Level::Whole)).collect();
                (
                    format!("{}[{}]", (self.names.operand)(*operand), index.join(", ")),
                    Level::Atom,
                )
            }
            Scalar::Unary(op, a) => (
                format!("{}({})", op.name(), self.text(*a, Level::Whole)),
                Level::Atom,
            ),
            Scalar::Binary(op, a, b) => self.binary(*op, *a, *b),
            Scalar::Compare(op, a, b) => {
                let symbol = compare_symbol(*op);
                (
                    format!(
                        "{} {symbol} {}",
                        self.text(*a, Level::Sum),
                        self.text(*b, Level::Sum)
                    ),
                    Level::Compare,
                )
            }
            Scalar::Select(c, a, b) => {
                let [c, a, b] = [c, a, b].map(|&x| self.text(x, Level::Whole));
                (format!("select({c}, {a}, {b})"), Level::Atom)
            }
            Scalar::Cast(to, a) => (
                format!("{to}({})", self.text(*a, Level::Whole)),
                Level::Atom,
            ),
        };
        if level < outer {
            format!("({text})")
        } else {
            text
        }
    }

    fn binary(&self, op: BinaryOp, a: ExprId, b: ExprId) -> (String, Level) {
        let (symbol, level, right) = match op {
            BinaryOp::Add => ("+", Level::Sum, Level::Product),
            BinaryOp::Sub => ("-", Level::Sum, Level::Product),
            BinaryOp::Mul => ("*", Level::Product, Level::Prefix),
            BinaryOp::Div => ("/", Level::Product, Level::Prefix),
            BinaryOp::And => ("&", Level::And, Level::Compare),
            BinaryOp::Or => ("|", Level::Or, Level::And),
            _ => {
                let (a, b) = (self.text(a, Level::Whole), self.text(b, Level::Whole));
                return (format!("{}({a}, {b})", op.name()), Level::Atom);
            }
        };
        (
            format!("{} {symbol} {}", self.text(a, level), self.text(b, right)),
            level,
        )
    }

    /// A polynomial with the index variables under their given names.
    fn dim(&self, dim: &Dim) -> String {
        if dim.indices().is_empty() {
            return dim.to_string();
        }
        dim.display_with(&|n| (self.names.index)(n))
    }
}

fn dim_level(dim: &Dim) -> Level {
    match dim.as_const() {
        Some(n) if n < 0 => Level::Prefix,
        Some(_) => Level::Atom,
        None if dim
            .as_atom()
            .is_some_and(|a| matches!(a, Atom::Sym(_) | Atom::Index(_))) =>
        {
            Level::Atom
        }
        None if dim.terms().count() == 1 && dim.terms().all(|(c, _)| c > 0) => Level::Product,
        None => Level::Sum,
    }
}

/// `==`, `<=`, …
pub(crate) fn compare_symbol(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// The shortest text that reads back to the same f32; always with a point, `inf` and `nan` by name.
#[must_use]
pub fn float_text(value: f32) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 {
            "inf".to_owned()
        } else {
            "-inf".to_owned()
        };
    }
    let text = format!("{value:?}");
    if text.contains(['.', 'e']) {
        text
    } else {
        format!("{text}.0")
    }
}
