//! The WGSL files and their catalogue; no logic.
//!
//! Each file is a plain WGSL module whose import lines (`import package::lib::indexing::{div_ceil};`)
//! the linker in `attnc-codegen` resolves against [`CATALOGUE`]. What each computes, and the contract of
//! its seams, is in `README.md` beside this file.
//!
//! ```
//! let kernel = attnc_shaders::find("kernels/pointwise").unwrap();
//! assert!(kernel.source.starts_with("// One output element from its index"));
//! ```

/// One WGSL file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShaderFile {
    /// Path without the extension, as import lines spell it with `/` for `::`: `lib/online_softmax`.
    pub name: &'static str,
    /// Path relative to `shaders/`: `lib/online_softmax.wgsl`.
    pub path: &'static str,
    /// The whole text.
    pub source: &'static str,
}

macro_rules! shader_files {
    ($($name:literal,)*) => {
        &[$(ShaderFile {
            name: $name,
            path: concat!($name, ".wgsl"),
            source: include_str!(concat!($name, ".wgsl")),
        },)*]
    };
}

/// Every file, sorted by name.
pub const CATALOGUE: &[ShaderFile] = shader_files![
    "kernels/block_mask",
    "kernels/flash_attention_combine",
    "kernels/flash_attention_fwd_matrix",
    "kernels/flash_attention_fwd_rows",
    "kernels/flash_attention_fwd_subgroup",
    "kernels/flash_attention_fwd_tiled",
    "kernels/flash_attention_fwd_two_walks",
    "kernels/layer_norm_lanes",
    "kernels/layer_norm_rows",
    "kernels/linear_attention",
    "kernels/matmul_lanes",
    "kernels/matmul_matrix",
    "kernels/matmul_rows",
    "kernels/matmul_subgroup",
    "kernels/matmul_tiled",
    "kernels/pointwise",
    "kernels/reduce_lanes",
    "kernels/reduce_rows",
    "kernels/rms_norm_lanes",
    "kernels/rms_norm_rows",
    "kernels/scan_rows",
    "kernels/softmax_lanes",
    "kernels/softmax_rows",
    "lanes/subgroup",
    "lanes/subgroups",
    "lanes/workgroup",
    "lib/attention_shape",
    "lib/attention_slices",
    "lib/balanced",
    "lib/block_bits",
    "lib/erf",
    "lib/f32_pairs",
    "lib/float_bits",
    "lib/gather_index",
    "lib/gelu",
    "lib/images",
    "lib/indexing",
    "lib/key_facts",
    "lib/lanes_combine",
    "lib/lanes_max",
    "lib/lanes_sum",
    "lib/matmul_shape",
    "lib/matmul_stage",
    "lib/matrix_products",
    "lib/matrix_slices",
    "lib/online_softmax",
    "lib/packed_bf16",
    "lib/packed_f16",
    "lib/power",
    "lib/quads",
    "lib/row_block",
    "lib/sixteen",
    "lib/stable_tanh",
    "lib/subgroup_sums",
    "lib/tile_runs",
    "mods/blocks_causal",
    "mods/blocks_full",
    "mods/element_add",
    "mods/element_gather_rows",
    "mods/fill_none",
    "mods/linear_attention_gated_delta",
    "mods/mask_causal",
    "mods/mask_none",
    "mods/mask_padding",
    "mods/mask_sliding_window",
    "mods/matmul_epilogue_bias_gelu",
    "mods/prob_squared",
    "mods/reduce_max",
    "mods/reduce_mean",
    "mods/reduce_min",
    "mods/reduce_prod",
    "mods/reduce_sum",
    "mods/rows_identity",
    "mods/rows_residual_affine",
    "mods/score_alibi",
    "mods/score_identity",
    "mods/score_softcap",
    "mods/sink_of_head",
    "pack/four",
    "pack/four_combined",
    "pack/one",
    "pack/one_combined",
    "params/default",
    "schedule/dynamic",
    "schedule/static",
    "store/elements",
    "store/f32_pairs_vectors",
    "store/packed_bf16",
    "store/packed_bf16_vectors",
    "store/packed_f16",
    "store/packed_f16_vectors",
    "walk/part",
    "walk/whole",
];

/// The file called `name`, such as `kernels/matmul_rows`.
#[must_use]
pub fn find(name: &str) -> Option<&'static ShaderFile> {
    CATALOGUE.iter().find(|file| file.name == name)
}
