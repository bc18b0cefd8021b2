//! How elements lie in a buffer, and the WGSL that reads and writes them.
//!
//! Kernels compute in f32 whatever the storage. A device with f16 in shaders binds f16 as such; elsewhere,
//! and for bf16 everywhere, a 16-bit tensor is bound as `array<u32>`, two elements a word, and read through
//! the functions of `lib/packed_f16` or `lib/packed_bf16`.
//!
//! ```
//! use attnc_codegen::Stored;
//! assert_eq!(Stored::F16.load("x", "i"), "f32(x[i])");
//! assert_eq!(Stored::PackedF16.load("x", "i"), "f16_at(x[i / 2u], i)");
//! assert_eq!(Stored::PackedF16.vec4(), "vec2<u32>");
//! ```
//!
//! A word has one owner: whoever writes one of its elements writes, or keeps, the other, and no other
//! invocation of the dispatch stores to it. Lowering sees to it, or lets the kernel write f32 and packs that.

use crate::choice::is_cpu;
use crate::micro::{Access, Converter};
use attnc_ir::{DType, Dim};
use attnc_plan::DeviceProfile;
use std::fmt;

/// How one tensor's elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stored {
    /// Words of one f32.
    F32,
    /// The same, vectors of which are read and written as words of 64 bits, two elements each.
    F32Pairs,
    /// Texels of four f32: not how a tensor lies, but how a kernel reads it, where it is bound as an image
    /// ([`attnc_plan::ImageSize`]).
    F32Image,
    /// Words of one i32.
    I32,
    /// Words of one u32.
    U32,
    /// Words of one truth value, 0 or 1.
    Bool,
    /// f16 as the device knows it.
    F16,
    /// Words of two f16.
    PackedF16,
    /// Words of two bf16.
    PackedBf16,
}

impl Stored {
    /// How kernels on a device see the type. A CPU's lanes load one word after the other, of whatever size, so that
    /// there f32 come by pairs.
    #[must_use]
    pub fn of(dtype: DType, profile: &DeviceProfile) -> Self {
        let features = &profile.features;
        match dtype {
            DType::F32 if features.int64 && is_cpu(profile) => Self::F32Pairs,
            DType::F32 => Self::F32,
            DType::I32 => Self::I32,
            DType::U32 => Self::U32,
            DType::Bool => Self::Bool,
            DType::F16 if features.f16 => Self::F16,
            DType::F16 => Self::PackedF16,
            DType::BF16 => Self::PackedBf16,
        }
    }

    /// Whether a word holds two elements.
    #[must_use]
    pub fn is_packed(self) -> bool {
        self.library().is_some()
    }

    /// The WGSL type of the binding's items: elements, or words of two.
    #[must_use]
    pub fn item(self) -> &'static str {
        match self {
            Self::F32 | Self::F32Pairs | Self::F32Image => "f32",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::U32 | Self::Bool | Self::PackedF16 | Self::PackedBf16 => "u32",
        }
    }

    /// The WGSL type of four elements.
    #[must_use]
    pub fn vec4(self) -> &'static str {
        match self {
            Self::F32 | Self::F32Image => "vec4<f32>",
            Self::F32Pairs => "vec2<u64>",
            Self::F16 => "vec4<f16>",
            Self::PackedF16 | Self::PackedBf16 => "vec2<u32>",
            Self::I32 => "vec4<i32>",
            Self::U32 | Self::Bool => "vec4<u32>",
        }
    }

    /// The value of element `at` of a binding whose items are [`Stored::item`].
    #[must_use]
    pub fn load(self, array: &str, at: &str) -> String {
        match self.library() {
            Some(library) => {
                let index = if is_operand(at) {
                    at.to_owned()
                } else {
                    format!("({at})")
                };
                format!("{}({array}[{index} / 2u], {at})", library.at)
            }
            None if self == Self::F16 => format!("f32({array}[{at}])"),
            None if self == Self::Bool => format!("{array}[{at}] != 0u"),
            None => format!("{array}[{at}]"),
        }
    }

    /// Item `at` of a binding of [`Stored::vec4`], as a `vec4<f32>` if it is of floats.
    #[must_use]
    pub fn load_vec4(self, array: &str, at: &str) -> String {
        match self.library() {
            Some(library) => format!("{}({array}[{at}])", library.vec4),
            None if self == Self::F16 => format!("vec4<f32>({array}[{at}])"),
            None if self == Self::F32Pairs => format!("f32_four({array}[{at}])"),
            None if self == Self::F32Image => format!("textureLoad({array}, texel({at}))"),
            None if self == Self::Bool => format!("{array}[{at}] != vec4<u32>()"),
            None => format!("{array}[{at}]"),
        }
    }

    /// One f32 as an item of memory; of packed types, two of them: `x` is a `vec2<f32>`.
    #[must_use]
    pub fn item_of(self, x: &str) -> String {
        match self.library() {
            Some(library) => format!("{}({x})", library.word),
            None if self == Self::F16 => format!("f16({x})"),
            None => x.to_owned(),
        }
    }

    /// A `vec4<f32>` as an item of a binding of [`Stored::vec4`].
    #[must_use]
    pub fn vec4_of(self, x: &str) -> String {
        match self.library() {
            Some(library) => format!("{}({x})", library.words),
            None if self == Self::F16 => format!("vec4<f16>({x})"),
            None if self == Self::F32Pairs => format!("f32_words({x})"),
            None => x.to_owned(),
        }
    }

    /// The function that reads items by this access, if it takes one.
    pub(crate) fn reader(self, access: Access) -> Option<Converter> {
        match (access, self.library()) {
            (Access::Vec4, Some(library)) => Some((library.module, library.vec4)),
            (Access::Scalar, Some(library)) => Some((library.module, library.at)),
            (Access::Vec4, None) if self == Self::F32Pairs => Some((F32_PAIRS, "f32_four")),
            (Access::Vec4, None) if self == Self::F32Image => Some((IMAGES, "texel")),
            _ => None,
        }
    }

    /// The function that makes items of this access, if it takes one.
    pub(crate) fn writer(self, access: Access) -> Option<Converter> {
        match (access, self.library()) {
            (Access::Vec4, Some(library)) => Some((library.module, library.words)),
            (Access::Scalar, Some(library)) => Some((library.module, library.word)),
            (Access::Vec4, None) if self == Self::F32Pairs => Some((F32_PAIRS, "f32_words")),
            _ => None,
        }
    }

    /// Words of a vector of four elements.
    pub(crate) fn words_of_four(self) -> u32 {
        match self {
            Self::PackedF16 | Self::PackedBf16 | Self::F32Pairs => 2,
            _ => 4,
        }
    }

    /// The WGSL type of eight elements.
    pub(crate) fn vec8(self) -> &'static str {
        debug_assert_eq!(self, Self::F32Pairs, "only these come by eights");
        "vec4<u64>"
    }

    /// Item `at` of a binding of [`Stored::vec8`], as two `vec4<f32>`: `low` and `high`.
    pub(crate) fn load_vec8(self, array: &str, at: &str) -> String {
        format!("f32_eight({array}[{at}])")
    }

    /// The function that [`load_vec8`](Self::load_vec8) calls.
    pub(crate) fn reader_of_eights(self) -> Option<Converter> {
        (self == Self::F32Pairs).then_some((F32_PAIRS, "f32_eight"))
    }

    /// Two `vec4<f32>` as an item of a binding of [`Stored::vec8`].
    pub(crate) fn vec8_of(self, low: &str, high: &str) -> String {
        format!("f32_eight_words({low}, {high})")
    }

    /// The function that [`vec8_of`](Self::vec8_of) calls.
    pub(crate) fn writer_of_eights(self) -> Option<Converter> {
        (self == Self::F32Pairs).then_some((F32_PAIRS, "f32_eight_words"))
    }

    /// The functions that read and write words of two.
    pub(crate) fn library(self) -> Option<&'static Library> {
        match self {
            Self::PackedF16 => Some(&PACKED_F16),
            Self::PackedBf16 => Some(&PACKED_BF16),
            _ => None,
        }
    }

    /// The file for the slot `store` of a kernel that writes single elements.
    pub(crate) fn store_file(self) -> &'static str {
        match self {
            Self::PackedF16 => "store/packed_f16",
            Self::PackedBf16 => "store/packed_bf16",
            _ => "store/elements",
        }
    }

    /// The same for a kernel that writes four elements at once.
    pub(crate) fn store_vectors_file(self) -> &'static str {
        match self {
            Self::PackedF16 => "store/packed_f16_vectors",
            Self::PackedBf16 => "store/packed_bf16_vectors",
            Self::F32Pairs => "store/f32_pairs_vectors",
            _ => "store/elements",
        }
    }
}

impl fmt::Display for Stored {
    /// `f16`, `f16 by words of two`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F32Pairs => "f32 by pairs",
            Self::F32Image => "f32 in an image",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::Bool => "bool",
            Self::F16 => "f16",
            Self::PackedF16 => "f16 by words of two",
            Self::PackedBf16 => "bf16 by words of two",
        })
    }
}

/// The functions of a file of `lib/` for one packed type.
pub(crate) struct Library {
    /// The file, as import lines spell it.
    pub(crate) module: &'static str,
    /// One element from its word.
    pub(crate) at: &'static str,
    /// Four elements from two words.
    pub(crate) vec4: &'static str,
    /// Two elements as a word.
    pub(crate) word: &'static str,
    /// Four elements as two words.
    pub(crate) words: &'static str,
}

const F32_PAIRS: &str = "lib::f32_pairs";
const IMAGES: &str = "lib::images";

const PACKED_F16: Library = Library {
    module: "lib::packed_f16",
    at: "f16_at",
    vec4: "f16_vec4",
    word: "f16_word",
    words: "f16_words",
};

const PACKED_BF16: Library = Library {
    module: "lib::packed_bf16",
    at: "bf16_at",
    vec4: "bf16_vec4",
    word: "bf16_word",
    words: "bf16_words",
};

/// Whether every value of the polynomial is a multiple of `n`.
pub(crate) fn multiple_of(dim: &Dim, n: i64) -> bool {
    dim.terms().all(|(coefficient, _)| coefficient % n == 0)
}

/// Whether the text binds tighter than a division.
fn is_operand(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}
