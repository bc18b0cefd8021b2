//! Every kernel links and validates with its tiles and with the hand-written mods.

use attnc_codegen::Stored;
use attnc_codegen::link::{Linked, Linker};
use attnc_codegen::micro::{
    Access, AttentionTile, Division, LeftLoad, MatmulTile, RightLoad, Weights,
};
use attnc_codegen::validate::{Report, validate};

use crate::linker;

fn report(linked: &Linked) -> Report {
    validate(linked).unwrap_or_else(|error| panic!("{error}\n{}", linked.source))
}

fn attention(tile: &AttentionTile, score: &str, mask: &str) -> Linked {
    linker("flash_attention_fwd_rows")
        .module("micro", &tile.print().unwrap())
        .module_file("walk", tile.walk().unwrap())
        .module_file("mods", score)
        .module_file("mods", mask)
        .module_file("mods", "mods/blocks_full")
        .module_file("mods", "mods/fill_none")
        .link()
        .unwrap()
}

fn with_mods(linker: Linker, mods: &str) -> Report {
    report(&linker.module_file("mods", mods).link().unwrap())
}

#[test]
fn attention_tiles_of_every_kind_are_valid() {
    for dim in [1, 3, 4, 15, 32, 64, 80, 128, 256] {
        for rows in 1..=4 {
            let linked = attention(
                &AttentionTile::contiguous(rows, dim),
                "mods/score_identity",
                "mods/mask_causal",
            );
            let report = report(&linked);
            assert_eq!(report.entry_point, "flash_attention_fwd_rows");
            assert_eq!(report.workgroup_bytes, 0);
            let names: Vec<_> = report
                .bindings
                .iter()
                .map(|binding| binding.name.as_str())
                .collect();
            assert_eq!(names, ["shape", "q", "k", "v", "o"]);
            assert_eq!(report.bindings[0].min_size, 26 * 4);
            assert_eq!(
                report.bindings[1].min_size,
                if dim % 4 == 0 { 16 } else { 4 }
            );
        }
    }
}

#[test]
fn attention_operands_may_differ_in_access_and_dims() {
    let mut tile = AttentionTile::contiguous(2, 32);
    (tile.v_dim, tile.v, tile.o, tile.masked) = (10, Access::Scalar, Access::Scalar, false);
    let linked = attention(&tile, "mods/score_identity", "mods/mask_none");
    let report = report(&linked);
    let sizes: Vec<_> = report
        .bindings
        .iter()
        .map(|binding| binding.min_size)
        .collect();
    assert_eq!(sizes, [104, 16, 16, 4, 4]);
    assert!(
        !linked.source.contains("select(vec4<f32>()"),
        "an unmasked tile selects nothing"
    );
}

#[test]
fn sinks_and_weights_of_every_kind_are_valid() {
    let before = Weights::BeforeSum;
    let after = [true, false].map(|skips_absent| Weights::AfterSum { skips_absent });
    for weights in [Weights::Probabilities, before, after[0], after[1]] {
        for (sink, rows) in [(false, 1), (true, 1), (true, 3)] {
            let mut tile = AttentionTile::contiguous(rows, 16);
            (tile.sink, tile.weights) = (sink, weights);
            let mut linker = linker(tile.kernel())
                .module("micro", &tile.print().unwrap())
                .module_file("mods", "mods/score_identity")
                .module_file("mods", "mods/mask_causal");
            if let Some(walk) = tile.walk() {
                linker = linker
                    .module_file("walk", walk)
                    .module_file("mods", "mods/blocks_full")
                    .module_file("mods", "mods/fill_none");
            }
            if weights != Weights::Probabilities {
                linker = linker.module_file("mods", "mods/prob_squared");
            }
            if sink {
                linker = linker.module_file("mods", "mods/sink_of_head");
            }
            let report = report(&linker.link().unwrap());
            assert_eq!(report.entry_point, tile.kernel());
            assert_eq!(report.bindings.iter().any(|b| b.group == 1), sink);
        }
    }
}

#[test]
fn tiles_of_every_storage_are_valid() {
    for stored in [Stored::F16, Stored::PackedF16, Stored::PackedBf16] {
        let item = if stored == Stored::F16 { 2 } else { 4 };
        for dim in [4, 10] {
            let mut tile = AttentionTile::contiguous(2, dim);
            (tile.operands, tile.result) = (stored, stored);
            if tile.o == Access::Scalar && stored.is_packed() {
                tile.result = Stored::F32;
            }
            let mut linker = linker("flash_attention_fwd_rows");
            if stored == Stored::F16 {
                linker = linker.module("prelude", "enable f16;\n");
            }
            let linked = linker
                .module("micro", &tile.print().unwrap())
                .module_file("walk", tile.walk().unwrap())
                .module_file("mods", "mods/score_identity")
                .module_file("mods", "mods/mask_causal")
                .module_file("mods", "mods/blocks_full")
                .module_file("mods", "mods/fill_none")
                .link()
                .unwrap();
            let report = report(&linked);
            assert_eq!(report.f16, stored == Stored::F16);
            // Four elements take 8 bytes either way.
            let q = if dim == 4 { 8 } else { item };
            assert_eq!(report.bindings[1].min_size, q, "{stored}");
        }
    }
}

#[test]
fn a_packed_result_is_written_by_vectors_only() {
    let mut tile = AttentionTile::contiguous(2, 10);
    tile.result = Stored::PackedF16;
    let problems = tile.print().unwrap_err().problems;
    assert_eq!(
        problems,
        ["o: words of two elements are written by vectors only"]
    );
}

#[test]
fn wide_queries_are_read_in_a_loop() {
    let lines = |qk_dim| {
        let mut tile = AttentionTile::contiguous(2, qk_dim);
        (tile.v_dim, tile.v, tile.o) = (8, Access::Vec4, Access::Vec4);
        let linked = attention(&tile, "mods/score_identity", "mods/mask_causal");
        report(&linked);
        linked.source.lines().count()
    };
    assert_eq!(
        lines(320),
        lines(5760),
        "the text does not grow with the columns"
    );
    assert!(lines(320) < lines(256));
    assert!(lines(324) > lines(320), "what is left of the columns");
    assert!(lines(321) > lines(320), "a last chunk in part");
}

#[test]
fn the_hand_written_mods_are_valid() {
    let tile = AttentionTile::contiguous(4, 32);
    for score in [
        "mods/score_identity",
        "mods/score_softcap",
        "mods/score_alibi",
    ] {
        for mask in [
            "mods/mask_none",
            "mods/mask_causal",
            "mods/mask_sliding_window",
        ] {
            report(&attention(&tile, score, mask));
        }
    }
    let padding = report(&attention(
        &tile,
        "mods/score_identity",
        "mods/mask_padding",
    ));
    assert_eq!(
        padding
            .bindings
            .iter()
            .filter(|binding| binding.group == 1)
            .count(),
        2
    );
}

#[test]
fn block_masks_are_valid() {
    let report = with_mods(linker("block_mask"), "mods/mask_causal");
    assert_eq!(report.workgroup_bytes, 4);
    let linked = linker("flash_attention_fwd_rows")
        .module("micro", &AttentionTile::contiguous(4, 32).print().unwrap())
        .module_file("mods", "mods/score_identity")
        .module_file("mods", "mods/mask_causal")
        .module_file("mods", "mods/blocks_causal")
        .module_file("mods", "mods/fill_none")
        .module_file("walk", "walk/whole")
        .link()
        .unwrap();
    assert_eq!(self::report(&linked).workgroup_bytes, 0);
}

#[test]
fn matmul_tiles_of_every_kind_are_valid() {
    let a_element = "import package::kernels::matmul_rows::{a};\n\
        fn a_element(b0: u32, b1: u32, m: u32, k: u32) -> f32 { return f32(a[m + k]); }\n";
    let b_element =
        "fn b_element(b0: u32, b1: u32, k: u32, n: u32) -> f32 { return f32(k + n); }\n";
    let lefts = [LeftLoad::KVec4, LeftLoad::Scalar, LeftLoad::Element];
    let rights = [
        RightLoad::NVec4,
        RightLoad::KVec4,
        RightLoad::Panels { columns: 32 },
        RightLoad::Scalar,
        RightLoad::Element,
    ];
    // One epilogue computes elements, the other four of them.
    let of_four = "@group(1) @binding(0) var<storage, read> bias: array<vec4<f32>>;\n\
        fn epilogue(acc: vec4<f32>, b0: u32, b1: u32, m: u32, n: u32) -> vec4<f32> { return acc + bias[n]; }\n";
    for (rows, columns) in [(1, 4), (2, 8), (4, 12), (16, 16)] {
        for (a, b) in lefts
            .into_iter()
            .flat_map(|a| rights.into_iter().map(move |b| (a, b)))
        {
            for (c, epilogue, k_tail) in [
                (Access::Vec4, Access::Vec4, false),
                (Access::Vec4, Access::Scalar, true),
                (Access::Scalar, Access::Scalar, true),
            ] {
                let b_by_k = matches!(b, RightLoad::KVec4 | RightLoad::Panels { .. });
                let by_k = a == LeftLoad::KVec4 || b_by_k;
                let tile = MatmulTile {
                    rows,
                    division: Division::Rows,
                    columns,
                    a,
                    b,
                    c,
                    a_image: false,
                    b_image: false,
                    c_eights: false,
                    epilogue,
                    operands: Stored::F32,
                    result: Stored::F32,
                    k_tail: k_tail && !by_k,
                };
                let linker = linker("matmul_rows").module("micro", &tile.print().unwrap());
                let linker = match epilogue {
                    Access::Vec4 => linker.module("mods", of_four),
                    Access::Scalar => linker.module_file("mods", "mods/matmul_epilogue_bias_gelu"),
                };
                let linked = linker
                    .module(
                        "mods",
                        if a == LeftLoad::Element {
                            a_element
                        } else {
                            ""
                        },
                    )
                    .module(
                        "mods",
                        if b == RightLoad::Element {
                            b_element
                        } else {
                            ""
                        },
                    )
                    .link()
                    .unwrap();
                let names: Vec<_> = report(&linked)
                    .bindings
                    .into_iter()
                    .map(|binding| binding.name)
                    .collect();
                let expected = ["shape", "a", "b", "c", "bias"];
                let without_b = b == RightLoad::Element; // b_element above reads no binding
                let expected: Vec<_> = expected
                    .into_iter()
                    .filter(|name| *name != "b" || !without_b)
                    .collect();
                assert_eq!(names, expected, "{tile:?}");
            }
        }
    }
}

#[test]
fn row_and_pointwise_kernels_are_valid() {
    for store in ["elements", "packed_f16", "packed_bf16"] {
        let rows = |kernel| linker(kernel).module_file("store", &format!("store/{store}"));
        for kernel in [
            "softmax_rows",
            "layer_norm_rows",
            "rms_norm_rows",
            "scan_rows",
        ] {
            for mods in ["mods/rows_identity", "mods/rows_residual_affine"] {
                assert_eq!(with_mods(rows(kernel), mods).entry_point, kernel);
            }
        }
        for combine in ["sum", "mean", "max", "min", "prod"] {
            let linker =
                rows("reduce_rows").module_file("combine", &format!("mods/reduce_{combine}"));
            with_mods(linker, "mods/rows_identity");
        }
    }
    let linear = linker("linear_attention").module_file("store", "store/elements");
    with_mods(linear, "mods/linear_attention_gated_delta");
    with_mods(linker("pointwise"), "mods/element_add");
    with_mods(linker("pointwise"), "mods/element_gather_rows");
}

const ROWS_OF_VECTORS: &str = "
@group(1) @binding(0) var<storage, read> x: array<vec4<f32>>;
fn load_element(row: u32, i: u32) -> vec4<f32> { return x[row * 96u + i]; }
fn epilogue(value: vec4<f32>, row: u32, i: u32) -> vec4<f32> { return value * 2.0; }";

const REDUCED_VECTORS: &str = "
@group(1) @binding(0) var<storage, read> x: array<vec4<f32>>;
fn load_element(row: u32, i: u32) -> vec4<f32> { return x[row * 96u + i]; }
fn epilogue(value: f32, row: u32, i: u32) -> f32 { return value * 2.0; }";

const PARAMS_OF_VECTORS: &str = "
alias out_elem = vec4<f32>;
alias out_item = vec4<f32>;
alias lane_elem = f32;
const WORKGROUP_SIZE: u32 = 64u;
const SUBGROUP_SIZE_MIN: u32 = 16u;
";

#[test]
fn rows_that_lanes_share_are_valid_however_they_exchange_values() {
    for (lanes, workgroup_bytes, subgroups) in [
        ("subgroup", 0, true),
        ("subgroups", 4, true),
        ("workgroup", 4, false),
    ] {
        let shared = |linker: Linker, pack: &str| {
            linker
                .module_file("lanes", &format!("lanes/{lanes}"))
                .module_file("pack", &format!("pack/{pack}"))
        };
        let check = |found: &Report| {
            let lanes = found.workgroup_size[0];
            assert_eq!(found.workgroup_bytes, workgroup_bytes * lanes);
            assert_eq!(found.subgroups, subgroups);
        };
        for kernel in ["softmax_lanes", "layer_norm_lanes", "rms_norm_lanes"] {
            let one = shared(linker(kernel), "one").module_file("store", "store/elements");
            check(&with_mods(one, "mods/rows_residual_affine"));
            for store in ["elements", "packed_f16_vectors", "packed_bf16_vectors"] {
                let four = shared(Linker::new(kernel), "four")
                    .module("params", PARAMS_OF_VECTORS)
                    .module_file("store", &format!("store/{store}"))
                    .module("mods", ROWS_OF_VECTORS);
                check(&report(&four.link().unwrap()));
            }
        }
        for combine in ["sum", "mean", "max", "min", "prod"] {
            for (pack, mods) in [
                (
                    "one_combined",
                    "fn load_element(row: u32, i: u32) -> f32 { return f32(i); }
                 fn epilogue(value: f32, row: u32, i: u32) -> f32 { return value; }",
                ),
                ("four_combined", REDUCED_VECTORS),
            ] {
                let linker = shared(linker("reduce_lanes"), pack)
                    .module_file("combine", &format!("mods/reduce_{combine}"))
                    .module_file("store", "store/elements")
                    .module("mods", mods);
                check(&report(&linker.link().unwrap()));
            }
        }
    }
}

#[test]
fn every_file_of_the_catalogue_is_linked_by_some_test_above() {
    // A new kernel must come with a test that validates it.
    let tested = [
        "block_mask",
        "flash_attention_combine",
        "flash_attention_fwd_matrix",
        "flash_attention_fwd_rows",
        "flash_attention_fwd_subgroup",
        "flash_attention_fwd_tiled",
        "flash_attention_fwd_two_walks",
        "layer_norm_lanes",
        "layer_norm_rows",
        "linear_attention",
        "matmul_lanes",
        "matmul_matrix",
        "matmul_rows",
        "matmul_subgroup",
        "matmul_tiled",
        "pointwise",
        "reduce_lanes",
        "reduce_rows",
        "rms_norm_lanes",
        "rms_norm_rows",
        "scan_rows",
        "softmax_lanes",
        "softmax_rows",
    ];
    let kernels: Vec<_> = attnc_shaders::CATALOGUE
        .iter()
        .filter_map(|file| file.name.strip_prefix("kernels/"))
        .collect();
    assert_eq!(kernels, tested);
}

#[test]
fn the_catalogue_lists_every_file_once_and_sorted() {
    assert!(attnc_shaders::CATALOGUE.is_sorted_by(|a, b| a.name < b.name));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shaders");
    for folder in ["kernels", "lanes", "lib", "mods", "pack", "params", "store"] {
        for entry in std::fs::read_dir(format!("{root}/{folder}")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("{folder}/{}", name.trim_end_matches(".wgsl"));
            assert!(
                attnc_shaders::find(&path).is_some(),
                "{path}.wgsl is not in the catalogue"
            );
        }
    }
}

#[test]
fn refuses_impossible_tiles_with_every_reason() {
    let mut tile = AttentionTile::contiguous(5, 0);
    tile.v_dim = 257;
    let problems = tile.print().unwrap_err().problems;
    assert_eq!(problems.len(), 5, "{problems:?}"); // rows, two dims, and vectors for v and o of 257 columns
    assert!(problems[0].contains("rows: expected 1 to 4, found 5"));

    let (a, b) = (LeftLoad::KVec4, RightLoad::NVec4);
    let tile = MatmulTile {
        rows: 0,
        division: Division::Rows,
        columns: 6,
        a,
        b,
        c: Access::Scalar,
        a_image: false,
        b_image: false,
        c_eights: false,
        epilogue: Access::Vec4,
        operands: Stored::F32,
        result: Stored::F32,
        k_tail: true,
    };
    assert_eq!(tile.print().unwrap_err().problems.len(), 4);
}

#[test]
fn printed_lines_are_short_and_the_same_each_time() {
    let tile = AttentionTile::contiguous(4, 64);
    let text = tile.print().unwrap();
    assert_eq!(text, tile.print().unwrap());
    let matmul = MatmulTile {
        rows: 8,
        division: Division::Rows,
        columns: 16,
        a: LeftLoad::Scalar,
        b: RightLoad::Scalar,
        c: Access::Scalar,
        a_image: false,
        b_image: false,
        c_eights: false,
        epilogue: Access::Scalar,
        operands: Stored::F32,
        result: Stored::F32,
        k_tail: true,
    };
    for line in text.lines().chain(matmul.print().unwrap().lines()) {
        assert!(line.len() <= 180, "{line}");
        assert!(!line.ends_with(' '), "{line:?}");
    }
}
