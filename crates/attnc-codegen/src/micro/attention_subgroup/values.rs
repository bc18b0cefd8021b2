//! P V: what reads V, adds to O, scales and stores it.
//!
//! On entry: a tile that was checked. On exit: `load_v_where`, `v_is_odd`, `tile_add_v`, `tile_zero`, `tile_scale` and
//! `tile_store_o`.

use super::{SubgroupAttentionTile, row_at};
use crate::micro::lines;

impl SubgroupAttentionTile {
    pub(super) fn v_functions(&self) -> String {
        let chunks = self.chunks(self.v_dim);
        let selected = lines(chunks, |c| {
            format!("        select(vec4<f32>(), x.c{c}, keep),")
        });
        let kept = lines(self.keys, |k| {
            let row = row_at("v", k);
            format!(
                "        v_where(load_v({row}, lane), (facts & {}u) != 0u),",
                1 << k
            )
        });
        let adds = lines(self.rows(), |r| {
            let weights = lines(self.keys, |k| {
                format!(
                    "    let p{r}k{k} = {};\n    let next{r}k{k} = {};",
                    self.of_key("p", r, k),
                    self.of_key("p_next", r, k)
                )
            });
            let terms = |weight: &str, x: &str, c: u32| {
                let terms = (0..self.keys).map(|k| format!("{weight}{r}k{k} * {x}.k{k}.c{c}"));
                terms.collect::<Vec<_>>().join(" + ")
            };
            let sums = (0..chunks).map(|c| {
                let (now, next) = (terms("p", "x", c), terms("next", "x_next", c));
                format!("    (*out).r{r}c{c} += {now} + {next};")
            });
            weights + &sums.collect::<Vec<_>>().join("\n")
        });
        format!(
            "\
{}fn v_where(x: VRow, keep: bool) -> VRow {{
    return VRow(
{selected}    );
}}

// The lane's part of the rows of V from `at` on, zeros where a fact's bit is not set.
fn load_v_where(at: u32, last: u32, lane: u32, facts: u32) -> VRows {{
    return VRows(
{kept}    );
}}

{}// out += p * (rows of V) + p_next * (the next rows of V)
fn tile_add_v(out: ptr<function, OTile>, p: Rows, x: VRows, p_next: Rows, x_next: VRows) {{
{adds}}}

",
            self.columns()
                .load("v", "VRow", self.kv_stored(), self.v_dim),
            self.odd_function(),
        )
    }

    /// `v_is_odd`, which is false where no key counts for some rows only.
    fn odd_function(&self) -> String {
        let chunks = self.chunks(self.v_dim);
        let odd = |k: u32| {
            let of_four = |c: u32| {
                let bits = format!("bitcast<vec4<u32>>(x.k{k}.c{c})");
                format!("any(({bits} & vec4<u32>(EXPONENT)) == vec4<u32>(EXPONENT))")
            };
            let any = (0..chunks).map(of_four).collect::<Vec<_>>().join(" || ");
            format!("((facts & {}u) != 0u && ({any}))", 1 << k)
        };
        let odd = match self.masked {
            true => (0..self.keys).map(odd).collect::<Vec<_>>().join(" || "),
            false => "false".to_owned(),
        };
        format!(
            "\
const EXPONENT: u32 = 0x7f800000u;

// Whether the lane's part of a row has an infinity or NaN, and the row's bit is set. By bits of the numbers, since WGSL
// may assume that there are none.
fn v_is_odd(x: VRows, facts: u32) -> bool {{
    return {odd};
}}

"
        )
    }

    pub(super) fn o_functions(&self) -> String {
        let chunks = self.chunks(self.v_dim);
        let scales = lines(self.rows(), |r| {
            let fields = (0..chunks).map(|c| format!("    (*out).r{r}c{c} *= factor{r};"));
            format!(
                "    let factor{r} = {};\n{}",
                self.of_row("factor", r),
                fields.collect::<Vec<_>>().join("\n")
            )
        });
        let stores = lines(self.rows(), |r| {
            let fields: Vec<_> = (0..chunks).map(|c| format!("tile.r{r}c{c}")).collect();
            format!(
                "    let at{r} = {};\n    let factor{r} = {};\n    if first <= {r}u && {r}u < end {{\n        store_o(at{r}, lane, factor{r}, {});\n    }}",
                self.of_row("at", r),
                self.of_row("factor", r),
                fields.join(", ")
            )
        });
        format!(
            "\
fn tile_zero() -> OTile {{
    return OTile();
}}

fn tile_scale(out: ptr<function, OTile>, factor: Rows) {{
{scales}}}

{}// Rows `first` to `end - 1`.
fn tile_store_o(at: RowIndex, lane: u32, first: u32, end: u32, tile: OTile, factor: Rows) {{
{stores}}}
",
            self.columns().store("o", self.result, self.v_dim)
        )
    }
}
