//! Compiler for attention models: import, fuse, compile to WGSL, run.
