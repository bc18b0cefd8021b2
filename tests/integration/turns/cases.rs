//! Graphs that get every kernel there is, in every shape.

/// A graph over the length `S`, and two values of that.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) lengths: [i64; 2],
}

fn case(name: &'static str, lengths: [i64; 2], inputs: &str, body: &str) -> Case {
    let text = format!("graph @g({inputs}) {{\n{body}\n}}");
    Case {
        name,
        text,
        lengths,
    }
}

/// An attention of 70 queries of 4 heads, over `S` keys of 2.
fn attention(name: &'static str, columns: usize, captured: &str, functions: &str) -> Case {
    let inputs = format!(
        "%q: f32[1, 4, 70, {columns}], %k: f32[1, 2, S, {columns}], %v: f32[1, 2, S, 20]{}",
        if captured.is_empty() { "" } else { ", %m: " }.to_owned() + captured
    );
    let operands = if captured.is_empty() {
        "%q, %k, %v"
    } else {
        "%q, %k, %v, %m"
    };
    let body = format!("  %o = attention {operands}, scale = 0.2{functions}\n  return %o");
    case(name, [384, 1152], &inputs, &body)
}

fn linear(name: &'static str, columns: usize, rule: &str) -> Case {
    let inputs = format!(
        "%q: f32[1, 4, S, {columns}], %k: f32[1, 2, S, {columns}], %v: f32[1, 2, S, 5], %s: f32[1, 2, {columns}, 5], \
         %d: f32[1, 2, S, 1], %b: f32[1, 2, S, 1]"
    );
    let operands = match rule {
        "linear" => "%q, %k, %v, %s",
        "gated" => "%q, %k, %v, %s, %d",
        "delta" => "%q, %k, %v, %s, %b",
        _ => "%q, %k, %v, %s, %d, %b",
    };
    let both = ["output", "state"].map(|result| {
        format!("  %{result} = linear_attention {operands}, rule = {rule}, scale = 0.1, result = {result}\n")
    });
    case(
        name,
        [64, 192],
        &inputs,
        &format!("{}  return %output, %state", both.concat()),
    )
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(
            "rows",
            [1024, 4096],
            "%x: f32[3, S], %g: f32[S]",
            "  %soft = softmax %x, axis = 1\n  %norm = layer_norm %x, %g, %g, axis = 1, eps = 1e-5
  %rms = rms_norm %x, %g, axis = 1, eps = 1e-6\n  %sum = reduce_sum %x, axes = [1]
  %all = cumsum %x, axis = 1\n  return %soft, %norm, %rms, %sum, %all",
        ),
        case(
            "columns",
            [256, 1024],
            "%x: f32[S, 9]",
            "  %sum = reduce_sum %x, axes = [0]\n  return %sum",
        ),
        case(
            "elements",
            [500, 5000],
            "%x: f32[S]",
            "  %y = exp %x\n  return %y",
        ),
        case(
            "a product",
            [2048, 8192],
            "%x: f32[7, S], %y: f32[S, 12]",
            "  %z = matmul %x, %y\n  return %z",
        ),
        case(
            "a product of four at a time",
            [512, 2048],
            "%x: f32[7, 4 * S], %y: f32[4 * S, 10]",
            "  %z = matmul %x, %y\n  return %z",
        ),
        attention("attention", 64, "", ""),
        attention(
            "causal attention",
            20,
            "",
            ", mask_mod = { kv_idx <= q_idx + 1000 }",
        ),
        attention(
            "attention in a window",
            20,
            "",
            ", mask_mod = { kv_idx <= q_idx + 300 & q_idx + 300 - kv_idx < 100 }",
        ),
        attention(
            "attention with a fill",
            20,
            "",
            ", score_mod = { score + select(kv_idx <= q_idx + 300, 0.0, -3.4028234663852886e38) }",
        ),
        attention(
            "attention with a table",
            20,
            "f32[70, S]",
            ", mask_mod = { %m[q_idx, kv_idx] > 0.0 }",
        ),
        attention("attention of wide heads", 300, "", ""),
        attention(
            "attention walked twice",
            20,
            "",
            ", prob_mod = { prob * prob + prob }",
        ),
        case(
            "a product in f16",
            [512, 2048],
            "%x: f16[70, 8 * S], %y: f16[8 * S, 40]",
            "  %z = matmul %x, %y\n  return %z",
        ),
        case(
            "attention in f16",
            [384, 1152],
            "%q: f16[1, 2, 70, 64], %k: f16[1, 2, S, 64], %v: f16[1, 2, S, 40]",
            "  %o = attention %q, %k, %v, scale = 0.1, mask_mod = { kv_idx <= q_idx + 1000 }\n  return %o",
        ),
        case(
            "decoding",
            [4096, 16384],
            "%q: f32[1, 1, 1, 64], %k: f32[1, 1, S, 64], %v: f32[1, 1, S, 64]",
            "  %o = attention %q, %k, %v, scale = 0.125\n  return %o",
        ),
        linear("linear attention", 64, "linear"),
        linear("gated linear attention", 24, "gated"),
        linear("the delta rule", 7, "delta"),
        linear("the gated delta rule", 64, "gated_delta"),
    ]
}
