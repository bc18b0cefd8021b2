// store_out: one item of memory an element

import package::params::{out_elem, out_item};

@group(0) @binding(1) var<storage, read_write> out: array<out_item>;

fn store_out(at: u32, x: out_elem) {
    out[at] = out_item(x);
}
