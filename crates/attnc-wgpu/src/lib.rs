//! Runs attnc plans through wgpu.
