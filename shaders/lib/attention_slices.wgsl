// Slices of Q, K and V in workgroup memory, for flash_attention_fwd_tiled.

import package::params::{WORKGROUP_SIZE, BLOCK_N};
import package::micro::{V_VECTORS, IS_MASKED, Rows, RowIndex, load_q, load_k, load_v};
import package::lib::quads::{LANES, odd};
import package::kernels::flash_attention_fwd_tiled::{shape};

const QUADS: u32 = WORKGROUP_SIZE / LANES;
const ROWS: u32 = 4u * QUADS;
const SLICE: u32 = 16u;

// Left operands by four rows an item, a line for each column of Q or key of P. Right operands by four columns an item,
// a line for each key. Lines of an odd length keep the lanes that read several in different banks of the memory.
const LEFT_LINE: u32 = QUADS + 1u;
const K_LINE: u32 = SLICE / 4u + 1u;
var<workgroup> left: array<vec4<f32>, SLICE * LEFT_LINE>;
var<workgroup> right: array<vec4<f32>, max(BLOCK_N * K_LINE, SLICE * V_VECTORS)>;

// Rows of Q times the scale, so that no product overflows before it is scaled. Rows past the end stand in for the last.
fn stage_q(head: u32, first_row: u32, column: u32, invocation: u32) {
    for (var n = invocation; n < QUADS * SLICE / 4u; n += WORKGROUP_SIZE) {
        let quad = n / (SLICE / 4u);
        let part = n % (SLICE / 4u) * 4u;
        let rows = min(first_row + 4u * quad + RowIndex(0u, 1u, 2u, 3u), RowIndex(shape.q_len - 1u));
        let at = head + rows * shape.q_row_stride;
        let x = shape.scale * transpose(mat4x4<f32>(
            load_q(at.x, column + part),
            load_q(at.y, column + part),
            load_q(at.z, column + part),
            load_q(at.w, column + part),
        ));
        left[part * LEFT_LINE + quad] = x[0];
        left[(part + 1u) * LEFT_LINE + quad] = x[1];
        left[(part + 2u) * LEFT_LINE + quad] = x[2];
        left[(part + 3u) * LEFT_LINE + quad] = x[3];
    }
}

fn stage_k(head: u32, first_key: u32, column: u32, invocation: u32) {
    for (var n = invocation; n < BLOCK_N * SLICE / 4u; n += WORKGROUP_SIZE) {
        let key = n / (SLICE / 4u);
        let part = n % (SLICE / 4u);
        let kv_idx = min(first_key + key, shape.kv_len - 1u);
        right[key * K_LINE + part] = load_k(head + kv_idx * shape.k_row_stride, column + 4u * part);
    }
}

// Keys past the end have zeros. The workgroup remembers whether it met an infinity or NaN.
fn stage_v(head: u32, first_key: u32, invocation: u32) {
    for (var n = invocation; n < SLICE * V_VECTORS; n += WORKGROUP_SIZE) {
        let kv_idx = first_key + n / V_VECTORS;
        let known = min(kv_idx, shape.kv_len - 1u);
        let x = load_v(head + known * shape.v_row_stride, n % V_VECTORS * 4u);
        right[n] = select(x, vec4<f32>(), kv_idx != known);
        if IS_MASKED && any(odd(x)) {
            atomicOr(&facts, HAS_ODD);
        }
    }
}

var<workgroup> facts: atomic<u32>;
const HAS_ODD: u32 = 1u; // of a row of V, which masked keys must not multiply by 0
const UNSETTLED: u32 = 2u; // a row's maximum is no greater than SETTLED_ABOVE
var<workgroup> unsettled: u32;

// What the lanes of a quad have, to be read by all of them.
fn share(x: Rows, quad: u32, lane: u32) {
    workgroupBarrier();
    left[lane * LEFT_LINE + quad] = x;
    workgroupBarrier();
}
