//! Four columns of a row at a time: the functions that load and store them, the last ones of a row where they are fewer.
//!
//! On entry: how an operand is read, and how many columns it has. On exit: `load_x(at, column)`, `load_x_tail`, and what
//! stores columns of O.

use crate::Stored;
use crate::micro::{Access, lines};

/// A function that stores the first `width` of four columns of the row of O at `at`.
pub(in crate::micro) fn store_function(
    name: &str,
    access: Access,
    stored: Stored,
    width: u32,
) -> String {
    let stores = match access {
        Access::Vec4 => {
            format!("    o[(at + column) / 4u] = {};\n", stored.vec4_of("x"))
        }
        Access::Scalar => lines(width, |i| {
            let component = ["x.x", "x.y", "x.z", "x.w"][i as usize];
            let item = stored.item_of(component);
            format!("    o[at + (column + {i}u) * shape.o_column_stride] = {item};")
        }),
    };
    format!("fn {name}(at: u32, column: u32, x: vec4<f32>) {{\n{stores}}}\n\n")
}

pub(super) fn chunks(dim: u32) -> u32 {
    dim.div_ceil(4)
}

/// Suffixes of the functions an operand needs: one for whole chunks, one for a last chunk in part.
pub(super) fn load_kinds(access: Access, dim: u32) -> Vec<&'static str> {
    let whole = dim >= 4;
    let tail = access == Access::Scalar && !dim.is_multiple_of(4);
    [whole.then_some(""), tail.then_some("_tail")]
        .into_iter()
        .flatten()
        .collect()
}

/// Suffix of the function for chunk `c`.
pub(super) fn tail_of(access: Access, dim: u32, c: u32) -> &'static str {
    if access == Access::Scalar && 4 * (c + 1) > dim {
        "_tail"
    } else {
        ""
    }
}

/// `load_q(at, column)`: four columns of the row that starts at `at`.
pub(super) fn load_functions(operand: &str, access: Access, stored: Stored, dim: u32) -> String {
    if access == Access::Vec4 {
        return format!(
            "\
fn load_{operand}(at: u32, column: u32) -> vec4<f32> {{
    return {};
}}

",
            stored.load_vec4(operand, "(at + column) / 4u")
        );
    }
    let print = |tail: &&str| {
        let width = if tail.is_empty() { 4 } else { dim % 4 };
        let elements = lines(4, |i| {
            if i < width {
                let at = format!("i + {i}u * stride");
                format!("        {},", stored.load(operand, &at))
            } else {
                "        0.0,".to_owned()
            }
        });
        format!(
            "\
fn load_{operand}{tail}(at: u32, column: u32) -> vec4<f32> {{
    let stride = shape.{operand}_column_stride;
    let i = at + column * stride;
    return vec4<f32>(
{elements}    );
}}

"
        )
    };
    load_kinds(access, dim).iter().map(print).collect()
}
