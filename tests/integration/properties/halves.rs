//! Every kernel on f16 and bf16: as the device stores them, and by words of two elements.
//!
//! The graphs are of the compiler's own operations, which round where their result is stored and nowhere
//! else, as kernels do. So a result may be one step of its type away from the oracle's, for a sum of f32 that
//! fell on the other side of a tie, and no more.

use super::{Family, Fill, Lengths};
use crate::forced::{PACKED, by_each_shape};
use crate::support::{Need, Outcome, check_eq, ensure, session, trial};
use attnc::{HostDType, HostTensor, Model, Tensors};
use libtest_mimic::Trial;

/// The types, and the largest step between neighbours relative to the larger.
const TYPES: [(&str, f64); 2] = [("f16", 1.0 / 1024.0), ("bf16", 1.0 / 128.0)];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (dtype, step) in TYPES {
        for family in families() {
            let name = format!("properties/{} in {dtype}", family.name);
            let family = Family {
                text: family.text.replace("half", dtype),
                rtol: 1.02 * step,
                ..family
            };
            if family.name.starts_with("matmul") {
                let family = family.clone();
                let check = move |site: &str| family.check(site);
                trials.push(by_each_shape(&name, "gpu", check));
            }
            for backend in ["cpu", "gpu", PACKED] {
                let need = if backend == "cpu" {
                    Need::Nothing
                } else {
                    Need::Gpu
                };
                let family = family.clone();
                trials.push(trial(format!("{name} on {backend}"), &[need], move || {
                    family.check(backend)
                }));
            }
        }
    }
    for (name, dtype) in [("f16", HostDType::F16), ("bf16", HostDType::BF16)] {
        let gpu = [Need::Gpu];
        let read = format!("properties/every {name} is read");
        trials.push(trial(read, &gpu, move || reads(dtype)));
        let rounded = format!("properties/f32 rounds to {name}");
        trials.push(trial(rounded, &gpu, move || writes(dtype)));
    }
    trials
}

fn family(name: &'static str, text: &str, lengths: &[(&'static str, Lengths)]) -> Family {
    Family {
        name,
        text: text.to_owned(),
        lengths: lengths.to_vec(),
        fills: Vec::new(),
        fused: 0,
        rtol: 0.0,
        cases: 12,
    }
}

fn families() -> Vec<Family> {
    let mut all = attentions();
    all.extend(matmuls());
    all.extend(rows());
    all.extend(elements());
    all
}

/// Columns that are whole vectors, whole words, and neither; a bias, masks, another order in memory.
fn attentions() -> Vec<Family> {
    let lengths = [
        ("B", Lengths::To(3)),
        ("M", Lengths::SmallEdges),
        ("N", Lengths::SmallEdges),
    ];
    let of = |name, dim, value_dim, extra: &str, rest: &str| {
        let text = format!(
            "graph @g(%q: half[B, 4, M, {dim}], %k: half[B, 2, N, {dim}], %v: half[B, 2, N, {value_dim}]{extra}) {{
  %o = attention %q, %k, %v{rest}
  return %o
}}"
        );
        Family {
            fused: 1,
            ..family(name, &text, &lengths)
        }
    };
    let bias = ", %bias, scale = 0.25, score_mod = { score + %bias[b, 0, q_idx, kv_idx] }";
    let mask = ", %mask, scale = 0.5, mask_mod = { %mask[b, kv_idx] }";
    let masked = Family {
        fills: vec![("mask", Fill::MaskWithDeadRows)],
        ..of(
            "attention of odd columns",
            7,
            5,
            ", %mask: bool[B, N]",
            mask,
        )
    };
    vec![
        of(
            "attention of vectors",
            16,
            8,
            ", %bias: half[B, 1, M, N]",
            bias,
        ),
        of("attention of words", 6, 10, "", ", scale = 0.5"),
        of(
            "attention in another order",
            8,
            12,
            "",
            ", scale = 0.5, storage = [0, 2, 1, 3]",
        ),
        masked,
    ]
}

/// Every way to read and to write: by vectors, by elements, through views that are no strides.
fn matmuls() -> Vec<Family> {
    use Lengths::{SmallEdges, To};
    let ragged = [("M", SmallEdges), ("K", SmallEdges), ("N", SmallEdges)];
    let rows = [("M", SmallEdges)];
    vec![
        family(
            "matmul of any lengths",
            "graph @g(%a: half[M, K], %b: half[K, N]) {\n  %c = matmul %a, %b\n  return %c\n}",
            &ragged,
        ),
        family(
            "matmul of vectors",
            "graph @g(%a: half[M, 20], %b: half[20, 12], %bias: half[12], %rest: half[M, 12]) {
  %c = matmul %a, %b, %bias, %rest, epilogue = { tanh(acc + %bias[d1]) + %rest[d0, d1] }
  return %c
}",
            &rows,
        ),
        family(
            "matmul of transposed weights",
            "graph @g(%a: half[M, 20], %w: half[6, 20]) {
  %b = transpose %w, perm = [1, 0]
  %c = matmul %a, %b
  return %c
}",
            &rows,
        ),
        family(
            "matmul to f32",
            "graph @g(%a: half[M, 7], %b: half[7, 5]) {
  %c = matmul %a, %b, epilogue = f32 { acc * 0.5 }
  return %c
}",
            &rows,
        ),
        family(
            "matmul of merged heads",
            "graph @g(%x: half[B, 3, M, 5], %w: half[15, 7]) {
  %t = transpose %x, perm = [0, 2, 1, 3]
  %r = reshape %t, shape = [B, M, 15]
  %c = matmul %r, %w
  return %c
}",
            &[("B", To(3)), ("M", SmallEdges)],
        ),
    ]
}

/// Rows of whole words, of an odd number of elements, of any, and across memory.
fn rows() -> Vec<Family> {
    use Lengths::{Edges, To};
    let any = [("B", To(5)), ("N", Edges)];
    let text = |lens: &str, axes: &str| {
        format!(
            "graph @g(%x: half[B, {lens}], %gain: half[{lens}], %bias: half[{lens}]) {{
  %a = layer_norm %x, %gain, %bias, axis = 1, eps = 1e-5
  %b = rms_norm %x, %gain, axis = 1, eps = 1e-5
  %c = softmax %x, axis = {axes}
  %d = cumsum %x, axis = {axes}, reverse = true
  return %a, %b, %c, %d
}}"
        )
    };
    vec![
        family("rows of words", &text("12", "1"), &[("B", To(5))]),
        family("rows of an odd length", &text("7", "1"), &[("B", To(5))]),
        family("rows of any length", &text("N", "1"), &any),
        family("rows across memory", &text("6", "0"), &[("B", Edges)]),
        family(
            "reductions",
            "graph @g(%x: half[B, N]) {
  %sum = reduce_sum %x, axes = [1], keep_dims = false
  %mean = reduce_mean %x, axes = [0], keep_dims = true
  %max = reduce_max %x, axes = [0, 1], keep_dims = false
  return %sum, %mean, %max
}",
            &any,
        ),
    ]
}

/// Any number of elements, odd ones too; types side by side; weights of an odd size.
fn elements() -> Vec<Family> {
    use Lengths::{Edges, To};
    let any = [("B", To(5)), ("N", Edges)];
    vec![
        family(
            "pointwise",
            "graph @g(%x: half[B, N], %row: half[N], %y: f32[B, N]) {
  %three = constant half[3] [1.5, -0.25, 3.0]
  %a = add %x, %row
  %b = cast %y, to = half
  %c = mul %a, %b
  %e = cast %x, to = f32
  return %c, %e, %three, %x as \"unchanged\"
}",
            &any,
        ),
        family(
            "concat, pad and slice",
            "graph @g(%x: half[B, N], %y: half[B, 3]) {
  %z = concat %x, %y, axis = 1
  %p = pad %x, before = [1, 2], after = [0, 1], value = 0.5
  %back = slice %z, axis = 1, start = N + 2, len = N + 3, step = -1
  return %z, %p, %back
}",
            &any,
        ),
        Family {
            fills: vec![("ids", Fill::Below(7))],
            ..family(
                "gather",
                "graph @g(%table: half[7, N], %ids: i32[B]) {
  %y = gather %table, %ids, axis = 0
  return %y
}",
                &any,
            )
        },
    ]
}

/// Every value of the type as f32.
fn reads(dtype: HostDType) -> Outcome {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    cast_alike(
        HostTensor::from_bytes(dtype, vec![1 << 16], bytes)?,
        HostDType::F32,
    )
}

/// f32 values around every number of the type: at each, at each tie, beside each tie, beyond the largest.
fn writes(dtype: HostDType) -> Outcome {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let numbers = HostTensor::from_bytes(dtype, vec![1 << 16], bytes)?.to_f64();
    let mut values = vec![
        1e-45,
        -1e-45,
        65519.996,
        65520.0,
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
    ];
    for pair in numbers.windows(2) {
        let tie = ((pair[0] + pair[1]) / 2.0) as f32;
        values.extend([pair[0] as f32, tie, tie.next_up(), tie.next_down()]);
    }
    cast_alike(HostTensor::new(vec![values.len()], &values)?, dtype)
}

/// A cast by words of two gives what the host's does.
fn cast_alike(x: HostTensor, to: HostDType) -> Outcome {
    let name = |dtype| match dtype {
        HostDType::F16 => "f16",
        HostDType::BF16 => "bf16",
        _ => "f32",
    };
    let (from, into) = (name(x.dtype()), name(to));
    let text = format!("graph @g(%x: {from}[N]) {{\n  %y = cast %x, to = {into}\n  return %y\n}}");
    let mut session = session(&Model::from_text("cast", &text)?, PACKED)?;
    let expected = x.cast(to);
    let found = session.run(&Tensors::from([("x".to_owned(), x.clone())]))?;
    let found = found.values().next().ok_or("no output")?;
    check_eq("type", expected.type_text(), found.type_text())?;
    for (i, (want, have)) in expected
        .to_f64()
        .into_iter()
        .zip(found.to_f64())
        .enumerate()
    {
        let same = want.to_bits() == have.to_bits() || (want.is_nan() && have.is_nan());
        ensure(same, || {
            format!(
                "{from} {} as {into} is {want:e}, found {have:e}",
                x.value(i)
            )
        })?;
    }
    Ok(())
}
