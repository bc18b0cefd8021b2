// The uniform of the attention kernels: lengths, and where Q, K, V and O lie, in elements.

struct Shape {
    batch: u32,
    heads: u32,
    heads_per_kv: u32, // > 1 for grouped-query attention
    q_len: u32,
    kv_len: u32,
    scale: f32,
    q_offset: u32,
    q_batch_stride: u32,
    q_head_stride: u32,
    q_row_stride: u32,
    q_column_stride: u32, // read by scalar loads only; vector loads need 1
    k_offset: u32,
    k_batch_stride: u32,
    k_head_stride: u32,
    k_row_stride: u32,
    k_column_stride: u32,
    v_offset: u32,
    v_batch_stride: u32,
    v_head_stride: u32,
    v_row_stride: u32,
    v_column_stride: u32,
    o_offset: u32,
    o_batch_stride: u32,
    o_head_stride: u32,
    o_row_stride: u32,
    o_column_stride: u32,
}
