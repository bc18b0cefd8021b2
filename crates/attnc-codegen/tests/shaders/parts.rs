//! Attention in parts: the kernels that walk some of the keys, and the one that joins what they come to.

use attnc_codegen::Stored;
use attnc_codegen::link::Linker;
use attnc_codegen::micro::{
    Access, AttentionTile, CombineTile, KvLoads, SubgroupAttentionTile, Weights,
};
use attnc_codegen::validate::validate;

use crate::linker;

fn with_mods(linker: Linker) -> Linker {
    linker
        .module_file("mods", "mods/score_identity")
        .module_file("mods", "mods/mask_causal")
        .module_file("mods", "mods/blocks_causal")
        .module_file("mods", "mods/fill_none")
}

#[track_caller]
fn bindings(linker: Linker) -> Vec<String> {
    let linked = linker.link().unwrap();
    let report = validate(&linked).unwrap_or_else(|e| panic!("{e}\n{}", linked.source));
    report.bindings.into_iter().map(|b| b.name).collect()
}

#[test]
fn rows_that_walk_a_part_are_valid() {
    for rows in 1..=4 {
        for (dim, access) in [(4, Access::Vec4), (20, Access::Vec4), (15, Access::Scalar)] {
            let tile = AttentionTile {
                v_dim: 12,
                v: access,
                o: Access::Vec4,
                part: true,
                ..AttentionTile::contiguous(rows, dim)
            };
            let linker = linker(tile.kernel())
                .module("micro", &tile.print().unwrap())
                .module_file("walk", tile.walk().unwrap());
            assert_eq!(bindings(with_mods(linker)), ["shape", "q", "k", "v", "o"]);
        }
    }
}

#[test]
fn subgroups_that_walk_a_part_are_valid() {
    for (width, group, groups) in [(4, 1, 1), (8, 1, 1), (8, 4, 1), (8, 8, 2)] {
        let tile = SubgroupAttentionTile {
            width,
            group,
            groups,
            keys: width / group,
            packs_heads: true,
            qk_dim: 64,
            v_dim: 40,
            operands: Stored::PackedF16,
            kv: KvLoads::Fours,
            result: Stored::F32,
            masked: true,
            scores_mask: true,
            sink: false,
            prob_mod: false,
            part: true,
        };
        let linker = linker(SubgroupAttentionTile::KERNEL)
            .module("micro", &tile.print().unwrap())
            .module_file("walk", tile.walk())
            .module_file("schedule", "schedule/static");
        assert_eq!(bindings(with_mods(linker)), ["shape", "q", "k", "v", "o"]);
    }
}

#[test]
fn results_of_every_storage_are_joined() {
    let ways = [
        (Access::Vec4, Stored::F32),
        (Access::Scalar, Stored::F32),
        (Access::Vec4, Stored::PackedF16),
        (Access::Vec4, Stored::PackedBf16),
    ];
    for (o, result) in ways {
        for sink in [false, true] {
            let tile = CombineTile {
                v_dim: 20,
                o,
                result,
                sink,
            };
            let mut linker = linker(CombineTile::KERNEL)
                .module("micro", &tile.print().unwrap())
                .module_file("walk", "walk/whole");
            let mut expected = vec!["shape", "parts", "o"];
            if sink {
                linker = linker.module_file("mods", "mods/sink_of_head");
                expected.push("logits");
            }
            assert_eq!(bindings(linker), expected);
        }
    }
}

#[test]
fn what_has_no_parts_is_refused() {
    let tile = AttentionTile {
        weights: Weights::AfterSum { skips_absent: true },
        part: true,
        ..AttentionTile::contiguous(1, 8)
    };
    assert!(tile.print().unwrap_err().to_string().contains("part: "));
    let tile = AttentionTile {
        part: true,
        ..AttentionTile::contiguous(1, 15)
    };
    assert!(tile.print().unwrap_err().to_string().contains("part: "));
    let tile = CombineTile {
        v_dim: 6,
        o: Access::Scalar,
        result: Stored::PackedF16,
        sink: false,
    };
    assert_eq!(tile.print().unwrap_err().problems.len(), 2);
}
