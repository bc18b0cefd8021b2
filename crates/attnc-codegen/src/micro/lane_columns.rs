//! Columns of a row by lanes: which a lane has, and the functions that load and store them.
//!
//! A lane has its columns by fours. By default those of one load of all lanes are side by side: lane `i` has columns
//! `4 i`, `4 (i + width)`, and so on. By eights it has two fours in a row, `8 i` to `8 i + 7`, which
//! [`Stored::F32Pairs`] reads by one load.
//!
//! On entry: numbers of columns that are multiples of 4, or of 8 by eights. On exit: WGSL that stays within the row.

use super::{Converter, lines};
use crate::Stored;
use std::fmt::Write as _;

/// How the lanes of a workgroup share out columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LaneColumns {
    /// Lanes.
    pub(super) width: u32,
    /// Whether a lane's columns come by eights.
    pub(super) eights: bool,
}

impl LaneColumns {
    /// Neighbouring columns of a lane.
    fn run(self) -> u32 {
        if self.eights { 8 } else { 4 }
    }

    /// Fours of a lane, for a row of so many columns.
    pub(super) fn chunks(self, columns: u32) -> u32 {
        columns.div_ceil(self.run() * self.width) * (self.run() / 4)
    }

    /// Whether a row's columns are as many fours a lane by eights as they are by fours.
    pub(super) fn suits_eights(width: u32, columns: u32) -> bool {
        let by = |eights| Self { width, eights }.chunks(columns);
        columns.is_multiple_of(8) && by(true) == by(false)
    }

    /// The four number `c` of a lane, counted in fours from the start of the row; and how many lanes have one.
    fn four(self, c: u32, columns: u32) -> (String, u32) {
        let (n, part) = match self.eights {
            true => (c / 2, c % 2),
            false => (c, 0),
        };
        let lanes = (columns / self.run())
            .saturating_sub(n * self.width)
            .min(self.width);
        let first = n * self.width * (self.run() / 4) + part;
        let lane = if self.eights { "2u * lane" } else { "lane" };
        (format!("{lane} + {first}u"), lanes)
    }

    /// `load_x(at, lane)`, which gives a `slice`: a lane's columns of the row at `at`; past the last column, zeros.
    pub(super) fn load_by_fours(
        self,
        operand: &str,
        slice: &str,
        stored: Stored,
        dim: u32,
    ) -> String {
        let loads = lines(self.chunks(dim), |c| {
            let (four, lanes) = self.four(c, dim);
            if lanes == self.width {
                let load = stored.load_vec4(operand, &format!("at / 4u + {four}"));
                return format!("        {load},");
            }
            let clamped = four.replace("lane", &format!("min(lane, {}u)", lanes - 1));
            let load = stored.load_vec4(operand, &format!("at / 4u + {clamped}"));
            format!("        select(vec4<f32>(), {load}, lane < {lanes}u),")
        });
        format!(
            "fn load_{operand}(at: u32, lane: u32) -> {slice} {{\n    return {slice}(\n{loads}    );\n}}\n\n"
        )
    }

    /// The same by eights.
    fn load_by_eights(self, operand: &str, slice: &str, stored: Stored, dim: u32) -> String {
        let eights = self.chunks(dim) / 2;
        let lanes = |n: u32| self.four(2 * n, dim).1;
        let loads = lines(eights, |n| {
            let lane = match lanes(n) {
                all if all == self.width => "lane".to_owned(),
                some => format!("min(lane, {}u)", some - 1),
            };
            let item = format!("at / 8u + {lane} + {}u", n * self.width);
            format!("    let x{n} = {};", stored.load_vec8(operand, &item))
        });
        let fields = lines(2 * eights, |c| {
            let half = format!("x{}.{}", c / 2, ["low", "high"][(c % 2) as usize]);
            match lanes(c / 2) {
                all if all == self.width => format!("        {half},"),
                some => format!("        select(vec4<f32>(), {half}, lane < {some}u),"),
            }
        });
        format!(
            "fn load_{operand}(at: u32, lane: u32) -> {slice} {{\n{loads}    return {slice}(\n{fields}    );\n}}\n\n"
        )
    }

    /// `load_x(at, lane)` by the widest loads there are.
    pub(super) fn load(self, operand: &str, slice: &str, stored: Stored, dim: u32) -> String {
        match self.eights {
            true => self.load_by_eights(operand, slice, stored, dim),
            false => self.load_by_fours(operand, slice, stored, dim),
        }
    }

    /// The WGSL type of the items that [`load`](Self::load) reads.
    pub(super) fn item(self, stored: Stored) -> &'static str {
        match self.eights {
            true => stored.vec8(),
            false => stored.vec4(),
        }
    }

    /// The function that [`load`](Self::load) reads items by, if any.
    pub(super) fn reader(self, stored: Stored) -> Option<Converter> {
        match self.eights {
            true => stored.reader_of_eights(),
            false => stored.reader(super::Access::Vec4),
        }
    }

    /// `store_x(at, lane, factor, c0, c1, ...)`: a lane's columns of the row at `at`, times `factor`.
    pub(super) fn store(self, operand: &str, stored: Stored, dim: u32) -> String {
        let mut parameters = String::new();
        let stores = lines(self.chunks(dim), |c| {
            let (four, lanes) = self.four(c, dim);
            let x = stored.vec4_of(&format!("(c{c} * factor)"));
            let store = format!("{operand}[at / 4u + {four}] = {x};");
            if lanes == self.width {
                format!("    {store}")
            } else {
                format!("    if lane < {lanes}u {{\n        {store}\n    }}")
            }
        });
        for c in 0..self.chunks(dim) {
            let _ = write!(parameters, ", c{c}: vec4<f32>");
        }
        format!(
            "fn store_{operand}(at: u32, lane: u32, factor: f32{parameters}) {{\n{stores}}}\n\n"
        )
    }
}
