//! Comparing results: the largest error against the largest value expected.
//!
//! ```
//! use attnc::{HostTensor, verify::{Tolerance, compare}};
//! let expected = HostTensor::new(vec![2], &[1.0f64, -4.0]).unwrap();
//! let found = HostTensor::new(vec![2], &[1.0f32, -4.0002]).unwrap();
//! let report = compare("y", &expected, &found, &Tolerance::default());
//! assert!(report.passed && report.range == 4.0 && report.at == [1]);
//! ```
//!
//! An output passes where its largest error is at most `max(atol, rtol × range)`, the range being the
//! largest finite magnitude expected, and where NaN and infinities stand exactly where they are expected.

use crate::ir::DType;
use crate::{HostDType, HostTensor, Model, Tensors};

/// How far a result may be off.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tolerance {
    /// Relative to the range of the output; `None` chooses by element type: 1e-4 for `float32` and
    /// `float64`, 5e-3 for `float16`, 4e-2 for `bfloat16`, 0 for integers and booleans.
    pub rtol: Option<f64>,
    /// Absolute; `None` is 1e-7 for floats, so that an output of zeros may have rounding noise.
    pub atol: Option<f64>,
    /// The coarsest float type that the model stores values in: what it computes is no more precise than
    /// that, whatever type its outputs have. `None` is not known.
    pub storage: Option<DType>,
}

impl Tolerance {
    /// What may be expected of a model: nothing chosen but its storage.
    #[must_use]
    pub fn of_model(model: &Model) -> Self {
        let graph = &model.graph;
        let stored: Vec<DType> = graph.values().map(|value| graph.ty(value).dtype).collect();
        let coarse = [DType::BF16, DType::F16].into_iter();
        Self {
            storage: coarse.into_iter().find(|dtype| stored.contains(dtype)),
            ..Self::default()
        }
    }

    /// The error allowed for an output of one type where another is expected.
    fn allowed(&self, expected: HostDType, found: HostDType, range: f64) -> f64 {
        let float = expected.is_float() && found.is_float();
        let finest = |dtype| -> f64 {
            match dtype {
                HostDType::F16 => 5e-3,
                HostDType::BF16 => 4e-2,
                _ => 1e-4,
            }
        };
        let storage = match self.storage {
            Some(DType::F16) => finest(HostDType::F16),
            Some(DType::BF16) => finest(HostDType::BF16),
            _ => 0.0,
        };
        let (rtol, atol) = if float {
            (finest(expected).max(finest(found)).max(storage), 1e-7)
        } else {
            (0.0, 0.0)
        };
        f64::max(self.atol.unwrap_or(atol), self.rtol.unwrap_or(rtol) * range)
    }
}

/// How one output compares.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct OutputReport {
    /// The output's name.
    pub name: String,
    /// Whether it is within the tolerance.
    pub passed: bool,
    /// Its type, `float32[2, 17, 32]`.
    pub found: String,
    /// The largest absolute error over finite elements.
    pub max_abs_error: f64,
    /// The largest finite magnitude expected.
    pub range: f64,
    /// `max_abs_error / range`; 0 where both are 0.
    pub relative: f64,
    /// The error that was allowed.
    pub allowed: f64,
    /// Index of the element of the largest error.
    pub at: Vec<usize>,
    /// The value expected there.
    pub expected_at: f64,
    /// The value found there.
    pub found_at: f64,
    /// Elements where NaN or an infinity stands on one side only, or with another sign.
    pub not_finite: usize,
    /// What is wrong, for people; empty where it passed.
    pub problem: String,
}

/// How all outputs compare.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Whether all passed and none is missing.
    pub passed: bool,
    /// One report an output.
    pub outputs: Vec<OutputReport>,
}

impl Comparison {
    /// The output that is furthest off relative to its range.
    #[must_use]
    pub fn worst(&self) -> Option<&OutputReport> {
        let failed_first = |r: &&OutputReport| (!r.passed, r.relative);
        self.outputs.iter().max_by(|a, b| {
            let ((fa, ra), (fb, rb)) = (failed_first(a), failed_first(b));
            fa.cmp(&fb).then(ra.total_cmp(&rb))
        })
    }
}

/// A set of expected outputs that does not belong to the outputs found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the expected values do not fit the outputs:{}", .0.iter().map(|p| format!("\n  {p}")).collect::<String>())]
pub struct ExpectedErrors(pub Vec<String>);

/// Compares all outputs.
///
/// # Errors
/// Outputs without an expected value, expected values without an output, kinds that cannot be compared.
pub fn compare_all(
    expected: &Tensors,
    found: &Tensors,
    tolerance: &Tolerance,
) -> Result<Comparison, ExpectedErrors> {
    let mut wrong = Vec::new();
    for (name, tensor) in expected {
        match found.get(name) {
            None => {
                let known: Vec<_> = found.keys().map(|n| format!("`{n}`")).collect();
                let known = known.join(", ");
                wrong.push(format!(
                    "no output is named `{name}`; the outputs are {known}"
                ));
            }
            Some(output) if output.dtype().is_float() != tensor.dtype().is_float() => {
                let (have, want) = (output.type_text(), tensor.type_text());
                wrong.push(format!("output `{name}` is {have}, but {want} is expected"));
            }
            Some(_) => {}
        }
    }
    for name in found.keys().filter(|name| !expected.contains_key(*name)) {
        wrong.push(format!("nothing is expected of output `{name}`"));
    }
    if !wrong.is_empty() {
        return Err(ExpectedErrors(wrong));
    }
    let outputs: Vec<_> = found
        .iter()
        .map(|(name, tensor)| compare(name, &expected[name], tensor, tolerance))
        .collect();
    Ok(Comparison {
        passed: outputs.iter().all(|o| o.passed),
        outputs,
    })
}

/// Compares one output; the tolerance goes by the coarsest of both element types and the model's storage.
#[must_use]
pub fn compare(
    name: &str,
    expected: &HostTensor,
    found: &HostTensor,
    tolerance: &Tolerance,
) -> OutputReport {
    let mut report = OutputReport {
        name: name.to_owned(),
        passed: false,
        found: found.type_text(),
        max_abs_error: 0.0,
        range: 0.0,
        relative: 0.0,
        allowed: 0.0,
        at: Vec::new(),
        expected_at: 0.0,
        found_at: 0.0,
        not_finite: 0,
        problem: String::new(),
    };
    if expected.shape() != found.shape() {
        let (want, have) = (expected.shape(), found.shape());
        report.problem = format!("expected shape {want:?}, found {have:?}");
        return report;
    }
    measure(&mut report, expected, found);
    report.allowed = tolerance.allowed(expected.dtype(), found.dtype(), report.range);
    report.relative = relative(report.max_abs_error, report.range);
    report.passed = report.not_finite == 0 && report.max_abs_error <= report.allowed;
    if report.not_finite > 0 {
        let (n, at, want, have) = (
            report.not_finite,
            &report.at,
            report.expected_at,
            report.found_at,
        );
        report.problem = format!(
            "{n} elements are NaN or infinite on one side only; at {at:?} expected {want}, found {have}"
        );
    } else if !report.passed {
        let (error, allowed, at) = (report.max_abs_error, report.allowed, &report.at);
        let (want, have) = (report.expected_at, report.found_at);
        report.problem = format!(
            "off by {error:.3e} at {at:?}, {allowed:.3e} allowed: expected {want}, found {have}"
        );
    }
    report
}

fn relative(error: f64, range: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / range }
}

/// Fills in errors and range; the first element that is not finite on one side only goes before any error.
fn measure(report: &mut OutputReport, expected: &HostTensor, found: &HostTensor) {
    let mut worst: Option<(usize, f64)> = None;
    for (i, (want, have)) in expected.values().zip(found.values()).enumerate() {
        let (want, have) = (want.to_f64(), have.to_f64());
        if want.is_finite() {
            report.range = report.range.max(want.abs());
        }
        let error = match (want.is_finite(), have.is_finite()) {
            (true, true) => (want - have).abs(),
            _ if want == have || (want.is_nan() && have.is_nan()) => 0.0,
            _ => {
                report.not_finite += 1;
                f64::INFINITY
            }
        };
        if error.is_finite() {
            report.max_abs_error = report.max_abs_error.max(error);
        }
        if worst.is_none_or(|(_, e)| error > e) {
            worst = Some((i, error));
        }
    }
    if let Some((i, _)) = worst {
        report.at = found.index_of(i);
        report.expected_at = expected.value(i).to_f64();
        report.found_at = found.value(i).to_f64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> HostTensor {
        HostTensor::new(vec![values.len()], values).unwrap()
    }

    fn check(expected: &[f32], found: &[f32]) -> OutputReport {
        compare("y", &f32s(expected), &f32s(found), &Tolerance::default())
    }

    #[test]
    fn the_tolerance_is_relative_to_the_range_of_the_output() {
        assert!(check(&[100.0, 0.001], &[100.0, 0.009]).passed);
        let report = check(&[100.0, 0.0], &[100.0, 0.02]);
        assert!(!report.passed);
        assert_eq!(
            (report.range, report.at.as_slice()),
            (100.0, [1].as_slice())
        );
        assert!(
            report.problem.contains("off by 2.000e-2 at [1]"),
            "{}",
            report.problem
        );
    }

    #[test]
    fn what_is_not_finite_must_stand_where_it_is_expected() {
        assert!(check(&[f32::NAN, 1.0], &[f32::NAN, 1.0]).passed);
        assert!(check(&[f32::INFINITY, 1.0], &[f32::INFINITY, 1.0]).passed);
        for found in [[f32::NAN, 1.0], [f32::NEG_INFINITY, 1.0], [0.0, 1.0]] {
            let report = check(&[f32::INFINITY, 1.0], &found);
            assert_eq!((report.passed, report.not_finite), (false, 1), "{found:?}");
        }
        let report = check(&[1.0, 2.0], &[1.0, f32::NAN]);
        assert!(!report.passed && report.problem.contains("at [1] expected 2, found NaN"));
    }

    #[test]
    fn integers_must_be_equal_and_shapes_too() {
        let (a, b) = ([5i64, 6], [5i64, 7]);
        let expected = HostTensor::new(vec![2], &a).unwrap();
        let found = HostTensor::new(vec![2], &b).unwrap();
        assert!(!compare("y", &expected, &found, &Tolerance::default()).passed);
        let wide = HostTensor::new(vec![1, 2], &a).unwrap();
        let report = compare("y", &expected, &wide, &Tolerance::default());
        assert_eq!(report.problem, "expected shape [2], found [1, 2]");
    }

    #[test]
    fn a_model_that_stores_halves_is_no_more_precise_than_they_are() {
        let text = "graph @g(%x: f32[2]) {
  %h = cast %x, to = f16
  %y = cast %h, to = f32
  return %y
}";
        let tolerance = Tolerance::of_model(&Model::from_text("g", text).unwrap());
        assert_eq!(tolerance.storage, Some(DType::F16));
        let (expected, found) = (f32s(&[1.0, -4.0]), f32s(&[1.0, -4.01]));
        assert!(compare("y", &expected, &found, &tolerance).passed);
        assert!(!compare("y", &expected, &found, &Tolerance::default()).passed);
        // Integers stay exact.
        let [a, b] = [[1000i64], [1001]].map(|x| HostTensor::new(vec![1], &x).unwrap());
        assert!(!compare("y", &a, &b, &tolerance).passed);
    }

    #[test]
    fn an_empty_output_passes() {
        assert!(check(&[], &[]).passed);
    }

    #[test]
    fn missing_and_unknown_outputs_are_reported_together() {
        let expected = Tensors::from([("a".to_owned(), f32s(&[1.0]))]);
        let found = Tensors::from([("b".to_owned(), f32s(&[1.0]))]);
        let error = compare_all(&expected, &found, &Tolerance::default()).unwrap_err();
        assert_eq!(
            error.0,
            [
                "no output is named `a`; the outputs are `b`",
                "nothing is expected of output `b`"
            ]
        );
    }
}
