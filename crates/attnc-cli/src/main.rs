//! The `attnc` command.
fn main() {}
