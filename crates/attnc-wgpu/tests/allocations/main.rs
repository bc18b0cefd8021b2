//! What a run allocates at lengths that were run before: nothing of attnc's own.
//!
//! wgpu allocates as it records and submits, so the measure is the same dispatches by hand (`chain::Bare`),
//! counted by the same allocator: attnc must not need one allocation more, and no object on the device.

mod chain;
mod counting;

use attnc_plan as plan;
use attnc_wgpu as gpu;

use gpu::{AdapterChoice, Executable, Gpu, HostTensorRef, Runner};
use libtest_mimic::{Arguments, Failed, Trial};
use plan::{DType, DimValues};
use std::process::ExitCode;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

type Test = fn(&Gpu) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("binding_again_allocates_nothing", binding_again),
    ("encoding_allocates_what_wgpu_does", encoding),
    ("running_again_allocates_what_wgpu_does", running_again),
];

const STEPS: usize = 100;
const COUNT: usize = 64;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The allocator counts for the whole program, so one test at a time.
    arguments.test_threads = Some(1);
    let gpu = Gpu::open(&AdapterChoice::any());
    let required = std::env::var_os("ATTNC_REQUIRE_GPU").is_some();
    let trials = TESTS.iter().map(|(name, test)| match &gpu {
        Ok(gpu) => {
            let gpu = gpu.clone();
            Trial::test(*name, move || test(&gpu))
        }
        Err(error) => {
            let error = error.to_string();
            Trial::test(*name, move || Err(error.into())).with_ignored_flag(!required)
        }
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn storage(gpu: &Gpu) -> wgpu::Buffer {
    gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: COUNT as u64 * 4,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    })
}

fn executable(gpu: &Gpu) -> Result<Executable, gpu::Error> {
    Executable::new(&gpu.device, &gpu.queue, &chain::plan(STEPS), &())
}

/// Fails where attnc needs more than is needed.
fn at_most(needed: u64, found: u64) -> Result<(), Failed> {
    if found <= needed {
        Ok(())
    } else {
        Err(format!("{found} allocations instead of {needed}").into())
    }
}

fn same_objects(before: gpu::Stats, after: gpu::Stats) -> Result<(), Failed> {
    if before == after {
        Ok(())
    } else {
        Err(format!("objects were made:\n{before:?}\n{after:?}").into())
    }
}

fn binding_again(gpu: &Gpu) -> Result<(), Failed> {
    let exe = executable(gpu)?;
    let (x, y) = (storage(gpu), storage(gpu));
    let bind = |n| {
        exe.bind(
            &gpu.device,
            &DimValues::from([("N", n)]),
            &[("y", &y), ("x", &x)],
        )
    };
    let (long, short) = (bind(64)?, bind(7)?);
    let before = exe.stats();
    let mut found = true;
    let (sixty_four, seven) = (long.dims().clone(), short.dims().clone());
    let allocations = counting::fewest(|| {
        for dims in [&sixty_four, &seven] {
            found &= exe.bind(&gpu.device, dims, &[("x", &x), ("y", &y)]).is_ok();
        }
    });
    at_most(0, allocations)?;
    same_objects(before, exe.stats())?;
    found.then_some(()).ok_or_else(|| "not bound".into())
}

fn encoding(gpu: &Gpu) -> Result<(), Failed> {
    let bare = chain::Bare::new(gpu, STEPS, COUNT as u32);
    let needed = counting::fewest(|| bare.submit());
    gpu.wait()?;

    let exe = executable(gpu)?;
    let (x, y) = (storage(gpu), storage(gpu));
    let dims = DimValues::from([("N", COUNT as i64)]);
    let io = exe.bind(&gpu.device, &dims, &[("x", &x), ("y", &y)])?;
    let before = exe.stats();
    let found = counting::fewest(|| {
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        exe.encode(&mut encoder, &io);
        gpu.queue.submit([encoder.finish()]);
    });
    gpu.wait()?;
    same_objects(before, exe.stats())?;
    at_most(needed, found)
}

fn running_again(gpu: &Gpu) -> Result<(), Failed> {
    let x: Vec<u8> = (0..COUNT).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let mut y = vec![0; x.len()];
    let bare = chain::Bare::new(gpu, STEPS, COUNT as u32);
    let needed = counting::fewest(|| bare.run_in_scopes(&x, &mut y));
    if y != x {
        return Err("the chain by hand is wrong".into());
    }
    y.fill(0);
    let mut runner = Runner::from_executable(&gpu.device, &gpu.queue, executable(gpu)?);
    let dims = DimValues::default();
    let mut run = |runner: &mut Runner| {
        let tensor = HostTensorRef {
            dtype: DType::F32,
            shape: &[COUNT],
            bytes: &x,
        };
        runner.run_each(&[("x", tensor)], &dims, &mut |_, output| {
            y.copy_from_slice(output.bytes);
        })
    };
    run(&mut runner)?;
    let before = runner.executable().stats();
    let mut good = true;
    let found = counting::fewest(|| good &= run(&mut runner).is_ok());
    same_objects(before, runner.executable().stats())?;
    if !good || y != x {
        return Err("the chain is wrong".into());
    }
    at_most(needed, found)
}
