// mask_mod: a query attends to the keys up to its own position (aligned to the top-left corner).
fn mask_mod(b: u32, h: u32, q_idx: u32, kv_idx: u32) -> bool {
    return kv_idx <= q_idx;
}
