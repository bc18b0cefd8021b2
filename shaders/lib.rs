//! The WGSL files and their catalogue.
