// mask_mod: a query attends to itself and the WINDOW - 1 keys before it      (Mistral, arXiv:2310.06825)

const WINDOW: u32 = 256u;

fn mask_mod(b: u32, h: u32, q_idx: u32, kv_idx: u32) -> bool {
    return kv_idx <= q_idx && q_idx < kv_idx + WINDOW;
}
