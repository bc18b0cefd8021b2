//! ONNX models to attnc graphs.

pub mod proto;
