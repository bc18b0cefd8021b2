//! Products with weights of the model: where devices bring them into panels, of every width there is, from rows and
//! from columns, in every type; weights that something else reads too stay as they are.

use super::{Family, Lengths};
use std::fmt::Write as _;

/// An element type: its name, its bits from 0.25 on, those of its mantissa, and how exact results are.
type Type = (&'static str, u32, u32, f64);

const F32: Type = ("f32", 0x3e80_0000, 23, 2e-5);
const F16: Type = ("f16", 0x3400, 10, 2.0 / 1024.0);
const BF16: Type = ("bf16", 0x3e80, 7, 2.0 / 128.0);

pub(super) fn families() -> Vec<Family> {
    let of = |(dtype, k, n): (Type, usize, usize), by_columns: bool| {
        let (ty, rtol) = (dtype.0, dtype.3);
        let (shape, b, view) = match by_columns {
            false => ([k, n], "%w", ""),
            true => ([n, k], "%b", "  %b = transpose %w, perm = [1, 0]\n"),
        };
        let text = format!(
            "graph @g(%a: {ty}[B, M, {k}], %bias: {ty}[{n}], %rest: {ty}[B, M, {n}]) {{
  %w = {}
{view}  %c = matmul %a, {b}
  %d = add %c, %bias
  %e = gelu %d
  %f = add %e, %rest
  return %f
}}",
            weight(dtype, shape)
        );
        let order = if by_columns { "columns" } else { "rows" };
        family(
            &format!("matmul by {order} of a weight of {k} x {n} in {ty}"),
            text,
            rtol,
        )
    };
    let mut all = Vec::new();
    // The last is more than a row of an image, and wide enough for the other side to be in one.
    for (k, n) in [(4, 4), (20, 24), (8, 48), (36, 96), (64, 128), (132, 160)] {
        all.extend([true, false].map(|by_columns| of((F32, k, n), by_columns)));
    }
    for dtype in [F16, BF16] {
        all.extend([true, false].map(|by_columns| of((dtype, 20, 64), by_columns)));
    }
    all.push(family(
        "matmul by a weight that is a table too",
        format!(
            "graph @g(%a: f32[B, M, 16], %ids: i32[B, M]) {{
  %w = {}
  %b = transpose %w, perm = [1, 0]
  %c = matmul %a, %b
  %rows = gather %w, %ids, axis = 0
  return %c, %rows
}}",
            weight(F32, [32, 16])
        ),
        F32.3,
    ));
    all
}

fn family(name: &str, text: String, rtol: f64) -> Family {
    Family {
        name: name.to_owned().leak(),
        text,
        lengths: vec![("B", Lengths::To(2)), ("M", Lengths::SmallEdges)],
        fills: Vec::new(),
        fused: 0,
        rtol,
        cases: 8,
    }
}

/// Numbers of either sign from 0.25 to 0.5, no two alike as far as the type goes.
fn weight((ty, quarter, mantissa, _): Type, [rows, columns]: [usize; 2]) -> String {
    let (bytes, sign) = if ty == "f32" { (4, 31) } else { (2, 15) };
    let mut hex = String::new();
    for i in 0..u32::try_from(rows * columns).expect("few") {
        let scattered = i.wrapping_mul(2_654_435_769);
        let bits = quarter + (scattered >> (32 - mantissa)) + ((scattered & 1) << sign);
        for byte in &bits.to_le_bytes()[..bytes] {
            let _ = write!(hex, "{byte:02x}");
        }
    }
    format!("constant {ty}[{rows}, {columns}] hex \"{hex}\"")
}
