// Index that comes from data: a negative one counts from the end, and no value leaves [0, len).
fn gather_index(i: i32, len: u32) -> u32 {
    let from_start = select(i, i + i32(len), i < 0);
    return u32(clamp(from_start, 0, i32(len) - 1));
}
