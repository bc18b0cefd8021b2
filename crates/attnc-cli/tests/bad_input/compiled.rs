//! Requirements that are not met, and bundles.

use crate::bench::{Bench, bert};

#[test]
fn attention_that_must_fuse_and_does_not() {
    let bench = Bench::new();
    let text = "graph @g(%q: f32[1, 1, 4, 4], %k: f32[1, 1, 4, 4], %v: f32[1, 1, 4, 4]) {
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %p = softmax %s, axis = 2
  %o = matmul %p, %v
  return %o
}";
    bench.write("m.attn", text);
    bench.attnc(&["explain", "m.attn"]).expect(0, &["1 found"]);
    let parts = ["1 of 1 attentions did not fuse", "--require-fused"];
    bench.refuses(&["explain", "m.attn", "--require-fused"], 3, &parts);
}

#[test]
fn bundles_that_are_damaged() {
    let bench = Bench::new();
    let bert = bert();
    let bert = bert.to_string_lossy();
    let compiled = bench.attnc(&["compile", &bert, "-o", "bundle"]);
    compiled.expect(0, &[]);
    let inputs = bert.replace(".onnx", ".inputs.npz");
    let run = ["run", "bundle", "-i", &inputs];
    let plan = std::fs::read(bench.path("bundle/plan.json")).unwrap();
    let weights = std::fs::read(bench.path("bundle/weights.safetensors")).unwrap();
    for cut in [0, 10, plan.len() / 2] {
        bench.write("bundle/plan.json", &plan[..cut]);
        bench.refuses(&run, 2, &["plan.json"]);
    }
    bench.write("bundle/plan.json", &plan);
    for cut in [0, 4, 100, weights.len() / 2] {
        bench.write("bundle/weights.safetensors", &weights[..cut]);
        bench.refuses(&run, 2, &["weights"]);
    }
    std::fs::remove_file(bench.path("bundle/weights.safetensors")).unwrap();
    bench.refuses(&run, 2, &["weights.safetensors", "No such file"]);
}
