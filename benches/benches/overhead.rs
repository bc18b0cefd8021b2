//! What attnc adds to a run of many tiny steps, beside the same dispatches by hand.
//!
//! `cargo bench -p attnc-benches --bench overhead`: uploads 64 numbers, runs 100 steps of one workgroup, and reads
//! the result back, by turns; medians, and ratios to the first line, which is wgpu alone.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench talks to its user"
)]

use attnc::gpu::{self, AdapterChoice, Gpu, HostTensorRef, Runner};
use attnc::plan::{self, DType, DimValues};
use std::time::Instant;

#[path = "../../crates/attnc-wgpu/tests/allocations/chain.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod chain;

const STEPS: usize = 100;
const COUNT: usize = 64;
const ROUNDS: usize = 300;
const WARM_UP: usize = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gpu = match Gpu::open(&AdapterChoice::any()) {
        Ok(gpu) => gpu,
        Err(error) => {
            eprintln!("nothing to measure: {error}");
            return Ok(());
        }
    };
    println!("{}, {STEPS} steps", gpu.description.line());
    let x: Vec<u8> = (0..COUNT).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let bare = chain::Bare::new(&gpu, STEPS, COUNT as u32);
    let mut runner = Runner::new(&gpu.device, &gpu.queue, &chain::plan(STEPS), &())?;
    let tensor = HostTensorRef {
        dtype: DType::F32,
        shape: &[COUNT],
        bytes: &x,
    };
    let (inputs, dims) = ([("x", tensor)], DimValues::default());
    let mut y = vec![0; x.len()];
    turns(
        &[
            "wgpu alone",
            "wgpu in error scopes",
            "Runner::run_each",
            "Runner::run",
        ],
        |who| {
            timed(|| match who {
                0 => bare.run(&x, &mut y),
                1 => bare.run_in_scopes(&x, &mut y),
                2 => {
                    let each = &mut |_, out: HostTensorRef<'_>| y.copy_from_slice(out.bytes);
                    runner
                        .run_each(&inputs, &dims, each)
                        .expect("it ran before");
                }
                _ => drop(runner.run(&inputs).expect("it ran before")),
            })
        },
    );
    assert_eq!(x, y, "the chain multiplies by 1");

    println!("recorded and submitted only");
    let exe = runner.executable();
    let (from, to) = (storage(&gpu), storage(&gpu));
    let bound = DimValues::from([("N", COUNT as i64)]);
    let bind = || exe.bind(&gpu.device, &bound, &[("x", &from), ("y", &to)]);
    bind()?;
    turns(&["wgpu alone", "Executable::bind, encode"], |who| {
        let ms = timed(|| match who {
            0 => bare.submit(),
            _ => {
                let io = bind().expect("it was bound before");
                let mut encoder = gpu.device.create_command_encoder(&Default::default());
                exe.encode(&mut encoder, &io);
                gpu.queue.submit([encoder.finish()]);
            }
        });
        gpu.wait().expect("the device is there");
        ms
    });
    Ok(())
}

fn storage(gpu: &Gpu) -> wgpu::Buffer {
    gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: COUNT as u64 * 4,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    })
}

/// Gives everyone a turn in each round, and prints the medians and their ratios to the first.
fn turns(who: &[&str], mut turn: impl FnMut(usize) -> f64) {
    let mut times = vec![Vec::new(); who.len()];
    for round in 0..ROUNDS + WARM_UP {
        for (at, times) in times.iter_mut().enumerate() {
            let ms = turn(at);
            if round >= WARM_UP {
                times.push(ms);
            }
        }
    }
    let medians = times.iter_mut().map(|times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let medians: Vec<f64> = medians.collect();
    for (who, ms) in who.iter().zip(&medians) {
        println!("{who:25} {ms:8.3} ms  {:5.2} x", ms / medians[0]);
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}
