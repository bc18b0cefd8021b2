//! Building scalar expressions: every node is simplified as it is made.
//!
//! The simplifications are exact: they hold for NaN, infinities and signed zeros, so `x * 0` stays and
//! `x * 1` goes. Integer arithmetic folds into polynomials; comparisons of polynomials fold where the
//! extents decide them.

use super::fold::{compare_f64, compare_floats, decide, fold_binary, fold_unary, negated};
use super::{ExprId, Scalar, ScalarExpr};
use crate::{BinaryOp, CompareOp, DType, Dim, Extents, UnaryOp};
use std::collections::HashMap;

/// Makes one [`ScalarExpr`].
#[derive(Debug, Clone)]
pub struct ScalarBuilder {
    extents: Extents,
    nodes: Vec<Scalar>,
    dtypes: Vec<DType>,
    known: HashMap<Scalar, ExprId>,
}

impl ScalarBuilder {
    /// An empty expression whose index variables have these extents.
    #[must_use]
    pub fn new(extents: Extents) -> Self {
        Self {
            extents,
            nodes: Vec::new(),
            dtypes: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// The extents of the index variables.
    #[must_use]
    pub fn extents(&self) -> &Extents {
        &self.extents
    }

    /// The node of that name.
    #[must_use]
    pub fn node(&self, id: ExprId) -> &Scalar {
        &self.nodes[id.index()]
    }

    /// The type of a node.
    #[must_use]
    pub fn dtype(&self, id: ExprId) -> DType {
        self.dtypes[id.index()]
    }

    /// The node as it is, without simplification; the reader of the text form keeps what is written.
    pub(crate) fn push(&mut self, node: Scalar, dtype: DType) -> ExprId {
        if let Some(&id) = self.known.get(&node) {
            return id;
        }
        let id = ExprId(u32::try_from(self.nodes.len()).expect("expressions are small"));
        self.nodes.push(node.clone());
        self.dtypes.push(dtype);
        self.known.insert(node, id);
        id
    }

    /// An i32 polynomial.
    pub fn int(&mut self, value: impl Into<Dim>) -> ExprId {
        self.push(Scalar::Int(value.into()), DType::I32)
    }

    /// Index variable `d<n>`.
    pub fn index(&mut self, n: u32) -> ExprId {
        self.int(Dim::index(n))
    }

    /// All index variables, in order.
    pub fn indices(&mut self) -> Vec<ExprId> {
        (0..self.extents.dims().len())
            .map(|n| self.index(u32::try_from(n).expect("few axes")))
            .collect()
    }

    /// An f32 literal.
    pub fn float(&mut self, value: f32) -> ExprId {
        self.push(Scalar::float(value), DType::F32)
    }

    /// A bool literal.
    pub fn bool(&mut self, value: bool) -> ExprId {
        self.push(Scalar::Bool(value), DType::Bool)
    }

    /// A literal of a type; fractions of integers are cut off.
    pub fn literal(&mut self, dtype: DType, value: f64) -> ExprId {
        match dtype {
            DType::Bool => self.bool(value != 0.0),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "integers of 32 bits are exact in f64"
            )]
            DType::I32 | DType::U32 => {
                let int = self.int(value as i64);
                if dtype == DType::U32 {
                    self.cast(DType::U32, int)
                } else {
                    int
                }
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "literals of f32 values are exact"
            )]
            DType::F32 | DType::F16 | DType::BF16 => self.float(value as f32),
        }
    }

    /// The argument.
    pub fn arg(&mut self) -> ExprId {
        self.push(Scalar::Arg, DType::F32)
    }

    /// An element of operand `operand`, which has element type `dtype`.
    pub fn load(&mut self, operand: usize, dtype: DType, index: Vec<ExprId>) -> ExprId {
        let dtype = if dtype.is_float() { DType::F32 } else { dtype };
        self.push(Scalar::Load { operand, index }, dtype)
    }

    /// The polynomial, if the node is one.
    #[must_use]
    pub fn as_int(&self, id: ExprId) -> Option<&Dim> {
        match self.node(id) {
            Scalar::Int(dim) => Some(dim),
            _ => None,
        }
    }

    /// The literal's value, if the node is an f32 literal.
    #[must_use]
    pub fn as_float(&self, id: ExprId) -> Option<f32> {
        match self.node(id) {
            Scalar::Float(bits) => Some(f32::from_bits(*bits)),
            _ => None,
        }
    }

    /// The truth value, if the node is one.
    #[must_use]
    pub fn as_bool(&self, id: ExprId) -> Option<bool> {
        match self.node(id) {
            Scalar::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// An operation on one value.
    pub fn unary(&mut self, op: UnaryOp, a: ExprId) -> ExprId {
        match (op, self.node(a).clone()) {
            (UnaryOp::Neg, Scalar::Int(d)) => return self.int(-d),
            (UnaryOp::Not, Scalar::Bool(b)) => return self.bool(!b),
            (UnaryOp::Not, Scalar::Unary(UnaryOp::Not, inner)) => return inner,
            // Integers have no NaN, so the opposite comparison is the negation; floats keep the `not`.
            (UnaryOp::Not, Scalar::Compare(cmp, x, y)) if !self.dtype(x).is_float() => {
                return self.compare(negated(cmp), x, y);
            }
            (UnaryOp::Not, Scalar::Compare(CompareOp::Eq, x, y)) => {
                return self.compare(CompareOp::Ne, x, y);
            }
            (UnaryOp::Not, Scalar::Compare(CompareOp::Ne, x, y)) => {
                return self.compare(CompareOp::Eq, x, y);
            }
            (UnaryOp::IsNan | UnaryOp::IsInf, _) if !self.dtype(a).is_float() => {
                return self.bool(false);
            }
            (_, Scalar::Float(bits)) => {
                if let Some(folded) = fold_unary(op, f32::from_bits(bits)) {
                    return self.float(folded);
                }
            }
            _ => {}
        }
        let dtype = match op {
            UnaryOp::Not | UnaryOp::IsNan | UnaryOp::IsInf => DType::Bool,
            _ => self.dtype(a),
        };
        self.push(Scalar::Unary(op, a), dtype)
    }

    /// An operation on two values of one type.
    pub fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        debug_assert_eq!(self.dtype(a), self.dtype(b), "operands of {op:?}");
        if let (Some(x), Some(y)) = (self.as_int(a), self.as_int(b))
            && let Some(folded) = self.fold_ints(op, &x.clone(), &y.clone())
        {
            return self.int(folded);
        }
        if let (Some(x), Some(y)) = (self.as_float(a), self.as_float(b))
            && let Some(folded) = fold_binary(op, x, y)
        {
            return self.float(folded);
        }
        if let Some(same) = self.identity(op, a, b) {
            return same;
        }
        let dtype = self.dtype(a);
        self.push(Scalar::Binary(op, a, b), dtype)
    }

    fn fold_ints(&self, op: BinaryOp, x: &Dim, y: &Dim) -> Option<Dim> {
        let ext = &self.extents;
        Some(match op {
            BinaryOp::Add => x.clone() + y.clone(),
            BinaryOp::Sub => x.clone() - y.clone(),
            BinaryOp::Mul => x.clone() * y.clone(),
            // Truncation and floor agree where neither side is negative.
            BinaryOp::Div if x.is_nonneg(ext) && y.is_nonneg(ext) && !y.is(0) => {
                x.floor_div(y, ext)
            }
            BinaryOp::Mod | BinaryOp::Rem if x.is_nonneg(ext) && y.is_nonneg(ext) && !y.is(0) => {
                x.modulo(y, ext)
            }
            BinaryOp::Min => x.minimum(y, ext),
            BinaryOp::Max => x.maximum(y, ext),
            _ => return None,
        })
    }

    /// The operand that the operation leaves as it is, or the value it always has.
    fn identity(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        match op {
            BinaryOp::And | BinaryOp::Or => {
                let absorbing = op == BinaryOp::Or;
                for (x, y) in [(a, b), (b, a)] {
                    match self.as_bool(x) {
                        Some(v) if v == absorbing => return Some(x),
                        Some(_) => return Some(y),
                        None => {}
                    }
                }
                (a == b).then_some(a)
            }
            BinaryOp::Mul => {
                if self.as_float(b) == Some(1.0) || self.as_int(b).is_some_and(|d| d.is(1)) {
                    Some(a)
                } else if self.as_float(a) == Some(1.0) || self.as_int(a).is_some_and(|d| d.is(1)) {
                    Some(b)
                } else {
                    None
                }
            }
            BinaryOp::Div
                if self.as_float(b) == Some(1.0) || self.as_int(b).is_some_and(|d| d.is(1)) =>
            {
                Some(a)
            }
            // x - (+0) is x for every x; x + (+0) turns -0 into +0, which no comparison or later sum sees.
            BinaryOp::Sub | BinaryOp::Add
                if self.as_float(b) == Some(0.0) || self.as_int(b).is_some_and(|d| d.is(0)) =>
            {
                Some(a)
            }
            BinaryOp::Add
                if self.as_float(a) == Some(0.0) || self.as_int(a).is_some_and(|d| d.is(0)) =>
            {
                Some(b)
            }
            BinaryOp::Min | BinaryOp::Max if a == b => Some(a),
            _ => None,
        }
    }

    /// A comparison of two values of one type.
    pub fn compare(&mut self, op: CompareOp, a: ExprId, b: ExprId) -> ExprId {
        debug_assert_eq!(self.dtype(a), self.dtype(b), "operands of {op:?}");
        if let (Some(x), Some(y)) = (self.as_int(a), self.as_int(b)) {
            if let Some(decided) = decide(op, x, y, &self.extents) {
                return self.bool(decided);
            }
        } else if let (Some(x), Some(y)) = (self.as_float(a), self.as_float(b)) {
            return self.bool(compare_floats(op, x, y));
        } else if a == b && !self.dtype(a).is_float() {
            return self.bool(matches!(op, CompareOp::Eq | CompareOp::Le | CompareOp::Ge));
        } else if self.dtype(a) == DType::Bool {
            if let Some(simpler) = self.compare_bools(op, a, b) {
                return simpler;
            }
        } else if let Some(simpler) = self.compare_cast_bool(op, a, b) {
            return simpler;
        }
        self.push(Scalar::Compare(op, a, b), DType::Bool)
    }

    fn compare_bools(&mut self, op: CompareOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let (value, literal) = match (self.as_bool(a), self.as_bool(b)) {
            (_, Some(l)) => (a, l),
            (Some(l), _) => (b, l),
            _ => return None,
        };
        match (op, literal) {
            (CompareOp::Eq, true) | (CompareOp::Ne, false) => Some(value),
            (CompareOp::Eq, false) | (CompareOp::Ne, true) => Some(self.unary(UnaryOp::Not, value)),
            _ => None,
        }
    }

    /// `cast(bool) compared with a literal`: decided by what it gives for 0 and for 1.
    fn compare_cast_bool(&mut self, op: CompareOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let Scalar::Cast(_, flag) = *self.node(a) else {
            return None;
        };
        if self.dtype(flag) != DType::Bool {
            return None;
        }
        let literal = match self.node(b) {
            Scalar::Float(bits) => f64::from(f32::from_bits(*bits)),
            #[expect(clippy::cast_precision_loss, reason = "only 0 and 1 matter")]
            Scalar::Int(d) => d.as_const()? as f64,
            _ => return None,
        };
        match (compare_f64(op, 0.0, literal), compare_f64(op, 1.0, literal)) {
            (x, y) if x == y => Some(self.bool(x)),
            (false, true) => Some(flag),
            _ => Some(self.unary(UnaryOp::Not, flag)),
        }
    }

    /// `condition ? a : b`.
    pub fn select(&mut self, condition: ExprId, a: ExprId, b: ExprId) -> ExprId {
        debug_assert_eq!(self.dtype(a), self.dtype(b), "branches of a select");
        match self.node(condition).clone() {
            Scalar::Bool(true) => return a,
            Scalar::Bool(false) => return b,
            Scalar::Unary(UnaryOp::Not, inner) => return self.select(inner, b, a),
            _ => {}
        }
        if a == b {
            return a;
        }
        match (self.as_bool(a), self.as_bool(b)) {
            (Some(true), Some(false)) => return condition,
            (Some(false), Some(true)) => return self.unary(UnaryOp::Not, condition),
            (Some(true), None) => return self.binary(BinaryOp::Or, condition, b),
            (None, Some(false)) => return self.binary(BinaryOp::And, condition, a),
            _ => {}
        }
        let dtype = self.dtype(a);
        self.push(Scalar::Select(condition, a, b), dtype)
    }

    /// The value in another type.
    pub fn cast(&mut self, dtype: DType, a: ExprId) -> ExprId {
        let from = self.dtype(a);
        // Storage types round; the compute type of every float is f32.
        let dtype = if dtype == DType::F16 || dtype == DType::BF16 {
            DType::F32
        } else {
            dtype
        };
        if from == dtype {
            return a;
        }
        match self.node(a).clone() {
            #[expect(
                clippy::cast_precision_loss,
                reason = "the cast of the source rounds as well"
            )]
            Scalar::Int(d) if d.as_const().is_some() && dtype == DType::F32 => {
                return self.float(d.as_const().unwrap_or_default() as f32);
            }
            Scalar::Int(d) if dtype == DType::Bool => {
                let (value, zero) = (self.int(d), self.int(0));
                return self.compare(CompareOp::Ne, value, zero);
            }
            Scalar::Float(bits) if dtype == DType::Bool => {
                return self.bool(f32::from_bits(bits) != 0.0);
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "saturating is what every backend does"
            )]
            Scalar::Float(bits) if dtype == DType::I32 => {
                return self.int(i64::from(f32::from_bits(bits) as i32));
            }
            Scalar::Bool(b) => return self.literal(dtype, f64::from(u8::from(b))),
            // bool -> number -> bool, and bool -> number -> number.
            Scalar::Cast(_, flag) if self.dtype(flag) == DType::Bool => {
                return self.cast(dtype, flag);
            }
            // (1 - number(flag)) -> bool is not(flag).
            Scalar::Binary(BinaryOp::Sub, one, rest) if dtype == DType::Bool => {
                if let (true, Scalar::Cast(_, flag)) = (self.is_one(one), self.node(rest).clone())
                    && self.dtype(flag) == DType::Bool
                {
                    return self.unary(UnaryOp::Not, flag);
                }
            }
            Scalar::Select(c, x, y) if dtype == DType::Bool => {
                let (x, y) = (self.cast(dtype, x), self.cast(dtype, y));
                return self.select(c, x, y);
            }
            _ => {}
        }
        self.push(Scalar::Cast(dtype, a), dtype)
    }

    fn is_one(&self, id: ExprId) -> bool {
        self.as_float(id) == Some(1.0) || self.as_int(id).is_some_and(|d| d.is(1))
    }

    /// The expression with that root; what the root does not need is dropped.
    ///
    /// Nodes are put in the order in which a walk from the root leaves them, so that two expressions that
    /// compute the same in the same way are equal values, whatever order they were built in.
    #[must_use]
    pub fn finish(&self, root: ExprId) -> ScalarExpr {
        let mut renamed: Vec<Option<ExprId>> = vec![None; self.nodes.len()];
        let (mut nodes, mut dtypes) = (Vec::new(), Vec::new());
        let mut stack = vec![(root, false)];
        while let Some((id, operands_done)) = stack.pop() {
            if renamed[id.index()].is_some() {
                continue;
            }
            if operands_done {
                renamed[id.index()] = Some(ExprId(
                    u32::try_from(nodes.len()).expect("expressions are small"),
                ));
                nodes.push(renumber(self.node(id), &renamed));
                dtypes.push(self.dtype(id));
            } else {
                stack.push((id, true));
                let operands = self.node(id).operands();
                stack.extend(operands.into_iter().rev().map(|o| (o, false)));
            }
        }
        let root = renamed[root.index()].expect("the root was visited");
        ScalarExpr {
            nodes,
            dtypes,
            root,
        }
    }
}

fn renumber(node: &Scalar, renamed: &[Option<ExprId>]) -> Scalar {
    let at = |id: &ExprId| renamed[id.index()].expect("operands come first");
    match node {
        Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_) | Scalar::Arg => node.clone(),
        Scalar::Load { operand, index } => Scalar::Load {
            operand: *operand,
            index: index.iter().map(at).collect(),
        },
        Scalar::Unary(op, a) => Scalar::Unary(*op, at(a)),
        Scalar::Binary(op, a, b) => Scalar::Binary(*op, at(a), at(b)),
        Scalar::Compare(op, a, b) => Scalar::Compare(*op, at(a), at(b)),
        Scalar::Select(c, a, b) => Scalar::Select(at(c), at(a), at(b)),
        Scalar::Cast(to, a) => Scalar::Cast(*to, at(a)),
    }
}
