//! What `explain` says about kernels.

use attnc::plan::{DeviceProfile, SubgroupSizes};
use attnc::{Model, explain, opt};

const MODEL: &str = "graph @m(%q: f32[B, 4, M, 64], %k: f32[B, 4, M, 64], %v: f32[B, 4, M, 64]) {
  %o = attention %q, %k, %v, scale = 1.0
  return %o
}";

#[test]
fn operands_from_images_are_named() {
    let model = Model::from_text("m", MODEL).unwrap();
    let explained = |profile: &DeviceProfile| {
        let explained = explain::explain(&model, &opt::Options::default(), profile).unwrap();
        let json = serde_json::to_string(&explained.report).unwrap();
        (explain::text(&explained.report), json)
    };
    let mut cpu = DeviceProfile::webgpu();
    cpu.features.subgroups = Some(SubgroupSizes { min: 8, max: 8 });
    cpu.busy_workgroups = 2;
    let (text, json) = explained(&cpu);
    assert!(text.contains("g4x8d64kvi  (k, v from images)\n"), "{text}");
    assert!(json.contains(r#""images":["k","v"]"#), "{json}");
    let (text, json) = explained(&DeviceProfile::desktop());
    assert!(!text.contains("image") && !json.contains("image"), "{text}");
}
