//! Compile time by stage: `cargo bench -p attnc-benches --bench compile [-- FILTER]`.
#![allow(
    clippy::print_stderr,
    missing_docs,
    reason = "a bench says what it skips; criterion's macro makes an undocumented function"
)]

use attnc_benches::{models, stages};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

fn compile(criterion: &mut Criterion) {
    let found = models::found();
    for why in &found.skipped {
        eprintln!("{why}");
    }
    for file in &found.models {
        compile_model(criterion, file);
    }
}

fn compile_model(criterion: &mut Criterion, file: &Path) {
    let model = stages::import(file).expect("bench models can be opened");
    let optimised = stages::optimise(&model).expect("bench models can be optimised");
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut group = criterion.benchmark_group(format!("compile/{name}"));
    group.sample_size(10);
    group.measurement_time(Duration::from_secs(3));
    group.bench_function("import", |b| {
        b.iter_with_large_drop(|| stages::import(black_box(file)));
    });
    group.bench_function("optimise", |b| {
        b.iter_with_large_drop(|| stages::optimise(black_box(&model)));
    });
    group.bench_function("lower", |b| {
        b.iter_with_large_drop(|| stages::lower(black_box(&optimised)));
    });
    group.bench_function("whole", |b| b.iter(|| stages::measure(black_box(file))));
    group.finish();
}

criterion_group!(benches, compile);
criterion_main!(benches);
