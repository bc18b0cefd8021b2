//! Lowers attnc graphs to linked, validated WGSL.
//!
//! * [`lower()`]: a graph to a [`Plan`](attnc_plan::Plan), which is kernels, buffers and dispatches.
//! * [`choice`]: which shape and tile of a kernel a problem gets.
//! * [`link`]: joins a kernel file of `shaders/` with generated modules.
//! * [`micro`]: prints register tiles.
//! * [`Stored`]: how elements of 16 and of 32 bits lie in a buffer.
//! * [`validate`], [`lint`]: checks a linked shader with naga and our own rules.
//!
//! Only this crate knows naga.

mod lower;
mod mods;
mod params;
mod stored;

pub mod choice;
pub mod link;
pub mod lint;
pub mod micro;
pub mod validate;

pub use lower::{
    Lowered, Skipping, Tiles, attention_tiles, lower, lower_with, storage_bindings_needed,
};
pub use params::BLOCK;
pub use stored::Stored;
