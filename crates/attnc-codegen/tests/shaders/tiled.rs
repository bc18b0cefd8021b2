//! Attention tiles whose operands pass through workgroup memory, multiplied by blocks in registers or by matrices:
//! valid for every dim, storage and function, and of exactly the memory that they say.

use attnc_codegen::Stored;
use attnc_codegen::link::Linker;
use attnc_codegen::micro::{
    Access, AttentionTile, MatrixAttentionTile, TiledAttentionTile, Weights,
};
use attnc_codegen::validate::{Report, validate};

fn tile(quads: u32, dim: u32) -> TiledAttentionTile {
    TiledAttentionTile {
        quads,
        of: AttentionTile::contiguous(4, dim),
    }
}

fn matrices(quads: u32, size: u32, dim: u32) -> MatrixAttentionTile {
    MatrixAttentionTile {
        quads,
        size,
        of: AttentionTile {
            operands: Stored::F16,
            ..AttentionTile::contiguous(4, dim)
        },
    }
}

#[track_caller]
fn report(kernel: &str, invocations: u32, micro: &str, of: &AttentionTile) -> Report {
    let params = format!(
        "const WORKGROUP_SIZE: u32 = {invocations}u;\nconst BLOCK_M: u32 = 64u;\nconst BLOCK_N: u32 = 64u;\n"
    );
    let fill = "const HAS_FILL: bool = true;\nconst SETTLED_ABOVE: f32 = -1e9;\n";
    let mut linker = Linker::new(kernel)
        .module("params", &params)
        .module("micro", micro)
        .module_file("mods", "mods/score_softcap")
        .module_file("mods", "mods/mask_causal")
        .module_file("mods", "mods/blocks_causal")
        .module("mods", fill);
    if of.operands == Stored::F16 {
        linker = linker.module("prelude", "enable f16;\n");
    }
    if of.sink {
        linker = linker.module_file("mods", "mods/sink_of_head");
    }
    if of.weights == Weights::BeforeSum {
        linker = linker.module_file("mods", "mods/prob_squared");
    }
    let linked = linker.link().unwrap();
    let report = validate(&linked).unwrap_or_else(|e| panic!("{of:?}: {e}\n{}", linked.source));
    assert_eq!(report.entry_point, kernel);
    assert_eq!(report.workgroup_size, [invocations, 1, 1]);
    report
}

#[track_caller]
fn check(tile: &TiledAttentionTile) {
    let micro = tile.print().unwrap();
    let report = report(
        TiledAttentionTile::KERNEL,
        tile.invocations(),
        &micro,
        &tile.of,
    );
    assert_eq!(report.workgroup_bytes, tile.workgroup_bytes(), "{tile:?}");
    assert!(!report.subgroups && !report.matrices);
}

#[track_caller]
fn check_matrices(tile: &MatrixAttentionTile) {
    let micro = tile.print().unwrap();
    let report = report(
        MatrixAttentionTile::KERNEL,
        tile.invocations(),
        &micro,
        &tile.of,
    );
    assert_eq!(report.workgroup_bytes, tile.workgroup_bytes(), "{tile:?}");
    assert!(report.subgroups && report.matrices && report.f16);
}

#[test]
fn tiles_of_every_dim_are_valid_and_know_their_memory() {
    for dim in [1, 3, 4, 16, 20, 32, 64, 72, 80, 96, 128, 256] {
        for quads in [8, 16] {
            check(&tile(quads, dim));
        }
    }
    let mut apart = tile(16, 576);
    (apart.of.v_dim, apart.of.k, apart.of.v) = (10, Access::Scalar, Access::Scalar);
    apart.of.o = Access::Scalar;
    check(&apart);
}

#[test]
fn the_least_memory_of_a_webgpu_device_is_enough_for_heads_of_128() {
    assert!(tile(16, 128).workgroup_bytes() <= 16352);
    assert!(tile(8, 128).workgroup_bytes() <= 16352);
}

#[test]
fn tiles_of_every_storage_and_function_are_valid() {
    for stored in [
        Stored::F32,
        Stored::F32Pairs,
        Stored::F16,
        Stored::PackedF16,
        Stored::PackedBf16,
    ] {
        for (sink, weighted) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut tile = tile(16, 64);
            tile.of.operands = stored;
            if stored != Stored::F32Pairs {
                tile.of.result = stored;
            }
            (tile.of.sink, tile.of.masked) = (sink, weighted);
            if weighted {
                tile.of.weights = Weights::BeforeSum;
            }
            check(&tile);
            if sink {
                (tile.of.q, tile.of.k, tile.of.v) =
                    (Access::Scalar, Access::Scalar, Access::Scalar);
                check(&tile);
            }
        }
    }
}

#[test]
fn impossible_tiles_are_refused_with_every_reason() {
    let mut tile = tile(5, 0);
    tile.of.rows = 2;
    tile.of.v_dim = 257;
    (tile.of.o, tile.of.result) = (Access::Scalar, Stored::PackedF16);
    tile.of.weights = Weights::AfterSum { skips_absent: true };
    // Rows, quads, two dims, vectors of V, words of O, and weights.
    assert_eq!(tile.print().unwrap_err().problems.len(), 7);
}

#[test]
fn tiles_of_matrices_are_valid_and_know_their_memory() {
    for dim in [1, 4, 15, 32, 64, 80, 128, 256] {
        for (quads, size) in [(8, 16), (16, 16), (4, 8), (16, 8)] {
            check_matrices(&matrices(quads, size, dim));
        }
    }
    let mut tile = matrices(16, 16, 64);
    (tile.of.sink, tile.of.masked) = (true, false);
    tile.of.result = Stored::F16;
    (tile.of.q, tile.of.k, tile.of.v) = (Access::Scalar, Access::Scalar, Access::Scalar);
    check_matrices(&tile);
    assert!(matrices(16, 16, 64).workgroup_bytes() <= 32 << 10);
    assert!(matrices(8, 16, 128).workgroup_bytes() <= 32 << 10);
}

#[test]
fn impossible_tiles_of_matrices_are_refused_with_every_reason() {
    let mut tile = matrices(4, 16, 64);
    tile.of.operands = Stored::F32;
    tile.of.weights = Weights::BeforeSum;
    // Half a pair of matrices, operands, and weights.
    assert_eq!(tile.print().unwrap_err().problems.len(), 3);
    tile.size = 4;
    assert_eq!(tile.print().unwrap_err().problems.len(), 3);
}
