//! Lowers attnc graphs to linked, validated WGSL.
