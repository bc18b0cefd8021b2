//! Products that a workgroup computes together: operands staged in its memory, for tiles of registers and of matrices,
//! or sums split among its lanes.

use attnc_codegen::Stored;
use attnc_codegen::link::Linker;
use attnc_codegen::micro::{Access, Division, LeftLoad, MatmulTile, RightLoad, Staged};
use attnc_codegen::validate::{Report, validate};

const SMALL: Staged = Staged {
    down: 8,
    across: 8,
    steps: 16,
};

fn tiled(rows: u32, columns: u32, staged: Staged) -> MatmulTile {
    MatmulTile {
        rows,
        columns,
        division: Division::Tiled(staged),
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

fn matrices(size: u32) -> MatmulTile {
    let staged = Staged {
        down: 2,
        across: 2,
        steps: 32,
    };
    MatmulTile {
        division: Division::Matrix {
            staged,
            size,
            lanes: 32,
        },
        operands: Stored::F16,
        ..tiled(32, 32, staged)
    }
}

/// All that a tile's kernel imports but what its lanes exchange values by.
fn linker(tile: &MatmulTile, params: &str) -> Linker {
    let mut linker = Linker::new(tile.kernel())
        .module("params", params)
        .module("micro", &tile.print().unwrap())
        .module_file("mods", "mods/matmul_epilogue_bias_gelu");
    if tile.operands == Stored::F16 {
        linker = linker.module("prelude", "enable f16;\n");
    }
    if tile.a == LeftLoad::Element {
        let element =
            "fn a_element(b0: u32, b1: u32, m: u32, k: u32) -> f32 { return f32(m + k); }\n";
        linker = linker.module("mods", element);
    }
    if tile.b == RightLoad::Element {
        let element =
            "fn b_element(b0: u32, b1: u32, k: u32, n: u32) -> f32 { return f32(k + n); }\n";
        linker = linker.module("mods", element);
    }
    linker
}

#[track_caller]
fn check(tile: &MatmulTile) -> Report {
    let invocations = tile.invocations().unwrap();
    let params = format!("const WORKGROUP_SIZE: u32 = {invocations}u;\n");
    let linked = linker(tile, &params).link().unwrap();
    let report = validate(&linked).unwrap_or_else(|e| panic!("{tile:?}: {e}\n{}", linked.source));
    assert_eq!(report.entry_point, tile.kernel());
    assert_eq!(report.workgroup_bytes, tile.workgroup_bytes());
    report
}

/// The tile with operands read in every way, with a tail of k where there may be one.
fn with_every_load(tile: &MatmulTile) -> Vec<MatmulTile> {
    let lefts = [LeftLoad::KVec4, LeftLoad::Scalar, LeftLoad::Element];
    let rights = [
        RightLoad::NVec4,
        RightLoad::KVec4,
        RightLoad::Panels { columns: 16 },
        RightLoad::Scalar,
        RightLoad::Element,
    ];
    let pairs = lefts.into_iter().flat_map(|a| rights.map(|b| (a, b)));
    let tiles = pairs.map(|(a, b)| MatmulTile {
        a,
        b,
        k_tail: a != LeftLoad::KVec4 && !matches!(b, RightLoad::KVec4 | RightLoad::Panels { .. }),
        ..tile.clone()
    });
    tiles.collect()
}

#[test]
fn tiles_of_every_size_and_load_are_valid() {
    let large = Staged {
        down: 16,
        across: 16,
        steps: 8,
    };
    for (rows, columns, staged) in [(4, 4, SMALL), (8, 4, SMALL), (4, 16, SMALL), (8, 8, large)] {
        for tile in with_every_load(&tiled(rows, columns, staged)) {
            let report = check(&tile);
            assert!(!report.subgroups && !report.matrices);
        }
    }
}

#[test]
fn tiles_of_every_storage_are_valid() {
    for stored in [Stored::F16, Stored::PackedF16, Stored::PackedBf16] {
        check(&MatmulTile {
            operands: stored,
            result: stored,
            ..tiled(8, 8, SMALL)
        });
    }
}

#[test]
fn blocks_of_64_fit_where_any_device_has_memory() {
    assert_eq!(tiled(8, 8, SMALL).workgroup_bytes(), 8704);
    assert!(matrices(16).workgroup_bytes() <= 16384);
}

#[test]
fn tiles_of_matrices_are_valid() {
    for size in [8, 16] {
        for tile in with_every_load(&matrices(size)) {
            let report = check(&tile);
            assert!(report.subgroups && report.matrices && report.f16);
        }
    }
}

#[test]
fn sums_that_lanes_have_parts_of_are_valid_however_they_exchange_them() {
    for (file, workgroup_bytes) in [("subgroup", 0), ("subgroups", 512), ("workgroup", 512)] {
        for (rows, columns) in [(1, 4), (4, 8)] {
            let split = MatmulTile {
                division: Division::Lanes { count: 32 },
                ..tiled(rows, columns, SMALL)
            };
            for tile in with_every_load(&split) {
                let params = "alias lane_elem = vec4<f32>;\n\
                    const WORKGROUP_SIZE: u32 = 32u;\n\
                    const SUBGROUP_SIZE_MIN: u32 = 8u;\n";
                let linker = linker(&tile, params).module_file("lanes", &format!("lanes/{file}"));
                let linked = linker.link().unwrap();
                let report = validate(&linked).unwrap_or_else(|e| panic!("{e}\n{}", linked.source));
                assert_eq!(report.entry_point, "matmul_lanes");
                assert_eq!(report.workgroup_bytes, workgroup_bytes);
            }
        }
    }
}

#[test]
fn impossible_tiles_are_refused_with_every_reason() {
    let none = Staged {
        down: 0,
        across: 8,
        steps: 6,
    };
    let problems = tiled(6, 10, none).print().unwrap_err().problems;
    assert_eq!(problems.len(), 3, "{problems:?}");
    let mut tile = matrices(16);
    (tile.rows, tile.operands) = (24, Stored::F32);
    let problems = tile.print().unwrap_err().problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
}
