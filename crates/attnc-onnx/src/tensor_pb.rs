//! ONNX test data: files that hold one `TensorProto` (`input_0.pb`, `output_0.pb`).

use crate::error::{ImportError, OpError};
use crate::file::{self, Files};
use crate::proto::TensorProto;
use crate::tensor;
use attnc_ir::Diagnostic;
use bytes::Bytes;
use prost::Message;
use std::path::Path;

/// A tensor as an ONNX file has it.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorFile {
    /// The tensor's name; may be empty.
    pub name: String,
    /// The ONNX element type: `int64`, `float16`.
    pub elem_type: &'static str,
    /// The sizes of the axes.
    pub shape: Vec<usize>,
    /// Row-major little-endian elements of that type; bool is one byte an element.
    pub bytes: Bytes,
}

/// Reads a file that holds one `TensorProto`.
///
/// # Errors
/// Where the file cannot be read, is no `TensorProto`, or its elements are not as many as its shape says.
pub fn read(path: &Path) -> Result<TensorFile, ImportError> {
    decode(file::map_model(path)?)
}

/// Reads the bytes of one `TensorProto`.
///
/// # Errors
/// As [`read`].
pub fn decode(bytes: Bytes) -> Result<TensorFile, ImportError> {
    let length = bytes.len();
    let proto = TensorProto::decode(bytes).map_err(|e| ImportError::Malformed {
        bytes: length,
        reason: e.to_string(),
    })?;
    let fail = |e: OpError| match e {
        OpError::Invalid(diagnostic) => diagnostic.into(),
        OpError::Unsupported { what, needed } => {
            ImportError::Unsupported(vec![crate::Unsupported {
                node: proto.name.clone(),
                op: String::new(),
                domain: String::new(),
                opset: 0,
                what,
                needed,
            }])
        }
    };
    let (elem, _) = tensor::dtype_of(proto.data_type).map_err(fail)?;
    let mut files = Files::new(None);
    let bytes = tensor::raw(&proto, &mut files).map_err(fail)?;
    let shape = proto
        .dims
        .iter()
        .map(|&d| usize::try_from(d))
        .collect::<Result<_, _>>();
    Ok(TensorFile {
        name: proto.name.clone(),
        elem_type: elem.name,
        shape: shape.map_err(|_| Diagnostic::error("tensor-length", "a length below 0"))?,
        bytes,
    })
}
