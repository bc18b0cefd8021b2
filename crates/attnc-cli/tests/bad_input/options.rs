//! Options that contradict each other, name what is not there, or would have no effect.

use crate::bench::{Bench, bert};

const ATTENTION: &str = "graph @g(%q: f32[1, 1, 4, 4], %k: f32[1, 1, 4, 4], %v: f32[1, 1, 4, 4]) {
  %kt = transpose %k, perm = [0, 1, 3, 2]
  %s = matmul %q, %kt
  %p = softmax %s, axis = 3
  %o = matmul %p, %v
  return %o
}";

#[test]
fn lengths_that_are_none_or_given_twice() {
    let bench = Bench::new();
    let text = "graph @g(%x: f32[B, S]) {\n  %y = relu %x\n  return %y\n}";
    bench.write("m.attn", text);
    let explain = ["explain", "m.attn", "--dim", "B=2", "--dim", "S=3"];
    bench.attnc(&explain).expect(0, &[]);
    let unknown = [&explain[..], &["--dim", "zzz=3"]].concat();
    let parts = ["no length is named `zzz`; the lengths are B, S"];
    bench.refuses(&unknown, 2, &parts);

    let twice = [&explain[..], &["--dim", "B=3"]].concat();
    let parts = ["length `B` is given twice: --dim B=2 and --dim B=3"];
    bench.refuses(&twice, 2, &parts);
    let run = ["run", "m.attn", "--backend", "cpu", "--random", "1"];
    let run = [&run[..], &explain[2..]].concat();
    bench.refuses(&[&run[..], &["--dim", "B=3"]].concat(), 2, &parts);
    let same = [&run[..], &["--dim", "B=2"]].concat();
    bench.attnc(&same).expect(0, &[]);
}

#[test]
fn lengths_below_zero() {
    let bench = Bench::new();
    let text = "graph @g(%x: f32[B], %y: f32[B - 5]) {
  %a = relu %x
  %b = relu %y
  return %a, %b
}";
    bench.write("m.attn", text);
    let run = ["run", "m.attn", "--backend", "cpu", "--random", "1"];
    let run = [&run[..], &["--dim", "B=2"]].concat();
    bench.refuses(&run, 2, &["input `y`", "is -3", "at least 0"]);
}

#[test]
fn options_without_effect() {
    let bench = Bench::new();
    let (bert, name) = (bert(), "bert_tiny");
    let inputs = bert.with_extension("inputs.npz");
    let (bert, inputs) = (bert.to_string_lossy(), inputs.to_string_lossy());
    let cpu = ["run", &bert, "-i", &inputs, "--backend", "cpu"];
    let adapter = [&cpu[..], &["--adapter", name]].concat();
    bench.refuses(&adapter, 2, &["--adapter", "--backend cpu", name]);
    bench
        .attnc(&["compile", &bert, "-o", "bundle"])
        .expect(0, &[]);
    let run = ["run", "bundle", "-i", &inputs];
    let parts = ["--no-fuse", "compiled already"];
    bench.refuses(&[&run[..], &["--no-fuse"]].concat(), 2, &parts);
    let parts = ["--stop-after", "compiled already"];
    bench.refuses(&[&run[..], &["--stop-after", "3"]].concat(), 2, &parts);
}

#[test]
fn attention_that_the_passes_did_not_reach() {
    let bench = Bench::new();
    bench.write("m.attn", ATTENTION);
    let run = ["run", "m.attn", "--backend", "cpu", "--random", "1"];
    let run = [&run[..], &["--require-fused"]].concat();
    bench.attnc(&run).expect(0, &[]);
    let stopped = [&run[..], &["--stop-after", "0"]].concat();
    let parts = [
        "1 of 1 attentions did not fuse",
        "p: the passes stopped after 0 rewrites",
    ];
    bench.refuses(&stopped, 3, &parts);
}

/// A pipe that nobody writes to keeps whoever opens it waiting.
#[cfg(unix)]
#[test]
fn pipes_and_folders_are_no_files() {
    let bench = Bench::new();
    bench.write(
        "m.attn",
        "graph @g(%x: f32[B]) {\n  %y = relu %x\n  return %y\n}",
    );
    for name in ["p.onnx", "p.attn", "p.npz", "p.npy"] {
        let made = std::process::Command::new("mkfifo")
            .arg(bench.path(name))
            .status();
        assert!(made.expect("mkfifo starts").success());
    }
    std::fs::create_dir(bench.path("d.onnx")).unwrap();
    std::fs::create_dir(bench.path("d.npy")).unwrap();
    for model in ["p.onnx", "p.attn"] {
        bench.refuses(&["explain", model], 2, &[model, "a pipe"]);
    }
    bench.refuses(&["explain", "d.onnx"], 2, &["d.onnx", "a folder"]);
    let run = ["run", "m.attn", "--backend", "cpu", "-i"];
    for (source, part) in [
        ("p.npz", "a pipe"),
        ("x=p.npy", "a pipe"),
        ("x=d.npy", "a folder"),
    ] {
        bench.refuses(&[&run[..], &[source]].concat(), 2, &[part]);
    }
}
