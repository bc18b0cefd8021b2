// matmul_tiled.f32.64x64k16r8c2.bias
//
// Linked by attnc; generated, do not edit.

// ---- params (generated)

// params: workgroups of 64

const WORKGROUP_SIZE: u32 = 64u;

// ---- kernels/matmul_tiled.wgsl

// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// A workgroup owns BLOCK_M x BLOCK_N outputs. It copies BLOCK_K columns of A and as many rows of B to workgroup
// memory, where each invocation reads what its tile of ROWS x COLUMNS sums in registers needs: an element of
// memory is read once for the whole block, and one of workgroup memory once for a tile.
//
// Blocking of the three levels: Goto and van de Geijn 2008, Anatomy of High-Performance Matrix Multiplication,
// ACM TOMS 34(3), section 4; on GPUs Volkov and Demmel 2008, Benchmarking GPUs to Tune Dense Linear Algebra, SC'08.
//
// Layout: every axis of A, B and C is strided, in elements; a broadcast batch axis has stride 0.

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

// By rows of k: four rows of A, or four columns of B, an item.
var<workgroup> a_tile: array<vec4<f32>, BLOCK_K * A_STRIDE>;
var<workgroup> b_tile: array<vec4<f32>, BLOCK_K * B_STRIDE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_tiled(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let column_blocks = div_ceil(shape.n, BLOCK_N);
    let row_blocks = div_ceil(shape.m, BLOCK_M);
    let index = linear_workgroup(group, groups);
    let batch = index / (column_blocks * row_blocks);
    let b0 = batch / shape.b1;
    let b1 = batch % shape.b1;
    if b0 >= shape.b0 {
        return;
    }
    // Blocks of the same columns follow each other, so that B is in the cache.
    let block_m = (index % row_blocks) * BLOCK_M;
    let block_n = ((index / row_blocks) % column_blocks) * BLOCK_N;
    let row = lane / ACROSS;
    let column = lane % ACROSS;

    var tile: Tile = tile_zero();
    for (var k = 0u; k < shape.k; k += BLOCK_K) {
        stage(b0, b1, block_m, block_n, k, lane);
        workgroupBarrier();
        for (var step = 0u; step < BLOCK_K; step++) {
            tile_multiply_add(&tile, step * A_STRIDE + row * (ROWS / 4u), step * B_STRIDE + column);
        }
        workgroupBarrier();
    }

    // An invocation's blocks of columns lie ACROSS blocks apart: what neighbours read and write lies side by side.
    let m = block_m + row * ROWS;
    let n = block_n + 4u * column;
    for (var r = 0u; r < ROWS && m + r < shape.m; r++) {
        let sums = tile_row(tile, r);
        for (var block = 0u; block < COLUMN_BLOCKS; block++) {
            let at = n + 4u * ACROSS * block;
            if at < shape.n {
                store_block(c_row(b0, b1, m + r), b0, b1, m + r, at, row_block(sums, block));
            }
        }
    }
}

// ---- micro (generated)

// micro: matmul register tile of 8 rows x 8 columns (generated)
//
// One step of k at once: tile row += element of A * row of B.

const ROWS: u32 = 8u;
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
    r4c0: vec4<f32>,
    r4c1: vec4<f32>,
    r5c0: vec4<f32>,
    r5c1: vec4<f32>,
    r6c0: vec4<f32>,
    r6c1: vec4<f32>,
    r7c0: vec4<f32>,
    r7c1: vec4<f32>,
}

fn tile_zero() -> Tile {
    return Tile();
}

const ACROSS: u32 = 8u;
const BLOCK_M: u32 = 64u;
const BLOCK_N: u32 = 64u;
const BLOCK_K: u32 = 16u;
const A_STRIDE: u32 = 17u;
const B_STRIDE: u32 = 17u;

// Where block i of a tile starts, as k and m.
fn a_place(i: u32) -> vec2<u32> {
    return 4u * vec2<u32>(i % (BLOCK_K / 4u), i / (BLOCK_K / 4u));
}

// Where block i of a tile starts, as k and n.
fn b_place(i: u32) -> vec2<u32> {
    return 4u * vec2<u32>(i / (BLOCK_N / 4u), i % (BLOCK_N / 4u));
}

// Four rows of A at four steps of k: a vector for each step.
fn a_block(b0: u32, b1: u32, m: u32, k: u32) -> mat4x4<f32> {
    if k >= shape.k {
        return mat4x4<f32>();
    }
    let rows = a_rows(b0, b1, m);
    return transpose(mat4x4<f32>(
        load_a(rows.r0, k),
        load_a(rows.r1, k),
        load_a(rows.r2, k),
        load_a(rows.r3, k),
    ));
}

// Four columns of B at four steps of k: a vector for each step.
fn b_block(b0: u32, b1: u32, n: u32, k: u32) -> mat4x4<f32> {
    if k >= shape.k {
        return mat4x4<f32>();
    }
    let columns = b_columns(b0, b1, n);
    return load_b(columns.k_stride, columns.c0, k);
}

fn put_a(k: u32, m: u32, block: mat4x4<f32>) {
    let at = k * A_STRIDE + m / 4u;
    a_tile[at + 0u * A_STRIDE] = block[0];
    a_tile[at + 1u * A_STRIDE] = block[1];
    a_tile[at + 2u * A_STRIDE] = block[2];
    a_tile[at + 3u * A_STRIDE] = block[3];
}

fn put_b(k: u32, n: u32, block: mat4x4<f32>) {
    let at = k * B_STRIDE + n / 4u;
    b_tile[at + 0u * B_STRIDE] = block[0];
    b_tile[at + 1u * B_STRIDE] = block[1];
    b_tile[at + 2u * B_STRIDE] = block[2];
    b_tile[at + 3u * B_STRIDE] = block[3];
}

fn tile_multiply_add(tile: ptr<function, Tile>, a_at: u32, b_at: u32) {
    let b0 = b_tile[b_at + 0u];
    let b1 = b_tile[b_at + 8u];
    let a0 = a_tile[a_at + 0u];
    let a1 = a_tile[a_at + 1u];
    (*tile).r0c0 += a0.x * b0;
    (*tile).r0c1 += a0.x * b1;
    (*tile).r1c0 += a0.y * b0;
    (*tile).r1c1 += a0.y * b1;
    (*tile).r2c0 += a0.z * b0;
    (*tile).r2c1 += a0.z * b1;
    (*tile).r3c0 += a0.w * b0;
    (*tile).r3c1 += a0.w * b1;
    (*tile).r4c0 += a1.x * b0;
    (*tile).r4c1 += a1.x * b1;
    (*tile).r5c0 += a1.y * b0;
    (*tile).r5c1 += a1.y * b1;
    (*tile).r6c0 += a1.z * b0;
    (*tile).r6c1 += a1.z * b1;
    (*tile).r7c0 += a1.w * b0;
    (*tile).r7c1 += a1.w * b1;
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
    row.c0 = select(row.c0, tile.r4c0, r == 4u);
    row.c1 = select(row.c1, tile.r4c1, r == 4u);
    row.c0 = select(row.c0, tile.r5c0, r == 5u);
    row.c1 = select(row.c1, tile.r5c1, r == 5u);
    row.c0 = select(row.c0, tile.r6c0, r == 6u);
    row.c1 = select(row.c1, tile.r6c1, r == 6u);
    row.c0 = select(row.c0, tile.r7c0, r == 7u);
    row.c1 = select(row.c1, tile.r7c1, r == 7u);
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

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> bias: array<vec4<f32>>;

// epilogue: acc + bias[n]; n counts vectors
fn epilogue(acc: vec4<f32>, b0: u32, b1: u32, m: u32, n: u32) -> vec4<f32> {
    return acc + bias[n];
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

// ---- lib/matmul_stage.wgsl

// Fills the workgroup's tiles of A and B with the steps k to k + BLOCK_K - 1 of the rows from m and the columns from n.

fn stage(b0: u32, b1: u32, m: u32, n: u32, k: u32, lane: u32) {
    for (var i = lane; i < BLOCK_M * BLOCK_K / 16u; i += WORKGROUP_SIZE) {
        let at = a_place(i);
        put_a(at.x, at.y, a_block(b0, b1, m + at.y, k + at.x));
    }
    for (var i = lane; i < BLOCK_N * BLOCK_K / 16u; i += WORKGROUP_SIZE) {
        let at = b_place(i);
        put_b(at.x, at.y, b_block(b0, b1, n + at.y, k + at.x));
    }
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
