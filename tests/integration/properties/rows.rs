//! Norms, softmax and reductions in every shape that a device profile can select.
//!
//! The adapter's own profile takes one; the others are forced by what the profile says of subgroups. Rows are of
//! odd lengths, shorter than the lanes that share them, of whole vectors, of 16 bits, none at all, and in another
//! order than memory's, which one invocation owns.

use super::{Family, Fill, Lengths};
use crate::forced::{ANY_SUBGROUPS, NO_SUBGROUPS};
use crate::support::{Need, trial};
use libtest_mimic::Trial;

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for family in families() {
        for backend in ["cpu", "gpu", NO_SUBGROUPS, ANY_SUBGROUPS] {
            let name = format!("properties/{} on {backend}", family.name);
            let need = if backend == "cpu" {
                Need::Nothing
            } else {
                Need::Gpu
            };
            let family = family.clone();
            trials.push(trial(name, &[need], move || family.check(backend)));
        }
    }
    trials
}

fn family(name: &'static str, dtype: &str, columns: &str, rtol: f64) -> Family {
    let text = format!(
        "graph @g(%x: {dtype}[R, {columns}], %y: {dtype}[R, {columns}], %gain: f32[{columns}], %bias: f32[{columns}]) {{
  %norm = layer_norm %x, %gain, %bias, axis = 1, eps = 1e-5
  %normed = add %norm, %y
  %active = gelu %normed
  %scaled = rms_norm %x, %gain, axis = 1, eps = 1e-6
  %p = softmax %x, axis = 1
  %weighted = mul %p, %y
  %sum = reduce_sum %x, axes = [1]
  %sharp = mul %sum, 0.5
  %mean = reduce_mean %y, axes = [1], keep_dims = true
  %max = reduce_max %x, axes = [1]
  %min = reduce_min %x, axes = [1]
  return %active, %scaled, %weighted, %sharp, %mean, %max, %min
}}"
    );
    Family {
        name,
        text,
        lengths: vec![("R", Lengths::FromNone(5)), ("S", Lengths::Edges)],
        fills: Vec::new(),
        fused: 0,
        rtol,
        cases: 16,
    }
}

/// A family without `S`, whose columns are known.
fn known(name: &'static str, dtype: &str, columns: usize, rtol: f64) -> Family {
    Family {
        lengths: vec![("R", Lengths::FromNone(9))],
        cases: 6,
        ..family(name, dtype, &columns.to_string(), rtol)
    }
}

fn families() -> Vec<Family> {
    vec![
        family("rows of any length", "f32", "S", 3e-6),
        family("rows of whole vectors", "f32", "4 * S", 3e-6),
        known("rows of 3", "f32", 3, 3e-6),
        known("rows of 97", "f32", 97, 3e-6),
        known("rows of 384", "f32", 384, 3e-6),
        known("rows of 1028", "f32", 1028, 3e-6),
        known("rows of 384 in f16", "f16", 384, 1e-3),
        known("rows of 130 in f16", "f16", 130, 1e-3),
        known("rows of 384 in bf16", "bf16", 384, 8e-3),
        family("rows of whole vectors in bf16", "bf16", "4 * S", 8e-3),
        far_from_zero(),
        integers(),
        several_axes(),
    ]
}

/// A variance that is small beside the square of the mean.
fn far_from_zero() -> Family {
    let text = "graph @g(%x: f32[R, 4 * S], %y: f32[R, S]) {
  %high = add %x, 1000.0
  %one = layer_norm %high, 1.0, 0.0, axis = 1, eps = 1e-5
  %low = sub %y, 1000.0
  %two = layer_norm %low, 1.0, 0.0, axis = 1, eps = 1e-5
  return %one, %two
}";
    Family {
        text: text.to_owned(),
        lengths: vec![("R", Lengths::To(4)), ("S", Lengths::SmallEdges)],
        // Elements are exact to 6e-5 of the 0.6 that they spread.
        rtol: 3e-4,
        ..family("rows far from zero", "f32", "S", 0.0)
    }
}

fn integers() -> Family {
    let text = "graph @g(%n: i32[R, S], %m: bool[R, S], %x: f32[R, S]) {
  %sum = reduce_sum %n, axes = [1]
  %max = reduce_max %n, axes = [1]
  %any = reduce_any %m, axes = [1]
  %all = reduce_all %m, axes = [1]
  %total = reduce_sum %x, axes = [0, 1]
  return %sum, %max, %any, %all, %total
}";
    Family {
        text: text.to_owned(),
        lengths: vec![("R", Lengths::To(4)), ("S", Lengths::FromNone(70))],
        fills: vec![("n", Fill::Below(50)), ("m", Fill::Mask)],
        ..family("rows of integers", "f32", "S", 3e-6)
    }
}

fn several_axes() -> Family {
    let text = "graph @g(%x: f32[R, S, 4, 12], %gain: f32[4, 12]) {
  %norm = layer_norm %x, %gain, 0.5, axis = 2, eps = 1e-5
  %sum = reduce_sum %x, axes = [1, 2, 3]
  %middle = reduce_max %x, axes = [1, 2]
  %across = softmax %x, axis = 1
  %t = transpose %x, perm = [0, 1, 3, 2]
  %turned = softmax %t, axis = 3
  return %norm, %sum, %middle, %across, %turned
}";
    Family {
        text: text.to_owned(),
        lengths: vec![("R", Lengths::FromNone(3)), ("S", Lengths::To(9))],
        ..family("rows of several axes", "f32", "S", 3e-6)
    }
}
