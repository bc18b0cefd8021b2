//! What became of one model on one backend, and whether that is what today's list says.

use super::known::{self, Expected};
use super::table;
use crate::support::Outcome;
use attnc::Error;
use attnc::opt::AttentionReport;
use libtest_mimic::Failed;

/// What became of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    /// A wrong number, a crash, attention that should have fused.
    Wrong(String),
    /// Valid, and refused by name.
    Refused(String),
    /// Not valid, and that is said.
    Invalid(String),
}

/// A model's verdict, and the attention in it where it got that far.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) attention: Option<AttentionReport>,
}

/// Where it stands in the table.
pub(super) struct Place {
    pub(super) family: String,
    /// `exports/bert_dyn18_eager`.
    pub(super) name: String,
    pub(super) backend: &'static str,
    /// Attention there is, where that is known.
    pub(super) there: Option<usize>,
}

impl Verdict {
    /// What a result says that is no number.
    pub(super) fn of_error(error: &Error) -> Self {
        match error.exit_code() {
            3 => Self::Refused(error.to_string()),
            _ => Self::Wrong(error.to_string()),
        }
    }

    /// What a comparison says.
    pub(super) fn of_comparison(outcome: Outcome) -> Self {
        match outcome {
            Ok(()) => Self::Right,
            Err(failed) => Self::Wrong(text(&failed)),
        }
    }
}

fn text(failed: &Failed) -> String {
    failed.message().unwrap_or("failed").to_owned()
}

impl Judged {
    pub(super) fn error(error: &Error) -> Self {
        Self {
            verdict: Verdict::of_error(error),
            attention: None,
        }
    }

    /// Right numbers are not enough: as much attention as there is must be found and fused.
    fn holding(self, there: Option<usize>) -> Self {
        let (Some(there), Some(report)) = (there, &self.attention) else {
            return self;
        };
        if (report.found, report.fused) == (there, there) || self.verdict != Verdict::Right {
            return self;
        }
        let reason = report.declined.first().map(|d| d.reason.as_str());
        let verdict = Verdict::Wrong(format!(
            "attention: {there} there, {} found, {} fused; {}",
            report.found,
            report.fused,
            reason.unwrap_or("no reason is given")
        ));
        Self { verdict, ..self }
    }
}

/// Enters the verdict into the table, and fails where it is not the one the list states.
pub(super) fn settle(place: &Place, judged: Judged) -> Outcome {
    let judged = judged.holding(place.there);
    let expected = known::expected(&place.name, place.backend);
    let verdict = match (judged.verdict, expected) {
        // The files that are not valid: saying so is the right answer.
        (Verdict::Refused(why) | Verdict::Wrong(why), Some(Expected::Invalid(says)))
            if why.contains(says) =>
        {
            Verdict::Invalid(why)
        }
        (verdict, _) => verdict,
    };
    let outcome = match (&verdict, expected) {
        (Verdict::Right, None) | (Verdict::Invalid(_), Some(Expected::Invalid(_))) => Ok(()),
        (Verdict::Refused(why), Some(Expected::Refused(says))) if why.contains(says) => Ok(()),
        (Verdict::Right, Some(listed)) => Err(format!(
            "it is right now: delete or narrow its entry in corpus/known.rs, {listed:?}"
        )),
        (Verdict::Wrong(why), _) => Err(why.clone()),
        (Verdict::Refused(why) | Verdict::Invalid(why), Some(listed)) => {
            Err(format!("refused, but not as listed, {listed:?}: {why}"))
        }
        (Verdict::Refused(why) | Verdict::Invalid(why), None) => {
            Err(format!("refused, and not in corpus/known.rs: {why}"))
        }
    };
    table::enter(place, &verdict, expected, judged.attention.as_ref());
    outcome.map_err(Into::into)
}
