// combine: product

import package::params::{acc_elem};

fn reduce_combine(x: acc_elem, y: acc_elem) -> acc_elem {
    return x * y;
}

fn reduce_finish(x: acc_elem, len: u32) -> acc_elem {
    return x;
}
