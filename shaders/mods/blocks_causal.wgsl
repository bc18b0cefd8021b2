// block_some, block_all: on a tile, of mask_causal.
fn block_some(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return kv_first <= q_last;
}

fn block_all(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return kv_last <= q_first;
}
