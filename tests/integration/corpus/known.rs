//! What is refused today, by name; the list can only shrink.
//!
//! A trial that is refused must be listed, with words of the refusal; a trial that is listed must be refused.

use super::verdict::Verdict;
use crate::support::{Outcome, ensure};

/// What is stated of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Valid, but refused in these words.
    #[allow(dead_code, reason = "nothing in the corpus is refused today")]
    Refused(&'static str),
    /// The file itself is not valid, and that is said in these words.
    Invalid(&'static str),
}

use Expected::{Invalid, Refused};

/// Name with `*` for anything, the backend or `*`, and what is stated of it.
const KNOWN: &[(&str, &str, Expected)] = &[
    // The exporter wrote ALiBi's slopes as complex numbers, which ONNX does not have.
    (
        "exports/falcon_alibi_ts17_*",
        "*",
        Invalid("element type complex128"),
    ),
    (
        "exports/falcon_alibi_ts17dyn_*",
        "*",
        Invalid("element type complex128"),
    ),
];

/// What is stated of a model on a backend.
pub(super) fn expected(name: &str, backend: &str) -> Option<Expected> {
    let mut stated = KNOWN
        .iter()
        .filter(|(pattern, on, _)| fits(pattern, name) && fits(on, backend));
    stated.next().map(|(_, _, expected)| *expected)
}

/// Every entry must be about a model that is there, and no two about the same.
pub(super) fn each_is_of_use(names: &[String]) -> Outcome {
    for (at, (pattern, on, _)) in KNOWN.iter().enumerate() {
        ensure(names.iter().any(|name| fits(pattern, name)), || {
            format!("`{pattern}` is about no model: delete the entry")
        })?;
        let twice = KNOWN[..at].iter().find(|(other, also_on, _)| {
            let both = |name: &&String| fits(pattern, name) && fits(other, name);
            (on == also_on || *on == "*" || *also_on == "*") && names.iter().any(|n| both(&n))
        });
        ensure(twice.is_none(), || {
            format!("`{pattern}` is about models of {twice:?} too: delete or narrow one")
        })?;
    }
    Ok(())
}

/// Whether a verdict is the refusal that is stated, where that is settled elsewhere.
pub(super) fn refused(verdict: &Verdict, known: Expected) -> Outcome {
    let (Refused(says) | Invalid(says)) = known;
    match verdict {
        Verdict::Refused(why) if why.contains(says) => Ok(()),
        other => Err(format!("{other:?} is not as listed, {known:?}").into()),
    }
}

/// Whether a name fits a pattern, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(head) else {
        return false;
    };
    let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.into_iter().any(|at| fits(rest, &name[at..]))
}
