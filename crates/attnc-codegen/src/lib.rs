//! Lowers attnc graphs to linked, validated WGSL.

pub mod link;
pub mod lint;
pub mod micro;
pub mod validate;
