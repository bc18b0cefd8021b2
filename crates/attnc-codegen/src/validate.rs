//! Parses and validates linked WGSL with naga, lints it, and reports what a pipeline needs to know.
//!
//! ```
//! use attnc_codegen::{link::Linked, validate::validate};
//!
//! let source = "@group(0) @binding(0) var<storage, read_write> out: array<f32>;
//! @compute @workgroup_size(8)
//! fn fill(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = 1.0; }";
//! let report = validate(&Linked::from_source("fill.wgsl", source)).unwrap();
//! assert_eq!((report.entry_point.as_str(), report.workgroup_size), ("fill", [8, 1, 1]));
//! assert_eq!(report.bindings[0].min_size, 4);
//! ```
//!
//! On entry: any text. On exit: valid WGSL within WebGPU's defaults and optional features that the report names
//! (f16 and cooperative matrices, where the text enables them, subgroup operations, and 64-bit integers), with
//! exactly one compute entry point and barriers only in uniform control flow; errors name the original file and
//! line. A pure function of the text.
//!
//! naga refuses the line `enable subgroups;` and browsers demand it: texts have none, and whoever hands one to a
//! browser writes it in front of kernels whose artifact lists `Feature::Subgroups`.

use std::fmt;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, BuiltIn, Expression, ImageClass, ImageDimension, Module, ScalarKind, ShaderStage,
    StorageAccess, StorageFormat, TypeInner,
};

use crate::link::{Linked, SourceLine};
use crate::lint;

/// What a valid shader asks of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Name of the entry point.
    pub entry_point: String,
    /// Invocations of a workgroup along x, y, z.
    pub workgroup_size: [u32; 3],
    /// Workgroup memory the entry point uses, in bytes.
    pub workgroup_bytes: u32,
    /// Whether it says `enable f16;`.
    pub f16: bool,
    /// Whether it says `enable wgpu_cooperative_matrix;`.
    pub matrices: bool,
    /// Whether it uses subgroup operations, or asks for a subgroup's size or its lanes' numbers.
    pub subgroups: bool,
    /// Whether it has 64-bit integers, which no browser knows.
    pub int64: bool,
    /// The resources the entry point uses, by group and binding.
    pub bindings: Vec<Binding>,
}

/// A resource of a shader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// `@group`
    pub group: u32,
    /// `@binding`
    pub binding: u32,
    /// The variable's name.
    pub name: String,
    /// How the shader uses it.
    pub access: Access,
    /// Least size of the bound buffer in bytes; a run-time sized array counts as one element.
    pub min_size: u64,
}

/// Address space and access mode of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `var<uniform>`
    Uniform,
    /// `var<storage, read>`
    ReadOnly,
    /// `var<storage, read_write>`
    ReadWrite,
    /// `texture_storage_2d<rgba32float, read>`
    Image,
}

/// One thing that is wrong with a shader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, in the text that was linked; `None` if it has no place or the linker wrote the line.
    pub at: Option<SourceLine>,
    /// The line itself, trimmed.
    pub line: String,
    /// What was expected and found.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{at}: {}", self.message)?,
            None => write!(f, "{}", self.message)?,
        }
        if self.line.is_empty() {
            Ok(())
        } else {
            write!(f, "\n      | {}", self.line)
        }
    }
}

/// A shader that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid shader:{}", problems.iter().map(|p| format!("\n  {p}")).collect::<String>())]
pub struct ValidateError {
    /// Never empty. naga stops at its first error; the lint reports all it finds.
    pub problems: Vec<Problem>,
}

/// The line that lets a shader use f16.
pub(crate) const ENABLE_F16: &str = "enable f16;";

/// The line that lets a shader use cooperative matrices, an extension of wgpu's.
const ENABLE_MATRICES: &str = "enable wgpu_cooperative_matrix;";

/// Checks a shader and reflects its interface.
///
/// # Errors
/// The syntax or type error naga found, or a missing or second entry point, or every barrier that may be
/// reached by some invocations of a workgroup only.
pub fn validate(linked: &Linked) -> Result<Report, ValidateError> {
    let module = naga::front::wgsl::parse_str(&linked.source).map_err(|error| {
        let line = error
            .location(&linked.source)
            .map(|place| place.line_number);
        fail(problem(linked, line, error.message().to_owned()))
    })?;
    // What `pack2x16float` and its inverse need, which every WebGPU device has; and subgroups and 64-bit integers,
    // since a text does not say beforehand that it uses them. Barriers of a subgroup are another feature.
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::SHADER_INT64;
    let f16 = linked.source.lines().any(|line| line == ENABLE_F16);
    capabilities.set(Capabilities::SHADER_FLOAT16, f16);
    let matrices = linked.source.lines().any(|line| line == ENABLE_MATRICES);
    capabilities.set(Capabilities::COOPERATIVE_MATRIX, matrices);
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| {
            // The spans run from a function to an expression in it; the narrowest says most.
            let spans = error.spans().filter(|(span, _)| span.is_defined());
            let narrowest = spans
                .filter_map(|(span, _)| Some((span.to_range()?.len(), *span)))
                .min_by_key(|(len, _)| *len);
            let line = narrowest.map(|(_, span)| span.location(&linked.source).line_number);
            fail(problem(linked, line, with_causes(error.as_inner())))
        })?;
    let divergent = lint::divergent_barriers(&module);
    if !divergent.is_empty() {
        let at_line = |span: naga::Span| {
            span.is_defined()
                .then(|| span.location(&linked.source).line_number)
        };
        let problems = divergent
            .into_iter()
            .map(|found| problem(linked, at_line(found.span), found.to_string()));
        return Err(ValidateError {
            problems: problems.collect(),
        });
    }
    let report = reflect(&module, &info).map_err(|message| fail(problem(linked, None, message)))?;
    Ok(Report {
        f16,
        matrices,
        ..report
    })
}

fn fail(problem: Problem) -> ValidateError {
    ValidateError {
        problems: vec![problem],
    }
}

fn problem(linked: &Linked, line: Option<u32>, message: String) -> Problem {
    let text = line.and_then(|line| {
        linked
            .source
            .lines()
            .nth(usize::try_from(line).ok()?.checked_sub(1)?)
    });
    Problem {
        at: line.and_then(|line| linked.origin(line)).cloned(),
        line: text.unwrap_or_default().trim().to_owned(),
        message,
    }
}

/// An error and its causes, since naga's outer message names only the function.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn reflect(module: &Module, info: &ModuleInfo) -> Result<Report, String> {
    let [entry] = module.entry_points.as_slice() else {
        let names: Vec<_> = module
            .entry_points
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        return Err(format!(
            "expected one entry point, found {}: {}",
            names.len(),
            names.join(", ")
        ));
    };
    if entry.stage != ShaderStage::Compute {
        return Err(format!(
            "expected `{}` to be a compute entry point, found {:?}",
            entry.name, entry.stage
        ));
    }
    let mut report = Report {
        entry_point: entry.name.clone(),
        workgroup_size: entry.workgroup_size,
        workgroup_bytes: 0,
        f16: false,
        matrices: false,
        subgroups: uses_subgroups(module),
        int64: uses_int64(module),
        bindings: Vec::new(),
    };
    for (handle, variable) in module.global_variables.iter() {
        if info.get_entry_point(0)[handle].is_empty() {
            continue; // not used by the entry point
        }
        let size = module.types[variable.ty].inner.size(module.to_ctx());
        let access = match variable.space {
            AddressSpace::WorkGroup => {
                report.workgroup_bytes += size;
                continue;
            }
            AddressSpace::Uniform => Access::Uniform,
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                Access::ReadWrite
            }
            AddressSpace::Storage { .. } => Access::ReadOnly,
            AddressSpace::Handle if is_image(&module.types[variable.ty].inner) => Access::Image,
            _ => continue,
        };
        let Some(place) = &variable.binding else {
            continue;
        };
        report.bindings.push(Binding {
            group: place.group,
            binding: place.binding,
            name: variable.name.clone().unwrap_or_default(),
            access,
            min_size: u64::from(size),
        });
    }
    report
        .bindings
        .sort_by_key(|binding| (binding.group, binding.binding));
    Ok(report)
}

/// Whether it is the one kind of texture that kernels read.
fn is_image(ty: &TypeInner) -> bool {
    matches!(
        ty,
        TypeInner::Image {
            dim: ImageDimension::D2,
            arrayed: false,
            class: ImageClass::Storage {
                format: StorageFormat::Rgba32Float,
                access: StorageAccess::LOAD,
            },
        }
    )
}

/// Whether it has a type of 64-bit integers.
fn uses_int64(module: &Module) -> bool {
    let mut types = module.types.iter();
    types.any(|(_, ty)| {
        ty.inner
            .scalar()
            .is_some_and(|s| s.width == 8 && matches!(s.kind, ScalarKind::Uint | ScalarKind::Sint))
    })
}

/// Whether any function has the result of a subgroup operation, or the entry point an argument about subgroups.
fn uses_subgroups(module: &Module) -> bool {
    let entries = module.entry_points.iter().map(|entry| &entry.function);
    let mut functions = module.functions.iter().map(|(_, f)| f).chain(entries);
    functions.any(|function| {
        let results = function.expressions.iter().any(|(_, expression)| {
            matches!(
                expression,
                Expression::SubgroupBallotResult | Expression::SubgroupOperationResult { .. }
            )
        });
        let about = |argument: &naga::FunctionArgument| {
            matches!(
                argument.binding,
                Some(naga::Binding::BuiltIn(
                    BuiltIn::SubgroupSize
                        | BuiltIn::SubgroupInvocationId
                        | BuiltIn::SubgroupId
                        | BuiltIn::NumSubgroups
                ))
            )
        };
        results || function.arguments.iter().any(about)
    })
}
