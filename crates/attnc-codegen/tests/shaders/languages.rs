//! What Metal, DX12 and GLES get of a shader.
//!
//! naga's Metal knows no access of images that are given to functions.

use naga::back::{glsl, hlsl, msl};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// A text in Metal's language, HLSL and GLSL.
#[track_caller]
pub(crate) fn translated(source: &str, entry: &str) -> [String; 3] {
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let capabilities = Capabilities::SUBGROUP | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let info = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
    let info = info.unwrap();
    let options = msl::Options {
        lang_version: (2, 4),
        fake_missing_bindings: true,
        ..msl::Options::default()
    };
    let pipeline = msl::PipelineOptions::default();
    let (metal, _) = msl::write_string(&module, &info, &options, &pipeline).unwrap();

    let mut hlsl = String::new();
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_0,
        ..hlsl::Options::default()
    };
    let pipeline = hlsl::PipelineOptions::default();
    let mut writer = hlsl::Writer::new(&mut hlsl, &options, &pipeline);
    writer.write(&module, &info, None).unwrap();

    let mut glsl = String::new();
    let options = glsl::Options {
        version: glsl::Version::new_gles(310),
        ..glsl::Options::default()
    };
    let pipeline = glsl::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: entry.to_owned(),
        multiview: None,
    };
    let policies = naga::proc::BoundsCheckPolicies::default();
    let writer = glsl::Writer::new(&mut glsl, &module, &info, &options, &pipeline, policies);
    writer.unwrap().write().unwrap();
    [metal, hlsl, glsl]
}
