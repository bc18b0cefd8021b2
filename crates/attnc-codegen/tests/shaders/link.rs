//! What the linker joins, and what it refuses.

use attnc_codegen::link::{LinkProblem, Linker, SourceLine};

use crate::linker;

const ELEMENT: &str = "fn element(i: u32) -> f32 {\n    return f32(i);\n}\n";

fn problems(linker: Linker) -> Vec<LinkProblem> {
    linker.link().expect_err("expected a link error").problems
}

#[test]
fn joins_modules_in_a_fixed_order() {
    let linked = linker("pointwise")
        .header("pointwise.f32")
        .module("mods", ELEMENT)
        .link()
        .unwrap();
    let sections: Vec<_> = linked
        .source
        .lines()
        .filter_map(|line| line.strip_prefix("// ---- "))
        .collect();
    assert_eq!(
        sections,
        [
            "params/default.wgsl",
            "kernels/pointwise.wgsl",
            "mods (generated)",
            "lib/indexing.wgsl"
        ]
    );
    assert!(linked.source.starts_with("// pointwise.f32\n"));
    assert!(
        linked
            .source
            .lines()
            .all(|line| !line.starts_with("import"))
    );
    assert!(!linked.source.contains("\n\n\n"), "blank lines pile up");
}

#[test]
fn a_library_file_asked_for_twice_is_joined_once() {
    // gelu imports erf and stable_tanh; the mod imports erf itself too.
    let mods = "import package::lib::gelu::{gelu};\nimport package::lib::erf::{erf};\n\
                fn element(i: u32) -> f32 { return gelu(erf(f32(i))); }\n";
    let linked = linker("pointwise").module("mods", mods).link().unwrap();
    assert_eq!(linked.source.matches("fn erf(").count(), 1);
    assert_eq!(linked.source.matches("fn stable_tanh(").count(), 1);
}

#[test]
fn the_order_of_filling_slots_does_not_matter() {
    let params = "alias out_item = f32;\nconst WORKGROUP_SIZE: u32 = 8u;\nconst ITEMS_PER_INVOCATION: u32 = 1u;\n";
    let one = Linker::new("pointwise")
        .module("params", params)
        .module("mods", ELEMENT)
        .link()
        .unwrap();
    let other = Linker::new("pointwise")
        .module("mods", ELEMENT)
        .module("params", params)
        .link()
        .unwrap();
    assert_eq!(one, other);
}

#[test]
fn maps_lines_to_the_files_they_come_from() {
    let linked = linker("pointwise").module("mods", ELEMENT).link().unwrap();
    assert_eq!(linked.source.lines().count(), linked.line_map.len());
    for (line, text) in (1..).zip(linked.source.lines()) {
        let Some(origin) = linked.origin(line) else {
            continue;
        };
        let original = match origin.file.as_str() {
            "mods (generated)" => ELEMENT,
            path => {
                attnc_shaders::find(path.trim_end_matches(".wgsl"))
                    .unwrap()
                    .source
            }
        };
        assert_eq!(
            original.lines().nth(origin.line as usize - 1),
            Some(text),
            "at {origin}"
        );
    }
    let element = (1..)
        .zip(linked.source.lines())
        .find(|(_, text)| text.contains("fn element"))
        .unwrap()
        .0;
    assert_eq!(
        linked.origin(element),
        Some(&SourceLine {
            file: "mods (generated)".to_owned(),
            line: 1
        })
    );
    assert_eq!(linked.origin(0), None);
}

#[test]
fn refuses_an_unknown_kernel_and_names_those_there_are() {
    let text = Linker::new("pointwize").link().unwrap_err().to_string();
    assert!(
        text.contains("`pointwize`") && text.contains("pointwise") && text.contains("matmul_rows"),
        "{text}"
    );
}

#[test]
fn refuses_a_missing_slot() {
    let found = problems(linker("pointwise"));
    let [LinkProblem::UnknownModule { at, module, .. }] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (at.file.as_str(), module.as_str()),
        ("kernels/pointwise.wgsl", "mods")
    );
}

#[test]
fn refuses_a_missing_file_and_a_missing_name_together() {
    let mods = "import package::lib::nowhere::{x};\nimport package::lib::erf::{erf, erfc};\n"
        .to_owned()
        + ELEMENT;
    let found = problems(linker("pointwise").module("mods", &mods));
    let [
        LinkProblem::UnknownModule { module, .. },
        LinkProblem::UnknownName {
            at, name, declared, ..
        },
    ] = found.as_slice()
    else {
        panic!("{found:?}")
    };
    assert_eq!(
        (module.as_str(), name.as_str(), declared.as_str()),
        ("lib::nowhere", "erfc", "erf")
    );
    assert_eq!(
        at,
        &SourceLine {
            file: "mods (generated)".to_owned(),
            line: 2
        }
    );
}

#[test]
fn refuses_a_name_declared_twice() {
    let mods = "fn div_ceil(x: u32) -> u32 {\n    return x;\n}\nconst WORKGROUP_SIZE: u32 = 1u;\n"
        .to_owned()
        + ELEMENT;
    let found = problems(linker("pointwise").module("mods", &mods));
    let names: Vec<_> = found
        .iter()
        .map(|problem| match problem {
            LinkProblem::Duplicate {
                name,
                first,
                second,
            } => (name.as_str(), first.file.as_str(), second.file.as_str()),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(
        names,
        [
            ("WORKGROUP_SIZE", "params/default.wgsl", "mods (generated)"),
            ("div_ceil", "mods (generated)", "lib/indexing.wgsl"),
        ]
    );
}

#[test]
fn names_inside_bodies_and_comments_declare_nothing() {
    let mods = "/* fn div_ceil() {} /* nested */ const WORKGROUP_SIZE = 1; */\n\
                // fn linear_workgroup() {}\n\
                @group(1) @binding(0) var<storage, read> x: array<vec4<f32>, 4>;\n\
                fn element(i: u32) -> f32 {\n    let div_ceil = x[i % 4u].x;\n    return div_ceil;\n}\n";
    linker("pointwise").module("mods", mods).link().unwrap();
    // and `x`, behind its address space, is one
    let again = mods.to_owned() + "fn x() {}\n";
    let found = problems(linker("pointwise").module("mods", &again));
    assert!(
        matches!(found.as_slice(), [LinkProblem::Duplicate { name, .. }] if name == "x"),
        "{found:?}"
    );
}

#[test]
fn refuses_what_it_cannot_read_as_an_import() {
    for line in [
        "import package::lib::erf::*;",
        "import lib::erf::{erf};",
        "import package::lib::erf::{erf}",
        "import",
    ] {
        let found = problems(linker("pointwise").module("mods", &format!("{line}\n{ELEMENT}")));
        assert!(
            matches!(found.as_slice(), [LinkProblem::MalformedImport { .. }]),
            "{line}: {found:?}"
        );
    }
}

#[test]
fn refuses_a_slot_that_nothing_imports() {
    let found = problems(
        linker("pointwise")
            .module("mods", ELEMENT)
            .module("micro", "const ROWS: u32 = 4u;\n"),
    );
    assert_eq!(
        found,
        [LinkProblem::UnusedSlot {
            slot: "micro".to_owned()
        }]
    );
}
