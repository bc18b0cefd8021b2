//! Prints the `micro` module: the register tile of a kernel, as straight-line WGSL.
//!
//! The split is BLIS's: the algorithm (macro-kernel) is a file of `shaders/kernels/`, the micro-kernel is
//! printed for a tile. Private arrays in loops stay in registers only as long as a driver's unroller does;
//! a struct of vectors with straight-line functions does so on every driver.
//!
//! ```
//! use attnc_codegen::link::Linker;
//! use attnc_codegen::micro::{Access, AttentionTile};
//!
//! let tile = AttentionTile::contiguous(4, 64);
//! let linked = Linker::new("flash_attention_fwd_rows")
//!     .module_file("params", "params/default")
//!     .module("micro", &tile.print().unwrap())
//!     .module_file("mods", "mods/score_identity")
//!     .module_file("mods", "mods/mask_causal")
//!     .module_file("mods", "mods/blocks_causal")
//!     .module_file("mods", "mods/fill_none")
//!     .module_file("walk", tile.walk().unwrap())
//!     .link()
//!     .unwrap();
//! assert!(attnc_codegen::validate::validate(&linked).is_ok());
//! ```
//!
//! On entry: any numbers. On exit: a module that its kernel's imports are satisfied by, whose every index
//! is in bounds if the kernel's uniform describes the bound buffers; or every reason why there is none.

mod attention;
mod attention_matrix;
mod attention_part;
mod attention_subgroup;
mod attention_tiled;
mod lane_columns;
mod matmul;
mod quads;
mod rows;

pub use attention::{AttentionTile, Weights};
pub(crate) use attention::{MAX_HELD, READ_COLUMNS};
pub use attention_matrix::MatrixAttentionTile;
pub use attention_part::CombineTile;
pub(crate) use attention_part::STATE;
pub use attention_subgroup::{KvLoads, SubgroupAttentionTile};
pub use attention_tiled::TiledAttentionTile;
pub use matmul::{Division, LeftLoad, MatmulTile, RightLoad, Staged};
pub(crate) use quads::LANES;

use crate::Stored;
use std::collections::{BTreeMap, BTreeSet};

/// How one operand's rows are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Four elements at once: the last axis has stride 1 and a size that is a multiple of 4, and the
    /// offset and all other strides are multiples of 4.
    Vec4,
    /// One element at a time, with any strides.
    Scalar,
}

impl Access {
    /// The WGSL type of the binding's items.
    fn item(self, stored: Stored) -> &'static str {
        match self {
            Self::Vec4 => stored.vec4(),
            Self::Scalar => stored.item(),
        }
    }

    /// The WGSL type of so many numbers.
    pub(crate) fn of_f32(self) -> &'static str {
        match self {
            Self::Vec4 => "vec4<f32>",
            Self::Scalar => "f32",
        }
    }
}

/// A function that makes values of items, or items of values: its file, as import lines spell it, and its name.
pub(crate) type Converter = (&'static str, &'static str);

/// Import lines for these functions.
fn imports(converters: impl IntoIterator<Item = Converter>) -> String {
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, name) in converters {
        names.entry(module).or_default().insert(name);
    }
    let line = |(module, names): (&str, BTreeSet<&str>)| {
        let names: Vec<_> = names.into_iter().collect();
        format!("import package::{module}::{{{}}};\n", names.join(", "))
    };
    names.into_iter().map(line).collect()
}

/// Why no module can be printed for a tile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such register tile: {}", problems.join("; "))]
pub struct MicroError {
    /// What was expected and found; never empty.
    pub problems: Vec<String>,
}

/// Collects what is wrong with a tile.
#[derive(Default)]
struct Checks(Vec<String>);

impl Checks {
    fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.0.push(problem());
        }
    }

    fn finish(self) -> Result<(), MicroError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(MicroError { problems: self.0 })
        }
    }
}

/// `f(0)`, `f(1)`, ... joined by `separator`.
fn list(count: u32, separator: &str, f: impl Fn(u32) -> String) -> String {
    (0..count).map(f).collect::<Vec<_>>().join(separator)
}

/// `f(0)`, `f(1)`, ... each on its own line.
pub(crate) fn lines(count: u32, f: impl Fn(u32) -> String) -> String {
    (0..count).map(|i| f(i) + "\n").collect()
}
