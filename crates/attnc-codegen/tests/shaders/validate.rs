//! Reflection, and errors that point into the original file.

use attnc_codegen::link::Linked;
use attnc_codegen::validate::{Access, validate};

use crate::linker;

#[test]
fn reports_the_interface_of_an_entry_point() {
    let source = "
        struct Shape { rows: u32, scale: f32, len: u32 }
        @group(0) @binding(0) var<uniform> shape: Shape;
        @group(1) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
        @group(0) @binding(7) var<storage, read> x: array<f32, 10>;
        @group(0) @binding(8) var<storage, read> unused: array<f32>;
        var<workgroup> tile: array<f32, 64>;
        var<workgroup> unused_tile: array<f32, 64>;
        @compute @workgroup_size(4, 2)
        fn run(@builtin(local_invocation_index) lane: u32) {
            tile[lane] = x[lane] * shape.scale;
            out[lane] = vec4<f32>(tile[lane]);
        }";
    let report = validate(&Linked::from_source("x.wgsl", source)).unwrap();
    assert_eq!(report.entry_point, "run");
    assert_eq!(report.workgroup_size, [4, 2, 1]);
    assert_eq!(report.workgroup_bytes, 256);
    let bindings: Vec<_> = report
        .bindings
        .iter()
        .map(|b| (b.group, b.binding, b.name.as_str(), b.access, b.min_size))
        .collect();
    assert_eq!(
        bindings,
        [
            (0, 0, "shape", Access::Uniform, 12),
            (0, 7, "x", Access::ReadOnly, 40),
            (1, 2, "out", Access::ReadWrite, 16),
        ]
    );
}

fn error(mods: &str) -> String {
    validate(&linker("pointwise").module("mods", mods).link().unwrap())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_syntax_error_points_into_the_module_it_is_in() {
    let text = error("// element\nfn element(i: u32) -> f32 {\n    return f32(i) +;\n}\n");
    assert!(
        text.contains("mods (generated):3: ") && text.contains("| return f32(i) +;"),
        "{text}"
    );
}

#[test]
fn a_type_error_points_into_the_module_it_is_in() {
    let text = error("// element\n\nfn element(i: u32) -> f32 {\n    return missing[i];\n}\n");
    assert!(
        text.contains("mods (generated):4: ") && text.contains("missing"),
        "{text}"
    );
    // One that only the validator sees, with its cause and not only the function's name.
    let text = error(
        "fn element(i: u32) -> f32 {\n    if i + 1u {\n        return 1.0;\n    }\n    return 0.0;\n}\n",
    );
    assert!(
        text.contains("mods (generated):2: ") && text.contains("condition"),
        "{text}"
    );
}

const LANE_SUM: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(8)
fn run(@builtin(local_invocation_index) lane: u32) { out[0] = subgroupAdd(lane); }";

#[test]
fn subgroups_are_reported_where_a_text_uses_them() {
    let subgroups = |source: &str| {
        validate(&Linked::from_source("x.wgsl", source))
            .unwrap()
            .subgroups
    };
    assert!(subgroups(LANE_SUM));
    assert!(!subgroups(&LANE_SUM.replace("subgroupAdd(lane)", "lane")));
    assert!(subgroups(
        &LANE_SUM
            .replace("subgroupAdd(lane)", "lane")
            .replace("local_invocation_index", "subgroup_size")
    ));
    assert!(subgroups(&format!(
        "{}\nfn sum(x: u32) -> u32 {{ return subgroupShuffleXor(x, 1u); }}",
        LANE_SUM.replace("subgroupAdd", "sum")
    )));
}

#[test]
fn other_optional_features_are_refused() {
    let barrier = LANE_SUM.replace("{ out", "{ subgroupBarrier(); out");
    let text = validate(&Linked::from_source("x.wgsl", &barrier))
        .unwrap_err()
        .to_string();
    assert!(text.to_lowercase().contains("subgroup"), "{text}");
    let double = LANE_SUM.replace("subgroupAdd(lane)", "u32(f64(lane))");
    assert!(validate(&Linked::from_source("x.wgsl", &double)).is_err());
}

#[test]
fn a_shader_has_one_compute_entry_point() {
    let none = validate(&Linked::from_source("x.wgsl", "fn f() {}"))
        .unwrap_err()
        .to_string();
    assert!(none.contains("expected one entry point, found 0"), "{none}");
    let two = "@compute @workgroup_size(1) fn f() {} @compute @workgroup_size(1) fn g() {}";
    let two = validate(&Linked::from_source("x.wgsl", two))
        .unwrap_err()
        .to_string();
    assert!(two.contains("found 2: f, g"), "{two}");
}

#[test]
fn a_divergent_barrier_is_an_error_with_its_place() {
    let source = "@compute @workgroup_size(8)
fn run(@builtin(local_invocation_index) lane: u32) {
    if lane < 3u {
        workgroupBarrier();
    }
}";
    let text = validate(&Linked::from_source("x.wgsl", source))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("x.wgsl:4: workgroupBarrier in `run`"),
        "{text}"
    );
}
