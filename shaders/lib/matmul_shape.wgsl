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
