//! The messages of an ONNX file, written by hand so that building needs no `protoc`.
//!
//! ```
//! use attnc_onnx::proto::{ModelProto, OperatorSetIdProto};
//! use prost::Message;
//! let model = ModelProto {
//!     ir_version: 10,
//!     opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 20 }],
//!     ..Default::default()
//! };
//! assert_eq!(ModelProto::decode(model.encode_to_vec().as_slice()).unwrap(), model);
//! ```
//!
//! Field numbers are those of `onnx.proto` of ONNX 1.23 (IR version 14); fields that neither reading nor
//! writing needs (doc strings, shapes of inner values, sharding) are left out, and skipped when read.

use bytes::Bytes;
use prost::Message;

/// Names of `TensorProto.DataType`.
pub mod data_type {
    /// `f32`.
    pub const FLOAT: i32 = 1;
    /// `u8`.
    pub const UINT8: i32 = 2;
    /// `i8`.
    pub const INT8: i32 = 3;
    /// `u16`.
    pub const UINT16: i32 = 4;
    /// `i16`.
    pub const INT16: i32 = 5;
    /// `i32`.
    pub const INT32: i32 = 6;
    /// `i64`.
    pub const INT64: i32 = 7;
    /// Text.
    pub const STRING: i32 = 8;
    /// A truth value, one byte each.
    pub const BOOL: i32 = 9;
    /// `f16`.
    pub const FLOAT16: i32 = 10;
    /// `f64`.
    pub const DOUBLE: i32 = 11;
    /// `u32`.
    pub const UINT32: i32 = 12;
    /// `u64`.
    pub const UINT64: i32 = 13;
    /// A pair of f32.
    pub const COMPLEX64: i32 = 14;
    /// A pair of f64.
    pub const COMPLEX128: i32 = 15;
    /// `bf16`.
    pub const BFLOAT16: i32 = 16;
}

/// Names of `AttributeProto.AttributeType`.
pub mod attribute_kind {
    /// A float.
    pub const FLOAT: i32 = 1;
    /// An integer.
    pub const INT: i32 = 2;
    /// A string.
    pub const STRING: i32 = 3;
    /// A tensor.
    pub const TENSOR: i32 = 4;
    /// A graph.
    pub const GRAPH: i32 = 5;
    /// Floats.
    pub const FLOATS: i32 = 6;
    /// Integers.
    pub const INTS: i32 = 7;
    /// Strings.
    pub const STRINGS: i32 = 8;
    /// Tensors.
    pub const TENSORS: i32 = 9;
    /// Graphs.
    pub const GRAPHS: i32 = 10;
    /// A sparse tensor.
    pub const SPARSE_TENSOR: i32 = 11;
}

/// A model file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// The tool that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// The main graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// The operator sets the nodes are written against.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Free-form properties.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Model-local functions, which nodes call like operators.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// An operator set: a domain and a version.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// The domain; empty is `ai.onnx`.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A graph: nodes in topological order, constants, inputs and outputs.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The nodes.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The name of the graph.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants; one that is an input too is that input's default.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// The inputs.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// The outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Constants in coordinate form.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// One application of an operator.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of the operands; empty where an optional one is left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the results; empty where one is not wanted.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The name of the node; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// The attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's domain; empty is `ai.onnx`.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Which of several functions of one name is meant.
    #[prost(string, tag = "8")]
    pub overload: String,
}

/// A named attribute of a node; `kind` says which field holds its value.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A float.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// An integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// A string.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// A tensor.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// A graph.
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<GraphProto>>,
    /// Floats.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// Strings.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Tensors.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Graphs.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// `AttributeProto.AttributeType`, of which [`attribute_kind`] has the names.
    #[prost(int32, tag = "20")]
    pub kind: i32,
    /// In a function: the attribute of the call that gives the value.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
    /// A sparse tensor.
    #[prost(message, optional, boxed, tag = "22")]
    pub sparse_tensor: Option<Box<SparseTensorProto>>,
}

/// A constant. Its elements are in `raw_data`, in the typed list of its element type, or in another file.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// The shape.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// `TensorProto.DataType`, of which [`data_type`] has the names.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Elements of float.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of int32 and of every narrower type.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Elements of string.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// Elements of int64.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// The name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Row-major little-endian elements; decoded from [`Bytes`] this shares memory with the file.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// Elements of double.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of uint32 and uint64.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Where external elements lie: `location`, `offset`, `length`, `checksum`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 0: in this message; 1: external.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// A constant in coordinate form.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The elements that are not 0.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Where they are.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// The shape.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

/// Name and type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// The type of a value; one of its fields is set.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// A tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
    /// A sequence.
    #[prost(message, optional, tag = "4")]
    pub sequence_type: Option<ElementTypeProto>,
    /// A map.
    #[prost(message, optional, tag = "5")]
    pub map_type: Option<ElementTypeProto>,
    /// A sparse tensor.
    #[prost(message, optional, tag = "8")]
    pub sparse_tensor_type: Option<ElementTypeProto>,
    /// An optional value.
    #[prost(message, optional, tag = "9")]
    pub optional_type: Option<ElementTypeProto>,
}

/// A sequence, map, sparse tensor or optional: only that it is one is read.
#[derive(Clone, PartialEq, Message)]
pub struct ElementTypeProto {}

/// Element type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// `TensorProto.DataType`, of which [`data_type`] has the names.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// The shape; absent where not even the rank is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// The axes, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// A length: a number, a name, or neither where nothing is known.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// The number.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// The name.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

/// A function that nodes of its domain and name call.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Names of the parameters.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of the results.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Attributes without a default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// The body.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// The operator sets of the body.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// The domain.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with their defaults.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Tells functions of one name apart.
    #[prost(string, tag = "13")]
    pub overload: String,
}
