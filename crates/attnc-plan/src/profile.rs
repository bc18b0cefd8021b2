//! What a device can do: limits and features as plain data.
//!
//! The compiler decides against a profile, never against a live device, so a plan made on one machine
//! is the same on every other. Built in are `webgpu` (what every WebGPU implementation guarantees),
//! `mobile`, `desktop` and `matrix`; `attnc-wgpu` makes one of a live adapter.
//!
//! ```
//! use attnc_plan::DeviceProfile;
//! assert_eq!(DeviceProfile::webgpu().limits.workgroup_bytes, 16384);
//! assert_eq!(DeviceProfile::by_name("mobile").unwrap().limits.storage_buffers, 4);
//! assert!(DeviceProfile::by_name("toaster").is_none());
//! ```

use crate::{DType, Feature};

/// Numbers a kernel or a buffer may not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Bytes of `var<workgroup>` of one kernel.
    pub workgroup_bytes: u32,
    /// Storage buffers one kernel may bind.
    pub storage_buffers: u32,
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Invocations of a workgroup along x, y, z.
    pub workgroup_size: [u32; 3],
    /// Workgroups of a dispatch along each dimension.
    pub workgroups_per_dimension: u32,
    /// Bytes of one storage binding.
    pub binding_bytes: u64,
    /// Bytes of one buffer.
    pub buffer_bytes: u64,
    /// Bytes of one uniform binding.
    pub uniform_bytes: u32,
    /// Alignment in bytes of an offset into a uniform buffer.
    pub uniform_offset_alignment: u32,
    /// Alignment in bytes of an offset into a storage buffer.
    pub storage_offset_alignment: u32,
    /// Rows of an image, a two-dimensional texture.
    #[serde(default = "usual_rows")]
    pub image_rows: u32,
    /// Turns that the loops of one invocation may take together, nested or not. llvmpipe counted them, and when
    /// there had been 65535 it left every loop without a word (`LP_MAX_TGSI_LOOP_ITERATIONS` of Mesa's
    /// `lp_bld_limits.h`): Mesa 22.3.6 does, 26.1.6 does not. No other device is known to. What would go on is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_turns: Option<u32>,
}

/// What [`Limits::loop_turns`] is on an llvmpipe that counts.
pub const LLVMPIPE_LOOP_TURNS: u32 = 65535;

/// The subgroup sizes a device may choose; a kernel must be right for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SubgroupSizes {
    /// The smallest.
    pub min: u32,
    /// The largest.
    pub max: u32,
}

/// One shape of the matrix units: `A[m, k] * B[k, n] + C[m, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CooperativeMatrix {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// The element type of A and B.
    pub operands: DType,
    /// The element type of C.
    pub accumulator: DType,
}

impl CooperativeMatrix {
    /// Whether kernels use it: square, of 8 or 16 rows, f16 in and sums in f32.
    #[must_use]
    pub fn is_used(&self) -> bool {
        let square = self.m == self.n && self.n == self.k && [8, 16].contains(&self.m);
        square && self.operands == DType::F16 && self.accumulator == DType::F32
    }
}

/// What a device offers beyond core WebGPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Features {
    /// 16-bit floats in shaders.
    pub f16: bool,
    /// Subgroup operations, with the sizes that may occur.
    pub subgroups: Option<SubgroupSizes>,
    /// 64-bit integers in shaders, which WGSL does not have and naga does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub int64: bool,
    /// Cooperative matrices, by shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cooperative_matrix: Vec<CooperativeMatrix>,
}

/// A device, as far as the compiler cares.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeviceProfile {
    /// A name for people: `webgpu`, or the adapter's.
    pub name: String,
    /// Numbers not to exceed.
    pub limits: Limits,
    /// What it offers beyond core WebGPU.
    pub features: Features,
    /// Workgroups of one subgroup that it takes to keep all of it busy; a dispatch of fewer leaves cores idle. Nothing
    /// depends on it but which kernel is chosen, and how many workgroups share tiles that they take as they come.
    #[serde(default = "usual_workgroups")]
    pub busy_workgroups: u32,
}

/// What every WebGPU device has.
fn usual_rows() -> u32 {
    8192
}

/// What is assumed of a GPU of which nothing is known: 32 cores of 8 subgroups each.
fn usual_workgroups() -> u32 {
    256
}

const MIB: u64 = 1 << 20;

impl DeviceProfile {
    /// The names of the built-in profiles.
    pub const NAMES: [&str; 4] = ["webgpu", "mobile", "desktop", "matrix"];

    /// The defaults every WebGPU implementation guarantees.
    #[must_use]
    pub fn webgpu() -> Self {
        let limits = Limits {
            workgroup_bytes: 16 << 10,
            storage_buffers: 8,
            invocations: 256,
            workgroup_size: [256, 256, 64],
            workgroups_per_dimension: 65535,
            binding_bytes: 128 * MIB,
            buffer_bytes: 256 * MIB,
            uniform_bytes: 64 << 10,
            uniform_offset_alignment: 256,
            storage_offset_alignment: 256,
            image_rows: usual_rows(),
            loop_turns: None,
        };
        Self {
            name: "webgpu".into(),
            limits,
            features: Features::default(),
            busy_workgroups: usual_workgroups(),
        }
    }

    /// Phones below full WebGPU: four storage buffers, smaller uniforms.
    #[must_use]
    pub fn mobile() -> Self {
        let web = Self::webgpu().limits;
        let limits = Limits {
            storage_buffers: 4,
            workgroup_bytes: 16352,
            uniform_bytes: 16 << 10,
            ..web
        };
        Self {
            name: "mobile".into(),
            limits,
            features: Features::default(),
            busy_workgroups: 64,
        }
    }

    /// A desktop GPU: f16, subgroups of 8 (Intel) to 64 (AMD), 32 KiB of workgroup memory.
    #[must_use]
    pub fn desktop() -> Self {
        let limits = Limits {
            workgroup_bytes: 32 << 10,
            invocations: 1024,
            workgroup_size: [1024, 1024, 64],
            binding_bytes: 1024 * MIB,
            buffer_bytes: 1024 * MIB,
            ..Self::webgpu().limits
        };
        let subgroups = Some(SubgroupSizes { min: 8, max: 64 });
        let features = Features {
            f16: true,
            subgroups,
            ..Features::default()
        };
        Self {
            name: "desktop".into(),
            limits,
            features,
            busy_workgroups: 512,
        }
    }

    /// A desktop GPU with matrix units: 16 × 16 × 16, f16 operands, f32 sums.
    #[must_use]
    pub fn matrix() -> Self {
        let shape = CooperativeMatrix {
            m: 16,
            n: 16,
            k: 16,
            operands: DType::F16,
            accumulator: DType::F32,
        };
        let desktop = Self::desktop();
        let features = Features {
            cooperative_matrix: vec![shape],
            ..desktop.features.clone()
        };
        Self {
            name: "matrix".into(),
            features,
            ..desktop
        }
    }

    /// The built-in profile of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "webgpu" => Some(Self::webgpu()),
            "mobile" => Some(Self::mobile()),
            "desktop" => Some(Self::desktop()),
            "matrix" => Some(Self::matrix()),
            _ => None,
        }
    }

    /// Rows and columns of the matrices that kernels use, 16 or 8, if the device has them.
    #[must_use]
    pub fn matrix_size(&self) -> Option<u32> {
        let used = self.features.cooperative_matrix.iter();
        let sizes = used.filter(|shape| shape.is_used()).map(|shape| shape.m);
        sizes.max().filter(|_| self.features.f16)
    }

    /// Whether a kernel that needs `feature` may run here.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        match feature {
            Feature::F16 => self.features.f16,
            Feature::Subgroups => self.features.subgroups.is_some(),
            Feature::Int64 => self.features.int64,
            Feature::CooperativeMatrix => !self.features.cooperative_matrix.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_profile_of_that_name_and_survives_json() {
        for name in DeviceProfile::NAMES {
            let profile = DeviceProfile::by_name(name).unwrap();
            assert_eq!(profile.name, name);
            let text = serde_json::to_string(&profile).unwrap();
            assert_eq!(
                serde_json::from_str::<DeviceProfile>(&text).unwrap(),
                profile
            );
        }
    }

    #[test]
    fn only_profiles_with_the_feature_have_it() {
        assert!(!DeviceProfile::webgpu().has(Feature::F16));
        assert!(DeviceProfile::desktop().has(Feature::Subgroups));
        assert!(!DeviceProfile::desktop().has(Feature::CooperativeMatrix));
        assert!(DeviceProfile::matrix().has(Feature::CooperativeMatrix));
        assert_eq!(DeviceProfile::matrix().matrix_size(), Some(16));
        assert_eq!(DeviceProfile::desktop().matrix_size(), None);
    }
}
