//! Kernels: linked, validated WGSL and what a runner needs to make a pipeline of it.

/// A kernel of a [`Plan`](crate::Plan), by position in [`Plan::kernels`](crate::Plan::kernels).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct KernelId(pub u32);

impl KernelId {
    /// The position in [`Plan::kernels`](crate::Plan::kernels).
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a kernel uses a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// `var<uniform>`: the values of [`Step::uniforms`](crate::Step::uniforms). At most one a kernel.
    Uniform,
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    ReadWrite,
    /// `texture_storage_2d<rgba32float, read>`: the buffer's image, see [`ImageSize`](crate::ImageSize).
    Image,
}

/// One `@group @binding` variable of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Binding {
    /// The number after `@group`.
    pub group: u32,
    /// The number after `@binding`.
    pub binding: u32,
    /// How the kernel uses it.
    pub access: Access,
    /// The variable's name in the WGSL.
    pub name: String,
}

impl Binding {
    /// A binding of group 0.
    #[must_use]
    pub fn new(binding: u32, access: Access, name: &str) -> Self {
        Self {
            group: 0,
            binding,
            access,
            name: name.to_owned(),
        }
    }
}

/// What a kernel needs beyond core WebGPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// 16-bit floats in WGSL (`enable f16;`).
    F16,
    /// Subgroup operations (`enable subgroups;`).
    Subgroups,
    /// 64-bit integers: naga's addition to WGSL, for native devices only.
    Int64,
    /// Cooperative matrices.
    CooperativeMatrix,
}

/// What a kernel computes floats in, whatever its buffers store them as ([`Buffer::dtype`](crate::Buffer)).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Every product, sum and function in f32; 16-bit elements are widened when read and rounded when stored.
    #[default]
    F32,
}

impl Precision {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
        }
    }
}

/// A compute shader ready to become a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KernelArtifact {
    /// The key, read aloud: `flash_attention_fwd_rows.f32.r4d64.causal`. Unique in the plan; letters,
    /// digits, `.`, `-` and `_` only, since it is also a file name.
    pub name: String,
    /// The entry point.
    pub entry: String,
    /// The text; in a bundle's `plan.json`, the name of the file that holds it.
    pub wgsl: String,
    /// The variables it binds, in the order in which [`Step::bindings`](crate::Step::bindings) names
    /// buffers.
    pub bindings: Vec<Binding>,
    /// Invocations of a workgroup along x, y, z.
    pub workgroup_size: [u32; 3],
    /// Bytes of `var<workgroup>`.
    pub workgroup_bytes: u32,
    /// What it needs beyond core WebGPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<Feature>,
    /// What it computes floats in.
    #[serde(default)]
    pub precision: Precision,
    /// How the tile was chosen, for people: the byte formula against the limits. May be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tile: String,
}

impl KernelArtifact {
    /// The storage bindings, images among them, in order.
    pub fn storage_bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.iter().filter(|b| b.access != Access::Uniform)
    }

    /// The uniform binding, if there is one.
    #[must_use]
    pub fn uniform_binding(&self) -> Option<&Binding> {
        self.bindings.iter().find(|b| b.access == Access::Uniform)
    }

    /// Invocations of a workgroup.
    #[must_use]
    pub fn invocations(&self) -> u64 {
        self.workgroup_size.iter().map(|&n| u64::from(n)).product()
    }

    /// The kernel's file, as `name` stands before the first dot: `flash_attention_fwd_rows`.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name.split('.').next().unwrap_or(&self.name)
    }
}
