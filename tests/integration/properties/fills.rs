//! Finite fills are numbers: a row whose keys are all filled is an ordinary softmax.

use super::families::{Heads, added, attention, filled};
use super::{Family, Fill, Lengths, sampled};
use crate::support::{Outcome, agree, on_both, session};
use attnc::{HostTensor, Tensors, oracle};
use libtest_mimic::Trial;
use proptest::prelude::*;

const RTOL: f64 = 2e-5;

fn family(name: &'static str, text: String, fill: Fill, rtol: f64) -> Family {
    Family {
        name,
        text,
        lengths: vec![
            ("B", Lengths::To(3)),
            ("M", Lengths::Tiles),
            ("N", Lengths::SmallEdges),
        ],
        fills: vec![("mask", fill)],
        fused: 1,
        rtol,
        cases: 24,
    }
}

pub(super) fn families() -> Vec<Family> {
    let boolean = |name, fill: &str| {
        let text = attention(Heads::of(16), "%mask: bool[B, 1, 1, N]", &filled(fill));
        family(name, text, Fill::MaskWithDeadRows, RTOL)
    };
    let by_row = |name, fill: &str| {
        let text = attention(Heads::of(8), "%mask: bool[B, 1, M, N]", &filled(fill));
        family(name, text, Fill::MaskWithDeadRows, RTOL)
    };
    let integer = |name, fill: &str, kind, rtol| {
        let text = attention(Heads::of(16), "%mask: i32[B, 1, 1, N]", &added(fill));
        family(name, text, kind, rtol)
    };
    vec![
        boolean("fill -1e4", "-1e4"),
        boolean("fill -1e9", "-1e9"),
        boolean("fill -3.4e38", "-3.4028235e38"),
        by_row("fill -1e4 by row", "-1e4"),
        by_row("fill -1e9 by row", "-1e9"),
        by_row("fill -3.4e38 by row", "-3.4028235e38"),
        // What a sum rounds a score to grows with the fill: eps(100) is 8e-6, eps(1e4) is 1e-3.
        integer("added fill -100", "-100.0", Fill::MaskWithDeadRows, 1e-4),
        integer("added fill -1e4", "-10000.0", Fill::MaskWithDeadRows, 2e-3),
        // Beyond that, rows of nothing else are another trial's.
        integer("added fill -1e9", "-1e9", Fill::Mask, RTOL),
        integer("added fill -3.4e38", "-3.4028235e38", Fill::Mask, RTOL),
    ]
}

pub(super) fn trials() -> Vec<Trial> {
    let trials = ["-1e9", "-3.4028235e38"].into_iter().flat_map(|fill| {
        let text = attention(Heads::of(8), "%mask: i32[B, 1, 1, N]", &added(fill));
        let family = family("absorbed", text, Fill::Below(1), RTOL);
        let name = format!("properties/added fill {fill} of every key");
        on_both(&name, &[], move |backend| absorbed(&family, backend))
    });
    trials.collect()
}

/// In f32, as the source computes, the fill absorbs the scores: all keys count alike. The oracle, which has more
/// bits, is asked for that by queries of zero.
fn absorbed(family: &Family, backend: &str) -> Outcome {
    let model = family.model()?;
    let mut session = session(&model, backend)?;
    let strategies: Vec<_> = family.lengths.iter().map(|(_, l)| l.strategy()).collect();
    sampled(
        family.cases,
        (strategies, any::<u64>()),
        |(values, seed)| {
            let (inputs, dims) = family.inputs(&model, &values, seed)?;
            let expected = oracle::run(&model, &without(&inputs, "q"), &dims)?;
            let found = session.run_bound(&session.bind(&inputs, &dims)?)?;
            agree("the mean of V", &expected, &found, RTOL)
        },
    )
}

/// The tensors with zeros for one.
fn without(inputs: &Tensors, name: &str) -> Tensors {
    let mut inputs = inputs.clone();
    let tensor = &inputs[name];
    let zeros = HostTensor::new(tensor.shape().to_vec(), &vec![0.0; tensor.len()]);
    let zeros = zeros.expect("of its shape").cast(tensor.dtype());
    inputs.insert(name.to_owned(), zeros);
    inputs
}
