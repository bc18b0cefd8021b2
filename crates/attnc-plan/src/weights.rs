//! Where a runner gets the weights from.

use indexmap::IndexMap;
use std::collections::BTreeMap;

/// Weights by name, borrowed: a memory-mapped file is uploaded without a copy in between.
///
/// ```
/// use attnc_plan::WeightSource;
/// let weights = std::collections::BTreeMap::from([("w".to_owned(), vec![0u8; 16])]);
/// assert_eq!(weights.bytes("w").map(<[u8]>::len), Some(16));
/// assert!(weights.bytes("v").is_none());
/// ```
pub trait WeightSource {
    /// The bytes of weight `name`: dense, row-major, little-endian, in the element type of its buffer
    /// (a `bool` takes four bytes, 0 or 1).
    fn bytes(&self, name: &str) -> Option<&[u8]>;
}

/// No weights.
impl WeightSource for () {
    fn bytes(&self, _name: &str) -> Option<&[u8]> {
        None
    }
}

impl<V: AsRef<[u8]>> WeightSource for BTreeMap<String, V> {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(AsRef::as_ref)
    }
}

impl<V: AsRef<[u8]>> WeightSource for IndexMap<String, V> {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(AsRef::as_ref)
    }
}
