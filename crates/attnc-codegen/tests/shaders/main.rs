//! The shader side of code generation: linking, register tiles, validation, barrier lint. No device.

mod images;
mod languages;
mod link;
mod lint;
mod micro;
mod parts;
mod schedule;
mod staged;
mod subgroup;
mod tiled;
mod validate;

use attnc_codegen::link::Linker;

/// A linker whose `params` are the default ones.
fn linker(kernel: &str) -> Linker {
    Linker::new(kernel).module_file("params", "params/default")
}
