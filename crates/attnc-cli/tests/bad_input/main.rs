//! The command on files that are damaged, lie, or ask for what is not there.
//!
//! Each case is a real process with its memory limited. It must end with the right exit code and a message
//! that names everything that is wrong, and must never panic. What is only a matter of wording stands in the
//! transcripts of `tests/cases/cli`; here files are made that nobody wants to keep in a repository.

mod arrays;
mod bench;
mod compiled;
mod models;
mod onnx;
mod options;
