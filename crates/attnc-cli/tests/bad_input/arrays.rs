//! Inputs and expected values.

use crate::bench::Bench;
use attnc::{HostTensor, Tensors, npz};

/// A model of `x [B, 3] f32` and `ids [B] i32`, and good inputs for it.
fn two_inputs(bench: &Bench) -> Tensors {
    let text = "graph @g(%x: f32[B, 3], %ids: i32[B]) {
  %f = cast %ids, to = f32
  %c = reshape %f, shape = [B, 1]
  %y = add %x, %c
  return %y
}";
    bench.write("m.attn", text);
    Tensors::from([
        (
            "x".to_owned(),
            HostTensor::new(vec![2, 3], &[0.5f32; 6]).unwrap(),
        ),
        (
            "ids".to_owned(),
            HostTensor::new(vec![2], &[1i64, 2]).unwrap(),
        ),
    ])
}

const RUN: [&str; 6] = ["run", "m.attn", "--backend", "cpu", "-i", "given.npz"];

#[test]
fn inputs_that_do_not_fit() {
    let bench = Bench::new();
    let good = two_inputs(&bench);
    let give = |tensors: &Tensors| {
        bench.write("given.npz", npz::to_bytes(tensors).unwrap());
    };
    give(&good);
    bench.attnc(&RUN).expect(0, &[]);
    let mut wrong = good.clone();
    wrong.insert(
        "x".to_owned(),
        HostTensor::new(vec![2, 4], &[0f32; 8]).unwrap(),
    );
    wrong.swap_remove("ids");
    wrong.insert("stranger".to_owned(), good["ids"].clone());
    give(&wrong);
    let parts = [
        "`ids` is missing",
        "`stranger`",
        "axis 1",
        "expected 3",
        "found 4",
    ];
    bench.refuses(&RUN, 2, &parts);
    let mut wrong = good.clone();
    wrong.insert(
        "x".to_owned(),
        HostTensor::new(vec![2, 3], &[0i64; 6]).unwrap(),
    );
    wrong.insert(
        "ids".to_owned(),
        HostTensor::new(vec![3], &[0i64, 1, 1 << 40]).unwrap(),
    );
    give(&wrong);
    let parts = [
        "expected float32[B, 3], found int64[2, 3]",
        "1099511627776",
        "ids",
    ];
    bench.refuses(&RUN, 2, &parts);
}

#[test]
fn array_files_that_are_damaged() {
    let bench = Bench::new();
    let good = two_inputs(&bench);
    let whole = npz::to_bytes(&good).unwrap();
    for end in [0, 10, whole.len() / 2, whole.len() - 1] {
        bench.write("given.npz", &whole[..end]);
        bench.refuses(&RUN, 2, &["given.npz", "truncated"]);
    }
    for at in (0..whole.len()).step_by(37) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        bench.write("given.npz", &flipped);
        let said = bench.attnc(&RUN);
        // A changed element is still an element.
        said.expect(said.code.filter(|c| *c == 0).unwrap_or(2), &[]);
    }
}

#[test]
fn headers_that_lie() {
    let bench = Bench::new();
    two_inputs(&bench);
    let npy = |shape: &str, descr: &str, data: usize| {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(vec![0; data]);
        bytes
    };
    let run = [
        "run",
        "m.attn",
        "--backend",
        "cpu",
        "-i",
        "x=x.npy",
        "-i",
        "ids=ids.npy",
    ];
    bench.write("ids.npy", npy("(2,)", "<i4", 8));
    bench.write("x.npy", npy("(2, 3)", "<f4", 24));
    bench.attnc(&run).expect(0, &[]);
    for (shape, descr) in [
        ("(1099511627776, 3)", "<f4"),
        ("(4611686018427387904, 4611686018427387904)", "<f4"),
        ("(20000, 3)", "<f4"),
        ("(2, 3)", "<f8"),
        ("(2, -3)", "<f4"),
        ("(2, 3)", "|O"),
        ("(2, 3)", "<c16"),
        ("nonsense", "<f4"),
    ] {
        bench.write("x.npy", npy(shape, descr, 24));
        bench.refuses(&run, 2, &["x.npy"]);
    }
    bench.write("x.npy", &npy("(2, 3)", "<f4", 24)[..30]);
    bench.refuses(&run, 2, &["x.npy"]);
}

/// A changed element of `x` breaks its checksum, which whoever reads them would notice.
#[test]
fn large_arrays_are_refused_by_their_headers() {
    let bench = Bench::new();
    let mut given = two_inputs(&bench);
    let large = HostTensor::new(vec![2, 2_500_000], &vec![0f32; 5_000_000]).unwrap();
    given.insert("x".to_owned(), large);
    given.swap_remove("ids");
    let mut bytes = npz::to_bytes(&given).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] = 1;
    bench.write("given.npz", bytes);
    let parts = [
        "input `ids` is missing",
        "input `x`, axis 1: expected 3, found 2500000",
    ];
    bench.refuses(&RUN, 2, &parts);
}

#[test]
fn two_arrays_of_one_name() {
    let bench = Bench::new();
    let mut given = two_inputs(&bench);
    given.insert("idz".to_owned(), given["ids"].clone());
    let mut bytes = npz::to_bytes(&given).unwrap();
    for at in 0..bytes.len() - 3 {
        if &bytes[at..at + 3] == b"idz" {
            bytes[at + 2] = b's';
        }
    }
    bench.write("given.npz", bytes);
    bench.refuses(&RUN, 2, &["given.npz: array `ids` occurs twice"]);
}

#[test]
fn a_comparison_that_fails_is_no_error() {
    let bench = Bench::new();
    let good = two_inputs(&bench);
    bench.write("given.npz", npz::to_bytes(&good).unwrap());
    let expected = |values: &[f32]| {
        let y = HostTensor::new(vec![2, 3], values).unwrap();
        let tensors = Tensors::from([("y".to_owned(), y)]);
        bench.write("expected.npz", npz::to_bytes(&tensors).unwrap());
    };
    let verify = [
        "verify",
        "m.attn",
        "--backend",
        "cpu",
        "-i",
        "given.npz",
        "--expect",
        "expected.npz",
    ];
    expected(&[1.5, 1.5, 1.5, 2.5, 2.5, 2.5]);
    bench.attnc(&verify).expect(0, &[]);
    expected(&[1.5, 1.5, 1.5, 2.5, 2.6, 2.5]);
    bench.refuses(&verify, 1, &["[1, 1]", "2.6", "2.5"]);
    bench.write("expected.npz", npz::to_bytes(&good).unwrap());
    bench.refuses(&verify, 2, &["no output is named `x`"]);
}
