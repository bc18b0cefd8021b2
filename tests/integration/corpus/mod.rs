//! The corpus: models nobody made for attnc, each held to the result it came with, on both backends.
//!
//! | trials | what they hold |
//! | --- | --- |
//! | `corpus/exports/…` | exports of real architectures: right, and as much attention found and fused as there is |
//! | `corpus/node/…` | the node tests of ONNX: right within ONNX's own tolerance |
//! | `corpus/pairs/…` | an attention operator and its expanded body become one and the same kernel |
//! | `corpus/lengths/…` | one compile serves other batch sizes and lengths |
//!
//! There are two gears. *Quick*, in every `cargo xtask test`, takes one exporter of each case; *full*, in
//! `cargo xtask corpus`, takes everything. `ATTNC_CORPUS` says which; without it the corpus is one ignored
//! trial, so that a plain `cargo test` stays a matter of seconds.
//!
//! What is refused today is listed by name in [`known`]; an entry that starts to pass is a failure, so
//! that the list can only shrink.

mod exports;
mod known;
mod lengths;
mod node;
mod pairs;
pub(crate) mod table;
mod verdict;

use crate::support::{Outcome, absent, material, trial};
use libtest_mimic::Trial;

/// How much of the corpus runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gear {
    /// One exporter of each case, and every node test.
    Quick,
    /// Everything there is.
    Full,
}

impl Gear {
    /// What `ATTNC_CORPUS` asks for.
    pub(crate) fn from_env() -> Option<Self> {
        match std::env::var("ATTNC_CORPUS").as_deref() {
            Ok("quick") => Some(Self::Quick),
            Ok("full") => Some(Self::Full),
            _ => None,
        }
    }
}

pub(crate) fn trials(gear: Option<Gear>) -> Vec<Trial> {
    let Some(gear) = gear else {
        let why = "run by `cargo xtask test` and `cargo xtask corpus`";
        return vec![absent("corpus", why)];
    };
    let groups = [
        exports::trials(gear),
        node::trials(),
        pairs::trials(),
        lengths::trials(gear),
        vec![trial("corpus/known", &[], every_entry_is_of_use)],
    ];
    groups.into_iter().flatten().collect()
}

fn every_entry_is_of_use() -> Outcome {
    let (Some(_), Some(_)) = (material("exports"), material("onnx-node")) else {
        // The packages have a part of the models only.
        return Ok(());
    };
    let exports = exports::chosen(Gear::Full, |_| true);
    let exports = exports.iter().map(|e| format!("exports/{}", e.name()));
    let nodes = node::folders().unwrap_or_default();
    let nodes = nodes
        .iter()
        .map(|folder| format!("node/{}", node::name_of(folder)));
    known::each_is_of_use(&exports.chain(nodes).collect::<Vec<_>>())
}
