// mask_mod: a query attends to the keys that are no padding.

struct MaskDims {
    kv_len: u32,
}

@group(1) @binding(0) var<uniform> mask_dims: MaskDims;
@group(1) @binding(1) var<storage, read> keep: array<u32>; // [B, N], 0 or 1

fn mask_mod(b: u32, h: u32, q_idx: u32, kv_idx: u32) -> bool {
    return keep[b * mask_dims.kv_len + kv_idx] != 0u;
}
