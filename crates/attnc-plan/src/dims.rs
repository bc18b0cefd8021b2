//! Values of the symbolic lengths.

use crate::{Dim, DimError};
use std::collections::BTreeMap;

/// Values of symbolic lengths.
///
/// ```
/// use attnc_plan::{Dim, DimValues};
/// let dims = DimValues::from([("B", 2), ("S", 7)]);
/// assert_eq!(dims.eval(&(Dim::sym("B") * Dim::sym("S"))), Ok(14));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct DimValues(BTreeMap<String, i64>);

impl DimValues {
    /// The value of length `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.get(name).copied()
    }

    /// Gives length `name` a value.
    pub fn set(&mut self, name: &str, value: i64) {
        self.0.insert(name.to_owned(), value);
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// Where a length has no value, the value does not fit 63 bits, or a divisor is zero.
    pub fn eval(&self, dim: &Dim) -> Result<i64, DimError> {
        dim.eval(&|name| self.get(name))
    }
}

impl<const N: usize> From<[(&str, i64); N]> for DimValues {
    fn from(values: [(&str, i64); N]) -> Self {
        values.into_iter().collect()
    }
}

impl<'a> FromIterator<(&'a str, i64)> for DimValues {
    fn from_iter<I: IntoIterator<Item = (&'a str, i64)>>(values: I) -> Self {
        Self(
            values
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }
}
