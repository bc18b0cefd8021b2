// block_some, block_all: there is no mask, so every key of every tile counts.
fn block_some(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return true;
}

fn block_all(b: u32, h: u32, q_first: u32, q_last: u32, kv_first: u32, kv_last: u32) -> bool {
    return true;
}
