//! Models: a graph, and what its file says about inputs and outputs.
//!
//! ```no_run
//! let model = attnc::Model::open("model.onnx")?;
//! for input in &model.inputs {
//!     println!("{} {}", input.name, input.type_text());
//! }
//! # Ok::<(), attnc::Error>(())
//! ```

use crate::ir::{self, Graph, Op, SharedBytes, TensorData};
use crate::onnx::{DerivedInput, PortInfo};
use crate::rules::Rules;
use crate::{Error, HostDType, Port, files, mapped, onnx};
use std::path::Path;

/// An imported model, not yet optimised.
#[derive(Debug, Clone)]
pub struct Model {
    /// The file's name without its folder, or the graph's name.
    pub name: String,
    /// The graph, verified.
    pub graph: Graph,
    /// What it takes.
    pub inputs: Vec<Port>,
    /// Inputs of the graph that are computed from those, for lengths that depend on data.
    pub derived: Vec<DerivedInput>,
    /// What it gives.
    pub outputs: Vec<Port>,
    /// What it takes for granted about lengths and ids.
    pub rules: Rules,
    /// What the importer had to say, for people.
    pub notes: Vec<String>,
}

impl Model {
    /// Opens an `.onnx` or `.attn` file. Weights are mapped, not copied.
    ///
    /// An `.attn` file may name weights without giving their values; these come from the `.safetensors`
    /// file of the same name beside it.
    ///
    /// # Errors
    /// Everything that is wrong with the file, or unsupported in it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let is_file = || {
            files::check(path).map_err(|error| Error::Io {
                path: path.to_owned(),
                error,
            })
        };
        match path.extension().and_then(|e| e.to_str()) {
            Some("onnx") => is_file().and_then(|()| Self::open_onnx(path)),
            Some("attn") => is_file().and_then(|()| Self::open_text(path)),
            _ => Err(Error::Format(path.to_owned())),
        }
    }

    /// Whether a bundle of the model can be run by any host.
    ///
    /// # Errors
    /// The values whose lengths depend on data: a session computes these before a run, a bundle cannot.
    pub fn check_shippable(&self) -> Result<(), Error> {
        let names = self.derived.iter().map(|input| input.name.clone());
        match names.collect::<Vec<_>>() {
            names if names.is_empty() => Ok(()),
            names => Err(Error::DataLengths(names)),
        }
    }

    /// A model of a graph, which is verified.
    ///
    /// # Errors
    /// Every rule the graph breaks.
    pub fn from_graph(graph: Graph) -> Result<Self, Error> {
        ir::verify(&graph).map_err(Error::Graph)?;
        Ok(Self {
            name: graph.name().to_owned(),
            inputs: Port::inputs_of(&graph),
            derived: Vec::new(),
            outputs: Port::outputs_of(&graph),
            rules: Rules::of(&graph, Vec::new()),
            notes: Vec::new(),
            graph,
        })
    }

    /// A model in the text form; `name` stands for the file in messages.
    ///
    /// # Errors
    /// Every error in the text, shown with the lines it points at.
    pub fn from_text(name: &str, text: &str) -> Result<Self, Error> {
        let shown = |diagnostics: ir::Diagnostics| Error::Text {
            path: name.into(),
            shown: ir::render_diagnostics(name, text, &diagnostics)
                .trim_end()
                .to_owned(),
            diagnostics,
        };
        let graph = ir::text::parse(text).map_err(shown)?;
        let mut model = Self::from_graph(graph)?;
        model.name = file_name(Path::new(name));
        Ok(model)
    }

    fn open_onnx(path: &Path) -> Result<Self, Error> {
        let import = onnx::import(path).map_err(|error| Error::Import {
            path: path.to_owned(),
            error,
        })?;
        let graph = import.graph;
        let mut inputs = declared(Port::inputs_of(&graph), &import.inputs);
        inputs.truncate(inputs.len() - import.derived.len());
        let outputs = declared(Port::outputs_of(&graph), &import.outputs);
        Ok(Self {
            name: file_name(path),
            rules: Rules::of(&graph, import.constraints),
            graph,
            inputs,
            derived: import.derived,
            outputs,
            notes: import.notes,
        })
    }

    fn open_text(path: &Path) -> Result<Self, Error> {
        let io = |error| Error::Io {
            path: path.to_owned(),
            error,
        };
        let text = std::fs::read_to_string(path).map_err(io)?;
        let mut model = Self::from_text(&path.to_string_lossy(), &text)?;
        supply_weights(&mut model.graph, &path.with_extension("safetensors"))?;
        Ok(model)
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Adds the types the file declares.
fn declared(mut ports: Vec<Port>, infos: &[PortInfo]) -> Vec<Port> {
    for port in &mut ports {
        if let Some(info) = infos.iter().find(|info| info.name == port.name) {
            port.declared = HostDType::from_name(info.elem_type);
        }
    }
    ports
}

/// Gives weights that are only named their bytes from a safetensors file.
fn supply_weights(graph: &mut Graph, path: &Path) -> Result<(), Error> {
    let wanted: Vec<_> = graph
        .values()
        .filter(|&id| matches!(&graph.node(id).op, Op::Constant(data) if data.bytes.is_none()))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let bytes = mapped::map(path).map_err(|error| Error::Io {
        path: path.to_owned(),
        error,
    })?;
    let file = safetensors::SafeTensors::deserialize(&bytes)
        .map_err(|error| plan_format_error(path, &error))?;
    let mut wrong = Vec::new();
    for id in wanted {
        let Op::Constant(data) = &mut graph.node_mut(id).op else {
            continue;
        };
        match find_weight(data, &file, &bytes) {
            Ok(found) => data.bytes = Some(found),
            Err(what) => wrong.push(format!(
                "{}: weight `{}`: {what}",
                path.display(),
                data.name.as_deref().unwrap_or_default()
            )),
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::Weights(wrong))
    }
}

fn plan_format_error(path: &Path, error: &safetensors::SafeTensorError) -> Error {
    let path = path.display();
    Error::Weights(vec![format!("{path} is not a safetensors file: {error}")])
}

/// The part of the mapped file that holds a weight.
fn find_weight(
    data: &TensorData,
    file: &safetensors::SafeTensors<'_>,
    bytes: &SharedBytes,
) -> Result<SharedBytes, String> {
    let name = data.name.as_deref().unwrap_or_default();
    let view = file
        .tensor(name)
        .map_err(|_| format!("it is missing; {} is expected", data.ty()))?;
    let same = format!("{:?}", view.dtype()).eq_ignore_ascii_case(match data.dtype {
        ir::DType::Bool => "u32",
        other => other.name(),
    });
    if !same || view.shape() != data.shape {
        let found = format!("{:?}{:?}", view.dtype(), view.shape());
        return Err(format!("expected {}, found {found}", data.ty()));
    }
    // The view borrows the mapped file; its place there is what is shared.
    let start = view.data().as_ptr() as usize - bytes.as_ptr() as usize;
    bytes
        .slice(start..start + view.data().len())
        .ok_or_else(|| "it reaches past the end of the file".to_owned())
}
