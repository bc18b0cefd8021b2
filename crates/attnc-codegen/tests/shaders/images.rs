//! The tiles that read operands through images.

use attnc_codegen::Stored;
use attnc_codegen::link::{Linked, Linker};
use attnc_codegen::micro::{
    Division, KvLoads, LeftLoad, MatmulTile, RightLoad, Staged, SubgroupAttentionTile,
};
use attnc_codegen::validate::{self, validate};

use crate::languages::translated;
use crate::{linker, subgroup};

fn attention(operands: Stored) -> SubgroupAttentionTile {
    SubgroupAttentionTile {
        v_dim: 40,
        operands,
        kv: KvLoads::Images,
        result: operands,
        ..subgroup::attention()
    }
}

fn matmul(division: Division, b: RightLoad, operands: Stored) -> MatmulTile {
    MatmulTile {
        rows: 8,
        division,
        b,
        a_image: true,
        b_image: true,
        operands,
        result: operands,
        ..subgroup::matmul()
    }
}

const DIVISIONS: [Division; 4] = [
    Division::Rows,
    Division::Lanes { count: 8 },
    Division::Subgroup { lanes: 8 },
    Division::Tiled(Staged {
        down: 8,
        across: 8,
        steps: 16,
    }),
];

/// Links with images of these operands; the bindings that are images.
#[track_caller]
fn check(linker: Linker, operands: &[&str]) -> Linked {
    let mut linked = linker.link().unwrap();
    for operand in operands {
        linked.bind_image(operand);
    }
    let report = validate(&linked).unwrap_or_else(|e| panic!("{e}\n{}", linked.source));
    let images = report.bindings.iter();
    let images = images.filter(|b| b.access == validate::Access::Image);
    assert_eq!(images.map(|b| &b.name).collect::<Vec<_>>(), operands);
    linked
}

fn attention_linker(tile: &SubgroupAttentionTile) -> Linker {
    linker(SubgroupAttentionTile::KERNEL)
        .module("micro", &tile.print().unwrap())
        .module_file("walk", tile.walk())
        .module_file("schedule", "schedule/static")
        .module_file("mods", "mods/score_identity")
        .module_file("mods", "mods/mask_causal")
        .module_file("mods", "mods/blocks_causal")
        .module_file("mods", "mods/fill_none")
}

fn matmul_linker(tile: &MatmulTile) -> Linker {
    let size = "const WORKGROUP_SIZE: u32 = 8u;\n";
    let linker = Linker::new(tile.kernel()).module("params", size);
    let linker = match tile.division {
        Division::Lanes { .. } => linker
            .module("params", "alias lane_elem = vec4<f32>;\n")
            .module_file("lanes", "lanes/subgroup"),
        Division::Subgroup { .. } => linker.module_file("schedule", "schedule/static"),
        _ => linker,
    };
    linker
        .module("micro", &tile.print().unwrap())
        .module_file("mods", "mods/matmul_epilogue_bias_gelu")
}

#[test]
fn tiles_of_every_kernel_and_load_are_valid() {
    for operands in [Stored::F32, Stored::F32Pairs] {
        let tile = attention(operands);
        check(attention_linker(&tile), &["k", "v"]);
        for division in DIVISIONS {
            for b in [
                RightLoad::NVec4,
                RightLoad::KVec4,
                RightLoad::Panels { columns: 16 },
            ] {
                let tile = matmul(division, b, operands);
                assert_eq!(tile.images(), ["a", "b"]);
                check(matmul_linker(&tile), &["a", "b"]);
                let tile = MatmulTile {
                    a_image: false,
                    ..tile
                };
                check(matmul_linker(&tile), &["b"]);
            }
        }
    }
}

#[test]
fn only_f32_by_fours_is_read_through_images() {
    assert_eq!(
        attention(Stored::F16).print().unwrap_err().problems.len(),
        1
    );
    let shared = Division::Subgroup { lanes: 8 };
    for (operands, b, wrong) in [
        (Stored::F16, RightLoad::NVec4, 2),
        (Stored::F32Pairs, RightLoad::NVec8, 1),
        (Stored::F32, RightLoad::Scalar, 1),
        (Stored::PackedBf16, RightLoad::Element, 2),
    ] {
        let error = matmul(shared, b, operands).print().unwrap_err();
        assert_eq!(error.problems.len(), wrong, "{error}");
    }
    let by_elements = MatmulTile {
        a: LeftLoad::Scalar,
        ..matmul(Division::Rows, RightLoad::NVec4, Stored::F32)
    };
    assert_eq!(by_elements.print().unwrap_err().problems.len(), 1);
}

#[test]
fn shaders_and_plans_agree_on_the_width_of_a_row() {
    let file = attnc_shaders::find("lib/images").unwrap();
    let width = attnc_plan::IMAGE_WIDTH;
    let declared = format!("const IMAGE_WIDTH: u32 = {width}u;");
    assert!(file.source.contains(&declared), "{}", file.source);
}

#[test]
fn every_language_has_images() {
    let tile = attention(Stored::F32);
    let attention = check(attention_linker(&tile), &["k", "v"]);
    let tile = matmul(Division::Rows, RightLoad::NVec4, Stored::F32);
    let matmul = check(matmul_linker(&tile), &["a", "b"]);
    for (linked, entry) in [
        (&attention, SubgroupAttentionTile::KERNEL),
        (&matmul, "matmul_rows"),
    ] {
        let texts = translated(&linked.source, entry);
        let declared = [
            "metal::texture2d<float, metal::access::read>",
            "RWTexture2D<float4>",
            "layout(rgba32f) readonly uniform highp image2D",
        ];
        for (text, declared) in texts.iter().zip(declared) {
            assert!(text.contains(declared), "{text}");
        }
    }
}
