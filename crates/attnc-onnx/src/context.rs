//! The graph under construction, and the one place where an operation is either evaluated or added to it.
//!
//! Importers speak in operations of the graph and never ask which of the three kinds of [`Value`] they
//! hold: [`Context::apply`] gives a known value where the operands are known, and a node elsewhere.

mod place;

use crate::eval::{self, Elems, is_tame, weight};
use crate::known::{self, Known};
use crate::value::{self, MAX_INTS, Value};
use crate::{Constraint, DerivedInput, DerivedKind, error::OpResult};
use attnc_ir::{BinaryOp, DType, Diagnostic, Dim, Graph, Op, Shape, TensorType, ValueId, infer};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Larger results are left to the graph.
const MAX_FOLDED: usize = 64 * 1024;
/// Views of larger float constants stay views, so that weights stay in their file.
const MAX_FOLDED_VIEW: usize = 256;
/// All folding together; a bound on the time that a hostile file can take.
const FOLD_BUDGET: usize = 1 << 24;
/// More elements than this cannot be indexed.
const MAX_ELEMENTS: i64 = 1 << 31;
/// What lengths are called that follow from data.
pub(crate) const DERIVED: &str = "data_length_";
/// More axes than any model has.
pub(crate) const MAX_RANK: usize = 16;

/// The graph under construction.
pub(crate) struct Context {
    pub(crate) graph: Graph,
    pub(crate) constraints: Vec<Constraint>,
    /// What the walk before found out.
    pub(crate) known: Known,
    /// Lengths that turned out to have one value only.
    pub(crate) solved: BTreeMap<String, Dim>,
    pub(crate) notes: BTreeSet<String>,
    /// Inputs that are computed from others.
    pub(crate) derived: Vec<DerivedInput>,
    counts: HashMap<ValueId, Dim>,
    /// Nodes added since the last call of [`Context::take_added`].
    added: Vec<ValueId>,
    scalars: HashMap<(DType, u64), Value>,
    fold_budget: usize,
}

impl Context {
    pub(crate) fn new(name: &str, known: Known) -> Self {
        Self {
            graph: Graph::new(name),
            constraints: known.constraints.clone(),
            known,
            solved: BTreeMap::new(),
            notes: BTreeSet::new(),
            derived: Vec::new(),
            counts: HashMap::new(),
            added: Vec::new(),
            scalars: HashMap::new(),
            fold_budget: FOLD_BUDGET,
        }
    }

    pub(crate) fn ty(&self, value: &Value) -> TensorType {
        match value {
            Value::Graph(id) => self.graph.ty(*id).clone(),
            Value::Ints(ints) => ints.known.ty(),
            Value::Const(data) => data.known.ty(),
        }
    }

    pub(crate) fn shape(&self, value: &Value) -> Shape {
        self.ty(value).shape
    }

    /// A constant without axes, one node however often it is asked for.
    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> Value {
        let data = || Elems::scalar(dtype, value).to_constant();
        self.scalars
            .entry((dtype, value.to_bits()))
            .or_insert_with(|| Value::constant(data()))
            .clone()
    }

    /// States that `smaller <= larger` holds whenever the graph runs, unless that is certain.
    pub(crate) fn require(&mut self, smaller: Dim, larger: Dim, why: impl FnOnce() -> String) {
        let none = attnc_ir::Extents::none();
        if (larger.clone() - smaller.clone()).is_nonneg(&none) {
            return;
        }
        let known = |c: &Constraint| c.smaller == smaller && c.larger == larger;
        if !self.constraints.iter().any(known) {
            let why = why();
            self.constraints.push(Constraint {
                smaller,
                larger,
                why,
            });
        }
    }

    /// The result of `op`: evaluated where the operands are known, a new node elsewhere.
    pub(crate) fn apply(&mut self, op: Op, args: &[&Value]) -> OpResult<Value> {
        if let Op::Reshape(shape) | Op::Broadcast(shape) | Op::Iota { shape, .. } = &op {
            check_shape(shape)?;
        }
        let types: Vec<_> = args.iter().map(|v| self.ty(v)).collect();
        let ty = match infer::result_type(&op, &types.iter().collect::<Vec<_>>()) {
            Ok(ty) => ty,
            Err(error) => {
                self.learn(&op, &types);
                return Err(error.into());
            }
        };
        check_shape(&ty.shape)?;
        if changes_nothing(&op, &types, &ty) {
            return Ok(args[0].clone());
        }
        if let Some(known) = self.evaluate(&op, args, &ty) {
            return Ok(known);
        }
        let ids = args
            .iter()
            .map(|v| self.place(v))
            .collect::<OpResult<Vec<_>>>()?;
        Ok(Value::Graph(self.insert(op, &ids, ty, None)))
    }

    /// The nodes added since it was last asked, constants not counted.
    pub(crate) fn take_added(&mut self) -> Vec<ValueId> {
        std::mem::take(&mut self.added)
    }

    /// An input that the host computes from `value`; its last axis is as long as that says.
    pub(crate) fn derive(&mut self, value: ValueId, kind: DerivedKind) -> ValueId {
        let number = self.derived.len();
        let length = self.known.put_in(&Dim::sym(&format!("{DERIVED}{number}")));
        let shape = match kind {
            DerivedKind::Positions => vec![Dim::from(self.graph.ty(value).rank()), length],
            DerivedKind::Count => vec![length],
        };
        let mut graph = self.graph.clone();
        graph.add_output("of", value);
        graph.remove_dead();
        let name = format!("derived/{}", self.graph.node(value).name());
        self.derived.push(DerivedInput {
            name: name.clone(),
            shape: shape.clone(),
            graph,
            kind,
        });
        self.graph
            .add_input(&name, TensorType::new(DType::I32, shape))
    }

    /// The length that a number computed from data is: sums and products of such are kept as lengths.
    /// `None` where they are too complicated.
    pub(crate) fn length_of(&mut self, value: ValueId) -> Option<Dim> {
        if let Some(known) = self.counts.get(&value) {
            return Some(known.clone());
        }
        let node = self.graph.node(value);
        let operands = node.operands().to_vec();
        let dim = match &node.op {
            Op::Length(dim) => dim.clone(),
            Op::Constant(data) if data.splat_f64().is_some_and(|v| v.fract() == 0.0) =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "an i32")]
                Dim::from(data.splat_f64().unwrap_or(0.0) as i64)
            }
            Op::Reshape(_) | Op::Cast(DType::I32) => self.length_of(operands[0])?,
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)) => {
                let op = *op;
                let (a, b) = (self.length_of(operands[0])?, self.length_of(operands[1])?);
                eval::Element::binary(op, &a, &b, DType::I32)?
            }
            _ => {
                let list = self.derive(value, DerivedKind::Count);
                self.graph.ty(list).shape[0].clone()
            }
        };
        self.counts.insert(value, dim.clone());
        Some(dim)
    }

    fn insert(
        &mut self,
        op: Op,
        operands: &[ValueId],
        ty: TensorType,
        name: Option<&str>,
    ) -> ValueId {
        let id = self.graph.insert(op, operands, ty, name);
        self.added.push(id);
        id
    }

    fn add(&mut self, op: Op, operands: &[ValueId]) -> OpResult<ValueId> {
        let types: Vec<_> = operands.iter().map(|&o| self.graph.ty(o)).collect();
        let ty = infer::result_type(&op, &types)?;
        Ok(self.insert(op, operands, ty, None))
    }

    /// What would have to hold for lengths that do not fit to fit.
    ///
    /// A length that meets a number is taken to be that number: it could be 1 as well, but what an exporter
    /// left in the file is the length of the example it traced.
    fn learn(&mut self, op: &Op, types: &[TensorType]) {
        match op {
            Op::Reshape(shape) => {
                let product = shape.iter().cloned().product();
                self.learn_equal(&[(types[0].elements(), product)]);
            }
            Op::MatMul if types.iter().all(|t| t.rank() >= 2) => {
                let ([a_batch @ .., _, columns], [b_batch @ .., rows, _]) =
                    (&*types[0].shape, &*types[1].shape)
                else {
                    return;
                };
                self.learn_equal(&[(columns.clone(), rows.clone())]);
                self.learn_aligned(a_batch, b_batch);
            }
            Op::Concat { axis } => {
                let [first, others @ ..] = types else {
                    return;
                };
                for ty in others {
                    let axes = first.shape.iter().zip(&*ty.shape).enumerate();
                    let kept = axes.filter(|(n, _)| n != axis);
                    let pairs = kept.map(|(_, (a, b))| (a.clone(), b.clone()));
                    self.learn_equal(&pairs.collect::<Vec<_>>());
                }
            }
            Op::Binary(_) | Op::Compare(_) | Op::Where => {
                for (n, a) in types.iter().enumerate() {
                    for b in &types[n + 1..] {
                        self.learn_aligned(&a.shape, &b.shape);
                    }
                }
            }
            _ => {}
        }
    }

    /// [`Context::learn_equal`] for axes aligned at the last one, where a length of 1 fits any other.
    fn learn_aligned(&mut self, a: &[Dim], b: &[Dim]) {
        let aligned = a.iter().rev().zip(b.iter().rev());
        let differ = aligned.filter(|(a, b)| !a.is(1) && !b.is(1));
        let pairs: Vec<_> = differ.map(|(a, b)| (a.clone(), b.clone())).collect();
        self.learn_equal(&pairs);
        for (a, b) in &pairs {
            for (smaller, larger) in known::decide(a, b, true) {
                self.require(smaller, larger, || format!("axes of {a} and {b}"));
            }
        }
    }

    /// Notes which lengths would make the two of each pair equal.
    pub(crate) fn learn_equal(&mut self, pairs: &[(Dim, Dim)]) {
        self.solved
            .extend(pairs.iter().filter_map(|(a, b)| known::solve(a, b)));
    }

    fn evaluate(&mut self, op: &Op, args: &[&Value], ty: &TensorType) -> Option<Value> {
        let shape: Vec<usize> = ty
            .shape
            .iter()
            .map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()))
            .collect::<Option<_>>()?;
        let count = shape.iter().product::<usize>();
        let largest = args
            .iter()
            .map(|v| match v {
                Value::Const(data) => data.known.len(),
                _ => 1,
            })
            .fold(count, usize::max);
        if largest > MAX_FOLDED || largest > self.fold_budget {
            return None;
        }
        // Tables that are made by counting and comparing say more as such than as tables.
        let table = shape.len() > 1 && !moves(op);
        if count <= MAX_INTS && !table {
            let ints: Option<Vec<_>> = args.iter().map(|v| v.as_ints()).collect();
            let known = ints.and_then(|ints| {
                eval::evaluate(op, &ints.iter().collect::<Vec<_>>(), ty.dtype, &shape)
            });
            if let Some(mut known) = known {
                for dim in &mut known.data {
                    *dim = self.known.simplify(std::mem::take(dim));
                }
                return Some(match known.numbers() {
                    Some(numbers) if ty.dtype.is_float() => Value::constant(numbers.to_constant()),
                    _ => Value::ints(known),
                });
            }
        }
        let counted =
            |v: &&Value| matches!(v, Value::Ints(i) if value::as_iota(&i.known).is_some());
        let grown = match op {
            Op::Broadcast(_) => table_of(&shape) || count > MAX_INTS,
            Op::Iota { .. } => shape.len() > 1 || count > MAX_INTS,
            _ => false,
        };
        let weights = op.is_view() && ty.dtype.is_float() && largest > MAX_FOLDED_VIEW;
        if grown || weights || (table && args.iter().any(counted)) {
            return None;
        }
        let numbers: Option<Vec<_>> = args.iter().map(|v| v.as_numbers(MAX_FOLDED)).collect();
        let known = eval::evaluate(op, &numbers?.iter().collect::<Vec<_>>(), ty.dtype, &shape)?;
        self.fold_budget -= largest;
        Some(Value::constant(known.to_constant()))
    }
}

fn table_of(shape: &[usize]) -> bool {
    shape.iter().filter(|&&d| d != 1).count() > 1
}

fn moves(op: &Op) -> bool {
    !matches!(op, Op::Broadcast(_))
        && (op.is_view() || matches!(op, Op::Concat { .. } | Op::Gather { .. }))
}

/// Whether the result is the first operand.
fn changes_nothing(op: &Op, types: &[TensorType], ty: &TensorType) -> bool {
    match op {
        Op::Reshape(_) | Op::Broadcast(_) | Op::Cast(_) => types[0] == *ty,
        Op::Transpose(perm) => perm.is_sorted(),
        Op::Slice { start, step, .. } => types[0] == *ty && start.is(0) && *step == 1,
        Op::Concat { .. } => types.len() == 1,
        _ => false,
    }
}

/// An int64 that only fits 64 bits stands where it is more than a bound.
pub(crate) fn int64_range(name: &str, value: i64) -> Diagnostic {
    let text = if value.saturating_abs() < eval::MAX_INT {
        value.to_string()
    } else {
        // Such values are kept only approximately.
        "a number of 64 bits".to_owned()
    };
    Diagnostic::error(
        "int64-out-of-range",
        format!("{text} is outside the range of i32"),
    )
    .at(name)
    .note("int64 is computed in 32 bits; larger values are allowed only as bounds of a Slice")
}

/// Refuses shapes that cannot be: negative, too many axes or elements, or monstrous polynomials.
pub(crate) fn check_shape(shape: &[Dim]) -> Result<(), Diagnostic> {
    let text = || {
        let dims: Vec<_> = shape.iter().map(Dim::to_string).collect();
        format!("[{}]", dims.join(", "))
    };
    let refuse = |why: String| Err(Diagnostic::error("bad-shape", why));
    if shape.len() > MAX_RANK {
        return refuse(format!("{} axes, expected at most {MAX_RANK}", shape.len()));
    }
    if shape
        .iter()
        .map(weight)
        .try_fold(1usize, usize::checked_mul)
        .is_none_or(|w| w > 1 << 16)
        && shape.iter().any(|d| d.as_const().is_none())
        || !shape.iter().all(is_tame)
    {
        return refuse("the lengths are too complicated".to_owned());
    }
    if shape.iter().any(|d| d.as_const().is_some_and(|n| n < 0)) {
        return refuse(format!("a length below 0: {}", text()));
    }
    if shape.iter().any(|d| d.is(0)) {
        return Ok(());
    }
    let known = shape.iter().filter_map(Dim::as_const);
    match known.fold(1i64, i64::saturating_mul) {
        n if n < MAX_ELEMENTS => Ok(()),
        n => refuse(format!(
            "{} has at least {n} elements, expected fewer than {MAX_ELEMENTS}",
            text()
        )),
    }
}
