//! Models as exporters write them: the project's own, and many more where they are at hand.

mod support;

use attnc_ir::Op;
use std::path::{Path, PathBuf};

fn own_models() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/models");
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .collect();
    found.sort();
    found
}

fn exports() -> Vec<PathBuf> {
    let families = ["bert_", "distilbert_", "gpt2_", "vit_"];
    let Some(dir) = support::shared("exports") else {
        return Vec::new();
    };
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| {
            let name = p.file_name().unwrap().to_string_lossy();
            families.iter().any(|f| name.starts_with(f))
        })
        .map(|p| p.join("model.onnx"))
        .collect();
    found.sort();
    found
}

#[test]
fn every_model_imports_and_verifies() {
    for path in own_models().into_iter().chain(exports()) {
        let import =
            attnc_onnx::import(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        attnc_ir::verify(&import.graph).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for id in import.graph.values() {
            let node = import.graph.node(id);
            // Lengths may be numbers in index arithmetic, but no list of them is put together.
            let shape_arithmetic = matches!(node.op, Op::Concat { .. })
                && node
                    .operands()
                    .iter()
                    .any(|&o| matches!(import.graph.node(o).op, Op::Length(_)));
            assert!(!shape_arithmetic, "{}: %{}", path.display(), node.name());
        }
    }
}

#[test]
fn two_imports_give_the_same_text() {
    for path in own_models() {
        let text = || attnc_ir::text::print(&attnc_onnx::import(&path).unwrap().graph);
        assert_eq!(text(), text());
    }
}

#[test]
fn weights_keep_their_names_and_are_not_copied() {
    let path = &own_models()[0];
    let bytes: attnc_ir::SharedBytes = std::fs::read(path).unwrap().into();
    let range = bytes.as_ptr_range();
    let import = attnc_onnx::import_bytes(bytes.clone(), None).unwrap();
    let mut inside = 0;
    for id in import.graph.values() {
        if let Op::Constant(data) = &import.graph.node(id).op
            && data.dtype.is_float()
            && data.len() > 64
        {
            assert!(data.name.is_some(), "%{}", import.graph.node(id).name());
            inside += usize::from(range.contains(&data.bytes.as_ref().unwrap().as_ptr()));
        }
    }
    assert!(inside > 10, "{inside} weights lie in the file's bytes");
}
