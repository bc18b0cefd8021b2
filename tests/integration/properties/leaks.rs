//! What must not reach a result: garbage behind a mask, leftovers in padding, keys of the future.
//!
//! The oracle cannot say so, since literally `0 × NaN` is NaN. Instead a clean run is compared with a
//! spoilt one: bit for bit on the GPU, and to the last bits on the CPU, where a block of values that are
//! not finite is summed in another order.

use super::families::{ADDED, BOOLEAN, CAUSAL, Heads, attention, filled};
use super::{Family, Fill, Lengths, Random, sampled};
use crate::forced::by_each_shape;
use crate::support::{Need, Outcome, agree, ensure, on_both, same_bits, session, trial};
use attnc::{HostTensor, Session, Tensors};
use libtest_mimic::Trial;
use proptest::prelude::*;

/// What no arithmetic survives.
const GARBAGE: [f64; 5] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 3e38, -3e38];
/// What a sum with -inf survives: a NaN in a key makes the score NaN, and literally stays so whatever is
/// added. Values behind -inf may still be anything.
const FINITE: [f64; 2] = [1e30, -1e30];

pub(super) fn trials() -> Vec<Trial> {
    let boolean = family(
        attention(Heads::of(8), "%mask: bool[B, 1, 1, N]", BOOLEAN),
        &[("mask", Fill::MaskWithDeadRows)],
    );
    let infinite = family(
        attention(Heads::of(16), "%mask: f32[B, 1, 1, N]", ADDED),
        &[("mask", Fill::Additive(f64::NEG_INFINITY))],
    );
    let filled_keys = family(
        attention(Heads::of(8), "%mask: bool[B, 1, 1, N]", &filled("-1e9")),
        &[("mask", Fill::Mask)],
    );
    let causal = several_tiles(CAUSAL);
    let small = boolean.clone();
    let mut trials = everywhere("properties/garbage behind a boolean mask", move |b| {
        masked_keys(&boolean, [&GARBAGE, &GARBAGE], b)
    });
    trials.extend(everywhere("properties/garbage behind -inf", move |b| {
        masked_keys(&infinite, [&FINITE, &GARBAGE], b)
    }));
    // Values behind a finite fill are multiplied by 0, as the source says; keys are never looked at.
    trials.extend(everywhere(
        "properties/garbage in keys behind a finite fill",
        move |b| masked_keys(&filled_keys, [&GARBAGE, &[]], b),
    ));
    trials.extend(everywhere("properties/keys of the future", move |b| {
        hidden_keys(&causal, |q, kv, _| kv <= q, b)
    }));
    trials.extend(hidden());
    trials.extend(everywhere(
        "properties/leftovers of a longer run",
        move |b| leftovers(&small, b),
    ));
    trials
}

/// Keys that are masked, and keys that a rule hides, in f16 on one site.
pub(super) fn of_halves(site: &'static str, need: &Need) -> Vec<Trial> {
    let halves = |family: Family| Family {
        text: family.text.replace("f32", "f16"),
        cases: 6,
        ..family
    };
    let boolean = halves(family(
        attention(Heads::of(8), "%mask: bool[B, 1, 1, N]", BOOLEAN),
        &[("mask", Fill::MaskWithDeadRows)],
    ));
    let causal = halves(several_tiles(CAUSAL));
    let masked = trial(
        format!("properties/garbage behind a boolean mask in f16 on {site}"),
        std::slice::from_ref(need),
        move || masked_keys(&boolean, [&GARBAGE, &GARBAGE], site),
    );
    let future = trial(
        format!("properties/keys of the future in f16 on {site}"),
        std::slice::from_ref(need),
        move || hidden_keys(&causal, |q, kv, _| kv <= q, site),
    );
    vec![masked, future]
}

/// On both backends, and on the GPU in each kernel shape.
fn everywhere(name: &str, check: impl Fn(&str) -> Outcome + Clone + Send + 'static) -> Vec<Trial> {
    let shaped = check.clone();
    let mut trials = on_both(name, &[], check);
    trials.push(by_each_shape(name, "gpu", shaped));
    trials
}

fn family(text: String, fills: &[(&'static str, Fill)]) -> Family {
    Family {
        name: "leaks",
        text,
        lengths: vec![
            ("B", Lengths::To(3)),
            ("M", Lengths::SmallEdges),
            ("N", Lengths::SmallEdges),
        ],
        fills: fills.to_vec(),
        fused: 1,
        rtol: 0.0,
        cases: 48,
    }
}

fn cases(
    family: &Family,
) -> (
    Vec<BoxedStrategy<i64>>,
    proptest::arbitrary::StrategyFor<u64>,
) {
    let lengths = family.lengths.iter().map(|(_, l)| l.strategy());
    (lengths.collect(), any::<u64>())
}

/// Keys and values that no query may see hold garbage, of the kinds given for each; none is none.
fn masked_keys(family: &Family, garbage: [&[f64]; 2], backend: &str) -> Outcome {
    let model = family.model()?;
    let mut session = session(&model, backend)?;
    let mut spoilt_some = false;
    sampled(family.cases, cases(family), |(values, seed)| {
        let (inputs, _) = family.inputs(&model, &values, seed)?;
        let mask = inputs["mask"].to_f64();
        // Booleans are 1 where a key is seen, additive masks 0.
        let seen = f64::from(u8::from(!inputs["mask"].dtype().is_float()));
        let keys = values[2] as usize;
        let mut random = Random(seed);
        let mut spoilt = inputs.clone();
        for (name, garbage) in ["k", "v"].into_iter().zip(garbage) {
            if garbage.is_empty() {
                continue;
            }
            change(&mut spoilt, name, |index, value| {
                let dead = mask[index[0] * keys + index[2]] != seen;
                spoilt_some |= dead;
                let garbage = garbage[random.below(garbage.len() as u64) as usize];
                if dead { garbage } else { value }
            });
        }
        compare(&mut session, &inputs, &spoilt)
    })?;
    ensure(spoilt_some, || "no key was ever masked".to_owned())
}

/// Keys that a rule of positions hides, both corners, windows, and behind finite fills.
fn hidden() -> Vec<Trial> {
    let rule = |corner: &str, alive: &str, fill: &str| {
        format!(
            "  %rows = iota i32[M, 1], axis = 0, start = {corner}, step = 1
  %columns = iota i32[1, N], axis = 1, start = 0, step = 1
  %causal = le %columns, %rows
  %back = sub %rows, %columns
  %near = lt %back, 19
  %alive = and %causal, {alive}
  %m = where %alive, %s, {fill}"
        )
    };
    // Query, key, and how many more keys than queries there are.
    type Sees = fn(i64, i64, i64) -> bool;
    let bottom_right: Sees = |q, kv, more| kv <= q + more;
    let window: Sees = |q, kv, _| kv <= q && q - kv < 19;
    let causal: Sees = |q, kv, _| kv <= q;
    let cases = [
        ("bottom right", rule("N - M", "true", "-inf"), bottom_right),
        ("a window", rule("0", "%near", "-inf"), window),
        ("a window of -1e9", rule("0", "%near", "-1e9"), window),
        ("-3.4e38", rule("0", "true", "-3.4028235e38"), causal),
        ("-1e4", rule("0", "true", "-1e4"), causal),
    ];
    let trials = cases.into_iter().flat_map(|(name, masked, sees)| {
        let family = several_tiles(&masked);
        let name = format!("properties/keys hidden by {name}");
        everywhere(&name, move |b| hidden_keys(&family, sees, b))
    });
    trials.collect()
}

fn several_tiles(masked: &str) -> Family {
    Family {
        lengths: vec![
            ("B", Lengths::To(2)),
            ("M", Lengths::Tiles),
            ("N", Lengths::Tiles),
        ],
        cases: 24,
        ..family(attention(Heads::of(8), "", masked), &[])
    }
}

/// A row does not move by a bit when keys and values that it does not see do.
fn hidden_keys(family: &Family, sees: impl Fn(i64, i64, i64) -> bool, backend: &str) -> Outcome {
    let model = family.model()?;
    let mut session = session(&model, backend)?;
    let mut moved_some = false;
    sampled(family.cases, cases(family), |(values, seed)| {
        let (inputs, _) = family.inputs(&model, &values, seed)?;
        let [rows, keys] = [values[1], values[2]];
        let row = (seed % rows as u64) as i64;
        if !(0..keys).any(|kv| sees(row, kv, keys - rows)) {
            return Ok(()); // a row of fills sees them all
        }
        let mut moved = inputs.clone();
        for name in ["k", "v"] {
            change(&mut moved, name, |index, value| {
                let hidden = !sees(row, index[2] as i64, keys - rows);
                moved_some |= hidden;
                if hidden { 100.0 - value } else { value }
            });
        }
        // Other rows may move, and then do not count.
        let its_row = |outputs: &Tensors| {
            let mut outputs = outputs.clone();
            change(&mut outputs, "o", |index, value| {
                if index[2] as i64 == row { value } else { 0.0 }
            });
            outputs
        };
        let (before, after) = (session.run(&inputs)?, session.run(&moved)?);
        same_bits("a hidden key moved", &its_row(&before), &its_row(&after))
    })?;
    ensure(moved_some, || "no key was ever hidden".to_owned())
}

/// Buffers that a longer run left full of NaN are used again for shorter ones.
fn leftovers(family: &Family, backend: &str) -> Outcome {
    let model = family.model()?;
    let mut fresh = session(&model, backend)?;
    let mut used = session(&model, backend)?;
    let (mut long, _) = family.inputs(&model, &[3, 130, 140], 1)?;
    for name in ["q", "k", "v"] {
        change(&mut long, name, |_, _| f64::NAN);
    }
    used.run(&long)?;
    sampled(family.cases, cases(family), |(values, seed)| {
        let (inputs, _) = family.inputs(&model, &values, seed)?;
        let (clean, after) = (fresh.run(&inputs)?, used.run(&inputs)?);
        same_bits("after a run full of NaN", &clean, &after)
    })
}

fn compare(session: &mut Session, clean: &Tensors, spoilt: &Tensors) -> Outcome {
    let (expected, found) = (session.run(clean)?, session.run(spoilt)?);
    for tensor in expected.values() {
        ensure(tensor.to_f64().iter().all(|x| x.is_finite()), || {
            "a clean run gives finite numbers".to_owned()
        })?;
    }
    let at = "with garbage in masked keys";
    if session.backend() == "gpu" {
        same_bits(at, &expected, &found)
    } else {
        agree(at, &expected, &found, 1e-6)
    }
}

/// Every element of a tensor made anew from its index and value.
fn change(tensors: &mut Tensors, name: &str, mut new: impl FnMut(&[usize], f64) -> f64) {
    let tensor = &tensors[name];
    let values = tensor.values().enumerate();
    let values: Vec<f64> = values
        .map(|(i, value)| new(&tensor.index_of(i), value.to_f64()))
        .collect();
    let wide = HostTensor::new(tensor.shape().to_vec(), &values).expect("of its shape");
    let changed = wide.cast(tensor.dtype());
    tensors.insert(name.to_owned(), changed);
}
