//! A bundle written and read back is the same plan and the same weights; damaged ones are refused.

use attnc_plan::bundle::{BundleError, BundleWeights, PLAN_FILE, WEIGHTS_FILE, read_plan, write};
use attnc_plan::{
    Access, Binding, Buffer, DType, DeviceProfile, Dim, KernelArtifact, Plan, Port, Step, Uniform,
    WeightSource,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A folder of its own below the target directory, empty at first.
fn folder(test: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    dir
}

fn plan() -> Plan {
    let mut plan = Plan::new("scale", DeviceProfile::webgpu());
    plan.dims = vec!["B".into()];
    let shape = vec![Dim::sym("B"), Dim::from(3)];
    let x = plan.add_input(Port::new("x", DType::F32, shape.clone()));
    let w = plan.add_buffer(Buffer::weight("w", DType::F32, vec![Dim::from(3)]));
    let h = plan.add_buffer(Buffer::weight("h", DType::F16, vec![Dim::from(3)]));
    let y = plan.add_output(Port::new("y", DType::F32, shape));
    let kernel = plan.add_kernel(KernelArtifact {
        name: "scale.f32".into(),
        entry: "main".into(),
        wgsl: "// scale\n@compute @workgroup_size(64) fn main() {}\n".into(),
        bindings: vec![
            Binding::new(0, Access::Uniform, "params"),
            Binding::new(1, Access::Read, "x"),
            Binding::new(2, Access::Read, "w"),
            Binding::new(3, Access::Read, "h"),
            Binding::new(4, Access::ReadWrite, "y"),
        ],
        workgroup_size: [64, 1, 1],
        ..KernelArtifact::default()
    });
    plan.steps.push(Step {
        kernel,
        bindings: vec![x, w, h, y],
        uniforms: vec![
            Uniform::U32(Dim::sym("B")),
            Uniform::F32(0.1),
            Uniform::F32(f32::NEG_INFINITY),
        ],
        grid: [Dim::sym("B"), Dim::one(), Dim::one()],
        nodes: vec!["/mul".into()],
        op: "pointwise".into(),
        flops: Dim::sym("B") * Dim::from(3),
        turns: Dim::sym("B") + Dim::one(),
    });
    plan
}

fn weights() -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([
        ("w".to_owned(), (0..12).collect()),
        ("h".to_owned(), vec![7; 6]),
    ])
}

#[test]
fn what_is_written_reads_back() {
    let dir = folder("round_trip");
    write(&dir, &plan(), &weights()).unwrap();
    let back = read_plan(&dir).unwrap();
    assert_eq!(back, plan());
    let bytes = std::fs::read(dir.join(WEIGHTS_FILE)).unwrap();
    let stored = BundleWeights::new(&bytes, &back).unwrap();
    assert_eq!(stored.bytes("w"), Some(weights()["w"].as_slice()));
    assert_eq!(stored.bytes("h"), Some([7; 6].as_slice()));
    let shader = std::fs::read_to_string(dir.join("scale.f32.wgsl")).unwrap();
    assert_eq!(shader, plan().kernels[0].wgsl);
}

#[test]
fn kernels_of_an_earlier_bundle_are_removed_and_nothing_else() {
    let dir = folder("earlier");
    write(&dir, &plan(), &weights()).unwrap();
    for file in ["mine.wgsl", "notes.txt"] {
        std::fs::write(dir.join(file), "mine").unwrap();
    }
    let mut other = plan();
    other.kernels[0].name = "scale.f32.v2".into();
    write(&dir, &other, &weights()).unwrap();
    let files = || {
        let files = std::fs::read_dir(&dir).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<_>>()
    };
    let bundle = [PLAN_FILE, WEIGHTS_FILE, "scale.f32.v2.wgsl"];
    let whole = bundle.into_iter().chain(["mine.wgsl", "notes.txt"]);
    assert_eq!(files(), whole.map(str::to_owned).collect());
    assert_eq!(read_plan(&dir).unwrap(), other);

    // Names that no bundle has, in what only looks like one, whatever its version.
    let planted = r#"{"version": 99, "kernels": [
        {"name": "gone", "wgsl": "gone.wgsl"},
        {"name": "notes", "wgsl": "notes.txt"},
        {"name": "other", "wgsl": "mine.wgsl"},
        {"name": "../out", "wgsl": "../out.wgsl"}]}"#;
    std::fs::write(dir.join(PLAN_FILE), planted).unwrap();
    let out = dir.parent().unwrap().join("out.wgsl");
    std::fs::write(&out, "out").unwrap();
    let before = files();
    write(&dir, &other, &weights()).unwrap();
    assert_eq!(files(), before);
    assert!(out.exists());
}

#[test]
fn same_input_same_bytes() {
    let (a, b) = (folder("bytes_a"), folder("bytes_b"));
    write(&a, &plan(), &weights()).unwrap();
    write(&b, &plan(), &weights()).unwrap();
    for file in [PLAN_FILE, WEIGHTS_FILE, "scale.f32.wgsl"] {
        assert_eq!(
            std::fs::read(a.join(file)).unwrap(),
            std::fs::read(b.join(file)).unwrap(),
            "{file}"
        );
    }
}

#[test]
fn weights_are_checked_when_written() {
    let short = BTreeMap::from([("w".to_owned(), vec![0u8; 8])]);
    let error = write(&folder("short"), &plan(), &short)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("weight `w`: expected f32[3] (12 bytes), found 8 bytes"),
        "{error}"
    );
    assert!(error.contains("weight `h`: it is missing"), "{error}");
}

#[test]
fn damage_is_refused_with_a_reason() {
    let dir = folder("damage");
    write(&dir, &plan(), &weights()).unwrap();
    let good = std::fs::read_to_string(dir.join(PLAN_FILE)).unwrap();
    let read_with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}\n{good}");
        std::fs::write(dir.join(PLAN_FILE), good.replace(from, to)).unwrap();
        read_plan(&dir).unwrap_err().to_string()
    };
    for (from, to, expected) in [
        ("\"version\": 4", "\"version\": 1", "version 1"),
        (
            "\"scale.f32.wgsl\"",
            "\"../scale.f32.wgsl\"",
            "not a plain file name",
        ),
        ("\"scale.f32.wgsl\"", "\"other.wgsl\"", "other.wgsl"),
        ("\"kernel\": 0", "\"kernel\": 5", "kernel 5 does not exist"),
        ("\"steps\"", "\"stepz\"", "missing field `steps`"),
        ("{\n", "[\n", "is not a plan"),
    ] {
        let error = read_with(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
    std::fs::remove_file(dir.join(PLAN_FILE)).unwrap();
    assert!(matches!(read_plan(&dir), Err(BundleError::Io { .. })));
}

#[test]
fn damaged_weights_are_refused_with_a_reason() {
    let dir = folder("weights");
    write(&dir, &plan(), &weights()).unwrap();
    let bytes = std::fs::read(dir.join(WEIGHTS_FILE)).unwrap();
    for cut in [0, 7, 8, 40, bytes.len() - 1] {
        let result = BundleWeights::new(&bytes[..cut], &plan());
        assert!(
            matches!(result, Err(BundleError::Format(_))),
            "cut at {cut}"
        );
    }
    let mut other = plan();
    other.buffers[1].shape = vec![Dim::from(4)];
    other.buffers[2] = Buffer::weight("gone", DType::F32, vec![Dim::one()]);
    let error = BundleWeights::new(&bytes, &other).unwrap_err().to_string();
    assert!(
        error.contains("weight `w`: expected f32[4], found F32 [3]"),
        "{error}"
    );
    assert!(error.contains("weight `gone`: it is missing"), "{error}");
}
