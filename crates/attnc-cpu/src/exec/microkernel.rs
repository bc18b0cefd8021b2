//! The innermost loops of matrix products: a few rows times two vectors of columns, all in registers.
//!
//! `C[i, j] += Σ_k A[i, k] B[k, j]` for `MR` rows and `NR` columns, where `NR` is two vectors: each step loads
//! two vectors of B and multiplies them by a number of each row of A. With 32 registers 24 of them hold C, with
//! 16, 12; so a step loads little for what it computes. Shapes and loops around it: Goto and van de Geijn,
//! "Anatomy of High-Performance Matrix Multiplication", 2008, and Van Zee and van de Geijn, "BLIS", 2015.
//!
//! Where B is given by its columns ([`dots`]), as keys are, and rows are too few to pay for packing it, vectors
//! run along k and are summed at the end.
//!
//! Vectors are those of `pulp`: safe, and as wide as the machine has them. What uses them must be inlined into a
//! function that is compiled for them, so there are no closures here but those that give addresses.

use pulp::Simd;

/// Rows of a result, each as long as the result is wide.
pub(crate) trait Target {
    /// A row.
    fn row(&mut self, i: usize) -> &mut [f32];

    /// The first rows.
    fn rows<const N: usize>(&mut self) -> [&mut [f32]; N];
}

/// Rows at even distances.
#[derive(Debug)]
pub(crate) struct Strided<'a> {
    data: &'a mut [f32],
    stride: usize,
    cols: usize,
}

impl<'a> Strided<'a> {
    /// Rows of `cols` elements that begin at multiples of `stride`.
    pub(crate) fn new(data: &'a mut [f32], stride: usize, cols: usize) -> Self {
        Self { data, stride, cols }
    }
}

impl Target for Strided<'_> {
    #[inline(always)]
    fn row(&mut self, i: usize) -> &mut [f32] {
        &mut self.data[i * self.stride..][..self.cols]
    }

    #[inline(always)]
    fn rows<const N: usize>(&mut self) -> [&mut [f32]; N] {
        let mut rows = self.data.chunks_mut(self.stride);
        std::array::from_fn(|_| &mut rows.next().expect("as many rows")[..self.cols])
    }
}

impl Target for &mut [&mut [f32]] {
    #[inline(always)]
    fn row(&mut self, i: usize) -> &mut [f32] {
        self[i]
    }

    #[inline(always)]
    fn rows<const N: usize>(&mut self) -> [&mut [f32]; N] {
        let mut rows = self.iter_mut();
        std::array::from_fn(|_| &mut **rows.next().expect("as many rows"))
    }
}

/// Columns of a panel.
#[inline(always)]
pub(crate) fn panel_width<S: Simd>() -> usize {
    2 * S::F32_LANES
}

/// The most rows at a time: as many as leave registers for the two vectors of B and a number of A.
#[inline(always)]
pub(crate) fn most_rows<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 { 12 } else { 6 }
}

/// Two vectors of columns of B: row `k` is the two vectors from `k * stride` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) stride: usize,
}

/// `C += A B`, or `C = A B` where `keep` is false, for the rows of `a`, at most [`most_rows`], and the columns of
/// `b`; C is the part of `out` from row `at[0]` and column `at[1]` on, as wide as there are columns left.
#[inline(always)]
pub(crate) fn rows_by_panel<'a, S: Simd>(
    simd: S,
    a: impl Fn(usize) -> &'a [f32],
    rows: usize,
    b: Panel<'_>,
    keep: bool,
    at: [usize; 2],
    out: &mut impl Target,
) {
    macro_rules! by_rows {
        ($($n:literal)*) => {
            match rows {
                $($n if $n <= most_rows::<S>() => block::<S, $n>(simd, a, b, keep, at, out),)*
                _ => unreachable!("at most as many rows as registers hold"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11 12);
}

#[expect(
    clippy::needless_range_loop,
    reason = "loops of a constant number of rounds, which keep `c` in registers"
)]
#[inline(always)]
fn block<'a, S: Simd, const MR: usize>(
    simd: S,
    a: impl Fn(usize) -> &'a [f32],
    b: Panel<'_>,
    keep: bool,
    at: [usize; 2],
    out: &mut impl Target,
) {
    let width = panel_width::<S>();
    let depth = a(0).len();
    let mut rows: [&[f32]; MR] = [&[]; MR];
    for i in 0..MR {
        // Of one length that is in sight, so that the loop below checks none.
        rows[i] = &a(i)[..depth];
    }
    let c = if b.stride == width {
        let (vectors, _) = S::as_simd_f32s(b.data);
        accumulate(simd, rows, depth, vectors.chunks_exact(2))
    } else {
        let steps = b.data.chunks(b.stride);
        accumulate(
            simd,
            rows,
            depth,
            steps.map(|b| S::as_simd_f32s(&b[..width]).0),
        )
    };
    for i in 0..MR {
        let row = &mut out.row(at[0] + i)[at[1]..];
        let width = row.len().min(width);
        store(simd, c[i], keep, &mut row[..width]);
    }
}

/// The sums over `depth` steps, each of them two vectors of B.
#[inline(always)]
fn accumulate<'b, S: Simd, const MR: usize>(
    simd: S,
    a: [&[f32]; MR],
    depth: usize,
    b: impl Iterator<Item = &'b [S::f32s]>,
) -> [[S::f32s; 2]; MR] {
    let mut c = [[simd.splat_f32s(0.0); 2]; MR];
    for (k, b) in (0..depth).zip(b) {
        for i in 0..MR {
            let x = simd.splat_f32s(a[i][k]);
            c[i][0] = simd.mul_add_e_f32s(x, b[0], c[i][0]);
            c[i][1] = simd.mul_add_e_f32s(x, b[1], c[i][1]);
        }
    }
    c
}

/// The two vectors into a row that may be shorter.
#[inline(always)]
fn store<S: Simd>(simd: S, c: [S::f32s; 2], keep: bool, row: &mut [f32]) {
    if row.len() == panel_width::<S>() {
        let (row, _) = S::as_mut_simd_f32s(row);
        for n in 0..2 {
            row[n] = if keep {
                simd.add_f32s(row[n], c[n])
            } else {
                c[n]
            };
        }
        return;
    }
    let (low, high) = row.split_at_mut(S::F32_LANES.min(row.len()));
    store_part(simd, c[0], keep, low);
    store_part(simd, c[1], keep, high);
}

#[inline(always)]
fn store_part<S: Simd>(simd: S, c: S::f32s, keep: bool, part: &mut [f32]) {
    if keep {
        let c = simd.add_f32s(simd.partial_load_f32s(part), c);
        simd.partial_store_f32s(part, c);
    } else {
        simd.partial_store_f32s(part, c);
    }
}

/// As [`rows_by_panel`] for one row of A and B given by its columns: `out[j] = a · column(j)`.
#[inline(always)]
pub(crate) fn dots<'a, S: Simd>(
    simd: S,
    a: &[f32],
    column: impl Fn(usize) -> &'a [f32],
    keep: bool,
    out: &mut [f32],
) {
    const AT_ONCE: usize = 4;
    let groups = out.len() / AT_ONCE * AT_ONCE;
    let (together, rest) = out.split_at_mut(groups);
    for (n, out) in together.chunks_exact_mut(AT_ONCE).enumerate() {
        let columns = std::array::from_fn(|j| column(n * AT_ONCE + j));
        dot::<S, AT_ONCE>(simd, a, columns, keep, out);
    }
    for (n, out) in rest.chunks_exact_mut(1).enumerate() {
        dot::<S, 1>(simd, a, [column(groups + n)], keep, out);
    }
}

#[inline(always)]
fn dot<S: Simd, const N: usize>(
    simd: S,
    a: &[f32],
    columns: [&[f32]; N],
    keep: bool,
    out: &mut [f32],
) {
    let (a, a_tail) = S::as_simd_f32s(a);
    let mut sums = [simd.splat_f32s(0.0); N];
    let columns = columns.map(|column| S::as_simd_f32s(column));
    let vectors = columns.map(|(column, _)| &column[..a.len()]);
    for (k, &x) in a.iter().enumerate() {
        for (sum, column) in sums.iter_mut().zip(vectors) {
            *sum = simd.mul_add_e_f32s(x, column[k], *sum);
        }
    }
    for ((sum, (_, tail)), out) in sums.into_iter().zip(columns).zip(out) {
        let tail = a_tail.iter().zip(tail).map(|(a, b)| a * b);
        let sum = simd.reduce_sum_f32s(sum) + tail.sum::<f32>();
        *out = if keep { *out + sum } else { sum };
    }
}
