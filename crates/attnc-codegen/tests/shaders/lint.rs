//! Barriers in uniform control flow pass; all others are found.

use attnc_codegen::lint::divergent_barriers;

/// Barriers the lint refuses in a body that may use `lane`, `group`, `shape` (uniform), `x` (read-only
/// storage), `y` (read-write storage), `tile` (workgroup memory) and these helpers.
fn refused(body: &str) -> usize {
    let source = format!(
        "
        @group(0) @binding(0) var<uniform> shape: vec4<u32>;
        @group(0) @binding(1) var<storage, read> x: array<u32>;
        @group(0) @binding(2) var<storage, read_write> y: array<u32>;
        var<workgroup> tile: array<u32, 8>;
        fn twice(v: u32) -> u32 {{ return 2u * v; }}
        fn plus_shape(v: u32) -> u32 {{ return v + shape.x; }}
        fn meet() {{ workgroupBarrier(); }}
        fn meet_if(v: u32) {{ if v > 1u {{ workgroupBarrier(); }} }}
        fn write(p: ptr<function, u32>, v: u32) {{ *p = v; }}
        @compute @workgroup_size(8)
        fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3<u32>) {{
            {body}
        }}"
    );
    let module = naga::front::wgsl::parse_str(&source)
        .unwrap_or_else(|error| panic!("{}", error.emit_to_string(&source)));
    divergent_barriers(&module).len()
}

#[test]
fn uniform_control_flow_passes() {
    for body in [
        "workgroupBarrier();",
        "if shape.x > 3u { workgroupBarrier(); } else { storageBarrier(); }",
        "if group.x > 3u && x[group.y] == 1u { workgroupBarrier(); }",
        "for (var i = 0u; i < shape.y; i++) { tile[lane] = i; workgroupBarrier(); }",
        "for (var i = 0u; i < shape.y; i++) { if x[i] == 0u { continue; } workgroupBarrier(); if x[i] == 1u { break; } }",
        "if lane < 3u { tile[lane] = 1u; } workgroupBarrier();",
        "var n = shape.z; write(&n, shape.x); if n > 1u { workgroupBarrier(); }",
        "meet(); meet_if(shape.x); meet_if(twice(plus_shape(group.x)));",
        "if shape.x == 0u { return; } workgroupBarrier();",
        "switch shape.x { case 1u: { workgroupBarrier(); } default: { } }",
        "for (var i = 0u; i < 4u; i++) { if lane == i { break; } tile[lane] = i; } workgroupBarrier();",
        "switch lane { case 1u: { tile[0] = 1u; break; } default: { } } workgroupBarrier();",
        "if workgroupUniformLoad(&tile[0]) > 1u { workgroupBarrier(); }",
    ] {
        assert_eq!(refused(body), 0, "{body}");
    }
}

#[test]
fn divergent_control_flow_is_refused() {
    for body in [
        "if lane < 3u { workgroupBarrier(); }",
        "if lane < 3u { } else { storageBarrier(); }",
        "for (var i = 0u; i < lane; i++) { workgroupBarrier(); }",
        "for (var i = lane; i < shape.x; i++) { workgroupBarrier(); }",
        "for (var i = 0u; i < shape.x; i++) { if lane == i { break; } workgroupBarrier(); }",
        "for (var i = 0u; i < shape.x; i++) { workgroupBarrier(); if lane == i { break; } }",
        "for (var i = 0u; i < shape.x; i++) { if lane == i { continue; } workgroupBarrier(); }",
        "if lane < 3u { return; } workgroupBarrier();",
        "if lane < 3u { if shape.x > 1u { return; } } workgroupBarrier();",
        "for (var i = 0u; i < shape.x; i++) { if lane == i { return; } } workgroupBarrier();",
        "loop { workgroupBarrier(); continuing { break if lane > 2u; } }",
        "switch lane { case 1u: { workgroupBarrier(); } default: { } }",
        "if y[0] > 1u { workgroupBarrier(); }",
        "if tile[0] > 1u { workgroupBarrier(); }",
        "if x[lane] > 1u { workgroupBarrier(); }",
        "var n = 0u; n = lane; if n > 1u { workgroupBarrier(); }",
        "var n = 0u; if lane > 2u { n = 1u; } if n > 0u { workgroupBarrier(); }",
        "var a = array<u32, 8>(); a[lane] = 1u; if a[0] > 0u { workgroupBarrier(); }",
        "var n = 0u; write(&n, lane); if n > 1u { workgroupBarrier(); }",
        "let n = twice(plus_shape(lane)); if n > 1u { workgroupBarrier(); }",
        "if lane > 1u { meet(); }",
        "meet_if(lane);",
        "if lane > 1u { _ = workgroupUniformLoad(&tile[0]); }",
    ] {
        assert_eq!(refused(body), 1, "{body}");
    }
}

#[test]
fn every_divergent_barrier_is_reported_once() {
    let body =
        "if lane > 1u { workgroupBarrier(); storageBarrier(); } workgroupBarrier(); meet_if(lane);";
    assert_eq!(refused(body), 3);
}
