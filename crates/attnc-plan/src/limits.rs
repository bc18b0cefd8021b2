//! Sizes at given lengths: what does not fit the device, or 32-bit index arithmetic, is refused.
//!
//! Kernels compute indices in `u32`. A buffer below 2^31 elements leaves them a factor of two for
//! tiles that reach past an edge, so no sum of offsets can wrap.

use crate::images::image_byte_limit;
use crate::{Buffer, BufferId, BufferKind, Dim, DimError, DimValues, Limits, Plan};
use std::collections::BTreeSet;

/// The most elements a buffer may have: 2^31 - 1.
pub const MAX_ELEMENTS: i64 = (1 << 31) - 1;

/// A buffer or a step that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeProblem {
    /// More elements than 32-bit indices can address safely.
    #[error(
        "buffer `{buffer}` of type {shape} would have {elements} elements; \
         at most {MAX_ELEMENTS} can be indexed: use smaller lengths"
    )]
    TooManyElements {
        /// The buffer's name.
        buffer: String,
        /// Its type with symbolic lengths.
        shape: String,
        /// How many elements.
        elements: i64,
    },
    /// More bytes than the device binds.
    #[error(
        "buffer `{buffer}` of type {shape} would take {bytes} bytes; the limit of `{device}` is \
         {limit} ({which}): use smaller lengths or a device with a larger limit"
    )]
    TooManyBytes {
        /// The buffer's name.
        buffer: String,
        /// Its type with symbolic lengths.
        shape: String,
        /// How many bytes.
        bytes: u64,
        /// The device's or profile's name.
        device: String,
        /// The limit in bytes.
        limit: u64,
        /// Which limit.
        which: &'static str,
    },
    /// A weight of more bytes than the device binds.
    #[error(
        "weight `{weight}` of type {shape} takes {bytes} bytes; the limit of `{device}` is {limit} \
         ({which}): store it in fewer bytes (f16 halves it), split it in the model, or run on a device with a \
         larger limit or on the CPU"
    )]
    WeightTooLarge {
        /// The weight's name.
        weight: String,
        /// Its type.
        shape: String,
        /// How many bytes.
        bytes: u64,
        /// The device's or profile's name.
        device: String,
        /// The limit in bytes.
        limit: u64,
        /// Which limit.
        which: &'static str,
    },
    /// A shape has no value, or a negative one.
    #[error("buffer `{buffer}` of type {shape} has no size: {error}")]
    NoSize {
        /// The buffer's name.
        buffer: String,
        /// Its type with symbolic lengths.
        shape: String,
        /// Why.
        error: DimError,
    },
    /// A negative length.
    #[error("buffer `{buffer}` of type {shape}: length {dim} is {value}; it must be at least 0")]
    Negative {
        /// The buffer's name.
        buffer: String,
        /// Its type with symbolic lengths.
        shape: String,
        /// The expression.
        dim: String,
        /// Its value.
        value: i64,
    },
    /// More turns of loops than the device takes.
    #[error(
        "step {step} ({op}, kernel `{kernel}`) would take {turns} turns of loops in one invocation; `{device}` leaves \
         all loops after {limit}, and results would be wrong without a word: use smaller lengths, another GPU, \
         or the CPU (`--backend cpu`)"
    )]
    TooManyTurns {
        /// Position in the plan.
        step: usize,
        /// The operation.
        op: String,
        /// The kernel's name.
        kernel: String,
        /// How many turns at most.
        turns: i64,
        /// The device's or profile's name.
        device: String,
        /// The limit.
        limit: u32,
    },
    /// A uniform or a grid does not fit.
    #[error("step {step} ({op}, kernel `{kernel}`) cannot be launched: {error}")]
    Step {
        /// Position in the plan.
        step: usize,
        /// The operation.
        op: String,
        /// The kernel's name.
        kernel: String,
        /// Why.
        error: DimError,
    },
}

/// Everything that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SizeErrors(pub Vec<SizeProblem>);

/// Checks all buffers, the weights aside, and all steps against the profile the plan was made for.
///
/// # Errors
/// Every buffer and step that does not fit.
pub fn check_sizes(plan: &Plan, dims: &DimValues) -> Result<(), SizeErrors> {
    check_sizes_within(plan, dims, &plan.profile.name, &plan.profile.limits)
}

/// Checks the weights against the limits of a device or profile called `device`; lengths do not matter to them.
///
/// # Errors
/// Every weight that cannot be bound.
pub fn check_weights(plan: &Plan, device: &str, limits: &Limits) -> Result<(), SizeErrors> {
    let bound = Bound::of(plan, limits);
    let too_large = plan.weights().filter_map(|(id, name, buffer)| {
        let (limit, which) = bound.byte_limit(id);
        let bytes = buffer.bytes(&DimValues::default()).unwrap_or(u64::MAX);
        (bytes > limit).then(|| SizeProblem::WeightTooLarge {
            weight: name.to_owned(),
            shape: buffer.type_text(),
            bytes,
            device: device.to_owned(),
            limit,
            which,
        })
    });
    let problems: Vec<_> = too_large.collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(SizeErrors(problems))
    }
}

/// How the buffers of a plan are bound on a device, which limits their bytes.
struct Bound {
    images: BTreeSet<BufferId>,
    buffers: BTreeSet<BufferId>,
    limits: Limits,
}

impl Bound {
    fn of(plan: &Plan, limits: &Limits) -> Self {
        Self {
            images: plan.image_sources(),
            buffers: plan.buffers_bound(),
            limits: *limits,
        }
    }

    /// The most bytes that a buffer may have, and which limit says so. A weight that only images are made of is never
    /// bound itself.
    fn byte_limit(&self, id: BufferId) -> (u64, &'static str) {
        let limits = &self.limits;
        let image = (image_byte_limit(limits), "bytes of an image");
        let binding = (limits.binding_bytes, "bytes of a storage binding");
        let buffer = (limits.buffer_bytes, "bytes of a buffer");
        let is_image = self.images.contains(&id);
        let is_bound = !is_image || self.buffers.contains(&id);
        let used = [(is_image, image), (is_bound, binding), (true, buffer)];
        let used = used.into_iter().filter(|(used, _)| *used);
        used.map(|(_, limit)| limit)
            .min_by_key(|(bytes, _)| *bytes)
            .unwrap_or(buffer)
    }
}

/// Checks all buffers, the weights aside, and all steps against the limits of a live device called `device`.
///
/// # Errors
/// Every buffer and step that does not fit.
pub fn check_sizes_within(
    plan: &Plan,
    dims: &DimValues,
    device: &str,
    limits: &Limits,
) -> Result<(), SizeErrors> {
    let mut problems = Vec::new();
    let bound = Bound::of(plan, limits);
    let sized = |b: &Buffer| !matches!(b.kind, BufferKind::Weight { .. });
    for (id, buffer) in plan.buffer_ids().filter(|(_, b)| sized(b)) {
        let (limit, which) = bound.byte_limit(id);
        let shape = buffer.type_text();
        let name = buffer.name.clone();
        match size(&buffer.shape, dims) {
            Err(Size::Eval(error)) => {
                problems.push(SizeProblem::NoSize {
                    buffer: name,
                    shape,
                    error,
                });
            }
            Err(Size::Negative(dim, value)) => {
                problems.push(SizeProblem::Negative {
                    buffer: name,
                    shape,
                    dim,
                    value,
                });
            }
            Ok(elements) if elements > MAX_ELEMENTS => {
                problems.push(SizeProblem::TooManyElements {
                    buffer: name,
                    shape,
                    elements,
                });
            }
            Ok(elements) => {
                let bytes = elements.unsigned_abs() * buffer.dtype.bytes() as u64;
                if bytes > limit {
                    let device = device.to_owned();
                    problems.push(SizeProblem::TooManyBytes {
                        buffer: name,
                        shape,
                        bytes,
                        device,
                        limit,
                        which,
                    });
                }
            }
        }
    }
    for step in 0..plan.steps.len() {
        problems.extend(step_problem(plan, step, dims, device, limits));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(SizeErrors(problems))
    }
}

/// What keeps a step from being launched, or from coming to its end.
fn step_problem(
    plan: &Plan,
    step: usize,
    dims: &DimValues,
    device: &str,
    limits: &Limits,
) -> Option<SizeProblem> {
    let of = &plan.steps[step];
    let kernel = || plan.kernel(of.kernel).name.clone();
    let no_launch = |error| SizeProblem::Step {
        step,
        op: of.op.clone(),
        kernel: kernel(),
        error,
    };
    let launch = match of.launch(dims, limits.workgroups_per_dimension) {
        Ok(launch) => launch,
        Err(error) => return Some(no_launch(error)),
    };
    let limit = limits.loop_turns?;
    match dims.eval(&of.turns) {
        Err(error) => Some(no_launch(error)),
        Ok(turns) if turns > i64::from(limit) && launch.workgroups != [0; 3] => {
            Some(SizeProblem::TooManyTurns {
                step,
                op: of.op.clone(),
                kernel: kernel(),
                turns,
                device: device.to_owned(),
                limit,
            })
        }
        Ok(_) => None,
    }
}

enum Size {
    Eval(DimError),
    Negative(String, i64),
}

/// The number of elements, saturating: two huge lengths must not wrap into a small product.
fn size(shape: &[Dim], dims: &DimValues) -> Result<i64, Size> {
    let mut values = Vec::with_capacity(shape.len());
    for dim in shape {
        let value = dims.eval(dim).map_err(Size::Eval)?;
        if value < 0 {
            return Err(Size::Negative(dim.to_string(), value));
        }
        values.push(value);
    }
    // An empty tensor is empty however long its other axes are.
    if values.contains(&0) {
        return Ok(0);
    }
    Ok(values.into_iter().fold(1, i64::saturating_mul))
}

#[cfg(test)]
mod tests;
