//! Whole models, and properties over random inputs: everything from the file to the result.
//!
//! | trials | what they hold |
//! | --- | --- |
//! | `models/…` | real architectures: all attention fused, results within tolerance of the f64 oracle on both backends, nothing compiled for a second length, no N×N buffer, the same bytes twice |
//! | `corpus/…` | models nobody made for attnc: right on both backends, every refusal listed by name |
//! | `properties/…` | GPU = CPU = f64 oracle over ragged lengths, masks of every kind, garbage where no result may come from |
//! | `…, each shape` | the same with each kernel shape forced in turn, under profiles of other widths of subgroups |
//! | `skipping/…` | tiles of masked keys are not visited: counted by the kernel |
//! | `schedule/…` | tiles that workgroups take as they come are all computed, whatever turns their data ask for |
//! | `turns/…` | loops take no more turns than plans say, and nothing runs that takes more than the device does |
//!
//! What is missing on a machine makes its trials *ignored*, with the reason. `ATTNC_REQUIRE_GPU=1` makes
//! a missing adapter a failure, `ATTNC_REQUIRE_FETCH=1` a missing fetched model. `ATTNC_CORPUS=quick` adds
//! one exporter of each case of the corpus and every node test; `ATTNC_CORPUS=full` runs all of the corpus
//! and nothing else.
#![allow(
    clippy::print_stderr,
    reason = "measured figures are worth reading in the log of a run"
)]

mod corpus;
mod emulated;
mod forced;
mod models;
mod properties;
mod schedule;
mod skipping;
mod support;
mod turns;

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let gear = corpus::Gear::from_env();
    let mut trials = corpus::trials(gear);
    if gear == Some(corpus::Gear::Full) {
        trials.extend(models::real());
    } else {
        trials.extend(models::trials());
        trials.extend(properties::trials());
        trials.extend(skipping::trials());
        trials.extend(schedule::trials());
        trials.extend(turns::trials());
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    corpus::table::print();
    conclusion.exit();
}
