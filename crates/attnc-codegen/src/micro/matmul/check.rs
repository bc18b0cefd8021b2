//! Which tiles of products there are.
//!
//! On entry: any numbers. On exit: every reason why no kernel can have them.

use super::{Access, Division, LeftLoad, MatmulTile, RightLoad, Staged};
use crate::Stored;
use crate::micro::{Checks, MicroError};

impl MatmulTile {
    pub(super) fn check(&self) -> Result<(), MicroError> {
        let mut checks = Checks::default();
        self.check_division(&mut checks);
        let b_by_k = matches!(self.b, RightLoad::KVec4 | RightLoad::Panels { .. });
        let by_k = self.a == LeftLoad::KVec4 || b_by_k;
        checks.expect(!(by_k && self.k_tail), || {
            "k_tail: vectors along k need K in multiples of 4, found that it may not be".to_owned()
        });
        if let RightLoad::Panels { columns } = self.b {
            checks.expect(columns > 0 && columns.is_multiple_of(4), || {
                format!("b: panels need columns by fours, found {columns}")
            });
        }
        let a_image = self.a == LeftLoad::KVec4 && is_f32(self.operands);
        checks.expect(!self.a_image || a_image, || {
            format!("a_image: needs f32 by vectors, found {}", self.operands)
        });
        let b_vectors = b_by_k || self.b == RightLoad::NVec4;
        checks.expect(!self.b_image || b_vectors && is_f32(self.operands), || {
            format!(
                "b_image: needs f32 by vectors of four, found {}",
                self.operands
            )
        });
        let eights = self.columns.is_multiple_of(8) && self.operands == Stored::F32Pairs;
        let eights = eights && self.staged().is_none() && !self.k_tail;
        checks.expect(self.b != RightLoad::NVec8 || eights, || {
            format!(
                "b: by eights needs f32 by pairs, columns by eights and no tail of k, found {} and {} columns",
                self.operands, self.columns
            )
        });
        checks.expect(self.c == Access::Vec4 || !self.result.is_packed(), || {
            "c: words of two elements are written by vectors only".to_owned()
        });
        let eights = self.columns == 8 && self.result == Stored::F32Pairs;
        let eights = eights && self.c == Access::Vec4 && self.writes_rows();
        checks.expect(!self.c_eights || eights, || {
            format!(
                "c_eights: needs rows of 8 columns of f32 by pairs, found {} of {}",
                self.columns, self.result
            )
        });
        let alike = self.c == Access::Vec4 || self.epilogue == Access::Scalar;
        checks.expect(alike, || {
            "epilogue: vectors are computed only where C is written by vectors".to_owned()
        });
        checks.finish()
    }

    fn check_division(&self, checks: &mut Checks) {
        let Self { rows, columns, .. } = *self;
        let in_fours = [4, 8, 12, 16].contains(&columns);
        let mut vectors = |most: u32, some: bool| {
            checks.expect((1..=most).contains(&rows) && some, || {
                format!("rows: expected 1 to {most}, found {rows}")
            });
            checks.expect(in_fours, || {
                format!("columns: expected 4, 8, 12 or 16, found {columns}")
            });
        };
        match self.division {
            Division::Rows => vectors(16, true),
            Division::Lanes { count } => {
                vectors(16, true);
                checks.expect(count.is_power_of_two() && count <= 256, || {
                    format!("lanes: expected a power of two of at most 256, found {count}")
                });
            }
            Division::Subgroup { lanes } => {
                vectors(32, true);
                checks.expect(rows <= lanes || rows.is_multiple_of(lanes), || {
                    format!(
                        "rows: expected a row or as many a lane, found {rows} for {lanes} lanes"
                    )
                });
                let by_vectors = self.a == LeftLoad::KVec4;
                checks.expect([4, 8].contains(&lanes) && by_vectors, || {
                    format!("lanes: expected 4 or 8 that read A by vectors along k, found {lanes}")
                });
            }
            Division::Tiled(staged) => {
                vectors(8, rows % 4 == 0);
                staged.check(4, checks);
            }
            Division::Matrix {
                staged,
                size,
                lanes,
            } => {
                let whole = [8, 16].contains(&size) && rows % size == 0 && columns % size == 0;
                checks.expect(whole && rows > 0 && columns > 0 && lanes > 0, || {
                    format!("matrices: expected whole ones, found {rows} x {columns} by {size}")
                });
                checks.expect(self.operands == Stored::F16, || {
                    format!("operands: expected f16, found {}", self.operands)
                });
                staged.check(size, checks);
            }
        }
    }
}

fn is_f32(stored: Stored) -> bool {
    matches!(stored, Stored::F32 | Stored::F32Pairs)
}

impl Staged {
    fn check(&self, steps: u32, checks: &mut Checks) {
        let some = self.down > 0 && self.across > 0 && self.steps > 0;
        checks.expect(some && self.steps.is_multiple_of(steps.max(1)), || {
            format!("staged: expected tiles, and steps in {steps}s, found {self:?}")
        });
    }
}
