//! Whatever the text: no panic, an error with a place inside the text, or a graph that reads back.

mod support;

use attnc_ir::{render_diagnostics, text};
use proptest::prelude::*;
use support::Choices;

/// Reads any text; gives whether it was a graph.
fn read(source: &str) -> bool {
    match text::parse(source) {
        Ok(graph) => {
            let printed = text::print(&graph);
            let again = text::parse(&printed)
                .unwrap_or_else(|found| panic!("{source}\n\n{printed}\n{found}"));
            assert_eq!(text::print(&again), printed);
            true
        }
        Err(found) => {
            assert!(!found.0.is_empty());
            for diagnostic in &found.0 {
                assert!(!diagnostic.labels.is_empty(), "no place: {diagnostic}");
                for (span, _) in &diagnostic.labels {
                    assert!(
                        source.get(span.clone()).is_some(),
                        "{span:?} is not in the text: {diagnostic}"
                    );
                }
            }
            assert!(!render_diagnostics("x.attn", source, &found).is_empty());
            false
        }
    }
}

const WORDS: [&str; 62] = [
    "graph",
    "@g",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    "=",
    ":",
    ";",
    "#",
    "%x",
    "%y",
    "%x: f32[B, 4]",
    "\n",
    "\n  ",
    "return",
    "as",
    "\"s\"",
    "f32",
    "i32",
    "bool",
    "f32[S, 4]",
    "constant",
    "splat",
    "hex",
    "weight",
    "0.5",
    "1",
    "-",
    "+",
    "*",
    "/",
    "<=",
    "==",
    "&",
    "|",
    "matmul",
    "softmax",
    "axis = 1",
    "shape = [2 * B, 2]",
    "map",
    "attention",
    "scale = 1.0",
    "score_mod = {",
    "score",
    "q_idx",
    "kv_idx",
    "d0",
    "e0 =",
    "select(",
    "max(",
    "floordiv(",
    "%x[d0, 0]",
    "inf",
    "nan",
    "true",
    "epilogue = { acc",
    "storage = [1, 0]",
    "reduce_sum",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_characters(source in "\\PC{0,200}") {
        read(&source);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_words(picks in prop::collection::vec(0..WORDS.len(), 0..80), wrapped in any::<bool>()) {
        let words: Vec<_> = picks.into_iter().map(|n| WORDS[n]).collect();
        let words = words.join(" ");
        let wrap = format!("graph @g(%x: f32[B, 4], %y: i32[4]) {{\n  %z = {words}\n  return %z\n}}\n");
        read(if wrapped { &wrap } else { &words });
    }

    #[test]
    fn damaged_graphs(
        numbers in prop::collection::vec(any::<u32>(), 0..300),
        damage in prop::collection::vec((any::<u32>(), 0..6u32, any::<u32>()), 1..4),
    ) {
        let mut source = text::print(&support::graph(&mut Choices::new(numbers)));
        for (at, kind, with) in damage {
            source = damaged(&source, at as usize, kind, with as usize);
        }
        read(&source);
    }
}

fn damaged(source: &str, at: usize, kind: u32, with: usize) -> String {
    let mut chars: Vec<char> = source.chars().collect();
    if chars.is_empty() {
        return String::new();
    }
    let at = at % chars.len();
    match kind {
        0 => {
            chars.remove(at);
        }
        1 => chars[at] = chars[with % chars.len()],
        2 => chars.insert(at, chars[with % chars.len()]),
        3 => chars.truncate(at),
        4 => {
            let mut lines: Vec<&str> = source.split_inclusive('\n').collect();
            let (i, j) = (at % lines.len(), with % lines.len());
            lines.swap(i, j);
            return lines.concat();
        }
        _ => {
            let word: Vec<char> = WORDS[with % WORDS.len()].chars().collect();
            chars.splice(at..at, word);
        }
    }
    chars.into_iter().collect()
}

fn refused(source: &str, code: &str) {
    let found = text::parse(source).unwrap_err();
    assert!(found.0.iter().any(|d| d.code == code), "{found}");
}

/// Short texts that ask for deep recursion, huge polynomials or much memory.
#[test]
fn bombs_are_refused() {
    let graph = |line: &str| format!("graph @g(%x: f32[S, T, U]) {{\n  {line}\n  return %x\n}}\n");
    let nested =
        |open: &str, close: &str, n: usize| format!("{}S{}", open.repeat(n), close.repeat(n));
    refused(
        &graph(&format!("%y = length {}", nested("(", ")", 100_000))),
        "too-complex",
    );
    refused(
        &graph(&format!("%y = length {}", nested("-", "", 100_000))),
        "too-complex",
    );
    refused(
        &graph(&format!("%y = length {}", nested("max(T, 1 + ", ")", 100))),
        "too-complex",
    );
    refused(
        &graph(&format!(
            "%y = length {}",
            nested("floordiv(1 + ", ", 2)", 100)
        )),
        "too-complex",
    );
    refused(
        &graph(&format!(
            "%y = map f32[], expr = {{ {} }}",
            nested("exp(", ")", 1000)
        )),
        "too-complex",
    );
    let power = vec!["(S + T + U + 1)"; 40].join(" * ");
    refused(&graph(&format!("%y = length {power}")), "too-complex");
    let axes = vec!["S + T + U + 1"; 16].join(", ");
    refused(
        &graph(&format!("%y = reshape %x, shape = [{axes}]")),
        "too-complex",
    );
    refused(
        &graph("%y = constant f32[1000000000] splat 0.0"),
        "too-large",
    );
    refused(
        &graph("%y = constant f32[9223372036854775807, 9223372036854775807] splat 0.0"),
        "too-large",
    );
    refused(
        &graph("%y = constant f32[0, 9223372036854775807, 9] []"),
        "too-large",
    );
    let doubled: String = (0..60)
        .map(|n| format!("e{} = e{n} * e{n}; ", n + 1))
        .collect();
    refused(
        &graph(&format!(
            "%y = map i32[], expr = {{ e0 = S; {doubled}e60 }}"
        )),
        "too-complex",
    );
    let gathers: String = (0..40)
        .map(|n| format!("%i{} = gather %i{n}, %i{n}, axis = 0\n", n + 1))
        .collect();
    refused(
        &graph(&format!("%i0 = iota i32[2, 2], axis = 0\n{gathers}")),
        "too-complex",
    );
    assert!(read(&graph(&format!(
        "%y = length {}",
        vec!["S"; 10_000].join(" + ")
    ))));
}

/// All mistakes of a file are reported at once, each once.
#[test]
fn errors_do_not_hide_each_other() {
    let source = "\
graph @g(%x: f32[B, 4]) {
  %a = sofmax %x, axis = 1
  %b = add %a, %missing
  %c = reshape %x, shape = [B, 5]
  %c = softmax %x, axis = 0, axes = 1
  %d = mul %c, %b
  return %d, %e
}
";
    let codes: Vec<_> = text::parse(source)
        .unwrap_err()
        .0
        .iter()
        .map(|d| d.code)
        .collect();
    assert_eq!(
        codes,
        [
            "unknown-op",
            "undefined-value",
            "shape-mismatch",
            "duplicate-name",
            "unknown-attribute",
            "undefined-value"
        ]
    );
}
