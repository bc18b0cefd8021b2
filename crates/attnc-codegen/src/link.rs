//! Joins WGSL modules into one shader: specialise by linking, not by templating.
//!
//! A kernel file names what it needs in import lines of WESL's form,
//! `import package::lib::indexing::{div_ceil};`. A path of several segments is a file of the catalogue in
//! `shaders/`; a path of one segment (`package::params`) is a *slot* that the caller fills with generated
//! text. The linker reads only those lines and the names declared at module scope; it renames nothing.
//!
//! ```
//! use attnc_codegen::link::Linker;
//!
//! let linked = Linker::new("pointwise")
//!     .module_file("params", "params/default")
//!     .module("mods", "fn element(i: u32) -> f32 {\n    return f32(i);\n}\n")
//!     .link()
//!     .unwrap();
//! assert!(linked.source.contains("fn pointwise("));
//! assert!(!linked.source.contains("import "));
//! ```
//!
//! On entry: nothing is assumed. On exit: every import names a declaration that is present exactly once,
//! and every line of the result is mapped to the line of the file or slot it came from. Whether the
//! result is valid WGSL is for [`crate::validate`] to say.

use std::fmt;

use indexmap::{IndexMap, IndexSet};

mod problems;
mod scan;

pub use problems::{LinkError, LinkProblem};
use scan::{Scan, scan};

/// Slots in the order in which they are joined; the kernel file stands after `params`. Other slots follow.
const BEFORE_KERNEL: &[&str] = &["prelude", "params"];
const AFTER_KERNEL: &[&str] = &["micro", "mods"];

/// A line of the text that was linked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// `kernels/matmul_rows.wgsl`, or `mods (generated)` for the text of a slot.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One shader, ready to be validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// The whole text, ending in a newline.
    pub source: String,
    /// Where each line of `source` comes from; `None` for lines the linker wrote.
    pub line_map: Vec<Option<SourceLine>>,
}

impl Linked {
    /// A shader that was not linked from parts: every line maps to itself in `file`.
    #[must_use]
    pub fn from_source(file: &str, source: &str) -> Self {
        let mut linked = Self {
            source: String::new(),
            line_map: Vec::new(),
        };
        for (line, text) in (1..).zip(source.lines()) {
            linked.push(
                text,
                Some(SourceLine {
                    file: file.to_owned(),
                    line,
                }),
            );
        }
        linked
    }

    /// Where line `line` (counted from 1) of the source comes from.
    #[must_use]
    pub fn origin(&self, line: u32) -> Option<&SourceLine> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        self.line_map.get(index)?.as_ref()
    }

    /// Makes an image of an operand that the kernel declares as `array<{operand}_item>` in a buffer: no seam can stand for
    /// both. Where it declares none, what reads the image will not validate.
    pub fn bind_image(&mut self, operand: &str) {
        let buffer = format!("var<storage, read> {operand}: array<{operand}_item>;");
        let image = format!("var {operand}: texture_storage_2d<rgba32float, read>;");
        self.source = self.source.replacen(&buffer, &image, 1);
    }

    fn push(&mut self, text: &str, origin: Option<SourceLine>) {
        self.source.push_str(text);
        self.source.push('\n');
        self.line_map.push(origin);
    }
}

/// A text with the name that errors and the line map give it.
#[derive(Debug, Clone)]
struct Part {
    file: String,
    source: String,
}

/// Collects the modules of one shader. See the [module page](self).
#[derive(Debug, Clone)]
pub struct Linker {
    kernel: String,
    header: String,
    slots: IndexMap<String, Vec<Part>>,
    problems: Vec<LinkProblem>,
}

impl Linker {
    /// Starts from the file `kernels/{kernel}.wgsl`.
    #[must_use]
    pub fn new(kernel: &str) -> Self {
        Self {
            kernel: kernel.to_owned(),
            header: String::new(),
            slots: IndexMap::new(),
            problems: Vec::new(),
        }
    }

    /// Comment lines to stand at the top, without their slashes.
    #[must_use]
    pub fn header(mut self, text: &str) -> Self {
        self.header = text.to_owned();
        self
    }

    /// Fills the slot `package::{slot}` with generated text; a second text for a slot is appended to it.
    ///
    /// The slot `prelude` needs no import: it holds a target's `enable` lines.
    #[must_use]
    pub fn module(mut self, slot: &str, source: &str) -> Self {
        let part = Part {
            file: format!("{slot} (generated)"),
            source: source.to_owned(),
        };
        self.slots.entry(slot.to_owned()).or_default().push(part);
        self
    }

    /// Fills the slot `package::{slot}` with a file of the catalogue, such as `mods/mask_causal`.
    #[must_use]
    pub fn module_file(mut self, slot: &str, name: &str) -> Self {
        if let Some(file) = attnc_shaders::find(name) {
            let part = Part {
                file: file.path.to_owned(),
                source: file.source.to_owned(),
            };
            self.slots.entry(slot.to_owned()).or_default().push(part);
        } else {
            self.problems.push(LinkProblem::UnknownModule {
                at: SourceLine {
                    file: format!("slot {slot}"),
                    line: 1,
                },
                module: name.replace('/', "::"),
                hint: "it is no file of the catalogue",
            });
        }
        self
    }

    /// Joins the modules: header, enable lines, prelude, params, kernel, micro, mods, other slots, library files.
    ///
    /// # Errors
    /// Lists every import that cannot be resolved, every name declared twice, every slot without use.
    pub fn link(self) -> Result<Linked, LinkError> {
        let Some(kernel) = attnc_shaders::find(&format!("kernels/{}", self.kernel)) else {
            let known = attnc_shaders::CATALOGUE
                .iter()
                .filter_map(|file| file.name.strip_prefix("kernels/"));
            let known = known.collect::<Vec<_>>().join(", ");
            let problem = LinkProblem::UnknownKernel {
                name: self.kernel.clone(),
                known,
            };
            return Err(LinkError {
                kernel: self.kernel,
                problems: vec![problem],
            });
        };
        let mut problems = self.problems;
        let mut modules: IndexMap<String, Module> = IndexMap::new();
        modules.insert(module_path(kernel.name), Module::of_file(kernel));
        for (slot, parts) in self.slots {
            modules.insert(slot, Module::new(parts));
        }
        resolve(&mut modules, &mut problems);
        let order = join_order(&modules, &module_path(kernel.name));
        check_duplicates(&modules, &order, &mut problems);
        if problems.is_empty() {
            Ok(join(&self.header, &modules, &order))
        } else {
            Err(LinkError {
                kernel: self.kernel,
                problems,
            })
        }
    }
}

/// The parts of one module and what a line scan found in each.
struct Module {
    parts: Vec<(Part, Scan)>,
}

impl Module {
    fn new(parts: Vec<Part>) -> Self {
        let parts = parts
            .into_iter()
            .map(|part| (part.clone(), scan(&part.file, &part.source)));
        Self {
            parts: parts.collect(),
        }
    }

    fn of_file(file: &attnc_shaders::ShaderFile) -> Self {
        Self::new(vec![Part {
            file: file.path.to_owned(),
            source: file.source.to_owned(),
        }])
    }

    fn declared(&self) -> impl Iterator<Item = &(String, SourceLine)> {
        self.parts.iter().flat_map(|(_, scan)| &scan.declarations)
    }

    fn imports(&self) -> impl Iterator<Item = &scan::Import> {
        self.parts.iter().flat_map(|(_, scan)| &scan.imports)
    }
}

/// `lib/indexing` as import lines spell it.
fn module_path(name: &str) -> String {
    name.replace('/', "::")
}

/// Adds the catalogue files that imports ask for, then checks every imported name.
fn resolve(modules: &mut IndexMap<String, Module>, problems: &mut Vec<LinkProblem>) {
    let mut next = 0;
    while let Some((_, module)) = modules.get_index(next) {
        next += 1;
        let wanted: Vec<_> = module
            .imports()
            .map(|import| import.module.clone())
            .collect();
        for path in wanted {
            let file = attnc_shaders::find(&path.replace("::", "/"));
            if let (Some(file), false) = (file, modules.contains_key(&path)) {
                modules.insert(path, Module::of_file(file));
            }
        }
    }

    let mut used: IndexSet<&str> = IndexSet::from(["prelude"]);
    for module in modules.values() {
        problems.extend(
            module
                .parts
                .iter()
                .flat_map(|(_, scan)| scan.malformed.clone()),
        );
        for import in module.imports() {
            used.insert(&import.module);
            let Some(target) = modules.get(&import.module) else {
                let hint = if import.module.contains("::") {
                    "it is no file of the catalogue"
                } else {
                    "give its text with Linker::module"
                };
                let (at, module) = (import.at.clone(), import.module.clone());
                problems.push(LinkProblem::UnknownModule { at, module, hint });
                continue;
            };
            for name in import
                .names
                .iter()
                .filter(|name| target.declared().all(|(known, _)| known != *name))
            {
                problems.push(LinkProblem::UnknownName {
                    at: import.at.clone(),
                    module: import.module.clone(),
                    name: name.clone(),
                    declared: target
                        .declared()
                        .map(|(known, _)| known.as_str())
                        .collect::<Vec<_>>()
                        .join(", "),
                });
            }
        }
    }
    let unused = modules
        .keys()
        .filter(|slot| !slot.contains("::") && !used.contains(slot.as_str()));
    problems.extend(unused.map(|slot| LinkProblem::UnusedSlot { slot: slot.clone() }));
}

/// Module paths in the order in which they are joined; each exactly once.
fn join_order(modules: &IndexMap<String, Module>, kernel: &str) -> Vec<String> {
    let fixed = BEFORE_KERNEL
        .iter()
        .chain([&kernel])
        .chain(AFTER_KERNEL)
        .copied();
    let other_slots = modules
        .keys()
        .map(String::as_str)
        .filter(|path| !path.contains("::"));
    let files = modules
        .keys()
        .map(String::as_str)
        .filter(|path| path.contains("::"));
    let order: IndexSet<&str> = fixed.chain(other_slots).chain(files).collect();
    order
        .into_iter()
        .filter(|path| modules.contains_key(*path))
        .map(str::to_owned)
        .collect()
}

fn check_duplicates(
    modules: &IndexMap<String, Module>,
    order: &[String],
    problems: &mut Vec<LinkProblem>,
) {
    let mut seen: IndexMap<&str, &SourceLine> = IndexMap::new();
    for (name, at) in order.iter().flat_map(|path| modules[path].declared()) {
        if let Some(first) = seen.get(name.as_str()) {
            let (first, second) = ((*first).clone(), at.clone());
            problems.push(LinkProblem::Duplicate {
                name: name.clone(),
                first,
                second,
            });
        } else {
            seen.insert(name, at);
        }
    }
}

/// Writes the modules one after the other, without their import lines and outer blank lines. What they enable stands
/// before them, once each; the prelude's does already.
fn join(header: &str, modules: &IndexMap<String, Module>, order: &[String]) -> Linked {
    let mut linked = Linked {
        source: String::new(),
        line_map: Vec::new(),
    };
    for line in header.lines() {
        linked.push(format!("// {line}").trim_end(), None);
    }
    let of = |prelude: bool| {
        let paths = order
            .iter()
            .filter(move |path| (*path == "prelude") == prelude);
        let parts = paths.flat_map(|path| &modules[path].parts);
        parts.flat_map(|(_, scan)| &scan.enables)
    };
    let mut enabled: IndexSet<&str> = of(true).map(|(text, _)| text.as_str()).collect();
    for (text, at) in of(false) {
        if enabled.insert(text) {
            linked.push(text, Some(at.clone()));
        }
    }
    for (path, (part, scan)) in order
        .iter()
        .flat_map(|path| modules[path].parts.iter().map(move |part| (path, part)))
    {
        if !linked.source.is_empty() {
            linked.push("", None);
        }
        linked.push(&format!("// ---- {}", part.file), None);
        linked.push("", None);
        let start = linked.line_map.len();
        for (line, text) in (1..).zip(part.source.lines()) {
            let after_blank = linked.source.ends_with("\n\n");
            let hoisted = path != "prelude" && scan.enables.iter().any(|(_, at)| at.line == line);
            let skipped = hoisted || scan.import_lines.contains(&line);
            if skipped || (text.trim().is_empty() && after_blank) {
                continue;
            }
            linked.push(
                text,
                Some(SourceLine {
                    file: part.file.clone(),
                    line,
                }),
            );
        }
        while linked.line_map.len() > start && linked.source.ends_with("\n\n") {
            linked.source.pop();
            linked.line_map.pop();
        }
    }
    linked
}
