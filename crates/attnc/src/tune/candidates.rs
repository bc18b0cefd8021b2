//! Which candidates are worth measuring.

use crate::codegen::choice::{Candidate, KernelShape};

/// The cost model is not so far off that what costs more than this times the least could win.
const HOPELESS: f64 = 3.0;

/// Positions of the candidates to measure, of which the cheapest stands first: those that are not hopeless, and the
/// best of each shape, since costs of different shapes compare less well.
pub(super) fn sensible(candidates: &[Candidate]) -> Vec<usize> {
    let least = candidates.first().map_or(0.0, |c| c.cost);
    let mut shapes: Vec<KernelShape> = Vec::new();
    let mut sensible = Vec::new();
    for (at, candidate) in candidates.iter().enumerate() {
        let first = !shapes.contains(&candidate.shape);
        if first {
            shapes.push(candidate.shape);
        }
        if first || candidate.cost <= HOPELESS * least {
            sensible.push(at);
        }
    }
    sensible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hopeless_stay_out_unless_they_are_the_best_of_their_shape() {
        let candidate = |shape, cost| Candidate {
            shape,
            tile: String::new(),
            cost,
        };
        let all = [
            candidate(KernelShape::Subgroup, 1.0),
            candidate(KernelShape::Subgroup, 3.0),
            candidate(KernelShape::Subgroup, 3.1),
            candidate(KernelShape::Rows, 9.0),
            candidate(KernelShape::Rows, 9.1),
        ];
        assert_eq!(sensible(&all), [0, 1, 3]);
        assert_eq!(sensible(&[]), Vec::<usize>::new());
    }
}
