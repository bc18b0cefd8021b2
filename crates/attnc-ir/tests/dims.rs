//! Polynomials compute as the integers they stand for, and equal ones are equal values.

use attnc_ir::Dim;
use proptest::prelude::*;

const NAMES: [&str; 3] = ["B", "S", "T"];

/// Coefficients and powers of `B`, `S` and `T`.
type Terms = Vec<(i64, [u32; 3])>;

fn terms() -> impl Strategy<Value = Terms> {
    prop::collection::vec((-9i64..9, prop::array::uniform3(0u32..3)), 0..5)
}

fn build<'a>(terms: impl Iterator<Item = &'a (i64, [u32; 3])>) -> Dim {
    let term = |(coeff, powers): &(i64, [u32; 3])| {
        let factors = NAMES
            .iter()
            .zip(powers)
            .flat_map(|(name, &power)| (0..power).map(|_| Dim::sym(name)));
        Dim::from(*coeff) * factors.product()
    };
    terms.map(term).sum()
}

fn value(dim: &Dim, lengths: [i64; 3]) -> i64 {
    let lookup = |name: &str| Some(lengths[NAMES.iter().position(|n| *n == name)?]);
    dim.eval(&lookup).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arithmetic_is_that_of_integers(
        x in terms(),
        y in terms(),
        lengths in prop::array::uniform3(0i64..20),
    ) {
        let (a, b) = (build(x.iter()), build(y.iter()));
        let at = |dim: &Dim| value(dim, lengths);
        prop_assert_eq!(at(&(a.clone() + b.clone())), at(&a) + at(&b));
        prop_assert_eq!(at(&(a.clone() - b.clone())), at(&a) - at(&b));
        prop_assert_eq!(at(&(a.clone() * b.clone())), at(&a) * at(&b));
    }

    #[test]
    fn the_order_of_building_does_not_matter(x in terms(), y in terms()) {
        let (a, b) = (build(x.iter()), build(y.iter()));
        prop_assert_eq!(&a, &build(x.iter().rev()));
        prop_assert_eq!(a.clone() * b.clone(), b.clone() * a.clone());
        prop_assert_eq!(a.clone() - b.clone() + b, a.clone());
        prop_assert_eq!(a.clone() - a, Dim::zero());
    }

    #[test]
    fn a_product_divides_back(x in terms(), y in terms(), remainder in 1i64..9) {
        let (a, b) = (build(x.iter()), build(y.iter()));
        prop_assume!(b != Dim::zero());
        let product = a.clone() * b.clone();
        prop_assert_eq!(product.exact_div(&b), Some(a));
        // No polynomial with a length in it divides one that it divides plus a number.
        if b.as_const().is_none() {
            prop_assert_eq!((product + Dim::from(remainder)).exact_div(&b), None);
        }
    }
}
