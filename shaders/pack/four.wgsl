// pack: a lane takes four neighbouring elements at a time

alias pack = vec4<f32>;

const PACK: u32 = 4u;

fn pack_sum(x: pack) -> f32 {
    return (x.x + x.y) + (x.z + x.w);
}

fn pack_max(x: pack) -> f32 {
    return max(max(x.x, x.y), max(x.z, x.w));
}
