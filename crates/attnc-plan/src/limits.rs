//! Sizes at given lengths: what does not fit the device, or 32-bit index arithmetic, is refused.
//!
//! Kernels compute indices in `u32`. A buffer below 2^31 elements leaves them a factor of two for
//! tiles that reach past an edge, so no sum of offsets can wrap.

use crate::{Buffer, BufferKind, Dim, DimError, DimValues, Limits, Plan};

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
    let (limit, which) = byte_limit(limits);
    let too_large = plan.weights().filter_map(|(_, name, buffer)| {
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

/// The most bytes of a buffer that is bound, and which limit says so.
fn byte_limit(limits: &Limits) -> (u64, &'static str) {
    if limits.buffer_bytes < limits.binding_bytes {
        (limits.buffer_bytes, "bytes of a buffer")
    } else {
        (limits.binding_bytes, "bytes of a storage binding")
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
    let (limit, which) = byte_limit(limits);
    let sized = |b: &&Buffer| !matches!(b.kind, BufferKind::Weight { .. });
    for buffer in plan.buffers.iter().filter(sized) {
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
mod tests {
    use super::*;
    use crate::{DType, DeviceProfile};

    fn plan(shape: &[&str]) -> Plan {
        let mut plan = Plan::new("m", DeviceProfile::webgpu());
        let shape = shape.iter().map(|d| d.parse().unwrap()).collect();
        plan.add_buffer(Buffer::temp("scores", DType::F32, shape));
        plan
    }

    #[test]
    fn the_message_names_buffer_shape_and_limit() {
        let error = check_sizes(
            &plan(&["B", "S", "1024"]),
            &DimValues::from([("B", 64), ("S", 1024)]),
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "buffer `scores` of type f32[B, S, 1024] would take 268435456 bytes; the limit of `webgpu` \
             is 134217728 (bytes of a storage binding): use smaller lengths or a device with a larger \
             limit"
        );
    }

    #[test]
    fn a_weight_over_the_limit_is_named_with_what_to_do() {
        let mut plan = Plan::new("m", DeviceProfile::webgpu());
        let (rows, small) = (Dim::from(100_000), Dim::from(3));
        plan.add_buffer(Buffer::weight("bias", DType::F32, vec![small]));
        plan.add_buffer(Buffer::weight(
            "table",
            DType::F32,
            vec![rows, Dim::from(512)],
        ));
        let limits = &plan.profile.limits;
        let error = check_weights(&plan, "webgpu", limits).unwrap_err();
        assert_eq!(
            error.to_string(),
            "weight `table` of type f32[100000, 512] takes 204800000 bytes; the limit of `webgpu` is \
             134217728 (bytes of a storage binding): store it in fewer bytes (f16 halves it), split it in the \
             model, or run on a device with a larger limit or on the CPU"
        );
        assert_eq!(check_sizes(&plan, &DimValues::default()), Ok(()));
    }

    #[test]
    fn index_arithmetic_stays_below_two_to_the_31() {
        for (b, s) in [(1 << 20, 1 << 11), (1 << 40, 1 << 40)] {
            let error = check_sizes(&plan(&["B", "S"]), &DimValues::from([("B", b), ("S", s)]));
            assert!(
                matches!(
                    error.unwrap_err().0[..],
                    [SizeProblem::TooManyElements { .. }]
                ),
                "{b} {s}"
            );
        }
        let empty = DimValues::from([("B", 1 << 40), ("S", 0)]);
        assert_eq!(check_sizes(&plan(&["B", "S"]), &empty), Ok(()));
    }

    #[test]
    fn negative_and_missing_lengths_are_errors() {
        let dims = DimValues::from([("B", 1)]);
        let negative = check_sizes(&plan(&["B - 2", "4"]), &dims)
            .unwrap_err()
            .to_string();
        assert!(negative.contains("length B - 2 is -1"), "{negative}");
        let missing = check_sizes(&plan(&["S", "4"]), &dims)
            .unwrap_err()
            .to_string();
        assert!(missing.contains("length `S` has no value"), "{missing}");
    }

    /// A plan of one step that takes `N + 1` turns, where `B` is not 0.
    fn walk() -> Plan {
        let mut plan = plan(&["N"]);
        let kernel = plan.add_kernel(crate::KernelArtifact {
            name: "scan_rows.f32".into(),
            entry: "scan_rows".into(),
            wgsl: String::new(),
            bindings: Vec::new(),
            workgroup_size: [8, 1, 1],
            workgroup_bytes: 0,
            features: Vec::new(),
            precision: crate::Precision::F32,
            tile: String::new(),
        });
        plan.steps.push(crate::Step {
            kernel,
            bindings: Vec::new(),
            uniforms: Vec::new(),
            grid: [Dim::sym("B"), Dim::one(), Dim::one()],
            nodes: Vec::new(),
            op: "cumsum".into(),
            flops: Dim::zero(),
            turns: Dim::sym("N") + Dim::one(),
        });
        plan
    }

    #[test]
    fn more_turns_than_the_device_takes_are_refused_with_what_to_do() {
        let at = |b, n, loop_turns| {
            let limits = Limits {
                loop_turns,
                ..DeviceProfile::webgpu().limits
            };
            let dims = DimValues::from([("B", b), ("N", n)]);
            check_sizes_within(&walk(), &dims, "llvmpipe (LLVM 15.0.6, 256 bits)", &limits)
        };
        let limit = Some(crate::LLVMPIPE_LOOP_TURNS);
        assert_eq!(at(1, 65534, limit), Ok(()));
        assert_eq!(
            at(1, 65535, limit).unwrap_err().to_string(),
            "step 0 (cumsum, kernel `scan_rows.f32`) would take 65536 turns of loops in one invocation; \
             `llvmpipe (LLVM 15.0.6, 256 bits)` leaves all loops after 65535, and results would be wrong \
             without a word: use smaller lengths, another GPU, or the CPU (`--backend cpu`)"
        );
        assert_eq!(at(1, 65535, None), Ok(()), "other devices count nothing");
        assert_eq!(
            at(0, 65535, limit),
            Ok(()),
            "what is not launched takes no turns"
        );
    }

    #[test]
    fn plans_without_turns_load_and_are_not_held_to_them() {
        let mut json = serde_json::to_value(walk()).unwrap();
        let step = json["steps"][0].as_object_mut().unwrap();
        assert_eq!(step.remove("turns").unwrap(), "N + 1");
        let limits = json["profile"]["limits"].as_object().unwrap();
        assert!(
            !limits.contains_key("loop_turns"),
            "no limit is not written"
        );
        let old: Plan = serde_json::from_value(json).unwrap();
        assert!(old.steps[0].turns.is(0));
        let text = serde_json::to_string(&old.steps[0]).unwrap();
        assert!(!text.contains("turns"), "{text}");
    }
}
