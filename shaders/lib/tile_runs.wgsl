// Runs of tiles: the keys that a workgroup's rows have to walk one after the other.
//
// Tiles in which no key counts lie between runs; in a run, either every tile is full (every key counts for every row)
// or none is. A kernel that walks runs pays for a tile only what it takes to ask about it.

import package::params::{BLOCK_N};
import package::mods::{block_some, block_all};
import package::lib::row_block::{RowBlock};

// Keys of a tile: half a block, since a workgroup here has few rows, and more of its tiles are skipped or full.
const TILE_N: u32 = BLOCK_N / 2u;

// Rows of queries, and the end of their keys.
struct TileRows {
    b: u32,
    h: u32,
    q_first: u32,
    q_last: u32,
    kv_end: u32,
}

fn tile_rows(block: RowBlock, q_len: u32, kv_end: u32) -> TileRows {
    let q_first = select(block.first_row, 0u, block.packed);
    let q_end = select(block.first_row + block.rows, q_len, block.packed);
    return TileRows(block.b, block.first_head, q_first, q_end - 1u, kv_end);
}

// From kv_idx, a key of its first tile, to end - 1.
struct Run {
    kv_idx: u32,
    end: u32,
    full: bool,
}

fn tile_end(kv_idx: u32, rows: TileRows) -> u32 {
    return min((kv_idx / TILE_N + 1u) * TILE_N, rows.kv_end);
}

fn is_live(kv_idx: u32, rows: TileRows, skips: bool) -> bool {
    return !skips
        || block_some(rows.b, rows.h, rows.q_first, rows.q_last, kv_idx, tile_end(kv_idx, rows) - 1u);
}

fn is_full(kv_idx: u32, rows: TileRows) -> bool {
    return block_all(rows.b, rows.h, rows.q_first, rows.q_last, kv_idx, tile_end(kv_idx, rows) - 1u);
}

// The first run from kv_idx on; it starts at kv_end if there is none.
fn next_run(kv_idx: u32, rows: TileRows, skips: bool) -> Run {
    var first = kv_idx;
    while first < rows.kv_end && !is_live(first, rows, skips) {
        first = tile_end(first, rows);
    }
    let full = first < rows.kv_end && is_full(first, rows);
    var end = tile_end(first, rows);
    while end < rows.kv_end && is_live(end, rows, skips) && is_full(end, rows) == full {
        end = tile_end(end, rows);
    }
    return Run(first, end, full);
}
