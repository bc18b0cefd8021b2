// pack: a lane takes four neighbouring elements at a time

import package::params::{acc_elem};
import package::combine::{reduce_combine};

alias pack = vec4<acc_elem>;

const PACK: u32 = 4u;

fn pack_combine(x: pack) -> acc_elem {
    return reduce_combine(reduce_combine(x.x, x.y), reduce_combine(x.z, x.w));
}
