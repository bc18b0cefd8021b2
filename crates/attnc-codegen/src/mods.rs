//! Prints the `mods` module of a kernel: scalar expressions as WGSL functions.
//!
//! A [`ScalarExpr`] says how an element follows from its *logical* index `d0, d1, …`; a kernel hands its
//! functions other numbers (`row, i`; `b0, b1, m, n`). An [`IndexSpace`] ties the two together. For the
//! epilogue `gelu(acc + t2[d2])` of a matmul with result `[B, S, 1536]` this prints
//!
//! ```wgsl
//! @group(1) @binding(0) var<storage, read> bias: array<f32>;
//!
//! // epilogue: gelu(acc + bias[n])
//! fn epilogue(acc: f32, b0: u32, b1: u32, m: u32, n: u32) -> f32 {
//!     return gelu(acc + bias[n]);
//! }
//! ```
//!
//! A function may compute four neighbouring elements at once ([`IndexSpace::cover_vectors`]): then loads that run
//! along them are loads of vectors, and the text is the same with `vec4<f32>` for `f32`.
//!
//! * [`vector`]: what is different there, and which expressions have no such form.
//! * [`poly`]: index arithmetic, polynomials as WGSL integers. Lengths known only at run time become fields
//!   appended to the kernel's `Shape` struct.
//! * [`address`]: a load's position in its buffer, through the operand's views.
//! * [`expr`]: everything else.
//!
//! On entry: an expression of a verified graph. On exit: WGSL whose every load is in bounds: an index that is
//! not provably inside its axis is clamped. The text names captured tensors by what they are for, never by
//! the weights they hold, so that equal layers get equal text.

mod address;
mod body;
mod expr;
mod literal;
mod poly;
mod space;
mod vector;

pub(crate) use literal::finite as float_literal;
pub(crate) use space::IndexSpace;

use crate::micro::Access;
use crate::stored::{Stored, multiple_of};
use attnc_ir::scalar::ScalarExpr;
use attnc_ir::scalar::print::Names;
use attnc_ir::{DType, Diagnostic, Dim, Extents, Graph, ValueId, layout};
use body::Body;
use indexmap::{IndexMap, IndexSet};
use poly::Int;

/// One function to print.
pub(crate) struct Function<'a> {
    /// Its name: `epilogue`, `element`, `mask_mod`.
    pub(crate) name: &'a str,
    /// The argument's name, where the kernel hands a value over, and its WGSL type.
    pub(crate) arg: Option<(&'a str, &'a str)>,
    /// The index parameters and what they mean.
    pub(crate) space: &'a IndexSpace,
    /// What the function returns.
    pub(crate) result: Returns,
    /// The value.
    pub(crate) expr: &'a ScalarExpr,
    /// The values that the loads refer to, by number.
    pub(crate) operands: &'a [ValueId],
}

/// What a printed function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    /// The element in the type that kernels hold it in, [`wgsl_type`]: a bool as `0u` or `1u`.
    Value(DType),
    /// A bool as such: of `mask_mod`.
    Bool,
}

/// A length that the printed text reads from the kernel's uniform struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// `dim_S`; starts with `dim_`, which no field of a kernel file does.
    pub(crate) name: String,
    /// Its value.
    pub(crate) dim: Dim,
    /// Whether it may be negative, and so is an `i32`.
    pub(crate) signed: bool,
}

/// A tensor in `@group(1)`.
#[derive(Debug, Clone)]
struct Captured {
    name: String,
    stored: Stored,
    /// Whether its items are vectors of four elements.
    vectors: bool,
}

/// The name that a captured tensor would like to have: from operand number, its type, and its load's index.
pub(crate) type NameTensor = fn(usize, DType, &[Dim]) -> &'static str;

/// A printed module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Printed {
    /// The WGSL, with import lines.
    pub(crate) text: String,
    /// Fields to append to the kernel's `Shape`, in order.
    pub(crate) fields: Vec<Field>,
    /// Tensors of `@group(1)`, binding 0 first.
    pub(crate) captured: Vec<ValueId>,
}

/// Collects the functions of one `mods` module.
pub(crate) struct Mods<'g> {
    graph: &'g Graph,
    /// How the buffer of a value that is no view holds its elements.
    stored: &'g dyn Fn(ValueId) -> Stored,
    kernel: &'static str,
    name_tensor: NameTensor,
    fields: Vec<Field>,
    captured: IndexMap<ValueId, Captured>,
    /// The value that the kernel's result is written over.
    in_place: Option<ValueId>,
    /// Whether the result is written by vectors.
    vectors_in_place: bool,
    imports: IndexMap<&'static str, IndexSet<&'static str>>,
    helpers: IndexSet<&'static str>,
    functions: String,
}

impl<'g> Mods<'g> {
    /// An empty module for `kernels/{kernel}.wgsl`.
    pub(crate) fn new(
        graph: &'g Graph,
        stored: &'g dyn Fn(ValueId) -> Stored,
        kernel: &'static str,
        name_tensor: NameTensor,
    ) -> Self {
        Self {
            graph,
            stored,
            kernel,
            name_tensor,
            fields: Vec::new(),
            captured: IndexMap::new(),
            in_place: None,
            vectors_in_place: false,
            imports: IndexMap::new(),
            helpers: IndexSet::new(),
            functions: String::new(),
        }
    }

    /// From here on loads of `value`, f32, read the kernel's own `out`: the result is written over it, by vectors
    /// or by elements.
    pub(crate) fn over(&mut self, value: ValueId, vectors: bool) {
        self.in_place = Some(value);
        self.vectors_in_place = vectors;
    }

    /// How tensors are called that are captured from here on.
    pub(crate) fn name_tensors(&mut self, name_tensor: NameTensor) {
        self.name_tensor = name_tensor;
    }

    /// Prints one function.
    ///
    /// # Errors
    /// Where the expression has an operation that no WGSL is known for.
    pub(crate) fn function(&mut self, function: &Function<'_>) -> Result<(), Diagnostic> {
        let mut body = Body::new(self, function);
        let value = body.result()?;
        let statements = std::mem::take(&mut body.statements);
        let comment = self.comment(function);
        let mut parameters: Vec<String> = function
            .arg
            .iter()
            .map(|(name, ty)| format!("{name}: {ty}"))
            .collect();
        let indices = function.space.parameters.iter();
        parameters.extend(indices.map(|(name, _)| format!("{name}: u32")));
        let result = match function.result {
            Returns::Value(DType::F32 | DType::F16 | DType::BF16) if function.space.vectors => {
                "vec4<f32>"
            }
            Returns::Value(dtype) => wgsl_type(dtype),
            Returns::Bool => "bool",
        };
        if !self.functions.is_empty() {
            self.functions.push('\n');
        }
        self.functions.push_str(&format!(
            "{comment}fn {}({}) -> {result} {{\n",
            function.name,
            parameters.join(", ")
        ));
        for statement in statements {
            self.functions.push_str(&format!("    {statement}\n"));
        }
        self.functions
            .push_str(&format!("    return {value};\n}}\n"));
        Ok(())
    }

    /// Prints `element(i)`, item `i` of memory, from `value(i) -> f32`, the element: converted, and of packed
    /// types two of them. The last of an odd `count` stands twice.
    pub(crate) fn items(&mut self, stored: Stored, count: &Dim) {
        let item = match stored.library() {
            None => stored.item_of("value(i)"),
            Some(library) => {
                self.import(library.module, library.word);
                let mut second = "2u * i + 1u".to_owned();
                if !multiple_of(count, 2) {
                    let last = self.lengths(&(count.clone() - Dim::one()), Int::U32);
                    second = format!("min({second}, {last})");
                }
                stored.item_of(&format!("vec2<f32>(value(2u * i), value({second}))"))
            }
        };
        self.functions.push_str(&format!(
            "\n// element: item i of memory, which holds {stored}\nfn element(i: u32) -> {} {{\n    return {item};\n}}\n",
            stored.item()
        ));
    }

    /// Prints `element(i)`, four elements of a type that is not held as f32, from `value(i) -> vec4<f32>`.
    pub(crate) fn vector_items(&mut self, stored: Stored) {
        if let Some((module, name)) = stored.writer(Access::Vec4) {
            self.import(module, name);
        }
        self.functions.push_str(&format!(
            "\n// element: four elements of memory, which holds {stored}\nfn element(i: u32) -> {} {{\n    return {};\n}}\n",
            stored.vec4(),
            stored.vec4_of("value(i)")
        ));
    }

    /// Adds WGSL that is no expression: constants, functions over the kernel's bindings.
    pub(crate) fn text(&mut self, text: &str) {
        if !self.functions.is_empty() {
            self.functions.push('\n');
        }
        self.functions.push_str(text);
    }

    /// A word for [`Mods::text`] to read as `shape.{name}`.
    pub(crate) fn word(&mut self, name: &str, dim: Dim) {
        let (name, signed) = (name.to_owned(), false);
        self.fields.push(Field { name, dim, signed });
    }

    /// `// epilogue: gelu(acc + bias[n])`, wrapped.
    fn comment(&self, function: &Function<'_>) -> String {
        let space = function.space;
        let text = function.expr.to_text(&Names {
            operand: &|n| {
                let base = layout::source_index(self.graph, function.operands[n]).0;
                if self.in_place == Some(base) {
                    return "out".to_owned();
                }
                self.captured
                    .get(&base)
                    .map_or_else(|| format!("t{n}"), |c| c.name.clone())
            },
            index: &|n| {
                let parameter = space.parameter(n).map(str::to_owned);
                parameter.unwrap_or_else(|| format!("d{n}"))
            },
            arg: function.arg.map_or("arg", |(name, _)| name),
        });
        let last = space.parameters.last().filter(|_| space.vectors);
        let counts = last.map_or_else(String::new, |(name, _)| format!("; {name} counts vectors"));
        wrap(&format!("{}: {text}{counts}", function.name))
    }

    /// The module.
    pub(crate) fn finish(mut self) -> Printed {
        let mut text = String::new();
        if !self.fields.is_empty() {
            text.push_str(&format!(
                "import package::kernels::{}::{{shape}};\n",
                self.kernel
            ));
        }
        self.imports.sort_keys();
        for (module, names) in &mut self.imports {
            names.sort();
            let names: Vec<_> = names.iter().copied().collect();
            text.push_str(&format!(
                "import package::{module}::{{{}}};\n",
                names.join(", ")
            ));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        for (n, captured) in self.captured.values().enumerate() {
            text.push_str(&format!(
                "@group(1) @binding({n}) var<storage, read> {}: array<{}>;\n",
                captured.name,
                if captured.vectors {
                    captured.stored.vec4()
                } else {
                    captured.stored.item()
                }
            ));
        }
        if !self.captured.is_empty() {
            text.push('\n');
        }
        for helper in &self.helpers {
            text.push_str(helper);
            text.push('\n');
        }
        text.push_str(&self.functions);
        Printed {
            text,
            fields: self.fields,
            captured: self.captured.keys().copied().collect(),
        }
    }

    /// Imports a name of a fixed file or of `params`.
    pub(crate) fn import(&mut self, module: &'static str, name: &'static str) -> &'static str {
        self.imports.entry(module).or_default().insert(name);
        name
    }

    /// The name under which the buffer of `base` is bound, and how that holds its elements: by vectors of four,
    /// or one by one.
    ///
    /// # Errors
    /// Where it is bound already, the other way.
    fn capture(
        &mut self,
        base: ValueId,
        operand: usize,
        index: &[Dim],
        vectors: bool,
    ) -> Result<(String, Stored), Diagnostic> {
        let stored = (self.stored)(base);
        let in_place = self.in_place == Some(base);
        if in_place && vectors != self.vectors_in_place {
            return Err(vector::no_form("a load of single elements of the result"));
        }
        let access = if vectors {
            Access::Vec4
        } else {
            Access::Scalar
        };
        if let Some((module, name)) = stored.reader(access) {
            self.import(module, name);
        }
        if in_place {
            let out = self.import("store", "out").to_owned();
            return Ok((out, stored));
        }
        if let Some(known) = self.captured.get(&base) {
            if known.vectors != vectors {
                return Err(vector::no_form("a tensor read by vectors and by elements"));
            }
            return Ok((known.name.clone(), stored));
        }
        let dtype = self.graph.ty(base).dtype;
        let wanted = (self.name_tensor)(operand, dtype, index);
        let taken = |name: &str| self.captured.values().any(|c| c.name == name);
        let name = (1..)
            .map(|n| {
                if n == 1 {
                    wanted.to_owned()
                } else {
                    format!("{wanted}{n}")
                }
            })
            .find(|name| !taken(name))
            .expect("endless");
        let captured = Captured {
            name: name.clone(),
            stored,
            vectors,
        };
        self.captured.insert(base, captured);
        Ok((name, stored))
    }

    /// The field that holds a polynomial of lengths; whether it is an `i32`.
    fn field(&mut self, dim: &Dim) -> Field {
        if let Some(known) = self.fields.iter().find(|f| f.dim == *dim) {
            return known.clone();
        }
        let stem = field_name(dim);
        let name = (1..)
            .map(|n| {
                if n == 1 {
                    stem.clone()
                } else {
                    format!("{stem}_{n}")
                }
            })
            .find(|name| self.fields.iter().all(|f| f.name != *name))
            .expect("endless");
        let field = Field {
            name,
            dim: dim.clone(),
            signed: !dim.is_nonneg(&Extents::none()),
        };
        self.fields.push(field.clone());
        field
    }
}

/// `64 * S` is `dim_64_S`, `N - M` is `dim_N_minus_M`.
fn field_name(dim: &Dim) -> String {
    let mut name = "dim".to_owned();
    let text = dim.to_string().replace('+', " plus ");
    let text = text.strip_prefix('-').map_or_else(
        || text.replace(" - ", " minus "),
        |rest| format!("minus {}", rest.replace(" - ", " minus ")),
    );
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|w| !w.is_empty()) {
        name.push('_');
        name.push_str(word.trim_matches('_'));
    }
    name
}

/// The type that kernels hold an element in: floats are f32 whatever their storage, bools a `u32` each.
pub(crate) fn wgsl_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => "f32",
        DType::I32 => "i32",
        DType::U32 | DType::Bool => "u32",
    }
}

/// A comment of lines of at most 110 columns, broken at spaces.
fn wrap(text: &str) -> String {
    let mut out = String::new();
    let mut line = "//".to_owned();
    for word in text.split(' ') {
        if line.len() + word.len() > 108 && line.len() > 4 {
            out.push_str(&line);
            out.push('\n');
            line = "//    ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests;
