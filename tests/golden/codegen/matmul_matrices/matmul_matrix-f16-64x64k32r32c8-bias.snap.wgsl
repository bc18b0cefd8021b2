// matmul_matrix.f16.64x64k32r32c8.bias
//
// Linked by attnc; generated, do not edit.
enable wgpu_cooperative_matrix;

// ---- prelude (generated)

enable f16;

// ---- params (generated)

// params: workgroups of 256

const WORKGROUP_SIZE: u32 = 256u;

// ---- kernels/matmul_matrix.wgsl

// Matrix product: C[b0, b1, m, n] = epilogue(sum over k of A[b0, b1, m, k] * B[b0, b1, k, n])
//
// As matmul_tiled, but a tile is a subgroup's, and consists of cooperative matrices of SIZE x SIZE: f16 in, sums in
// f32. Operands are f16 in memory, so that nothing is rounded on the way. A workgroup has at least SUBGROUPS
// subgroups. Where they are smaller than they might be there are more; those repeat the last one's products and put
// them where nobody looks, since all lanes must stay together.
//
// Warp-level tiles on matrix units: Markidis et al. 2018, NVIDIA Tensor Core Programmability, Performance &
// Precision, arXiv:1803.04014, section 4.
//
// Layout: every axis of A, B and C is strided, in elements; a broadcast batch axis has stride 0.

@group(0) @binding(0) var<uniform> shape: Shape;
@group(0) @binding(1) var<storage, read> a: array<a_item>;
@group(0) @binding(2) var<storage, read> b: array<b_item>;
@group(0) @binding(3) var<storage, read_write> c: array<c_item>;

// A and B by rows of k; a matrix of C for each subgroup that counts, and one for all others.
var<workgroup> a_tile: array<f16, BLOCK_K * A_STRIDE>;
var<workgroup> b_tile: array<f16, BLOCK_K * B_STRIDE>;
var<workgroup> c_tile: array<f32, (SUBGROUPS + 1u) * SIZE * SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn matmul_matrix(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
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
    let own = min(subgroup, SUBGROUPS - 1u);
    let row = own / ACROSS * ROWS;
    let column = own % ACROSS * COLUMNS;

    var tile: Tile = tile_zero();
    for (var k = 0u; k < shape.k; k += BLOCK_K) {
        stage(b0, b1, block_m, block_n, k, lane);
        workgroupBarrier();
        for (var step = 0u; step < BLOCK_K; step += SIZE) {
            tile_multiply_add(&tile, step * A_STRIDE + row, step * B_STRIDE + column);
        }
        workgroupBarrier();
    }

    for (var i = 0u; i < MATRICES; i++) {
        put_matrix(tile, i, min(subgroup, SUBGROUPS) * SIZE * SIZE);
        workgroupBarrier();
        // Rows of four columns of one matrix of each subgroup, shared out among all lanes.
        for (var at = 4u * lane; at < SUBGROUPS * SIZE * SIZE; at += 4u * WORKGROUP_SIZE) {
            let owner = at / (SIZE * SIZE);
            let in_row = i / MATRICES_ACROSS * SIZE + at / SIZE % SIZE;
            let in_column = i % MATRICES_ACROSS * SIZE + at % SIZE;
            let m = block_m + owner / ACROSS * ROWS + in_row;
            let n = block_n + owner % ACROSS * COLUMNS + in_column;
            if m < shape.m && n < shape.n {
                let x = vec4<f32>(c_tile[at], c_tile[at + 1u], c_tile[at + 2u], c_tile[at + 3u]);
                store_block(c_row(b0, b1, m), b0, b1, m, n, x);
            }
        }
        workgroupBarrier();
    }
}

// ---- micro (generated)

// micro: matmul register tile of 32 rows x 32 columns (generated)
//
// A matrix of steps of k at once: C += A * B, by all lanes of a subgroup.

const ROWS: u32 = 32u;
const COLUMNS: u32 = 32u;

alias a_item = vec4<f16>;
alias b_item = vec4<f16>;
alias c_item = vec4<f16>;

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
    return vec4<f32>(a[(at + k) / 4u]);
}

fn b_columns(b0: u32, b1: u32, n: u32) -> BColumns {
    let start = shape.b_offset + b0 * shape.b_b0_stride + b1 * shape.b_b1_stride;
    return BColumns(
        start + min(n + 0u, shape.n - 4u),
        shape.b_k_stride,
    );
}

fn load_b_row(k_stride: u32, at: u32, k: u32) -> vec4<f32> {
    return vec4<f32>(b[(at + k * k_stride) / 4u]);
}

fn load_b(k_stride: u32, at: u32, k: u32) -> mat4x4<f32> {
    return mat4x4<f32>(
        load_b_row(k_stride, at, k),
        load_b_row(k_stride, at, k + 1u),
        load_b_row(k_stride, at, k + 2u),
        load_b_row(k_stride, at, k + 3u),
    );
}

const SIZE: u32 = 16u;
const SUBGROUPS: u32 = 4u;
const MATRICES_ACROSS: u32 = 2u;
const MATRICES: u32 = 4u;

alias a_matrix = coop_mat16x16<f16, A>;
alias b_matrix = coop_mat16x16<f16, B>;
alias c_matrix = coop_mat16x16<f32, C>;

struct Tile {
    c0: c_matrix,
    c1: c_matrix,
    c2: c_matrix,
    c3: c_matrix,
}

fn tile_zero() -> Tile {
    return Tile();
}

const ACROSS: u32 = 2u;
const BLOCK_M: u32 = 64u;
const BLOCK_N: u32 = 64u;
const BLOCK_K: u32 = 32u;
const A_STRIDE: u32 = 72u;
const B_STRIDE: u32 = 72u;

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
    let at = k * A_STRIDE + m;
    a_tile[at + 0u * A_STRIDE + 0u] = f16(block[0].x);
    a_tile[at + 0u * A_STRIDE + 1u] = f16(block[0].y);
    a_tile[at + 0u * A_STRIDE + 2u] = f16(block[0].z);
    a_tile[at + 0u * A_STRIDE + 3u] = f16(block[0].w);
    a_tile[at + 1u * A_STRIDE + 0u] = f16(block[1].x);
    a_tile[at + 1u * A_STRIDE + 1u] = f16(block[1].y);
    a_tile[at + 1u * A_STRIDE + 2u] = f16(block[1].z);
    a_tile[at + 1u * A_STRIDE + 3u] = f16(block[1].w);
    a_tile[at + 2u * A_STRIDE + 0u] = f16(block[2].x);
    a_tile[at + 2u * A_STRIDE + 1u] = f16(block[2].y);
    a_tile[at + 2u * A_STRIDE + 2u] = f16(block[2].z);
    a_tile[at + 2u * A_STRIDE + 3u] = f16(block[2].w);
    a_tile[at + 3u * A_STRIDE + 0u] = f16(block[3].x);
    a_tile[at + 3u * A_STRIDE + 1u] = f16(block[3].y);
    a_tile[at + 3u * A_STRIDE + 2u] = f16(block[3].z);
    a_tile[at + 3u * A_STRIDE + 3u] = f16(block[3].w);
}

fn put_b(k: u32, n: u32, block: mat4x4<f32>) {
    let at = k * B_STRIDE + n;
    b_tile[at + 0u * B_STRIDE + 0u] = f16(block[0].x);
    b_tile[at + 0u * B_STRIDE + 1u] = f16(block[0].y);
    b_tile[at + 0u * B_STRIDE + 2u] = f16(block[0].z);
    b_tile[at + 0u * B_STRIDE + 3u] = f16(block[0].w);
    b_tile[at + 1u * B_STRIDE + 0u] = f16(block[1].x);
    b_tile[at + 1u * B_STRIDE + 1u] = f16(block[1].y);
    b_tile[at + 1u * B_STRIDE + 2u] = f16(block[1].z);
    b_tile[at + 1u * B_STRIDE + 3u] = f16(block[1].w);
    b_tile[at + 2u * B_STRIDE + 0u] = f16(block[2].x);
    b_tile[at + 2u * B_STRIDE + 1u] = f16(block[2].y);
    b_tile[at + 2u * B_STRIDE + 2u] = f16(block[2].z);
    b_tile[at + 2u * B_STRIDE + 3u] = f16(block[2].w);
    b_tile[at + 3u * B_STRIDE + 0u] = f16(block[3].x);
    b_tile[at + 3u * B_STRIDE + 1u] = f16(block[3].y);
    b_tile[at + 3u * B_STRIDE + 2u] = f16(block[3].z);
    b_tile[at + 3u * B_STRIDE + 3u] = f16(block[3].w);
}

fn tile_multiply_add(tile: ptr<function, Tile>, a_at: u32, b_at: u32) {
    let b0 = coopLoadT<b_matrix>(&b_tile[b_at + 0u], B_STRIDE);
    let b1 = coopLoadT<b_matrix>(&b_tile[b_at + 16u], B_STRIDE);
    let a0 = coopLoad<a_matrix>(&a_tile[a_at + 0u], A_STRIDE);
    (*tile).c0 = coopMultiplyAdd(a0, b0, (*tile).c0);
    (*tile).c1 = coopMultiplyAdd(a0, b1, (*tile).c1);
    let a1 = coopLoad<a_matrix>(&a_tile[a_at + 16u], A_STRIDE);
    (*tile).c2 = coopMultiplyAdd(a1, b0, (*tile).c2);
    (*tile).c3 = coopMultiplyAdd(a1, b1, (*tile).c3);
}

fn put_matrix(tile: Tile, i: u32, at: u32) {
    switch i {
        case 0u: {
            coopStoreT(tile.c0, &c_tile[at], SIZE);
        }
        case 1u: {
            coopStoreT(tile.c1, &c_tile[at], SIZE);
        }
        case 2u: {
            coopStoreT(tile.c2, &c_tile[at], SIZE);
        }
        case 3u: {
            coopStoreT(tile.c3, &c_tile[at], SIZE);
        }
        default: {
        }
    }
}

// Where a row of C starts.
fn c_row(b0: u32, b1: u32, m: u32) -> u32 {
    return shape.c_offset + b0 * shape.c_b0_stride + b1 * shape.c_b1_stride + m * shape.c_m_stride;
}

fn store_block(row: u32, b0: u32, b1: u32, m: u32, n: u32, x: vec4<f32>) {
    c[(row + n) / 4u] = vec4<f16>(epilogue(x, b0, b1, m, n / 4u));
}

// ---- mods (generated)

@group(1) @binding(0) var<storage, read> bias: array<vec4<f16>>;

// epilogue: acc + bias[n]; n counts vectors
fn epilogue(acc: vec4<f32>, b0: u32, b1: u32, m: u32, n: u32) -> vec4<f32> {
    return acc + vec4<f32>(bias[n]);
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
