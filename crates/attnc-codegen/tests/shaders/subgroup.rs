//! The tiles whose lanes exchange numbers, of every width and size.

use attnc_codegen::Stored;
use attnc_codegen::micro::{
    Access, Division, KvLoads, LeftLoad, MatmulTile, RightLoad, SubgroupAttentionTile,
};
use attnc_codegen::validate::validate;

use crate::linker;

pub(crate) fn attention() -> SubgroupAttentionTile {
    SubgroupAttentionTile {
        width: 8,
        group: 8,
        groups: 4,
        keys: 1,
        packs_heads: false,
        qk_dim: 64,
        v_dim: 64,
        operands: Stored::F32,
        kv: KvLoads::Fours,
        result: Stored::F32,
        masked: true,
        scores_mask: true,
        sink: false,
        prob_mod: false,
        part: false,
    }
}

#[track_caller]
fn check(tile: &SubgroupAttentionTile) {
    let mut linker = linker(SubgroupAttentionTile::KERNEL)
        .module("micro", &tile.print().unwrap())
        .module_file("walk", tile.walk())
        .module_file("schedule", "schedule/static")
        .module_file("mods", "mods/score_identity")
        .module_file("mods", "mods/mask_causal")
        .module_file("mods", "mods/blocks_causal")
        .module_file("mods", "mods/fill_none");
    if tile.operands == Stored::F16 {
        linker = linker.module("prelude", "enable f16;\n");
    }
    if tile.sink {
        linker = linker.module_file("mods", "mods/sink_of_head");
    }
    if tile.prob_mod {
        linker = linker.module_file("mods", "mods/prob_squared");
    }
    let linked = linker.link().unwrap();
    let report = validate(&linked).unwrap_or_else(|e| panic!("{tile:?}: {e}\n{}", linked.source));
    assert_eq!(report.entry_point, SubgroupAttentionTile::KERNEL);
    assert_eq!((report.subgroups, report.workgroup_bytes), (true, 0));
    assert_eq!(report.int64, tile.operands == Stored::F32Pairs);
}

#[test]
fn attention_tiles_of_every_width_and_dim_are_valid() {
    for width in [4, 8] {
        for group in [1, 2, 4, 8].into_iter().filter(|g| *g <= width) {
            for (groups, dim) in [(1, 4), (2, 20), (2, 64), (4, 80)] {
                check(&SubgroupAttentionTile {
                    width,
                    group,
                    groups,
                    keys: (width / group).min(groups),
                    qk_dim: dim,
                    v_dim: dim + 8,
                    ..attention()
                });
            }
        }
    }
}

#[test]
fn attention_tiles_of_every_storage_and_function_are_valid() {
    for stored in [
        Stored::F32,
        Stored::F32Pairs,
        Stored::F16,
        Stored::PackedF16,
        Stored::PackedBf16,
    ] {
        for (sink, prob_mod) in [(false, false), (true, false), (false, true), (true, true)] {
            check(&SubgroupAttentionTile {
                operands: stored,
                result: stored,
                packs_heads: sink,
                masked: prob_mod,
                scores_mask: prob_mod,
                sink,
                prob_mod,
                ..attention()
            });
        }
    }
}

#[test]
fn columns_come_by_eights_where_lanes_have_as_many() {
    let suits =
        |width, columns| SubgroupAttentionTile::suits_eights(width, Stored::F32Pairs, columns);
    assert!(suits(8, 64) && suits(8, 128) && suits(4, 32) && suits(8, 56));
    assert!(!suits(8, 32) && !suits(8, 80) && !suits(8, 60));
    assert!(!SubgroupAttentionTile::suits_eights(8, Stored::F32, 64));
    for (qk_dim, v_dim) in [(64, 128), (128, 64), (56, 64)] {
        check(&SubgroupAttentionTile {
            operands: Stored::F32Pairs,
            kv: KvLoads::Eights,
            groups: 2,
            qk_dim,
            v_dim,
            ..attention()
        });
    }
}

#[test]
fn eights_are_refused_where_lanes_would_have_more_or_elements_are_no_pairs() {
    for (operands, dim) in [(Stored::F32Pairs, 32), (Stored::F32, 64)] {
        let tile = SubgroupAttentionTile {
            operands,
            kv: KvLoads::Eights,
            qk_dim: dim,
            v_dim: dim,
            ..attention()
        };
        assert_eq!(tile.print().unwrap_err().problems.len(), 2);
    }
}

#[test]
fn impossible_attention_tiles_are_refused_with_every_reason() {
    let error = SubgroupAttentionTile {
        width: 6,
        group: 3,
        groups: 5,
        keys: 3,
        qk_dim: 10,
        v_dim: 0,
        ..attention()
    };
    assert_eq!(error.print().unwrap_err().problems.len(), 6);
}

pub(crate) fn matmul() -> MatmulTile {
    MatmulTile {
        rows: 24,
        division: Division::Subgroup { lanes: 8 },
        columns: 8,
        a: LeftLoad::KVec4,
        b: RightLoad::NVec4,
        c: Access::Vec4,
        a_image: false,
        b_image: false,
        c_eights: false,
        epilogue: Access::Scalar,
        operands: Stored::F32,
        result: Stored::F32,
        k_tail: false,
    }
}

#[test]
fn matmul_tiles_that_lanes_share_are_valid() {
    let b_element =
        "fn b_element(b0: u32, b1: u32, k: u32, n: u32) -> f32 {\n    return f32(k + n);\n}\n";
    let loads = [
        (RightLoad::NVec4, Stored::F32),
        (RightLoad::NVec4, Stored::F32Pairs),
        (RightLoad::NVec8, Stored::F32Pairs),
        (RightLoad::KVec4, Stored::F32),
        (RightLoad::KVec4, Stored::F32Pairs),
        (RightLoad::Panels { columns: 64 }, Stored::F32),
        (RightLoad::Panels { columns: 4 }, Stored::F32Pairs),
        (RightLoad::Scalar, Stored::F32Pairs),
        (RightLoad::Element, Stored::F32),
    ];
    for (width, rows, columns) in [(4, 4, 4), (8, 5, 8), (8, 32, 16)] {
        for (b, operands) in loads {
            if b == RightLoad::NVec8 && columns < 8 {
                continue;
            }
            let tile = MatmulTile {
                operands,
                result: operands,
                c_eights: operands == Stored::F32Pairs && columns == 8,
                rows,
                division: Division::Subgroup { lanes: width },
                columns,
                b,
                ..matmul()
            };
            let mut linker = linker(tile.kernel())
                .module("micro", &tile.print().unwrap())
                .module_file("schedule", "schedule/static")
                .module_file("mods", "mods/matmul_epilogue_bias_gelu");
            if b == RightLoad::Element {
                linker = linker.module("mods", b_element);
            }
            let linked = linker.link().unwrap();
            let report = validate(&linked).unwrap_or_else(|e| panic!("{e}\n{}", linked.source));
            assert_eq!(report.entry_point, "matmul_subgroup");
            assert!(report.subgroups);
            assert_eq!(report.int64, operands == Stored::F32Pairs);
        }
    }
}

#[test]
fn eights_of_b_need_pairs_and_columns_by_eights() {
    for (operands, columns) in [(Stored::F32, 8), (Stored::F32Pairs, 12)] {
        let tile = MatmulTile {
            operands,
            columns,
            b: RightLoad::NVec8,
            ..matmul()
        };
        assert_eq!(tile.print().unwrap_err().problems.len(), 1);
        let written = MatmulTile {
            result: operands,
            columns,
            c_eights: true,
            ..matmul()
        };
        assert_eq!(written.print().unwrap_err().problems.len(), 1);
    }
}

#[test]
fn panels_have_columns_by_fours() {
    for columns in [0, 6] {
        let tile = MatmulTile {
            b: RightLoad::Panels { columns },
            ..matmul()
        };
        assert_eq!(tile.print().unwrap_err().problems.len(), 1);
    }
}

#[test]
fn rows_of_a_are_shared_by_vectors_only() {
    let tile = MatmulTile {
        a: LeftLoad::Scalar,
        rows: 33,
        ..matmul()
    };
    assert_eq!(tile.print().unwrap_err().problems.len(), 3);
    let odd = MatmulTile {
        rows: 12,
        ..matmul()
    };
    assert!(odd.print().unwrap_err().problems[0].contains("12 for 8 lanes"));
}
