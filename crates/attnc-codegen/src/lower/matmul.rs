//! Matrix products: which axes are batch, rows and columns, and how operands are read.
//!
//! Batch axes that lie behind each other in memory in A, B and C are one axis; a batch axis along which B
//! repeats and A and C continue their rows is more rows. So `[B, S, K] × [K, N]` is one product of B·S rows.
//!
//! Kernels take two batch axes. An operand that is no strided window (a merge of transposed axes, say),
//! or whose batch axes are more than two, is read element by element, at whatever index they have.

use super::matmul_kernel::MatmulNeeds;
use super::{constant, div_ceil, multiple_of_4};
use crate::Stored;
use crate::micro::{Access, Division, LeftLoad, MatmulTile, RightLoad};
use crate::stored::multiple_of;
use attnc_ir::layout::{self, storage_strides};
use attnc_ir::{Diagnostic, Dim, Graph, ValueId};
use attnc_plan::Uniform;

/// One axis of the product with its strides in A, B and C. `None`: that operand is read element by element.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    size: Dim,
    a: Option<Dim>,
    b: Option<Dim>,
    c: Dim,
    /// Whether B is the same along it.
    b_repeats: bool,
    /// The axes of the result that it stands for, outermost first.
    pub(super) axes: Vec<usize>,
}

impl Axis {
    /// An axis of length 1.
    fn unit() -> Self {
        Self {
            size: Dim::one(),
            a: Some(Dim::zero()),
            b: Some(Dim::zero()),
            c: Dim::zero(),
            b_repeats: true,
            axes: Vec::new(),
        }
    }

    /// Whether this axis continues `inner`: a step of it is `inner.size` steps of that.
    fn continues(&self, inner: &Self) -> bool {
        let follows = |outer: &Option<Dim>, inner_stride: &Option<Dim>| match (outer, inner_stride)
        {
            (Some(o), Some(i)) => *o == inner.size.clone() * i.clone(),
            (None, None) => true,
            _ => false,
        };
        follows(&self.a, &inner.a)
            && follows(&self.b, &inner.b)
            && self.c == inner.size.clone() * inner.c.clone()
    }

    /// This axis and `inner` as one.
    fn join(self, inner: Self) -> Self {
        Self {
            size: self.size * inner.size,
            axes: [self.axes, inner.axes].concat(),
            b_repeats: self.b_repeats && inner.b_repeats,
            ..inner
        }
    }
}

/// The product as kernels see it.
pub(super) struct Problem {
    pub(super) b0: Axis,
    pub(super) b1: Axis,
    pub(super) m: Axis,
    pub(super) n: Dim,
    pub(super) k: Dim,
    a_offset: Dim,
    pub(super) a_k: Option<Dim>,
    b_offset: Dim,
    pub(super) b_k: Option<Dim>,
    b_n: Option<Dim>,
    c_n: Dim,
}

impl Problem {
    pub(super) fn of(graph: &Graph, value: ValueId) -> Result<Self, Diagnostic> {
        let node = graph.node(value);
        let shape = &node.ty.shape;
        let rank = shape.len();
        let [a, b] = [node.operands()[0], node.operands()[1]];
        let (a_layout, b_layout) = (layout::resolve(graph, a), layout::resolve(graph, b));
        let (a_shape, b_shape) = (&graph.ty(a).shape, &graph.ty(b).shape);
        let strides = |l: &Option<layout::Layout>, shape: &[Dim]| {
            l.as_ref().map(|l| aligned(&l.strides, shape, rank))
        };
        let (a_strides, b_strides) = (strides(&a_layout, a_shape), strides(&b_layout, b_shape));
        let at = |strides: &Option<Vec<Dim>>, n: usize| strides.as_ref().map(|s| s[n].clone());
        let c_strides = storage_strides(shape, node.storage.as_deref());
        let axis = |n: usize| Axis {
            size: shape[n].clone(),
            a: at(&a_strides, n),
            b: at(&b_strides, n),
            c: c_strides[n].clone(),
            b_repeats: repeats(b_shape, rank, n),
            axes: vec![n],
        };
        let m = Axis {
            b: Some(Dim::zero()),
            b_repeats: true,
            ..axis(rank - 2)
        };
        // In memory order, so that neighbours in C meet; the order of batch axes means nothing else.
        let order = node.storage.clone().unwrap_or_else(|| (0..rank).collect());
        let batch = order
            .into_iter()
            .filter(|&n| n < rank - 2 && !shape[n].is(1));
        let batch: Vec<_> = batch.map(axis).collect();
        let (a_by_element, b_by_element, [b0, b1], m) = two_axes(&batch, &m)?;
        let a_strides = a_strides.filter(|_| !a_by_element);
        let b_strides = b_strides.filter(|_| !b_by_element);
        let offset =
            |l: &Option<layout::Layout>| l.as_ref().map_or_else(Dim::zero, |l| l.offset.clone());
        Ok(Self {
            b0,
            b1,
            m,
            n: shape[rank - 1].clone(),
            k: a_shape[a_shape.len() - 1].clone(),
            a_offset: offset(&a_layout),
            a_k: at(&a_strides, rank - 1),
            b_offset: offset(&b_layout),
            b_k: at(&b_strides, rank - 2),
            b_n: at(&b_strides, rank - 1),
            c_n: c_strides[rank - 1].clone(),
        })
    }

    /// A tile of one vector, with loads by vectors wherever strides and sizes are multiples of 4.
    pub(super) fn tile(&self) -> MatmulTile {
        let batch = |f: fn(&Axis) -> Option<&Dim>, axes: &[&Axis]| {
            axes.iter().all(|axis| f(axis).is_some_and(multiple_of_4))
        };
        let k_in_fours = multiple_of_4(&self.k);
        let a_rows = batch(|x| x.a.as_ref(), &[&self.b0, &self.b1, &self.m]);
        let is_one = |stride: &Option<Dim>| stride.as_ref().is_some_and(|s| s.is(1));
        let fours = |stride: &Option<Dim>| stride.as_ref().is_some_and(multiple_of_4);
        let a = match &self.a_k {
            None => LeftLoad::Element,
            Some(k) if k.is(1) && k_in_fours && a_rows && multiple_of_4(&self.a_offset) => {
                LeftLoad::KVec4
            }
            Some(_) => LeftLoad::Scalar,
        };
        let b_start =
            batch(|x| x.b.as_ref(), &[&self.b0, &self.b1]) && multiple_of_4(&self.b_offset);
        let b = if self.b_k.is_none() {
            RightLoad::Element
        } else if is_one(&self.b_n) && multiple_of_4(&self.n) && fours(&self.b_k) && b_start {
            RightLoad::NVec4
        } else if is_one(&self.b_k) && k_in_fours && fours(&self.b_n) && b_start {
            RightLoad::KVec4
        } else {
            RightLoad::Scalar
        };
        let c_rows = [&self.b0, &self.b1, &self.m];
        let c_in_fours = self.c_n.is(1)
            && multiple_of_4(&self.n)
            && c_rows.iter().all(|axis| multiple_of_4(&axis.c));
        MatmulTile {
            rows: 1,
            columns: 4,
            division: Division::Rows,
            a,
            b,
            c: if c_in_fours {
                Access::Vec4
            } else {
                Access::Scalar
            },
            a_image: false,
            b_image: false,
            operands: Stored::F32,
            c_eights: false,
            epilogue: Access::Scalar,
            result: Stored::F32,
            k_tail: !k_in_fours,
        }
    }

    /// Whether rows of B may be read by eights.
    pub(super) fn b_by_eights(&self) -> bool {
        let eights = |stride: &Option<Dim>| stride.as_ref().is_some_and(|s| multiple_of(s, 8));
        let is_row = self.b_n.as_ref().is_some_and(|s| s.is(1)) && multiple_of(&self.n, 8);
        is_row
            && multiple_of(&self.b_offset, 8)
            && [&self.b0.b, &self.b1.b, &self.b_k].into_iter().all(eights)
    }

    /// Whether rows of C may be written by eights.
    pub(super) fn c_by_eights(&self) -> bool {
        let strides = [&self.b0.c, &self.b1.c, &self.m.c, &self.n];
        self.c_n.is(1) && strides.into_iter().all(|s| multiple_of(s, 8))
    }

    /// Where B is a matrix that lies in memory as a whole: the axis of it that sums run along.
    pub(super) fn whole_b(&self) -> Option<u32> {
        let is = |stride: &Option<Dim>, expected: &Dim| stride.as_ref() == Some(expected);
        let whole = [&self.b0.b, &self.b1.b]
            .into_iter()
            .all(|b| is(b, &Dim::zero()));
        let one = Dim::one();
        let by_rows = is(&self.b_k, &self.n) && is(&self.b_n, &one);
        let by_columns = is(&self.b_k, &one) && is(&self.b_n, &self.k);
        match whole && self.b_offset.is(0) {
            true if by_rows => Some(0),
            true if by_columns => Some(1),
            _ => None,
        }
    }

    /// The same product with B in panels of so many columns.
    pub(super) fn with_panels(self, columns: u32) -> Self {
        Self {
            b_k: Some(Dim::from(i64::from(columns))),
            b_n: Some(self.k.clone()),
            ..self
        }
    }

    /// The words of `Shape`, in order.
    pub(super) fn uniforms(&self) -> Vec<Uniform> {
        let or_zero = |stride: &Option<Dim>| stride.clone().unwrap_or_default();
        let (b0, b1, m) = (&self.b0, &self.b1, &self.m);
        let sizes = [&b0.size, &b1.size, &m.size, &self.n, &self.k].map(Dim::clone);
        let a = [&b0.a, &b1.a, &m.a, &self.a_k].map(or_zero);
        let b = [&b0.b, &b1.b, &self.b_k, &self.b_n].map(or_zero);
        let c = [&b0.c, &b1.c, &m.c, &self.c_n].map(Dim::clone);
        let mut words = sizes.to_vec();
        words.push(self.a_offset.clone());
        words.extend(a);
        words.push(self.b_offset.clone());
        words.extend(b);
        words.push(Dim::zero());
        words.extend(c);
        words.into_iter().map(Uniform::U32).collect()
    }

    /// Rows of a product.
    pub(super) fn rows(&self) -> &Dim {
        &self.m.size
    }

    pub(super) fn batches(&self) -> Dim {
        self.b0.size.clone() * self.b1.size.clone()
    }

    /// Register tiles that cover the result.
    pub(super) fn tiles(&self, rows: u32, columns: u32) -> Dim {
        self.batches() * div_ceil(&self.m.size, rows) * div_ceil(&self.n, columns)
    }

    /// What there is to choose a kernel for: `matmul.f32, any × 384 × 1536, B by columns`.
    pub(super) fn text(&self, types: &str, needs: &MatmulNeeds) -> String {
        let size = |n: Option<u32>| n.map_or("any".to_owned(), |n| n.to_string());
        let m = match (constant(&self.m.size), needs.m) {
            (None, Some(few)) => format!("at most {few}"),
            (_, m) => size(m),
        };
        let [k, n] = [&self.k, &self.n].map(|dim| size(constant(dim)));
        let (sizes, tile) = (format!("{m} × {k} × {n}"), &needs.tile);
        let a = match tile.a {
            LeftLoad::KVec4 => "",
            LeftLoad::Scalar => ", A one by one",
            LeftLoad::Element => ", A by a function",
        };
        let b = match tile.b {
            RightLoad::NVec4 | RightLoad::NVec8 => "",
            RightLoad::KVec4 => ", B by columns",
            RightLoad::Panels { .. } => ", B in panels",
            RightLoad::Scalar => ", B one by one",
            RightLoad::Element => ", B by a function",
        };
        let c = match tile.c {
            Access::Vec4 => "",
            Access::Scalar => ", C one by one",
        };
        format!("matmul.{types}, {sizes}{a}{b}{c}")
    }

    /// Operations of the product, and `epilogue` more an element.
    pub(super) fn flops(&self, epilogue: usize) -> Dim {
        let cost = Dim::from(2) * self.k.clone() + Dim::from(epilogue);
        self.batches() * self.m.size.clone() * self.n.clone() * cost
    }
}

/// Strides with zeros in front and along axes of length 1, so that all operands have `rank` of them.
fn aligned(strides: &[Dim], shape: &[Dim], rank: usize) -> Vec<Dim> {
    let mut out = vec![Dim::zero(); rank - strides.len()];
    let own = strides.iter().zip(shape);
    out.extend(own.map(|(s, d)| if d.is(1) { Dim::zero() } else { s.clone() }));
    out
}

/// Whether an operand of that shape is broadcast along axis `n` of a result of `rank` axes.
fn repeats(shape: &[Dim], rank: usize, n: usize) -> bool {
    (n + shape.len())
        .checked_sub(rank)
        .is_none_or(|own| shape[own].is(1))
}

/// Joins batch axes with their neighbours and with the rows, as far as memory allows.
fn merge(mut batch: Vec<Axis>, mut m: Axis) -> (Vec<Axis>, Axis) {
    let mut n = batch.len();
    while n >= 2 {
        n -= 1;
        if batch[n - 1].continues(&batch[n]) {
            let inner = batch.remove(n);
            let outer = batch.remove(n - 1);
            batch.insert(n - 1, outer.join(inner));
        }
    }
    while let Some(last) = batch.last() {
        let rows_of_b = Axis {
            b: Some(Dim::zero()),
            ..last.clone()
        };
        let repeats = last.b_repeats || last.b.as_ref().is_some_and(|s| s.is(0));
        if !(repeats && rows_of_b.continues(&m)) {
            break;
        }
        batch.pop();
        m = rows_of_b.join(m);
    }
    (batch, m)
}

/// At most two batch axes, giving up the strides of A, of B or of both where they keep axes apart. Says
/// whose were given up.
fn two_axes(batch: &[Axis], m: &Axis) -> Result<(bool, bool, [Axis; 2], Axis), Diagnostic> {
    let mut left = 0;
    for (no_a, no_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let without = |axis: &Axis, rows: bool| Axis {
            a: axis.a.clone().filter(|_| !no_a),
            // Rows are no axis of B: along them it repeats.
            b: axis.b.clone().filter(|_| !no_b || rows),
            ..axis.clone()
        };
        let axes = batch.iter().map(|axis| without(axis, false)).collect();
        let (axes, rows) = merge(axes, without(m, true));
        left = axes.len();
        let mut axes = axes.into_iter();
        let two = match (axes.next(), axes.next(), axes.len()) {
            (None, ..) => [Axis::unit(), Axis::unit()],
            (Some(b1), None, _) => [Axis::unit(), b1],
            (Some(b0), Some(b1), 0) => [b0, b1],
            _ => continue,
        };
        return Ok((no_a, no_b, two, rows));
    }
    Err(Diagnostic::error(
        "too-many-batch-axes",
        format!(
            "`matmul` writes 2 batch axes that do not lie behind each other in memory, found {left}"
        ),
    )
    .note("leave the result in the order of its axes"))
}
