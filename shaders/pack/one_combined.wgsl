// pack: a lane takes one element at a time

import package::params::{acc_elem};

alias pack = acc_elem;

const PACK: u32 = 1u;

fn pack_combine(x: pack) -> acc_elem {
    return x;
}
