//! Plans on a device. Without an adapter every test is reported as ignored, unless
//! `ATTNC_REQUIRE_GPU` is set; then it is a failure.

mod counters;
mod images;
mod plans;
mod refusals;

use attnc_plan::{DType, DeviceProfile, DimValues};
use attnc_wgpu::{
    AdapterChoice, Checks, Error, Executable, ExecutableOptions, Gpu, HostTensor, HostTensorRef,
    PipelineCache, ProfileExt as _, Runner,
};
use libtest_mimic::{Arguments, Failed, Trial};
use sha2::Digest as _;
use std::collections::BTreeMap;
use std::process::ExitCode;

type Test = fn(&Gpu) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    (
        "results_are_right_at_every_length",
        results_are_right_at_every_length,
    ),
    (
        "new_lengths_create_no_pipelines",
        new_lengths_create_no_pipelines,
    ),
    (
        "same_lengths_make_nothing_new",
        same_lengths_make_nothing_new,
    ),
    ("threads_share_a_device", threads_share_a_device),
    ("intermediates_share_slots", intermediates_share_slots),
    (
        "a_host_embeds_the_plan_in_its_own_encoder",
        a_host_embeds_the_plan_in_its_own_encoder,
    ),
    ("grids_over_the_limit_fold", grids_over_the_limit_fold),
    ("empty_tensors_run", empty_tensors_run),
    (
        "an_odd_number_of_halves_is_whole_words",
        an_odd_number_of_halves_is_whole_words,
    ),
    ("steps_can_be_timed", steps_can_be_timed),
    (
        "counters_start_from_zero_in_each_run",
        counters::counters_start_from_zero_in_each_run,
    ),
    (
        "counters_start_from_zero_in_one_encoder",
        counters::counters_start_from_zero_in_one_encoder,
    ),
    (
        "what_was_written_is_copied_anew",
        images::what_was_written_is_copied_anew,
    ),
    (
        "a_port_that_cannot_be_copied_is_named",
        images::a_port_that_cannot_be_copied_is_named,
    ),
    (
        "wrong_inputs_are_all_named",
        refusals::wrong_inputs_are_all_named,
    ),
    (
        "wrong_buffers_are_all_named",
        refusals::wrong_buffers_are_all_named,
    ),
    (
        "wrong_weights_are_all_named",
        refusals::wrong_weights_are_all_named,
    ),
    (
        "a_kernel_that_does_not_compile_is_an_error",
        refusals::a_kernel_that_does_not_compile_is_an_error,
    ),
    (
        "a_small_device_refuses_a_big_plan",
        refusals::a_small_device_refuses_a_big_plan,
    ),
    (
        "sizes_over_the_limit_are_refused",
        refusals::sizes_over_the_limit_are_refused,
    ),
    (
        "checked_shaders_give_the_same",
        checked_shaders_give_the_same,
    ),
    ("pipelines_are_kept_in_a_file", pipelines_are_kept_in_a_file),
    (
        "a_lost_device_is_an_error",
        refusals::a_lost_device_is_an_error,
    ),
    (
        "profiles_of_adapter_and_device_agree",
        profiles_of_adapter_and_device_agree,
    ),
    (
        "large_weights_arrive_piece_by_piece",
        large_weights_arrive_piece_by_piece,
    ),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
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
    let trials: Vec<_> = trials.collect();
    if let Err(error) = &gpu
        && !required
        && !arguments.list
    {
        say(&format!("ignored: {error}"));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[expect(
    clippy::print_stderr,
    reason = "a test program says why its tests did not run"
)]
fn say(line: &str) {
    eprintln!("{line}");
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect()
}

fn weights() -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([("w".to_owned(), bytes(&plans::weight()))])
}

fn input(rows: usize) -> Vec<f32> {
    (0..rows * 3).map(|n| (n % 17) as f32 * 0.5 - 4.0).collect()
}

fn runner(gpu: &Gpu) -> Result<Runner, Error> {
    Runner::new(&gpu.device, &gpu.queue, &plans::model(), &weights())
}

fn run(runner: &mut Runner, rows: usize) -> Result<HostTensor, Error> {
    let x = bytes(&input(rows));
    let x = HostTensorRef {
        dtype: DType::F32,
        shape: &[rows, 3],
        bytes: &x,
    };
    Ok(runner.run(&[("x", x)])?.remove(0))
}

/// Small sums of multiples of 1/8: exact in f32, so equality is the right test.
fn check(output: &HostTensor, rows: usize) -> Result<(), Failed> {
    equal(&output.shape, &vec![rows, 4])?;
    equal(&floats(&output.bytes), &plans::expected(&input(rows)))
}

fn equal<T: PartialEq + std::fmt::Debug>(left: &T, right: &T) -> Result<(), Failed> {
    if left == right {
        Ok(())
    } else {
        Err(format!("expected {right:?}\n   found {left:?}").into())
    }
}

fn contains(text: &str, parts: &[&str]) -> Result<(), Failed> {
    match parts.iter().find(|part| !text.contains(**part)) {
        None => Ok(()),
        Some(part) => Err(format!("`{part}` is not in:\n{text}").into()),
    }
}

fn error<T>(result: Result<T, Error>) -> Result<Error, Failed> {
    result
        .err()
        .ok_or_else(|| "this should have been an error".into())
}

fn results_are_right_at_every_length(gpu: &Gpu) -> Result<(), Failed> {
    let mut runner = runner(gpu)?;
    for rows in [1, 2, 15, 16, 17, 100, 3] {
        let output = run(&mut runner, rows)?;
        equal(&output.name.as_str(), &"y")?;
        check(&output, rows)?;
    }
    Ok(())
}

fn new_lengths_create_no_pipelines(gpu: &Gpu) -> Result<(), Failed> {
    let mut runner = runner(gpu)?;
    equal(&runner.executable().stats().pipelines_created, &3)?;
    for rows in [63, 7, 256] {
        run(&mut runner, rows)?;
    }
    let stats = runner.executable().stats();
    equal(&stats.pipelines_created, &3)?;
    equal(&stats.weight_bytes, &48)
}

fn same_lengths_make_nothing_new(gpu: &Gpu) -> Result<(), Failed> {
    let mut runner = runner(gpu)?;
    run(&mut runner, 8)?;
    run(&mut runner, 5)?;
    let before = runner.executable().stats();
    for rows in [8, 5, 8] {
        check(&run(&mut runner, rows)?, rows)?;
    }
    // Rows 5 and 8 fit the same buffers, so both bindings are still known.
    equal(&runner.executable().stats(), &before)?;
    run(&mut runner, 6)?;
    let after = runner.executable().stats();
    equal(&after.arena_buffers_created, &before.arena_buffers_created)?;
    // The uniforms of the new lengths.
    equal(&after.buffers_created, &(before.buffers_created + 1))?;
    if after.bind_groups_created <= before.bind_groups_created {
        return Err("new lengths need new bind groups".into());
    }
    Ok(())
}

/// Each waits for the device, and so may answer what another has asked.
fn threads_share_a_device(gpu: &Gpu) -> Result<(), Failed> {
    let many = || {
        let mut runner = runner(gpu)?;
        (0..300).try_for_each(|n| check(&run(&mut runner, 1 + n % 9)?, 1 + n % 9))
    };
    std::thread::scope(|scope| {
        let threads = [0; 4].map(|_| scope.spawn(many));
        let mut results = threads.into_iter().map(|t| t.join());
        results.try_for_each(|result| result.map_err(|_| "a thread panicked")?)
    })
}

fn intermediates_share_slots(gpu: &Gpu) -> Result<(), Failed> {
    let mut runner = runner(gpu)?;
    run(&mut runner, 10)?;
    // Four intermediates of 160 bytes, three of them alive at once.
    let stats = runner.executable().stats();
    equal(&(stats.arena_buffers_created, stats.arena_bytes), &(3, 480))?;
    runner.executable().release_memory();
    equal(&runner.executable().stats().arena_bytes, &0)?;
    check(&run(&mut runner, 10)?, 10)
}

fn storage(gpu: &Gpu, size: u64) -> wgpu::Buffer {
    gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_DST
            | wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: false,
    })
}

fn a_host_embeds_the_plan_in_its_own_encoder(gpu: &Gpu) -> Result<(), Failed> {
    let exe = Executable::new(&gpu.device, &gpu.queue, &plans::model(), &weights())?;
    let rows = 9;
    let (source, x, y) = (storage(gpu, 108), storage(gpu, 108), storage(gpu, 144));
    gpu.queue.write_buffer(&source, 0, &bytes(&input(rows)));
    let dims = exe.dims(&[("x", &[rows, 3])])?;
    let io = exe.bind(&gpu.device, &dims, &[("y", &y), ("x", &x)])?;
    let again = exe.bind(&gpu.device, &dims, &[("x", &x), ("y", &y)])?;
    if !std::sync::Arc::ptr_eq(&io, &again) {
        return Err("the same binding was made twice".into());
    }
    let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 144,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = gpu
        .device
        .create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(&source, 0, &x, 0, Some(108));
    exe.encode(&mut encoder, &io);
    encoder.copy_buffer_to_buffer(&y, 0, &staging, 0, Some(144));
    gpu.queue.submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |_| {});
    gpu.wait()?;
    let found = floats(
        &staging
            .get_mapped_range(..)
            .map_err(|e| Failed::from(e.to_string()))?,
    );
    equal(&found, &plans::expected(&input(rows)))
}

fn grids_over_the_limit_fold(gpu: &Gpu) -> Result<(), Failed> {
    let limit = gpu.profile.limits.workgroups_per_dimension as usize;
    let count = (limit + 3) * 64 + 5;
    let mut runner = Runner::new(&gpu.device, &gpu.queue, &plans::doubling(), &())?;
    let x: Vec<f32> = (0..count).map(|n| (n % 1000) as f32).collect();
    let raw = bytes(&x);
    let tensor = HostTensorRef {
        dtype: DType::F32,
        shape: &[count],
        bytes: &raw,
    };
    let y = floats(&runner.run(&[("x", tensor)])?[0].bytes);
    match x.iter().zip(&y).position(|(x, y)| x * 2.0 != *y) {
        None => equal(&y.len(), &count),
        Some(at) => Err(format!("element {at}: {} instead of {}", y[at], x[at] * 2.0).into()),
    }
}

fn empty_tensors_run(gpu: &Gpu) -> Result<(), Failed> {
    let mut runner = runner(gpu)?;
    let output = run(&mut runner, 0)?;
    equal(&(output.shape, output.bytes.len()), &(vec![0, 4], 0))?;
    check(&run(&mut runner, 2)?, 2)
}

fn an_odd_number_of_halves_is_whole_words(gpu: &Gpu) -> Result<(), Failed> {
    let plan = plans::halves();
    let mut runner = Runner::new(&gpu.device, &gpu.queue, &plan, &())?;
    for count in [1usize, 2, 3, 129] {
        let raw: Vec<u8> = (1..=2 * count).map(|i| (i % 251) as u8).collect();
        let x = HostTensorRef {
            dtype: DType::F16,
            shape: &[count],
            bytes: &raw,
        };
        let outputs = runner.run(&[("x", x)])?;
        equal(&outputs[0].bytes, &raw)?;
    }
    // The host's own buffers hold whole words too.
    let exe = Executable::new(&gpu.device, &gpu.queue, &plan, &())?;
    let dims = DimValues::from([("N", 3)]);
    let (small, large) = (storage(gpu, 4), storage(gpu, 8));
    let result = exe.bind(&gpu.device, &dims, &[("x", &small), ("y", &large)]);
    contains(
        &error(result)?.to_string(),
        &["`x` of type f16[N] needs 8 bytes (6, rounded up to whole words), its buffer has 4"],
    )?;
    let other = storage(gpu, 8);
    exe.bind(&gpu.device, &dims, &[("x", &other), ("y", &large)])?;
    Ok(())
}

fn steps_can_be_timed(gpu: &Gpu) -> Result<(), Failed> {
    let mut runner = runner(gpu)?;
    let raw = bytes(&input(50));
    let x = HostTensorRef {
        dtype: DType::F32,
        shape: &[50, 3],
        bytes: &raw,
    };
    let times = runner.profile(&[("x", x)], &DimValues::default());
    if !gpu.description.timestamps {
        return contains(&error(times)?.to_string(), &["TIMESTAMP_QUERY"]);
    }
    let times = times?;
    equal(
        &times.iter().map(|t| t.step).collect::<Vec<_>>(),
        &vec![0, 1, 2, 3, 4],
    )?;
    match times
        .iter()
        .find(|t| !(t.nanoseconds >= 0.0 && t.nanoseconds < 1e10))
    {
        None => Ok(()),
        Some(time) => Err(format!("{time:?} is no time").into()),
    }
}

fn checked_shaders_give_the_same(gpu: &Gpu) -> Result<(), Failed> {
    let plan = plans::model();
    let options = ExecutableOptions {
        checks: Checks::On,
        ..ExecutableOptions::default()
    };
    let exe = Executable::with_options(&gpu.device, &gpu.queue, &plan, &weights(), &options)?;
    let mut runner = Runner::from_executable(&gpu.device, &gpu.queue, exe);
    check(&run(&mut runner, 21)?, 21)
}

/// More than is staged at once, and no multiple of it.
fn large_weights_arrive_piece_by_piece(gpu: &Gpu) -> Result<(), Failed> {
    let count = (40 << 20) / 4 + 3;
    let plan = plans::twice_a_weight(count);
    let w: Vec<f32> = (0..count).map(|n| (n % 4099) as f32).collect();
    let weights = BTreeMap::from([("w".to_owned(), bytes(&w))]);
    let mut runner = Runner::new(&gpu.device, &gpu.queue, &plan, &weights)?;
    let y = floats(&runner.run(&[])?[0].bytes);
    match w.iter().zip(&y).position(|(w, y)| w * 2.0 != *y) {
        None => equal(&y.len(), &w.len()),
        Some(at) => Err(format!("element {at}: {} instead of {}", y[at], w[at] * 2.0).into()),
    }
}

/// Whatever the file holds, the results are the same.
fn pipelines_are_kept_in_a_file(gpu: &Gpu) -> Result<(), Failed> {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipelines");
    let _ = std::fs::remove_dir_all(&folder);
    let Some(cache) = PipelineCache::open(&gpu.device, &folder) else {
        let has = wgpu::Features::PIPELINE_CACHE;
        return equal(&gpu.device.features().contains(has), &false);
    };
    let path = cache.path().to_owned();
    let again = |cache: PipelineCache| -> Result<PipelineCache, Failed> {
        let options = ExecutableOptions {
            pipeline_cache: Some(cache.handle()),
            ..ExecutableOptions::default()
        };
        let plan = plans::model();
        let exe = Executable::with_options(&gpu.device, &gpu.queue, &plan, &weights(), &options)?;
        let mut runner = Runner::from_executable(&gpu.device, &gpu.queue, exe);
        check(&run(&mut runner, 6)?, 6)?;
        cache.save()?;
        PipelineCache::open(&gpu.device, &folder).ok_or_else(|| "there is no cache now".into())
    };
    equal(&(cache.loaded_bytes(), path.exists()), &(0, false))?;
    let second = again(cache)?;
    equal(&path.exists(), &true)?;
    equal(&(second.loaded_bytes() > 0), &true)?;
    again(second)?;
    // Damaged; and whole, but from somewhere else, as the header of wgpu tells.
    let foreign = [0; 100];
    let digest = sha2::Sha256::digest(foreign);
    let whole = [b"attnc pipelines 1\n", digest.as_slice(), &foreign].concat();
    for (bytes, loaded) in [(b"not a cache".to_vec(), 0), (whole, foreign.len())] {
        std::fs::write(&path, bytes)?;
        let cache = PipelineCache::open(&gpu.device, &folder).ok_or("there is no cache now")?;
        equal(&cache.loaded_bytes(), &loaded)?;
        again(cache)?;
    }
    Ok(())
}

fn profiles_of_adapter_and_device_agree(gpu: &Gpu) -> Result<(), Failed> {
    let adapters = attnc_wgpu::adapters();
    let line = gpu.description.line();
    let adapter = adapters
        .iter()
        .find(|a| attnc_wgpu::describe(a).line() == line);
    let adapter = adapter.ok_or("the open adapter is not listed")?;
    equal(&DeviceProfile::from_adapter(adapter), &gpu.profile)?;
    // A device does not tell which matrices it has.
    let mut told = gpu.profile.clone();
    told.features.cooperative_matrix.clear();
    equal(&DeviceProfile::from_device(&gpu.device), &told)
}
