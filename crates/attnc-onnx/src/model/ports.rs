//! Inputs and outputs of a model: their names, types and lengths.

use super::{Importer, Scope};
use crate::PortInfo;
use crate::context::{DERIVED, check_shape};
use crate::dims::DimNames;
use crate::error::{OpError, OpResult};
use crate::proto::ValueInfoProto;
use crate::tensor;
use crate::value::Value;
use attnc_ir::{Diagnostic, Shape, TensorType};

impl<'m> Importer<'m> {
    pub(super) fn add_inputs(
        &mut self,
        infos: &'m [ValueInfoProto],
        scope: &mut Scope<'m>,
    ) -> Vec<PortInfo> {
        let mut names = DimNames::default();
        let fixed = self.cx.known.fixed.iter();
        for (name, value) in fixed.filter(|(name, _)| !name.starts_with(DERIVED)) {
            let note = format!("length `{name}` is always {value}: the model fits no other");
            self.cx.notes.insert(note);
        }
        let mut ports = Vec::new();
        for info in infos {
            // Before version 4 of the format every constant is listed as an input too.
            if self.initializers.contains_key(info.name.as_str()) {
                continue;
            }
            if scope.values.contains_key(info.name.as_str()) {
                self.invalid.push(
                    Diagnostic::error("duplicate-name", "two inputs have this name").at(&info.name),
                );
                continue;
            }
            let value = match input_type(info, &mut names) {
                Ok((elem_type, mut ty)) => {
                    self.note_double("input", &info.name, elem_type == "double");
                    for dim in &mut ty.shape {
                        *dim = self.cx.known.put_in(dim);
                    }
                    ports.push(PortInfo {
                        name: info.name.clone(),
                        elem_type,
                        shape: ty.shape.clone(),
                    });
                    Some(Value::Graph(self.cx.graph.add_input(&info.name, ty)))
                }
                Err(error) => {
                    self.report(error, &info.name, None, 0);
                    None
                }
            };
            scope.values.insert(&info.name, value);
        }
        ports
    }

    pub(super) fn add_outputs(
        &mut self,
        infos: &'m [ValueInfoProto],
        scope: &mut Scope<'m>,
    ) -> Vec<PortInfo> {
        let mut ports: Vec<PortInfo> = Vec::new();
        if infos.is_empty() {
            self.invalid
                .push(Diagnostic::error("no-outputs", "the graph has no outputs"));
        }
        for info in infos {
            if ports.iter().any(|p| p.name == info.name) {
                self.invalid.push(
                    Diagnostic::error("duplicate-name", "two outputs have this name")
                        .at(&info.name),
                );
                continue;
            }
            let Some(value) = self.lookup(&info.name, scope) else {
                continue;
            };
            match self.cx.place(&value) {
                Ok(id) => {
                    let ty = self.cx.graph.ty(id).clone();
                    self.check_output(info, &ty);
                    ports.push(PortInfo {
                        name: info.name.clone(),
                        elem_type: declared_type(info)
                            .unwrap_or_else(|| tensor::onnx_name(ty.dtype)),
                        shape: ty.shape,
                    });
                    self.cx.graph.add_output(&info.name, id);
                }
                Err(error) => self.report(error, &info.name, None, 0),
            }
        }
        ports
    }

    /// Whether what the file says of an output is what the graph computes. Another element type would be a
    /// silent conversion; another shape is the exporter's slip, and the computed one stands.
    fn check_output(&mut self, info: &ValueInfoProto, ty: &TensorType) {
        let Some(tensor) = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()) else {
            return;
        };
        if let Ok((elem, dtype)) = tensor::dtype_of(tensor.elem_type)
            && dtype != ty.dtype
        {
            let message = format!(
                "the output is declared {}, but the graph computes {ty}",
                elem.name
            );
            let note = "correct the declared type, or put a Cast in front of the output";
            let wrong = Diagnostic::error("output-type", message)
                .at(&info.name)
                .note(note);
            self.invalid.push(wrong);
        }
        // Files that say nothing of the axes leave the shape out or empty.
        let Some(shape) = tensor.shape.as_ref().filter(|s| !s.dim.is_empty()) else {
            return;
        };
        let declared: Vec<Option<i64>> = shape.dim.iter().map(|d| d.dim_value).collect();
        let fits = declared.len() == ty.rank()
            && declared
                .iter()
                .zip(&ty.shape)
                .all(|(d, found)| match (d, found.as_const()) {
                    (Some(d), Some(found)) => *d == found,
                    _ => true,
                });
        if !fits {
            let note = format!(
                "output `{}` is declared with another shape than the computed {ty}",
                info.name
            );
            self.cx.notes.insert(note);
        }
    }
}

fn declared_type(info: &ValueInfoProto) -> Option<&'static str> {
    let tensor = info.r#type.as_ref()?.tensor_type.as_ref()?;
    tensor::elem_type(tensor.elem_type).ok().map(|t| t.name)
}

fn input_type(info: &ValueInfoProto, names: &mut DimNames) -> OpResult<(&'static str, TensorType)> {
    let tensor = info
        .r#type
        .as_ref()
        .and_then(|t| t.tensor_type.as_ref())
        .ok_or_else(|| OpError::unsupported("an input that is not a tensor", "a tensor"))?;
    let (elem, dtype) = tensor::dtype_of(tensor.elem_type)?;
    let shape = tensor.shape.as_ref().ok_or_else(|| {
        OpError::unsupported(
            "an input of unknown rank",
            "a shape, with names for lengths that vary",
        )
    })?;
    let shape: Shape = shape
        .dim
        .iter()
        .enumerate()
        .map(
            |(axis, dim)| match (dim.dim_value, dim.dim_param.as_deref()) {
                (Some(n), _) if n >= 0 => n.into(),
                (_, Some(text)) if !text.trim().is_empty() => names.named(text.trim()),
                _ => names.unnamed(&info.name, axis),
            },
        )
        .collect();
    check_shape(&shape)?;
    Ok((elem.name, TensorType { dtype, shape }))
}
