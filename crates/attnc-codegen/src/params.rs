//! Prints the `params` module: element types and the size of a workgroup.
//!
//! ```wgsl
//! // params: f32, workgroups of 32
//!
//! alias elem = f32;
//!
//! const WORKGROUP_SIZE: u32 = 32u;
//! ```
//!
//! On entry: aliases a kernel's file imports. On exit: a module that declares these and `WORKGROUP_SIZE`.

use crate::choice::is_cpu;
use attnc_plan::DeviceProfile;

/// Invocations of a workgroup where nothing is known of the device's subgroups: most GPUs run 32 at once.
const UNKNOWN_SUBGROUP: u32 = 32;

/// Invocations of a workgroup of kernels that share nothing between invocations: one subgroup, so that
/// small problems spread over all cores and no lane is idle.
pub(crate) fn workgroup_size(profile: &DeviceProfile) -> u32 {
    let subgroup = profile
        .features
        .subgroups
        .map_or(UNKNOWN_SUBGROUP, |sizes| sizes.max);
    let limits = &profile.limits;
    subgroup
        .min(limits.invocations)
        .min(limits.workgroup_size[0])
        .max(1)
}

/// The largest register tile of a matmul: rows × columns of accumulators an invocation.
///
/// Where a subgroup is 8 lanes, it is a CPU's vector unit: there a load costs as much as many
/// multiplications and spilled accumulators lie in the cache, so that large tiles win. A GPU has some 128
/// registers a lane before it runs fewer lanes at once.
pub(crate) fn matmul_tile(profile: &DeviceProfile) -> (u32, u32) {
    if is_cpu(profile) { (8, 16) } else { (4, 8) }
}

/// Queries and keys of a tile of attention that is skipped as a whole or does without its mask: as in
/// FlexAttention's examples half of its 128, so that windows and blocks of 64 cost no more than they are.
pub const BLOCK: u32 = 64;

/// The part of the module that attention adds.
pub(crate) fn blocks() -> String {
    format!("const BLOCK_M: u32 = {BLOCK}u;\nconst BLOCK_N: u32 = {BLOCK}u;\n")
}

/// Query rows of an attention's register tile for heads of so many columns: 4 while Q, O and what is
/// loaded stay in registers (or a compiler's patience), then 2.
pub(crate) fn attention_rows(columns: u32) -> u32 {
    if columns <= 80 { 4 } else { 2 }
}

/// The module, with `aliases` as `(name, type)`.
pub(crate) fn print(aliases: &[(&str, &str)], workgroup_size: u32) -> String {
    let mut text = format!("// params: workgroups of {workgroup_size}\n\n");
    for (name, ty) in aliases {
        text.push_str(&format!("alias {name} = {ty};\n"));
    }
    text.push_str(&format!(
        "\nconst WORKGROUP_SIZE: u32 = {workgroup_size}u;\n"
    ));
    text
}

/// More of the module: constants as `(name, type, value)`.
pub(crate) fn constants(list: &[(&str, &str, String)]) -> String {
    let line =
        |(name, ty, value): &(&str, &str, String)| format!("const {name}: {ty} = {value};\n");
    list.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnc_plan::SubgroupSizes;

    #[test]
    fn a_workgroup_is_one_subgroup_within_the_limits() {
        let mut profile = DeviceProfile::webgpu();
        assert_eq!(workgroup_size(&profile), 32);
        profile.features.subgroups = Some(SubgroupSizes { min: 8, max: 8 });
        assert_eq!(workgroup_size(&profile), 8);
        assert_eq!(matmul_tile(&profile), (8, 16));
        assert_eq!(matmul_tile(&DeviceProfile::webgpu()), (4, 8));
        profile.limits.invocations = 4;
        assert_eq!(workgroup_size(&profile), 4);
    }
}
