//! Kernels that have shapes, in each of them: attention and matrix products.
//!
//! All families run on the adapter's own profile, a few that meet what shapes differ in under every other profile:
//! heads that share keys and may share tiles, windows, sinks, fills that are walked again, weights before and after
//! the sum, one query, two, an odd number; no key, one, an odd number, several tiles; elements of 16 bits.

use super::{Family, Fill, Lengths};
use crate::forced::{self, ANY_SUBGROUPS, NO_SUBGROUPS, PACKED, PROFILES, by_each_shape};
use crate::support::{Need, Outcome, ensure, gpu, trial};
use attnc::codegen::choice::KernelShape;
use attnc::ir::Graph;
use attnc::plan::DeviceProfile;
use attnc::{compile, opt};
use libtest_mimic::Trial;

/// f32 against f64.
const RTOL: f64 = 2e-5;

/// `all`, and what the shapes are held to beside it.
pub(super) fn trials(all: &[Family]) -> Vec<Trial> {
    let choosy = |family: &&Family| family.text.contains("matmul") || family.fused > 0;
    let mut trials: Vec<_> = all
        .iter()
        .filter(choosy)
        .map(|family| {
            // What the length of a run may do wrong is looked for on the profile as it is.
            let family = Family {
                cases: family.cases.div_ceil(4),
                ..family.clone()
            };
            on(family, "gpu")
        })
        .collect();
    for family in families() {
        // By words lie elements of 16 bits, and these are read alike whatever the subgroups.
        let halves = family.text.contains("f16");
        let sites = ["gpu"].into_iter().chain(PROFILES);
        let sites = sites.filter(|site| match *site {
            "gpu" | NO_SUBGROUPS => true,
            site => halves == (site == PACKED),
        });
        trials.extend(sites.map(|site| on(family.clone(), site)));
    }
    for site in [NO_SUBGROUPS, ANY_SUBGROUPS] {
        let family = decoding();
        let name = format!("properties/{} on {site}", family.name);
        trials.push(trial(name, &[Need::Gpu], move || family.check(site)));
    }
    let name = "properties/every shape that a profile can select is run";
    trials.push(trial(name, &[Need::Gpu], every_shape_is_run));
    trials
}

fn on(family: Family, profile: &'static str) -> Trial {
    let name = format!("properties/{}", family.name);
    by_each_shape(&name, profile, move |site| family.check(site))
}

fn family(name: &'static str, text: String, fills: &[(&'static str, Fill)]) -> Family {
    Family {
        name,
        text,
        lengths: vec![
            ("B", Lengths::To(2)),
            ("M", Lengths::Decoding),
            ("N", Lengths::Tiles),
        ],
        fills: fills.to_vec(),
        fused: 1,
        rtol: RTOL,
        cases: 6,
    }
}

/// An attention of some heads with functions of its own.
pub(super) fn attention(
    heads: [usize; 2],
    dims: [usize; 2],
    operands: &str,
    functions: &str,
) -> String {
    let [queries, keys] = heads;
    let [dim, value_dim] = dims;
    let names: String = operands
        .split(',')
        .filter_map(|operand| operand.trim().split_once(':'))
        .map(|(name, _)| format!(", {name}"))
        .collect();
    let comma = if operands.is_empty() { "" } else { ", " };
    format!(
        "graph @g(%q: f32[B, {queries}, M, {dim}], %k: f32[B, {keys}, N, {dim}], %v: f32[B, {keys}, N, {value_dim}]{comma}{operands}) {{
  %o = attention %q, %k, %v{names}, scale = 0.4{functions}
  return %o
}}"
    )
}

fn families() -> Vec<Family> {
    let causal = "kv_idx <= q_idx + (N - M)";
    let window = format!("{causal} & q_idx + (N - M) - kv_idx < 70");
    let filled = |fill: &str, alive: &str| {
        format!(", score_mod = {{ score + select({alive}, 0.0, {fill}) }}")
    };
    let masked = |mask: &str, rest: &str| format!(", mask_mod = {{ {mask} }}{rest}");
    let sink = masked(&window, ", sink = { max(%logits[h], row_max) }");
    let keep = ("keep", Fill::MaskWithDeadRows);
    let gated = masked(
        "%keep[b, kv_idx]",
        ", prob_mod = { prob * %gate[b, kv_idx] }",
    );
    let lifted = masked("%keep[b, kv_idx]", ", prob_mod = { prob + 0.125 }");
    let padded = "select(%keep[b, kv_idx], score, -1e9)";
    vec![
        family(
            "packed heads",
            attention([6, 2], [16, 8], "", &masked(causal, "")),
            &[],
        ),
        family(
            "packed heads, wide",
            attention([8, 1], [40, 36], "", ""),
            &[],
        ),
        family(
            "window and sink",
            attention([4, 1], [8, 8], "%logits: f32[4]", &sink),
            &[("logits", Fill::Times(3.0))],
        ),
        family(
            "window by a fill",
            attention(
                [4, 2],
                [8, 8],
                "",
                &filled("-3.4028234663852886e38", &window),
            ),
            &[],
        ),
        family(
            "blocks by a fill",
            attention(
                [2, 2],
                [8, 8],
                "",
                &filled("-10000.0", "kv_idx < 30 | kv_idx > q_idx + 150"),
            ),
            &[],
        ),
        family(
            "padding by a fill",
            attention(
                [4, 2],
                [8, 8],
                "%keep: bool[B, N]",
                &format!(", score_mod = {{ {padded} }}"),
            ),
            &[keep],
        ),
        family(
            "weights before the sum",
            attention(
                [4, 2],
                [8, 12],
                "%keep: bool[B, N], %gate: f32[B, N]",
                &gated,
            ),
            &[keep],
        ),
        family(
            "weights after the sum",
            attention([2, 1], [8, 8], "%keep: bool[B, N]", &lifted),
            &[("keep", Fill::Mask)],
        ),
        family(
            "columns that vectors do not divide",
            attention([2, 1], [15, 7], "", &masked(causal, "")),
            &[],
        ),
        halves("packed heads in f16", "f16", 1.02 / 1024.0),
        halves("packed heads in bf16", "bf16", 1.02 / 128.0),
        product("a product of vectors", "f32[M, 20]", "f32[20, 12]", RTOL),
        product(
            "a product of long sums",
            "f32[M, 300]",
            "f32[300, 12]",
            RTOL,
        ),
        product("a product of any lengths", "f32[M, N]", "f32[N, M]", 5e-5),
        product(
            "a product in f16",
            "f16[M, 40]",
            "f16[40, 72]",
            1.02 / 1024.0,
        ),
    ]
}

fn halves(name: &'static str, dtype: &str, rtol: f64) -> Family {
    let text = attention(
        [4, 2],
        [16, 8],
        "",
        ", mask_mod = { kv_idx <= q_idx + (N - M) }",
    );
    Family {
        rtol,
        ..family(name, text.replace("f32", dtype), &[])
    }
}

/// A product whose rows are few or many, in a model that decodes: GPUs have a kernel for either.
fn decoding() -> Family {
    let text = "graph @g(%x: f32[S, 512], %w: f32[512, 32], %k: f32[1, 2, P + S, 16], %v: f32[1, 2, P + S, 16]) {
  %rows = matmul %x, %w
  %heads = reshape %rows, shape = [1, S, 2, 16]
  %q = transpose %heads, perm = [0, 2, 1, 3]
  %o = attention %q, %k, %v, scale = 0.02
  return %o
}";
    Family {
        lengths: vec![("S", Lengths::Decoding), ("P", Lengths::To(40))],
        cases: 24,
        ..family("a product beside a cache", text.to_owned(), &[])
    }
}

fn product(name: &'static str, a: &str, b: &str, rtol: f64) -> Family {
    let text = format!("graph @g(%a: {a}, %b: {b}) {{\n  %c = matmul %a, %b\n  return %c\n}}");
    let lengths = ["M", "N"].map(|name| (name, Lengths::SmallEdges));
    let used = lengths.into_iter().filter(|(name, _)| text.contains(name));
    Family {
        lengths: used.collect(),
        fused: 0,
        rtol,
        ..family(name, text, &[])
    }
}

/// A shape is run by [`families`] under some profile, if one of the built-in profiles that need no more than the
/// adapter has lets it be selected.
fn every_shape_is_run() -> Outcome {
    let own = match gpu() {
        Ok(gpu) => gpu.profile.clone(),
        Err(why) => return Err(why.clone().into()),
    };
    let graphs: Vec<Graph> = families()
        .iter()
        .map(|family| {
            let model = family.model()?;
            let optimised = compile::optimise(&model.graph, &opt::Options::default())?;
            Ok(optimised.graph)
        })
        .collect::<Result<_, libtest_mimic::Failed>>()?;
    let built_in = DeviceProfile::NAMES
        .into_iter()
        .filter_map(DeviceProfile::by_name);
    let within = |profile: &DeviceProfile| {
        profile.features.cooperative_matrix.is_empty()
            || !own.features.cooperative_matrix.is_empty()
    };
    let built_in: Vec<_> = built_in.filter(within).collect();
    let run = forced::profiles(&own);
    for shape in KernelShape::ALL {
        let selects = |profiles: &[DeviceProfile]| {
            let mut pairs = graphs
                .iter()
                .flat_map(|g| profiles.iter().map(move |p| (g, p)));
            pairs.any(|(graph, profile)| forced::is_for(shape, graph, profile).unwrap_or(false))
        };
        ensure(!selects(&built_in) || selects(&run), || {
            format!("{shape} can be selected, and no trial runs it")
        })?;
    }
    Ok(())
}
