// matmul_rows.f32.r4c2.bias
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 32

const WORKGROUP_SIZE: u32 = 32u;

// ---- kernels/matmul_rows.wgsl

// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// One invocation owns a tile of ROWS x COLUMNS outputs in registers and walks k four at a time: a
// row of A gives one vec4, a block of B one mat4x4, and their product is the micro-kernel's step.
//
// The split into macro-kernel (here) and micro-kernel (generated): Van Zee and van de Geijn 2015,
// BLIS, ACM TOMS 41(3), section 5.
//
// Layout: every axis of A, B and C is strided, in elements; a broadcast batch axis has stride 0.

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Neighbouring invocations own neighbouring columns of the same rows.
    let column_tiles = div_ceil(shape.n, COLUMNS);
    let row_tiles = div_ceil(shape.m, ROWS);
    let index = linear_workgroup(group, groups) * WORKGROUP_SIZE + lane;
    let batch = index / (column_tiles * row_tiles);
    let n = (index % column_tiles) * COLUMNS;
    let m = ((index / column_tiles) % row_tiles) * ROWS;
    let b0 = batch / shape.b1;
    let b1 = batch % shape.b1;
    if b0 >= shape.b0 {
        return;
    }

    let rows = a_rows(b0, b1, m);
    let columns = b_columns(b0, b1, n);
    var tile: Tile = tile_zero();
    let terms = shape.k;
    for (var k = 0u; k < terms; k += 4u) {
        tile_multiply_add(&tile, rows, columns, k);
    }

    // The epilogue may be long, so it stands in a loop, not in ROWS * COLUMNS copies.
    let live_rows = min(ROWS, shape.m - m);
    let live_blocks = min(COLUMN_BLOCKS, div_ceil(shape.n - n, 4u));
    let stride = shape.c_m_stride;
    var at = c_row(b0, b1, m);
    for (var r = 0u; r < live_rows; r++) {
        store_row(at, b0, b1, m + r, n, live_blocks, tile_row(tile, r));
        at += stride;
    }
}

// ---- micro (generated)

// micro: matmul register tile of 4 rows x 8 columns (generated)
//
// Four steps of k at once: tile row += (4 x 4 block of B) * (4 elements of A's row).

const ROWS: u32 = 4u;
const COLUMNS: u32 = 8u;

alias a_item = vec4<f32>;
alias b_item = vec4<f32>;
alias c_item = vec4<f32>;

// Where the rows of A start; a row past the end repeats the last.
struct ARows {
    r0: u32,
    r1: u32,
    r2: u32,
    r3: u32,
}

// Where the column blocks of B start; a column past the end repeats the last.
struct BColumns {
    c0: u32,
    c1: u32,
    k_stride: u32,
}

fn a_rows(b0: u32, b1: u32, m: u32) -> ARows {
    let start = shape.a_offset + b0 * shape.a_b0_stride + b1 * shape.a_b1_stride;
    return ARows(
        start + min(m + 0u, shape.m - 1u) * shape.a_m_stride,
        start + min(m + 1u, shape.m - 1u) * shape.a_m_stride,
        start + min(m + 2u, shape.m - 1u) * shape.a_m_stride,
        start + min(m + 3u, shape.m - 1u) * shape.a_m_stride,
    );
}

fn load_a(at: u32, k: u32) -> vec4<f32> {
    return a[(at + k) / 4u];
}

fn b_columns(b0: u32, b1: u32, n: u32) -> BColumns {
    let start = shape.b_offset + b0 * shape.b_b0_stride + b1 * shape.b_b1_stride;
    return BColumns(
        start + min(n + 0u, shape.n - 4u),
        start + min(n + 4u, shape.n - 4u),
        shape.b_k_stride,
    );
}

fn load_b_row(k_stride: u32, at: u32, k: u32) -> vec4<f32> {
    return b[(at + k * k_stride) / 4u];
}

fn load_b(k_stride: u32, at: u32, k: u32) -> mat4x4<f32> {
    return mat4x4<f32>(
        load_b_row(k_stride, at, k),
        load_b_row(k_stride, at, k + 1u),
        load_b_row(k_stride, at, k + 2u),
        load_b_row(k_stride, at, k + 3u),
    );
}

const COLUMN_BLOCKS: u32 = 2u;

// Row r, columns 4 c to 4 c + 3 of its own.
struct Tile {
    r0c0: vec4<f32>,
    r0c1: vec4<f32>,
    r1c0: vec4<f32>,
    r1c1: vec4<f32>,
    r2c0: vec4<f32>,
    r2c1: vec4<f32>,
    r3c0: vec4<f32>,
    r3c1: vec4<f32>,
}

fn tile_zero() -> Tile {
    return Tile();
}

fn tile_multiply_add(tile: ptr<function, Tile>, rows: ARows, columns: BColumns, k: u32) {
    let b0 = load_b(columns.k_stride, columns.c0, k);
    let b1 = load_b(columns.k_stride, columns.c1, k);
    let a0 = load_a(rows.r0, k);
    (*tile).r0c0 += b0 * a0;
    (*tile).r0c1 += b1 * a0;
    let a1 = load_a(rows.r1, k);
    (*tile).r1c0 += b0 * a1;
    (*tile).r1c1 += b1 * a1;
    let a2 = load_a(rows.r2, k);
    (*tile).r2c0 += b0 * a2;
    (*tile).r2c1 += b1 * a2;
    let a3 = load_a(rows.r3, k);
    (*tile).r3c0 += b0 * a3;
    (*tile).r3c1 += b1 * a3;
}

struct TileRow {
    c0: vec4<f32>,
    c1: vec4<f32>,
}

fn tile_row(tile: Tile, r: u32) -> TileRow {
    var row = TileRow(tile.r0c0, tile.r0c1);
    row.c0 = select(row.c0, tile.r1c0, r == 1u);
    row.c1 = select(row.c1, tile.r1c1, r == 1u);
    row.c0 = select(row.c0, tile.r2c0, r == 2u);
    row.c1 = select(row.c1, tile.r2c1, r == 2u);
    row.c0 = select(row.c0, tile.r3c0, r == 3u);
    row.c1 = select(row.c1, tile.r3c1, r == 3u);
    return row;
}

fn row_block(row: TileRow, block: u32) -> vec4<f32> {
    var x = row.c0;
    x = select(x, row.c1, block == 1u);
    return x;
}

// Where a row of C starts.
fn c_row(b0: u32, b1: u32, m: u32) -> u32 {
    return shape.c_offset + b0 * shape.c_b0_stride + b1 * shape.c_b1_stride + m * shape.c_m_stride;
}

fn store_block(row: u32, b0: u32, b1: u32, m: u32, n: u32, x: vec4<f32>) {
    c[(row + n) / 4u] = epilogue(x, b0, b1, m, n / 4u);
}

// The columns from n on of the row of C at `row`, of which `blocks` vectors are there.
fn store_row(row: u32, b0: u32, b1: u32, m: u32, n: u32, blocks: u32, x: TileRow) {
    for (var block = 0u; block < blocks; block++) {
        store_block(row, b0, b1, m, n + 4u * block, row_block(x, block));
    }
}

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> bias: array<vec4<f32>>;

// epilogue: bias[n] + acc; n counts vectors
fn epilogue(acc: vec4<f32>, b0: u32, b1: u32, m: u32, n: u32) -> vec4<f32> {
    return bias[n] + acc;
}

// ---- lib/matmul_shape.wgsl

// The uniform of the matmul kernels: sizes, and where A, B and C lie, in elements.

struct Shape {
    b0: u32,
    b1: u32,
    m: u32,
    n: u32,
    k: u32,
    a_offset: u32,
    a_b0_stride: u32,
    a_b1_stride: u32,
    a_m_stride: u32,
    a_k_stride: u32,
    b_offset: u32,
    b_b0_stride: u32,
    b_b1_stride: u32,
    b_k_stride: u32,
    b_n_stride: u32,
    c_offset: u32,
    c_b0_stride: u32,
    c_b1_stride: u32,
    c_m_stride: u32,
    c_n_stride: u32,
}

// ---- lib/indexing.wgsl

// Index arithmetic shared by all kernels.

// Position of a workgroup in the grid, x fastest. A grid may be folded over y and z in any way:
// kernels use only this number, and workgroups beyond their work return.
fn linear_workgroup(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + groups.x * (group.y + groups.y * group.z);
}

fn div_ceil(x: u32, y: u32) -> u32 {
    return (x + y - 1u) / y;
}
