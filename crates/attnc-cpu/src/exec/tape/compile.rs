//! From a scalar expression to a tape.

use super::axes::Axes;
use super::{Affine, Code, Instr, Load, Part, Tape};
use crate::Dims;
use crate::exec::layout::Layout;
use crate::poly::Poly;
use attnc_ir::scalar::{ExprId, Scalar, ScalarExpr};
use attnc_ir::{DType, DimError};

pub(super) fn compile(
    expr: &ScalarExpr,
    dims: &Dims,
    extents: &[usize],
    layouts: &[&Layout],
    merge: bool,
) -> Result<Tape, DimError> {
    let leaves = Leaves::new(expr, dims, extents.len(), layouts)?;
    let axes = if merge {
        leaves.merged_axes(extents)
    } else {
        Axes::unmerged(extents)
    };
    let mut compiler = Compiler {
        expr,
        leaves: &leaves,
        axes: &axes,
        values: vec![None; expr.nodes().len()],
        splats: vec![None; expr.nodes().len()],
        code: Vec::new(),
        virtuals: 0,
        literals: Vec::new(),
    };
    let result = compiler.value(expr.root());
    let (code, literals, virtuals) = (compiler.code, compiler.literals, compiler.virtuals);
    let mut tape = Tape {
        code,
        registers: virtuals,
        literals,
        result: (result.register, result.varies),
        extents: axes.extents.clone(),
        source: expr.clone(),
        dims: dims.clone(),
        source_extents: extents.to_vec(),
    };
    allocate(&mut tape);
    Ok(tape)
}

/// What stands at the ends of the expression: positions and polynomials over its own axes.
struct Leaves {
    nodes: Vec<Leaf>,
}

enum Leaf {
    None,
    Affine(Affine),
    Poly(Poly),
    /// Position, and the axes whose index is computed: node, stride, and the size where it comes from data.
    Load(Affine, Vec<(ExprId, i64, Option<usize>)>),
}

impl Leaves {
    fn new(
        expr: &ScalarExpr,
        dims: &Dims,
        rank: usize,
        layouts: &[&Layout],
    ) -> Result<Self, DimError> {
        let mut nodes: Vec<Leaf> = Vec::new();
        let mut from_data: Vec<bool> = Vec::new();
        for node in expr.nodes() {
            let computed = node.operands().iter().any(|o| from_data[o.index()]);
            from_data.push(computed || matches!(node, Scalar::Load { .. }));
            nodes.push(match node {
                Scalar::Int(dim) => {
                    let poly = Poly::bind(dim, dims)?;
                    match poly.as_affine(rank) {
                        Some((base, slopes)) => Leaf::Affine(Affine { base, slopes }),
                        None => Leaf::Poly(poly),
                    }
                }
                Scalar::Load { operand, index } => {
                    load_leaf(&nodes, &from_data, layouts[*operand], index, rank)
                }
                _ => Leaf::None,
            });
        }
        Ok(Self { nodes })
    }

    fn merged_axes(&self, extents: &[usize]) -> Axes {
        let (mut affine, mut polys) = (Vec::new(), Vec::new());
        for leaf in &self.nodes {
            match leaf {
                Leaf::None => {}
                Leaf::Affine(a) | Leaf::Load(a, _) => affine.push(a),
                Leaf::Poly(p) => polys.push(p),
            }
        }
        Axes::merged(extents, &affine, &polys)
    }
}

fn load_leaf(
    nodes: &[Leaf],
    from_data: &[bool],
    layout: &Layout,
    index: &[ExprId],
    rank: usize,
) -> Leaf {
    let mut position = Affine {
        base: i64::try_from(layout.offset).unwrap_or(i64::MAX),
        slopes: vec![0; rank],
    };
    let mut parts = Vec::new();
    for (n, &id) in index.iter().enumerate() {
        let stride = layout.strides[n] as i64;
        match &nodes[id.index()] {
            Leaf::Affine(a) => {
                position.base += a.base * stride;
                for (sum, slope) in position.slopes.iter_mut().zip(&a.slopes) {
                    *sum += slope * stride;
                }
            }
            _ => {
                let size = layout.shape[n];
                parts.push((id, stride, from_data[id.index()].then_some(size)));
            }
        }
    }
    Leaf::Load(position, parts)
}

/// Where the value of a node is.
#[derive(Debug, Clone, Copy)]
struct Value {
    register: usize,
    varies: bool,
    /// Literals fill their register, so they need no splat.
    literal: bool,
}

struct Compiler<'a> {
    expr: &'a ScalarExpr,
    leaves: &'a Leaves,
    axes: &'a Axes,
    values: Vec<Option<Value>>,
    splats: Vec<Option<usize>>,
    code: Vec<Instr>,
    virtuals: usize,
    literals: Vec<(usize, u32)>,
}

impl Compiler<'_> {
    fn value(&mut self, id: ExprId) -> Value {
        if let Some(value) = self.values[id.index()] {
            return value;
        }
        let value = self.compute(id);
        self.values[id.index()] = Some(value);
        value
    }

    fn compute(&mut self, id: ExprId) -> Value {
        let dtype = self.expr.dtype(id);
        match self.expr.node(id) {
            Scalar::Float(bits) => self.literal(*bits),
            Scalar::Bool(b) => self.literal(u32::from(*b)),
            Scalar::Int(_) => self.int(id),
            Scalar::Arg => self.push(Code::Arg, true),
            Scalar::Load { operand, .. } => self.load(id, *operand, dtype),
            Scalar::Unary(op, a) => {
                let ([a], varies) = self.operands([*a]);
                let from = self.expr.dtype(self.expr.node(id).operands()[0]);
                self.push(Code::Unary(*op, from, a), varies)
            }
            Scalar::Binary(op, a, b) => {
                let from = self.expr.dtype(*a);
                let (operands, varies) = self.operands([*a, *b]);
                self.push(Code::Binary(*op, from, operands), varies)
            }
            Scalar::Compare(op, a, b) => {
                let from = self.expr.dtype(*a);
                let (operands, varies) = self.operands([*a, *b]);
                self.push(Code::Compare(*op, from, operands), varies)
            }
            Scalar::Select(c, a, b) => {
                let (operands, varies) = self.operands([*c, *a, *b]);
                self.push(Code::Select(operands), varies)
            }
            Scalar::Cast(to, a) => {
                let from = self.expr.dtype(*a);
                let ([a], varies) = self.operands([*a]);
                self.push(Code::Cast(from, *to, a), varies)
            }
        }
    }

    /// Registers of operands: all vary, splat where needed, or none does.
    fn operands<const N: usize>(&mut self, ids: [ExprId; N]) -> ([usize; N], bool) {
        let values = ids.map(|id| self.value(id));
        let varies = values.iter().any(|v| v.varies);
        let mut registers = values.map(|v| v.register);
        for n in 0..N {
            if varies && !values[n].varies && !values[n].literal {
                registers[n] = self.splat(ids[n], values[n]);
            }
        }
        (registers, varies)
    }

    fn splat(&mut self, id: ExprId, value: Value) -> usize {
        if let Some(register) = self.splats[id.index()] {
            return register;
        }
        let splat = self.push(Code::Splat(value.register), true);
        self.splats[id.index()] = Some(splat.register);
        splat.register
    }

    fn literal(&mut self, lane: u32) -> Value {
        let register = self.virtuals;
        self.virtuals += 1;
        self.literals.push((register, lane));
        Value {
            register,
            varies: false,
            literal: true,
        }
    }

    fn int(&mut self, id: ExprId) -> Value {
        let inner = self.axes.extents.len().checked_sub(1);
        match &self.leaves.nodes[id.index()] {
            Leaf::Affine(a) => {
                let a = self.axes.affine(a);
                if a.slopes.iter().all(|&s| s == 0) {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "wrapping is what integers of 32 bits do"
                    )]
                    return self.literal(a.base as u32);
                }
                let varies = inner.is_some_and(|n| a.slopes[n] != 0);
                self.push(Code::Ramp(a), varies)
            }
            Leaf::Poly(p) => {
                let p = self.axes.poly(p);
                let varies = inner.is_some_and(|n| p.mentions(n));
                self.push(Code::Poly(p), varies)
            }
            Leaf::None | Leaf::Load(..) => unreachable!("the leaf of an integer"),
        }
    }

    fn load(&mut self, id: ExprId, operand: usize, dtype: DType) -> Value {
        let Leaf::Load(affine, parts) = &self.leaves.nodes[id.index()] else {
            unreachable!("the leaf of a load");
        };
        let affine = self.axes.affine(affine);
        let mut varies = affine.slopes.last().is_some_and(|&s| s != 0);
        let mut computed = Vec::new();
        for &(index, stride, checked) in parts {
            let value = self.value(index);
            varies |= value.varies;
            computed.push(Part {
                register: value.register,
                varies: value.varies,
                stride,
                checked,
            });
        }
        let load = Load {
            operand,
            dtype,
            affine,
            parts: computed,
        };
        self.push(Code::Load(load), varies)
    }

    fn push(&mut self, code: Code, varies: bool) -> Value {
        let dst = self.virtuals;
        self.virtuals += 1;
        self.code.push(Instr { code, dst, varies });
        Value {
            register: dst,
            varies,
            literal: false,
        }
    }
}

fn registers_of(code: &mut Code) -> Vec<&mut usize> {
    match code {
        Code::Arg | Code::Ramp(_) | Code::Poly(_) => Vec::new(),
        Code::Load(load) => load.parts.iter_mut().map(|p| &mut p.register).collect(),
        Code::Splat(a) | Code::Unary(_, _, a) | Code::Cast(_, _, a) => vec![a],
        Code::Binary(_, _, ab) | Code::Compare(_, _, ab) => ab.iter_mut().collect(),
        Code::Select(cab) => cab.iter_mut().collect(),
    }
}

/// Gives the values registers, each free again after its last reader; literals keep theirs.
fn allocate(tape: &mut Tape) {
    let mut last_use = vec![0; tape.registers];
    for (at, instr) in tape.code.iter_mut().enumerate() {
        for register in registers_of(&mut instr.code) {
            last_use[*register] = at;
        }
    }
    last_use[tape.result.0] = usize::MAX;
    let mut real = vec![usize::MAX; tape.registers];
    let mut count = 0;
    for (register, _) in &mut tape.literals {
        real[*register] = count;
        last_use[*register] = usize::MAX;
        *register = count;
        count += 1;
    }
    let mut free: Vec<usize> = Vec::new();
    for (at, instr) in tape.code.iter_mut().enumerate() {
        let reads: Vec<usize> = registers_of(&mut instr.code)
            .into_iter()
            .map(|r| *r)
            .collect();
        for register in registers_of(&mut instr.code) {
            *register = real[*register];
        }
        real[instr.dst] = free.pop().unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        instr.dst = real[instr.dst];
        // Freed after the destination is chosen: an instruction never writes what it reads.
        let mut done: Vec<usize> = reads.into_iter().filter(|&r| last_use[r] == at).collect();
        done.sort_unstable();
        done.dedup();
        free.extend(done.into_iter().map(|r| real[r]));
    }
    tape.result.0 = real[tape.result.0];
    tape.registers = count;
}
