//! Tiny plans by hand: `y = relu(x · w) + x · w`, with kernels in plain WGSL.

use attnc_plan::{
    Access, Binding, Buffer, DType, DeviceProfile, Dim, KernelArtifact, KernelId, Plan, Port, Step,
    Uniform,
};

const MATMUL: &str = "
struct Params { rows: u32, cols: u32, inner: u32 }
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) num: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let at = (id.x + id.y * num.x + id.z * num.x * num.y) * 64u + lane;
    if at >= p.rows * p.cols { return; }
    let row = at / p.cols;
    let col = at % p.cols;
    var sum = 0.0;
    for (var k = 0u; k < p.inner; k++) { sum += a[row * p.inner + k] * b[k * p.cols + col]; }
    c[at] = sum;
}
";

const RELU: &str = "
struct Params { count: u32, slope: f32 }
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) num: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let at = (id.x + id.y * num.x + id.z * num.x * num.y) * 64u + lane;
    if at >= p.count { return; }
    y[at] = select(x[at] * p.slope, x[at], x[at] > 0.0);
}
";

/// Copies words, each of two elements of 16 bits.
const WORDS: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let at = id.x * 64u + lane;
    if at >= arrayLength(&x) || at >= arrayLength(&y) { return; }
    y[at] = x[at];
}
";

/// The output sits in a group of its own, with a gap before it.
const ADD: &str = "
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(2) @binding(5) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) num: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let at = (id.x + id.y * num.x + id.z * num.x * num.y) * 64u + lane;
    if at >= arrayLength(&a) || at >= arrayLength(&c) { return; }
    c[at] = a[at] + b[at];
}
";

pub(crate) fn kernel(name: &str, wgsl: &str, bindings: Vec<Binding>) -> KernelArtifact {
    KernelArtifact {
        name: name.into(),
        entry: "main".into(),
        wgsl: wgsl.into(),
        bindings,
        workgroup_size: [64, 1, 1],
        ..KernelArtifact::default()
    }
}

pub(crate) fn dim(text: &str) -> Dim {
    text.parse().expect("a length")
}

/// Workgroups of 64 invocations for `count` elements.
pub(crate) fn grid(count: &str) -> [Dim; 3] {
    [
        dim(&format!("floordiv({count} + 63, 64)")),
        Dim::one(),
        Dim::one(),
    ]
}

pub(crate) fn step(
    kernel: KernelId,
    op: &str,
    bindings: Vec<attnc_plan::BufferId>,
    uniforms: Vec<Uniform>,
    grid: [Dim; 3],
) -> Step {
    Step {
        kernel,
        bindings,
        uniforms,
        grid,
        nodes: vec![],
        op: op.into(),
        flops: Dim::zero(),
        turns: Dim::zero(),
    }
}

/// `y[B, 4] = leaky_relu(x[B, 3] · w[3, 4]) + x · w`, then twice more added to itself: two live
/// intermediates at any time, five in all.
pub(crate) fn model() -> Plan {
    let mut plan = Plan::new("tiny", DeviceProfile::webgpu());
    plan.dims = vec!["B".into()];
    let row = || vec![dim("B"), dim("4")];
    let x = plan.add_input(Port::new("x", DType::F32, vec![dim("B"), dim("3")]));
    let w = plan.add_buffer(Buffer::weight("w", DType::F32, vec![dim("3"), dim("4")]));
    let [xw, act, sum, sum2] =
        ["xw", "act", "sum", "sum2"].map(|n| plan.add_buffer(Buffer::temp(n, DType::F32, row())));
    let y = plan.add_output(Port::new("y", DType::F32, row()));
    let storage = |at, access, name| Binding::new(at, access, name);
    let matmul = plan.add_kernel(kernel(
        "matmul.f32",
        MATMUL,
        vec![
            storage(0, Access::Uniform, "p"),
            storage(1, Access::Read, "a"),
            storage(2, Access::Read, "b"),
            storage(3, Access::ReadWrite, "c"),
        ],
    ));
    let relu = plan.add_kernel(kernel(
        "relu.f32",
        RELU,
        vec![
            storage(0, Access::Uniform, "p"),
            storage(1, Access::Read, "x"),
            storage(2, Access::ReadWrite, "y"),
        ],
    ));
    let add = plan.add_kernel(kernel(
        "add.f32",
        ADD,
        vec![
            storage(0, Access::Read, "a"),
            storage(1, Access::Read, "b"),
            Binding {
                group: 2,
                ..storage(5, Access::ReadWrite, "c")
            },
        ],
    ));
    let sizes = vec![
        Uniform::U32(dim("B")),
        Uniform::U32(dim("4")),
        Uniform::U32(dim("3")),
    ];
    plan.steps = vec![
        step(matmul, "matmul", vec![x, w, xw], sizes, grid("4 * B")),
        step(
            relu,
            "relu",
            vec![xw, act],
            vec![Uniform::U32(dim("4 * B")), Uniform::F32(0.5)],
            grid("4 * B"),
        ),
        step(add, "add", vec![xw, act, sum], vec![], grid("4 * B")),
        step(add, "add", vec![sum, sum, sum2], vec![], grid("4 * B")),
        step(add, "add", vec![sum2, sum2, y], vec![], grid("4 * B")),
    ];
    plan
}

/// The weight of [`model`].
pub(crate) fn weight() -> Vec<f32> {
    (0..12).map(|n| n as f32 * 0.25 - 1.0).collect()
}

/// [`model`] on the host.
pub(crate) fn expected(x: &[f32]) -> Vec<f32> {
    let w = weight();
    x.chunks(3)
        .flat_map(|row| {
            (0..4)
                .map(|col| {
                    let xw: f32 = (0..3).map(|k| row[k] * w[k * 4 + col]).sum();
                    (xw + if xw > 0.0 { xw } else { xw * 0.5 }) * 4.0
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// `y = x + x`, one workgroup an element, for grids over the limit.
pub(crate) fn doubling() -> Plan {
    let mut plan = Plan::new("doubling", DeviceProfile::webgpu());
    plan.dims = vec!["N".into()];
    let x = plan.add_input(Port::new("x", DType::F32, vec![dim("N")]));
    add_to_itself(&mut plan, x, dim("N"), "N");
    plan
}

/// `y = w + w` for a weight of `count` elements.
pub(crate) fn twice_a_weight(count: usize) -> Plan {
    let mut plan = Plan::new("twice a weight", DeviceProfile::webgpu());
    let elements = dim(&count.to_string());
    let w = plan.add_buffer(Buffer::weight("w", DType::F32, vec![elements.clone()]));
    add_to_itself(&mut plan, w, elements, &count.div_ceil(64).to_string());
    plan
}

/// `c = a + b`.
pub(crate) fn add() -> KernelArtifact {
    let bindings = vec![
        Binding::new(0, Access::Read, "a"),
        Binding::new(1, Access::Read, "b"),
        Binding {
            group: 2,
            ..Binding::new(5, Access::ReadWrite, "c")
        },
    ];
    kernel("add.f32", ADD, bindings)
}

fn add_to_itself(plan: &mut Plan, x: attnc_plan::BufferId, elements: Dim, workgroups: &str) {
    let y = plan.add_output(Port::new("y", DType::F32, vec![elements]));
    let add = plan.add_kernel(add());
    let grid = [dim(workgroups), Dim::one(), Dim::one()];
    plan.steps
        .push(step(add, "add", vec![x, x, y], vec![], grid));
}

/// `y[N] = x[N]`, both f16, by words.
pub(crate) fn halves() -> Plan {
    let mut plan = Plan::new("halves", DeviceProfile::webgpu());
    plan.dims = vec!["N".into()];
    let x = plan.add_input(Port::new("x", DType::F16, vec![dim("N")]));
    let y = plan.add_output(Port::new("y", DType::F16, vec![dim("N")]));
    let copy = plan.add_kernel(kernel(
        "words.f16",
        WORDS,
        vec![
            Binding::new(0, Access::Read, "x"),
            Binding::new(1, Access::ReadWrite, "y"),
        ],
    ));
    let words = grid("floordiv(N + 1, 2)");
    plan.steps
        .push(step(copy, "copy", vec![x, y], vec![], words));
    plan
}
