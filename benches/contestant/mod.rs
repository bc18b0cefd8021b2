//! Who is measured: attnc on the GPU and on the CPU, and peers.
//!
//! All inputs and results stay where the work is done; a run is the work and waiting for its end.

mod cpu;
mod gpu;
mod peer;

pub use cpu::AttncCpu;
pub use gpu::{AttncGpu, OWN_CHOICE, Variant, variants};
pub use peer::Peer;

use crate::shape::Work;
use crate::task::Task;

/// What a contestant runs on; figures are compared within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The adapter.
    Gpu,
    /// The processor.
    Cpu,
}

/// A contestant that has compiled a task and run it once or more.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    /// What was chosen for it: kernel keys.
    pub kernel: String,
    /// The first output.
    pub output: Vec<f64>,
    /// Bytes of inputs, results and intermediates; `None` where nobody counts.
    pub memory: Option<u64>,
}

/// Something that can do a task.
pub trait Contestant {
    /// A short name: `attnc gpu`.
    fn name(&self) -> &str;

    /// Name and version, for the record.
    fn version(&self) -> &str;

    /// What it runs on.
    fn side(&self) -> Side;

    /// Whether work of this kind is anything to it.
    fn does(&self, work: &Work) -> bool {
        let _ = work;
        true
    }

    /// Compiles, runs once, and keeps the task for [`Contestant::run`].
    ///
    /// # Errors
    /// In words, why it cannot do this one.
    fn prepare(&mut self, task: &Task) -> Result<Ready, String>;

    /// Runs what was prepared, and gives the milliseconds of each; `burst` runs are handed over together,
    /// and count as one of their mean time.
    ///
    /// # Errors
    /// In words, what went wrong.
    fn run(&mut self, runs: u32, burst: u32) -> Result<Vec<f64>, String>;
}

/// Runs and times.
fn timed(
    runs: u32,
    burst: u32,
    mut run: impl FnMut() -> Result<(), String>,
) -> Result<Vec<f64>, String> {
    let once = |_| {
        let start = std::time::Instant::now();
        run()?;
        Ok(1e3 * start.elapsed().as_secs_f64() / f64::from(burst))
    };
    (0..runs).map(once).collect()
}

/// At most three names; of more, how many there are.
fn kernels_text<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.len() > 3 {
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        return format!("{} steps of {} kernels", names.len(), distinct.len());
    }
    names.join(" + ")
}
