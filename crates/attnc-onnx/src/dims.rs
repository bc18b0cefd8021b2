//! Names of run-time lengths: what a file calls the axes of its inputs, as identifiers.
//!
//! `batch` stays, `past + seq` becomes a sum, `batch size` becomes `batch_size`, and an axis without a name
//! is called after its input: `input_ids_d1`. The same name is the same length everywhere.

use crate::eval::is_tame;
use attnc_ir::Dim;
use std::collections::HashMap;

/// Longer names and expressions are cut; nothing readable is.
const MAX_NAME: usize = 64;
/// Larger sums of lengths are given a name of their own.
const MAX_TERMS: usize = 4;

/// The names given so far.
#[derive(Debug, Default)]
pub(crate) struct DimNames {
    /// Identifier to the text it stands for.
    given: HashMap<String, String>,
}

impl DimNames {
    /// The length that an axis called `text` has.
    pub(crate) fn named(&mut self, text: &str) -> Dim {
        // A hyphen without spaces is part of a name: `batch-size`.
        let hyphen = text
            .match_indices('-')
            .any(|(i, _)| !(text[..i].ends_with(' ') && text[i + 1..].starts_with(' ')));
        if text.len() <= MAX_NAME
            && !hyphen
            && let Ok(dim) = text.parse::<Dim>()
            && dim.indices().is_empty()
            && dim.as_sym().is_none()
            && dim.terms().count() <= MAX_TERMS
            && is_tame(&dim)
        {
            for symbol in dim.symbols() {
                self.given
                    .entry(symbol.to_string())
                    .or_insert_with(|| symbol.to_string());
            }
            return dim;
        }
        Dim::sym(&self.identifier(text))
    }

    /// The length of an axis without a name.
    pub(crate) fn unnamed(&mut self, input: &str, axis: usize) -> Dim {
        self.named(&format!("{}_d{axis}", identifier(input)))
    }

    fn identifier(&mut self, text: &str) -> String {
        let wanted = identifier(text);
        let free = |name: &String| self.given.get(name).is_none_or(|t| t == text);
        let name = std::iter::once(wanted.clone())
            .chain((2..).map(|n| format!("{wanted}_{n}")))
            .find(free)
            .unwrap_or(wanted);
        self.given.insert(name.clone(), text.to_owned());
        name
    }
}

fn identifier(text: &str) -> String {
    let mut out: String = text
        .chars()
        .take(MAX_NAME)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    // `d0` is an index variable in printed expressions, and a digit begins no name.
    let index = out
        .strip_prefix('d')
        .is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()));
    if out.is_empty() || index || out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers_and_stay_apart() {
        let mut names = DimNames::default();
        assert_eq!(names.named("batch").to_string(), "batch");
        assert_eq!(names.named("past + seq").to_string(), "past + seq");
        assert_eq!(names.named("batch size").to_string(), "batch_size");
        assert_eq!(names.named("batch-size").to_string(), "batch_size_2");
        assert_eq!(names.named("batch size").to_string(), "batch_size");
        assert_eq!(names.named("d0").to_string(), "_d0");
        assert_eq!(names.named("17x").to_string(), "_17x");
        assert_eq!(names.named("(s0//8)").to_string(), "_s0__8_");
        assert_eq!(names.unnamed("input.ids", 1).to_string(), "input_ids_d1");
    }
}
