//! The case harness: every file under `tests/cases` is a test, and a file worth reading.
//!
//! | folder | a case |
//! | --- | --- |
//! | `ir/ok` | a graph in canonical form: it reads, and prints as the same text |
//! | `ir/err` | a text with mistakes, `----`, the diagnostics with their carets |
//! | `passes/<pass>` | a graph, `----`, the graph behind that pass, and the remarks |
//! | `pipeline` | the same for all passes |
//! | `codegen` | a graph, `----`, the steps of its plan; the shaders are files under `tests/golden/codegen` |
//! | `run` | a graph whose results on the CPU and the GPU are held to the f64 oracle |
//!
//! A file begins with comments: what the case teaches, and headers `// key: value`. Headers nobody knows,
//! files nobody reads and goldens nobody makes are failures. The results of rewritten graphs are computed
//! too: before and after a pass the f64 interpreter must agree.
//!
//! `ATTNC_BLESS=1` rewrites what a case expects (`cargo xtask bless [filter]`).

mod bless;
mod file;
mod kinds;
mod numbers;
mod runner;

pub(crate) use runner::trials;
