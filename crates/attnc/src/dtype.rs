//! Element types as files and hosts have them: wider than the [`DType`] of the graph.

use crate::ir::DType;
use std::fmt;

/// The element type of a [`HostTensor`](crate::HostTensor).
///
/// Files hold `int64` token ids, `float64` references and one-byte booleans; the graph holds none of
/// these. The names are NumPy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostDType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 16 bits.
    I16,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 64 bits.
    U64,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 8 bits.
    U8,
    /// A truth value in one byte, 0 or 1.
    Bool,
}

/// Type, NumPy's name, NumPy's code in a `.npy` header, ONNX's name where it is another.
const TABLE: [(HostDType, &str, &str, &str); 13] = [
    (HostDType::F64, "float64", "f8", "double"),
    (HostDType::F32, "float32", "f4", "float"),
    (HostDType::F16, "float16", "f2", "float16"),
    // NumPy has no bfloat16.
    (HostDType::BF16, "bfloat16", "", "bfloat16"),
    (HostDType::I64, "int64", "i8", "int64"),
    (HostDType::I32, "int32", "i4", "int32"),
    (HostDType::I16, "int16", "i2", "int16"),
    (HostDType::I8, "int8", "i1", "int8"),
    (HostDType::U64, "uint64", "u8", "uint64"),
    (HostDType::U32, "uint32", "u4", "uint32"),
    (HostDType::U16, "uint16", "u2", "uint16"),
    (HostDType::U8, "uint8", "u1", "uint8"),
    (HostDType::Bool, "bool", "b1", "bool"),
];

impl HostDType {
    /// Every type, widest first within its kind.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(dtype, ..)| *dtype)
    }

    fn row(self) -> &'static (Self, &'static str, &'static str, &'static str) {
        TABLE
            .iter()
            .find(|(dtype, ..)| *dtype == self)
            .expect("every type has a row")
    }

    /// Bytes of an element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Whether this is one of the floating-point types.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::BF16)
    }

    /// Whether this is one of the integer types.
    #[must_use]
    pub fn is_int(self) -> bool {
        !self.is_float() && self != Self::Bool
    }

    /// NumPy's name: `float32`, `int64`, `bool`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The type of that name, as NumPy, ONNX or the graph's text form has it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let row = TABLE.iter().find(|row| row.1 == name || row.3 == name);
        row.map(|row| row.0)
            .or_else(|| DType::from_name(name).map(Self::from))
    }

    /// The code of a little-endian element in a `.npy` header: `<f4`; none for `bfloat16`.
    pub(crate) fn npy_code(self) -> Option<String> {
        let code = self.row().2;
        let order = if self.bytes() == 1 { '|' } else { '<' };
        (!code.is_empty()).then(|| format!("{order}{code}"))
    }

    /// The type behind the code of a `.npy` header without its byte order.
    pub(crate) fn from_npy_kind(kind: &str) -> Option<Self> {
        let row = TABLE.iter().find(|row| !kind.is_empty() && row.2 == kind);
        row.map(|row| row.0)
    }
}

impl fmt::Display for HostDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The host's type of the same width (a `bool` shrinks to one byte).
impl From<DType> for HostDType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F16 => Self::F16,
            DType::BF16 => Self::BF16,
            DType::I32 => Self::I32,
            DType::U32 => Self::U32,
            DType::Bool => Self::Bool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_numpy_onnx_and_the_graph_are_understood() {
        for dtype in HostDType::all() {
            assert_eq!(HostDType::from_name(dtype.name()), Some(dtype));
        }
        for (name, dtype) in [
            ("float", HostDType::F32),
            ("double", HostDType::F64),
            ("f16", HostDType::F16),
            ("i32", HostDType::I32),
        ] {
            assert_eq!(HostDType::from_name(name), Some(dtype), "{name}");
        }
        assert_eq!(HostDType::from_name("complex64"), None);
        assert_eq!(HostDType::from_npy_kind(""), None);
    }

    #[test]
    fn npy_codes_read_back() {
        for dtype in HostDType::all().filter(|d| *d != HostDType::BF16) {
            let code = dtype.npy_code().unwrap();
            assert_eq!(HostDType::from_npy_kind(&code[1..]), Some(dtype), "{code}");
        }
        assert_eq!(HostDType::U8.npy_code().as_deref(), Some("|u1"));
        assert_eq!(HostDType::BF16.npy_code(), None);
    }
}
