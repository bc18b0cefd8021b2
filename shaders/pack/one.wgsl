// pack: a lane takes one element at a time

alias pack = f32;

const PACK: u32 = 1u;

fn pack_sum(x: pack) -> f32 {
    return x;
}

fn pack_max(x: pack) -> f32 {
    return x;
}
