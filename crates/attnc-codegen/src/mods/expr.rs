//! Values: the operations of a scalar expression as WGSL.
//!
//! A value that is used twice, or whose text grows long, gets a statement of its own. `select` evaluates both
//! sides, which is safe since every load is in bounds. Comparisons of indices are made on sides that are not
//! negative: `kv_idx <= q_idx + N - M` prints as `kv_idx + M <= q_idx + N`.

use super::poly::{Int, Over};
use super::{Body, Returns, literal, vector};
use attnc_ir::scalar::{ExprId, Scalar};
use attnc_ir::{Atom, BinaryOp, CompareOp, DType, Diagnostic, Dim, UnaryOp};

/// Text longer than this gets a statement of its own.
const LONG: usize = 72;

const MOD_FLOAT: &str = "\
// Remainder with the sign of the divisor.
fn mod_float(x: f32, y: f32) -> f32 {
    return x - y * floor(x / y);
}
";

const MOD_INT: &str = "\
// Remainder with the sign of the divisor.
fn mod_int(x: i32, y: i32) -> i32 {
    let r = x % y;
    return r + select(0, y, r != 0 && (r < 0) != (y < 0));
}
";

const SOFTPLUS: &str = "\
// log(1 + e^x) without overflow. Of 1 + e little is left where e is small, so that log(1 + e) is
// 2 atanh(e / (2 + e)) by its series, whose argument is at most 1/3.
fn softplus(x: f32) -> f32 {
    let e = exp(-abs(x));
    let s = e / (2.0 + e);
    let z = s * s;
    var series = 1.0 / 15.0;
    series = 1.0 / 13.0 + z * series;
    series = 1.0 / 11.0 + z * series;
    series = 1.0 / 9.0 + z * series;
    series = 1.0 / 7.0 + z * series;
    series = 0.2 + z * series;
    series = 1.0 / 3.0 + z * series;
    series = 1.0 + z * series;
    return max(x, 0.0) + 2.0 * s * series;
}
";

const SIGMOID: &str = "\
// 1 / (1 + e^-x) without overflow.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}
";

const SILU: &str = "\
fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}
";

/// Text, and whether it is a single operand.
pub(super) type Text = (String, bool);

/// The value as the operand of an operator.
fn as_operand((text, single): &Text) -> String {
    if *single && !text.starts_with('-') {
        text.clone()
    } else {
        format!("({text})")
    }
}

impl Body<'_, '_> {
    /// The value that the function returns.
    pub(super) fn result(&mut self) -> Result<String, Diagnostic> {
        let root = self.expr.root();
        let (text, _) = self.value(root)?;
        if matches!(self.expr.node(root), Scalar::Arg) {
            return Ok(text); // handed through as it is stored, one element or four
        }
        let found = self.expr.dtype(root);
        let fits = match self.returns {
            Returns::Bool => found == DType::Bool,
            Returns::Value(to) => found == to || (found.is_float() && to.is_float()),
        };
        if !fits {
            return Err(unsupported(format!(
                "an expression of type {found} where {:?} is stored",
                self.returns
            )));
        }
        Ok(match self.returns {
            Returns::Value(to) if self.space.vectors => {
                if !to.is_float() {
                    return Err(vector::no_form("a result that is not of floats"));
                }
                self.spread(root, text)
            }
            Returns::Value(DType::Bool) => format!("select(0u, 1u, {text})"),
            _ => text,
        })
    }

    /// A float literal.
    pub(super) fn float(&mut self, value: f32) -> String {
        if let Some(bits) = literal::not_finite(value) {
            self.mods.import("lib::float_bits", "float_bits");
            return bits;
        }
        literal::finite(value)
    }

    /// The value of a node.
    pub(super) fn value(&mut self, id: ExprId) -> Result<Text, Diagnostic> {
        if let Some(name) = &self.bound[id.index()] {
            return Ok((name.clone(), true));
        }
        let (text, atom) = self.text(id)?;
        let literal = matches!(
            self.expr.node(id),
            Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_) | Scalar::Arg
        );
        let shared = self.uses[id.index()] > 1 || text.len() > LONG;
        if literal || !shared || (id == self.expr.root() && self.uses[id.index()] == 0) {
            return Ok((text, atom));
        }
        let prefix = match self.expr.dtype(id) {
            DType::Bool => "is",
            DType::I32 | DType::U32 => "n",
            _ => "v",
        };
        let name = self.bind(prefix, text);
        self.bound[id.index()] = Some(name.clone());
        Ok((name, true))
    }

    /// The value as the operand of an operator.
    fn operand_value(&mut self, id: ExprId) -> Result<String, Diagnostic> {
        Ok(as_operand(&self.value(id)?))
    }

    fn text(&mut self, id: ExprId) -> Result<Text, Diagnostic> {
        let node = self.expr.node(id).clone();
        if let Scalar::Load { operand, index } = &node {
            let (text, single, four) = self.load(*operand, index)?;
            self.varies[id.index()] = four;
            return Ok((text, single));
        }
        let text = match node {
            Scalar::Int(dim) => self.int(&dim)?,
            Scalar::Float(bits) => (self.float(f32::from_bits(bits)), true),
            Scalar::Bool(b) => (b.to_string(), true),
            Scalar::Arg => match self.arg {
                Some(name) => (name.to_owned(), true),
                None => return Err(unsupported("an argument where there is none".to_owned())),
            },
            Scalar::Load { .. } => unreachable!("handled above"),
            Scalar::Unary(op, a) => self.unary(op, a)?,
            Scalar::Binary(op, a, b) => self.binary(op, a, b)?,
            Scalar::Compare(op, a, b) => self.compare(op, a, b)?,
            Scalar::Select(c, a, b) => {
                let (c_text, a_text, b_text) =
                    (self.value(c)?.0, self.value(a)?.0, self.value(b)?.0);
                let like = [c, a, b];
                let (a, b) = (self.alike(a, a_text, &like), self.alike(b, b_text, &like));
                (format!("select({b}, {a}, {c_text})"), true)
            }
            Scalar::Cast(to, a) => self.cast(to, a)?,
        };
        let operands = self.expr.node(id).operands();
        self.varies[id.index()] = match self.expr.node(id) {
            Scalar::Arg => self.space.vectors,
            // Comparisons of indices are the same for all four elements, or have no such form.
            Scalar::Compare(_, a, b) if self.are_plain(*a, *b) => false,
            _ => operands.into_iter().any(|o| self.varies[o.index()]),
        };
        Ok(text)
    }

    /// An i32 polynomial; computed in u32 where it cannot be negative.
    fn int(&mut self, dim: &Dim) -> Result<Text, Diagnostic> {
        if self.has_element(&self.over_parameters(dim)) {
            return Err(vector::no_form("the number of an element"));
        }
        if dim.as_const().is_none() && dim.is_nonneg(&self.logical_extents()) {
            let (text, _) = self.poly(dim, Int::U32, Over::Logical);
            return Ok((format!("i32({text})"), true));
        }
        Ok(self.poly(dim, Int::I32, Over::Logical))
    }

    fn unary(&mut self, op: UnaryOp, a: ExprId) -> Result<Text, Diagnostic> {
        let dtype = self.expr.dtype(a);
        let float = dtype.is_float();
        // Asked for once: asking twice at every level would take 2^depth steps.
        let value = self.value(a)?;
        let operand = as_operand(&value);
        let x = value.0;
        if self.varies[a.index()] {
            return self.unary_of_four(op, dtype, &operand, x);
        }
        let call = |name: &str| (format!("{name}({x})"), true);
        if let (true, Some(function)) = (float, self.function_of(op)) {
            return Ok(call(function));
        }
        Ok(match op {
            UnaryOp::Neg if dtype != DType::Bool => (format!("-{operand}"), false),
            UnaryOp::Not if dtype == DType::Bool => (format!("!{operand}"), true),
            UnaryOp::Abs if dtype != DType::Bool => call("abs"),
            UnaryOp::Sign if float || dtype == DType::I32 => call("sign"),
            UnaryOp::Relu if float => (format!("max({x}, 0.0)"), true),
            UnaryOp::Relu if dtype == DType::I32 => (format!("max({x}, 0i)"), true),
            UnaryOp::Sqrt if float => call("sqrt"),
            UnaryOp::Rsqrt if float => call("inverseSqrt"),
            UnaryOp::Reciprocal if float => (format!("1.0 / {operand}"), false),
            UnaryOp::Exp if float => call("exp"),
            UnaryOp::Log if float => call("log"),
            UnaryOp::Sin if float => call("sin"),
            UnaryOp::Cos if float => call("cos"),
            UnaryOp::Floor if float => call("floor"),
            UnaryOp::Ceil if float => call("ceil"),
            UnaryOp::Round if float => call("round"),
            // WGSL may assume that there is no NaN and no infinity: only the bits tell.
            UnaryOp::IsNan if float => (
                format!("(bitcast<u32>({x}) & 0x7fffffffu) > 0x7f800000u"),
                false,
            ),
            UnaryOp::IsInf if float => (
                format!("(bitcast<u32>({x}) & 0x7fffffffu) == 0x7f800000u"),
                false,
            ),
            _ => return Err(unsupported(format!("`{}` of a {dtype}", op.name()))),
        })
    }

    /// The function that computes what WGSL has no function for, which is imported or printed.
    pub(super) fn function_of(&mut self, op: UnaryOp) -> Option<&'static str> {
        Some(match op {
            UnaryOp::Tanh => self.mods.import("lib::stable_tanh", "stable_tanh"),
            UnaryOp::Erf => self.mods.import("lib::erf", "erf"),
            UnaryOp::Gelu => self.mods.import("lib::gelu", "gelu"),
            UnaryOp::GeluTanh => self.mods.import("lib::gelu", "gelu_tanh"),
            UnaryOp::Sigmoid => {
                self.mods.helpers.insert(SIGMOID);
                "sigmoid"
            }
            UnaryOp::Silu => {
                self.mods.helpers.insert(SIGMOID);
                self.mods.helpers.insert(SILU);
                "silu"
            }
            UnaryOp::Softplus => {
                self.mods.helpers.insert(SOFTPLUS);
                "softplus"
            }
            _ => return None,
        })
    }

    fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Result<Text, Diagnostic> {
        let dtype = self.expr.dtype(a);
        let number = dtype != DType::Bool;
        let symbol = match op {
            BinaryOp::Add if number => "+",
            BinaryOp::Sub if number => "-",
            BinaryOp::Mul if number => "*",
            BinaryOp::Div if number => "/",
            BinaryOp::Rem if number => "%",
            BinaryOp::Mod if dtype == DType::U32 => "%",
            // Not `&&`: both sides are cheap, and a branch is not.
            BinaryOp::And => "&",
            BinaryOp::Or => "|",
            BinaryOp::Xor if number => "^",
            BinaryOp::Xor => "!=",
            _ => {
                let (x, y) = (self.value(a)?.0, self.value(b)?.0);
                let (x, y) = (self.alike(a, x, &[a, b]), self.alike(b, y, &[a, b]));
                let four = self.varies[a.index()] || self.varies[b.index()];
                let name = match op {
                    BinaryOp::Min if number => "min",
                    BinaryOp::Max if number => "max",
                    _ if four => return Err(vector::no_form(op.name())),
                    BinaryOp::Pow if dtype.is_float() => self.mods.import("lib::power", "power"),
                    BinaryOp::Mod if dtype.is_float() => {
                        self.mods.helpers.insert(MOD_FLOAT);
                        "mod_float"
                    }
                    BinaryOp::Mod if dtype == DType::I32 => {
                        self.mods.helpers.insert(MOD_INT);
                        "mod_int"
                    }
                    _ => return Err(unsupported(format!("`{}` of two {dtype}", op.name()))),
                };
                return Ok((format!("{name}({x}, {y})"), true));
            }
        };
        let left = self.chain(op, a)?;
        let product = matches!(op, BinaryOp::Add | BinaryOp::Sub) && self.is_inline_product(b);
        let right = if product {
            self.value(b)?.0
        } else {
            self.operand_value(b)?
        };
        // Arithmetic takes a vector and a number; logic does not.
        let (left, right) = if number && op != BinaryOp::Xor {
            (left, right)
        } else {
            (self.alike(a, left, &[a, b]), self.alike(b, right, &[a, b]))
        };
        Ok((format!("{left} {symbol} {right}"), false))
    }

    /// The left operand: `a + b + c` needs no parentheses, nor do products in a sum.
    fn chain(&mut self, op: BinaryOp, id: ExprId) -> Result<String, Diagnostic> {
        let unbound = self.bound[id.index()].is_none() && self.uses[id.index()] <= 1;
        let same = matches!(
            (op, self.expr.node(id)),
            (
                BinaryOp::Add | BinaryOp::Sub,
                Scalar::Binary(BinaryOp::Add | BinaryOp::Sub, ..)
            ) | (
                BinaryOp::Mul | BinaryOp::Div,
                Scalar::Binary(BinaryOp::Mul | BinaryOp::Div, ..)
            ) | (
                BinaryOp::Add | BinaryOp::Sub,
                Scalar::Binary(BinaryOp::Mul | BinaryOp::Div, ..)
            ) | (BinaryOp::And, Scalar::Binary(BinaryOp::And, ..))
                | (BinaryOp::Or, Scalar::Binary(BinaryOp::Or, ..))
        );
        if same && unbound {
            return Ok(self.value(id)?.0);
        }
        self.operand_value(id)
    }

    fn is_inline_product(&self, id: ExprId) -> bool {
        matches!(
            self.expr.node(id),
            Scalar::Binary(BinaryOp::Mul | BinaryOp::Div, ..)
        ) && self.bound[id.index()].is_none()
            && self.uses[id.index()] <= 1
    }

    fn compare(&mut self, op: CompareOp, a: ExprId, b: ExprId) -> Result<Text, Diagnostic> {
        let symbol = match op {
            CompareOp::Eq => "==",
            CompareOp::Ne => "!=",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        };
        if let (Scalar::Int(x), Scalar::Int(y)) = (self.expr.node(a), self.expr.node(b))
            && plain(x)
            && plain(y)
        {
            let ((x, minus_x), (y, minus_y)) = (split_signs(x), split_signs(y));
            if let Some(text) = self.compare_four(
                op,
                symbol,
                &(x.clone() + minus_y.clone()),
                &(y.clone() + minus_x.clone()),
            )? {
                return Ok((text, false));
            }
            let (left, _) = self.poly(&(x + minus_y), Int::U32, Over::Logical);
            let (right, _) = self.poly(&(y + minus_x), Int::U32, Over::Logical);
            return Ok((format!("{left} {symbol} {right}"), false));
        }
        let ordered = !matches!(op, CompareOp::Eq | CompareOp::Ne);
        if ordered && self.expr.dtype(a) == DType::Bool {
            let (x, y) = (self.value(a)?.0, self.value(b)?.0);
            if self.varies[a.index()] || self.varies[b.index()] {
                return Err(vector::no_form("an order of truth values"));
            }
            return Ok((format!("u32({x}) {symbol} u32({y})"), false));
        }
        let (x, y) = (self.operand_value(a)?, self.operand_value(b)?);
        let (x, y) = (self.alike(a, x, &[a, b]), self.alike(b, y, &[a, b]));
        Ok((format!("{x} {symbol} {y}"), false))
    }

    /// Whether both are indices that are compared as polynomials.
    fn are_plain(&self, a: ExprId, b: ExprId) -> bool {
        matches!((self.expr.node(a), self.expr.node(b)), (Scalar::Int(x), Scalar::Int(y)) if plain(x) && plain(y))
    }

    fn cast(&mut self, to: DType, a: ExprId) -> Result<Text, Diagnostic> {
        let from = self.expr.dtype(a);
        if let (Scalar::Int(dim), true) = (self.expr.node(a).clone(), to.is_float())
            && dim.is_nonneg(&self.logical_extents())
        {
            if self.has_element(&self.over_parameters(&dim)) {
                return Err(vector::no_form("the number of an element"));
            }
            let (text, _) = self.poly(&dim, Int::U32, Over::Logical);
            return Ok((format!("f32({text})"), true));
        }
        let x = self.value(a)?.0;
        if self.varies[a.index()] {
            return Ok((format!("{}({x})", vector::four(to)), true)); // converts, from bool too
        }
        Ok(match (from, to) {
            (DType::Bool, DType::I32) => (format!("select(0i, 1i, {x})"), true),
            (DType::Bool, DType::U32) => (format!("select(0u, 1u, {x})"), true),
            (DType::Bool, _) => (format!("select(0.0, 1.0, {x})"), true),
            (DType::I32, DType::Bool) => (format!("{} != 0i", self.operand_value(a)?), false),
            (DType::U32, DType::Bool) => (format!("{} != 0u", self.operand_value(a)?), false),
            (_, DType::Bool) => (format!("{} != 0.0", self.operand_value(a)?), false),
            (_, DType::I32) => (format!("i32({x})"), true),
            (_, DType::U32) => (format!("u32({x})"), true),
            (_, DType::F32 | DType::F16 | DType::BF16) => (format!("f32({x})"), true),
        })
    }
}

/// Whether there is nothing but indices and lengths in it, which are never negative.
fn plain(dim: &Dim) -> bool {
    dim.terms().all(|(_, m)| {
        m.iter()
            .all(|(a, _)| matches!(a, Atom::Sym(_) | Atom::Index(_)))
    })
}

/// The polynomial as a difference of two without negative terms.
fn split_signs(dim: &Dim) -> (Dim, Dim) {
    let (mut plus, mut minus) = (Dim::zero(), Dim::zero());
    for (coefficient, monomial) in dim.terms() {
        let mut term = Dim::from(coefficient.saturating_abs());
        for (atom, power) in monomial {
            let atom = match atom {
                Atom::Sym(name) => Dim::sym(name),
                Atom::Index(n) => Dim::index(*n),
                _ => unreachable!("plain polynomials only"),
            };
            for _ in 0..*power {
                term = term * atom.clone();
            }
        }
        if coefficient > 0 {
            plus = plus + term;
        } else {
            minus = minus + term;
        }
    }
    (plus, minus)
}

fn unsupported(what: String) -> Diagnostic {
    Diagnostic::error("unsupported-scalar", format!("{what} has no WGSL form"))
        .note("write it with other operations, or run it on the CPU backend")
}
