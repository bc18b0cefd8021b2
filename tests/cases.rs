//! One named test per file under `tests/cases`: what a case is and how to bless one stands in
//! `docs/testing.md` and at the top of `harness/mod.rs`.

mod harness;

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    libtest_mimic::run(&arguments, harness::trials()).exit();
}
