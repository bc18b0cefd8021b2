//! How the symbolic lengths follow from the shapes of the inputs.

use crate::{BindErrors, BindProblem, Dim, DimError, DimValues, Plan};
use attnc_ir::{Atom, Extents};
use std::collections::{BTreeMap, BTreeSet};

/// `shape[axis] = expr`, to be solved or checked.
struct Equation<'p> {
    input: &'p str,
    axis: usize,
    expr: &'p Dim,
    found: usize,
}

impl Equation<'_> {
    fn found(&self) -> i64 {
        i64::try_from(self.found).unwrap_or(i64::MAX)
    }
}

/// Solves the symbolic lengths from the shapes of the inputs.
///
/// An axis that is one length gives it its value; one with a single unknown (`P + S` where `S` is
/// known) is solved for it; all others are checked, constants too.
///
/// ```
/// use attnc_plan::{Dim, DimBinding};
/// let ids = [Dim::sym("B"), Dim::sym("S")];
/// let mask = [Dim::sym("B"), Dim::sym("P") + Dim::sym("S")];
/// let dims = ["B".to_owned(), "S".to_owned(), "P".to_owned()];
/// let binding = DimBinding::new(&dims, [("ids", ids.as_slice()), ("mask", mask.as_slice())]);
/// let values = binding.shape("ids", &[2, 3]).shape("mask", &[2, 10]).finish().unwrap();
/// assert_eq!(values.get("P"), Some(7));
/// ```
pub struct DimBinding<'p> {
    dims: &'p [String],
    ports: Vec<(&'p str, &'p [Dim])>,
    given: BTreeMap<&'p str, Vec<usize>>,
    values: DimValues,
    source: BTreeMap<String, String>,
    problems: Vec<BindProblem>,
    troubled: BTreeSet<&'p str>,
}

impl<'p> DimBinding<'p> {
    /// For inputs given as names and shapes.
    pub fn new(dims: &'p [String], ports: impl IntoIterator<Item = (&'p str, &'p [Dim])>) -> Self {
        Self {
            dims,
            ports: ports.into_iter().collect(),
            given: BTreeMap::new(),
            values: DimValues::default(),
            source: BTreeMap::new(),
            problems: Vec::new(),
            troubled: BTreeSet::new(),
        }
    }

    /// For the inputs of a plan.
    #[must_use]
    pub fn for_plan(plan: &'p Plan) -> Self {
        Self::new(
            &plan.dims,
            plan.inputs
                .iter()
                .map(|p| (p.name.as_str(), p.shape.as_slice())),
        )
    }

    /// Gives the shape of an input.
    #[must_use]
    pub fn shape(mut self, input: &str, shape: &[usize]) -> Self {
        let Some(&(name, expected)) = self.ports.iter().find(|(name, _)| *name == input) else {
            let known = list(self.ports.iter().map(|(name, _)| *name));
            self.problems.push(BindProblem::UnknownInput {
                name: input.to_owned(),
                known,
            });
            return self;
        };
        if expected.len() == shape.len() {
            self.given.insert(name, shape.to_vec());
        } else {
            self.troubled.insert(name);
            self.problems.push(BindProblem::Rank {
                input: input.to_owned(),
                expected: shape_text(expected),
                rank: expected.len(),
                found: shape_text(shape),
                found_rank: shape.len(),
            });
        }
        self
    }

    /// Gives a length directly, as `--dim S=128` does.
    #[must_use]
    pub fn dim(mut self, name: &str, value: i64) -> Self {
        if !self.dims.iter().any(|d| d == name) {
            let known = list(self.dims.iter().map(String::as_str));
            self.problems.push(BindProblem::UnknownDim {
                name: name.to_owned(),
                known,
            });
        } else if value < 0 {
            self.problems.push(BindProblem::Negative {
                name: name.to_owned(),
                value,
            });
        } else {
            self.values.set(name, value);
            self.source.insert(name.to_owned(), "as given".to_owned());
        }
        self
    }

    /// Gives many lengths directly.
    #[must_use]
    pub fn dims(self, values: &DimValues) -> Self {
        values
            .iter()
            .fold(self, |binding, (name, value)| binding.dim(name, value))
    }

    /// Solves and checks.
    ///
    /// # Errors
    /// All mismatches at once, and every length that is left without a value.
    pub fn finish(mut self) -> Result<DimValues, BindErrors> {
        let given = std::mem::take(&mut self.given);
        let equations: Vec<Equation<'p>> = self
            .ports
            .iter()
            .filter_map(|(input, dims)| Some((*input, *dims, given.get(input)?)))
            .flat_map(|(input, dims, shape)| {
                let axes = dims.iter().zip(shape).enumerate();
                axes.map(move |(axis, (expr, &found))| Equation {
                    input,
                    axis,
                    expr,
                    found,
                })
            })
            .collect();
        let mut open: Vec<&Equation<'p>> = equations.iter().collect();
        self.solve(&mut open);
        for equation in open {
            self.verify(equation);
        }
        self.require_all();
        if self.problems.is_empty() {
            Ok(self.values)
        } else {
            Err(BindErrors(self.problems))
        }
    }

    /// Takes equations out of `open` while one of them gives a length its value: those that are one
    /// length first, so that messages name the plainest source.
    fn solve(&mut self, open: &mut Vec<&Equation<'p>>) {
        loop {
            let bare = open.iter().position(|e| {
                e.expr
                    .as_sym()
                    .is_some_and(|name| self.values.get(name).is_none())
            });
            let solvable = || {
                open.iter()
                    .position(|e| single_unknown(e.expr, &self.values).is_some())
            };
            let Some(at) = bare.or_else(solvable) else {
                return;
            };
            let equation = open.remove(at);
            let Some((name, coeff, constant)) = single_unknown(equation.expr, &self.values) else {
                continue;
            };
            let rest = equation.found().saturating_sub(constant);
            if rest.checked_rem(coeff) == Some(0) && rest / coeff >= 0 {
                self.values.set(&name, rest / coeff);
                let source = format!("from input `{}`, axis {}", equation.input, equation.axis);
                self.source.insert(name, source);
            } else {
                self.mismatch(
                    equation,
                    format!("{} with {name} >= 0", self.explain(equation.expr)),
                );
            }
        }
    }

    fn verify(&mut self, equation: &Equation<'p>) {
        match self.values.eval(equation.expr) {
            Ok(value) if value == equation.found() => {}
            Ok(_) => self.mismatch(equation, self.explain(equation.expr)),
            // `require_all` names the missing length.
            Err(DimError::Unbound(_)) => {}
            Err(error) => self.mismatch(equation, format!("{} ({error})", equation.expr)),
        }
    }

    fn mismatch(&mut self, equation: &Equation<'p>, expected: String) {
        self.troubled.insert(equation.input);
        self.problems.push(BindProblem::Axis {
            input: equation.input.to_owned(),
            axis: equation.axis,
            expected,
            found: equation.found,
        });
    }

    /// `P + S = 10 (P = 7 from input …, S = 3 as given)`, or the number alone.
    fn explain(&self, expr: &Dim) -> String {
        if expr.as_const().is_some() {
            return expr.to_string();
        }
        let parts: Vec<_> = expr
            .symbols()
            .iter()
            .filter_map(|s| {
                Some(format!(
                    "{s} = {} {}",
                    self.values.get(s)?,
                    self.source.get(&**s)?
                ))
            })
            .collect();
        let value = self
            .values
            .eval(expr)
            .map(|v| format!(" = {v}"))
            .unwrap_or_default();
        let because = if parts.is_empty() {
            String::new()
        } else {
            format!(" ({})", parts.join(", "))
        };
        format!("{expr}{value}{because}")
    }

    /// Names the lengths without a value, unless an input that is wrong already would have given it.
    fn require_all(&mut self) {
        for name in self.dims {
            if self.values.get(name).is_some() {
                continue;
            }
            let sources: Vec<&str> = self
                .ports
                .iter()
                .filter(|(_, dims)| dims.iter().any(|d| d.symbols().contains(name.as_str())))
                .map(|(input, _)| *input)
                .collect();
            if sources.iter().any(|input| self.troubled.contains(input)) {
                continue;
            }
            let inputs = match sources.as_slice() {
                [] => String::new(),
                _ => format!("the shape of an input that has it ({}), or ", list(sources)),
            };
            self.problems.push(BindProblem::NoValue {
                name: name.clone(),
                inputs,
            });
        }
    }
}

/// `expr = coeff * name + constant` once the known lengths are filled in, if it has that form.
fn single_unknown(expr: &Dim, values: &DimValues) -> Option<(String, i64, i64)> {
    let known = expr.substitute(&Extents::none(), &|atom| match atom {
        Atom::Sym(name) => values.get(name).map(Dim::from),
        _ => None,
    });
    let (mut unknown, mut constant) = (None, 0);
    for (coeff, factors) in known.terms() {
        match factors {
            [] => constant = coeff,
            [(Atom::Sym(name), 1)] if unknown.is_none() => {
                unknown = Some((name.to_string(), coeff));
            }
            _ => return None,
        }
    }
    unknown.map(|(name, coeff)| (name, coeff, constant))
}

fn shape_text<T: ToString>(shape: &[T]) -> String {
    format!(
        "[{}]",
        shape
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// `` `a`, `b` ``, or `(none)`.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|n| format!("`{n}`")).collect();
    if names.is_empty() {
        "(none)".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        text.parse().unwrap()
    }

    /// `ids[B, S]`, `mask[B, P + S]`, `past[2 * B, P, 64]`.
    struct Model {
        dims: Vec<String>,
        ports: Vec<(&'static str, Vec<Dim>)>,
    }

    fn model() -> Model {
        Model {
            dims: ["B", "S", "P"].map(str::to_owned).to_vec(),
            ports: vec![
                ("ids", vec![dim("B"), dim("S")]),
                ("mask", vec![dim("B"), dim("P + S")]),
                ("past", vec![dim("2 * B"), dim("P"), dim("64")]),
            ],
        }
    }

    fn binding(model: &Model) -> DimBinding<'_> {
        DimBinding::new(
            &model.dims,
            model.ports.iter().map(|(n, d)| (*n, d.as_slice())),
        )
    }

    fn message(result: Result<DimValues, BindErrors>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn one_unknown_is_solved_wherever_it_stands() {
        let m = model();
        let solved = binding(&m)
            .shape("past", &[6, 4, 64])
            .shape("mask", &[3, 9])
            .finish();
        assert_eq!(solved, Ok(DimValues::from([("B", 3), ("P", 4), ("S", 5)])));
    }

    #[test]
    fn every_mismatch_is_reported_with_its_reason() {
        let m = model();
        let text = message(
            binding(&m)
                .shape("ids", &[2, 3])
                .shape("mask", &[3, 9])
                .shape("past", &[4, 5, 63])
                .finish(),
        );
        assert_eq!(
            text,
            "input `mask`, axis 0: expected B = 2 (B = 2 from input `ids`, axis 0), found 3\n\
             input `mask`, axis 1: expected P + S = 8 (P = 5 from input `past`, axis 1, \
             S = 3 from input `ids`, axis 1), found 9\n\
             input `past`, axis 2: expected 64, found 63"
        );
    }

    #[test]
    fn a_length_that_would_be_negative_or_broken_is_a_mismatch() {
        let m = model();
        let text = message(
            binding(&m)
                .shape("ids", &[2, 3])
                .shape("mask", &[2, 1])
                .finish(),
        );
        assert!(
            text.contains("mask`, axis 1: expected P + S (S = 3"),
            "{text}"
        );
        let text = message(binding(&m).shape("past", &[3, 1, 64]).dim("S", 1).finish());
        assert!(text.contains("past`, axis 0: expected 2 * B"), "{text}");
    }

    #[test]
    fn a_missing_length_says_where_it_could_come_from() {
        let m = model();
        let text = message(binding(&m).shape("ids", &[2, 3]).finish());
        assert_eq!(
            text,
            "length `P` has no value: give the shape of an input that has it (`mask`, `past`), \
             or --dim P=N"
        );
        assert!(
            binding(&m)
                .shape("ids", &[2, 3])
                .dim("P", 0)
                .finish()
                .is_ok()
        );
    }

    #[test]
    fn names_and_ranks_are_checked_together() {
        let m = model();
        let text = message(
            binding(&m)
                .shape("idz", &[1])
                .shape("ids", &[2, 3, 4])
                .dim("Q", 1)
                .dim("S", -1)
                .finish(),
        );
        for part in [
            "no input is named `idz`; the inputs are `ids`, `mask`, `past`",
            "input `ids`: expected [B, S], found [2, 3, 4] (3 axes instead of 2)",
            "no length is named `Q`",
            "length `S` is -1",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_given_length_is_checked_against_the_inputs() {
        let m = model();
        let text = message(
            binding(&m)
                .dim("S", 8)
                .dim("P", 0)
                .shape("ids", &[1, 7])
                .finish(),
        );
        assert!(
            text.contains("expected S = 8 (S = 8 as given), found 7"),
            "{text}"
        );
    }
}
