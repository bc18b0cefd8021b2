//! Device profiles of live adapters and devices.

use attnc_plan::{
    CooperativeMatrix, DType, DeviceProfile, Features, LLVMPIPE_LOOP_TURNS, Limits, SubgroupSizes,
};

/// Makes a [`DeviceProfile`] of what is really there.
pub trait ProfileExt {
    /// What a device opened by [`Gpu::open`](crate::Gpu::open) on this adapter can do.
    fn from_adapter(adapter: &wgpu::Adapter) -> Self;

    /// What this device can do: the limits and features it was opened with, which for a host's own
    /// device may be less than its adapter has. It has no matrices, since a device does not tell which.
    fn from_device(device: &wgpu::Device) -> Self;
}

impl ProfileExt for DeviceProfile {
    fn from_adapter(adapter: &wgpu::Adapter) -> Self {
        let features = crate::devices::used_features(adapter);
        let mut profile = profile(&adapter.get_info(), features, &adapter.limits());
        if features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
            profile.features.cooperative_matrix = cooperative_matrices(adapter);
        }
        profile
    }

    fn from_device(device: &wgpu::Device) -> Self {
        profile(&device.adapter_info(), device.features(), &device.limits())
    }
}

fn profile(
    info: &wgpu::AdapterInfo,
    features: wgpu::Features,
    limits: &wgpu::Limits,
) -> DeviceProfile {
    let subgroups = features
        .contains(wgpu::Features::SUBGROUP)
        .then_some(SubgroupSizes {
            min: info.subgroup_min_size,
            max: info.subgroup_max_size,
        });
    DeviceProfile {
        name: info.name.clone(),
        limits: Limits {
            loop_turns: loop_turns(&info.name, &info.driver_info),
            ..convert(limits)
        },
        features: Features {
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroups,
            int64: features.contains(wgpu::Features::SHADER_INT64),
            cooperative_matrix: Vec::new(),
        },
        busy_workgroups: busy_workgroups(info.device_type),
    }
}

/// A software adapter has the cores of the machine. Of a GPU nothing says how many it has: 8 subgroups each of 8
/// cores, where it is a part of a processor, and of 64, where it is a card.
fn busy_workgroups(kind: wgpu::DeviceType) -> u32 {
    match kind {
        wgpu::DeviceType::Cpu => {
            let cores = std::thread::available_parallelism();
            cores.map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
        }
        wgpu::DeviceType::IntegratedGpu => 64,
        wgpu::DeviceType::DiscreteGpu => 512,
        _ => DeviceProfile::webgpu().busy_workgroups,
    }
}

/// The first version of Mesa whose llvmpipe is known to count no turns: 26.1.6 walks five million, 22.3.6 leaves at
/// 65535. Of those between nothing is known, and so they are taken to count.
const MESA_WITHOUT_LIMIT: u32 = 26;

/// Lavapipe's devices are called `llvmpipe (LLVM 15.0.6, 256 bits)`, their drivers `Mesa 22.3.6 (LLVM 15.0.6)`.
fn loop_turns(device: &str, driver: &str) -> Option<u32> {
    let version = driver.split_once("Mesa ").map(|(_, version)| version);
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    let counts = major.is_none_or(|major| major < MESA_WITHOUT_LIMIT);
    (device.starts_with("llvmpipe") && counts).then_some(LLVMPIPE_LOOP_TURNS)
}

fn convert(limits: &wgpu::Limits) -> Limits {
    Limits {
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        storage_buffers: limits.max_storage_buffers_per_shader_stage,
        invocations: limits.max_compute_invocations_per_workgroup,
        workgroup_size: [
            limits.max_compute_workgroup_size_x,
            limits.max_compute_workgroup_size_y,
            limits.max_compute_workgroup_size_z,
        ],
        workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        binding_bytes: limits.max_storage_buffer_binding_size,
        buffer_bytes: limits.max_buffer_size,
        uniform_bytes: u32::try_from(limits.max_uniform_buffer_binding_size).unwrap_or(u32::MAX),
        uniform_offset_alignment: limits.min_uniform_buffer_offset_alignment,
        storage_offset_alignment: limits.min_storage_buffer_offset_alignment,
        image_rows: limits.max_texture_dimension_2d,
        loop_turns: None,
    }
}

/// The matrix shapes an adapter offers, those with float sums.
pub(crate) fn cooperative_matrices(adapter: &wgpu::Adapter) -> Vec<CooperativeMatrix> {
    let dtype = |t: wgpu::CooperativeScalarType| match t {
        wgpu::CooperativeScalarType::F32 => DType::F32,
        wgpu::CooperativeScalarType::F16 => DType::F16,
        wgpu::CooperativeScalarType::I32 => DType::I32,
        wgpu::CooperativeScalarType::U32 => DType::U32,
    };
    let shapes = adapter.cooperative_matrix_properties();
    let shapes = shapes
        .iter()
        .filter(|s| !s.saturating_accumulation)
        .map(|s| CooperativeMatrix {
            m: s.m_size,
            n: s.n_size,
            k: s.k_size,
            operands: dtype(s.ab_type),
            accumulator: dtype(s.cr_type),
        });
    shapes
        .filter(|s| s.operands.is_float() && s.accumulator.is_float())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llvmpipe_counts_turns_unless_it_is_known_not_to_and_nobody_else_does() {
        let (old, new) = (
            "llvmpipe (LLVM 15.0.6, 256 bits)",
            "llvmpipe (LLVM 19.1.7, 512 bits)",
        );
        for driver in ["Mesa 22.3.6 (LLVM 15.0.6)", "Mesa 25.0.7-2", "", "Mesa git"] {
            assert_eq!(loop_turns(old, driver), Some(65535), "{driver}");
        }
        assert_eq!(loop_turns(new, "Mesa 26.1.6-1~bpo13+1 (LLVM 19.1.7)"), None);
        for (device, driver) in [
            ("NVIDIA H200", "570.1"),
            ("AMD Radeon (RADV)", "Mesa 22.3.6"),
        ] {
            assert_eq!(loop_turns(device, driver), None, "{device}");
        }
    }
}
