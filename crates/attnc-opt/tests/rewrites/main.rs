//! Every rewrite is executed: the graph after each pass agrees with the graph before, in f64, on random
//! inputs; and each spelling of attention ends fused, or declined for a stated reason.

mod around;
mod masks;
mod refusals;
mod spellings;

use attnc_cpu::{Dims, Tensor, interp};
use attnc_ir::{DType, Graph, Op, text};
use attnc_opt::{Change, Optimised, Options, Session, optimise, pipeline};

/// Numbers that are the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

fn lengths(name: &str) -> Option<i64> {
    Some(match name {
        "B" => 2,
        "H" => 3,
        "M" => 5,
        "N" => 7,
        "S" => 6,
        "P" => 3,
        _ => return None,
    })
}

fn inputs(graph: &Graph, seed: u64) -> Vec<(String, Tensor)> {
    let mut random = Random(seed);
    graph
        .inputs()
        .iter()
        .map(|&v| {
            let ty = graph.ty(v);
            let shape: Vec<usize> = ty
                .shape
                .iter()
                .map(|d| d.eval(&lengths).unwrap() as usize)
                .collect();
            let n = shape.iter().product();
            let tensor = match ty.dtype {
                DType::F32 => Tensor::f32(shape, (0..n).map(|_| 2.0 * random.next()).collect()),
                DType::I32 => Tensor::i32(
                    shape,
                    (0..n).map(|_| i32::from(random.next() > -0.4)).collect(),
                ),
                DType::Bool => Tensor::bool(shape, (0..n).map(|_| random.next() > -0.4).collect()),
                other => panic!("no random {other}"),
            };
            (graph.node(v).name().to_owned(), tensor)
        })
        .collect()
}

fn run(graph: &Graph, inputs: &[(String, Tensor)]) -> Vec<Vec<f64>> {
    let outputs =
        interp::run(graph, &Dims::new(), inputs).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    outputs.into_iter().map(|(_, t)| t.to_f64()).collect()
}

fn assert_close(pass: &str, want: &[Vec<f64>], got: &[Vec<f64>], graph: &Graph) {
    for (want, got) in want.iter().zip(got) {
        assert_eq!(want.len(), got.len(), "{pass}");
        let range = want.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        for (w, g) in want.iter().zip(got) {
            // Rows without a key are NaN in some sources and zeros after fusion: the one permitted difference.
            assert!(
                (w - g).abs() <= 1e-6 * range || w.is_nan(),
                "{pass}: {w} became {g}\n{graph}"
            );
        }
    }
}

/// Runs the pipeline, executing the graph after each pass.
fn check(source: &str) -> Optimised {
    let graph = text::parse(source).unwrap_or_else(|d| panic!("{d}"));
    let options = Options::default();
    for seed in 0..3 {
        let inputs = inputs(&graph, seed);
        let want = run(&graph, &inputs);
        let mut last = graph.clone();
        let mut observer = |pass: &'static str, now: &Graph, change: Change| {
            if change == Change::Some {
                assert_close(pass, &want, &run(now, &inputs), now);
            }
            last = now.clone();
        };
        let mut session = Session::new(None).observe(&mut observer);
        session
            .run(&mut graph.clone(), &pipeline(&options))
            .unwrap_or_else(|e| panic!("{e}"));
    }
    optimise(graph, &options).unwrap()
}

#[track_caller]
fn fuses(source: &str) -> Optimised {
    let result = check(source);
    assert_eq!(result.attention.found, 1, "found\n{}", result.graph);
    assert!(
        result.attention.declined.is_empty(),
        "{:?}\n{}",
        result.attention.declined,
        result.graph
    );
    assert_eq!(result.attention.fused, 1, "{}", result.graph);
    result
}

fn attention(result: &Optimised) -> attnc_ir::Attention {
    let node = result
        .graph
        .values()
        .find_map(|v| match &result.graph.node(v).op {
            Op::Attention(a) => Some(a.clone()),
            _ => None,
        });
    node.expect("one attention")
}

const HEAD: &str = "%q: f32[B, H, M, 8], %k: f32[B, H, N, 8], %v: f32[B, H, N, 8]";
