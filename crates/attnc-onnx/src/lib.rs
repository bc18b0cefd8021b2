//! ONNX models to attnc graphs.
