//! Elements of tensors in host memory: the Rust types that are some, and values of any kind.

use crate::HostDType;
use crate::ir::{DType, to_odd};
use half::{bf16, f16};

/// A Rust type that is the element of some [`HostTensor`](crate::HostTensor).
pub trait Element: Copy {
    /// Its element type.
    const DTYPE: HostDType;
    /// Appends its little-endian bytes.
    fn put(self, bytes: &mut Vec<u8>);
    /// The value of exactly [`HostDType::bytes`] bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($ty:ty = $dtype:ident),+) => {$(
        impl Element for $ty {
            const DTYPE: HostDType = HostDType::$dtype;
            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("one element"))
            }
        }
    )+};
}

element!(f64 = F64, f32 = F32, f16 = F16, bf16 = BF16);
element!(i64 = I64, i32 = I32, i16 = I16, i8 = I8);
element!(u64 = U64, u32 = U32, u16 = U16, u8 = U8);

impl Element for bool {
    const DTYPE: HostDType = HostDType::Bool;
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
    fn get(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

/// One element, as wide as its kind gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A float.
    Float(f64),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A truth value.
    Bool(bool),
}

impl Value {
    /// The value as a float; integers beyond 2^53 are rounded.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Float(x) => x,
            Self::Int(x) => x as f64,
            Self::Uint(x) => x as f64,
            Self::Bool(x) => f64::from(u8::from(x)),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Float(x) => x.fmt(f),
            Self::Int(x) => x.fmt(f),
            Self::Uint(x) => x.fmt(f),
            Self::Bool(x) => x.fmt(f),
        }
    }
}

/// An element as the graph stores it; truth values are 0 or 1.
pub(crate) fn stored_value(dtype: DType, raw: &[u8]) -> f64 {
    match dtype {
        DType::F32 => f32::get(raw).into(),
        DType::F16 => f16::get(raw).into(),
        DType::BF16 => bf16::get(raw).into(),
        DType::I32 => i32::get(raw).into(),
        DType::U32 => u32::get(raw).into(),
        DType::Bool => f64::from(u8::from(u32::get(raw) != 0)),
    }
}

/// Appends a value in a type; every integer of the graph fits `f64` and `i64`.
pub(crate) fn put_value(x: f64, dtype: HostDType, bytes: &mut Vec<u8>) {
    match dtype {
        HostDType::F64 => x.put(bytes),
        HostDType::F32 => (x as f32).put(bytes),
        HostDType::F16 => f16::from_f32(to_odd(x)).put(bytes),
        HostDType::BF16 => bf16::from_f32(to_odd(x)).put(bytes),
        HostDType::I64 => (x as i64).put(bytes),
        HostDType::I32 => (x as i64 as i32).put(bytes),
        HostDType::I16 => (x as i64 as i16).put(bytes),
        HostDType::I8 => (x as i64 as i8).put(bytes),
        HostDType::U64 => (x as i64 as u64).put(bytes),
        HostDType::U32 => (x as i64 as u32).put(bytes),
        HostDType::U16 => (x as i64 as u16).put(bytes),
        HostDType::U8 => (x as i64 as u8).put(bytes),
        HostDType::Bool => (x != 0.0).put(bytes),
    }
}
