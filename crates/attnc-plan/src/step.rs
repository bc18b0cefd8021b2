//! Steps: dispatches whose sizes are expressions over the symbolic lengths.

use crate::{BufferId, Dim, DimError, DimValues, KernelId};

/// One 4-byte word of a kernel's uniform struct.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uniform {
    /// A length, stride or count; its value must fit a `u32`.
    U32(Dim),
    /// A signed number; its value must fit an `i32`.
    I32(Dim),
    /// A float, such as the attention scale. Infinities and NaN are written as text in JSON.
    F32(#[serde(with = "float")] f32),
}

impl Uniform {
    /// The four bytes of the value, little-endian as WGSL wants it.
    ///
    /// # Errors
    /// Where a length has no value or the value does not fit the word.
    pub fn word(&self, dims: &DimValues) -> Result<[u8; 4], DimError> {
        let overflow = |dim: &Dim| DimError::Overflow(dim.to_string());
        match self {
            Self::U32(dim) => {
                let value = u32::try_from(dims.eval(dim)?).map_err(|_| overflow(dim))?;
                Ok(value.to_le_bytes())
            }
            Self::I32(dim) => {
                let value = i32::try_from(dims.eval(dim)?).map_err(|_| overflow(dim))?;
                Ok(value.to_le_bytes())
            }
            Self::F32(value) => Ok(value.to_le_bytes()),
        }
    }
}

/// One dispatch.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Step {
    /// What runs.
    pub kernel: KernelId,
    /// One buffer for each storage binding and image of the kernel, in the order of
    /// [`KernelArtifact::bindings`](crate::KernelArtifact::bindings).
    pub bindings: Vec<BufferId>,
    /// The words of the kernel's uniform struct in order; the runner pads to 16 bytes.
    pub uniforms: Vec<Uniform>,
    /// Workgroups along x, y, z. Kernels see only the *linear* id
    /// `id.x + id.y * num.x + id.z * num.x * num.y` and return where it is past the product, so that
    /// a runner may fold a grid that is over the device's limit into other dimensions.
    pub grid: [Dim; 3],
    /// The nodes of the source graph this step stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The operation, for people: `attention`, `matmul`, `layer_norm`.
    pub op: String,
    /// Floating-point operations, a multiply-add counting two.
    pub flops: Dim,
    /// Turns of loops that one invocation takes at most, those of inner loops and the turns in which loops end
    /// included; 0 where nobody counted, as in plans of before. See [`Limits::loop_turns`](crate::Limits::loop_turns).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: Dim,
}

fn is_zero(dim: &Dim) -> bool {
    dim.is(0)
}

/// A step with its lengths filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepLaunch {
    /// Workgroups along x, y, z; none over the device's limit. Their product may exceed the plan's
    /// grid. `[0, 0, 0]`: nothing to do.
    pub workgroups: [u32; 3],
    /// The uniform struct's bytes, a multiple of 16; empty where the kernel has none.
    pub uniforms: Vec<u8>,
}

impl Step {
    /// Fills in the lengths and folds the grid to at most `max_per_dimension` workgroups each way.
    ///
    /// # Errors
    /// Where a length has no value, a uniform does not fit its word, or the grid has 2^32 workgroups
    /// or more.
    pub fn launch(&self, dims: &DimValues, max_per_dimension: u32) -> Result<StepLaunch, DimError> {
        let mut uniforms = Vec::with_capacity(self.uniforms.len() * 4 + 12);
        for uniform in &self.uniforms {
            uniforms.extend(uniform.word(dims)?);
        }
        uniforms.resize(uniforms.len().next_multiple_of(16), 0);
        Ok(StepLaunch {
            workgroups: self.workgroups(dims, max_per_dimension)?,
            uniforms,
        })
    }

    fn workgroups(&self, dims: &DimValues, max: u32) -> Result<[u32; 3], DimError> {
        let total: Dim = self.grid.iter().cloned().product();
        let overflow = || DimError::Overflow(total.to_string());
        let mut given = [0u32; 3];
        for (slot, dim) in given.iter_mut().zip(&self.grid) {
            *slot = u32::try_from(dims.eval(dim)?).map_err(|_| overflow())?;
        }
        let count = given
            .iter()
            .try_fold(1u32, |n, &x| n.checked_mul(x))
            .ok_or_else(overflow)?;
        if count == 0 {
            return Ok([0; 3]);
        }
        if given.iter().all(|&n| n <= max) {
            return Ok(given);
        }
        fold(count, max).ok_or_else(overflow)
    }
}

/// The flattest grid of at least `count` workgroups with few to spare.
fn fold(count: u32, max: u32) -> Option<[u32; 3]> {
    let (count, max) = (u64::from(count), u64::from(max));
    let z = count.div_ceil(max * max);
    let y = count.div_ceil(max * z);
    let x = count.div_ceil(y * z);
    // The linear id must fit a u32 for the workgroups past the end as well.
    (z <= max && x * y * z <= u64::from(u32::MAX))
        .then(|| [x, y, z].map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
}

/// `f32` in JSON: a number, or `"inf"`, `"-inf"`, `"NaN"`.
mod float {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature serde asks for"
    )]
    pub(super) fn serialize<S: Serializer>(value: &f32, s: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() {
            s.serialize_f32(*value)
        } else {
            s.collect_str(value)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f32, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f32),
            Text(String),
        }
        match Form::deserialize(d)? {
            Form::Number(n) => Ok(n),
            Form::Text(text) => match text.as_str() {
                "inf" => Ok(f32::INFINITY),
                "-inf" => Ok(f32::NEG_INFINITY),
                "NaN" => Ok(f32::NAN),
                _ => Err(D::Error::custom(format!(
                    "expected a number, inf, -inf or NaN, not {text}"
                ))),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(grid: [Dim; 3], uniforms: Vec<Uniform>) -> Step {
        Step {
            kernel: KernelId(0),
            bindings: vec![],
            uniforms,
            grid,
            nodes: vec![],
            op: "test".into(),
            flops: Dim::zero(),
            turns: Dim::zero(),
        }
    }

    #[test]
    fn uniforms_are_words_in_order_padded_to_sixteen() {
        let words = vec![
            Uniform::U32(Dim::sym("S")),
            Uniform::I32(Dim::from(-1)),
            Uniform::F32(0.5),
            Uniform::U32(Dim::from(7)),
            Uniform::U32(Dim::from(8)),
        ];
        let launch = step([Dim::one(), Dim::one(), Dim::one()], words)
            .launch(&DimValues::from([("S", 5)]), 65535)
            .unwrap();
        assert_eq!(launch.uniforms.len(), 32);
        assert_eq!(launch.uniforms[..4], 5u32.to_le_bytes());
        assert_eq!(launch.uniforms[4..8], (-1i32).to_le_bytes());
        assert_eq!(launch.uniforms[8..12], 0.5f32.to_le_bytes());
        assert_eq!(launch.uniforms[20..], [0; 12]);
    }

    #[test]
    fn grids_fold_only_where_they_must() {
        let at = |n: i64| {
            step([Dim::from(n), Dim::one(), Dim::one()], vec![])
                .launch(&DimValues::default(), 65535)
                .unwrap()
                .workgroups
        };
        assert_eq!(at(65535), [65535, 1, 1]);
        assert_eq!(at(65536), [32768, 2, 1]);
        for n in [70_001, 65535 * 2 + 1, 4_000_000_000] {
            let folded = at(n).map(u64::from);
            let product: u64 = folded.iter().product();
            assert!(folded.iter().all(|&x| x <= 65535), "{n}: {folded:?}");
            assert!(
                product >= n as u64 && product < n as u64 + 65536 * 2,
                "{n}: {folded:?}"
            );
        }
        assert_eq!(at(0), [0, 0, 0]);
    }

    #[test]
    fn what_does_not_fit_a_word_is_an_error() {
        let dims = DimValues::default();
        let too_big = step([Dim::from(1i64 << 32), Dim::one(), Dim::one()], vec![]);
        assert!(too_big.launch(&dims, 65535).is_err());
        assert!(Uniform::U32(Dim::from(-1)).word(&dims).is_err());
        assert!(Uniform::I32(Dim::from(1i64 << 31)).word(&dims).is_err());
        assert!(Uniform::U32(Dim::sym("S")).word(&dims).is_err());
    }

    #[test]
    fn infinities_survive_json() {
        for value in [0.1f32, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE] {
            let text = serde_json::to_string(&Uniform::F32(value)).unwrap();
            assert_eq!(
                serde_json::from_str::<Uniform>(&text).unwrap(),
                Uniform::F32(value),
                "{text}"
            );
        }
    }
}
