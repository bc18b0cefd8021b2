//! Element types.
//!
//! ONNX `int64` arrives as [`DType::I32`]: constants are range-checked at import, run-time inputs at
//! upload, so no kernel ever needs 64-bit integers.

use std::fmt;

/// The element type of a value.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16, a storage type: arithmetic is f32.
    F16,
    /// The upper half of a binary32, a storage type: arithmetic is f32.
    BF16,
    /// Two's complement, 32 bits, wrapping.
    I32,
    /// Unsigned, 32 bits, wrapping.
    U32,
    /// A truth value; stored as one `u32` (0 or 1) an element.
    Bool,
}

impl DType {
    /// Every element type, in the order of the text form's documentation.
    pub const ALL: [Self; 6] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I32,
        Self::U32,
        Self::Bool,
    ];

    /// Bytes an element takes in a buffer.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 | Self::U32 | Self::Bool => 4,
        }
    }

    /// Whether this is one of the floating-point types.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Whether this is one of the integer types.
    #[must_use]
    pub fn is_int(self) -> bool {
        matches!(self, Self::I32 | Self::U32)
    }

    /// The name in the text form: `f32 f16 bf16 i32 u32 bool`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::Bool => "bool",
        }
    }

    /// The type of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An f32 that rounds to any shorter float type as `x` does; what a double rounding, or `half`'s own
/// conversion from f64, does not.
///
/// Where `x` is no f32, this is the neighbour whose last bit is 1, so that no tie arises that `x` is not.
/// Boldo and Melquiond 2008, IEEE TC 57(4), section 3.
///
/// ```
/// use attnc_ir::to_odd;
/// let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40); // just above a tie between two f16
/// assert!(half::f16::from_f32(to_odd(x)).to_f64() > 1.0);
/// ```
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "what is lost decides the last bit"
)]
pub fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let wide = f64::from(nearest);
    if wide == x || x.is_nan() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    if wide < x {
        nearest.next_up()
    } else {
        nearest.next_down()
    }
}
