//! Random scalar expressions of a wanted type.

use super::{Choices, dim};
use attnc_ir::scalar::{ExprId, ScalarBuilder, ScalarExpr};
use attnc_ir::{BinaryOp, CompareOp, DType, Extents, TensorType, UnaryOp};

struct Maker<'a> {
    choices: &'a mut Choices,
    e: ScalarBuilder,
    operands: &'a [TensorType],
    loadable: &'a [usize],
    arg: bool,
    /// Values made so far, to be used again.
    made: Vec<ExprId>,
}

/// An expression over operands of these types; it loads only from those that are `loadable`.
pub(crate) fn expression(
    choices: &mut Choices,
    extents: &Extents,
    operands: &[TensorType],
    loadable: &[usize],
    wanted: DType,
    arg: bool,
) -> ScalarExpr {
    let e = ScalarBuilder::new(extents.clone());
    let mut maker = Maker {
        choices,
        e,
        operands,
        loadable,
        arg,
        made: Vec::new(),
    };
    let root = maker.value(wanted, 4);
    maker.e.finish(root)
}

impl Maker<'_> {
    fn value(&mut self, dtype: DType, depth: usize) -> ExprId {
        let known: Vec<_> = self
            .made
            .iter()
            .copied()
            .filter(|&id| self.e.dtype(id) == dtype)
            .collect();
        if !known.is_empty() && self.choices.chance(4) {
            return self.choices.pick(&known);
        }
        let id = if depth == 0 {
            self.leaf(dtype)
        } else {
            self.inner(dtype, depth - 1)
        };
        self.made.push(id);
        id
    }

    fn leaf(&mut self, dtype: DType) -> ExprId {
        let rank = u32::try_from(self.e.extents().dims().len()).unwrap();
        match dtype {
            DType::Bool => {
                let value = self.choices.chance(2);
                self.e.bool(value)
            }
            DType::I32 if rank > 0 && self.choices.chance(2) => {
                let n = u32::try_from(self.choices.below(rank as usize)).unwrap();
                self.e.index(n)
            }
            DType::I32 => {
                let text = self.choices.pick(&[
                    "0",
                    "-3",
                    "S",
                    "b",
                    "2 * S - 1",
                    "-B",
                    "floordiv(S + 1, 2)",
                    "B * S",
                ]);
                self.e.int(dim(text))
            }
            DType::U32 => self.e.literal(DType::U32, 7.0),
            _ if self.arg && self.choices.chance(2) => self.e.arg(),
            _ => {
                let value = self.choices.pick(&[
                    0.5,
                    1.0,
                    -2.0,
                    -0.0,
                    f32::NEG_INFINITY,
                    f32::INFINITY,
                    f32::NAN,
                    1e20,
                ]);
                self.e.float(value)
            }
        }
    }

    fn inner(&mut self, dtype: DType, depth: usize) -> ExprId {
        match self.choices.below(6) {
            0 => self.load(dtype, depth).unwrap_or_else(|| self.leaf(dtype)),
            1 => self.leaf(dtype),
            2 => {
                let condition = self.value(DType::Bool, depth);
                let (a, b) = (self.value(dtype, depth), self.value(dtype, depth));
                self.e.select(condition, a, b)
            }
            3 => {
                let from = self
                    .choices
                    .pick(&[DType::F32, DType::I32, DType::U32, DType::Bool]);
                let a = self.value(from, depth);
                self.e.cast(dtype, a)
            }
            4 if dtype == DType::Bool => {
                let of = self
                    .choices
                    .pick(&[DType::F32, DType::I32, DType::U32, DType::Bool]);
                let (a, b) = (self.value(of, depth), self.value(of, depth));
                let op = self.choices.pick(CompareOp::ALL);
                self.e.compare(op, a, b)
            }
            4 => self.unary(dtype, depth),
            _ => {
                let logical =
                    |op: &BinaryOp| matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
                let ops: Vec<_> = BinaryOp::ALL
                    .iter()
                    .copied()
                    .filter(|op| logical(op) == (dtype == DType::Bool))
                    .collect();
                let (a, b) = (self.value(dtype, depth), self.value(dtype, depth));
                let op = self.choices.pick(&ops);
                self.e.binary(op, a, b)
            }
        }
    }

    fn unary(&mut self, dtype: DType, depth: usize) -> ExprId {
        let logical = |op: &UnaryOp| matches!(op, UnaryOp::Not | UnaryOp::IsNan | UnaryOp::IsInf);
        let of_ints = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign, UnaryOp::Relu];
        let ops: Vec<_> = match dtype {
            DType::F32 => UnaryOp::ALL
                .iter()
                .copied()
                .filter(|op| !logical(op))
                .collect(),
            _ => of_ints.to_vec(),
        };
        let a = self.value(dtype, depth);
        let op = self.choices.pick(&ops);
        self.e.unary(op, a)
    }

    fn load(&mut self, dtype: DType, depth: usize) -> Option<ExprId> {
        let compute = |d: DType| if d.is_float() { DType::F32 } else { d };
        let fits: Vec<_> = self
            .loadable
            .iter()
            .copied()
            .filter(|&n| compute(self.operands[n].dtype) == dtype)
            .collect();
        if fits.is_empty() {
            return None;
        }
        let operand = self.choices.pick(&fits);
        let index = (0..self.operands[operand].rank())
            .map(|_| self.value(DType::I32, depth.min(1)))
            .collect();
        Some(self.e.load(operand, self.operands[operand].dtype, index))
    }
}
